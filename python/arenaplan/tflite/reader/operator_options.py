"""Operator options as comparable values, with a description of every known options table."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from arenaplan.tflite.reader.flatbuffer import Table

Value: TypeAlias = "int | str | tuple[int, ...] | None"

_FIELDS: Final = """
    1 b i i b i1 i1 b|2 b i i i b i1 i1|3 i I* I*|4 b|5 b i i i i b|6 i b ?|7 b ?|8 b b ? ? b B*
    9 f|10 i b|11 b ?1|12 b|13 i f f f|14 b f f b ?|15 i i ? ?|16 I|17 I*|18 i i ?|19 i|20 b|21 b
    22|23 i i|24|25|26|27 ?|28 b ?1|29 b|30 I*|31 ? b ?|32 i i i i i ?|33|34|35 i|36|37 b b|38|39
    40 b|41|42|43|44|45|46|47|48|49 b i i b b|50 ?|51|52|53|54|55 b|56|57 b|58 f f i ?|59 i i|60
    61 i|62|63|64 i i|65|66|67|68|69 b f f ? ?1 ?|70 ? b ? ?|71 b f f ? ? ?|72|73|74 ? ?|75 f|76
    77 b|78|79 i|80 b2|81|82|83|84|85|86|87 i i|88|89|90|91|92 i i|93 i i|94 i|95|96|97|98|99|100
    101 ? ? ?|102 ? ?|103 i|104|105|106 b i i i b i1 i1 i1|107 i b b|108|109|110|111 s s|112|113
    114 q q|115 I*|116 ?|117|118|119|120|121|122|123|124|125|126
"""
"""
Fields by options type, in slot order, with the type numbers of TensorFlow Lite's schema: codes as
in :mod:`struct` (``?`` is a byte), a default other than 0, ``*`` for a vector, ``s`` for text.
"""


class _Field(NamedTuple):
    """A field in an options table."""

    code: str
    default: int
    is_vector: bool


def _read(text: str) -> dict[int, tuple[_Field, ...]]:
    """Return the fields by options type."""
    found = {}
    for line in text.strip().replace("\n", "|").split("|"):
        kind, *fields = line.split()
        found[int(kind)] = tuple(
            _Field(field[0], int(field[1:].strip("*") or 0), field.endswith("*"))
            for field in fields
        )
    return found


_TABLES: Final = _read(_FIELDS)

_NAMES: Final = """
    CONV_2D 1 padding stride_w stride_h fused_activation dilation_w dilation_h quantized_bias_type
    | DEPTHWISE_CONV_2D 2 padding stride_w stride_h depth_multiplier fused_activation dilation_w
      dilation_h
    | AVERAGE_POOL_2D,L2_POOL_2D,MAX_POOL_2D 5 padding stride_w stride_h filter_width filter_height
      fused_activation
    | SVDF 6 rank fused_activation
    | FULLY_CONNECTED 8 fused_activation weights_format keep_num_dims asymmetric_quantize_inputs
      quantized_bias_type
    | SOFTMAX 9 beta | CONCATENATION 10 axis fused_activation | ADD 11 fused_activation
    | L2_NORMALIZATION 12 fused_activation | RESIZE_BILINEAR 15 - - align_corners half_pixel_centers
    | SPACE_TO_DEPTH 19 block_size | MUL 21 fused_activation | GATHER 23 axis batch_dims
    | MEAN,REDUCE_ALL,REDUCE_MAX,REDUCE_MIN,SUM 27 keep_dims | SUB 28 fused_activation
    | DIV 29 fused_activation
    | STRIDED_SLICE 32 begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask offset
    | TRANSPOSE_CONV 49 padding stride_w stride_h fused_activation quantized_bias_type
    | PACK 59 - axis | UNPACK 64 - axis
    | UNIDIRECTIONAL_SEQUENCE_LSTM 71 fused_activation cell_clip proj_clip time_major
    | RESIZE_NEAREST_NEIGHBOR 74 align_corners half_pixel_centers | LEAKY_RELU 75 alpha
    | MIRROR_PAD 77 mode | IF 92 | WHILE 93 | DEPTH_TO_SPACE 94 block_size
    | BATCH_MATMUL 101 adj_x adj_y | CUMSUM 102 exclusive reverse | CALL_ONCE 103 | VAR_HANDLE 111
"""
"""
Operators whose options are read: the required options type, and the names of options that are node
attributes, by slot; ``-`` is none.
"""
_READ: Final = {
    operator: (int(kind), tuple(names))
    for row in _NAMES.split("|")
    for operators, kind, *names in (row.split(),)
    for operator in operators.split(",")
}


class OperatorOptions(NamedTuple):
    """An operator's options. Equal options make equal kernels."""

    kind: int = 0
    """Options type, 0 for none."""
    fields: tuple[Value, ...] = ()
    """Values by slot, with defaults for absent fields; floats as bits."""
    is_known: bool = True
    """Whether the type and all fields in the file are known."""

    def number(self, slot: int) -> int:
        """Return a field that is a number; 0 where the options have no such field."""
        value = self.fields[slot] if slot < len(self.fields) else 0
        return value if isinstance(value, int) else 0

    def text(self, slot: int) -> str:
        """Return a field that is text; empty where the options have no such field."""
        value = self.fields[slot] if slot < len(self.fields) else ""
        return value if isinstance(value, str) else ""

    def without(self, slot: int) -> OperatorOptions:
        """Return the options without one field."""
        return self._replace(fields=(*self.fields[:slot], None, *self.fields[slot + 1 :]))

    def named(self, operator: str) -> dict[str, float]:
        """Return an operator's options that are node attributes, by name."""
        kind, names = _READ.get(operator, (0, ()))
        found: dict[str, float] = {}
        for slot, name in enumerate(names):
            if name != "-":
                is_float = _TABLES[kind][slot].code == "f"
                number = self.number(slot)
                found[name] = float_of(number) if is_float else number
        return found


def float_of(bits: int) -> float:
    """Return a 32-bit float."""
    number: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return number


def required_kind(operator: str) -> int | None:
    """Return the required options type of an operator whose options are read."""
    return _READ[operator][0] if operator in _READ else None


def decoded(kind: int, table: Table | None) -> OperatorOptions:
    """
    Return options as values.

    Parameters
    ----------
    kind : int
        Options type.
    table : Table or None
        The table, if the file has one.
    """
    fields = _TABLES.get(kind, ())
    values: tuple[Value, ...]
    if table is None:
        values = tuple(None if f.is_vector else f.default for f in fields)
        return OperatorOptions(kind, values, kind == 0 or kind in _TABLES)
    more = range(len(fields), table.slots)
    is_known = kind in _TABLES and not any(slot in table for slot in more)
    values = tuple(_value(table, slot, field) for slot, field in enumerate(fields))
    return OperatorOptions(kind, values, is_known)


def _value(table: Table, slot: int, field: _Field) -> Value:
    """Return a field's value."""
    if field.code == "s":
        return table.string(slot)
    if field.is_vector:
        return table.numbers(slot, "i" if field.code == "I" else field.code)
    code = {"?": "B", "f": "I"}.get(field.code, field.code)
    return table.number(slot, code, field.default)
