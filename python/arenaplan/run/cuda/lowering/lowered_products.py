"""Matrix products: cuBLAS for floating-point numbers, loops for others."""

from __future__ import annotations

from math import prod

import numpy as np

from arenaplan.run.cuda.device_work import DeviceProduct, Matrix, Work
from arenaplan.run.cuda.lowering.site import (
    Builder,
    DeviceSite,
    Kind,
    Reading,
    broadcast_index,
    elementwise_launch,
    rule,
    unreal,
)
from arenaplan.run.cuda.text import literal, strided_index
from arenaplan.run.numpy.registry import Signature


def _is_float(signature: Signature) -> bool:
    tensors = [*signature.inputs, *signature.outputs]
    types = {tensor.dtype for tensor in tensors if tensor is not None}
    return len(types) == 1 and types.pop().kind == "f"


def _stacks(site_shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Return two operands as matrix stacks with the same leading dimensions, unread."""
    left, right = site_shapes
    a = unreal(left if len(left) > 1 else (1, *left))
    b = unreal(right if len(right) > 1 else (*right, 1))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (
        np.broadcast_to(a, (*lead, *a.shape[-2:])),
        np.broadcast_to(b, (*lead, *b.shape[-2:])),
    )


def _distance(stack: np.ndarray) -> int | None:
    """Return the distance between the matrices in a stack; ``None`` if not constant."""
    found: int | None = None
    covered = 1
    for size, stride in zip(stack.shape[-3::-1], stack.strides[-3::-1], strict=True):
        if size == 1:
            continue
        if found is None:
            found = stride
        elif stride != found * covered:
            return None
        covered *= size
    return found or 0


@rule("MatMul", kind=Kind.WORK, accepts=_is_float, whole=(0, 1))
def matmul(site: DeviceSite) -> list[Work]:
    """Multiply matrix stacks."""
    (left, dtype), (right, _) = site.tensor(0), site.tensor(1)
    a, b = _stacks((left, right))
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    count = prod(a.shape[:-2])
    output = site.sources.place(site.output)
    if len(right) <= 2 and len(left) > 1:  # One matrix for all rows.
        rows, count = rows * count, 1
        a, b = unreal((rows, inner)), unreal((inner, columns))
    if not prod(site.sources.tensors[site.output].shape):
        return []

    def product(
        start_a: int, start_b: int, start: int, matrices: int, *apart: int
    ) -> DeviceProduct:
        return DeviceProduct(
            dtype,
            rows,
            columns,
            inner,
            Matrix(site.place(0), start_a, inner, False, apart[0]),
            Matrix(site.place(1), start_b, columns, False, apart[1]),
            Matrix(output, start, columns, False, rows * columns),
            matrices,
        )

    distances = _distance(a), _distance(b)
    if distances[0] is not None and distances[1] is not None:
        return [product(0, 0, 0, count, distances[0], distances[1])]
    lead = a.shape[:-2]
    starts = (
        (
            sum(at * stride for at, stride in zip(index, a.strides, strict=False)),
            sum(at * stride for at, stride in zip(index, b.strides, strict=False)),
        )
        for index in np.ndindex(*lead)
    )
    return [
        product(start_a, start_b, at * rows * columns, 1, 0, 0)
        for at, (start_a, start_b) in enumerate(starts)
    ]


def _is_whole(signature: Signature) -> bool:
    tensors = [*signature.inputs, *signature.outputs]
    return all(tensor is None or tensor.dtype.kind in "iu" for tensor in tensors)


@rule("MatMul", kind=Kind.WINDOW, accepts=_is_whole)
def whole_matmul(r: Reading, index: str) -> str:
    """Return one element in a product of whole numbers."""
    a, b = _stacks((r.tensor(0).shape, r.tensor(1).shape))
    inner, columns = a.shape[-1], b.shape[-1]
    row = strided_index(f"({index} / {columns})", a.shape[:-1], a.strides[:-1])
    column_shape = (*b.shape[:-2], a.shape[-2], columns)
    column = strided_index(index, column_shape, (*b.strides[:-2], 0, b.strides[-1]))
    first, second = r.text.let("int", row), r.text.let("int", column)
    total = r.text.variable(r.type, literal(0, r.dtype))
    with r.text.block(f"for (int k = 0; k < {inner}; ++k)"):
        x = r.element(0, f"({first} + k)")
        y = r.element(1, f"({second} + k * {columns})")
        r.text.line(f"{total} += {x} * {y};")
    return total


@rule("Gemm", kind=Kind.WORK, accepts=_is_float, whole=(0, 1))
def gemm(site: DeviceSite) -> list[Work]:
    """Multiply two matrices, which may be transposed, and add a third."""
    (left, dtype), (right, _) = site.tensor(0), site.tensor(1)
    attributes = site.signature.attributes
    flips = bool(attributes.get("transA", 0)), bool(attributes.get("transB", 0))
    shape = site.sources.tensors[site.output].shape
    inner = left[0] if flips[0] else left[1]
    output, beta = site.sources.place(site.output), float(attributes.get("beta", 1.0))
    works: list[Work] = []
    if not prod(shape):
        return works
    if site.has(2) and beta:
        own = site.tensor(2).shape

        def body(text: Builder, index: str) -> None:
            added = text.read(site.value(2), broadcast_index(index, own, shape))
            text.write(output, dtype, index, added)

        works.append(elementwise_launch(site.sources, "bias", prod(shape), body))
    else:
        beta = 0.0
    works.append(
        DeviceProduct(
            dtype,
            shape[0],
            shape[1],
            inner,
            Matrix(site.place(0), 0, left[1], flips[0], 0),
            Matrix(site.place(1), 0, right[1], flips[1], 0),
            Matrix(output, 0, shape[1], False, 0),
            alpha=float(attributes.get("alpha", 1.0)),
            beta=beta,
        )
    )
    return works
