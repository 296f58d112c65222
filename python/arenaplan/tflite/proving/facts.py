"""A TFLite model for the proof: comparable facts about tensors and operators."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final, NamedTuple, TypeAlias

from arenaplan.base.errors import UnsupportedDtype, UnsupportedModel, fault
from arenaplan.base.limits import current, reading, take_node
from arenaplan.base.quoting import quoted
from arenaplan.tflite.proving.elements import Shape, item_bytes
from arenaplan.tflite.reader.flatbuffer import FlatBuffer, Table
from arenaplan.tflite.reader.operator_options import OperatorOptions, decoded
from arenaplan.tflite.reader.schema import (
    ModelField,
    OperatorField,
    SubgraphField,
    TensorField,
)
from arenaplan.tflite.reader.tflite_model import (
    Source,
    TfliteModel,
    TfliteTensor,
    parse,
    read_bytes,
)

PLAN: Final = "OfflineMemoryAllocation"
OBEYED: Final = frozenset({PLAN, "COMPRESSION_METADATA"})
"""Metadata by which TensorFlow Lite Micro computes."""
"""Metadata with offsets for TensorFlow Lite Micro."""

ONLINE: Final = -1
"""Offset that leaves a tensor to the runtime."""

_CUSTOM_OPTIONS, _MUTATING, _FAR_AT, _FAR_SIZE, _KIND_2, _OPTIONS_2 = 5, 7, 9, 10, 11, 12
_DETAILS_TYPE, _DETAILS = 4, 5

_MOST_DIMENSIONS: Final = 16
"""More than a kernel has, and fewer than an array can have."""

_STATEFUL: Final = """
    ASSIGN_VARIABLE CALL CALL_ONCE DELEGATE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT
    HASHTABLE_SIZE IF MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM READ_VARIABLE
    STABLEHLO_CASE STABLEHLO_COMPOSITE STABLEHLO_RNG_BIT_GENERATOR STABLEHLO_WHILE VAR_HANDLE WHILE
"""
_STATE: Final = frozenset(_STATEFUL.split())
"""Operators that may read or write more than their operands."""

Key: TypeAlias = "tuple[object, ...]"
Quantization: TypeAlias = "tuple[object, ...] | None"


class Unread(NamedTuple):
    """A file part in an unknown form, by position in content shared by both files."""

    at: int


@dataclass(frozen=True)
class Fact:
    """A tensor."""

    index: int
    name: str
    shape: Shape
    signature: Shape | None
    type: int
    quantization: Quantization
    is_variable: bool
    is_constant: bool
    content: bytes
    item: int
    """Bytes per element in memory; 0 if unknown."""

    @cached_property
    def key(self) -> Key:
        """Everything a kernel can see of the tensor except elements."""
        kind = "variable" if self.is_variable else "constant" if self.is_constant else "computed"
        return kind, self.type, self.shape, self.quantization, self.digest

    @cached_property
    def digest(self) -> str:
        """SHA-256 of a constant's content."""
        return hashlib.sha256(self.content).hexdigest() if self.content else ""

    @property
    def encoding(self) -> Key:
        """How the tensor's bits represent numbers."""
        return self.type, self.quantization

    @property
    def count(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.count * self.item

    @property
    def zero_point(self) -> int | None:
        """The number that stands for zero; ``None`` if there are several."""
        if self.quantization is None:
            return 0
        points = self.quantization[1]
        if not isinstance(points, tuple) or len(points) > 1:
            return None
        return int(points[0]) if points else 0

    def text(self) -> str:
        """Return the tensor for messages."""
        return f"tensor {self.index} {quoted(self.name)}"


@dataclass(frozen=True)
class Operation:
    """An operator."""

    index: int
    name: str
    is_custom: bool
    version: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: OperatorOptions | Unread
    rest: Key
    """All else that a kernel can see."""
    is_ordered: bool
    """Whether the operator has a state or may have a state."""

    def text(self) -> str:
        """Return the operator for messages."""
        return f"operator {self.index} ({quoted(self.name, 40)})"

    @property
    def plain(self) -> OperatorOptions:
        """The options, with a known type."""
        return (
            self.options if isinstance(self.options, OperatorOptions) else OperatorOptions(-1, ())
        )


@dataclass(frozen=True)
class SubgraphFacts:
    """A subgraph."""

    index: int
    name: str
    tensors: tuple[Fact, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class File:
    """A model."""

    model: TfliteModel
    graphs: tuple[SubgraphFacts, ...]

    @cached_property
    def sha256(self) -> str:
        """The file's SHA-256."""
        return hashlib.sha256(self.model.data).hexdigest()

    def metadata(self, ignored: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Return names and digests of all metadata except plans and ignored entries."""
        return sorted(
            (entry.name, hashlib.sha256(self.model.content(entry.buffer)).hexdigest())
            for entry in self.model.metadata
            if entry.name != PLAN and entry.name not in ignored
        )

    def offsets(self) -> tuple[int, ...] | None:
        """
        Return the plan in the file, by tensor, or None.

        Raises
        ------
        PlanError
            If the entry is malformed.
        """
        entries = [entry for entry in self.model.metadata if entry.name == PLAN]
        if not entries:
            return None
        content = self.model.content(entries[-1].buffer)  # The runtime obeys the last entry.
        words = memoryview(content[: len(content) // 4 * 4]).cast("i")
        tensors = sum(len(graph.tensors) for graph in self.graphs)
        if len(words) < 3 or words[0] != 1 or words[2] != tensors or len(words) != tensors + 3:
            raise fault(
                "PlanCorrupt",
                f"the metadata {PLAN} of {len(content)} bytes is not a plan for {tensors} tensors",
            )
        return tuple(words[3:])


def read_pair(original: Source, rewritten: Source) -> tuple[File, File]:
    """
    Read both files, within the limits set around the caller.

    Raises
    ------
    ModelError
        If a file is malformed.
    ModelError
        If a file has more bytes or operators than the limits permit.
    UnsupportedModel
        If a file keeps data in an unknown form.
    """
    old, new = _admitted(original), _admitted(rewritten)
    shift = len(new.data) - len(old.data)
    # A writer can keep the old file unchanged behind new tables. Offsets point forward, so that
    # equal positions in the old part are equal content.
    is_shared = shift >= 0 and new.data.endswith(old.data)
    sides = [_Reader(old, 0, is_shared).file(), _Reader(new, shift, is_shared).file()]
    return sides[0], sides[1]


def _admitted(source: Source) -> TfliteModel:
    """Return a file's model, if within the limits."""
    limits = current()
    limits.admit(source)
    model = parse(read_bytes(source)[0])
    with reading(limits):
        for subgraph in model.subgraphs:
            for _ in subgraph.operators:
                take_node()
    return model


class _Reader:
    """Reads a file."""

    def __init__(self, model: TfliteModel, shift: int, is_shared: bool) -> None:
        self._model = model
        self._shift = shift
        self._is_shared = is_shared
        # Parsing's reads counted against the parser's own budget.
        self._root = FlatBuffer(model.data).root("the model")

    def file(self) -> File:
        """Return all facts."""
        tables = self._root.tables(ModelField.SUBGRAPHS, "subgraph")
        return File(
            self._model, tuple(self._graph(index, table) for index, table in enumerate(tables))
        )

    def _graph(self, index: int, table: Table) -> SubgraphFacts:
        graph = self._model.subgraphs[index]
        tensors = tuple(
            self._fact(position, graph.tensors[position], entry)
            for position, entry in enumerate(table.tables(SubgraphField.TENSORS, "tensor"))
        )
        entries = table.tables(SubgraphField.OPERATORS, "operator")
        operations = tuple(
            self._operation(index, position, entry, tensors)
            for position, entry in enumerate(entries)
        )
        return SubgraphFacts(index, graph.name, tensors, operations, graph.inputs, graph.outputs)

    def _fact(self, index: int, tensor: TfliteTensor, table: Table) -> Fact:
        what = f"tensor {index} {quoted(tensor.name)}"
        if tensor.is_external or tensor.is_sparse:
            raise UnsupportedModel(f"{what} is sparse or stored in another file")
        shape = tensor.shape or ()
        if any(dim < 0 for dim in shape):
            raise UnsupportedModel(f"{what} has a dimension without a number")
        if len(shape) > _MOST_DIMENSIONS:
            raise UnsupportedModel(f"{what} has {len(shape)} dimensions")
        is_constant = self._model.is_constant(tensor)
        item = item_bytes(tensor.type)
        if item == 0 and not is_constant and tensor.type not in (5, 14):
            raise UnsupportedDtype(f"{what} has elements of type {tensor.type}")
        return Fact(
            index,
            tensor.name,
            shape,
            tensor.signature,
            tensor.type,
            self._quantization(tensor, table, what),
            tensor.is_variable,
            is_constant and not tensor.is_variable,
            self._model.content(tensor.buffer),
            item,
        )

    def _quantization(self, tensor: TfliteTensor, table: Table, what: str) -> Quantization:
        found = table.table(TensorField.QUANTIZATION, f"{what}: its quantization")
        details: object = None
        if found is not None and (_DETAILS in found or found.number(_DETAILS_TYPE, "B")):
            details = found.number(_DETAILS_TYPE, "B"), self._unread(found.target(_DETAILS), what)
        if tensor.quantization is None:
            return None if details is None else ((), (), 0, details)
        known = tensor.quantization
        return known.scale, known.zero_point, known.dimension, details

    def _operation(
        self, graph: int, index: int, table: Table, tensors: Sequence[Fact]
    ) -> Operation:
        known = self._model.subgraphs[graph].operators[index]
        what = f"operator {index} ({quoted(known.name, 40)})"
        outputs = tuple(i for i in known.outputs if i is not None)
        if len(outputs) != len(known.outputs):
            raise UnsupportedModel(f"{what} leaves out an output")
        kind = table.number(OperatorField.OPTIONS_TYPE, "B")
        at = table.target(OperatorField.OPTIONS)
        options: OperatorOptions | Unread
        options = decoded(kind, table.table(OperatorField.OPTIONS, f"{what}: its options"))
        if not options.is_known:
            options = self._unread(at, what)
        more: object = None
        if _OPTIONS_2 in table or table.number(_KIND_2, "B"):
            more = table.number(_KIND_2, "B"), self._unread(table.target(_OPTIONS_2), what)
        operands = (*known.inputs, *outputs, *known.intermediates)
        keeps = any(i is not None and tensors[i].is_variable for i in operands)
        is_ordered = known.is_custom or keeps or known.name in _STATE
        rest = (self._bytes(table, what), table.numbers(_MUTATING, "B"), more)
        return Operation(
            index,
            known.name,
            known.is_custom,
            known.version,
            known.inputs,
            outputs,
            known.intermediates,
            options,
            rest,
            is_ordered,
        )

    def _bytes(self, table: Table, what: str) -> bytes:
        """Return a custom operator's options."""
        at = table.number(_FAR_AT, "Q")
        if at > 1:
            size = table.number(_FAR_SIZE, "Q")
            table.buffer.check(at, size, what)
            return self._model.data[at : at + size]
        start, length = table.span(_CUSTOM_OPTIONS) or (0, 0)
        return self._model.data[start : start + length]

    def _unread(self, at: int | None, what: str) -> Unread:
        """
        Return the position of a table in an unknown form.

        Raises
        ------
        UnsupportedModel
            If the files do not share the content, so that the content cannot be compared.
        """
        if at is None:
            return Unread(-1)
        # The field table can lie in front of the table.
        fields = at - self._root.buffer.number("i", at, what)
        if not self._is_shared or min(at, fields) < self._shift:
            raise UnsupportedModel(
                f"{what} has options or parameters of a form that is not known, and the rewritten "
                "file does not keep the bytes of the original"
            )
        return Unread(at - self._shift)
