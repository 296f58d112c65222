"""Extension of griffe: roles of Sphinx in docstrings become code, as readers of the site expect."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:py:)?(?:attr|class|data|exc|func|meth|mod|obj):`~?([^`]+)`")


class Roles(Extension):
    """Replaces each role by its name."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was just loaded."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
