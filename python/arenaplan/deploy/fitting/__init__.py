"""
Models rewritten until TensorFlow Lite Micro runs them in a smaller arena.

:func:`fit` splits operators into strips of rows (:mod:`arenaplan.tflite.rewrite`), places the
tensors of the result, and counts the whole arena as the runtime does
(:func:`arenaplan.tflite.runtime.total`): every new operator takes memory of its own, so that the
smallest head is not the smallest arena.
"""

from __future__ import annotations

from arenaplan.deploy.fitting.fit_options import FitOptions
from arenaplan.deploy.fitting.fitting import Fit, fit, fits, rewritten

__all__ = ["Fit", "FitOptions", "fit", "fits", "rewritten"]
