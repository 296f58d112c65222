"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Machines are shared: no test depends on how long it takes.
# A run of CI repeats the cases of the run before, here as in the tests of Rust.
settings.register_profile("arenaplan", deadline=None, derandomize="PROPTEST_RNG_SEED" in os.environ)
settings.load_profile("arenaplan")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of models and data beside the repository, or skip the test."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    folder = Path(os.environ.get("ARENAPLAN_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set ARENAPLAN_SHARED")
    return folder


@pytest.fixture
def custom() -> Iterator[Any]:
    """Return a decorator that registers kernels of the domain "test" for one test."""
    from arenaplan.run.numpy import kernel
    from arenaplan.run.numpy.registry import _KERNELS

    yield lambda op, **options: kernel(op, domain="test", **options)
    for key in [key for key in _KERNELS if key[0] == "test"]:
        del _KERNELS[key]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run PyTorch on one thread: threads that wait cost more than the small steps of tests."""
    torch = pytest.importorskip("torch")
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_not_ignored() -> Iterator[None]:
    """Undo what shells do to background jobs: they, and their children, ignore Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
