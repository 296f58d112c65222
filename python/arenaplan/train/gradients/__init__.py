"""
Gradients of graphs, and updates of parameters.

:func:`gradient` appends the nodes of the backward pass by a rule per operator: a file per family
of operators. :func:`sgd` and :func:`adam` append nodes that write parameters in place.
"""

from arenaplan.train.gradients.differentiate import TrainingGraph, gradient
from arenaplan.train.gradients.gradient_rules import RULES, Rule, Site, rule
from arenaplan.train.gradients.update_rules import adam, sgd

__all__ = ["RULES", "Rule", "Site", "TrainingGraph", "adam", "gradient", "rule", "sgd"]
