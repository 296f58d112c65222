"""From a live ``torch.export.ExportedProgram`` to a program."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, Final

from arenaplan.base.errors import InvalidOption, NotAModel, UnsupportedOp, fault
from arenaplan.base.quoting import quoted
from arenaplan.formats.pt2.pt2_program import (
    Argument,
    Call,
    JointProgram,
    Port,
    Pt2Program,
    Pt2Tensor,
    Size,
)
from arenaplan.formats.trees import donated_at
from arenaplan.graph.origin import Origin, origin_of

_KINDS: Final[Mapping[str, str]] = {"constant_tensor": "tensor_constant"}
"""Kinds of inputs and outputs with different names in files."""

_COPY: Final = "torch.ops.aten.copy_.default"
_BATCH_NORMS: Final = frozenset(
    ["batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm"]
)
_DEEPEST: Final = 32
"""Most graphs inside each other."""


def read_live(exported: Any) -> Pt2Program:
    """
    Return the program made by ``torch.export.export``.

    Raises
    ------
    InvalidOption
        If ``exported`` is not an ``ExportedProgram``.
    NotAModel
        If the program says nothing about a tensor.
    """
    import torch

    if not isinstance(exported, torch.export.ExportedProgram):
        raise InvalidOption(f"{type(exported).__name__!r} is not a torch.export.ExportedProgram")
    signature = exported.graph_signature
    return _Reader(torch).program(
        exported.graph_module,
        tuple(_ports(signature.input_specs)),
        tuple(_ports(signature.output_specs)),
    )


def read_joint(module: Any, donate: Mapping[int, int]) -> JointProgram:
    """
    Return the program for a graph module that was traced with tensor sizes.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The module.
    donate : mapping
        Donated inputs by position, with the positions of the replacing results.

    Raises
    ------
    InvalidOption
        If ``module`` is not a graph module, or a position is not a whole number.
    IndexError
        If the input or result does not exist.
    UnsupportedOp
        If an operator writes to operands without the naming convention for writes.
    """
    import torch

    if not isinstance(module, torch.fx.GraphModule):
        raise InvalidOption(f"{type(module).__name__!r} is not a torch.fx.GraphModule")
    reader = _Reader(torch)
    program = reader.program(module)
    inputs = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    (last,) = (node for node in module.graph.nodes if node.op == "output")
    outputs = reader.leaves(last.args[0])
    _refuse_hidden_writes(module)
    written = _written(module)
    replaced = {node.args[0].name: reader.name(node.args[1]) for node in written}
    for into, result in donate.items():
        given = donated_at(inputs, into, "input")
        made = donated_at(outputs, result, "result")
        if given is None or made is None or not {given, made} <= set(program.tensors):
            raise IndexError(f"donate: input {into} or result {result} is not a tensor")
        replaced.setdefault(given, made)
    left_out = {node.name for node in written}
    calls = tuple(call for call in program.calls if call.name not in left_out)
    return JointProgram(program._replace(calls=calls), replaced)


def _written(module: Any) -> list[Any]:
    """Return a graph's last nodes that copy new contents into inputs and have no readers."""
    found = []
    for node in reversed(module.graph.nodes):
        if node.op == "output":
            continue
        is_copy = node.op == "call_function" and _qualified(node.target) == _COPY
        if not is_copy or node.args[0].op != "placeholder" or node.users:
            break
        found.append(node)
    return found


def _refuse_hidden_writes(module: Any) -> None:
    """Refuse operators that write to operands without the naming convention for writes."""
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        base = schema.name.split("::")[1]
        is_hidden = schema.is_mutable and not base.endswith("_")
        if base in _BATCH_NORMS:
            # These operators' declarations hide the update of statistics.
            names = (argument.name for argument in schema.arguments)
            given = dict(zip(names, node.args, strict=False)) | node.kwargs
            is_hidden |= bool(given.get("training") and given.get("running_mean") is not None)
        if is_hidden:
            raise UnsupportedOp(
                f"node {quoted(node.name)} ({base}) writes to its operands; from_train_step and "
                "torch.func.functionalize make that explicit"
            )


def _ports(specs: Any) -> Iterator[Port]:
    """Yield the tensors that a signature lists."""
    for spec in specs:
        if type(spec.arg).__name__ == "TensorArgument":
            kind = spec.kind.name.lower()
            yield Port(_KINDS.get(kind, kind), spec.arg.name, spec.target or "")


class _Reader:
    """Reads graphs; ``torch`` is a parameter because of its late import."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._depth = 0

    def program(
        self,
        module: Any,
        inputs: tuple[Port, ...] | None = None,
        outputs: tuple[Port, ...] | None = None,
    ) -> Pt2Program:
        """Return a graph's program; the nodes name a body's inputs and outputs."""
        if self._depth == _DEEPEST:
            raise fault("NestingTooDeep", f"graphs are nested more than {_DEEPEST} deep")
        self._depth += 1
        tensors: dict[str, Pt2Tensor] = {}
        calls = []
        for node in module.graph.nodes:
            if node.op == "placeholder" and self._is_tensor(node.meta.get("val")):
                tensors[node.name] = self._tensor(node.meta["val"])
            elif node.op == "call_function" and node.target is not operator.getitem:
                calls.append(self._call(node, module, tensors))
        if inputs is None:
            placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
            inputs = tuple(Port("user_input", name) for name in placeholders if name in tensors)
        if outputs is None:
            (last,) = (node for node in module.graph.nodes if node.op == "output")
            outputs = tuple(
                Port("user_output", name) for name in self._names(last.args) if name is not None
            )
        self._depth -= 1
        return Pt2Program(tensors, tuple(calls), inputs, outputs)

    def _call(self, node: Any, module: Any, tensors: dict[str, Pt2Tensor]) -> Call:
        """Return a node as a call, and record the results."""
        arguments, graphs = [], []
        for name, value in self._named_arguments(node):
            graph = self._graph(value, module)
            if graph is not None:
                graphs.append(self.program(graph))
                continue
            names = tuple(self._names(value))
            arguments.append(Argument(name, names, None if names else _plain(value)))
        made = self._results(node)
        tensors.update((name, self._tensor(value)) for name, value in made)
        return Call(
            node.name,
            _qualified(node.target),
            tuple(arguments),
            tuple(name for name, _ in made),
            tuple(graphs),
            _origin(node.meta),
            self._is_random(node),
        )

    def _is_random(self, node: Any) -> bool:
        """Whether an operator draws random numbers; attention does with dropout."""
        seeded = self._torch.Tag.nondeterministic_seeded
        if seeded not in getattr(node.target, "tags", ()):
            return False
        names = [argument.name for argument in node.target._schema.arguments]
        part = dict(self._named_arguments(node)).get("dropout_p", 0.0)
        return "dropout_p" not in names or part != 0.0

    def _named_arguments(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yield a node's arguments, in schema order."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            yield from (("", value) for value in node.args)
            yield from node.kwargs.items()
            return
        for position, argument in enumerate(schema.arguments):
            if argument.name in node.kwargs:
                yield argument.name, node.kwargs[argument.name]
            elif position < len(node.args) and not argument.kwarg_only:
                yield argument.name, node.args[position]

    def _graph(self, value: Any, module: Any) -> Any:
        """Return an argument's graph, if the argument is a graph."""
        if not isinstance(value, self._torch.fx.Node) or value.op != "get_attr":
            return None
        found = getattr(module, value.target, None)
        return found if isinstance(found, self._torch.fx.GraphModule) else None

    def _names(self, value: Any) -> Iterator[str | None]:
        """Yield the tensors in an argument; ``None`` for tensors left out of a list."""
        if isinstance(value, self._torch.fx.Node):
            if self._is_tensor(value.meta.get("val")):
                yield self.name(value)
        elif isinstance(value, (list, tuple)):
            items = [list(self._names(item)) for item in value]
            if any(items):
                for item, names in zip(value, items, strict=True):
                    yield from [None] if item is None else names

    def leaves(self, value: Any) -> list[str | None]:
        """Return the names of a tree's results; ``None`` for results that are not tensors."""
        if isinstance(value, (list, tuple)):
            return [name for item in value for name in self.leaves(item)]
        if isinstance(value, dict):
            return [name for item in value.values() for name in self.leaves(item)]
        is_tensor = isinstance(value, self._torch.fx.Node) and self._is_tensor(
            value.meta.get("val")
        )
        return [self.name(value) if is_tensor else None]

    def name(self, node: Any) -> str:
        """Return a tensor's name: for equal pieces of a result, the first piece's name."""
        if node.target is operator.getitem:
            source, index = node.args
            return self._piece(source, index, node)
        return str(node.name)

    def _piece(self, source: Any, index: int, default: Any) -> str:
        """Return the name of one of several results."""
        for user in source.users:
            if user.target is operator.getitem and user.args[1] == index:
                return str(user.name)
        return default if isinstance(default, str) else str(default.name)

    def _results(self, node: Any) -> list[tuple[str, Any]]:
        """Return the tensors that a node makes, by name, including unused tensors."""
        value = node.meta.get("val")
        if self._is_tensor(value):
            return [(node.name, value)]
        if not isinstance(value, (list, tuple)):
            return []
        made = []
        for index, item in enumerate(value):
            if self._is_tensor(item):
                made.append((self._piece(node, index, f"{node.name}_unused_{index}"), item))
            elif isinstance(item, (list, tuple)):
                users = [u for u in node.users if u.args[1:] == (index,)]
                for inner, part in enumerate(item):
                    name = f"{node.name}_unused_{index}_{inner}"
                    if self._is_tensor(part):
                        made.append((self._piece(users[0], inner, name) if users else name, part))
        return made

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor)

    def _tensor(self, value: Any) -> Pt2Tensor:
        """Return the known facts about a tensor."""
        return Pt2Tensor(tuple(map(_size, value.shape)), str(value.dtype).removeprefix("torch."))


def _origin(meta: Mapping[str, Any]) -> Origin | None:
    """Return a node's layer and source line."""
    stack = meta.get("nn_module_stack")
    # Entries are from a key to path and type, the innermost last.
    entries = list(stack.values()) if isinstance(stack, Mapping) else []
    layer = str(entries[-1][0]) if entries else None
    trace = meta.get("stack_trace")
    return origin_of(layer, trace if isinstance(trace, str) else None)


def _size(size: Any) -> Size:
    """Return a number, or an expression."""
    if isinstance(size, int):
        return size
    expression = getattr(getattr(size, "node", None), "expr", None)
    if expression is None:
        raise NotAModel(f"a dimension is {size!r}, which is not a number")
    if expression.is_Integer:
        return int(expression)
    import sympy

    return str(sympy.srepr(expression))


def _plain(value: Any) -> Any:
    """Return an argument that is no tensor; numbers that are symbols are not known."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else "symbol"


def _qualified(target: Any) -> str:
    """Return an operator's qualified name, as in files."""
    if hasattr(target, "_schema"):
        namespace, name = target._schema.name.split("::")
        return f"torch.ops.{namespace}.{name}.{target._overloadname}"
    module = str(getattr(target, "__module__", "")).replace("torch._ops", "torch.ops")
    return f"{module}.{getattr(target, '__name__', target)}"
