"""Generated C code on Cortex-M processors, which an emulator runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.deploy.code import CodeFiles, generated
from c_networks import random_net
from c_programs import WARNINGS, expected, random_inputs
from strip_models import random_network

COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason=f"{COMPILER} and {EMULATOR} are not installed",
)


class Board(NamedTuple):
    """A board of the emulator."""

    name: str
    flags: tuple[str, ...]
    code: tuple[int, int]
    """Address and bytes of the memory that a program starts in."""
    data: tuple[int, int]
    tick: float
    """Instructions for each tick of the timer, if an instruction takes a nanosecond."""


BOARDS = {
    "cortex-m4": Board(
        "mps2-an386",
        ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        (0, 4 << 20),
        (0x20000000, 4 << 20),
        40,
    ),
    "cortex-m55": Board(
        "mps3-an547",
        ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
        (0, 512 << 10),
        (0x20000000, 512 << 10),
        31.25,
    ),
}

_LAYOUT = """
ENTRY(start)
SECTIONS {{
  . = {code[0]};
  .text : {{ KEEP(*(.vectors)) *(.text* .rodata*) *(.ARM.exidx*) }}
  . = {data[0]};
  .data : {{ *(.data*) }}
  .bss : {{ *(.bss* COMMON) }}
}}
"""

_START = """
#include <stdint.h>
extern int main(void);
static int call(int operation, const void *argument)
{{
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}}
void say(const char *text) {{ (void)call(4, text); }}
void start(void)
{{
  uint32_t result[2] = {{0x20026u, 0}};
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the floating-point unit */
  __asm__ volatile("dsb\\nisb");
  result[1] = (uint32_t)main();
  (void)call(0x20, result);
  for (;;) {{ }}
}}
__attribute__((section(".vectors"), used)) static const uintptr_t vectors[] = {{
  {stack}u, (uintptr_t)start
}};
"""

_MAIN = """
#include "model.c"
void say(const char *text);
{arrays}
static void tell(uint32_t number)
{{
  char text[12] = {{0}};
  int at = 10;
  do {{ text[--at] = (char)('0' + number % 10); number /= 10; }} while (number);
  say(text + at);
  say("\\n");
}}
static inline int are_close(const real_a *a, const real_a *b, int count)
{{
  while (count-- > 0) {{
    const float difference = a[count] - b[count], most = b[count] < 0 ? -b[count] : b[count];
    if (!(difference <= 1e-6f * (1 + most) && -difference <= 1e-6f * (1 + most))) return 0;
  }}
  return 1;
}}
int main(void)
{{
  volatile uint32_t *const timer = (volatile uint32_t *)0xE000E010;
  uint32_t before;
  int status;
  memset(&arena, 0xA5, sizeof arena);
  timer[1] = 0xFFFFFF;
  timer[2] = 0;
  timer[0] = 5;
  before = timer[2];
  status = model_run({arguments});
  tell((before - timer[2]) & 0xFFFFFF);
  if (status != 0) return 3;
{checks}
  return 0;
}}
"""


def _array(name: str, data: bytes, words: str = "") -> str:
    """Return bytes as a constant array."""
    return f"static const uint8_t {name}[] {words} = {{{','.join(map(str, data))}}};"


class Figures(NamedTuple):
    """What a program needs."""

    flash: int
    written: int
    instructions: float


def run_on(
    board: Board,
    graph: ap.Graph,
    files: CodeFiles,
    folder: Path,
    seed: int = 0,
    flags: Sequence[str] = (),
) -> Figures:
    """Compile a program, run it in the emulator, and compare its outputs with the executor's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.files().items():
        (folder / name).write_bytes(data)
    (inputs,) = runs = random_inputs(graph, seed, 1)
    (outputs,) = expected(graph, runs)
    graph = graph.for_target("c-code")
    arrays, arguments, checks = [], [], []
    for at, value in enumerate(graph.inputs):
        data = np.ascontiguousarray(inputs[graph.values[value].name]).tobytes()
        arrays.append(_array(f"in_{at}", data, "__attribute__((aligned(8)))"))
        arguments.append(f"(const void *)in_{at}")
    for at, value in enumerate(dict.fromkeys(graph.outputs)):
        data = np.ascontiguousarray(outputs[graph.values[value].name]).tobytes()
        arrays.append(_array(f"right_{at}", data, "__attribute__((aligned(8)))"))
        arrays.append(f"static int64_t out_{at}[{-(-len(data) // 8)}];")
        arguments.append(f"(void *)out_{at}")
        same = f"memcmp(out_{at}, right_{at}, sizeof right_{at}) == 0"
        if outputs[graph.values[value].name].dtype.kind == "f":  # The C library is another one.
            same = f"are_close((const void *)out_{at}, (const void *)right_{at}, {len(data) // 4})"
        checks.append(f"  if (!({same})) return {4 + at};")
    texts = {
        "main.c": _MAIN.format(
            arrays="\n".join(arrays), arguments=", ".join(arguments), checks="\n".join(checks)
        ),
        "start.c": _START.format(stack=sum(board.data)),
        "layout.ld": _LAYOUT.format(code=board.code, data=board.data),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii")
    paths = [flag for flag in flags if not flag.endswith(".o")]
    _compiled(board, folder, [*WARNINGS, "-Wno-overlength-strings", *paths, "-c", "model.c"])
    size = subprocess.run(
        ["arm-none-eabi-size", "model.o"], cwd=folder, capture_output=True, text=True, check=True
    )
    flash, data_bytes, bss = map(int, size.stdout.splitlines()[1].split()[:3])
    link = ["-nostartfiles", "-T", "layout.ld", "main.c", "start.c", "-o", "program", "-lm"]
    _compiled(board, folder, ["-std=c99", *flags, *link])
    made = subprocess.run(
        [EMULATOR, "-M", board.name, "-nographic", "-semihosting", "-icount", "shift=0",
         "-kernel", "program"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert made.returncode == 0, (made.returncode, made.stdout[-500:], made.stderr[-500:])
    found = re.search(r"\d+", made.stdout + made.stderr)
    assert found, made
    return Figures(flash + data_bytes, data_bytes + bss, int(found[0]) * board.tick)


def _compiled(board: Board, folder: Path, words: Sequence[str]) -> None:
    """Run the compiler."""
    made = subprocess.run(
        [COMPILER, *board.flags, "-O2", *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[:4000]


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "strips"])
def test_outputs_are_the_executors(board: str, dtype: str, tmp_path: Path) -> None:
    for seed in range(3):
        graph = ap.load(random_network(seed) if dtype == "strips" else random_net(seed, dtype))
        files = generated(graph, ap.plan(graph, target="c-code"), name="model")
        figures = run_on(BOARDS[board], graph, files, tmp_path / str(seed), seed)
        assert figures.written == max(files.arena_bytes, 8)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    "name", ["person_detect", "vww_96_int8", "pretrainedResnet_quant", "kws_ref_model", "ad01_int8"]
)
def test_models_need_what_is_said(board: str, name: str, shared: Path, tmp_path: Path) -> None:
    graph = ap.load(shared / "models" / "tflite" / f"{name}.tflite")
    files = generated(graph, ap.plan(graph, target="c-code"), name="model")
    figures = run_on(BOARDS[board], graph, files, tmp_path)
    assert figures.written == files.arena_bytes
    assert files.constant_bytes <= figures.flash <= files.constant_bytes + (16 << 10)
    assert 0 < figures.instructions < 100e6
