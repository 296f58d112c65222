"""
Changes of TFLite files where the reader follows them: offsets, tables, lengths, numbers.

``python tflite_mutations.py`` tries many seeds, each with a limit of time, and prints errors that
have no type.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable

import arenaplan as ap
import flat
import seeds
from mobilenet import mobilenet_v2_int8

WORDS = (0, 1, 2, 3, 4, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


def bases() -> list[bytes]:
    """Return files of several kinds of networks."""
    return [
        flat.write(flat.fragmented(reshape=True)),
        flat.write(flat.fragmented(reshape=False)),
        flat.write(flat.chain("NEG", "NEG", "NEG")),
        mobilenet_v2_int8(side=32, classes=10)[:20_000],
        mobilenet_v2_int8(side=32, classes=10),
    ]


BASES = bases()


def mutant(seed: int) -> bytes:
    """Return a changed file."""
    draw = random.Random(seed)
    data = bytearray(draw.choice(BASES))
    for _ in range(draw.randint(1, 4)):
        if not data:
            break
        # Tables and offsets are near the ends of a file; weights are zeros in its middle.
        places = [at for at in (draw.randrange(len(data)) for _ in range(12)) if data[at]]
        at = draw.choice(places) if places else draw.randrange(len(data))
        kind = draw.randrange(6)
        if kind == 0:
            data[at] = draw.choice(WORDS) & 0xFF
        elif kind == 1:
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 2 and at + 4 <= len(data):
            struct.pack_into("<I", data, at & ~3, draw.choice(WORDS))
        elif kind == 3 and at + 4 <= len(data):
            word = struct.unpack_from("<I", data, at & ~3)[0]
            step = draw.choice([-64, -8, -4, -1, 1, 4, 8, 64])
            struct.pack_into("<I", data, at & ~3, (word + step) % 2**32)
        elif kind == 4:
            size = draw.choice([2, 4, 8, 16, 64])
            other = draw.randrange(len(data))
            part = data[other : other + size]
            data[at : at + len(part)] = part
        elif draw.random() < 0.2:
            del data[at:]
    return bytes(data)


def outcome(data: bytes) -> str:
    """Return what becomes of a file: the name of the typed error, or ``"planned"``."""
    try:
        graph = ap.load(data)
        plan = ap.plan(graph, effort="fast")
        plan.check(graph)
    except ap.PlannerError as error:
        return ap.errors.kind_of(error)
    return "planned"


def _attempt(seed: int) -> tuple[str, Callable[[], str]]:
    return "a file", lambda: outcome(mutant(seed))


if __name__ == "__main__":
    sys.exit(seeds.main("files", 4 << 30, _attempt))
