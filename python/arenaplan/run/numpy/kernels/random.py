"""
Random numbers, the same in every step order.

Each run of a node has a separate stream: the counter-based generator Philox (Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key is the seed and the node's name, or
the attribute ``stream``, which a second execution in the same run shares with the first. The run
number is in the counter's upper word. So results depend neither on the step order, nor on threads,
nor on earlier runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import prod
from struct import pack
from typing import Any

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.cuts import RESHAPE
from arenaplan.run.numpy.kernels.layout import dropout
from arenaplan.run.numpy.kernels.pieces import invalid, operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

_BLOCK = 1 << 12
"""Numbers that are drawn at a time, if their type is not the result's type."""
_DRAWN = (np.dtype(np.float32), np.dtype(np.float64))
"""Types that the generator writes directly."""


def generator(step: Step) -> np.random.Generator:
    """Return the stream for this run of a node."""
    seed = step.attributes.get("seed")
    own = pack("<Q", step.clock.seed) if seed is None else pack("<d", seed)
    name = str(step.attributes.get("stream", step.signature.name))
    key = blake2b(own + name.encode("utf-8", "surrogatepass"), digest_size=16)
    return np.random.Generator(
        np.random.Philox(
            key=np.frombuffer(key.digest(), "<u8").astype(np.uint64),
            counter=np.array([0, 0, 0, step.clock.run], np.uint64),
        )
    )


def _declare_drawn(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for some numbers, if drawing into the result is impossible."""
    y = signature.outputs[0]
    if y is None or y.dtype in _DRAWN or 0 in y.shape:
        return []
    return [[Choice(scratch_bytes((min(prod(y.shape), _BLOCK),), np.float32), 0.0)]]


@kernel("RandomUniform", "RandomUniformLike", workspace=_declare_drawn)
def random_uniform(step: Step) -> Run | None:
    """Draw numbers between two bounds."""
    low, high = step.attributes.get("low", 0.0), step.attributes.get("high", 1.0)
    return _drawn(step, np.random.Generator.random, high - low, low)


@kernel("RandomNormal", "RandomNormalLike", workspace=_declare_drawn)
def random_normal(step: Step) -> Run | None:
    """Draw numbers around a mean."""
    mean, scale = step.attributes.get("mean", 0.0), step.attributes.get("scale", 1.0)
    return _drawn(step, np.random.Generator.standard_normal, scale, mean)


def _drawn(step: Step, method: Callable[..., Any], scale: float, shift: float) -> Run | None:
    """Return a function that draws all numbers of the result, times a scale, plus a shift."""
    y = result(step)
    if y.size == 0:
        return None
    flat = y.reshape(-1)

    def draw(source: np.random.Generator, numbers: np.ndarray) -> None:
        number = numbers.dtype.type
        method(source, out=numbers, dtype=number)
        np.multiply(numbers, number(scale), out=numbers)
        np.add(numbers, number(shift), out=numbers)

    if y.dtype in _DRAWN:
        return lambda: draw(generator(step), flat)
    numbers = step.scratch().array((min(y.size, _BLOCK),), np.float32)

    def run() -> None:
        source = generator(step)
        for start in range(0, y.size, _BLOCK):
            target = flat[start : start + _BLOCK]
            part = numbers[: target.size]
            draw(source, part)
            np.copyto(target, part, casting="unsafe")

    return run


# -- choices ---------------------------------------------------------------------------------


def _declare_choices(signature: Signature) -> Sequence[Sequence[Choice]]:
    x = signature.inputs[0]
    if x is None or 0 in x.shape:
        return []
    return [[Choice(scratch_bytes(x.shape[1:], np.float64), 0.0)]]


@kernel("Multinomial", since=7, workspace=_declare_choices)
def multinomial(step: Step) -> Run | None:
    """Draw classes by unnormalized log-probabilities."""
    x, y = operand(step, 0), result(step)
    if y.size == 0:
        return None
    if x.size == 0:
        raise invalid(step, f"it chooses of {x.shape[1]} classes")
    limits = step.scratch().array(x.shape[1:], np.float64)

    def run() -> None:
        source = generator(step)
        for row, target in zip(x, y, strict=True):
            np.subtract(row, row.max(), out=limits, dtype=np.float64)
            np.exp(limits, out=limits)
            np.add.accumulate(limits, out=limits)
            for start in range(0, target.size, _BLOCK):
                part = target[start : start + _BLOCK]
                numbers = source.random(part.size)
                np.multiply(numbers, limits[-1], out=numbers)
                np.copyto(part, np.searchsorted(limits, numbers, "right"), casting="unsafe")

    return run


# -- dropout -----------------------------------------------------------------------------------


def _may_drop(signature: Signature) -> bool:
    """Whether a node is, or may be told to be, in training."""
    training = signature.constant_data(2)
    return signature.input(2) is not None and (training is None or bool(training.any()))


def _declare_dropped(signature: Signature) -> Sequence[Sequence[Choice]]:
    x = signature.inputs[0]
    if x is None or 0 in x.shape or not _may_drop(signature):
        return []
    count = min(prod(x.shape), _BLOCK)
    return [[Choice(scratch_bytes((count,), np.float32) + scratch_bytes((count,), np.bool_), 0.0)]]


@kernel("Dropout", since=12, workspace=_declare_dropped, cut=RESHAPE)
def training_dropout(step: Step) -> Run | None:
    """Write zeros in the place of random elements, and scale the others up, if told to train."""
    keep = dropout(step)
    if not _may_drop(step.signature) or result(step).size == 0:
        return keep
    x, y, mask = (a if a is None else a.reshape(-1) for a in (step.inputs[0], *_both(step)))
    assert x is not None
    assert y is not None
    training, ratio = operand(step, 2), step.input(1)
    scratch = step.scratch()
    numbers = scratch.array((min(y.size, _BLOCK),), np.float32)
    dropped = scratch.array(numbers.shape, np.bool_)

    def run() -> None:
        share = 0.5 if ratio is None else float(ratio.item())
        if not training.any() or share == 0:
            if keep is not None:
                keep()
            return
        source, scale = generator(step), y.dtype.type(1 / (1 - share) if share < 1 else 0)
        for start in range(0, y.size, _BLOCK):
            cut = slice(start, min(start + _BLOCK, y.size))
            part, is_out = numbers[: cut.stop - start], dropped[: cut.stop - start]
            source.random(out=part, dtype=np.float32)
            np.less(part, share, out=is_out)
            np.multiply(x[cut], scale, out=y[cut])
            np.copyto(y[cut], 0, where=is_out)
            if mask is not None:
                np.logical_not(is_out, out=mask[cut])

    return run


def _both(step: Step) -> tuple[np.ndarray | None, np.ndarray | None]:
    return step.output(0), step.output(1)
