"""Executors for engines on several machines, by address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from arenaplan.base.errors import InvalidOption, fault


@contextmanager
def executor_at(address: str) -> Iterator[Executor]:
    """
    Return the executor for a running engine.

    Parameters
    ----------
    address : str
        ``dask://HOST:PORT`` is a Dask scheduler. ``ray://HOST:PORT`` is a Ray cluster, and
        ``ray://`` this machine's cluster. Workers need arenaplan and the files.

    Raises
    ------
    InvalidOption
        If the address names no known engine.
    ImportError
        If the engine's package, named in the message, is not installed.
    ExecutionError
        If the engine does not answer; the kind is ``EngineLost``.
    """
    engine, separator, place = address.partition("://")
    if not separator or engine not in ("dask", "ray"):
        raise InvalidOption(f"executor {address!r} is neither dask://HOST:PORT nor ray://HOST:PORT")
    if engine == "dask":
        try:
            from distributed import Client
        except ImportError as error:
            raise ImportError(f"{address} needs Dask: pip install distributed") from error
        with _reached(address, lambda: Client(f"tcp://{place}")) as client:
            yield client.get_executor(pure=False)
        return
    try:
        import ray

        if place:
            import grpc  # noqa: F401  Ray's client imports it late, and hides that it is missing.
    except ImportError as error:
        raise ImportError(f"{address} needs Ray: pip install 'ray[client]'") from error
    where = f"ray://{place}" if place else "auto"
    _reached(address, lambda: ray.init(where, ignore_reinit_error=True))
    try:
        yield RayExecutor(ray)
    finally:
        ray.shutdown()


def _reached(address: str, connect: Callable[[], Any]) -> Any:
    """Return the connection to an engine."""
    try:
        return connect()
    except OSError as error:
        raise fault("EngineLost", f"{address} does not answer: {error}") from error


class RayExecutor(Executor):
    """Ray tasks as standard-library futures."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._max_workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any
    ) -> Future[Any]:
        """Start a task."""
        task = self._ray.remote(function).remote(*arguments, **keywords)
        future: Future[Any] = task.future()
        return future
