"""
Element types that NumPy lacks: bfloat16, and types with one byte and less.

The package ``ml_dtypes`` gives NumPy these types, one element per byte or two. In the arena,
elements smaller than a byte are packed, the first element in the lowest bits, as models store them;
the array for such a value is a byte array.

Kernels see wider copies of such operands, in one more workspace: floats as float32, integers as
8-bit integers. Results are rounded once, when written. So every kernel computes with bfloat16; with
narrower types only conversions and operators that move elements do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from arenaplan.base.errors import UnsupportedDtype
from arenaplan.graph import Choice
from arenaplan.graph.ops import BITS
from arenaplan.run.numpy.registry import (
    Kernel,
    Run,
    Signature,
    Step,
    Tensor,
    adapter,
    scratch_bytes,
)

_WIDE: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(("int2", "int4"), np.dtype(np.int8)),
    **dict.fromkeys(("uint2", "uint4"), np.dtype(np.uint8)),
    **dict.fromkeys(
        (
            *("bfloat16", "float4_e2m1fn", "float8_e8m0fnu"),
            *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        ),
        np.dtype(np.float32),
    ),
}
_CONVERSIONS = ("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")
_MOVES = (
    *("BitCast", "Compress", "Concat", "Constant", "ConstantOfShape", "Expand"),
    *("Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape"),
    *("ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Slice"),
    *("Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
)
"""Operators that change no element."""
_BLOCK = 1 << 12
"""Elements that are converted at a time."""


@cache
def narrow_dtype(name: str) -> np.dtype[Any] | None:
    """Return the type called ``name`` if the type is in this module, and ``ml_dtypes`` has it."""
    if name not in _WIDE:
        return None
    try:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        return None
    return dtype


def is_packed(name: str) -> bool:
    """Return whether several elements share a byte."""
    return BITS[name] < 8


# -- packing -----------------------------------------------------------------------------------


def pack(source: np.ndarray, target: np.ndarray, bits: int) -> None:
    """Write the lowest bits of bytes to fewer bytes, the first element in the lowest bits."""
    each = 8 // bits
    mask = np.uint8((1 << bits) - 1)
    flat = source.reshape(-1)
    for start in range(0, target.size, _BLOCK):
        part = target[start : start + _BLOCK]
        part.fill(0)
        elements = flat[start * each : (start + part.size) * each].view(np.uint8)
        for lane in range(each):
            own = elements[lane::each] & mask
            part[: own.size] |= own << np.uint8(lane * bits)


def unpack(source: np.ndarray, target: np.ndarray, bits: int, *, signed: bool) -> None:
    """Write each element in packed bytes to a separate byte."""
    each = 8 // bits
    mask, sign = np.uint8((1 << bits) - 1), np.uint8(1 << (bits - 1))
    flat = target.reshape(-1).view(np.uint8)
    for start in range(0, source.size, _BLOCK):
        part = source[start : start + _BLOCK]
        elements = flat[start * each : (start + part.size) * each]
        for lane in range(each):
            own = elements[lane::each]
            np.copyto(own, (part[: own.size] >> np.uint8(lane * bits)) & mask)
        if signed:
            np.bitwise_xor(elements, sign, out=elements)
            np.subtract(elements, sign, out=elements)


def store(source: np.ndarray, target: np.ndarray, name: str) -> None:
    """Write an array to a value's memory, which may be packed."""
    if is_packed(name) and target.dtype == np.uint8:
        pack(np.ascontiguousarray(source).view(np.uint8), target, BITS[name])
    else:
        np.copyto(target, source)


def loaded(source: np.ndarray, shape: Sequence[int], name: str) -> np.ndarray:
    """Return a copy of the content of a value's memory."""
    dtype = narrow_dtype(name)
    if dtype is None or not is_packed(name) or source.dtype != np.uint8:
        return source.copy()
    elements = np.empty(shape, np.uint8)
    unpack(source, elements, BITS[name], signed=False)
    return elements.view(dtype)


# -- kernels -----------------------------------------------------------------------------------


@adapter
def narrowed(kernel: Kernel, signature: Signature) -> Kernel:
    """
    Return a kernel that computes with wider copies, if an operand has a type in this module.

    Raises
    ------
    UnsupportedDtype
        If the operator computes with numbers that are too narrow.
    """
    if all(t is None or t.dtype.isbuiltin == 1 for t in _operands(signature)):
        return kernel
    names = {t.dtype.name for t in _operands(signature) if t is not None and t.dtype.name in _WIDE}
    if names != {"bfloat16"} and signature.op not in (*_CONVERSIONS, *_MOVES):
        found = ", ".join(sorted(names - {"bfloat16"}))
        raise UnsupportedDtype(
            f"node {signature.name!r} ({signature.op}) computes with {found}, which is only "
            "converted and moved"
        )
    return replace(
        kernel,
        prepare=partial(_prepare, kernel),
        workspace=partial(_declare, kernel),
        cut=None,
        hosts=None,
    )


def _operands(signature: Signature) -> Iterator[Tensor | None]:
    yield from signature.inputs
    yield from signature.outputs


def _wide(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else Tensor(tensor.shape, _wide_dtype(tensor.dtype))


def _wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _WIDE.get(dtype.name, dtype)


def _widened(signature: Signature) -> Signature:
    """Return the signature with wider types, and with constants in these types."""

    def constant(load: Callable[[], np.ndarray] | None) -> Callable[[], np.ndarray] | None:
        return None if load is None else lambda: _converted(load())

    return replace(
        signature,
        inputs=tuple(map(_wide, signature.inputs)),
        outputs=tuple(map(_wide, signature.outputs)),
        constant=tuple(map(constant, signature.constant)),
    )


def _converted(array: np.ndarray) -> np.ndarray:
    wide = _wide_dtype(array.dtype)
    return array if wide == array.dtype else array.astype(wide)


def _copied(signature: Signature) -> Iterator[Tensor]:
    """Yield the operands that are copied, wider, on each run."""
    for position, tensor in enumerate(signature.inputs):
        is_constant = position < len(signature.constant) and signature.constant[position]
        if tensor is not None and tensor.dtype.name in _WIDE and not is_constant:
            yield tensor
    for tensor in signature.outputs:
        if tensor is not None and tensor.dtype.name in _WIDE:
            yield tensor


def _declare(inner: Kernel, signature: Signature) -> Sequence[Sequence[Choice]]:
    slots = [] if inner.workspace is None else list(inner.workspace(_widened(signature)))
    copies = (scratch_bytes(t.shape, _wide_dtype(t.dtype)) for t in _copied(signature))
    return [*slots, [Choice(sum(copies), 0.0)]]


def _prepare(inner: Kernel, step: Step) -> Run | None:
    signature = step.signature
    scratch = step.scratch(len(step.workspaces) - 1)
    work: list[Run] = []
    stores: list[Run] = []
    inputs: list[np.ndarray | None] = []
    for position, (array, tensor) in enumerate(zip(step.inputs, signature.inputs, strict=True)):
        if array is None or tensor is None or tensor.dtype.name not in _WIDE:
            inputs.append(array)
        elif position < len(signature.constant) and signature.constant[position]:
            inputs.append(_converted(array))
        else:
            copy = scratch.array(tensor.shape, _wide_dtype(tensor.dtype))
            if not (signature.op == "CastLike" and position == 1):  # The operand only gives a type.
                work.append(partial(_load, array, copy, tensor.dtype))
            inputs.append(copy)
    outputs: list[np.ndarray | None] = []
    for array, tensor in zip(step.outputs, signature.outputs, strict=True):
        if array is None or tensor is None or tensor.dtype.name not in _WIDE:
            outputs.append(array)
            continue
        copy = scratch.array(tensor.shape, _wide_dtype(tensor.dtype))
        stores.append(partial(_store, step, copy, array, tensor.dtype))
        outputs.append(copy)
    run = inner.prepare(
        replace(
            step,
            signature=_widened(signature),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            workspaces=step.workspaces[:-1],
        )
    )
    work += [*([] if run is None else [run]), *stores]

    def run_wide() -> None:
        for each in work:
            each()

    return run_wide


def _load(source: np.ndarray, target: np.ndarray, dtype: np.dtype[Any]) -> None:
    """Copy an operand with a narrow type."""
    name = dtype.name
    if not is_packed(name) or source.dtype != np.uint8:
        np.copyto(target, source, casting="unsafe")
    elif target.dtype == np.float32:
        flat, each = target.reshape(-1), 8 // BITS[name]
        for start in range(0, source.size, _BLOCK):
            part = flat[start * each : (start + _BLOCK) * each]
            elements = np.empty(part.size, np.uint8)
            unpack(source[start : start + _BLOCK], elements, BITS[name], signed=False)
            np.copyto(part, elements.view(dtype), casting="unsafe")
    else:
        unpack(source, target, BITS[name], signed=name.startswith("int"))


def _store(step: Step, source: np.ndarray, target: np.ndarray, dtype: np.dtype[Any]) -> None:
    """Write a result with a narrow type."""
    name, op = dtype.name, step.signature.op
    flat = source.reshape(-1)
    if flat.dtype != np.float32:
        if op == "QuantizeLinear":
            np.clip(flat, *_limits(dtype), out=flat)
        if target.dtype == np.uint8 and is_packed(name):
            pack(flat.view(np.uint8), target, BITS[name])
        else:
            np.copyto(target, source.view(np.uint8).view(dtype) if is_packed(name) else source)
        return
    saturates = op in _CONVERSIONS and step.attributes.get("saturate", 1)
    packs = target.dtype == np.uint8 and is_packed(name)
    each = 8 // BITS[name] if packs else 1
    made = target.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        if name == "float8_e8m0fnu":
            mode = step.attributes.get("round_mode", "up")
            exponents = _exponents(part, mode, saturates=bool(saturates))
            np.copyto(made[start : start + part.size].view(np.uint8), exponents)
            continue
        if saturates and name != "bfloat16":
            np.clip(part, *_limits(dtype), out=part)
        place = made[start // each : (start + part.size + each - 1) // each]
        if packs:
            pack(part.astype(dtype).view(np.uint8), place, BITS[name])
        else:
            np.copyto(place, part, casting="unsafe")


@cache
def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return a type's least and largest number, as numbers of the wider type."""
    import ml_dtypes

    is_whole = _wide_dtype(dtype) != np.float32
    about: Any = (ml_dtypes.iinfo if is_whole else ml_dtypes.finfo)(dtype)
    wide = _wide_dtype(dtype).type
    return wide(about.min), wide(about.max)


def _exponents(x: np.ndarray, mode: str, *, saturates: bool) -> np.ndarray:
    """
    Return numbers as float8_e8m0fnu elements: float32 exponents, without a sign.

    ``mode`` selects the power of two for a number between two powers. NaN is 255, also for
    infinities and, unless saturating, for results larger than the last power.
    """
    bits = x.view(np.uint32)
    exponent = (bits >> 23 & 0xFF).astype(np.uint8)
    rest = bits & 0x7FFFFF
    if mode == "up":
        above = rest > 0
    elif mode == "nearest":  # Ties go up, except ties of the smallest power.
        half = np.uint32(1 << 22)
        above = (rest > half) | ((rest == half) & (exponent > 0))
    else:
        above = np.zeros(x.shape, np.bool_)
    above &= exponent < (254 if saturates else 255)
    return exponent + above
