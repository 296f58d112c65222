"""
Proofs of rewritten TFLite models.

A rewritten model computes strips of the tensors of its original, in an order that needs less
memory. :func:`prove` derives from both files which part of which tensor every tensor of the
rewritten model holds, and replays the plan in the file. The rewriter and this checker share
nothing but the reader of the file format.
"""

from arenaplan.tflite.proving.checking import check_proof
from arenaplan.tflite.proving.proof_document import proof_schema
from arenaplan.tflite.proving.prover import Proof, prove, replay_plan
from arenaplan.tflite.proving.replay import Replayed

__all__ = ["Proof", "Replayed", "check_proof", "proof_schema", "prove", "replay_plan"]
