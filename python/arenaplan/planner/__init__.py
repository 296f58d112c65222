"""From a graph to a plan: options, memories, packing. Knows no operators and no file formats."""
