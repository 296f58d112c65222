"""Operator options as comparable values, with a description of every known options table."""

from __future__ import annotations

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


class OperatorOptions(NamedTuple):
    """An operator's options. Equal options make equal kernels."""

    kind: int
    """Options type, 0 for none."""
    fields: tuple[Value, ...]
    """Values by slot, with defaults for absent fields; floats as bits."""

    def number(self, slot: int) -> int:
        """Return a field that is a number; 0 where the options have no such field."""
        value = self.fields[slot] if slot < len(self.fields) else 0
        return value if isinstance(value, int) else 0

    def without(self, slot: int) -> OperatorOptions:
        """Return the options without one field."""
        return OperatorOptions(self.kind, (*self.fields[:slot], None, *self.fields[slot + 1 :]))


def decoded(kind: int, table: Table | None) -> OperatorOptions | None:
    """
    Return options as values.

    Parameters
    ----------
    kind : int
        Options type.
    table : Table or None
        The table, if the file has one.

    Returns
    -------
    Options or None
        ``None`` if the type or any field in the table is unknown.
    """
    if kind == 0:
        return OperatorOptions(0, ()) if table is None else None
    fields = _TABLES.get(kind)
    if fields is None:
        return None
    if table is None:
        return OperatorOptions(kind, tuple(None if f.is_vector else f.default for f in fields))
    if any(slot in table for slot in range(len(fields), table.slots)):
        return None
    return OperatorOptions(
        kind, tuple(_value(table, slot, field) for slot, field in enumerate(fields))
    )


def _value(table: Table, slot: int, field: _Field) -> Value:
    """Return a field's value."""
    if field.code == "s":
        return table.string(slot)
    if field.is_vector:
        return table.numbers(slot, "i" if field.code == "I" else field.code)
    code = {"?": "B", "f": "I"}.get(field.code, field.code)
    return table.number(slot, code, field.default)
