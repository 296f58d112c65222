"""
Measures what each step of a warm run allocates, and prints it as JSON lines.

Run as a program: ``python allocation_probe.py tracemalloc`` asks Python's allocators,
``python allocation_probe.py malloc`` asks the shim of :data:`SHIM`, which must be
preloaded and sees C code too.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np

import arenaplan as ap
import light_models
import operator_cases
from arenaplan.run.numpy.executor import quiet_arithmetic
from flow_graphs import large_groups

SHIM = r"""
#include <stddef.h>
#include <errno.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static __thread size_t largest;

static void note(size_t size) { if (size > largest) largest = size; }

void probe_reset(void) { largest = 0; }
size_t probe_largest(void) { return largest; }

void *malloc(size_t size) { note(size); return __libc_malloc(size); }
void *calloc(size_t n, size_t size) { note(n * size); return __libc_calloc(n, size); }
void *realloc(void *p, size_t size) { note(size); return __libc_realloc(p, size); }
void *memalign(size_t align, size_t size) { note(size); return __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { note(size); return __libc_memalign(align, size); }
int posix_memalign(void **p, size_t align, size_t size) {
    note(size);
    *p = __libc_memalign(align, size);
    return *p ? 0 : ENOMEM;
}
"""


def single_nodes() -> Iterator[tuple[str, ap.Graph]]:
    """Yield one graph per operator, with operands of about a megabyte or more."""
    image, matrix = (1, 64, 80, 80), (512, 768)
    pads, window = {"pads": [1] * 4}, {"kernel_shape": [3, 3]}
    channels = [(64,)] * 4

    def graph(
        op: str,
        *shapes: tuple[int, ...],
        shape: tuple[int, ...] | list[tuple[int, ...]] | None = None,
        dtype: str = "float32",
        constants: int = 0,
        in_place: bool = False,
        version: int = 17,
        numbers: tuple[np.ndarray, ...] = (),
        result: str | None = None,
        **attributes: object,
    ) -> tuple[str, ap.Graph]:
        built = ap.Graph(op)
        operands = []
        for k, operand in enumerate(shapes):
            if k < len(shapes) - constants:
                operands.append(built.input(f"x{k}", operand, dtype))
            else:
                data = np.full(operand, 0.5, dtype)
                operands.append(built.constant(f"x{k}", operand, dtype, data))
        for k, data in enumerate(numbers):
            operands.append(built.constant(f"c{k}", data.shape, data.dtype.name, data))
        if in_place:  # An input of the graph is not overwritten, so that it needs a copy.
            (operands[0],) = built.node("Abs", operands[:1], [("copy", shapes[0], dtype)])
        targets = shape if isinstance(shape, list) else [shape or shapes[0]]
        results = [(f"y{k}", target, result or dtype) for k, target in enumerate(targets)]
        outputs = built.node(
            op,
            operands,
            results,
            attributes=attributes,
            version=version,
            in_place=[(0, 0)] if in_place else [],
        )
        for output in outputs:
            built.output(output)
        name = f"{op} {dtype}{' in place' if in_place else ''} {attributes or ''}"
        return name, built

    for dtype in ("float32", "float16", "float64"):
        yield graph("Conv", image, (64, 64, 3, 3), dtype=dtype, constants=1, **pads)
        yield graph("Conv", image, (64, 64, 3, 3), (64,), dtype=dtype, **pads)
        yield graph("MaxPool", image, dtype=dtype, **pads, **window)
        yield graph("MatMul", matrix, (768, 640), shape=(512, 640), dtype=dtype)
        yield graph("Softmax", matrix, dtype=dtype)
        yield graph("LayerNormalization", matrix, (768,), (768,), dtype=dtype, constants=2)
    yield graph("Conv", image, (64, 1, 5, 5), constants=1, group=64, pads=[2] * 4)
    yield graph("Conv", image, (128, 64, 1, 1), shape=(1, 128, 80, 80), constants=1)
    yield graph(
        "Conv", image, (64, 64, 3, 3), shape=(1, 64, 40, 40), constants=1, strides=[2, 2], **pads
    )
    yield graph(
        "ConvTranspose", image, (64, 32, 2, 2), shape=(1, 32, 160, 160), constants=1, strides=[2, 2]
    )
    yield graph("MaxPool", image, shape=(1, 64, 40, 40), kernel_shape=[2, 2], strides=[2, 2])
    yield graph("AveragePool", image, **pads, **window)
    yield graph("GlobalAveragePool", image, shape=(1, 64, 1, 1))
    yield graph("GlobalMaxPool", image, shape=(1, 64, 1, 1))
    yield graph("LpPool", image, version=18, **pads, **window)
    yield graph("MatMul", (8, 12, 128, 64), (8, 12, 64, 128), shape=(8, 12, 128, 128))
    yield graph("MatMul", (8, 128, 768), (768, 768), shape=(8, 128, 768), constants=1)
    yield graph("MatMul", (256, 512), (512, 256), shape=(256, 256), dtype="int32")
    yield graph("Gemm", matrix, (640, 768), (640,), shape=(512, 640), constants=2, transB=1)
    yield graph("Gemm", (768, 512), (768, 640), (512, 640), shape=(512, 640), transA=1, beta=0.5)
    for in_place in (False, True):
        yield graph("Softmax", matrix, in_place=in_place)
        yield graph("LogSoftmax", matrix, in_place=in_place)
        yield graph("BatchNormalization", image, *channels, constants=4, in_place=in_place)
        yield graph("LayerNormalization", matrix, (768,), (768,), constants=2, in_place=in_place)
        yield graph("RMSNormalization", matrix, (768,), constants=1, version=23, in_place=in_place)
        yield graph("InstanceNormalization", image, *channels[:2], constants=2, in_place=in_place)
        yield graph(
            "GroupNormalization",
            image,
            *channels[:2],
            constants=2,
            version=21,
            num_groups=8,
            in_place=in_place,
        )
        for op in ("Relu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Neg", "Reciprocal"):
            yield graph(op, image, in_place=in_place)
        yield graph("Gelu", image, version=20, in_place=in_place)
        yield graph("Gelu", image, version=20, in_place=in_place, approximate="tanh")
        for op in ("Add", "Mul", "Sub", "Div"):
            yield graph(op, image, image, in_place=in_place)
            yield graph(op, image, (64, 1, 1), constants=1, in_place=in_place)
        yield graph("Pow", image, (), constants=1, in_place=in_place)
        bounds = (np.array(0, np.float32), np.array(6, np.float32))
        yield graph("Clip", image, numbers=bounds, in_place=in_place)
    yield graph("Softmax", image, axis=1)
    yield graph("BatchNormalization", image, *channels)
    yield graph("LRN", image, size=5)
    yield graph("Attention", *[(1, 12, 256, 64)] * 3, version=23, is_causal=1)
    yield graph("Attention", *[(1, 256, 768)] * 3, version=23, q_num_heads=12, kv_num_heads=12)
    yield graph("Transpose", image, shape=(1, 80, 80, 64), perm=[0, 2, 3, 1])
    yield graph("Transpose", matrix, shape=(768, 512), perm=[1, 0])
    yield graph("Concat", image, image, shape=(1, 128, 80, 80), axis=1)
    yield graph("Concat", image, image, shape=(1, 64, 80, 160), axis=3)
    halves = np.array([32, 32])
    yield graph("Split", image, shape=[(1, 32, 80, 80)] * 2, numbers=(halves,), axis=1)
    rows = np.arange(0, 512, 2)
    yield graph("Gather", matrix, shape=(256, 768), numbers=(rows,))
    yield graph("Gather", matrix, shape=(512, 256), numbers=(rows,), axis=1)
    yield graph("Expand", (1, 768), shape=(512, 768), numbers=(np.array([512, 768]),))
    yield graph("ReduceMean", image, shape=(1, 64, 1, 1), axes=[2, 3])
    yield graph("ReduceMean", matrix, shape=(512, 1), axes=[1])
    yield graph("Cast", image, result="float16", to=10)
    yield graph("Sum", image, image)


def models() -> Iterator[tuple[str, ap.Graph]]:
    """Yield whole models."""
    for name in light_models.VARIED:
        yield name, ap.load(light_models.path(name))


def measured(reset: Callable[[], None], largest: Callable[[], int]) -> Iterator[dict[str, object]]:
    """Yield what each step of each graph allocates in its third run."""
    plain = ((name, graph, None) for source in (single_nodes(), models()) for name, graph in source)
    for source in (plain, large_groups()):
        for name, graph, steps in source:
            executor = ap.Executor(
                graph, ap.plan(graph, steps=steps, workspace="auto", target="numpy")
            )
            inputs = {
                graph.values[index].name: np.ones(
                    graph.values[index].shape, graph.values[index].dtype
                )
                for index in graph.inputs
            }
            for _ in range(2):
                executor.run(inputs)
            program = executor._setup.program
            with quiet_arithmetic():
                for run, node in zip(program.runs, program.nodes, strict=True):
                    reset()
                    run()
                    yield {"graph": name, "node": node.name, "op": node.op, "bytes": largest()}


def every_operator(
    reset: Callable[[], None], largest: Callable[[], int]
) -> Iterator[dict[str, object]]:
    """Yield what each step of a large case of every operator allocates in its third run."""
    for case in operator_cases.cases():
        graph = case.graph()
        inputs = case.feed()
        executor = ap.Executor(graph)
        for _ in range(2):
            executor.run(inputs)
        program = executor._setup.program
        with quiet_arithmetic():
            for run, node in zip(program.runs, program.nodes, strict=True):
                reset()
                run()
                yield {"graph": case.op, "node": node.name, "op": node.op, "bytes": largest()}


def main(how: str, what: str = "models") -> None:
    if how == "malloc":
        shim = ctypes.CDLL(None)
        shim.probe_largest.restype = ctypes.c_size_t
        reset, largest = shim.probe_reset, shim.probe_largest
    else:
        tracemalloc.start()
        before = 0

        def reset() -> None:
            nonlocal before
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]

        def largest() -> int:
            return tracemalloc.get_traced_memory()[1] - before

    measure = every_operator if what == "operators" else measured
    for line in measure(reset, largest):
        print(json.dumps(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
