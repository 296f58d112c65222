"""The NNVM, MXNet and TensorFlow Lite planners, to the byte and improved."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
