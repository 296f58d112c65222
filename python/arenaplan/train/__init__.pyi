from .gradients import (
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
    "Operators",
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
    "operators",
    "sgd",
    "unscale",
    "variable",
]
