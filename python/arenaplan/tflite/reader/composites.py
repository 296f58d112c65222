"""Composite operators: each names a subgraph, the decomposition, with the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arenaplan.base.errors import UnsupportedSubgraph
from arenaplan.base.quoting import quoted
from arenaplan.tflite.reader.schema import COMPOSITE, CompositeField
from arenaplan.tflite.reader.subgraph_flow import ExpansionBudget
from arenaplan.tflite.reader.tflite_model import (
    Subgraph,
    TfliteModel,
    TfliteOperator,
    checked_index,
)


def decomposed(model: TfliteModel) -> TfliteModel:
    """
    Return a model with composite operators replaced by decompositions.

    Raises
    ------
    UnsupportedSubgraph
        If a decomposition does not fit the operator, has variables, or runs itself.
    ModelError
        If the subgraph does not exist, or subgraphs name each other more often than the file's size
        justifies.
    """
    if not any(map(_is_composite, (o for graph in model.subgraphs for o in graph.operators))):
        return model
    budget = ExpansionBudget(len(model.data))
    numbers = range(len(model.subgraphs))
    return replace(model, subgraphs=tuple(_inlined(model, number, budget) for number in numbers))


def _is_composite(operator: TfliteOperator) -> bool:
    return operator.name == COMPOSITE and not operator.is_custom


def _inlined(model: TfliteModel, number: int, budget: ExpansionBudget) -> Subgraph:
    """Return a subgraph without composite operators."""
    main = model.subgraphs[number]
    tensors, operators = list(main.tensors), list[TfliteOperator]()
    pending: list[tuple[TfliteOperator, tuple[int, ...]]] = [
        (operator, (number,)) for operator in reversed(main.operators)
    ]
    while pending:
        operator, callers = pending.pop()
        if not _is_composite(operator):
            operators.append(operator)
            continue
        found = operator.options.number(CompositeField.SUBGRAPH)
        called = checked_index(found, len(model.subgraphs), f"{COMPOSITE}: its decomposition")
        if called in callers:
            raise UnsupportedSubgraph(f"{COMPOSITE}: subgraph {called} runs itself")
        inner = model.subgraphs[called]
        budget.spend(1 + len(inner.operators) + len(inner.tensors))
        places = _joints(inner, operator, f"{COMPOSITE}: decomposition {quoted(inner.name)}")
        for index, tensor in enumerate(inner.tensors):
            if index not in places:
                places[index] = len(tensors)
                tensors.append(replace(tensor, name=f"{inner.name}/{tensor.name}"))
        moved = [_moved(each, places) for each in reversed(inner.operators)]
        pending += [(each, (*callers, called)) for each in moved]
    return replace(main, tensors=tuple(tensors), operators=tuple(operators))


def _joints(inner: Subgraph, operator: TfliteOperator, what: str) -> dict[int, int | None]:
    """Map a decomposition's tensors to the operator's operands and results."""
    ends = (*inner.inputs, *inner.outputs)
    if (len(inner.inputs), len(inner.outputs)) != (len(operator.inputs), len(operator.outputs)):
        raise UnsupportedSubgraph(
            f"{what} has {len(inner.inputs)} inputs and {len(inner.outputs)} outputs, and the "
            f"operator {len(operator.inputs)} and {len(operator.outputs)}"
        )
    if len({*ends}) < len(ends):
        raise UnsupportedSubgraph(f"{what} returns an input, or has an input or output twice")
    if any(tensor.is_variable for tensor in inner.tensors):
        raise UnsupportedSubgraph(f"{what} has a variable")
    return dict(zip(ends, (*operator.inputs, *operator.outputs), strict=True))


def _moved(operator: TfliteOperator, places: dict[int, int | None]) -> TfliteOperator:
    """Return a decomposition's operator on the outer subgraph's tensors."""

    def at(indices: Sequence[int | None]) -> tuple[int | None, ...]:
        return tuple(None if index is None else places[index] for index in indices)

    inside = tuple(found for found in at(operator.intermediates) if found is not None)
    return replace(
        operator, inputs=at(operator.inputs), outputs=at(operator.outputs), intermediates=inside
    )
