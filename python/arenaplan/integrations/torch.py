"""
PyTorch runs a schedule: the compiled graphs keep and repeat the plan's computations.

:func:`partitioner` makes the function that cuts the joint graph of AOTAutograd into a forward and a
backward graph. ``torch.compile`` takes the function as the option ``custom_partitioner_fn``, and
``aot_autograd`` as ``partition_fn``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from arenaplan import _core
from arenaplan.formats.pt2 import graph_of_joint
from arenaplan.integrations.torch_cut import JointCut, constrain, ends_of, planned_module
from arenaplan.planner.planning import goal_of
from arenaplan.planner.planning import plan as make_plan

_HONORED = ("views", "order")
__all__ = ["PartitionReport", "Partitioner", "partitioner"]


class PartitionReport(NamedTuple):
    """The plan's promises for a joint graph."""

    predicted_bytes: int
    """Bytes that the passes make, gradients included, at the fullest step."""
    plain_bytes: int
    """The same if each node runs once."""
    saved_bytes: int
    """Bytes that the forward pass makes and the backward pass reads."""
    extra_work: float
    """Work of repetitions relative to the joint graph."""
    bound: float
    """No schedule in as many bytes has less extra work."""
    repetitions: int
    """Executions beyond the first of each working node, without views."""
    most_runs: int
    """Executions of the node that runs most often, without views."""

    def __str__(self) -> str:
        return (
            f"{self.predicted_bytes:,} bytes predicted, {self.plain_bytes:,} without repetitions, "
            f"{self.saved_bytes:,} saved; {self.repetitions} repetitions for "
            f"{self.extra_work:.1%} more work (at least {self.bound:.1%}); no node runs more than "
            f"{self.most_runs} times"
        )


class Partitioner:
    """
    Cuts joint graphs as plans say: see :func:`partitioner`.

    Parameters
    ----------
    recompute : str or int
        As for :func:`partitioner`.
    """

    def __init__(self, recompute: str | int) -> None:
        goal_of(recompute)  # A wrong goal is refused here, and not in a compilation.
        self.recompute = recompute
        """The goal."""
        self.reports: list[PartitionReport] = []
        """A report per cut graph, in compilation order."""

    def __call__(
        self,
        module: Any,
        joint_inputs: Sequence[Any],
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Sequence[int] | None = None,
        **_: Any,
    ) -> tuple[Any, Any]:
        """
        Return the forward and the backward graph for a joint graph.

        Raises
        ------
        RecomputeExceeded
            If no schedule meets the goal.
        PlannerError
            If the graph cannot be read; the message names the node.
        """
        ends = ends_of(module, num_fwd_outputs)
        graph = graph_of_joint(planned_module(module, ends), {}, "", None)
        constrain(graph, module, ends)
        plain = make_plan(graph, inputs="caller", optimize=_HONORED, effort="fast")
        plan = make_plan(
            graph, recompute=self.recompute, inputs="caller", optimize=_HONORED, effort="fast"
        )
        cut = JointCut(module, graph, plan, ends)
        runs = Counter(
            it for it in plan.schedule or () if isinstance(it, int) and graph.nodes[it].cost
        )
        self.reports.append(
            PartitionReport(
                predicted_bytes=plan.arena_bytes,
                plain_bytes=plain.arena_bytes,
                saved_bytes=cut.saved_bytes,
                extra_work=plan.extra_cost,
                bound=plan.extra_bound,
                repetitions=sum(runs.values()) - len(runs),
                most_runs=max(runs.values(), default=1),
            )
        )
        return cut.modules(static_lifetime_input_indices or ())

    def __reduce__(self) -> Any:
        """Inductor's cache pickles options: the goal stands for the partitioner."""
        return partitioner, (self.recompute,)

    def uuid(self) -> bytes:
        """Return the partitioner's key in Inductor's cache."""
        return hashlib.sha256(f"{_core.__version__} {self.recompute}".encode()).digest()


def partitioner(recompute: str | int) -> Partitioner:
    """
    Return a function that cuts a model's joint graph as a plan with recomputation says.

    Parameters
    ----------
    recompute : str or int
        ``"30%"`` for at most so much extra work. ``"512MiB"`` or a number for bytes: all results of
        forward and backward pass, gradients included, inputs and parameters excluded.

    Returns
    -------
    Partitioner
        For ``torch.compile(model, options={"custom_partitioner_fn": …})``, and for ``partition_fn``
        in ``aot_autograd``. ``reports`` has a :class:`PartitionReport` per compiled graph; a graph
        from a PyTorch cache is not planned again.

    Raises
    ------
    ImportError
        If torch is not installed.
    InvalidOption, SizeError
        If ``recompute`` is not a goal.

    Examples
    --------
    >>> from arenaplan.integrations import torch as apt             # doctest: +SKIP
    >>> cut = apt.partitioner("512MiB")                             # doctest: +SKIP
    >>> model = torch.compile(model, options={"custom_partitioner_fn": cut})    # doctest: +SKIP
    >>> model(x).sum().backward()                                   # doctest: +SKIP
    >>> print(cut.reports[0])                                       # doctest: +SKIP
    """
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    kind = type("Partitioner", (Partitioner, CustomPartitionerFn), {})
    made: Partitioner = kind(recompute)
    return made
