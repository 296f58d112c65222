"""Entry points of a file: the subgraphs that a program can run, one by one."""

from __future__ import annotations

from typing import Final

from arenaplan._core import Covers
from arenaplan.tflite.reader.tflite_model import Model
from arenaplan.tflite.reader.tflite_operators import CALLS

CALLEES: Final = {"IF": (0, 1), "WHILE": (0, 1), "CALL_ONCE": (0,)}
"""Slots, among an operator's options, of the subgraphs that TensorFlow Lite Micro can call."""


def covers_of(model: Model) -> Covers:
    """
    Return the part of a model that the main subgraph is, with those that it runs.

    Subgraphs with a signature are entry points, and so are those that no operator runs.
    """
    keys: dict[int, str] = {}
    for signature in model.signatures:
        keys.setdefault(signature.subgraph, signature.key)
    others = {*keys} - {0}
    callers = [
        operator
        for subgraph in model.subgraphs
        for operator in subgraph.operators
        if operator.name in CALLS and not operator.is_custom
    ]
    if all(caller.name in CALLEES for caller in callers):
        called = {
            caller.options.number(slot, "i")
            for caller in callers
            if caller.options is not None
            for slot in CALLEES[caller.name]
        }
        others |= {*range(1, len(model.subgraphs))} - called

    def name(number: int) -> str:
        return keys.get(number) or f"subgraph {number}"

    return Covers([], [], name(0) if others else "", [name(number) for number in sorted(others)])
