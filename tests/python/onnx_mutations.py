"""
Structure-aware changes of ONNX models: the file stays a message of the format, and its content is
wrong, hostile, or another valid model.

``python onnx_mutations.py`` tries many seeds, each with a limit of time, and prints what is neither
a typed error nor a right result.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

import arenaplan as ap
import light_models
import seeds
from cnn_models import random_cnn
from random_flow import Generator
from random_models import random_model

Draw = random.Random

DIMS = (-(2**63), -1, 0, 1, 2, 3, 7, 64, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1)
INTEGERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 8, 2**31 - 1, 2**31, 2**63 - 1)
FLOATS = (0.0, -1.0, 1e-45, 1e30, float("inf"), float("nan"))
OPERATORS = (
    *("Relu", "Add", "Mul", "Concat", "Conv", "MaxPool", "AveragePool", "Reshape", "Transpose"),
    *("Slice", "Gather", "Split", "Softmax", "MatMul", "Gemm", "Pad", "Resize", "ReduceSum"),
    *("Squeeze", "Unsqueeze", "Expand", "Tile", "Where", "Cast", "Identity", "Constant", "If"),
    *("Loop", "Scan", "NonZero", "TopK", "LayerNormalization", "Shape", "QuantizeLinear", "Nobody"),
)


def base(draw: Draw) -> ModelProto:
    """Return a valid model of one of several families."""
    kind, seed = draw.randrange(4), draw.randrange(1 << 20)
    if kind == 0:
        return random_cnn(seed)
    if kind == 1:
        return Generator(seed, loose=draw.random() < 0.5).model()
    return random_model(seed)


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and those of branches and loops inside of it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)


class Mutator:
    """
    Changes one model.

    Parameters
    ----------
    model : ModelProto
        Model that is changed in place.
    draw : random.Random
        Source of choices.
    """

    def __init__(self, model: ModelProto, draw: Draw) -> None:
        self.model = model
        self.draw = draw
        self.graph = draw.choice(list(graphs(model.graph)))

    def mutate(self, most: int = 3) -> list[str]:
        """Make a few changes, and return their names."""
        names = []
        for _ in range(self.draw.randint(1, most)):
            self.graph = self.draw.choice(list(graphs(self.model.graph)))
            change = self.draw.choice(CHANGES)
            try:
                change(self)
            except (IndexError, ValueError):  # nothing of that kind is there, or a name is taken
                continue
            names.append(change.__name__)
        return names

    # -- choices -----------------------------------------------------------------------

    def node(self) -> NodeProto:
        return self.draw.choice(self.graph.node)

    def name(self) -> str:
        """Return the name of a value, of the graph or of nobody."""
        names = [name for node in self.graph.node for name in (*node.output, *node.input)]
        names += [value.name for value in (*self.graph.input, *self.graph.initializer)]
        return self.draw.choice([*names, *names, *names, "", "nobody"])

    def tensor(self) -> TensorProto:
        return self.draw.choice(self.graph.initializer)

    def attribute(self) -> AttributeProto:
        return self.draw.choice([it for node in self.graph.node for it in node.attribute])

    # -- nodes -------------------------------------------------------------------------

    def drop_node(self) -> None:
        del self.graph.node[self.draw.randrange(len(self.graph.node))]

    def duplicate_node(self) -> None:
        self.graph.node.append(self.node())

    def copy_node(self) -> None:
        """Add a node that makes a new value, which may be an output."""
        copy = NodeProto()
        copy.CopyFrom(self.node())
        for position in range(len(copy.output)):
            copy.output[position] += "_copy"
        self.graph.node.append(copy)
        if self.draw.random() < 0.5 and copy.output:
            self.graph.output.append(helper.make_empty_tensor_value_info(copy.output[0]))

    def move_node(self) -> None:
        nodes = list(self.graph.node)
        moved = nodes.pop(self.draw.randrange(len(nodes)))
        nodes.insert(self.draw.randrange(len(nodes) + 1), moved)
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def change_operator(self) -> None:
        self.node().op_type = self.draw.choice(OPERATORS)

    def change_domain(self) -> None:
        self.node().domain = self.draw.choice(["", "ai.onnx", "com.microsoft", "nobody"])

    def rename_node(self) -> None:
        self.node().name = self.node().name

    # -- operands ----------------------------------------------------------------------

    def change_input(self) -> None:
        """Read another value: one of later makes a cycle."""
        node = self.node()
        node.input[self.draw.randrange(len(node.input))] = self.name()

    def drop_input(self) -> None:
        node = self.node()
        del node.input[self.draw.randrange(len(node.input))]

    def add_input(self) -> None:
        self.node().input.append(self.name())

    def change_output(self) -> None:
        node = self.node()
        node.output[self.draw.randrange(len(node.output))] = self.name()

    def drop_output(self) -> None:
        node = self.node()
        del node.output[self.draw.randrange(len(node.output))]

    def add_output(self) -> None:
        self.node().output.append(self.draw.choice([self.name(), "new"]))

    def change_graph_output(self) -> None:
        self.draw.choice(self.graph.output).name = self.name()

    def drop_graph_value(self) -> None:
        values = self.draw.choice([self.graph.input, self.graph.output, self.graph.value_info])
        del values[self.draw.randrange(len(values))]

    def repeat_graph_value(self) -> None:
        values = self.draw.choice([self.graph.input, self.graph.output])
        values.append(self.draw.choice(values))

    # -- types -------------------------------------------------------------------------

    def change_dim(self) -> None:
        value = self.draw.choice([*self.graph.input, *self.graph.output, *self.graph.value_info])
        dim = self.draw.choice(value.type.tensor_type.shape.dim)
        if self.draw.random() < 0.2:
            dim.dim_param = self.draw.choice(["batch", "", "nobody"])
        else:
            dim.dim_value = self.draw.choice(DIMS)

    def change_rank(self) -> None:
        value = self.draw.choice([*self.graph.input, *self.graph.output])
        dims = value.type.tensor_type.shape.dim
        if self.draw.random() < 0.5 and dims:
            del dims[-1]
        else:
            dims.add().dim_value = self.draw.choice(DIMS)

    def change_type(self) -> None:
        value = self.draw.choice([*self.graph.input, *self.graph.output])
        value.type.tensor_type.elem_type = self.draw.randrange(30)

    def drop_type(self) -> None:
        self.draw.choice([*self.graph.input, *self.graph.output]).ClearField("type")

    # -- weights -----------------------------------------------------------------------

    def change_weight_dim(self) -> None:
        tensor = self.tensor()
        tensor.dims[self.draw.randrange(len(tensor.dims))] = self.draw.choice(DIMS)

    def reverse_weight(self) -> None:
        tensor = self.tensor()
        tensor.dims[:] = list(reversed(tensor.dims))

    def change_weight_type(self) -> None:
        self.tensor().data_type = self.draw.randrange(30)

    def change_weight_data(self) -> None:
        tensor = self.tensor()
        data = tensor.raw_data
        cut = self.draw.randrange(len(data) + 1)
        tensor.raw_data = self.draw.choice([data[:cut], data + b"\0", bytes(len(data))])

    def rename_weight(self) -> None:
        self.tensor().name = self.name()

    def drop_weight(self) -> None:
        del self.graph.initializer[self.draw.randrange(len(self.graph.initializer))]

    def duplicate_weight(self) -> None:
        self.graph.initializer.append(self.tensor())

    def move_weight_out(self) -> None:
        """Say that a weight is in another file."""
        tensor = self.tensor()
        tensor.data_location = TensorProto.EXTERNAL
        where = self.draw.choice(["../weights", "/etc/passwd", "weights", "", "a\0b"])
        entries = {"location": where, "offset": str(self.draw.choice(DIMS)), "length": "8"}
        for key in self.draw.sample(sorted(entries), 2):
            tensor.external_data.add(key=key, value=entries[key])

    def cut_weight(self) -> None:
        """Say that a weight is a segment of a larger one."""
        self.tensor().segment.begin = self.draw.choice(INTEGERS)

    # -- attributes --------------------------------------------------------------------

    def change_integer(self) -> None:
        attribute = self.attribute()
        if attribute.ints:
            place = self.draw.randrange(len(attribute.ints))
            attribute.ints[place] = self.draw.choice(INTEGERS)
        elif attribute.type == AttributeProto.FLOAT:
            attribute.f = self.draw.choice(FLOATS)
        else:
            attribute.i = self.draw.choice(INTEGERS)

    def resize_integers(self) -> None:
        attribute = self.attribute()
        if self.draw.random() < 0.5:
            attribute.ints.append(self.draw.choice(INTEGERS))
        else:
            del attribute.ints[-1]

    def change_text(self) -> None:
        attribute = self.attribute()
        attribute.s = self.draw.choice([b"", b"SAME_UPPER", b"VALID", b"linear", b"\xff\xfe", b"?"])

    def change_attribute_type(self) -> None:
        self.attribute().type = self.draw.randrange(15)

    def rename_attribute(self) -> None:
        names = ["axis", "axes", "perm", "pads", "group", "to", "epsilon", "keepdims", "nobody"]
        self.attribute().name = self.draw.choice(names)

    def drop_attribute(self) -> None:
        attributes = self.node().attribute
        del attributes[self.draw.randrange(len(attributes))]

    def duplicate_attribute(self) -> None:
        attributes = self.node().attribute
        attributes.append(self.draw.choice(attributes))

    def add_attribute(self) -> None:
        names = ["axis", "group", "to", "batch_dims", "ceil_mode", "select_last_index", "size"]
        number = self.draw.choice(INTEGERS)
        self.node().attribute.append(helper.make_attribute(self.draw.choice(names), number))

    # -- the model ---------------------------------------------------------------------

    def change_version(self) -> None:
        self.draw.choice(self.model.opset_import).version = self.draw.choice(
            [*INTEGERS, 1, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 20, 23]
        )

    def import_twice(self) -> None:
        self.model.opset_import.append(self.draw.choice(self.model.opset_import))

    def change_ir_version(self) -> None:
        self.model.ir_version = self.draw.choice([0, 1, 3, 4, 8, 9, 10, 99])


CHANGES: list[Callable[[Mutator], None]] = [
    function
    for name, function in vars(Mutator).items()
    if name.split("_")[0]
    in {"drop", "duplicate", "copy", "move", "change", "rename", "add", "repeat", "reverse"}
    or name in {"cut_weight", "resize_integers", "import_twice"}
]


def mutant(seed: int) -> tuple[ModelProto, list[str]]:
    """Return a changed model, and the names of the changes."""
    draw = Draw(seed)
    model = base(draw)
    return model, Mutator(model, draw).mutate()


def inputs_of(graph: ap.Graph) -> dict[str, np.ndarray] | None:
    """Return small numbers for the inputs of a graph, or nothing if they are many."""
    rng, inputs = np.random.default_rng(5), {}
    for value in graph.values:
        if value.kind != "input":
            continue
        if prod(value.shape) > 1 << 18:
            return None
        dtype = np.dtype("bool" if value.dtype == "bool" else value.dtype)
        inputs[value.name] = rng.integers(0, 3, value.shape).astype(dtype)
    return inputs


def outcome(model: ModelProto, *, oracle: bool = True) -> str:
    """
    Return what becomes of a model: the name of the typed error, or ``"right"``.

    Raises
    ------
    AssertionError
        If results are others than those of ONNX Runtime.
    Exception
        Errors that are not typed.
    """
    data = model.SerializeToString()
    try:
        graph = ap.load(data)
        plan = ap.plan(graph, effort="fast")
        plan.check(graph)
        inputs = inputs_of(graph)
        if inputs is None or plan.arena_bytes > 1 << 26:
            return "large"
        with ap.Executor(graph, plan) as executor:
            found = {name: np.array(it) for name, it in executor.run(inputs, verify=True).items()}
    except ap.PlannerError as error:
        return ap.errors.kind_of(error)
    return agreement(model, inputs, found) if oracle else "planned"


def agreement(
    model: ModelProto, inputs: dict[str, np.ndarray], found: dict[str, np.ndarray]
) -> str:
    """Compare results with those of ONNX Runtime, if it runs the model."""
    try:
        session = light_models.onnx_runtime(model, plain=True)
        names = [value.name for value in session.get_outputs()]
        given = {value.name: inputs[value.name] for value in session.get_inputs()}
        wanted: list[Any] = session.run(names, given)
    except Exception:  # it has errors of many types, none of which it documents
        return "oracle refuses"
    for name, array in zip(names, wanted, strict=True):
        if isinstance(array, np.ndarray) and name in found:
            np.testing.assert_allclose(
                found[name].astype(np.float64), array.astype(np.float64), rtol=2e-3, atol=2e-3
            )
            assert found[name].shape == array.shape, name
    return "right"


def _attempt(seed: int) -> tuple[str, Callable[[], str]]:
    model, changes = mutant(seed)
    return "+".join(changes), partial(outcome, model)


if __name__ == "__main__":
    sys.exit(seeds.main("models", 6 << 30, _attempt))
