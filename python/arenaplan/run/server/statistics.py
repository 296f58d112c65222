"""A server's statistics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """
    Statistics of a :class:`~arenaplan.Server`.

    Attributes
    ----------
    leased_bytes : int
        Bytes that are leased now.
    free_bytes : int
        Bytes that were leased, are free now, and were not given back to the system.
    peak_bytes : int
        Most bytes, leased and free, at any time; at most the cap.
    leases : int
        Leases that were given to runs and sessions.
    reused : int
        Leases for which an executor was prepared at the place.
    prepared : int
        Executors that are prepared now.
    preparations : int
        Executors that were prepared.
    evicted : int
        Prepared executors that were forgotten, since others were used later.
    waits : int
        Requests that had to wait.
    refused : int
        Requests that did not want to wait any longer.
    waiting : int
        Requests that wait now.
    running : int
        Runs that have a lease now.
    sessions : int
        Sessions that are open now.
    """

    leased_bytes: int
    free_bytes: int
    peak_bytes: int
    leases: int
    reused: int
    waits: int
    refused: int
    waiting: int
    running: int
    sessions: int
    prepared: int = 0
    preparations: int = 0
    evicted: int = 0
