"""
Groups that one byte kernel, a convolution or a product, performs, or two convolutions.

Quantization tools put a pair of conversions around every operator. A group that widens an image,
convolves, and rounds the result is then a byte convolution, if the real weights are known to stand
for integers (:meth:`arenaplan.Graph.quantized`). The same holds for rows times a constant matrix.
Elementwise members before and after the kernel become a chain each. A depthwise convolution may
follow: some channels at a time then go through the whole group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import Box, box_shape, whole
from arenaplan.graph.values import Quantized
from arenaplan.run.numpy.chained import in_chains
from arenaplan.run.numpy.groups import Group, Member
from arenaplan.run.numpy.hosting import bounds_of
from arenaplan.run.numpy.kernels.pieces import worthwhile
from arenaplan.run.numpy.kernels.quantized_conv import (
    BYTES,
    Encoding,
    QuantizedConv,
    Weights,
    quantized_conv_of,
)
from arenaplan.run.numpy.kernels.quantized_product import QuantizedProduct, quantized_product_of
from arenaplan.run.numpy.registry import (
    Run,
    Scratch,
    Signature,
    Tensor,
    scratch_bytes,
)
from arenaplan.run.numpy.tiles import made_by, operand_boxes, part_of, part_signature, prepared
from arenaplan.run.numpy.timing import nanoseconds


@dataclass(frozen=True)
class ByteStage:
    """A byte kernel, with the treatment of the result."""

    kernel: QuantizedConv | QuantizedProduct
    image: int
    """The value that is convolved, or multiplied."""
    result: int
    """The value that the kernel makes."""
    made: Tensor
    after: Member | None
    """The elementwise member that follows."""


@dataclass(frozen=True)
class QuantizedGroup:
    """
    Byte kernels, with the work before, between and after.

    The result is made some channels at a time, so that intermediate bytes exist for these channels
    alone. A second kernel convolves every channel by itself.
    """

    name: str
    """The name of the last node."""
    before: Member | None
    """The member that makes the whole image from others."""
    stages: tuple[ByteStage, ...]
    in_place: bool
    """Whether the last kernel may write where the output will be."""

    @property
    def kernel(self) -> QuantizedConv | QuantizedProduct:
        """The first kernel."""
        return self.stages[0].kernel

    @property
    def after(self) -> Member | None:
        """The member that makes the output from the last kernel's result."""
        return self.stages[-1].after

    def choices(self) -> tuple[Choice, ...]:
        """Return the scratch sizes to declare; costs are in nanoseconds."""
        return worthwhile(way for parts in self._divisions() for way in self._ways(parts))

    def _divisions(self) -> list[int]:
        """Return the part counts into which the channels may be divided."""
        kernels = [stage.kernel for stage in self.stages]
        if not self._registers or not all(isinstance(each, QuantizedConv) for each in kernels):
            return [1]
        channels = self.stages[0].made.shape[1]
        first = kernels[0]
        assert isinstance(first, QuantizedConv)
        if first.sizes.groups > 1 and not first.writes_over:
            return [1]
        return [1, *(parts for parts in (2, 4, 8, 16) if channels >= 8 * parts)]

    @property
    def _registers(self) -> list[Tensor]:
        """The values between kernels and members that have scratch memory."""
        found = []
        for at, stage in enumerate(self.stages):
            is_last = at == len(self.stages) - 1
            if not is_last or (stage.after is not None and not self.in_place):
                found.append(stage.made)
            if not is_last and stage.after is not None:
                found.append(made_by(stage.after))
        return found

    def _ways(self, parts: int) -> list[Choice]:
        """Return bytes and nanoseconds with the channels in ``parts`` parts."""
        size, cost = 0, 0.0
        for member in (self.before, *(stage.after for stage in self.stages)):
            if member is not None:
                cost += nanoseconds(member.signature, member.kernel)
        if self.before is not None:
            size += scratch_bytes(made_by(self.before).shape, self.kernel.image.dtype)
        some = self._parts(parts)[0]
        for register in self._registers:
            size += scratch_bytes(_some(register, some).shape, register.dtype)
        kernels = [_part(stage.kernel, some) for stage in self.stages]
        options = [kernel.choices() for kernel in kernels]
        found = []
        for limit in sorted({choice.bytes for choices in options for choice in choices}):
            within = [
                [choice for choice in choices if choice.bytes <= limit] or choices[:1]
                for choices in options
            ]
            best = [min(choices, key=lambda choice: choice.cost) for choices in within]
            own = max(choice.bytes for choice in best)
            # Every part reads the whole image.
            time = parts * sum(choice.cost for choice in best) * (1 + 0.02 * (parts - 1))
            found.append(Choice(size + own, cost + time))
        return found

    def _parts(self, parts: int) -> list[slice]:
        """Return the channels in each part."""
        if parts == 1:
            return [slice(None)]
        channels = self.stages[0].made.shape[1]
        step = -(-channels // parts // 8) * 8
        return [slice(at, min(at + step, channels)) for at in range(0, channels, step)]

    def runs(
        self, arrays: Mapping[int, np.ndarray], output: np.ndarray, workspace: np.ndarray
    ) -> list[Run]:
        """Return functions that together make the output, in order."""
        parts = self._fitting(workspace.nbytes)
        scratch = Scratch(workspace, self.name)
        found: list[Run] = []
        memory = dict(arrays)
        if self.before is not None:
            image = scratch.array(made_by(self.before).shape, self.kernel.image.dtype)
            found += _made(self.before, whole(image.shape), image, memory, {})
            memory[self.stages[0].image] = image
        for some in self._parts(parts):
            found += self._part_runs(some, memory, output, scratch.rest())
        return found

    def _fitting(self, size: int) -> int:
        """Return the part count for the fastest way within ``size`` scratch bytes."""
        ways = [
            (way.cost, parts)
            for parts in self._divisions()
            for way in self._ways(parts)
            if way.bytes <= size
        ]
        if not ways:
            raise fault(
                "WorkspaceOverrun",
                f"node {self.name!r} and what runs as one with it need more workspace than the "
                f"{size} bytes that the plan gives them",
            )
        return min(ways)[1]

    def _part_runs(
        self, some: slice, memory: Mapping[int, np.ndarray], output: np.ndarray, scratch: Scratch
    ) -> list[Run]:
        """Return functions that make some output channels."""
        found: list[Run] = []
        source = memory[self.stages[0].image]
        first = self.kernel
        if isinstance(first, QuantizedConv) and first.writes_over and some != slice(None):
            source = source[:, some]
        steps = []
        for at, stage in enumerate(self.stages):
            is_last = at == len(self.stages) - 1
            box = _box(stage.made, some)
            is_own = not is_last or (stage.after is not None and not self.in_place)
            made = _some(stage.made, some)
            if is_own:
                target = scratch.array(made.shape, stage.made.dtype)
            else:
                target = part_of(output, box).view(stage.made.dtype)
            steps.append((_part(stage.kernel, some), source, target, len(found)))
            source = target
            if stage.after is None:
                found.append(_nothing)
                continue
            register = made_by(stage.after)
            end = part_of(output, box) if is_last else scratch.array(made.shape, register.dtype)
            found.append(_nothing)
            found += _made(stage.after, box, end, memory, {stage.result: target})
            source = end
        for kernel, image, target, place in steps:
            found[place] = kernel.bind(image, target, scratch.rest())
        return found


def _nothing() -> None:
    """Stand in for a kernel that is bound after all registers have memory."""


def _box(tensor: Tensor, some: slice) -> Box:
    """Return the box that some channels take in a value, or the whole value without channels."""
    if some == slice(None):
        return whole(tensor.shape)
    return (slice(0, tensor.shape[0]), some, *whole(tensor.shape[2:]))


def _some(tensor: Tensor, some: slice) -> Tensor:
    """Return shape and type for some channels in a value."""
    return Tensor(box_shape(_box(tensor, some)), tensor.dtype)


def _part(
    kernel: QuantizedConv | QuantizedProduct, some: slice
) -> QuantizedConv | QuantizedProduct:
    """Return the kernel that makes some channels."""
    if some == slice(None):
        return kernel
    assert isinstance(kernel, QuantizedConv)
    return kernel.part(some)


def _made(
    member: Member,
    box: Box,
    output: np.ndarray,
    arrays: Mapping[int, np.ndarray],
    parts: Mapping[int, np.ndarray],
) -> list[Run]:
    """Return functions that make a part of a member's result, from ``parts`` of some values."""
    boxes = operand_boxes(member, box)
    inputs: list[np.ndarray | None] = [None] * len(member.inputs)
    for position, value in member.reads():
        part = None if value in parts else boxes[position]
        array = parts[value] if value in parts else arrays[value]
        inputs[position] = array if part is None else part_of(array, part)
    nothing = Scratch(np.empty(0, np.uint8), member.signature.name)
    run = prepared(member, part_signature(member, box, boxes), inputs, output, nothing, 0, {})
    return [] if run is None else [run]


class _Core(NamedTuple):
    """The members that a byte kernel performs."""

    members: tuple[Member, ...]
    kernel: QuantizedConv | QuantizedProduct
    image: int
    result: Member


def quantized_group(group: Group) -> QuantizedGroup | None:
    """Return a group as byte convolutions or a byte product, if possible."""
    hosts = [member for member in group.members if host_kind(member.signature) is not None]
    if not 1 <= len(hosts) <= 2:
        return None
    found = [_core(group, host) for host in hosts]
    cores = [core for core in found if core is not None]
    if len(cores) < len(hosts):
        return None
    if len(cores) == 2 and not (
        isinstance(cores[0].kernel, QuantizedConv)
        and isinstance(cores[1].kernel, QuantizedConv)
        and cores[1].kernel.writes_over
    ):
        return None
    # Members that make the image come before the kernel, and all others after the last kernel.
    left = {member.value: member for member in group.members}
    for core in cores:
        for member in core.members:
            del left[member.value]
    ahead: list[list[Member]] = []
    known = {core.result.value for core in cores}
    for core in cores:
        needed: set[int] = {core.image}
        own: list[Member] = []
        for member in reversed(group.members):
            if member.value in needed and member.value in left and member.value not in known:
                own.insert(0, left.pop(member.value))
                needed.update(value for _, value in member.reads())
        ahead.append(own)
    after = list(left.values())
    chains = [_chain(group, members) for members in (*ahead, after)]
    if any(
        members and chain is None for members, chain in zip((*ahead, after), chains, strict=True)
    ):
        return None
    first, *between = chains[: len(cores)]
    follow = [*between, chains[-1]]
    stages = []
    for core, chain in zip(cores, follow, strict=True):
        made = made_by(core.result)
        if chain is not None and (
            made_by(chain).shape != made.shape or core.result.value not in chain.inputs
        ):
            return None
        stages.append(ByteStage(core.kernel, core.image, core.result.value, made, chain))
    return _checked(group, first, tuple(stages))


def _checked(
    group: Group, before: Member | None, stages: tuple[ByteStage, ...]
) -> QuantizedGroup | None:
    """Return the group for some stages, if each stage reads the previous stage's result."""
    name = group.sink.signature.name
    made = {stage.result for stage in stages}
    if before is not None and any(value in made for value in before.inputs):
        return None
    for one, other in pairwise(stages):
        end = one.result if one.after is None else one.after.value
        if other.image != end:
            return None
    last = stages[-1]
    end = last.result if last.after is None else last.after.value
    if end != group.sink.value:
        return None
    for stage in stages:
        inputs = () if stage.after is None else stage.after.inputs
        if any(value in made and value != stage.result for value in inputs):
            return None
    if last.after is None:
        allowed = {stages[0].image} if len(stages) == 1 and last.kernel.writes_over else set()
        if not group.taken <= allowed:
            return None
        return QuantizedGroup(name, before, stages, in_place=True)
    in_place = made_by(last.after).dtype in BYTES and not group.taken
    return QuantizedGroup(name, before, stages, in_place)


def _core(group: Group, host: Member) -> _Core | None:
    """Return the members that a single kernel performs around a convolution or product."""
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
    bounds = None if bounded is None else bounds_of(bounded.signature)
    kernel = _kernel_of(host.signature, widen.signature, quantize.signature, bounds)
    image = widen.inputs[0]
    if kernel is None or image is None:
        return None
    members = [member for member in (widen, host, bounded, quantize) if member is not None]
    return _Core(tuple(members), kernel, image, quantize)


def _chain(group: Group, members: Sequence[Member]) -> Member | None:
    """Return a single member that replaces several, if a single chain can."""
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


def host_kind(signature: Signature) -> Literal["Conv", "Gemm", "MatMul"] | None:
    """Return the node's operator kind, if the second operand is constant and a kernel exists."""
    for op in ("Conv", "Gemm", "MatMul"):
        if _is(signature, op) and signature.constant[1] is not None:
            return op
    return None


def _kernel_of(
    host: Signature, widen: Signature, quantize: Signature, bounds: tuple[float, float] | None
) -> QuantizedConv | QuantizedProduct | None:
    """Return the byte kernel that three nodes form, if any."""
    kind = host_kind(host)
    if not (_is(widen, "DequantizeLinear") and _is(quantize, "QuantizeLinear")):
        return None
    known: Quantized | None = getattr(host.constant[1], "quantized", lambda: None)()
    if known is None or (host.input(2) is not None and host.constant[2] is None):
        return None
    matrix = host.operand(1)
    is_transposed = kind == "Gemm" and bool(host.attributes.get("transB", 0))
    axis = 0 if kind == "Conv" or is_transposed else 1
    rank = len(matrix.shape)
    if known.scale().size > 1 and known.axis % rank != axis:
        return None
    first, last = _scale(widen), _scale(quantize)
    if first is None or last is None:
        return None
    x, made = widen.operand(0), quantize.result()

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
    """Return whether a node multiplies rows by a matrix and adds at most a number per column."""
    attributes, bias, made = signature.attributes, signature.input(2), signature.outputs[0]
    if signature.op == "MatMul":
        return True
    is_scaled = attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0
    if is_scaled or attributes.get("transA", 0) or made is None:
        return False
    return bias is None or math.prod(bias.shape) in (1, *bias.shape[-1:])


def _scale(signature: Signature) -> tuple[float, int] | None:
    """Return a conversion's scale and zero point, if each is a single constant number."""
    scale, zero = signature.constant_data(1), signature.constant_data(2)
    if scale is None or scale.size != 1 or scale.dtype != np.float32:
        return None
    if signature.input(2) is not None and (zero is None or zero.size != 1):
        return None
    number = float(scale.reshape(()))
    if not (math.isfinite(number) and number > 0):
        return None
    return number, 0 if zero is None else int(zero.reshape(()))
