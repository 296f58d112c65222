"""
Compares plans with steps that run strip by strip with those of the fixed graph.

Prints, for each model, the bytes of its fixed graph (views, values in place, pieces and order,
without scratch memory), those of plans with several limits of time in relation to that, scratch
memory included, and the CPU time of a run in relation to the plan without techniques: one thread,
the least of several rounds in turns. Run it with::

    python benches/strips.py [--rounds 9] [MODEL ...]

A model is the name of one of the networks below, of a light model of the onnx package, or a file
whose weights are there or are made at random.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
LIMITS: Mapping[str, float | None] = {"1.0": 1.0, "1.1": 1.1, "1.25": 1.25, "none": None}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each plan")
    options = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in THREADS):
        # BLAS reads these when it is loaded.
        environment = dict(os.environ) | dict.fromkeys(THREADS, "1")
        return subprocess.call([sys.executable, *sys.argv], env=environment)
    root = Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(root / "tests" / "python"))
    names = options.models or [*networks(), "squeezenet", "resnet50"]
    head = [f"{limit}: bytes, time" for limit in LIMITS]
    print(f"| | fixed graph | {' | '.join(head)} |")
    print("|---|" + "---|" * (1 + len(head)))
    for name in names:
        print(measured(name, options.rounds), flush=True)
    return 0


def measured(name: str, rounds: int) -> str:
    """Return the row of a model."""
    import numpy as np
    import onnx

    import arenaplan as ap

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model_of(name), path)
        graph = ap.load(path)
        rng = np.random.default_rng(1)
        values = [graph.values[index] for index in graph.inputs]
        feed = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in values}
        fixed = ap.plan(graph, optimize="views,in-place,elision,order", workspace="none")
        plans = {"plain": ap.plan(graph, optimize="none")}
        plans |= {limit: ap.plan(graph, max_slowdown=value) for limit, value in LIMITS.items()}
        executors = {limit: ap.Executor(graph, plan) for limit, plan in plans.items()}
        least = dict.fromkeys(plans, float("inf"))
        for _ in range(rounds):
            for limit, executor in executors.items():
                start = time.thread_time()
                executor.run(feed, borrow=True)
                least[limit] = min(least[limit], time.thread_time() - start)
    cells = [
        f"{plans[limit].arena_bytes / fixed.arena_bytes:.3f}, {least[limit] / least['plain']:.2f}"
        for limit in LIMITS
    ]
    return f"| {Path(name).stem} | {fixed.arena_bytes:,} | {' | '.join(cells)} |"


def model_of(name: str):  # type: ignore[no-untyped-def]
    """Return a model with weights."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    import light_models

    made = networks()
    if name in made:
        return made[name]()
    if not name.endswith(".onnx"):
        return light_models.randomized(name)
    model = onnx.load(name, load_external_data=False)
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            shape = tuple(tensor.dims)
            spread = np.sqrt(2 / max(int(np.prod(shape[1:])), 1)) if len(shape) > 1 else 0.1
            data = (rng.standard_normal(shape) * spread).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))
    return model


def networks() -> dict[str, Callable[[], object]]:
    """Return networks that no package has."""
    return {
        "dilated": dilated,
        "mobile": mobile,
        "hourglass": hourglass,
        "one-sided": one_sided,
        "branches": branches,
        "pyramid": pyramid,
    }


def _relu(network, x: str) -> str:  # type: ignore[no-untyped-def]
    return network.node("Relu", [x], network.shapes[x])


def dilated() -> object:
    """Residual blocks with growing dilation after a stem with a stride, as for segmentation."""
    from cnn_models import Network

    network = Network(1, (1, 3, 192, 160))
    x = _relu(network, network.conv("x", 32, 5, stride=2))
    for dilation in (1, 2, 4, 1, 2):
        y = _relu(network, network.conv(x, 32, 3, dilation=dilation))
        y = network.conv(y, 32, 3)
        x = _relu(network, network.node("Add", [y, x], network.shapes[x]))
    return network.model(network.conv(x, 4, 1))


def mobile() -> object:
    """Inverted residuals with depthwise convolutions."""
    from cnn_models import Network

    network = Network(2, (1, 3, 160, 240))
    x = _relu(network, network.conv("x", 16, 3, stride=2))
    for channels, stride in ((16, 1), (24, 2), (24, 1), (40, 2), (40, 1)):
        own = network.shapes[x][1]
        y = _relu(network, network.conv(x, 6 * own, 1))
        y = _relu(network, network.conv(y, 6 * own, 3, stride=stride, group=6 * own))
        y = network.conv(y, channels, 1)
        same = network.shapes[y] == network.shapes[x]
        x = network.node("Add", [y, x], network.shapes[y]) if same else y
    return network.model(_relu(network, network.conv(x, 64, 1)))


def hourglass() -> object:
    """Down and up again, with skips that are added."""
    from cnn_models import Network

    network = Network(3, (1, 3, 128, 128))
    skips = []
    x = _relu(network, network.conv("x", 24))
    for _ in range(2):
        x = _relu(network, network.conv(x, 24))
        skips.append(network.conv(x, 3, 1))
        x = network.pool(x, "MaxPool", 2, 2)
    x = _relu(network, network.conv(x, 24))
    for skip in reversed(skips):
        n, c, h, w = network.shapes[x]
        kernel = network.weight(c, 3, 2, 2)
        x = network.node(
            "ConvTranspose", [x, kernel], (n, 3, 2 * h, 2 * w), kernel_shape=[2, 2], strides=[2, 2]
        )
        x = network.node("Add", [x, skip], network.shapes[x])
        x = _relu(network, network.conv(x, 24))
    return network.model(network.conv(x, 1, 1))


def one_sided() -> object:
    """Convolutions that are padded on one side only, alternately."""
    from cnn_models import Network

    network = Network(4, (1, 1, 160, 160))
    x = "x"
    for at in range(7):
        x = _relu(network, network.conv(x, 28, 3, pads=(2, 0) if at % 2 else (0, 2)))
    return network.model(network.conv(x, 1, 5))


def branches() -> object:
    """Joined branches and pools that overlap."""
    from cnn_models import Network

    network = Network(6, (1, 3, 144, 144))
    x = _relu(network, network.conv("x", 24, 3))
    for width in (16, 24, 32):
        one = _relu(network, network.conv(x, width, 1))
        two = _relu(network, network.conv(_relu(network, network.conv(x, 12, 1)), width, 3))
        n, _, h, w = network.shapes[two]
        x = network.node("Concat", [one, two], (n, 2 * width, h, w), axis=1)
        x = network.pool(x, "MaxPool", 2, 2)
    return network.model(_relu(network, network.conv(x, 32, 1)))


def pyramid() -> object:
    """Pairs of convolutions, each pair before a pool."""
    from cnn_models import Network

    network = Network(7, (2, 3, 96, 96))
    x = "x"
    for channels in (16, 32, 64):
        for _ in range(2):
            x = _relu(network, network.conv(x, channels))
        x = network.pool(x, "AveragePool", 2, 2)
    return network.model(network.conv(x, 10, 1))


if __name__ == "__main__":
    sys.exit(main())
