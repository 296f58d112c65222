"""
Measure the packing portfolio on folders of CSV files, and a minimalloc binary beside it.

Usage: python benches/packing.py INSTANCES [--minimalloc BINARY] [--shuffles 15]

INSTANCES has folders ``minimalloc`` (A to K), ``filled``, ``large`` and ``real``. Times are CPU
seconds of whole processes, user and system, so starting up and reading the file count. The
portfolio's are means over inputs whose rows are shuffled, each with a seed of its own.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CAPACITY = 1 << 20


@dataclass(frozen=True)
class Run:
    """What one run of the portfolio gave."""

    seconds: float
    peak: int
    bound: int

    @property
    def ratio(self) -> float:
        """The peak by its bound."""
        return self.peak / self.bound if self.bound else 1.0


def cpu_seconds(command: Sequence[str | Path]) -> tuple[float, str]:
    """Run a command, and return its CPU time and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, done.stdout


def shuffled(source: Path, seed: int, target: Path) -> None:
    """Write the rows of a CSV file in another order; seed 0 keeps them."""
    header, *rows = source.read_text().split()
    if seed:
        random.Random(seed).shuffle(rows)
    target.write_text("\n".join([header, *rows]) + "\n")


def measure(source: Path, shuffles: int, limit: float, capacity: int | None = None) -> list[Run]:
    """Pack shuffled copies of a file."""
    binary = ROOT / "target/release/examples/pack_csv"
    options = ["--seconds", str(limit)]
    if capacity is not None:
        options += ["--capacity", str(capacity)]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "shuffled.csv")
        for seed in range(shuffles):
            shuffled(source, seed, copy)
            spent, out = cpu_seconds([binary, *options, "--seed", str(seed), copy])
            words = out.split()
            peak, bound = (int(words[words.index(name) + 1]) for name in ("peak", "bound"))
            runs.append(Run(spent, peak, bound))
    return runs


def row(name: str, runs: list[Run], goal: int | None, beside: float | None = None) -> None:
    """Print one row of the table."""
    reached = sum(run.peak <= (run.bound if goal is None else goal) for run in runs)
    mean, worst = statistics.mean(run.seconds for run in runs), max(run.seconds for run in runs)
    text = f"| {name} | {reached}/{len(runs)} | {1e3 * mean:.1f} | {1e3 * worst:.1f} "
    text += f"| {statistics.median(run.ratio for run in runs):.4f} |"
    if beside is not None:
        text += f" {beside:.2f} | {beside / mean:.0f} |"
    print(text, flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("instances", type=Path)
    parser.add_argument("--minimalloc", type=Path)
    parser.add_argument("--shuffles", type=int, default=15)
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "--example", "pack_csv"]
    subprocess.run(build, cwd=ROOT, check=True)

    head = "| instance | reached | mean ms | worst ms | peak / bound |"
    print(f"\nAt capacity {CAPACITY}\n\n{head} minimalloc s | times |\n" + "|---" * 7 + "|")
    ours = theirs = 0.0
    files = sorted((options.instances / "minimalloc").glob("[A-K].*.csv"))
    for file in files:
        runs = measure(file, options.shuffles, 2, CAPACITY)
        beside = None
        if options.minimalloc is not None:
            output = ["--output", "/dev/null"]
            command = [options.minimalloc, f"--capacity={CAPACITY}", f"--input={file}", *output]
            beside, _ = cpu_seconds(command)
            theirs += beside
        ours += statistics.mean(run.seconds for run in runs)
        row(file.name[0], runs, CAPACITY, beside)
    print(f"\nTogether {1e3 * ours:.0f} ms", end="")
    print(f", minimalloc {theirs:.2f} s, {theirs / ours:.0f} times" if theirs else "")

    print(f"\nAt their own bound\n\n{head}\n" + "|---" * 5 + "|")
    for file in files:
        limit = 10 if file.name[0] in "DJ" else 2
        row(file.name[0], measure(file, options.shuffles, limit), None)
    for folder, limit, shuffles in (("filled", 5, 5), ("large", 10, 5), ("real", 2, 1)):
        print(f"\n{folder}, {limit} s\n\n{head}\n" + "|---" * 5 + "|")
        for file in sorted((options.instances / folder).glob("*.csv")):
            row(file.stem, measure(file, shuffles, limit), None)


if __name__ == "__main__":
    main()
