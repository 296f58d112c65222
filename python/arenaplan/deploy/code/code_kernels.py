"""
Kernels: C functions that are written once and get their types where they are used.

A template is a file of ``kernels``. Words in capitals stand for types and expressions; the first
line may name templates that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).with_name("kernels")
_USES: Final = re.compile(r"\A/\* uses: ([a-z0-9_ ]*) \*/\n")


@cache
def _template(name: str) -> str:
    """Return the text of a template."""
    return (_FOLDER / f"{name}.c").read_text(encoding="ascii")


class KernelTexts:
    """The kernels that a program uses, each once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def use(self, template: str, words: Mapping[str, str] | None = None, name: str = "") -> None:
        """
        Add a kernel, and those that it uses.

        Parameters
        ----------
        words : mapping of str to str, optional
            What the words in capitals stand for.
        name : str, optional
            What distinguishes this kernel from others of the same template.
        """
        key = name or template
        if key in self._texts:
            return
        text = _template(template)
        for word, meaning in (words or {}).items():
            text = meaning.join(re.split(rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])", text))
        found = _USES.match(text)
        for used in found[1].split() if found else ():
            self.use(used)
        # An empty structure is no C.
        text = re.sub(r"struct (\w+) \{\n\s*\n?\};", r"struct \1 {\n  int32_t unused;\n};", text)
        self._texts[key] = text[found.end() :] if found else text

    def text(self) -> str:
        """Return all of them, each behind those that it uses."""
        return "\n".join(self._texts.values())
