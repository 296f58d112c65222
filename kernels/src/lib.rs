//! Kernels that NumPy has no fast equal of, on memory that was planned for them.
//!
//! Every kernel is a function over views of memory that its caller owns. A kernel allocates nothing:
//! scratch memory is an argument, and a function tells its size beforehand. An element of a result
//! depends on its operands alone, and on no other element that the same call makes: so a tile has
//! the bits of the same part of the whole, whatever the tiles are. A kernel starts no thread; a
//! [`Team`] of threads, which its caller has, divides it into such parts.
//!
//! Vector instructions come from [`rten_simd`], which chooses AVX-512, AVX2, NEON, WebAssembly or
//! plain code when a kernel is called; exponential functions from `rten_vecmath`. The
//! multiplication of matrices is written here and not taken from `rten-gemm`: that crate packs into
//! memory of its own, brings a thread pool, and writes contiguous results only, while tiles of
//! an image are not contiguous.

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
