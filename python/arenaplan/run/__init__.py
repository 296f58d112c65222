"""Running plans: with NumPy, on CUDA devices, for models of many shapes, in a server."""
