"""New dimension sizes, carried from one value to all values that must change, too."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final, NamedTuple

from arenaplan.graph import Graph, Node, Value


class CannotEdit(Exception):
    """The sizes cannot be changed as requested, or not by known rules."""


class _Kind(NamedTuple):
    """How an operator relates sizes."""

    name: str
    """``"conv"``, ``"dense"``, ``"channelwise"``, ``"concat"``, ``"reshape"`` or ``"transpose"``"""


_CONV, _DENSE, _CHANNELWISE = _Kind("conv"), _Kind("dense"), _Kind("channelwise")
_CONCAT, _RESHAPE, _TRANSPOSE = _Kind("concat"), _Kind("reshape"), _Kind("transpose")

_KINDS: Final = {
    **dict.fromkeys(("Conv", "ConvTranspose", "CONV_2D", "TRANSPOSE_CONV", "convolution"), _CONV),
    **dict.fromkeys(("Gemm", "MatMul", "FULLY_CONNECTED"), _DENSE),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), _CHANNELWISE),
    **dict.fromkeys(("DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"), _CHANNELWISE),
    **dict.fromkeys(
        ("MEAN", "ReduceMean", "Pad", "PAD", "PADV2", "Resize", "Upsample"), _CHANNELWISE
    ),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _CHANNELWISE),
    **dict.fromkeys(("Concat", "CONCATENATION"), _CONCAT),
    **dict.fromkeys(("Reshape", "RESHAPE", "Flatten", "Squeeze", "SQUEEZE"), _RESHAPE),
    "Transpose": _TRANSPOSE,
}


def decides_size(graph: Graph, node: Node) -> bool:
    """Return whether a node has weights that decide the number of result channels."""
    return _kind_of(graph, node) in (_CONV, _DENSE)


def _kind_of(graph: Graph, node: Node) -> _Kind | None:
    """Return how an operator relates sizes; None for unknown or elementwise operators."""
    kind = _KINDS.get(node.op)
    group = node.attributes.get("group", 1) if kind == _CONV else 1
    if group == 1:
        return kind
    source = node.inputs[0]
    channels = graph.values[source].shape[1] if source is not None else 0
    return _CHANNELWISE if group == channels else None


class Axes:
    """
    A graph's dimensions, some with new sizes.

    Parameters
    ----------
    graph : Graph
        The graph, with the model's shapes.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker: dict[int, Node] = {}
        self.readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for value in node.outputs:
                if value is not None:
                    self.maker[value] = node
            for value in dict.fromkeys(node.inputs):
                if value is not None:
                    self.readers.setdefault(value, []).append(node)
        self.sizes: dict[tuple[int, int], int] = {}
        """New sizes by value and axis."""
        self._fixed = frozenset((*graph.inputs, *graph.outputs))
        self._todo: list[tuple[int, int]] = []

    # -- questions -----------------------------------------------------------------

    def channel_axis(self, value: Value) -> int:
        """Return the channel axis: the last axis, but the second for ONNX images."""
        rank = len(value.shape)
        if rank < 2:
            raise CannotEdit(f"{value.name!r} has no channels")
        first = self.graph.target not in ("tflm", "executorch") and rank >= 4
        return 1 if first or (self.graph.target == "executorch" and rank >= 4) else rank - 1

    def pixel_axes(self, value: Value) -> tuple[int, ...]:
        """Return the row and column axes for images; empty for other values."""
        rank = len(value.shape)
        if rank < 4:
            return ()
        channel = self.channel_axis(value)
        return tuple(axis for axis in range(1, rank) if axis != channel)

    def shape(self, value: int) -> tuple[int, ...]:
        """Return a value's new shape."""
        old = self.graph.values[value].shape
        return tuple(self.sizes.get((value, axis), size) for axis, size in enumerate(old))

    # -- changes -------------------------------------------------------------------

    def halve_channels(self, node: Node) -> None:
        """
        Halve the channels of a node's result, and carry the change on.

        Raises
        ------
        CannotEdit
            If an input, output or state would have to change, or an operator's meaning is not
            known.
        """
        value = self._own_result(node)
        axis = self.channel_axis(value)
        self._halve(value, axis)
        self._carry(channels=True)

    def halve_pixels(self, node: Node) -> None:
        """
        Halve the rows and columns of a node's result, as if the stride were doubled.

        Raises
        ------
        CannotEdit
            As :meth:`halve_channels`.
        """
        value = self._own_result(node)
        axes = self.pixel_axes(value)
        if not axes:
            raise CannotEdit(f"{value.name!r} is not an image")
        for axis in axes:
            self._halve(value, axis)
        self._carry(channels=False)

    def _own_result(self, node: Node) -> Value:
        """Return the result of a node that decides the result's size."""
        if not decides_size(self.graph, node):
            raise CannotEdit(f"{node.op} has the sizes of its operands")
        results = [value for value in node.outputs if value is not None]
        if len(results) != 1:
            raise CannotEdit(f"{node.op} has several results")
        return self.graph.values[results[0]]

    def _halve(self, value: Value, axis: int) -> None:
        size = value.shape[axis]
        if size < 2:
            raise CannotEdit(f"{value.name!r} cannot be halved")
        self._set(value.index, axis, (size + 1) // 2)

    def _set(self, value: int, axis: int, size: int) -> None:
        """Note a new size, once."""
        row = self.graph.values[value]
        if row.kind == "constant" or size == row.shape[axis]:
            return
        if value in self._fixed or row.kind != "activation":
            raise CannotEdit(f"{row.name!r} is an input, a result or a state of the model")
        if self.sizes.setdefault((value, axis), size) != size:
            raise CannotEdit(f"{row.name!r} would have two sizes")
        if (value, axis) not in self._todo:
            self._todo.append((value, axis))

    def _carry(self, *, channels: bool) -> None:
        """Carry new sizes to all values that must change, too."""
        done: set[tuple[int, int]] = set()
        while self._todo:
            value, axis = self._todo.pop()
            if (value, axis) in done:
                continue
            done.add((value, axis))
            maker = self.maker.get(value)
            if maker is not None:
                self._back(maker, value, axis, channels=channels)
            for reader in self.readers.get(value, ()):
                self._forth(reader, value, axis, channels=channels)

    def _back(self, node: Node, value: int, axis: int, *, channels: bool) -> None:
        """Change a node's operands after a change of the result."""
        kind, size = _kind_of(self.graph, node), self.sizes[value, axis]
        if kind in (_CONV, _DENSE) and (channels or kind == _CONV):
            return  # The weights or the stride change instead.
        if kind == _CHANNELWISE:
            if not channels:
                return  # Another stride.
            self._alike(node, value, axis, size)
        elif kind == _CONCAT:
            if axis == self._concat_axis(node, value):
                return  # An operand decides the size.
            for source in self._sources(node):
                self._set(source, axis, size)
        elif kind == _RESHAPE:
            (source, *_) = self._sources(node)
            self._set(source, *self._reshaped(value, source, axis, size))
        elif kind == _TRANSPOSE:
            (source,) = self._sources(node)
            at = self._permutation(node, value)[axis]
            self._set(source, at, size)
        else:
            self._elementwise(node, value, axis, size)

    def _forth(self, node: Node, value: int, axis: int, *, channels: bool) -> None:
        """Change a node's results after a change of an operand."""
        kind, size = _kind_of(self.graph, node), self.sizes[value, axis]
        results = [result for result in node.outputs if result is not None]
        if kind in (_CONV, _DENSE, _CHANNELWISE) and node.inputs[0] != value:
            raise CannotEdit(f"{node.op} {node.name!r} has other operands than weights")
        if kind == _DENSE:
            if axis != len(self.graph.values[value].shape) - 1:
                raise CannotEdit(f"{node.op} {node.name!r} is not known for rows")
            if any(
                self.graph.values[s].kind != "constant" for s in node.inputs[1:] if s is not None
            ):
                raise CannotEdit(f"{node.op} {node.name!r} multiplies two values")
        elif kind == _CONV:
            if not channels:
                self._window(value, results[0], axis, size)
        elif kind == _CHANNELWISE:
            if channels:
                for result in results:
                    rank = len(self.graph.values[result].shape)
                    same = rank == len(self.graph.values[value].shape)
                    self._set(result, axis if same else rank - 1, size)
            elif len(self.graph.values[results[0]].shape) == len(self.graph.values[value].shape):
                self._window(value, results[0], axis, size)
        elif kind == _CONCAT:
            (result,) = results
            if axis == self._concat_axis(node, result):
                del_old = self.sizes.pop((result, axis), None)
                total = sum(self.shape(s)[axis] for s in node.inputs if s is not None)
                self._set(result, axis, total)
                if del_old is not None and del_old != total:
                    raise CannotEdit(f"{node.op} {node.name!r} changes twice")
            else:
                self._set(result, axis, size)
        elif kind == _RESHAPE:
            self._set(results[0], *self._reshaped(value, results[0], axis, size))
        elif kind == _TRANSPOSE:
            self._set(results[0], self._permutation(node, results[0]).index(axis), size)
        else:
            for result in results:
                self._elementwise(node, result, axis, size, source=value)

    def _sources(self, node: Node) -> Iterator[int]:
        """Yield the operands that are no constants."""
        for value in node.inputs:
            if value is not None and self.graph.values[value].kind != "constant":
                yield value

    def _alike(self, node: Node, value: int, axis: int, size: int) -> None:
        """Change the first operand as the result."""
        source = node.inputs[0]
        if source is None:
            raise CannotEdit(f"{node.op} {node.name!r} has no operand")
        rank = len(self.graph.values[source].shape)
        same = rank == len(self.graph.values[value].shape)
        self._set(source, axis if same else self.channel_axis(self.graph.values[source]), size)

    def _elementwise(
        self, node: Node, result: int, axis: int, size: int, source: int | None = None
    ) -> None:
        """Change all operands and the result of an elementwise operator."""
        shape = self.graph.values[result].shape
        alike = {pair.input for pair in node.effects.in_place if pair.output == 0}
        full = {
            at
            for at, value in enumerate(node.inputs)
            if value is not None and self.graph.values[value].shape == shape
        }
        if not alike & full or len([v for v in node.outputs if v is not None]) != 1:
            raise CannotEdit(f"{node.op} {node.name!r} is not known")
        at = axis
        if source is not None:  # Operand dimensions are aligned at the last dimension.
            at = axis + len(shape) - len(self.graph.values[source].shape)
        self._set(result, at, size)
        for value in self._sources(node):
            own = at - len(shape) + len(self.graph.values[value].shape)
            if own >= 0 and self.graph.values[value].shape[own] == shape[at]:
                self._set(value, own, size)

    def _window(self, value: int, result: int, axis: int, size: int) -> None:
        """Change rows or columns behind a window: the change is divided by the stride."""
        before = self.graph.values[value].shape[axis]
        after = self.graph.values[result].shape[axis]
        if after <= 1 or before <= 1:
            return  # The window covers all rows.
        if after <= before:
            stride = max(1, round(before / after))
            new = after - (before - size) // stride
        else:
            new = after * size // before
        if new < 1:
            raise CannotEdit(f"{self.graph.values[result].name!r} would have no rows")
        self._set(result, axis, new)

    def _concat_axis(self, node: Node, result: int) -> int:
        """Return the axis along which operands are joined: the axis where sizes add up."""
        shape = self.graph.values[result].shape
        parts = [self.graph.values[s].shape for s in node.inputs if s is not None]
        axes = [
            axis
            for axis, size in enumerate(shape)
            if all(len(part) == len(shape) for part in parts)
            and sum(part[axis] for part in parts) == size
        ]
        if len(axes) != 1:
            raise CannotEdit(f"{node.op} {node.name!r} is not known")
        return axes[0]

    def _reshaped(self, value: int, other: int, axis: int, size: int) -> tuple[int, int]:
        """Return the axis and size in a reshaped value."""
        old, new = self.graph.values[value].shape, self.graph.values[other].shape
        for start, stop, first, last in _groups(old, new):
            if start <= axis < stop:
                wide = [at for at in range(first, last) if new[at] > 1]
                rest = prod(old[start:stop]) // old[axis]
                if len(wide) == 1:
                    return wide[0], rest * size
        raise CannotEdit(f"{self.graph.values[other].name!r} has other dimensions")

    def _permutation(self, node: Node, result: int) -> tuple[int, ...]:
        rank = len(self.graph.values[result].shape)
        order = node.attributes.get("perm")
        return tuple(reversed(range(rank))) if order is None else tuple(order)


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the shortest dimension runs of two shapes with equal products."""
    start = first = at = other = 0
    left = right = 1
    while at < len(old) or other < len(new):
        if at < len(old) and (left <= right or other == len(new)):
            left, at = left * old[at], at + 1
        else:
            right, other = right * new[other], other + 1
        if left == right and at > start and other > first:
            yield start, at, first, other
            start, first, left, right = at, other, 1, 1
