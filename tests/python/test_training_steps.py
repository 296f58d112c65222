"""Steps of a training that fail, and what stands between gradients and updates."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan import run
from arenaplan.base.errors import InvalidOption, ShapeMismatch, UndefinedValue
from arenaplan.run.numpy import kernel
from arenaplan.run.numpy.registry import Run, Step
from arenaplan.train import operators
from gates import calling, full, summing
from raising import raises
from test_caches import decoder

F32 = np.float32
GOOD = {"x": np.ones((2, 3), F32), "t": np.array([0, 1])}
WRONG = {"x": np.ones((2, 3), F32), "t": np.array([0, 7])}


def differentiated() -> ap.train.TrainingGraph:
    """A layer with a running mean, dropout, and labels that may be wrong."""
    rng = np.random.default_rng(0)
    graph = ap.Graph("layer")
    op = operators(graph)
    x, t = graph.input("x", (2, 3)), graph.input("t", (2,), "int64")
    w = graph.parameter("w", rng.standard_normal((3, 2), F32))
    b = graph.parameter("b", np.zeros(2, F32))
    mean = graph.state("mean", (3,))
    op.Assign(mean, op.ReduceMean(x, np.array([0]), keepdims=0))
    h = op.Dropout(op.Gemm(x, w, b), F32(0.5), np.bool_(True))
    loss = op.SoftmaxCrossEntropyLoss(h, t, name="loss")
    return ap.train.gradient(graph, of=loss, wrt=[w, b])


def layer() -> ap.train.TrainingGraph:
    return ap.train.adam(differentiated(), lr=0.1)


# -- errors inside of a context -------------------------------------------------------------------


def _trainer(_: Path) -> Any:
    trainer = ap.train.Trainer(layer())
    return trainer, lambda: trainer._executor.run(GOOD, borrow=True)


def _executor(_: Path) -> Any:
    executor = ap.Executor(calling(size=8))
    return executor, lambda: executor.run(full(8, 1), borrow=True)


def _decoder(path: Path) -> Any:
    (path / "decoder.onnx").write_bytes(decoder().SerializeToString())
    model = ap.Decoder(path / "decoder.onnx", room=8)
    return model, lambda: model._executor.states(borrow=True)


def _dynamic(_: Path) -> Any:
    family = ap.plan_family(decoder().SerializeToString(), {
        "batch_size": 1, "sequence_length": [1, 2], "past_sequence_length": 1,
        "total_sequence_length": 1,
    })  # fmt: skip
    executor = ap.run.DynamicExecutor(family)
    return executor, lambda: np.frombuffer(executor.arena, np.uint8)


def _server(_: Path) -> Any:
    server = ap.Server({"sum": summing()}, cap="1MiB")
    return server, lambda: server.run("sum", full(8, 1))


def _session(_: Path) -> Any:
    session = ap.Server({"sum": summing()}, cap="1MiB").session("sum")
    return session, lambda: session.run(full(8, 1))


CONTEXTS: dict[type, Callable[[Path], Any]] = {
    ap.train.Trainer: _trainer,
    ap.Executor: _executor,
    ap.Decoder: _decoder,
    ap.run.DynamicExecutor: _dynamic,
    ap.Server: _server,
    run.Session: _session,
}
"""By class, an object that has memory, and a call that returns views of it, if any does."""
WITHOUT_ARENA = {"StagedExecutor", "Arena", "Lease", "Queue"}
"""Staged executors have arrays of NumPy, queues hold the values of callers; arenas and leases have
no error while views are alive."""


@pytest.mark.parametrize("kind", CONTEXTS, ids=lambda kind: kind.__name__)
def test_an_error_leaves_a_context_as_it_is(kind: type, tmp_path: Path) -> None:
    """The traceback of an error keeps views alive: no error of closing takes its place."""

    owner, borrow = CONTEXTS[kind](tmp_path)

    def fail() -> None:
        with owner:
            views = borrow()
            raise ZeroDivisionError(len(views))

    with pytest.raises(ZeroDivisionError):
        fail()


def test_every_context_is_tested() -> None:
    public = [getattr(space, name) for space in (ap, ap.train, run) for name in dir(space)]
    found = {
        each.__name__ for each in public if inspect.isclass(each) and hasattr(each, "__exit__")
    }
    assert found - {"ThreadTeam"} == {kind.__name__ for kind in CONTEXTS} | WITHOUT_ARENA


# -- steps that fail ------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["label", "input", "interrupt", "state"])
def test_a_step_that_fails_is_as_if_it_had_not_been(
    kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States, number of steps and dropout go on as those of a training without the step."""
    with ap.train.Trainer(layer(), seed=3) as trainer:
        expected = [trainer.step(GOOD)["loss"] for _ in range(4)]
        wanted = trainer.states()
    with ap.train.Trainer(layer(), seed=3, workers=workers) as trainer:
        found = [trainer.step(GOOD)["loss"] for _ in range(2)]
        before = trainer.states()
        if kind == "label":
            with raises("KernelError", match="label 7 for 2 classes"):
                trainer.step(WRONG)
        elif kind == "input":
            with raises("InputMismatch"):
                trainer.run({"x": GOOD["x"]})
        elif kind == "state":
            with raises("NotFinite", match="step 3"):
                trainer.step({**GOOD, "x": np.full((2, 3), np.inf, F32)})
        else:
            compute = trainer._executor._compute

            def interrupted(*given: Any, **options: Any) -> None:
                compute(*given, **options)
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(trainer._executor, "_compute", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    trainer.step(GOOD)
        assert trainer.steps == 2
        assert all(np.array_equal(array, before[k]) for k, array in trainer.states().items())
        found += [trainer.step(GOOD)["loss"] for _ in range(2)]
        states = trainer.states()
    assert found == expected
    assert all(np.array_equal(states[name], wanted[name]) for name in wanted)


def test_a_run_of_an_executor_that_fails_does_not_count() -> None:
    fails = True

    def call() -> None:
        if fails:
            raise RuntimeError

    with ap.Executor(calling(call, size=8)) as executor:
        with raises("KernelError"):
            executor.run(full(8, 1))
        assert executor.runs == 0
        fails = False
        executor.run(full(8, 1))
        assert executor.runs == 1


def test_the_reports_of_steps_before_an_error_are_kept() -> None:
    with ap.train.Trainer(layer()) as trainer:
        with raises("KernelError"):
            trainer.fit([GOOD, GOOD, WRONG], progress=False)
        assert [report.step for report in trainer.reports] == [1, 2]


def test_steps_that_are_not_finite_are_refused_skipped_or_kept() -> None:
    bad = {**GOOD, "x": np.full((2, 3), np.nan, F32)}
    with ap.train.Trainer(layer(), nonfinite="skip") as trainer:
        reports = trainer.fit([GOOD, bad, GOOD], progress=False)
        assert [(report.step, report.is_skipped) for report in reports] == [
            (1, False), (1, True), (2, False),
        ]  # fmt: skip
        assert trainer.skipped == 1
        assert np.isfinite(trainer.states()["w"]).all()
    with ap.train.Trainer(layer(), nonfinite="keep") as trainer:
        assert np.isnan(trainer.step(bad)["loss"])
        assert np.isnan(trainer.states()["w"]).any()
        assert trainer.steps == 1
    with pytest.raises(InvalidOption, match="not raise, skip or keep"):
        ap.train.Trainer(layer(), nonfinite="stop")  # type: ignore[arg-type]


def test_the_scale_of_a_loss_is_removed_and_steps_that_overflow_are_skipped() -> None:
    """Float16 gradients overflow at the large scale; at the small one they are those in float32."""
    graph = ap.Graph()
    x, scale = graph.input("x", (4, 3)), graph.input("scale", ())
    w = graph.parameter("w", np.ones((3, 1), F32))
    op = operators(graph)
    h = op.MatMul(op.Cast(x, to=10), op.Cast(w, to=10))
    loss = op.ReduceMean(op.Cast(h, to=1), keepdims=0, name="loss")
    train = ap.train.gradient(graph, of=loss, wrt=[w], seeds=[scale])
    train = ap.train.sgd(ap.train.unscale(train, scale), lr=1)
    batch = {"x": np.full((4, 3), 0.5, F32)}
    with ap.train.Trainer(train, nonfinite="skip") as trainer:
        losses = trainer.step({**batch, "scale": F32(2.0**20)})
        assert (trainer.steps, trainer.skipped) == (0, 1)
        assert np.isfinite(losses["loss"])
        trainer.step({**batch, "scale": F32(2.0**8)})
        assert (trainer.steps, trainer.skipped) == (1, 1)
        assert trainer.states()["w"].ravel().tolist() == [0.5] * 3


# -- checkpoints and options ----------------------------------------------------------------------


def test_a_checkpoint_keeps_the_seed(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "half.safetensors"
    with ap.train.Trainer(layer(), seed=5) as trainer:
        trainer.step(GOOD)
        trainer.save(path)
        expected = [trainer.step(GOOD)["loss"] for _ in range(4)]
    with ap.train.Trainer(layer(), seed=6) as trainer:
        trainer.load(path)
        assert [trainer.step(GOOD)["loss"] for _ in range(4)] == expected


def test_states_are_restored_all_or_none() -> None:
    with ap.train.Trainer(layer()) as trainer:
        trainer.step(GOOD)
        kept = trainer.states()
        expected = trainer.step(GOOD)["loss"]
        with raises("InputMismatch"):
            trainer.restore({"w": kept["w"], "b": np.zeros(3, F32)})
        trainer.restore(kept, steps=1)
        assert trainer.step(GOOD)["loss"] == expected


@pytest.mark.parametrize(
    ("optimizer", "given"),
    [
        ("sgd", {"momentum": 2}),
        ("sgd", {"momentum": 1.0}),
        ("sgd", {"momentum": float("nan")}),
        ("sgd", {"weight_decay": -0.1}),
        ("sgd", {"weight_decay": float("nan")}),
        ("sgd", {"nesterov": True}),
        ("sgd", {"lr": float("nan")}),
        ("adam", {"lr": float("inf")}),
        ("adam", {"betas": (0.9, 2)}),
        ("adam", {"betas": (1.0, 0.9)}),
        ("adam", {"betas": (0.9,)}),
        ("adam", {"epsilon": -1}),
        ("adam", {"epsilon": "1e-8"}),
        ("adam", {"weight_decay": float("inf")}),
        ("clip_by_norm", {"most": 0}),
        ("clip_by_value", {"most": float("nan")}),
        ("unscale", {"scale": -1}),
    ],
)
def test_numbers_that_no_training_can_use_are_refused(optimizer: str, given: Any) -> None:
    option = next(iter(given))
    with pytest.raises(InvalidOption, match=f"option {option}"):
        getattr(ap.train, optimizer)(differentiated(), **given)


# -- between gradients and updates ----------------------------------------------------------------


def quadratic(*starts: Any) -> ap.train.TrainingGraph:
    """A loss whose gradient by each parameter is the parameter."""
    graph = ap.Graph()
    op = operators(graph)
    states = [graph.parameter(f"w{k}", np.asarray(start)) for k, start in enumerate(starts)]
    parts = [op.Cast(op.ReduceSumSquare(w, keepdims=0), to=11) for w in states]
    loss = op.Mul(op.Sum(*parts), np.float64(0.5), name="loss")
    return ap.train.gradient(graph, of=loss, wrt=states)


def updates(train: ap.train.TrainingGraph, starts: Any) -> list[np.ndarray]:
    """Return what a step of rate 1 subtracts."""
    with ap.train.Trainer(ap.train.sgd(train, lr=1)) as trainer:
        trainer.step({}, verify=True)
        return [start - trainer.states()[f"w{k}"] for k, start in enumerate(starts)]


@pytest.mark.parametrize("most", [1.0, 4.0, 1e3])
def test_gradients_are_clipped_by_their_common_norm(most: float) -> None:
    rng = np.random.default_rng(1)
    starts = [rng.standard_normal((3, 4)), rng.standard_normal(5).astype(F32), np.zeros(2)]
    norm = np.sqrt(sum(float(np.sum(np.square(start))) for start in starts))
    found = updates(ap.train.clip_by_norm(quadratic(*starts), most), starts)
    for start, change in zip(starts, found, strict=True):
        np.testing.assert_allclose(change, start * min(1, most / norm), rtol=1e-5, atol=1e-7)


def test_gradients_are_clipped_by_value() -> None:
    starts = [np.array([-3, -0.5, 0.25, 8]), np.array([2.0], F32)]
    found = updates(ap.train.clip_by_value(quadratic(*starts), 1), starts)
    assert [change.tolist() for change in found] == [[-1, -0.5, 0.25, 1], [1]]


def test_gradients_that_are_replaced_are_those_that_updates_read() -> None:
    """One value for two gradients, a constant, a parameter, and a gradient that stays."""
    starts = [np.array([2.0]), np.array([3.0]), np.array([5.0]), np.array([7.0])]
    train = quadratic(*starts)
    op = operators(train.graph)
    a, b, c, _ = train.gradients
    both = op.Add(train.graph.own(a), train.graph.own(b))
    train.replace({a: both, b: both})
    train.replace({c: op.constant(np.array([0.25]))})
    assert len(set(train.gradients)) == 4
    assert [change.item() for change in updates(train, starts)] == [5, 5, 0.25, 7]


def test_values_that_are_no_gradients_are_refused() -> None:
    train = quadratic(np.ones(3), np.ones(2))
    a, b = train.gradients
    outputs = train.graph.outputs
    with pytest.raises(ShapeMismatch, match=r"shape \(3,\)"):
        train.replace({a: b})
    with pytest.raises(UndefinedValue, match="is not a gradient"):
        train.replace({train.parameters[0]: a})
    assert (train.gradients, train.graph.outputs) == ((a, b), outputs)
    ap.train.sgd(train)
    with pytest.raises(InvalidOption, match="before"):
        train.replace({a: a})


@kernel("Halve", domain="tests")
def halve(step: Step) -> Run:
    """Stand for a sum over processes: a function of the user, in place."""
    x, y = step.inputs[0], step.outputs[0]
    assert x is not None

    def run() -> None:
        np.multiply(x, 0.5, out=y)

    return run


def test_a_node_of_the_user_takes_the_place_of_each_gradient_without_a_byte() -> None:
    starts = [np.full((64,), 2.0), np.full((64,), 4.0)]
    plain = ap.plan(ap.train.sgd(quadratic(*starts)).graph, target="numpy").arena_bytes
    train = quadratic(*starts)
    made = {}
    for at in train.gradients:
        value = train.graph.values[at]
        spec = [(f"{value.name}.mean", value.shape, value.dtype)]
        (made[at],) = train.graph.node("Halve", [at], spec, in_place=[(0, 0)], domain="tests")
    found = updates(train.replace(made), starts)
    assert [change.tolist() for change in found] == [[1.0] * 64, [2.0] * 64]
    assert ap.plan(train.graph, target="numpy").arena_bytes == plain


def test_updates_may_be_written_by_hand() -> None:
    train = quadratic(np.array([3.0]))
    op = operators(train.graph)
    (w,) = train.parameters
    content = op.Sub(train.graph.own(w), op.Mul(train.gradient(w), np.float64(0.5)))
    op.Assign(train.graph.own(w), content)
    with ap.train.Trainer(train) as trainer:
        trainer.step({})
        assert trainer.states()["w0"].tolist() == [1.5]
    with pytest.raises(InvalidOption, match="already"):
        ap.train.sgd(train)


def test_workers_of_a_trainer_run_its_steps() -> None:
    """The plan for two workers is run by two, and computes the same bits."""
    losses = []
    for workers in (1, 2):
        with ap.train.Trainer(layer(), workers=workers) as trainer:
            assert (trainer._executor._workers is not None) == (workers == 2)
            losses.append([trainer.step(GOOD)["loss"] for _ in range(3)])
    assert losses[0] == losses[1]
