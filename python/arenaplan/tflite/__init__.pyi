from .proving import Proof, check_proof, proof_schema, prove

__all__ = [
    "Proof",
    "check_proof",
    "proof_schema",
    "prove",
]
