"""Facts for the firmware around TensorFlow Lite Micro, in C headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from arenaplan.graph import Graph
from arenaplan.tflite.reader.offline import read_offsets
from arenaplan.tflite.reader.tflite_model import TfliteModel
from arenaplan.tflite.reader.timeline import timeline_of
from arenaplan.tflite.runtime.arena import ArenaTotal, total
from arenaplan.tflite.runtime.build import REFERENCE, Build
from arenaplan.tflite.runtime.resolver import added_operators, operators_of

_PER_LINE = 6


@dataclass(frozen=True, slots=True)
class Firmware:
    """Facts about a TFLite file that firmware needs to run the model."""

    build: Build
    """The runtime build for the figures."""
    arenas: Mapping[int, ArenaTotal]
    """The whole arena, by pointer bits."""
    operators: tuple[str, ...]
    """Operators that the resolver must register."""
    added: tuple[str, ...] | None
    """Operators not yet registered for another model; ``None`` if no other model is given."""
    inputs: tuple[int, ...]
    """
    Per input, the value in the graph for TensorFlow Lite Micro. Empty for a model with an
    accelerator, whose memory contains the inputs.
    """
    outputs: tuple[int, ...]


def firmware_of(
    model: TfliteModel, build: Build = REFERENCE, original: TfliteModel | None = None
) -> Firmware:
    """
    Return the facts about an unchanged model, with the plan in the file, if any.

    Parameters
    ----------
    model : TfliteModel
        The model.
    build : Build, optional
        The runtime build. Figures are for 32-bit and 64-bit pointers, unless the build was
        measured.
    original : TfliteModel, optional
        A model that the firmware already runs.
    """
    offsets = read_offsets(model)
    builds = [build] if build.profile else [replace(build, pointer=bits) for bits in (32, 64)]
    timeline = timeline_of(model)
    boxes = () if timeline.areas else timeline.boxes
    place = {box.tensor: position for position, box in enumerate(boxes)}
    main = model.subgraphs[0]
    return Firmware(
        build,
        {each.pointer: total(model, offsets, build=each) for each in builds},
        operators_of(model),
        None if original is None else added_operators(original, model),
        tuple(place[index] for index in main.inputs if index in place),
        tuple(place[index] for index in main.outputs if index in place),
    )


def firmware_lines(prefix: str, firmware: Firmware) -> Iterator[str]:
    """Yield the macros for arena and resolver."""
    yield f"/* TensorFlow Lite Micro with {firmware.build.kernels} kernels; the arena of the model"
    yield "   file as it is. The figures for 64 bits include the structures of the recording"
    yield "   allocator. */" if firmware.build.is_package else "   allocator, if it records. */"
    for bits, arena in sorted(firmware.arenas.items()):
        wide = ">" if bits == 64 else "<="
        if len(firmware.arenas) > 1:
            yield f"#if UINTPTR_MAX {wide} 0xffffffff"
        yield f"#define {prefix}_TFLM_ARENA_BYTES {arena.total}"
        yield f"#define {prefix}_TFLM_HEAD_BYTES {arena.head}"
        yield f"#define {prefix}_TFLM_SCRATCH_BYTES {arena.scratch}"
        yield f"#define {prefix}_TFLM_TAIL_BYTES {arena.tail}"
        yield f"#define {prefix}_TFLM_STARTUP_BYTES {arena.startup}"
        if len(firmware.arenas) > 1:
            yield "#endif"
    yield f"#define {prefix}_TFLM_ARENA_ALIGNMENT 16"
    yield "/* For MicroMutableOpResolver; to be registered:"
    yield from _listed(firmware.operators)
    yield f"#define {prefix}_TFLM_OPERATOR_COUNT {len(firmware.operators)}"
    if firmware.added is not None:
        yield "/* Of these, those that the original model does not need:"
        yield from _listed(firmware.added)
        yield f"#define {prefix}_TFLM_ADDED_OPERATOR_COUNT {len(firmware.added)}"


def _listed(names: Sequence[str]) -> Iterator[str]:
    """Yield names as the rest of a comment."""
    safe = [
        "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:60]
        for name in names
    ]
    rows = [", ".join(safe[i : i + _PER_LINE]) for i in range(0, len(safe), _PER_LINE)]
    yield "     " + (",\n     ".join(rows) if rows else "none") + " */"


def operand_lines(
    prefix: str, labels: Mapping[int | None, str], graph: Graph, firmware: Firmware | None
) -> Iterator[str]:
    """Yield the places of inputs and outputs by number."""
    is_micro = firmware is not None and not graph.outputs
    inputs = firmware.inputs if firmware is not None and is_micro else graph.inputs
    outputs = firmware.outputs if firmware is not None and is_micro else graph.outputs
    for kind, values in (("INPUT", inputs), ("OUTPUT", outputs)):
        yield f"#define {prefix}_{kind}_COUNT {len(values)}"
        for number, value in enumerate(values):
            label = labels.get(value)
            if label is not None:
                yield f"#define {prefix}_{kind}_{number}_OFFSET {prefix}_OFFSET_{label}"
                yield f"#define {prefix}_{kind}_{number}_BYTES {prefix}_BYTES_{label}"
