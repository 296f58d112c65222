"""
Comparison of an executor with the interpreter of the Python package ``tflite-micro``.

The interpreter has the reference kernels that a device without optimized ones runs. It keeps its
variables from run to run, as an executor does: both have to see the same inputs in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, Final, NamedTuple

import numpy as np

from arenaplan.base.errors import UnsupportedModel, fault
from arenaplan.graph import Graph

_LEAST: Final = 1 << 22
"""Bytes of the interpreter's arena that are tried first."""
_MOST: Final = 1 << 30


class Match(NamedTuple):
    """The comparison of one run."""

    elements: int
    """Elements of all outputs."""
    inexact: int
    """Real numbers among them that differ in their last bits."""


class Interpreter:
    """
    A model in the interpreter of TensorFlow Lite Micro.

    Parameters
    ----------
    data : bytes
        The TFLite file.

    Raises
    ------
    ImportError
        If ``tflite-micro`` is not installed.
    UnsupportedModel
        If the interpreter does not run the model.

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
        """Return name and version of the package."""
        return f"tflite-micro {metadata.version('tflite-micro')}"

    def run(self, inputs: Sequence[np.ndarray], outputs: int) -> list[np.ndarray]:
        """
        Return the outputs of one run.

        Parameters
        ----------
        inputs : sequence of array
            All inputs, in the order of the file.
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
        Run the model, and compare its outputs with those of an executor.

        Whole numbers must be equal. Real numbers may differ by some units of the last place, since
        functions such as ``sin`` are those of another library.

        Raises
        ------
        ExecutionError
            If an output differs; the message names it and its first element that does.
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
    """Return how many real numbers differ in their last bits; raise if others do."""
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
