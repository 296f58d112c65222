"""From a graph to a plan: options, memories, packing. Knows no operators and no file formats."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
