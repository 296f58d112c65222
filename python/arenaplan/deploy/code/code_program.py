"""A plan as a C program: header and source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from arenaplan import _core
from arenaplan._core import Target
from arenaplan.base.errors import UnsupportedOp, UnsupportedSubgraph
from arenaplan.base.quoting import quoted
from arenaplan.deploy.code.cmsis_calls import cmsis_nn_calls, directives
from arenaplan.deploy.code.code_kernels import template_text
from arenaplan.deploy.code.code_site import BAD_CALL, BAD_INDEX, MATH, CodePlace
from arenaplan.deploy.code.code_steps import StepTexts
from arenaplan.deploy.code.code_text import arena_type, c_type, comment, remark
from arenaplan.deploy.export.placed import (
    checked_sections,
    guarded,
    identifiers,
    prefix_of,
    rows_of,
)
from arenaplan.graph import Graph, Value
from arenaplan.graph.ops import array_bytes
from arenaplan.run.numpy.signatures import dtype_of
from arenaplan.tflite.reader.code_walk import streamed_values

if TYPE_CHECKING:
    from arenaplan._core import Plan

TARGET: Final = "c-code"
"""The target for generated code."""
_MOST_BYTES: Final = (1 << 31) - 1
"""Offsets have 32 bits."""
_COLUMNS: Final = 48


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """A generated program."""

    name: str
    """Function prefix and file name."""
    header: str
    write: Callable[[], str]
    """Returns the source."""
    arena_bytes: int
    """Bytes of writable memory; there is no other writable memory."""
    constant_bytes: int
    """Bytes in flash memory for weights, tables and parameters, with 32-bit pointers."""
    calls: int = 0
    """Nodes that CMSIS-NN functions compute."""

    @property
    def source(self) -> str:
        """The source."""
        return self.write()

    def files(self) -> dict[str, bytes]:
        """Return file contents by name."""
        return {
            f"{self.name}.h": self.header.encode("ascii"),
            f"{self.name}.c": self.source.encode("ascii"),
        }


def generated(
    graph: Graph,
    plan: Plan,
    *,
    name: str = "",
    sections: Mapping[str, str] | None = None,
) -> CodeFiles:
    """
    Return a model as a C function.

    Parameters
    ----------
    graph : Graph
        The planned graph.
    plan : Plan
        A plan for the target ``"c-code"`` or for a target with fewer features.
    name : str, optional
        Function prefix; by default the model's name.
    sections : mapping of str to str, optional
        Linker section for each arena, by space name.

    Raises
    ------
    UnsupportedOp, UnsupportedDtype
        If a node has no kernel.
    TargetMismatch
        If generated code cannot run the plan.
    GraphError
        If ``sections`` names a space that the plan does not have, or a section name is not valid.
    """
    graph = graph.for_target(TARGET)
    plan.check(graph)
    plan.check_target(Target.known(TARGET))
    if plan.schedule is not None:
        raise UnsupportedOp("nodes that run again are not part of generated code")
    return _Program(graph, plan, name, checked_sections(sections, plan)).files()


class _Program:
    """Builds a program."""

    def __init__(self, graph: Graph, plan: Plan, name: str, sections: Mapping[str, str]) -> None:
        self._graph, self._plan = graph, plan
        self._name = prefix_of(name or plan.model or "model").lower()
        self._macro = self._name.upper()
        self._arenas = self._arena_names(sections)
        self._check_size()
        self._labels = [label.lower() for label in identifiers(v.name for v in graph.values)]
        self._used: dict[int, str] = {}
        self._streams = {value: f"read_{self._labels[value]}" for value in streamed_values(graph)}
        self._inputs = self._parameters(graph.inputs, "in")
        self._outputs = self._parameters(graph.outputs, "out")

    def _arena_names(self, sections: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return each arena's name and section."""
        known = [space.name for space in self._plan.spaces]
        labels = [label.lower() for label in identifiers(known)]
        names = ["arena"] if len(known) == 1 else [f"arena_{label}" for label in labels]
        return [(own, sections.get(space, "")) for own, space in zip(names, known, strict=True)]

    def _check_size(self) -> None:
        """Refuse arenas whose offsets have more than 32 bits."""
        largest = max((space.arena_bytes for space in self._plan.spaces), default=0)
        if largest > _MOST_BYTES:
            raise UnsupportedOp(f"an arena of {largest:,} bytes is too large for generated code")

    def _parameters(self, values: Sequence[int], word: str) -> dict[int, str]:
        """Return the parameter name for each value, in order."""
        values = list(dict.fromkeys(values))
        for value in values:
            self._type(value)
        if len(values) == 1:
            return {values[0]: word}
        return {value: f"{word}{at}" for at, value in enumerate(values)}

    # -- where values are --------------------------------------------------------------------------

    def _place(self, value: int) -> CodePlace | None:
        """Return a value's memory; ``None`` for constants and values inside steps."""
        found = self._plan.placements[value]
        if found is None or self._graph.values[value].kind == "constant":
            return None
        if found.space < len(self._arenas):
            return CodePlace(self._arenas[found.space][0], found.offset)
        return CodePlace(self._callers(value), found.offset)

    def _callers(self, value: int) -> str:
        """Return the parameter in which a value is."""
        own = self._plan.placements[value]
        for parameters in (self._outputs, self._inputs):
            for each, name in parameters.items():
                place = self._plan.placements[each]
                if own is not None and place is not None and place.space == own.space:
                    return name
        raise UnsupportedOp(f"value {quoted(self._graph.values[value].name)} has no memory")

    def _pointer(self, value: int) -> str:
        """Return the name of a value's pointer, and declare the pointer."""
        if value not in self._used:
            self._used[value] = f"t_{self._labels[value]}"
        return self._used[value]

    def _type(self, value: int) -> str:
        found = self._graph.values[value]
        type_ = arena_type(dtype_of(found))
        if type_ is None:
            raise UnsupportedOp(
                f"value {quoted(found.name)} has element type {found.dtype}, which generated code "
                "does not have"
            )
        return type_

    def _bytes(self, value: Value) -> int:
        return array_bytes(value.shape, value.dtype)

    # -- texts -------------------------------------------------------------------------------------

    def files(self) -> CodeFiles:
        """Return the files."""
        steps = StepTexts(
            self._graph,
            self._labels,
            self._place,
            self._pointer,
            [own for own, _ in self._arenas],
        )
        lines = steps.lines(self._plan)
        loads = self._loads()
        stores = self._stores()
        reset = self._reset(steps)
        body = [*loads, *lines, *stores]
        function = self._function(body)

        def source() -> str:
            kernels = steps.kernels.text()
            found = MATH.search("\n".join([kernels, *body]))
            return "\n".join(
                [
                    *self._head(steps),
                    *self._includes(steps.constants.needs_math or found is not None),
                    *self._arena_lines(),
                    *self._places(),
                    kernels,
                    *steps.constants.texts(),
                    "",
                    *reset,
                    *function,
                    "",
                ]
            )

        arena = sum(space.arena_bytes for space in self._plan.spaces)
        header = self._header("\n".join(lines))
        calls = cmsis_nn_calls(self._graph)
        return CodeFiles(self._name, header, source, arena, steps.constants.size, calls)

    def _signature(self) -> str:
        """Return the function's declaration."""
        parts = [
            f"void (*{name})(void *context, int32_t start, int32_t stop, "
            f"{c_type(dtype_of(self._graph.values[value]))} *rows)"
            for value, name in self._streams.items()
        ]
        parts += ["void *context"] if parts else []
        parts += [
            f"const {c_type(dtype_of(self._graph.values[value]))} *{name}"
            for value, name in self._inputs.items()
        ]
        parts += [
            f"{c_type(dtype_of(self._graph.values[value]))} *{name}"
            for value, name in self._outputs.items()
        ]
        return f"int {self._name}_run({', '.join(parts) or 'void'})"

    @property
    def _has_states(self) -> bool:
        return any(self._is_state(value) for value in self._graph.values)

    def _is_state(self, value: Value) -> bool:
        return value.kind == "state" and self._place(value.index) is not None

    def _header(self, body: str) -> str:
        """Return the header of a function with this body."""
        bad = "".join(
            f" {code} if {why}."
            for code, why in (
                (BAD_INDEX, "an index is outside of its operand"),
                (BAD_CALL, "CMSIS-NN refuses an operand"),
            )
            if f"return {code};" in body
        )
        macro, graph = self._macro, self._graph
        about = [
            f"The model {self._plan.model or self._name} as a C function.",
            f"Written by arenaplan {_core.__version__}; do not edit.",
        ]
        lines = [
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/* Bytes of memory that is written: static, in the source. */",
            f"#define {macro}_ARENA_BYTES {sum(s.arena_bytes for s in self._plan.spaces)}",
        ]
        for value, name in self._streams.items():
            found = graph.values[value]
            shape = "x".join(map(str, found.shape))
            lines += comment(
                [
                    f"{name}: writes rows start to stop - 1 of an input, {found.name},",
                    f"{found.dtype} {shape}; rows are asked for in order, each once at most.",
                ]
            )
        for own, word in ((self._inputs, "an input"), (self._outputs, "an output")):
            for value, name in own.items():
                found = graph.values[value]
                shape = "x".join(map(str, found.shape)) or "one number"
                lines.append(remark(f"{name}: {word}, {found.name}, {found.dtype} {shape}"))
                lines.append(f"#define {macro}_{name.upper()}_NUMBERS {prod(found.shape)}")
        lines += [
            "",
            *comment(
                [
                    f"Computes the outputs. Returns 0, or 1 if a pointer is NULL.{bad}",
                    "Runs of one model must not overlap in time: they share the arena.",
                ]
            ),
            f"{self._signature()};",
        ]
        if self._has_states:
            lines += [
                "",
                "/* Gives all states their first content. Call it before the first run. */",
                f"void {self._name}_reset(void);",
            ]
        lines += ["", "#ifdef __cplusplus", "}", "#endif"]
        return guarded(macro, "CODE", [*comment(about)], lines)

    def _head(self, steps: StepTexts) -> list[str]:
        """Return the first comment: figures, and the plan."""
        plan = self._plan
        lines = [
            f"The model {plan.model or self._name} as a C function: C99, no allocation.",
            f"Written by arenaplan {_core.__version__}; do not edit.",
            "",
            f"arena      {sum(s.arena_bytes for s in plan.spaces)} bytes that are written",
            f"constants  {steps.constants.size} bytes, with 32-bit pointers",
            "",
            "The plan: a row for each value in the arena, a column for each step or several.",
            "",
        ]
        count = len(plan.steps)
        scale = -(-max(count, 1) // _COLUMNS)
        width = min(_COLUMNS, -(-max(count, 1) // scale) + 1)
        rows = [row for row in rows_of(self._graph, plan) if row.space < len(self._arenas)]
        for row in sorted(rows, key=lambda row: (row.space, row.offset, row.start)):
            first = row.start // scale
            bar = " " * first + "#" * max(-(-row.end // scale) - first, 1)
            lines.append(f"{row.offset:>9} {row.size:>9}  {bar:<{width}}  {row.name[:60]}")
        return list(comment(lines))

    def _includes(self, needs_math: bool) -> list[str]:
        """Return includes, and types through which the arena is read."""
        return [
            f'#include "{self._name}.h"',
            "",
            *(["#include <math.h>"] if needs_math else []),
            "#include <stddef.h>",
            "#include <string.h>",
            *directives(self._graph),
            "",
            template_text("prelude"),
        ]

    def _arena_lines(self) -> list[str]:
        """Return the arenas."""
        lines = []
        for (name, section), space in zip(self._arenas, self._plan.spaces, strict=True):
            type_ = f"{name}_t"
            where = ""
            if section:
                where = f' __attribute__((__section__("{section}")))'
            lines += [
                "typedef union {",
                "  int64_t whole; /* for its alignment */",
                "  double real;",
                f"  uint8_t bytes[{max(space.arena_bytes, 1)}];",
                f"}} {type_};",
                f"static {type_} {name} ALIGNED({space.alignment}){where};",
                "",
            ]
        sizes = " + ".join(str(space.arena_bytes) for space in self._plan.spaces) or "0"
        lines.append(f"ASSERTED(arena_size, {self._macro}_ARENA_BYTES == {sizes});")
        return lines

    def _places(self) -> list[str]:
        """Return assertions that every value is inside the arena and aligned."""
        lines = []
        for value in sorted(self._used):
            place = self._place(value)
            found = self._graph.values[value]
            if place is None or place.memory not in dict(self._arenas):
                continue
            size, item = self._bytes(found), dtype_of(found).itemsize
            lines.append(
                f"ASSERTED({self._labels[value]}, {place.offset} % {item} == 0 && "
                f"{place.offset} + {size} <= sizeof({place.memory}.bytes));"
            )
        return [*lines, ""]

    def _loads(self) -> list[str]:
        """Return the statements that copy inputs into the arena."""
        lines = []
        for value, name in self._inputs.items():
            place = self._place(value)
            found = self._graph.values[value]
            if place is not None and place.memory != name and self._bytes(found):
                lines.append(f"(void)memcpy({self._pointer(value)}, {name}, {self._bytes(found)});")
        return lines

    def _stores(self) -> list[str]:
        """Return the statements that copy outputs out of the arena."""
        lines = [""]
        for value, name in self._outputs.items():
            found, place = self._graph.values[value], self._place(value)
            size = self._bytes(found)
            if found.kind == "constant":
                raise UnsupportedSubgraph(f"output {quoted(found.name)} is a constant")
            if place is not None and place.memory != name and size:
                lines.append(f"(void)memcpy({name}, {self._pointer(value)}, {size});")
        return lines

    def _reset(self, steps: StepTexts) -> list[str]:
        """Return the function that initializes states."""
        if not self._has_states:
            return []
        lines = [f"void {self._name}_reset(void)", "{"]
        for value in self._graph.values:
            place = self._place(value.index)
            if place is None or not self._is_state(value):
                continue
            at, size = f"&{place.memory}.bytes[{place.offset}]", self._bytes(value)
            first = self._graph.initial(value.index)
            if first is None or not np.any(first):
                lines.append(f"  (void)memset({at}, 0, {size});")
            else:
                name = steps.constants.array(f"{self._labels[value.index]}_first", first)
                lines.append(f"  (void)memcpy({at}, {name}, {size});")
        return [*lines, "}", ""]

    def _function(self, body: Sequence[str]) -> list[str]:
        """Return the function that runs the model."""
        lines = [self._signature(), "{"]
        text = "\n".join(body)
        if re.search(r"\bimage\b", text):
            lines.append("  int32_t image;")
        for value in sorted(self._used, key=lambda value: self._place(value) or CodePlace("", 0)):
            lines.append(f"  {self._declaration(value)}")
        names = [*self._streams.values(), *self._inputs.values(), *self._outputs.values()]
        if names:
            lines += [
                f"  if ({' || '.join(f'{name} == NULL' for name in names)}) {{",
                "    return 1;",
                "  }",
            ]
        lines += [f"  {line}".rstrip() for line in body]
        return [*lines, "  return 0;", "}"]

    def _declaration(self, value: int) -> str:
        """Return the declaration of a value's pointer."""
        place, type_ = self._place(value), self._type(value)
        found = self._graph.values[value]
        if place is None:
            raise UnsupportedOp(f"value {quoted(found.name)} has no memory")
        note = remark(f"{found.name}, {'x'.join(map(str, found.shape)) or 'one number'}")
        name = self._used[value]
        if place.memory in self._inputs.values():
            source = f"(const uint8_t *){place.memory} + {place.offset}"
            return (
                f"const {type_} *const {name} = (const {type_} *)(const void *)({source}); {note}"
            )
        source = f"&{place.memory}.bytes[{place.offset}]"
        if place.memory in self._outputs.values():
            source = f"((uint8_t *){place.memory} + {place.offset})"
        return f"{type_} *const {name} = ({type_} *)(void *){source}; {note}"
