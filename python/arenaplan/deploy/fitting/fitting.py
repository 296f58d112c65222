"""Searches for a TFLite model rewrite that fits a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from time import monotonic
from typing import Final, TypeAlias

from arenaplan.base.errors import InternalError, PlannerError, UnsupportedModel
from arenaplan.base.progress import Progress, Watch, checked_seconds
from arenaplan.base.quoting import listed
from arenaplan.deploy.export.operator_order import better_order, reordered
from arenaplan.deploy.export.patched import patched
from arenaplan.deploy.export.tflm import embed, plan_in_best_order
from arenaplan.deploy.fitting.fit_options import FitOptions
from arenaplan.tflite.proving.prover import proven_plan
from arenaplan.tflite.reader.offline import METADATA_NAME, packed_offsets, read_offsets
from arenaplan.tflite.reader.tflite_model import Source, TfliteModel, parse, read_bytes
from arenaplan.tflite.reader.tflite_rows import program_of
from arenaplan.tflite.rewrite.frontier import Frontier, RegionChoice, frontier
from arenaplan.tflite.rewrite.patch import Moved, NewTensor, Patch
from arenaplan.tflite.rewrite.place import Placed, place
from arenaplan.tflite.rewrite.program import OperatorProgram
from arenaplan.tflite.rewrite.region_costs import TailCosts
from arenaplan.tflite.rewrite.strip_patches import patch_of
from arenaplan.tflite.rewrite.strip_regions import SplitRegion, even_cuts, scope_of
from arenaplan.tflite.rewrite.tensor_groups import UNIT, groups_of, live_bytes
from arenaplan.tflite.runtime import ArenaTotal, Build, total
from arenaplan.tflite.runtime.greedy import ONLINE
from arenaplan.tflite.runtime.struct_layout import struct as struct_of
from arenaplan.tflite.runtime.structures import EVAL_TENSOR, NODE
from arenaplan.tflite.runtime.views import layout_of

MOVE_COST: Final = 1.0
"""
Nanoseconds to move a byte, relative to the operator times in
:attr:`~arenaplan.tflite.rewrite.program.ProgramOperator.time`. Faster multiplication makes moves
relatively more expensive.

With reference kernels on x86-64, the expected times for seven rewrites of three models were within
0.02 of the measured ratios.
"""

_MOST_EXAMINED: Final = 40
"""Rewrites whose tensors are placed."""
_LEAST_EXAMINED: Final = 12
_WORK: Final = 1600
"""Placed rewrites times the model's operators, between these limits."""
_FINALISTS: Final = 5
"""Rewrites whose tensors are placed with more effort."""
_MOST_POINTS: Final = 12
"""Most points on a frontier."""
_REFUSED: Final = frozenset({"NotProven", "PlanOverlap"})
"""Error kinds with which the prover refuses a file."""
_FIRST_EFFORT: Final = 16
"""Fraction of the effort that every rewrite gets at first."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A rewritten model."""

    data: bytes
    """The file; the given file if no rewrite needs fewer bytes."""
    is_rewritten: bool
    before: ArenaTotal
    """The given file's arena."""
    after: ArenaTotal
    """The rewritten file's arena."""
    regions: tuple[SplitRegion, ...]
    """Split operator runs, by position in the given model."""
    macs: float
    """Multiply-accumulates, as a multiple of the given model's."""
    operators: tuple[int, int]
    """Operators before and after."""
    moved: int
    """Bytes that the new operators move in a run; many are copied onto themselves."""
    bound: int
    """Lower bound for all rewrites in the family, in bytes, for the options."""
    tried: int
    """Regions that were examined."""
    latency: float
    """Expected run time, as a multiple of the given model's: see :data:`MOVE_COST`."""
    new_operators: tuple[str, ...]
    """Builtin operators that the firmware's resolver must additionally register."""
    floor: str
    """The largest live tensor in the step with the most live bytes."""
    head_bound: int
    """Lower bound in bytes for all placements of this rewrite's tensors."""
    reordered: bool = False
    """Whether the operators run in another order, in which regions and bound are stated."""
    unproven: int = 0
    """Smaller rewrites left out because the prover refuses them."""

    @property
    def total(self) -> int:
        """Arena bytes: the number for ``kTensorArenaSize``."""
        return self.after.total

    def fits(self, budget: int) -> bool:
        """Return whether the arena has at most ``budget`` bytes."""
        return self.total <= budget


def fit(
    source: Source,
    options: FitOptions | None = None,
    *,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
) -> Fit:
    """
    Rewrite a TFLite model so that TensorFlow Lite Micro needs a smaller arena.

    The rewritten model computes the same bits: convolutions, pooling and elementwise operators run
    strip by strip, with the same weights. Without a budget, the result is the smallest rewrite that
    was found. With a budget, the result is the fastest rewrite found to fit; if no rewrite fits,
    the smallest.

    Parameters
    ----------
    source : path or bytes
        The model.
    options : FitOptions, optional
        Budget and limits.
    time_limit : float, optional
        Seconds after which no further rewrites are examined; the result is the best so far.
    on_progress : callable, optional
        Called after each examined rewrite, as for :func:`arenaplan.plan`: ``peak`` is the smallest
        arena so far. Returning ``False`` ends the search like a time limit.

    Raises
    ------
    UnsupportedModel
        If a kernel is not known, a called subgraph has variables, an accelerator places the
        tensors, or the file has data behind the FlatBuffer.
    PlannerError
        If the file is not a model, or malformed.
    """
    data, _ = read_bytes(source)
    watch = Watch(on_progress, checked_seconds(time_limit))
    options, model = options or FitOptions(), parse(data)
    best = _Search(model, options, watch).result()
    if options.budget is not None and best.fits(options.budget):
        return best
    # The operator order is not part of this search: the best order has a separate search.
    order = better_order(model, shares=options.build.shares)
    if order is not None:
        other = _Search(reordered(model, order), options, watch).result()
        if other.is_rewritten:
            other = replace(other, before=best.before, reordered=True)
            best = _better(model, best, other, options)
    return _better(model, best, _exported(model, best, options), options)


def _exported(model: TfliteModel, best: Fit, options: FitOptions) -> Fit:
    """Return the unchanged model with only a plan, in the order that needs the fewest bytes."""
    ordered, planned = plan_in_best_order(model, build=options.build)
    if not planned.pinned or planned.unknown:
        return best
    is_reordered = ordered is not model
    count = len(model.subgraphs[0].operators)
    return replace(
        best,
        data=embed(ordered, planned.offsets, options.build),
        is_rewritten=True,
        after=planned.after,
        regions=(),
        macs=1.0,
        operators=(count, count),
        moved=0,
        bound=min(best.bound, planned.after.total),
        latency=1.0,
        new_operators=(),
        floor=_floor(ordered),
        head_bound=planned.lower_bound,
        reordered=is_reordered,
    )


def _better(model: TfliteModel, best: Fit, other: Fit, options: FitOptions) -> Fit:
    """Return another result if proven and smaller, and else the best result so far."""
    if other.total >= best.total:
        return best
    with _skipping_unproven():
        _prove(model.data, other.data, options)
        return replace(other, unproven=best.unproven + other.unproven)
    return replace(best, unproven=best.unproven + 1)


@contextmanager
def _skipping_unproven() -> Iterator[None]:
    """Leave a block where the prover refuses a rewrite."""
    try:
        yield
    except PlannerError as error:
        if error.kind not in _REFUSED:
            raise


def fits(
    source: Source,
    options: FitOptions | None = None,
    *,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
) -> list[Fit]:
    """
    Return rewrites not beaten by any other in bytes, work and operators.

    Parameters
    ----------
    source : path or bytes
        The model.
    options : FitOptions, optional
        Limits; the budget is not used.
    time_limit, on_progress
        As for :func:`fit`.

    Returns
    -------
    list of Fit
        From the fewest bytes to the most; the last entry is the unchanged model.
    """
    data, _ = read_bytes(source)
    watch = Watch(on_progress, checked_seconds(time_limit))
    return _Search(parse(data), options or FitOptions(), watch).all()


def rewritten(
    source: Source, regions: Sequence[SplitRegion], options: FitOptions | None = None
) -> Fit:
    """
    Rewrite a TFLite model with the given regions.

    Raises
    ------
    PlannerError
        As :func:`fit`.
    InternalError
        If a region cannot be split as described.
    """
    data, _ = read_bytes(source)
    search = _Search(parse(data), options or FitOptions())
    return search.finished(search.examined(tuple(regions), search.options.effort))


@dataclass(frozen=True, slots=True)
class _Examined:
    """A rewrite whose tensors were placed."""

    regions: tuple[SplitRegion, ...]
    patch: Patch
    offsets: tuple[int, ...]
    placed: Placed
    arena: ArenaTotal


_Way: TypeAlias = "tuple[tuple[SplitRegion, ...], int]"
"""Regions, and the effort with which their tensors are placed."""


class _Search:
    """A search."""

    def __init__(
        self,
        model: TfliteModel,
        options: FitOptions,
        watch: Watch | None = None,
        *,
        tells: bool = True,
    ) -> None:
        self.options, self._tells = options, tells
        self._watch = Watch(None) if watch is None else watch
        self._started = monotonic()
        self._done = 0
        self._smallest: int | None = None
        self._model = model
        self._placed: dict[_Way, tuple[Patch, TfliteModel, Placed]] = {}
        if any(tensor.is_variable for graph in model.subgraphs[1:] for tensor in graph.tensors):
            raise UnsupportedModel(
                "a called subgraph has variables, for which TensorFlow Lite Micro would take "
                "offsets of the main one"
            )
        self._program = program_of(model, shares=options.build.shares)
        self._before = total(model, read_offsets(model), build=options.build)
        if self._before.unknown:
            raise UnsupportedModel(
                f"nothing tells how much memory kernels of {listed(self._before.unknown)} ask for, "
                "so that no rewrite is known to need less"
            )
        self._costs = replace(_costs(model, self._program, options.build), overlap=options.overlap)

    def _tell(self, stage: str, size: int, bound: int) -> bool:
        """Report the search's progress; return whether the search is over."""
        self._done += 1
        self._smallest = size if self._smallest is None else min(self._smallest, size)
        tell = self._watch.tell
        if tell is not None and self._tells:
            tell(
                {
                    "stage": stage,
                    "seconds": monotonic() - self._started,
                    "peak": self._smallest,
                    "lower_bound": bound + self._before.tail,
                    "nodes": self._done,
                }
            )
        return self._watch.is_over

    def result(self) -> Fit:
        """Return the rewrite that the options ask for."""
        found = self._frontier()
        budget = self.options.budget
        if budget is not None:
            cheapest = self._within(found, budget)
            if cheapest is not None:
                with _skipping_unproven():
                    return self.finished(cheapest, found)
        finalists = self._finalists(found)
        # With another pointer size, runtime structures have other sizes, which changes the choice.
        twin = replace(self.options, pointer=96 - self.options.pointer)
        other = _Search(self._model, twin, self._watch, tells=False)
        other._placed = self._placed  # Places do not depend on pointers.
        finalists += other._finalists(other._frontier())
        finals: list[_Examined] = []
        for regions in dict.fromkeys(finalists):
            # Without time, tensors are placed all the same, with little effort.
            effort = self._first_effort if self._watch.is_over else self.options.effort
            finals.append(self.examined(regions, effort))
            if self._tell("final", finals[-1].arena.total, found.bound):
                break
        return self._first_proven(finals, found)

    @property
    def _first_effort(self) -> int:
        return max(1, self.options.effort // _FIRST_EFFORT)

    def _finalists(self, found: Frontier) -> list[tuple[SplitRegion, ...]]:
        """Return the rewrites that need the fewest bytes with tensors placed quickly."""
        sketches: list[tuple[int, int, RegionChoice]] = []
        for choice in islice(filter(self._is_fast, found.choices), self._most()):
            best = min((sketch[0] for sketch in sketches), default=None)
            if best is None or self._bytes(choice) < best:
                size = self.examined(choice.regions, self._first_effort).arena.total
                sketches.append((size, choice.work, choice))
                if self._tell("sketch", size, found.bound):
                    break
        sketches.sort(key=lambda sketch: sketch[:2])
        return [choice.regions for _, _, choice in sketches[:_FINALISTS]]

    def _first_proven(self, finals: Sequence[_Examined], found: Frontier) -> Fit:
        """Return the smallest proven rewrite, or else the model itself."""
        for refused, trial in enumerate(sorted(finals, key=lambda trial: trial.arena.total)):
            with _skipping_unproven():
                return replace(self.finished(trial, found), unproven=refused)
        own = self.examined((), self.options.effort)
        as_it_is = replace(own, arena=self._before)
        return replace(self.finished(as_it_is, found), unproven=len(finals))

    def _within(self, found: Frontier, budget: int) -> _Examined | None:
        """Return the fastest rewrite found that fits a budget."""
        hopeful = [choice for choice in found.choices if self._bytes(choice) <= budget]
        hopeful.sort(key=lambda c: (c.work, c.operators, c.bytes))
        step = max(1, len(hopeful) // self._most())
        quick = {
            choice: self._latency(patch_of(self._program, choice.regions))
            for choice in hopeful[::step]
        }
        slowest = self.options.max_slowdown
        for choice in sorted(quick, key=lambda c: quick[c]):
            if slowest is not None and quick[choice] > slowest:
                break
            size = self.examined(choice.regions, self.options.effort // 2).arena.total
            is_over = self._tell("sketch", size, found.bound)
            if size <= budget + UNIT:
                trial = self.examined(choice.regions, self.options.effort)
                if trial.arena.total <= budget:
                    return trial
            if is_over:
                break
        return None

    def all(self) -> list[Fit]:
        """Return all rewrites that are worth something."""
        found = self._frontier()
        kept: list[RegionChoice] = []
        for choice in sorted(found.choices, key=lambda c: (c.bytes, c.work, c.operators)):
            if not self._is_fast(choice):
                continue
            if all(choice.work < k.work or choice.operators < k.operators for k in kept):
                kept.append(choice)
        step = max(1, len(kept) // _MOST_POINTS)
        results: list[Fit] = []
        for choice in [*kept[:-1:step], *kept[-1:]]:
            results.append(self.finished(self.examined(choice.regions, self.options.effort), found))
            if self._tell("point", results[-1].total, found.bound):
                break
        results.sort(key=lambda r: (r.total, r.macs, r.operators[1]))
        front: list[Fit] = []
        for result in results:
            if all(result.macs < f.macs or result.operators[1] < f.operators[1] for f in front):
                front.append(result)
        return front

    def _most(self) -> int:
        """Return the number of rewrites to examine; fewer for large models, which take longer."""
        return max(_LEAST_EXAMINED, min(_MOST_EXAMINED, _WORK // len(self._program.operators)))

    def _frontier(self) -> Frontier:
        """Return the choices within the limits."""
        most = int(self._program.work * (self.options.max_macs - 1))
        found = frontier(self._program, self._costs, most)
        limit = self.options.max_operators
        if limit is None:
            return found
        room = limit - len(self._program.operators)
        choices = tuple(c for c in found.choices if c.operators <= room or not c.regions)
        return Frontier(choices, found.bound, found.tried)

    def _bytes(self, choice: RegionChoice) -> int:
        """Return the arena bytes for a choice whose tensors leave no gap."""
        return choice.bytes + self._before.tail

    def examined(self, regions: tuple[SplitRegion, ...], effort: int) -> _Examined:
        """Write a rewrite, place its tensors, and count the file's arena."""
        options = self.options
        if (regions, effort) not in self._placed:
            patch = patch_of(self._program, regions)
            model = patched(self._model, patch)
            layout = layout_of(model, shares=options.build.shares, overlap=options.overlap)
            self._placed[regions, effort] = patch, model, place(layout, tries=effort)
        patch, model, placed = self._placed[regions, effort]
        others = (ONLINE for graph in model.subgraphs[1:] for _ in graph.tensors)
        offsets = (*placed.offsets, *others)
        arena = total(model, offsets, build=options.build)
        return _Examined(regions, patch, offsets, placed, arena)

    def finished(self, best: _Examined, found: Frontier | None = None) -> Fit:
        """Return the result: the given file if the rewrite does not need fewer bytes."""
        old = self._model
        is_rewritten = best.arena.total < self._before.total
        new, after = old, self._before
        if is_rewritten:
            content = packed_offsets(best.offsets, len(old.subgraphs))
            new, after = patched(old, best.patch, {METADATA_NAME: content}), best.arena
            _prove(old.data, new.data, self.options)
        names = [o.name for o in old.subgraphs[0].operators]
        fresh = [o.name for o in new.subgraphs[0].operators if o.name not in names]
        return Fit(
            data=new.data,
            is_rewritten=is_rewritten,
            before=self._before,
            after=after,
            regions=best.regions if is_rewritten else (),
            macs=self._macs(best.patch) if is_rewritten else 1.0,
            operators=(len(names), len(new.subgraphs[0].operators)),
            moved=_moved(self._program, best.patch) if is_rewritten else 0,
            latency=self._latency(best.patch) if is_rewritten else 1.0,
            bound=min(found.bound + self._before.tail, after.total) if found else 0,
            tried=found.tried if found else 0,
            new_operators=tuple(dict.fromkeys(fresh)),
            floor=_floor(new),
            head_bound=best.placed.bound,
        )

    def _is_fast(self, choice: RegionChoice) -> bool:
        """Return whether a choice's expected time is within the limit; the model's own time is."""
        most = self.options.max_slowdown
        if most is None or not choice.regions:
            return True
        return self._latency(patch_of(self._program, choice.regions)) <= most

    def _latency(self, patch: Patch) -> float:
        """Return the expected run time, as a multiple of the model's."""
        whole = self._program.time
        extra = MOVE_COST * _moved(self._program, patch)
        return (self._sums(patch)[1] + extra) / whole if whole else 1.0

    def _macs(self, patch: Patch) -> float:
        """Return a patch's work as a multiple of the model's."""
        return self._sums(patch)[0] / self._program.work if self._program.work else 1.0

    def _sums(self, patch: Patch) -> tuple[int, float]:
        """Return the work and expected time of a patch's operators, without movers."""
        work, time = 0, 0.0
        for step in patch.steps:
            if isinstance(step, Moved):
                continue
            operator = self._program.operators[step.operator]
            number = operator.outputs[0] if operator.outputs else None
            share = 1.0
            outputs = getattr(step, "outputs", None)
            if outputs is not None and number is not None:
                new = patch.new(outputs[0]) if patch.is_new(outputs[0]) else None
                if new is not None:
                    share = new.shape[1] / self._program.tensors[number].shape[1]
            work += round(operator.work * share)
            time += operator.time * share
        return work, time


def _prove(old: bytes, new: bytes, options: FitOptions) -> None:
    """Refuse a file that does not compute the same bits, or whose plan loses bytes."""
    plan = proven_plan(old, new)
    allowed = {"any": True, "known": options.build.shares, "reference": options.overlap}
    if plan is None or not allowed[plan.kernels]:
        raise InternalError("the rewritten file does not have the plan that was made for it")


def _costs(model: TfliteModel, program: OperatorProgram, build: Build) -> TailCosts:
    """Return the memory the runtime keeps for operators, measured on a small model rewrite."""
    node = struct_of(NODE, build.pointer).size
    movers = ("SLICE", "PAD", "CONCATENATION")
    kept: dict[str, int] = {}
    for position in range(len(program.operators)):
        scope = scope_of(program, position, position)
        rows = 0 if scope is None else program.tensors[scope.result].shape[1]
        if rows < 2:
            continue
        region = SplitRegion(position, position, even_cuts(rows, 2), frozenset({position}))
        try:
            written = patched(model, patch_of(program, [region]))
        except PlannerError:
            continue
        for cost in total(written, build=build).operators:
            if cost.name in movers:
                kept[cost.name] = cost.persistent
        if len(kept) == len(movers):
            break
    operators = total(model, build=build).operators
    return TailCosts(
        operators=tuple(cost.persistent + node for cost in operators if cost.subgraph == 0),
        slice=kept.get("SLICE", 0) + node,
        pad=kept.get("PAD", 0) + node,
        concat=kept.get("CONCATENATION", 0) + node,
        tensor=struct_of(EVAL_TENSOR, build.pointer).size,
    )


def _moved(program: OperatorProgram, patch: Patch) -> int:
    """Return the bytes written by a patch's movers."""
    count = 0
    for step in patch.steps:
        if isinstance(step, Moved):
            new = patch.new(step.output) if patch.is_new(step.output) else None
            if isinstance(new, NewTensor):
                count += prod(new.shape) * program.tensors[new.like].item
            elif new is None:
                count += program.tensors[step.output].size
    return count


def _floor(model: TfliteModel) -> str:
    """Return the name of the largest live tensor in the step with the most live bytes."""
    layout = layout_of(model)
    groups = groups_of(layout)
    live = live_bytes(groups, len(layout.uses))
    peak = live.index(max(live, default=0)) if live else 0
    sizes = {
        tensor: sum(s.stop - s.start for s in group.spans if s.first <= peak <= s.last)
        for group in groups
        for tensor in [max(group.members, key=lambda t: layout.boxes[t])]
    }
    if not sizes:
        return ""
    largest = max(sizes, key=lambda tensor: (sizes[tensor], -tensor))
    return model.subgraphs[0].tensors[largest].name
