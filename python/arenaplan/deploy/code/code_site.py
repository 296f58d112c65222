"""A node as seen by a lowering, and the texts that a lowering adds to the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from arenaplan.base.choices import CODE_KERNELS
from arenaplan.base.errors import UnsupportedOp
from arenaplan.deploy.code.code_kernels import KernelTexts
from arenaplan.deploy.code.code_text import Field, array, c_type, initializer
from arenaplan.run.numpy.registry import Signature, Step, Tensor, find_kernel
from arenaplan.run.numpy.tflite.tflite_facts import refused
from arenaplan.tflite.reader.code_walk import OWN_DOMAIN

MATH: Final = re.compile(r"\b(\w+f\(|INFINITY|NAN)")
"""What ``math.h`` declares."""
ROWS: Final = 1
"""The dimension of images ``(N, H, W, C)`` in which rows are counted."""

BAD_INDEX: Final = 2
"""Return code for a run with an index out of bounds."""
BAD_CALL: Final = 3
"""Return code for a run in which CMSIS-NN refuses operands."""


class Base(NamedTuple):
    """A value's memory: the whole value, or some rows."""

    pointer: str
    row: str
    """The row that is there first."""


class CodePlace(NamedTuple):
    """Where a value is."""

    memory: str
    """The arena, or the parameter."""
    offset: int


class Places(NamedTuple):
    """Places of a node's operands and results, if in writable memory."""

    inputs: Sequence[CodePlace | None]
    outputs: Sequence[CodePlace | None]


class CodePart(NamedTuple):
    """Result rows as C expressions, and the memory of operands and result."""

    start: str
    stop: str
    input: Callable[[int], Base]
    """Returns an operand's memory; weights become constants only then."""
    output: Callable[[], str]
    """Returns where row ``start`` goes."""


Emit: TypeAlias = Callable[[CodePart], list[str]]
"""Returns the statements that make some result rows."""


@dataclass(slots=True)
class Constants:
    """Constant arrays and structures, in flash memory."""

    written: list[Callable[[], str]] = field(default_factory=list)
    """Functions that return each constant's text; long texts are not always wanted."""
    size: int = 0
    """Bytes, with 32-bit pointers."""
    needs_math: bool = False
    """Whether a number is infinite or not a number, which C spells with macros of ``math.h``."""
    _names: dict[tuple[str, bytes], str] = field(default_factory=dict)
    """Names by type and digest of the bytes."""
    _taken: set[str] = field(default_factory=set)

    def name(self, wanted: str) -> str:
        """Return an identifier that is not used by a kernel, a C keyword, or another name."""
        name, count = f"k_{wanted}", 1
        while name in self._taken:
            count += 1
            name = f"k_{wanted}_{count}"
        self._taken.add(name)
        return name

    def texts(self) -> list[str]:
        """Return all texts."""
        return [text() for text in self.written]

    def array(self, wanted: str, data: np.ndarray) -> str:
        """Return an array's name; equal arrays share a name."""
        type_ = c_type(data.dtype)
        if type_ is None:
            raise UnsupportedOp(f"constant {wanted!r} has element type {data.dtype}, not one of C")
        data = np.ascontiguousarray(data)
        key = type_, blake2b(data.reshape(-1).view(np.uint8).data).digest()
        if key in self._names:
            return self._names[key]
        name = self._names[key] = self.name(wanted)
        self.written.append(partial(array, type_, name, data))
        self.size += data.nbytes
        self.needs_math |= data.dtype.kind == "f" and not np.isfinite(data).all()
        return name

    def structure(self, type_: str, wanted: str, fields: Mapping[str, Field]) -> str:
        """Return a structure's name."""
        name = self.name(wanted)
        lines = list(initializer(fields)) or ["  .unused = 0,"]
        text = "\n".join([f"static const struct {type_} {name} = {{", *lines, "};"])
        self.written.append(partial(str, text))
        self.needs_math |= MATH.search(text) is not None
        self.size += 4 * _words(fields)
        return name


def _words(fields: Mapping[str, Field]) -> int:
    """Return a structure's size in four-byte words on a 32-bit processor."""
    count = 0
    for value in fields.values():
        if isinstance(value, Mapping):
            count += _words(value)
        elif isinstance(value, (int, float, str)):
            count += 1
        else:
            count += len(value)
    return count


@dataclass(frozen=True, slots=True)
class CodeSite:
    """A node that is turned into calls."""

    signature: Signature
    label: str
    """A unique C name."""
    kernels: KernelTexts
    constants: Constants
    pointer_to: Callable[[int], str | None]
    """Returns the pointer to a complete result; ``None`` if left out."""
    places: Places

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.signature.op

    def input(self, position: int) -> Tensor:
        """Return the shape and type of a required input."""
        tensor = self.signature.input(position)
        if tensor is None:
            raise refused(self.signature, f"input {position} is left out")
        return tensor

    @property
    def output(self) -> Tensor:
        """Shape and type of output 0."""
        tensor = self.signature.outputs[0] if self.signature.outputs else None
        if tensor is None:
            raise refused(self.signature, "it has no result")
        return tensor

    def refuse(self, why: str) -> UnsupportedOp:
        """Return the error for a node that has no kernel."""
        return refused(self.signature, why)

    def executed(
        self, given: Mapping[int, np.ndarray], outputs: Sequence[Tensor | None]
    ) -> list[np.ndarray | None]:
        """Return what the executor's kernel makes of arrays; all other operands are constants."""
        signature = self.signature
        inputs = [
            given[at] if at in given else signature.constant_data(at)
            for at in range(len(signature.inputs))
        ]
        own = replace(
            signature,
            inputs=tuple(
                Tensor(given[at].shape, given[at].dtype) if at in given else tensor
                for at, tensor in enumerate(signature.inputs)
            ),
            outputs=tuple(outputs),
            constant=tuple(
                None if x is None or at in given else partial(np.asarray, x)
                for at, x in enumerate(inputs)
            ),
        )
        results = [None if y is None else np.zeros(y.shape, y.dtype) for y in outputs]
        try:
            run = find_kernel(own).prepare(Step(own, tuple(inputs), tuple(results), ()))
        except ValueError as error:
            raise self.refuse("its operands do not fit each other") from error
        if run is not None:
            run()
        return results

    def distance(self, source: int, made: int, begins: tuple[int, int]) -> int | None:
        """Return the bytes from an output's to an input's bytes; ``None`` in two memories."""
        x, y = self.places.inputs[source], self.places.outputs[made]
        if x is None or y is None or x.memory != y.memory:
            return None
        return x.offset + begins[0] - y.offset - begins[1]

    def use(self, template: str, words: Mapping[str, str] | None = None, name: str = "") -> None:
        """Add a kernel to the program."""
        self.kernels.use(template, words, name)

    def constant(self, role: str, data: np.ndarray) -> str:
        """Add an array."""
        return self.constants.array(f"{self.label}_{role}", data)

    def structure(self, type_: str, fields: Mapping[str, Field]) -> str:
        """Add a structure; return the structure's address."""
        return f"&{self.constants.structure(type_, self.label, fields)}"

    @property
    def rows(self) -> int:
        """Rows of the result; 1 where a node only sets a state."""
        shape = self.output.shape if self.signature.outputs else ()
        return shape[ROWS] if len(shape) == 4 else 1

    @property
    def row_numbers(self) -> int:
        """Numbers in a row, for all images of the result."""
        return prod(self.output.shape) // max(self.rows, 1)


def scaled_by(rows: str, numbers: int) -> str:
    """Return an expression for rows times numbers per row."""
    if rows.lstrip("-").isdigit():
        return str(int(rows) * numbers)
    return rows if numbers == 1 else f"({rows}) * {numbers}"


def difference(stop: str, start: str) -> str:
    """Return an expression for a row count."""
    if stop.isdigit() and start.isdigit():
        return str(int(stop) - int(start))
    return stop if start == "0" else f"{stop} - {start}"


def at_row(base: Base, row: str, numbers: int) -> str:
    """Return the pointer to a row of a value."""
    rows = scaled_by(difference(row, base.row), numbers)
    return base.pointer if rows == "0" else f"{base.pointer} + {rows}"


def pointer(part: CodePart, position: int) -> str:
    """Return the pointer to an input that is there as a whole."""
    return part.input(position).pointer


Lowering: TypeAlias = Callable[[CodeSite], Emit]
LOWERINGS: dict[str, Lowering] = {}
"""Functions that turn TFLite nodes into calls, by operator."""
ONNX_LOWERINGS: dict[str, Lowering] = {}
"""The same for nodes in ONNX's default domain."""
OWN_LOWERINGS: dict[str, Lowering] = {}
"""The same for nodes that no model has."""
CMSIS_LOWERINGS: dict[str, Lowering] = {}
"""The same for TFLite nodes that call CMSIS-NN."""
DOMAINS: Final[dict[str, dict[str, Lowering]]] = {
    "tflite": LOWERINGS,
    "": ONNX_LOWERINGS,
    OWN_DOMAIN: OWN_LOWERINGS,
    **dict.fromkeys(CODE_KERNELS[1:], CMSIS_LOWERINGS),
}


def lowers(*names: str, table: dict[str, Lowering] = LOWERINGS) -> Callable[[Lowering], Lowering]:
    """Register a lowering."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            table[name] = function
        return function

    return register


def words_of(dtype: np.dtype[Any]) -> dict[str, str]:
    """Return the template words for an element type."""
    return dict(_WORDS[str(dtype)])


_WORDS: Final = {
    "int8": {"KIND": "s8", "NUMBER": "int8_t", "LOW": "-128", "HIGH": "127"},
    "uint8": {"KIND": "u8", "NUMBER": "uint8_t", "LOW": "0", "HIGH": "255"},
    "bool": {"KIND": "b8", "NUMBER": "uint8_t", "LOW": "0", "HIGH": "1"},
    "int16": {"KIND": "s16", "NUMBER": "int16_a", "LOW": "-32768", "HIGH": "32767"},
    "int32": {"KIND": "s32", "NUMBER": "int32_a", "LOW": "INT32_MIN", "HIGH": "INT32_MAX"},
    "int64": {"KIND": "s64", "NUMBER": "int64_a", "LOW": "INT64_MIN", "HIGH": "INT64_MAX"},
    "float32": {"KIND": "f32", "NUMBER": "real_a", "LOW": "0", "HIGH": "0"},
}
