"""
Computes small integer products in floats, and splits off the ranges of values.

``onnxruntime.quantization.quantize_dynamic`` replaces a product with DynamicQuantizeLinear,
MatMulInteger or ConvInteger, Cast and Mul. Two changes give the planner choices, and leave every
result bit-identical:

- An integer product becomes a float product whose operand is widened by DequantizeLinear, if the
  sums are exact in single precision. The widened operand exists only tile by tile, as in a model
  with QuantizeLinear and DequantizeLinear, and so do the sums of QLinearMatMul and QGemm.
- DynamicQuantizeLinear becomes two nodes: the first finds the operand's range, the second
  quantizes. A wide operand read only by these two nodes may be made twice, tile by tile, from
  narrow values, and then never exists as a whole (:func:`let_repeat`).
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from arenaplan.base.free_names import free_name
from arenaplan.formats.onnx.node_order import BRANCHING, captured
from arenaplan.formats.onnx.op import Scope
from arenaplan.formats.onnx.rules.contrib_rules import MICROSOFT
from arenaplan.graph import Graph
from arenaplan.graph.ops.own_ops import EXTREMES, QUANTIZATION, REQUANTIZE, SCALE

_PRODUCTS: Final = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
"""Integer products whose sums are results."""
_QUANTIZED: Final = {
    ("", "QLinearMatMul"): "MatMul",
    (MICROSOFT, "QGemm"): "Gemm",
}
"""Integer products whose sums become small integers again."""
_SINGLE_EXACT: Final = 1 << 24
"""Integers up to this bound are exact in single precision."""
_LARGEST: Final = 255
"""Largest absolute value of an 8-bit integer minus the zero point."""
_TYPES: Final = frozenset(
    {TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.FLOAT}
)
"""Types of the constants that are read."""
_NO_ZERO: Final = np.zeros(1, np.int8)
_POINTWISE: Final = frozenset(
    {
        *("Add", "Cast", "Clip", "DequantizeLinear", "Div", "Erf", "Gelu", "HardSigmoid"),
        *("HardSwish", "LeakyRelu", "Mul", "Pow", "Relu", "Reshape", "Sigmoid", "Sub", "Swish"),
        *("Tanh",),
    }
)
"""Elementwise operators that are cheap beside a product, and views of their results."""


class Replaced(NamedTuple):
    """A graph's nodes after the change."""

    nodes: Sequence[NodeProto]
    twice: frozenset[str] = frozenset()
    """
    Wide values that could be made twice, for the range and for the quantized elements, and the
    values between them and a product that have no other readers.
    """


def with_real_sums(
    nodes: Sequence[NodeProto],
    graph: GraphProto,
    versions: MutableMapping[str, int],
    stored: Scope,
) -> Replaced:
    """
    Return a graph's nodes, with integer products in floats and separate ranges.

    Parameters
    ----------
    versions : mapping of str to int
        Domain versions; this package's domain is added.
    stored : mapping of str to TensorProto
        Initializers by name; scales of 1 are added.
    """
    kinds = {node.op_type for node in nodes}
    known = ("DynamicQuantizeLinear", *_PRODUCTS, *(kind for _, kind in _QUANTIZED))
    if kinds.isdisjoint(known) or versions.get("", 1) < 13:
        return Replaced(nodes)
    versions[QUANTIZATION] = 1
    replacing = _Replacing(nodes, graph, stored)
    found = replacing.replaced()
    return Replaced(found, replacing.made_twice(found))


def let_repeat(graph: Graph, names: frozenset[str]) -> None:
    """Let the nodes that make some values run again for each reader."""
    for node in list(graph.nodes) if names else ():
        made = [graph.values[at].name for at in node.outputs if at is not None]
        if names.issuperset(made):
            graph.replace_node(node.index, node.outputs, node.effects._replace(repeats=True))


class _Replacing:
    """Changes a graph."""

    def __init__(self, nodes: Sequence[NodeProto], graph: GraphProto, stored: Scope) -> None:
        self._nodes, self._stored = nodes, stored
        self._outputs = {info.name for info in graph.output}
        # Names read by bodies must not change.
        self._fixed = self._outputs | {
            name for node in nodes if node.op_type in BRANCHING for name in captured(node)
        }
        self._taken = {name for node in nodes for name in (*node.input, *node.output)}
        self._taken |= self._outputs | set(stored) | {info.name for info in graph.input}
        self._readers = _readers(nodes)
        self._wide: dict[tuple[str, ...], str] = {}
        """The floats for small integers and their zero point."""
        self._pairs: list[tuple[str, str, str]] = []
        """Wide values with their extremes and quantized elements."""

    def replaced(self) -> list[NodeProto]:
        """Return the changed nodes."""
        found: list[NodeProto] = []
        gone: set[str] = set()
        for node in self._nodes:
            if (node.domain, node.op_type) in _QUANTIZED:
                found += self._requantized(node) or [node]
            elif node.domain:
                found.append(node)
            elif node.op_type in _PRODUCTS and self._is_exact(node):
                (cast,) = self._readers[node.output[0]]
                gone.add(cast.output[0])
                found += self._product(node, cast.output[0])
            elif node.op_type == "DynamicQuantizeLinear" and _is_complete(node):
                found += self._quantized(node)
            elif not node.output or node.output[0] not in gone:
                found.append(node)
        return found

    def made_twice(self, nodes: Sequence[NodeProto]) -> frozenset[str]:
        """Return wide values of which only range and quantized elements are needed, and others."""
        readers = _readers(nodes)
        found: set[str] = set()
        for wide, extremes, quantized in self._pairs:
            inside = {extremes, quantized}
            cone: set[str] = set()
            has_product = False
            for node in reversed(nodes):
                if len(node.output) != 1 or node.domain:
                    continue
                (value,) = node.output
                known = readers.get(value, [])
                is_inside = known and all(inside.intersection(reader.output) for reader in known)
                is_product = node.op_type in _PRODUCTS.values()
                if not is_inside or value in self._fixed or value in inside:
                    continue
                if is_product or node.op_type in _POINTWISE:
                    cone.add(value)
                    has_product = has_product or is_product
                    if not is_product:
                        inside.add(value)
            if has_product and wide in cone:
                found |= cone
        return frozenset(found)

    # -- products ------------------------------------------------------------------------------

    def _is_exact(self, node: NodeProto) -> bool:
        """Return whether real numbers can replace integers, which only a Cast and scales read."""
        readers = self._readers[node.output[0]]
        if len(node.input) < 2 or len(node.output) != 1 or node.output[0] in self._fixed:
            return False
        if len(readers) != 1 or readers[0].op_type != "Cast" or readers[0].domain:
            return False
        (cast,) = readers
        to = next((attribute.i for attribute in cast.attribute if attribute.name == "to"), 0)
        if to != TensorProto.FLOAT or len(cast.output) != 1:
            return False
        # A sum that began with an addend would not be exact.
        if any(reader.op_type != "Mul" for reader in self._readers[cast.output[0]]):
            return False
        return self._has_exact_sums(node, (1, 3), None)

    def _has_exact_sums(self, node: NodeProto, weights: tuple[int, int], bias: int | None) -> bool:
        """Return whether sums are exact, given the positions of weights, zero point, and bias."""
        data = self._data(_input(node, weights[0]))
        zero = self._data(_input(node, weights[1])) if _input(node, weights[1]) else _NO_ZERO
        addend = self._data(_input(node, bias)) if _input(node, bias) else _NO_ZERO
        if data is None or zero is None or addend is None or data.ndim < 2 or zero.ndim > 1:
            return False
        channel, axes = _sides(node, data.ndim)
        if zero.size not in (1, data.shape[channel]):
            return False
        shape = [-1 if axis == channel else 1 for axis in range(data.ndim)]
        size = np.abs(data.astype(np.int32) - zero.astype(np.int32).reshape(shape))
        most = int(size.sum(axes).max(initial=0)) * _LARGEST
        return most + int(np.abs(addend.astype(np.int64)).max(initial=0)) <= _SINGLE_EXACT

    def _product(self, node: NodeProto, made: str) -> list[NodeProto]:
        """Return a float product that makes a value."""
        zero = node.input[2:3] if len(node.input) > 2 and node.input[2] else []
        weights_zero = node.input[3:4] if len(node.input) > 3 and node.input[3] else []
        found: list[NodeProto] = []
        left = self._widened(found, node.input[0], zero, 0)
        channel, _ = _sides(node, len(self._shape(node.input[1])))
        right = self._widened(found, node.input[1], weights_zero, channel)
        product = helper.make_node(_PRODUCTS[node.op_type], [left, right], [made], name=node.name)
        product.attribute.extend(node.attribute)
        return [*found, product]

    def _widened(
        self, found: list[NodeProto], integers: str, zero: Iterable[str], axis: int
    ) -> str:
        """Return the name of integers minus zero point, as floats."""
        key = (integers, *zero)
        if key not in self._wide:
            made = self._wide[key] = self._fresh(f"{integers}_real")
            shape = [] if not key[1:] else self._shape(key[1])
            scale = self._ones(shape if shape and shape != [1] else [])
            inputs = [integers, scale, *key[1:]]
            found.append(helper.make_node("DequantizeLinear", inputs, [made], made, axis=axis))
        return self._wide[key]

    def _ones(self, shape: Sequence[int]) -> str:
        """Return the name of scales of 1."""
        key = ("", *map(str, shape))
        if key not in self._wide:
            name = self._wide[key] = self._fresh("one")
            self._stored[name] = numpy_helper.from_array(np.ones(shape, np.float32), name)
        return self._wide[key]

    def _requantized(self, node: NodeProto) -> list[NodeProto] | None:
        """Return a float product whose exact sums become small integers; None if not exact."""
        is_gemm = node.op_type == "QGemm"
        bias, scales, zero = (6, (1, 4, 7), 8) if is_gemm else (None, (1, 4, 6), 7)
        if len(node.output) != 1 or (
            is_gemm and (_attribute(node, "transA") or len(node.input) < 9)
        ):
            return None
        if not self._has_exact_sums(node, (3, 5), bias):
            return None
        known = [self._data(_input(node, at)) for at in scales]
        names = [*(_input(node, at) for at in (2, 5, zero) if _input(node, at)), _input(node, zero)]
        if any(scale is None for scale in known) or not all(self._tensor(name) for name in names):
            return None
        a, b, made = (np.asarray(scale, np.float32).reshape(-1) for scale in known)
        if a.size != 1 or made.size != 1:
            return None
        if is_gemm:
            a = a * np.float32(_attribute(node, "alpha", 1.0))
        factor = np.asarray(a * b / made, np.float32)
        rank = len(self._shape(node.input[3]))
        if factor.size == 1:
            factor = factor.reshape(())
        scale = self._fresh(f"{node.output[0]}_scale")
        self._stored[scale] = numpy_helper.from_array(factor, scale)
        found: list[NodeProto] = []
        channel, _ = _sides(node, rank)
        operands = [
            self._widened(found, node.input[0], [name for name in node.input[2:3] if name], 0),
            self._widened(
                found, node.input[3], [name for name in node.input[5:6] if name], channel
            ),
        ]
        if _input(node, bias):
            operands.append(self._widened(found, node.input[bias], (), 0))
        sums = self._fresh(f"{node.output[0]}_sums")
        kind = _QUANTIZED[node.domain, node.op_type]
        product = helper.make_node(kind, operands, [sums], sums)
        product.attribute.extend(each for each in node.attribute if each.name != "alpha")
        inputs = [sums, scale, node.input[zero]]
        last = helper.make_node(REQUANTIZE, inputs, node.output, node.name, domain=QUANTIZATION)
        return [*found, product, last]

    # -- ranges --------------------------------------------------------------------------------

    def _quantized(self, node: NodeProto) -> list[NodeProto]:
        """Return the nodes that find a range and quantize."""
        (x,), (y, scale, zero) = node.input, node.output
        extremes = self._fresh(f"{x}_extremes")
        self._pairs.append((x, extremes, y))
        return [
            helper.make_node(EXTREMES, [x], [extremes], extremes, domain=QUANTIZATION),
            helper.make_node(SCALE, [extremes], [scale, zero], scale, domain=QUANTIZATION),
            helper.make_node("QuantizeLinear", [x, scale, zero], [y], node.name),
        ]

    # -- facts ---------------------------------------------------------------------------------

    def _tensor(self, name: str) -> TensorProto | None:
        tensor = self._stored.get(name)
        return tensor if isinstance(tensor, TensorProto) and tensor.data_type in _TYPES else None

    def _data(self, name: str) -> np.ndarray | None:
        """Return a stored constant that is in the file."""
        tensor = self._tensor(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            return numpy_helper.to_array(tensor)
        except ValueError:
            return None  # The walk refuses the node with its name.

    def _shape(self, name: str) -> list[int]:
        tensor = self._tensor(name)
        return [] if tensor is None else list(tensor.dims)

    def _fresh(self, name: str) -> str:
        """Return a new name similar to an existing name."""
        fresh = free_name(name, self._taken)
        self._taken.add(fresh)
        return fresh


def _input(node: NodeProto, position: int | None) -> str:
    """Return an input's name; empty if left out."""
    return "" if position is None or position >= len(node.input) else node.input[position]


def _attribute(node: NodeProto, name: str, default: float = 0) -> float:
    """Return a node's numeric attribute."""
    found = (each for each in node.attribute if each.name == name)
    return next(
        (each.f if each.type == AttributeProto.FLOAT else each.i for each in found), default
    )


def _sides(node: NodeProto, rank: int) -> tuple[int, int | tuple[int, ...]]:
    """Return the weights' channel dimension, and the summed dimensions."""
    if node.op_type == "ConvInteger":
        return 0, tuple(range(1, rank))
    if node.op_type == "QGemm" and _attribute(node, "transB"):
        return 0, 1
    return rank - 1, rank - 2


def _is_complete(node: NodeProto) -> bool:
    """Return whether a DynamicQuantizeLinear node makes all results."""
    return len(node.input) == 1 and len(node.output) == 3 and all((*node.input, *node.output))


def _readers(nodes: Sequence[NodeProto]) -> dict[str, list[NodeProto]]:
    """Return the nodes that read each value."""
    found: dict[str, list[NodeProto]] = {name: [] for node in nodes for name in node.output}
    for node in nodes:
        names = [*node.input, *(captured(node) if node.op_type in BRANCHING else ())]
        for name in dict.fromkeys(names):
            found.setdefault(name, []).append(node)
    return found
