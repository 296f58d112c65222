//! Values: tensors that one node produces and other nodes read.

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString as _},
    vec::Vec,
};
use core::fmt;
use core::str::FromStr;

use crate::base::{Alignment, Error, MAX_BYTES, Result, SpaceId, quoted};

/// The supplier of a value's bytes, and the time for which the bytes are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum ValueKind {
    /// The caller writes the value before a run.
    Input,
    /// Constant data outside the arena, such as weights.
    Constant,
    /// A node produces the value.
    Activation,
    /// A variable: the bytes survive between runs, and nodes may mutate the variable.
    State,
    /// A value inside a fused group: passed on piece by piece, never in the arena.
    /// Only [`Graph::grouped`](crate::Graph::grouped) makes such values.
    Inner,
}

impl ValueKind {
    /// Returns the name that [`from_str`](FromStr::from_str) reads.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Constant => "constant",
            Self::Activation => "activation",
            Self::State => "state",
            Self::Inner => "inner",
        }
    }
}

impl FromStr for ValueKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "input" => Ok(Self::Input),
            "constant" => Ok(Self::Constant),
            "activation" => Ok(Self::Activation),
            "state" => Ok(Self::State),
            _ => Err(Error::unknown_name("value kind", text, "input,constant,activation,state")),
        }
    }
}

/// An element type.
///
/// The core uses only the [`bits`](Self::bits); the name is for people and executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DType {
    name: &'static str,
    bits: u64,
}

macro_rules! dtypes {
    ($($constant:ident = $name:literal, $bits:literal;)*) => {
        impl DType {
            $(
                #[doc = concat!("`", $name, "`: ", stringify!($bits), " bits.")]
                pub const $constant: Self = Self { name: $name, bits: $bits };
            )*
            /// Every element type.
            pub const ALL: &[Self] = &[$(Self::$constant),*];
        }
    };
}

dtypes! {
    BOOL = "bool", 8;
    INT2 = "int2", 2;
    UINT2 = "uint2", 2;
    INT4 = "int4", 4;
    UINT4 = "uint4", 4;
    FLOAT4_E2M1 = "float4_e2m1fn", 4;
    INT8 = "int8", 8;
    UINT8 = "uint8", 8;
    FLOAT8_E4M3FN = "float8_e4m3fn", 8;
    FLOAT8_E4M3FNUZ = "float8_e4m3fnuz", 8;
    FLOAT8_E5M2 = "float8_e5m2", 8;
    FLOAT8_E5M2FNUZ = "float8_e5m2fnuz", 8;
    FLOAT8_E8M0 = "float8_e8m0fnu", 8;
    INT16 = "int16", 16;
    UINT16 = "uint16", 16;
    FLOAT16 = "float16", 16;
    BFLOAT16 = "bfloat16", 16;
    INT32 = "int32", 32;
    UINT32 = "uint32", 32;
    FLOAT32 = "float32", 32;
    INT64 = "int64", 64;
    UINT64 = "uint64", 64;
    FLOAT64 = "float64", 64;
    COMPLEX64 = "complex64", 64;
    COMPLEX128 = "complex128", 128;
}

impl DType {
    /// Returns the name in the spelling of numpy and `ml_dtypes`.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns the element size in bits.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// Returns the bytes that an array of `shape` takes, elements smaller than a byte
    /// packed; `None` if that exceeds [`MAX_BYTES`].
    ///
    /// An array with a zero dimension has no bytes, however large the others are.
    ///
    /// ```
    /// use arenaplan::DType;
    /// assert_eq!(DType::FLOAT32.array_bytes(&[2, 3]), Some(24));
    /// assert_eq!(DType::INT4.array_bytes(&[3]), Some(2));
    /// assert_eq!(DType::INT8.array_bytes(&[1 << 40, 1 << 40]), None);
    /// ```
    pub fn array_bytes(self, shape: &[u64]) -> Option<u64> {
        if shape.contains(&0) {
            return Some(0);
        }
        let mut elements = 1_u64;
        for &dim in shape {
            elements = elements.checked_mul(dim)?;
        }
        let bits = u128::from(elements) * u128::from(self.bits);
        u64::try_from(bits.div_ceil(8)).ok().filter(|&bytes| bytes <= MAX_BYTES)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .iter()
            .find(|dtype| dtype.name == name)
            .copied()
            .ok_or_else(|| Error::UnsupportedDtype { what: "a value".into(), dtype: quoted(name) })
    }
}

/// A tensor that one node produces and other nodes read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub(super) name: String,
    pub(super) kind: ValueKind,
    pub(super) dtype: DType,
    pub(super) shape: Box<[u64]>,
    pub(super) bytes: u64,
    pub(super) alignment: Alignment,
    pub(super) space: SpaceId,
    pub(super) pin: Option<u64>,
}

impl Value {
    /// Returns an array called `name`.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidName`] if the name is empty.
    /// - [`Error::SizeOverflow`] if the array has more than [`MAX_BYTES`] bytes.
    pub fn new(
        name: impl Into<String>,
        kind: ValueKind,
        dtype: DType,
        shape: impl Into<Box<[u64]>>,
    ) -> Result<Self> {
        let (name, shape) = (name.into(), shape.into());
        if name.is_empty() {
            return Err(Error::InvalidName { what: "a value has an empty name".into() });
        }
        let Some(bytes) = dtype.array_bytes(&shape) else {
            let what = format!("value {} of shape {}", quoted(&name), shown_shape(&shape));
            return Err(Error::SizeOverflow { what });
        };
        let (alignment, space) = (Alignment::BYTE, SpaceId::new(0));
        Ok(Self { name, kind, dtype, shape, bytes, alignment, space, pin: None })
    }

    /// Sets the alignment: the value starts at a multiple of `alignment`.
    #[must_use]
    pub fn with_alignment(mut self, alignment: Alignment) -> Self {
        self.alignment = alignment;
        self
    }

    /// Puts the value into `space`.
    #[must_use]
    pub fn with_space(mut self, space: SpaceId) -> Self {
        self.space = space;
        self
    }

    /// Fixes the value at `offset`. The pin of a value without bytes has no effect.
    #[must_use]
    pub fn with_pin(mut self, offset: u64) -> Self {
        self.pin = Some(offset);
        self
    }

    /// Returns the name; unique in the graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the supplier of the bytes.
    pub const fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Returns the element type.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the dimensions; none for a scalar.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the element count, or `None` if the number exceeds 64 bits.
    pub fn elements(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape.iter().try_fold(1_u64, |elements, &dim| elements.checked_mul(dim))
    }

    /// Returns the size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the alignment of the value's offset in bytes.
    pub const fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Returns the memory that the value lives in.
    pub const fn space(&self) -> SpaceId {
        self.space
    }

    /// Returns the offset of a pinned value.
    pub const fn pin(&self) -> Option<u64> {
        self.pin
    }

    /// Returns whether the value lives in the arena: every value but constants and values inside
    /// fused groups.
    pub const fn is_planned(&self) -> bool {
        !matches!(self.kind, ValueKind::Constant | ValueKind::Inner)
    }
}

/// Returns the first dimensions in a shape as text.
fn shown_shape(shape: &[u64]) -> String {
    const LONGEST: usize = 8;
    let dims: Vec<_> = shape.iter().take(LONGEST).map(u64::to_string).collect();
    let rest = if shape.len() > LONGEST { ", …" } else { "" };
    format!("[{}{rest}]", dims.join(", "))
}
