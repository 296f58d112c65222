"""Writing a file that becomes the new one or stays what it was."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from arenaplan.errors import PlanWriteError


def replace_file(path: Path, data: bytes) -> None:
    """
    Write ``data`` to ``path`` at once.

    Raises
    ------
    PlanWriteError
        If that fails; what was at ``path`` is still there.
    """
    target = Path(os.path.realpath(path))  # Replace what a link points to, not the link.
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise PlanWriteError(f"cannot write {str(path)!r}: {error.strerror}") from error
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        raise PlanWriteError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _umask() -> int:
    """Return the bits that new files must not have; there is no way to ask but to set them."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
