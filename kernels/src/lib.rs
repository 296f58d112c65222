//! Kernels without a fast equal in NumPy, on planned memory.
//!
//! Every kernel is a function over views of the caller's memory. A kernel allocates nothing:
//! scratch memory is an argument, and a function tells the size beforehand. A result element
//! depends only on its operands, and on no other element in the same call: so a tile has the same
//! bits as that part of the whole, for any tiles. A kernel starts no thread; the caller's [`Team`]
//! of threads divides a kernel into such parts.
//!
//! Vector instructions come from [`rten_simd`], which chooses AVX-512, AVX2, NEON, WebAssembly or
//! plain code when a kernel is called; exponential functions come from `rten_vecmath`. Matrix
//! multiplication is written here and not taken from `rten-gemm`: that crate packs into its own
//! memory, brings a thread pool, and writes only contiguous results, while image tiles are not
//! contiguous.

#![allow(
    clippy::inline_always,
    reason = "vector instructions are those of the function that code is inlined into"
)]

mod bytes;
mod chain;
mod conv;
mod conv_shape;
mod copied;
mod cost;
mod depthwise;
mod division;
mod error;
mod frame;
mod lane_image;
mod lane_product;
mod lanes;
mod matrix;
mod order;
mod pack;
mod pool;
mod product;
mod quantized;
mod quantized_copied;
mod quantized_depthwise;
mod quantized_matrix;
mod quantized_shape;
mod raw;
mod recurrent;
mod requantize;
mod rows;
mod table;
mod team;
mod tile;

pub use bytes::Encoding;
pub use chain::{Argument, Chain, Function, OPERANDS, REGISTERS, Step};
pub use conv::{Schedule, Way, packed_weights, packed_weights_len};
pub use conv_shape::{Conv, Start};
pub use depthwise::Depthwise;
pub use error::{Error, Result};
pub use lanes::Lanes;
pub use matrix::Matrix;
pub use pack::{Side, Sliding};
pub use pool::{Pooling, pool};

pub use quantized_depthwise::QuantizedDepthwise;
pub use quantized_matrix::QuantizedMatrix;
pub use quantized_shape::{QuantizedConv, QuantizedWay};
pub use raw::{Elements, Kind, Planes, PlanesMut};
pub use recurrent::{Cell, Recurrence, State};
pub use requantize::Requantization;
pub use rows::{Normalization, softmax};
pub use table::{CODES, TableSoftmax};
pub use team::Team;
pub use tile::COLUMNS;
