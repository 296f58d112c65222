"""The classic planners in Rust, and their results."""

from __future__ import annotations

from arenaplan._core import (
    Allocation,
    ArenaBytes,
    Assign,
    Block,
    IncrementalArena,
    IncrementalPlacement,
    IncrementalPlanner,
    SimpleArena,
    StoragePlan,
)

__all__ = [
    "Allocation",
    "ArenaBytes",
    "Assign",
    "Block",
    "IncrementalArena",
    "IncrementalPlacement",
    "IncrementalPlanner",
    "SimpleArena",
    "StoragePlan",
]
