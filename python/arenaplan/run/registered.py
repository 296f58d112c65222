"""
Which executor runs a model: the package says which class and which function.

No executor imports another. This module imports no arrays, because the package imports it first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arenaplan.base.errors import InvalidOption

_CLASSES: dict[str, Callable[[], type[Any]]] = {}
_CHOICE: list[Callable[[], Callable[..., Any]]] = []


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


def register_choice(load: Callable[[], Callable[..., Any]]) -> None:
    """
    Say how the executor of a model file for the CPU is chosen.

    Parameters
    ----------
    load : callable
        Returns a function of the model, ``bind`` and the other options that returns a graph, or
        an executor for a model whose sizes are not known beforehand.
    """
    _CHOICE[:] = [load]


def class_of(kind: str, device: object) -> type[Any]:
    """
    Return the class of the executors for a kind of devices.

    Raises
    ------
    InvalidOption
        If no device has such a name.
    """
    if kind not in _CLASSES:
        known = ", ".join(f"{name} or {name}:NUMBER" for name in _CLASSES if name != "cpu")
        raise InvalidOption(f"option device: {device!r} is not cpu, {known}")
    return _CLASSES[kind]()


def choice() -> Callable[..., Any]:
    """Return the function that chooses the executor of a model file."""
    return _CHOICE[0]()
