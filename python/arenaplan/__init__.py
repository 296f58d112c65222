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

from arenaplan import _start as _start  # The first: see there.
from arenaplan import backend, errors
from arenaplan._core import (
    Allocation,
    Arena,
    IncrementalArena,
    IncrementalPlanner,
    Lease,
    Packing,
    Plan,
    SharedPlan,
    SimpleArena,
    StoragePlan,
    Target,
    __version__,
    plan_schema,
    techniques,
)
from arenaplan.dynamic import DynamicExecutor, PlanFamily, plan_family
from arenaplan.errors import PlannerError
from arenaplan.executor import BACKEND, Executor
from arenaplan.graph import Choice, Effects, Flow, Graph, InPlace, Node, Overlap, Value, View
from arenaplan.importers import load
from arenaplan.importers.live import from_exported_program, from_jaxpr
from arenaplan.options import PlanOptions, targets
from arenaplan.packing import pack
from arenaplan.planning import Explanation, explain, plan, plan_together
from arenaplan.sharing import (
    Assign,
    Coloring,
    color_nodes,
    find_assigns,
    fuse,
    order_mutations,
    share_storage,
)
from arenaplan.spaces import Space
from arenaplan.spill import Spilled, spilled
from arenaplan.storage import (
    StorageEntry,
    StorageNode,
    StorageOperand,
    StoragePool,
    load_params,
    save_params,
)

backend.register(BACKEND.name, lambda: BACKEND)

__all__ = [
    "Allocation",
    "Arena",
    "Assign",
    "Choice",
    "Coloring",
    "DynamicExecutor",
    "Effects",
    "Executor",
    "Explanation",
    "Flow",
    "Graph",
    "InPlace",
    "IncrementalArena",
    "IncrementalPlanner",
    "Lease",
    "Node",
    "Overlap",
    "Packing",
    "Plan",
    "PlanFamily",
    "PlanOptions",
    "PlannerError",
    "SharedPlan",
    "SimpleArena",
    "Space",
    "Spilled",
    "StorageEntry",
    "StorageNode",
    "StorageOperand",
    "StoragePlan",
    "StoragePool",
    "Target",
    "Value",
    "View",
    "__version__",
    "backend",
    "color_nodes",
    "errors",
    "explain",
    "find_assigns",
    "from_exported_program",
    "from_jaxpr",
    "fuse",
    "load",
    "load_params",
    "order_mutations",
    "pack",
    "plan",
    "plan_family",
    "plan_schema",
    "plan_together",
    "save_params",
    "share_storage",
    "spilled",
    "targets",
    "techniques",
]
