"""
A small convolutional network learns handwritten digits inside one arena.

    pip install "./arenaplan[onnx]" scikit-learn
    python examples/training/digits.py --budget 262144

The digits are those of scikit-learn (1,797 images of 8 x 8 pixels), which need no download. The
arena holds parameters, Adam's averages, activations and gradients; the script prints its bytes,
the loss of every epoch and the accuracy on images that were not trained with.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import arenaplan as ap

CLASSES = 10


class Digits(NamedTuple):
    """Images ``(N, 1, 8, 8)`` between 0 and 1, and labels ``(N,)``."""

    images: np.ndarray
    labels: np.ndarray


class Result(NamedTuple):
    """What a training has cost and learned."""

    arena_bytes: int
    losses: list[float]
    """The mean loss of each epoch."""
    accuracy: float
    """The share of test images that are recognized."""


def load(seed: int = 0) -> tuple[Digits, Digits]:
    """Return four fifths of the digits to train with, and the rest to test."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images = (data.images[order, None] / 16).astype(np.float32)
    labels = data.target[order].astype(np.int64)
    cut = len(labels) * 4 // 5
    return Digits(images[:cut], labels[:cut]), Digits(images[cut:], labels[cut:])


def network(batch: int, *, trains: bool, weights: dict[str, np.ndarray]) -> tuple[ap.Graph, int]:
    """Return two convolutions and a dense layer, and the index of the scores."""
    graph = ap.Graph("digits")
    op = ap.train.operators(graph)
    x = graph.input("x", (batch, 1, 8, 8))
    p = {name: graph.parameter(name, array) for name, array in weights.items()}
    h = op.Relu(op.Conv(x, p["conv1.w"], p["conv1.b"], pads=[1, 1, 1, 1]))
    h = op.Relu(op.Conv(h, p["conv2.w"], p["conv2.b"], pads=[1, 1, 1, 1]))
    h = op.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2])
    h = op.Flatten(h)
    if trains:
        h = op.Dropout(h, np.float32(0.25), np.bool_(True))
    scores = op.Gemm(h, p["dense.w"], p["dense.b"], name="scores")
    return graph, scores


def first_weights(seed: int) -> dict[str, np.ndarray]:
    """Return random weights (He et al. 2015)."""
    rng = np.random.default_rng(seed)

    def layer(*shape: int, fan_in: int) -> np.ndarray:
        return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    def zeros(count: int) -> np.ndarray:
        return np.zeros(count, np.float32)

    return {
        "conv1.w": layer(8, 1, 3, 3, fan_in=9),
        "conv1.b": zeros(8),
        "conv2.w": layer(16, 8, 3, 3, fan_in=72),
        "conv2.b": zeros(16),
        "dense.w": layer(256, CLASSES, fan_in=256),
        "dense.b": zeros(CLASSES),
    }


def training_graph(batch: int, *, lr: float, seed: int) -> ap.train.TrainingGraph:
    """Return forward pass, gradients and updates."""
    graph, scores = network(batch, trains=True, weights=first_weights(seed))
    labels = graph.input("t", (batch,), "int64")
    loss = ap.train.operators(graph).SoftmaxCrossEntropyLoss(scores, labels, name="loss")
    parameters = [value.index for value in graph.values if value.kind == "state"]
    return ap.train.adam(ap.train.gradient(graph, of=loss, wrt=parameters), lr=lr)


def batches(data: Digits, size: int, rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of one epoch; images that fill no batch wait for another epoch."""
    order = rng.permutation(len(data.labels))
    for start in range(0, len(order) - size + 1, size):
        chosen = order[start : start + size]
        yield {"x": data.images[chosen], "t": data.labels[chosen]}


def accuracy(data: Digits, weights: dict[str, np.ndarray]) -> float:
    """Return the share of images that a network with these weights recognizes."""
    graph, scores = network(len(data.labels), trains=False, weights=weights)
    graph.output(scores)
    with ap.Executor(graph) as executor:
        found = executor.run({"x": data.images})["scores"].argmax(axis=1)
    return float(np.mean(found == data.labels))


def train(
    *, epochs: int = 8, batch: int = 16, lr: float = 3e-3, seed: int = 0,
    budget: int | None = None, recompute: str | None = None, tells: bool = False,
) -> Result:  # fmt: skip
    """Train, and return the bytes of the arena, the losses and the accuracy."""
    seen, unseen = load()
    rng = np.random.default_rng(seed)
    losses = []
    with ap.train.Trainer(
        training_graph(batch, lr=lr, seed=seed), seed=seed, recompute=recompute, budget=budget
    ) as trainer:
        arena_bytes = trainer.plan.arena_bytes
        if tells:
            print(f"arena: {arena_bytes:,} bytes, lower bound {trainer.plan.lower_bound:,}")
        for epoch in range(epochs):
            reports = trainer.fit(batches(seen, batch, rng))
            losses.append(float(np.mean([report.losses["loss"] for report in reports])))
            if tells:
                print(f"epoch {epoch + 1:2}: loss {losses[-1]:.4f}")
        states = trainer.states()
    found = accuracy(unseen, {name: states[name] for name in first_weights(seed)})
    if tells:
        print(f"accuracy on {len(unseen.labels)} images that were not trained with: {found:.2%}")
    return Result(arena_bytes, losses, found)


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits inside one arena.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16, help="images of a step")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, help="most bytes of the arena")
    parser.add_argument("--recompute", help="bytes of the arena, or extra work such as 10%%")
    options = parser.parse_args()
    train(
        epochs=options.epochs, batch=options.batch, lr=options.lr, seed=options.seed,
        budget=options.budget, recompute=options.recompute, tells=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
