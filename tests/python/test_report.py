"""Reports of plans as data, drawings, traces and tables."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import arenaplan as ap
from arenaplan.cli import main
from arenaplan.planner.peak import union
from arenaplan.report.curves import Rectangle, tops
from file_forms import DOORBELL, windows
from map_graphs import HOSTILE, chain, planned, residual
from raising import raises

SVG = "{http://www.w3.org/2000/svg}"


def valid(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report after it went through JSON and its schema."""
    again: dict[str, Any] = json.loads(json.dumps(report))
    jsonschema.validate(again, json.loads(ap.report.report_schema()))
    return again


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    graph = residual()
    return valid(ap.report.report_of(planned(graph, workspace="auto"), graph))


def test_the_published_schema_is_the_one_in_the_repository() -> None:
    path = Path(__file__).parents[2] / "schema" / "report.schema.json"
    assert path.read_text() == ap.report.report_schema()
    jsonschema.Draft202012Validator.check_schema(json.loads(ap.report.report_schema()))


def test_a_report_says_where_each_value_is_and_why_it_lives(report: dict[str, Any]) -> None:
    values = {value["name"]: value for value in report["values"]}
    assert {name: value["kind"] for name, value in values.items()} == {
        **dict.fromkeys("abcde", "activation"),
        "x": "input",
        "total": "state",
    }
    assert values["total"]["live"] == [0, 5]
    assert values["e"]["result"] is True
    assert values["d"]["result"] is False
    assert values["b"]["live"] == [1, 4]
    assert values["b"]["shape"] == [256]
    (work,) = report["workspaces"]
    assert (work["name"], work["live"], work["bytes"]) == (
        "/body/conv2/Conv workspace 0",
        [2, 3],
        192,
    )
    steps = report["steps"]
    assert [step["op"] for step in steps] == ["Conv", "Relu", "Conv", "Add", "Count"]
    assert [step["layer"] for step in steps] == ["body/conv1", None, "body/conv2", None, None]
    rows = [value["name"] for value in report["values"]]
    assert [rows[row] for row in steps[3]["inputs"]] == ["b", "c"]
    assert steps[1]["may_share"] == [[rows.index("a"), rows.index("b")]]
    assert report["why"] == [
        {
            "value": "b",
            "rule": "in-place",
            "partner": "a",
            "bytes": 256,
            "step": 1,
            "nodes": ["relu"],
        }
    ]


def test_a_layer_is_known_by_the_name_of_a_tensor() -> None:
    graph = ap.Graph()
    x = graph.input("x", (64,))
    (y,) = graph.node("CONV", [x], [("net/conv_1/BiasAdd;net/x", (64,), "float32")], name="CONV_0")
    graph.output(y)
    (step,) = ap.report.report_of(planned(graph), graph)["steps"]
    assert step["layer"] == "net/conv_1"


def test_values_held_after_their_last_use_say_why() -> None:
    graph = residual()
    graph.output(graph.find("c").index)
    report = valid(ap.report.report_of(planned(graph, inputs="keep"), graph))
    held = {value["name"]: value["held"] for value in report["values"]}
    assert held == dict.fromkeys("abde") | {"x": "input kept", "c": "output", "total": "state"}


@pytest.mark.parametrize("seed", range(4))
def test_curves_are_those_of_a_count_byte_by_byte(seed: int) -> None:
    graph = chain(40, seed)
    plan = planned(graph, alignment=1)
    (curve,) = ap.report.report_of(plan, graph)["curves"]
    for step in range(len(plan.steps)):
        live = {
            byte // 64
            for place in plan.placements
            if place is not None and place.live.start <= step < place.live.end
            for byte in range(place.offset, place.offset + place.bytes, 64)
        }
        assert curve["live"][step] == 64 * len(live)
        assert curve["top"][step] == 64 * (max(live) + 1)
        node = graph.nodes[plan.steps[step][-1]]
        operands = {*node.inputs, *node.outputs}
        sizes = [graph.values[value].shape[0] for value in operands if value is not None]
        assert curve["own"][step] == sum(sizes)
    assert max(curve["live"]) == plan.live_bytes[plan.peak_step]


def test_tops_of_spans_that_cover_each_other() -> None:
    spans = [
        Rectangle(0, 5, 0, 9),
        Rectangle(5, 7, 2, 4),
        Rectangle(2, 6, 3, 6),
        Rectangle(0, 1, 8, 30),
    ]
    expected = [max((s.end for s in spans if s.start <= t < s.stop), default=0) for t in range(12)]
    assert tops(spans, 12) == expected
    assert tops([], 2) == [0, 0]
    assert union([(3, 9), (0, 4), (20, 21), (5, 6)]) == 10


def test_a_plan_file_alone_has_a_report() -> None:
    graph = residual()
    plan = ap.Plan.from_json(planned(graph).to_json().encode())
    report, full = valid(ap.report.report_of(plan)), ap.report.report_of(plan, graph)
    assert report["curves"] == full["curves"]
    assert report["why"] == full["why"]
    places = [(value["name"], value["offset"], value["live"]) for value in full["values"]]
    assert [(v["name"], v["offset"], v["live"]) for v in report["values"]] == places
    assert {value["dtype"] for value in report["values"]} == {None}
    assert [step["node"] for step in report["steps"]] == [step["node"] for step in full["steps"]]


def test_a_report_has_every_memory_and_the_buffers_of_the_caller() -> None:
    graph = residual()
    for options, arenas, buffers in (
        ({"spaces": "fast=512,slow=1MiB"}, ["fast", "slow"], []),
        ({"inputs": "caller"}, ["arena"], ["caller:x"]),
    ):
        plan = planned(graph, **options)
        report = valid(ap.report.report_of(plan, graph))
        assert [space["name"] for space in report["spaces"]] == arenas + buffers
        assert [space["name"] for space in report["spaces"] if space["caller"]] == buffers
        assert [curve["space"] for curve in report["curves"]] == arenas
        live = [sum(each) for each in zip(*(c["live"] for c in report["curves"]), strict=True)]
        assert live == [step["live_bytes"] for step in report["steps"]]


def test_the_plan_of_another_graph_is_refused() -> None:
    plan = planned(residual())
    for graph in (chain(5), chain(7), ap.Graph()):
        with raises("PlanMismatch"):
            ap.report.report_of(plan, graph)


def test_a_report_has_the_worth_of_techniques_and_a_timetable() -> None:
    graph = chain(12)
    plan = planned(graph, workers=2)
    report = valid(ap.report.report_of(plan, graph, ap.explain(graph)))
    found = report["techniques"]
    assert found["levels"]["order"]["bytes"] <= found["without"]["bytes"]
    assert report["timetable"]["workers"] == 2


def test_equal_plans_give_equal_pictures() -> None:
    texts = []
    for _ in range(2):
        graph = residual()
        report = ap.report.report_of(planned(graph), graph)
        texts.append(
            (ap.report.map_page([report]), ap.report.map_svg(report), ap.report.map_trace(report))
        )
    assert texts[0] == texts[1]


def test_an_empty_graph_has_pictures() -> None:
    graph = ap.Graph("empty")
    report = valid(ap.report.report_of(planned(graph), graph))
    assert report["peak_step"] is None
    ET.fromstring(ap.report.map_svg(report))
    assert json.loads(ap.report.map_trace(report))["traceEvents"]
    assert ap.report.map_page([report])


# -- drawings and traces ---------------------------------------------------------------


def test_the_drawing_has_a_rectangle_per_value_in_its_place(report: dict[str, Any]) -> None:
    root = ET.fromstring(ap.report.map_svg(report))
    boxes = {}
    for box in root.iter(f"{SVG}rect"):
        title = box.find(f"{SVG}title")
        if title is not None and title.text is not None:
            boxes[title.text.partition(":")[0]] = box
    rows = [*report["values"], *report["workspaces"]]
    assert set(boxes) == {row["name"] for row in rows}
    width = (760 - 70 - 10) / len(report["steps"])
    for row in rows:
        box = boxes[row["name"]]
        assert float(box.attrib["x"]) == pytest.approx(70 + width * row["live"][0], abs=0.01)
        assert float(box.attrib["width"]) == pytest.approx(
            width * (row["live"][1] - row["live"][0]), abs=0.01
        )
        height = 250 * row["bytes"] / report["arena_bytes"]
        assert float(box.attrib["height"]) == pytest.approx(height, abs=0.01)


def test_names_of_results_in_place_do_not_lie_on_each_other() -> None:
    graph = ap.Graph("in place")
    last = graph.input("the input of the chain", (64,))
    for at in range(12):
        spec = (f"result {at}", (64,), "float32")
        (made,) = graph.node("Relu", [last], [spec], in_place=[(0, 0)] if at else [])
        assert made is not None
        last = made
    graph.output(last)
    root = ET.fromstring(ap.report.map_svg(ap.report.report_of(ap.plan(graph), graph)))
    texts = [text for text in root.iter(f"{SVG}text") if text.get("pointer-events") == "none"]
    names = [text for text in texts if "the in" not in str(text.text)]
    chain = sorted(float(text.attrib["x"]) for text in names)
    assert len(chain) >= 12
    ends = [
        float(text.attrib["x"]) + 6.4 * len(str(text.text))
        for text in sorted(names, key=lambda text: float(text.attrib["x"]))
    ]
    assert all(end <= start for end, start in zip(ends, chain[1:], strict=False))


def test_a_large_drawing_says_what_it_leaves_out() -> None:
    graph = chain(50)
    drawing = ap.report.map_svg(ap.report.report_of(planned(graph), graph), most=10)
    assert "40 small values are not drawn" in drawing
    assert drawing.count("<rect ") == 12


def test_a_trace_has_steps_values_and_counters(report: dict[str, Any]) -> None:
    events = json.loads(ap.report.map_trace(report))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    names = {row["name"] for row in (*report["values"], *report["workspaces"])}
    assert {event["name"] for event in slices if event["pid"] == 2} == names
    assert len([event for event in slices if event["pid"] == 1]) == len(report["steps"])
    lanes: dict[tuple[int, int], int] = {}
    for event in sorted(slices, key=lambda event: event["ts"]):
        lane = (event["pid"], event["tid"])
        assert event["ts"] >= lanes.get(lane, 0), "slices of one lane overlap"
        lanes[lane] = event["ts"] + event["dur"]
    counted = [e for e in events if e["ph"] == "C" and e["name"] == "live bytes"]
    assert max(e["args"]["bytes"] for e in counted) == report["peak_bytes"]


def test_a_trace_follows_the_timetable() -> None:
    graph = ap.Graph("fork")
    x = graph.input("x", (64,))
    sides = [graph.node("Conv", [x], [(name, (64,), "float32")])[0] for name in "ab"]
    (y,) = graph.node("Add", sides, [("y", (64,), "float32")])
    graph.output(y)
    plan = ap.plan(graph, workers=2, node_times=[7, 7, 3])
    slices = [
        event
        for event in json.loads(ap.report.map_trace(ap.report.report_of(plan, graph)))[
            "traceEvents"
        ]
        if event["ph"] == "X" and event["pid"] == 1
    ]
    assert [(e["tid"], e["ts"], e["dur"]) for e in slices] == [(0, 0, 7), (1, 0, 7), (0, 7, 3)]


def test_names_are_never_markup() -> None:
    graph = ap.Graph(HOSTILE)
    x = graph.input(HOSTILE, (64,))
    (y,) = graph.node("</title>" + HOSTILE, [x], [("/*CONTENT*/", (64,), "float32")], name=HOSTILE)
    graph.output(y)
    report = ap.report.report_of(planned(graph), graph)
    page = ap.report.map_page([report])
    assert page.lower().count("<script") == page.lower().count("</script>") == 2
    for text in ("onerror", "owned", "</script><"):
        assert text not in page.replace("&lt;/script&gt;", "").partition("<body>")[2]
    assert page.partition("<style>")[0].count("<script") == 0
    root = ET.fromstring(ap.report.map_svg(report))
    assert [element.tag for element in root.iter(f"{SVG}script")] == []
    assert any(HOSTILE[:30] in (title.text or "") for title in root.iter(f"{SVG}title"))
    assert json.loads(ap.report.map_trace(report))


# -- the command -----------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    graph = residual()
    graph.save(tmp_path / "model.json")
    planned(graph).save(tmp_path / "plan.json")
    return tmp_path


@pytest.mark.parametrize("form", ["html", "svg", "perfetto", "json"])
@pytest.mark.parametrize("source", ["model.json", "plan.json"])
def test_the_command_writes_each_form(files: Path, source: str, form: str) -> None:
    output = files / f"out.{form}"
    assert main(["map", str(files / source), "--to", form, "-o", str(output)]) == 0
    text = output.read_text()
    begins = {"html": "<!doctype html>", "svg": "<svg ", "perfetto": "{", "json": "{"}
    assert text.startswith(begins[form])
    if form == "json":
        valid(json.loads(text))


def test_the_command_compares_and_shares(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, plan, output = (str(files / name) for name in ("model.json", "plan.json", "map.html"))
    rows = str(files / "map.json")
    assert main(["map", model, "--against", plan, "-o", output]) == 0
    assert main(["map", model, model, "--share", "concurrent", "-o", output]) == 0
    assert main(["plan", model, "--with-graph", "-o", str(files / "both.json")]) == 0
    assert main(["map", str(files / "both.json"), "--to", "json", "-o", rows]) == 0
    assert json.loads(Path(rows).read_text())["steps"][0]["op"] == "Conv"
    assert main(["map", model, "--explain", "--to", "json", "-o", rows]) == 0
    assert json.loads(Path(rows).read_text())["techniques"]["without"]["bytes"] > 0
    for refused in (
        ["map", model, model, "-o", output],
        ["map", model, "--to", "svg", "--against", plan, "-o", output],
        ["map", plan, "--explain", "-o", output],
        ["map", model],
    ):
        with pytest.raises(SystemExit) if len(refused) == 2 else _nothing():
            assert main(refused) == 2
    capsys.readouterr()


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_the_command_writes_to_stdout(files: Path, capsysbinary: Any) -> None:
    assert main(["map", str(files / "plan.json"), "--to", "svg", "-o", "-"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"<svg ")


# -- notebooks -------------------------------------------------------------------------


def test_a_notebook_shows_the_drawing() -> None:
    html = planned(residual())._repr_html_()
    ET.fromstring(html)
    assert "residual for nodes" in html


def test_a_plan_is_a_data_frame() -> None:
    pytest.importorskip("pandas")
    plan = planned(residual(), workspace="auto")
    frame = plan.to_pandas().set_index("name")
    assert len(frame) == len(plan) + len(plan.workspaces)
    for name in plan:
        place = plan[name]
        row = frame.loc[name]
        assert (row.offset, row.bytes, row.start, row.stop) == (
            place.offset,
            place.bytes,
            place.live.start,
            place.live.end,
        )
    assert frame.loc["b"].read_by == [2, 3]
    assert frame.loc["b"].written_by == [1]


def test_a_plan_is_plotted() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    graph = residual()
    plan = planned(graph)
    axes = ap.report.plot(plan, graph)
    assert len(axes.collections[0].get_paths()) == len(plan) + len(plan.workspaces)
    assert "residual" in axes.get_title()


def test_two_plans_are_compared_by_name() -> None:
    before, after = planned(residual()), planned(residual(), alignment=512)
    found = ap.diff(before, after)
    assert {change.kind for change in found.changes} <= {"moved", "rescheduled"}
    assert [space.name for space in found.grew] == ["arena"]
    assert isinstance(found, ap.planner.Diff)


def test_the_curve_of_a_training_step_is_data_and_a_drawing(tmp_path: Path) -> None:
    graph = ap.Graph("chain")
    values = [graph.input("x", (256,))]
    for layer in range(4):
        spec = [(f"a{layer}", (256,), "float32")]
        values += graph.node("Layer", values[-1:], spec, pure=True, cost=1)
    last = values[-1]
    for layer in reversed(range(4)):
        spec = [(f"g{layer}", (256,), "float32")]
        read = [last, values[layer]]
        (last,) = graph.node("Back", read, spec, in_place=[(0, 0)], pure=True, cost=1)
    graph.output(last)
    plan, curve = ap.plan(graph), ap.recompute_curve(graph)
    plain = valid(ap.report.report_of(plan, graph))
    report = valid(ap.report.report_of(plan, graph, curve=curve))
    assert plain["recompute"] is None
    assert [it["arena_bytes"] for it in report["recompute"]["points"]] == [5120, 4096]
    drawing = ET.fromstring(ap.report.map_svg(report))
    marks = drawing.findall(f"{SVG}circle")
    assert len(marks) == len(curve.points)
    assert "12.50% extra work" in "".join(marks[1].itertext())
    assert not ET.fromstring(ap.report.map_svg(plain)).findall(f"{SVG}circle")
    assert "12.50% extra work" in ap.report.map_page([report])
    path, out = tmp_path / "chain.graph.json", tmp_path / "map.html"
    graph.save(path)
    assert main(["map", str(path), "--curve", "-o", str(out)]) == 0
    assert "12.50% extra work" in out.read_text()


@pytest.mark.parametrize("target", [target.name for target in ap.targets()])
@pytest.mark.parametrize("name", ["doorbell.tflite", "windows.onnx"])
def test_a_report_takes_the_graph_that_was_planned_for_every_target(name: str, target: str) -> None:
    """The plan is of what its target sees of the graph."""
    graph = ap.load(DOORBELL if name == "doorbell.tflite" else windows())
    try:
        plan = ap.plan(graph, target=target)
    except ap.PlannerError:
        pytest.skip("no plan of this model for this target")
    report = ap.report.report_of(plan, graph)
    assert report == ap.report.report_of(plan, graph.variant(target))
    assert all(step["op"] for step in report["steps"])
    assert {value["name"] for value in report["values"]} >= set(plan)


def test_a_report_takes_the_graph_of_a_plan_whose_nodes_run_again() -> None:
    graph = ap.Graph()
    op = ap.train.operators(graph)
    values = [graph.input("x", (64, 64))]
    for _ in range(8):
        values.append(op.Tanh(values[-1]))
    total = values[-1]
    for value in values[-2:0:-1]:
        total = op.Add(total, value)
    graph.output(total)
    plan = ap.plan(graph, recompute="70%")
    assert plan.schedule is not None
    assert ap.report.report_of(plan, graph)["steps"]
