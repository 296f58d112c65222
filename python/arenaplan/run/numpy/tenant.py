"""Common base of executors: they hold on to an arena until they are closed."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import numpy as np

from arenaplan._core import Arena
from arenaplan.base.errors import ArenaError, ArenaInUse

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from arenaplan._core import Plan
    from arenaplan.run.dynamic.families import PlanFamily


def arena_of(plan: Plan | PlanFamily, memory: Buffer | np.ndarray | None) -> Arena:
    """
    Return the arena that a caller gave, made of memory that a caller gave, or a new one.

    Raises
    ------
    ArenaError
        If the memory is no writable buffer without gaps.
    """
    if memory is None:
        return plan.commit()
    return memory if isinstance(memory, Arena) else Arena(memory)


class Tenant(ABC):
    """Has arrays on an arena, which may be its own; a ``with`` statement closes it."""

    arena: Arena
    _owns_arena: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self.close()
        except ArenaError:
            if error is None:  # Its traceback may hold references to the arena.
                raise

    def close(self) -> None:
        """
        Let go of the arena and of all that was prepared; close it too if it was committed here.

        Raises
        ------
        ArenaInUse
            If it was committed here and a borrowed output is still alive.
        """
        self._let_go()
        if not self._owns_arena:
            return
        try:
            self.arena.close()
        except ArenaInUse:
            gc.collect()  # A kernel may have left views in a cycle.
            self.arena.close()

    @abstractmethod
    def _let_go(self) -> None:
        """Drop every array on the arena."""
