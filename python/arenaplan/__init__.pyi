# The names of the package, which `__init__.py` imports from here at their first use.

from . import classic as classic
from . import formats as formats
from . import graph as graph
from . import planner as planner
from . import report as report
from . import run as run
from . import tflite as tflite
from . import train as train
from ._core import Arena, LineBuffer, Live, Paging, Plan, Strips, Target, Transfer, __version__
from .base import errors as errors
from .base.errors import PlannerError
from .formats import from_exported_program, from_jaxpr, from_train_step, load
from .graph import Effects, Graph, Window, keep_caches
from .graph.model import Model
from .planner import (
    Buffer,
    PlanOptions,
    Problem,
    Space,
    diff,
    explain,
    pack,
    plan,
    plan_together,
    recompute_curve,
    spilled,
    targets,
)
from .run import (
    Decoder,
    Executor,
    Server,
    plan_family,
)
from .train import operator

__all__ = [
    "Arena",
    "Buffer",
    "Decoder",
    "Effects",
    "Executor",
    "Graph",
    "LineBuffer",
    "Live",
    "Model",
    "Paging",
    "Plan",
    "PlanOptions",
    "PlannerError",
    "Problem",
    "Server",
    "Space",
    "Strips",
    "Target",
    "Transfer",
    "Window",
    "__version__",
    "classic",
    "diff",
    "errors",
    "explain",
    "formats",
    "from_exported_program",
    "from_jaxpr",
    "from_train_step",
    "graph",
    "keep_caches",
    "load",
    "operator",
    "pack",
    "plan",
    "plan_family",
    "plan_together",
    "planner",
    "recompute_curve",
    "report",
    "run",
    "spilled",
    "targets",
    "tflite",
    "train",
]
