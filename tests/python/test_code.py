"""Generated C code computes what the executor computes, bit for bit, in the planned arena."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.deploy.code import code_text, generated, streamed
from arenaplan.deploy.code.code_site import LOWERINGS
from arenaplan.deploy.export import c_code
from c_networks import random_net
from c_programs import (
    COMPILERS,
    SANITIZERS,
    CodeProgram,
    assert_equal_runs,
    expected,
    random_inputs,
)
from raising import raises
from strip_models import Network, pyramid, random_network
from tflite_cases import INEXACT, RUNS, inputs_of, models, run_cases
from tflm_models import running_sum
from tflm_operators import model_of

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")

LIMITS = {
    "person_detect": 17_000,
    "vww_96_int8": 33_000,
    "pretrainedResnet_quant": 20_000,
    "kws_ref_model": 10_500,
    "ad01_int8": 800,
    "micro_speech_quantized": 4_200,
}
"""Bytes of memory that is written, at most."""
OF_THE_LIBRARY = INEXACT | {"ELU", "EXP", "LOGISTIC", "TANH", "UNIDIRECTIONAL_SEQUENCE_LSTM"}
"""Operators of real numbers whose last bits are those of the C library."""
CASES = {case.title: case for case in run_cases() if case.name in LOWERINGS}
WITHOUT_KERNEL = frozenset({"DIV-int8"})
"""Cases of these operators with other types than those of generated code."""


@pytest.mark.parametrize("name", LIMITS)
def test_models_run_in_the_planned_arena(name: str, shared: Path, tmp_path: Path) -> None:
    graph = ap.load(shared / "models" / "tflite" / f"{name}.tflite")
    files = assert_equal_runs(graph, tmp_path)
    assert files.arena_bytes <= LIMITS[name]
    assert re.findall(r"^static (?!const\b)\w+ (\w+)(?!\w|\()", files.source, re.M) == ["arena"]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_sanitizers_find_nothing(compiler: str, tmp_path: Path) -> None:
    for seed in range(4):
        assert_equal_runs(
            ap.load(random_network(seed)),
            tmp_path / str(seed),
            compiler=compiler,
            flags=["-O1", *SANITIZERS],
        )


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_random_networks_are_equal(dtype: str, tmp_path: Path) -> None:
    for seed in range(6):
        graph = ap.load(random_net(seed, dtype))
        assert_equal_runs(graph, tmp_path / str(seed), seed=seed, count=2, flags=["-O1"])


@pytest.mark.parametrize("title", CASES)
def test_operators_are_equal(title: str, tmp_path: Path) -> None:
    case = CASES[title]
    ((seed, data),) = models(case)
    graph = ap.load(data)
    if title in WITHOUT_KERNEL:
        with pytest.raises(errors.UnsupportedOp, match=case.name):
            ap.plan(graph, target="c-code")
        return
    plan = ap.plan(graph, target="c-code")
    program = CodeProgram(graph, generated(graph, plan, name="model"), tmp_path, flags=["-O0"])
    runs = [inputs_of(graph.for_target("numpy"), f"{seed}/{run}") for run in range(RUNS)]
    for made, right in zip(program.run(runs), expected(graph, runs), strict=True):
        for name, array in right.items():
            if array.dtype.kind == "f" and case.name in OF_THE_LIBRARY:
                finite = np.isfinite(array)
                np.testing.assert_array_almost_equal_nulp(made[name][finite], array[finite], 4)
            else:
                np.testing.assert_array_equal(made[name], array)


@pytest.mark.parametrize("start", [b"", np.arange(16, dtype=np.float32).tobytes()])
def test_variables_keep_what_they_hold_between_runs(start: bytes, tmp_path: Path) -> None:
    assert_equal_runs(ap.load(running_sum(16, start)), tmp_path, count=3)


def test_outputs_are_those_of_the_installed_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro")
    from arenaplan.deploy.adapters.interpreter import Interpreter

    for seed in range(12):
        data = random_network(seed)
        graph = ap.load(data)
        files = generated(graph, ap.plan(graph, target="c-code"), name="model")
        runs = random_inputs(graph, seed, 3)
        made = CodeProgram(graph, files, tmp_path / str(seed)).run(runs)
        interpreter = Interpreter(data)
        for inputs, outputs in zip(runs, made, strict=True):
            assert interpreter.compare(graph, inputs, outputs).inexact == 0


def test_operators_without_a_kernel_are_refused_by_name(tmp_path: Path) -> None:
    refused = set()
    for case in run_cases():
        if case.name in LOWERINGS:
            continue
        path = tmp_path / "model.tflite"
        path.write_bytes(model_of(case))
        to_code = [["export", str(path), "--to"], ["fit", str(path), "--to"], ["plan", str(path)]]
        for words in to_code:
            out = ["c-code", "-o", str(tmp_path / "out")]
            assert main([*words, *(out if "--to" in words else ["--target", "c-code"])]) == 3
        with pytest.raises(errors.UnsupportedOp, match=case.name):
            c_code(ap.load(path))
        refused.add(case.name)
    assert refused
    assert not (tmp_path / "out").exists()


# -- what plans use ---------------------------------------------------------------------------


def test_strips_are_loops_and_padding_is_part_of_convolutions(tmp_path: Path) -> None:
    graph = ap.load(pyramid(64))
    plan = ap.plan(graph, target="c-code")
    assert plan.strips
    files = assert_equal_runs(graph, tmp_path)
    assert files.source.count("in strips") == 0
    assert f"row += {plan.strips[0].rows}" in files.source
    padded = next(
        seed
        for seed in range(100)
        if any(node.op == "PAD" for node in ap.load(random_network(seed)).nodes)
        and not any(
            node.op == "PAD" for node in ap.load(random_network(seed)).for_target("c-code").nodes
        )
    )
    assert_equal_runs(ap.load(random_network(padded)), tmp_path / "padded")


def test_strips_are_written_over_inputs(tmp_path: Path) -> None:
    """The function copies inputs into the arena, so that nobody sees their bytes again."""
    graph, overlaps = ap.load(pyramid(32)), 0
    for at, each in enumerate((graph, *(ap.load(random_network(seed)) for seed in range(12)))):
        plan = ap.plan(each, target="c-code")
        assert plan.options["inputs"] == "reuse"
        document = json.loads(plan.to_json())
        over = [step for step in document["steps"] if step.get("strips") and step["shares"]]
        overlaps += bool(over)
        if over:
            assert_equal_runs(each, tmp_path / str(at), flags=["-O1", *SANITIZERS])
    assert overlaps >= 2
    inside = ap.plan(graph, target="c-code", inputs="inside")
    assert ap.plan(graph, target="c-code").arena_bytes < inside.arena_bytes


LAW = {
    **{f"strips-{seed}": lambda seed=seed: random_network(seed) for seed in (1, 7, 33)},
    **{f"random-{seed}": lambda seed=seed: random_net(seed, "int8") for seed in (2, 4, 5)},
}


@pytest.mark.parametrize("title", [*LAW, "kws_ref_model", "ad01_int8", "micro_speech_quantized"])
@pytest.mark.parametrize("target", ["c-code", "ideal", "numpy", "nodes", "c"])
def test_more_permissions_never_cost_bytes(title: str, target: str, shared: Path) -> None:
    path = shared / "models" / "tflite" / f"{title}.tflite"
    graph = ap.load(LAW[title]() if title in LAW else path).for_target(target)
    assert len(graph.nodes) <= 24
    names = ("reuse", "inside", "keep")
    plans = [ap.plan(graph, target=target, inputs=inputs) for inputs in names]
    sizes = [plan.arena_bytes for plan in plans]
    assert sizes == sorted(sizes)
    for technique in ap.Target.known(target).techniques:
        fewer = ap.plan(graph, target=target, inputs="reuse", optimize=f"all,-{technique}")
        assert sizes[0] <= fewer.arena_bytes, technique


def test_inputs_and_outputs_may_stay_with_the_caller(tmp_path: Path) -> None:
    graph = ap.load(pyramid(32))
    inside = generated(graph, ap.plan(graph, target="c-code", inputs="inside"), name="model")
    files = assert_equal_runs(graph, tmp_path, inputs="caller", outputs="caller")
    assert files.arena_bytes < inside.arena_bytes


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "strips"])
def test_rows_of_the_input_may_be_asked_for(dtype: str, tmp_path: Path) -> None:
    smaller = 0
    for seed in range(6):
        data = random_network(seed) if dtype == "strips" else random_net(seed, dtype)
        graph = ap.load(data)
        if graph.values[graph.inputs[0]].shape[0] != 1:
            continue
        own = streamed(graph)
        files = generated(own, ap.plan(own, target="c-code"), name="model")
        program = CodeProgram(own, files, tmp_path / str(seed), flags=["-O1", *SANITIZERS])
        runs = random_inputs(graph, seed, 2)
        for made, right in zip(program.run(runs), expected(graph, runs), strict=True):
            for name, array in right.items():
                np.testing.assert_array_equal(made[name], array)
        inside = ap.plan(graph, target="c-code", inputs="inside")
        smaller += files.arena_bytes < inside.arena_bytes
    assert smaller


def test_the_command_streams_images_alone(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "net.tflite", tmp_path / "code"
    path.write_bytes(pyramid(32))
    to = ["export", str(path), "--stream-input", "rows", "-o"]
    assert main([*to, str(out), "--to", "c-code"]) == 0
    assert "void (*read_x)(void *context, int32_t start" in (out / "net.h").read_text()
    assert main([*to, str(tmp_path / "a.h"), "--to", "c"]) == 2
    assert "--stream-input is for --to c-code" in capsys.readouterr().err
    path.write_bytes(running_sum())
    assert main([*to, str(tmp_path / "b"), "--to", "c-code"]) == 3
    assert "this model has none" in capsys.readouterr().err
    person = ap.load(shared / "models" / "tflite" / "person_detect.tflite")
    assert c_code(person, stream_input=True).arena_bytes <= 22_000


def test_plans_for_less_are_written_too(tmp_path: Path) -> None:
    graph = ap.load(random_network(3))
    plan = ap.plan(graph, target="c-code", optimize="none")
    files = generated(graph, plan, name="model")
    program = CodeProgram(graph, files, tmp_path)
    runs = random_inputs(graph, 0, 2)
    for made, right in zip(program.run(runs), expected(graph, runs), strict=True):
        assert all(np.array_equal(made[name], array) for name, array in right.items())


def test_text_is_deterministic_and_names_cannot_break_it(tmp_path: Path) -> None:
    graph = ap.load(random_net(5, "int8"))
    plan = ap.plan(graph, target="c-code")
    texts = [generated(graph, plan, name=name).source for name in ("a", "a", "*/ int x;\n#")]
    assert texts[0] == texts[1]
    assert "int x;" not in texts[2]


def test_tensors_may_have_any_name(tmp_path: Path) -> None:
    net = Network(1, (1, 40, 40, 4))
    x = net.conv(0, 8, 3)
    x = net.depthwise(net.relu(x), 3, 2)
    x = net.add(x, net.conv(x, 8, 1))
    names = ["int", "conv_s8", "arena", "in", "row", "*/ #error", "", "memcpy", "x" * 99, "1"]
    for table, name in zip(net.tensors, names * len(net.tensors), strict=False):
        table[3] = name
    assert_equal_runs(ap.load(net.file([x])), tmp_path)


def test_the_command_writes_a_folder_and_refuses_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(random_network(1))
    folder = tmp_path / "code"
    to = ["export", str(path), "--to", "c-code", "-o"]
    assert main([*to, str(folder)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["net.c", "net.h"]
    assert main([*to, "-"]) == 2
    assert "folder" in capsys.readouterr().err
    assert main([*to, str(folder), "--name", "my"]) == 0
    assert "int my_run(const int8_t *in, int8_t *out);" in (folder / "my.h").read_text()


def test_arenas_have_sections(tmp_path: Path) -> None:
    graph = ap.load(random_network(1))
    plan = ap.plan(graph, target="c-code")
    (space,) = plan.spaces
    files = generated(graph, plan, name="model", sections={space.name: ".dtcm"})
    assert '__attribute__((__section__(".dtcm")))' in files.source
    CodeProgram(graph, files, tmp_path).compile()
    for sections in ({"nowhere": ".a"}, {space.name: 'a"'}):
        with raises("InvalidName"):
            generated(graph, plan, sections=sections)


def test_plans_of_another_graph_are_refused() -> None:
    graph = ap.load(random_network(1))
    with raises("PlanMismatch"):
        generated(graph, ap.plan(graph, target="tflm"))


def test_fit_writes_code_that_fits_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(pyramid(32))
    least = ap.plan(ap.load(path), target="c-code").arena_bytes
    words = ["fit", str(path), "--to", "c-code", "-o"]
    assert main([*words, str(tmp_path / "a"), "--budget", str(least - 1)]) == 1
    assert f"{least:,} bytes" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    assert main([*words, str(tmp_path / "b"), "--budget", str(least)]) == 0
    assert sorted(file.name for file in (tmp_path / "b").iterdir()) == ["net.c", "net.h"]
    assert main([*words, "-"]) == 2
    assert main([*words, str(tmp_path / "c"), "--overlap"]) == 2


def test_plans_for_the_interpreter_name_the_bytes_of_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(pyramid(32))
    least = ap.plan(ap.load(path), target="c-code").arena_bytes
    assert main(["plan", str(path)]) == 0
    assert f"as C code    {least:,} bytes" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 100_000])
def test_whole_numbers_are_written_as_they_are(dtype: str, count: int) -> None:
    info = np.iinfo("uint8" if dtype == "bool" else dtype)
    most = 1 if dtype == "bool" else info.max
    data = np.random.default_rng(count).integers(
        info.min, most, count, endpoint=True, dtype=info.dtype
    )
    data[:2] = [info.min, most][:count]
    text = code_text.array("T", "k", data.astype(dtype).reshape(1, -1))
    body = re.sub(r"INT64_C\((-?\d+)\)", r"\1", text[text.index("{") + 1 : text.index("}")])
    for bits in (32, 64):
        body = body.replace(f"INT{bits}_MIN", str(-(1 << (bits - 1))))
    assert [int(word) for word in body.split(",") if word.strip()] == (data.tolist() or [0])
    assert max(map(len, text.split("\n"))) <= 210


@pytest.mark.parametrize("special", [[], [np.inf, -np.inf, np.nan]])
def test_real_numbers_are_written_to_the_last_bit(special: list[float]) -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 50_000, dtype=np.uint32)
    data = bits.view(np.float32)
    data = np.concatenate([data[np.isfinite(data)], np.float32([0, -0.0, 1, 1e-45, *special])])
    text = code_text.array("float", "k", data)
    body = text[text.index("{") + 1 : text.index("}")]
    words = [word.strip().removesuffix("f") for word in body.split(",") if word.strip()]
    named = {"NAN": "nan", "INFINITY": "inf", "-INFINITY": "-inf"}
    again = np.array([float(named.get(word, word)) for word in words]).astype(np.float32)
    np.testing.assert_array_equal(again.view(np.uint32), data.view(np.uint32))
