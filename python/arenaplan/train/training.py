"""Training inside one arena: whole steps of forward pass, gradients and updates."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple, Self, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike

from arenaplan._core import Plan, write_files
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.formats.onnx.with_weights import with_weights
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions
from arenaplan.planner.planning import plan as make_plan
from arenaplan.planner.spaces import Space
from arenaplan.run.numpy import Executor
from arenaplan.train.gradients import TrainingGraph

_PERIOD = 0.1
"""Seconds between two changes of the line on the terminal."""
_FORMAT = "arenaplan.checkpoint.1"

NonFinite: TypeAlias = Literal["raise", "skip", "keep"]
"""What a step does about infinities and NaN: an error, no update, or nothing."""

EXACT: Final = "views,in-place,elision,order"
"""Techniques that change no bit of any result: each node runs as a whole."""


class StepReport(NamedTuple):
    """The state of a training, as callbacks of :meth:`Trainer.fit` see it."""

    step: int
    """Number of steps so far, those of a restored checkpoint included."""
    losses: Mapping[str, float]
    """The losses of the step, by name."""
    is_skipped: bool = False
    """Whether the step made an infinity or a NaN and changed nothing."""


class Trainer:
    """
    Trains a graph inside one arena.

    The arena holds parameters, statistics of the optimizer, activations and gradients. A step
    copies the batch in, runs every node, and allocates nothing of note. A step that fails changes
    nothing: a copy of all states, outside of the arena, brings the contents before it back.

    Parameters
    ----------
    train : TrainingGraph
        A graph with gradients and updates: see :func:`arenaplan.train.gradient`,
        :func:`arenaplan.train.sgd` and :func:`arenaplan.train.adam`. Updates may be written by
        hand: ``operators(graph).Assign(parameter, content)``.
    plan : Plan, optional
        The plan of ``train.graph`` for the target ``"numpy"``; made here by ``options`` if left
        out.
    seed : int, default 0
        Seed of dropout and of other random operators: their numbers depend on seed, name of the
        node and number of the step.
    nonfinite : {"raise", "skip", "keep"}, default "raise"
        What to do if a loss, a parameter or a statistic of the optimizer is infinite or NaN after
        a step: raise ``NotFinite``; leave all states as they were before the step and go on, as
        loss scaling needs it; or nothing.
    recompute : str or int, optional
        Lets nodes run again, so that the arena needs fewer bytes: as for :func:`arenaplan.plan`. A
        number of bytes is that of the whole arena, scratch memory of kernels included. Losses stay
        equal bit for bit.
    page_to : str or Space, optional
        A slow memory that values may be copied to and back from: as for :func:`arenaplan.plan`.
    options
        Fields of :class:`arenaplan.PlanOptions`. By default the techniques are those that change no
        bit of any result (:data:`EXACT`), so that every plan trains alike; ``optimize="all"`` may
        need fewer bytes. ``workers`` is also the number of threads that run steps at the same
        time, and the one option that a given plan leaves open.

    Raises
    ------
    InvalidOption
        If the graph has no updates, or both a plan and options are given.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> graph = ap.Graph("line")
    >>> x, t = graph.input("x", (4, 1)), graph.input("t", (4, 1))
    >>> w = graph.parameter("w", np.zeros((1, 1), np.float32))
    >>> op = ap.train.operators(graph)
    >>> error = op.Sub(op.MatMul(x, w), t)
    >>> loss = op.ReduceMean(op.Mul(error, error), keepdims=0, name="loss")
    >>> train = ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[w]), lr=0.1)
    >>> batch = np.array([[0], [1], [2], [3]], np.float32)
    >>> with ap.train.Trainer(train) as trainer:
    ...     losses = [trainer.step({"x": batch, "t": 2 * batch})["loss"] for _ in range(20)]
    ...     print(round(losses[0], 2), losses[-1] < 1e-6, trainer.states()["w"].round(3))
    14.0 True [[2.]]
    """

    def __init__(
        self,
        train: TrainingGraph,
        plan: Plan | None = None,
        *,
        seed: int = 0,
        nonfinite: NonFinite = "raise",
        recompute: str | int | None = None,
        page_to: str | Space | None = None,
        **options: Unpack[PlanKeywords],
    ) -> None:
        if not isinstance(train, TrainingGraph):
            raise InvalidOption(
                f"{type(train).__name__!r} has no updates of parameters: pass "
                "arenaplan.train.sgd(arenaplan.train.gradient(graph, of=loss, wrt=parameters))"
            )
        if not train.is_updated:
            raise InvalidOption(
                "the graph has no updates of its parameters: call arenaplan.train.sgd or "
                "arenaplan.train.adam first, or assign a new content to each parameter"
            )
        if nonfinite not in ("raise", "skip", "keep"):
            raise InvalidOption(f"option nonfinite: {nonfinite!r} is not raise, skip or keep")
        workers = options.pop("workers", 1)
        if plan is not None and (options or recompute is not None or page_to is not None):
            raise InvalidOption("options are those of the plan that is given")
        graph = train.graph
        if plan is None:
            exact = PlanOptions(target="numpy", optimize=EXACT)
            options["workers"] = workers
            plan = make_plan(graph, exact, recompute=recompute, page_to=page_to, **options)
        self.train = train
        self.graph = graph.for_plan(plan)
        """The graph that runs: that of ``train``, or one in which nodes run again."""
        self.plan = plan
        self.skipped = 0
        """Number of steps that changed nothing, since they made an infinity or a NaN."""
        self.reports: list[StepReport] = []
        """The steps of the latest :meth:`fit`, those before an error included."""
        self._nonfinite = nonfinite
        self._executor = Executor(graph, plan, seed=seed, workers=workers)
        values = train.graph.values
        self._losses = [values[index].name for index in dict.fromkeys(train.losses)]
        trained = (*train.parameters, *(at for some in train.statistics.values() for at in some))
        self._trained = [values[at].name for at in trained if values[at].kind == "state"]
        self._before = self._executor.states()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._executor.__exit__(*raised)

    def __repr__(self) -> str:
        return f"Trainer({self.train.graph!r}, {self.plan.arena_bytes} bytes, step {self.steps})"

    def close(self) -> None:
        """Release the arena; parameters that were not saved are lost."""
        self._executor.close()

    @property
    def steps(self) -> int:
        """Number of steps that changed states, those of a restored checkpoint included."""
        return self._executor.runs

    def step(self, batch: Mapping[str, ArrayLike], *, verify: bool = False) -> dict[str, float]:
        """
        Run one step: forward pass, gradients, updates.

        Parameters
        ----------
        batch : mapping of str to array_like
            One array per input of the graph.
        verify : bool, default False
            Compare every node with a run in which values share no memory: see
            :meth:`arenaplan.Executor.run`. Slow.

        Returns
        -------
        dict of str to float
            The losses by name; the sum of the elements, if a loss has several.

        Raises
        ------
        ExecutionError
            If an input or a node is at fault, or a result not finite. States, number of steps and
            random numbers are then as if there had been no step.
        """
        outputs = self._stepped(batch, borrow=True, verify=verify)
        return {name: float(np.sum(outputs[name])) for name in self._losses}

    def run(self, batch: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Run one step, and return copies of all outputs of the graph; errors as of a step."""
        return self._stepped(batch)

    def _stepped(self, batch: Mapping[str, ArrayLike], **options: bool) -> dict[str, np.ndarray]:
        """Run one step, or none: states are as before it if it fails."""
        executor, runs = self._executor, self.steps
        for name, array in executor.states(borrow=True).items():
            np.copyto(self._before[name], array)
        try:
            outputs = executor.run(batch, **options)
            wrong = None if self._nonfinite == "keep" else self._not_finite(outputs)
            if wrong is not None and self._nonfinite == "raise":
                raise fault("NotFinite", f"step {runs + 1}: {wrong} is infinite or not a number")
        except BaseException:
            executor.restore(self._before, runs=runs)
            raise
        if wrong is not None:
            executor.restore(self._before, runs=runs)
            self.skipped += 1
        return outputs

    def _not_finite(self, outputs: Mapping[str, np.ndarray]) -> str | None:
        """Return what is infinite or NaN after a step, if anything is."""
        states = self._executor.states(borrow=True)
        for kind, arrays, names in (
            ("loss", outputs, self._losses),
            ("state", states, self._trained),
        ):
            for name in names:
                # Extremes are NaN if an element is, and need no array.
                if (
                    arrays[name].size
                    and not np.isfinite(
                        [float(arrays[name].max()), float(arrays[name].min())]
                    ).all()
                ):
                    return f"{kind} {name!r}"
        return None

    def fit(
        self,
        batches: Iterable[Mapping[str, ArrayLike]],
        *,
        on_step: Callable[[StepReport], object] | None = None,
        progress: bool | None = None,
    ) -> list[StepReport]:
        """
        Run one step per batch, and return the reports of all steps.

        Parameters
        ----------
        batches : iterable of mapping
            The batches, in order.
        on_step : callable, optional
            Called after each step; ``False`` ends the training.
        progress : bool, optional
            Show step and losses in one line of stderr; by default if that is a terminal.
        """
        shows = sys.stderr.isatty() if progress is None else progress
        line = _Line() if shows else None
        reports = self.reports = []
        try:
            for batch in batches:
                skipped = self.skipped
                losses = self.step(batch)
                report = StepReport(self.steps, losses, self.skipped > skipped)
                reports.append(report)
                if line is not None:
                    line.show(report)
                if on_step is not None and on_step(report) is False:
                    break
        finally:
            if line is not None:
                line.clear()
        return reports

    # -- parameters --------------------------------------------------------------

    def states(self) -> dict[str, np.ndarray]:
        """Return copies of parameters and statistics, by name."""
        return self._executor.states()

    def restore(self, states: Mapping[str, ArrayLike], *, steps: int | None = None) -> None:
        """
        Give parameters and statistics a content: those that are named, or none after an error.

        Parameters
        ----------
        states : mapping of str to array_like
            Arrays of the shape and type of the states, as :meth:`states` returns them.
        steps : int, optional
            The number of steps before, which dropout depends on.

        Raises
        ------
        ExecutionError
            If there is no such state, or it has another shape or type.
        """
        self._executor.restore(states, runs=steps)

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write parameters, statistics, the number of steps and the seed to a safetensors file.

        A training that continues from the file computes the same bits as one that never stopped.
        The file is replaced at once or unchanged. Needs the extra ``weights``.

        Raises
        ------
        PlanError
            If the file cannot be written.
        """
        from safetensors.numpy import save

        facts = {"format": _FORMAT, "steps": str(self.steps), "seed": str(self._executor.seed)}
        # C-ordered arrays of rank 0 stay so.
        arrays = {
            name: np.require(array, requirements="C") for name, array in self.states().items()
        }
        write_files([(path, save(arrays, {"arenaplan": json.dumps(facts)}))])

    def save_onnx(self, model: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
        """
        Write a copy of the ONNX model that was loaded, with the parameters as they are now.

        Parameters
        ----------
        model : path
            The file that ``ap.load(model, parameters=…)`` read.
        path : path
            The file to write, which is replaced at once or unchanged. It has all weights in it.

        Raises
        ------
        UndefinedValue
            If the model stores no weight of the name of a parameter.
        PlanError
            If the file cannot be written.
        """
        states, values = self.states(), self.train.graph.values
        names = [values[index].name for index in self.train.parameters]
        arrays = {name: states[name] for name in names if name in states}
        write_files([(path, with_weights(model, arrays))])

    def load(self, path: str | os.PathLike[str]) -> None:
        """
        Continue from a file that :meth:`save` wrote, with the seed that it names.

        Raises
        ------
        ModelError
            If the file is no checkpoint.
        ExecutionError
            If its states are not those of this graph. Nothing has changed then.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                facts = json.loads((file.metadata() or {}).get("arenaplan", "null"))
                if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
                    raise fault(
                        "ModelCorrupt", f"{os.fspath(path)!r} is no checkpoint of a training"
                    )
                steps, seed = int(facts["steps"]), int(facts.get("seed", self._executor.seed))
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError, KeyError) as error:
            raise fault(
                "ModelCorrupt", f"{os.fspath(path)!r} is no checkpoint of a training"
            ) from error
        missing = sorted(set(self.states()).difference(arrays))
        if missing:
            raise fault("InputMismatch", f"the checkpoint lacks state {missing[0]!r}")
        self._executor.restore(arrays, runs=steps, seed=seed)


class _Line:
    """One line of a terminal."""

    def __init__(self) -> None:
        self._start = self._shown = time.monotonic()
        self._is_clear = True

    def show(self, report: StepReport) -> None:
        """Show a step, unless one was shown a moment ago."""
        now = time.monotonic()
        if now - self._shown < _PERIOD:
            return
        self._shown, self._is_clear = now, False
        losses = ", ".join(f"{name} {loss:.4g}" for name, loss in report.losses.items())
        text = f"{now - self._start:7.1f} s  step {report.step:,}: {losses}"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave an empty line."""
        if not self._is_clear:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
