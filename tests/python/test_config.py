"""Options from files and the environment, and how commands talk."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from arenaplan.cli import main
from test_gate import saved


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a model, one folder below a place for a file."""
    for name in ("NO_COLOR", "FORCE_COLOR", "ARENAPLAN_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    inside = tmp_path / "inside"
    inside.mkdir()
    saved(inside / "net.json", 64, 100, 64)
    monkeypatch.chdir(inside)
    return tmp_path


def planned(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """Return what ``plan`` says about the model, as JSON."""
    capsys.readouterr()
    assert main(["plan", "net.json", "--json", *more]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


# -- precedence ----------------------------------------------------------------------


def test_flag_before_environment_before_file_before_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(capsys)["alignment"] == 64
    write(folder / "arenaplan.toml", "[defaults]\nalign = 16\n")
    assert planned(capsys)["alignment"] == 16
    write(folder / "arenaplan.toml", '[defaults]\nalign = 16\n[models."n*.json"]\nalign = "1KiB"')
    assert planned(capsys)["alignment"] == 1024
    monkeypatch.setenv("ARENAPLAN_ALIGN", "32")
    assert planned(capsys)["alignment"] == 32
    assert planned(capsys, "--align", "8")["alignment"] == 8
    assert planned(capsys, "--config", "none", "--align", "4")["alignment"] == 4
    monkeypatch.delenv("ARENAPLAN_ALIGN")
    assert planned(capsys, "--config", "none")["alignment"] == 64
    monkeypatch.setenv("ARENAPLAN_CONFIG", "none")
    assert planned(capsys)["alignment"] == 64


def test_a_pattern_is_of_the_name_or_of_the_path_from_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for pattern, alignment in (("net.json", 16), ("inside/*.json", 16), ("other/*.json", 64)):
        write(folder / "arenaplan.toml", f'[models."{pattern}"]\nalign = 16\n')
        assert planned(capsys)["alignment"] == alignment, pattern


def test_the_project_file_has_the_same_tables(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "pyproject.toml", "[tool.arenaplan.defaults]\nalign = 16\n")
    assert planned(capsys)["alignment"] == 16
    # A project without our table does not hide a file above it.
    write(folder / "arenaplan.toml", "[defaults]\nalign = 32\n")
    write(folder / "inside" / "pyproject.toml", '[project]\nname = "arenaplan-user"\n')
    assert planned(capsys)["alignment"] == 32


def test_tables_and_lists_stand_for_options_that_are_repeated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        folder / "arenaplan.toml",
        '[defaults]\nspaces = {sram = "1KiB", psram = 4096}\npin = {psram = ["v1", "v2"]}\n'
        'optimize = ["views", "in-place"]\ninputs = "keep"\n',
    )
    document = planned(capsys)
    assert [(s["name"], s["capacity"]) for s in document["spaces"]] == [
        ("sram", 1024),
        ("psram", 4096),
    ]
    assert {value["name"] for value in document["spilled"]} == {"v1", "v2"}
    assert document["options"]["optimize"] == ["views", "in-place"]
    assert document["options"]["preserve_inputs"] is True
    # A budget on the command line has other memories: pins of the file name none of them.
    for more in (["--budget", "1MiB"], ["--spaces", "1MiB"]):
        assert [s["name"] for s in planned(capsys, *more)["spaces"]] == ["arena"]


def test_a_gate_has_the_options_of_each_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(folder / "inside" / "big.json", 64, 4096, 64)
    write(
        folder / "arenaplan.toml",
        '[defaults]\nbaseline = "bases/"\n[models."net.json"]\nspaces = "sram=256"\n'
        '[models."big.json"]\nspaces = "sram=8KiB"\n',
    )
    assert main(["gate", "net.json", "big.json", "--update"]) == 0
    assert sorted(path.name for path in (folder / "bases").iterdir()) == [
        "big.plan.json",
        "net.plan.json",
    ]
    capsys.readouterr()
    assert main(["gate", "net.json", "big.json", "--json"]) == 0
    gates = json.loads(capsys.readouterr().out)["gates"]
    assert [gate["rows"][0]["limit"] for gate in gates] == [256, 8192]


def test_the_page_lists_every_key_and_its_file_is_right(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from arenaplan.cli.config import KEYS, find_config

    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    listed = set(re.findall(r"`([a-z-]+)`", page.partition("Keys are options")[2]))
    assert set(KEYS) <= listed
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    write(folder / "arenaplan.toml", block)
    config = find_config(None)
    assert config is not None
    assert set(config.settings(Path("a.tflite"))) == {"effort", "baseline", "target", "spaces"}
    (folder / "vision").mkdir()
    settings = config.settings(folder / "vision" / "a.onnx")
    assert {"bind", "pin", "optimize"} <= set(settings)
    # Each value is one that the option can have.
    saved(folder / "vision" / "net.json", 64, 100, 64)
    write(folder / "arenaplan.toml", block.replace(".onnx", ".json").replace("bind", "#bind"))
    assert main(["plan", str(folder / "vision" / "net.json")]) == 2
    assert "no value that has a place is called 'logits*'" in capsys.readouterr().err


# -- errors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[defaults", "arenaplan.toml: "),
        ("\x00", "arenaplan.toml: "),
        ("[default]\n", "default has no meaning"),
        ("defaults = 3\n", "defaults is no table"),
        ("[models]\nx = 3\n", 'models."x" is no table'),
        ('[defaults]\ntargte = "c"\n', "defaults.targte is no option; did you mean 'target'?"),
        ('[models."*.json"]\ntarget = "tflmm"\n', ".target: invalid choice: 'tflmm'"),
        ('[defaults]\nbudget = "1KB2"\n', "defaults.budget: '1KB2' is not a number of bytes"),
        ("[defaults]\nquiet = 1\n", "defaults.quiet is 1, neither true"),
        ("[defaults]\nalign = true\n", "defaults.align is True, neither text nor a number"),
        ('[defaults]\nalign = [{a = 1}]\n', "neither text nor a number"),
        ("[defaults]\nmax-slowdown = 0.5\n", "defaults.max-slowdown: '0.5' is neither"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_and_the_key(
    text: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "arenaplan.toml", text)
    assert main(["plan", "net.json"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("arenaplan: InvalidConfig: ")
    assert str(folder / "arenaplan.toml") in err
    assert message in err


def test_a_wrong_variable_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARENAPLAN_TARGET", "tflmm")
    assert main(["plan", "net.json"]) == 2
    assert "InvalidConfig: ARENAPLAN_TARGET: invalid choice: 'tflmm'" in capsys.readouterr().err
    assert main(["plan", "net.json", "--config", "absent.toml"]) == 2
    assert main(["targets"]) == 0


def test_a_refused_option_says_where_it_is_from(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "arenaplan.toml", '[defaults]\nspaces = "a=1K,b=2K"\n')
    assert main(["plan", "net.json", "net.json", "--share", "concurrent"]) == 2
    assert f"--spaces is from {folder / 'arenaplan.toml'}: defaults.spaces" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plna", "net.json"], "there is no command 'plna'; did you mean 'plan'?"),
        (["plan", "net.json", "--target", "tfml"], "did you mean 'tflm'?"),
        (["plan", "net.json", "--efort", "fast"], "did you mean --effort?"),
        (["run", "net.json", "--spaces", "a=1K"], "; --spaces is an option of plan, "),
        (["run", "net.json", "--quite", "--budget=1K"], "; did you mean --quiet?"),
        (["pack", "net.json", "--zzzz"], "unrecognized arguments: --zzzz\n"),
        (["--color", "never", "plan", "net.json", "--budget", "x"], "argument --budget"),
        (["plan", "net.json", "--max-slowdown", "2", "--optimize", "order,veiws"], "veiws"),
    ],
)
def test_wrong_words_are_answered_with_close_ones(
    arguments: list[str], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        sys.exit(main(arguments))
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


def test_errors_spell_options_as_the_command_line_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "net.json", "--spaces", "a=1K", "--pin", "a=nothing"]) == 2
    assert "option --pin: no value" in capsys.readouterr().err
    assert main(["plan", "net.json", "--spaces", "a=1K", "--pin", "a=v11"]) == 2
    assert "did you mean 'v1'?" in capsys.readouterr().err
    assert main(["classic", "net.json", "--strategy", "nnvm", "--inputs", "keep"]) == 2
    assert "option --inputs: strategy nnvm" in capsys.readouterr().err
    assert main(["plan", "net.json", "--budget", "1K", "--spaces", "a=1K"]) == 2
    assert "option --budget: the memories of --spaces" in capsys.readouterr().err


# -- prose ---------------------------------------------------------------------------


def test_quiet_leaves_results_and_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["-q", "plan", "net.json"], ["plan", "net.json", "--quiet"]):
        assert main([*arguments, "-o", "plan.json"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert "arena" in printed.out
    assert main(["plan", "net.json", "-o", "plan.json"]) == 0
    assert "wrote plan.json" in capsys.readouterr().err
    assert main(["-q", "plan", "absent.json"]) == 2
    assert "absent.json" in capsys.readouterr().err


def test_growth_without_a_baseline_is_refused_where_a_person_wrote_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["gate", "net.json", "--budget", "1MiB"]
    assert main([*line, "--allow-growth", "5%"]) == 2
    assert "option --allow-growth: growth is over a baseline" in capsys.readouterr().err
    assert main([*line, "--baseline", "b.json", "--update", "--allow-growth", "5%"]) == 2
    assert "--update takes the new plan" in capsys.readouterr().err
    # A file of settings is for all models, of which some have a baseline.
    write(folder / "arenaplan.toml", '[defaults]\nallow-growth = "5%"\n')
    assert main(line) == 0
    assert main([*line, "--baseline", "b.json", "--update"]) == 0
    assert main([*line, "--allow-growth", "1%"]) == 2
    (folder / "arenaplan.toml").unlink()
    monkeypatch.setenv("ARENAPLAN_ALLOW_GROWTH", "5%")
    assert main(line) == 0


def test_a_flag_in_a_message_is_not_said_to_come_from_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "arenaplan.toml", "[defaults]\nbudget = 16\n")
    assert main(["gate", "net.json", "--spaces", "a=1KiB,b=1KiB", "--budget", "64"]) == 2
    assert "arenaplan.toml" not in capsys.readouterr().err


def test_verbose_says_where_options_come_from(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "arenaplan.toml", "[defaults]\nalign = 16\n")
    assert main(["plan", "net.json", "-v"]) == 0
    err = capsys.readouterr().err
    assert f"--align from {folder / 'arenaplan.toml'}: defaults.align" in err
    assert "processor time" in err
    assert main(["plan", "absent.json", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_colors_are_for_terminals_and_for_those_who_ask(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_colored(*more: str) -> bool:
        assert main([*more, "plan", "absent.json"]) == 2
        return "\x1b[" in capsys.readouterr().err

    assert not is_colored()
    assert is_colored("--color", "always")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert is_colored()
    assert not is_colored("--color=never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_colored()
    assert is_colored("--color", "always")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert is_colored()
    monkeypatch.setenv("TERM", "dumb")
    assert not is_colored()


def hard(nodes: int = 400) -> ap.Graph:
    """Return a random graph, whose order takes a search of seconds."""
    numbers = random.Random(5)
    made = ap.Graph("hard")
    values = [made.input("x", (1000,), "uint8")]
    for index in range(nodes):
        reads = {numbers.choice(values[-12:]) for _ in range(numbers.choice([1, 1, 2, 2, 3]))}
        size = numbers.randrange(100, 90000)
        values += made.node("Op", sorted(reads), [(f"v{index}", (size,), "uint8")])
    made.output(values[-1])
    return made


def test_progress_is_a_document_per_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from arenaplan.cli import watch

    monkeypatch.setattr(watch, "_PERIOD", 0.0)
    hard().save("hard.json")
    assert main(["plan", "hard.json", "--progress", "json", "--time-limit", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines
    assert {"stage", "seconds", "peak", "lower_bound", "gap", "nodes"} <= lines[-1].keys()
    assert lines[-1]["gap"] >= 0
    assert main(["plan", "hard.json", "--progress", "none", "--time-limit", "0"]) == 0
    assert capsys.readouterr().err == ""


def test_ctrl_c_ends_a_search_with_the_best_plan_so_far(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hard(1500).save("hard.json")
    timer = threading.Timer(0.7, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        code = main(["plan", "hard.json", "--effort", "max", "-o", "plan.json"])
    finally:
        timer.cancel()
    printed = capsys.readouterr()
    assert code == 130
    assert "ending with the best answer so far" in printed.err
    assert "arena" in printed.out
    plan = ap.Plan.load("plan.json")
    plan.check(ap.Graph.load("hard.json"))


def test_a_search_without_news_tells_its_state_again_and_can_be_ended() -> None:
    calls: list[dict[str, Any]] = []

    def states() -> list[dict[str, Any]]:
        return [{**progress, "seconds": 0} for progress in calls[-2:]]

    def stop(progress: dict[str, Any]) -> bool:
        calls.append(progress)
        return len(calls) < 2 or states()[0] != states()[1]

    made = hard(1500)
    plan = ap.plan(made, effort="max", on_progress=stop)
    plan.check(made)
    assert states()[0] == states()[1]
    assert all(one["seconds"] < other["seconds"] for one, other in pairwise(calls))
