"""
Reads model files and live programs in several formats into graphs.

Each format is a package, imported when the first model in the format is read.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
