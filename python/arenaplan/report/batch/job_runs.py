"""Running jobs: in worker processes that may die, or on the caller's executor."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from os.path import abspath
from pathlib import Path
from threading import Thread
from typing import Any

from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, fault, kind_of
from arenaplan.base.limits import Limits
from arenaplan.graph import Graph
from arenaplan.report.batch.jobs import Job, Outcome, failed, run_job

_AHEAD = 4
"""Jobs per worker that an executor receives before they can run."""
_PERIOD = 2.0
"""Seconds between two looks at whether an engine is still there."""


@typed
def plan_many(
    sources: Iterable[str | os.PathLike[str] | Graph],
    *,
    targets: Sequence[str | None] = (None,),
    bind: Mapping[str, int] | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    max_nodes: int | None = None,
    max_bytes: int | None = None,
    **options: Any,
) -> Iterator[Outcome]:
    """
    Plan many models for one or several targets, in worker processes.

    Parameters
    ----------
    sources : iterable of path or Graph
        The models; the iterable is read as workers become free.
    targets : sequence of str or None
        Targets by name; ``None`` is the file format's target.
    bind : mapping of str to int, optional
        Numbers for symbolic dimensions in all models.
    workers : int, optional
        Number of processes; by default the number of processors.
    executor : concurrent.futures.Executor, optional
        Runs the jobs instead of worker processes: threads, or an engine with this protocol, such as
        Dask's ``Client.get_executor()``. The executor is not shut down.
    max_nodes : int, optional
        Most nodes per graph, as for :func:`arenaplan.load`.
    max_bytes : int, optional
        Most bytes per file, as for :func:`arenaplan.load`.
    **options
        Other :func:`arenaplan.plan` options.

    Yields
    ------
    Outcome
        One per model and target, in model order. A model that cannot be planned, or whose worker
        died twice, gives an outcome with an error; other jobs go on.

    Raises
    ------
    InvalidOption
        If ``workers`` < 1, or both ``workers`` and ``executor`` are given, or a limit is not a
        whole number >= 0.
    ExecutionError
        If the executor no longer runs jobs; the kind is ``EngineLost``.

    Examples
    --------
    A script that starts processes needs ``if __name__ == "__main__":``; see :mod:`multiprocessing`.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import arenaplan as ap
    >>> graph = ap.Graph("halves")
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Half", [x], [("y", (32,), "float32")])
    >>> graph.output(y)
    >>> with ThreadPoolExecutor(2) as threads:
    ...     for outcome in ap.report.plan_many([graph, "none.onnx"], executor=threads):
    ...         print(outcome.model, outcome.arena_bytes, outcome.error)
    halves 384
    none.onnx None FileNotFoundError
    """
    if workers is not None and (workers < 1 or executor is not None):
        raise InvalidOption(
            f"workers is {workers!r}; it is a number from 1 on, for processes of our own"
        )
    limits = Limits(max_nodes, max_bytes)
    jobs = (
        Job(
            source if isinstance(source, Graph) else os.fspath(source),
            target,
            dict(options),
            dict(bind or {}),
            limits,
        )
        for source in sources
        for target in targets
    )
    return run_jobs(jobs, workers=workers, executor=executor)


def run_jobs(
    jobs: Iterable[Job], *, workers: int | None = None, executor: Executor | None = None
) -> Iterator[Outcome]:
    """Yield the outcome of each job, in order."""
    if executor is not None:
        ahead = _AHEAD * (getattr(executor, "_max_workers", None) or 64)
        return _on_executor(executor, iter(jobs), ahead)
    return _in_processes(iter(jobs), workers or os.cpu_count() or 1)


def _on_executor(executor: Executor, jobs: Iterator[Job], ahead: int) -> Iterator[Outcome]:
    """Yield the outcomes of jobs on the caller's executor."""
    waiting: list[tuple[Job, Future[Outcome]]] = []
    try:
        for job in jobs:
            waiting.append((job, _submit(executor, run_job, _anywhere(job))))
            if len(waiting) >= ahead:
                yield _outcome(executor, *waiting.pop(0))
        while waiting:
            yield _outcome(executor, *waiting.pop(0))
    finally:
        for _, future in waiting:
            future.cancel()


def _anywhere(job: Job) -> Job:
    """Return a job whose path holds in another working directory, too."""
    return job if isinstance(job.source, Graph) else replace(job, source=abspath(job.source))


def _submit(executor: Executor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Submit a task; if the engine refuses, the future has the error."""
    try:
        return executor.submit(function, *arguments)
    except Exception as error:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future


def _outcome(executor: Executor, job: Job, future: Future[Outcome]) -> Outcome:
    """
    Return a job's outcome; a job that the engine lost runs again.

    An engine reports its own failure like a job's failure. So an error is blamed on the job only if
    the job fails twice while the engine runs another task before and after.

    Raises
    ------
    ExecutionError
        If the engine no longer runs jobs.
    """
    sent = _anywhere(job)
    try:
        found: Outcome = _result(executor, future)
    except Exception as error:
        _probe(executor, error)
        try:
            found = _result(executor, _submit(executor, run_job, sent))
        except Exception as again:
            _probe(executor, again)
            found = failed(sent, again)
    return replace(found, model=job.name, message=found.message.replace(sent.name, job.name))


def _probe(executor: Executor, error: Exception) -> None:
    """
    Run a task that cannot fail.

    Raises
    ------
    ExecutionError
        If the task fails; the message has the error that led to the probe.
    """
    try:
        _result(executor, _submit(executor, os.getpid))
    except Exception as cause:
        if kind_of(cause) == "EngineLost":
            raise
        raise fault(
            "EngineLost", f"the executor runs no jobs any more: {kind_of(error)}: {error}"
        ) from cause


def _result(executor: Executor, future: Future[Any]) -> Any:
    """
    Return a task's result.

    Raises
    ------
    ExecutionError
        If the Dask client gave up its scheduler: such a client's futures never end.
    """
    client = getattr(executor, "_client", None)
    while not wait([future], timeout=_PERIOD).done:
        if getattr(client, "status", None) in ("closing", "closed", "failed"):
            raise fault("EngineLost", "the scheduler of Dask does not answer any more")
    return future.result()


def _in_processes(jobs: Iterator[Job], workers: int) -> Iterator[Outcome]:
    """
    Yield the outcomes of jobs in worker processes; dead processes are replaced.

    A dying process breaks the whole pool and does not say which job it ran. So all jobs that had
    begun run again one by one, each in a new process. A job whose new process dies is at fault.
    """
    numbered = enumerate(jobs)
    done: dict[int, Outcome] = {}
    """Outcomes of jobs that wait for an earlier job."""
    following = 0
    is_over = False
    while not is_over:
        again: list[tuple[int, Job]] = []
        """Jobs that were handed to a pool that broke."""
        pool = _pool(workers)
        running: dict[Future[Outcome], tuple[int, Job]] = {}
        fresh: list[tuple[int, Job]] = []
        try:
            while True:
                # Later jobs wait for a slow job, so that memory stays bounded.
                room = _AHEAD * workers - len(running)
                if len(done) < 16 * _AHEAD * workers:
                    fresh = list(islice(numbered, room))
                    is_over = is_over or len(fresh) < room
                    while fresh:
                        running[pool.submit(run_job, fresh[0][1])] = fresh[0]
                        del fresh[0]
                if not running:
                    break
                ready, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ready:
                    number, job = running[future]
                    done[number] = _finished(job, future)
                    del running[future]
                while following in done:
                    yield done.pop(following)
                    following += 1
        except BrokenProcessPool:
            again = sorted([*running.values(), *fresh], key=lambda pair: pair[0])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for number, job in again:
            done[number] = _alone(job)
        while following in done:
            yield done.pop(following)
            following += 1


def _finished(job: Job, future: Future[Outcome]) -> Outcome:
    """
    Return the outcome sent by a worker.

    Raises
    ------
    BrokenProcessPool
        If the worker died.
    """
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as error:  # The job or the outcome cannot be pickled.
        return failed(job, error)


def _alone(job: Job) -> Outcome:
    """Run a job in a new process and return the outcome."""
    with _pool(1) as pool:
        try:
            return pool.submit(run_job, job).result()
        except BrokenProcessPool:
            return failed(
                job,
                fault("WorkerDied", f"the process that planned {Path(job.name).name!r} died"),
            )


def _pool(workers: int) -> ProcessPoolExecutor:
    """Return a process pool that shares no locks with this process's threads."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this worker when the parent process is gone, even if killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
