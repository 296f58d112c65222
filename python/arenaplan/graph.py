"""
The graph that is planned: values, nodes, and the effects of each node on memory.

A :class:`Graph` is built by an importer or by hand. It holds the facts for the planner (sizes and
:class:`Effects`) and further facts for an executor (operators, attributes, constant data). The
planner sees only the first part,
as the immutable Rust graph in :attr:`Graph.core`.
"""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from arenaplan import _core
from arenaplan.backend import Scratch, backend_of, composer
from arenaplan.effects import (
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
from arenaplan.errors import (
    InvalidDim,
    InvalidEffect,
    InvalidOption,
    InvalidSize,
    PlannerError,
    UndefinedValue,
    UnsupportedModel,
)
from arenaplan.origin import Origin

if TYPE_CHECKING:
    from arenaplan.symbols import Operators

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
    "ValueKind",
    "ValueSpec",
    "View",
    "Window",
]

ValueKind: TypeAlias = Literal["input", "constant", "activation", "state"]
ConstantData: TypeAlias = np.ndarray | Callable[[], np.ndarray]
ValueSpec: TypeAlias = "tuple[str, Sequence[int], str]"

_TOO_LARGE = 1 << 64

MAX_FILE = 1 << 30
"""Most bytes of a graph file."""

_NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class Value:
    """
    A tensor that one node produces and other nodes read.

    To be read only: the planner works on a copy that the graph has made.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    """NumPy's name of the element type, or one of ``bfloat16``, ``float8_*``, ``int4``…"""
    kind: ValueKind
    index: int
    """Position in :attr:`Graph.values`."""
    alignment: int | None = None
    """Alignment in bytes, where it must be stricter than the plan's."""
    space: str | None = None
    """Name of the memory space, where it is not the default one."""


@dataclass(slots=True)
class Node:
    """
    One operator of the graph.

    To be read only: the planner works on a copy that the graph has made.
    """

    name: str
    op: str
    inputs: tuple[int | None, ...]
    """Indices of the values read; ``None`` for an optional operand left out."""
    outputs: tuple[int | None, ...]
    """Indices of the values written; ``None`` for an optional result left out."""
    index: int
    """Position in :attr:`Graph.nodes`."""
    effects: Effects = NO_EFFECTS
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Properties of the operator, for kernels; ``None`` for a value that a graph file lacks."""
    domain: str = ""
    """Operator set of ``op``; empty for ONNX's default one."""
    version: int = 0
    """Version of the operator set."""
    after: tuple[int, ...] = ()
    """Indices of nodes that must run before this one although it reads nothing of theirs."""
    cost: int = 0
    """Cost of one run, in units of work that all nodes have in common; 0 if it is unknown."""
    origin: Origin | None = None
    """Layer and line of source code that the node comes from, where the model carries them."""


def _bytes(value: Value) -> int | None:
    """Return the bytes of a value; None if NumPy does not know its element type."""
    try:
        return math.prod(value.shape) * np.dtype(value.dtype).itemsize
    except TypeError:
        return None


class Graph:
    """
    A neural network as a planner sees it.

    Parameters
    ----------
    name : str, optional
        Name of the model, for reports.

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
        self.name = name
        self.values: list[Value] = []
        """Every value, in order of declaration."""
        self.nodes: list[Node] = []
        """Every node; a topological order of them is the execution order."""
        self.inputs: list[int] = []
        """Indices of the values that the caller supplies."""
        self.outputs: list[int] = []
        """Indices of the values that the caller receives."""
        self.write_backs: list[tuple[int, int]] = []
        """Values that replace an input or state at its address, with that input or state."""
        self.warnings: list[str] = []
        """What an importer had to assume, one sentence each."""
        self.target = "nodes"
        """Name of the target that plans are for unless another one is asked for; importers set
        the one that runs their format."""
        self.is_exact = False
        """Whether results must not depend on the plan, to the last bit: kernels then have one size
        of scratch memory each, the smallest. Set it before a plan is made."""
        self._variants: dict[str, Callable[[], Graph]] = {}
        self._made: dict[str, Graph] = {}
        self._refusal: PlannerError | None = None
        self._constants: dict[int, ConstantData] = {}
        self._initials: dict[int, np.ndarray] = {}
        self._core: _core.Graph | None = None
        self._is_tied = False
        self._has_weights = True
        self._pins: dict[int, int] = {}
        self._op: Operators | None = None

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.values)} values, {len(self.nodes)} nodes)"

    # -- building ------------------------------------------------------------

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        alignment: int | None = None,
        space: str | None = None,
    ) -> int:
        """Declare a value that the caller supplies, and return its index."""
        index = self._declare(name, shape, dtype, "input", alignment, space)
        self.inputs.append(index)
        return index

    def constant(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        data: ConstantData | None = None,
    ) -> int:
        """
        Declare a value that never changes, and return its index.

        Constants are not part of the arena. ``data`` is the array itself, or a
        function that loads it when an executor first asks for it.
        """
        index = self._declare(name, shape, dtype, "constant", None, None)
        if data is not None:
            self._constants[index] = data
        return index

    def state(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        alignment: int | None = None,
        space: str | None = None,
        initial: np.ndarray | None = None,
    ) -> int:
        """
        Declare a variable that keeps its bytes between runs, and return its index.

        An executor with an arena of its own begins with the content ``initial``, with zeros if it
        is left out.
        """
        index = self._declare(name, shape, dtype, "state", alignment, space)
        if initial is not None:
            self._initials[index] = initial
        return index

    def parameter(self, name: str, initial: np.ndarray) -> int:
        """
        Declare a state of the shape, type and first content of an array, and return its index.

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
        dtype: str = "float32",
        *,
        alignment: int | None = None,
        space: str | None = None,
    ) -> int:
        """Declare a value that some node will produce, and return its index."""
        return self._declare(name, shape, dtype, "activation", alignment, space)

    @property
    def op(self) -> Operators:
        """
        Operators as functions that append nodes, with inferred shapes, types and effects.

        See :class:`arenaplan.symbols.Operators`. Needs the package ``onnx``.

        Examples
        --------
        >>> import arenaplan as ap
        >>> graph = ap.Graph("two layers")
        >>> x = graph.input("x", (1, 64))
        >>> graph.output(graph.op.Neg(graph.op.Relu(x)))
        >>> ap.plan(graph).arena_bytes
        512
        """
        if self._op is None:
            self._op = composer(self)
        return self._op

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
        Append a node, and return the indices of its outputs.

        Parameters
        ----------
        op : str
            Operator; the planner never looks at it.
        inputs : iterable of int or None
            Indices of the values read, ``None`` for an absent optional operand.
        outputs : iterable of int, (name, shape, dtype) or None
            Values written: an index from :meth:`value`, or a new value.
        in_place, views, ignores, mutates, workspaces, flows, loads, overlaps, windows, repeats
            The node's :class:`Effects`.
        pure : bool, default False
            Of :class:`Effects`, too: whether a plan may run the node again.
        after : iterable of int
            Indices of nodes that must run first.
        cost : int, default 0
            Cost of one run, in units of work that all nodes have in common: the larger one of
            floating-point operations and 8 times the bytes moved, or a measured time. 0 if unknown.
        """
        results = tuple(self.value(*spec) if isinstance(spec, tuple) else spec for spec in outputs)
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
        for pair in effects.in_place:
            self._refuse_growth(name or op, pair, operands, results)
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

    def _refuse_growth(
        self,
        node: str,
        pair: InPlace,
        inputs: tuple[int | None, ...],
        outputs: tuple[int | None, ...],
    ) -> None:
        """Refuse the permission to put an output into an input that is smaller: no plan uses it."""
        if not (0 <= pair.input < len(inputs) and 0 <= pair.output < len(outputs)):
            return  # The planner names the pair.
        places = inputs[pair.input], outputs[pair.output]
        if any(place is None or not 0 <= place < len(self.values) for place in places):
            return
        input_, output = (self.values[place] for place in places if place is not None)
        room, needed = _bytes(input_), _bytes(output)
        if room is not None and needed is not None and needed > room:
            raise InvalidEffect(
                f"node {node!r}: {output.name!r} of {needed} bytes cannot be in place of "
                f"{input_.name!r}, which has {room}; ap.Problem(may_overlap=...) packs such buffers"
            )

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

    def replace_node(self, index: int, outputs: tuple[int | None, ...], effects: Effects) -> None:
        """Give a node other outputs and effects, before a plan is made."""
        self._change()
        self.nodes[index] = replace(self.nodes[index], outputs=outputs, effects=effects)

    def rename(self, value: int, name: str) -> None:
        """Give a value another name."""
        self._change()
        self.values[value] = replace(self.values[value], name=name)
        self._op = None  # It knows the names that are taken.

    def output(self, value: int) -> None:
        """Declare that the caller receives ``value``."""
        self._change()
        self.outputs.append(value)

    def drop_output(self, value: int) -> None:
        """Take back the declaration that the caller receives ``value``."""
        self._change()
        self.outputs.remove(value)

    def write_back(self, value: int, into: int) -> None:
        """
        Declare that ``value`` replaces the input or state ``into`` at its address: donation.

        The two have one address in every plan. The producer of ``value`` runs after all other nodes
        that read the previous content of ``into``, and may read that content itself only where its
        effects let ``value`` take over ``into``. After a run, ``into`` has the bytes of ``value``.

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
        self._change()
        self.write_backs.append((value, into))

    def pin(self, value: int, offset: int) -> None:
        """
        Fix the offset of a value in its space, in bytes; plans respect it.

        Values that are pinned to the same bytes must be dead at different times, or share them
        by an effect of their node.

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
        self._change()
        self._pins[value] = offset

    def _declare(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        kind: ValueKind,
        alignment: int | None,
        space: str | None,
    ) -> int:
        self._change()
        index = len(self.values)
        dims = tuple(shape)
        # Nearly every dimension is a plain int; importers declare values by the thousand.
        for dim in dims:
            if type(dim) is not int or not 0 <= dim < _TOO_LARGE:
                dims = tuple(_checked_dim(dim, name) for dim in dims)
                break
        self.values.append(Value(name, dims, dtype, kind, index, alignment, space))
        return index

    def with_after(self, after: Iterable[Iterable[int]]) -> Graph:
        """Return a copy whose nodes run after other nodes, by index, than here."""
        copy = self.copy()
        rows = zip(self.nodes, after, strict=True)
        copy.nodes = [replace(node, after=tuple(nodes)) for node, nodes in rows]
        return copy

    def scheduled(self, schedule: Iterable[int]) -> Graph:
        """
        Return the graph in which each execution of a schedule is a node.

        The first execution of a node is the node itself; the second one of ``n`` is a node ``n#2``
        that makes values ``v#2``, behind all others. A reader reads the latest value that was made
        before. A kernel runs all of them in the same way.

        Parameters
        ----------
        schedule : iterable of int
            Indices of nodes, in order; those of pure nodes may come several times. As
            :attr:`Plan.schedule`.

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
        order = [int(index) for index in schedule]
        scheduled = self.core.scheduled(order)
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
            origin = self.nodes[origins[index]]
            node = replace(
                origin,
                name=row["name"],
                inputs=tuple(row["inputs"]),
                outputs=tuple(row["outputs"]),
                index=index,
                after=tuple(row.get("after", ())),
            )
            if index < count:
                copy.nodes[index] = node
            else:
                copy.nodes.append(node)
        copy.outputs = list(nodes["outputs"])
        pairs = nodes.get("write_backs", ())
        copy.write_backs = [(pair["value"], pair["into"]) for pair in pairs]
        copy._has_weights, copy._core = self._has_weights, scheduled
        return copy

    def for_plan(self, plan: _core.Plan) -> Graph:
        """
        Return the graph that the steps of ``plan`` name.

        It is this one, or the graph of :attr:`Plan.schedule` if nodes run again.
        """
        return self if plan.schedule is None else self.scheduled(plan.schedule)

    def copy(self) -> Graph:
        """Return a graph of the same values and nodes; a change of one is none of the other."""
        self._refuse_if_tied()
        copy = Graph(self.name)
        copy.values, copy.nodes = list(self.values), list(self.nodes)
        copy.inputs, copy.outputs = list(self.inputs), list(self.outputs)
        copy.warnings, copy.target = list(self.warnings), self.target
        copy.is_exact = self.is_exact
        copy._constants, copy._refusal = dict(self._constants), self._refusal
        copy.write_backs = list(self.write_backs)
        copy._pins, copy._initials = dict(self._pins), dict(self._initials)
        return copy

    def add_variant(self, target: str, make: Callable[[], Graph]) -> None:
        """
        Declare that the runner of this name sees another graph, which ``make`` returns.

        It is made once, when it is first needed.
        """
        self._variants[target] = make
        self._made.pop(target, None)

    def refuse(self, error: PlannerError) -> None:
        """
        Declare that this graph cannot be planned, and why; its variants still can.

        The first refusal counts. The error is raised when the graph is planned or checked.
        """
        if self._refusal is None:
            self._refusal = error

    def for_target(self, target: str) -> Graph:
        """
        Return the graph that a runner sees.

        A runtime may have a clock and values of its own: TensorFlow Lite Micro runs through the
        subgraphs that an operator calls and keeps variables elsewhere. For all others it is this
        graph.

        Raises
        ------
        InvalidOption
            If the target names a set of kernels, as ``"tflm:cmsis-nn"``, that is not known.
        """
        make = self._variants.get(target)
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

    def _change(self) -> None:
        """Forget the Rust graph; the next use makes it anew."""
        self._refuse_if_tied()
        self._core = None

    def _refuse_if_tied(self) -> None:
        """Refuse to change a graph whose file says more than values and nodes do here."""
        if self._is_tied:
            raise InvalidOption(
                f"graph {self.name!r} cannot be changed: its file has pins, properties of spaces "
                "or staging buffers"
            )

    # -- files ---------------------------------------------------------------

    def to_json(self) -> str:
        """
        Return the graph as JSON text, which Rust programs read, too.

        The text has all that a planner reads, operators with their attributes, and no weights. An
        attribute that is no number, text or list of these is ``null`` there. Equal graphs give
        equal text.

        Examples
        --------
        >>> import arenaplan as ap
        >>> graph = ap.Graph("one")
        >>> graph.output(graph.input("x", (64,)))
        >>> ap.Graph.from_json(graph.to_json())
        Graph('one', 1 values, 0 nodes)
        """
        return self.core.to_json()

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write the graph to a file, which is replaced at once or unchanged.

        Raises
        ------
        PlanWriteError
            If the file cannot be written.
        """
        _core.write_files([(path, self.to_json().encode())])

    @classmethod
    def from_json(cls, text: str | bytes) -> Graph:
        """
        Return the graph that JSON text holds.

        Raises
        ------
        GraphCorrupt, GraphVersion, FileTooLarge
            If the text is damaged, or no graph of this version.
        GraphError, SizeError
            If its values and nodes are no valid graph.
        """
        data = text.encode() if isinstance(text, str) else text
        return cls.of_core(_core.Graph.from_json(data))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read a graph from a file that :meth:`save` wrote; raises as :meth:`from_json`."""
        with open(path, "rb") as file:
            return cls.from_json(file.read(MAX_FILE + 1))

    @classmethod
    def of_core(cls, core: _core.Graph) -> Graph:
        """Return the graph whose Rust graph is ``core``."""
        text = core.to_json()
        document = json.loads(text)
        graph = cls(document["name"])
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
        graph.outputs = document["outputs"]
        pairs = document.get("write_backs", ())
        graph.write_backs = [(pair["value"], pair["into"]) for pair in pairs]
        graph._is_tied = graph.core.to_json() != text
        graph._core, graph._has_weights = core, False
        return graph

    # -- reading -------------------------------------------------------------

    @property
    def core(self) -> _core.Graph:
        """The validated, immutable graph that the Rust planner reads."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        if self._core is None:
            self._core = _core.Graph(
                self.name,
                [(v.name, v.kind, v.dtype, v.shape, v.alignment, v.space) for v in self.values],
                [
                    (
                        n.name,
                        n.op,
                        n.inputs,
                        n.outputs,
                        n.effects,
                        n.after,
                        n.domain,
                        n.version,
                        n.attributes,
                        n.cost,
                    )
                    for n in self.nodes
                ],
                self.outputs,
                self.write_backs,
            )
            if self._pins:
                self._core = self._core.with_pins(list(self._pins.items()))
        return self._core

    def core_for(
        self,
        workspace: str,
        steps: Sequence[Sequence[int]] | None = None,
        overlapped: Iterable[int] = (),
        target: str = "numpy",
        strips: Sequence[_core.Strips] = (),
    ) -> _core.Graph:
        """
        Return the Rust graph that a plan with such steps is of.

        Parameters
        ----------
        workspace : {"none", "auto"}
            With ``"auto"``, nodes have the scratch buffers that the target's backend declares,
            if it has one.
        steps : sequence of sequence of int, optional
            The nodes that run as one; each node by itself if left out.
        overlapped : iterable of int
            The last node of each step whose output overlaps an input.
        target : str, default "numpy"
            Name of the target.
        strips : sequence of Strips
            How steps run strip by strip, for those that do.
        """
        graph = self.for_target(target) if target in self._variants else self
        backend = backend_of(target)
        if workspace == "none" or backend is None:
            return graph.core
        graph.require_weights(target)
        named = set(overlapped)
        staged = [nodes for nodes in steps or () if nodes[-1] in named]
        return graph.core.with_workspaces(
            _rows(backend.workspaces(graph, steps, strips)), _rows(backend.staging(graph, staged))
        )

    def require_weights(self, target: str) -> None:
        """
        Raise unless kernels of a target can be asked for their scratch memory.

        Raises
        ------
        UnsupportedModel
            If the graph is from a file, which has no weights.
        """
        if not self._has_weights:
            raise UnsupportedModel(
                f"the scratch memory of target {target!r} depends on weights and attributes, and "
                "a graph file does not have all of them: plan the model itself, or with "
                "workspace='none'"
            )

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all that a plan depends on."""
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

    def initial(self, index: int) -> np.ndarray | None:
        """Return the first content of state ``index``; ``None`` for zeros."""
        return self._initials.get(index)

    def has_data(self, index: int) -> bool:
        """Whether the data of constant ``index`` is known or can be loaded."""
        return index in self._constants

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
            raise UndefinedValue(f"constant {self.values[index].name!r} has no data")
        if callable(data):
            data = data()
        if data.flags.writeable:
            data = data.view()
            data.flags.writeable = False
        self._constants[index] = data
        return data


def _origins(schedule: Sequence[int], nodes: int) -> list[int]:
    """Return, by node of a graph with repetitions, the node that it is an execution of."""
    ran: set[int] = set()
    origins = list(range(nodes))
    for node in schedule:
        if node in ran:
            origins.append(node)
        ran.add(node)
    return origins


def _attributes_of(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the attributes of a node in a file as importers make them: lists are tuples."""
    attributes = row.get("attributes")
    if attributes is None:
        return None
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in attributes.items()
    }


def _rows(scratch: Scratch) -> list[tuple[int, list[list[tuple[int, float]]]]]:
    """Return scratch buffers as the core takes them."""
    return [
        (node, [[(choice.bytes, choice.cost) for choice in slot] for slot in slots])
        for node, slots in scratch.items()
    ]


def _checked_dim(dim: object, name: str) -> int:
    """Return ``dim`` as an int; refuse values that only look like one."""
    if isinstance(dim, (bool, np.bool_)):
        raise TypeError(f"a dimension of value {name!r} is {dim!r}, not a whole number")
    try:
        number = operator.index(dim)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"a dimension of value {name!r} is {dim!r}, not a whole number") from None
    if number < 0:
        raise InvalidDim(f"value {name!r} has the negative dimension {number}")
    if number >= _TOO_LARGE:
        raise InvalidSize(f"value {name!r} has dimension {number}, more than 64 bits hold")
    return number
