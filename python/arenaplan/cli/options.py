"""The options of :func:`arenaplan.plan`, on the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

from arenaplan.cli.common import byte_count, group
from arenaplan.errors import InvalidOption, InvalidSize
from arenaplan.planning import technique_names
from arenaplan.spaces import Space, aligned, parse_spaces

_DEFAULT_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Alignments:
    """What divides offsets: in every space, and in those that are named."""

    everywhere: int = _DEFAULT_ALIGNMENT
    spaces: dict[str, int] = field(default_factory=dict)


def add_plan_options(parser: argparse.ArgumentParser, optimize: str = "all") -> None:
    """Add the options of :func:`arenaplan.plan`; ``optimize`` is what is done by default."""
    techniques, memory = group(parser, "techniques"), group(parser, "memory")
    search = group(parser, "search")
    memory.add_argument(
        "--align",
        type=_alignments,
        default=Alignments(),
        metavar="BYTES",
        help="divides every offset (default: 64); SPACE=BYTES for one space, such as sram=16",
    )
    memory.add_argument(
        "--budget",
        type=_spaces,
        default=None,
        metavar="SPACES",
        help="memories, fastest first, such as sram=64KiB,psram=8MiB; "
        "NAME=SIZE@COST says what it costs to move a byte (default: the position, from 0)",
    )
    memory.add_argument(
        "--pin",
        type=_pin,
        action="append",
        default=[],
        metavar="SPACE=PATTERN",
        help="memory for values by name, such as 'psram=logits*'; can be repeated",
    )
    techniques.add_argument(
        "--optimize",
        default=optimize,
        metavar="all|none|NAME,NAME",
        help="what may be done to need fewer bytes: views, in-place, elision, fusion, order, "
        f"streaming, overlap (default: {optimize})",
    )
    search.add_argument(
        "--order",
        choices=("given", "search"),
        default="search",
        help="keep the model's order of operators, or look for a better one (default: search)",
    )
    search.add_argument(
        "--effort",
        choices=("fast", "default", "max"),
        default="default",
        help="how long to look for a better choice",
    )
    techniques.add_argument(
        "--no-in-place", action="store_true", help="never let an output take over an input's bytes"
    )
    memory.add_argument(
        "--preserve-inputs", action="store_true", help="keep the inputs' bytes until the end"
    )
    memory.add_argument(
        "--inputs",
        choices=("inside", "caller", "reuse"),
        default="inside",
        help="whose memory inputs are in: the arena's, or the caller's, which is only read; "
        "with reuse, results may overwrite them in the arena (default: inside)",
    )
    memory.add_argument(
        "--outputs",
        choices=("inside", "caller"),
        default="inside",
        help="whose memory outputs are in: the arena's, or the caller's (default: inside)",
    )
    memory.add_argument(
        "--workspace",
        choices=("none", "auto"),
        default="none",
        help="count activations only, or add what the NumPy kernels need (default: none)",
    )


def plan_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of :func:`arenaplan.plan` that the options stand for."""
    align: Alignments = options.align
    spaces: list[Space] | None = options.budget
    if spaces is None and (align.spaces or options.pin):
        raise InvalidOption("--align SPACE=BYTES and --pin need a --budget that names the spaces")
    techniques = technique_names(options.optimize)
    if options.order == "given":
        techniques = [name for name in techniques if name != "order"]
    return {
        "alignment": align.everywhere,
        "optimize": techniques or ["none"],
        "effort": options.effort,
        "in_place": not options.no_in_place,
        "preserve_inputs": options.preserve_inputs,
        "inputs": options.inputs,
        "outputs": options.outputs,
        "workspace": options.workspace,
        "spaces": None if spaces is None else aligned(spaces, align.spaces),
        "pins": {pattern: space for space, pattern in options.pin} or None,
    }


def _alignments(text: str) -> Alignments:
    """Read ``64``, ``sram=16`` or ``64,sram=16``."""
    everywhere, spaces = _DEFAULT_ALIGNMENT, {}
    for part in text.split(","):
        name, separator, number = part.strip().rpartition("=")
        if bool(separator) != bool(name):
            raise argparse.ArgumentTypeError(f"{part!r} is not BYTES or SPACE=BYTES")
        if separator:
            spaces[name] = byte_count(number)
        else:
            everywhere = byte_count(number)
    return Alignments(everywhere, spaces)


def _spaces(text: str) -> list[Space]:
    """Read ``sram=64KiB,psram=8MiB``."""
    try:
        return parse_spaces(text)
    except (InvalidOption, InvalidSize) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pin(text: str) -> tuple[str, str]:
    """Read ``SPACE=PATTERN``."""
    space, separator, pattern = text.partition("=")
    if not (separator and space and pattern):
        raise argparse.ArgumentTypeError(f"{text!r} is not SPACE=PATTERN, such as psram=logits*")
    return space, pattern
