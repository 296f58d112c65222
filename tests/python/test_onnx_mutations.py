"""Changed ONNX models: each is refused with a typed error, or computed as ONNX Runtime does."""

from __future__ import annotations

from collections import Counter

import pytest

from onnx_mutations import mutant, outcome

FOUND = {
    6: "InvalidOperand",  # an operand too many: rows were cut of too few operands
    20019: "InvalidOperand",  # an operand too many: it was broadcast
    13874: "KernelError",  # a Clip whose bound is three numbers was read as one
    21709: "planned",  # a MaxPool with a list as the group that it does not have
}
"""What seeds of models become that ended in errors without a type."""


@pytest.mark.parametrize(("seed", "becomes"), FOUND.items())
def test_models_that_ended_in_other_errors(seed: int, becomes: str) -> None:
    model, _ = mutant(seed)
    assert outcome(model, oracle=False) == becomes


def test_changed_models_are_refused_or_right() -> None:
    found = Counter(outcome(mutant(seed)[0]) for seed in range(60))
    # The sample has both kinds of models.
    assert found["right"] >= 3
    assert len(found) >= 8
