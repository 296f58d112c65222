"""A schedule as a JAX function: a step's equations in the plan's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.formats.jaxpr import lines_of_step, traced_step
from arenaplan.formats.jaxpr.jaxpr_program import Equation, JaxprArray, JaxprProgram, Line, Number
from arenaplan.formats.jaxpr.unroll import applied
from arenaplan.formats.trees import Donate
from arenaplan.graph import Graph, Node
from arenaplan.graph.ops import array_bytes

if TYPE_CHECKING:
    from arenaplan._core import Plan


class TracedArguments:
    """
    A step as traced by JAX, with argument types.

    Parameters
    ----------
    step, args, donate, unroll, segments
        As for :func:`arenaplan.from_train_step`.
    """

    def __init__(
        self,
        step: Any,
        args: Sequence[Any],
        donate: Donate,
        unroll: int = 0,
        segments: int = 0,
    ) -> None:
        import jax

        self.step = step
        self.args = tuple(args)
        self.program, self.emitter = lines_of_step(
            traced_step(step, args, donate, unroll, segments)
        )
        self.graph: Graph = self.emitter.graph
        shapes, results = jax.eval_shape(lambda *given: (given, step(*given)), *args)
        self.results = jax.tree.structure(results)
        self._types, self._structure = jax.tree.flatten(shapes)
        values = self.graph.values
        kinds = iter(
            "" if tensor is None else values[self.emitter.values[tensor]].kind
            for tensor in self.program.inputs
        )
        found = [{next(kinds) for _ in jax.tree.leaves(part)} for part in shapes]
        self.donated = tuple(at for at, part in enumerate(found) if part == {"state"})
        """Positions of donated arguments."""
        self.work = sum(node.cost for node in self.graph.nodes)
        """Work of a step in which each node runs once."""
        self.is_written_out = bool(unroll or segments)
        """Whether loops of the given step may be other loops, or none, in the graph."""
        self.loops = sum(bool(line.main.bodies) for line in self.program.lines)
        """Number of loops and branches, each a single node."""
        held = [value for value in values if value.kind in ("input", "state")]
        self.argument_bytes = sum(array_bytes(value.shape, value.dtype) for value in held)

    def jitted(self, function: Any, options: Mapping[str, str]) -> Any:
        """Return a function with these arguments under ``jax.jit``, with donation."""
        import jax

        return jax.jit(function, donate_argnums=self.donated, compiler_options=dict(options))

    @cached_property
    def plain(self) -> Any:
        """The given step, compiled without options."""
        return self.jitted(self.step, {}).lower(*self.args).compile()

    def leaves(self, args: Sequence[Any]) -> list[Any]:
        """
        Return the arrays in the arguments.

        Raises
        ------
        ShapeMismatch
            If the arguments have another structure, shape or type than the traced arguments.
        """
        import jax

        leaves: list[Any]
        leaves, structure = jax.tree.flatten(tuple(args))
        if structure != self._structure:
            raise fault(
                "ShapeMismatch",
                f"the step was scheduled for arguments {self._structure}, not {structure}",
            )
        for array, type_ in zip(leaves, self._types, strict=True):
            given = jax.eval_shape(lambda x: x, array)
            if (given.shape, given.dtype) != (type_.shape, type_.dtype):
                raise fault(
                    "ShapeMismatch",
                    f"the step was scheduled for {type_.dtype} of shape {type_.shape}, not "
                    f"{given.dtype} of shape {given.shape}: schedule it for these arguments",
                )
        return leaves


class Replay:
    """
    Binds a program's equations in the plan's order.

    A node that runs again reads operands behind an optimization barrier, which also holds the
    previous execution's result: so a compiler neither merges the execution with the first execution
    nor runs it early. Operands that a repetition made stand behind a barrier already.

    Parameters
    ----------
    traced : TracedArguments
        The step.
    plan : Plan
        A plan for the step's graph.
    """

    def __init__(self, traced: TracedArguments, plan: Plan) -> None:
        graph, program, emitter = traced.graph, traced.program, traced.emitter
        runs = graph if plan.schedule is None else graph.scheduled(plan.schedule)
        lines = {node.name: line for node, line in zip(graph.nodes, program.lines, strict=True)}
        named = {value.name: value.index for value in runs.values}
        self._program = program
        self._first = {tensor: named[graph.values[i].name] for tensor, i in emitter.values.items()}
        """For each array, the value that the first execution makes."""
        order = [runs.nodes[index] for index in plan.order]
        waits = _waits(runs, order)
        fronts = _fronts(order, len(graph.nodes))
        self._steps: list[_Step] = []
        for place, node in enumerate(order):
            again = node.index >= len(graph.nodes)
            # A repetition is named after the repeated node: ``n#2``.
            name = node.name.rpartition("#")[0] if again else node.name
            self._steps.append(_Step(lines[name], node, again, waits.get(place, []), fronts[place]))

    @property
    def repetitions(self) -> int:
        """Number of executions beyond the first of each node."""
        return sum(step.again for step in self._steps)

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Run the schedule on the arguments' leaves, and return the results' leaves."""
        return _Run(self._program, self._first).run(leaves, self._steps)


class _Step(NamedTuple):
    """An execution of a node."""

    line: Line
    node: Node
    again: bool
    """Whether the node has run before."""
    waits: list[int]
    """Values that must be there before, although the node does not read these values."""
    front: int | None
    """The value that a repetition waits for: a result of the executions before."""


def _ancestors(order: Sequence[Node]) -> tuple[list[int], dict[int, int]]:
    """Return by place the places that an execution depends on, as bits, and the last use."""
    makers = {value: place for place, node in enumerate(order) for value in node.outputs}
    before: list[int] = []
    last = dict[int, int]()
    for place, node in enumerate(order):
        found = 1 << place
        for value in node.inputs:
            last[makers.get(value, place)] = place
            found |= before[makers[value]] if value in makers else 0
        before.append(found)
    return before, last


def _fronts(order: Sequence[Node], count: int) -> list[int | None]:
    """
    Return by place the value of the executions before that depends on the most executions.

    The execution just before may depend on arguments alone, so that a compiler runs the execution
    early; dead values are not waited for.
    """
    before, last = _ancestors(order)
    fronts: list[int | None] = []
    alive: list[tuple[int, int, int]] = []
    for place, node in enumerate(order):
        previous = alive[-1:]
        alive = [it for it in alive if last.get(it[1], it[1]) >= place] or previous
        fronts.append(max(alive, default=(0, 0, None))[2])
        made = [x for x in node.outputs if x is not None]
        if made and node.index < count:
            alive.append((before[place].bit_count(), place, made[0]))
    return fronts


def _waits(graph: Graph, order: Sequence[Node]) -> dict[int, list[int]]:
    """
    Return by place the values that an update waits for: results of all readers of the old content.

    A compiler without that order copies the old content. A result that is dead at the update is
    replaced by a dependent result that is alive. No update waits for a result larger than the old
    content: such a result would be held until the update, at more bytes than a copy.
    """
    sizes = [array_bytes(value.shape, value.dtype) for value in graph.values]
    makers = {value: place for place, node in enumerate(order) for value in node.outputs}
    before, last = _ancestors(order)
    waits: dict[int, list[int]] = {}
    for value, into in graph.write_backs:
        place = makers[value]
        readers = [at for at in range(place) if into in order[at].inputs]
        missing = sum(1 << at for at in readers) & ~before[place]
        for at in range(place - 1, -1, -1):
            is_there = last.get(at, at) > place or at == place - 1 or missing >> at & 1
            outputs = [x for x in order[at].outputs if x is not None]
            made = [x for x in outputs if sizes[x] <= sizes[into]]
            if made and is_there and before[at] & missing:
                waits.setdefault(place, []).append(made[0])
                missing &= ~before[at]
    return waits


class _Run:
    """A trace of a schedule."""

    def __init__(self, program: JaxprProgram, first: Mapping[JaxprArray, int]) -> None:
        self._program = program
        self._meaning: dict[JaxprArray, int] = dict(first)
        """By array, the value that readers read now."""
        self._made: dict[int, Any] = {}
        self._again: set[int] = set()
        """Values that repetitions made."""
        self._ran: set[Equation] = set()
        """Equations that lines before have."""
        self._done: set[tuple[Any, ...]] = set()
        """Lines with the values that repetitions have read."""
        self._other: dict[JaxprArray, Any] = {x: x.data for x in program.constants}
        """Arrays that are not values in the graph."""

    def run(self, leaves: Sequence[Any], steps: Sequence[_Step]) -> list[Any]:
        program, first = self._program, dict(self._meaning)
        for tensor, array in zip(program.inputs, leaves, strict=True):
            self._write(tensor, array)
        for line in program.ahead:
            self._line(line, self._read)
        for line, node, again, waits, front in steps:
            pairs = [
                *zip(line.inputs, node.inputs, strict=False),
                *zip(line.outputs, node.outputs, strict=False),
            ]
            self._meaning.update(
                (tensor, at)
                for tensor, at in pairs
                if isinstance(tensor, JaxprArray) and at is not None
            )
            # A computation that several lines repeat is a repetition, too.
            again_inside = not self._ran.isdisjoint(line.before)
            self._ran.update(line.equations)
            if (again or again_inside) and front is not None:
                read = self._behind(line, [self._made[front]])
            elif waits:
                read = self._behind(line, [self._made[value] for value in waits])
            else:
                read = self._read
            self._line(line, read)
            if again:
                self._again.update(at for at in node.outputs if at is not None)
        self._meaning.update(first)
        return [None if atom is None else self._read(atom) for atom in program.outputs]

    def _read(self, atom: Any) -> Any:
        if isinstance(atom, Number):
            return atom.value
        return self._other[atom] if atom in self._other else self._made[self._meaning[atom]]

    def _write(self, tensor: JaxprArray | None, array: Any) -> None:
        if tensor is None:
            return
        if tensor in self._meaning:
            self._made[self._meaning[tensor]] = array
        else:
            self._other[tensor] = array

    def _behind(self, line: Line, waits: list[Any]) -> Callable[[Any], Any]:
        """Return a reader for operands that a compiler does not look through."""
        from jax import lax

        makes = {out for equation in line.equations for out in equation.outputs}
        operands = dict.fromkeys(x for each in line.equations for x in each.inputs)
        arrays = [x for x in operands if isinstance(x, JaxprArray) and x not in makes]
        wanted = [x for x in arrays if self._meaning.get(x) not in self._again]
        key = (line, *(self._meaning.get(x) for x in arrays))
        if not wanted and key in self._done:
            wanted = arrays
        self._done.add(key)
        if not wanted:  # All operands are from repetitions, which stand behind a barrier.
            return self._read
        passed = lax.optimization_barrier((*map(self._read, wanted), *waits))
        held = dict(zip(wanted, passed, strict=False))
        return lambda atom: held[atom] if atom in held else self._read(atom)

    def _line(self, line: Line, read: Callable[[Any], Any]) -> None:
        """Run a line's equations."""
        local: dict[Any, Any] = {}
        for equation in line.equations:
            operands = [local[x] if x in local else read(x) for x in equation.inputs]
            local.update(zip(equation.outputs, bound(equation, operands), strict=True))
        for tensor in line.outputs:
            if tensor is not None:
                self._write(tensor, local[tensor])


def bound(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """Return the results of an equation."""
    from jax import lax

    source = equation.source
    if source is None:  # A copy that the importer added.
        (result,) = equation.outputs
        assert result is not None, "a copy has a result"
        array = lax.convert_element_type(operands[0], result.dtype)
        return [lax.broadcast(array, result.shape) if array.shape == () else array]
    if source.primitive.name == "scan" and len(source.outvars) > source.params["num_carry"]:
        return _stacked(source, operands)
    return applied(source, operands)


def _stacked(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    """
    Return the results of a loop that stacks rows.

    XLA begins stacks with zeros, which depend on nothing: so a compiler makes the stacks of all
    loops when the program begins. Here, zeros depend on the loop's operands.
    """
    from jax import dtypes, lax
    from jax.extend import core

    params = equation.params
    fixed, carried = params["num_consts"], params["num_carry"]
    types = [x.aval for x in equation.outvars[carried:]]
    if any(dtypes.issubdtype(type_.dtype, dtypes.extended) for type_ in types):
        return applied(equation, operands)
    zero, *_ = lax.optimization_barrier((np.zeros((), np.float32), *operands))
    stacks = [lax.full(type_.shape, zero.astype(type_.dtype)) for type_ in types]
    run = core.jaxpr_as_fun(params["jaxpr"])

    def step(state: Any, given: Any) -> Any:
        (carry, stacks), (at, *rows) = state, given
        made = run(*operands[:fixed], *carry, *rows)
        rows = zip(stacks, made[carried:], strict=True)
        stacks = [lax.dynamic_update_index_in_dim(stack, row, at, 0) for stack, row in rows]
        return (made[:carried], stacks), ()

    scanned = [np.arange(params["length"], dtype=np.uint32), *operands[fixed + carried :]]
    start = (list(operands[fixed : fixed + carried]), stacks)
    (carry, stacks), _ = lax.scan(step, start, scanned, reverse=params["reverse"])
    return [*carry, *stacks]
