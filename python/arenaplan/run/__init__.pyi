from .dynamic import (
    Decoder,
    DynamicExecutor,
    LengthCurve,
    LengthPoint,
    PlanFamily,
    StagedExecutor,
    StageReport,
    plan_family,
    plan_lengths,
)
from .leases import Arena, Lease, Queue, StepOperands, Variable
from .numpy import Executor
from .server import Server, ServerStatistics, Session

__all__ = [
    "Arena",
    "Decoder",
    "DynamicExecutor",
    "Executor",
    "Lease",
    "LengthCurve",
    "LengthPoint",
    "PlanFamily",
    "Queue",
    "Server",
    "ServerStatistics",
    "Session",
    "StageReport",
    "StagedExecutor",
    "StepOperands",
    "Variable",
    "plan_family",
    "plan_lengths",
]
