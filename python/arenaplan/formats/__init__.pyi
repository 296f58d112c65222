from .json_document import from_runtime_json
from .live_programs import from_exported_program, from_jaxpr, from_joint_graph, from_train_step
from .opening import SUFFIXES, load, open_model, open_partial, signatures_for, suffix_of

__all__ = [
    "SUFFIXES",
    "from_exported_program",
    "from_jaxpr",
    "from_joint_graph",
    "from_runtime_json",
    "from_train_step",
    "load",
    "open_model",
    "open_partial",
    "signatures_for",
    "suffix_of",
]
