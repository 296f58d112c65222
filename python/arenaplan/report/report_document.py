"""The plan report: a document with everything that pictures and tables show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from arenaplan._core import Covers, PlacedWorkspace, Placement, Plan, RecomputeCurve
from arenaplan.base.arguments import typed
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.base.quoting import listed
from arenaplan.graph import Graph, Node
from arenaplan.graph.given import graph_of
from arenaplan.graph.origin import layer_of
from arenaplan.graph.sizes import Source
from arenaplan.planner.peak import held_at, union
from arenaplan.planner.planning import Explanation
from arenaplan.report.curves import Rectangle, tops
from arenaplan.report.recompute_report import curve_of

FORMAT: Final = "arenaplan-report"
VERSION: Final = 1
SPACE_FIELDS: Final = "name arena_bytes lower_bound status alignment capacity cost"
"""What documents say of a plan's memory."""


@typed
def report_of(
    plan: Plan,
    graph: Graph | Source | None = None,
    explanation: Explanation | None = None,
    curve: RecomputeCurve | None = None,
    total_bytes: int | None = None,
) -> dict[str, Any]:
    """
    Return a plan's report: values, steps, live ranges, sharing, curves, the peak.

    Parameters
    ----------
    plan : Plan
        The plan. Plans are not checked here: call :meth:`Plan.check` first for a plan from a file.
    graph : Graph, path or bytes, optional
        The planned graph, or its model as for :func:`load`. Without a graph, the report lacks
        operators, shapes, layers, and values without a place in memory.
    explanation : Explanation, optional
        Each technique's saving, from :func:`explain`.
    curve : RecomputeCurve, optional
        Bytes over extra work, from :func:`recompute_curve`.
    total_bytes : int, optional
        The runtime's total in bytes, if more than the plan's arena.

    Returns
    -------
    dict
        A JSON document, described by :func:`report_schema`. Sizes are in bytes; live ranges are
        half-open, in steps. Equal arguments give equal documents.

    Raises
    ------
    PlanError
        If the plan was made for another graph.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("two")
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")], name="c1")
    >>> graph.output(y)
    >>> report = ap.report.report_of(ap.plan(graph), graph)
    >>> [(value["name"], value["offset"], value["live"]) for value in report["values"]]
    [('x', 0, [0, 1]), ('y', 256, [0, 1])]
    >>> report["steps"][0]["op"], report["curves"][0]["live"]
    ('Conv', [512])
    """
    return {
        **_Maker(plan, graph, total_bytes).document(explanation),
        "recompute": None if curve is None else curve_of(curve),
    }


def report_schema() -> str:
    """
    Return the JSON schema for reports.

    Examples
    --------
    >>> import json
    >>> import arenaplan as ap
    >>> json.loads(ap.report.report_schema())["title"]
    'arenaplan report, version 1'
    """
    return files(__package__).joinpath("report.schema.json").read_text("utf-8")


def checked_report(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Return the report that a picture is made of.

    Raises
    ------
    InvalidOption
        If the mapping is no report.
    """
    if report.get("format") != FORMAT:
        raise InvalidOption(f"option report: a mapping with {listed(report)} is no {FORMAT}")
    return report


def covered_part(covers: Covers) -> str:
    """Return the part of a model that a plan covers, for people."""
    if covers.is_whole and covers.signature:
        return f"signature {covers.signature!r}"
    return str(covers)


def covers_document(covers: Covers) -> dict[str, Any]:
    """Return a plan's coverage for JSON."""
    return {
        "whole": covers.is_whole,
        "part": covered_part(covers),
        "waiting": list(covers.waiting),
        "deciders": list(covers.deciders),
        "signature": covers.signature or None,
        "others": list(covers.others),
    }


class _Maker:
    """Builds the parts of a report."""

    def __init__(self, plan: Plan, graph: Graph | Source | None, total_bytes: int | None) -> None:
        self.rows: list[dict[str, Any]] = json.loads(plan.to_json())["steps"]
        """The steps as in plan files."""
        self.places = plan.placements
        graph = None if graph is None else graph_of(graph)
        if graph is not None and _mismatch(graph, plan, self.places):
            graph = graph.variant(plan.target.name).for_plan(plan)
        self.plan, self.graph, self.total_bytes = plan, graph, total_bytes
        if graph is not None and _mismatch(graph, plan, self.places):
            raise fault(
                "PlanMismatch", f"the plan of {plan.model!r} is not for graph {graph.name!r}"
            )
        self.workspaces = plan.workspaces
        self.space_names = _space_names(plan)
        if graph is None:
            self.indices = [at for at, place in enumerate(self.places) if place is not None]
        else:
            self.indices = list(range(len(graph.values)))
        placed = (index for index, place in enumerate(self.places) if place is not None)
        self.planned_names = dict(zip(placed, plan, strict=True))
        self.results = frozenset(() if graph is None else graph.outputs)
        self.row_of = {index: row for row, index in enumerate(self.indices)}
        self.readers: dict[int, list[int]] = {}
        self.writers: dict[int, list[int]] = {}
        for step, row in enumerate(self.rows):
            for table, operands in ((self.readers, row["inputs"]), (self.writers, row["outputs"])):
                for value in operands:
                    if value is not None:
                        table.setdefault(value, []).append(step)

    def document(self, explanation: Explanation | None) -> dict[str, Any]:
        """Return the whole report."""
        plan = self.plan
        live_bytes = plan.live_bytes
        values = self.values()
        peak = plan.peak_step if self.rows else None
        by_index = dict(zip(self.indices, values, strict=True))
        estimate = plan.estimate
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": plan.model,
            "target": plan.target.name,
            "digest": plan.digest,
            "covers": covers_document(plan.covers),
            **fields_of(plan, "arena_bytes lower_bound status naive_bytes floor alignment options"),
            "seconds": None if estimate is None else estimate.seconds,
            "peak_step": peak,
            "peak_bytes": 0 if peak is None else live_bytes[peak],
            "peak_values": []
            if peak is None
            else [by_index[value]["name"] for value in plan.live_at(peak) if value in by_index],
            "peak_held": [] if peak is None else self.held(peak),
            "total_bytes": self.total_bytes,
            "spaces": self.spaces(),
            "values": values,
            "workspaces": self.workspace_rows(),
            "steps": self.steps(live_bytes),
            "why": self.shares(),
            "curves": self.curves(),
            "timetable": self.timetable(),
            "techniques": None if explanation is None else _techniques(explanation),
        }

    def held(self, step: int) -> list[dict[str, Any]]:
        """Return the rows live at a step; each row's added bytes sum to the live bytes."""
        rows = held_at(self.plan, step, self.graph, self.rows[step]["name"])
        return [fields_of(row, "name bytes counted") for row in rows]

    def spaces(self) -> list[dict[str, Any]]:
        """Return the memories: arenas first, then the caller's buffers."""
        arenas = [
            {
                **fields_of(space, SPACE_FIELDS),
                **({} if self.plan.covers.is_whole else {"status": "unknown"}),
                "caller": False,
            }
            for space in self.plan.spaces
        ]
        buffers = [
            {
                "name": f"caller:{buffer.name}",
                "arena_bytes": buffer.bytes,
                "lower_bound": buffer.bytes,
                "status": "optimal",
                "alignment": 1,
                "capacity": None,
                "cost": 0,
                "caller": True,
            }
            for buffer in self.plan.caller_buffers
        ]
        return arenas + buffers

    def values(self) -> list[dict[str, Any]]:
        """Return the graph's values, or without a graph the values with a place."""
        rows = []
        for index in self.indices:
            place = self.places[index]
            if self.graph is None:
                kind = "activation" if index in self.writers else "input"
                facts: dict[str, Any] = {
                    "name": self.planned_names[index],
                    "kind": kind,
                    "dtype": None,
                    "shape": None,
                }
            else:
                value = self.graph.values[index]
                dtype, shape = self.graph.tensors.get(index, (value.dtype, value.shape))
                facts = {
                    "name": value.name,
                    "kind": value.kind,
                    "dtype": dtype,
                    "shape": list(shape),
                }
            facts["result"] = None if self.graph is None else index in self.results
            rows.append({**facts, **self._placed(place), "held": self._held(index, place)})
        return rows

    def _placed(self, place: Placement | PlacedWorkspace | None) -> dict[str, Any]:
        """Return space, offset, bytes and live range."""
        if place is None:
            return {"bytes": None, "space": None, "offset": None, "live": None}
        return {
            "bytes": place.bytes,
            "space": self.space_names[place.space],
            "offset": place.offset,
            "live": [place.live.start, place.live.end],
        }

    def _held(self, index: int, place: Placement | None) -> str | None:
        """
        Return why a value is live in steps that do not use it; None if there are no such steps.
        """
        if place is None:
            return None
        if self.graph is not None and self.graph.values[index].kind == "state":
            return "state"
        used = [*self.readers.get(index, ()), *self.writers.get(index, ())]
        if place.live.end <= max(used, default=0) + 1:
            return None
        if self.graph is not None:
            value = self.graph.values[index]
            if index in self.results:
                return "output"
            if value.kind == "input" and self.plan.options["preserve_inputs"]:
                return "input kept"
        if self.plan.options["workers"] > 1 or self.plan.options["parallel_safe"]:
            return "parallel"
        return "output" if self.graph is None and place.live.end == len(self.rows) else "other"

    def workspace_rows(self) -> list[dict[str, Any]]:
        """Return the steps' scratch buffers."""
        rows = []
        for work in self.workspaces:
            step = work.live.start
            name = f"{self.rows[step]['name']} workspace {work.slot}"
            placed = self._placed(work)
            rows.append({"name": name, "step": step, "slot": work.slot, **placed})
        return rows

    def steps(self, live_bytes: list[int]) -> list[dict[str, Any]]:
        """Return the steps, with rows for values read and written."""
        steps = []
        for position, (row, nodes) in enumerate(zip(self.rows, self.plan.steps, strict=True)):
            members = [] if self.graph is None else [self.graph.nodes[node] for node in nodes]
            last = members[-1] if members else None
            steps.append(
                {
                    "step": position,
                    "node": row["name"] if last is None else last.name,
                    "op": None if last is None else last.op,
                    "fused": [node.name for node in members[:-1]],
                    "ops": [node.op for node in members[:-1]],
                    "layer": self._layer(row, last),
                    "source": None if last is None or last.origin is None else last.origin.source,
                    "inputs": self._row_numbers(row["inputs"]),
                    "outputs": self._row_numbers(row["outputs"]),
                    "may_share": [list(pair) for pair in self._permitted(row, members)],
                    "strip_rows": row["strips"]["rows"] if "strips" in row else None,
                    "live_bytes": live_bytes[position],
                }
            )
        return steps

    def _layer(self, row: dict[str, Any], node: Node | None) -> str | None:
        """Return the layer of a step's last node, from the model or from node names."""
        if node is not None and node.origin is not None and node.origin.layer:
            return node.origin.layer
        outputs = (self._name(value) for value in row["outputs"] if value is not None)
        # Converters to TensorFlow Lite name tensors by layers, and operators not at all.
        return layer_of(row["name"]) or layer_of(next(outputs, ""))

    def _row_numbers(self, operands: list[int | None]) -> list[int]:
        """Return the operands' rows, skipping operands without a row."""
        rows = (self.row_of.get(value) for value in operands if value is not None)
        return [row for row in rows if row is not None]

    def _permitted(self, row: dict[str, Any], members: list[Node]) -> Iterator[tuple[int, int]]:
        """Yield rows for operands and results of a node that may share bytes."""
        if len(members) != 1:
            return
        (node,) = members
        effects = node.effects
        pairs = {(each.input, each.output) for each in effects.in_place}
        pairs |= {(each.input, each.output) for each in effects.views}
        pairs |= {(each.input, each.output) for each in effects.overlaps}
        for source, result in sorted(pairs):
            operands = (node.inputs[source], node.outputs[result])
            rows = self._row_numbers(list(operands))
            if len(rows) == 2:
                yield rows[0], rows[1]

    def shares(self) -> list[dict[str, Any]]:
        """Return, for each value that shares bytes, the other value and the reason."""
        step_of = {row["node"]: step for step, row in enumerate(self.rows)}
        nodes_of = {step[-1]: step for step in self.plan.steps}
        rows = []
        for pair in self.plan.shares:
            place, other = self.places[pair.result], self.places[pair.source]
            shared = 0
            if place and other and place.space == other.space:
                ends = (place.offset + place.bytes, other.offset + other.bytes)
                shared = max(0, min(ends) - max(place.offset, other.offset))
            step = step_of[pair.node]
            nodes = nodes_of[pair.node]
            rows.append(
                {
                    "value": self._name(pair.result),
                    "rule": pair.rule,
                    "partner": self._name(pair.source),
                    "bytes": shared,
                    "step": step,
                    "nodes": [self.rows[step]["name"]]
                    if self.graph is None
                    else [self.graph.nodes[index].name for index in nodes],
                }
            )
        return rows

    def _name(self, index: int) -> str:
        """Return a value's name; without a name in the plan or graph, its number."""
        if self.graph is not None:
            return self.graph.values[index].name
        return self.planned_names.get(index, f"#{index}")

    def curves(self) -> list[dict[str, Any]]:
        """Return each arena's curves: live bytes, highest address, bytes in the step."""
        count = len(self.rows)
        arenas = range(len(self.plan.spaces))
        spans: list[list[Rectangle]] = [[] for _ in arenas]
        own: list[list[list[tuple[int, int]]]] = [[[] for _ in range(count)] for _ in arenas]
        for index, place in enumerate(self.places):
            if place is not None and place.space in arenas:
                end = place.offset + place.bytes
                spans[place.space].append(
                    Rectangle(place.offset, end, place.live.start, place.live.end)
                )
                for step in {*self.readers.get(index, ()), *self.writers.get(index, ())}:
                    own[place.space][step].append((place.offset, end))
        for work in self.workspaces:
            end = work.offset + work.bytes
            spans[work.space].append(Rectangle(work.offset, end, work.live.start, work.live.end))
            own[work.space][work.live.start].append((work.offset, end))
        return [
            {
                "space": self.space_names[space],
                "live": self.plan.live_bytes_in(space),
                "top": tops(spans[space], count),
                "own": [union(ranges) for ranges in own[space]],
            }
            for space in arenas
        ]

    def timetable(self) -> dict[str, Any] | None:
        """Return when several workers run the steps."""
        table = self.plan.timetable
        if table is None:
            return None
        return fields_of(table, "workers costs starts")


def _mismatch(graph: Graph, plan: Plan, places: list[Placement | None]) -> bool:
    """Whether a plan has values or nodes that the graph has not."""
    if len(places) != len(graph.values):
        return True
    placed = (value.name for value, place in zip(graph.values, places, strict=True) if place)
    if list(placed) != list(plan):
        return True
    return any(node >= len(graph.nodes) for step in plan.steps for node in step)


def _space_names(plan: Plan) -> list[str]:
    """Return the names of spaces, followed by the caller's buffers."""
    count = len(plan.spaces) + len(plan.caller_buffers)
    return [plan.space_name(space) for space in range(count)]


def _techniques(explanation: Explanation) -> dict[str, Any]:
    """Return each technique's saving."""
    return {
        "without": explanation.without._asdict(),
        "levels": {name: point._asdict() for name, point in explanation.levels.items()},
        "switched": {name: point._asdict() for name, point in explanation.switched.items()},
        "points": [point._asdict() for point in explanation.points],
    }
