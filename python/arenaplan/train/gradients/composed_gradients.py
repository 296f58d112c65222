"""Gradients of composite operators: the component operators are differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, inliner

from arenaplan.formats import load
from arenaplan.formats.onnx.symbol_schema import VERSION
from arenaplan.formats.onnx.tensors import DTYPE_CODES
from arenaplan.train.gradients.gradient_rules import Gradients, Site, composed


@composed("Attention")
def by_body(at: Site) -> Gradients:
    """Compose the operator's standard function."""
    node, op = at.node, at.op
    names = [f"i{k}" if at.has(k) else "" for k in range(len(node.inputs))]
    made = [f"o{k}" if at.flows(k) else "" for k in range(len(node.outputs))]
    call = helper.make_node(node.op, names, made, **node.attributes)
    given = {name: at.read(k) for k, name in enumerate(names) if name}
    inputs = [
        helper.make_tensor_value_info(name, DTYPE_CODES[value.dtype], value.shape)
        for name, value in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in made if name]
    graph = helper.make_graph([call], node.op, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", VERSION)])
    inlined = inliner.inline_selected_functions(
        model, [("", node.op)], inline_schema_functions=True
    )
    body = load(inlined.SerializeToString())
    operands: dict[str, Any] = {name: at.x(int(name[1:])) for name in given}
    found = iter(op.call(body, **operands))
    return [next(found) if name else None for name in made]


@composed("LRN")
def local_response_normalization(at: Site) -> Gradients:
    """Compose the quotient by a power of the mean of squares of near channels."""
    op, shape, size = at.op, at.shape(0), int(at.attribute("size"))
    plane = np.array([shape[0], 1, shape[1], -1], np.int64)
    squares = op.Reshape(op.Mul(at.x(0), at.x(0)), plane)
    before = (size - 1) // 2
    window: dict[str, Any] = {
        "kernel_shape": [size, 1], "pads": [before, 0, size - 1 - before, 0],
        "count_include_pad": 1,
    }  # fmt: skip
    mean = op.Reshape(op.AveragePool(squares, **window), np.array(shape, np.int64))
    alpha, beta = at.attribute("alpha", 1e-4), at.attribute("beta", 0.75)
    base = op.Add(op.Mul(mean, at.number(alpha)), at.number(at.attribute("bias", 1.0)))
    return [op.Mul(at.x(0), op.Pow(base, at.number(-beta)))]
