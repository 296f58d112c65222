"""Frames of the walk: the graph itself, and graphs that replace a node."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, TypeAlias

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)

from arenaplan.base.errors import (
    InternalError,
    InvalidAttribute,
    InvalidOperand,
    UnsupportedDtype,
    UnsupportedSubgraph,
    fault,
)
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.onnx.budget import ImportBudget
from arenaplan.formats.onnx.external import Folder
from arenaplan.formats.onnx.file import domain_name, read_versions
from arenaplan.formats.onnx.node_order import label, ordered
from arenaplan.formats.onnx.op import OnnxOperand, Op, Scope, resolved_attributes
from arenaplan.formats.onnx.tensors import StoredTensor

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name and overload."""

MAX_CALLS = 64
"""Deepest nesting of function calls; names grow with every level."""


class ResultPlace(NamedTuple):
    """The destination of a body's results."""

    caller: Frame
    results: Sequence[str]
    """Names in the body."""
    targets: Sequence[str]
    """Names in the caller."""


@dataclass(slots=True)
class Frame:
    """A graph, branch or function body that is being walked."""

    nodes: Iterator[NodeProto]
    """The nodes still to come."""
    own: Scope
    """Meanings of names defined here; ``None`` for an omitted operand."""
    scope: Scope
    """The same, plus names from around a branch."""
    versions: Mapping[str, int]
    """Operator set versions."""
    infos: Mapping[str, ValueInfoProto]
    """Declared types by name."""
    prefix: str = ""
    """Prefix for node and value names in the graph."""
    names: dict[str, str] = field(default_factory=dict)
    """Names in the graph, if different from the model's."""
    bound: Mapping[str, AttributeProto] | None = None
    """In a function: the call's attributes."""
    function: FunctionKey | None = None
    """The function whose body this is."""
    place: ResultPlace | None = None
    """``None`` for the graph itself."""
    is_sorted: bool = False
    """Whether the nodes still to come were put in order."""

    def sort(self, first: NodeProto) -> None:
        """
        Put the nodes still to come in order; ``first`` turned out not to be the next.

        Raises
        ------
        UndefinedValue, GraphError
            If there is no order.
        """
        if self.is_sorted:
            raise InternalError(f"node {label(first)} comes too early after sorting")
        self.nodes = iter(ordered([first, *self.nodes], self.scope))
        self.is_sorted = True


def stored_tensors(graph: GraphProto, folder: Folder) -> dict[str, TensorProto]:
    """
    Return a graph's initializers by name.

    Raises
    ------
    GraphError
        If two initializers have the same name.
    UnsupportedDtype
        If an initializer is sparse.
    """
    stored = {proto.name: proto for proto in graph.initializer[:]}
    if len(stored) < len(graph.initializer):
        names = Counter(proto.name for proto in graph.initializer)
        ((name, _),) = names.most_common(1)
        raise fault("DuplicateName", f"two initializers have the name {quoted(name)}")
    for sparse in graph.sparse_initializer:
        # Check the sparse data first, because a bad path is more important to report.
        name = sparse.values.name
        StoredTensor(sparse.values, name, folder)
        StoredTensor(sparse.indices, name, folder)
        raise UnsupportedDtype(f"initializer {quoted(name)} is sparse")
    return stored


def stored_operand(tensor: StoredTensor) -> OnnxOperand:
    """Return an initializer as a constant."""
    return OnnxOperand(tensor.name, tensor.shape, tensor.dtype, tensor, not tensor.is_external)


def declared_types(*lists: Iterable[ValueInfoProto]) -> dict[str, ValueInfoProto]:
    """Return declarations by name."""
    return {info.name: info for infos in lists for info in infos}


def open_branch(
    frame: Frame, op: Op, prefix: str, folder: Folder
) -> tuple[Frame, Mapping[str, TensorProto]]:
    """
    Return the frame and initializers of the branch that an If node always takes.

    Raises
    ------
    UnsupportedSubgraph
        If the branch depends on data.
    """
    condition = op.input(0)
    if not condition.inline or prod(condition.shape) != 1:
        raise op.error(
            UnsupportedSubgraph,
            f"which branch is taken depends on {quoted(condition.name)}, "
            "which is not known before the model runs",
        )
    name = "then_branch" if op.array(0).any() else "else_branch"
    graph = op.attributes.get(name)
    if not isinstance(graph, GraphProto):
        raise op.error(InvalidAttribute, f"attribute {name!r} is missing")
    results = [info.name for info in graph.output]
    if len(results) < len(op.outputs):
        raise op.error(InvalidOperand, f"{name} has {len(results)} outputs")
    stored = stored_tensors(graph, folder)
    types = declared_types(graph.value_info, graph.output)
    return inner_frame(frame, graph, types, prefix, ResultPlace(frame, results, op.outputs)), stored


def inner_frame(
    frame: Frame,
    graph: GraphProto,
    types: Mapping[str, ValueInfoProto],
    prefix: str,
    place: ResultPlace,
) -> Frame:
    """Return the frame of a subgraph, which sees the names around its node."""
    own: Scope = {}
    outer = frame.scope
    scope = outer.new_child(own) if isinstance(outer, ChainMap) else ChainMap(own, outer)
    nodes = iter(graph.node)
    return Frame(nodes, own, scope, frame.versions, types, prefix, bound=frame.bound, place=place)


class _Function(NamedTuple):
    """Facts common to all calls of a function."""

    nodes: Sequence[NodeProto]
    inputs: Sequence[str]
    outputs: Sequence[str]
    defaults: Mapping[str, AttributeProto]
    versions: Mapping[str, int]
    infos: Mapping[str, ValueInfoProto]

    @classmethod
    def read(cls, key: FunctionKey, proto: FunctionProto) -> _Function:
        """Return a function in a model."""
        return cls(
            proto.node,
            proto.input[:],
            proto.output[:],
            {default.name: default for default in proto.attribute_proto},
            read_versions(proto.opset_import, f"function {_shown(key)}"),
            declared_types(getattr(proto, "value_info", ())),
        )

    @property
    def size(self) -> int:
        """A call's cost besides the nodes."""
        return 1 + len(self.inputs) + len(self.outputs) + len(self.defaults)


class Functions:
    """A model's local functions, and the functions being walked."""

    def __init__(self, protos: Iterable[FunctionProto]) -> None:
        self._functions: dict[FunctionKey, _Function] = {}
        self._active: dict[FunctionKey, None] = {}
        for proto in protos:
            key = (domain_name(proto.domain), proto.name, getattr(proto, "overload", ""))
            if key in self._functions:
                raise fault("DuplicateName", f"two functions have the name {_shown(key)}")
            self._functions[key] = _Function.read(key, proto)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._functions)

    def define(self, op: Op, body: FunctionProto) -> FunctionKey:
        """Add the function that defines an operator; return the function's key."""
        key = (op.domain, op.type, f"of the standard {len(self._functions)}")
        self._functions[key] = _Function.read(key, body)
        return key

    def key(self, node: NodeProto, domain: str) -> FunctionKey | None:
        """Return the key of the function that a node calls, if any."""
        key = (domain, node.op_type, getattr(node, "overload", ""))
        return key if key in self._functions else None

    def open(
        self,
        key: FunctionKey,
        frame: Frame,
        node: NodeProto,
        inputs: Sequence[OnnxOperand | None],
        prefix: str,
        budget: ImportBudget,
    ) -> Frame:
        """
        Return a call's frame.

        Raises
        ------
        ModelError
            If the function is already being walked.
        """
        if key in self._active:
            calls = listed("::".join(filter(None, active)) for active in self._active)
            raise fault("FunctionCycle", f"function {_shown(key)} calls itself: {calls}")
        if len(self._active) >= MAX_CALLS:
            raise fault("NestingTooDeep", f"node {label(node)}: calls are nested {MAX_CALLS} deep")
        self._active[key] = None
        called = self._functions[key]
        outputs = node.output[:]
        if len(inputs) > len(called.inputs) or len(outputs) > len(called.outputs):
            raise InvalidOperand(
                f"node {label(node)} has {len(inputs)} inputs and {len(outputs)} outputs; "
                f"function {_shown(key)} has {len(called.inputs)} and {len(called.outputs)}"
            )
        budget.expand(node, called.size)
        own: Scope = dict.fromkeys(called.inputs)
        own.update(zip(called.inputs, inputs, strict=False))
        return Frame(
            iter(called.nodes),
            own,
            own,
            called.versions,
            called.infos,
            prefix,
            bound={**called.defaults, **dict(resolved_attributes(node.attribute, frame.bound))},
            function=key,
            place=ResultPlace(frame, called.outputs, outputs),
        )

    @property
    def depth(self) -> int:
        """Number of nested calls being walked."""
        return len(self._active)

    def unwind(self, depth: int) -> None:
        """Forget the latest calls, which were given up."""
        for key in list(self._active)[depth:]:
            del self._active[key]

    def close(self, frame: Frame) -> None:
        """Note that a call is over."""
        if frame.function is not None:
            del self._active[frame.function]


def _shown(key: FunctionKey) -> str:
    """Return a function's name for a message."""
    return quoted("::".join(filter(None, key)))
