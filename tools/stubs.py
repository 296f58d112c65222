"""
Write the types of the extension module: what PyO3 knows of it, and the buffer protocol.

Usage: python tools/stubs.py OUTPUT.pyi
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

BUFFER = '''    def __buffer__(self, flags: int, /) -> memoryview:
        """
        Share the memory as a writable buffer of bytes.
        """
'''


def main() -> None:
    """Write the file named on the command line."""
    output = Path(sys.argv[1])
    here = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        # The profile of the tests, whose dependencies are built already.
        command = [here / "maturin", "generate-stubs", "--quiet", "--profile", "checked"]
        subprocess.run([*command, "--out", folder], check=True)
        text = Path(folder, "arenaplan", "_core.pyi").read_text()
    # PyO3 does not say that a class has the buffer protocol.
    marker = "    def __dlpack__("
    if text.count(marker) != 1:
        sys.exit("the generated stubs have changed: where is Arena.__dlpack__?")
    text = text.replace(marker, BUFFER + marker)
    # Nor of what an iterator iterates over.
    names = "def __iter__(self, /) -> Iterator:"
    if text.count(names) != 1:
        sys.exit("the generated stubs have changed: where is Plan.__iter__?")
    text = text.replace(names, names.replace("Iterator", "Iterator[str]"))
    # Arrays have a typed buffer protocol from Python 3.12 on only.
    text = text.replace("from typing_extensions import Buffer\n", "from numpy import ndarray\n")
    text = re.sub(r"\bBuffer\b", "ndarray[Any, Any]", text)
    text = text.replace("import Iterator, Sequence", "import Iterator, Mapping, Sequence")
    output.write_text(text)
    subprocess.run([here / "ruff", "check", "--quiet", "--fix-only", output], check=True)
    subprocess.run([here / "ruff", "format", "--quiet", output], check=True)


if __name__ == "__main__":
    main()
