"""
Peak bytes and extra FLOP of PyTorch's activation budget and of our partitioner.

Needs torch, torchvision, timm and transformers; weights are random. Each operator runs as PyTorch
has it (``aot_eager``). Bytes are counted at each operator. Batch normalization is decomposed for
both: cut by the activation budget without decompositions, PyTorch refuses that the statistics
change.
Prints a table in Markdown, and of chosen models their points.

    PYTHONPATH=tests/python python benches/torch_schedules.py [MODEL ...]
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import timm
import torch
import torchvision.models as vision
import transformers
from torch import nn
from torch._decomp import get_decompositions
from torch._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)

from arenaplan.integrations import torch as apt
from live_tensors import CountedStep


class Point(NamedTuple):
    """One compiled step."""

    peak: int
    flop: int


STEPS = 20
"""Steps over which losses are compared."""

NORMALIZATION = (
    torch.ops.aten._native_batch_norm_legit_functional,
    torch.ops.aten.native_batch_norm_backward,
)


class Made(NamedTuple):
    """A model with a loss and a batch."""

    model: Any
    loss: Callable[..., Any]
    batch: tuple[Any, ...]


class UNet(nn.Module):
    """Convolutions at four sizes, with skips."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def convolved(n: int, m: int) -> list[nn.Module]:
            return [nn.Conv2d(n, m, 3, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU()]

        def pair(n: int, m: int) -> nn.Module:
            return nn.Sequential(*convolved(n, m), *convolved(m, m))

        w = width
        self.down = nn.ModuleList([pair(3, w), pair(w, 2 * w), pair(2 * w, 4 * w)])
        self.middle = pair(4 * w, 8 * w)
        self.up = nn.ModuleList([pair(12 * w, 4 * w), pair(6 * w, 2 * w), pair(3 * w, w)])
        self.head = nn.Conv2d(w, 3, 1)

    def forward(self, x: Any) -> Any:
        skipped = []
        for down in self.down:
            skipped.append(down(x))
            x = nn.functional.max_pool2d(skipped[-1], 2)
        x = self.middle(x)
        for up in self.up:
            x = nn.functional.interpolate(x, scale_factor=2)
            x = up(torch.cat([x, skipped.pop()], 1))
        return self.head(x)


def image(model: Any, size: int = 64, batch: int = 8) -> Made:
    x = torch.randn(batch, 3, size, size)
    return Made(model.train(), lambda net, x: net(x).square().mean(), (x,))


def tokens(kind: str, width: int = 128, **options: Any) -> Made:
    options = {"vocab_size": 256, "hidden_size": 128, "num_hidden_layers": 4} | options
    config = transformers.AutoConfig.for_model(kind, num_attention_heads=4, **options)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    ids = torch.randint(0, 256, (4, width))
    return Made(model.train(), lambda net, ids: net(ids).last_hidden_state.square().mean(), (ids,))


MODELS: dict[str, Callable[[], Made]] = {
    "GPT-2": lambda: tokens("gpt2", n_positions=128, use_cache=False),
    "BERT": lambda: tokens("bert", intermediate_size=512, max_position_embeddings=128),
    "Llama": lambda: tokens("llama", num_key_value_heads=2, intermediate_size=352, use_cache=False),
    "MLP-Mixer": lambda: image(
        timm.models.MlpMixer(img_size=64, patch_size=8, num_blocks=6, embed_dim=128)
    ),
    "ViT": lambda: image(
        timm.models.VisionTransformer(64, 8, num_classes=10, embed_dim=128, depth=5, num_heads=4)
    ),
    "Swin": lambda: image(
        timm.models.SwinTransformer(
            64, embed_dim=32, depths=(2, 2), num_heads=(2, 4), window_size=4, num_classes=10
        )
    ),
    "ConvNeXt": lambda: image(
        timm.models.ConvNeXt(depths=(2, 2, 4, 2), dims=(16, 32, 64, 128), num_classes=10)
    ),
    "ResNet": lambda: image(
        timm.models.ResNet(
            timm.models.resnet.BasicBlock, [2, 2, 2, 2], 10, channels=(16, 32, 64, 128)
        )
    ),
    "MobileNetV2": lambda: image(vision.mobilenet_v2(num_classes=10, width_mult=0.5), batch=4),
    "EfficientNet": lambda: image(timm.create_model("efficientnet_lite0", num_classes=10), batch=4),
    "DenseNet": lambda: image(
        vision.DenseNet(12, (4, 4, 4), num_init_features=24, num_classes=10), batch=4
    ),
    "RegNet": lambda: image(timm.create_model("regnetx_002", num_classes=10), batch=16),
    "U-Net": lambda: image(UNet(), batch=4),
}


def compiled(made: Made, partition: Any) -> CountedStep:
    normalizes = any(isinstance(it, nn.BatchNorm2d) for it in made.model.modules())
    table = get_decompositions(NORMALIZATION) if normalizes else None
    return CountedStep(made.model, made.loss, partition_fn=partition, decompositions=table)


def measured(made: Made, partition: Any) -> Point:
    """Compile a step, run it twice, and count the second run."""
    step = compiled(made, partition)
    step(*made.batch)
    step.live.flop = 0
    peak = step(*made.batch)[2]
    return Point(peak, step.live.flop)


def budgets(made: Made) -> Iterator[Point]:
    """Yield the points of the activation budget, from 1 to 0.1."""
    for tenth in range(10, 0, -1):
        with torch._functorch.config.patch(activation_memory_budget=tenth / 10):
            yield measured(made, min_cut_rematerialization_partition)


def plans(made: Made) -> Iterator[tuple[Point, apt.PartitionReport]]:
    """Yield the points of our plans, from all bytes to the fewest."""
    cut = apt.partitioner("100%")
    fewest = measured(made, cut), cut.reports[0]
    most, least = cut.reports[0].plain_bytes, cut.reports[0].predicted_bytes
    for part in range(9):
        cut = apt.partitioner(most - (most - least) * part // 9)
        yield measured(made, cut), cut.reports[0]
    yield fewest


def losses(make: Callable[[], Made], partition: Any) -> list[float]:
    """Return the losses of steps of gradient descent."""
    torch.manual_seed(0)
    made = make()
    step = compiled(made, partition)
    descent = torch.optim.SGD(made.model.parameters(), lr=0.01)
    found = []
    for at in range(STEPS):
        found.append(float(step(*made.batch, seed=at)[0]))
        descent.step()
    return found


def is_falling(points: list[Point]) -> bool:
    return all(a.peak >= b.peak for a, b in itertools.pairwise(points))


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def gain(theirs: list[Point], ours: list[Point]) -> float:
    """Return their peak over ours at equal FLOP or less, as a geometric mean over their points."""
    return mean(
        [
            min(theirs[k].peak for k in range(at + 1))
            / min((p.peak for p in ours if p.flop <= point.flop), default=max(ours).peak)
            for at, point in enumerate(theirs)
        ]
    )


def shown(points: list[Point], plain: int) -> str:
    return ", ".join(f"{p.peak / 2**20:.2f} ({p.flop / plain - 1:.1%})" for p in points)


def main() -> None:
    torch.set_num_threads(1)
    chosen = sys.argv[1:]
    gains = []
    print(
        "| model | plain MiB | budget: least | falls | plan: least | falls | ratio | peak | loss |"
    )
    print("| --- | ---: | ---: | --- | ---: | --- | ---: | ---: | --- |")
    for name in chosen or MODELS:
        torch.manual_seed(0)
        made = MODELS[name]()
        theirs = list(budgets(made))
        pairs = list(plans(made))
        ours = [point for point, _ in pairs]
        ratio = max(point.peak / report.predicted_bytes for point, report in pairs)
        least = [f"{min(found).peak / 2**20:.1f}" for found in (theirs, ours)]
        falls = ["yes" if is_falling(found) else "no" for found in (theirs, ours)]
        half = apt.partitioner(pairs[5][1].predicted_bytes)
        curves = [losses(MODELS[name], cut) for cut in (default_partition, half)]
        gains.append(gain(theirs, ours))
        print(
            f"| {name} | {ours[0].peak / 2**20:.1f} | {least[0]} | {falls[0]} | {least[1]} "
            f"| {falls[1]} | {ratio:.2f} | {gains[-1]:.2f} "
            f"| {'equal' if curves[0] == curves[1] else 'other'} |",
            flush=True,
        )
        if chosen:
            print("budget:", shown(theirs, ours[0].flop))
            print("plan:", shown(ours, ours[0].flop), flush=True)
    print(f"peak, geometric mean: {mean(gains):.3f}")


if __name__ == "__main__":
    main()
