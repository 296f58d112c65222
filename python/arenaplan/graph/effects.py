"""Node effects on memory: permissions and facts for the planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple


class InPlace(NamedTuple):
    """
    Permission for an output to take over an input's bytes.

    The node must read the input elementwise at the output's full shape, so that input element *i*
    is read before output element *i* is written.
    """

    input: int
    """Position among the node's inputs."""
    output: int
    """Position among the node's outputs."""
    identity: bool = False
    """Whether the output's bytes equal the input's."""


class View(NamedTuple):
    """
    An output that shows input bytes unchanged, or the reverse.

    Views are permissions: a planner may share the bytes, and otherwise the node copies.
    """

    input: int
    """Position among the node's inputs."""
    output: int
    """Position among the node's outputs."""
    offset: int = 0
    """First byte of the smaller value inside the larger value."""
    of: Literal["input", "output"] = "input"
    """
    Which value is larger: ``"input"`` for a slice or reshape, ``"output"`` for a concatenation's
    operand.
    """


class Flow(NamedTuple):
    """
    An output that a node can make piece by piece, and never needs whole.

    Cut the output, and each followed input, into ``pieces`` equal runs of adjacent elements. For
    output piece *i*, the node needs piece *i* from the followed inputs, and all other inputs whole.
    An elementwise node has a piece per element and follows the full-size operands. A matrix product
    has a piece per row and follows the left operand. A convolution can make any piece, but follows
    nothing.
    """

    output: int
    """Position among the node's outputs."""
    pieces: int
    """Number of equal pieces."""
    follows: tuple[int, ...] = ()
    """Positions of the inputs that are needed piece by piece, too."""


class Overlap(NamedTuple):
    """
    An output that is made in order, and an input that is used up on the way.

    The node makes the output from the first byte to the last. After writing the first
    *k* bytes, the node needs no input byte before byte *k* - ``distance`` any more. So output and
    input may overlap, if the input begins at least ``distance`` bytes behind the output's start.
    """

    input: int
    """Position among the node's inputs."""
    output: int
    """Position among the node's outputs."""
    distance: int = 0
    """Bytes by which writing is ahead of reading, at most."""


class Window(NamedTuple):
    """
    An output whose rows can be made from some rows of an input: a window that slides.

    Rows are indices along a dimension common to output and input. Output rows *a* up to *b* are
    made from the input rows from ``(a * stride - before) // scale`` up to and including ``((b - 1)
    * stride - before + extent - 1) // scale``, as far as the input has such rows. An input without
    a window is needed whole.
    """

    input: int
    """Position among the node's inputs."""
    output: int
    """Position among the node's outputs."""
    axis: int
    """The dimension that rows are counted along."""
    extent: int = 1
    """Rows under the window, from the first to the last."""
    stride: int = 1
    """Rows by which the window moves from an output row to the next."""
    before: int = 0
    """Rows by which the first window begins before the input."""
    scale: int = 1
    """Window steps in an input row."""

    @property
    def is_pointwise(self) -> bool:
        """True if each output row needs only the same input row."""
        return (self.extent, self.stride, self.before, self.scale) == (1, 1, 0, 1)

    def needs(self, made: tuple[int, int], rows: int) -> tuple[int, int]:
        """
        Return the input rows needed for some output rows.

        Parameters
        ----------
        made : tuple of int
            First output row, and the row after the last.
        rows : int
            Number of input rows.

        Examples
        --------
        >>> import arenaplan as ap
        >>> ap.Window(0, 0, axis=1, extent=3, stride=2, before=1).needs((2, 4), rows=8)
        (3, 8)
        """
        start = (made[0] * self.stride - self.before) // self.scale
        stop = ((made[1] - 1) * self.stride - self.before + self.extent - 1) // self.scale + 1
        start, stop = min(max(start, 0), rows), min(max(stop, 0), rows)
        return start, max(start, stop)


class Choice(NamedTuple):
    """A workspace size that a node can work with."""

    bytes: int
    """Size in bytes."""
    cost: float = 0.0
    """Relative cost of a run with this size; lower is better."""


class Effects(NamedTuple):
    """A node's effects on memory."""

    in_place: tuple[InPlace, ...] = ()
    """Outputs that may take over a dying input's bytes."""
    views: tuple[View, ...] = ()
    """Outputs that show an input's bytes, or inputs that are pieces of an output."""
    ignores: tuple[int, ...] = ()
    """Positions of inputs whose bytes are never read (only the shape is)."""
    mutates: tuple[int, ...] = ()
    """Positions of inputs that the node writes; each must be a state."""
    workspaces: tuple[tuple[Choice, ...], ...] = ()
    """The node's scratch buffers, each with a choice of sizes."""
    flows: tuple[Flow, ...] = ()
    """Outputs that can be made in pieces, so that the node can be fused."""
    loads: tuple[int, ...] = ()
    """
    Positions of inputs that the node copies to scratch memory before computing: elementwise
    producers can be applied on the way.
    """
    overlaps: tuple[Overlap, ...] = ()
    """
    Outputs made in order, which may overlap a dying input. Overlaps that follow from ``flows`` need
    not be declared.
    """
    windows: tuple[Window, ...] = ()
    """
    Outputs whose rows can be made from some input rows, so that the node can run strip by strip
    with other nodes.
    """
    repeats: bool = False
    """
    Whether the node may run again in each fused group that reads the output, so that the inputs are
    kept and not the output: for cheap nodes with outputs larger than their inputs.
    """
    pure: bool = False
    """
    Whether every run on equal operands makes equal bytes and has no other effect, so that a plan
    may run the node again instead of keeping an output. A node that draws random numbers without a
    key, or does input or output, is not pure.
    """


NO_EFFECTS = Effects()


def effects_of(row: Mapping[str, Any]) -> Effects:
    """Return the effects that a graph file states for a node."""
    return Effects(
        tuple(InPlace(**pair) for pair in row.get("in_place", ())),
        tuple(View(**view) for view in row.get("views", ())),
        tuple(row.get("ignores", ())),
        tuple(row.get("mutates", ())),
        tuple(
            tuple(Choice(**choice) for choice in workspace["choices"])
            for workspace in row.get("workspaces", ())
        ),
        tuple(
            Flow(flow["output"], flow["pieces"], tuple(flow["follows"]))
            for flow in row.get("flows", ())
        ),
        tuple(row.get("loads", ())),
        tuple(Overlap(**overlap) for overlap in row.get("overlaps", ())),
        tuple(Window(**window) for window in row.get("windows", ())),
        bool(row.get("repeats", False)),
        bool(row.get("pure", False)),
    )
