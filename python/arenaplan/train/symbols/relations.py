"""
Bidirectional relations between dimensions of operands and results.

A function per operator kind relates equal dimensions, or derives a dimension from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, TypeAlias

from arenaplan.base.errors import ShapeMismatch
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.rules.elementwise_rules import ARITHMETIC, COMPARISONS, SAME, VARIADIC

PartialShape: TypeAlias = "tuple[int | None, ...] | None"


class Sizes:
    """A value's known dimensions."""

    __slots__ = ("name", "shape")

    def __init__(self, name: str, shape: PartialShape = None) -> None:
        self.name = name
        self.shape = shape

    @property
    def is_known(self) -> bool:
        """Whether all dimensions are known."""
        return self.shape is not None and None not in self.shape

    def learn(self, shape: PartialShape) -> None:
        """
        Add facts.

        Raises
        ------
        ShapeMismatch
            If they contradict what is known.
        """
        known = self.shape
        if shape is None or known is None:
            self.shape = known if shape is None else tuple(shape)
            return
        pairs = list(zip(known, shape, strict=False))
        if len(known) != len(shape) or any(
            a is not None and b is not None and a != b for a, b in pairs
        ):
            raise ShapeMismatch(f"{quoted(self.name)} has shape {known}, and would have {shape}")
        self.shape = tuple(b if a is None else a for a, b in pairs)

    def dim(self, axis: int) -> int | None:
        """Return a dimension, if known."""
        if self.shape is None or not -len(self.shape) <= axis < len(self.shape):
            return None
        return self.shape[axis]

    def learn_dim(self, axis: int, dim: int | None) -> None:
        """Learn a dimension of a value with known rank."""
        if dim is None or self.shape is None or not -len(self.shape) <= axis < len(self.shape):
            return
        shape: list[int | None] = [None] * len(self.shape)
        shape[axis] = dim
        self.learn(tuple(shape))


def _same_dim(a: Sizes, i: int, b: Sizes, j: int) -> None:
    """Make two dimensions equal."""
    b.learn_dim(j, a.dim(i))
    a.learn_dim(i, b.dim(j))


def _same(a: Sizes, b: Sizes) -> None:
    """Make two shapes equal."""
    a.learn(b.shape)
    b.learn(a.shape)


def _ranked(values: Sequence[Sizes], rank: int | None = None) -> int | None:
    """Give all the number of dimensions that one of them has, unless it is given; return it."""
    if rank is None:
        rank = next((len(each.shape) for each in values if each.shape is not None), None)
    if rank is not None:
        for each in values:
            each.learn((None,) * rank)
    return rank


Attributes: TypeAlias = Mapping[str, Any]
Inputs: TypeAlias = "Sequence[Sizes | None]"
Outputs: TypeAlias = Sequence[Sizes]
Relation: TypeAlias = Callable[[Attributes, Inputs, Outputs], object]


def _first(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """The result has the first operand's shape."""
    if inputs[0] is not None:
        _same(inputs[0], outputs[0])


def _broadcast(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """A result dimension equals an operand's dimension, unless the latter is 1."""
    y, operands = outputs[0], [x for x in inputs if x is not None]
    if y.shape is None:
        return
    for x in operands:
        if x.shape is None:
            continue
        if len(y.shape) < len(x.shape):
            raise ShapeMismatch(f"{quoted(x.name)} has shape {x.shape}, and {y.name} {y.shape}")
        for axis, dim in enumerate(x.shape, -len(x.shape)):
            made = y.dim(axis)
            alone = all(
                o.shape is not None and (-axis > len(o.shape) or o.shape[axis] == 1)
                for o in operands
                if o is not x
            )
            if dim is None and (made == 1 or alone):
                x.learn_dim(axis, made)
            if dim not in (None, 1):
                if made not in (None, dim):
                    raise ShapeMismatch(
                        f"{quoted(x.name)} has shape {x.shape}, which does not broadcast to "
                        f"{y.shape} of {quoted(y.name)}"
                    )
                y.learn_dim(axis, dim)


def given(inputs: Inputs, count: int) -> list[Sizes]:
    """Return the first operands, which no node leaves out."""
    return [x for x in inputs[:count] if x is not None]


def _gemm(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """``(M, K)`` times ``(K, N)`` is ``(M, N)``."""
    (a, b), y = given(inputs, 2), outputs[0]
    across, down = int(attributes.get("transA", 0)), int(attributes.get("transB", 0))
    _ranked([a, b, y], 2)
    _same_dim(a, across, y, 0)
    _same_dim(b, 1 - down, y, 1)
    _same_dim(a, 1 - across, b, down)


def _matmul(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """
    Rows from the first operand, columns from the second; leading dimensions if only one has them.
    """
    (a, b), y = given(inputs, 2), outputs[0]
    if b.shape is None and a.shape is not None and len(a.shape) >= 2:
        _ranked([b], 2)  # Weights, unless something else is said.
    if a.shape is None or b.shape is None or min(len(a.shape), len(b.shape)) < 2:
        return
    _same_dim(a, -1, b, -2)
    _same_dim(a, -2, y, -2)
    _same_dim(b, -1, y, -1)
    if len(b.shape) == 2:
        _ranked([y], len(a.shape))
        for k in range(len(a.shape) - 2):
            _same_dim(a, k, y, k)


def _conv(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """Data ``(N, C, …)``, weights ``(M, C / group, …)``, results ``(N, M, …)``."""
    (x, w), y = given(inputs, 2), outputs[0]
    group = int(attributes.get("group", 1))
    kernel = attributes.get("kernel_shape")
    rank = _ranked([x, w, y], None if kernel is None else len(kernel) + 2)
    if rank is None:
        return
    if kernel is not None:
        w.learn((None, None, *kernel))
    _same_dim(x, 0, y, 0)
    _same_dim(w, 0, y, 1)
    channels, width = x.dim(1), w.dim(1)
    if channels is not None:
        if channels % group:
            raise ShapeMismatch(f"{quoted(x.name)} has {channels} channels in {group} groups")
        w.learn_dim(1, channels // group)
    elif width is not None:
        x.learn_dim(1, width * group)
    for bias in given(inputs[2:], 1):
        _ranked([bias], 1)
        _same_dim(bias, 0, y, 1)
    _slide(attributes, x, [w.dim(2 + k) for k in range(rank - 2)], y)


def _slide(attributes: Attributes, x: Sizes, kernel: Sequence[int | None], y: Sizes) -> None:
    """Learn image dimensions that follow from the result, at stride 1."""
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return
    rank = len(kernel)
    strides, dilations = (attributes.get(k) or (1,) * rank for k in ("strides", "dilations"))
    pads = attributes.get("pads") or (0,) * (2 * rank)
    for k, size in enumerate(kernel):
        made = y.dim(2 + k)
        if size is not None and strides[k] == 1 and made is not None:
            x.learn_dim(2 + k, made + (size - 1) * dilations[k] - pads[k] - pads[rank + k])


def _pool(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """Samples and channels stay; at stride 1 the image follows from the result."""
    (x,), y = given(inputs, 1), outputs[0]
    kernel = attributes.get("kernel_shape")
    _ranked([x, y], None if kernel is None else len(kernel) + 2)
    _same_dim(x, 0, y, 0)
    _same_dim(x, 1, y, 1)
    _slide(attributes, x, kernel or (), y)


def _channels(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """The result is like the data; parameters have one element per channel."""
    x, *parameters = given(inputs, len(inputs))
    _same(x, outputs[0])
    for parameter in parameters:
        _ranked([parameter], 1)
        _same_dim(parameter, 0, x, 1)


def _trailing(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """The result is like the data; parameters have its dimensions from an axis on."""
    x, *parameters = given(inputs, len(inputs))
    _same(x, outputs[0])
    axis = int(attributes.get("axis", -1))
    for parameter in parameters:
        if parameter.shape is None and x.shape:
            parameter.learn(x.shape[axis % len(x.shape) :])


def _transpose(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """Dimension *k* of the result is dimension ``perm[k]``."""
    (x,), y = given(inputs, 1), outputs[0]
    order = attributes.get("perm")
    rank = _ranked([x, y], None if order is None else len(order))
    for k, axis in enumerate(order or range(rank or 0)[::-1]):
        _same_dim(x, axis, y, k)


def _elements(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """A reshape keeps the element count, which determines a single unknown dimension."""
    (x,), y = given(inputs, 1), outputs[0]
    for a, b in ((x, y), (y, x)):
        if not a.is_known or b.shape is None or b.shape.count(None) != 1:
            continue
        total = prod(dim for dim in a.shape or () if dim is not None)
        rest = prod(dim for dim in b.shape if dim is not None)
        if rest and total % rest:
            raise ShapeMismatch(
                f"{quoted(a.name)} of shape {a.shape} does not fill {quoted(b.name)} of shape "
                f"{b.shape}"
            )
        if rest:
            b.learn_dim(b.shape.index(None), total // rest)


def _concat(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """All dimensions are equal except the joined dimension, which is the sum."""
    _join(int(attributes["axis"]), given(inputs, len(inputs)), outputs[0])


def _split(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """All dimensions but one are equal, and that one is the sum."""
    _join(int(attributes.get("axis", 0)), outputs, *given(inputs, 1))


def _join(axis: int, parts: Sequence[Sizes], whole: Sizes) -> None:
    rank = _ranked([whole, *parts])
    if not rank:
        return
    axis %= rank
    for k in range(rank):
        if k != axis:
            for part in parts:
                _same_dim(part, k, whole, k)
    sizes = [part.dim(axis) for part in parts]
    total = sum(size for size in sizes if size is not None)
    if None not in sizes:
        whole.learn_dim(axis, total)
    elif sizes.count(None) == 1 and (all_of := whole.dim(axis)) is not None:
        if all_of < total:
            raise ShapeMismatch(
                f"{quoted(whole.name)} has {all_of} along axis {axis}, and its parts {total}"
            )
        parts[sizes.index(None)].learn_dim(axis, all_of - total)


def _loss(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """Scores ``(N, C, …)``, labels ``(N, …)``, weights ``(C,)``."""
    scores, labels = given(inputs, 2)
    if labels.shape is not None:
        scores.learn((labels.shape[:1] or (None,)) + (None,) + labels.shape[1:])
    if scores.shape is not None and len(scores.shape) > 1:
        labels.learn((scores.shape[0], *scores.shape[2:]))
    for weights in given(inputs[2:], 1):
        _ranked([weights], 1)
        _same_dim(weights, 0, scores, 1)
    if attributes.get("reduction", "mean") != "none":
        outputs[0].learn(())
    for logarithms in outputs[1:]:
        _same(scores, logarithms)


def _assign(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> None:
    """A state has the written value's shape."""
    _same(*given(inputs, 2))


BROADCASTS: Final = frozenset([*ARITHMETIC, *COMPARISONS, *VARIADIC, "Pow", "Where"])
"""Operators whose operands may be repeated."""

RELATIONS: Final[dict[str, Relation]] = {
    **dict.fromkeys(SAME, _first),
    **dict.fromkeys(("Cast", "CastLike", "Dropout", "Softmax", "LogSoftmax"), _first),
    **dict.fromkeys(("StopGradient", "LRN", "LpNormalization", "Hardmax"), _first),
    **dict.fromkeys(BROADCASTS, _broadcast),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _pool),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _channels),
    "GroupNormalization": _channels,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _trailing),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _elements),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), _loss),
    "Assign": _assign,
    "Concat": _concat,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Split": _split,
    "Transpose": _transpose,
}
"""Relations by operator."""
