"""Schedules that PyTorch runs: gradients, bytes, and what may not run twice."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

import arenaplan as ap
from arenaplan.integrations import torch as apt
from raising import raises

torch = pytest.importorskip("torch")
from live_tensors import CountedStep, aot_autograd, boxed_nop  # noqa: E402
from test_torch_steps import CASES, Case  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]
nn, F = torch.nn, torch.nn.functional


def perceptron() -> Case:
    layers = [each for _ in range(6) for each in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.2))]
    return _case(nn.Sequential(*layers), lambda: (torch.randn(256, 32), torch.randn(256, 32)))


def residual() -> Case:
    return _case(Residual(), lambda: (torch.randn(4, 3, 16, 16), torch.randn(4, 8)))


def attentive() -> Case:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    net = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return _case(net, lambda: (torch.randn(8, 12, 32), torch.randn(8, 12, 32)))


def pooled() -> Case:
    """The gradient of pooling is copied into a tensor whose order of dimensions was changed."""
    blocks = [each for _ in range(4) for each in (Channels(8), nn.Conv2d(8, 8, 3, padding=1))]
    net = nn.Sequential(*blocks, Channels(8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return _case(net, lambda: (torch.randn(4, 8, 16, 16), torch.randn(4, 8)))


def _case(net: Any, batch: Any) -> Case:
    # ``mse_loss`` of PyTorch would keep the bytes of all differences in those of the loss.
    loss = lambda net, x, y: (net(x) - y).square().mean()  # noqa: E731
    return Case(net, loss, batch, None, None, (), 0)  # type: ignore[arg-type]


class Residual(nn.Module):
    """Blocks with batch normalization, whose statistics the forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))

    def forward(self, x: Any) -> Any:
        x = F.relu(self.first(x))
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(x + norm(conv(x)))
        return x.mean((2, 3))


class Channels(nn.Module):
    """Normalization over channels, which are the last dimension in memory afterwards."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        return F.gelu(self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


# PyTorch's compiler takes no recurrent networks.
MODELS = {
    **{name: make for name, make in CASES.items() if name != "series"},
    **{make.__name__: make for make in (perceptron, residual, attentive, pooled)},
}


def made(name: str) -> tuple[Case, tuple[Any, ...]]:
    torch.manual_seed(5)
    case = MODELS[name]()
    return case, case.batch()


def buffers(net: Any) -> dict[str, Any]:
    return {name: buffer.clone() for name, buffer in net.named_buffers()}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    """Bit-equal to the same compiler without a schedule; statistics and random numbers, too."""
    case, batch = made(name)
    twin = copy.deepcopy(case.net)
    plain = CountedStep(twin, case.loss)
    expected = plain(*batch)
    cut = apt.partitioner("40%")
    step = CountedStep(case.net, case.loss, partition_fn=cut)
    found = step(*batch)
    (report,) = cut.reports
    assert report.repetitions > 0
    assert 0 <= report.bound <= report.extra_work <= 0.4
    assert report.predicted_bytes < report.plain_bytes
    assert found[2] < expected[2]
    assert torch.equal(found[0], expected[0])
    for key, grad in expected[1].items():
        assert torch.equal(found[1][key], grad), key
    for key, buffer in buffers(twin).items():
        assert torch.equal(buffers(case.net)[key], buffer), key


@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_those_of_the_report_and_fall_with_the_budget(name: str) -> None:
    case, batch = made(name)
    first = apt.partitioner("1000%")
    CountedStep(case.net, case.loss, partition_fn=first)(*batch)
    most, least = first.reports[0].plain_bytes, first.reports[0].predicted_bytes
    budgets = [most * tenth // 10 for tenth in range(10, 0, -1) if most * tenth // 10 >= least]
    measured = []
    for budget in budgets:
        cut = apt.partitioner(budget)
        measured.append(CountedStep(case.net, case.loss, partition_fn=cut)(*batch)[2])
        assert cut.reports[0].predicted_bytes <= budget
        assert measured[-1] <= 1.05 * cut.reports[0].predicted_bytes + 4096
    assert len(measured) > 2
    assert measured == sorted(measured, reverse=True)


def _kinds(error: BaseException | None) -> list[str]:
    """Return the kinds of an error and of its causes."""
    found = []
    while error is not None:
        found.append(getattr(error, "kind", type(error).__name__))
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
    return found


def test_random_numbers_are_drawn_once_and_in_order() -> None:
    case, batch = made("attentive")
    graphs: list[Any] = []
    cut = apt.partitioner("60%")

    def kept(*args: Any, **options: Any) -> Any:
        graphs.extend((args[0], *cut(*args, **options)))
        return tuple(graphs[1:])

    CountedStep(case.net, case.loss, partition_fn=kept)(*batch)
    joint, forward, backward = (
        [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        for graph in graphs
    )
    drawn = [target for target in joint if "dropout.default" in target]
    assert len(drawn) > 6
    assert [target for target in forward if target in drawn] == drawn
    assert not set(drawn) & set(backward)
    # A result of dropout is made again from the mask, in the forward pass's arithmetic.
    remade = "aten.native_dropout_backward.default"
    assert backward.count(remade) > joint.count(remade)
    repeated = Counter(forward) + Counter(backward) - Counter(joint)
    assert repeated.total() >= cut.reports[0].repetitions


def test_batch_normalization_runs_again_without_statistics() -> None:
    """PyTorch refuses to save the statistics, since the forward pass changes them."""
    case, batch = made("classifier")
    twin = copy.deepcopy(case.net)
    plain = CountedStep(twin, case.loss)
    cut, graphs = apt.partitioner("1000%"), []

    def kept(*args: Any, **options: Any) -> Any:
        graphs.extend(cut(*args, **options))
        return tuple(graphs)

    step = CountedStep(case.net, case.loss, partition_fn=kept)
    for _ in range(2):
        expected, found = plain(*batch), step(*batch)
        for key, grad in expected[1].items():
            assert torch.equal(found[1][key], grad), key
    again = [str(node.target) for node in graphs[1].graph.nodes]
    assert "aten._native_batch_norm_legit.no_stats" in again
    for key, buffer in buffers(twin).items():
        assert torch.equal(buffers(case.net)[key], buffer), key


@pytest.mark.parametrize("name", ["language", "attentive"])
def test_a_value_may_run_more_than_twice(name: str) -> None:
    case, batch = made(name)
    expected = CountedStep(case.net, case.loss)(*batch)
    cut = apt.partitioner("1000%")
    found = CountedStep(case.net, case.loss, partition_fn=cut)(*batch)
    (report,) = cut.reports
    assert report.most_runs > 2
    assert f"more than {report.most_runs} times" in str(report)
    assert report.saved_bytes < report.predicted_bytes < 0.6 * report.plain_bytes
    assert found[2] <= 1.05 * report.predicted_bytes + 4096
    for key, grad in expected[1].items():
        assert torch.equal(found[1][key], grad), key


def test_inputs_that_a_step_changes_are_read_before() -> None:
    """The old content of an input is gone when the backward pass begins."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.full((128, 64), 2.0))
            self.mix = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: Any) -> Any:
            weights = torch.sigmoid(torch.exp(self.scale))
            for mix in self.mix:
                x = torch.sin(mix(x) * weights)
            self.scale.add_(1)
            return x

    torch.manual_seed(3)
    net, x = Counting(), torch.randn(128, 64)
    twin = copy.deepcopy(net)
    loss = lambda net, x: net(x).square().sum()  # noqa: E731
    plain = CountedStep(twin, loss)
    scheduled = CountedStep(net, loss, partition_fn=apt.partitioner("60%"))
    for _ in range(2):
        expected, found = plain(x), scheduled(x)
        for key, grad in expected[1].items():
            assert torch.equal(found[1][key], grad), key
    assert torch.equal(net.scale, twin.scale)


def test_inductor_takes_the_partitioner() -> None:
    case, batch = made("residual")
    expected = case.loss(case.net, *batch)
    expected.backward()
    grads = {name: p.grad.clone() for name, p in case.net.named_parameters()}
    case.net.zero_grad()
    cut = apt.partitioner("30%")
    torch._dynamo.reset()
    model = torch.compile(case.net, options={"custom_partitioner_fn": cut})
    with torch._inductor.config.patch(force_disable_caches=True):
        found = case.loss(model, *batch)
        found.backward()
    assert cut.reports[0].repetitions > 0
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for name, p in case.net.named_parameters():
        torch.testing.assert_close(p.grad, grads[name], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_met_or_read_is_refused() -> None:
    for wrong in ("much", "-5%", "5 %%"):
        with raises(("InvalidOption", ap.errors.SizeError)):
            apt.partitioner(wrong)
    case, batch = made("perceptron")
    with pytest.raises(Exception, match="bytes") as caught:
        CountedStep(case.net, case.loss, partition_fn=apt.partitioner(64))(*batch)
    assert "RecomputeExceeded" in _kinds(caught.value)
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=boxed_nop, partition_fn=apt.partitioner("20%"))
    model = torch.compile(case.net, backend=backend, dynamic=True)
    with pytest.raises(Exception, match="dynamic=False") as caught:
        model(batch[0])
    assert "UnboundDim" in _kinds(caught.value)
