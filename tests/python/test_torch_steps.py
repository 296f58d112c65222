"""Training steps of PyTorch: plain and recomputed inside their arenas, against its optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import arenaplan as ap
from arenaplan.base import errors
from torch_arena import InArena

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]
nn, F = torch.nn, torch.nn.functional


class Case(NamedTuple):
    """A network, its loss, and its optimizer in both forms."""

    net: Any
    loss: Callable[..., Any]
    batch: Callable[[], tuple[Any, ...]]
    optimizer: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], None]
    """From a parameter, its state and its gradient; writes in place."""
    states: tuple[str, ...]
    """Names of the optimizer's tensors, one of each per parameter."""
    part: float
    """Part of the bytes beside states that repetitions suffice for."""


class Gated(nn.Module):
    """An inverted bottleneck with a depthwise convolution and a squeezed gate."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Sequential(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner))
        self.deep = nn.Sequential(
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False), nn.BatchNorm2d(inner)
        )
        self.gate = nn.Sequential(nn.Linear(inner, 4), nn.SiLU(), nn.Linear(4, inner))
        self.down = nn.Conv2d(inner, width, 1)

    def forward(self, x: Any) -> Any:
        h = F.hardswish(self.deep(F.silu(self.up(x))))
        return x + self.down(h * torch.sigmoid(self.gate(h.mean((2, 3))))[:, :, None, None])


class Classifier(nn.Sequential):
    def __init__(self) -> None:
        blocks = [Gated(8, 16) for _ in range(3)]
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
        super().__init__(nn.Conv2d(3, 8, 3, 2, 1), *blocks, nn.MaxPool2d(2), *head)


class Language(nn.Module):
    """A causal transformer whose table of words is read at both ends."""

    def __init__(self, words: int = 40, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(16, width) / 10)
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places
        rows, length, width = x.shape
        for at, (mix, out, wide) in enumerate(zip(self.mix, self.out, self.wide, strict=True)):
            q, k, v = (
                part.view(rows, length, 4, width // 4).transpose(1, 2)
                for part in mix(self.norms[2 * at](x)).chunk(3, -1)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(mixed.transpose(1, 2).reshape(rows, length, width))
            x = x + wide(self.norms[2 * at + 1](x))
        return x @ self.words.weight.t()


class Segments(nn.Module):
    """Encoder and decoder with joins, learned and bilinear upsampling."""

    def __init__(self) -> None:
        super().__init__()
        widths = (4, 8, 16)
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(n, 2 * n, 3, 2, 1) for n in widths[:2])
        self.norms = nn.ModuleList(nn.GroupNorm(2, 2 * n) for n in widths[:2])
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.join = nn.ModuleList([nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(12, 4, 3, padding=1)])
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        kept = [F.leaky_relu(self.first(x))]
        for down, norm in zip(self.down, self.norms, strict=True):
            kept.append(F.elu(norm(down(kept[-1]))))
        x = F.relu(self.join[0](torch.cat([self.up(kept[2]), kept[1]], 1)))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.tanh(self.join[1](torch.cat([x, kept[0]], 1))))


class Series(nn.Module):
    """A recurrent network in both directions, with two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(6, 12, 2, batch_first=True, bidirectional=True)
        self.next, self.kind = nn.Linear(24, 6), nn.Linear(24, 3)

    def forward(self, x: Any) -> Any:
        h, _ = self.cells(x)
        return self.next(h), self.kind(h[:, -1])


def momentum(p: Any, s: Any, g: Any) -> None:
    s["momentum_buffer"].mul_(0.9).add_(g)
    p.sub_(0.05 * s["momentum_buffer"])


def adamw(p: Any, s: Any, g: Any) -> None:
    s["step"].add_(1)
    p.mul_(1 - 1e-3 * 0.1)
    s["exp_avg"].lerp_(g, 0.1)
    s["exp_avg_sq"].mul_(0.999).addcmul_(g, g, value=0.001)
    first, second = (1 - rate ** s["step"] for rate in (0.9, 0.999))
    p.sub_(1e-3 * (s["exp_avg"] / first) / ((s["exp_avg_sq"] / second).sqrt() + 1e-8))


def rmsprop(p: Any, s: Any, g: Any) -> None:
    s["square_avg"].mul_(0.99).addcmul_(g, g, value=0.01)
    p.sub_(0.01 * g / (s["square_avg"].sqrt() + 1e-8))


def adagrad(p: Any, s: Any, g: Any) -> None:
    s["step"].add_(1)
    s["sum"].addcmul_(g, g)
    p.sub_(0.01 * g / (s["sum"].sqrt() + 1e-10))


def classifier() -> Case:
    return Case(
        Classifier(), lambda net, x, y: F.cross_entropy(net(x), y, label_smoothing=0.1),
        lambda: (torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))),
        lambda p: torch.optim.SGD(p, 0.05, 0.9), momentum, ("momentum_buffer",), 0.7,
    )  # fmt: skip


def language() -> Case:
    def loss(net: Any, tokens: Any) -> Any:
        return F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return Case(
        Language(), loss, lambda: (torch.randint(0, 40, (8, 17)),),
        lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1), adamw,
        ("step", "exp_avg", "exp_avg_sq"), 0.7,
    )  # fmt: skip


def segments() -> Case:
    def loss(net: Any, x: Any, y: Any) -> Any:
        made = net(x)
        return F.l1_loss(made, y) + F.mse_loss(made, y)

    return Case(
        Segments(), loss, lambda: (torch.randn(2, 2, 16, 16), torch.randn(2, 2, 16, 16)),
        lambda p: torch.optim.RMSprop(p, 0.01), rmsprop, ("square_avg",), 0.75,
    )  # fmt: skip


def series() -> Case:
    def loss(net: Any, x: Any, y: Any) -> Any:
        following, kind = net(x[:, :-1])
        return F.smooth_l1_loss(following, x[:, 1:]) + 0.5 * F.cross_entropy(kind, y)

    return Case(
        Series(), loss, lambda: (torch.randn(5, 9, 6), torch.randint(0, 3, (5,))),
        lambda p: torch.optim.Adagrad(p, 0.01), adagrad, ("step", "sum"), 0.92,
    )  # fmt: skip


CASES = {make.__name__: make for make in (classifier, language, segments, series)}


class Whole:
    """A step as a function over trees, and the same training by PyTorch's optimizer."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.p = {name: p.detach().clone() for name, p in case.net.named_parameters()}
        self.b = {name: b.detach().clone() for name, b in case.net.named_buffers()}
        self.s = {
            name: {
                kind: torch.zeros(()) if kind == "step" else torch.zeros_like(p)
                for kind in case.states
            }
            for name, p in self.p.items()
        }

    def step(self, p: Any, b: Any, s: Any, *batch: Any) -> Any:
        live = {name: value.detach().requires_grad_() for name, value in p.items()}
        net = lambda *args: torch.func.functional_call(self.case.net, (live, b), args)  # noqa: E731
        loss = self.case.loss(net, *batch)
        grads = torch.autograd.grad(loss, list(live.values()))
        for (name, value), grad in zip(p.items(), grads, strict=True):
            self.case.update(value, s[name], grad)
        return loss.detach()

    def args(self, *batch: Any) -> tuple[Any, ...]:
        return (self.p, self.b, self.s, *batch)


@pytest.mark.parametrize("name", CASES)
def test_steps_in_arenas_train_as_torch_does(name: str) -> None:
    """Losses, parameters, statistics and states of the optimizer, over three steps."""
    torch.manual_seed(7)
    case = CASES[name]()
    whole = Whole(case)
    batches = [case.batch() for _ in range(3)]
    args = whole.args(*batches[0])
    plain = InArena(whole.step, args)
    inside = sum(plain.plan.placements[plain.named[state]].bytes for state in plain.states)
    budget = inside + int((plain.plan.arena_bytes - inside) * case.part)
    again = InArena(whole.step, args, recompute=budget)
    assert plain.plan.schedule is None
    assert again.plan.arena_bytes <= budget
    assert 0 < again.plan.extra_cost < 1
    assert len(plain.states) == len(torch.utils._pytree.tree_leaves(args[:3]))
    optimizer = case.optimizer(case.net.parameters())
    for batch in batches:
        optimizer.zero_grad()
        expected = case.loss(case.net, *batch)
        expected.backward()
        optimizer.step()
        (first,), (second,) = plain.run(*batch), again.run(*batch)
        torch.testing.assert_close(first, expected.detach(), rtol=1e-5, atol=1e-5)
        assert torch.equal(first, second)
    trained = dict(case.net.named_parameters()), dict(case.net.named_buffers())
    kept = {key: dict(optimizer.state[p]) for key, p in trained[0].items()}
    kept = {key: {kind: state[kind] for kind in case.states} for key, state in kept.items()}
    names = plain.inputs[: len(plain.states)]
    for state, tensor in zip(names, plain.tensors((*trained, kept)), strict=True):
        torch.testing.assert_close(plain.content(state), tensor, rtol=1e-5, atol=1e-5)
        assert torch.equal(plain.content(state), again.content(state))


# -- what a step donates --------------------------------------------------------------------------


P = torch.full((64, 64), 0.5)
X = torch.ones(8, 64)


def descend(p: Any, x: Any) -> Any:
    """Return the new parameter and the loss."""
    grad, loss = torch.func.grad_and_value(lambda p: ((x @ p) ** 2).mean())(p)
    return p - 0.1 * grad, loss


def states_of(graph: ap.Graph) -> list[str]:
    return [graph.values[into].name for _, into in graph.write_backs]


def test_arguments_that_a_step_writes_to_are_states() -> None:
    def step(p: Any, x: Any) -> Any:
        new, loss = descend(p, x)
        p.copy_(new)
        return loss

    written = ap.from_train_step(step, (P, X))
    returned = ap.from_train_step(descend, (P, X), donate=(0,))
    assert states_of(written) == states_of(returned) == ["arg0_1"]
    assert ap.plan(written).arena_bytes == ap.plan(returned).arena_bytes
    assert len(written.outputs) == 1
    assert len(returned.outputs) == 2


def test_results_are_found_by_tree_and_type() -> None:
    def step(p: Any, x: Any) -> Any:
        new, loss = descend(p["w"], x)
        return loss, {"b": p["b"] + 1, "w": new}

    p = {"w": P, "b": torch.zeros(3)}
    for donate in ((0,), {0: 1}):
        graph = ap.from_train_step(step, (p, X), donate=donate)
        assert len(graph.write_backs) == 2
        ap.plan(graph).check(graph)
    with pytest.raises(ValueError, match="result 0 has not the structure"):
        ap.from_train_step(step, (p, X), donate={0: 0})
    with pytest.raises(IndexError, match="no argument 5"):
        ap.from_train_step(step, (p, X), donate=(5,))
    graph = ap.from_train_step(step, (p, X), donate=(0, 1))
    assert graph.warnings == [
        "no result replaces the donated argument 'arg2_1': it is an input like others"
    ]


def swapped(p: Any, q: Any, x: Any) -> Any:
    """Two states take each other's content, so one of them is copied first."""
    return q.clone(), p.clone(), (x @ p + x @ q).sum()


def old_average(p: Any, average: Any, x: Any) -> Any:
    """The average reads the parameter as it was, and a loss of the new one."""
    new, loss = descend(p, x)
    return new, 0.9 * average + 0.1 * p, loss + (x @ new * (x @ p)).sum()


def given_back(p: Any, q: Any, x: Any) -> Any:
    """One result is two new contents, and one content stays."""
    new, loss = descend(p, x)
    return new, new, loss


def exchanged(p: Any, q: Any, x: Any) -> Any:
    """Each content is the other state's new content."""
    return q, p, (x @ p + x @ q).sum()


def returned(p: Any, q: Any, x: Any) -> Any:
    """The old contents are results, too."""
    new, loss = descend(p, x)
    return new, 2 * q, loss, p, q


@pytest.mark.parametrize("step", [swapped, old_average, given_back])
def test_contents_that_are_needed_later_are_copied(step: Any) -> None:
    torch.manual_seed(1)
    p, q = torch.randn(64, 64), torch.randn(64, 64)
    inside = InArena(step, (p, q, X), donate=(0, 1))
    assert len(inside.graph.write_backs) == 2
    for _ in range(2):
        expected = step(p, q, X)
        for found, wanted in zip(inside.run(X), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        p, q, _ = expected
        torch.testing.assert_close(inside.content("arg0_1"), p, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(inside.content("arg1_1"), q, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", [exchanged, returned])
def test_old_contents_that_are_results_are_copied(step: Any) -> None:
    torch.manual_seed(1)
    p, q = torch.randn(64, 64), torch.randn(64, 64)
    inside = InArena(step, (p, q, X), donate=(0, 1))
    assert {inside.graph.values[value].kind for value in inside.graph.outputs} == {"activation"}
    for _ in range(2):
        inside.run(X)
        p, q, *_ = step(p, q, X)
        torch.testing.assert_close(inside.content("arg0_1"), p, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(inside.content("arg1_1"), q, rtol=1e-5, atol=1e-5)


def test_hidden_writes_are_refused() -> None:
    """A repetition of such a node would update the statistics twice."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x: Any, mean: Any, var: Any) -> Any:
        return F.batch_norm(x, mean, var, training=True)

    args = (torch.randn(4, 3), torch.zeros(3), torch.ones(3))
    with pytest.raises(errors.UnsupportedOp, match=r"native_batch_norm.*functionalize"):
        ap.formats.from_joint_graph(make_fx(step, tracing_mode="fake")(*args))
    graph = ap.from_train_step(step, args)
    assert sorted(states_of(graph)) == ["arg1_1", "arg2_1"]


def test_only_attention_that_leaves_out_elements_is_random() -> None:
    def attention(part: float) -> Any:
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=part)

    qkv = [torch.randn(1, 2, 8, 4)] * 3
    (node,) = (
        node for node in ap.from_train_step(attention(0.0), qkv).nodes if "attention" in node.op
    )
    assert node.effects.pure
    assert node.cost >= 2 * 2 * (2 * 8 * 4) * 8
    assert not all(node.effects.pure for node in ap.from_train_step(attention(0.5), qkv).nodes)


def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(TypeError, match="'int' is not a function"):
        ap.from_train_step(3, (P,))
