"""
Graph gradients, and parameter updates.

:func:`gradient` appends the backward pass by a rule per operator, with a file per operator family.
:func:`clip_by_norm`, :func:`clip_by_value` and :func:`unscale` change gradients; :func:`sgd` and
:func:`adam` append nodes that write parameters in place.
"""

from arenaplan.train.gradients.differentiate import TrainingGraph, gradient
from arenaplan.train.gradients.gradient_changes import clip_by_norm, clip_by_value, unscale
from arenaplan.train.gradients.gradient_rules import RULES, Rule, Site, rule
from arenaplan.train.gradients.update_rules import adam, sgd

__all__ = [
    "RULES",
    "Rule",
    "Site",
    "TrainingGraph",
    "adam",
    "clip_by_norm",
    "clip_by_value",
    "gradient",
    "rule",
    "sgd",
    "unscale",
]
