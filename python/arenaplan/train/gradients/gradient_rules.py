"""
Gradient rules: a function per operator that declares the operands it reads.

A rule gets a :class:`Site`, a node with its output gradients, and returns a gradient per input,
``None`` where no gradient flows. Rules append nodes by ``at.op``. The forward values that a rule
reads are declared: these values live until the gradient runs, and :meth:`Site.x` and :meth:`Site.y`
refuse all others. Shapes are free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from arenaplan.base.errors import InternalError, PlannerError, fault
from arenaplan.graph import Graph, Node, Value, ValueId
from arenaplan.train.symbols import Operators, operators

Gradients: TypeAlias = "Sequence[int | None]"
"""Graph values by index, one per input; ``None`` where no gradient flows."""
RuleFunction: TypeAlias = "Callable[[Site], Gradients]"


@dataclass(frozen=True, slots=True)
class Rule:
    """An operator's gradient."""

    op: str
    reads: tuple[str, ...]
    """
    Operands that the rule may read: ``x0``, ``x1``, … are inputs, ``y0``, … outputs, ``x*`` all
    inputs.
    """
    function: RuleFunction
    is_composed: bool = False
    """Whether the function returns the node's results, composed from operators with rules."""


RULES: Final[dict[str, Rule]] = {}
"""Rules by operator."""


def composed(*ops: str) -> Callable[[RuleFunction], RuleFunction]:
    """
    Register a function that composes a node's results from other operators.

    The backward pass computes the results again and differentiates the composing nodes, so
    operators with a forward kernel need no rule. The function may read every input.
    """

    def register(function: RuleFunction) -> RuleFunction:
        RULES.update((op, Rule(op, ("x*",), function, is_composed=True)) for op in ops)
        return function

    return register


def rule(*ops: str, reads: str = "") -> Callable[[RuleFunction], RuleFunction]:
    """
    Register the decorated function as the gradient for some operators.

    Parameters
    ----------
    ops : str
        Operator names.
    reads : str
        The forward operands whose bytes the rule reads: see :attr:`Rule.reads`.
    """

    def register(function: RuleFunction) -> RuleFunction:
        for op in ops:
            RULES[op] = Rule(op, tuple(reads.split()), function)
        return function

    return register


class Site:
    """
    A forward node and its output gradients.

    Parameters
    ----------
    graph : Graph
        The graph to which gradients are appended.
    node : Node
        The node.
    given : sequence of int or None
        Each output's gradient.
    wanted : set of int
        Values with requested gradients.
    reads : tuple of str
        Operands that the rule may read.
    overwritten : collection of int
        States whose content at the node is overwritten by the end of the forward pass.
    """

    def __init__(
        self,
        graph: Graph,
        node: Node,
        given: Sequence[int | None],
        wanted: set[int],
        reads: tuple[str, ...],
        overwritten: Collection[int] = (),
    ) -> None:
        self.graph = graph
        self.node = node
        self._given = given
        self._wanted = wanted
        self._reads = reads
        self._overwritten = overwritten

    @property
    def op(self) -> Operators:
        """Operators that append nodes."""
        return operators(self.graph)

    # -- operands ----------------------------------------------------------------

    @property
    def dy(self) -> int:
        """Output 0's gradient."""
        return self.gradient(0)

    def gradient(self, position: int) -> int:
        """Return an output's gradient; zeros if no gradient flows there."""
        known = self._given[position]
        if known is None:
            made = self.made(position)
            known = self.op.constant(np.zeros(made.shape, made.dtype), name="zeros")
        return known

    def flows(self, position: int) -> bool:
        """Whether a gradient flows to an output."""
        return position < len(self._given) and self._given[position] is not None

    def x(self, position: int) -> int:
        """Return an input whose bytes are read."""
        self._check("x", position)
        value = self.read(position)
        if value.index in self._overwritten:
            raise self.refusal(
                f"its gradient reads state {value.name!r}, which a later node has overwritten"
            )
        return value.index

    def y(self, position: int = 0) -> int:
        """Return an output whose bytes are read."""
        self._check("y", position)
        return self.made(position).index

    def _check(self, kind: str, position: int) -> None:
        """Refuse operands that the rule does not declare, so that declarations stay true."""
        if f"{kind}{position}" not in self._reads and f"{kind}*" not in self._reads:
            raise InternalError(
                f"the gradient of {self.node.op} reads {kind}{position} and does not declare it"
            )

    def read(self, position: int) -> Value:
        """Return an input's shape and type."""
        index = self.node.inputs[position] if position < len(self.node.inputs) else None
        if index is None:
            raise self.refusal(f"input {position} is left out")
        return self.graph.values[index]

    def made(self, position: int = 0) -> Value:
        """Return the facts about an output."""
        index = self.node.outputs[position]
        if index is None:
            raise self.refusal(f"output {position} is left out")
        return self.graph.values[index]

    def has(self, position: int) -> bool:
        """Whether an input is there."""
        return position < len(self.node.inputs) and self.node.inputs[position] is not None

    def wants(self, position: int) -> bool:
        """Whether an input's gradient is requested."""
        return self.has(position) and self.node.inputs[position] in self._wanted

    def shape(self, position: int) -> tuple[int, ...]:
        """Return an input's shape."""
        return self.read(position).shape

    def rank(self, position: int = 0) -> int:
        """Return an input's number of dimensions."""
        return len(self.shape(position))

    def data(self, position: int) -> np.ndarray:
        """Return a constant input's data."""
        value = self.read(position)
        if value.kind != "constant" or not self.graph.has_data(value.index):
            raise self.refusal(f"input {position} ({value.name!r}) is not a constant")
        return self.graph.data(value.index)

    def also(self, position: int, shape: tuple[int, ...], dtype: str) -> int:
        """Return an output of the node; the node is changed to make the output if needed."""
        node = self.graph.nodes[self.node.index]
        outputs = [*node.outputs, *[None] * (position + 1 - len(node.outputs))]
        found = outputs[position]
        if found is None:
            name = self.op.unique(f"{node.name}.{position}")
            found = outputs[position] = self.graph.value(name, shape, dtype)
            # A node's flow holds only for a single output.
            effects = node.effects._replace(flows=(), windows=(), loads=(), repeats=False)
            self.graph.replace_node(node.index, tuple(outputs), effects)
            self.node = self.graph.nodes[node.index]
        return self.graph.own(found)

    # -- attributes --------------------------------------------------------------

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return a node attribute."""
        return self.node.attributes.get(name, default)

    def axis(self, name: str, default: int, rank: int | None = None) -> int:
        """Return an axis counted from the front."""
        return int(self.attribute(name, default)) % max(rank or self.rank(), 1)

    def axes(self, position: int = 1) -> tuple[int, ...]:
        """Return axes from an attribute or an input; all axes if left out."""
        given = self.attribute("axes")
        if given is None and self.has(position):
            given = self.data(position).reshape(-1).tolist()
        rank = self.rank()
        if not given:
            return () if self.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
        return tuple(sorted(int(axis) % rank for axis in given))

    # -- parts of rules ----------------------------------------------------------

    def number(self, value: float, like: int = 0) -> ValueId:
        """Return a scalar constant with an input's type."""
        return self.op.constant(np.asarray(value, self.read(like).dtype), name="number")

    def unbroadcast(self, gradient: int, position: int) -> int:
        """Return a gradient summed to the shape of a broadcast input."""
        return summed(self.graph, gradient, self.shape(position))

    def refusal(self, text: str) -> PlannerError:
        """Return the error for a node that has no gradient here."""
        return fault("NotDifferentiable", f"{self.label}: {text}")

    @property
    def label(self) -> str:
        """The node in a message."""
        return f"node {self.node.name!r} ({self.node.op})"


def summed(graph: Graph, gradient: int, shape: tuple[int, ...]) -> int:
    """Return a gradient summed over the dimensions along which a value was repeated."""
    given, op = graph.values[gradient].shape, operators(graph)
    if given == shape:
        return gradient
    lead = len(given) - len(shape)
    axes = [k for k, dim in enumerate(given) if k < lead or (shape[k - lead] == 1 and dim != 1)]
    made: int = gradient
    if axes:
        made = op.ReduceSum(gradient, np.array(axes, np.int64), keepdims=0)
    if graph.values[made].shape != shape:
        made = op.Reshape(made, np.array(shape, np.int64))
    return made


def count(shape: Sequence[int], axes: Sequence[int]) -> int:
    """Return the number of elements along some axes."""
    return prod(shape[axis] for axis in axes)
