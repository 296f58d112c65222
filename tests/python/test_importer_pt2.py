"""Exported PyTorch programs without torch: the same bytes as their ONNX exports."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.formats.named import NamedOp
from arenaplan.formats.pt2 import load_pt2, open_pt2
from arenaplan.formats.pt2.archive import read_graph
from arenaplan.formats.pt2.pt2_document import read_program
from arenaplan.formats.pt2.pt2_operators import OPERATORS
from arenaplan.formats.pt2.pt2_walk import graph_of
from arenaplan.graph.ops import Array, Operands, effects_of, lookup
from raising import raises

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
    assert ap.plan(graph, target="ideal").arena_bytes == 512


def test_what_depends_on_parameters_only_is_constant() -> None:
    nodes = [
        node("transpose.int", "wt", self="w", dim0=0, dim1=1),
        node("matmul.default", "y", self="x", other="wt"),
    ]
    tensors = {"x": (4, 16), "w": (8, 16), "wt": (16, 8), "y": (4, 8)}
    graph = load(program(tensors, nodes, ["y"], parameters=["w"]))
    assert graph.find("wt").kind == "constant"
    assert [n.op for n in graph.nodes] == ["matmul.default"]
    assert ap.plan(graph, target="ideal").arena_bytes == 256 + 128


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


def test_d25_writing_in_place_is_a_value_of_its_own() -> None:
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
def test_d25_writing_to_what_the_caller_or_model_owns_is_refused(target: str) -> None:
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


def test_d25_a_buffer_that_is_updated_is_a_state_and_its_update_an_output() -> None:
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
    with raises("DimConflict"):
        load(document, bind={"x": (3, 17)})
    with pytest.raises(errors.UnknownDim, match="'s0'"):
        load(document, bind={"s1": 3})
    with raises("InvalidDim"):
        load(document, bind={"s0": 0})


def test_symbols_can_have_a_range_of_numbers() -> None:
    tensors = {"x": ("s0", 16), "y": ("2*s0 - 1", 16)}
    document = program(tensors, [node("repeat.default", "y", self="x")], ["y"])
    family = ap.plan_family(
        open_pt2(archive(document)), {"s0": range(1, 9)}, alignment=1, target="ideal"
    )
    assert [family.required_bytes(s0=n) for n in range(1, 9)] == [
        64 * (3 * n - 1) for n in range(1, 9)
    ]
    assert family.graph(s0=3).digest == load(document, bind={"s0": 3}).digest


@pytest.mark.parametrize("size", ["u0", "2*u0", "__import__('os')", "s(", "Log(1, 2)", "1//0"])
def test_d24_a_size_that_data_decides_is_unbound(size: str) -> None:
    tensors = {"x": (4,), "y": (size,)}
    with pytest.raises(errors.UnboundDim, match="'y'"):
        load(program(tensors, [node("nonzero.default", "y", self="x")], ["y"]))


@pytest.mark.parametrize(
    ("size", "number"),
    [
        ("Symbol('s0', positive=True, integer=True)", 3),
        ("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-1))", 5),
        ("FloorDiv(Symbol('s0'), Integer(2))", 1),
        ("Max(Integer(7), Symbol('s0'))", 7),
        ("Pow(Symbol('s0'), Integer(2))", 9),
        ("Mod(Symbol('s0'), Integer(2))", 1),
        ("CeilDiv(Symbol('s0'), Integer(2))", 2),
    ],
)
def test_sizes_are_read_as_the_format_writes_them(size: str, number: int) -> None:
    tensors = {"x": ("Symbol('s0', integer=True)", 16), "y": (size,)}
    document = program(tensors, [node("sum.default", "y", self="x")], ["y"])
    for bind in ({"s0": 3}, {"x": (3, 16)}):
        assert load(document, bind=bind).find("y").shape == (number,)
    with pytest.raises(errors.UnboundDim, match=r"bind=\{'s0'"):
        load(document)
    with pytest.raises(errors.UnknownDim, match=r"it has 's0'$"):
        load(document, bind={"Symbol": 3})


@pytest.mark.parametrize(
    "size", ["Pow(Integer(9), Integer(99))", "FloorDiv(Integer(1), Integer(0))", "Add()", "Exp(1)"]
)
def test_sizes_that_are_none_are_unbound(size: str) -> None:
    with pytest.raises(errors.UnboundDim, match="'x'"):
        load(program({"x": (size,)}, [], ["x"]))


def test_a_slice_without_a_start_starts_at_the_beginning() -> None:
    tensors = {"x": (4, 16), "y": (3, 16)}
    piece = node("slice.Tensor", "y", self="x", dim=0)
    piece["inputs"].append({"name": "start", "arg": {"as_none": True}, "kind": 1})
    graph = load(program(tensors, [piece], ["y"]))
    assert graph.nodes[0].effects.views == ((0, 0, 0, "input"),)


def test_computing_with_sizes_needs_no_memory() -> None:
    document = chain("relu.default")
    document["graph_module"]["graph"]["nodes"] += [
        {
            "target": "_operator.add",
            "inputs": [{"name": "a", "arg": {"as_sym_int": {"as_name": "s"}}, "kind": 1}],
            "outputs": [{"as_sym_int": {"as_name": "t"}}],
        }
    ]
    assert [n.op for n in load(document).nodes] == ["relu.default"]


def inner(nodes: list[dict], tensors: dict[str, tuple], inputs: str, outputs: str) -> dict:
    """Return a graph as an argument."""
    values = {name: {"dtype": FLOAT, "sizes": sizes(*shape)} for name, shape in tensors.items()}
    ports = [[{"as_tensor": {"name": name}} for name in names] for names in (inputs, outputs)]
    graph = {"nodes": nodes, "tensor_values": values, "inputs": ports[0], "outputs": ports[1]}
    return {"name": "", "arg": {"as_graph": {"name": "g", "graph": graph}}, "kind": 1}


def test_graphs_that_are_only_wrapped_are_read_as_if_they_were_not() -> None:
    """Names inside may be those outside."""
    flat = chain("relu.default", "neg.default", "tanh.default", "abs.default")
    body = [
        node("neg.default", "t0", self="x"),
        node("tanh.default", "y", self="t0"),
    ]
    wrapper = node("torch.ops.higher_order.wrap_with_set_grad_enabled", ["t2"])
    wrapper["inputs"] = [
        read("", False),
        inner(body, dict.fromkeys(("x", "t0", "y"), (4, 16)), "x", "y"),
        read("", "t0"),
    ]
    wrapped = chain("relu.default", "neg.default", "tanh.default", "abs.default")
    nodes = wrapped["graph_module"]["graph"]["nodes"]
    wrapped["graph_module"]["graph"]["nodes"] = [nodes[0], wrapper, nodes[3]]
    graphs = [load(document) for document in (flat, wrapped)]
    assert [n.op for n in graphs[1].nodes] == [n.op for n in graphs[0].nodes]
    assert [n.inputs for n in graphs[1].nodes] == [n.inputs for n in graphs[0].nodes]
    assert (
        ap.plan(graphs[1], target="ideal").arena_bytes
        == ap.plan(graphs[0], target="ideal").arena_bytes
    )


def conditional(target: str = "cond", large: int = 1000) -> dict:
    """Return a program with two branches, of which one needs two arrays of ``large`` numbers."""
    small = [node("neg.default", "y", self="a")]
    big = [
        node("repeat.default", "b", self="a"),
        node("matmul.default", "c", self="b"),
        node("sum.default", "y", self="c"),
    ]
    tensors: dict[str, tuple] = {"a": (16,), "b": (large,), "c": (large,), "y": (16,)}
    choice = node(f"torch.ops.higher_order.{target}", ["y"])
    choice["inputs"] = [
        read("", "x"),
        inner(small, tensors, "a", "y"),
        inner(big, tensors, "a", "y"),
        read("", ["x"]),
    ]
    return program({"x": (16,), "y": (16,)}, [choice], ["y"])


def test_branches_need_the_bytes_of_the_largest_while_their_node_runs() -> None:
    graph = load(conditional(large=1000))
    (branch,) = graph.nodes
    assert graph.values[branch.outputs[1] or 0].shape == (2 * 4032,)
    assert ap.plan(graph, target="ideal").arena_bytes == 64 + 64 + 2 * 4032


def test_other_graphs_are_refused_by_name() -> None:
    with pytest.raises(errors.UnsupportedSubgraph, match="flex_attention"):
        load(conditional("flex_attention"))
    document = chain("torch.ops.higher_order.cond")
    with pytest.raises(errors.UnsupportedSubgraph, match="cond"):
        load(document)
    with pytest.raises(errors.UnsupportedSubgraph, match="one graph"):
        load(conditional("wrap_with_autocast"))


def test_graphs_without_end_are_refused() -> None:
    nodes: list[dict] = []
    for _ in range(40):
        wrapper = node("torch.ops.higher_order.wrap", [])
        wrapper["inputs"] = [inner(nodes, {}, "", "")]
        nodes = [wrapper]
    with raises("NestingTooDeep"):
        load(program({"x": (4,)}, nodes, ["x"]))


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
    with raises("BudgetExceeded"):
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
@pytest.mark.parametrize("target", ["plain", "cond", "wrap"])
def test_no_replaced_part_crashes(target: str, junk: object) -> None:
    document = pieces() if target == "plain" else conditional(target, large=8)
    bind = {"s0": 4} if target == "plain" else None
    if target == "wrap":
        del document["graph_module"]["graph"]["nodes"][0]["inputs"][:2]
    ap.plan(load(document, bind=bind), target="ideal")
    for path in parts(document):
        broken = json.loads(json.dumps(document))
        parent = broken
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = junk
        try:
            ap.plan(load(broken, bind=bind), target="ideal")
        except errors.InternalError:
            raise
        except errors.PlannerError:
            pass


def pieces() -> dict:
    """Return a program that parts, joins, writes in place and permutes."""
    nodes = [
        node("split.Tensor", ["a", "b"], self="x", split_size=2, dim=0),
        node("cat.default", "y", tensors=["b", "a"], dim=0),
        node("add_.Tensor", "z", self="y", other="x"),
        node("permute.default", "p", self="z", dims=[1, 0]),
    ]
    tensors = {"x": ("s0", 2), "a": (2, 2), "b": (2, 2), "y": (4, 2), "z": (4, 2), "p": (2, 4)}
    return program(tensors, nodes, ["p"])


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet", "unet", "vit"])
@pytest.mark.parametrize("optimize", ["all", "all,-in-place"])
def test_programs_plan_to_the_bytes_of_their_onnx_export(
    name: str, optimize: str, shared: Path
) -> None:
    program = ap.load(shared / "models" / "pt2" / f"{name}.pt2")
    exported = ap.load(shared / "models" / "onnx" / f"{name}.onnx")
    ours, theirs = (
        ap.plan(graph, optimize=optimize, target="numpy", workspace="none")
        for graph in (program, exported)
    )
    assert (ours.arena_bytes, ours.status) == (theirs.arena_bytes, theirs.status)


@pytest.mark.parametrize(
    ("op", "image", "arguments", "pieces", "is_followed"),
    [
        ("conv2d", (1, 6, 8, 8), {"groups": 6}, 6, True),
        ("conv2d", (1, 6, 8, 8), {"groups": 3}, 384, False),
        ("conv2d", (6, 6, 8), {"groups": 6}, 288, False),
        ("conv1d", (2, 6, 8), {"groups": 6}, 12, True),
        ("conv_transpose2d", (1, 6, 8, 8), {"groups": 6}, 384, False),
        ("convolution", (1, 6, 8, 8), {"groups": 6, "transposed": False}, 6, True),
        ("convolution", (1, 6, 8, 8), {"groups": 6, "transposed": True}, 384, False),
        ("max_pool2d", (1, 6, 8, 8), {}, 6, True),
        ("max_pool2d", (6, 8, 8), {}, None, False),
        ("pad", (1, 6, 8, 8), {"pad": [1, -1, 1, -1]}, 6, True),
        ("pad", (1, 6, 8, 8), {"pad": [0, 0, 0, 0, 1, -1]}, None, False),
        ("upsample_nearest2d", (1, 6, 8, 8), {}, 6, True),
    ],
)
def test_images_are_worked_on_by_channels(
    op: str,
    image: tuple[int, ...],
    arguments: dict[str, Any],
    pieces: int | None,
    is_followed: bool,
) -> None:
    x = [Array(image, "float32")]
    flows = effects_of(lookup(OPERATORS, op, NamedOp(x, x, arguments)), Operands(x, x)).flows
    assert [flow.pieces for flow in flows] == ([] if pieces is None else [pieces])
    assert all(flow.follows == ((0,) if is_followed else ()) for flow in flows)


def test_padding_that_onnx_folds_into_convolutions_is_a_node(shared: Path) -> None:
    """MobileNetV2 pads on one side only; the exporter to ONNX makes that an attribute."""
    path = shared / "models" / "pt2" / "mobilenet_v2.pt2"
    graph = ap.load(path)
    plan = ap.plan(graph, optimize="views,in-place", target="ideal")
    assert graph.nodes[plan.order[plan.peak_step]].op == "pad.default"
    assert (plan.arena_bytes, plan.status) == (903_360, "optimal")
    assert (
        ap.plan(graph, target="ideal").arena_bytes == 260_416
    )  # What is padded never exists as a whole.
    # Nothing else differs: without the padding, the bytes are those of the other export.
    exported = ap.load(shared / "models" / "onnx" / "mobilenet_v2.onnx")
    program = read_program(read_graph(path)[0])
    padded = {
        call.results[0]: call for call in program.calls if call.target.endswith(".pad.default")
    }
    sources = {name: next(call.reads()) for name, call in padded.items()}
    calls = [
        call._replace(
            arguments=tuple(
                argument._replace(tensors=tuple(sources.get(n, n) for n in argument.tensors))
                for argument in call.arguments
            )
        )
        for call in program.calls
        if call not in padded.values()
    ]
    folded = graph_of(program._replace(calls=tuple(calls)), "mobilenet_v2")
    for optimize in ("all", "all,-in-place"):
        ours, theirs = (
            ap.plan(g, optimize=optimize, target="numpy", workspace="none")
            for g in (folded, exported)
        )
        assert (ours.arena_bytes, ours.status) == (theirs.arena_bytes, theirs.status)
