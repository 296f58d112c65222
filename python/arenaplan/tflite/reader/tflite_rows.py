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

from arenaplan.graph.ops import BITS, Pixelwise
from arenaplan.tflite.reader.operand_facts import OperandFacts
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import Subgraph, TfliteModel, TfliteOperator
from arenaplan.tflite.rewrite.image_rows import RowWindow
from arenaplan.tflite.rewrite.program import OperatorProgram, Order, ProgramTensor, RowRule
from arenaplan.tflite.rewrite.program import ProgramOperator as Node
from arenaplan.tflite.runtime.aliases import row_of

_SAME: Final = 0

_CONVOLUTIONS: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})

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
    facts = OperandFacts(model)
    tensors = []
    for index, tensor in enumerate(main.tensors):
        bits = BITS.get(DTYPES.get(tensor.type, ""), 0)
        item = bits // 8 if bits >= 8 else 0
        stored = model.is_constant(tensor) or tensor.is_variable
        tensors.append(ProgramTensor(facts.names[index], facts.shape(index), item, stored))
    operators = []
    for operator in main.operators:
        outputs = tuple(i for i in operator.outputs if i is not None)
        rule = None if len(outputs) != 1 else _rule(model, operator, tensors, facts)
        if rule is not None and not shares and rule.order in ("elements", "places"):
            rule = replace(rule, order="unknown")
        work = _work(operator, tensors)
        made = sum(prod(tensors[i].shape) for i in outputs)
        time = made * _PER_RESULT + work * _PER_WORK.get(operator.name, _LEAST_PER_WORK)
        operators.append(Node(operator.name, operator.inputs, outputs, rule, work, time))
    return OperatorProgram(tuple(tensors), tuple(operators), main.inputs, main.outputs)


def _rule(
    model: TfliteModel,
    operator: TfliteOperator,
    tensors: list[ProgramTensor],
    facts: OperandFacts,
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
    known = facts.canonical(operator) if _keeps_weights(main, operator, tensors) else None
    if not isinstance(known, Pixelwise):
        return None
    is_same = operator.options.number(0) == _SAME
    padding = []
    for axis, slide in enumerate((known.rows, known.columns), start=1):
        size, count = tensors[x].shape[axis], tensors[y].shape[axis]
        reach = (count - 1) * slide.stride + slide.extent
        if count != -(-(size if is_same else size - slide.extent + 1) // slide.stride):
            return None
        padding.append((slide.before, max(reach - size, 0) - slide.before if is_same else 0))
    window = RowWindow(
        kernel=known.rows.extent,
        stride=known.rows.stride,
        before=known.rows.before,
        rows=tensors[x].shape[1],
        made=tensors[y].shape[1],
        is_same=is_same,
        columns=padding[1],
        is_linear=operator.name not in _POOLS,
        across=known.columns.stride,
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


def _keeps_weights(main: Subgraph, operator: TfliteOperator, tensors: list[ProgramTensor]) -> bool:
    """Whether an operator slides windows over an image, with weights that stay as they are."""
    if operator.name in _POOLS:
        return True
    weights, *rest = operator.inputs[1:] or (None,)
    if operator.name not in _CONVOLUTIONS or weights is None:
        return False
    if not all(tensors[i].is_stored for i in (weights, *rest) if i is not None):
        return False
    # Smaller weights are unpacked into scratch memory, once per call.
    return tensors[weights].item != 0 and not main.tensors[weights].is_sparse


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
