"""
Half precision, computed in single precision.

NumPy multiplies float16 matrices two hundred times slower than float32 matrices. A kernel
registered through :func:`widened` gets float32 copies of float16 operands, cut from one more
workspace, and results are rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.registry import (
    Cut,
    Declare,
    Prepare,
    Run,
    Signature,
    Step,
    Tensor,
    kernel,
    scratch_bytes,
)

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def heavy_kernel(
    *ops: str,
    domain: str = "",
    since: int = 1,
    workspace: Declare | None = None,
    cut: Cut | None = None,
    hosts: Callable[[Signature], bool] | None = None,
    adds: Callable[[Signature], bool] | None = None,
) -> Callable[[Prepare], Prepare]:
    """Register a kernel that computes float16 in float32; see :func:`registry.kernel`."""

    def register(prepare: Prepare) -> Prepare:
        kernel(
            *ops,
            domain=domain,
            since=since,
            workspace=partial(_declare, workspace),
            cut=cut,
            hosts=hosts,
            adds=adds,
        )(partial(_prepare, prepare))
        return prepare

    return register


def _is_half(signature: Signature) -> bool:
    return any(t is not None and t.dtype == _HALF for t in (*signature.inputs, *signature.outputs))


def _wide(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or tensor.dtype != _HALF:
        return tensor
    return Tensor(tensor.shape, _SINGLE)


def _widened(signature: Signature) -> Signature:
    """Return the signature with float32 for float16."""
    return replace(
        signature,
        inputs=tuple(map(_wide, signature.inputs)),
        outputs=tuple(map(_wide, signature.outputs)),
    )


def _declare(inner: Declare | None, signature: Signature) -> Sequence[Sequence[Choice]]:
    if not _is_half(signature):
        return [] if inner is None else inner(signature)
    slots = [] if inner is None else list(inner(_widened(signature)))
    copies = [
        scratch_bytes(tensor.shape, _SINGLE)
        for position, tensor in enumerate((*signature.inputs, *signature.outputs))
        if tensor is not None and tensor.dtype == _HALF and not _is_constant(signature, position)
    ]
    return [*slots, [Choice(sum(copies), 0.0)]]


def _is_constant(signature: Signature, position: int) -> bool:
    return position < len(signature.constant) and signature.constant[position] is not None


def _prepare(inner: Prepare, step: Step) -> Run | None:
    signature = step.signature
    if not _is_half(signature):
        return inner(step)
    scratch = step.scratch(len(step.workspaces) - 1)
    loads: list[Run] = []
    stores: list[Run] = []

    def wide_input(position: int, array: np.ndarray | None) -> np.ndarray | None:
        if array is None or array.dtype != _HALF:
            return array
        if _is_constant(signature, position):
            return shared([array], "widened", lambda: (array.astype(_SINGLE), None))[0]
        copy = scratch.array(array.shape, _SINGLE)
        loads.append(partial(np.copyto, copy, array))
        return copy

    def wide_output(array: np.ndarray | None) -> np.ndarray | None:
        if array is None or array.dtype != _HALF:
            return array
        copy = scratch.array(array.shape, _SINGLE)
        stores.append(partial(np.copyto, array, copy, "same_kind"))
        return copy

    inputs = tuple(wide_input(position, array) for position, array in enumerate(step.inputs))
    outputs = tuple(map(wide_output, step.outputs))
    run = inner(
        replace(
            step,
            signature=_widened(signature),
            inputs=inputs,
            outputs=outputs,
            workspaces=step.workspaces[:-1],
        )
    )
    work = [*loads, *([] if run is None else [run]), *stores]

    def run_wide() -> None:
        for each in work:
            each()

    return run_wide
