"""``arenaplan run``: run a model inside its arena."""

from __future__ import annotations

import argparse
import hashlib
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import arenaplan
from arenaplan import _core
from arenaplan.base.close import did_you_mean
from arenaplan.base.errors import (
    InvalidOption,
    UnsupportedModel,
    fault,
)
from arenaplan.base.quoting import listed
from arenaplan.cli.models import covers_facts, is_tflite, load_model
from arenaplan.cli.printing import print_json, say, shown, size
from arenaplan.cli.sources import load_plan
from arenaplan.deploy.adapters.interpreter import Interpreter
from arenaplan.graph.graph import Graph, Value
from arenaplan.run.cuda.device_executor import DeviceExecutor
from arenaplan.run.dynamic import StagedExecutor
from arenaplan.run.dynamic.executor_choice import graph_or_stages
from arenaplan.run.numpy.constants import shared_bytes
from arenaplan.run.numpy.signatures import byte_size
from arenaplan.tflite.reader.entries import chosen
from arenaplan.tflite.reader.tflite_model import parse

if TYPE_CHECKING:
    from arenaplan import Executor


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.generate is not None:
        _generate(options)
        return
    with _executor(options) as executor:
        reference = _reference(options) if options.verify else None
        seconds, outputs = 0.0, {}
        for turn in range(options.runs):
            # After the executor, which refuses shapes that no array can have.
            inputs = _inputs(executor.graph, _files(options), options.seed + turn)
            if options.graph and turn == 0:
                for _ in range(2):  # The second run is recorded.
                    executor.run(inputs)
            start = time.process_time()
            outputs = executor.run(inputs, verify=options.verify)
            seconds += time.process_time() - start
            if reference is not None:
                reference.compare(executor.graph, inputs, outputs)
        summary = _summarize(executor, outputs, seconds, options)
    if reference is not None:
        summary["reference"] = reference.summary(options.runs)
    if options.save_outputs is not None:
        _save(options.save_outputs, outputs)
    if options.json:
        print_json(summary)
    else:
        _print(summary)


def _generate(options: argparse.Namespace) -> None:
    """Print the tokens that a language model generates."""
    if options.prompt is None:
        raise InvalidOption("option --generate: --prompt has the tokens to begin with")
    room = options.room or len(options.prompt) + options.generate
    start = time.process_time()
    with arenaplan.Decoder(options.model, room, dict(options.bind)) as decoder:
        tokens = list(decoder.generate(options.prompt, options.generate))
        plan = decoder.plan
    seconds = time.process_time() - start
    if options.json:
        sizes = {"room": room, "arena_bytes": plan.arena_bytes}
        print_json({"model": plan.model, **sizes, "cpu_seconds": seconds, "tokens": tokens})
        return
    print(f"{shown(plan.model) or 'model'}: {len(tokens)} tokens in {seconds:.3f} s CPU")
    print(f"  arena   {size(plan.arena_bytes)}, caches for {room:,} tokens in it")
    print(f"  tokens  {' '.join(map(str, tokens))}")


def _executor(options: argparse.Namespace) -> Executor | StagedExecutor:
    """Return an executor for the model, with stages if data decides sizes."""
    if options.device != "cpu" and options.threads > 1:
        raise InvalidOption("option --threads: only kernels on the cpu are divided")
    graph = graph_or_stages(options.model, dict(options.bind), lambda: _graph(options))
    if isinstance(graph, StagedExecutor):
        for name, usual in (("plan", None), ("device", "cpu"), ("threads", 1)):
            if getattr(options, name) != usual:
                raise InvalidOption(
                    f"option --{name}: data decides sizes; such a run plans by itself, on the cpu, "
                    "with one thread"
                )
        return graph
    plan = None if options.plan is None else load_plan(options.plan)
    if options.device == "cpu" and not options.graph:
        return arenaplan.Executor(graph, plan, threads=options.threads)
    return arenaplan.Executor(graph, plan, device=options.device, capture=options.graph)


def _graph(options: argparse.Namespace) -> Graph:
    """Return the model's graph, which has the data of constants."""
    graph = load_model(options)
    _need_data(graph)
    return graph


def _need_data(graph: Graph) -> None:
    """Refuse a graph without constant data."""
    graph = graph.for_target("numpy")
    for index, value in enumerate(graph.values):
        if value.kind == "constant" and not graph.has_data(index):
            raise UnsupportedModel(
                f"the file has no data of weights that can be read here, such as {value.name!r}: "
                "ONNX and TFLite models can be run; programs of torch.export (.pt2) and graph "
                "files (.json) are planned only"
            )


class _Reference:
    """Comparison of a TFLite model with the interpreter, or why there is no comparison."""

    def __init__(self, data: bytes, signature: str | None) -> None:
        self._interpreter: Interpreter | None = None
        self._problem = ""
        self._inexact = 0
        if chosen(parse(data), signature).main:
            self._problem = "tflite-micro runs the first subgraph alone"
            return
        try:
            self._interpreter = Interpreter(data)
        except ImportError:
            self._problem = "tflite-micro is not installed"
        except UnsupportedModel as error:
            self._problem = str(error)

    def compare(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> None:
        """Compare one run."""
        if self._interpreter is None:
            return
        try:
            match = self._interpreter.compare(graph, inputs, outputs)
        except UnsupportedModel as error:
            self._interpreter, self._problem = None, str(error)
            return
        self._inexact += match.inexact

    def summary(self, runs: int) -> dict[str, Any]:
        """Return the comparison's summary."""
        if self._interpreter is None:
            return {"runtime": None, "problem": self._problem}
        return {"runtime": Interpreter.version(), "runs": runs, "inexact": self._inexact}


def _reference(options: argparse.Namespace) -> _Reference | None:
    """Return the comparison for a TFLite model."""
    source: Path | bytes = options.model
    if not is_tflite(source):
        return None
    data = source if isinstance(source, bytes) else source.read_bytes()
    return _Reference(data, options.signature)


def _save(folder: Path, outputs: Mapping[str, np.ndarray]) -> None:
    """Write every output; old files are replaced only when all new files are on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[Path, bytes] = {}
    for name, array in outputs.items():
        stem, count = _file_name(name), 1
        while (path := folder / (f"{stem}.npy" if count == 1 else f"{stem}_{count}.npy")) in files:
            count += 1
        content = io.BytesIO()
        np.save(content, array)
        files[path] = content.getvalue()
    _core.write_files(list(files.items()))
    for path in files:
        say(f"wrote {path}")


_SHORT: Final = frozenset({"int8", "uint8", "int16", "uint16"})


def random_input(value: Value, seed: int) -> np.ndarray:
    """
    Return random input data.

    Floats are normally distributed. 8-bit and 16-bit integers, mostly quantized data or pixels,
    cover the full range. Other integers, mostly indices, are 0 or 1.
    """
    # The name is part of the seed, so that an input does not change when another is added.
    key = hashlib.sha256(f"{seed}/{value.name}".encode("utf-8", "surrogatepass")).digest()
    numbers = np.random.default_rng(int.from_bytes(key[:8], "little"))
    if np.issubdtype(np.dtype(value.dtype), np.inexact):
        return numbers.standard_normal(value.shape).astype(value.dtype)
    if value.dtype in _SHORT:
        bounds = np.iinfo(value.dtype)
        return numbers.integers(bounds.min, bounds.max, value.shape, value.dtype, endpoint=True)
    return numbers.integers(0, 2, value.shape).astype(value.dtype)


def _files(options: argparse.Namespace) -> dict[str, Path]:
    return {name: Path(path) for name, path in options.input}


def _inputs(graph: Graph, files: Mapping[str, Path], seed: int) -> dict[str, np.ndarray]:
    """Return an array for every input, read or random."""
    declared = {graph.values[index].name: graph.values[index] for index in graph.inputs}
    unknown = sorted(set(files) - set(declared))
    if unknown:
        near = did_you_mean(unknown[0], declared)
        raise fault(
            "InputMismatch",
            f"the model has no input {unknown[0]!r}{near or f'; it has {listed(declared)}'}",
        )
    return {
        name: _read(files[name]) if name in files else random_input(value, seed)
        for name, value in declared.items()
    }


def _read(path: Path) -> np.ndarray:
    """Read an array, which must be plain numbers."""
    try:
        array: np.ndarray = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise fault("InputMismatch", f"{path} holds no array of numbers: {error}") from None
    if not isinstance(array, np.ndarray):
        raise fault("InputMismatch", f"{path} holds several arrays: write the one by numpy.save")
    return array


def _summarize(
    executor: Executor | StagedExecutor,
    outputs: Mapping[str, np.ndarray],
    seconds: float,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return the ``run --json`` document."""
    arena: dict[str, Any] = {"arena_bytes": executor.plan.arena_bytes}
    if isinstance(executor, StagedExecutor):
        stages = [stage._asdict() for stage in executor.stages]
        arena = {"arena_bytes": executor.arena_bytes, "stages": stages}
    host: dict[str, Any] = {}
    if isinstance(executor, DeviceExecutor):
        host = {"host_nodes": executor.host_nodes, "host_bytes": executor.host_bytes}
    return {
        "model": executor.plan.model,
        "target": executor.plan.target.name,
        **covers_facts(executor.plan.covers),
        "device": options.device,
        "threads": options.threads,
        **arena,
        "scratch_bytes": executor.scratch_bytes,
        **host,
        "weight_bytes": sum(byte_size(v) for v in executor.graph.values if v.kind == "constant"),
        "copied_bytes": shared_bytes(),
        "verified": options.verify,
        "cpu_seconds": seconds,
        "outputs": [
            {
                "name": name,
                "shape": list(array.shape),
                "dtype": str(array.dtype),
                "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
                "head": array.ravel()[:4].tolist(),
            }
            for name, array in outputs.items()
        ],
    }


def _print(summary: Mapping[str, Any]) -> None:
    """Print a summary for people."""
    on_device = summary["device"] != "cpu"
    checked = ", equal to NumPy's results" if on_device else ", verified step by step"
    verified = checked if summary["verified"] else ""
    where = f" on {summary['device']}" if on_device else ""
    if summary["threads"] > 1:
        where = f" on {summary['threads']} threads"
    name = shown(summary["model"]) or "model"
    print(f"{name}: ran{where} in {summary['cpu_seconds']:.3f} s CPU{verified}")
    reference = summary.get("reference")
    if reference is not None:
        print(f"  compared  {_compared(reference)}")
    print(f"  arena  {size(summary['arena_bytes'])} for {shown(summary['target'])}")
    if summary["covers"]["signature"] or not (summary["covers"]["whole"] or "stages" in summary):
        print(f"  covers  {shown(summary['covers']['part'], 200)}")
    for number, stage in enumerate(summary.get("stages", [])):
        text = f"{stage['nodes']:,} nodes, {stage['arena_bytes']:,} bytes"
        found = ", ".join(shown(name, 40) for name in stage["decided"])
        print(f"  stage {number}  {text}{f', then {found} is known' if found else ''}")
    if summary["scratch_bytes"]:
        print(f"  scratch outside the arena  {size(summary['scratch_bytes'])}")
    if summary.get("host_nodes"):
        nodes = f"{len(summary['host_nodes']):,} nodes run there, such as"
        print(f"  host  {size(summary['host_bytes'])}; {nodes} {shown(summary['host_nodes'][0])}")
    if summary["weight_bytes"]:
        copies = f"copies in the form of kernels {size(summary['copied_bytes'])}"
        print(f"  weights  {size(summary['weight_bytes'])}; {copies}")
    for output in summary["outputs"]:
        head = ", ".join(f"{number:.6g}" for number in output["head"])
        print(f"  {shown(output['name'])}  {output['dtype']}{output['shape']}  [{head}, …]")


def _compared(reference: Mapping[str, Any]) -> str:
    """Return what outputs were compared with."""
    if reference["runtime"] is None:
        return (
            "with a run of the same kernels without an arena; "
            f"with no other runtime: {reference['problem']}"
        )
    runs, inexact = reference["runs"], reference["inexact"]
    turns = f"{runs} run{'s' if runs > 1 else ''}"
    if inexact:
        return f"{reference['runtime']}, {turns}: {inexact} real numbers differ in their last bits"
    return f"{reference['runtime']}, {turns}: equal bit by bit"


def _file_name(name: str) -> str:
    """Return a value's name as a file name without folders."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return safe.lstrip(".")[:100] or "output"
