"""A limit of bytes means the same in every command, and a gate can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
import flat
from arenaplan.base.errors import InvalidOption
from arenaplan.cli import main
from arenaplan.cli.syntax import COMMANDS
from odd_models import OddModel
from test_cli import model
from test_gate import graph, saved
from test_recompute import training_step

CSV = "id,lower,upper,size\na,0,3,4\nb,0,9,8\nc,2,5,3\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return an input of each kind, by the name that the commands of the tests use."""
    lite, step = tmp_path / "lite.tflite", tmp_path / "step.json"
    lite.write_bytes(flat.write(flat.fragmented()))
    step.write_text(training_step().to_json())
    table = tmp_path / "table.csv"
    table.write_text(CSV)
    return {
        "ONNX": str(model(tmp_path / "small.onnx")),
        "OPEN": str(model(tmp_path / "open.onnx", batch="batch")),
        "LITE": str(lite),
        "STEP": str(step),
        "JSON": saved(tmp_path / "net.json", 64, 256, 64),
        "TABLE": str(table),
        "OUT": str(tmp_path / "out"),
    }


REPORTS: list[tuple[str, tuple[str | int, ...]]] = [
    ("plan ONNX", ("arena_bytes",)),
    ("plan JSON", ("arena_bytes",)),
    ("plan LITE", ("runtime", "total")),
    ("plan LITE --target tflm:cmsis-nn", ("runtime", "total")),
    ("plan LITE --pointer 32", ("runtime", "total")),
    ("plan LITE --target c", ("arena_bytes",)),
    ("plan OPEN --bind batch=1..4", ("arena_bytes",)),
    ("plan ONNX ONNX --share concurrent", ("arena_bytes",)),
    ("plan ONNX ONNX --share never-together", ("arena_bytes",)),
    ("plan LITE LITE --share concurrent", ("total_bytes",)),
    ("plan LITE LITE --share never-together", ("total_bytes",)),
    *((f"export ONNX --to {form} -o OUT", ("arena_bytes",)) for form in
      ("c", "csv", "json", "hazards", "hazards-c")),
    ("export LITE --to c -o OUT", ("arena_bytes",)),
    ("export LITE --to json -o OUT", ("total_bytes",)),
    ("export LITE --to csv -o OUT --target tflm", ("total_bytes",)),
    ("export LITE --to tflm -o OUT", ("total_after",)),
    ("export LITE --to tflm-shim -o OUT", ("total_after",)),
    ("gate JSON --budget 1GiB", ("gates", 0, "rows", 0, "bytes")),
    ("gate ONNX --budget 1GiB", ("gates", 0, "rows", 0, "bytes")),
    ("gate LITE --budget 1GiB", ("gates", 0, "rows", 0, "bytes")),
    ("gate LITE --budget 1GiB --pointer 32", ("gates", 0, "rows", 0, "bytes")),
    ("fit LITE --time-limit 20", ("total",)),
    ("recompute STEP --max-extra 10000%", ("arena_bytes",)),
    ("pack TABLE", ("peak",)),
]  # fmt: skip
"""A command for each way to ask for bytes, and where its report has the bytes."""


def reported(document: Any, keys: tuple[str | int, ...]) -> int:
    for key in keys:
        document = document[key]
    assert isinstance(document, int)
    return document


def limited(line: str, files: dict[str, str], limit: str) -> list[str]:
    """Return the words of a command with a limit of bytes."""
    words = [files.get(word, word) for word in line.split()]
    for option in ("--budget", "--max-extra"):  # A goal of recomputation is one of several.
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return [*words, "--json", *limit.split()]


@pytest.mark.parametrize(("line", "keys"), REPORTS)
def test_the_bytes_that_a_command_reports_are_the_least_budget_that_it_accepts(
    line: str,
    keys: tuple[str | int, ...],
    files: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [files.get(word, word) for word in line.split()]
    assert main([*words, "--json"]) == 0
    needed = reported(json.loads(capsys.readouterr().out), keys)
    output = Path(files["OUT"])
    output.unlink(missing_ok=True)
    assert main(limited(line, files, f"--budget {needed - 1}")) == 1
    printed = capsys.readouterr()
    assert "Exceeded" in printed.err or "GateFailed" in printed.err
    assert not output.exists(), "what does not fit is not written"
    assert main(limited(line, files, f"--budget {needed}")) == 0
    assert reported(json.loads(capsys.readouterr().out), keys) == needed


@pytest.mark.parametrize(
    ("line", "keys"),
    [row for row in REPORTS if row[0].split()[0] in ("plan", "export", "gate", "pack")
     and "--share" not in row[0] and "--bind" not in row[0]],
)  # fmt: skip
def test_one_memory_with_a_size_is_the_same_limit(
    line: str,
    keys: tuple[str | int, ...],
    files: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [files.get(word, word) for word in line.split()]
    assert main([*words, "--json"]) == 0
    needed = reported(json.loads(capsys.readouterr().out), keys)
    assert main(limited(line, files, f"--spaces arena={needed - 1}")) == 1
    assert main(limited(line, files, f"--spaces arena={needed}")) == 0
    capsys.readouterr()


def test_every_command_with_a_budget_is_in_the_table() -> None:
    commands = {line.split()[0] for line, _ in REPORTS}
    assert commands == {name for name, row in COMMANDS.items() if "budget" in row.names}


def test_what_tflm_needs_in_all_is_never_guessed(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("plan", "gate"):
        line = [command, files["ONNX"], "--target", "tflm", "--budget", "1GiB"]
        assert main(line) == 3
        assert ".tflite" in capsys.readouterr().err
        line = [command, files["JSON"], "--target", "tflm", "--budget", "1GiB"]
        assert main(line) == 2
        assert "whole arena counts" in capsys.readouterr().err
    with pytest.raises(InvalidOption, match="whole arena counts"):
        ap.plan(ap.load(files["LITE"]), budget="1GiB")
    with pytest.raises(InvalidOption, match="whole arena counts"):
        ap.report.gate(ap.load(files["LITE"]), budget="1GiB")


# -- gates that cannot fail --------------------------------------------------------


@pytest.mark.parametrize("options", ["", "--json", "--markdown", "--junit -", "--allow-growth 5%"])
def test_a_gate_without_a_rule_is_a_usage_error(
    options: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("JSON", "ONNX", "LITE"):
        assert main(["gate", files[name], *options.split()]) == 2
        printed = capsys.readouterr()
        assert "a gate without a rule judges nothing" in printed.err
        assert "✅" not in printed.out
        assert '"passed": true' not in printed.out


def test_a_gate_is_true_only_if_something_was_judged() -> None:
    with pytest.raises(InvalidOption, match="without a rule"):
        ap.report.gate(graph(64, 64))
    with pytest.raises(InvalidOption, match="without a rule"):
        ap.report.gate(graph(64, 64), spaces=[ap.Space("sram"), ap.Space("psram")])
    made = ap.report.gate(graph(64, 64), budget=128)
    assert made
    assert not ap.report.Gate(made.model, made.target, made.plan, ())


def test_a_model_without_a_rule_fails_the_gate_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "small.json", 64, 64)
    saved(tmp_path / "other.json", 64, 64)
    Path("arenaplan.toml").write_text('[models."small.json"]\nbudget = "1KiB"\n')
    assert main(["gate", "small.json"]) == 0
    assert main(["gate", "small.json", "other.json"]) == 2
    assert "FAIL: other" in capsys.readouterr().out


OWN: list[dict[str, Any]] = [
    {"workers": 2},
    {"workers": 3, "effort": "fast"},
    {"effort": "fast"},
    {"workspace": "none"},
]


@pytest.mark.parametrize("seed", [*range(6), 9, 27, 63, 103, 132, 252])
def test_the_bytes_of_a_plan_are_a_budget_that_its_options_keep(seed: int) -> None:
    """Of timetables that fit, the shortest is chosen: with scratch memory it must fit, too."""
    loaded = ap.load(OddModel(seed).model().SerializeToString())
    for options in OWN:
        size = ap.plan(loaded, target="numpy", **options).arena_bytes
        assert ap.plan(loaded, target="numpy", budget=size, **options).arena_bytes <= size, options
