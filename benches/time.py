"""
Compares the estimated time of plans with the measured one.

Every model is run with three plans in turns: without any technique, with the default options, and
with bytes alone in mind. What counts is the CPU time of this thread with one thread of BLAS, the
least of several rounds. Run it with::

    python benches/time.py [--rounds 9] [--markdown] [MODEL ...]

A model is the name of one of the onnx package's light models, one of ``time_models.py``, or a file.
Prints the bytes of each plan and of the one for no runtime at all (``ideal``: without scratch
memory), and ratios of times to the plan without techniques.
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
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import arenaplan as ap

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
PLANS: dict[str, dict[str, object]] = {
    "none": {"optimize": "none"},
    "default": {},
    "bytes": {"max_slowdown": None},
}
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
"""Light models with hundreds of megabytes of weights, left out by default."""
ENOUGH = 6.0
"""Seconds that the rounds of a model may take, once there were three."""


class Row(NamedTuple):
    """What is printed of a model."""

    name: str
    bytes: dict[str, int]
    estimated: dict[str, float]
    """Seconds of a run by plan."""
    measured: dict[str, float]

    def ratio(self, plan: str, *, measured: bool) -> float:
        """Return the time of a plan in relation to the plan without techniques."""
        times = self.measured if measured else self.estimated
        return times[plan] / times["none"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each plan")
    parser.add_argument("--markdown", action="store_true", help="print a table for README.md")
    options = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in THREADS):
        # BLAS reads these when it is loaded.
        environment = dict(os.environ) | dict.fromkeys(THREADS, "1")
        return subprocess.call([sys.executable, *sys.argv], env=environment)
    root = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(root / "tests" / "python"), str(root / "benches")]
    import time_models

    import light_models

    names = options.models
    if not names:
        names = [*time_models.MODELS, *(n for n in light_models.NAMES if n not in LARGE)]
        names += sorted(map(str, (root.parent / "shared" / "models" / "onnx").glob("*.onnx")))
    show(header(), options.markdown)
    rows = []
    for name in names:
        rows.append(measure(name, options.rounds))
        show(cells(rows[-1]), options.markdown)
    for plan in ("default", "bytes"):
        ratios = [row.ratio(plan, measured=True) for row in rows]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{plan} / none, measured: geometric mean {mean:.3f}, worst {max(ratios):.2f}")
    return 0


def header() -> list[str]:
    """Return the heads of columns."""
    heads = ["model", "bytes none", "default", "bytes only", "ideal", "none ms", "estimate"]
    return [*heads, "default/none", "estimate", "bytes only/none", "estimate"]


def cells(row: Row) -> list[str]:
    """Return the cells of a line."""
    times = [f"{1e3 * each['none']:.2f}" for each in (row.measured, row.estimated)]
    ratios = [
        f"{row.ratio(plan, measured=measured):.2f}"
        for plan in ("default", "bytes")
        for measured in (True, False)
    ]
    return [row.name, *(f"{row.bytes[plan]:,}" for plan in (*PLANS, "ideal")), *times, *ratios]


def show(texts: list[str], markdown: bool) -> None:
    """Print one line of the table."""
    if markdown:
        print("|", " | ".join(texts), "|", flush=True)
        if texts == header():
            print("|", " | ".join(["---"] + ["---:"] * (len(texts) - 1)), "|")
    else:
        print(f"{texts[0]:<22}", *(f"{text:>14}" for text in texts[1:]), flush=True)


def load(name: str) -> ap.Graph:
    """Return the graph of a model."""
    import onnx
    import time_models

    import arenaplan as ap
    import light_models

    if name in light_models.NAMES:
        model = light_models.randomized(name)
    elif name in time_models.MODELS:
        model = time_models.MODELS[name]()
    else:
        return ap.load(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        return ap.load(path)


def measure(name: str, rounds: int) -> Row:
    """Return the line of a model."""
    import arenaplan as ap
    from arenaplan.cli.run import random_input

    graph = load(name)
    backend = ap.graph.backend.backend_of("numpy")
    plans = {key: ap.plan(graph, target="numpy", **options) for key, options in PLANS.items()}
    sizes = {key: plan.arena_bytes for key, plan in plans.items()}
    sizes["ideal"] = ap.plan(graph, target="ideal").arena_bytes
    inputs = {graph.values[at].name: random_input(graph.values[at], 0) for at in graph.inputs}
    best = dict.fromkeys(plans, math.inf)
    with ExitStack() as stack:
        executors = {
            key: stack.enter_context(ap.Executor(graph, plan)) for key, plan in plans.items()
        }
        started = time.monotonic()
        for done in range(10 * rounds):
            if done >= 3 and time.monotonic() - started > ENOUGH and done >= rounds // 3:
                break
            for key, executor in executors.items():
                start = time.thread_time()
                executor.run(inputs, borrow=True)
                best[key] = min(best[key], time.thread_time() - start)
    estimated = {key: sum(backend.seconds(graph, plan)) for key, plan in plans.items()}
    return Row(
        Path(name).stem if "/" not in name else f"{Path(name).stem}.onnx", sizes, estimated, best
    )


if __name__ == "__main__":
    sys.exit(main())
