"""Expects errors by kind, which is finer than their class."""

from __future__ import annotations

from typing import Any

import pytest

import arenaplan as ap


def raises(expected: Any, **options: Any) -> Any:
    """Expect an error of a kind (its name) or class, or of one of several, as ``pytest.raises``."""
    several = expected if isinstance(expected, tuple) else (expected,)
    names = {one for one in several if isinstance(one, str)}
    classes = tuple(one for one in several if not isinstance(one, str))
    assert names <= ap.errors.kinds().keys(), names

    def as_expected(error: BaseException) -> bool:
        return isinstance(error, classes) or getattr(error, "kind", None) in names

    return pytest.raises((*classes, ap.PlannerError), check=as_expected, **options)
