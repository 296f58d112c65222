"""Pipes, sizes and wrong options of the command line."""

from __future__ import annotations

import importlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
import flat
from arenaplan.cli import main
from arenaplan.cli.syntax import COMMANDS
from arenaplan.formats import opening as importers
from test_cli import model

CSV = "id,lower,upper,size\na,0,3,4\nb,0,9,8\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return model(tmp_path / "small.onnx")


@pytest.fixture
def tflite(tmp_path: Path) -> Path:
    path = tmp_path / "small.tflite"
    path.write_bytes(flat.write(flat.fragmented()))
    return path


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Make stdin a pipe with this content."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def piped(content: bytes) -> str:
    """Return the path of a pipe with this content, as a shell writes ``<(command)``."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as pipe:
        pipe.write(content)
    return f"/dev/fd/{read}"


# -- models and tables from pipes ------------------------------------------------


@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_every_command_reads_a_model_from_stdin(
    kind: str, small: Path, tflite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = small if kind == "onnx" else tflite
    plan = str(tmp_path / "plan.json")
    assert main(["plan", str(path), "-o", plan]) == 0
    commands = [["plan", "-"], ["inspect", "-"], ["explain", "-"], ["check", "-", plan]]
    commands += [["export", "-", "--to", "c", "-o", "-"]]
    commands += (
        [["run", "-"]]
        if kind == "onnx"
        else [["export", "-", "--to", "tflm", "-o", f"{plan}.tflite"]]
    )
    for arguments in commands:
        feed(monkeypatch, path.read_bytes())
        assert main(arguments) == 0, arguments
    capsys.readouterr()
    assert main(["plan", piped(path.read_bytes()), "--json"]) == 0
    expected = ap.plan(ap.load(path)).arena_bytes
    assert json.loads(capsys.readouterr().out)["arena_bytes"] == expected


def test_the_content_of_a_model_can_be_loaded(small: Path, tflite: Path) -> None:
    for path in (small, tflite):
        assert ap.load(path.read_bytes()).digest == ap.load(path).digest


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"hello", b"\x7fELF"])
def test_what_is_no_model_is_said_before_it_is_read(
    content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, content)
    assert main(["plan", "-"]) == 2
    assert "NotAModel" in capsys.readouterr().err


def test_what_never_ends_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "/dev/zero"]) == 2
    assert main(["pack", "/dev/zero"]) == 2
    err = capsys.readouterr().err
    assert "NotAModel" in err
    assert "InvalidCsv: line 1: a zero byte is not text" in err


def test_a_plan_comes_through_a_pipe(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, both = tmp_path / "one.json", tmp_path / "both.json"
    assert main(["plan", str(small), "-o", str(one)]) == 0
    share = ["plan", str(small), str(small), "--share", "never-together", "-o", str(both)]
    assert main(share) == 0
    assert main(["check", str(small), piped(one.read_bytes())]) == 0
    assert main(["check", str(small), str(small), piped(both.read_bytes())]) == 0
    assert capsys.readouterr().out.count("valid") == 2


def test_tables_come_and_go_through_pipes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    feed(monkeypatch, CSV.encode())
    assert main(["pack", "-", "-o", "-"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == "id,lower,upper,size,offset"
    assert "proven minimal" in err
    assert os.listdir(tmp_path) == []
    assert main(["pack", piped(CSV.encode())]) == 0
    feed(monkeypatch, b"id,lower,upper,size\n\xff,0,1,2\n")
    assert main(["pack", "-"]) == 2
    assert "line 2: the text is not UTF-8" in capfd.readouterr().err


def test_a_plan_goes_to_stdout_and_its_report_does_not(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", str(small), "-o", "-"]) == 0
    out, err = capfd.readouterr()
    assert ap.Plan.from_json(out.encode()).arena_bytes == 128
    assert "128 bytes, proven minimal" in err
    assert os.listdir(tmp_path) == ["small.onnx"]


def test_what_does_not_fit_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(CSV)
    assert main(["pack", str(source), "--budget", "1", "-o", str(output)]) == 1
    assert not output.exists()
    assert "CapacityExceeded" in capsys.readouterr().err
    assert main(["pack", str(source), "--budget", "12B", "-o", str(output)]) == 0
    assert output.exists()


# -- options ----------------------------------------------------------------------


def test_sizes_have_units_everywhere(
    small: Path, tflite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "in.csv", str(tmp_path / "out")
    table.write_text(CSV)
    for arguments in (
        ["plan", str(small), "--budget", "1KiB", "--align", "1K"],
        ["plan", str(small), "--spaces", "a=2K,b=4K", "--align", "a=16,b=1K"],
        ["pack", str(table), "--budget", "1KiB", "--align", "4B"],
        ["export", str(small), "--to", "c", "-o", out, "--budget", "1KiB"],
        ["export", str(tflite), "--to", "tflm", "-o", out, "--budget", "1MiB"],
    ):
        assert main(arguments) in (0, 1), arguments
        assert "invalid" not in capsys.readouterr().err


@pytest.mark.parametrize("form", ["c", "csv", "json", "tflm", "tflm-shim"])
def test_an_export_that_is_too_large_is_not_written(
    form: str, tflite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    arguments = ["export", str(tflite), "--to", form, "-o", str(output), "--budget", "100"]
    assert main(arguments) == 1
    assert "CapacityExceeded: " in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["pack", "TABLE", "--time-limit", "nan"],
        ["pack", "TABLE", "--time-limit", "-1"],
        ["pack", "TABLE", "--time-limit", "inf"],
        ["pack", "TABLE", "--node-limit", "-1"],
        ["pack", "TABLE", "--seed", "-1"],
        ["pack", "TABLE", "--node-limit", "1" + "0" * 23],
        ["pack", "TABLE", "--budget", "48KB2"],
        ["run", "MODEL", "--seed", "-1"],
        ["plan", "MODEL", "--max-shapes", "-1"],
        ["plan", "MODEL", "--max-shapes", "0"],
        ["plan", "MODEL", "--match-range", "8"],
        ["classic", "MODEL", "--auto-search"],
        ["classic", "MODEL", "--strategy", "litert", "--auto-search"],
        ["plan", "MODEL", "--optimize", "all,-vews"],
        ["plan", "MODEL", "--align", "sixteen"],
        ["export", "MODEL", "--to", "c", "-o", "OUT", "--space", "bogus"],
        ["export", "MODEL", "--to", "json", "-o", "OUT", "--section", "arena=.sram"],
        ["export", "MODEL", "--to", "c", "-o", "OUT", "--always"],
        ["export", "MODEL", "--to", "c", "-o", "OUT", "--budget", "1K", "--spaces", "a=1K"],
    ],
)
def test_wrong_options_are_usage_and_no_bug(
    arguments: list[str], small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "in.csv"
    table.write_text(CSV)
    names = {"TABLE": str(table), "MODEL": str(small), "OUT": str(tmp_path / "out")}
    # Some are refused by the parser, others by the command.
    with pytest.raises(SystemExit) as caught:
        sys.exit(main([names.get(word, word) for word in arguments]))
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "bug" not in err
    assert not (tmp_path / "out").exists()


def test_an_unknown_option_shows_the_usage_of_its_command(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["pack", str(small), "--sead", "2"])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: arenaplan pack ")
    assert "unrecognized arguments: --sead 2; did you mean --seed?" in err


@pytest.mark.parametrize(
    ("words", "form", "message"),
    [
        (["plan"], "plan [OPTION]… MODEL [MODEL ...]", "required: MODEL\n"),
        (["run", "MODEL", "--runs", "0"], "run [OPTION]… MODEL", "argument --runs: "),
        (["plan", "MODEL", "--effort", "mx"], "plan [OPTION]… MODEL [MODEL ...]", "mean 'max'?"),
        ([], "[OPTION]… COMMAND …", "required: COMMAND\n"),
    ],
)
def test_a_usage_error_has_the_form_of_a_call_and_no_list_of_options(
    words: list[str], form: str, message: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(small) if word == "MODEL" else word for word in words])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: arenaplan {form}\n")
    assert message in err
    assert err.count("\n") == 3
    assert err.endswith("--help lists the options)\n")


def test_the_shape_of_an_input_is_one_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "open.onnx", batch=None)
    assert main(["plan", str(path)]) == 2
    assert "pass its shape: --bind x=1x3x224x224\n" in capsys.readouterr().err
    for command in (["plan"], ["explain"], ["inspect"], ["gate", "--spaces", "a=1MiB"]):
        assert main([*command, str(path), "--bind", "x=8x3"]) == 0
    for word in ("x=8x", "x=8x3,9x3", "=8x3"):
        with pytest.raises(SystemExit):
            main(["plan", str(path), "--bind", word])
        assert f"{word!r} is not NAME=NUMBER" in capsys.readouterr().err


def test_two_dimensions_in_one_word_are_told_apart(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["plan", str(small), "--bind", "batch=1,seq=64"])
    assert "write --bind batch=1 --bind seq=64\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["plan", str(small), "--bind", "batch=1,2,seq=1..4"])
    assert "write --bind batch=1,2 --bind seq=1..4\n" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--device", "cuda"], ["--plan", "plan.json"]])
def test_a_run_without_a_number_for_a_dimension_says_which(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "symbolic.onnx", batch="batch")
    assert main(["run", str(path), *words]) == 2
    err = capsys.readouterr().err
    assert "UnboundDim: dimension 'batch'" in err
    assert "pass --bind batch=1\n" in err


def test_a_run_without_weights_says_which_models_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = ap.Graph("bare")
    x, w = graph.input("x", (2, 2)), graph.constant("w", (2, 2))
    graph.output(*graph.node("Add", [x, w], [("y", (2, 2), "float32")]))
    path = tmp_path / "bare.json"
    path.write_text(graph.to_json())
    assert main(["run", str(path)]) == 3
    err = capsys.readouterr().err
    assert "UnsupportedModel: the file has no data of weights" in err
    assert "'w'" in err


def test_the_help_of_plan_is_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    text = capsys.readouterr().out
    titles = ["model:", "memory:", "techniques:", "search:", "output:"]
    positions = [text.index(f"\n{title}\n") for title in titles]
    assert sorted(positions) == positions


def test_an_open_dimension_is_bound_as_the_command_line_spells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "symbolic.onnx", batch="batch size")
    assert main(["plan", str(path)]) == 2
    assert "has no number; pass --bind 'batch size'=1\n" in capsys.readouterr().err


def test_a_model_without_a_plan_inside_is_usage(
    small: Path, tflite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (small, tflite):
        assert main(["check", str(path)]) == 2
        assert "the model brings no plan; pass a plan file" in capsys.readouterr().err


def test_the_verdict_on_growth_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / f"{batch}.json") for batch in (2, 200)]
    for batch, path in zip((2, 200), paths, strict=True):
        assert main(["plan", str(model(tmp_path / "m.onnx", batch=batch)), "-o", path]) == 0
    capsys.readouterr()
    assert main(["diff", *paths, "--fail-on-growth"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "FAIL: arena grew"
    assert main(["diff", *reversed(paths), "--fail-on-growth"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "OK: no arena grew"


# -- a process with odd streams ---------------------------------------------------


def shell(script: str, *arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell in which ``$0 -m arenaplan`` is the command."""
    command = ["sh", "-c", script, sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_closed_streams_are_said_and_no_bug(small: Path) -> None:
    result = shell('"$0" -m arenaplan plan "$1" >&-', small)
    assert (result.returncode, result.stderr) == (
        2, "arenaplan: stdout is closed; results have nowhere to go\n",
    )  # fmt: skip
    result = shell('"$0" -m arenaplan plan - <&-', small)
    assert result.returncode == 2
    assert "stdin is closed" in result.stderr
    result = shell('"$0" -m arenaplan plan "$1" --json -o "$1.json" 2>&-', small)
    assert result.returncode == 0
    assert json.loads(result.stdout)["arena_bytes"] == 128


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_stdout_is_one_error(small: Path) -> None:
    for option in ("", "-o -", "-o /dev/stdout"):
        result = shell(f'"$0" -m arenaplan plan "$1" {option} >/dev/full', small)
        assert result.returncode == 2, option
        assert "No space left on device" in result.stderr
        assert "Traceback" not in result.stderr
        assert "Exception ignored" not in result.stderr


def test_a_reader_that_leaves_is_no_error(small: Path) -> None:
    for option in ("-o -", "-o /dev/stdout", "--json"):
        result = shell(f'"$0" -m arenaplan plan "$1" {option} | head -c 1 >/dev/null', small)
        assert "Traceback" not in result.stderr, option
        assert "Broken" not in result.stderr, option


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.25])
def test_ctrl_c_while_importing_has_its_code(delay: float, small: Path) -> None:
    # Python itself has to start first: wait until the package imports NumPy.
    started = small.with_suffix(".started")
    hook = small.parent / "sitecustomize.py"
    hook.write_text(
        "import sys, pathlib\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpy':\n"
        f"            pathlib.Path({str(started)!r}).touch()\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "arenaplan", "plan", str(small)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(small.parent)},
    )  # fmt: skip
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    # Python's own end does not catch a signal any more; a shell says 130 there, too.
    if process.returncode in (0, -signal.SIGINT):
        assert "128 bytes" in out, "it was done before"
    else:
        # Where the imports were done before, the search said that it ends.
        assert (process.returncode, err.splitlines()[-1]) == (130, "interrupted")
        assert "Traceback" not in err


def test_ctrl_c_waits_until_an_importer_is_whole(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The extension of onnx ends the process if it is interrupted while it is imported.
    whole = []

    def imported(name: str) -> object:
        signal.raise_signal(signal.SIGINT)
        whole.append(name)
        return importlib.import_module(name)

    monkeypatch.setattr(importers, "importlib", SimpleNamespace(import_module=imported))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        importers.load(small)
    assert whole == ["arenaplan.formats.onnx"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- commands in messages --------------------------------------------------------


def said_commands(text: str) -> list[list[str]]:
    """Return the arguments of all commands that a text tells to run."""
    found = [line.split("arenaplan ", 1)[1] for line in text.splitlines() if ": arenaplan " in line]
    return [shlex.split(command) for command in found]


def test_the_command_in_a_refusal_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my models; $(x)"
    folder.mkdir()
    path, plan = folder / "a model.onnx", folder / "a plan.json"
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 16, 16])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sigmoid", ["p"], ["y"]),
    ]
    onnx.save(helper.make_model(helper.make_graph(nodes, "small", [image], [result])), path)
    bind = ["--bind", "n=3"]
    assert main(["plan", str(path), *bind, "--target", "ideal", "-o", str(plan)]) == 0
    export = ["export", str(path), *bind, "--plan", str(plan), "--to", "c", "-o"]
    capsys.readouterr()
    assert main([*export, str(folder / "plan.h")]) == 1
    monkeypatch.chdir(tmp_path)
    (command,) = said_commands(capsys.readouterr().err.replace("with: arenaplan", ": arenaplan"))
    assert main(command) == 0
    assert main([*export, str(folder / "plan.h")]) == 0


def test_the_commands_in_notes_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a model.tflite"
    path.write_bytes(flat.write(flat.fragmented()))
    assert main(["plan", str(path)]) == 0
    monkeypatch.chdir(tmp_path)
    commands = said_commands(capsys.readouterr().out)
    assert commands
    for command in commands:
        assert main(command) == 0
    assert (tmp_path / "a model.planned.tflite").exists()


def test_an_export_names_the_scope_of_its_proof(
    small: Path, tflite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(small), "--to", "c", "-o", str(tmp_path / "plan.h")]) == 0
    assert "proven minimal for these steps in" in capsys.readouterr().out
    assert main(["export", str(tflite), "--to", "tflm", "-o", str(tmp_path / "m.tflite")]) == 0
    assert "proven minimal for these operators in this order" in capsys.readouterr().out


def test_a_plan_may_end_early_by_a_limit(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(small), "--time-limit", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arena_bytes"] > 0


def test_help_imports_neither_arrays_nor_models() -> None:
    code = (
        "import contextlib, io, sys\n"
        "from arenaplan.cli import main\n"
        "from arenaplan.cli.syntax import COMMANDS\n"
        "unused = 'numpy onnx asyncio'.split() + ['arenaplan.' + name for name in "
        "'deploy formats graph.graph graph.ops planner.planning report run.numpy tflite train'"
        ".split()]\n"
        "def found(*words):\n"
        "    out = io.StringIO()\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):\n"
        "        main([*words, '--help'])\n"
        "    assert 'usage: arenaplan' in out.getvalue()\n"
        "    own = [f'arenaplan.cli.{name}' for name in COMMANDS]\n"
        "    return sorted({*unused, *own} & set(sys.modules))\n"
        "print([found(), *(found(name) for name in COMMANDS)])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == [[]] * (1 + len(COMMANDS))


def test_every_name_of_the_package_is_there() -> None:
    for name in ap.__all__:
        assert getattr(ap, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        ap.no_such_name  # noqa: B018
