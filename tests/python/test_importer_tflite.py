"""TFLite models as graphs: shapes, kinds, effects, and what they plan to."""

import struct
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.tflite.files import load_tflite, open_tflite
from raising import raises
from tflm_operators import Case, Operand, model_of


def load(root: dict, **options) -> ap.Graph:
    return load_tflite(flat.write(root), **options)


def single(
    name: str,
    inputs: list,
    outputs: list,
    *,
    options: tuple | None = None,
    data: tuple[bytes, ...] = (),
    custom: str | None = None,
    reads: list[int] | None = None,
) -> ap.Graph:
    """Load a model of one operator; tensors without data and not variable are its inputs."""
    tensors = [*inputs, *outputs]
    numbers = list(range(len(inputs))) if reads is None else reads
    writes = list(range(len(inputs), len(tensors)))
    given = [i for i, t in enumerate(inputs) if t[2].value == 0 and 5 not in t]
    operator = flat.operator(0, numbers, writes, options)
    main_graph = flat.subgraph(tensors, [operator], given, writes)
    return load(flat.model([flat.code(name, custom)], [main_graph], [b"", *data]))


def ints(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def test_a_chain_is_read_in_order_and_runs_in_place() -> None:
    graph = load(flat.chain("RELU", "NEG", "ABS", shape=(1, 64)))
    assert [node.op for node in graph.nodes] == ["RELU", "NEG", "ABS"]
    assert [value.kind for value in graph.values] == ["input", *["activation"] * 3]
    assert [graph.values[i].name for i in (*graph.inputs, *graph.outputs)] == ["t0", "t3"]
    assert all(node.effects.in_place == ((0, 0, False),) for node in graph.nodes)
    assert ap.plan(graph, target="ideal").arena_bytes == 512
    assert ap.plan(graph, optimize="all,-in-place", target="ideal").arena_bytes == 512


def test_the_suffix_selects_the_importer_and_names_the_model(tmp_path: Path) -> None:
    path = tmp_path / "small.TFLITE"
    path.write_bytes(flat.write(flat.chain("RELU")))
    assert ap.load(path).name == "small"
    assert main(["plan", str(path)]) == 0
    assert main(["inspect", str(path)]) == 0


def test_a_reshape_shows_the_bytes_of_its_input() -> None:
    graph = single(
        "RESHAPE",
        [flat.tensor("x", (2, 8)), flat.tensor("shape", (1,), flat.INT32, buffer=1)],
        [flat.tensor("y", (16,))],
        data=(ints(16),),
    )
    assert graph.nodes[0].effects.views == (ap.graph.View(0, 0),)
    assert ap.plan(graph, target="ideal").arena_bytes == 64


def test_a_broadcast_operand_is_not_taken_over() -> None:
    graph = single(
        "ADD",
        [flat.tensor("bias", (1, 8)), flat.tensor("x", (4, 8))],
        [flat.tensor("y", (4, 8))],
    )
    assert graph.nodes[0].effects.in_place == ((1, 0, False),)


@pytest.mark.parametrize(
    ("shape", "axis", "offsets"),
    [((1, 4), 1, [0, 16]), ((1, 4), -1, [0, 16]), ((4, 2), 0, [0, 32]), ((4, 2), 1, [])],
)
def test_operands_of_a_concatenation_are_pieces_if_they_are_contiguous(
    shape: tuple[int, ...], axis: int, offsets: list[int]
) -> None:
    joined = list(shape)
    joined[axis] *= 2
    graph = single(
        "CONCATENATION",
        [flat.tensor("a", shape), flat.tensor("b", shape)],
        [flat.tensor("y", joined)],
        options=(10, {0: flat.Number("i", axis)}),
    )
    views = graph.nodes[0].effects.views
    assert [view.offset for view in views] == offsets
    assert all(view.of == "output" for view in views)


def test_a_concatenation_that_computes_is_no_copy() -> None:
    def views(scale: int, activation: int) -> int:
        graph = single(
            "CONCATENATION",
            [flat.tensor(n, (4,), flat.INT8, scale=s) for n, s in (("a", 1), ("b", scale))],
            [flat.tensor("y", (8,), flat.INT8, scale=1)],
            options=(10, {0: flat.Number("i", 0), 1: flat.Number("b", activation)}),
        )
        return len(graph.nodes[0].effects.views)

    assert views(scale=1, activation=0) == 2
    assert views(scale=2, activation=0) == 1
    assert views(scale=1, activation=1) == 0


def test_parts_of_a_split_are_pieces_of_its_operand() -> None:
    graph = single(
        "SPLIT",
        [flat.tensor("axis", (), flat.INT32, buffer=1), flat.tensor("x", (4, 3))],
        [flat.tensor("a", (2, 3)), flat.tensor("b", (2, 3))],
        data=(ints(0),),
    )
    assert graph.nodes[0].effects.views == (ap.graph.View(1, 0, 0), ap.graph.View(1, 1, 24))


@pytest.mark.parametrize(
    ("begin", "size", "offset"),
    [((1, 0), (2, 4), 16), ((2, 0), (-1, -1), 32), ((0, 1), (4, 2), None), ((1, 2), (1, 2), 24)],
)
def test_a_slice_is_a_piece_if_its_elements_are_neighbors(
    begin: tuple[int, ...], size: tuple[int, ...], offset: int | None
) -> None:
    ends = [None if s == -1 else b + s for b, s in zip(begin, size, strict=True)]
    x = np.zeros((4, 4))[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))]
    graph = single(
        "SLICE",
        [
            flat.tensor("x", (4, 4)),
            flat.tensor("begin", (2,), flat.INT32, buffer=1),
            flat.tensor("size", (2,), flat.INT32, buffer=2),
        ],
        [flat.tensor("y", x.shape)],
        data=(ints(*begin), ints(*size)),
    )
    views = graph.nodes[0].effects.views
    assert [view.offset for view in views] == ([] if offset is None else [offset])


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "index", "offset"),
    [
        ((1, 0), (3, 4), (1, 1), (0, 0, 0), np.s_[1:3], 16),
        ((-1, 0), (4, 4), (1, 1), (0, 0, 0), np.s_[-1:], 48),
        ((1, 1), (2, 3), (1, 1), (0, 0, 1), np.s_[1, 1:3], 20),
        ((9, 0), (2, 9), (1, 1), (1, 2, 0), np.s_[:2], 0),
        ((0, 0), (4, 4), (2, 1), (0, 0, 0), np.s_[::2], None),
        ((0, 0), (4, 2), (1, 1), (0, 0, 0), np.s_[:, :2], None),
    ],
)
def test_a_strided_slice_is_a_piece_as_numpy_counts_it(
    begin: tuple, end: tuple, strides: tuple, masks: tuple, index: tuple, offset: int | None
) -> None:
    x = np.zeros((4, 4), np.float32)
    y = x[index]
    graph = single(
        "STRIDED_SLICE",
        [flat.tensor("x", (4, 4))]
        + [flat.tensor(n, (2,), flat.INT32, buffer=b) for b, n in enumerate("bes", start=1)],
        [flat.tensor("y", y.shape)],
        options=(
            32,
            {0: flat.Number("i", masks[0]), 1: flat.Number("i", masks[1]),
             4: flat.Number("i", masks[2])},
        ),
        data=(ints(*begin), ints(*end), ints(*strides)),
    )  # fmt: skip
    views = graph.nodes[0].effects.views
    assert [view.offset for view in views] == ([] if offset is None else [offset])
    if offset is not None:
        assert y.__array_interface__["data"][0] - x.__array_interface__["data"][0] == offset


def test_an_operand_may_be_left_out() -> None:
    graph = single(
        "CONV_2D",
        [flat.tensor("x", (1, 4)), flat.tensor("w", (1, 4))],
        [flat.tensor("y", (1, 4))],
        reads=[0, 1, -1],
    )
    assert graph.nodes[0].inputs == (0, 1, None)


def test_a_variable_is_a_state_that_its_readers_write() -> None:
    graph = single(
        "SVDF",
        [flat.tensor("x", (1, 4)), flat.tensor("memory", (1, 40), variable=True)],
        [flat.tensor("y", (1, 4))],
    )
    assert graph.find("memory").kind == "state"
    assert graph.nodes[0].effects.mutates == (1,)
    assert ap.plan(graph, target="ideal").arena_bytes == 64 + 192 + 64


def test_a_custom_operator_has_the_declared_shapes_and_no_effects() -> None:
    graph = single(
        "CUSTOM", [flat.tensor("x", (4,))], [flat.tensor("y", (4,))], custom="Frobnicate"
    )
    node = graph.nodes[0]
    assert (node.op, node.domain, node.effects) == ("Frobnicate", "tflite.custom", ap.Effects())


def test_an_operator_newer_than_us_is_planned_without_effects() -> None:
    root = flat.chain("RELU")
    root[1][0][3] = flat.Number("i", 9999)
    graph = load(root)
    assert (graph.nodes[0].op, graph.nodes[0].effects) == ("BUILTIN_9999", ap.Effects())


def test_elements_smaller_than_a_byte_are_packed() -> None:
    graph = load(flat.chain("NEG", shape=(7,), type_=flat.INT4))
    assert graph.values[0].dtype == "int4"
    assert ap.plan(graph, target="ideal")[graph.values[0].name].bytes == 4


def test_names_are_made_unique() -> None:
    tensors = [flat.tensor(name, (4,)) for name in ("x", "x", "", "")]
    operators = [flat.operator(0, [i], [i + 1]) for i in range(3)]
    graph = load(flat.model([flat.code("NEG")], [flat.subgraph(tensors, operators, [0], [3])]))
    assert [value.name for value in graph.values] == ["x", "x#1", "tensor#2", "tensor#3"]
    assert ap.plan(graph, target="ideal").arena_bytes == 128


def test_constants_are_not_in_the_arena_and_have_their_data() -> None:
    graph = single(
        "ADD",
        [flat.tensor("x", (3,), flat.INT32), flat.tensor("c", (3,), flat.INT32, buffer=1)],
        [flat.tensor("y", (3,), flat.INT32)],
        data=(ints(1, 2, 3),),
    )
    constant = graph.find("c")
    assert constant.kind == "constant"
    assert graph.data(constant.index).tolist() == [1, 2, 3]
    assert ap.plan(graph, target="ideal").placements[constant.index] is None
    assert graph.nodes[0].effects.in_place == ((0, 0, False),)


def test_a_constant_of_another_size_than_its_shape_is_refused() -> None:
    with raises("TensorPayloadMismatch", match=r"'c' needs 16 bytes.*12"):
        single(
            "ADD",
            [flat.tensor("x", (4,)), flat.tensor("c", (4,), buffer=1)],
            [flat.tensor("y", (4,))],
            data=(ints(1, 2, 3),),
        )


def test_text_has_no_size() -> None:
    with pytest.raises(errors.UnsupportedDtype, match="'t0'"):
        load(flat.chain("NEG", type_=flat.STRING))


def test_an_open_dimension_with_a_number_is_planned_and_said() -> None:
    root = flat.chain("NEG", shape=(1, 16))
    root[2][0][0][0][7] = flat.Vector("i", (1, -1))
    graph = load(root)
    assert graph.values[0].shape == (1, 16)
    assert graph.warnings == ["dimension 1 of input 't0' is open; planned as stored: 1x16"]
    root[2][0][0][0][7] = flat.Vector("i", (-1, 16))
    graph = load(root)
    assert graph.values[0].shape == (1, 16)
    assert graph.warnings == [], "every converter leaves the batch open"
    assert load(root, bind={"t0": (1, 16)}).values[0].shape == (1, 16)
    with pytest.raises(errors.UnsupportedModel, match="converter"):
        load(root, bind={"t0": (2, 16)})
    with raises("DimConflict"):
        load(root, bind={"t0": (1, 15)})


def test_a_model_is_opened_once_for_several_graphs() -> None:
    root = flat.chain("RELU", "NEG", shape=(1, 64))
    graph_with = open_tflite(flat.write(root))
    assert graph_with(None).digest == graph_with(None).digest == load(root).digest
    with pytest.raises(errors.UnknownDim, match="with batch=3: "):
        ap.plan_family(graph_with, {"batch": range(1, 4)}, target="ideal")


def test_the_graph_of_a_runtime_is_made_once() -> None:
    graph = load(flat.chain("RELU", "NEG", shape=(1, 64)))
    seen = graph.for_target("tflm")
    assert seen is not graph
    assert graph.for_target("tflm") is seen
    # A runner that is declared anew takes the place of the graph that is known.
    graph.add_variant("tflm", lambda: graph)
    assert graph.for_target("tflm") is graph


def test_d22_an_open_dimension_without_a_number_must_be_bound() -> None:
    tensors = [
        flat.tensor("x", None, signature=(-1, 16)),
        flat.tensor("y", (-1, 16)),
    ]
    graph = flat.subgraph(tensors, [flat.operator(0, [0], [1])], [0], [1])
    root = flat.model([flat.code("NEG")], [graph])
    with pytest.raises(errors.UnboundDim, match=r"dimension 0 of tensor 'x'"):
        load(root)
    with pytest.raises(errors.UnboundDim, match="'y'"):
        load(root, bind={"x": (2, 16)})
    bound = load(root, bind={"x": (2, 16), "y": [2, 16]})
    assert [value.shape for value in bound.values] == [(2, 16), (2, 16)]
    with raises("DimConflict"):
        load(root, bind={"x": (2, 15), "y": (2, 15)})
    with pytest.raises(errors.UnknownDim, match="'z'"):
        load(root, bind={"z": (1,)})
    with pytest.raises(errors.UnknownDim, match="no names"):
        load(root, bind={"batch": 1})


@pytest.mark.parametrize("stored", [(), (1,), (1, 600)])
@pytest.mark.parametrize("target", ["litert", "numpy", "tflm", "c", "ideal"])
@pytest.mark.parametrize("name", ["RESHAPE", "TILE", "SLICE", "TOPK_V2", "BROADCAST_TO"])
def test_sizes_that_data_decides_are_refused_by_name(
    name: str, target: str, stored: tuple[int, ...]
) -> None:
    tensors = [
        flat.tensor("x", (2, 600)),
        flat.tensor("sizes", (2,), type_=2),
        flat.tensor("y", stored, signature=(-1,) * max(1, len(stored))),
        flat.tensor("z", stored, signature=(-1,) * max(1, len(stored))),
    ]
    steps = [flat.operator(0, [0, 1], [2]), flat.operator(1, [2], [3])]
    root = flat.model(
        [flat.code(name), flat.code("TANH")], [flat.subgraph(tensors, steps, [0, 1], [3])]
    )
    with pytest.raises(errors.UnknownShape, match=f"'y': data decides its size when .*{name}_0"):
        ap.plan(load(root), target=target)


@pytest.mark.parametrize("name", ["WHERE", "UNIQUE"])
def test_results_of_as_many_elements_as_data_says_are_never_planned(name: str) -> None:
    tensors = [
        flat.tensor("x", (1, 8), signature=(-1, 8)),
        flat.tensor("y", (1, 2), signature=(-1, 2)),
    ]
    graph = flat.subgraph(tensors, [flat.operator(0, [0], [1])], [0], [1])
    with pytest.raises(errors.UnknownShape, match="'y'"):
        load(flat.model([flat.code(name)], [graph]))


def test_a_bound_of_a_shape_that_data_decides_is_planned() -> None:
    tensors = [
        flat.tensor("x", (2, 600)),
        flat.tensor("sizes", (2,), type_=2),
        flat.tensor("y", (), signature=(-1, -1)),
    ]
    graph = flat.subgraph(tensors, [flat.operator(0, [0, 1], [2])], [0, 1], [2])
    root = flat.model([flat.code("RESHAPE")], [graph])
    assert load(root, bind={"y": (3, 400)}).values[2].shape == (3, 400)


@pytest.mark.parametrize("target", ["numpy", "tflm", "litert"])
def test_a_constant_without_elements_is_a_constant(target: str) -> None:
    tensors = [
        flat.tensor("x", (1, 1)),
        flat.tensor("shape", (0,), type_=2),
        flat.tensor("y", ()),
    ]
    graph = flat.subgraph(tensors, [flat.operator(0, [0, 1], [2])], [0], [2])
    root = load(flat.model([flat.code("RESHAPE")], [graph]))
    assert ap.plan(root, target=target).status == "optimal"
    outputs = ap.Executor(root).run({"x": np.full((1, 1), 2.0, np.float32)})
    assert float(outputs["y"]) == 2.0


def test_a_negative_dimension_is_refused() -> None:
    with raises("InvalidDim", match="-7"):
        load(flat.chain("NEG", shape=(1, -7)))


def test_a_tensor_that_no_machine_can_hold_is_refused() -> None:
    with raises("SizeOverflow", match="'t0'"):
        load(flat.chain("NEG", shape=(2**31 - 1,) * 3))


@pytest.mark.parametrize(("name", "options"), [("IF", 92), ("WHILE", 93), ("CALL_ONCE", 103)])
def test_calls_of_subgraphs_are_refused_by_name(name: str, options: int) -> None:
    x, y = flat.tensor("x", (1,)), flat.tensor("y", (1,))
    operator = flat.operator(0, [0], [1], (options, {}))
    root = flat.model([flat.code(name)], [flat.subgraph([x, y], [operator], [0], [1])])
    graph = load(root)
    assert [node.op for node in graph.nodes] == [name]
    for target in ("nodes", "c", "ideal"):
        with pytest.raises(errors.UnsupportedSubgraph, match=f"{name}_0"):
            ap.plan(graph, target=target)
    # All three name the subgraph that they are in.
    with pytest.raises(errors.UnsupportedSubgraph, match="calls itself"):
        ap.plan(graph)


def test_operators_with_hidden_state_keep_their_order() -> None:
    names = ["VAR_HANDLE", "ASSIGN_VARIABLE", "NEG", "READ_VARIABLE"]
    tensors = [
        flat.tensor("x", (4,)),
        flat.tensor("handle", (1,), flat.RESOURCE),
        flat.tensor("negative", (4,)),
        flat.tensor("y", (4,)),
    ]
    operators = [
        flat.operator(0, [], [1]),
        flat.operator(1, [1, 0], []),
        flat.operator(2, [0], [2]),
        flat.operator(3, [1], [3]),
    ]
    main_graph = flat.subgraph(tensors, operators, [0], [2, 3])
    graph = load(flat.model([flat.code(name) for name in names], [main_graph]))
    assert [node.after for node in graph.nodes] == [(), (0,), (), (1,)]


def test_running_an_operator_without_a_kernel_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.tflite"
    x = Operand((1, 8))
    path.write_bytes(model_of(Case("SIGN", [x], [x])))
    assert main(["run", str(path)]) == 3
    assert "tflite::SIGN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "rounded_to_64", "rounded_to_16"),
    [
        ("vww_96_int8", 55_296, 55_296),
        ("pretrainedResnet_quant", 49_152, 49_152),
        ("kws_ref_model", 16_000, 16_000),
        ("ad01_int8", 768, 768),
        ("person_detect", 55_296, 55_296),
        ("micro_speech_quantized", 6_016, 5_968),
    ],
)
def test_real_models_plan_to_the_bytes_of_the_study(
    shared: Path, name: str, rounded_to_64: int, rounded_to_16: int
) -> None:
    graph = ap.load(shared / "models" / "tflite" / f"{name}.tflite")
    for names in ("views", "views,in-place"):
        wide = ap.plan(graph, optimize=names, target="ideal")
        tight = ap.plan(graph, optimize=names, alignment=16, target="ideal")
        assert (wide.arena_bytes, wide.status) == (rounded_to_64, "optimal")
        assert (tight.arena_bytes, tight.status) == (rounded_to_16, "optimal")


def test_a_residual_network_adds_in_place_where_nodes_run_as_one(shared: Path) -> None:
    graph = ap.load(shared / "models" / "tflite" / "pretrainedResnet_quant.tflite")
    assert (ap.plan(graph, target="ideal").arena_bytes, ap.plan(graph, target="ideal").status) == (
        32_768,
        "optimal",
    )
