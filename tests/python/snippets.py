"""
Runs pages of the documentation as a reader does: all blocks of a page, in order, in one folder.

Usage: python tests/python/snippets.py PAGE... writes the output of the commands of pages anew.

- A block ``python`` is executed; all of a page share their names. With ``title="FILE"``, a block
  in any language is a file instead.
- A block ``console`` has commands after ``$`` and the lines that a terminal shows. ``arenaplan``
  and ``python`` run in this process, other commands in a shell. Lines of stderr may be left out,
  all together. ``…`` stands for any text in a line, alone for any lines. A command ends with code 0
  unless ``$ echo $?`` is the next one.
- Commands of ``SET_UP`` are what a reader has done before, and are not run.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import arenaplan as ap
from arenaplan.cli import main

ROOT = Path(__file__).resolve().parents[2]
SET_UP = ("pip ", "cargo ", "make ")
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    line: int
    start: int
    end: int
    """The text between the fences, as positions in the page."""


class Wrong(AssertionError):
    """A command of a page that does something else than the page says."""


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for match in _FENCE.finditer(page):
        title = _TITLE.search(match[2])
        line = page.count("\n", 0, match.start(3)) + 1
        yield Block(match[1], title and title[1], match[3], line, match.start(3), match.end(3))


def run_page(path: Path, names: dict[str, Any] | None = None) -> str:
    """
    Run a page in the working directory, and return it with the output of its commands.

    Files beside the page in ``models`` are in the working directory, as if a reader had them.
    """
    page = path.read_text("utf-8")
    names = {} if names is None else names
    before, modules = sys.path[:], set(sys.modules)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return _run_blocks(page, path, names)
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - modules:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == Path.cwd():
                del sys.modules[name]


def _run_blocks(page: str, path: Path, names: dict[str, Any]) -> str:
    for model in path.parent.glob("models/*"):
        shutil.copy(model, model.name)
    parts, end = [], 0
    for block in blocks_of(page):
        where = f"{path.name}:{block.line}"
        text = block.text
        if block.title is not None:
            Path(block.title).write_text(text, "utf-8")
        elif block.language == "python":
            # Lines of a traceback are then those of the page.
            exec(compile("\n" * (block.line - 1) + text, str(path), "exec"), names)
        elif block.language == "console":
            text = run_commands(text, where)
        parts += [page[end : block.start], text]
        end = block.end
    return "".join([*parts, page[end:]])


def run_commands(text: str, where: str) -> str:
    """Run the commands of a block, and return it with their output."""
    sessions: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            sessions.append((line[2:], []))
        elif sessions[-1][0].endswith("\\"):
            sessions[-1] = (sessions[-1][0] + "\n" + line, [])
        else:
            sessions[-1][1].append(line)
    made, code = [], 0
    following = [command for command, _ in sessions[1:]] + [""]
    for (command, expected), after in zip(sessions, following, strict=True):
        if command == "echo $?":
            ran = Ran([str(code)], [str(code)], code)
        elif command.startswith(SET_UP):
            ran = Ran(expected, expected, 0)
        else:
            ran = _run(command)
            code = ran.code
            if code and after != "echo $?":
                raise Wrong(f"{where}: {command!r} ends with {code}:\n" + "\n".join(ran.shown))
        is_right = agrees(expected, ran.shown) or agrees(expected, ran.results)
        made += [f"$ {command}", *(expected if is_right else ran.shown)]
    return "".join(f"{line}\n" for line in made)


class Ran(NamedTuple):
    """The end of a command."""

    shown: list[str]
    """Lines that a terminal shows."""
    results: list[str]
    """Those of stdout."""
    code: int


class _Both(io.StringIO):
    """Stdout, which is also written to what the terminal shows."""

    def __init__(self, terminal: io.StringIO) -> None:
        super().__init__()
        self.terminal = terminal

    def write(self, text: str, /) -> int:
        self.terminal.write(text)
        return super().write(text)


def _in_process(call: Callable[[], int]) -> Ran:
    """Return the end of a call that returns an exit code."""
    terminal = io.StringIO()
    with (
        contextlib.redirect_stdout(_Both(terminal)) as results,
        contextlib.redirect_stderr(terminal),
    ):
        code = call()
    return Ran(terminal.getvalue().splitlines(), results.getvalue().splitlines(), code)


def _script(words: list[str]) -> int:
    """Run a script of Python, with its arguments."""
    arguments, sys.argv = sys.argv, words
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = arguments
    return 0


def _run(command: str) -> Ran:
    """Run a command."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    if words[0] == "arenaplan":
        return _in_process(lambda: main(words[1:]))
    if words[0] == "python":
        return _in_process(lambda: _script(words[1:]))
    ran = subprocess.run(
        command,
        shell=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    lines = ran.stdout.splitlines()
    return Ran(lines, lines, ran.returncode)


def agrees(expected: list[str], shown: list[str]) -> bool:
    """Whether lines are those that a page shows."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shown)) is not None


def check_page(path: Path) -> None:
    """Run a page in the working directory; raise if its commands have other output."""
    page, fresh = path.read_text("utf-8"), run_page(path)
    if page != fresh:
        lines = difflib.unified_diff(
            page.splitlines(), fresh.splitlines(), str(path), "as it is", lineterm="", n=1
        )
        raise Wrong("\n".join([*lines, f"write anew: python tests/python/snippets.py {path}"]))
    for model in path.parent.glob("models/*"):
        if _facts(Path(model.name)) != _facts(model):
            raise Wrong(f"{path.name} makes another {model.name} than there is in {model.parent}")


def _facts(file: Path) -> object:
    """Return the content of a file; of a model file its shapes, since effects may be refined."""
    if not file.name.endswith(".plan.json"):
        return file.read_bytes()
    model = ap.Model.load(file)
    return [(shape, model.required_bytes(**shape)) for shape in model]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            fresh = run_page(path)
            for model in path.parent.glob("models/*"):
                shutil.copy(model.name, model)
        path.write_text(fresh, "utf-8")
