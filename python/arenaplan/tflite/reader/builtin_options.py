"""
Operator options and quantization as node attributes: plain numbers by name.

Option names come from the schema. 32-bit scales are stored as Python floats.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from arenaplan.tflite.reader.tflite_model import TfliteOperator, TfliteTensor
from arenaplan.tflite.runtime.flex import numbers

Attributes = Mapping[str, Any]


class Field(NamedTuple):
    """An option: slot in the table, and type as in :mod:`struct`."""

    slot: int
    code: str
    default: float = 0


_PADDING: Final = {"padding": Field(0, "b"), "stride_w": Field(1, "i"), "stride_h": Field(2, "i")}
_POOL: Final = {
    **_PADDING,
    "filter_width": Field(3, "i"),
    "filter_height": Field(4, "i"),
    "fused_activation": Field(5, "b"),
}
_BLOCK: Final = {"block_size": Field(0, "i")}
_ACTIVATION: Final = {"fused_activation": Field(0, "b")}
_PIXELS: Final = {"align_corners": Field(2, "B"), "half_pixel_centers": Field(3, "B")}
_KEEP: Final = {"keep_dims": Field(0, "B")}

FIELDS: Final[Mapping[str, Mapping[str, Field]]] = {
    "CONV_2D": {
        **_PADDING,
        "fused_activation": Field(3, "b"),
        "dilation_w": Field(4, "i", 1),
        "dilation_h": Field(5, "i", 1),
        "quantized_bias_type": Field(6, "b"),
    },
    "DEPTHWISE_CONV_2D": {
        **_PADDING,
        "depth_multiplier": Field(3, "i"),
        "fused_activation": Field(4, "b"),
        "dilation_w": Field(5, "i", 1),
        "dilation_h": Field(6, "i", 1),
    },
    "TRANSPOSE_CONV": {
        **_PADDING,
        "fused_activation": Field(3, "b"),
        "quantized_bias_type": Field(4, "b"),
    },
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), _POOL),
    "SVDF": {"rank": Field(0, "i"), "fused_activation": Field(1, "b")},
    "FULLY_CONNECTED": {
        **_ACTIVATION,
        "weights_format": Field(1, "b"),
        "keep_num_dims": Field(2, "B"),
        "asymmetric_quantize_inputs": Field(3, "B"),
        "quantized_bias_type": Field(4, "b"),
    },
    "SOFTMAX": {"beta": Field(0, "f")},
    "CONCATENATION": {"axis": Field(0, "i"), "fused_activation": Field(1, "b")},
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "L2_NORMALIZATION"), _ACTIVATION),
    "RESIZE_BILINEAR": _PIXELS,
    "RESIZE_NEAREST_NEIGHBOR": {
        "align_corners": Field(0, "B"),
        "half_pixel_centers": Field(1, "B"),
    },
    **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"), _BLOCK),
    "GATHER": {"axis": Field(0, "i"), "batch_dims": Field(1, "i")},
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL"), _KEEP),
    "STRIDED_SLICE": {
        "begin_mask": Field(0, "i"),
        "end_mask": Field(1, "i"),
        "ellipsis_mask": Field(2, "i"),
        "new_axis_mask": Field(3, "i"),
        "shrink_axis_mask": Field(4, "i"),
        "offset": Field(5, "B"),
    },
    "PACK": {"axis": Field(1, "i")},
    "UNPACK": {"axis": Field(1, "i")},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": {
        "fused_activation": Field(0, "b"),
        "cell_clip": Field(1, "f"),
        "proj_clip": Field(2, "f"),
        "time_major": Field(3, "B"),
    },
    "LEAKY_RELU": {"alpha": Field(0, "f")},
    "MIRROR_PAD": {"mode": Field(0, "b")},
    "BATCH_MATMUL": {"adj_x": Field(0, "B"), "adj_y": Field(1, "B")},
    "CUMSUM": {"exclusive": Field(0, "B"), "reverse": Field(1, "B")},
}
"""Options that kernels read, by operator."""


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
        for name, field in FIELDS.get(operator.name, {}).items():
            attributes[name] = _option(operator, field)
    for key, indices in (
        ("input_quantization", operator.inputs),
        ("output_quantization", operator.outputs),
        ("intermediates", operator.intermediates),
    ):
        rows = [None if index is None else _quantization(tensors[index]) for index in indices]
        if any(row is not None for row in rows):
            attributes[key] = rows
    return attributes


def _option(operator: TfliteOperator, field: Field) -> float:
    """Return an option, or the default."""
    options = operator.options
    if options is None:
        return field.default
    if field.code != "f":
        return options.number(field.slot, field.code, int(field.default))
    value: float = struct.unpack("<f", struct.pack("<I", options.number(field.slot, "I")))[0]
    return value


def _quantization(tensor: TfliteTensor) -> list[Any] | None:
    """Return scales, zero points and axis, if any."""
    known = tensor.quantization
    if known is None:
        return None
    scales = struct.unpack(
        f"<{len(known.scale)}f", struct.pack(f"<{len(known.scale)}I", *known.scale)
    )
    return [list(scales), list(known.zero_point) or [0], known.dimension]
