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
from arenaplan.formats.onnx.symbol_schema import Schema

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

    def learn(self, shape: PartialShape) -> bool:
        """
        Add facts; return whether any fact is new.

        Raises
        ------
        ShapeMismatch
            If they contradict what is known.
        """
        if shape is None:
            return False
        known = self.shape
        if known is None:
            self.shape = tuple(shape)
            return True
        pairs = list(zip(known, shape, strict=False))
        if len(known) != len(shape) or any(
            a is not None and b is not None and a != b for a, b in pairs
        ):
            raise ShapeMismatch(f"{quoted(self.name)} has shape {known}, and would have {shape}")
        self.shape = tuple(b if a is None else a for a, b in pairs)
        return self.shape != known

    def rank(self, rank: int) -> bool:
        """Learn the number of dimensions."""
        return self.learn((None,) * rank)

    def dim(self, axis: int) -> int | None:
        """Return a dimension, if known."""
        if self.shape is None or not -len(self.shape) <= axis < len(self.shape):
            return None
        return self.shape[axis]

    def learn_dim(self, axis: int, dim: int | None) -> bool:
        """Learn a dimension of a value with known rank."""
        if dim is None or self.shape is None or not -len(self.shape) <= axis < len(self.shape):
            return False
        shape: list[int | None] = [None] * len(self.shape)
        shape[axis] = dim
        return self.learn(tuple(shape))


def same_dim(a: Sizes, i: int, b: Sizes, j: int) -> bool:
    """Make two dimensions equal."""
    found = b.learn_dim(j, a.dim(i))
    return a.learn_dim(i, b.dim(j)) or found


def same(a: Sizes, b: Sizes) -> bool:
    """Make two shapes equal."""
    found = a.learn(b.shape)
    return b.learn(a.shape) or found


Attributes: TypeAlias = Mapping[str, Any]
Inputs: TypeAlias = "Sequence[Sizes | None]"
Outputs: TypeAlias = Sequence[Sizes]
Relation: TypeAlias = Callable[[Attributes, Inputs, Outputs], bool]


def relate(schema: Schema, attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """
    Apply an operator's relations; return whether any fact is new.

    Raises
    ------
    ShapeMismatch
        If they contradict what is known.
    """
    relation = RELATIONS.get(schema.table_name)
    return relation is not None and relation(attributes, inputs, outputs)


def _first(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """The result has the first operand's shape."""
    del attributes
    return inputs[0] is not None and same(inputs[0], outputs[0])


def _broadcast(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """A result dimension equals an operand's dimension, unless the latter is 1."""
    del attributes
    y, found = outputs[0], False
    operands = [x for x in inputs if x is not None]
    if y.shape is None:
        return False
    for x in operands:
        if x.shape is None:
            continue
        lead = len(y.shape) - len(x.shape)
        if lead < 0:
            raise ShapeMismatch(f"{quoted(x.name)} has shape {x.shape}, and {y.name} {y.shape}")
        for axis, dim in enumerate(x.shape):
            made = y.shape[axis + lead]
            if dim is None and made == 1:
                found = x.learn_dim(axis, 1) or found
            others = [o for o in operands if o is not x and o.shape is not None]
            alone = len(others) == len(operands) - 1 and all(
                (o.dim(axis - len(x.shape)) if axis - len(x.shape) >= -len(o.shape or ()) else 1)
                == 1
                for o in others
            )
            if dim is None and made is not None and alone:
                found = x.learn_dim(axis, made) or found
            if dim not in (None, 1) and made is None:
                found = y.learn_dim(axis + lead, dim) or found
            if dim not in (None, 1) and made is not None and made != dim:
                raise ShapeMismatch(
                    f"{quoted(x.name)} has shape {x.shape}, which does not broadcast to {y.shape} "
                    f"of {quoted(y.name)}"
                )
    return found


def given(inputs: Inputs, count: int) -> list[Sizes]:
    """Return the first operands, which no node leaves out."""
    return [x for x in inputs[:count] if x is not None]


def _gemm(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """``(M, K)`` times ``(K, N)`` is ``(M, N)``."""
    (a, b), y = given(inputs, 2), outputs[0]
    across, down = int(attributes.get("transA", 0)), int(attributes.get("transB", 0))
    found = any([a.rank(2), b.rank(2), y.rank(2)])
    pairs = [
        same_dim(a, across, y, 0),
        same_dim(b, 1 - down, y, 1),
        same_dim(a, 1 - across, b, down),
    ]
    return any(pairs) or found


def _matmul(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """
    Rows from the first operand, columns from the second; leading dimensions if only one has them.
    """
    del attributes
    (a, b), y = given(inputs, 2), outputs[0]
    found = False
    if b.shape is None and a.shape is not None and len(a.shape) >= 2:
        found = b.rank(2)  # Weights, unless something else is said.
    if a.shape is None or b.shape is None or min(len(a.shape), len(b.shape)) < 2:
        return found
    pairs = [same_dim(a, -1, b, -2), same_dim(a, -2, y, -2), same_dim(b, -1, y, -1)]
    if len(b.shape) == 2:
        pairs.append(y.rank(len(a.shape)))
        pairs.extend(same_dim(a, k, y, k) for k in range(len(a.shape) - 2))
    return any(pairs) or found


def _conv(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """Data ``(N, C, …)``, weights ``(M, C / group, …)``, results ``(N, M, …)``."""
    (x, w), y = given(inputs, 2), outputs[0]
    group = int(attributes.get("group", 1))
    kernel = attributes.get("kernel_shape")
    found = []
    rank = next((len(s.shape) for s in (x, w, y) if s.shape is not None), None)
    rank = len(kernel) + 2 if kernel is not None else rank
    if rank is None:
        return False
    found += [s.rank(rank) for s in (x, w, y)]
    if kernel is not None:
        found.append(w.learn((None, None, *kernel)))
    found += [same_dim(x, 0, y, 0), same_dim(w, 0, y, 1)]
    channels, width = x.dim(1), w.dim(1)
    if channels is not None:
        if channels % group:
            raise ShapeMismatch(f"{quoted(x.name)} has {channels} channels in {group} groups")
        found.append(w.learn_dim(1, channels // group))
    elif width is not None:
        found.append(x.learn_dim(1, width * group))
    bias = inputs[2] if len(inputs) > 2 else None
    if bias is not None:
        found += [bias.rank(1), same_dim(bias, 0, y, 1)]
    if attributes.get("auto_pad", "NOTSET") == "NOTSET":
        for k in range(rank - 2):
            found.append(_slid(attributes, k, rank - 2, x, w.dim(2 + k), y))
    return any(found)


def _slid(
    attributes: Attributes, k: int, rank: int, x: Sizes, kernel: int | None, y: Sizes
) -> bool:
    """Return whether an image dimension follows from the result, at stride 1."""
    strides = attributes.get("strides") or (1,) * rank
    if kernel is None or strides[k] != 1 or y.dim(2 + k) is None:
        return False
    dilations, pads = attributes.get("dilations"), attributes.get("pads") or (0,) * (2 * rank)
    extent = (kernel - 1) * (dilations[k] if dilations else 1) + 1
    made = y.dim(2 + k)
    assert made is not None
    return x.learn_dim(2 + k, made - 1 + extent - pads[k] - pads[rank + k])


def _pool(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """Samples and channels stay; at stride 1 the image follows from the result."""
    (x,), y = given(inputs, 1), outputs[0]
    kernel = attributes.get("kernel_shape")
    found = []
    if kernel is not None:
        found = [x.rank(len(kernel) + 2), y.rank(len(kernel) + 2)]
    elif x.shape is not None or y.shape is not None:
        rank = len(x.shape or y.shape or ())
        found = [x.rank(rank), y.rank(rank)]
    found += [same_dim(x, 0, y, 0), same_dim(x, 1, y, 1)]
    if kernel is not None and attributes.get("auto_pad", "NOTSET") == "NOTSET":
        rank = len(kernel)
        found += [_slid(attributes, k, rank, x, kernel[k], y) for k in range(rank)]
    return any(found)


def _channels(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """The result is like the data; parameters have one element per channel."""
    (x,), y = given(inputs, 1), outputs[0]
    found = [same(x, y)]
    for parameter in inputs[1:]:
        if parameter is not None:
            found += [parameter.rank(1), same_dim(parameter, 0, x, 1)]
    return any(found)


def _trailing(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """The result is like the data; parameters have its dimensions from an axis on."""
    (x,), y = given(inputs, 1), outputs[0]
    found = [same(x, y)]
    axis = int(attributes.get("axis", -1))
    for parameter in inputs[1:]:
        if parameter is not None and parameter.shape is None and x.shape is not None:
            found.append(parameter.learn(x.shape[axis % len(x.shape) :]))
    return any(found)


def _transpose(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """Dimension *k* of the result is dimension ``perm[k]``."""
    (x,), y = given(inputs, 1), outputs[0]
    order = attributes.get("perm")
    if order is None:
        known = x.shape or y.shape
        order = () if known is None else range(len(known))[::-1]
        if known is None:
            return False
    found = [x.rank(len(order)), y.rank(len(order))]
    found += [same_dim(x, axis, y, k) for k, axis in enumerate(order)]
    return any(found)


def _elements(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """A reshape keeps the element count, which determines a single unknown dimension."""
    del attributes
    (x,), y = given(inputs, 1), outputs[0]
    found = False
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
            found = b.learn_dim(b.shape.index(None), total // rest) or found
    return found


def _concat(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """All dimensions are equal except the joined dimension, which is the sum."""
    return _joined(int(attributes["axis"]), [x for x in inputs if x is not None], outputs[0])


def _split(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """All dimensions but one are equal, and that one is the sum."""
    return _joined(int(attributes.get("axis", 0)), outputs, *given(inputs, 1))


def _joined(axis: int, parts: Sequence[Sizes], whole: Sizes) -> bool:
    known = next((s.shape for s in (whole, *parts) if s.shape is not None), None)
    if known is None:
        return False
    rank = len(known)
    found = [s.rank(rank) for s in (whole, *parts)]
    axis %= rank
    for k in range(rank):
        if k != axis:
            found += [same_dim(part, k, whole, k) for part in parts]
            found += [same_dim(part, k, parts[0], k) for part in parts[1:]]
    sizes = [part.dim(axis) for part in parts]
    total = sum(size for size in sizes if size is not None)
    if None not in sizes:
        found.append(whole.learn_dim(axis, total))
    elif sizes.count(None) == 1 and (all_of := whole.dim(axis)) is not None:
        if all_of < total:
            raise ShapeMismatch(
                f"{quoted(whole.name)} has {all_of} along axis {axis}, and its parts {total}"
            )
        found.append(parts[sizes.index(None)].learn_dim(axis, all_of - total))
    return any(found)


def _loss(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """Scores ``(N, C, …)``, labels ``(N, …)``, weights ``(C,)``."""
    scores, labels = given(inputs, 2)
    found = []
    if labels.shape is not None:
        found.append(scores.learn((labels.shape[:1] or (None,)) + (None,) + labels.shape[1:]))
    if scores.shape is not None and len(scores.shape) > 1:
        found.append(labels.learn((scores.shape[0], *scores.shape[2:])))
    if len(inputs) > 2 and inputs[2] is not None:
        found += [inputs[2].rank(1), same_dim(inputs[2], 0, scores, 1)]
    if attributes.get("reduction", "mean") != "none":
        found.append(outputs[0].learn(()))
    if len(outputs) > 1:
        found.append(same(scores, outputs[1]))
    return any(found)


def _assign(attributes: Attributes, inputs: Inputs, outputs: Outputs) -> bool:
    """A state has the written value's shape."""
    del attributes, outputs
    state, value = inputs[:2]
    return state is not None and value is not None and same(state, value)


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
