"""
Proofs of rewritten TFLite models.

A rewritten model computes strips of the tensors of its original, in an order that needs less
memory. :func:`prove` derives from both files which part of which tensor every tensor of the
rewritten model holds, and replays the plan in the file. The rewriter and this checker share
nothing but the reader of the file format.
"""

from arenaplan.proving.checking import check_proof
from arenaplan.proving.document import proof_schema
from arenaplan.proving.prover import Proof, prove, replay_plan
from arenaplan.proving.replay import Replayed

__all__ = ["Proof", "Replayed", "check_proof", "proof_schema", "prove", "replay_plan"]
