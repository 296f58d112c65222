"""
Writes a TFLite model with a patch applied.

Only tables that differ are written; weights, quantization, options and everything else unchanged
stays in the old content. New tensors take the numbers of tensors that no operator mentions any
more, so all other numbers hold: operators, signatures and fields with unknown meaning still point
to the same tensors. Free numbers are filled from the table's end, because TensorFlow Lite Micro
gives memory to every tensor.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from arenaplan.base.errors import InternalError
from arenaplan.deploy.export.flat import (
    Content,
    FlatText,
    Item,
    Numbers,
    Old,
    Scalar,
    copied,
    written_before,
)
from arenaplan.deploy.export.rewritten_file import MODEL_SCALARS, refuse_far
from arenaplan.tflite.reader.flatbuffer import FlatBuffer, Table
from arenaplan.tflite.reader.offline import METADATA_NAME
from arenaplan.tflite.reader.schema import (
    IDENTIFIER,
    OPERATORS,
    MetadataField,
    ModelField,
    OperatorCodeField,
    OperatorField,
    SignatureField,
    SubgraphField,
    TensorField,
    TensorMapField,
)
from arenaplan.tflite.reader.tflite_model import TfliteModel, code_of, parse
from arenaplan.tflite.rewrite.patch import Kept, Moved, NewConstant, Patch, Repeated

_INT32: Final = 2
_VALID: Final = 1
_PADDING: Final = 0
"""The padding's slot in the options of every operator with padding."""

_SUBGRAPH_SCALARS: Final = {5: "i"}
_OPERATOR_SCALARS: Final = {0: "I", 3: "B", 6: "b", 9: "Q", 10: "Q", 11: "B", 13: "i"}
_SIGNATURE_SCALARS: Final = {4: "I"}
_MAP_SCALARS: Final = {1: "I"}
_OPTION_SCALARS: Final[Mapping[str, Mapping[int, str]]] = {
    "CONV_2D": {0: "b", 1: "i", 2: "i", 3: "b", 4: "i", 5: "i", 6: "b"},
    "DEPTHWISE_CONV_2D": {0: "b", 1: "i", 2: "i", 3: "i", 4: "b", 5: "i", 6: "i"},
}
"""Options types of operators whose padding a patch can remove."""

_CONCATENATION_OPTIONS: Final = 10
_PAD_OPTIONS: Final = 22
_SLICE_OPTIONS: Final = 48


class _Mover(NamedTuple):
    """How the format writes an operator that only moves elements."""

    name: str
    versions: Mapping[int, int]
    """Version by element type; 1 for all other types."""
    options: int


_MOVERS: Final[Mapping[str, _Mover]] = {
    # By the operator versions that the converter writes for uint8, int8 and int16.
    "slice": _Mover("SLICE", {9: 2, 7: 4}, _SLICE_OPTIONS),
    "pad": _Mover("PAD", {9: 2, 7: 4}, _PAD_OPTIONS),
    "concat": _Mover("CONCATENATION", {9: 2, 7: 3}, _CONCATENATION_OPTIONS),
}


def patched(
    model: TfliteModel, patch: Patch, metadata: Mapping[str, bytes] | None = None
) -> TfliteModel:
    """
    Return a model with a patch applied to the main subgraph, read again from the new file.

    Parameters
    ----------
    model : TfliteModel
        The model.
    patch : Patch
        The change, with numbers for the main subgraph's tensors and operators.
    metadata : mapping of str to bytes, optional
        New entries, which replace old entries with the same name. An old plan is dropped.

    Raises
    ------
    UnsupportedModel
        If the file names bytes by position, which would move, or has unknown fields from a later
        version where tensor numbers change.
    """
    return _Patched(model, patch, dict(metadata or {})).model()


def order_of_tensors(model: TfliteModel, patch: Patch) -> tuple[int, ...]:
    """
    Return the patch's tensor number for each place in the new tensor table.

    A mentioned tensor keeps its place if the table is long enough.
    """
    main = model.subgraphs[0]
    used = set(main.inputs) | set(main.outputs)
    for signature in model.signatures:
        if signature.subgraph == 0:
            used.update(tensor for _, tensor in (*signature.inputs, *signature.outputs))
    for step in patch.steps:
        if isinstance(step, Kept):
            operator = main.operators[step.operator]
            used.update(i for i in (*operator.inputs, *operator.outputs) if i is not None)
            used.update(operator.intermediates)
        elif isinstance(step, Repeated):
            used.update(i for i in (*step.inputs, *step.outputs) if i is not None)
        else:
            used.update((*step.inputs, step.output))
    places: list[int | None] = [
        number if number in used else None for number in range(patch.old_tensors)
    ]
    fresh = [patch.old_tensors + i for i in range(len(patch.tensors))]
    fresh = [number for number in fresh if number in used]
    holes = [place for place, number in enumerate(places) if number is None]
    for place, number in zip(holes, fresh, strict=False):
        places[place] = number
    places += fresh[len(holes) :]
    for place in holes[len(fresh) :]:
        while places and places[-1] is None:
            places.pop()
        if place < len(places):
            places[place] = places.pop()
    return tuple(number for number in places if number is not None)


class _Patched:
    """Writes a file."""

    def __init__(self, model: TfliteModel, patch: Patch, metadata: dict[str, bytes]) -> None:
        refuse_far(model)
        self._model = model
        self._main = model.subgraphs[0]
        self._patch = patch
        self._metadata = metadata
        # A second reader, because parsing's reads count against the first reader's budget.
        self._root = FlatBuffer(model.data).root("the model")
        self._subgraph = self._root.tables(ModelField.SUBGRAPHS, "subgraph")[0]
        self._operators = self._subgraph.tables(SubgraphField.OPERATORS, "operator")
        self._tensors = self._subgraph.tables(SubgraphField.TENSORS, "tensor")
        self._order = order_of_tensors(model, patch)
        self._place = {number: place for place, number in enumerate(self._order)}
        self._codes: list[Item] = self._old(self._root, ModelField.OPERATOR_CODES)
        self._buffers: list[Item] = self._old(self._root, ModelField.BUFFERS)
        self._known_codes: dict[tuple[str, int], int] = {}
        self._vectors: dict[tuple[int, ...], Numbers] = {}
        self._contents: dict[tuple[int, ...], int] = {}

    def model(self) -> TfliteModel:
        """Return the file, read again."""
        self._read_codes()
        tensors = [self._tensor(number) for number in self._order]
        operators = [self._operator(step) for step in self._patch.steps]
        changes: dict[int, Item] = {
            SubgraphField.TENSORS: tensors,
            SubgraphField.INPUTS: self._numbers(self._places(self._main.inputs)),
            SubgraphField.OUTPUTS: self._numbers(self._places(self._main.outputs)),
            SubgraphField.OPERATORS: operators,
        }
        subgraphs = self._old(self._root, ModelField.SUBGRAPHS)
        subgraphs[0] = copied(self._subgraph, _SUBGRAPH_SCALARS, 6, changes)
        changes = {
            ModelField.SUBGRAPHS: subgraphs,
            ModelField.METADATA: self._entries(),
            ModelField.SIGNATURE_DEFS: self._signatures(),
            ModelField.OPERATOR_CODES: self._codes,
            ModelField.BUFFERS: self._buffers,
        }
        changes = {slot: item for slot, item in changes.items() if item}
        if ModelField.METADATA not in changes and ModelField.METADATA in self._root:
            changes[ModelField.METADATA] = []
        root = copied(self._root, MODEL_SCALARS, len(ModelField), changes)
        return parse(written_before(root, IDENTIFIER, self._model.data))

    # -- parts --------------------------------------------------------------------------------

    def _old(self, table: Table, slot: int) -> list[Item]:
        """Return a table vector as pointers into the old content."""
        return [Old(at) for at in table.targets(slot, "table")]

    def _places(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the tensors' places in the new table."""
        return tuple(self._place[number] for number in numbers)

    def _numbers(self, values: tuple[int, ...]) -> Numbers:
        """Return a number vector; equal vectors are shared."""
        return self._vectors.setdefault(values, Numbers("i", values))

    def _tensor(self, number: int) -> Item:
        """Return a tensor's table."""
        if not self._patch.is_new(number):
            return Old(self._tensors[number].at)
        new = self._patch.new(number)
        if isinstance(new, NewConstant):
            return {
                TensorField.SHAPE: self._numbers(new.shape),
                TensorField.TYPE: Scalar("b", _INT32),
                TensorField.BUFFER: Scalar("I", self._constant(new.values)),
                TensorField.NAME: FlatText(new.name),
            }
        like = self._tensors[new.like]
        fields: dict[int, Item] = {
            TensorField.SHAPE: self._numbers(new.shape),
            TensorField.TYPE: Scalar("b", self._main.tensors[new.like].type),
            TensorField.BUFFER: Scalar("I", self._empty()),
            TensorField.NAME: FlatText(new.name),
        }
        quantization = like.target(TensorField.QUANTIZATION)
        if quantization is not None:
            fields[TensorField.QUANTIZATION] = Old(quantization)
        has_rank = 8
        if has_rank in like:
            fields[has_rank] = Scalar("B", like.number(has_rank, "B"))
        return fields

    def _constant(self, values: tuple[int, ...]) -> int:
        """Return a constant's buffer; equal constants share a buffer."""
        if values not in self._contents:
            self._contents[values] = len(self._buffers)
            content = Content(struct.pack(f"<{len(values)}i", *values))
            self._buffers.append({0: content})
        return self._contents[values]

    def _empty(self) -> int:
        """Return a buffer without data: number 0 by convention, or a new one."""
        if self._model.buffers and self._model.buffers[0].length == 0:
            return 0
        if () not in self._contents:
            self._contents[()] = len(self._buffers)
            self._buffers.append({})
        return self._contents[()]

    def _operator(self, step: Kept | Repeated | Moved) -> Item:
        """Return an operator's table."""
        if isinstance(step, Moved):
            return self._moved(step)
        table = self._operators[step.operator]
        operator = self._main.operators[step.operator]
        inputs, outputs = operator.inputs, operator.outputs
        if isinstance(step, Repeated):
            inputs, outputs = step.inputs, step.outputs
        changes: dict[int, Item] = {
            slot: self._numbers(tuple(-1 if i is None else self._place[i] for i in numbers))
            for slot, numbers, old in (
                (OperatorField.INPUTS, inputs, operator.inputs),
                (OperatorField.OUTPUTS, outputs, operator.outputs),
            )
            if tuple(None if i is None else self._place[i] for i in numbers) != old
        }
        between = self._places(operator.intermediates)
        if between != operator.intermediates:
            changes[OperatorField.INTERMEDIATES] = self._numbers(between)
        if isinstance(step, Repeated) and step.unpadded:
            changes[OperatorField.OPTIONS] = self._unpadded(step.operator)
        if not changes:
            return Old(table.at)
        return copied(table, _OPERATOR_SCALARS, 14, changes)

    def _unpadded(self, position: int) -> Item:
        """Return an old operator's options without padding."""
        operator = self._main.operators[position]
        options = self._operators[position].table(OperatorField.OPTIONS, "options")
        scalars = _OPTION_SCALARS.get(operator.name)
        if options is None or scalars is None:
            raise InternalError(f"operator {position} ({operator.name}) has no padding to change")
        return copied(options, scalars, len(scalars), {_PADDING: Scalar("b", _VALID)})

    def _moved(self, step: Moved) -> Item:
        """Return the table for an operator that moves elements."""
        mover = _MOVERS[step.kind]
        options: dict[int, Item] = {}
        if step.kind == "concat":
            options[0] = Scalar("i", step.axis)
        version = mover.versions.get(self._type(step.output), 1)
        return {
            OperatorField.OPCODE_INDEX: Scalar("I", self._code(mover.name, version)),
            OperatorField.INPUTS: self._numbers(self._places(step.inputs)),
            OperatorField.OUTPUTS: self._numbers(self._places((step.output,))),
            OperatorField.OPTIONS_TYPE: Scalar("B", mover.options),
            OperatorField.OPTIONS: options,
        }

    def _type(self, number: int) -> int:
        """Return a tensor's element type."""
        if self._patch.is_new(number):
            new = self._patch.new(number)
            if isinstance(new, NewConstant):
                return _INT32
            number = new.like
        return self._main.tensors[number].type

    def _read_codes(self) -> None:
        """Note which builtin operators the file names already."""
        for index, table in enumerate(self._root.tables(ModelField.OPERATOR_CODES, "code")):
            name, is_custom, version = code_of(table)
            if not is_custom:
                self._known_codes.setdefault((name, version), index)

    def _code(self, name: str, version: int) -> int:
        """Return an operator code's position; add the code if missing."""
        if (name, version) not in self._known_codes:
            self._known_codes[name, version] = len(self._codes)
            code = OPERATORS.index(name)
            self._codes.append(
                {
                    OperatorCodeField.DEPRECATED_CODE: Scalar("b", min(code, 127)),
                    OperatorCodeField.VERSION: Scalar("i", version),
                    OperatorCodeField.CODE: Scalar("i", code),
                }
            )
        return self._known_codes[name, version]

    def _entries(self) -> list[Item]:
        """Return the metadata: kept old entries, and the new entries."""
        targets = self._root.targets(ModelField.METADATA, "metadata")
        replaced = {METADATA_NAME, *self._metadata}
        entries: list[Item] = [
            Old(target)
            for entry, target in zip(self._model.metadata, targets, strict=True)
            if entry.name not in replaced
        ]
        for name, content in self._metadata.items():
            entries.append(
                {
                    MetadataField.NAME: FlatText(name),
                    MetadataField.BUFFER: Scalar("I", len(self._buffers)),
                }
            )
            self._buffers.append({0: Content(content)})
        return entries

    def _signatures(self) -> list[Item]:
        """Return the signatures, with new tensor numbers where changed."""
        found: list[Item] = []
        for table in self._root.tables(ModelField.SIGNATURE_DEFS, "signature"):
            if table.number(SignatureField.SUBGRAPH, "I") != 0:
                found.append(Old(table.at))
                continue
            changes: dict[int, Item] = {}
            for slot in (SignatureField.INPUTS, SignatureField.OUTPUTS):
                operands = table.tables(slot, "operand")
                numbers = [entry.number(TensorMapField.TENSOR, "I") for entry in operands]
                if any(self._place[number] != number for number in numbers):
                    changes[slot] = [
                        copied(
                            entry,
                            _MAP_SCALARS,
                            2,
                            {TensorMapField.TENSOR: Scalar("I", self._place[number])},
                        )
                        for entry, number in zip(operands, numbers, strict=True)
                    ]
            found.append(
                copied(table, _SIGNATURE_SCALARS, 5, changes) if changes else Old(table.at)
            )
        return found
