"""
Matrix products: by a compiled kernel if the right operand is constant, else by BLAS.

BLAS rearranges a right operand at every call. The compiled kernel multiplies by columns that were
rearranged once, at preparation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from arenaplan._core import CompiledKernel, pack_matrix, packed_matrix
from arenaplan.graph import Choice
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.cuts import GEMM, PRODUCT
from arenaplan.run.numpy.kernels.pieces import in_sequence, operand, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import MICROSOFT, Run, Signature, Step, kernel, scratch_bytes

_SINGLE = np.dtype(np.float32)
_COLUMNS = 8
"""Columns from which on the compiled kernel is faster."""


@heavy_kernel("MatMul", cut=PRODUCT)
def matmul(step: Step) -> Run | None:
    """Multiply matrices, or stacks of matrices; integers wrap around."""
    a, b, output = operand(step, 0), operand(step, 1), result(step)
    if output.size == 0:
        return None
    if a.size == 0:  # An empty sum.
        return partial(output.fill, 0)
    if b.ndim == 2 and a.ndim > 2:  # One large product is faster than many small ones.
        a, output = a.reshape(-1, a.shape[-1]), output.reshape(-1, output.shape[-1])
    return _packed_product(step, a, b, output) or partial(np.matmul, a, b, output)


def _packed_product(
    step: Step,
    a: np.ndarray,
    b: np.ndarray,
    output: np.ndarray,
    factor: float = 1.0,
    bias: np.ndarray | None = None,
) -> Run | None:
    """Return the product of ``a`` and ``factor * b`` by the compiled kernel, if possible."""
    is_fixed = step.signature.constant[1] is not None and is_enabled()
    if not is_fixed or b.ndim != 2 or not (_has_rows(a) and _has_rows(output)):
        return None
    if b.dtype != _SINGLE or np.may_share_memory(a, output):
        return None
    if b.shape[1] < _COLUMNS:
        return None
    name = f"packed {factor}"
    if name not in step.kept:
        step.kept[name], _ = shared([b], ("MatMul", factor), lambda: (packed(b, factor), None))
    return CompiledKernel.product(a, step.kept[name], output, bias)


def _has_rows(array: np.ndarray) -> bool:
    """Return whether the compiled kernel takes an array's rows."""
    return (
        array.ndim == 2
        and array.dtype == _SINGLE
        and array.flags.aligned
        and (array.shape[1] == 1 or array.strides[1] == array.itemsize)
        and (array.shape[0] == 1 or array.strides[0] >= array.shape[1] * array.itemsize)
        and array.strides[0] % array.itemsize == 0
    )


def packed(matrix: np.ndarray, factor: float) -> np.ndarray:
    """Return a matrix in the compiled kernel's reading order."""
    packed = np.empty(packed_matrix(*matrix.shape), _SINGLE)
    if factor != 1.0:
        matrix = matrix * _SINGLE.type(factor)
    is_transposed = matrix.T.flags.c_contiguous and not matrix.flags.c_contiguous
    source = matrix.T if is_transposed else np.ascontiguousarray(matrix)
    pack_matrix(source, is_transposed, packed)
    return packed


def _declare_gemm(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for a scaled copy of C if the scale is known only at run time."""
    addend, factor = signature.input(2), signature.attributes.get("beta", 1.0)
    if addend is None or factor in (0.0, 1.0) or signature.constant[2] is not None:
        return []
    return [[Choice(scratch_bytes(addend.shape, addend.dtype), 0.0)]]


@heavy_kernel("Gemm", workspace=_declare_gemm, cut=GEMM)
def gemm(step: Step) -> Run | None:
    """Compute ``alpha * A @ B + beta * C``, either matrix transposed if asked for."""
    a, b, output = operand(step, 0), operand(step, 1), result(step)
    if output.size == 0:
        return None
    a = a.T if step.attributes.get("transA", 0) else a
    b = b.T if step.attributes.get("transB", 0) else b
    alpha, beta = step.attributes.get("alpha", 1.0), step.attributes.get("beta", 1.0)
    addend = step.input(2) if beta != 0.0 else None
    is_fixed = addend is not None and step.signature.constant[2] is not None
    if addend is not None and is_fixed and beta != 1.0:
        addend, beta = np.multiply(addend, beta).astype(addend.dtype), 1.0
    work: list[Run] = []
    if a.size == 0:
        work.append(partial(output.fill, 0))
    else:
        bias = None
        if addend is not None and is_fixed and addend.shape in (b.shape[1:], (1, *b.shape[1:])):
            bias = np.ascontiguousarray(addend.reshape(-1))
        run = _packed_product(step, a, b, output, alpha, bias)
        if run is not None and bias is not None:
            return run
        if run is not None:
            alpha = 1.0
        work.append(run or partial(np.matmul, a, b, output))
    if alpha != 1.0:
        work += _scaled(output, alpha, output)
    if addend is not None:
        if beta != 1.0:
            scaled = step.scratch().array(addend.shape, addend.dtype)
            work += _scaled(addend, beta, scaled)
            addend = scaled
        work.append(partial(np.add, output, addend, output))
    return in_sequence(*work)


def _scaled(source: np.ndarray, factor: float, target: np.ndarray) -> list[Run]:
    """Return a function that writes ``source * factor``, rounded towards zero for integers."""
    if source.dtype.kind == "f":
        return [partial(np.multiply, source, source.dtype.type(factor), target)]
    return [partial(np.multiply, source, factor, target, casting="unsafe")]


@kernel("FusedMatMul", domain=MICROSOFT)
def fused_matmul(step: Step) -> Run | None:
    """Multiply stacks of matrices, either transposed if requested, by a factor."""
    a, b, output = operand(step, 0), operand(step, 1), result(step)
    if output.size == 0:
        return None
    attributes = step.attributes
    if attributes.get("transA", 0) and a.ndim > 1:
        a = a.swapaxes(-1, -2)
    if attributes.get("transB", 0) and b.ndim > 1:
        b = b.swapaxes(-1, -2)
    product: Run = partial(output.fill, 0) if a.size == 0 else partial(np.matmul, a, b, output)
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1.0:
        return product
    return in_sequence(product, partial(np.multiply, output, output.dtype.type(alpha), output))
