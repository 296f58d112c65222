"""Steps that run strip by strip: rows, line buffers, their proof, and their kernels."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import arenaplan as ap
from arenaplan._core import nodes_in_strips
from arenaplan.base.errors import PlannerError, UnsupportedOp
from arenaplan.graph.ops import ROWS
from arenaplan.graph.ops.boxes import Uncuttable, whole
from arenaplan.run.numpy import BACKEND
from arenaplan.run.numpy.groups import NotAGroup
from arenaplan.run.numpy.stages import Former
from cnn_models import Network, random_cnn
from networks import noise
from raising import raises

ort = pytest.importorskip("onnxruntime")
SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"
TOLERANCE = 2e-5


def loaded(model: onnx.ModelProto, folder: Path) -> ap.Graph:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return ap.load(path)


def feed_of(graph: ap.Graph, seed: int = 3) -> dict[str, np.ndarray]:
    values = [graph.values[index] for index in graph.inputs]
    return {value.name: noise(*value.shape, seed=seed) for value in values}


def expected(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options)
    return list(session.run(None, feed))


class Kernels:
    """The kernels of a graph, and all runs of nodes that they can perform strip by strip."""

    def __init__(self, graph: ap.Graph) -> None:
        self.graph = graph
        self.costs = BACKEND.costs(graph)

    def strips(self, nodes: Sequence[int], rows: int) -> tuple[list[int], ap.Strips] | None:
        """Return nodes in order, and their strips, if they can run so."""
        found = nodes_in_strips(self.graph.core, self.costs, list(nodes), rows)
        return found if found is not None and self.costs.step(*found) else None

    def runs(self) -> Iterator[list[int]]:
        count = len(self.graph.nodes)
        for last in range(count):
            for first in range(last - 1, -1, -1):
                nodes = list(range(first, last + 1))
                if nodes_in_strips(self.graph.core, self.costs, nodes, 1) is not None:
                    yield nodes


def runs_of(graph: ap.Graph) -> Iterator[list[int]]:
    """Yield all runs of nodes that can run strip by strip."""
    yield from Kernels(graph).runs()


def in_strips(
    graph: ap.Graph, nodes: Sequence[int], rows: int, **options: object
) -> tuple[ap.Plan, ap.Strips] | None:
    """Return a plan that runs some nodes strip by strip, and the others one by one, if it can."""
    found = Kernels(graph).strips(nodes, rows)
    if found is None:
        return None
    ordered, strips = found
    steps = [[node.index] for node in graph.nodes if node.index not in nodes]
    at = sum(node < max(nodes) for [node] in steps)
    steps.insert(at, list(ordered))
    plan = ap.plan(graph, steps=steps, strips=[strips], target="numpy", **options)  # type: ignore[arg-type]
    assert plan.strips == [strips]
    return plan, strips


def results(graph: ap.Graph, plan: ap.Plan, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    with ap.Executor(graph, plan) as executor:
        return list(executor.run(feed, verify=True).values())


# -- what is computed ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("op", ["Add", "Mul", "PRelu", "Sub"])
def test_constants_that_differ_from_row_to_row(op: str, group: int, width: int) -> None:
    """Rows of such a constant may look like numbers per channel, and differ from strip to strip."""
    shapes = [(1, 3, 8, width), (1, 3, 8, 1), (8, width), (8, 1), (1, 1, 8, 1), (3, 1, 1), (1,)]
    for constant_first in (False, True)[: 1 if op == "PRelu" else 2]:
        for shape in shapes:
            constants = [noise(3, 3 // group, 3, 1, seed=1), noise(*shape, seed=2)]
            nodes = [
                onnx.helper.make_node("Conv", ["x", "w"], ["y"], group=group),
                onnx.helper.make_node(op, ["c", "y"] if constant_first else ["y", "c"], ["z"]),
            ]
            sizes = {"x": [1, 3, 10, width], "z": [1, 3, 8, width]}
            x, z = (
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
                for name, dims in sizes.items()
            )
            data = map(onnx.numpy_helper.from_array, constants, "wc")
            model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [z], [*data]))
            graph = ap.load(model.SerializeToString())
            feed = feed_of(graph)
            (wanted,) = results(graph, ap.plan(graph, optimize="none"), feed)
            for rows in (1, 2, 3):
                found = in_strips(graph, [0, 1], rows)
                if found is not None:
                    (made,) = results(graph, found[0], feed)
                    np.testing.assert_allclose(made, wanted, rtol=0, atol=TOLERANCE)
            assert in_strips(graph, [0, 1], 1) is not None


@pytest.mark.parametrize("seed", range(14))
def test_random_networks_compute_the_same_in_strips(seed: int, tmp_path: Path) -> None:
    model = random_cnn(seed)
    graph = loaded(model, tmp_path)
    feed = feed_of(graph)
    wanted = expected(model, feed)
    alone = results(graph, ap.plan(graph, optimize="none"), feed)
    runs = list(runs_of(graph))
    chosen = random.Random(seed)
    for nodes in chosen.sample(runs, min(len(runs), 6)):
        last = graph.nodes[nodes[-1]].outputs[0]
        assert last is not None
        height = graph.values[last].shape[ROWS]
        rows = chosen.choice([1, 2, 3, max(height // 2, 1), height])
        made = in_strips(graph, nodes, rows)
        if made is None:
            continue  # The edges of some pools are unlike the rows between.
        found = results(graph, made[0], feed)
        for ours, other, reference in zip(found, alone, wanted, strict=True):
            np.testing.assert_allclose(ours, other, rtol=TOLERANCE, atol=TOLERANCE)
            np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_a_changed_graph_has_the_kernels_of_its_copy(seed: int, tmp_path: Path) -> None:
    """Costs outlive a plan, and a value that a second reader reads keeps its rows."""
    graph = loaded(random_cnn(seed), tmp_path)
    nodes = [node.index for node in graph.nodes]
    before = BACKEND.costs(graph).row_kernels(nodes)
    for node in list(graph.nodes):
        (made,) = node.outputs
        value = graph.values[made]
        if node.index % 3 == 0 and value.dtype == "float32":
            spec = (f"again{node.index}", value.shape, value.dtype)
            graph.output(*graph.node("Neg", [made], [spec]))
    found, wanted = (BACKEND.costs(each).row_kernels(nodes) for each in (graph, graph.copy()))
    assert found == wanted != before


@pytest.mark.parametrize("seed", [3, 5, 9])
def test_halves_compute_the_same_in_strips(seed: int, tmp_path: Path) -> None:
    """Kernels of halves have two workspaces, and rows at an edge need less of them."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    graph = loaded(float16.convert_float_to_float16(random_cnn(seed)), tmp_path)
    feed = {name: array.astype(np.float16) for name, array in feed_of(graph).items()}
    wanted = results(graph, ap.plan(graph, optimize="none"), feed)
    runs, chosen = list(runs_of(graph)), random.Random(seed)
    ran = 0
    for nodes in chosen.sample(runs, min(len(runs), 6)):
        for rows in (1, 2, 8):
            made = in_strips(graph, nodes, rows)
            if made is None:
                continue
            ran += 1
            for ours, other in zip(results(graph, made[0], feed), wanted, strict=True):
                np.testing.assert_allclose(ours, other, rtol=1e-2, atol=1e-2)
    assert ran > 6


def test_random_networks_have_regions(tmp_path: Path) -> None:
    """The test above would pass without any."""
    graphs = [loaded(random_cnn(seed), tmp_path) for seed in range(8)]
    lengths = [len(nodes) for graph in graphs for nodes in runs_of(graph)]
    chosen = [nodes for nodes in runs_of(graphs[0]) if len(nodes) > 3]
    assert all(in_strips(graphs[0], nodes, 2) is not None for nodes in chosen)
    assert len(lengths) > 100
    assert max(lengths) > 8


@pytest.mark.parametrize("seed", range(100, 105))
def test_plans_of_random_networks_need_no_more_bytes(seed: int, tmp_path: Path) -> None:
    model = random_cnn(seed, layers=10)
    graph = loaded(model, tmp_path)
    feed = feed_of(graph)
    plans = [ap.plan(graph, max_slowdown=slowdown) for slowdown in (None, 1.1)]
    before = ap.plan(
        graph, max_slowdown=None, optimize="views,in-place,elision,order,fusion,overlap"
    )
    assert plans[0].arena_bytes <= before.arena_bytes
    again = ap.plan(loaded(model, tmp_path), max_slowdown=None)
    assert again.to_json() == plans[0].to_json()
    wanted = expected(model, feed)
    for plan in plans:
        saved = ap.Plan.from_json(plan.to_json().encode())
        saved.check(graph)
        for ours, reference in zip(results(graph, saved, feed), wanted, strict=True):
            np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-4)


def deep(tmp_path: Path) -> ap.Graph:
    """A chain of convolutions whose maps are large, with a sum."""
    network = Network(5, (1, 3, 64, 48))
    x = network.node("Relu", [network.conv("x", 24)], (1, 24, 64, 48))
    for _ in range(3):
        x = network.node("Relu", [network.conv(x, 24)], (1, 24, 64, 48))
    x = network.node("Add", [network.conv(x, 24), x], (1, 24, 64, 48))
    x = network.pool(x, "MaxPool", 2, 2)
    return loaded(network.model(network.conv(x, 2)), tmp_path)


def test_large_maps_never_exist(tmp_path: Path) -> None:
    graph = deep(tmp_path)
    plan = ap.plan(graph, max_slowdown=None)
    image = 24 * 64 * 48 * 4
    assert plan.strips
    assert plan.arena_bytes < image
    # A conv and a conv need both maps otherwise.
    assert ap.plan(graph, optimize="none").arena_bytes > 2 * image
    feed = feed_of(graph)
    (found,), (wanted,) = (
        results(graph, each, feed) for each in (plan, ap.plan(graph, optimize="none"))
    )
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_slower_plans_are_not_chosen(tmp_path: Path) -> None:
    graph = deep(tmp_path)
    for slowdown in (1.0, 1.05, 1.3):
        plan = ap.plan(graph, max_slowdown=slowdown)
        estimate = plan.estimate
        assert estimate is not None
        assert estimate.seconds <= slowdown * estimate.fastest_seconds * (1 + 1e-9)


def test_values_of_the_caller_are_read_and_made_by_rows(tmp_path: Path) -> None:
    graph = deep(tmp_path)
    feed = feed_of(graph)
    inside = results(graph, ap.plan(graph, optimize="none"), feed)
    plan = ap.plan(graph, max_slowdown=None, inputs="caller", outputs="caller")
    assert plan.strips
    np.testing.assert_allclose(results(graph, plan, feed)[0], inside[0], rtol=2e-5, atol=2e-5)


def test_scratch_memory_may_be_beside_the_arena(tmp_path: Path) -> None:
    graph = deep(tmp_path)
    feed = feed_of(graph)
    nodes = max(runs_of(graph), key=len)
    made = in_strips(graph, nodes, 2, workspace="none")
    assert made is not None
    plan, strips = made
    # Line buffers hold rows of values: they are in the arena all the same.
    assert [(work.node, work.slot) for work in plan.workspaces] == [(nodes[-1], 0)]
    assert strips.buffers
    with ap.Executor(graph, plan) as executor:
        assert executor.scratch_bytes > 0
    alone = results(graph, ap.plan(graph, optimize="none"), feed)
    np.testing.assert_allclose(results(graph, plan, feed)[0], alone[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", range(200, 212))
def test_the_ideal_runner_needs_no_more_bytes(seed: int, tmp_path: Path) -> None:
    model = random_cnn(seed, layers=10)
    graph = loaded(model, tmp_path)
    ideal = ap.plan(graph, target="ideal")
    assert ideal.arena_bytes <= ap.plan(graph, max_slowdown=None).arena_bytes
    feed = feed_of(graph)
    try:
        found = results(graph, ideal, feed)
    except NotAGroup:
        pytest.skip("the edges of some pools are unlike the rows between: no kernel makes them")
    for ours, reference in zip(found, expected(model, feed), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet", "unet"])
def test_models_compute_the_same_in_strips(name: str) -> None:
    path = SHARED / "onnx" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    graph, stored = ap.load(path), np.load(SHARED / "onnx" / f"{name}.npz")
    plan = ap.plan(graph, max_slowdown=None)
    inputs = {graph.values[index].name for index in graph.inputs}
    feed = {key: stored[key] for key in stored.files if key in inputs}
    if set(feed) != inputs:
        feed = feed_of(graph)
    session = ort.InferenceSession(path)
    wanted = session.run(None, feed)
    for ours, reference in zip(results(graph, plan, feed), wanted, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-3, atol=1e-4)


# -- what is declared ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_windows_are_those_of_the_kernels(seed: int, tmp_path: Path) -> None:
    """A kernel asks for no rows but those under the declared window."""
    graph = loaded(random_cnn(seed, layers=12), tmp_path)
    former = Former(graph)
    seen = 0
    for node in graph.nodes:
        member = former.member(node.index)
        if member is None:
            continue
        made = graph.values[node.outputs[0] or 0].shape
        windows = {window.input: window for window in node.effects.windows}
        assert member.kernel.cut is not None
        for start in range(made[ROWS]):
            for stop in range(start + 1, min(start + 4, made[ROWS]) + 1):
                if (start, stop) == (0, made[ROWS]):
                    continue
                box = (*whole(made[:ROWS]), slice(start, stop), *whole(made[ROWS + 1 :]))
                try:
                    parts = member.kernel.cut.operands(member.signature, box)
                except Uncuttable:
                    continue
                for position, part in enumerate(parts):
                    value = node.inputs[position] if position < len(node.inputs) else None
                    if part is None or position not in windows or value is None:
                        continue
                    rows = windows[position].needs((start, stop), graph.values[value].shape[ROWS])
                    assert (part[ROWS].start, part[ROWS].stop) == rows, node.op
                    seen += 1
    assert seen > 200


def test_windows_of_python_and_of_the_core_agree() -> None:
    """The plan is accepted if and only if the line buffer holds the rows that Python counts."""
    for extent, stride, before, scale in [(3, 1, 1, 1), (5, 2, 2, 1), (2, 1, 0, 2), (1, 3, -1, 1)]:
        window = ap.Window(0, 0, ROWS, extent, stride, before, scale)
        rows = 24
        made = next(h for h in range(1, 99) if window.needs((h, h + 1), rows)[1] == rows)
        graph = ap.Graph()
        x = graph.input("x", (1, 1, rows, 1), "uint8")
        same = ap.Window(0, 0, ROWS)
        spec = ("a", (1, 1, rows, 1), "uint8")
        (a,) = graph.node("A", [x], [spec], windows=[same])
        (b,) = graph.node("B", [a], [("b", (1, 1, made, 1), "uint8")], windows=[window])
        graph.output(b)
        held, done = 0, 0
        for start in range(made):
            first, last = window.needs((start, start + 1), rows)
            held, done = max(held, max(last, done) - first), max(last, done)
        for line, fits in ((held, True), (held - 1, False)):
            strips = ap.Strips(1, 1, [ap.LineBuffer(1, 0, line)], [])
            if fits:
                ap.plan(graph, target="ideal", steps=[[0, 1]], strips=[strips]).check(graph)
            elif line:
                with raises("PlanMismatch", match="no place for row"):
                    ap.plan(graph, target="ideal", steps=[[0, 1]], strips=[strips])


# -- what is refused ----------------------------------------------------------------------------


def corrupted(strips: ap.Strips, chosen: random.Random) -> ap.Strips:
    """Return strips with one thing changed."""
    buffers, pairs = list(strips.buffers), list(strips.in_place)
    kind = chosen.choice(["rows", "line", "line", "offset", "offset", "pair", "drop", "swap"])
    if kind == "rows":
        return ap.Strips(
            strips.node, max(strips.rows + chosen.choice([-1, 1, 2]), 0), buffers, pairs
        )
    if kind == "pair" and pairs:
        at = chosen.randrange(len(pairs))
        others = [line.value for line in buffers] + [pair.value for pair in pairs]
        pairs[at] = ap.planner.RowsInPlace(pairs[at].value, chosen.choice(others))
    elif kind == "drop" and buffers:
        del buffers[chosen.randrange(len(buffers))]
    elif buffers:
        at = chosen.randrange(len(buffers))
        line = buffers[at]
        if kind == "line":
            buffers[at] = ap.LineBuffer(
                line.value, line.offset, max(line.rows - chosen.choice([1, 2]), 0)
            )
        elif kind == "swap":
            other = chosen.choice(buffers)
            buffers[at] = ap.LineBuffer(line.value, other.offset, line.rows)
        else:
            offset = max(line.offset + 4 * chosen.choice([-64, -16, -1, 1, 16, 64]), 0)
            buffers[at] = ap.LineBuffer(line.value, offset, line.rows)
    return ap.Strips(strips.node, strips.rows, buffers, pairs)


def test_corrupted_strips_are_refused_or_right(tmp_path: Path) -> None:
    """A plan that passes the check computes the right results, whatever chose its line buffers."""
    refused = accepted = 0
    for seed in range(30, 38):
        graph = loaded(random_cnn(seed), tmp_path)
        feed = feed_of(graph)
        alone = results(graph, ap.plan(graph, optimize="none"), feed)
        runs = list(runs_of(graph))
        chosen = random.Random(seed)
        for nodes in chosen.sample(runs, min(len(runs), 5)):
            made_strips = in_strips(graph, nodes, chosen.choice([1, 2, 3]), workspace="none")
            if made_strips is None:
                continue
            plan, strips = made_strips
            for _ in range(8):
                wrong = corrupted(strips, chosen)
                if wrong == strips:
                    continue
                try:
                    made = ap.plan(
                        graph,
                        steps=plan.steps,
                        strips=[wrong],
                        target="numpy",
                        workspace="none",
                    )
                except (PlannerError, OverflowError):
                    refused += 1
                    continue
                accepted += 1
                for ours, other in zip(results(graph, made, feed), alone, strict=True):
                    np.testing.assert_allclose(ours, other, rtol=2e-5, atol=2e-5)
    assert refused > 80
    assert accepted > 10


def test_nodes_that_need_everything_are_in_no_region(tmp_path: Path) -> None:
    network = Network(1, (1, 3, 16, 16))
    x = network.conv("x", 4)
    mean = network.node("GlobalAveragePool", [x], (1, 4, 1, 1))
    y = network.node("Mul", [x, mean], (1, 4, 16, 16))
    graph = loaded(network.model(network.conv(y, 3)), tmp_path)
    assert all(0 not in nodes or 1 not in nodes for nodes in runs_of(graph))
    strips = ap.Strips(2, 4, [], [])
    with raises("InvalidGroup"):
        ap.plan(graph, steps=[[0, 1, 2], [3]], strips=[strips])


# -- the choice ---------------------------------------------------------------------------------


def test_strips_of_another_runner_are_refused_by_name(tmp_path: Path) -> None:
    """The kernel of a convolution with one element per window has no rows where it pads."""
    nodes = [
        onnx.helper.make_node("Conv", ["x", "one"], ["a"], "first", pads=(1, 1, 1, 1)),
        onnx.helper.make_node("Conv", ["a", "two"], ["y"], "last", pads=(1, 1, 1, 1)),
    ]
    stored = [
        onnx.numpy_helper.from_array(np.ones(shape, np.float32), name)
        for name, shape in (("one", (4, 2, 1, 1)), ("two", (2, 4, 3, 3)))
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 2, 9, 9))
    y = onnx.helper.make_empty_tensor_value_info("y")
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "two", [x], [y], stored))
    graph = loaded(model, tmp_path)
    strips = [ap.Strips(1, 2, [ap.LineBuffer(graph.find("a").index, 0, 5)], [])]
    plan = ap.plan(graph, target="ideal", steps=[[0, 1]], strips=strips)
    with pytest.raises(UnsupportedOp, match=r"'last' ends a step.*strip by strip"):
        ap.Executor(graph, plan)
