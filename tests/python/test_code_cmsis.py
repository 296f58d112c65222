"""Generated C code that calls CMSIS-NN computes what the executor computes, bit for bit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.cli import main
from arenaplan.deploy.code import CodeFiles, calling_cmsis_nn, generated
from arenaplan.deploy.code.cmsis_calls import BUILDS
from arenaplan.deploy.export import c_code
from c_networks import random_net
from c_programs import COMPILERS, CodeProgram, expected, random_inputs
from strip_models import Network, random_network
from test_code_cortex import BOARDS, COMPILER, EMULATOR, run_on
from tflite_cases import models, run_cases

FOLDER = Path(os.environ.get("CMSIS_NN", ""))
needs_sources = pytest.mark.skipif(
    not (os.environ.get("CMSIS_NN") and COMPILERS), reason="CMSIS_NN names no folder"
)
CALLS = {
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D"),
    *("ADD", "MUL", "SOFTMAX"),
}
TITLES = [
    *(f"random-{seed}" for seed in range(8)),
    *(f"strips-{seed}" for seed in range(6)),
    "residual",
    *(case.title for case in run_cases() if case.name in CALLS and "int8" in case.title),
]


def built(compiler: str, flags: list[str], folder: Path) -> list[str]:
    """Compile CMSIS-NN to one object; return flags for programs that call CMSIS-NN."""
    sources = [
        str(path)
        for path in sorted((FOLDER / "Source").rglob("*.c"))
        if not re.search(r"_(flt|f16|f32)", path.name)
    ]
    include = ["-isystem", str(FOLDER / "Include")]
    own = ["-O2", "-w", "-ffunction-sections", "-r", "-nostdlib"]
    command = [compiler, *flags, *own, *include, *sources]
    subprocess.run([*command, "-o", str(folder / "cmsis.o")], check=True, timeout=600)
    return [*include, "-Wl,--gc-sections", str(folder / "cmsis.o")]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the flags for programs on this machine."""
    return built(COMPILERS[0], [], tmp_path_factory.mktemp("cmsis"))


def calling(graph: ap.Graph, kernels: str = "cmsis-nn") -> tuple[ap.Graph, CodeFiles]:
    """Return a model's graph and code with calls."""
    own = calling_cmsis_nn(graph, kernels)
    return own, generated(own, ap.plan(own, target="c-code"), name="model")


def small(title: str) -> ap.Graph:
    """Return a model by title."""
    word, _, seed = title.partition("-")
    if word == "random":
        return ap.load(random_net(int(seed), "int8"))
    if word == "strips":
        return ap.load(random_network(int(seed)))
    if word != "residual":
        (case,) = (case for case in run_cases() if case.title == title)
        ((_, data),) = models(case)
        return ap.load(data)
    net = Network(1, (1, 12, 12, 4))
    x = net.conv(0, 8, 3, 2)
    x = net.depthwise(x, 5)
    x = net.add(x, net.conv(x, 8, 1))
    return ap.load(net.file([net.depthwise(x, 3, 2)]))


def assert_equal(graph: ap.Graph, folder: Path, flags: Sequence[str], count: int = 3) -> CodeFiles:
    """Run a model with calls, and compare all outputs with those of the executor."""
    own, files = calling(graph)
    runs = random_inputs(graph, 0, count)
    made = CodeProgram(own, files, folder, flags=flags).run(runs)
    for outputs, right in zip(made, expected(graph, runs), strict=True):
        for name, array in right.items():
            np.testing.assert_array_equal(outputs[name], array, name)
    return files


@needs_sources
@pytest.mark.parametrize("title", TITLES)
def test_small_models_are_equal(title: str, host: list[str], tmp_path: Path) -> None:
    assert_equal(small(title), tmp_path, ["-O1", *host])


@needs_sources
@pytest.mark.parametrize(
    "name", ["person_detect", "vww_96_int8", "pretrainedResnet_quant", "kws_ref_model", "ad01_int8"]
)
def test_models_are_equal(name: str, host: list[str], shared: Path, tmp_path: Path) -> None:
    graph = ap.load(shared / "models" / "tflite" / f"{name}.tflite")
    assert assert_equal(graph, tmp_path, ["-O2", *host]).calls >= 4


@needs_sources
@pytest.mark.parametrize("board", BOARDS)
def test_processors_with_dsp_and_mve_are_equal(
    board: str, tmp_path_factory: pytest.TempPathFactory, shared: Path
) -> None:
    if not (shutil.which(COMPILER) and shutil.which(EMULATOR)):
        pytest.skip(f"{COMPILER} and {EMULATOR} are not installed")
    flags = built(COMPILER, list(BOARDS[board].flags), tmp_path_factory.mktemp("cmsis"))
    kernels = "cmsis-nn-mve" if board == "cortex-m55" else "cmsis-nn"
    graphs = {title: small(title) for title in TITLES[:8] + TITLES[14:]}
    for name in ("person_detect", "kws_ref_model", "ad01_int8"):
        graphs[name] = ap.load(shared / "models" / "tflite" / f"{name}.tflite")
    for title, graph in graphs.items():
        _, files = calling(graph, kernels)
        figures = run_on(BOARDS[board], graph, files, tmp_path_factory.mktemp("run"), 0, flags)
        assert figures.written == max(files.arena_bytes, 8), title


_BUFFER = re.compile(r"(arm_\w+)_s8\(\n\s*&\(const cmsis_nn_context\){(\w+), (\d+)},\n\s*&(\w+)\.")


@needs_sources
@pytest.mark.parametrize("kernels", BUILDS)
def test_scratch_is_what_the_functions_ask_for(
    kernels: str, host: list[str], shared: Path, tmp_path: Path
) -> None:
    """CMSIS-NN states the sizes for each processor, on every machine."""
    processor = "mve" if BUILDS[kernels] else "dsp"
    graphs = [small(title) for title in TITLES]
    for name in ("person_detect", "vww_96_int8", "pretrainedResnet_quant", "kws_ref_model"):
        graphs.append(ap.load(shared / "models" / "tflite" / f"{name}.tflite"))
    asked: set[str] = set()
    for at, graph in enumerate(graphs):
        _, files = calling(graph, kernels)
        checks = []
        for function, _, size, data in _BUFFER.findall(files.source):
            if not function.startswith(("arm_fully_connected", "arm_max_pool")):
                sizes = f"&{data}.params, &{data}.input, &{data}.filter, &{data}.output"
                if function == "arm_avgpool":
                    sizes = f"{data}.output.w, {data}.input.c"
                call = f"{function}_s8_get_buffer_size_{processor}({sizes})"
                checks.append(f"  if ({call} != {size}) return {len(checks) + 1};\n")
                asked.add(function)
        text = files.source.replace("#error", "#warning")
        main_ = (
            f"{text}\nint main(void)\n{{\n  (void)model_run;\n{''.join(checks)}  return 0;\n}}\n"
        )
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "model.h").write_text(files.header)
        (folder / "main.c").write_text(main_)
        subprocess.run([COMPILERS[0], "-w", "main.c", *host, "-o", "main"], cwd=folder, check=True)
        assert subprocess.run([folder / "main"], check=False).returncode == 0
    assert asked == {"arm_convolve_wrapper", "arm_depthwise_conv_wrapper", "arm_avgpool"}


def test_calls_have_no_operand_under_their_result(shared: Path) -> None:
    """CMSIS-NN reads operands after the first write, except elements of sums and products."""
    counts = dict.fromkeys(CALLS, 0)
    for title in TITLES:
        for kernels in BUILDS:
            own = calling_cmsis_nn(small(title), kernels)
            plan = ap.plan(own, target="c-code")
            for node in own.nodes:
                if node.domain not in BUILDS:
                    continue
                counts[node.op] += 1
                ranges = []
                for value in (*node.outputs, *node.inputs):
                    place = None if value is None else plan.placements[value]
                    if place is not None and own.values[value].kind != "constant":
                        ranges.append((place.offset, place.offset + place.bytes))
                made, read = ranges[: len(node.outputs)], ranges[len(node.outputs) :]
                for start, stop in made:
                    for first, last in read:
                        same = node.op in ("ADD", "MUL") and first == start
                        assert same or last <= start or stop <= first, (title, node.name)
    assert all(counts.values()), counts


def test_the_commands_say_how_many_steps_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(random_network(1))
    to = ["export", str(path), "--to", "c-code", "-o", str(tmp_path / "code"), "--kernels"]
    assert main([*to, "portable"]) == 0
    assert "CMSIS-NN" not in capsys.readouterr().out
    portable = (tmp_path / "code" / "net.c").read_text()
    assert "arm_" not in portable
    for kernels, define in (("cmsis-nn", "#if defined"), ("cmsis-nn-mve", "#if !defined")):
        assert main([*to, kernels, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        text = (tmp_path / "code" / "net.c").read_text()
        assert f"{define}(ARM_MATH_MVEI)" in text
        assert len(re.findall(r"\barm_\w+\(", text)) == document["calls"] > 0
        assert document["arena_bytes"] == c_code(ap.load(path), kernels=kernels).arena_bytes
        fit = ["fit", str(path), "--to", "c-code", "--json", "-o", str(tmp_path / "fit")]
        assert main([*fit, "--kernels", kernels]) == 0
        assert json.loads(capsys.readouterr().out)["calls"] == document["calls"]
        assert (tmp_path / "fit" / "net.c").read_text() == text
    assert main([*fit, "--kernels", "reference"]) == 2
    assert main([*to, "cmsis-nn", "--plan", str(path)]) == 2
    assert main([*to[:4], "-o", "-", "--to", "c", "--kernels", "cmsis-nn"]) == 2
