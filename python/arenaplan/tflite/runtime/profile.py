"""
Profiles: a model's measured memory in a TensorFlow Lite Micro build.

A profile is a JSON file. ``arenaplan measure`` writes a profile with the interpreter in the Python
package ``tflite-micro``; firmware that records allocations can print a profile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from arenaplan.base.errors import fault
from arenaplan.base.quoting import quoted
from arenaplan.tflite.reader.tflite_model import TfliteModel
from arenaplan.tflite.runtime.operator_costs import OperatorCost

SCHEMA: Final = "arenaplan/tflm-profile/1"
"""Name and version of the format."""
_MOST: Final = 2**31 - 1
"""Largest byte count."""


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """An operator's measured memory."""

    subgraph: int
    position: int
    name: str
    scratch: tuple[int, ...]
    """Bytes in each scratch buffer."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A model's measured memory."""

    name: str
    """The model's name."""
    runtime: str
    """The build that was measured, in words."""
    kernels: str
    pointer: int
    """Pointer size in bits."""
    head: int
    """Bytes for tensors and scratch memory, without a plan."""
    tail: int
    """Bytes for runtime structures and kernel data."""
    startup: int
    """Least arena with which the runtime can prepare and plan."""
    smallest_arena: int
    """Least arena with which the model ran, without a plan."""
    operators: tuple[OperatorProfile, ...]
    """Per operator in every subgraph, in order."""

    def costs_of(self, model: TfliteModel) -> tuple[OperatorCost, ...]:
        """
        Return the costs of a model's operators.

        Raises
        ------
        PlanError
            If the model has different operators, or a different order.
        """
        found = [
            (number, position, operator.name)
            for number, subgraph in enumerate(model.subgraphs)
            for position, operator in enumerate(subgraph.operators)
        ]
        measured = [(each.subgraph, each.position, each.name) for each in self.operators]
        if found != measured:
            raise fault(
                "PlanMismatch",
                f"the profile of {quoted(self.name)} is of another model: its operators are not "
                "those of this one",
            )
        return tuple(
            OperatorCost(each.subgraph, each.position, each.name, each.scratch, 0, True)
            for each in self.operators
        )

    def reordered(self, order: Sequence[int]) -> Profile:
        """Return the profile for another order of the main subgraph's operators."""
        main = [each for each in self.operators if each.subgraph == 0]
        rest = [each for each in self.operators if each.subgraph != 0]
        moved = [replace(main[old], position=new) for new, old in enumerate(order)]
        return replace(self, operators=(*moved, *rest))

    def to_json(self) -> str:
        """Return the profile as a JSON document."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)

    @staticmethod
    def from_json(text: str | bytes) -> Profile:
        """
        Read a profile.

        Raises
        ------
        ModelError
            If the text is not a profile in a known version.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise fault("InvalidProfile", f"the profile is no JSON: {error}") from None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise fault("InvalidProfile", f"the file is no profile of the form {SCHEMA}")
        if document.get("pointer") not in (32, 64):
            raise fault("InvalidProfile", "field 'pointer' of the profile is neither 32 nor 64")
        return Profile(**_fields(Profile, document))


def _fields(kind: type[Profile | OperatorProfile], document: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of a document."""
    return {
        each.name: _checked(document.get(each.name), str(each.type), f"field {each.name!r}")
        for each in fields(kind)
    }


def _checked(value: Any, kind: str, what: str) -> Any:
    """Return a value with a type, as text."""
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "int" and type(value) is int and 0 <= value <= _MOST:
        return value
    if kind.startswith("tuple") and isinstance(value, list):
        inner = kind.removeprefix("tuple[").removesuffix(", ...]")
        return tuple(_checked(each, inner, f"an entry of {what}") for each in value)
    if kind == "OperatorProfile" and isinstance(value, dict):
        return OperatorProfile(**_fields(OperatorProfile, value))
    known = {"int": "a number of bytes", "str": "text", "OperatorProfile": "an object"}
    expected = known.get(kind, "a list")
    raise fault("InvalidProfile", f"{what} of the profile is missing or not {expected}")
