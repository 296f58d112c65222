"""
Many threads, five models: the server in one memory below a cap, and ONNX Runtime's sessions.

Each side runs in a process of its own, with the same models, inputs and order of requests; BLAS and
ONNX Runtime have one thread per run. The server compares every result with that of a run alone,
bit by bit. Sizes are growths of the resident set since the models were asked for, in MiB::

    python benches/server.py [--requests 100000] [--threads 40] [--workers 2] [--cap 16MiB]
        [--light] [--sides server,onnxruntime]

Without ``--light``, the models are tiny: three perceptrons, and networks of convolutions and of
attention. ``large`` counts the calls of malloc for more than 256 KiB during the storm, in all of
the process, if there is a C compiler to make the shim that counts them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
LIGHT = ("densenet121", "inception_v1", "resnet50", "shufflenet", "squeezenet")
INPUTS = 3
"""Different inputs per model."""
SHIM = r"""
#include <stddef.h>
#include <errno.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static long large;
static void note(size_t size) {
    if (size > 262144) __atomic_fetch_add(&large, 1, __ATOMIC_RELAXED);
}
long probe_large(void) { return __atomic_exchange_n(&large, 0, __ATOMIC_RELAXED); }
void *malloc(size_t size) { note(size); return __libc_malloc(size); }
void *calloc(size_t n, size_t size) { note(n * size); return __libc_calloc(n, size); }
void *realloc(void *p, size_t size) { note(size); return __libc_realloc(p, size); }
void *memalign(size_t align, size_t size) { note(size); return __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { note(size); return __libc_memalign(align, size); }
int posix_memalign(void **p, size_t align, size_t size) {
    note(size);
    return (*p = __libc_memalign(align, size)) ? 0 : ENOMEM;
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cap", default="16MiB", help="for the server")
    parser.add_argument("--light", action="store_true", help=f"serve {', '.join(LIGHT)}")
    parser.add_argument("--sides", default="server,onnxruntime")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(storm(options)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder), options.light)
        size = sum(path.stat().st_size for path in Path(folder).glob("*.onnx")) / 2**20
        print(f"{options.requests} requests, {options.threads} threads, files of {size:.1f} MiB")
        environment = os.environ | dict.fromkeys(THREADS, "1") | preload(Path(folder))
        for side in options.sides.split(","):
            command = [sys.executable, *sys.argv, "--side", side, "--folder", folder]
            found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            for key, value in json.loads(found.stdout).items():
                shown = f"{value:.2f}" if isinstance(value, float) else value
                print(f"{side:<12} {key:<32} {shown}", flush=True)
    return 0


def preload(folder: Path) -> dict[str, str]:
    """Return the settings that load the shim, if it can be compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        return {}
    (folder / "shim.c").write_text(SHIM)
    library = str(folder / "shim.so")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", library, str(folder / "shim.c")]
    return {} if subprocess.call(command) else {"LD_PRELOAD": library, "ARENAPLAN_SHIM": library}


# -- models --------------------------------------------------------------------------------


def write_models(folder: Path, light: bool) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
    import onnx

    import light_models
    from dynamic_models import attention, convolutions

    if light:
        for name in LIGHT:
            onnx.save(light_models.randomized(name), folder / f"{name}.onnx")
        return
    onnx.save(attention(), folder / "attention.onnx")
    onnx.save(convolutions(), folder / "convolutions.onnx")
    for size in (32, 64, 128):
        onnx.save(perceptron(size), folder / f"perceptron{size}.onnx")


def perceptron(size: int):
    """Return two layers for batches of 8."""
    import numpy as np
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(size)
    weights = [rng.standard_normal((size, size)).astype(np.float32) / size for _ in range(2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, (8, size)) for name in "xy"]
    initializers = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    graph = helper.make_graph(nodes, f"perceptron{size}", ends[:1], ends[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


BIND = {
    "attention": {"batch": [1, 2], "seq": [4, 8, 16]},
    "convolutions": {"batch": [1, 2, 4]},
}
"""The shapes of the models that have several."""


# -- one side ------------------------------------------------------------------------------


def storm(options: argparse.Namespace) -> dict[str, object]:
    """Send all requests from all threads, and return the figures."""
    import numpy as np

    paths = {path.stem: str(path) for path in sorted(Path(options.folder).glob("*.onnx"))}
    shim = os.environ.get("ARENAPLAN_SHIM")
    probe = ctypes.CDLL(shim).probe_large if shim else lambda: -1
    cases = make_cases(paths, np)
    if options.side == "server":
        run, make_alone, before, close = server_side(options, paths)
    else:
        run, make_alone, before, close = runtime_side(paths)
    alone = make_alone()
    expected = [alone(name, given) for name, given in cases]
    del alone  # And the arenas of its executors.
    for name, given in cases:
        run(name, given)
    loaded = resident() - before
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    wrong = []
    remaining = iter(range(options.requests))
    probe()

    def client(seed: int) -> None:
        draw = random.Random(seed)
        while next(remaining, None) is not None:
            k = draw.randrange(len(cases))
            result = run(*cases[k])
            if any(a.tobytes() != b.tobytes() for a, b in zip(result, expected[k], strict=True)):
                wrong.append(cases[k][0])

    cpu, wall = time.process_time(), time.perf_counter()
    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {
        "results with other bits": len(wrong),
        "CPU ms per request": (time.process_time() - cpu) / options.requests * 1e3,
        "requests per second": options.requests / (time.perf_counter() - wall),
        "resident before the storm (MiB)": loaded,
        "resident at the peak (MiB)": peak() - before,
        "large allocations": probe(),
    }
    draw, count = random.Random(0), max(options.requests // 20, 100)
    alone = make_alone()
    for name, given in cases:
        alone(name, given)
    cpu = time.process_time()
    for _ in range(count):
        alone(*draw.choice(cases))
    found["CPU ms per request, one thread alone"] = (time.process_time() - cpu) / count * 1e3
    return found | close()


def make_cases(paths: dict[str, str], np):
    """Return some inputs for each shape of each model."""
    import arenaplan as ap

    cases = []
    for name, path in paths.items():
        shapes = list(ap.plan_family(path, BIND[name], effort="fast")) if name in BIND else [None]
        for sizes in shapes:
            graph = ap.load(path, bind=sizes)
            for seed in range(INPUTS):
                rng = np.random.default_rng(seed)
                values = [graph.values[index] for index in graph.inputs]
                given = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in values}
                cases.append((name, given))
    return cases


def server_side(options: argparse.Namespace, paths: dict[str, str]):
    import arenaplan as ap

    bind = {name: BIND[name] for name in paths if name in BIND}
    before = resident()
    server = ap.Server(paths, bind=bind, cap=options.cap, workers=options.workers)
    models = {name: model._family or model.largest for name, model in server._models.items()}

    def run(name, given):
        return list(server.run(name, given).values())

    def make_alone():
        executors = {
            name: ap.run.DynamicExecutor(model)
            if name in BIND
            else ap.Executor(model.graph, model.plan)
            for name, model in models.items()
        }
        return lambda name, given: list(executors[name].run(given).values())

    def close():
        from arenaplan.run.numpy.constants import shared_bytes

        numbers = server.statistics()
        transformed = shared_bytes()
        server.close()
        return {
            "arenas at the peak (MiB)": numbers.peak_bytes / 2**20,
            "cap (MiB)": server.cap / 2**20,
            "transformed weights (MiB)": transformed / 2**20,
            "waits": numbers.waits,
            "preparations": numbers.preparations,
            "executors forgotten": numbers.evicted,
        }

    return run, make_alone, before, close


def runtime_side(paths: dict[str, str]):
    import onnxruntime  # noqa: F401

    import light_models

    before = resident()
    sessions = {name: light_models.onnx_runtime(path) for name, path in paths.items()}

    def run(name, given):
        return sessions[name].run(None, given)

    return run, lambda: run, before, dict


def resident() -> float:
    """Return the resident set of the process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def peak() -> float:
    """Return the largest resident set of the process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
    sys.exit(main())
