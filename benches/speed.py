"""
Times the executor against ONNX Runtime, on one thread, over many models.

Both run the same model with the same random weights in one process, in turns. The figure of a
model is the median of the ratios of CPU time over several pairs. Run it with::

    python benches/speed.py [--rounds 9] [--markdown] [--numpy] [--held-out] [--threads 1] [MODEL …]

A model is the name of a light model of the onnx package, of a network of ``time_models.py``, or a
file; weights that a file lacks are drawn at random. Without names, all of them are timed.
``--numpy`` times the kernels of NumPy alone, without the compiled ones; ``--held-out`` the networks
of ``held_out.py``. With ``--threads``, ONNX Runtime and the kernels of the executor have so many
threads, and what counts is time on the clock; with ``--workers``, the executor has so many workers
besides.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("ARENAPLAN_SHARED", ROOT.parent / "shared")) / "models"
FULL = (
    *("resnet50", "densenet121", "inception_v1", "inception_v2", "shufflenet", "squeezenet"),
    *("bert_base", "mobilenet_v2", "segformer_b0", "unet_256"),
    *("gpt2_small", "vit_s", "convnext_tiny", "inverted", "llama_mini"),
)
"""Models of full size. All others are small."""
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
"""Light models with hundreds of megabytes of weights, left out by default."""


class Row(NamedTuple):
    """The line of one model."""

    name: str
    theirs: float
    """Milliseconds of ONNX Runtime."""
    ours: float
    ratio: float
    error: float
    """Largest difference of an output, in relation to the largest number of that output."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of runs per model")
    parser.add_argument("--markdown", action="store_true", help="print a table for README.md")
    parser.add_argument("--numpy", action="store_true", help="use the kernels of NumPy alone")
    parser.add_argument("--held-out", action="store_true", help="time networks of held_out.py")
    parser.add_argument("--threads", type=int, default=1, help="threads of both")
    parser.add_argument("--workers", type=int, default=1, help="workers of the executor")
    parser.add_argument("--optimize", default="all", help="techniques of the plans")
    options = parser.parse_args()
    wanted = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # BLAS reads these when it is loaded.
        return subprocess.call([sys.executable, *sys.argv], env=dict(os.environ) | wanted)
    sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "benches")]
    import held_out
    import time_models

    import light_models

    names = options.models or ([*held_out.MODELS] if options.held_out else [])
    if not names:
        names = [name for name in light_models.NAMES if name not in LARGE]
        names += time_models.MODELS
        for folder in ("onnx_structure", "onnx"):
            names += sorted(map(str, (SHARED / folder).glob("*.onnx")))
    mark = "| {} | {:.2f} | {:.2f} | {:.2f} | {:.1e} |" if options.markdown else (
        "{:<24}{:>10.2f} ms{:>10.2f} ms{:>8.2f}{:>10.1e}")  # fmt: skip
    if options.markdown:
        print("| model | ONNX Runtime ms | arenaplan ms | ratio | error |")
        print("| --- | ---: | ---: | ---: | ---: |")
    rows, full = [], {*FULL, *held_out.FULL}
    for name in names:
        rows.append(measure(name, options))
        print(mark.format(*rows[-1]), flush=True)
    for label, group in (
        ("full size", [row.ratio for row in rows if row.name in full]),
        ("small", [row.ratio for row in rows if row.name not in full]),
    ):
        if group:
            mean = math.exp(statistics.fmean(map(math.log, group)))
            print(f"{label}: geometric mean of {len(group)} {mean:.2f}, worst {max(group):.2f}")
    return 0


def model_of(name: str) -> onnx.ModelProto:
    """Return a model with weights."""
    import held_out
    import time_models

    import light_models

    if name in light_models.NAMES:
        return light_models.randomized(name)
    if name in held_out.MODELS:
        return held_out.MODELS[name]()
    if name in time_models.MODELS:
        return time_models.MODELS[name]()
    model = onnx.load(name, load_external_data=False)
    fill(model, Path(name).parent)
    return model


def fill(model: onnx.ModelProto, folder: Path) -> None:
    """Load the weights of a model, and draw those whose file is missing at ``1/sqrt(fan-in)``."""
    random = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if not external_data_helper.uses_external_data(tensor):
            continue
        info = external_data_helper.ExternalDataInfo(tensor)
        if (folder / info.location).exists():
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = onnx.TensorProto.DEFAULT
            continue
        shape = tuple(tensor.dims)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        fan = math.prod(shape[1:]) if len(shape) > 2 else shape[0] if shape else 1
        data = (random.standard_normal(shape) / math.sqrt(max(fan, 1))).astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))


def measure(name: str, options: argparse.Namespace) -> Row:
    """Return the line of a model."""
    rounds, threads, workers = options.rounds, options.threads, options.workers
    import executor as bench

    import arenaplan as ap
    import light_models

    model = model_of(name)
    inputs = bench.random_inputs(model)
    theirs = partial(light_models.onnx_runtime(model, threads).run, None, inputs)
    spent = bench.cpu_time if threads == workers == 1 else clock_time
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        del model
        graph = ap.load(path)
        if options.numpy:
            from arenaplan.run.numpy import compiled

            stack.enter_context(compiled.disabled())
        optimize = options.optimize
        plan = ap.plan(graph, workspace="auto", target="numpy", optimize=optimize, workers=workers)
        executor = stack.enter_context(ap.Executor(graph, plan, workers=workers, threads=threads))
        ours = partial(executor.run, inputs, borrow=True)
        error = worst([*ours().values()], theirs())
        times = [(spent(theirs), spent(ours)) for _ in range(rounds + 1)][1:]
    return Row(
        Path(name).stem + (".onnx" if "/onnx/" in name else ""),
        statistics.median(their for their, _ in times),
        statistics.median(our for _, our in times),
        statistics.median(our / their for their, our in times),
        error,
    )


def clock_time(run: Callable[[], object]) -> float:
    """
    Return the milliseconds on the clock that ``run`` takes, over at least 20 of them.

    Threads of the other side spin for a while after its last run, on a processor that this side
    needs: they are given the time to fall asleep, and this side's to wake up.
    """
    time.sleep(0.05)
    run()
    count, start = 0, time.perf_counter()
    while True:
        run()
        count += 1
        spent = time.perf_counter() - start
        if spent >= 0.02:
            return spent / count * 1e3


def worst(found: list[np.ndarray], wanted: list[Any]) -> float:
    """Return the largest difference of outputs, in relation to the largest number of each."""
    return max(
        float(np.abs(a.astype(float) - b).max() / max(float(np.abs(b).max()), 1e-30))
        for a, b in zip(found, wanted, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
