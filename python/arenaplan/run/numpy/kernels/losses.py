"""
Classification losses with gradients.

Scores are ``(N, C, …)``, labels ``(N, …)``. The mean is weighted: the sum of weighted losses over
the sum of the weights of all counted labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import TRAINING
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Scratch, Signature, Step, kernel, scratch_bytes


class _Layout(NamedTuple):
    """Sizes of scores: samples, classes, and labels per sample."""

    samples: int
    classes: int
    inner: int

    @property
    def labels(self) -> int:
        return self.samples * self.inner


def _layout(shape: Sequence[int]) -> _Layout:
    return _Layout(shape[0], shape[1], prod(shape[2:]))


class _Labels:
    """The labels in a run: score positions, and weights."""

    def __init__(
        self,
        step: Step,
        layout: _Layout,
        labels: np.ndarray,
        weights: np.ndarray | None,
        scratch: Scratch,
        dtype: np.dtype[Any],
    ) -> None:
        self._step, self._layout = step, layout
        self._labels, self._weights = labels.reshape(-1), weights
        self.position = scratch.array((layout.labels,), np.int64)
        self.weight = scratch.array((layout.labels,), dtype)
        self._ignored = step.attributes.get("ignore_index")
        n, c, inner = layout
        self._start = (np.arange(n)[:, None] * c * inner + np.arange(inner)).reshape(-1)

    def read(self) -> None:
        """Read the labels: positions in the flat scores, and weights; 0 for ignored labels."""
        labels, weight, position = self._labels, self.weight, self.position
        np.copyto(position, labels)
        is_ignored = None if self._ignored is None else labels == self._ignored
        if is_ignored is not None:
            np.copyto(position, 0, where=is_ignored)
        classes = self._layout.classes
        if position.size and not 0 <= position.min() <= position.max() < classes:
            wrong = position.min() if position.min() < 0 else position.max()
            signature = self._step.signature
            raise fault(
                "IndexOutOfRange",
                f"node {signature.name!r} ({signature.op}) has label {wrong} for {classes} classes",
            )
        if self._weights is None:
            weight.fill(1)
        else:
            np.take(self._weights, position, out=weight, mode="wrap")
        if is_ignored is not None:
            np.copyto(weight, 0, where=is_ignored)
        np.multiply(position, self._layout.inner, out=position)
        np.add(position, self._start, out=position)

    def share(self) -> float:
        """Return the factor for each weighted loss in the result."""
        if self._step.attributes.get("reduction", "mean") != "mean":
            return 1.0
        total = float(np.add.reduce(self.weight))
        return 1.0 / total if total else float("nan")


def _label_bytes(layout: _Layout, dtype: Any) -> int:
    count = (layout.labels,)
    return scratch_bytes(count, np.int64) + scratch_bytes(count, dtype)


def _declare(scores: int, extra: int = 0) -> Any:
    """Return a declaration of scratch memory for labels, and ``extra`` numbers for each label."""

    def declare(signature: Signature) -> Sequence[Sequence[Choice]]:
        tensor = signature.input(scores) if scores >= 0 else signature.outputs[0]
        if tensor is None:
            return []
        layout = _layout(tensor.shape)
        more = extra * scratch_bytes((layout.labels,), tensor.dtype)
        return [[Choice(_label_bytes(layout, tensor.dtype) + more, 0.0)]]

    return declare


def _declare_softmax(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for labels, one sample's exponentials, and logarithms that are not an output."""
    tensor = signature.input(0)
    if tensor is None:
        return []
    layout, dtype = _layout(tensor.shape), tensor.dtype
    sizes = [(layout.labels,), (layout.samples, 1, layout.inner), layout[1:]]
    if len(signature.outputs) < 2 or signature.outputs[1] is None:
        sizes.append(tensor.shape)
    total = sum(scratch_bytes(size, dtype) for size in sizes)
    return [[Choice(_label_bytes(layout, dtype) + total, 0.0)]]


@kernel("SoftmaxCrossEntropyLoss", domain=TRAINING, workspace=_declare_softmax)
def softmax_cross_entropy(step: Step) -> Run | None:
    """Write the loss, and the logarithms of all probabilities."""
    scores, loss, scratch = operand(step, 0), result(step), step.scratch()
    layout = _layout(scores.shape)
    labels = _Labels(step, layout, operand(step, 1), step.input(2), scratch, scores.dtype)
    losses = scratch.array((layout.labels,), scores.dtype)
    room = scratch.array((layout.samples, 1, layout.inner), scores.dtype)
    power = scratch.array(layout[1:], scores.dtype)
    logarithms = step.output(1)
    if logarithms is None:
        logarithms = scratch.array(scores.shape, scores.dtype)
    x, y = scores.reshape(layout), logarithms.reshape(layout)

    def run() -> None:
        labels.read()
        np.maximum.reduce(x, axis=1, keepdims=True, out=room)
        for sample, most, target in zip(x, room, y, strict=True):
            np.subtract(sample, most, out=target)
        # One sample at a time: exponentials take scratch memory for a single sample.
        for target, total in zip(y, room, strict=True):
            np.exp(target, out=power)
            np.add.reduce(power, axis=0, keepdims=True, out=total)
            np.log(total, out=total)
            np.subtract(target, total, out=target)
        np.take(y.reshape(-1), labels.position, out=losses, mode="wrap")
        _reduced(step, labels, losses, loss)

    return run


@kernel("NegativeLogLikelihoodLoss", domain=TRAINING, workspace=_declare(0, 1))
def negative_log_likelihood(step: Step) -> Run | None:
    """Write the negative logarithms at the labels, or the sum or mean."""
    scores, loss, scratch = operand(step, 0), result(step), step.scratch()
    layout = _layout(scores.shape)
    labels = _Labels(step, layout, operand(step, 1), step.input(2), scratch, scores.dtype)
    losses = scratch.array((layout.labels,), scores.dtype)

    def run() -> None:
        labels.read()
        np.take(scores.reshape(-1), labels.position, out=losses, mode="wrap")
        _reduced(step, labels, losses, loss)

    return run


def _reduced(step: Step, labels: _Labels, losses: np.ndarray, loss: np.ndarray) -> None:
    """Weigh logarithms, and write the loss."""
    np.multiply(losses, labels.weight, out=losses)
    np.negative(losses, out=losses)
    if step.attributes.get("reduction", "mean") == "none":
        np.copyto(loss.reshape(-1), losses)
    else:
        np.copyto(loss, np.add.reduce(losses) * losses.dtype.type(labels.share()))


@kernel("SoftmaxCrossEntropyLossGrad", domain=TRAINING, workspace=_declare(1))
def softmax_cross_entropy_gradient(step: Step) -> Run | None:
    """Write the probabilities, less 1 at the label, times weight and gradient of the loss."""
    logarithms, target = operand(step, 1), result(step)
    layout = _layout(logarithms.shape)
    scratch = step.scratch()
    labels = _Labels(step, layout, operand(step, 2), step.input(3), scratch, target.dtype)
    factor = labels.weight.reshape(layout.samples, 1, layout.inner)
    y = target.reshape(layout)

    def run() -> None:
        labels.read()
        np.exp(logarithms, out=target)
        flat = target.reshape(-1)
        flat[labels.position] -= 1
        _scale(step, labels)
        np.multiply(y, factor, out=y)

    return run


@kernel("NegativeLogLikelihoodLossGrad", domain=TRAINING, workspace=_declare(-1))
def negative_log_likelihood_gradient(step: Step) -> Run | None:
    """Write zeros but for the labels."""
    target = result(step)
    layout = _layout(target.shape)
    scratch = step.scratch()
    labels = _Labels(step, layout, operand(step, 1), step.input(2), scratch, target.dtype)

    def run() -> None:
        labels.read()
        target.fill(0)
        _scale(step, labels)
        np.negative(labels.weight, out=labels.weight)
        target.reshape(-1)[labels.position] = labels.weight

    return run


def _scale(step: Step, labels: _Labels) -> None:
    """Multiply weights by the gradient of each weighted loss."""
    share = labels.weight.dtype.type(labels.share())
    np.multiply(labels.weight, share, out=labels.weight)
    np.multiply(labels.weight, operand(step, 0).reshape(-1), out=labels.weight)
