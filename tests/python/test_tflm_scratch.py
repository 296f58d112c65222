"""What the tool says of TensorFlow Lite Micro's arena is what the runtime says, or it leaves it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import arenaplan as ap
import flat
from arenaplan import errors
from arenaplan.cli import main
from arenaplan.export.c import shim_of
from arenaplan.export.tflm import ONLINE, embed, own_head, plan_in_best_order, plan_tflm
from arenaplan.importers.tflite.model import parse
from arenaplan.importers.tflite.scratch import scratch_operators
from arenaplan.importers.tflite.timeline import timeline_of
from tflm_models import branches, random_bytes_model, running_sum
from tflm_oracle import Tflm, assert_same, tflm_or_skip

Interpret = Callable[[bytes], Tflm]
SEEDS = range(24)
IMPROVED = 0
"""A seed whose random models have a plan that is better than the runtime's own."""


@pytest.fixture
def tflm() -> Interpret:
    return tflm_or_skip()


def weighted(name: str, types: tuple[int, int, int], custom: str | None = None) -> bytes:
    """Return a model of one operator with three inputs of some types."""
    tensors = [flat.tensor(f"x{k}", (1, 1, 1, 1), type_) for k, type_ in enumerate(types)]
    tensors.append(flat.tensor("y", (1, 1, 1, 1)))
    options = {"CONV_2D": (1, {}), "DEPTHWISE_CONV_2D": (2, {})}.get(name)
    operators = [flat.operator(0, [0, 1, 2], [3], options)]
    main_graph = flat.subgraph(tensors, operators, [0, 1, 2], [3])
    return flat.write(flat.model([flat.code(name, custom)], [main_graph]))


# -- which kernels may ask -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "types", "asks"),
    [
        ("ADD", (flat.INT8,) * 3, False),
        ("MEAN", (flat.FLOAT32,) * 3, True),
        ("SVDF", (flat.FLOAT32,) * 3, True),
        ("CONV_2D", (flat.INT8,) * 3, False),
        ("CONV_2D", (flat.INT8, flat.INT4, flat.INT32), True),
        ("FULLY_CONNECTED", (flat.INT4, flat.INT8, flat.INT32), False),
        ("DEPTHWISE_CONV_2D", (flat.INT8, flat.INT4, flat.INT32), True),
        ("TRANSPOSE_CONV", (flat.INT32, flat.INT8, flat.INT8), True),
        ("TRANSPOSE_CONV", (flat.INT32, flat.FLOAT32, flat.FLOAT32), False),
    ],
)
def test_operators_whose_kernels_may_ask(
    name: str, types: tuple[int, int, int], asks: bool
) -> None:
    assert scratch_operators(parse(weighted(name, types))) == ((name,) if asks else ())


def test_custom_operators_and_compressed_models_may_ask() -> None:
    # A custom operator may have the name of a builtin one.
    model = parse(weighted("CUSTOM", (flat.FLOAT32,) * 3, "ADD"))
    assert scratch_operators(model) == ("ADD",)
    root = flat.fragmented()
    assert scratch_operators(parse(flat.write(root))) == ()
    root[6] = [{0: "COMPRESSION_METADATA", 1: flat.Number("I", 1)}]
    assert scratch_operators(parse(flat.write(root))) == ("SLICE", "NEG", "CONCATENATION")


def test_every_subgraph_is_looked_at() -> None:
    assert scratch_operators(parse(running_sum())) == ()
    inner = flat.subgraph(
        [flat.tensor("a", (1,)), flat.tensor("b", (1,))], [flat.operator(1, [0], [1])], [0], [1]
    )
    call = flat.operator(0, [], [], (103, {0: flat.Number("i", 1)}))
    outer = flat.subgraph([flat.tensor("x", (1,))], [call], [0], [0])
    model = flat.model([flat.code("CALL_ONCE"), flat.code("SVDF")], [outer, inner])
    assert scratch_operators(parse(flat.write(model))) == ("SVDF",)


# -- what follows from it --------------------------------------------------------------


def test_the_runtime_stays_in_charge_of_scratch_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(random_bytes_model(IMPROVED, scratch=True))
    given = plan_tflm(parse(source.read_bytes()))
    assert given.head_fixed < given.head_before == given.head_after
    assert (given.pinned, given.status) == (False, "feasible")
    assert set(given.offsets) == {ONLINE}

    export = ["export", str(source), "-o", str(out), "--to"]
    assert main([*export, "tflm"]) == 0
    said = capsys.readouterr().out
    assert "kernels of TRANSPOSE_CONV" in said
    assert "may ask for scratch memory" in said
    assert "stays in charge" in said
    assert "--always decides anyway" in said
    assert parse(out.read_bytes()).subgraphs == parse(source.read_bytes()).subgraphs
    assert main([*export, "tflm", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["pinned"], document["reordered"]) == (False, False)
    assert "TRANSPOSE_CONV" in document["scratch"]
    assert document["head_after"] == document["head_before"]

    assert main([*export, "tflm", "--always"]) == 0
    said = capsys.readouterr().out
    assert f"{given.head_before:,} -> " in said
    assert "may ask for scratch memory, which is not in these bytes" in said

    assert main([*export, "tflm-shim"]) == 3
    said = capsys.readouterr().err
    assert "UnsupportedModel" in said
    assert "TRANSPOSE_CONV" in said
    with pytest.raises(errors.UnsupportedModel, match="scratch memory"):
        shim_of(plan_tflm(parse(source.read_bytes()), always=True))


def test_the_report_names_operators_with_scratch_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(random_bytes_model(IMPROVED, scratch=True))
    assert main(["plan", str(path)]) == 0
    said = capsys.readouterr().out
    assert "kernels of TRANSPOSE_CONV" in said
    assert "--to tflm --always' puts offsets into the model" in said
    assert "another order" not in said
    path.write_bytes(flat.write(flat.fragmented()))
    assert main(["plan", str(path)]) == 0
    said = capsys.readouterr().out
    assert "reference kernels of these operators ask for no scratch memory" in said
    assert "own planner needs 1,152 bytes for tensors; 'arenaplan export --to tflm' puts" in said
    assert main(["plan", str(path), "--target", "c"]) == 0
    assert "scratch memory of the runtime's kernels is not in" in capsys.readouterr().out


def test_the_report_says_what_another_order_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    path.write_bytes(flat.write(branches()))
    assert main(["export", str(path), "--to", "tflm", "-o", str(out), "--json"]) == 0
    needed = json.loads(capsys.readouterr().out)["head_after"]
    assert main(["plan", str(path)]) == 0
    note = f"another order of the operators needs {needed:,} bytes; 'arenaplan export --to tflm'"
    assert note in capsys.readouterr().out
    assert main(["plan", str(path), "--order", "given"]) == 0
    assert "another order" not in capsys.readouterr().out


def test_offsets_are_fixed_only_where_that_is_known_to_help() -> None:
    improved = 0
    for seed in SEEDS:
        for scratch in (True, False):
            model = parse(random_bytes_model(seed, scratch=scratch))
            assert bool(scratch_operators(model)) == scratch
            ordered, result = plan_in_best_order(model)
            assert result.lower_bound <= result.head_fixed <= result.head_after
            assert result.head_after <= result.head_before
            if scratch:
                assert not result.pinned
                assert ordered is model
            else:
                assert result.head_fixed == result.head_after
                improved += result.pinned
    assert improved


# -- several subgraphs -----------------------------------------------------------------


def test_models_with_several_subgraphs_are_planned_for_the_runtime(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan_file = tmp_path / "sum.tflite", tmp_path / "plan.json"
    path.write_bytes(running_sum())
    graph = ap.load(path)
    assert [node.op for node in graph.nodes][:3] == ["CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE"]
    plan = ap.plan(graph)
    # READ_VARIABLE, the sum and x at once; the variable itself is elsewhere.
    assert (plan.target.name, plan.arena_bytes, plan.status) == ("tflm", 192, "optimal")
    for command in ("plan", "inspect", "explain"):
        assert main([command, str(path)]) == 0
        assert "for tflm" in capsys.readouterr().out
    assert main(["plan", str(path), "-o", str(plan_file)]) == 0
    assert main(["check", str(path), str(plan_file)]) == 0
    capsys.readouterr()
    for target in ("c", "nodes", "ideal", "litert"):
        with pytest.raises(errors.UnsupportedSubgraph, match="CALL_ONCE_0"):
            ap.plan(graph, target=target)
    with pytest.raises(errors.UnsupportedSubgraph, match="CALL_ONCE_0"):
        plan.check(ap.load(path).with_after([[] for _ in graph.nodes]))
    assert main(["plan", str(path), "--target", "c"]) == 3
    assert main(["plan", str(path), "--strategy", "litert"]) == 3


def test_a_handle_has_no_bytes_and_no_entry_in_the_table() -> None:
    model = parse(running_sum())
    assert [box.name for box in timeline_of(model).boxes] == ["x", "before", "sum", "y"]
    assert "_BUFFER_COUNT 4" in shim_of(plan_tflm(model), name="sum")


# -- the runtime -----------------------------------------------------------------------


def test_a_variable_keeps_its_sum(tflm: Interpret, capfd: pytest.CaptureFixture[str]) -> None:
    data = running_sum()
    result = plan_tflm(parse(data), always=True)
    original, planned = tflm(data), tflm(embed(parse(data), result.offsets))
    assert original.head(capfd) == planned.head(capfd) == result.head_after == 192
    assert_same(original, planned, data)


@pytest.mark.parametrize("scratch", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_export_never_makes_the_arena_larger(
    seed: int, scratch: bool, tflm: Interpret, capfd: pytest.CaptureFixture[str]
) -> None:
    data = random_bytes_model(seed, scratch=scratch)
    ordered, result = plan_in_best_order(parse(data))
    original, planned = tflm(data), tflm(embed(ordered, result.offsets))
    before, after = original.head(capfd), planned.head(capfd)
    assert after <= before
    if not scratch:
        assert (before, after) == (result.head_before, result.head_after)
    assert_same(original, planned, data)


def test_heads_of_real_models_are_those_of_the_runtime(
    shared: Path, tflm: Interpret, capfd: pytest.CaptureFixture[str]
) -> None:
    models = sorted((shared / "models" / "tflite").glob("*.tflite"))
    assert models
    for path in models:
        data = path.read_bytes()
        model = parse(data)
        assert scratch_operators(model) == ()
        ordered, result = plan_in_best_order(model)
        heads = tflm(data).head(capfd), tflm(embed(ordered, result.offsets)).head(capfd)
        assert heads == (own_head(model), result.head_after), path.name
        best = ap.plan(ap.load(path)).arena_bytes
        assert heads[1] == best or ordered is not model
        if path.stem == "kws_ref_model":
            assert heads == (16_000, 16_000)
