"""
The command line: one module per command.

Results go to stdout, and with ``--json`` nothing but JSON does; everything said to
people besides goes to stderr. Exit codes: 0 ok, 1 a check failed, 2 usage or input
that cannot be read, 3 content that is not supported, 4 a bug, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from arenaplan import __version__
from arenaplan.cli import check, diff, explain, export, inspect, pack, plan, run, targets
from arenaplan.errors import (
    CapacityExceeded,
    InternalError,
    PlanError,
    PlannerError,
    PlanWriteError,
    UnsupportedDtype,
    UnsupportedModel,
    VerificationError,
)

CHECK_FAILED, BAD_INPUT, UNSUPPORTED, INTERNAL, INTERRUPTED = 1, 2, 3, 4, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="arenaplan",
        description="Plan where every tensor of a neural network lives in one arena.",
    )
    parser.add_argument("--version", action="version", version=f"arenaplan {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (plan, run, check, inspect, explain, export, diff, pack, targets):
        command.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        options.execute(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; do not fail again while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # Every error ends as a message and a code.
        return _report(error)
    return 0


def _report(error: Exception) -> int:
    """Say what went wrong, and return the exit code for it."""
    code = _exit_code(error)
    if code == INTERNAL:
        traceback.print_exception(error)
        print("arenaplan: this is a bug; please report it", file=sys.stderr)
    else:
        print(f"arenaplan: {type(error).__name__}: {error}", file=sys.stderr)
    return code


def _exit_code(error: Exception) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, InternalError):
        return INTERNAL
    if isinstance(error, PlanWriteError):
        return BAD_INPUT
    if isinstance(error, (PlanError, CapacityExceeded, VerificationError)):
        return CHECK_FAILED
    if isinstance(error, (UnsupportedModel, UnsupportedDtype, ImportError)):
        return UNSUPPORTED
    if isinstance(error, (PlannerError, OSError, MemoryError)):
        return BAD_INPUT
    return INTERNAL
