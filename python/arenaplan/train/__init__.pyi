from .declared_operators import Op, operator
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
    "gradient",
    "group",
    "op",
    "operator",
    "operators",
    "sgd",
    "unscale",
    "variable",
]
