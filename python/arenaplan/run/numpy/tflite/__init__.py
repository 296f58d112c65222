"""
Kernels for TFLite operators: the arithmetic of TensorFlow Lite Micro's reference kernels.

Integer results are equal bit by bit. ``float32`` sums add one product after the other, as in the
source. Sources: ``tensorflow/lite/kernels/internal/reference`` and
``tensorflow/lite/micro/kernels`` in tflite-micro, built with two roundings
(``TFLITE_SINGLE_ROUNDING`` is not set), and gemmlowp's ``fixedpoint.h``. Factors are computed from
scales with ``float64``, as in tflite-micro since autumn 2026.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
