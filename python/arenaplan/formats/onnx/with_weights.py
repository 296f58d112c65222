"""Copies an ONNX model with new weights."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import numpy_helper

from arenaplan.base.errors import NotAModel, UndefinedValue, fault
from arenaplan.base.quoting import quoted


def with_weights(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> bytes:
    """
    Return a model file's content with some weights replaced, and all weights inside the file.

    Parameters
    ----------
    path : path
        The model.
    arrays : mapping
        The new data by name of an initializer or a ``Constant`` node's output.

    Raises
    ------
    UndefinedValue
        If the model stores no weight with a name; the weight may be computed from others.
    ModelError
        If the file would be larger than the format allows.
    """
    try:
        model = onnx.load(os.fspath(path))
    except DecodeError as error:
        raise NotAModel(f"{os.fspath(path)!r} is no ONNX model: {error}") from error
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            stored[node.output[0]] = node.attribute[0].t
    for name, array in arrays.items():
        if name not in stored:
            raise UndefinedValue(
                f"the model stores no weight {quoted(name)}: what a model computes from others has "
                "no place in the file; Trainer.save writes it"
            )
        stored[name].CopyFrom(numpy_helper.from_array(array, stored[name].name))
    try:
        content: bytes = model.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise fault("ModelTooLarge", f"the model does not fit into one file: {error}") from error
    return content
