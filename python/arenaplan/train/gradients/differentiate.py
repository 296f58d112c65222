"""
Graph gradients: reverse mode, with a rule per operator.

The forward nodes are visited from last to first. A rule gives each node's operands their gradients;
a value's gradients are summed. Only nodes between the differentiated values and the loss are
visited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import prod
from typing import Self, TypeAlias

import numpy as np

from arenaplan.base.amounts import elements_of
from arenaplan.base.arguments import typed
from arenaplan.base.errors import (
    InvalidOption,
    ShapeMismatch,
    UndefinedValue,
    fault,
)
from arenaplan.graph import Graph, Node, ValueId
from arenaplan.graph.ops.own_ops import table_name, undeclared
from arenaplan.train.gradients import (  # noqa: F401  Their import registers the rules.
    activation_gradients,
    composed_gradients,
    elementwise_gradients,
    layout_gradients,
    norm_gradients,
    product_gradients,
    reduction_gradients,
    second_gradients,
    window_gradients,
)
from arenaplan.train.gradients.gradient_rules import RULES, Gradients, Rule, Site
from arenaplan.train.symbols import operators

_FLOATS = frozenset(["float16", "float32", "float64"])

Seed: TypeAlias = "ValueId | float | np.ndarray"
"""The gradient that flows into a value: a graph value, or constant data."""


@dataclass(slots=True)
class TrainingGraph:
    """A graph with loss gradients and, after :func:`sgd` or :func:`adam`, with updates."""

    graph: Graph
    """The forward pass, the gradients and the updates."""
    losses: tuple[int, ...]
    """The values that were differentiated."""
    parameters: tuple[int, ...]
    """The values that were differentiated by."""
    gradients: tuple[int, ...]
    """Each parameter's gradient. Gradients are outputs until updates read them."""
    statistics: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The states that the optimizer keeps for each parameter; empty before there are updates."""
    updated: dict[int, int] = field(default_factory=dict)
    """Each parameter's new content. Nodes that read the parameter itself read the old content."""
    steps: int | None = None
    """The state that counts updates, if the optimizer has such a state."""

    @property
    def is_updated(self) -> bool:
        """Whether a node gives a parameter a new content."""
        replaced = {into for _, into in self.graph.write_backs}
        return not replaced.isdisjoint(self.parameters)

    def replace(self, values: Mapping[int, int]) -> Self:
        """
        Replace gradients by values, for updates to read, and return ``self``.

        Examples are clipped gradients, gradients without the loss scale, and sums over processes.

        Parameters
        ----------
        values : mapping of int to int
            By gradient, a value with the gradient's shape and type.

        Raises
        ------
        UndefinedValue
            If a key is not a gradient in the graph.
        ShapeMismatch
            If a value's shape or type differs from the gradient's.
        InvalidOption
            If updates already read the gradients.

        Examples
        --------
        >>> import numpy as np
        >>> import arenaplan as ap
        >>> graph = ap.Graph()
        >>> w = graph.parameter("w", np.full((2,), 3, np.float32))
        >>> op = ap.train.operators(graph)
        >>> train = ap.train.gradient(graph, of=op.ReduceSumSquare(w, keepdims=0), wrt=[w])
        >>> halved = ap.train.operators(train.graph).Mul(train.gradient(w), np.float32(0.5))
        >>> train = ap.train.sgd(train.replace({train.gradient(w): halved}), lr=1)
        >>> with ap.train.Trainer(train) as trainer:
        ...     losses = trainer.step({})
        ...     trainer.states()["w"]
        array([0., 0.], dtype=float32)
        """
        graph = self.graph
        if self.is_updated:
            raise InvalidOption("the updates have read the gradients: replace gradients before")
        found: dict[int, int] = {graph.own(old): graph.own(new) for old, new in values.items()}
        for old, new in found.items():
            if old not in self.gradients:
                name = graph.values[old].name
                raise UndefinedValue(
                    f"{name!r} is not a gradient: TrainingGraph.gradients has them"
                )
            was, now = graph.values[old], graph.values[new]
            if (was.shape, was.dtype) != (now.shape, now.dtype):
                raise ShapeMismatch(
                    f"gradient {was.name!r} holds {was.dtype} of shape {was.shape}, and "
                    f"{now.name!r} in its place {now.dtype} of shape {now.shape}"
                )
        for old in found:
            graph.drop_output(old)
        replaced = [old for old in self.gradients if old in found]
        made = _outputs(graph, [found[old] for old in replaced])
        found = dict(zip(replaced, made, strict=True))
        self.gradients = tuple(found.get(old, old) for old in self.gradients)
        return self

    def gradient(self, parameter: int) -> ValueId:
        """
        Return the gradient with respect to a parameter.

        Raises
        ------
        UndefinedValue
            If the graph was not differentiated by the parameter.
        """
        parameter = self.graph.own(parameter)
        for known, found in zip(self.parameters, self.gradients, strict=True):
            if known == parameter:
                return self.graph.own(found)
        name = self.graph.values[parameter].name
        raise UndefinedValue(f"the graph was not differentiated by {name!r}")


@typed
def gradient(
    graph: Graph,
    *,
    of: int | Sequence[int],
    wrt: Iterable[int],
    seeds: Sequence[Seed | None] | None = None,
    stop: Collection[int] = (),
    sum_cap: int = 8,
) -> TrainingGraph:
    """
    Return a copy of a graph that also computes gradients.

    Parameters
    ----------
    graph : Graph
        The forward pass.
    of : int or sequence of int
        The losses, by index. A loss that is listed twice counts twice.
    wrt : iterable of int
        The values to differentiate by: parameters, inputs, or node results.
    seeds : sequence, optional
        The gradient that flows into each loss: a graph value, or data; 1 if left out, for
        single-element losses.
    stop : collection of int
        Values that count as constants.
    sum_cap : int, default 8
        From this many gradients per value, the gradients are added one after the other into a
        running sum, instead of by a single node that needs all gradients at once.

    Raises
    ------
    UnsupportedModel
        If a node has no gradient, or no loss depends on a value in ``wrt``.
    ShapeMismatch
        If a seed's shape differs from the loss's, or a required seed is left out.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (3,))
    >>> op = ap.train.operators(graph)
    >>> loss = op.ReduceSum(op.Mul(x, x), keepdims=0)
    >>> train = ap.train.gradient(graph, of=loss, wrt=[x])
    >>> with ap.Executor(train.graph) as executor:
    ...     executor.run({"x": np.array([1, 2, 3], np.float32)})["x.grad"]
    array([2., 4., 6.], dtype=float32)
    """
    given = tuple(of) if isinstance(of, Iterable) else (of,)
    losses, parameters, stops = (
        tuple(map(graph.own, elements_of(some, "values"))) for some in (given, wrt, stop)
    )
    if sum_cap < 2:
        raise InvalidOption(f"option sum_cap: {sum_cap} is less than 2")
    if seeds is not None and len(seeds) != len(losses):
        raise InvalidOption(f"option seeds: {len(seeds)} for {len(losses)} losses")
    made = graph.copy()
    made.is_exact = True
    forward = [made.nodes[index] for index in made.core.order]
    sweep = _Sweep(made, forward, parameters, stop=frozenset(stops), sum_cap=sum_cap)
    for loss, seed in zip(losses, seeds or [None] * len(losses), strict=True):
        sweep.seed(loss, seed)
    sweep.run()
    found = [sweep.result(position) for position in range(len(parameters))]
    for loss in losses:
        if loss not in made.outputs:
            made.output(loss)
    op = operators(made)
    names = [op.unique(f"{made.values[index].name}.grad") for index in parameters]
    return TrainingGraph(made, losses, parameters, tuple(_outputs(made, found, names)))


class _Sweep:
    """A pass over nodes, from last to first."""

    def __init__(
        self,
        graph: Graph,
        forward: Sequence[Node],
        parameters: Sequence[int],
        *,
        stop: frozenset[int] = frozenset(),
        sum_cap: int,
    ) -> None:
        self.graph = graph
        self._parameters = parameters
        self._cap = sum_cap
        self._forward = forward
        self._wanted = _dependent(graph, self._forward, parameters, stop)
        self._overwritten = _overwritten(self._forward)
        self._terms: dict[int, list[int]] = {}
        self._sums: dict[int, int] = {}
        self._reached: set[int] = set()

    def seed(self, loss: int, seed: Seed | None) -> None:
        """Let a gradient flow into a loss."""
        value, op = self.graph.values[loss], operators(self.graph)
        if value.dtype not in _FLOATS:
            raise fault(
                "NotDifferentiable",
                f"loss {value.name!r} holds {value.dtype}, no real numbers",
            )
        if seed is None:
            if prod(value.shape) != 1:
                raise ShapeMismatch(
                    f"loss {value.name!r} has shape {value.shape}: sum it, or give seeds"
                )
            seed = np.ones(value.shape, value.dtype)
        if not isinstance(seed, ValueId):
            data = np.asarray(seed, value.dtype)
            seed = op.constant(np.broadcast_to(data, value.shape).copy(), name="seed")
        seed = self.graph.own(seed)
        given = self.graph.values[seed]
        if (given.shape, given.dtype) != (value.shape, value.dtype):
            raise ShapeMismatch(
                f"the seed of loss {value.name!r} holds {given.dtype} of shape {given.shape}, not "
                f"{value.dtype} of shape {value.shape}"
            )
        self._terms.setdefault(loss, []).append(seed)
        self._reached.add(loss)

    def run(self) -> None:
        """Visit every node."""
        for index in reversed([node.index for node in self._forward]):
            self._visit(self.graph.nodes[index])

    def _visit(self, node: Node) -> None:
        outputs = [None if v is None or v not in self._wanted else v for v in node.outputs]
        inputs = {v for v in node.inputs if v is not None and v in self._wanted}
        if not inputs or not any(v in self._reached for v in outputs if v is not None):
            return
        self._reached.update(inputs)
        given = [None if v is None else self._total(v) for v in outputs]
        if not any(each is not None for each in given):
            return  # Only zeros flow here.
        rule = RULES.get(table_name(node.op, node.domain))
        if rule is None:
            raise fault(
                "NotDifferentiable",
                f"node {node.name!r}: operator {node.op} has no gradient"
                + undeclared(node.domain, "gradient"),
            )
        gone = self._overwritten.get(node.index, frozenset())
        site = Site(self.graph, node, given, self._wanted, rule.reads, gone)
        found = self._composed(site, rule) if rule.is_composed else rule.function(site)
        for position, (operand, term) in enumerate(zip(node.inputs, found, strict=True)):
            if operand is None or term is None or operand not in self._wanted:
                continue
            shape, expected = self.graph.values[term].shape, self.graph.values[operand].shape
            if shape != expected:
                raise ShapeMismatch(
                    f"node {node.name!r} ({node.op}): the gradient of input {position} has shape "
                    f"{shape}, not {expected}"
                )
            self._terms.setdefault(operand, []).append(term)

    def _composed(self, site: Site, rule: Rule) -> Gradients:
        """Compose a node's results again, and differentiate the composing nodes."""
        start = len(self.graph.nodes)
        made = rule.function(site)
        forward = self.graph.nodes[start:]
        wrt: dict[int, int | None]
        wrt = {x: None for k, x in enumerate(site.node.inputs) if x is not None and site.wants(k)}
        inner = _Sweep(self.graph, forward, tuple(wrt), sum_cap=self._cap)
        for position, index in enumerate(made):
            if index is not None and site.flows(position):
                inner._terms[index] = [site.gradient(position)]
                inner._reached.add(index)
        inner.run()
        for index in wrt:
            wrt[index] = inner._total(index)
        # A repeated operand has only one gradient.
        return [wrt.pop(x, None) if x is not None else None for x in site.node.inputs]

    def _total(self, value: int) -> int | None:
        """Return the sum of a value's gradients; ``None`` for zeros."""
        terms = self._terms.get(value)
        if not terms:
            return None
        if value not in self._sums:
            op = operators(self.graph)
            if len(terms) == 1:
                total = terms[0]
            elif len(terms) < self._cap:
                total = op.Sum(*terms) if len(terms) > 2 else op.Add(*terms)
            else:
                total = terms[0]
                for term in terms[1:]:
                    total = op.Add(total, term)
            self._sums[value] = total
        return self._sums[value]

    def result(self, position: int) -> int:
        """Return a parameter's gradient."""
        parameter = self._parameters[position]
        value = self.graph.values[parameter]
        if parameter not in self._reached:
            raise fault(
                "NotDifferentiable",
                f"wrt[{position}] ({value.name!r}): no loss depends on it through operators with "
                "real numbers",
            )
        total = self._total(parameter)
        if total is None:
            return operators(self.graph).constant(np.zeros(value.shape, value.dtype), name="zeros")
        return total


def _dependent(
    graph: Graph, forward: Sequence[Node], parameters: Sequence[int], stop: frozenset[int]
) -> set[int]:
    """Return the values with real numbers that depend on parameters."""
    found: set[int] = set()
    for index in parameters:
        value = graph.values[index]
        if value.dtype not in _FLOATS:
            raise fault("NotDifferentiable", f"{value.name!r} holds {value.dtype}, no real numbers")
        found.add(index)
    for node in forward:
        read = {v for at, v in enumerate(node.inputs) if at not in node.effects.ignores}
        if node.op == "StopGradient" or found.isdisjoint(read):
            continue
        for value_index in node.outputs:
            if value_index is None or value_index in stop:
                continue
            if graph.values[value_index].dtype in _FLOATS:
                found.add(value_index)
    return found - (stop - set(parameters))


def _overwritten(forward: Sequence[Node]) -> Mapping[int, frozenset[int]]:
    """Return by node the states that another node has written when the forward pass is over."""
    gone: frozenset[int] = frozenset()
    found = {}
    for node in reversed(forward):
        found[node.index] = gone
        written = {node.inputs[at] for at in node.effects.mutates}
        gone |= {index for index in written if index is not None}
    return found


def _outputs(graph: Graph, found: Sequence[int], names: Sequence[str] = ()) -> list[int]:
    """Make values outputs, or copies of them, under names if given; return the outputs."""
    made = {v for node in graph.nodes for v in node.outputs}
    taken, outputs = set(graph.outputs), []
    for index, name in zip_longest(found, names):
        if index in taken or index not in made:
            # A value can be an output only once, and a constant or input cannot be an output.
            index = operators(graph).Identity(index, outputs=None if name is None else [name])
        elif name is not None:
            graph.rename(index, name)
        graph.output(index)
        taken.add(index)
        outputs.append(index)
    return outputs
