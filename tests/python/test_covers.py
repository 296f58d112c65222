"""What a plan covers: nothing says yes for less than the whole model."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap
import flat
from arenaplan.base import errors, model_files
from arenaplan.cli import main
from arenaplan.cli.syntax import COMMANDS
from arenaplan.deploy.export import EXPORTERS
from arenaplan.formats import open_partial
from arenaplan.formats.partial import NOTHING_KNOWN
from arenaplan.report.batch.jobs import Job, run_job
from arenaplan.run.dynamic.model_stages import NOTHING_DONE, stage_graph
from arenaplan.tflite import files
from raising import raises
from strip_models import random_network
from test_spaces import sealed

SMALL = 4
"""Columns of what is planned ahead; behind it there are many more."""


def _onnx(path: Path, nodes: list[Any], weights: dict[str, Any], inputs: dict[str, Any]) -> Path:
    """Write a model of which some nodes wait for data."""
    declared = [helper.make_tensor_value_info(name, *facts) for name, facts in inputs.items()]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(np.asarray(each), name) for name, each in weights.items()]
    graph = helper.make_graph(nodes, path.stem, declared, made, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64
_X = {"x": (_FLOAT, [64, SMALL])}
_TAIL = [helper.make_node("MatMul", ["h", "w"], ["y"])]
_WIDE = {"w": np.zeros((SMALL, 4096), np.float32)}


def _nonzero(path: Path) -> Path:
    steps = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["at"]),
        helper.make_node("Transpose", ["at"], ["pairs"], perm=[1, 0]),
        helper.make_node("GatherND", ["a", "pairs"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "one"], ["column"]),
        helper.make_node("MatMul", ["column", "w"], ["y"]),
    ]
    weights = {"one": np.array([1]), "w": np.zeros((1, 65536), np.float32)}
    return _onnx(path, steps, weights, _X)


def _compress(path: Path) -> Path:
    steps = [helper.make_node("Compress", ["x", "keep"], ["h"], axis=0), *_TAIL]
    return _onnx(path, steps, _WIDE, {**_X, "keep": (TensorProto.BOOL, [64])})


def _reshape(path: Path) -> Path:
    steps = [helper.make_node("Reshape", ["x", "sizes"], ["h"]), *_TAIL]
    return _onnx(path, steps, _WIDE, {**_X, "sizes": (_INT, [2])})


def _expand(path: Path) -> Path:
    steps = [helper.make_node("Expand", ["x", "sizes"], ["h"]), *_TAIL]
    row = {"x": (_FLOAT, [1, SMALL]), "sizes": (_INT, [2])}
    return _onnx(path, steps, _WIDE, row)


def _signatures(path: Path, *, tiny_first: bool = True) -> Path:
    def body(elements: int) -> Any:
        tensors = [flat.tensor(name, (1, elements)) for name in ("x", "m", "y")]
        return flat.subgraph(
            tensors, [flat.operator(0, [0], [1]), flat.operator(0, [1], [2])], [0], [2]
        )

    sizes = [8, 4096] if tiny_first else [4096, 8]
    keys = ["encode", "decode"] if tiny_first else ["decode", "encode"]
    signatures = [
        {
            0: [{0: "x", 1: flat.Number("I", 0)}],
            1: [{0: "y", 1: flat.Number("I", 2)}],
            2: key,
            4: flat.Number("I", number),
        }
        for number, key in enumerate(keys)
    ]
    root = flat.model([flat.code("TANH")], [body(size) for size in sizes], signatures=signatures)
    path.write_bytes(flat.write(root))
    return path


def _uncalled(path: Path) -> Path:
    one = [flat.tensor(name, (1, 8)) for name in ("x", "y")]
    two = [flat.tensor(name, (1, 4096)) for name in ("x", "y")]
    graphs = [flat.subgraph(each, [flat.operator(0, [0], [1])], [0], [1]) for each in (one, two)]
    path.write_bytes(flat.write(flat.model([flat.code("TANH")], graphs)))
    return path


def _graph_file(path: Path) -> Path:
    """A graph file of a part, as ``export --to graph`` writes it."""
    found = open_partial(_reshape(path.with_name("of.onnx")))(NOTHING_KNOWN)
    stage_graph(found, NOTHING_DONE).graph.save(path)
    return path


PARTS: dict[str, Callable[[Path], Path]] = {
    "nonzero.onnx": _nonzero,
    "compress.onnx": _compress,
    "reshape.onnx": _reshape,
    "expand.onnx": _expand,
    "signatures.tflite": _signatures,
    "uncalled.tflite": _uncalled,
    "part.graph.json": _graph_file,
}
"""Models of which a part is planned, by file."""

TARGETS = {
    ".onnx": ("numpy", "nodes", "ideal", "c"),
    ".tflite": ("numpy", "litert", "nodes", "ideal", "c"),
    ".json": ("nodes", "ideal", "c"),
}

ASKED = [(name, target) for name in PARTS for target in TARGETS[Path(name).suffix]]


@pytest.fixture(params=ASKED, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def part(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A file of which a part is planned, and a target."""
    name, target = request.param
    return PARTS[name](tmp_path / name), target


def _said(printed: pytest.CaptureResult[str]) -> str:
    return printed.out + printed.err


def _judge(line: list[object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command; what it prints must not claim a proof."""
    code = main([str(word) for word in line])
    printed = _said(capsys.readouterr())
    for claim in ("proven minimal", '"optimal"', "optimal (verified)", '"passed": true', "✅"):
        assert claim not in printed, line
    return code, printed


YES = {
    "gate": ["--budget", "1GiB"],
    "plan --budget": ["--budget", "1GiB"],
    "plan --spaces": ["--spaces", "sram=1GiB"],
    "plan --with-graph": ["--with-graph", "-o"],
    "plan --share": ["--share", "concurrent"],
    "export": ["--to", "csv", "-o"],
}
"""Questions whose only good answer is no."""


@pytest.mark.parametrize("question", YES)
def test_no_command_says_yes_for_a_part(
    question: str, part: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = part
    command, options = question.split()[0], list(YES[question])
    if path.suffix == ".tflite" and question in ("gate", "plan --budget", "plan --spaces"):
        assert main([command, str(path), "--target", target, *options]) == 0  # Of each signature.
        return
    if options[-1] == "-o":
        options.append(str(tmp_path / "out"))
    sources = [path, path] if "--share" in options else [path]
    code, printed = _judge([command, *sources, "--target", target, *options], capsys)
    if "--share" in options and path.suffix == ".onnx":
        assert code == 2, printed  # Models that share an arena are read as a whole.
    elif "--with-graph" in options and path.suffix == ".tflite":
        assert code == 2, printed
        assert "--signature" in printed
    else:
        assert code == (1 if command == "gate" else 3), printed
        assert "is planned in part" in printed
    assert not (tmp_path / "out").exists()


REPORTS = {
    "plan": [],
    "plan --json": ["--json"],
    "inspect": [],
    "inspect --json": ["--json"],
    "explain --json": ["--json"],
    "explain": [],
    "map": ["--to", "json", "-o", "-"],
}
"""Reports, which say what they are of."""


@pytest.mark.parametrize("report", REPORTS)
def test_every_report_says_what_it_covers(
    report: str, part: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = part
    if path.suffix == ".tflite" and report.startswith("plan"):
        return  # Of each signature, see below.
    line = [report.split()[0], path, "--target", target, *REPORTS[report]]
    code, printed = _judge(line, capsys)
    assert code == 0, printed
    if "--json" in line:
        covers = json.JSONDecoder().raw_decode(printed)[0]["covers"]
        assert not covers["whole"]
        assert covers["waiting"] or covers["others"]
    else:
        assert "covers" in printed
        assert "ahead of" in printed or "signature" in printed


def test_every_command_is_asked_or_answers_for_no_model() -> None:
    asked = {question.split()[0] for question in (*YES, *REPORTS)}
    # What runs, compares or rewrites files, and asks no question about the size of a model.
    others = {
        "batch", "check", "classic", "completion", "diff", "fit", "measure", "pack", "prove",
        "recompute", "run", "targets",
    }  # fmt: skip
    assert asked | others >= set(COMMANDS)


def test_files_carry_what_they_cover(
    part: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = part
    if path.suffix == ".tflite":
        return  # A plan file is of a signature that was chosen.
    file = tmp_path / "p.json"
    assert main(["plan", str(path), "--target", target, "-o", str(file)]) == 0
    plan = ap.Plan.load(file)
    assert not plan.covers.is_whole
    assert plan.status != "optimal"
    capsys.readouterr()
    code, printed = _judge(["check", path, file], capsys)
    assert code == 0
    assert "covers" in printed
    document = json.loads(file.read_text())
    del document["covers"]
    document["status"] = document["spaces"][0]["status"]
    forged = tmp_path / "forged.json"
    forged.write_bytes(sealed(document))
    assert main(["check", str(path), str(forged)]) == 1
    assert "the graph has" in capsys.readouterr().err
    assert main(["diff", str(file), str(file), "--fail-on-growth"]) == 3


def _part() -> ap.Graph:
    graph = ap.Graph("part")
    x = graph.input("x", (64,), "uint8")
    (y,) = graph.node("Op", [x], [("y", (64,), "uint8")])
    graph.output(y)
    graph.covers = type(graph.covers)(["gather"], ["'gather' waits for 'i'"], "", [])
    return graph


def test_python_refuses_a_part_wherever_the_whole_is_asked_for() -> None:
    graph = _part()
    plan = ap.plan(graph)
    assert plan.status == "unknown"
    assert str(plan.covers) == "the nodes ahead of 1 other (gather)"
    with pytest.raises(errors.PartOfModel, match="'part' is planned in part") as caught:
        ap.plan(graph, budget="1GiB")
    assert caught.value.plan is not None
    with pytest.raises(errors.PartOfModel):
        ap.Model("part", [], [([], graph, plan)])
    with pytest.raises(errors.PartOfModel):
        ap.plan_together([graph, graph], "never-together")
    assert not ap.report.gate(graph, budget="1GiB")
    assert not ap.report.gate(graph, baseline=plan)
    read = ap.Graph.from_json(graph.to_json())
    assert read.covers == graph.covers
    assert read.digest == graph.digest
    assert ap.Plan.from_json(plan.to_json().encode()).covers == plan.covers
    whole = _part()
    whole.covers = ap.Graph().covers
    assert whole.digest != graph.digest
    with raises("PlanMismatch"):
        plan.check(whole)
    with pytest.raises(errors.CapacityExceeded):
        ap.plan(graph, budget=64)  # Too large is too large, whatever the rest is.


def test_a_model_file_of_a_part_is_refused_by_its_readers() -> None:
    whole = _part()
    whole.covers = ap.Graph().covers
    text = ap.Model("part", [], [([], whole, ap.plan(whole))]).to_json()
    graph = _part()
    document = json.loads(text)
    for name, made in (("graphs", graph), ("plans", ap.plan(graph))):
        row = json.loads(made.to_json())
        document[name][0]["document"] = row
    document["shapes"][0]["digest"] = graph.digest
    forged = json.dumps(document)
    with pytest.raises((errors.PartOfModel, errors.ModelError)):
        ap.Model.from_json(forged)


@pytest.mark.parametrize("tiny_first", [True, False])
def test_the_total_of_the_runtime_is_that_of_the_whole_file(
    tiny_first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _signatures(tmp_path / "two.tflite", tiny_first=tiny_first)
    line = ["plan", str(path), "--target", "tflm", "--json"]
    assert main(line) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] != "optimal"
    total = document["runtime"]["total"]
    assert total > 32768
    gate = ["gate", str(path), "--target", "tflm", "--budget"]
    assert main([*gate, str(total - 16)]) == 1
    assert main([*gate, str(total)]) == 0


# -- signatures ------------------------------------------------------------------------

NAMES = {"signatures.tflite": ("encode", "decode"), "uncalled.tflite": ("subgraph 0", "subgraph 1")}


@pytest.mark.parametrize("tiny_first", [True, False])
def test_a_batch_has_the_bytes_of_the_largest_signature(tiny_first: bool, tmp_path: Path) -> None:
    path = _signatures(tmp_path / "two.tflite", tiny_first=tiny_first)
    out = tmp_path / "report.jsonl"
    assert main(["batch", str(path), "-o", str(out), "--processes", "1"]) == 0
    row = json.loads(out.read_text())
    assert (row["arena_bytes"], row["status"], row["covers"]) == (32768, "optimal", "")


READERS = {
    "plan": [[], ["--budget", "1GiB"], ["--pointer", "32"], ["--target", "c", "--json"]],
    "gate": [["--budget", "1GiB"], ["--budget", "1"]],
    "explain": [[]],
    "inspect": [[]],
    "run": [[]],
    "export": [["-o", "{out}", "--to", form] for form in EXPORTERS],
    "fit": [["-o", "{out}"], ["-o", "{out}", "--to", "c-code"]],
    "map": [["-o", "{out}.html"]],
    "batch": [[]],
}
"""Commands that read a model, with options."""


@pytest.mark.parametrize("command", READERS)
def test_a_command_reads_a_file_once_and_walks_a_signature_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures in a report are of one content, even if the file changes meanwhile."""
    one, two = tmp_path / "one.tflite", _signatures(tmp_path / "two.tflite")
    one.write_bytes(random_network(1))
    opened: list[object] = []
    walked: list[str] = []
    opener, walk = model_files._open_at_once, files.TfliteWalk

    def counted(path: str, flags: int) -> int:
        opened.append(path)
        return opener(path, flags)

    def walking(model: Any, name: str, *given: Any) -> Any:
        walked.extend([name] if name else [])  # Other orders of operators are of no file.
        return walk(model, name, *given)

    monkeypatch.setattr(model_files, "_open_at_once", counted)
    monkeypatch.setattr(files, "TfliteWalk", walking)
    for path, options in itertools.product((one, two), READERS[command]):
        opened.clear()
        walked.clear()
        words = [word.format(out=tmp_path / "out") for word in options]
        if command == "batch":  # The command has a process for it.
            run_job(Job(str(path)))
        else:
            main([command, str(path), *words])
        assert len(opened) == 1, words
        assert len(walked) == len(set(walked)), words


@pytest.mark.parametrize("target", TARGETS[".tflite"])
@pytest.mark.parametrize("name", NAMES)
def test_each_signature_is_planned_and_the_largest_counts(
    name: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, (small, large) = PARTS[name](tmp_path / name), NAMES[name]
    graphs = [ap.load(path, signature=each) for each in (small, large)]
    assert [str(graph.covers) for graph in graphs] == ["the whole model"] * 2
    needed = [ap.plan(graph, target=target).arena_bytes for graph in graphs]
    line = ["plan", str(path), "--target", target]
    assert main([*line, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["arena_bytes"] == max(needed) == needed[1]
    assert document["signatures"] == dict(zip((small, large), needed, strict=True))
    assert document["covers"]["part"] == f"signature {large!r}"
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert f"{needed[0]:,}  {small}" in printed
    assert f"{needed[1]:,}  {large}" in printed
    gate = ["gate", str(path), "--target", target, "--budget"]
    assert main([*gate, str(needed[1] - 1)]) == 1
    assert main([*gate, str(needed[1])]) == 0
    assert main([*gate, str(needed[0]), "--signature", small]) == 0
    assert main([*line, "--budget", str(needed[0])]) == 1
    assert main([*line, "--budget", str(needed[0]), "--signature", small]) == 0


@pytest.mark.parametrize("command", ["inspect", "explain", "classic --strategy litert", "run"])
def test_every_command_takes_the_signature_that_is_chosen(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _signatures(tmp_path / "two.tflite")
    word, *options = command.split()
    for name in ("encode", "decode"):
        line = [word, str(path), *options, "--signature", name, "--json"]
        assert main(line) == 0
        document = json.JSONDecoder().raw_decode(capsys.readouterr().out)[0]
        assert document["covers"]["signature"] == name
        assert document["covers"]["whole"]
    assert main([word, str(path), *options, "--signature", "decod"]) == 2
    assert "did you mean 'decode'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "code"),
    [("c", 0), ("csv", 0), ("hazards-c", 0), ("tflm", 3), ("graph", 0), ("c-code", 0)],
)
def test_exports_and_files_are_of_the_signature_that_is_chosen(
    form: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = _signatures(tmp_path / "two.tflite"), tmp_path / "out"
    chosen = ["--signature", "decode"]
    assert main(["export", str(path), *chosen, "--to", form, "-o", str(out)]) == code
    if form == "c":
        assert "TWO_DECODE_ARENA_BYTES UINT64_C(32768)" in out.read_text()
    plan = tmp_path / "plan.json"
    assert main(["plan", str(path), *chosen, "-o", str(plan)]) == 0
    assert ap.Plan.load(plan).covers.signature == "decode"
    assert main(["check", str(path), str(plan), *chosen]) == 0
    assert main(["check", str(path), str(plan)]) == 1
    capsys.readouterr()


def test_only_tflite_files_have_signatures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _reshape(tmp_path / "one.onnx")
    assert main(["plan", str(path), "--signature", "decode"]) == 2
    assert "have no signatures" in capsys.readouterr().err


# -- operators that nothing is known of ------------------------------------------------


@pytest.mark.parametrize("domain", ["", "acme", "com.microsoft"])
@pytest.mark.parametrize("command", ["plan", "gate --budget 1GiB", "run", "explain", "inspect"])
def test_an_unknown_operator_that_reads_integers_decides_nothing(
    domain: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [helper.make_node("Mine", ["x", "i"], ["h"], domain=domain), *_TAIL]
    path = tmp_path / "unknown.onnx"
    declared = [
        helper.make_tensor_value_info(name, *facts)
        for name, facts in {**_X, "i": (_INT, [2])}.items()
    ]
    made = [helper.make_tensor_value_info("y", _FLOAT, None)]
    stored = [numpy_helper.from_array(each, name) for name, each in _WIDE.items()]
    graph = helper.make_graph(steps, "g", declared, made, stored)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(domain or "other", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    path.write_bytes(model.SerializeToString())
    name, *options = command.split()
    code, printed = _judge([name, path, *options], capsys)
    assert code in (2, 3)
    assert "Mine" in printed


PLANNING = ["plan", "gate --budget 1GiB", "explain", "inspect", "map -o -"]
"""Commands that plan."""


def _with_own_operator(path: Path) -> Path:
    """Write a model with an operator of nobody whose result has a declared shape."""
    steps = [helper.make_node("Mine", ["x"], ["h"], "my own", domain="acme"), *_TAIL]
    path = _onnx(path, steps, _WIDE, _X)
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    model.graph.value_info.append(helper.make_tensor_value_info("h", *_X["x"]))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("target", ["numpy", "cupy", "c-code"])
@pytest.mark.parametrize("command", [*PLANNING, "export --to csv -o -", "plan --share concurrent"])
def test_no_plan_is_for_a_runner_without_a_kernel(
    command: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _with_own_operator(tmp_path / "mine.onnx")
    name, *options = command.split()
    models = [path, path] if "--share" in options else [path]
    code, printed = _judge([name, *models, "--target", target, *options], capsys)
    assert code == 3, printed
    assert "my own" in printed
    assert main([name, *map(str, models), "--target", "nodes", *options]) == 0


_REFUSED = """
import sys, arenaplan as ap
for target in sys.argv[2:]:
    try:
        ap.plan(ap.load(sys.argv[1]), target=target)
    except ap.PlannerError as error:
        print(target, error.kind)
"""


def test_a_program_that_never_imports_the_command_line_is_refused_the_same_targets(
    tmp_path: Path,
) -> None:
    path = str(_with_own_operator(tmp_path / "mine.onnx"))
    names = [target.name for target in ap.targets()]
    program = [sys.executable, "-c", _REFUSED, path, *names]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"c-code UnsupportedOp", "numpy UnsupportedOp"} <= {*said}
    refused = {name for name in names if main(["plan", path, "--target", name]) != 0}
    assert {line.split()[0] for line in said} == refused


@pytest.mark.parametrize("command", PLANNING)
def test_the_runtime_for_tflite_files_plans_for_no_other_format(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [helper.make_node("Relu", ["x"], ["y"])]
    path = _onnx(tmp_path / "small.onnx", steps, {}, _X)
    name, *options = command.split()
    code, printed = _judge([name, path, "--target", "tflm", *options], capsys)
    assert code == 3, printed
    assert ".tflite" in printed


@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "SVDF"])
@pytest.mark.parametrize("command", ["plan", "gate --budget 1GiB", "export --to c -o -"])
def test_files_that_the_runtime_refuses_are_refused(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = [
        flat.tensor("x", (1, 4, 4, 4)),
        flat.tensor("w", (4, 1, 1, 4), flat.INT8, buffer=1),
        flat.tensor("y", (1, 4, 4, 4)),
    ]
    graph = flat.subgraph(tensors, [flat.operator(0, [0, 1], [2])], [0], [2])
    root = flat.model([flat.code(name)], [graph], [b"", bytes(16)])
    path = tmp_path / "hybrid.tflite"
    path.write_bytes(flat.write(root))
    word, *options = command.split()
    code, printed = _judge([word, path, "--target", "tflm", *options], capsys)
    assert code == 3, printed
    assert f"{name}_0" in printed
