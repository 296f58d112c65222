"""Limits of models that are not trusted: bytes of the file, nodes of the graph."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

import arenaplan as ap
import flat
from arenaplan.base.errors import InvalidOption, UnboundDim
from arenaplan.base.limits import Limits, applied
from arenaplan.cli import main
from arenaplan.formats import open_model
from arenaplan.report.batch import Job
from models import function, graph, model, node
from raising import raises


def chain(nodes: int) -> bytes:
    """Return a model of some nodes in a row."""
    names = ["x", *(f"v{index}" for index in range(nodes - 1)), "y"]
    return model([node("Relu", a, b) for a, b in pairwise(names)], {"x": [4]}).SerializeToString()


def test_as_many_nodes_as_the_limit_are_read_and_one_more_is_refused() -> None:
    assert len(ap.load(chain(5), max_nodes=5).nodes) == 5
    with raises("ModelTooLarge", match=r"more than 4 nodes.*max_nodes"):
        ap.load(chain(5), max_nodes=4)
    # A limit is that of one model.
    assert len(ap.load(chain(5)).nodes) == 5


def test_as_many_bytes_as_the_limit_are_read_and_one_more_is_refused(tmp_path: Path) -> None:
    content, path = chain(5), tmp_path / "net.onnx"
    path.write_bytes(content)
    for source in (content, path, str(path)):
        ap.load(source, max_bytes=len(content))
        with raises("ModelTooLarge", match=rf"{len(content)} bytes.*max_bytes"):
            ap.load(source, max_bytes=len(content) - 1)
    with pytest.raises(FileNotFoundError):
        ap.load(tmp_path / "none.onnx", max_bytes=1)


def test_nodes_of_functions_branches_and_other_formats_count() -> None:
    body = function("F", "x", "y", [node("Relu", "x", "t"), node("Neg", "t", "y")])
    calls = [node("F", "x", "a", domain="local"), node("F", "a", "y", domain="local")]
    proto = model(calls, {"x": [3]}, functions=[body], domains={"local": 1})
    called = proto.SerializeToString()
    ap.load(called, max_nodes=4)
    branch = graph([node("Relu", "x", "t"), node("Neg", "t", "y")], outputs="y")
    decided = node("If", "c", "y", then_branch=branch, else_branch=branch)
    chosen = model([decided], {"x": [3], "c": ([], 9)}).SerializeToString()
    ap.load(chosen, max_nodes=5)
    tflite = flat.write(flat.chain("NEG", "NEG", "NEG"))
    nodes = len(ap.load(tflite).nodes)
    document = ap.load(chain(4)).to_json().encode()
    for source, most in ((called, 4), (chosen, 5), (tflite, nodes), (document, 4)):
        ap.load(source, max_nodes=most)
        with raises("ModelTooLarge"):
            ap.load(source, max_nodes=most - 1)


def test_every_graph_of_a_model_is_counted_by_itself() -> None:
    proto = model([node("Relu", "x", "y")], {"x": ["batch"]})
    graph_with = open_model(proto.SerializeToString(), Limits(max_nodes=1))
    assert [graph_with({"batch": size}).values[0].shape for size in (1, 2)] == [(1,), (2,)]
    # An error leaves no limit behind.
    with pytest.raises(UnboundDim):
        graph_with(None)
    assert len(ap.load(chain(5)).nodes) == 5
    with applied(Limits(max_nodes=2)), raises("ModelTooLarge"):
        ap.load(chain(5))


@pytest.mark.parametrize("limit", [-1, 1.5, True, "8"])
def test_limits_that_are_no_numbers(limit: object) -> None:
    with pytest.raises(InvalidOption, match="max_nodes"):
        ap.load(chain(1), max_nodes=limit)  # type: ignore[arg-type]


def test_the_command_line_refuses_with_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(5))
    assert main(["plan", str(path), "--max-nodes", "5", "--max-bytes", "64KiB"]) == 0
    for option in (["--max-nodes", "4"], ["--max-bytes", "100"]):
        capsys.readouterr()
        code = main(["inspect", str(path), *option])
        assert code == main(["inspect", str(tmp_path / "none.onnx")])
        assert "max_" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(chain(5))))
    assert main(["plan", "-", "--max-bytes", "100"]) != 0
    assert "100 bytes" in capsys.readouterr().err


def test_a_gate_judges_the_models_within_the_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long = tmp_path / "short.onnx", tmp_path / "long.onnx"
    short.write_bytes(chain(2))
    long.write_bytes(chain(5))
    models = ["gate", str(short), str(long), "--budget", "1KiB"]
    assert main([*models, "--max-nodes", "5", "--max-bytes", "64KiB"]) == 0
    for option in (["--max-nodes", "4"], ["--max-bytes", str(len(chain(5)) - 1)]):
        capsys.readouterr()
        assert main([*models, *option]) not in (0, 1)
        shown = capsys.readouterr()
        assert "ok: test" in shown.out
        assert "FAIL: long" in shown.out
        assert "ModelTooLarge" in shown.out
        assert "max_" in shown.err


def test_both_models_of_a_proof_are_within_the_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long = flat.write(flat.chain("NEG", "NEG")), flat.write(flat.chain("NEG", "NEG", "NEG"))
    original, rewritten = tmp_path / "original.tflite", tmp_path / "rewritten.tflite"
    proof = tmp_path / "proof.json"
    for first, second in ((short, long), (long, short)):
        original.write_bytes(first)
        rewritten.write_bytes(second)
        command = ["prove", str(original), str(rewritten)]
        for option in (["--max-nodes", "2"], ["--max-bytes", str(len(long) - 1)]):
            assert main([*command, *option]) not in (0, 1)
            assert "max_" in capsys.readouterr().err
        # A model that is within them is no smaller model, and the other one is another model.
        assert main([*command, "--max-nodes", "3", "--max-bytes", str(len(long))]) == 1
        assert "max_" not in capsys.readouterr().err
    original.write_bytes(long)
    rewritten.write_bytes(long)
    within = ["--max-nodes", "3", "--max-bytes", str(len(long))]
    assert main([*command, *within, "-o", str(proof)]) == 0
    checked = ["check", str(proof), str(original), str(rewritten)]
    assert main([*checked, *within]) == 0
    capsys.readouterr()
    for option in (["--max-nodes", "2"], ["--max-bytes", str(len(long) - 1)]):
        assert main([*checked, *option]) not in (0, 1)
        assert "max_" in capsys.readouterr().err


def test_both_plans_of_a_comparison_are_within_the_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = tmp_path / "short.json", tmp_path / "long.json"
    for path, nodes in ((short, 2), (long, 5)):
        path.write_text(ap.plan(ap.load(chain(nodes))).to_json())
    size = long.stat().st_size
    assert short.stat().st_size < size
    for command in (["diff", str(short), str(long)], ["diff", str(long), str(short)]):
        assert main([*command, "--max-nodes", "5", "--max-bytes", str(size)]) == 0
        for option in (["--max-nodes", "4"], ["--max-bytes", str(size - 1)]):
            capsys.readouterr()
            assert main([*command, *option]) not in (0, 1)
            shown = capsys.readouterr()
            assert not shown.out
            assert "long.json" in shown.err
            assert "max_" in shown.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(long.read_bytes())))
    assert main(["diff", "-", str(short), "--max-bytes", str(size - 1)]) not in (0, 1)
    assert "'-'" in capsys.readouterr().err


def test_a_batch_plans_the_models_within_the_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long = tmp_path / "short.onnx", tmp_path / "long.onnx"
    short.write_bytes(chain(2))
    long.write_bytes(chain(5))
    with ThreadPoolExecutor(1) as threads:
        for limit in ({"max_nodes": 4}, {"max_bytes": len(chain(5)) - 1}):
            found = list(ap.report.plan_many([short, long], executor=threads, **limit))
            assert [each.error for each in found] == ["", "ModelTooLarge"]
    with pytest.raises(InvalidOption, match="max_nodes"):
        ap.report.plan_many([short], max_nodes=-1)
    report = tmp_path / "report.csv"
    command = ["batch", str(tmp_path), "-o", str(report), "--processes", "1", "--json"]
    assert main([*command, "--max-nodes", "4"]) != 0
    assert json.loads(capsys.readouterr().out)["errors"] == {"ModelTooLarge": 1}
    # An outcome of the journal is one with the same limits.
    assert Job("a").key() != Job("a", limits=Limits(max_nodes=4)).key()
