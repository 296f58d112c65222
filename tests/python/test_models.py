"""Whole models give the right numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import arenaplan as ap
import grouping
import light_models


@pytest.mark.parametrize("name", light_models.NAMES)
def test_light_models_give_the_stored_output(name: str, tmp_path: Path) -> None:
    inputs, wanted = light_models.stored_case(name)
    with ap.Executor(ap.load(light_models.path(name))) as executor:
        (result,) = executor.run(inputs).values()
    if np.allclose(result, wanted, rtol=1e-4, atol=1e-6):
        return
    # All weights of these models are equal, and so should all scores be: the stored output
    # is 1/1000 everywhere. But scores are so large (1e10 and more) that the spacing of
    # numbers there exceeds 1, and Softmax tells apart what BLAS rounded differently, as
    # OpenBLAS's AVX2 kernels do from one matrix row to the next. That is all it may be.
    assert name == "squeezenet", np.abs(result - wanted).max()
    assert (wanted == wanted.flat[0]).all()
    path = tmp_path / "scores.onnx"
    path.write_bytes(
        light_models.softmax_input(onnx.load(light_models.path(name))).SerializeToString()
    )
    with ap.Executor(ap.load(path)) as executor:
        (scores,) = executor.run(inputs).values()
    assert np.spacing(scores.min()) > 1
    np.testing.assert_allclose(scores, scores.flat[0], rtol=1e-6)


@pytest.mark.parametrize("name", light_models.VARIED)
def test_light_models_with_random_weights_agree_with_onnx_runtime(
    name: str, tmp_path: Path
) -> None:
    model = light_models.softmax_input(light_models.randomized(name))
    inputs = light_models.random_input(model)
    (wanted,) = light_models.onnx_runtime(model).run(None, inputs)
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    del model
    with ap.Executor(ap.load(path)) as executor:
        (result,) = executor.run(inputs, verify=True).values()
    assert wanted.std() > 1e-2, "a constant output would prove nothing"
    assert np.abs(result - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", light_models.NAMES)
def test_scratch_memory_costs_little_beside_what_streams_save(name: str) -> None:
    graph = ap.load(light_models.path(name))
    with_scratch = ap.plan(graph, target="numpy", max_slowdown=None).arena_bytes
    rest = [technique for technique in ap.planner.techniques() if technique != "streaming"]
    assert with_scratch <= 1.05 * ap.plan(graph, optimize=rest, target="ideal").arena_bytes
    assert with_scratch <= 1.25 * ap.plan(graph, target="ideal").arena_bytes


PROLOGUES = [(name, grouping.one_anchor) for name in ("densenet121", "shufflenet")]


@pytest.mark.parametrize(
    ("name", "wanted"), [*((name, grouping.epilogues) for name in light_models.VARIED), *PROLOGUES]
)
def test_light_models_in_groups_agree_with_onnx_runtime(
    name: str, wanted: grouping.Wanted, tmp_path: Path
) -> None:
    model = light_models.softmax_input(light_models.randomized(name))
    inputs = light_models.random_input(model)
    (expected,) = light_models.onnx_runtime(model).run(None, inputs)
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    del model
    graph = ap.load(path)
    steps = grouping.greedy(graph, wanted)
    assert len(steps) < len(graph.nodes)
    plan = ap.plan(graph, steps=steps, workspace="auto", target="numpy")
    apart = ap.plan(graph, optimize="views,in-place", target="ideal")
    assert plan.arena_bytes <= 1.05 * apart.arena_bytes
    with ap.Executor(graph, plan) as executor:
        assert executor.scratch_bytes == 0
        (result,) = executor.run(inputs, verify=True).values()
    assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()


EXPORTED = ["bert", "gpt2", "mobilenet_v2", "resnet", "unet", "vit"]


@pytest.mark.parametrize("wanted", [grouping.epilogues, grouping.one_anchor, grouping.anything])
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_models_in_groups_give_the_stored_output(
    name: str, wanted: grouping.Wanted, shared: Path
) -> None:
    folder = shared / "models" / "onnx"
    stored = np.load(folder / f"{name}.npz")
    graph = ap.load(folder / f"{name}.onnx")
    steps = grouping.greedy(graph, wanted)
    assert len(steps) < len(graph.nodes)
    inputs = {graph.values[index].name: stored[f"in{k}"] for k, index in enumerate(graph.inputs)}
    with ap.Executor(
        graph, ap.plan(graph, steps=steps, workspace="auto", target="numpy")
    ) as executor:
        (result,) = executor.run(inputs, verify=True).values()
    assert np.abs(result - stored["out0"]).max() <= 1e-5 * np.abs(stored["out0"]).max()


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_models_give_the_stored_output(name: str, shared: Path) -> None:
    folder = shared / "models" / "onnx"
    stored = np.load(folder / f"{name}.npz")
    graph = ap.load(folder / f"{name}.onnx")
    with ap.Executor(graph) as executor:
        inputs = {
            graph.values[index].name: stored[f"in{k}"] for k, index in enumerate(graph.inputs)
        }
        (result,) = executor.run(inputs, verify=True).values()
    assert np.abs(result - stored["out0"]).max() <= 1e-5 * np.abs(stored["out0"]).max()
