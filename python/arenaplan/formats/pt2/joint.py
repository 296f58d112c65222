"""
Joint graphs: forward and backward pass of a PyTorch program in one graph, and perhaps the update.

Transposes and expansions are views with strides in PyTorch. Where only products read or make a
transposed tensor, the transpose is a view here as well: kernels of products take strides. Where
elementwise operators read an expanded tensor, they read the smaller one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from arenaplan.formats.pt2.pt2_operators import OPERATORS
from arenaplan.formats.pt2.pt2_program import Call, Program
from arenaplan.graph import ops
from arenaplan.graph.ops import Array

_PRODUCTS: Final = frozenset(["addbmm", "addmm", "baddbmm", "bmm", "matmul", "mm"])
_TRANSPOSES: Final = frozenset(["permute", "t", "transpose"])
_EXPANSIONS: Final = frozenset(["expand"])
_ALIASES: Final = frozenset(["alias", "detach"])
_ATTENTION: Final = "_scaled_dot_product_"


def base_of(call: Call) -> str:
    """Return the name of an operator of ATen without its overload; of others nothing."""
    parts = call.target.removeprefix("torch.ops.").split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "aten" else ""


def strided(program: Program) -> frozenset[str]:
    """
    Return the results of transposes that need no copy.

    Either only products read the result, or the operand is the result of a product, or of another
    such transpose, that nothing else reads.
    """
    readers = _readers(program)
    transposes = [call for call in program.calls if _is_transpose(call)]
    found: set[str] = set()
    for call in reversed(transposes):
        users = readers[call.results[0]]
        if all(user and (_is_product(user) or user.results[0] in found) for user in users):
            found.update(call.results)
    written = {name for call in program.calls if _is_product(call) for name in call.results}
    """Results of products, in whichever order of dimensions their readers want."""
    for call in transposes:
        (source,) = (name for name in call.reads() if name is not None)
        if source in written and len(readers[source]) == 1:
            written.update(call.results)
            found.update(call.results)
    return frozenset(found)


def _is_product(call: Call) -> bool:
    """Whether a call is a product of matrices."""
    return base_of(call) in _PRODUCTS


def _is_transpose(call: Call) -> bool:
    """Whether a call puts the dimensions of one tensor in another order."""
    reads = [name for name in call.reads() if name is not None]
    return base_of(call) in _TRANSPOSES and len(reads) == len(call.results) == 1


def without_aliases(
    program: Program, replaced: Mapping[str, str]
) -> tuple[Program, Mapping[str, str]]:
    """
    Return a program in which a tensor has one name, and its donations.

    Tensors without gradients are other tensors than those with gradients in PyTorch, of the same
    bytes, and ``copy`` returns its second operand in the type of the first one. Nothing writes in
    place in a joint graph, so they are one.
    """
    names: dict[str, str] = {}
    calls = []
    for call in program.calls:
        source = _same_tensor(call, program)
        if source is None:
            calls.append(_reading(call, names))
        else:
            names[call.results[0]] = names.get(source, source)
    outputs = tuple(
        port._replace(tensor=names.get(port.tensor, port.tensor)) for port in program.outputs
    )
    replaced = {into: names.get(made, made) for into, made in replaced.items()}
    return program._replace(calls=tuple(calls), outputs=outputs), replaced


def _same_tensor(call: Call, program: Program) -> str | None:
    """Return the operand that is the result of a call."""
    reads = [name for name in call.reads() if name is not None]
    base = base_of(call)
    if len(call.results) != 1 or not reads:
        return None
    is_copy = base == "copy" and len(reads) == 2
    if not is_copy and (base not in _ALIASES or len(reads) != 1):
        return None
    source = program.tensors.get(reads[-1])
    return reads[-1] if source == program.tensors.get(call.results[0]) else None


def without_expansions(program: Program) -> Program:
    """Return a program whose elementwise operators repeat elements of operands themselves."""
    smaller: dict[str, str] = {}
    """Sources of expanded tensors."""
    calls = []
    for call in program.calls:
        reads = [name for name in call.reads() if name is not None]
        if OPERATORS.get(base_of(call)) is ops.ELEMENTWISE:
            call = _reading(call, smaller)
        elif base_of(call) in _EXPANSIONS and len(reads) == len(call.results) == 1:
            smaller[call.results[0]] = smaller.get(reads[0], reads[0])
        calls.append(call)
    program = program._replace(calls=tuple(calls))
    readers = _readers(program)
    unread = {name for name in smaller if not readers[name]}
    kept = tuple(call for call in calls if unread.isdisjoint(call.results))
    return program._replace(calls=kept)


def cost_of(base: str, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> int:
    """Return the work of one run (:mod:`arenaplan.graph.ops.work`)."""
    operands = [x for x in inputs if x is not None]
    made = sum(prod(x.shape) for x in outputs)
    operations = max([made, *(prod(x.shape) for x in operands)])
    if base in _PRODUCTS and len(operands) >= 2:
        operations = ops.product_operations((made,), operands[-2].shape[-1])
    elif base in ("convolution", "convolution_backward") and len(operands) >= 2:
        *_, weights = operands[: 3 if base == "convolution_backward" else 2]
        # Every element of the output image is a sum over one filter; each gradient is one more.
        image = outputs[0] if base == "convolution" else operands[0]
        passes = 1 if base == "convolution" else len(outputs)
        operations = passes * ops.convolution_operations(image.shape, weights.shape)
    elif base.startswith(_ATTENTION):
        is_backward = base.endswith("_backward")
        queries, keys = operands[1:3] if is_backward else operands[:2]
        # Two products forward; backward, one of them again and two gradients of each.
        product = ops.product_operations(queries.shape, keys.shape[-2])
        operations = (5 if is_backward else 2) * product
    return ops.roofline(operations, (*operands, *outputs))


def _readers(program: Program) -> dict[str, list[Call | None]]:
    """Return the calls that read each tensor, with ``None`` for the results of the program."""
    readers: dict[str, list[Call | None]] = {name: [] for name in program.tensors}
    for call in program.calls:
        for name in set(call.reads()) - {None}:
            readers.setdefault(str(name), []).append(call)
    for port in program.outputs:
        readers.setdefault(port.tensor, []).append(None)
    return readers


def _reading(call: Call, renamed: dict[str, str]) -> Call:
    """Return a call that reads other tensors."""
    arguments = tuple(
        argument._replace(
            tensors=tuple(name and renamed.get(name, name) for name in argument.tensors)
        )
        for argument in call.arguments
    )
    return call._replace(arguments=arguments)
