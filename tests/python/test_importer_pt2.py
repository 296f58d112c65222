"""Exported PyTorch programs without torch: the same bytes as their ONNX exports."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from arenaplan import errors
from arenaplan.importers.pt2 import load_pt2, open_pt2

FLOAT, LONG = 7, 5


def sizes(*dims: int | str) -> list[dict]:
    return [
        {"as_int": dim} if isinstance(dim, int) else {"as_expr": {"expr_str": dim, "hint": None}}
        for dim in dims
    ]


def read(name: str, arg: object) -> dict:
    """Return an argument: a string is a tensor, a list of strings several."""
    if isinstance(arg, str):
        return {"name": name, "arg": {"as_tensor": {"name": arg}}, "kind": 1}
    if isinstance(arg, list) and arg and isinstance(arg[0], str):
        return {"name": name, "arg": {"as_tensors": [{"name": item} for item in arg]}, "kind": 1}
    if isinstance(arg, list):
        return {"name": name, "arg": {"as_ints": arg}, "kind": 1}
    return {"name": name, "arg": {"as_bool" if isinstance(arg, bool) else "as_int": arg}, "kind": 1}


def node(op: str, outputs: str | list[str], **arguments: object) -> dict:
    if isinstance(outputs, str):
        written: list[Any] = [{"as_tensor": {"name": outputs}}]
    else:
        written = [{"as_tensors": [{"name": name} for name in outputs]}]
    target = op if op.startswith("torch.") else f"torch.ops.aten.{op}"
    inputs = [read(name, arg) for name, arg in arguments.items()]
    return {"target": target, "inputs": inputs, "outputs": written, "metadata": {}}


def program(
    tensors: dict[str, tuple], nodes: list[dict], outputs: list[str], **kinds: list[str]
) -> dict:
    """Return a document; ``tensors`` are shapes by name, inputs those called x or in ``kinds``."""
    specs: list[dict] = [
        {"user_input": {"arg": {"as_tensor": {"name": name}}}}
        for name in kinds.get("inputs", ["x"])
    ]
    specs += [
        {"parameter": {"arg": {"name": name}, "parameter_name": name}}
        for name in kinds.get("parameters", [])
    ]
    specs += [
        {"buffer": {"arg": {"name": name}, "buffer_name": name, "persistent": True}}
        for name in kinds.get("buffers", [])
    ]
    results: list[dict] = [{"user_output": {"arg": {"as_tensor": {"name": n}}}} for n in outputs]
    results += [
        {"buffer_mutation": {"arg": {"name": new}, "buffer_name": old}}
        for old, new in zip(kinds.get("buffers", []), kinds.get("updates", []), strict=False)
    ]
    values = {name: {"dtype": FLOAT, "sizes": sizes(*shape)} for name, shape in tensors.items()}
    return {
        "graph_module": {
            "graph": {"nodes": nodes, "tensor_values": values, "inputs": [], "outputs": []},
            "signature": {"input_specs": specs, "output_specs": results},
        },
        "schema_version": {"major": 8, "minor": 20},
    }


def archive(document: object, name: str = "m/models/model.json") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        target.writestr(name, document if isinstance(document, bytes) else json.dumps(document))
    return file.getvalue()


def load(document: object, **options: Any) -> ap.Graph:
    return load_pt2(archive(document), **options)


def chain(*ops: str, shape: tuple = (4, 16)) -> dict:
    names = ["x", *(f"t{index}" for index in range(len(ops)))]
    nodes = [node(op, names[i + 1], self=names[i]) for i, op in enumerate(ops)]
    return program(dict.fromkeys(names, shape), nodes, [names[-1]])


def test_a_chain_is_read_in_order_and_runs_in_place() -> None:
    graph = load(chain("relu.default", "neg.default", "tanh.default"))
    assert [n.op for n in graph.nodes] == ["relu.default", "neg.default", "tanh.default"]
    assert all(n.effects.in_place == ((0, 0, False),) for n in graph.nodes)
    assert ap.plan(graph).arena_bytes == 512


def test_what_depends_on_parameters_only_is_constant() -> None:
    nodes = [
        node("transpose.int", "wt", self="w", dim0=0, dim1=1),
        node("matmul.default", "y", self="x", other="wt"),
    ]
    tensors = {"x": (4, 16), "w": (8, 16), "wt": (16, 8), "y": (4, 8)}
    graph = load(program(tensors, nodes, ["y"], parameters=["w"]))
    assert graph.find("wt").kind == "constant"
    assert [n.op for n in graph.nodes] == ["matmul.default"]
    assert ap.plan(graph).arena_bytes == 256 + 128


def test_random_numbers_are_not_constant() -> None:
    graph = load(program({"x": (4,), "r": (4,)}, [node("rand.default", "r", size=[4])], ["r"]))
    assert graph.find("r").kind == "activation"


def test_pieces_of_tensors_are_views() -> None:
    tensors = {"x": (4, 6), "a": (2, 6), "b": (2, 6), "row": (6,), "tail": (1, 6), "y": (4, 6)}
    nodes = [
        node("split.Tensor", ["a", "b"], self="x", split_size=2),
        node("select.int", "row", self="x", dim=0, index=-1),
        node("slice.Tensor", "tail", self="x", dim=0, start=-1, end=9),
        node("cat.default", "y", tensors=["a", "b"], dim=0),
    ]
    graph = load(program(tensors, nodes, ["y", "row", "tail"]))
    offsets = [[view.offset for view in n.effects.views] for n in graph.nodes]
    assert offsets == [[0, 48], [72], [72], [0, 48]]


def test_writing_in_place_is_a_value_of_its_own() -> None:
    tensors = dict.fromkeys(("x", "a", "b", "c"), (16,))
    nodes = [
        node("relu.default", "a", self="x"),
        node("add_.Tensor", "b", self="a", other="x"),
        node("mul.Tensor", "c", self="a", other="b"),
    ]
    graph = load(program(tensors, nodes, ["c"]))
    a, b = (graph.find(name).index for name in "ab")
    assert graph.nodes[1].effects.in_place[0] == (0, 0, False)
    assert graph.nodes[2].inputs == (b, b)
    assert a not in graph.nodes[2].inputs


@pytest.mark.parametrize("target", ["x", "w"])
def test_writing_to_what_the_caller_or_model_owns_is_refused(target: str) -> None:
    tensors = dict.fromkeys(("x", "w", "y"), (16,))
    nodes = [node("add_.Tensor", "y", self=target, other="x")]
    with pytest.raises(errors.UnsupportedOp, match="'y' writes to an input"):
        load(program(tensors, nodes, ["y"], parameters=["w"]))


def test_writing_to_what_a_view_shows_later_is_refused() -> None:
    tensors = dict.fromkeys(("x", "a", "v", "b", "y"), (16,))
    nodes = [
        node("relu.default", "a", self="x"),
        node("view.default", "v", self="a", size=[16]),
        node("add_.Tensor", "b", self="a", other="x"),
        node("mul.Tensor", "y", self="b", other="v"),
    ]
    with pytest.raises(errors.UnsupportedOp, match="'v'"):
        load(program(tensors, nodes, ["y"]))
    nodes[3] = node("mul.Tensor", "y", self="b", other="x")
    assert len(load(program(tensors, nodes, ["y"])).nodes) == 4


def test_a_buffer_that_is_updated_is_a_state_and_its_update_an_output() -> None:
    tensors = dict.fromkeys(("x", "cache", "new"), (16,))
    nodes = [node("add.Tensor", "new", self="cache", other="x")]
    graph = load(program(tensors, nodes, [], buffers=["cache"], updates=["new"]))
    assert graph.find("cache").kind == "state"
    assert graph.outputs == [graph.find("new").index]


def test_symbols_need_numbers() -> None:
    tensors = {"x": ("s0", 16), "y": ("2*s0 - 1", 16)}
    document = program(tensors, [node("repeat.default", "y", self="x")], ["y"])
    with pytest.raises(errors.UnboundDim, match="'s0' of tensor 'x'"):
        load(document)
    for bind in ({"s0": 3}, {"x": (3, 16)}):
        assert load(document, bind=bind).find("y").shape == (5, 16)
    with pytest.raises(errors.DimConflict):
        load(document, bind={"x": (3, 17)})
    with pytest.raises(errors.UnknownDim, match="'s0'"):
        load(document, bind={"s1": 3})
    with pytest.raises(errors.InvalidDim):
        load(document, bind={"s0": 0})


def test_symbols_can_have_a_range_of_numbers() -> None:
    tensors = {"x": ("s0", 16), "y": ("2*s0 - 1", 16)}
    document = program(tensors, [node("repeat.default", "y", self="x")], ["y"])
    family = ap.plan_family(open_pt2(archive(document)), {"s0": range(1, 9)}, alignment=1)
    assert [family.required_bytes(s0=n) for n in range(1, 9)] == [
        64 * (3 * n - 1) for n in range(1, 9)
    ]
    assert family.graph(s0=3).digest == load(document, bind={"s0": 3}).digest


@pytest.mark.parametrize("size", ["u0", "2*u0", "__import__('os')", "s(", "Max(1, 2)", "1//0"])
def test_a_size_that_data_decides_is_unbound(size: str) -> None:
    tensors = {"x": (4,), "y": (size,)}
    with pytest.raises(errors.UnboundDim, match="'y'"):
        load(program(tensors, [node("nonzero.default", "y", self="x")], ["y"]))


def test_other_graphs_are_refused_by_name() -> None:
    document = chain("relu.default")
    document["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.higher_order.cond"
    with pytest.raises(errors.UnsupportedSubgraph, match="cond"):
        load(document)


def test_custom_operators_are_planned_without_effects() -> None:
    graph = load(chain("torch.ops.mine.frobnicate.default"))
    assert (graph.nodes[0].domain, graph.nodes[0].effects) == ("mine", ap.Effects())


@pytest.mark.parametrize(
    "content",
    [
        b"", b"PK\x03\x04 no archive", archive({}), archive([]), archive(b"{"),
        archive(b"[" * 10**5), archive(b"1" * 5000), archive({}, "weights.json"),
    ],
)  # fmt: skip
def test_what_is_no_program_is_no_model(content: bytes) -> None:
    with pytest.raises(errors.NotAModel):
        load_pt2(content)


def test_an_archive_that_unpacks_to_far_more_exceeds_the_budget() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("m/models/model.json", b" " * 10**7)
    with pytest.raises(errors.BudgetExceeded):
        load_pt2(file.getvalue())


def parts(document: Any, path: tuple = ()) -> list[tuple]:
    """Return the path of every part of a document."""
    found = [path] if path else []
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, (dict, list)):
            found += parts(value, (*path, key))
        else:
            found.append((*path, key))
    return found


@pytest.mark.parametrize("junk", [None, 7, -1, "junk", [], {}, True, [None], 2**70, 0.5])
def test_no_replaced_part_crashes(junk: object) -> None:
    nodes = [
        node("split.Tensor", ["a", "b"], self="x", split_size=2, dim=0),
        node("cat.default", "y", tensors=["b", "a"], dim=0),
        node("add_.Tensor", "z", self="y", other="x"),
        node("permute.default", "p", self="z", dims=[1, 0]),
    ]
    tensors = {"x": ("s0", 2), "a": (2, 2), "b": (2, 2), "y": (4, 2), "z": (4, 2), "p": (2, 4)}
    document = program(tensors, nodes, ["p"])
    ap.plan(load(document, bind={"s0": 4}))
    for path in parts(document):
        broken = json.loads(json.dumps(document))
        parent = broken
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = junk
        try:
            ap.plan(load(broken, bind={"s0": 4}))
        except errors.InternalError:
            raise
        except errors.PlannerError:
            pass


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet", "unet", "vit"])
@pytest.mark.parametrize("in_place", [False, True])
def test_programs_plan_to_the_bytes_of_their_onnx_export(
    name: str, in_place: bool, shared: Path
) -> None:
    program = ap.load(shared / "models" / "pt2" / f"{name}.pt2")
    exported = ap.load(shared / "models" / "onnx" / f"{name}.onnx")
    ours, theirs = (ap.plan(graph, in_place=in_place) for graph in (program, exported))
    assert (ours.arena_bytes, ours.status) == (theirs.arena_bytes, theirs.status)


def test_padding_that_onnx_folds_into_convolutions_is_a_node(shared: Path) -> None:
    """MobileNetV2 pads on one side only; the exporter to ONNX makes that an attribute."""
    graph = ap.load(shared / "models" / "pt2" / "mobilenet_v2.pt2")
    plan = ap.plan(graph)
    assert graph.nodes[plan.order[plan.peak_step]].op == "pad.default"
    assert (plan.arena_bytes, plan.status) == (903_360, "optimal")
