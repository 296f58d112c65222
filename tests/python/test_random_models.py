"""Random models compute what ONNX Runtime computes, whatever their values share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
import light_models
from random_models import random_inputs, random_model


@pytest.mark.parametrize("seed", range(60))
def test_random_models_agree_with_onnx_runtime(seed: int, tmp_path: Path) -> None:
    model, path = random_model(seed), tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    inputs = random_inputs(model)
    names = [value.name for value in model.graph.output]
    # If it may, version 1.31 moves the zeros of a Pad into a MaxPool, which ignores its padding.
    wanted = light_models.onnx_runtime(model, plain=True).run(names, inputs)
    graph = ap.load(path)
    apart, plan = ap.plan(graph, optimize="none", target="ideal"), ap.plan(graph, target="ideal")
    assert plan.arena_bytes <= apart.arena_bytes
    for tried in (plan, ap.plan(graph, workspace="auto", target="numpy")):
        with ap.Executor(graph, tried) as executor:
            found = executor.run(inputs, verify=True)
        for name, array in zip(names, wanted, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)
