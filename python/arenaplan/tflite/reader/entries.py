"""A file's entry points: subgraphs that a program can run by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from arenaplan._core import Covers
from arenaplan.base.close import did_you_mean
from arenaplan.base.errors import InvalidOption
from arenaplan.base.quoting import listed
from arenaplan.graph.graph import WHOLE
from arenaplan.tflite.reader.schema import COMPOSITE, CompositeField
from arenaplan.tflite.reader.tflite_model import TfliteModel
from arenaplan.tflite.reader.tflite_operators import CALLS

CALLEES: Final = {"IF": (0, 1), "WHILE": (0, 1), "CALL_ONCE": (0,)}
"""Option slots with subgraphs that TensorFlow Lite Micro can call."""


_NAMED: Final = {**CALLEES, COMPOSITE: (CompositeField.SUBGRAPH,)}
"""The same, plus operators unknown to TensorFlow Lite Micro."""


def entries_of(model: TfliteModel) -> Mapping[str, int]:
    """
    Return the subgraphs that a program can run, by name.

    Entry points are the first subgraph, subgraphs with a signature, and subgraphs that no operator
    runs. A subgraph without a signature is named by number.
    """
    keys: dict[int, str] = {}
    for signature in model.signatures:
        keys.setdefault(signature.subgraph, signature.key)
    found = {*keys, 0}
    callers = [
        operator
        for subgraph in model.subgraphs
        for operator in subgraph.operators
        if operator.name in CALLS and not operator.is_custom
    ]
    if all(caller.name in _NAMED for caller in callers):
        called = {caller.options.number(slot) for caller in callers for slot in _NAMED[caller.name]}
        found |= {*range(1, len(model.subgraphs))} - called
    names: dict[str, int] = {}
    for number in sorted(found):
        key = keys.get(number) or ""
        names[f"subgraph {number}" if not key or key in names else key] = number
    return names


def covers_of(model: TfliteModel, signature: str | None) -> Covers:
    """Return the part of a model that the main subgraph covers; all if chosen by name."""
    entries = entries_of(model)
    if len(entries) == 1:
        return WHOLE
    name = next(name for name, number in entries.items() if number == model.main)
    others = [] if signature is not None else [each for each in entries if each != name]
    return Covers([], [], signature or name, others)


def chosen(model: TfliteModel, signature: str | None) -> TfliteModel:
    """
    Return a model with a signature's subgraph as main subgraph.

    Raises
    ------
    InvalidOption
        If the model has no signature with this name.
    """
    if signature is None:
        return model
    entries = {each.key: each.subgraph for each in model.signatures} | dict(entries_of(model))
    if signature not in entries:
        near = did_you_mean(signature, entries) or f"; it has {listed(entries)}"
        raise InvalidOption(f"option signature: the model has no signature {signature!r}{near}")
    return replace(model, main=entries[signature])
