"""Serves many models to many threads and tasks from one memory."""

from __future__ import annotations

from arenaplan.run.server.server import Server
from arenaplan.run.server.session import Session
from arenaplan.run.server.statistics import ServerStatistics

__all__ = ["Server", "ServerStatistics", "Session"]
