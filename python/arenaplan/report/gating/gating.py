"""The judgment of one plan by its budgets and its baseline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from arenaplan._core import Plan
from arenaplan.base.errors import CapacityExceeded, InvalidOption, SpacesExceeded
from arenaplan.base.progress import Progress
from arenaplan.formats import load, suffix_of
from arenaplan.graph import Graph
from arenaplan.graph.sizes import Bind, Source
from arenaplan.planner.changes import Layout, Place, SpaceChange, compared
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions, resolve
from arenaplan.planner.planning import plan
from arenaplan.planner.spaces import ARENA, Space, parse_size, parse_spaces
from arenaplan.report.gating.baseline import Baseline, read_baseline
from arenaplan.report.gating.verdicts import Cause, Gate, GateRow, GrowthCause

if TYPE_CHECKING:
    from arenaplan.tflite.runtime.build import Build


def gate(
    source: Graph | Source,
    options: PlanOptions | None = None,
    *,
    baseline: Baseline | None = None,
    budget: int | str | Sequence[Space] | None = None,
    allow_growth: int | str = 0,
    bind: Bind | None = None,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> Gate:
    """
    Plan a model, and judge the plan by budgets and by a plan that was made before.

    Parameters
    ----------
    source : Graph, path or bytes
        The model, as for :func:`load`.
    options : PlanOptions, optional
        Options of the plan.
    baseline : Plan, mapping, path or bytes, optional
        The plan or report to compare with, or a file with one: no memory may need more bytes.
    budget : int, str or sequence of Space, optional
        Most bytes of the arena, such as ``"256KiB"`` or ``"sram=256KiB"``; or of several memories,
        such as ``"sram=64KiB,psram=8MiB"``, for which the model is then planned. With target
        ``tflm`` and a file as source, the whole arena of the runtime counts.
    allow_growth : int or str, default 0
        Growth over the baseline that passes, per memory: bytes, a size such as ``"1KiB"``, or a
        part such as ``"2%"``.
    bind : mapping, optional
        Numbers for symbolic dimensions, as for :func:`load`.
    time_limit, on_progress
        As for :func:`plan`.
    **overrides
        Single options by name.

    Returns
    -------
    Gate
        The judgment; it is true if every rule holds. A plan that does not fit is no exception.

    Raises
    ------
    BaselineError
        If the baseline is damaged.
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
    >>> bool(ap.report.gate(model(64), baseline=old, budget="sram=1KiB"))
    True
    >>> failed = ap.report.gate(model(256), baseline=old, budget="sram=256")
    >>> failed.failures()
    ['sram needs 320 bytes, 64 more than its budget of 256', 'sram grew from 128 to 320 bytes']
    >>> [(cause.name, cause.kind, cause.before, cause.after) for cause in failed.causes]
    [('y', 'grown', 64, 256)]
    """
    chosen = resolve(options, overrides)
    if budget is not None:
        if chosen.spaces is not None or chosen.capacity is not None:
            raise InvalidOption("option budget: spaces or capacity are given, too")
        chosen = replace(chosen, spaces=_spaces_of(budget))
    limits = Limits.of(chosen)
    graph = source if isinstance(source, Graph) else load(source, bind=bind)
    old = None if baseline is None else read_baseline(baseline)
    allowed = Growth.of(allow_growth)
    made = limits.planned(graph, time_limit=time_limit, on_progress=on_progress)
    if isinstance(made, CapacityExceeded):
        return judged(graph, made, limits, old, allowed)
    whole = None if isinstance(source, Graph) else whole_arena(source, made)
    return judged(graph, made, limits, old, allowed, whole)


@dataclass(frozen=True, slots=True)
class Limits:
    """The budgets of a gate, and the options of the plan that they judge."""

    options: PlanOptions
    budgets: tuple[tuple[str, int], ...]
    """Names of memories, with their bytes."""
    single: str | None
    """The name of the only memory; ``None`` if a plan chooses among several."""

    @classmethod
    def of(cls, options: PlanOptions) -> Limits:
        """
        Return the budgets in options.

        One memory is the arena with a capacity, whose plan exists even if it is too large; several
        are planned with theirs, which decide where values go.
        """
        if options.spaces is None:
            capacity = options.capacity
            return cls(options, () if capacity is None else ((ARENA, capacity),), ARENA)
        given = options.spaces
        spaces = parse_spaces(given) if isinstance(given, str) else list(given)
        budgets = tuple((s.name, s.capacity) for s in spaces if s.capacity is not None)
        if len(spaces) != 1:
            return cls(options, budgets, None)
        (space,) = spaces
        if any(name != space.name for name in (options.pins or {}).values()):
            return cls(options, budgets, None)  # The planner has the message for it.
        alignment = options.alignment if space.alignment is None else space.alignment
        plain = replace(
            options, spaces=None, pins=None, capacity=space.capacity, alignment=alignment
        )
        return cls(plain, budgets, space.name)

    def planned(
        self, graph: Graph, *, time_limit: float | None = None, on_progress: Progress | None = None
    ) -> Plan | CapacityExceeded:
        """Return a plan, however large; or the error that there is none for the memories."""
        try:
            return plan(graph, self.options, time_limit=time_limit, on_progress=on_progress)
        except CapacityExceeded as error:
            return error if error.plan is None else error.plan


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth that passes: bytes, or a part of the baseline."""

    bytes: int = 0
    part: float = 0.0

    @classmethod
    def of(cls, text: int | str) -> Growth:
        """
        Read ``0``, ``"1KiB"`` or ``"2%"``.

        Raises
        ------
        InvalidOption, InvalidSize
            If it is neither a size nor a part.
        """
        if isinstance(text, int):
            if text < 0:
                raise InvalidOption(f"option allow_growth: {text} is negative")
            return cls(text)
        if not text.strip().endswith("%"):
            return cls(parse_size(text))
        try:
            part = float(text.strip()[:-1]) / 100
        except ValueError:
            part = -1.0
        if not 0 <= part <= 100:
            raise InvalidOption(f"option allow_growth: {text!r} is no part such as '2%'")
        return cls(0, part)

    def limit(self, baseline: int) -> int:
        """Return the most bytes that pass."""
        return baseline + max(self.bytes, int(baseline * self.part))


def judged(
    graph: Graph,
    made: Plan | CapacityExceeded,
    limits: Limits,
    baseline: Layout | None,
    allowed: Growth,
    whole: int | None = None,
) -> Gate:
    """
    Return the judgment of a plan, or of the error that there is none.

    ``whole`` is the number of bytes of the runtime's whole arena, where that is what counts.
    """
    target = limits.options.target
    if not isinstance(made, Plan):
        name = target if isinstance(target, str) else getattr(target, "name", graph.target)
        return Gate(graph.name, name, None, (), _needed(made, baseline), str(made))
    layout = Layout.of(made)
    rows = []
    for space, limit in limits.budgets:
        if limits.single is None:
            needed = layout.arenas[space]
        else:
            needed = made.arena_bytes if whole is None else whole
        rows.append(GateRow("budget", space, needed, limit))
    causes: tuple[GrowthCause, ...] = ()
    others = 0
    if baseline is not None:
        if limits.single is not None:
            layout = _renamed(layout, limits.single)
            baseline = _renamed(baseline, limits.single)
        found = compared(baseline, layout)
        for change in found.spaces:
            limit = allowed.limit(change.before)
            rows.append(GateRow("baseline", change.name, change.after, limit, change.before))
        causes = _causes(baseline, layout, found.grew)
        others = len({change.name for change in found.changes} - {each.name for each in causes})
    return Gate(made.model, made.target.name, made, tuple(rows), causes, None, others)


def _spaces_of(budget: int | str | Sequence[Space]) -> list[Space]:
    """Return the memories that a budget names; one without a name is the arena."""
    if isinstance(budget, int):
        return [Space(ARENA, budget)]
    if not isinstance(budget, str):
        return list(budget)
    return parse_spaces(budget)


def whole_arena(source: Source, plan: Plan, build: Build | None = None) -> int | None:
    """
    Return the bytes of the whole arena of TensorFlow Lite Micro, if the plan is for it.

    The runtime has the usual build for the plan's target unless another one is given.
    """
    if plan.target.runtime != "tflm":
        return None
    data = source if isinstance(source, bytes) else Path(os.fspath(source))
    if suffix_of(data) != ".tflite":
        return None
    # Other targets need none of this.
    from arenaplan.tflite.files import own_arena
    from arenaplan.tflite.reader.tflite_model import parse, read_bytes
    from arenaplan.tflite.runtime.build import Build

    return own_arena(parse(read_bytes(data)[0]), build or Build.of_target(plan.target.name)).total


def _renamed(layout: Layout, name: str) -> Layout:
    """Return a layout whose only arena has this name, so that names of memories may change."""
    if len(layout.arenas) != 1 or name in layout.arenas:
        return layout
    ((old, size),) = layout.arenas.items()
    places = {
        value: replace(place, space=name) if place.space == old else place
        for value, place in layout.places.items()
    }
    return Layout(layout.model, {name: size}, places, {name: layout.live[old]})


def _causes(before: Layout, after: Layout, grew: Sequence[SpaceChange]) -> tuple[GrowthCause, ...]:
    """Return the values at the peaks of memories that grew which are not as they were."""
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
    """Sort causes by the bytes that they add to the peak."""
    added = cause.after - (cause.before or 0) if cause.kind == "grown" else cause.after
    return -added, cause.name


def _kind(old: Place | None, new: Place, old_peak: int) -> Cause | None:
    """Return how a value adds to the peak, ``None`` if it did so before."""
    if old is None:
        return "new"
    if new.size > old.size:
        return "grown"
    if new.space != old.space:
        return "moved here"
    return None if old.live.start <= old_peak < old.live.end else "live at the peak now"


def _peak(layout: Layout, space: str) -> int:
    """Return the step with the most live bytes in a space."""
    curve: Sequence[int] = layout.live.get(space, ())
    return max(range(len(curve)), key=curve.__getitem__, default=-1)


def _needed(error: CapacityExceeded, baseline: Layout | None) -> tuple[GrowthCause, ...]:
    """Return the values that do not fit and are larger than in the baseline, or not in it."""
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
