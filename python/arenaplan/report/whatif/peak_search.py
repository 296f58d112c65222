"""The model changes that lower the peak most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Unpack, get_args

from arenaplan._core import Plan
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, PlannerError
from arenaplan.base.html_tables import html_table
from arenaplan.base.progress import Progress, Watch, checked_seconds
from arenaplan.formats import load
from arenaplan.graph import Graph, Node, Value
from arenaplan.graph.costs import has_costs
from arenaplan.graph.ops import array_bytes
from arenaplan.graph.origin import layer_of
from arenaplan.graph.sizes import Source
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions, resolve, target_of
from arenaplan.planner.planning import plan
from arenaplan.report.whatif.axes import Axes, CannotEdit, decides_size
from arenaplan.report.whatif.edit import edited
from arenaplan.report.whatif.smaller_inputs import half_batch, half_images, imported

By: TypeAlias = Literal["layer", "node"]

MODEL: Final = "the model"
"""Subject of changes to the whole model."""

_PLANNED: Final = 3
"""Changes planned per requested change."""

_TYPES: Final = {"float64": "float32", "float32": "float16", "float16": "int8"}
"""The next smaller element type."""


class WhatIf(NamedTuple):
    """A model change, and the arena after the change."""

    subject: str
    """The layer or node that is changed, or ``"the model"``."""
    change: str
    """Such as ``"half the channels"``."""
    arena_bytes: int
    """Arena bytes after the change."""
    saved: float
    """Fraction of the arena that the change saves."""
    values: int
    """Values that have another size after the change."""
    by: Literal["graph", "import"]
    """Whether the planned graph was edited, or imported again from the model with other inputs."""


class WhatIfs(NamedTuple):
    """The model changes that lower the peak most."""

    plan: Plan
    """The unchanged model's plan, with the options."""
    compared: Plan
    """The plan that the changes are compared with: without the scratch memory that kernels declare
    for real weights; else :attr:`plan`."""
    rows: tuple[WhatIf, ...]
    """The changes that save bytes, largest saving first."""
    skipped: tuple[tuple[str, str], ...]
    """Changes that cannot be made, and why."""

    def _repr_html_(self) -> str:
        rows = [(row.subject, row.change, row.arena_bytes, f"{row.saved:.1%}") for row in self.rows]
        caption = f"{self.compared.model or 'model'}: {self.compared.arena_bytes:,} bytes now"
        return html_table(caption, ["what", "change", "bytes", "saved"], rows)


class _Change(NamedTuple):
    """A change to plan."""

    subject: str
    change: str
    graph: Callable[[], Graph]
    values: int
    by: Literal["graph", "import"]


@typed
def what_if(
    source: Graph | Source,
    options: PlanOptions | None = None,
    *,
    bind: Mapping[str, Any] | None = None,
    top: int = 10,
    by: By = "layer",
    time_limit: float | None = None,
    on_progress: Progress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> WhatIfs:
    """
    Return the model changes that lower the peak most.

    Layer changes are half the channels, or half the resolution as if the stride were doubled; new
    sizes follow through all operators up to the next weights. Model changes are half a symbolic
    dimension, half the image rows and columns, or smaller elements. Every figure comes from a plan
    for the changed graph. Permissions to share bytes that cannot be carried over are dropped, so
    the figures are upper bounds.

    Parameters
    ----------
    source : Graph, path or bytes
        The model, as for :func:`load`. A graph cannot be imported again with other inputs.
    options : PlanOptions, optional
        Options for all plans, with a single arena. Changes are compared without the scratch memory
        that kernels declare for real weights.
    bind : mapping, optional
        Numbers for symbolic dimensions, as for :func:`load`.
    top : int, default 10
        Most changes to return.
    by : {"layer", "node"}
        Whether to report the best change per layer, or changes per node.
    time_limit : float, optional
        Seconds after which no further changes are planned.
    on_progress : callable, optional
        As for :func:`plan`; ``False`` ends the search with the changes so far.
    **overrides
        Single options by name.

    Raises
    ------
    InvalidOption
        If there are several memories, or ``top`` is not positive.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (1, 8, 32, 32))
    >>> (a,) = graph.node("Conv", [x], [("a", (1, 64, 32, 32), "float32")], name="wide")
    >>> (b,) = graph.node("Relu", [a], [("b", (1, 64, 32, 32), "float32")], in_place=[(0, 0)])
    >>> (c,) = graph.node("Conv", [b], [("c", (1, 8, 32, 32), "float32")], name="last")
    >>> graph.output(c)
    >>> found = ap.report.what_if(graph, by="node")
    >>> [(row.subject, row.change, round(row.saved, 2)) for row in found.rows]
    [('the model', 'float16 instead of float32', 0.5), ('wide', 'half the channels', 0.44)]
    """
    options = resolve(options, overrides)
    if options.spaces is not None:
        raise InvalidOption("option spaces: changes are compared in one arena")
    if by not in get_args(By):
        raise InvalidOption(f"option by: {by!r} is not one of {', '.join(get_args(By))}")
    if top < 1:
        raise InvalidOption(f"option top: {top} is not positive")
    graph = source if isinstance(source, Graph) else load(source, bind=bind)
    target = target_of(options, graph.target)
    given = replace(options, target=target, budget=None)
    has_scratch = has_costs(target.name) and options.workspace != "none"
    options = replace(given, workspace="none") if has_scratch else given
    watch = Watch(on_progress, checked_seconds(time_limit))

    def planned(changed: Graph) -> Plan:
        return plan(changed, options, time_limit=watch.seconds_left, on_progress=watch.tell)

    now = compared = planned(graph)
    if has_scratch:
        now = plan(graph, given, time_limit=watch.seconds_left, on_progress=watch.tell)
    skipped: list[tuple[str, str]] = []
    changes = [*_of_types(graph, target.name)]
    if not isinstance(source, Graph):
        changes += _of_inputs(source, graph, bind or {})
    changes += _of_layers(graph, (now, compared), target.name, by, skipped)[: _PLANNED * top]
    rows: dict[tuple[str, str], WhatIf] = {}
    for change in changes:
        if watch.is_over:
            break
        try:
            size = planned(change.graph()).arena_bytes
        except (CannotEdit, PlannerError) as error:
            skipped.append((f"{change.subject}: {change.change}", str(error)))
            continue
        saved = 1 - size / compared.arena_bytes if compared.arena_bytes else 0.0
        row = WhatIf(change.subject, change.change, size, saved, change.values, change.by)
        key = (row.subject, row.change)
        if size >= compared.arena_bytes:
            continue
        if key not in rows or size < rows[key].arena_bytes:
            rows[key] = row
    ranked = sorted(rows.values(), key=lambda row: (row.arena_bytes, row.subject, row.change))
    return WhatIfs(now, compared, tuple(ranked[:top]), tuple(dict.fromkeys(skipped)))


def _of_types(graph: Graph, target: str) -> Iterator[_Change]:
    """Yield smaller types for all values."""
    for old, new in _TYPES.items():
        values: dict[int, Value] = {
            value.index: replace(value, dtype=new)
            for value in graph.values
            if value.dtype == old and value.kind != "constant"
        }
        if values:
            yield _Change(
                MODEL,
                f"{new} instead of {old}",
                _editor(graph, values, target),
                len(values),
                "graph",
            )


def _of_inputs(source: Source, graph: Graph, bind: Mapping[str, Any]) -> Iterator[_Change]:
    """Yield smaller model inputs; the model is imported again."""
    count = len(graph.values)
    for name, number in bind.items():
        if isinstance(number, int) and number >= 2:
            half = {**bind, name: (number + 1) // 2}
            change = f"{name}={half[name]} in place of {number}"
            yield _Change(MODEL, change, partial(load, source, bind=half), count, "import")
    if graph.target != "numpy":
        return
    for change, shapes in (
        ("half the batch", half_batch(graph)),
        ("half the resolution", half_images(graph)),
    ):
        if shapes and not bind:
            again = partial(imported, source, bind, shapes)
            yield _Change(MODEL, change, again, count, "import")


def _of_layers(
    graph: Graph, plans: tuple[Plan, Plan], target: str, by: By, skipped: list[tuple[str, str]]
) -> list[_Change]:
    """Yield layer changes for values at a peak, largest first."""
    seen = graph.for_target(target)
    peak = {
        seen.values[index].name
        for made in plans
        if made.steps
        for index in made.live_at(made.peak_step)
    }
    found: dict[frozenset[tuple[tuple[int, int], int]], tuple[int, _Change]] = {}
    for node in graph.nodes:
        if not decides_size(graph, node):
            continue
        subject = _layer(graph, node) if by == "layer" else node.name
        for change, apply in (
            ("half the channels", Axes.halve_channels),
            ("half the resolution", Axes.halve_pixels),
        ):
            axes = Axes(graph)
            made = [graph.values[v].name for v in node.outputs if v is not None]
            try:
                apply(axes, node)
            except CannotEdit as error:
                if peak & set(made):
                    skipped.append((f"{subject}: {change}", str(error)))
                continue
            values: dict[int, Value] = {
                index: replace(graph.values[index], shape=axes.shape(index))
                for index in {value for value, _ in axes.sizes}
            }
            freed = sum(
                _bytes(graph.values[index]) - _bytes(value)
                for index, value in values.items()
                if value.name in peak
            )
            if freed:
                key = frozenset(axes.sizes.items())
                row = _Change(subject, change, _editor(graph, values, target), len(values), "graph")
                found.setdefault(key, (freed, row))
    ranked = sorted(found.values(), key=lambda pair: -pair[0])
    return [change for _, change in ranked]


def _bytes(value: Value) -> int:
    return array_bytes(value.shape, value.dtype)


def _layer(graph: Graph, node: Node) -> str:
    """Return a node's layer, or the name of a node without a layer."""
    if node.origin is not None and node.origin.layer:
        return node.origin.layer
    made = next((graph.values[v].name for v in node.outputs if v is not None), "")
    return layer_of(node.name) or layer_of(made) or node.name


def _editor(graph: Graph, values: Mapping[int, Value], target: str) -> Callable[[], Graph]:
    """Return a function that makes the edited graph as seen by a target."""

    def edit() -> Graph:
        seen = graph.for_target(target)
        if seen is graph:
            return edited(graph, values)
        # The runtime's own graph has the same tensors as bytes.
        sizes = {value.name: _bytes(value) for value in values.values()}
        flat: dict[int, Value] = {
            value.index: replace(value, shape=(sizes[value.name],))
            for value in seen.values
            if value.name in sizes and array_bytes((1,), value.dtype) == 1
        }
        if len(flat) < len(sizes):
            raise CannotEdit(f"target {target!r} has other values than the model")
        return edited(seen, flat)

    return edit
