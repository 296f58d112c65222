"""Runs training steps of PyTorch with every tensor where a plan puts it."""

from __future__ import annotations

from operator import getitem
from typing import Any

import arenaplan as ap
from arenaplan.formats.pt2 import graph_of_joint
from arenaplan.formats.pt2.pt2_step import traced_step
from arenaplan.formats.trees import Donate

PRODUCTS = ("addbmm", "addmm", "baddbmm", "bmm", "mm")
TRANSPOSES = ("permute", "t", "transpose")


class InArena:
    """
    A training step in an arena, with the nodes of the traced module as its steps.

    Parameters
    ----------
    step : callable
        The step.
    args : tuple
        Its arguments.
    donate : collection of int, optional
        Donated arguments, as for :func:`arenaplan.from_train_step`.
    options : dict
        Options of the plan. With a schedule, each execution reads and writes the values that
        :meth:`arenaplan.Graph.scheduled` gives it.
    """

    def __init__(self, step: Any, args: tuple[Any, ...], donate: Donate = None, **options: Any):
        import torch

        self.torch = torch
        traced = traced_step(step, args, donate)
        self.nodes = {node.name: node for node in traced.module.graph.nodes}
        self.inputs = [name for name, node in self.nodes.items() if node.op == "placeholder"]
        self.results = self.nodes["output"].args[0]
        self.graph = graph_of_joint(traced.module, traced.donate, "", None)
        self.named = {value.name: value.index for value in self.graph.values}
        operators = {node.name: node.op.split(".")[0] for node in self.graph.nodes}
        self.strided = {
            name
            for name, base in operators.items()
            if base in TRANSPOSES
            and all(operators.get(user.name) in PRODUCTS for user in self.readers(self.nodes[name]))
        }
        """Transposes that products alone read: their bytes are those of their operands."""
        self.plan = ap.plan(self.graph, **options)
        self.plan.check(self.graph)
        schedule = self.plan.schedule
        self.executions = self.graph if schedule is None else self.graph.scheduled(schedule)
        self.arena = torch.full((self.plan.arena_bytes,), 0xA5, dtype=torch.uint8)
        self.values = dict(self.named)
        """By name: the value that the current execution means."""
        self.states = {value.name for value in self.graph.values if value.kind == "state"}
        for name, tensor in zip(self.inputs, self.tensors(args), strict=True):
            if name in self.states:
                self.write(name, tensor)

    def tensors(self, tree: Any) -> list[Any]:
        leaves = self.torch.utils._pytree.tree_leaves(tree)
        return [leaf.detach() for leaf in leaves if isinstance(leaf, self.torch.Tensor)]

    def bytes_of(self, name: str) -> Any:
        """Return the place of a value in the arena."""
        place = self.plan.placements[self.values[name]]
        return self.arena[place.offset : place.offset + place.bytes]

    def write(self, name: str, tensor: Any) -> None:
        content = tensor.contiguous().reshape(-1).clone()
        self.bytes_of(name)[: content.nbytes].copy_(content.view(self.torch.uint8))

    def read(self, node: Any) -> Any:
        """Return a copy of the tensor that a node of the module stands for."""
        name = node.name
        if node.target is getitem and name not in self.values:
            # Equal pieces of a result have the name of the first one.
            name = next(user.name for user in node.args[0].users if user.args == node.args)
        if name in self.strided:
            shown = self.seen(name, node.args[0].meta["val"])
            return node.target(shown, *node.args[1:], **node.kwargs)
        if name in self.values:
            return self.seen(name, node.meta["val"])
        (result,) = self.computed(node)
        return result

    def seen(self, name: str, meta: Any) -> Any:
        size = meta.numel() * meta.dtype.itemsize
        return self.bytes_of(name)[:size].clone().view(meta.dtype).view(meta.shape)

    def readers(self, node: Any) -> list[Any]:
        """Return what reads a node, or an alias of it."""
        found = []
        for user in node.users:
            is_alias = user.op == "call_function" and user.name not in self.named
            found += self.readers(user) if is_alias else [user]
        return found

    def computed(self, node: Any) -> list[Any]:
        """Return the tensors that a node makes."""
        args, kwargs = (
            self.torch.fx.node.map_arg(operands, self.read) for operands in (node.args, node.kwargs)
        )
        made = node.target(*args, **kwargs)
        return self.tensors(made)

    def run(self, *batch: Any) -> list[Any]:
        """Run once with the arguments that are no states, and return all results."""
        given = [name for name in self.inputs if name not in self.states]
        for name, tensor in zip(given, self.tensors(batch), strict=True):
            self.write(name, tensor)
        originals = {node.name: node for node in self.graph.nodes}
        for step in self.plan.order:
            execution = self.executions.nodes[step]
            # A repetition is named after its node: ``n#2``.
            is_first = step < len(self.graph.nodes)
            name = execution.name if is_first else execution.name.rpartition("#")[0]
            self.execute(originals[name], execution)
        self.values = dict(self.named)
        return [self.read(node) for node in self.results]

    def execute(self, node: Any, execution: Any) -> None:
        """Execute a node, and write its results to their places."""
        name = node.name
        pairs = (*zip(node.inputs, execution.inputs, strict=True),
                 *zip(node.outputs, execution.outputs, strict=True))  # fmt: skip
        for mine, theirs in pairs:
            if mine is not None:
                self.values[self.graph.values[mine].name] = theirs
        source = self.nodes.get(name)
        if source is None or name in self.strided:
            # A copy at the end of the graph, or a transpose that only products see.
            made = self.bytes_of(self.graph.values[node.inputs[0]].name).clone()
            self.bytes_of(name).copy_(made)
            return
        for output, tensor in zip(node.outputs, self.computed(source), strict=True):
            self.write(self.graph.values[output].name, tensor)

    def content(self, name: str) -> Any:
        """Return the content of a state."""
        return self.seen(name, self.nodes[name].meta["val"])
