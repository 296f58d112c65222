"""The domain of operators that only this package has: gradients, losses, updates of parameters."""

from typing import Final

TRAINING: Final = "arenaplan.training"
"""Operators of :mod:`arenaplan.symbols.own`, which the NumPy executor runs."""
