"""Whole training steps inside one arena."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import arenaplan as ap
from arenaplan.base.errors import InvalidOption
from arenaplan.run.numpy.executor import quiet_arithmetic
from arenaplan.run.numpy.groups import Unit
from arenaplan.run.numpy.numpy_backend import missing_workspaces
from arenaplan.run.numpy.signatures import byte_size, dtype_of
from arenaplan.run.numpy.steps import aligned_bytes, array_at, own_workspaces, prepare, run_all
from arenaplan.train import operators
from raising import raises

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "digits.py"
STEPS = 100


def mlp(batch: int = 32) -> tuple[ap.Graph, int]:
    """Two layers, and dropout between them."""
    rng = np.random.default_rng(1)
    graph = ap.Graph("mlp")
    op = operators(graph)
    x, t = graph.input("x", (batch, 12)), graph.input("t", (batch,), "int64")
    w1 = graph.parameter("w1", rng.standard_normal((12, 24), np.float32) * np.float32(0.3))
    b1 = graph.parameter("b1", np.zeros(24, np.float32))
    w2 = graph.parameter("w2", rng.standard_normal((24, 5), np.float32) * np.float32(0.3))
    b2 = graph.parameter("b2", np.zeros(5, np.float32))
    h = op.Dropout(op.Tanh(op.Gemm(x, w1, b1)), np.float32(0.2), np.bool_(True))
    return graph, op.SoftmaxCrossEntropyLoss(op.Gemm(h, w2, b2), t, name="loss")


def cnn(batch: int = 8) -> tuple[ap.Graph, int]:
    """Convolutions, batch normalization with running statistics, a residual, and pools."""
    rng = np.random.default_rng(2)
    graph = ap.Graph("cnn")
    op = operators(graph)
    x, t = graph.input("x", (batch, 1, 8, 8)), graph.input("t", (batch,), "int64")

    def weights(name: str, *shape: int) -> int:
        array = rng.standard_normal(shape, np.float32) * np.float32(0.3)
        return graph.parameter(name, array)

    ones, zeros = np.ones(6, np.float32), np.zeros(6, np.float32)
    mean, variance = (
        graph.state("running mean", (6,)),
        graph.state("running var", (6,), initial=ones),
    )
    h = op.Conv(x, weights("c1", 6, 1, 3, 3), pads=[1, 1, 1, 1])
    h, new_mean, new_variance = op.BatchNormalization(
        h, graph.parameter("scale", ones), graph.parameter("shift", zeros), mean, variance,
        training_mode=1, outputs=3,
    )  # fmt: skip
    op.Assign(mean, new_mean)
    op.Assign(variance, new_variance)
    h = op.Relu(h)
    h = op.Add(h, op.Relu(op.Conv(h, weights("c2", 6, 6, 3, 3), weights("b2", 6), pads=[1] * 4)))
    h = op.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2])
    h = op.Conv(h, weights("c3", 8, 6, 3, 3), strides=[2, 2], pads=[1] * 4)
    h = op.GlobalAveragePool(op.Gelu(h))
    scores = op.Gemm(op.Flatten(h), weights("d", 8, 5))
    return graph, op.SoftmaxCrossEntropyLoss(scores, t, name="loss")


def deep(batch: int = 64) -> tuple[ap.Graph, int]:
    """A chain of layers with dropout."""
    rng = np.random.default_rng(5)
    graph = ap.Graph("deep")
    op = operators(graph)
    h, t = graph.input("x", (batch, 8)), graph.input("t", (batch,), "int64")
    for layer in range(12):
        w = graph.parameter(f"w{layer}", rng.standard_normal((8, 8), np.float32) / np.float32(2))
        h = op.Dropout(op.Tanh(op.Gemm(h, w)), np.float32(0.1), np.bool_(True))
    return graph, op.SoftmaxCrossEntropyLoss(h, t, name="loss")


def trained(make: Callable[[], tuple[ap.Graph, int]], optimizer: str) -> ap.train.TrainingGraph:
    graph, loss = make()
    skipped = {"running mean", "running var"}
    states = [v.index for v in graph.values if v.kind == "state" and v.name not in skipped]
    train = ap.train.gradient(graph, of=loss, wrt=states)
    if optimizer == "adam":
        return ap.train.adam(train, lr=0.01)
    return ap.train.sgd(train, lr=0.05, momentum=0.9, nesterov=optimizer == "nesterov")


def batches(graph: ap.Graph, count: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield batches with something to learn: the label is in the data."""
    shape = graph.find("x").shape
    for number in range(count):
        rng = np.random.default_rng([3, number])
        x = rng.standard_normal(shape).astype(np.float32)
        label = x.reshape(len(x), -1)[:, :5].argmax(axis=1)
        yield {"x": x, "t": label.astype(np.int64)}


def plain_losses(train: ap.train.TrainingGraph, count: int) -> list[float]:
    """Train with every value in an array of its own, node by node, without a plan."""
    graph = train.graph
    arrays = {}
    for value in graph.values:
        # The last bit of some products depends on alignment, which is that of arenas here.
        memory = aligned_bytes(byte_size(value))
        memory.fill(0)
        arrays[value.index] = array_at(graph, value.index, memory)
        if value.kind == "constant":
            arrays[value.index] = graph.data(value.index)
    for value in graph.values:
        if (first := graph.initial(value.index)) is not None:
            arrays[value.index][...] = first
    nodes = ap.plan(graph, target="numpy", optimize="none", workspace="none")
    workspaces, _ = own_workspaces(missing_workspaces(graph, nodes, {}))
    units = [Unit(index, (index,)) for index in graph.core.order]
    program = prepare(graph, units, arrays, workspaces)
    losses = []
    for batch in batches(graph, count):
        for index in graph.inputs:
            np.copyto(arrays[index], batch[graph.values[index].name])
        program.clock.run += 1
        with quiet_arithmetic():
            run_all(program)
        for value, into in graph.write_backs:
            np.copyto(arrays[into], arrays[value])
        losses.append(float(arrays[train.losses[0]]))
    return losses


@pytest.mark.parametrize(("make", "optimizer"), [(mlp, "adam"), (cnn, "sgd")])
def test_losses_of_a_planned_training_are_those_of_a_plain_one_bit_for_bit(
    make: Callable[[], tuple[ap.Graph, int]], optimizer: str
) -> None:
    train = trained(make, optimizer)
    expected = plain_losses(train, STEPS)
    for options in ({}, {"optimize": "none"}):
        with ap.train.Trainer(train, **options) as trainer:
            reports = trainer.fit(batches(train.graph, STEPS), progress=False)
        assert [report.losses["loss"] for report in reports] == expected
    assert np.mean(expected[-20:]) < 0.9 * np.mean(expected[:20])


@pytest.mark.parametrize(("make", "most"), [(deep, "30%"), (cnn, "10%"), (cnn, 76_000)])
def test_a_recomputed_training_is_equal_bit_for_bit(
    make: Callable[[], tuple[ap.Graph, int]], most: str | int
) -> None:
    """Dropout drops the same elements again; updates wait for nodes that run again."""
    train = trained(make, "adam")
    given = list(batches(train.graph, 12))
    with ap.train.Trainer(train) as trainer:
        expected = [trainer.step(batch)["loss"] for batch in given]
        plain = trainer.plan.arena_bytes
    with ap.train.Trainer(train, recompute=most) as trainer:
        assert len(trainer.graph.nodes) > len(train.graph.nodes)
        assert trainer.plan.arena_bytes <= (plain - 1 if isinstance(most, str) else most)
        found = [trainer.step(batch, verify=k == 1)["loss"] for k, batch in enumerate(given)]
    assert found == expected


def test_a_paged_training_is_equal_bit_for_bit() -> None:
    """A budget of the fast memory includes the scratch memory of kernels."""
    train = trained(cnn, "adam")
    given = list(batches(train.graph, 6))
    with ap.train.Trainer(train) as trainer:
        expected = [trainer.step(batch)["loss"] for batch in given]
    with ap.train.Trainer(train, recompute=78_000, page_to=ap.Space("host", cost=1)) as trainer:
        plan = trainer.plan
        assert plan.spaces[0].arena_bytes <= 78_000
        assert plan.workspaces
        assert any(isinstance(it, ap.Transfer) for it in plan.schedule or ())
        ap.Plan.from_json(plan.to_json().encode()).check(train.graph)
        found = [trainer.step(batch, verify=k == 1)["loss"] for k, batch in enumerate(given)]
    assert found == expected


def mixed(dtype: int) -> ap.train.TrainingGraph:
    """Return a classifier whose layers compute in one type, and whose parameters hold float32."""
    rng = np.random.default_rng(3)
    graph = ap.Graph("mixed")
    x, t = graph.input("x", (64, 32)), graph.input("t", (64,), "int64")
    parameters, h = [], operators(graph).Cast(x, to=dtype)
    for layer, (inner, outer) in enumerate([(32, 64), (64, 64), (64, 64), (64, 8)]):
        initial = rng.standard_normal((inner, outer), np.float32) / np.float32(np.sqrt(inner))
        w = graph.parameter(f"w{layer}", initial)
        b = graph.parameter(f"b{layer}", np.zeros(outer, np.float32))
        parameters += [w, b]
        h = operators(graph).Gemm(
            h, operators(graph).Cast(w, to=dtype), operators(graph).Cast(b, to=dtype)
        )
        h = operators(graph).Relu(h) if layer < 3 else h
    scores = operators(graph).Cast(h, to=TensorProto.FLOAT)
    loss = operators(graph).SoftmaxCrossEntropyLoss(scores, t, name="loss")
    return ap.train.adam(ap.train.gradient(graph, of=loss, wrt=parameters), lr=3e-3)


def test_a_network_trains_in_half_precision_with_parameters_in_single() -> None:
    centers = np.random.default_rng(0).standard_normal((8, 32), np.float32)

    def batch(seed: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 8, 64)
        return {"x": centers[labels] + rng.standard_normal((64, 32), np.float32) / 2, "t": labels}

    losses, sizes = {}, {}
    for key, dtype, options in [
        ("single", TensorProto.FLOAT, {}),
        ("half", TensorProto.FLOAT16, {}),
        ("recomputed", TensorProto.FLOAT16, {"recompute": "30%"}),
    ]:
        train = mixed(dtype)
        states = [value for value in train.graph.values if value.kind == "state"]
        assert {value.dtype for value in states} == {"float32", "int64"}
        with ap.train.Trainer(train, seed=1, **options) as trainer:
            losses[key] = [float(trainer.step(batch(step))["loss"]) for step in range(40)]
            sizes[key] = trainer.plan.arena_bytes
    assert losses["half"] == losses["recomputed"]
    assert losses["half"] != losses["single"]
    np.testing.assert_allclose(losses["half"], losses["single"], atol=2e-3)
    assert losses["half"][0] > 2
    assert losses["half"][-1] < 1e-3
    assert sizes["recomputed"] < sizes["half"] < sizes["single"]


def test_an_arena_that_no_schedule_fits_is_refused_with_the_smallest() -> None:
    with raises("RecomputeExceeded", match=r"in 1,000 bytes; the best one needs [\d,]+, and none"):
        ap.train.Trainer(trained(mlp, "adam"), recompute=1000)


@pytest.mark.parametrize("make", [mlp, cnn])
def test_every_step_of_a_training_is_verified(make: Callable[[], tuple[ap.Graph, int]]) -> None:
    train = trained(make, "nesterov")
    with ap.train.Trainer(train) as trainer:
        for batch in batches(train.graph, 3):
            trainer.step(batch, verify=True)
        assert trainer.steps == 3


def test_the_arena_is_smaller_than_values_that_share_nothing() -> None:
    train = trained(cnn, "adam")
    plan = ap.plan(train.graph, target="numpy")
    plain = ap.plan(train.graph, target="numpy", optimize="none")
    sizes = [np.prod(v.shape) * dtype_of(v).itemsize for v in train.graph.values]
    assert plan.arena_bytes <= plain.arena_bytes < sum(sizes)


def test_a_training_that_continues_from_a_checkpoint_computes_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    train = trained(mlp, "adam")
    given = list(batches(train.graph, 10))
    with ap.train.Trainer(train, seed=5) as trainer:
        whole = [trainer.step(batch)["loss"] for batch in given]
        last = trainer.states()
    path = tmp_path / "half.safetensors"
    with ap.train.Trainer(train, seed=5) as trainer:
        first = [trainer.step(batch)["loss"] for batch in given[:5]]
        trainer.save(path)
    with ap.train.Trainer(train, seed=5) as trainer:
        trainer.load(path)
        assert trainer.steps == 5
        second = [trainer.step(batch)["loss"] for batch in given[5:]]
        states = trainer.states()
    assert first + second == whole
    assert {name: array.tobytes() for name, array in states.items()} == {
        name: array.tobytes() for name, array in last.items()
    }


def test_a_file_that_is_no_checkpoint_changes_nothing(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "other.safetensors"
    with ap.train.Trainer(trained(mlp, "adam")) as trainer:
        before = trainer.states()
        path.write_bytes(b"nothing")
        with raises("ModelCorrupt", match="is not a training checkpoint"):
            trainer.load(path)
        safetensors.save_file({"w1": before["w1"]}, path)
        with raises("ModelCorrupt", match="is not a training checkpoint"):
            trainer.load(path)
        trainer.save(path)
        with ap.train.Trainer(trained(cnn, "adam")) as other, raises("InputMismatch"):
            other.load(path)
        after = trainer.states()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_callback_ends_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    train = trained(mlp, "sgd")
    with ap.train.Trainer(train) as trainer:
        reports = trainer.fit(
            batches(train.graph, 50), on_step=lambda report: report.step < 4, progress=True
        )
    assert [report.step for report in reports] == [1, 2, 3, 4]
    assert capsys.readouterr().out == ""


def test_bad_trainings_are_refused() -> None:
    graph, loss = mlp()
    w1, x = graph.find("w1").index, graph.find("x").index
    with pytest.raises(InvalidOption, match="no updates"):
        ap.train.Trainer(ap.train.gradient(graph, of=loss, wrt=[w1]))
    with pytest.raises(InvalidOption, match="'x' is not a state"):
        ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[x]))
    with pytest.raises(InvalidOption, match="already"):
        ap.train.adam(ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[w1])))
    with pytest.raises(InvalidOption, match="listed twice"):
        ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[w1, w1]))
    train = ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[w1]))
    with pytest.raises(InvalidOption, match="the plan that is given"):
        ap.train.Trainer(train, ap.plan(train.graph, target="numpy"), optimize="none")


def reference_update(optimizer: str, w: Any, g: Any, kept: dict[str, Any], step: int) -> Any:
    """One step as the papers have it."""
    if optimizer == "sgd":
        return w - 0.1 * g
    if optimizer in ("momentum", "nesterov"):
        kept["v"] = 0.9 * kept.get("v", 0) + g
        return w - 0.1 * (g + 0.9 * kept["v"] if optimizer == "nesterov" else kept["v"])
    if optimizer == "adamw":
        w = w - 0.1 * 0.01 * w
    elif optimizer == "decay":
        g = g + 0.01 * w
    kept["m"] = 0.9 * kept.get("m", 0) + 0.1 * g
    kept["s"] = 0.999 * kept.get("s", 0) + 0.001 * g * g
    mean, square = kept["m"] / (1 - 0.9**step), kept["s"] / (1 - 0.999**step)
    return w - 0.1 * mean / (np.sqrt(square) + 1e-8)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam", "adamw", "decay"])
def test_updates_are_those_of_the_papers(optimizer: str) -> None:
    start = np.random.default_rng(4).standard_normal(5000)
    graph = ap.Graph()
    w = graph.parameter("w", start)
    loss = operators(graph).ReduceSum(operators(graph).Mul(operators(graph).Sin(w), w), keepdims=0)
    train = ap.train.gradient(graph, of=loss, wrt=[w])
    if optimizer in ("sgd", "momentum", "nesterov"):
        momentum = 0.0 if optimizer == "sgd" else 0.9
        ap.train.sgd(train, lr=0.1, momentum=momentum, nesterov=optimizer == "nesterov")
    else:
        decay = 0.0 if optimizer == "adam" else 0.01
        ap.train.adam(train, lr=0.1, weight_decay=decay, decoupled=optimizer == "adamw")
    expected, kept = start.copy(), {}
    with ap.train.Trainer(train) as trainer:
        for step in range(1, 6):
            trainer.step({})
            g = np.cos(expected) * expected + np.sin(expected)
            expected = reference_update(optimizer, expected, g, kept, step)
            np.testing.assert_allclose(trainer.states()["w"], expected, rtol=1e-12, atol=1e-14)


def test_a_rate_may_be_an_input() -> None:
    graph = ap.Graph()
    w, rate = graph.parameter("w", np.ones(3, np.float32)), graph.input("rate", ())
    loss = operators(graph).ReduceSum(w, keepdims=0)
    train = ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[w]), lr=rate)
    with ap.train.Trainer(train) as trainer:
        trainer.step({"rate": np.float32(0.5)})
        trainer.step({"rate": np.float32(0.25)})
        assert trainer.states()["w"].tolist() == [0.25, 0.25, 0.25]


def test_an_update_waits_for_all_readers_of_the_parameter() -> None:
    """One average reads the new parameter, one the old, whatever the order of nodes."""
    graph = ap.Graph()
    w = graph.parameter("w", np.full(2, 3.0))
    new, old = (graph.parameter(name, np.zeros(2)) for name in ("new", "old"))
    loss = operators(graph).ReduceSumSquare(w, keepdims=0)
    train = ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[w]), lr=0.25)
    op = operators(train.graph)
    for average, source in ((new, train.updated[w]), (old, w)):
        op.Assign(average, op.Mul(op.Add(average, source), np.float64(0.5)))
    with ap.train.Trainer(train) as trainer:
        for _ in range(2):
            trainer.step({}, verify=True)
        states = trainer.states()
    assert states["w"].tolist() == [0.75, 0.75]
    assert states["new"].tolist() == [0.75, 0.75]
    assert states["old"].tolist() == [1.5, 1.5]


def test_a_network_learns_digits_in_256_kib() -> None:
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location("digits", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    result = digits.train(epochs=5, budget=1 << 18)
    assert result.arena_bytes <= 1 << 18
    assert result.losses == sorted(result.losses, reverse=True)
    assert result.accuracy >= 0.97
