"""
The command line: one module per command.

Results go to stdout, and with ``--json`` nothing but JSON does; everything said to
people besides goes to stderr. Exit codes: 0 ok, 1 a check failed, 2 usage or input
that cannot be read, 3 content that is not supported, 4 a bug, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from arenaplan import __version__, _start
from arenaplan.cli.parser import COMMANDS, Parser, parse
from arenaplan.errors import (
    CapacityExceeded,
    DeviceUnavailable,
    InternalError,
    PlanError,
    PlannerError,
    PlanWriteError,
    ProofError,
    RecomputeExceeded,
    UnboundDim,
    UnsupportedDtype,
    UnsupportedModel,
    VerificationError,
)

CHECK_FAILED, BAD_INPUT, UNSUPPORTED, INTERNAL, INTERRUPTED = 1, 2, 3, 4, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if sys.stderr is None:  # Closed; without a file of its own, prose would go to stdout.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print("arenaplan: stdout is closed; results have nowhere to go", file=sys.stderr)
        return BAD_INPUT
    parser = Parser(
        prog="arenaplan",
        description="Plan where every tensor of a neural network lives in one arena.",
    )
    parser.add_argument("--version", action="version", version=f"arenaplan {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        chosen = next((word for word in arguments if not word.startswith("-")), None)
        for name, summary in COMMANDS.items():
            if name == chosen:
                import_module("numpy")  # Before Ctrl-C raises: it cannot be imported by halves.
                import_module(f"arenaplan.cli.{name}").add_to(commands)
            else:  # Its module may import half of the package: the name is enough.
                commands.add_parser(name, help=summary)
        _start.raise_again()
        options = parse(parser, arguments)
        options.execute(options)
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


def _discard_output() -> None:
    """Send what is still to be printed nowhere, so that closing stdout does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # It is no file, as under a test, or is closed.
        return


def _report(error: Exception) -> int:
    """Print an error, and return the exit code for it."""
    code = _exit_code(error)
    if code == INTERNAL:
        traceback.print_exception(error)
        print("arenaplan: this is a bug; please report it", file=sys.stderr)
    else:
        print(f"arenaplan: {type(error).__name__}: {_worded(error)}", file=sys.stderr)
    return code


def _worded(error: Exception) -> str:
    """Return the message of an error, with options as they are spelled here."""
    if isinstance(error, UnboundDim) and error.dimension is not None:
        message, separator, _ = str(error).rpartition("pass bind=")
        if separator:
            return f"{message}pass --bind {shlex.quote(error.dimension)}=1"
    return str(error)


def _exit_code(error: Exception) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, InternalError):
        return INTERNAL
    if isinstance(error, PlanWriteError):
        return BAD_INPUT
    failed = (PlanError, ProofError, CapacityExceeded, RecomputeExceeded, VerificationError)
    if isinstance(error, failed):
        return CHECK_FAILED
    if isinstance(error, (UnsupportedModel, UnsupportedDtype, DeviceUnavailable, ImportError)):
        return UNSUPPORTED
    if isinstance(error, (PlannerError, OSError, MemoryError)):
        return BAD_INPUT
    return INTERNAL
