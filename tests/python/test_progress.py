"""What a long plan tells while it is being made."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import arenaplan as ap
import light_models


def test_a_plan_tells_which_phase_it_is_in() -> None:
    told: list[dict[str, Any]] = []
    plan = ap.plan(ap.load(light_models.path("resnet50")), on_progress=told.append, target="ideal")
    stages = [progress["stage"] for progress in told]
    assert stages.index("fusion") < stages.index("order")
    assert stages[-1] not in ("fusion", "order")
    assert told[-1]["peak"] == plan.arena_bytes
    assert all(a["seconds"] <= b["seconds"] for a, b in pairwise(told))


def test_what_a_callback_raises_ends_the_search() -> None:
    def stop(progress: dict[str, Any]) -> None:
        raise RuntimeError(progress["stage"])

    with pytest.raises(RuntimeError, match="fusion"):
        ap.plan(ap.load(light_models.path("densenet121")), on_progress=stop, target="ideal")
