"""Errors and their cures, limits, messages, progress: what every other part may import."""
