"""Executors by kind of device: the package says which class runs where; none names another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arenaplan.base.errors import InvalidOption

_CLASSES: dict[str, Callable[[], type[Any]]] = {}


def register_executor(kind: str, load: Callable[[], type[Any]]) -> None:
    """
    Register the executor for a kind of device.

    Parameters
    ----------
    kind : str
        The device name, up to a colon: ``"cuda"``.
    load : callable
        Returns the executor class; called whenever needed.
    """
    _CLASSES[kind] = load


def executor_class(device: object) -> type[Any]:
    """
    Return the executor class for a device: for a device name, or for an open device.

    Raises
    ------
    InvalidOption
        If no device has such a name.
    """
    kind = device.partition(":")[0] if isinstance(device, str) else "cuda"
    if kind not in _CLASSES:
        known = ", ".join(f"{name} or {name}:NUMBER" for name in _CLASSES)
        raise InvalidOption(f"option device: {device!r} is not cpu, {known}")
    return _CLASSES[kind]()
