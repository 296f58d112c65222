"""
Graphs and their description: values, effects, operators, backends.

The package exports all names from :mod:`arenaplan.graph.graph`, :mod:`~arenaplan.graph.effects` and
:mod:`~arenaplan.graph.values`.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
