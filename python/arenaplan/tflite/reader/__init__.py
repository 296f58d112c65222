"""TFLite files as data, as graphs, and as the timeline of the runtime."""
