"""Outputs that overlap dying inputs: planned with their scratch memory, and run piece by piece."""

from __future__ import annotations

import json
from itertools import product
from math import prod
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenaplan as ap
import light_models
from arenaplan.cli import main
from arenaplan.graph.ops.window_ops import Axis, lead
from arenaplan.run.numpy.groups import group_of
from arenaplan.run.numpy.staging import staged_run, staged_ways
from arenaplan.run.numpy.steps import aligned_bytes, arena_arrays
from flow_graphs import Builder
from group_runs import inputs_of, run_with_choice
from raising import raises
from step_costs import staging_choices

WITHOUT = "views,in-place,elision,fusion,order,streaming"


def check(graph: ap.Graph, plan: ap.Plan, *, tolerance: float = 1e-5) -> None:
    """Run a plan with all checks; results are those of nodes run alone."""
    feed = inputs_of(graph)
    with ap.Executor(graph, ap.plan(graph, optimize="none", target="ideal")) as executor:
        wanted = executor.run(feed)
    with ap.Executor(graph, plan) as executor:
        found = executor.run(feed, verify=True)
        again = executor.run(feed)
    for name in wanted:
        assert np.unique(wanted[name]).size > 1
        np.testing.assert_allclose(found[name], wanted[name], rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(again[name], found[name])


def alone(graph: ap.Graph, workspace: str = "none") -> ap.Plan:
    """Plan with nothing but overlaps, whatever time they take."""
    target = "ideal" if workspace == "none" else "numpy"
    return ap.plan(graph, optimize="overlap", target=target, max_slowdown=None)


def rows(*shape: int, width: int = 48) -> ap.Graph:
    """A product by rows, with a small value before and behind it."""
    b = Builder()
    small = b.node(
        "ReduceMax", [b.input("x", *shape, 2)], (*shape, 1), 1, attributes={"axes": [-1]}
    )
    wide = b.node("MatMul", [small, b.weight(1, 32)], (*shape, 32), 1)
    made = b.node("MatMul", [wide, b.weight(32, width)], (*shape, width), int(np.prod(shape)), [0])
    axes = {"axes": [-1]}
    b.graph.output(b.node("ReduceMax", [made], (*shape, 1), int(np.prod(shape)), attributes=axes))
    return b.graph


# -- what is planned and run ----------------------------------------------------------------


@pytest.mark.parametrize("width", [16, 32, 48])
@pytest.mark.parametrize("shape", [(64,), (8, 8), (2, 3, 11)])
def test_rows_of_a_product_overlap_those_of_its_operand(shape: tuple[int, ...], width: int) -> None:
    graph = rows(*shape, width=width)
    count, node = int(np.prod(shape)), 2
    bare = alone(graph)
    assert bare.overlapped == [node]
    larger = 4 * count * max(32, width)
    assert larger <= bare.arena_bytes <= larger + 4 * count + 192
    check(graph, bare)


def test_scratch_memory_of_a_piece_counts_and_is_in_the_arena() -> None:
    graph = rows(512)
    plan, without = (
        alone(graph, workspace="auto"),
        ap.plan(graph, optimize="none", workspace="auto", target="numpy"),
    )
    assert plan.overlapped == [2]
    assert plan.arena_bytes < without.arena_bytes
    (staged,) = [work for work in plan.workspaces if work.node == 2]
    assert 0 < staged.bytes < 512 * 48 * 4
    with ap.Executor(graph, plan) as executor:
        assert executor.scratch_bytes == 0
    check(graph, plan)


def test_every_size_of_scratch_memory_gives_the_same() -> None:
    graph = rows(96, width=64)
    plan = alone(graph)
    (choices,) = staging_choices(graph, [[2]])[2]
    assert len(choices) > 1
    feed = inputs_of(graph)
    found = [run_with_choice(graph, plan, feed, choice) for choice in range(len(choices))]
    for results in found[1:]:
        for name, result in results.items():
            np.testing.assert_allclose(result, found[0][name], rtol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_channels_of_a_pool_overlap_those_of_the_image(op: str) -> None:
    b = Builder()
    image = b.conv(b.input("x", 1, 1, 64, 64), 24)
    b.graph.output(b.pool(op, image, 3, 1, pads=[1, 1, 1, 1]))
    plan = alone(b.graph, workspace="auto")
    assert plan.overlapped == [1]
    assert (
        plan.arena_bytes
        < ap.plan(b.graph, optimize="none", workspace="auto", target="numpy").arena_bytes
    )
    check(b.graph, plan)


def test_a_group_that_runs_by_channels_overlaps_its_image() -> None:
    b = Builder()
    image = b.conv(b.input("x", 1, 1, 100, 100), 24)
    made = b.elementwise("Relu", b.conv(image, 48, group=24))
    b.graph.output(made)
    steps = [[0], [1, 2]]
    plan = ap.plan(b.graph, optimize="overlap", steps=steps, workspace="auto", target="numpy")
    assert plan.overlapped == [2]
    check(b.graph, plan)
    check(b.graph, ap.plan(b.graph, optimize="overlap", steps=steps, target="ideal"))


def test_what_cannot_be_cut_waits_as_a_whole_or_is_not_overlapped() -> None:
    def build(op: str) -> ap.Graph:
        b = Builder()
        wide = b.node("MatMul", [b.input("x", 40, 1), b.weight(1, 50)], (40, 50), 1)
        axis = b.graph.constant("axis", (), "int64", np.array(1, np.int64))
        b.graph.output(b.node(op, [wide, axis], (40, 50), 40, [0]))
        return b.graph

    graph = build("CumSum")
    assert [len(slot) for slot in staging_choices(graph, [[1]])[1]] == [1]
    assert alone(graph).overlapped == [1]
    check(graph, alone(graph))
    plan = alone(graph, workspace="auto")
    assert plan.overlapped == []
    check(graph, plan)


def test_a_distance_that_no_piece_explains_is_served_by_waiting_for_everything() -> None:
    b = Builder()
    x = b.input("x", 30, 20)
    wide = b.node("Softmax", [x], (30, 20), 1)
    made = b.node("MatMul", [wide, b.weight(20, 40)], (30, 40), 30, [0], overlaps=[(0, 0, 64)])
    b.graph.output(made)
    plan = alone(b.graph)
    assert plan.overlapped == [1]
    check(b.graph, plan)


def test_scratch_memory_that_is_too_small_is_refused() -> None:
    graph = rows(64)
    plan = alone(graph)
    memory = aligned_bytes(plan.arena_bytes)
    arrays = arena_arrays(graph, plan, [memory])
    for size in (0, 64):
        with raises("WorkspaceOverrun", match="overlap"):
            staged_run(group_of(graph, [2]), arrays, aligned_bytes(size))


@pytest.mark.parametrize("guests", [["Relu"], ["Mul"], ["Relu", "Abs"], []])
@pytest.mark.parametrize(
    ("pads", "dilations"), [((3, 4), (2, 2)), ((1, 1), (1, 1)), ((2, 0), (1, 2))]
)
def test_a_convolution_by_planes_is_right_with_every_size_of_its_scratch_memory(
    guests: list[str], pads: tuple[int, int], dilations: tuple[int, int]
) -> None:
    """Rows of a plane that were written must not be read for the rows after them."""
    channels, image = 5, (12, 5)
    out = [n + 2 * p - 2 * d for n, p, d in zip(image, pads, dilations, strict=True)]
    data = np.random.default_rng(1).uniform(-1, 1, (channels, 1, 3, 3)).astype(np.float32)
    window = {"kernel_shape": (3, 3), "pads": pads * 2, "dilations": dilations, "group": channels}
    nodes, name = [onnx.helper.make_node("Conv", ["x", "w"], ["Conv"], **window)], "Conv"
    for op in guests:
        nodes.append(onnx.helper.make_node(op, [name] * (1 + (op == "Mul")), [op]))
        name = op
    real = onnx.TensorProto.FLOAT
    ends = [
        [onnx.helper.make_tensor_value_info(end, real, (1, channels, *sides))]
        for end, sides in (("x", image), (name, out))
    ]
    stored = [onnx.numpy_helper.from_array(data, "w")]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "planes", *ends, stored))
    graph = ap.load(model.SerializeToString())
    feed = {"x": np.sin(np.arange(60 * channels, dtype=np.float32)).reshape(1, channels, *image)}
    with ap.Executor(graph, ap.plan(graph, optimize="none", target="ideal")) as executor:
        (wanted,) = executor.run(feed).values()
    group = group_of(graph, [*range(len(graph.nodes))])
    written, read = 4 * prod(out), 4 * prod(image)
    start = max(0, (channels - 1) * (written - read))
    sizes = [choice.bytes for choice in staged_ways(group)]
    assert sizes
    for size in sizes:
        memory = aligned_bytes(start + channels * max(written, read))
        x = memory[start:][: channels * read].view(np.float32).reshape(feed["x"].shape)
        y = memory[: channels * written].view(np.float32).reshape(1, channels, *out)
        x[:] = feed["x"]
        by_name = {"x": x, "w": data, name: y}
        arrays = {v.index: by_name[v.name] for v in graph.values if v.name in by_name}
        run = staged_run(group, arrays, aligned_bytes(size))
        assert run is not None
        run()
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["squeezenet", "zfnet512"])
def test_light_models_overlap_where_that_lowers_the_peak(name: str, tmp_path: Path) -> None:
    model = light_models.randomized(name)
    feed = light_models.random_input(model)
    (wanted,) = light_models.onnx_runtime(model).run(None, feed)
    onnx.save(model, tmp_path / "model.onnx")
    graph = ap.load(tmp_path / "model.onnx")
    for workspace in ("none", "auto"):
        target = "ideal" if workspace == "none" else "numpy"
        # Strips need fewer bytes than overlaps, and leave none to save.
        plain = "views,in-place,elision,fusion,order"
        plan = ap.plan(graph, optimize=f"{plain},overlap", target=target, max_slowdown=None)
        without = ap.plan(graph, optimize=plain, target=target, max_slowdown=None)
        assert plan.overlapped
        assert plan.arena_bytes < without.arena_bytes
        with ap.Executor(graph, plan) as executor:
            (found,) = executor.run(feed, verify=True).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# -- plans elsewhere ---------------------------------------------------------------------------


def test_files_and_reports_name_the_rule_and_the_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = rows(64, width=48)
    plan = alone(graph)
    plan.save(tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    jsonschema.validate(document, json.loads(ap.planner.plan_schema()))
    assert document["options"]["optimize"] == ["overlap"]
    again = ap.Plan.load(tmp_path / "plan.json")
    again.check(graph)
    assert [share.rule for share in again.shares] == ["overlap"]
    (why,) = ap.report.report_of(again, graph)["why"]
    assert why["rule"] == "overlap"
    assert why["bytes"] == 64 * 32 * 4
    # The last row is still needed when all but one are written: 63 differences of 64 bytes.
    read, written = (again.placements[value] for value in (3, 5))
    assert read is not None
    assert written is not None
    assert read.offset - written.offset == 63 * 64
    source = light_models.path("squeezenet")
    main(["explain", str(source), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert list(shown["levels"])[-2:] == ["overlap", "duplicate"]
    levels = {level: point["bytes"] for level, point in shown["levels"].items()}
    assert levels["overlap"] < levels["streaming"] == shown["switched"]["overlap"]["bytes"]
    assert shown["floor"] <= shown["arena_bytes"]


def test_plans_for_another_number_of_rows_keep_their_overlaps() -> None:
    large, small = rows(64), rows(40)
    for workspace in ("none", "auto"):
        plan = alone(large, workspace=workspace)
        assert plan.overlapped == [2]
        resized = plan.resized(small)
        assert resized.overlapped == [2]
        check(small, resized)


# -- halos of images ------------------------------------------------------------------------------


AXES = st.builds(
    Axis,
    size=st.integers(1, 7),
    out=st.integers(1, 7),
    kernel=st.just(1),
    stride=st.integers(1, 4),
    before=st.integers(0, 5),
)


@settings(max_examples=200)
@given(
    st.integers(1, 3),
    *(AXES, AXES),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([1, 2]),
)
def test_the_distance_of_windows_is_that_of_their_worst_element(
    images: int, rows: Axis, columns: Axis, channels: tuple[int, int], item: int
) -> None:
    read, written = channels[0], channels[1] * item
    worst = done = 0
    for image, row, column in product(range(images), range(rows.out), range(columns.out)):
        above = min(max(row * rows.stride - rows.before, 0), rows.size - 1)
        before = min(max(column * columns.stride - columns.before, 0), columns.size - 1)
        needed = (image * rows.size + above) * columns.size + before
        for _ in range(channels[1] - 1):  # The window is used up by the last channel.
            done += item
            worst = max(worst, done - needed * read)
        worst = max(worst, done - needed * read)
        done += item
    assert lead(images, rows, columns, (read, written), item) == worst


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("vww_96_int8", 46_080),
        ("kws_ref_model", 10_048),
        ("person_detect", 37_632),
        ("pretrainedResnet_quant", 32_768),
    ],
)
def test_images_stored_by_rows_are_overlapped_by_rows(name: str, most: int, shared: Path) -> None:
    graph = ap.load(shared / "models" / "tflite" / f"{name}.tflite")
    assert ap.plan(graph, target="ideal").arena_bytes <= most
