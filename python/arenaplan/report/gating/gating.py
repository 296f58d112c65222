"""Judges a plan by budgets and a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from arenaplan._core import Plan
from arenaplan.base.amounts import parse_size
from arenaplan.base.errors import (
    BaselineError,
    CapacityExceeded,
    InvalidOption,
    PartOfModel,
    SpacesExceeded,
)
from arenaplan.base.progress import Progress
from arenaplan.base.quoting import quoted
from arenaplan.formats import load
from arenaplan.formats.runner_bytes import needed_bytes
from arenaplan.graph.graph import Graph
from arenaplan.graph.sizes import Bind, Source
from arenaplan.planner.changes import Place, PlanLayout, SpaceChange, compared
from arenaplan.planner.plan_options import (
    PlanKeywords,
    PlanOptions,
    checked_budget,
    resolve,
    target_of,
)
from arenaplan.planner.planning import plan
from arenaplan.planner.spaces import ARENA, parse_spaces
from arenaplan.report.gating.baseline import Baseline, read_baseline
from arenaplan.report.gating.verdicts import Cause, Gate, GateRow, GrowthCause


def gate(
    source: Graph | Source,
    options: PlanOptions | None = None,
    *,
    baseline: Baseline | None = None,
    allow_growth: int | str = 0,
    bind: Bind | None = None,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> Gate:
    """
    Plan a model, and judge the plan by budgets and an earlier plan.

    At least one rule is required: ``budget``, ``spaces`` or ``baseline``. The budget limits the
    whole arena; with target ``tflm`` the runtime's total, for which ``source`` must be the file.
    Each memory in ``spaces``, such as ``"sram=64KiB,psram=8MiB"``, has a budget. The model is
    planned for the memories if there are several; a single memory names the arena.

    Parameters
    ----------
    source : Graph, path or bytes
        The model, as for :func:`load`.
    options : PlanOptions, optional
        Plan options.
    baseline : Plan, mapping, path or bytes, optional
        The plan or report to compare with, or a file with either: no memory may need more bytes.
    allow_growth : int or str, default 0
        Allowed growth over the baseline, per memory: bytes, a size such as ``"1KiB"``, or a
        percentage such as ``"2%"``.
    bind : mapping, optional
        Numbers for symbolic dimensions, as for :func:`load`.
    time_limit, on_progress
        As for :func:`plan`.
    **overrides
        Single options by name, such as ``budget="256KiB"``.

    Returns
    -------
    Gate
        The judgment, true if every rule holds. A plan that does not fit is not an exception.

    Raises
    ------
    BaselineError
        If the baseline is damaged.
    InvalidOption
        If there is no rule, growth is allowed over no baseline, or the runner's total is not known.
    PlannerError, OSError
        If the model cannot be read or planned.

    Examples
    --------
    >>> import arenaplan as ap
    >>> def model(size):
    ...     graph = ap.Graph("m")
    ...     x = graph.input("x", (64,), "uint8")
    ...     (y,) = graph.node("Op", [x], [("y", (size,), "uint8")])
    ...     graph.output(y)
    ...     return graph
    >>> old = ap.plan(model(64))
    >>> bool(ap.report.gate(model(64), baseline=old, spaces="sram=1KiB"))
    True
    >>> failed = ap.report.gate(model(256), baseline=old, spaces="sram=256")
    >>> failed.failures()
    ['sram needs 320 bytes, 64 more than its budget of 256', 'sram grew from 128 to 320 bytes']
    >>> [(cause.name, cause.kind, cause.before, cause.after) for cause in failed.causes]
    [('y', 'grown', 64, 256)]
    """
    chosen = resolve(options, overrides)
    limits, allowed = GateLimits.of(chosen), Growth.of(allow_growth)
    limits.require_rule(baseline, allowed)
    graph = source if isinstance(source, Graph) else load(source, bind=bind)
    old = None if baseline is None else read_baseline(baseline)
    made = limits.planned(graph, time_limit=time_limit, on_progress=on_progress)
    needed = None
    if isinstance(made, Plan) and limits.budgets:
        needed = needed_bytes(None if isinstance(source, Graph) else source, made)
    return judged(graph, made, limits, old, allowed, needed)


@dataclass(frozen=True, slots=True)
class GateLimits:
    """A gate's budgets, and the options for the plan."""

    options: PlanOptions
    budgets: tuple[tuple[str, int], ...]
    """Memory names with bytes."""
    single: str | None
    """The only memory's name; ``None`` if a plan chooses among several."""

    @classmethod
    def of(cls, options: PlanOptions) -> GateLimits:
        """
        Return the budgets from options.

        A single memory is the arena, which is planned even if too large. Several memories are
        planned with their sizes, which decide where values go.
        """
        if options.spaces is None:
            budget = checked_budget(options.budget)
            return cls(options, () if budget is None else ((ARENA, budget),), ARENA)
        if options.budget is not None:
            raise InvalidOption("option budget: the spaces have budgets of their own")
        given = options.spaces
        spaces = parse_spaces(given) if isinstance(given, str) else list(given)
        budgets = tuple((s.name, s.capacity) for s in spaces if s.capacity is not None)
        if len(spaces) != 1:
            return cls(options, budgets, None)
        (space,) = spaces
        if any(name != space.name for name in (options.pins or {}).values()):
            return cls(options, budgets, None)  # The planner raises the error.
        alignment = options.alignment if space.alignment is None else space.alignment
        plain = replace(options, spaces=None, pins=None, budget=space.capacity, alignment=alignment)
        return cls(plain, budgets, space.name)

    def require_rule(self, baseline: object, allowed: Growth) -> None:
        """
        Refuse a gate that could not fail, and growth over nothing.

        Raises
        ------
        InvalidOption
            If there is neither a budget nor a baseline, or growth is allowed without a baseline.
        """
        if not self.budgets and baseline is None:
            raise InvalidOption(
                "a gate without a rule judges nothing: give a budget, such as budget='64KiB', "
                "spaces with sizes, or a baseline"
            )
        if allowed != Growth() and baseline is None:
            raise InvalidOption(
                "option allow_growth: growth is over a baseline, and none is given; a budget "
                "allows every growth up to its bytes"
            )

    def planned(
        self, graph: Graph, *, time_limit: float | None = None, on_progress: Progress | None = None
    ) -> Plan | CapacityExceeded:
        """Return a plan, however large; or the error that there is none for the memories."""
        options = self.options
        if target_of(options, graph.target).runtime == "tflm":  # Which has more than the arena.
            options = replace(options, budget=None)
        try:
            return plan(graph, options, time_limit=time_limit, on_progress=on_progress)
        except PartOfModel as error:
            if error.plan is None:
                raise
            return error.plan
        except CapacityExceeded as error:
            return error if error.plan is None else error.plan


@dataclass(frozen=True, slots=True)
class Growth:
    """Allowed growth: bytes, or a fraction of the baseline."""

    bytes: int = 0
    part: float = 0.0

    @classmethod
    def of(cls, text: int | str) -> Growth:
        """
        Read ``0``, ``"1KiB"`` or ``"2%"``.

        Raises
        ------
        InvalidOption, SizeError
            If the text is neither a size nor a percentage.
        """
        if isinstance(text, int):
            if text < 0:
                raise InvalidOption(f"option allow_growth: {text} is negative")
            return cls(text)
        if not isinstance(text, str):
            raise InvalidOption(f"option allow_growth: {text!r} is neither a size nor a part")
        if not text.strip().endswith("%"):
            return cls(parse_size(text))
        try:
            part = float(text.strip()[:-1]) / 100
        except ValueError:
            part = -1.0
        if not 0 <= part <= 100:
            raise InvalidOption(f"option allow_growth: {text!r} is not a percentage such as '2%'")
        return cls(0, part)

    def limit(self, baseline: int) -> int:
        """Return the most bytes that pass."""
        return baseline + max(self.bytes, int(baseline * self.part))


def judged(
    graph: Graph,
    made: Plan | CapacityExceeded,
    limits: GateLimits,
    baseline: PlanLayout | None,
    allowed: Growth,
    needed: int | None = None,
) -> Gate:
    """
    Judge a plan, or the error raised in place of a plan.

    ``needed`` is the runner's total in bytes, if there is only one arena.
    """
    target = limits.options.target
    if not isinstance(made, Plan):
        name = target if isinstance(target, str) else getattr(target, "name", graph.target)
        return Gate(graph.name, name, None, (), _needed(made, baseline), str(made))
    layout = PlanLayout.of(made)
    whole = made.arena_bytes if needed is None else needed
    rows = []
    for space, limit in limits.budgets:
        arena = layout.arenas[space] if limits.single is None else whole
        rows.append(GateRow("budget", space, arena, limit))
    causes: tuple[GrowthCause, ...] = ()
    others = 0
    if baseline is not None:
        _require_one_model(baseline, layout)
        if limits.single is not None:
            layout = _renamed(layout, limits.single)
            baseline = _renamed(baseline, limits.single)
        found = compared(baseline, layout)
        for change in found.spaces:
            limit = allowed.limit(change.before)
            rows.append(GateRow("baseline", change.name, change.after, limit, change.before))
        causes = _causes(baseline, layout, found.grew)
        others = len({change.name for change in found.changes} - {each.name for each in causes})
    # The runtime's total covers the whole file.
    is_whole = needed is not None and baseline is None and made.target.runtime == "tflm"
    problem = None if is_whole else _part_of(made)
    return Gate(made.model, made.target.name, made, tuple(rows), causes, problem, others)


def _require_one_model(baseline: PlanLayout, layout: PlanLayout) -> None:
    """Refuse the baseline of another model, or for another runner: its bytes say nothing here."""
    for what, old, new in (
        ("of model", baseline.model, layout.model),
        ("for target", baseline.target, layout.target),
    ):
        if old != new:
            raise BaselineError(
                f"the baseline is {what} {quoted(old)}, not {quoted(new)}; pass that of this model "
                "and target, or write it anew by --update"
            )


def _part_of(plan: Plan) -> str | None:
    """Return why a plan covers only part of a model; ``None`` for the whole."""
    try:
        plan.covers.require_whole(plan.model)
    except PartOfModel as error:
        return str(error)
    return None


def _renamed(layout: PlanLayout, name: str) -> PlanLayout:
    """Rename a layout's only arena, because memory names may change."""
    if len(layout.arenas) != 1 or name in layout.arenas:
        return layout
    ((old, size),) = layout.arenas.items()
    places = {
        value: replace(place, space=name) if place.space == old else place
        for value, place in layout.places.items()
    }
    return PlanLayout(layout.model, layout.target, {name: size}, places, {name: layout.live[old]})


def _causes(
    before: PlanLayout, after: PlanLayout, grew: Sequence[SpaceChange]
) -> tuple[GrowthCause, ...]:
    """Return the values that changed and are at the peaks of memories that grew."""
    causes = []
    for change in grew:
        peak, old_peak = _peak(after, change.name), _peak(before, change.name)
        for name, place in after.places.items():
            if place.space != change.name or not place.live.start <= peak < place.live.end:
                continue
            kind = _kind(before.places.get(name), place, old_peak)
            if kind is not None:
                old = before.places.get(name)
                causes.append(
                    GrowthCause(
                        change.name, name, kind, None if old is None else old.size, place.size
                    )
                )
    return tuple(sorted(causes, key=_weight))


def _weight(cause: GrowthCause) -> tuple[int, str]:
    """Sort key: the bytes that a cause adds to the peak, largest first."""
    added = cause.after - (cause.before or 0) if cause.kind == "grown" else cause.after
    return -added, cause.name


def _kind(old: Place | None, new: Place, old_peak: int) -> Cause | None:
    """Return how a value adds to the peak; ``None`` if the value did before."""
    if old is None:
        return "new"
    if new.size > old.size:
        return "grown"
    if new.space != old.space:
        return "moved here"
    return None if old.live.start <= old_peak < old.live.end else "live at the peak now"


def _peak(layout: PlanLayout, space: str) -> int:
    """Return the step with the most live bytes in a space."""
    curve: Sequence[int] = layout.live.get(space, ())
    return max(range(len(curve)), key=curve.__getitem__, default=-1)


def _needed(error: CapacityExceeded, baseline: PlanLayout | None) -> tuple[GrowthCause, ...]:
    """Return the values that do not fit and are new or larger than in the baseline."""
    if baseline is None or not isinstance(error, SpacesExceeded):
        return ()
    places: Mapping[str, Place] = baseline.places
    causes = []
    for name, size in error.values:
        old = places.get(name)
        if old is None or old.size < size:
            kind: Cause = "new" if old is None else "grown"
            causes.append(GrowthCause("", name, kind, None if old is None else old.size, size))
    return tuple(sorted(causes, key=_weight))
