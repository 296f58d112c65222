"""Plans carried out by frameworks, and files of frameworks that are read without them."""
