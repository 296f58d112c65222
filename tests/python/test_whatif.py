"""What if a layer were smaller: the figure is that of the model that really is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
import flat
from arenaplan.base.errors import InvalidOption
from arenaplan.cli import main


class Net:
    """An ONNX network of convolutions, whose sizes are parameters."""

    def __init__(self, rows: int, batch: int = 1) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.batch, self.rows = batch, rows

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
        return name

    def add(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(
        self, x: str, name: str, *, of: int, to: int, size: int = 1, stride: int = 1, group: int = 1
    ) -> str:
        weight = self.weight(to, of // group, size, size)
        pad = size // 2
        attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "group": group}
        return self.add("Conv", [x, weight], name, kernel_shape=[size] * 2, **attributes)

    def save(self, path: Path, last: str, classes: int) -> Path:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [
                helper.make_tensor_value_info(
                    "x", TensorProto.FLOAT, [self.batch, 3, self.rows, self.rows]
                )
            ],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, [self.batch, classes])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def network(
    path: Path, *, rows: int = 32, batch: int = 1, stem: int = 16, wide: int = 64, stride: int = 2
) -> Path:
    """Write a network with depthwise convolution, residual sum, concatenation and classifier."""
    net = Net(rows, batch)
    x = net.conv("x", "stem", of=3, to=stem, size=3, stride=stride)
    x = net.add("Relu", [x], "stem_relu")
    skip = x
    x = net.conv(x, "expand", of=stem, to=wide)
    x = net.add("Clip", [x], "expand_clip")
    x = net.conv(x, "depth", of=wide, to=wide, size=3, group=wide)
    x = net.conv(x, "project", of=wide, to=stem)
    x = net.add("Add", [x, skip], "sum")
    other = net.conv(x, "side", of=stem, to=8)
    x = net.add("Concat", [x, other], "joined", axis=1)
    x = net.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = net.conv(x, "late", of=stem + 8, to=32, size=3)
    x = net.add("GlobalAveragePool", [x], "mean")
    x = net.add("Flatten", [x], "flat")
    x = net.add("Gemm", [x, net.weight(32, 10)], "classes")
    return net.save(path, x, 10)


def real(path: Path, **options: object) -> int:
    """Return the bytes of the model in a file, planned as ``what_if`` plans."""
    return ap.plan(ap.load(path), workspace="none", **options).arena_bytes  # type: ignore[arg-type]


def rows_of(path: Path, **options: object) -> dict[tuple[str, str], int]:
    found = ap.report.what_if(path, by="node", top=100, **options)  # type: ignore[arg-type]
    assert found.compared.arena_bytes == real(path, **options)
    return {(row.subject, row.change): row.arena_bytes for row in found.rows}


@pytest.mark.parametrize("optimize", ["all", "none", "views,in-place,elision"])
def test_each_figure_is_that_of_the_model_that_really_is_smaller(
    optimize: str, tmp_path: Path
) -> None:
    now = network(tmp_path / "now.onnx")
    found = rows_of(now, optimize=optimize, target="nodes")
    smaller = {
        ("expand", "half the channels"): {"wide": 32},
        ("stem", "half the resolution"): {"stride": 4},
        ("the model", "half the resolution"): {"rows": 16},
    }
    planned = 0
    for key, sizes in smaller.items():
        size = real(network(tmp_path / "other.onnx", **sizes), optimize=optimize, target="nodes")
        if size < real(now, optimize=optimize, target="nodes"):
            assert found[key] == size, key
            planned += 1
    assert planned >= 2


def test_a_layer_that_a_residual_sum_ties_to_others_changes_with_them(tmp_path: Path) -> None:
    options = {"target": "nodes", "optimize": "none"}
    found = rows_of(network(tmp_path / "now.onnx"), **options)
    # Both ends of the residual are the same change, which is listed once.
    names = {subject for subject, change in found if change == "half the channels"}
    assert len(names & {"stem", "project"}) == 1
    size = found[(names & {"stem", "project"}).pop(), "half the channels"]
    assert size == real(network(tmp_path / "other.onnx", stem=8), **options)


def test_half_the_batch_is_imported_again(tmp_path: Path) -> None:
    found = rows_of(network(tmp_path / "now.onnx", batch=4))
    size = found["the model", "half the batch"]
    assert size == real(network(tmp_path / "other.onnx", batch=2))
    by = {row.change: row.by for row in ap.report.what_if(tmp_path / "now.onnx").rows}
    assert by["half the batch"] == "import"
    assert by["float16 instead of float32"] == "graph"


def test_a_symbolic_dimension_is_halved(tmp_path: Path) -> None:
    from test_cli import model

    path = model(tmp_path / "symbolic.onnx", batch="batch")
    found = ap.report.what_if(path, bind={"batch": 64})
    rows = {row.change: row.arena_bytes for row in found.rows}
    expected = ap.plan(ap.load(path, bind={"batch": 32}), workspace="none").arena_bytes
    assert rows["batch=32 in place of 64"] == expected


def test_smaller_elements_are_smaller_everywhere(tmp_path: Path) -> None:
    path = network(tmp_path / "now.onnx")
    found = ap.report.what_if(path, optimize="none")
    (half,) = (row for row in found.rows if row.change == "float16 instead of float32")
    assert half.arena_bytes * 2 == found.compared.arena_bytes


def test_values_outside_are_never_changed(tmp_path: Path) -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 8, 32, 32))
    (y,) = graph.node("Conv", [x], [("y", (1, 8, 32, 32), "float32")], name="only")
    graph.output(y)
    found = ap.report.what_if(graph, by="node")
    assert [row.subject for row in found.rows] == ["the model"]
    assert [why for _, why in found.skipped] == [
        "'y' is an input, a result or a state of the model"
    ] * 2


def test_an_operator_of_unknown_meaning_is_an_end_with_a_reason() -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 8, 32, 32))
    (a,) = graph.node("Conv", [x], [("a", (1, 64, 32, 32), "float32")], name="wide")
    (b,) = graph.node("Riddle", [a], [("b", (1, 8, 32, 32), "float32")], name="what")
    graph.output(b)
    found = ap.report.what_if(graph, by="node")
    assert [row.subject for row in found.rows] == ["the model"]
    assert dict(found.skipped)["wide: half the channels"] == "Riddle 'what' is not known"


def test_tensors_of_the_runtime_change_with_those_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(flat.write(flat.fragmented()))
    found = ap.report.what_if(path, top=5)
    assert found.plan.target.name == "tflm"
    assert found.plan.arena_bytes == ap.plan(ap.load(path)).arena_bytes
    assert all(0 < row.saved < 1 for row in found.rows)


def test_a_search_ends_with_the_changes_so_far(tmp_path: Path) -> None:
    path = network(tmp_path / "now.onnx")
    assert ap.report.what_if(path, time_limit=0).rows == ()
    with pytest.raises(InvalidOption):
        ap.report.what_if(path, top=0)
    with pytest.raises(InvalidOption):
        ap.report.what_if(path, spaces="a=1M,b=1M")


def test_the_command_lists_what_saves_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(network(tmp_path / "now.onnx"))
    assert main(["explain", path, "--top", "3", "--by", "node"]) == 0
    out = capsys.readouterr().out
    assert "what if: plans of the changed model in place of" in out
    assert "the model: half the resolution" in out
    assert main(["explain", path, "--top", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["what_if"]
    assert 1 < len(found["rows"]) <= 3
    sizes = [row["arena_bytes"] for row in found["rows"]]
    assert sizes == sorted(sizes)
    assert main(["explain", path, "--json"]) == 0
    assert "what_if" not in json.loads(capsys.readouterr().out)
