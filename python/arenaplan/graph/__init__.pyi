from . import costs as costs
from .caches import keep_caches
from .effects import NO_EFFECTS, Choice, Effects, Flow, InPlace, Overlap, View, Window
from .graph import MAX_FILE, Graph
from .origin import Origin
from .values import ConstantData, Node, Value, ValueId, ValueKind, ValueSpec

__all__ = [
    "MAX_FILE",
    "NO_EFFECTS",
    "Choice",
    "ConstantData",
    "Effects",
    "Flow",
    "Graph",
    "InPlace",
    "Node",
    "Origin",
    "Overlap",
    "Value",
    "ValueId",
    "ValueKind",
    "ValueSpec",
    "View",
    "Window",
    "costs",
    "keep_caches",
]
