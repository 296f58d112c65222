"""
Compares an executor with the interpreter in the Python package ``tflite-micro``.

The interpreter has the reference kernels of devices without optimized kernels. Both interpreter and
executor keep variables between runs, so both must see the same inputs in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, Final, NamedTuple

import numpy as np

from arenaplan.base.errors import UnsupportedModel, fault
from arenaplan.graph import Graph

_LEAST: Final = 1 << 22
"""First size of the interpreter's arena, in bytes."""
_MOST: Final = 1 << 30


class Match(NamedTuple):
    """The comparison of a run."""

    elements: int
    """Number of elements in all outputs."""
    inexact: int
    """Number of floats that differ in the last bits."""


class Interpreter:
    """
    A model in the TensorFlow Lite Micro interpreter.

    Parameters
    ----------
    data : bytes
        The TFLite file.

    Raises
    ------
    ImportError
        If ``tflite-micro`` is not installed.
    UnsupportedModel
        If the interpreter cannot run the model.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> from arenaplan.deploy.adapters.interpreter import Interpreter
    >>> data = open("kws.tflite", "rb").read()                          # doctest: +SKIP
    >>> with ap.Executor(data) as executor:                             # doctest: +SKIP
    ...     outputs = executor.run(inputs)
    ...     Interpreter(data).compare(executor.graph, inputs, outputs)
    Match(elements=12, inexact=0)
    """

    def __init__(self, data: bytes) -> None:
        from tflite_micro import runtime

        self._interpreter = _started(runtime, data)

    @staticmethod
    def version() -> str:
        """Return the package's name and version."""
        return f"tflite-micro {metadata.version('tflite-micro')}"

    def run(self, inputs: Sequence[np.ndarray], outputs: int) -> list[np.ndarray]:
        """
        Return a run's outputs.

        Parameters
        ----------
        inputs : sequence of array
            All inputs, in file order.
        outputs : int
            The number of outputs.

        Raises
        ------
        UnsupportedModel
            If a kernel fails.
        """
        try:
            for position, array in enumerate(inputs):
                self._interpreter.set_input(array, position)
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise _refused(error) from error
        return [np.array(self._interpreter.get_output(at)) for at in range(outputs)]

    def compare(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> Match:
        """
        Run the model, and compare the outputs with an executor's outputs.

        Whole numbers must be equal. Floats may differ by some units in the last place, because
        functions such as ``sin`` come from different libraries.

        Raises
        ------
        ExecutionError
            If an output differs; the message names the output and the first different element.
        UnsupportedModel
            If a kernel fails.
        """
        given = [np.asarray(inputs[graph.values[index].name]) for index in graph.inputs]
        expected = self.run(given, len(graph.outputs))
        elements = inexact = 0
        for index, wanted in zip(graph.outputs, expected, strict=True):
            name = graph.values[index].name
            elements += wanted.size
            inexact += _differences(name, outputs[name].reshape(wanted.shape), wanted)
        return Match(elements, inexact)


def _differences(name: str, found: np.ndarray, wanted: np.ndarray) -> int:
    """Return how many floats differ in the last bits; raise for larger differences."""
    same = found == wanted
    if wanted.dtype.kind == "f":
        same |= np.isnan(found) & np.isnan(wanted)
    if same.all():
        return 0
    close = same.copy()
    if wanted.dtype.kind == "f":
        close |= np.isclose(found, wanted, rtol=1e-5, atol=1e-6)
    if not close.all():
        place = tuple(int(at) for at in np.argwhere(~close)[0])
        raise fault(
            "VerificationError",
            f"output {name!r} differs from that of TensorFlow Lite Micro's interpreter in "
            f"{int((~close).sum())} of {found.size} elements, first at {place}: "
            f"{found[place]} instead of {wanted[place]}",
        )
    return int((~same).sum())


def _started(runtime: Any, data: bytes) -> Any:
    """Return an interpreter whose arena is large enough."""
    size = _LEAST
    while True:
        try:
            return runtime.Interpreter.from_bytes(data, arena_size=size)
        except (RuntimeError, ValueError) as error:
            if size >= _MOST:
                raise _refused(error) from error
            size *= 8


def _refused(error: Exception) -> UnsupportedModel:
    """Return the error for a model that the interpreter does not run."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return UnsupportedModel(f"TensorFlow Lite Micro's interpreter does not run it: {lines[0]}")
