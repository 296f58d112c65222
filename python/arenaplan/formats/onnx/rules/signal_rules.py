"""Shape rules for signal operators."""

from __future__ import annotations

from collections.abc import Sequence

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import Op


def stft(op: Op) -> Sequence[Result]:
    """
    Frame spectra of a signal ``(batch, length, 1 or 2)``.

    The package ``onnx`` infers whole spectra without ``onesided``, although the default is 1.
    """
    x, window = op.input(0), op.optional(2)
    if len(x.shape) != 3 or x.shape[2] not in (1, 2):
        raise op.error(ShapeMismatch, f"a signal of shape {x.shape}")
    batch, available, _ = x.shape
    hop = int(op.scalar(1))
    if op.optional(3) is not None:
        length = int(op.scalar(3))
    elif window is not None and len(window.shape) == 1:
        length = window.shape[0]
    else:
        length = available
    if hop < 1 or not 1 <= length <= available:
        raise op.error(InvalidAttribute, f"frames of {length} every {hop} elements of {available}")
    bins = length // 2 + 1 if op.flag("onesided", default=True) else length
    return (((batch, 1 + (available - length) // hop, bins, 2), x.dtype),)
