"""Names shared by options and implementations; imports nothing."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

WorkspacePolicy: TypeAlias = Literal["none", "auto"]
"""A plan's scratch memory: none, or as needed by the target's kernels."""

KERNELS: Final = ("reference", "cmsis-nn", "cmsis-nn-mve", "esp-nn")
"""Kernel sets for TensorFlow Lite Micro."""

CodeKernels: TypeAlias = Literal["portable", "cmsis-nn", "cmsis-nn-mve"]
"""A kernel set for generated code."""
CODE_KERNELS: Final[tuple[CodeKernels, ...]] = get_args(CodeKernels)

RUNTIMES: Final = ("tflm", "litert")
"""Runtimes that can compare a rewritten model with the original."""

MAX_SHAPES: Final = 4096
"""Most shapes that a plan is made for, unless another number is given."""

FORMS: Final = {
    "tflm": "the same .tflite model with the plan in it, for TensorFlow Lite Micro",
    "tflm-shim": "a C table for TensorFlow Lite Micro's NonPersistentMemoryPlannerShim",
    "c": "a C header",
    "c-code": "a folder with the model as a C function, kernels and weights included",
    "csv": "CSV in minimalloc's columns",
    "json": "the plan file",
    "hazards": "the steps that each step waits for, as JSON",
    "hazards-c": "the steps that each step waits for, as a C table",
    "graph": "the graph without weights, for Rust programs and other machines",
    "weights": "the constants that nodes read as a safetensors file, by the names in the graph",
    "nnvm": "the JSON form of the graph runtimes of NNVM and TVM, with storage ids",
}
"""Export forms, each with a one-line description."""
