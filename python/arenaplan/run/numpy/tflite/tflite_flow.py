"""Operators that run other subgraphs, by the kernels for ONNX branches and loops."""

from __future__ import annotations

from arenaplan.run.numpy.flow import body_scratch
from arenaplan.run.numpy.kernels.flow_kernels import if_, loop
from arenaplan.run.numpy.registry import kernel

kernel("IF", domain="tflite", workspace=body_scratch)(if_)
kernel("WHILE", domain="tflite", workspace=body_scratch)(loop)
