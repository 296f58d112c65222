"""
Networks of torchvision and transformers, exported with random weights, planned and run.

A developer's tool: it needs ``pip install torch torchvision transformers onnxscript`` besides the
extra ``dev``, and exporting takes a minute per network. Run it with::

    python benches/zoo.py FOLDER [NAME ...]

Files that are in the folder already are not exported again. Prints, per network, the bytes of
the arena, those with inputs and outputs left to the caller, what is known of the order, the CPU
time of planning, and how far the results of the executor are from ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

VISION = ["resnet50", "densenet121", "efficientnet_b0", "mobilenet_v3_large", "convnext_tiny"]
VISION += ["inception_v3", "shufflenet_v2_x1_0", "regnet_y_400mf", "vit_b_16", "swin_t"]


def vision(name: str) -> tuple[Any, Any]:
    """Return a network of torchvision, and an image."""
    import torch
    import torchvision

    side = 299 if name.startswith("inception") else 224
    options = {"aux_logits": False} if name.startswith("inception") else {}
    return getattr(torchvision.models, name)(**options), torch.randn(1, 3, side, side)


def encoder(name: str) -> tuple[Any, Any]:
    """Return what a network of transformers makes of its first input, and that input."""
    import torch
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    class Hidden(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).last_hidden_state

    sizes = {"whisper": {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6}}
    sizes["whisper"]["encoder_ffn_dim"] = 1536
    kind = {"bert": "Bert", "vit": "ViT", "swin": "Swin", "segformer": "Segformer"}
    kind |= {"convnext": "ConvNext", "whisper": "Whisper"}
    config = getattr(transformers, f"{kind[name]}Config")(
        attn_implementation="eager", **sizes.get(name, {})
    )
    model = WhisperEncoder if name == "whisper" else getattr(transformers, f"{kind[name]}Model")
    inputs = {
        "bert": lambda: torch.randint(0, 30000, (1, 128)),
        "whisper": lambda: torch.randn(1, 80, 3000),
        "segformer": lambda: torch.randn(1, 3, 512, 512),
    }
    x = inputs.get(name, lambda: torch.randn(1, 3, 224, 224))()
    return Hidden(model(config)), x


ENCODERS = ["bert", "vit", "swin", "segformer", "convnext", "whisper"]
ZOO: dict[str, Callable[[str], tuple[Any, Any]]] = {
    **dict.fromkeys(VISION, vision),
    **dict.fromkeys(ENCODERS, encoder),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(f"{'network':<20}{'arena':>12}{'caller':>12}{'order':>10}{'CPU s':>7}{'error':>9}")
    for name in options.names or ZOO:
        path = options.folder / f"{name}.onnx"
        if not path.exists():
            export(name, path)
        measure(path)


def export(name: str, path: Path) -> None:
    """Write a network with random weights."""
    import torch

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    model, x = ZOO[name](name)
    torch.onnx.export(model.eval(), (x,), path, dynamo=True, external_data=True, verbose=False)


def measure(path: Path) -> None:
    """Print the line of one network."""
    import numpy as np
    import onnxruntime

    import arenaplan as ap

    graph = ap.load(path)
    start = time.process_time()
    plan = ap.plan(graph, target="ideal")
    seconds = time.process_time() - start
    caller = ap.plan(graph, inputs="caller", outputs="caller", target="ideal").arena_bytes
    rng = np.random.default_rng(0)
    feeds = {}
    for value in (graph.values[index] for index in graph.inputs):
        noise = rng.standard_normal(value.shape)
        feeds[value.name] = (
            noise.astype(value.dtype)
            if "float" in value.dtype
            else (rng.integers(0, 1000, value.shape).astype(value.dtype))
        )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = dict(
        zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True)
    )
    with ap.Executor(graph) as executor:
        found = executor.run(feeds)
    error = max(float(np.abs(found[name] - array).max()) for name, array in expected.items())
    print(
        f"{path.stem:<20}{plan.arena_bytes:>12,}{caller:>12,}{plan.order_search:>10}"
        f"{seconds:>7.2f}{error:>9.1e}"
    )


if __name__ == "__main__":
    main()
