"""Verified runs find what is wrong with kernels and plans."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.formats.onnx import load_onnx
from arenaplan.run.numpy.registry import Step
from networks import F32, noise, small_network
from raising import raises


def custom_graph(shape: tuple[int, ...] = (32,)) -> ap.Graph:
    """Return a graph whose middle node is of a kernel that a test registers."""
    graph = ap.Graph()
    x = graph.input("x", shape)
    (a,) = graph.node("Neg", [x], [("a", shape, F32)])
    (b,) = graph.node("Rogue", [a], [("b", shape, F32)], name="rogue", domain="test")
    (c,) = graph.node("Add", [b, x], [("c", shape, F32)], version=14)
    graph.output(c)
    return graph


def run_verified(graph: ap.Graph) -> None:
    with ap.Executor(graph) as executor:
        (x,) = (graph.values[index] for index in graph.inputs)
        executor.run({x.name: noise(*x.shape)}, verify=True)


def beyond(array: np.ndarray, elements: int) -> np.ndarray:
    """Return an array of the same arena that starts some elements after this one's first."""
    memory = array
    while memory.base is not None and isinstance(memory.base, np.ndarray):
        memory = memory.base
    flat = memory.view(np.uint8)
    start = array.ctypes.data - flat.ctypes.data + elements * array.itemsize
    return flat[start : start + array.itemsize].view(array.dtype)


def test_verification_finds_a_kernel_that_writes_into_another_value(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]

        def run() -> None:
            np.negative(source, target)
            beyond(source, 3)[...] = 1  # Of its own input, which it must not write.

        return run

    with raises("VerificationError", match=r"'rogue'.*wrote byte \d+.*of value 'a'"):
        run_verified(custom_graph())


def test_verification_finds_a_kernel_that_writes_where_nothing_is(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]
        gap = beyond(target, target.size)  # Between the end of the value and the next 64 bytes.

        def run() -> None:
            np.negative(source, target)
            gap[...] = 1

        return run

    with raises("VerificationError", match=r"'rogue'.*that nothing owns"):
        run_verified(custom_graph((33,)))


def test_verification_finds_a_kernel_that_leaves_bytes_unwritten(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]

        def run() -> None:
            np.negative(source[:-1], target[:-1])

        return run

    with raises("VerificationError", match=r"'b' differs after node 'rogue'.*byte 124"):
        run_verified(custom_graph())


def test_verification_finds_a_kernel_that_remembers(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]
        calls = [0]

        def run() -> None:
            calls[0] += 1
            np.multiply(source, np.float32(calls[0]), target)

        return run

    graph = custom_graph()
    executor = ap.Executor(graph)
    executor.run({"x": noise(32)})
    with raises("VerificationError", match="'b' differs"):
        executor.run({"x": noise(32)}, verify=True)


class TamperedPlan:
    """A plan with some of its placements changed, that claims to be valid."""

    __class__ = ap.Plan  # type: ignore[assignment]  # The executor takes nothing else.

    def __init__(self, plan: ap.Plan, changes: dict[int, ap.planner.Placement | None]) -> None:
        self._plan = plan
        self.placements = list(plan.placements)
        for index, placement in changes.items():
            self.placements[index] = placement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def check(self, graph: ap.Graph) -> None:
        pass


def test_verification_finds_a_value_whose_memory_is_given_away_too_early() -> None:
    graph = ap.Graph()
    x = graph.input("x", (32,))
    (a,) = graph.node("Neg", [x], [("a", (32,), F32)])
    (b,) = graph.node("Sqrt", [a], [("b", (32,), F32)])
    (c,) = graph.node("Add", [a, b], [("c", (32,), F32)], version=14)
    graph.output(c)
    plan = ap.plan(graph, target="ideal")
    executor = ap.Executor(graph, TamperedPlan(plan, {b: plan.placements[a]}))  # type: ignore[arg-type]
    executor.run({"x": -np.ones(32, np.float32)})
    with raises("VerificationError", match=r"'c' differs after node .*Add"):
        executor.run({"x": -np.full(32, 4, np.float32)}, verify=True)


def test_verification_finds_an_output_that_is_overwritten_after_its_step() -> None:
    graph = ap.Graph()
    x = graph.input("x", (32,))
    (a,) = graph.node("Neg", [x], [("a", (32,), F32)])
    (b,) = graph.node("Exp", [x], [("b", (32,), F32)])
    graph.output(a)
    graph.output(b)
    plan = ap.plan(graph, target="ideal")
    executor = ap.Executor(graph, TamperedPlan(plan, {b: plan.placements[a]}))  # type: ignore[arg-type]
    with raises("VerificationError", match="'a' differs at the end of the run"):
        executor.run({"x": noise(32)}, verify=True)


def test_a_verified_run_returns_what_a_plain_one_does() -> None:
    executor = ap.Executor(small_network())
    x = noise(1, 8, 12, 12)
    plain, verified = executor.run({"x": x}), executor.run({"x": x}, verify=True)
    np.testing.assert_array_equal(plain["y"], verified["y"])
    np.testing.assert_array_equal(executor.run({"x": x})["y"], plain["y"])


def test_a_node_that_runs_again_is_verified_with_a_result_in_memory() -> None:
    """The wide value leaves the graph, and is made again for the node that reads it."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (300,))]
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Cast", ["e"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Neg", ["wide"], ["n"]),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("ArgMin", ["y"], ["least"], axis=0),
        helper.make_node("Clip", ["e"], ["c"]),
    ]
    kinds = {"wide": TensorProto.DOUBLE, "least": TensorProto.INT64, "c": TensorProto.FLOAT}
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "again", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    graph = load_onnx(model)
    plan = ap.plan(graph)
    assert plan.repeated
    x = noise(300)
    with ap.Executor(graph, plan) as executor:
        found = executor.run({"x": x}, verify=True)
    np.testing.assert_allclose(found["wide"], np.exp(x), rtol=1e-6)
