"""What pictures and tables show: buffers, labels that differ, tables in notebooks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import arenaplan as ap
from arenaplan.cli import main
from arenaplan.report.packing_report import report_of_packing
from arenaplan.report.svg import apart, fitted

CSV = "id,lower,upper,size\na <1>,0,2,100\nb,1,3,60\nc,2,4,100\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Buffers of a table."""
    path = tmp_path / "buffers.csv"
    path.write_text(CSV)
    return path


@pytest.mark.parametrize("form", ["html", "svg", "perfetto", "json"])
def test_a_table_of_buffers_is_drawn(form: str, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["map", str(table), "--to", form, "-o", str(out)]) == 0
    text = out.read_text()
    if form == "json":
        report = json.loads(text)
        assert [row["name"] for row in report["values"]] == ["a <1>", "b", "c"]
        assert report["arena_bytes"] == 160
        assert sum(row["counted"] for row in report["peak_held"]) == report["peak_bytes"] == 160
    elif form == "svg":
        assert "a &lt;1&gt;" in text
    elif form == "html":
        assert 'id="held"' in text


def test_offsets_of_a_packed_table_stay(table: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.csv"
    assert main(["pack", str(table), "-o", str(packed)]) == 0
    out = tmp_path / "out.json"
    assert main(["map", str(packed), "--to", "json", "-o", str(out)]) == 0
    rows = [line.split(",") for line in packed.read_text().splitlines()]
    at = rows[0].index("offset")
    shown = {row["name"]: row["offset"] for row in json.loads(out.read_text())["values"]}
    assert shown == {row[0]: int(row[at]) for row in rows[1:]}


def test_a_table_of_buffers_has_no_model(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", str(table), "--explain", "-o", "-"]) == 2
    assert "by itself" in capsys.readouterr().err


def test_the_report_of_a_packing_has_the_form_of_reports() -> None:
    problem = ap.Problem([ap.Buffer(100, (0, 2)), ap.Buffer(60, (1, 3))])
    for packing in (problem.pack(), ap.pack([100, 60], [(0, 2), (1, 3)]), ap.pack([], [])):
        report = report_of_packing(packing, "buffers")
        Draft202012Validator(json.loads(ap.report.report_schema())).validate(report)
        assert packing._repr_html_().startswith("<svg ")


def test_results_are_tables_in_notebooks() -> None:
    graph = ap.Graph("<net>")
    x = graph.input("x", (1, 8, 32, 32))
    (a,) = graph.node("Conv", [x], [("a", (1, 64, 32, 32), "float32")], name="wide")
    (b,) = graph.node("Conv", [a], [("b", (1, 8, 32, 32), "float32")], name="last")
    graph.output(b)
    arena = ap.plan(graph).arena_bytes
    curve = ap.recompute_curve(graph)
    buffers = ap.Problem([ap.Buffer(5000, (0, 2), name="<net>")])
    results: list[tuple[Any, str, object]] = [
        (ap.explain(graph), "&lt;net&gt;", arena),
        (ap.report.gate(graph, budget="1GiB"), "&lt;net&gt;", arena),
        (ap.report.what_if(graph), "&lt;net&gt;", arena),
        (graph, "&lt;net&gt;", "a float32[1, 64, 32, 32]"),
        (ap.diff(ap.plan(graph), ap.plan(graph, alignment=4096)), "arena", arena),
        (buffers, "&lt;net&gt;", 5000),
        (curve, "extra work", curve.points[0].arena_bytes),
    ]
    for result, name, figure in results:
        html = result._repr_html_()
        assert html.startswith("<table>")
        assert name in html
        assert "<net>" not in html
        assert (f"{figure:,}" if isinstance(figure, int) else str(figure)) in html


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    html = ap.Problem([ap.Buffer(1, (0, 1))] * 502)._repr_html_()
    assert (html.count("<tr>"), "<td>and 2 more</td>" in html) == (502, True)


NAMES = [f"model/block_{at}/conv2d/BiasAdd;model/block_{at}/conv2D1" for at in range(20)]


def test_long_names_keep_what_tells_them_apart() -> None:
    marks = apart(NAMES)
    for letters in range(1, 80):
        labels = [fitted(name, letters, marks[name]) for name in NAMES]
        assert all(len(label) <= letters for label in labels)
        assert letters < 7 or len({*labels}) >= 15, letters
    assert apart([]) == {}
    assert apart(["a/b", "a/b"]) == {"a/b": 0}


def test_boxes_of_a_drawing_have_labels_that_differ() -> None:
    graph = ap.Graph("long names")
    last = graph.input("model/input", (1 << 14,), "uint8")
    for name in NAMES:
        (last,) = graph.node("Conv", [last], [(name, (1 << 14,), "uint8")])
    graph.output(last)
    drawing = ap.report.map_svg(ap.report.report_of(ap.plan(graph), graph))
    texts = re.findall(r'pointer-events="none">([^<]*)</text>', drawing)
    assert len({*texts}) >= 0.75 * len(texts) > 10


def test_marks_of_a_drawing_are_round() -> None:
    graph = ap.Graph("steps")
    last = graph.input("x", (1000,), "uint8")
    for number in range(113):
        (last,) = graph.node("Conv", [last], [(f"v{number}", (1000,), "uint8")])
    graph.output(last)
    drawing = ap.report.map_svg(ap.report.report_of(ap.plan(graph), graph))
    steps = [int(text) for text in re.findall(r'text-anchor="middle">(\d+)</text>', drawing)]
    assert steps[:3] == [0, 20, 40]
