"""
The CUDA device without a GPU: its calls on a stand-in for CuPy, its kernels through NVRTC.

Tests that need CuPy are skipped visibly without it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import arenaplan as ap
import fake_cupy
from arenaplan.base.errors import InternalError, InvalidOption
from arenaplan.cli import main
from arenaplan.formats.onnx import load_onnx
from arenaplan.run.cuda.cuda import CudaMemory, adopted, cuda_source
from arenaplan.run.cuda.device_executor import open_device
from arenaplan.run.cuda.device_program import device_program
from host_device import COMPILER
from raising import raises
from test_device import MODELS, assert_equal, expected, model_kernels, prepared


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-in in the place of CuPy."""
    module = ModuleType("cupy")
    for name in ("RawModule", "cuda", "ndarray"):
        setattr(module, name, getattr(fake_cupy, name))
    monkeypatch.setitem(sys.modules, "cupy", module)
    for place in ("cuda", "cublas"):
        monkeypatch.setattr(f"arenaplan.run.cuda.{place}.load_cublas", fake_cupy.load_cublas)


def cupy() -> Any:
    """Return CuPy, or skip."""
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", MODELS)
def test_calls_of_cupy_and_cublas_compute_the_model(name: str) -> None:
    case, graph, _ = model_kernels(name)
    for streams in (1, 3):
        with ap.Executor(graph, device="cuda", workers=streams, capture=True) as executor:
            for _ in range(4):
                assert_equal(list(executor.run(case.inputs).values()), expected(case), name)
            assert "on cuda:0" in repr(executor)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.usefixtures("stand_in")
def test_a_warm_run_that_allocates_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    case, graph, _ = model_kernels("mobile")
    with ap.Executor(graph, device="cuda") as executor:
        executor.run(case.inputs)
        monkeypatch.setattr(
            fake_cupy.Stream, "synchronize", lambda self: fake_cupy.alloc(512) and None
        )
        with pytest.raises(InternalError, match="warm run"):
            executor.run(case.inputs)


@pytest.mark.usefixtures("stand_in")
def test_a_device_that_is_not_there_is_refused() -> None:
    assert open_device("cuda:0").name == "cuda:0"
    with raises("DeviceUnavailable", match="no device cuda:3, only 1"):
        open_device("cuda:3")
    for name in ("cuda:", "cuda:x", "cuda:-1", "hip"):
        with pytest.raises(InvalidOption, match="not cpu, cuda"):
            open_device(name)


@pytest.mark.usefixtures("stand_in")
def test_memory_of_the_caller_is_adopted_by_its_address() -> None:
    interface = {"shape": (4, 8), "typestr": "<f4", "data": (4096, False), "strides": None}
    memory = adopted(SimpleNamespace(__cuda_array_interface__=interface))
    assert (memory.address, memory.bytes) == (4096, 128)
    for change in ({"data": (4096, True)}, {"strides": (64, 4)}):
        with raises("InvalidBuffer"):
            adopted(SimpleNamespace(__cuda_array_interface__={**interface, **change}))
    with raises("InvalidBuffer", match="no memory of a CUDA device"):
        adopted(b"bytes")


def test_without_a_gpu_the_command_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        open_device("cuda")
    except ap.errors.ExecutionError as error:
        missing = str(error)
    else:
        pytest.skip("there is a GPU")
    path = tmp_path / "model.onnx"
    onnx.save(MODELS["mobile"]().proto, path)
    assert main(["run", str(path), "--device", "cuda", "--graph"]) == 3
    assert missing in capsys.readouterr().err
    assert main(["run", str(path), "--graph"]) == 2
    assert "nothing to record on cpu" in capsys.readouterr().err
    assert main(["run", str(path), "--device", "tpu"]) == 2


# -- with CuPy ------------------------------------------------------------------------------


def test_nvrtc_compiles_the_kernels_of_every_operator() -> None:
    cupy()
    compiler = pytest.importorskip("cupy.cuda.compiler")
    kernels = {}
    for ready in prepared():
        kernels.update({kernel.name: kernel for kernel in ready.program.kernels})
    for make in MODELS.values():
        graph = load_onnx(make().proto)
        program = device_program(graph, ap.plan(graph, target="cupy"))
        kernels.update({kernel.name: kernel for kernel in program.kernels})
    program = compiler._NVRTCProgram(cuda_source(list(kernels.values())), "kernels.cu")
    try:
        binary, _ = program.compile(("--std=c++17", "--gpu-architecture=sm_80"))
    except compiler.CompileException as error:
        pytest.fail(str(error)[:4000])
    assert all(name.encode() in binary for name in kernels)


def test_arrays_are_views_at_planned_offsets() -> None:
    library = cupy()
    base = 0x7F0000000000
    whole = library.cuda.UnownedMemory(base, 4096, None, 0)
    memory = CudaMemory(library.cuda.MemoryPointer(whole, 0), 4096)
    assert memory.address == base
    view = memory.view(256, (3, 5), np.dtype("float32"))
    assert view.data.ptr == base + 256
    assert (view.shape, view.strides, view.dtype) == ((3, 5), (20, 4), np.float32)
    assert view.flags.c_contiguous
    with raises("KernelError"):
        memory.view(4093, (1,), np.dtype("float32"))
