//! Byte convolutions, bound to arrays: see [`crate::compiled`].

use arenaplan_kernels::{
    Encoding, Lanes, QuantizedConv, QuantizedDepthwise, QuantizedMatrix, Requantization, Sliding,
};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::arena::{elements, elements_mut};
use crate::compiled::{CompiledKernel, ConvWay, Images, WindowSide, check_apart, is_same, refused};
use crate::planes::PlaneLayout;
use crate::team;

/// The integers that bytes stand for.
///
/// Parameters
/// ----------
/// signed : bool
///     Whether a byte is a signed integer.
/// zero : int
///     The integer that stands for zero.
#[pyclass(frozen, eq, module = "arenaplan._core")]
#[derive(Debug, PartialEq)]
pub(crate) struct ByteEncoding {
    inner: Encoding,
}

#[pymethods]
impl ByteEncoding {
    #[new]
    fn new(py: Python<'_>, signed: bool, zero: i16) -> PyResult<Self> {
        let range = if signed { -128..=127 } else { 0..=255 };
        if !range.contains(&zero) {
            let message = format!("no byte is the zero point {zero}");
            return Err(crate::error::raise_named(py, "InvalidOperand", message));
        }
        Ok(Self { inner: Encoding { is_signed: signed, zero } })
    }
}

/// The way from exact sums to bytes.
///
/// A channel's sum is multiplied by the channel's scale, the shift is added, the number is bounded,
/// divided, and rounded to the nearest integer, ties to even.
///
/// Parameters
/// ----------
/// scale, shift : array of float32
///     One number for each channel.
/// low, high : float
/// divisor : float
///     The result scale.
/// result : ByteEncoding
/// addend : array of int32, optional
///     For each channel, an integer that its sums begin with.
#[pyclass(frozen, module = "arenaplan._core")]
pub(crate) struct ByteResult {
    scale: PyBuffer<f32>,
    shift: PyBuffer<f32>,
    bounds: (f32, f32),
    divisor: f32,
    encoding: Encoding,
    addend: Option<PyBuffer<i32>>,
}

#[pymethods]
impl ByteResult {
    #[new]
    #[pyo3(signature = (scale, shift, low, high, divisor, result, addend=None))]
    fn new(
        scale: PyBuffer<f32>,
        shift: PyBuffer<f32>,
        low: f32,
        high: f32,
        divisor: f32,
        result: &ByteEncoding,
        addend: Option<PyBuffer<i32>>,
    ) -> Self {
        Self { scale, shift, bounds: (low, high), divisor, encoding: result.inner, addend }
    }
}

impl ByteResult {
    fn finish(&self) -> Requantization<'_> {
        Requantization {
            scale: elements(&self.scale),
            shift: elements(&self.shift),
            bounds: self.bounds,
            divisor: self.divisor,
            result: self.encoding,
        }
    }
}

/// Fails if an array of a byte result shares bytes with the output or the scratch memory.
fn check_result(py: Python<'_>, images: &Images<u8>, result: &ByteResult) -> PyResult<()> {
    images.check_reads(py, [&result.scale, &result.shift])?;
    images.check_reads(py, &result.addend)
}

/// Return a byte convolution with exact sums.
///
/// Parameters
/// ----------
/// image : array of uint8, shape (images, channels, ...)
///     Signed bytes as their bits.
/// encoding : ByteEncoding
///     The image encoding.
/// weights : array of int32
///     Weights from :func:`pack_quantized`.
/// result : ByteResult
/// output : array of uint8, shape (images, channels, ...)
/// scratch : array of float32
///     :attr:`ConvWay.elements` elements for a way.
/// rows, columns : WindowSide
///     The two spatial dimensions.
/// groups : int
/// lanes : int
///     :func:`quantized_lanes` for the weights.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn quantized_conv(
    py: Python<'_>,
    image: PyBuffer<u8>,
    encoding: &ByteEncoding,
    weights: PyBuffer<i32>,
    result: Py<ByteResult>,
    output: PyBuffer<u8>,
    scratch: PyBuffer<f32>,
    rows: &WindowSide,
    columns: &WindowSide,
    groups: usize,
    lanes: usize,
) -> PyResult<CompiledKernel> {
    check_apart(py, &image, &output)?;
    let mut images = Images::of_planes(py, image, output, scratch)?;
    images.check_reads(py, [&weights])?;
    check_result(py, &images, result.get())?;
    let [fan_in, fan_out] = images.channels().map(|all| all.checked_div(groups).unwrap_or(0));
    let sizes = sizes(py, rows, columns, groups, fan_in, fan_out, lanes_of(py, lanes)?)?;
    let way = sizes.schedule(images.scratch.item_count(), team::current().threads());
    let encoding = encoding.inner;
    Ok(CompiledKernel::new("quantized conv", way.scratch_len(), move |team| {
        let (weights, finish) = (elements(&weights), result.get().finish());
        let addend = result.get().addend.as_ref().map(elements);
        let (image, mut to, scratch) = images.parts()?;
        sizes.run(&way, &image, encoding, weights, addend, &finish, &mut to, scratch, team)
    }))
}

/// Return the fastest way for :func:`quantized_conv` within so many scratch elements, or the
/// smallest way.
///
/// Parameters
/// ----------
/// rows, columns : WindowSide
/// fan_in, fan_out : int
///     Channels per group.
/// room : int
#[pyfunction]
pub(crate) fn quantized_way(
    py: Python<'_>,
    rows: &WindowSide,
    columns: &WindowSide,
    fan_in: usize,
    fan_out: usize,
    room: usize,
) -> PyResult<ConvWay> {
    // Others need no more.
    let way = sizes(py, rows, columns, 1, fan_in, fan_out, Lanes::Pairs)?.way(room);
    Ok(ConvWay::new(way.scratch_len(), way.cycles()))
}

/// Return how many channels lie in a lane, where this processor multiplies some weights fastest.
///
/// Parameters
/// ----------
/// weights : array of int16
///     Integers less the zero point.
#[pyfunction]
pub(crate) fn quantized_lanes(weights: PyBuffer<i16>) -> usize {
    Lanes::of(elements(&weights)).channels()
}

/// Write weights in the order in which :func:`quantized_conv` reads the weights.
///
/// Parameters
/// ----------
/// weights : array of int16, shape (groups, channels, channels of the image, elements of a window)
///     Integers less the zero point.
/// target : array of int32
///     :func:`packed_quantized` elements.
/// lanes : int
///     :func:`quantized_lanes` for the weights.
#[pyfunction]
pub(crate) fn pack_quantized(
    py: Python<'_>,
    weights: PyBuffer<i16>,
    mut target: PyBuffer<i32>,
    lanes: usize,
) -> PyResult<()> {
    check_apart(py, &weights, &target)?;
    let sizes = sizes_of(py, weights.shape(), lanes)?;
    sizes.pack(elements(&weights), elements_mut(&mut target)).map_err(|error| refused(py, &error))
}

/// Return the number of elements that :func:`pack_quantized` writes for a weight shape.
#[pyfunction]
pub(crate) fn packed_quantized(py: Python<'_>, shape: Vec<usize>, lanes: usize) -> PyResult<usize> {
    Ok(sizes_of(py, &shape, lanes)?.packed_len())
}

/// Return a convolution of every byte channel by itself: see :func:`quantized_conv`.
///
/// The output may be the image's memory, if it has as many channels of the same size. A sum is
/// exact if the absolute values of its terms add up to at most 2**24.
///
/// Parameters
/// ----------
/// weights : array of float32
///     One window per output channel, with integers less the zero point.
/// addend : array of float32, optional
///     For each output channel, an integer that its sums begin with.
/// scratch : array of float32
///     :func:`quantized_depthwise_scratch` elements.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they have names in Python")]
#[pyo3(signature = (image, encoding, weights, addend, result, output, scratch, rows, columns))]
pub(crate) fn quantized_depthwise(
    py: Python<'_>,
    image: PyBuffer<u8>,
    encoding: &ByteEncoding,
    weights: PyBuffer<f32>,
    addend: Option<PyBuffer<f32>>,
    result: Py<ByteResult>,
    output: PyBuffer<u8>,
    scratch: PyBuffer<f32>,
    rows: &WindowSide,
    columns: &WindowSide,
) -> PyResult<CompiledKernel> {
    let fan_out = output.shape().get(1).zip(image.shape().get(1)).map(|(a, b)| a / b.max(&1));
    // A plane is read before the same plane is written.
    if !(fan_out == Some(1) && is_same(&image, &output)) {
        check_apart(py, &image, &output)?;
    }
    let mut images = Images::of_planes(py, image, output, scratch)?;
    images.check_reads(py, [&weights].into_iter().chain(&addend))?;
    check_result(py, &images, result.get())?;
    let [inward, outward] = images.channels();
    let fan_out = outward.checked_div(inward).unwrap_or(0);
    let sizes = Sliding::new(rows.inner, columns.inner)
        .and_then(|window| QuantizedDepthwise::new(window, inward, fan_out))
        .map_err(|error| refused(py, &error))?;
    let encoding = encoding.inner;
    Ok(CompiledKernel::new("quantized depthwise", sizes.scratch_len(), move |team| {
        let (weights, addend) = (elements(&weights), addend.as_ref().map(elements));
        let (finish, (image, mut to, scratch)) = (result.get().finish(), images.parts()?);
        sizes.run(&image, encoding, weights, addend, &finish, &mut to, scratch, team)
    }))
}

/// Return the scratch elements that :func:`quantized_depthwise` needs.
#[pyfunction]
pub(crate) fn quantized_depthwise_scratch(
    py: Python<'_>,
    rows: &WindowSide,
    columns: &WindowSide,
) -> PyResult<usize> {
    let sizes = Sliding::new(rows.inner, columns.inner)
        .and_then(|window| QuantizedDepthwise::new(window, 1, 1));
    Ok(sizes.map_err(|error| refused(py, &error))?.scratch_len())
}

/// Return the product of byte rows and a matrix, with exact sums: see :func:`quantized_conv`.
///
/// Parameters
/// ----------
/// rows : array of uint8, shape (..., depth)
/// matrix : array of float32
///     The matrix from :func:`pack_quantized_matrix`.
/// result : ByteResult
///     Channels are columns.
/// output : array of uint8, shape (..., columns)
///     May be the rows' memory.
/// scratch : array of float32
///     :func:`quantized_product_scratch` elements; the elements for fewer rows suffice.
/// lanes : int
///     :func:`quantized_lanes` for the matrix.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn quantized_product(
    py: Python<'_>,
    rows: PyBuffer<u8>,
    encoding: &ByteEncoding,
    matrix: PyBuffer<f32>,
    result: Py<ByteResult>,
    output: PyBuffer<u8>,
    scratch: PyBuffer<f32>,
    lanes: usize,
) -> PyResult<CompiledKernel> {
    // Rows are read before the same rows are written.
    if !is_same(&rows, &output) {
        check_apart(py, &rows, &output)?;
    }
    let layouts = PlaneLayout::of_rows(&rows).zip(PlaneLayout::of_rows(&output));
    let mut images = Images::new(py, rows, output, scratch, layouts)?;
    images.check_reads(py, [&matrix])?;
    check_result(py, &images, result.get())?;
    let (depth, columns) = (images.image_layout.size, images.output_layout.size);
    let (sizes, encoding) = (matrix_of(py, depth, columns, lanes)?, encoding.inner);
    let room = images.scratch.item_count();
    Ok(CompiledKernel::new("quantized product", room, move |team| {
        let (matrix, finish) = (elements(&matrix), result.get().finish());
        let addend = result.get().addend.as_ref().map(elements);
        let (rows, mut to, scratch) = images.parts()?;
        sizes.run(&rows, encoding, matrix, addend, &finish, &mut to, scratch, team)
    }))
}

/// Return the scratch elements with which :func:`quantized_product` is fastest.
#[pyfunction]
pub(crate) fn quantized_product_scratch(
    py: Python<'_>,
    rows: usize,
    depth: usize,
    columns: usize,
) -> PyResult<usize> {
    // Other lanes need no more.
    Ok(matrix_of(py, depth, columns, Lanes::Pairs.channels())?.scratch_len(rows))
}

/// Write a matrix in the order in which :func:`quantized_product` reads the matrix.
///
/// Parameters
/// ----------
/// matrix : array of int16, shape (depth, columns)
///     Integers less the zero point.
/// target : array of float32
///     :func:`packed_quantized_matrix` elements.
/// lanes : int
///     :func:`quantized_lanes` for the matrix.
#[pyfunction]
pub(crate) fn pack_quantized_matrix(
    py: Python<'_>,
    matrix: PyBuffer<i16>,
    mut target: PyBuffer<f32>,
    lanes: usize,
) -> PyResult<()> {
    check_apart(py, &matrix, &target)?;
    let (depth, columns) = match *matrix.shape() {
        [depth, columns] => (depth, columns),
        _ => (0, 0),
    };
    matrix_of(py, depth, columns, lanes)?
        .pack(elements(&matrix), elements_mut(&mut target))
        .map_err(|error| refused(py, &error))
}

/// Return the number of elements that :func:`pack_quantized_matrix` writes.
#[pyfunction]
pub(crate) fn packed_quantized_matrix(
    py: Python<'_>,
    depth: usize,
    columns: usize,
    lanes: usize,
) -> PyResult<usize> {
    Ok(matrix_of(py, depth, columns, lanes)?.packed_len())
}

/// Returns a convolution's sizes.
fn sizes(
    py: Python<'_>,
    rows: &WindowSide,
    columns: &WindowSide,
    groups: usize,
    fan_in: usize,
    fan_out: usize,
    lanes: Lanes,
) -> PyResult<QuantizedConv> {
    Sliding::new(rows.inner, columns.inner)
        .and_then(|window| QuantizedConv::new(window, groups, fan_in, fan_out, lanes))
        .map_err(|error| refused(py, &error))
}

/// Returns the sizes of a convolution whose weights have a shape, on some image.
fn sizes_of(py: Python<'_>, shape: &[usize], lanes: usize) -> PyResult<QuantizedConv> {
    let &[groups, fan_out, fan_in, taps] = shape else {
        let message = "weights have four axes";
        return Err(crate::error::raise_named(py, "InvalidOperand", message.into()));
    };
    let (rows, columns) = (WindowSide::of_taps(1), WindowSide::of_taps(taps));
    sizes(py, &rows, &columns, groups, fan_in, fan_out, lanes_of(py, lanes)?)
}

/// Returns a matrix's sizes.
fn matrix_of(
    py: Python<'_>,
    depth: usize,
    columns: usize,
    lanes: usize,
) -> PyResult<QuantizedMatrix> {
    let lanes = lanes_of(py, lanes)?;
    QuantizedMatrix::new(depth, columns, lanes).map_err(|error| refused(py, &error))
}

/// Returns the lanes for some channels.
fn lanes_of(py: Python<'_>, channels: usize) -> PyResult<Lanes> {
    Lanes::with_channels(channels).ok_or_else(|| {
        let message = format!("no lane has {channels} channels");
        crate::error::raise_named(py, "InvalidOperand", message)
    })
}
