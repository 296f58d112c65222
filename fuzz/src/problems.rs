//! Problems of packing made of bytes, and an oracle that compares every two buffers.

use arbitrary::{Result, Unstructured};
use arenaplan::base::{Alignment, BufferId, LiveRange};
use arenaplan::pack::{Buffer, Gap, Packing, Rules, Space};
use arenaplan::{Problem, SpaceId};

/// Returns a problem, or nothing if the bytes describe none that is valid.
pub fn problem(bytes: &mut Unstructured<'_>) -> Result<Option<Problem>> {
    let mut spaces = vec![space(bytes, "arena")?];
    if bytes.ratio(1, 8)? {
        spaces.push(space(bytes, "other")?);
    }
    let mut buffers = Vec::new();
    for _ in 0..bytes.int_in_range(0..=20)? {
        let Some(mut buffer) = buffer(bytes)? else { return Ok(None) };
        if bytes.ratio(1, 4)? {
            buffer = buffer.with_space(SpaceId::new(bytes.int_in_range(0..=spaces.len() - 1)?));
        }
        if spaces.len() > 1 && bytes.ratio(1, 4)? {
            let both = (0..spaces.len()).map(SpaceId::new);
            buffer = buffer.with_spaces(both).expect("there are two spaces");
        }
        buffers.push(buffer);
    }
    let mut rules = Rules::default();
    if buffers.len() > 1 && bytes.ratio(1, 4)? {
        for pairs in [&mut rules.may_overlap, &mut rules.apart, &mut rules.separate] {
            for _ in 0..bytes.int_in_range(0..=3)? {
                let last = buffers.len() - 1;
                let mut id = || bytes.int_in_range(0..=last).map(BufferId::new);
                pairs.push((id()?, id()?));
            }
        }
    }
    Ok(Problem::with_rules(buffers, spaces, rules).ok())
}

fn space(bytes: &mut Unstructured<'_>, name: &str) -> Result<Space> {
    let mut space = Space::new(name);
    if bytes.ratio(1, 4)? {
        space = space.with_capacity(bytes.arbitrary::<u16>()?.into());
    }
    if bytes.ratio(1, 4)? {
        space = space.with_alignment(alignment(bytes)?);
    }
    if bytes.ratio(1, 8)? {
        let start = bytes.int_in_range(0..=300)?;
        space = space.with_reserved(start..start + bytes.int_in_range(0..=100)?);
    }
    Ok(space)
}

fn alignment(bytes: &mut Unstructured<'_>) -> Result<Alignment> {
    Ok(Alignment::new(1 << bytes.int_in_range(0..=6_u8)?).expect("it is a power of two"))
}

fn live(bytes: &mut Unstructured<'_>, from: u32, to: u32) -> Result<Option<LiveRange>> {
    let start = bytes.int_in_range(from..=to)?;
    Ok(LiveRange::new(start, bytes.int_in_range(start..=to)?).ok())
}

fn buffer(bytes: &mut Unstructured<'_>) -> Result<Option<Buffer>> {
    let size = match bytes.int_in_range(0..=7_u8)? {
        0 => bytes.arbitrary::<u64>()? >> bytes.int_in_range(0..=63_u8)?,
        _ => bytes.int_in_range(0..=100)?,
    };
    let Some(range) = live(bytes, 0, 12)? else { return Ok(None) };
    let mut buffer = Buffer::new(size, range);
    if bytes.ratio(1, 8)? {
        let mut gaps = Vec::new();
        for _ in 0..bytes.int_in_range(1..=2)? {
            let Some(steps) = live(bytes, range.start().get(), range.end().get())? else {
                return Ok(None);
            };
            let start = bytes.int_in_range(0..=size)?;
            let window = bytes.int_in_range(start..=size)?;
            let window = if bytes.arbitrary()? { start..window } else { 0..0 };
            gaps.push(Gap { steps, bytes: window });
        }
        let Ok(with_gaps) = Buffer::with_gaps(size, range, &gaps) else { return Ok(None) };
        buffer = with_gaps;
    }
    if bytes.ratio(1, 4)? {
        buffer = buffer.with_alignment(alignment(bytes)?);
    }
    if bytes.ratio(1, 6)? {
        buffer = buffer.with_pin(bytes.int_in_range(0..=200)?);
    }
    if bytes.ratio(1, 8)? {
        buffer = buffer.with_hint(bytes.int_in_range(0..=200)?);
    }
    if bytes.ratio(1, 16)? {
        let start = bytes.int_in_range(0..=200)?;
        buffer = buffer.with_range(start..start + bytes.int_in_range(0..=400)?);
    }
    if bytes.ratio(1, 16)? {
        match buffer.clone().with_multiple_of(bytes.int_in_range(0..=48)?) {
            Ok(other) => buffer = other,
            Err(_) => return Ok(None),
        }
    }
    if bytes.ratio(1, 16)? {
        buffer = buffer.with_group(bytes.int_in_range(0..=1)?);
    }
    Ok(Some(buffer))
}

/// Returns what is wrong with a packing, comparing every two rectangles of live bytes.
///
/// It shares no code with the checker, and no method: the checker sweeps over the steps.
pub fn flaw(problem: &Problem, packing: &Packing) -> Option<String> {
    let buffers = problem.buffers();
    for (index, (buffer, &offset)) in buffers.iter().zip(packing.offsets()).enumerate() {
        let chosen = packing.space_of(BufferId::new(index));
        let about = &problem.spaces()[chosen.index()];
        let alignment = buffer.alignment().max(about.alignment()).bytes();
        let end = offset + buffer.bytes();
        let space = packing.space(chosen);
        let wrong = [
            (!offset.is_multiple_of(alignment), "misaligned"),
            (!offset.is_multiple_of(buffer.multiple_of()), "no multiple"),
            (buffer.pin().is_some_and(|pin| pin != offset), "off its pin"),
            (end > space.peak, "past the peak"),
            (!buffer.spaces().contains(&chosen), "in another space"),
            (buffer.range().is_some_and(|it| offset < it.start || it.end < end), "out of range"),
        ];
        if let Some((_, what)) = wrong.into_iter().find(|&(is_wrong, _)| is_wrong) {
            return Some(format!("buffer {index} at {offset}: {what}"));
        }
        for (other, (second, &place)) in buffers.iter().zip(packing.offsets()).enumerate() {
            let ids = [BufferId::new(other), BufferId::new(index)];
            if other >= index || packing.space_of(ids[0]) != chosen {
                continue;
            }
            let [to, from] = [(ids[0], ids[1]), (ids[1], ids[0])];
            let rules = problem.rules();
            let both =
                |pairs: &[(BufferId, BufferId)]| pairs.contains(&to) || pairs.contains(&from);
            if both(&rules.separate) {
                return Some(format!("buffers {other} and {index} are not separate"));
            }
            let apart = both(&rules.apart);
            let touch = |first: (u64, u64), second: (u64, u64)| {
                first.0.max(second.0) < first.1.min(second.1)
            };
            if apart && touch((offset, end), (place, place + second.bytes())) {
                return Some(format!("buffers {other} and {index} are not apart"));
            }
            if !apart && both(&rules.may_overlap) {
                continue;
            }
            for (bytes, live) in buffer.rectangles() {
                for (others, then) in second.rectangles() {
                    let here = (offset + bytes.start, offset + bytes.end);
                    let there = (place + others.start, place + others.end);
                    let times = |live: LiveRange| {
                        (u64::from(live.start().get()), u64::from(live.end().get()))
                    };
                    if touch(here, there) && touch(times(live), times(then)) {
                        return Some(format!("buffers {other} and {index} share bytes"));
                    }
                }
            }
        }
    }
    None
}
