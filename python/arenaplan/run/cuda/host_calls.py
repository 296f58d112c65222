"""
Calls on the host: nodes without generated text, which NumPy's kernels run on copies of operands.

A call waits for its stream, so all earlier work there is done when operands are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from arenaplan.graph import Graph
from arenaplan.run.cuda.device import Device, Run, Stream
from arenaplan.run.cuda.device_work import DevicePlace, HostCall
from arenaplan.run.numpy.executor import quiet_arithmetic
from arenaplan.run.numpy.numpy_backend import BACKEND, least_workspaces
from arenaplan.run.numpy.registry import Clock, Step, attributed, find_kernel
from arenaplan.run.numpy.signatures import byte_size
from arenaplan.run.numpy.steps import array_at, own_workspaces


class Copied(NamedTuple):
    """Bytes of one value on the host and on the device."""

    host: np.ndarray
    device: Any


class HostCalls:
    """
    The calls of a program, with memory on the host.

    Parameters
    ----------
    calls : iterable of HostCall
        All calls of the program.
    """

    def __init__(
        self, device: Device, graph: Graph, calls: Iterable[HostCall], clock: Clock
    ) -> None:
        self._device, self._graph, self._clock = device, graph, clock
        costs = BACKEND.costs(graph)
        known = {call.node: costs.step([call.node], "whole") for call in calls}
        sizes = {node: least_workspaces(cost) for node, cost in known.items() if cost is not None}
        self._workspaces, self.bytes = own_workspaces(sizes)
        """Bytes on the host: copies of operands and results, and scratch memory."""

    def bind(
        self, stream: Stream, call: HostCall, memory: Callable[[DevicePlace, int], Any]
    ) -> Run:
        """
        Return a function that runs a call when the work in the stream so far is done.

        Parameters
        ----------
        memory : callable
            Returns the first bytes of a place on the device, as many as given.
        """
        graph = self._graph
        node = graph.nodes[call.node]

        def copied(value: int | None, place: DevicePlace | None) -> Copied | None:
            if value is None or place is None:
                return None
            size = byte_size(graph.values[value])
            self.bytes += size
            return Copied(self._device.staging(size), memory(place, size))

        def array(value: int | None, copy: Copied | None) -> np.ndarray | None:
            if value is None:
                return None
            return graph.data(value) if copy is None else array_at(graph, value, copy.host)

        operands = {
            value: copied(value, place)
            for value, place in zip(node.inputs, call.operands, strict=True)
        }
        results = {
            value: copied(value, place)
            for value, place in zip(node.outputs, call.results, strict=True)
        }
        step = Step(
            call.signature,
            tuple(array(value, operands[value]) for value in node.inputs),
            tuple(array(value, results[value]) for value in node.outputs),
            tuple(self._workspaces.get(call.node, ())),
            clock=self._clock,
        )
        kernel = attributed(find_kernel(call.signature).prepare, step, call.signature)
        downloads = [stream.download(c.device, c.host) for c in _filled(operands.values())]
        uploads = [stream.upload(c.host, c.device) for c in _filled(results.values())]

        def run() -> None:
            for download in downloads:
                download()
            stream.synchronize()
            if kernel is not None:
                with quiet_arithmetic():
                    kernel()
            for upload in uploads:
                upload()

        return run


def _filled(copies: Iterable[Copied | None]) -> list[Copied]:
    return [copy for copy in copies if copy is not None and copy.host.nbytes]
