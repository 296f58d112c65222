"""A warm run allocates nothing that was not planned: at most small change per step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import allocation_probe
import operator_cases
from arenaplan.run.numpy.registry import supported_ops

ALLOWED = 256 << 10
PROBE = Path(allocation_probe.__file__)


# With several threads OpenBLAS asks for half a megabyte of work lists per product, whatever
# its size. That is memory of BLAS, as its packing buffers are, and known beforehand.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def probe(*how: str, **environment: str) -> list[dict]:
    """Run the probe in a process of its own."""
    result = subprocess.run(
        [sys.executable, PROBE, *how],
        env={**os.environ, **ONE_THREAD, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


def check(lines: list[dict]) -> None:
    """Raise if a step allocated more than allowed."""
    assert len(lines) > 480, "the probe has covered every operator and model"
    groups = {"residual", "pre-activation", "perceptron", "attention"}
    assert groups <= {line["graph"] for line in lines}
    over = [line for line in lines if line["bytes"] > ALLOWED]
    assert not over, "\n".join(map(str, over))


@pytest.mark.skipif(shutil.which("gcc") is not None, reason="the malloc shim sees more")
def test_no_step_allocates_more_than_small_change_by_tracemalloc() -> None:
    check(probe("tracemalloc"))


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that notes every request of the C heap."""
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the malloc shim needs gcc and glibc")
    folder = tmp_path_factory.mktemp("shim")
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(allocation_probe.SHIM)
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library


def test_no_step_asks_malloc_for_more_than_small_change(shim: Path) -> None:
    check(probe("malloc", LD_PRELOAD=str(shim)))


ALLOWED_PER_OPERATOR = 64 << 10


def test_no_operator_asks_malloc_for_more_than_a_block(shim: Path) -> None:
    lines = probe("malloc", "operators", LD_PRELOAD=str(shim))
    over = [line for line in lines if line["bytes"] > ALLOWED_PER_OPERATOR]
    assert not over, "\n".join(map(str, over))


def test_every_operator_has_a_large_case() -> None:
    made_at_import = {"Constant", "Shape", "Size"}
    bodies = {"If", "Loop", "Scan"}  # Their nodes have cases, and loops a test in test_flow.
    covered = {node.op for case in operator_cases.cases() for node in case.graph().nodes}
    assert covered | made_at_import | bodies >= set(supported_ops())


def test_the_shim_sees_what_numpy_allocates(shim: Path) -> None:
    code = (
        "import ctypes, numpy as np\n"
        "shim = ctypes.CDLL(None)\n"
        "shim.probe_largest.restype = ctypes.c_size_t\n"
        "a = np.ones((1000, 1000), np.float32)\n"
        "out = np.empty((1000, 2000), np.float32)[:, ::2]\n"
        "shim.probe_reset()\n"
        "np.matmul(a, a, out)\n"  # Columns are not contiguous: NumPy copies behind our back.
        "print(shim.probe_largest())\n"
    )
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert int(result.stdout) >= 4_000_000
