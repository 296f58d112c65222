"""Weights stay in their files: a plan reads none, and an executor keeps those that kernels read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap
from arenaplan.base.errors import ModelError
from arenaplan.formats.onnx import load_onnx
from arenaplan.formats.onnx.lean import LARGE, OWN, lean
from raising import raises

WIDTH = 512
LAYERS = 24


def network(name: str = "w") -> onnx.ModelProto:
    """Return a network with a megabyte of weights per layer, some behind an odd number of bytes."""
    numbers = np.random.default_rng(7)
    nodes, stored, last = [], [], "x"
    for layer in range(LAYERS):
        weight = f"{name}{'_' * (layer % 4)}{layer}"
        array = numbers.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
        stored.append(numpy_helper.from_array(array, weight))
        kind = {"transB": 1} if layer % 2 else {}
        nodes.append(helper.make_node("Gemm", [last, weight], [f"m{layer}"], **kind))
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"t{layer}"]))
        last = f"t{layer}"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, WIDTH]) for n in ("x", last))
    graph = helper.make_graph(nodes, "net", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(folder: Path, where: str) -> Path:
    """Write the network with weights in its file or in another one."""
    path = folder / f"{where}.onnx"
    onnx.save(network(), path, save_as_external_data=where == "beside", location="w.data")
    return path


def _varint(number: int) -> bytes:
    return bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])


def restored(model: onnx.ModelProto, content: bytes) -> onnx.ModelProto:
    """Return a model with the data of weights that were left out."""
    for tensor in model.graph.initializer:
        if tensor.external_data and tensor.external_data[0].key == OWN.decode():
            offset, length = map(int, tensor.external_data[0].value.split(","))
            tensor.raw_data = content[offset : offset + length]
            del tensor.external_data[:]
    return model


def test_a_lean_message_is_the_model_without_large_data() -> None:
    model = network()
    model.graph.initializer.append(numpy_helper.from_array(np.arange(4), "small"))
    large = helper.make_tensor("listed", TensorProto.FLOAT, [LARGE], [0.5] * LARGE)
    model.graph.initializer.append(large)
    content = model.SerializeToString()
    found = onnx.ModelProto.FromString(lean(content))
    assert [bool(t.raw_data) for t in found.graph.initializer] == [False] * LAYERS + [True, False]
    assert restored(found, content) == model


@pytest.mark.parametrize("change", ["cut off", "two graphs", "data twice", "other type", "empty"])
def test_a_message_that_is_not_plain_is_kept(change: str) -> None:
    content = network().SerializeToString()
    twice = onnx.ModelProto(graph=onnx.GraphProto(name="b")).SerializeToString()
    tensor = TensorProto(raw_data=bytes(LARGE)).SerializeToString() * 2
    inner = b"\x2a" + _varint(len(tensor)) + tensor
    changed = {
        "cut off": content[: len(content) // 2],
        "two graphs": content + twice,
        # The reader of messages takes the last.
        "data twice": b"\x3a" + _varint(len(inner)) + inner,
        "other type": b"\x38\x01" + content,
        "empty": b"",
    }[change]
    assert lean(changed) == changed


@pytest.mark.parametrize("place", ["-1,8", "5,262144", "99999999999,1048576", "x,y", "1", "²,8"])
def test_a_model_that_names_bytes_of_its_own_file_gets_none_beyond_it(
    place: str, tmp_path: Path
) -> None:
    model = network()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.external_data.add(key=OWN.decode(), value=place)
    path = tmp_path / "forged.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError), ap.Executor(path):
        pass


def run(source: Path | bytes) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((4, WIDTH)).astype(np.float32)
    with ap.Executor(ap.load(source)) as executor:
        executor.run({"x": x}, verify=True)
        (y,) = executor.run({"x": x}).values()
    return y


def test_results_do_not_depend_on_where_weights_are(tmp_path: Path) -> None:
    inside, beside = written(tmp_path, "inside"), written(tmp_path, "beside")
    results = [run(source) for source in (inside, beside, inside.read_bytes())]
    x = np.random.default_rng(1).standard_normal((4, WIDTH)).astype(np.float32)
    with ap.Executor(load_onnx(network())) as executor:
        (whole,) = executor.run({"x": x}).values()
    for found in results:
        np.testing.assert_array_equal(found, whole)


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "beside")
    data = tmp_path / "w.data"
    data.write_bytes(data.read_bytes()[:-4])
    graph = ap.load(path)
    with raises("ExternalDataRange"):
        ap.Executor(graph)


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_a_file_that_was_cut_after_planning_is_refused(where: str, tmp_path: Path) -> None:
    """Bytes of a map beyond the end of its file end the process."""
    path = written(tmp_path, where)
    graph = ap.load(path)
    ap.plan(graph, target="numpy")
    os.truncate(path if where == "inside" else tmp_path / "w.data", 2 << 20)
    with raises("ExternalDataRange", match="which has 2097152"):
        ap.Executor(graph)


_MEASURE = """
import sys, arenaplan as ap
def resident():
    text = open("/proc/self/status").read()
    return 1024 * int(text.split("VmRSS:")[1].split()[0])
small, path = sys.argv[1:]
with ap.Executor(ap.load(small)): pass  # Imports what a run needs.
before = resident()
graph = ap.load(path)
plan = ap.plan(graph)
planned = resident()
executor = ap.Executor(graph, plan)
print(planned - before, resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("where", ["inside", "beside"])
def test_a_process_has_each_weight_once(where: str, tmp_path: Path) -> None:
    path = written(tmp_path, where)
    small = tmp_path / "small.onnx"
    model = network()
    del model.graph.node[4:], model.graph.initializer[2:]
    model.graph.output[0].name = "t1"
    onnx.save(model, small)
    ran = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(small), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    planned, made = map(int, ran.stdout.split())
    weights = LAYERS * WIDTH * WIDTH * 4
    assert planned < weights // 4
    assert made < weights * 1.2


def test_a_plan_opens_no_weights_however_many_there_are(tmp_path: Path) -> None:
    width, layers = 1 << 15, 4
    stored, nodes, last = [], [], "x"
    for layer in range(layers):
        weight = TensorProto(name=f"w{layer}", data_type=1, dims=[width, width], data_location=1)
        for key, value in (("location", "w.data"), ("offset", str(4 * layer * width * width))):
            weight.external_data.add(key=key, value=value)
        stored.append(weight)
        nodes.append(helper.make_node("MatMul", [last, weight.name], [f"m{layer}"]))
        last = f"m{layer}"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, width]) for n in ("x", last))
    graph = helper.make_graph(nodes, "net", [x], [y], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "large.onnx"
    onnx.save(model, path)
    with open(tmp_path / "w.data", "wb") as file:
        file.truncate(4 * layers * width * width)
    large = ap.plan(ap.load(path))
    assert large.arena_bytes == 2 * 4 * width
    (tmp_path / "w.data").unlink()
    assert ap.plan(ap.load(path)).to_json() == large.to_json()
