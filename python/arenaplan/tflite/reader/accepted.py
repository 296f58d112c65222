"""Operand types that TensorFlow Lite Micro kernels accept; other types fail preparation."""

from __future__ import annotations

from typing import Final

from arenaplan.base.errors import UnsupportedModel
from arenaplan.base.quoting import quoted
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import TfliteModel

_BY_WEIGHTS: Final = frozenset(
    {("float32", "float32"), ("int8", "int8"), ("int8", "int4"), ("int16", "int8")}
)
"""Activation and weight types; the runtime calls all other combinations hybrid models."""

_ACCEPTED: Final = {
    "CONV_2D": (0, 1, _BY_WEIGHTS),
    "DEPTHWISE_CONV_2D": (0, 1, _BY_WEIGHTS),
    "DEQUANTIZE": (0, 0, frozenset((name, name) for name in ("int8", "int16", "uint8"))),
    "FULLY_CONNECTED": (0, 1, _BY_WEIGHTS),
    "SVDF": (0, 1, frozenset({("float32", "float32"), ("int8", "int8")})),
    "TRANSPOSE_CONV": (2, 1, _BY_WEIGHTS - {("int8", "int4")}),
}
"""Per operator, two operands and their type pairs, from the kernel sources."""


def check_accepted(model: TfliteModel) -> None:
    """
    Refuse a model with operand types that TensorFlow Lite Micro refuses.

    Raises
    ------
    UnsupportedModel
        If a kernel refuses the types; the message names the operator.
    """
    for number, subgraph in enumerate(model.subgraphs):
        for position, operator in enumerate(subgraph.operators):
            known = None if operator.is_custom else _ACCEPTED.get(operator.name)
            if known is None:
                continue
            *slots, pairs = known
            found = [operator.inputs[at] if at < len(operator.inputs) else None for at in slots]
            types = tuple(
                None if index is None else DTYPES.get(subgraph.tensors[index].type)
                for index in found
            )
            if None in types or types in pairs:
                continue
            where = f" of subgraph {number}" if number else ""
            given = " and ".join(dict.fromkeys(filter(None, types)))
            raise UnsupportedModel(
                f"operator {quoted(f'{operator.name}_{position}')}{where} has operands of {given}, "
                "which TensorFlow Lite Micro refuses; plan for another target, such as litert"
            )
