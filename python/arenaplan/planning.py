"""From a graph to a checked plan."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from arenaplan import _core
from arenaplan._core import Plan, SharedPlan
from arenaplan.backend import Backend, find
from arenaplan.errors import CapacityExceeded, InvalidAlignment, InvalidOption, InvalidSize
from arenaplan.graph import Graph
from arenaplan.spaces import Space, homes_of, parse_spaces
from arenaplan.tradeoff import Maker, Point, Progress, chosen

WorkspacePolicy: TypeAlias = Literal["none", "auto"]
Effort: TypeAlias = Literal["fast", "default", "max"]
Together: TypeAlias = Literal["never-together", "concurrent"]
InputMemory: TypeAlias = Literal["inside", "caller", "reuse"]
OutputMemory: TypeAlias = Literal["inside", "caller"]
MAX_SLOWDOWN = 1.1
"""How many times as long as the fastest plan a plan may take by default."""
MOST_SLOWDOWN = 1e6
"""From here on, bytes alone count."""


def plan(
    graph: Graph,
    *,
    alignment: int = 64,
    optimize: str | Iterable[str] = "all",
    effort: Effort = "default",
    in_place: bool = True,
    preserve_inputs: bool = False,
    inputs: InputMemory = "inside",
    outputs: OutputMemory = "inside",
    workspace: WorkspacePolicy = "none",
    capacity: int | None = None,
    parallel_safe: bool = False,
    steps: Sequence[Sequence[int]] | None = None,
    spaces: str | Sequence[Space] | None = None,
    pins: Mapping[str, str] | None = None,
    max_slowdown: float | None = MAX_SLOWDOWN,
    backend: str | Backend = "numpy",
    on_progress: Progress | None = None,
) -> Plan:
    """
    Decide where every value of ``graph`` lives in one arena, or one per memory.

    Parameters
    ----------
    graph : Graph
        What :func:`load` returns, or built by hand.
    alignment : int, default 64
        Power of two, in bytes, that divides every offset.
    optimize : str or iterable of str, default "all"
        What may be done to need fewer bytes: ``"all"``, ``"none"``, or some of ``"views"``,
        ``"in-place"``, ``"elision"``, ``"fusion"``, ``"order"``, ``"streaming"`` and
        ``"overlap"``.
    effort : {"fast", "default", "max"}, default "default"
        How much work to spend on choosing which nodes run as one, and in which order:
        milliseconds, up to a second or two, or up to a minute or two.
    in_place : bool, default True
        ``False`` is short for leaving out ``"in-place"``: whether an output may take over the
        bytes of an input that nobody reads later.
    preserve_inputs : bool, default False
        Whether graph inputs keep their bytes until the end of a run; otherwise they are
        reused after their last reader.
    inputs : {"inside", "caller", "reuse"}, default "inside"
        Whose memory graph inputs are in. Those of the caller take no bytes of the arena and
        are only read; those to reuse are in it, and nodes may write their results over them.
    outputs : {"inside", "caller"}, default "inside"
        Whose memory graph outputs are in. Those of the caller take no bytes of the arena, and
        neither does what an output takes over, shows, or is joined from.
    workspace : {"none", "auto"}, default "none"
        ``"none"`` counts activations only. ``"auto"`` adds the scratch memory of the NumPy
        kernels, each in the cheapest size that does not raise the peak.
    capacity : int, optional
        Bytes that the arena may have at most.
    parallel_safe : bool, default False
        Whether the plan must be safe in every order that the graph permits, so that nodes
        that do not wait for each other may run at the same time.
    steps : sequence of sequence of int, optional
        What to run, in order: per step the indices of the nodes that run as one, usually
        one. What all but the last of them make passes on piece by piece and needs no place.
    spaces : str or sequence of Space, optional
        Memories to place values in, such as ``"sram=64KiB,psram=8MiB"``; see
        :class:`Space`. Each value goes to the one where the bytes that nodes read and write
        cost least, as far as there is room: see :func:`spilled` for where they went, and why.
        Workspaces have their smallest sizes then.
    pins : mapping of str to str, optional
        Patterns of names, such as ``"logits*"``, and the space that those values must be in.
    max_slowdown : float or None, default 1.1
        How many times as long as the fastest way to run the graph a run may take, by the
        estimate of the backend; ``None`` or infinity if bytes alone count. Of equal bytes the
        fastest plan is taken. It needs ``workspace="auto"`` and one arena.
    backend : str or Backend, default "numpy"
        Whoever runs the plan, for ``workspace="auto"``: see :class:`arenaplan.backend.Backend`.
    on_progress : callable, optional
        Called with dictionaries of ``stage`` (``"fusion"``, ``"order"``, then those of the
        packer), ``seconds``, ``peak``, ``lower_bound`` and ``nodes``.

    Returns
    -------
    Plan
        The plan, checked. ``arena_bytes`` is its size; ``lower_bound``, ``gap`` and
        ``status`` say what is proven about that size.

    Raises
    ------
    CapacityExceeded
        If the arena does not fit ``capacity``; the exception's ``plan`` is the best found.
    SpacesExceeded
        If the values do not fit ``spaces``; the exception says which ones, and at which step.
    InvalidAlignment, InvalidOption, SizeOverflow, GraphError
        If the options or the graph make no sense.

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
    """
    alignment = _checked_alignment(alignment)
    rows, homes = (None, []) if spaces is None else _memories(graph, spaces, pins, alignment)
    if spaces is None and pins:
        raise InvalidOption("option pins: there are no spaces to pin values to")
    if rows is not None:
        alignment = min(row[2] for row in rows)
    options = _options(
        alignment=alignment,
        optimize=optimize,
        effort=effort,
        in_place=in_place,
        preserve_inputs=preserve_inputs,
        inputs=inputs,
        outputs=outputs,
        workspace=workspace,
        capacity=capacity,
        parallel_safe=parallel_safe,
    )
    slowdown = _checked_slowdown(max_slowdown)
    is_weighed = workspace == "auto" and rows is None and steps is None
    if is_weighed and isinstance(graph, Graph) and slowdown < inf:
        options["max_slowdown"] = round(slowdown * 1000)
    wanted = None if steps is None else [list(step) for step in steps]
    memories = _Memories(rows, homes)
    if workspace == "auto" and isinstance(graph, Graph):
        maker = Maker(graph, options, memories, find(backend), on_progress)
        result = chosen(maker, slowdown, wanted).plan
    else:
        core = graph if isinstance(graph, _core.Graph) else graph.core_for(workspace, wanted)
        result = _core.plan(core, options, wanted, *memories, None, on_progress)
    try:
        result.fits()
    except CapacityExceeded as error:
        error.plan = result
        raise
    return result


class _Memories(NamedTuple):
    """Several memories as the core takes them."""

    rows: list[tuple[str, int | None, int, int]] | None
    homes: list[tuple[int, int]]


def plan_together(
    graphs: Sequence[Graph],
    together: Together,
    *,
    alignment: int = 64,
    optimize: str | Iterable[str] = "all",
    effort: Effort = "default",
    in_place: bool = True,
    preserve_inputs: bool = False,
    inputs: InputMemory = "inside",
    outputs: OutputMemory = "inside",
    workspace: WorkspacePolicy = "none",
    capacity: int | None = None,
    parallel_safe: bool = False,
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
    alignment, optimize, effort, in_place, preserve_inputs, inputs, outputs, workspace, capacity, \
    parallel_safe
        As for :func:`plan`; the capacity is that of the shared arena. With workspaces, every
        node runs by itself. Nothing is the caller's.

    Returns
    -------
    SharedPlan
        The plans, checked, with the base of each in the arena.

    Raises
    ------
    CapacityExceeded
        If the arena does not fit ``capacity``.
    InvalidOption
        If a graph has several spaces, or something is to be the caller's.

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
    if workspace == "auto":
        # What nodes need together is known only once it is known which run as one.
        names = technique_names(optimize)
        optimize = [name for name in names if name not in ("fusion", "streaming")] or ["none"]
    options = _options(
        alignment=alignment,
        optimize=optimize,
        effort=effort,
        in_place=in_place,
        preserve_inputs=preserve_inputs,
        inputs=inputs,
        outputs=outputs,
        workspace=workspace,
        capacity=capacity,
        parallel_safe=parallel_safe,
    )
    graphs_of_core = [core_graph(graph, workspace) for graph in graphs]
    result = _core.plan_together(graphs_of_core, together, options)
    result.fits()
    return result


class Explanation(NamedTuple):
    """What a plan owes to each technique, and what it cannot go below."""

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
    """What each technique is worth to a runtime: bytes with scratch memory, and seconds."""

    backend: str
    """Name of the backend that estimates."""
    without: Point
    """Without any technique."""
    levels: dict[str, Point]
    """With each technique added to those before it."""
    switched: dict[str, Point]
    """For each technique, if it alone were switched the other way."""
    chosen: Point
    """The plan that ``plan(graph, workspace="auto")`` makes with these options."""
    found: tuple[Point, ...]
    """The plans tried for it that no other one beats in both bytes and time."""


def explain(
    graph: Graph,
    *,
    alignment: int = 64,
    optimize: str | Iterable[str] = "all",
    effort: Effort = "default",
    preserve_inputs: bool = False,
    inputs: InputMemory = "inside",
    outputs: OutputMemory = "inside",
    max_slowdown: float | None = MAX_SLOWDOWN,
    backend: str | Backend | None = "numpy",
) -> Explanation:
    """
    Say what each technique is worth for ``graph``.

    Parameters
    ----------
    graph, alignment, optimize, effort, preserve_inputs, inputs, outputs, max_slowdown
        As for :func:`plan`.
    backend : str, Backend or None, default "numpy"
        Whose scratch memory and times are estimated besides; ``None`` for nobody's.

    Returns
    -------
    Explanation
        A plan, and the bytes that other choices of techniques need. ``plan.floor`` is what
        no order of any steps that were tried goes below.

    Raises
    ------
    InvalidAlignment, InvalidOption, SizeOverflow, GraphError
        If the options or the graph make no sense.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    >>> (z,) = graph.node("Relu", [y], [("z", (64,), "float32")], in_place=[(0, 0)])
    >>> graph.output(z)
    >>> explanation = ap.explain(graph, preserve_inputs=True)
    >>> explanation.without, explanation.levels["in-place"]
    (768, 512)
    """
    options = _options(
        alignment=alignment,
        optimize=optimize,
        effort=effort,
        in_place=True,
        preserve_inputs=preserve_inputs,
        inputs=inputs,
        outputs=outputs,
        workspace="none",
        capacity=None,
        parallel_safe=False,
    )
    result, without, levels, switched = _core.explain(core_graph(graph, "none"), options)
    timed = None
    if backend is not None and isinstance(graph, Graph):
        timed = _timed(graph, options, find(backend), _checked_slowdown(max_slowdown))
    return Explanation(result, without, dict(levels), dict(switched), timed)


def _timed(
    graph: Graph, options: dict[str, object], backend: Backend, max_slowdown: float
) -> TimedExplanation:
    """Return what each technique is worth to a backend."""
    maker = Maker(graph, {**options, "workspace": "auto"}, _Memories(None, []), backend, None)

    def point(names: Sequence[str]) -> Point:
        return maker.finish(maker.draft(names), optimize=",".join(names) or "none").point

    known = _core.techniques()
    levels = {name: point(known[: at + 1]) for at, name in enumerate(known)}
    used = set(maker.names)
    switched = {name: point([n for n in known if (n in used) != (n == name)]) for name in known}
    best = chosen(maker, max_slowdown, None)
    made = Point(best.plan.arena_bytes, sum(backend.seconds(graph, best.plan)))
    return TimedExplanation(backend.name, point([]), levels, switched, made, best.tried)


def _options(
    *,
    alignment: int,
    optimize: str | Iterable[str],
    effort: str,
    in_place: bool,
    preserve_inputs: bool,
    inputs: str,
    outputs: str,
    workspace: str,
    capacity: int | None,
    parallel_safe: bool,
) -> dict[str, object]:
    """Return options as the core reads them."""
    names = technique_names(optimize)
    if not in_place:
        names = [name for name in names if name != "in-place"]
    return {
        "alignment": _checked_alignment(alignment),
        "optimize": ",".join(names) or "none",
        "effort": effort,
        "preserve_inputs": preserve_inputs,
        "inputs": inputs,
        "outputs": outputs,
        "workspace": workspace,
        "capacity": _checked_capacity(capacity),
        "parallel_safe": parallel_safe,
        "max_slowdown": None,
    }


def technique_names(optimize: str | Iterable[str]) -> list[str]:
    """Return the names of techniques that ``optimize`` stands for."""
    names = optimize.split(",") if isinstance(optimize, str) else list(optimize)
    return list(_core.techniques()) if names == ["all"] else names


def _checked_alignment(alignment: int) -> int:
    """Refuse what cannot be a power of two of 64 bits."""
    alignment = whole_number(alignment, "alignment")
    if alignment <= 0 or alignment >= 1 << 64:
        raise InvalidAlignment(f"alignment {alignment} is not a power of two up to 2^62")
    return alignment


def _checked_slowdown(max_slowdown: float | None) -> float:
    """Refuse what cannot be a ratio to the fastest plan."""
    if max_slowdown is None:
        return inf
    if isinstance(max_slowdown, bool) or not isinstance(max_slowdown, (int, float)):
        raise TypeError(f"max_slowdown is {max_slowdown!r}, not a number")
    if not max_slowdown >= 1:
        raise InvalidOption(f"option max_slowdown: {max_slowdown} is not 1 or more")
    return float(max_slowdown) if max_slowdown < MOST_SLOWDOWN else inf


def _checked_capacity(capacity: int | None) -> int | None:
    """Refuse what cannot be a number of bytes."""
    if capacity is None:
        return None
    capacity = whole_number(capacity, "capacity")
    if not 0 <= capacity < 1 << 64:
        raise InvalidSize(f"capacity {capacity} is no number of bytes")
    return capacity


def _memories(
    graph: Graph, spaces: str | Sequence[Space], pins: Mapping[str, str] | None, alignment: int
) -> tuple[list[tuple[str, int | None, int, int]], list[tuple[int, int]]]:
    """Return memories and homes as the core takes them, with every default filled in."""
    spaces = parse_spaces(spaces) if isinstance(spaces, str) else list(spaces)
    if not spaces:
        raise InvalidOption("option spaces: there is none")
    rows = []
    for position, space in enumerate(spaces):
        cost = position if space.cost is None else whole_number(space.cost, "cost")
        divisor = alignment if space.alignment is None else space.alignment
        divisor = whole_number(divisor, "alignment")
        capacity = space.capacity
        if capacity is not None:
            capacity = whole_number(capacity, "capacity")
            if not 0 <= capacity < 1 << 63:
                raise InvalidSize(f"space {space.name!r}: {capacity} is no number of bytes")
        if not 0 <= cost < 1 << 63:
            raise InvalidOption(f"option spaces: {cost} is no cost of space {space.name!r}")
        if not 0 < divisor < 1 << 63:
            raise InvalidAlignment(f"alignment {divisor} is not a power of two up to 2^62")
        rows.append((space.name, capacity, divisor, cost))
    return rows, homes_of(graph, spaces, pins or {})


def core_graph(graph: Graph | _core.Graph, workspace: str) -> _core.Graph:
    """Return the Rust graph, with the workspaces of nodes that run alone if that is "auto"."""
    return graph if isinstance(graph, _core.Graph) else graph.core_for(workspace)


def whole_number(number: object, what: str) -> int:
    """Return ``number`` as an int, refusing booleans and fractions."""
    if isinstance(number, bool):
        raise TypeError(f"{what} is {number!r}, not a whole number")
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is {number!r}, not a whole number") from None
