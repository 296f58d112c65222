"""
Resize: every mode is a weighted sum of a few input positions along one axis after another.

:func:`_taps` says which positions and weights make each output position along an axis.
The other functions apply the taps to arrays, as many at a time as scratch memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import cycle
from math import floor, inf, lcm, prod
from typing import Any, NamedTuple

import numpy as np

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, PlannerError, ShapeMismatch
from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import BLOCK, copy, in_sequence, operand, result, when_known
from arenaplan.run.numpy.kernels.window_cuts import PLANES
from arenaplan.run.numpy.registry import Run, Signature, Step, Tensor, kernel, scratch_bytes

_READS = (1, 2, 3)
"""Inputs that say how: region, scales and sizes; before version 11, only scales."""

_POLICY = "keep_aspect_ratio_policy"

# -- attributes ----------------------------------------------------------------------------


class _Axis(NamedTuple):
    """The resize along an axis."""

    number: int
    length: int
    """Elements in the input."""
    target: int
    """Elements in the output."""
    scale: Fraction
    start: Fraction = Fraction(0)
    """Begin of the resized region, as a fraction of the axis."""
    end: Fraction = Fraction(1)
    """End of that region."""

    @property
    def is_identity(self) -> bool:
        """True if nothing happens along this axis."""
        is_all = self.start == 0 and self.end == 1
        return self.length == self.target and self.scale == 1 and is_all


class _Options(NamedTuple):
    """The attributes, with older versions' fixed choices filled in."""

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float

    @classmethod
    def of(cls, signature: Signature) -> _Options:
        get = signature.attributes.get
        old = signature.op == "Upsample" or signature.version < 11
        mode = {"bilinear": "linear"}.get(get("mode", "nearest"), get("mode", "nearest"))
        options = cls(
            mode,
            "asymmetric" if old else get("coordinate_transformation_mode", "half_pixel"),
            "simple" if old else get("nearest_mode", "round_prefer_floor"),
            get("cubic_coeff_a", -0.75),
            bool(get("exclude_outside", 0)),
            bool(get("antialias", 0)),
            get("extrapolation_value", 0.0),
        )
        for name, value, known in (
            ("mode", mode, ("nearest", "linear", "cubic")),
            ("coordinate_transformation_mode", options.coordinates, _COORDINATES),
            ("nearest_mode", options.nearest, (*_NEAREST, "simple")),
        ):
            if value not in known:
                raise _error(signature, f"{name} is {value!r}")
        return options


def _error(
    signature: Signature, problem: str, kind: type[PlannerError] = InvalidAttribute
) -> PlannerError:
    return kind(f"node {signature.name!r} ({signature.op}): {problem}")


def _axes(signature: Signature, read: Callable[[int], np.ndarray | None]) -> list[_Axis]:
    """Return how each axis is resized, given the data for inputs that say so."""
    x, y = _tensor(signature.inputs), _tensor(signature.outputs)
    rank = len(x.shape)
    named = signature.attributes.get("axes")
    axes = list(range(rank) if named is None else named)
    if any(not -rank <= axis < rank for axis in axes):
        raise _error(signature, f"axes are {axes} for {rank} dimensions")
    axes = [axis % rank for axis in axes]
    old = signature.op == "Upsample" or signature.version < 11
    region, scales, sizes = (None, read(1), None) if old else (read(1), read(2), read(3))
    if old and scales is None:
        scales = np.array(signature.attributes.get("scales", ()))
    if scales is not None and scales.size:
        factors = [_exact(signature, scale) for scale in scales.reshape(-1)]
    elif sizes is not None and sizes.size:
        wanted = sizes.tolist()
        for at, axis in enumerate(axes[: len(wanted)]):
            is_plane = axis < 2 and x.shape[axis] == y.shape[axis]
            if is_plane and signature.attributes.get(_POLICY, "stretch") == "stretch":
                wanted[at] = x.shape[axis]  # The node may make only some channels.
        factors = _scales_of_sizes(signature, [x.shape[axis] for axis in axes], wanted)
    else:
        raise _error(signature, "it has neither scales nor sizes")
    if len(factors) != len(axes) or any(factor <= 0 for factor in factors):
        raise _error(signature, f"scales are {[*map(float, factors)]} for axes {axes}")
    bounds = [Fraction(0)] * len(axes) + [Fraction(1)] * len(axes)
    if signature.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        if region is None or region.size != len(bounds):
            raise _error(signature, f"tf_crop_and_resize needs a region of {len(bounds)} numbers")
        bounds = [_exact(signature, bound) for bound in region]
    found = {
        axis: _Axis(axis, x.shape[axis], y.shape[axis], factor, begin, end)
        for axis, factor, begin, end in zip(
            axes, factors, bounds[: len(axes)], bounds[len(axes) :], strict=True
        )
    }
    return [found.get(k) or _Axis(k, x.shape[k], y.shape[k], Fraction(1)) for k in range(rank)]


def _exact(signature: Signature, number: float) -> Fraction:
    """Return a scale or a bound exactly as stored, which no later step rounds."""
    if not -inf < number < inf:
        raise _error(signature, f"a scale or bound is {float(number)}")
    return Fraction(float(number))


def _scales_of_sizes(
    signature: Signature, lengths: Sequence[int], sizes: Sequence[int]
) -> list[Fraction]:
    """Return the scales that make ``sizes``, or the scale that keeps the aspect ratio."""
    if len(sizes) != len(lengths):
        raise _error(signature, f"sizes are {list(sizes)} for {len(lengths)} axes")
    scales = [Fraction(size, max(length, 1)) for size, length in zip(sizes, lengths, strict=True)]
    policy = signature.attributes.get(_POLICY, "stretch")
    if policy == "stretch":
        return scales
    if policy not in ("not_larger", "not_smaller"):
        raise _error(signature, f"keep_aspect_ratio_policy is {policy!r}")
    return [min(scales) if policy == "not_larger" else max(scales)] * len(scales)


# -- positions and weights -----------------------------------------------------------------


class _Line(NamedTuple):
    """
    The input position for each output position: ``slope·x + offset``.

    Slope and offset are exact. Otherwise, a position on an element, or midway between two elements,
    could shift, and the nearest element could change.
    """

    slope: Fraction
    offset: Fraction

    def at(self, count: int) -> np.ndarray:
        """Return the first positions, each rounded once."""
        p, q, d = self._whole()
        return np.array([(p * x + q) / d for x in range(count)], np.float64)

    def nearest(self, count: int, choice: str, grows: bool) -> np.ndarray:
        """Return the nearest element for each of the first positions."""
        if choice == "simple":
            choice = "floor" if grows else "ceil"
        up, shift = _NEAREST[choice]
        p, q, d = _Line(self.slope, self.offset + shift)._whole()
        if up:
            return np.array([-(-(p * x + q) // d) for x in range(count)])
        return np.array([(p * x + q) // d for x in range(count)])

    def _whole(self) -> tuple[int, int, int]:
        """Return slope and offset times the third number."""
        d = lcm(self.slope.denominator, self.offset.denominator)
        return int(self.slope * d), int(self.offset * d), d


_HALF = Fraction(1, 2)


def _half_pixel(axis: _Axis) -> _Line:
    return _Line(1 / axis.scale, _HALF / axis.scale - _HALF)


def _pytorch_half_pixel(axis: _Axis) -> _Line:
    return _half_pixel(axis) if axis.target > 1 else _FIRST


def _half_pixel_symmetric(axis: _Axis) -> _Line:
    # Where the output's length was rounded down, the rest is lost on both sides.
    kept = axis.target / (axis.scale * axis.length)
    slope, offset = _half_pixel(axis)
    return _Line(slope, offset + _HALF * axis.length * (1 - kept))


def _asymmetric(axis: _Axis) -> _Line:
    return _Line(1 / axis.scale, Fraction(0))


def _align_corners(axis: _Axis) -> _Line:
    length = axis.scale * axis.length
    return _Line((axis.length - 1) / (length - 1), Fraction(0)) if length != 1 else _FIRST


def _crop(axis: _Axis) -> _Line:
    length, last = axis.scale * axis.length, axis.length - 1
    if length == 1:
        return _Line(Fraction(0), _HALF * (axis.start + axis.end) * last)
    return _Line((axis.end - axis.start) / (length - 1) * last, axis.start * last)


_FIRST = _Line(Fraction(0), Fraction(0))
"""Each position is the first element."""

_COORDINATES: dict[str, Callable[[_Axis], _Line]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "asymmetric": _asymmetric,
    "align_corners": _align_corners,
    "tf_crop_and_resize": _crop,
}

_NEAREST: dict[str, tuple[bool, Fraction]] = {
    "round_prefer_floor": (True, -_HALF),
    "round_prefer_ceil": (False, _HALF),
    "floor": (False, Fraction(0)),
    "ceil": (True, Fraction(0)),
}
"""Whether a position, with a number added, is rounded up or down to the nearest element."""


def _triangle(distance: np.ndarray, _: float) -> np.ndarray:
    weights: np.ndarray = np.clip(1 - np.absolute(distance), 0, 1)
    return weights


def _keys_cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Return the cubic convolution weights."""
    d = np.absolute(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    weights: np.ndarray = np.where(d <= 1, near, np.where(d < 2, far, 0))
    return weights


class _Taps(NamedTuple):
    """Input positions with weights, for each output position along an axis."""

    positions: np.ndarray
    """Per tap and output position."""
    weights: np.ndarray | None
    """The same, with an axis for elements behind; ``None`` for a single tap with weight 1."""
    inside: slice
    """Output positions that lie in the input; the others are extrapolated."""


def _taps(options: _Options, axis: _Axis, dtype: np.dtype[Any]) -> _Taps:
    """Return the taps for each output position."""
    line, last = _COORDINATES[options.coordinates](axis), axis.length - 1
    at = line.at(axis.target)
    inside = slice(0, axis.target)
    if options.coordinates == "tf_crop_and_resize":
        within = np.flatnonzero((at >= 0) & (at <= last))
        inside = slice(int(within[0]), int(within[-1]) + 1) if within.size else slice(0, 0)
    if options.mode == "nearest":
        nearest = line.nearest(axis.target, options.nearest, axis.scale >= 1)
        return _Taps(np.clip(nearest, 0, last).astype(np.intp)[None], None, inside)
    shape, reach = (_triangle, 1) if options.mode == "linear" else (_keys_cubic, 2)
    # To leave nothing out, a filter must be as wide as the distance between input positions.
    stretch = min(1.0, max(float(axis.scale), 1 / axis.length)) if options.antialias else 1.0
    first = floor(-reach / stretch) + 1
    base = np.floor(at)
    positions = base + np.arange(first, 2 - first)[:, None]
    weights = shape((positions - at) * stretch, options.cubic_a)
    if options.exclude_outside:
        weights[(positions < 0) | (positions > last)] = 0
    total = weights.sum(axis=0)
    weights /= np.where(total == 0, 1, total)
    return _Taps(
        np.clip(positions, 0, last).astype(np.intp), weights.astype(dtype)[..., None], inside
    )


# -- arrays --------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """The order in which axes are resized, and the scratch memory for that order."""

    axes: list[_Axis]
    """Axes that change, most shrinking first: later axes have less to do."""
    rows: tuple[int, ...]
    """Dimensions in front of the first changing axis."""
    dtype: np.dtype[Any]
    """Type to compute in."""
    buffers: int
    """Number of scratch arrays."""
    width: int
    """Most elements, for each row, in a scratch array."""


def _plan(signature: Signature, axes: list[_Axis]) -> _Plan:
    """Return how to go through ``axes``."""
    x = _tensor(signature.inputs)
    changed = sorted(
        (axis for axis in axes if not axis.is_identity),
        key=lambda axis: axis.target / max(axis.length, 1),
    )
    first = min((axis.number for axis in changed), default=len(x.shape))
    sizes, shape = [prod(x.shape[first:])], list(x.shape)
    for axis in changed:
        shape[axis.number] = axis.target
        sizes.append(prod(shape[first:]))
    between = len(changed) - 1
    if _Options.of(signature).mode == "nearest":
        dtype, buffers, held = x.dtype, min(2, between), sizes[1:-1]
    else:
        dtype = np.dtype(np.float64 if x.dtype.itemsize == 8 else np.float32)
        converted = dtype != x.dtype
        # One array for a tap's contribution; the others hold the array before and after an axis.
        buffers, held = 1 + min(2, between + 2 * converted), sizes[0 if converted else 1 :]
    return _Plan(changed, x.shape[:first], dtype, buffers if changed else 0, max(held, default=0))


def _tensor(operands: Sequence[Tensor | None]) -> Tensor:
    """Return a node's first input or output."""
    if not operands or operands[0] is None:
        raise InvalidOperand("a Resize node lacks its input or output")
    return operands[0]


def _axes_before_run(signature: Signature) -> list[_Axis]:
    """Return the axes, as if each were resized where only a run can tell."""
    if all(
        signature.input(at) is None or signature.constant[at] is not None
        for at in _READS[: len(signature.inputs) - 1]
    ):
        return _axes(signature, signature.constant_data)
    x, y = _tensor(signature.inputs), _tensor(signature.outputs)
    return [
        _Axis(k, n, m, Fraction(0)) for k, (n, m) in enumerate(zip(x.shape, y.shape, strict=True))
    ]


def _declare(signature: Signature) -> list[list[Choice]]:
    x, y = _tensor(signature.inputs), _tensor(signature.outputs)
    if 0 in (x.bytes, y.bytes) or len(x.shape) != len(y.shape):
        return []
    plan = _plan(signature, _axes_before_run(signature))
    if not plan.buffers:
        return []
    rows = min(prod(plan.rows), max(1, BLOCK // plan.width))
    return [[Choice(plan.buffers * scratch_bytes((rows * plan.width,), plan.dtype))]]


@kernel("Resize", since=10, workspace=_declare, cut=PLANES)
@kernel("Upsample", since=7, workspace=_declare, cut=PLANES)
def resize(step: Step) -> Run | None:
    """Sample an array anew on a finer or coarser grid."""
    x, y = operand(step, 0), result(step)
    if x.ndim != y.ndim or x.size == 0 < y.size:
        raise _error(step.signature, f"it turns {x.shape} into {y.shape}", ShapeMismatch)
    if y.size == 0:
        return None
    return when_known(step, _READS[: len(step.inputs) - 1], lambda: _resizing(step, x, y))


def _resizing(step: Step, x: np.ndarray, y: np.ndarray) -> Run | None:
    options = _Options.of(step.signature)
    plan = _plan(step.signature, _axes(step.signature, step.input))
    if not plan.axes:
        return copy(x, y)
    for axis in plan.axes:
        if not floor(axis.length * axis.scale) <= axis.target <= axis.length * axis.scale + 1:
            raise _error(
                step.signature,
                f"axis {axis.number} of length {axis.length} and scale {axis.scale} "
                f"has length {axis.target} in the output",
                ShapeMismatch,
            )
    taps = [_taps(options, axis, plan.dtype) for axis in plan.axes]
    buffers = _buffers(step, plan)
    count = prod(plan.rows)
    x_rows, y_rows = (array.reshape(count, *array.shape[len(plan.rows) :]) for array in (x, y))
    at_once = buffers[0].size // plan.width if buffers else count
    work: list[Run] = []
    for start in range(0, count, at_once):
        block = slice(start, start + at_once)
        work += _passes(plan, taps, x_rows[block], y_rows[block], buffers, options.antialias)
    return in_sequence(*work, *_extrapolating(options, plan, taps, y))


def _buffers(step: Step, plan: _Plan) -> list[np.ndarray]:
    """Return the scratch arrays, all with the same size."""
    if not plan.buffers:
        return []
    scratch = step.scratch()
    size = step.workspaces[0].nbytes // plan.buffers // 64 * 64 // plan.dtype.itemsize
    return [scratch.array((size,), plan.dtype) for _ in range(plan.buffers)]


def _passes(
    plan: _Plan,
    taps: Sequence[_Taps],
    x: np.ndarray,
    y: np.ndarray,
    buffers: Sequence[np.ndarray],
    rounds: bool,
) -> Iterator[Run]:
    """Yield the steps that resize some rows."""
    weighted = taps[0].weights is not None
    spare, free = (buffers[0], cycle(buffers[1:])) if weighted else (x, cycle(buffers))
    current = x
    if current.dtype != plan.dtype:
        current = next(free)[: x.size].reshape(x.shape)
        yield partial(np.copyto, current, x)
    for at, (axis, each) in enumerate(zip(plan.axes, taps, strict=True), 1):
        at_axis = axis.number - len(plan.rows) + 1
        shape = (*current.shape[:at_axis], axis.target, *current.shape[at_axis + 1 :])
        direct = at == len(taps) and y.dtype == plan.dtype
        target = y if direct else next(free)[: prod(shape)].reshape(shape)
        source, sums = _around(current, at_axis), _around(target, at_axis)
        yield from _gather(source, each.positions[0], sums)
        if each.weights is not None:
            yield partial(_add_up, source, each.positions, each.weights, sums, spare)
        current = target
    if current is not y:
        yield partial(_convert, current, y, rounds)


def _gather(source: np.ndarray, positions: np.ndarray, target: np.ndarray) -> Iterator[Run]:
    """Yield functions that write the elements at ``positions`` along the middle axis."""
    factor = target.shape[1] // source.shape[1]
    whole = np.arange(source.shape[1]).repeat(factor)
    if source.shape[2] == 1 and factor > 1 and np.array_equal(positions, whole):
        # Copies with gaps take half the time of single element lookups.
        split = target.reshape(source.shape[0], source.shape[1], factor)
        for part in range(factor):
            yield partial(np.copyto, split[..., part], source[..., 0])
    else:
        yield partial(np.take, source, positions, 1, target, "clip")


def _around(array: np.ndarray, axis: int) -> np.ndarray:
    """Return a view with three dimensions and ``axis`` in the middle."""
    return array.reshape(prod(array.shape[:axis]), array.shape[axis], -1)


def _add_up(
    source: np.ndarray,
    positions: np.ndarray,
    weights: np.ndarray,
    sums: np.ndarray,
    spare: np.ndarray,
) -> None:
    """Weight ``sums``, which holds the first tap, and add the other taps."""
    part = spare[: sums.size].reshape(sums.shape)
    np.multiply(sums, weights[0], out=sums)
    for position, weight in zip(positions[1:], weights[1:], strict=True):
        np.take(source, position, 1, part, "clip")
        np.multiply(part, weight, out=part)
        np.add(sums, part, out=sums)


def _convert(x: np.ndarray, y: np.ndarray, rounds: bool) -> None:
    """
    Convert back to the output's type.

    Integers are truncated, as in the standard and in ONNX Runtime, which rounds only when filtering
    for a smaller image.
    """
    if y.dtype.kind in "iu":
        limits = np.iinfo(y.dtype)
        if rounds:
            np.rint(x, out=x)
        np.clip(x, limits.min, limits.max, out=x)
    np.copyto(y, x, casting="unsafe")


def _extrapolating(
    options: _Options, plan: _Plan, taps: Sequence[_Taps], y: np.ndarray
) -> Iterator[Run]:
    """Yield functions that fill the output parts that lie outside the input."""
    for axis, each in zip(plan.axes, taps, strict=True):
        before = (slice(None),) * axis.number
        for outside in (slice(0, each.inside.start), slice(each.inside.stop, axis.target)):
            if outside.start < outside.stop:
                yield partial(np.copyto, y[(*before, outside)], options.extrapolation, "unsafe")
