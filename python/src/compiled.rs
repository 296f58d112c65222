//! Compiled kernels of the executor: bound to arrays once, and called without the interpreter lock.

use std::sync::{Arc, Mutex};

use arenaplan_kernels::{
    Argument, Cell, Chain, Conv, Depthwise, Elements, Function, Kind, Matrix, Normalization,
    OPERANDS, Planes, PlanesMut, Pooling, Recurrence, Side, Sliding, Start, State, Step,
    TableSoftmax, Team, packed_weights_len, pool, softmax,
};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;

use crate::arena::{cells, elements, elements_mut, planes, planes_mut};
use crate::error::raise_named;
use crate::planes::{PlaneLayout, element_strides};
use crate::team;

/// A spatial dimension of a sliding window.
///
/// Parameters
/// ----------
/// size : int
///     Input elements.
/// out : int
///     Window positions.
/// kernel : int
///     Elements under the window.
/// stride : int
///     Elements from one position to the next.
/// dilation : int
///     Elements between neighbors under the window.
/// before : int
///     Zeros in front of the input.
#[pyclass(frozen, eq, module = "arenaplan._core")]
#[derive(Debug, PartialEq)]
pub(crate) struct WindowSide {
    pub(crate) inner: Side,
}

impl WindowSide {
    /// Returns the dimension for a window with some elements at one position.
    pub(crate) fn of_taps(taps: usize) -> Self {
        Self { inner: Side { size: taps, out: 1, kernel: taps, stride: 1, dilation: 1, before: 0 } }
    }
}

#[pymethods]
impl WindowSide {
    #[new]
    fn new(
        size: usize,
        out: usize,
        kernel: usize,
        stride: usize,
        dilation: usize,
        before: usize,
    ) -> Self {
        Self { inner: Side { size, out, kernel, stride, dilation, before } }
    }
}

/// An operation with all operands.
type Work = dyn FnMut(&Team) -> arenaplan_kernels::Result<()> + Send;

/// A kernel that is bound to the executor's arrays; calling the kernel does the work.
///
/// A kernel keeps the arrays alive, allocates nothing, and runs without the interpreter lock. A
/// kernel that is made in a block of a :class:`ThreadTeam` is divided among the team's threads.
#[pyclass(frozen, module = "arenaplan._core")]
pub(crate) struct CompiledKernel {
    work: Mutex<Box<Work>>,
    name: &'static str,
    team: Arc<Team>,
}

impl CompiledKernel {
    /// Returns a kernel that does `work`, with so many scratch elements per thread.
    pub(crate) fn new(
        name: &'static str,
        scratch_len: usize,
        work: impl FnMut(&Team) -> arenaplan_kernels::Result<()> + Send + 'static,
    ) -> Self {
        let team = team::current();
        team.reserve(scratch_len);
        Self { work: Mutex::new(Box::new(work)), name, team }
    }
}

#[pymethods]
impl CompiledKernel {
    /// Return a convolution by a matrix product.
    ///
    /// Parameters
    /// ----------
    /// image : array, shape (images, channels, ...)
    /// weights : array
    ///     Weights from :func:`pack_weights`.
    /// output : array, shape (images, channels, ...)
    /// scratch : array
    ///     :attr:`ConvWay.elements` elements for a way; the more, the faster.
    /// rows, columns : WindowSide
    ///     The two spatial dimensions.
    /// groups : int
    /// bias : array, optional
    ///     One number per output channel.
    /// low, high : float
    ///     Output bounds.
    /// addend : array, optional
    ///     Added to the result; may be the output's memory.
    #[staticmethod]
    #[pyo3(signature = (image, weights, output, scratch, rows, columns, groups, bias=None,
                        low=f32::NEG_INFINITY, high=f32::INFINITY, addend=None))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn conv(
        py: Python<'_>,
        image: PyBuffer<f32>,
        weights: PyBuffer<f32>,
        output: PyBuffer<f32>,
        scratch: PyBuffer<f32>,
        rows: &WindowSide,
        columns: &WindowSide,
        groups: usize,
        bias: Option<PyBuffer<f32>>,
        low: f32,
        high: f32,
        addend: Option<PyBuffer<f32>>,
    ) -> PyResult<Self> {
        let addend = match addend {
            None => Addend::Nothing,
            Some(addend) if is_same(&addend, &output) => Addend::Result,
            Some(addend) => {
                check_apart(py, &addend, &output)?;
                check_apart(py, &addend, &scratch)?;
                let layout = PlaneLayout::of(&addend).ok_or_else(|| no_planes(py))?;
                Addend::Numbers(addend, layout)
            }
        };
        check_apart(py, &image, &output)?;
        let mut images = Images::of_planes(py, image, output, scratch)?;
        images.check_reads(py, [&weights].into_iter().chain(&bias))?;
        let window = Sliding::new(rows.inner, columns.inner).map_err(|e| refused(py, &e))?;
        let [fan_in, fan_out] = images.channels().map(|all| all.checked_div(groups).unwrap_or(0));
        let sizes = Conv::new(window, groups, fan_in, fan_out).map_err(|e| refused(py, &e))?;
        let room = images.scratch.item_count();
        let schedule =
            sizes.schedule(images.image_layout.counts[0], room, team::current().threads());
        Ok(Self::new("conv", room, move |team| {
            let start = match &addend {
                Addend::Nothing => Start::Nothing,
                Addend::Result => Start::Result,
                Addend::Numbers(buffer, layout) => Start::Numbers(planes(buffer, layout)?),
            };
            let (weights, bias) = (elements(&weights), bias.as_ref().map(elements));
            let ((image, mut output, scratch), bounds) = (images.parts()?, (low, high));
            sizes.run(&schedule, &image, weights, bias, start, bounds, &mut output, scratch, team)
        }))
    }

    /// Return the fastest way for :meth:`conv` within so many scratch elements, at least 48.
    ///
    /// Parameters
    /// ----------
    /// fan_in, fan_out : int
    ///     Channels per group.
    /// room : int
    #[staticmethod]
    fn conv_way(
        py: Python<'_>,
        rows: &WindowSide,
        columns: &WindowSide,
        fan_in: usize,
        fan_out: usize,
        room: usize,
    ) -> PyResult<ConvWay> {
        let conv = Sliding::new(rows.inner, columns.inner)
            .and_then(|window| Conv::new(window, 1, fan_in, fan_out))
            .map_err(|e| refused(py, &e))?;
        let way = conv.way(room);
        Ok(ConvWay { elements: way.scratch_len(), cycles: way.cycles() })
    }

    /// Return the product of one or several matrices and a matrix from :func:`pack_matrix`.
    ///
    /// Parameters
    /// ----------
    /// rows : array, shape (..., depth)
    /// matrix : array
    /// output : array, shape (..., columns)
    /// bias : array, optional
    ///     One number per column, which is added.
    #[staticmethod]
    #[pyo3(signature = (rows, matrix, output, bias=None))]
    fn product(
        py: Python<'_>,
        rows: PyBuffer<f32>,
        matrix: PyBuffer<f32>,
        output: PyBuffer<f32>,
        bias: Option<PyBuffer<f32>>,
    ) -> PyResult<Self> {
        let (depth, columns) = (rows.shape().last(), output.shape().last());
        let sizes = Matrix::new(depth.copied().unwrap_or(0), columns.copied().unwrap_or(0));
        let sizes = sizes.map_err(|e| refused(py, &e))?;
        for read in [Some(&matrix), bias.as_ref()].into_iter().flatten() {
            check_apart(py, read, &output)?;
        }
        let mut rows = Rows::new(py, Some(rows), output)?;
        Ok(Self::new("product", 0, move |team| {
            let (Some(source), mut output) = rows.parts()? else { return Ok(()) };
            let bias = bias.as_ref().map(elements);
            sizes.run(&source, elements(&matrix), bias, &mut output, team)
        }))
    }

    /// Return a convolution of every channel by itself: see :meth:`conv`.
    ///
    /// Parameters
    /// ----------
    /// weights : array
    ///     One window per output channel.
    /// scratch : array
    ///     :meth:`depthwise_scratch` elements.
    #[staticmethod]
    #[pyo3(signature = (image, weights, output, scratch, rows, columns, bias=None,
                        low=f32::NEG_INFINITY, high=f32::INFINITY))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn depthwise(
        py: Python<'_>,
        image: PyBuffer<f32>,
        weights: PyBuffer<f32>,
        output: PyBuffer<f32>,
        scratch: PyBuffer<f32>,
        rows: &WindowSide,
        columns: &WindowSide,
        bias: Option<PyBuffer<f32>>,
        low: f32,
        high: f32,
    ) -> PyResult<Self> {
        check_apart(py, &image, &output)?;
        let mut images = Images::of_planes(py, image, output, scratch)?;
        images.check_reads(py, [&weights].into_iter().chain(&bias))?;
        let window = Sliding::new(rows.inner, columns.inner).map_err(|e| refused(py, &e))?;
        let [inward, outward] = images.channels();
        let fan_out = outward.checked_div(inward).unwrap_or(0);
        let sizes = Depthwise::new(window, inward, fan_out).map_err(|e| refused(py, &e))?;
        Ok(Self::new("depthwise", sizes.scratch_len(), move |team| {
            let (weights, bias) = (elements(&weights), bias.as_ref().map(elements));
            let (image, mut output, scratch) = images.parts()?;
            sizes.run(&image, weights, bias, (low, high), &mut output, scratch, team)
        }))
    }

    /// Return the scratch elements that :meth:`depthwise` needs.
    #[staticmethod]
    fn depthwise_scratch(
        py: Python<'_>,
        rows: &WindowSide,
        columns: &WindowSide,
    ) -> PyResult<usize> {
        let window = Sliding::new(rows.inner, columns.inner);
        let sizes = window.and_then(|window| Depthwise::new(window, 1, 1));
        Ok(sizes.map_err(|e| refused(py, &e))?.scratch_len())
    }

    /// Return an elementwise function chain.
    ///
    /// Parameters
    /// ----------
    /// steps : list of (str, int, tuple of three int or float)
    ///     Function, result register, and arguments: a register number, or a constant. Arguments
    ///     that the function does not have are any constants. The function ``"load"`` has an
    ///     operand position as its first argument.
    /// result : int
    ///     The register that is written. Integers are rounded to the nearest, and bounded.
    /// operands : list of array
    ///     Arrays in single precision or 8-bit integers, broadcast to the output's shape.
    /// output : array
    ///     An array like the operands. May be the memory of an operand with the same shape, or
    ///     begin before an operand with wider elements if both are contiguous.
    #[staticmethod]
    fn chain(
        py: Python<'_>,
        steps: Vec<(String, usize, [Value; 3])>,
        result: usize,
        operands: Vec<Numbers>,
        output: Numbers,
    ) -> PyResult<Self> {
        if operands.len() > OPERANDS || output.readonly() {
            let message = "too many operands, or an output that cannot be written";
            return Err(raise_named(py, "InvalidOperand", message.into()));
        }
        for operand in &operands {
            if !operand.is_taken_over(&output) {
                apart(py, operand.span(), output.span())?;
            }
        }
        let strides = operands.iter().chain([&output]).map(Numbers::element_strides);
        let strides: Option<Vec<Vec<usize>>> = strides.collect();
        let shapes = operands.iter().all(|operand| operand.shape() == output.shape());
        let Some(strides) = strides.filter(|_| shapes) else {
            let message = "operands of another shape, or with strides that no kernel takes";
            return Err(raise_named(py, "InvalidOperand", message.into()));
        };
        let steps = steps.into_iter().map(|(name, to, arguments)| match name.as_str() {
            "load" => match arguments[0] {
                Value::Register(from) => Ok(Step::Load { from, to }),
                Value::Number(_) => Err(raise_named(py, "InvalidOperand", "no operand".into())),
            },
            name => match Function::of_name(name) {
                Some(function) => {
                    Ok(Step::Apply { function, arguments: arguments.map(Argument::from), to })
                }
                None => Err(raise_named(py, "InvalidOperand", format!("no function {name}"))),
            },
        });
        let steps: Vec<Step> = steps.collect::<PyResult<_>>()?;
        let chain = Chain::new(steps, result, output.shape(), &strides);
        let chain = chain.map_err(|error| refused(py, &error))?;
        let chain = match operands.as_slice() {
            [operand] => chain.tabulated(operand.kind(), output.kind()),
            _ => chain,
        };
        Ok(Self::new("chain", 0, move |team| {
            let mut output = output.cells()?;
            let mut cells = [output; OPERANDS];
            for (to, from) in cells.iter_mut().zip(&operands) {
                *to = from.cells()?;
            }
            chain.run(&cells[..operands.len()], &mut output, team)
        }))
    }

    /// Return the softmax over an array's rows: the elements along the last axis.
    ///
    /// Parameters
    /// ----------
    /// source : array or None
    ///     If left out, the output's rows are replaced.
    #[staticmethod]
    fn softmax(
        py: Python<'_>,
        source: Option<PyBuffer<f32>>,
        output: PyBuffer<f32>,
    ) -> PyResult<Self> {
        let mut rows = Rows::new(py, source, output)?;
        Ok(Self::new("softmax", 0, move |team| {
            let (source, mut output) = rows.parts()?;
            softmax(source.as_ref(), &mut output, team)
        }))
    }

    /// Return the softmax over contiguous rows of 8-bit integers.
    ///
    /// Parameters
    /// ----------
    /// source : array
    /// length : int
    ///     Elements per row.
    /// table : array of float32, shape (256,)
    ///     Powers: the last power for the largest element in a row, the power before for an integer
    ///     less by one, and so on.
    /// factor : float
    ///     Factor for each power, before the division by their sum.
    /// zero : float
    ///     Added to the rounded quotient.
    /// output : array
    ///     Array with the source's shape; may be the source's memory.
    #[staticmethod]
    fn table_softmax(
        py: Python<'_>,
        source: Numbers,
        length: usize,
        table: PyBuffer<f32>,
        factor: f32,
        zero: f32,
        output: Numbers,
    ) -> PyResult<Self> {
        if !source.is_taken_over(&output) {
            apart(py, source.span(), output.span())?;
        }
        let are_contiguous = source.is_contiguous() && output.is_contiguous();
        if output.readonly() || !are_contiguous || !table.is_c_contiguous() {
            let message = "rows that are apart, or an output that cannot be written";
            return Err(raise_named(py, "InvalidOperand", message.into()));
        }
        Ok(Self::new("softmax", 0, move |team| {
            let (source, mut output, table) = (source.cells()?, output.cells()?, elements(&table));
            let rows = output.len().checked_div(length).unwrap_or(0);
            TableSoftmax { length, table, factor, zero }.run(&source, &mut output, rows, team)
        }))
    }

    /// Return a normalization of an array's rows: see :meth:`softmax`.
    ///
    /// Parameters
    /// ----------
    /// epsilon : float
    ///     Added to the variance.
    /// centered : bool
    ///     Whether the mean is subtracted.
    /// scale, shift : array, optional
    ///     Applied to every row.
    #[staticmethod]
    #[pyo3(signature = (source, output, epsilon, centered, scale=None, shift=None))]
    fn normalization(
        py: Python<'_>,
        source: Option<PyBuffer<f32>>,
        output: PyBuffer<f32>,
        epsilon: f32,
        centered: bool,
        scale: Option<PyBuffer<f32>>,
        shift: Option<PyBuffer<f32>>,
    ) -> PyResult<Self> {
        for operand in [&scale, &shift].into_iter().flatten() {
            check_apart(py, operand, &output)?;
        }
        let mut rows = Rows::new(py, source, output)?;
        Ok(Self::new("normalization", 0, move |team| {
            let (scale, shift) = (scale.as_ref().map(elements), shift.as_ref().map(elements));
            let (source, mut output) = rows.parts()?;
            let normalization = Normalization { is_centered: centered, epsilon, scale, shift };
            normalization.run(source.as_ref(), &mut output, team)
        }))
    }

    /// Return the pooling under windows: the largest elements, or sums divided by counts.
    ///
    /// Parameters
    /// ----------
    /// scratch : array
    ///     As many elements as an image row has.
    /// counts : (array, array), optional
    ///     One number per output row and column; the largest element if left out.
    #[staticmethod]
    #[pyo3(signature = (image, output, scratch, rows, columns, counts=None))]
    fn pool(
        py: Python<'_>,
        image: PyBuffer<f32>,
        output: PyBuffer<f32>,
        scratch: PyBuffer<f32>,
        rows: &WindowSide,
        columns: &WindowSide,
        counts: Option<(PyBuffer<f32>, PyBuffer<f32>)>,
    ) -> PyResult<Self> {
        let window = Sliding::new(rows.inner, columns.inner).map_err(|e| refused(py, &e))?;
        check_apart(py, &image, &output)?;
        let mut images = Images::of_planes(py, image, output, scratch)?;
        images.check_reads(py, counts.iter().flat_map(|(rows, columns)| [rows, columns]))?;
        Ok(Self::new("pool", window.width(), move |team| {
            let pooling = match &counts {
                None => Pooling::Max,
                Some((rows, columns)) => {
                    Pooling::Mean { rows: elements(rows), columns: elements(columns) }
                }
            };
            let (image, mut output, scratch) = images.parts()?;
            pool(&window, pooling, &image, &mut output, scratch, team)
        }))
    }

    /// Return some steps in a recurrent layer.
    ///
    /// Parameters
    /// ----------
    /// cell : {"RNN", "rectified RNN", "GRU", "late GRU", "LSTM"}
    ///     The resets of a late GRU come after the product with the hidden state.
    /// sums : array, shape (steps, sequences, gates * hidden)
    ///     The gates' products with the input, and the biases; overwritten.
    /// state, memory : array, shape (sequences, hidden)
    ///     The hidden state, and the cell of an LSTM; scratch memory of a GRU.
    /// early, late : array
    ///     Matrices from :func:`pack_matrix`; the second is for the last gate of a GRU.
    /// bias : array, optional
    ///     The bias of the product with ``late``, for a late GRU.
    /// output : array, shape (steps, sequences, hidden), optional
    ///     The hidden state after each step.
    /// backward : bool
    ///     Whether the last step comes first.
    #[staticmethod]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn recurrent(
        py: Python<'_>,
        cell: &str,
        mut sums: PyBuffer<f32>,
        mut state: PyBuffer<f32>,
        mut memory: PyBuffer<f32>,
        early: PyBuffer<f32>,
        late: Option<PyBuffer<f32>>,
        bias: Option<PyBuffer<f32>>,
        output: Option<PyBuffer<f32>>,
        backward: bool,
    ) -> PyResult<Self> {
        let kind = match cell {
            "RNN" => Cell::Plain,
            "rectified RNN" => Cell::Rectified,
            "GRU" => Cell::Gated { resets_late: false },
            "late GRU" => Cell::Gated { resets_late: true },
            "LSTM" => Cell::Memory,
            _ => return Err(raise_named(py, "InvalidOperand", format!("no cell {cell}"))),
        };
        let writable = [Some(&sums), Some(&state), Some(&memory), output.as_ref()];
        let written: Vec<_> = writable.into_iter().flatten().collect();
        let read: Vec<_> =
            [Some(&early), late.as_ref(), bias.as_ref()].into_iter().flatten().collect();
        for (at, one) in written.iter().enumerate() {
            for other in written[at + 1..].iter().chain(&read) {
                check_apart(py, one, other)?;
            }
        }
        let layouts = PlaneLayout::of(&sums).zip(match &output {
            Some(output) => PlaneLayout::of(output).map(Some),
            None => Some(None),
        });
        let Some((sums_layout, made)) = layouts.filter(|_| written.iter().all(|b| !b.readonly()))
        else {
            return Err(no_planes(py));
        };
        let hidden = state.shape().last().copied().unwrap_or(0);
        let sizes = Recurrence::new(kind, hidden).map_err(|error| refused(py, &error))?;
        let mut output = output.zip(made);
        Ok(Self::new("recurrent", 0, move |_| {
            let mut sums = planes_mut(&mut sums, &sums_layout)?;
            let mut state =
                State { hidden: elements_mut(&mut state), cell: elements_mut(&mut memory) };
            let output = output.as_mut().map(|(output, layout)| planes_mut(output, layout));
            let mut output = output.transpose()?;
            let (early, late) = (elements(&early), late.as_ref().map(elements).unwrap_or_default());
            let bias = bias.as_ref().map(elements);
            sizes.run(&mut sums, &mut state, early, late, bias, output.as_mut(), backward)
        }))
    }

    /// Do the work.
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(mut work) = self.work.try_lock() else {
            return Err(raise_named(py, "ArenaBusy", format!("{} is running already", self.name)));
        };
        let work = &mut *work;
        py.detach(|| work(&self.team)).map_err(|error| refused(py, &error))
    }

    fn __repr__(&self) -> String {
        format!("CompiledKernel({})", self.name)
    }
}

/// A way to compute a convolution.
#[pyclass(frozen, get_all, module = "arenaplan._core")]
pub(crate) struct ConvWay {
    /// Scratch elements.
    elements: usize,
    /// Estimated cycles for one group's product, with operands in cache.
    cycles: usize,
}

impl ConvWay {
    pub(crate) fn new(elements: usize, cycles: usize) -> Self {
        Self { elements, cycles }
    }
}

/// Write a matrix in the order in which :meth:`CompiledKernel.product` reads the matrix.
///
/// Parameters
/// ----------
/// matrix : array, shape (depth, columns)
///     Shape (columns, depth) if transposed.
/// transposed : bool
/// target : array
///     :func:`packed_matrix` elements.
#[pyfunction]
pub(crate) fn pack_matrix(
    py: Python<'_>,
    matrix: PyBuffer<f32>,
    transposed: bool,
    mut target: PyBuffer<f32>,
) -> PyResult<()> {
    let &[first, second] = matrix.shape() else {
        return Err(raise_named(py, "InvalidOperand", "a matrix has two axes".into()));
    };
    check_apart(py, &matrix, &target)?;
    let (depth, columns) = if transposed { (second, first) } else { (first, second) };
    Matrix::new(depth, columns)
        .and_then(|sizes| sizes.pack(elements(&matrix), transposed, elements_mut(&mut target)))
        .map_err(|error| refused(py, &error))
}

/// Return the number of elements that :func:`pack_matrix` writes.
#[pyfunction]
pub(crate) fn packed_matrix(py: Python<'_>, depth: usize, columns: usize) -> PyResult<usize> {
    let sizes = Matrix::new(depth, columns).map_err(|error| refused(py, &error))?;
    Ok(sizes.packed_len())
}

/// Return the number of elements that :func:`pack_weights` writes on this processor.
///
/// Raises
/// ------
/// InvalidOperand
///     If the number overflows.
#[pyfunction]
pub(crate) fn packed_weights(
    py: Python<'_>,
    groups: usize,
    fan_out: usize,
    depth: usize,
) -> PyResult<usize> {
    let most = fan_out.checked_mul(2).and_then(|all| all.checked_add(16));
    if most.and_then(|all| all.checked_mul(groups)?.checked_mul(depth)).is_none() {
        return Err(raise_named(py, "InvalidOperand", "the number of weights is too large".into()));
    }
    Ok(packed_weights_len(groups, fan_out, depth))
}

/// Write convolution weights in the order in which :meth:`CompiledKernel.conv` reads the weights.
///
/// Parameters
/// ----------
/// weights : array, shape (groups, channels, depth)
/// target : array of :func:`packed_weights` elements
#[pyfunction]
pub(crate) fn pack_weights(
    py: Python<'_>,
    weights: PyBuffer<f32>,
    mut target: PyBuffer<f32>,
) -> PyResult<()> {
    let &[groups, fan_out, depth] = weights.shape() else {
        return Err(raise_named(py, "InvalidOperand", "weights have three axes".into()));
    };
    check_apart(py, &weights, &target)?;
    let (from, to) = (elements(&weights), elements_mut(&mut target));
    arenaplan_kernels::packed_weights(from, groups, fan_out, depth, to)
        .map_err(|error| refused(py, &error))
}

/// Returns the exception for operands that no kernel can work on.
pub(crate) fn refused(py: Python<'_>, error: &arenaplan_kernels::Error) -> PyErr {
    raise_named(py, "InvalidOperand", error.to_string())
}

/// Returns the exception for image arrays that no kernel can work on.
fn no_planes(py: Python<'_>) -> PyErr {
    let message = "image and output must be planes, and the output writable";
    raise_named(py, "InvalidOperand", message.into())
}

/// A function argument in a chain.
#[derive(Clone, Copy, Debug, FromPyObject)]
enum Value {
    Register(usize),
    Number(f32),
}

impl From<Value> for Argument {
    fn from(value: Value) -> Self {
        match value {
            Value::Register(at) => Self::Register(at),
            Value::Number(number) => Self::Number(number),
        }
    }
}

/// Whether two buffers are the same elements in the same order.
pub(crate) fn is_same<T: Element>(a: &PyBuffer<T>, b: &PyBuffer<T>) -> bool {
    let strides = a.strides().iter().zip(b.strides());
    a.buf_ptr() == b.buf_ptr()
        && a.shape() == b.shape()
        && strides.zip(a.shape()).all(|((a, b), &count)| a == b || count == 1)
}

/// Numbers that a chain computes with.
#[derive(FromPyObject)]
enum Numbers {
    Single(PyBuffer<f32>),
    Signed(PyBuffer<i8>),
    Unsigned(PyBuffer<u8>),
}

/// Evaluates an expression for the buffer that some numbers are in.
macro_rules! of_buffer {
    ($numbers:expr, $buffer:ident => $made:expr) => {
        match $numbers {
            Numbers::Single($buffer) => $made,
            Numbers::Signed($buffer) => $made,
            Numbers::Unsigned($buffer) => $made,
        }
    };
}

impl Numbers {
    const fn kind(&self) -> Kind {
        match self {
            Self::Single(_) => Kind::Single,
            Self::Signed(_) => Kind::Signed,
            Self::Unsigned(_) => Kind::Unsigned,
        }
    }

    fn shape(&self) -> &[usize] {
        of_buffer!(self, buffer => buffer.shape())
    }

    fn readonly(&self) -> bool {
        of_buffer!(self, buffer => buffer.readonly())
    }

    fn is_contiguous(&self) -> bool {
        of_buffer!(self, buffer => buffer.is_c_contiguous())
    }

    fn span(&self) -> (usize, usize) {
        of_buffer!(self, buffer => span(buffer))
    }

    /// Returns the strides in elements, if none is negative.
    fn element_strides(&self) -> Option<Vec<usize>> {
        of_buffer!(self, buffer => element_strides(buffer))
    }

    /// Returns whether an output, which is made in order, may be the memory of these numbers: the
    /// output has the same elements, or no output element reaches an element that is read later.
    fn is_taken_over(&self, output: &Self) -> bool {
        let start = |numbers: &Self| of_buffer!(numbers, buffer => buffer.buf_ptr().addr());
        let (own, made) = (self.kind().bytes(), output.kind().bytes());
        if self.shape() != output.shape() || own < made {
            return false;
        }
        if own > made {
            return start(output) <= start(self) && self.is_contiguous() && output.is_contiguous();
        }
        let strides = self.element_strides().zip(output.element_strides());
        start(self) == start(output)
            && strides.is_some_and(|(a, b)| {
                a.iter().zip(&b).zip(self.shape()).all(|((a, b), &count)| a == b || count == 1)
            })
    }

    fn cells(&self) -> arenaplan_kernels::Result<Elements<'_>> {
        let (low, high) = self.span();
        let len = (high - low) / self.kind().bytes();
        of_buffer!(self, buffer => cells(buffer, self.kind(), len))
    }
}

/// Fails if two buffers share bytes.
pub(crate) fn check_apart<A: Element, B: Element>(
    py: Python<'_>,
    a: &PyBuffer<A>,
    b: &PyBuffer<B>,
) -> PyResult<()> {
    apart(py, span(a), span(b))
}

/// Fails if two address ranges share bytes.
fn apart(py: Python<'_>, a: (usize, usize), b: (usize, usize)) -> PyResult<()> {
    if a.0 < b.1 && b.0 < a.1 {
        return Err(raise_named(py, "InvalidOperand", "operands share memory".into()));
    }
    Ok(())
}

/// Returns the addresses of a buffer's first byte, and behind the last byte.
fn span<T: Element>(buffer: &PyBuffer<T>) -> (usize, usize) {
    let (mut low, mut high) = (buffer.buf_ptr().addr(), buffer.buf_ptr().addr());
    if buffer.item_count() == 0 {
        return (low, low);
    }
    for (&count, &stride) in buffer.shape().iter().zip(buffer.strides()) {
        let reach = stride.unsigned_abs() * (count - 1);
        if stride < 0 { low -= reach } else { high += reach }
    }
    (low, high + buffer.item_size())
}

/// Planes of an image and an output, and scratch elements.
type ImageParts<'b, T> = (Planes<'b, T>, PlanesMut<'b, T>, &'b mut [f32]);

/// Planes of rows that are read, if apart from the output, and planes of the output.
type RowParts<'b> = (Option<Planes<'b, f32>>, PlanesMut<'b, f32>);

/// An image, an output, and scratch memory, which share no byte; but the output may share bytes with
/// the image, if the kernel permits sharing.
pub(crate) struct Images<T: Element> {
    pub(crate) image: PyBuffer<T>,
    pub(crate) image_layout: PlaneLayout,
    pub(crate) output: PyBuffer<T>,
    pub(crate) output_layout: PlaneLayout,
    pub(crate) scratch: PyBuffer<f32>,
}

impl<T: Element> Images<T> {
    /// Returns images whose planes are contiguous.
    pub(crate) fn of_planes(
        py: Python<'_>,
        image: PyBuffer<T>,
        output: PyBuffer<T>,
        scratch: PyBuffer<f32>,
    ) -> PyResult<Self> {
        let layouts = PlaneLayout::of(&image).zip(PlaneLayout::of(&output));
        Self::new(py, image, output, scratch, layouts)
    }

    /// Returns images with the given layouts, if there are layouts.
    pub(crate) fn new(
        py: Python<'_>,
        image: PyBuffer<T>,
        output: PyBuffer<T>,
        scratch: PyBuffer<f32>,
        layouts: Option<(PlaneLayout, PlaneLayout)>,
    ) -> PyResult<Self> {
        let Some((image_layout, output_layout)) = layouts.filter(|_| !output.readonly()) else {
            return Err(no_planes(py));
        };
        check_apart(py, &image, &scratch)?;
        check_apart(py, &output, &scratch)?;
        Ok(Self { image, image_layout, output, output_layout, scratch })
    }

    /// Fails if an operand that the kernel reads shares bytes with the output or the scratch memory.
    pub(crate) fn check_reads<'b, A: Element + 'b>(
        &self,
        py: Python<'_>,
        reads: impl IntoIterator<Item = &'b PyBuffer<A>>,
    ) -> PyResult<()> {
        reads.into_iter().try_for_each(|read| {
            check_apart(py, read, &self.output)?;
            check_apart(py, read, &self.scratch)
        })
    }

    /// Returns the image channels, and the output channels.
    pub(crate) fn channels(&self) -> [usize; 2] {
        [self.image_layout.counts[1], self.output_layout.counts[1]]
    }

    /// Returns the planes of image and output, and the scratch elements.
    pub(crate) fn parts(&mut self) -> arenaplan_kernels::Result<ImageParts<'_, T>> {
        let image = planes(&self.image, &self.image_layout)?;
        let output = planes_mut(&mut self.output, &self.output_layout)?;
        Ok((image, output, elements_mut(&mut self.scratch)))
    }
}

/// The numbers that are added to a convolution's result.
enum Addend {
    Nothing,
    /// The numbers in the result's memory.
    Result,
    /// Elements that share no byte with the result or the scratch memory.
    Numbers(PyBuffer<f32>, PlaneLayout),
}

/// Rows that are replaced by others, or written elsewhere.
struct Rows {
    source: Option<(PyBuffer<f32>, PlaneLayout)>,
    output: PyBuffer<f32>,
    layout: PlaneLayout,
}

impl Rows {
    fn new(py: Python<'_>, source: Option<PyBuffer<f32>>, output: PyBuffer<f32>) -> PyResult<Self> {
        let fail = || {
            let message = "rows are apart in too many ways, or cannot be written";
            raise_named(py, "InvalidOperand", message.into())
        };
        let layout = PlaneLayout::of_rows(&output).filter(|_| !output.readonly());
        let layout = layout.ok_or_else(fail)?;
        let source = match source {
            Some(source) => {
                check_apart(py, &source, &output)?;
                let layout = PlaneLayout::of_rows(&source).ok_or_else(fail)?;
                Some((source, layout))
            }
            None => None,
        };
        Ok(Self { source, output, layout })
    }

    /// Returns the planes of the source, if apart from the output, and of the output.
    fn parts(&mut self) -> arenaplan_kernels::Result<RowParts<'_>> {
        let Self { source, output, layout } = self;
        let source = source.as_ref().map(|(source, layout)| planes(source, layout)).transpose()?;
        Ok((source, planes_mut(output, layout)?))
    }
}
