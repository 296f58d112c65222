"""Lowers operators that move elements: copies between parts of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from arenaplan.deploy.code.code_shapes import Loops, collapsed, padded
from arenaplan.deploy.code.code_site import (
    OWN_LOWERINGS,
    CodePart,
    CodeSite,
    Emit,
    lowers,
    pointer,
    words_of,
)
from arenaplan.deploy.code.code_text import Field, c_type
from arenaplan.run.numpy.registry import Step, Tensor, find_kernel
from arenaplan.run.numpy.tflite.tflite_facts import (
    FLOAT,
    check_types,
    constant_operand,
)
from arenaplan.run.numpy.tflite.tflite_layout import (
    batch_parts,
    blank,
    mirrored,
    nearest_rows,
)
from arenaplan.run.numpy.tflite.tflite_resize import integer_sides, real_sides
from arenaplan.tflite.reader.code_walk import STREAMED

# -- rows of the caller ---------------------------------------------------------------------------


@lowers(STREAMED, table=OWN_LOWERINGS)
def rows(site: CodeSite) -> Emit:
    """Request image rows from the caller."""
    type_ = c_type(site.output.dtype)

    def emit(part: CodePart) -> list[str]:
        target = f"({type_} *)(void *)({part.output()})"
        return [f"read_{site.label}(context, {part.start}, {part.stop}, {target});"]

    return emit


# -- parts of arrays ------------------------------------------------------------------------------


def frame_of(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an array whose views show element positions; no element is read or written."""
    return np.empty(shape, dtype)


def _begin(frame: np.ndarray, view: np.ndarray) -> int:
    """Return a view's first byte."""
    first, inner = (array.__array_interface__["data"][0] for array in (frame, view))
    return int(inner) - int(first)


class PartCopy:
    """
    Copies a part of an operand to a part of a result.

    Both parts are views with elements in the same order; dimensions of 1 may differ.
    """

    def __init__(
        self,
        site: CodeSite,
        frames: tuple[np.ndarray, np.ndarray],
        views: tuple[np.ndarray, np.ndarray],
    ) -> None:
        source, target = (view.squeeze() for view in views)
        if source.shape != target.shape or source.dtype != target.dtype:
            raise site.refuse("its operands do not fit the result")
        self.is_empty = source.size == 0
        item = source.itemsize
        loops = collapsed(Loops(list(source.shape), [list(source.strides), list(target.strides)]))
        together = item
        if loops.dims and loops.steps[0][-1] == loops.steps[1][-1] == item:
            together = item * loops.dims[-1]
            loops = Loops(loops.dims[:-1], [steps[:-1] for steps in loops.steps])
        self.is_one = not loops.dims
        self.begins = _begin(frames[0], views[0]), _begin(frames[1], views[1])
        self.together = together
        self.is_gapless = source.flags.c_contiguous and target.flags.c_contiguous
        wide = padded(loops, 6)
        if wide is None:
            raise site.refuse("it has too many dimensions")
        self.parameters = ""
        if not self.is_one and not self.is_empty:
            fields: dict[str, Field] = {
                "dims": wide.dims,
                "from": wide.steps[0],
                "to": wide.steps[1],
                "bytes": together,
            }
            site.use("move")
            self.parameters = site.structure("move", fields)

    def lines(self, source: str, target: str) -> list[str]:
        """Return the statements; none if the bytes are there already."""
        if self.is_empty:
            return []
        x, y = (
            f"(const uint8_t *){source}" if not self.begins[0] else _at(source, self.begins[0]),
            f"(uint8_t *){target}" if not self.begins[1] else _at(target, self.begins[1], const=""),
        )
        if self.is_one:
            return [f"(void)memcpy({y}, {x}, {self.together});"]
        return [f"move({self.parameters}, {x}, {y});"]


def _at(text: str, by: int, const: str = "const ") -> str:
    return f"({const}uint8_t *){text} + {by}"


def copies_of(site: CodeSite, pairs: Sequence[tuple[int, int, PartCopy]]) -> Emit:
    """Return copies from inputs to outputs, leaving out copies onto themselves."""

    def emit(part: CodePart) -> list[str]:
        lines = []
        for source, made, copy in pairs:
            if site.is_there(source, made, copy.begins, gapless=copy.is_gapless):
                continue
            target = site.pointer_to(made)
            if target is not None:
                lines += copy.lines(pointer(part, source), target)
        return lines

    return emit


def _origins(site: CodeSite, moved: Sequence[int]) -> list[np.ndarray]:
    """
    Return where elements of the results are from: what the executor's kernel makes of positions.

    The elements of all moved operands are counted from 0, one operand after the other.
    """
    signature, first = site.signature, 0
    inputs: list[np.ndarray | None] = []
    for at, tensor in enumerate(signature.inputs):
        if tensor is None or at not in moved:
            inputs.append(signature.constant_data(at))
            continue
        count = prod(tensor.shape)
        inputs.append(np.arange(first, first + count).reshape(tensor.shape))
        first += count
    kinds = np.dtype(np.int64)
    signature = replace(
        signature,
        inputs=tuple(
            None if x is None else Tensor(x.shape, kinds) if at in moved else signature.inputs[at]
            for at, x in enumerate(inputs)
        ),
        outputs=tuple(None if y is None else Tensor(y.shape, kinds) for y in signature.outputs),
        constant=tuple(
            None if x is None or at in moved else partial(np.asarray, x)
            for at, x in enumerate(inputs)
        ),
    )
    results = [None if y is None else np.full(y.shape, -1, kinds) for y in signature.outputs]
    run = find_kernel(signature).prepare(Step(signature, tuple(inputs), tuple(results), ()))
    if run is not None:
        run()
    return [np.empty(0, kinds) if made is None else made for made in results]


def _affine(site: CodeSite, origins: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Return the view of an operand that has its elements where they are from."""
    steps = [
        int(np.take(origins, 1, axis).flat[0] - origins.flat[0]) if dim > 1 else 0
        for axis, dim in enumerate(origins.shape)
    ]
    wanted = origins.flat[0] + np.zeros_like(origins)
    for axis, step in enumerate(steps):
        wanted += step * np.arange(origins.shape[axis]).reshape(
            -1, *[1] * (origins.ndim - axis - 1)
        )
    if not np.array_equal(origins, wanted):
        raise site.refuse("its elements are in no order that nested loops have")
    flat = frame.reshape(-1)[int(origins.flat[0]) :]
    strides = [step * frame.itemsize for step in steps]
    return np.lib.stride_tricks.as_strided(flat, origins.shape, strides)


def moved(site: CodeSite, positions: Sequence[int]) -> Emit:
    """Return the copies from each moved operand to each result."""
    pairs = []
    for made, origins in enumerate(_origins(site, positions)):
        tensor = site.signature.outputs[made]
        if tensor is None or not origins.size:
            continue
        first, target = 0, frame_of(tensor.shape, tensor.dtype)
        for source in positions:
            operand = site.input(source)
            count = prod(operand.shape)
            own = (origins >= first) & (origins < first + count)
            if own.any():
                spans = [
                    np.flatnonzero(own.any(tuple(set(range(own.ndim)) - {at})))
                    for at in range(own.ndim)
                ]
                box = tuple(slice(int(span[0]), int(span[-1]) + 1) for span in spans)
                frame = frame_of(operand.shape, operand.dtype)
                part = _affine(site, origins[box] - first, frame)
                pairs.append((source, made, PartCopy(site, (frame, target), (part, target[box]))))
            first += count
    return copies_of(site, pairs)


# -- operators ------------------------------------------------------------------------------------


@lowers("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def reshape(site: CodeSite) -> Emit:
    """Copy, unless the result is where the input is."""
    x, y = site.input(0), site.output
    if prod(x.shape) != prod(y.shape) or x.dtype != y.dtype:
        raise site.refuse(f"a result of shape {y.shape} is not that of {x.shape}")
    source = frame_of((prod(x.shape),), x.dtype)
    target = frame_of((prod(y.shape),), y.dtype)
    return copies_of(site, [(0, 0, PartCopy(site, (source, target), (source, target)))])


@lowers("CONCATENATION", "PACK")
def concatenation(site: CodeSite) -> Emit:
    """Operands one behind the other."""
    return moved(site, [at for at, x in enumerate(site.signature.inputs) if x is not None])


@lowers("SLICE", "STRIDED_SLICE", "TRANSPOSE", "REVERSE_V2", "BROADCAST_TO")
@lowers("SPLIT", "SPLIT_V", "UNPACK")
def view(site: CodeSite) -> Emit:
    """Elements of one operand, in another order."""
    return moved(site, [int(site.op == "SPLIT")])


@lowers("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def space_to_depth(site: CodeSite) -> Emit:
    """Turn squares of pixels into channels, or the reverse."""
    x = frame_of(site.input(0).shape, site.input(0).dtype)
    y = frame_of(site.output.shape, site.output.dtype)
    block = int(site.signature.attributes.get("block_size", 1))
    deep, wide = (y, x) if site.op == "SPACE_TO_DEPTH" else (x, y)
    if x.ndim != 4 or y.ndim != 4 or block < 1 or deep.shape[3] % (block * block):
        raise site.refuse("its blocks do not fit its operands")
    images, height, width, depth = deep.shape
    depth //= block * block
    squares = deep.reshape(images, height, width, block, block, depth).transpose(0, 1, 3, 2, 4, 5)
    pixels = wide.reshape(images, height, block, width, block, depth)
    views = (pixels, squares) if site.op == "SPACE_TO_DEPTH" else (squares, pixels)
    return copies_of(site, [(0, 0, PartCopy(site, (x, y), views))])


@lowers("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def space_to_batch(site: CodeSite) -> Emit:
    """Turn squares of pixels into batch images, or the reverse."""
    signature = site.signature
    x = frame_of(site.input(0).shape, site.input(0).dtype)
    y = frame_of(site.output.shape, site.output.dtype)
    is_forward = site.op == "SPACE_TO_BATCH_ND"
    space, batch = (x, y) if is_forward else (y, x)
    pairs = []
    for inner, outer in batch_parts(signature, space.shape, batch.shape):
        views = (space[outer], batch[inner]) if is_forward else (batch[inner], space[outer])
        pairs.append((0, 0, PartCopy(site, (x, y), views)))
    copies = copies_of(site, pairs)
    if not is_forward:
        return copies
    whole = filled(site, np.array([blank(signature)], x.dtype))
    return lambda part: [*whole(part), *copies(part)]


@lowers("MIRROR_PAD")
def mirror_pad(site: CodeSite) -> Emit:
    """Pad with inner elements in reverse order."""
    x = frame_of(site.input(0).shape, site.input(0).dtype)
    y = frame_of(site.output.shape, site.output.dtype)
    inner, parts = mirrored(site.signature, x, y)
    first = PartCopy(site, (x, y), (x, inner))
    rest = [PartCopy(site, (y, y), part) for part in parts]

    def emit(part: CodePart) -> list[str]:
        lines = first.lines(pointer(part, 0), part.output())
        for copy in rest:
            lines += copy.lines(part.output(), part.output())
        return lines

    return emit


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


@lowers("PAD", "PADV2")
def pad(site: CodeSite) -> Emit:
    """Pad with a constant or the zero point."""
    signature, tensor = site.signature, site.input(0)
    x, y = frame_of(tensor.shape, tensor.dtype), frame_of(site.output.shape, site.output.dtype)
    amounts = constant_operand(signature, 1).reshape(-1, 2).tolist()
    if signature.input(2) is not None:
        number = constant_operand(signature, 2).reshape(-1)[:1]
    else:
        number = np.array([0 if x.dtype == FLOAT else blank(signature)], x.dtype)
    if len(amounts) != x.ndim or min(map(min, amounts)) < 0:
        raise site.refuse("its amounts do not fit the operand")
    inner = tuple(
        slice(before, before + dim) for (before, _), dim in zip(amounts, x.shape, strict=True)
    )
    copy = PartCopy(site, (x, y), (x, y[inner]))
    whole = filled(site, number)
    return lambda part: [*whole(part), *copy.lines(pointer(part, 0), part.output())]


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
