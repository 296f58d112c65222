"""Builds a graph from a TFLite model's main subgraph."""

from __future__ import annotations

from arenaplan.base.errors import UnsupportedSubgraph
from arenaplan.base.quoting import quoted
from arenaplan.graph import Effects, Graph
from arenaplan.graph.ops import Operands, effects_of
from arenaplan.graph.sizes import Bind, checked_bytes
from arenaplan.tflite.reader.builtin_options import Attributes, attributes_of
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator
from arenaplan.tflite.reader.tflite_operators import (
    CALLS,
    RESOURCES,
    TfliteOperand,
    canonical,
)
from arenaplan.tflite.reader.tflite_tensors import (
    SubgraphShapes,
    array,
    check_payload,
    dtype_of,
    first_content,
    small_numbers,
    unique_names,
)


class TfliteWalk:
    """
    Reads a model's main subgraph.

    Parameters
    ----------
    model : TfliteModel
        The model.
    name : str
        The model's name.
    bind : mapping or None
        Shapes by tensor, for shapes missing in the file.
    """

    _prefix = ""
    """Prefix for node and value names."""

    def __init__(self, model: TfliteModel, name: str, bind: Bind | None) -> None:
        self._begin(model, model.main, Graph(name), bind)

    def _begin(self, model: TfliteModel, subgraph: int, graph: Graph, bind: Bind | None) -> None:
        """Prepare to read a subgraph into a graph."""
        self._model = model
        self._main = model.subgraphs[subgraph]
        self._names = [self._prefix + name for name in unique_names(self._main)]
        self._shapes = SubgraphShapes(self._main, self._names, bind)
        self._graph = graph
        self._made = {i for operator in self._main.operators for i in operator.outputs}
        self._values: dict[int, int] = {}
        self._operands: dict[int, TfliteOperand] = {}

    def run(self) -> Graph:
        """Return the graph."""
        # An interpreter binds inputs by position, so unused inputs are declared, too.
        for index in dict.fromkeys(self._main.inputs):
            self._declare(index, is_input=True)
            self._warn_if_open(index)
        before: tuple[int, ...] = ()
        for position, operator in enumerate(self._main.operators):
            before = self._add(operator, position, before)
        for index in dict.fromkeys(self._main.outputs):
            self._graph.output(self._value(index))
        return self._graph

    def _add(
        self, operator: TfliteOperator, position: int, before: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Append a node; return the nodes that the next node with hidden state must follow."""
        what = f"{self._prefix}{operator.name}_{position}"
        if operator.name in CALLS and not operator.is_custom:
            # TensorFlow Lite Micro's clock knows such operators, see the timeline.
            self._graph.refuse(
                UnsupportedSubgraph(
                    f"operator {quoted(what)} runs another subgraph, whose arena is planned with "
                    "the main one's for targets 'tflm' and 'numpy' only"
                )
            )
        inputs = tuple(None if i is None else self._value(i) for i in operator.inputs)
        outputs = tuple(None if i is None else self._value(i) for i in operator.outputs)
        hidden = operator.is_custom is False and operator.name in RESOURCES
        node = self._graph.append(
            operator.name,
            inputs,
            outputs,
            name=what,
            attributes=self._attributes(operator),
            effects=self._effects(operator),
            domain="tflite.custom" if operator.is_custom else "tflite",
            version=operator.version,
            after=before if hidden else (),
        )
        return (node.index,) if hidden else before

    def _attributes(self, operator: TfliteOperator) -> Attributes:
        """Return an operator's node attributes."""
        return attributes_of(operator, self._main.tensors)

    def _effects(self, operator: TfliteOperator) -> Effects:
        """Return an operator's effects."""
        sides = self._sides(operator)
        effects = effects_of(canonical(operator, *sides), Operands(*sides))
        # Kernels may write the variables that they read, and files do not say which kernels do.
        mutates = tuple(
            position
            for position, index in enumerate(operator.inputs)
            if index is not None and self._main.tensors[index].is_variable
        )
        return effects._replace(mutates=mutates) if mutates else effects

    def _sides(
        self, operator: TfliteOperator
    ) -> tuple[list[TfliteOperand | None], list[TfliteOperand | None]]:
        """Return the facts about an operator's operands and results."""
        inputs, outputs = (
            [None if index is None else self._operands[index] for index in side]
            for side in (operator.inputs, operator.outputs)
        )
        return inputs, outputs

    def _value(self, index: int) -> int:
        """Return a tensor's value, declared on first use."""
        return self._values[index] if index in self._values else self._declare(index)

    def _declare(self, index: int, *, is_input: bool = False) -> int:
        """Declare a tensor's value."""
        tensor, name = self._main.tensors[index], self._names[index]
        shape, dtype = self._shapes.of(index), dtype_of(tensor, name)
        checked_bytes(name, shape, dtype)
        graph, numbers, is_fixed = self._graph, None, True
        # A tensor without elements has no data, and needs no producer.
        is_empty = 0 in shape and not is_input and index not in self._made
        if self._model.is_constant(tensor) or (is_empty and not tensor.is_variable):
            check_payload(self._model, tensor, name, shape, dtype)
            data = array(self._model, tensor, shape, dtype)
            numbers = small_numbers(data)
            value = graph.constant(name, shape, dtype, data)
        elif tensor.is_variable:
            value = graph.state(name, shape, dtype, initial=first_content(tensor, shape, dtype))
        elif is_input:
            value, is_fixed = graph.input(name, shape, dtype), False
        else:
            value, is_fixed = graph.value(name, shape, dtype), False
        self._values[index] = value
        self._operands[index] = TfliteOperand(shape, dtype, tensor.quantization, is_fixed, numbers)
        return value

    def _warn_if_open(self, index: int) -> None:
        """Warn about assumed numbers in an input's shape, except for a batch of one."""
        axes = self._shapes.open_axes(index)
        value = self._graph.values[self._values[index]]
        # Converters leave the batch open in every model, and store 1 for it.
        if axes and not (axes == [0] and value.shape[:1] == (1,)):
            dims = " and ".join(map(str, axes))
            shape = "x".join(map(str, value.shape))
            self._graph.warnings.append(
                f"dimension {dims} of input {quoted(value.name)} is open; planned as stored: "
                f"{shape}"
            )
