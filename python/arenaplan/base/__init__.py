"""Errors, limits, messages and progress, which every other wing may import."""
