"""
Bytes that kernels of TensorFlow Lite Micro let operands and results share.

Each row of the table runs in the unmodified interpreter: a model with the operator alone, its
results at the places that the row allows, and garbage in the arena before every run.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan.base.errors import PlanOverlap
from arenaplan.cli import main
from arenaplan.deploy.export.rewritten_file import with_metadata
from arenaplan.deploy.export.tflm import (
    METADATA_NAME,
    ONLINE,
    check_offsets,
    embed,
    plan_tflm,
    read_offsets,
)
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.reader.timeline import Timeline, graph_of_timeline, timeline_of
from arenaplan.tflite.runtime.aliases import ROWS, aliased_timeline, row_of
from arenaplan.tflite.runtime.build import KERNEL_SETS, Build
from tflm_garbage import ARENA, Garbage
from tflm_models import random_bytes_model
from tflm_operators import Case, Operand, cases, model_of
from tflm_oracle import random_inputs

RUNS = 20
SHARING = Build(shares=True)

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
    timeline = aliased_timeline(model, SHARING)
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
    assert any(list(shares_of(aliased_timeline(parse(model_of(case)), SHARING))) for case in found)
    assert ROWS[name].reason


@pytest.mark.parametrize("title", SINGLE)
def test_kernels_share_bytes_in_the_interpreter(title: str) -> None:
    data = model_of(SINGLE[title])
    model = parse(data)
    timeline = aliased_timeline(model, SHARING)
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
        compare(data, embed(model, offsets, SHARING))


def test_garbage_finds_kernels_that_may_not_share() -> None:
    data = model_of(SINGLE["TRANSPOSE-int8"])
    # Both at the same place, though the elements move.
    model = parse(data)
    boxes = timeline_of(model).boxes
    assert [box.tensor for box in boxes] == [0, 2]
    forged = _with_plan(data, [0, ONLINE, 0])
    with pytest.raises(PlanOverlap):
        check_offsets(aliased_timeline(model, SHARING), [0, ONLINE, 0])
    with pytest.raises(AssertionError):
        compare(data, forged)


@pytest.mark.parametrize("seed", range(24))
def test_random_models_share_bytes_in_the_interpreter(seed: int) -> None:
    words = seed % 3 == 2
    # Tensors inside are compared, too, where they are outputs.
    data = random_bytes_model(seed, scratch=seed % 2 == 1, words=words, shown=seed % 4)
    model = parse(data)
    plan = plan_tflm(model, always=True, build=SHARING)
    compare(data, embed(model, plan.offsets, SHARING))


def test_random_models_share_bytes_often() -> None:
    fewer = 0
    for seed in range(40):
        model = parse(random_bytes_model(seed, scratch=False))
        plan = plan_tflm(model, build=SHARING)
        graph = graph_of_timeline(timeline_of(model))
        apart = ap.plan(graph, target="tflm").arena_bytes
        assert plan.lower_bound <= plan.head_after <= min(apart, plan.head_before)
        fewer += plan.head_after < apart
    assert fewer > 10


def test_an_output_is_not_overwritten_by_the_last_operator() -> None:
    # The input of the last operator is an output, too: it must survive the run.
    root = flat.chain("NEG", "ABS", shape=(64,))
    root[2][0][2] = flat.Vector("i", [1, 2])
    timeline = aliased_timeline(parse(flat.write(root)), SHARING)
    assert [pair[1:] for pair in timeline.in_place] == [(0, 1)]
    with pytest.raises(PlanOverlap):
        check_offsets(timeline, [0, 256, 256])


def test_a_later_reader_keeps_an_operand() -> None:
    root = flat.chain("NEG", "ABS", "NEG", shape=(64,))
    root[2][0][3][2] = flat.operator(2, [2, 0], [3])
    root[1][2] = flat.code("ADD")
    timeline = aliased_timeline(parse(flat.write(root)), SHARING)
    # The input is read by the last operator; the results between die at once.
    assert [pair[1:] for pair in timeline.in_place] == [(1, 2), (2, 3), (0, 3)]
    for offsets, is_right in (
        ([0, 256, 256, 0], True),
        ([0, 256, 256, 256], True),
        ([0, 0, 256, 512], False),
        ([0, 256, 272, 512], False),
    ):
        if is_right:
            check_offsets(timeline, offsets)
        else:
            with pytest.raises(PlanOverlap):
                check_offsets(timeline, offsets)


def test_operands_that_end_inside_of_a_unit_stay_outside() -> None:
    """Two results may not seem equal where only the padding of an operand is."""
    root = flat.model(
        [flat.code("CONCATENATION")],
        [
            flat.subgraph(
                [flat.tensor(name, (count,), flat.INT8)
                 for name, count in (("x", 20), ("a", 12), ("b", 12), ("p", 32), ("q", 32))],
                [flat.operator(0, [0, 1], [3], (10, {})), flat.operator(0, [0, 2], [4], (10, {}))],
                [0, 1, 2],
                [3, 4],
            )
        ],
    )  # fmt: skip
    timeline = aliased_timeline(parse(flat.write(root)), SHARING)
    assert timeline.same == []
    with pytest.raises(PlanOverlap):
        check_offsets(timeline, [0, 32, 48, 0, 0])


def test_kernels_of_cmsis_nn_have_rows_of_their_own() -> None:
    for kernels in KERNEL_SETS:
        model = parse(model_of(SINGLE["TRANSPOSE-of ones"]))
        shares = list(shares_of(aliased_timeline(model, Build(kernels, 32, shares=True))))
        assert bool(shares) == (kernels in ("reference", "esp-nn"))
    own = {name for name, row in ROWS.items() if row.cmsis_nn != "the reference kernel"}
    assert own == {"ADD", "MAXIMUM", "MINIMUM", "MUL", "SOFTMAX", "TRANSPOSE"}


def test_kernels_of_esp_nn_share_nothing_where_they_are_not_reference_kernels() -> None:
    for name in ("ADD", "MUL", "SUB"):
        (operator,) = (
            parse(model_of(next(c for c in SINGLE.values() if c.name == name)))
            .subgraphs[0]
            .operators
        )
        assert (row_of(operator, "esp-nn") is None) == (name != "SUB")
        assert row_of(operator, "reference") is not None


def test_bytes_are_shared_for_kernels_that_the_user_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, plan, out = (tmp_path / name for name in ("m.tflite", "p.json", "out.tflite"))
    source.write_bytes(flat.write(flat.fragmented()))
    model = parse(source.read_bytes())
    assert aliased_timeline(model, Build()) == timeline_of(model)
    for target, head in (("tflm", 864), ("tflm:reference", 576), ("tflm:cmsis-nn", 576)):
        assert main(["plan", str(source), "--target", target, "-o", str(plan)]) == 0
        made = ap.Plan.load(plan)
        assert (made.target.name, made.target.runtime) == (target, "tflm")
        assert made.arena_bytes == head
        # A plan knows the kernels that run it.
        assert main(["check", str(source), str(plan)]) == 0
        capsys.readouterr()
        assert main(["check", str(source), str(plan), "--target", "tflm:cmsis-nn-mve"]) == (
            1 if target == "tflm" else 0
        )
        for with_plan in ([], ["--plan", str(plan)]):
            command = ["export", str(source), "--to", "tflm", "-o", str(out), *with_plan]
            capsys.readouterr()
            assert main([*command, "--target", target, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["head_after"] == head
        assert main(["check", str(out), "--json"]) == 0
        kernels = "any" if target == "tflm" else ", ".join(KERNEL_SETS)
        assert json.loads(capsys.readouterr().out)["kernels"] == kernels
    command = ["export", str(source), "--to", "tflm", "-o", str(out), "--plan", str(plan)]
    assert main([*command, "--target", "tflm"]) == 1
    assert main(command) == 0


def _with_plan(data: bytes, offsets: list[int]) -> bytes:
    """Return a model with offsets that nobody has checked."""
    content = struct.pack(f"<3i{len(offsets)}i", 1, 1, len(offsets), *offsets)
    return with_metadata(parse(data), METADATA_NAME, content)
