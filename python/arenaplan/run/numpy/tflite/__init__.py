"""
Kernels of TFLite's operators: the arithmetic of TensorFlow Lite Micro's reference kernels.

Integer results are equal bit by bit. Sums of ``float32`` are made one product after the other, as
there. Sources: ``tensorflow/lite/kernels/internal/reference`` and ``tensorflow/lite/micro/kernels``
of tflite-micro, built with two roundings (``TFLITE_SINGLE_ROUNDING`` is not set), and
``fixedpoint.h`` of gemmlowp. Factors are computed from scales with ``float64``, as tflite-micro
does since autumn 2026.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
