"""TensorFlow Lite: files, the memory of its runtime, rewrites, and proofs of rewrites."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
