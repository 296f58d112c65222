"""The executor for a model file: one graph, many shapes, or sizes that data decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from arenaplan.base.errors import InvalidOption, UnboundDim, UnknownShape, UnsupportedSubgraph
from arenaplan.formats import load, suffix_of
from arenaplan.formats.partial import decides
from arenaplan.graph import Graph
from arenaplan.graph.sizes import OpenBind, Source
from arenaplan.run.dynamic.dynamic_executor import DynamicExecutor
from arenaplan.run.dynamic.families import PlanFamily
from arenaplan.run.dynamic.shapes import has_several
from arenaplan.run.dynamic.staged import StagedExecutor

_USUAL: Final = {"device": "cpu", "workers": 1, "threads": 1, "seed": 0, "capture": False}


def chosen(
    model: Source | PlanFamily | Callable[..., Graph], bind: Any, options: Mapping[str, Any]
) -> Graph | DynamicExecutor | StagedExecutor:
    """
    Return the graph of a model, or the executor of a model that has more than one graph.

    Raises
    ------
    InvalidOption
        If an option is for one graph, and the model has more.
    """
    if isinstance(model, PlanFamily) or callable(model) or has_several(bind):
        _allow(options, ("arena",), "a model of several shapes")
        return DynamicExecutor(model, bind, arena=options.get("arena"))
    found = graph_or_stages(model, bind, lambda: load(model, bind=bind))
    if isinstance(found, StagedExecutor):
        _allow(options, (), "a model whose sizes data decides")
    return found


def _allow(options: Mapping[str, Any], names: tuple[str, ...], model: str) -> None:
    """Refuse options that are not among some names and change a run."""
    for name, value in options.items():
        is_usual = value is None or (isinstance(value, int | str) and value == _USUAL.get(name))
        if name not in names and not is_usual:
            known = f"; {' and '.join(names)} is possible" if names else ""
            raise InvalidOption(f"option {name}: {model} has no {name}{known}")


def graph_or_stages(
    model: Source, bind: OpenBind | None, read: Callable[[], Graph]
) -> Graph | StagedExecutor:
    """Return the graph that ``read`` makes of a model, or an executor if data decides sizes."""
    refusal = None
    try:
        graph = read()
        if not any(map(decides, graph.nodes)):
            return graph
    except (UnboundDim, UnknownShape, UnsupportedSubgraph) as error:
        if suffix_of(model) != ".onnx":
            raise
        refusal = error
    executor = StagedExecutor(model, bind)
    if refusal is not None and not executor.waiting:
        raise refusal
    return executor
