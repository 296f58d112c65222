"""Executors by kind of device: the package says which class runs where; none names another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arenaplan.base.errors import InvalidOption

_CLASSES: dict[str, Callable[[], type[Any]]] = {}


def register_executor(kind: str, load: Callable[[], type[Any]]) -> None:
    """
    Say which executor runs on the devices of a kind.

    Parameters
    ----------
    kind : str
        The name of such a device, up to a colon: ``"cuda"``.
    load : callable
        Returns the class of the executor; called whenever it is needed.
    """
    _CLASSES[kind] = load


def executor_class(device: object) -> type[Any]:
    """
    Return the class of the executor for a device: for its name, or for one that is open.

    Raises
    ------
    InvalidOption
        If no device has such a name.
    """
    is_open = hasattr(device, "allocate")
    kind = "cuda" if is_open else str(device).partition(":")[0]
    if kind not in _CLASSES or not (is_open or isinstance(device, str)):
        known = ", ".join(f"{name} or {name}:NUMBER" for name in _CLASSES)
        raise InvalidOption(f"option device: {device!r} is not cpu, {known}")
    return _CLASSES[kind]()
