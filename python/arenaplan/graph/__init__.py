"""
Graphs, and all that they are described by: values, effects, operators, backends.

The names of :mod:`arenaplan.graph.graph`, :mod:`~arenaplan.graph.effects` and
:mod:`~arenaplan.graph.values` are names of this package, too.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
