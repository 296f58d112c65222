"""The geometry of the map and its reasons, run by Node.js without a page."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from map_graphs import planned, residual

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")


def run(folder: Path, text: str, **given: Any) -> Any:
    """Return what ``main(given)`` of a module returns, beside the modules of the map."""
    modules = files("arenaplan.report").joinpath("map")
    for module in modules.iterdir():
        if module.name.endswith(".js"):
            (folder / module.name).write_text(module.read_text("utf-8"))
    (folder / "package.json").write_text('{"type": "module"}')
    call = f"console.log(JSON.stringify(await main({json.dumps(given)})));"
    (folder / "test.js").write_text(f"{text}\n{call}\n")
    assert NODE is not None
    ran = subprocess.run(
        [NODE, "test.js"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_query_of_the_tree_finds_what_a_scan_finds(tmp_path: Path) -> None:
    text = """
        import { RectTree } from "./geometry.js";
        let state = 1;
        const random = (most) => ((state = (state * 48271) % 2147483647) % most);
        async function main() {
          const wrong = [];
          for (const count of [0, 1, 15, 16, 17, 300, 5000]) {
            const sides = [0, 1, 2, 3].map(() => new Float64Array(count));
            for (let item = 0; item < count; item++) {
              sides[0][item] = random(1000);
              sides[1][item] = sides[0][item] + 1 + random(50);
              sides[2][item] = random(1000);
              sides[3][item] = sides[2][item] + random(50);
            }
            const items = [...Array(count).keys()].filter((item) => item % 3 !== 1);
            const tree = new RectTree(items, ...sides);
            for (let turn = 0; turn < 60; turn++) {
              const [x, y] = [random(1000), random(1000)];
              const [w, h] = turn % 2 ? [0.5, 0.5] : [random(400), random(400)];
              const found = [];
              tree.query(x, x + w, y, y + h, (item) => found.push(item));
              const scan = items.filter((item) => sides[0][item] < x + w && sides[1][item] > x &&
                sides[2][item] < y + h && sides[3][item] > y);
              if (String(found.sort((a, b) => a - b)) !== String(scan)) wrong.push([count, turn]);
            }
          }
          return wrong;
        }
    """
    assert run(tmp_path, text) == []


def test_views_stay_inside_and_zoom_around_a_point(tmp_path: Path) -> None:
    text = """
        import { marks, Raster, Scale, View } from "./geometry.js";
        async function main() {
          const view = new View({ x0: 0, x1: 100, y0: 0, y1: 4096 });
          const box = { left: 10, top: 5, width: 200, height: 100 };
          view.zoom(4, 2, 30, 1000);
          const zoomed = { ...view };
          const part = (at, low, high) => (at - low) / (high - low);
          const still = [part(30, view.x0, view.x1), part(1000, view.y0, view.y1)];
          view.pan(1e6, -1e6);
          const panned = [view.x0, view.x1, view.y0, view.y1];
          view.zoom(1e-9, 1e-9, 50, 50);
          const whole = view.isWhole;
          const scale = new Scale(view, box);
          const back = [scale.step(scale.x(37)), scale.address(scale.y(513))];
          const pixels = new Int32Array(4);
          scale.pixels(10, 20, 0, 1024, pixels);
          const large = [...pixels];
          scale.pixels(99.999, 100, 4095.9, 4096, pixels);
          const small = [...pixels];
          const raster = new Raster(8, 6);
          raster.clear(1);
          raster.bordered(1, 6, 1, 5, 2, 3);
          raster.fill(7, 8, 0, 6, 4);
          const rows = [];
          for (let at = 0; at < 48; at += 8) {
            rows.push([...raster.pixels.slice(at, at + 8)].join(""));
          }
          return { zoomed, still, panned, whole, back, large, small, rows,
            marks: [marks(0, 104, 10), marks(0, 3428352, 8, true), marks(5, 5, 3)] };
        }
    """
    found = run(tmp_path, text)
    assert found["zoomed"]["x1"] - found["zoomed"]["x0"] == 25
    assert found["zoomed"]["y1"] - found["zoomed"]["y0"] == 2048
    assert found["still"] == pytest.approx([0.3, 1000 / 4096])
    assert found["panned"] == [75, 100, 0, 2048]
    assert found["whole"] is True
    assert found["back"] == pytest.approx([37, 513])
    assert found["large"] == [20, 40, 75, 100]
    assert found["small"] == [199, 200, 0, 1]
    assert found["rows"] == ["11111114", "13333314", "13222314", "13222314", "13333314", "11111114"]
    assert found["marks"][0] == [*range(0, 104, 20)]
    assert found["marks"][1] == [*range(0, 3428352, 1 << 19)]
    assert found["marks"][2] == [5]


def reasons(folder: Path, page: str, pairs: list[list[str]]) -> list[dict[str, str]]:
    text = """
        import { decode, programsOf } from "./data.js";
        import { RectTree } from "./geometry.js";
        import { conflictsOf, relation } from "./why.js";
        async function main({ content, pairs }) {
          const [program] = programsOf(await decode(content));
          const { start, stop, offset, end } = program;
          const tree = new RectTree([...Array(program.count).keys()], start, stop, offset, end);
          return pairs.map(([a, b]) => {
            const [first, second] = [a, b].map((name) => program.itemByName.get(name));
            const conflicts = conflictsOf(program, tree, first).map((item) => program.name(item));
            return { ...relation(program, first, second), conflicts };
          });
        }
    """
    content = page.partition('id="content">')[2].partition("<")[0]
    found: list[dict[str, str]] = run(folder, text, content=content, pairs=pairs)
    return found


def test_two_values_do_not_share_for_a_reason(tmp_path: Path) -> None:
    graph = residual()
    page = ap.report.map_page([ap.report.report_of(planned(graph, workspace="auto"), graph)])
    work = "/body/conv2/Conv workspace 0"
    pairs = ["ab", "ac", "bc", "xa", "xe", "ae", ("c", work), ("b", "total"), ("a", work)]
    found = dict(zip(pairs, reasons(tmp_path, page, [list(pair) for pair in pairs]), strict=True))
    kinds = {pair: row["kind"] for pair, row in found.items()}
    assert kinds == {
        "ab": "shared",
        "ac": "conflict",
        "bc": "conflict",
        "xa": "conflict",
        "xe": "free",
        "ae": "free",
        ("c", work): "conflict",
        ("b", "total"): "conflict",
        ("a", work): "conflict",
    }
    text = {pair: row["text"] for pair, row in found.items()}
    assert "takes over the bytes of “a” at step 1, Relu relu" in text["ab"]
    assert "both are needed at steps 2 to 3" in text["bc"]
    assert "Step 0, Conv /body/conv1/Conv reads “x” while it writes “a”" in text["xa"]
    assert "the operator must not write over this operand" in text["xa"]
    assert "last needed at step 0" in text["xe"]
    assert "is scratch memory of step 2" in text["c", work]
    assert "although they are not needed at the same time themselves" in text["a", work]
    assert "it keeps its bytes between runs" in text["b", "total"]
    assert sorted(found["bc"]["conflicts"]) == sorted([work, "c", "d", "total"])


def test_conflicts_are_those_of_live_ranges(tmp_path: Path) -> None:
    from map_graphs import chain

    graph = chain(60, 3)
    plan = planned(graph, optimize="none")
    page = ap.report.map_page([ap.report.report_of(plan, graph)])
    names = list(plan)
    found = reasons(tmp_path, page, [[name, name] for name in names])
    for name, row in zip(names, found, strict=True):
        live = plan[name].live
        meeting = {
            other
            for other in names
            if other != name
            and plan[other].live.start < live.end
            and live.start < plan[other].live.end
        }
        assert set(row["conflicts"]) == meeting


def test_what_a_cover_hides_changes_no_pixel(tmp_path: Path) -> None:
    text = """
        import { Cover, Raster } from "./geometry.js";
        let state = 7;
        const random = (most) => ((state = (state * 48271) % 2147483647) % most);
        function draw(boxes, hides) {
          const raster = new Raster(40, 60);
          const hidden = new Set();
          for (let at = boxes.length - 1; at >= 0; at--) if (hides(...boxes[at])) hidden.add(at);
          boxes.forEach((box, at) => hidden.has(at) || raster.bordered(...box, at + 1, 1000 + at));
          return [raster.pixels, hidden.size];
        }
        async function main() {
          const hidden = [];
          for (let turn = 0; turn < 50; turn++) {
            const boxes = [...Array(400)].map(() => {
              const [l, t] = [random(40), random(60)];
              const wide = random(8) ? 1 : 1 + random(10);
              return [l, Math.min(40, l + wide), t, Math.min(60, t + 1 + random(30))];
            });
            const cover = new Cover(40);
            const [some, count] = draw(boxes, (...box) => cover.hides(...box));
            const [all] = draw(boxes, () => false);
            if (some.some((pixel, at) => pixel !== all[at])) return "differs";
            cover.clear();
            if (!boxes.slice(-1).every((box) => !cover.hides(...box))) return "not cleared";
            hidden.push(count);
          }
          return Math.min(...hidden);
        }
    """
    hidden = run(tmp_path, text)
    assert hidden > 60, hidden  # Of 400, most of a pixel in width: some nine in each column.
