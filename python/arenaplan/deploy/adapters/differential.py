"""Runs both models in installed runtimes on equal inputs and compares outputs bit by bit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from arenaplan.base.choices import RUNTIMES
from arenaplan.base.errors import InvalidOption, UnsupportedModel, fault
from arenaplan.deploy.adapters.interpreter import Interpreter
from arenaplan.tflite.proving.facts import Fact
from arenaplan.tflite.proving.prover import Proof
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import Source, parse, read_bytes

_REFUSED: Final = (RuntimeError, ValueError, UnsupportedModel)
"""Errors of runtimes that do not run a model."""


@dataclass(frozen=True, slots=True)
class RuntimeComparison:
    """A comparison in one runtime."""

    runtime: str
    """``"tflm"``, or ``"litert"`` with the kernels after a colon."""
    status: str
    """``"equal"``, ``"not installed"``, or ``"original does not run"``."""
    inputs: int = 0
    """Inputs that were compared."""
    distinct: int = 0
    """Number of different outputs: equal outputs prove little if all are the same."""
    tensors: int = 0
    """Inner tensors compared with parts of the original's tensors."""
    note: str = ""
    """The runtime's message, if the runtime cannot run the original."""


class _Runner(NamedTuple):
    """A model in a runtime."""

    run: Callable[[Sequence[np.ndarray]], list[np.ndarray]]
    tensor: Callable[[int], np.ndarray | None] = lambda _: None
    """Returns an inner tensor, if the runtime keeps inner tensors."""


def compared(
    original: Source,
    rewritten: Source,
    proof: Proof,
    runtimes: Sequence[str] = RUNTIMES,
    *,
    inputs: int = 20,
    seed: int = 0,
) -> list[RuntimeComparison]:
    """
    Run both models on equal inputs.

    Parameters
    ----------
    original, rewritten : path or bytes
        The models.
    proof : Proof
        The proof, which says which inner tensors can also be compared.
    runtimes : sequence of str
        Names from :data:`RUNTIMES`. A runtime that is not installed is reported and skipped.
    inputs : int
        Number of runs: with the least numbers, the largest numbers, then random numbers.
    seed : int
        Seed for random inputs.

    Raises
    ------
    ExecutionError
        If an output or an inner tensor differs, or only the original runs.
    """
    data = [read_bytes(source)[0] for source in (original, rewritten)]
    found = []
    for runtime in runtimes:
        if runtime not in RUNTIMES:
            raise InvalidOption(f"no runtime {runtime!r}; there are {', '.join(RUNTIMES)}")
        for name, make in _makers(runtime):
            if make is None:
                found.append(RuntimeComparison(name, "not installed"))
                continue
            try:
                old = make(data[0])
            except _REFUSED as error:
                note = str(error).strip().splitlines()
                found.append(
                    RuntimeComparison(name, "original does not run", note=note[0] if note else "")
                )
                continue
            try:
                new = make(data[1])
            except _REFUSED as error:
                raise fault(
                    "VerificationError",
                    f"{name} runs the original, and not the rewritten model: {error}",
                ) from error
            found.append(_compared(name, old, new, proof, inputs, seed))
    return found


def _compared(
    name: str, old: _Runner, new: _Runner, proof: Proof, inputs: int, seed: int
) -> RuntimeComparison:
    """Compare two models in a runtime."""
    graph = proof.derivations[0].known.graph
    numbers = np.random.default_rng(seed)
    outputs: set[bytes] = set()
    tensors = 0
    for turn in range(inputs):
        arrays = [_input(graph.tensors[i], turn, numbers) for i in graph.inputs]
        wanted, seen = old.run(arrays), new.run(arrays)
        for at, (one, other) in enumerate(zip(seen, wanted, strict=True)):
            if one.tobytes() != other.tobytes():
                raise fault(
                    "VerificationError",
                    f"{name}: output {at} of the rewritten model differs from that of the "
                    f"original for input {turn} of seed {seed}",
                )
        outputs.add(b"".join(array.tobytes() for array in wanted))
        tensors = _compared_inside(name, old, new, proof, turn)
    return RuntimeComparison(name, "equal", inputs, len(outputs), tensors)


def _compared_inside(name: str, old: _Runner, new: _Runner, proof: Proof, turn: int) -> int:
    """Compare all inner tensors, if the runtime keeps them; return their number."""
    derivation = proof.derivations[0]
    mine, theirs = derivation.known, derivation.original.known
    size = 1 + max((int(e.max()) for e in theirs.elements.values() if e.size), default=0)
    bits = np.zeros(size, np.uint64)
    is_known = np.zeros(size, bool)
    for number in theirs.written:
        array = old.tensor(number)
        if array is None:
            return 0
        elements = theirs.elements[number].ravel()
        inside = elements >= 0
        bits[elements[inside]] = _bits(array).ravel()[inside]
        is_known[elements[inside]] = True
    count = 0
    for number in sorted(mine.written):
        array = new.tensor(number)
        if array is None:
            continue
        elements = mine.elements[number].ravel()
        sure = elements >= 0
        sure[sure] = is_known[elements[sure]]
        if (_bits(array).ravel()[sure] != bits[elements[sure]]).any():
            raise fault(
                "VerificationError",
                f"{name}: {mine.graph.tensors[number].text()} of the rewritten model differs from "
                f"the part of the original that it should hold, for input {turn}",
            )
        count += 1
    return count


def _bits(array: np.ndarray) -> np.ndarray:
    """Return numbers as bits."""
    plain = np.ascontiguousarray(array)
    width = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[plain.itemsize]
    return plain.reshape(-1).view(width).astype(np.uint64)


def _input(fact: Fact, turn: int, numbers: np.random.Generator) -> np.ndarray:
    """Return an input: the least numbers, the largest numbers, then random numbers."""
    dtype = np.dtype(DTYPES[fact.type])
    if dtype.kind == "f":
        return numbers.standard_normal(fact.shape).astype(dtype)
    if dtype.kind not in "iu":
        return numbers.integers(0, 2, fact.shape).astype(dtype)
    bounds = np.iinfo(dtype)
    if turn < 2:
        return np.full(fact.shape, (bounds.min, bounds.max)[turn], dtype)
    return numbers.integers(bounds.min, bounds.max, fact.shape, dtype, endpoint=True)


# -- runtimes ---------------------------------------------------------------------------------


def _makers(runtime: str) -> Iterator[tuple[str, Callable[[bytes], _Runner] | None]]:
    """Yield a runtime's kernel sets, each with a model loader if installed."""
    if runtime == "tflm":
        yield "tflm", None if _imported("tflite_micro") is None else _tflm
        return
    module = _imported("ai_edge_litert.interpreter")
    if module is None:
        yield "litert", None
        return
    kinds = module.OpResolverType
    for name, kind in (
        ("reference", kinds.BUILTIN_REF),
        ("builtin", kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES),
        ("xnnpack", kinds.BUILTIN),
    ):
        yield f"litert:{name}", partial(_litert, module, kind, name == "reference")


def _imported(name: str) -> Any:
    """Import a module; None if not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _tflm(data: bytes) -> _Runner:
    """Return a model in TensorFlow Lite Micro."""
    outputs = len(parse(data).subgraphs[0].outputs)
    return _Runner(partial(Interpreter(data).run, outputs=outputs))


def _litert(module: Any, kind: Any, keeps: bool, data: bytes) -> _Runner:
    """Return a model in LiteRT, which may keep inner tensors."""
    interpreter = module.Interpreter(
        model_content=data,
        experimental_op_resolver_type=kind,
        experimental_preserve_all_tensors=keeps,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    given, made = (
        [entry["index"] for entry in details]
        for details in (interpreter.get_input_details(), interpreter.get_output_details())
    )

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for index, array in zip(given, inputs, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in made]

    return _Runner(run, interpreter.get_tensor) if keeps else _Runner(run)
