"""From an exported program to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from arenaplan.base.errors import (
    NotAModel,
    UndefinedValue,
    UnsupportedDtype,
    UnsupportedOp,
    UnsupportedSubgraph,
    fault,
)
from arenaplan.base.free_names import free_name
from arenaplan.base.quoting import quoted
from arenaplan.formats.donation import write_back
from arenaplan.formats.named import NamedOp
from arenaplan.formats.pt2.inline import calls_name, flatten
from arenaplan.formats.pt2.joint import cost_of, strided, without_aliases, without_expansions
from arenaplan.formats.pt2.pt2_dims import SymbolDims
from arenaplan.formats.pt2.pt2_operators import ALIASES, OPERATORS, RANDOM, is_in_place
from arenaplan.formats.pt2.pt2_program import Call, Pt2Program, Pt2Tensor, Size
from arenaplan.graph import NO_EFFECTS, Effects, Graph, InPlace, View
from arenaplan.graph.ops import BITS, Array, Operands, effects_of, lookup, roofline
from arenaplan.graph.sizes import Bind, checked_bytes
from arenaplan.planner.nested import declare_inner

_CONSTANTS = ("parameter", "buffer", "tensor_constant")

_BODIES: Final = frozenset(("associative_scan", "cond", "map", "map_impl", "scan", "while_loop"))
"""Operators in the namespace ``higher_order`` that run graphs, one at a time."""


def graph_of(
    program: Pt2Program,
    name: str,
    bind: Bind | None = None,
    *,
    replaced: Mapping[str, str] | None = None,
) -> Graph:
    """
    Return a program's graph.

    Parameters
    ----------
    program : Pt2Program
        The program, from a file or live.
    name : str
        The model's name.
    bind : mapping or None
        Numbers for symbols by name, and whole shapes by input.
    replaced : mapping, optional
        For a joint graph, donated inputs with the replacing tensors. In joint graphs, product
        kernels read and write with strides, and nodes have costs.
    """
    program = flatten(program)
    dims = SymbolDims(bind, _declared_inputs(program))
    if replaced is not None:
        program, replaced = without_aliases(program, replaced)
        return _Walk(without_expansions(program), name, dims, replaced=replaced).run()
    graph = _Walk(program, name, dims).run()
    graph.target = "executorch"
    return graph


def _declared_inputs(program: Pt2Program) -> dict[str, tuple[Size, ...]]:
    """Return the caller's input sizes by name."""
    found = {}
    for port in program.inputs:
        if port.kind == "user_input":
            found[port.tensor] = _described(program, port.tensor).sizes
    return found


def _described(program: Pt2Program, name: str) -> Pt2Tensor:
    """Return the known facts about a tensor."""
    tensor = program.tensors.get(name)
    if tensor is None:
        raise NotAModel(f"tensor {quoted(name)} is not described")
    return tensor


class _Walk:
    """
    Reads a program.

    Parameters
    ----------
    program : Pt2Program
        The program to read.
    name : str
        The model's name.
    dims : SymbolDims
        Numbers for symbols.
    is_body : bool, default False
        Whether a node of another program runs this program: the inputs are then the node's
        operands, outside the body's arena.
    replaced : mapping, optional
        A joint graph's donated inputs, with the replacing tensors.
    """

    def __init__(
        self,
        program: Pt2Program,
        name: str,
        dims: SymbolDims,
        *,
        is_body: bool = False,
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        self._is_joint = replaced is not None
        self._replaced = replaced or {}
        self._strided = frozenset[str]() if replaced is None else strided(program)
        """Transposes in a joint graph that are product layouts."""
        self._program = program
        self._dims = dims
        self._is_body = is_body
        self._graph = Graph(name)
        self._values: dict[str, int] = {}
        """Value by tensor; a write to a tensor gives a new value."""
        self._operands: dict[str, Array] = {}
        self._fixed: set[str] = set()
        """Tensors that belong to the caller or the model."""
        self._roots: dict[str, str] = {}
        """The tensor that a tensor views, or was written from."""
        self._latest: dict[str, list[tuple[float, str]]] = {}
        """By root, the two tensors in the family with the last reads, and the positions."""
        self._last_use = self._last_uses()

    def run(self) -> Graph:
        """Return the graph."""
        outputs = self._program.outputs
        mutated = {port.owner for port in outputs if port.kind == "buffer_mutation"}
        for port in self._program.inputs:
            self._fixed.add(port.tensor)
            is_state = port.kind == "buffer" and port.owner in mutated
            is_state = is_state or port.tensor in self._replaced
            kind = "state" if is_state else "operand" if self._is_body else port.kind
            self._declare(port.tensor, kind)
        for position, call in enumerate(self._program.calls):
            self._add(call, position)
        pairs = {
            self._value(into, "a donation"): self._value(tensor, "a donation")
            for into, tensor in self._replaced.items()
        }
        results = [self._value(port.tensor, "the outputs") for port in outputs]
        gone = {into for into, made in pairs.items() if into != made} - {*pairs.values()}
        copies = {value: self._copied(value) for value in dict.fromkeys(results) if value in gone}
        bound = write_back(self._graph, pairs, self._copied)
        kept = {*bound.values()}
        copies |= {pairs[into]: made for into, made in bound.items() if pairs[into] not in kept}
        for value in results:
            value = copies.get(value, value)
            if value not in self._graph.outputs:
                self._graph.output(value)
        return self._graph

    def _copied(self, value: int) -> int:
        """Append a node that copies a value, and return the copy."""
        graph, source = self._graph, self._graph.values[value]
        name = free_name(f"{source.name}_copy", {other.name for other in graph.values})
        copy = graph.value(name, source.shape, source.dtype)
        cost = roofline(0, [Array(source.shape, source.dtype, False)] * 2)
        effects = Effects(in_place=(InPlace(0, 0),), pure=True)
        graph.append(
            "clone.default", (value,), (copy,), name=name, effects=effects, domain="aten", cost=cost
        )
        return copy

    def _last_uses(self) -> dict[str, float]:
        """Return the position of each tensor's last reader."""
        last: dict[str, float] = {}
        for position, call in enumerate(self._program.calls):
            last.update((name, position) for name in call.reads() if name is not None)
        last.update((port.tensor, inf) for port in self._program.outputs)
        return last

    def _add(self, call: Call, position: int) -> None:
        """Append a node, or the constants that the node computes."""
        space, base, op = _operator(call.target)
        reads, writes = list(call.reads()), list(call.results)
        if not writes and (space == "aten" or not reads):
            return  # The call reads or computes sizes, or asserts something.
        what = call.name or (calls_name(call) if writes else f"{op}_{position}")
        inputs = tuple(None if name is None else self._value(name, what) for name in reads)
        known = [None if name is None else self._operands[name] for name in reads]
        is_mutation = space == "aten" and is_in_place(base)
        if is_mutation:
            self._check_mutation(reads[0] if reads else None, position, what)
        is_constant = space == "aten" and base not in RANDOM and not is_mutation
        if self._is_joint and not reads:
            is_constant = False  # Constants are not counted: an array of zeros would hide bytes.
        if is_constant and all(self._is_known(name) for name in reads):
            for name in writes:
                self._declare(name, "folded")
            self._follow(base, reads, writes, is_mutation=False)
            return
        outputs = tuple(self._declare(name, "activation") for name in writes)
        outputs += self._bodies(call, space, base, what)
        effects = NO_EFFECTS
        if space == "aten":
            arguments = {a.name: a.value for a in call.arguments if not a.tensors}
            described = NamedOp(known, [self._operands[name] for name in writes], arguments)
            operator = lookup(OPERATORS, base.rstrip("_") if is_mutation else base, described)
            effects = effects_of(operator, Operands(described.inputs, described.outputs))
        if not self._strided.isdisjoint(writes):
            effects = Effects(views=(View(0, 0),))
        elif not self._strided.isdisjoint(name for name in reads if name is not None):
            effects = effects._replace(flows=(), loads=())
        cost = 0
        if self._is_joint:
            is_random = call.is_random or base in (*RANDOM, "dropout")
            is_pure = space == "aten" and not is_mutation and not is_random
            effects = effects._replace(pure=is_pure)
            cost = cost_of(base, known, [self._operands[name] for name in writes])
        self._follow(base, reads, writes, is_mutation=is_mutation)
        node = self._graph.append(
            op,
            inputs,
            outputs,
            name=what,
            effects=effects,
            domain=space,
            cost=cost,
        )
        node.origin = call.origin

    def _bodies(self, call: Call, space: str, base: str, what: str) -> tuple[int, ...]:
        """Declare the bytes that a node needs to run its graphs."""
        if not call.graphs and space != "higher_order":
            return ()
        if space != "higher_order" or base not in _BODIES or not call.graphs:
            raise UnsupportedSubgraph(f"{quoted(call.target)} runs another graph, in unknown ways")
        bodies = (_Walk(body, what, self._dims, is_body=True).run() for body in call.graphs)
        return declare_inner(self._graph, what, bodies)

    def _is_known(self, name: str | None) -> bool:
        """Whether a tensor is the same in every run."""
        if name is None:
            return True
        is_operand = self._is_body and name in self._fixed
        return self._operands[name].is_fixed and not is_operand

    def _follow(
        self, base: str, reads: list[str | None], writes: list[str], *, is_mutation: bool
    ) -> None:
        """Record which tensors are the same in PyTorch."""
        source = reads[0] if reads else None
        if source is None:
            return
        if is_mutation and writes:
            # All later readers of the tensor read the written value.
            self._values[source] = self._values[writes[0]]
            self._join(writes[0], source)
        elif base in ALIASES:
            for name in writes:
                self._join(name, source)

    def _join(self, name: str, source: str) -> None:
        """Record that a tensor may share another tensor's bytes."""
        root = self._roots.setdefault(source, source)
        self._roots[name] = root
        family = {other: use for use, other in self._latest.get(root, [])}
        for member in (root, name):
            family[member] = self._last_use.get(member, -1)
        # Leaving out any one tensor, the latest remaining is among the latest two.
        self._latest[root] = sorted(((use, key) for key, use in family.items()), reverse=True)[:2]

    def _check_mutation(self, name: str | None, position: int, what: str) -> None:
        """
        Refuse writes to a tensor with other views: the graph would need a value for each view.
        """
        if name is None or name in self._fixed or self._roots.get(name, name) in self._fixed:
            raise UnsupportedOp(
                f"node {quoted(what)} writes to an input, parameter or buffer in place; export "
                "with run_decompositions(), which makes that explicit"
            )
        for use, other in self._latest.get(self._roots.get(name, name), []):
            if other != name and use > position:
                raise UnsupportedOp(
                    f"node {quoted(what)} writes to {quoted(name)} in place, and {quoted(other)}, "
                    "which may show the same bytes, is read later; export with run_decompositions()"
                )

    def _value(self, name: str, what: str) -> int:
        """Return a tensor's value."""
        if name not in self._values:
            raise UndefinedValue(f"{quoted(what)} reads tensor {quoted(name)}, which nothing made")
        return self._values[name]

    def _declare(self, name: str, kind: str) -> int:
        """Declare a tensor's value."""
        if name in self._values:
            raise fault("DuplicateProducer", f"tensor {quoted(name)} is made twice")
        sizes, dtype = _described(self._program, name)
        if dtype not in BITS:
            raise UnsupportedDtype(f"tensor {quoted(name)} has the unknown type {dtype}")
        shape = self._dims.shape(name, sizes)
        checked_bytes(name, shape, dtype)
        is_constant = kind in (*_CONSTANTS, "folded", "operand")
        if is_constant:
            value = self._graph.constant(name, shape, dtype)
        elif kind == "state":
            value = self._graph.state(name, shape, dtype)
        elif kind == "user_input":
            value = self._graph.input(name, shape, dtype)
        elif kind == "activation":
            value = self._graph.value(name, shape, dtype)
        else:
            raise UnsupportedOp(f"input {quoted(name)} is of the kind {quoted(kind)}")
        self._values[name] = value
        self._operands[name] = Array(shape, dtype, is_constant)
        return value


def _operator(target: str) -> tuple[str, str, str]:
    """Return an operator's namespace, name without overload, and full name."""
    parts = target.removeprefix("torch.ops.").split(".")
    if len(parts) < 2:
        return "", parts[0], parts[0]
    return parts[0], parts[1], ".".join(parts[1:])
