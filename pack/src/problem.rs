//! The input of a solver: buffers with sizes and live ranges, in spaces with capacities.

use alloc::{boxed::Box, format, vec::Vec};
use core::ops::Range;

use crate::base::{
    Alignment, BufferId, Error, LiveRange, MAX_BYTES, Result, SpaceId, Step, gcd, quoted,
};
use crate::rectangles::{Held, Overlap, first_overlap, overlap_beyond};
use crate::rules::Rules;
use crate::space::{Space, check_multiple};

/// Most spaces in a problem in which buffers may be in several spaces.
const MOST_CHOICES: usize = 64;

/// Some bytes of a buffer, with the steps that need the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes inside the buffer, relative to its start.
    pub bytes: Range<u64>,
    /// Live ranges of the bytes, in order and without overlap.
    pub live: Vec<LiveRange>,
}

/// Rare properties of a buffer; other buffers take no memory for these properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BufferDetails {
    pin: Option<u64>,
    hint: Option<u64>,
    /// Windows with separate live ranges; empty if all bytes are live all the time.
    parts: Vec<Part>,
    /// Permitted bytes in the space.
    range: Option<Range<u64>>,
    /// A number that divides the offset, besides the alignment; 0 for none.
    multiple: u64,
    /// Buffers in one group have the same offset.
    group: Option<u32>,
    /// Spaces that the buffer may be in, ascending; none if only [`Buffer::space`].
    spaces: Vec<SpaceId>,
}

/// Bytes that are needed contiguously: a *rigid group* of parts that move together.
///
/// In the common case the group is a single part, the whole buffer, with one live range. A
/// concatenation whose operands are written in place has one part per operand, live from the
/// operand's birth on. A buffer that is idle in between has a part with two live ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    bytes: u64,
    /// The smallest step range that covers every part.
    live: LiveRange,
    details: Option<Box<BufferDetails>>,
    space: SpaceId,
    alignment: Alignment,
}

impl Buffer {
    /// Returns a buffer of `bytes` bytes that are all needed during `live`.
    #[must_use]
    pub fn new(bytes: u64, live: LiveRange) -> Self {
        Self { bytes, live, details: None, space: SpaceId::new(0), alignment: Alignment::BYTE }
    }

    /// Returns a buffer with `bytes` bytes, made from `parts`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidBuffer`] if there are no parts, or a part is empty, reaches
    /// past the buffer, or has live ranges that are unordered or overlap, or if two
    /// parts hold one byte at one step.
    ///
    /// ```
    /// use arenaplan_pack::base::LiveRange;
    /// use arenaplan_pack::{Buffer, Part};
    /// // Ten bytes written at step 0, ten more behind them at step 4, all read at step 5.
    /// let concat = Buffer::with_parts(20, vec![
    ///     Part { bytes: 0..10, live: vec![LiveRange::new(0, 6)?] },
    ///     Part { bytes: 10..20, live: vec![LiveRange::new(4, 6)?] },
    /// ])?;
    /// assert_eq!(concat.live(), LiveRange::new(0, 6)?);
    /// # Ok::<(), arenaplan_pack::Error>(())
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
        if let Some(details) = &mut self.details {
            details.spaces.clear();
        }
        self
    }

    /// Permits the buffer to be in any of `spaces`: [`solve`](crate::solve()) chooses.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidBuffer`] if there is no space.
    ///
    /// ```
    /// use arenaplan_pack::base::{BufferId, LiveRange};
    /// use arenaplan_pack::{Buffer, Rules, Space};
    /// use arenaplan_pack::{Budget, Problem, SpaceId, solve};
    /// // Both operands of a product are read in one cycle, so they are in different banks.
    /// let banks = [SpaceId::new(0), SpaceId::new(1)];
    /// let live = LiveRange::new(0, 2)?;
    /// let buffers = vec![
    ///     Buffer::new(100, live).with_spaces(banks)?,
    ///     Buffer::new(60, live).with_spaces(banks)?,
    /// ];
    /// let mut rules = Rules::default();
    /// rules.separate.push((BufferId::new(0), BufferId::new(1)));
    /// let spaces = vec![Space::new("x").with_capacity(64), Space::new("y").with_capacity(128)];
    /// let packing = solve(&Problem::with_rules(buffers, spaces, rules)?, &Budget::default())?;
    /// assert_eq!(packing.space_of(BufferId::new(0)), banks[1]);
    /// assert_eq!(packing.space_of(BufferId::new(1)), banks[0]);
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    pub fn with_spaces(mut self, spaces: impl IntoIterator<Item = SpaceId>) -> Result<Self> {
        let mut spaces: Vec<SpaceId> = spaces.into_iter().collect();
        spaces.sort_unstable();
        spaces.dedup();
        let Some(&first) = spaces.first() else {
            let reason = "no space is permitted: give at least one".into();
            return Err(Error::InvalidBuffer { buffer: 0, reason });
        };
        self = self.with_space(first);
        if spaces.len() > 1 {
            self.details_mut().spaces = spaces;
        }
        Ok(self)
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

    /// Keeps the buffer inside the bytes `range` of the space.
    ///
    /// ```
    /// use arenaplan_pack::base::LiveRange;
    /// use arenaplan_pack::{Buffer, Space};
    /// use arenaplan_pack::{Budget, Problem, solve};
    /// // The second bank of a memory begins at byte 64.
    /// let buffer = Buffer::new(16, LiveRange::new(0, 1)?).with_range(64..128);
    /// let packing = solve(&Problem::new(vec![buffer], vec![Space::default()])?, &Budget::default())?;
    /// assert_eq!(packing.offsets(), [64]);
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    #[must_use]
    pub fn with_range(mut self, range: Range<u64>) -> Self {
        self.details_mut().range = Some(range);
        self
    }

    /// Makes the buffer start at a multiple of `bytes`, which need not be a power of two.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidAlignment`] if the number is 0 or more than 2^62.
    pub fn with_multiple_of(mut self, bytes: u64) -> Result<Self> {
        check_multiple(bytes)?;
        if bytes.is_power_of_two() {
            return Ok(self.with_alignment(Alignment::new(bytes)?));
        }
        self.details_mut().multiple = bytes;
        Ok(self)
    }

    /// Makes buffer number `index` start at a multiple of `bytes`, too.
    fn add_multiple(&mut self, index: usize, bytes: u64) -> Result<()> {
        let multiple = self.multiple_of();
        let both = (multiple / gcd(multiple, bytes)).checked_mul(bytes);
        let Some(both) = both.filter(|&both| both <= 1 << 62) else {
            return Err(Error::InvalidAlignment { what: format!("buffer {index}"), bytes });
        };
        self.details_mut().multiple = both;
        Ok(())
    }

    /// Gives the buffer the same offset as all buffers with the same `group` in the space.
    #[must_use]
    pub fn with_group(mut self, group: u32) -> Self {
        self.details_mut().group = Some(group);
        self
    }

    /// Returns the permitted bytes in the space, if limited.
    pub fn range(&self) -> Option<Range<u64>> {
        self.details.as_ref()?.range.clone()
    }

    /// Returns the number that divides the offset besides [`Buffer::alignment`]: 1 in most cases.
    pub fn multiple_of(&self) -> u64 {
        self.details.as_ref().map_or(1, |details| details.multiple.max(1))
    }

    /// Returns the group whose buffers have the same offset, if the buffer is in one.
    pub fn group(&self) -> Option<u32> {
        self.details.as_ref()?.group
    }

    /// Returns the size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the alignment for the buffer's offset.
    pub const fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Returns the buffer's space; the first permitted space, if there are several.
    pub const fn space(&self) -> SpaceId {
        self.space
    }

    /// Returns the spaces that the buffer may be in, ascending.
    pub fn spaces(&self) -> &[SpaceId] {
        let several = self.details.as_ref().map(|details| &details.spaces[..]);
        several.filter(|it| !it.is_empty()).unwrap_or(core::slice::from_ref(&self.space))
    }

    /// Returns whether the buffer may be in several spaces.
    pub fn has_choice(&self) -> bool {
        self.spaces().len() > 1
    }

    /// Returns a pinned buffer's offset.
    pub fn pin(&self) -> Option<u64> {
        self.details.as_ref()?.pin
    }

    /// Returns the suggested offset, if any.
    pub fn hint(&self) -> Option<u64> {
        self.details.as_ref()?.hint
    }

    /// Returns the live range if the buffer is one part with one live range.
    pub fn solid(&self) -> Option<LiveRange> {
        self.parts().is_empty().then_some(self.live)
    }

    /// Returns the smallest step range that covers every part.
    pub const fn live(&self) -> LiveRange {
        self.live
    }

    /// Iterates over the buffer's rectangles, bytes × steps.
    ///
    /// A solid buffer is a single rectangle; otherwise there is one rectangle per part and live
    /// range.
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

    fn details_mut(&mut self) -> &mut BufferDetails {
        self.details.get_or_insert_default()
    }
}

/// Buffers to be given offsets, so that those live together share no byte.
///
/// ```
/// use arenaplan_pack::base::LiveRange;
/// use arenaplan_pack::{Buffer, Space};
/// use arenaplan_pack::Problem;
/// let problem = Problem::new(
///     vec![
///         Buffer::new(100, LiveRange::new(0, 2)?),
///         Buffer::new(60, LiveRange::new(1, 3)?),
///         Buffer::new(100, LiveRange::new(2, 4)?),
///     ],
///     vec![Space::default()],
/// )?;
/// let packing = arenaplan_pack::solve(&problem, &arenaplan_pack::Budget::default())?;
/// assert_eq!(packing.peak(), 160); // as much as is live at step 1: it is optimal
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    buffers: Vec<Buffer>,
    spaces: Vec<Space>,
    rules: Rules,
    horizon: Step,
}

impl Problem {
    /// Returns the problem to place `buffers` in `spaces`.
    ///
    /// # Errors
    ///
    /// - [`Error::SizeOverflow`] if a buffer has more than [`MAX_BYTES`] bytes.
    /// - [`Error::InvalidAlignment`] if the least common multiple of the multiples that the buffer
    ///   and the space demand is more than 2^62.
    /// - [`Error::InvalidBuffer`] if a buffer names an unknown space, is larger than the permitted
    ///   bytes, or needs bytes at the same time as another buffer in the group.
    /// - [`Error::PinConflict`] if a pinned buffer is misaligned, past the space's capacity,
    ///   outside the permitted bytes, or on top of another pinned buffer.
    pub fn new(buffers: Vec<Buffer>, spaces: Vec<Space>) -> Result<Self> {
        Self::with_rules(buffers, spaces, Rules::default())
    }

    /// Returns the problem to place `buffers` in `spaces`, with rules for buffer pairs.
    ///
    /// # Errors
    ///
    /// As [`Problem::new`], and [`Error::InvalidBuffer`] if a rule names an unknown buffer, or one
    /// buffer twice, or if two buffers must be in different spaces and both may be in the same
    /// space only.
    ///
    /// ```
    /// use arenaplan_pack::base::{BufferId, LiveRange};
    /// use arenaplan_pack::{Buffer, Rules, Space};
    /// use arenaplan_pack::{Budget, Problem, solve};
    /// // An operator may write its output over both of its inputs.
    /// let buffers = vec![
    ///     Buffer::new(100, LiveRange::new(0, 2)?),
    ///     Buffer::new(120, LiveRange::new(0, 2)?),
    ///     Buffer::new(200, LiveRange::new(1, 3)?),
    /// ];
    /// let mut rules = Rules::default();
    /// rules.may_overlap.push((BufferId::new(0), BufferId::new(2)));
    /// rules.may_overlap.push((BufferId::new(1), BufferId::new(2)));
    /// let problem = Problem::with_rules(buffers, vec![Space::default()], rules)?;
    /// assert_eq!(solve(&problem, &Budget::default())?.peak(), 220);
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    pub fn with_rules(mut buffers: Vec<Buffer>, spaces: Vec<Space>, rules: Rules) -> Result<Self> {
        let rules = rules.checked(buffers.len())?;
        let mut horizon = Step::default();
        let mut pinned = Vec::new();
        for (index, buffer) in buffers.iter_mut().enumerate() {
            if buffer.bytes > MAX_BYTES {
                return Err(Error::SizeOverflow { what: format!("buffer {index}") });
            }
            if let Some(absent) = buffer.spaces().iter().find(|it| it.index() >= spaces.len()) {
                let reason = format!("it is in space {absent}, which is not there");
                return Err(Error::InvalidBuffer { buffer: index, reason });
            }
            horizon = horizon.max(buffer.live.end());
            if buffer.has_choice() {
                check_choice(index, buffer, &spaces)?;
                continue;
            }
            let space = &spaces[buffer.space.index()];
            if space.multiple > 1 {
                buffer.add_multiple(index, space.multiple)?;
            }
            check_range(index, buffer, space)?;
            if let Some(pin) = buffer.pin() {
                check_pin(index, buffer, pin, space)?;
                pinned.push(BufferId::new(index));
            }
        }
        let problem = Self { buffers, spaces, rules, horizon };
        problem.check_pins_are_apart(&pinned)?;
        problem.check_groups()?;
        problem.check_separate()?;
        Ok(problem)
    }

    /// Returns whether some buffer may be in several spaces.
    pub fn has_choice(&self) -> bool {
        self.buffers.iter().any(Buffer::has_choice)
    }

    /// Returns the same problem with every buffer in the space given by `places`.
    ///
    /// # Errors
    ///
    /// As [`with_rules`](Self::with_rules).
    pub fn in_spaces(&self, places: &[SpaceId]) -> Result<Self> {
        let buffers = self
            .buffers
            .iter()
            .zip(places)
            .map(|(buffer, &space)| buffer.clone().with_space(space));
        Self::with_rules(buffers.collect(), self.spaces.clone(), self.rules.clone())
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

    /// Returns the rules for buffer pairs.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns whether offsets in a space follow rules beyond overlap, power-of-two alignments,
    /// pins and the capacity.
    pub(crate) fn is_ruled(&self, space: SpaceId) -> bool {
        let in_space = |pairs: &[(BufferId, BufferId)]| {
            pairs.iter().any(|&(one, _)| self.buffer(one).space() == space)
        };
        let is_special = |buffer: &Buffer| {
            buffer.space() == space
                && buffer.details.as_ref().is_some_and(|details| {
                    details.range.is_some() || details.multiple > 1 || details.group.is_some()
                })
        };
        !self.spaces[space.index()].reserved.is_empty()
            || in_space(&self.rules.may_overlap)
            || in_space(&self.rules.apart)
            || self.buffers.iter().any(is_special)
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

    /// Returns the required alignment: the stricter of the buffer's and the space's alignment.
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
            let permits = |one, other| self.rules.permits(BufferId::new(one), BufferId::new(other));
            if let Some(Overlap { first, second, byte, .. }) = overlap_beyond(held, permits) {
                let reason =
                    format!("buffers {first} and {second} are pinned to the same byte {byte}");
                return Err(Error::PinConflict { reason });
            }
        }
        Ok(())
    }
}

impl Problem {
    /// Refuses groups in which two buffers need a byte at the same step.
    fn check_groups(&self) -> Result<()> {
        let mut grouped: Vec<(u32, SpaceId, usize)> = Vec::new();
        let fixed = self.buffers.iter().enumerate().filter(|(_, buffer)| !buffer.has_choice());
        for (index, buffer) in fixed {
            grouped.extend(buffer.group().map(|group| (group, buffer.space(), index)));
        }
        grouped.sort_unstable();
        for group in grouped.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let held = group.iter().flat_map(|&(.., owner)| {
                let rectangles = self.buffers[owner].rectangles();
                rectangles.map(move |(bytes, live)| Held {
                    start: bytes.start,
                    end: bytes.end,
                    live,
                    owner,
                })
            });
            let permits = |one, other| self.rules.permits(BufferId::new(one), BufferId::new(other));
            if let Some(Overlap { first, second, step, .. }) = overlap_beyond(held, permits) {
                let reason = format!(
                    "it has the same offset as buffer {first}, which is live at step {step}, too"
                );
                return Err(Error::InvalidBuffer { buffer: second, reason });
            }
        }
        Ok(())
    }
}

impl Problem {
    /// Refuses two buffers that are to be in different spaces, and may both be in the same one only.
    fn check_separate(&self) -> Result<()> {
        for &(one, other) in &self.rules.separate {
            let [first, second] = [one, other].map(|id| self.buffer(id));
            if !first.has_choice() && !second.has_choice() && first.space == second.space {
                let name = quoted(&self.spaces[first.space.index()].name);
                let reason = format!(
                    "it and buffer {other} are to be in different spaces, and both may be in {name} only"
                );
                return Err(Error::InvalidBuffer { buffer: one.index(), reason });
            }
        }
        Ok(())
    }
}

/// Refuses a buffer that fits none of the permitted spaces.
fn check_choice(index: usize, buffer: &Buffer, spaces: &[Space]) -> Result<()> {
    if spaces.len() > MOST_CHOICES {
        let there = spaces.len();
        let reason = format!("it may be in several of {there} spaces, more than {MOST_CHOICES}");
        return Err(Error::InvalidBuffer { buffer: index, reason });
    }
    let mut refusal = Ok(());
    for space in buffer.spaces() {
        let checked = check_in(index, buffer, &spaces[space.index()]);
        if checked.is_ok() {
            return checked;
        }
        refusal = refusal.and(checked);
    }
    refusal
}

/// Refuses a buffer that cannot be in a space, even alone.
pub(crate) fn check_in(index: usize, buffer: &Buffer, space: &Space) -> Result<()> {
    let mut buffer = buffer.clone();
    if space.multiple > 1 {
        buffer.add_multiple(index, space.multiple)?;
    }
    check_range(index, &buffer, space)?;
    buffer.pin().map_or(Ok(()), |pin| check_pin(index, &buffer, pin, space))
}

/// Refuses a range that does not hold the buffer.
fn check_range(index: usize, buffer: &Buffer, space: &Space) -> Result<()> {
    let Some(range) = buffer.range() else { return Ok(()) };
    let Range { start, end } = range;
    let multiple = buffer.multiple_of().max(buffer.alignment.max(space.alignment).bytes());
    let first = start.checked_next_multiple_of(multiple);
    if first.and_then(|first| first.checked_add(buffer.bytes)).is_none_or(|last| last > end) {
        let bytes = buffer.bytes;
        let reason = format!("its {bytes} bytes do not fit into {start}..{end}");
        return Err(Error::InvalidBuffer { buffer: index, reason });
    }
    Ok(())
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
        _ if !pin.is_multiple_of(buffer.multiple_of()) => {
            let multiple = buffer.multiple_of();
            format!("buffer {index} is pinned to {pin}, which is not a multiple of {multiple}")
        }
        (Some(end), _) if buffer.range().is_some_and(|it| pin < it.start || it.end < end) => {
            let Range { start, end } = buffer.range().unwrap_or_default();
            format!("buffer {index} is pinned to {pin}, outside of its range {start}..{end}")
        }
        (Some(end), _) if space.reserved.iter().any(|it| pin < it.end && it.start < end) => {
            format!("buffer {index} is pinned to {pin}, on reserved bytes")
        }
        _ => return Ok(()),
    };
    Err(Error::PinConflict { reason })
}
