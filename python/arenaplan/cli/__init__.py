"""
The command line: a module per command, and in `syntax` the tables of what commands take.

Results go to stdout, and with ``--json`` nothing but JSON does; everything said to
people besides goes to stderr. Exit codes: 0 ok, 1 a check failed, 2 usage or input
that cannot be read, 3 content that is not supported, 4 a bug, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from arenaplan.base import start as _start
from arenaplan.base.close import did_you_mean
from arenaplan.base.errors import (
    CapacityExceeded,
    InternalError,
    PlanError,
    PlannerError,
    ProofError,
    UnsupportedDtype,
    UnsupportedModel,
    cure_of,
    kind_of,
    kinds,
)
from arenaplan.cli.parser import command_at, make_parser, parse
from arenaplan.cli.printing import Voice, in_words, paint, plain, set_voice, voice
from arenaplan.cli.syntax import COMMANDS

CHECK_FAILED, BAD_INPUT, UNSUPPORTED, INTERNAL, INTERRUPTED = 1, 2, 3, 4, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if sys.stderr is None:  # Closed; without a file of its own, prose would go to stdout.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print("arenaplan: stdout is closed; results have nowhere to go", file=sys.stderr)
        return BAD_INPUT
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    set_voice(Voice())
    try:
        options = _options(arguments)
        _execute(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed its pipe.
        _discard_output()
        return 0
    except Exception as error:  # Every error ends as a message and a code.
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO):
            _discard_output()
        return _report(error)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command, of all their sources."""
    position = command_at(arguments)
    chosen = None if position is None else arguments[position]
    parser, _ = make_parser(() if chosen is None else {chosen} & COMMANDS.keys())
    if chosen is not None and chosen not in COMMANDS:
        parser.error(f"there is no command {chosen!r}{did_you_mean(chosen, COMMANDS)}")
    options = parse(parser, arguments, lambda: make_parser()[1])
    # Before Ctrl-C raises: neither can be imported by halves.
    import_module("numpy")
    import_module(f"arenaplan.cli.{options.command}")
    _start.raise_again()
    assert position is not None  # The parser has refused a line without a command.
    from arenaplan.cli.config import with_settings  # The help needs none of it.

    return with_settings(parser, arguments, position, options)


def _execute(options: argparse.Namespace) -> None:
    """Carry out a command; a model in a pipe, which gives it only once, is read before."""
    execute = import_module(f"arenaplan.cli.{options.command}").execute
    from arenaplan.cli.sources import limits_of, read_model, refuse_replaced

    refuse_replaced(options)
    if "model" not in options or "max_nodes" not in options:
        execute(options)
        return
    from arenaplan.base.limits import applied
    from arenaplan.base.model_files import read_once

    with applied(limits_of(options)), read_once():
        options.model = read_model(options.model)
        execute(options)


def _discard_output() -> None:
    """Send what is still to be printed nowhere, so that closing stdout does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # It is no file, as under a test, or is closed.
        return


def _report(error: Exception) -> int:
    """Print an error, and return the exit code for it."""
    code = exit_code(error)
    if code == INTERNAL or voice.verbose:
        import traceback  # The help needs none of it.

        traceback.print_exception(error)
    if code == INTERNAL:
        print("arenaplan: this is a bug; please report it", file=sys.stderr)
    else:
        name = paint(f"arenaplan: {kind_of(error)}:", "error", sys.stderr)
        print(f"{name} {in_words(str(error))}", file=sys.stderr)
        cure = plain(cure_of(error))
        print(f"  cure: {cure}", file=sys.stderr)
    return code


def exit_code(error: BaseException) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, InternalError):
        return INTERNAL
    if isinstance(error, PlannerError):
        found = kinds().get(error.kind)
        if found is not None and found.exit is not None:
            return found.exit
    if isinstance(error, (PlanError, ProofError, CapacityExceeded)):
        return CHECK_FAILED
    if isinstance(error, (UnsupportedModel, UnsupportedDtype, ImportError)):
        return UNSUPPORTED
    if isinstance(error, (PlannerError, OSError, MemoryError)):
        return BAD_INPUT
    return INTERNAL
