"""Batches: many models in worker processes, one of which may be hostile, or die."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

import arenaplan as ap
from arenaplan.base.errors import InvalidOption
from arenaplan.base.limits import Limits
from arenaplan.cli import main
from arenaplan.formats import open_model
from arenaplan.report.batch import clusters, jobs
from arenaplan.report.batch import job_runs as run
from arenaplan.report.batch.batch_report import page, summary, table
from arenaplan.report.batch.jobs import Job, run_job
from arenaplan.report.batch.journal import run_with_journal
from file_forms import products
from raising import raises
from random_models import random_model

MODELS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of models, in which one is broken and one is of an unknown operator."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "deeper").mkdir()
    for seed in range(MODELS):
        place = folder / "deeper" if seed % 2 else folder
        (place / f"m{seed}.onnx").write_bytes(random_model(seed).SerializeToString())
    (folder / "broken.onnx").write_bytes(b"\x08\x07\x12\xff\xff\xff\xff\x0f")
    nodes = [helper.make_node("Mystery", ["x"], ["y"], domain="nobody")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, (3,))], [value("y", 1, None)])
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("nobody", 1)]
    model = helper.make_model(graph, opset_imports=sets)
    (folder / "mystery.onnx").write_bytes(model.SerializeToString())
    (folder / "notes.txt").write_text("no model")
    return folder


def paths(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.rglob("*.onnx"))]


def serial(folder: Path, **options: Any) -> list[ap.report.Outcome]:
    """Return what one process makes of all models, one after the other."""
    return [run_job(Job(path, None, options)) for path in paths(folder)]


def test_a_batch_in_processes_is_what_one_process_makes(folder: Path) -> None:
    found = list(ap.report.plan_many(paths(folder), workers=2, effort="fast"))
    assert found == serial(folder, effort="fast")
    wrong = {Path(outcome.model).name: outcome.error for outcome in found if outcome.error}
    assert wrong == {"broken.onnx": "NotAModel", "mystery.onnx": "UnknownShape"}
    assert all(outcome.arena_bytes for outcome in found if outcome.is_planned)


def test_models_and_targets_are_planned_in_order(folder: Path) -> None:
    graph = ap.load(paths(folder)[1])
    with ThreadPoolExecutor(3) as threads:
        found = list(
            ap.report.plan_many([graph, "none.onnx"], targets=["nodes", "ideal"], executor=threads)
        )
    assert [(outcome.target, outcome.error) for outcome in found] == [
        ("nodes", ""),
        ("ideal", ""),
        ("nodes", "FileNotFoundError"),
        ("ideal", "FileNotFoundError"),
    ]
    assert found[0].arena_bytes == ap.plan(graph, target="nodes").arena_bytes


def test_sources_are_taken_as_workers_become_free(folder: Path) -> None:
    """A search over 10^5 candidates must not make all of them before the first is planned."""
    graph, taken = ap.load(paths(folder)[1]), []

    def endless() -> Iterator[ap.Graph]:
        while True:
            taken.append(1)
            yield graph

    with ThreadPoolExecutor(2) as threads:
        found = ap.report.plan_many(endless(), executor=threads, effort="fast")
        for _ in range(20):
            assert next(found).is_planned
        found.close()  # type: ignore[attr-defined]
    assert len(taken) <= 20 + 8 + 1


def die_once(job: Job) -> ap.report.Outcome:
    """Kill the process at the first run of one job, and at each run of another."""
    name = Path(job.name).name
    mark = Path(job.name).with_suffix(".died")
    if name == "m0.onnx" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "m2.onnx":
        os.kill(os.getpid(), signal.SIGKILL)
    return run_job(job)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_worker_that_dies_takes_no_other_job_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "run_job", die_once)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    found = list(ap.report.plan_many(paths(folder), workers=2))
    expected = serial(folder)
    for one, other in zip(found, expected, strict=True):
        if Path(one.model).name == "m2.onnx":
            assert one.error == "WorkerDied"
        else:
            assert one == other
    (folder / "m0.died").unlink()


def test_a_batch_goes_on_where_it_was_interrupted(folder: Path, tmp_path: Path) -> None:
    jobs = [Job(path, None, {"effort": "fast"}) for path in paths(folder)]
    journal = tmp_path / "report.csv.journal"
    with ThreadPoolExecutor(1) as threads:
        first = run_with_journal(jobs, journal, executor=threads)
        begun = [next(first) for _ in range(4)]
        first.close()  # type: ignore[attr-defined]
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    journal.write_bytes(b"".join(lines)[:-7])  # Killed while the last line was written.
    runs = Counted()
    found = list(run_with_journal(jobs, journal, executor=runs))
    assert found == serial(folder, effort="fast")
    assert found[:4] == begun
    assert runs.jobs == len(jobs) - 3
    again = Counted()
    assert list(run_with_journal(jobs, journal, executor=again)) == found
    assert again.jobs == 0
    other = [Job(job.source, "ideal", job.options) for job in jobs]
    list(run_with_journal(other, journal, executor=again))
    assert again.jobs == len(jobs), "other options are other jobs"


class Counted(Executor):
    """Runs jobs at once, and counts them."""

    def __init__(self) -> None:
        self.jobs = 0

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        self.jobs += 1
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **keywords))
        return future


def test_reports_have_a_row_per_outcome(folder: Path, tmp_path: Path) -> None:
    found = serial(folder, effort="fast")
    lines = [json.loads(line) for line in table(found, ".jsonl").splitlines()]
    assert lines == [asdict(outcome) for outcome in found]
    rows = list(csv.DictReader(table(found, ".csv").decode().splitlines()))
    assert [row["model"] for row in rows] == [outcome.model for outcome in found]
    facts = summary(found)
    assert facts["jobs"] == MODELS + 2
    assert facts["planned"] == MODELS
    assert facts["errors"] == {"NotAModel": 1, "UnknownShape": 1}
    assert facts["targets"]["numpy"]["planned"] == MODELS
    with pytest.raises(InvalidOption, match=r"\.xlsx"):
        table(found, ".xlsx")


def test_parquet_has_the_same_rows(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = serial(folder, effort="fast")
    path = tmp_path / "report.parquet"
    path.write_bytes(table(found, ".parquet"))
    assert parquet.read_table(path).to_pylist() == [asdict(outcome) for outcome in found]


def test_names_of_models_cannot_write_into_the_page() -> None:
    hostile = ap.report.Outcome("<script>alert(1)</script>", "numpy", 1, 1, "optimal", 1, 1)
    failed = ap.report.Outcome("a&b", "", error="NotAModel", message='"<img src=x>"')
    text = page([hostile, failed])
    assert "<script>" not in text
    assert "<img" not in text
    assert "a&amp;b" in text


def test_the_command_writes_a_report(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, web = tmp_path / "report.jsonl", tmp_path / "page.html"
    line = [
        "batch",
        str(folder),
        "--targets",
        "numpy,ideal",
        "--effort",
        "fast",
        "--processes",
        "2",
    ]
    assert main([*line, "-o", str(report), "--page", str(web), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["jobs"], facts["planned"]) == (2 * (MODELS + 2), 2 * MODELS)
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert [row["model"] for row in rows[::2]] == paths(folder)
    assert "mystery.onnx" in web.read_text()
    assert not Path(f"{report}.journal").exists()
    assert main(["batch", str(folder / "m0.onnx"), "--processes", "1"]) == 0
    assert "1 of 1 planned" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--targets", "nobody"], "not one of"),
        (["--executor", "spark://host"], "dask://"),
        (["-o", "report.xlsx"], ".parquet"),
        (["--processes", "0"], "not from 1"),
        (["--bind", "batch=1..4"], "one number"),
    ],
)
def test_wrong_words_are_refused(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["batch", str(folder), *words])
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a child")
def test_an_interrupted_command_goes_on_from_its_journal(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.csv"
    journal = Path(f"{report}.journal")
    line = [sys.executable, "-m", "arenaplan", "batch", str(folder), "--processes", "1"]
    line += ["--effort", "fast", "-o", str(report)]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (journal.exists() and journal.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if report.exists():
        pytest.skip("the batch was over before it could be killed")
    done = len(journal.read_bytes().splitlines())
    assert done
    again = subprocess.run(line, capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stderr
    rows = list(csv.DictReader(report.read_text().splitlines()))
    assert [row["arena_bytes"] for row in rows] == [
        str(outcome.arena_bytes or "") for outcome in serial(folder, effort="fast")
    ]


def test_a_cluster_of_dask_runs_a_batch(folder: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as here,
        clusters.executor_at(here.scheduler_address.replace("tcp", "dask")) as executor,
    ):
        found = list(ap.report.plan_many(paths(folder), executor=executor, effort="fast"))
    assert found == serial(folder, effort="fast")


def test_a_cluster_of_ray_runs_a_batch(folder: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        executor = clusters.RayExecutor(ray)
        found = list(ap.report.plan_many(paths(folder), executor=executor, effort="fast"))
    finally:
        ray.shutdown()
    assert found == serial(folder, effort="fast")


class Dying(Executor):
    """Runs jobs at once; from one submission on, or for models of one name, futures fail."""

    def __init__(self, dies_after: int | None = None, model: str = "", refuses: bool = False):
        self.submissions, self.dies_after, self.model = 0, dies_after, model
        self.refuses = refuses

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        self.submissions += 1
        future: Future[Any] = Future()
        is_dead = self.dies_after is not None and self.submissions > self.dies_after
        if is_dead or (self.model and arguments and arguments[0].name.endswith(self.model)):
            if self.refuses:
                raise RuntimeError("the engine is gone")
            future.set_exception(RuntimeError("the engine is gone"))
        else:
            future.set_result(function(*arguments, **keywords))
        return future


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("alive", [0, 3])
def test_the_end_of_an_engine_is_no_outcome(
    alive: int, refuses: bool, folder: Path, tmp_path: Path
) -> None:
    jobs = [Job(path, None, {"effort": "fast"}) for path in paths(folder)]
    journal = tmp_path / "report.csv.journal"
    with raises("EngineLost", match="the engine is gone"):
        list(run_with_journal(jobs, journal, executor=Dying(alive, refuses=refuses)))
    assert len(journal.read_bytes().splitlines()) == alive
    healthy = Counted()
    assert list(run_with_journal(jobs, journal, executor=healthy)) == serial(folder, effort="fast")
    assert healthy.jobs == len(jobs) - alive


def test_a_model_that_fails_twice_on_a_healthy_engine_is_an_outcome(folder: Path) -> None:
    executor = Dying(model="m2.onnx")
    found = list(ap.report.plan_many(paths(folder), executor=executor, effort="fast"))
    for one, other in zip(found, serial(folder, effort="fast"), strict=True):
        if Path(one.model).name == "m2.onnx":
            assert (one.error, one.message) == ("RuntimeError", "the engine is gone")
        else:
            assert one == other
    assert executor.submissions == len(found) + 3, "two probes and one more run"


class Silent(Executor):
    """A client of Dask that gave up its scheduler: futures that never end."""

    _client = SimpleNamespace(status="closed")

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        return Future()


def test_a_scheduler_that_is_gone_ends_the_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_PERIOD", 0.01)
    with raises("EngineLost", match="scheduler"):
        list(ap.report.plan_many(paths(folder), executor=Silent()))


class Elsewhere(Counted):
    """Runs jobs in another working directory."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        with contextlib.chdir(self.place):
            return super().submit(function, *arguments, **keywords)


def test_workers_find_relative_paths_and_reports_keep_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    names = [*(os.path.relpath(path, folder) for path in paths(folder)), "none.onnx"]
    expected = [run_job(Job(name, None, {"effort": "fast"})) for name in names]
    far = Elsewhere(tmp_path)
    assert list(ap.report.plan_many(names, executor=far, effort="fast")) == expected


@pytest.mark.parametrize(
    ("address", "module", "package"),
    [
        ("dask://nowhere:1", "distributed", "pip install distributed"),
        ("ray://nowhere:1", "grpc", r"pip install 'ray\[client\]'"),
        ("ray://", "ray", r"pip install 'ray\[client\]'"),
    ],
)
def test_an_engine_that_is_not_installed_is_named(
    address: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=package), clusters.executor_at(address):
        pass


@pytest.mark.parametrize("address", ["dask://127.0.0.1:1", "ray://", "ray://127.0.0.1:1"])
def test_an_engine_that_does_not_answer_is_named(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: object, **options: object) -> None:
        raise ConnectionError("no one is there")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=away))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=away))
    monkeypatch.setitem(sys.modules, "grpc", SimpleNamespace())
    expected = f"{address} does not answer: no one is there"
    with raises("EngineLost", match=expected), clusters.executor_at(address):
        pass


def test_workers_are_of_our_own_processes() -> None:
    with ThreadPoolExecutor(1) as threads, pytest.raises(InvalidOption, match="workers"):
        ap.report.plan_many([], workers=2, executor=threads)
    with pytest.raises(InvalidOption, match="workers"):
        ap.report.plan_many([], workers=0)


def test_models_with_other_dimensions_are_one_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, dims in (("both", ("batch", "seq")), ("one", ("batch", 3)), ("none", (1, 3))):
        value = helper.make_tensor_value_info
        ends = [[value(end, 1, dims)] for end in "xy"]
        node = helper.make_node("Relu", ["x"], ["y"])
        made = helper.make_model(
            helper.make_graph([node], "g", *ends), opset_imports=[helper.make_opsetid("", 20)]
        )
        (tmp_path / f"{name}.onnx").write_bytes(made.SerializeToString())
    bind = {"batch": 16, "seq": 5}
    outcomes = [run_job(Job(path, None, bind=bind)) for path in paths(tmp_path)]
    assert [outcome.left_out for outcome in outcomes] == ["", "batch,seq", "seq"]
    assert all(outcome.is_planned for outcome in outcomes)
    # float32[16, 5] twice, for an input is left as it is.
    assert outcomes[0].arena_bytes == 640
    # A number for a dimension of another model is no number for this.
    missing = run_job(Job(paths(tmp_path)[0], None, bind={"seq": 5, "width": 9}))
    assert (missing.error, missing.left_out) == ("UnboundDim", "width")

    # The file is read once, however many names it does not have.
    reads: list[Path] = []

    def counting(path: Path, limits: Limits, name: str | None) -> Any:
        reads.append(path)
        return open_model(path, limits, name)

    monkeypatch.setattr(jobs, "open_model", counting)
    many = {"batch": 16, "seq": 5, **{f"other{index}": 1 for index in range(5)}}
    assert run_job(Job(paths(tmp_path)[0], None, bind=many)).arena_bytes == 640
    assert len(reads) == 1
    # The shape of an input is a number for each of its dimensions.
    whole = run_job(Job(paths(tmp_path)[0], None, bind={"x": (16, 5), "y2": (1, 1)}))
    assert (whole.arena_bytes, whole.left_out) == (640, "y2")

    words = [f"--bind={name}={number}" for name, number in bind.items()]
    assert main(["batch", str(tmp_path), *words, "--processes", "1"]) == 0
    said = capsys.readouterr()
    assert "3 of 3 planned" in said.out
    assert "--bind batch: 1 of 3 have no dimension of this name" in said.err
    assert "--bind seq: 2 of 3 have no dimension of this name" in said.err
    assert main(["batch", str(tmp_path), "--bind", "width=9", "--processes", "1"]) == 1
    said = capsys.readouterr()
    assert "UnboundDim: 2, such as " in said.out
    assert "--bind batch=1" in said.out
    assert "bind={" not in said.out


def test_graphs_go_to_processes_and_those_of_files_are_refused_by_name() -> None:
    def built() -> ap.Graph:
        graph = ap.Graph("built")
        op, x = ap.train.operators(graph), graph.input("x", (4, 8))
        w = graph.parameter("w", np.ones((8, 8), np.float32))
        graph.output(op.Softmax(op.MatMul(x, w), axis=-1))
        graph.output(op.Add(x, graph.constant("c", (8,), "float32", np.ones(8, np.float32))))
        return graph

    pinned = built()
    pinned.pin(pinned.find("MatMul_0").index, 1024)
    again, read = built().scheduled([0, 1, 0, 2]), ap.Graph.from_json(pinned.to_json())
    for graph in (built(), pinned, again, read):
        copy = pickle.loads(pickle.dumps(graph))
        assert (copy.to_json(), copy.digest) == (graph.to_json(), graph.digest)
    copy = pickle.loads(pickle.dumps(built()))
    copy.output(ap.train.operators(copy).Relu(copy.values[0].index))
    np.testing.assert_array_equal(copy.initial(copy.find("w").index), np.ones((8, 8)))
    with raises("UndefinedValue", match="another graph"):
        copy.output(again.values[-1].index)
    graphs = [built(), pinned, read]
    outcomes = [run_job(Job(graph)) for graph in graphs]
    assert all(outcome.is_planned for outcome in outcomes)
    assert list(ap.report.plan_many(graphs, workers=1)) == outcomes
    loaded = ap.load(products(), bind={"batch": 4})
    with raises("InvalidOption", match="the path of the file"):
        pickle.dumps(Job(loaded))
    (refused,) = ap.report.plan_many([loaded], workers=1)
    assert (refused.error, "the path of the file" in refused.message) == ("InvalidOption", True)
