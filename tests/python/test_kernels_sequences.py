"""Kernels of recurrent layers, linear attention, signals and n-grams."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidAttribute
from arenaplan.formats.onnx import load_onnx
from raising import raises
from single_node import check_node, node_model

RNG = np.random.default_rng(20261122)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(op: str, directions: int, *, optional: bool, steps: int = 6) -> list[np.ndarray | None]:
    """Return the inputs of a recurrent layer of width 3 and size 5, for a batch of 4."""
    gates = GATES[op]
    lengths = np.array([steps, 1, 3, 2], np.int32)
    states = [random(directions, 4, 5) for _ in range(2 if op == "LSTM" else 1)]
    inputs: list[np.ndarray | None] = [
        random(steps, 4, 3),
        random(directions, gates * 5, 3) * 0.5,
        random(directions, gates * 5, 5) * 0.5,
    ]
    if optional:
        inputs += [random(directions, 2 * gates * 5), lengths, *states]
        if op == "LSTM":
            inputs.append(random(directions, 15) * 0.5)
    return inputs


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("optional", [False, True])
def test_recurrent_layers_agree(op: str, direction: str, optional: bool) -> None:
    directions = 2 if direction == "bidirectional" else 1
    inputs = layer(op, directions, optional=optional)
    outputs = 3 if op == "LSTM" else 2
    attributes: dict[str, Any] = {"hidden_size": 5, "direction": direction}
    for more in ({}, {"clip": 0.7}, {"linear_before_reset": 1} if op == "GRU" else {"clip": 0.1}):
        check_node(op, inputs, {**attributes, **more}, outputs=outputs, constants=[1, 2])


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("batch", [1, 3])
def test_layers_of_compiled_kernels_agree(op: str, direction: str, batch: int) -> None:
    directions, hidden, rows = (1 if direction == "forward" else 2), 37, GATES[op] * 37
    states = [random(directions, batch, hidden) for _ in range(2 if op == "LSTM" else 1)]
    weights = [
        random(directions, rows, 19) * 0.3,
        random(directions, rows, hidden) * 0.2,
        random(directions, 2 * rows),
    ]
    inputs = [random(9, batch, 19), *weights, None, *states]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    others: dict[str, list[dict[str, Any]]] = {
        "GRU": [{"linear_before_reset": 1}],
        "RNN": [{"activations": ["Relu"] * directions}],
    }
    for more in ({}, *others.get(op, ())):
        outputs = 3 if op == "LSTM" else 2
        check_node(op, inputs, {**attributes, **more}, outputs=outputs, constants=[1, 2, 3])


FUNCTIONS: dict[str, tuple[float | None, float | None]] = {
    "Affine": (0.5, 0.2),
    "Elu": (0.3, None),
    "HardSigmoid": (0.3, 0.4),
    "LeakyRelu": (0.2, None),
    "Relu": (None, None),
    "ScaledTanh": (0.7, 0.9),
    "Sigmoid": (None, None),
    "Softplus": (None, None),
    "Softsign": (None, None),
    "Tanh": (None, None),
    "ThresholdedRelu": (0.1, None),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_of_activations_are_consumed_in_order(function: str) -> None:
    names = [function, "LeakyRelu", function] * 2
    alphas = {**FUNCTIONS, "LeakyRelu": (0.25, None)}
    attributes: dict[str, Any] = {"hidden_size": 5, "direction": "bidirectional"}
    attributes |= {"activations": names}
    attributes |= {"activation_alpha": [a for a, _ in map(alphas.get, names) if a is not None]}
    betas = [b for _, b in map(alphas.get, names) if b is not None]
    attributes |= {"activation_beta": betas} if betas else {}
    # Few steps of little weight: such gates have no bounds, and the cell grows with their product.
    x, w, r, *rest = layer("LSTM", 2, optional=True, steps=3)
    assert w is not None
    assert r is not None
    inputs = [x, w * 0.2, r * 0.2, *rest]
    check_node("LSTM", inputs, attributes, outputs=3, constants=[1, 2], tolerance=5e-5)


def test_gates_of_an_lstm_can_be_coupled() -> None:
    attributes = {"hidden_size": 5, "input_forget": 1}
    check_node("LSTM", layer("LSTM", 1, optional=True), attributes, outputs=3)


@pytest.mark.parametrize("op", GATES)
def test_the_batch_can_be_the_first_axis(op: str) -> None:
    inputs = layer(op, 1, optional=True)
    del inputs[4:]
    model = node_model(op, inputs, {"hidden_size": 5}, opset=14, outputs=2, constants=[1, 2, 3])
    x = inputs[0]
    assert x is not None
    with ap.Executor(load_onnx(model)) as executor:
        y, last = executor.run({"in0": x}, verify=True).values()
    swapped = [x.swapaxes(0, 1).copy(), *inputs[1:]]
    attributes = {"hidden_size": 5, "layout": 1}
    model = node_model(op, swapped, attributes, opset=14, outputs=2, constants=[1, 2, 3])
    with ap.Executor(load_onnx(model)) as executor:
        other, other_last = executor.run({"in0": swapped[0]}, verify=True).values()
    np.testing.assert_allclose(other, y.transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other_last, last.swapaxes(0, 1), rtol=1e-5, atol=1e-6)


def test_a_final_state_takes_over_the_initial_one() -> None:
    lstm = layer("LSTM", 1, optional=True)
    model = node_model("LSTM", lstm, {"hidden_size": 5}, opset=22, outputs=3, constants=[1, 2])
    (node,) = load_onnx(model).nodes
    assert [(pair.input, pair.output) for pair in node.effects.in_place] == [(5, 1), (6, 2)]


def test_an_activation_that_does_not_exist_is_refused() -> None:
    inputs = layer("RNN", 1, optional=False)
    attributes = {"hidden_size": 5, "activations": ["Frob"]}
    model = node_model("RNN", inputs, attributes, opset=22, outputs=1, constants=[1, 2])
    with pytest.raises(InvalidAttribute, match="Frob"):
        ap.Executor(load_onnx(model))


# -- linear attention ------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("group", [1, 3])
def test_linear_attention_agrees_with_the_reference(rule: str, group: int) -> None:
    query, key, value = random(2, 5, 2 * group * 3), random(2, 5, 6), random(2, 5, 8)
    past = random(2, 2, 3, 4)
    decay = -np.abs(random(2, 5, 6)) if "gated" in rule else None
    beta = np.abs(random(2, 5, 2)) if "delta" in rule else None
    attributes = {"q_num_heads": 2 * group, "kv_num_heads": 2, "update_rule": rule}
    inputs = [query, key, value, past, decay, beta]
    while inputs[-1] is None:
        inputs.pop()
    check_node("LinearAttention", inputs, attributes, opset=27, outputs=2, oracle="reference")


# -- signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("length", [None, 4, 7, 12])
def test_fourier_transforms_agree(
    parts: int, inverse: int, onesided: int, length: int | None
) -> None:
    if parts == 2 and onesided:
        return
    wanted = None if length is None else np.array(length, np.int64)
    attributes = {"inverse": inverse, "onesided": onesided}
    for axis in (0, 1):
        inputs = [random(6, 7, parts), wanted, np.array(axis, np.int64)]
        constants = [2] if length is None else [1, 2]
        check_node("DFT", inputs, attributes, opset=20, constants=constants)


def test_an_inverse_of_one_half_of_a_spectrum_is_real() -> None:
    x = random(3, 10, 1)
    half = np.fft.rfft(x[..., 0])
    spectrum = np.stack([half.real, half.imag], -1).astype(np.float32)
    attributes = {"inverse": 1, "onesided": 1}
    model = node_model("DFT", [spectrum], attributes, opset=20, outputs=1, constants=[])
    model.graph.output[0].type.tensor_type.elem_type = 1
    for dim in (3, 10, 1):
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = dim
    with ap.Executor(load_onnx(model)) as executor:
        (got,) = executor.run({"in0": spectrum}).values()
    np.testing.assert_allclose(got, x, atol=1e-5)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("onesided", [None, 0, 1])
def test_spectra_of_frames_agree(windowed: bool, onesided: int | None) -> None:
    frames = [np.array(3, np.int64), random(6) if windowed else None, np.array(6, np.int64)]
    attributes = {} if onesided is None else {"onesided": onesided}
    check_node("STFT", [random(2, 29, 1), *frames], attributes, constants=[1, 3])


@pytest.mark.parametrize("op", ["BlackmanWindow", "HammingWindow", "HannWindow"])
def test_windows_agree(op: str) -> None:
    for length, periodic in product((8, 9), (0, 1)):
        check_node(op, [np.array(length, np.int64)], {"periodic": periodic}, constants=[0])


def test_mel_matrices_agree() -> None:
    numbers = [np.array(n, np.int64) for n in (8, 64, 8000)]
    limits = [np.array(n, np.float32) for n in (10, 3900)]
    check_node("MelWeightMatrix", [*numbers, *limits], constants=range(5))


# -- n-grams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skipped", [0, 2])
def test_sequences_are_counted(mode: str, skipped: int) -> None:
    attributes = {
        "mode": mode,
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": skipped,
        "ngram_counts": [0, 3],
        "ngram_indexes": [4, 1, 0, 2, 3],
        "pool_int64s": [2, 3, 5, 3, 2, 2, 2],
        "weights": [0.5, 2.0, 3.0, 0.25, 4.0],
    }
    check_node("TfIdfVectorizer", [RNG.integers(2, 6, (3, 12))], attributes)


def test_a_window_of_another_length_than_planned_is_refused() -> None:
    model = node_model("HannWindow", [np.array(8, np.int64)], {}, opset=17, outputs=1, constants=[])
    model.graph.output[0].type.tensor_type.elem_type = 1
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 8
    with ap.Executor(load_onnx(model)) as executor:
        executor.run({"in0": np.array(8, np.int64)})
        with raises("KernelError", match="makes shape"):
            executor.run({"in0": np.array(9, np.int64)})
