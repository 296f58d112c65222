//! The input of a solver: buffers with sizes and live ranges, in spaces with capacities.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::ops::Range;

use crate::base::{
    Alignment, BufferId, Error, LiveRange, MAX_BYTES, Result, SpaceId, Step, quoted,
};
use crate::pack::rectangles::{Held, Overlap, first_overlap};

/// One memory that offsets count in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    name: String,
    capacity: Option<u64>,
    alignment: Alignment,
    cost: u64,
}

impl Space {
    /// Returns an unlimited space called `name`, in which moving bytes costs nothing.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), capacity: None, alignment: Alignment::BYTE, cost: 0 }
    }

    /// Limits the space to `bytes`.
    #[must_use]
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Makes every buffer of the space start at a multiple of `alignment`.
    #[must_use]
    pub fn with_alignment(mut self, alignment: Alignment) -> Self {
        self.alignment = alignment;
        self
    }

    /// Sets the cost of reading or writing one byte, in any unit that all spaces share.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Returns the name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cost of reading or writing one byte.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the capacity in bytes, or `None` if it is unlimited.
    pub const fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    /// Returns the alignment of every offset in the space.
    pub const fn alignment(&self) -> Alignment {
        self.alignment
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::new("arena")
    }
}

/// Some bytes of a buffer, and when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes inside the buffer, counted from its start.
    pub bytes: Range<u64>,
    /// When they hold something, in order and without overlap.
    pub live: Vec<LiveRange>,
}

/// Rare properties of a buffer; other buffers need no memory for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Details {
    pin: Option<u64>,
    hint: Option<u64>,
    /// Windows with live ranges of their own; none if all bytes are live all the time.
    parts: Vec<Part>,
}

/// Bytes that are needed contiguously: a *rigid group* of parts that move together.
///
/// In the common case the group is one part, the whole buffer, with one live
/// range. A concatenation whose operands are written in place has one part per
/// operand, live from that operand on; a buffer that is idle in between has a
/// part with two live ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    bytes: u64,
    /// The smallest range of steps that covers every part.
    live: LiveRange,
    details: Option<Box<Details>>,
    space: SpaceId,
    alignment: Alignment,
}

impl Buffer {
    /// Returns a buffer of `bytes` bytes, all of them needed during `live`.
    #[must_use]
    pub fn new(bytes: u64, live: LiveRange) -> Self {
        Self { bytes, live, details: None, space: SpaceId::new(0), alignment: Alignment::BYTE }
    }

    /// Returns a buffer of `bytes` bytes made of `parts`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidBuffer`] if there are no parts, or a part is empty, reaches
    /// past the buffer, or has live ranges that are unordered or overlap, or if two
    /// parts hold one byte at one step.
    ///
    /// ```
    /// use arenaplan::base::LiveRange;
    /// use arenaplan::pack::{Buffer, Part};
    /// // Ten bytes written at step 0, ten more behind them at step 4, all read at step 5.
    /// let concat = Buffer::with_parts(20, vec![
    ///     Part { bytes: 0..10, live: vec![LiveRange::new(0, 6)?] },
    ///     Part { bytes: 10..20, live: vec![LiveRange::new(4, 6)?] },
    /// ])?;
    /// assert_eq!(concat.live(), LiveRange::new(0, 6)?);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn with_parts(bytes: u64, parts: Vec<Part>) -> Result<Self> {
        let refuse = |reason: &str| Err(Error::InvalidBuffer { buffer: 0, reason: reason.into() });
        let lives = parts.iter().flat_map(|part| part.live.iter().copied());
        let Some(live) = lives.reduce(LiveRange::hull) else {
            return refuse("it is never live");
        };
        for part in &parts {
            if part.bytes.start >= part.bytes.end || part.bytes.end > bytes {
                return refuse("a part is empty or reaches past the buffer");
            }
            if part.live.is_empty() {
                return refuse("a part is never live");
            }
            if part.live.windows(2).any(|pair| pair[0].end() > pair[1].start()) {
                return refuse("the live ranges of a part overlap or are not in order");
            }
        }
        let held = parts.iter().flat_map(|part| {
            let Range { start, end } = part.bytes;
            part.live.iter().map(move |&live| Held { start, end, live, owner: 0 })
        });
        if first_overlap(held).is_some() {
            return refuse("two parts hold the same byte at the same step");
        }
        let mut buffer = Self::new(bytes, live);
        let solid = parts.len() == 1 && parts[0].live.len() == 1 && parts[0].bytes == (0..bytes);
        if !solid {
            buffer.details_mut().parts = parts;
        }
        Ok(buffer)
    }

    /// Makes the buffer start at a multiple of `alignment`.
    #[must_use]
    pub fn with_alignment(mut self, alignment: Alignment) -> Self {
        self.alignment = alignment;
        self
    }

    /// Puts the buffer into `space`.
    #[must_use]
    pub fn with_space(mut self, space: SpaceId) -> Self {
        self.space = space;
        self
    }

    /// Fixes the buffer at `offset`.
    #[must_use]
    pub fn with_pin(mut self, offset: u64) -> Self {
        self.details_mut().pin = Some(offset);
        self
    }

    /// Suggests `offset` for the buffer.
    #[must_use]
    pub fn with_hint(mut self, offset: u64) -> Self {
        self.details_mut().hint = Some(offset);
        self
    }

    /// Returns the size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the alignment of the buffer's offset.
    pub const fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Returns the space that the buffer lives in.
    pub const fn space(&self) -> SpaceId {
        self.space
    }

    /// Returns the offset at which the buffer is fixed, if it is.
    pub fn pin(&self) -> Option<u64> {
        self.details.as_ref()?.pin
    }

    /// Returns the suggested offset, if there is one.
    pub fn hint(&self) -> Option<u64> {
        self.details.as_ref()?.hint
    }

    /// Returns the live range if the buffer is one part with one live range.
    pub fn solid(&self) -> Option<LiveRange> {
        self.parts().is_empty().then_some(self.live)
    }

    /// Returns the smallest range of steps that covers every part.
    pub const fn live(&self) -> LiveRange {
        self.live
    }

    /// Iterates over the buffer as rectangles of bytes × steps.
    ///
    /// A solid buffer is one; otherwise there is one per part and live range.
    pub fn rectangles(&self) -> impl Iterator<Item = (Range<u64>, LiveRange)> + Clone {
        let parts = self.parts();
        let solid = parts.is_empty().then_some((0..self.bytes, self.live));
        let parts =
            parts.iter().flat_map(|part| part.live.iter().map(|&live| (part.bytes.clone(), live)));
        solid.into_iter().chain(parts)
    }

    fn parts(&self) -> &[Part] {
        self.details.as_ref().map_or(&[], |details| &details.parts)
    }

    fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }
}

/// Buffers to be given offsets, so that those live together share no byte.
///
/// ```
/// use arenaplan::base::LiveRange;
/// use arenaplan::pack::{Buffer, Space};
/// use arenaplan::Problem;
/// let problem = Problem::new(
///     vec![
///         Buffer::new(100, LiveRange::new(0, 2)?),
///         Buffer::new(60, LiveRange::new(1, 3)?),
///         Buffer::new(100, LiveRange::new(2, 4)?),
///     ],
///     vec![Space::default()],
/// )?;
/// let packing = arenaplan::solve(&problem, &arenaplan::Budget::default())?;
/// assert_eq!(packing.peak(), 160); // as much as is live at step 1: it is optimal
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    buffers: Vec<Buffer>,
    spaces: Vec<Space>,
    horizon: Step,
}

impl Problem {
    /// Returns the problem of placing `buffers` in `spaces`.
    ///
    /// # Errors
    ///
    /// - [`Error::SizeOverflow`] if a buffer has more than [`MAX_BYTES`] bytes.
    /// - [`Error::InvalidBuffer`] if a buffer names a space that is not there.
    /// - [`Error::PinConflict`] if a pinned buffer is misaligned, past its space's
    ///   capacity, or on top of another pinned one.
    pub fn new(buffers: Vec<Buffer>, spaces: Vec<Space>) -> Result<Self> {
        let mut horizon = Step::default();
        let mut pinned = Vec::new();
        for (index, buffer) in buffers.iter().enumerate() {
            if buffer.bytes > MAX_BYTES {
                return Err(Error::SizeOverflow { what: format!("buffer {index}") });
            }
            let Some(space) = spaces.get(buffer.space.index()) else {
                let reason = format!("it is in space {}, which is not there", buffer.space);
                return Err(Error::InvalidBuffer { buffer: index, reason });
            };
            if let Some(pin) = buffer.pin() {
                check_pin(index, buffer, pin, space)?;
                pinned.push(BufferId::new(index));
            }
            horizon = horizon.max(buffer.live.end());
        }
        let problem = Self { buffers, spaces, horizon };
        problem.check_pins_are_apart(&pinned)?;
        Ok(problem)
    }

    /// Returns every buffer, by [`BufferId`].
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Returns one buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// Returns every space, by [`SpaceId`].
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Returns the same problem in spaces without limits.
    #[must_use]
    pub fn without_capacities(&self) -> Self {
        let mut problem = self.clone();
        for space in &mut problem.spaces {
            space.capacity = None;
        }
        problem
    }

    /// Returns the step at which nothing is live any more.
    pub const fn horizon(&self) -> Step {
        self.horizon
    }

    /// Returns the alignment that a buffer must have: its own or its space's, the stricter.
    pub fn alignment(&self, id: BufferId) -> Alignment {
        let buffer = self.buffer(id);
        buffer.alignment.max(self.spaces[buffer.space.index()].alignment)
    }

    /// Refuses pinned buffers that are live together and share bytes.
    fn check_pins_are_apart(&self, pinned: &[BufferId]) -> Result<()> {
        for space in 0..self.spaces.len() {
            let members = pinned.iter().filter(|&&id| self.buffer(id).space.index() == space);
            let held = members.flat_map(|&id| {
                let buffer = self.buffer(id);
                let pin = buffer.pin().unwrap_or_default();
                buffer.rectangles().map(move |(bytes, live)| Held {
                    start: pin + bytes.start,
                    end: pin + bytes.end,
                    live,
                    owner: id.index(),
                })
            });
            if let Some(Overlap { first, second, byte, .. }) = first_overlap(held) {
                let reason =
                    format!("buffers {first} and {second} are pinned to the same byte {byte}");
                return Err(Error::PinConflict { reason });
            }
        }
        Ok(())
    }
}

/// Refuses a pin that no plan can honour.
fn check_pin(index: usize, buffer: &Buffer, pin: u64, space: &Space) -> Result<()> {
    let alignment = buffer.alignment.max(space.alignment);
    let end = pin.checked_add(buffer.bytes).filter(|&end| end <= MAX_BYTES);
    let reason = match (end, space.capacity) {
        (None, _) => format!("buffer {index} is pinned to offset {pin}, past any memory"),
        (Some(end), Some(capacity)) if end > capacity => {
            let name = quoted(&space.name);
            format!(
                "buffer {index} is pinned to {pin}..{end}, and space {name} has {capacity} bytes"
            )
        }
        _ if !alignment.divides(pin) => {
            format!("buffer {index} is pinned to {pin}, which is not a multiple of {alignment}")
        }
        _ => return Ok(()),
    };
    Err(Error::PinConflict { reason })
}
