"""TFLite files as data, as graphs, and as the runtime's timeline."""
