"""
Malformed and hostile models: each is refused with an error that names the place.

Tests carry the row numbers of a list of bad inputs: A sizes and shapes, B structure of
the graph.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
import light_models
from arenaplan.base import errors
from arenaplan.formats.onnx import load_onnx
from models import (
    external,
    function,
    graph,
    int64,
    load_one,
    model,
    node,
    ops,
    refused,
    shapes,
    tensor,
    values,
)
from raising import raises

INT64 = TensorProto.INT64
HUGE = 1 << 62


# -- A: sizes and shapes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "dtype"),
    [
        pytest.param([1 << 40, 1 << 40], TensorProto.FLOAT, id="a01-elements-overflow"),
        pytest.param([1 << 31, 1 << 31], TensorProto.FLOAT, id="a02-bytes-overflow"),
        pytest.param([1 << 61], TensorProto.FLOAT, id="a03-more-than-isize"),
    ],
)
def test_sizes_that_overflow(dims: list[int], dtype: int) -> None:
    refused("SizeOverflow", model([node("Relu", "x", "y")], {"x": (dims, dtype)}), "'x'")
    stored = model([node("Relu", "w", "y")], weights={"w": tensor(dims, dtype, raw_data=b"")})
    refused("SizeOverflow", stored, "'w'")


def test_a01_sizes_that_overflow_in_between() -> None:
    proto = model([node("MatMul", "a b", "y")], {"a": [1 << 32, 1], "b": [1, 1 << 32]})
    refused("SizeOverflow", proto, "'y'")


@pytest.mark.parametrize("dims", [[0, HUGE, HUGE], [HUGE, HUGE, 0]])
def test_a04_a_zero_dimension_makes_the_others_harmless(dims: list[int]) -> None:
    imported = load_one("Relu", "x", given={"x": dims})
    assert ap.plan(imported, target="ideal").arena_bytes == 0


@pytest.mark.parametrize("dim", [-1, -4, -(1 << 63)])
def test_a07_negative_dimensions_are_unknown(dim: int) -> None:
    relu = [node("Relu", "x", "y")]
    refused(errors.UnboundDim, model(relu, {"x": [dim, 3]}), "'x'", "bind=")
    bound = load_onnx(model(relu, {"x": [dim, 3]}, {"y": [dim, 3]}), bind={"x": (2, 3)})
    assert [value.shape for value in bound.values] == [(2, 3)] * 2
    followed = load_onnx(model(relu, {"x": [3]}, {"y": [dim]}))
    assert [value.shape for value in followed.values] == [(3,)] * 2


def test_a08_symbols_without_a_number() -> None:
    proto = model([node("Relu", "x", "y")], {"x": ["batch", 3]})
    refused(errors.UnboundDim, proto, "'batch'", "'x'")
    refused(errors.UnboundDim, model([node("Relu", "x", "y")], {"x": [None, 3]}), "'x'", "bind=")
    refused(errors.UnknownDim, proto, "'bach'", "'batch'", bind={"bach": 1})
    refused(errors.UnknownDim, proto, "'z'", "'x'", bind={"z": (1, 3)})


def test_a09_a_symbol_with_two_numbers() -> None:
    proto = model([node("Add", "a b", "y")], {"a": ["n", 3], "b": ["n", 1]})
    refused("DimConflict", proto, "'n'", bind={"a": (2, 3), "b": (4, 1)})
    refused("DimConflict", proto, "'n'", bind={"n": 2, "b": (4, 1)})
    refused("DimConflict", proto, "'a'", bind={"a": (2, 4), "n": 2})
    refused("DimConflict", proto, "'a'", bind={"a": (2,), "n": 2})


@pytest.mark.parametrize("number", [True, 1.5, "12", None, float("nan")])
def test_a13_numbers_that_are_none(number: object) -> None:
    proto = model([node("Relu", "x", "y")], {"x": ["n"]})
    with pytest.raises(TypeError, match="whole number"):
        load_onnx(proto, bind={"n": number})  # type: ignore[dict-item]


def test_a07_bound_numbers_are_not_negative() -> None:
    refused("InvalidDim", model([node("Relu", "x", "y")], {"x": ["n"]}), "'n'", bind={"n": -1})


def test_a10_zero_dimensions() -> None:
    imported = load_one("Concat", "a b", given={"a": [0, 3], "b": [2, 3]}, axis=0)
    assert shapes(imported) == {"y": (2, 3)}
    assert shapes(load_one("MatMul", "a b", given={"a": [2, 0], "b": [0, 3]})) == {"y": (2, 3)}


def test_a11_scalars() -> None:
    imported = load_one("Add", "a b", given={"a": [], "b": []})
    assert shapes(imported) == {"y": ()}
    assert ap.plan(imported, alignment=1, target="ideal").naive_bytes == 12


def test_a12_more_dimensions_than_an_array_has() -> None:
    assert ap.plan(load_one("Relu", "x", given={"x": [1] * 65}), target="ideal").arena_bytes
    refused("RankTooLarge", model([node("Relu", "x", "y")], {"x": [1] * 2000}), "2000")


def test_a19_types_without_a_size() -> None:
    text = model([node("Identity", "x", "y")], {"x": ([2], TensorProto.STRING)})
    refused(errors.UnsupportedDtype, text, "'x'", "strings")
    stored = tensor([1], TensorProto.STRING, string_data=[b"a"])
    refused(errors.UnsupportedDtype, model([node("Identity", "w", "y")], weights={"w": stored}))
    constant = model([node("Constant", "", "y", value_strings=["a"])])
    refused(errors.UnsupportedDtype, constant, "'y'")
    read = model([node("SequenceConstruct", "x", "s"), node("Neg", "s", "y")], {"x": [2]})
    refused(errors.UnsupportedDtype, read, "'y'", "sequence")
    for kind in (
        helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2])),
        helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2])),
        helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(1, [2])),
        helper.make_sparse_tensor_type_proto(1, [2]),
    ):
        proto = model([node("Identity", "x", "y")], {"x": [2]})
        proto.graph.input[0].type.CopyFrom(kind)
        refused(errors.UnsupportedDtype, proto, "'x'")


@pytest.mark.parametrize("code", [999, 27, -1, 8])
def test_a20_types_that_nobody_knows(code: int) -> None:
    proto = model([node("Identity", "x", "y")], {"x": [2]})
    proto.graph.input[0].type.tensor_type.elem_type = code
    refused(errors.UnsupportedDtype, proto, "'x'")
    stored = model([node("Identity", "w", "y")], weights={"w": tensor([1], code)})
    refused(errors.UnsupportedDtype, stored, "'w'")
    cast = model([node("Cast", "x", "y", to=code)], {"x": [2]})
    refused(errors.UnsupportedDtype, cast, "'y'")


# -- B: structure ------------------------------------------------------------------------


def test_b01_a_circle_of_two() -> None:
    nodes = [
        node("Add", "x b", "a", name="first"),
        node("Neg", "a", "b", name="second"),
        node("Neg", "b", "y", name="after"),
    ]
    refused("GraphCycle", model(nodes, {"x": [2]}), "'first'", "'second'")


def test_b01_a_large_circle_is_not_listed_whole() -> None:
    nodes = [node("Neg", f"v{i}", f"v{(i + 1) % 100}", name=f"n{i}") for i in range(100)]
    with raises("GraphCycle", match="and 90 more") as caught:
        load_onnx(model(nodes, outputs="v0"))
    assert str(caught.value).count("'n") == 10


def test_b02_a_node_that_reads_itself() -> None:
    loop = node("Add", "x y", "y", name="loop")
    refused("GraphCycle", model([loop], {"x": [2]}), "'loop'")


def test_b03_nodes_in_another_order_move_back_only_as_far_as_they_must() -> None:
    nodes = [
        node("Neg", "c", "y"),
        node("Abs", "x", "a"),
        node("Exp", "b", "c"),
        node("Log", "x", "d"),
        node("Sin", "a", "b"),
    ]
    imported = load_onnx(model(nodes, {"x": [2]}, "y d"))
    assert ops(imported) == ["Abs", "Log", "Sin", "Exp", "Neg"]


def test_b04_b05_b06_names_that_are_produced_twice() -> None:
    given = {"x": [2, 2]}
    twice = [node("Neg", "x", "y", name="n1"), node("Abs", "x", "y", name="n2")]
    refused("DuplicateProducer", model(twice, given), "'y'", "'n2'")
    unsorted_twice = [node("Exp", "y", "z"), *twice]
    refused("DuplicateProducer", model(unsorted_twice, given, "z"), "'y'")
    both = [node("Split", "x", "y y", name="n1")]
    refused("DuplicateProducer", model(both, given), "'y'", "'n1'")
    refused("DuplicateProducer", model([node("Neg", "x", "x")], given, "x"), "'x'")
    weight = model([node("Neg", "x", "w")], given, "w", {"w": np.ones(2, "f")})
    refused("DuplicateProducer", weight, "'w'")
    constant = model([node("Shape", "x", "w")], given, "w", {"w": np.ones(2, "f")})
    refused("DuplicateProducer", constant, "'w'")


def test_b07_names_that_are_declared_twice() -> None:
    proto = model([node("Add", "x w", "y")], {"x": [2]}, weights={"w": np.ones(2, "f")})
    proto.graph.initializer.append(proto.graph.initializer[0])
    refused("DuplicateName", proto, "'w'")
    proto = model([node("Neg", "x", "y")], {"x": [2]})
    proto.graph.input.append(proto.graph.input[0])
    refused("DuplicateName", proto, "'x'")
    refused("DuplicateName", model([node("Neg", "x", "y")], {"x": [2]}, "y y"), "'y'")
    same = function("F", "a", "b", [node("Neg", "a", "b")])
    twice = model([node("Neg", "x", "y")], {"x": [2]}, functions=[same, same])
    refused("DuplicateName", twice, "local::F")


def test_b08_inputs_that_nothing_produces() -> None:
    proto = model([node("Add", "x ghost", "y", name="sum")], {"x": [2]})
    refused(errors.UndefinedValue, proto, "'sum'", "'ghost'")
    branch = graph([node("Neg", "ghost", "r")], outputs="r")
    proto = model(
        [node("If", "c", "y", then_branch=branch, else_branch=branch)],
        weights={"c": np.array(True)},
    )
    refused(errors.UndefinedValue, proto, "'ghost'")
    body = function("F", "a", "b", [node("Add", "a ghost", "b")])
    call = [node("F", "x", "y", domain="local")]
    calling = model(call, {"x": [2]}, functions=[body], domains={"local": 1})
    refused(errors.UndefinedValue, calling, "'ghost'")


def test_b09_outputs_that_are_never_produced() -> None:
    proto = model([node("Neg", "x", "y")], {"x": [2]}, "y ghost")
    refused(errors.UndefinedValue, proto, "'ghost'")
    body = function("F", "a", "b", [node("Neg", "a", "c")])
    call = [node("F", "x", "y", domain="local")]
    calling = model(call, {"x": [2]}, functions=[body], domains={"local": 1})
    refused(errors.UndefinedValue, calling, "'b'", "'y'")


def test_b10_outputs_that_are_inputs_or_constants() -> None:
    imported = load_onnx(model([], {"x": [2]}, "x w", {"w": np.ones(3, "f")}))
    assert shapes(imported) == {"x": (2,), "w": (3,)}
    assert ap.plan(imported, target="ideal").arena_bytes == 64
    np.testing.assert_array_equal(imported.data(imported.outputs[1]), np.ones(3))


def test_b11_values_that_nobody_reads() -> None:
    imported = load_onnx(model([node("Neg", "x", "lost"), node("Abs", "x", "y")], {"x": [2]}))
    assert imported.warnings == ["nothing reads 'lost'"]
    assert ap.plan(imported, target="ideal").arena_bytes


def test_b12_empty_names() -> None:
    unnamed = values({"": [2]})
    proto = model([node("Neg", "x", "y")], {"x": [2]})
    proto.graph.input.extend(unnamed)
    refused("InvalidName", proto)
    missing = model([helper.make_node("Add", ["x", ""], ["y"], name="sum")], {"x": [2]})
    refused(errors.InvalidOperand, missing, "'sum'", "input 1")
    for outputs in ([], [""]):
        proto = model([helper.make_node("Neg", ["x"], outputs)], {"x": [2]}, "")
        if outputs:
            assert load_onnx(proto).nodes[0].outputs == (None,)
        else:
            refused(errors.InvalidOperand, proto, "no outputs")


@pytest.mark.parametrize(
    "name", ["a\0b", "a\nb", "x" * 1_000_000, "‮abc", "é", "e\N{COMBINING ACUTE ACCENT}"]
)
def test_b13_b14_names_are_only_compared(name: str) -> None:
    proto = model([node("Neg", ["x"], [name]), node("Abs", [name], ["y"])], {"x": [2]})
    assert load_onnx(proto).nodes[0].outputs == load_onnx(proto).nodes[1].inputs
    proto.graph.node[1].input[0] = name + "!"
    with pytest.raises(errors.UndefinedValue) as caught:
        load_onnx(proto)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


def test_b13_names_that_are_no_text() -> None:
    data = model([node("Neg", "x", "yy")], {"x": [2]}, "yy").SerializeToString()
    with pytest.raises(errors.NotAModel):
        load_onnx(data.replace(b"yy", b"\xff\xfe"))


def test_b20_branches_nested_too_deep() -> None:
    branch = graph([node("Relu", "x", "r0")], outputs="r0")
    for depth in range(1, 33):
        branch = graph([node("If", "c", f"r{depth}", then_branch=branch)], outputs=f"r{depth}")
    proto = model(list(branch.node), {"x": [1]}, "r32", {"c": np.array(True)})
    refused("NestingTooDeep", proto, "30")


def test_b20_files_that_nest_too_deep() -> None:
    # Deeper than the library itself can write: a graph in an attribute in a node, by hand.
    data = graph([node("Relu", "x", "y")], {"x": [1]}).SerializeToString()

    def field(number: int, content: bytes) -> bytes:
        size, length = [], len(content)
        while length >= 128:
            size.append(length % 128 + 128)
            length //= 128
        return bytes([number * 8 + 2, *size, length]) + content

    for _ in range(40):
        attribute = field(1, b"then_branch") + field(6, data) + bytes([20 * 8 % 128 + 128, 1, 5])
        data = field(1, field(4, b"If") + field(5, attribute))
    with raises(("NestingTooDeep", errors.NotAModel)):
        load_onnx(bytes([8, 10]) + field(7, data))


def test_branches_that_depend_on_data() -> None:
    branch = graph([node("Neg", "x", "r")], outputs="r")
    longer = graph([node("Concat", "x x", "r", axis=0)], outputs="r")
    proto = model(
        [node("If", "c", "y", name="choice", then_branch=branch, else_branch=longer)],
        {"x": [2], "c": ([], TensorProto.BOOL)},
    )
    refused(errors.UnsupportedSubgraph, proto, "'choice'", "'c'", "(2,)", "(4,)")
    body = graph(
        [node("Identity", "go", "on"), node("Neg", "v", "w")],
        {"i": ([], INT64), "go": ([], TensorProto.BOOL), "v": [2]},
        "on w",
    )
    loop = model(
        [node("Loop", "n go x x", "y z", name="again", body=body)],
        {"x": [2]},
        weights={"n": np.array(3), "go": np.array(True)},
    )
    refused(errors.InvalidOperand, loop, "'again'", "3 inputs instead of 4")
    custom = helper.make_node("Own", ["x"], ["y"], domain="own", name="hidden", body=body)
    proto = model([custom], {"x": [2]}, {"y": [2]}, domains={"own": 1})
    refused(errors.UnsupportedSubgraph, proto, "'hidden'")


def test_branches_that_are_missing() -> None:
    proto = model([node("If", "c", "y")], weights={"c": np.array(True)})
    refused(errors.InvalidAttribute, proto, "then_branch")
    branch = graph([node("Neg", "x", "r")], outputs="r")
    short = model(
        [node("If", "c", "y z", then_branch=branch, else_branch=branch)],
        {"x": [2]},
        weights={"c": np.array(True)},
    )
    refused(errors.InvalidOperand, short, "then_branch")


def test_b23_functions_that_call_themselves() -> None:
    first = function("F", "a", "b", [node("G", "a", "b", domain="local")])
    second = function("G", "a", "b", [node("F", "a", "b", domain="local")])
    proto = model(
        [node("F", "x", "y", domain="local")],
        {"x": [2]},
        functions=[first, second],
        domains={"local": 1},
    )
    refused("FunctionCycle", proto, "local::F", "local::G")


def test_b24_functions_that_expand_without_end() -> None:
    leaf = function("F0", "a", "b", [node("Neg", "a", "b")])
    doubled = [
        function(
            f"F{k}",
            "a",
            "b",
            [
                node(f"F{k - 1}", "a", "c", domain="local"),
                node(f"F{k - 1}", "c", "b", domain="local"),
            ],
        )
        for k in range(1, 61)
    ]
    proto = model(
        [node("F60", "x", "y", domain="local")],
        {"x": [2]},
        functions=[leaf, *doubled],
        domains={"local": 1},
    )
    start = time.process_time()
    refused("BudgetExceeded", proto)
    assert time.process_time() - start < 20


def test_functions_are_called_with_their_operands() -> None:
    body = function("F", "a", "b", [node("Neg", "a", "b")])
    for inputs, outputs in (("x x", "y"), ("x", "y z")):
        proto = model(
            [node("F", inputs, outputs, domain="local")],
            {"x": [2]},
            functions=[body],
            domains={"local": 1},
        )
        refused(errors.InvalidOperand, proto, "local::F")


def test_b25_a_long_chain_needs_no_stack() -> None:
    steps = 100_000
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in range(steps)]
    data = model(nodes, {"v0": [4]}, f"v{steps}").SerializeToString()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(120)
    try:
        imported = load_onnx(data)
    finally:
        sys.setrecursionlimit(limit)
    assert len(imported.nodes) == steps
    assert ap.plan(imported, target="ideal").arena_bytes == 128


def test_b25_a_long_chain_in_reverse_order_is_sorted() -> None:
    steps = 20_000
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in reversed(range(steps))]
    imported = load_onnx(model(nodes, {"v0": [4]}, f"v{steps}"))
    assert imported.nodes[0].inputs == (0,)


# -- any damage ------------------------------------------------------------------------


def small_models() -> list[bytes]:
    """Return models that between them use most of the importer."""
    body = function("F", "a", "b", [node("Neg", "a", "c"), node("Exp", "c", "b")])
    branch = graph([node("Add", "h w", "r")], outputs={"r": [2, 6]}, weights={"w": np.ones(6, "f")})
    varied = model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Concat", "n minus", "t", axis=0),
            node("Reshape", "x t", "f"),
            node("F", "f", "h", domain="local"),
            node("If", "c", "i", then_branch=branch, else_branch=branch),
            node("Split", "i", "j k", axis=1, num_outputs=2),
            node("Concat", "k j", "l", axis=1),
            node("Softmax", "l", "y", axis=-1),
        ],
        {"x": [2, 2, 3]},
        {"y": [2, 6]},
        {"zero": int64(0), "minus": int64(-1), "c": np.array(True)},
        functions=[body],
        domains={"local": 1},
    )
    network = model(
        [
            node("Conv", "x w b", "h", pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]),
            node("Relu", "h", "i"),
            node("MaxPool", "i", "j", kernel_shape=[2, 2], ceil_mode=1),
            node("Resize", "j _ r", "k"),
            node("Einsum", "k k", "y", equation="nchw,nchw->nc"),
        ],
        {"x": ["n", 2, 6, 6]},
        weights={
            "w": np.ones((4, 2, 3, 3), "f"),
            "b": external([4], location="b.bin", offset=8, length=16),
            "r": np.array([1, 1, 2, 2], "f"),
        },
    )
    return [varied.SerializeToString(), network.SerializeToString()]


BIND = ({}, {"x": (1, 2, 6, 6)})
"""Shapes for the inputs of the small models."""


def survives(data: bytes, bind: dict[str, Any]) -> str:
    """Import and plan damaged data; return the kind of the error, or nothing."""
    try:
        ap.plan(load_onnx(data, bind=bind), target="ideal")
    except errors.InternalError:
        raise
    except errors.PlannerError as error:
        return error.kind
    return ""


def test_models_cut_anywhere_are_refused_or_read() -> None:
    for data, bind in zip(small_models(), BIND, strict=True):
        assert survives(data, bind) == ""
        for length in range(len(data)):
            survives(data[:length], bind)


def test_models_with_any_bit_flipped_are_refused_or_read() -> None:
    seen = set()
    for data, bind in zip(small_models(), BIND, strict=True):
        for position in range(len(data)):
            for bit in (0, 3, 6, 7):
                damaged = bytearray(data)
                damaged[position] ^= 1 << bit
                seen.add(survives(bytes(damaged), bind))
    assert len(seen) > 15


def test_models_with_many_random_bytes_are_refused_or_read() -> None:
    rng = random.Random(0)
    for data, bind in zip(small_models(), BIND, strict=True):
        for _ in range(1000):
            damaged = bytearray(data)
            for _ in range(rng.randrange(1, 6)):
                damaged[rng.randrange(len(data))] = rng.randrange(256)
            survives(bytes(damaged), bind)


def test_importing_needs_no_deep_stack() -> None:
    code = (
        "import sys, threading, arenaplan as ap\n"
        "import arenaplan.formats.onnx\n"
        "threading.stack_size(256 * 1024)\n"
        "thread = threading.Thread(target=lambda: print(ap.load(sys.argv[1])))\n"
        "thread.start(); thread.join()"
    )
    command = [sys.executable, "-c", code, str(light_models.path("densenet121"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "668 nodes" in done.stdout
