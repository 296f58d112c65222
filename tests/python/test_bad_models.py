"""
Malformed and hostile models: each is refused with an error that names the place.

Tests carry the row numbers of a list of bad inputs: A sizes and shapes, B structure of
the graph, D model files.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
import light_models
from arenaplan import errors
from arenaplan.importers.onnx import load_onnx
from models import external, function, graph, load_one, model, node, ops, shapes, tensor, values

INT64 = TensorProto.INT64
HUGE = 1 << 62


def refused(
    error: type[errors.PlannerError], proto: onnx.ModelProto, *names: str, **options: Any
) -> None:
    """Check that a model is refused with an error that has the given words."""
    with pytest.raises(error) as caught:
        load_onnx(proto, **options)
    assert type(caught.value) is error
    for name in names:
        assert name in str(caught.value)


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
    refused(errors.SizeOverflow, model([node("Relu", "x", "y")], {"x": (dims, dtype)}), "'x'")
    stored = model([node("Relu", "w", "y")], weights={"w": tensor(dims, dtype, raw_data=b"")})
    refused(errors.SizeOverflow, stored, "'w'")


def test_a01_sizes_that_overflow_in_between() -> None:
    proto = model([node("MatMul", "a b", "y")], {"a": [1 << 32, 1], "b": [1, 1 << 32]})
    refused(errors.SizeOverflow, proto, "'y'")


@pytest.mark.parametrize("dims", [[0, HUGE, HUGE], [HUGE, HUGE, 0]])
def test_a04_a_zero_dimension_makes_the_others_harmless(dims: list[int]) -> None:
    imported = load_one("Relu", "x", given={"x": dims})
    assert ap.plan(imported).arena_bytes == 0


@pytest.mark.parametrize("dim", [-1, -4, -(1 << 63)])
def test_a07_negative_dimensions_are_never_dynamic(dim: int) -> None:
    relu = [node("Relu", "x", "y")]
    refused(errors.InvalidDim, model(relu, {"x": [dim, 3]}), "'x'", str(dim))
    refused(errors.InvalidDim, model(relu, {"x": [3]}, {"y": [dim]}), "'y'", str(dim))
    refused(errors.InvalidDim, model(relu, {"x": [dim]}), bind={"x": (3,)})


def test_a08_symbols_without_a_number() -> None:
    proto = model([node("Relu", "x", "y")], {"x": ["batch", 3]})
    refused(errors.UnboundDim, proto, "'batch'", "'x'")
    refused(errors.UnboundDim, model([node("Relu", "x", "y")], {"x": [None, 3]}), "'x'", "bind=")
    refused(errors.UnknownDim, proto, "'bach'", "'batch'", bind={"bach": 1})
    refused(errors.UnknownDim, proto, "'z'", "'x'", bind={"z": (1, 3)})


def test_a09_a_symbol_with_two_numbers() -> None:
    proto = model([node("Add", "a b", "y")], {"a": ["n", 3], "b": ["n", 1]})
    refused(errors.DimConflict, proto, "'n'", bind={"a": (2, 3), "b": (4, 1)})
    refused(errors.DimConflict, proto, "'n'", bind={"n": 2, "b": (4, 1)})
    refused(errors.DimConflict, proto, "'a'", bind={"a": (2, 4), "n": 2})
    refused(errors.DimConflict, proto, "'a'", bind={"a": (2,), "n": 2})


@pytest.mark.parametrize("number", [True, 1.5, "12", None, float("nan")])
def test_a13_numbers_that_are_none(number: object) -> None:
    proto = model([node("Relu", "x", "y")], {"x": ["n"]})
    with pytest.raises(TypeError, match="whole number"):
        load_onnx(proto, bind={"n": number})  # type: ignore[dict-item]


def test_a07_bound_numbers_are_not_negative() -> None:
    refused(errors.InvalidDim, model([node("Relu", "x", "y")], {"x": ["n"]}), "'n'", bind={"n": -1})


def test_a10_zero_dimensions() -> None:
    imported = load_one("Concat", "a b", given={"a": [0, 3], "b": [2, 3]}, axis=0)
    assert shapes(imported) == {"y": (2, 3)}
    assert shapes(load_one("MatMul", "a b", given={"a": [2, 0], "b": [0, 3]})) == {"y": (2, 3)}


def test_a11_scalars() -> None:
    imported = load_one("Add", "a b", given={"a": [], "b": []})
    assert shapes(imported) == {"y": ()}
    assert ap.plan(imported, alignment=1).naive_bytes == 12


def test_a12_more_dimensions_than_an_array_has() -> None:
    assert ap.plan(load_one("Relu", "x", given={"x": [1] * 65})).arena_bytes
    refused(errors.RankTooLarge, model([node("Relu", "x", "y")], {"x": [1] * 2000}), "2000")


def test_a19_types_without_a_size() -> None:
    text = model([node("Identity", "x", "y")], {"x": ([2], TensorProto.STRING)})
    refused(errors.UnsupportedDtype, text, "'x'", "strings")
    stored = tensor([1], TensorProto.STRING, string_data=[b"a"])
    refused(errors.UnsupportedDtype, model([node("Identity", "w", "y")], weights={"w": stored}))
    constant = model([node("Constant", "", "y", value_strings=["a"])])
    refused(errors.UnsupportedDtype, constant, "'y'")
    made = model([node("SequenceConstruct", "x", "y")], {"x": [2]})
    refused(errors.UnsupportedDtype, made, "'y'", "sequence")
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
    refused(errors.GraphCycle, model(nodes, {"x": [2]}), "'first'", "'second'")


def test_b01_a_large_circle_is_not_listed_whole() -> None:
    nodes = [node("Neg", f"v{i}", f"v{(i + 1) % 100}", name=f"n{i}") for i in range(100)]
    with pytest.raises(errors.GraphCycle, match="and 90 more") as caught:
        load_onnx(model(nodes, outputs="v0"))
    assert str(caught.value).count("'n") == 10


def test_b02_a_node_that_reads_itself() -> None:
    loop = node("Add", "x y", "y", name="loop")
    refused(errors.GraphCycle, model([loop], {"x": [2]}), "'loop'")


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
    refused(errors.DuplicateProducer, model(twice, given), "'y'", "'n2'")
    unsorted_twice = [node("Exp", "y", "z"), *twice]
    refused(errors.DuplicateProducer, model(unsorted_twice, given, "z"), "'y'")
    both = [node("Split", "x", "y y", name="n1")]
    refused(errors.DuplicateProducer, model(both, given), "'y'", "'n1'")
    refused(errors.DuplicateProducer, model([node("Neg", "x", "x")], given, "x"), "'x'")
    weight = model([node("Neg", "x", "w")], given, "w", {"w": np.ones(2, "f")})
    refused(errors.DuplicateProducer, weight, "'w'")
    constant = model([node("Shape", "x", "w")], given, "w", {"w": np.ones(2, "f")})
    refused(errors.DuplicateProducer, constant, "'w'")


def test_b07_names_that_are_declared_twice() -> None:
    proto = model([node("Add", "x w", "y")], {"x": [2]}, weights={"w": np.ones(2, "f")})
    proto.graph.initializer.append(proto.graph.initializer[0])
    refused(errors.DuplicateName, proto, "'w'")
    proto = model([node("Neg", "x", "y")], {"x": [2]})
    proto.graph.input.append(proto.graph.input[0])
    refused(errors.DuplicateName, proto, "'x'")
    refused(errors.DuplicateName, model([node("Neg", "x", "y")], {"x": [2]}, "y y"), "'y'")
    same = function("F", "a", "b", [node("Neg", "a", "b")])
    twice = model([node("Neg", "x", "y")], {"x": [2]}, functions=[same, same])
    refused(errors.DuplicateName, twice, "local::F")


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
    assert ap.plan(imported).arena_bytes == 64
    np.testing.assert_array_equal(imported.data(imported.outputs[1]), np.ones(3))


def test_b11_values_that_nobody_reads() -> None:
    imported = load_onnx(model([node("Neg", "x", "lost"), node("Abs", "x", "y")], {"x": [2]}))
    assert imported.warnings == ["nothing reads 'lost'"]
    assert ap.plan(imported).arena_bytes


def test_b12_empty_names() -> None:
    unnamed = values({"": [2]})
    proto = model([node("Neg", "x", "y")], {"x": [2]})
    proto.graph.input.extend(unnamed)
    refused(errors.InvalidName, proto)
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
    refused(errors.NestingTooDeep, proto, "30")


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
    with pytest.raises((errors.NestingTooDeep, errors.NotAModel)):
        load_onnx(bytes([8, 10]) + field(7, data))


def test_branches_that_depend_on_data() -> None:
    branch = graph([node("Neg", "x", "r")], outputs="r")
    proto = model(
        [node("If", "c", "y", name="choice", then_branch=branch, else_branch=branch)],
        {"x": [2], "c": ([], TensorProto.BOOL)},
    )
    refused(errors.UnsupportedSubgraph, proto, "'choice'", "'c'")
    body = graph(
        [node("Identity", "go", "on"), node("Neg", "v", "w")],
        {"i": ([], INT64), "go": ([], TensorProto.BOOL), "v": [2]},
        "on w",
    )
    loop = model(
        [node("Loop", "n go x", "y", name="again", body=body)],
        {"x": [2]},
        weights={"n": np.array(3), "go": np.array(True)},
    )
    refused(errors.UnsupportedSubgraph, loop, "'again'")
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
    refused(errors.FunctionCycle, proto, "local::F", "local::G")


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
    refused(errors.BudgetExceeded, proto)
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
    assert ap.plan(imported).arena_bytes == 128


def test_b25_a_long_chain_in_reverse_order_is_sorted() -> None:
    steps = 20_000
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in reversed(range(steps))]
    imported = load_onnx(model(nodes, {"v0": [4]}, f"v{steps}"))
    assert imported.nodes[0].inputs == (0,)


# -- D: model files --------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"x", bytes(range(256)), b"\x89PNG\r\n\x1a\n" + bytes(64), b"\x08\x0a", b"{}"],
)
def test_d01_files_that_are_no_models(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    with pytest.raises(errors.NotAModel, match=r"net\.onnx"):
        ap.load(path)


def test_d01_files_of_other_formats(tmp_path: Path) -> None:
    with pytest.raises(errors.NotAModel, match=r"\.png.*\.onnx"):
        ap.load(tmp_path / "net.png")
    with pytest.raises(FileNotFoundError):
        ap.load(tmp_path / "net.onnx")
    with pytest.raises((IsADirectoryError, PermissionError)):
        load_onnx(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.timeout(20)
def test_d01_pipes_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    os.mkfifo(path)
    with pytest.raises(errors.NotAModel, match="plain file"):
        ap.load(path)


def stored_in(folder: Path, stored: TensorProto, where: str = "initializer") -> Path:
    """Save a model that keeps ``stored`` in one of four places, and return its path."""
    constant = helper.make_node("Constant", [], ["w"], value=stored)
    use = node("Add", "x w", "y")
    given = {"x": list(stored.dims)}
    if where == "initializer":
        proto = model([use], given, weights={"w": stored})
    elif where == "constant":
        proto = model([constant, use], given)
    elif where == "function":
        body = function("F", "x", "y", [constant, use])
        call = [node("F", "x", "y", domain="local")]
        proto = model(call, given, functions=[body], domains={"local": 1})
    else:
        branch = graph([use], outputs="y", weights={"w": stored})
        decided = [node("If", "c", "y", then_branch=branch, else_branch=branch)]
        proto = model(decided, given, weights={"c": np.array(True)})
    path = folder / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def load_weight(path: Path) -> np.ndarray:
    """Import a model and load its only constant."""
    imported = ap.load(path)
    (constant,) = [value for value in imported.values if value.kind == "constant"]
    return imported.data(constant.index)


PLACES = ["initializer", "constant", "function", "branch"]


@pytest.mark.parametrize("where", PLACES, ids=[f"d05-{where}" for where in PLACES])
@pytest.mark.parametrize(
    "location",
    [
        "../w.bin",
        "a/../../w.bin",
        "a/..",
        "/etc/hostname",
        "C:\\w.bin",
        "c:/w.bin",
        "\\\\host\\share\\w.bin",
        "sub\\w.bin",
        "w.bin\0.txt",
        "",
        ".",
        "./",
    ],
)
def test_d02_locations_outside_the_folder(location: str, where: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(8))
    path = stored_in(folder, external([2], location=location), where)
    with pytest.raises(errors.ExternalDataPath, match="w"):
        ap.load(path)


def test_d02_sparse_tensors_are_checked_before_they_are_refused() -> None:
    proto = model([node("Relu", "x", "y")], {"x": [2]})
    sparse = proto.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(external([2], location="../w.bin"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([0, 1])))
    refused(errors.ExternalDataPath, proto, "../w.bin")
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.ones(2, "f"), "thin"))
    refused(errors.UnsupportedDtype, proto, "'thin'")


@pytest.fixture
def outside(tmp_path: Path) -> tuple[Path, Path]:
    """Return a model's folder, and a file beside it that the model must not read."""
    folder, secret = tmp_path / "model", tmp_path / "secret"
    folder.mkdir()
    secret.write_bytes(bytes(8))
    return folder, secret


@pytest.mark.parametrize("where", PLACES, ids=[f"d05-{where}" for where in PLACES])
@pytest.mark.parametrize("kind", ["symlink", "folder", "hardlink", "fifo", "device", "directory"])
@pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and devices")
@pytest.mark.timeout(20)
def test_d03_files_that_are_not_what_they_seem(
    kind: str, where: str, outside: tuple[Path, Path]
) -> None:
    folder, secret = outside
    location = "w.bin"
    if kind == "symlink":
        (folder / "w.bin").symlink_to(secret)
    elif kind == "folder":
        (folder / "sub").symlink_to(secret.parent)
        location = "sub/secret"
    elif kind == "hardlink":
        (folder / "w.bin").hardlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(folder / "w.bin")
    elif kind == "device":
        (folder / "w.bin").symlink_to("/dev/zero")
    else:
        (folder / "w.bin").mkdir()
    path = stored_in(folder, external([2], location=location), where)
    assert ap.plan(ap.load(path)).arena_bytes == 128
    with pytest.raises(errors.ExternalDataPath, match=r"'w'|w\.value|/w|\.value"):
        load_weight(path)


@pytest.mark.parametrize("where", PLACES, ids=[f"d05-{where}" for where in PLACES])
@pytest.mark.parametrize(
    "entries",
    [
        {"offset": -8},
        {"offset": 8},
        {"offset": 1},
        {"length": HUGE},
        {"length": -8},
        {"offset": (1 << 63) - 4},
        {"offset": 1 << 64},
        {"offset": "eight"},
        {"offset": "9" * 5000},
        {"length": "0x8"},
    ],
    ids=str,
)
def test_d04_ranges_outside_the_file(entries: dict[str, Any], where: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(8))
    path = stored_in(tmp_path, external([2], location="w.bin", **entries), where)
    with pytest.raises(errors.ExternalDataRange):
        load_weight(path)


def test_d04_external_data_of_another_size_than_the_tensor(tmp_path: Path) -> None:
    path = stored_in(tmp_path, external([2], location="w.bin", length=12))
    with pytest.raises(errors.TensorPayloadMismatch, match=r"12 .* 8"):
        ap.load(path)


def test_external_data_that_is_not_there(tmp_path: Path) -> None:
    path = stored_in(tmp_path, external([2], location="sub/w.bin"))
    with pytest.raises(errors.ExternalDataMissing, match="does not exist"):
        load_weight(path)
    imported = load_onnx(path.read_bytes())
    with pytest.raises(errors.ExternalDataMissing, match="not read from a file"):
        imported.data(imported.find("w").index)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"")
    with pytest.raises(errors.ExternalDataRange):
        load_weight(path)


@pytest.mark.parametrize(
    "stored",
    [
        tensor([3], raw_data=bytes(11)),
        tensor([3], raw_data=bytes(13)),
        tensor([3], raw_data=b""),
        tensor([3]),
        tensor([3], float_data=[1, 2]),
        tensor([3], float_data=[1, 2, 3, 4]),
        tensor([0], float_data=[1]),
        tensor([3], TensorProto.INT64, int32_data=[1, 2, 3]),
        tensor([2], TensorProto.COMPLEX64, float_data=[1, 2]),
        tensor([3], TensorProto.INT4, raw_data=b"\0"),
        tensor([3], TensorProto.INT4, int32_data=[1]),
        tensor([3], raw_data=bytes(12), float_data=[1, 2, 3]),
        tensor([1 << 40], raw_data=bytes(12)),
    ],
    ids=lambda stored: str(stored).replace("\n", " "),
)
def test_d06_d07_payloads_that_do_not_fit(stored: TensorProto) -> None:
    proto = model([node("Identity", "w", "y")], weights={"w": stored})
    refused(errors.TensorPayloadMismatch, proto, "'w'")
    constant = model([helper.make_node("Constant", [], ["y"], value=stored, name="c")])
    refused(errors.TensorPayloadMismatch, constant, "c.value")


def test_d08_stored_tensors_with_impossible_dimensions() -> None:
    for dims, error in (([-3], errors.InvalidDim), ([HUGE, 8], errors.SizeOverflow)):
        proto = model([node("Identity", "w", "y")], weights={"w": tensor(dims)})
        refused(error, proto, "'w'")


def int64(*numbers: int) -> np.ndarray:
    """Return a list of numbers as models store them."""
    return np.array(numbers, np.int64)


D09 = {
    "fill": (node("ConstantOfShape", "a", "y"), {"a": int64(HUGE)}),
    "fill-unusual": (node("ConstantOfShape", "a", "y"), {"a": int64(1 << 40, 0, 1 << 40, 5)}),
    "range": (
        node("Range", "a b c", "y"),
        {"a": int64(0)[0], "b": int64(1 << 60)[0], "c": int64(1)[0]},
    ),
    "range-float": (
        node("Range", "a b c", "y"),
        {"a": np.float32(0), "b": np.float32(1e30), "c": np.float32(1e-30)},
    ),
    "expand": (node("Expand", "a b", "y"), {"a": np.ones(1, "f"), "b": int64(1 << 50)}),
    "tile": (node("Tile", "a b", "y"), {"a": np.ones(4, "f"), "b": int64(1 << 48)}),
    "pad": (node("Pad", "a b", "y"), {"a": np.ones(4, "f"), "b": int64(0, 1 << 31)}),
    "resize": (
        node("Resize", "a _ b", "y"),
        {"a": np.ones((1, 1, 4, 4), "f"), "b": np.array([1, 1, 1e9, 1e9], "f")},
    ),
    "resize-beyond": (
        node("Resize", "a _ b", "y"),
        {"a": np.ones((1, 4), "f"), "b": np.array([1, 3e38], "f")},
    ),
    "one-hot": (
        node("OneHot", "a b c", "y"),
        {"a": int64(0, 1), "b": int64(1 << 61)[0], "c": np.ones(2, "f")},
    ),
}


@pytest.mark.parametrize("case", [*D09])
def test_d09_constants_that_explode(case: str) -> None:
    proto = model([D09[case][0]], weights=D09[case][1])
    if case == "fill-unusual":
        assert shapes(load_onnx(proto)) == {"y": (1 << 40, 0, 1 << 40, 5)}
        return
    with pytest.raises((errors.SizeOverflow, errors.BudgetExceeded)):
        load_onnx(proto)


def test_d09_a_chain_of_growing_constants() -> None:
    nodes = [node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0) for i in range(60)]
    proto = model(nodes, outputs="c60", weights={"c0": np.ones(64, "f")})
    refused(errors.BudgetExceeded, proto, "out of proportion")


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "ConvInteger", "QLinearConv"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [0, 1]},
        {"strides": [1]},
        {"strides": [-1, 1]},
        {"dilations": [0, 0]},
        {"group": 0},
        {"group": -1},
        {"pads": [-1, 0, 0, 0]},
        {"pads": [1 << 31, 0, 0, 0]},
        {"kernel_shape": [0, 0]},
        {"auto_pad": "SOMETIMES"},
        {"strides": "ab"},
    ],
    ids=str,
)
def test_d10_convolutions_that_make_no_sense(op: str, attributes: dict[str, Any]) -> None:
    byte = TensorProto.UINT8 if op in ("ConvInteger", "QLinearConv") else TensorProto.FLOAT
    given: dict[str, Any] = {"x": ([1, 2, 5, 5], byte), "w": ([2, 2, 3, 3], byte)}
    inputs = "x w"
    if op == "QLinearConv":
        given |= {"s": [], "z": ([], byte)}
        inputs = "x s z w s z s z"
    proto = model([node(op, inputs, "y", name="conv", **attributes)], given)
    with pytest.raises(
        (errors.InvalidAttribute, errors.ShapeMismatch, errors.UnboundDim)
    ) as caught:
        load_onnx(proto)
    assert "'conv'" in str(caught.value)
    if op in ("Conv", "ConvTranspose") and attributes != {"kernel_shape": [0, 0]}:
        assert type(caught.value) is errors.InvalidAttribute


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"kernel_shape": [0, 2]},
        {"kernel_shape": [2]},
        {"kernel_shape": [2, 2], "strides": [0, 1]},
        {"kernel_shape": [2, 2], "pads": [0, 0, -1, 0]},
        {"kernel_shape": [1 << 31, 1]},
    ],
    ids=str,
)
def test_d10_pools_that_make_no_sense(op: str, attributes: dict[str, Any]) -> None:
    proto = model([node(op, "x", "y", name="pool", **attributes)], {"x": [1, 2, 5, 5]})
    refused(errors.InvalidAttribute, proto, "'pool'")


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "error"),
    [
        ("DepthToSpace", [1, 4, 2, 2], {"blocksize": 0}, errors.InvalidAttribute),
        ("SpaceToDepth", [1, 4, 2, 2], {"blocksize": 0}, errors.InvalidAttribute),
        ("DepthToSpace", [1, 4, 2, 2], {"blocksize": 3}, errors.ShapeMismatch),
        ("LRN", [1, 4, 2, 2], {"size": 0}, errors.InvalidAttribute),
        ("LRN", [1, 4, 2, 2], {}, errors.InvalidAttribute),
        ("MaxPool", [1, 4, 2, 2], {"kernel_shape": [3, 3]}, errors.ShapeMismatch),
        ("MaxPool", [4, 2], {"kernel_shape": [1, 1]}, errors.ShapeMismatch),
        # D11
        ("Transpose", [2, 3], {"perm": [0, 0]}, errors.InvalidAttribute),
        ("Transpose", [2, 3], {"perm": [0, 2]}, errors.InvalidAttribute),
        ("Transpose", [2, 3], {"perm": [0]}, errors.InvalidAttribute),
        ("Softmax", [2, 3], {"axis": 2}, errors.InvalidAttribute),
        ("Softmax", [2, 3], {"axis": -3}, errors.InvalidAttribute),
        ("Concat", [2, 3], {"axis": 2}, errors.InvalidAttribute),
        ("Concat", [2, 3], {}, errors.InvalidAttribute),
        ("Flatten", [2, 3], {"axis": 3}, errors.InvalidAttribute),
        ("ArgMax", [2, 3], {"axis": 5}, errors.InvalidAttribute),
        ("LayerNormalization", [2, 3], {"axis": 5}, errors.InvalidAttribute),
        ("Cast", [2], {}, errors.InvalidAttribute),
        ("Split", [5], {"num_outputs": 3}, errors.InvalidAttribute),
    ],
)
def test_d10_d11_attributes_out_of_range(
    op: str, shape: list[int], attributes: dict[str, Any], error: type[errors.PlannerError]
) -> None:
    proto = model([node(op, "x", "y", name="it", **attributes)], {"x": shape})
    refused(error, proto, "'it'")


@pytest.mark.parametrize(
    ("op", "inputs", "weights", "error"),
    [
        ("Split", "x s", {"s": int64(1, 2)}, errors.InvalidAttribute),
        ("Split", "x s", {"s": int64(-1, 3)}, errors.InvalidAttribute),
        ("Squeeze", "x s", {"s": int64(1)}, errors.ShapeMismatch),
        ("Squeeze", "x s", {"s": int64(5)}, errors.InvalidAttribute),
        ("Unsqueeze", "x s", {"s": int64(0, 0)}, errors.InvalidAttribute),
        ("Unsqueeze", "x s", {"s": int64(9)}, errors.InvalidAttribute),
        ("ReduceSum", "x s", {"s": int64(0, -2)}, errors.InvalidAttribute),
        ("Slice", "x s s _ k", {"s": int64(0), "k": int64(0)}, errors.InvalidAttribute),
        ("Slice", "x s s a", {"s": int64(0), "a": int64(7)}, errors.InvalidAttribute),
        ("Slice", "x s e", {"s": int64(0), "e": int64(0, 1)}, errors.InvalidAttribute),
        # D12
        ("Gather", "x s", {"s": int64(2)}, errors.InvalidAttribute),
        ("Gather", "x s", {"s": int64(-3)}, errors.InvalidAttribute),
        ("Gather", "x s", {"s": np.ones(1, "f")}, errors.InvalidOperand),
        ("GatherElements", "x s", {"s": np.array([[0, 5]])}, errors.InvalidAttribute),
        # D13
        ("Reshape", "x s", {"s": int64(4)}, errors.ShapeMismatch),
        ("Reshape", "x s", {"s": int64(-1, -1)}, errors.ShapeMismatch),
        ("Reshape", "x s", {"s": int64(-1, 4)}, errors.ShapeMismatch),
        ("Reshape", "x s", {"s": int64(-2, 3)}, errors.ShapeMismatch),
        ("Reshape", "x s", {"s": int64(2, 3, 0)}, errors.ShapeMismatch),
        ("Reshape", "x s", {"s": int64(HUGE, HUGE, 4)}, errors.ShapeMismatch),
        ("Reshape", "x s", {"s": np.ones(2, "f")}, errors.InvalidOperand),
        ("Reshape", "x s", {"s": np.ones((1, 1), np.int64)}, errors.InvalidOperand),
        ("Expand", "x s", {"s": int64(4)}, errors.ShapeMismatch),
        ("Expand", "x s", {"s": int64(-4, 2, 3)}, errors.InvalidAttribute),
        ("Tile", "x s", {"s": int64(2)}, errors.InvalidAttribute),
        ("Pad", "x s", {"s": int64(0, 0, 0)}, errors.InvalidAttribute),
        ("Pad", "x s", {"s": int64(-3, 0, 0, 0)}, errors.InvalidAttribute),
        ("TopK", "x s", {"s": int64(9)}, errors.InvalidAttribute),
        ("Add", "x s", {"s": np.ones(4, "f")}, errors.ShapeMismatch),
        ("Add", "x s", {"s": int64(1)}, errors.InvalidOperand),
        ("MatMul", "x s", {"s": np.ones((2, 3), "f")}, errors.ShapeMismatch),
        ("Gemm", "x s", {"s": np.ones((2, 3), "f")}, errors.ShapeMismatch),
        ("Einsum", "x s", {"s": np.ones((2, 3), "f")}, errors.ShapeMismatch),
    ],
)
def test_d11_d12_d13_operands_that_do_not_fit(
    op: str, inputs: str, weights: dict[str, Any], error: type[errors.PlannerError]
) -> None:
    outputs = "y z" if op in ("Split", "TopK") else "y"
    proto = model([node(op, inputs, outputs, name="it")], {"x": [2, 3]}, weights=weights)
    refused(error, proto, "'it'")


def test_d14_declared_types_that_cannot_be() -> None:
    for declared in ({"h": ([2], INT64)}, {"h": [2, 1]}):
        proto = model([node("Neg", "x", "h"), node("Abs", "h", "y")], {"x": [2]}, declared=declared)
        refused(errors.ShapeMismatch, proto, "'h'")


@pytest.mark.parametrize(
    "imports",
    [
        {"": 999},
        {"": 0},
        {"": -1},
        {},
        {"own": 1},
    ],
    ids=str,
)
def test_d15_versions_of_operator_sets(imports: dict[str, int]) -> None:
    proto = model([node("Neg", "x", "y")], {"x": [2]})
    del proto.opset_import[:]
    for domain, version in imports.items():
        proto.opset_import.add(domain=domain, version=version)
    refused(errors.UnsupportedOpset, proto, "ai.onnx")


def test_d15_operator_sets_that_are_imported_twice() -> None:
    proto = model([node("Neg", "x", "y")], {"x": [2]})
    proto.opset_import.add(domain="ai.onnx", version=18)
    refused(errors.UnsupportedOpset, proto, "twice")
    custom = model([node("Own", "x", "y", domain="own", name="it")], {"x": [2]}, {"y": [2]})
    refused(errors.UnsupportedOpset, custom, "'own'", "'it'")


def test_d16_operators_that_nobody_knows() -> None:
    custom = node("Own", "x", "y", domain="own", name="it")
    declared = model([custom], {"x": [2]}, {"y": [3]}, domains={"own": 1})
    assert ap.plan(load_onnx(declared)).arena_bytes == 128
    undeclared = model([custom], {"x": [2]}, domains={"own": 1})
    refused(errors.UnknownShape, undeclared, "'it'", "'y'")
    misspelled = model([node("Rellu", "x", "y", name="it")], {"x": [2]})
    refused(errors.UnknownShape, misspelled, "'it'", "Rellu")


def test_d18_files_too_large_for_their_format(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with open(path, "wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(errors.ModelTooLarge, match="2147483648"):
        ap.load(path)


def test_d18_lengths_that_the_file_does_not_have() -> None:
    with pytest.raises(errors.NotAModel):
        load_onnx(b"\x08\x0a\x3a\xff\xff\xff\xff\x07")


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
    """Import and plan damaged data; return the error's class, or nothing."""
    try:
        ap.plan(load_onnx(data, bind=bind))
    except errors.InternalError:
        raise
    except errors.PlannerError as error:
        return type(error).__name__
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
        "import arenaplan.importers.onnx\n"
        "threading.stack_size(256 * 1024)\n"
        "thread = threading.Thread(target=lambda: print(ap.load(sys.argv[1])))\n"
        "thread.start(); thread.join()"
    )
    command = [sys.executable, "-c", code, str(light_models.path("densenet121"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "668 nodes" in done.stdout
