//! Packing problems and answers.

use std::ops::Range;
use std::time::{Duration, Instant};

use arenaplan::base::{BufferId, LiveRange, MAX_BYTES};
use arenaplan::pack::{self, Rules, Space as CoreSpace, compact, infeasible_subset, repack};
use arenaplan::{Budget, SpaceId, solve};

use crate::error::{Code, Failure, Result};
use crate::types::{
    BUFFER_FIXED, BUFFER_HINTED, Buffer, Gap, OPTIONS_COMPACT, Options, Space, SpacePacking,
    Status, position,
};
use crate::watch::Watch;

/// In an array of old offsets: the buffer has no old offset.
pub const NO_OFFSET: u64 = u64::MAX;

/// The search's share of a time limit, in tenths, if the search is followed by moving buffers to
/// lower offsets.
const SEARCH_TENTHS: u64 = 9;

/// A buffer description: the core's step numbers depend on the steps of all buffers.
#[derive(Debug)]
struct Described {
    about: Buffer,
    gaps: Vec<Gap>,
    range: Option<Range<u64>>,
    group: Option<u32>,
    /// Permitted spaces; empty if only the described space is permitted.
    spaces: Vec<SpaceId>,
}

impl Described {
    /// Returns the buffer in the core's form.
    fn build(&self, steps: &Steps) -> Result<pack::Buffer> {
        let Self { about, gaps, range, group, spaces } = self;
        let live = steps.range(about.lower, about.upper)?;
        let mut built = if gaps.is_empty() {
            pack::Buffer::new(about.bytes, live)
        } else {
            let gaps = gaps.iter().map(|gap| {
                let bytes = gap.bytes_lower..gap.bytes_upper;
                Ok(pack::Gap { steps: steps.range(gap.lower, gap.upper)?, bytes })
            });
            let gaps = gaps.collect::<Result<Vec<_>>>()?;
            pack::Buffer::with_gaps(about.bytes, live, &gaps)?
        };
        built = built.with_multiple_of(about.alignment.max(1))?;
        built = if spaces.is_empty() {
            built.with_space(SpaceId::from(about.space))
        } else {
            built.with_spaces(spaces.iter().copied())?
        };
        if about.flags & BUFFER_FIXED != 0 {
            built = built.with_pin(about.offset);
        } else if about.flags & BUFFER_HINTED != 0 {
            built = built.with_hint(about.offset);
        }
        if let Some(range) = range {
            built = built.with_range(range.clone());
        }
        if let Some(group) = group {
            built = built.with_group(*group);
        }
        Ok(built)
    }

    /// Returns all steps at which something changes.
    fn steps(&self) -> impl Iterator<Item = u64> + Clone {
        let gaps = self.gaps.iter().flat_map(|gap| [gap.lower, gap.upper]);
        [self.about.lower, self.about.upper].into_iter().chain(gaps)
    }
}

/// The steps in a problem: if some steps have more than 32 bits, the core counts the different
/// steps.
struct Steps {
    /// The different steps in order; none if all have 32 bits.
    moments: Vec<u64>,
}

impl Steps {
    fn of(every: impl Iterator<Item = u64> + Clone) -> Self {
        let mut moments = Vec::new();
        if every.clone().any(|step| step > u64::from(u32::MAX)) {
            moments.extend(every);
            moments.sort_unstable();
            moments.dedup();
        }
        Self { moments }
    }

    fn range(&self, lower: u64, upper: u64) -> Result<LiveRange> {
        if lower >= upper {
            return Err(Failure::argument(format!("the range of steps {lower}..{upper} is empty")));
        }
        let counted = |step: u64| {
            let rank = self.moments.binary_search(&step).ok();
            let step = rank.map_or(Some(step), |rank| u64::try_from(rank).ok())?;
            u32::try_from(step).ok()
        };
        match (counted(lower), counted(upper)) {
            (Some(lower), Some(upper)) => Ok(LiveRange::new(lower, upper)?),
            _ => Err(Failure::argument("there are too many different steps")),
        }
    }
}

/// A rule for buffer pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PairRule {
    /// The buffers may share bytes although both are live.
    MayOverlap,
    /// The buffers never share bytes.
    Apart,
    /// The buffers are in different spaces.
    Separate,
}

/// Buffers to place, and the memories to place them in.
///
/// A problem begins with space 0, which is unlimited. Buffers are numbered from 0, as added.
#[derive(Debug)]
pub struct Problem {
    buffers: Vec<Described>,
    spaces: Vec<CoreSpace>,
    /// For each space, bytes that no buffer has.
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
        described = described.with_multiple_of(space.alignment.max(1))?;
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
        let about = Buffer { gaps: std::ptr::null(), ..buffer };
        let gaps = gaps.to_vec();
        let built = Described { about, gaps, range: None, group: None, spaces: Vec::new() };
        // An invalid buffer is refused here, and not when the problem is packed.
        built.build(&Steps::of(built.steps()))?;
        let room = self.buffers.try_reserve(1);
        room.map_err(|_| Failure::new(Code::OutOfMemory, "not enough memory for a buffer"))?;
        self.buffers.push(built);
        Ok(())
    }

    /// Returns an added buffer's number.
    fn known(&self, buffer: u64) -> Result<usize> {
        let place = usize::try_from(buffer).ok().filter(|&place| place < self.buffers.len());
        let text = || format!("there is no buffer {buffer}, only {}", self.buffers.len());
        place.ok_or_else(|| Failure::argument(text()))
    }

    /// Keeps a buffer inside some bytes of the space.
    pub(crate) fn set_range(&mut self, buffer: u64, low: u64, high: u64) -> Result<()> {
        let place = self.known(buffer)?;
        possible("a range", high)?;
        if low > high {
            return Err(Failure::argument(format!("bytes {low}..{high}: low must be below high")));
        }
        self.buffers[place].range = Some(low..high);
        Ok(())
    }

    /// Puts a buffer into a group, whose buffers have the same offset.
    pub(crate) fn set_group(&mut self, buffer: u64, group: u32) -> Result<()> {
        let place = self.known(buffer)?;
        self.buffers[place].group = Some(group);
        Ok(())
    }

    /// Permits a buffer to be in any of some spaces.
    pub(crate) fn set_spaces(&mut self, buffer: u64, spaces: &[u32]) -> Result<()> {
        let place = self.known(buffer)?;
        if spaces.is_empty() {
            return Err(Failure::argument("no space is permitted: give at least one"));
        }
        if let Some(space) = spaces.iter().find(|&&it| position(it) >= self.spaces.len()) {
            return Err(Failure::argument(format!("there is no space {space}")));
        }
        self.buffers[place].spaces = spaces.iter().copied().map(SpaceId::from).collect();
        Ok(())
    }

    /// Adds a buffer pair to a rule.
    pub(crate) fn pair(&mut self, one: u64, other: u64, rule: PairRule) -> Result<()> {
        let pair = (BufferId::new(self.known(one)?), BufferId::new(self.known(other)?));
        let rules = &mut self.rules;
        let pairs = match rule {
            PairRule::MayOverlap => &mut rules.may_overlap,
            PairRule::Apart => &mut rules.apart,
            PairRule::Separate => &mut rules.separate,
        };
        let room = pairs.try_reserve(1);
        room.map_err(|_| Failure::new(Code::OutOfMemory, "not enough memory for a rule"))?;
        pairs.push(pair);
        Ok(())
    }

    /// Keeps a space's bytes free.
    pub(crate) fn reserve(&mut self, space: u32, low: u64, high: u64) -> Result<()> {
        if position(space) >= self.spaces.len() {
            return Err(Failure::argument(format!("there is no space {space}")));
        }
        possible("a range", high)?;
        if low >= high {
            return Err(Failure::argument(format!("bytes {low}..{high}: low must be below high")));
        }
        self.reserved.push((space, low..high));
        Ok(())
    }

    /// Returns the problem in the core's form.
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
        let steps = Steps::of(self.buffers.iter().flat_map(Described::steps));
        let buffers = self.buffers.iter().map(|it| it.build(&steps)).collect::<Result<Vec<_>>>()?;
        Ok(pack::Problem::with_rules(buffers, spaces, self.rules.clone())?)
    }

    /// Answers a question about the problem within the caller's limits.
    fn ask<T>(
        &self,
        options: Options,
        watch: &Watch<'_>,
        question: impl FnOnce(&pack::Problem, &Budget<'_>) -> pack::Result<T>,
    ) -> Result<(pack::Problem, T)> {
        no_flags("options", options.flags, OPTIONS_COMPACT)?;
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

    pub(crate) fn solve(&self, mut options: Options, watch: &Watch<'_>) -> Result<Packing> {
        let is_compact = options.flags & OPTIONS_COMPACT != 0;
        let limit = options.time_limit_ms;
        if is_compact {
            options.time_limit_ms = (limit / 10).saturating_mul(SEARCH_TENTHS).max(limit.min(1));
        }
        let moved = |problem: &pack::Problem, budget: &Budget<'_>| {
            let found = solve(problem, budget)?;
            if !is_compact {
                return Ok(found);
            }
            let left = Duration::from_millis(limit / 10);
            let mut rest = *budget;
            rest.deadline = budget.deadline.and_then(|it| it.checked_add(left));
            compact(problem, &found, &rest)
        };
        let (problem, found) = self.ask(options, watch, moved)?;
        let peak_of_staying = found.peak();
        Ok(Packing { problem, found, peak_of_staying })
    }

    /// Packs such that few buffers leave their `old` offsets.
    pub(crate) fn repack(
        &self,
        old: &[u64],
        options: Options,
        watch: &Watch<'_>,
    ) -> Result<Packing> {
        only_of_solve(&options)?;
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
        only_of_solve(&options)?;
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

/// Numbers of buffers that together do not fit a space.
#[derive(Debug)]
pub struct Subset {
    buffers: Vec<u64>,
}

impl Subset {
    pub(crate) fn buffers(&self) -> &[u64] {
        &self.buffers
    }
}

/// Offsets for a problem's buffers, with proven status.
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

    pub(crate) fn space_of(&self, buffer: u64) -> Option<u32> {
        let place = usize::try_from(buffer).ok().filter(|&it| it < self.offsets().len())?;
        Some(self.found.space_of(BufferId::new(place)).into())
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

    /// Verifies the offsets against the problem at the time of the search.
    pub(crate) fn check(&self) -> Result<()> {
        self.found.check(&self.problem)?;
        Ok(())
    }
}

/// Refuses options that only `ap_solve` has.
fn only_of_solve(options: &Options) -> Result<()> {
    if options.flags & OPTIONS_COMPACT == 0 {
        return Ok(());
    }
    Err(Failure::argument("the option AP_OPTIONS_COMPACT is one of ap_solve"))
}

/// Refuses flags that this library does not know.
pub(crate) fn no_flags(what: &str, flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 {
        return Ok(());
    }
    let text = format!("the {what} has flags that this library does not know: {flags:#x}");
    Err(Failure::new(Code::UnsupportedVersion, text))
}

/// Refuses sizes that no memory has; callers' negative numbers become such sizes.
fn possible(what: &str, bytes: u64) -> Result<()> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Failure::argument(format!("{what} of {bytes} bytes is larger than any memory")))
}
