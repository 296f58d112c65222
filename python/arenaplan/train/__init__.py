"""Operators and symbols with inferred shapes, gradients, updates, training in one arena."""
