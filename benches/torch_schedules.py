"""
Peak bytes and extra FLOP of PyTorch's activation budget and of our partitioner.

Needs torch, timm and transformers; weights are random. Each operator runs as PyTorch has it
(``aot_eager``), on the CPU. Models with batch normalization are left out: cut by the activation
budget without decompositions, PyTorch refuses that their statistics change.
Prints a table in Markdown, or of one model its points.

    PYTHONPATH=tests/python python benches/torch_schedules.py [MODEL]
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import timm
import torch
import transformers
from torch._functorch.partitioners import min_cut_rematerialization_partition

from arenaplan.integrations import torch as apt
from live_tensors import CountedStep


class Point(NamedTuple):
    """One compiled step."""

    peak: int
    flop: int


def image(model: Any, size: int = 64, batch: int = 8) -> tuple[Any, Any, Any]:
    x = torch.randn(batch, 3, size, size)
    return model, lambda net, x: net(x).square().mean(), (x,)


def tokens(kind: str, width: int = 128, **options: Any) -> tuple[Any, Any, Any]:
    config = transformers.AutoConfig.for_model(kind, vocab_size=256, **options)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    ids = torch.randint(0, 256, (4, width))
    return model.train(), lambda net, ids: net(ids).last_hidden_state.square().mean(), (ids,)


MODELS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "gpt2": lambda: tokens(
        "gpt2", n_embd=128, n_layer=4, n_head=4, n_positions=128, use_cache=False
    ),
    "mixer": lambda: image(
        timm.models.MlpMixer(img_size=64, patch_size=8, num_blocks=6, embed_dim=128)
    ),
}


def measured(made: tuple[Any, Any, Any], partition: Any) -> Point:
    """Compile a step, run it twice, and count the second run."""
    model, loss, batch = made
    step = CountedStep(model, loss, partition_fn=partition)
    step(*batch)
    step.live.flop = 0
    peak = step(*batch)[2]
    return Point(peak, step.live.flop)


def budgets(made: tuple[Any, Any, Any]) -> Iterator[Point]:
    """Yield the points of the activation budget, from 1 to 0.1."""
    for tenth in range(10, 0, -1):
        with torch._functorch.config.patch(activation_memory_budget=tenth / 10):
            yield measured(made, min_cut_rematerialization_partition)


def plans(made: tuple[Any, Any, Any]) -> Iterator[tuple[Point, apt.PartitionReport]]:
    """Yield the points of our plans, from all bytes to the fewest."""
    cut = apt.partitioner("100%")
    fewest = measured(made, cut), cut.reports[0]
    most, least = cut.reports[0].plain_bytes, cut.reports[0].predicted_bytes
    for part in range(9):
        cut = apt.partitioner(most - (most - least) * part // 9)
        yield measured(made, cut), cut.reports[0]
    yield fewest


def is_falling(points: list[Point]) -> bool:
    return all(a.peak >= b.peak for a, b in itertools.pairwise(points))


def gain(theirs: list[Point], ours: list[Point]) -> float:
    """Return their peak over ours at equal FLOP or less, as a geometric mean over their points."""
    ratios = [
        min(theirs[k].peak for k in range(at + 1))
        / min((p.peak for p in ours if p.flop <= point.flop), default=max(ours).peak)
        for at, point in enumerate(theirs)
    ]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    torch.set_num_threads(1)
    chosen = sys.argv[1:]
    print("| model | plain MiB | budget: least | falls | plan: least | falls | ratio | peak |")
    print("| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |")
    for name in chosen or MODELS:
        torch.manual_seed(0)
        made = MODELS[name]()
        theirs = list(budgets(made))
        pairs = list(plans(made))
        ours = [point for point, _ in pairs]
        ratio = max(point.peak / report.predicted_bytes for point, report in pairs)
        least = [f"{min(found).peak / 2**20:.1f}" for found in (theirs, ours)]
        falls = ["yes" if is_falling(found) else "no" for found in (theirs, ours)]
        print(
            f"| {name} | {ours[0].peak / 2**20:.1f} | {least[0]} | {falls[0]} | {least[1]} "
            f"| {falls[1]} | {ratio:.2f} | {gain(theirs, ours):.2f} |",
            flush=True,
        )
        if chosen:
            base = ours[0].flop
            for found in (theirs, ours):
                print([(f"{p.peak / 2**20:.2f}", f"{p.flop / base - 1:.1%}") for p in found])


if __name__ == "__main__":
    main()
