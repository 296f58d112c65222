"""
Makes the models of the example server, with the command line of arenaplan.

Each model gets ``NAME.onnx``, ``NAME.plan.json`` (graphs and plans of all batch sizes),
``NAME.safetensors`` (weights), and ``NAME.expected.safetensors``: inputs and the outputs of ONNX
Runtime. All weights are seeded. ``--light`` takes the models of image networks out of the package
``onnx`` instead.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, shape_inference
from safetensors.numpy import save_file

BATCHES = (1, 2, 4, 8)
CHECKED = (1, 3, 8)
"""Batches of the expected outputs; 3 runs in the arena of 4."""


class Network:
    """Nodes and weights of a model."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        """Add a weight with normal elements."""
        fan = int(np.prod(shape[1:])) or 1
        data = self.random.normal(0, scale or fan**-0.5, shape)
        return self.constant(name, data.astype(np.float32))

    def constant(self, name: str, data: np.ndarray) -> str:
        """Add a constant."""
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def node(self, op: str, name: str, *inputs: str, **attributes: object) -> str:
        """Add a node whose output has its name."""
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def model(self, inputs: list[onnx.ValueInfoProto], output: str, width: int) -> onnx.ModelProto:
        """Return the model."""
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", width])
        graph = helper.make_graph(self.nodes, output, inputs, [result], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(made, full_check=True)
        return made


def keyword() -> onnx.ModelProto:
    """Return a convolutional network that tells words by their spectra."""
    net = Network(seed=1)

    def conv(name: str, x: str, made: int, read: int, taps: int, **attributes: object) -> str:
        weights = net.weight(f"{name}.weight", made, read, taps, taps)
        bias = net.weight(f"{name}.bias", made, scale=0.1)
        pads = [taps // 2] * 4
        return net.node("Conv", name, x, weights, bias, pads=pads, **attributes)

    x = conv("stem", "spectrum", 16, 1, 3, strides=[2, 1])
    moments = [net.weight(f"norm.{part}", 16, scale=0.1) for part in ("scale", "shift", "mean")]
    variance = net.constant("norm.variance", np.linspace(0.5, 2, 16, dtype=np.float32))
    x = net.node("Relu", "start", net.node("BatchNormalization", "norm", x, *moments, variance))
    for block in range(2):
        name = f"block{block}"
        y = conv(f"{name}.depth", x, 16, 1, 3, group=16)
        y = net.node("Relu", f"{name}.active", y)
        y = conv(f"{name}.point", y, 16, 16, 1)
        x = net.node("Relu", f"{name}.out", net.node("Add", f"{name}.sum", x, y))
    x = net.node("MaxPool", "pool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Relu", "wide", conv("expand", x, 32, 16, 3))
    x = net.node("Flatten", "flat", net.node("GlobalAveragePool", "mean", x))
    dense = [net.weight("dense.weight", 12, 32), net.weight("dense.bias", 12, scale=0.1)]
    x = net.node("Gemm", "logits", x, *dense, transB=1)
    x = net.node("Softmax", "word", x, axis=-1)
    shape = ["batch", 1, 49, 10]
    spectrum = helper.make_tensor_value_info("spectrum", TensorProto.FLOAT, shape)
    return net.model([spectrum], x, 12)


def encoder(tokens: int = 16, width: int = 32, heads: int = 4, layers: int = 2) -> onnx.ModelProto:
    """Return a transformer encoder that classifies sequences of tokens, with a mask."""
    net = Network(seed=2)
    deep = width // heads

    def dense(name: str, x: str, read: int, made: int) -> str:
        product = net.node("MatMul", f"{name}.product", x, net.weight(f"{name}.weight", read, made))
        return net.node("Add", name, product, net.weight(f"{name}.bias", made, scale=0.1))

    def normal(name: str, x: str) -> str:
        scale = net.constant(f"{name}.scale", net.random.normal(1, 0.1, width).astype(np.float32))
        shift = net.weight(f"{name}.shift", width, scale=0.1)
        return net.node("LayerNormalization", name, x, scale, shift, axis=-1)

    split = net.constant("split", np.array([0, 0, heads, deep]))
    merge = net.constant("merge", np.array([0, 0, width]))
    root = net.constant("root", np.array(deep**0.5, np.float32))
    two = [
        net.constant(*each)
        for each in (
            ("half", np.array(0.5, np.float32)),
            ("one", np.array(1, np.float32)),
            ("sqrt2", np.array(2**0.5, np.float32)),
        )
    ]
    x = net.node("Gather", "embedded", net.weight("tokens.weight", 100, width, scale=1), "ids")
    x = net.node("Add", "placed", x, net.weight("places.weight", tokens, width, scale=1))
    x = normal("start", x)
    for layer in range(layers):
        name = f"layer{layer}"

        def head(part: str, order: list[int], x: str = x, name: str = name) -> str:
            y = dense(f"{name}.{part}", x, width, width)
            y = net.node("Reshape", f"{name}.{part}.split", y, split)
            return net.node("Transpose", f"{name}.{part}.heads", y, perm=order)

        queries, keys = head("q", [0, 2, 1, 3]), head("k", [0, 2, 3, 1])
        scores = net.node("MatMul", f"{name}.scores", queries, keys)
        scores = net.node("Div", f"{name}.scaled", scores, root)
        scores = net.node("Add", f"{name}.masked", scores, "mask")
        shares = net.node("Softmax", f"{name}.shares", scores, axis=-1)
        y = net.node("MatMul", f"{name}.mixed", shares, head("v", [0, 2, 1, 3]))
        y = net.node("Transpose", f"{name}.back", y, perm=[0, 2, 1, 3])
        y = net.node("Reshape", f"{name}.merged", y, merge)
        y = dense(f"{name}.attended", y, width, width)
        x = normal(f"{name}.norm", net.node("Add", f"{name}.sum", x, y))
        y = dense(f"{name}.up", x, width, 2 * width)
        gate = net.node("Erf", f"{name}.erf", net.node("Div", f"{name}.divided", y, two[2]))
        gate = net.node("Add", f"{name}.raised", gate, two[1])
        y = net.node("Mul", f"{name}.halved", net.node("Mul", f"{name}.gated", y, gate), two[0])
        y = dense(f"{name}.down", y, 2 * width, width)
        x = normal(f"{name}.end", net.node("Add", f"{name}.rest", x, y))
    first = net.constant("first", np.array(0))
    x = net.node("Tanh", "pooled", net.node("Gather", "head", x, first, axis=1))
    x = dense("classes", x, width, 5)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", tokens])
    mask = helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", 1, 1, tokens])
    return net.model([ids, mask], x, 5)


def light(name: str) -> onnx.ModelProto:
    """Return a model of the package onnx with the batch as a symbol, and seeded weights."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    model = onnx.load(folder / f"{name}.onnx")
    random = np.random.default_rng(3)
    constants = {init.name for init in model.graph.initializer}
    # The weights are constants of one value each, which would make all outputs equal.
    for node in list(model.graph.node):
        if node.op_type == "ConstantOfShape":
            made = shape_inference.infer_shapes(model)
            info = next(v for v in made.graph.value_info if v.name == node.output[0])
            dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            fan = int(np.prod(dims[1:])) if len(dims) > 1 else 100
            data = random.normal(0, fan**-0.5, dims).astype(np.float32)
            if len(dims) == 1:
                data = np.abs(data) + 0.5
            model.graph.initializer.append(numpy_helper.from_array(data, node.output[0]))
            model.graph.node.remove(node)
    for value in [*model.graph.input, *model.graph.output]:
        if value.name not in constants:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def write(name: str, model: onnx.ModelProto, folder: Path) -> None:
    """Write the files of a model."""
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    bind = f"batch={','.join(map(str, BATCHES))}"
    command = [sys.executable, "-m", "arenaplan"]
    plan = ["plan", str(path), "--bind", bind, "--target", "nodes"]
    subprocess.run([*command, *plan, "-o", str(folder / f"{name}.plan.json")], check=True)
    weights = ["export", str(path), "--bind", bind, "--to", "weights"]
    subprocess.run([*command, *weights, "-o", str(folder / f"{name}.safetensors")], check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random, known = np.random.default_rng(4), {}
    for batch in CHECKED:
        feed = {}
        for value in session.get_inputs():
            shape = [batch, *value.shape[1:]]
            if value.type == "tensor(int64)":
                feed[value.name] = random.integers(0, 100, shape)
            elif value.name == "mask":
                feed[value.name] = np.where(random.random(shape) < 0.2, -1e4, 0).astype(np.float32)
            else:
                feed[value.name] = random.normal(0, 1, shape).astype(np.float32)
        results = session.run(None, feed)
        known |= {f"{batch}/input/{key}": array for key, array in feed.items()}
        outputs = zip(session.get_outputs(), results, strict=True)
        known |= {f"{batch}/output/{value.name}": array for value, array in outputs}
    save_file(known, folder / f"{name}.expected.safetensors")


def main() -> None:
    """Write the models into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--light", nargs="*", help="names such as light_squeezenet")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    models = {"keyword": keyword, "encoder": encoder}
    if options.light is not None:
        models = {name: lambda name=name: light(name) for name in options.light}
    for name, make in models.items():
        write(name, make(), options.folder)


if __name__ == "__main__":
    main()
