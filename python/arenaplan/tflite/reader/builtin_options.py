"""
Operator options and quantization as node attributes: plain numbers by name.

Option names come from the schema. 32-bit scales are stored as Python floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arenaplan.tflite.reader.operator_options import float_of
from arenaplan.tflite.reader.tflite_model import TfliteOperator, TfliteTensor
from arenaplan.tflite.runtime.flex import numbers

Attributes = Mapping[str, Any]


def attributes_of(operator: TfliteOperator, tensors: Sequence[TfliteTensor]) -> Attributes:
    """
    Return an operator's node attributes.

    Besides options by name, the attributes are ``input_quantization`` and ``output_quantization``,
    which have per operand a scale list, a zero-point list and the axis, or ``None``; and
    ``intermediates``, the same for tensors that no node computes. Numbers among a custom operator's
    options keep their names.
    """
    attributes: dict[str, Any] = {}
    if operator.is_custom:
        attributes.update(numbers(operator.custom_options))
    else:
        attributes.update(operator.options.named(operator.name))
    for key, indices in (
        ("input_quantization", operator.inputs),
        ("output_quantization", operator.outputs),
        ("intermediates", operator.intermediates),
    ):
        rows = [None if index is None else _quantization(tensors[index]) for index in indices]
        if any(row is not None for row in rows):
            attributes[key] = rows
    return attributes


def _quantization(tensor: TfliteTensor) -> list[Any] | None:
    """Return scales, zero points and axis, if any."""
    known = tensor.quantization
    if known is None:
        return None
    return [list(map(float_of, known.scale)), list(known.zero_point) or [0], known.dimension]
