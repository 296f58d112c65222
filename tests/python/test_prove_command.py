"""The commands prove and check, on files: output, exit codes, and runs in installed runtimes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import arenaplan as ap
from arenaplan.cli import main
from arenaplan.deploy.adapters import differential
from raising import raises
from sketch_runs import evaluated
from sketches import Sketch, strips
from test_prove_plans import overlapping


def write(folder: Path, seed: int = 1) -> tuple[Path, Path]:
    old, new = strips(seed)
    paths = folder / "original.tflite", folder / "small.tflite"
    for path, sketch in zip(paths, (old, new), strict=True):
        path.write_bytes(sketch.file())
    return paths


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_a_proof_is_written_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original, small = write(tmp_path)
    proof = tmp_path / "proof.json"
    assert run("prove", original, small, "-o", proof) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("proven: ")
    assert "plan replayed: " in captured.out
    assert f"wrote {proof}" in captured.err
    assert run("check", proof, original, small) == 0
    assert capsys.readouterr().out.startswith("proven: ")
    assert run("check", proof, original, small, "--json") == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_the_summary_is_json_and_the_proof_can_go_to_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, small = write(tmp_path)
    assert run("prove", original, small, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["valid"] is True
    assert document["exactness"] == "bits"
    assert document["plan"]["planned"] > 3
    assert document["runs"] == []
    assert run("prove", original, small, "-o", "-") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["format"] == "arenaplan-proof"
    assert captured.err.startswith("proven: ")
    assert run("prove", original, small, "-o", "-", "--json") == 2


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original, small = write(tmp_path)
    proof = tmp_path / "proof.json"
    assert run("prove", small, original, "-o", proof) == 1  # The strips are no part of it.
    assert "NotProven: " in capsys.readouterr().err
    assert not proof.exists()
    assert run("prove", original, small, "-o", proof) == 0
    assert run("check", proof, small, small) == 1
    assert "ProofStale" in capsys.readouterr().err
    proof.write_text("{}")
    assert run("check", proof, original, small) == 1
    assert "ProofCorrupt" in capsys.readouterr().err
    assert run("check", proof, original) == 2
    small.write_bytes(b"no model")
    assert run("prove", original, small) == 2
    assert run("prove", original, tmp_path / "absent.tflite") == 2


def test_a_part_that_no_rule_covers_is_unsupported(tmp_path: Path) -> None:
    old, _ = strips(1)
    old.tensors[old.outputs[0]].shape = (1, -1, 2, 2)
    path = tmp_path / "open.tflite"
    path.write_bytes(old.file())
    assert run("prove", path, path) == 3


def test_a_stale_plan_is_refused_with_its_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = strips(1)
    assert new.plan is not None
    first = new.operators[0].outputs[0]
    last = new.outputs[0]
    new.plan[last] = new.plan[first]
    for name, sketch in (("a", old), ("b", new)):
        (tmp_path / f"{name}.tflite").write_bytes(sketch.file())
    assert run("prove", tmp_path / "a.tflite", tmp_path / "b.tflite") == 1
    assert "PlanOverlap: operator" in capsys.readouterr().err


# -- runs -------------------------------------------------------------------------------------


def test_a_runtime_that_is_absent_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("tflite_micro", "ai_edge_litert", "ai_edge_litert.interpreter"):
        monkeypatch.setitem(sys.modules, package, None)
    original, small = write(tmp_path)
    assert run("prove", original, small, "--run", "tflm,litert") == 0
    captured = capsys.readouterr()
    assert "tflm did not run: the package tflite-micro is not installed" in captured.err
    assert "litert did not run: the package ai-edge-litert is not installed" in captured.err
    assert run("prove", original, small, "--run", "litert", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["runs"]
    assert (entry["runtime"], entry["status"]) == ("litert", "not installed")


def test_an_unknown_runtime_is_a_wrong_option(tmp_path: Path) -> None:
    original, small = write(tmp_path)
    with pytest.raises(SystemExit) as stop:
        run("prove", original, small, "--run", "tflm,onnx")
    assert stop.value.code == 2


class Fake:
    """A runtime that computes as the evaluator does."""

    def __init__(self, sketch: Sketch, wrong: bool) -> None:
        self._sketch = sketch
        self._wrong = wrong

    def run(self, inputs: list) -> list:
        import numpy as np

        found = [np.frombuffer(b, np.int8).copy() for b in evaluated(self._sketch, inputs)]
        found[0][0] ^= self._wrong
        return found

    def tensor(self, number: int) -> None:
        return None


@pytest.mark.parametrize("wrong", [False, True])
def test_outputs_are_compared_bit_by_bit(monkeypatch: pytest.MonkeyPatch, wrong: bool) -> None:
    old, new = strips(1)
    files = old.file(), new.file()
    models = {files[0]: Fake(old, wrong=False), files[1]: Fake(new, wrong)}
    monkeypatch.setattr(differential, "_makers", lambda _: iter([("fake", models.__getitem__)]))
    proof = ap.tflite.prove(*files)
    if wrong:
        with raises("VerificationError", match=r"fake: output 0 .* for input 0"):
            differential.compared(*files, proof, ["tflm"], inputs=4)
        return
    (found,) = differential.compared(*files, proof, ["tflm"], inputs=4)
    assert (found.status, found.inputs) == ("equal", 4)
    assert found.distinct > 1


@pytest.mark.parametrize("seed", range(12))
def test_strips_by_hand_run_in_tensorflow_lite_micro(seed: int) -> None:
    pytest.importorskip("tflite_micro")
    old, new = strips(seed)
    files = old.file(), new.file()
    (found,) = differential.compared(*files, ap.tflite.prove(*files), ["tflm"], inputs=6)
    assert found.status == "equal"
    assert found.distinct > 1


@pytest.mark.parametrize("seed", range(30))
def test_results_over_their_images_are_right_in_tensorflow_lite_micro(seed: int) -> None:
    pytest.importorskip("tflite_micro")
    old, new, distance = overlapping(seed)
    assert new.plan is not None
    new.plan[0], new.plan[new.outputs[0]] = distance + -distance % 16, 0
    files = old.file(), new.file()
    (found,) = differential.compared(*files, ap.tflite.prove(*files), ["tflm"], inputs=6)
    assert found.status == "equal"


@pytest.mark.parametrize("seed", range(6))
def test_strips_by_hand_run_in_litert_and_hold_the_parts_that_are_proven(seed: int) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    old, new = strips(seed)
    files = old.file(), new.file()
    runs = differential.compared(*files, ap.tflite.prove(*files), ["litert"], inputs=4)
    assert [found.status for found in runs] == ["equal"] * 3
    assert runs[0].tensors > len(new.operators) // 2


def test_models_are_proven_rewrites_of_themselves(shared: Path) -> None:
    paths = sorted((shared / "models" / "tflite").glob("*.tflite"))
    assert paths
    for path in paths:
        proof = ap.tflite.prove(path, path)
        assert set(proof.rules) <= {"same", "move"}
