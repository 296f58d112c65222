"""Everything the product writes goes through one writer: devices, pipes, links, full disks."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan import _core
from arenaplan.cli import main
from test_cli import model

CSV = "id,lower,upper,size\na,0,2,4\n"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Return a folder with one model of each kind, and a table."""
    folder = tmp_path / "inputs"
    folder.mkdir()
    model(folder / "m.onnx")
    (folder / "m.tflite").write_bytes(flat.write(flat.fragmented()))
    (folder / "p.csv").write_text(CSV)
    return folder


def writers(inputs: Path, output: Path) -> dict[str, list[str]]:
    """Return every command that writes a file."""
    onnx, tflite = str(inputs / "m.onnx"), str(inputs / "m.tflite")
    return {
        "plan": ["plan", onnx, "-o", str(output)],
        "share": ["plan", onnx, onnx, "--share", "never-together", "-o", str(output)],
        "pack": ["pack", str(inputs / "p.csv"), "-o", str(output)],
        "c": ["export", onnx, "--to", "c", "-o", str(output)],
        "tflm": ["export", tflite, "--to", "tflm", "-o", str(output)],
    }


WRITERS = ["plan", "share", "pack", "c", "tflm"]


def run_command(arguments: Sequence[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "arenaplan", *arguments]
    return subprocess.run(command, capture_output=True, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_pipe_is_written_into_and_stays(writer: str, inputs: Path, tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert main(writers(inputs, pipe)[writer]) == 0
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert main(writers(inputs, file)[writer]) == 0
    assert read == [file.read_bytes()] != [b""]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_device_is_written_into_and_stays(writer: str, inputs: Path, tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("devices cannot be made here")
    assert main(writers(inputs, device)[writer]) == 0
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.parametrize("writer", WRITERS)
def test_links_and_modes_stay(writer: str, inputs: Path, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("file")
    assert main(writers(inputs, link)[writer]) == 0
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.read_bytes() not in (b"old", b"")


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_old_file(writer: str, inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / "result"
    output.write_text("old")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))

    result = run_command(writers(inputs, output)[writer], preexec_fn=limit)
    assert result.returncode == 2
    assert b"PlanWriteError" in result.stderr
    assert b"Traceback" not in result.stderr
    assert output.read_text() == "old"
    assert os.listdir(folder) == ["result"]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_missing_folder_is_a_typed_error(
    writer: str, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(writers(inputs, tmp_path / "absent" / "file")[writer]) == 2
    assert "PlanWriteError" in capsys.readouterr().err


def test_stdout_by_its_path_gets_the_result_and_then_the_report(
    inputs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ["plan", str(inputs / "m.onnx"), "-o", "/dev/stdout"]
    with out.open("wb") as file:
        command = [sys.executable, "-m", "arenaplan", *arguments]
        subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True)
    plan, _, report = out.read_bytes().partition(b"\n")
    assert ap.Plan.from_json(plan).arena_bytes == 128
    assert report.startswith(b"small for ")
    assert run_command(arguments).stdout == out.read_bytes()


def test_a_killed_writer_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom arenaplan import _core\n"
        "data = bytes(1 << 20)\nprint(flush=True)\n"
        f"while True: _core.write_files([({str(tmp_path / 'file')!r}, data)])"
    )
    for delay in (0.01, 0.02, 0.03):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        threading.Event().wait(delay)
        process.kill()
        process.communicate()
        if (tmp_path / "file").exists():
            assert (tmp_path / "file").stat().st_size == 1 << 20
        # Killed between naming and renaming, it leaves one whole file, which the next writer
        # removes.
        left = set(os.listdir(tmp_path)) - {"file"}
        assert left <= {".file.arenaplan.tmp"}
        assert all((tmp_path / name).stat().st_size == 1 << 20 for name in left)
    _core.write_files([(tmp_path / "file", b"plan")])
    _core.write_files([(tmp_path / "file", b"plan")])
    assert os.listdir(tmp_path) == ["file"]


def test_a_planted_link_of_a_temporary_name_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("old")
    (tmp_path / f".p.json.{os.getpid()}.tmp").symlink_to(victim)
    _core.write_files([(tmp_path / "p.json", b"plan")])
    assert victim.read_text() == "old"
    assert (tmp_path / "p.json").read_text() == "plan"


def test_threads_that_save_one_plan_never_fail(tmp_path: Path) -> None:
    graph = ap.Graph()
    graph.output(graph.input("x", (64,), "uint8"))
    plan, path, failed = ap.plan(graph, target="ideal"), tmp_path / "p.json", []

    def save() -> None:
        for _ in range(50):
            try:
                plan.save(path)
            except ap.errors.PlanError as error:
                failed.append(error)

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert os.listdir(tmp_path) == ["p.json"]


def test_ctrl_c_ends_a_write_that_nobody_reads(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _core.write_files([(pipe, b"plan")])
    timer.join()
    pipe.read_bytes()  # Lets the writer go.


def test_outputs_are_saved_all_or_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = two_outputs(tmp_path / "two.onnx"), tmp_path / "out"
    out.mkdir()
    (out / "a_b.npy").write_bytes(b"old")
    (out / "a_b_2.npy").mkdir()
    assert main(["run", str(path), "--save-outputs", str(out)]) == 2
    assert "PlanWriteError" in capsys.readouterr().err
    assert (out / "a_b.npy").read_bytes() == b"old"
    (out / "a_b_2.npy").rmdir()
    assert main(["run", str(path), "--save-outputs", str(out)]) == 0
    first, second = np.load(out / "a_b.npy"), np.load(out / "a_b_2.npy")
    np.testing.assert_array_equal(first, -second)
    assert sorted(os.listdir(out)) == ["a_b.npy", "a_b_2.npy"]


def two_outputs(path: Path) -> Path:
    """Write a model of two outputs whose names differ only in what no file name may have."""
    import onnx
    from onnx import TensorProto, helper

    arrays = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "a/b", "a:b")]
    nodes = [helper.make_node("Neg", ["x"], ["a/b"]), helper.make_node("Neg", ["a/b"], ["a:b"])]
    graph = helper.make_graph(nodes, "two", arrays[:1], arrays[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path
