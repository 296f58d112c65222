"""
Times the NumPy executor against ONNX Runtime, on one thread.

Both run the same model with the same random weights in one process, in turns; what
counts is CPU time, and of each pair the ratio. Run it with ``make bench``, or::

    python benches/executor.py [--rounds 15] [--techniques] [MODEL ...]

With ``--techniques``, plans with all techniques are timed against plans with none.

A model is the name of one of the onnx package's light models, ``bert``, or a file.
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

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Settings that make BLAS pretend to be on another CPU; ONNX Runtime has no such thing."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of runs per model")
    parser.add_argument(
        "--keep-pins", action="store_true", help=f"leave {' and '.join(PINS)} as they are"
    )
    parser.add_argument(
        "--techniques", action="store_true", help="compare plans instead, with all and with none"
    )
    options = parser.parse_args()
    wanted = dict.fromkeys(THREADS, "1")
    drop = [] if options.keep_pins else [name for name in PINS if name in os.environ]
    if drop or any(os.environ.get(name) != "1" for name in THREADS):
        # BLAS reads these when it is loaded.
        environment = {k: v for k, v in os.environ.items() if k not in drop} | wanted
        return subprocess.call([sys.executable, *sys.argv], env=environment)
    return report(options.models, options.rounds, options.techniques)


def report(models: list[str], rounds: int, techniques: bool) -> int:
    """Print one line per model, and the geometric mean over the light ones."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
    import light_models

    print(f"BLAS kernels: {blas_kernels()}")
    names = ("none", "all") if techniques else ("ONNX Runtime", "arenaplan")
    print(f"{'model':<16}{names[0]:>14}{names[1]:>12}{'ratio':>8}{'arena MiB':>11}")
    ratios = []
    for name in models or [*light_models.NAMES, "bert"]:
        ratio = measure(name, rounds, techniques)
        if name in light_models.NAMES:
            ratios.append(ratio)
    if len(ratios) > 1:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{'geometric mean of ' + str(len(ratios)) + ' light models':<42}{mean:>8.2f}")
    return 0


def measure(name: str, rounds: int, techniques: bool) -> float:
    """Print the line of one model, and return its ratio."""
    import onnx

    import arenaplan as ap
    import light_models

    if name in light_models.NAMES:
        model = light_models.randomized(name)
    elif name == "bert":
        model = bert()
    else:
        model = onnx.load(name)
    inputs = random_inputs(model)
    compared = None if techniques else partial(light_models.onnx_runtime(model).run, None, inputs)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        graph = ap.load(path)
        del model
        executor = stack.enter_context(ap.Executor(graph))
        run = partial(executor.run, inputs, borrow=True)
        if compared is None:
            plain = ap.plan(graph, workspace="auto", optimize="none", target="numpy")
            other = stack.enter_context(ap.Executor(graph, plain))
            compared = partial(other.run, inputs, borrow=True)
        theirs, ours, ratios = [], [], []
        for _ in range(rounds + 1):
            theirs.append(cpu_time(compared))
            ours.append(cpu_time(run))
            ratios.append(ours[-1] / theirs[-1])
        size = executor.plan.arena_bytes / 2**20
    ratio = statistics.median(ratios[1:])
    their_time, our_time = (statistics.median(times[1:]) for times in (theirs, ours))
    print(
        f"{name:<16}{their_time:>11.2f} ms{our_time:>9.2f} ms{ratio:>8.2f}{size:>11.2f}",
        flush=True,
    )
    return ratio


def cpu_time(run: Callable[[], object]) -> float:
    """Return the milliseconds of CPU time that ``run`` takes, over at least 20 of them."""
    count, start = 0, time.process_time()
    while True:
        run()
        count += 1
        spent = time.process_time() - start
        if spent > 0.02:
            return spent / count * 1e3


def blas_kernels() -> str:
    """Return which CPU NumPy's BLAS was made for, as far as it says."""
    import ctypes

    import numpy as np

    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for library in folder.glob("libscipy_openblas*"):
        name = ctypes.CDLL(str(library)).scipy_openblas_get_corename64_
        name.restype = ctypes.c_char_p
        return str(name().decode())
    return "unknown"


def random_inputs(model):
    """Return random inputs; whole numbers are small, so that they can be token numbers."""
    import numpy as np
    from onnx import helper

    rng = np.random.default_rng(1)
    stored = {i.name for i in model.graph.initializer}
    inputs = {}
    for value in model.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            inputs[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            inputs[value.name] = rng.integers(0, 100, shape).astype(dtype)
    return inputs


def bert(layers: int = 2, hidden: int = 768, heads: int = 12, length: int = 128):
    """Return BERT's encoder as exporters write it for opset 20."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def weight(name: str, *shape: int, scale: float = 0.02, offset: float = 0.0) -> str:
        array = (offset + rng.standard_normal(shape) * scale).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    def constant(name: str, value) -> str:
        if name not in {w.name for w in weights}:
            weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(op: str, inputs: list[str], name: str, **attributes) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name=f"{name}_{op}", **attributes))
        return name

    def linear(x: str, fan_in: int, fan_out: int, name: str) -> str:
        product = node("MatMul", [x, weight(f"{name}.w", fan_in, fan_out)], f"{name}.product")
        return node("Add", [product, weight(f"{name}.b", fan_out)], name)

    def norm(x: str, name: str) -> str:
        scale = weight(f"{name}.scale", hidden, offset=1.0)
        shift = weight(f"{name}.shift", hidden)
        return node("LayerNormalization", [x, scale, shift], name, axis=-1, epsilon=1e-12)

    def split_heads(x: str, name: str, perm: list[int]) -> str:
        shape = constant("split", np.array([1, length, heads, hidden // heads], np.int64))
        return node("Transpose", [node("Reshape", [x, shape], f"{name}.split")], name, perm=perm)

    words = weight("words", 1000, hidden)
    x = node("Gather", [words, "tokens"], "word", axis=0)
    x = node("Add", [x, weight("positions", 1, length, hidden)], "embedded")
    x = norm(x, "embedding")
    for k in range(layers):
        query = linear(x, hidden, hidden, f"{k}.query")
        key = linear(x, hidden, hidden, f"{k}.key")
        value = linear(x, hidden, hidden, f"{k}.value")
        query = split_heads(query, f"{k}.q", [0, 2, 1, 3])
        key = split_heads(key, f"{k}.k", [0, 2, 3, 1])
        value = split_heads(value, f"{k}.v", [0, 2, 1, 3])
        factor = constant("factor", np.float32((hidden // heads) ** -0.5))
        scores = node("Mul", [node("MatMul", [query, key], f"{k}.raw"), factor], f"{k}.scores")
        chances = node("Softmax", [scores], f"{k}.chances", axis=-1)
        context = node("MatMul", [chances, value], f"{k}.heads")
        context = node("Transpose", [context], f"{k}.context", perm=[0, 2, 1, 3])
        shape = constant("merge", np.array([1, length, hidden], np.int64))
        context = node("Reshape", [context, shape], f"{k}.merged")
        context = linear(context, hidden, hidden, f"{k}.out")
        x = norm(node("Add", [context, x], f"{k}.residual"), f"{k}.norm")
        inner = node("Gelu", [linear(x, hidden, 4 * hidden, f"{k}.up")], f"{k}.gelu")
        inner = linear(inner, 4 * hidden, hidden, f"{k}.down")
        x = norm(node("Add", [inner, x], f"{k}.residual2"), f"{k}.norm2")
    graph = helper.make_graph(
        nodes,
        "bert",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, length])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, length, hidden])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


if __name__ == "__main__":
    sys.exit(main())
