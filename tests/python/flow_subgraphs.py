"""Random TFLite models with branches and loops in each other, and an interpreter of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import flat
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse

NAMES = ("IF", "WHILE", "LESS", "ABS", "NEG", "SQUARE", "ADD", "MUL")
_UNARY = ("ABS", "NEG", "SQUARE")
_BOOL = 6
_NUMPY: dict[str, Any] = {
    "ABS": np.abs,
    "NEG": np.negative,
    "SQUARE": np.square,
    "ADD": np.add,
    "MUL": np.multiply,
    "LESS": np.less,
}


class Builder:
    """
    Writes one model.

    Parameters
    ----------
    seed : int
        Decides about everything.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.shape = (self.draw.choice([1, 3, 40]),)
        self.subgraphs: list[Any] = [None]
        self.buffers = [b""]

    def model(self) -> bytes:
        """Return a model with two inputs ``x0`` and ``x1``, and a ``flag``."""
        graph = Drawn(self)
        values = [graph.tensor(f"x{at}") for at in range(2)]
        flag = graph.tensor("flag", (1,), _BOOL)
        inputs = [*values, flag]
        flags = [flag]
        for _ in range(self.draw.randint(2, 5)):
            graph.step(values, flags, depth=0)
        outputs = list(dict.fromkeys([values[-1], self.draw.choice(values[2:])]))
        self.subgraphs[0] = flat.subgraph(graph.tensors, graph.operators, inputs, outputs)
        codes = [flat.code(name) for name in NAMES]
        return flat.write(flat.model(codes, self.subgraphs, self.buffers))

    def number(self, value: float) -> int:
        """Return the buffer of a constant."""
        self.buffers.append(np.array([value], np.float32).tobytes())
        return len(self.buffers) - 1

    def branch(self, count: int, results: int, depth: int) -> int:
        """Return a subgraph of that many values, the last one of which is a flag."""
        graph = Drawn(self)
        values = [graph.tensor(f"v{at}") for at in range(count - 1)]
        flags = [graph.tensor("flag", (1,), _BOOL)]
        inputs = [*values, *flags]
        for _ in range(self.draw.randint(0, 3)):
            graph.step(values, flags, depth)
        # A result may be an input, and the same as another one.
        outputs = [self.draw.choice(values) for _ in range(results)]
        return self._add(graph, inputs, outputs, "branch")

    def condition(self, count: int, rounds: int) -> int:
        """Return a subgraph that is true as long as the last of its values is below a number."""
        graph = Drawn(self)
        inputs = [graph.tensor(f"c{at}") for at in range(count - 1)]
        inputs.append(graph.tensor("round", (1,)))
        limit = graph.tensor("limit", (1,), buffer=self.number(rounds))
        made = graph.tensor("goes on", (1,), _BOOL)
        graph.add("LESS", [inputs[-1], limit], [made], (44, {}))
        return self._add(graph, inputs, [made], "condition")

    def body(self, count: int, depth: int) -> int:
        """Return a subgraph that changes values, and counts with the last of them."""
        graph = Drawn(self)
        values = [graph.tensor(f"w{at}") for at in range(count - 1)]
        counter = graph.tensor("round", (1,))
        inputs = [*values, counter]
        one = graph.tensor("one", (1,), buffer=self.number(1))
        limit = graph.tensor("half", (1,), buffer=self.number(1.5))
        early = graph.tensor("early", (1,), _BOOL)
        graph.add("LESS", [counter, limit], [early], (44, {}))
        for _ in range(self.draw.randint(0, 3)):
            graph.step(values, [early], depth)
        following = graph.tensor("next", (1,))
        graph.add("ADD", [counter, one], [following], (11, {}))
        # Values stay, change, and change places.
        outputs = [self.draw.choice(values) for _ in range(count - 1)]
        return self._add(graph, inputs, [*outputs, following], "body")

    def _add(self, graph: Drawn, inputs: list[int], outputs: list[int], name: str) -> int:
        self.subgraphs.append(flat.subgraph(graph.tensors, graph.operators, inputs, outputs, name))
        return len(self.subgraphs) - 1


class Drawn:
    """A subgraph that is being written."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.tensors: list[Any] = []
        self.operators: list[Any] = []

    def tensor(
        self, name: str, shape: tuple[int, ...] | None = None, type_: int = 0, *, buffer: int = 0
    ) -> int:
        """Declare a tensor."""
        shape = self.builder.shape if shape is None else shape
        self.tensors.append(flat.tensor(name, shape, type_, buffer=buffer))
        return len(self.tensors) - 1

    def add(self, name: str, inputs: list[int], outputs: list[int], options: Any = None) -> None:
        """Append an operator."""
        self.operators.append(flat.operator(NAMES.index(name), inputs, outputs, options))

    def step(self, values: list[int], flags: list[int], depth: int) -> None:
        """Append an operator that makes one or more values of others."""
        builder, draw = self.builder, self.builder.draw
        kind = draw.random()
        if depth < 3 and kind < 0.35:
            given = [draw.choice(values) for _ in range(draw.randint(1, 3))]
            flag = draw.choice(flags)
            made = [self._made() for _ in range(draw.randint(1, 2))]
            one, other = (builder.branch(len(given) + 1, len(made), depth + 1) for _ in range(2))
            options = (92, {0: flat.Number("i", one), 1: flat.Number("i", other)})
            self.add("IF", [flag, *given, flag], made, options)
            values += made
        elif depth < 3 and kind < 0.6:
            start = self.tensor("start", (1,), buffer=builder.number(draw.choice([0.0, 1.0])))
            given = [*(draw.choice(values) for _ in range(draw.randint(1, 3))), start]
            made = [*(self._made() for _ in given[1:]), self.tensor("rounds", (1,))]
            condition = builder.condition(len(given), draw.choice([0, 1, 2, 4]))
            body = builder.body(len(given), depth + 1)
            options = (93, {0: flat.Number("i", condition), 1: flat.Number("i", body)})
            self.add("WHILE", given, made, options)
            values += made[:-1]
        elif kind < 0.8:
            values.append(self._made())
            self.add(draw.choice(_UNARY), [draw.choice(values[:-1])], values[-1:])
        else:
            name, option = draw.choice([("ADD", 11), ("MUL", 21)])
            values.append(self._made())
            pair = [draw.choice(values[:-1]) for _ in range(2)]
            self.add(name, pair, values[-1:], (option, {}))

    def _made(self) -> int:
        return self.tensor(f"t{len(self.tensors)}")


def interpreted(data: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a model, operator by operator."""
    return _run(parse(data), 0, inputs)


def _run(model: TfliteModel, number: int, inputs: list[np.ndarray]) -> list[np.ndarray]:
    subgraph = model.subgraphs[number]
    known = dict(zip(subgraph.inputs, inputs, strict=True))
    for index, tensor in enumerate(subgraph.tensors):
        if model.is_constant(tensor):
            known[index] = np.frombuffer(model.content(tensor.buffer), np.float32)
    for operator in subgraph.operators:
        given = [known[index] for index in operator.inputs if index is not None]
        options = operator.options
        if operator.name in ("IF", "WHILE"):
            assert options is not None
            first, second = options.number(0), options.number(1)
            if operator.name == "IF":
                made = _run(model, first if given[0].item() else second, given[1:])
            else:
                made = given
                while _run(model, first, made)[0].item():
                    made = _run(model, second, made)
        else:
            made = [_NUMPY[operator.name](*given)]
        known.update(zip((i for i in operator.outputs if i is not None), made, strict=True))
    return [known[index] for index in subgraph.outputs]


def inputs_of(seed: int, count: int) -> dict[str, np.ndarray]:
    """Return inputs for a model whose values have ``count`` elements."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1.2, 1.2, (2, count)).astype(np.float32)
    return {"x0": values[0], "x1": values[1], "flag": rng.random(1) < 0.5}
