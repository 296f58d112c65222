"""The plan that a TFLite model brings along for TensorFlow Lite Micro."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from arenaplan.base.errors import fault
from arenaplan.tflite.reader.tflite_model import TfliteModel

METADATA_NAME: Final = "OfflineMemoryAllocation"


_VERSION: Final = 1


def packed_offsets(offsets: Sequence[int], subgraphs: int = 1) -> bytes:
    """Return the metadata that gives the runtime an offset for every tensor; -1 gives none."""
    return struct.pack(f"<3i{len(offsets)}i", _VERSION, subgraphs, len(offsets), *offsets)


def read_offsets(model: TfliteModel) -> tuple[int, ...] | None:
    """
    Return the offsets stored in a model, or None.

    Raises
    ------
    PlanError
        If the number of offsets differs from the number of tensors.
    """
    # The runtime obeys the last entry.
    entries = [entry for entry in model.metadata if entry.name == METADATA_NAME]
    if not entries:
        return None
    content = model.content(entries[-1].buffer)
    if len(content) < 12:
        raise fault("PlanCorrupt", f"the metadata {METADATA_NAME} has {len(content)} bytes")
    (count,) = struct.unpack_from("<I", content, 8)
    tensors = sum(len(graph.tensors) for graph in model.subgraphs)
    if count != tensors or len(content) < 12 + 4 * count:
        raise fault(
            "PlanCorrupt",
            f"the metadata {METADATA_NAME} has {len(content)} bytes for {count} offsets; the model "
            f"has {tensors} tensors",
        )
    return struct.unpack_from(f"<{count}i", content, 12)
