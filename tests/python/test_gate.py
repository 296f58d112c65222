"""One command for continuous integration: budgets, baselines, reports, exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import arenaplan as ap
import flat
from arenaplan.base.errors import BaselineError, InvalidOption
from arenaplan.cli import main
from arenaplan.report.gating import junit, markdown


def graph(*sizes: int, name: str = "m", skip: bool = False) -> ap.Graph:
    """Return a chain of operators; with ``skip`` the last one also reads the first value."""
    made = ap.Graph(name)
    first = value = made.input("v0", (sizes[0],), "uint8")
    for index, size in enumerate(sizes[1:], start=1):
        reads = [value, first] if skip and index == len(sizes) - 1 else [value]
        (value,) = made.node("Op", reads, [(f"v{index}", (size,), "uint8")])
    made.output(value)
    return made


def saved(path: Path, *sizes: int, skip: bool = False) -> str:
    graph(*sizes, name=path.stem, skip=skip).save(path)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """Return a model when it was small, when it had grown, and a path for a baseline."""
    small = saved(tmp_path / "small.json", 64, 64, 64)
    (tmp_path / "later").mkdir()
    grown = saved(tmp_path / "later" / "small.json", 64, 256, 64, 64)
    return small, grown, str(tmp_path / "base.json")


# -- the function ------------------------------------------------------------------


def test_a_plan_within_its_budget_passes_and_one_byte_less_fails() -> None:
    assert ap.report.gate(graph(64, 64), budget=128)
    failed = ap.report.gate(graph(64, 64), budget=127)
    assert not failed
    assert failed.rows == (ap.report.GateRow("budget", "arena", 128, 127),)
    assert failed.plan is not None
    assert failed.rows[0].headroom == -1


def test_a_gate_names_what_is_new_grown_or_lives_longer_at_the_peak() -> None:
    old = ap.plan(graph(64, 64, 64, 64, 64))
    kinds = {
        name: {c.name: c.kind for c in ap.report.gate(new, baseline=old).causes}
        for name, new in {
            "grown": graph(64, 64, 256, 64, 64),
            "longer": graph(64, 64, 64, 64, 64, skip=True),
            "same": graph(64, 64, 64, 64, 64),
            "smaller": graph(64, 64, 64, 32, 64),
        }.items()
    }
    assert kinds["grown"] == {"v2": "grown"}
    # The baseline is at its peak in the first step, where v0 and v1 are live.
    assert "v0" not in kinds["longer"]
    assert set(kinds["longer"].values()) == {"live at the peak now"}
    assert kinds["same"] == kinds["smaller"] == {}
    new = graph(64, 64)
    (wide,) = new.node("Op", [1], [("wide", (512,), "uint8")])
    new.output(wide)
    assert {c.name: (c.kind, c.before) for c in ap.report.gate(new, baseline=old).causes}[
        "wide"
    ] == (
        "new",
        None,
    )


@pytest.mark.parametrize(
    ("allowed", "passes"), [(0, False), (191, False), (192, True), ("192", True), ("150%", True),
                            ("149%", False), ("1KiB", True)],
)  # fmt: skip
def test_growth_passes_up_to_what_is_allowed(allowed: int | str, passes: bool) -> None:
    old = ap.plan(graph(64, 64, 64))
    found = ap.report.gate(graph(64, 256, 64), baseline=old, allow_growth=allowed)
    assert (found.rows[0].bytes, found.rows[0].baseline) == (320, 128)
    assert found.passed is passes


@pytest.mark.parametrize(
    ("allowed", "says"),
    [(-1, "-1 is negative"), ("x", "bytes"), ("-1%", "not a percentage"), ("nan%", "percentage")],
)
def test_growth_that_means_nothing_is_refused(allowed: int | str, says: str) -> None:
    old = ap.plan(graph(64, 64))
    with pytest.raises(ap.PlannerError, match=says):
        ap.report.gate(graph(64, 64), baseline=old, allow_growth=allowed)


def test_growth_over_no_baseline_is_refused() -> None:
    with pytest.raises(InvalidOption, match="option allow_growth: growth is over a baseline"):
        ap.report.gate(graph(64, 64), budget=128, allow_growth="5%")
    assert ap.report.gate(graph(64, 64), budget=128, allow_growth=0)


def test_a_baseline_is_a_plan_a_report_or_a_file_of_either(tmp_path: Path) -> None:
    old = graph(64, 64, 64)
    plan = ap.plan(old)
    report = ap.report.report_of(plan, old)
    plan.save(tmp_path / "plan.json")
    (tmp_path / "report.json").write_text(json.dumps(report))
    baselines = [plan, report, tmp_path / "plan.json", str(tmp_path / "report.json")]
    baselines.append(plan.to_json().encode())
    new = graph(64, 256, 64)
    found = [ap.report.gate(new, baseline=baseline) for baseline in baselines]
    assert {gate.rows for gate in found} == {
        (ap.report.GateRow("baseline", "arena", 320, 128, 128),)
    }
    assert len({gate.causes for gate in found}) == 1


@pytest.mark.parametrize(
    "content", ["", "[1]", "{", '{"format": "arenaplan-report"}', '{"format": "arenaplan"}',
                '{"format": "arenaplan-report", "spaces": [1]}'],
)  # fmt: skip
def test_a_damaged_baseline_is_a_typed_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text(content)
    with pytest.raises(BaselineError, match=r"base\.json"):
        ap.report.gate(graph(64, 64), baseline=path)
    with pytest.raises(BaselineError):
        ap.diff({"format": "arenaplan-report"}, ap.plan(graph(64, 64)))


def test_several_memories_have_a_budget_each() -> None:
    found = ap.report.gate(graph(64, 64, 64), spaces="sram=128,psram=1KiB")
    assert [(row.space, row.limit) for row in found.rows] == [("sram", 128), ("psram", 1024)]
    assert found
    old = found.plan
    none = ap.report.gate(graph(64, 2048, 64), spaces="sram=128,psram=1KiB", baseline=old)
    assert none.plan is None
    assert none.problem is not None
    assert [(c.name, c.kind, c.before, c.after) for c in none.causes] == [("v1", "grown", 64, 2048)]
    with pytest.raises(InvalidOption):
        ap.report.gate(graph(64, 64), budget=1, spaces="sram=2")


def test_the_whole_arena_of_the_runtime_counts_for_tflm(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(flat.write(flat.fragmented()))
    found = ap.report.gate(path, spaces="sram=1MiB")
    assert found.plan is not None
    assert found.rows[0].bytes > found.plan.arena_bytes
    assert ap.report.gate(path.read_bytes(), spaces="sram=1MiB").rows == found.rows


# -- the command -------------------------------------------------------------------


def test_the_exit_code_says_whether_the_gate_holds(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    small, grown, base = files
    assert main(["gate", small, "--baseline", base]) == 2
    assert "--update writes it" in capsys.readouterr().err
    assert main(["gate", small, "--baseline", base, "--update"]) == 0
    assert main(["gate", small, "--baseline", base, "--spaces", "sram=128"]) == 0
    printed = capsys.readouterr()
    assert "ok: small" in printed.out
    assert main(["gate", grown, "--baseline", base, "--spaces", "sram=128"]) == 1
    printed = capsys.readouterr()
    assert "FAIL: small" in printed.out
    assert "64 -> 256" in printed.out
    assert "GateFailed: small: sram needs 320 bytes" in printed.err
    assert main(["gate", grown, "--baseline", base, "--allow-growth", "1K"]) == 0
    assert main(["gate", "absent.onnx", "--baseline", base]) == 2
    assert main(["gate", small, "--update"]) == 2
    Path(base).write_text("{}")
    assert main(["gate", small, "--baseline", base]) == 2
    assert "BaselineError: " in capsys.readouterr().err


def test_growth_is_accepted_by_an_update_and_a_budget_is_not(files: tuple[str, str, str]) -> None:
    small, grown, base = files
    assert main(["gate", small, "--baseline", base, "--update"]) == 0
    before = Path(base).read_bytes()
    assert main(["gate", grown, "--baseline", base, "--update", "--budget", "128"]) == 1
    assert Path(base).read_bytes() == before
    assert main(["gate", grown, "--baseline", base, "--update"]) == 0
    assert ap.Plan.load(base).arena_bytes == 320


@pytest.mark.parametrize("form", ["plan", "report"])
def test_the_baseline_of_another_model_or_target_is_refused(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their bytes say nothing: a gate would pass whatever the model needs."""
    large, small = graph(4096, 4096), graph(64, 64, name="other")
    for base, said in (
        (ap.plan(large), "of model 'm', not 'other'"),
        (ap.plan(graph(4096, 4096, name="other"), target="c"), "for target 'c', not 'nodes'"),
    ):
        baseline: Any = base
        if form == "report":
            baseline = ap.report.report_of(base)
        with pytest.raises(BaselineError, match=said):
            ap.report.gate(small, baseline=baseline)
    model = tmp_path / "other.graph.json"
    model.write_text(small.to_json())
    ap.plan(large).save(tmp_path / "base.json")
    assert main(["gate", str(model), "--baseline", str(tmp_path / "base.json")]) == 2
    assert "'other'" in capsys.readouterr().err


def test_junit_has_a_case_per_rule_and_the_reason(
    files: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, grown, base = files
    junit = tmp_path / "out.xml"
    assert main(["gate", small, "--baseline", base, "--update"]) == 0
    arguments = ["gate", grown, "--baseline", base, "--spaces", "sram=1K", "--junit", str(junit)]
    assert main(arguments) == 1
    root = ElementTree.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures")) == ("3", "1")
    names = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert [name for name, failure in names.items() if failure is not None] == ["baseline sram"]
    failure = names["baseline sram"]
    assert failure is not None
    assert "v1" in (failure.text or "")
    capsys.readouterr()
    assert main([*arguments[:-1], "-"]) == 1
    assert ElementTree.fromstring(capsys.readouterr().out).tag == "testsuites"


def test_a_model_that_cannot_be_read_stops_no_other_and_is_in_the_reports(
    files: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, _, _ = files
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    junit = tmp_path / "out.xml"
    assert main(["gate", str(damaged), small, "--budget", "1K", "--junit", str(junit)]) == 2
    printed = capsys.readouterr()
    assert "ok: small" in printed.out
    assert "FAIL: damaged" in printed.out
    root = ElementTree.parse(junit).getroot()
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["3", "0", "1"]
    assert root.find("testsuite/testcase/error") is not None


def test_names_cannot_spoil_markdown_or_xml() -> None:
    hostile = "a|b`<img src=x>\x00\x1b[31m@all"
    new = ap.Graph(hostile)
    x = new.input("v0", (64,), "uint8")
    (y,) = new.node("Op", [x], [(hostile, (512,), "uint8")])
    new.output(y)
    found = ap.report.gate(new, baseline=ap.plan(graph(64, 32, name=hostile)), budget=1)
    text = markdown([found])
    assert "<img" not in text.partition("| grown by")[0]
    assert all(c == "\n" or c.isprintable() for c in text)
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows
    assert all(line.replace("\\|", "").count("|") == 5 for line in rows)
    assert ElementTree.fromstring(junit([found])).find("testsuite") is not None


def test_several_models_have_a_folder_of_baselines(
    files: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, grown = files[0], saved(tmp_path / "grown.json", 64, 256, 64, 64)
    folder = f"{tmp_path / 'bases'}/"
    assert main(["gate", small, grown, "--baseline", folder, "--update"]) == 0
    assert sorted(path.name for path in Path(folder).iterdir()) == [
        "grown.plan.json",
        "small.plan.json",
    ]
    assert main(["gate", small, grown, "--baseline", folder]) == 0
    saved(tmp_path / "small.json", 64, 512, 64)
    capsys.readouterr()
    assert main(["gate", small, grown, "--baseline", folder, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["passed"] is False
    assert [gate["passed"] for gate in document["gates"]] == [False, True]
    assert main(["gate", small, small, "--baseline", folder]) == 2


def test_a_model_comes_from_stdin_and_markdown_goes_to_stdout(
    files: tuple[str, str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small, _, base = files
    assert main(["gate", small, "--baseline", base, "--update"]) == 0
    capsys.readouterr()
    content = Path(small).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert main(["gate", "-", "--baseline", base, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### ✅ small for nodes\n\n| memory |")
    assert main(["gate", small, "--json", "--markdown"]) == 2


# -- the action --------------------------------------------------------------------

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "gate"


def test_the_action_runs_the_gate_and_its_inputs_are_no_code(
    files: tuple[str, str, str], tmp_path: Path
) -> None:
    small, _, base = files
    assert main(["gate", small, "--baseline", base, "--update"]) == 0
    binaries = tmp_path / "bin"
    binaries.mkdir()
    command = binaries / "arenaplan"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m arenaplan "$@"\n')
    command.chmod(0o755)

    def run(**inputs: str) -> tuple[int, str]:
        summary = tmp_path / "summary"
        summary.write_text("")
        environment = {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "JUNIT": str(tmp_path / "junit.xml"),
            **inputs,
        }
        ran = subprocess.run(
            ["bash", str(ACTION / "gate.sh")], env=environment, cwd=tmp_path, capture_output=True
        )
        return ran.returncode, summary.read_text()

    code, summary = run(MODELS=f"{tmp_path}/sma*.json", BASELINE=base)
    assert (code, summary[:5]) == (0, "### ✅")
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("failures") == "0"
    code, summary = run(MODELS=small, SPACES="sram=1", ARGUMENTS="--align\n16\n")
    assert (code, summary[:5]) == (1, "### ❌")
    code, summary = run(MODELS="$(touch hacked); `touch hacked`", BASELINE=base)
    assert code == 2
    assert "FileNotFoundError" in summary or "NotAModel" in summary
    assert not (tmp_path / "hacked").exists()
    assert "${{" not in "".join(
        line
        for line in (ACTION / "action.yml").read_text().splitlines()
        if "arenaplan gate" in line or "gh pr" in line or "pip install" in line
    )
