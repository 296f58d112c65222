"""Small ONNX models whose dimensions vary, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto

from arenaplan.run.numpy import Step, kernel
from models import graph, model, node


def _weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return small random weights."""
    numbers = np.random.default_rng(5)
    return {name: numbers.normal(0, 0.2, s).astype(np.float32) for name, s in shapes.items()}


def convolutions() -> ModelProto:
    """Return branches that are concatenated, for any batch: pieces are views at batch 1 only."""
    nodes = [
        node("Conv", "x a", "left", pads=[1] * 4),
        node("Conv", "x b", "right"),
        node("Concat", "left right", "both", axis=1),
        node("Relu", "both", "active"),
        node("Conv", "active c", "deep", pads=[1] * 4),
        node("GlobalAveragePool", "deep", "pooled"),
        node("Flatten", "pooled", "y"),
    ]
    weights = _weights(a=(6, 3, 3, 3), b=(4, 3, 1, 1), c=(5, 10, 3, 3))
    return model(nodes, {"x": ("batch", 3, 12, 12)}, weights=weights)


def attention() -> ModelProto:
    """Return self-attention with shapes computed as exporters do: Shape, Gather, Concat."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Gather", "shape one", "seq", axis=0),
        node("Unsqueeze", "batch axis0", "batch1"),
        node("Unsqueeze", "seq axis0", "seq1"),
        node("Concat", "batch1 seq1 heads width", "split", axis=0),
        node("Concat", "batch1 seq1 all", "merged", axis=0),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", f"x w{name}", f"{name}0"),
            node("Reshape", f"{name}0 split", f"{name}1"),
            node("Transpose", f"{name}1", name, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", "q k", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights v", "mixed"),
        node("Transpose", "mixed", "rows", perm=[0, 2, 1, 3]),
        node("Reshape", "rows merged", "joined"),
        node("Add", "joined x", "y"),
    ]
    numbers = {"zero": 0, "one": 1, "axis0": [0], "heads": [2], "width": [4], "all": [8]}
    weights = {name: np.array(number, np.int64) for name, number in numbers.items()}
    weights |= _weights(wq=(8, 8), wk=(8, 8), wv=(8, 8))
    return model(nodes, {"x": ("batch", "seq", 8)}, weights=weights)


def shrinking() -> ModelProto:
    """Return a model that needs most at its smallest batch: it repeats 256 // batch² times."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Mul", "batch batch", "square"),
        node("Div", "many square", "times"),
        node("Concat", "one times", "repeats", axis=0),
        node("Tile", "x repeats", "wide"),
        node("Sqrt", "wide", "root"),
        node("MatMul", "x w", "narrow"),
        node("ReduceSum", "root axis", "sum", keepdims=1),
        node("Add", "narrow sum", "y"),
    ]
    weights = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "axis": np.array([1]),
        "many": np.array([256]),
        **_weights(w=(128, 4)),
    }
    return model(nodes, {"x": ("batch", 128)}, weights=weights)


def branching() -> ModelProto:
    """Return a model whose graph is another one for short sequences: it branches on the shape."""
    long = graph([node("MatMul", "x w", "wide"), node("Relu", "wide", "taken")], outputs="taken")
    short = graph([node("Neg", "x", "other")], outputs="other")
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "seq", axis=0),
        node("Greater", "seq ten", "is_long"),
        node("If", "is_long", "y", then_branch=long, else_branch=short),
    ]
    weights = {"zero": np.array(0), "ten": np.array(10), **_weights(w=(16, 16))}
    return model(nodes, {"x": ("seq", 16)}, weights=weights)


def unnamed() -> ModelProto:
    """Return a model whose dimensions have no names."""
    return model([node("Softmax", "x", "y")], {"x": (None, 16)})


@kernel("Widen", domain="hidden")
def widen(_: Step) -> None:
    """Do nothing: plans for NumPy are of operators with kernels."""


def hidden() -> ModelProto:
    """Return a model with a dimension that no input has."""
    declared = {"y": (("n", "m"), TensorProto.FLOAT)}
    return model(
        [node("Widen", "x", "y", domain="hidden")], {"x": ("n",)}, declared, domains={"hidden": 1}
    )


def array(*shape: int) -> np.ndarray:
    """Return an input: numbers between 0 and 1 that depend on the shape alone."""
    return np.random.default_rng(shape).random(shape, np.float32)


def expected(proto: ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what ONNX Runtime computes."""
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(inputs))
