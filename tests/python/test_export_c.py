"""C headers that compile without warnings for any plan, and CSV that says the same."""

import csv
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import arenaplan as ap
import flat
from arenaplan.cli import main
from arenaplan.deploy.export.c import header_of, shim_of
from arenaplan.deploy.export.placed import identifiers, rows_of
from arenaplan.deploy.export.table import csv_of
from arenaplan.deploy.export.tflm import plan_tflm
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.runtime import total
from raising import raises
from tflm_models import running_sum


def chain(*sizes: int, names: list[str] | None = None, model: str = "small") -> ap.Graph:
    graph = ap.Graph(model)
    names = names or [f"v{index}" for index in range(len(sizes))]
    value = graph.input(names[0], (sizes[0],), "uint8")
    for name, size in zip(names[1:], sizes[1:], strict=True):
        fits = [(0, 0)] if size <= graph.values[value].shape[0] else []
        (value,) = graph.node("Op", [value], [(name, (size,), "uint8")], in_place=fits)
    graph.output(value)
    return graph


def random_graph(seed: int) -> ap.Graph:
    rng = np.random.default_rng(seed)
    graph = ap.Graph(f"random {seed}")
    values = [graph.input("in", (int(rng.integers(0, 500)),), "uint8")]
    for index in range(int(rng.integers(1, 25))):
        reads = [values[int(i)] for i in rng.integers(0, len(values), 2)]
        size = int(rng.choice([0, 1, 64, 64, 300]))
        spec = (f"strange */ name\n{index} \"' \\ ??/ ü", (size,), "uint8")
        in_place = [
            (slot, 0) for slot, read in enumerate(reads) if graph.values[read].shape == (size,)
        ]
        (value,) = graph.node("Op", reads, [spec], in_place=in_place)
        values.append(value)
    graph.output(values[-1])
    return graph


def compile_and_run(compiler: str, text: str, body: str, folder: Path) -> list[int]:
    """Compile a program that includes a header, with every warning an error, and run it."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    (folder / "plan.h").write_text(text)
    suffix, standard = (".cc", "-std=c++11") if compiler == "g++" else (".c", "-std=c11")
    source = folder / f"main{suffix}"
    source.write_text(
        '#include <stdio.h>\n#include "plan.h"\n#include "plan.h"\n'
        f"int main(void) {{\n{body}\nreturn 0;\n}}\n"
    )
    program = folder / "program"
    command = [compiler, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O0"]
    result = subprocess.run(
        [*command, str(source), "-o", str(program)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    out = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return [int(number) for number in out.split()]


def body_for(text: str, prefix: str) -> str:
    """Return code that prints what the header says and where an arena of it begins."""
    names = re.findall(rf"\b{prefix}_(?:OFFSET|BYTES)_\w+(?= = | UINT64_C)", text)
    lines = [f"{prefix}_ARENA_DEFINE(static, arena);"]
    numbers = [f"{prefix}_ARENA_BYTES", f"(uintptr_t)arena % {prefix}_ARENA_ALIGNMENT", *names]
    lines += [f'printf("%llu\\n", (unsigned long long)({number}));' for number in numbers]
    return "\n".join(lines)


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
@pytest.mark.parametrize("seed", range(4))
def test_headers_of_any_plan_compile_and_say_what_the_plan_says(
    seed: int, compiler: str, tmp_path: Path
) -> None:
    graph = random_graph(seed)
    plan = ap.plan(graph, alignment=2 ** (4 + seed), target="ideal")
    text = header_of(graph, plan)
    prefix = f"RANDOM_{seed}"
    found = compile_and_run(compiler, text, body_for(text, prefix), tmp_path)
    rows = rows_of(graph, plan)
    assert found[:2] == [plan.arena_bytes, 0]
    assert found[2:] == [row.offset for row in rows] + [row.size for row in rows]


# Names that would meet those of values if arenas were not named apart.
STRANGE_SPACES = ("offset", "BYTES", "offset_2", 'slow */ \n"', "", "9 ü", "index", "arena")


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
@pytest.mark.parametrize("seed", range(4))
def test_headers_of_plans_with_several_spaces_compile_and_say_where_values_are(
    seed: int, compiler: str, tmp_path: Path
) -> None:
    graph = random_graph(seed)
    for name in ("arena_bytes", "ARENA_OFFSET", "arena", "count", "index"):
        (value,) = graph.node("Op", [], [(name, (40,), "uint8")], name=f"make {name}")
        graph.output(value)
    names = [name or "empty" for name in STRANGE_SPACES]
    spaces = [ap.Space(name, 128, alignment=4 << (i % 4)) for i, name in enumerate(names)]
    spaces.append(ap.Space("large", alignment=32))
    plan = ap.plan(graph, spaces=spaces, target="ideal")
    assert sum(space.arena_bytes > 0 for space in plan.spaces) > 1
    text = header_of(graph, plan, sections={"large": ".large", "arena": ".data.arena"})
    prefix = f"RANDOM_{seed}"
    arenas = re.findall(rf"#define ({prefix}_ARENA_\w+)_BYTES", text)
    homes = re.findall(rf"\b{prefix}_SPACE_\w+(?= = )", text)
    offsets = re.findall(rf"\b{prefix}_OFFSET_\w+(?= = )", text)
    assert len(arenas) == len(spaces)
    lines = [f"{arena}_DEFINE(static, memory{i});" for i, arena in enumerate(arenas)]
    numbers = [f"{prefix}_ARENA_COUNT", *homes, *offsets]
    numbers += [f"{arena}_BYTES" for arena in arenas]
    numbers += [f"(uintptr_t)memory{i} % {arena}_ALIGNMENT" for i, arena in enumerate(arenas)]
    lines += [f'printf("%llu\\n", (unsigned long long)({number}));' for number in numbers]
    found = compile_and_run(compiler, text, "\n".join(lines), tmp_path)
    rows = rows_of(graph, plan)
    assert found == [
        len(spaces),
        *(row.space for row in rows),
        *(row.offset for row in rows),
        *(space.arena_bytes for space in plan.spaces),
        *(0 for _ in spaces),
    ]


def test_numbers_that_no_enumeration_holds_are_macros(tmp_path: Path) -> None:
    graph = chain(2**33, 2**33, 16)
    text = header_of(graph, ap.plan(graph, optimize="all,-in-place", target="ideal"))
    body = 'printf("%llu\\n", (unsigned long long)SMALL_BYTES_V0);'
    assert compile_and_run("gcc", text, body, tmp_path) == [2**33]
    assert "enum small_bytes" not in text


def test_a_section_can_be_chosen_and_overridden(tmp_path: Path) -> None:
    graph = chain(64, 64)
    plan = ap.plan(graph, target="ideal")
    text = header_of(graph, plan, sections={"arena": ".sram"})
    assert '__attribute__((section(".sram")))' in text
    assert compile_and_run("gcc", text, body_for(text, "SMALL"), tmp_path)[0] == plan.arena_bytes
    for sections in ({"arena": '"); #include "/etc/passwd'}, {"arena": ""}, {"psram": ".x"}):
        with raises("InvalidName"):
            header_of(graph, plan, sections=sections)


def test_an_edited_header_does_not_compile(tmp_path: Path) -> None:
    graph = chain(64, 64, 64)
    text = header_of(graph, ap.plan(graph, optimize="all,-in-place", target="ideal"))
    edited = re.sub(r"(SMALL_OFFSET_V1 = )\d+", r"\g<1>100", text)
    assert edited != text
    with pytest.raises(AssertionError, match="inside the arena"):
        compile_and_run("gcc", edited, "", tmp_path)


def test_names_too_long_for_c_are_called_by_the_index_of_the_value(tmp_path: Path) -> None:
    fused = "model/conv_1/FusedBatchNormV3;model/conv_1/Conv2D;model/relu_1/Relu"
    names = [f"{fused};{i}" for i in range(3)] + ["T1", "short"]
    graph = chain(64, 64, 64, 64, 64, names=names)
    text = header_of(graph, ap.plan(graph, target="c", optimize="all,-in-place"))
    found = re.findall(r"SMALL_OFFSET_(\w+) = ", text)
    assert found == ["T0", "T1_2", "T2", "T1", "SHORT"], "names of the model come first"
    assert f"/* SMALL_OFFSET_T2: {fused};2 */" in text
    assert "SMALL_OFFSET_T1:" not in text
    body = 'printf("%llu\\n", (unsigned long long)SMALL_BYTES_T2);'
    assert compile_and_run("gcc", text, body, tmp_path) == [64]


def test_an_empty_graph_has_a_header(tmp_path: Path) -> None:
    graph = ap.Graph("9 lives")
    plan = ap.plan(graph, target="ideal")
    text = header_of(graph, plan)
    assert compile_and_run("gcc", text, body_for(text, "MODEL_9_LIVES"), tmp_path)[0] == 0


def test_identifiers_are_distinct_and_short() -> None:
    names = ["a/b", "a.b", "A b", "", "é", "x" * 500, "x" * 501, "a_b_2"]
    found = list(identifiers(names))
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[A-Z0-9_]{1,60}", name) for name in found)


def test_the_table_for_the_shim_has_the_layout_of_a_buffer_plan(tmp_path: Path) -> None:
    result = plan_tflm(parse(flat.write(flat.fragmented())))
    body = (
        "const int32_t *words = (const int32_t *)&m_plan;\n"
        'for (int32_t i = 0; i <= m_plan.buffer_count; ++i) printf("%d\\n", (int)words[i]);\n'
        'printf("%d\\n", (int)M_HEAD_BYTES);'
    )
    for compiler in ("gcc", "g++"):
        found = compile_and_run(compiler, shim_of(result, name="m"), body, tmp_path)
        assert found == [5, 0, 432, 0, 288, 0, 864]


def test_csv_has_the_offsets_and_live_ranges_of_the_plan() -> None:
    graph = chain(100, 60, 100)
    plan = ap.plan(graph, optimize="all,-in-place", target="ideal")
    rows = list(csv.DictReader(csv_of(graph, plan).splitlines()))
    assert [row["id"] for row in rows] == ["v0", "v1", "v2"]
    assert [(int(r["lower"]), int(r["upper"]), int(r["size"])) for r in rows] == [
        (0, 1, 100), (0, 2, 60), (1, 2, 100),
    ]  # fmt: skip
    assert [int(row["offset"]) for row in rows] == [plan[name].offset for name in plan]
    assert {row["gaps"] for row in rows} == {""}


def test_values_that_share_bytes_are_one_line_with_gaps() -> None:
    graph = ap.Graph("sharing")
    x = graph.input("x", (256,), "uint8")
    (y,) = graph.node("Op", [x], [("y", (256,), "uint8")])
    (small,) = graph.node("Cast", [y], [("small", (64,), "uint8")], in_place=[(0, 0)])
    (z,) = graph.node("Op", [small], [("z", (192,), "uint8")])
    graph.output(z)
    plan = ap.plan(graph, target="ideal")
    assert plan.shares
    rows = {row["id"]: row for row in csv.DictReader(csv_of(graph, plan).splitlines())}
    assert list(rows) == ["x", "y", "z"]
    assert rows["y"]["size"] == "256"
    assert re.fullmatch(r"2-3@\d+:\d+", rows["y"]["gaps"])


@pytest.mark.parametrize("seed", range(8))
def test_no_two_lines_of_a_csv_overlap(seed: int) -> None:
    graph = random_graph(seed)
    rows = list(csv.DictReader(csv_of(graph, ap.plan(graph, target="ideal")).splitlines()))

    def cells(row: dict[str, str]) -> set[tuple[int, int]]:
        """Return (step, byte) pairs that a line claims."""
        spans = {
            step: (0, int(row["size"])) for step in range(int(row["lower"]), int(row["upper"]))
        }
        for gap in row["gaps"].split():
            steps, _, window = gap.partition("@")
            first, last = map(int, steps.split("-"))
            low, high = map(int, window.split(":")) if window else (0, 0)
            spans |= dict.fromkeys(range(first, last), (low, high))
        offset = int(row["offset"])
        return {(s, offset + b) for s, (low, high) in spans.items() for b in range(low, high)}

    claimed = [cells(row) for row in rows]
    assert all(not a & b for a, b in itertools.combinations(claimed, 2))


@pytest.mark.parametrize("form", ["c", "csv", "json"])
def test_the_command_writes_files_and_stdout(
    form: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    source, out = tmp_path / "m.tflite", tmp_path / f"plan.{form}"
    source.write_bytes(flat.write(flat.fragmented()))
    assert main(["export", str(source), "--to", form, "-o", str(out)]) == 0
    capfdbinary.readouterr()
    assert main(["export", str(source), "--to", form, "-o", "-"]) == 0
    assert capfdbinary.readouterr().out == out.read_bytes()
    if form == "json":
        assert main(["check", str(source), str(out)]) == 0
        assert main(["export", str(source), "--to", "c", "--plan", str(out), "-o", "-"]) == 0


# -- firmware ----------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_a_header_has_the_arena_of_the_runtime(
    compiler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "m.tflite", tmp_path / "m.h"
    source.write_bytes(flat.write(flat.fragmented()))
    assert main(["export", str(source), "--to", "c", "-o", str(out)]) == 0
    capsys.readouterr()
    text, arena = out.read_text(), total(parse(source.read_bytes()))
    names = [
        "M_TFLM_ARENA_BYTES",
        "M_TFLM_HEAD_BYTES",
        "M_TFLM_SCRATCH_BYTES",
        "M_TFLM_TAIL_BYTES",
        "M_TFLM_STARTUP_BYTES",
        "M_TFLM_OPERATOR_COUNT",
        "M_INPUT_COUNT",
        "M_INPUT_0_OFFSET - M_OFFSET_T0",
        "M_INPUT_0_BYTES",
        "M_OUTPUT_0_BYTES",
    ]
    body = "\n".join(f'printf("%d\\n", (int)({name}));' for name in names)
    found = compile_and_run(compiler, text, body, tmp_path)
    expected = [arena.total, arena.head, 0, arena.tail, arena.startup, 3, 1, 0, 432, 144]
    assert found == expected
    narrow = total(parse(source.read_bytes()), pointer=32)
    assert f"#define M_TFLM_ARENA_BYTES {narrow.total}\n" in text
    assert "SLICE, NEG, CONCATENATION */" in text


def test_a_header_lists_operators_that_another_model_does_not_need(tmp_path: Path) -> None:
    source, original, out = (tmp_path / name for name in ("m.tflite", "old.tflite", "m.h"))
    source.write_bytes(flat.write(flat.fragmented()))
    original.write_bytes(flat.write(flat.chain("NEG")))
    export = ["export", str(source), "--to", "c", "-o", str(out)]
    assert main([*export, "--original", str(original)]) == 0
    text = out.read_text()
    assert "#define M_TFLM_ADDED_OPERATOR_COUNT 2\n" in text
    assert "SLICE, CONCATENATION */" in text
    assert main([*export, "--original", str(source)]) == 0
    assert "none */\n#define M_TFLM_ADDED_OPERATOR_COUNT 0\n" in out.read_text()
    csv_file = ["export", str(source), "--to", "csv", "-o", str(out)]
    assert main([*csv_file, "--original", str(original)]) == 2


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_models_that_only_the_runtime_understands_have_headers(
    compiler: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "sum.tflite", tmp_path / "sum.h"
    source.write_bytes(running_sum())
    assert main(["export", str(source), "--to", "c", "-o", str(out)]) == 0
    body = 'printf("%d\\n", SUM_INPUT_0_BYTES);printf("%d\\n", SUM_OUTPUT_0_BYTES);'
    assert compile_and_run(compiler, out.read_text(), body, tmp_path) == [64, 64]
    assert main(["export", str(source), "--to", "c", "--target", "c", "-o", str(out)]) == 3


def test_names_of_custom_operators_cannot_end_a_comment(tmp_path: Path) -> None:
    root = flat.fragmented()
    root[1][2] = flat.code("CUSTOM", "*/ int x; /*")
    source, out = tmp_path / "m.tflite", tmp_path / "m.h"
    source.write_bytes(flat.write(root))
    assert main(["export", str(source), "--to", "c", "-o", str(out)]) == 0
    assert "___int_x____" in out.read_text()
    compile_and_run("gcc", out.read_text(), "", tmp_path)


def write_softmax(path: Path, size: int) -> None:
    """Write a model with the graph's name that exporters of torch give all models."""
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [size]) for n in "xy")
    node = onnx.helper.make_node("Softmax", ["x"], ["y"])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "main_graph", [x], [y])), path)


def exported(model: Path, form: str, header: Path, *more: str) -> Path:
    assert main(["export", str(model), "--to", form, "-o", str(header), *more]) == 0
    return next(header.glob("*.h")) if form == "c-code" else header


def compiled_together(headers: list[Path], names: list[str], folder: Path) -> list[int] | str:
    """Return the numbers behind macros of headers, read header by header, or the error."""
    if shutil.which("cc") is None:
        pytest.skip("no cc")
    lines = ["#include <stdio.h>"]
    for at, (header, name) in enumerate(zip(headers, names, strict=True)):
        lines += [f'#include "{header}"', f"static const unsigned long long n{at} = {name};"]
    shown = "".join(f'printf("%llu\\n", n{at});' for at in range(len(names)))
    source = folder / "both.c"
    source.write_text("\n".join([*lines, f"int main(void) {{ {shown} return 0; }}", ""]))
    command = ["cc", "-std=c11", "-Wall", "-Wextra", str(source), "-o", str(folder / "both")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        return built.stderr
    out = subprocess.run([str(folder / "both")], capture_output=True, text=True, check=True)
    return [int(number) for number in out.stdout.split()]


FORMS_OF_HEADERS = {
    "c": "ARENA_BYTES",
    "c-code": "ARENA_BYTES",
    "hazards-c": "STEPS",
    "tflm-shim": "TOTAL_BYTES",
}


@pytest.mark.parametrize("form", FORMS_OF_HEADERS)
@pytest.mark.parametrize(
    ("first", "second"),
    [("a/net", "b/net"), ("net-1", "net.1"), ("Net", "net"), ("é", "ü"), ("a b", "a_b")],
)
def test_headers_with_one_prefix_are_never_taken_for_each_other(
    form: str, first: str, second: str, tmp_path: Path
) -> None:
    suffix = {"tflm-shim": ".tflite", "c-code": ".onnx"}.get(form, ".graph.json")
    headers = []
    for at, name in enumerate((first, second)):
        model = tmp_path / f"{name}{suffix}"
        model.parent.mkdir(exist_ok=True)
        if form == "tflm-shim":
            model.write_bytes(running_sum(8 * (at + 1)))
        elif form == "c-code":
            write_softmax(model, 64 * (at + 1))
        else:
            graph = chain(*[100 * (at + 1)] * (3 + at), model=name.rpartition("/")[2])
            model.write_text(graph.to_json())
        headers.append(exported(model, form, tmp_path / f"{at}.h"))
    prefix = next(identifiers([first.rpartition("/")[2]]))
    macro = f"{prefix}_{FORMS_OF_HEADERS[form]}"
    error = compiled_together(headers, [macro, macro], tmp_path)
    assert isinstance(error, str)
    assert "--name" in error
    again = compiled_together([headers[0], headers[0]], [macro, macro], tmp_path)
    assert again == 2 * again[:1]
    headers[1] = exported(model, form, tmp_path / "other.h", "--name", "other")
    other = f"OTHER_{FORMS_OF_HEADERS[form]}"
    both = compiled_together(headers, [macro, other], tmp_path)
    assert both[0] == again[0] != both[1]


def test_exports_of_one_framework_are_told_apart_by_their_files(tmp_path: Path) -> None:
    headers = []
    for size in (64, 512):
        model = tmp_path / f"of_{size}.onnx"
        write_softmax(model, size)
        headers.append(exported(model, "c", tmp_path / f"{size}.h"))
    names = ["OF_64_ARENA_BYTES", "OF_512_ARENA_BYTES"]
    small, large = compiled_together(headers, names, tmp_path)
    assert large == 8 * small


def test_a_name_is_for_forms_with_identifiers(tmp_path: Path) -> None:
    model = tmp_path / "m.graph.json"
    model.write_text(chain(8, 8).to_json())
    command = ["export", str(model), "--to", "csv", "-o", str(tmp_path / "p.csv"), "--name", "n"]
    assert main(command) == 2
