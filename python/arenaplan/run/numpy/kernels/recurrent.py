"""
Recurrent layers: RNN, GRU, LSTM.

A single matrix product multiplies the inputs for as many steps as the workspace has room for. The
products with the hidden state follow step by step, each added to the step's part. Compiled kernels
do both where possible. Each direction's hidden state (and an LSTM's cell) changes in scratch
memory, so that the final state may share memory with the initial state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.kernels.activations import (
    elu,
    hard_sigmoid,
    leaky_relu,
    softplus,
    softsign,
)
from arenaplan.run.numpy.kernels.pieces import in_sequence, invalid, operand, worthwhile
from arenaplan.run.numpy.kernels.recurrent_compiled import (
    FUNCTIONS,
    DirectionArrays,
    compiled_runs,
    is_compiled,
    load_state,
)
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Scratch, Signature, Step, scratch_bytes

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_BLOCKS = (1 << 20, 1 << 16, 0)
"""Sizes of the products with inputs that are offered, in bytes; at least one step fits."""


class _Sizes(NamedTuple):
    """A layer's sizes."""

    steps: int
    batch: int
    width: int
    """Elements per input."""
    hidden: int
    """Elements per hidden state."""
    directions: int
    gates: int
    batch_first: bool

    @classmethod
    def of(cls, signature: Signature) -> _Sizes | None:
        """Return a node's sizes, or ``None`` if an operand is missing."""
        x, recurrence = signature.input(0), signature.input(2)
        if x is None or recurrence is None or len(x.shape) != 3 or len(recurrence.shape) != 3:
            return None
        batch_first = bool(signature.attributes.get("layout", 0))
        steps, batch = x.shape[:2][:: -1 if batch_first else 1]
        directions, _, hidden = recurrence.shape
        gates = _GATES[signature.op]
        return cls(steps, batch, x.shape[2], hidden, directions, gates, batch_first)

    @property
    def rows(self) -> int:
        """Elements in all gates together."""
        return self.gates * self.hidden

    def block(self, room: int, itemsize: int) -> int:
        """Return the number of steps whose products fit ``room`` bytes, at least 1."""
        each = self.batch * self.rows * itemsize
        return max(1, min(self.steps, room // max(each, 1)))

    def nanoseconds(self, steps: int, *, compiled: bool) -> float:
        """Return the estimated run time with the products for ``steps`` steps at a time."""
        blocks = -(-self.steps // steps)
        if compiled:
            products = self.steps * self.batch * self.rows * (self.width / 70 + self.hidden / 35)
            activations = self.steps * (2e2 + 0.4 * self.batch * self.rows)
            return self.directions * (2e3 * blocks + products + activations)
        loads = blocks * (2e3 + 0.25 * self.width * self.rows)
        products = self.steps * self.batch * self.rows * (self.width + self.hidden) / 70
        activations = self.steps * (2e4 + 2.5 * self.batch * self.rows)
        return self.directions * (loads + products + activations)

    def block_shape(self, steps: int) -> tuple[int, int, int]:
        """Return the product shape for some steps."""
        first = (self.batch, steps) if self.batch_first else (steps, self.batch)
        return (*first, self.rows)

    def at(self, array: np.ndarray, step: int) -> np.ndarray:
        """Return a step from an array with the inputs' axes."""
        return array[:, step] if self.batch_first else array[step]

    def fixed(self) -> Iterator[tuple[int, ...]]:
        """Yield the shapes of the scratch arrays besides the block."""
        yield from [(self.batch, self.rows)] * 2
        yield from [(self.batch, self.hidden)] * 3
        yield from [(1, self.rows)] * 2


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    sizes, x = _Sizes.of(signature), signature.input(0)
    if sizes is None or x is None or 0 in (sizes.steps, sizes.batch, sizes.hidden):
        return []
    fixed = sum(scratch_bytes(shape, x.dtype) for shape in sizes.fixed())
    fixed += scratch_bytes((sizes.batch, 1), np.bool_)
    compiled, ways = is_compiled(signature), []
    for room in _BLOCKS:
        steps = sizes.block(room, x.dtype.itemsize)
        size = fixed + scratch_bytes(sizes.block_shape(steps), x.dtype)
        ways.append(Choice(size, sizes.nanoseconds(steps, compiled=compiled)))
    return [worthwhile(ways)]


# -- activations ---------------------------------------------------------------------------

Activation: TypeAlias = "Callable[[np.ndarray, np.ndarray], object]"
"""Changes the first argument; the second is scratch memory with the same shape."""


def _affine(x: np.ndarray, _: np.ndarray, *, alpha: float, beta: float) -> None:
    np.multiply(x, x.dtype.type(alpha), out=x)
    np.add(x, x.dtype.type(beta), out=x)


def _thresholded(x: np.ndarray, spare: np.ndarray, *, alpha: float) -> None:
    np.greater(x, x.dtype.type(alpha), out=spare, casting="unsafe")
    np.multiply(x, spare, out=x)


def _scaled_tanh(x: np.ndarray, _: np.ndarray, *, alpha: float, beta: float) -> None:
    np.multiply(x, x.dtype.type(beta), out=x)
    np.tanh(x, out=x)
    np.multiply(x, x.dtype.type(alpha), out=x)


def _sigmoid(x: np.ndarray, _: np.ndarray) -> None:
    _affine(x, _, alpha=0.5, beta=0.0)  # By tanh: exp overflows for large numbers.
    np.tanh(x, out=x)
    _affine(x, _, alpha=0.5, beta=0.5)


_FUNCTIONS: dict[str, tuple[Callable[..., object], Mapping[str, float]]] = {
    "relu": (lambda x, _: np.maximum(x, 0, out=x), {}),
    "tanh": (lambda x, _: np.tanh(x, out=x), {}),
    "sigmoid": (_sigmoid, {}),
    "softsign": (lambda x, spare: softsign(x, x, spare), {}),
    "softplus": (lambda x, spare: softplus(x, x, spare), {}),
    "affine": (_affine, {"alpha": 1.0, "beta": 0.0}),
    "leakyrelu": (lambda x, spare, alpha: leaky_relu(x, x, spare, alpha=alpha), {"alpha": 0.01}),
    "thresholdedrelu": (_thresholded, {"alpha": 1.0}),
    "scaledtanh": (_scaled_tanh, {"alpha": 1.0, "beta": 1.0}),
    "hardsigmoid": (
        lambda x, _, **given: hard_sigmoid(x, x, **given),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "elu": (lambda x, spare, alpha: elu(x, x, spare, alpha=alpha), {"alpha": 1.0}),
}
"""Functions that change their first argument, with the defaults of their parameters."""


def _activations(step: Step, sizes: _Sizes) -> list[list[Activation]]:
    """Return the activations per direction; functions consume parameters in order."""
    default = FUNCTIONS[step.signature.op]
    count = sizes.directions * len(default)
    names = list(step.attributes.get("activations") or default * sizes.directions)
    if len(names) != count:
        raise invalid(step, f"{len(names)} activations instead of {count}")
    given = {
        name: iter(step.attributes.get(f"activation_{name}") or ()) for name in ("alpha", "beta")
    }
    found: list[Activation] = []
    for name in names:
        if name.lower() not in _FUNCTIONS:
            raise invalid(step, f"activation {name!r} is unknown")
        function, usual = _FUNCTIONS[name.lower()]
        parameters = {each: next(given[each], default) for each, default in usual.items()}
        found.append(partial(function, **parameters))
    return [found[at : at + len(default)] for at in range(0, count, len(default))]


def _transposed(step: Step, position: int, index: int) -> np.ndarray:
    """Return a direction's weights, transposed; constant weights are copied once."""
    weights = operand(step, position)
    view: np.ndarray = weights[index].T
    if step.signature.constant[position] is None:
        return view
    details = "transposed", index
    copy, _ = shared([weights], details, lambda: (np.ascontiguousarray(view), None))
    return copy


# -- one direction ---------------------------------------------------------------------------


class _Direction:
    """
    One layer direction, bound to memory.

    Parameters
    ----------
    index : int
        The direction's position in the weights.
    backward : bool
        Whether a sequence's last step comes first.
    functions : list
        The activations.
    """

    def __init__(
        self,
        step: Step,
        sizes: _Sizes,
        index: int,
        functions: list[Activation],
        *,
        backward: bool,
    ) -> None:
        self.step, self.index = step, index
        self.sizes, self.functions = sizes, functions
        self.backward = backward
        self.x = operand(step, 0)
        bias = step.input(3)
        self.bias = None if bias is None else bias[index]
        self.lengths = step.input(4)
        side = (slice(None), index) if sizes.batch_first else (index,)
        self.initial = [
            None if array is None else array[side] for array in (step.input(5), step.input(6))
        ]
        self.final = [
            None if array is None else array[side] for array in (step.output(1), step.output(2))
        ]
        made = step.output(0)
        if made is not None:
            made = made[:, :, index] if sizes.batch_first else made[:, index]
        self.made = made
        self.clip = float(step.attributes.get("clip", 0.0) or 0.0)
        scratch = step.scratch()
        dtype = self.x.dtype
        self.product, self.spare = (
            scratch.array((sizes.batch, sizes.rows), dtype) for _ in range(2)
        )
        self.hidden, self.cell, self.fresh = (
            scratch.array((sizes.batch, sizes.hidden), dtype) for _ in range(3)
        )
        self.added = scratch.array((1, sizes.rows), dtype)
        self.more = scratch.array((1, sizes.rows), dtype)
        self.is_over = scratch.array((sizes.batch, 1), np.bool_)
        self.block = self._block(scratch)

    @cached_property
    def weights(self) -> np.ndarray:
        """The input weights, transposed."""
        return _transposed(self.step, 1, self.index)

    @cached_property
    def recurrence(self) -> np.ndarray:
        """The hidden state weights, transposed."""
        return _transposed(self.step, 2, self.index)

    def _block(self, scratch: Scratch) -> np.ndarray:
        room = scratch.left
        steps = self.sizes.block(room, self.x.dtype.itemsize)
        return scratch.array(self.sizes.block_shape(steps), self.x.dtype)

    def gate(self, array: np.ndarray, index: int) -> np.ndarray:
        """Return a gate's part."""
        size = self.sizes.hidden
        return array[..., index * size : (index + 1) * size]

    def activate(self, function: int, x: np.ndarray) -> None:
        """Apply an activation, to clipped numbers if the layer clips."""
        if self.clip > 0:
            np.clip(x, -self.clip, self.clip, out=x)
        self.functions[function](x, self.spare[:, : x.shape[1]])

    def runs(self) -> Iterator[Run]:
        """Yield functions that compute all steps, one after another."""
        states = (self.hidden, self.cell)
        if not (is_compiled(self.step.signature) and self.x.flags.c_contiguous):
            # Constants are transposed now, and not in the first run.
            for weights in (self.weights, self.recurrence):
                assert weights.ndim == 2, "a matrix"
            yield self.run
            return
        for initial, state in zip(self.initial, states, strict=True):
            yield load_state(state, initial)
        memory = DirectionArrays(self.x, self.block, *states, self.made)
        yield from compiled_runs(self.step, self.index, memory, backward=self.backward)
        for state, final in zip(states, self.final, strict=True):
            if final is not None:
                yield partial(np.copyto, final, state)

    def run(self) -> None:
        """Compute all steps."""
        sizes = self.sizes
        for initial, state in zip(self.initial, (self.hidden, self.cell), strict=True):
            if initial is None:
                state.fill(0)
            else:
                np.copyto(state, initial)
        self.load_bias()
        ends = range(
            0, sizes.steps, len(self.block) if not sizes.batch_first else self.block.shape[1]
        )
        for start in reversed(ends) if self.backward else ends:
            stop = min(start + ends.step, sizes.steps)
            self.multiply(start, stop)
            for at in reversed(range(start, stop)) if self.backward else range(start, stop):
                self.advance(sizes.at(self.block, at - start))
                self.store(at)
        for state, final in zip((self.hidden, self.cell), self.final, strict=True):
            if final is not None:
                np.copyto(final, state)

    def load_bias(self) -> None:
        """Add both biases up."""
        if self.bias is None:
            self.added.fill(0)
        else:
            rows = self.sizes.rows
            np.add(self.bias[:rows], self.bias[rows:], out=self.added[0])

    def multiply(self, start: int, stop: int) -> None:
        """Write the input products for some steps, with the biases."""
        count = stop - start
        if self.sizes.batch_first:
            block = self.block[:, :count]
            np.matmul(self.x[:, start:stop], self.weights, out=block)
        else:
            block = self.block[:count]
            source, target = self.x[start:stop], block
            np.matmul(
                source.reshape(-1, self.sizes.width),
                self.weights,
                out=target.reshape(-1, self.sizes.rows),
            )
        np.add(block, self.added, out=block)

    def advance(self, gates: np.ndarray) -> None:
        """Make ``fresh`` from the state and the input products, which are overwritten."""
        raise NotImplementedError

    def store(self, at: int) -> None:
        """Replace the hidden state for unfinished sequences, and write step ``at``."""
        if self.lengths is None:
            self.hidden, self.fresh = self.fresh, self.hidden
        else:
            self.replace(self.hidden, self.fresh, at)
        made = self.made
        if made is not None:
            target = self.sizes.at(made, at)
            np.copyto(target, self.hidden)
            if self.lengths is not None:
                np.copyto(target, 0, where=self.is_over)

    def replace(self, state: np.ndarray, fresh: np.ndarray, at: int) -> None:
        """Replace a state for sequences that are unfinished at step ``at``."""
        assert self.lengths is not None
        np.less(at, self.lengths[:, None], out=self.is_over)
        np.copyto(state, fresh, where=self.is_over)
        np.logical_not(self.is_over, out=self.is_over)


class _Simple(_Direction):
    """``H = f(X·W + H·R + b)``."""

    def advance(self, gates: np.ndarray) -> None:
        np.matmul(self.hidden, self.recurrence, out=self.fresh)
        np.add(self.fresh, gates, out=self.fresh)
        self.activate(0, self.fresh)


class _Gated(_Direction):
    """Gates *update*, *reset* and *hidden*, in this order."""

    @property
    def resets_late(self) -> bool:
        """True if the reset comes after the product with the hidden state."""
        return bool(self.step.attributes.get("linear_before_reset", 0))

    def load_bias(self) -> None:
        """Keep the hidden gate's recurrent bias apart if the reset multiplies that bias later."""
        super().load_bias()
        if self.resets_late:
            rows, kept = self.sizes.rows, self.gate(self.more, 2)[0]
            kept.fill(0)
            if self.bias is not None:
                np.copyto(kept, self.gate(self.bias[rows:], 2))
                np.copyto(self.gate(self.added, 2)[0], self.gate(self.bias[:rows], 2))

    def advance(self, gates: np.ndarray) -> None:
        size = self.sizes.hidden
        early, late = self.recurrence[:, : 2 * size], self.recurrence[:, 2 * size :]
        first, product = gates[:, : 2 * size], self.product[:, : 2 * size]
        np.matmul(self.hidden, early, out=product)
        np.add(first, product, out=first)
        self.activate(0, first)
        update, reset, new = (self.gate(gates, index) for index in range(3))
        if self.resets_late:
            np.matmul(self.hidden, late, out=self.fresh)
            np.add(self.fresh, self.gate(self.more, 2), out=self.fresh)
            np.multiply(self.fresh, reset, out=self.fresh)
        else:
            np.multiply(self.hidden, reset, out=self.cell)
            np.matmul(self.cell, late, out=self.fresh)
        np.add(self.fresh, new, out=self.fresh)
        self.activate(1, self.fresh)
        # h + z·(H - h)
        change = self.cell
        np.subtract(self.hidden, self.fresh, out=change)
        np.multiply(change, update, out=change)
        np.add(self.fresh, change, out=self.fresh)


class _Cell(_Direction):
    """Gates *input*, *output*, *forget* and *cell*, in this order."""

    changed: np.ndarray
    """The cell after a step."""

    @cached_property
    def peepholes(self) -> np.ndarray | None:
        """The weights with which gates see the cell."""
        peepholes = self.step.input(7)
        return None if peepholes is None else peepholes[self.index]

    @cached_property
    def couples(self) -> bool:
        """True if a cell forgets as much as the cell takes in."""
        return bool(self.step.attributes.get("input_forget", 0))

    def advance(self, gates: np.ndarray) -> None:
        np.matmul(self.hidden, self.recurrence, out=self.product)
        np.add(gates, self.product, out=gates)
        taken, shown, kept, new = (self.gate(gates, index) for index in range(4))
        self.peep(self.cell, taken, 0)
        self.activate(0, taken)
        if self.couples:
            np.subtract(1, taken, out=kept)
        else:
            self.peep(self.cell, kept, 2)
            self.activate(0, kept)
        self.activate(1, new)
        np.multiply(new, taken, out=new)
        # A finished sequence's cell stays.
        cell = self.cell if self.lengths is None else kept
        np.multiply(kept, self.cell, out=cell)
        np.add(cell, new, out=cell)
        self.peep(cell, shown, 1)
        self.activate(0, shown)
        self.changed = cell
        np.copyto(self.fresh, cell)
        self.functions[2](self.fresh, self.spare[:, : self.sizes.hidden])
        np.multiply(self.fresh, shown, out=self.fresh)

    def peep(self, cell: np.ndarray, gate: np.ndarray, index: int) -> None:
        """Let a gate see the cell."""
        if self.peepholes is not None:
            seen = self.spare[:, : self.sizes.hidden]
            np.multiply(cell, self.gate(self.peepholes, index), out=seen)
            np.add(gate, seen, out=gate)

    def store(self, at: int) -> None:
        """Replace the cell, too."""
        if self.lengths is not None:
            self.replace(self.cell, self.changed, at)
        super().store(at)


# -- layers ------------------------------------------------------------------------------------


def _layer(step: Step, kind: type[_Direction]) -> Run | None:
    """Return a function that runs the directions in turn."""
    sizes = _Sizes.of(step.signature)
    if sizes is None:
        raise invalid(step, "its inputs and weights need three dimensions each")
    direction = step.attributes.get("direction", "forward")
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction not in backward or len(backward[direction]) != sizes.directions:
        raise invalid(step, f"direction {direction!r} with {sizes.directions} sets of weights")
    state = (
        (sizes.batch, sizes.directions) if sizes.batch_first else (sizes.directions, sizes.batch)
    )
    for position in (5, 6):
        initial = step.input(position)
        if initial is not None and initial.shape != (*state, sizes.hidden):
            shape = (*state, sizes.hidden)
            raise invalid(step, f"input {position} has shape {initial.shape} instead of {shape}")
    if sizes.batch == 0 or sizes.hidden == 0 or not sizes.steps:
        return in_sequence(*_without_steps(step))
    functions = _activations(step, sizes)
    return in_sequence(
        *(
            run
            for index, back in enumerate(backward[direction])
            for run in kind(step, sizes, index, functions[index], backward=back).runs()
        )
    )


def _without_steps(step: Step) -> Iterator[Run]:
    """Yield functions that pass the initial state on."""
    for position in (1, 2):
        final, initial = step.output(position), step.input(4 + position)
        if final is not None and final.size:
            yield partial(final.fill, 0) if initial is None else partial(np.copyto, final, initial)


for _op, _kind in {"RNN": _Simple, "GRU": _Gated, "LSTM": _Cell}.items():
    heavy_kernel(_op, workspace=_declare)(partial(_layer, kind=_kind))
