"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from arenaplan.executor.cuts import GEMM, PRODUCT
from arenaplan.executor.kernels.pieces import in_sequence, operand, result
from arenaplan.executor.kernels.widen import heavy_kernel
from arenaplan.executor.registry import Run, Signature, Step, scratch_bytes
from arenaplan.graph import Choice


@heavy_kernel("MatMul", cut=PRODUCT)
def matmul(step: Step) -> Run | None:
    """Multiply matrices, or stacks of them; integers wrap around."""
    a, b, output = operand(step, 0), operand(step, 1), result(step)
    if output.size == 0:
        return None
    if a.size == 0:  # The sum of nothing.
        return partial(output.fill, 0)
    if b.ndim == 2 and a.ndim > 2:  # One large product is faster than many small ones.
        a, output = a.reshape(-1, a.shape[-1]), output.reshape(-1, output.shape[-1])
    return partial(np.matmul, a, b, output)


def _declare_gemm(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for a scaled copy of C if it can only be scaled at run time."""
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
    work: list[Run] = []
    if a.size == 0:
        work.append(partial(output.fill, 0))
    else:
        work.append(partial(np.matmul, a, b, output))
    alpha = step.attributes.get("alpha", 1.0)
    if alpha != 1.0:
        work += _scaled(output, alpha, output)
    addend, beta = step.input(2), step.attributes.get("beta", 1.0)
    if addend is not None and beta != 0.0:
        if beta != 1.0:
            if step.signature.constant[2] is not None:
                addend = np.multiply(addend, beta).astype(addend.dtype)
            else:
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
