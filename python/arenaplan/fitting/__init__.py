"""
Models rewritten until TensorFlow Lite Micro runs them in a smaller arena.

:func:`fit` splits operators into strips of rows (:mod:`arenaplan.rewrite`), places the tensors of
the result, and counts the whole arena as the runtime does
(:func:`arenaplan.importers.tflite.micro.total`): every new operator takes memory of its own, so
that the smallest head is not the smallest arena.
"""

from __future__ import annotations

from arenaplan.fitting.fit import Fit, fit, fits, rewritten
from arenaplan.fitting.options import FitOptions

__all__ = ["Fit", "FitOptions", "fit", "fits", "rewritten"]
