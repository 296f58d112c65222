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

_OPTIONS: Final = {
    "i b": "ADD SUB",
    "i": "ARG_MAX ARG_MIN CALL_ONCE DEPTH_TO_SPACE DIV L2_NORMALIZATION LEAKY_RELU MIRROR_PAD "
    "MUL SHAPE SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V",
    "10i": "AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D",
    "3b": "BATCH_MATMUL",
    "2i": "CAST CONCATENATION GATHER IF PACK UNPACK WHILE",
    "7i": "CONV_2D DEPTHWISE_CONV_2D",
    "2b": "CUMSUM RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR",
    "2i 2b i p i": "FULLY_CONNECTED",
    "b": "MEAN REDUCE_ALL REDUCE_MAX REDUCE_MIN SUM",
    "9i": "RESHAPE SQUEEZE",
    "5i b": "STRIDED_SLICE",
    "2i b": "SVDF",
    "5i": "TRANSPOSE_CONV",
    "3i 3b": "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "2p": "VAR_HANDLE",
}
OPTIONS: Final = {name: layout for layout, names in _OPTIONS.items() for name in names.split()}
"""The options that the runtime keeps for an operator, such as ``TfLiteConvParams``."""
