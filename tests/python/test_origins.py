"""Layers and lines of source: from the metadata of models to reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.formats.pt2.pt2_document import _origin as origin_of_document
from arenaplan.graph.origin import layer_of, origin_of

TRACE = """File "/home/me/net.py", line 12, in forward
    return self.body(x)
  File "/usr/lib/python3.11/site-packages/torch/nn/modules/conv.py", line 548, in forward
    return self._conv_forward(input, self.weight, self.bias)"""


def test_a_frame_outside_of_torch_counts() -> None:
    assert origin_of("a", TRACE) == ap.graph.Origin("a", "/home/me/net.py:12")
    only_torch = TRACE.partition("\n")[2].partition("\n")[2]
    assert origin_of(None, only_torch) == ap.graph.Origin(
        None, "/usr/lib/python3.11/site-packages/torch/nn/modules/conv.py:548"
    )
    assert origin_of("", "no frame") is None
    assert origin_of(None, TRACE + '\nFile "x", line 1' * 5000) is not None


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("/encoder/layer.1/Conv", "encoder/layer.1"),
        ("MobilenetV1/Conv2d_0/Relu6;MobilenetV1/Logits", "MobilenetV1/Conv2d_0"),
        ("Conv_3", None),
        ("/Conv", None),
        ("", None),
    ],
)
def test_names_that_are_paths_have_a_layer(name: str, layer: str | None) -> None:
    assert layer_of(name) == layer


def test_metadata_of_onnx_nodes_reaches_the_report(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], np.ones(16, np.float32))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="/plain/MatMul"),
        helper.make_node("Neg", ["y"], ["z"], name="neg"),
    ]
    for key, value in (
        ("pkg.torch.onnx.name_scopes", "['', 'body', 'body.act', 'neg']"),
        ("pkg.torch.onnx.stack_trace", TRACE),
        ("other", "thing"),
    ):
        entry = nodes[1].metadata_props.add()
        entry.key, entry.value = key, value
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xz"]
    graph = helper.make_graph(nodes, "m", ends[:1], ends[1:], [weight])
    opset = [helper.make_opsetid("", 21)]
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opset).SerializeToString())
    loaded = ap.load(path)
    origins = [node.origin for node in loaded.nodes]
    assert origins == [None, ap.graph.Origin("body.act", "/home/me/net.py:12")]
    assert [node.origin for node in loaded.copy().nodes] == origins
    steps = ap.report.report_of(ap.plan(loaded, optimize="none"), loaded)["steps"]
    assert [(step["layer"], step["source"]) for step in steps] == [
        ("plain", None),
        ("body.act", "/home/me/net.py:12"),
    ]


def test_metadata_of_exported_programs_is_doubted() -> None:
    stack = "L__self__,,Net;L__self__body,body,Block;L__self__body.act,body.act,torch.nn.ReLU"
    good = {"nn_module_stack": stack, "stack_trace": TRACE}
    assert origin_of_document(good) == ap.graph.Origin("body.act", "/home/me/net.py:12")
    for bad in (None, 3, {}, {"nn_module_stack": 4, "stack_trace": []}, {"nn_module_stack": ";"}):
        assert origin_of_document(bad) is None


def test_equations_of_jax_have_scope_and_line() -> None:
    jax = pytest.importorskip("jax")

    def net(x: object) -> object:
        with jax.named_scope("head"):
            return jax.numpy.tanh(x)

    graph = ap.from_jaxpr(jax.make_jaxpr(net)(jax.numpy.ones((4,))))
    (origin,) = [node.origin for node in graph.nodes]
    assert origin is not None
    assert origin.layer == "head"
    assert origin.source is not None
    assert origin.source.startswith(f"{__file__}:")


def test_live_programs_of_torch_have_layer_and_line() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    graph = ap.from_exported_program(torch.export.export(net, (torch.ones(1, 4),)))
    origins = [node.origin for node in graph.nodes]
    assert [origin and origin.layer for origin in origins] == ["0", "1"]
