"""TensorFlow Lite: files, the memory of its runtime, rewrites, and proofs of rewrites."""
