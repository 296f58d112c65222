"""Branches, loops and scans: bodies that are planned once, and run as data decides."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.planner.bodies import bodies_of

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from raising import raises  # noqa: E402
from random_flow import Generator, constant  # noqa: E402

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, shape: Sequence[int] | None = (), kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], *, version: int = 17
) -> bytes:
    graph = helper.make_graph(nodes, "flow", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    made.ir_version = 9
    data: bytes = made.SerializeToString()
    return data


def body(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], stored: Sequence[Any] = ()
) -> Any:
    return helper.make_graph(nodes, "body", inputs, outputs, stored)


def reference(data: bytes, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    made: list[np.ndarray] = session.run(None, inputs)
    return made


def check(data: bytes, inputs: dict[str, np.ndarray]) -> ap.Graph:
    """Compare a model with ONNX Runtime, verified and warm, and return its graph."""
    graph = ap.load(data)
    wanted = reference(data, inputs)
    with ap.Executor(graph) as executor:
        for verify in (True, False):
            found = executor.run(inputs, verify=verify)
            for got, want in zip(found.values(), wanted, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
    return graph


def numbers(*shape: int) -> np.ndarray:
    size = int(np.prod(shape))
    return (np.arange(size, dtype=np.float32) % 7 - 3).reshape(shape)


# -- branches -------------------------------------------------------------------------------


def branches(size: int = 1024) -> bytes:
    """Return a model with one heavy branch and one that passes a value on."""
    then = body(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Softmax", ["h"], ["s"]),
            helper.make_node("Add", ["s", "h"], ["t"]),
        ],
        [],
        [info("t", (4, size // 4))],
        [numpy_helper.from_array(np.eye(size // 4, dtype=np.float32), "w")],
    )
    other = body([helper.make_node("Identity", ["x"], ["e"])], [], [info("e", (4, size // 4))])
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [info("x", (4, size // 4)), info("c", (), BOOL)]
    return model([chosen], inputs, [info("y", (4, size // 4))])


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_gives_what_it_should(taken: bool) -> None:
    x = numbers(4, 256)
    data = branches()
    graph = ap.load(data)
    with ap.Executor(graph) as executor:
        (y,) = executor.run({"x": x, "c": np.array(taken)}, verify=True).values()
    np.testing.assert_allclose(y, reference(data, {"x": x, "c": np.array(taken)})[0], rtol=1e-5)


def test_branches_are_planned_on_top_of_each_other() -> None:
    graph = ap.load(branches())
    (node,) = graph.nodes
    sizes = [found.nbytes for found in bodies_of(node)]
    inner = graph.values[node.outputs[-1] or 0]
    assert inner.shape == (max(sizes),)
    # Results are written to where they are wanted: passing a value on needs no bytes inside.
    assert sizes[1] == 0
    assert 0 < sizes[0] <= 4096


def test_a_branch_takes_over_a_value_that_both_branches_permit_to() -> None:
    def elementwise(name: str, op: str) -> Any:
        return body([helper.make_node(op, ["h"], [name])], [], [info(name, (256,))])

    def bytes_of(second: Any) -> int:
        nodes = [
            helper.make_node("Neg", ["x"], ["h"]),
            helper.make_node(
                "If", ["c"], ["y"], then_branch=elementwise("t", "Relu"), else_branch=second
            ),
        ]
        data = model(nodes, [info("x", (256,)), info("c", (), BOOL)], [info("y", (256,))])
        graph = check(data, {"x": numbers(256), "c": np.array(True)})
        check(data, {"x": numbers(256), "c": np.array(False)})
        return ap.plan(graph, inputs="caller", workspace="none").arena_bytes

    reads_again = body(
        [
            helper.make_node("Relu", ["h"], ["a"]),
            helper.make_node("Concat", ["a", "h"], ["b"], axis=0),
            helper.make_node("Slice", ["b", "low", "high"], ["e"]),
        ],
        [],
        [info("e", (256,))],
        [
            numpy_helper.from_array(np.array([128], np.int64), "low"),
            numpy_helper.from_array(np.array([384], np.int64), "high"),
        ],
    )
    assert bytes_of(elementwise("e", "Neg")) <= 1024 + 128
    assert bytes_of(reads_again) >= 2048


def test_results_of_one_value_are_copies() -> None:
    same = body([helper.make_node("Neg", ["x"], ["n"])], [], [info("n", (3,)), info("n", (3,))])
    other = body(
        [
            constant("k", np.ones(3, np.float32)),
            helper.make_node("Identity", ["k"], ["k1"]),
            helper.make_node("Identity", ["x"], ["k2"]),
        ],
        [],
        [info("k1", (3,)), info("k2", (3,))],
    )
    chosen = helper.make_node("If", ["c"], ["y", "z"], then_branch=same, else_branch=other)
    data = model(
        [chosen], [info("x", (3,)), info("c", (), BOOL)], [info("y", (3,)), info("z", (3,))]
    )
    graph = ap.load(data)
    x = numbers(3)
    with ap.Executor(graph) as executor:
        for taken, want in ((True, [-x, -x]), (False, [np.ones(3, np.float32), x])):
            found = executor.run({"x": x, "c": np.array(taken)}, verify=True)
            np.testing.assert_array_equal(list(found.values()), want)


def test_branches_of_different_shapes_are_refused_by_name() -> None:
    with pytest.raises(errors.UnsupportedSubgraph, match=r"'pick'.*'y' has shape \(3,\).*\(2,\)"):
        ap.load(uneven())


def uneven() -> bytes:
    """Return a model with branches of different shapes."""
    sides = []
    for size in (3, 2):
        name = f"k{size}"
        nodes = [constant(name, np.full(size, size, np.float32))]
        sides.append(body(nodes, [], [info(name, (size,))]))
    chosen = helper.make_node(
        "If", ["c"], ["y"], name="pick", then_branch=sides[0], else_branch=sides[1]
    )
    return model([chosen], [info("c", (), BOOL)], [info("y", None)])


# -- loops ----------------------------------------------------------------------------------


def loop(
    nodes: Sequence[Any],
    carried: Sequence[tuple[str, str, Sequence[int]]],
    scanned: Sequence[tuple[str, Sequence[int]]] = (),
    *,
    trips: int | None = 3,
    again: str = "go",
    inputs: Sequence[Any] = (),
) -> bytes:
    """Return a model of one loop; carried values are named before and after a round."""
    inner = [info("i", (), INT64), info("go", (), BOOL)]
    inner += [info(before, shape) for before, _, shape in carried]
    results = [info("more", (), BOOL), *(info(after, shape) for _, after, shape in carried)]
    results += [info(name, shape) for name, shape in scanned]
    whole = [*nodes, helper.make_node("Identity", [again], ["more"])]
    outer = [] if trips is None else [constant("trips", np.int64(trips))]
    given = [info(f"{before}0", shape) for before, _, shape in carried]
    node = helper.make_node(
        "Loop",
        ["trips", "", *(each.name for each in given)],
        [*(f"{before}n" for before, _, _ in carried), *(f"all_{name}" for name, _ in scanned)],
        name="loop",
        body=body(whole, inner, results),
    )
    given += [*inputs, *([info("trips", (), INT64)] if trips is None else [])]
    outputs = [info(f"{before}n", shape) for before, _, shape in carried]
    outputs += [info(f"all_{name}", None) for name, _ in scanned]
    return model([*outer, node], given, outputs)


def test_a_carried_value_is_updated_in_place() -> None:
    data = loop([helper.make_node("Add", ["s", "s"], ["t"])], [("s", "t", (1024,))])
    graph = check(data, {"s0": numbers(1024)})
    (node,) = graph.nodes
    assert bodies_of(node)[0].nbytes == 0
    assert ap.plan(graph, inputs="reuse", workspace="none").arena_bytes == 4096


def test_a_carried_value_that_is_read_again_is_not_overwritten() -> None:
    nodes = [
        helper.make_node("Neg", ["s"], ["t"]),
        helper.make_node("Add", ["t", "s"], ["z"]),
    ]
    data = loop(nodes, [("s", "t", (256,))], [("z", (256,))])
    graph = check(data, {"s0": numbers(256)})
    assert ap.plan(graph, workspace="none").status == "optimal"


def test_carried_values_change_places() -> None:
    nodes = [
        helper.make_node("Identity", ["b"], ["a1"]),
        helper.make_node("Add", ["a", "b"], ["b1"]),
    ]
    data = loop(nodes, [("a", "a1", (5,)), ("b", "b1", (5,))], trips=6)
    check(data, {"a0": numbers(5), "b0": numbers(5) + 1})
    swap = loop(
        [helper.make_node("Identity", ["b"], ["a1"]), helper.make_node("Identity", ["a"], ["b1"])],
        [("a", "a1", (5,)), ("b", "b1", (5,))],
    )
    check(swap, {"a0": numbers(5), "b0": numbers(5) + 1})


def test_a_view_of_a_carried_value_is_read_before_the_value_changes() -> None:
    nodes = [
        constant("flat", np.array([6], np.int64)),
        constant("square", np.array([3, 2], np.int64)),
        helper.make_node("Reshape", ["a", "flat"], ["v"]),
        helper.make_node("Neg", ["a"], ["a1"]),
        helper.make_node("Reshape", ["v", "square"], ["b1"]),
    ]
    data = loop(nodes, [("a", "a1", (3, 2)), ("b", "b1", (3, 2))])
    check(data, {"a0": numbers(3, 2), "b0": numbers(3, 2) + 2})


def test_a_loop_keeps_a_value_that_is_initial_and_read_inside() -> None:
    # The result may not be written over 'x', which the body reads at every round.
    inner = [info("i", (), INT64), info("go", (), BOOL), info("s", (64,))]
    nodes = [
        helper.make_node("Identity", ["go"], ["more"]),
        helper.make_node("Add", ["s", "h"], ["t"]),
    ]
    results = [info("more", (), BOOL), info("t", (64,))]
    whole = [
        helper.make_node("Neg", ["x"], ["h"]),
        constant("trips", np.int64(3)),
        helper.make_node("Loop", ["trips", "", "h"], ["y"], body=body(nodes, inner, results)),
    ]
    check(model(whole, [info("x", (64,))], [info("y", (64,))]), {"x": numbers(64)})


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_results_of_all_rounds_are_written_to_their_places(trips: int) -> None:
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("Add", ["s", "f"], ["t"]),
        helper.make_node("Mul", ["t", "t"], ["z"]),
    ]
    data = loop(nodes, [("s", "t", (2, 3))], [("z", (2, 3)), ("f", ())], trips=trips)
    graph = check(data, {"s0": numbers(2, 3)})
    assert graph.find("all_z").shape == (trips, 2, 3)


@pytest.mark.parametrize("trips", [0, 2, 5])
def test_the_number_of_rounds_may_depend_on_data(trips: int) -> None:
    data = loop([helper.make_node("Add", ["s", "s"], ["t"])], [("s", "t", (4,))], trips=None)
    check(data, {"s0": numbers(4), "trips": np.array(trips, np.int64)})


def test_a_loop_ends_when_its_condition_does() -> None:
    nodes = [
        helper.make_node("Add", ["s", "one"], ["t"]),
        helper.make_node("ReduceMax", ["t"], ["m"], keepdims=0),
        helper.make_node("Less", ["m", "limit"], ["less"]),
    ]
    inputs = [info("one", (1,)), info("limit")]
    data = loop(nodes, [("s", "t", (4,))], trips=100, again="less", inputs=inputs)
    for limit in (-10, 3, 12):
        given = {"s0": numbers(4), "one": np.ones(1, np.float32), "limit": np.float32(limit)}
        check(data, {name: np.asarray(array) for name, array in given.items()})


def test_shapes_that_change_from_round_to_round_are_walked_round_by_round() -> None:
    nodes = [helper.make_node("Concat", ["s", "x"], ["t"], axis=0)]
    data = loop(nodes, [("s", "t", (1,))], inputs=[info("x", (2,))])
    graph = ap.load(data)
    assert graph.find("sn").shape == (7,)
    assert not any(node.op == "Loop" for node in graph.nodes)
    with ap.Executor(graph) as executor:
        found = executor.run({"s0": numbers(1), "x": numbers(2)}, verify=True)["sn"]
    np.testing.assert_array_equal(found, np.concatenate([numbers(1), *[numbers(2)] * 3]))


def test_a_loop_without_an_end_that_grows_is_refused_by_name() -> None:
    nodes = [
        helper.make_node("Concat", ["s", "x"], ["t"], axis=0),
        helper.make_node("ReduceMax", ["t"], ["m"], keepdims=0),
        helper.make_node("Less", ["m", "limit"], ["less"]),
    ]
    inputs = [info("x", (2,)), info("limit")]
    data = loop(nodes, [("s", "t", (1,))], again="less", inputs=inputs)
    with pytest.raises(errors.UnsupportedSubgraph, match=r"'loop'.*carried value 's' has shape"):
        ap.load(data)


def test_hostile_loops_are_refused() -> None:
    shapes = [("a", "b", (2,)), ("b", "a", (3,))]
    endless = loop([], shapes, trips=1 << 40)
    with raises("BudgetExceeded", match="too many nodes"):
        ap.load(endless)
    nodes = [helper.make_node("Neg", ["s"], ["t"])]
    wide = loop(nodes, [("s", "t", (4,))], trips=None)
    proto = onnx.ModelProto.FromString(wide)
    proto.graph.input[1].type.tensor_type.shape.dim.add().dim_value = 2
    with pytest.raises(errors.InvalidOperand, match=r"'loop'.*number of rounds"):
        ap.load(proto.SerializeToString())
    many = loop(nodes, [("s", "t", (4,))], [("t", (4,))], trips=1 << 62)
    with pytest.raises(errors.PlannerError, match="all_t"):
        ap.load(many)
    short = loop(nodes, [("s", "t", (4,))], [("t", (4,))])
    proto = onnx.ModelProto.FromString(short)
    for attribute in proto.graph.node[-1].attribute:
        if attribute.name == "body":
            del attribute.g.output[-1]
    with pytest.raises(errors.InvalidOperand, match=r"2 outputs instead of 3"):
        ap.load(proto.SerializeToString())


def test_errors_inside_a_body_name_the_node_there() -> None:
    nodes = [helper.make_node("NoSuchOp", ["s"], ["t"], name="odd")]
    graph = ap.load(loop(nodes, [("s", "t", (4,))]))
    with pytest.raises(errors.UnsupportedOp, match="'odd'"):
        ap.Executor(graph)


# -- scans ----------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1)])
def test_scans_run_along_axes_in_both_directions(
    axis: int, end: int, directions: tuple[int, int]
) -> None:
    row = (3,) if axis == 0 else (2,)
    inner = [info("s", row), info("r", row)]
    nodes = [
        helper.make_node("Add", ["s", "r"], ["t"]),
        helper.make_node("Mul", ["t", "r"], ["z"]),
    ]
    node = helper.make_node(
        "Scan",
        ["s0", "x"],
        ["sn", "all"],
        body=body(nodes, inner, [info("t", row), info("z", row)]),
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[end],
        scan_input_directions=[directions[0]],
        scan_output_directions=[directions[1]],
    )
    data = model([node], [info("s0", row), info("x", (2, 3))], [info("sn", row), info("all", None)])
    check(data, {"s0": numbers(*row), "x": numbers(2, 3)})


# -- random models --------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(4))
def test_random_models_are_equal_to_onnx_runtime(block: int) -> None:
    for seed in range(block * 6, block * 6 + 6):
        generator = Generator(seed)
        made = generator.model()
        data = made.SerializeToString()
        graph = ap.load(data)
        names = {graph.values[index].name for index in graph.inputs}
        with ap.Executor(graph) as executor:
            for verify in (True, False):
                inputs = generator.inputs(made)
                given = {name: array for name, array in inputs.items() if name in names}
                found = executor.run(given, verify=verify)
                wanted = reference(data, inputs)
                for got, want in zip(found.values(), wanted, strict=True):
                    np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


def test_a_number_without_dimensions_is_computed_like_others() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Sub", ["h", "x"], ["y"])]
    check(model(nodes, [info("x")], [info("y")]), {"x": np.array(3, np.float32)})


# -- memory ---------------------------------------------------------------------------------


def test_warm_runs_allocate_nothing_of_note() -> None:
    nodes = [
        helper.make_node("Softmax", ["s"], ["h"]),
        helper.make_node("Add", ["h", "s"], ["t"]),
    ]
    data = loop(nodes, [("s", "t", (64, 1024))], [("h", (64, 1024))], trips=3)
    with ap.Executor(ap.load(data)) as executor:
        inputs = {"s0": numbers(64, 1024)}
        executor.run(inputs, borrow=True)
        tracemalloc.start()
        try:
            executor.run(inputs, borrow=True)
            assert tracemalloc.get_traced_memory()[1] < 1 << 16
        finally:
            tracemalloc.stop()


def test_a_wrong_sharing_inside_a_body_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import arenaplan.planner.bodies as planned

    nodes = [
        helper.make_node("Neg", ["s"], ["t"]),
        helper.make_node("Mul", ["t", "s"], ["z"]),
    ]
    data = loop(nodes, [("s", "t", (256,))], [("z", (256,))])
    inputs = {"s0": numbers(256)}
    check(data, inputs)
    monkeypatch.setattr(planned, "may_replace", lambda *_: True)
    with (
        ap.Executor(ap.load(data)) as executor,
        raises("VerificationError", match="'loop'"),
    ):
        executor.run(inputs, verify=True)
