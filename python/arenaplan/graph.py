"""
The graph that is planned: values, nodes, and the effects of each node on memory.

A :class:`Graph` is built by an importer or by hand. It holds the facts for the planner (sizes and
:class:`Effects`) and further facts for an executor (operators, attributes, constant data). The
planner sees only the first part,
as the immutable Rust graph in :attr:`Graph.core`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from arenaplan import _core
from arenaplan.backend import Scratch, backend_of
from arenaplan.errors import InvalidDim, InvalidOption, InvalidSize, PlannerError, UndefinedValue

ValueKind: TypeAlias = Literal["input", "constant", "activation", "state"]
ConstantData: TypeAlias = np.ndarray | Callable[[], np.ndarray]
ValueSpec: TypeAlias = "tuple[str, Sequence[int], str]"

_TOO_LARGE = 1 << 64
_NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


class InPlace(NamedTuple):
    """
    Permission for an output to take over the bytes of an input.

    The node must read the input elementwise at the output's full shape, so that
    element *i* is read before element *i* of the output is written.
    """

    input: int
    """Position among the node's inputs."""
    output: int
    """Position among the node's outputs."""
    identity: bool = False
    """Whether the output's bytes equal the input's."""


class View(NamedTuple):
    """
    An output that shows bytes of an input unchanged, or the reverse.

    Views are permissions: a planner may share the bytes, and otherwise the node copies.
    """

    input: int
    """Position among the node's inputs."""
    output: int
    """Position among the node's outputs."""
    offset: int = 0
    """First byte of the smaller inside the larger."""
    of: Literal["input", "output"] = "input"
    """Which of the two is the larger: ``"input"`` for a slice or reshape,
    ``"output"`` for an operand of a concatenation."""


class Flow(NamedTuple):
    """
    An output that a node can make in pieces, one after the other, and never needs whole.

    Cut the output, and each input that it follows, into ``pieces`` equal runs of neighboring
    elements: for piece *i* of the output the node needs piece *i* of those inputs, and all of
    the others. An elementwise node has as many pieces as elements and follows its full-size
    operands; a matrix product has one piece per row and follows its left operand; a
    convolution can make any piece, but follows nothing.
    """

    output: int
    """Position among the node's outputs."""
    pieces: int
    """Number of equal pieces."""
    follows: tuple[int, ...] = ()
    """Positions of the inputs that are needed piece by piece, too."""


class Overlap(NamedTuple):
    """
    An output that is made in order, and an input that is used up on the way.

    The node makes the output from its first byte to its last. When it has written the first
    *k* bytes, it needs no byte of the input before byte *k* - ``distance`` any more. So the two
    may overlap, if the input begins at least ``distance`` bytes behind the output's start.
    """

    input: int
    """Position among the node's inputs."""
    output: int
    """Position among the node's outputs."""
    distance: int = 0
    """Bytes by which writing is ahead of reading, at most."""


class Choice(NamedTuple):
    """One size of a workspace that a node can work with."""

    bytes: int
    """Size in bytes."""
    cost: float = 0.0
    """Relative cost of running with this size; lower is better."""


class Effects(NamedTuple):
    """Effects of a node on memory."""

    in_place: tuple[InPlace, ...] = ()
    """Outputs that may take over the bytes of a dying input."""
    views: tuple[View, ...] = ()
    """Outputs that show bytes of an input, or inputs that are pieces of an output."""
    ignores: tuple[int, ...] = ()
    """Positions of inputs whose bytes are never read (only their shape is)."""
    mutates: tuple[int, ...] = ()
    """Positions of inputs that the node writes; each must be a state."""
    workspaces: tuple[tuple[Choice, ...], ...] = ()
    """Scratch buffers of the node, each with one or several sizes to choose from."""
    flows: tuple[Flow, ...] = ()
    """Outputs that can be made in pieces, so that the node can run as one with others."""
    loads: tuple[int, ...] = ()
    """Positions of inputs that the node copies to scratch memory before it computes with
    them: elementwise producers can be applied on the way."""
    overlaps: tuple[Overlap, ...] = ()
    """Outputs that are made in order, so that they may overlap a dying input. Overlaps that follow
    from ``flows`` need not be declared."""


NO_EFFECTS = Effects()


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
    domain: str = ""
    """Operator set of ``op``; empty for ONNX's default one."""
    version: int = 0
    """Version of the operator set."""
    after: tuple[int, ...] = ()
    """Indices of nodes that must run before this one although it reads nothing of theirs."""


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
        self.warnings: list[str] = []
        """What an importer had to assume, one sentence each."""
        self.target = "nodes"
        """Name of the target that plans are for unless another one is asked for; importers set
        the one that runs their format."""
        self._variants: dict[str, Callable[[], Graph]] = {}
        self._made: dict[str, Graph] = {}
        self._refusal: PlannerError | None = None
        self._constants: dict[int, ConstantData] = {}
        self._core: _core.Graph | None = None

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
    ) -> int:
        """Declare a variable that keeps its bytes between runs, and return its index."""
        return self._declare(name, shape, dtype, "state", alignment, space)

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
        after: Iterable[int] = (),
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
        in_place, views, ignores, mutates, workspaces, flows, loads, overlaps
            The node's :class:`Effects`.
        after : iterable of int
            Indices of nodes that must run first.
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
        )
        self.append(
            op,
            tuple(inputs),
            results,
            name=name,
            effects=effects,
            attributes=attributes,
            domain=domain,
            version=version,
            after=tuple(after),
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
    ) -> Node:
        """Append a node whose values and effects are already made; importers call this."""
        self._core = None
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
        )
        self.nodes.append(node)
        return node

    def output(self, value: int) -> None:
        """Declare that the caller receives ``value``."""
        self._core = None
        self.outputs.append(value)

    def _declare(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        kind: ValueKind,
        alignment: int | None,
        space: str | None,
    ) -> int:
        self._core = None
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
        copy = Graph(self.name)
        copy.values, copy.warnings = list(self.values), list(self.warnings)
        copy.inputs, copy.outputs = list(self.inputs), list(self.outputs)
        copy._constants, copy._refusal = dict(self._constants), self._refusal
        rows = zip(self.nodes, after, strict=True)
        copy.nodes = [replace(node, after=tuple(nodes)) for node, nodes in rows]
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
                [(n.name, n.op, n.inputs, n.outputs, n.effects, n.after) for n in self.nodes],
                self.outputs,
            )
        return self._core

    def core_for(
        self,
        workspace: str,
        steps: Sequence[Sequence[int]] | None = None,
        overlapped: Iterable[int] = (),
        target: str = "numpy",
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
        """
        graph = self.for_target(target) if target in self._variants else self
        backend = backend_of(target)
        if workspace == "none" or backend is None:
            return graph.core
        named = set(overlapped)
        staged = [nodes for nodes in steps or () if nodes[-1] in named]
        return graph.core.with_workspaces(
            _rows(backend.workspaces(graph, steps)), _rows(backend.staging(graph, staged))
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
