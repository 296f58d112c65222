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
from .leases import Arena, Lease, StepOperands
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
    "Server",
    "ServerStatistics",
    "Session",
    "StageReport",
    "StagedExecutor",
    "Step",
    "StepOperands",
    "plan_family",
    "plan_lengths",
]
