"""Profiles: written by `measure`, read by `plan` and `export`."""

import json
from pathlib import Path

import jsonschema
import pytest

import arenaplan as ap
import flat
from arenaplan.cli import main
from arenaplan.deploy.export.rewritten_file import isolated, operands_of
from arenaplan.tflite.reader.offline import METADATA_NAME
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.runtime import Build, total
from arenaplan.tflite.runtime.profile import OperatorProfile, Profile
from raising import raises
from tflm_models import branches, random_bytes_model, running_sum
from tflm_operators import cases, model_of


def profile_of(data: bytes, scratch: int = 0) -> Profile:
    """Return a profile as another build of the runtime might have it."""
    found = total(parse(data))
    operators = tuple(
        OperatorProfile(o.subgraph, o.position, o.name, (scratch,) if scratch else o.scratch)
        for o in found.operators
    )
    return Profile("m", "a board", "theirs", 32, found.head, 5000, 1000, found.total, operators)


def test_a_profile_is_read_as_it_was_written() -> None:
    profile = profile_of(random_bytes_model(0, scratch=True))
    assert Profile.from_json(profile.to_json()) == profile
    schema = Path(__file__).parents[2] / "schema" / "tflm-profile.schema.json"
    jsonschema.validate(json.loads(profile.to_json()), json.loads(schema.read_text()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "arenaplan/tflm-profile/2"}, "no profile of the form"),
        ({"tail": -1}, "field 'tail'"),
        ({"tail": True}, "field 'tail'"),
        ({"startup": "1"}, "field 'startup'"),
        ({"pointer": 16}, "pointer"),
        ({"name": 1}, "field 'name'"),
        ({"operators": {}}, "field 'operators'"),
        ({"operators": [1]}, "an entry of field 'operators'"),
        ({"operators": [{"subgraph": 0, "position": 0, "name": "ADD"}]}, "field 'scratch'"),
        (
            {"operators": [{"subgraph": 0, "position": 0, "name": "A", "scratch": [2**40]}]},
            "an entry of field 'scratch'",
        ),
    ],
)
def test_a_wrong_profile_is_refused(change: dict[str, object], words: str) -> None:
    document = json.loads(profile_of(random_bytes_model(0, scratch=False)).to_json())
    with raises("InvalidProfile", match=words):
        Profile.from_json(json.dumps({**document, **change}))


def test_text_that_is_no_json_is_no_profile() -> None:
    for text in ("", "[]", "{", b"\xff"):
        with raises("InvalidProfile"):
            Profile.from_json(text)


def test_a_profile_replaces_the_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file, out = (tmp_path / name for name in ("m.tflite", "p.json", "out.tflite"))
    path.write_bytes(flat.write(flat.fragmented()))
    profile = profile_of(path.read_bytes(), scratch=1600)
    file.write_text(profile.to_json())
    assert main(["plan", str(path), "--profile", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    arena = document["runtime"]
    assert (arena["tail"], arena["startup"], arena["pointer"]) == (5000, 1000, 32)
    assert arena["total"] == -(-(arena["head"] + 5000) // 16) * 16
    assert arena["accuracy"] == "measured: a board"
    assert arena["head"] > 1600
    assert document["lower_bound"] > 1600
    export = ["export", str(path), "--to", "tflm", "-o", str(out), "--profile", str(file)]
    assert main([*export, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["total_before"] == arena["total"]
    assert document["head_after"] <= document["head_before"] == arena["head"]
    # The profile is of another model, of another pointer, or for another target.
    path.write_bytes(flat.write(flat.chain("NEG")))
    assert main(["plan", str(path), "--profile", str(file)]) == 1
    assert "of another model" in capsys.readouterr().err
    assert main(["plan", str(path), "--profile", str(file), "--pointer", "64"]) == 2
    assert main(["plan", str(path), "--profile", str(file), "--target", "c"]) == 2


def test_a_profile_follows_the_operators_into_another_order(tmp_path: Path) -> None:
    path, file, out = (tmp_path / name for name in ("m.tflite", "p.json", "out.tflite"))
    path.write_bytes(flat.write(branches()))
    file.write_text(profile_of(path.read_bytes()).to_json())
    export = ["export", str(path), "--to", "tflm", "-o", str(out), "--profile", str(file)]
    assert main(export) == 0
    before, after = (parse(each.read_bytes()).subgraphs[0] for each in (path, out))
    assert before.operators != after.operators


@pytest.mark.parametrize("seed", range(4))
def test_an_operator_alone_is_a_model(seed: int) -> None:
    model = parse(random_bytes_model(seed, scratch=True))
    for position, operator in enumerate(model.subgraphs[0].operators):
        single = parse(isolated(model, 0, position, METADATA_NAME, b"plan"))
        (found,) = single.subgraphs[0].operators
        assert (found.name, found.version) == (operator.name, operator.version)
        tensors = model.subgraphs[0].tensors
        assert single.subgraphs[0].tensors == tuple(tensors[i] for i in operands_of(operator))
        for old, new in zip(operator.inputs, found.inputs, strict=True):
            assert (old is None) == (new is None)
            if old is not None and new is not None:
                assert tensors[old] == single.subgraphs[0].tensors[new]
        assert single.content(single.metadata[0].buffer) == b"plan"
        costs = [total(model).operators[position], total(single).operators[0]]
        assert costs[0].scratch == costs[1].scratch


def test_an_operator_with_operands_left_out_stays_so() -> None:
    case = next(case for case in cases() if case.name == "UNIDIRECTIONAL_SEQUENCE_LSTM")
    model = parse(model_of(case))
    single = parse(isolated(model, 0, 0, METADATA_NAME, b""))
    old, new = model.subgraphs[0].operators[0], single.subgraphs[0].operators[0]
    assert [i is None for i in new.inputs] == [i is None for i in old.inputs]
    assert total(single).scratch == total(model).scratch


def test_without_the_interpreter_the_message_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tflite_micro", None)
    path, out = tmp_path / "m.tflite", tmp_path / "p.json"
    path.write_bytes(flat.write(flat.chain("NEG")))
    assert main(["measure", str(path), "-o", str(out)]) == 3
    assert "pip install --pre tflite-micro" in capsys.readouterr().err
    assert not out.exists()
    assert main(["measure", str(tmp_path / "m.onnx")]) == 2


# -- the interpreter ---------------------------------------------------------------------


@pytest.fixture
def _interpreter() -> None:
    pytest.importorskip("tflite_micro")


@pytest.mark.usefixtures("_interpreter")
@pytest.mark.parametrize(
    "data",
    [
        flat.write(flat.fragmented()),
        running_sum(),
        random_bytes_model(3, scratch=True),
        *(
            model_of(case)
            for case in cases()
            if case.title in ("SVDF-int8", "MIRROR_PAD-int8", "UNIDIRECTIONAL_SEQUENCE_LSTM-int8")
        ),
    ],
)
def test_measured_is_what_the_formulas_say(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tmp_path / "m.tflite", tmp_path / "p.json"
    path.write_bytes(data)
    assert main(["measure", str(path), "-o", str(file)]) == 0
    said = capsys.readouterr()
    assert "warning" not in said.err
    profile, found = Profile.from_json(file.read_text()), total(parse(data))
    assert f"{profile.smallest_arena:,} bytes" in said.out
    assert (profile.head, profile.tail) == (found.head, found.tail)
    assert abs(profile.smallest_arena - found.total) <= 16
    assert [o.scratch for o in profile.operators] == [o.scratch for o in found.operators]
    measured = total(parse(data), build=Build(profile=profile))
    assert abs(measured.total - found.total) <= 16
    assert ap.plan(ap.load(path)).arena_bytes <= measured.head


@pytest.mark.usefixtures("_interpreter")
def test_a_model_that_does_not_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = flat.fragmented()
    root[1][2] = flat.code("CUSTOM", "theirs")
    path = tmp_path / "m.tflite"
    path.write_bytes(flat.write(root))
    assert main(["measure", str(path), "-o", str(tmp_path / "p.json")]) == 3
    assert "does not run the model" in capsys.readouterr().err
