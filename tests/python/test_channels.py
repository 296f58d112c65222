"""Groups that run by channels or by rows of images: what is made first never exists as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap
import light_models
from arenaplan.run.numpy.kernels import conv_compiled
from flow_graphs import Builder
from group_runs import check, same_bytes, scratch_of, sizes_of
from step_costs import workspace_choices


def everything(b: Builder, output: int, *, alone: int = 0) -> ap.Plan:
    """Check that all nodes but the first ones run as one, and compute what they should."""
    b.graph.output(output)
    count = len(b.graph.nodes)
    return check(b.graph, [*([node] for node in range(alone)), list(range(alone, count))])


# -- one operator after a convolution --------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 1]])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_pool_follows_a_convolution(op: str, pads: list[int], stride: int, batch: int) -> None:
    b = Builder()
    made = b.elementwise("Relu", b.conv(b.input("x", batch, 3, 19, 14), 6))
    everything(b, b.pool(op, made, 3, stride, pads=pads))


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
def test_windows_at_the_edge_count_the_same_in_tiles(ceil: int, include: int) -> None:
    b = Builder()
    made = b.conv(b.input("x", 1, 3, 18, 11), 4)
    image = [9, 6] if ceil else [8, 5]
    attributes = {
        "kernel_shape": [3, 3],
        "strides": [2, 2],
        "pads": [0, 1, 0, 0],
        "ceil_mode": ceil,
        "count_include_pad": include,
    }
    everything(b, b.planes("AveragePool", made, image, attributes=attributes, version=22))


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_padding_by_rule_is_that_of_the_whole_image(rule: str) -> None:
    b = Builder()
    made = b.conv(b.input("x", 1, 3, 20, 11), 4)
    image = [9, 5] if rule == "VALID" else [10, 6]
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": rule}
    everything(b, b.planes("MaxPool", made, image, attributes=attributes))


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("times", [1, 2])
def test_channels_are_convolved_each_by_itself(kernel: int, stride: int, times: int) -> None:
    b = Builder()
    x = b.elementwise("Relu", b.conv(b.input("x", 1, 4, 17, 13), 12, 1))
    everything(b, b.elementwise("Tanh", b.conv(x, 12 * times, kernel, stride, group=12)))


def test_dilated_windows_reach_further() -> None:
    b = Builder()
    x = b.conv(b.input("x", 1, 4, 21, 13), 6, 1)
    attributes = {"kernel_shape": [3, 3], "dilations": [3, 2], "pads": [3, 2, 3, 2]}
    everything(b, b.planes("MaxPool", x, [21, 13], attributes=attributes))


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_a_channel_is_pooled_as_a_whole(op: str) -> None:
    b = Builder()
    made = b.elementwise("Relu", b.conv(b.input("x", 2, 3, 9, 8), 10))
    everything(b, b.planes(op, made, [1, 1]))


def test_an_instance_is_normalized_by_channels() -> None:
    b = Builder()
    made = b.conv(b.input("x", 2, 3, 9, 8), 10)
    scales = [b.weight(10), b.weight(10)]
    everything(b, b.planes("InstanceNormalization", made, [9, 8], scales, in_place=[0]))


@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_are_resized_by_channels(mode: str, by: str) -> None:
    b = Builder()
    made = b.elementwise("Relu", b.conv(b.input("x", 1, 3, 6, 5), 8))
    name, dtype, how = {
        "scales": ("scales", "float32", np.array([1, 1, 2, 3], np.float32)),
        "sizes": ("sizes", "int64", np.array([1, 8, 12, 15], np.int64)),
    }[by]
    data = b.graph.constant(name, (4,), dtype, how)
    inputs: list[Any] = [made, None, data] if by == "scales" else [made, None, None, data]
    (value,) = b.graph.node(
        "Resize",
        inputs,
        [("y", (1, 8, 12, 15), "float32")],
        version=18,
        attributes={"mode": mode},
        flows=[(0, 8, (0,))],
    )
    assert value is not None
    everything(b, value)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_images_are_padded_by_channels(mode: str) -> None:
    b = Builder()
    made = b.conv(b.input("x", 1, 3, 6, 5), 8)
    pads = b.graph.constant("pads", (8,), "int64", np.array([0, 0, 1, 2, 0, 0, 2, 1], np.int64))
    padded = b.planes("Pad", made, [9, 8], [pads], attributes={"mode": mode})
    everything(b, b.elementwise("Abs", padded))


@pytest.mark.parametrize("group", [2, 3, 6])
def test_a_convolution_in_groups_makes_channels_of_some_of_them(group: int) -> None:
    b = Builder()
    made = b.elementwise("Relu", b.conv(b.input("x", 1, 6, 10, 9), 18, 3, group=group))
    everything(b, b.pool("MaxPool", made))


def test_chains_of_windows_reach_further_with_each() -> None:
    b = Builder()
    x = b.conv(b.input("x", 1, 3, 40, 7), 8, 1)
    for _ in range(3):
        x = b.elementwise("Relu", b.conv(x, 8, 5, group=8))
    everything(b, b.pool("MaxPool", x, 3, 1))


# -- blocks of networks --------------------------------------------------------------------


def test_an_inverted_residual_adds_into_its_input() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 8, 14, 14))
    wide = b.elementwise("Relu", b.conv(x, 48, 1))
    deep = b.elementwise("Relu", b.conv(wide, 48, 3, group=48))
    narrow = b.conv(deep, 8, 1)
    b.graph.output(b.elementwise("Add", narrow, x))
    plan = check(b.graph, [[0], [1, 2, 3, 4], [5, 6]])
    assert plan.placements[wide] is None


def test_windows_do_not_read_what_the_output_took_over() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 6, 30, 30))
    y = b.elementwise("Relu", b.conv(x, 6, 3, group=6))
    plan = everything(b, b.elementwise("Add", y, b.weight(6, 1, 1)), alone=1)
    assert same_bytes(plan, x, len(b.graph.values) - 1)
    assert plan.arena_bytes - scratch_of(plan) <= 2 * 4 * 6 * 30 * 30


def test_what_windows_and_an_addition_read_is_taken_over_by_channels() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 6, 30, 30))
    active = b.elementwise("Relu", x)
    y = b.conv(active, 6, 3, group=6)
    everything(b, b.elementwise("Add", y, active), alone=1)


@pytest.mark.parametrize(("groups", "channels"), [(2, 8), (4, 12), (3, 15)])
def test_shuffled_channels_never_exist(groups: int, channels: int) -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, channels, 10, 10))
    split = b.reshape(x, 1, groups, channels // groups, 10, 10)
    moved = b.transpose(split, 0, 2, 1, 3, 4)
    shuffled = b.reshape(moved, 1, channels, 10, 10)
    b.graph.output(b.conv(shuffled, channels, 3, group=channels))
    plan = check(b.graph, [[0], [1], [2, 3, 4]])
    assert plan.placements[shuffled] is None


def test_blocks_of_shuffled_channels_are_moved_at_a_time() -> None:
    b = Builder()
    split = b.input("x", 1, 4, 60, 64, 64)
    shuffled = b.reshape(b.transpose(split, 0, 2, 1, 3, 4), 1, 240, 64, 64)
    b.graph.output(b.conv(shuffled, 240, 3, group=240))
    assert sizes_of(b.graph, [[0, 1, 2]], 2)[0] < 4 * 240 * 64 * 64 / 7


def test_heads_are_moved_as_attention_reads_them() -> None:
    b = Builder()
    q = b.transpose(b.input("q", 1, 33, 3, 8), 0, 2, 1, 3)
    k = b.input("k", 1, 3, 8, 33)
    scores = b.rows("Softmax", b.matmul(q, k))
    everything(b, b.matmul(scores, b.input("v", 1, 3, 33, 8)))


# -- what is offered ---------------------------------------------------------------------------


def test_scratch_memory_is_much_smaller_than_what_does_not_exist() -> None:
    b = Builder()
    x = b.input("x", 1, 16, 112, 112)
    wide = b.elementwise("Relu", b.conv(x, 96, 1))
    b.graph.output(b.elementwise("Relu", b.conv(wide, 96, 3, 2, group=96)))
    sizes = [c.bytes for c in workspace_choices(b.graph, [[0, 1, 2, 3]])[3][0]]
    assert sizes[0] < 4 * 96 * 112 * 112 / 8


# -- models ----------------------------------------------------------------------------------


class Model:
    """An ONNX model that grows by one operator at a time."""

    def __init__(self, *shape: int) -> None:
        self.rng = np.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = shape
        self.last = "x"

    def weight(self, data: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def op(self, op: str, *others: str, source: str | None = None, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        inputs = [source or self.last, *others]
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.last = name
        return name

    def conv(self, fan_in: int, out: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        shape = (out, fan_in // group, kernel, kernel)
        data = self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        bias = self.weight(self.rng.standard_normal(out).astype(np.float32))
        weights = self.weight(data.astype(np.float32))
        rest = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": group}
        return self.op("Conv", weights, bias, **rest)

    def check(self, tmp_path: Path) -> tuple[ap.Plan, ap.Plan]:
        """Compare with ONNX Runtime; return plans without and with streaming."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "model", [x], [y], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 9
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        feed = {"x": self.rng.standard_normal(self.shape).astype(np.float32)}
        (wanted,) = light_models.onnx_runtime(model).run(None, feed)
        loaded = ap.load(path)
        rest = [name for name in ap.planner.techniques() if name not in ("streaming", "overlap")]
        plain, plan = (
            ap.plan(loaded, optimize=rest, target="numpy", workspace="none"),
            ap.plan(loaded, target="numpy", workspace="none"),
        )
        others = ap.plan(loaded, workspace="auto", target="numpy"), ap.plan(loaded, target="ideal")
        for tried in (plan, *others):
            with ap.Executor(loaded, tried) as executor:
                found = executor.run(feed, verify=True)
            np.testing.assert_allclose(found[self.last], wanted, rtol=1e-4, atol=1e-4)
        return plain, plan


def fused(plan: ap.Plan, ops: Sequence[str], model: Model) -> bool:
    """Whether some step of a plan runs these operators as one."""
    return any([model.nodes[node].op_type for node in step] == [*ops] for step in plan.steps)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_mobile_block_needs_no_wide_image(batch: int, tmp_path: Path) -> None:
    m = Model(batch, 8, 28, 28)
    m.conv(8, 48)
    m.op("Relu")
    m.conv(48, 48, 3, 2, group=48)
    m.op("Relu")
    m.conv(48, 12)
    plain, plan = m.check(tmp_path)
    image = 4 * batch * 28 * 28
    assert plain.arena_bytes == 48 * image + 12 * image
    assert plan.arena_bytes == 8 * image + 12 * image
    assert fused(plan, ["Conv", "Relu", "Conv", "Relu"], m)


def test_a_convolution_before_a_pool_has_no_whole_result(tmp_path: Path) -> None:
    m = Model(1, 3, 32, 32)
    m.conv(3, 16, 3)
    m.op("Relu")
    m.conv(16, 16, 3)
    m.op("Relu")
    m.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    plain, plan = m.check(tmp_path)
    assert (plain.arena_bytes, plan.arena_bytes) == (2 * 4 * 16 * 1024, 5 * 4 * 16 * 256)


def test_channels_are_shuffled_on_the_way(tmp_path: Path) -> None:
    m = Model(1, 12, 16, 16)
    m.conv(12, 24, group=3)
    m.op("Reshape", m.weight(np.array([1, 3, 8, 16, 16])))
    m.op("Transpose", perm=[0, 2, 1, 3, 4])
    m.op("Reshape", m.weight(np.array([1, 24, 16, 16])))
    m.conv(24, 24, 3, 2, group=24)
    plain, plan = m.check(tmp_path)
    assert (plain.arena_bytes, plan.arena_bytes) == (4 * 48 * 256, 4 * 36 * 256)


def test_an_excited_block_is_pooled_on_the_way(tmp_path: Path) -> None:
    m = Model(1, 6, 20, 20)
    m.conv(6, 36)
    x = m.op("Relu")
    m.op("GlobalAveragePool")
    m.conv(36, 9)
    m.op("Relu")
    m.conv(9, 36)
    gate = m.op("Sigmoid")
    m.op("Mul", gate, source=x)
    m.conv(36, 6)
    plain, plan = m.check(tmp_path)
    assert plan.arena_bytes <= plain.arena_bytes


def test_groups_that_the_peak_does_not_need_are_left_apart(tmp_path: Path) -> None:
    m = Model(1, 3, 64, 64)
    m.conv(3, 16, 3)
    m.conv(16, 64, 3)
    m.op("MaxPool", kernel_shape=[4, 4], strides=[4, 4])
    for _ in range(3):
        m.conv(64, 64, 3)
        m.op("MaxPool", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    _, plan = m.check(tmp_path)
    assert [len(step) for step in plan.steps] == [1, 2, 1, 1, 1, 1, 1, 1]


def test_weights_are_prepared_once_for_all_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    made = b.elementwise("Relu", b.conv(b.input("x", 1, 16, 128, 128), 16))
    b.graph.output(b.pool("MaxPool", made))
    steps = [[0, 1, 2]]
    sizes = workspace_choices(b.graph, steps)[2][0]
    assert len(sizes) > 1
    packed: list[Any] = []
    pack = conv_compiled.pack_weights
    monkeypatch.setattr(
        conv_compiled, "pack_weights", lambda *given: packed.append(given) or pack(*given)
    )
    with ap.Executor(b.graph, ap.plan(b.graph, steps=steps, workspace="auto", target="numpy")):
        assert len(packed) == 1


@pytest.mark.parametrize("side", [16, 200])
def test_what_is_loaded_before_a_pool_is_made_by_rows(side: int) -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 24, side, side))
    loaded = b.elementwise("Relu", b.batch_norm(x))
    b.graph.output(b.pool("AveragePool", b.conv(loaded, 12, 3)))
    if side < 100:
        check(b.graph, [[0], [1, 2, 3, 4]])
    else:
        assert sizes_of(b.graph, [[0], [1, 2, 3, 4]], 4)[0] < 4 * 24 * side * side / 4
