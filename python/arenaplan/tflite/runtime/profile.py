"""
Profiles: the memory of one model as measured in one build of TensorFlow Lite Micro.

A profile is a JSON file. ``arenaplan measure`` writes one with the interpreter of the Python
package ``tflite-micro``; a firmware that records its allocations can print another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from arenaplan.base.errors import fault
from arenaplan.base.quoting import quoted
from arenaplan.tflite.reader.tflite_model import Model
from arenaplan.tflite.runtime.operator_costs import OperatorCost

SCHEMA: Final = "arenaplan/tflm-profile/1"
"""Name and version of the form."""
_MOST: Final = 2**31 - 1
"""Most bytes of anything."""


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """Measured memory of one operator."""

    subgraph: int
    position: int
    name: str
    scratch: tuple[int, ...]
    """Bytes of each scratch buffer."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured memory of a model."""

    name: str
    """Name of the model."""
    runtime: str
    """The build that was measured, in words."""
    kernels: str
    pointer: int
    """Bits of a pointer."""
    head: int
    """Bytes of tensors and scratch memory, without a plan."""
    tail: int
    """Bytes of the runtime's structures and of the data of kernels."""
    startup: int
    """Least arena with which the runtime can prepare and plan."""
    smallest_arena: int
    """Least arena with which the model ran, without a plan."""
    operators: tuple[OperatorProfile, ...]
    """Per operator of every subgraph, in their order."""

    def costs_of(self, model: Model) -> tuple[OperatorCost, ...]:
        """
        Return the costs of a model's operators.

        Raises
        ------
        PlanError
            If the model has other operators, or in another order.
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
        """Return the profile of the model with the main subgraph's operators in another order."""
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
        PlanError
            If the text is no profile of a known version.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise fault("PlanCorrupt", f"the profile is no JSON: {error}") from None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise fault("PlanCorrupt", f"the file is no profile of the form {SCHEMA}")
        entries = document.get("operators")
        if not isinstance(entries, list):
            raise fault("PlanCorrupt", "the profile has no list 'operators'")
        if document.get("pointer") not in (32, 64):
            raise fault("PlanCorrupt", "field 'pointer' of the profile is neither 32 nor 64")
        return Profile(
            name=_field(document, "name", str),
            runtime=_field(document, "runtime", str),
            kernels=_field(document, "kernels", str),
            pointer=document["pointer"],
            head=_size(document, "head"),
            tail=_size(document, "tail"),
            startup=_size(document, "startup"),
            smallest_arena=_size(document, "smallest_arena"),
            operators=tuple(_operator(entry) for entry in entries),
        )


def _operator(entry: object) -> OperatorProfile:
    """Read the profile of an operator."""
    if not isinstance(entry, dict):
        raise fault("PlanCorrupt", "an operator of the profile is no object")
    scratch = entry.get("scratch")
    if not isinstance(scratch, list):
        raise fault("PlanCorrupt", "an operator of the profile has no list 'scratch'")
    sizes = tuple(_checked(size, "a size of scratch memory") for size in scratch)
    name = _field(entry, "name", str)
    return OperatorProfile(_size(entry, "subgraph"), _size(entry, "position"), name, sizes)


def _field(document: Mapping[str, Any], name: str, kind: type) -> Any:
    value = document.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise fault("PlanCorrupt", f"field {name!r} of the profile is missing or of another type")
    return value


def _size(document: Mapping[str, Any], name: str) -> int:
    return _checked(document.get(name), f"field {name!r}")


def _checked(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise fault("PlanCorrupt", f"{what} of the profile is no number of bytes")
    return value
