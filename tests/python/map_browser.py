"""A page in headless Chromium, if Playwright and a browser are there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium: that of ``ARENAPLAN_CHROMIUM``, of the system, or of Playwright."""
    api = pytest.importorskip("playwright.sync_api")
    named = os.environ.get("ARENAPLAN_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )
    with api.sync_playwright() as playwright:
        try:
            # Containers have no name spaces for the sandbox; the page is ours and from disk.
            started = playwright.chromium.launch(executable_path=named, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield started
        started.close()


class Tab:
    """A tab with a map, opened from disk, that notes errors and requests."""

    def __init__(self, browser: Any, path: Path, fragment: str = "", **settings: Any) -> None:
        settings = {"viewport": {"width": 1200, "height": 900}, **settings}
        self.page = browser.new_page(**settings)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"{path.as_uri()}{fragment}")
        self.page.wait_for_selector("body[data-ready]")

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()
        assert self.errors == []
        assert all(url.startswith("file:") for url in self.requests), self.requests

    def script(self, text: str, given: object = None) -> Any:
        """Return what a function of JavaScript returns."""
        return self.page.evaluate(text, given)

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.page.inner_text(selector))

    def point(self, name: str, panel: int = 0) -> tuple[float, float]:
        """Return the middle of a value on the page."""
        x, y = self.script(
            """([name, panel]) => {
              const { program, scale, canvas, ratio } = arenaplan.panels[panel];
              const item = program.itemByName.get(name);
              const middle = (low, high) => (low[item] + high[item]) / 2;
              const box = canvas.getBoundingClientRect();
              return [box.left + scale.x(middle(program.start, program.stop)) / ratio,
                      box.top + scale.y(middle(program.offset, program.end)) / ratio];
            }""",
            [name, panel],
        )
        return x, y

    def pixel(self, step: float, address: float, plot: dict[str, float], panel: int = 0) -> str:
        """Return the color at a place of the plot, from the sides of the plot alone."""
        x = plot["left"] + plot["width"] * step / plot["steps"]
        y = plot["top"] + plot["height"] * (1 - address / plot["bytes"])
        found = self.script(
            """([panel, x, y]) => {
              const canvas = document.querySelectorAll("canvas:first-child")[panel];
              return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data];
            }""",
            [panel, int(x), int(y)],
        )
        return "#" + "".join(f"{part:02x}" for part in found[:3])
