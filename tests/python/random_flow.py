"""
Random ONNX models with branches and loops inside each other.

All numbers are small whole numbers and all operators are exact, so that conditions never depend on
rounding, and outputs can be compared bit by bit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

SHAPES = ((3,), (2, 3), (3, 2), (1, 3), ())
MAX_DEPTH = 3
OPSET = 17


@dataclass
class Scope:
    """The values that a graph can read: its own and those around it."""

    values: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    bools: list[str] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    """Single int64 numbers that are no larger than a few rounds."""

    def inner(self) -> Scope:
        return Scope(list(self.values), list(self.bools), list(self.counts))


class Generator:
    """
    Makes one model.

    Parameters
    ----------
    seed : int
        Equal seeds give equal models.
    loose : bool, default False
        Whether there are values whose size depends on data.
    """

    def __init__(self, seed: int, *, loose: bool = False) -> None:
        self.random = random.Random(seed)
        self._names = 0
        self._loose: list[str] | None = [] if loose else None

    def name(self, stem: str = "v") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def model(self) -> ModelProto:
        """Return the model."""
        scope = Scope()
        inputs = []
        for _ in range(self.random.randint(2, 4)):
            name, shape = self.name("x"), self.random.choice(SHAPES)
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
            scope.values.append((name, shape))
        for stem, kind, names in (("n", TensorProto.INT64, scope.counts), ("b", 9, scope.bools)):
            name = self.name(stem)
            inputs.append(helper.make_tensor_value_info(name, kind, ()))
            names.append(name)
        nodes: list[NodeProto] = []
        self.fill(nodes, scope, self.random.randint(3, 7), 0)
        made = sorted({value for value in scope.values if not value[0].startswith("x")})
        chosen = self.random.sample(made, min(len(made), self.random.randint(1, 3)))
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in chosen]
        if self._loose:
            names = self.random.sample(self._loose, min(2, len(self._loose)))
            outputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
        graph = helper.make_graph(nodes, "flow", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 9
        return model

    def inputs(self, model: ModelProto) -> dict[str, np.ndarray]:
        """Return random inputs of a model."""
        numbers = np.random.default_rng(self.random.getrandbits(32))
        made: dict[str, np.ndarray] = {}
        for info in model.graph.input:
            shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
            kind = info.type.tensor_type.elem_type
            if kind == TensorProto.FLOAT:
                made[info.name] = numbers.integers(-3, 4, shape).astype(np.float32)
            elif kind == TensorProto.INT64:
                made[info.name] = np.array(numbers.integers(0, 4), np.int64)
            else:
                made[info.name] = np.array(numbers.random() < 0.5)
        return made

    # -- graphs ----------------------------------------------------------------------

    def fill(self, nodes: list[NodeProto], scope: Scope, count: int, depth: int) -> None:
        """Add nodes that read values of a scope, and their results to it."""
        for _ in range(count):
            kinds = [self.light] * 4
            if depth < MAX_DEPTH:
                kinds += [self.branch, self.loop, self.scan]
            if self._loose is not None and depth == 0:
                kinds += [self.loose] * 5
            self.random.choice(kinds)(nodes, scope, depth)

    def loose(self, nodes: list[NodeProto], scope: Scope, depth: int) -> None:
        """Add a value whose size depends on data, and a single number that is made of it."""
        assert self._loose is not None
        name, shape = self.value(scope)
        made = self.name("d")
        kind = self.random.randrange(7)
        if kind == 0 and len(shape) > 0:
            axis = self.random.randrange(len(shape))
            row = self.of_shape(nodes, scope, (3,)) if shape[axis] == 3 else None
            if row is None:
                return
            zero, chosen = self.name("c"), self.name("b")
            nodes.append(constant(zero, np.float32(self.random.randint(-2, 2))))
            nodes.append(helper.make_node("Greater", [row, zero], [chosen]))
            nodes.append(helper.make_node("Compress", [name, chosen], [made], axis=axis))
        elif kind == 1 and len(shape) > 0:
            found, columns = self.name(), self.name()
            nodes.append(helper.make_node("NonZero", [name], [found]))
            nodes.append(helper.make_node("Transpose", [found], [columns], perm=[1, 0]))
            nodes.append(helper.make_node("GatherND", [name, columns], [made]))
        elif kind == 2:
            outputs = [made, "", "", self.name()][: self.random.choice([1, 4])]
            nodes.append(helper.make_node("Unique", [name], outputs))
        elif kind == 3:
            zero, one, raw = self.name("c"), self.name("c"), self.name()
            nodes.append(constant(zero, np.int64(0)))
            nodes.append(constant(one, np.int64(1)))
            count = self.random.choice(scope.counts)
            nodes.append(helper.make_node("Range", [zero, count, one], [raw]))
            nodes.append(helper.make_node("Cast", [raw], [made], to=TensorProto.FLOAT))
        elif kind == 4 and len(shape) > 0:
            start, axes, end = self.name("c"), self.name("c"), self.name()
            nodes.append(constant(start, np.array([0], np.int64)))
            nodes.append(constant(axes, np.array([0], np.int64)))
            count = self.random.choice(scope.counts)
            nodes.append(helper.make_node("Unsqueeze", [count, axes], [end]))
            nodes.append(helper.make_node("Slice", [name, start, end, axes], [made]))
        elif kind == 5 and scope.bools:
            branches = []
            for shape in ((3,), (2,)):
                inner = self.name()
                data = np.full(shape, self.random.randint(-2, 2), np.float32)
                info = helper.make_tensor_value_info(inner, TensorProto.FLOAT, shape)
                body = [constant(inner, data)]
                branches.append(helper.make_graph(body, self.name("g"), [], [info]))
            nodes.append(
                helper.make_node(
                    "If",
                    [self.random.choice(scope.bools)],
                    [made],
                    then_branch=branches[0],
                    else_branch=branches[1],
                )
            )
        elif kind == 6:
            self.loose_loop(nodes, scope, name, shape, made)
        else:
            return
        later = self.name("d")
        nodes.append(helper.make_node(self.random.choice(["Neg", "Relu", "Abs"]), [made], [later]))
        self._loose.append(self.random.choice([made, later]))
        total, low, high, single = self.name(), self.name("c"), self.name("c"), self.name()
        nodes.append(helper.make_node("ReduceSum", [later], [total], keepdims=0))
        nodes.append(constant(low, np.float32(-4)))
        nodes.append(constant(high, np.float32(4)))
        nodes.append(helper.make_node("Clip", [total, low, high], [single]))
        scope.values.append((single, ()))

    def loose_loop(
        self,
        nodes: list[NodeProto],
        scope: Scope,
        name: str,
        shape: tuple[int, ...],
        made: str,
    ) -> None:
        """Add a Loop whose number of rounds depends on data; its result has a row for each."""
        inside, own = scope.inner(), []
        counter, condition, state = self.name("k"), self.name("b"), self.name("s")
        inputs = [
            helper.make_tensor_value_info(counter, TensorProto.INT64, ()),
            helper.make_tensor_value_info(condition, TensorProto.BOOL, ()),
            helper.make_tensor_value_info(state, TensorProto.FLOAT, shape),
        ]
        inside.values.append((state, shape))
        self.fill(own, inside, 2, 2)
        again = self.name("b")
        is_counted = self.random.random() < 0.6
        chosen = condition if is_counted else self.random.choice([condition, *inside.bools])
        own.append(helper.make_node("Identity", [chosen], [again]))
        body = self.graph(own, inputs, inside, [shape, shape], [again])
        count = self.random.choice(scope.counts)
        # Without a round, ONNX Runtime makes a result of another rank.
        limit, one = self.name(), self.name("c")
        nodes.append(constant(one, np.int64(1)))
        nodes.append(helper.make_node("Max", [count, one], [limit]))
        last = self.name()
        nodes.append(helper.make_node("Loop", [limit, "", name], [last, made], body=body))
        scope.values.append((last, shape))

    def value(self, scope: Scope, shape: tuple[int, ...] | None = None) -> tuple[str, Any]:
        """Return a value that is in a scope, of a shape if one is asked for."""
        found = [v for v in scope.values if shape is None or v[1] == shape]
        return self.random.choice(found)

    def of_shape(self, nodes: list[NodeProto], scope: Scope, shape: tuple[int, ...]) -> str:
        """Return a value of a shape, which is made if there is none."""
        if any(known == shape for _, known in scope.values):
            return self.value(scope, shape)[0]
        name = self.name("c")
        data = np.array(self.random.choices(range(-2, 3), k=int(np.prod(shape))), np.float32)
        nodes.append(constant(name, data.reshape(shape)))
        scope.values.append((name, shape))
        return name

    def light(self, nodes: list[NodeProto], scope: Scope, depth: int) -> None:
        """Add an operator that needs no subgraph."""
        name, shape = self.value(scope)
        kind = self.random.randrange(8)
        made = self.name()
        if kind < 3:
            other = self.value(scope, shape)[0] if self.random.random() < 0.8 else name
            op = self.random.choice(["Add", "Sub", "Max", "Min", "Mul"])
            raw = self.name()
            nodes.append(helper.make_node(op, [name, other], [raw]))
            low, high = self.name("c"), self.name("c")
            nodes.append(constant(low, np.float32(-4)))
            nodes.append(constant(high, np.float32(4)))
            nodes.append(helper.make_node("Clip", [raw, low, high], [made]))
            scope.values.append((raw, shape) if self.random.random() < 0.2 else (made, shape))
        elif kind == 3:
            op = self.random.choice(["Neg", "Abs", "Relu", "Identity"])
            nodes.append(helper.make_node(op, [name], [made]))
        elif kind == 4 and len(shape) == 2:
            nodes.append(helper.make_node("Transpose", [name], [made]))
            shape = shape[::-1]
            if shape not in SHAPES:
                return
        elif kind == 5 and int(np.prod(shape)) == 3:
            target = (1, 3) if shape == (3,) else (3,)
            wanted = self.name("c")
            nodes.append(constant(wanted, np.array(target, np.int64)))
            nodes.append(helper.make_node("Reshape", [name, wanted], [made]))
            shape = target
        elif kind == 6:
            total = self.name()
            nodes.append(helper.make_node("ReduceSum", [name], [total], keepdims=0))
            zero = self.name("c")
            nodes.append(constant(zero, np.float32(self.random.randint(-2, 2))))
            decided = self.name("b")
            op = self.random.choice(["Greater", "LessOrEqual"])
            nodes.append(helper.make_node(op, [total, zero], [decided]))
            scope.bools.append(decided)
            return
        else:
            nodes.append(constant(made, np.full(shape, self.random.randint(-2, 2), np.float32)))
        scope.values.append((made, shape))

    def graph(
        self,
        nodes: list[NodeProto],
        inputs: list[Any],
        scope: Scope,
        shapes: list[tuple[int, ...]],
        front: list[str],
    ) -> GraphProto:
        """Return a subgraph with results of some shapes, after those in ``front``."""
        initializers = []
        if self.random.random() < 0.3:
            name, shape = self.name("i"), self.random.choice(SHAPES)
            data = np.full(shape, self.random.randint(-2, 2), np.float32)
            initializers.append(numpy_helper.from_array(data, name))
            scope.values.append((name, shape))
        results = [self.of_shape(nodes, scope, shape) for shape in shapes]
        outputs = [helper.make_tensor_value_info(n, TensorProto.BOOL, ()) for n in front]
        seen = set()
        for at, name in enumerate(results):
            # ONNX Runtime wants results to have names of their own, made inside.
            made = {output for node in nodes for output in node.output}
            if name in seen or name not in made:
                results[at] = self.name("r")
                nodes.append(helper.make_node("Identity", [name], [results[at]]))
            seen.add(results[at])
        outputs += [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(results, shapes, strict=True)
        ]
        return helper.make_graph(nodes, self.name("g"), inputs, outputs, initializers)

    def shapes(self, least: int) -> list[tuple[int, ...]]:
        return [self.random.choice(SHAPES) for _ in range(self.random.randint(least, 3))]

    def branch(self, nodes: list[NodeProto], scope: Scope, depth: int) -> None:
        """Add an If."""
        if not scope.bools:
            return
        shapes = self.shapes(1)
        branches = []
        for _ in range(2):
            inside, own = scope.inner(), []
            self.fill(own, inside, self.random.randint(0, 4), depth + 1)
            branches.append(self.graph(own, [], inside, shapes, []))
        results = [self.name() for _ in shapes]
        nodes.append(
            helper.make_node(
                "If",
                [self.random.choice(scope.bools)],
                results,
                then_branch=branches[0],
                else_branch=branches[1],
            )
        )
        scope.values.extend(zip(results, shapes, strict=True))

    def loop(self, nodes: list[NodeProto], scope: Scope, depth: int) -> None:
        """Add a Loop; only with a known number of rounds it has results of every round."""
        carried = self.shapes(0)
        initial = [self.of_shape(nodes, scope, shape) for shape in carried]
        inside, own = scope.inner(), []
        counter, condition = self.name("k"), self.name("b")
        names = [self.name("s") for _ in carried]
        inputs = [
            helper.make_tensor_value_info(counter, TensorProto.INT64, ()),
            helper.make_tensor_value_info(condition, TensorProto.BOOL, ()),
            *(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in zip(names, carried, strict=True)
            ),
        ]
        inside.values.extend(zip(names, carried, strict=True))
        inside.bools.append(condition)
        inside.counts.append(counter)
        if self.random.random() < 0.5:
            number = self.name()
            own.append(helper.make_node("Cast", [counter], [number], to=TensorProto.FLOAT))
            inside.values.append((number, ()))
        self.fill(own, inside, self.random.randint(1, 4), depth + 1)
        is_counted = self.random.random() < 0.6
        again = self.name("b")
        limit = self.name("c")
        trips = self.random.randint(0, 4)
        scanned: list[tuple[int, ...]] = []
        if is_counted:
            own.append(helper.make_node("Identity", [condition], [again]))
            scanned = self.shapes(0 if carried else 1)
            nodes.append(constant(limit, np.array(trips, np.int64)))
            operands = [limit, ""]
        else:
            if not carried:
                return
            own.append(helper.make_node("Identity", [self.random.choice(inside.bools)], [again]))
            kind = self.random.randrange(3)
            if kind == 0:
                nodes.append(constant(limit, np.array(trips, np.int64)))
            else:
                limit = self.random.choice(scope.counts)
            start = self.random.choice(scope.bools) if scope.bools and kind < 2 else ""
            operands = [limit, start]
        body = self.graph(own, inputs, inside, [*carried, *scanned], [again])
        results = [self.name() for _ in (*carried, *scanned)]
        nodes.append(helper.make_node("Loop", [*operands, *initial], results, body=body))
        for result, shape in zip(results, carried, strict=False):
            scope.values.append((result, shape))
        self.joined(nodes, scope, results[len(carried) :], scanned, 0)

    def joined(
        self,
        nodes: list[NodeProto],
        scope: Scope,
        results: list[str],
        shapes: list[tuple[int, ...]],
        axis: int,
    ) -> None:
        """Sum joined results over all rounds, which are of a shape that other nodes know then."""
        for result, shape in zip(results, shapes, strict=True):
            axes, raw, made = self.name("c"), self.name(), self.name()
            nodes.append(constant(axes, np.array([axis], np.int64)))
            nodes.append(helper.make_node("ReduceSum", [result, axes], [raw], keepdims=0))
            low, high = self.name("c"), self.name("c")
            nodes.append(constant(low, np.float32(-4)))
            nodes.append(constant(high, np.float32(4)))
            nodes.append(helper.make_node("Clip", [raw, low, high], [made]))
            scope.values.append((made, shape))

    def scan(self, nodes: list[NodeProto], scope: Scope, depth: int) -> None:
        """Add a Scan over the rows or columns of a matrix."""
        matrices = [value for value in scope.values if len(value[1]) == 2]
        if not matrices:
            return
        source, shape = self.random.choice(matrices)
        axis = self.random.randrange(2)
        row = (shape[1 - axis],)
        if row not in SHAPES:
            return
        carried = self.shapes(0)
        scanned = [row] if self.random.random() < 0.7 or not carried else []
        initial = [self.of_shape(nodes, scope, shape) for shape in carried]
        inside, own = scope.inner(), []
        names = [self.name("s") for _ in (*carried, row)]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(names, [*carried, row], strict=True)
        ]
        inside.values.extend(zip(names, [*carried, row], strict=True))
        self.fill(own, inside, self.random.randint(1, 4), depth + 1)
        body = self.graph(own, inputs, inside, [*carried, *scanned], [])
        results = [self.name() for _ in (*carried, *scanned)]
        end = self.random.randrange(2)
        attributes: dict[str, Any] = {}
        if self.random.random() < 0.5:
            attributes["scan_input_directions"] = [self.random.randrange(2)]
            if scanned:
                attributes["scan_output_directions"] = [self.random.randrange(2)]
        if scanned:
            attributes["scan_output_axes"] = [end]
        nodes.append(
            helper.make_node(
                "Scan",
                [*initial, source],
                results,
                body=body,
                num_scan_inputs=1,
                scan_input_axes=[axis],
                **attributes,
            )
        )
        for result, shape in zip(results, carried, strict=False):
            scope.values.append((result, shape))
        self.joined(nodes, scope, results[len(carried) :], scanned, end)


def constant(name: str, data: Any) -> NodeProto:
    """Return a node that makes a constant."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(data)))
