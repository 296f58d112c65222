"""
Operators outside the standard: this package's operators, and user-declared operators.

This package's operators have the domain ``arenaplan.training``: gradients that the standard cannot
express without additional values as large as the operand, losses with statistics, and in-place
parameter updates. Kernels are in ``run/numpy/kernels/gradients_*.py`` and
``run/numpy/kernels/updates.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import OnnxOperand, Op
from arenaplan.formats.onnx.symbol_schema import Schema, parsed, sorted_out, standard
from arenaplan.graph import NO_EFFECTS, Effects, InPlace, ops
from arenaplan.graph.ops.own_ops import TRAINING

Results: TypeAlias = "Callable[[Op], Sequence[Result]]"
EffectsRule: TypeAlias = "Callable[[Op, Sequence[OnnxOperand | None]], Effects]"


def _no_effects(op: Op, outputs: Sequence[OnnxOperand | None]) -> Effects:
    del op, outputs
    return NO_EFFECTS


@dataclass(frozen=True, slots=True)
class Own:
    """An operator outside the standard."""

    schema: Schema
    results: Results | None = None
    """Returns shapes and element types of all outputs; ``None`` if only files declare outputs."""
    effects: EffectsRule = _no_effects
    """Returns a node's effects, given the outputs."""
    writes: tuple[tuple[int, int], ...] = ()
    """
    States that the operator replaces: the state's position among the inputs, and the new content's
    among the outputs.
    """

    def filled(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes, with defaults for missing attributes."""
        known = self.schema.attributes.values()
        return {**{k.name: k.default for k in known if k.default is not None}, **attributes}

    def checked(
        self, node: str, inputs: Sequence[OnnxOperand | None], attributes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """
        Return the attributes of a node in a file, with defaults.

        Raises
        ------
        InvalidOperand, InvalidAttribute
            If operands or attributes do not match the operator.
        """
        try:
            return self.filled(sorted_out(self.schema, inputs, attributes)[1])
        except (InvalidOperand, InvalidAttribute) as error:
            raise type(error)(f"node {node}: {error}") from None


def _may_be_taken(op: Op, outputs: Sequence[OnnxOperand | None], at: int) -> bool:
    x, y = op.optional(at), outputs[0]
    return (
        x is not None
        and y is not None
        and not x.is_fixed
        and (x.shape, x.dtype) == (y.shape, y.dtype)
    )


# -- shapes ---------------------------------------------------------------------------------------


def _like(*positions: int) -> Results:
    """Return a rule: output *k* is like the input at the *k*-th position."""

    def results(op: Op) -> Sequence[Result]:
        return tuple((op.input(at).shape, op.input(at).dtype) for at in positions)

    return results


def _of_shape(op: Op) -> Sequence[Result]:
    """Shape from the attribute ``shape``, type from input 0."""
    return ((op.integers("shape") or (), op.input(0).dtype),)


def _elementwise(op: Op) -> Sequence[Result]:
    """All operands have the same shape."""
    shapes = {known.shape for known in op.inputs if known is not None and prod(known.shape) != 1}
    if len(shapes) > 1:
        raise op.error(ShapeMismatch, f"its inputs have the shapes {sorted(shapes)}")
    return ((op.input(0).shape, op.input(0).dtype),)


def _conv_weight(op: Op) -> Sequence[Result]:
    """Weights ``(M, C / group, …)`` for data ``(N, C, …)`` and results ``(N, M, …)``."""
    x, dy = op.input(0), op.input(1)
    group, kernel = op.integer("group", 1), op.integers("kernel_shape") or ()
    if len(x.shape) != len(dy.shape) or len(x.shape) != len(kernel) + 2 or x.shape[1] % group:
        raise op.error(ShapeMismatch, f"data {x.shape} and results {dy.shape} of one convolution")
    return (((dy.shape[1], x.shape[1] // group, *kernel), x.dtype),)


def _loss(op: Op) -> Sequence[Result]:
    """The loss, per label or as a scalar; the logarithms of all probabilities."""
    scores, labels = op.input(0), op.input(1)
    if len(scores.shape) < 2 or (scores.shape[0], *scores.shape[2:]) != labels.shape:
        raise op.error(
            ShapeMismatch, f"scores of shape {scores.shape} and labels of shape {labels.shape}"
        )
    weights = op.optional(2)
    if weights is not None and weights.shape != scores.shape[1:2]:
        raise op.error(
            ShapeMismatch, f"weights of shape {weights.shape} for {scores.shape[1]} classes"
        )
    shape = labels.shape if op.text("reduction", "mean") == "none" else ()
    return ((shape, scores.dtype), (scores.shape, scores.dtype))


def _nll_gradient(op: Op) -> Sequence[Result]:
    """A number per class and label."""
    labels = op.input(1).shape
    return (((labels[0], op.integer("classes"), *labels[1:]), op.input(0).dtype),)


def _sgd(op: Op) -> Sequence[Result]:
    """The parameter, and the velocity, if any."""
    return _like(1)(op) if op.optional(3) is None else _like(1, 3)(op)


def _assigned(op: Op) -> Sequence[Result]:
    """A state's new content, with the state's shape and type."""
    state, value = op.input(0), op.input(1)
    if (state.shape, state.dtype) != (value.shape, value.dtype):
        raise op.error(
            ShapeMismatch,
            f"a state of {state.dtype} and shape {state.shape}, and a value of {value.dtype} and "
            f"shape {value.shape}",
        )
    return ((state.shape, state.dtype),)


# -- the table ------------------------------------------------------------------------------------


def _own(
    signature: str,
    results: Results,
    doc: str,
    *,
    meaning: ops.Operator | None = None,
    takes_over: tuple[int, ...] = (),
    writes: tuple[tuple[int, int], ...] = (),
    ignores: tuple[int, ...] = (),
) -> Own:
    """
    Return one of this package's operators.

    Parameters
    ----------
    meaning : Operator, optional
        The canonical operator, which determines the effects.
    takes_over : tuple of int
        Inputs whose bytes output 0 may take over although the operator is not elementwise.
    ignores : tuple of int
        Inputs whose bytes the operator does not read.
    """

    def effects(op: Op, outputs: Sequence[OnnxOperand | None]) -> Effects:
        found = ops.effects_of(meaning, ops.Operands(op.inputs, outputs), copies=True)
        taken = tuple(InPlace(at, 0) for at in takes_over if _may_be_taken(op, outputs, at))
        read = [pair for pair in writes if pair[0] not in ignores]
        over = tuple(InPlace(*pair) for pair in read if op.optional(pair[0]) is not None)
        found = found._replace(in_place=found.in_place + taken + over)
        return found._replace(ignores=ignores, pure=True)

    return Own(parsed(signature, TRAINING, doc), results, effects, writes)


def _adopted(name: str, results: Results) -> Own:
    """Return a standard operator that runs with this package's kernel in nodes built here."""
    known = standard(name)
    assert known is not None, f"the standard has {name}"
    schema = Schema(name, TRAINING, 1, known.inputs, known.outputs, known.attributes, known.doc)
    return Own(schema, results)


_WINDOW: Final = "kernel_shape=(), strides=None, pads=None, dilations=None, ceil_mode=0"
_REDUCTION: Final = "reduction='mean', ignore_index=None"

_TABLE: Final = (
    _own("StopGradient(x) -> y", _like(0), "The operand, through which no gradient flows.",
         meaning=ops.RESHAPE),
    _own("ReluGrad(dy, y) -> dx", _elementwise, "Gradient of Relu, from its result.",
         meaning=ops.ELEMENTWISE),
    _own("SigmoidGrad(dy, y) -> dx", _elementwise, "Gradient of Sigmoid, from its result.",
         meaning=ops.ELEMENTWISE),
    _own("TanhGrad(dy, y) -> dx", _elementwise, "Gradient of Tanh, from its result.",
         meaning=ops.ELEMENTWISE),
    _own("DropoutGrad(dy, mask: bool, ratio: T1=None) -> dx", _like(0),
         "Gradient of Dropout, from its mask.", meaning=ops.ELEMENTWISE),
    _own("SoftmaxGrad(dy, y, *, axis=-1) -> dx", _like(0),
         "Gradient of Softmax, from its result.", takes_over=(0,)),
    _own("LogSoftmaxGrad(dy, y, *, axis=-1) -> dx", _like(0),
         "Gradient of LogSoftmax, from its result.", takes_over=(0,)),
    _adopted("SoftmaxCrossEntropyLoss", _loss),
    _adopted("NegativeLogLikelihoodLoss", lambda op: _loss(op)[:1]),
    _own("SoftmaxCrossEntropyLossGrad"
         f"(dloss, log_prob, labels: I, weights=None, *, {_REDUCTION}) -> dscores", _like(1),
         "Gradient of SoftmaxCrossEntropyLoss, from its logarithms.", takes_over=(1,)),
    _own("NegativeLogLikelihoodLossGrad"
         f"(dloss, target: I, weight=None, *, {_REDUCTION}, classes=None) -> dinput",
         _nll_gradient, "Gradient of NegativeLogLikelihoodLoss."),
    _own(f"ConvGradWeight(x, dy, *, {_WINDOW}, group=1) -> dw", _conv_weight,
         "Gradient of the weights of a convolution."),
    _own(f"MaxPoolGrad(dy, x, y, *, {_WINDOW}) -> dx", _like(1),
         "Gradient of MaxPool: all of it to the first greatest element of each window."),
    _own(f"AveragePoolGrad(dy, *, {_WINDOW}, count_include_pad=0, shape=()) -> dx", _of_shape,
         "Gradient of AveragePool."),
    _own("GatherGrad(dy, indices: I, *, axis=0, shape=()) -> dx", _of_shape,
         "Gradient of Gather: slices are added up at their indices."),
    _own("SliceGrad(dy, *, starts=(), steps=(), shape=()) -> dx", _of_shape,
         "Gradient of Slice: zeros but for the slice."),
    _own("NormalizationGrad(dy, x, scale, *, axes=(), along=(), groups=1, epsilon=1e-5, "
         "is_centered=1) -> dx, dscale, dbias=None", _like(1, 2, 2),
         "Gradients of a normalization by the statistics of its operand. `axes` are those that the "
         "statistics go over, in the operand split into `groups` at dimension 1; `along` are those "
         "that the scale has; without `is_centered` the mean is not subtracted."),
    _own("Assign(state, value) -> content", _assigned, "The new content of a state.",
         takes_over=(1,), writes=((0, 0),), ignores=(0,)),
    _own("SlideCache(cache, first: int64, count: int64, new=None, *, axis=2) -> cache", _like(0),
         "A cache whose `count` entries from `first` on, of each sample, move to the front, with "
         "new ones behind them; entries behind these stay.", takes_over=(0,)),
    _own("Count(count: int64) -> content: int64", _like(0), "A state that counts, and one more.",
         writes=((0, 0),)),
    _own("SgdUpdate(rate, parameter, gradient, velocity=None, *, momentum=0.0, nesterov=0, "
         "weight_decay=0.0) -> parameter, velocity=None", _sgd,
         "A step of gradient descent, with momentum if there is a velocity.",
         writes=((1, 0), (3, 1))),
    _own("AdamUpdate(rate, count: int64, parameter, gradient, mean, square, *, beta1=0.9, "
         "beta2=0.999, epsilon=1e-8, weight_decay=0.0, decoupled=0) -> parameter, mean, square",
         _like(2, 4, 5),
         "A step of Adam (Kingma and Ba 2015); with `decoupled`, the weight decay is that of AdamW "
         "(Loshchilov and Hutter 2019).",
         writes=((2, 0), (4, 1), (5, 2))),
)  # fmt: skip

OWN: Final[dict[tuple[str, str], Own]] = {
    (each.schema.domain, each.schema.name): each for each in _TABLE
}
"""Operators outside the standard, by domain and name."""
