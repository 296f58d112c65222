"""Lowers windows over images: convolutions and pools."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from arenaplan.deploy.code.code_elements import KernelFormula
from arenaplan.deploy.code.code_site import (
    CodePart,
    CodeSite,
    Emit,
    lowers,
    pointer,
    words_of,
)
from arenaplan.deploy.code.code_text import Field, real
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy.registry import Signature
from arenaplan.run.numpy.tflite.dense import tensor_multiplier
from arenaplan.run.numpy.tflite.fixed import Multiplier
from arenaplan.run.numpy.tflite.images import sides_of
from arenaplan.run.numpy.tflite.tflite_conv import (
    channel_multipliers,
    check_operands,
    is_wide,
)
from arenaplan.run.numpy.tflite.tflite_facts import (
    FLOAT,
    activation_range,
    check_types,
    constant_operand,
    encoding,
    encoding_or,
    float_range,
)
from arenaplan.run.numpy.tflite.tflite_products import largest_sums
from arenaplan.run.numpy.tflite.transpose_conv import scatter_sides

_LARGEST: Final = (1 << 31) - 1
_TAPS: Final = ("stride", "dilation", "before")


# -- the last part of products ------------------------------------------------------------------


_REAL_LAST: Final = {
    "WEIGHT": "float",
    "SUM": "float",
    "BIAS": "float",
    "USED": "real_bounded",
    "LAST_FIELDS": "float low, high;",
    "FIRST": "0.0f",
    "RESULT": "real_bounded(sum + (c->bias != NULL ? c->bias[channel] : 0.0f), c->low, c->high)",
}
_INTEGER_LAST: Final = {
    "WEIGHT": "int8_t",
    "LAST_FIELDS": """int32_t offset; /* added to each number of the image */
  int32_t zero, low, high;
  const int32_t *multipliers;
  const int8_t *shifts;
  int32_t step; /* 1 if each channel has a multiplier, else 0 */""",
    "FIRST": "c->bias != NULL ? c->bias[channel] : 0",
    "RESULT": """(NUMBER)encoded(
              RESCALE(sum, c->multipliers[channel * c->step], c->shifts[channel * c->step]),
              c->zero, c->low, c->high)""",
}
"""Begin and end of a float or integer product, as template words."""


def real_fields(site: CodeSite, bias: int) -> dict[str, Field]:
    """Return bounds and bias for a float product."""
    low, high = float_range(site.signature)
    return {"low": float(low), "high": float(high), "bias": bias_of(site, bias, FLOAT)}


def bias_of(site: CodeSite, position: int, dtype: Any) -> str:
    """Return the constant bias, or ``NULL``."""
    if site.signature.input(position) is None:
        return "NULL"
    data = constant_operand(site.signature, position).reshape(-1)
    return site.constant("bias", data.astype(dtype))


def factor_fields(name: str, factor: Multiplier) -> dict[str, Field]:
    """Return the fields of a factor with a name."""
    return {f"{name}_multiplier": factor.value, f"{name}_shift": factor.shift}


def factors_of(
    signature: Signature, operands: tuple[int, int], channels: int, *, has_one: bool
) -> list[Multiplier]:
    """Return a factor per channel of a product, or one; operands are image and weights."""
    x, w = (encoding(signature, at) for at in operands)
    y = encoding(signature, 0, "output")
    if has_one and len(w.scales) == 1:
        return [tensor_multiplier(x, w, y)]
    return channel_multipliers(signature, x, w, y, channels)


def rescaled(
    site: CodeSite,
    operands: tuple[int, int, int],
    channels: int,
    *,
    has_one: bool = False,
) -> tuple[dict[str, str], dict[str, Field]]:
    """
    Return words and fields for the last part of an integer product.

    Parameters
    ----------
    operands : tuple of int
        Positions of image, weights and bias.
    has_one : bool, default False
        Whether a single weight scale gives a single factor, computed as for whole results.
    """
    signature = site.signature
    image, _, bias = operands
    x, y = encoding(signature, image), encoding(signature, 0, "output")
    wide = _is_wide(site, image, bias)
    factors = factors_of(signature, operands[:2], channels, has_one=has_one)
    if len(set(factors)) == 1:
        factors = factors[:1]
    if wide and any(factor.shift > 14 for factor in factors):
        raise site.refuse("a factor of its result is too large")
    words = {
        **words_of(site.output.dtype),
        "SUM": "int64_t" if wide else "int32_t",
        "BIAS": "int64_t" if wide else "int32_t",
        "RESCALE": "scaled_wide" if wide else "scaled",
    }
    if site.output.dtype == np.int16 and not wide:
        words["KIND"] = "s16_short"
    low, high = activation_range(signature, y)
    fields: dict[str, Field] = {
        "offset": -x.zero,
        "zero": y.zero,
        "low": low,
        "high": high,
        "bias": bias_of(site, bias, np.int64 if wide else np.int32),
        **_factor_fields(site, factors),
    }
    return words, fields


def _is_wide(site: CodeSite, image: int, bias: int) -> bool:
    """Whether sums have 64 bits."""
    if image == 0:
        return is_wide(site.signature, bias)
    return site.input(image).dtype == np.int16


def _factor_fields(site: CodeSite, factors: list[Multiplier]) -> dict[str, Field]:
    """Return factors as constants."""
    values = np.array([factor.value for factor in factors], np.int32)
    shifts = np.array([factor.shift for factor in factors], np.int8)
    return {
        "multipliers": site.constant("multipliers", values),
        "shifts": site.constant("shifts", shifts),
        "step": int(len(factors) > 1),
    }


def check_sums(site: CodeSite, weights: np.ndarray, offset: int, image: int, bias: int) -> None:
    """Refuse sums that may not fit 32 bits; weights have the result's channels first."""
    added = np.zeros(1, np.int64)
    if site.signature.input(bias) is not None:
        added = np.abs(constant_operand(site.signature, bias).reshape(-1).astype(np.int64))
    # A product of bytes has less than 16 bits, so that few sums need to be added up.
    count, is_byte = weights[:1].size, weights.dtype == site.input(image).dtype == np.int8
    if is_byte and (count << 15) + int(added.max(initial=0)) <= _LARGEST:
        return
    sums = added + largest_sums(weights, offset, site.input(image).dtype)
    if not _is_wide(site, image, bias) and int(sums.max(initial=0)) > _LARGEST:
        raise site.refuse("its sums may have more than 32 bits")


def _product(
    site: CodeSite,
    template: str,
    operands: tuple[int, int, int],
    by_channel: np.ndarray,
    term: Term,
) -> tuple[str, dict[str, Field]]:
    """
    Add the kernel for a product with constant weights; return the name and the last fields.

    Parameters
    ----------
    operands : tuple of int
        Positions of image, weights and bias.
    by_channel : array
        The weights, with the result's channels first.
    """
    image, weights, bias = operands
    if site.input(image).dtype == FLOAT:
        words, fields = {**words_of(FLOAT), **_REAL_LAST}, real_fields(site, bias)
        words["TERM"] = f"{term.number} * {term.weight}"
    else:
        own, fields = rescaled(site, operands, len(by_channel))
        check_sums(site, by_channel, -encoding(site.signature, image).zero, image, bias)
        # Words nested inside these words are replaced afterwards.
        words = {"USED": f"encoded {own['RESCALE']}", **_INTEGER_LAST, **own}
        words["TERM"] = f"({term.number} + c->offset) * {term.weight}"
    fields["weights"] = site.constant("weights", constant_operand(site.signature, weights))
    function = f"{template}_{words['KIND']}"
    site.use(template, words, function)
    return function, fields


class Term(NamedTuple):
    """C expressions for an image number and the matching weight."""

    number: str
    weight: str


# -- windows --------------------------------------------------------------------------------------


def sides(signature: Signature, taps: tuple[int, int]) -> tuple[Axis, Axis]:
    """Return rows and columns, with the padding of a node that is not there."""
    rows, columns = sides_of(signature, taps)
    before = signature.attributes.get("before")
    if before is None:
        return rows, columns
    return rows._replace(before=before[0]), columns._replace(before=before[1])


def taps_of(rows: Axis, columns: Axis) -> dict[str, Field]:
    """Return the fields of taps, by dimension of the image."""
    return {
        f"{name}_{letter}": getattr(side, attribute)
        for letter, side in (("h", rows), ("w", columns))
        for name, attribute in (("taps", "kernel"), *((n, n) for n in _TAPS))
    }


def window_of(rows: Axis, columns: Axis, depth: int = 1) -> dict[str, Field]:
    """Return the fields of a window."""
    sizes = {"height": rows.size, "width": columns.size, "depth": depth}
    return {**sizes, "made_width": columns.out, **taps_of(rows, columns)}


def over_images(
    count: int, sizes: tuple[int, int], call: Callable[[CodePart, str, str], str], at: int = 0
) -> Emit:
    """Return a loop over the images of an operand, and their results."""

    def emit(part: CodePart) -> list[str]:
        x, y = pointer(part, at), part.output()
        if count == 1:
            return [call(part, x, y)]
        made = call(part, f"{x} + image * {sizes[0]}", f"{y} + image * {sizes[1]}")
        return [f"for (image = 0; image < {count}; ++image) {{", f"  {made}", "}"]

    return emit


def _rows_of_images(site: CodeSite, function: str, parameters: str) -> Emit:
    """Return the calls that make rows in all images."""
    sizes = prod(site.input(0).shape[1:]), prod(site.output.shape[1:])
    return over_images(
        site.output.shape[0],
        sizes,
        lambda part, x, y: (
            f"{function}({parameters}, {x}, {part.input(0).row}, {y}, {part.start}, {part.stop});"
        ),
    )


@lowers("CONV_2D", "DEPTHWISE_CONV_2D")
def convolution(site: CodeSite) -> Emit:
    """Sum over windows, with the file's weights."""
    signature = site.signature
    check_operands(signature)
    weights = constant_operand(signature, 1)
    if weights.ndim != 4:
        raise site.refuse("it has no weights of four dimensions")
    depth, channels = site.input(0).shape[3], site.output.shape[3]
    both = sides(signature, (weights.shape[1], weights.shape[2]))
    fields: dict[str, Field] = {"window": window_of(*both, depth)}
    if site.op == "CONV_2D":
        name, inner, term = "conv", weights.shape[3], Term("p[k]", "q[k]")
        groups = depth // max(inner, 1)
        if inner < 1 or depth % inner or channels % groups or channels != weights.shape[0]:
            raise site.refuse("its channels are in no groups")
        fields |= {"groups": groups, "group_channels": channels // groups, "group_depth": inner}
        by_channel = weights
    else:
        name, term = "depthwise", Term("*p", "*q")
        if depth < 1 or channels % depth or channels != weights.shape[3]:
            raise site.refuse("its channels are no multiple of those of the image")
        fields["per_channel"] = channels // depth
        by_channel = weights.reshape(-1, channels).T
    function, last = _product(site, name, (0, 1, 2), by_channel, term)
    return _rows_of_images(site, function, site.structure(function, fields | last))


COUNT: Final = "(i_last - i_first) * (j_last - j_first)"
"""Pixels under a window of a pool."""


def pool_kernel(f: KernelFormula, sum_: str, first: str, taken: str, value: str) -> str:
    """Add the kernel that makes ``value`` from what is ``found`` in windows; return its name."""
    dtype = f.site.output.dtype
    words = {"SUM": sum_, "FIRST": first, "TAKE": f"found = {taken};", "FINISH": f"*y++ = {value};"}
    return f.kernel("pool", "of windows", (dtype, dtype), **words)


def pool_sides(site: CodeSite) -> tuple[Axis, Axis]:
    """Return rows and columns of a pool; refuse windows without pixels."""
    attributes = site.signature.attributes
    found = sides(site.signature, (attributes["filter_height"], attributes["filter_width"]))
    for side in found:
        last = (side.out - 1) * side.stride - side.before
        if side.before >= side.kernel or last >= side.size:
            raise site.refuse("a window has no pixel")
    return found


@lowers("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(site: CodeSite) -> Emit:
    """Compute the mean or maximum of windows."""
    check_types(site.signature, "int8 int8", "int16 int16", "float32 float32")
    (rows, columns), depth = pool_sides(site), site.input(0).shape[3]
    dtype, is_max = site.output.dtype, site.op == "MAX_POOL_2D"
    words, f = words_of(dtype), KernelFormula(site)
    if dtype == FLOAT:
        least, kind = real(-float(np.finfo(FLOAT).max)), "float"
        value = f.activated("found" if is_max else f"found / (float)({COUNT})")
    else:
        least, kind = words["LOW"], "int32_t"
        value = "found" if is_max else f.use("rounded_quotient", "found", COUNT)
        low, high = activation_range(site.signature, encoding_or(site.signature, 0, "output"))
        bounds = f.field("low", low), f.field("high", high)
        value = f"({words['NUMBER']}){f.use('bounded', value, *bounds)}"
    if is_max:
        function = pool_kernel(f, words["NUMBER"], least, "*p > found ? *p : found", value)
    else:
        function = pool_kernel(f, kind, "0", "found + *p", value)
    return _rows_of_images(
        site, function, f.structure(function, window=window_of(rows, columns, depth))
    )


# -- transposed convolutions ----------------------------------------------------------------------


@lowers("TRANSPOSE_CONV")
def transpose_conv(site: CodeSite) -> Emit:
    """Gather the image's contributions to each result number."""
    signature = site.signature
    before = scatter_sides(signature)
    weights = constant_operand(signature, 1)
    images, height, width, depth = site.input(2).shape
    made = site.output.shape
    fields: dict[str, Field] = {
        "height": height,
        "width": width,
        "depth": depth,
        "made_height": made[1],
        "made_width": made[2],
        "channels": made[3],
        "taps_h": weights.shape[1],
        "taps_w": weights.shape[2],
        "stride_h": signature.attributes["stride_h"],
        "stride_w": signature.attributes["stride_w"],
        "before_h": before[0],
        "before_w": before[1],
    }
    if weights.shape[0] != made[3] or weights.shape[3] != depth or images != made[0]:
        raise site.refuse("its weights do not fit image and result")
    function, last = _product(site, "transpose_conv", (2, 1, 3), weights, Term("p[k]", "q[k]"))
    parameters = site.structure(function, fields | last)
    sizes = height * width * depth, prod(made[1:])
    return over_images(images, sizes, lambda _, x, y: f"{function}({parameters}, {x}, {y});", 2)
