//! The layout of shared bytes: offsets agree with the steps' shares, and each memory line belongs
//! to a single body's values.

use alloc::collections::BTreeMap;
use alloc::{format, string::String, vec::Vec};
use core::ops::Range;

use crate::base::{Alignment, Error, NodeId, Result, ValueId, quoted};
use crate::check::unit::Unit;
use crate::check::{Joined, is_at, mismatch};
use crate::graph::{Graph, Whole};
use crate::plan::{Placement, Plan, Share, ShareRule};

impl Plan {
    /// Checks that the two values of each share lie in memory as the share says.
    ///
    /// Lower bounds hold for plans with the same shares. A share that the offsets do not show would
    /// give bounds for a different plan.
    pub(super) fn check_shares(&self, units: &[Unit<'_>]) -> Result<()> {
        for (unit, share, places) in self.shared_pairs(units) {
            if !places.is_some_and(|[input, output]| is_laid_out(unit, share, input, output)) {
                let (output, input, name) = (share.output, share.input, quoted(unit.name));
                return mismatch(format!(
                    "output {output} of node {name} is not in the bytes of input {input}"
                ));
            }
        }
        Ok(())
    }

    /// Returns by how many bytes each overlap is farther than the effects ask for, with the value
    /// that is overlapped.
    pub(super) fn slack(&self, units: &[Unit<'_>]) -> Vec<(ValueId, u64)> {
        let overlaps = self.shared_pairs(units);
        let overlaps = overlaps.filter(|(_, share, _)| share.rule == ShareRule::Overlap);
        let slack = overlaps.filter_map(|(unit, share, places)| {
            let [input, output] = places?;
            let ahead = input.offset.checked_sub(output.offset)?;
            let least = distances(unit, share).min()?;
            Some((ValueId::from(input.value), ahead.saturating_sub(least)))
        });
        slack.collect()
    }

    /// Returns an assignment's state and result, if the result is at the state's address.
    pub(super) fn stored(&self, graph: &Graph, unit: &Unit<'_>) -> Option<(ValueId, ValueId)> {
        let &[node] = unit.nodes.as_slice() else { return None };
        let assignment = graph.assignment(node)?;
        let place = |value| self.placement(value).map(|place| (place.space, place.offset));
        let (state, result) = (assignment.state, assignment.result);
        (place(state) == place(result)).then_some((state, result))
    }

    /// Iterates over the shares of all steps, with input and output placements.
    fn shared_pairs<'p>(
        &'p self,
        units: &'p [Unit<'p>],
    ) -> impl Iterator<Item = (&'p Unit<'p>, Share, Option<[&'p Placement; 2]>)> {
        let place = |operands: &[Option<ValueId>], position: u32| {
            let value = operands.get(usize::try_from(position).ok()?).copied().flatten()?;
            self.placement(value)
        };
        self.steps.iter().zip(units).flat_map(move |(step, unit)| {
            step.shares.iter().map(move |&share| {
                let input = place(&unit.reads, share.input);
                (unit, share, input.zip(place(&unit.writes, share.output)).map(<[_; 2]>::from))
            })
        })
    }

    /// Checks that values without shared bytes have no line in common while both are live, and that
    /// the values of each body begin at a line.
    ///
    /// A line is `alignment` bytes from a multiple of `alignment`. Sizes are rounded up to lines,
    /// so that a plan's bytes do not depend on values that happen to fit into padding. Runs in
    /// `O(n log n)` for `n` values.
    pub(super) fn check_lines(&self, graph: &Graph, joined: &Joined) -> Result<()> {
        let lines = Alignment::new(self.options.alignment).unwrap_or_default();
        // A value without bytes holds no line, but its address is aligned.
        let mut strictest: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for place in &self.placements {
            let value = ValueId::from(place.value);
            let known = strictest.entry((joined.root[value.index()], place.space)).or_default();
            *known = (*known).max(graph.value(value).alignment().bytes());
        }
        let mut lowest: BTreeMap<(usize, u32), (u64, &Placement)> = BTreeMap::new();
        let mut births: Vec<Held<'_>> = Vec::new();
        for place in self.placements.iter().filter(|place| place.bytes > 0) {
            let body = joined.root[ValueId::from(place.value).index()];
            let known = lowest.entry((body, place.space)).or_insert((place.offset, place));
            if place.offset < known.0 {
                *known = (place.offset, place);
            }
            births.push(Held {
                space: place.space,
                lines: around(lines, place.offset, place.bytes),
                live: place.live,
                body: Body::Values(body),
                user: User::Value(&place.name),
            });
        }
        for ((body, space), (offset, place)) in lowest {
            let (own, in_space) = (lines.bytes(), self.alignment_in(space));
            let strict = strictest[&(body, space)];
            // Other values may lie ahead of a value with stricter alignment.
            let alignment = if strict <= own { in_space } else { own };
            if !offset.is_multiple_of(alignment) {
                let what = format!("value {}, the first of shared bytes,", quoted(&place.name));
                return Err(Error::PlanMisaligned { what, offset, alignment });
            }
        }
        for (index, work) in self.workspaces.iter().enumerate() {
            let step = self.step_of[NodeId::from(work.node).index()];
            births.push(Held {
                space: work.space,
                lines: around(lines, work.offset, work.bytes),
                live: [step, step + 1],
                body: Body::Workspace(index),
                user: User::Workspace(work.slot, graph.node(NodeId::from(work.node)).name()),
            });
        }
        births.sort_by_key(|held| held.live[0]);
        let mut memory = Lines::default();
        births.into_iter().try_for_each(|held| memory.hold(held))
    }
}

/// Iterates over the distances at which a share's output may be ahead of the input.
fn distances<'u>(unit: &'u Unit<'_>, share: Share) -> impl Iterator<Item = u64> + 'u {
    let known = unit.overlaps.iter();
    let known =
        known.filter(move |it| is_at(share.input, it.input) && is_at(share.output, it.output));
    known.map(|it| it.distance)
}

fn is_laid_out(unit: &Unit<'_>, share: Share, input: &Placement, output: &Placement) -> bool {
    if input.space != output.space {
        return false;
    }
    let is_same = input.offset == output.offset;
    let is_pair = |read, written| is_at(share.input, read) && is_at(share.output, written);
    match share.rule {
        ShareRule::InPlace => is_same,
        ShareRule::Overlap => {
            let ahead = input.offset.checked_sub(output.offset);
            distances(unit, share).any(|distance| ahead >= Some(distance))
        }
        ShareRule::View => {
            let mut views = unit.effects.views.iter();
            let identities = unit.effects.in_place.iter();
            let mut identities = identities.filter(|pair| pair.identity);
            let shows = views.any(|view| {
                let (part, whole) = match view.whole {
                    Whole::Input => (output, input),
                    Whole::Output => (input, output),
                };
                is_pair(view.input, view.output)
                    && whole.offset.checked_add(view.offset) == Some(part.offset)
            });
            shows || is_same && identities.any(|pair| is_pair(pair.input, pair.output))
        }
    }
}

/// Returns the lines touched by a span of at least one byte.
fn around(lines: Alignment, offset: u64, bytes: u64) -> Range<u64> {
    let end = offset.saturating_add(bytes);
    offset - offset % lines.bytes()..lines.round_up(end).unwrap_or(u64::MAX)
}

/// The owner of lines: values that share bytes, by representative, or a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Values(usize),
    Workspace(usize),
}

/// A line user's name.
#[derive(Clone, Copy, Debug)]
enum User<'a> {
    Value(&'a str),
    /// A position among a node's workspaces.
    Workspace(u32, &'a str),
}

impl User<'_> {
    fn name(&self) -> String {
        match self {
            Self::Value(name) => format!("value {}", quoted(name)),
            Self::Workspace(slot, node) => format!("workspace {slot} of node {}", quoted(node)),
        }
    }
}

/// Lines that a body holds for some steps.
#[derive(Clone, Debug)]
struct Held<'a> {
    space: u32,
    lines: Range<u64>,
    live: [u32; 2],
    body: Body,
    user: User<'a>,
}

/// The last body in each line, and the step after the body's last step.
#[derive(Debug, Default)]
struct Lines<'a>(BTreeMap<(u32, u64), BodyStretch<'a>>);

#[derive(Clone, Copy, Debug)]
struct BodyStretch<'a> {
    end: u64,
    until: u32,
    body: Body,
    user: User<'a>,
}

impl<'a> Lines<'a> {
    /// Gives lines to a body. Calls come in the order of first steps.
    fn hold(&mut self, held: Held<'a>) -> Result<()> {
        let Held { space, lines, live, body, user } = held;
        self.split(space, lines.start);
        self.split(space, lines.end);
        let own = |end, until| BodyStretch { end, until, body, user };
        let mut found: Vec<(u64, BodyStretch<'a>)> = Vec::new();
        let mut add = |start, stretch: BodyStretch<'a>| match found.last_mut() {
            Some((_, last)) if last.until == stretch.until => last.end = stretch.end,
            _ => found.push((start, stretch)),
        };
        let mut at = lines.start;
        let mut covered = Vec::new();
        for (&(_, start), stretch) in self.0.range((space, lines.start)..(space, lines.end)) {
            if stretch.body != body && stretch.until > live[0] {
                let (first, second) = (stretch.user.name(), user.name());
                return Err(Error::PlanOverlap { first, second, step: live[0], byte: start });
            }
            if at < start {
                add(at, own(start, live[1]));
            }
            // Another body's stretch has ended, and does not raise this.
            add(start, own(stretch.end, stretch.until.max(live[1])));
            at = stretch.end;
            covered.push((space, start));
        }
        if at < lines.end {
            add(at, own(lines.end, live[1]));
        }
        for key in covered {
            self.0.remove(&key);
        }
        self.0.extend(found.into_iter().map(|(start, stretch)| ((space, start), stretch)));
        Ok(())
    }

    /// Cuts the stretch that contains `address` in two there.
    fn split(&mut self, space: u32, address: u64) {
        let before = (space, 0)..(space, address);
        if let Some((_, stretch)) = self.0.range_mut(before).next_back()
            && stretch.end > address
        {
            let rest = *stretch;
            stretch.end = address;
            self.0.insert((space, address), rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::borrow::Cow;
    use alloc::{string::String, vec, vec::Vec};

    use super::*;
    use crate::check::random::numbers;
    use crate::check::strip_replay::LineMemory;
    use crate::graph::{Effects, InPlace, Overlap, View};

    /// Against the definition: the body of each of 24 lines, and the step after the body's last.
    #[test]
    fn lines_are_those_of_a_table() {
        let mut below = numbers();
        for _ in 0..300 {
            let mut memory = Lines::default();
            let mut table = [(Body::Values(9), 0_u32); 24];
            for step in 0..12 {
                let start = below(24);
                let lines = start..start + below(25 - start);
                let body = Body::Values(usize::try_from(below(3)).unwrap_or(0));
                let until = step + 1 + u32::try_from(below(4)).unwrap_or(0);
                let at = |line: u64| usize::try_from(line).unwrap_or(usize::MAX);
                let other = |&line: &u64| table[at(line)].0 != body && table[at(line)].1 > step;
                let taken = lines.clone().find(other);
                let user = User::Value("v");
                let held = Held { space: 0, lines: lines.clone(), live: [step, until], body, user };
                assert_eq!(memory.hold(held).is_err(), taken.is_some());
                for line in lines.clone().filter(|_| taken.is_none()) {
                    let (owner, last) = &mut table[at(line)];
                    *last = if *owner == body { until.max(*last) } else { until };
                    *owner = body;
                }
                // Adjacent lines that are held until the same step form a single stretch.
                if taken.is_none() && !lines.is_empty() {
                    let ends: Vec<u32> = lines.clone().map(|line| table[at(line)].1).collect();
                    let runs = 1 + ends.windows(2).filter(|pair| pair[0] != pair[1]).count();
                    let held = memory.0.range((0, lines.start)..(0, lines.end)).count();
                    assert_eq!(held, runs);
                }
            }
        }
    }

    /// A step with two inputs and two outputs: output 0 is all of input 0 from byte 8 on, or ahead
    /// of input 1; output 1 begins with input 1, or equals input 0.
    fn unit(effects: &Effects) -> Unit<'_> {
        Unit {
            nodes: vec![NodeId::new(0)],
            name: "n",
            reads: vec![Some(ValueId::from(0)), Some(ValueId::from(1))],
            writes: vec![Some(ValueId::from(2)), Some(ValueId::from(3))],
            effects: Cow::Borrowed(effects),
            mutates: Vec::new(),
            overlaps: vec![
                Overlap { input: 1, output: 0, distance: 16 },
                Overlap { input: 1, output: 0, distance: 24 },
                Overlap { input: 0, output: 0, distance: 4 },
                Overlap { input: 1, output: 1, distance: 2 },
            ],
            takes: Vec::new(),
            lines: LineMemory::default(),
        }
    }

    #[test]
    fn each_share_is_where_its_rule_says() {
        let pair = |input, output| InPlace { input, output, identity: true };
        let effects = Effects {
            views: vec![
                View { input: 0, output: 0, offset: 8, whole: Whole::Input },
                View { input: 1, output: 1, offset: 4, whole: Whole::Output },
            ],
            in_place: vec![pair(0, 1), InPlace { identity: false, ..pair(1, 0) }, pair(1, 1)],
            ..Effects::default()
        };
        let unit = unit(&effects);
        let (view, in_place, overlap) = (ShareRule::View, ShareRule::InPlace, ShareRule::Overlap);
        // Input and output, with offsets.
        let all = [
            (view, (0, 100), (0, 108), true),
            (view, (0, 100), (0, 100), false),
            (view, (0, 104), (0, 100), false),
            (view, (1, 104), (1, 100), true),
            (view, (1, 100), (1, 104), false),
            // An identity, which is no view, and a pair that is none.
            (view, (0, 100), (1, 100), true),
            (view, (0, 100), (1, 108), false),
            (view, (0, 104), (1, 100), false),
            (view, (1, 100), (0, 100), false),
            (in_place, (1, 100), (0, 100), true),
            (in_place, (1, 100), (0, 108), false),
            // The lesser of two distances, and no other pair's distance.
            (overlap, (1, 116), (0, 100), true),
            (overlap, (1, 115), (0, 100), false),
            (overlap, (1, 100), (0, 116), false),
            (overlap, (0, 104), (0, 100), true),
            (overlap, (0, 103), (0, 100), false),
            (overlap, (0, 200), (1, 100), false),
        ];
        let place = |space, offset| {
            let name = String::new();
            Placement { value: 0, name, space, offset, bytes: 8, live: [0, 1] }
        };
        for (index, (rule, input, output, expected)) in all.into_iter().enumerate() {
            let share = Share { input: input.0, output: output.0, rule };
            let [read, written] = [input, output].map(|(_, offset)| place(0, offset));
            assert_eq!(is_laid_out(&unit, share, &read, &written), expected, "row {index}");
            assert!(!is_laid_out(&unit, share, &read, &place(1, output.1)), "row {index}");
        }
    }
}
