"""
Symbols: models without shapes, for composition, substitution, inference and files.

A :class:`Symbol` is an ordered list of vertex outputs, like NNVM's. With enough known shapes, a
symbol becomes a :class:`arenaplan.Graph`: see :mod:`arenaplan.train.symbols.inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOperand, UndefinedValue
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.onnx.symbol_schema import Schema, sorted_out
from arenaplan.graph import Graph
from arenaplan.train.symbols.composer import find_schema, operator_names
from arenaplan.train.symbols.inference import Inferred, graph_of, infer
from arenaplan.train.symbols.relations import PartialShape
from arenaplan.train.symbols.symbol_document import read, write
from arenaplan.train.symbols.vertex import Entry, Kind, Vertex, entry_name, topological

Names: TypeAlias = Literal["all", "read_only", "states"]


class Symbol:
    """
    Vertex outputs: a variable, an operator's result, or a group.

    Examples
    --------
    >>> import arenaplan as ap
    >>> x = ap.train.variable("x", (None, 784))
    >>> y = ap.train.op.Gemm(x, ap.train.variable("w", (784, 10)), name="fc")
    >>> y.arguments(), y.output_names()
    (['x', 'w'], ['fc_output'])
    >>> y.infer(shapes={"fc_output": (64, 10)}).shapes["x"]
    (64, 784)
    >>> z = y(x=ap.train.op.Relu(ap.train.variable("image")))
    >>> z.arguments(), y.arguments()
    (['image', 'w'], ['x', 'w'])
    """

    __slots__ = ("entries",)

    @typed
    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = tuple(entries)

    def __repr__(self) -> str:
        return f"Symbol({', '.join(self.output_names())})"

    # -- outputs -----------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([entry]) for entry in self.entries)

    def __getitem__(self, key: int | str) -> Symbol:
        """
        Return an output by position or name.

        Raises
        ------
        UndefinedValue
            If there is no such output, or the name is ambiguous.
        """
        if isinstance(key, int):
            if not -len(self.entries) <= key < len(self.entries):
                raise UndefinedValue(f"the symbol has no output {key}; it has {len(self.entries)}")
            return Symbol([self.entries[key]])
        names = self.output_names()
        found = [at for at, name in enumerate(names) if name == key]
        if len(found) != 1:
            problem = "several outputs" if found else "no output"
            raise UndefinedValue(f"the symbol has {problem} {quoted(key)}; it has {listed(names)}")
        return Symbol([self.entries[found[0]]])

    def output_names(self) -> list[str]:
        """Return the output names: ``NODE_output``, numbered if the node has several outputs."""
        return [entry_name(entry) for entry in self.entries]

    def entry(self) -> Entry:
        """
        Return the only output.

        Raises
        ------
        InvalidOperand
            If there are several.
        """
        if len(self.entries) != 1:
            raise InvalidOperand(f"an operand is one output, not {len(self.entries)}: choose one")
        return self.entries[0]

    # -- vertices ----------------------------------------------------------------

    def vertices(self) -> list[Vertex]:
        """Return all vertices in depth-first order, operands first."""
        return topological([entry.vertex for entry in self.entries])

    def internals(self) -> Symbol:
        """Return the outputs of all vertices."""
        return Symbol(
            Entry(vertex, index) for vertex in self.vertices() for index in range(vertex.outputs)
        )

    def children(self) -> Symbol | None:
        """Return the operands of the outputs' vertices; ``None`` for variables."""
        found = [
            entry
            for vertex in dict.fromkeys(entry.vertex for entry in self.entries)
            for entry in vertex.inputs
            if entry is not None
        ]
        return Symbol(found) if found else None

    def arguments(self, which: Names = "all") -> list[str]:
        """Return the names of variables: all, those never written by a node, or those written."""
        vertices = self.vertices()
        written = {
            entry.vertex
            for vertex in vertices
            for at in vertex.mutates
            if at < len(vertex.inputs) and (entry := vertex.inputs[at]) is not None
        }
        return [
            vertex.name
            for vertex in vertices
            if vertex.is_variable and (which == "all" or (vertex in written) == (which == "states"))
        ]

    def label(self, key: str) -> str | None:
        """Return a label of the only vertex; ``None`` without such a label."""
        return self.entry().vertex.labels.get(key)

    def labels(self) -> dict[str, str]:
        """Return the labels of all vertices, as ``NODE$LABEL``."""
        return {
            f"{vertex.name}${key}": text
            for vertex in self.vertices()
            for key, text in vertex.labels.items()
        }

    # -- composition -------------------------------------------------------------

    def copy(self) -> Symbol:
        """Return an equal symbol that shares no vertex."""
        return self._replaced({})

    def __call__(self, **operands: Symbol) -> Symbol:
        """
        Return a copy with variables replaced by symbols.

        Raises
        ------
        UndefinedValue
            If there is no such variable.
        InvalidOperand
            If a symbol has several outputs, or a node writes the variable.
        """
        names = self.arguments()
        for name in operands:
            if name not in names:
                raise UndefinedValue(
                    f"the symbol has no variable {quoted(name)}; it has {listed(names)}"
                )
        return self._replaced({name: symbol.entry() for name, symbol in operands.items()})

    def _replaced(self, operands: Mapping[str, Entry]) -> Symbol:
        made: dict[Vertex, Vertex] = {}

        def moved(entry: Entry) -> Entry:
            vertex = entry.vertex
            if vertex.is_variable and vertex.name in operands:
                if entry.version and not operands[vertex.name].vertex.is_variable:
                    raise InvalidOperand(
                        f"a node writes {quoted(vertex.name)}, so only a variable can replace it"
                    )
                return operands[vertex.name]._replace(version=entry.version)
            return entry._replace(vertex=made[vertex])

        for vertex in self.vertices():
            if vertex.is_variable and vertex.name in operands:
                continue
            inputs = [None if entry is None else moved(entry) for entry in vertex.inputs]
            made[vertex] = Vertex(
                vertex.name, vertex.schema, inputs, vertex.outputs, dict(vertex.attributes),
                dict(vertex.labels), vertex.kind, vertex.shape, vertex.dtype, vertex.data,
                vertex.version,
            )  # fmt: skip
        return Symbol(map(moved, self.entries))

    # -- arithmetic --------------------------------------------------------------

    def __add__(self, other: Operand) -> Symbol:
        return _apply("Add", self, other)

    def __radd__(self, other: Operand) -> Symbol:
        return _apply("Add", other, self)

    def __sub__(self, other: Operand) -> Symbol:
        return _apply("Sub", self, other)

    def __rsub__(self, other: Operand) -> Symbol:
        return _apply("Sub", other, self)

    def __mul__(self, other: Operand) -> Symbol:
        return _apply("Mul", self, other)

    def __rmul__(self, other: Operand) -> Symbol:
        return _apply("Mul", other, self)

    def __truediv__(self, other: Operand) -> Symbol:
        return _apply("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Symbol:
        return _apply("Div", other, self)

    def __pow__(self, other: Operand) -> Symbol:
        return _apply("Pow", self, other)

    def __matmul__(self, other: Operand) -> Symbol:
        return _apply("MatMul", self, other)

    def __neg__(self) -> Symbol:
        return _apply("Neg", self)

    # -- shapes, graphs, files ---------------------------------------------------

    def infer(
        self,
        shapes: Mapping[str, PartialShape] | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> Inferred:
        """
        Infer shapes and types, forward and backward.

        Parameters
        ----------
        shapes : mapping, optional
            Shapes of variables or node outputs, by name; ``None`` for unknown dimensions.
        dtypes : mapping, optional
            Element types, by name; float32 if nothing else is known.

        Raises
        ------
        ShapeMismatch
            If facts contradict each other; the message names the node and the value.
        UndefinedValue
            If ``shapes`` or ``dtypes`` name an unknown value.

        Examples
        --------
        >>> import arenaplan as ap
        >>> y = ap.train.variable("a") + ap.train.variable("b")
        >>> y.infer(shapes={y.output_names()[0]: (2, 3)}).shapes["b"]
        (2, 3)
        """
        return infer(self.entries, shapes, dtypes)

    def graph(
        self,
        name: str = "",
        shapes: Mapping[str, PartialShape] | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> Graph:
        """
        Return the symbol's graph.

        Variables become inputs or states under their own names, and results are named as in
        :meth:`output_names`. A node that writes a variable comes after all readers of the old
        content (by entry version) and before all readers of the new content.

        Raises
        ------
        UnknownShape
            If a value's shape cannot be inferred.
        ShapeMismatch
            If shapes contradict each other.
        GraphError
            If two vertices have the same name.

        Examples
        --------
        >>> from arenaplan.train import op, variable
        >>> y = op.Relu(op.MatMul(variable("x"), variable("w", (3, 4))), name="y")
        >>> graph = y.graph("layer", shapes={"x": (2, None)})
        >>> graph.find("x").shape, graph.find("y_output").shape
        ((2, 3), (2, 4))
        """
        return graph_of(self.entries, name, shapes, dtypes)

    def to_json(self) -> str:
        """
        Return the symbol as JSON text, in NNVM's form; equal symbols give equal text.

        Examples
        --------
        >>> import arenaplan as ap
        >>> y = ap.train.op.Relu(ap.train.variable("x"), name="y")
        >>> ap.train.Symbol.from_json(y.to_json())
        Symbol(y_output)
        """
        return write(self.entries)

    @classmethod
    def from_json(cls, text: str | bytes) -> Symbol:
        """
        Return the symbol in a text from :meth:`to_json`.

        Raises
        ------
        GraphError
            If the text is not a symbol; the message says what is wrong.
        GraphError
            If the version differs.
        UnsupportedOp
            If an operator is unknown.
        """
        return cls(read(text))


Operand: TypeAlias = "Symbol | float | Sequence[Any] | np.ndarray | np.generic"
"""A symbol with a single output, or a constant's data."""


@typed
def variable(
    name: str,
    shape: PartialShape = None,
    dtype: str | None = None,
    *,
    initial: np.ndarray | None = None,
    kind: Literal["input", "state"] | None = None,
    **labels: str,
) -> Symbol:
    """
    Return a variable.

    Parameters
    ----------
    name : str
        The variable's name.
    shape : tuple, optional
        The dimensions; ``None`` for unknown dimensions.
    dtype : str, optional
        The element type.
    initial : array, optional
        The initial content, which makes the variable a state.
    kind : {"input", "state"}, optional
        By default an input.
    labels : str
        Texts for the user.
    """
    if initial is not None:
        initial = np.asarray(initial)
        shape, dtype = initial.shape, initial.dtype.name
    chosen: Kind = kind or ("input" if initial is None else "state")
    dims = None if shape is None else tuple(shape)
    vertex = Vertex(name, kind=chosen, shape=dims, dtype=dtype, data=initial, labels=dict(labels))
    return Symbol([Entry(vertex)])


@typed
def group(symbols: Iterable[Symbol]) -> Symbol:
    """Return the outputs of several symbols as a single symbol."""
    return Symbol(entry for symbol in symbols for entry in symbol.entries)


_COUNTS: dict[str, int] = {}


def _next(kind: str) -> str:
    """Return the next name for a kind."""
    number = _COUNTS.get(kind, 0)
    _COUNTS[kind] = number + 1
    return f"{kind.lower()}{number}"


def _apply(kind: str, *operands: Operand) -> Symbol:
    return compose(find_schema(kind), operands, {})


def compose(
    schema: Schema,
    operands: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    name: str = "",
    outputs: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Symbol:
    """
    Return an operator's outputs.

    A missing required operand becomes a variable ``NAME_ARGUMENT``, a state with the call's labels.

    Raises
    ------
    InvalidOperand
        If an operand has several outputs, or a written operand is not a variable.
    InvalidAttribute
        If a keyword is neither an input nor an attribute; the message lists both.
    """
    given, attributes = sorted_out(schema, operands, keywords, fills=True)
    vertex = Vertex(
        name or _next(schema.name),
        schema,
        outputs=outputs if outputs is not None else schema.least_outputs if schema.outputs else 1,
        attributes=attributes,
        labels=dict(labels or {}),
    )
    required = sum(argument.kind == "required" for argument in schema.inputs)
    given.extend([None] * (required - len(given)))
    for position, item in enumerate(given):
        argument = schema.inputs[min(position, len(schema.inputs) - 1)]
        if item is None and argument.kind == "required":
            fresh = Vertex(
                f"{vertex.name}_{argument.name}", kind="state", labels=dict(vertex.labels)
            )
            vertex.inputs.append(Entry(fresh))
        elif item is None:
            vertex.inputs.append(None)
        else:
            vertex.inputs.append(_entry(item, f"{vertex.name}_{argument.name}"))
    for position in vertex.mutates:
        entry = vertex.inputs[position] if position < len(vertex.inputs) else None
        if entry is None:
            continue
        if not entry.vertex.is_variable:
            raise InvalidOperand(
                f"{schema.name} writes its input {schema.inputs[position].name!r}, which must be a "
                f"variable, and {quoted(entry_name(entry))} is none"
            )
        entry.vertex.kind = "state"
        entry.vertex.version += 1
        vertex.inputs[position] = entry._replace(version=entry.vertex.version)
    for position, entry in enumerate(vertex.inputs):
        if entry is not None and entry.vertex.is_variable and position not in vertex.mutates:
            vertex.inputs[position] = entry._replace(version=entry.vertex.version)
    return Symbol(Entry(vertex, index) for index in range(vertex.outputs))


def _entry(item: Any, name: str) -> Entry:
    """Return an operand; data becomes a constant."""
    if isinstance(item, Symbol):
        return item.entry()
    array = np.asarray(item)
    dtype = array.dtype.name if hasattr(item, "dtype") else None
    return Entry(Vertex(name, kind="constant", shape=array.shape, dtype=dtype, data=array))


class SymbolOperators:
    """
    Operators as functions on symbols: ``ap.train.op``.

    Examples
    --------
    >>> import arenaplan as ap
    >>> y = ap.train.op.MatMul(ap.train.variable("data"), name="fc")
    >>> y.arguments()
    ['data', 'fc_B']
    """

    def __dir__(self) -> list[str]:
        return operator_names()

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        if name.startswith("_"):
            raise AttributeError(name)
        schema = find_schema(name)

        def call(
            *operands: Operand,
            name: str = "",
            outputs: int | None = None,
            labels: Mapping[str, str] | None = None,
            **more: Any,
        ) -> Symbol:
            return compose(schema, operands, more, name=name, outputs=outputs, labels=labels)

        call.__name__ = call.__qualname__ = schema.name
        call.__doc__ = f"{schema.signature()}\n\n{schema.doc.strip()}"
        return call


op = SymbolOperators()
"""Operators as functions on symbols."""
