"""Inputs and outputs in memory that the caller brings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import arenaplan as ap
import light_models
from arenaplan.base.errors import InvalidOption, TargetMismatch
from arenaplan.cli import main
from networks import F32, noise, small_network
from raising import raises


def with_views() -> ap.Graph:
    """Return a graph with a view of its input, a chain in place, and two outputs."""
    graph = ap.Graph("views")
    x = graph.input("x", (4, 6))
    shape = graph.constant("shape", (1,), "int64", np.array([24]))
    (flat,) = graph.node("Reshape", [x, shape], [("flat", (24,), F32)], views=[(0, 0)])
    (a,) = graph.node("Neg", [flat], [("a", (24,), F32)], name="a")
    (b,) = graph.node("Abs", [a], [("b", (24,), F32)], name="b", in_place=[(0, 0)])
    (c,) = graph.node("Neg", [b], [("c", (24,), F32)], name="c", in_place=[(0, 0)])
    (d,) = graph.node("Sqrt", [b], [("d", (24,), F32)], name="d")
    graph.output(c)
    graph.output(d)
    return graph


@pytest.mark.parametrize("inputs", ["inside", "caller", "reuse"])
@pytest.mark.parametrize("outputs", ["inside", "caller"])
@pytest.mark.parametrize("workspace", ["none", "auto"])
def test_whoever_brings_the_memory_results_are_the_same(
    inputs: Any, outputs: Any, workspace: Any
) -> None:
    for graph in (small_network(), with_views()):
        given = {graph.values[i].name: noise(*graph.values[i].shape) for i in graph.inputs}
        expected = ap.Executor(graph).run(given)
        plan = ap.plan(graph, inputs=inputs, outputs=outputs, workspace=workspace, target="ideal")
        with ap.Executor(graph, plan) as executor:
            for verify in (True, False, True):
                found = executor.run(given, verify=verify)
                for name, array in expected.items():
                    np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_a_model_runs_in_memory_of_the_caller() -> None:
    graph = ap.load(light_models.path("squeezenet"))
    given = {graph.values[i].name: noise(*graph.values[i].shape) for i in graph.inputs}
    expected = ap.Executor(graph).run(given)
    plan = ap.plan(graph, inputs="caller", outputs="caller", workspace="auto", target="numpy")
    # Strips are searched for one arena at a time: with them, this is no law.
    options = ap.PlanOptions(
        target="numpy", workspace="auto", optimize="views,in-place,elision,fusion,order"
    )
    caller = ap.plan(graph, options, inputs="caller", outputs="caller")
    assert caller.arena_bytes <= ap.plan(graph, options).arena_bytes
    results = {graph.values[i].name: np.empty(graph.values[i].shape, F32) for i in graph.outputs}
    with ap.Executor(graph, plan, buffers={**given, **results}) as executor:
        found = executor.run({}, verify=True)
        for output, array in expected.items():
            assert found[output] is results[output]
            np.testing.assert_allclose(array, results[output], rtol=1e-5, atol=1e-6)


def test_outputs_of_the_caller_are_written_where_they_are_wanted() -> None:
    graph = with_views()
    plan = ap.plan(graph, inputs="caller", outputs="caller", target="ideal")
    x, c, d = noise(4, 6), np.empty(24, np.float32), np.empty(24, np.float32)
    x.flags.writeable = False  # Nobody writes inputs of the caller.
    with ap.Executor(graph, plan, buffers={"x": x, "c": c, "d": d}) as executor:
        assert executor.run({})["c"] is c
        np.testing.assert_array_equal(c, -np.abs(x).reshape(-1))
        assert executor.run({"x": x}, verify=True)["d"] is d
        with raises("InputMismatch", match="write there"):
            executor.run({"x": x.copy()})


def test_an_input_that_has_a_buffer_is_read_again_in_every_run() -> None:
    graph = with_views()
    x = noise(4, 6)
    plan = ap.plan(graph, inputs="caller", target="ideal")
    with ap.Executor(graph, plan, buffers={"x": x}) as executor:
        executor.run({})
        x[...] = 9
        np.testing.assert_array_equal(executor.run({})["d"], np.full(24, 3, np.float32))
        assert np.all(x == 9)


def test_buffers_that_cannot_hold_their_value_are_refused() -> None:
    graph = with_views()
    plan = ap.plan(graph, inputs="caller", outputs="caller", target="ideal")
    good = np.empty(24, np.float32)
    frozen = np.empty(24, np.float32)
    frozen.flags.writeable = False
    bad: list[dict[str, Any]] = [
        {"y": good},
        {"c": [0.0] * 24},
        {"c": np.empty(23, np.float32)},
        {"c": np.empty(24, np.float64)},
        {"c": np.empty(48, np.float32)[::2]},
        {"c": np.frombuffer(bytearray(97), np.uint8)[1:].view(np.float32)},
        {"c": frozen},
        {"c": good, "d": good},
        {"x": good.reshape(4, 6), "c": good},
    ]
    for buffers in bad:
        with raises("InvalidBuffer"):
            ap.Executor(graph, plan, buffers=buffers)
    with raises("InvalidBuffer", match="leaves no value"):
        ap.Executor(graph, ap.plan(graph, target="ideal"), buffers={"c": good})


def test_plan_files_say_which_buffers_are_the_callers(tmp_path: Path) -> None:
    graph = with_views()
    plan = ap.plan(graph, inputs="caller", outputs="caller", target="ideal")
    names = {buffer.name: buffer.bytes for buffer in plan.caller_buffers}
    assert names == {"x": 96, "c": 96, "d": 96}
    assert [plan.space_name(i) for i in range(4)] == ["arena", "caller:x", "caller:c", "caller:d"]
    document = json.loads(plan.to_json())
    jsonschema.validate(document, json.loads(ap.planner.plan_schema()))
    plan.save(tmp_path / "plan.json")
    again = ap.Plan.load(tmp_path / "plan.json")
    again.check(graph)
    assert again.options["inputs"] == again.options["outputs"] == "caller"


def test_a_family_of_plans_leaves_outputs_to_the_caller() -> None:
    def model(sizes: Any) -> ap.Graph:
        graph = ap.Graph("family")
        x = graph.input("x", (sizes["n"],))
        (y,) = graph.node("Neg", [x], [("y", (sizes["n"],), F32)])
        (z,) = graph.node("Abs", [y], [("z", (sizes["n"],), F32)], in_place=[(0, 0)])
        graph.output(z)
        return graph

    family = ap.plan_family(
        model, bind={"n": range(1, 40)}, outputs="caller", alignment=1, target="ideal"
    )
    assert family.arena_bytes == 4 * 39  # The largest input; what is behind it is outside.
    assert family.at(n=7).caller_buffers == [ap.planner.CallerBuffer(2, "z", 28)]
    with ap.run.DynamicExecutor(family) as executor:
        np.testing.assert_array_equal(executor.run({"x": np.full(5, -2, np.float32)})["z"], 2)


def test_what_knows_no_memory_of_the_caller_refuses_it(tmp_path: Path) -> None:
    graph = with_views()
    with pytest.raises(InvalidOption):
        ap.plan(graph, outputs="caller", spaces="sram=1KiB,psram=1MiB", target="ideal")
    with pytest.raises(InvalidOption):
        ap.plan_together([graph], "concurrent", outputs="caller", target="ideal")
    from arenaplan.deploy.export.c import header_of

    with pytest.raises(TargetMismatch):
        header_of(graph, ap.plan(graph, outputs="caller", target="ideal"))
    model = str(light_models.path("squeezenet"))
    for arguments in (
        ["map", model, "--outputs", "caller", "--explain", "--spaces", "a=1M", "-o", "-"],
        ["plan", model, model, "--share", "concurrent", "--inputs", "caller"],
        ["plan", model, "--spaces", "sram=1MiB,psram=64MiB", "--outputs", "caller"],
        ["export", model, "--to", "c", "--outputs", "caller", "-o", str(tmp_path / "h")],
    ):
        assert main(arguments) == 2, arguments


def test_commands_tell_what_is_the_callers(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(light_models.path("squeezenet"))
    caller = ["--inputs", "caller", "--outputs", "caller"]
    assert main(["plan", model, *caller]) == 0
    assert "caller       brings 2 buffers" in capsys.readouterr().out
    assert main(["plan", model, *caller, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["caller_buffers"]] == ["data_0", "softmaxout_1"]
    assert document["options"]["outputs"] == "caller"
    assert main(["inspect", model, *caller]) == 0
    assert "caller:data" in capsys.readouterr().out
    assert main(["explain", model, *caller]) == 0
    assert "squeezenet" in capsys.readouterr().out
