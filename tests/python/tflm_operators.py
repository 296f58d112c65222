"""Models of one operator each, for the kernels of TensorFlow Lite Micro."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import flat
from arenaplan.tflite.reader.schema import DTYPES, OPERATORS

TYPES = {name: code for code, name in reversed(DTYPES.items()) if code != 13}
_LETTERS = {
    "float32": "f",
    "int32": "i",
    "int64": "q",
    "int16": "h",
    "uint32": "I",
    "uint64": "Q",
    "bool": "?",
}


class Operand(NamedTuple):
    """A tensor of a model; ``data`` are the numbers of a constant."""

    shape: Sequence[int]
    dtype: str = "float32"
    data: Sequence[float] | None = None
    channels: int = 1
    """Number of scales."""
    is_variable: bool = False
    scale: float = 1.0
    zero_point: int = 0
    axis: int = 0
    """Axis of the scales."""


Options = tuple[int, Mapping[int, Any]]


class Case(NamedTuple):
    """A model of one operator."""

    name: str
    inputs: Sequence[Operand | None]
    outputs: Sequence[Operand]
    options: Options | None = None
    label: str = ""
    custom: Mapping[str, int] | None = None
    """Options of a custom operator."""

    @property
    def title(self) -> str:
        """Name of the case, each once."""
        return f"{self.name}{self.label and '-' + self.label}"


def model_of(case: Case) -> bytes:
    """Return the file of a case."""
    tensors: list[dict[int, Any]] = []
    buffers = [b""]

    def add(operand: Operand) -> int:
        buffer = 0
        if operand.data is not None:
            buffers.append(_packed(operand))
            buffer = len(buffers) - 1
        name = f"t{len(tensors)}"
        tensors.append(
            flat.tensor(
                name,
                operand.shape,
                TYPES[operand.dtype],
                buffer=buffer,
                variable=operand.is_variable,
            )
        )
        if operand.dtype in ("int8", "int16", "int4") or operand.axis < 0:
            (bits,) = struct.unpack("<I", struct.pack("<f", operand.scale))
            tensors[-1][4] = {
                2: flat.Vector("I", [bits] * operand.channels),
                3: flat.Vector("q", [operand.zero_point] * operand.channels),
                6: flat.Number("i", max(0, operand.axis)),
            }
        return len(tensors) - 1

    inputs = [-1 if operand is None else add(operand) for operand in case.inputs]
    outputs = [add(operand) for operand in case.outputs]
    given = [
        index
        for index, operand in zip(inputs, case.inputs, strict=True)
        if operand is not None and operand.data is None and not operand.is_variable
    ]
    operator = flat.operator(0, inputs, outputs, case.options)
    if case.custom is None:
        number = OPERATORS.index(case.name)
        code = {0: flat.Number("b", min(number, 127)), 3: flat.Number("i", number)}
    else:
        code = flat.code("CUSTOM", case.name)
        operator[5] = flat.Data(flex_map(case.custom))
    main = flat.subgraph(tensors, [operator], given, outputs)
    return flat.write(flat.model([code], [main], buffers))


def flex_map(numbers: Mapping[str, int]) -> bytes:
    """Return a FlexBuffer with a map of numbers of 32 bits."""
    out, places = bytearray(), []
    names = sorted(numbers)
    for name in names:
        places.append(len(out))
        out += name.encode() + b"\0"
    out += bytes(-len(out) % 4) + struct.pack("<I", len(names))
    keys = len(out)
    for place in places:
        out += struct.pack("<I", len(out) - place)
    out += struct.pack("<3I", len(out) - keys, 4, len(names))
    values = len(out)
    out += struct.pack(f"<{len(names)}i", *(numbers[name] for name in names))
    out += bytes([1 << 2 | 2] * len(names))
    out += bytes(-len(out) % 4)
    out += struct.pack("<I", len(out) - values)
    return bytes(out) + bytes([9 << 2 | 2, 4])


def _packed(operand: Operand) -> bytes:
    count = prod(operand.shape)
    numbers = list(operand.data or ())
    numbers = (numbers * count)[:count]
    if operand.dtype == "int4":
        return bytes((count + 1) // 2)
    letter = _LETTERS.get(operand.dtype, "b")
    values = numbers if letter == "f" else [int(number) for number in numbers]
    return struct.pack(f"<{count}{letter}", *values)


def _number(value: int, code: str = "i") -> flat.Number:
    return flat.Number(code, value)


def _constant(*numbers: int, dtype: str = "int32") -> Operand:
    return Operand((len(numbers),), dtype, numbers)


IMAGE = (1, 6, 5, 4)
_AXIS = {"float32": 0, "int32": -1, "int64": -1}
"""Biases of sums of 32 and 64 bits have scales, which -1 stands for."""


def cases() -> Iterator[Case]:
    """Yield one case per kernel and element type."""
    yield from _elementwise()
    yield from _layout()
    yield from _convolutions()
    yield from _reductions()
    yield from _others()
    yield from _signals()


def _elementwise() -> Iterator[Case]:
    floats = "ABS CEIL COS EXP FLOOR LOG NEG RELU RELU6 ROUND RSQRT SIN SQRT SQUARE TANH LOGISTIC"
    for name in f"{floats} ELU HARD_SWISH ZEROS_LIKE LOG_SOFTMAX L2_NORMALIZATION".split():
        options = (12, {}) if name == "L2_NORMALIZATION" else None
        yield Case(name, [Operand(IMAGE)], [Operand(IMAGE)], options)
    x = Operand(IMAGE, "int8")
    for name in ("RELU", "RELU6", "TANH", "ELU", "HARD_SWISH", "ABS"):
        yield Case(name, [x], [x], label="int8")
    y = x._replace(scale=1 / 256, zero_point=-128)
    yield Case("LOGISTIC", [x], [y], label="int8")
    yield Case("SOFTMAX", [x], [y], (9, {0: flat.Number("f", 1)}), "int8")
    y = x._replace(scale=16 / 256, zero_point=127)
    yield Case("LOG_SOFTMAX", [x], [y], label="int8")
    x = Operand(IMAGE, "int16", scale=1 / 4096)
    y = x._replace(scale=1 / 32768)
    for name in ("TANH", "LOGISTIC"):
        yield Case(name, [x], [y], label="int16")
    yield Case("SOFTMAX", [x], [y], (9, {0: flat.Number("f", 1)}), "int16")
    for dtype in ("float32", "int8", "int16"):
        both = [Operand(IMAGE, dtype)] * 2
        for name in ("ADD", "SUB", "MUL"):
            yield Case(name, both, both[:1], label=dtype)
        yield Case("LEAKY_RELU", both[:1], both[:1], (75, {}), dtype)
        if dtype == "float32":
            yield Case("SOFTMAX", both[:1], both[:1], (9, {0: flat.Number("f", 1)}))
        for name in ("MAXIMUM", "MINIMUM"):
            if dtype != "int16":
                yield Case(name, both, both[:1], label=dtype)
    for dtype in ("float32", "int8"):
        both = [Operand(IMAGE, dtype, scale=0.5)] * 2
        for name in ("DIV", "SQUARED_DIFFERENCE"):
            yield Case(name, both, both[:1], label=dtype)
        yield Case("PRELU", both, both[:1], label=dtype)
        yield Case("ADD_N", [*both, *both], both[:1], label=dtype)
        for name in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
            yield Case(name, both, [Operand(IMAGE, "bool")], label=dtype)
    for name in ("FLOOR_DIV", "FLOOR_MOD"):
        yield Case(name, [Operand(IMAGE)] * 2, [Operand(IMAGE)])
    flags = [Operand(IMAGE, "bool")] * 2
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        yield Case(name, flags, flags[:1])
    yield Case("LOGICAL_NOT", flags[:1], flags[:1])
    yield Case("SELECT_V2", [flags[0], Operand(IMAGE), Operand(IMAGE)], [Operand(IMAGE)])
    yield Case("QUANTIZE", [Operand(IMAGE)], [Operand(IMAGE, "int8")])
    yield Case("DEQUANTIZE", [Operand(IMAGE, "int8")], [Operand(IMAGE)])
    yield Case("CAST", [Operand(IMAGE)], [Operand(IMAGE, "int32")])


def _layout() -> Iterator[Case]:
    for dtype in ("float32", "int8"):
        x = Operand(IMAGE, dtype)
        yield Case("RESHAPE", [x, _constant(1, 120)], [Operand((1, 120), dtype)], label=dtype)
        axis = (10, {0: _number(1)})
        yield Case("CONCATENATION", [x, x, x], [Operand((1, 18, 5, 4), dtype)], axis, dtype)
        amounts = Operand((4, 2), "int32", (0, 0, 1, 1, 0, 0, 0, 0))
        padded = Operand((1, 8, 5, 4), dtype)
        yield Case("PAD", [x, amounts], [padded], label=dtype)
        yield Case("PADV2", [x, amounts, Operand((1,), dtype, (0,))], [padded], label=dtype)
        yield Case("MIRROR_PAD", [x, amounts], [padded], (77, {}), dtype)
        begin, size = _constant(0, 1, 0, 0), _constant(1, 3, 5, 4)
        yield Case("SLICE", [x, begin, size], [Operand((1, 3, 5, 4), dtype)], label=dtype)
        ends = [_constant(0, 1, 0, 0), _constant(1, 4, 5, 4), _constant(1, 1, 1, 1)]
        part = Operand((1, 3, 5, 4), dtype)
        yield Case("STRIDED_SLICE", [x, *ends], [part], (32, {}), dtype)
        halves = [part, part]
        splits = (35, {0: _number(2)})
        yield Case("SPLIT", [Operand((), "int32", (1,)), x], halves, splits, dtype)
        sizes = [x, _constant(3, 3), Operand((), "int32", (1,))]
        yield Case("SPLIT_V", sizes, halves, (79, {0: _number(2)}), dtype)
        packed = Operand((2, *IMAGE), dtype)
        yield Case("PACK", [x, x], [packed], (59, {0: _number(2), 1: _number(0)}), dtype)
        parts = [x, x]
        yield Case("UNPACK", [packed], parts, (64, {0: _number(2), 1: _number(0)}), dtype)
        turned = Operand((1, 5, 6, 4), dtype)
        yield Case("TRANSPOSE", [x, _constant(0, 2, 1, 3)], [turned], label=dtype)
        yield Case("SQUEEZE", [x], [Operand((6, 5, 4), dtype)], (30, {}), dtype)
        wide = Operand((1, 1, 6, 5, 4), dtype)
        yield Case("EXPAND_DIMS", [x, Operand((1,), "int32", (0,))], [wide], label=dtype)
        yield Case("REVERSE_V2", [x, _constant(1)], [x], label=dtype)
        deep = Operand((1, 3, 2, 16), dtype)
        blocks = (94, {0: _number(2)})
        even = Operand((1, 6, 4, 4), dtype)
        yield Case("SPACE_TO_DEPTH", [even], [deep], (19, {0: _number(2)}), dtype)
        yield Case("DEPTH_TO_SPACE", [deep], [even], blocks, dtype)
        tiles = [_constant(2, 2), Operand((2, 2), "int32", (0, 0, 0, 0))]
        batch = Operand((4, 3, 2, 4), dtype)
        yield Case("SPACE_TO_BATCH_ND", [even, *tiles], [batch], label=dtype)
        yield Case("BATCH_TO_SPACE_ND", [batch, *tiles], [even], label=dtype)
        large = [x, _constant(12, 10)]
        grown = Operand((1, 12, 10, 4), dtype)
        yield Case("RESIZE_BILINEAR", large, [grown], (15, {}), dtype)
        yield Case("RESIZE_NEAREST_NEIGHBOR", large, [grown], (74, {}), dtype)
        rows = [x, _constant(0, 2, 4)]
        found = Operand((1, 3, 5, 4), dtype)
        yield Case("GATHER", rows, [found], (23, {0: _number(1)}), dtype)
        points = [Operand((6, 4), dtype), Operand((3, 1), "int32", (0, 1, 2))]
        yield Case("GATHER_ND", points, [Operand((3, 4), dtype)], label=dtype)
        shown = [Operand((1, 4), dtype), _constant(6, 4)]
        yield Case("BROADCAST_TO", shown, [Operand((6, 4), dtype)], label=dtype)
        update = [x, Operand((1, 2, 2, 4), dtype), _constant(0, 1, 1, 0)]
        yield Case("DYNAMIC_UPDATE_SLICE", update, [x], label=dtype)
    yield Case("SHAPE", [Operand(IMAGE)], [Operand((4,), "int32")], (55, {0: _number(2, "b")}))
    value = Operand((), "float32", (1,))
    yield Case("FILL", [_constant(6, 4), value], [Operand((6, 4))])
    shapes = [_constant(6, 1), _constant(1, 4)]
    yield Case("BROADCAST_ARGS", shapes, [Operand((2,), "int32")])


def _window(stride: int = 1, **more: flat.Number) -> dict[int, Any]:
    """Return options with a padding of the same size, and strides."""
    found = {0: _number(0, "b"), 1: _number(stride), 2: _number(stride)}
    return {**found, **{int(slot[1:]): number for slot, number in more.items()}}


def _convolutions() -> Iterator[Case]:
    kinds = {
        "float32": ("float32", "float32", 1),
        "int8": ("int8", "int32", 8),
        "int16": ("int8", "int64", 8),
        "int4": ("int4", "int32", 8),
    }
    for label, (weights, sums, channels) in kinds.items():
        dtype = "int8" if label == "int4" else label
        x, y = Operand(IMAGE, dtype), Operand((1, 6, 5, 8), dtype)
        bias = Operand((8,), sums, (0,), channels, axis=_AXIS[sums])
        kernel = Operand((8, 3, 3, 4), weights, (0,), channels)
        yield Case("CONV_2D", [x, kernel, bias], [y], (1, _window()), label)
        yield Case("CONV_2D", [x, kernel, None], [y], (1, _window()), f"{label}-no-bias")
        point = Operand((8, 1, 1, 4), weights, (0,), channels)
        yield Case("CONV_2D", [x, point, bias], [y], (1, _window()), f"{label}-1x1")
        row = Operand((1, 1, 9, 4), dtype), Operand((8, 1, 3, 4), weights, (0,), channels)
        result = Operand((1, 1, 9, 8), dtype)
        yield Case("CONV_2D", [*row, bias], [result], (1, _window()), f"{label}-1xn")
        for size in (3, 5):
            deep = Operand((1, size, size, 8), weights, (0,), channels, axis=3)
            options = (2, _window(s3=_number(2)))
            yield Case("DEPTHWISE_CONV_2D", [x, deep, bias], [y], options, f"{label}-{size}")
            deep = Operand((1, size, size, 4), weights, (0,), channels // 2 or 1, axis=3)
            same = Operand((4,), sums, (0,), channels // 2 or 1, axis=_AXIS[sums])
            options = (2, _window(s3=_number(1)))
            title = f"{label}-{size}-same"
            yield Case("DEPTHWISE_CONV_2D", [x, deep, same], [x], options, title)
        matrix = Operand((8, 20), weights, (0,))
        flat_x, flat_y = Operand((6, 20), dtype), Operand((6, 8), dtype)
        bias = Operand((8,), sums, (0,), axis=_AXIS[sums])
        yield Case("FULLY_CONNECTED", [flat_x, matrix, bias], [flat_y], (8, {}), label)
        if label == "int4":
            continue
        matrix = Operand((8, 20), weights, (0,), channels)
        bias = Operand((8,), sums, (0,), channels, axis=_AXIS[sums])
        title = f"{label}-channels"
        yield Case("FULLY_CONNECTED", [flat_x, matrix, bias], [flat_y], (8, {}), title)
        kernel = Operand((8, 3, 3, 4), weights, (0,), channels)
        for stride in (1, 2):
            up = Operand((1, 6 * stride, 5 * stride, 8), dtype)
            shape = _constant(*up.shape)
            options = (49, _window(stride))
            title = f"{label}-{stride}"
            yield Case("TRANSPOSE_CONV", [shape, kernel, x], [up], options, title)
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            options = (5, _window(2, s3=_number(2), s4=_number(2)))
            yield Case(name, [x], [Operand((1, 3, 3, 4), dtype)], options, label)
    options = (5, _window(2, s3=_number(2), s4=_number(2)))
    yield Case("L2_POOL_2D", [Operand(IMAGE)], [Operand((1, 3, 3, 4))], options)


def _reductions() -> Iterator[Case]:
    for dtype in ("float32", "int8", "int16"):
        x = Operand(IMAGE, dtype)
        keep = (27, {0: flat.Number("B", 1)})
        for name in ("MEAN", "SUM"):
            for axes, shape in (((1, 2), (1, 1, 1, 4)), ((3,), (1, 6, 5, 1))):
                title = f"{dtype}-{len(axes)}"
                y = Operand(shape, dtype)
                yield Case(name, [x, _constant(*axes)], [y], keep, title)
        if dtype != "int16":
            for name in ("REDUCE_MAX", "REDUCE_MIN"):
                y = Operand((1, 1, 5, 4), dtype)
                yield Case(name, [x, _constant(1)], [y], keep, dtype)
            for name, union in (("ARG_MAX", 40), ("ARG_MIN", 57)):
                options = (union, {0: _number(2, "b")})
                axis = Operand((), "int32", (3,))
                y = Operand((1, 6, 5), "int32")
                yield Case(name, [x, axis], [y], options, dtype)
            yield Case("CUMSUM", [x, Operand((), "int32", (1,))], [x], (102, {}), dtype)
    flags = [Operand(IMAGE, "bool"), _constant(1)]
    yield Case("REDUCE_ALL", flags, [Operand((1, 1, 5, 4), "bool")], keep)


def _others() -> Iterator[Case]:
    for dtype in ("float32", "int8", "int16"):
        for is_constant in (False, True):
            for first, second in ((0, 0), (1, 0), (0, 1), (1, 1)):
                left = (2, 5, 3) if first else (2, 3, 5)
                right = (2, 7, 5) if second else (2, 5, 7)
                operands = [
                    Operand(left, dtype),
                    Operand(right, dtype, (0,) if is_constant else None),
                ]
                options = (101, {0: flat.Number("B", first), 1: flat.Number("B", second)})
                title = f"{dtype}-{first}{second}{'-constant' if is_constant else ''}"
                result = Operand((2, 3, 7), dtype)
                yield Case("BATCH_MATMUL", operands, [result], options, title)
    for dtype, sums, state in (("float32",) * 3, ("int8", "int32", "int16")):
        operands = [
            Operand((2, 10), dtype),
            Operand((8, 10), dtype, (0,)),
            Operand((8, 5), "int16" if dtype == "int8" else dtype, (0,)),
            Operand((4,), sums, (0,), axis=_AXIS[sums]),
            Operand((2, 40), state, is_variable=True),
        ]
        options = (6, {0: _number(2)})
        yield Case("SVDF", operands, [Operand((2, 4), dtype)], options, dtype)
    for dtype, sums in (("float32", "float32"), ("int8", "int32"), ("int16", "int64")):
        weight = "int8" if dtype == "int16" else dtype
        inner = [Operand((6, 5), weight, (0,)) for _ in range(4)]
        recurrent = [Operand((6, 6), weight, (0,)) for _ in range(4)]
        biases = [Operand((6,), sums, (0,)) for _ in range(4)]
        cell = "float32" if dtype == "float32" else "int16"
        operands = [
            Operand((2, 3, 5), dtype),
            *inner,
            *recurrent,
            *(None,) * 3,
            *biases,
            *(None,) * 2,
            Operand((2, 6), dtype, is_variable=True),
            Operand((2, 6), cell, is_variable=True),
            *(None,) * 4,
        ]
        options = (71, {0: _number(4, "b")})
        y = Operand((2, 3, 6), dtype)
        yield Case("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], options, dtype)
    lookup = [_constant(0, 1), Operand((6, 4), "float32", (0,))]
    yield Case("EMBEDDING_LOOKUP", lookup, [Operand((2, 4))])


def _signals() -> Iterator[Case]:
    """Yield cases of the signal library; option T is an element type."""
    sound, spectrum = Operand((32,), "int16"), Operand((34,), "int16")
    one, ready = Operand((), "int32"), Operand((), "bool")
    bands = Operand((4,), "uint32")
    yield Case("SignalWindow", [sound, sound], [sound], custom={"shift": 12})
    yield Case("SignalFftAutoScale", [sound], [sound, one], custom={})
    for kind, dtype in ((7, "int16"), (2, "int32"), (0, "float32")):
        given, made = Operand((32,), dtype), Operand((34,), dtype)
        size = {"T": kind, "fft_length": 32}
        yield Case("SignalRfft", [given], [made], label=dtype, custom=size)
        yield Case("SignalIrfft", [made], [given], label=dtype, custom=size)
    edges = {"start_index": 0, "end_index": 17}
    yield Case("SignalEnergy", [spectrum], [Operand((17,), "uint32")], custom=edges)
    tables = [Operand((17,), "uint32"), *([Operand((20,), "int16", (1,))] * 2)]
    tables += [Operand((5,), "int16", (1,))] * 3
    channels = {"num_channels": 4}
    sums = [Operand((4,), "uint64")]
    yield Case("SignalFilterBank", tables, sums, custom=channels)
    yield Case("SignalFilterBankSquareRoot", [*sums, one], [bands], custom={})
    steps = {
        "alternate_one_minus_smoothing": 1,
        "alternate_smoothing": 1,
        "clamping": 1,
        "min_signal_remaining": 1,
        "one_minus_smoothing": 1,
        "smoothing": 1,
        "smoothing_bits": 1,
        "spectral_subtraction_bits": 1,
    }
    noise = [bands, bands]
    name = "SignalFilterBankSpectralSubtraction"
    yield Case(name, [bands], noise, custom={**steps, **channels})
    gains = Operand((125,), "int16", (1,))
    yield Case("SignalPCAN", [*noise, gains], [bands], custom={"snr_shift": 6})
    logs = {"input_correction_bits": 3, "output_scale": 64}
    yield Case("SignalFilterBankLog", [bands], [Operand((4,), "int16")], custom=logs)
    context = {"stacker_left_context": 2, "stacker_right_context": 1, "stacker_step": 2}
    frame, stack = Operand((6,), "int16"), Operand((24,), "int16")
    custom = {**context, "num_channels": 6}
    yield Case("SignalStacker", [frame], [stack, ready], custom=custom)
    chunks = Operand((2, 8), "int16")
    yield Case("SignalDelay", [chunks], [chunks], custom={"delay_length": 5})
    frames = {"frame_size": 12, "frame_step": 8, "prefill": 1}
    cut = Operand((2, 1, 12), "int16")
    yield Case("SignalFramer", [chunks], [cut, ready], custom=frames)
    for kind, dtype in ((7, "int16"), (0, "float32")):
        step = {"T": kind, "frame_step": 8}
        pieces, joined = Operand((2, 1, 12), dtype), Operand((2, 8), dtype)
        yield Case("SignalOverlapAdd", [pieces], [joined], label=dtype, custom=step)
    ring = Operand((1, 1, 1, 4), "int8"), Operand((1, 5, 1, 4), "int8")
    yield Case("CIRCULAR_BUFFER", ring[:1], ring[1:], custom={"cycles_max": 1})
