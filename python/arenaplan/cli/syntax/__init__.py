"""What each command takes: its operands and options, without what carries it out."""
