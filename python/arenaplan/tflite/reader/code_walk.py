"""
The graph for generated C code: the executor's graph, with the generated kernels' effects.

Convolutions include the padding before them, and image nodes have windows over rows, so a plan may
run image nodes strip by strip. A generated kernel computes element by element, and reads an
element's window before writing the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from arenaplan.base.errors import UnsupportedModel
from arenaplan.graph import Effects, Graph, Overlap, Window
from arenaplan.graph.ops import BITS, Operands, Pixelwise
from arenaplan.graph.sizes import Bind
from arenaplan.tflite.reader.runnable import RunnableWalk
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator
from arenaplan.tflite.reader.tflite_operators import (
    ELEMENTWISE,
    FIRST_OPERAND,
    TfliteOperand,
    canonical,
)
from arenaplan.tflite.reader.tflite_tensors import array

_ROWS: Final = 1
"""The dimension of images ``(N, H, W, C)`` in which rows are counted."""
_VALID: Final = 1
_CONVOLUTIONS: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
_PADS: Final = frozenset({"PAD", "PADV2"})


OWN_DOMAIN, STREAMED = "arenaplan", "Rows"
"""Domain and operator for nodes that request image rows from the caller."""


def streamed_values(graph: Graph) -> list[int]:
    """Return the images that the caller gives row by row."""
    nodes = (node for node in graph.nodes if (node.domain, node.op) == (OWN_DOMAIN, STREAMED))
    return [value for node in nodes for value in node.outputs if value is not None]


def streamed(graph: Graph) -> Graph:
    """
    Return a model's graph with images given row by row.

    Raises
    ------
    UnsupportedModel
        If no input is a single image from a TFLite model.
    """
    made = graph.for_target("c-code-rows")
    if not streamed_values(made):
        raise UnsupportedModel(
            "option stream_input: rows are those of an input (1, height, width, channels) of a "
            ".tflite model, and this model has none"
        )
    return made


class PaddingBefore(NamedTuple):
    """Padding rows and columns before an image."""

    rows: int
    columns: int


class CodeWalk(RunnableWalk):
    """
    Reads a model's main subgraph for generated code.

    Parameters
    ----------
    streams : bool, default False
        Whether input images are requested row by row.
    """

    def __init__(
        self, model: TfliteModel, name: str, bind: Bind | None, *, streams: bool = False
    ) -> None:
        super().__init__(model, name, bind)
        self._streams = streams
        self._padding: dict[int, PaddingBefore] = {}
        """Padding by tensor that no node makes."""

    def inside(self, place: Any) -> RunnableWalk:
        """Return the walk over a subgraph that an operator in this walk runs."""
        return RunnableWalk(self._model, "", None, place)

    def _declare(self, index: int, *, is_input: bool = False) -> int:
        shape = self._shapes.of(index)
        is_image = len(shape) == 4 and shape[0] == 1 and 0 not in shape
        if not (is_input and self._streams and is_image):
            return super()._declare(index, is_input=is_input)
        value = super()._declare(index)
        # Rows of a node follow an operand's rows; a constant has no writable memory.
        numbers = np.zeros((1, shape[_ROWS], 1, 1), np.uint8)
        rows = self._graph.constant(
            f"rows of {self._names[index]}", numbers.shape, "uint8", numbers
        )
        self._graph.append(
            STREAMED,
            (rows,),
            (value,),
            name=f"rows of {self._names[index]}",
            effects=Effects(windows=(Window(0, 0, _ROWS),)),
            domain=OWN_DOMAIN,
        )
        return value

    def _fold(self, operator: TfliteOperator) -> bool:
        """Also fold padding into convolutions, besides the executor's folds."""
        if super()._fold(operator):
            return True
        before = self._padded_by_readers(operator)
        if before is None:
            return False
        source, made = operator.inputs[0], operator.outputs[0]
        assert source is not None
        assert made is not None
        self._values[made] = self._value(source)
        self._operands[made] = self._operands[source]
        self._padding[made] = before
        return True

    def _padded_by_readers(self, operator: TfliteOperator) -> PaddingBefore | None:
        """Return an operator's padding, if all readers can pad by themselves."""
        main = self._main
        if operator.is_custom or operator.name not in _PADS or not 2 <= len(operator.inputs) <= 3:
            return None
        source, amounts, *fill = operator.inputs
        made = operator.outputs[0] if len(operator.outputs) == 1 else None
        if source is None or amounts is None or made is None or made in main.outputs:
            return None
        readers = [other for other in main.operators if made in other.inputs]
        if not readers or not all(self._pads_itself(reader, made) for reader in readers):
            return None
        self._value(source), self._value(amounts)
        numbers, shape = self._operands[amounts].numbers, self._operands[source].shape
        if numbers is None or len(shape) != 4 or len(numbers) != 8 or min(numbers) < 0:
            return None
        if any(numbers[at] for at in (0, 1, 6, 7)) or not self._is_blank(made, fill):
            return None
        if self._operands[source].is_fixed or source in self._padding:
            return None
        return PaddingBefore(numbers[2], numbers[4])

    def _pads_itself(self, reader: TfliteOperator, made: int) -> bool:
        """Whether an operator is a convolution whose tensor has no padding yet."""
        return (
            reader.name in _CONVOLUTIONS
            and not reader.is_custom
            and reader.options.number(0) == _VALID
            and reader.inputs[0] == made
            and made not in reader.inputs[1:]
        )

    def _is_blank(self, made: int, fill: Sequence[int | None]) -> bool:
        """Whether padding has the number that stands for 0."""
        tensor = self._main.tensors[made]
        known = tensor.quantization
        zero = known.zero_point[0] if known is not None and known.zero_point else 0
        if not fill or fill[0] is None:
            return True
        filler = self._main.tensors[fill[0]]
        if not self._model.is_constant(filler):
            return False
        self._value(fill[0])
        operand = self._operands[fill[0]]
        data = array(self._model, filler, operand.shape, operand.dtype)
        return data is not None and data.size == 1 and bool(np.all(data == zero))

    def _attributes(self, operator: TfliteOperator) -> dict[str, Any]:
        """Add the folded PAD's padding."""
        attributes = dict(super()._attributes(operator))
        image = operator.inputs[0] if operator.inputs else None
        if image in self._padding:
            attributes["before"] = list(self._padding[image])
        return attributes

    # -- effects ---------------------------------------------------------------------------------

    def _effects(self, operator: TfliteOperator) -> Effects:
        effects = super()._effects(operator)
        if operator.is_custom or len(operator.outputs) != 1 or not operator.inputs:
            return effects
        inputs, outputs = self._sides(operator)
        known, y = canonical(operator, inputs, outputs), outputs[0]
        if inputs[0] is None or y is None:
            return effects
        if isinstance(known, Pixelwise):
            rows, columns = known.rows, known.columns
            if operator.inputs[0] in self._padding:
                before = self._padding[operator.inputs[0]]
                rows, columns = (
                    rows._replace(before=before.rows),
                    columns._replace(before=before.columns),
                )
            overlaps = Pixelwise(rows, columns).permissions(Operands(inputs, outputs)).overlaps
            is_image = _is_image(y) and _is_image(inputs[0])
            windows = (Window(0, 0, _ROWS, *rows),) if is_image else ()
            return effects._replace(overlaps=overlaps, windows=windows)
        if operator.name in ELEMENTWISE or operator.name in FIRST_OPERAND:
            return self._elementwise(operator, effects, y)
        return effects._replace(overlaps=())

    def _elementwise(self, operator: TfliteOperator, effects: Effects, y: TfliteOperand) -> Effects:
        """Return the effects for an operator that makes elements one after the other."""
        overlaps, windows = [], []
        count, width = prod(y.shape), BITS[y.dtype]
        for position, index in enumerate(operator.inputs):
            x = None if index is None else self._operands[index]
            if x is None or index is None:
                continue
            if x.shape == y.shape and self._may_overlap(index) and min(width, BITS[x.dtype]) >= 8:
                # With wider results, each element moves ahead by the width difference.
                ahead = max(count - 1, 0) * max(width - BITS[x.dtype], 0) // 8
                overlaps.append(Overlap(position, 0, ahead))
            if _is_image(y) and len(x.shape) == 4 and x.shape[_ROWS] == y.shape[_ROWS]:
                windows.append(Window(position, 0, _ROWS))
        return effects._replace(overlaps=tuple(overlaps), windows=tuple(windows))


def _is_image(operand: TfliteOperand | None) -> bool:
    """Whether an operand is a single image, whose rows are adjacent in memory."""
    return (
        operand is not None
        and len(operand.shape) == 4
        and operand.shape[0] == 1
        and 0 not in operand.shape
        and BITS[operand.dtype] >= 8
    )
