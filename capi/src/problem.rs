//! Packing problems and their answers.

use std::ops::Range;
use std::time::{Duration, Instant};

use arenaplan::base::{Alignment, BufferId, LiveRange, MAX_BYTES};
use arenaplan::pack::{self, Rules, Space as CoreSpace, infeasible_subset, repack};
use arenaplan::{Budget, SpaceId, solve};

use crate::error::{Code, Failure, Result};
use crate::types::{
    BUFFER_FIXED, BUFFER_HINTED, Buffer, Gap, Options, Space, SpacePacking, Status, position,
};
use crate::watch::Watch;

/// In an array of old offsets: the buffer has none.
pub const NO_OFFSET: u64 = u64::MAX;
/// Buffers to be placed, and the memories they are placed in.
///
/// A problem begins with space 0, which is unlimited. Buffers are numbered from 0 on, as they are
/// added.
#[derive(Debug)]
pub struct Problem {
    buffers: Vec<pack::Buffer>,
    spaces: Vec<CoreSpace>,
    /// Bytes of each space that no buffer has.
    reserved: Vec<(u32, Range<u64>)>,
    rules: Rules,
}

impl Problem {
    pub(crate) fn new() -> Self {
        Self {
            buffers: Vec::new(),
            spaces: vec![CoreSpace::default()],
            reserved: Vec::new(),
            rules: Rules::default(),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Describes a space, or the one behind the last.
    pub(crate) fn set_space(&mut self, index: u32, space: Space) -> Result<()> {
        no_flags("space", space.flags, 0)?;
        let mut described = CoreSpace::new(format!("space {index}"));
        if space.capacity > 0 {
            possible("a capacity", space.capacity)?;
            described = described.with_capacity(space.capacity);
        }
        described = described.with_alignment(alignment(space.alignment)?);
        let (at, known) = (position(index), self.spaces.len());
        if at > known {
            let text = format!("space {index} cannot be described before space {known}");
            return Err(Failure::argument(text));
        }
        match self.spaces.get_mut(at) {
            Some(space) => *space = described,
            None => self.spaces.push(described),
        }
        Ok(())
    }

    /// Adds a buffer.
    pub(crate) fn add(&mut self, buffer: Buffer, gaps: &[Gap]) -> Result<()> {
        no_flags("buffer", buffer.flags, BUFFER_FIXED | BUFFER_HINTED)?;
        possible("a buffer", buffer.bytes)?;
        let space = SpaceId::from(buffer.space);
        if space.index() >= self.spaces.len() {
            return Err(Failure::argument(format!("there is no space {space}")));
        }
        let live = live(buffer.lower, buffer.upper)?;
        let mut built = if gaps.is_empty() {
            pack::Buffer::new(buffer.bytes, live)
        } else {
            let gaps = gaps.iter().map(|gap| {
                let bytes = gap.bytes_lower..gap.bytes_upper;
                Ok(pack::Gap { steps: self::live(gap.lower, gap.upper)?, bytes })
            });
            let gaps = gaps.collect::<Result<Vec<_>>>()?;
            pack::Buffer::with_gaps(buffer.bytes, live, &gaps)?
        };
        built = built.with_multiple_of(buffer.alignment.max(1))?.with_space(space);
        if buffer.flags & BUFFER_FIXED != 0 {
            built = built.with_pin(buffer.offset);
        } else if buffer.flags & BUFFER_HINTED != 0 {
            built = built.with_hint(buffer.offset);
        }
        let room = self.buffers.try_reserve(1);
        room.map_err(|_| Failure::new(Code::OutOfMemory, "not enough memory for a buffer"))?;
        self.buffers.push(built);
        Ok(())
    }

    /// Returns the number of a buffer that was added.
    fn known(&self, buffer: u64) -> Result<usize> {
        let place = usize::try_from(buffer).ok().filter(|&place| place < self.buffers.len());
        let text = || format!("there is no buffer {buffer}, only {}", self.buffers.len());
        place.ok_or_else(|| Failure::argument(text()))
    }

    /// Keeps a buffer inside some bytes of its space.
    pub(crate) fn set_range(&mut self, buffer: u64, low: u64, high: u64) -> Result<()> {
        let place = self.known(buffer)?;
        possible("a range", high)?;
        if low > high {
            return Err(Failure::argument(format!("the bytes {low}..{high} are no range")));
        }
        self.buffers[place] = self.buffers[place].clone().with_range(low..high);
        Ok(())
    }

    /// Puts a buffer into a group, whose buffers have the same offset.
    pub(crate) fn set_group(&mut self, buffer: u64, group: u32) -> Result<()> {
        let place = self.known(buffer)?;
        self.buffers[place] = self.buffers[place].clone().with_group(group);
        Ok(())
    }

    /// Adds a pair of buffers to those that may overlap, or to those that never do.
    pub(crate) fn pair(&mut self, one: u64, other: u64, may_overlap: bool) -> Result<()> {
        let pair = (BufferId::new(self.known(one)?), BufferId::new(self.known(other)?));
        let rules = &mut self.rules;
        let pairs = if may_overlap { &mut rules.may_overlap } else { &mut rules.apart };
        let room = pairs.try_reserve(1);
        room.map_err(|_| Failure::new(Code::OutOfMemory, "not enough memory for a rule"))?;
        pairs.push(pair);
        Ok(())
    }

    /// Keeps bytes of a space free.
    pub(crate) fn reserve(&mut self, space: u32, low: u64, high: u64) -> Result<()> {
        if position(space) >= self.spaces.len() {
            return Err(Failure::argument(format!("there is no space {space}")));
        }
        possible("a range", high)?;
        if low >= high {
            return Err(Failure::argument(format!("the bytes {low}..{high} are no range")));
        }
        self.reserved.push((space, low..high));
        Ok(())
    }

    /// Returns the problem as the core has it.
    fn build(&self, capacity: Option<u64>) -> Result<pack::Problem> {
        let mut spaces = self.spaces.clone();
        for (space, bytes) in &self.reserved {
            let space = &mut spaces[position(*space)];
            *space = space.clone().with_reserved(bytes.clone());
        }
        if let Some(bytes) = capacity {
            possible("a capacity", bytes)?;
            let [space] = &mut spaces[..] else {
                let text = "the option capacity is for problems with one space";
                return Err(Failure::argument(text));
            };
            *space = space.clone().with_capacity(bytes);
        }
        Ok(pack::Problem::with_rules(self.buffers.clone(), spaces, self.rules.clone())?)
    }

    /// Answers a question about the problem within the limits of the caller.
    fn ask<T>(
        &self,
        options: Options,
        watch: &Watch<'_>,
        question: impl FnOnce(&pack::Problem, &Budget<'_>) -> arenaplan::Result<T>,
    ) -> Result<(pack::Problem, T)> {
        let some = |number: u64| (number > 0).then_some(number);
        let problem = self.build(some(options.capacity))?;
        let answer = watch.during(|mut budget| {
            if let Some(limit) = some(options.time_limit_ms) {
                budget.deadline = Instant::now().checked_add(Duration::from_millis(limit));
            }
            budget.nodes = some(options.node_limit);
            budget.seed = options.seed;
            question(&problem, &budget)
        })?;
        Ok((problem, answer))
    }

    pub(crate) fn solve(&self, options: Options, watch: &Watch<'_>) -> Result<Packing> {
        let (problem, found) = self.ask(options, watch, solve)?;
        let peak_of_staying = found.peak();
        Ok(Packing { problem, found, peak_of_staying })
    }

    /// Packs so that few buffers leave their `old` offsets.
    pub(crate) fn repack(
        &self,
        old: &[u64],
        options: Options,
        watch: &Watch<'_>,
    ) -> Result<Packing> {
        let old: Vec<_> = old.iter().map(|&at| (at != NO_OFFSET).then_some(at)).collect();
        let again = |problem: &pack::Problem, budget: &Budget<'_>| repack(problem, &old, budget);
        let (problem, again) = self.ask(options, watch, again)?;
        let peak_of_staying = again.peak_of_staying;
        Ok(Packing { problem, found: again.packing, peak_of_staying })
    }

    /// Returns the buffers that prove that a space is too small.
    pub(crate) fn infeasible_subset(
        &self,
        space: u32,
        options: Options,
        watch: &Watch<'_>,
    ) -> Result<Subset> {
        if position(space) >= self.spaces.len() {
            return Err(Failure::argument(format!("there is no space {space}")));
        }
        let ask = |problem: &pack::Problem, budget: &Budget<'_>| {
            infeasible_subset(problem, SpaceId::from(space), budget)
        };
        let (_, found) = self.ask(options, watch, ask)?;
        let ids = found.unwrap_or_default().into_iter();
        let buffers = ids.map(|id| u64::try_from(id.index()).unwrap_or(u64::MAX)).collect();
        Ok(Subset { buffers })
    }
}

/// Numbers of buffers that do not fit a space together.
#[derive(Debug)]
pub struct Subset {
    buffers: Vec<u64>,
}

impl Subset {
    pub(crate) fn buffers(&self) -> &[u64] {
        &self.buffers
    }
}

/// Offsets for the buffers of a problem, and what is proven about them.
#[derive(Debug)]
pub struct Packing {
    problem: pack::Problem,
    found: pack::Packing,
    peak_of_staying: u64,
}

impl Packing {
    pub(crate) fn offsets(&self) -> &[u64] {
        self.found.offsets()
    }

    pub(crate) fn status(&self) -> Status {
        self.found.status().into()
    }

    pub(crate) fn peak(&self) -> u64 {
        self.found.peak()
    }

    pub(crate) const fn peak_of_staying(&self) -> u64 {
        self.peak_of_staying
    }

    pub(crate) fn lower_bound(&self) -> u64 {
        self.found.lower_bound()
    }

    pub(crate) fn nodes(&self) -> u64 {
        self.found.nodes()
    }

    pub(crate) fn space(&self, index: u32) -> Result<SpacePacking> {
        let space = self.found.spaces().get(position(index));
        let space = space.ok_or_else(|| Failure::argument(format!("there is no space {index}")))?;
        let (status, peak) = (space.status.into(), space.peak);
        Ok(SpacePacking { size: 0, status, peak, lower_bound: space.lower_bound })
    }

    /// Verifies the offsets against the problem as it was when it was solved.
    pub(crate) fn check(&self) -> Result<()> {
        self.found.check(&self.problem)?;
        Ok(())
    }
}

/// Refuses flags that this library does not know.
pub(crate) fn no_flags(what: &str, flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 {
        return Ok(());
    }
    let text = format!("the {what} has flags that this library does not know: {flags:#x}");
    Err(Failure::new(Code::UnsupportedVersion, text))
}

/// Refuses sizes that no memory has; negative numbers of callers become such sizes.
fn possible(what: &str, bytes: u64) -> Result<()> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Failure::argument(format!("{what} of {bytes} bytes is larger than any memory")))
}

/// Returns an alignment; 0 is that of any address.
fn alignment(bytes: u64) -> Result<Alignment> {
    Ok(Alignment::new(bytes.max(1))?)
}

/// Returns a live range of steps that the core can count.
fn live(lower: u64, upper: u64) -> Result<LiveRange> {
    if let (Ok(lower), Ok(upper)) = (u32::try_from(lower), u32::try_from(upper)) {
        return Ok(LiveRange::new(lower, upper)?);
    }
    let text = format!("the steps {lower}..{upper} are past the largest, {}", u32::MAX);
    Err(Failure::argument(text))
}
