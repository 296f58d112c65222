"""Small quantized models in files, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import arenaplan as ap

ort = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(15)
Arrays = Mapping[str, np.ndarray]
MICROSOFT = "com.microsoft"


class Model:
    """A model in a file, and what ONNX Runtime makes of it without optimization."""

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[Any],
        inputs: Arrays,
        outputs: Mapping[str, np.dtype],
        constants: Arrays,
    ) -> None:
        kind = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            nodes,
            "quantized",
            [
                helper.make_tensor_value_info(name, kind(array.dtype), array.shape)
                for name, array in inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, kind(np.dtype(dtype)), None)
                for name, dtype in outputs.items()
            ],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        sets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=9)
        self.path = folder / "model.onnx"
        self.path.write_bytes(model.SerializeToString())
        self.inputs = dict(inputs)
        self.names = list(outputs)

    def expected(self) -> list[np.ndarray]:
        """Return the results of ONNX Runtime."""
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = ort.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        return list(session.run(self.names, self.inputs))

    def found(self, **options: Any) -> list[np.ndarray]:
        """Return the results of the executor, each step of which is verified."""
        graph = ap.load(self.path)
        executor = ap.Executor(graph, ap.plan(graph, **options))
        results = executor.run(self.inputs, verify=True)
        return [np.array(results[name]) for name in self.names]


def integers(shape: Sequence[int], dtype: Any, draw: np.random.Generator = RNG) -> np.ndarray:
    """Return integers over the whole range of a type."""
    limits = np.iinfo(dtype)
    return draw.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def narrow_weights(shape: Sequence[int], draw: np.random.Generator = RNG) -> np.ndarray:
    """
    Return integers of 8 bits for products with ``uint8``, from -64 to 63.

    ONNX Runtime adds two such products in 16 bits, which saturate, on processors for x86-64 without
    VNNI; with these weights they do not.
    """
    return np.asarray(integers(shape, np.int8, draw) // np.int8(2))


def scale(number: float) -> np.ndarray:
    """Return a scale."""
    return np.float32(number)


def node(op: str, inputs: str, domain: str = "", **attributes: Any) -> Any:
    """Return a node that makes ``y`` of inputs whose names are apart by blanks."""
    names = [name if name != "-" else "" for name in inputs.split()]
    return helper.make_node(op, names, ["y"], domain=domain, **attributes)
