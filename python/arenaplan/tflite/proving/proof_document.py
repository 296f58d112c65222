"""The proof as a JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from arenaplan.base.errors import fault
from arenaplan.tflite.proving.derive import Derivation, Justified
from arenaplan.tflite.proving.elements import DOUBT
from arenaplan.tflite.proving.facts import File, SubgraphFacts
from arenaplan.tflite.proving.maps import Parts
from arenaplan.tflite.proving.replay import Replayed

FORMAT: Final = "arenaplan-proof"
VERSION: Final = 1

_FLOATS: Final = frozenset({0, 1, 10, 18})
_SUMS: Final = frozenset({"window"})


def described(
    old: File, new: File, derivations: Sequence[Derivation], plan: Replayed | None
) -> dict[str, Any]:
    """Return a proof's document."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "original": {"sha256": old.sha256, "bytes": len(old.model.data)},
        "rewritten": {"sha256": new.sha256, "bytes": len(new.model.data)},
        "exactness": _exactness(derivations),
        "subgraphs": [_subgraph(derivation) for derivation in derivations],
        "plan": None if plan is None else _plan(plan),
    }


def _exactness(derivations: Sequence[Derivation]) -> str:
    """Return under which condition outputs have equal bits."""
    for derivation in derivations:
        old = derivation.original.known
        if any(old.graph.tensors[number].type in _FLOATS for number in old.merged):
            return "order-of-sums"
        graph = derivation.known.graph
        for entry in derivation.justified:
            operation = graph.operations[entry.operator]
            if entry.rule in _SUMS and graph.tensors[operation.outputs[0]].type in _FLOATS:
                return "order-of-sums"
    return "bits"


def _subgraph(derivation: Derivation) -> dict[str, Any]:
    """Return the map of a subgraph's tensors, and each operator's rule."""
    known, original = derivation.known, derivation.original.known
    parts = Parts(original)
    tensors = []
    for number in sorted(known.written):
        elements = known.elements[number]
        entry: dict[str, Any] = {"tensor": number, "name": known.graph.tensors[number].name}
        part = parts.of(elements)
        if part is None:
            entry["mixed"] = {
                "elements": int((elements >= 0).sum()),
                "constants": int(((elements < 0) & (elements > DOUBT)).sum()),
                "unproven": int((elements <= DOUBT).sum()),
            }
        else:
            entry["holds"] = part
        tensors.append(entry)
    return {
        "tensors": tensors,
        "operators": [_operator(known.graph, entry) for entry in derivation.justified],
        "unused": [
            operation.index
            for operation in original.graph.operations
            if operation.index not in {entry.original for entry in derivation.justified}
            and operation.index not in derivation.original.moves
        ],
    }


def _operator(graph: SubgraphFacts, entry: Justified) -> dict[str, Any]:
    operation = graph.operations[entry.operator]
    found: dict[str, Any] = {
        "operator": entry.operator,
        "name": operation.name,
        "rule": entry.rule,
    }
    if entry.original is not None:
        found["original"] = entry.original
    return found


def _plan(plan: Replayed) -> dict[str, Any]:
    return {
        "head": plan.head,
        "planned": plan.planned,
        "online": plan.online,
        "kernels": plan.kernels,
        "aliases": _pairs(plan.aliases),
        "overlaps": _pairs(plan.overlaps),
        "in_place": _pairs(plan.in_place),
    }


def _pairs(pairs: Sequence[tuple[int, int, int]]) -> list[dict[str, int]]:
    return [
        {"operator": operator, "source": source, "result": result}
        for operator, source, result in pairs
    ]


def proof_schema() -> str:
    """
    Return the JSON schema for proof files.

    Examples
    --------
    >>> import json
    >>> import arenaplan as ap
    >>> json.loads(ap.tflite.proof_schema())["title"]
    'arenaplan proof, version 1'
    """
    return files(__package__).joinpath("proof.schema.json").read_text("utf-8")


def to_json(document: Mapping[str, Any]) -> str:
    """Return a proof file's text."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read_document(text: bytes | str) -> dict[str, Any]:
    """
    Return the document in a proof file.

    Raises
    ------
    ProofError
        If the text is no proof.
    ProofError
        If the proof has another version.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise fault("ProofCorrupt", f"the proof is no JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise fault("ProofCorrupt", f"the file is no proof: its format is not {FORMAT!r}")
    if document.get("version") != VERSION:
        raise fault(
            "ProofVersion", f"the proof has version {document.get('version')!r}, not {VERSION}"
        )
    return document


def compare(given: Mapping[str, Any], fresh: Mapping[str, Any]) -> None:
    """
    Refuse a proof that differs from a new proof for the same files.

    Raises
    ------
    ProofError
        If the proofs differ; the message names the first difference.
    """
    where = _first_difference(given, fresh, "")
    if where is not None:
        raise fault("ProofStale", f"the proof does not fit these files: {where}")


def _first_difference(given: object, fresh: object, path: str) -> str | None:
    """Return the first difference between two documents, depth first."""
    if isinstance(given, dict) and isinstance(fresh, dict):
        for key in sorted({*given, *fresh}):
            here = f"{path}.{key}" if path else str(key)
            if key not in given or key not in fresh:
                return f"{here} is {'missing' if key not in given else 'not expected'}"
            found = _first_difference(given[key], fresh[key], here)
            if found is not None:
                return found
        return None
    if isinstance(given, list) and isinstance(fresh, list):
        if len(given) != len(fresh):
            return f"{path} has {len(given)} entries, not {len(fresh)}"
        pairs = enumerate(zip(given, fresh, strict=True))
        texts = (_first_difference(a, b, f"{path}[{i}]") for i, (a, b) in pairs)
        return next((text for text in texts if text is not None), None)
    if type(given) is type(fresh) and given == fresh:
        return None
    return f"{path} is {given!r:.80}, not {fresh!r:.80}"
