"""Small ONNX models for tests, in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.formats.onnx import load_onnx
from raising import raises

Dims = Sequence[int | str | None]
Types = Mapping[str, Dims | tuple[Dims, int]]


def values(types: Types) -> list[ValueInfoProto]:
    """Return declarations: ``{name: shape}`` of floats, or ``{name: (shape, type)}``."""
    result = []
    for name, spec in types.items():
        typed = isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], (list, tuple))
        shape, dtype = spec if typed else (spec, TensorProto.FLOAT)
        result.append(helper.make_tensor_value_info(name, dtype, shape))
    return result


def node(
    op: str, inputs: str | Sequence[str], outputs: str | Sequence[str], **attributes: Any
) -> NodeProto:
    """Return a node; operands are given as words, with ``_`` for one that is left out."""
    words = [
        ["" if name == "_" else name for name in (text.split() if isinstance(text, str) else text)]
        for text in (inputs, outputs)
    ]
    return helper.make_node(op, *words, **attributes)


def tensors(arrays: Mapping[str, Any]) -> list[TensorProto]:
    """Return initializers; a TensorProto stays as it is, but for its name."""
    result = []
    for name, data in arrays.items():
        if isinstance(data, TensorProto):
            tensor = TensorProto()
            tensor.CopyFrom(data)
            tensor.name = name
        else:
            tensor = numpy_helper.from_array(np.asarray(data), name)
        result.append(tensor)
    return result


def graph(
    nodes: Sequence[NodeProto],
    inputs: Types | None = None,
    outputs: str | Types = "y",
    weights: Mapping[str, Any] | None = None,
    declared: Types | None = None,
    name: str = "test",
) -> GraphProto:
    """Return a graph; outputs given as words have no declared type."""
    if isinstance(outputs, str):
        results = [ValueInfoProto(name=word) for word in outputs.split()]
    else:
        results = values(outputs)
    return helper.make_graph(
        nodes,
        name,
        values(inputs or {}),
        results,
        tensors(weights or {}),
        value_info=values(declared or {}),
    )


def model(
    nodes: Sequence[NodeProto],
    inputs: Types | None = None,
    outputs: str | Types = "y",
    weights: Mapping[str, Any] | None = None,
    declared: Types | None = None,
    *,
    opset: int = 18,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    """Return a model."""
    return helper.make_model(
        graph(nodes, inputs, outputs, weights, declared),
        opset_imports=[
            helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()
        ],
        functions=functions,
        ir_version=10,
    )


def function(
    name: str,
    inputs: str,
    outputs: str,
    nodes: Sequence[NodeProto],
    *,
    domain: str = "local",
    attributes: Sequence[str] = (),
    defaults: Sequence[AttributeProto] = (),
) -> FunctionProto:
    """Return a local function of opset 18."""
    return helper.make_function(
        domain,
        name,
        inputs.split(),
        outputs.split(),
        nodes,
        [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)],
        attributes,
        defaults,
    )


def external(shape: Sequence[int], dtype: int = TensorProto.FLOAT, **entries: Any) -> TensorProto:
    """Return a tensor that is stored in another file."""
    tensor = TensorProto(data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def tensor(shape: Sequence[int], dtype: int = TensorProto.FLOAT, **fields: Any) -> TensorProto:
    """Return a tensor with the given fields, which need not fit its shape."""
    return TensorProto(data_type=dtype, dims=shape, **fields)


def load_one(
    op: str, inputs: str, *, outputs: str = "y", given: Types, opset: int = 18, **rest: Any
) -> ap.Graph:
    """Import a model of one node. ``weights=`` holds its constants; the rest are attributes."""
    weights = rest.pop("weights", None)
    results = " ".join(name for name in outputs.split() if name != "_")
    return load_onnx(
        model([node(op, inputs, outputs, **rest)], given, results, weights, opset=opset)
    )


def shapes(imported: ap.Graph) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a graph's outputs."""
    return {imported.values[i].name: imported.values[i].shape for i in imported.outputs}


def ops(imported: ap.Graph) -> list[str]:
    """Return the operators of a graph, in order."""
    return [known.op for known in imported.nodes]


def int64(*numbers: int) -> np.ndarray:
    """Return a list of numbers as models store them."""
    return np.array(numbers, np.int64)


def refused(
    error: str | type[errors.PlannerError], proto: ModelProto, *names: str, **options: Any
) -> None:
    """Check that a model is refused with an error of a kind or class that has the given words."""
    with raises(error) as caught:
        load_onnx(proto, **options)
    assert isinstance(error, str) or type(caught.value) is error
    for name in names:
        assert name in str(caught.value)
