"""Texts of proofs: a size that is proven minimal always names the scope of the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from arenaplan import Plan

MOVE_SCOPE: Final = "this order, these steps and this sharing of bytes"
"""Scope of the bound of the cost of moving bytes."""

_ORDER: Final = "proven minimal for these steps in this order"


def proof_of(plan: Plan) -> str:
    """Return the text of the proof about the size of a plan."""
    capacity = plan.spaces[0].capacity if plan.spaces else None
    if plan.status == "infeasible" and capacity is not None:
        return f"infeasible: the capacity is {capacity:,}, the lower bound {plan.lower_bound:,}"
    if plan.status != "optimal":
        return gap_text(plan.status, plan.arena_bytes, plan.lower_bound)
    if plan.arena_bytes == plan.floor:
        return "proven minimal for these steps in any order"
    if plan.move_cost is not None:
        return "proven minimal for these values in each memory"
    proof = f"{_ORDER}, with these shared bytes" if plan.shares else _ORDER
    if plan.order_search == "complete":
        proof += "; no other order of them has fewer live bytes"
    return proof


def proof_of_several(status: str, arena_bytes: int, lower_bound: int) -> str:
    """Return the text of the proof about one arena for several plans."""
    if status == "optimal":
        return "proven minimal for these steps in their orders, with these shared bytes"
    return gap_text(status, arena_bytes, lower_bound)


def gap_text(status: str, arena_bytes: int, lower_bound: int) -> str:
    """Return the text of the gap between the size of an arena and its bound."""
    gap = arena_bytes / lower_bound - 1 if lower_bound else 0.0
    return f"{status}, {gap:.2%} above the lower bound"
