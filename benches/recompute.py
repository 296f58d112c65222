"""
Recomputation on whole training steps: extra work at parts of the bytes without repetitions.

    python benches/recompute.py FOLDER [NAME ...] [--at 0.5 0.4] [--chen]

FOLDER has training steps as ``NAME.json``: values ``[bytes, kind]``, nodes ``[op, inputs,
outputs, flops, cost, in-place pairs]`` and pairs of a new and an old value (``donated``). Values of
kind 1 are outside of the arena, as in the figures of compilers.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import arenaplan as ap
from arenaplan import _core
from arenaplan.planner.plan_options import PlanOptions, core_options, target_of


def training_graph(path: Path) -> ap.Graph:
    """Return a training step as a graph; residents are inputs, which the caller's memory holds."""
    document = json.loads(path.read_text())
    graph = ap.Graph(document["name"])
    donated = {old: new for new, old in document["donated"]}
    for index, (size, kind) in enumerate(document["values"]):
        facts = (f"v{index}", (size,), "uint8")
        if kind != 1:
            graph.value(*facts)
        elif index in donated:
            graph.input(*facts)
        else:
            graph.constant(*facts)
    for index, (op, inputs, outputs, _, cost, pairs) in enumerate(document["nodes"]):
        in_place = [(inputs.index(read), outputs.index(made)) for read, made in pairs]
        # A fused update that reads the previous content writes over it.
        for at, made in enumerate(outputs):
            old = [old for old, new in donated.items() if new == made and old in inputs]
            in_place += [(inputs.index(it), at) for it in old]
        graph.node(
            op,
            inputs,
            outputs,
            name=f"n{index}",
            in_place=list(dict.fromkeys(in_place)),
            pure=True,
            cost=int(cost),
        )
    for old, new in donated.items():
        graph.write_back(new, old)
    graph.output(document["loss"])
    return graph


def main() -> None:
    """Print one line per step and budget."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--at", nargs="*", type=float, default=[0.8, 0.5, 0.4])
    parser.add_argument("--chen", action="store_true")
    options = parser.parse_args()
    keywords = {"inputs": "caller"}
    names = options.names or sorted(path.stem for path in options.folder.glob("*.json"))
    print("step, nodes, given and improved order (MiB); part, budget, arena, extra, bound, CPU s")
    for name in names:
        graph = training_graph(options.folder / f"{name}.json")
        start = time.process_time()
        base = ap.plan(graph, optimize="all,-order", **keywords).arena_bytes
        cheapest = ap.plan(graph, recompute="0%", **keywords).arena_bytes
        spent = time.process_time() - start
        print(
            f"{name:16} {len(graph.nodes):5} given {base / 2**20:8.1f} {cheapest / 2**20:8.1f} MiB"
            f"{'':16} {spent:6.2f}"
        )
        for part in options.at:
            budget = int(cheapest * part)
            start = time.process_time()
            try:
                plan = ap.plan(graph, recompute=budget, **keywords)
                arena = plan.arena_bytes / 2**20
                figures = f"{arena:8.1f} {plan.extra_cost:7.2%} {plan.extra_bound:7.2%}"
            except ap.PlannerError as error:
                figures = f"{error}"
            spent = time.process_time() - start
            line = f"{'':22} {part:4} {budget / 2**20:6.1f} {figures} {spent:6.2f}"
            if options.chen:
                resolved = PlanOptions(**keywords)
                arguments = core_options(resolved, target_of(resolved, graph.target))
                chen = _core.extra_of_chen(graph.core, arguments, [budget])[0]
                line += f"  Chen {'none' if chen is None else f'{chen:.1%}'}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
