"""Changed TFLite files: each is refused with a typed error, or planned."""

from __future__ import annotations

from collections import Counter

from tflite_mutations import mutant, outcome


def test_changed_files_are_refused_with_typed_errors_or_planned() -> None:
    found = Counter(outcome(mutant(seed)) for seed in range(300))
    # The sample has both kinds of files, and damage behind the format.
    assert found["planned"] >= 20
    assert found["FlatbufferCorrupt"] >= 100
    assert len(found) >= 5
