//! Convolution of every byte channel by itself, with exact sums and a byte result.

use rten_simd::{Isa, SimdOp};

use crate::bytes::Encoding;
use crate::depthwise::{Depthwise, WeightedWindow};
use crate::error::{Result, check, check_at_least};
use crate::pack::Sliding;
use crate::raw::{Axis, Planes, PlanesMut};
use crate::requantize::Requantization;
use crate::team::{Team, even, ranges};

/// Image elements that are widened at a time, if a row is not longer: they stay in cache.
const SOME: usize = 512;

/// The sizes of a byte convolution of every channel by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedDepthwise(Depthwise);

impl QuantizedDepthwise {
    /// Returns a convolution from each of some channels to `fan_out` channels.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](crate::Error::OutOfRange) if a size is zero, or a product of sizes overflows.
    pub fn new(window: Sliding, channels: usize, fan_out: usize) -> Result<Self> {
        Depthwise::new(window, channels, fan_out).map(Self)
    }

    /// Returns the scratch elements for a run: a padded plane, and a result plane or an image row.
    pub fn scratch_len(&self) -> usize {
        self.0.scratch_len().saturating_add(self.real_len())
    }

    fn real_len(&self) -> usize {
        self.0.window().width().max(self.0.window().positions())
    }

    /// Computes the convolution, plane by plane: see [`Depthwise::run`]. A sum is exact if the
    /// absolute values of its terms add up to at most 2²⁴.
    ///
    /// # Arguments
    ///
    /// * `encoding`: the image bytes.
    /// * `weights`: one window per result channel, with integers less the zero point.
    /// * `addend`: for each result channel, an integer that its sums begin with.
    /// * `scratch`: see [`QuantizedDepthwise::scratch_len`].
    ///
    /// # Errors
    ///
    /// [`WrongSize`](crate::Error::WrongSize) if an operand has the wrong size.
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    pub fn run(
        &self,
        image: &Planes<'_, u8>,
        encoding: Encoding,
        weights: &[f32],
        addend: Option<&[f32]>,
        finish: &Requantization<'_>,
        output: &mut PlanesMut<'_, u8>,
        scratch: &mut [f32],
        team: &Team,
    ) -> Result<()> {
        let Self(sizes) = self;
        let [images, channels] = image.counts();
        let (window, fan_out) = (sizes.window(), sizes.fan_out());
        let made = sizes.channels() * fan_out;
        check("the image's channels", channels, sizes.channels())?;
        check("a plane of the image", image.size(), window.plane())?;
        check("the batch of the result", output.counts()[0], images)?;
        check("the result's channels", output.counts()[1], made)?;
        check("a plane of the result", output.size(), window.positions())?;
        check("the weights", weights.len(), made * window.taps())?;
        if let Some(addend) = addend {
            check("the addend", addend.len(), made)?;
        }
        finish.check(made)?;
        check_at_least("the scratch memory", scratch.len(), self.scratch_len())?;
        let cycles = images * (made * window.positions() * window.taps() / 8);
        // Threads would read planes in another order.
        let is_divided = output.is_same_or_apart(image);
        let length = if is_divided { even(team, channels, cycles) } else { channels };
        let mut rest = output.reborrow();
        let parts = ranges(channels, length).map(move |channels| {
            let made = channels.start * fan_out..channels.end * fan_out;
            PlaneByPlane {
                sizes,
                image: image.part(0..images, channels, 0..image.size()),
                encoding,
                weights: &weights[made.start * window.taps()..made.end * window.taps()],
                addend: addend.map(|addend| &addend[made.clone()]),
                finish: finish.part(made.clone()),
                output: rest.split_off(Axis::Channels, made.len()),
                scratch: &mut [],
            }
        });
        team.run(parts, scratch, |part, scratch| PlaneByPlane { scratch, ..part }.dispatch());
        Ok(())
    }
}

/// Byte planes, one after another.
struct PlaneByPlane<'a, 's> {
    sizes: &'a Depthwise,
    image: Planes<'a, u8>,
    encoding: Encoding,
    weights: &'a [f32],
    addend: Option<&'a [f32]>,
    finish: Requantization<'a>,
    output: PlanesMut<'a, u8>,
    scratch: &'s mut [f32],
}

impl SimdOp for PlaneByPlane<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        const UNBOUNDED: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);
        let Self { sizes, image, encoding, weights, addend, finish, mut output, scratch } = self;
        let (taps, fan_out) = (sizes.window().taps(), sizes.fan_out());
        let offsets = sizes.offsets();
        let (padded, real) = scratch.split_at_mut(sizes.scratch_len());
        // The padding is zero for all planes.
        padded.fill(0.0);
        for n in 0..image.counts()[0] {
            for channel in 0..image.counts()[1] {
                let width = sizes.window().width();
                let some = (real.len().min(SOME) / width).max(1);
                for (at, lines) in image.plane(n, channel).chunks(some * width).enumerate() {
                    encoding.singles(isa, lines, real);
                    for (y, line) in real[..lines.len()].chunks_exact(width).enumerate() {
                        sizes.pad_row(isa, at * some + y, line, padded);
                    }
                }
                for made in channel * fan_out..(channel + 1) * fan_out {
                    let weights = &weights[made * taps..(made + 1) * taps];
                    let bias = addend.map_or(0.0, |addend| addend[made]);
                    let window = WeightedWindow { weights, offsets: &offsets, bias };
                    let sums = &mut real[..output.size()];
                    sizes.plane(padded, &window, UNBOUNDED, sums);
                    finish.singles(isa, made, sums, output.plane(n, made));
                }
            }
        }
    }
}
