"""The work of lines: floating-point operations or bytes moved, whichever takes longer."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from arenaplan.formats.jaxpr.jaxpr_program import Equation, JaxprArray, JaxprProgram, Line
from arenaplan.graph.ops import Array, convolution_operations, product_operations, roofline

_SHOWN: Final = frozenset(["expand_dims", "reshape", "squeeze", "stop_gradient"])
"""Primitives whose result is the operand in another shape."""

_PARTS: Final = frozenset(["dynamic_slice", "gather", "slice"])
"""Primitives that read as many elements of the first operand as they make."""


def cost_of(line: Line) -> int:
    """
    Return the work per run, in floating-point operations or equivalent bytes.

    The work is computed by :func:`arenaplan.graph.ops.roofline`. Arrays between the line's
    equations move no bytes, and neither do elements left out by a slice. A loop with an unknown
    number of rounds counts as one round. A line that only reshapes its operand does next to
    nothing.
    """
    if line.main.primitive in _SHOWN and not line.before and not line.behind:
        return 1
    bodies = max((_rounds(line.main) * _total(body) for body in line.main.bodies), default=0)
    operations = sum(_operations(equation) for equation in line.equations)
    return roofline(max(operations, bodies), _moved(line))


def _moved(line: Line) -> Iterator[Array]:
    """Yield the arrays that a line reads and writes, each once, with the elements read."""
    read: dict[JaxprArray, int] = {}
    for equation in line.equations:
        for position, atom in enumerate(equation.inputs):
            if isinstance(atom, JaxprArray):
                is_part = position == 0 and equation.primitive in _PARTS
                elements = _made(equation) if is_part else prod(atom.shape)
                read[atom] = read.get(atom, 0) + elements
    for atom in dict.fromkeys(line.inputs):
        if isinstance(atom, JaxprArray):
            yield Array((min(read[atom], prod(atom.shape)),), atom.dtype, False)
    yield from (out.operand for out in dict.fromkeys(line.outputs) if out is not None)


def _total(program: JaxprProgram) -> int:
    """Return a body's work per run."""
    return sum(cost_of(line) for line in program.lines)


def _rounds(equation: Equation) -> int:
    """Return how often a body runs."""
    length = equation.params.get("length", 1)
    return length if isinstance(length, int) else 1


def _operations(equation: Equation) -> int:
    """Return the floating-point operations in an equation without bodies."""
    made = _made(equation)
    if equation.primitive in _PARTS:
        return made
    shapes = [() if atom is None else atom.shape for atom in equation.inputs]
    if equation.primitive == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return product_operations((made,), prod(shapes[0][axis] for axis in contracted))
    if equation.primitive == "conv_general_dilated":
        features = equation.params["dimension_numbers"].rhs_spec[0]
        return convolution_operations((made,), shapes[1], features)
    return max(made, *map(prod, shapes), 0)


def _made(equation: Equation) -> int:
    """Return the number of elements that an equation makes."""
    return sum(prod(out.shape) for out in equation.outputs if out is not None)
