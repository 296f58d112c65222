"""From a graph to a checked plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias, Unpack

from arenaplan import _core
from arenaplan._core import Paging, Plan, RecomputeCurve, SharedPlan, Strips, Target
from arenaplan.base.errors import CapacityExceeded, InvalidOption, RecomputeExceeded
from arenaplan.base.progress import Progress, Watch, checked_seconds
from arenaplan.graph import Graph
from arenaplan.graph.backend import backend_of
from arenaplan.planner.plan_options import (
    PlanKeywords,
    PlanOptions,
    checked_alignment,
    core_options,
    memory_rows,
    resolve,
    slowdown_of,
    target_of,
    whole_number,
)
from arenaplan.planner.spaces import Space, homes_of, parse_size, parse_spaces
from arenaplan.planner.tradeoff import Maker, Point, chosen

_ANY_SLOWDOWN = 10**9
"""Thousandths of the shortest timetable that no timetable takes."""

Together: TypeAlias = Literal["never-together", "concurrent"]


def plan(
    graph: Graph,
    options: PlanOptions | None = None,
    *,
    steps: Sequence[Sequence[int]] | None = None,
    strips: Sequence[Strips] = (),
    costs: Sequence[int] | None = None,
    recompute: str | int | None = None,
    page_to: str | Space | None = None,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> Plan:
    """
    Decide where every value of ``graph`` lives in one arena, or one per memory.

    Parameters
    ----------
    graph : Graph
        The model: from :func:`load`, or built by hand.
    options : PlanOptions, optional
        Options of the plan.
    steps : sequence of sequence of int, optional
        Steps to run, in order: per step the indices of the nodes that run as one, usually one.
        Values inside of a step get no memory.
    strips : sequence of Strips
        How steps of ``steps`` run strip by strip, for those that do.
    costs : sequence of int, optional
        Time of each node, in any unit, for the timetable of several ``workers``. By default a node
        takes as long as it touches bytes.
    recompute : str or int, optional
        Lets nodes that are pure run again. Bytes of the arena, such as ``"512MiB"``: the least
        extra work within them. A part of the work, such as ``"5%"``: the fewest bytes at so much
        extra work. ``"sqrt-n"`` or ``"mxnet-mirror"``: what the strategy of this name repeats.
        Bytes include scratch memory if the plan has it. The steps then run one node each, and
        :attr:`Plan.schedule`, :attr:`Plan.extra_cost` and :attr:`Plan.extra_bound` tell about the
        extra work.
    page_to : str or Space, optional
        With ``recompute``: a slow memory such as ``"host=64GiB@480"`` that values may be copied to
        and back from, wherever that costs less than running their nodes again. Copying a byte in
        one direction costs the units of the nodes' costs behind ``@``. The bytes of
        ``recompute`` are those of the other spaces. :attr:`Plan.schedule` has the copies, too.
    time_limit : float, optional
        Seconds after which the best plan so far is returned; techniques for which no time was
        left are in ``search.skipped`` of the plan file. Without a limit, equal graphs and
        options give equal plans.
    on_progress : callable, optional
        Called with dictionaries of ``stage`` (``"fusion"``, ``"order"``, then those of the
        packer; ``"start"`` before any), ``seconds``, ``peak`` (``None`` before there is one),
        ``lower_bound`` and ``nodes``: at each progress, and about 20 times a second in between. If
        it returns ``False``, the best plan so far is returned.
    **overrides
        Single options by name, such as ``target="tflm"``: the fields of :class:`PlanOptions`.

    Returns
    -------
    Plan
        The plan, checked. ``arena_bytes`` is its size; ``lower_bound``, ``gap`` and
        ``status`` are the proofs about that size for the plan's target.

    Raises
    ------
    CapacityExceeded
        If the arena does not fit ``budget``; the exception's ``plan`` is the best found.
    SpacesExceeded
        If the values do not fit ``spaces``; the exception says which ones, and at which step.
    RecomputeExceeded
        If no schedule was found in the bytes of ``recompute``; the message has the fewest that were
        found, and those that none goes below.
    InvalidAlignment, InvalidOption, SizeOverflow, GraphError
        If options contradict each other, the graph or the target.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (1000,))
    >>> (y,) = graph.node("Conv", [x], [("y", (1000,), "float32")])
    >>> (z,) = graph.node("Relu", [y], [("z", (1000,), "float32")], in_place=[(0, 0)])
    >>> graph.output(z)
    >>> ap.plan(graph)
    Plan('', 8064 bytes, optimal)
    >>> ap.plan(graph, outputs="caller")  # y is where z is going to be
    Plan('', 4032 bytes, optimal)
    >>> timed = ap.plan(graph, workers=2, costs=[30, 10])
    >>> timed.timetable.starts, timed.timetable.span
    ([0, 30], 40)
    """
    options = resolve(options, overrides)
    target = target_of(options, graph.target)
    if options.budget is not None and target.runtime == "tflm":
        raise InvalidOption(
            "option budget: for target tflm the whole arena counts, which a graph does not tell; "
            "pass the model file to arenaplan.gate, or use 'arenaplan plan MODEL --budget'"
        )
    graph = graph.for_target(target.name)
    arguments = core_options(options, target)
    given_costs = None
    if costs is not None:
        if options.workers == 1:
            raise InvalidOption("option costs: a plan for one worker has no times")
        given_costs = [whole_number(cost, "costs") for cost in costs]
        if not all(0 <= cost < 1 << 64 for cost in given_costs):
            raise InvalidOption("option costs: a time is no number of 64 bits")
    slowdown = slowdown_of(options)
    if options.workers > 1:
        arguments["max_slowdown"] = _ANY_SLOWDOWN if slowdown == inf else round(slowdown * 1000)
    memories = _memories(graph, options, target)
    if memories.rows is not None:
        arguments["alignment"] = min(row[2] for row in memories.rows)
    wanted = None if steps is None else [list(step) for step in steps]
    backend = None if options.workspace == "none" else backend_of(target.name)
    if backend is not None:
        graph.require_weights(target.name)
    watch = Watch(on_progress, checked_seconds(time_limit))
    if recompute is not None:
        goal = goal_of(recompute)
        if memories.rows is not None or wanted is not None or options.workers != 1:
            raise InvalidOption(
                "option recompute: steps, spaces and workers are not chosen together with it"
            )
        paging = paging_of(page_to)

        def scheduled(goal: Goal, paging: Paging | None = paging) -> Plan:
            return _core.recompute(
                graph.core,
                {**arguments, "workspace": "none"},
                (goal.kind, goal.number),
                goal.name,
                on_progress=watch.tell,
                time_limit=watch.seconds_left,
                paging=paging,
            )

        if backend is None:
            return scheduled(goal)

        def with_scratch(goal: Goal, paging: Paging | None) -> Plan:
            found = scheduled(goal, paging)
            if found.schedule is None:
                seconds = watch.seconds_left
                return plan(graph, options, time_limit=seconds, on_progress=on_progress)
            executions = graph.for_plan(found).core_for("auto", found.steps, (), target.name)
            return _core.recompute_with_scratch(
                graph.core, executions, arguments, found, time_limit=watch.seconds_left
            )

        slow = (None,) if paging is None else (None, paging)
        return _better(goal, [partial(with_scratch, paging=it) for it in slow])
    if page_to is not None:
        raise InvalidOption("option page_to: it needs a goal, which is the option recompute")
    if backend is None:

        def made() -> Plan:
            return _core.plan(
                graph.core,
                arguments,
                wanted,
                *memories,
                on_progress=watch.tell,
                time_limit=watch.seconds_left,
                strips=strips,
                costs=given_costs,
            )

        result = made()
        if watch.was_ended:
            # A search that is ended in a packing has not even placed everything once.
            result = min(result, made(), key=lambda plan: plan.arena_bytes)
    else:
        is_timed = memories.rows is None and wanted is None and options.workers == 1
        if is_timed and slowdown < inf:
            arguments["max_slowdown"] = round(slowdown * 1000)
        maker = Maker(graph, arguments, target.techniques, memories, backend, watch, given_costs)
        result = chosen(maker, slowdown, wanted, strips).plan
    try:
        result.fits()
    except CapacityExceeded as error:
        error.plan = result
        raise
    return result


def recompute_curve(
    graph: Graph,
    options: PlanOptions | None = None,
    *,
    page_to: str | Space | None = None,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> RecomputeCurve:
    """
    Return the fewest bytes of an arena over the extra work of nodes that run again.

    Parameters
    ----------
    graph : Graph
        The graph, whose nodes have costs and say which of them are pure.
    options : PlanOptions, optional
        Options of every plan.
    page_to : str or Space, optional
        As for :func:`plan`: no point is dearer than without.
    time_limit : float, optional
        Seconds after which the search ends.
    on_progress : callable, optional
        As for :func:`plan`.
    **overrides
        Single options by name.

    Returns
    -------
    RecomputeCurve
        ``points`` with ``arena_bytes``, ``extra`` and the proven ``bound`` of ``extra``, from the
        plan without repetitions down; each is of a plan that was made and checked. ``floor`` is the
        number of bytes that no schedule goes below.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> values = [graph.input("x", (256,))]
    >>> for layer in range(4):
    ...     spec = [(f"a{layer}", (256,), "float32")]
    ...     values += graph.node("Layer", values[-1:], spec, pure=True, cost=1)
    >>> last = values[-1]
    >>> for layer in reversed(range(4)):
    ...     spec = [(f"g{layer}", (256,), "float32")]
    ...     read = [last, values[layer]]
    ...     (last,) = graph.node("Back", read, spec, in_place=[(0, 0)], pure=True, cost=1)
    >>> graph.output(last)
    >>> [(point.arena_bytes, point.extra) for point in ap.recompute_curve(graph).points]
    [(5120, 0.0), (4096, 0.125)]
    """
    options = resolve(options, overrides)
    target = target_of(options, graph.target)
    graph = graph.for_target(target.name)
    arguments = {**core_options(options, target), "workspace": "none"}
    watch = Watch(on_progress, checked_seconds(time_limit))
    return _core.recompute_curve(
        graph.core,
        arguments,
        on_progress=watch.tell,
        time_limit=watch.seconds_left,
        paging=paging_of(page_to),
    )


def paging_of(page_to: str | Space | None) -> Paging | None:
    """Return the slow memory that values may be copied to, as the core takes it."""
    if page_to is None:
        return None
    if isinstance(page_to, str):
        spaces = parse_spaces(page_to)
        if len(spaces) != 1:
            raise InvalidOption("option page_to: values are copied to one memory, not to several")
        page_to = spaces[0]
    if page_to.cost is None:
        raise InvalidOption(
            f"option page_to: memory {page_to.name!r} needs the cost of copying a byte, such as "
            f"{page_to.name}=64GiB@480"
        )
    return Paging(page_to.name, page_to.cost, page_to.capacity)


class Goal(NamedTuple):
    """The aim of a recomputation."""

    kind: Literal["bytes", "extra", "strategy"]
    number: int = 0
    """Bytes, or millionths of the work."""
    name: str = ""
    """Name of the strategy."""


def goal_of(recompute: str | int) -> Goal:
    """Return the aim that an option describes."""
    text = str(recompute).strip()
    if text in ("sqrt-n", "mxnet-mirror"):
        return Goal("strategy", name=text)
    if text.endswith("%"):
        try:
            part = float(text[:-1])
        except ValueError:
            part = -1.0
        if not 0 <= part < 1e9:
            raise InvalidOption(f"option recompute: {text!r} is no part such as '5%'")
        return Goal("extra", round(part * 10_000))
    return Goal("bytes", parse_size(text))


_ATTEMPTS = 6
"""Budgets of values that are tried for a budget of values and scratch memory."""
_MOST_EXTRA = 1_000_000
"""Extra work of the smallest arena that is looked for, in millionths."""


def _with_scratch(goal: Goal, planned: Callable[[Goal], Plan]) -> Plan:
    """
    Return a plan of values and scratch memory that meets a goal.

    The search for schedules counts values. So the budget of the values follows from the scratch
    memory that the kernels of the executions turn out to need.
    """
    if goal.kind == "strategy":
        return planned(goal)
    if goal.kind == "extra":
        return min(planned(Goal("extra")), planned(goal), key=fast_bytes)
    budget, sizes = goal.number, []
    for _ in range(_ATTEMPTS):
        try:
            found = planned(Goal("bytes", budget))
        except RecomputeExceeded:
            break
        sizes.append(fast_bytes(found))
        if sizes[-1] <= goal.number:
            return found
        budget -= sizes[-1] - goal.number
        if budget <= 0:
            break
    found = planned(Goal("extra", _MOST_EXTRA))
    sizes.append(fast_bytes(found))
    if sizes[-1] <= goal.number:
        return found
    raise RecomputeExceeded(
        f"no schedule was found whose arena has {goal.number} bytes, scratch memory included; the "
        f"smallest one has {min(sizes)}"
    )


def _better(goal: Goal, ways: Sequence[Callable[[Goal], Plan]]) -> Plan:
    """
    Return the best plan of several ways to meet a goal, of equal ones the first.

    Raises
    ------
    RecomputeExceeded
        If no way meets it.
    """
    found: list[Plan] = []
    refused: RecomputeExceeded | None = None
    for planned in ways:
        try:
            found.append(_with_scratch(goal, planned))
        except RecomputeExceeded as error:
            refused = error
    if refused is not None and not found:
        raise refused
    return min(found, key=fast_bytes if goal.kind == "extra" else attrgetter("extra_cost"))


def fast_bytes(plan: Plan) -> int:
    """Return the bytes of all spaces but that of a slow memory that values are copied to."""
    spaces = plan.spaces if plan.paging is None else plan.spaces[:-1]
    return sum(space.arena_bytes for space in spaces)


class _Memories(NamedTuple):
    """Several memories as the core takes them."""

    rows: list[tuple[str, int | None, int, int]] | None
    homes: list[tuple[int, int]]


def plan_together(
    graphs: Sequence[Graph],
    together: Together,
    options: PlanOptions | None = None,
    *,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> SharedPlan:
    """
    Plan several graphs for one arena.

    Parameters
    ----------
    graphs : sequence of Graph
        Models, or branches of which only one is taken.
    together : {"never-together", "concurrent"}
        Whether the graphs run one after the other, in any order, or at the same time. Of
        graphs that never run together only the states survive the run of another one: take
        the outputs away before, and write the inputs afterwards.
    options : PlanOptions, optional
        Options of every plan; the budget is that of the shared arena. The default target is
        that of the graphs, or ``"nodes"`` if they differ. With workspaces, every node runs by
        itself.
    time_limit, on_progress
        As for :func:`plan`.
    **overrides
        Single options by name.

    Returns
    -------
    SharedPlan
        The plans, checked, with the base of each in the arena.

    Raises
    ------
    CapacityExceeded
        If the arena does not fit ``budget``.
    InvalidOption
        If there are several spaces, or values of the caller.

    Examples
    --------
    >>> import arenaplan as ap
    >>> def layer(size):
    ...     graph = ap.Graph("layer")
    ...     x = graph.input("x", (size,), "uint8")
    ...     (y,) = graph.node("Op", [x], [("y", (size,), "uint8")])
    ...     graph.output(y)
    ...     return graph
    >>> ap.plan_together([layer(64), layer(640)], "never-together")
    SharedPlan(2 graphs, never-together, 1280 bytes, optimal)
    >>> ap.plan_together([layer(64), layer(640)], "concurrent").bases
    [0, 128]
    """
    options = resolve(options, overrides)
    if options.spaces is not None or options.pins:
        raise InvalidOption("option spaces: graphs share one arena, not several spaces")
    defaults = {graph.target for graph in graphs}
    target = target_of(options, defaults.pop() if len(defaults) == 1 else "nodes")
    arguments = core_options(options, target)
    counted = options.workspace != "none" and backend_of(target.name) is not None
    if counted:
        # Workspaces of a fused group are known only once it is known which nodes run as one.
        names = str(arguments["optimize"] or ",".join(_core.techniques())).split(",")
        names = [name for name in names if name not in ("fusion", "streaming", "duplicate")]
        arguments["optimize"] = ",".join(names) or "none"
    seen = [graph.for_target(target.name) for graph in graphs]
    policy = "auto" if counted else "none"
    cores = [graph.core_for(policy, target=target.name) for graph in seen]
    watch = Watch(on_progress, checked_seconds(time_limit))
    result = _core.plan_together(
        cores, together, arguments, on_progress=watch.tell, time_limit=watch.seconds_left
    )
    result.fits()
    return result


class Explanation(NamedTuple):
    """The bytes that each technique saves, and the lower bound."""

    plan: Plan
    """The plan that the given options make."""
    without: int
    """Bytes of the arena without any technique."""
    levels: dict[str, int]
    """Bytes of the arena with each technique added to those before it."""
    switched: dict[str, int]
    """For each technique, bytes of the arena if it alone were switched the other way."""
    timed: TimedExplanation | None = None
    """The same with scratch memory and estimated times; ``None`` without a backend."""


class TimedExplanation(NamedTuple):
    """The worth of each technique for a runtime: bytes with scratch memory, and seconds."""

    backend: str
    """Name of the backend that estimates."""
    without: Point
    """Without any technique."""
    levels: dict[str, Point]
    """With each technique added to those before it."""
    switched: dict[str, Point]
    """For each technique, if it alone were switched the other way."""
    chosen: Point
    """The plan that :func:`plan` makes with these options."""
    found: tuple[Point, ...]
    """The plans tried for it that no other one beats in both bytes and time."""


def explain(
    graph: Graph,
    options: PlanOptions | None = None,
    *,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> Explanation:
    """
    Return the worth of each technique for ``graph``.

    Parameters
    ----------
    graph : Graph
        The model.
    options : PlanOptions, optional
        Options of the plans, as for :func:`plan`; scratch memory, spaces and the budget are
        left out of the comparison.
    time_limit : float, optional
        Seconds after which searches end; the figures are then those of the best plans so far.
    on_progress : callable, optional
        As for :func:`plan`.
    **overrides
        Single options by name.

    Returns
    -------
    Explanation
        A plan, and the bytes that other choices of techniques need. ``plan.floor`` is a lower
        bound for all orders of any steps that were tried.

    Raises
    ------
    InvalidAlignment, InvalidOption, SizeOverflow, GraphError
        If options contradict each other, the graph or the target.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    >>> (z,) = graph.node("Relu", [y], [("z", (64,), "float32")], in_place=[(0, 0)])
    >>> graph.output(z)
    >>> explanation = ap.explain(graph, inputs="keep")
    >>> explanation.without, explanation.levels["in-place"]
    (768, 512)
    """
    options = resolve(options, overrides)
    target = target_of(options, graph.target)
    graph = graph.for_target(target.name)
    arguments = {**core_options(options, target), "workspace": "none", "capacity": None}
    watch = Watch(on_progress, checked_seconds(time_limit))
    found = _core.explain(
        graph.core, arguments, on_progress=watch.tell, time_limit=watch.seconds_left
    )
    backend = None if options.workspace == "none" else backend_of(target.name)
    timed = None
    if backend is not None:
        graph.require_weights(target.name)
        arguments["workspace"] = "auto"
        maker = Maker(graph, arguments, target.techniques, _Memories(None, []), backend, watch)
        timed = _timed(maker, slowdown_of(options))
    levels, switched = (
        {level.technique: level.bytes for level in rows} for rows in (found.levels, found.switched)
    )
    return Explanation(found.plan, found.without, levels, switched, timed)


def _timed(maker: Maker, max_slowdown: float) -> TimedExplanation:
    """Return the worth of each technique for a backend."""

    def point(names: Sequence[str]) -> Point:
        return maker.finish(maker.draft(names), optimize=",".join(names) or "none").point

    known = maker.honored
    levels = {name: point(known[: at + 1]) for at, name in enumerate(known)}
    used = set(maker.names)
    switched = {name: point([n for n in known if (n in used) != (n == name)]) for name in known}
    best = chosen(maker, max_slowdown, None)
    made = Point(best.plan.arena_bytes, sum(maker.backend.seconds(maker.graph, best.plan)))
    return TimedExplanation(maker.backend.name, point([]), levels, switched, made, best.tried)


def _memories(graph: Graph, options: PlanOptions, target: Target) -> _Memories:
    """Return memories and homes as the core takes them."""
    if options.spaces is None:
        if options.pins:
            raise InvalidOption("option pins: there are no spaces to pin values to")
        return _Memories(None, [])
    given = options.spaces
    spaces = parse_spaces(given) if isinstance(given, str) else list(given)
    alignment = target.alignment if options.alignment is None else options.alignment
    rows = memory_rows(spaces, checked_alignment(alignment))
    return _Memories(rows, homes_of(graph, spaces, options.pins or {}))
