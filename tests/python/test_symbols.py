"""Composition of graphs and symbols; the cases of NNVM, with their numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base.errors import (
    InvalidAttribute,
    InvalidOperand,
    ShapeMismatch,
    UndefinedValue,
    UnknownShape,
    UnsupportedOp,
)
from arenaplan.train import operators
from arenaplan.train.symbols import find_schema
from raising import raises

# -- the table of operators -----------------------------------------------------------------------


def test_signatures_are_those_of_the_standard() -> None:
    schema = find_schema("Gemm")
    assert [(each.name, each.kind) for each in schema.inputs] == [
        ("A", "required"), ("B", "required"), ("C", "optional"),
    ]  # fmt: skip
    assert {name: each.default for name, each in schema.attributes.items()} == {
        "alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0,
    }  # fmt: skip
    assert ap.train.op.Gemm.__doc__.startswith(
        "Gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0"
    )
    assert "General Matrix multiplication" in operators(ap.Graph()).Gemm.__doc__
    assert {"Conv", "Gemm", "AdamUpdate"} <= set(dir(ap.train.op)) & set(dir(operators(ap.Graph())))


def test_unknown_names_are_answered_with_those_there_are() -> None:
    with pytest.raises(UnsupportedOp, match=r"no operator 'relu'; there is .*'Relu'"):
        ap.train.op.relu  # noqa: B018
    with pytest.raises(
        InvalidAttribute, match="no input and no attribute 'axes'; inputs are input"
    ):
        ap.train.op.Softmax(ap.train.variable("x"), axes=1)
    graph = ap.Graph()
    x = graph.input("x", (2, 3))
    with pytest.raises(InvalidOperand, match="Gemm lacks its input 'B'; inputs are A, B, C"):
        operators(graph).Gemm(x)
    with pytest.raises(InvalidOperand, match="Relu has 1 inputs, not 2"):
        operators(graph).Relu(x, x)
    with pytest.raises(InvalidOperand, match="is given input 'A' twice"):
        operators(graph).Gemm(x, A=x)
    with pytest.raises(InvalidOperand, match="operand 0 is the plain integer 99"):
        operators(graph).Relu(99)
    with pytest.raises(InvalidAttribute, match="Cast lacks its attribute 'to'"):
        operators(graph).Cast(x)


# -- graphs ---------------------------------------------------------------------------------------


def test_a_graph_is_composed_with_inferred_shapes_types_and_effects() -> None:
    graph = ap.Graph("mlp")
    x = graph.input("x", (64, 784))
    w, b = graph.state("w", (784, 10)), graph.state("b", (10,))
    y = operators(graph).Relu(operators(graph).Gemm(x, w, b, name="fc"))
    assert (graph.values[y].shape, graph.values[y].dtype) == ((64, 10), "float32")
    assert graph.nodes[1].effects.in_place == (ap.graph.InPlace(0, 0),)
    with pytest.raises(ShapeMismatch, match="'Gemm_0'"):
        operators(graph).Gemm(y, w)


def test_data_becomes_a_constant_of_the_type_of_the_other_operands() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4, 2), "float64")
    y = operators(graph).Mul(operators(graph).Add(x, 1.5), [2.0, 3.0])
    graph.output(operators(graph).Reshape(y, [-1]))
    kinds = [(v.dtype, v.shape) for v in graph.values if v.kind == "constant"]
    assert kinds == [("float64", ()), ("float64", (2,)), ("int64", (1,))]
    with ap.Executor(graph) as executor:
        (found,) = executor.run({"x": np.ones((4, 2))}).values()
    assert found.tolist() == [5.0, 7.5] * 4


def test_equal_constants_are_one_value() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,))
    operators(graph).Add(operators(graph).Add(x, 1.5), 1.5)
    assert sum(value.kind == "constant" for value in graph.values) == 1


def test_several_outputs_are_asked_for() -> None:
    graph = ap.Graph()
    x = graph.input("x", (10, 20))
    a, b = operators(graph).Split(x, [11, 9], axis=1, outputs=2)
    assert (graph.values[a].shape, graph.values[b].shape) == ((10, 11), (10, 9))
    y, mask = operators(graph).Dropout(x, outputs=["kept", "mask"])
    assert [graph.values[each].name for each in (y, mask)] == ["kept", "mask"]
    with pytest.raises(InvalidOperand, match="at most 1 outputs"):
        operators(graph).Relu(x, outputs=2)


def test_a_graph_is_called_as_an_operator() -> None:
    block = ap.Graph("block")
    h, w = block.input("h", (4,)), block.parameter("w", np.full(4, 2, np.float32))
    block.output(operators(block).Add(operators(block).Mul(h, w), 1.0))
    graph = ap.Graph()
    x = graph.input("x", (4,))
    (y,) = operators(graph).call(block, name="a", h=x)
    (z,) = operators(graph).call(block, name="b", h=y)
    graph.output(z)
    with ap.Executor(graph) as executor:
        (found,) = executor.run({"x": np.zeros(4, np.float32)}).values()
        assert sorted(executor.states()) == ["a/w", "b/w"]
    assert found.tolist() == [3] * 4
    with pytest.raises(InvalidOperand, match="graph 'block' lacks its input 'h'"):
        operators(graph).call(block)
    with pytest.raises(InvalidOperand, match="graph 'block' has no input 'x'; its inputs are 'h'"):
        operators(graph).call(block, x=x)
    with pytest.raises(ShapeMismatch, match="input 'h' of graph 'block' holds float32"):
        operators(graph).call(block, h=graph.input("wide", (5,)))


def test_composed_graphs_survive_their_file() -> None:
    graph = ap.Graph("net")
    x = graph.input("x", (1, 2, 8, 8))
    w = graph.state("w", (4, 2, 3, 3))
    y = operators(graph).Conv(x, w, pads=[1, 1, 1, 1], strides=[2, 2])
    graph.output(operators(graph).Flatten(y))
    again = ap.Graph.from_json(graph.to_json())
    assert again.to_json() == graph.to_json()
    assert again.digest == graph.digest
    assert ap.plan(again).arena_bytes == ap.plan(graph).arena_bytes


# -- symbols: composition (NNVM, Symbol) ----------------------------------------------------------


def test_a_missing_argument_becomes_a_variable_with_the_labels_of_the_call() -> None:
    y = ap.train.op.MatMul(ap.train.variable("data"), name="fc", labels={"group": "stage1"})
    assert y.arguments() == ["data", "fc_B"]
    assert y.labels() == {"fc$group": "stage1", "fc_B$group": "stage1"}
    assert y.label("group") == "stage1"


def test_a_substitution_leaves_the_original_intact() -> None:
    y = ap.train.op.Tanh(
        ap.train.op.MatMul(ap.train.variable("x"), ap.train.variable("w")), name="out"
    )
    z = y(x=ap.train.op.Exp(ap.train.variable("a"), name="e"))
    assert (y.arguments(), z.arguments()) == (["x", "w"], ["a", "w"])
    assert z.output_names() == y.output_names() == ["out_output"]
    with pytest.raises(UndefinedValue, match="no variable 'v'; it has 'x', 'w'"):
        y(v=ap.train.variable("a"))
    with pytest.raises(InvalidOperand, match="one output, not 2"):
        y(x=ap.train.group([ap.train.variable("a"), ap.train.variable("b")]))


def test_a_copy_shares_no_vertex() -> None:
    y = ap.train.op.Exp(ap.train.variable("x"), labels={"k": "1"})
    copy = y.copy()
    assert not set(copy.vertices()) & set(y.vertices())
    copy.vertices()[1].labels["k"] = "2"
    assert y.label("k") == "1"


def test_outputs_are_indexed_by_position_and_name() -> None:
    pieces = ap.train.op.Split(ap.train.variable("x"), outputs=2, num_outputs=2, name="s")
    both = ap.train.group([pieces, ap.train.variable("y")])
    assert both.output_names() == ["s_output0", "s_output1", "y"]
    assert both["s_output1"].output_names() == both[1].output_names()
    assert [len(each) for each in both] == [1, 1, 1]
    with pytest.raises(UndefinedValue, match="several outputs 'y'"):
        ap.train.group([both, ap.train.variable("y")])["y"]
    with pytest.raises(UndefinedValue, match="no output 'z'; it has"):
        both["z"]


def test_internals_and_children() -> None:
    x, y = ap.train.variable("x"), ap.train.variable("y")
    total = ap.train.op.Add(y, x, name="total")
    z = ap.train.op.Exp(total, name="z")
    assert z.internals().output_names() == ["y", "x", "total_output", "z_output"]
    children = z.children()
    assert children is not None
    assert children.output_names() == ["total_output"]
    assert x.children() is None


def test_vertices_come_depth_first_without_recursion() -> None:
    y = ap.train.variable("x")
    for _ in range(20_000):
        y = ap.train.op.Relu(y)
    assert len(y.vertices()) == 20_001
    assert y.vertices()[0].name == "x"
    del y


def test_arithmetic_of_symbols() -> None:
    a, b = ap.train.variable("a"), ap.train.variable("b")
    y = (2 * a - b / 4) ** 2 + (-a) @ b
    graph = y.graph(shapes={"a": (2, 2), "b": (2, 2)})
    given = {"a": np.array([[1, 2], [3, 4]], np.float32), "b": np.full((2, 2), 8, np.float32)}
    with ap.Executor(graph) as executor:
        (found,) = executor.run(given).values()
    expected = (2 * given["a"] - given["b"] / 4) ** 2 - given["a"] @ given["b"]
    np.testing.assert_array_equal(found, expected)


# -- symbols: inference (NNVM, InferShape) --------------------------------------------------------


def test_upstream_shapes() -> None:
    """Dense (10,20) with 30 units -> (10,30), bias (30); flatten (2,4,2) -> (2,8); …"""
    fc = ap.train.op.Gemm(
        ap.train.variable("x"), C=ap.train.variable("fc_bias"), transB=1, name="fc"
    )
    found = fc.infer(shapes={"x": (10, 20), "fc_B": (30, None)}).shapes
    assert (found["fc_output"], found["fc_B"]) == ((10, 30), (30, 20))
    assert found["fc_bias"] is None  # The standard lets it be (30,), (1, 30), (10, 1) or ().
    flat = ap.train.op.Flatten(ap.train.variable("x"), name="f")
    assert flat.infer(shapes={"x": (2, 4, 2)}).shapes["f_output"] == (2, 8)
    pieces = ap.train.op.Split(ap.train.variable("x"), [11, 9], axis=1, outputs=2, name="s")
    shapes = pieces.infer(shapes={"x": (10, 20)}).shapes
    assert (shapes["s_output0"], shapes["s_output1"]) == ((10, 11), (10, 9))
    joined = ap.train.op.Concat(ap.train.variable("x"), ap.train.variable("y"), axis=1, name="c")
    shapes = joined.infer(shapes={"x": (10, 20), "y": (10, 30)}).shapes
    assert shapes["c_output"] == (10, 50)


def test_a_sum_of_which_only_the_result_is_known_gives_both_operands() -> None:
    y = ap.train.op.Add(ap.train.variable("a"), ap.train.variable("b"), name="y")
    found = y.infer(shapes={"y_output": (2, 3)}).shapes
    assert found["a"] == found["b"] == (2, 3)


def test_contradictory_shapes_are_an_error_that_names_node_and_value() -> None:
    """K-01: NNVM accepts the shapes (2,3), (4,5), (6,7) of an addition."""
    y = ap.train.op.Add(ap.train.variable("a"), ap.train.variable("b"), name="y")
    with pytest.raises(ShapeMismatch, match=r"'y'.*\(2, 3\) and \(4, 5\)"):
        y.infer(shapes={"a": (2, 3), "b": (4, 5), "y_output": (6, 7)})
    with pytest.raises(
        ShapeMismatch, match=r"node 'y' \(Add\): .*'a' has shape \(2, 3\).*\(6, 7\)"
    ):
        y.infer(shapes={"a": (2, 3), "y_output": (6, 7)})
    with pytest.raises(ShapeMismatch, match=r"node 'r' \(Relu\)"):
        ap.train.op.Relu(ap.train.variable("x"), name="r").infer(
            shapes={"x": (2,), "r_output": (3,)}
        )
    with pytest.raises(ShapeMismatch, match="'b' holds int64, not float64"):
        y.infer(dtypes={"a": "float64", "b": "int64"})


def test_scalars_have_no_axes_that_relations_could_use() -> None:
    x = ap.train.variable("x")
    layers = ap.train.op.LayerNormalization(x, name="layer")
    assert layers.infer(shapes={"x": ()}).shapes["layer_Scale"] is None
    joined = ap.train.op.Concat(x, x, axis=0, name="joined")
    with pytest.raises(InvalidAttribute, match="'joined'"):
        joined.infer(shapes={"x": ()})


def test_an_array_that_is_added_to_itself_has_the_shape_of_the_sum() -> None:
    x = ap.train.variable("x")
    y = ap.train.op.Add(x, x, name="y")
    assert y.infer(shapes={"x": (None, 3), "y_output": (2, 3)}).shapes["x"] == (2, 3)


def test_scalars_and_empty_arrays_are_ordinary() -> None:
    """K-01: neither can be expressed in NNVM."""
    y = ap.train.op.Add(ap.train.variable("a", ()), ap.train.variable("b", (0, 3)), name="y")
    assert y.infer().shapes["y_output"] == (0, 3)
    with ap.Executor(y.graph()) as executor:
        found = executor.run({"a": np.float32(1), "b": np.zeros((0, 3), np.float32)})
    assert found["y_output"].shape == (0, 3)


def test_shapes_go_backward_through_a_network() -> None:
    x = ap.train.variable("x", (None, None, 8, 8))
    w = ap.train.variable("w", (16, 4, 3, 3))
    h = ap.train.op.Relu(ap.train.op.Conv(x, w, pads=[1, 1, 1, 1], name="conv"))
    h = ap.train.op.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2], name="pool")
    h = ap.train.op.Flatten(h, name="flat")
    y = ap.train.op.Gemm(h, ap.train.variable("v"), name="fc")
    found = y.infer(shapes={"fc_output": (32, 10)})
    assert found.shapes["x"] == (32, 4, 8, 8)
    assert found.shapes["v"] == (256, 10)
    assert found.unknown == ()


def test_a_shape_that_does_not_follow_is_named() -> None:
    y = ap.train.op.MatMul(ap.train.variable("x"), ap.train.variable("w"), name="y")
    with pytest.raises(UnknownShape, match=r"variable 'w' has shape \(5, None\)"):
        y.graph(shapes={"x": (2, 5)})
    with pytest.raises(UndefinedValue, match="no value 'z'; it has 'x', 'w', 'y_output'"):
        y.infer(shapes={"z": (1,)})


def test_types_go_both_ways() -> None:
    y = ap.train.op.Add(
        ap.train.variable("a"), ap.train.op.Cast(ap.train.variable("i"), to=11, name="c"), name="y"
    )
    found = y.infer(shapes={"a": (2,), "i": (2,)}, dtypes={"i": "int32"}).dtypes
    assert found == {
        "a": "float64", "i": "int32", "c_output": "float64", "y_output": "float64",
    }  # fmt: skip
    picked = ap.train.op.Gather(
        ap.train.variable("t", (3, 2)), ap.train.variable("k", (4,), "int64"), name="g"
    )
    assert picked.graph().find("g_output").shape == (4, 2)


def _network(draw: Any) -> tuple[ap.train.Symbol, dict[str, tuple[int, ...]]]:
    """A random chain of layers; the shapes of all values when all is known."""
    n, c, size = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(4, 6))
    h, known = ap.train.variable("x"), {"x": (n, c, size, size)}
    for layer in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["Conv", "Relu", "Add", "BatchNorm", "Transpose", "Pool"]))
        name = f"layer{layer}"
        if kind == "Conv":
            made = draw(st.integers(1, 3))
            known[f"{name}_w"] = (made, c, 3, 3)
            w = ap.train.variable(f"{name}_w")
            h = ap.train.op.Conv(h, w, kernel_shape=[3, 3], pads=[1] * 4, name=name)
            c = made
        elif kind == "Add":
            known[f"{name}_b"] = (n, c, size, size)
            h = ap.train.op.Add(h, ap.train.variable(f"{name}_b"), name=name)
        elif kind == "BatchNorm":
            names = [f"{name}_{k}" for k in "sbmv"]
            known.update(dict.fromkeys(names, (c,)))
            h = ap.train.op.BatchNormalization(h, *map(ap.train.variable, names), name=name)
        elif kind == "Transpose":
            h = ap.train.op.Transpose(h, perm=[0, 1, 3, 2], name=name)
        elif kind == "Pool":
            h = ap.train.op.MaxPool(h, kernel_shape=[3, 3], pads=[1] * 4, name=name)
        else:
            h = ap.train.op.Relu(h, name=name)
        known[f"{name}_output"] = (n, c, size, size)
    return h, known


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_filled_in_agrees_with_the_full_graph(data: st.DataObject) -> None:
    symbol, known = _network(data.draw)
    full = symbol.infer(shapes={k: s for k, s in known.items() if not k.endswith("_output")})
    assert full.unknown == ()
    assert full.shapes == known
    holes: dict[str, Any] = {}
    for name, shape in known.items():
        if data.draw(st.booleans()):
            holes[name] = tuple(d if data.draw(st.booleans()) else None for d in shape)
    for name, shape in symbol.infer(shapes=holes).shapes.items():
        for dim, expected in zip(shape or (), known[name], strict=False):
            assert dim in (None, expected), (name, shape, known[name])
        if shape is not None:
            assert len(shape) == len(known[name])


# -- symbols: order of mutations (NNVM, OrderMutation) --------------------------------------------


def test_upstream_order_of_mutations() -> None:
    x, w = ap.train.variable("x", (4,)), ap.train.variable("w", (4,))
    conv = ap.train.op.Mul(x, w, name="conv")
    add1 = ap.train.op.Add(conv, x, name="add1")
    assign = ap.train.op.Assign(x, add1, name="assign")
    add2 = ap.train.op.Add(add1, x, name="add2")
    assert assign.entries[0].vertex.inputs[0].version == 1
    assert add2.entries[0].vertex.inputs[1].version == 1
    graph = ap.train.group([add2, assign]).graph()
    made = {v: n.name for n in graph.nodes for v in n.outputs}
    reads = {n.name: [made.get(v, graph.values[v].name) for v in n.inputs] for n in graph.nodes}
    assert reads["add2"] == ["add1", "assign"]  # The content that `assign` has written.
    assert [(made[v], graph.values[x].name) for v, x in graph.write_backs] == [("assign", "x")]
    with ap.Executor(graph) as executor:
        executor.restore({"x": np.full(4, 3, np.float32)})
        found = executor.run({"w": np.full(4, 2, np.float32)}, verify=True)
        assert executor.states()["x"].tolist() == [9] * 4
    assert found["add2_output"].tolist() == [18] * 4  # add1 = 3 * 2 + 3, and the new x is that.


def test_a_variable_is_written_twice() -> None:
    x = ap.train.variable("x", (2,), kind="state")
    first = ap.train.op.Assign(x, ap.train.op.Add(x, 1.0), name="first")
    middle = ap.train.op.Neg(x, name="middle")
    second = ap.train.op.Assign(x, ap.train.op.Mul(x, 3.0), name="second")
    graph = ap.train.group([second, middle, first]).graph()
    with ap.Executor(graph) as executor:
        found = [executor.run({}, verify=True)["middle_output"].tolist() for _ in range(2)]
        assert executor.states()["x"].tolist() == [12, 12]
    assert found == [[-1, -1], [-4, -4]]


@pytest.mark.parametrize("flipped", [False, True])
def test_a_reader_before_an_assignment_reads_the_old_content(flipped: bool) -> None:
    """In NNVM that depends on the order of outputs (K-07)."""
    x = ap.train.variable("x", (2,), kind="state")
    reader = ap.train.op.Neg(x, name="reader")
    assign = ap.train.op.Assign(x, ap.train.op.Add(x, 1.0, name="more"), name="assign")
    heads = [assign, reader] if flipped else [reader, assign]
    graph = ap.train.group(heads).graph()
    with ap.Executor(graph) as executor:
        runs = [executor.run({}, verify=True)["reader_output"].tolist() for _ in range(3)]
    assert runs == [[0, 0], [-1, -1], [-2, -2]]


def test_only_variables_are_written() -> None:
    with pytest.raises(InvalidOperand, match="'state', which must be a variable"):
        ap.train.op.Assign(ap.train.op.Neg(ap.train.variable("x")), ap.train.variable("y"))
    x = ap.train.variable("x")
    assign = ap.train.op.Assign(x, ap.train.variable("y"))
    assert assign.arguments("states") == ["x"]
    assert assign.arguments("read_only") == ["y"]


# -- symbols: files -------------------------------------------------------------------------------


def test_files_hold_all_of_a_symbol() -> None:
    x = ap.train.variable("x", (None, 3), "float32", role="data")
    w = ap.train.variable("w", initial=np.arange(6, dtype=np.float32).reshape(3, 2))
    h = ap.train.op.Gemm(x, w, alpha=0.5, name="fc", labels={"stage": "1"})
    y = ap.train.op.Clip(ap.train.op.Add(h, [1.0, 2.0], name="add"), None, 3.0, name="clip")
    assign = ap.train.op.Assign(ap.train.variable("seen"), y, name="note")
    text = ap.train.group([y, assign]).to_json()
    again = ap.train.Symbol.from_json(text)
    assert again.to_json() == text
    assert again.labels() == {"x$role": "data", "fc$stage": "1"}
    document = json.loads(text)
    assert document["node_row_ptr"][-1] == len(again.internals())
    assert [document["nodes"][k]["name"] for k in document["arg_nodes"]] == again.arguments()
    graphs = [each.graph(shapes={"x": (4, None)}) for each in (again, ap.train.group([y, assign]))]
    assert graphs[0].digest == graphs[1].digest
    given = {"x": np.ones((4, 3), np.float32)}
    with ap.Executor(graphs[0]) as one, ap.Executor(graphs[1]) as other:
        np.testing.assert_array_equal(
            one.run(given)["clip_output"], other.run(given)["clip_output"]
        )
        np.testing.assert_array_equal(one.states()["seen"], other.states()["seen"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("nodes"), "nodes"),
        (lambda d: d["heads"].append([9, 0, 0]), "names no output"),
        (lambda d: d["nodes"][0].update(kind="thing"), "'thing'"),
        (lambda d: d["nodes"][1].update(inputs=[[1, 0, 0]]), "names no output"),
        (lambda d: d.update(format="nnvm"), "not a symbol"),
    ],
)
def test_damaged_files_are_refused(change: Any, message: str) -> None:
    document = json.loads(ap.train.op.Neg(ap.train.variable("x"), name="y").to_json())
    change(document)
    with raises("GraphCorrupt", match=message):
        ap.train.Symbol.from_json(json.dumps(document))


def test_a_file_with_an_unknown_operator_names_it() -> None:
    text = ap.train.op.Neg(ap.train.variable("x"), name="y").to_json().replace('"Neg"', '"Nagate"')
    with pytest.raises(UnsupportedOp, match="'Nagate'"):
        ap.train.Symbol.from_json(text)


def test_two_variables_of_one_name_make_no_graph() -> None:
    y = ap.train.op.Add(ap.train.variable("x", (2,)), ap.train.variable("x", (2,)))
    with raises("DuplicateName", match="'x'"):
        y.graph()


def test_a_symbol_is_trained() -> None:
    x, t = ap.train.variable("x", (8, 3)), ap.train.variable("t", dtype="int64")
    h = ap.train.op.Tanh(
        ap.train.op.Gemm(x, ap.train.variable("w", initial=np.eye(3, 4, dtype=np.float32)))
    )
    loss = ap.train.op.SoftmaxCrossEntropyLoss(h, t, name="loss")
    graph = loss.graph("net")
    assert graph.find("t").shape == (8,)
    train = ap.train.gradient(
        graph, of=graph.find("loss_output").index, wrt=[graph.find("w").index]
    )
    with ap.train.Trainer(ap.train.sgd(train, lr=0.5)) as trainer:
        batch = {"x": np.eye(8, 3, dtype=np.float32), "t": np.arange(8) % 3}
        losses = [trainer.step(batch)["loss_output"] for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
