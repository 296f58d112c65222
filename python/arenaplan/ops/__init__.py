"""
The meaning of operators for memory: one record for each kind of operator.

A canonical operator is an instance of a class below, with the attributes that its effects depend
on, in the same form for all formats: axes, permutations, indices that are taken, amounts of
padding. Its effects follow from it and from the shapes and types of the operands
(:func:`effects_of`). Everything here is a permission; an operator of no kind reads its inputs and
writes its outputs.

Importers have one table each, which maps names of their format to canonical operators, or to
functions that translate attributes. They know no rule of their own.

========================  =========================================================================
kind                      operators
========================  =========================================================================
:class:`Elementwise`      operands broadcast to the output: sums, comparisons, selections
:class:`FirstOperand`     elements of input 0 with parameters: activations, quantization
:class:`Convert`          another element type
:class:`Update`           input 0 with other elements at some places: scatters
:class:`ShapeOnly`        only the shape of input 0 is used
:class:`Loop`             values that a loop carries
:class:`Reshape`          the same elements in the same order
:class:`Bitcast`          the same bytes as elements of another type
:class:`Identity`         each output is an input
:class:`Repeat`           repetition along dimensions
:class:`Transpose`        dimensions in another order
:class:`Concat`           inputs one behind the other
:class:`Split`            outputs one behind the other in an input
:class:`Slice`            some indices of each dimension; one row
:class:`Pad`              a border
:class:`Normalize`        softmax, normalizations over rows, channels or everything
:class:`Reduce`           reductions
:class:`Product`          products of matrices
:class:`Convolution`      convolutions
:class:`Planes`           operators that leave channels apart: pools, resizing
:class:`Whole`            any element, from all inputs: transposed convolutions
:class:`Neighbors`        local response normalization
:class:`Pixelwise`        windows over images ``(N, H, W, C)``, made pixel by pixel
========================  =========================================================================
"""

from arenaplan.ops.elementwise import (
    CONVERT as CONVERT,
)
from arenaplan.ops.elementwise import (
    ELEMENTWISE as ELEMENTWISE,
)
from arenaplan.ops.elementwise import (
    FIRST_OPERAND as FIRST_OPERAND,
)
from arenaplan.ops.elementwise import (
    SHAPE_ONLY as SHAPE_ONLY,
)
from arenaplan.ops.elementwise import (
    UPDATE as UPDATE,
)
from arenaplan.ops.elementwise import (
    Convert as Convert,
)
from arenaplan.ops.elementwise import (
    Elementwise as Elementwise,
)
from arenaplan.ops.elementwise import (
    FirstOperand as FirstOperand,
)
from arenaplan.ops.elementwise import (
    Loop as Loop,
)
from arenaplan.ops.elementwise import (
    ShapeOnly as ShapeOnly,
)
from arenaplan.ops.elementwise import (
    Update as Update,
)
from arenaplan.ops.layout import (
    BITCAST as BITCAST,
)
from arenaplan.ops.layout import (
    IDENTITY as IDENTITY,
)
from arenaplan.ops.layout import (
    REPEAT as REPEAT,
)
from arenaplan.ops.layout import (
    RESHAPE as RESHAPE,
)
from arenaplan.ops.layout import (
    Bitcast as Bitcast,
)
from arenaplan.ops.layout import (
    Concat as Concat,
)
from arenaplan.ops.layout import (
    Identity as Identity,
)
from arenaplan.ops.layout import (
    Pad as Pad,
)
from arenaplan.ops.layout import (
    Repeat as Repeat,
)
from arenaplan.ops.layout import (
    Reshape as Reshape,
)
from arenaplan.ops.layout import (
    Slice as Slice,
)
from arenaplan.ops.layout import (
    Split as Split,
)
from arenaplan.ops.layout import (
    Transpose as Transpose,
)
from arenaplan.ops.layout import (
    one_index as one_index,
)
from arenaplan.ops.operands import (
    BITS as BITS,
)
from arenaplan.ops.operands import (
    Array as Array,
)
from arenaplan.ops.operands import (
    Operand as Operand,
)
from arenaplan.ops.operands import (
    Operands as Operands,
)
from arenaplan.ops.operands import (
    Shape as Shape,
)
from arenaplan.ops.operands import (
    array_bytes as array_bytes,
)
from arenaplan.ops.operands import (
    from_front as from_front,
)
from arenaplan.ops.operator import (
    Operator as Operator,
)
from arenaplan.ops.operator import (
    Table as Table,
)
from arenaplan.ops.operator import (
    effects_of as effects_of,
)
from arenaplan.ops.operator import (
    lookup as lookup,
)
from arenaplan.ops.rows import (
    PRODUCT as PRODUCT,
)
from arenaplan.ops.rows import (
    Normalize as Normalize,
)
from arenaplan.ops.rows import (
    Product as Product,
)
from arenaplan.ops.rows import (
    Reduce as Reduce,
)
from arenaplan.ops.windows import (
    CONVOLUTION as CONVOLUTION,
)
from arenaplan.ops.windows import (
    PLANES as PLANES,
)
from arenaplan.ops.windows import (
    WHOLE as WHOLE,
)
from arenaplan.ops.windows import (
    Convolution as Convolution,
)
from arenaplan.ops.windows import (
    Neighbors as Neighbors,
)
from arenaplan.ops.windows import (
    Pixelwise as Pixelwise,
)
from arenaplan.ops.windows import (
    PixelwiseConvolution as PixelwiseConvolution,
)
from arenaplan.ops.windows import (
    Planes as Planes,
)
from arenaplan.ops.windows import (
    Whole as Whole,
)
from arenaplan.ops.windows import (
    Window as Window,
)
