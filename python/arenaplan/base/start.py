"""
Ctrl-C while the command is still importing: exit code 130, and no traceback.

The package imports this module before NumPy and other modules that take tenths of a second, so this
module imports nothing slow. Programs that import the package keep their signal handler: only the
command's own process gets a new handler, until :func:`arenaplan.cli.main` takes over.
"""

from __future__ import annotations

import os
import signal
import sys


def _is_command() -> bool:
    """Return whether this process is ``arenaplan`` or ``python -m arenaplan``."""
    name = os.path.basename(sys.argv[0] if sys.argv else "")
    if os.path.splitext(name)[0] == "arenaplan":
        return True
    # While Python looks for the module, the first argument is still the option.
    return sys.argv[:1] == ["-m"] and ("-m", "arenaplan") in zip(
        sys.orig_argv, sys.orig_argv[1:], strict=False
    )


def _quit(signal_number: int, frame: object) -> None:
    """End the process: nothing is open or half done yet."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# A process that was started in the background ignores Ctrl-C, and goes on doing so.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler and _is_command():
    signal.signal(signal.SIGINT, _quit)
