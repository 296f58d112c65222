"""The planners of NNVM, MXNet and TensorFlow Lite, to the byte, and improved."""
