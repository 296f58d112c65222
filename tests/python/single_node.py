"""Runs one operator by arenaplan's kernel and by ONNX Runtime or onnx's reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import arenaplan as ap
from arenaplan.formats.onnx.function_bodies import INLINED
from arenaplan.run.numpy.executor import quiet_arithmetic
from arenaplan.run.numpy.groups import Unit
from arenaplan.run.numpy.signatures import byte_size
from arenaplan.run.numpy.steps import (
    aligned_bytes,
    array_at,
    own_workspaces,
    prepare,
)
from step_costs import workspace_choices

Arrays = Sequence[np.ndarray | None]


def node_model(
    op: str,
    inputs: Arrays,
    attributes: dict[str, Any],
    *,
    opset: int,
    outputs: int,
    constants: Sequence[int],
) -> onnx.ModelProto:
    """Return a model of one node."""
    names = ["" if array is None else f"in{k}" for k, array in enumerate(inputs)]
    given = [
        helper.make_tensor_value_info(
            names[k], helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for k, array in enumerate(inputs)
        if array is not None and k not in constants
    ]
    stored = [numpy_helper.from_array(inputs[k], names[k]) for k in constants]
    results = [f"out{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    graph = helper.make_graph(
        [node], op, given, [onnx.ValueInfoProto(name=name) for name in results], stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def expected(model: onnx.ModelProto, inputs: Arrays, oracle: str) -> list[np.ndarray]:
    """Return what ONNX Runtime, or onnx's reference, computes."""
    feed = {value.name: inputs[int(value.name[2:])] for value in model.graph.input}
    if oracle == "reference":
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model).run(None, feed))
    from light_models import onnx_runtime

    return list(onnx_runtime(model).run(None, feed))


def node_graph(
    op: str,
    inputs: Arrays,
    results: Sequence[np.ndarray],
    attributes: dict[str, Any],
    *,
    opset: int,
    constants: Sequence[int],
) -> ap.Graph:
    """Return arenaplan's graph of one node."""
    graph = ap.Graph(op)
    operands = []
    for k, array in enumerate(inputs):
        if array is None:
            operands.append(None)
        elif k in constants:
            operands.append(graph.constant(f"in{k}", array.shape, array.dtype.name, array))
        else:
            operands.append(graph.input(f"in{k}", array.shape, array.dtype.name))
    specs = [(f"out{k}", array.shape, array.dtype.name) for k, array in enumerate(results)]
    for value in graph.node(op, operands, specs, attributes=attributes, version=opset):
        graph.output(value)
    return graph


def run_with_choice(graph: ap.Graph, inputs: Arrays, choice: int) -> list[np.ndarray]:
    """Run a graph with every value in its own memory, and workspaces of one size."""
    sizes = {
        node: [slot[min(choice, len(slot) - 1)].bytes for slot in slots]
        for node, slots in workspace_choices(graph).items()
    }
    arrays = {}
    for value in graph.values:
        if value.kind == "constant":
            arrays[value.index] = graph.data(value.index)
            continue
        memory = aligned_bytes(byte_size(value))
        memory[...] = 0xEE
        arrays[value.index] = array_at(graph, value.index, memory)
    for index in graph.inputs:
        np.copyto(arrays[index], inputs[int(graph.values[index].name[2:])])
    units = [Unit(node.index, (node.index,)) for node in graph.nodes]
    program = prepare(graph, units, arrays, own_workspaces(sizes)[0])
    with quiet_arithmetic():
        for _ in range(2):  # The second run must not depend on what the first one left.
            for run in program.runs:
                run()
    return [arrays[index].copy() for index in graph.outputs]


def check_node(
    op: str,
    inputs: Arrays,
    attributes: dict[str, Any] | None = None,
    *,
    opset: int = 17,
    outputs: int = 1,
    constants: Sequence[int] = (),
    tolerance: float = 2e-5,
    oracle: str = "onnxruntime",
) -> ap.Graph:
    """Compare a node's results, planned and with each size of workspace, with an oracle's."""
    attributes = attributes or {}
    model = node_model(op, inputs, attributes, opset=opset, outputs=outputs, constants=constants)
    wanted = expected(model, inputs, oracle)
    if op in INLINED[""]:
        graph = ap.load(model.SerializeToString())
    else:
        graph = node_graph(op, inputs, wanted, attributes, opset=opset, constants=constants)
    feed = {
        graph.values[index].name: inputs[int(graph.values[index].name[2:])]
        for index in graph.inputs
    }
    with ap.Executor(graph) as executor:
        compare(list(executor.run(feed, verify=True).values()), wanted, tolerance)
    slots = [slot for node in workspace_choices(graph).values() for slot in node]
    for choice in range(max((len(slot) for slot in slots), default=1)):
        compare(run_with_choice(graph, inputs, choice), wanted, tolerance)
    return graph


def compare(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> None:
    """Raise unless results agree, relative to their largest element."""
    for result, want in zip(results, wanted, strict=True):
        assert (result.dtype, result.shape) == (want.dtype, want.shape)
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(result, want)
            continue
        finite = np.isfinite(want)
        np.testing.assert_array_equal(result[~finite], want[~finite])
        if finite.any():
            scale = max(float(np.abs(want[finite]).max()), 1e-6)
            error = np.abs(result[finite].astype(np.float64) - want[finite]).max() / scale
            assert error <= tolerance, f"relative error {error}"
