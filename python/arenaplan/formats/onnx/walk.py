"""
Walks a model and builds a graph: one pass, in execution order.

Each node is read once, and the results get shapes. A node with only constant operands disappears
into constant results; a function, or a branch that is always taken, is walked inline; every other
node becomes a node in the graph. The walk is not recursive: an inlined graph is a
:class:`~arenaplan.formats.onnx.frames.Frame` on a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from arenaplan.base.errors import (
    InvalidOperand,
    ShapeMismatch,
    UndefinedValue,
    UnknownShape,
    UnsupportedDtype,
    UnsupportedModel,
    UnsupportedSubgraph,
    fault,
)
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.onnx.behind import shapes_behind
from arenaplan.formats.onnx.budget import ImportBudget
from arenaplan.formats.onnx.conversions import with_narrow_moves
from arenaplan.formats.onnx.dims import Declared, Dim, Dims, declared
from arenaplan.formats.onnx.evaluate import evaluator_of
from arenaplan.formats.onnx.external import Folder
from arenaplan.formats.onnx.file import domain_name, read_versions, version_of
from arenaplan.formats.onnx.frames import (
    Frame,
    FunctionKey,
    Functions,
    declared_types,
    open_branch,
    stored_operand,
    stored_tensors,
)
from arenaplan.formats.onnx.function_bodies import INLINED, body_of
from arenaplan.formats.onnx.integers import let_repeat, with_real_sums
from arenaplan.formats.onnx.joined import Joined, nested, note
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.node_order import BRANCHING, MAX_NESTING, captured, label, subgraphs
from arenaplan.formats.onnx.onnx_work import cost_of, is_pure
from arenaplan.formats.onnx.op import (
    Absent,
    DataDependent,
    Folded,
    Items,
    OnnxOperand,
    Op,
    Pending,
    Scope,
    decode_attributes,
    resolved_attributes,
)
from arenaplan.formats.onnx.operators import node_effects
from arenaplan.formats.onnx.origins import node_origin
from arenaplan.formats.onnx.own_operators import OWN
from arenaplan.formats.onnx.remembered import facts_of
from arenaplan.formats.onnx.rules import rule_of
from arenaplan.formats.onnx.rules.layout_rules import constant_value, shape_range
from arenaplan.formats.onnx.rules.schema_rules import PartialResult, infer
from arenaplan.formats.onnx.schemas import check_node
from arenaplan.formats.onnx.tensors import StoredTensor
from arenaplan.graph import Graph, View
from arenaplan.graph.ops.own_ops import undeclared
from arenaplan.graph.sizes import Bind, checked_bytes

_WHOLE = (View(0, 0),)

FLOWS = frozenset({"If", "Loop", "Scan"})
"""Default-domain operators that become nodes with bodies."""

SEQUENCES = frozenset(
    {
        *("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement"),
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"),
        *("SequenceLength", "SequenceMap", "SplitToSequence"),
    }
)
"""Default-domain operators on sequences and optional values, which do not become nodes."""
_SPECIAL = FLOWS | SEQUENCES
_FEW = 64
"""Most numbers in a result that is looked up among earlier results."""
_UNLIKE = BRANCHING | {"Constant"}
"""Operators whose attributes hold graphs or data."""

EmitFlow: TypeAlias = "Callable[[OnnxWalk, Frame, Op, Sequence[str]], list[OnnxOperand | None]]"
"""Adds a branch or loop to a walk's graph, and returns the results."""


class Common(NamedTuple):
    """Facts shared by the walks over a model and the model's subgraphs."""

    folder: Folder
    functions: Functions
    budget: ImportBudget
    dims: Dims
    flows: EmitFlow
    tensors: dict[str, StoredTensor]


class OnnxWalk:
    """
    Imports a model.

    Parameters
    ----------
    model : ModelProto
        The model, which is not changed.
    name : str
        The graph's name.
    folder : Folder
        Folder for external data.
    bind : mapping or None
        Numbers for symbolic dimensions.
    tensors : dict of str to StoredTensor
        Initializers read by earlier walks over the same model; extended by this walk.
    flows : callable
        Adds branches and loops to the graph.
    """

    def __init__(
        self,
        model: ModelProto,
        name: str,
        folder: Folder,
        bind: Bind | None,
        tensors: dict[str, StoredTensor],
        flows: EmitFlow,
    ) -> None:
        graph = model.graph
        functions = Functions(model.functions)
        scope: Scope = {**stored_tensors(graph, folder)}
        infos = _input_types(graph, scope)
        dims = Dims(bind, graph, infos)
        common = Common(folder, functions, ImportBudget(model), dims, flows, tensors)
        self._begin(Graph(name), graph, common)
        versions = read_versions(model.opset_import, "the model")
        if not versions and model.ir_version < 3:
            versions = {"": 1}
        self._add_inputs(scope, infos)
        types = declared_types(graph.value_info, graph.output)
        nodes = with_narrow_moves(graph, versions.get("", 1))
        nodes, self._twice = with_real_sums(nodes, graph, versions, scope)
        self._main = Frame(iter(nodes), scope, scope, versions, types)

    def _begin(self, graph: Graph, proto: GraphProto, common: Common) -> None:
        """Prepare to build the graph for a graph in the model."""
        self.graph = graph
        self.common = common
        self.scratch: set[int] = set()
        """Values used only inside a node."""
        self._proto = proto
        self._folder, self._functions = common.folder, common.functions
        self._budget, self._dims = common.budget, common.dims
        self.decider: OnnxOperand | None = None
        """Value whose data decides the latest node's sizes, if any."""
        self.depth = 0
        """Number of bodies around the walked body."""
        self._is_inside = False
        self._has_items = False
        self._taken: dict[str, int] = {}
        self._joined: Joined = {}
        self._numbers: dict[tuple[object, ...], list[OnnxOperand | None]] = {}
        """Positions and lengths computed by functions: all layers in a model ask for the same."""
        self._repeated: set[int | None] = set()
        """Values of nodes that may run again for each reader."""
        self._behind: Mapping[str, Declared] | None = None

    def run(self) -> Graph:
        """Return the whole model's graph."""
        self._visit_all()
        self._add_outputs()
        let_repeat(self.graph, self._twice)
        self._warn_of_unread()
        return self.graph

    def _visit_all(self) -> None:
        """Take in every node."""
        self.visit_frame(self._main)

    def visit_frame(self, first: Frame) -> None:
        """Visit every node in a frame, and in inlined functions and branches."""
        stack = [first]
        while stack:
            frame = stack[-1]
            node = next(frame.nodes, None)
            if node is None:
                self._leave(stack.pop())
                continue
            inner = self._visit(frame, node)
            if inner is not None:
                stack.append(inner)

    # -- the graph's own inputs and outputs --------------------------------------------

    def _add_inputs(self, scope: Scope, infos: Mapping[str, Declared]) -> None:
        """Declare the values that the caller supplies."""
        for name, known in infos.items():
            shape, dtype = self._dims.of_input(name, known)
            checked_bytes(name, shape, dtype)
            content = self._dims.content(name, shape, dtype)
            if content is not None:
                scope[name] = stored_operand(StoredTensor(content, name, self._folder))
                continue
            index = self.graph.input(name, shape, dtype)
            scope[name] = OnnxOperand(name, shape, dtype, index=index)

    def _add_outputs(self) -> None:
        """Declare the values that the caller receives, each under its own name."""
        seen = set()
        for info in self._proto.output:
            name = info.name
            if name in seen:
                raise fault("DuplicateName", f"two graph outputs have the name {quoted(name)}")
            seen.add(name)
            self._add_output(name)

    def _add_output(self, name: str) -> None:
        """Declare a value that the caller receives, under its own name."""
        operand = self.lookup(self._main.scope, name)
        if operand is None:
            raise UndefinedValue(f"graph output {quoted(name)} is never produced")
        if isinstance(operand, Absent):
            raise UnsupportedDtype(f"graph output {quoted(name)} is an optional value without one")
        if isinstance(operand, Items):
            # A sequence leaves the graph as separate elements.
            for number, item in enumerate(operand.items):
                copy = self._renamed(item, self.unique(f"{name}[{number}]"))
                self.graph.output(self.index_of(copy))
            return
        if operand.name != name:
            operand = self._renamed(operand, name)
        self.graph.output(self.index_of(operand))

    def _renamed(self, operand: OnnxOperand, name: str) -> OnnxOperand:
        """Return a renamed copy of a value that an inlined graph only passes on."""
        shape, dtype = operand.shape, operand.dtype
        if operand.source is not None:
            return OnnxOperand(name, shape, dtype, operand.source, operand.inline)
        version = self._main.versions.get("", 1)
        op = Op("", "Identity", "", version, [operand], [name], {}, self._budget)
        (copy,) = self._emit(op, [(shape, dtype)], [name])
        assert copy is not None
        return copy

    def _warn_of_unread(self) -> None:
        """Warn about values without readers."""
        graph = self.graph
        read = {index for node in graph.nodes for index in node.inputs}
        read.update(graph.outputs)
        read.update(self.scratch)
        names = [v.name for v in graph.values if v.kind == "activation" and v.index not in read]
        if names:
            graph.warnings.append(f"nothing reads {listed(names)}")

    # -- nodes -------------------------------------------------------------------------

    def _visit(self, frame: Frame, node: NodeProto) -> Frame | None:
        """Visit a node; return the frame to walk inline, if any."""
        kind, domain = node.op_type, node.domain
        if domain:
            domain = domain_name(domain)
        scope = frame.scope
        names = node.input[:]
        try:
            inputs = [scope[name] if name else None for name in names]
        except KeyError:
            frame.sort(node)
            return None
        for position, known in enumerate(inputs):
            if type(known) is TensorProto:
                inputs[position] = self.lookup(scope, names[position])
        if frame is not self._main or self._is_inside:
            self._budget.expand(node)
        if self._functions:
            key = self._functions.key(node, domain)
            if key is not None:
                return self._call(key, frame, node, inputs)
        version = frame.versions.get(domain)
        if version is None:
            version = version_of(domain, frame.versions, f"node {label(node)}")
        name = node.name
        outputs = node.output[:]
        if not outputs:
            raise InvalidOperand(f"node {label(node)} ({kind}) has no outputs")
        facts, attributes = None, None
        if frame.bound is None and kind not in _UNLIKE:
            facts = facts_of(kind, domain, version, node.attribute[:], inputs, outputs)
            attributes = None if facts is None else facts.attributes
        if attributes is None:
            if not domain:
                check_node(node, version)
            owner = frame.prefix + (name or outputs[0])
            attributes = decode_attributes(node.attribute, owner, self._folder, frame.bound)
            own = OWN.get((domain, kind))
            if own is not None:
                attributes = own.checked(label(node), inputs, attributes)
            if facts is not None and not facts.remember(attributes):
                facts = None
        name = name and frame.prefix + name
        op = Op(name, kind, domain, version, inputs, outputs, attributes, self._budget)
        op.facts = facts
        op.origin = node_origin(node)
        if domain or kind in BRANCHING:
            if not domain and any(outer not in scope for outer in captured(node)):
                frame.sort(node)
                return None
            if kind == "If" and not domain and op.input(0).inline:
                branch, stored = open_branch(frame, op, self.prefix(frame, node), self._folder)
                for inner, proto in stored.items():
                    (shown,) = self.names_in(branch, [inner])
                    tensor = StoredTensor(proto, shown, self._folder)
                    branch.own[inner] = stored_operand(tensor)
                return self._named(branch)
            is_known = kind in INLINED.get(domain, ()) or (kind in BRANCHING and not domain)
            if subgraphs(node) and not is_known:
                raise op.error(UnsupportedSubgraph, "it runs a subgraph")
        made = self._results(frame, node, op)
        if isinstance(made, Frame):
            return made
        for output, operand in zip(outputs, made, strict=True):
            if output:
                self._define(frame, output, operand, node)
        return None

    def _results(
        self, frame: Frame, node: NodeProto, op: Op
    ) -> Sequence[OnnxOperand | None] | Frame:
        """
        Return a node's results; the node is added to the graph unless the results are constant.

        For an operator that is replaced by a function, return the frame of the function.
        """
        names = op.outputs if frame.place is None else self.names_in(frame, op.outputs)
        self.decider = None
        try:
            if op.type in INLINED.get(op.domain, ()):
                given = resolved_attributes(node.attribute, frame.bound)
                body = body_of(op, given, frame.versions)
                if body is not None:
                    made = self._functions.define(op, body)
                    return self._call(made, frame, node, list(op.inputs))
            if op.type in _SPECIAL and not op.domain:
                self._has_items = self._has_items or op.type in SEQUENCES
                return self.common.flows(self, frame, op, names)
        except DataDependent as dependent:
            self.decider = dependent.operand
            error = dependent.error
            if error is None:
                text = "it depends on data that is only known when the model runs"
                error = op.error(UnknownShape, text)
            raise error from None
        if self._has_items and any(isinstance(known, (Items, Absent)) for known in op.inputs):
            if op.type == "Identity":
                return [op.input(0)]
            raise op.error(UnsupportedDtype, "it reads a sequence or optional value")
        results = self._infer(frame, node, op)
        operands = self._fold(op, results, names)
        if operands is not None:
            return operands
        key = None if frame.place is None else _alike(op, results)
        if key is None:
            return self._emit(op, results, names)
        if key not in self._numbers:
            self._numbers[key] = self._emit(op, results, names)
        return self._numbers[key]

    def _call(
        self, key: FunctionKey, frame: Frame, node: NodeProto, inputs: list[OnnxOperand | None]
    ) -> Frame:
        """Return the frame for a function call."""
        prefix = self.prefix(frame, node)
        return self._named(self._functions.open(key, frame, node, inputs, prefix, self._budget))

    def lookup(self, scope: Scope, name: str) -> OnnxOperand | None:
        """Return a name's meaning, if any."""
        known = scope.get(name)
        if type(known) is TensorProto:
            # Only the graph itself has stored tensors; all other scopes see them through this
            # scope.
            tensor = self.common.tensors.get(name)
            if tensor is None:
                tensor = self.common.tensors[name] = StoredTensor(known, name, self._folder)
            known = self._main.own[name] = stored_operand(tensor)
        return known

    def _define(
        self, frame: Frame, name: str, operand: OnnxOperand | None, node: NodeProto | None
    ) -> None:
        """Let a name mean a result."""
        own = frame.own
        if name in own:
            maker = "a branch or function" if node is None else f"node {label(node)}"
            raise fault(
                "DuplicateProducer",
                f"value {quoted(name)}, an output of {maker}, is an input, an initializer "
                "or another output, too",
            )
        own[name] = operand

    def _leave(self, frame: Frame) -> None:
        """Pass a body's results to the caller."""
        if frame.place is None:
            return
        self._functions.close(frame)
        caller, results, targets = frame.place
        for inner, target in zip(results, targets, strict=False):
            if not target:
                continue
            operand = self.lookup(frame.scope, inner)
            if operand is None:
                raise UndefinedValue(
                    f"{quoted(inner)}, a result of a function or branch that makes "
                    f"{quoted(target)}, is never produced"
                )
            self._define(caller, target, operand, None)

    def _emit(
        self, op: Op, results: Sequence[Result], names: Sequence[str]
    ) -> list[OnnxOperand | None]:
        """Add a node to the graph."""
        graph = self.graph
        flat, facts = op.inputs, op.facts
        if op.type == "Concat" and not op.domain:
            op.inputs = nested(op, results, self._joined)
        if facts is not None and (facts.results != results or op.inputs is not flat):
            facts = None
        effects, cost = (None, 0) if facts is None else (facts.effects, facts.cost)
        is_known = effects is not None
        operands: list[OnnxOperand | None] = []
        for name, (shape, dtype) in zip(names, results, strict=False):
            if name:
                if not is_known:
                    checked_bytes(name, shape, dtype)
                index = graph.value(name, shape, dtype)
                operands.append(OnnxOperand(name, shape, dtype, None, False, index))
            else:
                operands.append(None)
        inputs: list[int | None] = []
        for known in op.inputs:
            if known is None:
                inputs.append(None)
            else:
                # A constant becomes part of the graph on first use.
                inputs.append(self.index_of(known) if known.index is None else known.index)
        if effects is None:
            effects = node_effects(op, operands)
            effects = effects._replace(pure=effects.pure or is_pure(op))
            cost = cost_of(op, operands)
            if facts is not None and not op.looked:
                facts.cost, facts.effects = cost, effects
        shows_repeated = effects.views == _WHOLE and inputs[0] in self._repeated
        if effects.repeats or (shows_repeated and not any(operands[1:])):
            # A view of a recomputed value is recomputed with the value.
            effects = effects._replace(repeats=True)
            self._repeated.update(known.index for known in operands if known is not None)
        appended = graph.append(
            op.type,
            tuple(inputs),
            tuple([None if known is None else known.index for known in operands]),
            name=op.name,
            effects=effects,
            attributes=op.attributes if is_known else _plain(op),
            domain=op.domain,
            version=op.version,
            cost=cost,
        )
        appended.origin = op.origin
        if op.type == "Concat" and not op.domain:
            note(op, flat, operands[0], self._joined)
        return operands

    def apply(
        self, kind: str, inputs: Sequence[OnnxOperand], name: str, **attributes: object
    ) -> OnnxOperand:
        """Return the result of an operator with a rule that is not in the model."""
        if any(isinstance(known, Pending) for known in inputs):
            return Pending(name)
        op = Op("", kind, "", 13, list(inputs), [name], attributes, self._budget)
        rule = rule_of(op)
        assert rule is not None, "the kinds that are applied have rules"
        results = rule(op)
        (made,) = self._fold(op, results, [name]) or self._emit(op, results, [name])
        assert made is not None
        return made

    def stacked(self, rows: Sequence[OnnxOperand], name: str, axis: int) -> OnnxOperand:
        """Return rows that are joined along a new axis."""
        where = OnnxOperand(f"{name}.axis", (1,), "int64", np.array([axis]), True)
        parts = [
            self.apply("Unsqueeze", [row, where], self.unique(f"{name}.{number}"))
            for number, row in enumerate(rows)
        ]
        return self.apply("Concat", parts, name, axis=axis)

    @contextmanager
    def deeper(self, op: Op) -> Iterator[None]:
        """
        Count nested bodies while a body is walked.

        Raises
        ------
        UnsupportedModel
            If bodies are nested too deeply.
        """
        if self.depth >= MAX_NESTING:
            raise op.error(
                UnsupportedModel, f"bodies are nested {MAX_NESTING} deep", kind="NestingTooDeep"
            )
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def keep(self, operands: Sequence[OnnxOperand]) -> None:
        """Note that nodes which are not in the graph yet will read some values."""

    def index_of(self, operand: OnnxOperand) -> int:
        """Return an operand's value in the graph."""
        index = operand.index
        if index is None:
            index = operand.index = self.graph.constant(
                operand.name, operand.shape, operand.dtype, operand
            )
        return index

    # -- shapes ------------------------------------------------------------------------

    def _infer(self, frame: Frame, node: NodeProto, op: Op) -> Sequence[Result]:
        """Return shapes and types of all results, inferred or declared."""
        facts = op.facts
        complete: Sequence[Result] = () if facts is None else facts.results
        if not complete:
            rule = rule_of(op)
            try:
                complete = () if rule is None else rule(op)
            except DataDependent as dependent:
                self.decider = dependent.operand
                complete = ()
            if facts is not None and not op.looked:
                facts.results = complete
        found: Sequence[PartialResult] = complete
        if not complete:
            found = infer(op, resolved_attributes(node.attribute, frame.bound), frame.versions)
        if len(found) < len(op.outputs):
            raise op.error(
                InvalidOperand, f"it has {len(op.outputs)} outputs instead of {len(found)}"
            )
        if complete and self._is_as_declared(frame, op.outputs, complete):
            return complete
        pairs = zip(op.outputs, found, strict=False)
        results = tuple([self._complete(frame, op, *pair) for pair in pairs])
        return complete if results == complete else results

    def _is_as_declared(
        self, frame: Frame, names: Sequence[str], results: Sequence[Result]
    ) -> bool:
        """Whether some known results agree with all declarations."""
        infos = frame.infos
        for name, result in zip(names, results, strict=False):
            info = infos.get(name)
            if info is not None:
                shape, dtype = result
                stated = declared(info)
                is_same = stated.dtype in (None, dtype) and self._resolved(stated) in (None, shape)
                if not is_same or self._bounded(name, shape) != shape:
                    return False
        return True

    def _complete(self, frame: Frame, op: Op, name: str, found: PartialResult) -> Result:
        """Return a result from inferred and declared facts."""
        if not name:
            return (), "bool"
        shape, dtype = found
        info = frame.infos.get(name)
        stated = None if info is None else declared(info)
        if (shape is None or None in shape) and frame is self._main and not self._is_inside:
            if self._behind is None:
                self._behind = shapes_behind(self._proto)
            if stated is None or stated.dims is None:
                stated = self._behind.get(name, stated)
        if stated is not None:
            shape, dtype = self._merged(op, name, found, stated)
        shape = self._bounded(name, shape)
        if shape is None or dtype is None:
            raise op.error(
                UnknownShape,
                f"the shape of output {quoted(name)} is neither declared nor follows from "
                "the shapes of the inputs" + undeclared(op.domain, "shapes"),
            )
        what = f"output {quoted(name)} of {op.label}"
        hint = "it depends on data that is only known when the model runs"
        return self._dims.complete(what, shape, hint), dtype

    def _merged(
        self, op: Op, name: str, found: PartialResult, stated: Declared
    ) -> tuple[tuple[Dim, ...] | None, str | None]:
        """Merge the known facts about a result; inferred facts are more reliable."""
        shape, dtype = found
        if dtype is not None and stated.dtype not in (None, dtype):
            raise op.error(
                ShapeMismatch,
                f"output {quoted(name)} is declared to hold {stated.dtype}, not {dtype}",
            )
        dtype = dtype or stated.dtype
        dims = self._resolved(stated)
        if shape is None or dims is None:
            return (dims if shape is None else shape), dtype
        has_rank = len(dims) == len(shape)
        if not has_rank and None in shape:
            raise op.error(
                ShapeMismatch,
                f"output {quoted(name)} is declared with {len(dims)} dimensions, not {len(shape)}",
            )
        pairs = zip(dims, shape, strict=False)
        if not has_rank or any(isinstance(a, int) and b not in (None, a) for a, b in pairs):
            self.graph.warnings.append(
                f"value {quoted(name)} is declared with shape {dims}; its shape is {shape}"
            )
            named = zip(stated.dims or (), dims, shape, strict=False)
            self.graph.contradicts |= any(type(n) is str and a not in (n, b) for n, a, b in named)
        if not has_rank:
            return shape, dtype
        return tuple(d if s is None else s for s, d in zip(shape, dims, strict=True)), dtype

    def _bounded(self, name: str, dims: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
        """Return dimensions with the caller's upper bounds."""
        return self._dims.most(name, dims)

    def _resolved(self, stated: Declared) -> tuple[Dim, ...] | None:
        """Return declared dimensions with the caller's numbers."""
        return self._dims.resolved(stated.dims)

    # -- constants -----------------------------------------------------------------------

    def _fold(
        self, op: Op, results: Sequence[Result], names: Sequence[str]
    ) -> list[OnnxOperand | None] | None:
        """Return the results as constants, if constant."""
        if op.domain:
            return None
        if op.type in ("Shape", "Size"):
            dims = op.input(0).shape
            array = np.array(
                prod(dims) if op.type == "Size" else [dims[i] for i in shape_range(op)], np.int64
            )
            return [OnnxOperand(name, array.shape, "int64", array, True) for name in names]
        inline = True
        for known in op.inputs:
            if known is not None:
                if known.source is None:
                    return None
                inline = inline and known.inline
        if op.type == "Constant":
            value = constant_value(op)
            inline = not (isinstance(value, StoredTensor) and value.is_external)
            return [
                OnnxOperand(name, value.shape, str(value.dtype), value, inline) for name in names
            ]
        evaluate = evaluator_of(op, results)
        # The old way to broadcast, aligned by attributes, is not worth a second evaluator.
        if evaluate is None or "broadcast" in op.attributes:
            return None
        for attribute in op.attributes.values():
            if isinstance(attribute, StoredTensor) and attribute.is_external:
                inline = False
        operands: list[OnnxOperand | None] = []
        for position, name in enumerate(names):
            if name:
                shape, dtype = results[position]
                self._budget.fold(name, checked_bytes(name, shape, dtype))
                source = Folded(op, evaluate, results, position)
                operands.append(OnnxOperand(name, shape, dtype, source, inline))
            else:
                operands.append(None)
        return operands

    # -- names ---------------------------------------------------------------------------

    def prefix(self, frame: Frame, node: NodeProto) -> str:
        """Return the name prefix for a node's inlined graph."""
        name = node.name or next(filter(None, node.output), node.op_type)
        return f"{frame.prefix}{name[:64]}/"

    def _named(self, frame: Frame) -> Frame:
        """Give a body's results the caller's names."""
        assert frame.place is not None
        caller, results, targets = frame.place
        for inner, target in zip(results, self.names_in(caller, targets), strict=False):
            if target:
                frame.names[inner] = target
        return frame

    def names_in(self, frame: Frame, names: Sequence[str]) -> Sequence[str]:
        """Return the graph names of values that ``frame`` produces."""
        if frame.place is None:
            return names
        for name in names:
            if name and name not in frame.names:
                frame.names[name] = self.unique(frame.prefix + name)
        return [frame.names[name] if name else "" for name in names]

    def unique(self, name: str) -> str:
        """Return a name that no other value has."""
        if not self._taken:
            self._taken = dict.fromkeys(self._main.scope, 0)
            for node in self._proto.node:
                self._taken.update(dict.fromkeys(node.output, 0))
        free = name
        while free in self._taken:
            self._taken[name] += 1
            free = f"{name}_{self._taken[name]}"
        self._taken[free] = 0
        return free


def _input_types(graph: GraphProto, stored: Mapping[str, object]) -> dict[str, Declared]:
    """Return the declared types of the values that the caller supplies."""
    infos = {}
    for info in graph.input:
        name = info.name
        # Old models also list initializers as inputs.
        if name not in stored:
            if name in infos:
                raise fault("DuplicateName", f"two graph inputs have the name {quoted(name)}")
            if not name:
                raise fault("InvalidName", "a graph input has no name")
            infos[name] = declared(info)
    return infos


def _plain(op: Op) -> Mapping[str, Any]:
    """Return attributes with tensors as arrays."""
    plain = op.attributes
    for name, value in op.attributes.items():
        if isinstance(value, StoredTensor):
            if value.is_external:
                raise op.error(
                    UnsupportedModel, f"attribute {quoted(name)} is stored in another file"
                )
            plain = {**plain, name: value.load()}
    return plain


def _alike(op: Op, results: Sequence[Result]) -> tuple[object, ...] | None:
    """Return a key for nodes that make the same few whole numbers; ``None`` for other nodes."""
    if op.domain or len(results) != 1 or op.type == "Multinomial":
        return None
    ((shape, dtype),) = results
    if dtype not in ("int32", "int64") or prod(shape) > _FEW:
        return None
    key: list[object] = [op.type, op.version, shape, dtype, repr(sorted(op.attributes.items()))]
    for known in op.inputs:
        if known is None or known.source is None:
            key.append(None if known is None else known.index)
        elif not known.inline or prod(known.shape) > _FEW:
            return None
        else:
            key.append(known().tobytes())
    return tuple(key)
