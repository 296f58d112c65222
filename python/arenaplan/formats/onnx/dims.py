"""Declared shapes, and numbers for symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from onnx import GraphProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper

from arenaplan.base.errors import (
    InvalidOption,
    UnboundDim,
    UnknownDim,
    UnknownShape,
    UnsupportedDtype,
    fault,
)
from arenaplan.base.formulas import formula_value
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.onnx.tensors import dtype_of, numpy_dtype
from arenaplan.graph.ops import Shape
from arenaplan.graph.sizes import Bind, whole_number

_IN_WORDS: Final = {"total_sequence_length": "past_sequence_length + sequence_length"}
"""Sizes given by name as formulas, in models from language model tools."""

Dim: TypeAlias = "int | str | None"
"""A number, a symbol, or neither."""


class Declared(NamedTuple):
    """Declared facts about a value, as far as known."""

    dtype: str | None
    dims: tuple[Dim, ...] | None
    """``None`` for an unknown rank."""


def declared(info: ValueInfoProto) -> Declared:
    """
    Return a value's declared type.

    Raises
    ------
    UnsupportedDtype
        If the value is not an array of numbers.
    """
    found = _declared(info.type.SerializeToString())
    return _with_errors(info) if found is None else found


# Networks declare few types many times.
@lru_cache(1 << 10)
def _declared(data: bytes) -> Declared | None:
    """Return the facts declared by a type's bytes; ``None`` if wrong."""
    try:
        return _with_errors(ValueInfoProto(type=TypeProto.FromString(data)))
    except UnsupportedDtype:
        return None


def _with_errors(info: ValueInfoProto) -> Declared:
    """Return a value's declared type; errors name the value."""
    kind = info.type.WhichOneof("value")
    if kind is None:
        return Declared(None, None)
    what = f"value {quoted(info.name)}"
    if kind != "tensor_type":
        raise UnsupportedDtype(f"{what} is not an array ({kind})")
    tensor = info.type.tensor_type
    dtype = dtype_of(tensor.elem_type, what) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return Declared(dtype, None)
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            # Older exporters write -1 for a dimension that is not known.
            dims.append(None if dim.dim_value < 0 else dim.dim_value)
        else:
            dims.append(dim.dim_param or None)
    return Declared(dtype, tuple(dims))


class Dims:
    """
    Numbers for a model's symbolic dimensions.

    Parameters
    ----------
    bind : mapping or None
        Numbers from the caller: by symbol, and whole shapes by input. By computed value: an upper
        bound for each data-dependent dimension, or for the shape. By input with a single integer or
        truth value: the content, so that the input becomes a constant.
    graph : GraphProto
        The graph with the symbols.
    inputs : mapping of str to Declared
        Declared facts about the inputs.
    """

    def __init__(
        self, bind: Bind | None, graph: GraphProto, inputs: Mapping[str, Declared]
    ) -> None:
        self._numbers: dict[str, int] = {}
        self._shapes: dict[str, Shape] = {}
        self._most: dict[str, int] = {}
        self._contents: dict[str, int] = {}
        if not bind:
            return
        for name, value in bind.items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                self._shapes[name] = tuple(
                    whole_number(dim, f"a dimension bound for input {quoted(name)}")
                    for dim in value
                )
            else:
                what = f"the number bound to dimension {quoted(name)}"
                self._numbers[name] = whole_number(value, what)
        self._check_names(graph, inputs)
        for name, shape in self._shapes.items():
            if name in inputs:
                self._bind_shape(name, shape, inputs[name].dims)

    def _check_names(self, graph: GraphProto, inputs: Mapping[str, Declared]) -> None:
        """Refuse names that the model does not have."""
        made = {name for node in graph.node for name in node.output}
        symbols = {dim for known in inputs.values() for dim in known.dims or () if dim}
        for info in chain(graph.output, graph.value_info):
            if info.type.WhichOneof("value") != "tensor_type":
                continue  # A sequence has no dimensions.
            symbols.update(dim for dim in declared(info).dims or () if dim)
        known = sorted(symbol for symbol in symbols if isinstance(symbol, str))
        for name in list(self._numbers):
            if name not in symbols and name in made:
                self._most[name] = self._numbers.pop(name)
            elif name not in symbols and name in inputs:
                self._contents[name] = self._numbers.pop(name)
            elif name not in symbols:
                has = f"it has {listed(known)}" if known else "all are numbers"
                raise UnknownDim(
                    f"the model has no symbolic dimension {quoted(name)}; {has}", names=[name]
                )
        for name in self._shapes:
            if name not in inputs and name not in made:
                raise UnknownDim(
                    f"the model has no input {quoted(name)}; it has {listed(sorted(inputs))}",
                    names=[name],
                )

    def _bind_shape(self, name: str, shape: Shape, dims: tuple[Dim, ...] | None) -> None:
        """Record the numbers in an input's shape."""
        if dims is None:
            return
        if len(dims) != len(shape):
            raise fault(
                "DimConflict",
                f"input {quoted(name)} has {len(dims)} dimensions, not {len(shape)}",
            )
        for dim, number in zip(dims, shape, strict=True):
            expected = self._numbers.setdefault(dim, number) if isinstance(dim, str) else dim
            if expected is not None and expected != number:
                raise fault(
                    "DimConflict",
                    f"dimension {dim!r} of input {quoted(name)} is {expected}, and was bound to "
                    f"{number}",
                )

    def of_input(self, name: str, known: Declared) -> tuple[Shape, str]:
        """
        Return a graph input's shape and type.

        Raises
        ------
        UnboundDim, UnknownShape
            If shape or type is not declared and no numbers were given.
        """
        if known.dtype is None:
            raise UnknownShape(f"the model does not say what type input {quoted(name)} has")
        if name in self._shapes:
            return self._shapes[name], known.dtype
        if known.dims is None:
            raise UnknownShape(
                f"the model does not say what shape input {quoted(name)} has; "
                f"pass bind={{{quoted(name)}: (…)}}"
            )
        hint = f"pass its shape: bind={{{quoted(name)}: (…)}}"
        return self.complete(f"input {quoted(name)}", known.dims, hint), known.dtype

    def content(self, name: str, shape: Shape, dtype: str) -> TensorProto | None:
        """
        Return a graph input's content, if given by the caller.

        Raises
        ------
        InvalidOption
            If the input is not a single integer or truth value that can hold the number.
        """
        number = self._contents.get(name)
        if number is None:
            return None
        is_whole = dtype == "bool" or dtype.startswith(("int", "uint"))
        if prod(shape) == 1 and is_whole:
            held = np.array(number).astype(numpy_dtype(dtype))
            if int(held) == number:
                return numpy_helper.from_array(held.reshape(shape), name)
        raise InvalidOption(
            f"option bind: {number} for input {quoted(name)}, which holds {dtype} of shape "
            f"{shape}; a number can be given for one integer or truth value that can hold it"
        )

    def most(self, name: str, dims: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
        """
        Return a value's dimensions, with upper bounds for data-dependent dimensions.

        Parameters
        ----------
        name : str
            A computed value.
        dims : tuple or None
            The value's dimensions, as far as known.
        """
        shape, most = self._shapes.get(name), self._most.get(name)
        if dims is None or (shape is not None and len(shape) != len(dims)):
            return dims if shape is None else shape
        if shape is not None:
            return tuple(s if d is None else d for d, s in zip(dims, shape, strict=True))
        return dims if most is None else tuple(most if d is None else d for d in dims)

    def complete(self, what: str, dims: tuple[Dim, ...], hint: str) -> Shape:
        """
        Return dimensions as numbers only.

        Raises
        ------
        UnboundDim
            If a dimension has no number; ``hint`` says what to do about a dimension without a name.
        """
        result = []
        for axis, dim in enumerate(dims):
            number = self._number(dim) if isinstance(dim, str) else dim
            if number is None and dim is not None:
                raise UnboundDim(
                    f"dimension {quoted(str(dim))} of {what} has no number; "
                    f"pass bind={{{quoted(str(dim))}: …}}",
                    dimension=str(dim),
                )
            if number is None:
                raise UnboundDim(f"dimension {axis} of {what} has neither number nor name; {hint}")
            result.append(number)
        return tuple(result)

    def resolved(self, dims: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
        """Return dimensions with known symbols replaced by numbers."""
        if dims is None or not self._numbers:
            return dims
        numbers = (self._number(d) if isinstance(d, str) else d for d in dims)
        return tuple(d if n is None else n for n, d in zip(numbers, dims, strict=True))

    def _number(self, name: str) -> int | None:
        """Return a symbol's number; the symbol may be a formula, such as ``past + 1``."""
        if name not in self._numbers:
            number = formula_value(_IN_WORDS.get(name, name), self._numbers)
            if number is None:
                return None
            self._numbers[name] = number
        return self._numbers[name]
