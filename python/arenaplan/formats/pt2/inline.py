"""Programs that only wrap other programs, such as blocks without gradients, made flat."""

from __future__ import annotations

from typing import Final

from arenaplan.base.errors import UnsupportedSubgraph
from arenaplan.base.quoting import quoted
from arenaplan.formats.pt2.pt2_program import Call, Pt2Program

_WRAPPERS: Final = frozenset(
    f"torch.ops.higher_order.{name}"
    for name in (
        "hints_wrapper",
        "invoke_subgraph",
        "tag_activation_checkpoint",
        "wrap",
        "wrap_activation_checkpoint",
        "wrap_with_autocast",
        "wrap_with_set_grad_enabled",
    )
)
"""Operators that run their only graph once, on the tensors that follow."""


def flatten(program: Pt2Program) -> Pt2Program:
    """
    Return a program with wrappers replaced by their content.

    Tensors inside are named after the wrapper, ``wrap_with_autocast.add``.

    Raises
    ------
    UnsupportedSubgraph
        If a wrapper does not run exactly one graph with the right number of tensors.
    """
    if not any(call.graphs for call in program.calls):
        return program
    tensors = dict(program.tensors)
    calls: list[Call] = []
    renamed: dict[str, str] = {}
    for call in program.calls:
        call = call.reading(renamed)
        if call.target not in _WRAPPERS:
            calls.append(call._replace(graphs=tuple(map(flatten, call.graphs))))
            continue
        what = call.name or calls_name(call)
        body = flatten(call.graphs[0]) if len(call.graphs) == 1 else None
        reads = [name for name in call.reads() if name is not None]
        if body is None or (len(reads), len(call.results)) != (len(body.inputs), len(body.outputs)):
            raise UnsupportedSubgraph(f"node {quoted(what)} does not run one graph on its operands")
        given = {port.tensor: name for port, name in zip(body.inputs, reads, strict=True)}
        own = {name: f"{what}.{name}" for name in body.tensors if name not in given}
        tensors |= {own[name]: body.tensors[name] for name in own}
        names = given | own
        for inner in body.calls:
            results = tuple(names.get(name, name) for name in inner.results)
            calls.append(inner.reading(names)._replace(results=results))
        for result, port in zip(call.results, body.outputs, strict=True):
            renamed[result] = names.get(port.tensor, port.tensor)
    outputs = tuple(
        port._replace(tensor=renamed.get(port.tensor, port.tensor)) for port in program.outputs
    )
    return Pt2Program(tensors, tuple(calls), program.inputs, outputs)


def calls_name(call: Call) -> str:
    """Return the name for a node that has none."""
    return call.results[0] if call.results else call.target
