"""Whole TFLite models in the executor: states, shared bytes, comparison with the interpreter."""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.graph.effects import Overlap
from raising import raises
from tflite_cases import inputs_of
from tflm_models import running_sum
from tflm_operators import Case, Operand, model_of

# -- states -----------------------------------------------------------------------------------


def test_variables_live_on_and_can_be_reset() -> None:
    data = running_sum(4)
    with ap.Executor(data) as executor:
        assert [node.op for node in executor.graph.nodes] == [
            *("READ_VARIABLE", "ADD", "ASSIGN_VARIABLE", "NEG")
        ]
        one = np.ones((1, 4), np.float32)
        for turn in (1, 2, 3):
            (y,) = executor.run({"x": one}, verify=turn == 2).values()
            assert (y == -turn).all()
        executor.reset()
        (y,) = executor.run({"x": one}).values()
        assert (y == -1).all()
    with raises("ArenaState"):
        executor.reset()


def test_variables_begin_with_what_the_first_call_assigns() -> None:
    data = running_sum(4, struct.pack("<4f", 1, 2, 3, 4))
    with ap.Executor(data) as executor:
        (y,) = executor.run({"x": np.zeros((1, 4), np.float32)}).values()
    assert y.tolist() == [[-1, -2, -3, -4]]


def test_states_of_bytes_begin_with_their_zero_point() -> None:
    case = Case(
        "SVDF",
        [
            Operand((1, 3), "int8"),
            Operand((2, 3), "int8", (1,)),
            Operand((2, 4), "int8", (1,)),
            Operand((2,), "int32", (0,), axis=-1),
            Operand((1, 8), "int8", is_variable=True, zero_point=7),
        ],
        [Operand((1, 2), "int8")],
        (6, {0: flat.Number("i", 1)}),
    )
    with ap.Executor(model_of(case)) as executor:
        (y,) = executor.run({"t0": np.zeros((1, 3), np.int8)}).values()
    assert y.tolist() == [[0, 0]]  # The memory holds zeros, which 7 stands for.


def test_an_arena_that_is_handed_over_keeps_its_states() -> None:
    graph = ap.load(running_sum(4))
    plan = ap.plan(graph, target="numpy")
    one = {"x": np.ones((1, 4), np.float32)}
    arena = plan.commit()
    for turn in (1, 2):
        (y,) = ap.Executor(graph, plan, arena=arena).run(one).values()
        assert (y == -turn).all()


@pytest.mark.parametrize(("name", "options"), [("IF", 92), ("WHILE", 93)])
def test_subgraphs_that_run_themselves_are_refused_by_name(name: str, options: int) -> None:
    x, y = (flat.tensor(it, (1,), 6) for it in "xy")
    operator = flat.operator(0, [0, 0] if name == "IF" else [0], [1], (options, {}))
    graph = flat.subgraph([x, y], [operator], [0], [1])
    with pytest.raises(errors.UnsupportedSubgraph, match=f"{name}_0.*runs itself"):
        ap.Executor(flat.write(flat.model([flat.code(name)], [graph])))


# -- weights ----------------------------------------------------------------------------------


def test_weights_of_4_bits_are_unpacked() -> None:
    numbers = bytes([0x21, 0xF8])  # 1, 2, -8, -1
    tensors = [
        flat.tensor("x", (1, 4), flat.INT8, scale=_ONE),
        flat.tensor("w", (1, 4), flat.INT4, buffer=1, scale=_ONE),
        flat.tensor("y", (1, 1), flat.INT8, scale=_ONE),
    ]
    operator = flat.operator(0, [0, 1, -1], [2], (8, {}))
    graph = flat.subgraph(tensors, [operator], [0], [2])
    data = flat.write(flat.model([flat.code("FULLY_CONNECTED")], [graph], [b"", numbers]))
    with ap.Executor(data) as executor:
        (y,) = executor.run({"x": np.array([[10, 20, 3, 4]], np.int8)}).values()
    assert y.tolist() == [[10 + 40 - 24 - 4]]


_ONE = struct.unpack("<I", struct.pack("<f", 1.0))[0]


def test_half_precision_weights_are_widened_before_the_first_run() -> None:
    half = np.array([[0.5, -2.0]], np.float16)
    tensors = [
        flat.tensor("x", (1, 2)),
        flat.tensor("half", (1, 2), 1, buffer=1),
        flat.tensor("w", (1, 2)),
        flat.tensor("y", (1, 1)),
    ]
    operators = [
        flat.operator(0, [1], [2], (38, {})),
        flat.operator(1, [0, 2, -1], [3], (8, {})),
    ]
    codes = [{0: flat.Number("b", 6), 3: flat.Number("i", 6)}, flat.code("FULLY_CONNECTED")]
    graph = flat.subgraph(tensors, operators, [0], [3])
    data = flat.write(flat.model(codes, [graph], [b"", half.tobytes()]))
    with ap.Executor(data) as executor:
        assert [node.op for node in executor.graph.nodes] == ["FULLY_CONNECTED"]
        (y,) = executor.run({"x": np.array([[4, 1]], np.float32)}).values()
    assert y.tolist() == [[0.0]]


# -- shared bytes -----------------------------------------------------------------------------


def _layers() -> bytes:
    """Return a model whose second layer makes an image as large as the one that it reads."""
    image, bits = (1, 24, 24, 8), struct.unpack("<I", struct.pack("<f", 0.05))[0]
    weights = bytes(np.arange(72, dtype=np.int8) - 36)
    tensors = [
        flat.tensor("x", (1, 24, 24, 2), flat.INT8, scale=bits),
        flat.tensor("v", (1, 1, 1, 8), flat.INT8, buffer=2, scale=bits),
        flat.tensor("r", image, flat.INT8, scale=bits),
        flat.tensor("w", (1, 3, 3, 8), flat.INT8, buffer=1, scale=bits),
        flat.tensor("d", image, flat.INT8, scale=bits),
        flat.tensor("y", image, flat.INT8, scale=bits),
    ]
    step = {0: flat.Number("b", 0), 1: flat.Number("i", 1), 2: flat.Number("i", 1)}
    operators = [
        flat.operator(1, [0, 1, -1], [2], (2, {**step, 3: flat.Number("i", 4)})),
        flat.operator(1, [2, 3, -1], [4], (2, {**step, 3: flat.Number("i", 1)})),
        flat.operator(0, [4], [5]),
    ]
    codes = [flat.code("RELU"), flat.code("DEPTHWISE_CONV_2D")]
    graph = flat.subgraph(tensors, operators, [0], [5])
    return flat.write(flat.model(codes, [graph], [b"", weights, bytes(range(20, 28))]))


def test_a_result_may_overlap_what_is_still_read() -> None:
    graph = ap.load(_layers())
    apart = ap.plan(graph, target="numpy", optimize="none")
    together = ap.plan(graph, target="numpy", workspace="none")
    assert together.overlapped == [1]
    assert together.arena_bytes < 2 * 24 * 24 * 8 <= apart.arena_bytes
    inputs = inputs_of(graph, "overlap")
    (wanted,) = ap.Executor(graph, apart).run(inputs).values()
    (found,) = ap.Executor(graph, together).run(inputs, verify=True).values()
    assert (found == wanted).all()
    assert len(set(found.ravel().tolist())) > 50


def test_kernels_run_alone_and_in_order() -> None:
    seen = ap.load(_layers()).for_target("numpy")
    assert not any(node.effects.flows or node.effects.windows for node in seen.nodes)
    _, depthwise, relu = seen.nodes
    assert Overlap(0, 0, 0) in relu.effects.overlaps
    # The window of a pixel begins one row and one pixel before it.
    assert [overlap.distance for overlap in depthwise.effects.overlaps] == [(24 + 2) * 8 - 1]


# -- the command ------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.tflite"
    path.write_bytes(_layers())
    return path


def _fake(change: int) -> Any:
    """Return a package whose interpreter adds a number to each result."""

    class Interpreter:
        def __init__(self, data: bytes) -> None:
            self.executor = ap.Executor(data)
            self.inputs: dict[str, np.ndarray] = {}
            self.outputs: list[np.ndarray] = []

        @staticmethod
        def from_bytes(data: bytes, arena_size: int) -> Interpreter:
            if arena_size <= 1 << 22:
                raise RuntimeError("too small")
            return Interpreter(data)

        def set_input(self, array: np.ndarray, index: int) -> None:
            graph = self.executor.graph
            self.inputs[graph.values[graph.inputs[index]].name] = array

        def invoke(self) -> None:
            self.outputs = list(self.executor.run(self.inputs).values())

        def get_output(self, index: int) -> np.ndarray:
            return self.outputs[index] + np.int8(change)

    return SimpleNamespace(runtime=SimpleNamespace(Interpreter=Interpreter))


def test_verify_compares_with_the_interpreter(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tflite_micro", _fake(0))
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"1.0 of {name}")
    assert main(["run", str(model), "--verify", "--runs", "3"]) == 0
    assert "tflite-micro 1.0 of tflite-micro, 3 runs: equal bit by bit" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "tflite_micro", _fake(1))
    assert main(["run", str(model), "--verify"]) == 1
    assert "output 'y' differs from that of" in capsys.readouterr().err


def test_verify_says_so_if_there_is_no_interpreter(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tflite_micro", None)
    assert main(["run", str(model), "--verify"]) == 0
    assert "tflite-micro is not installed" in capsys.readouterr().out
    assert main(["run", str(model)]) == 0
    assert "compared" not in capsys.readouterr().out


# -- models of others -------------------------------------------------------------------------

_SHARED = {
    "ad01_int8": "be4c9220a4d2",
    "kws_ref_model": "579f15c5d646",
    "micro_speech_quantized": "b5bea6ca5acd",
    "person_detect": "fd867a79d90e",
    "pretrainedResnet_quant": "7245322285f7",
    "vww_96_int8": "ace6db985af1",
}
"""Digests of what the interpreter computes in two runs."""


@pytest.mark.parametrize("name", _SHARED)
def test_models_of_others_run_bit_by_bit_as_in_the_interpreter(shared: Path, name: str) -> None:
    with ap.Executor(shared / "models" / "tflite" / f"{name}.tflite") as executor:
        whole = hashlib.sha256()
        for run in range(2):
            for array in executor.run(inputs_of(executor.graph, f"{name}/{run}")).values():
                whole.update(array.tobytes())
    assert whole.hexdigest()[:12] == _SHARED[name]
