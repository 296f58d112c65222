"""Operators that ONNX Runtime's optimizer writes: standard operators with something added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from arenaplan.base.errors import UnsupportedOp
from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import in_sequence, operand, result
from arenaplan.run.numpy.registry import (
    MICROSOFT,
    Kernel,
    Run,
    Signature,
    Step,
    find_kernel,
    kernel,
)

_NEWEST = 24
"""Version of the standard operators in this module."""


@dataclass(frozen=True)
class _Standard:
    """A standard operator that does the main part of the work."""

    op: str
    attributes: Callable[[Signature], Mapping[str, Any]]
    inputs: Callable[[Signature], Sequence[int]]
    """Positions of the operands among the node's operands; operand 0 has the output's shape."""

    def signature(self, of: Signature) -> Signature:
        """Return the standard operator for a node."""
        positions = self.inputs(of)
        return replace(
            of,
            op=self.op,
            domain="",
            version=_NEWEST,
            attributes=self.attributes(of),
            inputs=tuple(of.inputs[at] for at in positions),
            outputs=of.outputs[:1],
            constant=tuple(of.constant[at] for at in positions),
        )

    def kernel(self, of: Signature) -> Kernel:
        """Return the standard operator's kernel."""
        return find_kernel(self.signature(of))

    def declare(self, of: Signature) -> Sequence[Sequence[Choice]]:
        """Return the standard operator's scratch memory."""
        found = self.kernel(of)
        return [] if found.workspace is None else found.workspace(self.signature(of))

    def run(self, step: Step, first: np.ndarray, output: np.ndarray) -> Run | None:
        """Return the standard operator's run, with another operand 0."""
        signature = self.signature(step.signature)
        positions = self.inputs(step.signature)
        inputs = (first, *(step.inputs[at] for at in positions[1:]))
        constant = (None if first is not step.input(positions[0]) else signature.constant[0],)
        signature = replace(signature, constant=(*constant, *signature.constant[1:]))
        inner = replace(step, signature=signature, inputs=inputs, outputs=(output,))
        return self.kernel(step.signature).prepare(inner)


# -- products and convolutions ----------------------------------------------------------------


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


_CONVOLUTION = _Standard(
    "Conv",
    lambda of: {
        name: value for name, value in of.attributes.items() if not name.startswith("activation")
    },
    lambda of: (0, 1, 2) if of.input(2) is not None else (0, 1),
)
_PARAMETERS = {
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
"""Activations of fused convolutions, with the attributes that hold their parameters."""


def _activation(signature: Signature) -> Signature | None:
    """Return a fused convolution's activation as a separate operator."""
    name = signature.attributes.get("activation")
    if name is None:
        return None
    if name not in _PARAMETERS:
        raise UnsupportedOp(
            f"node {signature.name!r} ({signature.op}): no kernel runs activation {name!r}"
        )
    given = signature.attributes.get("activation_params", ())
    # The standard's versions in which parameters are attributes.
    return replace(
        signature,
        op=name,
        domain="",
        version=6,
        attributes=dict(zip(_PARAMETERS[name], given, strict=False)),
        inputs=signature.outputs[:1],
        outputs=signature.outputs[:1],
        constant=(None,),
    )


def _declare_convolution(signature: Signature) -> Sequence[Sequence[Choice]]:
    slots = [*_CONVOLUTION.declare(signature)]
    activation = _activation(signature)
    declare = None if activation is None else find_kernel(activation).workspace
    return slots if declare is None or activation is None else [*slots, *declare(activation)]


@kernel("FusedConv", domain=MICROSOFT, workspace=_declare_convolution)
def fused_conv(step: Step) -> Run | None:
    """Convolve, add input 3, and activate."""
    output = result(step)
    if output.size == 0:
        return None
    own = len(_CONVOLUTION.declare(step.signature))
    inner = replace(step, workspaces=step.workspaces[:own])
    runs = [_CONVOLUTION.run(inner, operand(step, 0), output)]
    if step.input(3) is not None:
        runs.append(partial(np.add, output, operand(step, 3), output))
    activation = _activation(step.signature)
    if activation is not None:
        after = Step(activation, (output,), (output,), step.workspaces[own:])
        runs.append(find_kernel(activation).prepare(after))
    return in_sequence(*runs)
