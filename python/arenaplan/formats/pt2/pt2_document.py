"""From the archive's untrusted JSON document to a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from arenaplan.base.errors import NotAModel, fault
from arenaplan.base.quoting import quoted
from arenaplan.formats.pt2.pt2_program import Argument, Call, Port, Pt2Program, Pt2Tensor, Size
from arenaplan.graph.origin import Origin, origin_of

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
"""Element types by number in the format."""

_NO_TENSORS = ("constant_input", "custom_obj", "token")
"""Kinds of inputs and outputs without bytes."""

_DEEPEST: Final = 32
"""Most graphs inside each other."""


def read_program(document: Mapping[str, Any]) -> Pt2Program:
    """
    Return the program that a document describes.

    Raises
    ------
    NotAModel
        If something that a program needs is missing or malformed.
    UnsupportedModel
        If graphs are inside graphs without end.
    """
    module = _object(document, "graph_module", "the program")
    graph = _object(module, "graph", "the graph module")
    signature = _object(module, "signature", "the graph module")
    return _program(
        graph,
        tuple(_ports(signature, "input_specs")),
        tuple(_ports(signature, "output_specs")),
        _DEEPEST,
    )


def _program(
    graph: Mapping[str, Any], inputs: tuple[Port, ...], outputs: tuple[Port, ...], depth: int
) -> Pt2Program:
    """Return a graph's program."""
    if not depth:
        raise fault("NestingTooDeep", f"graphs are nested more than {_DEEPEST} deep")
    described = _object(graph, "tensor_values", "the graph")
    tensors = {name: _tensor(name, meta) for name, meta in described.items()}
    nodes = enumerate(_objects(graph, "nodes", "the graph"))
    calls = tuple(_call(node, position, depth) for position, node in nodes)
    return Pt2Program(tensors, calls, inputs, outputs)


def _inner(graph: object, what: str, depth: int) -> Pt2Program:
    """Return a program that a call runs; inputs and outputs are listed without kinds."""
    if not isinstance(graph, dict):
        raise NotAModel(f"{what} runs a graph that is not an object")
    inputs, outputs = (
        tuple(
            Port(kind, name)
            for item in _list(graph, key, what)
            for name in _tensors_in(item)
            if name is not None
        )
        for key, kind in (("inputs", "user_input"), ("outputs", "user_output"))
    )
    return _program(graph, inputs, outputs, depth - 1)


def _tensor(name: str, meta: object) -> Pt2Tensor:
    """Return the known facts about a tensor."""
    what = f"tensor {quoted(name)}"
    if not isinstance(meta, dict):
        raise NotAModel(f"{what} is not described by an object")
    code = meta.get("dtype")
    dtype = _DTYPES.get(code) if isinstance(code, int) else None
    sizes = tuple(_size(name, size) for size in _list(meta, "sizes", what))
    return Pt2Tensor(sizes, repr(code) if dtype is None else dtype)


def _size(name: str, size: object) -> Size:
    """Return a size."""
    if isinstance(size, dict):
        number, expression = size.get("as_int"), size.get("as_expr")
        if isinstance(expression, dict) and isinstance(expression.get("expr_str"), str):
            return str(expression["expr_str"])
        if isinstance(number, int) and not isinstance(number, bool):
            return number
    raise NotAModel(f"a dimension of tensor {quoted(name)} is not a number")


def _call(node: Mapping[str, Any], position: int, depth: int) -> Call:
    """Return a node."""
    target = node.get("target")
    if not isinstance(target, str):
        raise NotAModel(f"node {position} has no target")
    what = f"node {position} ({quoted(target.removeprefix('torch.ops.'), 40)})"
    arguments, graphs = [], []
    for argument in _objects(node, "inputs", what):
        name, arg = (argument.get(key) for key in ("name", "arg"))
        if not isinstance(name, str) or not isinstance(arg, dict):
            raise NotAModel(f"{what}: an argument has no name or no value")
        if "as_graph" in arg:
            graph = arg["as_graph"]
            content = graph.get("graph") if isinstance(graph, dict) else None
            graphs.append(_inner(content, what, depth))
        else:
            tensors = tuple(_tensors_in(arg))
            arguments.append(Argument(name, tensors, None if tensors else _value(arg)))
    results = (name for output in _objects(node, "outputs", what) for name in _tensors_in(output))
    given = node.get("name")
    return Call(
        given if isinstance(given, str) else "",
        target,
        tuple(arguments),
        tuple(name for name in results if name is not None),
        tuple(graphs),
        _origin(node.get("metadata")),
    )


def _origin(metadata: object) -> Origin | None:
    """Return layer and source line; None for metadata in another form."""
    if not isinstance(metadata, dict):
        return None
    stack, trace = (metadata.get(key) for key in ("nn_module_stack", "stack_trace"))
    # Entries are "key,path,type", the innermost last.
    fields = stack.rpartition(";")[2].split(",") if isinstance(stack, str) else []
    layer = fields[1] if len(fields) > 2 else None
    return origin_of(layer, trace if isinstance(trace, str) else None)


def _value(arg: Mapping[str, Any]) -> Any:
    """Return an argument that is no tensor; numbers that are symbols are ``None``."""
    key, value = next(iter(arg.items()), ("as_none", True))
    if key == "as_none":
        return None
    if key == "as_sym_int":
        return _known(value)
    if key == "as_sym_ints" and isinstance(value, list):
        return [_known(item) for item in value]
    return value


def _known(symbol: object) -> int | str:
    """Return a number, or the name of an unknown number."""
    if isinstance(symbol, dict) and isinstance(symbol.get("as_int"), int):
        return int(symbol["as_int"])
    return "symbol"


def _ports(signature: Mapping[str, Any], key: str) -> Iterator[Port]:
    """Yield a signature's entries."""
    for spec in _list(signature, key, "the signature"):
        if not isinstance(spec, dict) or len(spec) != 1:
            raise NotAModel(f"the signature's {key} are malformed")
        kind, content = next(iter(spec.items()))
        if not isinstance(content, dict):
            raise NotAModel(f"the signature's {key} are malformed")
        if kind in _NO_TENSORS:
            continue
        owner = content.get("buffer_name")
        for name in _tensors_in(content.get("arg")):
            if name is not None:
                yield Port(kind, name, owner if isinstance(owner, str) else "")


def _tensors_in(arg: object) -> Iterator[str | None]:
    """Yield the names of tensors in an argument; ``None`` for tensors left out of a list."""
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
        elif key == "as_nested_tensors" and isinstance(value, list):
            for item in value:
                yield from _tensors_in({"as_tensors": item})


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
        raise NotAModel(f"{what} lists {key} that are not objects")
    return found


def _list(parent: Any, key: str, what: str) -> list[Any]:
    """Return a member that is a list."""
    found = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(found, list):
        raise NotAModel(f"{what} has no list of {key}")
    return found
