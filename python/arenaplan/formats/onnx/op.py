"""
Operators and operands in the importer, before they are part of a graph.

A constant may be computed from other constants. Folding only records the operator. The data is
computed on demand: for the importer, which reads a few small constants with shapes, or for an
executor. So planning reads no weights, and large constants cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import AttributeProto, TensorProto

from arenaplan.base.errors import (
    InternalError,
    InvalidAttribute,
    InvalidOperand,
    OutOfMemory,
    PlannerError,
)
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.budget import ImportBudget
from arenaplan.formats.onnx.external import Folder
from arenaplan.formats.onnx.node_facts import Facts, Result
from arenaplan.formats.onnx.tensors import StoredTensor, numpy_dtype
from arenaplan.graph.ops import Shape, array_bytes
from arenaplan.graph.origin import Origin
from arenaplan.graph.values import Quantized

Source: TypeAlias = "np.ndarray | StoredTensor | Folded | None"
Scope: TypeAlias = "MutableMapping[str, OnnxOperand | TensorProto | None]"
"""Meanings of names; a stored tensor represents itself until used."""

# Lookup in the message class is slow, and there are many attributes.
_KINDS = AttributeProto.AttributeType.Value
_UNDEFINED, _FLOAT, _INT, _STRING = map(_KINDS, ("UNDEFINED", "FLOAT", "INT", "STRING"))
_TENSOR, _GRAPH, _FLOATS, _INTS = map(_KINDS, ("TENSOR", "GRAPH", "FLOATS", "INTS"))
_STRINGS = _KINDS("STRINGS")

Arrays: TypeAlias = "list[np.ndarray | None]"
Evaluate: TypeAlias = "Callable[[Op, Arrays, Sequence[Result]], Sequence[np.ndarray]]"

KEPT = 1 << 16
"""Largest constant that is cached once computed."""

MAX_LIST = 4096
"""Most numbers that an operand which says a shape, axes or sizes can have."""


class DataDependent(Exception):
    """
    A result's shape depends on data known only when the model runs.

    Parameters
    ----------
    operand : OnnxOperand, optional
        The deciding value, if there is only one.
    error : PlannerError, optional
        The error for refusing the model; a general error if left out.
    """

    def __init__(
        self, operand: OnnxOperand | None = None, error: PlannerError | None = None
    ) -> None:
        super().__init__()
        self.operand = operand
        self.error = error


class OnnxOperand:
    """A value: shape and type, and the data source if constant."""

    __slots__ = ("dtype", "index", "inline", "name", "shape", "source")

    def __init__(
        self,
        name: str,
        shape: Shape,
        dtype: str,
        source: Source = None,
        inline: bool = False,
        index: int | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.source = source
        """
        A constant's data, or a way to get the data; ``None`` for values computed at run time. An
        array is repeated to the operand's shape.
        """
        self.inline = inline
        """Whether this is a constant whose data can be had without opening another file."""
        self.index = index
        """The value in the graph, once added."""

    @property
    def is_fixed(self) -> bool:
        """Whether this is a constant."""
        return self.source is not None

    def __call__(self) -> np.ndarray:
        """Return a constant's data for executors: contiguous and aligned."""
        try:
            return np.require(compute(self, None), requirements=["C", "A"])
        except MemoryError as error:
            raise OutOfMemory(
                f"constant {quoted(self.name)} of shape {self.shape} does not fit into memory"
            ) from error

    def quantized(self) -> Quantized | None:
        """Return the quantized integers behind a constant made by DequantizeLinear."""
        return quantized_source(self)


class Pending(OnnxOperand):
    """A value whose size is not known yet; nodes that read the value wait, too."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, (), "bool")


class Items(OnnxOperand):
    """A sequence with a known number of values, not stored as a single array."""

    __slots__ = ("items",)

    def __init__(self, name: str, items: Iterable[OnnxOperand]) -> None:
        super().__init__(name, (), "bool")
        self.items = tuple(items)


class Absent(OnnxOperand):
    """An optional value that is not there."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, (), "bool")


class Op:
    """An operator with operands, and typed access to attributes."""

    __slots__ = (
        "attributes",
        "budget",
        "domain",
        "facts",
        "inputs",
        "looked",
        "name",
        "origin",
        "outputs",
        "type",
        "version",
    )

    def __init__(
        self,
        name: str,
        type: str,  # noqa: A002
        domain: str,
        version: int,
        inputs: list[OnnxOperand | None],
        outputs: list[str],
        attributes: Mapping[str, Any],
        budget: ImportBudget,
    ) -> None:
        self.name = name
        self.origin: Origin | None = None
        """Layer and source line, for reports; set after creation."""
        self.facts: Facts | None = None
        """Facts about equal operators; set after creation."""
        self.looked = False
        """Whether a rule read a constant's data."""
        self.type = type
        self.domain = domain
        self.version = version
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes
        self.budget = budget

    # -- messages --------------------------------------------------------------

    @property
    def label(self) -> str:
        """The operator's name for messages."""
        if self.name:
            return f"node {quoted(self.name)} ({self.type})"
        made = next((output for output in self.outputs if output), "")
        return f"the {self.type} node that produces {quoted(made)}"

    def error(self, of: type[PlannerError], text: str, *, kind: str | None = None) -> PlannerError:
        """Return an error with a message that names this operator."""
        return of(f"{self.label}: {text}", kind=kind)

    # -- operands --------------------------------------------------------------

    def input(self, position: int) -> OnnxOperand:
        """Return a required operand."""
        operand = self.inputs[position] if position < len(self.inputs) else None
        if operand is None:
            raise self.error(InvalidOperand, f"input {position} is missing")
        return operand

    def optional(self, position: int) -> OnnxOperand | None:
        """Return an operand that may be left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def pair(self, first: int, second: int) -> tuple[OnnxOperand, OnnxOperand]:
        """Return two required operands with the same element type."""
        a, b = self.input(first), self.input(second)
        if a.dtype != b.dtype:
            raise self.error(InvalidOperand, f"its inputs are of the types {a.dtype} and {b.dtype}")
        return a, b

    def array(self, position: int) -> np.ndarray:
        """Return a constant operand's data."""
        operand = self.input(position)
        self.looked = True
        data = peek(operand, self.budget)
        if data is None:
            raise DataDependent(operand)
        return data

    def numbers(self, position: int) -> Shape:
        """Return the whole numbers in a constant operand: a shape, axes or sizes."""
        operand = self.input(position)
        shape = operand.shape
        if len(shape) > 1 or (shape and shape[0] > MAX_LIST):
            raise self.error(
                InvalidOperand, f"input {position} has shape {operand.shape}, which is not a list"
            )
        if operand.dtype not in ("int64", "int32"):
            raise self.error(InvalidOperand, f"input {position} holds {operand.dtype}, not int64")
        self.looked = True
        array = peek(operand, self.budget)
        if array is None:
            raise DataDependent(operand)
        return tuple(array.tolist()) if shape else (array.item(),)

    def scalar(self, position: int) -> int | float:
        """Return a constant operand's only element."""
        operand = self.input(position)
        if any(dim != 1 for dim in operand.shape) or operand.dtype.startswith("complex"):
            raise self.error(InvalidOperand, f"input {position} is not a single number")
        item = self.array(position).item()
        return item if isinstance(item, int) else float(item)

    # -- attributes ------------------------------------------------------------

    def _attribute(self, name: str, kinds: type | tuple[type, ...], default: Any) -> Any:
        value = self.attributes.get(name)
        if value is None:
            if default is None:
                raise self.error(InvalidAttribute, f"attribute {name!r} is missing")
            return default
        if not isinstance(value, kinds):
            raise self.error(InvalidAttribute, f"attribute {name!r} is {str(value)[:80]!r}")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number, required without a default."""
        number: int = self._attribute(name, int, default)
        return number

    def flag(self, name: str, default: bool = False) -> bool:
        """
        Return whether an attribute is 1.

        Raises
        ------
        InvalidAttribute
            If the attribute is neither 0 nor 1: runtimes disagree on the meaning of other numbers.
        """
        number = self.integer(name, int(default))
        if number not in (0, 1):
            raise self.error(InvalidAttribute, f"{name} {number} is out of range")
        return number == 1

    def flags(self, *names: str) -> None:
        """Refuse present attributes that are neither 0 nor 1."""
        for name in names:
            self.flag(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string, required without a default."""
        text: str = self._attribute(name, str, default)
        return text

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers; ``None`` if left out."""
        value = self.attributes.get(name)
        if value is None:
            return None
        # A list in a model has elements with the same type.
        if not isinstance(value, tuple) or (value and type(value[0]) is not int):
            raise self.error(InvalidAttribute, f"attribute {name!r} is not a list of whole numbers")
        return value

    def either(self, name: str, position: int) -> tuple[int, ...] | None:
        """
        Return numbers from an attribute (older versions) or an input (newer versions).

        Raises
        ------
        DataDependent
            If the input is computed at run time.
        """
        value = self.integers(name)
        if value is None and self.optional(position) is not None:
            return self.numbers(position)
        return value

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """Return an axis counted from the front."""
        if not -rank <= axis < rank:
            raise self.error(
                InvalidAttribute, f"{what} {axis} is out of range for {rank} dimensions"
            )
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Iterable[int], rank: int) -> tuple[int, ...]:
        """Return distinct axes counted from the front, in the given order."""
        result = tuple([self.axis(axis, rank) for axis in axes])
        if len(set(result)) != len(result):
            raise self.error(InvalidAttribute, f"an axis is repeated in {tuple(axes)}")
        return result


class Folded:
    """A constant computed by an operator from other constants."""

    __slots__ = ("evaluate", "op", "position", "results")

    def __init__(
        self, op: Op, evaluate: Evaluate, results: Sequence[Result], position: int
    ) -> None:
        self.op = op
        self.evaluate = evaluate
        self.results = results
        self.position = position

    def compute(self, arrays: Arrays) -> np.ndarray:
        """Return the constant, given the operator's inputs."""
        shape, dtype = self.results[self.position]
        array = evaluate_now(self.op, self.evaluate, arrays, self.results)[self.position]
        if array.shape != shape:
            raise self.op.error(InternalError, f"folded to shape {array.shape} instead of {shape}")
        return array.astype(numpy_dtype(dtype), copy=False)


def evaluate_now(
    op: Op, evaluate: Evaluate, arrays: Arrays, results: Sequence[Result]
) -> list[np.ndarray]:
    """Return an operator's results for ``arrays``."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(array) for array in evaluate(op, arrays, results)]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise op.error(InvalidOperand, f"cannot be folded: {error}") from error


def peek(operand: OnnxOperand, budget: ImportBudget) -> np.ndarray | None:
    """Return a constant's data while a model is read; ``None`` if not at hand."""
    source = operand.source
    if isinstance(source, StoredTensor) and operand.inline and source.bytes <= KEPT:
        # The common case, without the machinery for the others.
        source = operand.source = source.load()
    if isinstance(source, np.ndarray):
        return np.broadcast_to(source, operand.shape)
    return compute(operand, budget) if operand.inline else None


def compute(operand: OnnxOperand, budget: ImportBudget | None) -> np.ndarray:
    """Return a constant's data; compute its inputs first, without recursion."""
    uses = _count_uses(operand)
    arrays: dict[int, np.ndarray] = {}
    pending = [operand]
    while pending:
        current = pending[-1]
        source = current.source
        missing = [known for known in _inputs(source) if id(known) not in arrays]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        if id(current) in arrays:
            continue
        if budget is not None:
            budget.compute(current.name, array_bytes(current.shape, current.dtype))
        array = arrays[id(current)] = _data(current, arrays)
        for known in _inputs(source):
            uses[id(known)] -= 1
            if not uses[id(known)]:
                del arrays[id(known)]
        if array.nbytes <= KEPT and quantized_source(current) is None:
            current.source = array
    return arrays[id(operand)]


def quantized_source(operand: OnnxOperand) -> Quantized | None:
    """Return the 8-bit integers behind a constant made by DequantizeLinear, if any."""
    source = operand.source
    if not isinstance(source, Folded) or source.op.type != "DequantizeLinear" or source.op.domain:
        return None
    op = source.op
    integers, scale, zero = op.input(0), op.input(1), op.optional(2)
    is_plain = not op.attributes.get("block_size") and operand.dtype == "float32"
    if not is_plain or scale.dtype != "float32" or integers.dtype not in ("int8", "uint8"):
        return None
    return Quantized(integers, scale, zero, int(op.attributes.get("axis", 1)))


def _data(operand: OnnxOperand, arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return a constant's data, given the data of its inputs."""
    source = operand.source
    if isinstance(source, Folded):
        return source.compute([None if i is None else arrays[id(i)] for i in source.op.inputs])
    if isinstance(source, StoredTensor):
        return source.load()
    if isinstance(source, np.ndarray):
        return np.broadcast_to(source, operand.shape)
    raise InternalError(f"value {quoted(operand.name)} is not a constant")


def _inputs(source: object) -> list[OnnxOperand]:
    """Return the constants that a source is computed from."""
    if not isinstance(source, Folded):
        return []
    return [known for known in source.op.inputs if known is not None]


def _count_uses(operand: OnnxOperand) -> dict[int, int]:
    """Return how often each constant below ``operand`` is read for the computation."""
    uses = {id(operand): 1}
    pending = [operand]
    while pending:
        for known in _inputs(pending.pop().source):
            if id(known) not in uses:
                pending.append(known)
            uses[id(known)] = uses.get(id(known), 0) + 1
    return uses


def decode_attributes(
    protos: Sequence[AttributeProto],
    owner: str,
    folder: Folder,
    bound: Mapping[str, AttributeProto] | None = None,
) -> dict[str, Any]:
    """
    Return attributes as plain values: numbers, strings, tuples, tensors and graphs.

    Parameters
    ----------
    bound : mapping, optional
        In a function body: the call's attributes.
    """
    if bound is not None:
        pairs = resolved_attributes(protos, bound)
        return {name: _decode(proto, name, owner, folder) for name, proto in pairs}
    result = {}
    # Slicing a repeated field makes a list, which is faster to go through than the field.
    for proto in protos[:]:
        name = proto.name
        result[name] = _decode(proto, name, owner, folder)
    return result


def resolved_attributes(
    protos: Iterable[AttributeProto], bound: Mapping[str, AttributeProto] | None
) -> list[tuple[str, AttributeProto]]:
    """Return attributes by name, with references resolved to the function call's attributes."""
    pairs = []
    for proto in protos:
        if not proto.ref_attr_name:
            pairs.append((proto.name, proto))
        elif bound and proto.ref_attr_name in bound:
            pairs.append((proto.name, bound[proto.ref_attr_name]))
    return pairs


def _decode(proto: AttributeProto, name: str, owner: str, folder: Folder) -> Any:
    """Return an attribute's value."""
    kind = proto.type
    if kind == _INTS:
        return tuple(proto.ints[:])
    if kind == _INT:
        return proto.i
    if kind == _FLOAT:
        return proto.f
    if kind == _STRING:
        return _text(proto.s)
    if kind == _TENSOR:
        return StoredTensor(proto.t, f"{owner}.{name}", folder)
    if kind == _FLOATS:
        return tuple(proto.floats[:])
    if kind == _STRINGS:
        return tuple(_text(item) for item in proto.strings)
    if kind == _GRAPH:
        return proto.g
    if kind == _UNDEFINED:
        raise InvalidAttribute(f"node {quoted(owner)}: attribute {quoted(name)} has no type")
    return proto


def _text(data: bytes) -> str:
    """Return a string attribute; bytes that are not UTF-8 survive as surrogates."""
    return data.decode("utf-8", "surrogateescape")
