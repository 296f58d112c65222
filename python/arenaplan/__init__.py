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
    ArenaBytes,
    Assign,
    Block,
    CallerBuffer,
    Estimate,
    Hazard,
    Hazards,
    IncrementalArena,
    IncrementalPlacement,
    IncrementalPlanner,
    Lease,
    Level,
    LineBuffer,
    Live,
    MoveCost,
    Packing,
    PlacedWorkspace,
    Placement,
    Plan,
    PlannedSpace,
    RowsInPlace,
    Share,
    SharedPlan,
    SimpleArena,
    StepOperands,
    StoragePlan,
    Strips,
    Target,
    Timetable,
    __version__,
    graph_schema,
    hazards_schema,
    model_schema,
    plan_schema,
    techniques,
)
from arenaplan.dynamic import DynamicExecutor, PlanFamily, plan_family
from arenaplan.errors import PlannerError
from arenaplan.executor import BACKEND, Executor
from arenaplan.graph import (
    Choice,
    Effects,
    Flow,
    Graph,
    InPlace,
    Node,
    Overlap,
    Value,
    View,
    Window,
)
from arenaplan.importers import load
from arenaplan.importers.document import from_runtime_json
from arenaplan.importers.live import from_exported_program, from_jaxpr
from arenaplan.model import Model
from arenaplan.options import PlanOptions, targets
from arenaplan.packing import pack
from arenaplan.planning import Explanation, explain, plan, plan_together
from arenaplan.proving import Proof, check_proof, proof_schema, prove
from arenaplan.server import Server, ServerStatistics, Session
from arenaplan.sharing import (
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
    runtime_json,
    save_params,
)


def _cupy_backend() -> backend.Backend:
    """Return the backend of the target ``"cupy"``, imported when it is first asked for."""
    from arenaplan.device import backend as module

    return module.BACKEND


backend.register(BACKEND.name, lambda: BACKEND)
backend.register("cupy", _cupy_backend)

__all__ = [
    "Allocation",
    "Arena",
    "ArenaBytes",
    "Assign",
    "Block",
    "CallerBuffer",
    "Choice",
    "Coloring",
    "DynamicExecutor",
    "Effects",
    "Estimate",
    "Executor",
    "Explanation",
    "Flow",
    "Graph",
    "Hazard",
    "Hazards",
    "InPlace",
    "IncrementalArena",
    "IncrementalPlacement",
    "IncrementalPlanner",
    "Lease",
    "Level",
    "LineBuffer",
    "Live",
    "Model",
    "MoveCost",
    "Node",
    "Overlap",
    "Packing",
    "PlacedWorkspace",
    "Placement",
    "Plan",
    "PlanFamily",
    "PlanOptions",
    "PlannedSpace",
    "PlannerError",
    "Proof",
    "RowsInPlace",
    "Server",
    "ServerStatistics",
    "Session",
    "Share",
    "SharedPlan",
    "SimpleArena",
    "Space",
    "Spilled",
    "StepOperands",
    "StorageEntry",
    "StorageNode",
    "StorageOperand",
    "StoragePlan",
    "StoragePool",
    "Strips",
    "Target",
    "Timetable",
    "Value",
    "View",
    "Window",
    "__version__",
    "backend",
    "check_proof",
    "color_nodes",
    "errors",
    "explain",
    "find_assigns",
    "from_exported_program",
    "from_jaxpr",
    "from_runtime_json",
    "fuse",
    "graph_schema",
    "hazards_schema",
    "load",
    "load_params",
    "model_schema",
    "order_mutations",
    "pack",
    "plan",
    "plan_family",
    "plan_schema",
    "plan_together",
    "proof_schema",
    "prove",
    "runtime_json",
    "save_params",
    "share_storage",
    "spilled",
    "targets",
    "techniques",
]
