"""
Quantized models: elements are moved as small integers.

Quantization tools put a QuantizeLinear and DequantizeLinear pair at each operand of each operator,
so a Concat joins wide numbers that are narrow before and after the Concat. A node that only moves
elements gives the same result for operands quantized before: QuantizeLinear moves up over such
nodes, and remaining DequantizeLinear nodes move down, as in ONNX Runtime
(``QDQPropagationTransformer``). Where both meet with the same scale, the pair cancels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from arenaplan.formats.onnx.node_order import BRANCHING, captured

_UNARY = frozenset(
    {
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice"),
        *("DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Gather", "MaxPool"),
    }
)
"""Operators with a single result, which has only elements of the first operand."""
_TYPES = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16})
_POOLED = frozenset({TensorProto.INT8, TensorProto.UINT8})
"""The integer types that MaxPool knows, from version 12 on."""
_SCALES = (2.0**-60, 2.0**60)
"""With scales between these, a whole number that is widened and narrowed again is the same."""


class Pair(NamedTuple):
    """How a whole tensor's elements are quantized."""

    scale: float
    zero_point: int
    dtype: int
    names: tuple[str, ...]
    """Names of scale and zero point."""

    def is_as(self, other: Pair) -> bool:
        """Return whether two tensors are quantized in the same way."""
        return self[:3] == other[:3]


def with_narrow_moves(graph: GraphProto, version: int) -> Sequence[NodeProto]:
    """
    Return a graph's nodes, with conversions moved across nodes that move elements.

    Parameters
    ----------
    version : int
        The default domain's version.
    """
    nodes = list(graph.node)
    if all(node.op_type != "DequantizeLinear" for node in nodes):
        return nodes
    conversions = _Conversions(graph, version)
    return conversions.folded(conversions.sunk(conversions.hoisted(nodes)))


class _Conversions:
    """Moves conversions in a graph."""

    def __init__(self, graph: GraphProto, version: int) -> None:
        self._version = version
        self._outputs = {info.name for info in graph.output}
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._pairs: dict[tuple[str, ...], Pair | None] = {}
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self._taken |= self._outputs | set(self._stored) | {info.name for info in graph.input}
        self._numbers: Counter[str] = Counter()
        """Per name, the next number for a similar name."""

    # -- passes ------------------------------------------------------------------------

    def hoisted(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Move each QuantizeLinear up to where the elements are made."""
        uses = _uses(nodes)
        makers = {name: node for node in nodes for name in node.output if name}
        replaced: dict[int, list[NodeProto]] = {}
        """By identity of a QuantizeLinear, the replacing nodes."""
        gone: set[int] = set()
        for node in nodes:
            pair = self._pair(node) if node.op_type == "QuantizeLinear" else None
            if pair is None:
                continue
            made: list[NodeProto] = []
            pending = [(node.input[0], node.output[0])]
            while pending:
                value, result = pending.pop()
                mover = makers.get(value)
                if (
                    mover is None
                    or uses[value] > 1
                    or value in self._outputs
                    or not self._moves(mover, pair)
                ):
                    made.append(_copy(node, [value, *pair.names], [result]))
                    continue
                gone.add(id(mover))
                count = len(mover.input) if mover.op_type == "Concat" else 1
                fresh = [self._fresh(result) for _ in range(count)]
                made.append(_copy(mover, [*fresh, *mover.input[count:]], [result]))
                pending += zip(mover.input[:count], fresh, strict=True)
            replaced[id(node)] = made[::-1]
        found: list[NodeProto] = []
        for node in nodes:
            if id(node) not in gone:
                found += replaced.get(id(node), [node])
        return found

    def sunk(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Move each DequantizeLinear of a computed value down to the element's users."""
        wide: dict[str, tuple[str, Pair, NodeProto]] = {}
        """Per widened value, the narrow value and the conversion."""
        found: list[NodeProto] = []
        for node in nodes:
            if node.op_type == "DequantizeLinear" and not node.domain:
                pair = self._pair(node)
                if pair is not None and node.input[0] not in self._stored:
                    wide[node.output[0]] = (node.input[0], pair, node)
                found.append(node)
                continue
            count = len(node.input) if node.op_type == "Concat" else 1
            sources = [wide.get(name) for name in node.input[:count]]
            known = [source for source in sources if source is not None]
            if len(known) < count or not known:
                found.append(node)
                continue
            _, pair, widening = known[0]
            is_moved = self._moves(node, pair) or (node.op_type == "Split" and not node.domain)
            if not is_moved or not all(pair.is_as(other) for _, other, _ in known):
                found.append(node)
                continue
            fresh = [self._fresh(name) if name else "" for name in node.output]
            inputs = [*(name for name, _, _ in known), *node.input[count:]]
            found.append(_copy(node, inputs, fresh))
            for narrow, name in zip(fresh, node.output, strict=True):
                if name:
                    again = _copy(widening, [narrow, *pair.names], [name])
                    wide[name] = (narrow, pair, again)
                    found.append(again)
        return self._read(found)

    def folded(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Remove pairs that undo each other."""
        named = self._outputs | self._captured(nodes)
        wide: dict[str, tuple[str, Pair]] = {}
        same: dict[str, str] = {}
        found: list[NodeProto] = []
        for old in nodes:
            node = old
            if any(name in same for name in node.input):
                node = _copy(node, [same.get(name, name) for name in node.input], node.output)
            pair = self._pair(node) if node.op_type in _KINDS else None
            if pair is not None and node.op_type == "DequantizeLinear":
                wide[node.output[0]] = (node.input[0], pair)
            elif pair is not None and node.input[0] in wide:
                value, other = wide[node.input[0]]
                name = node.output[0]
                if pair.is_as(other) and value not in self._stored:
                    if name not in named:
                        same[name] = value
                        continue
                    node = _copy(node, [value], [name], "Identity")
            found.append(node)
        return self._read(found)

    # -- facts -------------------------------------------------------------------------

    def _pair(self, node: NodeProto) -> Pair | None:
        """Return a conversion's scale, if known and the same for all elements."""
        names = tuple(node.input[1:])
        if node.domain or len(names) != 2 or len(node.output) != 1 or node.op_type not in _KINDS:
            return None
        if any(_is_unusual(attribute) for attribute in node.attribute):
            return None
        if names not in self._pairs:
            self._pairs[names] = self._read_pair(names)
        return self._pairs[names]

    def _read_pair(self, names: tuple[str, ...]) -> Pair | None:
        scale, zero = (self._stored.get(name) for name in names)
        if scale is None or zero is None or zero.data_type not in _TYPES:
            return None
        if scale.data_type != TensorProto.FLOAT:
            return None
        for tensor in (scale, zero):
            if tensor.data_location == TensorProto.EXTERNAL or list(tensor.dims) not in ([], [1]):
                return None
        try:
            size = float(numpy_helper.to_array(scale).reshape(()))
            point = int(numpy_helper.to_array(zero).reshape(()))
        except ValueError:
            return None  # The walk refuses the node with its name.
        if not _SCALES[0] <= size <= _SCALES[1]:
            return None
        return Pair(size, point, zero.data_type, names)

    def _moves(self, node: NodeProto, pair: Pair) -> bool:
        """Return whether a node moves elements without computing, for any type."""
        kind = node.op_type
        if node.domain or len(node.output) != 1 or not node.input:
            return False
        if kind == "MaxPool":  # Widening keeps the order of elements.
            return self._version >= 12 and pair.dtype in _POOLED
        return kind in _UNARY or kind == "Concat"

    def _captured(self, nodes: Sequence[NodeProto]) -> frozenset[str]:
        """Return the names that bodies read, which must stay."""
        return frozenset(
            name for node in nodes if node.op_type in BRANCHING for name in captured(node)
        )

    def _fresh(self, name: str) -> str:
        """Return a new name similar to an existing name."""
        while True:
            fresh = f"{name}_narrow{self._numbers[name] or ''}"
            self._numbers[name] += 1
            if fresh not in self._taken:
                self._taken.add(fresh)
                return fresh

    def _read(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Return nodes without conversions that are no longer read."""
        uses = _uses(nodes)
        found = []
        for node in reversed(nodes):
            if node.op_type == "DequantizeLinear" and not node.domain:
                name = node.output[0]
                if not uses[name] and name not in self._outputs:
                    uses.subtract(node.input)
                    continue
            found.append(node)
        return found[::-1]


_KINDS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def _is_unusual(attribute: AttributeProto) -> bool:
    """Return whether a conversion's attribute has a meaning for scales of whole tensors."""
    return attribute.name not in ("axis", "saturate") and bool(attribute.i)


def _uses(nodes: Iterable[NodeProto]) -> Counter[str]:
    """Return how often each name is read."""
    uses = Counter(name for node in nodes for name in node.input)
    for node in nodes:
        if node.op_type in BRANCHING:
            uses.update(captured(node))
    return uses


def _copy(
    node: NodeProto, inputs: Iterable[str], outputs: Iterable[str], kind: str | None = None
) -> NodeProto:
    """Return a node with other operands."""
    copy = NodeProto(
        op_type=node.op_type if kind is None else kind, domain=node.domain, name=node.name
    )
    copy.input.extend(inputs)
    copy.output.extend(outputs)
    if kind is None:
        copy.attribute.extend(node.attribute)
    return copy
