"""Plan steps as C statements: calls, and loops over strips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final

from arenaplan.base.errors import UnsupportedOp
from arenaplan.base.quoting import quoted
from arenaplan.deploy.code import (
    cmsis_calls,
    code_dense,
    code_elements,
    code_moves,
    code_onnx,
    code_states,
    code_sums,
    code_windows,
)
from arenaplan.deploy.code.code_kernels import KernelTexts
from arenaplan.deploy.code.code_site import (
    DOMAINS,
    ROWS,
    Base,
    CodePart,
    CodePlace,
    CodeSite,
    Constants,
    Emit,
    Places,
    at_row,
)
from arenaplan.deploy.code.code_text import arena_type, remark
from arenaplan.graph import Graph, Node, Window
from arenaplan.run.numpy.signatures import dtype_of, signature_of

if TYPE_CHECKING:
    from arenaplan._core import PlacedWorkspace, Plan, Strips

_FAMILIES: Final = (
    *(cmsis_calls, code_dense, code_elements, code_moves, code_onnx, code_states, code_sums),
    code_windows,
)
"""Modules that register lowerings."""


def require_kernels(graph: Graph) -> None:
    """
    Refuse a graph with a node that generated code has no kernel for.

    Types and attributes count, too, if the graph has its weights.

    Raises
    ------
    UnsupportedOp
        With the name of the node.
    """
    labels = [f"v{value.index}" for value in graph.values]
    steps = StepTexts(graph, labels, lambda _: None, labels.__getitem__, ())
    for node in graph.nodes:
        if graph.has_weights:
            steps.lowered(node)
        else:
            _require_kernel(node)


def _require_kernel(node: Node) -> None:
    if node.op in DOMAINS.get(node.domain, ()):
        return
    domain = f" of domain {quoted(node.domain)}" if node.domain not in DOMAINS else ""
    raise UnsupportedOp(
        f"node {quoted(node.name)}: generated code has no kernel for {quoted(node.op)}{domain}"
    )


class StepTexts:
    """
    The statements for the steps of a graph's plans.

    Parameters
    ----------
    labels : sequence of str
        A C name for each value.
    place_of : callable
        Returns a value's place; ``None`` for constants and values inside steps.
    pointer_of : callable
        Returns the pointer name for a value with a place.
    arenas : sequence of str
        Each space's arena name.
    """

    def __init__(
        self,
        graph: Graph,
        labels: Sequence[str],
        place_of: Callable[[int], CodePlace | None],
        pointer_of: Callable[[int], str],
        arenas: Sequence[str],
    ) -> None:
        self.kernels, self.constants = KernelTexts(), Constants()
        self._arenas = arenas
        self._graph, self._labels = graph, labels
        self._place_of, self._pointer_of = place_of, pointer_of

    def lines(self, plan: Plan) -> list[str]:
        """Return all statements for a plan, in order."""
        strips = {each.node: each for each in plan.strips}
        works = {work.node: work for work in plan.workspaces if work.slot == 0}
        lines: list[str] = []
        for number, nodes in enumerate(plan.steps):
            found = [self._graph.nodes[node] for node in nodes]
            lines += ["", remark(f"step {number}: {', '.join(node.name for node in found)}")]
            home = nodes[-1]
            if home in strips:
                self.kernels.use("strips")
                lines += _Loop(self, found, strips[home], works.get(home)).lines()
            elif len(found) == 1:
                lines += self._whole(found[0])
            else:
                raise UnsupportedOp(
                    f"node {quoted(found[-1].name)} runs as one with others piece by piece, which "
                    "generated code does not"
                )
        return lines

    # -- nodes alone -------------------------------------------------------------------------------

    def _site(self, node: Node) -> CodeSite:
        """Return a node as lowerings see it."""
        _require_kernel(node)
        made = [value for value in node.outputs if value is not None]
        label = self._labels[made[0]] if made else f"step_{node.index}"
        place = self._place_of
        return CodeSite(
            signature_of(self._graph, node),
            label,
            self.kernels,
            self.constants,
            lambda at: None if (value := node.outputs[at]) is None else self._pointer(value),
            Places(
                [None if value is None else place(value) for value in node.inputs],
                [None if value is None else place(value) for value in node.outputs],
            ),
        )

    def lowered(self, node: Node) -> tuple[CodeSite, Emit]:
        """Return a node, and what writes its call; an error if no kernel runs the node."""
        site = self._site(node)
        return site, DOMAINS[node.domain][node.op](site)

    def _pointer(self, value: int) -> str:
        """Return the pointer to a value that is there as a whole."""
        if self._graph.values[value].kind == "constant":
            data = self._graph.data(value)
            return self.constants.array(f"{self._labels[value]}_data", data)
        return self._pointer_of(value)

    def _whole(self, node: Node) -> list[str]:
        """Return a node's call that makes the whole result."""
        site, emit = self.lowered(node)

        def base(position: int) -> Base:
            return Base(self._pointer(_operand(node, position)), "0")

        return emit(CodePart("0", str(site.rows), base, lambda: site.pointer_to(0) or "NULL"))


class _Loop:
    """The loop over a step's strips."""

    def __init__(
        self,
        steps: StepTexts,
        nodes: Sequence[Node],
        strips: Strips,
        work: PlacedWorkspace | None,
    ) -> None:
        self._steps, self._nodes, self._strips = steps, nodes, strips
        self._offset = 0 if work is None else work.offset
        self._arena = steps._arenas[0 if work is None else work.space]
        self._values = [_only(node) for node in nodes]
        self._last = self._values[-1]
        self._home: dict[int, int] = {}
        for pair in reversed(strips.in_place):
            self._home[pair.value] = self._home.get(pair.of, pair.of)
        self._lines = {line.value: line for line in strips.buffers}
        graph = steps._graph
        for value, home in self._home.items():
            if self._row_bytes(value) != self._row_bytes(home):
                raise UnsupportedOp(
                    f"value {quoted(graph.values[value].name)} is made in rows of another size"
                )

    def _name(self, value: int) -> str:
        return self._steps._labels[value]

    def _rows(self, value: int) -> int:
        return self._steps._graph.values[value].shape[ROWS]

    def _row_numbers(self, value: int) -> int:
        shape = self._steps._graph.values[value].shape
        return prod(shape) // max(shape[ROWS], 1)

    def _row_bytes(self, value: int) -> int:
        return self._row_numbers(value) * dtype_of(self._steps._graph.values[value]).itemsize

    def lines(self) -> list[str]:
        """Return all statements."""
        body = [*self._needs(), "", *self._moves(), *self._calls()]
        step, rows = self._strips.rows, self._rows(self._last)
        return [
            "{",
            *(f"  {line}" for line in self._declarations()),
            f"  for (row = 0; row < {rows}; row += {step}) {{",
            *(f"    {line}".rstrip() for line in body),
            "  }",
            "}",
        ]

    def _declarations(self) -> list[str]:
        """Return declarations for each value's rows and the line buffers."""
        lines = ["int32_t row;"]
        for value in self._values:
            name = self._name(value)
            lines.append(f"struct rows r_{name} = {{0, 0, 0, 0, 0}};")
            if value in self._lines:
                line = self._lines[value]
                type_ = arena_type(dtype_of(self._steps._graph.values[value]))
                at = self._offset + line.offset
                note = remark(f"{line.rows} of {self._rows(value)} rows")
                lines.append(
                    f"{type_} *const l_{name} = "
                    f"({type_} *)(void *)&{self._arena}.bytes[{at}]; {note}"
                )
        return lines

    def _needs(self) -> list[str]:
        """Return the rows that each node makes for a strip, from the last node back."""
        last, rows = self._name(self._last), self._rows(self._last)
        inner = set(self._values[:-1])
        step = self._strips.rows
        lines = ["/* The rows that this strip needs and that are not there yet. */"]
        lines += [f"open_strip(&r_{self._name(value)});" for value in self._values]
        stop = (
            f"row + {step}"
            if rows % step == 0
            else f"row + {step} < {rows} ? row + {step} : {rows}"
        )
        lines.append(f"need_rows(&r_{last}, row, {stop});")
        for node, value in zip(reversed(self._nodes), reversed(self._values), strict=True):
            name, own = self._name(value), []
            for position, read in enumerate(node.inputs):
                if read in inner:
                    own.append(self._reads(node, position, name, read))
            call = f"make_rows(&r_{name})"
            if own:
                lines += [f"if ({call}) {{", *(f"  {line}" for line in own), "}"]
            else:
                lines.append(f"(void){call};")
        return lines

    def _reads(self, node: Node, position: int, made: str, read: int) -> str:
        """Return statements that record the operand rows needed for result rows."""
        window, name, rows = _window(node, position), self._name(read), self._rows(read)
        if window is None:
            return f"need_rows(&r_{name}, 0, {rows});"
        if window.is_pointwise:
            return f"need_rows(&r_{name}, r_{made}.start, r_{made}.stop);"
        self._steps.kernels.use("row_from")
        stride, before, extent = window.stride, window.before, window.extent
        return (
            f"need_rows(&r_{name}, row_from(r_{made}.start, {stride}, {before}, {rows}),"
            f" row_from(r_{made}.stop, {stride}, {before + stride - extent}, {rows}));"
        )

    def _moves(self) -> list[str]:
        """Return statements that move remaining rows to the front of line buffers."""
        lines = []
        for value in self._values[:-1]:
            if value in self._lines:
                name = self._name(value)
                self._steps.kernels.use("move_rows")
                lines.append(f"move_rows(&r_{name}, l_{name}, {self._row_bytes(value)});")
        return lines

    def _base(self, value: int) -> Base:
        """Return the memory for a value's rows."""
        home = self._home.get(value, value)
        if home in self._lines:
            pointer, row = f"l_{self._name(home)}", f"r_{self._name(home)}.base"
        else:
            pointer, row = self._steps._pointer(home), "0"
        graph = self._steps._graph
        own = arena_type(dtype_of(graph.values[value]))
        if own != arena_type(dtype_of(graph.values[home])):
            pointer = f"(({own} *)(void *){pointer})"
        return Base(pointer, row)

    def _calls(self) -> list[str]:
        """Return the calls that make rows."""
        lines = []
        inner = set(self._values)
        for node, value in zip(self._nodes, self._values, strict=True):
            name = self._name(value)
            _, emit = self._steps.lowered(node)

            def base(position: int, node: Node = node) -> Base:
                read = _operand(node, position)
                return self._base(read) if read in inner else Base(self._steps._pointer(read), "0")

            start, stop = f"r_{name}.start", f"r_{name}.stop"
            output = at_row(self._base(value), start, self._row_numbers(value))
            calls = emit(CodePart(start, stop, base, partial(str, output)))
            if value == self._last:
                lines += calls
            else:
                lines += [f"if ({start} < {stop}) {{", *(f"  {call}" for call in calls), "}"]
        return lines


def _operand(node: Node, position: int) -> int:
    """Return an operand that no node leaves out."""
    value = node.inputs[position]
    assert value is not None
    return value


def _only(node: Node) -> int:
    """Return the only result of a node in strips."""
    (value,) = (each for each in node.outputs if each is not None)
    return value


def _window(node: Node, position: int) -> Window | None:
    """Return the window over an operand's rows."""
    for window in node.effects.windows:
        if window.input == position:
            if window.axis != ROWS or window.scale != 1:
                break
            return window
    else:
        return None
    raise UnsupportedOp(f"node {quoted(node.name)} makes rows that generated code cannot make")
