from .dynamic import DynamicExecutor, PlanFamily, StagedExecutor, StageReport, plan_family
from .leases import Arena, Lease, StepOperands
from .numpy import Executor
from .server import Server, ServerStatistics, Session

__all__ = [
    "Arena",
    "DynamicExecutor",
    "Executor",
    "Lease",
    "PlanFamily",
    "Server",
    "ServerStatistics",
    "Session",
    "StageReport",
    "StagedExecutor",
    "StepOperands",
    "plan_family",
]
