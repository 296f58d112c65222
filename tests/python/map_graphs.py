"""Small graphs whose plans the tests of reports and maps draw."""

from __future__ import annotations

import random

import arenaplan as ap

HOSTILE = "</script><script>document.title='owned'</script>\"'&<img src=x onerror=alert(1)>\u2028"
"""A name that tries to become markup."""


def residual() -> ap.Graph:
    """Return x -> a -> b = a + c, with every kind of value, an alias and a workspace."""
    graph = ap.Graph("residual")
    x = graph.input("x", (64,), "uint8")
    total = graph.state("total", (64,), "uint8")
    (a,) = graph.node("Conv", [x], [("a", (256,), "uint8")], name="/body/conv1/Conv")
    (b,) = graph.node("Relu", [a], [("b", (256,), "uint8")], in_place=[(0, 0)], name="relu")
    (c,) = graph.node(
        "Conv", [b], [("c", (256,), "uint8")], workspaces=[[(192, 0.0)]], name="/body/conv2/Conv"
    )
    (d,) = graph.node("Add", [b, c], [("d", (256,), "uint8")], name="add")
    (e,) = graph.node("Count", [d, total], [("e", (64,), "uint8")], mutates=[1], name="count")
    graph.output(e)
    return graph


def planned(graph: ap.Graph, **options: object) -> ap.Plan:
    """Return the plan of a graph without surprises: no node runs with another one."""
    given = {"optimize": "views,in-place", "target": "nodes", "alignment": 64, **options}
    return ap.plan(graph, **given)  # type: ignore[arg-type]


def chain(size: int, seed: int = 0, name: str = "v") -> ap.Graph:
    """Return a chain of nodes with some longer edges, and sizes at random."""
    rng = random.Random(seed)
    graph = ap.Graph(f"chain of {size}")
    values = [graph.input(f"{name}0", (64,), "uint8")]
    for index in range(1, size):
        reads = {values[-1], values[max(0, index - rng.randrange(1, 8))]}
        spec = (f"{name}{index}", (64 * rng.randrange(1, 30),), "uint8")
        (value,) = graph.node(rng.choice(["Conv", "Add"]), sorted(reads), [spec], name=f"n{index}")
        assert value is not None
        values.append(value)
    graph.output(values[-1])
    return graph
