"""The operators that the resolver of a firmware must register."""

from __future__ import annotations

from arenaplan.tflite.reader.tflite_model import Model


def operators_of(model: Model) -> tuple[str, ...]:
    """Return the operators of all subgraphs, each once, in the order of the file."""
    names = (operator.name for graph in model.subgraphs for operator in graph.operators)
    return tuple(dict.fromkeys(names))


def added_operators(original: Model, rewritten: Model) -> tuple[str, ...]:
    """
    Return the operators of ``rewritten`` that a resolver for ``original`` lacks.

    Examples
    --------
    A model that was rewritten into strips needs ``STRIDED_SLICE`` and ``CONCATENATION``, which
    firmware must register beside the operators of the original.
    """
    known = set(operators_of(original))
    return tuple(name for name in operators_of(rewritten) if name not in known)
