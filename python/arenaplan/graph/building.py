"""Building a graph by hand or by an importer: the declaring part of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from arenaplan import _core
from arenaplan.base.amounts import size_of
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, UndefinedValue, fault
from arenaplan.base.limits import take_node
from arenaplan.base.quoting import quoted
from arenaplan.graph.dtype_names import DTypeName, dtype_name
from arenaplan.graph.effects import (
    NO_EFFECTS,
    Choice,
    Effects,
    Flow,
    InPlace,
    Overlap,
    View,
    Window,
)
from arenaplan.graph.values import (
    ConstantData,
    Node,
    Value,
    ValueId,
    ValueKind,
    ValueSpec,
    checked_shape,
)

_NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


class GraphBuilder:
    """Values and nodes in declaration order, and the methods that declare them."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.values: list[Value] = []
        """Every value, in declaration order."""
        self.nodes: list[Node] = []
        """Every node; the execution order is a topological order."""
        self.inputs: list[int] = []
        """Indices of values that the caller supplies."""
        self.outputs: list[int] = []
        """Indices of values that the caller receives."""
        self.write_backs: list[tuple[int, int]] = []
        """Values that replace an input or state in place, paired with the input or state."""
        self._constants: dict[int, ConstantData] = {}
        self._loads: dict[int, ConstantData] = {}
        """Original loaders of constants, where a loader knows the quantized integers."""
        self._initials: dict[int, np.ndarray] = {}
        self._core: _core.Graph | None = None
        self._is_tied = False
        self._pins: dict[int, int] = {}
        self._owner = object()
        self._owners: dict[object, int] = {}
        """By graph from which this graph was copied: the number of common values."""
        self.composed: object | None = None
        """State of :func:`arenaplan.train.operators` for the graph: names, constants."""

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeName = "float32",
        *,
        alignment: int | None = None,
        space: str | None = None,
    ) -> ValueId:
        """Declare a value that the caller supplies, and return the index."""
        index = self._declare(name, shape, dtype, "input", alignment, space)
        self.inputs.append(index)
        return index

    def constant(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeName = "float32",
        data: ConstantData | None = None,
    ) -> ValueId:
        """
        Declare a value that never changes, and return the index.

        Constants are not part of the arena. ``data`` is the array itself, or a function that loads
        the array on an executor's first access.
        """
        index = self._declare(name, shape, dtype, "constant", None, None)
        if data is not None:
            self._constants[index] = data
        return index

    def state(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeName = "float32",
        *,
        alignment: int | None = None,
        space: str | None = None,
        initial: np.ndarray | None = None,
    ) -> ValueId:
        """
        Declare a variable whose bytes survive between runs, and return the index.

        An executor with its own arena begins with the content ``initial``, or with zeros.
        """
        index = self._declare(name, shape, dtype, "state", alignment, space)
        if initial is not None:
            self._initials[index] = initial
        return index

    def parameter(self, name: str, initial: np.ndarray) -> ValueId:
        """
        Declare a state with an array's shape, type and content, and return the index.

        Examples
        --------
        >>> import numpy as np
        >>> import arenaplan as ap
        >>> graph = ap.Graph()
        >>> w = graph.parameter("w", np.ones((3, 4), np.float32))
        >>> graph.values[w].kind, graph.values[w].shape
        ('state', (3, 4))
        """
        array = np.asarray(initial)
        return self.state(name, array.shape, array.dtype.name, initial=array)

    def value(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeName = "float32",
        *,
        alignment: int | None = None,
        space: str | None = None,
    ) -> ValueId:
        """Declare a value that some node will produce, and return the index."""
        return self._declare(name, shape, dtype, "activation", alignment, space)

    @typed
    def node(
        self,
        op: str,
        inputs: Iterable[int | None],
        outputs: Iterable[int | ValueSpec | None],
        *,
        name: str = "",
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
        version: int = 0,
        in_place: Iterable[InPlace | tuple[int, int]] = (),
        views: Iterable[View | tuple[int, int]] = (),
        ignores: Iterable[int] = (),
        mutates: Iterable[int] = (),
        workspaces: Iterable[Iterable[Choice | tuple[int, float]]] = (),
        flows: Iterable[Flow | tuple[int, int, tuple[int, ...]]] = (),
        loads: Iterable[int] = (),
        overlaps: Iterable[Overlap | tuple[int, int, int]] = (),
        windows: Iterable[Window | tuple[int, int, int, int, int, int, int]] = (),
        repeats: bool = False,
        pure: bool = False,
        after: Iterable[int] = (),
        cost: int = 0,
    ) -> tuple[int | None, ...]:
        """
        Append a node, and return the output indices.

        Parameters
        ----------
        op : str
            Operator; ignored by the planner.
        inputs : iterable of int or None
            Indices of values read; ``None`` for an absent optional operand.
        outputs : iterable of int, (name, shape, dtype) or None
            Values written: an index from :meth:`value`, or a new value.
        in_place, views, ignores, mutates, workspaces, flows, loads, overlaps, windows, repeats
            The node's :class:`Effects`.
        pure : bool, default False
            Also in :class:`Effects`: whether a plan may run the node again.
        after : iterable of int
            Indices of nodes that must run first.
        cost : int, default 0
            Cost per run, in a work unit common to all nodes: the maximum of floating-point
            operations and 8 times the bytes moved, or a measured time. 0 if unknown.
        """
        results = tuple(self.value(*spec) if isinstance(spec, tuple) else spec for spec in outputs)
        try:
            effects = Effects(
                tuple(InPlace(*pair) for pair in in_place),
                tuple(View(*view) for view in views),
                tuple(ignores),
                tuple(mutates),
                tuple(tuple(Choice(*choice) for choice in choices) for choices in workspaces),
                tuple(Flow(*flow) for flow in flows),
                tuple(loads),
                tuple(Overlap(*overlap) for overlap in overlaps),
                tuple(Window(*window) for window in windows),
                repeats,
                pure,
            )
            operands = tuple(inputs)
        except TypeError as error:
            raise fault("InvalidEffect", f"node {name or op!r}: {error}") from None
        for value in (*operands, *results):
            if value is not None:
                self._refuse_foreign(value)
        self.append(
            op,
            operands,
            results,
            name=name,
            effects=effects,
            attributes=attributes,
            domain=domain,
            version=version,
            after=tuple(after),
            cost=cost,
        )
        return results

    def append(
        self,
        op: str,
        inputs: tuple[int | None, ...],
        outputs: tuple[int | None, ...],
        *,
        name: str = "",
        effects: Effects = NO_EFFECTS,
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
        version: int = 0,
        after: tuple[int, ...] = (),
        cost: int = 0,
    ) -> Node:
        """Append a node whose values and effects are already made; importers call this."""
        take_node()
        self._change()
        index = len(self.nodes)
        node = Node(
            name or f"{op}_{index}",
            op,
            inputs,
            outputs,
            index,
            effects,
            _NO_ATTRIBUTES if attributes is None else attributes,
            domain,
            version,
            after,
            cost,
        )
        self.nodes.append(node)
        return node

    @typed
    def replace_node(self, index: int, outputs: tuple[int | None, ...], effects: Effects) -> None:
        """Give a node other outputs and effects, before a plan is made."""
        self._change()
        self.nodes[index] = replace(self.nodes[index], outputs=outputs, effects=effects)

    def rename(self, value: int, name: str) -> None:
        """Give a value another name."""
        value = self.own(value)
        self._change()
        self.values[value] = replace(self.values[value], name=name)
        self.composed = None  # The composer's state knows the used names.

    def output(self, value: int) -> None:
        """Declare that the caller receives ``value``."""
        self._refuse_foreign(value)
        self._change()
        self.outputs.append(value)

    def drop_output(self, value: int) -> None:
        """
        Take back the declaration that the caller receives ``value``.

        Raises
        ------
        UndefinedValue
            If the caller does not receive it.
        """
        if value not in self.outputs:
            raise UndefinedValue(f"value {value} of graph {self.name!r} is no output")
        self._change()
        self.outputs.remove(value)

    def write_back(self, value: int, into: int) -> None:
        """
        Declare that ``value`` replaces the input or state ``into`` in place (donation).

        Both have the same address in every plan. The producer of ``value`` runs after all other
        nodes that read the previous content of ``into``, and may itself read the content only if
        the producer's effects let ``value`` take over ``into``. After a run, ``into`` has the bytes
        of ``value``.

        Examples
        --------
        >>> import arenaplan as ap
        >>> graph = ap.Graph("update")
        >>> p, g = graph.state("p", (1024,)), graph.input("g", (1024,))
        >>> (new,) = graph.node("Sub", [p, g], [("new p", (1024,), "float32")], in_place=[(0, 0)])
        >>> graph.write_back(new, p)
        >>> plan = ap.plan(graph)
        >>> plan.arena_bytes, plan.placements[new].offset == plan.placements[p].offset
        (8192, True)
        """
        self._refuse_foreign(value)
        self._refuse_foreign(into)
        self._change()
        self.write_backs.append((value, into))

    def pin(self, value: int, offset: int) -> None:
        """
        Fix a value's offset in its space, in bytes; plans respect the offset.

        Values pinned to the same bytes must not be live at the same time, or must share bytes by a
        node's effect.

        Examples
        --------
        >>> import arenaplan as ap
        >>> graph = ap.Graph()
        >>> x = graph.input("x", (16,))
        >>> (y,) = graph.node("MatMul", [x], [("y", (16,), "float32")])
        >>> graph.output(y)
        >>> graph.pin(x, 128)
        >>> [place.offset for place in ap.plan(graph).placements]
        [128, 0]
        """
        self._refuse_foreign(value)
        self._change()
        offset = size_of(offset, "the offset of a pin")
        if not 0 <= offset < 1 << 63:
            raise fault(
                "PinConflict", f"value {value} is pinned to offset {offset}, which no memory has"
            )
        self._pins[value] = offset

    def own(self, value: int) -> ValueId:
        """
        Return a value as an id in this graph.

        Parameters
        ----------
        value : int
            An id returned by a method of this graph, or a position in :attr:`values`.

        Raises
        ------
        UndefinedValue
            If the value belongs to another graph, or the position does not exist.
        """
        self._refuse_foreign(value)
        if not 0 <= value < len(self.values):
            raise UndefinedValue(f"the graph has no value {value}")
        return self.values[value].index

    def _refuse_foreign(self, value: int) -> None:
        """Refuse a number that is not a value, and a value from another graph."""
        if isinstance(value, ValueId):
            if value.owner is not self._owner and value >= self._owners.get(value.owner, 0):
                raise UndefinedValue(
                    f"value {value} belongs to another graph than {self.name!r}: pass what the "
                    'methods of this graph returned, or Graph.find("NAME").index'
                )
        elif isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise UndefinedValue(
                f"{quoted(repr(value))} is no value of a graph: pass what Graph.input, "
                'Graph.node and the like returned, or Graph.find("NAME").index'
            )

    def _declare(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeName,
        kind: ValueKind,
        alignment: int | None,
        space: str | None,
    ) -> ValueId:
        self._change()
        index = ValueId(len(self.values), self._owner)
        dims = checked_shape(shape, name)
        named = dtype_name(dtype, name)
        self.values.append(Value(name, dims, named, kind, index, alignment, space))
        return index

    def _change(self) -> None:
        """Forget the Rust graph; the next use creates a new one."""
        self._refuse_if_tied()
        self._core = None

    def _refuse_if_tied(self) -> None:
        """Refuse to change a graph whose file says more than values and nodes do here."""
        if self._is_tied:
            raise InvalidOption(
                f"graph {self.name!r} cannot be changed: its file has pins, properties of spaces "
                "or staging buffers"
            )
