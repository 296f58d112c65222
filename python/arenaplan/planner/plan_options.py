"""
The options of a plan: one table from which signatures, the command line and docs follow.

A field of :class:`PlanOptions` carries its type and help text. ``None`` stands for the target's
default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from math import inf
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from arenaplan import _core
from arenaplan._core import Target
from arenaplan.base.amounts import size_of, whole_number
from arenaplan.base.choices import WorkspacePolicy
from arenaplan.base.close import did_you_mean
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.planner.spaces import Space, parse_spaces

Effort: TypeAlias = Literal["fast", "default", "max"]
InputMemory: TypeAlias = Literal["inside", "keep", "reuse", "caller"]
OutputMemory: TypeAlias = Literal["inside", "caller"]

_COPY_INPUTS: Final = frozenset({"c-code"})
"""Targets whose programs copy inputs into the arena, so that no caller sees the bytes again."""
_MOST_SLOWDOWN = 1e6
"""From here on, bytes alone count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """The options for :func:`arenaplan.plan`; every field has a default."""

    target: Annotated[
        str | Target | None,
        "runner that the plan is for, by name or description; by default the one that the graph's "
        "format has: numpy for ONNX, tflm for TFLite (c with several memories), executorch for "
        ".pt2, nodes for graphs that are built by hand",
    ] = None
    alignment: Annotated[
        int | None, "power of two, in bytes, that divides every offset; by default the target's"
    ] = None
    optimize: Annotated[
        str | Iterable[str],
        "techniques: all that the target honors, none, some of views, in-place, elision, fusion, "
        "order, streaming, overlap and duplicate, or all but some, such as all,-in-place,-order",
    ] = "all"
    effort: Annotated[
        Effort,
        "work for the choice of fused groups and order: milliseconds, up to a second or two, or "
        "up to a minute or two",
    ] = "default"
    inputs: Annotated[
        InputMemory | None,
        "memory of graph inputs: inside is the arena, from the start of a run to the last reader; "
        "keep the arena, until the end of a run; reuse the arena, where results may overwrite "
        "them; caller a read-only buffer of the caller; by default inside, and reuse for c-code, "
        "whose functions copy inputs into the arena",
    ] = None
    outputs: Annotated[
        OutputMemory,
        "memory of graph outputs: the arena or a buffer of the caller, which then also holds the "
        "values that the output takes over, shows or is joined from",
    ] = "inside"
    workspace: Annotated[
        WorkspacePolicy | None,
        "scratch memory of kernels: none, or auto to place each buffer in the cheapest size that "
        "does not raise the peak; by default auto where the target declares it before planning",
    ] = None
    max_slowdown: Annotated[
        float | None,
        "how many times as long as in the fastest way that is known a run may take, by the "
        "estimate of the target's backend; None or infinity if bytes alone count; it applies to "
        "one arena with scratch memory, and to the timetable of several workers",
    ] = 1.1
    budget: Annotated[
        int | str | None,
        "most bytes of the whole arena, such as 48KiB; with several workers, the plan has the "
        "shortest timetable that fits",
    ] = None
    parallel_safe: Annotated[
        bool, "be safe in every order that the graph permits, so that nodes may run in parallel"
    ] = False
    workers: Annotated[
        int,
        "number of workers that run nodes at the same time; with more than one, the plan has a "
        "timetable of about the shortest time (see max_slowdown), and of those one with few bytes",
    ] = 1
    spaces: Annotated[
        str | Sequence[Space] | None,
        "memories to place values in, such as sram=64KiB,psram=8MiB, fastest first; each value "
        "goes where moving its bytes costs least",
    ] = None
    pins: Annotated[
        Mapping[str, str] | None, "memory of values by pattern of their names, such as logits*"
    ] = None


class PlanKeywords(TypedDict, total=False):
    """The fields of :class:`PlanOptions` as keyword arguments, for type checkers."""

    target: str | Target | None
    alignment: int | None
    optimize: str | Iterable[str]
    effort: Effort
    inputs: InputMemory | None
    outputs: OutputMemory
    workspace: WorkspacePolicy | None
    max_slowdown: float | None
    budget: int | str | None
    parallel_safe: bool
    workers: int
    spaces: str | Sequence[Space] | None
    pins: Mapping[str, str] | None


@cache
def _hints() -> dict[str, Any]:
    """Return the annotations of :class:`PlanOptions` fields."""
    return get_type_hints(PlanOptions, include_extras=True)


def option_help(name: str) -> str:
    """Return an option's help text."""
    return str(_hints()[name].__metadata__[0])


def option_choices(name: str) -> tuple[str, ...]:
    """Return the permitted names of an option; empty if the names cannot be listed."""
    type_ = _hints()[name].__origin__
    literals = [each for each in (type_, *get_args(type_)) if get_origin(each) is Literal]
    return get_args(literals[0]) if literals else ()


def resolve(options: PlanOptions | None, overrides: PlanKeywords) -> PlanOptions:
    """
    Return ``options`` with ``overrides``.

    Raises
    ------
    InvalidOption
        If an option name is unknown.
    """
    known = {each.name for each in fields(PlanOptions)}
    if not isinstance(options, PlanOptions | None):
        raise InvalidOption(f"options: {options!r} is not a PlanOptions; give options by name")
    for name in overrides:
        if name not in known:
            raise InvalidOption(f"there is no option {name!r}{_meant(name, sorted(known))}")
    given = {} if options is None else {name: getattr(options, name) for name in known}
    return PlanOptions(**{**given, **overrides})


def target_of(options: PlanOptions, default: str) -> Target:
    """
    Return the target that the options name, or else the one called ``default``.

    Where that has one arena and the options name several memories, the default is C code, for
    which several arenas are ordinary.
    """
    if options.target is not None:
        named = options.target
        if not isinstance(named, (str, Target)):
            raise InvalidOption(f"option target: {named!r} is not a target name")
        return named if isinstance(named, Target) else Target.known(named)
    target = Target.known(default)
    if options.spaces is not None and not target.several_spaces:
        spaces = options.spaces
        count = len(parse_spaces(spaces) if isinstance(spaces, str) else spaces)
        return Target.known("c") if count > 1 else target
    return target


def core_options(options: PlanOptions, target: Target) -> dict[str, object]:
    """
    Return options in the core's form: None is the target's default.

    Raises
    ------
    SizeError
        If a number cannot be an alignment or a byte count.
    InvalidOption
        If both a budget and spaces are given: spaces have capacities.
    """
    if options.budget is not None and options.spaces is not None:
        raise InvalidOption("option budget: the spaces have sizes of their own")
    for name in ("effort", "inputs", "outputs", "workspace"):
        given: Any = getattr(options, name)
        known = option_choices(name)
        if given not in known and not (given is None and name in ("inputs", "workspace")):
            raise InvalidOption(f"option {name}: there is no {given!r}{_meant(given, known)}")
    names = technique_names(options.optimize, target)
    inputs = options.inputs
    if inputs is None:
        inputs = "reuse" if target.name in _COPY_INPUTS else "inside"
    return {
        "target": target,
        "alignment": None if options.alignment is None else checked_alignment(options.alignment),
        "optimize": None if names is None else ",".join(names) or "none",
        "effort": options.effort,
        "preserve_inputs": inputs == "keep",
        "inputs": "inside" if inputs == "keep" else inputs,
        "outputs": options.outputs,
        "workspace": options.workspace,
        "capacity": checked_budget(options.budget),
        "parallel_safe": _checked_switch(options.parallel_safe, "parallel_safe"),
        "workers": _checked_workers(options.workers),
        "max_slowdown": None,
    }


def _checked_switch(given: object, name: str) -> bool:
    """Refuse values other than ``True`` and ``False``: any text would count as true."""
    if not isinstance(given, bool):
        raise InvalidOption(f"option {name}: {given!r} is neither True nor False")
    return given


def slowdown_of(options: PlanOptions) -> float:
    """
    Return how slow a plan may be; infinity if bytes alone count.

    Raises
    ------
    InvalidOption
        If that is no ratio to the fastest plan.
    """
    ratio = options.max_slowdown
    if ratio is None:
        return inf
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)):
        raise InvalidOption(f"max_slowdown is {ratio!r}, not a number")
    if not ratio >= 1:
        raise InvalidOption(f"option max_slowdown: {ratio} is not 1 or more")
    return float(ratio) if ratio < _MOST_SLOWDOWN else inf


def technique_names(optimize: str | Iterable[str], target: Target) -> list[str] | None:
    """
    Return the techniques that ``optimize`` names; None for all techniques of the target.

    A name after ``-`` removes a technique from the techniques before.

    Raises
    ------
    InvalidOption
        If a technique name is unknown.

    Examples
    --------
    >>> technique_names("all,-order", Target.known("nodes"))
    ['views', 'in-place', 'elision']
    """
    try:
        names = optimize.split(",") if isinstance(optimize, str) else list(optimize)
        names = [name.strip() for name in names]
    except (AttributeError, TypeError):
        raise InvalidOption(f"option optimize: {optimize!r} has no names of techniques") from None
    if "none" in names and len(names) > 1:
        raise InvalidOption("option optimize: 'none' stands alone; leave it out, or the others")
    out = {name[1:] for name in names if name.startswith("-")}
    kept = [name for name in names if not name.startswith("-") and name != "none"]
    known = _core.techniques()
    for name in sorted({*out, *kept} - {*known, *(["all"] if kept == ["all"] else [])}):
        raise InvalidOption(f"option optimize: there is no technique {name!r}{_meant(name, known)}")
    if kept == ["all"]:
        if not out:
            return None
        kept = list(target.techniques)
    return [name for name in kept if name not in out]


def _meant(name: object, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown name."""
    near = did_you_mean(name, known) if isinstance(name, str) else ""
    return near or f"; there are {', '.join(known)}"


def keeps_order(optimize: str | Iterable[str]) -> bool:
    """
    Return whether ``optimize`` keeps the given node order.

    Examples
    --------
    >>> [keeps_order(text) for text in ("all", "all,-order", "views", "none", "views,order")]
    [False, True, True, True, False]
    """
    names = set(optimize.split(",") if isinstance(optimize, str) else optimize)
    return "-order" in names or not names & {"all", "order"}


def checked_alignment(alignment: int) -> int:
    """Refuse anything but a 64-bit power of two."""
    alignment = whole_number(alignment, "alignment")
    if alignment <= 0 or alignment >= 1 << 64:
        raise fault("InvalidAlignment", f"alignment {alignment} is not a power of two up to 2^62")
    return alignment


def checked_budget(budget: int | str | None) -> int | None:
    """Return a byte count, from a number or a size; refuse anything else."""
    if budget is None:
        return None
    number = size_of(budget, "budget")
    if not 0 <= number < 1 << 64:
        raise fault("InvalidSize", f"budget {budget} is not a number of bytes from 0 to 2^64 - 1")
    return number


def _checked_workers(workers: int) -> int:
    """Refuse anything but a number of workers."""
    workers = whole_number(workers, "workers")
    if not 1 <= workers < 1 << 32:
        raise InvalidOption(f"option workers: {workers} is not a whole number of at least 1")
    return workers


def memory_rows(spaces: Sequence[Space], alignment: int) -> list[tuple[str, int | None, int, int]]:
    """
    Return memories in the core's form, with every default filled in.

    Raises
    ------
    InvalidOption, SizeError
        If there is no space, or a number in a space is out of range.
    """
    if not spaces:
        raise InvalidOption("option spaces: the list is empty; give at least one space")
    rows = []
    for position, space in enumerate(spaces):
        if not isinstance(space, Space):
            raise InvalidOption(
                f"option spaces: {space!r} is not a Space; give Spaces, or text like 'sram=64KiB'"
            )
        cost = position if space.cost is None else whole_number(space.cost, "cost")
        divisor = alignment if space.alignment is None else space.alignment
        divisor = whole_number(divisor, "alignment")
        capacity = space.capacity
        if capacity is not None:
            capacity = whole_number(capacity, "capacity")
            if not 0 <= capacity < 1 << 63:
                raise fault(
                    "InvalidSize", f"space {space.name!r}: {capacity} is not a number of bytes"
                )
        if not 0 <= cost < 1 << 63:
            raise InvalidOption(f"option spaces: {cost} is not a cost for space {space.name!r}")
        if not 0 < divisor < 1 << 63:
            raise fault("InvalidAlignment", f"alignment {divisor} is not a power of two up to 2^62")
        rows.append((space.name, capacity, divisor, cost))
    return rows


def targets() -> list[Target]:
    """
    Return the known targets, the most able first.

    Examples
    --------
    >>> import arenaplan as ap
    >>> [target.name for target in ap.targets()][:3]
    ['ideal', 'numpy', 'cupy']
    """
    return _core.targets()


def _documented() -> str:
    """Return the docstring for :class:`PlanOptions`, with a row per field."""
    rows = []
    for each in fields(PlanOptions):
        type_, help_ = get_args(_hints()[each.name])
        shown = str(type_).replace("typing.", "").replace("collections.abc.", "")
        rows.append(f"    {each.name} : {shown}, default {each.default!r}\n        {help_}.")
    return "\n".join([f"{PlanOptions.__doc__}\n", "    Parameters", "    ----------", *rows, ""])


PlanOptions.__doc__ = _documented()
