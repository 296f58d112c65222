"""
The place of every tensor of a neural network in one arena, and how small the arena can be.

>>> import arenaplan as ap
>>> graph = ap.load("model.onnx")                               # doctest: +SKIP
>>> plan = ap.plan(graph)                                       # doctest: +SKIP
>>> plan.arena_bytes, plan.lower_bound, plan.status             # doctest: +SKIP
(7225344, 7225344, 'optimal')
>>> outputs = ap.Executor(graph).run({"x": array})              # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module

import lazy_loader

from arenaplan.base import start as _start  # noqa: F401  The first: see there.

# isort: split
from arenaplan._core import __version__ as __version__
from arenaplan._core import set_views
from arenaplan.base import errors as errors
from arenaplan.graph.costs import register as register_costs
from arenaplan.graph.costs import register_kernels
from arenaplan.graph.given import register_loader
from arenaplan.run.registered import register_choice, register_executor

# `__init__.pyi` states the module of each name. A module is imported when a name is first used, so
# that a program pays only for used parts.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register_costs(
    "numpy", lambda graph: import_module("arenaplan.run.numpy.numpy_backend").BACKEND.costs(graph)
)
register_costs(
    "cupy", lambda graph: import_module("arenaplan.run.cuda.cuda_backend").BACKEND.costs(graph)
)
register_kernels(
    "numpy", lambda graph: import_module("arenaplan.run.numpy.numpy_backend").require_kernels(graph)
)
register_kernels(
    "cupy", lambda graph: import_module("arenaplan.run.cuda.lowering").check_supported(graph)
)
register_kernels(
    "c-code", lambda graph: import_module("arenaplan.deploy.code.code_steps").require_kernels(graph)
)
register_loader(lambda source: import_module("arenaplan.formats").load(source))
register_choice(lambda: import_module("arenaplan.run.dynamic.executor_choice").chosen)
register_executor("cpu", lambda: import_module("arenaplan.run.numpy.executor").Executor)
register_executor(
    "cuda", lambda: import_module("arenaplan.run.cuda.device_executor").DeviceExecutor
)
set_views(
    plan=lambda plan: import_module("arenaplan.report.notebook").html_of(plan),
    frame=lambda plan: import_module("arenaplan.report.notebook").frame_of(plan),
    packing=lambda packing: import_module("arenaplan.report.packing_report").html_of(packing),
    curve=lambda curve: import_module("arenaplan.report.recompute_report").html_of(curve),
)
