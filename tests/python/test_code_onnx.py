"""Generated C code of ONNX models computes what the executor computes, in the planned arena."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.deploy.code import generated
from arenaplan.deploy.code.code_site import BAD_INDEX, ONNX_LOWERINGS
from arenaplan.formats.onnx.function_bodies import INLINED
from arenaplan.run.c_formulas import UNARY
from c_programs import COMPILERS, SANITIZERS, CodeProgram, expected
from c_programs import random_inputs as inputs_of
from image_networks import ImageNetwork
from odd_models import OddModel
from operator_cases import Case, cases, i64
from random_models import random_inputs, random_model
from single_node import node_model

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")

DRAW = np.random.default_rng(34)
NOT_RUN = (errors.UnsupportedOp, errors.UnsupportedDtype)


def f32(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype(np.float32)


def above(*shape: int) -> np.ndarray:
    return np.abs(f32(*shape)) + np.float32(0.1)


def operand_of(op: str) -> np.ndarray:
    """Return numbers that a function is made for."""
    if op in BOUNDED:
        return DRAW.uniform(*BOUNDED[op], X).astype(np.float32)
    return above(*X) if op in ("Log", "Reciprocal", "Sqrt") else 3 * f32(*X)


X, ROWS, IMAGE = (3, 4, 5), (2, 3, 8), (2, 4, 7, 9)
PADS = {"pads": [1, 0, 2, 1]}
BOUNDED = {"Acos": (-0.9, 0.9), "Asin": (-0.9, 0.9), "Atanh": (-0.9, 0.9), "Acosh": (1.1, 9.0)}
CASES = [
    *(Case(op, [operand_of(op)], opset=24) for op in (*UNARY, "Identity")),
    Case("Gelu", [f32(*X)], {"approximate": "tanh"}),
    *(Case(op, [f32(*X)], {"alpha": 0.5}) for op in ("Elu", "Celu", "Selu")),
    Case("Swish", [f32(*X)], {"alpha": 0.5}, opset=24),
    Case("Shrink", [f32(*X)], {"bias": 0.25, "lambd": 0.75}),
    Case("Clip", [f32(*X), np.float32(-0.5), None], constants=(1,)),
    Case("Clip", [f32(*X)], {"min": -0.25, "max": 0.5}, opset=6),
    *(Case(op, [f32(*X), f32(4, 1)]) for op in ("Add", "Sub", "Sum", "Mul", "Max", "Min", "PRelu")),
    Case("Mean", [f32(*X), f32(4, 1)]),
    *(Case(op, [above(2, 3, 1, 5), above(3, 4, 1)]) for op in ("Div", "Pow")),
    Case("Add", [f32(5), f32(*X)], constants=(0,)),
    Case("Conv", [f32(*IMAGE), f32(6, 4, 3, 2), f32(6)], {**PADS, "strides": [2, 1]}, (1, 2)),
    Case("Conv", [f32(*IMAGE), f32(6, 2, 3, 3)], {"group": 2, "dilations": [2, 2]}, (1,)),
    Case("Conv", [f32(2, 4, 9), f32(4, 1, 3)], {"group": 4, "auto_pad": "SAME_UPPER"}, (1,)),
    Case("ConvTranspose", [f32(*IMAGE), f32(4, 3, 3, 2), f32(3)], {"strides": [2, 3]}, (1, 2)),
    Case("ConvTranspose", [f32(*IMAGE), f32(4, 2, 3, 3)], {**PADS, "group": 2}, (1,)),
    Case("MaxPool", [f32(*IMAGE)], {"kernel_shape": [3, 2], "strides": [2, 2], **PADS}),
    Case("AveragePool", [f32(*IMAGE)], {"kernel_shape": [3, 2], **PADS}),
    Case("AveragePool", [f32(*IMAGE)], {"kernel_shape": [3, 2], **PADS, "count_include_pad": 1}),
    Case("Dropout", [f32(*X)], outputs=2),
    Case("Dropout", [f32(*X)], outputs=2, opset=9),
    Case("GlobalAveragePool", [f32(*IMAGE)]),
    Case("GlobalMaxPool", [f32(*IMAGE)]),
    *(Case(f"Reduce{kind}", [f32(*IMAGE), i64(1, -1)], constants=(1,)) for kind in ("Mean", "Sum")),
    *(Case(f"Reduce{kind}", [f32(*X)], {"keepdims": 0}) for kind in ("Max", "Min", "Mean")),
    *(Case(f"Reduce{kind}", [f32(*X), i64(-1)], constants=(1,)) for kind in ("L1", "L2", "Prod")),
    *(Case(f"Reduce{kind}", [above(*X)], {"keepdims": 0}) for kind in ("LogSum", "SumSquare")),
    Case("LRN", [3 * f32(*IMAGE)], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}),
    *(Case("LRN", [3 * f32(2, 6, 5)], {"size": size}) for size in (2, 20)),
    Case("Gemm", [f32(3, 4), f32(4, 5), f32(5)], {"alpha": 0.5, "beta": 2.0}, (1, 2)),
    Case("Gemm", [f32(4, 3), f32(5, 4), f32(3, 1)], {"transA": 1, "transB": 1}),
    Case("MatMul", [f32(2, 3, 4, 5), f32(3, 5, 6)]),
    Case("MatMul", [f32(4, 5), f32(5)], constants=(1,)),
    Case("Softmax", [f32(*ROWS)]),
    *(Case("Softmax", [f32(*IMAGE)], {"axis": axis}) for axis in (0, 1, -2)),
    Case("Softmax", [f32(*ROWS)], opset=11),
    Case("BatchNormalization", [f32(*IMAGE), f32(4), f32(4), f32(4), above(4)], {}, (1, 2, 3, 4)),
    Case("LayerNormalization", [f32(*ROWS), f32(8), f32(8)], {}, (1, 2)),
    Case("LayerNormalization", [f32(*ROWS), f32(3, 8)], {"axis": 1}),
    Case("Concat", [f32(2, 3), f32(2, 1), f32(2, 4)], {"axis": 1}),
    Case("Expand", [f32(3, 1), i64(2, 3, 4)], constants=(1,)),
    Case("Flatten", [f32(*X)]),
    Case("Dropout", [f32(*X)]),
    Case("Gather", [f32(5, 3), i64(4, -5, 0)], constants=(0,)),
    Case("Gather", [f32(4, 5, 3), i64(3)], {"axis": 1}, (1,)),
    Case("Pad", [f32(*X), i64(0, 1, 2, 1, 0, 0), np.float32(0.5)], {}, (1, 2)),
    Case("Pad", [f32(*X)], {"pads": [0, 1, 2, 1, 0, 0], "value": 2.0}, opset=2),
    Case("Pad", [f32(*X), i64(0, 2, 1, 0, 1, 3)], {"mode": "reflect"}, (1,)),
    Case("Pad", [f32(*X), i64(0, 2, 1, 0, 1, 3)], {"mode": "edge"}, (1,)),
    Case("Reshape", [f32(*X), i64(4, -1)], constants=(1,)),
    Case("Slice", [f32(*X), i64(3, 1), i64(-9, 4), i64(1, 2), i64(-2, 2)], {}, (1, 2, 3, 4)),
    Case("Split", [f32(6, 4)], {"num_outputs": 3}, outputs=3),
    Case("Squeeze", [f32(3, 1, 4), i64(1)], constants=(1,)),
    Case("Transpose", [f32(*X)], {"perm": [2, 0, 1]}),
    Case("Unsqueeze", [f32(3, 4), i64(0, -1)], constants=(1,)),
]


def assert_close(graph: ap.Graph, runs: list[dict[str, np.ndarray]], folder: Path) -> None:
    """Compare with the executor; sums are added in another order."""
    plan = ap.plan(graph, target="c-code")
    files = generated(graph, plan, name="model")
    program = CodeProgram(graph, files, folder, flags=["-O0", *SANITIZERS])
    for made, right in zip(program.run(runs), expected(graph, runs), strict=True):
        assert made.keys() == right.keys()
        for name, array in right.items():
            np.testing.assert_allclose(made[name], array, 1e-4, 1e-5, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_operators_are_close(case: Case, tmp_path: Path) -> None:
    assert_close(case.graph(), [case.feed()], tmp_path)


def test_every_operator_has_a_case() -> None:
    assert {case.op for case in CASES} - INLINED[""] == set(ONNX_LOWERINGS)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.op)
def test_what_is_planned_is_written(case: Case) -> None:
    graph = case.graph()
    try:
        plan = ap.plan(graph, target="c-code")
    except NOT_RUN:
        return
    generated(graph, plan)


def test_random_models_are_close_or_refused(tmp_path: Path) -> None:
    written = 0
    for seed in range(40):
        model = random_model(seed)
        graph = ap.load(model.SerializeToString())
        try:
            ap.plan(graph, target="c-code")
            generated(graph, ap.plan(graph, target="c-code"))
        except NOT_RUN:
            continue
        assert_close(graph, [random_inputs(model)], tmp_path / str(seed))
        written += 1
    assert written >= 10


def test_odd_models_are_close(tmp_path: Path) -> None:
    """Each path from the arena's bytes to a result is taken, with sanitizers."""
    no_kernel = {"quantized", "converted", "convolved_bytes", "tiled", "enlarged", "gathered"}
    written = 0
    for seed in range(36):
        model = OddModel(seed, no_kernel)
        graph = ap.load(model.model().SerializeToString())
        try:
            generated(graph, ap.plan(graph, target="c-code"))
        except NOT_RUN:
            continue
        assert_close(graph, [model.feed()], tmp_path / str(seed))
        written += 1
    assert written >= 20


@pytest.mark.parametrize("options", [{}, {"optimize": "all,-in-place"}])
def test_networks_over_images_are_close(options: dict[str, Any], tmp_path: Path) -> None:
    """No result is written over an operand that is still read: plans overlap them as they can."""
    for seed in range(24):
        network = ImageNetwork(seed)
        graph, feed = network.graph, network.feed()
        with ap.Executor(graph, ap.plan(graph, target="numpy", optimize="none")) as executor:
            wanted = executor.run(feed)
        files = generated(graph, ap.plan(graph, target="c-code", **options), name="model")
        program = CodeProgram(graph, files, tmp_path / str(seed), flags=["-O0", *SANITIZERS])
        for made in program.run([feed, feed]):
            for name, array in wanted.items():
                np.testing.assert_allclose(made[name], array, 1e-3, 1e-4, err_msg=f"{seed} {name}")


def test_a_whole_copy_to_a_small_distance_moves(tmp_path: Path) -> None:
    graph = ap.Graph("moved")
    op = ap.train.operators(graph)
    x = op.Neg(graph.input("x", (1, 5, 4, 6)))
    graph.output(op.Neg(op.Pad(x, np.zeros(8, np.int64))))
    files = generated(graph, ap.plan(graph, target="c-code", optimize="overlap"), name="model")
    assert "memmove" in files.source
    program = CodeProgram(graph, files, tmp_path, flags=["-O2", *SANITIZERS])
    feed = {"x": f32(1, 5, 4, 6)}
    (found,) = program.run([feed])[0].values()
    np.testing.assert_array_equal(found, feed["x"])


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet", "unet", "vit"])
def test_models_are_close(name: str, shared: Path, tmp_path: Path) -> None:
    graph = ap.load(shared / "models" / "onnx" / f"{name}.onnx")
    assert_close(graph, inputs_of(graph, 1, 1), tmp_path)


def test_indices_are_checked_in_each_run(tmp_path: Path) -> None:
    graph = Case("Gather", [f32(5, 3), i64(4, -5, 0)], constants=(0,)).graph()
    files = generated(graph, ap.plan(graph, target="c-code"), name="model")
    assert f"{BAD_INDEX} if an index is outside" in files.header
    program = CodeProgram(graph, files, tmp_path)
    for outside in (5, -6, 1 << 40):
        with pytest.raises(AssertionError, match=r"\(3, b''\)"):  # The program's own exit code.
            program.run([{"in1": i64(0, outside, 1)}])


@pytest.mark.parametrize(
    "case",
    [
        Case("Conv", [f32(1, 2, 5, 5), f32(2, 2, 3, 3)]),
        Case("Sum", [f32(3), f32(3), f32(3)]),
        Case("MaxPool", [f32(*IMAGE)], {"kernel_shape": [2, 2], "dilations": [2, 2]}),
        Case("Add", [i64(1, 2), i64(3, 4)]),
        Case("Tile", [f32(3), i64(2)], constants=(1,)),
    ],
    ids=lambda case: case.op,
)
def test_what_has_no_kernel_is_refused_by_name(case: Case, tmp_path: Path) -> None:
    with pytest.raises(NOT_RUN, match=case.op):
        generated(case.graph(), ap.plan(case.graph(), target="c-code"))


def test_the_command_writes_code_of_onnx_models(tmp_path: Path) -> None:
    path, out = tmp_path / "net.onnx", tmp_path / "code"
    model = node_model("Relu", [f32(*X)], {}, opset=18, outputs=1, constants=())
    path.write_bytes(model.SerializeToString())
    assert main(["export", str(path), "--to", "c-code", "-o", str(out)]) == 0
    assert sorted(file.name for file in out.iterdir()) == ["net.c", "net.h"]
