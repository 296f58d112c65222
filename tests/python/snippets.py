"""
Runs pages of the documentation as a reader does: all blocks of a page, in order, in one folder.

Usage: python tests/python/snippets.py PAGE... writes the output of the commands of pages anew.

- A block ``python`` is executed; all of a page share their names. With ``title="FILE"``, a block in
  any language is a file instead.
- A block ``console`` has commands after ``$`` and the lines that a terminal shows. ``arenaplan`` runs
  in this process, other commands in a shell. ``…`` stands for any text in a line, alone for any
  lines. A command ends with code 0 unless ``$ echo $?`` is the next one.
- Commands of ``SET_UP`` are what a reader has done before, and are not run.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
            text = _commands(text, where)
        parts += [page[end : block.start], text]
        end = block.end
    return "".join([*parts, page[end:]])


def _commands(text: str, where: str) -> str:
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
            shown = [str(code)]
        elif command.startswith(SET_UP):
            shown = expected
        else:
            shown, code = _run(command)
            if code and after != "echo $?":
                raise Wrong(f"{where}: {command!r} ends with {code}:\n" + "\n".join(shown))
        made += [f"$ {command}", *(expected if agrees(expected, shown) else shown)]
    return "".join(f"{line}\n" for line in made)


def _run(command: str) -> tuple[list[str], int]:
    """Return the lines that a command writes to the terminal, and its exit code."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    if words[0] == "arenaplan":
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            code = main(words[1:])
        return shown.getvalue().splitlines(), code
    if words[0] == "python":
        command = command.replace("python", shlex.quote(sys.executable), 1)
    ran = subprocess.run(
        command,
        shell=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return ran.stdout.splitlines(), ran.returncode


def agrees(expected: list[str], shown: list[str]) -> bool:
    """Whether lines are those that a page shows."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shown)) is not None


def check_page(path: Path) -> None:
    """Run a page in the working directory; raise if its commands have other output than it shows."""
    page, fresh = path.read_text("utf-8"), run_page(path)
    if page != fresh:
        lines = difflib.unified_diff(
            page.splitlines(), fresh.splitlines(), str(path), "as it is", lineterm="", n=1
        )
        raise Wrong("\n".join([*lines, f"write anew: python tests/python/snippets.py {path}"]))
    for model in path.parent.glob("models/*"):
        if Path(model.name).read_bytes() != model.read_bytes():
            raise Wrong(f"{path.name} makes another {model.name} than there is in {model.parent}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            fresh = run_page(path)
            for model in path.parent.glob("models/*"):
                shutil.copy(model.name, model)
        path.write_text(fresh, "utf-8")
