"""Effects of JAX's primitives on memory: one table."""

from __future__ import annotations

from collections.abc import Mapping

from arenaplan.graph import NO_EFFECTS, Effects, View
from arenaplan.importers.rules import (
    Op,
    Rule,
    contiguous,
    elementwise,
    ends,
    first_operand,
    in_place,
    joined,
    parted,
    permuted,
    piece,
    row,
    same_type,
    size,
    view,
)


def conversion(op: Op) -> Effects:
    """A view if the type stays, and else elementwise."""
    return view(op) if same_type(op) else first_operand(op)


def reinterpretation(op: Op) -> Effects:
    """The same bytes, as another type."""
    x, y = ends(op)
    if x is None or y is None or x.is_constant or size(x) != size(y):
        return NO_EFFECTS
    return Effects(views=(View(0, 0),))


def identity(op: Op) -> Effects:
    """Each result is its operand."""
    pairs = enumerate(zip(op.inputs, op.outputs, strict=False))
    same = (i for i, (x, y) in pairs if x is not None and y is not None and not x.is_constant)
    return Effects(views=tuple(View(i, i) for i in same))


def reshape(op: Op) -> Effects:
    """The same bytes, unless dimensions change places before."""
    return NO_EFFECTS if op.arguments.get("dimensions") is not None else view(op)


def transpose(op: Op) -> Effects:
    """A view if only dimensions of 1 change places."""
    perm = op.arguments.get("permutation")
    return permuted(op, list(perm)) if isinstance(perm, (list, tuple)) else NO_EFFECTS


def concatenate(op: Op) -> Effects:
    """Operands are pieces of the result."""
    return joined(op, op.integer("dimension", 0))


def split(op: Op) -> Effects:
    """Results are pieces of the operand."""
    return parted(op, op.integer("axis", 0))


def slice_(op: Op) -> Effects:
    """A view if the parts that are cut off are before and behind one range of bytes."""
    x, y = ends(op)
    starts, strides = op.arguments.get("start_indices"), op.arguments.get("strides")
    if x is None or y is None or starts is None or any(step != 1 for step in strides or ()):
        return NO_EFFECTS
    cut = [axis for axis, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if a != b]
    if not cut:
        return view(op)
    if len(cut) > 1 or not contiguous(x, cut[0]):
        return NO_EFFECTS
    return piece(x, y, int(starts[cut[0]]) * row(x, cut[0]))


def update(op: Op) -> Effects:
    """The result is operand 0, of which some elements are replaced."""
    return in_place(op, (0,))


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

_VIEWS = "broadcast_in_dim expand_dims squeeze"

_IDENTITIES = """
    copy copy_p device_put mesh_cast name optimization_barrier pvary reshard sharding_constraint
    stop_gradient
"""

_UPDATES = """
    dynamic_update_slice scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub
    scatter_add scatter_max scatter_min scatter_mul scatter_sub
"""

EFFECTS: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), elementwise),
    **dict.fromkeys(_FIRST_OPERAND.split(), first_operand),
    **dict.fromkeys(_VIEWS.split(), view),
    **dict.fromkeys(_IDENTITIES.split(), identity),
    **dict.fromkeys(_UPDATES.split(), update),
    "bitcast_convert_type": reinterpretation,
    "concatenate": concatenate,
    "convert_element_type": conversion,
    "reshape": reshape,
    "slice": slice_,
    "split": split,
    "transpose": transpose,
}
"""Effects by primitive."""

_CALLS = """
    checkpoint closed_call core_call custom_dce_call custom_jvp_call custom_lin custom_vjp_call
    custom_vjp_call_jaxpr jit pjit remat remat2 xla_call
"""

CALLS = frozenset(_CALLS.split())
"""Primitives that run one jaxpr once, on their operands."""

BODIES = frozenset(["cond", "linear_solve", "custom_linear_solve", "scan", "while"])
"""Primitives that run jaxprs one at a time."""

RANDOM = frozenset(["rng_uniform"])
"""Primitives whose results differ from run to run, for any inputs."""
