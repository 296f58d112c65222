"""From a graph to a checked plan."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from arenaplan import _core
from arenaplan._core import Plan
from arenaplan.errors import CapacityExceeded, InvalidAlignment, InvalidSize
from arenaplan.graph import Graph

WorkspacePolicy: TypeAlias = Literal["none", "auto"]
Effort: TypeAlias = Literal["fast", "default", "max"]


def plan(
    graph: Graph,
    *,
    alignment: int = 64,
    optimize: str | Iterable[str] = "all",
    effort: Effort = "default",
    in_place: bool = True,
    preserve_inputs: bool = False,
    workspace: WorkspacePolicy = "none",
    capacity: int | None = None,
    parallel_safe: bool = False,
    steps: Sequence[Sequence[int]] | None = None,
) -> Plan:
    """
    Decide where every value of ``graph`` lives in one arena.

    Parameters
    ----------
    graph : Graph
        What :func:`load` returns, or built by hand.
    alignment : int, default 64
        Power of two, in bytes, that divides every offset.
    optimize : str or iterable of str, default "all"
        What may be done to need fewer bytes: ``"all"``, ``"none"``, or some of ``"views"``,
        ``"in-place"``, ``"elision"``, ``"fusion"``, ``"order"`` and ``"streaming"``.
    effort : {"fast", "default", "max"}, default "default"
        How much work to spend on choosing which nodes run as one, and in which order:
        milliseconds, up to a second or two, or up to a minute or two.
    in_place : bool, default True
        ``False`` is short for leaving out ``"in-place"``: whether an output may take over the
        bytes of an input that nobody reads later.
    preserve_inputs : bool, default False
        Whether graph inputs keep their bytes until the end of a run; otherwise they are
        reused after their last reader.
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

    Returns
    -------
    Plan
        The plan, checked. ``arena_bytes`` is its size; ``lower_bound``, ``gap`` and
        ``status`` say what is proven about that size.

    Raises
    ------
    CapacityExceeded
        If the arena does not fit ``capacity``; the exception's ``plan`` is the best found.
    InvalidAlignment, SizeOverflow, GraphError
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
    """
    options = _options(
        alignment=alignment,
        optimize=optimize,
        effort=effort,
        in_place=in_place,
        preserve_inputs=preserve_inputs,
        workspace=workspace,
        capacity=capacity,
        parallel_safe=parallel_safe,
    )
    result = _core.plan(
        core_graph(graph, workspace),
        options,
        None if steps is None else [list(step) for step in steps],
    )
    try:
        result.fits()
    except CapacityExceeded as error:
        error.plan = result
        raise
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


def explain(
    graph: Graph,
    *,
    alignment: int = 64,
    optimize: str | Iterable[str] = "all",
    effort: Effort = "default",
    preserve_inputs: bool = False,
) -> Explanation:
    """
    Say what each technique is worth for ``graph``.

    Parameters
    ----------
    graph, alignment, optimize, effort, preserve_inputs
        As for :func:`plan`.

    Returns
    -------
    Explanation
        A plan, and the bytes that other choices of techniques need. ``plan.floor`` is what
        no order of any steps that were tried goes below.

    Raises
    ------
    InvalidAlignment, SizeOverflow, GraphError
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
        workspace="none",
        capacity=None,
        parallel_safe=False,
    )
    result, without, levels, switched = _core.explain(core_graph(graph, "none"), options)
    return Explanation(result, without, dict(levels), dict(switched))


def _options(
    *,
    alignment: int,
    optimize: str | Iterable[str],
    effort: str,
    in_place: bool,
    preserve_inputs: bool,
    workspace: str,
    capacity: int | None,
    parallel_safe: bool,
) -> dict[str, object]:
    """Return options as the core reads them."""
    alignment = whole_number(alignment, "alignment")
    if alignment <= 0 or alignment >= 1 << 64:
        raise InvalidAlignment(f"alignment {alignment} is not a power of two up to 2^62")
    if capacity is not None:
        capacity = whole_number(capacity, "capacity")
        if not 0 <= capacity < 1 << 64:
            raise InvalidSize(f"capacity {capacity} is no number of bytes")
    names = optimize.split(",") if isinstance(optimize, str) else list(optimize)
    if names == ["all"]:
        names = list(_core.techniques())
    if not in_place:
        names = [name for name in names if name != "in-place"]
    return {
        "alignment": alignment,
        "optimize": ",".join(names) or "none",
        "effort": effort,
        "preserve_inputs": preserve_inputs,
        "workspace": workspace,
        "capacity": capacity,
        "parallel_safe": parallel_safe,
    }


def core_graph(graph: Graph | _core.Graph, workspace: str) -> _core.Graph:
    """Return the Rust graph, with the NumPy kernels' workspaces if ``workspace`` is "auto"."""
    if isinstance(graph, _core.Graph):
        return graph
    if workspace == "none":
        return graph.core
    from arenaplan.executor import workspace_choices

    return graph.core.with_workspaces(list(workspace_choices(graph).items()))


def whole_number(number: object, what: str) -> int:
    """Return ``number`` as an int, refusing booleans and fractions."""
    if isinstance(number, bool):
        raise TypeError(f"{what} is {number!r}, not a whole number")
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is {number!r}, not a whole number") from None
