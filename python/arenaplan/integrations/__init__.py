"""Plans carried out by frameworks, and framework files that are read without the frameworks."""
