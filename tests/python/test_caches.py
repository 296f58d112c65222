"""Caches: one copy of what a run writes over, and states from run to run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
import flat
from arenaplan.base.errors import InvalidOption, ShapeMismatch, UnboundDim
from arenaplan.cli import main
from arenaplan.tflite.files import load_tflite
from language_models import HEADS, KV_HEADS, WIDTH, WORDS, decoder, joining_decoder, sizes
from raising import raises

CACHE = 1024 * 64 * 4
WINDOW = 6
"""Tokens that a layer of some decoders sees."""
TARGETS = ["numpy", "nodes", "ideal", "c"]
UPDATES: dict[str, tuple[list[int], list[int], dict[str, int]]] = {
    "TensorScatter": ([1, 1, 64], [1], {"axis": 1}),
    "ScatterND": ([1, 64], [1, 2], {}),
    "ScatterElements": ([1, 1, 64], [1, 1, 64], {"axis": 1}),
}


def update(op: str, *, is_input: bool) -> Any:
    """Return a model that writes one row of a cache: of an input, or of an activation that dies."""
    rows, places, attributes = UPDATES[op]
    info, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    operands = ["m", "u", "i"] if op == "TensorScatter" else ["m", "i", "u"]
    given = "m" if is_input else "cache"
    nodes = [helper.make_node(op, operands, ["n"], **attributes)]
    if not is_input:
        nodes = [helper.make_node("Neg", ["cache"], ["m"]), *nodes]
        nodes.append(helper.make_node("Relu", ["n"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [
            info(given, kind, [1, 1024, 64]),
            info("u", kind, rows),
            info("i", TensorProto.INT64, places),
        ],
        [info("n" if is_input else "y", kind, None)],
    )
    opsets = [helper.make_opsetid("", 24)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


@pytest.mark.parametrize("op", UPDATES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("is_input", [True, False], ids=["input", "activation"])
def test_a_cache_has_one_copy(op: str, target: str, is_input: bool) -> None:
    graph = ap.load(update(op, is_input=is_input).SerializeToString())
    plan = ap.plan(graph, target=target, workspace="none", inputs="reuse")
    assert CACHE <= plan.arena_bytes < CACHE + 2048


@pytest.mark.parametrize("op", UPDATES)
def test_a_cache_that_the_caller_keeps_has_two(op: str) -> None:
    graph = ap.load(update(op, is_input=True).SerializeToString())
    assert ap.plan(graph, inputs="keep").arena_bytes >= 2 * CACHE


@pytest.mark.parametrize("target", TARGETS)
def test_a_cache_of_tflite_has_one_copy(target: str) -> None:
    tensors = [
        flat.tensor("cache", (1, 1024, 64)),
        flat.tensor("row", (1, 1, 64)),
        flat.tensor("at", (3,), 2),
        flat.tensor("y", (1, 1024, 64)),
    ]
    graph = flat.subgraph(tensors, [flat.operator(0, [0, 1, 2], [3])], [0, 1, 2], [3])
    codes = [flat.code("DYNAMIC_UPDATE_SLICE", None)]
    loaded = load_tflite(flat.write(flat.model(codes, [graph], [b""])))
    plan = ap.plan(loaded, target=target, workspace="none", inputs="reuse")
    assert plan.arena_bytes < CACHE + 2048


# -- caches as states -----------------------------------------------------------------------------


def generated(
    steps: int, prompt: list[int], model: Any = None
) -> tuple[list[int], list[np.ndarray]]:
    """Return what ONNX Runtime generates, with caches that grow."""
    from light_models import onnx_runtime

    session = onnx_runtime(model or decoder())
    names = [value.name for value in session.get_inputs()]
    past = {
        value.name: np.zeros(
            (1, value.shape[1], WINDOW if "sliding" in value.shape[2] else 0, WIDTH), np.float32
        )
        for value in session.get_inputs()
        if value.name.startswith("past")
    }
    words, row, rows = list(prompt), np.array([prompt]), []
    for _ in range(steps):
        feeds = {"input_ids": row, "attention_mask": np.ones((1, len(words)), np.int64)}
        if "position_ids" in names:
            feeds["position_ids"] = np.arange(len(words) - row.size, len(words))[None]
        results = session.run(None, {**feeds, **past})
        outputs = dict(zip([o.name for o in session.get_outputs()], results, strict=True))
        rows.append(outputs["logits"][0, -1])
        words.append(int(rows[-1].argmax()))
        row = np.array([words[-1:]])
        past = {name: outputs[name.replace("past_key_values", "present")] for name in past}
    return words[len(prompt) :], rows


def test_a_decoder_with_kept_caches_generates_what_onnx_runtime_does() -> None:
    prompt, room = [5, 17, 3, 99], 32
    words, rows = generated(12, prompt)
    graph = ap.keep_caches(ap.load(decoder().SerializeToString(), bind=sizes(room)))
    caches = 4 * room * KV_HEADS * WIDTH * 4
    plan = ap.plan(graph, target="numpy")
    assert caches < plan.arena_bytes < 2 * caches + (1 << 15)
    with ap.Executor(graph, plan) as executor:
        for turn in range(2):
            executor.reset()
            queue, found = list(prompt), []
            for at in range(room):
                mask = (np.arange(room) <= at).astype(np.int64)[None]
                feeds = {"input_ids": np.array([[queue.pop(0)]]), "attention_mask": mask}
                logits = executor.run(feeds, verify=not turn)["logits"][0, -1]
                assert logits.shape == (WORDS,)
                if not queue:
                    np.testing.assert_allclose(logits, rows[len(found)], atol=1e-5)
                    found.append(int(logits.argmax()))
                    queue.append(found[-1])
                if len(found) == len(words):
                    break
            assert found == words


def test_pairs_are_named_or_found() -> None:
    graph = ap.load(update("ScatterND", is_input=True).SerializeToString())
    for kept in (ap.keep_caches(graph), ap.keep_caches(graph, {"m": "n"})):
        assert [kept.values[at].name for at in kept.inputs] == ["u", "i"]
        assert not kept.outputs
        assert ap.plan(kept).arena_bytes < CACHE + 2048
    with pytest.raises(InvalidOption, match="no input 'x'"):
        ap.keep_caches(graph, {"x": "n"})
    with pytest.raises(InvalidOption, match="no output 'm'"):
        ap.keep_caches(graph, {"m": "m"})
    with pytest.raises(ShapeMismatch, match=r"\(1, 64\)"):
        ap.keep_caches(graph, {"u": "n"})


def test_an_elementwise_result_is_no_cache() -> None:
    graph = ap.Graph("g")
    x = graph.input("x", (4,))
    (y,) = graph.node(
        "Relu", [x], [("y", (4,), "float32")], in_place=[(0, 0)], flows=[(0, 4, (0,))]
    )
    graph.output(y)
    with pytest.raises(InvalidOption, match="no cache"):
        ap.keep_caches(graph)


def test_the_command_keeps_caches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "decoder.onnx"
    path.write_bytes(decoder().SerializeToString())
    bound = [f"--bind={name}={number}" for name, number in sizes(64).items()]
    assert main(["run", str(path), *bound, "--keep-caches", "--verify"]) == 0
    assert "present" not in capsys.readouterr().out
    assert main(["plan", str(path), *bound, "--keep-caches"]) == 0
    assert main(["plan", str(path), *bound, "--inputs", "keep"]) == 0
    with_states, with_copies = (
        int(line.split()[1].replace(",", ""))
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  arena")
    )
    assert with_states < 0.8 * with_copies


def joined(axis: int, layout: Sequence[int], new: int) -> Any:
    """Return a model that joins a cache with new entries along an axis, and reads both."""
    info, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    past, fresh = list(layout), list(layout)
    past[axis], fresh[axis] = layout[axis] - new, new
    nodes = [
        helper.make_node("Neg", ["x"], ["k"]),
        helper.make_node("Concat", ["past", "k"], ["present"], axis=axis),
        helper.make_node("ReduceSum", ["present"], ["y"]),
    ]
    given = [info("x", kind, fresh), info("past", kind, past)]
    outputs = [info("y", kind, None), info("present", kind, list(layout))]
    graph = helper.make_graph(nodes, "g", given, outputs)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("axis", "layout"), [(2, (2, 3, 9, 4)), (1, (2, 9, 3)), (3, (1, 2, 4, 9)), (-2, (2, 9, 3))]
)
@pytest.mark.parametrize("new", [1, 2, 5, 9])
@pytest.mark.parametrize("target", ["numpy", "nodes"])
def test_a_joined_cache_moves_in_place(
    axis: int, layout: Sequence[int], new: int, target: str
) -> None:
    graph = ap.keep_caches(ap.load(joined(axis, layout, new).SerializeToString()))
    assert [graph.values[at].name for at in graph.inputs] == ["x"]
    plan = ap.plan(graph, target=target)
    fresh, size = list(layout), 4 * int(np.prod(layout))
    fresh[axis] = new
    assert plan.arena_bytes < size + 2 * 4 * int(np.prod(fresh)) + 256
    if target == "nodes":
        return
    wanted, draw = np.zeros(layout, np.float32), np.random.default_rng(new)
    with ap.Executor(graph, plan) as executor:
        for turn in range(5):
            x = draw.standard_normal(fresh).astype(np.float32)
            y = executor.run({"x": x}, verify=turn < 2)["y"]
            wanted = np.concatenate([wanted.take(range(new, 9), axis), -x], axis)
            np.testing.assert_allclose(y.item(), wanted.sum(), rtol=1e-4, atol=1e-4)


def test_a_joined_input_that_others_read_is_no_cache() -> None:
    model = joined(1, (2, 9, 3), 1)
    model.graph.node.append(helper.make_node("Neg", ["past"], ["n"]))
    model.graph.output.append(helper.make_tensor_value_info("n", TensorProto.FLOAT, None))
    with pytest.raises(InvalidOption, match="no cache"):
        ap.keep_caches(ap.load(model.SerializeToString()))


# -- bytes over the length ------------------------------------------------------------------------


def lengths_of(past: Any, **options: Any) -> Any:
    """Return the curve of a decoder whose caches stay."""
    model = decoder().SerializeToString()

    def kept(bound: Any) -> ap.Graph:
        return ap.keep_caches(ap.load(model, bind=bound))

    bind = {
        **sizes(0),
        "past_sequence_length": past,
        "total_sequence_length": "past_sequence_length",
    }
    return ap.run.plan_lengths(kept, bind, **options)


def test_the_curve_is_that_of_single_plans() -> None:
    curve = lengths_of(range(1, 400))
    assert 3 <= len(curve.points) <= 9
    assert curve.longest == curve.points[-1]
    numbers = np.random.default_rng(3).integers(1, 400, 5).tolist()
    for point in [*curve.points, *map(curve.at, numbers)]:
        graph = ap.keep_caches(ap.load(decoder().SerializeToString(), bind=point.bind))
        assert ap.plan(graph).arena_bytes == point.arena_bytes
        assert point.caches == 4 * KV_HEADS * WIDTH * 4 * point.bind["past_sequence_length"]
        parts = point.caches + point.activations + point.scratch
        assert parts <= point.arena_bytes < parts + (1 << 13)
    with pytest.raises(InvalidOption, match="400 is none of the 399 lengths"):
        curve.at(400)


def test_a_straight_curve_takes_three_plans() -> None:
    curve = lengths_of(range(1, 1 << 20), budget=1 << 40)
    assert len(curve.points) == 3


def test_the_longest_that_fits_is_that_of_all_single_plans() -> None:
    lengths = [*range(60, 70), *range(252, 260)]
    curve = lengths_of(lengths)
    needed = [curve.at(length).arena_bytes for length in lengths]
    for budget in (needed[0] - 1, needed[4], needed[9] - 1, needed[13], max(needed) - 1):
        fits = [length for length, size in zip(lengths, needed, strict=True) if size <= budget]
        found = lengths_of(lengths, budget=budget).longest
        longest = None if found is None else found.bind["past_sequence_length"]
        assert longest == max(fits, default=None)


def test_a_growing_cache_counts_as_one() -> None:
    bind = {"batch_size": 1, "sequence_length": 1, "past_sequence_length": range(600)}
    curve = ap.run.plan_lengths(decoder().SerializeToString(), bind)
    last = curve.points[-1]
    assert last.caches >= 4 * KV_HEADS * WIDTH * 4 * 600
    assert last.activations < 1 << 13
    with pytest.raises(InvalidOption, match="2 names have several sizes"):
        ap.run.plan_lengths(decoder().SerializeToString(), {**bind, "sequence_length": range(1, 4)})


def test_the_command_draws_bytes_over_the_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "decoder.onnx"
    path.write_bytes(decoder().SerializeToString())
    options = ["--bind=batch_size=1", "--bind=sequence_length=1", "--keep-caches"]
    options += ["--bind=past_sequence_length=1..2048"]
    options += ["--bind=total_sequence_length=past_sequence_length"]
    assert main(["plan", str(path), *options]) == 0
    planned = re.search(r"(\d+) of 2,048 lengths are planned", capsys.readouterr().out)
    assert planned
    assert int(planned[1]) < 10
    assert main(["plan", str(path), *options, "--budget", "64KiB", "--json"]) == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["longest"]["arena_bytes"] <= 1 << 16 < found["points"][-1]["arena_bytes"]
    assert f"past_sequence_length={found['longest']['bind']['past_sequence_length']}" in shown.err
    assert main(["plan", str(path), *options, "--budget", "64MiB"]) == 0


# -- generation -----------------------------------------------------------------------------------


def test_a_decoder_generates_what_onnx_runtime_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = [5, 17, 3, 99]
    words, _ = generated(12, prompt)
    path = tmp_path / "decoder.onnx"
    path.write_bytes(decoder().SerializeToString())
    with ap.Decoder(path, room=32) as model:
        for _ in range(2):
            assert list(model.generate(prompt, 12)) == words
        assert list(model.generate(prompt, 12, stop=words[2])) == words[: words.index(words[2]) + 1]
        with raises("InputMismatch", match="room for 33"):
            model.generate(prompt, 30)
        with raises("InputMismatch"):
            model.generate([], 3)
    assert main(["run", str(path), "--generate", "12", "--prompt", "5,17,3,99", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == words
    assert main(["run", str(path), "--generate", "12"]) == 2
    assert "--prompt" in capsys.readouterr().err


@pytest.mark.parametrize("is_declared", [True, False])
def test_the_width_of_heads_follows_from_attention(is_declared: bool) -> None:
    model, prompt = decoder(), [5, 17]
    words, _ = generated(4, prompt, model)
    for value in (*model.graph.input, *model.graph.output):
        if "key" in value.name or "value" in value.name:
            value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    if not is_declared:
        with pytest.raises(UnboundDim, match="kv_cache_dim"):
            ap.Decoder(model.SerializeToString(), room=8)
        return
    for layer in range(2):
        shape = ["batch_size", "sequence_length", HEADS * WIDTH]
        model.graph.value_info.append(
            helper.make_tensor_value_info(f"layers.{layer}.attended", TensorProto.FLOAT, shape)
        )
    turned = [
        helper.make_node("Shape", ["attention_mask"], ["long"], start=1),
        helper.make_node("Greater", ["long", "many"], ["is_long"]),
        helper.make_node(
            "If", ["is_long"], ["cos.used"], then_branch=same("a"), else_branch=same("b")
        ),
    ]
    model.graph.initializer.append(helper.make_tensor("many", TensorProto.INT64, (1,), [99]))
    for node in model.graph.node:
        node.input[:] = ["cos.used" if name == "cos" else name for name in node.input]
    nodes = [*turned, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    with ap.Decoder(model.SerializeToString(), room=8) as decoding:
        assert list(decoding.generate(prompt, 4)) == words


def same(name: str) -> Any:
    """Return a branch that hands on the table of cosines."""
    made = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node("Identity", ["cos"], [name])], name, [], [made])


def test_a_layer_with_a_window_keeps_a_cache_of_its_length() -> None:
    model, prompt, room = decoder(window=WINDOW), [5, 17, 3, 99], 128
    words, _ = generated(12, prompt, model)
    with ap.Decoder(model.SerializeToString(), room=room) as decoding:
        for _ in range(2):
            assert list(decoding.generate(prompt, 12)) == words
        windowed = decoding.plan.arena_bytes
    with ap.Decoder(decoder().SerializeToString(), room=room) as decoding:
        saved = 2 * (room - WINDOW) * KV_HEADS * WIDTH * 4
        assert decoding.plan.arena_bytes - windowed > 0.9 * saved


def test_a_decoder_that_joins_caches_generates_what_onnx_runtime_does() -> None:
    model, prompt = joining_decoder(), [5]
    words, _ = generated(12, prompt, model)
    assert len({*words}) > 2
    with ap.Decoder(model.SerializeToString(), room=16) as decoding:
        for _ in range(2):
            assert list(decoding.generate(prompt, 12)) == words
        caches = 2 * 16 * HEADS * WIDTH * 4
        assert caches < decoding.plan.arena_bytes < 2 * caches


def test_a_cache_between_casts_is_kept_in_16_bits() -> None:
    """The converter of ONNX Runtime's tools keeps inputs and outputs in 32 bits, if asked to."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    model = float16.convert_float_to_float16(joining_decoder(), keep_io_types=True)
    words, _ = generated(12, [5], model)
    with ap.Decoder(model.SerializeToString(), room=16) as decoding:
        assert list(decoding.generate([5], 12)) == words
        graph = decoding._executor.graph
        states = [value for value in graph.values if value.kind == "state"]
        assert [value.dtype for value in states] == ["float16"] * 2
        assert [value.shape for value in states] == [(1, HEADS, 16, WIDTH)] * 2


@pytest.mark.parametrize("change", ["", "read", "type", "both", "first axis"])
def test_a_cache_that_others_see_between_casts_is_not_kept_in_16_bits(change: str) -> None:
    """Others would see numbers of the other type."""
    model = joined(0, (9, 2, 3), 1) if change == "first axis" else joined(1, (2, 9, 3), 1)
    graph = model.graph
    graph.node[1].input[0], graph.node[1].output[0] = "narrow", "made"
    graph.node[0].output[0], graph.node[2].input[0] = "wide", "made"
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    graph.node.insert(0, helper.make_node("Cast", ["past"], ["narrow"], to=TensorProto.FLOAT16))
    graph.node.insert(2, helper.make_node("Cast", ["wide"], ["k"], to=TensorProto.FLOAT16))
    to = TensorProto.DOUBLE if change == "type" else TensorProto.FLOAT
    graph.node.insert(4, helper.make_node("Cast", ["made"], ["present"], to=to))
    if change == "read":
        graph.node.append(helper.make_node("Neg", ["past"], ["seen"]))
        graph.output.add().name = "seen"
    if change == "both":
        graph.output.add().name = "made"
    graph.output[1].type.tensor_type.elem_type = to
    loaded = ap.load(model.SerializeToString())
    if not change:
        (state,) = (v for v in ap.keep_caches(loaded).values if v.kind == "state")
        assert (state.name, state.dtype) == ("past", "float16")
        assert loaded.find("past").dtype == "float32"
        return
    with pytest.raises(InvalidOption, match="no cache"):
        ap.keep_caches(loaded)


def test_a_room_that_changes_the_model_is_refused() -> None:
    """As rotations of models for long contexts, of which a node chooses by the length."""
    model, nodes = joining_decoder(), []
    for name, factor in (("then_branch", 2.0), ("else_branch", 1.0)):
        held = helper.make_tensor(f"{name}.words", TensorProto.FLOAT, (1,), [factor])
        node = helper.make_node("Constant", [], [f"{name}.factor"], value=held)
        made = helper.make_tensor_value_info(f"{name}.factor", TensorProto.FLOAT, [1])
        nodes.append(helper.make_graph([node], name, [], [made]))
    graph = model.graph
    graph.initializer.append(helper.make_tensor("limit", TensorProto.INT64, (1,), [20]))
    head = graph.node.pop()
    graph.node.extend(
        [
            helper.make_node("Shape", ["attention_mask"], ["length"], start=1),
            helper.make_node("Greater", ["length", "limit"], ["is_long"]),
            helper.make_node(
                "If", ["is_long"], ["factor"], then_branch=nodes[0], else_branch=nodes[1]
            ),
            helper.make_node("Mul", ["sum", "factor"], ["scaled"]),
            helper.make_node("MatMul", ["scaled", head.input[1]], ["logits"]),
        ]
    )
    data = model.SerializeToString()
    with ap.Decoder(data, room=20) as decoding:
        assert list(decoding.generate([5], 4)) == generated(4, [5], model)[0]
    with pytest.raises(InvalidOption, match="less room"):
        ap.Decoder(data, room=21)


def test_a_model_that_is_no_decoder_does_not_generate(tmp_path: Path) -> None:
    path = tmp_path / "update.onnx"
    path.write_bytes(update("ScatterND", is_input=True).SerializeToString())
    with pytest.raises(InvalidOption, match="none of a decoder's"):
        ap.Decoder(path, room=8)
