"""The work of lines: floating-point operations and bytes moved, whichever takes longer."""

from __future__ import annotations

from math import prod

from arenaplan.importers.jaxpr.program import Equation, Line, Program, Tensor
from arenaplan.ops import convolution_operations, product_operations, roofline


def cost_of(line: Line) -> int:
    """
    Return the work of one run, in floating-point operations or their time in bytes.

    It is that of :func:`arenaplan.ops.roofline`. Arrays between the equations of the line move no
    bytes. A loop without a known number of rounds counts as one round.
    """
    moved = {atom for atom in line.inputs if isinstance(atom, Tensor)}
    moved.update(out for out in line.outputs if out is not None)
    bodies = max((_rounds(line.main) * _total(body) for body in line.main.bodies), default=0)
    operations = sum(_operations(equation) for equation in line.equations)
    return roofline(max(operations, bodies), (atom.operand for atom in moved))


def _total(program: Program) -> int:
    """Return the work of one run of a body."""
    return sum(cost_of(line) for line in program.lines)


def _rounds(equation: Equation) -> int:
    """Return how often a body runs."""
    length = equation.params.get("length", 1)
    return length if isinstance(length, int) else 1


def _operations(equation: Equation) -> int:
    """Return the floating-point operations of an equation without bodies."""
    made = sum(prod(out.shape) for out in equation.outputs if out is not None)
    shapes = [() if atom is None else atom.shape for atom in equation.inputs]
    if equation.primitive == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return product_operations((made,), prod(shapes[0][axis] for axis in contracted))
    if equation.primitive == "conv_general_dilated":
        features = equation.params["dimension_numbers"].rhs_spec[0]
        return convolution_operations((made,), shapes[1], features)
    return max(made, *map(prod, shapes), 0)
