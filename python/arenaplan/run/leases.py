"""Memory for runs, which is written in Rust."""

from __future__ import annotations

from arenaplan._core import (
    Arena,
    Lease,
    StepOperands,
)

__all__ = [
    "Arena",
    "Lease",
    "StepOperands",
]
