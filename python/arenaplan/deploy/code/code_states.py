"""Lowers ``UNIDIRECTIONAL_SEQUENCE_LSTM``."""

from __future__ import annotations

from math import log2

import numpy as np

from arenaplan.deploy.code.code_dense import whole_call
from arenaplan.deploy.code.code_site import CodeSite, Emit, lowers, words_of
from arenaplan.deploy.code.code_text import Field
from arenaplan.deploy.code.code_windows import check_sums, factor_fields
from arenaplan.run.numpy.tflite.dense import tensor_multiplier
from arenaplan.run.numpy.tflite.fixed import multiplier_of
from arenaplan.run.numpy.tflite.sigmoid import SIGMOID
from arenaplan.run.numpy.tflite.tflite_facts import (
    FLOAT,
    constant_operand,
    encoding,
    limits,
)
from arenaplan.run.numpy.tflite.tflite_recurrent import CELL, GATES, HIDDEN, Q12, check_lstm


@lowers("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(site: CodeSite) -> Emit:
    """Four gates per step; the result is the next hidden state."""
    signature, attributes = site.signature, site.signature.attributes
    check_lstm(signature)
    x, y = site.input(0), site.output
    if len(x.shape) != 3 or len(y.shape) != 3 or x.shape[:2] != y.shape[:2]:
        raise site.refuse("its operands do not fit each other")
    units, features = y.shape[2], x.shape[2]
    outer = x.shape[:2]
    is_major = bool(attributes.get("time_major", 0))
    batches, moments = outer[::-1] if is_major else outer
    fields: dict[str, Field] = {
        "batches": batches,
        "moments": moments,
        "features": features,
        "units": units,
        "x_batch": features if is_major else moments * features,
        "x_moment": batches * features if is_major else features,
        "y_batch": units if is_major else moments * units,
        "y_moment": batches * units if is_major else units,
    }
    clip = float(attributes.get("cell_clip", 0.0))
    if x.dtype == FLOAT:
        for name, gate in GATES.items():
            w, r, bias = (
                site.constant(f"{name}_{at}", constant_operand(signature, at)) for at in gate
            )
            fields[name] = {"input": w, "hidden": r, "bias": bias}
        fields["clip"] = max(clip, 0.0)
        return whole_call(site, "lstm_f32", fields, 0, HIDDEN, CELL)
    return _integers(site, fields, clip)


def _integers(site: CodeSite, fields: dict[str, Field], clip: float) -> Emit:
    """Return the integer call, with a 16-bit cell."""
    signature = site.signature
    x, hidden = encoding(signature, 0), encoding(signature, HIDDEN)
    wide = site.input(0).dtype == np.int16
    for name, (w, r, bias) in GATES.items():
        own: dict[str, Field] = {
            "bias": site.constant(f"{name}_bias", constant_operand(signature, bias).reshape(-1))
        }
        for side, at, source, added in (
            ("input", w, (0, x), bias),
            ("hidden", r, (HIDDEN, hidden), len(signature.inputs)),
        ):
            encoded, data = encoding(signature, at), constant_operand(signature, at)
            if not wide:
                centered = data.astype(np.int64) - encoded.zero
                check_sums(site, centered, -source[1].zero, source[0], added)
            own |= {
                side: site.constant(f"{name}_{side}", data),
                f"{side}_zero": encoded.zero,
                **factor_fields(side, tensor_multiplier(source[1], encoded, Q12)),
            }
        fields[name] = own
    state, one = encoding(signature, CELL).scale, 2.0**-15
    for name, real in (
        ("forget", one * state / state),
        ("enter", one * one / state),
        ("shown", one * one / hidden.scale),
    ):
        fields |= factor_fields(name, multiplier_of(real))
    left = 12 + round(log2(state))
    low, high = limits(site.output.dtype)
    fields |= {
        "x_offset": -x.zero,
        "hidden_offset": -hidden.zero,
        "tanh_multiplier": 3 << max(left, 0),
        "tanh_shift": max(-left, 0),
        "clip": int(min(max(clip / state, 0.0), 32767.0)) if clip > 0 else 0,
        "zero": hidden.zero,
        "low": low,
        "high": high,
        "table": site.constants.array("sigmoid_table", SIGMOID.astype(np.uint16)),
    }
    words = {
        **words_of(site.output.dtype),
        "SUM": "int64_t" if wide else "int32_t",
        "RESCALE": "scaled_wide" if wide else "scaled",
    }
    function = f"lstm_{words['KIND']}"
    return whole_call(site, function, fields, 0, HIDDEN, CELL, template="lstm", words=words)
