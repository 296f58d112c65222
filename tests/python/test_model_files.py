"""Graph and model files, and the files of the graph runtimes of NNVM and TVM."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import (
    InvalidOption,
    NotAModel,
    UnboundDim,
    UnknownDim,
)
from arenaplan.cli import main
from dynamic_models import attention, convolutions
from models import model as onnx_model
from models import node
from raising import raises


def sample() -> ap.Graph:
    """Return a graph with every effect that Python can declare."""
    graph = ap.Graph("sample")
    x = graph.input("x", (4, 8), alignment=32)
    w = graph.constant("w", (8, 8))
    s = graph.state("s", (4, 8), space="slow")
    (y,) = graph.node(
        "MatMul",
        [x, w, s, None],
        [("y", (4, 8), "float32")],
        in_place=[(0, 0)],
        flows=[(0, 4, (0,))],
        loads=[1],
        mutates=[2],
        ignores=[1],
        overlaps=[(0, 0, 16)],
        workspaces=[[(128, 0.1), (64, 1.5)]],
    )
    (z,) = graph.node("Slice", [y], [("z", (2, 8), "float32")], views=[(0, 0, 64)], after=[0])
    graph.output(z)
    return graph


def layer(sizes: Mapping[str, object]) -> ap.Graph:
    graph = ap.Graph("layer")
    batch = sizes["batch"]
    assert isinstance(batch, int)
    x = graph.input("x", (batch, 64))
    (y,) = graph.node("MatMul", [x], [("y", (batch, 16), "float32")])
    graph.output(y)
    return graph


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


# -- graphs ----------------------------------------------------------------------


def test_a_graph_survives_its_file(tmp_path: Path) -> None:
    graph = sample()
    graph.save(tmp_path / "sample.graph.json")
    again = ap.Graph.load(tmp_path / "sample.graph.json")
    assert again.to_json() == graph.to_json()
    assert again.digest == graph.digest
    assert (again.inputs, again.outputs, again.name) == (graph.inputs, graph.outputs, graph.name)
    for name in ("values", "nodes"):
        for one, other in zip(getattr(again, name), getattr(graph, name), strict=True):
            fields = {field for field in one.__slots__ if field != "alignment"}
            assert all(getattr(one, field) == getattr(other, field) for field in fields), one
    assert ap.plan(again).to_json() == ap.plan(graph).to_json()
    # It can be changed, too.
    again.output(again.find("y").index)
    assert again.digest != graph.digest


def test_graph_files_obey_the_published_schema() -> None:
    schema = json.loads(ap.planner.graph_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(sample().to_json())
    jsonschema.validate(document, schema)
    for field in ("op", "inputs"):
        broken = json.loads(sample().to_json())
        del broken["nodes"][0][field]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)
        with raises("GraphCorrupt", match=field):
            ap.Graph.from_json(json.dumps(broken))
    # Element types are all those of the core.
    known = schema["properties"]["values"]["items"]["properties"]["dtype"]["enum"]
    for dtype in known:
        graph = ap.Graph()
        graph.output(graph.input("x", (8,), dtype))
        assert ap.Graph.from_json(graph.to_json()).values[0].dtype == dtype


def test_published_schemas_are_those_in_the_repository() -> None:
    folder = Path(__file__).parents[2] / "schema"
    assert (folder / "graph.schema.json").read_text() == ap.planner.graph_schema()
    assert (folder / "model.schema.json").read_text() == ap.planner.model_schema()


def test_a_graph_with_more_than_python_declares_keeps_it_and_cannot_be_changed() -> None:
    document = json.loads(sample().to_json())
    del document["digest"], document["checksum"]
    document["values"][0]["pin"] = 64
    graph = ap.Graph.from_json(json.dumps(document))
    assert json.loads(graph.to_json())["values"][0]["pin"] == 64
    assert ap.plan(graph)["x"].offset == 64
    with pytest.raises(InvalidOption, match="cannot be changed"):
        graph.input("more", (1,))
    with pytest.raises(InvalidOption, match="cannot be changed"):
        graph.output(0)


def test_damage_is_an_error_of_ours() -> None:
    text = sample().to_json()
    for damaged in (text[:-30], text.replace("MatMul", "MatMux"), "", "[]", "{}"):
        with raises("GraphCorrupt"):
            ap.Graph.from_json(damaged)
    with pytest.raises(NotAModel):
        ap.load(b'{"format": "x"}')
    with pytest.raises(NotAModel, match="--with-graph"):
        ap.load(ap.plan(sample()).to_json().encode())


def test_the_command_line_writes_and_reads_graphs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, exported = tmp_path / "net.onnx", tmp_path / "net.graph.json"
    original.write_bytes(attention().SerializeToString())
    bind = ("--bind", "batch=2", "--bind", "seq=3")
    assert run("export", original, "--to", "graph", *bind, "-o", exported) == 0
    graph = ap.load(exported)
    assert graph.digest == ap.load(original, bind={"batch": 2, "seq": 3}).digest
    first = exported.read_bytes()
    assert run("export", exported, "--to", "graph", "-o", exported) == 0
    assert exported.read_bytes() == first
    plan = tmp_path / "plan.json"
    assert run("plan", exported, "-o", plan) == 0
    assert run("check", exported, plan) == 0
    assert run("check", original, plan, *bind) == 0
    for command in ("inspect", "explain"):
        assert run(command, exported) == 0
    assert run("export", exported, "--to", "csv", "-o", tmp_path / "plan.csv") == 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(first)))
    assert run("plan", "-", "--json") == 0
    assert json.loads(capsys.readouterr().out)["digest"] == graph.digest
    assert run("plan", exported, "--bind", "batch=1") == 2
    assert run("export", original, *bind, "--to", "graph", "--budget", "1", "-o", "-") == 2


def test_targets_with_kernels_refuse_or_plan_a_graph_without_attributes(tmp_path: Path) -> None:
    exported = tmp_path / "net.graph.json"
    graph = ap.load(convolutions().SerializeToString(), bind={"batch": 2})
    graph.save(exported)
    for target in (target.name for target in ap.targets()):
        assert run("plan", exported, "--target", target) == (
            3 if target in ("cupy", "numpy") else 0
        ), target
        assert run("plan", exported, "--target", target, "--workspace", "none") == 0, target


# -- models ------------------------------------------------------------------------


def test_a_family_survives_its_file(tmp_path: Path) -> None:
    family = ap.plan_family(layer, bind={"batch": range(1, 9)}, target="nodes")
    model = family.to_model()
    model.save(tmp_path / "model.plan.json")
    again = ap.Model.load(tmp_path / "model.plan.json")
    assert again.to_json() == model.to_json()
    assert list(again) == [{"batch": batch} for batch in range(1, 9)]
    for batch in range(1, 9):
        assert again.required_bytes(batch=batch) == family.required_bytes(batch=batch)
        assert again.at(batch=batch).to_json() == family.at(batch=batch).to_json()
        assert again.graph(batch=batch).digest == layer({"batch": batch}).digest
    assert again.arena_bytes == family.arena_bytes
    assert (again.name, again.dims, len(again)) == ("layer", {"batch": [*range(1, 9)]}, 8)


def test_model_files_obey_the_published_schema() -> None:
    schema = json.loads(ap.planner.model_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(
        ap.plan_family(layer, bind={"batch": [1, 2, 5]}, target="nodes").to_model().to_json()
    )
    jsonschema.validate(document, schema)
    for of, published in (
        ("graphs", ap.planner.graph_schema()),
        ("plans", ap.planner.plan_schema()),
    ):
        for template in document[of]:
            jsonschema.validate(template["document"], json.loads(published))
    del document["shapes"][0]["digest"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_columns_are_at_the_pointers_that_the_file_says() -> None:
    """A reader of twenty lines makes the documents of every shape, by RFC 6901."""
    family = ap.plan_family(
        convolutions().SerializeToString(), bind={"batch": [1, 2, 3]}, target="nodes"
    )
    model = family.to_model()
    document = json.loads(model.to_json())
    used: dict[tuple[str, int], int] = {}
    for shape in document["shapes"]:
        sizes = dict(zip(document["dims"], shape["sizes"], strict=True))
        made = {}
        for of in ("graph", "plan"):
            template = document[f"{of}s"][shape[of]]
            row = used.get((of, shape[of]), 0)
            used[of, shape[of]] = row + 1
            made[of] = json.loads(json.dumps(template["document"]))
            for pointer, column in template["numbers"].items():
                *path, last = pointer.split("/")[1:]
                place = made[of]
                for key in path:
                    place = place[int(key) if isinstance(place, list) else key]
                key = int(last) if isinstance(place, list) else last
                place[key] = template["columns"][column][row]
        assert made["graph"]["values"] == json.loads(model.graph(**sizes).to_json())["values"]
        assert made["graph"]["nodes"] == json.loads(model.graph(**sizes).to_json())["nodes"]
        plan = json.loads(model.at(**sizes).to_json())
        for field in ("spaces", "values", "steps", "workspaces"):
            assert made["plan"][field] == plan[field], (sizes, field)
        assert plan["digest"] == shape["digest"]


def test_shapes_are_found_or_named(tmp_path: Path) -> None:
    model = ap.plan_family(layer, bind={"batch": [1, 2, 8]}, target="nodes").to_model()
    assert model.padded(batch=3) == {"batch": 8}
    with raises("ShapeNotPlanned", match=r"batch=3 .* nearest is batch=2"):
        model.required_bytes(batch=3)
    with raises("ShapeNotPlanned"):
        model.padded(batch=9)
    with pytest.raises(UnknownDim, match="'bacth'"):
        model.at(bacth=1)
    with pytest.raises(UnboundDim, match="'batch'"):
        model.graph()


def test_whole_shapes_have_a_dimension_per_axis() -> None:
    image = onnx_model([node("Relu", "x", "y")], {"x": (None, None)})
    family = ap.plan_family(image.SerializeToString(), bind={"x": [(2, 3), (4, 5)]})
    model = family.to_model()
    assert list(model) == [{"x[0]": 2, "x[1]": 3}, {"x[0]": 4, "x[1]": 5}]
    assert model.padded(**{"x[0]": 3, "x[1]": 1}) == {"x[0]": 4, "x[1]": 5}


def test_the_command_line_writes_and_checks_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, file = tmp_path / "net.onnx", tmp_path / "net.plan.json"
    original.write_bytes(attention().SerializeToString())
    bind = ("--bind", "batch=1..3", "--bind", "seq=2,5")
    assert run("plan", original, *bind, "-o", file, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    model = ap.Model.load(file)
    assert len(model) == report["shapes"] == 6
    for row in report["required"]:
        assert model.required_bytes(**row["bind"]) == row["arena_bytes"]
    assert run("check", file) == 0
    assert "valid: 6 shapes" in capsys.readouterr().out
    assert run("check", original, file, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["shapes"]) == 6
    # One shape of it is a graph.
    assert run("plan", file, "--bind", "batch=2", "--bind", "seq=5", "--json") == 0
    digest = json.loads(capsys.readouterr().out)["digest"]
    assert digest == model.graph(batch=2, seq=5).digest
    assert run("plan", file) == 2
    # The plans of another model.
    other = tmp_path / "other.onnx"
    other.write_bytes(convolutions().SerializeToString())
    assert run("check", other, file) in (1, 2)
    changed = tmp_path / "changed.onnx"
    nodes = [node("Relu", "x", "y")]
    changed.write_bytes(onnx_model(nodes, {"x": ("batch", "seq", 8)}).SerializeToString())
    assert run("check", changed, file) == 1
    assert "batch=1 seq=2" in capsys.readouterr().err
    damaged = tmp_path / "damaged.plan.json"
    damaged.write_text(file.read_text().replace('"sizes":[1,2]', '"sizes":[1,1]'))
    assert run("check", damaged) == 2
    with raises("ModelCorrupt"):
        ap.Model.load(damaged)
    damaged.write_text(file.read_text()[:100])
    capsys.readouterr()
    assert run("check", damaged) == 2
    assert "no JSON" in capsys.readouterr().err


def test_one_plan_with_its_graph_is_a_model(tmp_path: Path) -> None:
    original, file = tmp_path / "net.onnx", tmp_path / "net.plan.json"
    original.write_bytes(attention().SerializeToString())
    bind = ("--bind", "batch=2", "--bind", "seq=5")
    assert run("plan", original, *bind, "--with-graph", "-o", file) == 0
    model = ap.Model.load(file)
    assert list(model) == [{"batch": 2, "seq": 5}]
    assert run("plan", original, *bind, "-o", file) == 0
    assert model.at().to_json() == ap.Plan.load(file).to_json(), "without it, a plan file"
    assert run("plan", original, *bind, "--with-graph") == 2


def test_workspaces_of_kernels_are_in_the_file(tmp_path: Path) -> None:
    """A plan of the NumPy target is checked without the package that declares scratch memory."""
    family = ap.plan_family(convolutions().SerializeToString(), bind={"batch": [1, 3]})
    assert family.target.name == "numpy"
    assert any(plan.workspaces for _, plan in family.planned)
    model = ap.Model.from_json(family.to_model().to_json())
    assert model.required_bytes(batch=3) == family.required_bytes(batch=3)
    with raises("PlanMismatch"):
        model.at(batch=3).check(layer({"batch": 3}))


def test_equal_models_give_equal_bytes_in_other_processes(tmp_path: Path) -> None:
    original = tmp_path / "net.onnx"
    original.write_bytes(attention().SerializeToString())
    files = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}.plan.json"
        command = [sys.executable, "-m", "arenaplan", "plan", str(original), "-o", str(file)]
        command += ["--bind", "batch=1,2", "--bind", "seq=3"]
        subprocess.run(command, check=True, env={"PYTHONHASHSEED": seed}, capture_output=True)
        files.append(file.read_bytes())
    assert files[0] == files[1]


# -- graph runtimes -----------------------------------------------------------------


def test_runtime_files_are_graphs_and_graphs_runtime_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, exported = tmp_path / "net.onnx", tmp_path / "net.json"
    original.write_bytes(convolutions().SerializeToString())
    bind = ("--bind", "batch=2")
    assert run("export", original, "--to", "nnvm", *bind, "-o", exported) == 0
    document = json.loads(exported.read_text())
    operators = [row["attrs"]["func_name"] for row in document["nodes"] if row["op"] != "null"]
    graph = ap.load(original, bind={"batch": 2})
    assert operators == [graph.nodes[index].op for index in graph.core.order]
    again = ap.load(exported)
    assert [row.op for row in again.nodes] == operators
    shapes = {value.name: value.shape for value in graph.values}
    assert {value.name: tuple(value.shape) for value in again.values} == shapes
    weights = [value.name for value in graph.values if value.kind == "constant"]
    constant = ap.formats.from_runtime_json(exported.read_text(), parameters=weights)
    assert ap.plan(constant).arena_bytes < ap.plan(again).arena_bytes
    capsys.readouterr()
    assert run("plan", exported, "--json") == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == len(operators)
    # Attributes are kept, and written again.
    calls = [row["attrs"] for row in document["nodes"] if "attrs" in row]
    assert any("pads" in attributes for attributes in calls)
    text = ap.classic.runtime_json(constant, ap.classic.share_storage(constant))
    assert [row["attrs"] for row in json.loads(text)["nodes"] if "attrs" in row] == calls


def test_versions_are_mutations_of_states() -> None:
    graph = ap.Graph()
    x, s = graph.input("x", (8,)), graph.state("s", (8,))
    (y,) = graph.node("Read", [x, s], [("y", (8,), "float32")])
    (z,) = graph.node("Update", [s, y], [("z", (8,), "float32")], mutates=[0])
    graph.output(z)
    text = ap.classic.runtime_json(graph, ap.classic.share_storage(graph))
    again = ap.formats.from_runtime_json(text)
    assert [value.kind for value in again.values] == [value.kind for value in graph.values]
    assert again.nodes[1].effects.mutates == (0,)
    assert ap.classic.runtime_json(again, ap.classic.share_storage(again)) == text
    document = json.loads(text)
    late = next(row for row in document["nodes"] if row["name"] == "z")
    late["inputs"][1][2] = 1
    with raises("StorageError", match="'z' overwrites 'y'"):
        ap.formats.from_runtime_json(json.dumps(document))


def test_results_in_the_block_of_an_operand_are_in_place() -> None:
    graph = ap.Graph()
    x = graph.input("x", (64,))
    (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    (z,) = graph.node("Relu", [y], [("z", (64,), "float32")], in_place=[(0, 0)])
    graph.output(z)
    again = ap.formats.from_runtime_json(
        ap.classic.runtime_json(graph, ap.classic.share_storage(graph))
    )
    assert again.nodes[1].effects.in_place == (ap.graph.InPlace(0, 0),)
    assert ap.plan(again).arena_bytes == ap.plan(graph).arena_bytes == 512


def test_other_json_is_refused_with_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with raises("StorageError", match="JSON form"):
        ap.load(b'{"nodes": [], "heads": []}')
    with pytest.raises(NotAModel, match="no JSON"):
        ap.load(b"{")


def test_attributes_survive_files_and_are_no_part_of_digests() -> None:
    def graph(**attributes: object) -> ap.Graph:
        graph = ap.Graph("one")
        x = graph.input("x", (4,))
        spec = ("y", (4,), "float32")
        (y,) = graph.node("Op", [x], [spec], attributes=attributes, domain="own", version=3)
        graph.output(y)
        return graph

    kept = {"whole": -3, "real": 1.0, "text": "é", "list": (1, 2), "reals": (0.5, 2.0), "none": ()}
    lost = {"tensor": np.ones(3), "mixed": (1, "a"), "infinite": float("inf"), "huge": 1 << 63}
    original = graph(**kept, flag=True, texts=["a"], **lost)
    (found,) = ap.Graph.from_json(original.to_json()).nodes
    assert (found.domain, found.version) == ("own", 3)
    assert found.attributes == {**kept, "flag": 1, "texts": ("a",), **dict.fromkeys(lost)}
    assert type(found.attributes["real"]) is float
    again = ap.Graph.from_json(original.to_json())
    assert again.to_json() == original.to_json()
    jsonschema.validate(json.loads(original.to_json()), json.loads(ap.planner.graph_schema()))
    assert original.digest == graph().digest
    assert graph().to_json() != graph(axis=1).to_json()
    # A graph that is changed is written with its attributes, too.
    again.output(0)
    assert '"huge":null' in again.to_json()


def test_check_compares_operators_with_those_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(name: str, op: str, alpha: float) -> Path:
        nodes = [node("Relu", "x", "a"), node(op, "a", "y", name="leak", alpha=alpha)]
        path = tmp_path / name
        path.write_bytes(onnx_model(nodes, {"x": ("batch", 8)}).SerializeToString())
        return path

    original, file = write("net.onnx", "LeakyRelu", 0.25), tmp_path / "net.plan.json"
    assert run("plan", original, "--bind", "batch=1,2", "-o", file) == 0
    assert run("check", original, file) == 0
    capsys.readouterr()
    # The plans of all three models are the same; what kernels compute is not.
    assert run("check", write("other.onnx", "LeakyRelu", 0.5), file) == 1
    error = capsys.readouterr().err
    assert "'leak'" in error
    assert "alpha=0.25" in error
    assert "alpha=0.5" in error
    assert run("check", write("third.onnx", "Elu", 0.25), file) == 1
    # A file of before there were attributes says so.
    document = json.loads(file.read_text())
    older = document["graphs"][0]["document"]
    del older["checksum"], document["checksum"]
    for row in older["nodes"]:
        row.pop("attributes", None)
        row.pop("version")
    text = json.dumps(document, separators=(",", ":"))
    document["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(document))
    capsys.readouterr()
    assert run("check", original, file) == 0
    assert "no attributes" in capsys.readouterr().err
