"""Plans inside TFLite models, obeyed by the unmodified runtime."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.deploy.export.tflm import (
    METADATA_NAME,
    ONLINE,
    TflmPlan,
    check_offsets,
    embed,
    plan_in_best_order,
    plan_tflm,
    read_offsets,
)
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.reader.timeline import Box, timeline_of
from arenaplan.tflite.runtime.greedy import greedy_offsets, head_bytes
from raising import raises
from tflm_models import branches
from tflm_oracle import Tflm, assert_same, random_inputs, tflm_or_skip

MODELS = {
    "vww_96_int8": (73_728, 55_296),
    "person_detect": (55_296, 55_296),
    "kws_ref_model": (16_000, 16_000),
    "pretrainedResnet_quant": (49_152, 49_152),
    "ad01_int8": (768, 768),
    "micro_speech_quantized": (5_968, 5_968),
}
"""Head bytes of the runtime's own plan, and of ours."""


def entries(data: bytes) -> list[tuple[str, int]]:
    return [(entry.name, entry.buffer) for entry in parse(data).metadata]


def with_offsets(root: dict, offsets: list[int]) -> bytes:
    """Write a model that brings offsets, right or wrong."""
    content = struct.pack(f"<3i{len(offsets)}i", 1, len(root[2]), len(offsets), *offsets)
    root[4].append({0: flat.Data(content)})
    root[6] = [{0: METADATA_NAME, 1: flat.Number("I", len(root[4]) - 1)}]
    return flat.write(root)


def conditional() -> dict:
    """Return a model with an IF: negate where ``x`` is positive, else square."""
    shape = (16,)
    outer = [
        flat.tensor("which", (1,), 6), flat.tensor("x", shape), flat.tensor("a", shape),
        flat.tensor("b", shape), flat.tensor("y", shape),
    ]  # fmt: skip
    branches = [
        flat.subgraph(
            [flat.tensor(f"{op}{i}", shape) for i in range(3)],
            [flat.operator(code, [0], [1]), flat.operator(2, [1], [2])],
            [0], [2], op,
        )
        for op, code in (("negate", 1), ("square", 3))
    ]  # fmt: skip
    index = [flat.Number("i", 1), flat.Number("i", 2)]
    operators = [
        flat.operator(2, [1], [2]),
        flat.operator(0, [0, 2], [3], (92, {0: index[0], 1: index[1]})),
        flat.operator(4, [3, 1], [4]),
    ]
    codes = [flat.code(name) for name in ("IF", "NEG", "ABS", "SQUARE", "ADD")]
    codes[0][0] = flat.Number("b", 118)
    main_graph = flat.subgraph(outer, operators, [0, 1], [4])
    return flat.model(codes, [main_graph, *branches])


# -- what the runtime's rules say ----------------------------------------------------


def test_the_clock_runs_through_called_subgraphs() -> None:
    timeline = timeline_of(parse(flat.write(conditional())))
    live = {box.name: (box.start, box.end) for box in timeline.boxes}
    # ABS is step 1 and IF is 2; its branches enter at 3 and 6, with two operators each.
    assert live == {
        "which": (0, 9), "x": (0, 10), "a": (1, 9), "b": (2, 10), "y": (9, 10),
        "negate0": (3, 5), "negate1": (4, 6), "negate2": (5, 6),
        "square0": (6, 8), "square1": (7, 9), "square2": (8, 9),
    }  # fmt: skip
    assert timeline.tensors == 11


def test_constants_and_variables_are_not_in_the_head() -> None:
    root = flat.fragmented()
    root[2][0][0].append(flat.tensor("memory", (1000,), variable=True))
    timeline = timeline_of(parse(flat.write(root)))
    assert [box.name for box in timeline.boxes] == ["t0", "t1", "t2", "t3", "t4"]
    assert timeline.variables == [(0, 8)]


def test_small_elements_are_not_packed_by_the_runtime() -> None:
    timeline = timeline_of(parse(flat.write(flat.chain("NEG", shape=(40,), type_=flat.INT4))))
    assert [box.size for box in timeline.boxes] == [48, 48]


def test_greedy_places_the_later_of_equals_first() -> None:
    boxes = [Box(i, str(i), size, 0, 1) for i, size in enumerate((16, 32, 16))]
    assert greedy_offsets(boxes) == [48, 0, 32]
    assert head_bytes(boxes, greedy_offsets(boxes)) == 64
    assert greedy_offsets([]) == []


def test_a_plan_is_never_worse_than_the_runtimes_own() -> None:
    rng = np.random.default_rng(0)
    improved = 0
    for _ in range(60):
        root = flat.chain(*["NEG"] * int(rng.integers(2, 12)))
        for tensor in root[2][0][0]:
            tensor[0] = flat.Vector("i", (int(rng.integers(1, 300)),))
        result = plan_tflm(parse(flat.write(root)))
        assert result.lower_bound <= result.head_after <= result.head_before
        assert result.pinned == (result.head_after < result.head_before)
        improved += result.pinned
    assert improved


# -- the file ------------------------------------------------------------------------


def test_only_the_plan_is_added() -> None:
    root = flat.fragmented()
    root[4].append({0: flat.Data(b"something of somebody else's")})
    root[6] = [{0: "theirs", 1: flat.Number("I", 4)}]
    root[7] = [{0: [{0: "x", 1: flat.Number("I", 0)}], 1: [], 2: "serve"}]
    before = parse(flat.write(root))
    data = embed(before, plan_tflm(before).offsets)
    after = parse(data)
    assert before.data in data
    assert after.subgraphs == before.subgraphs
    assert after.signatures == before.signatures
    assert after.content(4) == b"something of somebody else's"
    assert entries(data) == [("theirs", 4), (METADATA_NAME, 5)]


def test_a_plan_that_is_there_is_replaced_without_growth() -> None:
    data = with_offsets(flat.fragmented(), [0] * 8)
    model = parse(data)
    written = embed(model, plan_tflm(model).offsets)
    assert len(written) == len(data)
    assert read_offsets(parse(written)) == (0, 432, 0, 288, 0, -1, -1, -1)
    assert embed(parse(written), plan_tflm(parse(written)).offsets) == written


def test_a_plan_of_another_length_is_replaced() -> None:
    data = with_offsets(flat.fragmented(), [0] * 3)
    model = parse(data)
    written = embed(model, plan_tflm(model).offsets)
    assert entries(written) == [(METADATA_NAME, 5)]


def test_a_plan_whose_bytes_something_else_uses_is_left_alone() -> None:
    root = flat.fragmented()
    data = with_offsets(root, [0] * 8)
    root[6].append({0: "theirs", 1: flat.Number("I", 4)})
    model = parse(flat.write(root))
    written = parse(embed(model, plan_tflm(model).offsets))
    assert written.content(4) == parse(data).content(4)
    assert [entry.name for entry in written.metadata] == ["theirs", METADATA_NAME]


def test_a_file_that_names_its_bytes_by_position_is_not_moved() -> None:
    root = flat.fragmented()
    root[4][1] = {1: flat.Number("Q", 64), 2: flat.Number("Q", 4)}
    model = parse(flat.write(root))
    with pytest.raises(errors.UnsupportedModel, match="position"):
        embed(model, [ONLINE] * 8)


def test_a_root_table_of_a_later_version_is_not_rewritten() -> None:
    root = flat.fragmented()
    root[10] = flat.Number("I", 7)
    with pytest.raises(errors.UnsupportedModel, match="later version"):
        embed(parse(flat.write(root)), [ONLINE] * 8)


# -- wrong plans ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ([0, 432, 0, 288, 0, -1, -1], "PlanMismatch", "7 offsets for 8"),
        ([0, 272, 0, 288, 0, -1, -1, -1], errors.PlanOverlap, "'t0' and 't1'.*byte 272"),
        ([0, 432, 0, 272, 0, -1, -1, -1], errors.PlanOverlap, "'t2' and 't3'.*byte 272"),
        ([0, 440, 0, 288, 0, -1, -1, -1], "PlanMisaligned", "'t1' is at 440"),
        ([0, 432, -16, 288, 0, -1, -1, -1], "PlanOutOfBounds", "'t2' is at -16"),
        ([0, 432, 0, 2**31 - 16, 0, -1, -1, -1], "PlanOutOfBounds", "'t3'"),
        ([0, 432, 0, 288, 0, 0, -1, -1], "PlanMismatch", "tensor 5"),
    ],
)
def test_a_wrong_offset_is_found(
    offsets: list[int], error: type[Exception], words: str, tmp_path: Path
) -> None:
    model = parse(flat.write(flat.fragmented()))
    with raises(error, match=words):
        check_offsets(timeline_of(model), offsets)
    with raises(error, match=words):
        embed(model, offsets)
    path = tmp_path / "planted.tflite"
    if len(offsets) == 8:
        path.write_bytes(with_offsets(flat.fragmented(), offsets))
        assert main(["check", str(path)]) == 1


def test_offsets_that_are_cut_off_are_corrupt() -> None:
    for content in (
        b"",
        bytes(8),
        struct.pack("<3i2i", 1, 1, 8, 0, 0),
        struct.pack("<3i", 1, 1, 9),
    ):
        root = flat.fragmented()
        root[4].append({0: flat.Data(content)})
        root[6] = [{0: METADATA_NAME, 1: flat.Number("I", 4)}]
        with raises("PlanCorrupt"):
            read_offsets(parse(flat.write(root)))


def test_a_reshape_may_stay_where_it_is_but_nothing_else_may() -> None:
    timeline = timeline_of(parse(flat.write(flat.fragmented(reshape=True))))
    check_offsets(timeline, [0, 432, 0, 288, 0, -1, -1, -1, 0])
    with pytest.raises(errors.PlanOverlap):
        check_offsets(timeline, [0, 432, 432, 0, 576, -1, -1, -1, 576])
    with pytest.raises(errors.PlanOverlap):
        check_offsets(timeline, [0, 432, 0, 288, 0, -1, -1, -1, 16])


def test_a_variable_the_runtime_would_mistake_is_refused() -> None:
    root = conditional()
    root[2][1][0].append(flat.tensor("memory", (4,), variable=True))
    model = parse(flat.write(root))
    with pytest.raises(errors.UnsupportedModel, match="variable 3 of subgraph 1"):
        plan_tflm(model, always=True)


def accelerated(offsets: list[int]) -> bytes:
    """Return a model whose accelerator has its operands inside of its memory, but for the last."""
    shape = (4, 16)
    tensors = [flat.tensor(name, shape, flat.INT8) for name in ("x", "a", "b", "y")]
    tensors.insert(1, flat.tensor("memory", (128,), flat.INT8))
    operators = [
        flat.operator(1, [0], [2]),
        flat.operator(0, [1, 2], [3]),
        flat.operator(1, [3], [4]),
    ]
    codes = [flat.code("CUSTOM", "ethos-u"), flat.code("NEG")]
    root = flat.model(codes, [flat.subgraph(tensors, operators, [0], [4])])
    return with_offsets(root, offsets)


def test_a_plan_of_an_accelerators_compiler_is_valid_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    # x, the memory, a and b inside of it, y.
    for offsets, code in (
        ([128, 0, 0, 64, 128], 0),
        ([128, 0, 0, 0, 128], 0),  # Whether b overwrites a is up to the accelerator.
        ([128, 0, 0, 64, 0], 0),  # The memory is needed no more.
        ([64, 0, 0, 64, 128], 1),  # x is no operand of the accelerator.
        ([128, 0, 0, 64, 64], 1),  # Neither is y, and b is read while it is written.
    ):
        path.write_bytes(accelerated(offsets))
        assert main(["check", str(path)]) == code
    for command in ("plan", "inspect", "explain"):
        assert main([command, str(path)]) == 0
    # The accelerator's memory with all operands inside is one value, beside x and y.
    names = [value.name for value in ap.load(path).for_target("tflm").values]
    assert names[:3] == ["x", "memory", "y"]
    capsys.readouterr()
    assert main(["plan", str(path)]) == 0
    said = capsys.readouterr().out
    assert "modelled   kernels of ethos-u, from their sources" in said
    assert main(["export", str(path), "--to", "tflm", "--always", "-o", str(out)]) == 3
    assert not out.exists()
    with pytest.raises(errors.UnsupportedModel, match=r"'memory'.*accelerator"):
        plan_tflm(parse(path.read_bytes()))


# -- the command -----------------------------------------------------------------------


def test_the_command_says_what_a_plan_gains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(flat.write(flat.fragmented()))
    assert main(["export", str(source), "--to", "tflm", "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["head_before"], document["head_after"]) == (1152, 864)
    assert (document["status"], document["already_optimal"]) == ("optimal", False)
    assert main(["check", str(out)]) == 0
    assert "5 of 5 tensors planned, in 864 bytes" in capsys.readouterr().out
    assert main(["export", str(source), "--to", "tflm", "-o", str(out)]) == 0
    assert "1,152 -> 864 bytes (-25.0%), proven minimal" in capsys.readouterr().out


def test_the_command_says_when_there_is_nothing_to_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(flat.write(flat.chain("NEG", "ABS")))
    assert main(["export", str(source), "--to", "tflm", "-o", str(out)]) == 0
    assert "already optimal" in capsys.readouterr().out
    assert read_offsets(parse(out.read_bytes())) == (ONLINE,) * 3
    assert main(["export", str(source), "--to", "tflm", "-o", str(out), "--always"]) == 0
    assert ONLINE not in (read_offsets(parse(out.read_bytes())) or ())


def test_a_file_can_be_exported_onto_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(flat.write(flat.fragmented()))
    path.chmod(0o640)
    assert main(["export", str(path), "--to", "tflm", "-o", str(path)]) == 0
    assert main(["check", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.tflite"]


def test_a_given_plan_is_obeyed_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, plan, out = (tmp_path / name for name in ("m.tflite", "plan.json", "out.tflite"))
    source.write_bytes(flat.write(flat.fragmented()))
    export = ["export", str(source), "--to", "tflm", "--plan", str(plan), "-o", str(out)]

    graph = ap.load(source)
    ap.plan(graph, optimize="views", alignment=16, target="ideal").save(plan)
    assert main(export) == 0
    assert main(["check", str(out)]) == 0
    good = out.read_bytes()

    ap.plan(graph, optimize="views,in-place", alignment=16, target="ideal").save(
        plan
    )  # NEG in place: the kernel must not.
    assert main(export) == 1
    said = capsys.readouterr().err
    assert "target 'tflm' cannot run the plan" in said
    assert f"--target tflm -o {plan}" in said
    ap.plan(graph, optimize="views", alignment=8, target="ideal").save(plan)
    stale = flat.fragmented()
    stale[2][0][0][4][0] = flat.Vector("i", (35,))
    stale[4][3] = {0: flat.Data(struct.pack("<i", 35))}
    source.write_bytes(flat.write(stale))
    assert main(export) == 1
    assert "PlanMismatch" in capsys.readouterr().err
    plan.write_text(plan.read_text()[:-9])
    assert main(export) == 1
    assert "PlanCorrupt" in capsys.readouterr().err
    assert out.read_bytes() == good


def test_only_tflite_models_go_to_tflm(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    assert main(["export", str(path), "--to", "tflm", "-o", str(tmp_path / "o")]) == 2
    assert main(["check", str(path)]) == 2
    source = tmp_path / "m.tflite"
    source.write_bytes(flat.write(flat.chain("NEG")))
    assert main(["check", str(source)]) == 2


def test_a_folder_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    source = tmp_path / "m.tflite"
    source.write_bytes(flat.write(flat.chain("NEG")))
    out = tmp_path / "absent" / "o.tflite"
    assert main(["export", str(source), "--to", "tflm", "-o", str(out)]) == 2


# -- the runtime -------------------------------------------------------------------------


def export_tflm(source: Path, out: Path, *, always: bool = False) -> TflmPlan:
    """Write a model with a plan, in the best order."""
    model, result = plan_in_best_order(parse(source.read_bytes()), always=always)
    out.write_bytes(embed(model, result.offsets))
    return result


@pytest.fixture
def tflm() -> Callable[[bytes], Tflm]:
    return tflm_or_skip()


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_runtime_obeys_and_computes_the_same(
    name: str, always: bool, shared: Path, tmp_path: Path, tflm: Callable[[bytes], Tflm],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source, out = shared / "models" / "tflite" / f"{name}.tflite", tmp_path / "out.tflite"
    result = export_tflm(source, out, always=always)
    before, after = MODELS[name]
    assert (result.head_before, result.head_after) == (before, after)
    assert (result.status, result.already_optimal) == ("optimal", before == after)
    original, planned = tflm(source.read_bytes()), tflm(out.read_bytes())
    assert (original.head(capfd), planned.head(capfd)) == (before, after)
    assert_same(original, planned, source.read_bytes())


@pytest.mark.parametrize("reshape", [False, True])
def test_a_small_model_is_obeyed(
    reshape: bool, tflm: Callable[[bytes], Tflm], capfd: pytest.CaptureFixture[str]
) -> None:
    data = flat.write(flat.fragmented(reshape=reshape))
    model = parse(data)
    original, planned = tflm(data), tflm(embed(model, plan_tflm(model).offsets))
    assert (original.head(capfd), planned.head(capfd)) == (1152, 864)
    assert_same(original, planned, data)


def test_the_runtime_follows_offsets_it_is_given(
    tflm: Callable[[bytes], Tflm], capfd: pytest.CaptureFixture[str]
) -> None:
    """Shifting every offset by 8192 shifts the head: the offsets are what is obeyed."""
    model = parse(flat.write(flat.fragmented()))
    shifted = [o if o == ONLINE else o + 8192 for o in plan_tflm(model).offsets]
    assert tflm(embed(model, shifted)).head(capfd) == 864 + 8192


def test_the_comparison_would_notice_a_wrong_plan(tflm: Callable[[bytes], Tflm]) -> None:
    data = flat.write(flat.fragmented())
    broken = with_offsets(flat.fragmented(), [0, 432, 448, 736, 0, -1, -1, -1])
    with pytest.raises(AssertionError):
        assert_same(tflm(data), tflm(broken), data)


def test_subgraphs_are_obeyed(
    tflm: Callable[[bytes], Tflm], capfd: pytest.CaptureFixture[str]
) -> None:
    data = flat.write(conditional())
    model = parse(data)
    result = plan_tflm(model, always=True)
    original, planned = tflm(data), tflm(embed(model, result.offsets))
    assert (original.head(capfd), planned.head(capfd)) == (result.head_before, result.head_after)
    assert_same(original, planned, data)


def test_litert_still_reads_the_file(shared: Path, tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    for name in ("vww_96_int8", "micro_speech_quantized"):
        source, out = shared / "models" / "tflite" / f"{name}.tflite", tmp_path / "out.tflite"
        export_tflm(source, out)
        results = []
        for path in (source, out):
            runner = interpreter.Interpreter(model_path=str(path))
            runner.allocate_tensors()
            (x,) = runner.get_input_details()
            runner.set_tensor(x["index"], random_inputs(source.read_bytes(), 1)[0])
            runner.invoke()
            results.append(runner.get_tensor(runner.get_output_details()[0]["index"]).tobytes())
        assert results[0] == results[1]


# -- another order ---------------------------------------------------------------------


def test_operators_are_put_into_a_better_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(flat.write(branches()))
    export = ["export", str(source), "--to", "tflm", "-o", str(out), "--json"]
    assert main(export) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reordered"]
    assert document["head_after"] < 2 * 1024 < document["head_before"]
    assert main(["check", str(out)]) == 0
    before, after = (parse(path.read_bytes()).subgraphs[0] for path in (source, out))
    assert before.operators != after.operators
    assert sorted(map(repr, before.operators)) == sorted(map(repr, after.operators))
    assert [t.name for t in before.tensors] == [t.name for t in after.tensors]
    made = {*after.inputs, 6, 7}  # The last two are weights.
    for operator in after.operators:
        assert made.issuperset(i for i in operator.inputs if i is not None)
        made.update(i for i in operator.outputs if i is not None)

    capsys.readouterr()
    assert main([*export, "--optimize", "all,-order"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not document["reordered"]
    assert document["head_after"] > 2 * 1024


def test_a_good_order_is_kept() -> None:
    model = parse(flat.write(flat.fragmented()))
    assert plan_in_best_order(model)[0] is model


def test_the_runtime_obeys_another_order(
    tmp_path: Path, tflm: Callable[[bytes], Tflm], capfd: pytest.CaptureFixture[str]
) -> None:
    """Two branches that are made large by joining, and small by a slice."""
    axis = (10, {0: flat.Number("i", 1)})
    tensors = [
        flat.tensor("x", (1, 16)),
        *(flat.tensor(name, (1, 128)) for name in ("a", "b", "wide_a", "wide_b")),
        *(flat.tensor(name, (1, 16)) for name in ("small_a", "small_b", "y")),
        flat.tensor("begin_a", (2,), flat.INT32, buffer=1),
        flat.tensor("begin_b", (2,), flat.INT32, buffer=2),
        flat.tensor("size", (2,), flat.INT32, buffer=3),
    ]
    operators = [
        flat.operator(0, [0] * 8, [1], axis),
        flat.operator(0, [0] * 8, [2], axis),
        flat.operator(1, [1], [3]),
        flat.operator(1, [2], [4]),
        flat.operator(2, [3, 8, 10], [5]),
        flat.operator(2, [4, 9, 10], [6]),
        flat.operator(3, [5, 6], [7], (11, {})),
    ]
    codes = [flat.code(name) for name in ("CONCATENATION", "NEG", "SLICE", "ADD")]
    buffers = [b"", *(struct.pack("<2i", *pair) for pair in ((0, 16), (0, 40), (1, 16)))]
    source, out = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(
        flat.write(flat.model(codes, [flat.subgraph(tensors, operators, [0], [7])], buffers))
    )
    result = export_tflm(source, out)
    assert (result.head_after, result.status) == (1088, "optimal")
    assert result.head_before > 1500
    original, planned = tflm(source.read_bytes()), tflm(out.read_bytes())
    assert (original.head(capfd), planned.head(capfd)) == (result.head_before, 1088)
    assert_same(original, planned, source.read_bytes())
