//! Gaps in a buffer's live range: steps that need only some bytes, or no bytes.

use alloc::collections::BTreeMap;
use alloc::{format, vec, vec::Vec};
use core::ops::Range;

use crate::base::{Error, LiveRange, Result};
use crate::problem::{Buffer, Part};

/// Steps in a buffer's life, and the bytes that are needed in these steps.
///
/// The type represents minimalloc's gaps and their windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The steps.
    pub steps: LiveRange,
    /// Bytes that stay needed; empty if none are.
    pub bytes: Range<u64>,
}

impl Buffer {
    /// Returns a buffer of `bytes` bytes that are needed during `live`, except for `gaps`.
    ///
    /// Steps outside the live range are ignored. Where gaps overlap, the bytes that all of these
    /// gaps keep are needed. Takes O(n log n) for n gaps.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidBuffer`] if a gap keeps bytes that the buffer does not have, or the gaps
    /// leave nothing to need.
    ///
    /// ```
    /// use arenaplan_pack::base::LiveRange;
    /// use arenaplan_pack::{Buffer, Gap};
    /// // Written at step 0 and read at step 9; only the first 8 bytes are needed in between.
    /// let gap = Gap { steps: LiveRange::new(1, 9)?, bytes: 0..8 };
    /// let buffer = Buffer::with_gaps(64, LiveRange::new(0, 10)?, &[gap])?;
    /// assert_eq!(buffer.rectangles().count(), 3);
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    pub fn with_gaps(bytes: u64, live: LiveRange, gaps: &[Gap]) -> Result<Self> {
        let inside = |gap: &Gap| gap.bytes.start <= gap.bytes.end && gap.bytes.end <= bytes;
        if let Some(gap) = gaps.iter().find(|gap| !inside(gap)) {
            let Range { start, end } = gap.bytes;
            let reason = format!("a gap keeps bytes {start}..{end} of {bytes}");
            return Err(Error::InvalidBuffer { buffer: 0, reason });
        }
        if bytes == 0 || gaps.is_empty() {
            return Ok(Self::new(bytes, live));
        }
        let mut whole = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        for Gap { steps, bytes: needed } in needed(live, bytes, gaps) {
            if needed == (0..bytes) {
                whole.push(steps);
            } else {
                parts.push(Part { bytes: needed, live: vec![steps] });
            }
        }
        if !whole.is_empty() {
            parts.push(Part { bytes: 0..bytes, live: whole });
        }
        Self::with_parts(bytes, parts)
    }
}

/// Returns the bytes that gaps leave needed, by steps in order; steps that need no byte are
/// left out. O(n log n) in the number of gaps.
fn needed(live: LiveRange, size: u64, gaps: &[Gap]) -> Vec<Gap> {
    let clipped = gaps.iter().filter_map(|gap| {
        let start = gap.steps.start().get().max(live.start().get());
        let end = gap.steps.end().get().min(live.end().get());
        (start < end).then_some((start, end, &gap.bytes))
    });
    let mut edges: Vec<(u32, bool, &Range<u64>)> = clipped
        .flat_map(|(start, end, bytes)| [(start, true, bytes), (end, false, bytes)])
        .collect();
    edges.sort_unstable_by_key(|&(step, ..)| step);
    // For the gaps that hold at a step: the number of windows that begin and end at each byte.
    let (mut lows, mut highs) = (Counts::default(), Counts::default());
    let mut pieces: Vec<Gap> = Vec::new();
    let mut done = live.start().get();
    let mut edges = edges.into_iter().peekable();
    loop {
        let next = edges.peek().map_or(live.end().get(), |&(step, ..)| step);
        let low = lows.0.last_key_value().map_or(0, |(&byte, _)| byte);
        let high = highs.0.first_key_value().map_or(size, |(&byte, _)| byte);
        if let Ok(steps) = LiveRange::new(done, next)
            && low < high
        {
            match pieces.last_mut() {
                Some(last) if last.bytes == (low..high) && last.steps.end() == steps.start() => {
                    last.steps = last.steps.hull(steps);
                }
                _ => pieces.push(Gap { steps, bytes: low..high }),
            }
        }
        done = next;
        let Some((_, begins, bytes)) = edges.next() else {
            return pieces;
        };
        lows.change(bytes.start, begins);
        highs.change(bytes.end, begins);
    }
}

/// Occurrences by number.
#[derive(Debug, Default)]
struct Counts(BTreeMap<u64, usize>);

impl Counts {
    /// Adds or removes one occurrence.
    fn change(&mut self, number: u64, add: bool) {
        let count = self.0.entry(number).or_default();
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.0.remove(&number);
        }
    }
}
