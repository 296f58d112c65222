"""What the ONNX importer makes of a model: shapes, effects, names, bindings, bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
import light_models
from arenaplan.base import errors
from arenaplan.formats.onnx import load_onnx
from arenaplan.graph import InPlace, View
from models import (
    Types,
    external,
    function,
    graph,
    load_one,
    model,
    node,
    ops,
    shapes,
    tensor,
)
from raising import raises

LIGHT_NODES = {
    "bvlc_alexnet": 24,
    "densenet121": 668,
    "inception_v1": 143,
    "inception_v2": 371,
    "resnet50": 176,
    "shufflenet": 203,
    "squeezenet": 66,
    "vgg19": 46,
    "zfnet512": 22,
}


# -- reading -----------------------------------------------------------------------


def test_a_model_is_the_same_from_a_path_bytes_or_memory(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], {"x": [2, 3]})
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    digests = {
        ap.load(path).digest,
        ap.load(str(path)).digest,
        load_onnx(path.read_bytes()).digest,
        load_onnx(proto).digest,
    }
    assert len(digests) == 1


def test_the_graph_is_called_as_in_the_model_or_else_as_the_file(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], {"x": [2]})
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    assert ap.load(path).name == "test"
    proto.graph.name = ""
    onnx.save(proto, path)
    assert ap.load(path).name == "net"


def test_a_model_is_not_changed_by_reading_it() -> None:
    proto = model([node("Add", "x w", "y")], {"x": ["n", 3]}, weights={"w": np.ones(3, "f")})
    before = proto.SerializeToString(deterministic=True)
    load_onnx(proto, bind={"n": 2})
    assert proto.SerializeToString(deterministic=True) == before


def test_nodes_keep_operator_version_and_plain_attributes() -> None:
    body = node("Conv", "x w", "y", strides=[2, 2], auto_pad="VALID")
    table = np.arange(4, dtype=np.float32)
    custom = helper.make_node(
        "Look", ["y"], ["z"], domain="own", table=onnx.numpy_helper.from_array(table), scale=0.5
    )
    imported = load_onnx(
        model(
            [body, custom],
            {"x": [1, 1, 4, 4]},
            {"z": [1]},
            {"w": np.ones((1, 1, 2, 2), "f")},
            opset=13,
            domains={"own": 7},
        )
    )
    conv, look = imported.nodes
    assert (conv.op, conv.domain, conv.version) == ("Conv", "", 13)
    assert dict(conv.attributes) == {"strides": (2, 2), "auto_pad": "VALID"}
    assert (look.op, look.domain, look.version) == ("Look", "own", 7)
    assert look.attributes["scale"] == 0.5
    np.testing.assert_array_equal(look.attributes["table"], table)


def test_operands_left_out_are_none() -> None:
    imported = load_one("Clip", "x _ high", given={"x": [3]}, weights={"high": np.float32(1)})
    x, low, high = imported.nodes[0].inputs
    assert (x, low, high) == (imported.find("x").index, None, imported.find("high").index)
    given = {"x": [1, 3, 4]}
    weights = {"w": np.ones((1, 8, 4), "f"), "r": np.ones((1, 8, 2), "f")}
    recurrent = load_one("RNN", "x w r", outputs="_ y", given=given, weights=weights, hidden_size=2)
    assert recurrent.nodes[0].outputs == (None, recurrent.find("y").index)


@pytest.mark.parametrize("name", light_models.NAMES)
def test_weights_of_old_models_are_folded_away(name: str) -> None:
    imported = ap.load(light_models.path(name))
    assert len(imported.nodes) == LIGHT_NODES[name]
    assert len(imported.inputs) == 1
    assert "ConstantOfShape" not in ops(imported)


def test_d17_initializers_that_are_listed_as_inputs_are_constants() -> None:
    proto = model([node("Add", "x w", "y")], {"x": [3], "w": [3]}, weights={"w": np.ones(3, "f")})
    proto.ir_version = 3
    imported = load_onnx(proto)
    assert [imported.values[i].name for i in imported.inputs] == ["x"]
    assert imported.find("w").kind == "constant"


@pytest.mark.parametrize("name", ["bert", "gpt2", "mobilenet_v2", "resnet", "unet", "vit"])
def test_exported_models_import(name: str, shared: Path) -> None:
    imported = ap.load(shared / "models" / "onnx" / f"{name}.onnx")
    assert imported.nodes
    assert not imported.warnings


@pytest.mark.parametrize("name", ["bert_base", "mobilenet_v2", "segformer_b0", "unet_256"])
def test_models_without_their_weights_import_and_say_what_is_missing(
    name: str, shared: Path
) -> None:
    imported = ap.load(shared / "models" / "onnx_structure" / f"{name}.onnx")
    largest = max(
        (value for value in imported.values if value.kind == "constant"),
        key=lambda value: np.prod(value.shape),
    )
    with raises("ExternalDataMissing", match=f"{name}.onnx.data"):
        imported.data(largest.index)


def test_constants_that_nothing_reads_are_dropped() -> None:
    imported = load_onnx(
        model([node("Relu", "x", "y")], {"x": [2]}, weights={"unused": np.ones(5, "f")})
    )
    assert [value.name for value in imported.values] == ["x", "y"]


# -- dimensions --------------------------------------------------------------------


def test_a08_symbols_take_the_numbers_bound_to_them() -> None:
    proto = model([node("MatMul", "x w", "y")], {"x": ["batch", 8]}, weights={"w": np.ones((8, 2))})
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((8, 2), "f"), "w"))
    assert shapes(load_onnx(proto, bind={"batch": 5})) == {"y": (5, 2)}


def test_an_input_takes_a_whole_shape() -> None:
    proto = model([node("Add", "a b", "y")], {"a": ["n", None], "b": ["n", 1]})
    assert shapes(load_onnx(proto, bind={"a": (4, 7)})) == {"y": (4, 7)}


def test_a_symbol_that_only_results_have_can_be_bound() -> None:
    proto = model([node("NonZero", "x", "y")], {"x": [6]}, {"y": ([1, "found"], TensorProto.INT64)})
    assert shapes(load_onnx(proto, bind={"found": 4})) == {"y": (1, 4)}


def test_declared_shapes_that_are_wrong_are_replaced_and_noted() -> None:
    proto = model(
        [node("Relu", "x", "h"), node("Neg", "h", "y")],
        {"x": [2, 3]},
        declared={"h": [2, 4]},
    )
    imported = load_onnx(proto)
    assert imported.find("h").shape == (2, 3)
    assert imported.warnings == [
        "value 'h' is declared with shape (2, 4); its shape is (2, 3)",
    ]


def test_results_of_unknown_operators_have_their_declared_shape() -> None:
    mystery = helper.make_node("Mystery", ["x"], ["h"], domain="own")
    proto = model(
        [mystery, node("Relu", "h", "y")],
        {"x": [2]},
        declared={"h": [5, "n"]},
        domains={"own": 1},
    )
    imported = load_onnx(proto, bind={"n": 3})
    assert shapes(imported) == {"y": (5, 3)}
    assert imported.nodes[0].effects == ap.Effects()


def test_shape_tensors_that_are_inputs_need_a_declared_result() -> None:
    given = {"x": [2, 3], "shape": ([1], TensorProto.INT64)}
    proto = model([node("Reshape", "x shape", "y")], given, {"y": [6]})
    assert shapes(load_onnx(proto)) == {"y": (6,)}
    with pytest.raises(errors.UnboundDim, match="only known when the model runs"):
        load_onnx(model([node("Reshape", "x shape", "y")], given))


# -- effects -----------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Erf", "Gelu", "Softmax", "LogSoftmax", "Neg"])
def test_unary_operators_may_work_in_place(op: str) -> None:
    effects = load_one(op, "x", given={"x": [2, 3]}, opset=20).nodes[0].effects
    assert effects.in_place == (InPlace(0, 0),)


@pytest.mark.parametrize(
    ("op", "inputs", "given", "pairs"),
    [
        ("Add", "a b", {"a": [2, 3], "b": [2, 3]}, [0, 1]),
        ("Add", "a b", {"a": [2, 3], "b": [3]}, [0]),
        ("Add", "a b", {"a": [1, 3], "b": [2, 1]}, []),
        ("Mul", "a a", {"a": [2, 3]}, [0, 1]),
        ("Sum", "a b c", {"a": [4], "b": [1], "c": [4]}, [0, 2]),
        ("Less", "a b", {"a": [4], "b": [4]}, [0, 1]),
        ("PRelu", "a b", {"a": [4], "b": [4]}, [0]),
        ("MatMul", "a b", {"a": [4, 4], "b": [4, 4]}, []),
        ("Where", "c a b", {"c": ([4], TensorProto.BOOL), "a": [4], "b": [4]}, [1, 2]),
    ],
)
def test_outputs_may_take_over_operands_of_their_full_shape(
    op: str, inputs: str, given: dict[str, object], pairs: list[int]
) -> None:
    effects = load_one(op, inputs, given=given).nodes[0].effects
    assert effects.in_place == tuple(InPlace(p, 0) for p in pairs)


def test_a_constant_operand_is_never_taken_over() -> None:
    imported = load_one("Add", "w x", given={"x": [3]}, weights={"w": np.ones(3, "f")})
    assert imported.nodes[0].effects.in_place == (InPlace(1, 0),)


@pytest.mark.parametrize(
    ("to", "pairs"),
    [
        (TensorProto.FLOAT, [InPlace(0, 0, True)]),
        (TensorProto.INT32, [InPlace(0, 0)]),
        (TensorProto.UINT8, [InPlace(0, 0)]),
        (TensorProto.DOUBLE, []),
    ],
)
def test_a_cast_works_in_place_unless_elements_grow(to: int, pairs: list[InPlace]) -> None:
    effects = load_one("Cast", "x", given={"x": [3]}, to=to).nodes[0].effects
    assert list(effects.in_place) == pairs


@pytest.mark.parametrize(
    ("op", "weights", "attributes"),
    [
        ("Reshape", {"s": np.array([-1])}, {}),
        ("Flatten", {}, {}),
        ("Squeeze", {"s": np.array([0])}, {}),
        ("Unsqueeze", {"s": np.array([0, 3])}, {}),
        ("Identity", {}, {}),
        ("Dropout", {}, {}),
    ],
)
def test_operators_that_only_rename_bytes_are_views(
    op: str, weights: dict[str, np.ndarray], attributes: dict[str, int]
) -> None:
    inputs = "x s" if weights else "x"
    imported = load_one(op, inputs, given={"x": [1, 2, 3]}, weights=weights, **attributes)
    assert imported.nodes[0].effects == ap.Effects(views=(View(0, 0),), pure=True)


def test_only_the_data_of_a_dropout_is_a_view() -> None:
    imported = load_one("Dropout", "x", outputs="y mask", given={"x": [4]})
    assert imported.nodes[0].effects.views == (View(0, 0),)
    training = load_one(
        "Dropout", "x _ t", given={"x": [4]}, weights={"t": np.array(True)}, opset=13
    )
    assert training.nodes[0].effects == ap.Effects()


def test_pieces_of_a_concatenation_are_views_where_they_are_contiguous() -> None:
    given = {"a": [1, 2, 5], "b": [1, 3, 5]}
    imported = load_one(
        "Concat", "a w b", given=given, axis=1, weights={"w": np.ones((1, 1, 5), "f")}
    )
    assert imported.nodes[0].effects.views == (
        View(0, 0, 0, "output"),
        View(2, 0, 60, "output"),
    )
    batch = load_one("Concat", "a b", given={"a": [2, 2], "b": [2, 3]}, axis=-1)
    assert batch.nodes[0].effects == ap.Effects(pure=True)


def test_concatenations_that_begin_alike_are_pieces_of_each_other() -> None:
    names = ["a", "b", "c", "d"]
    nodes = [node("Concat", " ".join(names[: k + 2]), f"y{k}", axis=1) for k in range(3)]
    given: Types = {name: [1, 3, 4] for name in names}
    imported = load_onnx(model(nodes, given, "y0 y1 y2"))
    read = [[imported.values[i].name for i in n.inputs if i is not None] for n in imported.nodes]
    assert read == [["a", "b"], ["y0", "c"], ["y1", "d"]]
    feed = {name: np.full((1, 3, 4), k, np.float32) for k, name in enumerate(names)}
    with ap.Executor(imported) as executor:
        found = executor.run(feed, verify=True)
    for k in range(3):
        joined = np.concatenate([feed[name] for name in names[: k + 2]], axis=1)
        np.testing.assert_array_equal(found[f"y{k}"], joined)
    # Where rows alternate, the earlier one is no piece of the later one.
    apart = [node("Concat", "a b", "y0", axis=2), node("Concat", "a b c", "y1", axis=2)]
    assert [len(n.inputs) for n in load_onnx(model(apart, given, "y0 y1")).nodes] == [2, 3]


def test_one_row_that_is_known_is_a_piece() -> None:
    def views(axis: int, index: np.ndarray, shape: list[int]) -> tuple[View, ...]:
        imported = load_one("Gather", "x i", given={"x": shape}, weights={"i": index}, axis=axis)
        return imported.nodes[0].effects.views

    assert views(0, np.array(2), [3, 4]) == (View(0, 0, 32),)
    assert views(1, np.array([-1]), [1, 3, 4]) == (View(0, 0, 32),)
    assert views(1, np.array(1), [2, 3, 4]) == ()
    assert views(0, np.array([0, 1]), [3, 4]) == ()


def test_pieces_of_a_split_are_views_where_they_are_contiguous() -> None:
    sizes = {"s": np.array([1, 3])}
    imported = load_one("Split", "x s", outputs="y z", given={"x": [4, 2]}, weights=sizes)
    assert imported.nodes[0].effects.views == (View(0, 0, 0), View(0, 1, 8))
    inner = load_one("Split", "x s", outputs="y z", given={"x": [2, 4]}, weights=sizes, axis=1)
    assert inner.nodes[0].effects == ap.Effects(pure=True)


@pytest.mark.parametrize(
    ("starts", "ends", "steps", "offset"),
    [
        ([1, 0, 0], [2, 4, 5], [1, 1, 1], 80),
        ([1, 2, 0], [2, 4, 5], [1, 1, 1], 120),
        ([2, 3, 1], [3, 4, 4], [1, 1, 1], 224),
        ([0, 0, 0], [3, 4, 5], [1, 1, 1], 0),
        ([1, -1, 0], [2, -2, 5], [1, -1, 1], 140),
        ([0, 1, 0], [3, 2, 5], [1, 1, 1], None),
        ([0, 0, 0], [1, 4, 5], [1, 2, 1], None),
        ([0, 0, 4], [1, 1, -9], [1, 1, -1], None),
    ],
)
def test_a_slice_of_neighbors_is_a_view(
    starts: list[int], ends: list[int], steps: list[int], offset: int | None
) -> None:
    weights = {"s": np.array(starts), "e": np.array(ends), "k": np.array(steps)}
    imported = load_one("Slice", "x s e _ k", given={"x": [3, 4, 5]}, weights=weights)
    whole = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    window = tuple(
        slice(s, e if e > -9 else None, k) for s, e, k in zip(starts, ends, steps, strict=True)
    )
    assert imported.values[imported.outputs[0]].shape == whole[window].shape
    if offset is None:
        assert imported.nodes[0].effects == ap.Effects(pure=True)
    else:
        assert imported.nodes[0].effects.views == (View(0, 0, offset),)
        assert whole[window].ravel()[0] * 4 == offset


def test_a_transpose_of_ones_is_a_copy() -> None:
    moved = load_one("Transpose", "x", given={"x": [1, 4, 1, 5]}, perm=[1, 0, 3, 2])
    assert moved.nodes[0].effects.in_place == (InPlace(0, 0, True),)
    real = load_one("Transpose", "x", given={"x": [1, 4, 2, 5]}, perm=[0, 2, 1, 3]).nodes[0]
    assert (real.effects.in_place, real.effects.views) == ((), ())


def test_elements_smaller_than_a_byte_have_no_windows() -> None:
    given = {"a": ([1, 2], TensorProto.INT4), "b": ([1, 2], TensorProto.INT4)}
    joined = load_one("Concat", "a b", given=given, axis=1, opset=21)
    assert joined.nodes[0].effects == ap.Effects(pure=True)


def test_batch_normalization_works_in_place_unless_it_trains() -> None:
    weights = {name: np.ones(3, "f") for name in "sbmv"}
    given = {"x": [1, 3, 2]}
    plain = load_one("BatchNormalization", "x s b m v", given=given, weights=weights)
    assert plain.nodes[0].effects.in_place == (InPlace(0, 0),)
    training = load_one(
        "BatchNormalization",
        "x s b m v",
        outputs="y m2 v2",
        given=given,
        weights=weights,
        training_mode=1,
    )
    assert training.nodes[0].effects == ap.Effects(pure=True)


def test_operands_whose_bytes_do_not_matter_are_ignored() -> None:
    like = load_one("RandomNormalLike", "x", given={"x": [2]})
    assert like.nodes[0].effects.ignores == (0,)
    cast = load_one("CastLike", "x t", given={"x": [2], "t": ([1], TensorProto.INT32)}, opset=19)
    assert cast.nodes[0].effects == ap.Effects(in_place=(InPlace(0, 0),), ignores=(1,), pure=True)


# -- functions and branches ----------------------------------------------------------


def test_local_functions_are_walked_in_the_place_of_their_calls() -> None:
    inner = function("Twice", "a", "b", [node("Add", "a a", "b")])
    outer = function(
        "Both", "p q", "r", [node("Twice", "p", "t", domain="local"), node("Mul", "t q", "r")]
    )
    calls = [node("Both", "x x", "h", domain="local"), node("Both", "h x", "y", domain="local")]
    imported = load_onnx(model(calls, {"x": [3]}, functions=[outer, inner], domains={"local": 1}))
    assert ops(imported) == ["Add", "Mul", "Add", "Mul"]
    assert len({value.name for value in imported.values}) == len(imported.values)
    assert shapes(imported) == {"y": (3,)}
    assert ap.plan(imported, target="ideal").arena_bytes == 128


def test_attributes_of_a_call_reach_into_the_function() -> None:
    soft = node("Softmax", "a", "b")
    reference = onnx.AttributeProto(name="axis", ref_attr_name="dim", type=onnx.AttributeProto.INT)
    soft.attribute.append(reference)
    passed = function("Own", "a", "b", [soft], attributes=["dim"])
    defaulted = function("Def", "a", "b", [soft], defaults=[helper.make_attribute("dim", -2)])
    calls = [
        node("Own", "x", "h", domain="local", dim=1),
        node("Own", "h", "i", domain="local"),
        node("Def", "i", "j", domain="local"),
        node("Def", "j", "y", domain="local", dim=0),
    ]
    proto = model(calls, {"x": [2, 3, 4]}, functions=[passed, defaulted], domains={"local": 1})
    assert [known.attributes.get("axis") for known in load_onnx(proto).nodes] == [1, None, -2, 0]


def test_a_function_may_leave_out_operands() -> None:
    body = function("Low", "a low high", "b", [node("Clip", "a low high", "b")])
    proto = model(
        [node("Low", "x _ h", "y", domain="local")],
        {"x": [2]},
        weights={"h": np.float32(6)},
        functions=[body],
        domains={"local": 1},
    )
    assert load_onnx(proto).nodes[0].inputs[1] is None


def test_results_that_a_function_only_passes_on_keep_their_names() -> None:
    same = function(
        "Same", "a", "a2 a3", [node("Identity", "a", "a2"), node("Identity", "a", "a3")]
    )
    through = function("Through", "a", "a", [])
    proto = model(
        [node("Same", "x", "y z", domain="local"), node("Through", "x", "w", domain="local")],
        {"x": [2]},
        "y z w",
        functions=[same, through],
        domains={"local": 1},
    )
    assert list(shapes(load_onnx(proto))) == ["y", "z", "w"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_decided_branch_is_walked_in_the_place_of_its_node(taken: bool) -> None:
    then = graph([node("Relu", "x", "r")], outputs={"r": [4]})
    other = graph([node("Add", "x c", "r")], outputs={"r": [4]}, weights={"c": np.ones(4, "f")})
    proto = model(
        [
            node("Shape", "x", "s"),
            node("ReduceProd", "s", "n"),
            node("Less", "n limit", "small"),
            node("If", "small", "h", then_branch=then, else_branch=other),
            node("Neg", "h", "y"),
        ],
        {"x": [4]},
        weights={"limit": np.array([5 if taken else 3])},
    )
    imported = load_onnx(proto)
    assert ops(imported) == ["Relu" if taken else "Add", "Neg"]
    assert imported.find("h").shape == (4,)


def test_b21_a_branch_may_read_what_is_around_it() -> None:
    then = graph([node("Add", "h w", "r")], outputs={"r": [2]})
    proto = model(
        [
            node("If", "c", "y", then_branch=then, else_branch=then),
            node("Mul", "x w", "h"),
        ],
        {"x": [2]},
        weights={"c": np.array(True), "w": np.ones(2, "f")},
    )
    imported = load_onnx(proto)
    assert ops(imported) == ["Mul", "Add"]
    assert sum(value.name == "w" for value in imported.values) == 1
    assert ap.plan(imported, target="ideal").arena_bytes == 128


def test_b22_a_branch_may_give_an_outer_name_another_meaning() -> None:
    then = graph(
        [node("Add", "x w", "h"), node("Neg", "h", "r")],
        outputs={"r": [2]},
        weights={"w": np.full(2, 3, "f")},
    )
    proto = model(
        [
            node("Mul", "x w", "h"),
            node("If", "c", "i", then_branch=then, else_branch=then),
            node("Add", "h i", "y"),
        ],
        {"x": [2]},
        weights={"c": np.array(True), "w": np.ones(2, "f")},
    )
    imported = load_onnx(proto)
    assert ops(imported) == ["Mul", "Add", "Neg", "Add"]
    product, inner_sum, _, total = imported.nodes
    assert product.outputs[0] == total.inputs[0] != inner_sum.outputs[0]
    np.testing.assert_array_equal(imported.data(inner_sum.inputs[1]), [3, 3])
    np.testing.assert_array_equal(imported.data(product.inputs[1]), [1, 1])


def test_b20_branches_nested_30_deep_are_walked() -> None:
    branch = graph([node("Relu", "x", "r0")], outputs={"r0": [1]})
    for depth in range(1, 31):
        branch = graph(
            [node("If", "c", f"r{depth}", then_branch=branch)], outputs={f"r{depth}": [1]}
        )
    proto = model(list(branch.node), {"x": [1]}, "r30", weights={"c": np.array(True)})
    imported = load_onnx(proto.SerializeToString())
    assert ops(imported) == ["Relu"]
    assert shapes(imported) == {"r30": (1,)}


# -- constants ---------------------------------------------------------------------


def test_weights_are_loaded_from_files_beside_the_model(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"head" + data.tobytes() + b"tail")
    stored = external([2, 3], location="sub/./w.bin", offset=4, length=24)
    proto = model([node("Add", "x w", "y")], {"x": [2, 3]}, weights={"w": stored})
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    imported = ap.load(path)
    loaded = imported.data(imported.find("w").index)
    np.testing.assert_array_equal(loaded, data.reshape(2, 3))
    assert not loaded.flags.writeable
    assert loaded.flags.c_contiguous
    assert loaded.flags.aligned


def test_planning_opens_no_file_but_the_model(tmp_path: Path) -> None:
    stored = external([4, 3], location="absent.bin")
    proto = model(
        [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "y")],
        {"x": [2, 3]},
        weights={"w": stored},
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    imported = ap.load(path)
    assert ops(imported) == ["MatMul"]
    assert ap.plan(imported, target="ideal").arena_bytes > 0
    with raises("ExternalDataMissing", match="absent"):
        imported.data(imported.find("t").index)


@pytest.mark.parametrize(
    ("dtype", "fields", "expected"),
    [
        (TensorProto.FLOAT, {"float_data": [1, 2]}, [1, 2]),
        (TensorProto.DOUBLE, {"double_data": [1, 2]}, [1, 2]),
        (TensorProto.INT64, {"int64_data": [1, -2]}, [1, -2]),
        (TensorProto.INT8, {"int32_data": [1, -2]}, [1, -2]),
        (TensorProto.UINT32, {"uint64_data": [1, 2]}, [1, 2]),
        (TensorProto.BOOL, {"int32_data": [1, 0]}, [True, False]),
        (TensorProto.FLOAT16, {"raw_data": np.array([1, 2], "f2").tobytes()}, [1, 2]),
        (TensorProto.COMPLEX64, {"float_data": [1, 2, 3, 4]}, [1 + 2j, 3 + 4j]),
        (TensorProto.BFLOAT16, {"raw_data": b"\x80\x3f\x00\x40"}, [1, 2]),
        (TensorProto.INT4, {"raw_data": b"\xe1"}, [1, -2]),
        (TensorProto.UINT4, {"int32_data": [0xE1]}, [1, 14]),
    ],
)
def test_stored_tensors_are_decoded(dtype: int, fields: dict[str, object], expected: list) -> None:
    weights = {"w": tensor([2], dtype, **fields)}
    imported = load_onnx(model([], {}, "w", weights))
    data = imported.data(imported.outputs[0])
    assert data.astype(complex).tolist() == expected


def test_constants_are_contiguous_however_they_are_made() -> None:
    proto = model(
        [
            node("Transpose", "w", "t"),
            node("Expand", "v", "e"),
            node("Constant", "", "v", value_float=2.0),
        ][::-1],
        {},
        "t e",
        {"w": np.ones((2, 3), "f")},
    )
    proto.graph.node[1].input.append("s")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([4, 5]), "s"))
    imported = load_onnx(proto)
    for index in imported.outputs:
        assert imported.data(index).flags.c_contiguous


def test_values_that_nothing_reads_are_noted() -> None:
    imported = load_onnx(model([node("Relu", "x", "y"), node("Neg", "x", "lost")], {"x": [2]}))
    assert imported.warnings == ["nothing reads 'lost'"]


def test_onnx_is_imported_only_when_a_model_is_read(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "import sys, arenaplan; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    blocked = (
        "import sys; sys.modules['onnx'] = None\n"
        "import arenaplan\n"
        "try: arenaplan.load('x.onnx')\n"
        "except ImportError as e: sys.exit('pip install onnx' not in str(e))\n"
        "sys.exit(2)"
    )
    assert subprocess.run([sys.executable, "-c", blocked], check=False).returncode == 0


@pytest.mark.parametrize(
    ("op", "names", "given", "attributes", "flow", "loads"),
    [
        ("Relu", "a", {"a": (2, 3)}, {}, (6, (0,)), ()),
        ("Add", "a b", {"a": (2, 3), "b": (3,)}, {}, (6, (0,)), ()),
        ("Mul", "a b", {"a": (2, 3), "b": (2, 3)}, {}, (6, (0, 1)), ()),
        ("Conv", "a w", {"a": (1, 2, 5, 5), "w": (4, 2, 3, 3)}, {}, (36, ()), (0,)),
        ("MatMul", "a b", {"a": (2, 3, 4), "b": (4, 5)}, {}, (6, (0,)), (0, 1)),
        ("MatMul", "a b", {"a": (3, 4), "b": (2, 4, 5)}, {}, (6, ()), (0, 1)),
        ("Gemm", "a b", {"a": (3, 4), "b": (4, 5)}, {}, (3, (0,)), (0, 1)),
        ("Gemm", "a b", {"a": (4, 3), "b": (4, 5)}, {"transA": 1}, (3, ()), (0, 1)),
        ("Softmax", "a", {"a": (2, 3, 4)}, {}, (6, (0,)), ()),
        ("Softmax", "a", {"a": (2, 3, 4)}, {"axis": 1}, (2, (0,)), ()),
        ("ReduceMean", "a", {"a": (2, 3, 4)}, {"axes": [2]}, (6, (0,)), ()),
        ("Conv", "a w", {"a": (3, 4, 5, 5), "w": (8, 1, 3, 3)}, {"group": 4}, (12, (0,)), (0,)),
        ("Conv", "a w", {"a": (3, 4, 5, 5), "w": (8, 2, 3, 3)}, {"group": 2}, (216, ()), (0,)),
        ("Conv", "a w", {"a": (3, 1, 5, 5), "w": (8, 1, 3, 3)}, {"group": 1}, (216, ()), (0,)),
        ("MaxPool", "a", {"a": (3, 4, 5, 5)}, {"kernel_shape": [2, 2]}, (12, (0,)), ()),
        ("AveragePool", "a", {"a": (3, 4, 5)}, {"kernel_shape": [2]}, (12, (0,)), ()),
        ("GlobalMaxPool", "a", {"a": (3, 4, 5, 5)}, {}, (12, (0,)), ()),
        ("InstanceNormalization", "a b b", {"a": (3, 4, 5, 5), "b": (4,)}, {}, (12, (0,)), ()),
        ("Transpose", "a", {"a": (2, 3)}, {}, (3, ()), ()),
        ("Transpose", "a", {"a": (2, 3, 4, 5)}, {"perm": [0, 2, 1, 3]}, (24, ()), ()),
    ],
)
def test_nodes_say_in_which_pieces_they_can_work(op, names, given, attributes, flow, loads):
    opset = 13 if op == "ReduceMean" else 17
    effects = load_one(op, names, given=given, opset=opset, **attributes).nodes[0].effects
    assert effects.flows == ((0, *flow),)
    assert effects.loads == loads


def test_what_is_needed_whole_has_no_flow():
    assert load_one("Softmax", "a", given={"a": (2, 3)}, axis=0).nodes[0].effects.flows == ()
