"""Builds the function that replaces a node with an ONNX Runtime operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import FunctionProto, NodeProto, helper, numpy_helper

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch, UnsupportedOp
from arenaplan.formats.onnx.op import OnnxOperand, Op
from arenaplan.formats.onnx.tensors import numpy_dtype
from arenaplan.graph.ops import Shape
from arenaplan.graph.ops.own_ops import SINKS, TRAINING

VERSION: Final = 27
"""Version of standard operators in functions."""


class BodyBuilder:
    """A function under construction for a node."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self._nodes: list[NodeProto] = []

    def operand(self, position: int) -> OnnxOperand:
        """Return a required input with at least one dimension."""
        found = self.op.input(position)
        if not found.shape:
            raise self.op.error(ShapeMismatch, f"input {position} is a single number")
        return found

    def dims(self, position: int, rank: int) -> Shape:
        """Return an input's dimensions; the input must have the given rank."""
        shape = self.op.input(position).shape
        if len(shape) != rank:
            raise self.op.error(
                ShapeMismatch, f"input {position} has shape {shape}, not {rank} axes"
            )
        return shape

    def name(self, position: int) -> str:
        """Return an input's name; empty if left out."""
        return "" if self.op.optional(position) is None else f"i{position}"

    def wants(self, position: int) -> bool:
        """Whether something reads an output."""
        return position < len(self.op.outputs) and bool(self.op.outputs[position])

    def several(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add a node; return the result names."""
        name = f"{self.op.type}.{len(self._nodes)}"
        made = [f"{name}.{number}" for number in range(count)]
        self._nodes.append(helper.make_node(kind, inputs, made, name, **attributes))
        return made

    def __call__(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of the only result."""
        return self.several(kind, inputs, 1, **attributes)[0]

    def constant(self, numbers: Any, dtype: str = "int64") -> str:
        """Return a constant's name."""
        try:
            array = np.asarray(numbers, numpy_dtype(dtype))
        except (OverflowError, TypeError, ValueError):
            raise self.op.error(InvalidOperand, f"{numbers} does not fit {dtype}") from None
        return self("Constant", value=numpy_helper.from_array(array))

    def steps(self, count: int, dtype: str = "int64") -> str:
        """Return the name of the numbers from 0 on, which are not computed while a file is read."""
        return self("Range", *(self.constant(end, dtype) for end in (0, count, 1)))

    def reshape(self, name: str, *shape: int) -> str:
        """Return the name of a reshaped value."""
        return self("Reshape", name, self.constant(shape))

    def split(self, name: str, axis: int, *sizes: int) -> list[str]:
        """Return the names of a value's parts along an axis."""
        return self.several("Split", [name, self.constant(sizes)], len(sizes), axis=axis)

    def function(self, *results: str) -> FunctionProto:
        """
        Return the function.

        Raises
        ------
        UnsupportedOp
            If the node wants a result that has no name.
        """
        for position, result in enumerate(results):
            if self.wants(position) and not result:
                raise self.refused(f"output {position}")
        return helper.make_function(
            self.op.domain or "ai.onnx",
            self.op.type,
            [f"i{position}" for position in range(len(self.op.inputs))],
            results,
            self._nodes,
            [
                helper.make_opsetid("", VERSION),
                *(helper.make_opsetid(domain, 1) for domain in (SINKS, TRAINING)),
            ],
        )

    def refused(self, what: str) -> Exception:
        """Return the error for an unsupported form of the operator."""
        return self.op.error(UnsupportedOp, f"{what} is not supported")

    def refuse_inputs(self, *positions: int) -> None:
        """Refuse some inputs."""
        for position in positions:
            if self.op.optional(position) is not None:
                raise self.refused(f"input {position}")

    def refuse_attributes(self, **usual: Any) -> None:
        """Refuse attributes with other than usual values."""
        for name, value in usual.items():
            given = self.op.attributes.get(name, value)
            if given != value:
                raise self.refused(f"{name}={given!r}")

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a number."""
        value = self.op.attributes.get(name, default)
        if not isinstance(value, (int, float)):
            raise self.op.error(InvalidAttribute, f"attribute {name!r} is {str(value)[:80]!r}")
        return float(value)


Write: TypeAlias = "Callable[[BodyBuilder], FunctionProto | None]"
