"""Changes to gradients between the backward pass and the updates."""

from __future__ import annotations

from numbers import Real

import numpy as np

from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption
from arenaplan.graph import ValueId
from arenaplan.train.gradients.differentiate import TrainingGraph
from arenaplan.train.symbols import operators


@typed
def clip_by_norm(train: TrainingGraph, most: float) -> TrainingGraph:
    """
    Scale all gradients alike, so that their common Euclidean norm is at most ``most``.

    The norm is computed in float32, or in float64 for gradients of float64. Returns ``train``.

    Raises
    ------
    InvalidOption
        If ``most`` is not a positive number, or the graph has updates already.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> w = graph.parameter("w", np.array([3, 4], np.float32))
    >>> loss = ap.train.operators(graph).ReduceSumSquare(w, keepdims=0)
    >>> train = ap.train.clip_by_norm(ap.train.gradient(graph, of=loss, wrt=[w]), 5)
    >>> with ap.train.Trainer(ap.train.sgd(train, lr=1)) as trainer:
    ...     losses = trainer.step({})
    ...     trainer.states()["w"]
    array([0., 0.], dtype=float32)
    """
    most = _positive(most, "most")
    op, values = operators(train.graph), train.graph.values
    gradients = tuple(dict.fromkeys(train.gradients))
    wide = "float64" if "float64" in {values[at].dtype for at in gradients} else "float32"
    squares = [
        op.ReduceSumSquare(_as(train, at, wide), keepdims=0)
        for at in map(train.graph.own, gradients)
    ]
    norm = op.Sqrt(op.Sum(*squares) if len(squares) > 1 else squares[0])
    bound = op.constant(np.asarray(most, wide), name="most")
    # A NaN or infinite norm makes NaN gradients, not small gradients.
    factor = op.Div(bound, op.Max(norm, bound))
    return train.replace({at: op.Mul(at, _as(train, factor, values[at].dtype)) for at in gradients})


@typed
def clip_by_value(train: TrainingGraph, most: float) -> TrainingGraph:
    """
    Limit every element of every gradient to the range from ``-most`` to ``most``.

    Returns ``train``.

    Raises
    ------
    InvalidOption
        If ``most`` is not a positive number, or the graph has updates already.
    """
    most = _positive(most, "most")
    op, values = operators(train.graph), train.graph.values
    limits = {
        at: (np.asarray(-most, values[at].dtype), np.asarray(most, values[at].dtype))
        for at in train.gradients
    }
    return train.replace({at: op.Clip(at, *limits[at]) for at in limits})


@typed
def unscale(train: TrainingGraph, scale: float | ValueId) -> TrainingGraph:
    """
    Divide all gradients by the factor that the loss was multiplied by, and return ``train``.

    Parameters
    ----------
    train : TrainingGraph
        A graph with gradients, and without updates.
    scale : float or ValueId
        The factor, or a value of the graph with one element that holds it.

    Raises
    ------
    InvalidOption
        If ``scale`` is not a positive number, or the graph has updates already.
    """
    op, values = operators(train.graph), train.graph.values
    if isinstance(scale, ValueId):
        held = train.graph.own(scale)
    else:
        held = op.constant(np.asarray(_positive(scale, "scale"), np.float32), name="scale")
    return train.replace(
        {at: op.Div(at, _as(train, held, values[at].dtype)) for at in train.gradients}
    )


def _positive(number: float, option: str) -> float:
    """Return a number that is finite and above zero."""
    if isinstance(number, Real) and not isinstance(number, ValueId) and 0 < number < np.inf:
        return float(number)
    raise InvalidOption(f"option {option}: {number!r} is not a positive number")


def _as(train: TrainingGraph, value: int, dtype: str) -> int:
    """Return a value in another element type."""
    if train.graph.values[value].dtype == dtype:
        return value
    op = operators(train.graph)
    made: int = op.CastLike(value, op.constant(np.zeros((), dtype), name="type"))
    return made
