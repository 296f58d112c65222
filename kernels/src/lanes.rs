//! 32-bit lanes that hold a few channels each.
//!
//! Processors multiply the channels of two lanes and add the products to a third lane, in one or
//! two instructions: two 16-bit channels (`pmaddwd`), or, with AVX-512 VNNI, four 8-bit channels
//! (`vpdpbusd`), unsigned in the image and signed in the weights. 16-bit channels are differences
//! from the zero point; 8-bit channels are the image bytes themselves. The zero point then adds the
//! same number to the sums at all positions, and sums begin with that much less.
//!
//! A lane vector is kept as an `f32` vector with the same bits: no instruction computes with the
//! numbers. Sums are kept so, too.

use rten_simd::Isa;
use rten_simd::ops::NumOps;

use crate::bytes::Encoding;
use crate::error::{Error, Result};
use crate::raw::{Vnni, pair_products};

/// Most products of two byte differences that fit a 32-bit sum.
pub(crate) const MOST_TERMS: usize = 33_025;
/// Most channels in a lane.
pub(crate) const MOST_CHANNELS: usize = 4;
/// Elements that are converted at a time: as many as compilers put in vectors.
pub(crate) const SOME: usize = 16;

/// The channels in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lanes {
    /// Two 16-bit channels, differences from the zero point.
    Pairs,
    /// Four 8-bit channels.
    Quads,
}

impl Lanes {
    /// Returns the lanes that this processor multiplies fastest, among lanes that hold some
    /// weights.
    ///
    /// # Arguments
    ///
    /// * `weights`: integers less the zero point.
    pub fn of(weights: &[i16]) -> Self {
        let are_bytes = || weights.iter().all(|&weight| i8::try_from(weight).is_ok());
        if Vnni::new().is_some() && are_bytes() { Self::Quads } else { Self::Pairs }
    }

    /// Returns the lanes with so many channels, if such lanes exist.
    pub fn with_channels(channels: usize) -> Option<Self> {
        [Self::Pairs, Self::Quads].into_iter().find(|lanes| lanes.channels() == channels)
    }

    /// Returns the channels per lane.
    pub const fn channels(self) -> usize {
        match self {
            Self::Pairs => 2,
            Self::Quads => 4,
        }
    }

    /// Returns the lane for some weights, of which the first [`Lanes::channels`] count.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if such lanes do not hold a weight.
    pub(crate) fn join(self, weights: [i16; MOST_CHANNELS]) -> Result<i32> {
        match self {
            Self::Pairs => Ok(Pairs::join(weights)),
            Self::Quads => {
                let mut bytes = [0; MOST_CHANNELS];
                for (byte, weight) in bytes.iter_mut().zip(weights) {
                    let signed = i8::try_from(weight);
                    let signed = signed.map_err(|_| Error::OutOfRange { what: "a weight" })?;
                    *byte = signed.cast_unsigned();
                }
                Ok(Vnni::join(bytes))
            }
        }
    }
}

/// Makes lanes from an image, and multiplies lanes.
pub(crate) trait Lane: Copy {
    /// The lanes.
    const LANES: Lanes;
    /// A channel in a lane.
    type Element: Copy + Default;

    /// Returns the element for a byte.
    fn element(encoding: Encoding, byte: u8) -> Self::Element;

    /// Returns the lane for some channels, of which the first [`Lanes::channels`] count.
    fn join(elements: [Self::Element; MOST_CHANNELS]) -> i32;

    /// Returns how much larger elements are than the integers less the zero point.
    fn zero(encoding: Encoding) -> i32;

    /// Returns sums plus the channel products of weight lanes and image lanes.
    fn add<I: Isa>(self, isa: I, sums: I::I32, weights: I::I32, image: I::I32) -> I::I32;
}

/// [`Lanes::Pairs`].
#[derive(Clone, Copy)]
pub(crate) struct Pairs;

impl Lane for Pairs {
    const LANES: Lanes = Lanes::Pairs;
    type Element = i16;

    #[inline(always)]
    fn element(encoding: Encoding, byte: u8) -> i16 {
        let (flip, zero) = encoding.unsigned();
        i16::from(byte ^ flip) - zero
    }

    #[inline(always)]
    fn join([first, second, ..]: [i16; MOST_CHANNELS]) -> i32 {
        i32::from(first.cast_unsigned()) | (i32::from(second) << 16)
    }

    #[inline(always)]
    fn zero(_: Encoding) -> i32 {
        0
    }

    #[inline(always)]
    fn add<I: Isa>(self, isa: I, sums: I::I32, weights: I::I32, image: I::I32) -> I::I32 {
        isa.i32().add(sums, pair_products(isa, weights, image))
    }
}

/// Returns the lanes for [`Lanes::Quads`].
///
/// # Errors
///
/// [`Error::OutOfRange`] if this processor does not multiply such lanes.
pub(crate) fn quads() -> Result<Vnni> {
    Vnni::new().ok_or(Error::OutOfRange { what: "the channels of a lane" })
}

/// [`Lanes::Quads`].
impl Lane for Vnni {
    const LANES: Lanes = Lanes::Quads;
    type Element = u8;

    #[inline(always)]
    fn element(encoding: Encoding, byte: u8) -> u8 {
        byte ^ encoding.unsigned().0
    }

    #[inline(always)]
    fn join(elements: [u8; MOST_CHANNELS]) -> i32 {
        i32::from_le_bytes(elements)
    }

    #[inline(always)]
    fn zero(encoding: Encoding) -> i32 {
        i32::from(encoding.unsigned().1)
    }

    #[inline(always)]
    fn add<I: Isa>(self, isa: I, sums: I::I32, weights: I::I32, image: I::I32) -> I::I32 {
        self.add_products(isa, sums, image, weights)
    }
}

/// The same lanes, where the left operand of a product is the image and the right one the weights.
#[derive(Clone, Copy)]
pub(crate) struct Turned<L>(pub(crate) L);

impl<L: Lane> Lane for Turned<L> {
    const LANES: Lanes = L::LANES;
    type Element = L::Element;

    #[inline(always)]
    fn element(encoding: Encoding, byte: u8) -> L::Element {
        L::element(encoding, byte)
    }

    #[inline(always)]
    fn join(elements: [L::Element; MOST_CHANNELS]) -> i32 {
        L::join(elements)
    }

    #[inline(always)]
    fn zero(encoding: Encoding) -> i32 {
        L::zero(encoding)
    }

    #[inline(always)]
    fn add<I: Isa>(self, isa: I, sums: I::I32, image: I::I32, weights: I::I32) -> I::I32 {
        self.0.add(isa, sums, weights, image)
    }
}

/// Writes every `stride`-th byte of a source, `count` bytes in all, as lane elements, and perhaps
/// some more, if `target` has elements behind these.
#[inline(always)]
pub(crate) fn convert<L: Lane>(
    encoding: Encoding,
    source: &[u8],
    stride: usize,
    count: usize,
    target: &mut [L::Element],
) {
    for at in (0..count).step_by(SOME) {
        let (bytes, target) = (&source[stride * at..], &mut target[at..]);
        if stride == 1
            && let (Some(from), Some(to)) =
                (bytes.first_chunk::<SOME>(), target.first_chunk_mut::<SOME>())
        {
            for (to, from) in to.iter_mut().zip(from) {
                *to = L::element(encoding, *from);
            }
        } else if stride == 2
            && let (Some(from), Some(to)) =
                (bytes.first_chunk::<{ 2 * SOME }>(), target.first_chunk_mut::<SOME>())
        {
            // The first of two bytes is the low half of 16 bits, for which there are vectors.
            for (to, both) in to.iter_mut().zip(from.as_chunks().0) {
                let [low, _] = (u16::from_le_bytes(*both) & 0xff).to_le_bytes();
                *to = L::element(encoding, low);
            }
        } else {
            let elements = bytes.iter().step_by(stride);
            for (to, from) in target.iter_mut().zip(elements).take(SOME.min(count - at)) {
                *to = L::element(encoding, *from);
            }
        }
    }
}
