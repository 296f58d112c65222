"""
Plans inside TFLite models, for TensorFlow Lite Micro.

The runtime takes offsets from a metadata entry without checks, so everything is checked here:
tensors needed at the same time, by the runtime's own clock
(:mod:`~arenaplan.tflite.reader.timeline`), do not overlap, and the written file still says
everything the old file said.

A plan fixes only tensors. The runtime places kernel scratch memory around the tensors, so a plan's
bytes are found by replaying the runtime's planner on the plan.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from arenaplan._core import Plan
from arenaplan.base.errors import (
    InternalError,
    PlannerError,
    PlanOverlap,
    UnsupportedModel,
    fault,
)
from arenaplan.base.quoting import quoted
from arenaplan.deploy.export.operator_order import better_order, reordered
from arenaplan.deploy.export.rewritten_file import with_metadata
from arenaplan.planner.planning import plan
from arenaplan.tflite.reader.offline import METADATA_NAME, packed_offsets, read_offsets
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse
from arenaplan.tflite.reader.tflite_tensors import unique_names
from arenaplan.tflite.reader.timeline import (
    ALIGNMENT,
    Box,
    Timeline,
    graph_of_timeline,
    timeline_of,
)
from arenaplan.tflite.runtime.aliases import aliased_timeline
from arenaplan.tflite.runtime.arena import (
    ArenaTotal,
    operator_costs,
    total,
    with_scratch,
)
from arenaplan.tflite.runtime.build import REFERENCE, Build
from arenaplan.tflite.runtime.greedy import ONLINE

_MAX_OFFSET: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TflmPlan:
    """A plan for TensorFlow Lite Micro."""

    offsets: tuple[int, ...]
    """Offset of every tensor in every subgraph, in bytes; -1 where the runtime decides."""
    before: ArenaTotal
    """The arena if the runtime's own planner decides."""
    after: ArenaTotal
    """The arena with this plan."""
    head_fixed: int
    """
    Bytes for tensors and scratch memory with :attr:`offsets_of_boxes`, whether or not the plan
    decides.
    """
    lower_bound: int
    """Lower bound for tensor and scratch bytes with this order."""
    status: str
    """Status of ``head_after``: ``"optimal"`` or ``"feasible"``."""
    pinned: bool
    """Whether the plan decides; otherwise the runtime's own planner does as well."""
    offsets_of_boxes: tuple[int, ...]
    """Offset of every tensor that needs memory, always decided."""
    build: Build = REFERENCE
    """The runtime build for the figures."""
    is_kept: bool = False
    """Whether the plan is the file's own plan, because no better plan was found."""

    @property
    def head_before(self) -> int:
        """Bytes that the runtime's planner needs for tensors and scratch memory."""
        return self.before.head

    @property
    def head_after(self) -> int:
        """Bytes that the runtime needs for tensors and scratch memory with this plan."""
        return self.after.head

    @property
    def unknown(self) -> tuple[str, ...]:
        """Operators whose kernels are not known, and may ask for scratch memory."""
        return self.before.unknown

    @property
    def scratch(self) -> tuple[str, ...]:
        """Operators whose kernels ask for scratch memory, or may ask."""
        asking = [o.name for o in self.before.operators if o.scratch or not o.is_known]
        return tuple(dict.fromkeys(asking))

    @property
    def already_optimal(self) -> bool:
        """True if the runtime's own planner reaches the lower bound."""
        return self.head_before == self.lower_bound


def plan_tflm(model: TfliteModel, *, always: bool = False, build: Build = REFERENCE) -> TflmPlan:
    """
    Plan a model for TensorFlow Lite Micro.

    Parameters
    ----------
    model : TfliteModel
        From :func:`~arenaplan.tflite.reader.tflite_model.parse`.
    always : bool, default False
        Whether to decide offsets even if the runtime's own planner needs no more bytes, or a kernel
        is not known. Otherwise the runtime's planner decides, which places scratch memory together
        with the tensors and can need fewer bytes than fixed offsets.
    build : Build, optional
        The runtime's build.

    Returns
    -------
    TflmPlan
        Neither the head nor the whole arena is larger than with the runtime's own planner, unless
        ``always`` is set.
    """
    timeline = aliased_timeline(model, build)
    _refuse_accelerators(timeline)
    boxes = with_scratch(timeline, operator_costs(model, build))
    before = total(model, build=build)
    best = _planned(timeline, build, boxes)
    found = [_per_tensor(timeline, best)]
    arenas = [total(model, found[0], build=build)]
    if arenas[0].head > best.arena_bytes and len(boxes) > len(timeline.boxes):
        # First fit found no room for some scratch memory; tensors packed alone may leave more.
        found.append(_per_tensor(timeline, _planned(timeline, build)))
    arenas += [total(model, each, build=build) for each in found[1:]]
    if build.shares and min(arena.head for arena in arenas) > best.lower_bound:
        # The search is not complete: shared bytes hold boxes together, which can block a packing.
        found.append(_per_tensor(timeline, _planned(timeline_of(model), build, boxes)))
    own = plan_inside(model, build)
    if own is not None:
        found.append(list(own))
    arenas += [total(model, each, build=build) for each in found[len(arenas) :]]
    # On a tie, the first wins: an existing plan is kept only if that plan needs fewer bytes.
    after, fixed = min(zip(arenas, found, strict=True), key=lambda pair: pair[0].head)
    is_kept = own is not None and fixed is found[-1]
    bound = best.lower_bound
    if is_kept and after.head < bound:
        # Tensor parts die early in such a plan; only a single whole tensor is certain.
        bound = max((box.size for box in boxes), default=0)
    is_better = after.head < before.head and _saves(model, model, fixed, build)
    pinned = always or (is_better and not before.unknown)
    if after.head > _MAX_OFFSET:
        raise fault(
            "SizeOverflow",
            f"the runtime's offsets have 31 bits; the arena needs {after.head} bytes",
        )
    every = fixed if pinned else [ONLINE] * timeline.tensors
    if not is_kept:
        check_offsets(timeline, every)
    _check_variables(timeline, every)
    chosen = after if pinned else before
    is_optimal = chosen.head == bound and not before.unknown
    return TflmPlan(
        offsets=tuple(every),
        before=before,
        after=chosen,
        head_fixed=after.head,
        lower_bound=bound,
        status="optimal" if is_optimal else "feasible",
        pinned=pinned,
        offsets_of_boxes=tuple(fixed[box.tensor] for box in timeline.boxes),
        build=build,
        is_kept=is_kept and pinned,
    )


def plan_inside(model: TfliteModel, build: Build = REFERENCE) -> tuple[int, ...] | None:
    """
    Return the offsets in a file, if the runtime can obey them without corrupting a run.

    Slices inside sources and strips inside results, as placed by ``arenaplan fit``, are replayed
    byte by byte.
    """
    offsets = _own_offsets(model)
    if offsets is None:
        return None
    try:
        _check_variables(timeline_of(model), offsets)
        check_plan(model, offsets, build, is_own=True)
    except PlannerError:
        return None
    return offsets


def _own_offsets(model: TfliteModel) -> tuple[int, ...] | None:
    """Return the plan in a file, or ``None`` without a readable plan."""
    try:
        return read_offsets(model)
    except PlannerError:
        return None


def check_plan(
    model: TfliteModel, offsets: Sequence[int], build: Build, *, is_own: bool = False
) -> None:
    """
    Raise unless the runtime can obey ``offsets`` without corrupting a run.

    Offsets with which tensor parts share bytes are replayed byte by byte.

    Parameters
    ----------
    model : TfliteModel
        The model.
    offsets : sequence of int
        Offset by tensor; -1 where the runtime decides.
    build : Build
        The runtime's build.
    is_own : bool, default False
        Whether the model's author has chosen the plan, for kernels that share bytes.

    Raises
    ------
    PlanError, PlanOverlap
        As :func:`check_offsets`.
    """
    try:
        check_offsets(aliased_timeline(model, build), offsets)
    except PlanOverlap as overlap:
        from arenaplan.tflite.proving import replay_plan  # Few models need the import.

        try:
            kernels = replay_plan(model.data, offsets).kernels
        except PlannerError:
            raise overlap from None
        is_known = kernels == "known" or build.kernels == "reference"
        if kernels != "any" and not ((is_own or build.shares) and is_known):
            raise


def _planned(timeline: Timeline, build: Build, boxes: Sequence[Box] | None = None) -> Plan:
    """Return the box plan for a build."""
    graph = graph_of_timeline(timeline, boxes=boxes)
    graph.target = build.target
    return plan(graph)


def _saves(old: TfliteModel, new: TfliteModel, offsets: Sequence[int], build: Build) -> bool:
    """
    Return whether ``new`` with offsets needs a smaller whole arena than ``old`` without.

    Where the runtime's start needs more than the tensors do, no plan helps. The Python package's
    figures stand for firmware, too, whose structures are smaller.
    """
    builds = [build, replace(build, pointer=32)] if build.is_package else [build]
    return any(
        total(new, offsets, build=each).total < total(old, build=each).total for each in builds
    )


def _per_tensor(timeline: Timeline, best: Plan) -> list[int]:
    """Return every tensor's offset in a plan for the graph from :func:`graph_of_timeline`."""
    every = [ONLINE] * timeline.tensors
    for box, place in zip(timeline.boxes, best.placements, strict=False):
        if place is not None:
            every[box.tensor] = place.offset
    return every


def _refuse_accelerators(timeline: Timeline) -> None:
    """Refuse models whose memory is already settled by an accelerator's compiler."""
    for area in timeline.areas:
        raise UnsupportedModel(
            f"tensor {quoted(timeline.boxes[area].name)} is read and nothing writes it: it is "
            "memory of an accelerator, whose compiler has decided the offsets, and no other plan "
            "may replace them"
        )


def plan_in_best_order(
    model: TfliteModel, *, always: bool = False, build: Build = REFERENCE
) -> tuple[TfliteModel, TflmPlan]:
    """
    Plan a model for TensorFlow Lite Micro, in another operator order if that helps.

    Returns
    -------
    Model
        The model, in the plan's order.
    TflmPlan
        The plan; ``before`` is the arena of the runtime's own planner in the original order.
    """
    given = plan_tflm(model, always=always, build=build)
    order = None if given.unknown and not always else better_order(model, shares=build.shares)
    if order is None:
        return model, given
    other = reordered(model, order)
    if build.profile is not None:
        build = replace(build, profile=build.profile.reordered(order))
    best = plan_tflm(other, always=True, build=build)
    is_worth = always or _saves(model, other, best.offsets, build)
    if best.head_after >= given.head_after or not is_worth:
        return model, given
    return other, replace(best, before=given.before)


def obey(model: TfliteModel, given: Plan, build: Build = REFERENCE) -> TflmPlan:
    """
    Return ``given``, a plan of the model's graph, in the runtime's terms.

    Raises
    ------
    PlanOverlap
        If the plan shares bytes in a way not allowed by the runtime's kernels; plan with the target
        of ``build``.
    PlanError
        If an offset is not a multiple of 16.
    PlanError
        If a tensor has no place in the plan.
    """
    timeline = aliased_timeline(model, build)
    _refuse_accelerators(timeline)
    if len(given.spaces) > 1:
        raise UnsupportedModel("the runtime has one arena for tensors, and the plan has several")
    if given.caller_buffers:
        raise UnsupportedModel("the runtime has every tensor in its arena, the plan has not")
    if len(model.subgraphs) > 1:
        raise UnsupportedModel("a plan file is of one graph, and the model has several subgraphs")
    names = unique_names(model.subgraphs[0])
    places = dict(_named_places(given))
    every = [ONLINE] * timeline.tensors
    for box in timeline.boxes:
        if names[box.tensor] not in places:
            raise fault("PlanMismatch", f"the plan has no place for tensor {quoted(box.name)}")
        every[box.tensor] = places[names[box.tensor]]
    check_offsets(timeline, every)
    boxes = with_scratch(timeline, operator_costs(model, build))
    bound = _planned(timeline, build, boxes).lower_bound
    before, after = total(model, build=build), total(model, every, build=build)
    return TflmPlan(
        offsets=tuple(every),
        before=before,
        after=after,
        head_fixed=after.head,
        lower_bound=bound,
        status="optimal" if after.head == bound and not before.unknown else "feasible",
        pinned=True,
        offsets_of_boxes=tuple(every[box.tensor] for box in timeline.boxes),
        build=build,
    )


def embed(model: TfliteModel, offsets: Sequence[int], build: Build = REFERENCE) -> bytes:
    """
    Return the model file with offsets for a build, read again and compared.

    Raises
    ------
    PlanOverlap, PlanError
        If the offsets would corrupt a run.
    UnsupportedModel
        If the file cannot be changed safely.
    """
    is_own = tuple(offsets) == _own_offsets(model)
    check_plan(model, offsets, build, is_own=is_own)
    timeline = timeline_of(model)
    _check_variables(timeline, offsets)
    content = packed_offsets(offsets, len(model.subgraphs))
    data = with_metadata(model, METADATA_NAME, content)
    written = parse(data)
    if not _says_the_same(model, written) or read_offsets(written) != tuple(offsets):
        raise InternalError("the file with the plan does not say what the model said")
    check_plan(written, offsets, build, is_own=is_own)
    return data


def check_offsets(timeline: Timeline, offsets: Sequence[int]) -> None:
    """
    Raise unless the runtime can obey ``offsets`` without corrupting a run.

    Raises
    ------
    PlanError
        If the number of offsets differs from the number of tensors, or a tensor without memory has
        an offset.
    PlanError
        If an offset is negative, or not a multiple of 16.
    PlanOverlap
        If tensors that are needed at the same time share bytes.
    """
    if len(offsets) != timeline.tensors:
        raise fault(
            "PlanMismatch", f"there are {len(offsets)} offsets for {timeline.tensors} tensors"
        )
    planned = {box.tensor: position for position, box in enumerate(timeline.boxes)}
    for tensor, offset in enumerate(offsets):
        if offset == ONLINE:
            continue
        if tensor not in planned:
            raise fault(
                "PlanMismatch", f"tensor {tensor} has an offset, but no memory in the arena"
            )
        name = quoted(timeline.boxes[planned[tensor]].name)
        if offset < 0 or offset + timeline.boxes[planned[tensor]].size > _MAX_OFFSET:
            raise fault("PlanOutOfBounds", f"tensor {name} is at {offset}")
        if offset % ALIGNMENT:
            raise fault(
                "PlanMisaligned", f"tensor {name} is at {offset}, no multiple of {ALIGNMENT}"
            )
    _check_overlaps(timeline, offsets)


def _check_overlaps(timeline: Timeline, offsets: Sequence[int]) -> None:
    """Sweep over the steps and refuse two boxes that are live together and overlap."""
    contents, areas = _contents(timeline), bool(timeline.areas)
    over = {(pair.source, pair.result) for pair in timeline.in_place}
    pinned = [p for p, box in enumerate(timeline.boxes) if offsets[box.tensor] != ONLINE]
    # By offset: every box that overlaps the current box begins below the current box's end.
    pinned.sort(key=lambda position: offsets[timeline.boxes[position].tensor])
    for rank, first in enumerate(pinned):
        a = timeline.boxes[first]
        low = offsets[a.tensor]
        for second in pinned[rank + 1 :]:
            b = timeline.boxes[second]
            distance = offsets[b.tensor] - low
            if distance >= a.size:
                break
            if a.start >= b.end or b.start >= a.end:
                continue
            count = min(a.size - distance, b.size)
            parts = contents[first].part(distance, count), contents[second].part(0, count)
            if parts[0] == parts[1]:
                continue
            if distance == 0 and ((first, second) in over or (second, first) in over):
                continue
            if areas and _is_inside(timeline, first, second):
                continue
            raise PlanOverlap(
                f"tensors {quoted(a.name)} and {quoted(b.name)} are both needed in step "
                f"{max(a.start, b.start)} and share byte {offsets[b.tensor]}"
            )


def _is_inside(timeline: Timeline, first: int, second: int) -> bool:
    """Return whether two boxes overlap inside an accelerator, which orders reads and writes."""
    areas = timeline.areas
    if second in areas.get(first, ()) or first in areas.get(second, ()):
        return True
    a, b = timeline.boxes[first], timeline.boxes[second]
    # An operand that ends, and a result that begins, in the accelerator's step.
    return min(a.end, b.end) - max(a.start, b.start) == 1 and any(
        first in inside and second in inside for inside in areas.values()
    )


class _Piece(NamedTuple):
    """Bytes in a box, with their origin."""

    start: int
    stop: int
    origin: int
    """The box in which the bytes were made."""
    first: int
    """Position of the first byte in the origin box."""


@dataclass(frozen=True, slots=True)
class _Content:
    """The origin of every byte in a box."""

    pieces: tuple[_Piece, ...]
    """Without gaps, in order; neighbors do not continue each other."""

    def part(self, start: int, size: int) -> tuple[_Piece, ...]:
        """Return a byte range, counted from the beginning."""
        found = []
        for piece in self.pieces:
            low, high = max(piece.start, start), min(piece.stop, start + size)
            if low < high:
                first = piece.first + low - piece.start
                found.append(_Piece(low - start, high - start, piece.origin, first))
        return tuple(found)

    def replaced(self, start: int, pieces: Sequence[_Piece]) -> _Content:
        """Return the content with other pieces from ``start`` on."""
        size, end = pieces[-1].stop, self.pieces[-1].stop
        moved = [
            piece._replace(start=start + piece.start, stop=start + piece.stop) for piece in pieces
        ]
        behind = [
            piece._replace(start=start + size + piece.start, stop=start + size + piece.stop)
            for piece in self.part(start + size, end - start - size)
        ]
        joined: list[_Piece] = []
        for piece in (*self.part(0, start), *moved, *behind):
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.origin == piece.origin
                and last.first + last.stop - last.start == piece.first
            ):
                joined[-1] = last._replace(stop=piece.stop)
            else:
                joined.append(piece)
        return _Content(tuple(joined))


def _contents(timeline: Timeline) -> list[_Content]:
    """Return every box's content: bytes with equal origin are equal."""
    boxes = timeline.boxes
    found = [_Content((_Piece(0, box.size, index, 0),)) for index, box in enumerate(boxes)]
    # In step order: the source has its content when a result shows it.
    for pair in sorted(timeline.same):
        source, result = found[pair.source], found[pair.result]
        if pair.is_joined:
            size = boxes[pair.source].size
            found[pair.result] = result.replaced(pair.distance, source.part(0, size))
        else:
            size = boxes[pair.result].size
            found[pair.result] = _Content(source.part(pair.distance, size))
    return found


def _check_variables(timeline: Timeline, offsets: Sequence[int]) -> None:
    """Refuse a model in which the runtime leaves a variable without memory."""
    # The runtime looks up a later subgraph's variable as if it belonged to the first subgraph.
    for subgraph, index in timeline.variables:
        if offsets[index] != ONLINE:
            raise UnsupportedModel(
                f"TensorFlow Lite Micro would mistake variable {index} of subgraph {subgraph} for "
                "a planned tensor of the first; such models cannot bring a plan"
            )


def _named_places(given: Plan) -> list[tuple[str, int]]:
    """Return a plan's value names, with offsets."""
    return [
        (value["name"], value["offset"])
        for value in json.loads(given.to_json())["values"]
        if value.get("offset") is not None
    ]


def _says_the_same(old: TfliteModel, new: TfliteModel) -> bool:
    """Return whether two files differ in the plan only."""
    others = [
        [(e.name, m.content(e.buffer)) for e in m.metadata if e.name != METADATA_NAME]
        for m in (old, new)
    ]
    plans = {entry.buffer for entry in new.metadata if entry.name == METADATA_NAME}
    data = all(
        old.content(index) == new.content(index)
        for index in range(len(old.buffers))
        if index not in plans
    )
    return (
        data
        and others[0] == others[1]
        and (old.description, old.subgraphs, old.signatures)
        == (new.description, new.subgraphs, new.signatures)
    )
