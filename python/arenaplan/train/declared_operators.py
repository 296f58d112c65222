"""User-declared operators: a call that fills all tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import getdoc
from typing import Any, Final

from arenaplan.base.errors import InvalidOption, PlannerError, fault
from arenaplan.formats.onnx.function_bodies import INLINED
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import DataDependent, OnnxOperand, Op
from arenaplan.formats.onnx.own_operators import OWN, EffectsRule, Own, Results
from arenaplan.formats.onnx.remembered import forget
from arenaplan.formats.onnx.symbol_schema import Schema, parsed
from arenaplan.graph import NO_EFFECTS, Effects, InPlace, View
from arenaplan.graph.dtype_names import dtype_name
from arenaplan.graph.ops import BITS
from arenaplan.graph.ops.operands import size
from arenaplan.graph.values import checked_shape
from arenaplan.run.numpy.registry import Kernel, Prepare, set_kernel, supported_ops
from arenaplan.train.gradients.gradient_rules import (
    RULES,
    Gradients,
    Rule,
    RuleFunction,
    Site,
)
from arenaplan.train.symbols.relations import RELATIONS, Relation

__all__ = ["Op", "operator"]

_RESERVED: Final = ("", "ai", "arenaplan")
"""First parts of reserved domains."""


def operator(
    signature: str,
    *,
    shapes: Results | None = None,
    relation: Relation | None = None,
    effects: Effects | EffectsRule = NO_EFFECTS,
    kernel: Prepare | Kernel | None = None,
    gradient: RuleFunction | None = None,
) -> None:
    """
    Declare an operator, to be composed, read from files, planned, run and differentiated.

    A missing part is refused by name where needed. Declaring an operator again replaces the
    operator for graphs made from then on.

    Parameters
    ----------
    signature : str
        Domain, inputs, attributes and outputs: ``"acme::Scale(x, bias=None, *, power=1.0) -> y"``.
        Inputs with the default ``None`` may be left out. All operands have the same element type,
        unless annotated otherwise: ``index: int64``.
    shapes : callable, optional
        Returns each output's shape and element type for an :class:`~arenaplan.train.Op`. Without
        ``shapes``, the operator is limited to files that declare output shapes.
    relation : callable, optional
        Infers backward: gets attributes, and the known dimensions of inputs and outputs, and adds
        dimensions by ``learn``.
    effects : Effects or callable
        The bytes that operands may share; a function gets the :class:`~arenaplan.train.Op` and the
        outputs. Permissions in :class:`Effects` that a node cannot use are dropped for the node.
    kernel : callable or Kernel, optional
        Called once with a :class:`~arenaplan.run.Step` with a node's arrays; returns a function
        without arguments that computes the outputs without allocating.
    gradient : callable, optional
        Gets a :class:`~arenaplan.train.Site` and returns each input's gradient, made by
        ``site.op``; ``None`` where no gradient flows.

    Raises
    ------
    InvalidOption
        If the signature is not valid, or names a standard operator or one of this package's.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> def cube(step):
    ...     x, y = step.inputs[0], step.outputs[0]
    ...     return lambda: np.power(x, 3, out=y)
    >>> ap.operator("acme::Cube(x) -> y", shapes=lambda op: [(op.input(0).shape, "float32")],
    ...             effects=ap.Effects(in_place=((0, 0),)), kernel=cube)
    >>> graph = ap.Graph()
    >>> graph.output(ap.train.operators(graph).Cube(graph.input("x", (2,)), name="y"))
    >>> ap.Executor(graph).run({"x": np.array([1, 2], np.float32)})["y"]
    array([1., 8.], dtype=float32)
    """
    parts = {"shapes": shapes, "relation": relation, "kernel": kernel, "gradient": gradient}
    for part, given in {"effects": effects, **parts}.items():
        if given is not None and not (callable(given) or isinstance(given, (Effects, Kernel))):
            raise InvalidOption(f"option {part}: {given!r} is not a function")
    domain, _, call = str(signature).strip().rpartition("::")
    functions = (
        given.prepare if isinstance(given, Kernel) else given for given in (kernel, shapes)
    )
    schema = parsed(call, domain, next(filter(None, map(getdoc, filter(None, functions))), ""))
    name, key = schema.name, (domain, schema.name)
    is_known = name in supported_ops(domain) or name in INLINED.get(domain, ())
    if domain.partition(".")[0] in _RESERVED or (is_known and key not in OWN):
        raise InvalidOption(
            f"operator {schema.label} is one of the standard or of this package: declare one in a "
            "domain of your own, such as 'acme::Scale(x) -> y'"
        )
    rule = _fitting(effects, schema) if isinstance(effects, Effects) else effects
    OWN[key] = Own(
        schema,
        None if shapes is None else _guarded(_with_results(shapes), "shapes", schema),
        _guarded(_with_effects(rule), "effects", schema),
    )
    set_kernel(name, domain, Kernel(kernel) if callable(kernel) else kernel)
    RELATIONS.pop(schema.label, None)
    if relation is not None:
        RELATIONS[schema.label] = _guarded(relation, "relation", schema)
    RULES.pop(schema.label, None)
    if gradient is not None:
        back = _guarded(_with_gradients(gradient), "gradient", schema)
        RULES[schema.label] = Rule(schema.label, ("x*", "y*"), back)
    forget()


def _guarded(function: Callable[..., Any], part: str, schema: Schema) -> Callable[..., Any]:
    """Return a user function whose errors name the node and the part."""

    def call(*given: Any) -> Any:
        try:
            return function(*given)
        except (PlannerError, DataDependent):
            raise
        except Exception as error:
            where = getattr(given[0], "label", f"operator {schema.label}")
            raise fault(
                "OperatorError", f"{where}: its {part}= raised {type(error).__name__}: {error}"
            ) from error

    return call


def _with_results(shapes: Results) -> Results:
    """Return a rule that refuses impossible or missing results."""

    def results(op: Op) -> Sequence[Result]:
        found = [
            (checked_shape(shape, op.name), dtype_name(dtype, op.name))
            for shape, dtype in shapes(op)
        ]
        unknown = next((dtype for _, dtype in found if dtype not in BITS), None)
        if unknown is not None or len(found) < len(op.outputs):
            problem = f"{len(found)} results" if unknown is None else f"element type {unknown!r}"
            raise ValueError(f"{problem} for {len(op.outputs)} outputs")
        return found

    return results


def _with_effects(rule: EffectsRule) -> EffectsRule:
    """Return a rule that refuses anything except effects."""

    def effects(op: Op, made: Sequence[OnnxOperand | None]) -> Effects:
        found = rule(op, made)
        if not isinstance(found, Effects):
            raise TypeError(f"{found!r} is not Effects")
        return found

    return effects


def _with_gradients(rule: RuleFunction) -> RuleFunction:
    """Return a rule that refuses anything except gradients for a node's inputs."""

    def gradients(site: Site) -> Gradients:
        found, count = tuple(rule(site)), len(site.node.inputs)
        if len(found) != count or not all(isinstance(each, (int, type(None))) for each in found):
            raise TypeError(f"{found!r} is not a value or None for each of {count} inputs")
        return found

    return gradients


def _fitting(effects: Effects, schema: Schema) -> EffectsRule:
    """Return a rule that gives each node the permissions that the node can use."""
    in_place = tuple(InPlace(*pair) for pair in effects.in_place)
    views = tuple(View(*pair) for pair in effects.views)
    inputs, outputs = len(schema.inputs), len(schema.outputs)
    pairs = [pair[:2] for pair in in_place] + [pair[:2] for pair in views]
    pairs += [(x, 0) for x in (*effects.mutates, *effects.ignores)]
    for x, y in pairs:
        if y >= outputs or (x >= inputs and not schema.is_variadic):
            raise fault(
                "InvalidEffect",
                f"operator {schema.label} has {inputs} inputs and {outputs} outputs, and no pair "
                f"{x}, {y} of them",
            )

    def rule(op: Op, made: Sequence[OnnxOperand | None]) -> Effects:
        def fits(pair: InPlace | View) -> bool:
            x, y = (
                op.optional(pair.input),
                made[pair.output] if pair.output < len(made) else None,
            )
            if x is None or y is None or x.is_fixed:
                return False
            return isinstance(pair, View) or size(y) <= size(x)

        return effects._replace(
            in_place=tuple(filter(fits, in_place)), views=tuple(filter(fits, views))
        )

    return rule
