"""
Limits for untrusted models: file bytes and graph nodes.

Every format also has limits that catch absurd files. A service that takes models from strangers can
set far smaller limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.base.errors import InvalidOption, fault

if TYPE_CHECKING:
    from arenaplan._core import Plan

__all__ = ["UNLIMITED", "Limits", "applied", "current", "reading", "take_node"]


@dataclass(frozen=True)
class Limits:
    """
    Limits for reading a model.

    Parameters
    ----------
    max_nodes : int, optional
        Most nodes in the graph, with functions inlined, and counting nodes in branches and loops.
    max_bytes : int, optional
        Most bytes in the model file. External weight files do not count: planning opens none.

    Raises
    ------
    InvalidOption
        If a limit is not a whole number >= 0.
    """

    max_nodes: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_nodes", "max_bytes"):
            limit = getattr(self, name)
            if limit is not None and (type(limit) is not int or limit < 0):
                raise InvalidOption(f"option {name}: {limit!r} is not a whole number of at least 0")

    def admit_plan(self, name: str, plan: Plan) -> None:
        """
        Refuse a plan for a graph with too many nodes.

        Raises
        ------
        ModelError
            If the graph has more than :attr:`max_nodes`.
        """
        if self.max_nodes is not None and len(plan.order) > self.max_nodes:
            raise fault(
                "ModelTooLarge",
                f"{name!r} is a plan of {len(plan.order):,} nodes; option max_nodes permits "
                f"{self.max_nodes:,}",
            )

    def admit(self, source: object) -> None:
        """
        Refuse a path or bytes with too many bytes.

        Raises
        ------
        ModelError
            If there are more than :attr:`max_bytes`.
        OSError
            If there is no such file.
        """
        if self.max_bytes is None:
            return
        if isinstance(source, bytes):
            size, what = len(source), "the data"
        elif isinstance(source, (str, os.PathLike)):
            size, what = Path(source).stat().st_size, repr(str(source))
        else:
            return
        if size > self.max_bytes:
            raise fault(
                "ModelTooLarge",
                f"{what} has {size:,} bytes; option max_bytes permits {self.max_bytes:,}",
            )


UNLIMITED = Limits()


@dataclass
class _Reading:
    """The nodes that the model that is read now may still have."""

    limit: int
    nodes: int = 0


_LIMITS: ContextVar[Limits] = ContextVar("arenaplan_limits", default=UNLIMITED)
_READING: ContextVar[_Reading | None] = ContextVar("arenaplan_reading", default=None)


@contextmanager
def applied(limits: Limits) -> Iterator[None]:
    """Apply limits to every model that is opened in a block."""
    token = _LIMITS.set(limits)
    try:
        yield
    finally:
        _LIMITS.reset(token)


def current() -> Limits:
    """Return the limits set by the caller's enclosing block."""
    return _LIMITS.get()


@contextmanager
def reading(limits: Limits) -> Iterator[None]:
    """Count the nodes of a model that is read inside the block."""
    limit = limits.max_nodes
    token = _READING.set(None if limit is None else _Reading(limit))
    try:
        yield
    finally:
        _READING.reset(token)


def take_node() -> None:
    """
    Count a node of the model being read.

    Raises
    ------
    ModelError
        If the model has too many nodes.
    """
    found = _READING.get()
    if found is None:
        return
    found.nodes += 1
    if found.nodes > found.limit:
        raise fault(
            "ModelTooLarge",
            f"the model has more than {found.limit:,} nodes, which option max_nodes permits",
        )
