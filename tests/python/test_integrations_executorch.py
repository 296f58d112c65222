"""Plans that the official ExecuTorch runtime obeys."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from arenaplan.base import errors
from arenaplan.deploy.adapters import banks
from arenaplan.deploy.adapters import executorch as ours
from raising import raises

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    exir = pytest.importorskip("executorch.exir")
    planning = pytest.importorskip("executorch.exir.memory_planning")
    passes = pytest.importorskip("executorch.exir.passes")
    runtime = pytest.importorskip("executorch.runtime")

pytestmark = pytest.mark.filterwarnings("ignore")


def lower(model: Any, inputs: tuple, plan: Any = None, **options: Any) -> Any:
    """Return a program, planned by a pass or by ExecuTorch."""
    with torch.no_grad():
        program = torch.export.export(model.eval(), inputs, **options)
    plan = passes.MemoryPlanningPass() if plan is None else plan
    return exir.to_edge(program).to_executorch(
        exir.ExecutorchBackendConfig(memory_planning_pass=plan)
    )


def arenas(program: Any) -> list[int]:
    return program.executorch_program.execution_plan[0].non_const_buffer_sizes


def run(program: Any, *inputs: tuple) -> list[list[Any]]:
    """Run a program several times in the official runtime."""
    method = runtime.Runtime.get().load_program(program.buffer).load_method("forward")
    return [[result.clone() for result in method.execute(args)] for args in inputs]


def eager(model: Any, *inputs: tuple) -> list[list[Any]]:
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        results = [model(*args) for args in inputs]
    return [
        [item.clone() for item in (result if isinstance(result, tuple) else (result,))]
        for result in results
    ]


def assert_same(found: list[list[Any]], expected: list[list[Any]], limit: float) -> None:
    for a, b in zip(found, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            assert (x - y).abs().max().item() <= limit * max(1.0, y.abs().max().item())


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Return the list of the packings that are made."""
    made: list[Any] = []
    original = banks.pack

    def spy(*args: Any, **options: Any) -> Any:
        made.append(original(*args, **options))
        return made[-1]

    monkeypatch.setattr(banks, "pack", spy)
    return made


# -- networks ------------------------------------------------------------------------


class Attention(torch.nn.Module):
    """A layer of BERT."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        scores = (q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1)
        x = self.norms[0](x + self.out((scores @ v).transpose(1, 2).reshape(x.shape)))
        return self.norms[1](x + self.down(torch.nn.functional.gelu(self.up(x))))


class Bert(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(100, 64)
        self.layers = torch.nn.Sequential(*(Attention() for _ in range(3)))

    def forward(self, tokens: Any) -> Any:
        return self.layers(self.embed(tokens))


class ShiftedWindows(torch.nn.Module):
    """A block of Swin: attention inside windows that are shifted."""

    def __init__(self, width: int, shift: int) -> None:
        super().__init__()
        self.shift, self.inner = shift, Attention(width)

    def forward(self, x: Any) -> Any:
        batch, height, _, width = x.shape
        n = height // 4
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        windows = x.reshape(batch, n, 4, n, 4, width).transpose(2, 3).reshape(-1, 16, width)
        x = self.inner(windows).reshape(batch, n, n, 4, 4, width).transpose(2, 3)
        return torch.roll(x.reshape(batch, height, height, width), (self.shift,) * 2, (1, 2))


class Swin(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 32, 4, 4)
        self.blocks = torch.nn.Sequential(ShiftedWindows(32, 0), ShiftedWindows(32, 2))
        self.merge = torch.nn.Linear(128, 64)
        self.last = torch.nn.Sequential(ShiftedWindows(64, 0), ShiftedWindows(64, 2))

    def forward(self, image: Any) -> Any:
        x = self.blocks(self.patches(image).permute(0, 2, 3, 1))
        corners = [x[:, i::2, j::2] for j in range(2) for i in range(2)]
        return self.last(self.merge(torch.cat(corners, -1)))


class ConvNext(torch.nn.Module):
    class Block(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.depth = torch.nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = torch.nn.LayerNorm(width)
            self.up = torch.nn.Linear(width, 4 * width)
            self.down = torch.nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.depth(x).permute(0, 2, 3, 1))
            y = self.down(torch.nn.functional.gelu(self.up(y)))
            return x + y.permute(0, 3, 1, 2)

    def __init__(self) -> None:
        super().__init__()
        stages: list[Any] = [torch.nn.Conv2d(3, 16, 4, 4)]
        for width in (16, 32):
            stages += [self.Block(width), self.Block(width)]
            stages.append(torch.nn.Conv2d(width, 2 * width, 2, 2))
        self.stages = torch.nn.Sequential(*stages)

    def forward(self, image: Any) -> Any:
        return self.stages(image).mean((2, 3))


class Darts(torch.nn.Module):
    class Cell(torch.nn.Module):
        """Each of four states is the sum of two operations on earlier ones."""

        edges = (0, 1, 0, 1, 1, 0, 0, 2)

        def __init__(self, before: int, last: int, width: int) -> None:
            super().__init__()
            self.pre = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Conv2d(n, width, 1, bias=False))
                for n in (before, last)
            )
            self.ops = torch.nn.ModuleList(
                torch.nn.Sequential(
                    torch.nn.ReLU(),
                    torch.nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
                    torch.nn.BatchNorm2d(width),
                )
                for _ in self.edges
            )

        def forward(self, before: Any, last: Any) -> Any:
            states = [self.pre[0](before), self.pre[1](last)]
            edges = iter(zip(self.ops, self.edges, strict=True))
            for (f, a), (g, b) in zip(edges, edges, strict=True):
                states.append(f(states[a]) + g(states[b]))
            return torch.cat(states[2:], 1)

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 24, 3, 2, 1)
        widths = [24, 24, 32, 32, 32]
        pairs = pairwise(widths)
        self.cells = torch.nn.ModuleList(self.Cell(a, b, 8) for a, b in pairs)

    def forward(self, image: Any) -> Any:
        before = last = self.stem(image)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return last.mean((2, 3))


NETWORKS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "bert": (Bert, lambda: torch.randint(0, 100, (1, 32))),
    "swin": (Swin, lambda: torch.randn(1, 3, 64, 64)),
    "convnext": (ConvNext, lambda: torch.randn(1, 3, 64, 64)),
    "darts": (Darts, lambda: torch.randn(1, 3, 32, 32)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_planned_to_the_bound_and_compute_the_same(
    name: str, packings: list[Any]
) -> None:
    torch.manual_seed(0)
    make, make_input = NETWORKS[name]
    model, inputs = make(), (make_input(),)
    theirs = lower(model, inputs)
    planned = lower(model, inputs, ours.memory_planning_pass())
    (packing,) = packings
    assert (packing.status, arenas(planned)) == ("optimal", [0, packing.lower_bound])
    assert sum(arenas(planned)) <= sum(arenas(theirs))
    assert_same(run(planned, inputs), run(theirs, inputs), 0.0)
    assert_same(run(planned, inputs), eager(model, inputs), 1e-6)


def test_equal_models_give_equal_programs() -> None:
    inputs = (torch.randn(1, 3, 64, 64),)
    torch.manual_seed(0)
    model = Swin()
    first, second = (
        lower(copy.deepcopy(model), inputs, ours.memory_planning_pass()).buffer for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("alignment", [16, 64, 4096])
def test_every_offset_is_aligned(alignment: int) -> None:
    inputs = (torch.randn(1, 3, 32, 32),)
    program = lower(Darts(), inputs, ours.memory_planning_pass(alignment))
    values = program.executorch_program.execution_plan[0].values
    places = [value.val.allocation_info for value in values if hasattr(value.val, "sizes")]
    offsets = [place.memory_offset_low for place in places if place is not None]
    assert len(offsets) > 20
    assert all(offset % alignment == 0 for offset in offsets)


class Cache(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(4, 16))

    def forward(self, x: Any) -> Any:
        self.sum.add_(x)
        return (self.sum * 2).relu() - x, self.sum.sum(1)


def test_mutable_buffers_keep_their_bytes_between_runs() -> None:
    inputs = [(torch.randn(4, 16),) for _ in range(3)]
    for options in ({}, {"share_mutable_buffers": True}, {"alloc_graph_input": False}):
        program = lower(Cache(), inputs[0], ours.memory_planning_pass(**options))
        assert_same(run(program, *inputs), eager(Cache(), *inputs), 1e-6)


class Branches(torch.nn.Module):
    """The first result is needed after the second node of control flow has run."""

    def forward(self, x: Any) -> Any:
        def one(a: Any) -> Any:
            return (a.sin() + a.cos()) * a.exp()

        def other(a: Any) -> Any:
            return a - 3

        y = x * 2
        first = torch.cond(x.sum() > 0, one, other, (y,))
        second = torch.cond(x.sum() > 1, other, one, (y,))
        third = torch.cond(x.sum() > 2, one, other, (second,))
        return first - second, third


class Nested(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        def inner(a: Any) -> Any:
            first = torch.cond(a.sum() > 0, lambda b: b.sin() + 1, lambda b: b.cos() - 2, (a,))
            second = torch.cond(a.sum() > 9, lambda b: b.cos() - 1, lambda b: b.sin() * 3, (a,))
            return first * second

        first = torch.cond(x.max() > 0, inner, lambda a: a.exp(), (x,))
        return first - torch.cond(x.min() > 0, lambda a: a.exp(), inner, (first,))


class Scan(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        from torch._higher_order_ops.scan import scan

        return scan(lambda carry, row: ((carry + row).sin(), (carry * row).cos()), x[0] * 2, x)


@pytest.mark.parametrize("model", [Branches(), Nested(), Scan()])
def test_results_of_control_flow_outlive_the_graphs_of_others(model: Any) -> None:
    x = torch.rand(4, 16)
    inputs = [(x,), (-x,), (x / 1e4,)]
    program = lower(model, inputs[0], ours.memory_planning_pass())
    assert_same(run(program, *inputs), eager(model, *inputs), 1e-6)


def test_their_verifier_agrees() -> None:
    examples = [(Darts(), 1, 3, 32, 32), (Cache(), 4, 16), (Branches(), 4, 16)]
    for model, *shape in examples:
        program = lower(model, (torch.randn(shape),), ours.memory_planning_pass())
        exported = program.exported_program()
        verifier = planning.Verifier(
            exported.graph_module, True, True, True, exported.graph_signature
        )
        assert verifier.verify_storage_reuse() > 0
        verifier.verify_graph_input_output()


def test_branches_of_one_node_share_their_bytes() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos() - 3, (x,))

    inputs = [(torch.ones(64, 64),), (-torch.ones(64, 64),)]
    program = lower(Branch(), inputs[0], ours.memory_planning_pass())
    assert arenas(program) == arenas(lower(Branch(), inputs[0]))
    assert_same(run(program, *inputs), eager(Branch(), *inputs), 1e-6)


def test_dynamic_shapes_are_planned_for_their_bounds() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    inputs = [(torch.randn(n, 3, 32, 32),) for n in (4, 8, 1)]
    model = Darts()
    program = lower(model, inputs[0], ours.memory_planning_pass(), dynamic_shapes=({0: batch},))
    assert_same(run(program, *inputs), eager(model, *inputs), 1e-6)


def test_delegates_get_the_padding_that_they_read() -> None:
    partitioner = pytest.importorskip(
        "executorch.backends.xnnpack.partition.xnnpack_partitioner"
    ).XnnpackPartitioner()
    model, inputs = Darts().eval(), (torch.randn(1, 3, 32, 32),)
    sizes = []
    for plan in (ours.memory_planning_pass(), passes.MemoryPlanningPass()):
        exported = torch.export.export(model, inputs)
        program = exir.to_edge_transform_and_lower(
            exported, partitioner=[partitioner]
        ).to_executorch(exir.ExecutorchBackendConfig(memory_planning_pass=plan))
        sizes.append(sum(arenas(program)))
        assert_same(run(program, inputs), eager(model, inputs), 1e-5)
    assert sizes[0] <= sizes[1]
    assert sizes[0] % 16 == 0


# -- banks ---------------------------------------------------------------------------


def test_banks_are_filled_and_not_overfilled() -> None:
    model, inputs = Darts(), (torch.randn(1, 3, 32, 32),)
    banks = [ours.Bank("sram", 32 << 10, 1), ours.Bank("psram", 1 << 20, 2, alignment=64)]
    program = lower(model, inputs, ours.memory_planning_pass(banks=banks))
    _, fast, slow = arenas(program)
    assert 24 << 10 < fast <= 32 << 10
    assert 0 < slow <= 1 << 20
    assert_same(run(program, inputs), eager(model, inputs), 1e-6)


def test_banks_that_are_too_small_fail_the_export() -> None:
    inputs = (torch.randn(1, 3, 32, 32),)
    with pytest.raises(errors.CapacityExceeded, match=r"fits? none|needed at once"):
        lower(Darts(), inputs, ours.memory_planning_pass(banks=[ours.Bank("sram", 4096, 1)]))
    with pytest.raises(errors.InvalidOption, match="option share_mutable_buffers"):
        ours.memory_planning_pass(banks=[ours.Bank("sram", 4096, 1)], share_mutable_buffers=True)


def test_the_first_bank_holds_more_traffic_than_with_their_planner() -> None:
    banked = pytest.importorskip("executorch.exir.banked_memory_planning")
    inputs = (torch.randn(1, 3, 32, 32),)
    capacities = (48 << 10, 1 << 20)
    target = banked.TargetMemoryMap(
        [banked.Bank(f"b{i}", size, i) for i, size in enumerate(capacities, 1)]
    )
    mine = [ours.Bank(f"b{i}", size, i) for i, size in enumerate(capacities, 1)]
    moved = []
    for plan in (banked.banked_memory_planning_pass(target), ours.memory_planning_pass(banks=mine)):
        graph = lower(Darts(), inputs, plan).exported_program().graph_module
        uses = ours._uses(graph)
        specs = {id(spec): spec for node in graph.graph.nodes for spec in ours._specs_of(node)}
        moved.append(sum(s.nbytes() * uses[i] for i, s in specs.items() if s.mem_id == 2))
    assert moved[1] < moved[0]


# -- the algorithm by itself ---------------------------------------------------------


def spec(size: int, first: int, last: int, **fields: Any) -> Any:
    from executorch.exir.tensor import TensorSpec

    made = TensorSpec(torch.uint8, torch.Size([size]))
    made.lifetime = [first, last]
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def place(*specs: Any, inner: list[int] | None = None, padding: int = 0) -> Any:
    module = torch.fx.GraphModule({}, torch.fx.Graph())
    if inner is not None:
        module.input_mem_buffer_sizes = inner
    return ours.algorithm(16, list(specs), module, None, padding)


def test_lifetimes_include_their_last_step() -> None:
    a, b, c = spec(32, 0, 1), spec(32, 1, 2), spec(32, 2, 3)
    result = place(a, b, c)
    offsets = [result.spec_dict[s].mem_offset for s in (a, b, c)]
    assert result.bufsizes == [0, 64]
    assert offsets[0] == offsets[2] != offsets[1]


def test_arenas_that_were_chosen_before_are_kept() -> None:
    a, b = spec(32, 0, 9), spec(48, 0, 9, mem_id=3)
    result = place(a, b)
    assert [result.spec_dict[s].mem_id for s in (a, b)] == [1, 3]
    assert result.bufsizes == [0, 32, 0, 48]
    assert (
        planning.greedy(16, [a, b], torch.fx.GraphModule({}, torch.fx.Graph()), None).bufsizes
        == result.bufsizes
    )


def test_what_is_inside_another_is_placed_with_it() -> None:
    filler, base = spec(64, 0, 9), spec(100, 0, 9)
    middle = spec(64, 1, 5, storage_base=base, storage_base_offset=32)
    inner = spec(16, 2, 4, storage_base=middle, storage_base_offset=16)
    result = place(inner, middle, base, filler)
    start = result.spec_dict[base].mem_offset
    assert result.spec_dict[middle].mem_offset == start + 32
    assert result.spec_dict[inner].mem_offset == start + 48
    assert len(result.spec_dict) == 4
    objects = {s: result.spec_dict[s].mem_obj_id for s in (base, middle, inner, filler)}
    assert objects[base] == objects[middle] == objects[inner] != objects[filler]


def test_graphs_of_control_flow_and_padding_get_their_room() -> None:
    a = spec(32, 0, 1)
    result = place(a, inner=[0, 100], padding=64)
    assert result.spec_dict[a].mem_offset == 112
    assert result.bufsizes == [0, 112 + 32 + 64]


def test_specs_that_contradict_each_other_are_refused() -> None:
    base = spec(32, 0, 9)
    for wrong in (
        spec(32, 0, 9, storage_base=base, storage_base_offset=16),
        spec(8, 0, 9, storage_base=base, storage_base_offset=8),
        spec(8, 0, 9, storage_base=spec(32, 0, 9)),
    ):
        with pytest.raises(errors.GraphError):
            place(base, wrong)
    circle = spec(8, 0, 9)
    circle.storage_base = circle
    with pytest.raises(errors.GraphError, match="circle"):
        place(circle)
    with raises("InvalidLiveRange"):
        place(spec(8, 3, 2))
    with pytest.raises(errors.InvalidOption, match="arena 0"):
        place(spec(8, 0, 2, mem_id=0))
