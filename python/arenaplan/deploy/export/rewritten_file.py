"""
Puts a metadata entry into a TFLite file, with everything else unchanged.

A new root table goes before the old content (:mod:`arenaplan.deploy.export.flat`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arenaplan.base.errors import UnsupportedModel
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
from arenaplan.tflite.reader.schema import (
    IDENTIFIER,
    BufferField,
    MetadataField,
    ModelField,
    OperatorField,
    SubgraphField,
)
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator

MODEL_SCALARS: Final = {int(ModelField.VERSION): "I"}
"""Types of number fields in a model table."""

_FAR: Final = "the file keeps data behind the model, by position; it cannot grow"


def with_metadata(model: TfliteModel, name: str, content: bytes) -> bytes:
    """
    Return the file for ``model`` with ``content`` as the only metadata named ``name``.

    Raises
    ------
    UnsupportedModel
        If the file names bytes by position, which would move, or the root table has unknown fields.
    """
    inside = _replaced(model, name, content)
    if inside is not None:
        return inside
    refuse_far(model)
    root = model.root
    if root.slots > len(ModelField):
        raise UnsupportedModel("the model's root table has fields of an unknown later version")
    targets = root.targets(ModelField.METADATA, "metadata")
    old = [
        target for entry, target in zip(model.metadata, targets, strict=True) if entry.name != name
    ]
    changes = {ModelField.VERSION: _version(model), **_data(model, old, name, content)}
    fields = copied(root, MODEL_SCALARS, len(ModelField), changes)
    return written_before(fields, IDENTIFIER, model.data)


def isolated(model: TfliteModel, subgraph: int, position: int, name: str, content: bytes) -> bytes:
    """
    Return a model with an operator from ``model``, the operator's tensors, and a metadata entry.

    The tensors are in the order of the operator's inputs, outputs and intermediates, each once.
    Referenced content stays in place, behind the new tables.

    Raises
    ------
    UnsupportedModel
        If the file names bytes by position, which would move.
    """
    _refuse_far_buffers(model)
    old = model.root.tables(ModelField.SUBGRAPHS, "subgraph")[subgraph]
    table = old.tables(SubgraphField.OPERATORS, "operator")[position]
    described = model.subgraphs[subgraph]
    operator = described.operators[position]
    operands = operands_of(operator)
    tensors = old.targets(SubgraphField.TENSORS, "tensor")

    def numbers(indices: Sequence[int | None]) -> Numbers:
        return Numbers("i", [-1 if index is None else operands.index(index) for index in indices])

    entry: dict[int, Item] = {
        OperatorField.OPCODE_INDEX: Scalar("I", table.number(OperatorField.OPCODE_INDEX, "I")),
        OperatorField.INPUTS: numbers(operator.inputs),
        OperatorField.OUTPUTS: numbers(operator.outputs),
        OperatorField.INTERMEDIATES: numbers(operator.intermediates),
    }
    options = table.target(OperatorField.OPTIONS)
    if options is not None:
        kind = table.number(OperatorField.OPTIONS_TYPE, "B")
        entry[OperatorField.OPTIONS_TYPE] = Scalar("B", kind)
        entry[OperatorField.OPTIONS] = Old(options)
    custom = table.target(OperatorField.CUSTOM_OPTIONS)
    if custom is not None:
        entry[OperatorField.CUSTOM_OPTIONS] = Old(custom)
    given = [
        index
        for index in dict.fromkeys(operator.inputs)
        if index is not None and not model.is_constant(described.tensors[index])
    ]
    made = [index for index in operator.outputs if index is not None]
    main: dict[int, Item] = {
        SubgraphField.TENSORS: [Old(tensors[index]) for index in operands],
        SubgraphField.INPUTS: numbers(given),
        SubgraphField.OUTPUTS: numbers(made),
        SubgraphField.OPERATORS: [entry],
    }
    root: dict[int, Item] = {
        ModelField.VERSION: _version(model),
        ModelField.SUBGRAPHS: [main],
        **_data(model, [], name, content),
    }
    codes = model.root.target(ModelField.OPERATOR_CODES)
    if codes is not None:
        root[ModelField.OPERATOR_CODES] = Old(codes)
    return written_before(root, IDENTIFIER, model.data)


def operands_of(operator: TfliteOperator) -> list[int]:
    """Return an operator's tensors, each once, in :func:`isolated` order."""
    places = (*operator.inputs, *operator.outputs, *operator.intermediates)
    return list(dict.fromkeys(index for index in places if index is not None))


def refuse_far(model: TfliteModel) -> None:
    """Raise ``UnsupportedModel`` if the file names bytes by position, which would move."""
    _refuse_far_buffers(model)
    operators = (operator for graph in model.subgraphs for operator in graph.operators)
    if any(operator.has_far_options for operator in operators):
        raise UnsupportedModel(_FAR)


def _refuse_far_buffers(model: TfliteModel) -> None:
    if any(buffer.is_far for buffer in model.buffers):
        raise UnsupportedModel(_FAR)


def _version(model: TfliteModel) -> Scalar:
    return Scalar("I", model.root.number(ModelField.VERSION, "I"))


def _data(model: TfliteModel, old: Sequence[int], name: str, content: bytes) -> dict[int, Item]:
    """Return vectors with all buffers and the ``old`` metadata, plus a new entry in each."""
    buffers: list[Item] = [Old(at) for at in model.root.targets(ModelField.BUFFERS, "buffer")]
    entry: dict[int, Item] = {
        MetadataField.NAME: FlatText(name),
        MetadataField.BUFFER: Scalar("I", len(buffers)),
    }
    return {
        ModelField.BUFFERS: [*buffers, {BufferField.DATA: Content(content)}],
        ModelField.METADATA: [*(Old(at) for at in old), entry],
    }


def _replaced(model: TfliteModel, name: str, content: bytes) -> bytes | None:
    """Return the file with ``content`` in place of a buffer with equal name and size, if any."""
    places = [entry.buffer for entry in model.metadata if entry.name == name]
    if len(places) != 1:
        return None
    place = model.buffers[places[0]]
    users = [entry.buffer for entry in model.metadata]
    users += [tensor.buffer for graph in model.subgraphs for tensor in graph.tensors]
    if users.count(places[0]) != 1 or place.is_far or place.length != len(content):
        return None
    return model.data[: place.start] + content + model.data[place.start + place.length :]
