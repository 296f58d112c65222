"""Models, plans and tables that a command is given, and the results that it writes."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from arenaplan import Plan, _core
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.base.limits import UNLIMITED, Limits, current
from arenaplan.cli.printing import say
from arenaplan.deploy.export.folders import write_folder
from arenaplan.formats import suffix_of

MAX_MODEL: Final = 2**31 - 1
"""Most bytes of a model that comes through a pipe."""

MAX_TABLE: Final = 1 << 30
"""Most bytes of a CSV file."""

MAX_PLAN: Final = 1 << 30
"""Most bytes of a plan file; one more is refused when it is read as a plan."""

_CHUNK: Final = 1 << 20


def is_stream(path: Path) -> bool:
    """Return whether a path stands for stdin or another pipe, whose name tells no format."""
    if str(path) == "-" or path.parts[:2] in (("/", "dev"), ("/", "proc")):
        return True
    return not path.suffix and path.is_fifo()


def limits_of(options: argparse.Namespace) -> Limits:
    """Return the limits of models that options name."""
    return Limits(options.max_nodes, options.max_bytes)


def read_model(path: Path) -> Path | bytes:
    """
    Return the model that a command was given: a file, or the content of a pipe.

    Raises
    ------
    NotAModel, ModelError
        If the first bytes are those of no model, or there are too many of them.
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
    Return the text of a CSV file.

    Raises
    ------
    PackingError
        If it is no text, or longer than any problem.
    """
    chunks, total, line = [], 0, 1
    with _opened(path) as file:
        while chunk := file.read(_CHUNK):
            total += len(chunk)
            if total > MAX_TABLE:
                raise fault("InvalidCsv", f"{str(path)!r} has more than {MAX_TABLE:,} bytes")
            if 0 in chunk:
                line += chunk[: chunk.index(0)].count(b"\n")
                raise fault("InvalidCsv", f"line {line}: a zero byte is no text")
            line += chunk.count(b"\n")
            chunks.append(chunk)
    content = b"".join(chunks)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + content[: error.start].count(b"\n")
        raise fault("InvalidCsv", f"line {line}: the text is not UTF-8") from error


def read_plan(path: Path, most: int = MAX_PLAN) -> bytes:
    """Return the text of a plan file, of which one byte more than ``most`` is read at most."""
    with _opened(path) as file:
        return file.read(most + 1)


def load_plan(path: Path, limits: Limits = UNLIMITED) -> Plan:
    """
    Return the plan of a file; ``-`` is stdin.

    Raises
    ------
    ModelError
        If the file has more bytes, or the graph of the plan more nodes, than the limits permit.
    """
    most = MAX_PLAN if limits.max_bytes is None else min(limits.max_bytes, MAX_PLAN)
    text = read_plan(path, most)
    if most < MAX_PLAN and len(text) > most:
        raise fault(
            "ModelTooLarge",
            f"{str(path)!r} has more than {most:,} bytes, which max_bytes permits",
        )
    plan = Plan.from_json(text)
    limits.admit_plan(str(path), plan)
    return plan


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or stdin if its name is ``-``."""
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
    Write a result, if there is one, where ``-o`` says, if it does; then report it.

    The report is printed inside: to stdout, unless that is the place of the result.
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
        raise InvalidOption("option --output: a folder is written, and stdout is none")
    write_folder(folder, files)
    say(f"wrote {', '.join(str(folder / name) for name in files)}")


def write_result(output: Path, content: bytes | str) -> None:
    """Write a result to a file at once, or to stdout if its name is ``-``."""
    data = content.encode() if isinstance(content, str) else content
    sys.stdout.flush()
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    _core.write_files([(output, data)])
    say(f"wrote {output}")
