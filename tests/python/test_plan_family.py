"""One arena for every shape of a model: bounds that hold, and plans for each shape."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.formats.onnx import load_onnx, open_onnx
from dynamic_models import attention, branching, convolutions, hidden, shrinking, unnamed
from raising import raises

BATCHES = {"batch": range(1, 13)}
TWO = {"batch": range(1, 5), "seq": [1, 3, 8, 20]}
CASES = {
    "convolutions": (convolutions(), BATCHES),
    "attention": (attention(), TWO),
    "shrinking": (shrinking(), BATCHES),
    "branching": (branching(), {"seq": range(1, 25)}),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[onnx.ModelProto, Mapping]:
    return CASES[request.param]


def combinations(bind: Mapping) -> list[dict[str, int]]:
    """Return every combination of sizes, written out."""
    return [dict(zip(bind, sizes, strict=True)) for sizes in itertools.product(*bind.values())]


# -- the bound ---------------------------------------------------------------------------


@pytest.mark.parametrize("workspace", ["none", "auto"])
def test_the_arena_holds_a_plan_of_every_shape(case: tuple, workspace: str) -> None:
    proto, bind = case
    family = ap.plan_family(open_onnx(proto), bind, workspace=workspace, target="ideal")
    assert len(family) == len(combinations(bind)) == len(list(family))
    for sizes in combinations(bind):
        graph = load_onnx(proto, bind=sizes)
        for plan in (family.at(**sizes), family.fitted(**sizes)[1]):
            plan.check(graph)
            assert plan.arena_bytes <= family.arena_bytes
        assert (
            family.required_bytes(**sizes)
            <= ap.plan(graph, workspace=workspace, target="ideal").arena_bytes
        )


def test_the_arena_is_what_the_hungriest_shape_needs(case: tuple) -> None:
    proto, bind = case
    family = ap.plan_family(open_onnx(proto), bind, target="ideal")
    needs = [ap.plan(load_onnx(proto, bind=sizes), target="ideal") for sizes in combinations(bind)]
    assert family.arena_bytes == max(plan.arena_bytes for plan in needs)
    assert family.lower_bound == max(plan.lower_bound for plan in needs)
    assert (family.status, family.gap) == ("optimal", 0.0)


def test_the_largest_shape_need_not_need_most() -> None:
    family = ap.plan_family(open_onnx(shrinking()), BATCHES, target="ideal")
    assert family.required_bytes(batch=1) > 2 * family.required_bytes(batch=12)
    assert family.arena_bytes == family.required_bytes(batch=1)


def test_shapes_with_other_nodes_get_plans_of_their_own() -> None:
    family = ap.plan_family(open_onnx(branching()), {"seq": range(1, 25)}, target="ideal")
    assert [sizes for sizes, _ in family.planned] == [{"seq": 24}, {"seq": 10}]
    assert [node.op for node in family.graph(seq=10).nodes] == ["Neg"]
    assert [node.op for node in family.graph(seq=11).nodes] == ["MatMul", "Relu"]


def test_one_search_serves_all_shapes_that_differ_in_sizes_alone() -> None:
    family = ap.plan_family(
        open_onnx(attention()), {"batch": range(1, 9), "seq": range(1, 33)}, target="ideal"
    )
    assert [sizes for sizes, _ in family.planned] == [{"batch": 8, "seq": 32}]


def test_equal_calls_give_equal_families(case: tuple) -> None:
    proto, bind = case
    first, second = (ap.plan_family(open_onnx(proto), bind, target="ideal") for _ in range(2))
    assert [(s, p.to_json()) for s, p in first.planned] == [
        (s, p.to_json()) for s, p in second.planned
    ]
    reverse = {name: list(reversed(sizes)) for name, sizes in bind.items()}
    assert (
        ap.plan_family(open_onnx(proto), reverse, target="ideal").arena_bytes == first.arena_bytes
    )


def test_options_are_those_of_plan() -> None:
    proto = convolutions()
    family = ap.plan_family(
        open_onnx(proto), BATCHES, alignment=256, optimize="all,-in-place", target="ideal"
    )
    assert family.alignment == 256
    assert family.options["in_place"] is False
    graph = load_onnx(proto, bind={"batch": 3})
    assert (
        family.required_bytes(batch=3)
        == ap.plan(graph, alignment=256, optimize="all,-in-place", target="ideal").arena_bytes
    )
    with pytest.raises(TypeError, match="unknown"):
        ap.plan_family(open_onnx(proto), BATCHES, unknown=1, target="ideal")


def test_memory_spaces_are_bounded_one_by_one() -> None:
    def graph(sizes: Mapping) -> ap.Graph:
        graph = ap.Graph()
        n = sizes["n"]
        x = graph.input("x", (64 * n,), "uint8")
        y = graph.value("y", (64 * (5 - n),), "uint8", space="fast")
        graph.node("A", [x], [y])
        graph.output(y)
        return graph

    family = ap.plan_family(graph, {"n": range(1, 5)}, target="ideal")
    # Each shape has 5 * 64 bytes in all, but not in the same spaces.
    assert {family.required_bytes(n=n) for n in range(1, 5)} == {320}
    assert family.arena_bytes == 2 * 256
    with pytest.raises(errors.UnsupportedModel, match="several memory spaces"):
        family.commit()


sizes = st.one_of(
    st.builds(lambda a, b: lambda n: a * n + b, st.integers(0, 300), st.integers(0, 300)),
    st.builds(lambda a: lambda n: a // n, st.integers(0, 3000)),
    st.builds(lambda a: lambda n: a * (n % 3), st.integers(0, 900)),
)
effects = st.sampled_from(["none", "in_place", "views"])
nodes = st.lists(
    st.tuples(sizes, effects, st.lists(st.integers(0, 30), min_size=1, max_size=3), st.booleans()),
    max_size=12,
)


@given(sizes, nodes, st.integers(1, 9))
def test_the_bound_holds_for_random_graphs_and_is_some_shapes_own(
    first: Callable, nodes: list[tuple], largest: int
) -> None:
    def build(bind: Mapping) -> ap.Graph:
        """Return a graph whose sizes depend on n in any way, and sometimes its nodes."""
        n, graph = bind["n"], ap.Graph()
        values = [graph.input("x", (first(n),), "uint8")]
        for index, (size, effect, operands, is_odd) in enumerate(nodes):
            if is_odd and n % 2 == 0:
                continue
            inputs = [values[operand % len(values)] for operand in operands]
            of_first = graph.values[inputs[0]].shape[0]
            nbytes = size(n) if effect == "none" else of_first
            allowed = {} if effect == "none" else {effect: [(0, 0)]}
            (value,) = graph.node("Op", inputs, [(f"v{index}", (nbytes,), "uint8")], **allowed)
            values.append(value)
        graph.output(values[-1])
        return graph

    family = ap.plan_family(build, {"n": range(1, largest + 1)}, alignment=1, target="ideal")
    alone = [
        ap.plan(build({"n": n}), alignment=1, target="ideal").arena_bytes
        for n in range(1, largest + 1)
    ]
    needs = [family.required_bytes(n=n) for n in range(1, largest + 1)]
    assert all(need <= own for need, own in zip(needs, alone, strict=True))
    assert family.arena_bytes == max(needs)
    for n in range(1, largest + 1):
        graph, plan = family.fitted(n=n)
        plan.check(graph)
        assert plan.arena_bytes <= family.arena_bytes


# -- what can be asked -------------------------------------------------------------------


def test_numbers_lists_and_whole_shapes_can_be_bound() -> None:
    family = ap.plan_family(open_onnx(attention()), {"batch": 2, "seq": {8, 16}}, target="ideal")
    assert family.bind == {"batch": [2], "seq": [8, 16]}
    assert family.required_bytes(seq=8) == family.required_bytes(batch=2, seq=8)
    shapes = ap.plan_family(
        open_onnx(unnamed()), {"x": [(4, 16), (8, 16), (4, 16)]}, target="ideal"
    )
    assert list(shapes) == [{"x": (8, 16)}, {"x": (4, 16)}]
    assert shapes.required_bytes(x=(4, 16)) == 2 * 4 * 16 * 4
    one = ap.plan_family(open_onnx(unnamed()), {"x": (8, 16)}, target="ideal")
    assert (len(one), one.required_bytes()) == (1, one.arena_bytes)


def test_a_shape_that_was_not_planned_is_refused() -> None:
    family = ap.plan_family(open_onnx(attention()), TWO, target="ideal")
    with raises("ShapeNotPlanned", match=r"batch=5 .*1\.\.4"):
        family.at(batch=5, seq=8)
    with raises("ShapeNotPlanned", match="1,3,8,20"):
        family.at(batch=1, seq=9)
    with pytest.raises(errors.UnboundDim, match="'seq'"):
        family.at(batch=1)
    with pytest.raises(errors.UnknownDim, match="'sequence'"):
        family.at(batch=1, sequence=8)
    with pytest.raises(TypeError):
        family.at(batch=True, seq=8)


@pytest.mark.parametrize("sizes", [[], range(3, 3), set()])
def test_no_sizes_are_an_error(sizes: object) -> None:
    with pytest.raises(errors.InvalidOption, match="'batch'"):
        ap.plan_family(open_onnx(convolutions()), {"batch": sizes}, target="ideal")


@pytest.mark.parametrize("sizes", [[1.5], [True], ["1"]])
def test_what_is_no_size_is_a_type_error(sizes: object) -> None:
    with pytest.raises(TypeError, match="whole number"):
        ap.plan_family(open_onnx(convolutions()), {"batch": sizes}, target="ideal")


def test_an_error_names_the_shape_that_it_happened_at() -> None:
    proto = branching()
    proto.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(np.ones((9, 9)), "w"))
    with pytest.raises(errors.PlannerError, match=r"^with seq=12: the MatMul node"):
        ap.plan_family(open_onnx(proto), {"seq": range(1, 13)}, target="ideal")
    with pytest.raises(errors.UnboundDim, match="'seq'"):
        ap.plan_family(open_onnx(attention()), BATCHES, target="ideal")


def test_too_many_shapes_are_refused_at_once() -> None:
    started = time.process_time()
    with raises("TooManyShapes", match=r"batch \(64\) seq \(512\) are 32,768 shapes"):
        ap.plan_family(
            open_onnx(attention()), {"batch": range(1, 65), "seq": range(1, 513)}, target="ideal"
        )
    for sizes in (range(10**30), range(0, 10**9, 3)):
        with raises("TooManyShapes"):
            ap.plan_family(open_onnx(convolutions()), {"other": [], "batch": sizes}, target="ideal")
    with raises("TooManyShapes", match="at most 11 "):
        ap.plan_family(open_onnx(convolutions()), BATCHES, max_shapes=11, target="ideal")
    assert ap.plan_family(open_onnx(convolutions()), BATCHES, max_shapes=12, target="ideal")
    assert time.process_time() - started < 5


def test_progress_is_told_and_can_stop_it() -> None:
    told: list[tuple[int, int]] = []
    ap.plan_family(
        open_onnx(convolutions()), BATCHES, on_progress=lambda *p: told.append(p), target="ideal"
    )
    assert told == [(done, 12) for done in range(1, 13)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ap.plan_family(open_onnx(convolutions()), BATCHES, on_progress=stop, target="ideal")


def test_a_capacity_that_some_shape_exceeds_is_an_error_with_the_plans() -> None:
    proto = convolutions()
    enough = ap.plan_family(open_onnx(proto), BATCHES, target="ideal").arena_bytes
    assert (
        ap.plan_family(open_onnx(proto), BATCHES, budget=enough, target="ideal").arena_bytes
        == enough
    )
    with pytest.raises(errors.CapacityExceeded, match="with batch=12: ") as caught:
        ap.plan_family(open_onnx(proto), BATCHES, budget=enough - 1, target="ideal")
    family = caught.value.family
    assert family is not None
    assert (family.arena_bytes, family.status) == (enough, "unknown")
    assert caught.value.plan is not None


# -- the command line --------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "attention.onnx"
    onnx.save(attention(), path)
    return path


def test_the_command_plans_ranges_and_buckets(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ideal = ["plan", str(file), "--target", "ideal"]
    command = [*ideal, "--bind", "batch=1..4", "--bind", "seq=16,32"]
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    document = json.loads(printed.out)
    family = ap.plan_family(file, {"batch": range(1, 5), "seq": [16, 32]}, target="ideal")
    assert document["bind"] == {"batch": [1, 2, 3, 4], "seq": [16, 32]}
    assert document["shapes"] == len(document["required"]) == 8
    assert document["arena_bytes"] == document["lower_bound"] == family.arena_bytes
    assert (document["status"], document["gap"], document["alignment"]) == ("optimal", 0, 64)
    assert [row["bind"] for row in document["planned"]] == [{"batch": 4, "seq": 32}]
    for row in document["required"]:
        assert main([*ideal, "--json", *single(row["bind"])]) == 0
        alone = json.loads(capsys.readouterr().out)
        assert {key: alone[key] for key in row if key != "bind"} == {
            key: value for key, value in row.items() if key != "bind"
        }
    assert main(command) == 0
    out = capsys.readouterr().out
    assert f"{family.arena_bytes:,} bytes" in out
    assert "for every shape, proven minimal" in out
    assert f"{family.required_bytes(batch=2, seq=16):,}  batch=2 seq=16" in out


def single(sizes: Mapping[str, int]) -> list[str]:
    """Return one shape as options of the command."""
    return [word for name, size in sizes.items() for word in ("--bind", f"{name}={size}")]


def test_long_tables_are_cut(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", str(file), "--bind", "batch=1..9,20", "--bind", "seq=8..11"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "24 more, see --json" in out
    assert out.rstrip().endswith("batch=20 seq=11")
    assert main([*command[:2], "--bind", "batch=1..40", "--bind", "seq=1,2", "--json"]) == 0
    required = json.loads(capsys.readouterr().out)["required"]
    assert [row["bind"] for row in required] == [{"batch": 1, "seq": 1}, {"batch": 40, "seq": 2}]


@pytest.mark.parametrize(
    "bind", ["batch=", "batch=1..", "batch=4..1", "batch=1,,2", "=1..2", "batch=1..2..3", "1..2"]
)
def test_ranges_that_make_no_sense_are_usage_errors(
    file: Path, capsys: pytest.CaptureFixture[str], bind: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", str(file), "--bind", bind])
    assert caught.value.code == 2
    assert "is not NAME=NUMBER" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--bind", "batch=1..100000000000"], 2, "TooManyShapes"),
        (["--max-shapes", "3"], 2, "TooManyShapes"),
        (["--with-graph"], 2, "InvalidOption"),
        (["--budget", "100"], 1, "CapacityExceeded"),
    ],
)
def test_what_does_not_go_with_ranges_says_so(
    file: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, message: str
) -> None:
    command = ["plan", str(file), "--bind", "batch=1..4", "--bind", "seq=8", *options]
    assert main(command) == code
    printed = capsys.readouterr()
    assert f"arenaplan: {message}: " in printed.err
    assert ("for every shape" in printed.out) == (message == "CapacityExceeded")


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_other_commands_take_one_shape(
    file: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, str(file), *single({"batch": 2, "seq": 8})]) == 0
    assert main([command, str(file), "--bind", "batch=1..2", "--bind", "seq=8"]) == 2
    assert "only 'plan' takes several numbers" in capsys.readouterr().err


def test_interrupting_the_command_ends_it(file: Path) -> None:
    command = [sys.executable, "-m", "arenaplan", "plan", str(file)]
    sizes = ["--bind", "batch=1..1000", "--bind", "seq=1..1000", "--max-shapes", "1000000"]
    process = subprocess.Popen([*command, *sizes], stderr=subprocess.PIPE, env=os.environ)
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err.strip()) == (130, b"interrupted")


def test_shapes_without_a_name_in_any_input_can_be_planned() -> None:
    family = ap.plan_family(open_onnx(hidden()), {"n": 40, "m": [1, 2, 3]}, target="ideal")
    assert family.required_bytes(m=3) > family.required_bytes(m=1)
    with pytest.raises(errors.InvalidOption, match="n=40 m=3 and with n=40 m=2"):
        family.check_inputs()


# -- sizes that depend on each other ---------------------------------------------------------------


def step_model(total: str) -> bytes:
    """Return one step of attention with a mask, whose length has a name of its own."""
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    make = onnx.helper.make_node
    nodes = [
        make("Concat", ["past", "k"], ["keys"], axis=1),
        make("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        make("MatMul", ["q", "turned"], ["scores"]),
        make("Add", ["scores", "mask"], ["masked"]),
        make("Softmax", ["masked"], ["p"]),
        make("MatMul", ["p", "keys"], ["y"]),
    ]
    inputs = [info(name, kind, [1, 1, 8]) for name in ("q", "k")]
    inputs += [info("past", kind, [1, "past", 8]), info("mask", kind, [1, 1, total])]
    outputs = [info("y", kind, [1, 1, 8]), info("keys", kind, [1, total, 8])]
    graph = onnx.helper.make_graph(nodes, "step", inputs, outputs)
    sets = [onnx.helper.make_opsetid("", 17)]
    made: bytes = onnx.helper.make_model(
        graph, opset_imports=sets, ir_version=8
    ).SerializeToString()
    return made


PAST = range(8)


@pytest.mark.parametrize(
    ("total", "bind"),
    [
        ("total", {"past": PAST, "total": range(1, 9)}),
        ("total", {"past": PAST, "total": "past + 1"}),
        ("total", {"total": "1+past", "past": PAST}),
        ("total", [{"past": n, "total": n + 1} for n in PAST]),
        ("total", [{"total": "past + 1", "past": n} for n in PAST]),
        ("past + 1", {"past": PAST}),
        ("past+2*1-1", {"past": PAST}),
    ],
    ids=["ranges", "equation", "equation first", "list", "list of equations", "name", "formula"],
)
def test_sizes_that_depend_on_each_other_are_solved(total: str, bind: Any) -> None:
    model = step_model(total)
    family = ap.plan_family(model, bind=bind)
    assert len(family) == len(list(family)) == 8
    assert {sizes["past"] for sizes in family} == set(PAST)
    left_out = 56 if isinstance(bind, dict) and isinstance(bind.get("total"), range) else 0
    assert len(family.left_out) == left_out
    one = ap.plan(ap.load(model, bind={"past": 7, **({} if "+" in total else {"total": 8})}))
    named = {"total": 8} if isinstance(bind, list) or left_out else {}
    assert family.at(past=7, **named).arena_bytes == one.arena_bytes == family.arena_bytes
    with ap.run.DynamicExecutor(family) as executor:
        for past in (0, 3, 7):
            inputs = {
                "q": (1, 1, 8),
                "k": (1, 1, 8),
                "past": (1, past, 8),
                "mask": (1, 1, past + 1),
            }
            feeds = {name: np.ones(shape, np.float32) for name, shape in inputs.items()}
            assert executor.run(feeds)["keys"].shape == (1, past + 1, 8)


def test_combinations_that_are_not_planned_are_refused() -> None:
    family = ap.plan_family(step_model("total"), bind={"past": PAST, "total": range(1, 9)})
    with raises("ShapeNotPlanned", match="past=7 total=3"):
        family.at(past=7, total=3)
    with pytest.raises(errors.ShapeMismatch, match="past=7 total=3"):
        ap.plan_family(step_model("total"), bind={"past": [6, 7], "total": [3]})
    for bind in ({"past": PAST, "total": "past + x"}, {"past": PAST, "total": "past.real"}, []):
        with pytest.raises(errors.InvalidOption, match="bind"):
            ap.plan_family(step_model("total"), bind=bind)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="one combination has"):
        ap.plan_family(step_model("total"), bind=[{"past": 1, "total": 2}, {"past": 1}])


def test_the_command_takes_equations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.onnx"
    path.write_bytes(step_model("total"))
    assert main(["plan", str(path), "--bind", "past=0..7", "--bind", "total=past+1"]) == 0
    assert "8 shapes" in capsys.readouterr().out
    assert main(["plan", str(path), "--bind", "past=0..7", "--bind", "total=1..8"]) == 0
    assert "left out     56" in capsys.readouterr().out
    assert main(["plan", str(path), "--bind", "past=7", "--bind", "total=past+1"]) == 0
    assert main(["plan", str(path), "--bind", "past=7", "--bind", "total=pst+1"]) == 2
    assert "'pst+1'" in capsys.readouterr().err
