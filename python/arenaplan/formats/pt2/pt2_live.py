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
    Program,
    Size,
    Tensor,
)
from arenaplan.formats.trees import donated_at
from arenaplan.graph.origin import Origin, origin_of

_KINDS: Final[Mapping[str, str]] = {"constant_tensor": "tensor_constant"}
"""Kinds of inputs and outputs whose names differ from those in files."""

_COPY: Final = "torch.ops.aten.copy_.default"
_BATCH_NORMS: Final = frozenset(
    ["batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm"]
)
_DEEPEST: Final = 32
"""Most graphs inside each other."""


def read_live(exported: Any) -> Program:
    """
    Return the program that ``torch.export.export`` made.

    Raises
    ------
    InvalidOption
        If it is no ``ExportedProgram``.
    NotAModel
        If the program says nothing about a tensor.
    """
    import torch

    if not isinstance(exported, torch.export.ExportedProgram):
        raise InvalidOption(f"{type(exported).__name__!r} is no torch.export.ExportedProgram")
    signature = exported.graph_signature
    return _Reader(torch).program(
        exported.graph_module,
        tuple(_ports(signature.input_specs)),
        tuple(_ports(signature.output_specs)),
    )


def read_joint(module: Any, donate: Mapping[int, int]) -> JointProgram:
    """
    Return the program of a graph module that was traced with the sizes of its tensors.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The module.
    donate : mapping
        Donated inputs by position, and the positions of the results that replace them.

    Raises
    ------
    InvalidOption
        If it is no graph module, or a position is no whole number.
    IndexError
        If there is no such input or result.
    UnsupportedOp
        If an operator writes to its operands without a name that says so.
    """
    import torch

    if not isinstance(module, torch.fx.GraphModule):
        raise InvalidOption(f"{type(module).__name__!r} is no torch.fx.GraphModule")
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
            raise IndexError(f"donate: input {into} or result {result} is no tensor")
        replaced.setdefault(given, made)
    left_out = {node.name for node in written}
    calls = tuple(call for call in program.calls if call.name not in left_out)
    return JointProgram(program._replace(calls=calls), replaced)


def _written(module: Any) -> list[Any]:
    """Return the last nodes of a graph that copy new contents into inputs, which nothing reads."""
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
    """Refuse operators that write to their operands, and whose names do not say so."""
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        base = schema.name.split("::")[1]
        is_hidden = schema.is_mutable and not base.endswith("_")
        if base in _BATCH_NORMS:
            # The declarations of these operators leave out that they update the statistics.
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
    """Reads graphs; ``torch`` is given because it is imported late."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._depth = 0

    def program(
        self,
        module: Any,
        inputs: tuple[Port, ...] | None = None,
        outputs: tuple[Port, ...] | None = None,
    ) -> Program:
        """Return the program of a graph; its nodes name the inputs and outputs of a body."""
        if self._depth == _DEEPEST:
            raise fault("NestingTooDeep", f"graphs are nested more than {_DEEPEST} deep")
        self._depth += 1
        tensors: dict[str, Tensor] = {}
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
        return Program(tensors, tuple(calls), inputs, outputs)

    def _call(self, node: Any, module: Any, tensors: dict[str, Tensor]) -> Call:
        """Return a node, and record its results."""
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
        """Whether an operator draws random numbers; attention does if it leaves out elements."""
        seeded = self._torch.Tag.nondeterministic_seeded
        if seeded not in getattr(node.target, "tags", ()):
            return False
        names = [argument.name for argument in node.target._schema.arguments]
        part = dict(self._named_arguments(node)).get("dropout_p", 0.0)
        return "dropout_p" not in names or part != 0.0

    def _named_arguments(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yield the arguments that a node gives, in the order of the operator's schema."""
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
        """Return the graph that an argument is, if it is one."""
        if not isinstance(value, self._torch.fx.Node) or value.op != "get_attr":
            return None
        found = getattr(module, value.target, None)
        return found if isinstance(found, self._torch.fx.GraphModule) else None

    def _names(self, value: Any) -> Iterator[str | None]:
        """Yield the tensors in an argument, ``None`` for those left out of a list."""
        if isinstance(value, self._torch.fx.Node):
            if self._is_tensor(value.meta.get("val")):
                yield self.name(value)
        elif isinstance(value, (list, tuple)):
            items = [list(self._names(item)) for item in value]
            if any(items):
                for item, names in zip(value, items, strict=True):
                    yield from [None] if item is None else names

    def leaves(self, value: Any) -> list[str | None]:
        """Return the names of the results in a tree, ``None`` for those that are no tensors."""
        if isinstance(value, (list, tuple)):
            return [name for item in value for name in self.leaves(item)]
        if isinstance(value, dict):
            return [name for item in value.values() for name in self.leaves(item)]
        is_tensor = isinstance(value, self._torch.fx.Node) and self._is_tensor(
            value.meta.get("val")
        )
        return [self.name(value) if is_tensor else None]

    def name(self, node: Any) -> str:
        """Return the name of a tensor: of equal pieces of one result the first one's."""
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
        """Return the tensors that a node makes, by name; those without users too."""
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

    def _tensor(self, value: Any) -> Tensor:
        """Return the known facts about a tensor."""
        return Tensor(tuple(map(_size, value.shape)), str(value.dtype).removeprefix("torch."))


def _origin(meta: Mapping[str, Any]) -> Origin | None:
    """Return layer and line of source of a node."""
    stack = meta.get("nn_module_stack")
    # Entries are from a key to path and type, the innermost last.
    entries = list(stack.values()) if isinstance(stack, Mapping) else []
    layer = str(entries[-1][0]) if entries else None
    trace = meta.get("stack_trace")
    return origin_of(layer, trace if isinstance(trace, str) else None)


def _size(size: Any) -> Size:
    """Return a number, or the expression that it is."""
    if isinstance(size, int):
        return size
    expression = getattr(getattr(size, "node", None), "expr", None)
    if expression is None:
        raise NotAModel(f"a dimension is {size!r}, which is no number")
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
    """Return the qualified name of an operator, as files have it."""
    if hasattr(target, "_schema"):
        namespace, name = target._schema.name.split("::")
        return f"torch.ops.{namespace}.{name}.{target._overloadname}"
    module = str(getattr(target, "__module__", "")).replace("torch._ops", "torch.ops")
    return f"{module}.{getattr(target, '__name__', target)}"
