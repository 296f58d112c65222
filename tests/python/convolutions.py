"""Convolutions by their definition."""

from __future__ import annotations

from typing import Any

import numpy as np


def convolved(x: np.ndarray, w: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """Return a convolution by its definition, in one or two dimensions."""
    rank = w.ndim - 2
    pads = attributes.get("pads", [0] * (2 * rank))
    steps = attributes.get("strides", [1] * rank)
    gaps = attributes.get("dilations", [1] * rank)
    groups = attributes.get("group", 1)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [(k - 1) * gap + 1 for k, gap in zip(w.shape[2:], gaps, strict=True)]
    outs = [
        (size - r) // step + 1 for size, r, step in zip(padded.shape[2:], reach, steps, strict=True)
    ]
    made = np.zeros((len(x), len(w), *outs))
    fan_out, fan_in = len(w) // groups, w.shape[1]
    for group in range(groups):
        own = slice(group * fan_out, (group + 1) * fan_out)
        for tap in np.ndindex(*w.shape[2:]):
            window = tuple(
                slice(at * gap, at * gap + (out - 1) * step + 1, step)
                for at, gap, out, step in zip(tap, gaps, outs, steps, strict=True)
            )
            part = padded[(slice(None), slice(group * fan_in, (group + 1) * fan_in), *window)]
            made[:, own] += np.einsum("oi,ni...->no...", w[(own, slice(None), *tap)], part)
    return made
