"""
Lowering of one operator: its node as expressions and loops of kernels.

Most operators are *maps*: a function takes the position of a result element and returns the C++
expression for that element. Consecutive maps run in a single kernel, since each operand's
expression is put into the reader's expression. Other operators return their work whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from arenaplan.base.errors import InvalidAttribute
from arenaplan.run.cuda.device_work import DevicePlace, DeviceRead, HostCall, Launch, Work
from arenaplan.run.cuda.text import (
    C_TYPES,
    THREADS,
    DeviceKernel,
    Text,
    c_type,
    converted,
    literal,
    row_major,
    strided_index,
    wide,
)
from arenaplan.run.numpy.registry import Signature, Step, Tensor, find_kernel

if TYPE_CHECKING:
    from arenaplan.graph import Choice

_MOST_OF_INT: Final = (1 << 31) - 1 - THREADS
"""Most elements that are counted with 32 bits."""


class Kind(Enum):
    """Which operand elements a map reads for each result element."""

    POINTWISE = "pointwise"
    """Those at the same position, with broadcasting; parameters per channel besides."""
    MOVE = "move"
    """About one, at some other position."""
    WINDOW = "window"
    """Many."""
    WORK = "work"
    """The operator is no map."""


Element: TypeAlias = "Callable[[Reading, str], str]"
MakeWork: TypeAlias = "Callable[[DeviceSite], list[Work]]"
Declare: TypeAlias = "Callable[[Signature], Sequence[Choice]]"


@dataclass(frozen=True, slots=True)
class LoweringRule:
    """How one operator becomes work."""

    kind: Kind
    element: Element | None = None
    """Returns the expression of an element of a map."""
    work: MakeWork | None = None
    """Returns the work of an operator that is no map."""
    scratch: Declare | None = None
    """Returns the sizes of scratch memory of such an operator."""
    whole: tuple[int, ...] = ()
    """Positions of operands that must be arrays in memory."""
    accepts: Callable[[Signature], bool] | None = None
    """Whether a node is one that the rule is for."""


_RULES: dict[str, list[LoweringRule]] = {}


def rule(*ops: str, **facts: Any) -> Callable[[Any], Any]:
    """Register a function for default-domain operators; the first matching rule is used."""

    def register(function: Any) -> Any:
        part = "work" if facts.get("kind") is Kind.WORK else "element"
        made = LoweringRule(**{**facts, part: function})
        for op in ops:
            _RULES.setdefault(op, []).append(made)
        return function

    return register


def supported_ops() -> list[str]:
    """Return the operators that have a rule; the host runs all others that NumPy has."""
    return sorted(_RULES)


def find_rule(signature: Signature) -> LoweringRule:
    """
    Return the rule for a node: generated text, or else NumPy's kernel on the host.

    Raises
    ------
    UnsupportedOp, UnsupportedDtype
        If no kernel on the host runs the node, either.
    """
    known = _RULES.get(signature.op, []) if signature.domain in ("", "ai.onnx") else []
    made = [tensor for tensor in signature.outputs if tensor is not None]
    tensors = [*made, *(tensor for tensor in signature.inputs if tensor is not None)]
    if all(tensor.dtype in C_TYPES for tensor in tensors):
        for each in known:
            is_able = each.kind is not Kind.WORK or len(made) == 1
            if is_able and (each.accepts is None or each.accepts(signature)):
                return each
    find_kernel(signature)
    return ON_HOST


def _called(site: DeviceSite) -> list[Work]:
    """Return the call of NumPy's kernel, with the operands that are no constants."""
    member, place = site.member, site.sources.place
    operands = tuple(
        None if value is None or load is not None else place(value)
        for value, load in zip(member.inputs, site.signature.constant, strict=True)
    )
    results = tuple(None if value is None else place(value) for value in member.outputs)
    return [HostCall(site.signature, member.index, operands, results)]


ON_HOST: Final = LoweringRule(Kind.WORK, work=_called)
"""The rule for nodes that have no text."""


@dataclass(frozen=True)
class StepMember:
    """A node of a step."""

    signature: Signature
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    index: int
    """Index of the node."""

    @cached_property
    def rule(self) -> LoweringRule:
        """The rule that the node follows."""
        return find_rule(self.signature)

    @cached_property
    def facts(self) -> Step:
        """The node on arrays without memory: only constants have real elements."""
        signature = self.signature

        def operand(position: int, tensor: Tensor | None) -> np.ndarray | None:
            data = signature.constant_data(position)
            return data if data is not None or tensor is None else unreal(tensor.shape)

        inputs = (operand(at, tensor) for at, tensor in enumerate(signature.inputs))
        outputs = (None if tensor is None else unreal(tensor.shape) for tensor in signature.outputs)
        return Step(signature, tuple(inputs), tuple(outputs), ())


def unreal(shape: Sequence[int]) -> np.ndarray:
    """Return an array without real memory, whose strides count elements."""
    strides = row_major(shape)
    array: np.ndarray = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), shape, strides)
    return array


@dataclass
class Sources:
    """Where a step's operands come from."""

    tensors: Mapping[int, Tensor]
    """Shape and type of every value of the step."""
    constants: Mapping[int, Any]
    """Constants of one element."""
    inline: dict[int, StepMember] = field(default_factory=dict)
    """Values that are computed where they are read."""
    places: dict[int, DevicePlace] = field(default_factory=dict)
    """Values of the step that are in scratch memory or in the place of another value."""

    def place(self, value: int) -> DevicePlace:
        """Return a value's memory."""
        return self.places.get(value, DevicePlace("value", value))


class Builder(Text):
    """A kernel body, with the memory that the kernel reads and writes."""

    def __init__(self, sources: Sources) -> None:
        super().__init__()
        self.sources = sources
        self._parameters: dict[DevicePlace, tuple[str, str]] = {}
        self._read: dict[DevicePlace, set[tuple[str, int]]] = {}
        self._written: dict[DevicePlace, set[tuple[str, int]]] = {}
        self._scalars: dict[str, int] = {}

    def _name(self, place: DevicePlace, type_: str) -> str:
        if place not in self._parameters:
            self._parameters[place] = (f"p{len(self._parameters)}", type_)
        name, known = self._parameters[place]
        return name if known == type_ else f"(({type_} *){name})"

    def scalar(self, name: str, value: int) -> str:
        """Add a numeric parameter, and return the parameter's name."""
        self._scalars[name] = value
        return name

    def read(self, value: int, index: str) -> str:
        """Return the name for an element in a value."""
        tensor = self.sources.tensors[value]
        if value in self.sources.constants:
            return literal(self.sources.constants[value], tensor.dtype)
        type_ = c_type(tensor.dtype)
        member = self.sources.inline.get(value)
        if member is not None:
            element = member.rule.element
            assert element is not None
            return self.let(type_, element(Reading(self, member, value), index))
        place = self.sources.place(value)
        self._read.setdefault(place, set()).add((index, tensor.dtype.itemsize))
        return self.let(type_, f"{self._name(place, type_)}[{index}]")

    def load(self, place: DevicePlace, dtype: np.dtype[Any], index: str) -> str:
        """Return the expression for an element in scratch memory."""
        self._read.setdefault(place, set()).add((index, dtype.itemsize))
        return f"{self._name(place, c_type(dtype))}[{index}]"

    def write(self, place: DevicePlace, dtype: np.dtype[Any], index: str, element: str) -> None:
        """Write an element."""
        self._written.setdefault(place, set()).add((index, dtype.itemsize))
        type_ = c_type(dtype)
        self.line(f"{self._name(place, type_)}[{index}] = {converted(type_, element)};")

    def launch(self, stem: str, grid: int) -> Launch:
        """Return a launch for the text so far, with :data:`THREADS` threads per block."""
        types, names = [], []
        for place, (name, type_) in self._parameters.items():
            types.append(f"{type_} *" if place in self._written else f"const {type_} *")
            names.append(name)
        types += ["const long long"] * len(self._scalars)
        names += self._scalars
        written = {each for indices in self._written.values() for each in indices}
        reads = tuple(
            DeviceRead(place, len(written) == 1 and indices == written)
            for place, indices in self._read.items()
        )
        kernel = DeviceKernel(stem, tuple(types), tuple(names), self.body)
        places, scalars = tuple(self._parameters), tuple(self._scalars.values())
        return Launch(kernel, places, scalars, grid, reads, tuple(self._written))


class Reading:
    """A map during the construction of an element's expression."""

    def __init__(self, text: Builder, member: StepMember, value: int) -> None:
        self.text = text
        self.member = member
        self.signature = member.signature
        self.facts = member.facts
        self.value = value
        """The result whose element is made."""
        self.slot = member.outputs.index(value)
        tensor = member.signature.outputs[self.slot]
        assert tensor is not None
        self.shape, self.dtype = tensor

    @property
    def type(self) -> str:
        """The result's C++ type."""
        return c_type(self.dtype)

    def has(self, position: int) -> bool:
        """Return whether an operand is present."""
        return position < len(self.member.inputs) and self.member.inputs[position] is not None

    def tensor(self, position: int) -> Tensor:
        """Return an operand's shape and type."""
        tensor = self.signature.input(position)
        if tensor is None:
            raise self.invalid(f"input {position} is missing")
        return tensor

    def element(self, position: int, index: str) -> str:
        """Return the name for the operand's element at an index."""
        self.tensor(position)
        value = self.member.inputs[position]
        assert value is not None
        return self.text.read(value, index)

    def same(self, position: int, index: str) -> str:
        """Return the name for the operand element that broadcasts to a result element."""
        shape = self.tensor(position).shape
        if prod(shape) == prod(self.shape):
            return self.element(position, index)
        return self.element(position, broadcast_index(index, shape, self.shape))

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute, with text as ``str``."""
        found = self.signature.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else found

    def number(self, name: str, default: float, dtype: np.dtype[Any] | None = None) -> str:
        """Return a numeric attribute as text of the result's type."""
        return literal(self.attribute(name, default), dtype or self.dtype)

    def literal(self, number: float) -> str:
        """Return a number as text of the result's type."""
        return literal(number, self.dtype)

    def let(self, expression: str) -> str:
        """Name an expression of the result's type, and return the name."""
        return self.text.let(self.type, expression)

    def call(self, function: str, *arguments: str) -> str:
        """Return a call to a C math function, in the result's precision."""
        return call(self.dtype, function, *arguments)

    def invalid(self, problem: str) -> InvalidAttribute:
        """Return the error for an invalid node."""
        return InvalidAttribute(f"node {self.signature.name!r} ({self.signature.op}): {problem}")


def call(dtype: np.dtype[Any], function: str, *arguments: str) -> str:
    """Return a call to a C math library function."""
    suffix = "f" if wide(dtype) == np.float32 else ""
    return f"{function}{suffix}({', '.join(arguments)})"


def broadcast_index(index: str, shape: Sequence[int], to: Sequence[int]) -> str:
    """Return the index of the array element that broadcasts to an element in a larger shape."""
    full = (*[1] * (len(to) - len(shape)), *shape)
    steps = zip(full, row_major(full), strict=True)
    return strided_index(index, to, [0 if size == 1 else step for size, step in steps])


@dataclass
class DeviceSite:
    """An operator that is not a map, with the operator's memory."""

    member: StepMember
    sources: Sources
    scratch: DevicePlace | None
    """Scratch memory of the operator, if it was given some."""
    scratch_bytes: int

    @property
    def signature(self) -> Signature:
        """The node's signature."""
        return self.member.signature

    @property
    def output(self) -> int:
        """The node's only result."""
        (made,) = (value for value in self.member.outputs if value is not None)
        return made

    def tensor(self, position: int) -> Tensor:
        """Return an operand's shape and type."""
        tensor = self.signature.input(position)
        if tensor is None:
            raise InvalidAttribute(
                f"node {self.signature.name!r} ({self.signature.op}): input {position} is missing"
            )
        return tensor

    def has(self, position: int) -> bool:
        """Return whether an operand is present."""
        return position < len(self.member.inputs) and self.member.inputs[position] is not None

    def value(self, position: int) -> int:
        """Return an operand's value."""
        self.tensor(position)
        value = self.member.inputs[position]
        assert value is not None
        return value

    def place(self, position: int) -> DevicePlace:
        """Return an operand's memory."""
        return self.sources.place(self.value(position))


def index_type(*counts: int) -> str:
    """Return the C++ index type for arrays with these element counts."""
    return "int" if max(counts, default=0) <= _MOST_OF_INT else "long long"


def blocks(threads: int) -> int:
    """Return the number of blocks that a thread count needs."""
    return -(-threads // THREADS)


def elementwise_launch(
    sources: Sources,
    stem: str,
    count: int,
    body: Callable[[Builder, str], None],
    scalars: Mapping[str, int] | None = None,
    bound: str | None = None,
) -> Launch:
    """
    Return the launch for a kernel with a thread per element.

    Parameters
    ----------
    count : int
        Number of elements.
    body : callable
        Writes the work for an element, given the position's name.
    scalars : mapping of str to int, optional
        Numeric parameters.
    bound : str, optional
        Text for the element count, where the count depends on a parameter.
    """
    text = Builder(sources)
    for name, value in (scalars or {}).items():
        text.scalar(name, value)
    sizes = [prod(tensor.shape) for tensor in sources.tensors.values()]
    type_ = index_type(count, *sizes)
    with text.block("PHASE(t)"):
        text.line(f"const {type_} i = ({type_})(BLOCK * {THREADS} + t);")
        with text.block(f"if (i < {bound or count})"):
            body(text, "i")
    return text.launch(stem, blocks(count))


def map_launch(sources: Sources, member: StepMember, value: int) -> Launch:
    """Return the launch that writes a result of a map."""
    tensor = sources.tensors[value]

    def body(text: Builder, index: str) -> None:
        element = member.rule.element
        assert element is not None
        made = element(Reading(text, member, value), index)
        text.write(sources.place(value), tensor.dtype, index, made)

    return elementwise_launch(sources, stem_of(member), prod(tensor.shape), body)


def stem_of(member: StepMember) -> str:
    """Return the start of the name of a kernel."""
    return "".join(c for c in member.signature.op.lower() if c.isascii() and c.isalnum())
