"""Operators as functions that append nodes to a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import AttributeProto, ModelProto, helper, numpy_helper

from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOperand, UnknownShape
from arenaplan.base.free_names import free_name
from arenaplan.base.quoting import quoted
from arenaplan.formats import load
from arenaplan.formats.onnx.budget import ImportBudget
from arenaplan.formats.onnx.external import Folder
from arenaplan.formats.onnx.function_bodies import INLINED
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.onnx_work import RANDOM, cost_of
from arenaplan.formats.onnx.op import DataDependent, OnnxOperand, Op
from arenaplan.formats.onnx.operators import node_effects
from arenaplan.formats.onnx.own_operators import OWN
from arenaplan.formats.onnx.rules import rule_of
from arenaplan.formats.onnx.rules.schema_rules import infer
from arenaplan.formats.onnx.symbol_schema import (
    TRAINING,
    VERSION,
    Schema,
    sorted_out,
    standard,
    standard_names,
    unknown_operator,
)
from arenaplan.formats.onnx.tensors import DTYPE_CODES, StoredTensor
from arenaplan.graph import Effects, Graph, Value, ValueId
from arenaplan.graph.ops.own_ops import TRAINING as OURS
from arenaplan.graph.ops.own_ops import undeclared
from arenaplan.graph.sizes import checked_bytes
from arenaplan.train.symbols.call import call

Input: TypeAlias = "ValueId | float | Sequence[Any] | np.ndarray | np.generic | None"
"""A graph value, or a constant's data; ``None`` for an absent operand."""

BUDGET = ImportBudget(ModelProto())
_FOLDER = Folder(None)
VERSIONS = {"": VERSION, TRAINING: 1}


def find_schema(name: str) -> Schema:
    """
    Return an operator's signature: this package's, standard, or user-declared.

    A user's operator with the name of another operator is named ``DOMAIN::NAME``.

    Raises
    ------
    UnsupportedOp
        If there is no such operator; the message suggests similar names.
    """
    ours = OWN.get((OURS, name))
    found = ours.schema if ours is not None else standard(name) or standard(name, TRAINING)
    if found is None:
        schemas = (own.schema for own in OWN.values())
        found = next((each for each in schemas if name in (each.name, each.label)), None)
    if found is None:
        raise unknown_operator(name, tuple(operator_names()))
    return found


def operator_names() -> list[str]:
    """Return the names of all operators for composing graphs."""
    return sorted({*(name for _, name in OWN), *standard_names()})


class _Variable(OnnxOperand):
    """A state, whose bytes no output takes over."""

    __slots__ = ()

    @property
    def is_fixed(self) -> bool:
        """No output can share the bytes."""
        return True


class Operators:
    """
    Operators by name: each call appends a node whose shape, type and effects are inferred.

    Operands are graph values; arrays, lists and floats are constants. Attributes are keywords;
    operands may also be keywords, by standard name. A call returns the output's index, or a tuple
    of indices: for all required outputs, or for as many outputs as ``outputs=`` says.

    Parameters
    ----------
    graph : Graph
        The graph to which nodes are appended.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("mlp")
    >>> x = graph.input("x", (64, 784))
    >>> w, b = graph.state("w", (784, 10)), graph.state("b", (10,))
    >>> op = ap.train.operators(graph)
    >>> y = op.Gemm(x, w, b, alpha=0.5)
    >>> graph.values[y].shape
    (64, 10)
    >>> op.Gemm(x, w, b, alhpa=0.5)
    Traceback (most recent call last):
    arenaplan.base.errors.InvalidAttribute: Gemm has no input and no attribute 'alhpa'; inputs are \
    A, B, C; attributes are alpha, beta, transA, transB
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._counts: dict[str, int] = {}
        self._names: set[str] = set()
        self._seen = 0
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ValueId] = {}

    def __dir__(self) -> list[str]:
        return operator_names()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        schema = find_schema(name)

        def call(
            *inputs: Input, name: str = "", outputs: int | Sequence[str] | None = None, **more: Any
        ) -> Any:
            return self.node(schema, inputs, more, name=name, outputs=outputs)

        call.__name__ = call.__qualname__ = schema.name
        call.__doc__ = f"{schema.signature()}\n\n{schema.doc.strip()}"
        return call

    def node(
        self,
        schema: Schema,
        inputs: Sequence[Input],
        keywords: Mapping[str, Any],
        *,
        name: str = "",
        outputs: int | Sequence[str] | None = None,
    ) -> int | tuple[int, ...] | None:
        """
        Append a node.

        Raises
        ------
        InvalidOperand
            If an operand is missing, or there are too many operands.
        InvalidAttribute
            If a keyword is neither an input nor an attribute, or an attribute makes no sense.
        ShapeMismatch
            If operands contradict each other.
        UnknownShape
            If a result's shape depends on data.
        """
        given, attributes = sorted_out(schema, inputs, keywords)
        label = name or self._next(schema.name)
        operands = self._operands(schema, given, label)
        names = self._output_names(schema, label, outputs)
        plain = plain_attributes(schema, attributes, label)
        op = Op(label, schema.name, schema.domain, schema.version, operands, names, plain, BUDGET)
        if op.type in INLINED.get(op.domain, ()):
            parts = self._parts(op, attributes)
            return parts[0] if len(parts) == 1 else parts
        results = results_of(op, attributes)
        made: list[OnnxOperand | None] = []
        for output, (shape, dtype) in zip(names, results, strict=False):
            checked_bytes(output, shape, dtype)
            index = self._graph.value(output, shape, dtype)
            made.append(OnnxOperand(output, shape, dtype, None, False, index))
        # A node that runs again draws the same numbers, although the name differs.
        stream = {"stream": label} if schema.name in RANDOM else {}
        self._graph.append(
            schema.name,
            tuple(None if known is None else known.index for known in operands),
            tuple(known.index for known in made if known is not None),
            name=label,
            effects=_effects(op, made),
            attributes={**{key: _stored(value) for key, value in plain.items()}, **stream} or None,
            domain=schema.domain,
            version=schema.version,
            cost=cost_of(op, made),
        )
        indices = tuple(known.index for known in made if known and known.index is not None)
        own = OWN.get((schema.domain, schema.name))
        for position, result in () if own is None else own.writes:
            state = op.optional(position)
            if isinstance(state, _Variable) and state.index is not None:
                self._graph.write_back(indices[result], state.index)
        return indices[0] if len(indices) == 1 else indices or None

    def _parts(self, op: Op, attributes: Mapping[str, Any]) -> tuple[int, ...]:
        """Append the nodes of an operator that is a function of others; return the outputs."""
        inputs, stored, places = [], [], {}
        for name, known in ((f"i{at}", known) for at, known in enumerate(op.inputs) if known):
            assert known.index is not None, "operands are values of the graph"
            if known.source is not None:
                stored.append(numpy_helper.from_array(self._graph.data(known.index), name))
            else:
                code = DTYPE_CODES[known.dtype]
                inputs.append(helper.make_tensor_value_info(name, code, known.shape))
                places[name] = known.index
        operands = [f"i{at}" if known else "" for at, known in enumerate(op.inputs)]
        node = helper.make_node(op.type, operands, op.outputs, op.name, domain=op.domain)
        node.attribute.extend(proto for _, proto in protos_of(attributes))
        outputs = [helper.make_empty_tensor_value_info(name) for name in op.outputs]
        versions = [helper.make_opsetid(*version) for version in VERSIONS.items()]
        body = helper.make_graph([node], op.type, inputs, outputs, stored)
        callee = load(helper.make_model(body, opset_imports=versions).SerializeToString())
        names = dict(zip(callee.outputs, op.outputs, strict=True))
        return call(self._graph, callee, op.name, places, names)

    def call(self, callee: Graph, *, name: str = "", **inputs: int) -> tuple[int, ...]:
        """
        Append another graph's nodes, like a single operator, and return the outputs.

        Parameters
        ----------
        callee : Graph
            The graph, which is not changed. Constants and states are added to this graph.
        name : str, optional
            Prefix for node and value names; the name of ``callee`` if left out.
        inputs
            A value in this graph for each input of ``callee``, by name.

        Raises
        ------
        InvalidOperand
            If an input is missing or unknown.
        ShapeMismatch
            If a value's shape or type differs from the input's.

        Examples
        --------
        >>> import arenaplan as ap
        >>> block = ap.Graph("block")
        >>> h = block.input("h", (4,))
        >>> block.output(operators(block).Add(h, operators(block).Relu(h)))
        >>> graph = ap.Graph()
        >>> x = graph.input("x", (4,))
        >>> op = ap.train.operators(graph)
        >>> (y,) = op.call(block, name="first", h=x)
        >>> (z,) = op.call(block, name="second", h=y)
        >>> [node.name for node in graph.nodes]
        ['first/Relu_0', 'first/Add_0', 'second/Relu_0', 'second/Add_0']
        """
        return call(self._graph, callee, self.unique(name or callee.name or "graph"), inputs)

    def constant(self, data: Any, dtype: str | None = None, name: str = "constant") -> ValueId:
        """Return the constant with this data; equal constants are a single value."""
        array = np.asarray(data, dtype)
        if dtype is None and not hasattr(data, "dtype") and array.dtype == np.float64:
            array = array.astype(np.float32)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._graph.constant(
                self.unique(name), array.shape, array.dtype.name, array
            )
        return self._constants[key]

    def unique(self, name: str) -> str:
        """Return a name not yet used in the graph."""
        values = self._graph.values
        for value in values[self._seen :]:
            self._names.add(value.name)
        self._seen = len(values)
        return free_name(name, self._names)

    def _next(self, kind: str) -> str:
        """Return the name for the next unnamed node of a kind."""
        # An operator that is a function has parts, which its name is ahead of.
        nodes = self._graph.nodes if kind not in self._counts else ()
        taken = {node.name.partition("/")[0] for node in nodes}
        number = self._counts.get(kind, 0)
        while (name := f"{kind}_{number}") in taken:
            number += 1
        self._counts[kind] = number + 1
        return name

    def _operands(
        self, schema: Schema, given: Sequence[Input], label: str
    ) -> list[OnnxOperand | None]:
        """Return operands; data become constants with the type of the other operands."""
        types: dict[str, str] = {}
        for position, item in enumerate(given):
            if type(item) is int:
                raise InvalidOperand(
                    f"node {quoted(label)} ({schema.name}): operand {position} is the plain integer"
                    f" {item}: a value of the graph is what its methods returned, as in "
                    f"graph.values[{item}].index, and a constant is an array or a float"
                )
            if isinstance(item, ValueId):
                types.setdefault(_argument_type(schema, position), self._value(item).dtype)
        operands: list[OnnxOperand | None] = []
        for position, item in enumerate(given):
            if item is None:
                operands.append(None)
                continue
            if not isinstance(item, ValueId):
                kind = _argument_type(schema, position)
                dtype = None
                if not hasattr(item, "dtype"):
                    dtype = types.get(kind, kind if kind in _NUMBERS else None)
                array = np.asarray(item)
                if dtype is None and array.dtype == np.float64 and not hasattr(item, "dtype"):
                    dtype = "float32"
                argument = schema.inputs[min(position, len(schema.inputs) - 1)].name
                item = self.constant(array, dtype, f"{label}.{argument}")
            operands.append(self._operand(self._value(item).index))
        return operands

    def _value(self, item: ValueId) -> Value:
        return self._graph.values[self._graph.own(item)]

    def _operand(self, index: int) -> OnnxOperand:
        value = self._graph.values[index]
        if value.kind == "state":
            return _Variable(value.name, value.shape, value.dtype, None, False, index)
        source = None
        if value.kind == "constant" and self._graph.has_data(index):
            source = self._graph.data(index)
        return OnnxOperand(value.name, value.shape, value.dtype, source, source is not None, index)

    def _output_names(
        self, schema: Schema, label: str, outputs: int | Sequence[str] | None
    ) -> list[str]:
        """Return the output names."""
        if outputs is None:
            outputs = schema.least_outputs if schema.outputs else 0
        if not isinstance(outputs, int):
            return [self.unique(name) for name in outputs]
        last = schema.outputs[-1] if schema.outputs else None
        most = len(schema.outputs)
        if outputs > most and (last is None or last.kind != "variadic"):
            raise InvalidOperand(f"node {quoted(label)} ({schema.name}) has at most {most} outputs")
        if outputs == 1:
            return [self.unique(label)]
        return [
            self.unique(f"{label}.{schema.outputs[min(k, most - 1)].name}{k if k >= most else ''}")
            for k in range(outputs)
        ]


_NUMBERS = frozenset(["int64", "int32", "float32", "float64", "bool"])


def _argument_type(schema: Schema, position: int) -> str:
    return schema.inputs[min(position, len(schema.inputs) - 1)].type if schema.inputs else ""


def plain_attributes(schema: Schema, given: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return attributes in importer form: lists become tuples, arrays become stored tensors."""
    plain = {key: _plain(value, key, label) for key, value in given.items()}
    own = OWN.get((schema.domain, schema.name))
    return plain if own is None else own.filled(plain)


def _plain(value: Any, key: str, label: str) -> Any:
    if isinstance(value, np.ndarray):
        return StoredTensor(numpy_helper.from_array(value), f"{label}.{key}", _FOLDER)
    if isinstance(value, (list, tuple)):
        return tuple(each.item() if isinstance(each, np.generic) else each for each in value)
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    return value.item() if isinstance(value, np.generic) else value


def _stored(value: Any) -> Any:
    return value.load() if isinstance(value, StoredTensor) else value


def results_of(op: Op, attributes: Mapping[str, Any]) -> Sequence[Result]:
    """Return the outputs' shapes and types."""
    rule = rule_of(op)
    if rule is not None:
        try:
            return rule(op)
        except DataDependent as dependent:
            raise op.error(UnknownShape, "the shape of its result depends on data") from dependent
    if (op.domain, op.type) in OWN:
        text = "the shape of its result does not follow from the operator"
        raise op.error(UnknownShape, text + undeclared(op.domain, "shapes"))
    results = []
    found = infer(op, protos_of(attributes), VERSIONS)
    for name, (shape, dtype) in zip(op.outputs, found, strict=True):
        dims = tuple(dim for dim in shape or (None,) if isinstance(dim, int))
        if shape is None or dtype is None or len(dims) < len(shape):
            raise op.error(UnknownShape, f"the shape of output {quoted(name)} depends on data")
        results.append((dims, dtype))
    return results


def protos_of(attributes: Mapping[str, Any]) -> list[tuple[str, AttributeProto]]:
    """Return attributes as in a model file, by name."""
    return [
        (key, helper.make_attribute(key, numpy_helper.from_array(value)))
        if isinstance(value, np.ndarray)
        else (key, helper.make_attribute(key, value))
        for key, value in attributes.items()
    ]


def _effects(op: Op, outputs: Sequence[OnnxOperand | None]) -> Effects:
    effects = node_effects(op, outputs)
    # A later run inside a group would read changed content of the state.
    reads_state = any(isinstance(known, _Variable) for known in op.inputs)
    is_pure = effects.pure or (op.domain, op.type) not in OWN
    return effects._replace(repeats=effects.repeats and not reads_state, pure=is_pure)


@typed
def operators(graph: Graph) -> Operators:
    """
    Return the operators that append nodes to a graph; the same object for the same graph.

    Parameters
    ----------
    graph : Graph
        The graph, which remembers used names and constants.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("two layers")
    >>> x, op = graph.input("x", (1, 64)), ap.train.operators(graph)
    >>> graph.output(op.Neg(op.Relu(x)))
    >>> ap.plan(graph).arena_bytes
    512
    """
    found = graph.composed
    if not isinstance(found, Operators):
        found = graph.composed = Operators(graph)
    return found
