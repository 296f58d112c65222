"""
Bytes that kernels of TensorFlow Lite Micro let operands and results share.

Each row of the table runs in the unmodified interpreter: a model with the operator alone, its
results at the places that the row allows, and garbage in the arena before every run.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from arenaplan.errors import PlanOverlap
from arenaplan.export.tflm import ONLINE, check_offsets, embed, read_offsets
from arenaplan.importers.tflite.micro.aliases import ROWS, aliased_timeline
from arenaplan.importers.tflite.model import parse
from arenaplan.importers.tflite.timeline import Timeline, timeline_of
from tflm_garbage import ARENA, Garbage
from tflm_operators import Case, Operand, cases, model_of
from tflm_oracle import random_inputs

RUNS = 20

_EVERY = (1, 4, 4, 16)
_MORE = (
    Case(
        "TRANSPOSE",
        [Operand((1, 6, 1, 16)), Operand((4,), "int32", (0, 2, 1, 3))],
        [Operand((1, 1, 6, 16))],
        label="of ones",
    ),
    Case(
        "SLICE",
        [
            Operand(_EVERY, "int8"),
            Operand((4,), "int32", (0, 1, 0, 0)),
            Operand((4,), "int32", (1, 2, -1, 16)),
        ],
        [Operand((1, 2, 4, 16), "int8")],
        label="of rows",
    ),
    Case(
        "STRIDED_SLICE",
        [
            Operand(_EVERY, "int16"),
            Operand((4,), "int32", (0, -3, 0, 0)),
            Operand((4,), "int32", (1, -1, 4, 16)),
            Operand((4,), "int32", (1, 1, 1, 1)),
        ],
        [Operand((1, 2, 4, 16), "int16")],
        (32, {}),
        label="of rows",
    ),
    *(
        Case(name, [Operand(_EVERY, "int8"), Operand(shape, "int8")], [Operand(_EVERY, "int8")],
             (number, {}), label=f"broadcast-{len(shape)}")
        for name, number in (("ADD", 11), ("MUL", 21), ("SUB", 28), ("MAXIMUM", 39))
        for shape in ((1, 1, 1, 1), (1, 1, 1, 16), (1, 4, 1, 1))
    ),
    *(
        Case("QUANTIZE", [Operand(_EVERY, old, scale=0.5)], [Operand(_EVERY, new)], (83, {}),
             label=f"{old}-{new}")
        for old, new in (("float32", "int8"), ("int16", "int8"), ("int8", "int8"),
                         ("int16", "int16"))
    ),
    Case("CAST", [Operand(_EVERY, "float32")], [Operand(_EVERY, "int8")], (38, {}), label="narrow"),
    Case("CAST", [Operand(_EVERY, "int32")], [Operand(_EVERY, "float32")], (38, {}), label="wide"),
    Case(
        "SELECT_V2",
        [Operand((4, 1), "bool"), Operand((4, 32), "int8"), Operand((1, 32), "int8")],
        [Operand((4, 32), "int8")],
        (103, {}),
        label="broadcast",
    ),
)  # fmt: skip
"""Cases beside those of the memory of kernels, where these share no bytes or few."""

SINGLE = {
    case.title: case for case in (*cases(), *_MORE) if case.custom is None and case.name in ROWS
}


class Share(NamedTuple):
    """Two tensors of which one is put inside of the other, or at the same place."""

    outer: int
    inner: int
    distance: int


def shares_of(timeline: Timeline) -> Iterator[Share]:
    for same in timeline.same:
        outer, inner = same.source, same.result
        if same.is_joined:
            outer, inner = inner, outer
        yield Share(outer, inner, same.distance)
    for pair in timeline.in_place:
        yield Share(pair.source, pair.result, 0)


def offsets_with(timeline: Timeline, shares: list[Share]) -> list[int]:
    """Return offsets of all tensors with these shares, and nothing else shared."""
    offsets = [ONLINE] * timeline.tensors
    inside = {share.inner: share for share in shares}
    top = 0
    for position, box in enumerate(timeline.boxes):
        if position not in inside:
            offsets[box.tensor] = top
            top += box.size
    for share in shares:
        outer = timeline.boxes[share.outer]
        offsets[timeline.boxes[share.inner].tensor] = offsets[outer.tensor] + share.distance
    return offsets


def compare(data: bytes, planned: bytes) -> None:
    """Run two models side by side, with garbage in the arena of the second."""
    runtime = pytest.importorskip("tflite_micro").runtime
    first = runtime.Interpreter.from_bytes(data, arena_size=ARENA)
    second = runtime.Interpreter.from_bytes(planned, arena_size=ARENA)
    model = parse(planned)
    main, offsets = model.subgraphs[0], read_offsets(model)
    assert offsets is not None
    timeline = aliased_timeline(model)
    size = max(offsets[box.tensor] + box.size for box in timeline.boxes)
    firsts = [random_inputs(data, seed)[0] for seed in range(4)]
    arena = Garbage(second, first, firsts, offsets[main.inputs[0]], size)
    rng = np.random.default_rng(1)
    different = set()
    for seed in range(RUNS):
        inputs = random_inputs(data, seed)
        arena.fill(rng)
        for index, array in enumerate(inputs):
            first.set_input(array, index)
            second.set_input(array, index)
        first.invoke()
        second.invoke()
        for index, tensor in enumerate(main.outputs):
            wanted = first.get_output(index)
            assert second.get_output(index).tobytes() == wanted.tobytes(), (seed, index)
            # The plan was obeyed: the bytes are at the planned place.
            assert arena.read(offsets[tensor], wanted.nbytes) == wanted.tobytes()
            different.add((index, wanted.tobytes()))
    assert len(different) > len(main.outputs), "all inputs have the same result"


@pytest.mark.parametrize("name", ROWS)
def test_each_row_has_a_case_and_a_reason(name: str) -> None:
    found = [case for case in SINGLE.values() if case.name == name]
    assert any(list(shares_of(aliased_timeline(parse(model_of(case))))) for case in found)
    assert ROWS[name].reason


@pytest.mark.parametrize("title", SINGLE)
def test_kernels_share_bytes_in_the_interpreter(title: str) -> None:
    data = model_of(SINGLE[title])
    model = parse(data)
    timeline = aliased_timeline(model)
    shares = list(shares_of(timeline))
    if not shares:
        return
    joined = {share.inner: share for share in shares}
    if ROWS[SINGLE[title].name].way == "copies":
        ways = [list(joined.values())]
    else:  # One result has one place; each operand is tried.
        ways = [[share] for share in shares]
    for way in ways:
        offsets = offsets_with(timeline, way)
        # Without the row no such plan is written.
        with pytest.raises(PlanOverlap):
            check_offsets(timeline_of(model), offsets)
        compare(data, embed(model, offsets))
