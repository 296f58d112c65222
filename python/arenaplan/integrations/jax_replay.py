"""A schedule as a JAX function: a step's equations in the plan's order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.formats.jaxpr import lines_of_step, traced_step
from arenaplan.formats.jaxpr.jaxpr_operators import REDUCTIONS
from arenaplan.formats.jaxpr.jaxpr_program import Equation, JaxprArray, JaxprProgram, Line, Number
from arenaplan.formats.jaxpr.unroll import applied
from arenaplan.formats.trees import Donate
from arenaplan.graph import Graph, Node
from arenaplan.graph.ops import array_bytes
from arenaplan.integrations.jax_heap import ALIGNMENT, HeapBuffer, heap_bytes

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
            traced_step(step, args, donate, unroll, segments), compiles=True
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

    Each execution reads its operands behind an optimization barrier, which also holds a result of
    the execution before: so a compiler neither merges executions, nor runs an execution early, nor
    overwrites a content before its last reader. Otherwise compilers run whatever has its operands,
    and hold the results.

    Parameters
    ----------
    traced : TracedArguments
        The step.
    plan : Plan
        A plan for the step's graph.
    """

    def __init__(self, traced: TracedArguments, plan: Plan) -> None:
        graph, program, emitter = traced.graph, traced.program, traced.emitter
        runs = graph.for_plan(plan)
        lines = {node.name: line for node, line in zip(graph.nodes, program.lines, strict=True)}
        named = {value.name: value.index for value in runs.values}
        self._program = program
        self._first = {tensor: named[graph.values[i].name] for tensor, i in emitter.values.items()}
        """For each array, the value that the first execution makes."""
        kept = {*runs.outputs, *(value for value, _ in runs.write_backs)}
        read = set(kept)
        self._steps: list[_Step] = []
        for index in reversed(plan.order):
            node = runs.nodes[index]
            last = next((x for x in node.outputs if x in read), None)
            if last is None and node.effects.pure:
                continue  # A compiler removes the execution, and would forget the order with it.
            again = index >= len(graph.nodes)
            # A repetition is named after the repeated node: ``n#2``.
            name = node.name.rpartition("#")[0] if again else node.name
            inputs = {x for x in node.inputs if x is not None}
            self._steps.append(_Step(lines[name], node, again, last, frozenset(inputs - read)))
            read |= inputs
        self._steps = _waiting(self._steps[::-1])
        sizes = [array_bytes(x.shape, x.dtype) for x in runs.values]
        self.predicted_bytes = heap_bytes(_buffers(self._steps, kept, sizes))
        """Temporary memory of the compiled step."""

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
    last: int | None
    """A result that is read; compilers forget that an execution waits for other results."""
    dying: frozenset[int]
    """The operands that are read for the last time."""
    front: int | None = None
    """A result of the execution before, for which this execution waits."""
    direct: frozenset[int] = frozenset()
    """
    The operands read without a barrier: made by the execution before, and read only here. Compilers
    never write a result over an operand behind a barrier.
    """


def _waiting(steps: Sequence[_Step]) -> list[_Step]:
    """Return executions, each of which waits for the last one before with a result that is read."""
    found: list[_Step] = []
    before: _Step | None = None
    for step in steps:
        if before is not None:
            made = before.node.outputs if step.line.main.is_elementwise else ()
            step = step._replace(front=before.last, direct=step.dying.intersection(made))
        found.append(step)
        before = before if step.last is None else step
    return found


def _buffers(
    steps: Sequence[_Step], kept: Collection[int], sizes: Sequence[int]
) -> list[HeapBuffer]:
    """Return the buffers of a compiled schedule; results, which are ``kept``, have others."""
    last = {x: place for place, step in enumerate(steps) for x in step.node.inputs}
    # A barrier is a tuple of addresses.
    found = [HeapBuffer(place, place, ALIGNMENT) for place in range(len(steps))]
    begun: dict[int, int] = {}
    for place, step in enumerate(steps):
        taken = {*step.direct & begun.keys()}
        for x in step.node.outputs:
            if x is None or x in kept:
                continue
            over = next((y for y in taken if sizes[y] == sizes[x]), None)
            begun[x] = place if over is None else begun.pop(over)
            taken.discard(-1 if over is None else over)
    found += (HeapBuffer(first, last.get(x, first), sizes[x]) for x, first in begun.items())
    return found


class _Run:
    """A trace of a schedule."""

    def __init__(self, program: JaxprProgram, first: Mapping[JaxprArray, int]) -> None:
        self._program = program
        self._meaning: dict[JaxprArray, int] = dict(first)
        """By array, the value that readers read now."""
        self._made: dict[int, Any] = {}
        self._other: dict[JaxprArray, Any] = {x: x.data for x in program.constants}
        """Arrays that are not values in the graph."""

    def run(self, leaves: Sequence[Any], steps: Sequence[_Step]) -> list[Any]:
        program, first = self._program, dict(self._meaning)
        for tensor, array in zip(program.inputs, leaves, strict=True):
            self._write(tensor, array)
        for line in program.ahead:
            self._line(line, self._read)
        for step in steps:
            line, node = step.line, step.node
            pairs = [
                *zip(line.inputs, node.inputs, strict=False),
                *zip(line.outputs, node.outputs, strict=False),
            ]
            self._meaning.update(
                (tensor, at)
                for tensor, at in pairs
                if isinstance(tensor, JaxprArray) and at is not None
            )
            self._line(line, self._read if step.front is None else self._behind(step, step.front))
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

    def _behind(self, step: _Step, front: int) -> Callable[[Any], Any]:
        """Return a reader for operands that are there when the step before is done."""
        from jax import lax

        line, direct = step.line, step.direct
        makes = {out for equation in line.equations for out in equation.outputs}
        operands = [x for each in line.equations for x in each.inputs if x not in makes]
        arrays = [x for x in dict.fromkeys(operands) if isinstance(x, JaxprArray)]
        wanted: list[Any] = [x for x in arrays if self._meaning.get(x) not in direct]
        numbers = [x for x in operands if isinstance(x, Number)]
        if line.main.primitive in REDUCTIONS:
            wanted += numbers  # Compilers repeat them as arrays, before all executions.
        if not direct and not wanted:
            # A line that repeats a number, such as zeros, waits by its number.
            wanted = arrays or numbers[:1]
        if not wanted:
            return self._read
        waits = [] if front in map(self._meaning.get, arrays) else [self._made[front]]
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
