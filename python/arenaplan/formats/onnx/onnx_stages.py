"""
Walks a model with data-dependent sizes, as far as sizes are known.

A node with a data-dependent result size waits, and so do all nodes after it. The graph has all
other nodes, and :class:`~arenaplan.formats.partial.Partial` says which values must become known.
With these values, a new walk goes further, and its graph has the same nodes and more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from onnx import ModelProto, NodeProto

from arenaplan.base.errors import (
    PlannerError,
    SizeError,
    UnboundDim,
    UnknownShape,
    UnsupportedSubgraph,
)
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.dims import Declared, Dim, declared
from arenaplan.formats.onnx.evaluate import EVALUATORS
from arenaplan.formats.onnx.external import Folder
from arenaplan.formats.onnx.file import Source, read_model
from arenaplan.formats.onnx.frames import Frame
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.node_order import captured, subgraphs
from arenaplan.formats.onnx.onnx_flow import emit_flow
from arenaplan.formats.onnx.op import Items, OnnxOperand, Op, Pending, Scope
from arenaplan.formats.onnx.rules import rule_of
from arenaplan.formats.onnx.rules.schema_rules import has_schema, infer
from arenaplan.formats.onnx.tensors import StoredTensor
from arenaplan.formats.onnx.walk import FLOWS, OnnxWalk
from arenaplan.formats.partial import (
    DECIDING,
    NOTHING_KNOWN,
    Decision,
    Known,
    Partial,
    PartialWith,
    Wanted,
)
from arenaplan.graph.sizes import Bind

_MOST_NUMBERS = 4096
"""Largest value, in elements, that can give shapes, axes or sizes."""


def open_partial(source: Source, bind: Bind | None = None) -> PartialWith:
    """
    Read an ONNX model; return a function that builds the graph as far as sizes are known.

    Raises
    ------
    PlannerError, OSError
        As for :func:`~arenaplan.formats.onnx.load_onnx`, here and in the returned function.
    """
    model, path, folder = read_model(source)
    name = model.graph.name or (path.stem if path is not None else "")
    tensors: dict[str, StoredTensor] = {}

    def partial_with(known: Known) -> Partial:
        walk = StagedWalk(model, name, folder, bind, tensors, known)
        walk.run()
        walk.graph.target = "numpy"
        return walk.partial

    return partial_with


class StagedWalk(OnnxWalk):
    """
    A walk that passes over nodes whose sizes are not known yet.

    Parameters
    ----------
    known : Known
        Facts that a run has found out.
    """

    def __init__(
        self,
        model: ModelProto,
        name: str,
        folder: Folder,
        bind: Bind | None,
        tensors: dict[str, StoredTensor],
        known: Known,
    ) -> None:
        self._known = known
        super().__init__(model, name, folder, bind, tensors, emit_flow)
        self.partial = Partial(self.graph, known.data)

    def _add_inputs(self, scope: Scope, infos: Mapping[str, Declared]) -> None:
        super()._add_inputs(scope, infos)
        for name in infos:
            known = scope[name]
            assert isinstance(known, OnnxOperand)
            self._told(known)

    def keep(self, operands: Sequence[OnnxOperand]) -> None:
        """Note that nodes which are not in the graph yet will read some values."""
        values = self.graph.values
        for known in operands:
            if isinstance(known, Items):
                self.keep(known.items)
            elif known.index is not None:
                self.partial.awaited.add(values[known.index].name)

    def _results(
        self, frame: Frame, node: NodeProto, op: Op
    ) -> Sequence[OnnxOperand | None] | Frame:
        names = op.outputs if frame.place is None else self.names_in(frame, op.outputs)
        operands = [known for known in op.inputs if known is not None]
        if subgraphs(node):
            around = [self.lookup(frame.scope, name) for name in captured(node)]
            operands += [known for known in around if known is not None]
        if not any(isinstance(known, Pending) for known in operands):
            try:
                if self._is_undecided(op, names):
                    self._decide(op, names)
                else:
                    made = super()._results(frame, node, op)
                    if isinstance(made, Frame):
                        return made
                    if self._known != NOTHING_KNOWN:
                        self._check_bounds(frame, op, made)
                    return [self._told(each) for each in made]
            except (UnboundDim, UnknownShape, UnsupportedSubgraph) as error:
                self._want(op, error)
        self.keep([known for known in operands if not isinstance(known, Pending)])
        self.partial.waiting.append(op.label)
        return [Pending(name) if name else None for name in names]

    def _told(self, operand: OnnxOperand | None) -> OnnxOperand | None:
        """Return a value with data, if the data is known."""
        if operand is not None and operand.source is None and operand.index is not None:
            operand.source = self._known.data.get(operand.name)
            operand.inline = operand.source is not None
        return operand

    def _is_undecided(self, op: Op, names: Sequence[str]) -> bool:
        """Whether a node decides sizes that are not known."""
        if op.domain or op.type not in DECIDING:
            return False
        if op.type in EVALUATORS and all(known is None or known.inline for known in op.inputs):
            return False  # The node is folded.
        return not all(name in self._known.shapes for name in names if name)

    def _decide(self, op: Op, names: Sequence[str]) -> None:
        """Record that a node has to run before its sizes are known."""
        inputs: list[str | None] = []
        constants: dict[int, Callable[[], np.ndarray]] = {}
        for at, known in enumerate(op.inputs):
            if known is not None and known.source is not None:
                constants[at] = known
                inputs.append(None)
            else:
                inputs.append(None if known is None else known.name)
        self.partial.decisions.append(
            Decision(
                op.label,
                op.type,
                op.version,
                op.attributes,
                tuple(inputs),
                constants,
                tuple(names),
            )
        )

    def _check_bounds(self, frame: Frame, op: Op, made: Sequence[OnnxOperand | None]) -> None:
        """Refuse results that are larger than the caller said."""
        for name, known in zip(op.outputs, made, strict=False):
            if known is None or isinstance(known, (Items, Pending)):
                continue
            info = frame.infos.get(name)
            stated = (None if info is None else declared(info).dims) or (None,) * len(known.shape)
            symbols = tuple(dim if isinstance(dim, str) else None for dim in stated)
            bounds = self._dims.most(name, self._dims.resolved(symbols)) or ()
            if any(
                isinstance(most, int) and dim > most
                for dim, most in zip(known.shape, bounds, strict=False)
            ):
                shown = tuple("?" if most is None else most for most in bounds)
                raise op.error(
                    SizeError,
                    f"{quoted(name)} has shape {known.shape}, and is bound to at most {shown}",
                    kind="ShapeNotPlanned",
                )

    def _want(self, op: Op, error: PlannerError) -> None:
        """
        Note which data a node waits for.

        Raises
        ------
        PlannerError
            If no data would help: ``error``.
        """
        deciders = [] if self.decider is None else [self.decider]
        # For an unknown operator, data may not help.
        is_known = rule_of(op) is not None or has_schema(op)
        if self.decider is None and op.type not in FLOWS and is_known:
            deciders = _numbers(op)
        values = self.graph.values
        found = [
            known
            for known in deciders
            if known.index is not None
            and known.source is None
            and values[known.index].name == known.name
        ]
        if not found:
            raise error
        self.partial.wanted.extend(Wanted(known.name, op.label) for known in found)
        self.keep(found)

    def _infer(self, frame: Frame, node: NodeProto, op: Op) -> Sequence[Result]:
        if op.domain or op.type not in DECIDING:
            return super()._infer(frame, node, op)
        names = op.outputs if frame.place is None else self.names_in(frame, op.outputs)
        shapes = self._known.shapes
        if not all(name in shapes for name in names if name):
            return super()._infer(frame, node, op)
        pairs = [(proto.name, proto) for proto in node.attribute]
        found = infer(op, pairs, frame.versions)
        return [
            (shapes[name], dtype or "int64") if name else ((), "bool")
            for name, (_, dtype) in zip(names, found, strict=False)
        ]

    def _bounded(self, name: str, dims: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
        """Upper bounds are no sizes."""
        return dims

    def _resolved(self, stated: Declared) -> tuple[Dim, ...] | None:
        """Numbers for sizes that data decides are bounds and no sizes."""
        return stated.dims if self.decider is not None else super()._resolved(stated)

    def _add_output(self, name: str) -> None:
        """Declare an output, if present in the graph."""
        if not isinstance(self.lookup(self._main.scope, name), Pending):
            super()._add_output(name)


def _numbers(op: Op) -> list[OnnxOperand]:
    """Return the operands that may say shapes, axes or sizes."""
    return [
        known
        for known in op.inputs
        if known is not None
        and known.dtype in ("int64", "int32")
        and prod(known.shape) <= _MOST_NUMBERS
    ]
