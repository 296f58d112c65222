"""In-place parameter updates: nodes whose results replace states."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import numpy as np

from arenaplan.base.amounts import elements_of
from arenaplan.base.errors import InvalidOption
from arenaplan.graph import Value, ValueId
from arenaplan.train.gradients.differentiate import TrainingGraph
from arenaplan.train.symbols import operators


def sgd(
    train: TrainingGraph,
    *,
    lr: float | ValueId = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> TrainingGraph:
    """
    Append gradient descent steps, and return ``train``.

    Gradients are then no longer outputs: each gradient dies at its update. With momentum, each
    parameter has a state ``NAME.velocity``.

    Parameters
    ----------
    train : TrainingGraph
        A graph with gradients of parameters that are states.
    lr : float or ValueId, default 0.01
        The learning rate, or a graph value with the learning rate. An int is a number.
    momentum : float, default 0.0
        The fraction of the last step that a step keeps.
    nesterov : bool, default False
        Whether steps look ahead by the momentum (Nesterov 1983).
    weight_decay : float, default 0.0
        The fraction of the parameter that is added to the gradient.

    Raises
    ------
    InvalidOption
        If a parameter is not a state, the graph already has updates, or a number is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> w = graph.parameter("w", np.full((2,), 3, np.float32))
    >>> loss = ap.train.operators(graph).ReduceSumSquare(w, keepdims=0)
    >>> train = ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[w]), lr=0.25)
    >>> with ap.train.Trainer(train) as trainer:
    ...     [round(trainer.step({})["ReduceSumSquare_0"], 2) for _ in range(3)]
    [18.0, 4.5, 1.12]
    """
    momentum = _number(momentum, "momentum", below=1)
    weight_decay = _number(weight_decay, "weight_decay")
    if nesterov and not momentum:
        raise InvalidOption("option nesterov: steps look ahead by the momentum, which is 0")

    def update(parameter: Value, gradient: ValueId, rate: ValueId) -> tuple[ValueId, ...]:
        graph = train.graph
        kept: tuple[ValueId, ...] = ()
        if momentum:
            kept = (graph.state(_name(train, parameter, "velocity"), *_like(parameter)),)
        made = operators(graph).SgdUpdate(
            rate, parameter.index, gradient, *kept,
            momentum=momentum, nesterov=int(nesterov), weight_decay=weight_decay,
            outputs=1 + len(kept),
        )  # fmt: skip
        train.updated[parameter.index] = made[0] if kept else made
        return kept

    return _updated(train, lr, update)


def adam(
    train: TrainingGraph,
    *,
    lr: float | ValueId = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> TrainingGraph:
    """
    Append Adam steps (Kingma and Ba 2015), and return ``train``.

    Each parameter has the states ``NAME.mean`` and ``NAME.square``; the state ``steps`` counts.

    Parameters
    ----------
    train : TrainingGraph
        A graph with gradients of parameters that are states.
    lr : float or ValueId, default 0.001
        The learning rate, or a graph value with the learning rate. An int is a number.
    betas : tuple of float
        The fractions that a step keeps of the averages of gradients and squared gradients.
    epsilon : float, default 1e-8
        Added to the root of the average square.
    weight_decay : float, default 0.0
        The fraction of the parameter that is added to the gradient.
    decoupled : bool, default False
        Whether to decay apart from the averages, as in AdamW (Loshchilov and Hutter 2019).

    Raises
    ------
    InvalidOption
        If a parameter is not a state, the graph already has updates, or a number is out of range.
    """
    _check(train)
    if len(elements_of(betas, "option betas")) != 2:
        raise InvalidOption(f"option betas: {len(betas)} numbers, not 2")
    beta1, beta2 = (_number(beta, "betas", below=1) for beta in betas)
    epsilon, weight_decay = _number(epsilon, "epsilon"), _number(weight_decay, "weight_decay")
    graph = train.graph
    steps = graph.state(operators(graph).unique("steps"), (), "int64")

    def update(parameter: Value, gradient: ValueId, rate: ValueId) -> tuple[ValueId, ...]:
        mean, square = (
            graph.state(_name(train, parameter, what), *_like(parameter))
            for what in ("mean", "square")
        )
        train.updated[parameter.index], _, _ = operators(graph).AdamUpdate(
            rate, steps, parameter.index, gradient, mean, square,
            beta1=beta1, beta2=beta2, epsilon=epsilon,
            weight_decay=weight_decay, decoupled=int(decoupled),
        )  # fmt: skip
        return mean, square

    _updated(train, lr, update)
    operators(graph).Count(steps)
    train.steps = steps
    return train


def _like(parameter: Value) -> tuple[tuple[int, ...], str]:
    return parameter.shape, parameter.dtype


def _name(train: TrainingGraph, parameter: Value, what: str) -> str:
    return operators(train.graph).unique(f"{parameter.name}.{what}")


def _check(train: TrainingGraph) -> None:
    """Refuse parameters that no update can write."""
    if not isinstance(train, TrainingGraph):
        raise InvalidOption(
            f"{type(train).__name__!r} has no gradients: pass "
            "arenaplan.train.gradient(graph, of=loss, wrt=parameters)"
        )
    graph = train.graph
    if train.is_updated:
        raise InvalidOption("the graph has updates of its parameters already")
    if len(train.gradients) != len(train.parameters):
        counts = f"{len(train.gradients)} gradients for {len(train.parameters)} parameters"
        raise InvalidOption(f"there are {counts}: each parameter has one")
    for index in train.parameters:
        value = graph.values[index]
        if value.kind != "state":
            raise InvalidOption(
                f"parameter {value.name!r} is not a state, so no update can write it: "
                "declare it by Graph.parameter"
            )
    if len(set(train.parameters)) != len(train.parameters):
        raise InvalidOption("option wrt: a parameter is listed twice and would be updated twice")


def _number(number: float, option: str, below: float = np.inf) -> float:
    """Return a number from 0 on that is less than a bound."""
    if isinstance(number, Real) and not isinstance(number, ValueId) and 0 <= number < below:
        return float(number)
    bound = "" if below == np.inf else f" below {below}"
    raise InvalidOption(f"option {option}: {number!r} is not a number from 0 on{bound}")


def _held(train: TrainingGraph, rate: float | ValueId, dtype: str) -> ValueId:
    """Return the value with a learning rate: a constant for a number."""
    if isinstance(rate, ValueId):
        return train.graph.own(rate)
    if isinstance(rate, bool) or not isinstance(rate, Real) or not np.isfinite(float(rate)):
        raise InvalidOption(f"option lr: {rate!r} is not a finite number")
    return operators(train.graph).constant(np.asarray(rate, dtype))


def _updated(
    train: TrainingGraph,
    rate: float | ValueId,
    update: Callable[[Value, ValueId, ValueId], tuple[ValueId, ...]],
) -> TrainingGraph:
    """
    Append every parameter's update; the core runs updates after all readers of the old content.
    """
    _check(train)
    graph = train.graph
    for index in train.gradients:
        graph.drop_output(index)
    for index, gradient in zip(train.parameters, train.gradients, strict=True):
        value = graph.values[index]
        held = _held(train, rate, value.dtype)
        train.statistics[index] = update(value, graph.own(gradient), held)
    return train
