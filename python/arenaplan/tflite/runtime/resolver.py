"""The operators that a firmware's resolver must register."""

from __future__ import annotations

from arenaplan.tflite.reader.tflite_model import TfliteModel


def operators_of(model: TfliteModel) -> tuple[str, ...]:
    """Return the operators in all subgraphs, each once, in file order."""
    names = (operator.name for graph in model.subgraphs for operator in graph.operators)
    return tuple(dict.fromkeys(names))


def added_operators(original: TfliteModel, rewritten: TfliteModel) -> tuple[str, ...]:
    """
    Return the operators in ``rewritten`` that a resolver for ``original`` lacks.

    Examples
    --------
    A model rewritten into strips needs ``STRIDED_SLICE`` and ``CONCATENATION``, which firmware must
    register beside the original's operators.
    """
    known = set(operators_of(original))
    return tuple(name for name in operators_of(rewritten) if name not in known)
