"""What kernels allocate while they run: next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from light_node import BINARY, RNG, UNARY, Array, Node, blank, ints, peak_of, result_type, values

ALLOWED = 256 << 10
BIG = (4, 300, 256)
"""Shape of arrays that are five times as large as what a run may allocate."""


class Random(NamedTuple):
    """Random numbers, made when a test needs them; below ``high`` if they are indices."""

    dtype: str = "float32"
    shape: tuple[int, ...] = BIG
    high: int | None = None

    def make(self) -> Array:
        if self.high is None:
            return np.asarray(values(self.shape, self.dtype, special=False))
        return RNG.integers(0, self.high, self.shape).astype(self.dtype)


class Case(NamedTuple):
    """A node with large operands."""

    op: str
    inputs: Sequence[Random | Array | None]
    shape: tuple[int, ...] = BIG
    dtype: str = "float32"
    attributes: Mapping[str, Any] = {}


X = Random()
ROW = Random(shape=(300, 1))
CASES = [
    *(
        Case(op, [X], dtype=result_type(op, "float32"))
        for op in UNARY
        if op not in ("Not", "BitwiseNot")
    ),
    *(
        Case(op, [X, ROW], dtype=result_type(op, "float32"))
        for op, (dtypes, _) in BINARY.items()
        if "float32" in dtypes
    ),
    Case("Sum", [X, X, X]),
    Case("Where", [Random("bool"), X, X]),
    Case("Pow", [X, Random("int64")]),
    Case("Cast", [X], dtype="int64"),
    Case("Clip", [X, np.array(0, np.float32), None]),
    Case("Transpose", [X], BIG[::-1]),
    Case("Concat", [X, X], (4, 600, 256), attributes={"axis": 1}),
    Case("Slice", [X, ints(0), ints(256), ints(2), ints(2)], (4, 300, 128)),
    Case("Pad", [X, ints(1, 2, 3, 1, 2, 3)], (6, 304, 262), attributes={"mode": "reflect"}),
    Case("Tile", [X, ints(1, 1, 2)], (4, 300, 512)),
    Case("Expand", [Random(shape=(1, 300, 1)), ints(*BIG)]),
    Case("Trilu", [X]),
    Case("Gather", [X, Random("int32", (256,), 256)], attributes={"axis": 2}),
    Case("GatherElements", [X, Random("int64", BIG, 256)], attributes={"axis": 2}),
    Case("GatherND", [X, Random("int64", (9000, 2), 4)], (9000, 256)),
    Case(
        "ScatterElements",
        [X, Random("int64", BIG, 256), X],
        attributes={"axis": 2, "reduction": "add"},
    ),
    Case("ScatterND", [X, Random("int64", (40, 1), 4), Random(shape=(40, 300, 256))]),
    Case("OneHot", [Random("int64", BIG[:2], 256), np.array(256), np.array([0, 1], np.float32)]),
    Case("ReduceSum", [X, ints(0, 2)], (1, 300, 1)),
    Case("ReduceMean", [X, ints(2)], (4, 300, 1)),
    Case("ReduceMax", [X, ints(0)], (1, 300, 256)),
    Case("ArgMax", [X], (1, 300, 256), "int64"),
    Case("CumSum", [X, np.array(1)], attributes={"reverse": 1, "exclusive": 1}),
    Case("Resize", [X, None, None, ints(4, 500, 600)], (4, 500, 600), attributes={"mode": "cubic"}),
    Case("QuantizeLinear", [X, Random(shape=(300,)), Random("uint8", (300,))], dtype="uint8"),
    Case("DequantizeLinear", [Random("int8"), Random(shape=(300,)), Random("int8", (300,))]),
    Case("Range", [np.array(bound, np.float32) for bound in (0, 300_000, 1)], (300_000,)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{len(case.inputs)}")
def test_a_warm_run_allocates_next_to_nothing(case: Case) -> None:
    inputs = [each.make() if isinstance(each, Random) else each for each in case.inputs]
    node = Node(case.op, inputs, [blank(case.shape, case.dtype)], **case.attributes)
    assert peak_of(node) <= ALLOWED


def test_a_warm_top_k_allocates_next_to_nothing() -> None:
    outputs = [blank((4, 300, 100)), blank((4, 300, 100), np.int64)]
    assert peak_of(Node("TopK", [X.make(), ints(100)], outputs)) <= ALLOWED
