"""Generated C programs: compiled for the host, run on garbage-filled arenas."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import arenaplan as ap
from arenaplan.deploy.code import CodeFiles, generated
from arenaplan.deploy.code.code_text import c_type
from arenaplan.run.numpy.signatures import dtype_of
from arenaplan.tflite.reader.code_walk import streamed_values

COMPILERS: Final = [name for name in ("gcc", "clang") if shutil.which(name)]
WARNINGS: Final = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZERS: Final = ["-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-g"]

_MAIN: Final = """
#include "{name}.c"
#include <stdio.h>
#include <stdlib.h>

{buffers}
{readers}
int main(void)
{{
  size_t count = {count};
  {once}
  while (count-- > 0) {{
    {garbage}
    int status;
{reads}
    status = {name}_run({arguments});
    if (status != 0) return 3;
{writes}
  }}
  return 0;
}}
"""


_READER: Final = """
static void rows_{at}(void *context, int32_t start, int32_t stop, {type_} *rows)
{{
  static int32_t after;
  after = start == 0 ? 0 : after;
  if (context != &token || start < after || stop <= start || stop > {rows}) exit(4);
  after = stop;
  memcpy(rows, (const {type_} *)(void *)in_{at} + start * {numbers},
         (size_t)(stop - start) * {numbers} * sizeof *rows);
}}
"""


class CodeProgram:
    """
    A generated program, compiled with its arena at hand.

    Parameters
    ----------
    flags : sequence of str
        Options of the compiler besides warnings.
    """

    def __init__(
        self,
        graph: ap.Graph,
        files: CodeFiles,
        folder: Path,
        *,
        compiler: str = COMPILERS[0] if COMPILERS else "cc",
        flags: Sequence[str] = ("-O2",),
    ) -> None:
        self.graph = graph = graph.for_target("c-code")
        self._folder, self._files = folder, files
        self._compiler, self._flags = compiler, flags
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.files().items():
            (folder / name).write_bytes(data)
        self._streams = [graph.values[value] for value in streamed_values(graph)]
        self._inputs = [
            *self._streams,
            *(graph.values[value] for value in dict.fromkeys(graph.inputs)),
        ]
        self._outputs = [graph.values[value] for value in dict.fromkeys(graph.outputs)]
        self._binary: tuple[int, Path] | None = None

    def compile(self, count: int = 1) -> Path:
        """Return the executable, which makes so many runs."""
        if self._binary is not None and self._binary[0] == count:
            return self._binary[1]
        name, folder = self._files.name, self._folder
        buffers, reads, writes, arguments, readers = [], [], [], [], []
        for at, value in enumerate(self._streams):
            facts = {"rows": value.shape[1], "numbers": int(np.prod(value.shape[2:]))}
            readers.append(_READER.format(at=at, type_=c_type(dtype_of(value)), **facts))
            arguments.append(f"rows_{at}")
        if self._streams:
            buffers.append("static int token;")
            arguments.append("&token")
        for side, values in (("in", self._inputs), ("out", self._outputs)):
            for at, value in enumerate(values):
                size = max(int(np.prod(value.shape)), 1) * dtype_of(value).itemsize
                buffers.append(f"static int64_t {side}_{at}[{-(-size // 8)}];")
                if side == "out" or at >= len(self._streams):
                    arguments.append(f"(void *){side}_{at}")
                bytes_ = int(np.prod(value.shape)) * dtype_of(value).itemsize
                if side == "in":
                    reads.append(
                        f"    if (fread({side}_{at}, 1, {bytes_}, stdin) != {bytes_}) return 2;"
                    )
                else:
                    writes.append(f"    (void)fwrite({side}_{at}, 1, {bytes_}, stdout);")
        arenas = re.findall(r"^static \w+ (arena\w*) ", self._files.source, re.M)
        garbage = " ".join(f"memset(&{arena}, 0xA5, sizeof({arena}));" for arena in arenas)
        has_states = f"void {name}_reset(void)" in self._files.source
        text = _MAIN.format(
            name=name,
            buffers="\n".join(buffers),
            readers="".join(readers),
            count=count,
            once=f"{garbage} {name}_reset();" if has_states else "",
            garbage="" if has_states else garbage,
            reads="\n".join(reads),
            writes="\n".join(writes),
            arguments=", ".join(arguments),
        )
        source, binary = folder / f"main_{count}.c", folder / f"main_{count}"
        source.write_text(text, encoding="ascii")
        command = [self._compiler, *WARNINGS, *self._flags, source.name, "-o", binary.name, "-lm"]
        made = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
        )
        assert made.returncode == 0, made.stderr[:4000]
        self._binary = (count, binary)
        return binary

    def run(self, runs: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """Return the outputs of runs, one after the other."""
        binary = self.compile(len(runs))
        data = b"".join(
            np.ascontiguousarray(inputs[value.name]).tobytes()
            for inputs in runs
            for value in self._inputs
        )
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        made = subprocess.run(
            [str(binary)],
            input=data,
            capture_output=True,
            check=False,
            timeout=600,
            env=environment,
        )
        assert made.returncode == 0, (made.returncode, made.stderr[:4000])
        found, at = [], 0
        for _ in runs:
            outputs = {}
            for value in self._outputs:
                dtype = dtype_of(value)
                size = int(np.prod(value.shape)) * dtype.itemsize
                part = np.frombuffer(made.stdout[at : at + size], dtype)
                outputs[value.name] = part.reshape(value.shape)
                at += size
            found.append(outputs)
        assert at == len(made.stdout)
        return found


def random_inputs(graph: ap.Graph, seed: int, count: int) -> list[dict[str, np.ndarray]]:
    """Return inputs of some runs."""
    source = np.random.default_rng(seed)
    runs = []
    for _ in range(count):
        inputs: dict[str, np.ndarray] = {}
        for index in graph.inputs:
            value = graph.values[index]
            dtype: np.dtype[Any] = dtype_of(value)
            if dtype.kind == "f":
                inputs[value.name] = (source.standard_normal(value.shape) * 2).astype(dtype)
            elif dtype.kind == "b":
                inputs[value.name] = source.integers(0, 2, value.shape).astype(dtype)
            else:
                info = np.iinfo(dtype)
                low, high = max(info.min, -(1 << 20)), min(info.max, 1 << 20)
                inputs[value.name] = source.integers(low, high + 1, value.shape).astype(dtype)
        runs.append(inputs)
    return runs


def expected(graph: ap.Graph, runs: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, Any]]:
    """Return the outputs of the executor."""
    with ap.Executor(graph) as executor:
        return [executor.run(inputs) for inputs in runs]


def assert_equal_runs(
    graph: ap.Graph,
    folder: Path,
    *,
    seed: int = 0,
    count: int = 3,
    flags: Sequence[str] = ("-O2",),
    compiler: str = COMPILERS[0] if COMPILERS else "cc",
    tolerance: int = 0,
    **options: Any,
) -> CodeFiles:
    """
    Compile and run a model, and compare all outputs with those of the executor, bit for bit.

    Parameters
    ----------
    tolerance : int
        Units in the last place by which real numbers may differ, for functions of the C library.
    """
    plan = ap.plan(graph, target="c-code", **options)
    files = generated(graph, plan, name="model")
    program = CodeProgram(graph, files, folder, compiler=compiler, flags=flags)
    runs = random_inputs(graph, seed, count)
    for at, (made, right) in enumerate(zip(program.run(runs), expected(graph, runs), strict=True)):
        for name, array in right.items():
            if array.dtype.kind == "f" and tolerance:
                np.testing.assert_array_almost_equal_nulp(made[name], array, tolerance)
            else:
                np.testing.assert_array_equal(made[name], array, f"run {at}, {name}")
    return files
