"""
Model files that are malformed or hostile: contents, external data, attributes, versions.

Tests carry the row numbers of a list of bad inputs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.formats.onnx import load_onnx
from arenaplan.formats.opening import FOREIGN
from models import external, function, graph, int64, model, node, refused, shapes, tensor
from raising import raises

INT64 = TensorProto.INT64
HUGE = 1 << 62


# -- D: model files --------------------------------------------------------------------


@pytest.mark.parametrize("suffix", FOREIGN)
@pytest.mark.parametrize("command", ["plan", "inspect", "explain", "run", "gate"])
def test_files_of_other_tools_are_refused_with_what_to_do(
    command: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"net{suffix.upper()}"
    path.write_bytes(b"\x1c\0\0\0ET12")
    more = {"gate": ["--budget", "1MiB"]}.get(command, [])
    assert main([command, str(path), *more])
    said = "".join(capsys.readouterr())
    assert FOREIGN[suffix].partition(":")[0][:40] in said
    assert "suffix" not in said.partition("cure:")[0]


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
    with raises("ExternalDataPath", match="w"):
        ap.load(path)


def test_d02_sparse_tensors_are_checked_before_they_are_refused() -> None:
    proto = model([node("Relu", "x", "y")], {"x": [2]})
    sparse = proto.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(external([2], location="../w.bin"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([0, 1])))
    refused("ExternalDataPath", proto, "../w.bin")
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
    assert ap.plan(ap.load(path), target="ideal").arena_bytes == 128
    with raises("ExternalDataPath", match=r"'w'|w\.value|/w|\.value"):
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
    with raises("ExternalDataRange"):
        load_weight(path)


def test_d04_external_data_of_another_size_than_the_tensor(tmp_path: Path) -> None:
    path = stored_in(tmp_path, external([2], location="w.bin", length=12))
    with raises("TensorPayloadMismatch", match=r"12 .* 8"):
        ap.load(path)


def test_external_data_that_is_not_there(tmp_path: Path) -> None:
    path = stored_in(tmp_path, external([2], location="sub/w.bin"))
    with raises("ExternalDataMissing", match="does not exist"):
        load_weight(path)
    imported = load_onnx(path.read_bytes())
    with raises("ExternalDataMissing", match="not read from a file"):
        imported.data(imported.find("w").index)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"")
    with raises("ExternalDataRange"):
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
    refused("TensorPayloadMismatch", proto, "'w'")
    constant = model([helper.make_node("Constant", [], ["y"], value=stored, name="c")])
    refused("TensorPayloadMismatch", constant, "c.value")


def test_d08_stored_tensors_with_impossible_dimensions() -> None:
    for dims, error in (([-3], "InvalidDim"), ([HUGE, 8], "SizeOverflow")):
        proto = model([node("Identity", "w", "y")], weights={"w": tensor(dims)})
        refused(error, proto, "'w'")


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
    with raises(("SizeOverflow", "BudgetExceeded")):
        load_onnx(proto)


def test_d09_a_chain_of_growing_constants() -> None:
    nodes = [node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0) for i in range(60)]
    proto = model(nodes, outputs="c60", weights={"c0": np.ones(64, "f")})
    refused("BudgetExceeded", proto, "out of proportion")


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
        ("ReduceMax", [2, 3], {"keepdims": 2}, errors.InvalidAttribute),
        ("ArgMin", [2, 3], {"keepdims": -1}, errors.InvalidAttribute),
        ("ReduceSum", [2, 3], {"noop_with_empty_axes": -1}, errors.InvalidAttribute),
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
    ("op", "inputs", "outputs", "name"),
    [
        ("TopK", "x k", "y i", "largest"),
        ("TopK", "x k", "y i", "sorted"),
        ("Unique", "x", "y", "sorted"),
        ("Resize", "x _ s", "y", "antialias"),
        ("Resize", "x _ s", "y", "exclude_outside"),
        ("RotaryEmbedding", "x c c", "y", "interleaved"),
    ],
)
def test_d10_flags_are_0_or_1(op: str, inputs: str, outputs: str, name: str) -> None:
    weights = {"k": int64(1), "s": np.ones(4, np.float32), "c": np.ones((1, 1, 1), np.float32)}
    used = {key: weights[key] for key in weights if key in inputs}

    def with_flag(number: int) -> onnx.ModelProto:
        it = node(op, inputs, outputs, name="it", **{name: number})
        return model([it], {"x": [1, 1, 1, 2]}, weights=used, opset=23)

    for number in (0, 1):
        try:
            load_onnx(with_flag(number))
        except errors.UnboundDim:
            assert op == "Unique"  # Data decides how many there are.
    for number in (2, -1):
        refused(errors.InvalidAttribute, with_flag(number), "'it'", f"{name} {number} is out")


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
        ("Einsum", "x s", {"s": np.ones((2, 3), "f")}, errors.InvalidAttribute),
    ],
)
def test_d11_d12_d13_operands_that_do_not_fit(
    op: str, inputs: str, weights: dict[str, Any], error: type[errors.PlannerError]
) -> None:
    outputs = "y z" if op in ("Split", "TopK") else "y"
    proto = model([node(op, inputs, outputs, name="it")], {"x": [2, 3]}, weights=weights)
    refused(error, proto, "'it'")


def test_d14_declared_types_that_cannot_be() -> None:
    nodes = [node("Neg", "x", "h"), node("Abs", "h", "y")]
    proto = model(nodes, {"x": [2]}, declared={"h": ([2], INT64)})
    refused(errors.ShapeMismatch, proto, "'h'")


def test_d14_a_declared_rank_that_cannot_be_is_left_aside_as_in_onnx_runtime() -> None:
    nodes = [node("Neg", "x", "h"), node("Abs", "h", "y")]
    graph = load_onnx(model(nodes, {"x": [2]}, declared={"h": [2, 1]}))
    assert [value.shape for value in graph.values] == [(2,)] * 3
    assert "'h'" in graph.warnings[0]


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
    refused("UnsupportedOpset", proto, "ai.onnx")


def test_d15_operator_sets_that_are_imported_twice() -> None:
    proto = model([node("Neg", "x", "y")], {"x": [2]})
    proto.opset_import.add(domain="ai.onnx", version=18)
    refused("UnsupportedOpset", proto, "twice")
    custom = model([node("Own", "x", "y", domain="own", name="it")], {"x": [2]}, {"y": [2]})
    refused("UnsupportedOpset", custom, "'own'", "'it'")


def test_d16_operators_that_nobody_knows() -> None:
    custom = node("Own", "x", "y", domain="own", name="it")
    declared = model([custom], {"x": [2]}, {"y": [3]}, domains={"own": 1})
    assert ap.plan(load_onnx(declared), target="ideal").arena_bytes == 128
    undeclared = model([custom], {"x": [2]}, domains={"own": 1})
    refused(errors.UnknownShape, undeclared, "'it'", "'y'")
    misspelled = model([node("Rellu", "x", "y", name="it")], {"x": [2]})
    refused(errors.UnknownShape, misspelled, "'it'", "Rellu")


def test_d18_files_too_large_for_their_format(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with open(path, "wb") as file:
        file.truncate(1 << 31)
    with raises("ModelTooLarge", match="2147483648"):
        ap.load(path)


def test_d18_lengths_that_the_file_does_not_have() -> None:
    with pytest.raises(errors.NotAModel):
        load_onnx(b"\x08\x0a\x3a\xff\xff\xff\xff\x07")
