"""Every public callable refuses what it does not take, by a typed error."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import arenaplan as ap

WRONG: dict[str, Any] = {
    "whole number": 5,
    "negative number": -7,
    "large number": 1 << 70,
    "fraction": 1.5,
    "nothing": None,
    "text": "zz",
    "bytes": b"zz",
    "list": ["zz"],
    "mapping": {"a": 1},
    "object": object(),
}


def one_node() -> ap.Graph:
    graph = ap.Graph("one")
    (y,) = graph.node("Neg", [graph.input("x", (4,))], [("y", (4,), "float32")])
    graph.output(y)
    return graph


@cache
def objects() -> dict[str, Any]:
    """Return objects whose methods users call."""
    graph, buffers = one_node(), ap.Problem([ap.Buffer(10, (0, 2))])
    plan = ap.plan(graph)
    training = ap.Graph("training")
    w = training.parameter("w", np.ones(3, np.float32))
    loss = ap.train.operators(training).ReduceSumSquare(w, keepdims=0)
    train = ap.train.gradient(training, of=loss, wrt=[w])
    return {
        "Plan": plan,
        "Hazards": plan.hazards(graph),
        "SharedPlan": ap.plan_together([graph, graph], "concurrent"),
        "Executor": ap.Executor(graph, plan),
        "Problem": buffers,
        "Packing": buffers.pack(),
        "Target": plan.target,
        "Server": ap.Server({"m": graph}, cap="1MiB"),
        "Trainer": ap.train.Trainer(ap.train.sgd(train, lr=0.1)),
        "IncrementalArena": ap.classic.IncrementalArena(),
        "SimpleArena": ap.classic.SimpleArena(),
        "Queue": ap.run.Queue(),
    }


GRAPH = object()
"""Stands for a graph that a test may change."""

GIVEN: dict[str, Callable[[], Any]] = {
    # What each parameter of this name takes, while another one is wrong.
    "graph": one_node,
    "source": one_node,
    "graphs": lambda: [one_node(), one_node()],
    "plan": lambda: objects()["Plan"],
    "before": lambda: objects()["Plan"],
    "after": lambda: objects()["Plan"],
    "report": lambda: ap.report.report_of(objects()["Plan"]),
    "name": lambda: "n",
    "shape": lambda: (4,),
    "sizes": lambda: [1],
    "live": lambda: [(0, 1)],
    "rule": lambda: "concurrent",
    "together": lambda: "concurrent",
    "path": lambda: "made.json",
}

RECORDS = {
    # Made by arenaplan, and read by users.
    *("ArenaBytes", "Assign", "Block", "CallerBuffer", "Covers", "Estimate", "Hazard", "Level"),
    *("IncrementalPlacement", "LineBuffer", "Live", "MoveCost", "PlacedWorkspace", "Placement"),
    *("PlanPoint", "PlannedSpace", "RowsInPlace", "Share", "StepOperands", "StorageEntry"),
    *("StorageNode", "StorageOperand", "Strips", "Timetable", "ValueId", "Session"),
}


def public() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield public callables: names, and functions that return them anew."""
    for name in ap.__all__:
        found = getattr(ap, name)
        inner = getattr(found, "__all__", ()) if inspect.ismodule(found) else ()
        for full, each in [(name, found), *((f"{name}.{n}", getattr(found, n)) for n in inner)]:
            is_error = inspect.isclass(each) and issubclass(each, BaseException)
            if callable(each) and not is_error and full.split(".")[-1] not in RECORDS:
                yield full, partial(_same, each)
    for name, found in {**objects(), "Graph": GRAPH}.items():
        methods = dir(one_node() if found is GRAPH else found)
        for method in methods:
            if method in ("close", "count", "index") or (
                method.startswith("_") and method != "__getitem__"
            ):
                continue
            make = partial(_method, found, method)
            if callable(make()):
                yield f"{name}().{method}", make


def _same(found: Any) -> Any:
    return found


def _method(found: Any, method: str) -> Any:
    return getattr(one_node() if found is GRAPH else found, method)


def calls(function: Any) -> Iterator[tuple[str, str, list[Any], dict[str, Any]]]:
    """Yield calls with one wrong argument: parameter and kind of it, and all arguments."""
    every = inspect.signature(function).parameters.values()
    parameters = [p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for wrong in parameters:
        for kind, value in WRONG.items():
            positions: list[Any] = []
            names: dict[str, Any] = {}
            for each in parameters:
                if each is not wrong and each.default is not each.empty:
                    continue
                given = value if each is wrong else GIVEN.get(each.name, lambda: value)()  # noqa: B023
                if each.kind != each.KEYWORD_ONLY and each.default is each.empty:
                    positions.append(given)
                else:
                    names[each.name] = given
            yield wrong.name, kind, positions, names


def refusals(make: Callable[[], Any]) -> int:
    """Call with every wrong argument; return how many calls were refused by a typed error."""
    count = 0
    for name, kind, positions, names in calls(make()):
        try:
            done = make()(*positions, **names)
            if inspect.iscoroutine(done):
                asyncio.run(done)
        except (ap.PlannerError, OSError, ImportError):
            count += 1
        except Exception as error:
            raise AssertionError(f"{name} = {kind}: {type(error).__name__}: {error}") from error
    return count


def opened_by_path(file: Any, *arguments: Any, **names: Any) -> Any:
    """Open a file, but no number: it would be a descriptor of somebody else."""
    assert not isinstance(file, int)
    return OPEN(file, *arguments, **names)


OPEN = open


@pytest.mark.parametrize("part", ["ap", "Graph()", "Plan()", "other"])
def test_wrong_arguments_end_in_typed_errors(
    part: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.open", opened_by_path)
    count, failures = 0, []
    for name, make in public():
        owner = name.partition(".")[0] if "()" in name else "ap"
        if (owner if owner in ("ap", "Graph()", "Plan()") else "other") != part:
            continue
        try:
            count += refusals(make)
        except AssertionError as error:
            failures.append(f"{name}: {error}")
    assert not failures, "\n".join(failures)
    assert count > 100


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ap: ap.Plan.from_json(5), "5 is of type 'int'.*str . bytes is needed"),
        (lambda ap: ap.plan(one_node())[5], "5 is of type 'int'.*str"),
        (lambda ap: ap.plan(one_node()).check(5), "5 is of type 'int'.*a Graph is needed"),
        (lambda ap: ap.plan(one_node()).live_at(-1), "-1 is negative"),
        (lambda ap: ap.plan(one_node()).live_at(1 << 40), "is too large"),
        (lambda ap: ap.Target("mine", 5), "5 is of type 'int'.*Sequence.str."),
        (lambda ap: ap.pack(5, [(0, 1)]), "argument sizes: 5 is of type 'int'.*is needed"),
        (lambda ap: ap.pack([1], ["zz"]), "a step is 'z', not a whole number"),
        (lambda ap: ap.Graph.load(5), "argument path: 5 is of type 'int'"),
        (lambda ap: ap.run.Queue().push(5), "5 is of type 'int'; a function is needed"),
        (
            lambda ap: ap.classic.share_storage("m.onnx"),
            "graph: 'm.onnx' is of type 'str'; Graph",
        ),
        (lambda ap: ap.report.map_svg({"a": 1}), "'a' is no arenaplan-report"),
        (lambda ap: ap.Executor(one_node(), device=5), "device: 5 is not cpu"),
    ],
)
def test_the_error_names_what_was_given_and_what_is_allowed(
    call: Callable[[Any], object], words: str
) -> None:
    with pytest.raises(ap.errors.InvalidOption, match=words):
        call(ap)


def test_a_plan_is_read_from_text_and_from_bytes() -> None:
    text = ap.plan(one_node()).to_json()
    assert ap.Plan.from_json(text).to_json() == ap.Plan.from_json(text.encode()).to_json() == text


def test_a_failure_of_a_users_own_function_stays_as_it_is() -> None:
    def told(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ap.pack([1, 2], [(0, 1), (0, 2)], on_progress=told)
