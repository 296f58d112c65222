"""Random nodes of every operator that has a gradient, and the derivative by differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import arenaplan as ap
import pointwise
from arenaplan.train import operators

Rng: TypeAlias = np.random.Generator
Compose: TypeAlias = Callable[[Any, list[int]], Any]


@dataclass(frozen=True)
class Case:
    """A node to differentiate."""

    arrays: list[np.ndarray]
    """The operands with real numbers."""
    compose: Compose
    """Appends the node: called with the operators of a graph and the operands."""
    fixed: tuple[int, ...] = ()
    """Positions of operands that have no gradient."""


def shape(rng: Rng, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, 5, rng.integers(least, most + 1)))


def real(rng: Rng, *dims: int, low: float | None = None, high: float = 3.0) -> np.ndarray:
    if low is None:
        return rng.standard_normal(dims)
    return rng.uniform(low, high, dims)


def unary(op: str, low: float | None = None, high: float = 3.0, **attributes: Any) -> Any:
    def make(rng: Rng) -> Case:
        return Case([real(rng, *shape(rng, 0), low=low, high=high)],
                    lambda o, v: getattr(o, op)(v[0], **attributes))  # fmt: skip

    return make


def broadcast_pair(rng: Rng) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two shapes that broadcast, each of which may be repeated along some dimensions."""
    full = shape(rng, 0, 4)
    pair = []
    for _ in range(2):
        kept = full[int(rng.integers(0, len(full) + 1)) :] if rng.random() < 0.5 else full
        pair.append(tuple(1 if rng.random() < 0.3 else dim for dim in kept))
    return pair[0], pair[1]


def binary(op: str, low: float | None = None) -> Any:
    def make(rng: Rng) -> Case:
        a, b = broadcast_pair(rng)
        arrays = [real(rng, *a, low=low), real(rng, *b, low=low)]
        return Case(arrays, lambda o, v: getattr(o, op)(*v))

    return make


def variadic(op: str) -> Any:
    def make(rng: Rng) -> Case:
        full = shape(rng)
        count = int(rng.integers(1, 4))
        arrays = [
            real(rng, *(1 if rng.random() < 0.3 else dim for dim in full)) for _ in range(count)
        ]
        return Case(arrays, lambda o, v: getattr(o, op)(*v))

    return make


def where(rng: Rng) -> Case:
    a, b = broadcast_pair(rng)
    condition = rng.random(np.broadcast_shapes(a, b)) < 0.5
    return Case([real(rng, *a), real(rng, *b)], lambda o, v: o.Where(condition, *v))


def cast(op: str) -> Any:
    def make(rng: Rng) -> Case:
        def compose(o: Any, v: list[int]) -> int:
            if op == "Cast":
                return o.Cast(v[0], to=11)
            return o.CastLike(v[0], o.constant(np.zeros(1, np.float64)))

        return Case([real(rng, *shape(rng))], compose)

    return make


def clip(rng: Rng) -> Case:
    low, high = np.float64(-0.5), np.float64(0.7)
    return Case([real(rng, *shape(rng))], lambda o, v: o.Clip(v[0], low, high))


def power(rng: Rng) -> Case:
    if rng.random() < 0.5:
        exponent = np.float64(rng.choice([2, 3, 0.5, -1]))
        return Case([real(rng, *shape(rng), low=0.3)], lambda o, v: o.Pow(v[0], exponent))
    a, b = broadcast_pair(rng)
    return Case([real(rng, *a, low=0.3), real(rng, *b)], lambda o, v: o.Pow(*v))


def prelu(rng: Rng) -> Case:
    full = shape(rng)
    slope = tuple(1 if rng.random() < 0.4 else dim for dim in full)
    return Case([real(rng, *full), real(rng, *slope)], lambda o, v: o.PRelu(*v))


def along_axis(op: str) -> Any:
    def make(rng: Rng) -> Case:
        dims = shape(rng)
        axis = int(rng.integers(-len(dims), len(dims)))
        return Case([real(rng, *dims)], lambda o, v: getattr(o, op)(v[0], axis=axis))

    return make


def dropout(rng: Rng) -> Case:
    trains = bool(rng.random() < 0.5)
    ratio = None if trains and rng.random() < 0.5 else np.float64(0.3)

    def compose(o: Any, v: list[int]) -> int:
        return o.Dropout(v[0], ratio, np.bool_(trains) if trains else None, seed=7)

    return Case([real(rng, *shape(rng))], compose)


# -- products -------------------------------------------------------------------------------------


def gemm(rng: Rng) -> Case:
    m, k, n = (int(each) for each in rng.integers(1, 5, 3))
    across, down = (int(each) for each in rng.integers(0, 2, 2))
    arrays = [real(rng, *((k, m) if across else (m, k))), real(rng, *((n, k) if down else (k, n)))]
    addend = [None, (n,), (m, 1), (1, n), (m, n), ()][rng.integers(0, 6)]
    if addend is not None:
        arrays.append(real(rng, *addend))
    given = {"alpha": 0.7, "beta": 1.3} if rng.random() < 0.5 else {}
    return Case(arrays, lambda o, v: o.Gemm(*v, transA=across, transB=down, **given))


def matmul(rng: Rng) -> Case:
    m, k, n, p, q = (int(each) for each in rng.integers(1, 5, 5))
    pairs = [
        ((m, k), (k, n)), ((p, m, k), (k, n)), ((p, m, k), (p, k, n)), ((q, p, m, k), (p, k, n)),
        ((p, m, k), (q, 1, k, n)), ((k,), (k, n)), ((m, k), (k,)), ((k,), (k,)),
        ((p, m, k), (k,)), ((k,), (p, k, n)), ((m, k), (p, k, n)),
    ]  # fmt: skip
    a, b = pairs[rng.integers(0, len(pairs))]
    return Case([real(rng, *a), real(rng, *b)], lambda o, v: o.MatMul(*v))


def einsum(rng: Rng) -> Case:
    equation, shapes = [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 2, 4)]),
        ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 2, 4)]),
        ("ij,ik,il->jkl", [(2, 3), (2, 2), (2, 4)]),
        ("ij->ji", [(2, 3)]),
    ][rng.integers(0, 5)]
    arrays = [real(rng, *dims) for dims in shapes]
    return Case(arrays, lambda o, v: o.Einsum(*v, equation=equation))


# -- reductions -----------------------------------------------------------------------------------


def reduction(op: str, low: float | None = None) -> Any:
    def make(rng: Rng) -> Case:
        dims = shape(rng)
        rank = len(dims)
        keeps = int(rng.integers(0, 2))
        axes = None
        if rng.random() < 0.8:
            chosen = rng.permutation(rank)[: rng.integers(1, rank + 1)]
            axes = np.array([k - rank if rng.random() < 0.5 else k for k in chosen], np.int64)
        return Case(
            [real(rng, *dims, low=low)], lambda o, v: getattr(o, op)(v[0], axes, keepdims=keeps)
        )

    return make


def cumulative(rng: Rng) -> Case:
    dims = shape(rng)
    axis = np.int64(rng.integers(-len(dims), len(dims)))
    reverse, exclusive = (int(each) for each in rng.integers(0, 2, 2))
    return Case(
        [real(rng, *dims)],
        lambda o, v: o.CumSum(v[0], axis, reverse=reverse, exclusive=exclusive),
    )


# -- layout ---------------------------------------------------------------------------------------


def reshape(rng: Rng) -> Case:
    dims = shape(rng)
    return Case([real(rng, *dims)], lambda o, v: o.Reshape(v[0], [-1, dims[0]]))


def flatten(rng: Rng) -> Case:
    dims = shape(rng)
    axis = int(rng.integers(0, len(dims) + 1))
    return Case([real(rng, *dims)], lambda o, v: o.Flatten(v[0], axis=axis))


def squeeze(rng: Rng) -> Case:
    return Case([real(rng, 2, 1, 3, 1)], lambda o, v: o.Squeeze(v[0], [-1, 1]))


def unsqueeze(rng: Rng) -> Case:
    return Case([real(rng, *shape(rng))], lambda o, v: o.Unsqueeze(v[0], [0, -1]))


def transpose(rng: Rng) -> Case:
    dims = shape(rng)
    order = None if rng.random() < 0.3 else [int(k) for k in rng.permutation(len(dims))]
    return Case([real(rng, *dims)], lambda o, v: o.Transpose(v[0], perm=order))


def concat(rng: Rng) -> Case:
    dims = shape(rng)
    axis = int(rng.integers(-len(dims), len(dims)))
    arrays = []
    for _ in range(int(rng.integers(1, 4))):
        own = list(dims)
        own[axis] = int(rng.integers(1, 4))
        arrays.append(real(rng, *own))
    return Case(arrays, lambda o, v: o.Concat(*v, axis=axis))


def split(rng: Rng) -> Case:
    dims = list(shape(rng))
    axis = int(rng.integers(-len(dims), len(dims)))
    sizes = [int(n) for n in rng.integers(1, 3, 3)]
    dims[axis] = sum(sizes)

    def compose(o: Any, v: list[int]) -> int:
        a, _, c = o.Split(v[0], sizes, axis=axis, outputs=3)
        return o.Concat(o.Mul(a, a), c, axis=axis)

    return Case([real(rng, *dims)], compose)


def slice_(rng: Rng) -> Case:
    dims = tuple(int(n) for n in rng.integers(2, 6, rng.integers(1, 4)))
    rank = len(dims)
    axes = [int(k) for k in rng.permutation(rank)[: rng.integers(1, rank + 1)]]
    rows: list[list[int]] = [[], [], [], []]
    for axis in axes:
        dim, step = dims[axis], int(rng.choice([1, 2, 3, -1, -2]))
        first, last = sorted(int(n) for n in rng.integers(0, dim, 2))
        bounds = (first, last + 1) if step > 0 else (last, first - 1 if first else -dim - 1)
        counts_back = step > 0 and rng.random() < 0.3 and bounds[1] < dim
        shift = dim if counts_back else 0
        named = axis - rank if rng.random() < 0.3 else axis
        for row, number in zip(rows, (bounds[0] - shift, bounds[1] - shift, named, step),
                               strict=True):  # fmt: skip
            row.append(number)
    return Case([real(rng, *dims)], lambda o, v: o.Slice(v[0], *rows))


def pad(mode: str) -> Any:
    def make(rng: Rng) -> Case:
        dims = tuple(int(n) for n in rng.integers(3, 6, rng.integers(1, 4)))
        pads = [int(n) for n in rng.integers(-1 if mode == "constant" else 0, 3, 2 * len(dims))]
        return Case([real(rng, *dims)], lambda o, v: o.Pad(v[0], pads, mode=mode))

    return make


def expand(rng: Rng) -> Case:
    full = shape(rng)
    own = tuple(1 if rng.random() < 0.5 else dim for dim in full)[int(rng.integers(0, 2)) :]
    return Case([real(rng, *own)], lambda o, v: o.Expand(v[0], list(full)))


def tile(rng: Rng) -> Case:
    dims = shape(rng)
    repeats = [int(n) for n in rng.integers(1, 4, len(dims))]
    return Case([real(rng, *dims)], lambda o, v: o.Tile(v[0], repeats))


def gather(rng: Rng) -> Case:
    dims = shape(rng)
    axis = int(rng.integers(-len(dims), len(dims)))
    indices = rng.integers(-dims[axis], dims[axis], shape(rng, 0, 2)).astype(
        rng.choice([np.int32, np.int64])
    )
    return Case([real(rng, *dims)], lambda o, v: o.Gather(v[0], indices, axis=axis))


def gather_elements(rng: Rng) -> Case:
    dims = shape(rng)
    axis = int(rng.integers(0, len(dims)))
    own = list(dims)
    own[axis] = int(rng.integers(1, 5))
    indices = rng.integers(0, dims[axis], own)
    return Case([real(rng, *dims)], lambda o, v: o.GatherElements(v[0], indices, axis=axis))


def gather_nd(rng: Rng) -> Case:
    indices = np.stack([rng.integers(0, 3, 4), rng.integers(0, 2, 4)], axis=-1)
    return Case([real(rng, 3, 2, 2)], lambda o, v: o.GatherND(v[0], indices))


def blocks(op: str, **given: str) -> Any:
    dims = (2, 8, 2, 3) if op == "DepthToSpace" else (2, 2, 4, 6)

    def make(rng: Rng) -> Case:
        return Case([real(rng, *dims)], lambda o, v: getattr(o, op)(v[0], blocksize=2, **given))

    return make


def scatter(op: str) -> Any:
    def make(rng: Rng) -> Case:
        adds = bool(rng.random() < 0.5)
        reduction = "add" if adds else "none"
        if op == "ScatterND":
            where = rng.permutation(6)[:4]
            indices = np.stack([where // 2, where % 2], axis=-1)
            arrays = [real(rng, 3, 2, 2), real(rng, 4, 2)]
            return Case(arrays, lambda o, v: o.ScatterND(v[0], indices, v[1], reduction=reduction))
        axis = int(rng.integers(-2, 2))
        order = np.argsort(rng.random((4, 4)), axis=axis)
        indices = order[:3, :3] if not adds else rng.integers(0, 4, (3, 3))
        return Case(
            [real(rng, 4, 4), real(rng, 3, 3)],
            lambda o, v: o.ScatterElements(v[0], indices, v[1], axis=axis, reduction=reduction),
        )

    return make


def top_k(rng: Rng) -> Case:
    dims = tuple(int(n) for n in rng.integers(2, 5, 3))
    axis, largest = int(rng.integers(-3, 3)), int(rng.integers(0, 2))
    return Case([real(rng, *dims)], lambda o, v: o.TopK(v[0], [2], axis=axis, largest=largest)[0])


def reverse_sequence(rng: Rng) -> Case:
    time = int(rng.integers(0, 2))
    lengths = rng.integers(1, 5, 4)
    return Case(
        [real(rng, 4, 4, 2)],
        lambda o, v: o.ReverseSequence(v[0], lengths, time_axis=time, batch_axis=1 - time),
    )


def compress(rng: Rng) -> Case:
    axis = None if rng.random() < 0.3 else int(rng.integers(-2, 2))
    condition = rng.permutation([True, False, True])
    given = {} if axis is None else {"axis": axis}
    return Case([real(rng, 3, 3)], lambda o, v: o.Compress(v[0], condition, **given))


def resize(rng: Rng) -> Case:
    mode = str(rng.choice(["nearest", "linear", "cubic"]))
    given: dict[str, Any] = {"mode": mode}
    given["coordinate_transformation_mode"] = str(
        rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    )
    if mode != "nearest" and rng.random() < 0.3:
        given["antialias"] = 1
    dims = (2, 1, *(int(n) for n in rng.integers(2, 6, 2)))
    sizes = [2, 1, *(int(n) for n in rng.integers(2, 9, 2))]
    if rng.random() < 0.3:
        scales = np.array([1, 1, 2, 1.5], np.float32)
        return Case([real(rng, *dims)], lambda o, v: o.Resize(v[0], None, scales, **given))
    if rng.random() < 0.3:
        return Case(
            [real(rng, *dims)],
            lambda o, v: o.Resize(v[0], None, None, sizes[2:], axes=[2, -1], **given),
        )
    return Case([real(rng, *dims)], lambda o, v: o.Resize(v[0], None, None, sizes, **given))


def attention(rng: Rng) -> Case:
    heads, groups = (2, 1) if rng.random() < 0.5 else (2, 2)
    is_causal, softcap = int(rng.integers(0, 2)), float(rng.choice([0, 2.0]))
    given: dict[str, Any] = {"is_causal": is_causal, "softcap": softcap}
    if rng.random() < 0.5:
        arrays = [real(rng, 2, heads, 3, 4), real(rng, 2, groups, 3, 4), real(rng, 2, groups, 3, 5)]
    else:
        arrays = [real(rng, 2, 3, heads * 4), real(rng, 2, 3, groups * 4),
                  real(rng, 2, 3, groups * 5)]  # fmt: skip
        given |= {"q_num_heads": heads, "kv_num_heads": groups}
    if not is_causal and rng.random() < 0.5:
        arrays.append(real(rng, 3, 3))
    return Case(arrays, lambda o, v: o.Attention(*v, **given))


def rotary(rng: Rng) -> Case:
    cos, sin = real(rng, 5, 2), real(rng, 5, 2)
    places = rng.integers(0, 5, (2, 3))
    swapped = int(rng.integers(0, 2))
    return Case(
        [real(rng, 2, 2, 3, 4)],
        lambda o, v: o.RotaryEmbedding(v[0], cos, sin, places, interleaved=swapped),
    )


def lp_norm(rng: Rng) -> Case:
    dims = shape(rng)
    axis, p = int(rng.integers(-len(dims), len(dims))), int(rng.integers(1, 3))
    return Case([real(rng, *dims)], lambda o, v: o.LpNormalization(v[0], axis=axis, p=p))


def lrn(rng: Rng) -> Case:
    size = int(rng.integers(1, 5))
    return Case([real(rng, 2, 5, 2, 3)], lambda o, v: o.LRN(v[0], size=size, alpha=0.5, beta=0.6))


def mean_variance(rng: Rng) -> Case:
    axes = [0, 2, 3] if rng.random() < 0.5 else [2]
    return Case([real(rng, 2, 3, 2, 4)], lambda o, v: o.MeanVarianceNormalization(v[0], axes=axes))


# -- second derivatives ---------------------------------------------------------------------------


def slope(op: str, first: str, **given: Any) -> Any:
    """Draw the gradient of an operator of one operand, at a result of the operator."""

    def make(rng: Rng) -> Case:
        dims = shape(rng, 1, 3)
        arrays = [real(rng, *dims), real(rng, *dims)]
        return Case(arrays, lambda o, v: getattr(o, op)(v[0], getattr(o, first)(v[1]), **given))

    return make


def drop_slope(rng: Rng) -> Case:
    mask = rng.random((3, 4)) < 0.5
    return Case([real(rng, 3, 4)], lambda o, v: o.DropoutGrad(v[0], mask, np.float64(0.3)))


def twice(name: str) -> Any:
    """Draw a node whose gradient is differentiated: the sum of squares of all gradients."""

    def make(rng: Rng) -> Case:
        case = CASES[name](rng)

        def compose(o: Any, v: list[int]) -> int:
            inner = ap.Graph("inner")
            inputs = [inner.input(f"x{k}", x.shape, "float64") for k, x in enumerate(case.arrays)]
            y = case.compose(operators(inner), inputs)
            op = operators(inner)
            loss = op.ReduceSum(op.Mul(op.Mul(y, y), y), keepdims=0)
            train = ap.train.gradient(inner, of=loss, wrt=inputs)
            made = o.call(train.graph, **{f"x{k}": x for k, x in enumerate(v)})
            parts = [o.ReduceSumSquare(each, keepdims=0) for each in made[1:]]
            return o.Sum(*parts) if len(parts) > 1 else parts[0]

        return Case(case.arrays, compose)

    return make


def trilu(rng: Rng) -> Case:
    diagonal, upper = np.int64(rng.integers(-1, 2)), int(rng.integers(0, 2))
    return Case([real(rng, 2, 3, 4)], lambda o, v: o.Trilu(v[0], diagonal, upper=upper))


# -- windows --------------------------------------------------------------------------------------


def window(rng: Rng, rank: int, *, dilates: bool = True) -> tuple[dict[str, Any], list[int]]:
    """Return attributes of a window and the spatial shape of an image that it fits."""
    kernel = [int(n) for n in rng.integers(1, 4, rank)]
    strides = [int(n) for n in rng.integers(1, 4, rank)]
    dilations = [int(n) for n in rng.integers(1, 3, rank)] if dilates else [1] * rank
    pads = [int(rng.integers(0, kernel[k % rank])) for k in range(2 * rank)]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    space = [int(extents[k] + rng.integers(0, 4)) for k in range(rank)]
    given: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if dilates:
        given["dilations"] = dilations
    if rng.random() < 0.3 and max(dilations) == 1:
        given["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    else:
        given["pads"] = pads
    return given, space


def conv(rng: Rng) -> Case:
    given, space = window(rng, int(rng.integers(1, 3)))
    group = int(rng.choice([1, 2]))
    wide, made = group * int(rng.integers(1, 3)), group * int(rng.integers(1, 3))
    arrays = [
        real(rng, 2, wide, *space),
        real(rng, made, wide // group, *given["kernel_shape"]),
    ]
    if rng.random() < 0.5:
        arrays.append(real(rng, made))
    return Case(arrays, lambda o, v: o.Conv(*v, group=group, **given))


def conv_transpose(rng: Rng) -> Case:
    rank = int(rng.integers(1, 3))
    given, space = window(rng, rank)
    given.pop("auto_pad", None)
    given["pads"] = [0] * (2 * rank)
    if rng.random() < 0.5:
        given["output_padding"] = [
            int(rng.integers(0, max(stride, dilation)))
            for stride, dilation in zip(given["strides"], given["dilations"], strict=True)
        ]
    group = int(rng.choice([1, 2]))
    wide, made = group * int(rng.integers(1, 3)), int(rng.integers(1, 3))
    arrays = [real(rng, 2, wide, *space), real(rng, wide, made, *given["kernel_shape"])]
    if rng.random() < 0.5:
        arrays.append(real(rng, made * group))
    return Case(arrays, lambda o, v: o.ConvTranspose(*v, group=group, **given))


def pool(op: str) -> Any:
    def make(rng: Rng) -> Case:
        given, space = window(rng, int(rng.integers(1, 3)), dilates=bool(rng.random() < 0.3))
        if op == "AveragePool":
            given["count_include_pad"] = int(rng.integers(0, 2))
        if "auto_pad" not in given and rng.random() < 0.3:
            given["ceil_mode"] = 1
        return Case([real(rng, 2, 2, *space)], lambda o, v: getattr(o, op)(v[0], **given))

    return make


def global_pool(op: str) -> Any:
    def make(rng: Rng) -> Case:
        space = shape(rng, 1, 2)
        return Case([real(rng, 2, 3, *space)], lambda o, v: getattr(o, op)(v[0]))

    return make


# -- normalizations and losses --------------------------------------------------------------------


def layer_norm(op: str) -> Any:
    def make(rng: Rng) -> Case:
        dims = shape(rng, 2, 4)
        axis = int(rng.integers(-len(dims), 0))
        own = dims[axis:]
        arrays = [real(rng, *dims), real(rng, *own)]
        if op == "LayerNormalization" and rng.random() < 0.6:
            arrays.append(real(rng, *own))
        given: dict[str, Any] = {"axis": axis, "epsilon": 0.1}
        if rng.random() < 0.5:
            given["stash_type"] = 11
        return Case(arrays, lambda o, v: getattr(o, op)(*v, **given))

    return make


def instance_norm(rng: Rng) -> Case:
    dims = (2, 3, *shape(rng, 1, 2))
    arrays = [real(rng, *dims), real(rng, 3), real(rng, 3)]
    return Case(arrays, lambda o, v: o.InstanceNormalization(*v, epsilon=0.1))


def group_norm(rng: Rng) -> Case:
    groups = int(rng.choice([1, 2, 4]))
    dims = (2, 4, *shape(rng, 1, 2))
    arrays = [real(rng, *dims), real(rng, 4), real(rng, 4)]
    return Case(arrays, lambda o, v: o.GroupNormalization(*v, num_groups=groups, epsilon=0.1))


def batch_norm(rng: Rng) -> Case:
    dims = (3, 2, *shape(rng, 0, 2))
    arrays = [real(rng, *dims), real(rng, 2), real(rng, 2)]
    mean, variance = real(rng, 2), real(rng, 2, low=0.5)
    trains = bool(rng.random() < 0.6)

    def compose(o: Any, v: list[int]) -> int:
        given: dict[str, Any] = {"epsilon": 0.1}
        if trains:
            y, *_ = o.BatchNormalization(*v, mean, variance, training_mode=1, outputs=3, **given)
            return y
        return o.BatchNormalization(*v, mean, variance, **given)

    return Case(arrays, compose)


def loss(op: str) -> Any:
    def make(rng: Rng) -> Case:
        inner = shape(rng, 1, 2) if rng.random() < 0.4 else ()
        n, classes = int(rng.integers(1, 4)), int(rng.integers(2, 5))
        labels = rng.integers(0, classes, (n, *inner)).astype(rng.choice([np.int32, np.int64]))
        weights = real(rng, classes, low=0.2) if rng.random() < 0.5 else None
        given: dict[str, Any] = {"reduction": str(rng.choice(["mean", "sum", "none"]))}
        if rng.random() < 0.4:
            given["ignore_index"] = int(rng.integers(0, classes))
            labels.reshape(-1)[0] = (given["ignore_index"] + 1) % classes
        arrays = [real(rng, n, classes, *inner)]
        if op == "Both":

            def compose(o: Any, v: list[int]) -> int:
                value, logarithms = o.SoftmaxCrossEntropyLoss(
                    v[0], labels, weights, outputs=2, **given
                )
                return o.Add(o.ReduceSum(value, keepdims=0), o.ReduceMean(logarithms, keepdims=0))

            return Case(arrays, compose)
        return Case(arrays, lambda o, v: getattr(o, op)(v[0], labels, weights, **given))

    return make


CASES: Mapping[str, Callable[[Rng], Case]] = {
    **{op: binary(op) for op in ("Add", "Sub", "Mul")},
    **{op: variadic(op) for op in ("Sum", "Mean", "Max", "Min")},
    **{op: unary(op, *pointwise.domain(op)) for op in pointwise.UNARY if op not in (
        "Ceil", "Clip", "Floor", "Round", "Sign",
    )},
    "Swish 1.3": unary("Swish", alpha=1.3),
    "Gelu tanh": unary("Gelu", approximate="tanh"),
    "Elu 0.7": unary("Elu", alpha=0.7),
    "Celu 0.7": unary("Celu", alpha=0.7),
    "Div": binary("Div", 0.3),
    "Pow": power,
    "Where": where,
    "Cast": cast("Cast"),
    "CastLike": cast("CastLike"),
    "Clip": clip,
    "PRelu": prelu,
    "Dropout": dropout,
    **{op: along_axis(op) for op in ("Softmax", "LogSoftmax")},
    "Gemm": gemm,
    "MatMul": matmul,
    "Einsum": einsum,
    **{op: reduction(op) for op in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
        "ReduceSumSquare", "ReduceLogSumExp",
    )},
    "ReduceLogSum": reduction("ReduceLogSum", 0.3),
    "ReduceProd": reduction("ReduceProd"),
    "CumSum": cumulative,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    **{f"Pad {mode}": pad(mode) for mode in ("constant", "edge", "reflect", "wrap")},
    "Expand": expand,
    "Tile": tile,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "DepthToSpace": blocks("DepthToSpace"),
    "DepthToSpace CRD": blocks("DepthToSpace", mode="CRD"),
    **{op: scatter(op) for op in ("ScatterElements", "ScatterND")},
    "TopK": top_k,
    "ReverseSequence": reverse_sequence,
    "Compress": compress,
    "Resize": resize,
    "SpaceToDepth": blocks("SpaceToDepth"),
    "Trilu": trilu,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": pool("MaxPool"),
    "AveragePool": pool("AveragePool"),
    "GlobalAveragePool": global_pool("GlobalAveragePool"),
    "GlobalMaxPool": global_pool("GlobalMaxPool"),
    "LayerNormalization": layer_norm("LayerNormalization"),
    "RMSNormalization": layer_norm("RMSNormalization"),
    "InstanceNormalization": instance_norm,
    "GroupNormalization": group_norm,
    "BatchNormalization": batch_norm,
    "SoftmaxCrossEntropyLoss": loss("SoftmaxCrossEntropyLoss"),
    "NegativeLogLikelihoodLoss": loss("NegativeLogLikelihoodLoss"),
    "SoftmaxCrossEntropyLoss both": loss("Both"),
    "Attention": attention,
    "RotaryEmbedding": rotary,
    "MeanVarianceNormalization": mean_variance,
    "LpNormalization": lp_norm,
    "LRN": lrn,
    "ReluGrad": slope("ReluGrad", "Relu"),
    "SigmoidGrad": slope("SigmoidGrad", "Sigmoid"),
    "TanhGrad": slope("TanhGrad", "Tanh"),
    "SoftmaxGrad": slope("SoftmaxGrad", "Softmax"),
    "LogSoftmaxGrad": slope("LogSoftmaxGrad", "LogSoftmax"),
    "DropoutGrad": drop_slope,
    "SliceGrad": twice("Slice"),
    "GatherGrad": twice("Gather"),
    "AveragePoolGrad": twice("AveragePool"),
    "ConvGradWeight": twice("Conv"),
    **{f"NormalizationGrad {name}": twice(name) for name in (
        "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization",
        "BatchNormalization",
    )},
    "SoftmaxCrossEntropyLossGrad": twice("SoftmaxCrossEntropyLoss"),
}  # fmt: skip
"""By operator, functions that draw a node."""


class Differentiated:
    """A node, the weighted sum of its result, and the gradient."""

    def __init__(self, case: Case, rng: Rng, dtype: Any = np.float64) -> None:
        self.case = case
        forward = ap.Graph("case")
        inputs = [
            forward.input(f"x{k}", array.shape, np.dtype(dtype).name)
            for k, array in enumerate(case.arrays)
        ]
        y = case.compose(operators(forward), inputs)
        weights = rng.standard_normal(forward.values[y].shape).astype(dtype)
        self.loss = operators(forward).ReduceSum(
            operators(forward).Mul(y, weights), keepdims=0, name="loss"
        )
        forward.output(self.loss)
        self.train = ap.train.gradient(forward, of=self.loss, wrt=inputs)
        self.forward = forward
        self.inputs = {f"x{k}": array.astype(dtype) for k, array in enumerate(case.arrays)}

    def gradients(self, **options: Any) -> dict[str, np.ndarray]:
        plan = ap.plan(self.train.graph, target="numpy", **options)
        with ap.Executor(self.train.graph, plan) as executor:
            return executor.run(self.inputs)

    def slope(self, directions: Mapping[str, np.ndarray], step: float = 1e-6) -> float:
        """Return the derivative in a direction by central differences."""
        values = []
        plan = ap.plan(self.forward, target="numpy", optimize="none")
        with ap.Executor(self.forward, plan) as executor:
            for sign in (1, -1):
                moved = {k: x + sign * step * directions[k] for k, x in self.inputs.items()}
                executor.restore({}, runs=0)  # The same elements are dropped.
                values.append(float(executor.run(moved)["loss"]))
        return (values[0] - values[1]) / (2 * step)
