"""Running plans: with NumPy, on CUDA devices, for models of many shapes, in a server."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
