"""
Fetches minimalloc's Python tests into target/minimalloc for tests/python/test_minimalloc.py.

Usage: python tools/minimalloc_tests.py

They are Google's and Axelera AI's, under the license Apache-2.0, and no part of this repository.
Without a network nothing is fetched, and the test is skipped.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

COMMIT = "9f5cf810fec4494df473c23cffd0567989e81b69"
FILES = ("test_converter", "test_minimalloc", "test_solver", "test_utils", "test_validator")
SOURCE = "https://raw.githubusercontent.com/google/minimalloc/{commit}/python/tests/{name}.py"
FOLDER = Path(__file__).resolve().parents[1] / "target" / "minimalloc"


def main() -> None:
    """Write the files, all or none."""
    texts = {}
    for name in FILES:
        try:
            with urllib.request.urlopen(SOURCE.format(commit=COMMIT, name=name), timeout=20) as it:
                texts[name] = it.read()
        except (urllib.error.URLError, TimeoutError) as error:
            print(f"{name}: {error}; nothing is fetched", file=sys.stderr)
            return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (FOLDER / f"{name}.py").write_bytes(text)
    print(f"{len(texts)} files in {FOLDER}")


if __name__ == "__main__":
    main()
