"""Elementwise operators by the compiled chain kernel."""

from __future__ import annotations

import numpy as np

from arenaplan.run.numpy.chains import RECIPES, channel_operands, single
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, compiled_kernel


def _is_chain(signature: Signature) -> bool:
    return single(signature) is not None


def _prepare(step: Step) -> Run | None:
    """Return a chain with one operator."""
    chain, output = single(step.signature), result(step)
    assert chain is not None, "the kernel was chosen for such nodes"
    arrays: dict[object, np.ndarray] = {
        ("input", position): operand(step, position)
        for position in range(len(step.inputs))
        if step.inputs[position] is not None
    }
    arrays |= channel_operands("result", step.signature, output.ndim)
    return chain.bind("result", arrays, output)


for _domain, _op in RECIPES:
    compiled_kernel(_op, domain=_domain, when=_is_chain)(_prepare)
