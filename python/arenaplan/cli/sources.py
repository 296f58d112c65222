"""Input files of commands (models, plans, tables), and result output."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from arenaplan import Plan, _core
from arenaplan.base.errors import InvalidOption, PlanError, fault
from arenaplan.base.limits import UNLIMITED, Limits, current
from arenaplan.cli.printing import say
from arenaplan.deploy.export.folders import write_folder
from arenaplan.formats import suffix_of

MAX_MODEL: Final = 2**31 - 1
"""Largest model from a pipe, in bytes."""

MAX_TABLE: Final = 1 << 30
"""Largest CSV file, in bytes."""

MAX_PLAN: Final = 1 << 30
"""Largest plan file, in bytes. Readers pass on one more, for the parser to refuse."""

_CHUNK: Final = 1 << 20

_OUTPUTS: Final = ("output", "page", "junit")
"""Options that name files to write."""
_IN_PLACE: Final = {"tflm": ".tflite", "graph": ".json"}
"""Forms of exported files that may replace the model, by the suffix of the model."""


def is_stream(path: Path) -> bool:
    """Return whether a path stands for stdin or another pipe, whose name tells no format."""
    if str(path) == "-" or path.parts[:2] in (("/", "dev"), ("/", "proc")):
        return True
    return not path.suffix and path.is_fifo()


def limits_of(options: argparse.Namespace) -> Limits:
    """Return the model limits from the options."""
    return Limits(options.max_nodes, options.max_bytes)


def refuse_replaced(options: argparse.Namespace) -> None:
    """
    Refuse a command that would replace a file that the command reads, or write a file twice.

    Raises
    ------
    InvalidOption
        With the option whose file is another one's.
    """
    given = dict(vars(options))
    outputs = {name: given.pop(name) for name in _OUTPUTS if isinstance(given.get(name), Path)}
    if given.get("baseline") and given.get("update"):
        outputs["baseline"] = Path(given.pop("baseline"))
    elif given.get("baseline"):
        given["baseline"] = Path(given["baseline"])
    if (
        given.get("to") in _IN_PLACE
        and getattr(outputs.get("output"), "suffix", "") == _IN_PLACE[given["to"]]
    ):
        given.pop("model")  # The file keeps its form: the new file has what the old file had.
    rest = [path for value in given.values() for path in _paths_in(value)]
    for name, output in outputs.items():
        if output.is_file() and any(path.exists() and path.samefile(output) for path in rest):
            raise InvalidOption(
                f"option --{name}: the command reads {str(output)!r}, which would be replaced"
            )
        if str(output) != "-":
            rest.append(output.absolute())
            if rest.count(rest[-1]) > 1:
                raise InvalidOption(f"option --{name}: {str(output)!r} is written twice")


def _paths_in(value: object) -> Iterator[Path]:
    """Yield the paths in an option's value."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _paths_in(part)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors about the content of a plan file name the file."""
    try:
        yield
    except PlanError as error:
        raise fault(error.kind, f"{str(path)!r}: {error}") from error


def read_model(path: Path) -> Path | bytes:
    """
    Return the command's model: a path, or the content of a pipe.

    Raises
    ------
    NotAModel, ModelError
        If the first bytes match no model format, or the content is too long.
    """
    if not is_stream(path):
        return path
    with _opened(path) as file:
        head = file.read(16)
        suffix_of(head)
        limit = current().max_bytes
        most = MAX_MODEL if limit is None else min(limit, MAX_MODEL)
        content = head + file.read(max(most + 1 - len(head), 0))
    if len(content) > most:
        raise fault("ModelTooLarge", f"{str(path)!r} has more than {most:,} bytes")
    return content


def read_table(path: Path) -> str:
    """
    Return a CSV file's text.

    Raises
    ------
    PackingError
        If the file is not text or is longer than ``MAX_TABLE``.
    """
    chunks, total, line = [], 0, 1
    with _opened(path) as file:
        while chunk := file.read(_CHUNK):
            total += len(chunk)
            if total > MAX_TABLE:
                raise fault("InvalidCsv", f"{str(path)!r} has more than {MAX_TABLE:,} bytes")
            if 0 in chunk:
                line += chunk[: chunk.index(0)].count(b"\n")
                raise fault("InvalidCsv", f"line {line}: a zero byte is not text")
            line += chunk.count(b"\n")
            chunks.append(chunk)
    content = b"".join(chunks)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + content[: error.start].count(b"\n")
        raise fault("InvalidCsv", f"line {line}: the text is not UTF-8") from error


def read_plan(path: Path, most: int = MAX_PLAN) -> bytes:
    """Return the text of a plan file, at most ``most + 1`` bytes."""
    with _opened(path) as file:
        return file.read(most + 1)


def load_plan(path: Path, limits: Limits = UNLIMITED) -> Plan:
    """
    Return the plan in a file; ``-`` is stdin.

    Raises
    ------
    ModelError
        If the file or the plan's graph exceeds the limits.
    """
    most = MAX_PLAN if limits.max_bytes is None else min(limits.max_bytes, MAX_PLAN)
    text = read_plan(path, most)
    if most < MAX_PLAN and len(text) > most:
        raise fault(
            "ModelTooLarge",
            f"{str(path)!r} has more than {most:,} bytes, which max_bytes permits",
        )
    with naming(path):
        plan = Plan.from_json(text)
    limits.admit_plan(str(path), plan)
    return plan


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or stdin for ``-``."""
    if str(path) != "-":
        with path.open("rb") as file:
            yield file
        return
    if sys.stdin is None:
        raise InvalidOption("stdin is closed, and '-' stands for it")
    yield sys.stdin.buffer


def goes_to_stdout(options: argparse.Namespace) -> bool:
    """Return whether ``-o -`` sends the result to stdout, and the report to stderr."""
    return str(options.output) == "-"


@contextlib.contextmanager
def delivering(
    options: argparse.Namespace, content: Callable[[], bytes | str] | None
) -> Iterator[None]:
    """
    Write a result to the file after ``-o``, then report the result; both are optional.

    The caller prints the report inside the context: to stdout, unless the result goes there.
    """
    if options.output is not None and content is not None:
        write_result(options.output, content())
    if goes_to_stdout(options):
        with contextlib.redirect_stdout(sys.stderr):
            yield
    else:
        yield


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, each at once; refuse stdout, which is no folder."""
    if str(folder) == "-":
        raise InvalidOption("option --output: a folder is written; give a path, not -")
    write_folder(folder, files)
    say(f"wrote {', '.join(str(folder / name) for name in files)}")


def write_result(output: Path, content: bytes | str) -> None:
    """Write a result to a file atomically, or to stdout for ``-``."""
    data = content.encode() if isinstance(content, str) else content
    sys.stdout.flush()
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    _core.write_files([(output, data)])
    say(f"wrote {output}")
