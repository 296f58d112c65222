"""
Lowers ONNX operators, for ``float32``.

Images are stored channel by channel. For operators that only move elements, the executor's kernel
gives each result element's origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

import numpy as np

from arenaplan.deploy.code.code_dense import whole_call
from arenaplan.deploy.code.code_elements import KernelFormula
from arenaplan.deploy.code.code_moves import filled, moved
from arenaplan.deploy.code.code_shapes import broadcast, dense_steps
from arenaplan.deploy.code.code_site import (
    BAD_INDEX,
    ONNX_LOWERINGS,
    CodePart,
    CodeSite,
    Emit,
    lowers,
    pointer,
    words_of,
)
from arenaplan.deploy.code.code_sums import loops_of, reduced
from arenaplan.deploy.code.code_text import Field
from arenaplan.deploy.code.code_windows import (
    COUNT,
    bias_of,
    over_images,
    pool_kernel,
    taps_of,
    window_of,
)
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.c_formulas import ARITHMETIC, FOLDS, UNARY, clipped, greater, less
from arenaplan.run.numpy.kernels.conv_transpose import transposed_geometry
from arenaplan.run.numpy.kernels.window_cuts import neighbors
from arenaplan.run.numpy.kernels.windows import window_axes
from arenaplan.run.numpy.tflite.tflite_facts import FLOAT, check_types, constant_operand

_lowers: Final = partial(lowers, table=ONNX_LOWERINGS)


def _real(site: CodeSite) -> None:
    """Refuse element types other than ``float32``."""
    check_types(site.signature, "float32 float32")


def _numbers(site: CodeSite, name: str, position: int) -> list[int] | None:
    """Return whole numbers that are an attribute or, in later versions, a constant operand."""
    if site.signature.input(position) is None:
        values = site.signature.attributes.get(name)
        return None if values is None else [int(value) for value in np.atleast_1d(values)]
    return [int(value) for value in constant_operand(site.signature, position).reshape(-1)]


def _require_one_result(site: CodeSite) -> None:
    """Refuse results besides the first, such as positions, statistics and those of training."""
    if any(made is not None for made in site.signature.outputs[1:]):
        raise site.refuse("it has several results")


# -- element by element ---------------------------------------------------------------------------


@_lowers(*UNARY)
def unary(site: CodeSite) -> Emit:
    """Apply a function to each number."""
    _real(site)
    formula = KernelFormula(site)
    return formula.unary(UNARY[site.op](formula, "x[i]"))


@_lowers("Clip")
def clip(site: CodeSite) -> Emit:
    """Bounds are attributes or constants; missing bounds do not limit."""
    _real(site)
    f, bounds = KernelFormula(site), []
    for at, (name, default) in enumerate((("min", -np.inf), ("max", np.inf)), start=1):
        bound = site.signature.attributes.get(name, default)
        if site.signature.input(at) is not None:
            bound = constant_operand(site.signature, at).reshape(-1)[0]
        bounds.append(f.field(name, float(bound), "float"))
    return f.unary(clipped(f, "x[i]", *bounds))


_BINARY: Final = {
    **{op: f"*p {symbol} *q" for op, symbol in ARITHMETIC.items()},
    **{op: combine("*p", "*q") for op, combine in FOLDS.items()},
    "Div": "*p / *q",
    "PRelu": "*p < 0.0f ? *p * *q : *p",
    "Pow": "powf(*p, *q)",
}


@_lowers(*_BINARY)
def two_operands(site: CodeSite) -> Emit:
    """Apply a function to each pair of numbers."""
    _real(site)
    if len(site.signature.inputs) != 2:
        raise site.refuse(f"it has {len(site.signature.inputs)} operands")
    return KernelFormula(site).binary(_BINARY[site.op])


# -- windows --------------------------------------------------------------------------------------


def _images(site: CodeSite, axes: Sequence[Axis]) -> tuple[Axis, Axis]:
    """Return how a window slides over rows and columns; a line is an image with a single row."""
    line = [Axis(1, 1, 1, 1, 1, 0, 0)] if len(axes) == 1 else []
    both = [*line, *axes]
    if len(both) != 2 or not prod(site.output.shape):
        raise site.refuse("its operands are no images of one or two dimensions")
    return both[0], both[1]


def _by_image(site: CodeSite, kernel: str, fields: dict[str, Field]) -> Emit:
    """Return a convolution's calls, one per image."""
    x, y = site.input(0).shape, site.output.shape
    groups = int(site.signature.attributes.get("group", 1))
    fields |= {"groups": groups, "group_channels": y[1] // groups, "group_depth": x[1] // groups}
    site.use(kernel)
    fields["weights"] = site.constant("weights", constant_operand(site.signature, 1))
    parameters = site.structure(kernel, fields | {"bias": bias_of(site, 2, FLOAT)})
    sizes = prod(x[1:]), prod(y[1:])
    return over_images(x[0], sizes, lambda _, x, y: f"{kernel}({parameters}, {x}, {y});")


@_lowers("Conv")
def convolution(site: CodeSite) -> Emit:
    """Sums over windows, with constant weights."""
    _real(site)
    rows, columns = _images(site, window_axes(site.signature, site.input(1).shape[2:]))
    fields: dict[str, Field] = {"window": window_of(rows, columns), "made_height": rows.out}
    return _by_image(site, "conv_planes", fields)


@_lowers("ConvTranspose")
def transposed(site: CodeSite) -> Emit:
    """Gather the image's contributions to each result number."""
    _real(site)
    rows, columns = _images(site, transposed_geometry(site.signature).axes)
    fields: dict[str, Field] = {
        "height": rows.out,
        "width": columns.out,
        "made_height": rows.size,
        "made_width": columns.size,
        **taps_of(rows, columns),
    }
    return _by_image(site, "transposed_planes", fields)


@_lowers("MaxPool", "AveragePool")
def pool(site: CodeSite) -> Emit:
    """Compute the maximum or the mean of windows, per channel."""
    _real(site)
    attributes = site.signature.attributes
    rows, columns = _images(site, window_axes(site.signature, attributes["kernel_shape"]))
    is_max, counts_all = site.op == "MaxPool", bool(attributes.get("count_include_pad", 0))
    if rows.dilation != 1 or columns.dilation != 1:
        raise site.refuse("its windows are dilated")
    _require_one_result(site)
    if counts_all and attributes.get("ceil_mode", 0):
        raise site.refuse("it counts padding, and rounds up")
    f = KernelFormula(
        site, f"{site.op.lower()}_planes" if is_max or not counts_all else "mean_of_all"
    )
    if is_max:
        function = pool_kernel(f, "float", "-INFINITY", greater("*p", "found"), "found")
    else:
        count = "w.taps_h * w.taps_w" if counts_all else COUNT
        function = pool_kernel(f, "float", "0.0f", "found + *p", f"found / (float)({count})")
    parameters = f.structure(function, window=window_of(rows, columns))
    shape = site.input(0).shape
    sizes = rows.size * columns.size, rows.out * columns.out
    rest = f"0, {rows.out}"
    return over_images(
        prod(shape[:2]), sizes, lambda _, x, y: f"{function}({parameters}, {x}, 0, {y}, {rest});"
    )


# -- sums -----------------------------------------------------------------------------------------

_REDUCED: Final = {
    "Mean": ("0.0f", "sum + number", "sum"),
    "Sum": ("0.0f", "sum + number", "sum"),
    "Prod": ("1.0f", "sum * number", "sum"),
    "Max": ("-INFINITY", greater("number", "sum"), "sum"),
    "Min": ("INFINITY", less("number", "sum"), "sum"),
}


@_lowers(*(f"Reduce{kind}" for kind in _REDUCED), "GlobalAveragePool", "GlobalMaxPool")
def reduction(site: CodeSite) -> Emit:
    """Reduce along some dimensions."""
    _real(site)
    rank = len(site.input(0).shape)
    if site.op.startswith("Global"):
        kind, axes = ("Max" if site.op == "GlobalMaxPool" else "Mean"), list(range(2, rank))
    else:
        kind, axes = site.op.removeprefix("Reduce"), _numbers(site, "axes", 1) or []
        if not axes and not site.signature.attributes.get("noop_with_empty_axes", 0):
            axes = list(range(rank))
    outer, inner = loops_of(site, [axis % rank for axis in axes])
    f = KernelFormula(site, f"reduce_{kind.lower()}")
    first, body, last = _REDUCED[kind]
    if kind == "Mean":
        last = f"sum / {f.field('count', float(prod(inner.dims)), 'float')}"
    return reduced(site, f, (outer, inner), first, body, last)


@_lowers("Gemm", "MatMul")
def product(site: CodeSite) -> Emit:
    """Multiply matrices."""
    _real(site)
    a, b, y = site.input(0).shape, site.input(1).shape, site.output.shape
    attributes = site.signature.attributes if site.op == "Gemm" else {}
    wide = [(1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b]
    outer = np.broadcast_shapes(wide[0][:-2], wide[1][:-2])
    loops = broadcast([shape[:-2] for shape in wide], outer, 4) if len(outer) != 4 else None
    if loops is None:
        raise site.refuse("its operands have too many dimensions")
    rows_of = [dense_steps(shape)[-2:] for shape in wide]
    shapes = [shape[-2:] for shape in wide]
    for at, name in enumerate(("transA", "transB")):
        if attributes.get(name, 0):
            rows_of[at], shapes[at] = rows_of[at][::-1], shapes[at][::-1]
    matrices = [prod(shape) for shape in shapes]
    (rows, depth), columns = shapes[0], shapes[1][1]
    bias = site.signature.input(2)
    steps = [0, 0]
    if bias is not None:
        own = [1] * (2 - len(bias.shape)) + list(bias.shape)
        steps = [0 if dim == 1 else step for dim, step in zip(own, dense_steps(own), strict=True)]
    fields: dict[str, Field] = {
        "dims": loops.dims,
        "a_steps": [step * matrices[0] for step in loops.steps[0]],
        "b_steps": [step * matrices[1] for step in loops.steps[1]],
        "rows": rows,
        "depth": depth,
        "columns": columns,
        "a_row": rows_of[0][0],
        "a_depth": rows_of[0][1],
        "b_depth": rows_of[1][0],
        "b_column": rows_of[1][1],
        "bias_row": steps[0],
        "bias_column": steps[1],
        "alpha": float(attributes.get("alpha", 1.0)),
        "beta": float(attributes.get("beta", 1.0)),
    }
    if shapes[1][0] != depth or prod(loops.dims) * rows * columns != prod(y):
        raise site.refuse("its operands do not fit the result")
    return whole_call(site, "product", fields, 0, 1, 2)


@_lowers("Softmax")
def softmax(site: CodeSite) -> Emit:
    """Numbers along a dimension; before version 13, along all from there on."""
    _real(site)
    shape, is_old = site.input(0).shape, site.signature.version < 13
    axis = int(site.signature.attributes.get("axis", 1 if is_old else -1)) % max(len(shape), 1)
    if not prod(shape):
        raise site.refuse("it has no row")
    inner = 1 if is_old else prod(shape[axis + 1 :])
    depth = prod(shape[axis:]) // inner
    rows = prod(shape) // depth
    fields: dict[str, Field] = {"rows": rows, "depth": depth, "inner": inner, "beta": 1.0}
    return whole_call(site, "softmax_f32", fields, 0)


# -- normalization --------------------------------------------------------------------------------


@_lowers("BatchNormalization")
def batch_normalization(site: CodeSite) -> Emit:
    """A factor and a summand for each channel."""
    _real(site)
    _require_one_result(site)
    scale, bias, mean, variance = (
        constant_operand(site.signature, at).astype(np.float64) for at in range(1, 5)
    )
    shape = site.input(0).shape
    factors = scale / np.sqrt(variance + float(site.signature.attributes.get("epsilon", 1e-5)))
    fields: dict[str, Field] = {
        "images": shape[0],
        "channels": len(factors),
        "plane": prod(shape[2:]),
        "factors": site.constant("factors", factors.astype(np.float32)),
        "summands": site.constant("summands", (bias - mean * factors).astype(np.float32)),
    }
    return whole_call(site, "planes_scaled", fields, 0)


@_lowers("LRN")
def response_normalization(site: CodeSite) -> Emit:
    """Divide by a power of the mean square of neighboring channels."""
    _real(site)
    attributes, shape = site.signature.attributes, site.input(0).shape
    size = int(attributes.get("size", 0))
    if size < 1 or len(shape) < 2 or not prod(shape):
        raise site.refuse(f"its size is {size}, for an operand of shape {shape}")
    below, above = neighbors(size, shape[1])
    fields: dict[str, Field] = {
        "images": shape[0],
        "channels": shape[1],
        "plane": prod(shape[2:]),
        "below": below,
        "above": above,
        "factor": float(attributes.get("alpha", 1e-4)) / size,
        "exponent": float(attributes.get("beta", 0.75)),
        "bias": float(attributes.get("bias", 1.0)),
    }
    return whole_call(site, "lrn", fields, 0)


@_lowers("LayerNormalization")
def layer_normalization(site: CodeSite) -> Emit:
    """Normalize by mean and variance over the last dimensions."""
    _real(site)
    attributes, shape = site.signature.attributes, site.input(0).shape
    axis = int(attributes.get("axis", -1)) % max(len(shape), 1)
    depth = prod(shape[axis:])
    bias = site.signature.input(2)
    if prod(site.input(1).shape) != depth or (bias is not None and prod(bias.shape) != depth):
        raise site.refuse("its parameters do not fit its rows")
    _require_one_result(site)
    epsilon = float(attributes.get("epsilon", 1e-5))
    fields: dict[str, Field] = {"rows": prod(shape[:axis]), "depth": depth, "epsilon": epsilon}
    return whole_call(site, "layer_norm", fields, 0, 1, 2)


# -- moves ----------------------------------------------------------------------------------------


@_lowers("Concat")
def concatenation(site: CodeSite) -> Emit:
    """Operands one behind the other."""
    return moved(site, range(len(site.signature.inputs)))


@_lowers("Gather")
def gather(site: CodeSite) -> Emit:
    """Parts by indices, which are constants or checked in each run."""
    if site.signature.constant_data(1) is not None:
        return moved(site, (0,))
    x, indices = site.input(0), site.input(1)
    axis = int(site.signature.attributes.get("axis", 0)) % max(len(x.shape), 1)
    words = words_of(indices.dtype)
    function = f"gather_{words['KIND']}"
    site.use("gather", words, function)
    fields: dict[str, Field] = {
        "outer": prod(x.shape[:axis]),
        "count": prod(indices.shape),
        "size": x.shape[axis],
        "bytes": prod(x.shape[axis + 1 :]) * x.dtype.itemsize,
    }
    parameters = site.structure(function, fields)

    def emit(part: CodePart) -> list[str]:
        source, target = f"(const uint8_t *){pointer(part, 0)}", f"(uint8_t *){part.output()}"
        call = f"{function}({parameters}, {source}, {pointer(part, 1)}, {target})"
        return [f"if ({call} != 0) {{", f"  return {BAD_INDEX};", "}"]

    return emit


@_lowers("Expand", "Flatten", "Identity", "Pad", "Reshape", "Slice")
@_lowers("Split", "Squeeze", "Transpose", "Unsqueeze")
def view(site: CodeSite) -> Emit:
    """Elements of one operand, in another order or with borders."""
    return moved(site, (0,))


@_lowers("Dropout")
def dropout(site: CodeSite) -> Emit:
    """Copy the operand, because only training drops elements, and fill the mask with ones."""
    if site.signature.input(2) is not None:
        training = site.signature.constant_data(2)
        if training is None or training.any():
            raise site.refuse("it may drop elements")
    outputs = site.signature.outputs
    data, mask = (
        replace(
            site,
            signature=replace(
                site.signature, inputs=site.signature.inputs[:1], outputs=outputs[at : at + 1]
            ),
        )
        for at in range(2)
    )
    copies = moved(data, (0,))
    pointer_to_mask = site.pointer_to(1) if len(outputs) > 1 else None
    if pointer_to_mask is None:
        return copies
    ones = filled(mask, np.ones(1, mask.output.dtype))
    return lambda part: [*copies(part), *ones(part._replace(output=lambda: pointer_to_mask))]
