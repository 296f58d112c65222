"""Proves a rewritten model, from both files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, UnsupportedModel, fault
from arenaplan.base.quoting import quoted
from arenaplan.tflite.proving.derive import Derivation, original_of
from arenaplan.tflite.proving.elements import Names
from arenaplan.tflite.proving.facts import OBEYED, ONLINE, PLAN, File, read_pair
from arenaplan.tflite.proving.proof_document import described, to_json
from arenaplan.tflite.proving.replay import Replayed, replay
from arenaplan.tflite.reader.tflite_model import Source, SubgraphSignature


@dataclass(frozen=True)
class Proof:
    """
    The proof that a rewritten TFLite model computes the same bits as the original.

    Attributes
    ----------
    document : mapping
        The proof as a document for ``schema/proof.schema.json``.
    plan : Replayed or None
        The plan in the rewritten file, if any.
    """

    document: Mapping[str, Any]
    plan: Replayed | None
    derivations: tuple[Derivation, ...]

    @property
    def rules(self) -> dict[str, int]:
        """Number of operators by justifying rule."""
        found: dict[str, int] = {}
        for derivation in self.derivations:
            for entry in derivation.justified:
                found[entry.rule] = found.get(entry.rule, 0) + 1
        return dict(sorted(found.items()))

    def to_json(self) -> str:
        """Return the proof file's content."""
        return to_json(self.document)


@typed
def prove(original: Source, rewritten: Source, *, ignored_metadata: Sequence[str] = ()) -> Proof:
    """
    Prove that a rewritten TFLite model computes the same bits as the original.

    Every rewritten tensor is derived element by element from the original's tensors through the
    rewritten operators. Then the plan in the file, if any, is replayed on bytes labeled with
    elements. No claim by the rewriter is trusted.

    Parameters
    ----------
    original, rewritten : path or bytes
        The models.
    ignored_metadata : sequence of str, optional
        Names for metadata that may differ, such as ``"min_runtime_version"``.

    Returns
    -------
    Proof
        The proof. Equal files give equal documents.

    Raises
    ------
    InvalidOption
        If an ignored entry changes what a runtime computes.
    ProofError
        If an operator, tensor, input, output, signature or other part differs from the original.
    PlanError
        If the plan in the file would corrupt a run.
    ModelError
        If a file is malformed.
    UnsupportedModel, UnsupportedDtype
        If a file has parts that no rule covers.

    Examples
    --------
    >>> import arenaplan as ap
    >>> empty = bytes.fromhex(  # The smallest model: a graph of nothing.
    ...     "1800000054464c330a000c000400000008000000000000001000000003000000"
    ...     "04000000010000001000000000000000040004000000000008000000"
    ... )
    >>> proof = ap.tflite.prove(empty, empty)
    >>> proof.rules, proof.document["exactness"]
    ({}, 'bits')
    >>> ap.tflite.check_proof(proof.to_json(), empty, empty).plan is None
    True
    """
    obeyed = [name for name in ignored_metadata if name in OBEYED]
    if obeyed:
        raise InvalidOption(
            f"option ignored_metadata: a runtime computes by {quoted(obeyed[0])}, which no proof "
            "ignores"
        )
    return proven(*read_pair(original, rewritten), tuple(ignored_metadata))


def proven(old: File, new: File, ignored: Sequence[str] = ()) -> Proof:
    """Return the proof for two parsed files."""
    ignored = sorted(set(ignored) - OBEYED)
    derivations, plan = _derived(old, new, ignored)
    document = described(old, new, derivations, plan)
    if ignored:
        document["ignored_metadata"] = ignored
    return Proof(document, plan, derivations)


def proven_plan(original: Source, rewritten: Source) -> Replayed | None:
    """
    Prove as :func:`prove`, but return only the plan, which takes less time.

    Returns
    -------
    Replayed or None
        The plan in the rewritten file, if any.
    """
    return _derived(*read_pair(original, rewritten))[1]


def _derived(
    old: File, new: File, ignored: Sequence[str] = ()
) -> tuple[tuple[Derivation, ...], Replayed | None]:
    """Derive all subgraphs from the original's subgraphs, and replay the plan."""
    _compare_files(old, new, ignored)
    derivations = []
    for theirs, mine in zip(old.graphs, new.graphs, strict=True):
        derivation = Derivation(original_of(theirs, Names()), mine)
        derivation.run()
        derivations.append(derivation)
    offsets = new.offsets()
    plan = None if offsets is None else _replayed(new, derivations[0], offsets)
    return tuple(derivations), plan


def replay_plan(source: Source, offsets: Sequence[int] | None = None) -> Replayed:
    """
    Replay a plan for a TFLite model in TensorFlow Lite Micro, byte by byte.

    Parameters
    ----------
    source : path or bytes
        The model.
    offsets : sequence of int, optional
        Offset by tensor, subgraph after subgraph; -1 where the runtime decides. By default the plan
        in the file.

    Returns
    -------
    Replayed
        The plan, and the kernels for which the plan is safe.

    Raises
    ------
    PlanError
        If the plan would corrupt a run, or the file has no plan.
    ProofError, UnsupportedModel, UnsupportedDtype
        If the model has parts that no rule covers.
    ModelError
        If the file is malformed.
    """
    side, twin = read_pair(source, source)
    if offsets is None:
        offsets = side.offsets()
    if offsets is None:
        raise fault("PlanMismatch", "the file has no plan")
    derivation = Derivation(original_of(side.graphs[0], Names()), twin.graphs[0])
    derivation.run()
    return _replayed(twin, derivation, offsets)


def _replayed(side: File, derivation: Derivation, offsets: Sequence[int]) -> Replayed:
    """Replay a file's plan; the runtime must place the tensors in all other subgraphs."""
    main = len(side.graphs[0].tensors)
    tensors = sum(len(graph.tensors) for graph in side.graphs)
    if len(offsets) != tensors:
        raise fault("PlanMismatch", f"there are {len(offsets)} offsets for {tensors} tensors")
    if any(offset != ONLINE for offset in offsets[main:]):
        raise UnsupportedModel(
            "the plan has offsets for tensors of a called subgraph, whose steps are not replayed"
        )
    for graph in side.graphs[1:]:
        for fact in graph.tensors:
            # The runtime looks up the offset as if the variable were in the first subgraph.
            if fact.is_variable and fact.index < main and offsets[fact.index] != ONLINE:
                raise fault(
                    "PlanMismatch",
                    f"{fact.text()} of subgraph {graph.index} is a variable, for which the runtime "
                    f"takes the offset of tensor {fact.index} of the first",
                )
    return replay(derivation.known, offsets[:main], derivation.justified)


def _compare_files(old: File, new: File, ignored: Sequence[str]) -> None:
    """Refuse a file in which something beside tensors and operators differs."""
    if len(old.graphs) != len(new.graphs):
        raise fault("NotProven", f"the file has {len(new.graphs)} subgraphs, not {len(old.graphs)}")
    if old.model.description != new.model.description:
        raise fault("NotProven", "the file has another description")
    for theirs, mine in zip(old.graphs, new.graphs, strict=True):
        if theirs.name != mine.name:
            raise fault("NotProven", f"subgraph {mine.index} has another name: {quoted(mine.name)}")
    theirs_said, mine_said = old.metadata(ignored), new.metadata(ignored)
    for name, digest in mine_said:
        if (name, digest) not in theirs_said:
            raise fault("NotProven", f"metadata {quoted(name)} is not that of the original")
    if theirs_said != mine_said:
        lost = next(name for name, digest in theirs_said if (name, digest) not in mine_said)
        raise fault("NotProven", f"metadata {quoted(lost)} of the original is missing")
    if sum(entry.name == PLAN for entry in new.model.metadata) > 1:
        raise fault("NotProven", f"the file has several entries {PLAN}")
    signatures = [[_plain(side, entry) for entry in side.model.signatures] for side in (old, new)]
    if signatures[0] != signatures[1]:
        raise fault("NotProven", "the signatures are not those of the original")


def _plain(side: File, signature: SubgraphSignature) -> tuple[object, ...]:
    """Return a signature with inputs and outputs as positions."""
    graph = side.graphs[signature.subgraph]
    ends = (
        _positions(signature.inputs, graph.inputs, signature.key),
        _positions(signature.outputs, graph.outputs, signature.key),
    )
    return signature.key, signature.subgraph, ends


def _positions(
    names: Sequence[tuple[str, int]], ends: Sequence[int], key: str
) -> tuple[tuple[str, int], ...]:
    found = []
    for name, tensor in names:
        if tensor not in ends:
            raise fault(
                "NotProven",
                f"signature {quoted(key)} names tensor {tensor} {quoted(name)}, which is no input "
                "or output",
            )
        found.append((name, list(ends).index(tensor)))
    return tuple(found)
