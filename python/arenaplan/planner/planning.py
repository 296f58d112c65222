"""From a graph to a checked plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple, TypeAlias, Unpack

from arenaplan import _core
from arenaplan._core import Paging, Plan, RecomputeCurve, SharedPlan, Strips, Target
from arenaplan.base.amounts import elements_of, parse_size, whole_number
from arenaplan.base.arguments import typed
from arenaplan.base.errors import CapacityExceeded, InvalidOption, PartOfModel
from arenaplan.base.html_tables import html_table
from arenaplan.base.progress import Progress, Watch, checked_seconds
from arenaplan.graph import Graph
from arenaplan.graph.costs import Costs, costs_of, has_costs, require_kernels
from arenaplan.graph.given import graph_of
from arenaplan.graph.sizes import Source
from arenaplan.planner.plan_options import (
    PlanKeywords,
    PlanOptions,
    checked_alignment,
    core_options,
    memory_rows,
    resolve,
    slowdown_of,
    target_of,
)
from arenaplan.planner.spaces import Space, homes_of, parse_spaces

_ANY_SLOWDOWN = 10**9
"""Thousandths of the shortest timetable that no timetable takes."""

Together: TypeAlias = Literal["never-together", "concurrent"]


def plan(
    graph: Graph | Source,
    options: PlanOptions | None = None,
    *,
    steps: Sequence[Sequence[int]] | None = None,
    strips: Sequence[Strips] = (),
    node_times: Sequence[int] | None = None,
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
    graph : Graph, path or bytes
        The model: a graph that was built by hand, or a file as for :func:`load`.
    options : PlanOptions, optional
        Plan options.
    steps : sequence of sequence of int, optional
        Steps to run, in order: per step the indices of the nodes that run together, usually a
        single node. Values inside a step get no memory.
    strips : sequence of Strips
        How steps in ``steps`` run strip by strip, where that applies.
    node_times : sequence of int, optional
        Time per node, in any unit, for the timetable with several ``workers``. By default, a
        node's time is the number of bytes that the node touches.
    recompute : str or int, optional
        Lets pure nodes run again. Arena bytes, such as ``"512MiB"``: the least extra work within
        these bytes. A fraction of the work, such as ``"5%"``: the fewest bytes with so much extra
        work. ``"sqrt-n"`` or ``"mxnet-mirror"``: the repetitions of the strategy with this name.
        Bytes include any planned scratch memory. Each step then runs a single node, and
        :attr:`Plan.schedule`, :attr:`Plan.extra_cost` and :attr:`Plan.extra_bound` tell about the
        extra work.
    page_to : str or Space, optional
        With ``recompute``: a slow memory such as ``"host=64GiB@480"`` that values may be copied to
        and back from, wherever copying costs less than running the nodes again. The number behind
        ``@`` is the cost per byte and direction, in the unit of the nodes' costs. The bytes in
        ``recompute`` are for the other spaces. :attr:`Plan.schedule` has the copies, too.
    time_limit : float, optional
        Seconds after which the best plan so far is returned; techniques for which no time was
        left are in the plan file's ``search.skipped``. Without a limit, equal graphs and
        options give equal plans.
    on_progress : callable, optional
        Called with dictionaries: ``stage`` (``"start"``, ``"fusion"``, ``"order"``, then the
        packer's stages), ``seconds``, ``peak`` (``None`` before the first peak), ``lower_bound``
        and ``nodes``. Calls come at each progress, and about 20 times a second in between. To stop
        with the best plan so far, return ``False``.
    **overrides
        Single options by name, such as ``target="tflm"``: the fields of :class:`PlanOptions`.

    Returns
    -------
    Plan
        The plan, checked. ``arena_bytes`` is the size; ``lower_bound``, ``gap`` and
        ``status`` are the proofs about that size for the plan's target.

    Raises
    ------
    CapacityExceeded
        If the arena does not fit ``budget``; the exception's ``plan`` is the best found.
    SpacesExceeded
        If the values do not fit ``spaces``; the exception names the values and the step.
    PartOfModel
        If there is a budget, and the graph is only a part of the model; the exception's ``plan`` is
        for the part.
    PackingError
        If no schedule was found within the ``recompute`` bytes; the message has the fewest bytes
        found, and a lower bound for all schedules.
    SizeError, InvalidOption, GraphError
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
    >>> timed = ap.plan(graph, workers=2, node_times=[30, 10])
    >>> timed.timetable.starts, timed.timetable.span
    ([0, 30], 40)
    """
    graph, options = graph_of(graph), resolve(options, overrides)
    target = target_of(options, graph.target)
    if options.budget is not None and target.runtime == "tflm":
        raise InvalidOption(
            "option budget: for target tflm the whole arena counts, which a graph does not tell; "
            "pass the model file to arenaplan.gate, or use 'arenaplan plan MODEL --budget'"
        )
    graph = _seen(graph, target)
    arguments = core_options(options, target)
    times = None
    if node_times is not None:
        if options.workers == 1:
            raise InvalidOption("option node_times: a plan for one worker has no timetable")
        times = [whole_number(time, "node_times") for time in node_times]
        if not all(0 <= time < 1 << 64 for time in times):
            raise InvalidOption("option node_times: times must be integers from 0 to 2^64 - 1")
    memories = _memories(graph, options, target)
    strips = _checked_strips(strips)
    if memories.rows is not None:
        arguments["alignment"] = min(row[2] for row in memories.rows)
    wanted = None if steps is None else _checked_steps(steps, graph)
    costs = _costs(graph, options, target)
    if options.workers > 1 or (costs is not None and memories.rows is None and wanted is None):
        arguments["max_slowdown"] = _thousandths(options)
    watch = Watch(on_progress, checked_seconds(time_limit))
    if recompute is not None:
        goal = goal_of(recompute)
        if memories.rows is not None or wanted is not None or options.workers != 1 or strips:
            raise InvalidOption(
                "option recompute: steps, strips, spaces and workers are not chosen together with "
                "recompute; leave them out"
            )
        return _core.recompute(
            graph.core_with_sizes,
            arguments,
            (goal.kind, goal.number),
            strategy=goal.name,
            paging=paging_of(page_to),
            costs=costs,
            on_progress=watch.tell,
            time_limit=watch.seconds_left,
        )
    if page_to is not None:
        raise InvalidOption("option page_to: it needs a goal, which is the option recompute")

    def made() -> Plan:
        return _core.plan(
            graph.core,
            arguments,
            steps=wanted,
            spaces=memories.rows,
            homes=memories.homes,
            strips=strips,
            node_times=times,
            costs=costs,
            on_progress=watch.tell,
            time_limit=watch.seconds_left,
        )

    result = made()
    if watch.was_ended:
        # A search stopped during a packing has not even placed everything once.
        result = min(result, made(), key=lambda plan: plan.arena_bytes)
    try:
        result.fits()
    except (CapacityExceeded, PartOfModel) as error:
        error.plan = result
        raise
    return result


@typed
def recompute_curve(
    graph: Graph | Source,
    options: PlanOptions | None = None,
    *,
    page_to: str | Space | None = None,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> RecomputeCurve:
    """
    Return the fewest arena bytes over the extra work by nodes that run again.

    Parameters
    ----------
    graph : Graph, path or bytes
        The graph, whose nodes have costs and may be marked as pure.
    options : PlanOptions, optional
        Options for every plan.
    page_to : str or Space, optional
        As for :func:`plan`: no point costs more than without paging.
    time_limit : float, optional
        Seconds after which the search ends.
    on_progress : callable, optional
        As for :func:`plan`.
    **overrides
        Single options by name.

    Returns
    -------
    RecomputeCurve
        ``points`` with ``arena_bytes``, ``extra`` and the proven ``bound`` for ``extra``, from the
        plan without repetitions down; each point belongs to a checked plan. No schedule goes below
        ``floor`` bytes.

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
    graph, options = graph_of(graph), resolve(options, overrides)
    target = target_of(options, graph.target)
    graph = _seen(graph, target)
    arguments = {**core_options(options, target), "workspace": "none"}
    watch = Watch(on_progress, checked_seconds(time_limit))
    return _core.recompute_curve(
        graph.core_with_sizes,
        arguments,
        on_progress=watch.tell,
        time_limit=watch.seconds_left,
        paging=paging_of(page_to),
    )


def paging_of(page_to: str | Space | None) -> Paging | None:
    """Return the slow memory that values may be copied to, in the core's form."""
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
    """A recomputation's goal."""

    kind: Literal["bytes", "extra", "strategy"]
    number: int = 0
    """Bytes, or millionths of the work."""
    name: str = ""
    """Strategy name."""


def goal_of(recompute: str | int) -> Goal:
    """Return the goal that an option describes."""
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


class Point(NamedTuple):
    """A plan's bytes and seconds."""

    bytes: int
    """Arena bytes."""
    seconds: float | None
    """Estimated seconds per run; ``None`` without a backend."""


class _Memories(NamedTuple):
    """Several memories in the core's form."""

    rows: list[tuple[str, int | None, int, int]] | None
    homes: list[tuple[int, int]]


@typed
def plan_together(
    graphs: Sequence[Graph | Source],
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
    graphs : sequence of Graph, path or bytes
        Models, or alternative branches.
    together : {"never-together", "concurrent"}
        Whether the graphs run one after the other, in any order, or at the same time. If graphs
        never run together, only states survive another graph's run: take the outputs away before,
        and write the inputs afterwards.
    options : PlanOptions, optional
        Options for every plan; the budget is for the shared arena. The default target is the
        graphs' common target, or ``"nodes"`` if the targets differ. With workspaces, every node
        runs by itself.
    time_limit, on_progress
        As for :func:`plan`.
    **overrides
        Single options by name.

    Returns
    -------
    SharedPlan
        The checked plans, each with a base in the arena.

    Raises
    ------
    CapacityExceeded
        If the arena does not fit ``budget``.
    InvalidOption
        If there are several spaces, or values that the caller owns.

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
    given = [graph_of(graph) for graph in elements_of(graphs, "option graphs")]
    defaults = {graph.target for graph in given}
    target = target_of(options, defaults.pop() if len(defaults) == 1 else "nodes")
    arguments = core_options(options, target)
    counted = options.workspace != "none" and has_costs(target.name)
    if counted:
        # A fused group's workspaces are known only after fusion is decided.
        names = str(arguments["optimize"] or ",".join(_core.techniques())).split(",")
        names = [name for name in names if name not in ("fusion", "streaming", "duplicate")]
        arguments["optimize"] = ",".join(names) or "none"
    seen = [_seen(graph, target) for graph in given]
    policy = "auto" if counted else "none"
    cores = [graph.core_for(policy, target=target.name) for graph in seen]
    watch = Watch(on_progress, checked_seconds(time_limit))
    result = _core.plan_together(
        cores, together, arguments, on_progress=watch.tell, time_limit=watch.seconds_left
    )
    result.fits()
    return result


class Explanation(NamedTuple):
    """Bytes that each technique saves: every point belongs to a plan by :func:`plan`."""

    plan: Plan
    """The plan that the given options make."""
    without: Point
    """Without any technique."""
    levels: dict[str, Point]
    """Points as techniques are added one after the other."""
    switched: dict[str, Point]
    """For each technique, the point if the technique alone were switched."""
    points: tuple[Point, ...]
    """The plans tried for ``plan`` that no other plan beats in both bytes and time."""

    def _repr_html_(self) -> str:
        used = self.plan.options["optimize"]
        rows: list[tuple[str, int]] = [("none", self.without.bytes)]
        rows += [(f"and {name}", point.bytes) for name, point in self.levels.items()]
        rows += [
            (f"{'without' if name in used else 'with'} {name}", point.bytes)
            for name, point in self.switched.items()
        ]
        caption = f"{self.plan.model or 'model'}: {self.plan.arena_bytes:,} bytes"
        return html_table(caption, ["technique", "bytes"], rows)


def explain(
    graph: Graph | Source,
    options: PlanOptions | None = None,
    *,
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> Explanation:
    """
    Return the bytes that each technique saves for ``graph``.

    Parameters
    ----------
    graph : Graph, path or bytes
        The model.
    options : PlanOptions, optional
        Plan options, as for :func:`plan`; the comparison ignores the budget, and
        spaces are refused.
    time_limit : float, optional
        Seconds after which searches end; the figures are then from the best plans so far.
    on_progress : callable, optional
        As for :func:`plan`.
    **overrides
        Single options by name.

    Returns
    -------
    Explanation
        A plan, with bytes and times for other technique choices. ``plan.floor`` is a lower bound
        for all orders of any tried steps.

    Raises
    ------
    SizeError, InvalidOption, GraphError
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
    >>> explanation.without.bytes, explanation.levels["in-place"].bytes
    (768, 512)
    """
    graph, options = graph_of(graph), resolve(options, overrides)
    target = target_of(options, graph.target)
    graph = _seen(graph, target)
    if options.spaces is not None:
        raise InvalidOption("option spaces: explain compares plans for one arena")
    arguments = {**core_options(options, target), "capacity": None}
    costs = _costs(graph, options, target)
    if options.workers > 1 or costs is not None:
        arguments["max_slowdown"] = _thousandths(options)
    watch = Watch(on_progress, checked_seconds(time_limit))
    found = _core.explain(
        graph.core,
        arguments,
        costs=costs,
        on_progress=watch.tell,
        time_limit=watch.seconds_left,
    )

    def point(row: _core.PlanPoint) -> Point:
        return Point(row.bytes, row.nanoseconds * 1e-9 if row.nanoseconds else None)

    levels, switched = (
        {level.technique: point(level.point) for level in rows}
        for rows in (found.levels, found.switched)
    )
    points = tuple(map(point, found.points))
    return Explanation(found.plan, point(found.without), levels, switched, points)


def _checked_steps(steps: Sequence[Sequence[int]], graph: Graph) -> list[list[int]]:
    """Return steps as lists; refuse entries that are not node positions."""
    wanted = []
    for step in elements_of(steps, "option steps"):
        nodes = [
            whole_number(node, "option steps: a node") for node in elements_of(step, "option steps")
        ]
        for node in nodes:
            if not 0 <= node < len(graph.nodes):
                count = len(graph.nodes)
                raise InvalidOption(f"option steps: there is no node {node} among {count:,}")
        wanted.append(nodes)
    return wanted


def _checked_strips(strips: Sequence[Strips]) -> list[Strips]:
    """Return strips as a list; refuse entries that are not strips."""
    each = elements_of(strips, "option strips")
    for one in each:
        if not isinstance(one, Strips):
            raise InvalidOption(f"option strips: {one!r} is none of a plan's strips")
    return each


def _seen(graph: Graph, target: Target) -> Graph:
    """Return the graph that a target's runner sees, and has kernels for."""
    seen = graph.for_target(target.name)
    require_kernels(target.name, seen)
    return seen


def _costs(graph: Graph, options: PlanOptions, target: Target) -> Costs | None:
    """
    Return the costs that a target's runtime states for a graph, or ``None``.

    A plan without scratch memory is compared with the steps of the plan with scratch memory, unless
    the graph has no weights that kernels could be asked about.
    """
    if not has_costs(target.name) or (options.workspace == "none" and not graph.has_weights):
        return None
    graph.require_weights(target.name)
    return costs_of(target.name, graph)


def _thousandths(options: PlanOptions) -> int | None:
    """Return the time limit in the core's form."""
    slowdown = slowdown_of(options)
    if slowdown < inf:
        return round(slowdown * 1000)
    return _ANY_SLOWDOWN if options.workers > 1 else None


def _memories(graph: Graph, options: PlanOptions, target: Target) -> _Memories:
    """Return memories and homes in the core's form."""
    if options.spaces is None:
        if options.pins:
            raise InvalidOption("option pins: there are no spaces to pin values to")
        return _Memories(None, [])
    given = options.spaces
    spaces = parse_spaces(given) if isinstance(given, str) else elements_of(given, "option spaces")
    alignment = target.alignment if options.alignment is None else options.alignment
    rows = memory_rows(spaces, checked_alignment(alignment))
    return _Memories(rows, homes_of(graph, spaces, options.pins or {}))
