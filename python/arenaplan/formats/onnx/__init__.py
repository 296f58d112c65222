"""
The ONNX importer.

A model is read in one pass over the nodes (:mod:`~arenaplan.formats.onnx.walk`). Tables in separate
modules have the facts about operators: result shapes (:data:`~arenaplan.formats.onnx.rules.RULES`),
evaluation on constant inputs (:data:`~arenaplan.formats.onnx.evaluate.EVALUATORS`), and canonical
operators (:data:`~arenaplan.formats.onnx.operators.OPERATORS`).

Models are untrusted. Planning opens only the model's own file, and never allocates a size that the
model merely claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from arenaplan.base.errors import NotAModel
from arenaplan.graph.sizes import Bind

try:
    from onnx import ModelProto
except ImportError as error:
    raise ImportError("reading ONNX models needs the package 'onnx': pip install onnx") from error

from arenaplan.formats.onnx.file import Source, is_text, read_model
from arenaplan.formats.onnx.onnx_flow import emit_flow
from arenaplan.formats.onnx.tensors import StoredTensor
from arenaplan.formats.onnx.walk import OnnxWalk

if TYPE_CHECKING:
    from pathlib import Path

    from arenaplan.formats.onnx.external import Folder
    from arenaplan.graph import Graph

__all__ = ["load_onnx", "open_onnx", "opened"]


def load_onnx(source: Source, *, bind: Bind | None = None) -> Graph:
    """
    Read an ONNX model.

    Parameters
    ----------
    source : path, bytes or onnx.ModelProto
        The model. External weight files are found only beside a path.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, ``{"batch": 1}``, and whole shapes for inputs by
        name, ``{"image": (1, 3, 224, 224)}``. A number or shape for a value with a data-dependent
        size is an upper bound, used to build the graph. A number for an input with a single integer
        or truth value is the content, ``{"use_cache_branch": 1}``: the input becomes a constant,
        and a branch decided by the input is inlined.

    Returns
    -------
    Graph
        The model with constants folded: shapes are numbers, nodes that only compute constants are
        gone, functions and decided branches are inlined. Other branches and loops are nodes with
        bodies. A graph input with an initializer is a constant.

    Raises
    ------
    PlannerError
        If the model is malformed or cannot be planned; the message names the place.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from onnx import TensorProto, helper
    >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    >>> y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    >>> relu = helper.make_node("Relu", ["x"], ["y"])
    >>> model = helper.make_model(helper.make_graph([relu], "one layer", [x], [y]))
    >>> graph = load_onnx(model, bind={"batch": 4})
    >>> graph.find("y").shape
    (4, 8)
    """
    return open_onnx(source)(bind)


def open_onnx(source: Source) -> Callable[[Bind | None], Graph]:
    """
    Read an ONNX model; return a function from numbers to a graph.

    The graphs share the model's weights.

    Raises
    ------
    PlannerError, OSError
        As :func:`load_onnx`, here and in the returned function.
    """
    return opened(*read_model(source))


def opened(model: ModelProto, path: Path | None, folder: Folder) -> Callable[[Bind | None], Graph]:
    """Return what :func:`open_onnx` does, for a model that :func:`read_model` returned."""
    name = model.graph.name or (path.stem if path is not None else "")
    tensors: dict[str, StoredTensor] = {}

    def graph_with(bind: Bind | None) -> Graph:
        try:
            graph = OnnxWalk(model, name, folder, bind, tensors, emit_flow).run()
            _check_text(graph)
        except (AttributeError, TypeError, UnicodeDecodeError) as error:
            # protobuf hands out bytes for text that is not UTF-8, or refuses to.
            if is_text(model):
                raise
            raise NotAModel("a name in the model is not UTF-8") from error
        graph.target = "numpy"
        graph.add_variant("c-code", partial(_for_code, graph))
        return graph

    return graph_with


def _for_code(graph: Graph) -> Graph:
    """Return the graph for generated C code: kernels make whole results, one by one."""
    code = graph.copy()
    code.nodes = [
        replace(node, effects=node.effects._replace(flows=(), loads=(), windows=()))
        for node in graph.nodes
    ]
    return code


def _check_text(graph: Graph) -> None:
    """Refuse names that are not text."""
    texts: list[tuple[str, object]] = [("the graph", graph.name)]
    texts += [("a value", value.name) for value in graph.values]
    for node in graph.nodes:
        texts += [("a node", node.name), ("an operator", node.op)]
        texts += [("an operator set", node.domain)]
        texts += [(f"an attribute of node {node.name!r}", name) for name in node.attributes]
    for what, text in texts:
        if not isinstance(text, str):
            raise NotAModel(f"the name {text!r} of {what} is not UTF-8")
