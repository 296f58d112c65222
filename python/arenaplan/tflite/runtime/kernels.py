"""
Memory that reference kernels request in TensorFlow Lite Micro.

A kernel requests memory twice: on initialization, for kernel data, and on preparation, for
permanent tables, for scratch memory in each run, and for tensor descriptions that live until
preparation ends. The tables below come from the kernels in
https://github.com/tensorflow/tflite-micro as of August 2026, and
``tests/python/test_tflm_kernels.py`` compares each operator with the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, Literal, NamedTuple, TypeAlias

from arenaplan.graph.ops import BITS
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator, TfliteTensor
from arenaplan.tflite.runtime.struct_layout import struct
from arenaplan.tflite.runtime.structures import EVAL_TENSOR

_INTS: Final = ("int8", "int16")
_MOST: Final = 2**31 - 1
"""Largest request, in bytes."""


class KernelRequest(NamedTuple):
    """A kernel's request; requests are in order."""

    kind: Literal["keep", "scratch", "describe", "temporary"]
    """
    ``keep``: permanent. ``scratch``: during each run. ``describe``: a tensor description, until the
    kernel is prepared. ``temporary``: other bytes until then.
    """
    amount: int
    """Bytes; for ``describe``, the tensor's position in the subgraph."""


@dataclass(slots=True)
class KernelSite:
    """A model's operator, and the requests of its kernel so far."""

    model: TfliteModel
    subgraph: int
    operator: TfliteOperator
    pointer: int
    compression: bool
    requests: list[KernelRequest] = field(default_factory=list)

    def tensor(self, place: str) -> int | None:
        """Return the tensor at a place: ``i0`` is the first input, ``o0`` the first output."""
        operands = {
            "i": self.operator.inputs,
            "o": self.operator.outputs,
            "m": self.operator.intermediates,
        }[place[0]]
        index = int(place[1:])
        return operands[index] if index < len(operands) else None

    def get(self, place: str) -> TfliteTensor:
        """Return a tensor that the kernel needs."""
        index = self.tensor(place)
        if index is None:
            raise LookupError(place)
        return self.model.subgraphs[self.subgraph].tensors[index]

    def has(self, place: str) -> bool:
        """Whether there is a tensor at a place."""
        return self.tensor(place) is not None

    def is_constant(self, place: str) -> bool:
        """Whether a tensor's data is part of the file."""
        return self.model.is_constant(self.get(place))

    def shape(self, place: str) -> tuple[int, ...]:
        """Return a tensor's shape, as stored."""
        shape = tuple(self.get(place).shape or ())
        if any(length < 0 for length in shape):
            raise ValueError(shape)
        return shape

    def count(self, place: str) -> int:
        """Return a tensor's number of elements."""
        return prod(self.shape(place))

    def dtype(self, place: str) -> str:
        """Return a tensor's element type."""
        return DTYPES.get(self.get(place).type, "")

    def keep(self, amount: int) -> None:
        """Ask for bytes for good."""
        self.requests.append(KernelRequest("keep", _checked(amount)))

    def keep_struct(self, layout: str) -> None:
        """Ask for a structure for good."""
        self.keep(struct(layout, self.pointer, compression=self.compression).size)

    def scratch(self, amount: int) -> None:
        """Ask for bytes during each run."""
        self.requests.append(KernelRequest("scratch", _checked(amount)))

    def describe(self, places: str) -> None:
        """Request descriptions for the tensors at places, skipping absent tensors."""
        for place in places.split():
            if place[1:] == "*":
                count = len(self.operator.inputs if place[0] == "i" else self.operator.outputs)
                self.describe(" ".join(f"{place[0]}{index}" for index in range(count)))
                continue
            index = self.tensor(place)
            if index is not None:
                self.requests.append(KernelRequest("describe", index))


def _checked(amount: int) -> int:
    """Refuse an impossible request."""
    if not 0 <= amount <= _MOST:
        raise ValueError(amount)
    return amount


Preparation: TypeAlias = Callable[[KernelSite], None]


class Requests(NamedTuple):
    """A kernel's requests, in order."""

    initial: tuple[KernelRequest, ...]
    """On initialization."""
    prepared: tuple[KernelRequest, ...]
    """On preparation."""


class RuntimeKernel(NamedTuple):
    """A kernel's requests."""

    data: str
    """Layout of the kernel data; empty without kernel data."""
    prepare: Preparation | str
    """The preparation; a text if the kernel only describes tensors at these places."""
    initialize: Preparation | None = None
    """Further requests on initialization, after the kernel data."""
    is_compared: bool = True
    """Whether the row was compared with the runtime; other rows come from the sources only."""


# -- kernels that ask for more than descriptions --------------------------------------------------


def keep_channels(site: KernelSite, count: int) -> None:
    """Keep a multiplier and a shift per channel."""
    site.keep(4 * count)
    site.keep(4 * count)


def _conv(site: KernelSite) -> None:
    site.describe("o0 i0 i1")
    keep_channels(site, site.shape("i1")[0])
    site.describe("i0 i1 i2 o0")
    _unpacked(site)


def _depthwise_conv(site: KernelSite) -> None:
    site.describe("o0 i0 i1")
    keep_channels(site, site.shape("i1")[3])
    _unpacked(site)
    site.describe("i0 i1 i2 o0")


def _unpacked(site: KernelSite) -> None:
    """Unpack 4-bit weights into bytes."""
    if site.dtype("i1") == "int4":
        site.scratch(site.count("i1"))


def _fully_connected(site: KernelSite) -> None:
    site.describe("i0 i1 i2 o0")
    _unpacked(site)
    keep_fully_connected(site)


def keep_fully_connected(site: KernelSite) -> None:
    """Keep multipliers and shifts for weights with a scale per channel."""
    if site.dtype("i0") == "float32":
        return
    quantization = site.get("i1").quantization
    if quantization is not None and len(quantization.scale) > 1:
        keep_channels(site, len(quantization.scale))


def _transpose_conv(site: KernelSite) -> None:
    site.describe("o0 i2 i1")
    keep_channels(site, site.shape("i1")[0])
    dtype = site.dtype("i2")
    if dtype in _INTS:
        site.scratch(site.count("o0") * (4 if dtype == "int8" else 8))
    if dtype != "float32":
        site.describe("i2 i1 i3 o0")
        if dtype == "int16" and site.has("i3") and site.dtype("i3") == "int16":
            site.scratch(8 * site.count("i3"))


def prepare_svdf(site: KernelSite) -> None:
    """Request memory for a run's products."""
    site.describe("i0 i1 i2 i3 i4 o0")
    batch, filters = site.shape("i0")[0], site.shape("i1")[0]
    site.scratch(4 * batch * filters)
    if site.dtype("i0") == "int8":
        site.scratch(4 * batch * site.shape("o0")[1])


def _batch_matmul(site: KernelSite) -> None:
    site.describe("i0 i1 o0")
    if site.dtype("i0") in _INTS:
        site.keep_struct("7i")
    keep_transposed(site)
    keep_shape(site)


def keep_transposed(site: KernelSite) -> None:
    """Keep matrices that the kernel transposes."""
    is_first, is_second = map(site.operator.options.number, (0, 1))
    for place, transposed in (("i0", is_first), ("i1", not is_second)):
        if transposed:
            site.keep_struct(EVAL_TENSOR)
            site.keep(4 * (1 + len(site.shape(place))))
            site.keep(site.count(place) * BITS[site.dtype(place)] // 8)


def keep_shape(site: KernelSite) -> None:
    """Keep a copy of the result's shape, which the kernel may change."""
    site.keep(4 * (1 + len(site.shape("o0"))))


def _with_own_shape(places: str) -> Preparation:
    def prepare(site: KernelSite) -> None:
        site.describe(places)
        keep_shape(site)

    return prepare


def _lstm(site: KernelSite) -> None:
    size, batch = describe_lstm(site)
    for _ in range(4):
        site.scratch(batch * size * BITS[site.dtype("i19")] // 8)


def describe_lstm(site: KernelSite) -> Sequence[int]:
    """Describe all LSTM tensors; return the state size and the batch size."""
    site.describe(" ".join(f"i{index}" for index in range(24)) + " o0")
    is_time_major = site.operator.options.number(3)
    return site.shape("i18")[1], site.shape("i0")[1 if is_time_major else 0]


def _reduce_extreme(site: KernelSite) -> None:
    _describe_reduction(site)
    site.scratch(4 * len(site.shape("i0")))
    site.scratch(4 * site.count("i1"))


def _describe_reduction(site: KernelSite) -> None:
    """Describe the tensors twice, as the kernels do; the result again for bytes only."""
    site.describe("i0 o0 i1")
    site.describe("i0 i1 o0" if site.dtype("i0") == "int8" else "i0 i1")


def _reduce_sum(site: KernelSite) -> None:
    _describe_reduction(site)
    if site.dtype("i0") in _INTS:
        site.scratch(4 * site.count("o0"))
    site.scratch(4 * len(site.shape("i0")))
    site.scratch(4 * site.count("i1"))


def _softmax(site: KernelSite) -> None:
    site.describe("i0 o0")
    if site.dtype("i0") == "int16":
        # Tables with 513 exponentials and 513 reciprocals.
        site.keep(2 * 513)
        site.keep(2 * 513)


def _log_softmax(site: KernelSite) -> None:
    site.describe("i0 o0")
    if site.dtype("i0") == "int8":
        site.keep_struct("5i 2p")


def _add_n(site: KernelSite) -> None:
    site.describe("i0 o0")
    count = len(site.operator.inputs)
    for index in range(1, count):
        site.describe(f"i{index}")
    if site.dtype("o0") == "int8":
        site.keep_struct("10i")
    site.scratch(site.pointer // 8 * count)


def _mirror_pad(site: KernelSite) -> None:
    site.describe("i0 i1 o0")
    for _ in range(2):
        site.scratch(4 * len(site.shape("i0")))


def _cumsum(site: KernelSite) -> None:
    site.describe("i0 i1 o0")
    if site.dtype("o0") == "int8":
        site.keep_struct("9i")


def _embedding_lookup(site: KernelSite) -> None:
    site.describe("i0 i1 o0")
    keep_shape(site)
    site.keep_struct("i p")


def _reshape(site: KernelSite) -> None:
    site.describe("i0 o0")
    shape = site.get("o0").shape or ()
    if -1 in shape:
        site.keep(4 * (1 + len(shape)))


_ARITHMETIC: Final = "[b 14i 2d 2h 5i]"
_PRODUCTS: Final = "[9i 3b]"
LSTM: Final = f"[b 4i] [i h i] i {8 * _PRODUCTS} [{3 * _ARITHMETIC}] 4i"
"""Kernel data of ``UNIDIRECTIONAL_SEQUENCE_LSTM``."""

_ROWS: Final[tuple[tuple[str, Preparation | str, str], ...]] = (
    ("4i b 2i", "i0 o0", "ABS RSQRT"),
    ("b 14i", "i0 i1 o0", "ADD"),
    ("", _add_n, "ADD_N"),
    ("", "", "ARG_MAX ARG_MIN FLOOR LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM NEG PACK SHAPE UNPACK"),
    ("?i", "i1", "ASSIGN_VARIABLE"),
    ("8i", "i0 o0", "AVERAGE_POOL_2D MAX_POOL_2D"),
    ("3p 3b", _batch_matmul, "BATCH_MATMUL"),
    (
        "",
        "i0 o0",
        "BATCH_TO_SPACE_ND CAST CEIL COS EXP LOG LOGICAL_NOT ROUND SIN SQRT SQUARE "
        "SQUEEZE ZEROS_LIKE",
    ),
    (
        "",
        "i0 i1 o0",
        "BROADCAST_ARGS BROADCAST_TO EXPAND_DIMS FILL FLOOR_DIV FLOOR_MOD RESIZE_BILINEAR "
        "RESIZE_NEAREST_NEIGHBOR REVERSE_V2 TRANSPOSE",
    ),
    ("i b", "", "CALL_ONCE"),
    ("i 2p 3i ?10i", "i0 o0 i*", "CONCATENATION"),
    ("9i 2p 3i ?2i", _conv, "CONV_2D"),
    ("", _cumsum, "CUMSUM"),
    ("9i 2p 3i ?2i", _depthwise_conv, "DEPTHWISE_CONV_2D"),
    ("", _with_own_shape("i0 o0"), "DEPTH_TO_SPACE SPACE_TO_DEPTH"),
    ("[d i] 3i", "i0 o0", "DEQUANTIZE"),
    ("7i", "i0 i1 o0", "DIV PRELU"),
    ("", "i0 i1 i2 o0", "DYNAMIC_UPDATE_SLICE SLICE"),
    ("256b", "i0 o0", "ELU"),
    ("", _embedding_lookup, "EMBEDDING_LOOKUP"),
    ("7i b", "i0 i1", "EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL NOT_EQUAL"),
    ("9i 2p b ?2i", _fully_connected, "FULLY_CONNECTED"),
    ("", _with_own_shape("i0 i1 o0"), "GATHER GATHER_ND"),
    ("3h i h i", "i0 o0", "HARD_SWISH"),
    ("2i", "i0", "IF RELU6"),
    ("i", "i0 o0", "L2_NORMALIZATION SPACE_TO_BATCH_ND"),
    ("", _with_own_shape("o0 i0"), "L2_POOL_2D"),
    ("6i", "i0 o0", "LEAKY_RELU"),
    ("4i", "i0 o0", "LOGISTIC"),
    ("", _log_softmax, "LOG_SOFTMAX"),
    ("11i", _reduce_sum, "MEAN SUM"),
    ("5i", _mirror_pad, "MIRROR_PAD"),
    ("9i", "i0 i1 o0", "MUL"),
    ("[b 5i b 5i b] i", "i0 i1 i2 o0", "PAD PADV2"),
    ("[i d] 3i", "i0 o0", "QUANTIZE"),
    ("", "i0", "READ_VARIABLE SPLIT"),
    ("11i", _reduce_extreme, "REDUCE_ALL REDUCE_MAX REDUCE_MIN"),
    ("7i", "i0 o0", "RELU"),
    ("", _reshape, "RESHAPE"),
    ("b", "i0 i1 i2 o0", "SELECT_V2"),
    ("d 7i 5p", _softmax, "SOFTMAX"),
    ("", "i2", "SPLIT_V"),
    (f"b {_ARITHMETIC}", "i0 i1 o0", "SQUARED_DIFFERENCE"),
    ("b 5i b 5i b 5i 5h b", "i0 i1 i2 i3 o0", "STRIDED_SLICE"),
    ("b 12i", "i0 i1 o0", "SUB"),
    ("9i", prepare_svdf, "SVDF"),
    ("4i", "i0 i0 o0", "TANH"),
    ("[b 8h 9i] i ?2i i 2p", _transpose_conv, "TRANSPOSE_CONV"),
    (LSTM, _lstm, "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    ("i", "", "VAR_HANDLE"),
    ("2i", "", "WHILE"),
)
"""Layout of the kernel data, preparation, and the operators whose kernels have both."""
KERNELS: Final[Mapping[str, RuntimeKernel]] = {
    name: RuntimeKernel(data, prepare) for data, prepare, names in _ROWS for name in names.split()
}
"""The reference kernels, by operator name."""


def requests_of(kernel: RuntimeKernel, site: KernelSite) -> Requests | None:
    """Return a kernel's requests at a site; ``None`` if the operator lacks a required operand."""
    try:
        if kernel.data and struct(kernel.data, site.pointer, compression=site.compression).size:
            site.keep_struct(kernel.data)
        if kernel.initialize is not None:
            kernel.initialize(site)
        initial, site.requests = tuple(site.requests), []
        if isinstance(kernel.prepare, str):
            site.describe(kernel.prepare)
        else:
            kernel.prepare(site)
    except (LookupError, ValueError):
        # No runtime would prepare this operator.
        return None
    return Requests(initial, tuple(site.requests))
