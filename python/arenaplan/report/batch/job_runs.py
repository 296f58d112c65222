"""Running jobs: in processes of our own that may die, or on an executor of the caller."""

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

from arenaplan.base.errors import InvalidOption, fault, kind_of
from arenaplan.base.limits import Limits
from arenaplan.graph import Graph
from arenaplan.report.batch.jobs import Job, Outcome, failed, run_job

_AHEAD = 4
"""Jobs per worker that are handed to an executor before they can run."""
_PERIOD = 2.0
"""Seconds between two looks at whether an engine is still there."""


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
    Plan many models for one or several targets, each in a worker process.

    Parameters
    ----------
    sources : iterable of path or Graph
        The models; they are taken from the iterable as workers become free.
    targets : sequence of str or None
        Targets, by name; ``None`` is the one of the file's format.
    bind : mapping of str to int, optional
        Numbers for symbolic dimensions, of all models.
    workers : int, optional
        Number of processes; as many as processors by default.
    executor : concurrent.futures.Executor, optional
        Runs the jobs in place of processes of our own: threads, or an engine that has this
        protocol, such as Dask's ``Client.get_executor()``. It is not shut down.
    max_nodes : int, optional
        Most nodes of the graph of a file, as of :func:`arenaplan.load`.
    max_bytes : int, optional
        Most bytes of a file, as of :func:`arenaplan.load`.
    **options
        Other options of :func:`arenaplan.plan`.

    Yields
    ------
    Outcome
        One per model and target, in the order of the models. A model that cannot be planned is an
        outcome with an error. So is one whose worker died twice; other jobs go on.

    Raises
    ------
    InvalidOption
        If there are fewer than one worker, or workers besides an executor, or a limit is no whole
        number of at least 0.
    ExecutionError
        If the executor does not run jobs any more, with the kind ``EngineLost``.

    Examples
    --------
    A script that starts processes has its own code under ``if __name__ == "__main__":``, as
    :mod:`multiprocessing` says.

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
    """Yield outcomes of jobs that run on the caller's executor."""
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
    """Return the future of a task; a refusal of the engine is in the future, too."""
    try:
        return executor.submit(function, *arguments)
    except Exception as error:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future


def _outcome(executor: Executor, job: Job, future: Future[Outcome]) -> Outcome:
    """
    Return what came of a job, which runs again if the engine lost it.

    An engine reports its own end like the end of one job. So an error is one of the job only if
    the job fails twice on an engine that runs another task before and after.

    Raises
    ------
    ExecutionError
        If the engine does not run jobs any more.
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
        If it fails; the error that led to the question is in the message.
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
    Return the result of a task.

    Raises
    ------
    ExecutionError
        If the client of Dask gave up its scheduler: futures of such a client never end.
    """
    client = getattr(executor, "_client", None)
    while not wait([future], timeout=_PERIOD).done:
        if getattr(client, "status", None) in ("closing", "closed", "failed"):
            raise fault("EngineLost", "the scheduler of Dask does not answer any more")
    return future.result()


def _in_processes(jobs: Iterator[Job], workers: int) -> Iterator[Outcome]:
    """
    Yield outcomes of jobs that run in processes, which are made again when one dies.

    A process that dies takes the pool with it, and nobody knows which job it ran. So all jobs that
    had begun run again one by one, each in a process of its own. One that dies there is at fault.
    """
    numbered = enumerate(jobs)
    done: dict[int, Outcome] = {}
    """Outcomes of jobs behind one that is not done."""
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
                # A slow job keeps those behind it from leaving, and memory stays bounded.
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
    Return what a worker sent.

    Raises
    ------
    BrokenProcessPool
        If it died.
    """
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as error:  # The job, or its outcome, cannot be sent between processes.
        return failed(job, error)


def _alone(job: Job) -> Outcome:
    """Return the outcome of a job in a process of its own."""
    with _pool(1) as pool:
        try:
            return pool.submit(run_job, job).result()
        except BrokenProcessPool:
            return failed(
                job,
                fault("WorkerDied", f"the process that planned {Path(job.name).name!r} died"),
            )


def _pool(workers: int) -> ProcessPoolExecutor:
    """Return processes that share no locks with threads of this one."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
