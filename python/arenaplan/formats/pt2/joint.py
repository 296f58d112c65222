"""
Joint graphs: a PyTorch program's forward and backward pass, and optionally the update.

Transposes and expansions are strided views in PyTorch. Where only products read or make a
transposed tensor, the transpose is a view here, too, because product kernels take strides.
Elementwise operators read the smaller tensor instead of the expanded tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from arenaplan.formats.pt2.pt2_operators import OPERATORS
from arenaplan.formats.pt2.pt2_program import Call, Pt2Program
from arenaplan.graph import ops
from arenaplan.graph.ops import Array

_PRODUCTS: Final = frozenset(["addbmm", "addmm", "baddbmm", "bmm", "matmul", "mm"])
_TRANSPOSES: Final = frozenset(["permute", "t", "transpose"])
_EXPANSIONS: Final = frozenset(["expand"])
_ALIASES: Final = frozenset(["alias", "detach"])
_ATTENTION: Final = "_scaled_dot_product_"


def base_of(call: Call) -> str:
    """Return an ATen operator's name without overload; "" for other operators."""
    parts = call.target.removeprefix("torch.ops.").split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "aten" else ""


def strided(program: Pt2Program) -> frozenset[str]:
    """
    Return the transposes' results that need no copy.

    Either only products read the result, or the operand is the result of a product or another such
    transpose without other readers.
    """
    readers = _readers(program)
    transposes = [call for call in program.calls if _is_transpose(call)]
    found: set[str] = set()
    for call in reversed(transposes):
        users = readers[call.results[0]]
        if all(user and (_is_product(user) or user.results[0] in found) for user in users):
            found.update(call.results)
    written = {name for call in program.calls if _is_product(call) for name in call.results}
    """Product results, in any dimension order that readers want."""
    for call in transposes:
        (source,) = (name for name in call.reads() if name is not None)
        if source in written and len(readers[source]) == 1:
            written.update(call.results)
            found.update(call.results)
    return frozenset(found)


def _is_product(call: Call) -> bool:
    """Whether a call is a matrix product."""
    return base_of(call) in _PRODUCTS


def _is_transpose(call: Call) -> bool:
    """Whether a call only reorders a tensor's dimensions."""
    reads = [name for name in call.reads() if name is not None]
    return base_of(call) in _TRANSPOSES and len(reads) == len(call.results) == 1


def without_aliases(
    program: Pt2Program, replaced: Mapping[str, str]
) -> tuple[Pt2Program, Mapping[str, str]]:
    """
    Return a program in which each tensor has only one name, and the donations.

    In PyTorch, a detached tensor is a different tensor with the same bytes, and ``copy`` returns
    the second operand in the first operand's type. Joint graphs have no in-place writes, so such
    tensors are merged.
    """
    names: dict[str, str] = {}
    calls = []
    for call in program.calls:
        source = _same_tensor(call, program)
        if source is None:
            calls.append(call.reading(names))
        else:
            names[call.results[0]] = names.get(source, source)
    outputs = tuple(
        port._replace(tensor=names.get(port.tensor, port.tensor)) for port in program.outputs
    )
    replaced = {into: names.get(made, made) for into, made in replaced.items()}
    return program._replace(calls=tuple(calls), outputs=outputs), replaced


def _same_tensor(call: Call, program: Pt2Program) -> str | None:
    """Return the operand that is a call's result."""
    reads = [name for name in call.reads() if name is not None]
    base = base_of(call)
    if len(call.results) != 1 or not reads:
        return None
    is_copy = base == "copy" and len(reads) == 2
    if not is_copy and (base not in _ALIASES or len(reads) != 1):
        return None
    source = program.tensors.get(reads[-1])
    return reads[-1] if source == program.tensors.get(call.results[0]) else None


def without_expansions(program: Pt2Program) -> Pt2Program:
    """Return a program whose elementwise operators repeat operand elements themselves."""
    smaller: dict[str, str] = {}
    """Sources of expanded tensors."""
    calls = []
    for call in program.calls:
        reads = [name for name in call.reads() if name is not None]
        if OPERATORS.get(base_of(call)) is ops.ELEMENTWISE:
            call = call.reading(smaller)
        elif base_of(call) in _EXPANSIONS and len(reads) == len(call.results) == 1:
            smaller[call.results[0]] = smaller.get(reads[0], reads[0])
        calls.append(call)
    program = program._replace(calls=tuple(calls))
    readers = _readers(program)
    unread = {name for name in smaller if not readers[name]}
    kept = tuple(call for call in calls if unread.isdisjoint(call.results))
    return program._replace(calls=kept)


def cost_of(base: str, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> int:
    """Return the work per run (:mod:`arenaplan.graph.ops.work`)."""
    operands = [x for x in inputs if x is not None]
    made = sum(prod(x.shape) for x in outputs)
    operations = max([made, *(prod(x.shape) for x in operands)])
    if base in _PRODUCTS and len(operands) >= 2:
        operations = ops.product_operations((made,), operands[-2].shape[-1])
    elif base in ("convolution", "convolution_backward") and len(operands) >= 2:
        *_, weights = operands[: 3 if base == "convolution_backward" else 2]
        # Every output image element is a sum over one filter; each gradient is another such sum.
        image = outputs[0] if base == "convolution" else operands[0]
        passes = 1 if base == "convolution" else len(outputs)
        operations = passes * ops.convolution_operations(image.shape, weights.shape)
    elif base.startswith(_ATTENTION):
        is_backward = base.endswith("_backward")
        queries, keys = operands[1:3] if is_backward else operands[:2]
        # Forward: two products. Backward: one product again, and two gradients for each product.
        product = ops.product_operations(queries.shape, keys.shape[-2])
        operations = (5 if is_backward else 2) * product
    return ops.roofline(operations, (*operands, *outputs))


def _readers(program: Pt2Program) -> dict[str, list[Call | None]]:
    """Return the calls that read each tensor, with ``None`` for program results."""
    readers: dict[str, list[Call | None]] = {name: [] for name in program.tensors}
    for call in program.calls:
        for name in set(call.reads()) - {None}:
            readers.setdefault(str(name), []).append(call)
    for port in program.outputs:
        readers.setdefault(port.tensor, []).append(None)
    return readers
