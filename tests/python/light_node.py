"""One node on arrays that a test laid out, run by its kernel alone."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import arenaplan.run.numpy.kernels  # noqa: F401  (registers them)
import pointwise
from arenaplan.run.numpy.registry import Run, Signature, Step, Tensor, find_kernel

Array: TypeAlias = np.ndarray

RNG = np.random.default_rng(20261121)
LONG = 100_003
"""More elements than a block has."""


class Node:
    """One node on arrays of its own, or on those that a test lays out for it."""

    def __init__(
        self,
        op: str,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
        *,
        version: int = 23,
        constants: Sequence[int] = (),
        choice: int = 0,
        **attributes: Any,
    ) -> None:
        self.outputs = outputs
        signature = Signature(
            "the node",
            op,
            "",
            version,
            attributes,
            tuple(_tensor(array) for array in inputs),
            tuple(_tensor(array) for array in outputs),
            tuple(
                (lambda data=array: data) if k in constants else None
                for k, array in enumerate(inputs)
            ),
        )
        kernel = find_kernel(signature)
        self.choices = (
            [list(slot) for slot in kernel.workspace(signature)] if kernel.workspace else []
        )
        workspaces = tuple(aligned(slot[min(choice, len(slot) - 1)].bytes) for slot in self.choices)
        self.work: Run | None = kernel.prepare(
            Step(signature, tuple(inputs), tuple(outputs), workspaces)
        )

    def run(self) -> Array:
        with np.errstate(all="ignore"):
            if self.work is not None:
                self.work()
        first = self.outputs[0]
        assert first is not None
        return first


def _tensor(array: Array | None) -> Tensor | None:
    return None if array is None else Tensor(array.shape, array.dtype)


def aligned(size: int) -> Array:
    """Return bytes at a multiple of 64, with garbage in them."""
    memory = np.full(size + 64, 0xAB, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def blank(shape: Sequence[int], dtype: Any = np.float32) -> Array:
    """Return an array with garbage in it."""
    dtype = np.dtype(dtype)
    return aligned(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def compute(
    op: str,
    inputs: Sequence[Array | None],
    shape: Sequence[int],
    dtype: Any = np.float32,
    **options: Any,
) -> Array:
    """Return what an operator makes of ``inputs``."""
    return Node(op, inputs, [blank(shape, dtype)], **options).run()


def values(shape: Sequence[int], dtype: Any, special: bool = True) -> Array:
    """Return random numbers of a type; floating ones with infinities and NaN among them."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        low = 0 if dtype.kind == "u" else -9
        return RNG.integers(low, 9, shape).astype(dtype)
    numbers = (RNG.standard_normal(shape) * 3).astype(dtype)
    if special and numbers.size > 8:
        numbers.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 0, -0.0, 0.5]
    return numbers


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def peak_of(node: Node) -> int:
    """Return the bytes that a warm run allocates at most."""
    node.run()
    tracemalloc.start()
    try:
        node.run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- operators that work element by element ----------------------------------------------

FLOATS = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")

UNARY: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    **{
        op: (FLOATS, {})
        for op in (
            *(op for op in pointwise.UNARY if op not in ("Clip", "Identity", "Shrink")),
            *("IsInf", "IsNaN"),
        )
    },
    **{op: ((*FLOATS, *SIGNED), {}) for op in ("Abs", "Neg", "Relu", "Sign")},
    "BitwiseNot": ((*SIGNED, *UNSIGNED), {}),
    "Not": (("bool",), {}),
    "Shrink": (("float32", "int32"), {"lambd": 1.5, "bias": 1.0}),
}
BINARY: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    **{
        op: ((*FLOATS, *SIGNED, *UNSIGNED), {}) for op in ("Add", "Mul", "Sub", "Max", "Min", "Sum")
    },
    **{
        op: ((*FLOATS, *SIGNED, *UNSIGNED), {})
        for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{op: ((*SIGNED, *UNSIGNED), {}) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: (("bool",), {}) for op in ("And", "Or", "Xor")},
    "BitShift": (UNSIGNED, {"direction": "LEFT"}),
    "Div": ((*FLOATS, "int32", "int64", "uint8"), {}),
    "Mod": (("int32", "int64"), {}),
    "PRelu": (FLOATS, {}),
    "Pow": (FLOATS, {}),
}


def result_type(op: str, dtype: str) -> str:
    """Return the type of an operator's result."""
    predicates = ("Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual")
    return "bool" if op in predicates else dtype
