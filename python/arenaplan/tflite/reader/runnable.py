"""
The graph for the executor: variables are states, and effects match the executor's kernels.

Operators on resources become reads and writes of states, initialized by the subgraph of
``CALL_ONCE``. Kernels make outputs in order, block by block; kernels are never fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Final, NamedTuple

import numpy as np

from arenaplan.base.errors import InvalidOperand, UnsupportedOp, UnsupportedSubgraph
from arenaplan.base.quoting import quoted
from arenaplan.graph import Effects, Graph, Overlap
from arenaplan.graph.sizes import Bind
from arenaplan.tflite.reader.builtin_options import attributes_of
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.subgraph_flow import FLOWS, ExpansionBudget, Kind, Within, add_flow
from arenaplan.tflite.reader.tflite_model import Subgraph, TfliteModel, TfliteOperator
from arenaplan.tflite.reader.tflite_operators import RESOURCES, TfliteOperand
from arenaplan.tflite.reader.tflite_tensors import array, check_payload, dtype_of, first_content
from arenaplan.tflite.reader.tflite_walk import TfliteWalk

_CONTAINER, _NAME = 0, 1
_SUBGRAPH: Final = 0
_HANDLED: Final = frozenset({"ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"})


class Resource(NamedTuple):
    """The name of a variable shared by all subgraphs."""

    container: str
    name: str


class RunnableWalk(TfliteWalk):
    """
    Reads a model's main subgraph, or a called subgraph, for the executor.

    Parameters
    ----------
    place : Within, optional
        The place of a called subgraph.

    Raises
    ------
    UnsupportedSubgraph
        On planning, if an operator calls another subgraph, except ``IF``, ``WHILE``, and
        ``CALL_ONCE`` with a subgraph that assigns constants to variables.
    """

    def __init__(
        self, model: TfliteModel, name: str, bind: Bind | None, place: Within | None = None
    ) -> None:
        if place is None:
            super().__init__(model, name, bind)
            place = Within(model.main, self._graph, "", (), ExpansionBudget(len(model.data)))
        else:
            self._prefix = place.prefix
            self._begin(model, place.subgraph, place.graph, None)
        self.place = place
        """The subgraph being read, and the subgraphs around it."""
        self._handles: dict[int, Resource] = {}
        self._states: dict[Resource, int] = {}
        self._contents: dict[Resource, np.ndarray] = {}

    def _declare(self, index: int, *, is_input: bool = False) -> int:
        tensor = self._main.tensors[index]
        if DTYPES.get(tensor.type) != "int4" or not self._model.is_constant(tensor):
            return super()._declare(index, is_input=is_input)
        # Kernels unpack such weights, here once for all runs.
        name, shape = self._names[index], self._shapes.of(index)
        check_payload(self._model, tensor, name, shape, "int4")
        content = np.frombuffer(self._model.content(tensor.buffer), np.int8)
        numbers = np.stack([content << 4 >> 4, content >> 4], axis=1).reshape(-1)
        data = numbers[: prod(shape)].reshape(shape)
        value = self._graph.constant(name, shape, "int8", data)
        self._values[index] = value
        self._operands[index] = TfliteOperand(shape, "int8", tensor.quantization, True, None)
        return value

    def _fold(self, operator: TfliteOperator) -> bool:
        """Declare widened weights as constants: the file has half the bytes."""
        if operator.is_custom or operator.name != "DEQUANTIZE":
            return False
        ((source, *_), (made, *_)) = operator.inputs or (None,), operator.outputs or (None,)
        if source is None or made is None or made in self._values:
            return False
        tensor, name = self._main.tensors[source], self._names[made]
        shape = self._shapes.of(made)
        if DTYPES.get(tensor.type) != "float16" or not self._model.is_constant(tensor):
            return False
        if DTYPES.get(self._main.tensors[made].type) != "float32":
            return False
        check_payload(self._model, tensor, self._names[source], shape, "float16")
        data = array(self._model, tensor, shape, "float16")
        if data is None:
            return False
        self._values[made] = self._graph.constant(
            name, shape, "float32", partial(data.astype, np.float32)
        )
        self._operands[made] = TfliteOperand(shape, "float32", None, True, None)
        return True

    # -- subgraphs that operators run ------------------------------------------------------------

    @property
    def model(self) -> TfliteModel:
        """The model that is read."""
        return self._model

    @property
    def graph(self) -> Graph:
        """The graph that nodes are appended to."""
        return self._graph

    def inside(self, place: Within) -> RunnableWalk:
        """Return the walk over a subgraph that an operator in this walk runs."""
        return RunnableWalk(self._model, "", None, place)

    def value_of(self, index: int | None, what: str) -> int:
        """Return the value of a required operand."""
        if index is None:
            raise InvalidOperand(f"operator {quoted(what)} leaves out an operand")
        return self._value(index)

    def declare_inputs(self, kinds: Sequence[Kind]) -> list[int]:
        """Declare a subgraph's inputs, with the shapes and types of some operands."""
        self._check_fit("inputs", self._main.inputs, kinds)
        return [self._declare(index, is_input=True) for index in self._main.inputs]

    def take_inputs(self, values: Sequence[int]) -> None:
        """Bind a subgraph's inputs to values in the graph."""
        found = [self._graph.values[value] for value in values]
        self._check_fit("inputs", self._main.inputs, [(it.shape, it.dtype) for it in found])
        for index, value in zip(self._main.inputs, found, strict=True):
            tensor = self._main.tensors[index]
            is_fixed = value.kind in ("constant", "state")
            self._values[index] = value.index
            self._operands[index] = TfliteOperand(
                value.shape, value.dtype, tensor.quantization, is_fixed, None
            )

    def made(self, kinds: Sequence[Kind] | None) -> list[int]:
        """
        Append a subgraph's nodes, and return the results.

        Parameters
        ----------
        kinds : sequence or None
            Required shapes and types of the results; if left out, a single result of any kind.
        """
        self._check_fit("outputs", self._main.outputs, kinds)
        before: tuple[int, ...] = ()
        for position, operator in enumerate(self._main.operators):
            before = self._add(operator, position, before)
        return [self._value(index) for index in self._main.outputs]

    def _check_fit(self, what: str, indices: Sequence[int], kinds: Sequence[Kind] | None) -> None:
        """Refuse a subgraph whose inputs or outputs do not match an operator."""
        who = f"operator {quoted(self._prefix.rstrip('/'))}: subgraph {self.place.subgraph}"
        count = 1 if kinds is None else len(kinds)
        if len(indices) != count or (what == "inputs" and len(set(indices)) < count):
            raise UnsupportedSubgraph(
                f"{who} has {len(set(indices))} different {what} instead of {count}"
            )
        for index, kind in zip(indices, kinds or (), strict=False):
            tensor = self._main.tensors[index]
            if what == "inputs" and self._model.is_constant(tensor):
                raise UnsupportedSubgraph(f"{who} has a constant among its inputs")
            shape, dtype = self._shapes.of(index), dtype_of(tensor, self._names[index])
            if (shape, dtype) != kind:
                raise UnsupportedSubgraph(
                    f"{who} has {quoted(tensor.name)} of shape {shape} ({dtype}) among its {what} "
                    f"where the operator has shape {kind[0]} ({kind[1]})"
                )

    # -- operators -------------------------------------------------------------------------------

    def _add(
        self, operator: TfliteOperator, position: int, before: tuple[int, ...]
    ) -> tuple[int, ...]:
        what = f"{self._prefix}{operator.name}_{position}"
        if self._fold(operator):
            return before
        if operator.name in FLOWS and not operator.is_custom:
            add_flow(self, operator, what)
            return before
        if operator.is_custom or operator.name not in RESOURCES | {"CALL_ONCE"}:
            return super()._add(operator, position, before)
        if operator.name == "CALL_ONCE" and self._learn(operator):
            return before
        if operator.name == "VAR_HANDLE":
            _keep_handle(operator, self._handles)
            return before
        if operator.name not in _HANDLED:
            return super()._add(operator, position, before)
        handle = operator.inputs[0] if operator.inputs else None
        resource = None if handle is None else self._handles.get(handle)
        is_read = operator.name == "READ_VARIABLE"
        moved = operator.outputs[:1] if is_read else operator.inputs[1:2]
        if resource is None or not moved or moved[0] is None:
            raise UnsupportedOp(
                f"operator {quoted(what)} has no handle that a VAR_HANDLE of its subgraph makes"
            )
        state = self._state(resource, moved[0])
        value = self._value(moved[0])
        # Operators on a state keep their order: reads must see the content before later
        # assignments.
        node = self._graph.append(
            operator.name,
            (state,) if is_read else (state, value),
            (value,) if is_read else (),
            name=what,
            attributes=attributes_of(operator, self._main.tensors),
            effects=Effects() if is_read else Effects(mutates=(0,)),
            domain="tflite",
            version=operator.version,
            after=before,
        )
        return (node.index,)

    def _effects(self, operator: TfliteOperator) -> Effects:
        effects = super()._effects(operator)
        # Made in order and never in pieces, a result may still follow an operand at no distance.
        overlaps = set(effects.overlaps)
        for flow in effects.flows:
            made = operator.outputs[flow.output]
            if made is not None and flow.pieces == prod(self._shapes.of(made)):
                overlaps |= {
                    Overlap(source, flow.output, 0)
                    for source in flow.follows
                    if self._may_overlap(operator.inputs[source])
                }
        return effects._replace(flows=(), loads=(), windows=(), overlaps=tuple(sorted(overlaps)))

    def _may_overlap(self, index: int | None) -> bool:
        """Whether a tensor's memory may be written while a node runs."""
        return index is not None and not self._operands[index].is_fixed

    def _state(self, resource: Resource, index: int) -> int:
        """Return a variable's value, declared on first use."""
        if resource not in self._states:
            tensor = self._main.tensors[index]
            shape, dtype = self._shapes.of(index), dtype_of(tensor, tensor.name)
            content = self._contents.get(resource)
            if content is None or content.dtype != dtype or content.size != prod(shape):
                content = first_content(tensor, shape, dtype)
            if content is not None:
                content = content.reshape(shape)
            name = "/".join(part for part in resource if part) or "variable"
            self._states[resource] = self._graph.state(
                f"{name}#{len(self._states)}", shape, dtype, initial=content
            )
        return self._states[resource]

    def _learn(self, operator: TfliteOperator) -> bool:
        """Read a subgraph's assignments to variables; return whether it does nothing else."""
        index = operator.options.number(_SUBGRAPH)
        if not 0 < index < len(self._model.subgraphs):
            return False
        contents = _contents(self._model, self._model.subgraphs[index])
        self._contents.update(contents or {})
        return contents is not None


def _contents(model: TfliteModel, subgraph: Subgraph) -> dict[Resource, np.ndarray] | None:
    """Return the constants that a subgraph assigns to variables; ``None`` if it does more."""
    handles: dict[int, Resource] = {}
    contents = {}
    for operator in subgraph.operators:
        if operator.name == "VAR_HANDLE" and not operator.is_custom:
            _keep_handle(operator, handles)
            continue
        if operator.name != "ASSIGN_VARIABLE" or operator.is_custom or len(operator.inputs) != 2:
            return None
        handle, source = operator.inputs
        if handle not in handles or source is None:
            return None
        tensor = subgraph.tensors[source]
        if not model.is_constant(tensor):
            return None
        dtype, shape = dtype_of(tensor, tensor.name), tensor.shape or ()
        check_payload(model, tensor, tensor.name, shape, dtype)
        content = array(model, tensor, shape, dtype)
        if content is None:
            return None
        contents[handles[handle]] = content
    return contents


def _keep_handle(operator: TfliteOperator, handles: dict[int, Resource]) -> None:
    """Note which variable a handle names."""
    made = operator.outputs[0] if operator.outputs else None
    if made is None:
        return
    handles[made] = Resource(*map(operator.options.text, (_CONTAINER, _NAME)))
