"""``fit``: smaller arenas, equal outputs, honest refusals."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flat
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.deploy.export.flat import Numbers, Old, copied, written_before
from arenaplan.deploy.export.rewritten_file import with_metadata
from arenaplan.deploy.export.tflm import plan_in_best_order
from arenaplan.deploy.fitting import Fit, FitOptions, fit, fits, rewritten
from arenaplan.tflite.proving import replay_plan
from arenaplan.tflite.reader.flatbuffer import FlatBuffer
from arenaplan.tflite.reader.offline import METADATA_NAME, read_offsets
from arenaplan.tflite.reader.schema import IDENTIFIER, ModelField, SubgraphField
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.reader.tflite_rows import program_of
from arenaplan.tflite.rewrite.place import Placed, place
from arenaplan.tflite.rewrite.strip_regions import SplitRegion
from arenaplan.tflite.runtime import total
from c_networks import random_net
from raising import raises
from strip_models import VALID, Network, evaluate, image, pyramid, random_network
from tflm_models import running_sum
from tflm_oracle import tflm_or_skip

TARGETS = {
    "person_detect": (1.05, 66_800, 63_900),
    "vww_96_int8": (1.05, 71_100, 68_100),
    "pretrainedResnet_quant": (1.10, 43_300, 42_100),
}
"""Most multiply-accumulates, and bytes of the arena with pointers of 64 and 32 bits."""


def inputs_of(data: bytes, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    graph = parse(data).subgraphs[0]
    return [rng.integers(-128, 128, graph.tensors[i].shape, np.int8) for i in graph.inputs]


def assert_equal_outputs(before: bytes, after: bytes, seed: int = 0) -> None:
    """Compare the outputs of two files; the second one runs in the arena of its plan."""
    new = parse(after)
    inputs = inputs_of(before, seed)
    expected = evaluate(parse(before), inputs)
    for offsets in (None, read_offsets(new)):
        found = evaluate(new, inputs, offsets)
        assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


@pytest.fixture(scope="module")
def small() -> tuple[bytes, Fit]:
    data = pyramid()
    return data, fit(data)


def test_the_arena_is_smaller_and_the_outputs_are_equal(small: tuple[bytes, Fit]) -> None:
    data, found = small
    assert found.is_rewritten
    assert found.before.total == total(parse(data)).total
    assert found.total < 0.85 * found.before.total
    assert found.bound <= found.total
    assert found.macs <= 1.05
    assert set(found.new_operators) <= {"SLICE", "PAD", "CONCATENATION"}
    assert_equal_outputs(data, found.data)


def test_the_result_is_what_the_file_says(small: tuple[bytes, Fit]) -> None:
    _, found = small
    model = parse(found.data)
    offsets = read_offsets(model)
    assert offsets is not None
    assert replay_plan(found.data).kernels == "any"
    assert total(model, offsets) == found.after
    assert len(model.subgraphs[0].operators) == found.operators[1]


def test_equal_input_gives_equal_bytes(small: tuple[bytes, Fit]) -> None:
    data, found = small
    assert fit(data).data == found.data


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_never_need_more_and_compute_the_same(seed: int) -> None:
    data = random_network(seed)
    found = fit(data, FitOptions(max_macs=1.5, effort=200))
    assert found.total <= found.before.total
    if not found.is_rewritten:
        assert found.data == data
    else:
        assert_equal_outputs(data, found.data, seed)


def test_a_budget_is_met_by_the_fastest_rewrite(small: tuple[bytes, Fit]) -> None:
    data, best = small
    loose = fit(data, FitOptions(budget=(best.total + best.before.total) // 2))
    assert loose.fits((best.total + best.before.total) // 2)
    assert loose.latency <= best.latency
    assert_equal_outputs(data, loose.data)


def test_limits_are_kept(small: tuple[bytes, Fit]) -> None:
    data, best = small
    few = fit(data, FitOptions(max_operators=10))
    assert few.operators[1] <= 10
    assert best.total <= few.total
    free = fit(data, FitOptions(max_macs=1.0))
    assert free.macs <= 1.0


def test_32_bits_count_smaller_structures(small: tuple[bytes, Fit]) -> None:
    data, best = small
    narrow = fit(data, FitOptions(pointer=32))
    assert narrow.total < best.total
    assert narrow.before.total == total(parse(data), pointer=32).total


def test_the_frontier_trades_bytes_for_work_and_operators(small: tuple[bytes, Fit]) -> None:
    data, best = small
    points = fits(data)
    assert points[-1].regions == ()
    totals = [point.total for point in points]
    assert totals == sorted(totals)
    assert min(totals) <= 1.02 * best.total
    for a, b in pairwise(points):
        assert b.macs < a.macs or b.operators[1] < a.operators[1]


@pytest.mark.parametrize("seed", range(8))
def test_results_over_operands_need_fewer_bytes_and_compute_the_same(seed: int) -> None:
    data = random_network(seed)
    plain = fit(data, FitOptions(effort=200))
    found = fit(data, FitOptions(effort=200, overlap=True))
    assert found.total <= plain.total
    if found.is_rewritten:
        assert_equal_outputs(data, found.data, seed)


def test_given_regions_are_written(small: tuple[bytes, Fit]) -> None:
    data, _ = small
    found = rewritten(data, [SplitRegion(0, 1, (4, 8, 12))])
    assert found.regions == (SplitRegion(0, 1, (4, 8, 12)),)
    assert_equal_outputs(data, found.data)


def test_a_model_without_images_stays_as_it_is() -> None:
    tensors = [
        flat.tensor("x", (1, 64), flat.INT8),
        flat.tensor("y", (1, 64), flat.INT8),
    ]
    data = flat.write(
        flat.model(
            [flat.code("RELU")], [flat.subgraph(tensors, [flat.operator(0, [0], [1])], [0], [1])]
        )
    )
    found = fit(data)
    assert not found.is_rewritten
    assert found.data == data
    assert found.tried == 0


def stateful() -> bytes:
    """Return a network of images with a variable that a second subgraph sets to zero, once."""
    net = Network(3, (1, 32, 32, 4))
    x = net.conv(0, 16, 3, 1)
    x = net.conv(x, 16, 3, 2)
    x = net.conv(x, 16, 1)
    x = net.pool(x, "AVERAGE_POOL_2D", 16, 16, VALID)
    shape = net.shapes[x]
    variable = (111, {0: "", 1: "sum"})
    handle = net.tensor(flat.tensor("handle", (1,), flat.RESOURCE), (1,))
    before, y = net.activation(shape), net.activation(shape)
    first = len(net.codes)
    net.codes += ["CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ADD", "ASSIGN_VARIABLE"]
    operators = [
        flat.operator(first, [], [], (103, {0: flat.Number("i", 1)})),
        flat.operator(first + 1, [], [handle], variable),
        *net.operators,
        flat.operator(first + 2, [handle], [before], (112, {})),
        flat.operator(first + 3, [before, x], [y], (11, {})),
        flat.operator(first + 4, [handle, y], [], (113, {})),
    ]
    net.buffers.append(bytes(int(np.prod(shape))))
    zeros = image("zeros", shape)
    zeros[2] = flat.Number("I", len(net.buffers) - 1)
    inner = [flat.tensor("inner handle", (1,), flat.RESOURCE), zeros]
    inside = [
        flat.operator(first + 1, [], [0], variable),
        flat.operator(first + 4, [0, 1], [], (113, {})),
    ]
    graphs = [
        flat.subgraph(net.tensors, operators, [0], [y]),
        flat.subgraph(inner, inside, [], [], "start"),
    ]
    codes = [flat.code(name) for name in net.codes]
    return flat.write(flat.model(codes, graphs, net.buffers))


def test_variables_and_called_subgraphs_stay_as_they_are() -> None:
    data = stateful()
    found = fit(data)
    assert found.is_rewritten
    assert found.total < 0.9 * found.before.total
    model = parse(found.data)
    assert model.subgraphs[1] == parse(data).subgraphs[1]
    offsets = read_offsets(model)
    assert offsets is not None
    assert set(offsets[len(model.subgraphs[0].tensors) :]) == {-1}
    assert total(model, offsets) == found.after
    assert replay_plan(found.data).kernels == "any"
    names = [operator.name for operator in model.subgraphs[0].operators]
    kept = [name for name in names if name not in ("CONV_2D", "SLICE", "PAD", "CONCATENATION")]
    assert kept == [
        *("CALL_ONCE", "VAR_HANDLE", "AVERAGE_POOL_2D", "READ_VARIABLE", "ADD", "ASSIGN_VARIABLE")
    ]


def test_fitted_models_with_variables_run_in_the_interpreter() -> None:
    make = tflm_or_skip()
    from tflite_micro import runtime

    data = stateful()
    found = fit(data)
    assert found.total - 16 < smallest(runtime, found.data, 2 * found.total) <= found.total
    inputs = [inputs_of(data, seed) for seed in range(20)]
    runs = []
    for file in (data, found.data):
        interpreter = make(file)
        runs.append([interpreter.run(arrays)[0].tobytes() for arrays in inputs])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 10


def test_models_without_images_stay_as_they_are() -> None:
    found = fit(running_sum())
    assert not found.is_rewritten


def test_models_that_cannot_be_rewritten_are_refused() -> None:
    net = Network(0, (1, 8, 8, 4))
    net.operators.append(flat.operator(0, [0], [net.activation((1, 8, 8, 4))]))
    net.codes.append("CUSTOM")
    data = flat.write(
        flat.model(
            [flat.code("CUSTOM", "secret")],
            [flat.subgraph(net.tensors, net.operators, [0], [1])],
        )
    )
    with pytest.raises(errors.UnsupportedModel, match="secret"):
        fit(data)


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": -1},
        {"max_macs": 0.9},
        {"pointer": 16},
        {"max_operators": -1},
        {"kernels": "fast"},
        {"overlap": True, "kernels": "cmsis-nn"},
    ],
)
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidOption, match=next(iter(wrong))):
        FitOptions(**wrong)


# -- command ----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "net.tflite"
    file.write_bytes(pyramid())
    return file


def test_the_command_writes_a_file_and_reports(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "small.tflite"
    assert main(["fit", str(path), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert "arena" in said.out
    assert "the resolver must register" in said.out
    assert_equal_outputs(path.read_bytes(), out.read_bytes())
    assert main(["check", str(out)]) == 0
    assert "valid" in capsys.readouterr().out


def test_overlaps_are_for_reference_kernels(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "small.tflite"
    assert main(["fit", str(path), "--overlap", "-o", str(out)]) == 0
    assert_equal_outputs(path.read_bytes(), out.read_bytes())
    capsys.readouterr()
    assert main(["check", str(out)]) == 0
    assert "valid for reference kernels only" in capsys.readouterr().out
    assert main(["fit", str(path), "--overlap", "--kernels", "cmsis-nn"]) == 2


def test_json_has_the_figures(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(path), "--json", "--max-macs", "1.02", "--pointer", "32"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["total"] < document["total_before"]
    assert document["bound"] <= document["total"]
    assert document["macs"] <= 1.02
    assert document["regions"][0]["cuts"]


def test_a_budget_out_of_reach_fails_and_leaves_the_old_file(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tflite"
    out.write_bytes(b"older")
    assert main(["fit", str(path), "--budget", "1KiB", "-o", str(out)]) == 1
    said = capsys.readouterr()
    assert "smallest arena that was reached" in said.err
    assert "its floor is tensor" in said.err
    assert out.read_bytes() == b"older"
    assert main(["fit", str(path), "--budget", "1KiB", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["budget"] == 1024


def test_plans_and_shared_plans_say_what_is_left(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(path)]) == 0
    assert "strips can go below the lower bound: arenaplan fit" in capsys.readouterr().out
    assert main(["plan", str(path), "--target", "ideal"]) == 0
    assert "can need fewer bytes than this floor: arenaplan fit" in capsys.readouterr().out
    own = total(parse(path.read_bytes()))
    for together, heads in (("never-together", 1), ("concurrent", 2)):
        assert main(["plan", str(path), str(path), "--share", together, "--json"]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert (seen["head_bytes"], seen["tail_bytes"]) == (heads * own.head, 2 * own.tail)
        assert seen["total_bytes"] >= seen["head_bytes"] + seen["tail_bytes"]


def test_tensors_that_no_operator_uses_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Network(1, (1, 8, 8, 4))
    y = net.conv(0, 4)
    net.activation((1, 64, 64, 4))
    path = tmp_path / "net.tflite"
    path.write_bytes(net.file([y]))
    assert main(["export", str(path), "--to", "tflm", "-o", str(tmp_path / "out.tflite")]) == 0
    assert (
        "16,384 bytes (16.00 KiB) are of tensors that no operator uses" in capsys.readouterr().err
    )
    assert fit(path).total < total(parse(path.read_bytes())).total - 15_000


def test_a_shim_has_the_arena_of_either_width(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "shim.h"
    assert main(["export", str(path), "--to", "tflm-shim", "-o", str(out)]) == 0
    found = re.findall(r"TOTAL_BYTES INT32_C\((\d+)\)", out.read_text())
    offsets = plan_in_best_order(parse(path.read_bytes()))[1].offsets
    widths = [total(parse(path.read_bytes()), offsets, pointer=bits).total for bits in (64, 32)]
    assert list(map(int, found)) == widths


def test_pareto_lists_points(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(path), "--pareto"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 3
    assert main(["fit", str(path), "--pareto", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["points"]) >= 2


@pytest.mark.parametrize(
    "arguments", [["--pareto", "--budget", "1KiB"], ["--pareto", "-o", "x"], ["--bind", "x=1"]]
)
def test_options_that_do_not_fit_are_refused(path: Path, arguments: list[str]) -> None:
    assert main(["fit", str(path), *arguments]) == 2


@pytest.mark.parametrize("value", ["0.5", "many", "nan"])
def test_a_wrong_factor_ends_with_the_usage(path: Path, value: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["fit", str(path), "--max-macs", value])


def test_only_tflite_is_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "net.onnx"
    other.write_bytes(b"no model")
    assert main(["fit", str(other)]) == 2
    assert "not a .tflite model" in capsys.readouterr().err


# -- runtimes ---------------------------------------------------------------------------------


def cut_at(data: bytes, tensor: int) -> bytes:
    """Return a file that ends with the operator that makes a tensor, and returns it."""
    root = FlatBuffer(data).root("the model")
    main = root.tables(ModelField.SUBGRAPHS, "subgraph")[0]
    tables = main.targets(SubgraphField.OPERATORS, "operator")
    operators = parse(data).subgraphs[0].operators
    last = max(i for i, operator in enumerate(operators) if tensor in operator.outputs)
    changes: dict[int, Any] = {
        SubgraphField.OUTPUTS: Numbers("i", (tensor,)),
        SubgraphField.OPERATORS: [Old(at) for at in tables[: last + 1]],
    }
    changes = {ModelField.SUBGRAPHS: [copied(main, {5: "i"}, 6, changes)]}
    fields = dict(copied(root, {0: "I"}, len(ModelField), changes))
    fields.pop(ModelField.SIGNATURE_DEFS, None)
    return written_before(fields, IDENTIFIER, data)


def smallest(runtime: Any, data: bytes, most: int) -> int:
    """Return the smallest arena with which the interpreter starts and runs."""

    def runs(size: int) -> bool:
        try:
            runtime.Interpreter.from_bytes(data, arena_size=size).invoke()
        except RuntimeError:
            return False
        return True

    low, high = most // 4, most  # Too little memory for its own objects ends the process.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
    return high


def test_the_interpreter_runs_in_the_total_and_in_no_less(small: tuple[bytes, Fit]) -> None:
    make = tflm_or_skip()
    from tflite_micro import runtime

    data, found = small
    assert found.total - 16 < smallest(runtime, found.data, 2 * found.total) <= found.total
    old, new = make(data), make(found.data)
    for seed in range(100):
        inputs = inputs_of(data, seed)
        assert old.run(inputs)[0].tobytes() == new.run(inputs)[0].tobytes()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("pointer", [64, 32])
def test_real_models_reach_their_targets(name: str, pointer: int, shared: Path) -> None:
    data = (shared / "models" / "tflite" / f"{name}.tflite").read_bytes()
    macs, wide, narrow = TARGETS[name]
    found = fit(data, FitOptions(max_macs=macs, pointer=pointer))
    assert found.total <= (wide if pointer == 64 else narrow)
    assert found.macs <= macs


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("overlap", [False, True])
def test_real_models_compute_the_same_in_the_interpreter(
    name: str, overlap: bool, shared: Path
) -> None:
    make = tflm_or_skip()
    from tflite_micro import runtime

    data = (shared / "models" / "tflite" / f"{name}.tflite").read_bytes()
    found = fit(data, FitOptions(max_macs=TARGETS[name][0], overlap=overlap))
    assert found.total - 16 < smallest(runtime, found.data, 2 * found.total) <= found.total
    # Outputs saturate; the whole image behind the last strip does not.
    image = parse(data).subgraphs[0].operators[found.regions[-1].last].outputs[0]
    assert image is not None
    pairs = [(data, found.data), (cut_at(data, image), cut_at(found.data, image))]
    for before, after in pairs:
        old, new = make(before), make(after)
        outputs = set()
        for seed in range(100):
            inputs = inputs_of(data, seed)
            expected = old.run(inputs)[0].tobytes()
            assert new.run(inputs)[0].tobytes() == expected
            outputs.add(expected)
    assert len(outputs) == 100


def test_check_refuses_a_rewritten_model_with_a_shifted_strip(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "small.tflite"
    assert main(["fit", str(path), "-o", str(out)]) == 0
    data = out.read_bytes()
    offsets = read_offsets(parse(data))
    assert offsets is not None
    plan = struct.pack(f"<{len(offsets)}i", *offsets)
    at = data.index(plan)
    moved = list(offsets)
    strip = next(o for o in parse(data).subgraphs[0].operators if o.name == "CONCATENATION")
    moved[strip.inputs[-1] or 0] += 64
    changed = data[:at] + struct.pack(f"<{len(offsets)}i", *moved) + data[at + len(plan) :]
    out.write_bytes(changed)
    capsys.readouterr()
    assert main(["check", str(out)]) == 1
    assert "PlanOverlap" in capsys.readouterr().err


def test_exporting_and_planning_a_fitted_file_keeps_its_plan(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, again = tmp_path / "small.tflite", tmp_path / "again.tflite"
    assert main(["fit", str(path), "-o", str(small)]) == 0
    capsys.readouterr()
    assert main(["export", str(small), "--to", "tflm", "--json", "-o", str(again)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kept"]
    assert again.read_bytes() == small.read_bytes()
    total_inside = total(parse(small.read_bytes()), read_offsets(parse(small.read_bytes()))).total
    assert document["total_after"] == total_inside
    assert document["lower_bound"] <= document["head_after"]
    assert main(["export", str(small), "--to", "tflm", "-o", str(again)]) == 0
    assert "the plan that was in the file" in capsys.readouterr().out
    assert main(["plan", str(small), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runtime"]["inside"]["kept"]
    assert document["runtime"]["inside"]["tensors"] < document["arena_bytes"]
    assert document["runtime"]["total"] == total_inside
    assert main(["plan", str(small)]) == 0
    assert "export keeps" in capsys.readouterr().out


def test_a_wrong_plan_in_a_file_is_not_kept(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, again = tmp_path / "small.tflite", tmp_path / "again.tflite"
    assert main(["fit", str(path), "-o", str(small)]) == 0
    model = parse(small.read_bytes())
    offsets = [0 if offset > 0 else offset for offset in read_offsets(model) or ()]
    content = struct.pack(f"<3i{len(offsets)}i", 1, 1, len(offsets), *offsets)
    small.write_bytes(with_metadata(model, METADATA_NAME, content))
    assert main(["check", str(small)]) == 1
    assert main(["export", str(small), "--to", "tflm", "-o", str(again)]) == 0
    assert "the plan that was in the file" not in capsys.readouterr().out
    assert main(["check", str(again)]) == 0


def test_a_limit_of_the_expected_time_is_kept() -> None:
    data = pyramid(48)
    loose = fit(data, FitOptions(max_macs=1.5, max_slowdown=None))
    assert loose.latency > 1.02
    tight = fit(data, FitOptions(max_macs=1.5, max_slowdown=1.02))
    assert tight.latency <= 1.02
    assert loose.total < tight.total
    points = fits(data, FitOptions(max_macs=1.5, max_slowdown=1.02, effort=200))
    assert all(point.latency <= 1.02 for point in points)
    half = (loose.total + loose.before.total) // 2
    assert fit(data, FitOptions(budget=half, max_slowdown=1.02)).latency <= 1.02


def test_a_model_that_no_rewrite_helps_has_its_bound_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sum.tflite"
    file.write_bytes(running_sum())
    assert main(["fit", str(file)]) == 0
    assert "bound of the 0 regions examined" in capsys.readouterr().out


DEATHS = {
    "before the proof": "arenaplan.deploy.fitting.fitting.proven_plan",
    "after the proof": "arenaplan.cli.fit.write_result",
}


@pytest.mark.parametrize("place", DEATHS.values(), ids=DEATHS)
def test_a_kill_leaves_the_old_file(path: Path, tmp_path: Path, place: str) -> None:
    out = tmp_path / "out.tflite"
    out.write_bytes(b"older")
    module, name = place.rsplit(".", 1)
    code = (
        "import os, signal, sys, importlib\n"
        f"module = importlib.import_module({module!r})\n"
        f"setattr(module, {name!r}, lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL))\n"
        "from arenaplan.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "fit", str(path), "-o", str(out)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert out.read_bytes() == b"older"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.tflite", "out.tflite"]


def test_a_full_disk_leaves_the_old_file(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tflite"
    out.write_bytes(b"older")
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        "from arenaplan.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-B", "-c", code, "fit", str(path), "-o", str(out)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "out.tflite" in done.stderr
    assert out.read_bytes() == b"older"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.tflite", "out.tflite"]


def test_a_file_that_is_not_proven_is_not_returned(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shifted(*arguments: Any, **options: Any) -> Placed:
        placed = place(*arguments, **options)
        offsets = [offset if offset < 0 else offset // 2 // 16 * 16 for offset in placed.offsets]
        return Placed(tuple(offsets), placed.head, placed.bound)

    monkeypatch.setattr(sys.modules["arenaplan.deploy.fitting.fitting"], "place", shifted)
    out = tmp_path / "out.tflite"
    assert main(["fit", str(path), "-o", str(out)]) == 0
    assert "smaller rewrites were left out: they are not proven" in capsys.readouterr().err
    assert_equal_outputs(path.read_bytes(), out.read_bytes())


def test_named_kernels_put_sums_in_the_place_of_an_operand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Network(5, (1, 12, 12, 2))
    x = net.conv(0, 16, 3)
    y = net.conv(x, 16, 3)
    data = net.file([net.add(x, y)])
    plain = fit(data)
    assert not plain.is_rewritten or replay_plan(plain.data).kernels == "any"
    found = fit(data, FitOptions(shares=True))
    assert found.total < plain.total
    plan = replay_plan(found.data)
    assert plan.kernels == "known"
    assert plan.in_place
    assert_equal_outputs(data, found.data)
    file, out = tmp_path / "sum.tflite", tmp_path / "small.tflite"
    file.write_bytes(data)
    assert main(["fit", str(file), "--kernels", "cmsis-nn", "-o", str(out)]) == 0
    capsys.readouterr()
    assert main(["check", str(out)]) == 0
    assert "cmsis-nn" in capsys.readouterr().out


def test_the_expected_time_counts_results_and_slower_kernels() -> None:
    net = Network(1, (1, 16, 16, 8))
    net.depthwise(net.conv(net.conv(0, 8, 3), 8, 1), 3)
    wide, point, deep = program_of(parse(net.file([len(net.tensors) - 1]))).operators
    assert wide.work == 8 * deep.work
    assert deep.time > 0.2 * wide.time
    assert wide.work == 9 * point.work
    assert wide.time < 9 * point.time


def test_fit_never_needs_more_than_an_export() -> None:
    for seed in range(12):
        net = Network(seed, (1, 16, 16, 4))
        branches = [net.conv(0, 8 + 4 * at, 3) for at in range(3)]
        ends = [net.pool(branch, "MAX_POOL_2D", 4, 4) for branch in branches]
        outputs = [net.conv(end, 4, 1) for end in ends]
        data = net.file([net.add(net.add(*outputs[:2]), outputs[2])])
        assert_no_worse_than_an_export(data)
        found = fit(data)
        assert found.reordered
        assert total(parse(found.data), read_offsets(parse(found.data))).total == found.total
        assert_equal_outputs(data, found.data, seed)


def assert_no_worse_than_an_export(data: bytes) -> None:
    for overlap in (False, True):
        options = FitOptions(effort=100, overlap=overlap)
        best = plan_in_best_order(parse(data), build=options.build)[1].after.total
        found = fit(data, options)
        assert found.total <= best
        assert found.unproven == 0


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
@pytest.mark.parametrize("seed", range(8))
def test_fit_never_needs_more_than_an_export_of_random_models(seed: int, dtype: str) -> None:
    assert_no_worse_than_an_export(random_net(seed, dtype))


@pytest.mark.parametrize("name", ["concat_twice_a", "concat_twice_b", "r0041", "r0181", "r0212"])
@pytest.mark.parametrize("overlap", [False, True])
def test_fit_ends_with_a_file_that_is_proven(name: str, overlap: bool, shared: Path) -> None:
    path = shared / "cases" / "mcu" / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"no {path.name}")
    found = fit(path, FitOptions(overlap=overlap))
    best = plan_in_best_order(parse(path.read_bytes()))[1].after.total
    assert found.total <= min(best, found.before.total)
    assert not found.is_rewritten or found.total < found.before.total


@pytest.mark.parametrize("seed", range(8))
def test_no_width_of_pointers_is_served_better_by_the_file_for_the_other(seed: int) -> None:
    data = random_network(seed) if seed % 2 else random_net(seed, "int8")
    found = {
        width: fit(data, FitOptions(pointer=width, effort=100, max_macs=1.3)) for width in (32, 64)
    }
    for width, other in ((32, 64), (64, 32)):
        model = parse(found[other].data)
        assert found[width].total <= total(model, read_offsets(model), pointer=width).total


BROADCAST = pytest.mark.parametrize(
    "shape", [(8,), (1, 1, 1, 1), (1, 1, 4, 1), (1, 6, 1, 8), (1, 6, 4, 8)]
)


def broadcast_sum(shape: tuple[int, ...], name: str = "ADD") -> tuple[bytes, list[int]]:
    """Return a sum with a constant, and offsets with the result 64 bytes before the operand."""
    net = Network(7, (1, 6, 4, 8))
    values = net.bytes().integers(-128, 128, shape, np.int8)
    constant, x = net.constant(values, flat.INT8, [1], 0), net.relu(0)
    options = {"ADD": 11, "SUB": 28, "MUL": 21}[name]
    y = net.operator(name, [constant, x], net.activation(net.shapes[x]), (options, {}))
    offsets = [{0: 1024, x: 64, y: 0}.get(at, -1) for at in range(len(net.tensors))]
    return net.file([y]), offsets


@BROADCAST
def test_sums_over_operands_that_are_broadcast_are_proven_if_right(shape: tuple[int, ...]) -> None:
    data, offsets = broadcast_sum(shape)
    inputs = inputs_of(data, 1)
    expected = evaluate(parse(data), inputs)[0]
    for start in range(0, 129, 16):
        offsets[-1] = start
        is_right = np.array_equal(evaluate(parse(data), inputs, offsets)[0], expected)
        assert is_right == (start <= 64)
        if is_right:
            assert start == 64 or replay_plan(data, offsets).overlaps
        else:
            with raises("PlanOverlap"):
                replay_plan(data, offsets)


@BROADCAST
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL"])
def test_reference_kernels_may_broadcast_over_an_operand(shape: tuple[int, ...], name: str) -> None:
    make = tflm_or_skip()
    data, offsets = broadcast_sum(shape, name)
    for offsets[-1] in (0, 16, 48, 64):
        content = struct.pack(f"<3i{len(offsets)}i", 1, 1, len(offsets), *offsets)
        planned = make(with_metadata(parse(data), METADATA_NAME, content))
        for seed in range(5):
            inputs = inputs_of(data, seed)
            assert np.array_equal(planned.run(inputs)[0], make(data).run(inputs)[0])


def test_a_rewrite_that_is_not_proven_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise errors.fault("NotProven", "not today")

    monkeypatch.setattr("arenaplan.deploy.fitting.fitting._prove", refuse)
    found = fit(pyramid())
    assert not found.is_rewritten
    assert found.unproven > 0
    assert found.data == pyramid()
