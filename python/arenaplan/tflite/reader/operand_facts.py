"""What canonical operators know about the tensors of a main subgraph, without a graph."""

from __future__ import annotations

from math import prod

from arenaplan.graph import Effects
from arenaplan.graph.ops import BITS, Operands, Operator, effects_of
from arenaplan.graph.sizes import checked_bytes
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator
from arenaplan.tflite.reader.tflite_operators import TfliteOperand, canonical
from arenaplan.tflite.reader.tflite_tensors import (
    SubgraphShapes,
    array,
    dtype_of,
    small_numbers,
    unique_names,
)


class OperandFacts:
    """The facts about the tensors of a model's main subgraph, by position."""

    def __init__(self, model: TfliteModel) -> None:
        self._model, self._main = model, model.subgraphs[0]
        self.names = unique_names(self._main)
        self._shapes = SubgraphShapes(self._main, self.names, None)
        self._known: dict[int, TfliteOperand] = {}

    def shape(self, index: int) -> tuple[int, ...]:
        """Return a tensor's shape."""
        return self._shapes.of(index)

    def of(self, index: int) -> TfliteOperand:
        """
        Return the facts about a tensor.

        Raises
        ------
        UnsupportedDtype, SizeError
            If the tensor has elements without a known size, or an impossible size.
        """
        if index not in self._known:
            tensor, name = self._main.tensors[index], self.names[index]
            shape, dtype = self._shapes.of(index), dtype_of(tensor, name)
            checked_bytes(name, shape, dtype)
            is_constant = self._model.is_constant(tensor)
            data = array(self._model, tensor, shape, dtype) if is_constant else None
            is_fixed = is_constant or tensor.is_variable
            self._known[index] = TfliteOperand(
                shape, dtype, tensor.quantization, is_fixed, small_numbers(data)
            )
        return self._known[index]

    def bytes(self, index: int) -> int:
        """Return a tensor's bytes, not rounded; the runtime does not pack small elements."""
        operand = self.of(index)
        return prod(operand.shape) * max(8, BITS[operand.dtype]) // 8

    def canonical(self, operator: TfliteOperator) -> Operator | None:
        """Return the canonical operator, if any."""
        return canonical(operator, *self._sides(operator))

    def effects(self, operator: TfliteOperator) -> Effects:
        """Return an operator's effects."""
        return effects_of(self.canonical(operator), Operands(*self._sides(operator)))

    def _sides(
        self, operator: TfliteOperator
    ) -> tuple[list[TfliteOperand | None], list[TfliteOperand | None]]:
        inputs, outputs = (
            [None if index is None else self.of(index) for index in side]
            for side in (operator.inputs, operator.outputs)
        )
        return inputs, outputs
