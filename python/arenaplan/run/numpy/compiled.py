"""
Compiled kernels: whether to use compiled kernels, and the array forms for them.

The extension has kernels where NumPy has no fast function (the Rust crate in ``kernels/``). A NumPy
kernel remains for every operator, as the reference and for nodes that the compiled kernel does not
run: other element types, varying weights, three-dimensional images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from arenaplan._core import WindowSide

if TYPE_CHECKING:
    from arenaplan.graph.ops.window_ops import Axis

_NO_SIDE = WindowSide(1, 1, 1, 1, 1, 0)


class _Switch:
    """Whether compiled kernels are used."""

    def __init__(self) -> None:
        self.is_on = True


_SWITCH = _Switch()


def is_enabled() -> bool:
    """Return whether kernels that are declared or prepared now may be compiled kernels."""
    return _SWITCH.is_on


@contextmanager
def disabled() -> Iterator[None]:
    """Use the kernels of NumPy alone, for all plans and executors that are made meanwhile."""
    before, _SWITCH.is_on = _SWITCH.is_on, False
    try:
        yield
    finally:
        _SWITCH.is_on = before


def side(axis: Axis) -> WindowSide:
    """Return one dimension of a window that slides over an image."""
    return WindowSide(axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.before)


def sides(axes: Sequence[Axis]) -> tuple[WindowSide, WindowSide]:
    """Return the two dimensions of a window that slides over images, or over lines."""
    return (_NO_SIDE, side(axes[0])) if len(axes) == 1 else (side(axes[0]), side(axes[1]))
