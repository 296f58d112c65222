"""
JAX runs a schedule: the compiler keeps and repeats the same computations as the plan.

:func:`scheduled_step` is a whole training step whose repetitions stand behind optimization
barriers, as in the plan. :func:`checkpoint_policy` is the light form: a loss for which the arrays
are saved that a plan saves. :func:`curve` returns the cost of a step at fewer bytes.

XLA's CPU compiler merges equal computations behind barriers, too, and so undoes ``jax.checkpoint``,
unless :data:`COMPILER_OPTIONS` say otherwise. A scheduled step is compiled with these options; a
loss with a policy needs the options in the ``jax.jit`` around the loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from arenaplan._core import Plan
from arenaplan.base.amounts import size_of
from arenaplan.base.errors import PackingError, fault
from arenaplan.formats.trees import Donate
from arenaplan.graph import Graph
from arenaplan.integrations.jax_names import named
from arenaplan.integrations.jax_replay import Replay, TracedArguments
from arenaplan.planner.kept import kept_labels
from arenaplan.planner.planning import plan as make_plan
from arenaplan.planner.planning import recompute_curve

__all__ = [
    "COMPILER_OPTIONS",
    "CompiledPoint",
    "CompiledReport",
    "ScheduledStep",
    "checkpoint_policy",
    "curve",
    "scheduled_step",
    "schedules",
]

COMPILER_OPTIONS: Final[Mapping[str, str]] = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""
``jax.jit`` options with which XLA keeps repetitions.

The omitted pass removes barriers before equal computations are merged for the last time.
"""
_SEGMENTS: Final = 16
"""Number of loops that a long loop becomes: each may run again by itself."""
_POINTS: Final = 8
"""Most curve points that are compiled."""
_PREDICTED: Final = 32
"""Most curve points of which the compiled bytes are predicted."""


class CompiledReport(NamedTuple):
    """The promises of a schedule, and the compiler's result."""

    predicted_bytes: int
    """
    Temporary memory by the plan's order and a model of the compiler: copies for operators that need
    another order of dimensions, and gaps in the heap. An arena as planned has fewer bytes.
    """
    compiled_bytes: int
    """Temporary memory of the compiled step: ``memory_analysis().temp_size_in_bytes``."""
    plain_bytes: int
    """Temporary memory of the given step, compiled without options."""
    compiled_work: float | None
    """
    Floating-point operations of the compiled step relative to the given step, less 1; ``None`` with
    loops, whose rounds the compiler counts once.
    """
    extra_work: float
    """Planned work of repetitions relative to the step; compilers fuse, and do less."""
    bound: float
    """No schedule in as many bytes has less extra work."""
    repetitions: int
    """Executions beyond the first of each node."""
    loops: int
    """Loops and branches, each a single node: nothing inside runs again by itself."""

    @property
    def ratio(self) -> float:
        """Compiled bytes relative to the predicted bytes."""
        return self.compiled_bytes / max(self.predicted_bytes, 1)

    def __str__(self) -> str:
        opaque = f"{self.loops} loops or branches run as they are (unroll= writes loops out)"
        work = self.compiled_work
        text = (
            f"temporary memory: {self.compiled_bytes:,} bytes compiled, {self.predicted_bytes:,} "
            f"predicted, {self.plain_bytes:,} without a schedule; {self.repetitions} repetitions "
            f"for {self.extra_work:.1%} more work (at least {self.bound:.1%})"
        )
        return f"{text}; {opaque}" if work is None else f"{text}, {work:.1%} as compiled"


class CompiledPoint(NamedTuple):
    """A point on :func:`curve`."""

    arena_bytes: int
    """Bytes of the plan's arena: arguments, and live bytes at the fullest step."""
    compiled_bytes: int | None
    """The same bytes in the compiled step, if asked for."""
    extra_work: float
    """Planned work of repetitions relative to the step."""
    bound: float
    """No schedule in as many bytes has less extra work."""


_Point = tuple[TracedArguments, CompiledPoint]
"""A point on the curve, with the form of the step that the point is for."""


class ScheduledStep:
    """
    A training step that XLA runs as planned: see :func:`scheduled_step`.

    A call compiles the step and donates the same arguments as the given step. Inside another
    ``jit``, ``grad`` or ``vmap`` the step is traced into the surrounding program: that ``jax.jit``
    needs :data:`COMPILER_OPTIONS`, and donates by itself.
    """

    def __init__(self, traced: TracedArguments, plan: Plan, plain_work: int = 0) -> None:
        self.plan = plan
        """The plan, whose ``schedule`` lists the executions."""
        plain_work = plain_work or traced.work
        self.extra_work = _extra(plan.extra_cost, traced.work, plain_work)
        """Planned work beyond the given step's, relative to the given step's."""
        self.bound = _extra(plan.extra_bound, traced.work, plain_work)
        """No schedule of the same nodes in as many bytes has less extra work."""
        self._traced = traced
        self._replay = Replay(traced, plan)
        functools.update_wrapper(self, traced.step, updated=())
        self._jit = traced.jitted(self.function, COMPILER_OPTIONS)

    def __repr__(self) -> str:
        return f"ScheduledStep({self.plan!r}, {self._replay.repetitions} repetitions)"

    def __call__(self, *args: Any) -> Any:
        """Run the step; results equal the given step's results."""
        import jax

        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return self.function(*args)
        return self._jit(*args)

    def function(self, *args: Any) -> Any:
        """
        Return the results, for JAX to trace.

        Raises
        ------
        ShapeMismatch
            If arguments have another structure, shape or type than in the schedule.
        """
        import jax

        leaves = self._traced.leaves(args)
        return jax.tree.unflatten(self._traced.results, self._replay(leaves))

    @property
    def predicted_bytes(self) -> int:
        """Bytes of arguments and, by :attr:`CompiledReport.predicted_bytes`, temporary memory."""
        return self._traced.argument_bytes + self._replay.predicted_bytes

    @property
    def graph(self) -> Graph:
        """The step as a graph: a node per equation, or per equations that run as one."""
        return self._traced.graph

    def lower(self, *args: Any) -> Any:
        """Lower the step as ``jax.jit(step).lower`` does."""
        return self._jit.lower(*args)

    @functools.cached_property
    def compiled(self) -> Any:
        """The compiled step, as ``jax.stages.Compiled``, for the schedule's arguments."""
        return self.lower(*self._traced.args).compile()

    @functools.cached_property
    def report(self) -> CompiledReport:
        """Predicted and compiled bytes; the given step is compiled for comparison, too."""
        traced = self._traced
        works = [each.cost_analysis().get("flops", 0.0) for each in (self.compiled, traced.plain)]
        is_counted = not traced.loops and not traced.is_written_out
        return CompiledReport(
            predicted_bytes=self._replay.predicted_bytes,
            compiled_bytes=_temporary(self.compiled),
            plain_bytes=_temporary(traced.plain),
            compiled_work=works[0] / max(works[1], 1) - 1 if is_counted else None,
            extra_work=self.extra_work,
            bound=self.bound,
            repetitions=self._replay.repetitions,
            loops=traced.loops,
        )


def scheduled_step(
    step: Callable[..., Any],
    args: Sequence[Any],
    donate: Donate = None,
    *,
    recompute: str | int,
    fit: bool = False,
    unroll: int = 0,
) -> ScheduledStep:
    """
    Return a training step that XLA runs in fewer bytes, since some nodes run again.

    Parameters
    ----------
    step : callable
        The step, with gradients and updates inside, as for :func:`arenaplan.from_train_step`.
    args : sequence
        The step's arguments, or their shapes; the step is traced and not run.
    donate : collection of int or mapping, optional
        Arguments whose memory results take over; by default the donated arguments of a ``jax.jit``
        around ``step``.
    recompute : str or int
        ``"30%"`` for at most so much extra work; ``"512MiB"`` or a number for bytes of arguments
        and temporary memory, as predicted: see :attr:`CompiledReport.predicted_bytes`. A larger
        budget never gets more work, and a smaller budget never more predicted bytes.
    fit : bool, default False
        Compile up to 8 schedules, and take the schedule that meets ``recompute`` by the compiler's
        own count: with the least extra work in so many bytes for arguments and temporary memory, or
        with the fewest bytes for so much work. Then a larger budget never gets more work, and a
        smaller budget never more bytes.
    unroll : int, default 0
        Loops ``scan`` with at most so many rounds are written out, so that their nodes may run
        again; other loops stay loops.

    Raises
    ------
    RecomputeExceeded
        If no schedule meets ``recompute``.
    ExecutionError
        If the compiler merges repetitions with the first executions (``ScheduleLost``).

    Examples
    --------
    >>> from arenaplan.integrations import jax as apj       # doctest: +SKIP
    >>> step = apj.scheduled_step(step, args, donate=(0, 1), recompute="30%")    # doctest: +SKIP
    >>> print(step.report)                                  # doctest: +SKIP
    >>> p, m, loss = step(p, m, x)                          # doctest: +SKIP
    """
    _probe()
    forms = _forms(step, args, donate, unroll)
    if isinstance(recompute, str) and recompute.strip().endswith("%"):
        chosen = _scheduled(forms, recompute)
        if not fit:
            return chosen
        fitting = [each for each in _compiled(forms) if each.extra_work <= chosen.extra_work]
        return min([*fitting, chosen], key=_compiled_bytes)
    most = size_of(recompute, "recompute")
    if not fit:
        return _predicted(forms, most)
    found = list(_compiled(forms))
    fitting = [each for each in found if _compiled_bytes(each) <= most]
    if not fitting:
        least = min(map(_compiled_bytes, found))
        raise fault(
            "RecomputeExceeded",
            f"no schedule compiles to {most:,} bytes; the best one needs {least:,}",
        )
    return min(fitting, key=lambda each: (each.extra_work, _compiled_bytes(each)))


def schedules(
    step: Callable[..., Any],
    args: Sequence[Any],
    donate: Donate = None,
    *,
    unroll: int = 0,
    points: int = _POINTS,
) -> Iterator[ScheduledStep]:
    """
    Yield schedules, from the least extra work to the fewest bytes by the compiler's count.

    Parameters
    ----------
    step, args, donate, unroll
        As for :func:`scheduled_step`.
    points : int, default 8
        Most schedules that are compiled.
    """
    _probe()
    yield from _compiled(_forms(step, args, donate, unroll), points)


def checkpoint_policy(
    loss: Callable[..., Any],
    args: Sequence[Any],
    *,
    recompute: str | int,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """
    Return a loss whose gradient saves the same arrays as a plan, and computes other arrays again.

    The result is ``jax.checkpoint`` with a policy over names, for ``grad``, optimizers and modules
    as usual. A policy states the saved arrays, but not the time at which other arrays are computed
    again: all of them when the backward pass begins, unless the compiler orders them.
    :func:`scheduled_step` states both. The attribute ``saved`` has the saved names, ``plan`` the
    plan.

    Parameters
    ----------
    loss : callable
        From parameters and a batch to a scalar.
    args : sequence
        The loss's arguments, or their shapes.
    recompute : str or int
        As for :func:`scheduled_step`; bytes count arguments, gradients and activations.
    argnums : int or sequence of int, default 0
        The arguments that gradients are for.
    has_aux : bool, default False
        Whether the loss returns a pair, of which the second part is not differentiated.

    Raises
    ------
    RecomputeExceeded
        If no schedule meets ``recompute``.

    Examples
    --------
    >>> loss = apj.checkpoint_policy(loss, (p, x), recompute="20%")         # doctest: +SKIP
    >>> step = jax.jit(jax.grad(loss), compiler_options=apj.COMPILER_OPTIONS)   # doctest: +SKIP
    """
    import jax

    whole = named(loss)
    step = jax.value_and_grad(whole, argnums=argnums, has_aux=has_aux)
    traced = TracedArguments(step, args, ())
    plan = _plan(traced, recompute)
    arrays = traced.emitter.values.items()
    labels = {index: tensor.label for tensor, index in arrays if tensor.label}
    saved = kept_labels(traced.graph, labels, plan)
    policy = jax.checkpoint_policies.save_only_these_names(*saved)
    wrapped: Any = functools.wraps(loss)(jax.checkpoint(whole, policy=policy))
    wrapped.saved, wrapped.plan = saved, plan
    found: Callable[..., Any] = wrapped
    return found


def curve(
    step: Callable[..., Any],
    args: Sequence[Any],
    donate: Donate = None,
    *,
    compiles: bool = False,
    unroll: int = 0,
) -> list[CompiledPoint]:
    """
    Return the cost of a step at fewer and fewer bytes.

    Parameters
    ----------
    step, args, donate, unroll
        As for :func:`scheduled_step`.
    compiles : bool, default False
        Compile the step at up to 8 points, and return these points.
    """
    forms = _forms(step, args, donate, unroll)
    if compiles:
        return [
            CompiledPoint(it.plan.arena_bytes, _compiled_bytes(it), it.extra_work, it.bound)
            for it in _compiled(forms)
        ]
    return [point for _, point in _points(forms)]


def _forms(
    step: Callable[..., Any], args: Sequence[Any], donate: Donate, unroll: int
) -> list[TracedArguments]:
    """Return a step as it is, and with loops that save less, whole and cut."""
    forms = [TracedArguments(step, args, donate, unroll)]
    if forms[0].loops:
        forms += (TracedArguments(step, args, donate, unroll, cut) for cut in (1, _SEGMENTS))
    return forms


def _scheduled(forms: Sequence[TracedArguments], recompute: str) -> ScheduledStep:
    """Return the schedule with the fewest bytes for at most some extra work, a percentage."""
    plain, found, refused = forms[0].work, [], None
    most = float(recompute.strip().removesuffix("%")) / 100
    for form in forms:
        goal = recompute
        if form is not forms[0]:
            rest = (1 + most) * plain / form.work - 1
            if rest < 0:
                continue
            goal = f"{100 * rest:.6f}%"
        try:
            found.append(ScheduledStep(form, _plan(form, goal), plain))
        except PackingError as error:
            refused = error
    if refused is not None and not found:
        raise refused
    return min(found, key=lambda each: (each.plan.arena_bytes, each.extra_work))


def _predicted(forms: Sequence[TracedArguments], most: int) -> ScheduledStep:
    """
    Return the schedule with the least work that is predicted to need at most so many bytes.

    The choice is among points that do not depend on ``most``.
    """
    needed = []
    for form, point in _spread(_points(forms), _PREDICTED):
        needed.append(point.arena_bytes)
        if point.arena_bytes <= most:
            found = ScheduledStep(form, _plan(form, point.arena_bytes), forms[0].work)
            needed[-1] = found.predicted_bytes
            if found.predicted_bytes <= most:
                return found
    raise fault(
        "RecomputeExceeded",
        f"no schedule is predicted to compile to {most:,} bytes; the smallest schedule needs at "
        f"least {min(needed):,}",
    )


def _plan(traced: TracedArguments, recompute: str | int) -> Plan:
    """Return a plan, of which the compiler takes the order and not the places."""
    return make_plan(traced.graph, recompute=recompute, effort="fast")


def _points(forms: Sequence[TracedArguments]) -> list[_Point]:
    """Return the points of all forms that no other point beats, from all bytes to the fewest."""
    found = []
    for form in forms:
        for point in recompute_curve(form.graph, effort="fast").points:
            works = (_extra(x, form.work, forms[0].work) for x in (point.extra, point.bound))
            found.append((form, CompiledPoint(point.arena_bytes, None, *works)))
    found.sort(key=lambda pair: (pair[1].extra_work, pair[1].arena_bytes))
    kept: list[_Point] = []
    for pair in found:
        if not kept or pair[1].arena_bytes < kept[-1][1].arena_bytes:
            kept.append(pair)
    return kept


def _spread(points: Sequence[_Point], most: int) -> list[_Point]:
    """Return at most so many points: the first, the last, and points between."""
    count = min(len(points), most)
    return [points[k * (len(points) - 1) // max(count - 1, 1)] for k in range(count)]


def _extra(extra: float, work: int, plain_work: int) -> float:
    """Return extra work relative to the plain work, from extra work relative to other work."""
    return extra if work == plain_work else (1 + extra) * work / plain_work - 1


def _compiled(forms: Sequence[TracedArguments], points: int = _POINTS) -> Iterator[ScheduledStep]:
    """
    Yield schedules from all bytes to the fewest, some points of the curve apart.

    A schedule that compiles to no fewer bytes than a cheaper schedule is left out.
    """
    least: float = inf
    for form, point in _spread(_points(forms), points):
        found = ScheduledStep(form, _plan(form, point.arena_bytes), forms[0].work)
        if _compiled_bytes(found) < least:
            least = _compiled_bytes(found)
            yield found


def _compiled_bytes(scheduled: ScheduledStep) -> int:
    """Return the bytes of a compiled step's arguments and temporary memory."""
    found: int = scheduled.compiled.memory_analysis().argument_size_in_bytes
    return found + _temporary(scheduled.compiled)


def _temporary(compiled: Any) -> int:
    found: int = compiled.memory_analysis().temp_size_in_bytes
    return found


@functools.cache
def _probe() -> None:
    """Compile a function that computes a sine twice, and test whether both computations remain."""
    import jax
    from jax import lax

    def twice(x: Any) -> Any:
        first = jax.numpy.sin(x)
        again, first = lax.optimization_barrier((x, first))
        return first, jax.numpy.sin(again)

    shape = jax.ShapeDtypeStruct((8,), "float32")
    compiled = jax.jit(twice, compiler_options=dict(COMPILER_OPTIONS)).lower(shape).compile()
    if compiled.as_text().count(" sine(") < 2:
        raise fault(
            "ScheduleLost",
            f"the compiler of {jax.default_backend()} merges equal computations behind "
            "optimization barriers: repetitions would not lower its memory",
        )
