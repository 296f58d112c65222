"""
Table from JAX primitives to canonical operators.

Equations run one at a time, so no pieces are declared.
"""

from __future__ import annotations

from math import prod
from typing import Final

from arenaplan.formats.named import NamedOp
from arenaplan.graph import Effects, ops


def _reshape(op: NamedOp) -> ops.Operator | None:
    """No operator if dimensions change places before."""
    return ops.RESHAPE if op.arguments.get("dimensions") is None else None


def _transpose(op: NamedOp) -> ops.Operator | None:
    perm = op.integers("permutation")
    return None if perm is None else ops.Transpose(perm)


def _concatenate(op: NamedOp) -> ops.Operator | None:
    axis = op.integer("dimension", 0)
    return None if axis is None else ops.Concat(axis)


def _split(op: NamedOp) -> ops.Operator | None:
    axis = op.integer("axis", 0)
    return None if axis is None else ops.Split(axis)


def _slice(op: NamedOp) -> ops.Operator | None:
    starts, limits = op.integers("start_indices"), op.integers("limit_indices")
    if starts is None or limits is None or len(starts) != len(limits):
        return None
    steps = op.integers("strides") or [1] * len(starts)
    return ops.Slice([range(*bounds) for bounds in zip(starts, limits, steps, strict=True)])


def _reduce(op: NamedOp) -> ops.Operator | None:
    """The same elements if only dimensions of size 1 are removed."""
    (y,) = op.outputs
    return ops.RESHAPE if y is not None and prod(op.shape()) == prod(y.shape) else None


def _scan(op: NamedOp) -> ops.Operator:
    return ops.Loop(op.arguments["num_consts"], op.arguments["num_carry"])


def _while(op: NamedOp) -> ops.Operator:
    first = op.arguments["cond_nconsts"] + op.arguments["body_nconsts"]
    return ops.Loop(first, len(op.inputs) - first)


_ELEMENTWISE = """
    add add_any and atan2 clamp complex div eq eq_to ge gt igamma igamma_grad_a igammac le le_to lt
    lt_to max min mul ne nextafter or polygamma pow regularized_incomplete_beta rem select_n
    shift_left shift_right_arithmetic shift_right_logical sub xor zeta
"""

_FIRST_OPERAND = """
    abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil clz conj cos cosh digamma
    erf erf_inv erfc exp exp2 expm1 floor imag integer_pow is_finite lgamma log log1p logistic neg
    not population_count real reduce_precision round rsqrt sign sin sinh sqrt square tan tanh
"""

_RESHAPES = "broadcast_in_dim expand_dims squeeze"

REDUCTIONS: Final = frozenset(["reduce_max", "reduce_min", "reduce_prod", "reduce_sum"])
"""Reductions that read each element once, in any order."""

_IDENTITIES = """
    copy copy_p device_put mesh_cast name optimization_barrier pvary reshard sharding_constraint
    stop_gradient
"""

_UPDATES = """
    dynamic_update_slice scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub
    scatter_add scatter_max scatter_min scatter_mul scatter_sub
"""

OPERATORS: Final[ops.Table[NamedOp]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), ops.ELEMENTWISE),
    **dict.fromkeys(_FIRST_OPERAND.split(), ops.FIRST_OPERAND),
    **dict.fromkeys(_RESHAPES.split(), ops.RESHAPE),
    **dict.fromkeys(_IDENTITIES.split(), ops.IDENTITY),
    **dict.fromkeys(_UPDATES.split(), ops.UPDATE),
    "bitcast_convert_type": ops.BITCAST,
    "concatenate": _concatenate,
    "convert_element_type": ops.CONVERT,
    **dict.fromkeys(sorted(REDUCTIONS), _reduce),
    "reshape": _reshape,
    "scan": _scan,
    "slice": _slice,
    "split": _split,
    "transpose": _transpose,
    "while": _while,
}
"""Canonical operators by primitive."""


def is_elementwise(primitive: str) -> bool:
    """Whether each result element depends only on elements at the same place."""
    return OPERATORS.get(primitive) in (ops.ELEMENTWISE, ops.FIRST_OPERAND, ops.CONVERT)


def node_effects(primitive: str, op: NamedOp) -> Effects:
    """Return an equation's effects."""
    operator = ops.lookup(OPERATORS, primitive, op)
    effects = ops.effects_of(operator, ops.Operands(op.inputs, op.outputs))
    return effects._replace(flows=(), loads=()) if effects.flows else effects


_CALLS = """
    checkpoint closed_call core_call custom_dce_call custom_jvp_call custom_lin custom_vjp_call
    custom_vjp_call_jaxpr jit pjit remat remat2 xla_call
"""

CALLS = frozenset(_CALLS.split())
"""Primitives that run one jaxpr once, on the primitive's operands."""

REPEATED = frozenset(["checkpoint", "remat", "remat2"])
"""Calls whose equations run again on purpose: compilers merge them with no others."""

BODIES = frozenset(["cond", "linear_solve", "custom_linear_solve", "scan", "while"])
"""Primitives that run jaxprs one at a time."""
