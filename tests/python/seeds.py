"""Many seeds of a random test, tried by hand: ``make fuzz-models``."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date

SECONDS = 20
"""Seconds of processor time that a seed may take."""


def _late(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"it takes longer than {SECONDS} seconds")


def try_seeds(
    first: int, count: int, memory: int, attempt: Callable[[int], tuple[str, Callable[[], str]]]
) -> int:
    """
    Try seeds, print each one that ends in an error, and return how many there are.

    Parameters
    ----------
    memory : int
        Bytes of memory that the process may have.
    attempt : callable
        Returns for a seed how messages call its case, and a function that returns its outcome.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGVTALRM, _late)
    counts: Counter[str] = Counter()
    defects = 0
    for seed in range(first, first + count):
        name, run = attempt(seed)
        print(f"{seed}: {name}", file=sys.stderr)  # It tells which case ended the process.
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            found = run()
        except Exception as error:
            defects += 1
            found = f"DEFECT {type(error).__name__}"
            text = " ".join(str(error).split())[:300]
            print(f"{seed} {name}: {type(error).__name__}: {text}", flush=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        counts[found] += 1
    print(dict(counts.most_common()), flush=True)
    return defects


def main(cases: str, memory: int, attempt: Callable[[int], tuple[str, Callable[[], str]]]) -> int:
    """Try the seeds that the command line names; ``cases`` are their plural."""
    parser = argparse.ArgumentParser(description=try_seeds.__doc__)
    parser.add_argument("--models", type=int, default=2000, help=f"number of {cases}")
    parser.add_argument("--first", type=int, default=1000 * date.today().toordinal(), help="seed")
    options = parser.parse_args()
    return int(try_seeds(options.first, options.models, memory, attempt) > 0)
