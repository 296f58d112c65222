"""
Proofs for rewritten TFLite models.

A rewritten model computes strips of the original's tensors, in an order that needs less memory.
:func:`prove` derives from both files which part of an original tensor every rewritten tensor holds,
and replays the plan in the file. The rewriter and this checker share only the file reader.
"""

from arenaplan.tflite.proving.checking import check_proof
from arenaplan.tflite.proving.proof_document import proof_schema
from arenaplan.tflite.proving.prover import Proof, prove, replay_plan
from arenaplan.tflite.proving.replay import Replayed

__all__ = ["Proof", "Replayed", "check_proof", "proof_schema", "prove", "replay_plan"]
