"""
The nine "light" models of the onnx package, with weights.

The package ships the graphs of well-known networks whose weights are all one number,
made by ConstantOfShape nodes. :func:`randomized` gives them random ones that keep
activations within bounds, so that a wrong result cannot pass for a right one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"
NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
VARIED = tuple(name for name in NAMES if name not in ("bvlc_alexnet", "vgg19"))
"""Those without the two that have no operator and no connection that ``zfnet512`` lacks, and whose
weights take most of the time of a test."""


def path(name: str) -> Path:
    """Return the file of a light model."""
    return FOLDER / f"light_{name}.onnx"


def stored_case(name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the input that onnx's own test runner feeds a light model, and the stored output."""
    graph = onnx.load(path(name)).graph
    made = {node.output[0] for node in graph.node} | {i.name for i in graph.initializer}
    (source,) = [value for value in graph.input if value.name not in made]
    shape = [dim.dim_value for dim in source.type.tensor_type.shape.dim]
    size = int(np.prod(shape))
    array = (np.arange(size).reshape(shape) / size).astype(np.float32)
    expected = TensorProto()
    expected.ParseFromString((FOLDER / f"light_{name}_output_0.pb").read_bytes())
    return {source.name: array}, numpy_helper.to_array(expected)


def randomized(name: str, seed: int = 0) -> ModelProto:
    """Return a light model with random weights instead of constant ones."""
    model = onnx.load(path(name))
    graph = model.graph
    rng = np.random.default_rng(seed)
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    readers: dict[str, tuple[NodeProto, int]] = {}
    for node in graph.node:
        for position, value in enumerate(node.input):
            readers.setdefault(value, (node, position))
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = shapes[node.input[0]].tolist()
            weights = _weights(shape, *_first_reader(readers, node.output[0]), rng)
            graph.initializer.append(numpy_helper.from_array(weights, node.output[0]))
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    stored = {i.name for i in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)  # Initializers need not be inputs then.
    return model


def _first_reader(
    readers: dict[str, tuple[NodeProto, int]], value: str
) -> tuple[NodeProto | None, int]:
    """Return who uses a weight, looking through changes of shape."""
    node, position = readers.get(value, (None, 0))
    while node is not None and node.op_type in ("Unsqueeze", "Reshape"):
        node, position = readers.get(node.output[0], (None, 0))
    return node, position


def _weights(
    shape: list[int], node: NodeProto | None, position: int, rng: np.random.Generator
) -> np.ndarray:
    """Return weights that neither blow up nor extinguish what passes through them."""
    op = "" if node is None else node.op_type
    if op in ("Conv", "Gemm") and position == 1:
        fan_in = int(np.prod(shape[1:]))
        weights = rng.standard_normal(shape) * np.sqrt(2 / fan_in)
    elif op == "BatchNormalization" and position == 4:
        weights = rng.uniform(1, 3, shape)
    elif op in ("BatchNormalization", "Mul") and position == 1:
        weights = rng.uniform(0.5, 1, shape)
    else:
        weights = rng.standard_normal(shape) * 0.1
    return weights.astype(np.float32)


def random_input(model: ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """Return a random input of a randomized model."""
    rng = np.random.default_rng(seed)
    return {
        value.name: rng.standard_normal(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
    }


def onnx_runtime(model: ModelProto | bytes | str, threads: int = 1, *, plain: bool = False):
    """Return an ONNX Runtime session on the CPU; a plain one rewrites nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    source = model.SerializeToString() if isinstance(model, ModelProto) else model
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def softmax_input(model: ModelProto) -> ModelProto:
    """Return the model with the input of its last Softmax, if any, as its only output."""
    last = [node for node in model.graph.node if node.op_type == "Softmax"]
    if last:
        kind = helper.make_tensor_value_info(last[-1].input[0], TensorProto.FLOAT, None)
        model.graph.node.remove(last[-1])
        del model.graph.output[:]
        model.graph.output.append(kind)
    return model
