"""Training inside one arena: whole steps of forward pass, gradients and updates."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from arenaplan._core import Plan, write_files
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions
from arenaplan.planner.planning import plan as make_plan
from arenaplan.planner.spaces import Space
from arenaplan.run.numpy import Executor
from arenaplan.train.gradients import TrainingGraph

_PERIOD = 0.1
"""Seconds between two changes of the line on the terminal."""
_FORMAT = "arenaplan.checkpoint.1"

EXACT: Final = "views,in-place,elision,order"
"""Techniques that change no bit of any result: each node runs as a whole."""


class StepReport(NamedTuple):
    """The state of a training, as callbacks of :meth:`Trainer.fit` see it."""

    step: int
    """Number of steps so far, those of a restored checkpoint included."""
    losses: Mapping[str, float]
    """The losses of the step, by name."""


class Trainer:
    """
    Trains a graph inside one arena.

    The arena holds parameters, statistics of the optimizer, activations and gradients. A step
    copies the batch in, runs every node, and allocates nothing of note.

    Parameters
    ----------
    train : TrainingGraph
        A graph with gradients and updates: see :func:`arenaplan.train.gradient`,
        :func:`arenaplan.train.sgd` and :func:`arenaplan.train.adam`.
    plan : Plan, optional
        The plan of ``train.graph`` for the target ``"numpy"``; made here by ``options`` if left
        out.
    seed : int, default 0
        Seed of dropout and of other random operators: their numbers depend on seed, name of the
        node and number of the step.
    recompute : str or int, optional
        Lets nodes run again, so that the arena needs fewer bytes: as for :func:`arenaplan.plan`. A
        number of bytes is that of the whole arena, scratch memory of kernels included. Losses stay
        equal bit for bit.
    page_to : str or Space, optional
        A slow memory that values may be copied to and back from: as for :func:`arenaplan.plan`.
    options
        Fields of :class:`arenaplan.PlanOptions`. By default the techniques are those that change no
        bit of any result (:data:`EXACT`), so that every plan trains alike; ``optimize="all"`` may
        need fewer bytes.

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
        recompute: str | int | None = None,
        page_to: str | Space | None = None,
        **options: Unpack[PlanKeywords],
    ) -> None:
        if not isinstance(train, TrainingGraph):
            raise InvalidOption(
                f"{type(train).__name__!r} has no updates of parameters: pass "
                "arenaplan.train.sgd(arenaplan.train.gradient(graph, of=loss, wrt=parameters))"
            )
        if not train.statistics:
            raise InvalidOption(
                "the graph has no updates of its parameters: call arenaplan.train.sgd or "
                "arenaplan.train.adam first"
            )
        if plan is not None and (options or recompute is not None or page_to is not None):
            raise InvalidOption("options are those of the plan that is given")
        graph = train.graph
        if plan is None:
            exact = PlanOptions(target="numpy", optimize=EXACT)
            plan = make_plan(graph, exact, recompute=recompute, page_to=page_to, **options)
        self.train = train
        self.graph = graph.for_plan(plan)
        """The graph that runs: that of ``train``, or one in which nodes run again."""
        self.plan = plan
        self._executor = Executor(graph, plan, seed=seed)
        values = train.graph.values
        self._losses = [values[index].name for index in dict.fromkeys(train.losses)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Trainer({self.train.graph!r}, {self.plan.arena_bytes} bytes, step {self.steps})"

    def close(self) -> None:
        """Release the arena; parameters that were not saved are lost."""
        self._executor.close()

    @property
    def steps(self) -> int:
        """Number of steps so far, those of a restored checkpoint included."""
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
        """
        outputs = self._executor.run(batch, borrow=True, verify=verify)
        return {name: float(np.sum(outputs[name])) for name in self._losses}

    def run(self, batch: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Run one step, and return copies of all outputs of the graph."""
        return self._executor.run(batch)

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
        reports = []
        try:
            for batch in batches:
                losses = self.step(batch)
                report = StepReport(self.steps, losses)
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write parameters, statistics and the number of steps to a safetensors file.

        A training that continues from the file computes the same bits as one that never stopped.
        The file is replaced at once or unchanged. Needs the extra ``weights``.

        Raises
        ------
        PlanError
            If the file cannot be written.
        """
        from safetensors.numpy import save

        facts = {"format": _FORMAT, "steps": str(self.steps)}
        # C-ordered arrays of rank 0 stay so.
        arrays = {
            name: np.require(array, requirements="C") for name, array in self.states().items()
        }
        write_files([(path, save(arrays, {"arenaplan": json.dumps(facts)}))])

    def load(self, path: str | os.PathLike[str]) -> None:
        """
        Continue from a file that :meth:`save` wrote.

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
                steps = int(facts["steps"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError, KeyError) as error:
            raise fault(
                "ModelCorrupt", f"{os.fspath(path)!r} is no checkpoint of a training"
            ) from error
        missing = sorted(set(self.states()).difference(arrays))
        if missing:
            raise fault("InputMismatch", f"the checkpoint lacks state {missing[0]!r}")
        self._executor.restore(arrays, runs=steps)


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
