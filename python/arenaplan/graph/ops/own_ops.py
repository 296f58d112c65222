"""The domains of operators that only this package has."""

from typing import Final

TRAINING: Final = "arenaplan.training"
"""Operators of :mod:`arenaplan.formats.onnx.own_operators`, which the NumPy executor runs."""
SINKS: Final = "arenaplan.sinks"
"""The domain of Attention with an input 7: a score per head that is in the softmax and has no value
of its own."""
QUANTIZATION: Final = "arenaplan.quantization"
"""Operators that an importer puts in the place of quantizing ones."""
EXTREMES: Final = "Extremes"
"""The operator of that domain that returns the least and the greatest element of each part of a
tensor: of each channel of images, and of each row of anything else."""
SCALE: Final = "Scale"
"""The operator of that domain that returns scale and zero point of the 8-bit integers that just
cover some numbers and zero."""
REQUANTIZE: Final = "Requantize"
"""The operator of that domain that multiplies sums by scales, rounds, and adds a zero point."""


def table_name(op: str, domain: str) -> str:
    """Return the name of an operator in tables: with its domain, if that is one of the user's."""
    return op if domain in ("", "ai.onnx", TRAINING) else f"{domain}::{op}"


def undeclared(domain: str, part: str) -> str:
    """Return what to do about a part that an operator lacks, if a user can declare the part."""
    is_users = domain.partition(".")[0] not in ("", "ai", "arenaplan", "tflite")
    return f"; declare it by arenaplan.operator(…, {part}=…)" if is_users else ""
