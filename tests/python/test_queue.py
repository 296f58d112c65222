"""``ap.run.Queue``: the results of a serial run, whatever the timing, and errors that travel."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

import arenaplan as ap
from raising import raises

WORKERS = [0, 1, 2, 4, 8]


@pytest.mark.parametrize("workers", WORKERS)
def test_random_programs_give_the_values_of_a_serial_run(workers: int) -> None:
    numbers = random.Random(workers)
    values = [float(index) for index in range(100)]
    with ap.run.Queue(workers=workers) as queue, ThreadPoolExecutor(2) as device:
        variables = [queue.variable(np.array([value])) for value in values]

        def mean(*operands: np.ndarray) -> np.ndarray:
            if len(operands) % 16 == 0:
                time.sleep(1e-4)
            return sum(operands[:-1], np.zeros(1)) / len(operands)

        def half(operand: np.ndarray) -> None:
            operand *= 0.5  # In its memory.

        def later(*operands: np.ndarray) -> Future[np.ndarray]:
            return device.submit(mean, *operands)

        for _ in range(2_000):
            written, *read = numbers.sample(range(100), numbers.randrange(2, 20))
            kind = numbers.randrange(10)
            if kind == 0:
                queue.push(half, writes=[variables[written]])
                values[written] *= 0.5
                continue
            function = later if kind == 1 else mean
            queue.push(function, [variables[index] for index in read], [variables[written]])
            values[written] = sum((values[index] for index in read), 0.0) / (len(read) + 1)
        assert [queue.get(variable).item() for variable in variables] == values


@pytest.mark.parametrize("workers", WORKERS)
def test_exceptions_travel_with_variables(workers: int) -> None:
    def fail() -> None:
        raise ZeroDivisionError("no apples")

    with ap.run.Queue(workers=workers) as queue:
        a, b, c = (queue.variable(index) for index in range(3))
        queue.push(lambda _: fail(), writes=[a], name="bad")
        queue.push(lambda a, b: a + b, reads=[a], writes=[b])
        queue.push(lambda c: c + 1, writes=[c])
        for variable in (a, b, b):
            with pytest.raises(ZeroDivisionError, match="no apples") as caught:
                queue.get(variable)
        assert caught.value.__notes__ == ["raised by the function 'bad' of a queue"]
        assert queue.get(c) == 3
        with pytest.raises(ZeroDivisionError):
            queue.wait()
        queue.wait()  # Told once.
        queue.restore(b, 7)
        assert (queue.get(b), queue.version(b), queue.version(c)) == (7, 2, 1)


@pytest.mark.parametrize("workers", WORKERS)
def test_futures_complete_functions(workers: int) -> None:
    with ap.run.Queue(workers=workers) as queue:
        a = queue.variable(1)
        future: Future[int] = Future()
        queue.push(lambda _: future, writes=[a])
        queue.push(lambda a: a + 1, writes=[a])
        threading.Timer(0.01, future.set_result, [41]).start()
        assert queue.get(a) == 42
        failed: Future[int] = Future()
        failed.set_exception(OSError("no device"))
        queue.push(lambda _: failed, writes=[a])
        with pytest.raises(OSError, match="no device"):
            queue.wait(a)
        queue.restore(a, 0)
        lost: list[Future[int]] = [Future()]
        queue.push(lambda _: lost.pop(), writes=[a])
        with raises("KernelError", match="the future of the function was dropped"):
            queue.wait(a)


def test_several_results() -> None:
    with ap.run.Queue() as queue:
        a, b = queue.variable(1), queue.variable(2)
        queue.push(lambda a, b: (b, a), writes=[a, b])
        assert (queue.get(a), queue.get(b)) == (2, 1)
        queue.push(lambda a, b: 5, writes=[a, b])
        with raises("KernelError", match="writes 2 variables returns None or a tuple of 2, not"):
            queue.wait(a)


def test_misuse_is_refused() -> None:
    with raises("InvalidOption", match="at most 256"):
        ap.run.Queue(workers=257)
    queue, other = ap.run.Queue(workers=2), ap.run.Queue(workers=0)
    a = queue.variable()
    with raises("QueueState", match="variable 0 is named twice"):
        queue.push(print, reads=[a], writes=[a])
    for call in (other.get, other.wait, other.version, lambda a: other.push(print, writes=[a])):
        with raises("QueueState", match="another queue"):
            call(a)
    queue.push(lambda _: queue.get(a), writes=[a])
    with raises("QueueState", match="cannot wait in its own queue"):
        queue.wait(a)
    queue.close()
    queue.close()
    with raises("QueueState", match="closed"):
        queue.variable()


def test_variables_that_nobody_names_leave_nothing() -> None:
    with ap.run.Queue(workers=2) as queue:
        total = queue.variable(0)
        for index in range(5_000):
            queue.push(lambda one, total: one + total, [queue.variable(index)], [total])
        assert queue.get(total) == sum(range(5_000))
        queue.wait()
        gc.collect()
        # A function lets go of its variables just after it has ended.
        for _ in range(1_000):
            if queue.variables == 1:
                return
            time.sleep(0.01)
        pytest.fail(f"{queue.variables} variables are left")


def test_the_interpreter_waits_for_its_queues() -> None:
    program = """
import time, arenaplan as ap
queue = ap.run.Queue(workers=2)
a = queue.variable(0)
for index in range(5):
    queue.push(lambda a: (time.sleep(0.01), print(a, flush=True), a + 1)[2], writes=[a])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == list("01234")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_is_refused() -> None:
    program = """
import os, arenaplan as ap
queue = ap.run.Queue(workers=2)
if os.fork() == 0:
    try:
        queue.variable()
    except ap.errors.PlannerError as error:
        print(error.kind, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["QueueState"]
