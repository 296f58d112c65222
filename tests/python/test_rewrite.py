"""Rewrites into strips compute the same values, in the places that they are given."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import strip_models
from arenaplan.base.errors import PlanOverlap
from arenaplan.deploy.export.patched import patched
from arenaplan.tflite.proving import replay_plan
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse
from arenaplan.tflite.reader.tflite_rows import program_of
from arenaplan.tflite.rewrite.image_rows import RowWindow, answers
from arenaplan.tflite.rewrite.patch import Moved
from arenaplan.tflite.rewrite.place import place
from arenaplan.tflite.rewrite.program import OperatorProgram
from arenaplan.tflite.rewrite.region_costs import Lives, TailCosts, candidate
from arenaplan.tflite.rewrite.strip_patches import patch_of
from arenaplan.tflite.rewrite.strip_regions import (
    Scope,
    SplitRegion,
    extra_work,
    scope_of,
    strips_of,
)
from arenaplan.tflite.rewrite.tensor_groups import groups_of, live_bytes
from arenaplan.tflite.runtime.views import layout_of
from raising import raises
from strip_models import SAME, VALID, Network, evaluate, pyramid, random_network


def some_input(model: TfliteModel, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    main = model.subgraphs[0]
    return [rng.integers(-128, 128, main.tensors[i].shape, np.int8) for i in main.inputs]


def scopes(program: OperatorProgram) -> list[Scope]:
    count = len(program.operators)
    found = (scope_of(program, a, b) for a in range(count) for b in range(a, count))
    return [scope for scope in found if scope is not None]


def random_region(
    program: OperatorProgram, scope: Scope, draw: random.Random
) -> SplitRegion | None:
    """Return a region with random cuts, paddings and line buffers."""
    rows = program.tensors[scope.result].shape[1]
    if rows < 2:
        return None
    cuts = tuple(sorted(draw.sample(range(1, rows), draw.randint(1, min(rows - 1, 11)))))
    positions = range(scope.first, scope.last + 1)
    padded = frozenset(p for p in positions if draw.random() < 0.4)
    inner = sorted(scope.inside - {scope.result})
    held = frozenset(t for t in inner if draw.random() < 0.3)
    region = SplitRegion(scope.first, scope.last, cuts, padded, held)
    if strips_of(program, scope, region) is None:
        region = region._replace(held=frozenset())
    return region if strips_of(program, scope, region) is not None else None


def random_rewrite(seed: int) -> tuple[TfliteModel, OperatorProgram, list[SplitRegion]]:
    model = parse(random_network(seed))
    program = program_of(model)
    draw = random.Random(seed)
    regions: list[SplitRegion] = []
    after = -1
    for scope in sorted(scopes(program), key=lambda _: draw.random()):
        if scope.first > after and draw.random() < 0.7:
            region = random_region(program, scope, draw)
            if region is not None:
                regions.append(region)
                after = scope.last
    return model, program, regions


# -- rows -------------------------------------------------------------------------------------


def kernel_rows(window: RowWindow, values: np.ndarray, before: int, made: int) -> list[Any]:
    """Return what a kernel sees for each row of its result: the taps inside of its operand."""
    return [
        tuple(
            values[max(0, i * window.stride - before) : i * window.stride - before + window.kernel]
        )
        for i in range(made)
    ]


@pytest.mark.parametrize("is_same", [True, False])
def test_every_answer_shows_the_kernel_the_same_rows(is_same: bool) -> None:
    draw = random.Random(1)
    checked = 0
    for _ in range(400):
        rows, kernel = draw.randint(3, 30), draw.randint(1, 7)
        stride = draw.randint(1, 4)
        if is_same:
            made = -(-rows // stride)
            total = max((made - 1) * stride + kernel - rows, 0)
        else:
            made, total = (rows - kernel) // stride + 1, 0
        if made < 1:
            continue
        window = RowWindow(kernel, stride, total // 2, rows, made, is_same, (0, 1), is_linear=True)
        values = np.arange(rows)
        whole = kernel_rows(window, values, window.before, made)
        first = draw.randrange(made)
        request = (first, draw.randint(first + 1, made))
        for answer in answers(window, request):
            part = values[slice(*answer.operand)]
            count = answer.made[1] - answer.made[0]
            before = 0
            if answer.way == "padded":
                blank = [-1] * answer.above, [-1] * answer.below
                part = np.concatenate([blank[0], part, blank[1]])
            elif answer.way == "kept" and is_same:
                padding = max((count - 1) * stride + kernel - len(part), 0)
                assert count == -(-len(part) // stride)
                before = padding // 2
            seen = kernel_rows(window, part, before, count)
            for row in range(*request):
                taps = tuple(v for v in seen[row - answer.made[0]] if v >= 0)
                assert taps == whole[row]
                checked += 1
    assert checked > 500


# -- regions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_strips_compute_the_same_bits_in_their_places(seed: int) -> None:
    model, program, regions = random_rewrite(seed)
    patch = patch_of(program, regions)
    written = patched(model, patch)
    inputs = some_input(model, seed)
    expected = [array.tobytes() for array in evaluate(model, inputs)]
    assert [array.tobytes() for array in evaluate(written, inputs)] == expected
    # A run in the arena goes element by element, as reference kernels do.
    layout = layout_of(written, overlap=seed % 3 > 0)
    placed = place(layout, tries=20, seed=seed)
    plan = replay_plan(written.data, placed.offsets)
    assert plan.kernels == "any" or seed % 3 > 0
    assert [a.tobytes() for a in evaluate(written, inputs, placed.offsets)] == expected


def test_results_lie_over_operands_as_close_as_allowed_and_no_closer() -> None:
    closer = wrong = 0
    for seed in range(40):
        model = parse(random_network(seed))
        layout = layout_of(model, overlap=True)
        inputs = some_input(model, seed)
        expected = evaluate(model, inputs)[0].tobytes()
        placed = place(layout, tries=20)
        assert evaluate(model, inputs, placed.offsets)[0].tobytes() == expected
        assert placed.head <= place(layout_of(model), tries=20).head
        for lead in layout.leads:
            offsets = list(placed.offsets)
            if offsets[lead.source] - offsets[lead.target] == lead.distance >= 32:
                offsets[lead.target] += 16
                with pytest.raises(PlanOverlap):
                    replay_plan(model.data, offsets)
                closer += 1
                wrong += evaluate(model, inputs, offsets)[0].tobytes() != expected
    assert closer > 10
    assert wrong > closer // 4


def test_the_random_rewrites_use_every_way_and_line_buffers() -> None:
    ways, kinds, held, pools = set(), set(), 0, 0
    for seed in range(60):
        _, program, regions = random_rewrite(seed)
        for region in regions:
            scope = scope_of(program, region.first, region.last)
            assert scope is not None
            for strip in strips_of(program, scope, region) or ():
                ways.update(call.answer.way for call in strip.calls)
            held += bool(region.held)
            names = [program.operators[p].name for p in range(region.first, region.last + 1)]
            pools += any("POOL" in name for name in names)
        kinds.update(s.kind for s in patch_of(program, regions).steps if isinstance(s, Moved))
    assert {"kept", "padded", "moved"} <= ways
    assert kinds == {"slice", "pad", "concat"}
    assert held > 5
    assert pools > 5


@pytest.mark.parametrize("seed", range(40))
def test_costs_before_writing_are_those_of_the_written_model(seed: int) -> None:
    model, program, regions = random_rewrite(seed)
    lives = Lives(program)
    costs = TailCosts((0,) * len(program.operators), 0, 0, 0, 1)
    for region in regions:
        scope = scope_of(program, region.first, region.last)
        assert scope is not None
        option = candidate(lives, costs, scope, region, 1 << 60)
        patch = patch_of(program, [region])
        assert option is not None
        assert option.operators == len(patch.steps) - len(program.operators)
        layout = layout_of(patched(model, patch))
        groups = groups_of(layout)
        first = region.first + 1
        steps = range(
            first,
            first + len(patch.steps) - len(program.operators) + region.last - region.first + 1,
        )
        live = live_bytes(groups, len(layout.uses))
        # Rounding to units of 16 adds bytes that the estimate leaves out.
        assert option.bound <= max(
            live[time] for step in steps for time in (2 * step, 2 * step + 1)
        )
        assert option.bound <= option.peak


def test_a_region_whose_tensor_is_used_outside_is_none() -> None:
    net = Network(0, (1, 8, 8, 4))
    a = net.conv(0, 4)
    b = net.conv(a, 4)
    c = net.add(a, b)
    program = program_of(parse(net.file([c, b])))
    assert scope_of(program, 0, 2) is None
    assert scope_of(program, 0, 0) is not None


def test_rows_that_are_held_are_computed_once() -> None:
    net = Network(0, (1, 16, 16, 4))
    a = net.conv(0, 4)
    b = net.conv(a, 4)
    program = program_of(parse(net.file([b])))
    scope = scope_of(program, 0, 1)
    assert scope is not None
    cuts = (4, 8, 12)
    halo = strips_of(program, scope, SplitRegion(0, 1, cuts, frozenset({0, 1})))
    stream = strips_of(program, scope, SplitRegion(0, 1, cuts, frozenset({0, 1}), frozenset({a})))
    assert halo is not None
    assert stream is not None
    assert extra_work(program, halo) > 0
    assert extra_work(program, stream) == 0


def test_concatenations_have_ten_operands_at_most() -> None:
    net = Network(0, (1, 24, 16, 1))
    x = net.conv(0, 4)
    model = parse(net.file([x]))
    program = program_of(model)
    patch = patch_of(program, [SplitRegion(0, 0, tuple(range(1, 24)))])
    joins = [s for s in patch.steps if isinstance(s, Moved) and s.kind == "concat"]
    assert len(joins) == 4
    assert max(len(join.inputs) for join in joins) == 10
    written = patched(model, patch)
    inputs = some_input(model, 0)
    assert evaluate(written, inputs)[0].tobytes() == evaluate(model, inputs)[0].tobytes()


def test_pooling_is_never_padded_explicitly() -> None:
    for name in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
        net = Network(0, (1, 16, 16, 4))
        x = net.pool(0, name, 3, 1)
        program = program_of(parse(net.file([x])))
        scope = scope_of(program, 0, 0)
        assert scope is not None
        strips = strips_of(program, scope, SplitRegion(0, 0, (5, 9), frozenset({0})))
        assert strips is not None
        assert {call.answer.way for strip in strips for call in strip.calls} == {"kept"}


def test_a_hybrid_or_custom_operator_is_not_split() -> None:
    net = Network(0, (1, 16, 16, 4))
    x = net.conv(0, 4)
    net.tensors[x][1] = strip_models.flat.Number("b", 0)  # A float result of int8 operands.
    program = program_of(parse(net.file([x])))
    assert program.operators[0].rule is None


# -- places -----------------------------------------------------------------------------------


def halves() -> tuple[TfliteModel, Any]:
    net = Network(0, (1, 32, 16, 1))
    x = net.conv(0, 4, 3, 1, SAME)
    x = net.conv(x, 4, 1, 1, VALID)
    model = parse(net.file([x]))
    patch = patch_of(program_of(model), [SplitRegion(0, 1, (16,))])
    return patched(model, patch), patch


def test_slices_lie_inside_of_their_source_and_strips_inside_of_the_result() -> None:
    written, _ = halves()
    layout = layout_of(written)
    placed = place(layout)
    main = written.subgraphs[0]
    for operator in main.operators:
        if operator.name == "CONCATENATION":
            at = placed.offsets[operator.outputs[0] or 0]
            for index in operator.inputs:
                assert index is not None
                assert placed.offsets[index] == at
                at += layout.boxes[index]
    first = next(o for o in main.operators if o.name == "SLICE")
    assert first.inputs[0] == main.inputs[0]
    assert placed.offsets[first.outputs[0] or 0] == placed.offsets[main.inputs[0]]


def test_replay_refuses_places_that_lose_bytes() -> None:
    written, _ = halves()
    layout = layout_of(written)
    good = place(layout).offsets
    draw = random.Random(0)
    refused = harmless = 0
    inputs = some_input(written, 0)
    expected = evaluate(written, inputs)[0].tobytes()
    for _ in range(300):
        offsets = list(good)
        tensor = draw.choice([t for t, o in enumerate(good) if o >= 0])
        offsets[tensor] = max(0, offsets[tensor] + 16 * draw.randint(-60, 60))
        try:
            replay_plan(written.data, offsets)
        except PlanOverlap:
            refused += 1
            continue
        harmless += 1
        assert evaluate(written, inputs, offsets)[0].tobytes() == expected
    assert refused > 100
    assert harmless > 5


def test_replay_refuses_offsets_off_the_grid() -> None:
    written, _ = halves()
    layout = layout_of(written)
    offsets = [o + 4 if o >= 0 else o for o in place(layout).offsets]
    with raises("PlanMisaligned"):
        replay_plan(written.data, offsets)


def test_more_tries_never_need_more_bytes_than_the_bound_allows() -> None:
    model = parse(pyramid())
    patch = patch_of(program_of(model), [SplitRegion(0, 1, (4, 8, 12))])
    layout = layout_of(patched(model, patch))
    placed = place(layout, tries=400)
    assert placed.bound <= placed.head < place(layout_of(model)).head
    assert place(layout, tries=400) == placed
