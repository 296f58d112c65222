"""Operators that a user declares: every command and call has them, and names a part that lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
import snippets
from arenaplan.cli import main
from arenaplan.formats.onnx.own_operators import OWN
from arenaplan.formats.onnx.remembered import forget
from arenaplan.formats.onnx.symbol_schema import parsed
from arenaplan.run.numpy import registry
from arenaplan.train.gradients import RULES
from arenaplan.train.symbols.relations import RELATIONS
from raising import raises

ROOT = Path(__file__).resolve().parents[2]
SIGNATURE = "acme::Scale(x, factor, *, power=1.0) -> y"


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    """Take back what a test declares."""
    tables: tuple[dict[Any, Any], ...] = (OWN, RULES, RELATIONS, registry._KERNELS)
    before = [dict(table) for table in tables]
    yield
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)
    forget()


def scale(step: ap.run.Step) -> registry.Run:
    """Multiply by a factor to a power."""
    x, factor, y = *step.inputs, step.outputs[0]
    assert x is not None
    return lambda: np.multiply(x, factor ** step.attributes["power"], out=y)


PARTS: dict[str, Any] = {
    "shapes": lambda op: [(op.input(0).shape, op.input(0).dtype)],
    "relation": lambda attributes, inputs, outputs: inputs[0].learn(outputs[0].shape),
    "effects": ap.Effects(in_place=((0, 0),), pure=True),  # type: ignore[arg-type]
    "kernel": scale,
    "gradient": lambda at: [at.op.Scale(at.dy, at.x(1), power=at.attribute("power")), None],
}


def declare(*without: str, **instead: Any) -> None:
    parts = {part: PARTS[part] for part in PARTS if part not in without}
    ap.operator(SIGNATURE, **{**parts, **instead})


def model(path: Path, domain: str = "acme") -> Path:
    """Write ``y = Relu(Scale(Neg(x), 2))`` with 256 numbers."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Scale", ["a", "f"], ["b"], "scaling", domain=domain, power=3.0),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "m", [x], [y], [helper.make_tensor("f", 1, [], [2.0])])
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 3)]
    proto = helper.make_model(graph, opset_imports=versions, ir_version=8)
    path.write_bytes(proto.SerializeToString())
    return path


def program(w: np.ndarray) -> tuple[ap.Graph, int, int]:
    graph = ap.Graph("program")
    op, weight = ap.train.operators(graph), graph.parameter("w", w)
    y = op.Scale(op.Add(graph.input("x", w.shape), weight), 2.0, power=2.0)
    return graph, op.ReduceSumSquare(y, keepdims=0, name="loss"), weight


COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "MODEL", "-o", "p.json"),
    "plan for nodes": ("plan", "MODEL", "--target", "nodes"),
    "check": ("check", "MODEL", "p.json"),
    "explain": ("explain", "MODEL"),
    "gate": ("gate", "MODEL", "--budget", "1MiB"),
    "export": ("export", "MODEL", "--to", "graph", "-o", "g.json"),
    "plan of the graph": ("plan", "g.json"),
    "run": ("run", "MODEL", "--verify"),
}
NEEDS = {
    "plan for nodes": ("shapes",),
    "check": ("shapes",),
    "export": ("shapes",),
    "plan of the graph": (),
}
"""The parts that a command needs, where the plan is not for NumPy, or there is one already."""


@pytest.mark.parametrize("lacking", ["nothing", *PARTS])
def test_every_command_has_the_operator_or_names_the_part_that_lacks(
    lacking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = model(tmp_path / "m.onnx")
    declare()
    assert main(["plan", str(path), "-o", "p.json"]) == 0
    assert main(["export", str(path), "--to", "graph", "-o", "g.json"]) == 0
    declare(lacking)
    for command, line in COMMANDS.items():
        capsys.readouterr()
        code = main([str(path) if word == "MODEL" else word for word in line])
        said = capsys.readouterr().err
        if lacking in NEEDS.get(command, ("shapes", "kernel")):
            assert code == (3 if lacking == "kernel" else 2), (command, said)
            assert f"arenaplan.operator(…, {lacking}=…)" in said, (command, said)
        elif not (command == "check" and lacking == "effects"):  # The file of a plan has another.
            assert code == 0, (command, said)


def test_what_a_command_cannot_do_without_an_operator_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "m.onnx", "unheard.of")
    assert main(["plan", str(path)]) == 2
    assert "arenaplan.operator(…, shapes=…)" in capsys.readouterr().err


def test_a_file_runs_in_place_and_as_composed_nodes_do() -> None:
    declare()
    data = np.arange(256, dtype=np.float32).reshape(4, 64) - 100
    graph = ap.Graph()
    op = ap.train.operators(graph)
    graph.output(op.Relu(op.Scale(op.Neg(graph.input("x", (4, 64))), 2.0, power=3.0), name="y"))
    want = np.maximum(-data * 8, 0)
    with ap.Executor(graph) as executor:
        np.testing.assert_array_equal(executor.run({"x": data}, verify=True)["y"], want)
    assert ap.plan(graph, target="nodes", inputs="reuse").arena_bytes == 1024
    declare("effects")
    graph = ap.Graph()
    op = ap.train.operators(graph)
    graph.output(op.Relu(op.Scale(op.Neg(graph.input("x", (4, 64))), 2.0, power=3.0), name="y"))
    assert ap.plan(graph, target="nodes", inputs="reuse").arena_bytes == 2048


def test_a_permission_that_a_node_cannot_use_is_left_out(tmp_path: Path) -> None:
    declare(shapes=lambda op: [((2, *op.input(0).shape), "float32")])
    graph = ap.load(model(tmp_path / "m.onnx"))
    assert graph.nodes[1].effects.in_place == ()
    assert ap.plan(graph).arena_bytes >= 2 * 1024
    with raises("InvalidEffect", match="2 inputs and 1 outputs"):
        declare(effects=ap.Effects(in_place=((2, 0),)))  # type: ignore[arg-type]


def test_shapes_follow_in_both_directions() -> None:
    declare()
    y = ap.train.op.Scale(ap.train.variable("x"), ap.train.variable("f", ()), name="s")
    again = ap.train.Symbol.from_json(y.to_json())
    for symbol in (y, again):
        assert symbol.infer(shapes={"s_output": (3, 2)}).shapes["x"] == (3, 2)
        assert symbol.infer(shapes={"x": (5,)}).shapes["s_output"] == (5,)
    declare("relation")
    assert y.infer(shapes={"s_output": (3, 2)}).shapes["x"] is None


def test_a_training_equals_the_formula_and_names_a_gradient_that_lacks() -> None:
    declare()
    w = np.linspace(-1, 1, 8, dtype=np.float32)
    graph, loss, weight = program(w)
    train = ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=[weight]), lr=0.01)
    with ap.train.Trainer(train) as trainer:
        trainer.step({"x": np.ones(8, np.float32)}, verify=True)
        np.testing.assert_allclose(trainer.states()["w"], w - 0.32 * (w + 1), rtol=1e-6)
    declare("gradient")
    with raises("NotDifferentiable", match=r"operator\(…, gradient=…\)"):
        ap.train.gradient(graph, of=loss, wrt=[weight])
    declare("shapes")
    with raises("UnknownShape", match=r"operator\(…, shapes=…\)"):
        program(w)


def wrong(*given: Any) -> Any:
    raise IndexError("out of range")


BROKEN: dict[str, list[Any]] = {
    "shapes": [
        wrong,
        lambda op: [],
        lambda op: None,
        lambda op: [((2,), "float31")],
        lambda op: (4, "float32"),
    ],
    "effects": [wrong, lambda op, outputs: None],
    "gradient": [wrong, lambda at: None, lambda at: [at.dy], lambda at: [0.5, None]],
    "relation": [wrong],
}


@pytest.mark.parametrize(
    ("part", "function"), [(part, each) for part, some in BROKEN.items() for each in some]
)
def test_a_part_that_fails_is_an_error_with_the_name_of_the_part(part: str, function: Any) -> None:
    declare(**{part: function})
    with raises("OperatorError", match=rf"Scale.*{part}="):
        if part == "relation":
            ap.train.op.Scale(ap.train.variable("x"), ap.train.variable("f", ())).infer()
        else:
            graph, loss, weight = program(np.ones(4, np.float32))
            ap.train.gradient(graph, of=loss, wrt=[weight])


@pytest.mark.parametrize(
    "signature",
    [
        *(
            "Scale(x) -> y",
            "::Scale(x) -> y",
            "ai.onnx::Relu(x) -> y",
            "com.microsoft::Gelu(x) -> y",
        ),
        *("arenaplan.training::ReluGrad(dy, y) -> dx", "acme::Scale", "acme::Scale(x -> y"),
        *("acme::Scale(x=1) -> y", "acme::Scale(x, *, p=f()) -> y", "", "acme::Scale(x) -> y -> z"),
    ],
)
def test_what_cannot_be_declared_is_refused(signature: str) -> None:
    before = dict(OWN)
    with raises("InvalidOption", match="Scale|Relu|Gelu|''"):
        ap.operator(signature)
    assert before == OWN


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_no_function_is_refused(part: str) -> None:
    with raises("InvalidOption", match=f"option {part}: 3 is not a function"):
        declare(**{part: 3})


@pytest.mark.parametrize(
    ("inputs", "attributes", "said"),
    [
        (["x"], {}, "InvalidOperand.*lacks its input 'factor'"),
        (["", "f"], {}, "InvalidOperand.*lacks its input 'x'"),
        (["x", "f", "f"], {}, "InvalidOperand.*2 inputs, not 3"),
        (["x", "f"], {"powr": 1.0}, "InvalidAttribute.*no attribute 'powr'.*power"),
    ],
)
def test_a_node_of_a_file_has_the_operands_that_the_operator_has(
    inputs: list[str], attributes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    declare()
    proto = onnx.load(model(tmp_path / "m.onnx"))
    node = helper.make_node("Scale", ["a" if x == "x" else x for x in inputs], ["b"], "wrong",
                            domain="acme", **attributes)  # fmt: skip
    proto.graph.node[1].CopyFrom(node)
    with raises(said.partition(".")[0], match="node 'wrong'.*" + said.partition("*")[2]):
        ap.load(proto.SerializeToString())


def test_an_attribute_without_a_default_is_required() -> None:
    ap.operator("acme::Scale(x, factor, *, power) -> y", shapes=PARTS["shapes"])
    assert "Scale" in dir(ap.train.op)
    graph = ap.Graph()
    with raises("InvalidAttribute", match="lacks its attribute 'power'"):
        ap.train.operators(graph).Scale(graph.input("x", (4,)), 2.0)


def test_a_name_of_another_operator_stays_with_that_operator() -> None:
    ap.operator("acme::Relu(x) -> y", shapes=PARTS["shapes"])
    graph = ap.Graph()
    x, op = graph.input("x", (4,)), ap.train.operators(graph)
    op.Relu(x)
    getattr(op, "acme::Relu")(x)
    assert [node.domain for node in graph.nodes] == ["", "acme"]


def test_signatures_of_operators_of_this_package_are_read_as_they_are_written() -> None:
    for own in OWN.values():
        results = ", ".join(each.name for each in own.schema.outputs)
        again = parsed(f"{own.schema.signature()} -> {results}", own.schema.domain, "")
        assert again.signature() == own.schema.signature()


@pytest.mark.parametrize("effect", ["mutates", "ignores"])
def test_an_effect_on_an_input_that_is_not_there_is_refused(effect: str) -> None:
    with raises("InvalidEffect", match="2 inputs and 1 outputs, and no pair 2, 0"):
        declare(effects=ap.Effects(**{effect: (2,)}))


def accumulate(step: ap.run.Step) -> registry.Run:
    """Add to a state: once, or twice from version 2 on."""
    total, x, y = *step.inputs, step.outputs[0]
    assert total is not None
    assert x is not None
    times = 2 if step.signature.version >= 2 else 1

    def run() -> None:
        np.add(total, times * x, out=total)
        np.copyto(y, total)

    return run


def declare_accumulate() -> None:
    ap.operator(
        "acme::Accumulate(total, x) -> y",
        shapes=lambda op: [(op.input(1).shape, op.input(1).dtype)],
        effects=ap.Effects(mutates=(0,)),
        kernel=accumulate,
    )


def with_state(version: int) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Accumulate", ["total", "x"], ["y"], "adding", domain="acme")
    total = helper.make_tensor("total", TensorProto.FLOAT, [4], [0.0] * 4)
    graph = helper.make_graph([node], "m", [x], [y], [total])
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("acme", version)]
    proto = helper.make_model(graph, opset_imports=versions, ir_version=8)
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize("version", [1, 2])
def test_an_operator_changes_states_as_its_version_says(version: int) -> None:
    declare_accumulate()
    model = with_state(version)
    one = np.ones(4, np.float32)
    with ap.Executor(ap.load(model, parameters="total")) as executor:
        for number in range(1, 4):
            outputs = executor.run({"x": one}, verify=number == 3)
            np.testing.assert_array_equal(outputs["y"], number * version * one)
    with raises("InvalidEffect", match="node 'adding': it mutates 'total', which is not a state"):
        ap.Executor(ap.load(model))


# Devices call NumPy's kernel of an operator that has no states.
@pytest.mark.parametrize(
    ("target", "has_state"), [("c-code", False), ("c-code", True), ("cupy", True)]
)
def test_a_runner_without_the_operator_names_the_node(
    target: str, has_state: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declare()
    declare_accumulate()
    path = model(tmp_path / "m.onnx")
    if has_state:
        path.write_bytes(with_state(1))
    assert main(["plan", str(path), "--target", target]) == 3
    said = capsys.readouterr().err
    assert said.startswith("arenaplan: UnsupportedOp: node 'adding'" if has_state else
                           "arenaplan: UnsupportedOp: node 'scaling'")  # fmt: skip


def test_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "operators-of-your-own.md"
    snippets.run_page(page)
    assert capsys.readouterr().out.splitlines() == ["64.0", "[8. 8. 8.]"]
    (source,) = [block.text for block in snippets.blocks_of(page.read_text()) if block.title]
    body = source.partition("def scale")[2].partition("if __name__")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20
    assert main(["run", "scaled.onnx"]) == 0
