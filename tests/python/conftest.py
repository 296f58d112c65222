"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of models and data beside the repository, or skip the test."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    folder = Path(os.environ.get("ARENAPLAN_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set ARENAPLAN_SHARED")
    return folder
