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
from .numpy import Executor, Kernel, Step
from .server import Server, ServerStatistics, Session

__all__ = [
    "Arena",
    "Decoder",
    "DynamicExecutor",
    "Executor",
    "Kernel",
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
    "Step",
    "StepOperands",
    "Variable",
    "plan_family",
    "plan_lengths",
]
