"""
Memory semantics of operators: a record for each operator kind.

A canonical operator is an instance of a class below, with the attributes that affect memory, in the
same form for all formats: axes, permutations, taken indices, padding amounts. The effects follow
from the operator and the operands' shapes and types (:func:`effects_of`). All effects are
permissions; an operator without a kind reads all inputs and writes all outputs.

Each importer has a table from format names to canonical operators, or to functions that translate
attributes. Importers have no further rules.

========================  =========================================================================
kind                      operators
========================  =========================================================================
:class:`Elementwise`      operands broadcast to the output: sums, comparisons, selections
:class:`FirstOperand`     elements of input 0 with parameters: activations, quantization
:class:`Convert`          another element type
:class:`Update`           input 0 with other elements at some places: scatters
:class:`ShapeOnly`        only the shape of input 0 is used
:class:`Loop`             values that a loop carries
:class:`Reshape`          the same elements in the same order, or some of them repeated
:class:`Bitcast`          the same bytes as elements of another type
:class:`Identity`         each output is an input
:class:`Transpose`        dimensions in another order
:class:`Concat`           inputs one behind the other
:class:`Split`            outputs one behind the other in an input
:class:`Slice`            some indices of each dimension; one row
:class:`Pad`              a border
:class:`Normalize`        softmax, normalizations over rows, channels or everything
:class:`Reduce`           reductions
:class:`Extremes`         least and greatest elements of rows
:class:`Product`          products of matrices
:class:`Convolution`      convolutions
:class:`Planes`           operators that leave channels apart: resizing, pools of whole channels
:class:`Pool`             windows that slide over each channel by itself
:class:`Whole`            any element, from all inputs: transposed convolutions
:class:`Neighbors`        local response normalization
:class:`Pixelwise`        windows over images ``(N, H, W, C)``, made pixel by pixel
========================  =========================================================================
"""

from arenaplan.graph.ops.elementwise_ops import (
    CONVERT,
    ELEMENTWISE,
    FIRST_OPERAND,
    SHAPE_ONLY,
    UPDATE,
    Convert,
    Elementwise,
    FirstOperand,
    Loop,
    ShapeOnly,
    Update,
)
from arenaplan.graph.ops.layout_ops import (
    BITCAST,
    IDENTITY,
    RESHAPE,
    Bitcast,
    Concat,
    Identity,
    Pad,
    Reshape,
    Slice,
    Split,
    Transpose,
    one_index,
)
from arenaplan.graph.ops.operands import (
    BITS,
    Array,
    Operand,
    Operands,
    Shape,
    array_bytes,
    from_front,
)
from arenaplan.graph.ops.operator import (
    ROWS,
    Operator,
    Table,
    effects_of,
    lookup,
    repeats,
    windows_of,
)
from arenaplan.graph.ops.row_ops import PRODUCT, Extremes, Normalize, Product, Reduce
from arenaplan.graph.ops.window_ops import (
    CONVOLUTION,
    PLANES,
    WHOLE,
    Convolution,
    Neighbors,
    Pixelwise,
    PixelwiseConvolution,
    Planes,
    Pool,
    Slide,
    Whole,
)
from arenaplan.graph.ops.work import (
    FLOPS_PER_BYTE,
    convolution_operations,
    product_operations,
    roofline,
)

# fmt: off
__all__ = [
    "BITCAST", "BITS", "CONVERT", "CONVOLUTION", "ELEMENTWISE", "FIRST_OPERAND",
    "FLOPS_PER_BYTE", "IDENTITY", "PLANES", "PRODUCT", "RESHAPE", "ROWS", "SHAPE_ONLY",
    "UPDATE", "WHOLE", "Array", "Bitcast", "Concat", "Convert", "Convolution", "Elementwise",
    "Extremes", "FirstOperand", "Identity", "Loop", "Neighbors", "Normalize", "Operand",
    "Operands", "Operator", "Pad", "Pixelwise", "PixelwiseConvolution", "Planes", "Pool",
    "Product", "Reduce", "Reshape", "Shape", "ShapeOnly", "Slice", "Slide", "Split",
    "Table", "Transpose", "Update", "Whole", "array_bytes", "convolution_operations",
    "effects_of", "from_front", "lookup", "one_index", "product_operations", "repeats",
    "roofline", "windows_of",
]
# fmt: on
