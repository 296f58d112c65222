"""
Seeded corruptions of rewritten models.

A corruption changes one thing that a rewriter could get wrong. It counts if the evaluator sees
other outputs, or no model at all, or if the plan or the interface says what is not so.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import flat
from sketch_runs import Impossible, evaluated, inputs_of
from sketches import Operator, Sketch, Tensor, bits, number_of

Corruption = Callable[[random.Random, Sketch, Sketch], bool]
"""Changes a rewritten sketch; returns whether it could. The original is not to be changed."""


class Nothing(Exception):
    """The sketch has nothing that the corruption could change."""


def pick(draw: random.Random, sketch: Sketch, *names: str) -> Operator:
    found = [o for o in sketch.operators if o.name in names]
    if not found:
        raise Nothing
    return draw.choice(found)


def renumbered(sketch: Sketch, tensor: int, array: np.ndarray) -> int:
    """Return a new constant beside an old one, which other operators may share."""
    old = sketch.tensors[tensor]
    new = Tensor(f"{old.name}'", old.shape, old.type, old.scales, old.zeros, old.dimension)
    new.data = array.tobytes()
    number = sketch.add(new)
    if sketch.plan is not None:
        sketch.plan.append(-1)
    return number


def offset(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """A slice begins at another row."""
    operator = pick(draw, new, "SLICE", "STRIDED_SLICE")
    step = draw.choice([-2, -1, 1, 2])
    begin = new.tensors[operator.inputs[1]].array().copy()
    begin[1] += step
    if operator.name == "STRIDED_SLICE":
        end = new.tensors[operator.inputs[2]].array().copy()
        end[1] += step
        operator.inputs[2] = renumbered(new, operator.inputs[2], end)
    operator.inputs[1] = renumbered(new, operator.inputs[1], begin)
    return True


def row(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """A strip is read from another tensor of its shape."""
    operator = draw.choice(new.operators)
    return rewire(draw, new, operator, draw.randrange(len(operator.inputs)))


def rewire(draw: random.Random, new: Sketch, operator: Operator, place: int) -> bool:
    now = new.tensors[operator.inputs[place]]
    others = [
        index
        for index, tensor in enumerate(new.tensors)
        if index != operator.inputs[place]
        and (tensor.data is None, tensor.shape, tensor.type)
        == (now.data is None, now.shape, now.type)
    ]
    if not others:
        raise Nothing
    operator.inputs[place] = draw.choice(others)
    return True


def halo(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """A row of a strip is replaced by padding, or the other way round."""
    operator = pick(draw, new, "PAD")
    source = operator.inputs[0]
    shape = new.tensors[source].shape
    if shape[1] < 2:
        raise Nothing
    amounts = new.tensors[operator.inputs[1]].array().copy()
    at_top = draw.random() < 0.5
    cut = new.add(
        Tensor(
            "cut",
            (1, shape[1] - 1, *shape[2:]),
            scales=new.tensors[source].scales,
            zeros=new.tensors[source].zeros,
        )
    )
    begin = np.array([0, 1 if at_top else 0, 0, 0], np.int32)
    size = np.array([-1, shape[1] - 1, -1, -1], np.int32)
    numbers = [new.add(Tensor("n", (4,), flat.INT32, data=a.tobytes())) for a in (begin, size)]
    amounts[1, 0 if at_top else 1] += 1
    operator.inputs = [cut, renumbered(new, operator.inputs[1], amounts)]
    position = new.operators.index(operator)
    new.operators.insert(position, Operator("SLICE", [source, *numbers], [cut], 48, {}, 2))
    if new.plan is not None:
        new.plan += [-1] * (len(new.tensors) - len(new.plan))
    return True


def phase(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """Padding moves from one end to the other, so that windows begin in another phase."""
    operator = pick(draw, new, "PAD")
    amounts = new.tensors[operator.inputs[1]].array().copy()
    axis = draw.choice([1, 1, 2])
    step = draw.choice([-1, 1])
    amounts[axis] += [step, -step]
    if amounts.min() < 0:
        raise Nothing
    operator.inputs[1] = renumbered(new, operator.inputs[1], amounts)
    return True


def zero_point(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """A tensor has another zero point."""
    tensor = draw.choice([t for t in new.tensors if t.zeros and t.type == flat.INT8])
    place = draw.randrange(len(tensor.zeros))
    value = tensor.zeros[place] + draw.choice([-3, -1, 1, 2])
    value = max(-128, min(127, value))
    tensor.zeros = (*tensor.zeros[:place], value, *tensor.zeros[place + 1 :])
    return True


def scale(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """A tensor has another scale, or a table by channel another entry."""
    tensor = draw.choice([t for t in new.tensors if t.scales and t.type == flat.INT8])
    place = draw.randrange(len(tensor.scales))
    value = bits(number_of(tensor.scales[place]) * draw.choice([0.5, 0.9, 1.3, 2.0]))
    tensor.scales = (*tensor.scales[:place], value, *tensor.scales[place + 1 :])
    return True


def table(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """Two entries of a table by channel change places, for one strip or all."""
    operator = pick(draw, new, "CONV_2D", "DEPTHWISE_CONV_2D")
    number = operator.inputs[1]
    scales = list(new.tensors[number].scales)
    if len(scales) < 2:
        raise Nothing
    a, b = draw.sample(range(len(scales)), 2)
    scales[a], scales[b] = scales[b], scales[a]
    if draw.random() < 0.5:
        operator.inputs[1] = number = renumbered(new, number, new.tensors[number].array())
    new.tensors[number].scales = tuple(scales)
    return True


def weights(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """Weights or biases have other numbers."""
    operator = pick(draw, new, "CONV_2D", "DEPTHWISE_CONV_2D")
    place = draw.choice([1, 2])
    array = new.tensors[operator.inputs[place]].array().copy()
    flat_ = array.reshape(-1)
    if draw.random() < 0.5 and flat_.size > 1:
        a, b = draw.sample(range(flat_.size), 2)
        flat_[a], flat_[b] = flat_[b], flat_[a]
    else:
        at = draw.randrange(flat_.size)
        flat_[at] = flat_[at] + 64 if flat_[at] < 0 else flat_[at] - 64
    operator.inputs[place] = renumbered(new, operator.inputs[place], array)
    return True


def swapped_weights(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """An operator has the weights of another one."""
    operator = pick(draw, new, "CONV_2D", "DEPTHWISE_CONV_2D")
    return rewire(draw, new, operator, draw.choice([1, 2]))


def options(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """An option of an operator differs: stride, dilation, window, axis, activation."""
    operator = draw.choice([o for o in new.operators if any(o.options)])
    slot = draw.choice([slot for slot in operator.options if slot])
    operator.set(slot, operator.option(slot) + draw.choice([-1, 1, 2]))
    return True


def padding(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """An operator pads, or no longer does."""
    kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")
    operator = pick(draw, new, *kinds)
    operator.set(0, 1 - operator.option(0))
    return True


def swapped_strips(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """Two operands of a concatenation change places."""
    operator = pick(draw, new, "CONCATENATION")
    if len(operator.inputs) < 2:
        raise Nothing
    a, b = draw.sample(range(len(operator.inputs)), 2)
    operator.inputs[a], operator.inputs[b] = operator.inputs[b], operator.inputs[a]
    return True


def nested(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """A concatenation inside of another takes a strip of a neighbor."""
    joins = [o for o in new.operators if o.name == "CONCATENATION"]
    inner = [o for o in joins if any(o.outputs[0] in other.inputs for other in joins)]
    if not inner:
        raise Nothing
    operator = draw.choice(inner)
    return rewire(draw, new, operator, draw.randrange(len(operator.inputs)))


def missing(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """An operator is missing; its readers read its operand, if that has the shape."""
    operator = draw.choice(new.operators)
    new.operators.remove(operator)
    x, y = operator.inputs[0], operator.outputs[0]
    if new.tensors[x].shape == new.tensors[y].shape and y not in new.outputs:
        for other in new.operators:
            other.inputs = [x if i == y else i for i in other.inputs]
    return True


def order(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """Two operators change places."""
    at = draw.randrange(len(new.operators) - 1)
    new.operators[at], new.operators[at + 1] = new.operators[at + 1], new.operators[at]
    return True


def kind(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """An operator is another one."""
    others = {"MAX_POOL_2D": "AVERAGE_POOL_2D", "AVERAGE_POOL_2D": "MAX_POOL_2D", "RELU": "RELU6"}
    operator = pick(draw, new, *others)
    operator.name = others[operator.name]
    return True


def place(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """A tensor is at another offset."""
    assert new.plan is not None
    index = draw.choice([i for i, at in enumerate(new.plan) if at >= 0])
    new.plan[index] = max(0, new.plan[index] + 16 * draw.choice([-8, -4, -2, -1, 1, 2, 4, 8]))
    return True


def stale(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """The plan is of another order of tensors, or a part of it is lost."""
    assert new.plan is not None
    planned = [i for i, at in enumerate(new.plan) if at >= 0]
    if draw.random() < 0.5:
        a, b = draw.sample(planned, 2)
        new.plan[a], new.plan[b] = new.plan[b], new.plan[a]
    else:
        values = [new.plan[i] for i in planned]
        for i, value in zip(planned, values[1:] + values[:1], strict=True):
            new.plan[i] = value
    return True


def odd(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """The plan has the wrong length, an offset off the grid, or one for a constant."""
    assert new.plan is not None
    choice = draw.randrange(3)
    if choice == 0:
        new.plan.pop() if draw.random() < 0.5 else new.plan.append(-1)
    elif choice == 1:
        new.plan[draw.choice([i for i, at in enumerate(new.plan) if at >= 0])] += 4
    else:
        new.plan[draw.choice([i for i, t in enumerate(new.tensors) if t.data is not None])] = 0
    return True


def interface(draw: random.Random, new: Sketch, old: Sketch) -> bool:
    """An input, output, signature or metadata is not that of the original."""
    choice = draw.randrange(6)
    if choice == 0:
        new.tensors[new.outputs[0]].name += "'"
    elif choice == 1:
        new.tensors[new.inputs[0]].zeros = (new.tensors[new.inputs[0]].zeros[0] ^ 1,)
    elif choice == 2:
        new.signature = [("picture", new.inputs[0]), *new.signature[1:]]
    elif choice == 3:
        new.metadata = {"about": b"another test"} if draw.random() < 0.5 else {}
    elif choice == 4:
        new.outputs = new.outputs * 2
    else:
        new.metadata["more"] = b"1"
    return True


BY_VALUE: tuple[Corruption, ...] = (
    offset, row, halo, phase, zero_point, scale, table, weights, swapped_weights, options, padding,
    swapped_strips, nested, missing, order, kind, place, stale,
)  # fmt: skip
"""Corruptions that count if the outputs change."""

LIES: tuple[Corruption, ...] = (odd, interface)
"""Corruptions that are wrong whatever the outputs are."""


def corrupted(seed: int, old: Sketch, new: Sketch, change: Corruption) -> Sketch | None:
    """Return a corrupted copy, or None if there is nothing to corrupt."""
    draw = random.Random(seed)
    found = new.copy()
    try:
        return found if change(draw, found, old) else None
    except Nothing:
        return None


def computes_the_same(old: Sketch, new: Sketch, inputs: int = 3) -> bool:
    """Return whether the outputs are equal for a few inputs."""
    try:
        return all(
            evaluated(old, arrays) == evaluated(new, arrays)
            for arrays in (inputs_of(old, seed) for seed in range(inputs))
        )
    except (Impossible, IndexError, ValueError, ZeroDivisionError):
        return False
