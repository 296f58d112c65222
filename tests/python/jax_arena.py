"""Runs JAX programs with every array where a plan puts it."""

from __future__ import annotations

from typing import Any

import numpy as np

import arenaplan as ap
from arenaplan.formats import jaxpr as importer
from arenaplan.formats.jaxpr.jaxpr_program import Equation, JaxprArray, Line, Number
from arenaplan.formats.jaxpr.jaxpr_step import traced_step
from arenaplan.formats.jaxpr.jaxpr_walk import JaxprWalk
from arenaplan.formats.trees import Donate


class InArena:
    """
    A program in an arena, with the lines of the importer as its steps.

    Parameters
    ----------
    function : callable
        The program.
    args : tuple
        Its arguments.
    donate : collection of int
        Donated arguments, as for :func:`arenaplan.from_train_step`.
    loops : tuple of int, default (0, 0)
        Most rounds of loops that are written out, and the number of loops that others become.
    options : dict
        Options of the plan. With a schedule, each execution reads and writes the values that
        :meth:`arenaplan.Graph.scheduled` gives it.
    """

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        donate: Donate,
        loops: tuple[int, int] = (0, 0),
        **options: Any,
    ):
        import jax
        from jax.extend import core

        self.jax = jax
        traced = traced_step(function, args, donate, *loops)
        self.program = JaxprWalk(core).run(traced.jaxpr)
        self.emitter = importer.emitted(
            self.program, traced.pairs, traced.donated, importer.Emitter("")
        )
        self.graph = self.emitter.graph
        self.plan = ap.plan(self.graph, **options)
        self.plan.check(self.graph)
        schedule = self.plan.schedule
        self.executions = self.graph if schedule is None else self.graph.scheduled(schedule)
        self.lines = {
            node.name: line for node, line in zip(self.graph.nodes, self.program.lines, strict=True)
        }
        named = {value.name: value.index for value in self.executions.values}
        self.first = {
            tensor: named[self.graph.values[index].name]
            for tensor, index in self.emitter.values.items()
        }
        """By array: the first value that it is among those of the executions."""
        self.values = dict(self.first)
        """By array: the value that the current execution means."""
        self.arena = np.full(self.plan.arena_bytes, 0xA5, np.uint8)
        self.elsewhere: dict[JaxprArray, Any] = {
            tensor: tensor.data for tensor in self.program.constants
        }
        for line in self.program.ahead:
            self.run_line(line)
        states = {self.graph.values[index].name for index in self.states()}
        for tensor, array in zip(self.program.inputs, jax.tree.leaves(args), strict=True):
            if tensor is not None and tensor.name in states:
                self.write(tensor, array)

    def states(self) -> list[int]:
        return [value.index for value in self.graph.values if value.kind == "state"]

    def write(self, tensor: JaxprArray | None, array: Any) -> None:
        if tensor is None:
            return
        index = self.values.get(tensor)
        place = None if index is None else self.plan.placements[index]
        if place is None:
            self.elsewhere[tensor] = array
            return
        if self.jax.dtypes.issubdtype(array.dtype, self.jax.dtypes.prng_key):
            array = self.jax.random.key_data(array)
        content = np.asarray(array).reshape(-1).view(np.uint8)
        self.arena[place.offset : place.offset + content.size] = content

    def read(self, atom: Any, aval: Any = None) -> Any:
        jnp = self.jax.numpy
        if isinstance(atom, Number):
            return atom.value
        if atom in self.elsewhere:
            return self.elsewhere[atom]
        place = self.plan.placements[self.values[atom]]
        assert place is not None
        size = int(np.prod(atom.shape)) * jnp.dtype(atom.dtype).itemsize
        content = self.arena[place.offset : place.offset + size].copy()
        if self.jax.dtypes.issubdtype(getattr(aval, "dtype", np.uint8), self.jax.dtypes.prng_key):
            return self.jax.random.wrap_key_data(
                jnp.asarray(content.view(np.uint32).reshape(*aval.shape, -1))
            )
        return jnp.asarray(content.view(jnp.dtype(atom.dtype)).reshape(atom.shape))

    def run_line(self, line: Line) -> None:
        made: dict[JaxprArray, Any] = {}
        for equation in line.equations:
            for tensor, array in zip(equation.outputs, self.results(equation, made), strict=True):
                if tensor is not None:
                    made[tensor] = array
        for tensor in line.outputs:
            if tensor is not None:
                self.write(tensor, made[tensor])

    def results(self, equation: Equation, made: dict[JaxprArray, Any]) -> list[Any]:
        source = equation.source
        avals = [None] * len(equation.inputs) if source is None else [x.aval for x in source.invars]
        operands = [
            made[atom] if atom in made else self.read(atom, aval)
            for atom, aval in zip(equation.inputs, avals, strict=True)
        ]
        if source is None:
            (result,) = equation.outputs
            return [self.jax.numpy.broadcast_to(operands[0], result.shape).astype(result.dtype)]
        results = source.primitive.bind(*operands, **source.params)
        return results if source.primitive.multiple_results else [results]

    def run(self, *batch: Any) -> list[Any]:
        """
        Run once, and return all results.

        Parameters
        ----------
        batch : tree
            Leaves of the arguments that are not donated, in order.
        """
        names = {self.graph.values[index].name for index in self.states()}
        inputs = [x for x in self.program.inputs if x is not None and x.name not in names]
        for tensor, array in zip(inputs, self.jax.tree.leaves(batch), strict=True):
            self.write(tensor, array)
        for step in self.plan.order:
            execution = self.executions.nodes[step]
            # A repetition is named after its node: ``n#2``.
            is_first = step < len(self.graph.nodes)
            line = self.lines[execution.name if is_first else execution.name.rpartition("#")[0]]
            operands = (*zip(line.inputs, execution.inputs, strict=False),
                        *zip(line.outputs, execution.outputs, strict=False))  # fmt: skip
            meant = {x: at for x, at in operands if isinstance(x, JaxprArray) and at is not None}
            self.values.update(meant)
            self.run_line(line)
        self.values.update(self.first)
        return [self.read(atom) for atom in self.program.outputs]
