"""
Table of operands and results that may share bytes in TensorFlow Lite Micro.

The runtime obeys every offset in a plan without telling the kernels, so bytes may be shared only
where a kernel's code allows sharing. There are two ways. A kernel that *copies* may find an operand
already at its place in the result, or the result at its place in the operand: the kernel then
rewrites equal bytes. A kernel that computes *element by element* may write the result over an
operand at the same address, because the last read of operand element *i* comes before the write of
result element *i*.

Each row, with its reason, is based on the runtime's sources as of August 2026. Rows for reference
kernels also run in the interpreter, with garbage in the arena, in
``tests/python/test_tflm_aliases.py``. CMSIS-NN kernels were read, not run. Other kernel sets were
not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Final, Literal, NamedTuple, TypeAlias

from arenaplan.graph.ops import BITS
from arenaplan.tflite.reader.operand_facts import OperandFacts
from arenaplan.tflite.reader.tflite_model import Subgraph, TfliteModel, TfliteOperator
from arenaplan.tflite.reader.timeline import ALIGNMENT, Same, Takeover, Timeline, timeline_of
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.esp_nn import OWN_ELEMENTWISE

Way: TypeAlias = Literal["copies", "element by element"]


class AliasRow(NamedTuple):
    """A kernel whose operands and results may share bytes."""

    way: Way
    reason: str
    """The property of the code that makes sharing safe."""
    cmsis_nn: str | None = "the reference kernel"
    """The same for CMSIS-NN's own kernel, with DSP and with MVE; ``None`` if bytes are not shared
    there."""


_MEMCPY: Final = (
    "one memcpy per operand and outer index; at equal addresses it copies a block onto itself, as "
    "compilers' own copies of structures do"
)
_LOOP: Final = "a loop assigns element by element; at equal addresses each one to itself"
_WRITER: Final = "writes the elements one by one, in the order of the result"
_UNARY: Final = "one loop: reads element i, then writes element i"
_BINARY: Final = (
    "one loop, or nested loops over broadcast dimensions: reads element i of the operand that has "
    "all elements, then writes element i"
)
_ROWS: Final = (
    "statistics of a whole row are complete before its first element is written; then reads "
    "element i and writes element i"
)
_FOUR: Final = "reads four elements (two of int16) of both operands, then writes these"

_UNARIES: Final = """
    ABS CAST CEIL COS ELU EXP FLOOR HARD_SWISH LEAKY_RELU LOG LOGICAL_NOT LOGISTIC NEG QUANTIZE
    RELU RELU6 ROUND RSQRT SIN SQRT SQUARE TANH
"""
_BINARIES: Final = """
    ADD_N DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND
    LOGICAL_OR NOT_EQUAL PRELU SQUARED_DIFFERENCE SUB
"""

ROWS: Final[Mapping[str, AliasRow]] = {
    "CONCATENATION": AliasRow("copies", _MEMCPY),
    "EXPAND_DIMS": AliasRow("copies", _LOOP),
    "PACK": AliasRow("copies", _LOOP),
    "SLICE": AliasRow("copies", _WRITER),
    "SPLIT": AliasRow("copies", _LOOP),
    "SPLIT_V": AliasRow("copies", _LOOP),
    "SQUEEZE": AliasRow("copies", _MEMCPY),
    "STRIDED_SLICE": AliasRow("copies", _WRITER),
    "TRANSPOSE": AliasRow("copies", _LOOP, None),
    "UNPACK": AliasRow("copies", _LOOP),
    **{name: AliasRow("element by element", _UNARY) for name in _UNARIES.split()},
    **{name: AliasRow("element by element", _BINARY) for name in _BINARIES.split()},
    "ADD": AliasRow("element by element", _BINARY, _FOUR),
    "L2_NORMALIZATION": AliasRow("element by element", _ROWS),
    "LOG_SOFTMAX": AliasRow("element by element", _ROWS),
    "MAXIMUM": AliasRow(
        "element by element", _BINARY, "reads one element, 16 with MVE, of both, then writes these"
    ),
    "MINIMUM": AliasRow(
        "element by element", _BINARY, "reads one element, 16 with MVE, of both, then writes these"
    ),
    "MUL": AliasRow("element by element", _BINARY, _FOUR),
    "SELECT_V2": AliasRow(
        "element by element",
        "reads element i of the operands that have all elements, then writes element i; copies a "
        "row at once where the condition is broadcast, at equal addresses onto itself",
    ),
    "SOFTMAX": AliasRow(
        "element by element",
        "the largest element of a row is known before the first is written; exponentials of "
        "float32 and int16 wait in the result, each in place of an element that is not read again",
        "the same, four elements at a time with MVE",
    ),
}
"""
The kernels, by builtin operator.

RESHAPE is absent: the kernel compares the addresses and copies nothing if equal; see
:mod:`~arenaplan.tflite.reader.timeline`.
"""

_CHARACTERS: Final = frozenset({"int8", "uint8"})
"""
Character types, which in C may alias any object. Narrower results with other types may be stored
before wider elements at the same place are loaded.
"""


def row_of(operator: TfliteOperator, kernels: str) -> AliasRow | None:
    """Return the row for an operator's kernel, if this kernel set may share bytes."""
    row = None if operator.is_custom else ROWS.get(operator.name)
    if row is None or kernels == "reference":
        return row
    if kernels == "esp-nn":  # All others are reference kernels.
        return None if operator.name in OWN_ELEMENTWISE else row
    return None if row.cmsis_nn is None else row


def aliased_timeline(model: TfliteModel, build: Build) -> Timeline:
    """
    Return when the runtime needs each tensor, and which bytes may be shared.

    Only operators of the main subgraph share bytes; :func:`timeline_of` adds the reshapes of all
    subgraphs.

    Parameters
    ----------
    model : TfliteModel
        From :func:`~arenaplan.tflite.reader.tflite_model.parse`.
    build : Build
        The runtime's build; only reshapes share bytes unless :attr:`Build.shares` is set.

    Raises
    ------
    PlannerError
        As :func:`~arenaplan.tflite.reader.timeline.timeline_of`.
    """
    timeline = timeline_of(model)
    if timeline.areas or not build.shares:
        return timeline  # With areas, the accelerator's compiler has placed everything.
    return _Aliases(model, timeline, build.kernels).timeline()


class _Aliases:
    """A model's shared bytes."""

    def __init__(self, model: TfliteModel, timeline: Timeline, kernels: str) -> None:
        self._main: Subgraph = model.subgraphs[0]
        self._timeline = timeline
        self._kernels = kernels
        # The main subgraph's tensors come first.
        count = len(self._main.tensors)
        self._boxes = {box.tensor: i for i, box in enumerate(timeline.boxes) if box.tensor < count}
        self._facts = OperandFacts(model)
        written = [i for operator in self._main.operators for i in operator.outputs]
        written += self._main.inputs
        self._written_once = {i for i in set(written) if i is not None and written.count(i) == 1}

    def timeline(self) -> Timeline:
        """Return the timeline with the shared bytes."""
        same, over = list(self._timeline.same), list(self._timeline.in_place)
        for position, operator in enumerate(self._main.operators):
            row = row_of(operator, self._kernels)
            span = self._timeline.spans.get((0, position))
            if row is None or span is None or span[1] - span[0] != 1:
                continue
            if row.way == "copies":
                same += self._copies(operator, span[0])
            else:
                over += self._overwrites(operator, span[0])
        return replace(self._timeline, same=same, in_place=over)

    def _copies(self, operator: TfliteOperator, step: int) -> Iterator[Same]:
        """Yield the parts of an operator's operands and results that hold the same bytes."""
        seen: set[tuple[int, int]] = set()
        for view in self._facts.effects(operator).views:
            source, result = operator.inputs[view.input], operator.outputs[view.output]
            if not self._may_share(source, result) or source is None or result is None:
                continue
            offset, is_joined = view.offset, view.of == "output"
            part, whole = (source, result) if is_joined else (result, source)
            end = offset + self._facts.bytes(part)
            if offset % ALIGNMENT or end > self._facts.bytes(whole):
                continue
            if is_joined and end % ALIGNMENT and end != self._facts.bytes(whole):
                continue  # The next operand begins in this operand's last unit.
            if (source, result) in seen:
                continue  # An operand that is joined twice has only one place.
            seen.add((source, result))
            yield Same(step, self._boxes[source], self._boxes[result], offset, is_joined)

    def _overwrites(self, operator: TfliteOperator, step: int) -> Iterator[Takeover]:
        """Yield the operands at whose address an operator may write the result."""
        if len(operator.outputs) != 1:
            return
        result = operator.outputs[0]
        for source in dict.fromkeys(operator.inputs):
            if source in self._main.outputs or not self._may_share(source, result):
                continue
            if source is None or result is None:
                continue
            old, new = self._facts.of(source), self._facts.of(result)
            is_narrower = BITS[new.dtype] < BITS[old.dtype]
            if prod(old.shape) != prod(new.shape) or self._facts.bytes(result) > self._facts.bytes(
                source
            ):
                continue
            if is_narrower and new.dtype not in _CHARACTERS:
                continue
            first, second = self._boxes[source], self._boxes[result]
            if self._timeline.boxes[first].end == step + 1:
                yield Takeover(step, first, second)

    def _may_share(self, source: int | None, result: int | None) -> bool:
        """Whether both are in the arena, and written at a single place in the program."""
        return all(
            index in self._boxes and index in self._written_once for index in (source, result)
        )
