"""Threads divide compiled kernels: the bits of results do not depend on their number."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

import arenaplan as ap
from arenaplan._core import CompiledKernel, ThreadTeam
from arenaplan.base.errors import InvalidOption
from test_compiled import F32, conv, random


def network() -> tuple[ap.Graph, dict[str, np.ndarray]]:
    """Return convolutions of all kinds, whose kernels are long enough to be divided."""
    graph = ap.Graph("network")
    x = graph.input("x", (1, 3, 96, 96))
    y, size = conv(graph, x, 32, 3, 2, 1, 96)
    for outward, kernel, stride, group in ((32, 5, 1, 32), (64, 1, 1, 1), (96, 3, 2, 2)):
        shape = graph.values[y].shape
        (y,) = graph.node("Relu", [y], [(f"r{y}", shape, F32)], version=14)
        y, size = conv(graph, y, outward, kernel, stride, group, size)
    (erf,) = graph.node("Erf", [y], [("erf", (1, 96, size, size), F32)], version=13)
    (total,) = graph.node("Mul", [erf, y], [("total", (1, 96, size, size), F32)], version=14)
    (pooled,) = graph.node(
        "MaxPool",
        [total],
        [("pooled", (1, 96, size, size), F32)],
        version=12,
        attributes={"kernel_shape": [3, 3], "pads": [1] * 4},
    )
    (rows,) = graph.node("Softmax", [pooled], [("rows", (1, 96, size, size), F32)], version=13)
    graph.output(rows)
    return graph, {"x": random(1, 3, 96, 96)}


def perceptron() -> tuple[ap.Graph, dict[str, np.ndarray]]:
    """Return products with constants between norms."""
    graph = ap.Graph("perceptron")
    y = graph.input("x", (4, 100, 200))
    for at, width in enumerate((500, 333)):
        inward = graph.values[y].shape[-1]
        scale = graph.constant(f"s{at}", (inward,), F32, random(inward, seed=at))
        y = graph.node(
            "LayerNormalization", [y, scale], [(f"n{at}", (4, 100, inward), F32)], version=17
        )[0]
        w = graph.constant(f"w{at}", (inward, width), F32, random(inward, width, seed=at))
        (y,) = graph.node("MatMul", [y, w], [(f"y{at}", (4, 100, width), F32)], version=13)
    graph.output(y)
    return graph, {"x": random(4, 100, 200)}


@pytest.mark.parametrize("make", [network, perceptron])
def test_bits_do_not_depend_on_threads(
    make: Callable[[], tuple[ap.Graph, dict[str, np.ndarray]]],
) -> None:
    graph, inputs = make()
    plan = ap.plan(graph, target="numpy", workspace="auto")
    with ap.Executor(graph, plan) as executor:
        wanted = executor.run(inputs)
        alone = executor.scratch_bytes
    for threads in (2, 3):
        with ap.Executor(graph, plan, threads=threads) as executor:
            assert executor.scratch_bytes >= alone
            for _ in range(3):
                for name, array in executor.run(inputs).items():
                    assert np.array_equal(array, wanted[name])
            executor.run(inputs, verify=True)
    both = ap.plan(graph, target="numpy", workspace="auto", workers=2)
    with ap.Executor(graph, both, workers=2, threads=2) as executor:
        for name, array in executor.run(inputs).items():
            assert np.array_equal(array, wanted[name])


def test_a_chain_in_the_memory_of_its_operand_is_divided() -> None:
    first, second = random(300, 1001), random(300, 1, seed=1)
    steps = [
        ("load", 0, (0, 0, 0.0)),
        ("load", 1, (1, 0, 0.0)),
        ("erf", 2, (0, 0, 0.0)),
        ("mul", 3, (2, 1, 0.0)),
    ]
    results = []
    for threads in (1, 2, 4):
        with ThreadTeam(threads) as team:
            made = first.copy()
            operands = [made, np.broadcast_to(second, made.shape)]
            kernel = CompiledKernel.chain(steps, 3, operands, made)
            assert (team.threads, repr(team)) == (threads, f"ThreadTeam({threads})")
        kernel()
        results.append(made)
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_kernels_keep_their_team_and_others_have_none() -> None:
    rows = random(2000, 64)
    made = np.empty_like(rows)
    with ThreadTeam(2):
        inside = CompiledKernel.softmax(rows, made)
    before = threading.active_count()
    inside()
    wanted = made.copy()
    CompiledKernel.softmax(rows, made)()
    assert np.array_equal(made, wanted)
    assert threading.active_count() == before, "helpers are no threads of Python"


def test_numbers_of_threads_are_checked() -> None:
    graph, _ = perceptron()
    for wrong in (0, -1):
        with pytest.raises(InvalidOption, match="option threads"):
            ap.Executor(graph, threads=wrong)


def test_a_process_that_was_forked_off_runs_alone() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    script = """
import os, numpy as np
from arenaplan._core import CompiledKernel, ThreadTeam
rows = np.random.default_rng(0).standard_normal((4000, 64)).astype("f4")
made = np.empty_like(rows)
with ThreadTeam(3):
    kernel = CompiledKernel.softmax(rows, made)
kernel()
wanted = made.copy()
child = os.fork()
made[:] = 0
kernel()
del kernel
if child == 0:
    os._exit(0 if np.array_equal(made, wanted) else 1)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(made, wanted)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
