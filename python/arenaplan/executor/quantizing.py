"""
Groups that one convolution, or one product, of bytes performs.

A tool for quantization puts a pair of conversions around every operator. A group that widens an
image, convolves it and rounds the result is then a convolution of bytes, if the real weights are
known to stand for integers (:meth:`arenaplan.Graph.quantized`); rows that a constant matrix
multiplies likewise. Elementwise members before and after it become a chain each, which makes all
bytes of the image, or of the result, at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from arenaplan.executor.chained import in_chains
from arenaplan.executor.groups import Group, Member
from arenaplan.executor.hosting import bounds_of
from arenaplan.executor.kernels.quantized_conv import (
    Encoding,
    QuantizedConv,
    Weights,
    quantized_conv_of,
)
from arenaplan.executor.kernels.quantized_product import QuantizedProduct, quantized_product_of
from arenaplan.executor.registry import Run, Scratch, Signature, find_kernel, scratch_bytes
from arenaplan.executor.signatures import NOT_RUN, signature_of
from arenaplan.executor.tiles import Tile, bind, lay_out, made_by
from arenaplan.executor.timing import nanoseconds
from arenaplan.graph import Choice, Graph, Node
from arenaplan.ops.boxes import whole
from arenaplan.values import Quantized

_CONVERSIONS = ("DequantizeLinear", "QuantizeLinear")
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


@dataclass(frozen=True)
class QuantizedGroup:
    """A kernel of bytes, and what is done with all of its image and its result."""

    kernel: QuantizedConv | QuantizedProduct
    image: int
    """The value that is convolved, or multiplied."""
    before: Member | None
    """The member that makes it of others."""
    result: int
    """The value that the kernel makes."""
    after: Member | None
    """The member that makes the output of the group of it."""
    in_place: bool
    """Whether the kernel may write where the output will be."""

    def choices(self) -> tuple[Choice, ...]:
        """Return the sizes of scratch memory to declare; costs are nanoseconds."""
        sizes, cost = 0, 0.0
        for member in (self.before, self.after):
            if member is not None:
                cost += nanoseconds(member.signature, member.kernel)
        if self.before is not None:
            sizes += scratch_bytes(made_by(self.before).shape, self.kernel.image.dtype)
        if self.after is not None and not self.in_place:
            sizes += scratch_bytes(made_by(self.after).shape, self.kernel.result.dtype)
        return tuple(Choice(way.bytes + sizes, way.cost + cost) for way in self.kernel.choices())

    def runs(
        self, arrays: Mapping[int, np.ndarray], output: np.ndarray, scratch: Scratch
    ) -> list[Run]:
        """Return functions that make the output, one after another."""
        found: list[Run] = []
        memory = dict(arrays)
        if self.before is not None:
            image = scratch.array(made_by(self.before).shape, self.kernel.image.dtype)
            found += _whole(self.before, memory, image)
            memory[self.image] = image
        target = output
        if self.after is not None and not self.in_place:
            target = scratch.array(made_by(self.after).shape, self.kernel.result.dtype)
        target = target.view(self.kernel.result.dtype)
        found.append(self.kernel.bind(memory[self.image], target, scratch))
        if self.after is not None:
            memory[self.result] = target
            found += _whole(self.after, memory, output)
        return found


def _whole(member: Member, arrays: Mapping[int, np.ndarray], output: np.ndarray) -> list[Run]:
    """Return functions that make all of a member's result."""
    layout = lay_out([member], member.value)
    tile = Tile(whole(output.shape), output)
    return bind(
        layout, [member], tile, arrays, Scratch(np.empty(0, np.uint8), member.signature.name), 0
    )


def quantized_group(group: Group) -> QuantizedGroup | None:
    """Return a group as a convolution or a product of bytes, if it is one."""
    hosts = [member for member in group.members if _kind(member.signature) is not None]
    if len(hosts) != 1:
        return None
    (host,) = hosts
    makers = {member.value: member for member in group.members}
    readers: dict[int, list[Member]] = {}
    for member in group.members:
        for _, value in member.reads():
            readers.setdefault(value, []).append(member)

    def only_reader(value: int) -> Member | None:
        found = readers.get(value, [])
        return found[0] if len(found) == 1 else None

    widen = makers.get(-1 if host.inputs[0] is None else host.inputs[0])
    if widen is None or only_reader(widen.value) is not host:
        return None
    bounded, quantize = None, only_reader(host.value)
    if quantize is not None and bounds_of(quantize.signature) is not None:
        bounded, quantize = quantize, only_reader(quantize.value)
    if quantize is None or any(
        value in makers for _, value in host.reads() if value != widen.value
    ):
        return None
    core = [member for member in (widen, host, bounded, quantize) if member is not None]
    bounds = None if bounded is None else bounds_of(bounded.signature)
    made = _kernel_of(host.signature, widen.signature, quantize.signature, bounds)
    image = widen.inputs[0]
    if made is None or image is None:
        return None
    # What the image is made of comes before; all else needs the result.
    needed = {image}
    before: list[Member] = []
    for member in reversed(group.members):
        if member.value in needed and member not in core:
            before.insert(0, member)
            needed.update(value for _, value in member.reads())
    after = [m for m in group.members if m not in core and m not in before]
    if any(value in {m.value for m in before} for m in after for _, value in m.reads()):
        return None
    ahead, behind = _chain(group, before), _chain(group, after)
    if (before and ahead is None) or (after and behind is None):
        return None
    if behind is None and quantize is not group.sink:
        return None
    if behind is not None and made_by(behind).shape != made_by(quantize).shape:
        return None
    if behind is None and not group.taken <= ({image} if made.writes_over else set()):
        return None
    in_place = behind is not None and made_by(behind).dtype in _BYTES and not group.taken
    return QuantizedGroup(made, image, ahead, quantize.value, behind, in_place)


def _chain(group: Group, members: Sequence[Member]) -> Member | None:
    """Return one member that does what several do, if one chain does."""
    if not members:
        return None
    made = {member.value for member in members}
    part = replace(group, members=tuple(members), loaded=frozenset(), taken=group.taken)
    merged = in_chains(part).members
    if len(merged) != 1 or merged[0].value not in made or not merged[0].kernel.is_pointwise:
        return None
    return None if merged[0].has_scratch or merged[0].is_view else merged[0]


def _is(signature: Signature, op: str) -> bool:
    return signature.op == op and signature.domain in ("", "ai.onnx")


def _kind(signature: Signature) -> Literal["Conv", "Gemm", "MatMul"] | None:
    """Return which operator with a constant second operand a node is, of those with a kernel."""
    for op in ("Conv", "Gemm", "MatMul"):
        if _is(signature, op) and signature.constant[1] is not None:
            return op
    return None


def _kernel_of(
    host: Signature, widen: Signature, quantize: Signature, bounds: tuple[float, float] | None
) -> QuantizedConv | QuantizedProduct | None:
    """Return the kernel of bytes that three nodes are, if they are one."""
    kind = _kind(host)
    if not (_is(widen, "DequantizeLinear") and _is(quantize, "QuantizeLinear")):
        return None
    known: Quantized | None = getattr(host.constant[1], "quantized", lambda: None)()
    if known is None or (host.input(2) is not None and host.constant[2] is None):
        return None
    matrix = host.inputs[1]
    assert matrix is not None
    is_transposed = kind == "Gemm" and bool(host.attributes.get("transB", 0))
    axis = 0 if kind == "Conv" or is_transposed else 1
    rank = len(matrix.shape)
    if known.scale().size > 1 and known.axis % rank != axis:
        return None
    first, last = _scale(widen), _scale(quantize)
    if first is None or last is None:
        return None
    x, made = widen.inputs[0], quantize.outputs[0]
    assert x is not None
    assert made is not None

    def weights() -> Weights:
        integers, scale = known.centered(axis)
        bias = host.constant_data(2)
        shift = np.zeros(1, np.float32) if bias is None else bias
        if is_transposed:
            integers = np.ascontiguousarray(integers.T)
        return Weights(integers, np.float32(first[0]) * scale, shift, None)

    encodings = Encoding(x.dtype, first[1]), Encoding(made.dtype, last[1])
    limits = (-math.inf, math.inf) if bounds is None else bounds
    if kind == "Conv":
        conv = replace(host, inputs=(x, *host.inputs[1:]), outputs=(made,))
        return quantized_conv_of(conv, encodings, weights, divisor=last[0], bounds=limits)
    if rank != 2 or not _is_plain_product(host):
        return None
    return quantized_product_of(x, made, encodings, weights, divisor=last[0], bounds=limits)


def _is_plain_product(signature: Signature) -> bool:
    """Whether a node multiplies rows by a matrix and adds at most one number per column."""
    attributes, bias, made = signature.attributes, signature.input(2), signature.outputs[0]
    if signature.op == "MatMul":
        return True
    is_scaled = attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0
    if is_scaled or attributes.get("transA", 0) or made is None:
        return False
    return bias is None or math.prod(bias.shape) in (1, *bias.shape[-1:])


def _scale(signature: Signature) -> tuple[float, int] | None:
    """Return scale and zero point of a conversion, if each is one constant number."""
    scale, zero = signature.constant_data(1), signature.constant_data(2)
    if scale is None or scale.size != 1 or scale.dtype != np.float32:
        return None
    if signature.input(2) is not None and (zero is None or zero.size != 1):
        return None
    number = float(scale.reshape(()))
    if not (math.isfinite(number) and number > 0):
        return None
    return number, 0 if zero is None else int(zero.reshape(()))


def narrow_steps(graph: Graph) -> list[list[int]] | None:
    """
    Return the steps of a quantized graph in which each makes bytes of bytes, as far as they can.

    A step ends with a QuantizeLinear, and has the nodes before it back to conversions of bytes:
    elementwise ones, and at most one convolution or product. Conversions run in each step that
    reads them.

    Returns
    -------
    list of list of int, optional
        Nodes that run as one; ``None`` if all run alone.
    """
    if not any(node.op == "QuantizeLinear" for node in graph.nodes):
        return None
    found = _Narrow(graph)
    steps = [found.step(node) for node in graph.nodes]
    inside = {node for nodes in steps for node in nodes[:-1]}
    if not inside:
        return None
    needed = set(graph.outputs)
    kept: list[list[int]] = []
    for nodes in reversed(steps):
        last = graph.nodes[nodes[-1]]
        # What groups make for themselves is made once more if something else reads it.
        if last.index in inside and needed.isdisjoint(last.outputs):
            continue
        members = [graph.nodes[node] for node in nodes]
        made = {value for node in members for value in node.outputs}
        needed.update(v for node in members for v in node.inputs if v not in made and v is not None)
        kept.append(nodes)
    return kept[::-1]


class _Narrow:
    """Finds the nodes that run as one with each QuantizeLinear of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {
            value: node for node in graph.nodes for value in node.outputs if value is not None
        }
        self.readers = Counter(value for node in graph.nodes for value in node.inputs)
        self.readers.update(graph.outputs)

    def step(self, node: Node) -> list[int]:
        """Return the nodes that run as one with a node, which is the last of them."""
        if node.op != "QuantizeLinear" or node.domain not in ("", "ai.onnx"):
            return [node.index]
        nodes, products = {node.index}, 0
        shapes = {self.graph.values[value].shape for value in node.outputs if value is not None}
        pending = [value for value in node.inputs if value is not None]
        while pending:
            value = pending.pop()
            maker = self.makers.get(value)
            if maker is None or maker.index in nodes:
                continue
            if maker.op == "DequantizeLinear" and maker.effects.repeats:
                if self.graph.values[value].shape in shapes:
                    nodes.add(maker.index)
                continue
            kind = self._kind(maker, value)
            if kind is None or (kind and products):
                return [node.index]
            if kind:
                shapes = {self.graph.values[v].shape for v in maker.inputs[:1] if v is not None}
            elif self.graph.values[value].shape not in shapes:
                return [node.index]
            products += kind
            nodes.add(maker.index)
            pending += [read for read in maker.inputs if read is not None]
        return sorted(nodes)

    def _kind(self, maker: Node, value: int) -> int | None:
        """Return 0 for an elementwise node, 1 for a convolution or a product, or nothing."""
        made = [output for output in maker.outputs if output is not None]
        if made != [value] or self.readers[value] > 1 or maker.op in _CONVERSIONS:
            return None
        try:
            signature = signature_of(self.graph, maker)
            kernel = find_kernel(signature)
        except NOT_RUN:
            return None
        rows = self.graph.values[value]
        if kernel.is_pointwise:
            return 0
        return 1 if _kind(signature) is not None and math.prod(rows.shape[:-1]) > 1 else None
