"""
Where every tensor of a neural network lives in one arena, and how small it can be.

>>> import arenaplan as ap
>>> graph = ap.load("model.onnx")                               # doctest: +SKIP
>>> plan = ap.plan(graph)                                       # doctest: +SKIP
>>> plan.arena_bytes, plan.lower_bound, plan.status             # doctest: +SKIP
(7225344, 7225344, 'optimal')
>>> outputs = ap.Executor(graph).run({"x": array})              # doctest: +SKIP
"""

from __future__ import annotations

from arenaplan import errors
from arenaplan._core import (
    Arena,
    IncrementalPlanner,
    Lease,
    Packing,
    Plan,
    StoragePlan,
    __version__,
    plan_schema,
    techniques,
)
from arenaplan.errors import PlannerError
from arenaplan.executor import Executor
from arenaplan.graph import Choice, Effects, Flow, Graph, InPlace, Node, Value, View
from arenaplan.importers import load
from arenaplan.packing import pack
from arenaplan.planning import Explanation, explain, plan
from arenaplan.sharing import color_nodes, share_storage
from arenaplan.storage import StorageEntry, StoragePool, load_params, save_params

__all__ = [
    "Arena",
    "Choice",
    "Effects",
    "Executor",
    "Explanation",
    "Flow",
    "Graph",
    "InPlace",
    "IncrementalPlanner",
    "Lease",
    "Node",
    "Packing",
    "Plan",
    "PlannerError",
    "StorageEntry",
    "StoragePlan",
    "StoragePool",
    "Value",
    "View",
    "__version__",
    "color_nodes",
    "errors",
    "explain",
    "load",
    "load_params",
    "pack",
    "plan",
    "plan_schema",
    "save_params",
    "share_storage",
    "techniques",
]
