//! The shape of a byte convolution, the ways to compute the convolution, and a sweep over images.

use std::marker::PhantomData;

use crate::bytes::Encoding;
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::lane_image::Image;
use crate::lanes::{Lane, Lanes, MOST_TERMS};
use crate::pack::Sliding;
use crate::raw::{Planes, PlanesMut};
use crate::requantize::Requantization;
use crate::tile::panel_rows;

/// Byte convolution sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedConv {
    pub(crate) window: Sliding,
    pub(crate) groups: usize,
    pub(crate) fan_in: usize,
    pub(crate) fan_out: usize,
    pub(crate) lanes: Lanes,
}

/// A way to compute a byte convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedWay {
    pub(crate) form: ImageForm,
    pub(crate) cycles: usize,
}

/// The image's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageForm {
    /// The unrolled image.
    Unrolled {
        /// Positions at a time.
        columns: usize,
        /// Lane rows at a time.
        rows: usize,
        /// Rows of sums that are kept in scratch memory over several passes.
        held: usize,
    },
    /// Channel lanes in a frame.
    Framed(Frame),
}

impl QuantizedWay {
    /// Returns the scratch elements that the way needs.
    pub fn scratch_len(&self) -> usize {
        match self.form {
            ImageForm::Unrolled { columns, rows, held } => columns * (rows + held),
            ImageForm::Framed(frame) => frame.len(),
        }
    }

    /// Returns the unit of positions whose results can be made separately: parts of a division are
    /// multiples of the unit.
    pub(crate) fn step(&self) -> usize {
        match self.form {
            ImageForm::Unrolled { columns, .. } => columns,
            ImageForm::Framed(frame) => frame.rows * frame.width(),
        }
    }

    /// Returns an estimate of the cycles for one group's product: see [`crate::Way::cycles`].
    pub fn cycles(&self) -> usize {
        self.cycles
    }
}

impl QuantizedConv {
    /// Returns a convolution with `groups` groups, each from `fan_in` channels to `fan_out`.
    ///
    /// # Arguments
    ///
    /// * `lanes`: the lanes for the weights. Ways with [`Lanes::Pairs`] have room for other lanes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, a product of sizes overflows, or a sum has more
    /// terms than 32 bits can hold.
    pub fn new(
        window: Sliding,
        groups: usize,
        fan_in: usize,
        fan_out: usize,
        lanes: Lanes,
    ) -> Result<Self> {
        let weights = [groups, fan_out.next_multiple_of(panel_rows()), fan_in, window.taps()]
            .iter()
            .try_fold(1_usize, |product, &size| product.checked_mul(size));
        let made = Self { window, groups, fan_in, fan_out, lanes };
        if weights.is_none_or(|weights| weights == 0) || made.depth() > MOST_TERMS {
            return Err(Error::OutOfRange { what: "the number of weights" });
        }
        Ok(made)
    }

    pub(crate) fn depth(&self) -> usize {
        self.fan_in * self.window.taps()
    }

    /// Returns the lanes per position: the channel lanes.
    pub(crate) fn lanes(&self) -> usize {
        self.fan_in.div_ceil(self.lanes.channels())
    }

    /// Returns the lanes per column: channel lanes, times elements under the window.
    pub(crate) fn depth_lanes(&self) -> usize {
        self.lanes() * self.window.taps()
    }

    pub(crate) fn panels(&self) -> usize {
        self.fan_out.div_ceil(panel_rows())
    }
}

/// All images and groups, at some positions.
pub(crate) struct QuantizedSweep<'a, 'o> {
    pub(crate) conv: &'a QuantizedConv,
    pub(crate) way: &'a QuantizedWay,
    pub(crate) image: &'a Planes<'a, u8>,
    pub(crate) encoding: Encoding,
    pub(crate) weights: &'a [i32],
    /// For each result channel, the sum of the weights, if a zero point is in the image.
    pub(crate) totals: &'a [i32],
    pub(crate) addend: Option<&'a [i32]>,
    pub(crate) finish: &'a Requantization<'a>,
    /// The first position.
    pub(crate) start: usize,
    /// As many elements per plane as there are positions.
    pub(crate) output: PlanesMut<'o, u8>,
}

impl<'a> QuantizedSweep<'a, '_> {
    /// Returns the channels in an image group.
    pub(crate) fn image_of<L: Lane>(&self, n: usize, group: usize) -> Image<'a, L> {
        let fan_in = self.conv.fan_in;
        Image {
            planes: self.image,
            encoding: self.encoding,
            n,
            channels: group * fan_in..(group + 1) * fan_in,
            lane: PhantomData,
        }
    }

    /// Writes the integers that the sums for some channels begin with.
    #[inline(always)]
    pub(crate) fn begin<L: Lane, const N: usize>(
        &self,
        channel: usize,
        made: usize,
        sums: &mut [[f32; N]],
    ) {
        let zero = L::zero(self.encoding);
        for (row, sums) in sums.iter_mut().enumerate() {
            let channel = Some(channel + row).filter(|_| row < made);
            let of =
                |integers: &[i32]| channel.and_then(|at| integers.get(at).copied()).unwrap_or(0);
            // Sums are right modulo 2³², and complete sums are in range.
            let start = self.addend.map_or(0, of).wrapping_sub(of(self.totals).wrapping_mul(zero));
            sums.fill(f32::from_bits(start.cast_unsigned()));
        }
    }
}
