"""Plans as Python sees them: files, pickles, digests, and what is refused."""

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import arenaplan as ap
from arenaplan.base import errors
from raising import raises
from test_graph import chain


@pytest.fixture
def plan() -> ap.Plan:
    return ap.plan(chain(100, 300, 50), target="ideal")


def test_a_saved_plan_is_the_same_plan(plan: ap.Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    loaded = ap.Plan.load(path)
    assert loaded.to_json() == plan.to_json()
    loaded.check(chain(100, 300, 50))


def test_plan_files_obey_the_published_schema(plan: ap.Plan) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(ap.planner.plan_schema()))
    jsonschema.validate(json.loads(plan.to_json()), json.loads(ap.planner.plan_schema()))


def test_the_published_schema_is_the_one_in_the_repository() -> None:
    path = Path(__file__).parents[2] / "schema" / "plan.schema.json"
    assert path.read_text() == ap.planner.plan_schema()


def test_c09_a_plan_of_another_model_is_refused(plan: ap.Plan) -> None:
    with raises("PlanMismatch", match="digest"):
        plan.check(chain(100, 301, 50))


def test_c10_other_weights_make_the_same_plan() -> None:
    def graph(fill: float) -> ap.Graph:
        import numpy as np

        graph = ap.Graph()
        w = graph.constant("w", (4,), data=np.full(4, fill, np.float32))
        (y,) = graph.node("Op", [w], [("y", (4,), "float32")])
        graph.output(y)
        return graph

    ap.plan(graph(1), target="ideal").check(graph(2))


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\x89PNG\r\n", b"[]", b'"plan"', b"\xff\xfe", b"{}", b"null"]
)
def test_what_is_not_a_plan_is_corrupt(text: bytes) -> None:
    with raises("PlanCorrupt"):
        ap.Plan.from_json(text)


def test_c20_a_plan_that_cannot_be_written_leaves_the_old_file(
    plan: ap.Plan, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "plan.json"
    with raises("PlanWriteError", match=r"plan\.json"):
        plan.save(path)
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with raises("PlanWriteError"):
        plan.save(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]


def test_g05_c21_a_plan_can_be_pickled_and_is_read_like_a_file(plan: ap.Plan) -> None:
    copy = pickle.loads(pickle.dumps(plan))
    copy.check(chain(100, 300, 50))
    assert copy.to_json() == plan.to_json()
    tampered = pickle.dumps(plan).replace(b'"offset":0', b'"offset":1')
    with raises("PlanCorrupt"):
        pickle.loads(tampered)


def test_e01_the_best_plan_is_kept_when_the_capacity_is_too_small() -> None:
    with pytest.raises(errors.CapacityExceeded, match="383") as caught:
        ap.plan(chain(100, 300, 50), budget=383, target="ideal")
    assert caught.value.plan is not None
    assert caught.value.plan.arena_bytes > 383


@pytest.mark.parametrize("capacity", [-1, 1 << 64])
def test_a14_capacities_are_numbers_of_bytes(capacity: int) -> None:
    with raises("InvalidSize"):
        ap.plan(chain(1, 1), budget=capacity, target="ideal")


@pytest.mark.parametrize("target", [target.name for target in ap.targets()])
def test_all_but_some_techniques_are_the_others(target: str) -> None:
    graph = chain(100, 300, 50)
    every = ap.Target.known(target).techniques
    for left_out in [[name] for name in every] + [every[:2], list(every)]:
        others = [name for name in every if name not in left_out]
        text = ",".join(["all", *(f"-{name}" for name in left_out)])
        found = ap.plan(graph, target=target, optimize=text)
        assert found.options["optimize"] == others
        assert found.to_json() == ap.plan(graph, target=target, optimize=others).to_json()
    for wrong in ("all,-vews", ["all", "-"], "-recompute"):
        with raises("InvalidOption", match="there is no technique"):
            ap.plan(graph, target=target, optimize=wrong)


def test_a_budget_is_a_number_or_a_size() -> None:
    graph = chain(100, 300, 50)
    whole = ap.plan(graph, budget=1024, target="ideal")
    assert ap.plan(graph, budget="1KiB", target="ideal").to_json() == whole.to_json()
    with pytest.raises(errors.InvalidOption, match="budget"):
        ap.plan(graph, budget=1024, spaces="sram=1KiB", target="c")
    with raises("InvalidSize"):
        ap.plan(graph, budget="1 potato", target="ideal")


def test_an_unknown_workspace_policy_is_refused() -> None:
    with pytest.raises(errors.PlannerError, match="some"):
        ap.plan(chain(1, 1), workspace="some", target="ideal")  # type: ignore[arg-type]


def test_e07_threads_plan_as_one_does() -> None:
    graphs = [chain(*range(size, size + 40)) for size in range(1, 9)]
    expected = [ap.plan(graph, target="ideal").to_json() for graph in graphs]
    found: list[str | None] = [None] * len(graphs)

    def work(index: int) -> None:
        found[index] = ap.plan(graphs[index], target="ideal").to_json()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(graphs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


@pytest.mark.parametrize("seed", ["0", "1", "7"])
def test_h05_plans_do_not_depend_on_the_environment(seed: str, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_graph import chain;"
        "import arenaplan as ap; print(ap.plan(chain(*range(1, 60)), target='ideal').to_json())"
    )
    environment = dict(os.environ, PYTHONHASHSEED=seed, LC_ALL="tr_TR.UTF-8", TZ="Asia/Tokyo")
    result = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout.strip() == ap.plan(chain(*range(1, 60)), target="ideal").to_json().strip()


def test_e04_ctrl_c_ends_planning_soon_and_leaves_everything_usable() -> None:
    graph = ap.Graph("wide")
    wide = [graph.input(f"x{index}", (index % 977 + 1,), "uint8") for index in range(60_000)]
    (y,) = graph.node("Op", wide, [("y", (1,), "uint8")])
    graph.output(y)
    expected = ap.plan(graph, target="ideal").arena_bytes
    main = threading.get_ident()
    timer = threading.Timer(0.01, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    start = time.monotonic()
    try:
        while time.monotonic() < start + 30:
            ap.plan(graph, target="ideal")
    except KeyboardInterrupt:
        pass
    else:
        pytest.fail("Ctrl-C was lost")
    finally:
        timer.join()
    assert ap.plan(graph, target="ideal").arena_bytes == expected


def test_h03_deep_graphs_do_not_need_a_deep_stack() -> None:
    limit = sys.getrecursionlimit()
    size = threading.stack_size(256 * 1024)
    graph = chain(*([8] * 20_000))
    sizes: list[int] = []
    try:
        thread = threading.Thread(
            target=lambda: sizes.append(ap.plan(graph, target="ideal").arena_bytes)
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    assert sizes == [128]


def forged(plan: ap.Plan, change: Callable[[dict[str, Any]], None]) -> ap.Plan:
    """Change a plan's file, with a checksum that fits."""
    document = json.loads(plan.to_json())
    del document["checksum"]
    change(document)
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    document["checksum"] = hashlib.sha256(body.encode()).hexdigest()
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return ap.Plan.from_json(text.encode())


def test_a_check_says_what_it_verified() -> None:
    graph = chain(100, 300, 50)
    verdict = ap.plan(graph, target="ideal").check(graph)
    assert (verdict.lower_bound, verdict.status) == ("verified", "verified")
    assert verdict.max_live == [ap.plan(graph, target="ideal").lower_bound]
    assert verdict.move_cost is None
    assert not verdict.chose_spaces


def test_a_forged_proof_is_refused() -> None:
    graph = chain(100, 300, 50)
    plan = ap.plan(graph, target="ideal")

    def shift(document: dict[str, Any]) -> None:
        (space,) = document["spaces"]
        for row in document["values"] + document["workspaces"]:
            row["offset"] += 1 << 20
        for place in (document, space):
            place["arena_bytes"] += 1 << 20
            place["lower_bound"] = place["arena_bytes"]

    assert forged(plan, lambda _: None).to_json() == plan.to_json()
    with raises("PlanCorrupt", match="fewer than its lower bound"):
        forged(plan, shift).check(graph)


def test_a_floor_that_is_no_floor_is_refused() -> None:
    graph = chain(100, 300, 50)

    def raise_floor(document: dict[str, Any]) -> None:
        document["search"]["floor"] = 2**64 - 1

    with raises("PlanCorrupt", match="its floor of 18446744073709551615 bytes"):
        forged(ap.plan(graph, target="ideal"), raise_floor).check(graph)
