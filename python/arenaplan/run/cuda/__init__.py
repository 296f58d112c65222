"""
Runs planned graphs on devices: CUDA, through CuPy.

Kernels are text that is generated from the graph (:mod:`arenaplan.run.cuda.lowering`), products of
matrices are cuBLAS. Nothing here is imported before a device or the target ``"cupy"`` is asked for.
"""
