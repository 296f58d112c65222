"""Common base class of executors: an executor holds an arena until closed."""

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
    Return the caller's arena, an arena on the caller's memory, or a new arena.

    Raises
    ------
    ArenaError
        If the memory is not a writable buffer without gaps.
    """
    if memory is None:
        return plan.commit()
    return memory if isinstance(memory, Arena) else Arena(memory)


class Tenant(ABC):
    """Has arrays on an arena, which may be its own; a ``with`` statement closes the executor."""

    arena: Arena
    _owns_arena: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self.close()
        except ArenaError:
            if error is None:  # The error's traceback may hold references to the arena.
                raise

    def close(self) -> None:
        """
        Release the arena and all prepared kernels; close an arena that was committed here.

        Raises
        ------
        ArenaInUse
            If the arena was committed here and a borrowed output is still alive.
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
