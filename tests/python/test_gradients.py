"""Gradients against finite differences, and how they are put together."""

from __future__ import annotations

import os
import zlib

import numpy as np
import pytest

from arenaplan.gradients import RULES
from gradient_cases import CASES, Differentiated

DRAWS = int(os.environ.get("ARENAPLAN_GRADIENT_DRAWS", "2"))
"""Random nodes per operator."""
CONSTANT = {"StopGradient", "Sign", "Floor", "Ceil", "Round"}
"""Operators through which no gradient flows."""


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_derivative_by_differences(name: str) -> None:
    for draw in range(DRAWS):
        rng = np.random.default_rng([zlib.crc32(name.encode()), draw])
        case = CASES[name](rng)
        node = Differentiated(case, rng)
        found = node.gradients()
        directions = {key: rng.standard_normal(x.shape) for key, x in node.inputs.items()}
        expected = node.slope(directions)
        product = sum(float(np.sum(found[f"{key}.grad"] * v)) for key, v in directions.items())
        assert product == pytest.approx(expected, rel=1e-6, abs=1e-7), (draw, node.forward.nodes)


def test_every_rule_is_tested() -> None:
    assert {name.split()[0] for name in CASES} | CONSTANT == set(RULES)
