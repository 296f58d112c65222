"""Handles of values: those of another graph are refused, and numbers are no handles."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidOperand, InvalidOption, UndefinedValue
from arenaplan.graph import ValueId

Use = Callable[[ap.Graph, Any], object]


def training(graph: ap.Graph) -> ap.train.TrainingGraph:
    """Return a graph with the gradient of its last value by parameter ``w``."""
    loss = ap.train.operators(graph).ReduceSum(graph.find("w").index, keepdims=0)
    return ap.train.gradient(graph, of=loss, wrt=[graph.find("w").index])


USES: dict[str, Use] = {
    "input of a node": lambda g, v: g.node("Relu", [v], [("r", (2,), "float32")]),
    "output of a node": lambda g, v: g.node("Relu", [g.find("x").index], [v]),
    "output": lambda g, v: g.output(v),
    "rename": lambda g, v: g.rename(v, "another"),
    "pin": lambda g, v: g.pin(v, 64),
    "written back": lambda g, v: g.write_back(v, g.find("w").index),
    "written over": lambda g, v: g.write_back(g.find("x").index, v),
    "own": lambda g, v: g.own(v),
    "operand": lambda g, v: ap.train.operators(g).Relu(v),
    "operand behind another": lambda g, v: ap.train.operators(g).Add(g.find("x").index, v),
    "input of a call": lambda g, v: ap.train.operators(g).call(block(), h=v),
    "loss": lambda g, v: ap.train.gradient(g, of=v, wrt=[g.find("w").index]),
    "parameter": lambda g, v: ap.train.gradient(g, of=g.find("x").index, wrt=[v]),
    "constant": lambda g, v: ap.train.gradient(
        g, of=g.find("x").index, wrt=[g.find("x").index], stop=[v]
    ),
    "seed": lambda g, v: ap.train.gradient(
        g, of=g.find("x").index, wrt=[g.find("x").index], seeds=[v]
    ),
    "rate of sgd": lambda g, v: ap.train.sgd(training(g), lr=v),
    "rate of adam": lambda g, v: ap.train.adam(training(g), lr=v),
    "gradient of": lambda g, v: training(g).gradient(v),
}
"""Per way to name a value: a call that does so."""


def block() -> ap.Graph:
    graph = ap.Graph("block")
    graph.output(ap.train.operators(graph).Relu(graph.input("h", (2,))))
    return graph


def model(name: str) -> ap.Graph:
    graph = ap.Graph(name)
    graph.input("x", (2,))
    graph.parameter("w", np.ones(2, np.float32))
    return graph


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_a_value_of_another_graph_is_refused_everywhere(use: Use) -> None:
    foreign = model("there").find("x").index
    with pytest.raises(UndefinedValue, match="value 0 belongs to another graph than 'here'"):
        use(model("here"), foreign)


@pytest.mark.parametrize(
    "use",
    [use for name, use in USES.items() if not {"operand", "rate", "seed"} & set(name.split())],
)
@pytest.mark.parametrize("value", [True, 0.5, "x"])
def test_what_is_no_value_is_refused_where_a_value_is_expected(use: Use, value: Any) -> None:
    with pytest.raises(UndefinedValue):
        use(model("here"), value)


def test_a_copy_takes_the_values_that_it_was_copied_with_and_no_later_ones() -> None:
    graph = model("here")
    copy = graph.copy()
    copy.output(graph.find("x").index)
    later = graph.input("later", (2,))
    copy.input("other", (2,))
    with pytest.raises(UndefinedValue, match="value 2 belongs to another graph"):
        copy.output(later)
    with pytest.raises(UndefinedValue, match="value 2 belongs to another graph"):
        graph.output(copy.find("other").index)
    again = ap.Graph.from_json(graph.to_json())
    assert isinstance(again.find("x").index, ValueId)
    with pytest.raises(UndefinedValue, match="belongs to another graph"):
        again.output(graph.find("x").index)


def test_plain_integers_are_no_operands_since_they_could_be_numbers() -> None:
    graph = model("here")
    with pytest.raises(InvalidOperand, match="operand 1 is the plain integer 1: a value of"):
        ap.train.operators(graph).Add(graph.find("x").index, 1)
    assert pickle.loads(pickle.dumps(graph.find("w").index)) == 1


@pytest.mark.parametrize("optimizer", [ap.train.sgd, ap.train.adam])
@pytest.mark.parametrize("rate", [0, np.int64(0), 0.0, np.float32(0)])
def test_a_rate_of_zero_changes_no_parameter(optimizer: Any, rate: float) -> None:
    graph = ap.Graph("still")
    graph.input("half", ())
    graph.parameter("w", np.full(2, 3, np.float32))
    with ap.train.Trainer(optimizer(training(graph), lr=rate)) as trainer:
        trainer.step({"half": np.float32(0.5)})
        np.testing.assert_array_equal(trainer.states()["w"], [3, 3])


@pytest.mark.parametrize("rate", [1, 0.5, np.int32(2)])
def test_a_whole_rate_is_the_number_that_it_says(rate: float) -> None:
    with ap.train.Trainer(ap.train.sgd(training(model("here")), lr=rate)) as trainer:
        trainer.step({"x": np.zeros(2, np.float32)})
        np.testing.assert_array_equal(trainer.states()["w"], np.full(2, 1 - rate, np.float32))


@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_a_rate_that_is_no_finite_number_is_refused(rate: float) -> None:
    with pytest.raises(InvalidOption, match="is not a finite number"):
        ap.train.sgd(training(model("here")), lr=rate)
