"""
Regenerate docs/operators.md, the table of the operators of ONNX and of what runs them.

Usage: python tools/operators.py [--check]

With --check nothing is written; the exit code is 1 if the table is out of date. The numbers of
node tests are those of tests/python/data/onnx_backend_unsupported.txt, which a test compares with
a run of all of them.
"""

import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import onnx
from onnx import defs
from onnx.backend.test.loader import load_model_tests

import arenaplan.run.numpy
from arenaplan.formats.onnx.function_bodies import INLINED
from arenaplan.formats.onnx.walk import SEQUENCES
from arenaplan.run.cuda.lowering import supported_ops as written_ops
from arenaplan.run.numpy.registry import MICROSOFT, supported_ops
from arenaplan.train.gradients import RULES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operators.md"
LISTED = ROOT / "tests" / "python" / "data" / "onnx_backend_unsupported.txt"
BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"


class Tests(NamedTuple):
    """Node tests of the standard."""

    total: int
    passed: int
    by_operator: Counter[str]
    """Tests that have an operator of the default domain, besides those of function bodies."""
    passed_by_operator: Counter[str]


def count() -> Tests:
    """Count the tests of each operator, and those that pass."""
    first, *rest = LISTED.read_text(encoding="utf-8").splitlines()
    if first != f"# onnx {onnx.__version__}":
        sys.exit(f"{LISTED.name} is for {first[2:]}, and this is onnx {onnx.__version__}")
    refused = {line.split()[0] for line in rest if not line.startswith("#")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    every: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for case in cases:
        if case.name.endswith("_expanded"):
            continue
        used = {node.op_type for node in case.model.graph.node if not node.domain}
        every.update(used)
        if case.name not in refused:
            passed.update(used)
    return Tests(len(cases), len(cases) - len(refused), every, passed)


def newest() -> dict[str, int]:
    """Return the newest version of every operator of the default domain."""
    versions: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions[schema.name] = max(versions.get(schema.name, 0), schema.since_version)
    return versions


def table() -> str:
    """Return the generated part of the page."""
    tests, kernels = count(), set(supported_ops())
    written = set(written_ops())
    rows, refused = [], []
    versions = newest()
    for name, version in sorted(versions.items()):
        passed, total = tests.passed_by_operator[name], tests.by_operator[name]
        if name in kernels:
            how = "kernel"
        elif name in INLINED[""]:
            how = "function"
        elif passed or name in SEQUENCES:
            how = "import"
        else:
            refused.append(f"`{name}`")
            continue
        other = "by its parts" if how == "function" else "no"
        gradient = "yes" if name in RULES else other
        device = ("text" if name in written else "host") if how == "kernel" else "as its parts"
        rows.append(f"| {name} | {version} | {how} | {device} | {gradient} | {passed}/{total} |\n")
    return "".join(
        [
            f"With onnx {onnx.__version__}: {len(rows)} of the {len(versions)} operators of the "
            f"default domain run, and {tests.passed:,} of the {tests.total:,} node tests pass.\n\n",
            f"Refused by name: {', '.join(refused)}.\n\n",
            "Sequences and optional values are made inside of models, whose inputs are arrays.\n"
            "Many node tests have sequences as inputs.\n\n",
            f"`arenaplan.train.gradient` has a rule for {len(RULES.keys() & versions.keys())} of "
            "these operators, and for the rules' own operators, so that gradients have gradients.\n"
            "Operators with whole numbers or truth values alone need none.\n\n",
            "| operator | newest version | runs as | on a device | gradient | node tests |\n",
            "| --- | ---: | --- | --- | --- | ---: |\n",
            *rows,
            "\nOf the operators that ONNX Runtime adds (`com.microsoft`), these run: ",
            ", ".join(f"`{name}`" for name in added()),
            ".\n",
        ]
    )


def added() -> list[str]:
    """Return the operators of ONNX Runtime that a kernel or a function runs."""
    return sorted({*supported_ops(MICROSOFT), *INLINED[MICROSOFT]})


def main() -> None:
    """Write the table, or compare it."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = before + BEGIN + table() + END + after
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != text:
        sys.exit("docs/operators.md is out of date: run 'make operators'")


if __name__ == "__main__":
    assert arenaplan.run.numpy  # Importing it registers the kernels.
    main()
