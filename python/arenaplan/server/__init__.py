"""Serves many models to many threads and tasks from one memory."""

from __future__ import annotations

from arenaplan.server.server import Server
from arenaplan.server.session import Session
from arenaplan.server.statistics import ServerStatistics

__all__ = ["Server", "ServerStatistics", "Session"]
