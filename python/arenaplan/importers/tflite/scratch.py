"""
Which operators of TensorFlow Lite Micro may ask for scratch memory.

A kernel asks for scratch memory when it is prepared, no file tells of it, and the runtime's
own planner places it together with the tensors. The table below lists the operators whose
reference kernels ask for none: those without ``RequestScratchBufferInArena`` in
``tensorflow/lite/micro/kernels`` of https://github.com/tensorflow/tflite-micro, as of August
2026. Every other operator may ask, custom operators included. Optimized kernels, such as those
of CMSIS-NN, may ask where the reference kernel does not.
"""

from __future__ import annotations

from typing import Final

from arenaplan.importers.tflite.model import Model, Operator, Subgraph
from arenaplan.importers.tflite.schema import DTYPES

_NAMES: Final = """
    ABS ADD ARG_MAX ARG_MIN ASSIGN_VARIABLE AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND
    BROADCAST_ARGS BROADCAST_TO CALL_ONCE CAST CEIL CONCATENATION COS CUMSUM DEPTH_TO_SPACE
    DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP EQUAL EXP EXPAND_DIMS FILL FLOOR
    FLOOR_DIV FLOOR_MOD GATHER GATHER_ND GREATER GREATER_EQUAL HARD_SWISH IF L2_NORMALIZATION
    L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC
    LOG_SOFTMAX MAXIMUM MAX_POOL_2D MINIMUM MUL NEG NOT_EQUAL PACK PAD PADV2 PRELU QUANTIZE
    READ_VARIABLE RELU RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND
    RSQRT SELECT_V2 SHAPE SIN SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT
    SQUARE SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB TANH TRANSPOSE UNPACK VAR_HANDLE WHILE
    ZEROS_LIKE
"""

_NONE: Final = frozenset(_NAMES.split())
"""Operators whose reference kernels never ask."""

_UNPACKED: Final = {"CONV_2D": 1, "DEPTHWISE_CONV_2D": 1, "FULLY_CONNECTED": 1}
"""Operators whose reference kernels ask only to unpack weights of four bits, and which input
the weights are."""

_FLOAT: Final = {"TRANSPOSE_CONV": 2}
"""Operators whose reference kernels ask for none if an input, by its position, is ``float32``."""

_COMPRESSED: Final = "COMPRESSION_METADATA"
"""Metadata of models whose weights kernels decompress into scratch memory."""


def scratch_operators(model: Model) -> tuple[str, ...]:
    """
    Return the operators of a model whose kernels may ask for scratch memory.

    Returns
    -------
    tuple of str
        Names, each once, in the order of the file; of all subgraphs.
    """
    is_compressed = any(entry.name == _COMPRESSED for entry in model.metadata)
    found = (
        operator.name
        for subgraph in model.subgraphs
        for operator in subgraph.operators
        if is_compressed or _may_ask(subgraph, operator)
    )
    return tuple(dict.fromkeys(found))


def _may_ask(subgraph: Subgraph, operator: Operator) -> bool:
    """Return whether the kernel of an operator may ask for scratch memory."""
    if operator.is_custom:
        return True
    if operator.name in _UNPACKED:
        return _dtype(subgraph, operator, _UNPACKED[operator.name]) == "int4"
    if operator.name in _FLOAT:
        return _dtype(subgraph, operator, _FLOAT[operator.name]) != "float32"
    return operator.name not in _NONE


def _dtype(subgraph: Subgraph, operator: Operator, position: int) -> str | None:
    """Return the element type of an operator's input, or None if it has none that we know."""
    index = operator.inputs[position] if position < len(operator.inputs) else None
    return None if index is None else DTYPES.get(subgraph.tensors[index].type)
