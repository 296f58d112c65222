"""The domains of operators that only this package has."""

from typing import Final

TRAINING: Final = "arenaplan.training"
"""Operators of :mod:`arenaplan.train.symbols.own_operators`, which the NumPy executor runs."""
QUANTIZATION: Final = "arenaplan.quantization"
"""Operators that an importer puts in the place of quantizing ones."""
EXTREMES: Final = "Extremes"
"""The operator of that domain that returns the least and the greatest element of each part of a
tensor: of each channel of images, and of each row of anything else."""
SCALE: Final = "Scale"
"""The operator of that domain that returns scale and zero point of the 8-bit integers that just
cover some numbers and zero."""
REQUANTIZE: Final = "Requantize"
"""The operator of that domain that multiplies sums by scales, rounds, and adds a zero point."""
