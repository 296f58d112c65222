"""
Image row rules for TFLite operators.

An operator that is not in the table is never split. Every rule requires a kernel that computes each
result element only from the element's window, in an order independent of the number of rows. For
these operators, the TensorFlow Lite Micro, LiteRT and XNNPACK kernels qualify with 8-bit and 16-bit
integers and ``float32``.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from math import prod
from typing import Final

from arenaplan.graph.ops import BITS
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import Subgraph, TfliteModel, TfliteOperator
from arenaplan.tflite.reader.tflite_tensors import SubgraphShapes, unique_names
from arenaplan.tflite.rewrite.image_rows import RowWindow
from arenaplan.tflite.rewrite.program import OperatorProgram, Order, ProgramTensor, RowRule
from arenaplan.tflite.rewrite.program import ProgramOperator as Node
from arenaplan.tflite.runtime.aliases import row_of

_SAME: Final = 0

_DILATION: Final = {"CONV_2D": (4, 5), "DEPTHWISE_CONV_2D": (5, 6)}
"""Slots for the column and row dilation."""

_POOLS: Final = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D"})

_NAMES: Final = """
    ABS ADD DEQUANTIZE DIV ELU HARD_SWISH LEAKY_RELU LOGISTIC MAXIMUM MINIMUM MUL NEG PRELU QUANTIZE
    RELU RELU6 RELU_N1_TO_1 SQUARED_DIFFERENCE SUB TANH
"""
_ELEMENTWISE: Final = frozenset(_NAMES.split())

_IN_ORDER: Final = frozenset({"ADD", "MUL", "RELU", "RELU6", "SUB"})
"""Elementwise operators whose reference kernel reads an element right before writing the result."""

_PER_RESULT: Final = 11.0
"""Nanoseconds per result element."""

_PER_WORK: Final = {"DEPTHWISE_CONV_2D": 2.2, "AVERAGE_POOL_2D": 2.2, "MAX_POOL_2D": 2.2}
_LEAST_PER_WORK: Final = 0.55
"""
Nanoseconds per multiply-accumulate in reference kernels.

Fitted to operators from three models in the TensorFlow Lite Micro interpreter on x86-64. Only
ratios count: other processors are slower overall.
"""

_PADS: Final = frozenset({"PAD", "PADV2"})

_DTYPES: Final = frozenset({"int8", "uint8", "int16", "float32"})


def program_of(model: TfliteModel, *, shares: bool = False) -> OperatorProgram:
    """
    Return a model's main subgraph as a program.

    Operators that call subgraphs or access variables are never split.

    Parameters
    ----------
    model : TfliteModel
        The model.
    shares : bool, default False
        Whether elementwise results may be at an operand's address.
    """
    main = model.subgraphs[0]
    names = unique_names(main)
    shapes = SubgraphShapes(main, names, None)
    tensors = []
    for index, tensor in enumerate(main.tensors):
        bits = BITS.get(DTYPES.get(tensor.type, ""), 0)
        item = bits // 8 if bits >= 8 else 0
        stored = model.is_constant(tensor) or tensor.is_variable
        tensors.append(ProgramTensor(names[index], shapes.of(index), item, stored))
    operators = []
    for operator in main.operators:
        outputs = tuple(i for i in operator.outputs if i is not None)
        rule = None if len(outputs) != 1 else _rule(model, operator, tensors)
        if rule is not None and not shares and rule.order in ("elements", "places"):
            rule = replace(rule, order="unknown")
        work = _work(operator, tensors)
        made = sum(prod(tensors[i].shape) for i in outputs)
        time = made * _PER_RESULT + work * _PER_WORK.get(operator.name, _LEAST_PER_WORK)
        operators.append(Node(operator.name, operator.inputs, outputs, rule, work, time))
    return OperatorProgram(tuple(tensors), tuple(operators), main.inputs, main.outputs)


def _rule(
    model: TfliteModel, operator: TfliteOperator, tensors: list[ProgramTensor]
) -> RowRule | None:
    """Return an operator's row rule, if known."""
    main = model.subgraphs[0]
    if operator.is_custom or operator.intermediates or not operator.inputs:
        return None
    operands = (*operator.inputs, *operator.outputs)
    if any(i is not None and main.tensors[i].is_variable for i in operands):
        return None
    x, y = operator.inputs[0], operator.outputs[0]
    if x is None or y is None or not tensors[y].is_image:
        return None
    if DTYPES.get(main.tensors[y].type) not in _DTYPES:
        return None
    if operator.name in _ELEMENTWISE:
        return _elementwise(main, operator, tensors)
    if DTYPES.get(main.tensors[x].type) != DTYPES.get(main.tensors[y].type):
        return None  # Hybrid kernels measure the whole operand's range.
    if not tensors[x].is_image or tensors[x].is_stored:
        return None
    if operator.name in _PADS:
        return _padding(model, operator, tensors[x], tensors[y])
    extent = _extent(main, operator, tensors)
    if extent is None:
        return None
    options = operator.options
    strides = options.number(2), options.number(1)
    if min(*extent, *strides) < 1:
        return None
    is_same = options.number(0) == _SAME
    image, made = tensors[x].shape, tensors[y].shape
    padding = []
    for axis, (size, stride) in enumerate(zip(extent, strides, strict=True), start=1):
        count = -(-image[axis] // stride) if is_same else -(-(image[axis] - size + 1) // stride)
        if count != made[axis]:
            return None
        total = max((count - 1) * stride + size - image[axis], 0) if is_same else 0
        padding.append((total // 2, total - total // 2))
    window = RowWindow(
        kernel=extent[0],
        stride=strides[0],
        before=padding[0][0],
        rows=image[1],
        made=made[1],
        is_same=is_same,
        columns=padding[1],
        is_linear=operator.name not in _POOLS,
        across=strides[1],
    )
    return RowRule((0,), window, "pixels")


def _padding(
    model: TfliteModel, operator: TfliteOperator, x: ProgramTensor, y: ProgramTensor
) -> RowRule | None:
    """Return the rule for an operator that pads rows and columns by constant amounts."""
    main = model.subgraphs[0]
    rest = operator.inputs[1:]
    if any(i is None or not model.is_constant(main.tensors[i]) for i in rest) or not rest:
        return None
    amounts = main.tensors[rest[0] or 0]
    if DTYPES.get(amounts.type) != "int32" or amounts.shape != (4, 2) or amounts.is_external:
        return None
    content = model.content(amounts.buffer)
    if len(content) != 32:
        return None
    batch, rows, columns, channels = struct.iter_unpack("<2i", content)
    if any((*batch, *channels)) or min(*rows, *columns) < 0:
        return None
    made = (x.shape[1] + sum(rows), x.shape[2] + sum(columns))
    if y.shape != (1, *made, x.shape[3]):
        return None
    window = RowWindow(
        kernel=1,
        stride=1,
        before=rows[0],
        rows=x.shape[1],
        made=made[0],
        is_same=False,
        columns=(columns[0], columns[1]),
        is_linear=False,
        is_padding=True,
    )
    return RowRule((0,), window)


def _extent(
    main: Subgraph, operator: TfliteOperator, tensors: list[ProgramTensor]
) -> tuple[int, int] | None:
    """Return the rows and columns from a window's first to last tap."""
    options = operator.options
    if operator.name in _POOLS:
        return options.number(4), options.number(3)
    if operator.name not in _DILATION or len(operator.inputs) < 2:
        return None
    weights = operator.inputs[1]
    rest = [i for i in operator.inputs[1:] if i is not None]
    if weights is None or not all(tensors[i].is_stored for i in rest):
        return None
    shape = tensors[weights].shape
    # Smaller weights are unpacked into scratch memory, once per call.
    if len(shape) != 4 or tensors[weights].item == 0 or main.tensors[weights].is_sparse:
        return None
    across, down = (options.number(slot) for slot in _DILATION[operator.name])
    return (shape[1] - 1) * down + 1, (shape[2] - 1) * across + 1


def _elementwise(
    main: Subgraph, operator: TfliteOperator, tensors: list[ProgramTensor]
) -> RowRule | None:
    """Return the rule for an elementwise operator."""
    result = operator.outputs[0]
    if result is None:
        return None
    y = tensors[result]
    images = []
    for position, index in enumerate(operator.inputs):
        if index is None:
            return None
        x = tensors[index]
        if x.is_image and x.shape == y.shape and not x.is_stored:
            images.append(position)
        elif not x.is_stored or (len(x.shape) >= 3 and x.shape[-3] != 1):
            return None  # Only an operand that is equal in all rows can stay whole.
        if DTYPES.get(main.tensors[index].type) not in _DTYPES:
            return None
    if not images:
        return None
    window = RowWindow(
        1, 1, 0, y.shape[1], y.shape[1], is_same=False, columns=(0, 0), is_linear=True
    )
    order: Order = "elements" if operator.name in _IN_ORDER else "unknown"
    if order == "unknown" and row_of(operator, "reference") is not None:
        order = "places"
    return RowRule(tuple(images), window, order)


def _work(operator: TfliteOperator, tensors: list[ProgramTensor]) -> int:
    """Return an operator's number of multiplications."""
    if operator.is_custom or not operator.outputs or operator.outputs[0] is None:
        return 0
    made = prod(tensors[operator.outputs[0]].shape)
    weights = operator.inputs[1] if len(operator.inputs) > 1 else None
    if operator.name in {"CONV_2D", "FULLY_CONNECTED"} and weights is not None:
        return made * prod(tensors[weights].shape[1:])
    if operator.name == "DEPTHWISE_CONV_2D" and weights is not None:
        return made * prod(tensors[weights].shape[1:3])
    if operator.name in _POOLS:
        return made * operator.options.number(3) * operator.options.number(4)
    return made
