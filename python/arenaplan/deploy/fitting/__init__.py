"""
Rewrites models for a smaller arena in TensorFlow Lite Micro.

:func:`fit` splits operators into row strips (:mod:`arenaplan.tflite.rewrite`), places the resulting
tensors, and counts the whole arena as the runtime does (:func:`arenaplan.tflite.runtime.total`):
every new operator takes memory, so the smallest head is not always the smallest arena.
"""

from __future__ import annotations

from arenaplan.deploy.fitting.fit_options import FitOptions
from arenaplan.deploy.fitting.fitting import Fit, fit, fits, rewritten

__all__ = ["Fit", "FitOptions", "fit", "fits", "rewritten"]
