"""
The options of a plan: one table from which signatures, the command line and docs follow.

A field of :class:`PlanOptions` carries its help text and, where the command line has a flag for
it, the flag. ``None`` stands for the default of the target.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, TypedDict

from arenaplan import _core
from arenaplan._core import Target
from arenaplan.errors import InvalidAlignment, InvalidOption, InvalidSize
from arenaplan.spaces import Space

WorkspacePolicy: TypeAlias = Literal["none", "auto"]
Effort: TypeAlias = Literal["fast", "default", "max"]
InputMemory: TypeAlias = Literal["inside", "caller", "reuse"]
OutputMemory: TypeAlias = Literal["inside", "caller"]

_HELP: Final = "help"
_CHOICES: Final = "choices"


def _option(default: Any, help_: str, choices: Sequence[str] = ()) -> Any:
    """Return a field with its help text, for the docs and the command line."""
    return field(default=default, metadata={_HELP: help_, _CHOICES: tuple(choices)})


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """The options of :func:`arenaplan.plan`; every field has a default."""

    target: str | Target | None = _option(
        None,
        "runner that the plan is for, by name or description; by default the one that the graph's "
        "format has: numpy for ONNX, tflm for TFLite, executorch for .pt2, nodes for graphs that "
        "are built by hand",
    )
    alignment: int | None = _option(
        None, "power of two, in bytes, that divides every offset; by default the target's"
    )
    optimize: str | Iterable[str] = _option(
        "all",
        "techniques: all that the target honors, none, or some of views, in-place, elision, "
        "fusion, order, streaming and overlap",
    )
    effort: Effort = _option(
        "default",
        "work for the choice of fused groups and order: milliseconds, up to a second or two, or "
        "up to a minute or two",
        ("fast", "default", "max"),
    )
    in_place: bool = _option(
        True, "False leaves out in-place: no output takes over the bytes of a dying input"
    )
    order: Literal["search", "given"] = _option(
        "search",
        "look for a better order of the nodes, where the target runs another one, or keep the one "
        "that is given",
        ("search", "given"),
    )
    preserve_inputs: bool = _option(False, "keep the bytes of graph inputs until the end of a run")
    inputs: InputMemory = _option(
        "inside",
        "memory of graph inputs: the arena; a read-only buffer of the caller; or, with reuse, the "
        "arena, where results may overwrite them",
        ("inside", "caller", "reuse"),
    )
    outputs: OutputMemory = _option(
        "inside",
        "memory of graph outputs: the arena or a buffer of the caller, which then also holds the "
        "values that the output takes over, shows or is joined from",
        ("inside", "caller"),
    )
    workspace: WorkspacePolicy | None = _option(
        None,
        "scratch memory of kernels: none, or auto to place each buffer in the cheapest size that "
        "does not raise the peak; by default auto where the target declares it before planning",
        ("none", "auto"),
    )
    capacity: int | None = _option(None, "bytes that the arena may have at most")
    parallel_safe: bool = _option(
        False, "be safe in every order that the graph permits, so that nodes may run in parallel"
    )
    spaces: str | Sequence[Space] | None = _option(
        None,
        "memories to place values in, such as sram=64KiB,psram=8MiB, fastest first; each value "
        "goes where moving its bytes costs least",
    )
    pins: Mapping[str, str] | None = _option(
        None, "memory of values by pattern of their names, such as logits*"
    )


class PlanKeywords(TypedDict, total=False):
    """The fields of :class:`PlanOptions` as keyword arguments, for type checkers."""

    target: str | Target | None
    alignment: int | None
    optimize: str | Iterable[str]
    effort: Effort
    in_place: bool
    order: Literal["search", "given"]
    preserve_inputs: bool
    inputs: InputMemory
    outputs: OutputMemory
    workspace: WorkspacePolicy | None
    capacity: int | None
    parallel_safe: bool
    spaces: str | Sequence[Space] | None
    pins: Mapping[str, str] | None


def option_help(name: str) -> str:
    """Return the help text of an option."""
    metadata = {each.name: each.metadata for each in fields(PlanOptions)}
    return str(metadata[name][_HELP])


def option_choices(name: str) -> tuple[str, ...]:
    """Return the values that an option may have; empty if they cannot be listed."""
    metadata = {each.name: each.metadata for each in fields(PlanOptions)}
    return tuple(metadata[name][_CHOICES])


def resolve(options: PlanOptions | None, overrides: PlanKeywords) -> PlanOptions:
    """
    Return ``options`` with ``overrides``.

    Raises
    ------
    TypeError
        If there is no option of a name.
    """
    known = {each.name for each in fields(PlanOptions)}
    for name in overrides:
        if name not in known:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(sorted(known))}")
    given = {} if options is None else {name: getattr(options, name) for name in known}
    return PlanOptions(**{**given, **overrides})


def target_of(options: PlanOptions, default: str) -> Target:
    """Return the target that the options name, or the one called ``default``."""
    target = default if options.target is None else options.target
    return target if isinstance(target, Target) else Target.known(target)


def core_options(options: PlanOptions, target: Target) -> dict[str, object]:
    """
    Return options as the core reads them: None is the target's default.

    Raises
    ------
    InvalidAlignment, InvalidSize
        If a number cannot be an alignment or a number of bytes.
    """
    names = technique_names(options.optimize)
    return {
        "target": target,
        "alignment": None if options.alignment is None else checked_alignment(options.alignment),
        "optimize": None if names is None else ",".join(names) or "none",
        "in_place": options.in_place,
        "order": options.order,
        "effort": options.effort,
        "preserve_inputs": options.preserve_inputs,
        "inputs": options.inputs,
        "outputs": options.outputs,
        "workspace": options.workspace,
        "capacity": _checked_capacity(options.capacity),
        "parallel_safe": options.parallel_safe,
    }


def technique_names(optimize: str | Iterable[str]) -> list[str] | None:
    """Return the techniques that ``optimize`` names; None for all that the target honors."""
    names = optimize.split(",") if isinstance(optimize, str) else list(optimize)
    return None if names == ["all"] else [name for name in names if name != "none"]


def checked_alignment(alignment: int) -> int:
    """Refuse what cannot be a power of two of 64 bits."""
    alignment = whole_number(alignment, "alignment")
    if alignment <= 0 or alignment >= 1 << 64:
        raise InvalidAlignment(f"alignment {alignment} is not a power of two up to 2^62")
    return alignment


def _checked_capacity(capacity: int | None) -> int | None:
    """Refuse what cannot be a number of bytes."""
    if capacity is None:
        return None
    capacity = whole_number(capacity, "capacity")
    if not 0 <= capacity < 1 << 64:
        raise InvalidSize(f"capacity {capacity} is no number of bytes")
    return capacity


def memory_rows(spaces: Sequence[Space], alignment: int) -> list[tuple[str, int | None, int, int]]:
    """
    Return memories as the core takes them, with every default filled in.

    Raises
    ------
    InvalidOption, InvalidSize, InvalidAlignment
        If there is no space, or a number of one cannot be what it is meant to be.
    """
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
    return rows


def whole_number(number: object, what: str) -> int:
    """Return ``number`` as an int, refusing booleans and fractions."""
    if isinstance(number, bool):
        raise TypeError(f"{what} is {number!r}, not a whole number")
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is {number!r}, not a whole number") from None


def targets() -> list[Target]:
    """
    Return the targets that are known, those that can do most first.

    Examples
    --------
    >>> import arenaplan as ap
    >>> [target.name for target in ap.targets()][:3]
    ['ideal', 'numpy', 'nodes']
    """
    return _core.targets()


def _documented() -> str:
    """Return the docstring of :class:`PlanOptions`, with a row per field."""
    rows = [
        f"    {each.name} : {each.type}\n        {each.metadata[_HELP]}."
        for each in fields(PlanOptions)
    ]
    return "\n".join(
        [f"{PlanOptions.__doc__}", "", "    Parameters", "    ----------", *rows, "    "]
    )


PlanOptions.__doc__ = _documented()
