"""Sizes that data decides: planned as far as they are known, and then around what is live."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from raising import raises  # noqa: E402
from random_flow import Generator, constant  # noqa: E402
from test_flow import BOOL, INT64, info, loop, model, numbers, reference, uneven  # noqa: E402


def found() -> bytes:
    """Return a model that picks the positive elements of a matrix, and the different ones."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["nz"], name="find"),
        helper.make_node("Transpose", ["nz"], ["t"], perm=[1, 0]),
        helper.make_node("GatherND", ["r", "t"], ["y"]),
        helper.make_node("Neg", ["r"], ["z"]),
        helper.make_node("Unique", ["y"], ["u"], name="differ"),
        helper.make_node("Mul", ["u", "u"], ["w"]),
    ]
    outputs = [info("y", ["n"]), info("z", (4, 5)), info("w", None)]
    return model(nodes, [info("x", (4, 5))], outputs)


def check(data: bytes, *runs: dict[str, np.ndarray], **options: Any) -> ap.run.StagedExecutor:
    """Compare a model with ONNX Runtime over several runs, and return its executor."""
    executor = ap.run.StagedExecutor(data, **options)
    for verify in (True, False):
        for inputs in runs:
            wanted = reference(data, inputs)
            made = executor.run(inputs, verify=verify)
            for got, want in zip(made.values(), wanted, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
    return executor


def matrices(count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(count)
    return [{"x": random.integers(-3, 3, (4, 5)).astype(np.float32)} for _ in range(count)]


def test_results_have_their_true_size() -> None:
    executor = check(found(), *matrices(4), {"x": np.zeros((4, 5), np.float32)})
    assert [stage.decided for stage in executor.stages] == [("nz",), ("u",), ()]
    assert "NonZero" in executor.deciders[0]


@pytest.mark.parametrize(("rows", "bind"), [(2, {}), ("n", {"n": 2})], ids=["number", "name"])
def test_branches_of_two_shapes_run_with_names_of_dimensions(rows: object, bind: Any) -> None:
    longer = [helper.make_node("Concat", ["past", "x"], ["o"], axis=0)]
    shorter = [helper.make_node("Identity", ["x"], ["p"])]
    branches = {
        "then_branch": helper.make_graph(longer, "cached", [], [info("o", None)]),
        "else_branch": helper.make_graph(shorter, "first", [], [info("p", None)]),
    }
    use = helper.make_tensor_value_info("use", onnx.TensorProto.BOOL, [])
    nodes = [helper.make_node("If", ["use"], ["y"], **branches)]
    data = model(nodes, [use, info("x", (rows, 4)), info("past", (3, 4))], [info("y", None)])
    x, past = np.ones((2, 4), np.float32), np.zeros((3, 4), np.float32)
    both = [{"use": np.array(use), "x": x, "past": past} for use in (True, False)]
    check(data, *both, bind=bind)


@pytest.mark.parametrize("use", [0, 1])
@pytest.mark.parametrize("kind", [BOOL, INT64, TensorProto.UINT8], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_what_an_input_holds_decides_a_branch(use: int, kind: int, shape: Any) -> None:
    """A range of lengths has one plan, and the input is given no more."""
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("Concat", ["past", "x"], ["o"], axis=0)],
            "with",
            [],
            [info("o", None)],
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Identity", ["x"], ["p"])], "without", [], [info("p", None)]
        ),
    }
    nodes = [
        helper.make_node("Cast", ["use"], ["is_used"], to=BOOL),
        helper.make_node("If", ["is_used"], ["z"], **branches),
        helper.make_node("Neg", ["z"], ["y"]),
    ]
    given = [helper.make_tensor_value_info("use", kind, shape)]
    given += [info("x", (2, 4)), info("past", ("n", 4))]
    data = model(nodes, given, [info("y", None)])
    family = ap.plan_family(data, bind={"n": range(4), "use": use})
    assert len(family) == 4
    graph = ap.load(data, bind={"n": 3, "use": use})
    assert [graph.values[at].name for at in graph.inputs] == ["x", "past"]
    inputs = {"x": np.ones((2, 4), np.float32), "past": np.full((3, 4), 2, np.float32)}
    held = np.full(shape, use, helper.tensor_dtype_to_np_dtype(kind))
    with ap.Executor(graph) as executor:
        np.testing.assert_array_equal(
            executor.run(inputs)["y"], reference(data, {**inputs, "use": held})[0]
        )
    if kind != INT64:
        with pytest.raises(errors.InvalidOption, match="use"):
            ap.load(data, bind={"n": 3, "use": 256})


@pytest.mark.parametrize("name", ["x", "past"])
def test_more_than_one_number_cannot_be_said(name: str) -> None:
    data = model(
        [helper.make_node("Add", ["x", "past"], ["y"])],
        [info("x", (2, 4)), info("past", (1,))],
        [info("y", None)],
    )
    with pytest.raises(errors.InvalidOption, match="float32"):
        ap.load(data, bind={name: 1})


@pytest.mark.parametrize("total", [None, "total", "past + new"], ids=str)
@pytest.mark.parametrize("names", [True, False], ids=["names", "numbers"])
def test_a_merged_decoder_runs_with_and_without_its_cache(total: str | None, names: bool) -> None:
    """One model for the first step and all others, as Optimum exports it."""
    sizes = {"batch": 1, "new": 2, "past": 3}
    batch, new, past = sizes if names else sizes.values()
    shape = None if total is None else (batch, total, 8)
    cached = [
        helper.make_node("Concat", ["old", "k"], ["all"], axis=1),
        helper.make_node("Identity", ["q"], ["kept"]),
    ]
    first = [
        helper.make_node("Identity", ["k"], ["only"]),
        helper.make_node("Neg", ["q"], ["turned"]),
    ]
    whole = (batch, new, 8)
    branches = {
        "then_branch": helper.make_graph(
            cached, "with", [], [info("all", shape), info("kept", whole)]
        ),
        "else_branch": helper.make_graph(
            first, "without", [], [info("only", shape and whole), info("turned", whole)]
        ),
    }
    nodes = [
        helper.make_node("If", ["use"], ["present", "query"], **branches),
        helper.make_node("Transpose", ["present"], ["columns"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["query", "columns"], ["scores"]),
        helper.make_node("MatMul", ["scores", "present"], ["y"]),
    ]
    use = helper.make_tensor_value_info("use", TensorProto.BOOL, [])
    inputs = [use, info("q", whole), info("k", whole), info("old", (batch, past, 8))]
    data = model(nodes, inputs, [info("y", whole), info("present", shape)])
    draw = np.random.default_rng(7)
    shapes = {"q": (1, 2, 8), "k": (1, 2, 8), "old": (1, 3, 8)}
    given = {n: draw.integers(-3, 3, size).astype(np.float32) for n, size in shapes.items()}
    runs = [{"use": np.array(taken), **given} for taken in (True, False)]
    check(data, *runs, bind=sizes if names else None)


def test_what_is_planned_ahead_is_said() -> None:
    executor = ap.run.StagedExecutor(found())
    assert [node.op for node in executor.graph.nodes] == ["Relu", "Neg"]
    assert len(executor.waiting) == 5
    assert executor.plan.status == "unknown"  # For the whole model.
    executor.plan.check(executor.graph)


def test_later_stages_are_placed_around_live_values() -> None:
    executor = ap.run.StagedExecutor(found())
    (inputs,) = matrices(1)
    executor.run(inputs)
    assert executor.arena_bytes == max(stage.arena_bytes for stage in executor.stages)
    stage = executor._latest[1]
    graph, plan = stage.built.graph, stage.plan
    before = executor._latest[0]
    for name in ("r", "z"):
        place, earlier = (
            each.plan.placements[each.built.graph.find(name).index] for each in (stage, before)
        )
        assert place is not None
        assert earlier is not None
        assert place.offset == earlier.offset
    plan.check(graph)


def test_sizes_that_were_seen_are_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = matrices(3)
    executor = check(found(), *runs)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a known size was planned again")

    monkeypatch.setattr("arenaplan.run.dynamic.staged.make_plan", refuse)
    for inputs in runs:
        executor.run(inputs)


def test_few_sizes_are_kept_if_asked() -> None:
    executor = check(found(), *matrices(5), keep=1)
    assert executor._root is not None
    assert len(executor._root.children) == 1
    with pytest.raises(errors.InvalidOption, match="keep"):
        ap.run.StagedExecutor(found(), keep=0)


def test_bounds_give_the_bytes_beforehand() -> None:
    bounded = ap.run.StagedExecutor(found(), {"nz": 20, "u": 20})
    assert bounded.bound_bytes == bounded.arena_bytes
    assert ap.load(found(), bind={"nz": 20, "u": 20}).find("w").shape == (20,)
    (inputs,) = matrices(1)
    wanted = reference(found(), inputs)
    for got, want in zip(bounded.run(inputs).values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    assert bounded.arena_bytes == bounded.bound_bytes


@pytest.mark.parametrize("bind", [{"nz": 3}, {"n": 3}, {"nz": (2, 3)}])
def test_a_size_above_its_bound_is_refused_by_name(bind: dict[str, Any]) -> None:
    executor = ap.run.StagedExecutor(found(), bind)
    with raises("ShapeNotPlanned", match=r"'find'|'y'"):
        executor.run({"x": np.ones((4, 5), np.float32)})


def test_inputs_are_checked_and_a_closed_executor_says_so() -> None:
    with (
        ap.run.StagedExecutor(found()) as executor,
        raises("InputMismatch", match="'x' is missing"),
    ):
        executor.run({})
    with raises("ArenaState", match="closed"):
        executor.run({})


def test_a_model_without_open_sizes_is_one_stage() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    data = model([node], [info("x", (3,))], [info("y", (3,))])
    executor = check(data, {"x": numbers(3)})
    assert (len(executor.stages), executor.waiting) == (1, ())


def test_shapes_that_are_computed_from_inputs_are_known_when_they_are() -> None:
    nodes = [
        constant("zero", np.array([0], np.int64)),
        constant("one", np.array([1], np.int64)),
        constant("rest", np.array([-1], np.int64)),
        helper.make_node("Unsqueeze", ["n", "zero"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Slice", ["r", "zero", "n1", "one"], ["s"]),
        helper.make_node("Expand", ["s", "wide"], ["e"]),
        helper.make_node("TopK", ["x", "n1"], ["top", "where"]),
    ]
    inputs = [info("x", (12,)), info("n", (), INT64), info("wide", (3,), INT64)]
    outputs = [info(name, None) for name in ("r", "e", "top")]
    outputs.append(helper.make_tensor_value_info("where", TensorProto.INT64, None))
    data = model(nodes, inputs, outputs)
    check(
        data,
        *(
            {
                "x": np.arange(12, dtype=np.float32),
                "n": np.array(n, np.int64),
                "wide": np.array([2, 1, 1], np.int64),
            }
            for n in (2, 3, 6)
        ),
    )


def test_branches_of_different_shapes_are_chosen_at_run_time() -> None:
    for taken in (True, False):
        executor = ap.run.StagedExecutor(uneven())
        (y,) = executor.run({"c": np.array(taken)}, verify=True).values()
        np.testing.assert_array_equal(y, np.full(3 if taken else 2, 3 if taken else 2))


def test_rounds_are_counted_before_their_results_are_planned() -> None:
    nodes = [helper.make_node("Add", ["s", "s"], ["t"])]
    data = loop(nodes, [("s", "t", (4,))], [("t", (4,))], trips=None)
    runs = [{"s0": numbers(4), "trips": np.array(trips, np.int64)} for trips in (1, 4, 2)]
    executor = check(data, *runs)
    assert len(executor.stages) == 2


def test_a_loop_whose_results_grow_until_a_condition_runs_round_by_round() -> None:
    nodes = [
        helper.make_node("Concat", ["s", "x"], ["t"], axis=0),
        helper.make_node("ReduceSum", ["t"], ["m"], keepdims=0),
        helper.make_node("Less", ["m", "limit"], ["less"]),
    ]
    inputs = [info("x", (2,)), info("limit")]
    data = loop(nodes, [("s", "t", (1,))], trips=8, again="less", inputs=inputs)
    executor = ap.run.StagedExecutor(data)
    for limit, rounds in ((-1, 1), (5, 3), (100, 8)):
        given = {
            "s0": np.zeros(1, np.float32),
            "x": np.ones(2, np.float32),
            "limit": np.array(limit, np.float32),
        }
        assert executor.run(given, verify=True)["sn"].shape == (1 + 2 * rounds,)


# -- deciding operators ---------------------------------------------------------------------


@pytest.mark.parametrize("center", [0, 1])
def test_boxes_are_suppressed_as_by_onnx_runtime(center: int) -> None:
    random = np.random.default_rng(center)
    node = helper.make_node(
        "NonMaxSuppression",
        ["boxes", "scores", "most", "overlap", "least"],
        ["chosen"],
        center_point_box=center,
    )
    inputs = [info("boxes", (2, 40, 4)), info("scores", (2, 3, 40))]
    inputs += [info("most", (1,), INT64), info("overlap", (1,)), info("least", (1,))]
    outputs = [helper.make_tensor_value_info("chosen", TensorProto.INT64, ["n", 3])]
    data = model([node], inputs, outputs)
    runs = [
        {
            "boxes": random.random((2, 40, 4), np.float32),
            "scores": random.integers(0, 10, (2, 3, 40)).astype(np.float32) / 10,
            "most": np.array([most], np.int64),
            "overlap": np.array([overlap], np.float32),
            "least": np.array([0.3], np.float32),
        }
        for most, overlap in ((0, 0.5), (3, 0.0), (40, 0.3), (40, 1.0))
    ]
    check(data, *runs)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_different_elements_are_as_those_of_onnx_runtime(axis: int | None, is_sorted: int) -> None:
    attributes = {"sorted": is_sorted, **({} if axis is None else {"axis": axis})}
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "count"], **attributes)
    outputs = [info("y", None)]
    outputs += [info(name, None, INT64) for name in ("first", "inverse", "count")]
    data = model([node], [info("x", (4, 3))], outputs)
    check(
        data,
        *(
            {"x": np.random.default_rng(k).integers(0, 2, (4, 3)).astype(np.float32)}
            for k in range(3)
        ),
    )


def test_wrong_operands_of_deciding_operators_are_named() -> None:
    node = helper.make_node("Compress", ["x", "c"], ["y"], name="press", axis=1)
    data = model([node], [info("x", (2, 3)), info("c", (5,), BOOL)], [info("y", None)])
    with pytest.raises(errors.InvalidOperand, match="press"):
        ap.run.StagedExecutor(data).run({"x": numbers(2, 3), "c": np.ones(5, bool)})


# -- sequences ------------------------------------------------------------------------------


def test_sequences_are_settled_while_a_model_is_read() -> None:
    nodes = [
        constant("two", np.int64(2)),
        constant("last", np.int64(-1)),
        constant("sizes", np.array([1, 3], np.int64)),
        helper.make_node("SplitToSequence", ["x", "two"], ["a"], axis=0),
        helper.make_node("SplitToSequence", ["x", "sizes"], ["b"], axis=0),
        helper.make_node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        helper.make_node("SequenceAt", ["a", "last"], ["a1"]),
        helper.make_node("SequenceInsert", ["b", "a1"], ["b2"]),
        helper.make_node("SequenceErase", ["b2", "two"], ["b3"]),
        helper.make_node("SequenceLength", ["b2"], ["count"]),
        helper.make_node("ConcatFromSequence", ["b3"], ["y"], axis=0),
        helper.make_node("ConcatFromSequence", ["rows"], ["z"], axis=1, new_axis=1),
    ]
    outputs = [info("y", None), info("z", None), info("count", (), INT64), info("a1", None)]
    data = model(nodes, [info("x", (4, 3))], outputs)
    graph = ap.load(data)
    with ap.Executor(graph) as executor:
        made = executor.run({"x": numbers(4, 3)}, verify=True)
    for got, want in zip(made.values(), reference(data, {"x": numbers(4, 3)}), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_body_is_walked_for_each_element_of_a_sequence() -> None:
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["a", "b"], ["c"])],
        "body",
        [info("a", (2,)), info("b", (2,))],
        [info("c", (2,))],
    )
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "z"], ["both"]),
        helper.make_node("SequenceMap", ["both", "x"], ["products"], body=body),
        helper.make_node("Optional", ["products"], ["perhaps"]),
        helper.make_node("OptionalHasElement", ["perhaps"], ["there"]),
        helper.make_node("OptionalGetElement", ["perhaps"], ["sure"]),
        helper.make_node("ConcatFromSequence", ["sure"], ["y"], axis=0),
    ]
    outputs = [
        info("y", None),
        info("there", (), BOOL),
        sequence("products", TensorProto.FLOAT, None),
    ]
    data = model(nodes, [info("x", (2,)), info("z", (2,))], outputs, version=18)
    given = {"x": numbers(2), "z": numbers(2) + 5}
    with ap.Executor(ap.load(data)) as executor:
        made = executor.run(given, verify=True)
    y, there, products = reference(data, given)
    for got, want in zip(made.values(), [y, there, *products], strict=True):
        np.testing.assert_array_equal(got, want)


def filled(trips: list[Any], count: Any) -> bytes:
    """Return a model with a loop that fills a sequence, which is joined then."""
    inner = [info("i", (), INT64), info("go", (), BOOL)]
    sequence = helper.make_tensor_sequence_value_info
    inner.append(sequence("q", TensorProto.FLOAT, None))
    nodes = [
        helper.make_node("Identity", ["go"], ["more"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["h"]),
        helper.make_node("SequenceInsert", ["q", "h"], ["q1"]),
    ]
    results = [info("more", (), BOOL), sequence("q1", TensorProto.FLOAT, None)]
    whole = [
        *trips,
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node(
            "Loop",
            ["trips", "", "none"],
            ["all"],
            body=helper.make_graph(nodes, "body", inner, results),
        ),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]
    return model(whole, [info("x", (2,)), *count], [info("y", None)])


def test_a_sequence_that_a_loop_fills_is_settled_too() -> None:
    graph = ap.load(filled([constant("trips", np.int64(3))], []))
    with ap.Executor(graph) as executor:
        (y,) = executor.run({"x": numbers(2)}, verify=True).values()
    np.testing.assert_array_equal(y, numbers(2) + np.arange(3, dtype=np.float32)[:, None])


def test_a_sequence_is_filled_as_often_as_a_run_says() -> None:
    data = filled([], [info("trips", (), INT64)])
    check(data, *({"x": numbers(2), "trips": np.array(trips)} for trips in (1, 4, 2)))
    with pytest.raises(errors.UnsupportedSubgraph, match="carries a sequence"):
        ap.load(data)


@pytest.mark.parametrize("bind", [{}, {"rows": 2}])
def test_a_branch_decides_whether_a_loop_grows(bind: dict[str, int]) -> None:
    grown = helper.make_node("Concat", ["s", "x"], ["a"], axis=0)
    kept = helper.make_node("Identity", ["s"], ["b"])
    then_branch, else_branch = (
        helper.make_graph([node], name, [], [info(node.output[0], None)])
        for name, node in (("grown", grown), ("kept", kept))
    )
    branch = helper.make_node(
        "If", ["use"], ["t"], then_branch=then_branch, else_branch=else_branch
    )
    rows = "rows" if bind else 2
    inputs = [info("x", (rows, 3)), info("use", (), BOOL)]
    data = loop([branch], [("s", "t", (2, 3))], trips=None, inputs=inputs)
    old, new = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    with ap.run.StagedExecutor(data, bind=bind) as executor:
        for trips, use in ((3, True), (3, False), (0, True), (3, True)):
            given = {"s0": old, "x": new, "trips": np.array(trips), "use": np.array(use)}
            (y,) = executor.run(given, verify=True).values()
            np.testing.assert_array_equal(y, np.concatenate([old, *[new] * (trips * use)]))


def test_a_sequence_that_leaves_the_model_is_its_elements() -> None:
    node = helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0)
    sequence = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    graph = ap.load(model([node], [info("x", (2, 3))], [sequence]))
    with ap.Executor(graph) as executor:
        made = executor.run({"x": numbers(2, 3)})
    assert list(made) == ["parts[0]", "parts[1]"]
    np.testing.assert_array_equal(np.concatenate(list(made.values())), numbers(2, 3))


def test_every_operator_on_sequences_has_a_rule() -> None:
    from arenaplan.formats.onnx import sequences, walk

    assert set(sequences._RULES) == walk.SEQUENCES


def test_positions_outside_of_a_sequence_are_refused() -> None:
    nodes = [
        constant("at", np.int64(2)),
        helper.make_node("SequenceConstruct", ["x", "x"], ["q"]),
        helper.make_node("SequenceAt", ["q", "at"], ["y"], name="third"),
    ]
    with pytest.raises(errors.InvalidOperand, match="third"):
        ap.load(model(nodes, [info("x", (2,))], [info("y", (2,))]))


# -- random models --------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(3))
def test_random_models_are_equal_to_onnx_runtime(block: int) -> None:
    for seed in range(block * 6, block * 6 + 6):
        generator = Generator(seed, loose=True)
        made = generator.model()
        data = made.SerializeToString()
        executor = ap.run.StagedExecutor(data)
        names = {executor.graph.values[index].name for index in executor.graph.inputs}
        for verify in (True, False):
            inputs = generator.inputs(made)
            given = {name: array for name, array in inputs.items() if name in names}
            found = executor.run(given, verify=verify)
            for got, want in zip(found.values(), reference(data, inputs), strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


# -- command line ---------------------------------------------------------------------------


def arenaplan(*words: object) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = [sys.executable, "-m", "arenaplan", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_commands_say_what_is_planned_ahead(tmp_path: Path) -> None:
    path = tmp_path / "found.onnx"
    path.write_bytes(found())
    planned = arenaplan("plan", path, "-o", tmp_path / "plan.json")
    assert planned.returncode == 0, planned.stderr
    assert "for a part of the model" in planned.stdout
    assert "'find' (NonZero) decides the size of 'nz'" in planned.stdout
    assert arenaplan("check", path, tmp_path / "plan.json").returncode == 0
    ran = arenaplan("run", path, "--verify", "--json")
    assert ran.returncode == 0, ran.stderr
    stages = json.loads(ran.stdout)["stages"]
    assert [stage["decided"] for stage in stages] == [["nz"], ["u"], []]
    refused = arenaplan("run", path, "--bind", "nz=1")
    assert refused.returncode in (2, 3)
    assert "'find' (NonZero): 'nz' has shape" in refused.stderr
