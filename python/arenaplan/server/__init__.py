"""Serves many models to many threads and tasks from one memory."""

from __future__ import annotations

from arenaplan.server.server import Server, ServerStatistics
from arenaplan.server.session import Session

__all__ = ["Server", "ServerStatistics", "Session"]
