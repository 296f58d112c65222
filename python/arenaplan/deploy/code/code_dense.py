"""Lowers operators on rows of numbers: matrix products, softmax, states."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from arenaplan.deploy.code.code_site import (
    CodePart,
    CodeSite,
    Emit,
    lowers,
    pointer,
    words_of,
)
from arenaplan.deploy.code.code_text import Field
from arenaplan.deploy.code.code_windows import (
    bias_of,
    check_sums,
    factor_fields,
    real_fields,
    rescaled,
)
from arenaplan.run.numpy.tflite.dense import Dense
from arenaplan.run.numpy.tflite.fixed import multiplier_of
from arenaplan.run.numpy.tflite.tflite_facts import (
    FLOAT,
    check_types,
    constant_operand,
    encoding,
    float_range,
    limits,
)
from arenaplan.run.numpy.tflite.tflite_softmax import softmax_exps, softmax_tables


def whole_call(
    site: CodeSite,
    function: str,
    fields: Mapping[str, Field],
    *positions: int,
    template: str = "",
    words: Mapping[str, str] | None = None,
) -> Emit:
    """Add a kernel; return its call on whole operands, ``NULL`` if left out, and the result."""
    site.use(template or function, words, function)
    parameters = site.structure(function, fields)

    def emit(part: CodePart) -> list[str]:
        inputs = ", ".join(
            "NULL" if site.signature.input(at) is None else pointer(part, at) for at in positions
        )
        return [f"{function}({parameters}, {inputs}, {part.output()});"]

    return emit


@lowers("FULLY_CONNECTED")
def fully_connected(site: CodeSite) -> Emit:
    """Multiply input rows by the file's matrix."""
    work = Dense(site.signature)
    fields: dict[str, Field] = {
        "rows": work.rows,
        "depth": work.depth,
        "channels": work.channels,
        "weights": site.constant("weights", work.weights),
    }
    if work.is_real:
        return whole_call(site, "dense_f32", fields | real_fields(site, 2), 0)
    words, last = rescaled(site, (0, 1, 2), work.channels, has_one=True)
    check_sums(site, work.centered, work.offset, 0, 2)
    fields |= {**last, "weight_offset": -encoding(site.signature, 1).zero}
    function = f"dense_{words['KIND']}"
    return whole_call(site, function, fields, 0, template="dense", words=words)


@lowers("SOFTMAX")
def softmax(site: CodeSite) -> Emit:
    """Rows along the last dimension."""
    signature = site.signature
    check_types(signature, "float32 float32", "int8 int8", "int8 int16", "int16 int16")
    x = site.input(0)
    if not x.shape or prod(x.shape) == 0:
        raise site.refuse("it has no row")
    beta = float(signature.attributes.get("beta", 1.0))
    fields: dict[str, Field] = {"rows": prod(x.shape[:-1]), "depth": x.shape[-1]}
    if x.dtype == FLOAT:
        return whole_call(site, "softmax_f32", fields | {"inner": 1, "beta": beta}, 0)
    if x.dtype == np.int16:
        factor, exps, inverses = softmax_tables(encoding(signature, 0).scale, beta)
        fields |= {
            "multiplier": factor.value,
            "shift": factor.shift,
            "exps": site.constant("exps", exps.astype(np.int16)),
            "inverses": site.constant("inverses", inverses.astype(np.int16)),
        }
        return whole_call(site, "softmax_s16", fields, 0)
    exps = softmax_exps(encoding(signature, 0).scale, beta).astype(np.int32)
    fields |= {"exps": site.constant("exps", exps), "count": len(exps)}
    words = {**words_of(site.output.dtype), "BITS": str(8 * site.output.dtype.itemsize)}
    # 16-bit results from 8-bit numbers have a separate kernel.
    if words["KIND"] == "s16":
        words["KIND"] = "s8_to_s16"
    return whole_call(site, f"softmax_{words['KIND']}", fields, 0, template="softmax", words=words)


@lowers("SVDF")
def svdf(site: CodeSite) -> Emit:
    """Filter over features, then over time."""
    signature = site.signature
    x, state = site.input(0), site.input(4)
    features, times = constant_operand(signature, 1), constant_operand(signature, 2)
    rank = int(signature.attributes.get("rank", 1))
    filters, memory = len(features), times.shape[1]
    if rank < 1 or filters % rank or prod(state.shape) != x.shape[0] * filters * memory:
        raise site.refuse("its operands do not fit each other")
    kinds = tuple(str(t) for t in (x.dtype, features.dtype, times.dtype, state.dtype))
    fields: dict[str, Field] = {
        "images": x.shape[0],
        "features": features.shape[1],
        "units": filters // rank,
        "rank": rank,
        "memory": memory,
        "by_feature": site.constant("by_feature", features),
        "by_time": site.constant("by_time", times),
    }
    if kinds == ("float32",) * 4:
        low, high = map(float, float_range(signature))
        fields |= {"low": low, "high": high, "bias": bias_of(site, 3, FLOAT)}
        return whole_call(site, "svdf_f32", fields, 0, 4)
    if kinds not in (("int8", "int8", "int16", "int16"), ("int8",) * 4):
        raise site.refuse(f"no kernel for operands of types {', '.join(kinds)}")
    a, w, t, s = (encoding(signature, at) for at in (0, 1, 2, 4))
    y = encoding(signature, 0, "output")
    least, most = limits(state.dtype)
    largest = max(abs(least - s.zero), abs(most - s.zero))
    sums = np.abs(times.astype(np.int64)).sum(axis=1).reshape(-1, rank).sum(axis=1) * largest
    if int(sums.max(initial=0)) >= 1 << 30:
        raise site.refuse("its sums may have more than 32 bits")
    fields |= {
        "x_zero": a.zero,
        "state_zero": s.zero,
        "y_zero": y.zero,
        **factor_fields("first", multiplier_of(a.scale * w.scale / s.scale)),
        **factor_fields("last", multiplier_of(s.scale * t.scale / y.scale)),
        "bias": bias_of(site, 3, np.int32),
    }
    words = words_of(state.dtype)
    words |= {"STATE": words["NUMBER"], "NUMBER": "int16_t" if kinds[2] == "int16" else "int8_t"}
    return whole_call(site, f"svdf_{words['KIND']}", fields, 0, 4, template="svdf", words=words)
