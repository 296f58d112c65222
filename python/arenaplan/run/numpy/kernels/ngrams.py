"""Counts of short sequences in number rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from arenaplan.base.errors import UnsupportedDtype
from arenaplan.run.numpy.kernels.pieces import invalid, operand, result
from arenaplan.run.numpy.registry import Run, Step, kernel


def _pool(attributes: Mapping[str, Any]) -> dict[tuple[int, ...], int]:
    """Return the columns for the counted sequences, in pool order."""
    pool = attributes["pool_int64s"]
    counts, columns = [*attributes["ngram_counts"], len(pool)], iter(attributes["ngram_indexes"])
    shortest, longest = attributes["min_gram_length"], attributes["max_gram_length"]
    found: dict[tuple[int, ...], int] = {}
    for length, (start, stop) in enumerate(pairwise(counts), 1):
        for at in range(start, stop - length + 1, length):
            column = next(columns)
            if shortest <= length <= longest:
                found[tuple(pool[at : at + length])] = column
    return found


def _sequences(row: list[int], attributes: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    """Yield the sequences in a row; single numbers only once, for any skips."""
    shortest = attributes["min_gram_length"]
    for distance in range(1, attributes["max_skip_count"] + 2):
        for length in range(shortest, attributes["max_gram_length"] + 1):
            if length == 1 and distance > 1:
                continue
            for start in range(len(row) - distance * (length - 1)):
                yield tuple(row[start : start + distance * length : distance])


@kernel("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(step: Step) -> Run | None:
    """Write how often each pool sequence is in each row, or the weighted count."""
    x, y, attributes = operand(step, 0), result(step), step.attributes
    if "pool_int64s" not in attributes:
        raise UnsupportedDtype(f"node {step.signature.name!r} (TfIdfVectorizer) counts strings")
    mode = attributes.get("mode", "TF")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise invalid(step, f"mode is {mode!r}")
    columns = _pool(attributes)
    weights = np.ones(y.shape[-1], y.dtype)
    if attributes.get("weights"):  # One weight for each pool sequence.
        weights[list(attributes["ngram_indexes"])] = attributes["weights"]
    width = x.shape[-1] if x.ndim else 1

    def run() -> None:
        y.fill(0)
        rows = x.reshape(-1, width) if width else x[:0].reshape(0, 1)
        for row, counts in zip(rows, y.reshape(-1, y.shape[-1]), strict=False):
            for sequence in _sequences(row.tolist(), attributes):
                column = columns.get(sequence)
                if column is not None:
                    counts[column] += 1
        if mode == "IDF":
            np.greater(y, 0, out=y, casting="unsafe")
        if mode != "TF":
            np.multiply(y, weights, out=y)

    return run
