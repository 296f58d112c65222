"""
Times the CUDA executor against PyTorch, which has cuDNN, on networks that this script makes.

Needs a GPU, CuPy, PyTorch, torchvision, transformers and onnxscript. Weights are random. Run with::

    python benches/device.py [--rounds 30] [--streams 1] [--half] [--markdown] [NETWORK …]

Both compute in float32, without TF32, or in float16 with ``--half``. A time is the median of whole
runs: inputs from the host, results back to it. PyTorch runs its eager mode, and a recorded CUDA
graph of it. *Bytes* of PyTorch are the most that its allocator had handed out during a run, less
parameters and buffers; those of the executor are its arena and what it needs outside. Neither
counts the workspace of cuBLAS. The perceptron is also timed in eager CuPy.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


class Network(NamedTuple):
    """A module and the arrays that it takes."""

    module: Any
    inputs: dict[str, np.ndarray]


class Row(NamedTuple):
    """The line of one network: milliseconds, bytes, and the largest relative difference."""

    name: str
    ours: float
    replayed: float
    estimate: float
    eager: float
    recorded: float
    bytes_ours: int
    bytes_eager: int
    launches: int
    error: float


def networks() -> Mapping[str, Callable[[], Network]]:
    """Return what makes each network."""
    import torch
    import torchvision.models as vision
    import transformers as text

    random = np.random.default_rng(7)

    def image(make: Callable[..., Any], side: int = 224, batch: int = 1) -> Callable[[], Network]:
        array = random.standard_normal((batch, 3, side, side)).astype(np.float32)
        return lambda: Network(make(), {"x": array})

    class States(torch.nn.Module):
        """A model of text whose last hidden states are returned."""

        def __init__(self, model: torch.nn.Module, **options: Any) -> None:
            super().__init__()
            self.model = model
            self.options = options

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x, return_dict=False, **self.options)[0]

    def words(make: Callable[[], Any], length: int = 128) -> Callable[[], Network]:
        array = random.integers(0, 1000, (1, length))
        return lambda: Network(make(), {"x": array})

    def bert() -> Any:
        config = text.BertConfig(attn_implementation="eager")
        return States(text.BertModel(config, add_pooling_layer=False))

    def gpt2() -> Any:
        config = text.GPT2Config(n_layer=6, attn_implementation="eager")
        return States(text.GPT2Model(config), use_cache=False)

    class Perceptron(torch.nn.Sequential):
        def __init__(self) -> None:
            layers: list[torch.nn.Module] = []
            for _ in range(8):
                layers += [torch.nn.Linear(1024, 1024), torch.nn.GELU()]
            super().__init__(*layers)

    mlp_input = random.standard_normal((64, 1024)).astype(np.float32)
    return {
        "mlp": lambda: Network(Perceptron(), {"x": mlp_input}),
        "resnet18": image(vision.resnet18),
        "resnet50": image(vision.resnet50),
        "resnet50 batch 16": image(vision.resnet50, batch=16),
        "mobilenet_v2": image(vision.mobilenet_v2),
        "efficientnet_b0": image(vision.efficientnet_b0),
        "densenet121": image(vision.densenet121),
        "squeezenet": image(vision.squeezenet1_1),
        "shufflenet": image(vision.shufflenet_v2_x1_0),
        "inception_v3": image(lambda: vision.inception_v3(init_weights=True), 299),
        "convnext_tiny": image(vision.convnext_tiny),
        "vit_b_16": image(lambda: _with_head(vision.vit_b_16())),
        "fcn_resnet50": image(
            lambda: _first(vision.segmentation.fcn_resnet50(None, weights_backbone=None))
        ),
        "bert_base": words(bert),
        "gpt2 6 layers": words(gpt2),
    }


def _with_head(module: Any) -> Any:
    """Return a transformer whose last layer, which starts with zeros, has random weights."""
    import torch

    torch.nn.init.normal_(module.heads.head.weight, std=0.02)
    return module


def _first(module: Any) -> Any:
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.module(x)["out"]

    return First()


def _calibrated(network: Network) -> Any:
    """Return a network whose normalizations have the statistics of its input, for inference."""
    import torch

    norms = [each for each in network.module.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    if norms:
        (array,) = network.inputs.values()
        network.module.train()
        with torch.no_grad():
            network.module(torch.from_numpy(np.concatenate([array, -array])[:4]))
    return network.module.eval()


def median(run: Callable[[], object], rounds: int) -> float:
    """Return the milliseconds of a run."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def measured(name: str, network: Network, options: argparse.Namespace) -> Row:
    """Return the figures of a network."""
    import torch

    import arenaplan as ap
    from arenaplan.run.cuda.cuda_backend import BACKEND

    rounds, streams = options.rounds, options.streams
    module, inputs = _calibrated(network), network.inputs
    if options.half:
        module = module.half()
        inputs = {
            name: array.astype(np.float16) if array.dtype == np.float32 else array
            for name, array in inputs.items()
        }
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "network.onnx"
        arguments = tuple(map(torch.from_numpy, inputs.values()))
        with redirect_stdout(StringIO()):  # PyTorch prints the whole graph of a failed export.
            torch.onnx.export(
                module,
                arguments,
                path,
                dynamo=True,
                opset_version=18,
                input_names=["x"],
                verbose=False,
            )
        graph = ap.load(path)
        plain = ap.Executor(graph, device="cuda", workers=streams)
    expected, eager, recorded, taken = _torch_times(module, inputs, rounds)
    with (
        plain,
        ap.Executor(graph, plain.plan, device="cuda", workers=streams, capture=True) as fast,
    ):
        for executor in (plain, fast):
            for _ in range(3):
                found = next(iter(executor.run(inputs).values()))
        expected, found = expected.astype(np.float64), found.astype(np.float64)
        error = float(np.abs(found - expected).max() / np.abs(expected).max())
        ours = median(lambda: plain.run(inputs), rounds)
        replayed = median(lambda: fast.run(inputs), rounds)
        size = plain.plan.arena_bytes + plain.program.outside_bytes
        launches = plain.program.launches
        estimate = sum(BACKEND.seconds(plain.graph, plain.plan)) * 1e3
        if options.profile:
            _profile(plain)
    return Row(name, ours, replayed, estimate, eager, recorded, size, taken, launches, error)


def cupy_perceptron(network: Network, rounds: int) -> str:
    """Return the time and the bytes of the perceptron in eager CuPy."""
    import cupy
    from cupyx.scipy.special import erf

    layers = [each for each in network.module if hasattr(each, "weight")]
    weights = [cupy.asarray(each.weight.detach().numpy()).T for each in layers]
    shifts = [cupy.asarray(each.bias.detach().numpy()) for each in layers]
    root = np.float32(0.5**0.5)

    def run() -> np.ndarray:
        x = cupy.asarray(network.inputs["x"])
        for weight, shift in zip(weights, shifts, strict=True):
            x = x @ weight + shift
            x = np.float32(0.5) * x * (np.float32(1) + erf(x * root))
        return x.get()

    run()
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    held = pool.total_bytes()
    run()
    taken = pool.total_bytes() - held
    return f"mlp in eager CuPy: {median(run, rounds):.3f} ms, {taken:,} bytes"


def _profile(executor: Any) -> None:
    """Print the work that takes longest, by CUDA's events."""
    import cupy

    bound = executor._bound
    stream = bound.streams[0].stream
    totals: dict[str, list[float]] = {}
    for _ in range(5):
        marks = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in bound._runs]
        for (start, end), (_, run) in zip(marks, bound._runs, strict=True):
            start.record(stream)
            run()
            end.record(stream)
        stream.synchronize()
        for at, (start, end) in enumerate(marks):
            key = f"{at:4} {bound._runs[at][0]}"
            totals.setdefault(key, []).append(cupy.cuda.get_elapsed_time(start, end))
    kinds = {}
    position = 1
    for step in executor.program.steps:
        for work in step.works:
            what = getattr(work, "kernel", None)
            text = what.stem if what else type(work).__name__
            if not what and hasattr(work, "rows"):
                text += f" {work.rows}x{work.columns}x{work.inner} n{work.count}"
            elif what:
                text += f" grid {work.grid}"
            kinds[position] = text
            position += 1
    medians = {key: statistics.median(times) for key, times in totals.items()}
    print(f"  sum {sum(medians.values()):.3f} ms of {len(medians)}", file=sys.stderr)
    for key, each in sorted(medians.items(), key=lambda item: -item[1])[:14]:
        print(f"  {each:7.3f} {key} {kinds.get(int(key[:4]), '')}", file=sys.stderr)


def _torch_times(
    module: Any, inputs: Mapping[str, np.ndarray], rounds: int
) -> tuple[np.ndarray, float, float, int]:
    """Return PyTorch's result, the milliseconds of both ways, and its bytes."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    module = module.cuda()
    (array,) = inputs.values()
    staged = torch.from_numpy(array).pin_memory()

    def run() -> np.ndarray:
        result = module(staged.to("cuda", non_blocking=True))
        result = result[0] if isinstance(result, tuple) else result
        return result.cpu().numpy()

    with torch.inference_mode():
        for _ in range(3):
            expected = run()
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        taken = torch.cuda.max_memory_allocated() - held
        eager = median(run, rounds)
        recorded = _recorded(module, staged, rounds)
    module.cpu()
    torch.cuda.empty_cache()
    return expected, eager, recorded, taken


def _recorded(module: Any, staged: Any, rounds: int) -> float:
    """Return the milliseconds of a recorded run, which is no number if PyTorch cannot record it."""
    import torch

    place = staged.cuda()
    try:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                module(place)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = module(place)
    except RuntimeError:
        return math.nan
    result = made[0] if isinstance(made, tuple) else made

    def replay() -> None:
        place.copy_(staged, non_blocking=True)
        graph.replay()
        result.cpu()

    return median(replay, rounds)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NETWORK")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--half", action="store_true", help="compute in float16")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    rows = []
    heads = (
        "network",
        "ours",
        "graph",
        "estimate",
        "torch",
        "torch graph",
        "bytes",
        "torch",
        "work",
        "error",
    )
    if options.markdown:
        print("|", " | ".join(heads), "|\n|", " | ".join("---" for _ in heads), "|")
    for name, make in networks().items():
        if options.names and name not in options.names:
            continue
        try:
            row = measured(name, make(), options)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
            continue
        rows.append(row)
        cells = (
            *(
                row.name,
                f"{row.ours:.3f}",
                f"{row.replayed:.3f}",
                f"{row.estimate:.3f}",
                f"{row.eager:.3f}",
            ),
            *(f"{row.recorded:.3f}", f"{row.bytes_ours:,}", f"{row.bytes_eager:,}"),
            *(str(row.launches), f"{row.error:.1e}"),
        )
        print("|", " | ".join(cells), "|", flush=True)
    if not options.half and (not options.names or "mlp" in options.names):
        print(cupy_perceptron(networks()["mlp"](), options.rounds))
    for label, pick in (
        ("run over eager", lambda row: row.ours / row.eager),
        ("graph over graph", lambda row: row.replayed / row.recorded),
        ("bytes", lambda row: row.bytes_ours / row.bytes_eager),
    ):
        ratios = [ratio for ratio in map(pick, rows) if not math.isnan(ratio)]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"{label}: geometric mean {mean:.2f}, worst {max(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
