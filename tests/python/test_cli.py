"""The command line: results on stdout, prose on stderr, and its exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.cli import main


def model(path: Path, *, batch: int | str = 2, op: str = "Relu") -> Path:
    """Write x -> MatMul -> op -> Add, a model small enough to compute by hand."""
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="multiply"),
        helper.make_node(op, ["product"], ["positive"], name="activate"),
        helper.make_node("Add", ["positive", "product"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return model(tmp_path / "small.onnx")


def test_plan_prints_what_is_promised(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(small), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    document = json.loads(printed.out)
    assert document["model"] == "small"
    assert (document["values"], document["nodes"]) == (4, 3)
    assert (document["naive_bytes"], document["arena_bytes"]) == (256, 128)
    assert (document["lower_bound"], document["gap"], document["status"]) == (128, 0, "optimal")
    assert document["peak_step"] == 0
    assert [value["name"] for value in document["peak_values"]] == ["product", "x"]
    assert document["alignment"] == 64
    assert len(document["digest"]) == 64


def test_plan_for_people_names_the_peak(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(small)]) == 0
    out = capsys.readouterr().out
    assert "128 bytes, proven minimal" in out
    assert "MatMul multiply" in out


def test_a_plan_can_be_written_checked_and_obeyed(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    assert main(["plan", str(small), "--workspace", "auto", "-o", str(plan)]) == 0
    assert main(["check", str(small), str(plan)]) == 0
    assert main(["run", str(small), "--plan", str(plan), "--verify", "--json"]) == 0
    out = capsys.readouterr().out
    assert "valid for numpy: 128 bytes, optimal (verified)" in out


@pytest.mark.parametrize("option", ["--optimize=all,-in-place,-order", "--inputs=keep"])
def test_options_reach_the_planner(option: str, small: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert main(["plan", str(small), option, "--align", "16", "-o", str(plan)]) == 0
    options = ap.Plan.load(plan).options
    assert options["alignment"] == 16
    is_less = option.startswith("--optimize")
    for name in ("in-place", "order"):
        assert (name in options["optimize"]) is not is_less
    assert "fusion" in options["optimize"]
    assert options["preserve_inputs"] is not is_less


def test_a_symbolic_dimension_is_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model(tmp_path / "symbolic.onnx", batch="batch")
    assert main(["plan", str(path)]) == 2
    assert "UnboundDim" in capsys.readouterr().err
    assert main(["plan", str(path), "--bind", "batch=8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arena_bytes"] == 256


def test_run_computes_the_model_on_given_inputs(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.array([[1, -2, 3], [0, 0, 1]], np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ["run", str(small), "--input", f"x={tmp_path / 'x.npy'}"]
    assert main([*arguments, "--save-outputs", str(tmp_path / "out"), "--json"]) == 0
    product = x @ (np.arange(12, dtype=np.float32).reshape(3, 4) / 10)
    found = np.load(tmp_path / "out" / "y.npy")
    np.testing.assert_allclose(found, np.maximum(product, 0) + product, rtol=1e-6)
    document = json.loads(capsys.readouterr().out)
    assert document["outputs"][0]["shape"] == [2, 4]
    assert document["scratch_bytes"] == 0


def test_run_is_the_same_for_the_same_seed(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digests = []
    for seed in ("0", "0", "1"):
        assert main(["run", str(small), "--seed", seed, "--json"]) == 0
        digests.append(json.loads(capsys.readouterr().out)["outputs"][0]["sha256"])
    assert digests[0] == digests[1] != digests[2]


def test_threads_of_a_run_change_no_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 512])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    plain, made = ap.Executor, []

    def executor(*arguments: Any, **options: Any) -> ap.Executor:
        made.append(options["threads"])
        return plain(*arguments, **options)

    monkeypatch.setattr(ap, "Executor", executor)
    digests = []
    for threads in ("1", "2"):
        assert main(["run", str(path), "--threads", threads, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        digests.append(document["outputs"][0]["sha256"])
        assert document["threads"] == made[-1] == int(threads)
    assert digests[0] == digests[1]
    assert main(["run", str(path), "--threads", "2"]) == 0
    assert "ran on 2 threads" in capsys.readouterr().out
    assert main(["run", str(path), "--threads", "2", "--device", "cuda"]) == 2
    assert "option --threads" in capsys.readouterr().err


def test_inspect_shows_values_steps_and_the_peak(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(small), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {step["live_bytes"] for step in document["steps"]} == {128}
    assert {value["name"] for value in document["values"]} == {"x", "w", "product", "positive", "y"}
    assert document["why"][0]["rule"] == "in-place"
    assert main(["inspect", str(small)]) == 0
    assert "<- peak" in capsys.readouterr().out


def test_storage_sharing_is_a_strategy(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["classic", str(small), "--strategy", "storage-sharing", "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["strategy"] == "storage-sharing"
    assert sum(block["bytes"] for block in document["blocks"]) >= 64


@pytest.mark.parametrize("strategy", ["nnvm", "incremental", "litert", "tflite-2019"])
def test_row_50_every_classic_strategy_plans_a_model_and_needs_no_less(
    strategy: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(small), "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)["arena_bytes"]
    assert main(["classic", str(small), "--strategy", strategy, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["strategy"] == strategy
    if strategy == "nnvm":
        assert document["allocated_bytes"] == sum(block["bytes"] for block in document["blocks"])
    else:
        places = document["offsets"].values()
        assert document["arena_bytes"] >= max(it["offset"] + it["bytes"] for it in places)
        assert document["arena_bytes"] >= ours - 63, "sizes are not rounded up there"
    assert main(["classic", str(small), "--strategy", strategy]) == 0
    text = capsys.readouterr().out
    assert strategy in text
    # D6: the memory that kernels of the original request at run time is not in the file.
    is_original = strategy in ("litert", "tflite-2019")
    assert text.count("scratch tensors") == int(is_original)
    assert len(document.get("notes", [])) == int(is_original)
    refused = ["--align", "1"] if strategy == "nnvm" else ["--num-temp", "0"]
    assert main(["classic", str(small), "--strategy", strategy, *refused]) == 2
    assert "InvalidOption" in capsys.readouterr().err


def test_a_plan_can_be_safe_in_every_order(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    assert main(["plan", str(small), "--parallel-safe", "-o", str(plan)]) == 0
    assert json.loads(plan.read_text())["options"]["parallel_safe"] is True
    assert main(["check", str(small), str(plan)]) == 0
    assert "valid" in capsys.readouterr().out


def test_a_capacity_that_is_too_small_fails_with_the_best_plan(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(small), "--budget", "127", "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["status"] == "infeasible"
    assert "CapacityExceeded" in printed.err


def test_a_stale_plan_fails_the_check(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    assert main(["plan", str(small), "-o", str(plan)]) == 0
    model(small, batch=3)
    assert main(["check", str(small), str(plan)]) == 1
    assert "PlanMismatch" in capsys.readouterr().err
    plan.write_text(plan.read_text()[:-20])
    assert main(["check", str(small), str(plan)]) == 1
    assert "PlanCorrupt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("absent.onnx", None, 2),
        ("noise.onnx", b"\x00\xff" * 100, 2),
        ("empty.onnx", b"", 2),
        ("model.xyz", b"abc", 2),
    ],
)
def test_what_cannot_be_read_is_bad_input(
    name: str, content: bytes | None, code: int, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main(["plan", str(path), "--json"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_what_is_not_supported_has_a_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "odd.onnx", op="Det")
    graph = onnx.load(path)
    graph.graph.node[1].op_type = "Frobnicate"
    graph.graph.node[1].domain = "com.example"
    graph.opset_import.append(helper.make_opsetid("com.example", 1))
    graph.graph.value_info.append(
        helper.make_tensor_value_info("positive", TensorProto.FLOAT, [2, 4])
    )
    onnx.save(graph, path)
    assert main(["plan", str(path), "--target", "nodes"]) == 0
    for command in ("plan", "run"):
        assert main([command, str(path)]) == 3
        assert "Frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["plan"],
        ["fly", "x.onnx"],
        ["plan", "x.onnx", "--bind", "batch"],
        ["run", "x", "--input", "y"],
    ],
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_an_unknown_input_is_named(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(small), "--input", "z=missing.npy"]) == 2
    assert "'z'" in capsys.readouterr().err


def test_arrays_that_would_run_code_are_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.array([print], object), allow_pickle=True)
    assert main(["run", str(small), "--input", f"x={tmp_path / 'x.npy'}"]) == 2
    assert "InputMismatch" in capsys.readouterr().err


def test_the_module_runs_and_ctrl_c_has_its_code(small: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "arenaplan", "plan", str(small), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(result.stdout)["arena_bytes"] == 128
    code = (
        "import sys, arenaplan.cli as cli, arenaplan.cli.plan as plan\n"
        "def stop(_): raise KeyboardInterrupt\n"
        "plan.each_signature = stop\n"
        f"sys.exit(cli.main(['plan', {str(small)!r}]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr.strip()) == (130, "interrupted")


def test_a_closed_pipe_is_no_error(small: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        result = subprocess.run(
            [sys.executable, "-m", "arenaplan", "inspect", str(small)],
            stdout=closed, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert "Traceback" not in result.stderr
