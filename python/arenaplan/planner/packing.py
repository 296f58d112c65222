"""Packing buffers without a graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from arenaplan import _core
from arenaplan._core import Packing
from arenaplan.base.amounts import size_of, whole_number
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.base.html_tables import html_table
from arenaplan.base.progress import Progress, checked_seconds
from arenaplan.planner.spaces import Space

_MOST_BYTES = 1 << 63
_MOST_STEPS = 1 << 32


Range = tuple[int, int]
Gap = tuple[int, int] | tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Buffer:
    """
    A buffer in a :class:`Problem`.

    Attributes
    ----------
    size : int or str
        Bytes, such as ``1024`` or ``"1KiB"``.
    live : tuple of int
        Half-open live range ``(start, end)``, in steps of any size and sign.
    alignment : int
        Number that divides the offset; need not be a power of two.
    offset : int, optional
        Required offset.
    hint : int, optional
        Offset that is tried first.
    gaps : sequence of tuple
        ``(start, end)``: steps in which no byte is needed; ``(start, end, low, high)``: steps in
        which only bytes ``low`` to ``high`` are needed.
    lo, hi : int, optional
        The buffer may only lie in bytes ``lo`` to ``hi`` of the space.
    group : hashable, optional
        Buffers in the same group have the same offset.
    space : str, optional
        Name of the buffer's space; by default the first space.
    spaces : sequence of str
        In place of ``space``: names of the permitted spaces. The search chooses;
        ``Packing.buffer_spaces`` has the choice.
    name : str
        For people.

    Examples
    --------
    >>> import arenaplan as ap
    >>> ap.Buffer(64, (0, 2), alignment=20).alignment
    20
    """

    size: int | str
    live: Range
    alignment: int = 1
    offset: int | None = None
    hint: int | None = None
    gaps: Sequence[Gap] = ()
    lo: int | None = None
    hi: int | None = None
    group: Hashable = None
    space: str | None = None
    spaces: Sequence[str] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Repacking:
    """
    A packing compared with an old packing.

    Attributes
    ----------
    packing : Packing
        The packing.
    moved : list of int
        Indices of the buffers that are not at the old offsets.
    peak_of_staying : int
        Peak if only buffers move that must. Staying costs the difference to the packing's peak.
    """

    packing: Packing
    moved: list[int]
    peak_of_staying: int


@dataclass(frozen=True)
class Problem:
    """
    Buffers to be given offsets, so that buffers live at the same time share no byte.

    Attributes
    ----------
    buffers : sequence of Buffer
        The buffers.
    capacity : int, optional
        Arena bytes. A search ends as soon as everything fits; without a capacity, the search goes
        for the least peak.
    spaces : sequence of Space
        Several memories, in place of ``capacity``. Where buffers may be in several spaces, the
        search looks for the fewest total bytes within the capacities. If each space has a
        capacity, the search ends as soon as everything fits.
    may_overlap : sequence of tuple
        Pairs of buffers (positions) that may share bytes although both are live: an output over the
        inputs that the output replaces.
    apart : sequence of tuple
        Pairs of buffers that share no byte although never live together.
    separate : sequence of tuple
        Pairs of buffers that are in different spaces, such as two operands that are read in the
        same cycle, each from a separate bank.
    reserved : sequence of tuple, or mapping of str to such a sequence
        Byte ranges ``(start, end)`` that no buffer has; with several spaces, by space name.

    Examples
    --------
    >>> import arenaplan as ap
    >>> inputs = [ap.Buffer(100, (0, 2)), ap.Buffer(120, (0, 2))]
    >>> problem = ap.Problem([*inputs, ap.Buffer(200, (1, 3))], may_overlap=[(0, 2), (1, 2)])
    >>> problem.pack().peak
    220
    >>> operands = [ap.Buffer(size, (0, 2), spaces=["x", "y"]) for size in (60, 100)]
    >>> banks = [ap.Space("x", capacity=128), ap.Space("y", capacity=64)]
    >>> ap.Problem(operands, spaces=banks, separate=[(0, 1)]).pack().buffer_spaces
    [1, 0]
    """

    buffers: Sequence[Buffer]
    capacity: int | None = None
    spaces: Sequence[Space] = ()
    may_overlap: Sequence[tuple[int, int]] = ()
    apart: Sequence[tuple[int, int]] = ()
    separate: Sequence[tuple[int, int]] = ()
    reserved: Sequence[Range] | Mapping[str, Sequence[Range]] = ()

    def _repr_html_(self) -> str:
        rows = (
            (index, it.name, it.size, f"{it.live[0]}..{it.live[1]}")
            for index, it in enumerate(self.buffers)
        )
        caption = f"{len(self.buffers):,} buffers"
        return html_table(caption, ["", "buffer", "bytes", "live in steps"], rows)

    @typed
    def pack(
        self,
        *,
        time_limit: float | None = None,
        node_limit: int | None = None,
        seed: int = 0,
        compact: bool = False,
        on_progress: Progress | None = None,
    ) -> Packing:
        """
        Return the best packing found; see :func:`pack` for the limits and ``compact``.

        Raises
        ------
        SizeError, ArenaError, PackingError
            If the buffers are invalid; ``PinConflict``, too, if no offsets obey all rules.
        InvalidOption
            If a limit or the seed is invalid.
        KeyboardInterrupt
            On Ctrl-C; the exception's ``packing`` is the best so far.
        """
        limits = check_limits(time_limit, node_limit, seed)
        return _packed(self._columns(), limits, compact, on_progress)

    def infeasible_subset(self, space: str | None = None) -> list[int] | None:
        """
        Return a minimal set of buffers that do not fit a space: the proof needs each buffer.

        Parameters
        ----------
        space : str, optional
            Space name; by default the first space.

        Returns
        -------
        list of int or None
            Positions of the buffers; None without a proof that the space is too small.

        Examples
        --------
        >>> import arenaplan as ap
        >>> sizes, live = [60, 10, 50, 90], [(0, 2), (0, 2), (1, 3), (5, 6)]
        >>> buffers = [ap.Buffer(*pair) for pair in zip(sizes, live, strict=True)]
        >>> ap.Problem(buffers, capacity=100).infeasible_subset()
        [0, 2]
        """
        columns = self._columns()
        names = [described[0] for described in columns["spaces"]]
        if space is not None and space not in names:
            raise InvalidOption(f"there is no space {space!r}, only {', '.join(names)}")
        return _core.pack_blame(columns, names.index(space) if space is not None else 0)

    @typed
    def repack(self, old: Sequence[int | None], *, seed: int = 0) -> Repacking:
        """
        Pack again after the problem has changed, so that few buffers leave the old offsets.

        The peak is at most the peak from :meth:`pack`, or at most the capacity if achievable.

        Parameters
        ----------
        old : sequence of int or None
            Each buffer's old offset; None for new buffers.
        seed : int, default 0
            Seed for all random choices.

        Returns
        -------
        Repacking
            The packing, the moved buffers, and the peak if only buffers move that must.

        Examples
        --------
        >>> import arenaplan as ap
        >>> grown = [ap.Buffer(12, (0, 2)), ap.Buffer(8, (1, 4)), ap.Buffer(8, (3, 5))]
        >>> again = ap.Problem(grown).repack([0, 8, 0])
        >>> again.packing.peak, again.moved
        (20, [1])
        """
        columns = self._columns()
        if len(old) != len(self.buffers):
            counts = f"there are {len(old)} old offsets and {len(self.buffers)} buffers"
            raise fault("InvalidBuffer", counts)
        return Repacking(*_core.pack_again(columns, _pins(old, len(old)), _natural(seed, "seed")))

    def _columns(self) -> dict[str, Any]:
        """Return the problem in the form that the core reads."""
        buffers = list(self.buffers)
        live = [_pair(index, buffer.live) for index, buffer in enumerate(buffers)]
        gaps = {
            index: [_gap(index, gap) for gap in buffer.gaps]
            for index, buffer in enumerate(buffers)
            if len(buffer.gaps)
        }
        live, gaps = _numbered(live, gaps)
        sizes = _sizes(buffer.size for buffer in buffers)
        groups: dict[Hashable, int] = {}
        spaces = self._spaces()
        places = {described[0]: place for place, described in enumerate(spaces)}
        details: dict[str, Any] = {
            "gaps": gaps,
            "ranges": {
                index: _bytes_of(index, buffer.lo, buffer.hi)
                for index, buffer in enumerate(buffers)
                if buffer.lo is not None or buffer.hi is not None
            },
            "groups": {
                index: groups.setdefault(buffer.group, len(groups))
                for index, buffer in enumerate(buffers)
                if buffer.group is not None
            },
            "spaces": {
                index: [_place(index, name, places) for name in _spaces_of(index, buffer)]
                for index, buffer in enumerate(buffers)
                if buffer.space is not None or len(buffer.spaces)
            },
            "may_overlap": _pairs(self.may_overlap, len(buffers)),
            "apart": _pairs(self.apart, len(buffers)),
            "separate": _pairs(self.separate, len(buffers)),
        }
        return {
            "sizes": sizes,
            "live": live,
            "alignments": _alignments([buffer.alignment for buffer in buffers], len(buffers)),
            "pins": _pins([buffer.offset for buffer in buffers], len(buffers)),
            "hints": _pins([buffer.hint for buffer in buffers], len(buffers)),
            "details": details,
            "spaces": spaces,
        }

    def _spaces(self) -> list[Described]:
        """Return name, capacity, alignment and reserved bytes for each space."""
        capacity = check_capacity(self.capacity)
        if self.spaces and capacity is not None:
            raise InvalidOption("option capacity: the spaces have capacities of their own")
        spaces = list(self.spaces) or [Space("arena", capacity=capacity)]
        if len({space.name for space in spaces}) < len(spaces):
            raise InvalidOption("option spaces: two of them have the same name")
        reserved = self.reserved
        if not isinstance(reserved, Mapping):
            reserved = {spaces[0].name: reserved}
        for name in reserved:
            if name not in {space.name for space in spaces}:
                raise InvalidOption(f"option reserved: there is no space {name!r}")
        return [describe(space, reserved.get(space.name, ())) for space in spaces]


Described = tuple[str, int | None, int, list[Range]]


def describe(space: Space, reserved: Iterable[Range]) -> Described:
    """Return a space in the core's form: name, capacity, alignment and reserved bytes."""
    capacity = check_capacity(space.capacity)
    alignment = 1 if space.alignment is None else space.alignment
    if not 0 < alignment <= 1 << 62:
        raise fault("InvalidAlignment", f"alignment {alignment} is not a number from 1 to 2^62")
    return space.name, capacity, alignment, [_reserved(zone) for zone in reserved]


@typed
def pack(
    sizes: Iterable[int | str],
    live: Iterable[Sequence[int]],
    *,
    alignment: int | Sequence[int] = 1,
    capacity: int | str | None = None,
    pins: Mapping[int, int] | Sequence[int | None] | None = None,
    hints: Mapping[int, int] | Sequence[int | None] | None = None,
    gaps: Mapping[int, Sequence[Gap]] | None = None,
    ranges: Mapping[int, Range] | None = None,
    groups: Mapping[int, Hashable] | None = None,
    may_overlap: Sequence[tuple[int, int]] = (),
    apart: Sequence[tuple[int, int]] = (),
    reserved: Sequence[Range] = (),
    time_limit: float | None = None,
    node_limit: int | None = None,
    seed: int = 0,
    compact: bool = False,
    on_progress: Progress | None = None,
) -> Packing:
    """
    Place buffers in one arena so that buffers live at the same time share no byte.

    :class:`Problem` does the same for buffers as objects, and for several spaces.

    Parameters
    ----------
    sizes : array_like of int, shape (n,)
        Size per buffer, in bytes.
    live : array_like of int, shape (n, 2)
        Half-open live range ``[start, end)`` per buffer, in steps of any size and sign.
    alignment : int or sequence of int, default 1
        Number, in bytes, that divides every offset; or a number for each buffer. Need not be a
        power of two.
    capacity : int, optional
        Arena bytes. The search ends as soon as everything fits; without a capacity, the search
        goes for the least peak.
    pins : mapping of int to int, or sequence of int or None, optional
        Offsets for buffers that may not be moved.
    hints : mapping of int to int, or sequence of int or None, optional
        Offsets that are tried first.
    gaps : mapping of int to sequence of tuple, optional
        By buffer: steps ``(start, end)`` in which the buffer is not needed, or
        ``(start, end, low, high)`` in which only these bytes are needed.
    ranges : mapping of int to tuple, optional
        By buffer: arena bytes ``(low, high)`` that the buffer may have.
    groups : mapping of int to hashable, optional
        Buffers in the same group have the same offset.
    may_overlap, apart : sequence of tuple of int
        Pairs of buffers that may share bytes although both are live, and pairs that never do.
    reserved : sequence of tuple of int
        Bytes ``(start, end)`` that no buffer has.
    time_limit : float, optional
        Seconds after which the best packing so far is returned.
    node_limit : int, optional
        Search nodes after which the best packing so far is returned, independent of the machine.
    seed : int, default 0
        Seed for all random choices.
    compact : bool, default False
        Finally move buffers down, each to the lowest offset that the other buffers leave free,
        until none can move alone. The peak stays or falls; few bytes high in the arena are touched.
    on_progress : callable, optional
        Called with a dictionary (``stage``, ``seconds``, ``peak``, ``lower_bound``, ``nodes``)
        for each improvement. To stop with the best packing so far, return ``False``.

    Returns
    -------
    Packing
        ``offsets[i]``, buffer ``i``'s first byte; ``peak``, arena bytes;
        ``lower_bound``, bytes that no packing can do without; and ``status``:
        ``"optimal"``; ``"feasible"``; ``"infeasible"`` with a proof that nothing fits
        ``capacity``; or ``"unknown"`` if no fitting packing was found. The last two
        come with the best packing found.

    Raises
    ------
    SizeError, ArenaError, PackingError
        If the buffers are invalid; ``PinConflict``, too, if no offsets obey all rules.
    InvalidOption
        If a limit or the seed is invalid.
    KeyboardInterrupt
        On Ctrl-C; the exception's ``packing`` is the best so far.

    Examples
    --------
    >>> import arenaplan as ap
    >>> packing = ap.pack([100, 60, 100], [(0, 2), (1, 3), (2, 4)])
    >>> packing.offsets, packing.peak, packing.status
    ([0, 100, 0], 160, 'optimal')
    """
    numbers = _sizes(_plain(sizes))
    steps = [_pair(index, pair) for index, pair in enumerate(_plain(live))]
    count = len(numbers)
    if count != len(steps):
        raise fault("InvalidSize", f"there are {count} sizes and {len(steps)} live ranges")
    steps, holes = _numbered(
        steps,
        {
            _known(index, count, "gaps"): [_gap(index, gap) for gap in some]
            for index, some in (gaps or {}).items()
        },
    )
    numbering: dict[Hashable, int] = {}
    details: dict[str, Any] = {
        "gaps": holes,
        "ranges": {
            _known(index, count, "ranges"): _bytes_of(index, *pair)
            for index, pair in (ranges or {}).items()
        },
        "groups": {
            _known(index, count, "groups"): numbering.setdefault(group, len(numbering))
            for index, group in (groups or {}).items()
        },
        "spaces": {},
        "may_overlap": _pairs(may_overlap, count),
        "apart": _pairs(apart, count),
        "separate": [],
    }
    columns = {
        "sizes": numbers,
        "live": steps,
        "alignments": _alignments(alignment, count),
        "pins": _pins(pins, count),
        "hints": _pins(hints, count),
        "details": details,
        "spaces": [("arena", check_capacity(capacity), 1, [_reserved(it) for it in reserved])],
    }
    limits = check_limits(time_limit, node_limit, seed)
    return _packed(columns, limits, compact, on_progress)


def _packed(
    columns: dict[str, Any], limits: SearchLimits, compact: bool, on_progress: Progress | None
) -> Packing:
    """Return the best packing found; Ctrl-C raises with that packing."""
    packing = _core.pack(columns, **limits, compact=bool(compact), on_progress=on_progress)
    if packing.interrupted:
        interrupt = KeyboardInterrupt("interrupted")
        interrupt.packing = packing  # type: ignore[attr-defined]
        raise interrupt
    return packing


class SearchLimits(TypedDict):
    """Search limits."""

    time_limit: float | None
    node_limit: int | None
    seed: int


def check_limits(time_limit: float | None, node_limit: int | None, seed: int) -> SearchLimits:
    """Return the search limits, or raise an error if a limit is invalid."""
    seconds = checked_seconds(time_limit)
    return {
        "time_limit": seconds,
        "node_limit": None if node_limit is None else _natural(node_limit, "node_limit"),
        "seed": _natural(seed, "seed"),
    }


def check_capacity(capacity: int | str | None) -> int | None:
    """Return a capacity, or raise an error if the capacity is invalid."""
    if capacity is None:
        return None
    capacity = size_of(capacity, "capacity")
    if not 0 <= capacity < 1 << 64:
        raise fault("InvalidSize", f"capacity {capacity} is no number of bytes")
    return capacity


def _plain(values: Iterable[Any]) -> Iterable[Any]:
    """Return an array's values as Python numbers, which are faster to iterate over."""
    to_list = getattr(values, "tolist", None)
    return values if to_list is None else to_list()


def _sizes(sizes: Iterable[int | str]) -> list[int]:
    """Return sizes in bytes."""
    numbers = [size_of(size, "a size") for size in sizes]
    for index, size in enumerate(numbers):
        if not 0 <= size < _MOST_BYTES:
            raise fault("InvalidSize", f"buffer {index} has {size} bytes")
    return numbers


def _pair(index: int, pair: Sequence[int]) -> Range:
    """Return a live range with steps of any size."""
    if len(pair) != 2:
        raise fault(
            "InvalidLiveRange",
            f"the live range of buffer {index} is {pair!r}, not (start, end)",
        )
    start, end = (whole_number(step, "a step") for step in pair)
    if start >= end:
        raise fault("InvalidLiveRange", f"the live range {start}..{end} of buffer {index} is empty")
    return start, end


def _gap(index: int, gap: Gap) -> tuple[int, int, int, int]:
    """Return steps, and the bytes that stay needed during these steps."""
    numbers = [whole_number(number, "a gap") for number in gap]
    if len(numbers) == 2:
        numbers += [0, 0]
    if len(numbers) != 4:
        raise fault("InvalidBuffer", f"buffer {index}: gap {gap!r} has neither 2 nor 4 numbers")
    start, end, low, high = numbers
    if start >= end or not 0 <= low <= high < _MOST_BYTES:
        raise fault(
            "InvalidBuffer",
            f"buffer {index}: gap {gap!r} has no steps, or bytes that do not exist",
        )
    return start, end, low, high


def _numbered(
    live: list[Range], gaps: dict[int, list[tuple[int, int, int, int]]]
) -> tuple[list[Range], dict[int, list[tuple[int, int, int, int]]]]:
    """Return live ranges and gaps; if a step does not fit the core, ranks replace all steps."""
    least = min((start for start, _ in live), default=0)
    most = max((end for _, end in live), default=0)
    clipped = {
        index: [gap for gap in some if gap[0] < most and gap[1] > least]
        for index, some in gaps.items()
    }
    every = [step for gaps in clipped.values() for gap in gaps for step in gap[:2]]
    if min([least, *every]) >= 0 and max([most, *every]) < _MOST_STEPS:
        return live, clipped
    every += [step for pair in live for step in pair]
    rank = {step: place for place, step in enumerate(sorted(set(every)))}
    return [(rank[start], rank[end]) for start, end in live], {
        index: [(rank[start], rank[end], low, high) for start, end, low, high in some]
        for index, some in clipped.items()
    }


def _known(index: int, count: int, what: str) -> int:
    """Return a buffer's position."""
    index = whole_number(index, "a buffer")
    if not 0 <= index < count:
        raise fault("InvalidBuffer", f"{what} has buffer {index}, and there are {count} buffers")
    return index


def _bytes_of(index: int, low: int | None, high: int | None) -> Range:
    """Return the bytes that a buffer may have."""
    low = 0 if low is None else whole_number(low, "lo")
    high = _MOST_BYTES - 1 if high is None else whole_number(high, "hi")
    if not 0 <= low <= high < _MOST_BYTES:
        raise fault("InvalidBuffer", f"buffer {index}: {low}..{high} are no bytes")
    return low, high


def _reserved(zone: Range) -> Range:
    """Return bytes that no buffer has."""
    if len(zone) != 2:
        raise InvalidOption(f"option reserved: {zone!r} is not (start, end)")
    low, high = (whole_number(byte, "a reserved byte") for byte in zone)
    if not 0 <= low < high < _MOST_BYTES:
        raise InvalidOption(f"option reserved: {low}..{high} are no bytes")
    return low, high


def _pairs(pairs: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Return pairs of buffer indices."""
    each = []
    for pair in pairs:
        if len(pair) != 2:
            raise fault("InvalidBuffer", f"a rule names {len(pair)} buffers, not two")
        one, other = pair
        each.append((_known(one, count, "a rule"), _known(other, count, "a rule")))
    return each


def _spaces_of(index: int, buffer: Buffer) -> Sequence[str]:
    """Return the space names that a buffer may be in."""
    if isinstance(buffer.spaces, str):
        raise fault("InvalidBuffer", f"buffer {index}: spaces is a text, not a sequence of names")
    if buffer.space is None:
        return buffer.spaces
    if len(buffer.spaces):
        raise fault("InvalidBuffer", f"buffer {index}: there are both a space and spaces")
    return [buffer.space]


def _place(index: int, space: str, places: Mapping[str, int]) -> int:
    """Return a space's number."""
    if space not in places:
        raise fault(
            "InvalidBuffer", f"buffer {index}: it is in space {space!r}, which is not there"
        )
    return places[space]


def _alignments(alignment: int | Sequence[int], count: int) -> list[int]:
    """Return an alignment for each buffer."""
    if isinstance(alignment, int) or not hasattr(alignment, "__len__"):
        each = [whole_number(alignment, "alignment")] * count
    else:
        each = [whole_number(value, "an alignment") for value in _plain(alignment)]
        if len(each) != count:
            raise fault("InvalidAlignment", f"there are {len(each)} alignments and {count} buffers")
    for value in each:
        if not 0 < value <= 1 << 62:
            raise fault("InvalidAlignment", f"alignment {value} is not a number from 1 to 2^62")
    return each


def _pins(pins: Mapping[int, int] | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return each buffer's pinned offset, or None."""
    each: list[int | None] = [None] * count
    if pins is None:
        return each
    if not isinstance(pins, Mapping):
        if len(pins) != count:
            raise fault("PinConflict", f"there are {len(pins)} pins and {count} buffers")
        pins = {index: offset for index, offset in enumerate(pins) if offset is not None}
    for index, offset in pins.items():
        index, offset = whole_number(index, "a pinned buffer"), whole_number(offset, "a pin")
        if not 0 <= index < count:
            raise fault("PinConflict", f"buffer {index} is pinned, and there are {count} buffers")
        if not 0 <= offset < _MOST_BYTES:
            raise fault(
                "PinConflict", f"buffer {index} is pinned to offset {offset}, past any memory"
            )
        each[index] = offset
    return each


def _natural(number: int, what: str) -> int:
    """Return a 64-bit whole number."""
    number = whole_number(number, what)
    if not 0 <= number < 1 << 64:
        raise InvalidOption(f"option {what}: {number} is negative or does not fit 64 bits")
    return number
