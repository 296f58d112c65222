"""
Memory that the kernels of CMSIS-NN ask for in TensorFlow Lite Micro.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from arenaplan.importers.tflite.micro.kernels import Kernel

CMSIS_NN: Final[Mapping[str, Kernel]] = {}
"""Kernels that differ from the reference kernels, by the name of the operator."""
