"""
A joint graph's schedule as two graphs.

The joint graph is written again with a node per execution, in the plan's order, and each node
states its side of the cut. PyTorch's own helper then cuts the graph, so a node may run any number
of times, and the backward graph has the plan's order.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import getitem
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arenaplan.base.errors import fault
from arenaplan.base.quoting import quoted
from arenaplan.graph import Effects, Graph, Node, View
from arenaplan.graph.ops import array_bytes

if TYPE_CHECKING:
    from arenaplan._core import Plan

BOUNDARY: Final = "backward_begins"
"""Name of the node between forward and backward pass."""

_NORMALIZED: Final = "_native_batch_norm_legit_functional"
_FUSED: Final = 64
"""A fused kernel moves one byte where single elementwise operators would move so many."""


def backward_begins(*results: Any) -> Any:
    """Stand for the time between the passes: gradients for forward results arrive."""
    raise NotImplementedError("a node of a graph that is planned, and not run")


class Ends(NamedTuple):
    """The ends of a joint graph."""

    forward_results: int
    """Number of joint results that the forward pass makes."""
    tangents: list[Any]
    """Backward inputs: gradients for forward results."""
    forward: list[Any]
    """Forward results, and values that forward nodes copy into inputs."""
    backward: list[Any]
    """Backward results, and values that backward nodes copy into inputs."""
    copies: list[Any]
    """Nodes that copy into inputs."""
    late: frozenset[Any]
    """Nodes that depend on tangents."""
    changed: frozenset[str]
    """Names of inputs that the forward pass changes."""


def ends_of(module: Any, forward_outputs: int) -> Ends:
    """Return the ends of a joint graph, whose first results are the forward results."""
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    tangents = [node for node in inputs if "tangents" in node.target]
    late = set(tangents)
    for node in nodes:
        if not late.isdisjoint(node.all_input_nodes):
            late.add(node)
    copies = [node for node in nodes if _is_copy_into_input(node)]
    results = _results(nodes[-1])
    early = [node.args[1] for node in copies if node not in late]
    described = nodes[-1].meta.get("desc", ())[:forward_outputs]
    mutated = [getattr(one, "mutated_input", None) for one in described]
    changed = {node.name for node in inputs if node.meta.get("desc", node) in mutated}
    return Ends(
        forward_outputs,
        tangents,
        [node for node in results[:forward_outputs] if node is not None] + early,
        [node for node in results[forward_outputs:] if node is not None]
        + [node.args[1] for node in copies if node in late],
        copies,
        frozenset(late),
        frozenset(changed | {node.args[0].name for node in copies}),
    )


def planned_module(module: Any, ends: Ends) -> Any:
    """
    Return the joint graph to plan.

    A node :data:`BOUNDARY` reads all forward results and makes the tangents: no later node runs
    before the last result is there. Copies to inputs happen at the end of a pass, so copies are not
    nodes, and copied values are results. A result of dropout is made from the mask, so that the
    result can be made again without random numbers.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The joint graph.
    ends : Ends
        The joint graph's ends.

    Raises
    ------
    UnboundDim
        If a size is a symbol.
    """
    import torch

    for node in module.graph.nodes:
        if isinstance(node.meta.get("val"), torch.SymInt):
            raise fault(
                "UnboundDim",
                f"{quoted(node.name)} is a size without a number: compile with dynamic=False",
            )
    graph = torch.fx.Graph()
    made: dict[Any, Any] = {}
    nodes = [node for node in module.graph.nodes if node not in set(ends.copies)]
    early = _ancestors(ends.forward)

    def add(node: Any) -> None:
        mask = _mask_of(node)
        if node in made or mask is None:
            made[node] = made.get(node) or graph.node_copy(node, made.__getitem__)
            return
        add(mask)
        dropped = _dropped(node, mask, made.__getitem__)
        made[node] = graph.create_node("call_function", *dropped, name=node.name)
        made[node].meta = dict(node.meta)

    for node in nodes:
        if (node.op == "placeholder" and node not in ends.tangents) or node in early:
            add(node)
    # A node that makes a graph result runs once. New normalization statistics are small and made
    # together with the other results, so need not count as graph results.
    forward = [node for node in ends.forward if not _is_statistic(node)]
    boundary = graph.create_node(
        "call_function", backward_begins, tuple(made[node] for node in forward), name=BOUNDARY
    )
    boundary.meta["val"] = tuple(node.meta["val"] for node in ends.tangents)
    for at, node in enumerate(ends.tangents):
        made[node] = graph.create_node("call_function", getitem, (boundary, at), name=node.name)
        made[node].meta = dict(node.meta)
    for node in nodes[:-1]:
        add(node)
    graph.output([made[node] for node in (*forward, *ends.backward)])
    return torch.fx.GraphModule(module, graph)


def constrain(graph: Graph, module: Any, ends: Ends) -> None:
    """
    Declare properties that the joint graph does not state.

    Nodes that may not run again keep their order, in which random numbers are drawn and processes
    wait for each other. Nodes that read an input which the forward pass changes run once; batch
    normalization results that are read again do not depend on the statistics.

    PyTorch views take no bytes and no work, for any strides, and hold all bytes of the tensor until
    the pass ends: see :meth:`JointCut._detach_slices`. Other results take both, clones and
    concatenations, too. Compilers fuse operators other than products, convolutions and attention
    into neighboring kernels, so few bytes of these operators move.
    """
    from torch.utils.flop_counter import flop_registry

    once = [node for node in graph.nodes if not node.effects.pure]
    for before, node in itertools.pairwise(once):
        node.after = (*node.after, before.index)
    targets = {node.name: node.target for node in module.graph.nodes}
    whole: dict[int, int] = {}
    """For each view with fewer bytes than the tensor, the tensor."""
    late, late_parts = {node.name for node in ends.late}, set[int]()
    for node in graph.nodes:
        given = [value for value in node.inputs if value is not None]
        is_late = node.name in late
        parts = (value for value in given if value in whole and (value in late_parts) == is_late)
        held = dict.fromkeys(whole[value] for value in parts)
        reads = {graph.values[value].name for value in node.inputs if value is not None}
        if not ends.changed.isdisjoint(reads) and _NORMALIZED not in node.op:
            node.effects = node.effects._replace(pure=False)
        target = targets.get(node.name)
        if getattr(target, "is_view", False):
            made = {
                at: value
                for at, value in enumerate(node.outputs)
                if value is not None and _fits(graph, value, node)
            }
            node.effects = Effects(views=tuple(View(0, at) for at in made), pure=node.effects.pure)
            node.cost = 0
            for value in made.values():
                source = whole.get(given[0], given[0])
                if _bytes(graph, value) < _bytes(graph, source):
                    whole[value] = source
                    late_parts |= {value} if is_late else set()
            continue
        node.inputs = (*node.inputs, *(it for it in held if it not in given))
        if not node.op.startswith("_unsafe_view."):
            node.effects = node.effects._replace(views=())
        if getattr(target, "overloadpacket", None) not in flop_registry:
            node.cost = -(-node.cost // _FUSED)
    for value in dict.fromkeys(whole[it] for it in graph.outputs if it in late_parts):
        if graph.values[value].kind == "activation" and value not in graph.outputs:
            graph.output(value)


class JointCut:
    """
    A joint graph with a node per execution in a plan.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The joint graph.
    graph : Graph
        The graph from :func:`planned_module`.
    plan : Plan
        A plan for that graph.
    ends : Ends
        The joint graph's ends.
    """

    def __init__(self, module: Any, graph: Graph, plan: Plan, ends: Ends) -> None:
        import torch

        self._torch = torch
        self._module = module
        self._ends = ends
        self._nodes = {node.name: node for node in module.graph.nodes}
        self._made_by = {
            value.name: value.index for value in graph.values if value.kind != "constant"
        }
        self._graph = torch.fx.Graph()
        self._inputs = {
            node: self._graph.node_copy(node)
            for node in module.graph.nodes
            if node.op == "placeholder"
        }
        self._given_bytes = {_storage(node)._cdata for node in self._inputs if _is_tensor(node)}
        """Identities of the inputs' bytes."""
        self._values: dict[int, Any] = {}
        """For each value in the schedule, the new node."""
        self._meaning: dict[int, int] = {}
        """For each value in the graph, the schedule's value that a reader reads now."""
        self._free: dict[Any, Any] = {}
        """New nodes that need no memory, by node and operands, on this side of the cut."""
        self._first: dict[str, Any] = {}
        """By name, the new node for the first execution."""
        self._before = ""
        """The name of the node that was executed last."""
        self._backward: set[Any] = set()
        self._late: set[Any] = set()
        """The nodes of the backward pass that repeat no forward node."""
        self._is_backward = False
        self._write(graph, plan)

    def _write(self, graph: Graph, plan: Plan) -> None:
        """Write a node per execution, and the results."""
        runs = graph.for_plan(plan)
        self._meaning = {value.index: value.index for value in graph.values}
        first = dict(self._meaning)
        results = _results(self._nodes["output"])
        forward: list[Any] = []
        originals = {node.name: node for node in graph.nodes}
        for index in plan.order:
            execution = runs.nodes[index]
            # A repetition is named after the repeated node: ``n#2``.
            is_first = index < len(graph.nodes)
            name = execution.name if is_first else execution.name.rpartition("#")[0]
            self._enter(originals[name], execution)
            if name != BOUNDARY:
                self._execute(originals[name], execution)
                continue
            forward = [self._read(node) for node in results[: self._ends.forward_results]]
            self._copy(node for node in self._ends.copies if node not in self._ends.late)
            self._is_backward = True
            self._free.clear()
        self._meaning = first
        backward = [self._read(node) for node in results[self._ends.forward_results :]]
        self._copy(node for node in self._ends.copies if node in self._ends.late)
        output = self._graph.output((*forward, *backward))
        output.meta = dict(self._nodes["output"].meta)
        tangents = {self._inputs[node] for node in self._ends.tangents}
        reads = [x for node in self._graph.nodes if node in self._backward
                 for x in node.all_input_nodes]  # fmt: skip
        self._saved = [
            node
            for node in dict.fromkeys([*reads, *(x for x in backward if x is not None)])
            if node not in self._backward and node not in tangents
        ]
        self._detach_slices()

    def _detach_slices(self) -> None:
        """
        Copy slices that the backward pass reads, where the slices hold more bytes than are read.

        Slices are saved, or made again by repetitions of forward nodes.
        """
        read = {node: [user for user in node.users if user in self._backward]
                for node in self._saved}  # fmt: skip
        for node in self._graph.nodes:
            is_again = node in self._backward - self._late and _is_tensor(node)
            if is_again and not self._late.isdisjoint(node.users):
                piece = _shown(node)[0]
                read[piece] = list(piece.users)
        held = Counter[Any]()
        for node in read:
            held[_shown(node)[1]] += node.meta["val"].nbytes
        for node, readers in read.items():
            storage = _storage(node)
            if storage._cdata in self._given_bytes or held[_shown(node)[1]] >= storage.nbytes():
                continue
            with self._graph.inserting_after(node):
                clone = self._graph.call_function(self._torch.ops.aten.clone.default, (node,))
            clone.meta = {**node.meta, "val": node.meta["val"].clone()}
            for user in readers:
                user.replace_input_with(node, clone)
            if node in self._saved:
                self._saved[self._saved.index(node)] = clone

    @property
    def saved_bytes(self) -> int:
        """Bytes that the forward pass makes and the backward pass reads."""
        sizes = {_storage(node)._cdata: _storage(node).nbytes() for node in self._saved}
        return sum(sizes[key] for key in sizes.keys() - self._given_bytes)

    def modules(self, static: Sequence[int]) -> tuple[Any, Any]:
        """
        Return the forward and the backward graph.

        Parameters
        ----------
        static : sequence of int
            Positions of forward inputs whose addresses never change.
        """
        from torch._functorch import partitioners

        inputs = [node for node in self._inputs.values() if partitioners._is_primal(node)]
        modules: tuple[Any, Any] = partitioners._extract_fwd_bwd_modules(
            self._torch.fx.GraphModule(self._module, self._graph),
            self._saved,
            saved_sym_nodes=[],
            num_fwd_outputs=self._ends.forward_results,
            static_lifetime_input_nodes=dict.fromkeys(inputs[at] for at in static),
        )
        return modules

    def _enter(self, node: Node, execution: Node) -> None:
        """Record the present meaning of an execution's operands and results."""
        pairs = (*zip(node.inputs, execution.inputs, strict=True),
                 *zip(node.outputs, execution.outputs, strict=True))  # fmt: skip
        self._meaning.update(
            (mine, it) for mine, it in pairs if mine is not None and it is not None
        )

    def _execute(self, node: Node, execution: Node) -> None:
        """Write a node for one execution, and a node for each of several results."""
        source = self._nodes[node.name]
        before, self._before = self._before, node.name
        mask = _mask_of(source)
        if mask is not None:
            if before == source.args[0].name:
                return  # The node that has drawn the mask has made the result, too.
            new = self._graph.call_function(*_dropped(source, mask, self._read))
            new.meta = dict(source.meta)
            made = {source.name: self._on_this_side(new)}
        elif self._is_backward and _NORMALIZED in node.op and source.args[5]:
            made = self._normalized(source)
        else:
            made = {source.name: self._written(source, self._read)}
        todo = [source]
        while todo:
            for user in todo.pop().users:
                if user.target is not getitem or user.args[0].name not in made:
                    continue
                if user.args[1] < len(made[user.args[0].name].meta["val"]):
                    made[user.name] = self._written(user, lambda it: made[it.name])
                else:  # Statistics that the forward pass made.
                    made[user.name] = self._first[user.name]
                todo.append(user)
        for name, new in made.items():
            self._first.setdefault(name, new)
            if name in self._made_by:
                self._values[self._meaning[self._made_by[name]]] = new

    def _normalized(self, source: Any) -> dict[str, Any]:
        """
        Write a batch normalization in training without statistics.

        The forward pass has changed the statistics, and PyTorch refuses to save a changing input.
        """
        x, scale, bias, _, _, training, momentum, eps = map(self._given, source.args)
        target = self._torch.ops.aten._native_batch_norm_legit.no_stats
        new = self._graph.call_function(target, (x, scale, bias, training, momentum, eps))
        new.meta = {**source.meta, "val": source.meta["val"][:3]}
        return {source.name: self._on_this_side(new)}

    def _given(self, argument: Any) -> Any:
        """Return an argument's present meaning."""
        return self._read(argument) if isinstance(argument, self._torch.fx.Node) else argument

    def _written(self, source: Any, read: Callable[[Any], Any]) -> Any:
        """Return a copy of a node on this side of the cut."""
        new = self._on_this_side(self._graph.node_copy(source, read))
        if source in self._ends.late:
            self._late.add(new)
        return new

    def _on_this_side(self, new: Any) -> Any:
        """Mark a node as belonging to the pass that is written now."""
        side = "backward" if self._is_backward else "forward"
        new.meta["partitioner_tag"] = f"must_be_in_{side}"
        if self._is_backward:
            self._backward.add(new)
        return new

    def _read(self, node: Any) -> Any:
        """Return the present meaning of a joint graph's node; None for None."""
        if node is None or node in self._inputs:
            return self._inputs.get(node)
        name = _first_piece(node).name
        if name in self._made_by:
            return self._values[self._meaning[self._made_by[name]]]
        if node.target is self._torch.ops.aten.copy.default:
            # The result is the second operand: see formats.pt2.joint.without_aliases.
            return self._read(node.args[1])
        # An alias, an expansion or a constant is written where it is read.
        operands = tuple(self._read(it) for it in node.all_input_nodes)
        if (node, operands) not in self._free:
            self._free[node, operands] = self._written(node, self._read)
        return self._free[node, operands]

    def _copy(self, copies: Iterable[Any]) -> None:
        """Write nodes that copy into inputs."""
        for node in copies:
            self._written(node, self._read)


def _is_tensor(node: Any) -> bool:
    return hasattr(node.meta.get("val"), "untyped_storage")


def _storage(node: Any) -> Any:
    """Return the bytes that a tensor shares with its views."""
    return node.meta["val"].untyped_storage()


def _shown(node: Any) -> tuple[Any, Any]:
    """Return the first view that shows no more than a view does, and the node that both show."""
    first = node
    while True:
        made = node.args[0] if node.target is getitem else node
        if not getattr(made.target, "is_view", False):
            return first, node
        if node.meta["val"].nbytes == first.meta["val"].nbytes:
            first = node
        node = made.args[0]


def _fits(graph: Graph, value: int | None, node: Node) -> bool:
    """Return whether a value has at most the bytes of the node's first operand."""
    if value is None or node.inputs[0] is None:
        return False
    return _bytes(graph, value) <= _bytes(graph, node.inputs[0])


def _bytes(graph: Graph, value: int) -> int:
    return array_bytes(graph.values[value].shape, graph.values[value].dtype)


def _first_piece(node: Any) -> Any:
    """Return the node that stands for equal pieces of a result."""
    if node.target is not getitem:
        return node
    return next(user for user in node.args[0].users if user.target is getitem
                and user.args[1] == node.args[1])  # fmt: skip


def _is_statistic(node: Any) -> bool:
    """Whether a node is a new mean or variance that a normalization in training keeps."""
    if node.target is not getitem or _NORMALIZED not in str(node.args[0].target):
        return False
    return bool(node.args[1] > 2)


def _mask_of(node: Any) -> Any:
    """Return the mask that makes a result of dropout from the operand; None for other nodes."""
    if node.target is not getitem or node.args[1] != 0:
        return None
    drawn = node.args[0]
    is_dropout = str(drawn.target) == "aten.native_dropout.default" and drawn.args[2]
    masks = (user for user in drawn.users if user.target is getitem and user.args[1] == 1)
    return next(masks, None) if is_dropout and _first_piece(node) is node else None


def _dropped(node: Any, mask: Any, read: Callable[[Any], Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the operator, and its arguments, that makes a result of dropout from the mask."""
    import torch

    x, part = node.args[0].args[:2]
    scale = 0.0 if part == 1 else 1 / (1 - part)
    return torch.ops.aten.native_dropout_backward.default, (read(x), read(mask), scale)


def _is_copy_into_input(node: Any) -> bool:
    name = str(node.target)
    return name == "aten.copy_.default" and node.args[0].op == "placeholder"


def _ancestors(nodes: Sequence[Any]) -> set[Any]:
    """Return nodes and all their ancestors."""
    found: set[Any] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.all_input_nodes
    return found


def _results(output: Any) -> list[Any]:
    """Return the results of a joint graph, in one list or in one per pass."""
    parts = (it if isinstance(it, (list, tuple)) else [it] for it in output.args[0])
    return [node for part in parts for node in part]
