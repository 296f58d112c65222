"""Training inside one arena: steps with forward pass, gradients and updates."""

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
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.formats.onnx.with_weights import with_weights
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions
from arenaplan.planner.planning import plan as make_plan
from arenaplan.planner.spaces import Space
from arenaplan.run.numpy import Executor
from arenaplan.train.gradients import TrainingGraph

_PERIOD = 0.1
"""Seconds between updates of the line on the terminal."""
_FORMAT = "arenaplan.checkpoint.1"

NonFinite: TypeAlias = Literal["raise", "skip", "keep"]
"""Reaction of a step to infinities and NaN: an error, no update, or nothing."""

EXACT: Final = "views,in-place,elision,order"
"""Techniques that keep every result bit-identical: each node runs as a whole."""


class StepReport(NamedTuple):
    """The training state for callbacks of :meth:`Trainer.fit`."""

    step: int
    """Number of steps so far, including a restored checkpoint's."""
    losses: Mapping[str, float]
    """The step's losses, by name."""
    is_skipped: bool = False
    """Whether the step made an infinity or NaN and changed nothing."""


class Trainer:
    """
    Trains a graph inside one arena.

    The arena holds parameters, optimizer statistics, activations and gradients. A step copies the
    batch in, runs every node, and allocates nothing of note. A failed step changes nothing: a copy
    of all states, outside the arena, restores the previous contents.

    Parameters
    ----------
    train : TrainingGraph
        A graph with gradients and updates: see :func:`arenaplan.train.gradient`,
        :func:`arenaplan.train.sgd` and :func:`arenaplan.train.adam`. Updates may be written by
        hand: ``operators(graph).Assign(parameter, content)``.
    plan : Plan, optional
        The plan of ``train.graph`` for the target ``"numpy"``; by default made with ``options``.
    seed : int, default 0
        Seed for dropout and other random operators, whose numbers depend on seed, node name and
        step number.
    nonfinite : {"raise", "skip", "keep"}, default "raise"
        Reaction if a loss, parameter or optimizer statistic is infinite or NaN after a step: raise
        ``NotFinite``; restore all states and go on, as needed for loss scaling; or do nothing.
    recompute : str or int, optional
        Lets nodes run again for a smaller arena: as for :func:`arenaplan.plan`. A byte count covers
        the whole arena, including kernel scratch memory. Losses stay bit-identical.
    page_to : str or Space, optional
        A slow memory to which values may be copied, and back: as for :func:`arenaplan.plan`.
    options
        Fields of :class:`arenaplan.PlanOptions`. By default only techniques with bit-identical
        results are used (:data:`EXACT`), so that every plan trains alike; ``optimize="all"`` may
        need fewer bytes. ``workers`` is also the number of threads that run steps concurrently, and
        the only option allowed together with a plan.

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
        """The graph that runs: ``train``'s graph, or a graph in which nodes run again."""
        self.plan = plan
        self.skipped = 0
        """Number of steps that changed nothing because of an infinity or NaN."""
        self.reports: list[StepReport] = []
        """The steps of the latest :meth:`fit`, including steps before an error."""
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
        """Number of steps that changed states, including a restored checkpoint's."""
        return self._executor.runs

    def step(self, batch: Mapping[str, ArrayLike], *, verify: bool = False) -> dict[str, float]:
        """
        Run one step: forward pass, gradients, updates.

        Parameters
        ----------
        batch : mapping of str to array_like
            An array per graph input.
        verify : bool, default False
            Compare every node with a run in which values share no memory: see
            :meth:`arenaplan.Executor.run`. Slow.

        Returns
        -------
        dict of str to float
            The losses by name; the sum of elements if a loss has several.

        Raises
        ------
        ExecutionError
            If an input or node is at fault, or a result is not finite. States, step count and
            random numbers are then as before the step.
        """
        outputs = self._stepped(batch, borrow=True, verify=verify)
        return {name: float(np.sum(outputs[name])) for name in self._losses}

    def run(self, batch: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Run a step, and return copies of all graph outputs; errors as in :meth:`step`."""
        return self._stepped(batch)

    def _stepped(self, batch: Mapping[str, ArrayLike], **options: bool) -> dict[str, np.ndarray]:
        """Run a step; a failed step leaves the states as before."""
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
        """Return the name of an infinite or NaN result after a step, if any."""
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

    @typed
    def fit(
        self,
        batches: Iterable[Mapping[str, ArrayLike]],
        *,
        on_step: Callable[[StepReport], object] | None = None,
        progress: bool | None = None,
    ) -> list[StepReport]:
        """
        Run a step per batch, and return all step reports.

        Parameters
        ----------
        batches : iterable of mapping
            The batches, in order.
        on_step : callable, optional
            Called after each step; ``False`` ends the training.
        progress : bool, optional
            Show step and losses in a line on stderr; by default if stderr is a terminal.
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

    @typed
    def restore(self, states: Mapping[str, ArrayLike], *, steps: int | None = None) -> None:
        """
        Set named parameters and statistics; an error changes nothing.

        Parameters
        ----------
        states : mapping of str to array_like
            Arrays with the states' shapes and types, as from :meth:`states`.
        steps : int, optional
            The number of previous steps, on which dropout depends.

        Raises
        ------
        ExecutionError
            If there is no such state, or the shape or type differs.
        """
        self._executor.restore(states, runs=steps)

    @typed
    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write parameters, statistics, step count and seed to a safetensors file.

        A training that continues from the file computes the same bits as an uninterrupted training.
        The file is replaced atomically or stays unchanged. Requires the extra ``weights``.

        Raises
        ------
        PlanError
            If the file cannot be written.
        """
        from safetensors.numpy import save

        facts = {"format": _FORMAT, "steps": str(self.steps), "seed": str(self._executor.seed)}
        # Rank-0 C-ordered arrays keep rank 0.
        arrays = {
            name: np.require(array, requirements="C") for name, array in self.states().items()
        }
        write_files([(path, save(arrays, {"arenaplan": json.dumps(facts)}))])

    @typed
    def save_onnx(self, model: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
        """
        Write a copy of the loaded ONNX model with the current parameters.

        Parameters
        ----------
        model : path
            The file read by ``ap.load(model, parameters=…)``.
        path : path
            The file to write, with all weights inside; replaced atomically or unchanged.

        Raises
        ------
        UndefinedValue
            If the model stores no weight with a parameter's name.
        PlanError
            If the file cannot be written.
        """
        states, values = self.states(), self.train.graph.values
        names = [values[index].name for index in self.train.parameters]
        arrays = {name: states[name] for name in names if name in states}
        write_files([(path, with_weights(model, arrays))])

    @typed
    def load(self, path: str | os.PathLike[str]) -> None:
        """
        Continue from a file written by :meth:`save`, with the file's seed.

        Raises
        ------
        ModelError
            If the file is not a checkpoint.
        ExecutionError
            If the states do not match this graph; nothing is changed then.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                facts = json.loads((file.metadata() or {}).get("arenaplan", "null"))
                if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
                    raise fault("ModelCorrupt", f"{os.fspath(path)!r} is not a training checkpoint")
                steps, seed = int(facts["steps"]), int(facts.get("seed", self._executor.seed))
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError, KeyError) as error:
            raise fault(
                "ModelCorrupt", f"{os.fspath(path)!r} is not a training checkpoint"
            ) from error
        missing = sorted(set(self.states()).difference(arrays))
        if missing:
            raise fault("InputMismatch", f"the checkpoint lacks state {missing[0]!r}")
        self._executor.restore(arrays, runs=steps, seed=seed)


class _Line:
    """A line on a terminal."""

    def __init__(self) -> None:
        self._start = self._shown = time.monotonic()
        self._is_clear = True

    def show(self, report: StepReport) -> None:
        """Show a step, unless another step was shown a moment ago."""
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
