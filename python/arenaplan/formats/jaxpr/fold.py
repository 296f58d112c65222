"""
Passes that join equations of a program: arrays between joined equations need no bytes.

==================  ===============================================================================
pass                arrays that lose their bytes
==================  ===============================================================================
:func:`drop`        those that no result depends on
:func:`settle`      those that depend on constants alone, and are no larger: they become constants
:func:`generate`    those that depend on numbers alone: readers compute elements where they need
                    them, and operators that need a whole array get one that is made just before
:func:`broadcast`   repeated elements, read by elementwise operators: readers repeat them
:func:`transpose`   results of matrix products and operands in another order of dimensions: kernels
                    write or read with other strides
:func:`sink`        cheap ones that are kept for the backward pass beside their operands: readers
                    compute them (:mod:`~arenaplan.formats.jaxpr.sink`)
:func:`update`      steps of the formula of an optimizer: one elementwise loop per new parameter
                    (:mod:`~arenaplan.formats.jaxpr.loop_fusion`)
:func:`fuse`        steps of all elementwise formulas, if XLA's compiler runs the program
:func:`reduce`      operands of reductions that nothing else reads
==================  ===============================================================================

No pass changes the numbers that a program computes, or the operators that compute them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod
from typing import Final

from arenaplan.formats.jaxpr.jaxpr_operators import REDUCTIONS
from arenaplan.formats.jaxpr.jaxpr_program import (
    Equation,
    JaxprArray,
    JaxprProgram,
    Line,
    Number,
    joined,
)
from arenaplan.formats.jaxpr.loop_fusion import fuse, update
from arenaplan.formats.jaxpr.sink import reduce, sink
from arenaplan.graph.ops import array_bytes

_LONGEST: Final = 12
"""
Most equations that recompute an array from numbers at each reader. Masks and positions need fewer.
Longer formulas cost more than the array's bytes.
"""

INDEX_MAPS: Final = frozenset(
    [
        *("broadcast_in_dim", "copy", "copy_p", "expand_dims", "reshape", "rev", "slice"),
        *("squeeze", "stop_gradient", "transpose"),
    ]
)
"""Primitives whose result elements are all operand elements."""

_FREE: Final = ("left", "right")
"""Sides of a matrix product whose dimensions a kernel can write or read contiguously."""


def fold(
    program: JaxprProgram,
    updated: Collection[JaxprArray] = (),
    replaced: Collection[JaxprArray] = (),
    *,
    compiles: bool = False,
) -> None:
    """
    Run all passes.

    Parameters
    ----------
    program : JaxprProgram
        Changed in place, including loop and branch bodies.
    updated : collection of JaxprArray
        New contents of parameters and states, whose formulas are joined.
    replaced : collection of JaxprArray
        The old contents.
    compiles : bool, default False
        Whether XLA's compiler runs the program.
    """
    drop(program)
    settle(program)
    generate(program)
    broadcast(program)
    transpose(program)
    drop(program)
    sink(program, replaced)
    drop(program)
    update(program, updated)
    if compiles:
        fuse(program, updated, replaced)
    reduce(program)
    drop(program)
    for line in program.lines:
        for equation in line.equations:
            for body in equation.bodies:
                fold(body, compiles=compiles)


def drop(program: JaxprProgram) -> None:
    """Remove pure lines whose results are not needed."""
    needed = {atom for atom in program.outputs if isinstance(atom, JaxprArray)}
    kept = []
    for line in reversed(program.lines):
        is_pure = all(equation.is_pure for equation in line.equations)
        if not is_pure or not needed.isdisjoint(out for out in line.outputs if out is not None):
            kept.append(line)
            needed.update(atom for atom in line.inputs if isinstance(atom, JaxprArray))
    program.lines = kept[::-1]


def settle(program: JaxprProgram) -> None:
    """
    Turn results that depend only on constants into constants.

    A result larger than its operands is computed when needed: constants do not count in any figure,
    and would hide bytes.
    """
    kept = []
    for line in program.lines:
        tensors = [atom for atom in line.inputs if isinstance(atom, JaxprArray)]
        is_known = tensors and all(x.kind == "constant" and not x.is_outside for x in tensors)
        outputs = [out for out in line.outputs if out is not None]
        if is_known and line.main.is_pure and _bytes(outputs) <= _bytes(set(tensors)):
            program.ahead.append(line)
            for out in outputs:
                out.kind = "constant"
        else:
            kept.append(line)
    program.lines = kept


# -- arrays made of numbers, and repeated elements ----------------------------------------------


def generate(program: JaxprProgram) -> None:
    """Let readers compute arrays that depend on numbers alone."""
    chains: dict[JaxprArray, list[Equation]] = {}
    """The equations that compute such an array, in order."""
    lines = []
    for line in program.lines:
        chain = _chain(line.main, chains)
        result = line.main.result
        if chain is not None and result is not None:
            chains[result] = chain
            continue
        for position, atom in enumerate(line.main.inputs):
            if not isinstance(atom, JaxprArray) or atom not in chains:
                continue
            if line.main.is_elementwise or atom.shape == ():
                line.before = joined(line.before, chains[atom])
            else:
                made = _made(chains[atom])
                lines.append(made)
                line.main.inputs[position] = made.main.result
        lines.append(line)
    for position, atom in enumerate(program.outputs):
        if isinstance(atom, JaxprArray) and atom in chains:
            lines.append(_made(chains[atom]))
            program.outputs[position] = lines[-1].main.result
    program.lines = lines


def _chain(equation: Equation, chains: dict[JaxprArray, list[Equation]]) -> list[Equation] | None:
    """Return the equations that compute a result from numbers alone, ``None`` if none do."""
    if not (
        equation.is_elementwise or equation.primitive == "iota" or equation.primitive in INDEX_MAPS
    ):
        return None
    chain: list[Equation] = []
    for atom in equation.inputs:
        if isinstance(atom, Number):
            continue
        if atom is None or atom not in chains:
            return None
        chain = joined(chain, chains[atom])
    chain = [*chain, equation]
    return chain if len(chain) <= _LONGEST and equation.is_pure else None


def _made(chain: list[Equation]) -> Line:
    """Return a line that computes a new array from numbers."""
    last, result = chain[-1], chain[-1].result
    assert result is not None
    fresh = JaxprArray(result.shape, result.dtype)
    main = Equation(last.primitive, list(last.inputs), [fresh], last.params, last.source)
    return Line(main, chain[:-1])


def broadcast(program: JaxprProgram) -> None:
    """Let elementwise operators repeat elements of smaller operands."""
    makers = program.makers()
    for line in program.lines:
        if not line.main.is_elementwise:
            continue
        for atom in line.main.inputs:
            chain: list[Equation] = []
            while isinstance(atom, JaxprArray) and (maker := makers.get(atom)) and _repeats(maker):
                chain.insert(0, maker.main)
                atom = maker.main.inputs[0]
            line.before = joined(line.before, chain)


def _repeats(line: Line) -> bool:
    """Whether a line makes an array by repeating a smaller array's elements."""
    x, y = line.main.inputs[0] if line.main.inputs else None, line.main.result
    return (
        line.main.primitive == "broadcast_in_dim"
        and len(line.main.inputs) == 1
        and isinstance(x, JaxprArray)
        and y is not None
        and prod(y.shape) > prod(x.shape)
    )


# -- transposes -----------------------------------------------------------------------------------


def transpose(program: JaxprProgram) -> None:
    """
    Let kernels write and read in another dimension order.

    Products write results and read operands with strides, unless a row's elements would lie in
    several products of a batch. Elementwise operators and reductions read with any strides.
    Convolutions read weights backwards.
    """
    results = {atom for atom in program.outputs if isinstance(atom, JaxprArray)}
    readers = program.readers()
    gone: set[Equation] = set()
    for line in program.lines:
        if line.main.primitive == "dot_general":
            line.behind = _behind(line, readers, results)
            gone.update(line.behind)
    program.lines = [line for line in program.lines if line.main not in gone]
    readers = program.readers()
    folded: set[Line] = set()
    # The last transpose first: a transpose that reads another takes over the other's readers.
    for line in reversed(program.lines):
        y, x = line.main.result, line.main.inputs[0] if line.main.inputs else None
        is_strided = line.main.primitive in ("transpose", "rev")
        if not is_strided or y is None or not isinstance(x, JaxprArray):
            continue
        found = readers.get(y, [])
        able = [reader for reader in found if _reads_strided(reader, line.main)]
        is_gone = len(able) == len(found) and y not in results
        if not is_gone and x.kind == "activation":
            continue
        for reader in able:
            reader.before = joined([line.main], reader.before)
        kept = [reader for reader in readers[x] if not (is_gone and reader is line)]
        readers[x] = list(dict.fromkeys([*kept, *able]))
        if is_gone:
            folded.add(line)
    program.lines = [line for line in program.lines if line not in folded]


def _behind(
    line: Line, readers: dict[JaxprArray, list[Line]], results: Collection[JaxprArray]
) -> list[Equation]:
    """Return the equations, ending in a transpose, through which a product can write."""
    (lhs_contracted, rhs_contracted), (lhs_batch, rhs_batch) = line.main.params["dimension_numbers"]
    lhs, rhs = line.main.inputs
    result = line.main.result
    if lhs is None or rhs is None or result is None:
        return []
    left = len(lhs.shape) - len(lhs_contracted) - len(lhs_batch)
    right = len(rhs.shape) - len(rhs_contracted) - len(rhs_batch)
    sides: list[str | None] = [*["batch"] * len(lhs_batch), *["left"] * left, *["right"] * right]
    chain: list[Equation] = []
    best: list[Equation] = []
    while result is not None and result not in results and len(readers.get(result, ())) == 1:
        (reader,) = readers[result]
        after = reader.main.result
        if after is None or reader.before or reader.behind:
            break
        if reader.main.primitive == "transpose":
            sides = [sides[axis] for axis in reader.main.params["permutation"]]
        elif reader.main.primitive in ("reshape", "squeeze", "expand_dims"):
            sides = _reshaped(sides, result.shape, after.shape)
        else:
            break
        chain.append(reader.main)
        result = after
        is_writable = _innermost(sides, after.shape) in _FREE
        if reader.main.primitive == "transpose" and is_writable:
            best = list(chain)
    return best


def _reads_strided(reader: Line, made: Equation) -> bool:
    """Whether a line's kernel can read a transpose's operand instead of the result."""
    main = reader.main
    if made.primitive == "rev":
        weights = main.inputs[1:]
        return main.primitive == "conv_general_dilated" and made.result in weights
    if main.is_elementwise or main.primitive in REDUCTIONS:
        return not reader.name
    if main.primitive != "dot_general":
        return False
    (source,), result = made.inputs, made.result
    assert source is not None
    _, batches = main.params["dimension_numbers"]
    transposes = {equation.result: equation for equation in reader.before}
    inner = max((axis for axis, dim in enumerate(source.shape) if dim > 1), default=None)
    for atom, batch in zip(main.inputs, batches, strict=True):
        chain: list[Equation] = []
        while isinstance(atom, JaxprArray) and atom in transposes:
            chain.insert(0, transposes[atom])
            (atom,) = chain[0].inputs
        if atom is not result or inner is None:
            continue
        at = inner
        for equation in (made, *chain):
            at = list(equation.params["permutation"]).index(at)
        if at in batch:
            return False
    return True


def _reshaped(
    sides: list[str | None], before: tuple[int, ...], after: tuple[int, ...]
) -> list[str | None]:
    """Return the sides of a reshaped array's dimensions; ``None`` where sides are mixed."""
    if 0 in before:
        return [None] * len(after)
    spans, inside = [], prod(before)
    for dim, side in zip(before, sides, strict=True):
        spans.append((inside, inside // dim, side))
        inside //= dim
    found: list[str | None] = []
    inside = prod(after)
    for dim in after:
        outer, inside = inside, inside // dim
        # The dimensions in ``before`` whose strides lie between this dimension's strides.
        parts = {side for high, low, side in spans if high > inside and low < outer and high > low}
        found.append(parts.pop() if len(parts) == 1 else None)
    return found


def _innermost(sides: list[str | None], shape: tuple[int, ...]) -> str | None:
    """Return the side of the last dimension with size > 1."""
    found = [side for side, dim in zip(sides, shape, strict=True) if dim != 1]
    return found[-1] if found else "left"


# -- parts ----------------------------------------------------------------------------------------


def _bytes(tensors: Iterable[JaxprArray]) -> int:
    """Return the total bytes of arrays."""
    return sum(array_bytes(tensor.shape, tensor.dtype) for tensor in tensors)
