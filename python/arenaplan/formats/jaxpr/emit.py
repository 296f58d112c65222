"""From a program to a graph: a node for each line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from arenaplan.formats.donation import write_back
from arenaplan.formats.jaxpr.jaxpr_operators import node_effects
from arenaplan.formats.jaxpr.jaxpr_program import (
    Atom,
    Equation,
    JaxprArray,
    JaxprProgram,
    Line,
    Number,
)
from arenaplan.formats.jaxpr.jaxpr_scratch import scratch_of
from arenaplan.formats.jaxpr.jaxpr_work import cost_of
from arenaplan.formats.named import NamedOp
from arenaplan.formats.trees import DonatedPair
from arenaplan.graph import NO_EFFECTS, Effects, Graph, InPlace
from arenaplan.graph.ops import BITS, Array
from arenaplan.graph.origin import Origin
from arenaplan.planner.nested import declare_inner

_LONGEST: Final = 100
"""Longest label, in characters, that names a value."""


class Emitter:
    """
    Builds a program's graph.

    Parameters
    ----------
    name : str
        The model's name.
    compiles : bool, default False
        Whether nodes need the scratch memory of XLA's compiler, too.
    """

    def __init__(self, name: str, compiles: bool = False) -> None:
        self.graph = Graph(name)
        self.compiles = compiles
        self.values: dict[JaxprArray, int] = {}
        """Value index of each array with a value."""

    def run(self, program: JaxprProgram, pairs: Sequence[DonatedPair] = ()) -> None:
        """
        Declare operands, append nodes, bind new contents to old ones, and declare results.

        Parameters
        ----------
        program : JaxprProgram
            The program; lines that copy are added.
        pairs : sequence of DonatedPair
            Outputs paired with the replaced inputs, whose bytes survive between runs.
        """
        kept = {program.inputs[pair.into] for pair in pairs}
        for tensor in (*program.constants, *program.inputs):
            if tensor is not None:
                self._declare(tensor, "", "state" if tensor in kept else tensor.kind)
        for line in program.lines:
            self.append(line)
        self._replace(program, pairs)
        for position, atom in enumerate(program.outputs):
            self._output(position, atom)

    def _replace(self, program: JaxprProgram, pairs: Sequence[DonatedPair]) -> None:
        """Bind new contents to the bytes of old contents, with copies where needed."""
        inputs, outputs = program.inputs, program.outputs
        changed = [pair for pair in pairs if inputs[pair.into] is not outputs[pair.result]]
        olds, news = {inputs[pair.into] for pair in changed}, {pair.result for pair in pairs}
        for position, atom in enumerate(outputs):
            is_old = atom in olds and position not in news
            if atom is not None and (
                is_old or (position in news and not isinstance(atom, JaxprArray))
            ):
                outputs[position] = self._copied(program, atom)
        arrays = {value: array for array, value in self.values.items()}

        def copied(value: int) -> int:
            made = self._copied(program, arrays[value])
            arrays[self.values[made]] = made
            return self.values[made]

        pairs_of_values: dict[int, int] = {}
        places: dict[int, int] = {}
        for pair in changed:
            old, new = inputs[pair.into], outputs[pair.result]
            if old is not None and isinstance(new, JaxprArray):
                pairs_of_values[self.values[old]] = self.values[new]
                places[self.values[old]] = pair.result
        for into, value in write_back(self.graph, pairs_of_values, copied).items():
            outputs[places[into]] = arrays[value]

    def _copied(self, program: JaxprProgram, atom: JaxprArray | Number) -> JaxprArray:
        """Append a line and a node that copy an array or a number, and return the copy."""
        made = JaxprArray(atom.shape, atom.dtype)
        is_number = isinstance(atom, Number)
        params = {"shape": atom.shape} if is_number else {}
        main = Equation("broadcast_in_dim" if is_number else "copy", [atom], [made], params, None)
        program.lines.append(Line(main))
        self.append(program.lines[-1])
        return made

    def append(self, line: Line) -> None:
        """Append a line's node."""
        graph = self.graph
        inputs = tuple(self._operand(atom) for atom in line.inputs)
        op = line.name or line.main.primitive
        name = f"{op}:{len(graph.values)}"
        bodies = [graph_of_body(op, body, self.compiles) for body in line.main.bodies]
        outputs: list[int | None] = []
        for position, tensor in enumerate(line.outputs):
            value_name = f"{name}.{position}" if position else name
            outputs.append(None if tensor is None else self._declare(tensor, value_name))
        outputs += declare_inner(graph, name, bodies)
        if self.compiles and (scratch := scratch_of(line)):
            outputs.append(graph.value(f"{name}.scratch", (scratch,), "uint8"))
        effects = effects_of(line)
        is_pure = all(equation.is_pure for equation in line.equations)
        node = graph.append(
            op,
            inputs,
            tuple(outputs),
            name=name,
            effects=effects._replace(pure=is_pure),
            domain="jax",
            cost=cost_of(line),
        )
        node.origin = _origin(line.main.source)

    def _output(self, position: int, atom: Atom) -> None:
        """Declare a program result."""
        if atom is None:
            return
        if isinstance(atom, JaxprArray):
            value = self._operand(atom)
            assert value is not None
        else:
            value = self.graph.constant(f"result:{position}", atom.shape, atom.dtype)
        if value not in self.graph.outputs:
            self.graph.output(value)

    def _operand(self, atom: Atom) -> int | None:
        """Return an operand's value; numbers in the program have no bytes."""
        if not isinstance(atom, JaxprArray):
            return None
        if atom not in self.values:
            assert atom.kind == "constant", "each line comes after those that make its operands"
            self._declare(atom, "", "constant")
        return self.values[atom]

    def _declare(self, tensor: JaxprArray, name: str, kind: str = "activation") -> int:
        """Declare an array's value."""
        graph = self.graph
        if kind == "activation" and 0 < len(tensor.label) < _LONGEST and tensor.label.isprintable():
            name = f"{tensor.label}:{len(graph.values)}"
        name = tensor.name or name or f"const:{len(graph.values)}"
        if kind == "constant":
            value = graph.constant(name, tensor.shape, tensor.dtype)
        elif kind == "input":
            value = graph.input(name, tensor.shape, tensor.dtype)
        elif kind == "state":
            value = graph.state(name, tensor.shape, tensor.dtype)
        else:
            value = graph.value(name, tensor.shape, tensor.dtype)
        self.values[tensor] = value
        return value


def graph_of_body(name: str, program: JaxprProgram, compiles: bool) -> Graph:
    """Return the graph of a body program, whose operands are elsewhere."""
    emitter = Emitter(name, compiles)
    emitter.run(program)
    return emitter.graph


def effects_of(line: Line) -> Effects:
    """Return a line's effects on memory."""
    if line.behind:
        return NO_EFFECTS
    if line.is_formula:
        return _formula_effects(line) if line.main.is_elementwise else NO_EFFECTS
    main = line.main
    operands: list[Array | None] = []
    for position, atom in enumerate(main.inputs):
        if not isinstance(atom, JaxprArray):
            operands.append(None)
        else:
            operands.append(atom.operand._replace(is_fixed=_is_fixed(line, position, atom)))
    made = [None if out is None else out.operand for out in main.outputs]
    return node_effects(main.primitive, NamedOp(operands, made, main.params))


def _is_fixed(line: Line, position: int, tensor: JaxprArray) -> bool:
    """Whether no result can take over an operand: a constant, or read in another order."""
    return tensor.kind == "constant" or line.through(position)


def _formula_effects(line: Line) -> Effects:
    """Permit a result to take over arrays with its shape that are read element by element."""
    result = line.main.result
    assert result is not None
    # An operand that an equation reads in another order or repeats is needed at other places too.
    moved = {x for found in line.before if not found.is_elementwise for x in found.inputs}
    pairs = [
        InPlace(position, 0)
        for position, atom in enumerate(line.inputs)
        if isinstance(atom, JaxprArray)
        and atom.kind != "constant"
        and atom not in moved
        and atom.shape == result.shape
        and BITS[atom.dtype] >= BITS[result.dtype]
    ]
    return Effects(in_place=tuple(pairs))


def _origin(equation: Any) -> Origin | None:
    """Return the name scope and source line, outside JAX, of an equation."""
    info = getattr(equation, "source_info", None)
    frames = getattr(getattr(info, "traceback", None), "frames", ())
    inside = ("/site-packages/jax/", "/site-packages/jaxlib/")
    lines = (
        f"{frame.file_name}:{frame.line_num}"
        for frame in frames
        if not any(part in frame.file_name for part in inside)
    )
    layer, source = str(getattr(info, "name_stack", "")) or None, next(lines, None)
    return Origin(layer, source) if layer or source else None
