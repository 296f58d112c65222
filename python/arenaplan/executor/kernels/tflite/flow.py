"""Operators that run other subgraphs: the branches and loops of ONNX do what they do."""

from __future__ import annotations

from arenaplan.executor.flow import body_scratch
from arenaplan.executor.kernels.flow import if_, loop
from arenaplan.executor.registry import kernel

kernel("IF", domain="tflite", workspace=body_scratch)(if_)
kernel("WHILE", domain="tflite", workspace=body_scratch)(loop)
