"""
Model files and live programs of several formats, read into graphs.

Each format is a package of its own, and is imported when the first model of it is read.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
