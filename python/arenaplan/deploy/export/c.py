"""Plans as C headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from arenaplan import _core
from arenaplan._core import Plan, PlannedSpace, Target
from arenaplan.base.errors import UnsupportedModel
from arenaplan.base.quoting import listed
from arenaplan.deploy.export.firmware import Firmware, firmware_lines, operand_lines
from arenaplan.deploy.export.placed import (
    PlacedRow,
    checked_sections,
    guarded,
    has_alias,
    identifiers,
    labels_of,
    prefix_of,
    rows_of,
)
from arenaplan.deploy.export.tflm import TflmPlan
from arenaplan.graph import Graph

_MAX_ENUM: Final = 2**31 - 1
"""Largest enumeration constant: before C23, enumeration constants have type int."""


def header_of(
    graph: Graph,
    plan: Plan,
    *,
    name: str = "",
    sections: Mapping[str, str] | None = None,
    firmware: Firmware | None = None,
) -> str:
    """
    Return a plan as a C header, without warnings in C11 and C++11.

    Parameters
    ----------
    graph : Graph
        The planned graph.
    plan : Plan
        The plan.
    name : str, optional
        Prefix for every identifier; by default the model's name.
    sections : mapping of str to str, optional
        Linker section for each arena, by space name.
    firmware : Firmware, optional
        Facts about the TFLite file, for TensorFlow Lite Micro firmware.

    Returns
    -------
    str
        Arena sizes and alignments as macros, offsets and sizes as enumerations, with several spaces
        also each value's space, the places of inputs and outputs by number, and consistency
        assertions.

    Raises
    ------
    GraphError
        If ``sections`` names a space that the plan does not have, or a section name is not valid.
    TargetMismatch
        If code that calls one kernel per node cannot run the plan: fused nodes, outputs that
        overlap inputs at a distance, or values owned by the caller.
    """
    plan.check_target(Target.known("c"))
    sections = checked_sections(sections, plan)
    prefix = prefix_of(name or plan.model or "model")
    rows = rows_of(graph, plan)
    names = labels_of(rows)
    spaces = list(identifiers(space.name for space in plan.spaces))
    # A single space is not named. With several spaces, the space's name stands where a value's name
    # cannot: all macros are distinct, for any names of values and spaces.
    arenas = [f"{prefix}_ARENA"] if len(spaces) == 1 else [f"{prefix}_ARENA_{s}" for s in spaces]
    head = [
        f"/* Where the values of {_plain(plan.model) or 'a model'} live in memory.",
        f"   Written by arenaplan {_core.__version__}; do not edit. Sizes are in bytes. */",
    ]
    lines = ["#include <stdint.h>", "", *_portability(prefix)]
    for arena, space in zip(arenas, plan.spaces, strict=True):
        lines += ["", *_arena(prefix, arena, space, sections.get(space.name))]
    lines += ["", *_legend(prefix, names, rows), *_constants(prefix, names, rows)]
    labels = {row.value: label for row, label in zip(rows, names, strict=True)}
    lines += operand_lines(prefix, labels, graph, firmware)
    if firmware is not None:
        lines += ["", *firmware_lines(prefix, firmware)]
    if len(spaces) > 1:
        lines += ["", *_homes(prefix, arenas, names, rows)]
    lines += ["", *_assertions(prefix, arenas, names, rows, plan)]
    return guarded(prefix, "PLAN", head, lines)


def shim_of(result: TflmPlan, *, name: str = "model", narrow: int | None = None) -> str:
    """
    Return a plan as a table for TFLite Micro's ``NonPersistentMemoryPlannerShim``.

    The shim requests the tensors that need memory, in order, and then scratch memory, which the
    table cannot place.

    Parameters
    ----------
    result : TflmPlan
        The plan.
    name : str, optional
        Prefix for every identifier.
    narrow : int, optional
        Whole arena in bytes with 32-bit pointers, if the plan's figures are for other pointers.

    Raises
    ------
    UnsupportedModel
        If kernels may request scratch memory.
    """
    if result.scratch:
        raise UnsupportedModel(
            f"kernels of {listed(result.scratch)} may ask for scratch memory, which "
            "NonPersistentMemoryPlannerShim cannot place; use --to tflm"
        )
    prefix = prefix_of(name or "model")
    offsets = result.offsets_of_boxes
    numbers = [f"    {', '.join(map(str, offsets[i : i + 8]))}," for i in range(0, len(offsets), 8)]
    return guarded(
        prefix,
        "SHIM",
        [
            "/* A plan for NonPersistentMemoryPlannerShim.",
            f"   Written by arenaplan {_core.__version__}; do not edit.",
            "   It has the layout of tflite::BufferPlan:",
            "     NonPersistentMemoryPlannerShim planner(",
            f"         reinterpret_cast<const tflite::BufferPlan*>(&{prefix.lower()}_plan));",
            "     MicroAllocator::Create(arena, arena_bytes, &planner); */",
        ],
        [
            "#include <stdint.h>",
            "",
            *_portability(prefix),
            "",
            f"/* Tensors, and the whole arena with {result.build.kernels} kernels. */",
            f"#define {prefix}_HEAD_BYTES INT32_C({result.head_after})",
            *_by_width(f"#define {prefix}_TOTAL_BYTES", result.after.total, narrow),
            f"#define {prefix}_BUFFER_COUNT {len(offsets)}",
            "",
            "static const struct {",
            "  int32_t buffer_count;",
            f"  int32_t offsets[{max(1, len(offsets))}];",
            f"}} {prefix.lower()}_plan = {{",
            f"  {prefix}_BUFFER_COUNT,",
            "  {",
            *(numbers or ["    0,"]),
            "  },",
            "};",
            "",
            f"{prefix}_STATIC_ASSERT(sizeof({prefix.lower()}_plan) ==",
            f'    sizeof(int32_t) * (1 + {max(1, len(offsets))}), "no padding");',
        ],
    )


def _by_width(define: str, wide: int, narrow: int | None) -> Iterator[str]:
    """Yield a definition, with two numbers as a definition by pointer size."""
    if narrow is None:
        yield f"{define} INT32_C({wide})"
        return
    yield from ("#if UINTPTR_MAX > 0xffffffff", f"{define} INT32_C({wide})")
    yield from ("#else", f"{define} INT32_C({narrow})", "#endif")


def _plain(name: str, longest: int | None = 80) -> str:
    """Return a name that cannot end the enclosing comment."""
    plain = (c if c.isascii() and (c.isalnum() or c in " ._-:/;") else "_" for c in name)
    return "".join(plain).replace("//", "_/")[:longest]


def _portability(prefix: str) -> Iterator[str]:
    """Yield the spellings that differ between C and C++."""
    yield "#if defined(__cplusplus)"
    yield f"#define {prefix}_STATIC_ASSERT(condition, why) static_assert(condition, why)"
    yield f"#define {prefix}_ALIGNAS(bytes) alignas(bytes)"
    yield "#else"
    yield f"#define {prefix}_STATIC_ASSERT(condition, why) _Static_assert(condition, why)"
    yield f"#define {prefix}_ALIGNAS(bytes) _Alignas(bytes)"
    yield "#endif"


def _arena(
    prefix: str,
    arena: str,
    space: PlannedSpace,
    section: str | None,
) -> Iterator[str]:
    """Yield an arena's size, alignment, section, and a defining macro."""
    attribute = f' __attribute__((section("{section}")))' if section else ""
    yield f"#define {arena}_BYTES UINT64_C({space.arena_bytes})"
    yield f"#define {arena}_ALIGNMENT {space.alignment}"
    if space.capacity is not None:
        yield f"#define {arena}_CAPACITY UINT64_C({space.capacity})"
    yield f"#ifndef {arena}_SECTION"
    yield f"#define {arena}_SECTION{attribute}"
    yield "#endif"
    # No array has zero elements, but an arena may have zero bytes.
    size = max(1, space.arena_bytes)
    yield f"/* For example: {arena}_DEFINE(static, memory); */"
    yield f"#define {arena}_DEFINE(storage, name) \\"
    yield f"  {prefix}_ALIGNAS({arena}_ALIGNMENT) storage uint8_t name[{size}] \\"
    yield f"      {arena}_SECTION"


def _legend(prefix: str, names: list[str], rows: list[PlacedRow]) -> Iterator[str]:
    """Yield the full name of every value that is named by number."""
    for name, row in zip(names, rows, strict=True):
        if has_alias(row):
            yield f"/* {prefix}_OFFSET_{name}: {_plain(row.name, None)} */"


def _constants(prefix: str, names: list[str], rows: list[PlacedRow]) -> Iterator[str]:
    """Yield every value's offset and size."""
    for kind, numbers in (
        ("OFFSET", [row.offset for row in rows]),
        ("BYTES", [row.size for row in rows]),
    ):
        if not rows:
            continue
        if max(numbers) > _MAX_ENUM:
            for name, number in zip(names, numbers, strict=True):
                yield f"#define {prefix}_{kind}_{name} UINT64_C({number})"
            continue
        yield f"enum {prefix.lower()}_{kind.lower()} {{"
        for name, number in zip(names, numbers, strict=True):
            yield f"  {prefix}_{kind}_{name} = {number},"
        yield "};"


def _homes(
    prefix: str, arenas: list[str], names: list[str], rows: list[PlacedRow]
) -> Iterator[str]:
    """Yield which arena every value is in, as numbers from 0 on."""
    yield f"enum {prefix.lower()}_arena {{"
    for number, arena in enumerate(arenas):
        yield f"  {arena}_INDEX = {number},"
    yield f"  {prefix}_ARENA_COUNT = {len(arenas)}"
    yield "};"
    if rows:
        yield f"enum {prefix.lower()}_space {{"
        for name, row in zip(names, rows, strict=True):
            yield f"  {prefix}_SPACE_{name} = {arenas[row.space]}_INDEX,"
        yield "};"


def _assertions(
    prefix: str, arenas: list[str], names: list[str], rows: list[PlacedRow], plan: Plan
) -> Iterator[str]:
    """Yield assertions about the numbers, so that edits are noticed."""
    check = f"{prefix}_STATIC_ASSERT"
    for arena, space in zip(arenas, plan.spaces, strict=True):
        if space.arena_bytes:  # Compilers warn about comparisons that are always true.
            yield f'{check}({arena}_BYTES <= SIZE_MAX, "the arena can be addressed");'
        yield (f'{check}(({arena}_ALIGNMENT & ({arena}_ALIGNMENT - 1)) == 0, "a power of two");')
        if space.capacity is not None:
            yield f'{check}({arena}_BYTES <= {arena}_CAPACITY, "the arena fits its space");'
    for name, row in zip(names, rows, strict=True):
        if not row.size:
            continue
        offset, size = f"{prefix}_OFFSET_{name}", f"{prefix}_BYTES_{name}"
        yield (
            f"{check}((uint64_t){offset} + (uint64_t){size} <= {arenas[row.space]}_BYTES, "
            f'"inside the arena");'
        )
