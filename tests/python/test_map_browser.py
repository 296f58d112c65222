"""The map in headless Chromium: pixels, hover, selection, search, comparison, links, work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from map_browser import Tab, browser
from map_graphs import HOSTILE, chain, planned, residual

__all__ = ["browser"]

# The plot is inside of its frame by these pixels: left, right, top; axis, gap and curves below.
LEFT, RIGHT, TOP, BELOW = 78, 10, 16, 20 + 14 + 84

KINDS = {
    "input": "#7fb3e6",
    "output": "#86c98d",
    "state": "#c3a2e0",
    "activation": "#f2b872",
    "workspace": "#b9bec6",
}
EMPTY = "#f3f5f8"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    graph = residual()
    return write(
        tmp_path, ap.report.map_page([ap.report.report_of(planned(graph, workspace="auto"), graph)])
    )


def write(folder: Path, text: str) -> Path:
    path = folder / "map.html"
    path.write_text(text, encoding="utf-8")
    return path


def plot_of(tab: Tab, plan: ap.Plan) -> dict[str, float]:
    """Return the sides of the plot in its canvas, from the frame's size on the page."""
    box = tab.page.locator(".frame").first.bounding_box()
    return {
        "left": LEFT,
        "top": TOP,
        "width": round(box["width"] - LEFT - RIGHT),
        "height": round(box["height"] - TOP - BELOW),
        "steps": len(plan.steps),
        "bytes": plan.arena_bytes,
    }


def close(color: str, expected: str) -> bool:
    """Whether a color is one of the shades of another one."""
    parts = [[int(text[at : at + 2], 16) for at in (1, 3, 5)] for text in (color, expected)]
    return any(
        all(abs(a - b * shade) <= 1.5 for a, b in zip(*parts, strict=True))
        for shade in (1, 0.93, 0.86)
    )


def test_each_value_has_its_color_in_its_place(browser: Any, page: Path) -> None:
    graph = residual()
    plan = planned(graph, workspace="auto")
    kinds = {value.name: value.kind for value in graph.values} | {"e": "output"}
    with Tab(browser, page) as tab:
        tab.page.select_option("#color", "kind")
        plot = plot_of(tab, plan)
        places = [(kinds[name], plan[name]) for name in plan]
        places += [("workspace", work) for work in plan.workspaces]
        for kind, place in places:
            # Next to the corners, away from the name, and inside of the border.
            for step in (place.live.start + 0.06, place.live.end - 0.06):
                for address in (place.offset + 12, place.offset + place.bytes - 12):
                    assert close(tab.pixel(step, address, plot), KINDS[kind]), (kind, place)
        free = [
            (step + 0.25, address)
            for step in range(len(plan.steps))
            for address in range(8, plan.arena_bytes, 64)
            if not any(
                place.live.start <= step < place.live.end
                and place.offset <= address < place.offset + place.bytes
                for _, place in places
            )
        ]
        assert free
        for step, address in free:
            assert tab.pixel(step, address, plot) == EMPTY


def test_values_under_the_pointer_are_named(browser: Any, page: Path) -> None:
    with Tab(browser, page) as tab:
        assert not tab.page.is_visible("#tip")
        tab.page.mouse.move(*tab.point("c"))
        assert tab.text("#tip").splitlines()[0] == "c"
        assert "256 bytes" in tab.text("#tip")
        tab.page.mouse.move(5, 5)
        assert not tab.page.is_visible("#tip")


def test_a_click_selects_and_shift_compares(browser: Any, page: Path) -> None:
    with Tab(browser, page) as tab:
        tab.page.mouse.click(*tab.point("c"))
        assert tab.text("#details h2") == "c"
        details = tab.text("#details")
        assert "step 2, Conv /body/conv2/Conv body/conv2" in details
        assert "May not overlap with 4" in details
        tab.page.keyboard.down("Shift")
        tab.page.mouse.click(*tab.point("d"))
        tab.page.keyboard.up("Shift")
        assert "Step 3, Add add reads “c” while it writes “d”" in tab.text("#relation")
        assert tab.script("() => location.hash") == "#value=c&with=d"
        tab.page.keyboard.press("Escape")
        assert "Select a value" in tab.text("#details")


def test_a_link_opens_a_value(browser: Any, page: Path) -> None:
    with Tab(browser, page, "#value=b&with=c") as tab:
        assert tab.text("#details h2") == "b"
        assert "both are needed at steps 2 to 3" in tab.text("#relation")
        assert "a — in-place, 256 bytes" in tab.text("#aliases")
        tab.script("() => { location.hash = '#value=total'; }")
        tab.page.wait_for_function("document.querySelector('#details h2').textContent === 'total'")
    with Tab(browser, page, "#value=missing&with=c&program=7") as tab:
        assert "Select a value" in tab.text("#details")


def test_search_finds_names_and_enter_selects(browser: Any, tmp_path: Path) -> None:
    graph = chain(300, name="layer_")
    path = write(tmp_path, ap.report.map_page([ap.report.report_of(planned(graph), graph)]))
    with Tab(browser, path) as tab:
        tab.page.keyboard.press("/")
        tab.page.keyboard.type("LAYER_29")
        assert tab.text("#status") == "11 found"
        found = tab.page.locator("#found button").all_inner_texts()
        assert set(found) == {"layer_29", *(f"layer_29{digit}" for digit in range(10))}
        tab.page.keyboard.type("7")
        tab.page.keyboard.press("Enter")
        assert tab.text("#details h2") == "layer_297"
        assert tab.script("() => !arenaplan.panels[0].view.isWhole"), "it was too small to see"


def test_peak_and_largest_are_a_key_away(browser: Any, tmp_path: Path) -> None:
    graph = chain(200)
    plan = planned(graph)
    path = write(tmp_path, ap.report.map_page([ap.report.report_of(plan, graph)]))
    with Tab(browser, path) as tab:
        tab.page.keyboard.press("l")
        assert plan[tab.text("#details h2")].bytes == max(plan[name].bytes for name in plan)
        tab.page.keyboard.press("k")
        chosen = plan[tab.text("#details h2")]
        assert chosen.live.start <= plan.peak_step < chosen.live.end
        assert f"Peak at step {plan.peak_step}," in tab.text("#status")
        x0, x1 = tab.script("() => [arenaplan.panels[0].view.x0, arenaplan.panels[0].view.x1]")
        assert x0 <= plan.peak_step < x1
        assert x1 - x0 < 60
        tab.page.keyboard.press("0")
        tab.page.keyboard.press("n")
        assert tab.page.is_visible("#details h2")


def test_wheel_zooms_and_dragging_moves(browser: Any, tmp_path: Path) -> None:
    graph = chain(100)
    path = write(tmp_path, ap.report.map_page([ap.report.report_of(planned(graph), graph)]))
    view = "() => { const { x0, x1, y0, y1 } = arenaplan.panels[0].view; return [x0, x1, y0, y1]; }"
    with Tab(browser, path) as tab:
        before = tab.script(view)
        tab.page.mouse.move(*tab.point("v50"))
        tab.page.mouse.wheel(0, -400)
        tab.page.wait_for_function("!arenaplan.panels[0].view.isWhole")
        zoomed = tab.script(view)
        assert zoomed[1] - zoomed[0] < before[1] - before[0]
        assert zoomed[3] - zoomed[2] < before[3] - before[2]
        tab.page.mouse.down()
        x, y = tab.point("v50")
        tab.page.mouse.move(x + 80, y, steps=4)
        tab.page.mouse.up()
        assert tab.script(view)[0] < zoomed[0]
        assert "Select a value" in tab.text("#details"), "dragging selects nothing"


def test_the_table_sorts_and_selects(browser: Any, page: Path) -> None:
    plan = planned(residual(), workspace="auto")
    with Tab(browser, page) as tab:
        tab.page.keyboard.press("t")
        names = "#table tbody th"
        assert len(tab.page.locator(names).all()) == len(plan) + len(plan.workspaces)
        tab.page.click("[data-column=first]")
        starts = [
            plan[name].live.start
            for name in tab.page.locator(names).all_inner_texts()
            if name in plan
        ]
        assert starts == sorted(starts)
        assert tab.page.get_attribute("th:has([data-column=first])", "aria-sort") == "ascending"
        tab.page.click("[data-column=first]")
        assert tab.page.get_attribute("th:has([data-column=first])", "aria-sort") == "descending"
        tab.page.click(f"{names}:has-text('total') button")
        assert tab.text("#details h2") == "total"
        tab.page.fill("#search", "conv")
        assert tab.page.locator(names).all_inner_texts() == ["/body/conv2/Conv workspace 0"]


def test_a_comparison_names_what_changed(browser: Any, tmp_path: Path) -> None:
    def graph(size: int, extra: bool) -> ap.Graph:
        made = ap.Graph("m")
        value: int | None = made.input("v0", (640,), "uint8")
        for name, bytes_ in [("same", 640), ("grown", size), *([("new", 640)] if extra else [])]:
            (value,) = made.node("Op", [value], [(name, (bytes_,), "uint8")])
        made.output(value)  # type: ignore[arg-type]
        return made

    graphs = graph(1280, extra=True), graph(640, extra=False)
    plans = [planned(each, optimize="none") for each in graphs]
    reports = [ap.report.report_of(*pair) for pair in zip(plans, graphs, strict=True)]
    changes = ap.diff(plans[1], plans[0])
    text = ap.report.map_page(reports, labels=["after", "before"], changes=changes)
    with Tab(browser, write(tmp_path, text)) as tab:
        assert len(tab.page.locator("canvas").all()) == 4
        words = tab.script(
            """() => Object.fromEntries(arenaplan.programs[0].rows.map((row, item) =>
                 [row.name, arenaplan.programs[0].change[item]]))"""
        )
        assert (words["grown"], words["new"]) == (2, 4)
        tab.page.mouse.click(*tab.point("grown"))
        assert "grown" in tab.text("#details dl")
        plot = plot_of(tab, plans[0])
        place = plans[0]["grown"]
        color = tab.pixel(place.live.start + 0.1, place.offset + 40, plot)
        assert close(color, "#e8897f")
        tab.page.mouse.click(*tab.point("grown", panel=1))
        assert "program=1" in tab.script("() => location.hash")


def test_memories_programs_and_buffers_of_the_caller_are_side_by_side(
    browser: Any, tmp_path: Path
) -> None:
    graph = residual()
    for options, titles, name, space in (
        ({"spaces": "fast=512,slow=1MiB"}, ["fast", "slow"], "x", "fast"),
        ({"inputs": "caller"}, ["arena", "buffers of the caller"], "x", "caller:x"),
    ):
        report = ap.report.report_of(planned(graph, **options), graph)
        with Tab(browser, write(tmp_path, ap.report.map_page([report]))) as tab:
            captions = tab.page.locator("figcaption").all_inner_texts()
            assert [text.split(",")[0] for text in captions] == titles
            panel = titles.index("fast") if space == "fast" else 1
            tab.page.mouse.click(*tab.point(name, panel=panel))
            assert tab.text("#details h2") == name
            assert space in tab.text("#details dl")
    shared = ap.plan_together([graph, chain(9)], "concurrent", target="nodes")
    reports = [
        ap.report.report_of(*pair) for pair in zip(shared.plans, [graph, chain(9)], strict=True)
    ]
    text = ap.report.map_page(reports, labels=["a", "b"], bases=shared.bases)
    with Tab(browser, write(tmp_path, text)) as tab:
        tab.page.mouse.click(*tab.point("v3", panel=1))
        offset = shared.bases[1] + shared.plans[1]["v3"].offset
        assert f"{offset:,} in the shared arena" in tab.text("#details dl")


def test_hostile_names_are_text(browser: Any, tmp_path: Path) -> None:
    graph = ap.Graph(HOSTILE)
    x = graph.input(HOSTILE, (64,))
    (y,) = graph.node(HOSTILE, [x], [("__proto__", (64,), "float32")], name=HOSTILE)
    (z,) = graph.node(HOSTILE, [y], [("constructor", (64,), "float32")], name="toString")
    graph.output(z)
    plan = planned(graph)
    report = ap.report.report_of(plan, graph)
    text = ap.report.map_page(
        [report, report], labels=[HOSTILE, HOSTILE], changes=ap.diff(plan, plan)
    )
    with Tab(browser, write(tmp_path, text)) as tab:
        tab.page.mouse.click(*tab.point(HOSTILE))
        assert tab.text("#details h2").startswith("</script><script>")
        tab.page.keyboard.press("t")
        tab.page.fill("#search", "__proto__")
        tab.page.press("#search", "Enter")
        assert tab.text("#details h2") == "__proto__"
        assert tab.page.title().startswith("</script>")
        assert len(tab.page.locator("script").all()) == 2
        assert tab.page.locator("img").all() == []


def test_colors_follow_the_scheme(browser: Any, page: Path) -> None:
    paper = "() => getComputedStyle(document.body).backgroundColor"
    with Tab(browser, page, color_scheme="dark") as tab:
        assert tab.script(paper) == "rgb(20, 24, 30)"
        tab.page.click("#theme")
        assert tab.script(paper) == "rgb(255, 255, 255)"
        tab.page.select_option("#color", "layer")
        tab.page.emulate_media(media="print")
        assert not tab.page.is_visible("#toolbar")
        assert tab.page.is_visible("canvas")


def test_screen_readers_get_names_and_news(browser: Any, page: Path) -> None:
    with Tab(browser, page) as tab:
        tab.page.focus("canvas")
        tab.page.keyboard.press("n")
        assert tab.text("#status").startswith(tab.text("#details h2"))
        nameless = tab.script(
            """() => [...document.querySelectorAll("button, input, select, canvas[tabindex]")]
                 .filter((it) => !(it.ariaLabel || it.textContent.trim() || it.labels?.length))
                 .map((it) => it.outerHTML)"""
        )
        assert nameless == []


def test_work_per_frame_is_bounded_by_what_is_in_view(browser: Any, tmp_path: Path) -> None:
    graph = chain(20_000)
    plan = planned(graph, optimize="none", effort="fast")
    with Tab(
        browser, write(tmp_path, ap.report.map_page([ap.report.report_of(plan, graph)]))
    ) as tab:
        assert tab.script("() => arenaplan.panels[0].drawn") == 20_000
        drawn = tab.script(
            """() => {
              const [panel] = arenaplan.panels;
              panel.view.zoom(200, 1, 10000, 0);
              arenaplan.drawNow();
              return panel.drawn;
            }"""
        )
        near = [n for n in plan if plan[n].live.start < 10_051 and plan[n].live.end > 9_949]
        assert 50 < drawn <= len(near)
        visited = tab.script(
            """() => {
              let count = 0;
              const { tree, program } = arenaplan.panels[0];
              const start = program.start;
              const counted = new Proxy(start, { get: (of, key) => (count++, of[key]) });
              tree.sides[0] = counted;
              tree.query(10000, 10001, 0, 1, () => {});
              tree.sides[0] = start;
              return count;
            }"""
        )
        assert visited < 600, "a query looks at few of 20,000"


def test_large_maps_are_small_files() -> None:
    graph = chain(4000, name="model/block/layer_output_")
    plan = planned(graph, optimize="none", effort="fast")
    text = ap.report.map_page([ap.report.report_of(plan, graph)])
    empty = ap.Graph()
    alone = ap.report.map_page([ap.report.report_of(planned(empty), empty)])
    assert (len(text) - len(alone)) / 4000 < 30, "bytes of the file per value"
