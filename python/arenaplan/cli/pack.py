"""``arenaplan pack``: offsets for buffers from a CSV file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from arenaplan import _core
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import CapacityExceeded, InvalidOption
from arenaplan.cli.printing import print_json, shown, size
from arenaplan.cli.sources import delivering, goes_to_stdout, read_table
from arenaplan.cli.syntax import PerSpace
from arenaplan.cli.watch import gap, watching
from arenaplan.planner.packing import check_limits, describe
from arenaplan.planner.spaces import ARENA, Space

if TYPE_CHECKING:
    from arenaplan.planner import Packing
    from arenaplan.planner.packing import Described


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    limits = check_limits(options.time_limit, options.node_limit, options.seed)
    spaces = _spaces(options)
    text = read_table(options.file)
    extra: dict[str, Any] = {}
    if options.after is not None:
        if options.time_limit is not None or options.node_limit is not None:
            raise InvalidOption("option after: such a search has limits of its own")
        if options.compact:
            raise InvalidOption("option after: buffers that stay are not moved down")
        old = read_table(options.after)
        again = _core.pack_csv_again(text, old, spaces, options.seed)
        packing, extra["moved"], extra["peak_of_staying"] = again
    else:
        # An interrupted packing reports the interruption itself.
        with watching(options, catches=False) as watch:
            packing = _core.pack_csv(
                text, spaces, **limits, compact=options.compact, on_progress=watch
            )
    # A file with offsets past the capacity would look like an answer.
    fits = packing.status not in ("infeasible", "unknown")
    if options.why and packing.status == "infeasible":
        proofs = _core.pack_csv_blame(text, spaces)
        extra["infeasible_subsets"] = dict(proofs)
    with delivering(options, packing.to_csv if fits else None):
        report(packing, extra, as_json=options.json and not goes_to_stdout(options))
    if packing.interrupted:
        raise KeyboardInterrupt
    if not fits:
        proof = "cannot" if packing.status == "infeasible" else "were not found to"
        raise CapacityExceeded(f"the buffers {proof} fit {_limits(options)}")


def _spaces(options: argparse.Namespace) -> list[Described]:
    """Return the properties shared by all spaces, and the spaces that options name."""
    every = [zone for name, zone in options.reserve if name is None]
    sizes = _sizes(options)
    align: PerSpace = options.align or PerSpace()
    names = [*sizes, *align.spaces]
    names += [name for name, _ in options.reserve if name is not None]
    budget = options.budget
    named = [
        describe(
            Space(
                name,
                sizes.get(name, budget),
                alignment=align.spaces.get(name, align.everywhere),
            ),
            every + [zone for of, zone in options.reserve if of == name],
        )
        for name in dict.fromkeys(names)
    ]
    return [describe(Space(ARENA, budget, alignment=align.everywhere), every), *named]


def _sizes(options: argparse.Namespace) -> dict[str, int | None]:
    """Return the capacities of spaces that have a size."""
    return {space.name: space.capacity for space in options.spaces or ()}


def _limits(options: argparse.Namespace) -> str:
    """Return the space limits in words."""
    parts = [] if options.budget is None else [f"{options.budget:,} bytes"]
    parts += [f"{size:,} bytes of {name}" for name, size in _sizes(options).items()]
    return ", ".join(parts)


def report(packing: Packing, extra: dict[str, Any], *, as_json: bool) -> None:
    """Print a packing report."""
    if as_json:
        print_json({**summarize(packing), **extra})
        return
    proof = "proven minimal" if packing.status == "optimal" else packing.status
    print(f"{len(packing):,} buffers")
    print(f"  peak         {size(packing.peak)}, {proof}")
    print(f"  lower bound  {size(packing.lower_bound)}")
    if "moved" in extra:
        print(f"  moved        {len(extra['moved']):,} of {len(packing):,} buffers")
        more = max(0, extra["peak_of_staying"] - packing.peak)
        print(f"  staying      costs {more:,} bytes, if only those move that must")
    for name, subset in extra.get("infeasible_subsets", {}).items():
        print(f"  too large    for {shown(name)}: {', '.join(map(shown, subset))}")
    print(f"  seconds      {packing.seconds:.3f}")


def summarize(packing: Packing) -> dict[str, Any]:
    """Return the ``pack --json`` document."""
    return {
        "buffers": len(packing),
        **fields_of(packing, "peak lower_bound status nodes seconds stages"),
        "gap": gap(packing.peak, packing.lower_bound),
    }
