"""What the tool says of TensorFlow Lite Micro's arena is what the runtime says, or it leaves it."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import arenaplan as ap
import flat
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.deploy.export.c import shim_of
from arenaplan.deploy.export.tflm import embed, plan_in_best_order, plan_tflm
from arenaplan.tflite.files import own_arena
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.reader.timeline import timeline_of
from arenaplan.tflite.runtime import Build, total
from arenaplan.tflite.runtime.greedy import ONLINE
from tflm_models import branches, random_bytes_model, running_sum
from tflm_operators import cases, model_of
from tflm_oracle import Tflm, assert_same, tflm_or_skip

Interpret = Callable[[bytes], Tflm]
SEEDS = range(24)
IMPROVED = 0
"""A seed whose random models have a plan that is better than the runtime's own."""


@pytest.fixture
def tflm() -> Interpret:
    return tflm_or_skip()


def asking(model: bytes, build: Build | None = None) -> list[tuple[str, tuple[int, ...]]]:
    """Return the scratch memory of every operator."""
    costs = total(parse(model), build=build).operators
    return [(cost.name, cost.scratch) for cost in costs]


# -- what kernels ask for ----------------------------------------------------------------


def test_a_kernel_that_is_not_known_is_named() -> None:
    tensors = [flat.tensor(name, (4,)) for name in "xy"]
    # A custom operator may have the name of a builtin one.
    operators = [flat.operator(0, [0], [1])]
    code = flat.code("CUSTOM", "NEG")
    root = flat.model([code], [flat.subgraph(tensors, operators, [0], [1])])
    found = total(parse(flat.write(root)))
    assert (found.unknown, found.scratch) == (("NEG",), 0)


def test_kernels_of_compressed_models_are_not_known() -> None:
    root = flat.fragmented()
    assert total(parse(flat.write(root))).unknown == ()
    root[6] = [{0: "COMPRESSION_METADATA", 1: flat.Number("I", 1)}]
    assert total(parse(flat.write(root))).unknown == ("SLICE", "NEG", "CONCATENATION")


def test_an_operator_without_operands_is_not_known() -> None:
    tensors = [flat.tensor(name, (4,)) for name in "xy"]
    root = flat.model(
        [flat.code("SVDF")], [flat.subgraph(tensors, [flat.operator(0, [0], [1])], [0], [1])]
    )
    assert total(parse(flat.write(root))).unknown == ("SVDF",)


def test_scratch_memory_is_counted_per_request() -> None:
    found = dict(asking(random_bytes_model(IMPROVED, scratch=True)))
    assert len(found["TRANSPOSE_CONV"]) == 1
    assert not found["PAD"]


# -- what follows from it --------------------------------------------------------------


def test_scratch_memory_takes_part_in_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(random_bytes_model(IMPROVED, scratch=True))
    model = parse(source.read_bytes())
    given = plan_tflm(model)
    assert given.head_after < given.head_before
    assert given.head_after >= given.lower_bound
    assert "TRANSPOSE_CONV" in given.scratch
    planned = ap.plan(ap.load(source))
    assert planned.lower_bound == given.lower_bound
    names = [value.name for value in ap.load(source).for_target("tflm").values]
    assert any(name.startswith("scratch 0 of TRANSPOSE_CONV_") for name in names)

    export = ["export", str(source), "-o", str(out), "--to"]
    assert main([*export, "tflm"]) == 0
    said = capsys.readouterr().out
    assert f"arena head {given.head_before:,} -> {given.head_after:,} bytes" in said
    assert f"total {given.before.total:,} -> {given.after.total:,} bytes" in said
    narrow = total(model, pointer=32), total(model, given.offsets, pointer=32)
    assert f"with 32-bit pointers {narrow[0].total:,} -> {narrow[1].total:,} bytes" in said
    assert main([*export, "tflm-shim"]) == 3
    said = capsys.readouterr().err
    assert "UnsupportedModel" in said
    assert "TRANSPOSE_CONV" in said
    with pytest.raises(errors.UnsupportedModel, match="scratch memory"):
        shim_of(plan_tflm(model, always=True))


def test_kernels_that_are_not_known_leave_the_runtime_in_charge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = flat.fragmented()
    root[1][2] = flat.code("CUSTOM", "theirs")
    source, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(flat.write(root))
    given = plan_tflm(parse(source.read_bytes()))
    assert given.head_fixed < given.head_before == given.head_after
    assert (given.pinned, given.status) == (False, "feasible")
    assert set(given.offsets) == {ONLINE}
    export = ["export", str(source), "-o", str(out), "--to", "tflm"]
    assert main(export) == 0
    said = capsys.readouterr().out
    assert "kernels of theirs are not known" in said
    assert "stays in charge" in said
    assert main([*export, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["pinned"], document["reordered"]) == (False, False)
    assert document["unknown"] == ["theirs"]
    assert document["head_after"] == document["head_before"]
    assert main([*export, "--always"]) == 0
    assert f"{given.head_before:,} -> " in capsys.readouterr().out
    assert main(["plan", str(source)]) == 0
    said = capsys.readouterr().out
    assert "unknown    kernels of theirs" in said
    assert f"to measure them: arenaplan measure {source}" in said


def test_a_plan_that_saves_nothing_in_all_is_not_written() -> None:
    """The start of the runtime needs more than the tensors of a small model."""
    root = flat.fragmented()
    root[2][0][0] = [
        {**table, 0: flat.Vector("i", [length // 36 for length in table[0].values])}
        if table[3][0] == "t"
        else table
        for table in root[2][0][0]
    ]
    root[4][2:] = [{0: flat.Data(struct.pack("<i", n))} for n in (2, 1)]
    given = plan_tflm(parse(flat.write(root)))
    assert given.before.total == given.before.startup
    assert given.head_before < given.before.total
    assert not given.pinned


def test_the_report_has_the_whole_arena(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(flat.write(flat.fragmented()))
    own = own_arena(parse(path.read_bytes()))
    assert main(["plan", str(path)]) == 0
    said = capsys.readouterr().out
    narrow = own_arena(parse(path.read_bytes()), Build(pointer=32))
    first, second = (said.index(f"{arena.total:,} bytes") for arena in (narrow, own))
    assert first < second
    for text in (
        f"total        {narrow.total:,} bytes",
        "for kTensorArenaSize, with reference kernels and 32-bit pointers",
        f"head       {narrow.head:>12,}",
        f"persistent {narrow.tail:>12,}",
        f"start-up   {narrow.startup:>12,}",
        "figures    exact",
        f"with 64-bit  {own.total:,} bytes",
        "as C code",
    ):
        assert text in said
    assert "with offsets in the model; head 864: arenaplan export" in said
    assert main(["plan", str(path), "--json"]) == 0
    arena = json.loads(capsys.readouterr().out)["runtime"]
    assert arena["total"] == own.total == max(own.startup, own.head + own.tail)
    assert arena["tail"] == own.tail == sum(arena["parts"].values())
    assert (arena["tensors"], arena["scratch"], arena["exact"]) == (1152, 0, True)
    assert arena["exported"]["head"] == 864
    assert main(["plan", str(path), "--pointer", "32", "--json"]) == 0
    as_asked = json.loads(capsys.readouterr().out)["runtime"]
    assert as_asked["pointer"] == 32
    assert not as_asked["exact"]
    assert as_asked["total"] == narrow.total < arena["total"]
    assert {name: as_asked[name] for name in arena["with_32_bits"]} == arena["with_32_bits"]
    assert as_asked["exported"]["total"] == arena["exported"]["with_32_bits"]["total"]
    assert main(["plan", str(path), "--target", "c"]) == 0
    assert "scratch memory of the runtime's kernels is not in" in capsys.readouterr().out
    assert main(["plan", str(path), "--target", "c", "--pointer", "32"]) == 2
    with pytest.raises(errors.InvalidOption, match="tflm:cmsis-nn"):
        ap.plan(ap.load(path), target="tflm:theirs")


def test_the_report_says_what_another_order_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    path.write_bytes(flat.write(branches()))
    assert main(["export", str(path), "--to", "tflm", "-o", str(out), "--json"]) == 0
    needed = json.loads(capsys.readouterr().out)["head_after"]
    assert main(["plan", str(path)]) == 0
    assert f"in another order of the operators; head {needed:,}: " in capsys.readouterr().out
    assert main(["plan", str(path), "--optimize", "all,-order"]) == 0
    assert "another order" not in capsys.readouterr().out


def test_offsets_are_fixed_only_where_that_helps() -> None:
    improved = {True: 0, False: 0}
    for seed in SEEDS:
        for scratch in (True, False):
            model = parse(random_bytes_model(seed, scratch=scratch))
            _, result = plan_in_best_order(model)
            assert bool(result.scratch) == scratch
            assert result.lower_bound <= result.head_after <= result.head_before
            assert result.after.total <= result.before.total
            improved[scratch] += result.pinned
    assert all(improved.values())


def test_a_plan_for_other_kernels_is_checked_and_exported_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file, out = (tmp_path / name for name in ("m.tflite", "plan.json", "out.tflite"))
    path.write_bytes(model_of(next(c for c in cases() if c.title == "CONV_2D-int8")))
    kernels = ["--target", "tflm:cmsis-nn"]
    assert main(["plan", str(path), *kernels, "-o", str(file)]) == 0
    said = capsys.readouterr().out
    assert "with cmsis-nn kernels and 32-bit pointers" in said
    assert "scratch memory 144" in said
    assert "not compared with a device" in said
    assert main(["check", str(path), str(file), *kernels]) == 0
    assert main(["check", str(path), str(file)]) == 0
    assert main(["check", str(path), str(file), "--target", "tflm"]) == 1
    export = ["export", str(path), "--plan", str(file), "-o", str(out), "--to"]
    assert main([*export, "tflm", *kernels]) == 0
    assert main(["check", str(out)]) == 0
    capsys.readouterr()
    assert main([*export, "tflm"]) == 0
    assert "with cmsis-nn kernels" in capsys.readouterr().out
    assert main([*export, "tflm", "--target", "tflm:reference"]) == 1
    assert main([*export, "c", *kernels]) == 0
    assert "SCRATCH_0_OF_CONV_2D_0" in out.read_text()
    assert main([*export, "tflm", "--target", "c"]) == 2


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
    assert main(["classic", str(path), "--strategy", "litert"]) == 3


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
    data = random_bytes_model(seed, scratch=scratch, words=scratch and seed % 3 == 0)
    ordered, result = plan_in_best_order(parse(data))
    original, planned = tflm(data), tflm(embed(ordered, result.offsets))
    before, after = original.head(capfd), planned.head(capfd)
    assert after <= before
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
        ordered, result = plan_in_best_order(model)
        heads = tflm(data).head(capfd), tflm(embed(ordered, result.offsets)).head(capfd)
        assert heads == (own_arena(model).head, result.head_after), path.name
        best = ap.plan(ap.load(path)).arena_bytes
        assert heads[1] == best or ordered is not model
        if path.stem == "kws_ref_model":
            assert heads == (16_000, 16_000)
