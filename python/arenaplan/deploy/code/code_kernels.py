"""
Kernels: C function templates, instantiated with types where used.

A template is a file in ``kernels``. Words in capitals stand for types and expressions; the first
line may name required templates.
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
def template_text(name: str) -> str:
    """Return a template's text."""
    return (_FOLDER / f"{name}.c").read_text(encoding="ascii")


class KernelTexts:
    """The kernels that a program uses, each once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def use(self, template: str, words: Mapping[str, str] | None = None, name: str = "") -> None:
        """
        Add a kernel and the kernels that it uses.

        Parameters
        ----------
        words : mapping of str to str, optional
            Replacements for the words in capitals.
        name : str, optional
            Distinguishes this kernel from other kernels with the same template.
        """
        key = name or template
        if key in self._texts:
            return
        text = template_text(template)
        for word, meaning in (words or {}).items():
            text = meaning.join(re.split(rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])", text))
        found = _USES.match(text)
        for used in found[1].split() if found else ():
            self.use(used)
        # An empty structure is no C.
        text = re.sub(r"struct (\w+) \{\n\s*\n?\};", r"struct \1 {\n  int32_t unused;\n};", text)
        self._texts[key] = text[found.end() :] if found else text

    def text(self) -> str:
        """Return all kernels, each after the kernels that it uses."""
        return "\n".join(self._texts.values())
