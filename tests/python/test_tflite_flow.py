"""Branches and loops of TFLite: subgraphs that operators run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan as ap
import flat
import flow_subgraphs
from arenaplan.base import errors
from arenaplan.planner.bodies import bodies_of
from raising import raises

BOOL = 6
COUNT = 64


def subgraph(
    name: str, operators: list[tuple[str, list[int], int]], outputs: list[int]
) -> dict[int, Any]:
    """Return a subgraph of one input; each operator makes one more tensor."""
    tensors = [flat.tensor(f"{name}{at}", (COUNT,)) for at in range(1 + len(operators))]
    rows = [
        flat.operator(flow_subgraphs.NAMES.index(kind), inputs, [made])
        for kind, inputs, made in operators
    ]
    return flat.subgraph(tensors, rows, [0], outputs, name)


def conditional(then: dict[int, Any], other: dict[int, Any], **changes: Any) -> bytes:
    """Return a model that runs one of two subgraphs on ``x``."""
    tensors = [
        flat.tensor("flag", changes.get("flag", (1,)), BOOL),
        flat.tensor("x", (COUNT,)),
        flat.tensor("y", (COUNT,)),
    ]
    numbers = changes.get("numbers", (1, 2))
    options = (92, {at: flat.Number("i", number) for at, number in enumerate(numbers)})
    run = flat.operator(0, changes.get("inputs", [0, 1]), [2], options)
    main = flat.subgraph(tensors, [run], [0, 1], [2])
    codes = [flat.code(name) for name in changes.get("codes", flow_subgraphs.NAMES)]
    buffers = changes.get("buffers", [b""])
    return flat.write(flat.model(codes, [main, then, other], buffers))


NEGATE = subgraph("n", [("NEG", [0], 1), ("ABS", [1], 2), ("NEG", [2], 3)], [3])
SQUARE = subgraph("s", [("SQUARE", [0], 1)], [1])


def test_the_branch_that_the_condition_chooses_runs() -> None:
    x = np.linspace(-2, 2, COUNT, dtype=np.float32)
    with ap.Executor(conditional(NEGATE, SQUARE)) as executor:
        for flag, wanted in ((True, -np.abs(x)), (False, x * x), (True, -np.abs(x))):
            found = executor.run({"flag": np.array([flag]), "x": x}, verify=True)["y"]
            np.testing.assert_array_equal(found, wanted)


def test_branches_lie_on_top_of_each_other() -> None:
    graph = ap.load(conditional(NEGATE, SQUARE)).for_target("numpy")
    (node,) = graph.nodes
    then, other = bodies_of(node)
    assert [len(body.graph.nodes) for body in (then, other)] == [3, 1]
    # Each value in between is made where the result will be.
    assert (then.nbytes, other.nbytes) == (0, 0)
    # x and y, one behind the other or at one place, and the flag.
    assert ap.plan(graph, workspace="none").arena_bytes <= 2 * 4 * COUNT + 64


def loop(
    condition: dict[int, Any], body: dict[int, Any], after: tuple[int, ...] = (COUNT,)
) -> bytes:
    """Return a model that repeats a subgraph on ``x`` and a counter."""
    tensors = [flat.tensor(name, shape) for name, shape in _CARRIED]
    tensors += [flat.tensor("x after", after), flat.tensor("round after", (1,))]
    options = (93, {0: flat.Number("i", 1), 1: flat.Number("i", 2)})
    main = flat.subgraph(tensors, [flat.operator(1, [0, 1], [2, 3], options)], [0, 1], [2, 3])
    codes = [flat.code(name) for name in flow_subgraphs.NAMES]
    numbers = [np.array([number], np.float32).tobytes() for number in (3, 1)]
    return flat.write(flat.model(codes, [main, condition, body], [b"", *numbers]))


_CARRIED = (("x", (COUNT,)), ("round", (1,)))


def below_three() -> dict[int, Any]:
    """Return a subgraph that is true while the counter is below 3."""
    tensors = [flat.tensor(name, shape) for name, shape in _CARRIED]
    tensors += [flat.tensor("three", (1,), buffer=1), flat.tensor("goes on", (1,), BOOL)]
    return flat.subgraph(tensors, [flat.operator(2, [1, 2], [3], (44, {}))], [0, 1], [3], "c")


def doubled() -> dict[int, Any]:
    """Return a subgraph that doubles ``x`` and counts."""
    tensors = [flat.tensor(name, shape) for name, shape in _CARRIED]
    tensors += [flat.tensor("one", (1,), buffer=2)]
    tensors += [flat.tensor(f"{name} next", shape) for name, shape in _CARRIED]
    operators = [flat.operator(6, [0, 0], [3], (11, {})), flat.operator(6, [1, 2], [4], (11, {}))]
    return flat.subgraph(tensors, operators, [0, 1], [3, 4], "b")


def test_a_loop_runs_until_its_condition_is_false() -> None:
    x = np.linspace(-2, 2, COUNT, dtype=np.float32)
    with ap.Executor(loop(below_three(), doubled())) as executor:
        for start, rounds in ((0, 3), (2, 1), (3, 0), (7, 0), (0, 3)):
            given = {"x": x, "round": np.array([start], np.float32)}
            found = executor.run(given, verify=True)
            np.testing.assert_array_equal(found["x after"], x * 2**rounds)
            assert found["round after"] == start + rounds


def test_carried_values_change_in_place() -> None:
    graph = ap.load(loop(below_three(), doubled())).for_target("numpy")
    (body,) = bodies_of(graph.nodes[-1])
    # Only the condition has bytes of its own; x is doubled where it is.
    assert body.nbytes <= 128
    assert sum(node.op == "Emit" for node in body.graph.nodes) == 1


@pytest.mark.parametrize("seed", range(10))
def test_random_branches_and_loops_are_those_of_an_interpreter(seed: int) -> None:
    builder = flow_subgraphs.Builder(seed)
    data = builder.model()
    with ap.Executor(data) as executor:
        for turn in range(2):
            given = flow_subgraphs.inputs_of(100 * seed + turn, builder.shape[0])
            wanted = flow_subgraphs.interpreted(data, list(given.values()))
            found = executor.run(given, verify=turn == 1)
            for array, expected in zip(found.values(), wanted, strict=True):
                np.testing.assert_array_equal(array, expected)


def test_random_branches_and_loops_are_those_of_tflite_micro() -> None:
    runtime = pytest.importorskip("tflite_micro").runtime
    for seed in range(1000, 1020):
        builder = flow_subgraphs.Builder(seed)
        data = builder.model()
        interpreter = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
        given = flow_subgraphs.inputs_of(seed, builder.shape[0])
        with ap.Executor(data) as executor:
            found = executor.run(given)
            for at, array in enumerate(given.values()):
                interpreter.set_input(array, at)
            interpreter.invoke()
            for at, array in enumerate(found.values()):
                assert array.tobytes() == interpreter.get_output(at).tobytes()


# -- refusals -------------------------------------------------------------------------------------


def refused(data: bytes, kind: type[Exception], match: str) -> None:
    """Check that a model is refused when the executor plans it."""
    with raises(kind, match=match):
        ap.Executor(data)


def test_subgraphs_that_do_not_fit_are_refused() -> None:
    short = flat.subgraph([flat.tensor("a", (3,))], [], [0], [0])
    wrong = flat.subgraph([flat.tensor("a", (COUNT,), flat.INT32)], [], [0], [0])
    none = flat.subgraph([flat.tensor("a", (COUNT,))], [], [], [0])
    twice = flat.subgraph([flat.tensor("a", (COUNT,))], [], [0], [0, 0])
    unmade = flat.subgraph([flat.tensor(name, (COUNT,)) for name in "ab"], [], [0], [1])
    refused(conditional(NEGATE, short), errors.UnsupportedSubgraph, r"shape \(3,\)")
    refused(conditional(NEGATE, wrong), errors.UnsupportedSubgraph, "int32")
    refused(conditional(none, SQUARE), errors.UnsupportedSubgraph, "0 different inputs")
    refused(conditional(NEGATE, twice), errors.UnsupportedSubgraph, "outputs instead of 1")
    refused(conditional(NEGATE, unmade), errors.PlannerError, "b")


def test_conditions_that_are_no_single_bool_are_refused() -> None:
    refused(conditional(NEGATE, SQUARE, flag=(2,)), errors.InvalidOperand, "IF_0.*single bool")
    refused(conditional(NEGATE, SQUARE, inputs=[]), errors.InvalidOperand, "no condition")
    refused(conditional(NEGATE, SQUARE, inputs=[0, -1]), errors.InvalidOperand, "leaves out")
    numbers = subgraph("c", [("ABS", [0], 1)], [1])
    one = flat.subgraph([flat.tensor("x", (COUNT,)), flat.tensor("r", (1,))], [], [0, 1], [1])
    refused(loop(one, doubled()), errors.InvalidOperand, "WHILE_0.*single bool")
    refused(loop(numbers, doubled()), errors.UnsupportedSubgraph, "1 different inputs")


def test_subgraphs_that_there_are_not_and_that_run_themselves_are_refused() -> None:
    refused(conditional(NEGATE, SQUARE, numbers=(1, 9)), "IndexOutOfRange", "number 9 of 3")
    refused(conditional(NEGATE, SQUARE, numbers=(1, 0)), errors.UnsupportedSubgraph, "itself")


def nested(depth: int, *, twice: bool = False) -> bytes:
    """Return a model whose branches run the next subgraph, ``depth`` times."""
    graphs = []
    for number in range(depth + 1):
        tensors = [flat.tensor("flag", (1,), BOOL), flat.tensor("x", (1,)), flat.tensor("y", (1,))]
        other = number + 1 if twice else depth
        options = (92, {0: flat.Number("i", number + 1), 1: flat.Number("i", other)})
        operators = [flat.operator(0, [0, 0, 1], [2], options)] if number < depth else []
        graphs.append(flat.subgraph(tensors, operators, [0, 1], [2 if operators else 1]))
    return flat.write(flat.model([flat.code("IF")], graphs))


def test_deep_and_wide_nesting_ends_in_an_error() -> None:
    with ap.Executor(nested(12)) as executor:
        one = {"flag": np.array([True]), "x": np.array([5], np.float32)}
        assert executor.run(one)["y"] == 5
    refused(nested(40), "NestingTooDeep", "30 deep")
    refused(nested(11, twice=True), "BudgetExceeded", "more often than the file justifies")


def test_state_inside_of_a_branch_is_refused() -> None:
    memory = flat.tensor("memory", (COUNT,), variable=True)
    branch = flat.subgraph([flat.tensor("a", (COUNT,)), memory], [], [0], [0])
    refused(conditional(NEGATE, branch), errors.UnsupportedSubgraph, "has a variable")


def test_resources_inside_of_a_branch_are_refused() -> None:
    tensors = [flat.tensor("a", (COUNT,)), flat.tensor("handle", (1,), flat.RESOURCE)]
    handle = flat.operator(len(flow_subgraphs.NAMES), [], [1], (111, {}))
    branch = flat.subgraph(tensors, [handle], [0], [0])
    codes = [*flow_subgraphs.NAMES, "VAR_HANDLE"]
    data = conditional(NEGATE, branch, codes=codes)
    refused(data, errors.UnsupportedSubgraph, "has a VAR_HANDLE")


def test_subgraphs_with_constants_for_inputs_are_refused() -> None:
    fixed = flat.subgraph([flat.tensor("a", (COUNT,), buffer=1)], [], [0], [0])
    data = conditional(NEGATE, fixed, buffers=[b"", bytes(4 * COUNT)])
    refused(data, errors.UnsupportedSubgraph, "constant among its inputs")


def test_carried_values_that_change_their_shape_are_refused() -> None:
    refused(
        loop(below_three(), doubled(), after=(3,)), errors.UnsupportedSubgraph, "WHILE_0.*change"
    )


def test_a_variable_that_a_branch_reads_keeps_its_content() -> None:
    tensors = [flat.tensor(name, (COUNT,)) for name in ("a", "b", "c")]
    add = flat.operator(flow_subgraphs.NAMES.index("ADD"), [0, 1], [2], (11, {}))
    branch = flat.subgraph(tensors, [add], [0, 1], [2])
    outer = [
        flat.tensor("flag", (1,), BOOL),
        flat.tensor("memory", (COUNT,), variable=True),
        flat.tensor("x", (COUNT,)),
        flat.tensor("y", (COUNT,)),
    ]
    options = (92, {0: flat.Number("i", 1), 1: flat.Number("i", 1)})
    main = flat.subgraph(outer, [flat.operator(0, [0, 1, 2], [3], options)], [0, 2], [3])
    codes = [flat.code(name) for name in flow_subgraphs.NAMES]
    x = np.arange(COUNT, dtype=np.float32)
    with ap.Executor(flat.write(flat.model(codes, [main, branch]))) as executor:
        (node,) = executor.graph.nodes
        # The bodies would permit it; a plan keeps states.
        assert [pair.input for pair in node.effects.in_place] == [1, 2]
        for _ in range(3):
            found = executor.run({"flag": np.array([True]), "x": x})["y"]
            np.testing.assert_array_equal(found, x)


# -- composites ---------------------------------------------------------------------------------


def _composite(code: int, inputs: list[int], outputs: list[int], called: int) -> dict[int, Any]:
    options = {0: "odml.twice", 1: flat.Number("i", called)}
    more = {11: flat.Number("B", 21), 12: options}
    return {**flat.operator(code, inputs, outputs), **more}


def _composites(called: int = 1, *, nested: bool = False) -> dict[int, Any]:
    """Return a model of a composite operator, twice: the square of a hyperbolic tangent."""
    codes = [flat.code(name) for name in ("TANH", "MUL", "STABLEHLO_COMPOSITE")]
    tensors = [flat.tensor(name, (1, 8)) for name in ("x", "m", "y")]
    main = flat.subgraph(
        tensors, [_composite(2, [0], [1], called), _composite(2, [1], [2], called)], [0], [2]
    )
    first = _composite(2, [0], [1], 2) if nested else flat.operator(0, [0], [1])
    square = [first, flat.operator(1, [1, 1], [2], (21, {}))]
    inner = flat.subgraph(tensors, square, [0], [2], "square")
    tanh = flat.subgraph(tensors[:2], [flat.operator(0, [0], [1])], [0], [1], "tanh")
    return flat.model(codes, [main, inner, *([tanh] if nested else [])])


@pytest.mark.parametrize("nested", [False, True])
def test_a_composite_operator_is_its_decomposition(nested: bool) -> None:
    graph = ap.load(flat.write(_composites(nested=nested)))
    assert graph.covers.is_whole
    assert [node.op for node in graph.for_target("numpy").nodes] == ["TANH", "MUL"] * 2
    for target in ("litert", "numpy", "c", "nodes", "ideal"):
        assert ap.plan(graph, target=target).status == "optimal"
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(1, 8)
    with ap.Executor(graph) as executor:
        (y,) = executor.run({"x": x}, verify=True).values()
    np.testing.assert_allclose(y, np.tanh(np.tanh(x) ** 2) ** 2, rtol=1e-6)
    with pytest.raises(errors.UnsupportedSubgraph, match="TensorFlow Lite Micro"):
        ap.plan(graph, target="tflm")


def test_decompositions_that_do_not_fit_are_refused() -> None:
    with raises("IndexOutOfRange"):
        ap.load(flat.write(_composites(7)))
    with pytest.raises(errors.UnsupportedSubgraph, match="subgraph 0 runs itself"):
        ap.load(flat.write(_composites(0)))
    root = _composites()
    root[2][1][2] = flat.Vector("i", [0])  # It returns its input.
    with pytest.raises(errors.UnsupportedSubgraph, match="returns an input"):
        ap.load(flat.write(root))
    root[2][1][1] = flat.Vector("i", [0, 1])
    with pytest.raises(errors.UnsupportedSubgraph, match="2 inputs and 1 outputs"):
        ap.load(flat.write(root))
