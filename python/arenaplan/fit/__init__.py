"""Models rewritten until they fit a budget."""
