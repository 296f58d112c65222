"""Replays of plans: copies onto themselves, and results over operands."""

from __future__ import annotations

import random
import struct
from collections import Counter

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan.base.errors import PlanError, PlanOverlap
from arenaplan.deploy.export.rewritten_file import with_metadata
from arenaplan.tflite.reader.offline import METADATA_NAME
from arenaplan.tflite.reader.tflite_model import parse
from sketches import SAME, VALID, Network, Sketch, network, planned
from test_prove import proof_of, two_strips
from tflm_operators import Case, Operand, model_of


def test_a_copy_onto_itself_must_be_exact() -> None:
    old, new = two_strips()
    new.plan = planned(new)
    assert proof_of(old, new).plan is not None
    _, lower = new.operators[-1].inputs
    new.plan[lower] -= 16
    with pytest.raises(PlanOverlap, match=r"'kept lower' at .*, with other bytes, over"):
        proof_of(old, new)


def test_an_operator_that_computes_must_not_write_over_its_operand() -> None:
    net = Network(random.Random(0), (1, 4, 4, 4))
    x = net.relu(0)
    old = net.sketch
    old.outputs = [x]
    new = old.copy()
    new.plan = [0, 16]
    with pytest.raises(PlanOverlap, match="with computed bytes"):
        proof_of(old, new)
    new.plan = [0, 0]
    plan = proof_of(old, new).plan
    assert plan is not None
    assert (plan.kernels, plan.in_place, plan.overlaps) == ("known", ((0, 0, x),), ())
    new.plan = [16, 0]
    plan = proof_of(old, new).plan
    assert plan is not None
    assert (plan.kernels, plan.in_place, plan.overlaps) == ("reference", (), ((0, 0, x),))
    new.plan = [0, 64]
    assert proof_of(old, new).plan is not None
    new.plan = [0, -1]
    assert proof_of(old, new).plan is not None


def read_in_order(sketch: Sketch, number: int) -> list[int]:
    """Return the last element of the result made from each element, as a kernel loops."""
    operator = sketch.operators[number]
    x, y = (sketch.tensors[i].shape for i in (operator.inputs[0], operator.outputs[0]))
    is_deep = operator.name == "DEPTHWISE_CONV_2D"
    weights = None
    if "CONV" in operator.name:
        weights = sketch.tensors[operator.inputs[1]].shape
    taps = weights[1:3] if weights else (operator.option(4), operator.option(3))
    strides = operator.option(2), operator.option(1)
    same = operator.option(0) == SAME
    before = [
        max((y[a + 1] - 1) * strides[a] + taps[a] - x[a + 1], 0) // 2 if same else 0 for a in (0, 1)
    ]
    last = np.full(x, -1)
    for position, (_, row, column, channel) in enumerate(np.ndindex(*y)):
        share = y[3] // x[3] if is_deep else 1
        depth = slice(None) if operator.name == "CONV_2D" else channel // share
        for a in range(taps[0]):
            for b in range(taps[1]):
                i, j = row * strides[0] - before[0] + a, column * strides[1] - before[1] + b
                if 0 <= i < x[1] and 0 <= j < x[2]:
                    last[0, i, j, depth] = position
    return [int(n) for n in last.ravel()]


def test_the_last_read_of_an_element_is_that_of_the_kernels_loops() -> None:
    from arenaplan.tflite.proving.facts import read_pair
    from arenaplan.tflite.proving.kernel_order import last_reads

    names: Counter[str] = Counter()
    for seed in range(40):
        old = network(seed)
        file = old.file()
        graph = read_pair(file, file)[0].graphs[0]
        for number, operation in enumerate(graph.operations):
            if not operation.name.endswith("_2D"):
                continue
            found = last_reads(operation, 0, graph.tensors)
            assert found is not None
            assert found.tolist() == read_in_order(old, number)
            names[operation.name] += 1
    assert len(names) == 4
    assert min(names.values()) > 3


def overlapping(seed: int) -> tuple[Sketch, Sketch, int]:
    """Return a network, the same with a result over its image, and the least distance of both."""
    draw = random.Random(seed)
    net = Network(draw, (1, draw.randint(6, 12), 8, draw.choice([2, 4, 8])))
    kind = draw.choice(["conv", "deep", "AVERAGE_POOL_2D", "MAX_POOL_2D"])
    padding, taps, stride = draw.choice([SAME, VALID]), draw.choice([1, 2, 3]), draw.choice([1, 2])
    if "POOL" in kind:
        x = net.pool(0, kind, taps, stride, padding)
    else:
        channels = draw.choice([2, 4, 8])
        x = net.conv(0, channels, taps, stride, padding, is_deep=kind == "deep")
    old = net.sketch
    old.outputs = [x]
    last = read_in_order(old, 0)
    # Element i of the image may be written when the last element made from it has been.
    distance = max([0, *(made - i for i, made in enumerate(last))])
    new = old.copy()
    new.plan = [-1] * len(new.tensors)
    return old, new, distance


@pytest.mark.parametrize("seed", range(30))
def test_a_result_may_lie_over_its_image_at_the_distance_of_the_kernels_loops(seed: int) -> None:
    old, new, distance = overlapping(seed)
    assert new.plan is not None
    x = new.outputs[0]
    near = distance + -distance % 16
    new.plan[0], new.plan[x] = near, 0
    plan = proof_of(old, new).plan
    assert plan is not None
    size = int(np.prod(new.tensors[x].shape))
    assert bool(plan.overlaps) == (near < size)
    if 16 <= near < size:
        new.plan[0] -= 16
        with pytest.raises(PlanOverlap):
            proof_of(old, new)


def test_offsets_far_apart_need_no_memory() -> None:
    net = Network(random.Random(0), (1, 4, 4, 4))
    x = net.relu(0)
    old = net.sketch
    old.outputs = [x]
    new = old.copy()
    new.plan = [0, 2**31 - 4096]
    proof = proof_of(old, new)
    assert proof.plan is not None
    assert proof.plan.head == 2**31 - 4096 + 64
    new.plan = [0, 2**31 - 16]
    with pytest.raises(PlanError):
        proof_of(old, new)


@pytest.mark.parametrize(
    ("name", "old", "new", "move", "is_right"),
    [
        ("SOFTMAX", (4, 16), (4, 16), 0, True),
        ("SOFTMAX", (4, 16), (4, 16), 16, False),
        ("NEG", (4, 16), (4, 16), 0, True),
        ("TRANSPOSE", (4, 16), (16, 4), 0, False),
    ],
)
def test_results_at_the_address_of_an_operand(
    name: str, old: tuple[int, ...], new: tuple[int, ...], move: int, is_right: bool
) -> None:
    operands = [Operand(old)]
    if name == "TRANSPOSE":
        operands.append(Operand((2,), "int32", (1, 0)))
    options = (9, {0: flat.Number("f", 1)}) if name == "SOFTMAX" else None
    data = model_of(Case(name, operands, [Operand(new)], options))
    offsets = [move, *[-1] * (len(operands) - 1), 0]
    content = struct.pack(f"<3i{len(offsets)}i", 1, 1, len(offsets), *offsets)
    file = with_metadata(parse(data), METADATA_NAME, content)
    if is_right:
        plan = ap.tflite.prove(data, file).plan
        assert plan is not None
        assert [tuple(pair) for pair in plan.in_place] == [(0, 0, 1)]
        assert plan.kernels == "known"
    else:
        with pytest.raises(PlanOverlap, match="with computed bytes, over"):
            ap.tflite.prove(data, file)
