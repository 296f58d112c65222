"""Targets: who runs a plan, what follows from it, and who refuses what."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.deploy.export.c import header_of
from arenaplan.planner.plan_options import PlanKeywords


def residual() -> ap.Graph:
    """Return r = x + 1, a = r + 1, c = 3 a, y = c + r, elementwise."""
    graph = ap.Graph("residual")
    x = graph.input("x", (64,), "uint8")
    values = {"x": x}
    for name, reads in (("r", ["x"]), ("a", ["r"]), ("c", ["a"]), ("y", ["c", "r"])):
        follows = tuple(range(len(reads)))
        inputs = [values[read] for read in reads]
        (values[name],) = graph.node(
            "Op", inputs, [(name, (64,), "uint8")], in_place=[(0, 0)], flows=[(0, 64, follows)]
        )
    graph.output(values["y"])
    return graph


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    w = helper.make_tensor("w", TensorProto.FLOAT, [8, 4, 3, 3], np.ones(288, np.float32))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sigmoid", ["p"], ["y"]),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "small", [x], [y], [w])), path)
    return path


def test_the_format_of_a_model_says_who_runs_it(model: Path) -> None:
    assert ap.plan(residual()).target.name == "nodes"
    graph = ap.load(model)
    plan = ap.plan(graph)
    assert plan.target.name == "numpy"
    assert plan.options["workspace"] == "auto"
    with ap.Executor(graph) as executor:
        assert executor.plan.arena_bytes == plan.arena_bytes


def test_the_command_line_plans_for_what_run_uses(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(model), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["target"] == "numpy"
    assert main(["run", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arena_bytes"] == planned["arena_bytes"]
    assert main(["plan", str(model)]) == 0
    assert " for numpy: " in capsys.readouterr().out.splitlines()[0]
    assert main(["plan", str(model), "--target", "ideal"]) == 0
    assert "no runtime honors" in capsys.readouterr().out


def test_a_plan_file_says_for_whom_it_is(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert main(["plan", str(model), "--target", "c", "-o", str(file)]) == 0
    plan = ap.Plan.load(file)
    assert (plan.target, plan.target.alignment) == (ap.Target.known("c"), 16)
    assert main(["check", str(model), str(file)]) == 0


def test_a_header_is_refused_for_a_plan_that_kernels_cannot_honor(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, header = tmp_path / "plan.json", tmp_path / "plan.h"
    assert main(["plan", str(model), "-o", str(file)]) == 0
    capsys.readouterr()
    export = ["export", str(model), "--to", "c", "-o", str(header)]
    assert main([*export, "--plan", str(file)]) == 1
    said = capsys.readouterr().err
    assert "target 'c' cannot run the plan" in said
    assert f"arenaplan plan {model} --target c -o {file}" in said
    assert not header.exists()
    assert main(["plan", str(model), "--target", "c", "-o", str(file)]) == 0
    assert main([*export, "--plan", str(file)]) == 0
    assert header.exists()
    graph = residual()
    with pytest.raises(errors.TargetMismatch, match="several nodes as one"):
        header_of(graph, ap.plan(graph, target="ideal", optimize="fusion"))
    assert "_ARENA_BYTES" in header_of(graph, ap.plan(graph, target="c"))


def test_a_target_of_ones_own() -> None:
    graph = residual()
    engine = ap.Target("engine", ["views", "in-place", "fusion"], alignment=32)
    plan = ap.plan(graph, target=engine)
    assert plan.target == engine
    assert (engine.granularity, plan.alignment) == ("group", 32)
    plan.check(graph)
    with pytest.raises(errors.TargetMismatch):
        plan.check_target(ap.Target.known("litert"))
    for arguments in (("tflm", []), ("x", ["magic"]), ("", [])):
        with pytest.raises(errors.PlannerError):
            ap.Target(*arguments)
    with pytest.raises(errors.InvalidOption, match="ideal, numpy, cupy, nodes"):
        ap.plan(graph, target="tflite-micro")
    with pytest.raises(errors.InvalidOption, match="does not honor"):
        ap.plan(graph, target="nodes", optimize="overlap")


def test_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets"]) == 0
    out = capsys.readouterr().out
    assert "tflm: TensorFlow Lite Micro" in out
    assert "default for .tflite" in out
    assert main(["targets", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["targets"]
    assert [row["name"] for row in rows] == [target.name for target in ap.targets()]


def test_several_memories_make_a_tflite_plan_one_for_c() -> None:
    graph = residual()
    graph.target = "tflm"
    assert ap.plan(graph, spaces="a=1KiB").target.name == "tflm"
    assert ap.plan(graph, spaces="a=1KiB,b=1MiB").target.name == "c"
    with pytest.raises(errors.InvalidOption, match="one arena"):
        ap.plan(graph, spaces="a=1KiB,b=1MiB", target="tflm")


def test_a_runner_may_see_another_graph() -> None:
    graph, other = residual(), ap.Graph("clock")
    other.output(other.input("x", (32,), "uint8"))
    graph.add_variant("tflm", lambda: other)
    plan = ap.plan(graph, target="tflm")
    assert (plan.model, plan.arena_bytes) == ("clock", 32)
    plan.check(graph)
    assert ap.plan(graph).model == "residual"


def test_one_table_of_options() -> None:
    names = [field.name for field in fields(ap.PlanOptions)]
    assert names == list(PlanKeywords.__annotations__)
    options, keywords = get_type_hints(ap.PlanOptions), get_type_hints(PlanKeywords)
    assert options == keywords
    assert ap.PlanOptions.__doc__ is not None
    assert all(f"    {name} : " in ap.PlanOptions.__doc__ for name in names)
    graph = residual()
    base = ap.PlanOptions(target="ideal", alignment=16)
    assert ap.plan(graph, base).alignment == 16
    assert ap.plan(graph, base, alignment=32).alignment == 32
    with pytest.raises(TypeError, match="no option 'algnment'"):
        ap.plan(graph, algnment=32)  # type: ignore[call-arg]
