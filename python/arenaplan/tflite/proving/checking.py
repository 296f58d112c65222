"""Checks a proof file: a new proof for the same files must be equal."""

from __future__ import annotations

from arenaplan.base.arguments import typed
from arenaplan.base.errors import fault
from arenaplan.tflite.proving.facts import read_pair
from arenaplan.tflite.proving.proof_document import compare, read_document
from arenaplan.tflite.proving.prover import Proof, proven
from arenaplan.tflite.reader.tflite_model import Source


@typed
def check_proof(text: bytes | str, original: Source, rewritten: Source) -> Proof:
    """
    Check a proof file against both models.

    Parameters
    ----------
    text : bytes or str
        The proof file's content.
    original, rewritten : path or bytes
        The models.

    Returns
    -------
    Proof
        A new proof, equal to the given one.

    Raises
    ------
    ProofError
        If the proof is for other files, or differs from a new proof.
    ProofError
        If the text is not a proof in this version.
    PlannerError
        As :func:`prove`.
    """
    given = read_document(text)
    sides = read_pair(original, rewritten)
    for what, side in zip(("original", "rewritten"), sides, strict=True):
        entry = given.get(what)
        said = entry.get("sha256") if isinstance(entry, dict) else None
        if said != side.sha256:
            raise fault(
                "ProofStale",
                f"the proof is of another file: the {what} has SHA-256 {side.sha256}, "
                f"the proof says {said!r:.80}",
            )
    ignored = given.get("ignored_metadata")
    names = ignored if isinstance(ignored, list) else []
    fresh = proven(*sides, [name for name in names if isinstance(name, str)])
    compare(given, fresh.document)
    return fresh
