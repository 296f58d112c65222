"""Live exported programs: the same graphs as their files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.formats.pt2 import load_pt2

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

nn = torch.nn


class Function(nn.Module):
    """A function as a module, with buffers."""

    def __init__(self, function: Callable[..., Any], **buffers: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def saved(program: Any) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def assert_same(program: Any, **options: Any) -> ap.Graph:
    """Assert that a program and its file give one graph, and return it."""
    live, read = ap.from_exported_program(program, **options), load_pt2(saved(program), **options)
    assert live.digest == read.digest
    assert ap.plan(live, target="ideal").status == "optimal"
    return live


def add_to_cache(self: Any, x: Any) -> Any:
    self.cache.add_(x)
    return (self.cache * 2).relu() - x


def without_gradients(self: Any, x: Any) -> Any:
    with torch.no_grad():
        y = x.sin().exp()
    with torch.enable_grad():
        return y.cos() + x


def in_place(self: Any, x: Any) -> Any:
    y = x.sin()
    y.relu_()
    y[0] = 0
    return y + 1


def branch(self: Any, x: Any) -> Any:
    return torch.cond(
        x.sum() > 0, lambda a: (a.sin() + a.cos()) * a.exp(), lambda a: a - 3, (x * 2,)
    )


def update(self: Any, x: Any, y: Any) -> Any:
    return torch.slice_scatter(x * 2, y, 0, 1, 3).index_fill(1, torch.tensor([3]), 7.0)


X = torch.randn(4, 16)
PROGRAMS: dict[str, tuple[Any, tuple]] = {
    "several results": (Function(lambda _, x: (x.sin(), *x.split([1, 3]), x.max(1))), (X,)),
    "results without readers": (Function(lambda _, x: torch.topk(x, 3)[1]), (X,)),
    "pieces without readers": (Function(lambda _, x: x.chunk(4, 1)[2].relu()), (X,)),
    "views": (Function(lambda _, x: x.sin().view(2, 2, 16).permute(0, 2, 1).reshape(-1)[3:]), (X,)),
    "one result twice": (Function(lambda _, x: (lambda y: (y, y, y * 2))(x.sin())), (X,)),
    "constants": (Function(lambda _, x: (x + torch.tensor(2.0), torch.arange(4))), (X,)),
    "optional operands": (Function(lambda _, x: x[:, [1, 2, 3]] * 2), (X,)),
    "a number": (Function(lambda _, x, n: x * n), (X, 3)),
    "a narrow type": (Function(lambda _, x: x.to(torch.bfloat16).exp().float()), (X,)),
    "without gradients": (Function(without_gradients), (X,)),
    "branches": (Function(branch), (X,)),
    "submodules": (
        nn.Sequential(nn.Linear(16, 32), nn.Sequential(nn.GELU(), nn.LayerNorm(32))),
        (X,),
    ),
    "attention": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (X[None],)),
    "an updated array": (Function(update), (X, X[:2])),
    "recurrence": (nn.LSTM(16, 8, 2, batch_first=True), (X[None],)),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2)),
        (torch.randn(1, 3, 32, 32),),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_live_program_is_read_like_its_file(name: str) -> None:
    model, args = PROGRAMS[name]
    program = torch.export.export(model.eval(), args)
    assert_same(program)
    assert_same(program.run_decompositions())


@pytest.mark.parametrize(
    "model", [Function(add_to_cache, cache=torch.zeros(4, 16)), Function(in_place)]
)
def test_what_is_written_in_place_needs_decompositions(model: Any) -> None:
    program = torch.export.export(model, (X,))
    with pytest.raises(errors.UnsupportedOp, match="run_decompositions"):
        ap.from_exported_program(program)
    assert_same(program.run_decompositions())


def test_a_buffer_that_is_updated_is_a_state() -> None:
    program = torch.export.export(
        Function(add_to_cache, cache=torch.zeros(4, 16)), (X,)
    ).run_decompositions()
    graph = assert_same(program)
    assert [value.kind for value in graph.values].count("state") == 1


def test_symbolic_sizes_are_bound() -> None:
    batch = torch.export.Dim("batch", min=2, max=9)
    model = Function(lambda _, x: (torch.cat([x, x.sin()])[1:-1].reshape(-1), x @ x.t()))
    program = torch.export.export(model, (X,), dynamic_shapes=(({0: batch},),))
    (symbol,) = map(str, program.range_constraints)
    with pytest.raises(errors.UnboundDim, match=f"bind={{'{symbol}'"):
        ap.from_exported_program(program)
    (name,) = program.graph_signature.user_inputs
    for bind in ({symbol: 5}, {name: (5, 16)}):
        graph = assert_same(program, bind=bind)
        assert [graph.values[i].shape for i in graph.outputs] == [(8 * 16,), (5, 5)]


def test_sizes_that_data_decides_are_refused() -> None:
    program = torch.export.export(Function(lambda _, x: x.nonzero() * 2), (X,))
    for load in (ap.from_exported_program, lambda p: load_pt2(saved(p))):
        with pytest.raises(errors.UnboundDim, match="'nonzero'"):
            load(program)


def test_weights_are_constant_however_they_are_transposed() -> None:
    program = torch.export.export(nn.Linear(16, 8), (X,)).run_decompositions()
    graph = assert_same(program)
    assert [node.op for node in graph.nodes] == ["addmm.default"]


def test_what_is_updated_stays_where_it_is() -> None:
    program = torch.export.export(Function(update), (X, X[:2])).run_decompositions()
    assert ap.plan(assert_same(program), target="ideal").arena_bytes == 256 + 256 + 128


def test_the_table_names_what_torch_has() -> None:
    from arenaplan.formats.pt2.pt2_operators import ALIASES, OPERATORS

    names = [name for name in {*OPERATORS, *ALIASES} if not hasattr(torch.ops.aten, name)]
    assert names == []


def test_what_may_be_overwritten_is_read_element_by_element() -> None:
    """Another number at one place changes the result there and nowhere else."""
    from arenaplan.formats.pt2.pt2_operators import OPERATORS
    from arenaplan.graph.ops import ELEMENTWISE, FIRST_OPERAND

    names = [name for name, op in OPERATORS.items() if op in (ELEMENTWISE, FIRST_OPERAND)]
    floats = [torch.rand(2, 5) * 0.8 + 0.1 for _ in range(3)]
    operands = (floats, [(x * 9).to(torch.int32) + 1 for x in floats], [x > 0.5 for x in floats])
    tried = set()
    for name in names:
        for arrays in operands:
            for count in (1, 2, 3):
                args = arrays[:count]
                changed = [args[0].clone(), *args[1:]]
                changed[0][1, 2] = args[0][0, 0]
                try:
                    before, after = (getattr(torch.ops.aten, name)(*a) for a in (args, changed))
                except (IndexError, RuntimeError, TypeError):
                    continue
                if isinstance(before, torch.Tensor):
                    differs = ~torch.isclose(before, after, rtol=0, atol=0, equal_nan=True)
                    differs[1, 2] = False
                    assert not differs.any(), name
                    tried.add(name)
    assert len(tried) > 90


def test_d23_what_is_no_exported_program_is_refused() -> None:
    with pytest.raises(TypeError, match="'Linear' is not a torch"):
        ap.from_exported_program(nn.Linear(2, 2))


class InArena(torch.fx.Interpreter):
    """Runs a program with every activation where a plan puts it."""

    def __init__(self, program: Any, plan: ap.Plan) -> None:
        super().__init__(program.graph_module)
        self.arena = torch.full((plan.arena_bytes,), 0xA5, dtype=torch.uint8)
        values = json.loads(plan.to_json())["values"]
        self.places = {value["name"]: value["offset"] for value in values}
        self.kept = 0

    def keep(self, name: str, result: Any) -> Any:
        """Copy a tensor into the arena, and return what is there."""
        offset = self.places.get(name)
        if offset is None:
            return result
        content = result.contiguous().reshape(-1).clone()
        there = self.arena[offset : offset + content.nbytes].view(content.dtype)
        there.copy_(content)
        self.kept += 1
        return there.view(result.shape)

    def run_node(self, node: Any) -> Any:
        result = super().run_node(node)
        return self.keep(node.name, result) if isinstance(result, torch.Tensor) else result


def operands(program: Any, args: tuple) -> list[Any]:
    """Return what goes into a program's graph: parameters, buffers, constants, arguments."""
    stored = {**program.state_dict, **program.constants}
    users = iter(args)
    return [
        stored[spec.target].detach() if spec.target is not None else next(users)
        for spec in program.graph_signature.input_specs
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_the_same_inside_its_arena(name: str) -> None:
    model, args = PROGRAMS[name]
    program = torch.export.export(model.eval(), args).run_decompositions()
    inputs = operands(program, args)
    with torch.no_grad():
        expected = torch.fx.Interpreter(program.graph_module).run(*inputs)
        graph = ap.from_exported_program(program)
        inside = InArena(program, ap.plan(graph, optimize="views,in-place,elision", target="ideal"))
        found = inside.run(*inputs)
    assert inside.kept >= 2
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["convolution", "submodules", "views"])
def test_a_program_needs_the_bytes_of_its_onnx_export(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    model, args = PROGRAMS[name]
    program = torch.export.export(model.eval(), args)
    torch.onnx.export(program, f=tmp_path / "model.onnx", dynamo=True, verbose=False)
    exported = ap.load(tmp_path / "model.onnx")
    for optimize in ("all", "all,-in-place"):
        ours = ap.plan(ap.from_exported_program(program), optimize=optimize, target="ideal")
        assert ours.arena_bytes == ap.plan(exported, optimize=optimize, target="ideal").arena_bytes


# -- joint graphs ----------------------------------------------------------------------------------


def traced_step(rows: int = 8) -> Any:
    """Return the graph module of a step of a network with two layers and momentum."""
    from torch.fx.experimental.proxy_tensor import make_fx

    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    parameters = {name: value.detach() for name, value in net.named_parameters()}

    def step(p: Any, m: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return ((torch.func.functional_call(net, p, (x,)) - y) ** 2).mean()

        grads, value = torch.func.grad_and_value(loss)(p)
        m = {name: 0.9 * m[name] + grads[name] for name in m}
        return {name: p[name] - 0.1 * m[name] for name in p}, m, value

    momenta = {name: value.clone() for name, value in parameters.items()}
    batch = (torch.randn(rows, 64), torch.randn(rows, 64))
    return make_fx(step, tracing_mode="fake")(parameters, momenta, *batch)


def test_a_step_updates_donated_parameters_where_they_are() -> None:
    graph = ap.formats.from_joint_graph(traced_step(), donate={at: at for at in range(8)})
    plan = ap.plan(graph)
    plan.check(graph)
    assert len(graph.write_backs) == 8
    for value, state in graph.write_backs:
        assert plan.placements[value].offset == plan.placements[state].offset
    kept = ap.plan(ap.formats.from_joint_graph(traced_step()), inputs="keep")
    assert plan.arena_bytes < 0.8 * kept.arena_bytes


def test_transposes_beside_products_are_views() -> None:
    graph = ap.formats.from_joint_graph(traced_step())
    transposes = [node for node in graph.nodes if node.op == "t.default"]
    assert len(transposes) > 5
    assert all(node.effects.views for node in transposes)


def test_a_transposed_result_of_the_program_is_a_copy() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    module = make_fx(lambda x: (x.sin().t(), x @ x.t()), tracing_mode="fake")(X)
    graph = ap.formats.from_joint_graph(module)
    assert [bool(node.effects.views) for node in graph.nodes if node.op == "t.default"] == [
        False, True,
    ]  # fmt: skip


def test_joint_graphs_of_aot_autograd_are_planned() -> None:
    from torch._functorch.aot_autograd import aot_export_joint_simple

    def loss(w: Any, b: Any, x: Any) -> Any:
        return ((torch.relu(x @ w + b) ** 2).mean(),)

    args = [torch.randn(8, 16, requires_grad=True), torch.randn(16, requires_grad=True)]
    module = aot_export_joint_simple(loss, [*args, torch.randn(32, 8)], trace_joint=True)
    graph = ap.formats.from_joint_graph(module, name="joint")
    assert [graph.values[index].shape for index in graph.outputs] == [(), (8, 16), (16,)]
    (backward,) = (node for node in graph.nodes if node.op == "threshold_backward.default")
    assert {pair.input for pair in backward.effects.in_place} == {0, 1}
    ap.plan(graph).check(graph)


def test_expanded_gradients_need_no_bytes() -> None:
    from torch._functorch.aot_autograd import aot_export_joint_simple

    module = aot_export_joint_simple(
        lambda x: (x.sum(),), [torch.randn(64, 64, requires_grad=True)], trace_joint=True
    )
    wide = [node.op for node in ap.formats.from_joint_graph(module).nodes]
    assert wide == ["sum.default", "expand.default"]  # The gradient itself.
    module = aot_export_joint_simple(
        lambda x: (x.sin().sum(),), [torch.randn(64, 64, requires_grad=True)], trace_joint=True
    )
    assert "expand.default" not in [node.op for node in ap.formats.from_joint_graph(module).nodes]


def test_nodes_of_joint_graphs_have_costs_and_purity() -> None:
    graph = ap.formats.from_joint_graph(traced_step(rows=2048))
    (product,) = (node for node in graph.nodes if node.name == "addmm")
    assert product.cost == 2 * 2048 * 64 * 256
    assert all(node.effects.pure for node in graph.nodes)


def test_random_nodes_are_not_pure() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    module = make_fx(lambda x: torch.bernoulli(x) * x, tracing_mode="fake")(X)
    graph = ap.formats.from_joint_graph(module)
    assert [node.effects.pure for node in graph.nodes] == [False, True]


@pytest.mark.parametrize(
    ("donate", "error", "message"),
    [
        ({99: 0}, IndexError, "no input 99"),
        ({0: 99}, IndexError, "no result 99"),
        ({True: 0}, TypeError, "input True is not a whole number"),
    ],
)
def test_wrong_donations_are_refused(donate: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ap.formats.from_joint_graph(traced_step(), donate=donate)


def test_what_is_no_graph_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'Linear' is not a torch\.fx\.GraphModule"):
        ap.formats.from_joint_graph(nn.Linear(2, 2))
