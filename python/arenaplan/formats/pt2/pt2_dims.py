"""Sizes as numbers, symbols, or small symbolic expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arenaplan.base.errors import UnboundDim, UnknownDim, fault
from arenaplan.base.formulas import evaluated, symbol_of, symbols_of
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.pt2.pt2_program import Size
from arenaplan.graph.ops import Shape
from arenaplan.graph.sizes import Bind, whole_number


class SymbolDims:
    """
    Numbers for a model's symbols.

    Expressions are PyTorch's, ``Add(Symbol('s0', integer=True), Integer(1))``, or plain, ``s0 +
    1``.

    Parameters
    ----------
    bind : mapping or None
        Numbers from the caller: by symbol, and whole shapes by input.
    declared : mapping
        Input sizes in the program, by name.
    """

    def __init__(self, bind: Bind | None, declared: Mapping[str, Sequence[Size]]) -> None:
        self._numbers: dict[str, int] = {}
        symbols = sorted(
            {
                symbol
                for sizes in declared.values()
                for size in sizes
                if isinstance(size, str)
                for symbol in symbols_of(size)
            }
        )
        for name, value in (bind or {}).items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                self._bind_shape(name, value, declared)
            elif name not in symbols:
                known = f"it has {listed(symbols)}" if symbols else "all are numbers"
                raise UnknownDim(
                    f"the model has no symbolic dimension {quoted(name)}; {known}", names=[name]
                )
            else:
                self._set(name, whole_number(value, f"the number bound to {quoted(name)}"))

    def _bind_shape(
        self, name: str, shape: Sequence[int], declared: Mapping[str, Sequence[Size]]
    ) -> None:
        """Record the numbers in an input's shape."""
        sizes = declared.get(name)
        if sizes is None:
            raise UnknownDim(
                f"the model has no input {quoted(name)}; it has {listed(declared)}", names=[name]
            )
        if len(sizes) != len(shape):
            raise fault(
                "DimConflict",
                f"input {quoted(name)} has {len(sizes)} dimensions, not {len(shape)}",
            )
        for size, value in zip(sizes, shape, strict=True):
            number = whole_number(value, f"a dimension bound for input {quoted(name)}")
            symbol = symbol_of(size) if isinstance(size, str) else None
            if symbol is not None:
                self._set(symbol, number)
            elif isinstance(size, int) and size != number:
                raise fault(
                    "DimConflict",
                    f"a dimension of input {quoted(name)} is {size}, and was bound to {number}",
                )

    def _set(self, symbol: str, number: int) -> None:
        """Record a symbol's number; a second, different number is an error."""
        if self._numbers.setdefault(symbol, number) != number:
            raise fault(
                "DimConflict",
                f"dimension {quoted(symbol)} was bound to {self._numbers[symbol]} and to {number}",
            )

    def shape(self, name: str, sizes: Sequence[Size]) -> Shape:
        """
        Return sizes as numbers.

        Raises
        ------
        UnboundDim
            If a symbol has no number, or a size is no number for any symbols.
        """
        return tuple(self._number(name, size) for size in sizes)

    def _number(self, name: str, size: Size) -> int:
        """Return a size as a number."""
        number = size if isinstance(size, int) else evaluated(size, self._numbers)
        if number is None:
            what = f"of tensor {quoted(name)}"
            for symbol in symbols_of(str(size)):
                if symbol not in self._numbers:
                    raise UnboundDim(
                        f"dimension {quoted(symbol)} {what} has no number; "
                        f"pass bind={{{symbol!r}: …}}",
                        dimension=symbol,
                    )
            raise UnboundDim(
                f"a dimension {what} is {quoted(str(size))}, which is not a size made of symbols "
                "by adding, multiplying, dividing and comparing"
            )
        if number < 0:
            raise fault("InvalidDim", f"tensor {quoted(name)} has the negative dimension {number}")
        return number
