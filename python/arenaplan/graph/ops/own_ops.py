"""Domains for arenaplan's own operators."""

from typing import Final

TRAINING: Final = "arenaplan.training"
"""Operators in :mod:`arenaplan.formats.onnx.own_operators`, run by the NumPy executor."""
SINKS: Final = "arenaplan.sinks"
"""
Domain of Attention with an input 7: a score per head that takes part in the softmax without a
value.
"""
QUANTIZATION: Final = "arenaplan.quantization"
"""Operators that an importer puts in place of quantizing operators."""
EXTREMES: Final = "Extremes"
"""
Operator in that domain that returns the minimum and maximum of each part: each channel for images,
each row for other tensors.
"""
SCALE: Final = "Scale"
"""
Operator in that domain that returns scale and zero point for 8-bit integers covering some numbers
and zero.
"""
REQUANTIZE: Final = "Requantize"
"""Operator in that domain that multiplies sums by scales, rounds, and adds a zero point."""


def table_name(op: str, domain: str) -> str:
    """Return an operator's table name: with the domain, if user-defined."""
    return op if domain in ("", "ai.onnx", TRAINING) else f"{domain}::{op}"


def undeclared(domain: str, part: str) -> str:
    """Return advice about a missing part, if the user can declare the part."""
    is_users = domain.partition(".")[0] not in ("", "ai", "arenaplan", "tflite")
    return f"; declare it by arenaplan.operator(…, {part}=…)" if is_users else ""
