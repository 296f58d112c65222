"""
TensorFlow Lite Micro's structures.

Fields have the notation of :mod:`~arenaplan.tflite.runtime.struct_layout`.

The structures come from https://github.com/tensorflow/tflite-micro as of October 2026, compiled
with ``TF_LITE_STATIC_MEMORY`` like all builds of the runtime.
"""

from __future__ import annotations

from typing import Final

ALLOCATOR: Final = "2p 5p p i"
"""``SingleArenaBufferAllocator``; two vtable pointers."""
RECORDING_ALLOCATOR: Final = "2p 5p p i 4p"
PLANNER: Final = "p 2i 4p 2i p b"
"""``GreedyMemoryPlanner``."""
MICRO_ALLOCATOR: Final = "p 4p b 3p"
RECORDING_MICRO_ALLOCATOR: Final = "p 4p b 3p p 21p ?3p"
OPTIONS_ALLOCATOR: Final = "2p"
"""``MicroBuiltinDataAllocator``."""
SUBGRAPH: Final = "2p ?p"
"""``SubgraphAllocations``."""
EVAL_TENSOR: Final = "2p i"
NODE: Final = "6p i p"
"""``NodeAndRegistration``."""
TENSOR: Final = "[i p] 2i 3p 2i b"
"""``TfLiteTensor``."""
QUANTIZATION: Final = "2p i"
"""``TfLiteAffineQuantization``."""
SCRATCH_REQUEST: Final = "p 2i"
ALLOCATION: Final = "2p 3i b"
"""``AllocationInfo``."""
PLANNED_BUFFER: Final = 16 + 4 + 4 + 12 + 4
"""Bytes per buffer that ``GreedyMemoryPlanner`` uses while planning."""
VARIABLES: Final = "p 2i"
"""``MicroResourceVariables``."""
VARIABLE: Final = "4p b"
MOST_SCRATCH: Final = 12
"""Requests for scratch memory that the runtime makes room for beforehand."""

OPTIONS: Final = {
    "ADD": "i b",
    "ARG_MAX": "i",
    "ARG_MIN": "i",
    "AVERAGE_POOL_2D": "10i",
    "BATCH_MATMUL": "3b",
    "CALL_ONCE": "i",
    "CAST": "2i",
    "CONCATENATION": "2i",
    "CONV_2D": "7i",
    "CUMSUM": "2b",
    "DEPTHWISE_CONV_2D": "7i",
    "DEPTH_TO_SPACE": "i",
    "DIV": "i",
    "FULLY_CONNECTED": "2i 2b i p i",
    "GATHER": "2i",
    "IF": "2i",
    "L2_NORMALIZATION": "i",
    "L2_POOL_2D": "10i",
    "LEAKY_RELU": "i",
    "MAX_POOL_2D": "10i",
    "MEAN": "b",
    "MIRROR_PAD": "i",
    "MUL": "i",
    "PACK": "2i",
    "REDUCE_ALL": "b",
    "REDUCE_MAX": "b",
    "REDUCE_MIN": "b",
    "RESHAPE": "9i",
    "RESIZE_BILINEAR": "2b",
    "RESIZE_NEAREST_NEIGHBOR": "2b",
    "SHAPE": "i",
    "SOFTMAX": "i",
    "SPACE_TO_DEPTH": "i",
    "SPLIT": "i",
    "SPLIT_V": "i",
    "SQUEEZE": "9i",
    "STRIDED_SLICE": "5i b",
    "SUB": "i b",
    "SUM": "b",
    "SVDF": "2i b",
    "TRANSPOSE_CONV": "5i",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "3i 3b",
    "UNPACK": "2i",
    "VAR_HANDLE": "2p",
    "WHILE": "2i",
}
"""The options that the runtime keeps for an operator, such as ``TfLiteConvParams``."""
