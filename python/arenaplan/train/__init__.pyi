from .gradients import TrainingGraph, adam, gradient, sgd
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
    "gradient",
    "group",
    "op",
    "operators",
    "sgd",
    "variable",
]
