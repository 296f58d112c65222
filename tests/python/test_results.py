"""Results are named values: placements, spaces, shares, and the lookup of a value by its name."""

from __future__ import annotations

import copy
import doctest
import pickle
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan import _core
from arenaplan.base import errors
from arenaplan.deploy.export import EXPORTERS

RESULTS: list[tuple[type, dict[str, Any]]] = [
    (ap.Live, {"start": 1, "end": 4}),
    (ap.planner.Placement, {"space": 0, "offset": 64, "bytes": 10, "live": ap.Live(0, 2)}),
    (
        ap.planner.PlacedWorkspace,
        {
            "node": 3,
            "slot": 1,
            "choice": 2,
            "space": 0,
            "offset": 128,
            "bytes": 7,
            "live": ap.Live(3, 4),
        },
    ),
    (
        ap.planner.PlannedSpace,
        {
            "name": "it's \n sram",
            "arena_bytes": 2**63,
            "lower_bound": 5,
            "status": "feasible",
            "alignment": 16,
            "capacity": None,
            "cost": 3,
        },
    ),
    (ap.planner.CallerBuffer, {"value": 4, "name": "y", "bytes": 12}),
    (ap.planner.Share, {"node": 1, "rule": "view", "source": 2, "result": 3}),
    (ap.planner.MoveCost, {"cost": 9, "lower_bound": 8}),
    (ap.planner.Estimate, {"seconds": 0.5, "fastest_seconds": 0.25}),
    (ap.run.StepOperands, {"inputs": [0, None], "outputs": [1]}),
    (ap.planner.PlanPoint, {"bytes": 4, "nanoseconds": 7}),
    (ap.classic.Block, {"bytes": 40, "space": "arena"}),
    (ap.classic.Assign, {"direct": True, "state": 0, "source": 1, "result": 2}),
    (ap.classic.IncrementalPlacement, {"persistent": False, "offset": 0, "bytes": 16}),
    (ap.classic.ArenaBytes, {"temporary": 100, "persistent": 20}),
]


@pytest.mark.parametrize(("kind", "fields"), RESULTS, ids=[kind.__name__ for kind, _ in RESULTS])
def test_a_result_is_a_frozen_value_with_names(kind: type, fields: dict[str, Any]) -> None:
    value = kind(*fields.values())
    assert {name: getattr(value, name) for name in fields} == fields
    assert value == kind(**fields)
    assert hash(value) == hash(kind(**fields))
    assert repr(value) == f"{kind.__name__}({', '.join(f'{n}={v!r}' for n, v in fields.items())})"
    assert eval(repr(value), {**vars(_core)}) == value
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)
    for name, field in fields.items():
        other = {**fields, name: _another(field)}
        assert kind(**other) != value, name
        with pytest.raises(AttributeError):
            setattr(value, name, field)
    assert value != tuple(fields.values())
    with pytest.raises(TypeError):
        value[0]
    with pytest.raises(TypeError):
        iter(value)


def _another(field: object) -> object:
    if isinstance(field, bool):
        return not field
    if isinstance(field, (int, float)):
        return field / 2 if isinstance(field, float) else field - 1 if field else 1
    if isinstance(field, str):
        return f"{field}'"
    if isinstance(field, list):
        return [*field, None]
    return ap.Live(7, 9) if isinstance(field, ap.Live) else 1


def test_every_result_of_the_extension_is_public() -> None:
    private = {"Graph", "Explained", "SharedVerdict", "StorageLayout", "Verdict"}
    private |= {
        "ByteEncoding",
        "ByteResult",
        "CompiledKernel",
        "ConvWay",
        "ThreadTeam",
        "WindowSide",
    }  # They are parts of the executor.
    classes = {name for name, value in vars(_core).items() if isinstance(value, type)}
    wings = [getattr(ap, name) for name in ap.__all__ if hasattr(getattr(ap, name), "__path__")]
    public = set(ap.__all__).union(*(wing.__all__ for wing in wings))
    assert classes - private <= public
    assert sorted(ap.__all__) == sorted(set(ap.__all__))


def test_the_examples_of_the_extension_run() -> None:
    found = doctest.testmod(_core, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
    assert found.attempted > 10


def network() -> ap.Graph:
    graph = ap.Graph("network")
    x = graph.input("x", (4, 8))
    w = graph.constant("w", (8, 8), "float32", np.ones((8, 8), np.float32))
    (y,) = graph.node("MatMul", [x, w], [("y", (4, 8), "float32")])
    (z,) = graph.node("Abs", [y], [("z", (4, 8), "float32")], in_place=[(0, 0)])
    (v,) = graph.node(
        "Reshape",
        [z],
        [("v", (32,), "float32")],
        views=[(0, 0)],
        workspaces=[[(100, 1.0)], [(300, 2.0), (200, 3.0)]],
    )
    graph.output(v)
    return graph


def test_a_plan_looks_values_up_by_name() -> None:
    graph = network()
    plan = ap.plan(graph, target="ideal", optimize="views,in-place")
    names = [value.name for value in graph.values if value.name != "w"]
    assert list(plan) == names
    assert len(plan) == len(names)
    for value in graph.values:
        if value.name == "w":
            assert value.name not in plan
            assert plan.placements[value.index] is None
        else:
            assert value.name in plan
            assert plan[value.name] == plan.placements[value.index]
            assert plan[value.name].bytes == 128
    assert 0 not in plan
    assert None not in plan
    assert plan["x"].live == ap.Live(0, 1)
    assert not plan["x"].same_bytes(plan["y"])
    for name in ("z", "v"):
        assert plan["y"].same_bytes(plan[name])
        assert plan["y"] != plan[name], "their live ranges differ"


def test_a_name_without_a_place_is_an_error_that_names_it() -> None:
    plan = ap.plan(network(), target="ideal")
    for name in ("w", "missing", ""):
        with pytest.raises(errors.UndefinedValue) as caught:
            plan[name]
        assert str(caught.value) == f"the plan has no place for a value {name!r}"
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, ap.PlannerError)
    with pytest.raises(TypeError):
        plan[0]  # type: ignore[index]


def test_lookups_find_each_of_many_names() -> None:
    graph = ap.Graph()
    last = graph.input("start", (1,), "uint8")
    names = [f"value {(index * 7919) % 1009}" for index in range(1009)]
    for size, name in enumerate(names, start=2):
        (last,) = graph.node("Op", [last], [(name, (size,), "uint8")])
    graph.output(last)
    plan = ap.plan(graph, target="ideal", optimize="none", effort="fast")
    assert [plan[name].bytes for name in names] == list(range(2, 1011))
    assert list(plan) == ["start", *names]


def test_shares_name_the_values_and_the_rule() -> None:
    graph = network()
    plan = ap.plan(graph, target="ideal", optimize="views,in-place")
    index = {value.name: value.index for value in graph.values}
    assert plan.shares == [
        ap.planner.Share(1, "in-place", index["y"], index["z"]),
        ap.planner.Share(2, "view", index["z"], index["v"]),
    ]
    assert plan.step_operands(0) == ap.run.StepOperands([index["x"], index["w"]], [index["y"]])
    with pytest.raises(errors.UndefinedValue, match="no node 3"):
        plan.step_operands(3)


def test_workspaces_say_when_they_are_live() -> None:
    plan = ap.plan(network(), target="ideal", workspace="auto")
    works = plan.workspaces
    assert [(work.node, work.slot) for work in works] == [(2, 0), (2, 1)]
    assert [work.bytes for work in works] == [100, (300, 200)[works[1].choice]]
    assert {work.live for work in works} == {ap.Live(2, 3)}
    ends = [plan[name] for name in plan if plan[name].live.end > 2] + works
    places = sorted((work.offset, work.offset + work.bytes) for work in ends)
    assert places[-1][1] <= plan.arena_bytes


def test_spaces_have_names() -> None:
    plan = ap.plan(network(), target="ideal", spaces="fast=300@1,slow=1M@5")
    fast, slow = plan.spaces
    assert (fast.name, fast.capacity, fast.cost) == ("fast", 300, 1)
    assert (slow.name, slow.capacity, slow.cost) == ("slow", 1 << 20, 5)
    assert sum(space.arena_bytes for space in plan.spaces) == plan.arena_bytes
    for space in plan.spaces:
        assert space.arena_bytes >= space.lower_bound
        assert space.status in ("optimal", "feasible")
    assert plan.move_cost is not None
    assert plan.move_cost.cost >= plan.move_cost.lower_bound > 0


def test_buffers_of_the_caller_have_names() -> None:
    graph = network()
    plan = ap.plan(graph, target="ideal", optimize="none", outputs="caller")
    (buffer,) = plan.caller_buffers
    assert (graph.values[buffer.value].name, buffer.name, buffer.bytes) == ("v", "v", 128)
    assert plan[buffer.name].space == len(plan.spaces)


@pytest.mark.parametrize("name", EXPORTERS)
def test_an_exporter_has_a_line_of_help_and_a_reader_that_is_known(name: str) -> None:
    exporter = EXPORTERS[name]
    assert exporter.name == name
    assert exporter.help
    assert "\n" not in exporter.help
    if exporter.reader is not None:
        assert ap.Target.known(exporter.reader).name == exporter.reader
    if exporter.source == "graph" and name != "c-code":  # Its operators are TFLite's.
        graph = network()
        made = exporter.write(graph, ap.plan(graph, target="c", optimize="views"))
        assert isinstance(made, bytes)
        assert made.endswith(b"\n")


def test_an_exporter_refuses_a_plan_that_its_reader_cannot_honor() -> None:
    graph = network()
    plan = ap.plan(graph, target="ideal", outputs="caller")
    with pytest.raises(errors.TargetMismatch):
        EXPORTERS["c"].write(graph, plan)
