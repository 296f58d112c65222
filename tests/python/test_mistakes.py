"""Mistakes of users: each ends with a typed error that names the culprit, and with a cure."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import kinds
from arenaplan.cli import main
from file_forms import DOORBELL, windows


def one_node() -> ap.Graph:
    """Return a graph of one node."""
    graph = ap.Graph("one")
    x = graph.input("x", (4,))
    (y,) = graph.node("Neg", [x], [("y", (4,), "float32")])
    graph.output(y)
    return graph


def with_input(name: Any, shape: Any, dtype: Any = "float32") -> ap.Plan:
    """Return the plan of a graph that is its input."""
    graph = ap.Graph()
    graph.output(graph.input(name, shape, dtype))
    return ap.plan(graph)


def pinned(value: int, offset: Any) -> ap.Plan:
    """Return the plan of a graph with a pin."""
    graph = one_node()
    graph.pin(value, offset)
    return ap.plan(graph)


def with_effects(**effects: Any) -> None:
    """Append a node with effects."""
    graph = ap.Graph()
    graph.node("Op", [graph.input("x", (4,))], [("y", (4,), "float32")], name="op", **effects)


def run(inputs: Any) -> Any:
    """Run the graph of one node."""
    return ap.Executor(one_node()).run(inputs)


def descent(lr: Any = 0.1, **replaced: Any) -> Any:
    """Append updates to a graph of one parameter, after some fields were replaced."""
    graph = ap.Graph()
    w = graph.parameter("w", np.ones(3, np.float32))
    loss = ap.train.operators(graph).ReduceSumSquare(w, keepdims=0)
    train = ap.train.gradient(graph, of=loss, wrt=[w])
    return ap.train.sgd(replace(train, **replaced), lr=lr)


def packed(buffer: Any, **options: Any) -> ap.Packing:
    """Return the packing of one buffer of a problem."""
    return ap.Problem([buffer], **options).pack()


def damaged(change: Callable[[dict[str, Any]], object]) -> ap.Diff:
    """Return the differences between a plan and a changed report of the plan."""
    plan = ap.plan(one_node())
    report = ap.report.report_of(plan, one_node())
    change(report)
    return ap.diff(plan, report)


ANY: Any = ap
"""The package without its types, which mistakes have not."""

MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    # What is done; the class of the error; words of the message, the culprit among them.
    "technique": (lambda: ap.plan(one_node(), optimize="vews"), "InvalidOption", "'vews'.*'views'"),
    "techniques": (lambda: ANY.plan(one_node(), optimize=5), "InvalidOption", "optimize: 5"),
    "left out": (lambda: ap.plan(one_node(), optimize="all,-vews"), "InvalidOption", "'vews'"),
    "all and none": (lambda: ap.plan(one_node(), optimize="all,none"), "InvalidOption", "'none'"),
    "effort": (lambda: ANY.plan(one_node(), effort="high"), "InvalidOption", "'high'.*fast"),
    "no effort": (lambda: ANY.plan(one_node(), effort=None), "InvalidOption", "None.*fast"),
    "inputs": (lambda: ANY.plan(one_node(), inputs="in"), "InvalidOption", "inputs: .*'in'"),
    "outputs": (lambda: ANY.plan(one_node(), outputs="x"), "InvalidOption", "'x'.*caller"),
    "workspace": (lambda: ANY.plan(one_node(), workspace="x"), "InvalidOption", "'x'.*auto"),
    "target": (lambda: ap.plan(one_node(), target="tfml"), "InvalidOption", "'tfml'"),
    "target type": (lambda: ANY.plan(one_node(), target=5), "InvalidOption", "target: 5"),
    "option": (lambda: ANY.plan(one_node(), algnment=5), "InvalidOption", "'alignment'"),
    "alignment": (lambda: ap.plan(one_node(), alignment=3), "InvalidAlignment", "3"),
    "alignment text": (lambda: ANY.plan(one_node(), alignment="64"), "InvalidOption", "'64'"),
    "workers": (lambda: ap.plan(one_node(), workers=0), "InvalidOption", "workers: 0"),
    "budget": (lambda: ap.plan(one_node(), budget="48 apples"), "InvalidSize", "'48 apples'"),
    "half a byte": (lambda: ap.plan(one_node(), budget="1.3"), "InvalidSize", "'1.3'"),
    "budget type": (lambda: ANY.plan(one_node(), budget=1.5), "InvalidOption", "budget is 1.5"),
    "goal": (lambda: ap.plan(one_node(), recompute="much"), "InvalidSize", "'much'"),
    "steps": (lambda: ap.plan(one_node(), steps=[[5]]), "InvalidOption", "steps"),
    "step": (lambda: ANY.plan(one_node(), steps="ab"), "InvalidOption", "steps: 'ab'"),
    "step below": (lambda: ap.plan(one_node(), steps=[[-1]]), "InvalidOption", "-1"),
    "strips": (lambda: ANY.plan(one_node(), strips=[5]), "InvalidOption", "strips: 5"),
    "spaces": (
        lambda: ANY.plan(one_node(), target="nodes", spaces=["a"]),
        "InvalidOption",
        "'a' is not a Space",
    ),
    "number for spaces": (
        lambda: ANY.plan(one_node(), target="nodes", spaces=5),
        "InvalidOption",
        "spaces: 5",
    ),
    "list of pins": (
        lambda: ANY.plan(one_node(), target="nodes", spaces="a=1K,b=1K", pins=["x"]),
        "InvalidOption",
        r"pins: \['x'\]",
    ),
    "text for a switch": (
        lambda: ANY.plan(one_node(), parallel_safe="no"),
        "InvalidOption",
        "parallel_safe: 'no'",
    ),
    "options": (lambda: ANY.plan(one_node(), {"effort": "fast"}), "InvalidOption", "'effort'"),
    "progress": (lambda: ANY.plan(one_node(), on_progress=5), "InvalidOption", "on_progress: 5"),
    "path of a plan": (lambda: ANY.Executor(one_node(), "p.json"), "InvalidOption", "'p.json'"),
    "ragged input": (lambda: run({"x": [[1], [2, 3]]}), "InputMismatch", "'x' is no array"),
    "one graph together": (
        lambda: ANY.plan_together(one_node(), "concurrent"),
        "InvalidOption",
        "graphs",
    ),
    "changes": (lambda: ANY.report.what_if(one_node(), by="x"), "InvalidOption", "by: 'x'"),
    "baseline": (lambda: ANY.report.gate(one_node(), baseline=5), "BaselineError", "'int'"),
    "growth": (
        lambda: ANY.report.gate(one_node(), budget=1, allow_growth=1.5),
        "InvalidOption",
        "1.5",
    ),
    "bind of a family": (lambda: ANY.plan_family(windows(), bind=5), "InvalidOption", "bind: 5"),
    "no list of parameters": (
        lambda: ANY.train.gradient(one_node(), of=1, wrt=0),
        "InvalidOption",
        "values: 0",
    ),
    "steps type": (lambda: ANY.plan(one_node(), steps=5), "InvalidOption", "steps: 5"),
    "time": (lambda: ap.plan(one_node(), time_limit=-1), "InvalidOption", "time_limit: -1"),
    "time type": (lambda: ANY.plan(one_node(), time_limit="x"), "InvalidOption", "'x'"),
    "pins": (
        lambda: ap.plan(one_node(), target="nodes", spaces="a=1K,b=1K", pins={"q*": "a"}),
        "InvalidOption",
        r"'q\*'",
    ),
    "nothing": (lambda: ANY.plan(None), "InvalidOption", "'NoneType'"),
    "array for a graph": (lambda: ANY.explain(np.zeros(3)), "InvalidOption", "'ndarray'"),
    "loading nothing": (lambda: ANY.load(None), "InvalidOption", "'NoneType'"),
    "bind": (lambda: ap.load(windows(), bind=ANY), "InvalidOption", "option bind"),
    "bind text": (lambda: ANY.load(windows(), bind={"x": "2x3"}), "InvalidOption", "'2x3'"),
    "bind name": (lambda: ap.load(windows(), bind={"z": 1}), "UnknownDim", "'z'"),
    "difference": (lambda: ANY.diff(5, 6), "InvalidOption", "'int'"),
    "inputs as array": (lambda: run(np.zeros(4, "float32")), "InputMismatch", "{'x': array}"),
    "inputs as list": (lambda: run([np.zeros(4)]), "InputMismatch", "{'x': array}"),
    "no inputs": (lambda: run(None), "InputMismatch", "{'x': array}"),
    "wrong input": (lambda: run({"z": np.zeros(4)}), "InputMismatch", "'z'.*'x'"),
    "wrong type": (lambda: run({"x": np.zeros(4)}), "InputMismatch", "float64, not float32"),
    "wrong shape": (
        lambda: run({"x": np.zeros(5, "float32")}),
        "InputMismatch",
        r"\(5,\), not \(4,\)",
    ),
    "trainer of a graph": (
        lambda: ANY.train.Trainer(one_node()),
        "InvalidOption",
        r"train\.gradient",
    ),
    "text for a rate": (lambda: descent(lr="0.1"), "InvalidOption", "lr: '0.1'"),
    "truth for a rate": (lambda: descent(lr=True), "InvalidOption", "lr: True"),
    "rates": (lambda: descent(lr=np.ones(3)), "InvalidOption", "lr"),
    "fewer gradients": (lambda: descent(gradients=()), "InvalidOption", "0 gradients"),
    "other gradients": (lambda: descent(gradients=(0,)), "UndefinedValue", "value 0"),
    "descent of a graph": (lambda: ANY.train.sgd(one_node()), "InvalidOption", "gradient"),
    "adam of a graph": (lambda: ANY.train.adam(one_node()), "InvalidOption", "gradient"),
    "element type": (lambda: with_input("x", (4,), "floaty"), "UnsupportedDtype", "'floaty'"),
    "no element type": (lambda: with_input("x", (4,), None), "UnsupportedDtype", "'x'"),
    "number as a type": (
        lambda: with_input("x", (4,), 5),
        "UnsupportedDtype",
        "value 'x' has the element type 5",
    ),
    "shape": (lambda: with_input("x", 5), "InvalidDim", "'x' is 5"),
    "dimension": (lambda: with_input("x", ("a",)), "InvalidOption", "'x' is 'a'"),
    "pin below": (lambda: pinned(0, -5), "PinConflict", "-5"),
    "pin above": (lambda: pinned(0, 2**64), "PinConflict", str(2**64)),
    "half a pin": (lambda: pinned(0, 1.5), "InvalidOption", "1.5"),
    "pin of nothing": (lambda: pinned(77, 0), "InvalidOption", "77"),
    "workspaces": (lambda: with_effects(workspaces=[5]), "InvalidEffect", "'op'"),
    "in place": (lambda: with_effects(in_place=[5]), "InvalidEffect", "'op'"),
    "place of nothing": (lambda: ap.plan(one_node())["q"], "UndefinedValue", "'q'"),
    "small arena": (
        lambda: ap.Executor(one_node(), arena=bytearray(3)),
        "CapacityExceeded",
        "3 bytes",
    ),
    "gate": (lambda: ap.report.gate(one_node()), "InvalidOption", "budget"),
    "buffer": (lambda: ap.pack([-5], [(0, 2)]), "InvalidSize", "-5"),
    "live range": (lambda: ap.pack([5], [(2, 2)]), "InvalidLiveRange", "2"),
    "size of a buffer": (lambda: packed(ap.Buffer(-5, (0, 2))), "InvalidSize", "-5"),
    "largest buffer": (lambda: packed(ap.Buffer(1 << 63, (0, 2))), "InvalidSize", str(1 << 63)),
    "alignment of buffers": (
        lambda: ap.pack([5], [(0, 2)], alignment=0),
        "InvalidAlignment",
        "alignment 0 is not a number from 1",
    ),
    "largest alignment": (
        lambda: ap.pack([5], [(0, 2)], alignment=1 << 64),
        "InvalidAlignment",
        str(1 << 64),
    ),
    "two capacities": (
        lambda: packed(ap.Buffer(5, (0, 2)), capacity=8, spaces=[ap.Space("a")]),
        "InvalidOption",
        "capacity: the spaces",
    ),
    "space twice": (
        lambda: packed(ap.Buffer(5, (0, 2)), spaces=[ap.Space("a"), ap.Space("a")]),
        "InvalidOption",
        "the same name",
    ),
    "reserved": (
        lambda: packed(ap.Buffer(5, (0, 2)), reserved={"b": [(0, 1)]}),
        "InvalidOption",
        "'b'",
    ),
    "gap": (
        lambda: packed(ap.Buffer(5, (0, 4), gaps=[(2, 2)])),
        "InvalidBuffer",
        r"gap \(2, 2\) has no steps",
    ),
    "bytes of a gap": (
        lambda: packed(ap.Buffer(5, (0, 4), gaps=[(2, 3, 4, 2)])),
        "InvalidBuffer",
        r"gap \(2, 3, 4, 2\)",
    ),
    "text for spaces": (
        lambda: ANY.Problem([ANY.Buffer(5, (0, 2), spaces="ab")]).pack(),
        "InvalidBuffer",
        "spaces is a text",
    ),
    "pin of a buffer": (
        lambda: packed(ap.Buffer(5, (0, 2), offset=1 << 63)),
        "PinConflict",
        "past any memory",
    ),
    "recomputation in spaces": (
        lambda: ap.plan(one_node(), recompute="50%", target="nodes", spaces="a=1K,b=1K"),
        "InvalidOption",
        "recompute: .*spaces",
    ),
    "spaces together": (
        lambda: ap.plan_together([one_node()], "concurrent", target="nodes", spaces="a=1K,b=1K"),
        "InvalidOption",
        "spaces: graphs share one arena",
    ),
    "explanation of spaces": (
        lambda: ap.explain(one_node(), target="nodes", spaces="a=1K,b=1K"),
        "InvalidOption",
        "one arena",
    ),
    "another document": (
        lambda: damaged(lambda report: report.update(format="other")),
        "BaselineError",
        "not a plan report",
    ),
    "curves of a report": (
        lambda: damaged(lambda report: report.update(curves=[])),
        "BaselineError",
        "a space has no curve",
    ),
    "name in a report": (
        lambda: damaged(lambda report: report.update(model=5)),
        "BaselineError",
        "5 is not a name",
    ),
    "bytes in a report": (
        lambda: damaged(lambda report: report["spaces"][0].update(arena_bytes=-1)),
        "BaselineError",
        "-1 is not a number of bytes",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_python_is_typed_names_the_culprit_and_has_a_cure(mistake: str) -> None:
    do, kind, words = MISTAKES[mistake]
    with pytest.raises(kinds()[kind].of, match=words) as caught:
        do()
    assert caught.value.kind == kind
    assert len(caught.value.cure) > 10
    assert not caught.value.cure.startswith("See")


def test_every_kind_of_error_has_a_cure() -> None:
    for name, kind in kinds().items():
        assert kind.of("", kind=name).cure


def test_paths_are_taken_wherever_a_graph_is(tmp_path: Path) -> None:
    graph = one_node()
    path = tmp_path / "one.json"
    graph.save(path)
    plan = ap.plan(path)
    assert plan.to_json() == ap.plan(graph).to_json()
    assert ap.plan(str(path)).to_json() == ap.plan(path.read_bytes()).to_json()
    assert ap.explain(path).plan.to_json() == ap.explain(graph).plan.to_json()
    curves = [ap.recompute_curve(each).points for each in (path, graph)]
    assert len({str([point.arena_bytes for point in points]) for points in curves}) == 1
    together = [ap.plan_together(each, "concurrent") for each in ([path, path], [graph, graph])]
    assert together[0].to_json() == together[1].to_json()
    assert ap.spilled(path, plan) == []
    assert ap.report.report_of(plan, path) == ap.report.report_of(plan, graph)
    assert ap.report.gate(path, budget="1KiB").passed
    file = tmp_path / "plan.json"
    plan.save(file)
    assert not ap.diff(file, plan).changes


def test_units_are_taken_wherever_a_size_is() -> None:
    graph = one_node()
    for budget in (1536, "1536", "1.5KiB", "1.5kib", "1.5K", "0.0014648437500MiB"):
        assert ap.plan(graph, budget=budget).options["capacity"] == 1536
    assert ap.Space("sram", "64KiB").capacity == 65536
    assert ap.pack(["1KiB", 1024], [(0, 2), (1, 3)], capacity="2KiB").status == "optimal"
    assert ap.Problem([ap.Buffer("1KiB", (0, 2))]).pack().peak == 1024
    graph.pin(0, "1KiB")
    placed = ap.plan(graph, recompute="4KiB").placements[0]
    assert placed is not None
    assert placed.offset == 1024
    with ap.Server({"m": one_node()}, cap="1.5mib") as server:
        assert server.cap == 3 << 19


def test_types_of_numpy_are_taken_wherever_an_element_type_is() -> None:
    plans = []
    for name, dtype in (("int8", "int8"), (np.int8, np.int8), (np.dtype("int8"), np.dtype("<i1"))):
        graph = ap.Graph("types")
        x = graph.input("x", (64,), name)
        k = graph.constant("k", (64,), dtype)
        s = graph.state("s", (64,), name)
        (y,) = graph.node("Op", [x, k, s], [("y", (64,), dtype)])
        graph.output(y)
        plans.append(ap.plan(graph).to_json())
    assert len(set(plans)) == 1


FILES: dict[str, tuple[bytes, str]] = {
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "page.onnx": (b"<!DOCTYPE html><html></html>", "HTML"),
    "page.tflite": (b"\n<html><body>not found</body></html>", "HTML"),
    "packed.onnx": (gzip.compress(b"model"), "gzip"),
    "empty.onnx": (b"", "empty"),
    "cut.onnx": (windows()[:1000], "cut off"),
    "cut.tflite": (DOORBELL.read_bytes()[:5000], "cut off"),
    "deep.json": (b"[" * 200_000, "JSON"),
}

LINES: dict[str, tuple[int, str]] = {
    # The line; the exit code, and words on stderr, the culprit among them.
    "plan nowhere.onnx": (2, "nowhere.onnx"),
    "plan .": (2, "'.'"),
    "plan folder": (2, "Is a directory: 'folder'"),
    "plan door.tflite --profile deep.json": (2, "the profile is no JSON"),
    "plan one.json --optimize vews": (2, "'vews'; did you mean 'views'"),
    "plan one.json --budget 1.3": (2, "'1.3' is not a number of bytes"),
    "plan one.json --budget 128 --target nodes": (0, ""),
    "plan one.json --budget 64": (1, "64"),
    "plan one.json --profile deep.json": (2, "profile"),
    "check one.json deep.json": (1, "not a valid plan"),
    "diff deep.json deep.json": (1, "not a valid plan"),
    "gate one.json": (2, "without a rule"),
    "gate one.json --baseline ": (2, "baseline"),
    "gate one.json --baseline deep.json": (2, "deep.json"),
    "export one.json --to c --budget 16 -o x.h": (1, "16"),
    "export one.json --to csv --budget 64 -o x.csv": (1, "64"),
    "export one.json --to csv -o x.csv --name n": (2, "hazards-c"),
    "run windows.onnx --input x=f.npz": (2, "f.npz"),
    "plan one.json --workers 1_0": (2, "'1_0' is not a whole number"),
    "batch folder": (2, "folder 'folder' has no file of"),
    "plan one.json --config pyproject.toml": (2, "there is no table tool.arenaplan"),
    "plan one.json --config long.toml": (2, "the file has more than"),
    "explain one.json --target nodes --spaces a=1K,b=1K": (2, "--spaces names memories"),
    "export door.tflite --to tflm --outputs caller -o x": (2, "inputs and outputs in its arena"),
    "gate one.json one.json --baseline one.json": (2, "of several models it is a folder"),
    "measure one.json": (2, "the model is not a .tflite model"),
    "recompute one.json --curve -o p.json": (2, "--curve makes several"),
    "recompute one.json --curve --to jax-policy": (2, "--curve makes several"),
    "plan windows.onnx --bind n=1..1048576,5": (2, "lists more than"),
    **{f"plan {name}": (2, f"{words}") for name, (_, words) in FILES.items()},
}


@pytest.mark.parametrize("line", LINES)
def test_a_mistake_on_the_command_line_names_the_culprit_and_the_cure(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    one_node().save("one.json")
    Path("windows.onnx").write_bytes(windows())
    Path("folder").mkdir()
    Path("door.tflite").write_bytes(DOORBELL.read_bytes())
    for name, (content, _) in FILES.items():
        Path(name).write_bytes(content)
    head = "id,lower,upper,size\na,0,1,"
    Path("pyproject.toml").write_text("[tool.other]\n")
    Path("long.toml").write_bytes(b"#" * (1 << 21))
    Path("large.csv").write_text(f"{head}{2**64}\n")
    Path("negative.csv").write_text(f"{head}-5\n")
    np.savez("f.npz", x=np.zeros(4, np.float32))
    code, words = LINES[line]
    try:
        found = main(line.split(" "))
    except SystemExit as end:
        found = int(end.code or 0)
    told = capsys.readouterr()
    assert found == code, told.err
    assert words in told.err, told.err
    assert "Traceback" not in told.err
    if code and "usage:" not in told.err:
        assert "\n  cure: " in told.err
        name, _, message = told.err.partition("arenaplan: ")[2].partition(": ")
        assert name.isidentifier()
        assert (told.out + told.err).count(message.partition("\n")[0]) == 1, "said once"


REPLACING = [
    # Lines that would replace a file that they read, or write one twice.
    "plan one.json -o one.json",
    "plan one.json -o ./one.json",
    "plan one.json -o link.json",
    "plan one.json two.json --share concurrent -o two.json",
    "export one.json --to c -o one.json",
    "export one.json --to csv --plan p.json -o p.json",
    "gate one.json --budget 1KiB --junit one.json",
    "gate one.json --baseline p.json --junit p.json",
    "gate one.json --baseline one.json --update",
    "map one.json -o one.json --to json",
    "map one.json --against p.json -o p.json --to html",
    "recompute one.json --budget 1KiB -o one.json",
    "pack b.csv -o b.csv",
    "pack b.csv --after old.csv -o old.csv",
    "batch one.json -o same.csv --page same.csv",
]


@pytest.mark.parametrize("line", REPLACING)
def test_no_command_replaces_a_file_that_it_reads(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one.json", "two.json"):
        one_node().save(name)
    ap.plan(one_node()).save("p.json")
    Path("link.json").symlink_to("one.json")
    Path("b.csv").write_text("id,lower,upper,size\na,0,1,4\n")
    Path("old.csv").write_text("id,lower,upper,size,offset\na,0,1,4,0\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert "option --" in said
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("to", ["html", "svg", "json", "perfetto"])
@pytest.mark.parametrize("suffix", ["html", "svg", "json", "png", "pdf", "page"])
def test_a_map_is_written_under_a_name_of_its_form(
    to: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_node().save(tmp_path / "one.json")
    own = {"perfetto": "json"}.get(to, to)
    output = tmp_path / f"m.{suffix}"
    code = main(["map", str(tmp_path / "one.json"), "--to", to, "-o", str(output)])
    assert code == (0 if suffix in (own, "page") else 2)
    assert output.exists() == (code == 0)
    assert code == 0 or f"no .{suffix}" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["diff good.json bad.json", "diff bad.json good.json",
                                  "check one.json bad.json", "map one.json --against bad.json -o m",
                                  "export one.json --to csv --plan bad.json -o x"])  # fmt: skip
def test_an_error_about_a_plan_names_its_file(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    one_node().save("one.json")
    ap.plan(one_node()).save("good.json")
    for content in ("", "[]", '{"format": "arenaplan", "version": 999}'):
        Path("bad.json").write_text(content)
        assert main(line.split()) in (1, 2)
        assert "'bad.json'" in capsys.readouterr().err
