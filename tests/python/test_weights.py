"""Weights as safetensors: the constants that nodes read, by the names in the graph."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, load_file

import arenaplan as ap
from arenaplan.base.errors import UnsupportedDtype
from arenaplan.cli import main
from arenaplan.deploy.export import weights_of
from dynamic_models import attention
from models import model, node


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_constants_that_the_importer_computed_are_written(tmp_path: Path) -> None:
    weights = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "b": np.ones(3, np.float32),
        "shape": np.array([-1, 3]),
        "unused": np.zeros(1000, np.float32),
    }
    nodes = [
        node("Transpose", "w", "t", perm=[1, 0]),
        node("MatMul", "x t", "m"),
        node("Add", "m b", "a"),
        node("Reshape", "a shape", "y"),
    ]
    path, file = tmp_path / "net.onnx", tmp_path / "net.safetensors"
    path.write_bytes(model(nodes, {"x": ("batch", 4)}, weights=weights).SerializeToString())
    assert run("export", path, "--to", "weights", "--bind", "batch=1..3", "-o", file) == 0
    found = load_file(file)
    # Neither the weights that only the importer read, nor constants that nothing reads.
    assert sorted(found) == ["b", "shape", "t"]
    np.testing.assert_array_equal(found["t"], weights["w"].T)
    # Every name is that of a constant in the graph file.
    graph = ap.load(path, bind={"batch": 2})
    names = {value.name: value.shape for value in graph.values if value.kind == "constant"}
    assert {name: array.shape for name, array in found.items()}.items() <= names.items()


def test_constants_that_depend_on_the_shape_are_written_per_shape(tmp_path: Path) -> None:
    path, file = tmp_path / "net.onnx", tmp_path / "net.safetensors"
    path.write_bytes(attention().SerializeToString())
    sizes = [(batch, seq) for batch in (1, 2) for seq in (3, 5)]
    bind = ("--bind", "seq=3,5", "--bind", "batch=1,2")
    assert run("export", path, "--to", "weights", *bind, "-o", file) == 0
    found = load_file(file)
    for batch, seq in sizes:
        text = f"batch={batch},seq={seq}"
        np.testing.assert_array_equal(found[f"split@{text}"], [batch, seq, 2, 4])
        graph = ap.load(path, bind={"batch": batch, "seq": seq})
        names = {value.name for value in graph.values if value.kind == "constant"}
        assert all(name in found or f"{name}@{text}" in found for name in names)
    assert {name.partition("@")[0] for name in found if "@" in name} == {"split", "merged"}


def test_weights_of_all_types_that_numpy_has_are_written() -> None:
    graph = ap.Graph("types")
    arrays = {
        dtype: np.array([[0, 1], [1, 0]], dtype)
        for dtype in ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64")
    }
    for name, array in arrays.items():
        index = graph.constant(name, array.shape, name, array.T)
        graph.output(index)
    found = load(weights_of([({}, graph)]))
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array.T)


def test_types_that_the_format_lacks_are_refused() -> None:
    graph = ap.Graph("types")
    graph.output(graph.constant("c", (2,), "complex128", np.zeros(2, np.complex128)))
    with pytest.raises(UnsupportedDtype, match="complex128"):
        weights_of([({}, graph)])


def test_without_the_package_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any, **others: Any) -> Any:
        if name.startswith("safetensors"):
            raise ImportError(name)
        return imported(name, *rest, **others)

    path = tmp_path / "net.onnx"
    path.write_bytes(attention().SerializeToString())
    monkeypatch.setattr(builtins, "__import__", without)
    bind = ("--bind", "batch=1", "--bind", "seq=2")
    assert run("export", path, "--to", "weights", *bind, "-o", tmp_path / "w") == 3
    assert "pip install safetensors" in capsys.readouterr().err


def test_a_graph_file_has_no_weights_to_write(tmp_path: Path) -> None:
    graph = ap.Graph("none")
    graph.output(graph.constant("w", (2,)))
    graph.save(tmp_path / "none.graph.json")
    assert run("export", tmp_path / "none.graph.json", "--to", "weights", "-o", tmp_path / "w") == 2
    assert run("export", tmp_path / "none.graph.json", "--to", "graph", "-o", tmp_path / "g") == 0
