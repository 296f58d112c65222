"""
Plans in formats for runtimes and tools.

:data:`EXPORTERS` has every form by name, for ``arenaplan export``. The functions are public, too:
:func:`header_of` writes a C header, :func:`csv_of` a table, and :func:`plan_tflm` with
:func:`embed` puts a plan into a TFLite model for TensorFlow Lite Micro.

Examples
--------
>>> import arenaplan as ap
>>> from arenaplan.deploy.export import EXPORTERS
>>> graph = ap.Graph()
>>> x = graph.input("x", (64,))
>>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
>>> graph.output(y)
>>> table = EXPORTERS["csv"].write(graph, ap.plan(graph, target="c"))
>>> print(table.decode().splitlines()[1])
x,0,1,256,16,,0
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from arenaplan._core import Plan
from arenaplan.base.choices import FORMS, CodeKernels
from arenaplan.classic.sharing import share_storage
from arenaplan.classic.storage import runtime_json
from arenaplan.deploy.export.c import header_of, shim_of
from arenaplan.deploy.export.firmware import Firmware, firmware_of
from arenaplan.deploy.export.folders import write_folder
from arenaplan.deploy.export.hazards import hazards_header_of
from arenaplan.deploy.export.table import csv_of
from arenaplan.deploy.export.tflm import TflmPlan, embed, obey, plan_in_best_order, plan_tflm
from arenaplan.deploy.export.weights import weights_of
from arenaplan.graph import Graph
from arenaplan.planner.planning import plan as make_plan
from arenaplan.tflite.reader.tflite_model import TfliteModel
from arenaplan.tflite.runtime.arena import total

if TYPE_CHECKING:
    from arenaplan.deploy.code import CodeFiles

__all__ = [
    "EXPORTERS",
    "Exporter",
    "Firmware",
    "TflmPlan",
    "c_code",
    "csv_of",
    "embed",
    "firmware_of",
    "hazards_header_of",
    "header_of",
    "obey",
    "plan_in_best_order",
    "plan_tflm",
    "shim_of",
    "weights_of",
    "write_folder",
]

Source: TypeAlias = Literal["graph", "tflite", "unplanned", "shapes"]


@dataclass(frozen=True, slots=True)
class Exporter:
    """A form that plans are written in."""

    name: str
    """The form's name in ``arenaplan export --to``."""
    write: Callable[..., bytes | Mapping[str, bytes]]
    """
    Returns the file's content, or a folder's file contents by name.

    The arguments depend on ``source``. ``"graph"``: the graph and its :class:`~arenaplan.Plan`.
    ``"tflite"``: a model from :mod:`arenaplan.tflite.reader.tflite_model`, its :class:`TflmPlan`,
    and the model's name. ``"unplanned"``: the graph. ``"shapes"``: an iterable of sizes and graphs
    for all shapes. The form's ``options`` follow by name. Raises ``TargetMismatch`` if the reader
    cannot honor the plan.
    """
    reader: str | None = None
    """The target that reads the form; ``None`` for tools, which run no model."""
    source: Source = "graph"
    """
    The export's source: a plan for any graph, a plan for a ``.tflite`` file, a graph without a
    plan, or the graphs of all shapes.
    """
    options: tuple[str, ...] = ()
    """Names of the form's options besides planning options."""

    @property
    def help(self) -> str:
        """The form's one-line description."""
        return FORMS[self.name]


def _text(function: Callable[..., str]) -> Callable[..., bytes]:
    """Return a function that writes text as bytes."""
    return lambda *values, **options: function(*values, **options).encode()


def _document(_graph: Graph, plan: Plan) -> bytes:
    return f"{plan.to_json()}\n".encode()


def _hazards(graph: Graph, plan: Plan) -> bytes:
    return plan.hazards(graph).to_json().encode()


def _with_plan(model: TfliteModel, plan: TflmPlan, _name: str) -> bytes:
    return embed(model, plan.offsets, plan.build)


def _shim(model: TfliteModel, plan: TflmPlan, name: str) -> bytes:
    narrow = None
    if plan.build.pointer == 64 and plan.build.profile is None:
        narrow = total(model, plan.offsets, build=replace(plan.build, pointer=32)).total
    return shim_of(plan, name=name, narrow=narrow).encode()


def c_code(
    graph: Graph,
    plan: Plan | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    name: str = "",
    sections: Mapping[str, str] | None = None,
    stream_input: bool = False,
    kernels: CodeKernels = "portable",
) -> CodeFiles:
    """
    Return a model as a C function, with generated kernels and a static arena.

    Parameters
    ----------
    graph : Graph
        The model; all constants need data.
    plan : Plan, optional
        A plan for the target ``"c-code"``; made here if left out.
    folder : path, optional
        Folder for header and source.
    name : str, optional
        Function prefix and file name; by default the model's name.
    sections : mapping of str to str, optional
        Linker section for each arena, by space name.
    stream_input : bool, default False
        Whether the function requests input image rows, so that the whole image is never in memory.
        ``plan`` is for the result of :func:`arenaplan.deploy.code.streamed`.
    kernels : {"portable", "cmsis-nn", "cmsis-nn-mve"}
        Whether nodes outside of strips call CMSIS-NN functions, on processors without MVE or with
        MVE. ``plan`` is for the result of :func:`arenaplan.deploy.code.calling_cmsis_nn`.

    Raises
    ------
    UnsupportedModel
        If input rows cannot be requested.
    UnsupportedOp, UnsupportedDtype
        If a node, named in the message, has no kernel.
    TargetMismatch
        If generated code cannot run the plan.
    GraphError
        If a section name is not valid.
    PlanError
        If the files cannot be written.
    """
    from arenaplan.deploy.code import calling_cmsis_nn, generated, streamed

    if stream_input:
        graph = streamed(graph)
    if kernels != "portable":
        graph = calling_cmsis_nn(graph, kernels)
    if plan is None:
        plan = make_plan(graph, target="c-code")
    files = generated(graph, plan, name=name, sections=sections)
    if folder is not None:
        write_folder(Path(folder), files.files())
    return files


def _code(graph: Graph, plan: Plan, **options: Any) -> Mapping[str, bytes]:
    return c_code(graph, plan, **options).files()


_ALL = (
    Exporter("tflm", _with_plan, reader="tflm", source="tflite", options=("always",)),
    Exporter("tflm-shim", _shim, reader="tflm", source="tflite", options=("name", "always")),
    Exporter("c", _text(header_of), reader="c", options=("name", "sections", "firmware")),
    Exporter(
        "c-code",
        _code,
        reader="c-code",
        options=("name", "sections", "stream_input", "kernels"),
    ),
    Exporter("csv", _text(csv_of), options=("space",)),
    Exporter("json", _document),
    Exporter("hazards", _hazards),
    Exporter("hazards-c", _text(hazards_header_of), options=("name",)),
    Exporter("graph", _text(Graph.to_json), source="unplanned"),
    Exporter("weights", weights_of, source="shapes"),
    Exporter(
        "nnvm",
        _text(lambda graph: f"{runtime_json(graph, share_storage(graph))}\n"),
        source="unplanned",
    ),
)
EXPORTERS: Final[Mapping[str, Exporter]] = {exporter.name: exporter for exporter in _ALL}
"""Every form, by name."""
