"""Memory and queues for runs, written in Rust."""

from __future__ import annotations

from arenaplan._core import (
    Arena,
    Lease,
    Queue,
    StepOperands,
    Variable,
)

__all__ = [
    "Arena",
    "Lease",
    "Queue",
    "StepOperands",
    "Variable",
]
