from .declared_operators import Op, operator
from .exchanging import KVStore, exchange
from .gradients import (
    Site,
    TrainingGraph,
    adam,
    clip_by_norm,
    clip_by_value,
    gradient,
    sgd,
    unscale,
)
from .symbols import Inferred, Operators, Symbol, group, op, operators, variable
from .training import StepReport, Trainer

__all__ = [
    "Inferred",
    "KVStore",
    "Op",
    "Operators",
    "Site",
    "StepReport",
    "Symbol",
    "Trainer",
    "TrainingGraph",
    "adam",
    "clip_by_norm",
    "clip_by_value",
    "exchange",
    "gradient",
    "group",
    "op",
    "operator",
    "operators",
    "sgd",
    "unscale",
    "variable",
]
