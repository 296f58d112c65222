"""Memory at run time from storage ids, as NNVM's graph runtime sets it up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base.errors import UndefinedValue
from raising import raises

UPSTREAM_IDS = [3, 4, 0, 1, 5, 2]


def entry(name: str, shape: tuple[int, ...], storage_id: int, dtype: str = "float32", **rest: str):
    return ap.classic.StorageEntry(name, shape, dtype, storage_id, **rest)


def small_pool(**options) -> ap.classic.StoragePool:
    entries = [
        entry("x", (2, 3), 2),
        entry("w", (3,), 3),
        entry("a", (2, 3), 0),
        entry("b", (10,), 0, "int8"),
        entry("y", (2,), 1, "float64"),
    ]
    return ap.classic.StoragePool(entries, ["x", "w"], ["y"], **options)


def test_row_23_a_block_is_as_large_as_its_largest_value_and_values_are_views() -> None:
    pool = small_pool()
    assert {key: buffer.nbytes for key, buffer in pool.buffers.items()} == {
        0: 24,
        1: 16,
        2: 24,
        3: 12,
    }
    assert np.shares_memory(pool["a"], pool["b"])
    assert not np.shares_memory(pool["a"], pool["y"])
    assert pool["y"].dtype == np.float64
    assert all(buffer.ctypes.data % 64 == 0 for buffer in pool.buffers.values())


def test_row_23_reloading_from_json_without_sizes_gives_the_same_pool() -> None:
    pool = small_pool()
    text = pool.to_json()
    assert "bytes" not in text
    again = ap.classic.StoragePool.from_json(text)
    assert again.to_json() == text
    assert {key: buffer.nbytes for key, buffer in again.buffers.items()} == {
        key: buffer.nbytes for key, buffer in pool.buffers.items()
    }


def test_row_23_hand_written_runtime_json_across_two_devices() -> None:
    names = ["a", "b", "add", "copy", "c", "sub"]
    document = {
        "nodes": [{"op": "null", "name": name, "inputs": []} for name in names],
        "arg_nodes": [0, 1, 4],
        "node_row_ptr": list(range(7)),
        "heads": [[5, 0, 0]],
        "attrs": {
            "storage_id": ["list_int", UPSTREAM_IDS],
            "shape": ["list_shape", [[4]] * 6],
            "device_index": ["list_int", [2, 2, 2, 1, 1, 1]],
            "dltype": ["list_str", ["float32"] * 6],
        },
    }
    pool = ap.classic.StoragePool.from_json(json.dumps(document))
    assert pool.inputs == ("a", "b", "c")
    assert pool.nbytes == 6 * 16
    document["attrs"]["storage_id"][1] = [3, 4, 0, 0, 5, 2]
    with raises("StorageError", match="two devices"):
        ap.classic.StoragePool.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"nodes": 1, "attrs": {}}'])
def test_row_23_text_that_is_no_planned_graph_is_refused(text: str) -> None:
    with raises("StorageError"):
        ap.classic.StoragePool.from_json(text)


def test_row_23_a_value_without_storage_is_refused() -> None:
    with raises("StorageError", match="'a' has no storage"):
        ap.classic.StoragePool([entry("a", (1,), -1)])


def test_row_24_inputs_are_copied_and_outputs_read() -> None:
    pool = small_pool()
    pool.set_input("w", np.arange(3, dtype="float32"))
    assert pool.get_input("w").tolist() == [0, 1, 2]
    pool["y"][:] = 7
    assert pool.get_output(0).tolist() == [7, 7]
    assert pool.num_outputs == 1
    with pytest.raises(UndefinedValue):
        pool.set_input("a", np.zeros((2, 3), "float32"))
    with pytest.raises(UndefinedValue):
        pool.get_output(1)
    with raises("StorageError", match="float32"):
        pool.set_input("w", np.arange(3))


def test_row_24_zero_copy_rewires_what_nodes_read_only() -> None:
    pool = small_pool()
    raw = np.zeros(24 + 128, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + 24].view("float32").reshape(2, 3)
    pool.set_input_zero_copy("x", array)
    assert np.shares_memory(pool["x"], array)
    assert not np.shares_memory(pool.get_input("x"), array)
    shifted = raw[start + 4 : start + 28].view("float32").reshape(2, 3)
    with raises("StorageError", match="aligned"):
        pool.set_input_zero_copy("x", shifted)
    with raises("StorageError", match="contiguous"):
        pool.set_input_zero_copy("x", np.zeros((3, 2), "float32").T)
    for wrong in (np.zeros(6, "float32"), np.zeros((2, 3), "float64")):
        with raises("StorageError"):
            pool.set_input_zero_copy("x", wrong)


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.tuples(
            st.sampled_from(["float32", "float16", "int8", "uint8", "int64", "float64"]),
            st.lists(st.integers(0, 3), max_size=4),
        ),
        max_size=5,
    )
)
def test_row_24_parameter_blobs_round_trip(params: dict) -> None:
    arrays = {
        name: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
        for name, (dtype, shape) in params.items()
    }
    read = ap.classic.load_params(ap.classic.save_params(arrays))
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_row_24_blobs_cut_short_anywhere_are_refused() -> None:
    blob = ap.classic.save_params(
        {"w": np.arange(3, dtype="float32"), "v": np.ones((2, 2), "int8")}
    )
    for end in range(len(blob)):
        with raises("StorageError"):
            ap.classic.load_params(blob[:end])
    with raises("StorageError"):
        ap.classic.load_params(b"\xff" * len(blob))


def test_row_24_a_blob_with_an_unknown_name_changes_nothing() -> None:
    pool = small_pool()
    w = np.arange(3, dtype="float32")
    with pytest.raises(UndefinedValue):
        pool.load_params(ap.classic.save_params({"w": w, "other": w}))
    assert pool.get_input("w").tolist() == [0, 0, 0]
    pool.load_params(ap.classic.save_params({"w": w}))
    assert pool.get_input("w").tolist() == [0, 1, 2]


def test_row_24_two_instances_share_parameters() -> None:
    first, second = small_pool(), small_pool()
    before = second.nbytes
    second.share_params(first, ["w"])
    first.set_input("w", np.full(3, 5, "float32"))
    assert second["w"].tolist() == [5, 5, 5]
    assert second.nbytes == before - 12
    other = ap.classic.StoragePool([entry("w", (4,), 0)], ["w"])
    with raises("StorageError"):
        second.share_params(other, ["w"])


def test_row_47_rebinding_a_smaller_graph_does_not_grow_the_pool() -> None:
    large = ap.classic.StoragePool(
        [entry("a", (100,), 0), entry("b", (50,), 1), entry("c", (80,), 2)]
    )
    small = ap.classic.StoragePool([entry("p", (40,), 0), entry("q", (90,), 1)], reuse=large)
    assert {id(buffer) for buffer in small.buffers.values()} <= {
        id(buffer) for buffer in large.buffers.values()
    }
    assert np.shares_memory(small["q"], large["a"])
    assert np.shares_memory(small["p"], large["b"]), "the smallest that is large enough"
    other = ap.classic.StoragePool([entry("p", (40,), 0, device="gpu")], reuse=large)
    assert not any(np.shares_memory(other["p"], large[name]) for name in "abc")


def test_row_23_a_planned_graph_runs_in_its_pool() -> None:
    graph = ap.Graph()
    last = graph.input("x", (5,))
    for name in "abcd":
        (last,) = graph.node("AddOne", [last], [(name, (5,), "float32")])
    graph.output(last)
    pool = ap.classic.StoragePool.from_plan(graph, ap.classic.share_storage(graph))
    pool.set_input("x", np.zeros(5, "float32"))
    for node in graph.nodes:
        read, written = (graph.values[ids[0]].name for ids in (node.inputs, node.outputs))
        np.add(pool[read], 1, out=pool[written])
    assert pool.get_output(0).tolist() == [4] * 5
    assert pool.nbytes == 3 * 20


def test_d2_json_has_operands_and_its_nodes_run() -> None:
    """A runtime of ten lines reads the file and runs its nodes, as the pool does."""
    graph = ap.Graph()
    x, w = graph.input("x", (4,)), graph.constant("w", (4,))
    low, high = graph.node("Split", [x], [("low", (2,), "float32"), ("high", (2,), "float32")])
    (total,) = graph.node("Add", [low, high], [("total", (2,), "float32")], name="sum")
    (y,) = graph.node("Cat", [high, total], [("cat", (4,), "float32")])
    (out,) = graph.node("Add", [y, w], [("out", (4,), "float32")])
    graph.output(out)
    graph.output(low)
    text = ap.classic.StoragePool.from_plan(graph, ap.classic.share_storage(graph)).to_json()
    functions = {
        "Split": lambda x: (x[:2], x[2:]),
        "Add": lambda a, b: (a + b,),
        "Cat": lambda a, b: (np.concatenate([a, b]),),
    }
    document = json.loads(text)
    assert [node["op"] for node in document["nodes"]] == ["null"] * 2 + ["tvm_op"] * 4
    assert document["arg_nodes"] == [0, 1]
    assert document["heads"] == [[5, 0, 0], [2, 0, 0]]
    rows, attributes = document["node_row_ptr"], document["attrs"]
    ids, shapes = attributes["storage_id"][1], attributes["shape"][1]
    blocks = {number: np.zeros(8, "float32") for number in ids}

    def value(node: int, output: int, _version: int) -> np.ndarray:
        entry = rows[node] + output
        return blocks[ids[entry]][: np.prod(shapes[entry], dtype=int)]

    given = {"x": [1, 2, 3, 4], "w": [10, 20, 30, 40]}
    for index, node in enumerate(document["nodes"]):
        if node["op"] == "null":
            value(index, 0, 0)[:] = given[node["name"]]
            continue
        operands = [value(*operand) for operand in node["inputs"]]
        assert len(operands) == int(node["attrs"]["num_inputs"])
        made = functions[node["attrs"]["func_name"]](*operands)
        assert len(made) == int(node["attrs"]["num_outputs"])
        for output, array in enumerate([np.copy(array) for array in made]):
            value(index, output, 0)[:] = array
    assert [value(*head).tolist() for head in document["heads"]] == [[13, 24, 34, 46], [1, 2]]

    pool = ap.classic.StoragePool.from_json(text)
    assert pool.to_json() == text
    assert pool.nodes[3] == ap.classic.StorageNode(
        "tvm_op",
        "total",
        (ap.classic.StorageOperand(2, 0, 0), ap.classic.StorageOperand(2, 1, 0)),
        {"func_name": "Add", "num_inputs": "2", "num_outputs": "1", "flatten_data": "0"},
        (),
    )
    assert [entry.name for entry in pool.entries] == [
        "x",
        "w",
        "low",
        "high",
        "total",
        "cat",
        "out",
    ]
    pool.set_input("w", np.ones(4, "float32"))


@pytest.mark.parametrize("operand", [[3, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 0, 0], "x"])
def test_d2_operands_that_no_earlier_node_makes_are_refused(operand: object) -> None:
    document = json.loads(small_pool().to_json())
    document["nodes"][2]["inputs"] = [operand]
    with raises("StorageError"):
        ap.classic.StoragePool.from_json(json.dumps(document))


def test_row_24_arrays_in_another_byte_order_are_refused_and_saved_in_ours() -> None:
    swapped = np.arange(3, dtype=np.dtype("float32").newbyteorder())
    with raises("StorageError", match="byte order"):
        small_pool().set_input("w", swapped)
    assert ap.classic.load_params(ap.classic.save_params({"w": swapped}))["w"].tolist() == [0, 1, 2]
    with raises("StorageError", match="'w'"):
        ap.classic.save_params({"w": np.zeros(3, bool)})
