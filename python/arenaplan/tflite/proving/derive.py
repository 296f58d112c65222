"""
Derives every tensor in a rewritten graph from the original's tensors.

The original is evaluated first: inputs and operator results get numbers, element by element, and
moves pass numbers on. The rewritten graph is then evaluated with those numbers only: a rule must
justify every operator, or the proof fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from arenaplan.base.errors import UnsupportedModel, fault
from arenaplan.tflite.proving.elements import (
    DOUBT,
    MOST_ELEMENTS,
    Elements,
    Names,
    place,
    values_of,
)
from arenaplan.tflite.proving.facts import Fact, Key, Operation, SubgraphFacts
from arenaplan.tflite.proving.guess import Index
from arenaplan.tflite.proving.proof_calls import (
    CallRule,
    ProofCall,
    Theirs,
    blank_elements,
    matched,
    without_twins,
)
from arenaplan.tflite.proving.proof_moves import Move, NotAMove, move_of
from arenaplan.tflite.proving.proof_pointwise import pointwise_of
from arenaplan.tflite.proving.proof_windows import window_of

Rule: TypeAlias = CallRule | Literal["same", "move"]

_MOST_COMPARED: Final = 8
"""Most calls in the original that a message compares with."""


class Justified(NamedTuple):
    """An operator and the rule that justifies it."""

    operator: int
    rule: Rule
    original: int | None
    """The original operator with the same parameters; ``None`` for moves."""
    move: Move | None


@dataclass(slots=True)
class KnownElements:
    """The elements of a graph's tensors."""

    graph: SubgraphFacts
    names: Names
    is_rewritten: bool = False
    elements: dict[int, Elements] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    merged: set[int] = field(default_factory=set)
    """Window results in which elements at several places have the same number."""
    _indexes: dict[int, Index] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = sum(fact.count for fact in self.graph.tensors if not fact.is_constant)
        if count > MOST_ELEMENTS:
            raise UnsupportedModel(
                f"the tensors of subgraph {self.graph.index} have {count:,} elements; a proof "
                f"covers {MOST_ELEMENTS:,} at most"
            )

    def of(self, number: int, operation: Operation | None = None) -> Elements:
        """
        Return a tensor's elements.

        Raises
        ------
        UndefinedValue, ProofError
            If the tensor was never written.
        """
        if number not in self.elements:
            fact = self.graph.tensors[number]
            if not fact.is_constant:
                reader = "the end of the graph" if operation is None else operation.text()
                message = f"{fact.text()} is read by {reader} before it is written"
                raise fault("NotProven" if self.is_rewritten else "UndefinedValue", message)
            found = values_of(fact.content, fact.type, fact.shape)
            if found is None:
                found = self.names.content(fact.key, fact.name, fact.shape)
            self.elements[number] = found
        return self.elements[number]

    def index(self, number: int) -> Index:
        """Return the places of a tensor's elements."""
        if number not in self._indexes:
            self._indexes[number] = Index(self.of(number))
        return self._indexes[number]

    def write(self, number: int, elements: Elements, operation: Operation | None) -> None:
        """Set a tensor's elements."""
        fact = self.graph.tensors[number]
        if number in self.written or fact.is_constant or fact.is_variable:
            writer = "the caller" if operation is None else operation.text()
            state = "a constant" if fact.is_constant else "written already"
            raise fault("NotProven", f"{writer} writes {fact.text()}, which is {state}")
        self.written.add(number)
        self.elements[number] = elements


@dataclass(slots=True)
class Original:
    """The evaluated original graph, with operators by parameters."""

    known: KnownElements
    calls: dict[Key, list[tuple[int, ProofCall]]] = field(default_factory=lambda: defaultdict(list))
    same: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    ordered: list[int] = field(default_factory=list)
    moves: set[int] = field(default_factory=set)
    """Operators that only move elements."""


def original_of(graph: SubgraphFacts, names: Names) -> Original:
    """Return the original graph, evaluated."""
    known = KnownElements(graph, names)
    found = Original(known)
    for number in graph.inputs:
        fact = graph.tensors[number]
        if number not in known.elements and not fact.is_constant:
            known.write(number, names.fresh(fact.name, fact.shape), None)
    for operation in graph.operations:
        moved = _moved(operation, known)
        call, key = _call_of(operation, graph.tensors), _whole(operation, graph.tensors)
        if isinstance(moved, str):
            twin = None if operation.is_ordered else _twin(operation, known, found, key)
            for place, number in enumerate(operation.outputs):
                fact = graph.tensors[number]
                if fact.is_variable:
                    continue
                if twin is not None:
                    made = known.of(twin.outputs[place])
                else:
                    made = _made(operation, known, names.fresh(fact.name, fact.shape))
                known.write(number, made, operation)
        else:
            found.moves.add(operation.index)
        found.same[key].append(operation.index)
        if call is not None:
            found.calls[call.key].append((operation.index, call))
        if operation.is_ordered:
            found.ordered.append(operation.index)
    return found


def _call_of(operation: Operation, tensors: Sequence[Fact]) -> ProofCall | None:
    """Return an operator that makes lines of elements, if a rule covers the operator."""
    return window_of(operation, tensors) or pointwise_of(operation, tensors)


def _twin(
    operation: Operation, known: KnownElements, original: Original, key: Key
) -> Operation | None:
    """Return an original operator with the same parameters on equal computed operands."""
    for number in original.same.get(key, ()):
        theirs = original.known.graph.operations[number]
        if _unequal(operation, known, theirs, original.known) is None:
            return theirs
    return None


def _unequal(
    operation: Operation, known: KnownElements, theirs: Operation, others: KnownElements
) -> tuple[int, int] | None:
    """Return the first computed operand that differs from that of another operator, and that."""
    for mine, other in zip(operation.inputs, theirs.inputs, strict=True):
        if mine is None or other is None or known.graph.tensors[mine].is_constant:
            continue
        if not np.array_equal(known.of(mine), others.of(other)):
            return mine, other
    return None


def _made(operation: Operation, known: KnownElements, fresh: Elements) -> Elements:
    """Return a result's elements; elements made only from known values are constants."""
    call = _call_of(operation, known.graph.tensors)
    if call is None:
        return fresh
    numbers = _read(operation, call)
    operands = [known.of(number, operation) for number in numbers]
    blank = blank_elements(call, operands, known.names)
    whole = [known.index(numbers[place]).has_twins for place in call.whole]
    if not whole or any(whole):
        fresh = without_twins(call, operands, fresh)
        if call.rule == "window":
            known.merged.add(operation.outputs[0])
    return np.where(blank < 0, blank, fresh)


def _read(operation: Operation, call: ProofCall) -> list[int]:
    """Return the tensors that lines see."""
    return [number for at in call.reads if (number := operation.inputs[at]) is not None]


def _moved(operation: Operation, known: KnownElements) -> Move | str:
    """Write the results if an operator only moves elements; else return why not."""
    operands = [
        None if i is None or known.graph.tensors[i].is_variable else known.of(i, operation)
        for i in operation.inputs
    ]
    if operation.is_ordered:
        return "it may have a state"
    try:
        move = move_of(operation, known.graph.tensors)
    except NotAMove as error:
        return str(error)
    moved = [part for p in move.reads if (part := operands[p]) is not None]
    for number, elements in zip(operation.outputs, move.applied(moved), strict=True):
        known.write(number, elements, operation)
    return move


def _whole(operation: Operation, tensors: Sequence[Fact]) -> Key:
    """Return everything a kernel can see of an operator except computed elements."""
    head = (operation.name, operation.is_custom, operation.version, operation.options)
    inputs = tuple(None if i is None else tensors[i].key for i in operation.inputs)
    outputs = tuple(tensors[i].key for i in operation.outputs)
    between = tuple(tensors[i].encoding for i in operation.intermediates)
    return (*head, operation.rest, inputs, outputs, between)


class Derivation:
    """Evaluates a rewritten graph."""

    def __init__(self, original: Original, graph: SubgraphFacts) -> None:
        self.original = original
        self.known = KnownElements(graph, original.known.names, is_rewritten=True)
        self.justified: list[Justified] = []
        self._states: dict[int, int] = {}
        self._ordered = 0

    def run(self) -> None:
        """
        Justify every operator, and compare the outputs.

        Raises
        ------
        ProofError
            If an operator is not justified, or an output differs from the original's.
        """
        self._inputs()
        for operation in self.known.graph.operations:
            self._operation(operation)
        if self._ordered < len(self.original.ordered):
            missing = self.original.known.graph.operations[self.original.ordered[self._ordered]]
            raise fault(
                "NotProven", f"{missing.text()} of the original has a state, and is missing"
            )
        self._outputs()

    def _inputs(self) -> None:
        old, new = self.original.known.graph, self.known.graph
        _compare_ends("input", old, old.inputs, new, new.inputs)
        for theirs, mine in zip(old.inputs, new.inputs, strict=True):
            if not new.tensors[mine].is_constant and mine not in self.known.elements:
                self.known.write(mine, self.original.known.of(theirs), None)
            elif not np.array_equal(self.known.of(mine), self.original.known.of(theirs)):
                raise fault("NotProven", f"{new.tensors[mine].text()} is the input twice")

    def _outputs(self) -> None:
        old, new = self.original.known.graph, self.known.graph
        _compare_ends("output", old, old.outputs, new, new.outputs)
        for theirs, mine in zip(old.outputs, new.outputs, strict=True):
            if new.tensors[mine].is_variable or old.tensors[theirs].is_variable:
                if self._states.get(mine) != theirs:
                    raise fault(
                        "NotProven", f"output {new.tensors[mine].text()} is another variable"
                    )
                continue
            seen, wanted = self.known.of(mine), self.original.known.of(theirs)
            if not np.array_equal(seen, wanted):
                raise fault(
                    "NotProven",
                    f"output {new.tensors[mine].text()}: {self._difference(seen, wanted)}",
                )

    # -- operators ----------------------------------------------------------------------------

    def _operation(self, operation: Operation) -> None:
        """Justify an operator and write the results."""
        moved = _moved(operation, self.known)
        if not isinstance(moved, str):
            self.justified.append(Justified(operation.index, "move", None, moved))
            return
        if operation.is_ordered:
            self._in_order(operation)
            return
        key = _whole(operation, self.known.graph.tensors)
        twin = _twin(operation, self.known, self.original, key)
        if twin is not None:
            self._take(operation, twin.index)
            return
        if self._in_part(operation):
            return
        raise fault("NotProven", f"{operation.text()} {self._refused(operation, moved)}")

    def _take(self, operation: Operation, number: int) -> None:
        """Write the results of an original operator."""
        theirs = self.original.known.graph.operations[number]
        for mine, other in zip(operation.outputs, theirs.outputs, strict=True):
            if not self.known.graph.tensors[mine].is_variable:
                self.known.write(mine, self.original.known.of(other), operation)
        self.justified.append(Justified(operation.index, "same", number, None))

    def _in_order(self, operation: Operation) -> None:
        """
        Justify an operator with a state: the original's next such operator, on the same states.
        """
        old = self.original.known.graph
        if self._ordered >= len(self.original.ordered):
            raise fault(
                "NotProven", f"{operation.text()} has a state, and the original has none left"
            )
        number = self.original.ordered[self._ordered]
        theirs = old.operations[number]
        if _whole(operation, self.known.graph.tensors) != _whole(theirs, old.tensors):
            raise fault(
                "NotProven",
                f"{operation.text()} has a state and comes where the original has {theirs.text()} "
                "with other parameters",
            )
        places = ((operation.inputs, theirs.inputs), (operation.outputs, theirs.outputs))
        for mine, others in places:
            for one, other in zip(mine, others, strict=True):
                if one is None or other is None:
                    continue
                fact = self.known.graph.tensors[one]
                if fact.is_variable:
                    is_new = one not in self._states and other not in self._states.values()
                    if not is_new and self._states.get(one) != other:
                        raise fault(
                            "NotProven",
                            f"{operation.text()}: {fact.text()} is another variable",
                        )
                    self._states[one] = other
                elif mine is operation.inputs and not fact.is_constant:
                    seen, wanted = self.known.of(one), self.original.known.of(other)
                    if not np.array_equal(seen, wanted):
                        raise fault(
                            "NotProven",
                            f"{operation.text()} reads {fact.text()}: "
                            f"{self._difference(seen, wanted)}",
                        )
        self._ordered += 1
        self._take(operation, number)

    def _in_part(self, operation: Operation) -> bool:
        """Justify an operator, if it computes part of an original operator."""
        call = _call_of(operation, self.known.graph.tensors)
        if call is None:
            return False
        operands = [self.known.of(number, operation) for number in _read(operation, call)]
        best: tuple[int, Elements, int] | None = None
        known = self.original.known
        for number, theirs in self.original.calls.get(call.key, ()):
            old = known.graph.operations[number]
            others = _read(old, theirs)
            sides = list(map(known.of, others)), list(map(known.index, others))
            original = Theirs(theirs, *sides, known.of(old.outputs[0]))
            found = matched(call, operands, original, operation.index, self.known.names)
            proven = -1 if found is None else int((found > DOUBT).sum())
            if found is not None and (best is None or proven > best[0]):
                best = proven, found, number
        if best is None:
            return False
        proven, elements, number = best
        if not proven:
            doubt = self.known.names.why(int(elements.min()))
            raise fault(
                "NotProven",
                f"{operation.text()} has the parameters of {known.graph.operations[number].text()} "
                "of the original, but no element of its result is one of the original's: "
                f"{self._reason(doubt.operator)}{doubt.reason}",
            )
        self.known.write(operation.outputs[0], elements, operation)
        self.justified.append(Justified(operation.index, call.rule, number, None))
        return True

    # -- messages -----------------------------------------------------------------------------

    def _reason(self, operator: int) -> str:
        """Return a reason's beginning: the operator and its result."""
        operation = self.known.graph.operations[operator]
        result = self.known.graph.tensors[operation.outputs[0]]
        return f"{operation.text()}, {result.text()}: "

    def _difference(self, seen: Elements, wanted: Elements) -> str:
        """Return text about the first element that differs from the original."""
        if seen.shape != wanted.shape:
            return f"its shape is {seen.shape}, not {wanted.shape}"
        at = int(np.flatnonzero(seen.ravel() != wanted.ravel())[0])
        number = int(seen.ravel()[at])
        text = f"{place(at, seen.shape)} is not {self.known.names.told(int(wanted.ravel()[at]))}"
        if number > DOUBT:
            return f"{text}, but {self.known.names.told(number)}"
        doubt = self.known.names.why(number)
        return f"{text}: {self._reason(doubt.operator)}{doubt.reason}"

    def _refused(self, operation: Operation, why_no_move: str) -> str:
        """Return text for why no rule justifies an operator."""
        old = self.original.known.graph
        others = [
            theirs
            for theirs in old.operations
            if (theirs.name, theirs.is_custom) == (operation.name, operation.is_custom)
        ]
        if not others:
            return f"is not in the original, and only moves no elements: {why_no_move}"
        mine = _whole(operation, self.known.graph.tensors)
        for theirs in others:
            pair = None
            if _whole(theirs, old.tensors) == mine:
                pair = _unequal(operation, self.known, theirs, self.original.known)
            if pair is not None:
                seen, wanted = self.known.of(pair[0]), self.original.known.of(pair[1])
                return (
                    f"is {theirs.text()} of the original on another operand: "
                    f"{self.known.graph.tensors[pair[0]].text()}: {self._difference(seen, wanted)}"
                )
        parts = [self._unlike(operation, theirs) for theirs in others[:_MOST_COMPARED]]
        nearest = min(parts, key=len)
        number = others[parts.index(nearest)].index
        return (
            f"is no {operation.name} of the original; from operator {number} there it differs in "
            f"{', '.join(nearest) or 'shape'} ({why_no_move})"
        )

    def _unlike(self, operation: Operation, theirs: Operation) -> list[str]:
        """Return the parameters in which an operator differs from an original operator."""
        found = []
        if operation.version != theirs.version:
            found.append("version")
        if (operation.options, operation.rest) != (theirs.options, theirs.rest):
            found.append("options")
        ends = (
            ("operand", operation.inputs, theirs.inputs),
            ("result", operation.outputs, theirs.outputs),
        )
        for what, mine, others in ends:
            if len(mine) != len(others):
                found.append(f"the number of {what}s")
                continue
            for at, (one, other) in enumerate(zip(mine, others, strict=True)):
                if one is None or other is None:
                    if one is not other:
                        found.append(f"{what} {at}")
                    continue
                new, old = self.known.graph.tensors[one], self.original.known.graph.tensors[other]
                if new.encoding != old.encoding:
                    found.append(f"the type or quantization of {what} {at} ({new.text()})")
                if new.is_constant != old.is_constant or new.digest != old.digest:
                    found.append(f"the content of {what} {at} ({new.text()})")
        return found


def _compare_ends(
    what: str, old: SubgraphFacts, theirs: Sequence[int], new: SubgraphFacts, mine: Sequence[int]
) -> None:
    """Refuse inputs or outputs that differ from the original's."""
    if len(theirs) != len(mine):
        raise fault(
            "NotProven", f"the graph has {len(mine)} {what}s, the original has {len(theirs)}"
        )
    for at, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        fact, wanted = new.tensors[one], old.tensors[other]
        same = (
            fact.name == wanted.name,
            fact.shape == wanted.shape and fact.signature == wanted.signature,
            fact.type == wanted.type,
            fact.quantization == wanted.quantization,
            fact.is_variable == wanted.is_variable and fact.is_constant == wanted.is_constant,
        )
        if not all(same):
            kind = ("name", "shape", "type", "scale or zero point", "kind")[same.index(False)]
            raise fault(
                "NotProven",
                f"{what} {at}, {fact.text()}, has another {kind} than {wanted.text()}",
            )
