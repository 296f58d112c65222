"""One large case of every operator: operands of about a megabyte, if the operator takes such."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import arenaplan as ap
import pointwise
from arenaplan.formats.onnx import load_onnx
from single_node import node_model

RNG = np.random.default_rng(20261122)


class Case(NamedTuple):
    """An operator with operands."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: dict[str, Any] = {}  # noqa: RUF012
    constants: Sequence[int] = ()
    outputs: int = 1
    opset: int = 23
    shapes: Sequence[tuple[int, ...]] = ()
    """Shapes of the outputs, where they depend on data."""

    def graph(self) -> ap.Graph:
        """Return a graph of the operator alone."""
        model = node_model(
            self.op,
            self.inputs,
            self.attributes,
            opset=self.opset,
            outputs=self.outputs,
            constants=self.constants,
        )
        for info, shape in zip(model.graph.output, self.shapes, strict=False):
            for dim in shape:
                info.type.tensor_type.shape.dim.add().dim_value = dim
        return load_onnx(model)

    def feed(self) -> dict[str, np.ndarray]:
        """Return the inputs of a run."""
        return {
            f"in{k}": array
            for k, array in enumerate(self.inputs)
            if array is not None and k not in self.constants
        }


def f32(*shape: int) -> np.ndarray:
    return RNG.uniform(0.1, 0.9, shape).astype(np.float32)


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def number(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


MATRIX, IMAGE = (512, 768), (1, 32, 96, 96)


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _elementwise()
    yield from _moves()
    yield from _rows()
    yield from _images()
    yield from _sequences()
    yield from _numbers()


def _elementwise() -> Iterator[Case]:
    x, mask = f32(*MATRIX), RNG.random(MATRIX) < 0.5
    whole = RNG.integers(1, 7, MATRIX).astype(np.int32)
    for op in (*pointwise.UNARY, "IsInf", "IsNaN"):
        if op not in ("Clip", "Identity"):
            given = x + 1 if op in pointwise.ABOVE_ONE else x
            yield Case(op, [given], opset=pointwise.opset(op))
    for op in ("Add", "Div", "Mul", "Pow", "PRelu", "Sub", "Max", "Mean", "Min", "Sum"):
        yield Case(op, [x, x])
    for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        yield Case(op, [x, x])
    for op in ("And", "Or", "Xor"):
        yield Case(op, [mask, mask])
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod"):
        yield Case(op, [whole, whole])
    yield Case("BitShift", [whole.astype(np.uint32)] * 2, {"direction": "LEFT"})
    yield Case("BitwiseNot", [whole])
    yield Case("Not", [mask])
    yield Case("Where", [mask, x, x])
    yield Case("Clip", [x, number(0.2), number(0.6)])
    yield Case("Cast", [x], {"to": 11})
    yield Case("CastLike", [x, number(0, "int8")])
    yield Case("BitCast", [x], {"to": 6}, opset=26)
    yield Case("Dropout", [x, number(0.3), number(1, "bool")], {}, (1, 2), 2)
    yield Case("QuantizeLinear", [x, number(0.1), number(3, "uint8")])
    yield Case("DequantizeLinear", [whole.astype(np.uint8), number(0.1), number(3, "uint8")])
    yield Case("DynamicQuantizeLinear", [x], outputs=3, opset=11)  # Later ones are split.
    small = [number(0.1), number(3, "uint8")]
    bytes_, image = RNG.integers(0, 9, (512, 512), np.uint8), RNG.integers(0, 9, (1, 32, 96, 96))
    taps = RNG.integers(0, 9, (32, 32, 3, 3)).astype(np.uint8)
    pads = {"pads": [1] * 4}
    yield Case("MatMulInteger", [bytes_, bytes_])
    yield Case("QLinearMatMul", [bytes_, *small, bytes_, *small, *small], {}, (1, 2, 4, 5, 6, 7))
    yield Case("ConvInteger", [image.astype(np.uint8), taps], pads, (1,))
    yield Case(
        "QLinearConv",
        [image.astype(np.uint8), *small, taps, *small, *small],
        pads,
        (1, 2, 3, 4, 5, 6, 7),
    )
    yield Case("SwiGLU", [x, x], opset=28)
    for op in ("CumProd", "CumSum"):
        yield Case(op, [x, number(1, "int64")], opset=26)


def _moves() -> Iterator[Case]:
    x = f32(*MATRIX)
    rows, columns = MATRIX
    for op in ("Identity", "Flatten"):
        yield Case(op, [x])
    yield Case("Reshape", [x, i64(columns, rows)], {}, (1,))
    yield Case("Squeeze", [x[None], i64(0)], {}, (1,))
    yield Case("Unsqueeze", [x, i64(0)], {}, (1,))
    yield Case("Expand", [f32(1, columns), i64(*MATRIX)], {}, (1,))
    yield Case("Tile", [x, i64(2, 1)], {}, (1,))
    yield Case("Transpose", [x], {"perm": [1, 0]})
    yield Case("Concat", [x, x], {"axis": 1})
    yield Case("Split", [x, i64(256, 512)], {"axis": 1}, (1,), 2)
    yield Case("Slice", [x, i64(700), i64(0), i64(1), i64(-2)], {}, (1, 2, 3, 4))
    yield Case("Pad", [x, i64(1, 2, 3, 4)], {}, (1,))
    yield Case("Trilu", [x])
    yield Case("EyeLike", [x])
    yield Case("CenterCropPad", [x, i64(300, 900)], {}, (1,))
    yield Case("ReverseSequence", [x, RNG.integers(1, rows, columns)])
    yield Case("Compress", [x, RNG.random(columns) < 0.5], {"axis": 1}, (1,))
    yield Case("DepthToSpace", [f32(1, 64, 64, 64)], {"blocksize": 2})
    yield Case("SpaceToDepth", [f32(1, 16, 128, 128)], {"blocksize": 2})
    indices = RNG.integers(0, rows, MATRIX)
    yield Case("Gather", [x, indices[0]])
    yield Case("GatherElements", [x, indices])
    tuples = np.stack([indices[0], RNG.integers(0, columns, columns)], -1)
    yield Case("GatherND", [x, tuples])
    few = indices[:8]
    for op, opset in (("Scatter", 9), ("ScatterElements", 18)):
        yield Case(op, [x, few, x[:8]], opset=opset)
    yield Case("ScatterND", [x, few[0][:, None], f32(columns, columns)])
    yield Case("TensorScatter", [f32(4, 8, 128, 64), f32(4, 8, 16, 64), i64(0, 1, 2, 3)], opset=24)
    yield Case("OneHot", [indices[0], number(300, "int64"), f32(2)], {}, (1,))


def _rows() -> Iterator[Case]:
    x = f32(*MATRIX)
    columns = MATRIX[1]
    for axis in (0, -1):
        yield Case("Softmax", [x], {"axis": axis})
        yield Case("LogSoftmax", [x], {"axis": axis})
        yield Case("Hardmax", [x], {"axis": axis})
        for order in (1, 2):
            yield Case("LpNormalization", [x], {"axis": axis, "p": order})
        yield Case("ArgMax", [x], {"axis": axis})
        yield Case("ArgMin", [x], {"axis": axis})
        yield Case("TopK", [x, i64(10)], {"axis": axis}, (1,), 2)
        for op in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum"):
            yield Case(f"Reduce{op}", [x, i64(axis)], {}, (1,))
        yield Case("ReduceSumSquare", [x, i64(axis)], {}, (1,))
    yield Case("LayerNormalization", [x, f32(columns), f32(columns)])
    yield Case("RMSNormalization", [x, f32(columns)])
    yield Case("MatMul", [x, f32(columns, 640)])
    yield Case("Gemm", [x, f32(columns, 640), f32(640)])
    yield Case("Einsum", [f32(64, 64, 64), f32(64, 64, 48)], {"equation": "bij,jbk->ibk"})
    yield Case("Einsum", [x, f32(640, columns)], {"equation": "ij,kj->ki"})
    yield Case("Einsum", [f32(64, 64, 64)], {"equation": "iji->j"})
    yield Case("Det", [f32(16, 128, 128)])
    yield Case("Attention", [f32(1, 12, 256, 64)] * 3)
    yield Case(
        "RotaryEmbedding", [f32(2, 8, 256, 64), f32(2, 256, 32), f32(2, 256, 32)], {}, (1, 2)
    )
    yield Case(
        "LinearAttention",
        [
            f32(2, 64, 2048),
            f32(2, 64, 1024),
            f32(2, 64, 1024),
            None,
            f32(2, 64, 1024),
            f32(2, 64, 8),
        ],
        {"q_num_heads": 16, "kv_num_heads": 8},
        (),
        2,
        27,
    )


def _images() -> Iterator[Case]:
    image, channels = f32(*IMAGE), [f32(32) for _ in range(4)]
    window = {"kernel_shape": [3, 3], "pads": [1] * 4}
    yield Case("Conv", [image, f32(32, 32, 3, 3)], {"pads": [1] * 4}, (1,))
    yield Case("ConvTranspose", [image, f32(32, 8, 2, 2)], {"strides": [2, 2]}, (1,))
    for op in ("AveragePool", "LpPool", "MaxPool"):
        yield Case(op, [image], window)
    for op in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"):
        yield Case(op, [image])
    yield Case("BatchNormalization", [image, *channels])
    yield Case("BatchNormalization", [image, *channels], {"training_mode": 1}, (), 3)
    yield Case("InstanceNormalization", [image, *channels[:2]])
    yield Case("GroupNormalization", [image, *channels[:2]], {"num_groups": 8})
    yield Case("MeanVarianceNormalization", [image])
    yield Case("LRN", [image], {"size": 5})
    scales = np.array([1, 1, 2, 2], np.float32)
    yield Case("Resize", [image, None, scales], {"mode": "linear"}, (2,))
    yield Case("Upsample", [image, scales], {}, (1,), opset=9)
    grid = RNG.uniform(-1.2, 1.2, (1, 90, 90, 2)).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            yield Case("GridSample", [image, grid], {"mode": mode, "padding_mode": padding})
    yield Case("AffineGrid", [f32(2, 2, 3), i64(2, 1, 256, 256)], {}, (1,))
    corner = RNG.uniform(0, 40, (64, 2))
    rois = np.concatenate([corner, corner + RNG.uniform(4, 50, (64, 2))], 1).astype(np.float32)
    for mode in ("avg", "max"):
        pool = {"output_height": 7, "output_width": 7, "mode": mode, "sampling_ratio": 2}
        yield Case("RoiAlign", [image, rois, np.zeros(64, np.int64)], pool)
    batched = np.concatenate([np.zeros((64, 1), np.float32), rois.round()], 1)
    yield Case("MaxRoiPool", [image, batched], {"pooled_shape": [7, 7]})
    yield Case(
        "DeformConv",
        [image, f32(16, 32, 3, 3), f32(1, 18, 96, 96), f32(16), f32(1, 9, 96, 96)],
        {"pads": [1] * 4},
        (1,),
    )
    columns = f32(1, 32 * 9, 96 * 96)
    yield Case("Col2Im", [columns, i64(96, 96), i64(3, 3)], {"pads": [1] * 4}, (1, 2))
    places = RNG.permutation(4 * 32 * 48 * 48)[: 32 * 48 * 48].reshape(1, 32, 48, 48)
    unpool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Case("MaxUnpool", [f32(1, 32, 48, 48), places], unpool)


def _sequences() -> Iterator[Case]:
    for op, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
        x, w, r = f32(64, 16, 256), f32(2, gates * 128, 256), f32(2, gates * 128, 128)
        lengths = RNG.integers(1, 65, 16).astype(np.int32)
        rest = [f32(2, gates * 256), lengths, *[f32(2, 16, 128)] * states]
        attributes = {"hidden_size": 128, "direction": "bidirectional"}
        yield Case(op, [x, w, r, *rest], attributes, (1, 2), 1 + states)
        yield Case(op, [x.swapaxes(0, 1).copy(), w, r], {**attributes, "layout": 1}, (), 1, 14)
    signal = f32(8, 32768, 1)
    yield Case("DFT", [signal.reshape(256, 1024, 1)])
    yield Case("DFT", [f32(256, 512, 2)], {"inverse": 1})
    yield Case("DFT", [signal.reshape(512, 512, 1), None, number(0, "int64")], {}, (2,))
    frames = [number(128, "int64"), f32(512), number(512, "int64")]
    for attributes in ({}, {"onesided": 0}):
        yield Case("STFT", [signal, *frames], attributes, (1, 3))
    pool = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1}
    pool |= {"ngram_counts": [0, 3], "ngram_indexes": list(range(5)), "pool_int64s": [*range(7)]}
    yield Case("TfIdfVectorizer", [RNG.integers(0, 9, (4, 500))], pool)


def _numbers() -> Iterator[Case]:
    x = f32(*MATRIX)
    for op in ("RandomNormalLike", "RandomUniformLike", "Bernoulli"):
        yield Case(op, [x])
        yield Case(op, [x], {"dtype": 10})
    for op in ("RandomNormal", "RandomUniform"):
        yield Case(op, [], {"shape": list(MATRIX)})
    yield Case("Multinomial", [x], {"sample_size": 500})
    for op in ("BlackmanWindow", "HammingWindow", "HannWindow"):
        yield Case(op, [number(1 << 18, "int64")], shapes=[(1 << 18,)])
    mel = [number(n, "int64") for n in (128, 4096, 16000)]
    yield Case("MelWeightMatrix", [*mel, number(20), number(8000)], shapes=[(2049, 128)])
    yield Case("Range", [number(0), number(1 << 18), number(1)], shapes=[(1 << 18,)])
    yield Case("ConstantOfShape", [i64(*MATRIX)], shapes=[MATRIX])
