"""
Shape and type inference for symbols, forward and backward.

Facts are known dimensions; a contradiction is an error that names node and tensor. Vertices are
swept forward and backward until no fact changes. Forward, the importers' rules give the results for
known operands, so known shapes are always checked; partly known operands go through the package
``onnx``. Backward, the relations in :mod:`arenaplan.train.symbols.relations` hold in both
directions. Finally, an undecided operand of an elementwise operator that may be repeated gets the
result's dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arenaplan.base.errors import PlannerError, ShapeMismatch, UndefinedValue, UnknownShape
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.onnx.op import OnnxOperand as OnnxOperand
from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.rules.schema_rules import infer as infer_partly
from arenaplan.formats.onnx.tensors import DTYPE_CODES, dtype_of
from arenaplan.graph import Graph
from arenaplan.train.symbols.composer import (
    BUDGET,
    VERSIONS,
    operators,
    plain_attributes,
    protos_of,
    results_of,
)
from arenaplan.train.symbols.relations import BROADCASTS, RELATIONS, PartialShape, Sizes
from arenaplan.train.symbols.vertex import Entry, Vertex, checked_names, entry_name, topological

_DEFAULT = "float32"
"""The element type of values without type information."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """Known facts about the outputs of all vertices, by name."""

    shapes: Mapping[str, PartialShape]
    dtypes: Mapping[str, str | None]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of outputs with unknown shapes."""
        return tuple(k for k, shape in self.shapes.items() if shape is None or None in shape)


def infer(
    heads: Sequence[Entry],
    shapes: Mapping[str, PartialShape] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Inferred:
    """Infer shapes and types: see :meth:`arenaplan.train.Symbol.infer`."""
    return _Inference(heads, shapes or {}, dtypes or {}).run()


class _Inference:
    """The facts about all outputs of vertices."""

    def __init__(
        self, heads: Sequence[Entry], shapes: Mapping[str, PartialShape], dtypes: Mapping[str, str]
    ) -> None:
        self._vertices = topological(head.vertex for head in heads)
        self._sizes: dict[tuple[Vertex, int], Sizes] = {}
        self._dtypes: dict[tuple[Vertex, int], str] = {}
        self._names: dict[str, tuple[Vertex, int]] = {}
        for vertex in self._vertices:
            for index in range(vertex.outputs):
                name = entry_name(Entry(vertex, index))
                self._names.setdefault(name, (vertex, index))
                self._sizes[vertex, index] = Sizes(name)
        for vertex in self._vertices:
            self._learn(vertex, 0, vertex.shape, vertex)
            if vertex.dtype is not None:
                self._dtypes[vertex, 0] = vertex.dtype
        for name, shape in shapes.items():
            self._learn(*self._named(name), shape, None)
        for name, dtype in dtypes.items():
            self._type(self._named(name), dtype, None)

    def _named(self, name: str) -> tuple[Vertex, int]:
        found = self._names.get(name)
        if found is None:
            raise UndefinedValue(
                f"the symbol has no value {quoted(name)}; it has {listed(self._names)}"
            )
        return found

    def run(self) -> Inferred:
        self._infer_types()
        self._sweep()
        while self._assume():
            self._sweep()
        names = self._names.items()
        return Inferred(
            {name: self._sizes[key].shape for name, key in names},
            {name: self._dtypes.get(key) for name, key in names},
        )

    # -- facts -------------------------------------------------------------------

    def _learn(self, vertex: Vertex, index: int, shape: PartialShape, where: Vertex | None) -> None:
        try:
            self._sizes[vertex, index].learn(shape)
        except ShapeMismatch as error:
            raise _at(where, error) from None

    def _type(self, key: tuple[Vertex, int], dtype: str, where: Vertex | None) -> None:
        known = self._dtypes.setdefault(key, dtype)
        if known != dtype:
            name = entry_name(Entry(*key))
            raise _at(where, ShapeMismatch(f"{quoted(name)} holds {known}, not {dtype}"))

    # -- types -------------------------------------------------------------------

    def _infer_types(self) -> None:
        """Give the common type to all of an operator's arguments that share a type."""
        operators = [vertex for vertex in self._vertices if vertex.schema is not None]
        while True:
            before = len(self._dtypes)
            for vertex in (*operators, *reversed(operators)):
                self._share_types(vertex)
            if len(self._dtypes) > before:
                continue
            # One guess at a time: consequences of a guess are not guesses.
            open_ = [key for key in self._sizes if key not in self._dtypes]
            if not open_:
                return
            # Numbers without a type come last, because they take other operands' type.
            key = next((key for key in open_ if key[0].kind != "constant"), open_[0])
            self._dtypes[key] = _guess(key[0])

    def _share_types(self, vertex: Vertex) -> None:
        schema = vertex.schema
        assert schema is not None
        groups: dict[str, list[tuple[Vertex, int]]] = {}
        for position, entry in enumerate(vertex.inputs):
            if entry is not None:
                argument = schema.inputs[min(position, len(schema.inputs) - 1)]
                groups.setdefault(argument.type, []).append((entry.vertex, entry.output))
        for index in range(min(vertex.outputs, len(schema.outputs) and vertex.outputs)):
            argument = schema.outputs[min(index, len(schema.outputs) - 1)]
            groups.setdefault(argument.type, []).append((vertex, index))
        if schema.name == "Cast" and not schema.domain:
            self._type((vertex, 0), dtype_of(vertex.attributes["to"], vertex.name), vertex)
        for type_, keys in groups.items():
            known = type_ if type_ in DTYPE_CODES else None
            if known is None:
                known = next((self._dtypes[key] for key in keys if key in self._dtypes), None)
            if known is not None:
                for key in keys:
                    self._type(key, known, vertex)

    # -- shapes ------------------------------------------------------------------

    def _sweep(self) -> None:
        """Sweep forward and backward until no fact changes."""
        before: list[PartialShape] | None = None
        while before != (known := [sizes.shape for sizes in self._sizes.values()]):
            before = known
            for vertex in self._vertices:
                self._forward(vertex)
                self._relate(vertex)
            for vertex in reversed(self._vertices):
                self._relate(vertex)

    def _forward(self, vertex: Vertex) -> None:
        """Infer results from operands."""
        schema = vertex.schema
        if schema is None or not schema.outputs:
            return
        op, shapes = self._op(vertex)
        try:
            if all(shape is not None and None not in shape for shape in shapes):
                for index, (shape, dtype) in enumerate(results_of(op, vertex.attributes)):
                    if index < vertex.outputs:
                        self._learn(vertex, index, shape, vertex)
                        self._dtypes[vertex, index] = dtype
            elif not schema.domain:
                self._infer_partly(vertex, op, shapes)
        except UnknownShape:
            return
        except PlannerError as error:
            raise _at(vertex, error) from None

    def _op(self, vertex: Vertex) -> tuple[Op, list[PartialShape]]:
        """Return the operator for importers, and the known dimensions of operands."""
        schema = vertex.schema
        assert schema is not None
        operands: list[OnnxOperand | None] = []
        shapes: list[PartialShape] = []
        for entry in vertex.inputs:
            shapes.append(() if entry is None else self._sizes[entry.vertex, entry.output].shape)
            if entry is None:
                operands.append(None)
                continue
            dims = tuple(dim or 0 for dim in shapes[-1] or ())
            dtype = self._dtypes[entry.vertex, entry.output]
            data = _constant(entry.vertex, dtype)
            operands.append(OnnxOperand(entry_name(entry), dims, dtype, data, data is not None))
        names = [entry_name(Entry(vertex, index)) for index in range(vertex.outputs)]
        plain = plain_attributes(schema, vertex.attributes, vertex.name)
        version = schema.version
        return (
            Op(vertex.name, schema.name, schema.domain, version, operands, names, plain, BUDGET),
            shapes,
        )

    def _infer_partly(self, vertex: Vertex, op: Op, shapes: list[PartialShape]) -> None:
        """Let the package ``onnx`` infer results from operands that are known in part."""
        try:
            found = infer_partly(op, protos_of(vertex.attributes), VERSIONS, shapes)
        except PlannerError:
            return
        for index, (shape, _) in enumerate(found):
            if shape is not None:
                dims = tuple(dim if isinstance(dim, int) else None for dim in shape)
                self._learn(vertex, index, dims, vertex)

    def _relate(self, vertex: Vertex) -> None:
        """Apply the relations that hold in both directions."""
        relation = RELATIONS.get("" if vertex.schema is None else vertex.schema.table_name)
        if relation is None:
            return
        inputs = [None if e is None else self._sizes[e.vertex, e.output] for e in vertex.inputs]
        outputs = [self._sizes[vertex, index] for index in range(vertex.outputs)]
        try:
            relation(vertex.attributes, inputs, outputs)
        except ShapeMismatch as error:
            raise _at(vertex, error) from None

    def _assume(self) -> bool:
        """Give an operand that may be repeated the result's shape; return whether any."""
        for vertex in self._vertices:
            if vertex.schema is None or vertex.schema.name not in BROADCASTS:
                continue
            made = self._sizes[vertex, 0]
            for entry in vertex.inputs:
                if entry is None or made.shape is None or None in made.shape:
                    continue
                own = self._sizes[entry.vertex, entry.output]
                if own.is_known:
                    continue
                rank = len(made.shape) if own.shape is None else len(own.shape)
                shape = own.shape or (None,) * rank
                tail = made.shape[len(made.shape) - rank :]
                self._learn(
                    entry.vertex,
                    entry.output,
                    tuple(b if a is None else a for a, b in zip(shape, tail, strict=True)),
                    vertex,
                )
                return True
        return False


def _guess(vertex: Vertex) -> str:
    """Return the element type of a value without type information."""
    if vertex.data is not None and vertex.data.dtype.kind in "biu":
        return vertex.data.dtype.name
    return _DEFAULT


def _constant(vertex: Vertex, dtype: str) -> np.ndarray | None:
    """Return a constant's data in the constant's type."""
    if vertex.kind != "constant" or vertex.data is None:
        return None
    return vertex.data.astype(dtype)


def _at(vertex: Vertex | None, error: PlannerError) -> PlannerError:
    """Return an error that names the node."""
    if vertex is None or vertex.schema is None or f"'{vertex.name}'" in str(error):
        return error
    return type(error)(f"node {quoted(vertex.name)} ({vertex.schema.name}): {error}")


# -- graphs ---------------------------------------------------------------------------------------


def graph_of(
    heads: Sequence[Entry],
    name: str = "",
    shapes: Mapping[str, PartialShape] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Graph:
    """Return a symbol's graph: see :meth:`arenaplan.train.Symbol.graph`."""
    found = infer(heads, shapes, dtypes)
    vertices = topological(head.vertex for head in heads)
    checked_names(vertices)
    graph = Graph(name)
    place: dict[tuple[Vertex, int], int] = {}
    contents: dict[tuple[Vertex, int], int] = {}
    """By variable and version: the value that a node has written."""

    def operand(position: int, entry: Entry, reader: Vertex) -> int:
        # A node that writes a version reads the version before.
        version = entry.version - (position in reader.mutates)
        return contents.get((entry.vertex, version), place[entry.vertex, entry.output])

    for vertex in _ordered(vertices):
        if vertex.schema is not None:
            inputs = [
                None if entry is None else operand(position, entry, vertex)
                for position, entry in enumerate(vertex.inputs)
            ]
            names = [entry_name(Entry(vertex, index)) for index in range(vertex.outputs)]
            made = operators(graph).node(
                vertex.schema, inputs, vertex.attributes, name=vertex.name, outputs=names
            )
            indices = made if isinstance(made, tuple) else (made,)
            place.update({(vertex, k): v for k, v in enumerate(indices) if v is not None})
            for position, output in vertex.writes:
                written = vertex.inputs[position] if position < len(vertex.inputs) else None
                if written is not None:
                    contents[written.vertex, written.version] = place[vertex, output]
            continue
        shape, dtype = found.shapes[vertex.name], found.dtypes[vertex.name] or _DEFAULT
        if shape is None or None in shape:
            raise UnknownShape(
                f"variable {quoted(vertex.name)} has shape {shape}: say more of it, or of what "
                "depends on it"
            )
        dims = tuple(dim for dim in shape if dim is not None)
        if vertex.kind == "constant":
            assert vertex.data is not None
            place[vertex, 0] = operators(graph).constant(
                vertex.data.astype(dtype), name=vertex.name
            )
        elif vertex.kind == "state":
            place[vertex, 0] = graph.state(vertex.name, dims, dtype, initial=vertex.data)
        else:
            place[vertex, 0] = graph.input(vertex.name, dims, dtype)
    # A variable's last content is the content at the start of the next run.
    last = dict(sorted(contents, key=lambda key: key[1]))
    graph.write_backs = [
        (contents[variable, version], place[variable, 0]) for variable, version in last.items()
    ]
    kept = {value for value, _ in graph.write_backs}
    for index in dict.fromkeys(place[entry.vertex, entry.output] for entry in heads):
        if index not in kept:
            graph.output(index)
    return graph


def _ordered(vertices: Iterable[Vertex]) -> list[Vertex]:
    """Return vertices after their operands, and writes between the reads of their versions."""
    order = list(vertices)
    before: dict[Vertex, set[Vertex]] = {vertex: set() for vertex in order}
    uses: dict[Vertex, list[tuple[int, bool, Vertex]]] = {}
    for vertex in order:
        for position, entry in enumerate(vertex.inputs):
            if entry is None:
                continue
            before[vertex].add(entry.vertex)
            if entry.vertex.is_variable:
                row = (entry.version, position in vertex.mutates, vertex)
                uses.setdefault(entry.vertex, []).append(row)
    for rows in uses.values():
        for version, writes, vertex in rows:
            for other, is_write, user in rows:
                follows = other < version if writes else other == version and is_write
                if follows and user is not vertex:
                    before[vertex].add(user)
    done: dict[Vertex, None] = {}
    while len(done) < len(order):
        ready = [v for v in order if v not in done and before[v] <= done.keys()]
        if not ready:
            waiting = next(v for v in order if v not in done)
            raise ShapeMismatch(f"node {quoted(waiting.name)} reads what it has to come before")
        done[ready[0]] = None
    return list(done)
