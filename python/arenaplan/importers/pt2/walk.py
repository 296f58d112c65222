"""From the description of an exported program to a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from arenaplan.errors import (
    DuplicateProducer,
    NotAModel,
    UndefinedValue,
    UnsupportedDtype,
    UnsupportedOp,
    UnsupportedSubgraph,
)
from arenaplan.graph import NO_EFFECTS, Graph
from arenaplan.importers.common import Bind, checked_bytes, quoted
from arenaplan.importers.flows import with_flow
from arenaplan.importers.pt2.dims import Dims
from arenaplan.importers.pt2.effects import (
    ALIASES,
    EFFECTS,
    LOADS,
    RANDOM,
    Op,
    Operand,
    pieces,
)

_DTYPES: Mapping[int, str] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
}
"""Element types as the format numbers them."""

_CONSTANTS = ("parameter", "buffer", "tensor_constant")


class Walk:
    """
    One reading of an exported program.

    Parameters
    ----------
    document : dict
        The content of ``model.json``.
    name : str
        Name of the model.
    bind : mapping or None
        Numbers for symbols by name, and whole shapes by input.
    """

    def __init__(self, document: Mapping[str, Any], name: str, bind: Bind | None) -> None:
        module = _object(document, "graph_module", "the program")
        graph = _object(module, "graph", "the graph module")
        signature = _object(module, "signature", "the graph module")
        self._tensors = _object(graph, "tensor_values", "the graph")
        self._nodes = _objects(graph, "nodes", "the graph")
        self._inputs = list(_specs(signature, "input_specs"))
        self._outputs = list(_specs(signature, "output_specs"))
        self._dims = Dims(bind, dict(self._declared_inputs()))
        self._graph = Graph(name)
        self._values: dict[str, int] = {}
        """Value by tensor; writing to a tensor gives it another."""
        self._operands: dict[str, Operand] = {}
        self._fixed: set[str] = set()
        """Tensors that belong to the caller or the model."""
        self._roots: dict[str, str] = {}
        """What a tensor is a view of, or was made by writing to."""
        self._latest: dict[str, list[tuple[float, str]]] = {}
        """By root, the two tensors of its family that are read last, and where."""
        self._last_use = self._last_uses()

    def run(self) -> Graph:
        """Return the graph."""
        mutated = {
            spec.get("buffer_name") for kind, spec in self._outputs if kind == "buffer_mutation"
        }
        for kind, spec in self._inputs:
            for name in _tensors_in(spec.get("arg")):
                self._fixed.add(name)
                is_state = kind == "buffer" and spec.get("buffer_name") in mutated
                self._declare(name, "state" if is_state else kind)
        for position, node in enumerate(self._nodes):
            self._add(node, position)
        for _, spec in self._outputs:
            for name in _tensors_in(spec.get("arg")):
                value = self._value(name, "the outputs")
                if value not in self._graph.outputs:
                    self._graph.output(value)
        return self._graph

    def _declared_inputs(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield the inputs of the caller, and their sizes."""
        for kind, spec in self._inputs:
            if kind == "user_input":
                for name in _tensors_in(spec.get("arg")):
                    yield name, _list(self._meta(name), "sizes", f"tensor {quoted(name)}")

    def _last_uses(self) -> dict[str, float]:
        """Return the position of the last node that reads each tensor."""
        last: dict[str, float] = {}
        for position, node in enumerate(self._nodes):
            for argument in _objects(node, "inputs", f"node {position}"):
                last.update(dict.fromkeys(_tensors_in(argument.get("arg")), position))
        for _, spec in self._outputs:
            last.update(dict.fromkeys(_tensors_in(spec.get("arg")), inf))
        return last

    def _add(self, node: Any, position: int) -> None:
        """Append a node, or the constants that it computes."""
        target = node.get("target")
        if not isinstance(target, str):
            raise NotAModel(f"node {position} has no target")
        space, base, op = _operator(target)
        reads, arguments = self._arguments(node, f"node {position} ({quoted(op, 40)})")
        writes = [
            name
            for output in _objects(node, "outputs", f"node {position}")
            for name in _tensors_in(output)
            if name is not None
        ]
        if not writes and space == "aten":
            return  # It asks for a size or asserts something; no bytes are written.
        what = writes[0] if writes else f"{op}_{position}"
        inputs = tuple(None if name is None else self._value(name, what) for name in reads)
        known = [None if name is None else self._operands[name] for name in reads]
        is_mutation = space == "aten" and base.endswith("_") and not base.endswith("__")
        if is_mutation:
            self._check_mutation(reads[0] if reads else None, position, what)
        is_constant = space == "aten" and base not in RANDOM and not is_mutation
        if is_constant and all(operand is None or operand.is_constant for operand in known):
            for name in writes:
                self._declare(name, "folded")
            self._follow(base, reads, writes, is_mutation=False)
            return
        outputs = tuple(self._declare(name, "activation") for name in writes)
        effects = NO_EFFECTS
        rule = EFFECTS.get(base.rstrip("_") if is_mutation else base) if space == "aten" else None
        if rule is not None:
            effects = rule(Op(known, [self._operands[name] for name in writes], arguments))
        shapes = [None if operand is None else operand.shape for operand in known]
        plain = base.rstrip("_") if is_mutation else base
        how = pieces(plain, arguments, shapes[0] if shapes else None) if space == "aten" else None
        if how is not None and len(writes) == 1:
            result = self._operands[writes[0]].shape
            effects = with_flow(effects, how, result, shapes, loads=plain in LOADS)
        self._follow(base, reads, writes, is_mutation=is_mutation)
        name = node.get("name")
        self._graph.append(
            op, inputs, outputs, name=f"{name or what}", effects=effects, domain=space
        )

    def _follow(
        self, base: str, reads: list[str | None], writes: list[str], *, is_mutation: bool
    ) -> None:
        """Note which tensors are one in PyTorch."""
        source = reads[0] if reads else None
        if source is None:
            return
        if is_mutation and writes:
            # Whoever reads the tensor from now on reads what was written.
            self._values[source] = self._values[writes[0]]
            self._join(writes[0], source)
        elif base in ALIASES:
            for name in writes:
                self._join(name, source)

    def _join(self, name: str, source: str) -> None:
        """Note that a tensor may have the bytes of another."""
        root = self._roots.setdefault(source, source)
        self._roots[name] = root
        family = {other: use for use, other in self._latest.get(root, [])}
        for member in (root, name):
            family[member] = self._last_use.get(member, -1)
        # Of all but one, whichever that is, the latest is among the latest two.
        self._latest[root] = sorted(((use, key) for key, use in family.items()), reverse=True)[:2]

    def _check_mutation(self, name: str | None, position: int, what: str) -> None:
        """Refuse to write to what somebody else sees: it has one value here, not two."""
        if name is None or name in self._fixed or self._roots.get(name, name) in self._fixed:
            raise UnsupportedOp(
                f"node {quoted(what)} writes to an input, parameter or buffer in place; export "
                "with run_decompositions(), which makes that explicit"
            )
        for use, other in self._latest.get(self._roots.get(name, name), []):
            if other != name and use > position:
                raise UnsupportedOp(
                    f"node {quoted(what)} writes to {quoted(name)} in place, and {quoted(other)}, "
                    "which may show the same bytes, is read later; export with run_decompositions()"
                )

    def _arguments(self, node: Any, what: str) -> tuple[list[str | None], dict[str, Any]]:
        """Return the tensors that a node reads, and its other arguments by name."""
        reads: list[str | None] = []
        others: dict[str, Any] = {}
        for argument in _objects(node, "inputs", what):
            name, arg = (argument.get(key) for key in ("name", "arg"))
            if not isinstance(name, str) or not isinstance(arg, dict):
                raise NotAModel(f"{what}: an argument has no name or no value")
            if "as_graph" in arg:
                raise UnsupportedSubgraph(f"{what} runs another graph, which is not planned")
            tensors = list(_tensors_in(arg))
            reads += tensors
            if not tensors:
                others[name] = next(iter(arg.values()), None)
        return reads, others

    def _meta(self, name: str) -> Mapping[str, Any]:
        """Return the description of a tensor."""
        return _object(self._tensors, name, "the graph's tensors")

    def _value(self, name: str, what: str) -> int:
        """Return the value of a tensor."""
        if name not in self._values:
            raise UndefinedValue(f"{quoted(what)} reads tensor {quoted(name)}, which nothing made")
        return self._values[name]

    def _declare(self, name: str, kind: str) -> int:
        """Declare the value of a tensor."""
        if name in self._values:
            raise DuplicateProducer(f"tensor {quoted(name)} is made twice")
        meta = self._meta(name)
        dtype = _DTYPES.get(code) if isinstance(code := meta.get("dtype"), int) else None
        if dtype is None:
            raise UnsupportedDtype(f"tensor {quoted(name)} has the unknown type {code!r}")
        shape = self._dims.shape(name, meta.get("sizes"))
        checked_bytes(name, shape, dtype)
        if kind in _CONSTANTS or kind == "folded":
            value = self._graph.constant(name, shape, dtype)
        elif kind == "state":
            value = self._graph.state(name, shape, dtype)
        elif kind == "user_input":
            value = self._graph.input(name, shape, dtype)
        elif kind == "activation":
            value = self._graph.value(name, shape, dtype)
        else:
            raise UnsupportedOp(f"input {quoted(name)} is of the kind {quoted(kind)}")
        self._values[name] = value
        self._operands[name] = Operand(shape, dtype, kind in _CONSTANTS or kind == "folded")
        return value


def _operator(target: str) -> tuple[str, str, str]:
    """Return namespace, name without overload, and full name of an operator."""
    if target.startswith("torch.ops.higher_order."):
        raise UnsupportedSubgraph(f"{quoted(target)} runs another graph, which is not planned")
    parts = target.removeprefix("torch.ops.").split(".")
    if len(parts) < 2:
        return "", parts[0], parts[0]
    return parts[0], parts[1], ".".join(parts[1:])


def _specs(signature: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield kind and content of what a signature lists."""
    for spec in _list(signature, key, "the signature"):
        if not isinstance(spec, dict) or len(spec) != 1:
            raise NotAModel(f"the signature's {key} are malformed")
        kind, content = next(iter(spec.items()))
        if not isinstance(content, dict):
            raise NotAModel(f"the signature's {key} are malformed")
        yield kind, content


def _tensors_in(arg: object) -> Iterator[Any]:
    """Yield the names of the tensors in an argument, ``None`` for those left out of a list."""
    if not isinstance(arg, dict):
        return
    if isinstance(arg.get("name"), str) and "as_tensor" not in arg:
        yield arg["name"]
        return
    for key, value in arg.items():
        if key in ("as_tensor", "as_optional_tensor") and isinstance(value, dict):
            inner = value.get("as_tensor", value)
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                yield inner["name"]
        elif key in ("as_tensors", "as_optional_tensors") and isinstance(value, list):
            for item in value:
                inner = item.get("as_tensor", item) if isinstance(item, dict) else None
                name = inner.get("name") if isinstance(inner, dict) else None
                if isinstance(name, str):
                    yield name
                elif key == "as_optional_tensors":
                    yield None


def _object(parent: Any, key: str, what: str) -> Mapping[str, Any]:
    """Return a member that is an object."""
    found = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(found, dict):
        raise NotAModel(f"{what} has no {quoted(key)}")
    return found


def _objects(parent: Any, key: str, what: str) -> list[dict[str, Any]]:
    """Return a member that is a list of objects."""
    found = _list(parent, key, what)
    if not all(isinstance(item, dict) for item in found):
        raise NotAModel(f"{what} lists {key} that are no objects")
    return found


def _list(parent: Any, key: str, what: str) -> list[Any]:
    """Return a member that is a list."""
    found = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(found, list):
        raise NotAModel(f"{what} has no list of {key}")
    return found
