"""What changed between two plans."""

import json
from pathlib import Path

import pytest

import arenaplan as ap
from arenaplan.cli import main
from arenaplan.planner.changes import diff


def plan(*sizes: int, extra: bool = False, model: str = "m") -> ap.Plan:
    graph = ap.Graph(model)
    value = graph.input("v0", (sizes[0],), "uint8")
    for index, size in enumerate(sizes[1:], start=1):
        (value,) = graph.node("Op", [value], [(f"v{index}", (size,), "uint8")])
    if extra:
        (value,) = graph.node("Op", [value], [("extra", (8,), "uint8")])
    graph.output(value)
    return ap.plan(graph, target="ideal")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    plan(64, 64, 64).save(paths[0])
    plan(64, 256, 64, extra=True).save(paths[1])
    return [str(path) for path in paths]


def test_a_plan_does_not_differ_from_itself() -> None:
    found = diff(plan(64, 64), plan(64, 64))
    assert found.changes == ()
    assert found.grew == ()


def test_every_change_is_named() -> None:
    found = diff(plan(64, 64, 64), plan(64, 256, 64, extra=True))
    kinds = {change.name: change.kind for change in found.changes}
    assert kinds["v1"] == "resized"
    assert kinds["extra"] == "added"
    assert found.changes[0].name == "v1"
    back = diff(plan(64, 256, 64, extra=True), plan(64, 64, 64))
    assert {change.name: change.kind for change in back.changes}["extra"] == "removed"
    assert [(space.before, space.after) for space in found.spaces] == [(128, 320)]
    assert [space.name for space in found.grew] == ["arena"]
    assert back.grew == ()


def test_a_value_that_lives_longer_is_rescheduled() -> None:
    def graph(late: bool) -> ap.Plan:
        graph = ap.Graph("m")
        x = graph.input("x", (64,), "uint8")
        (y,) = graph.node("Op", [x], [("y", (64,), "uint8")])
        (z,) = graph.node("Op", [y], [("z", (8,), "uint8")])
        (w,) = graph.node("Op", [z, x] if late else [z], [("w", (8,), "uint8")])
        graph.output(w)
        return ap.plan(graph, target="ideal")

    early, late = graph(late=False), graph(late=True)
    kinds = {change.name: change.kind for change in diff(early, late).changes}
    assert kinds["x"] in ("moved", "rescheduled")
    assert early["x"].live != late["x"].live


def test_the_command_prints_both_sides(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *files]) == 0
    out = capsys.readouterr().out
    assert "arena: 128 -> 320 bytes (+192)" in out
    assert "resized" in out
    assert "v1" in out
    assert main(["diff", files[0], files[0]]) == 0
    assert "no value changed its place" in capsys.readouterr().out


def test_the_command_prints_json(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *files, "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["grew"] is True
    assert document["spaces"] == [{"name": "arena", "before": 128, "after": 320}]
    (change,) = [c for c in document["changes"] if c["name"] == "extra"]
    assert (change["kind"], change["before"], change["after"]["size"]) == ("added", None, 8)


def test_growth_fails_if_asked(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *files, "--fail-on-growth"]) == 1
    assert "ArenaGrew: the arena grew: 'arena' from 128 to 320 bytes" in capsys.readouterr().err
    assert main(["diff", *reversed(files), "--fail-on-growth"]) == 0
    capsys.readouterr()
    assert main(["diff", *files, "--fail-on-growth", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["grew"] is True


def test_a_damaged_plan_is_a_typed_error(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[1]).write_text(Path(files[1]).read_text()[:-20])
    assert main(["diff", *files]) == 1
    assert "PlanCorrupt" in capsys.readouterr().err
    assert main(["diff", files[0], "absent.json"]) == 2


def test_many_changes_are_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    plan(*[64] * 100).save(paths[0])
    plan(*[65] * 100).save(paths[1])
    assert main(["diff", *paths]) == 0
    assert "and 60 more; --json lists all" in capsys.readouterr().out
