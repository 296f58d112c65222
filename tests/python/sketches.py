"""
TFLite models as plain objects that tests can change, networks, and strips by hand.

The strips are made in the simplest way that has all forms a rewriter can choose: rows by padding
explicitly or by cropping, rows that are kept from the strip before, nested concatenations, and a
plan with slices inside of their source and strips inside of the result.
"""

from __future__ import annotations

import copy
import itertools
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import flat
from arenaplan.tflite.reader.schema import OPERATORS

SAME, VALID = 0, 1
UNIT = 16
PLAN = "OfflineMemoryAllocation"


def bits(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


def number_of(scale: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", scale))[0])


@dataclass
class Tensor:
    name: str
    shape: tuple[int, ...]
    type: int = flat.INT8
    scales: tuple[int, ...] = ()
    zeros: tuple[int, ...] = ()
    dimension: int = 0
    data: bytes | None = None

    def array(self) -> np.ndarray:
        assert self.data is not None
        kind = {flat.INT8: np.int8, flat.INT32: np.int32}[self.type]
        return np.frombuffer(self.data, kind).reshape(self.shape)


@dataclass
class Operator:
    name: str
    inputs: list[int]
    outputs: list[int]
    kind: int = 0
    options: dict[int, tuple[str, int]] = field(default_factory=dict)
    version: int = 1

    def option(self, slot: int, default: int = 0) -> int:
        return self.options.get(slot, ("", default))[1]

    def set(self, slot: int, value: int) -> None:
        self.options[slot] = (self.options[slot][0], value)


@dataclass
class Sketch:
    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    plan: list[int] | None = None
    metadata: dict[str, bytes] = field(default_factory=dict)
    signature: list[tuple[str, int]] = field(default_factory=list)

    def add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def copy(self) -> Sketch:
        return copy.deepcopy(self)

    def file(self) -> bytes:
        codes = sorted({(o.name, o.version) for o in self.operators})
        buffers = [b""]
        numbers: dict[bytes, int] = {}
        tensors = []
        for t in self.tensors:
            buffer = 0
            if t.data is not None:
                if t.data not in numbers:
                    numbers[t.data] = len(buffers)
                    buffers.append(t.data)
                buffer = numbers[t.data]
            table = flat.tensor(t.name, t.shape, t.type, buffer=buffer)
            if t.scales:
                table[4] = {
                    2: flat.Vector("I", t.scales),
                    3: flat.Vector("q", t.zeros),
                    6: flat.Number("i", t.dimension),
                }
            tensors.append(table)
        operators = []
        for o in self.operators:
            options = {slot: flat.Number(code, value) for slot, (code, value) in o.options.items()}
            given = (o.kind, options) if o.kind else None
            code = codes.index((o.name, o.version))
            operators.append(flat.operator(code, o.inputs, o.outputs, given))
        entries = []
        content = dict(self.metadata)
        if self.plan is not None:
            content[PLAN] = struct.pack(f"<3i{len(self.plan)}i", 1, 1, len(self.plan), *self.plan)
        for name, data in content.items():
            entries.append((name, len(buffers)))
            buffers.append(data)
        tables = []
        for name, version in codes:
            number = OPERATORS.index(name)
            table = {0: flat.Number("b", min(number, 127)), 3: flat.Number("i", number)}
            tables.append({**table, 2: flat.Number("i", version)})
        signatures: list[Any] | None = None
        if self.signature:
            maps = [{0: n, 1: flat.Number("I", t)} for n, t in self.signature]
            ends = [m for m, (_, t) in zip(maps, self.signature, strict=True) if t in self.inputs]
            rest = [m for m in maps if m not in ends]
            signatures = [{0: ends, 1: rest, 2: "serve", 4: flat.Number("I", 0)}]
        main = flat.subgraph(tensors, operators, self.inputs, self.outputs)
        return flat.write(flat.model(tables, [main], buffers, entries, signatures))


# -- networks ---------------------------------------------------------------------------------


class Network:
    """A random network, layer by layer."""

    def __init__(self, draw: random.Random, shape: Sequence[int]) -> None:
        self.draw = draw
        self.sketch = Sketch()
        self.sketch.inputs = [self.activation("x", shape)]

    def activation(self, name: str, shape: Sequence[int]) -> int:
        scale = bits(0.02 * 2 ** self.draw.randint(0, 2))
        zero = self.draw.choice([-7, 5, 0, -128, 11])
        return self.sketch.add(Tensor(name, tuple(shape), scales=(scale,), zeros=(zero,)))

    def constant(self, values: np.ndarray, scales: Sequence[float], axis: int = 0) -> int:
        kind = {np.dtype(np.int8): flat.INT8, np.dtype(np.int32): flat.INT32}[values.dtype]
        found = tuple(bits(scale) for scale in scales)
        name = f"c{len(self.sketch.tensors)}"
        zeros = (0,) * len(found)
        data = values.tobytes()
        return self.sketch.add(Tensor(name, values.shape, kind, found, zeros, axis, data))

    def conv(
        self, x: int, channels: int, taps: int, stride: int, padding: int, *, is_deep: bool = False
    ) -> int:
        tensors, draw = self.sketch.tensors, self.draw
        _, height, width, depth = tensors[x].shape
        random_ = np.random.default_rng(draw.randrange(1 << 30))
        channels = depth if is_deep else channels
        shape = (1, taps, taps, depth) if is_deep else (channels, taps, taps, depth)
        scales = random_.uniform(0.004, 0.02, channels).astype(np.float32).tolist()
        weights = random_.integers(-127, 128, shape).astype(np.int8)
        w = self.constant(weights, scales, 3 if is_deep else 0)
        step = number_of(tensors[x].scales[0])
        bias = random_.integers(-900, 900, channels).astype(np.int32)
        b = self.constant(bias, [float(np.float32(step) * np.float32(s)) for s in scales])
        sizes = [made(size, taps, stride, padding) for size in (height, width)]
        y = self.activation(f"t{len(tensors)}", (1, *sizes, channels))
        options = {0: ("b", padding), 1: ("i", stride), 2: ("i", stride)}
        if is_deep:
            options |= {3: ("i", 1), 4: ("b", draw.choice([0, 1])), 5: ("i", 1), 6: ("i", 1)}
            self.sketch.operators.append(Operator("DEPTHWISE_CONV_2D", [x, w, b], [y], 2, options))
        else:
            options |= {3: ("b", draw.choice([0, 1])), 4: ("i", 1), 5: ("i", 1)}
            self.sketch.operators.append(Operator("CONV_2D", [x, w, b], [y], 1, options))
        return y

    def like(self, x: int, shape: Sequence[int]) -> int:
        old = self.sketch.tensors[x]
        name = f"t{len(self.sketch.tensors)}"
        return self.sketch.add(Tensor(name, tuple(shape), scales=old.scales, zeros=old.zeros))

    def pool(self, x: int, name: str, taps: int, stride: int, padding: int) -> int:
        _, height, width, depth = self.sketch.tensors[x].shape
        sizes = [made(size, taps, stride, padding) for size in (height, width)]
        y = self.like(x, (1, *sizes, depth))
        numbers = {1: stride, 2: stride, 3: taps, 4: taps}
        options = {0: ("b", padding), **{k: ("i", v) for k, v in numbers.items()}, 5: ("b", 0)}
        self.sketch.operators.append(Operator(name, [x], [y], 5, options))
        return y

    def add(self, a: int, b: int) -> int:
        y = self.activation(f"t{len(self.sketch.tensors)}", self.sketch.tensors[a].shape)
        self.sketch.operators.append(Operator("ADD", [a, b], [y], 11, {0: ("b", 0)}))
        return y

    def relu(self, x: int) -> int:
        y = self.like(x, self.sketch.tensors[x].shape)
        self.sketch.operators.append(Operator("RELU", [x], [y]))
        return y


def made(size: int, taps: int, stride: int, padding: int) -> int:
    return -(-size // stride) if padding == SAME else (size - taps) // stride + 1


def network(seed: int) -> Sketch:
    """Return a random network; its last layers see whole images."""
    draw = random.Random(seed)
    net = Network(draw, (1, draw.randint(10, 18), draw.choice([4, 8]), draw.choice([2, 4])))
    x = 0
    for _ in range(draw.randint(2, 5)):
        height, width = net.sketch.tensors[x].shape[1:3]
        kind = draw.choice(["conv", "conv", "deep", "pool", "residual", "relu", "point"])
        padding = draw.choice([SAME, SAME, VALID])
        if min(height, width) < 4 and kind not in ("relu", "point"):
            kind = "point"
        stride = draw.choice([1, 1, 2])
        if kind in ("conv", "deep"):
            taps = draw.choice([2, 3, 3])
            x = net.conv(x, draw.choice([4, 8]), taps, stride, padding, is_deep=kind == "deep")
        elif kind == "pool":
            name = draw.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])
            x = net.pool(x, name, draw.choice([2, 3]), stride, padding)
        elif kind == "residual":
            y = net.conv(x, net.sketch.tensors[x].shape[3], 3, 1, SAME)
            y = net.relu(y) if draw.random() < 0.5 else y
            x = net.add(x, y)
        elif kind == "relu":
            x = net.relu(x)
        else:
            x = net.conv(x, draw.choice([4, 8]), 1, 1, VALID)
    return finished(net, x)


def finished(net: Network, result: int) -> Sketch:
    """Return a network with a result, metadata and a signature."""
    found = net.sketch
    found.outputs = [result]
    found.metadata = {"about": b"a test"}
    found.signature = [("image", 0), ("map", result)]
    return found


# -- strips -----------------------------------------------------------------------------------


@dataclass
class Window:
    taps: int
    stride: int
    before: int
    padding: int
    rows: int
    made: int
    columns: tuple[int, int]

    def needs(self, first: int, last: int) -> tuple[int, int]:
        start = first * self.stride - self.before
        stop = (last - 1) * self.stride - self.before + self.taps
        return max(0, start), min(self.rows, stop)


def window_of(sketch: Sketch, operator: Operator) -> Window:
    x, y = sketch.tensors[operator.inputs[0]].shape, sketch.tensors[operator.outputs[0]].shape
    taps = taps_of(sketch, operator)
    if taps is None:
        return Window(1, 1, 0, VALID, x[1], y[1], (0, 0))
    padding, strides = operator.option(0), (operator.option(2), operator.option(1))
    total = [
        max((y[a + 1] - 1) * strides[a] + taps[a] - x[a + 1], 0) if padding == SAME else 0
        for a in (0, 1)
    ]
    columns = (total[1] // 2, total[1] - total[1] // 2)
    return Window(taps[0], strides[0], total[0] // 2, padding, x[1], y[1], columns)


def taps_of(sketch: Sketch, operator: Operator) -> tuple[int, int] | None:
    if "POOL" in operator.name:
        return operator.option(4), operator.option(3)
    if "CONV" in operator.name:
        weights = sketch.tensors[operator.inputs[1]].shape
        return weights[1], weights[2]
    return None


class Strips:
    """The rewriting of a whole network into strips of rows of its output."""

    def __init__(self, old: Sketch, draw: random.Random, cuts: Sequence[int]) -> None:
        self.old = old
        self.draw = draw
        self.new = Sketch(
            [copy.deepcopy(t) for t in old.tensors],
            [],
            list(old.inputs),
            list(old.outputs),
            None,
            dict(old.metadata),
            list(old.signature),
        )
        self._maker = {o.outputs[0]: o for o in old.operators}
        self._held: dict[int, tuple[int, int, int]] = {}
        self._keeps = draw.random() < 0.5
        ends = [0, *cuts, old.tensors[old.outputs[0]].shape[1]]
        parts = []
        for first, last in itertools.pairwise(ends):
            self._memo: dict[tuple[int, int, int], int] = {}
            parts.append(self._rows(old.outputs[0], first, last))
        self._join(parts)
        self._compact()

    def _join(self, parts: list[int]) -> None:
        width = self.draw.choice([2, 3, 10])
        while len(parts) > width:
            groups = [parts[i : i + width] for i in range(0, len(parts), width)]
            parts = [self._concat(g, None) if len(g) > 1 else g[0] for g in groups]
        self._concat(parts, self.old.outputs[0])

    def _concat(self, parts: list[int], result: int | None) -> int:
        tensors = self.new.tensors
        if result is None:
            rows = sum(tensors[p].shape[1] for p in parts)
            result = self._like(parts[0], (1, rows, *tensors[parts[0]].shape[2:]))
        options = {0: ("i", 1), 1: ("b", 0)}
        self.new.operators.append(Operator("CONCATENATION", parts, [result], 10, options, 2))
        return result

    def _like(self, tensor: int, shape: Sequence[int]) -> int:
        old = self.new.tensors[tensor]
        name = f"s{len(self.new.tensors)}"
        return self.new.add(Tensor(name, tuple(shape), old.type, old.scales, old.zeros))

    def _numbers(self, values: Sequence[int], shape: Sequence[int] | None = None) -> int:
        array = np.array(values, np.int32)
        data = array.tobytes()
        wanted = tuple(shape or (len(values),))
        for index, tensor in enumerate(self.new.tensors):
            if (tensor.data, tensor.shape, tensor.type) == (data, wanted, flat.INT32):
                return index
        return self.new.add(Tensor(f"n{len(self.new.tensors)}", wanted, flat.INT32, data=data))

    def _slice(self, tensor: int, first: int, last: int) -> int:
        _, rows, width, depth = self.new.tensors[tensor].shape
        if (first, last) == (0, rows):
            return tensor
        y = self._like(tensor, (1, last - first, width, depth))
        begin = self._numbers([0, first, 0, 0])
        if self.draw.random() < 0.7:
            size = self._numbers([-1, last - first, -1, -1])
            operator = Operator("SLICE", [tensor, begin, size], [y], 48, {}, 2)
        else:
            end, ones = self._numbers([1, last, width, depth]), self._numbers([1, 1, 1, 1])
            masks = dict.fromkeys(range(5), ("i", 0))
            operands = [tensor, begin, end, ones]
            operator = Operator("STRIDED_SLICE", operands, [y], 32, masks, 2)
        self.new.operators.append(operator)
        return y

    def _rows(self, tensor: int, first: int, last: int) -> int:
        """Return a tensor with some rows of an old one."""
        if (tensor, first, last) not in self._memo:
            self._memo[tensor, first, last] = self._made(tensor, first, last)
        return self._memo[tensor, first, last]

    def _made(self, tensor: int, first: int, last: int) -> int:
        if tensor not in self._maker:
            return self._slice(tensor, first, last)
        held = self._held.get(tensor)
        if self._keeps and held is not None and held[1] <= first < held[2] < last:
            old, start, stop = held
            tail = self._slice(old, first - start, stop - start)
            found = self._concat([tail, self._computed(tensor, stop, last)], None)
        else:
            found = self._computed(tensor, first, last)
        self._held[tensor] = (found, first, last)
        return found

    def _computed(self, tensor: int, first: int, last: int) -> int:
        operator = self._maker[tensor]
        window = window_of(self.old, operator)
        new = copy.deepcopy(operator)
        new.version = operator.version
        low, high = window.needs(first, last)
        crop = (first, last)
        if taps_of(self.old, operator) is None:
            new.inputs = [self._rows(x, first, last) for x in operator.inputs]
        elif window.padding == VALID:
            new.inputs[0] = self._rows(operator.inputs[0], low, high)
        else:
            found = self._cropped(window, first, last)
            if found is not None and ("POOL" in operator.name or self.draw.random() < 0.5):
                crop = found[2:]
                new.inputs[0] = self._rows(operator.inputs[0], found[0], found[1])
            else:
                assert "POOL" not in operator.name, "a pool that cannot be cropped"
                above = max(0, window.before - first * window.stride)
                end = (last - 1) * window.stride - window.before + window.taps
                below = max(0, end - window.rows)
                x = self._rows(operator.inputs[0], low, high)
                new.inputs[0] = self._padded(x, above, below, window.columns)
                new.set(0, VALID)
        shape = self.old.tensors[tensor].shape
        new.outputs = [self._like(tensor, (1, crop[1] - crop[0], *shape[2:]))]
        self.new.operators.append(new)
        return self._slice(new.outputs[0], first - crop[0], last - crop[0])

    def _padded(self, x: int, above: int, below: int, columns: tuple[int, int]) -> int:
        _, rows, width, depth = self.new.tensors[x].shape
        y = self._like(x, (1, rows + above + below, width + sum(columns), depth))
        amounts = self._numbers([0, 0, above, below, *columns, 0, 0], (4, 2))
        self.new.operators.append(Operator("PAD", [x, amounts], [y], 22, {}, 2))
        return y

    def _cropped(self, window: Window, first: int, last: int) -> tuple[int, int, int, int] | None:
        """Return rows of the image of which the padded call makes some rows, and those rows."""
        need = window.needs(first, last)
        for start in range(need[0], -1, -1):
            for stop in range(need[1], window.rows + 1):
                count = -(-(stop - start) // window.stride)
                total = max((count - 1) * window.stride + window.taps - (stop - start), 0)
                row, rest = divmod(start - total // 2 + window.before, window.stride)
                if rest or row > first or row + count < last or row < 0:
                    continue
                return start, stop, row, row + count
        return None

    def _compact(self) -> None:
        """Drop tensors that no operator mentions any more."""
        sketch = self.new
        used = {*sketch.inputs, *sketch.outputs}
        for operator in sketch.operators:
            used.update((*operator.inputs, *operator.outputs))
        order = [index for index in range(len(sketch.tensors)) if index in used]
        place = {old: new for new, old in enumerate(order)}
        sketch.tensors = [sketch.tensors[index] for index in order]
        for operator in sketch.operators:
            operator.inputs = [place[i] for i in operator.inputs]
            operator.outputs = [place[i] for i in operator.outputs]
        sketch.inputs = [place[i] for i in sketch.inputs]
        sketch.outputs = [place[i] for i in sketch.outputs]
        sketch.signature = [(name, place[i]) for name, i in sketch.signature]


def strips(seed: int) -> tuple[Sketch, Sketch]:
    """Return a random network, and the same in strips with a plan."""
    for attempt in range(100):
        old = network(1000 * seed + attempt)
        rows = old.tensors[old.outputs[0]].shape[1]
        draw = random.Random(seed)
        if rows < 3:
            continue
        cuts = sorted(draw.sample(range(1, rows), draw.randint(1, min(rows - 1, 5))))
        try:
            new = Strips(old, draw, cuts).new
        except AssertionError:
            continue
        new.plan = planned(new)
        return old, new
    raise AssertionError("no network of this seed can be split")


def doubled(seed: int) -> tuple[Sketch, Sketch]:
    """Return some layers behind an image that is joined with itself, and the same in strips."""
    draw = random.Random(seed)
    axis = draw.choice([1, 1, 2, 3])
    net = Network(draw, (1, draw.choice([5, 6, 7]), 4, 2))
    shape = list(net.sketch.tensors[0].shape)
    shape[axis] *= 2
    x = twice = net.like(0, shape)
    for kind in draw.sample(["conv", "deep", "pool", "sum", "relu"], 2):
        height, width = net.sketch.tensors[x].shape[1:3]
        stride = draw.choice([1, 2]) if min(height, width) > 3 else 1
        if kind in ("conv", "deep"):
            x = net.conv(x, 3, draw.choice([1, 3]), stride, SAME, is_deep=kind == "deep")
        elif kind == "pool":
            x = net.pool(x, draw.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"]), 2, stride, VALID)
        elif kind == "sum":
            depth = net.sketch.tensors[x].shape[3]
            y = net.conv(x, depth, 3, 1, SAME) if draw.random() < 0.5 else net.relu(x)
            x = net.add(x, y)
        else:
            x = net.relu(x)
    old = finished(net, x)
    rows = old.tensors[x].shape[1]
    cuts = sorted(draw.sample(range(1, rows), min(rows - 1, 3)))
    new = Strips(old, draw, cuts).new
    for sketch in (old, new):
        (joined,) = (
            at for at, each in enumerate(sketch.tensors) if each.name == old.tensors[twice].name
        )
        options = {0: ("i", axis), 1: ("b", 0)}
        sketch.operators.insert(0, Operator("CONCATENATION", [0, 0], [joined], 10, options, 2))
    new.plan, end = [], 0
    for tensor in new.tensors:
        new.plan.append(end if tensor.data is None else -1)
        end += -(-int(np.prod(tensor.shape)) // 16) * 16
    return old, new


# -- plans ------------------------------------------------------------------------------------


def planned(sketch: Sketch) -> list[int]:
    """Return offsets with slices inside of their source, and operands inside of their result."""
    at: dict[int, tuple[int, int]] = {}
    for index, tensor in enumerate(sketch.tensors):
        if tensor.data is None:
            at[index] = (index, 0)

    def root(index: int) -> tuple[int, int]:
        parent, shift = at[index]
        if parent == index:
            return index, 0
        top, more = root(parent)
        return top, shift + more

    for operator in sketch.operators:
        y = operator.outputs[0]
        if operator.name in ("SLICE", "STRIDED_SLICE"):
            row = int(np.prod(sketch.tensors[y].shape[2:]))
            shift = int(sketch.tensors[operator.inputs[1]].array()[1]) * row
            if shift % UNIT == 0:
                at[y] = (operator.inputs[0], shift)
        elif operator.name == "CONCATENATION":
            shift = 0
            for x in operator.inputs:
                free = at[x] == (x, 0) and x not in sketch.inputs and root(y)[0] != x
                if shift % UNIT == 0 and free:
                    at[x] = (y, shift)
                shift += int(np.prod(sketch.tensors[x].shape))
    return _placed(sketch, {index: root(index) for index in at})


def _placed(sketch: Sketch, roots: dict[int, tuple[int, int]]) -> list[int]:
    """Return offsets of groups by first fit."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    size: dict[int, int] = {}

    def touch(index: int, step: int) -> None:
        if index in roots:
            top, shift = roots[index]
            first[top] = min(first.get(top, step), step)
            last[top] = max(last.get(top, step), step)
            end = shift + int(np.prod(sketch.tensors[index].shape))
            size[top] = max(size.get(top, 0), end + -end % UNIT)

    for index in sketch.inputs:
        touch(index, -1)
    for step, operator in enumerate(sketch.operators):
        for index in (*operator.inputs, *operator.outputs):
            touch(index, step)
    for index in sketch.outputs:
        touch(index, len(sketch.operators))
    offsets: dict[int, int] = {}
    for top in sorted(size, key=lambda t: -size[t]):
        taken = sorted(
            (offsets[o], offsets[o] + size[o])
            for o in offsets
            if first[o] <= last[top] and first[top] <= last[o]
        )
        offset = 0
        for start, stop in taken:
            if offset + size[top] <= start:
                break
            offset = max(offset, stop)
        offsets[top] = offset
    found = []
    for index in range(len(sketch.tensors)):
        inside = index in roots and roots[index][0] in offsets
        found.append(offsets[roots[index][0]] + roots[index][1] if inside else -1)
    return found
