"""The part of a model that is planned before a run; its branches and loops."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from arenaplan.base.errors import UnboundDim, UnknownShape, UnsupportedSubgraph
from arenaplan.cli.common import is_onnx, load_model, say, shown
from arenaplan.formats import open_partial
from arenaplan.formats.partial import DECIDING, NOTHING_KNOWN
from arenaplan.graph import Graph
from arenaplan.planner.bodies import bodies_of, describe


class Ahead(NamedTuple):
    """The part of a model that can be planned before it runs."""

    graph: Graph
    waiting: tuple[str, ...] = ()
    """Nodes that are planned when sizes are known; empty for nearly all models."""
    deciders: tuple[str, ...] = ()
    """What decides those sizes, one sentence each."""

    def facts(self) -> dict[str, Any]:
        """Return the facts for a JSON document."""
        if not self.waiting:
            return {}
        return {"ahead": {"waiting": list(self.waiting), "deciders": list(self.deciders)}}

    def tell(self) -> None:
        """Print the facts for people."""
        if not self.waiting:
            return
        count, total = len(self.graph.nodes), len(self.graph.nodes) + len(self.waiting)
        print(
            f"  ahead        {count:,} of {total:,} nodes, and the proof is for these; data "
            "decides the sizes of the others, which are planned during a run"
        )
        for sentence in self.deciders:
            print(f"    {shown(sentence, 160)}")


def load_ahead(options: argparse.Namespace) -> Ahead:
    """Read the model of a command as far as its sizes are known before it runs."""
    try:
        return Ahead(load_model(options))
    except (UnboundDim, UnknownShape, UnsupportedSubgraph) as error:
        if not is_onnx(options):
            raise
        from arenaplan.run.dynamic.model_stages import (  # Few models need them.
            NOTHING_DONE,
            stage_graph,
        )

        found = open_partial(options.model, dict(options.bind))(NOTHING_KNOWN)
        if found.is_complete:
            raise error from None
        for warning in found.graph.warnings:
            say(f"warning: {warning}")
        graph = stage_graph(found, NOTHING_DONE).graph
        return Ahead(graph, tuple(found.waiting), found.deciders)


def flow_facts(graph: Graph) -> dict[str, Any]:
    """Return the branches and loops of a graph for a JSON document."""
    found = [describe(node) for node in graph.nodes if bodies_of(node)]
    return {"bodies": found} if found else {}


def tell_flow(graph: Graph) -> None:
    """Print the branches and loops of a graph, and its upper bounds, for people."""
    for node in graph.nodes:
        if node.op in DECIDING and not node.domain:
            print(
                f"  bounded      the results of {node.op} {shown(node.name, 40)} have upper bounds"
            )
        bodies = bodies_of(node)
        if not bodies:
            continue
        word = "branches" if node.op.upper() == "IF" else "body"
        nodes = ", ".join(f"{len(body.graph.nodes):,}" for body in bodies)
        size = max(body.nbytes for body in bodies)
        print(
            f"  {word:<12} {node.op} {shown(node.name, 40)}: {nodes} nodes, {size:,} bytes "
            "for values inside, planned by themselves"
        )
