"""Running the nodes of a graph as one, with every size of scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import arenaplan as ap
from arenaplan.run.numpy.executor import quiet_arithmetic
from arenaplan.run.numpy.groups import find_units
from arenaplan.run.numpy.steps import (
    aligned_bytes,
    arena_arrays,
    own_workspaces,
    prepare,
    run_all,
)
from networks import noise
from step_costs import staging_choices, workspace_choices

Steps = Sequence[Sequence[int]]


def inputs_of(graph: ap.Graph, seed: int = 7) -> dict[str, np.ndarray]:
    values = [graph.values[index] for index in graph.inputs]
    return {v.name: noise(*v.shape, seed=seed + k) for k, v in enumerate(values)}


def check(graph: ap.Graph, steps: Steps, *, tolerance: float = 2e-5) -> ap.Plan:
    """Run steps with every size of scratch memory; results are those of nodes run alone."""
    feed = inputs_of(graph)
    with ap.Executor(graph, ap.plan(graph, optimize="all,-in-place", target="ideal")) as executor:
        alone = executor.run(feed)
    plan = ap.plan(graph, steps=steps, workspace="auto", target="numpy")
    with ap.Executor(graph, plan) as executor:
        assert executor.scratch_bytes == 0
        assert len(executor._setup.program.nodes) <= len(steps)  # type: ignore[union-attr]
        planned = executor.run(feed, verify=True)
    plain = ap.plan(graph, steps=steps, target="ideal")
    with ap.Executor(graph, plain) as executor:
        unplanned = executor.run(feed, verify=True)
    results = [planned, unplanned]
    most = max(
        map(len, (s for slots in workspace_choices(graph, steps).values() for s in slots)),
        default=0,
    )
    results += [run_with_choice(graph, plain, feed, choice) for choice in range(most)]
    for name, wanted in alone.items():
        assert np.unique(wanted).size > min(10, wanted.size // 2)
        for found in results:
            np.testing.assert_allclose(found[name], wanted, rtol=tolerance, atol=tolerance)
    return plan


def run_with_choice(
    graph: ap.Graph, plan: ap.Plan, feed: dict[str, np.ndarray], choice: int
) -> dict[str, np.ndarray]:
    """Run the steps of a plan with scratch memory of one of the sizes that are offered."""
    named = set(plan.overlapped)
    overlapped = [step for step in plan.steps if step[-1] in named]
    rest = [step for step in plan.steps if step[-1] not in named]
    declared = {**workspace_choices(graph, rest), **staging_choices(graph, overlapped)}
    sizes = {
        node: [slot[min(choice, len(slot) - 1)].bytes for slot in slots]
        for node, slots in declared.items()
    }
    memory = aligned_bytes(plan.arena_bytes)
    memory[...] = 0xEE
    arrays = arena_arrays(graph, plan, [memory])
    scratch, _ = own_workspaces(sizes)
    for index in graph.inputs:
        np.copyto(arrays[index], feed[graph.values[index].name])
    program = prepare(graph, find_units(graph, plan), arrays, scratch)
    with quiet_arithmetic():
        run_all(program)
    return {graph.values[index].name: arrays[index].copy() for index in graph.outputs}


def sizes_of(graph: ap.Graph, steps: Steps, node: int) -> list[int]:
    """Return the sizes of scratch memory that are offered for a group."""
    slots = workspace_choices(graph, steps).get(node, ((),))
    return [choice.bytes for choice in slots[0]]


def scratch_of(plan: ap.Plan) -> int:
    return sum(work.bytes for work in plan.workspaces)


def same_bytes(plan: ap.Plan, a: int, b: int) -> bool:
    """Return whether two values, by index, have the same bytes."""
    first, second = plan.placements[a], plan.placements[b]
    return first is not None and second is not None and first.same_bytes(second)
