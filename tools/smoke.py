"""Plans and runs a graph with nothing but the installed wheel: what a release must do."""

import numpy as np

import arenaplan as ap

graph = ap.Graph("smoke")
x = graph.input("x", (1, 64), "float32")
(y,) = graph.node("Relu", [x], [("y", (1, 64), "float32")], in_place=[(0, 0)])
graph.output(y)
plan = ap.plan(graph)
plan.check(graph)
with ap.Executor(graph, plan) as executor:
    made = executor.run({"x": np.full((1, 64), -1, np.float32)})["y"]
assert not made.any(), made
print(plan.arena_bytes, plan.status)
