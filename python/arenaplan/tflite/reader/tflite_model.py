"""A TFLite file as plain objects, with every index checked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from arenaplan.base.errors import NotAModel, fault
from arenaplan.base.model_files import read_file
from arenaplan.base.quoting import quoted
from arenaplan.graph.ops import Shape
from arenaplan.tflite.reader.flatbuffer import FlatBuffer, Table
from arenaplan.tflite.reader.operator_options import OperatorOptions, decoded, required_kind
from arenaplan.tflite.reader.schema import (
    COMPOSITE,
    COMPOSITE_OPTIONS,
    CUSTOM,
    IDENTIFIER,
    OPERATORS,
    VERSION,
    BufferField,
    CompositeField,
    MetadataField,
    ModelField,
    OperatorCodeField,
    OperatorField,
    QuantizationField,
    SignatureField,
    SubgraphField,
    TensorField,
    TensorMapField,
)

Source: TypeAlias = "str | os.PathLike[str] | bytes"

MAX_FILE = 2**31 - 1
"""Largest FlatBuffer: offsets have 31 bits."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantization; compared, never computed with."""

    scale: tuple[int, ...]
    """The scales' bits."""
    zero_point: tuple[int, ...]
    dimension: int


@dataclass(frozen=True, slots=True)
class TfliteTensor:
    """A subgraph's tensor."""

    name: str
    shape: Shape | None
    """As stored: open dimensions have the number that runtimes start with."""
    signature: Shape | None
    """The shape with -1 for open dimensions, where there are any."""
    type: int
    buffer: int
    is_variable: bool
    is_sparse: bool
    is_external: bool
    quantization: Quantization | None


@dataclass(frozen=True, slots=True)
class TfliteOperator:
    """A subgraph's operator."""

    name: str
    """Builtin operator, or a custom operator's name."""
    is_custom: bool
    version: int
    inputs: tuple[int | None, ...]
    """Tensors read; ``None`` for an optional operand left out."""
    outputs: tuple[int | None, ...]
    intermediates: tuple[int, ...]
    options: OperatorOptions
    """Options, for the few operators whose options are read; else none."""
    has_far_options: bool
    """Whether the operator names file bytes by position."""
    custom_options: bytes = field(default=b"", repr=False)
    """A custom operator's options, in an operator-specific form."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Tensors, and the operators that run on them in order."""

    name: str
    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileBuffer:
    """Data that tensors and metadata refer to."""

    start: int
    length: int
    is_far: bool
    """Whether the data lies behind the FlatBuffer and is named by file position."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Named data."""

    name: str
    buffer: int


@dataclass(frozen=True, slots=True)
class SubgraphSignature:
    """Names for a subgraph's inputs and outputs."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TfliteModel:
    """A whole file."""

    data: bytes = field(compare=False, repr=False)
    root: Table = field(compare=False)
    description: str
    subgraphs: tuple[Subgraph, ...]
    buffers: tuple[FileBuffer, ...]
    metadata: tuple[Metadata, ...]
    signatures: tuple[SubgraphSignature, ...]
    main: int = 0
    """The subgraph to read, with the subgraphs it runs."""

    def content(self, buffer: int) -> bytes:
        """Return a buffer's bytes."""
        span = self.buffers[buffer]
        return self.data[span.start : span.start + span.length]

    def is_constant(self, tensor: TfliteTensor) -> bool:
        """Whether a tensor's data is part of the file."""
        return tensor.is_external or self.buffers[tensor.buffer].length > 0


def read_bytes(source: Source) -> tuple[bytes, Path | None]:
    """
    Return a model file's content and path.

    Raises
    ------
    NotAModel, ModelError
        If the path is not a plain file, or the file is larger than the format allows.
    OSError
        If the file cannot be read.
    """
    if isinstance(source, bytes):
        return source, None
    path = Path(source)
    return read_file(path, MAX_FILE), path


def parse(data: bytes) -> TfliteModel:
    """
    Parse a file's bytes into a model.

    Raises
    ------
    NotAModel
        If the bytes are not a TFLite file.
    ModelError
        If an offset or length points outside the file.
    ExecutionError
        If an operator names a tensor that does not exist, or similar.
    ModelError
        If parts are shared so often that the model is many times larger than the file.
    """
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        raise NotAModel(f"no TFLite model: bytes 4 to 8 are not {IDENTIFIER.decode()}")
    if len(data) > MAX_FILE:
        raise fault(
            "ModelTooLarge", f"the data has {len(data)} bytes; the format allows {MAX_FILE}"
        )
    root = FlatBuffer(data).root("the model")
    version = root.number(ModelField.VERSION, "I")
    if version != VERSION:
        raise NotAModel(f"the file is of version {version} of the format; known is {VERSION}")
    buffers = tuple(_buffer(table) for table in root.tables(ModelField.BUFFERS, "buffer"))
    codes = [code_of(table) for table in root.tables(ModelField.OPERATOR_CODES, "operator code")]
    tables = root.tables(ModelField.SUBGRAPHS, "subgraph")
    subgraphs = tuple(_subgraph(table, len(buffers), codes) for table in tables)
    if not subgraphs:
        raise NotAModel("the model has no subgraph")
    return TfliteModel(
        data,
        root,
        root.string(ModelField.DESCRIPTION) or "",
        subgraphs,
        buffers,
        tuple(
            _metadata(table, len(buffers)) for table in root.tables(ModelField.METADATA, "metadata")
        ),
        tuple(
            _signature(table, subgraphs)
            for table in root.tables(ModelField.SIGNATURE_DEFS, "signature")
        ),
    )


def checked_index(index: int, count: int, what: str) -> int:
    """Return an index into ``count`` things."""
    if not 0 <= index < count:
        raise fault("IndexOutOfRange", f"{what} is number {index} of {count}")
    return index


def _buffer(table: Table) -> FileBuffer:
    """Read where a buffer's data is."""
    offset = table.number(BufferField.OFFSET, "Q")
    # Writers store 0 and 1 until they know the position.
    if offset > 1:
        size = table.number(BufferField.SIZE, "Q")
        table.buffer.check(offset, size, table.what)
        return FileBuffer(offset, size, is_far=True)
    start, length = table.span(BufferField.DATA) or (0, 0)
    return FileBuffer(start, length, is_far=False)


def code_of(table: Table) -> tuple[str, bool, int]:
    """Read an operator's name, whether the operator is custom, and the version."""
    # Codes up to 127 once were a single byte; writers still fill in both fields.
    code = max(
        table.number(OperatorCodeField.CODE, "i"),
        table.number(OperatorCodeField.DEPRECATED_CODE, "b"),
    )
    version = table.number(OperatorCodeField.VERSION, "i", 1)
    if code == CUSTOM:
        return table.string(OperatorCodeField.CUSTOM_CODE) or "CUSTOM", True, version
    # A newer operator is unknown, not an error.
    known = 0 <= code < len(OPERATORS)
    return OPERATORS[code] if known else f"BUILTIN_{code}", False, version


def _subgraph(table: Table, buffers: int, codes: list[tuple[str, bool, int]]) -> Subgraph:
    """Read a subgraph."""
    what = table.what
    tensors = tuple(
        _tensor(entry, buffers) for entry in table.tables(SubgraphField.TENSORS, f"{what}: tensor")
    )
    count = len(tensors)
    operators = tuple(
        _operator(entry, count, codes)
        for entry in table.tables(SubgraphField.OPERATORS, f"{what}: operator")
    )
    inputs, outputs = (
        tuple(
            checked_index(index, count, f"{what}: the tensor in its {kind}")
            for index in table.numbers(slot, "i") or ()
        )
        for slot, kind in ((SubgraphField.INPUTS, "inputs"), (SubgraphField.OUTPUTS, "outputs"))
    )
    name = table.string(SubgraphField.NAME) or ""
    return Subgraph(name, tensors, operators, inputs, outputs)


def _tensor(table: Table, buffers: int) -> TfliteTensor:
    """Read a tensor."""
    buffer = table.number(TensorField.BUFFER, "I")
    return TfliteTensor(
        table.string(TensorField.NAME) or "",
        table.numbers(TensorField.SHAPE, "i"),
        table.numbers(TensorField.SHAPE_SIGNATURE, "i"),
        table.number(TensorField.TYPE, "b"),
        checked_index(buffer, buffers, f"{table.what}: its buffer"),
        bool(table.number(TensorField.IS_VARIABLE, "B")),
        TensorField.SPARSITY in table,
        table.number(TensorField.EXTERNAL_BUFFER, "I") != 0,
        _quantization(table),
    )


def _quantization(tensor: Table) -> Quantization | None:
    """Read a tensor's quantization, if any."""
    table = tensor.table(TensorField.QUANTIZATION, f"{tensor.what}: its quantization")
    if table is None:
        return None
    scale = table.numbers(QuantizationField.SCALE, "I")
    if not scale:
        return None
    zero_point = table.numbers(QuantizationField.ZERO_POINT, "q") or ()
    return Quantization(scale, zero_point, table.number(QuantizationField.DIMENSION, "i"))


def _operator(table: Table, tensors: int, codes: list[tuple[str, bool, int]]) -> TfliteOperator:
    """Read an operator."""
    index = table.number(OperatorField.OPCODE_INDEX, "I")
    index = checked_index(index, len(codes), f"{table.what}: its operator code")
    name, is_custom, version = codes[index]
    what = f"{table.what} ({quoted(name, 40)})"
    inputs, outputs, intermediates = (
        tuple(
            None
            if tensor == -1
            else checked_index(tensor, tensors, f"{what}: the tensor in its {kind}")
            for tensor in table.numbers(slot, "i") or ()
        )
        for slot, kind in (
            (OperatorField.INPUTS, "inputs"),
            (OperatorField.OUTPUTS, "outputs"),
            (OperatorField.INTERMEDIATES, "intermediates"),
        )
    )
    return TfliteOperator(
        name,
        is_custom,
        version,
        inputs,
        outputs,
        tuple(tensor for tensor in intermediates if tensor is not None),
        _options(table, name, what),
        table.number(OperatorField.LARGE_OPTIONS_OFFSET, "Q") > 1,
        _bytes_of(table, OperatorField.CUSTOM_OPTIONS) if is_custom else b"",
    )


def _bytes_of(table: Table, slot: int) -> bytes:
    """Return a byte vector field; empty if absent."""
    start, length = table.span(slot) or (0, 0)
    table.buffer.spend(length)
    return table.buffer.data[start : start + length]


def _options(table: Table, name: str, what: str) -> OperatorOptions:
    """Return an operator's options, if options are read for the operator."""
    expected = required_kind(name)
    kind, slot = OperatorField.OPTIONS_TYPE, OperatorField.OPTIONS
    if name == COMPOSITE:
        expected = COMPOSITE_OPTIONS
        kind, slot = OperatorField.MORE_OPTIONS_TYPE, OperatorField.MORE_OPTIONS
    if expected is None:
        return OperatorOptions()
    options = table.table(slot, f"{what}: its options")
    found = expected if options is None else table.number(kind, "B")
    if found != expected:
        raise fault("FlatbufferCorrupt", f"{what}: its options have type {found}, not {expected}")
    if name == COMPOSITE:
        called = 0 if options is None else options.number(CompositeField.SUBGRAPH, "i")
        return OperatorOptions(expected, (None, called))
    return decoded(expected, options)


def _metadata(table: Table, buffers: int) -> Metadata:
    """Read a metadata entry."""
    buffer = table.number(MetadataField.BUFFER, "I")
    return Metadata(
        table.string(MetadataField.NAME) or "",
        checked_index(buffer, buffers, f"{table.what}: its buffer"),
    )


def _signature(table: Table, subgraphs: tuple[Subgraph, ...]) -> SubgraphSignature:
    """Read a signature."""
    what = table.what
    index = table.number(SignatureField.SUBGRAPH, "I")
    tensors = len(subgraphs[checked_index(index, len(subgraphs), f"{what}: its subgraph")].tensors)
    inputs, outputs = (
        tuple(
            (
                entry.string(TensorMapField.NAME) or "",
                checked_index(
                    entry.number(TensorMapField.TENSOR, "I"), tensors, f"{entry.what}: its tensor"
                ),
            )
            for entry in table.tables(slot, f"{what}: operand")
        )
        for slot in (SignatureField.INPUTS, SignatureField.OUTPUTS)
    )
    return SubgraphSignature(table.string(SignatureField.KEY) or "", index, inputs, outputs)
