"""
The planned graph: values, nodes, and each node's effects on memory.

A :class:`Graph` is built by an importer or by hand. A graph holds facts for the planner (sizes and
:class:`Effects`) and for an executor (operators, attributes, constant data). The planner sees only
the former, as the immutable Rust graph in :attr:`Graph.core`. Building is in
:mod:`arenaplan.graph.building`, values and nodes are in :mod:`arenaplan.graph.values`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, SupportsIndex

import numpy as np

from arenaplan import _core
from arenaplan.base.arguments import typed
from arenaplan.base.errors import (
    InvalidOption,
    PlannerError,
    UndefinedValue,
    UnsupportedModel,
)
from arenaplan.base.html_tables import html_table
from arenaplan.base.quoting import quoted
from arenaplan.graph.building import GraphBuilder
from arenaplan.graph.costs import costs_of
from arenaplan.graph.effects import (
    NO_EFFECTS,
    Choice,
    Effects,
    Flow,
    InPlace,
    Overlap,
    View,
    Window,
    effects_of,
)
from arenaplan.graph.origin import Origin
from arenaplan.graph.values import (
    ConstantData,
    Node,
    Quantized,
    Value,
    ValueId,
    ValueKind,
    ValueSpec,
)

__all__ = [
    "MAX_FILE",
    "NO_EFFECTS",
    "Choice",
    "ConstantData",
    "Effects",
    "Flow",
    "Graph",
    "InPlace",
    "Node",
    "Origin",
    "Overlap",
    "Value",
    "ValueId",
    "ValueKind",
    "ValueSpec",
    "View",
    "Window",
]

WHOLE: Final = _core.Covers([], [], "", [])
"""The whole model."""

_NO_TFLM: Final = {"numpy": "an ONNX model", "executorch": "a program of torch.export"}
"""Models that TensorFlow Lite Micro cannot run, by the importer's default target."""

MAX_FILE = 1 << 30
"""Largest graph file, in bytes."""


_VALUE: Final = attrgetter("name", "kind", "dtype", "shape", "alignment", "space")
_NODE: Final = attrgetter(
    *("name", "op", "inputs", "outputs", "effects", "after", "domain", "version"),
    *("attributes", "cost"),
)


class Graph(GraphBuilder):
    """
    A neural network for planning.

    Parameters
    ----------
    name : str, optional
        Model name, for reports.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("two layers")
    >>> x = graph.input("x", (1, 64))
    >>> (y,) = graph.node("Relu", [x], [("y", (1, 64), "float32")], in_place=[(0, 0)])
    >>> (z,) = graph.node("Neg", [y], [("z", (1, 64), "float32")], in_place=[(0, 0)])
    >>> graph.output(z)
    >>> ap.plan(graph).arena_bytes
    512
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.warnings: list[str] = []
        """Assumptions by the importer, a sentence each."""
        self.contradicts = False
        """Whether a dimension's size contradicts the number bound to its name."""
        self.target = "nodes"
        """The default target for plans; importers set the target that runs their format."""
        self.covers = WHOLE
        """The part of the model covered by the graph; plans for the graph cover the same part."""
        self.tensors: dict[int, tuple[str, tuple[int, ...]]] = {}
        """Element types and shapes for people, for values that the graph has as plain bytes."""
        self.memory = "arena"
        """Memory of values that name no memory."""
        self.is_exact = False
        """
        Whether results must be bit-identical for all plans: kernels then have a single scratch size
        each, the smallest. Set before planning.
        """
        self._variants: dict[str, Callable[[], Graph]] = {}
        self._made: dict[str, Graph] = {}
        self._refusal: PlannerError | None = None
        self._has_weights = True

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.values)} values, {len(self.nodes)} nodes)"

    def _repr_html_(self) -> str:
        rows = (
            (it.name, it.op, *(", ".join(map(self._shown, ids)) for ids in (it.inputs, it.outputs)))
            for it in self.nodes
        )
        caption = f"{self.name or 'graph'}: {len(self.values):,} values, {len(self.nodes):,} nodes"
        return html_table(caption, ["node", "operator", "reads", "makes"], rows)

    def _shown(self, index: int | None) -> str:
        """Return a value with its type and shape, as people read it."""
        if index is None:
            return "-"
        value = self.values[index]
        return f"{value.name} {value.dtype}{list(value.shape)}"

    def __getstate__(self) -> dict[str, Any]:
        """
        Return the graph's state for another process.

        Raises
        ------
        InvalidOption
            If the graph is from a model file, which has the weights.
        """
        if self._variants or self._loads or any(map(callable, self._constants.values())):
            raise InvalidOption(
                f"graph {quoted(self.name)} has weights or variants in its model file: give other "
                "processes the path of the file, and not the graph"
            )
        core = None if self._core is None else self._core.to_json()
        nodes = [replace(node, attributes=dict(node.attributes)) for node in self.nodes]
        return {
            **self.__dict__,
            "nodes": nodes,
            "_core": core,
            "_owners": {},
            "_made": {},
            "composed": None,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._owner, core = object(), state["_core"]
        self.values = [
            replace(value, index=ValueId(value.index, self._owner)) for value in self.values
        ]
        self._core = None if core is None else _core.Graph.from_json(core.encode())

    @typed
    def with_after(self, after: Iterable[Iterable[int]]) -> Graph:
        """Return a copy whose nodes run after other nodes, by index, than here."""
        copy, after = self.copy(), [*after]
        if len(after) != len(self.nodes):
            raise InvalidOption(f"after: {len(after)} rows for {len(self.nodes)} nodes")
        rows = zip(self.nodes, after, strict=True)
        copy.nodes = [replace(node, after=tuple(nodes)) for node, nodes in rows]
        return copy

    @typed
    def scheduled(
        self,
        schedule: Iterable[int | _core.Transfer],
        paging: _core.Paging | None = None,
        inner: Iterable[tuple[int, int]] = (),
    ) -> Graph:
        """
        Return the graph with a node for each execution in a schedule.

        The first execution is the node itself; the second execution of ``n`` is a new node ``n#2``
        that makes values ``v#2``. A reader reads the latest value made before. Kernels run all
        executions alike. A value ``v`` copied to a slow memory ``host`` is ``v@host`` there, and
        ``v#in`` after the copy back; the copying nodes are ``v.out`` and ``v.in``.

        Parameters
        ----------
        schedule : iterable of int or Transfer
            Node indices, in order, where pure nodes may be repeated; and copied values, each copied
            out once. As in :attr:`Plan.schedule`.
        paging : Paging, optional
            The slow memory, for schedules with copies. As in :attr:`Plan.paging`.
        inner : iterable of tuple of int
            Nodes with bodies that have less memory inside than here, and the bytes. As in
            :attr:`Plan.inner`.

        Examples
        --------
        >>> import arenaplan as ap
        >>> graph = ap.Graph()
        >>> x = graph.input("x", (64,))
        >>> (a,) = graph.node("Exp", [x], [("a", (64,), "float32")], name="exp", pure=True)
        >>> (b,) = graph.node("Neg", [a], [("b", (64,), "float32")])
        >>> (c,) = graph.node("Add", [a, b], [("c", (64,), "float32")], name="add")
        >>> again = graph.scheduled([0, 1, 0, 2])
        >>> [again.values[i].name for i in again.nodes[2].inputs], again.nodes[3].name
        (['a#2', 'b'], 'exp#2')
        """
        chosen = [*inner]
        if chosen:
            return self._with_inner(chosen).scheduled(schedule, paging)
        order = [it if isinstance(it, _core.Transfer) else int(it) for it in schedule]
        scheduled = self.core.scheduled(order, paging)
        copy = self.copy()
        nodes = json.loads(scheduled.to_json())
        copy.nodes, copy.values = list(self.nodes), list(self.values)
        count = len(self.nodes)
        origins = _origins(order, count)
        for row in nodes["values"][len(self.values) :]:
            space = None if not row.get("space") else nodes["spaces"][row["space"]]["name"]
            facts = (row["shape"], row["dtype"], row["kind"], row.get("alignment"), space)
            copy._declare(row["name"], *facts)
        for index, row in enumerate(nodes["nodes"]):
            made_of = origins[index]
            operands = tuple(row["inputs"]), tuple(row["outputs"])
            if made_of is None:
                node = Node(
                    row["name"],
                    row["op"],
                    *operands,
                    index,
                    effects_of(row),
                    domain=row.get("domain", ""),
                    version=row.get("version", 0),
                    cost=row.get("cost", 0),
                )
            else:
                node = replace(
                    self.nodes[made_of],
                    name=row["name"],
                    inputs=operands[0],
                    outputs=operands[1],
                    index=index,
                    after=tuple(row.get("after", ())),
                )
            if index < count:
                copy.nodes[index] = node
            else:
                copy.nodes.append(node)
        copy._declare_ends(nodes)
        copy._has_weights, copy._core = self._has_weights, scheduled
        return copy

    def _with_inner(self, chosen: Iterable[tuple[int, int]]) -> Graph:
        """Return a copy in which nodes have bodies that need so many bytes."""
        copy = self.copy()
        for index, size in chosen:
            if not 0 <= index < len(copy.nodes):
                raise InvalidOption(
                    f"option inner: there is no node {index} among {len(copy.nodes):,}"
                )
            node = copy.nodes[index]
            smaller = _smaller_bodies(node).get(size)
            value = node.outputs[-1] if node.outputs else None
            if smaller is None or value is None:
                raise InvalidOption(
                    f"node {quoted(node.name)} cannot run in {size:,} bytes of inner memory; "
                    f"permitted are {sorted(_smaller_bodies(node)) or 'no smaller sizes'}; a graph "
                    "file has no bodies, so use the model"
                )
            copy.values[value] = replace(copy.values[value], shape=(size,), dtype="uint8")
            attributes = {**node.attributes, "bodies": smaller[0]}
            copy.nodes[index] = replace(node, attributes=attributes, cost=node.cost + smaller[1])
        copy._has_weights = self._has_weights
        return copy

    @typed
    def for_plan(self, plan: _core.Plan) -> Graph:
        """
        Return the graph to which the steps of ``plan`` refer.

        This graph, or the graph for :attr:`Plan.schedule` and :attr:`Plan.inner`.
        """
        schedule = plan.schedule
        if schedule is None:
            return self
        return self.scheduled(schedule, plan.paging, plan.inner)

    def copy(self) -> Graph:
        """Return an independent copy with the same values and nodes."""
        self._refuse_if_tied()
        copy = Graph(self.name)
        copy.values, copy.nodes = list(self.values), list(self.nodes)
        copy.inputs, copy.outputs = list(self.inputs), list(self.outputs)
        copy.warnings, copy.target = list(self.warnings), self.target
        copy.contradicts = self.contradicts
        copy.is_exact, copy.covers, copy.memory = self.is_exact, self.covers, self.memory
        copy._constants, copy._refusal = dict(self._constants), self._refusal
        copy._loads = dict(self._loads)
        copy.write_backs, copy.tensors = list(self.write_backs), dict(self.tensors)
        copy._pins, copy._initials = dict(self._pins), dict(self._initials)
        copy._owners = {**self._owners, self._owner: len(self.values)}
        return copy

    @typed
    def add_variant(self, target: str, make: Callable[[], Graph]) -> None:
        """
        Declare that the named runner sees another graph, returned by ``make``.

        ``make`` is called once, on first use.
        """
        self._variants[target] = make
        self._made.pop(target, None)

    def refuse(self, error: PlannerError) -> None:
        """
        Declare that this graph cannot be planned, and why; variants still can.

        The first refusal counts. Planning or checking the graph raises the error.
        """
        if self._refusal is None:
            self._refusal = error

    @typed
    def for_target(self, target: str) -> Graph:
        """
        Return the graph that a runner sees.

        A runtime may have its own clock and values: TensorFlow Lite Micro runs through the
        subgraphs that an operator calls and keeps variables elsewhere. All other runners see this
        graph.

        Raises
        ------
        InvalidOption
            If the target names an unknown kernel set, as in ``"tflm:cmsis-nn"``.
        UnsupportedModel
            If the runtime cannot read the graph's file format.
        """
        make = self._variants.get(target)
        if make is None and target.partition(":")[0] == "tflm" and self.target in _NO_TFLM:
            raise UnsupportedModel(
                f"option target: TensorFlow Lite Micro runs .tflite files, and {quoted(self.name)} "
                f"is {_NO_TFLM[self.target]}; convert the model, or plan for another target"
            )
        if make is None and ":" in target and target != self.target:
            sets = ", ".join(name for name in self._variants if ":" in name) or "none"
            raise InvalidOption(
                f"option target: {target!r} names kernels that are not known for this model; known "
                f"are {sets}"
            )
        if make is None:
            return self
        if target not in self._made:
            self._made[target] = make()
        return self._made[target]

    # -- files ---------------------------------------------------------------

    def to_json(self) -> str:
        """
        Return the graph as JSON text, which Rust programs can also read.

        The text has everything a planner reads, operators with attributes, and no weights. An
        attribute that is not a number, text or list is ``null``. Equal graphs give equal text.

        Examples
        --------
        >>> import arenaplan as ap
        >>> graph = ap.Graph("one")
        >>> graph.output(graph.input("x", (64,)))
        >>> ap.Graph.from_json(graph.to_json())
        Graph('one', 1 values, 0 nodes)
        """
        return self.core.to_json()

    @typed
    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write the graph to a file, which is replaced at once or unchanged.

        Raises
        ------
        PlanError
            If the file cannot be written.
        """
        _core.write_files([(path, self.to_json().encode())])

    @classmethod
    @typed
    def from_json(cls, text: str | bytes) -> Graph:
        """
        Return the graph in JSON text.

        Raises
        ------
        GraphError, ModelError
            If the text is damaged, or not a graph in this version.
        GraphError, SizeError
            If the values and nodes are not a valid graph.
        """
        return cls.of_core(_core.Graph.from_json(text))

    @classmethod
    @typed
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read a graph from a file that :meth:`save` wrote; raises as :meth:`from_json`."""
        with open(os.fspath(path), "rb") as file:
            return cls.from_json(file.read(MAX_FILE + 1))

    @classmethod
    @typed
    def of_core(cls, core: _core.Graph) -> Graph:
        """Return the graph whose Rust graph is ``core``."""
        text = core.to_json()
        document = json.loads(text)
        graph = cls(document["name"])
        graph.covers, graph.memory = core.covers, document["spaces"][0]["name"]
        spaces = [None, *(space["name"] for space in document["spaces"][1:])]
        for row in document["values"]:
            space = spaces[row.get("space", 0)]
            facts = (row["shape"], row["dtype"], row["kind"], row.get("alignment"), space)
            graph._declare(row["name"], *facts)
        graph.inputs = [value.index for value in graph.values if value.kind == "input"]
        for row in document["nodes"]:
            graph.append(
                row["op"],
                tuple(row["inputs"]),
                tuple(row["outputs"]),
                name=row["name"],
                effects=effects_of(row),
                attributes=_attributes_of(row),
                domain=row.get("domain", ""),
                version=row.get("version", 0),
                after=tuple(row.get("after", ())),
                cost=row.get("cost", 0),
            )
        graph._declare_ends(document)
        graph._is_tied = graph.core.to_json() != text
        graph._core, graph._has_weights = core, False
        return graph

    def _declare_ends(self, document: Mapping[str, Any]) -> None:
        """Take outputs and write-backs from the core's document."""
        self.outputs = [self.own(index) for index in document["outputs"]]
        pairs = document.get("write_backs", ())
        self.write_backs = [(self.own(pair["value"]), self.own(pair["into"])) for pair in pairs]

    # -- reading -------------------------------------------------------------

    @property
    def core(self) -> _core.Graph:
        """The validated, immutable graph that the Rust planner reads."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        if self._core is None:
            self._core = _core.Graph(
                self.name,
                list(map(_VALUE, self.values)),
                list(map(_NODE, self.nodes)),
                self.outputs,
                self.write_backs,
                self.memory,
                self.covers,
            )
            if self._pins:
                self._core = self._core.with_pins(list(self._pins.items()))
        return self._core

    @property
    def core_with_sizes(self) -> _core.Graph:
        """
        The Rust graph in which nodes with bodies may have less memory inside, for more work.

        The sizes are searched for at the first use.
        """
        sizes = [
            (node.index, [(size, more) for size, (_, more) in _smaller_bodies(node).items()])
            for node in self.nodes
        ]
        sizes = [row for row in sizes if row[1]]
        return self.core.with_inner_sizes(sizes) if sizes else self.core

    @typed
    def variant(self, target: str) -> Graph:
        """Return the graph that a target sees: a variant, or this graph."""
        return self.for_target(target) if target in self._variants else self

    @typed
    def core_for(
        self,
        workspace: str,
        steps: Sequence[Sequence[int]] | None = None,
        overlapped: Iterable[int] = (),
        target: str = "numpy",
        strips: Sequence[_core.Strips] = (),
    ) -> _core.Graph:
        """
        Return the Rust graph for a plan with these steps.

        Parameters
        ----------
        workspace : {"none", "auto"}
            With ``"auto"``, nodes have the scratch buffers declared by the target's backend, if
            any.
        steps : sequence of sequence of int, optional
            The fused nodes; single nodes if left out.
        overlapped : iterable of int
            The last node of each step whose output overlaps an input.
        target : str, default "numpy"
            Name of the target.
        strips : sequence of Strips
            Strips for the steps that run strip by strip.
        """
        graph = self.variant(target)
        costs = None if workspace == "none" else costs_of(target, graph)
        if costs is None:
            return graph.core
        graph.require_weights(target)
        each = [[node.index] for node in graph.nodes] if steps is None else steps
        return graph.core.declared(costs, each, list(overlapped), strips)

    @property
    def has_weights(self) -> bool:
        """Whether kernels can compute scratch sizes: not for a graph file."""
        return self._has_weights

    def require_weights(self, target: str) -> None:
        """
        Raise unless a target's kernels can compute scratch sizes.

        Raises
        ------
        UnsupportedModel
            If the graph is from a graph file, which has no weights.
        """
        if not self._has_weights:
            raise UnsupportedModel(
                f"the scratch memory of target {target!r} depends on weights and attributes, and "
                "a graph file does not have all of them: plan the model itself, or with "
                "workspace='none'"
            )

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of everything that a plan depends on."""
        return self.core.digest

    def find(self, name: str) -> Value:
        """
        Return the value called ``name``.

        Raises
        ------
        UndefinedValue
            If there is none.
        """
        for value in self.values:
            if value.name == name:
                return value
        raise UndefinedValue(f"the graph has no value {name!r}")

    def to_parameter(self, value: int) -> ValueId:
        """
        Turn a constant into a state with the data as initial content, so that updates may write it.

        Raises
        ------
        InvalidOption
            If the value is not a constant.
        UndefinedValue
            If the graph was loaded without the data.

        Examples
        --------
        >>> import numpy as np
        >>> import arenaplan as ap
        >>> graph = ap.Graph()
        >>> w = graph.constant("w", (2,), "float32", np.ones(2, np.float32))
        >>> graph.values[graph.to_parameter(w)].kind, graph.initial(w)
        ('state', array([1., 1.], dtype=float32))
        """
        index = self.own(value)
        constant = self.values[index]
        if constant.kind != "constant":
            raise InvalidOption(
                f"value {quoted(constant.name)} is not a constant but {constant.kind}: only a "
                "constant becomes a parameter"
            )
        data = self.data(index)
        self._change()
        self._initials[index] = data
        del self._constants[index]
        self._loads.pop(index, None)
        self.values[index] = replace(constant, kind="state")
        for node in self.nodes:
            if index in node.inputs and node.effects.repeats:
                # A later run inside a group would read changed content.
                self.replace_node(node.index, node.outputs, node.effects._replace(repeats=False))
        self.composed = None  # The composer's state knows the existing constants.
        return index

    @typed
    def initial(self, index: int) -> np.ndarray | None:
        """Return the initial content of state ``index``; ``None`` for zeros."""
        return self._initials.get(index)

    @typed
    def has_data(self, index: int) -> bool:
        """Whether the data of constant ``index`` is known or can be loaded."""
        return index in self._constants

    @typed
    def data(self, index: int) -> np.ndarray:
        """
        Return the data of constant ``index`` as a read-only array.

        Raises
        ------
        UndefinedValue
            If the graph was loaded without this constant's data.
        """
        data = self._constants.get(index)
        if data is None:
            known = isinstance(index, SupportsIndex) and 0 <= index < len(self.values)
            name = quoted(self.values[index].name) if known else index
            raise UndefinedValue(f"constant {name} has no data")
        if callable(data):
            if hasattr(data, "quantized"):
                self._loads[index] = data
            data = data()
        if data.flags.writeable:
            data = data.view()
            data.flags.writeable = False
        if getattr(data, "origin", None) is None:
            self._constants[index] = data
        return data

    @typed
    def quantized(self, index: int) -> Quantized | None:
        """Return the quantized integers behind constant ``index``, if known."""
        load = self._loads.get(index, self._constants.get(index))
        found: Quantized | None = getattr(load, "quantized", lambda: None)()
        return found


def _smaller_bodies(node: Node) -> Mapping[int, tuple[object, int]]:
    """Return a node's bodies that need less memory, and the additional work, by bytes."""
    found: Mapping[int, tuple[object, int]] = getattr(node.attributes.get("bodies"), "smaller", {})
    return found


def _origins(schedule: Sequence[int | _core.Transfer], nodes: int) -> list[int | None]:
    """
    Return, per node in a graph with repetitions, the original node.

    ``None`` for nodes that copy a value.
    """
    ran: set[int] = set()
    origins: list[int | None] = list(range(nodes))
    for entry in schedule:
        if isinstance(entry, _core.Transfer):
            origins.append(None)
        elif entry in ran:
            origins.append(entry)
        else:
            ran.add(entry)
    return origins


def _attributes_of(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a file's node attributes in importer form: lists become tuples."""
    attributes = row.get("attributes")
    if attributes is None:
        return None
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in attributes.items()
    }
