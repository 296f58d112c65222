"""Lowers operators that move elements: copies between parts of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

import numpy as np

from arenaplan.deploy.code.code_shapes import Loops, collapsed, dense_steps, padded
from arenaplan.deploy.code.code_site import (
    OWN_LOWERINGS,
    Base,
    CodePart,
    CodeSite,
    Emit,
    lowers,
    pointer,
    words_of,
)
from arenaplan.deploy.code.code_text import Field, c_type
from arenaplan.run.numpy.registry import Tensor
from arenaplan.run.numpy.tflite.tflite_facts import FLOAT, check_types
from arenaplan.run.numpy.tflite.tflite_layout import nearest_rows
from arenaplan.run.numpy.tflite.tflite_resize import integer_sides, real_sides
from arenaplan.tflite.reader.code_walk import STREAMED

_MARK: Final = float(1 << 40)
"""Positions of elements are numbers from here on, plus a half."""
_MOST_BOXES: Final = 64
"""Most copies from an operand to a result."""

# -- rows of the caller ---------------------------------------------------------------------------


@lowers(STREAMED, table=OWN_LOWERINGS)
def rows(site: CodeSite) -> Emit:
    """Request image rows from the caller."""
    type_ = c_type(site.output.dtype)

    def emit(part: CodePart) -> list[str]:
        target = f"({type_} *)(void *)({part.output()})"
        return [f"read_{site.label}(context, {part.start}, {part.stop}, {target});"]

    return emit


# -- elements at other places ---------------------------------------------------------------------


class MovedBox(NamedTuple):
    """Result elements that nested loops take from an operand."""

    starts: list[int]
    """By dimension of the result, the first index."""
    counts: list[list[int]]
    """By dimension, the rounds of nested loops."""
    steps: list[list[int]]
    """By dimension and loop, the distance between elements of the operand."""
    first: int
    """The first element of the operand."""


def _rounds(line: np.ndarray) -> list[int] | None:
    """Return the rounds of nested loops that run through numbers; ``None`` for no such loops."""
    count = _even(line)
    if count == line.size:
        return [count]
    rows = line.reshape(-1, count) if line.size % count == 0 else np.array([[0, 0], [0, 1]])
    if (rows - rows[:, :1] != rows[0] - rows[0, 0]).any():
        return None
    outer = _rounds(rows[:, 0])
    return None if outer is None else [*outer, count]


def _even(line: np.ndarray) -> int:
    """Return how many numbers from the first on have equal distances."""
    bends = np.flatnonzero(np.diff(line, 2))
    return int(bends[0]) + 2 if bends.size else line.size


def _cut(planes: Sequence[np.ndarray]) -> tuple[int, int] | None:
    """Return the dimension and index where a part is cut that no nested loops run through."""
    for axis, plane in enumerate(planes):
        edges = np.flatnonzero(((plane[1:] < 0) != (plane[:-1] < 0)).any(axis=1))
        if edges.size:
            return axis, int(edges[0]) + 1
    for axis, plane in enumerate(planes):
        line = plane[:, 0]
        if _rounds(line) is None:
            count = _even(line)
            whole = len(line) // count * count
            is_long = whole < len(line) and _rounds(line[:whole]) is not None
            return axis, whole if is_long else count
    return None


def _boxes(site: CodeSite, origins: np.ndarray) -> list[MovedBox]:
    """Return boxes with all elements that have an origin; -1 is none."""
    found: list[MovedBox] = []
    pending = [tuple(slice(0, dim) for dim in origins.shape)]
    while pending:
        box = pending.pop()
        part = origins[box]
        if (part < 0).all():
            continue
        planes = [np.moveaxis(part, at, 0).reshape(dim, -1) for at, dim in enumerate(part.shape)]
        cut = _cut(planes)
        if cut is not None:
            axis, at = cut[0], box[cut[0]].start + cut[1]
            for half in (slice(at, box[axis].stop), slice(box[axis].start, at)):
                pending.append((*box[:axis], half, *box[axis + 1 :]))
            continue
        lines = [plane[:, 0] for plane in planes]
        first = int(part.flat[0])
        wanted = first + sum(np.ix_(*(line - first for line in lines)), np.zeros((), np.int64))
        if len(found) + len(pending) > _MOST_BOXES or not np.array_equal(part, wanted):
            raise site.refuse("its elements are in no order that a few nested loops have")
        counts = [_rounds(line) or [] for line in lines]
        steps = [
            [int(line[min(step, len(line) - 1)]) - first for step in dense_steps(rounds)]
            for line, rounds in zip(lines, counts, strict=True)
        ]
        found.append(MovedBox([span.start for span in box], counts, steps, first))
    return found


class BoxCopy:
    """Copies a box of a result from an operand."""

    def __init__(self, site: CodeSite, box: MovedBox, shape: Sequence[int], item: int) -> None:
        places = dense_steps(shape)
        counts, source, target = [], [], []
        for rounds, steps, place in zip(box.counts, box.steps, places, strict=True):
            counts += rounds
            source += [step * item for step in steps]
            target += [step * place * item for step in dense_steps(rounds)]
        loops = collapsed(Loops(counts, [source, target]))
        self._together = item
        if loops.dims and loops.steps[0][-1] == loops.steps[1][-1] == item:
            self._together = item * loops.dims[-1]
            loops = Loops(loops.dims[:-1], [steps[:-1] for steps in loops.steps])
        self.is_gapless = not loops.dims
        at = sum(start * place for start, place in zip(box.starts, places, strict=True))
        self.begins = box.first * item, at * item
        wide = padded(loops, 6)
        if wide is None:
            raise site.refuse("it has too many dimensions")
        self._parameters = ""
        if not self.is_gapless:
            fields: dict[str, Field] = {
                "dims": wide.dims,
                "from": wide.steps[0],
                "to": wide.steps[1],
                "bytes": self._together,
            }
            site.use("move")
            self._parameters = site.structure("move", fields)

    def line(self, source: str, target: str, distance: int | None) -> str:
        """Return the statement; bytes at a distance in one memory may overlap."""
        x, y = (
            f"({const}uint8_t *){text}{f' + {begin}' if begin else ''}"
            for const, text, begin in zip(
                ("const ", ""), (source, target), self.begins, strict=True
            )
        )
        if self.is_gapless:
            is_near = distance is not None and abs(distance) < self._together
            return f"(void){'memmove' if is_near else 'memcpy'}({y}, {x}, {self._together});"
        return f"move({self._parameters}, {x}, {y});"


def moved(site: CodeSite, positions: Sequence[int]) -> Emit:
    """
    Return the copies from moved operands to all results, and what fills the rest.

    The executor's kernel tells where elements are from: it moves positions, which are counted from
    0 over all moved operands and marked by a fraction that no constant of the kernel has.
    """
    signature = site.signature
    tensors = {at: site.input(at) for at in positions}
    for at, other in enumerate(signature.inputs):
        if other is not None and at not in tensors and signature.constant_data(at) is None:
            raise site.refuse(f"operand {at} is no constant")
    given, count = {}, 0
    for at, tensor in tensors.items():
        numbers = np.arange(count, count + prod(tensor.shape))
        given[at] = (numbers + _MARK + 0.5).reshape(tensor.shape)
        count += numbers.size
    kind = np.dtype(np.float64)
    outputs = [None if y is None else Tensor(y.shape, kind) for y in signature.outputs]
    copies: list[tuple[int, int, BoxCopy]] = []
    fills: list[Emit] = []
    for made, values in enumerate(site.executed(given, outputs)):
        result = signature.outputs[made]
        if values is None or result is None or not values.size:
            continue
        near = np.clip(values, _MARK, _MARK + count)
        origins = np.where(near % 1 == 0.5, near - _MARK, -1).astype(np.int64)
        if (origins < 0).any():
            blank = {at: np.zeros(tensor.shape, tensor.dtype) for at, tensor in tensors.items()}
            found = site.executed(blank, signature.outputs)[made]
            assert found is not None
            fills.append(filled(site, found[origins < 0][:1]))
        first = 0
        for source, tensor in tensors.items():
            last = first + prod(tensor.shape)
            own = np.where((origins >= first) & (origins < last), origins - first, -1)
            if tensor.dtype != result.dtype and (own >= 0).any():
                raise site.refuse("its operands do not fit the result")
            boxes = _boxes(site, own)
            if len(tensors) == 1 and len(boxes) + len(fills) > 1 and _alike(own, count):
                return _by_planes(site, source)
            for box in boxes:
                copy = BoxCopy(site, box, result.shape, result.dtype.itemsize)
                copies.append((source, made, copy))
            first = last

    def emit(part: CodePart) -> list[str]:
        lines = [line for fill in fills for line in fill(part)]
        for source, made, copy in copies:
            distance = site.distance(source, made, copy.begins)
            if copy.is_gapless and distance == 0:
                continue
            target = site.pointer_to(made)
            if target is not None:
                lines.append(copy.line(pointer(part, source), target, distance))
        return lines

    return emit


def _alike(origins: np.ndarray, count: int) -> bool:
    """Whether each of several planes is made of the same plane of ``count`` elements."""
    planes = origins.reshape(prod(origins.shape[:2]), -1)
    size = count // len(planes)
    ahead = np.where(planes[:1] < 0, 0, size * np.arange(len(planes))[:, None])
    is_inside = count % len(planes) == 0 and planes[0].max() < size
    return len(planes) > 1 and is_inside and np.array_equal(planes, planes[:1] + ahead)


def _by_planes(site: CodeSite, position: int) -> Emit:
    """Return what makes plane after plane: such a result may begin below the operand's place."""
    x, y, signature = site.input(position), site.output, site.signature
    count = prod(y.shape[:2])
    tensors = [Tensor((1, 1, *tensor.shape[2:]), tensor.dtype) for tensor in (x, y)]
    inputs = (*signature.inputs[:position], tensors[0], *signature.inputs[position + 1 :])
    given, made = (f" + image * {prod(tensor.shape)}" for tensor in tensors)
    plane = replace(
        site,
        signature=replace(signature, inputs=inputs, outputs=(tensors[1],)),
        pointer_to=lambda at: f"({site.pointer_to(at)}{made})",
    )
    copies = moved(plane, [position])

    def emit(part: CodePart) -> list[str]:
        inside = part._replace(
            input=lambda at: Base(f"({pointer(part, at)}{given})", "0"),
            output=lambda: f"({part.output()}{made})",
        )
        lines = [f"  {line}" for line in copies(inside)]
        return [f"for (image = 0; image < {count}; ++image) {{", *lines, "}"] if lines else []

    return emit


# -- operators ------------------------------------------------------------------------------------


@lowers("CONCATENATION", "PACK")
def concatenation(site: CodeSite) -> Emit:
    """Operands one behind the other."""
    return moved(site, [at for at, x in enumerate(site.signature.inputs) if x is not None])


@lowers("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "TRANSPOSE", "REVERSE_V2")
@lowers("BROADCAST_TO", "SPLIT", "SPLIT_V", "UNPACK", "MIRROR_PAD", "PAD", "PADV2")
@lowers("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def view(site: CodeSite) -> Emit:
    """Elements of one operand, in another order or with borders."""
    return moved(site, [int(site.op == "SPLIT")])


def filled(site: CodeSite, number: np.ndarray) -> Emit:
    """Return statements that fill the result with a number."""
    y = site.output
    content = number.tobytes()
    if len(set(content)) == 1:
        return lambda part: [f"(void)memset({part.output()}, {content[0]}, {y.bytes});"]
    site.use("fill")
    filler = site.constant("filler", number)
    return lambda part: [
        f"fill((uint8_t *){part.output()}, (const uint8_t *){filler}, {y.dtype.itemsize}, "
        f"{prod(y.shape)});"
    ]


@lowers("ZEROS_LIKE")
def zeros_like(site: CodeSite) -> Emit:
    """Zeros."""
    return lambda part: [f"(void)memset({part.output()}, 0, {site.output.bytes});"]


@lowers("SHAPE")
def shape(site: CodeSite) -> Emit:
    """Write an operand's shape, which is known before a run."""
    name = site.constant("dims", np.array(site.input(0).shape, site.output.dtype))
    return lambda part: [f"(void)memcpy({part.output()}, {name}, {site.output.bytes});"]


@lowers("FILL")
def fill(site: CodeSite) -> Emit:
    """Fill the result with a number."""
    y = site.output
    if site.input(1).dtype != y.dtype:
        raise site.refuse(f"no kernel makes {y.dtype} of {site.input(1).dtype}")
    site.use("fill")
    return lambda part: [
        f"fill((uint8_t *){part.output()}, (const uint8_t *){pointer(part, 1)}, "
        f"{y.dtype.itemsize}, {prod(y.shape)});"
    ]


# -- resizing -------------------------------------------------------------------------------------


@lowers("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(site: CodeSite) -> Emit:
    """Copy the nearest image pixel to each pixel."""
    x, y = site.input(0), site.output
    _check_images(site)
    pixel = x.shape[3] * x.dtype.itemsize
    rows, columns = (
        nearest_rows(x.shape[at], y.shape[at], site.signature.attributes) for at in (1, 2)
    )
    site.use("resize_nearest")
    fields: dict[str, Field] = {
        "images": y.shape[0],
        "image_bytes": x.shape[1] * x.shape[2] * pixel,
        "row_bytes": x.shape[2] * pixel,
        "pixel_bytes": pixel,
        "made_height": y.shape[1],
        "made_width": y.shape[2],
        "rows": site.constant("rows", rows.astype(np.int16)),
        "columns": site.constant("columns", columns.astype(np.int16)),
    }
    parameters = site.structure("resize_nearest", fields)
    return lambda part: [
        f"resize_nearest({parameters}, (const uint8_t *){pointer(part, 0)}, "
        f"(uint8_t *){part.output()});"
    ]


def _check_images(site: CodeSite) -> None:
    """Refuse operands that are not images with equal count and depth."""
    x, y = site.input(0), site.output
    if len(x.shape) != 4 or len(y.shape) != 4 or x.dtype != y.dtype:
        raise site.refuse("its operands are no images of four dimensions")
    if (x.shape[0], x.shape[3]) != (y.shape[0], y.shape[3]):
        raise site.refuse("its result has other images or channels")
    if max(x.shape) > 32767:
        raise site.refuse("its image is too large")


@lowers("RESIZE_BILINEAR")
def resize_bilinear(site: CodeSite) -> Emit:
    """Compute each pixel as a mean of four pixels."""
    check_types(site.signature, "float32 float32", "int8 int8")
    _check_images(site)
    x, y = site.input(0), site.output
    is_real = x.dtype == FLOAT
    sides = real_sides if is_real else integer_sides
    fields: dict[str, Field] = {
        "images": y.shape[0],
        "height": x.shape[1],
        "width": x.shape[2],
        "depth": x.shape[3],
        "made_height": y.shape[1],
        "made_width": y.shape[2],
    }
    for at, name in ((1, "row"), (2, "column")):
        own = sides(site.signature, x.shape[at], y.shape[at])
        weight = np.float32 if is_real else np.int32
        fields |= {
            f"{name}_low": site.constant(f"{name}_low", own.low.astype(np.int16)),
            f"{name}_high": site.constant(f"{name}_high", own.high.astype(np.int16)),
            f"{name}_near": site.constant(f"{name}_near", own.near.astype(weight)),
            f"{name}_far": site.constant(f"{name}_far", own.far.astype(weight)),
        }
    words = words_of(x.dtype)
    words |= {
        "WEIGHT": "float" if is_real else "int32_t",
        "SUM": "float" if is_real else "int64_t",
        "ROUNDED": "sum"
        if is_real
        else "(int8_t)(sum < 0 ? -((-sum + (1 << 19)) >> 20) : (sum + (1 << 19)) >> 20)",
    }
    function = f"resize_bilinear_{words['KIND']}"
    site.use("resize_bilinear", words, function)
    parameters = site.structure(function, fields)
    return lambda part: [f"{function}({parameters}, {pointer(part, 0)}, {part.output()});"]


# -- variables ------------------------------------------------------------------------------------


@lowers("READ_VARIABLE", "ASSIGN_VARIABLE")
def variable(site: CodeSite) -> Emit:
    """Copy or overwrite a state."""
    state = site.input(0)
    moved = site.output if site.op == "READ_VARIABLE" else site.input(1)
    if state.bytes != moved.bytes or state.dtype != moved.dtype:
        raise site.refuse("the variable has another size or type")

    def emit(part: CodePart) -> list[str]:
        target = part.output() if site.op == "READ_VARIABLE" else pointer(part, 0)
        source = pointer(part, 0 if site.op == "READ_VARIABLE" else 1)
        return [f"(void)memcpy({target}, {source}, {state.bytes});"]

    return emit
