//! The packing checker, which shares no code with the solver.

use alloc::collections::BTreeMap;
use alloc::{format, string::String, vec};
use core::ops::Range;

use crate::base::{BufferId, Error, MAX_BYTES, Result, SpaceId, quoted};
use crate::packing::{Packing, Status};
use crate::problem::Problem;
use crate::rectangles::{Held, first_overlap, overlap_beyond};

impl Packing {
    /// Verifies that the offsets solve `problem` and that the figures are true.
    ///
    /// Buffers in one space that are live together share no byte, unless a rule permits sharing.
    /// Buffers that must be apart never share a byte. Every offset is a multiple of the alignment,
    /// equals the pin, if any, and equals the offset of all other buffers in the group. Every
    /// buffer is inside its range, off reserved bytes, and in a permitted space. No pair that must
    /// be separate is in one space. The peak of a space is exactly the end of the highest buffer.
    /// The status agrees with peak, bound and capacity. Runs in `O(n log n)` for `n` buffers.
    ///
    /// # Errors
    ///
    /// - [`Error::PlanMismatch`] if the packing belongs to another problem, a buffer is not at its
    ///   pin, or a figure is wrong.
    /// - [`Error::PlanMisaligned`], [`Error::PlanOutOfBounds`] and [`Error::PlanOverlap`] for
    ///   offsets that do not do.
    pub fn check(&self, problem: &Problem) -> Result<()> {
        if self.offsets.len() != problem.buffers().len()
            || self.spaces.len() != problem.spaces().len()
        {
            return Err(mismatch("it has other buffers or other spaces".into()));
        }
        self.check_spaces(problem)?;
        let mut peaks = vec![0_u64; problem.spaces().len()];
        for (index, (buffer, &offset)) in problem.buffers().iter().zip(&self.offsets).enumerate() {
            let what = || format!("buffer {index}");
            let space = &problem.spaces()[self.place(index)];
            let alignment = buffer.alignment().max(space.alignment());
            if !alignment.divides(offset) {
                let alignment = alignment.bytes();
                return Err(Error::PlanMisaligned { what: what(), offset, alignment });
            }
            for multiple in [buffer.multiple_of(), space.multiple] {
                if !offset.is_multiple_of(multiple) {
                    return Err(Error::PlanMisaligned {
                        what: what(),
                        offset,
                        alignment: multiple,
                    });
                }
            }
            if let Some(pin) = buffer.pin().filter(|&pin| pin != offset) {
                return Err(mismatch(format!("buffer {index} is at {offset} and pinned to {pin}")));
            }
            let end = u128::from(offset) + u128::from(buffer.bytes());
            match u64::try_from(end) {
                Ok(end) if end <= MAX_BYTES => {
                    let peak = &mut peaks[self.place(index)];
                    *peak = (*peak).max(end);
                }
                _ => {
                    let arena = MAX_BYTES;
                    let what = what();
                    return Err(Error::PlanOutOfBounds { what, start: offset, end, arena });
                }
            }
        }
        self.check_rules(problem)?;
        for (index, &peak) in peaks.iter().enumerate() {
            self.check_space(problem, SpaceId::new(index), peak)?;
        }
        Ok(())
    }

    /// Returns the index of a buffer's space.
    fn place(&self, buffer: usize) -> usize {
        self.places.get(buffer).map_or(0, |space| space.index())
    }

    /// Verifies that every buffer is in a permitted space, and the figures of that choice.
    fn check_spaces(&self, problem: &Problem) -> Result<()> {
        let (buffers, spaces) = (problem.buffers(), problem.spaces().len());
        let known = if spaces > 1 { buffers.len() } else { 0 };
        if self.places.len() != known {
            return Err(mismatch("it has other buffers or other spaces".into()));
        }
        for (index, buffer) in buffers.iter().enumerate() {
            let place = SpaceId::new(self.place(index));
            if !buffer.spaces().contains(&place) {
                let reason = format!("buffer {index} is in space {place}, where it may not be");
                return Err(mismatch(reason));
            }
        }
        for &(one, other) in &problem.rules().separate {
            if self.place(one.index()) == self.place(other.index()) {
                let name = quoted(problem.spaces()[self.place(one.index())].name());
                let reason =
                    format!("buffers {one} and {other} are to be separate, and both are in {name}");
                return Err(mismatch(reason));
            }
        }
        let has_choice = buffers.iter().any(|buffer| buffer.spaces().len() > 1);
        if has_choice != self.choice.is_some() {
            return Err(mismatch("its proof is not about a choice of spaces".into()));
        }
        let Some(proof) = self.choice else { return Ok(()) };
        let (peak, bound) = (self.peak(), proof.lower_bound);
        if bound > peak {
            return Err(mismatch(format!("it has a peak of {peak}, below its bound {bound}")));
        }
        let fits = self.spaces.iter().zip(problem.spaces());
        let fits = fits.map(|(said, about)| about.capacity().is_none_or(|it| said.peak <= it));
        if proof.is_infeasible && fits.into_iter().all(|fits| fits) {
            return Err(mismatch("it fits, and is said to be infeasible".into()));
        }
        Ok(())
    }

    /// Verifies ranges, reserved bytes, groups, and the pairs that are to be apart. The ends of all
    /// buffers are in memory.
    fn check_rules(&self, problem: &Problem) -> Result<()> {
        let mut groups: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for (index, (buffer, &offset)) in problem.buffers().iter().zip(&self.offsets).enumerate() {
            let end = offset + buffer.bytes();
            if let Some(range) = buffer.range().filter(|it| offset < it.start || it.end < end) {
                let Range { start, end } = range;
                let reason = format!("buffer {index} is at {offset}, not inside {start}..{end}");
                return Err(mismatch(reason));
            }
            let place = self.place(index);
            let mut reserved = problem.spaces()[place].reserved().iter();
            if let Some(bytes) = reserved.find(|it| offset < it.end && it.start < end) {
                let Range { start, end } = bytes;
                let reason = format!("buffer {index} is at {offset}, on reserved {start}..{end}");
                return Err(mismatch(reason));
            }
            if let Some(group) = buffer.group() {
                let first = *groups.entry((place, group)).or_insert(offset);
                if first != offset {
                    let reason = format!(
                        "buffer {index} of group {group} is at {offset}, and others at {first}"
                    );
                    return Err(mismatch(reason));
                }
            }
        }
        for &(one, other) in &problem.rules().apart {
            let [first, second] = [one, other].map(|id| {
                let start = self.offsets[id.index()];
                (start, start + problem.buffer(id).bytes())
            });
            let byte = first.0.max(second.0);
            if self.place(one.index()) == self.place(other.index()) && byte < first.1.min(second.1)
            {
                let reason = format!("buffers {one} and {other} are to be apart, and have {byte}");
                return Err(mismatch(reason));
            }
        }
        Ok(())
    }

    /// Verifies the figures of a space whose highest buffer ends at `peak`.
    fn check_space(&self, problem: &Problem, space: SpaceId, peak: u64) -> Result<()> {
        let about = &problem.spaces()[space.index()];
        let said = self.spaces[space.index()];
        let name = quoted(about.name());
        if said.peak != peak {
            let said = said.peak;
            return Err(mismatch(format!("the peak of space {name} is {peak}, not {said}")));
        }
        if said.lower_bound > peak {
            let bound = said.lower_bound;
            return Err(mismatch(format!(
                "space {name} has a peak of {peak}, below its bound {bound}"
            )));
        }
        let fits = about.capacity().is_none_or(|capacity| peak <= capacity);
        if fits != matches!(said.status, Status::Optimal | Status::Feasible) {
            let status = said.status;
            return Err(mismatch(format!("space {name} has peak {peak} and status {status}")));
        }
        let members = problem.buffers().iter().zip(&self.offsets).enumerate();
        let held = members.filter(|&(index, _)| self.place(index) == space.index()).flat_map(
            |(owner, (buffer, &offset))| {
                buffer.rectangles().map(move |(bytes, live)| Held {
                    start: offset + bytes.start,
                    end: offset + bytes.end,
                    live,
                    owner,
                })
            },
        );
        let rules = problem.rules();
        let meeting = if rules.may_overlap.is_empty() {
            first_overlap(held)
        } else {
            let permits = |one, other| rules.permits(BufferId::new(one), BufferId::new(other));
            overlap_beyond(held, permits)
        };
        match meeting {
            None => Ok(()),
            Some(overlap) => Err(Error::PlanOverlap {
                first: format!("buffer {}", overlap.first),
                second: format!("buffer {}", overlap.second),
                step: overlap.step.get(),
                byte: overlap.byte,
            }),
        }
    }
}

/// Returns the error for a packing that does not belong to the problem.
fn mismatch(reason: String) -> Error {
    Error::PlanMismatch { reason }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::base::{Alignment, LiveRange};
    use crate::packing::SpacePacking;
    use crate::problem::Buffer;
    use crate::space::Space;

    /// Two buffers that are live together, the second pinned, in a space of 64 bytes; one more in
    /// another space.
    fn solved() -> (Problem, Packing) {
        let live = LiveRange::new(0, 2).unwrap();
        let four = Alignment::new(4).unwrap();
        let buffers = vec![
            Buffer::new(16, live).with_alignment(four),
            Buffer::new(8, live).with_pin(16),
            Buffer::new(8, live).with_space(SpaceId::new(1)),
        ];
        let spaces = vec![Space::new("first").with_capacity(24), Space::new("second")];
        let problem = Problem::new(buffers, spaces).unwrap();
        let space = |peak, lower_bound, status| SpacePacking { peak, lower_bound, status };
        let spaces = vec![space(24, 24, Status::Optimal), space(8, 4, Status::Feasible)];
        let places = [0, 0, 1].map(SpaceId::new).to_vec();
        (problem, Packing { offsets: vec![0, 16, 0], places, spaces, nodes: 0, choice: None })
    }

    type Change<'a> = &'a dyn Fn(&mut Packing);

    #[test]
    fn each_rule_refuses_its_own_flaw() {
        let (problem, packing) = solved();
        packing.check(&problem).unwrap();
        let kind = |change: Change<'_>| {
            let mut changed = packing.clone();
            change(&mut changed);
            changed.check(&problem).map_err(|error| error.kind())
        };
        let all: [(&str, Change<'_>); 11] = [
            ("PlanMismatch", &|it| it.offsets.truncate(2)),
            ("PlanMismatch", &|it| it.spaces.truncate(1)),
            ("PlanMisaligned", &|it| it.offsets[0] = 2),
            // With the figures for that offset, so that only the pin can refuse.
            ("PlanMismatch", &|it| {
                it.offsets[1] = 20;
                (it.spaces[0].peak, it.spaces[0].status) = (28, Status::Unknown);
            }),
            ("PlanOutOfBounds", &|it| it.offsets[2] = MAX_BYTES),
            ("PlanOutOfBounds", &|it| it.offsets[2] = u64::MAX),
            ("PlanMismatch", &|it| it.spaces[0].peak = 28),
            ("PlanMismatch", &|it| it.spaces[1].lower_bound = 9),
            ("PlanMismatch", &|it| it.spaces[0].status = Status::Unknown),
            ("PlanMismatch", &|it| it.spaces[1].status = Status::Infeasible),
            ("PlanOverlap", &|it| it.offsets[0] = 4),
        ];
        for (index, (expected, change)) in all.into_iter().enumerate() {
            assert_eq!(kind(change), Err(expected), "flaw {index}");
        }
    }

    /// Every rule, each with an offset that breaks that rule alone.
    #[test]
    fn each_rule_of_a_problem_refuses_its_own_flaw() {
        use crate::base::BufferId;
        use crate::rules::Rules;
        let live = |start, end| LiveRange::new(start, end).unwrap();
        let buffers = vec![
            Buffer::new(8, live(0, 2)),
            Buffer::new(8, live(1, 3)), // over the first buffer
            Buffer::new(4, live(4, 5)).with_multiple_of(12).unwrap(),
            Buffer::new(4, live(4, 5)).with_range(32..48),
            Buffer::new(4, live(6, 7)).with_group(3),
            Buffer::new(4, live(7, 8)).with_group(3),
            Buffer::new(4, live(9, 10)),
            Buffer::new(4, live(10, 11)), // apart from the buffer before
        ];
        let id = BufferId::new;
        let (may_overlap, apart) = (vec![(id(1), id(0))], vec![(id(6), id(7))]);
        let rules = Rules { may_overlap, apart, separate: vec![] };
        let space = Space::default().with_reserved(20..24);
        let problem = Problem::with_rules(buffers, vec![space], rules).unwrap();
        let offsets = vec![0, 4, 12, 44, 0, 0, 0, 4];
        let space = SpacePacking { peak: 48, lower_bound: 1, status: Status::Feasible };
        let spaces = vec![space];
        let packing = Packing { offsets, places: vec![], spaces, nodes: 0, choice: None };
        assert_eq!(packing.check(&problem), Ok(()));
        let flaws = [
            (2, 16, "PlanMisaligned"),
            (3, 28, "PlanMismatch"),
            (5, 4, "PlanMismatch"),
            (6, 17, "PlanMismatch"),
            (6, 23, "PlanMismatch"),
            (7, 3, "PlanMismatch"),
            (2, 48, "PlanMismatch"), // the peak alone
        ];
        for (buffer, offset, kind) in flaws {
            let mut changed = packing.clone();
            changed.offsets[buffer] = offset;
            changed.spaces[0].peak = changed.ends(&problem);
            changed.spaces[0].peak -= u64::from((buffer, offset) == (2, 48));
            assert_eq!(changed.check(&problem).unwrap_err().kind(), kind, "{buffer} {offset}");
        }
        let strict = Problem::new(problem.buffers().to_vec(), problem.spaces().to_vec()).unwrap();
        assert_eq!(packing.check(&strict).unwrap_err().kind(), "PlanOverlap");
    }

    /// Each rule about the choice of spaces, with a flaw that breaks that rule alone.
    #[test]
    fn each_rule_of_a_choice_refuses_its_own_flaw() {
        use crate::base::BufferId;
        use crate::packing::ChoiceProof;
        use crate::rules::Rules;
        let live = LiveRange::new(0, 2).unwrap();
        let buffer = |spaces: &[usize]| {
            let spaces = spaces.iter().map(|&space| SpaceId::new(space));
            Buffer::new(12, live).with_spaces(spaces).unwrap()
        };
        let late = Buffer::new(12, LiveRange::new(2, 3).unwrap());
        let buffers = vec![
            buffer(&[0, 1]),
            late.with_spaces([0, 1].map(SpaceId::new)).unwrap(),
            buffer(&[0, 2]),
        ];
        let rules =
            Rules { separate: vec![(BufferId::new(1), BufferId::new(0))], ..Rules::default() };
        let spaces = vec![
            Space::new("a"),
            Space::new("b").with_multiple_of(12).unwrap(),
            Space::new("c").with_alignment(Alignment::new(8).unwrap()),
        ];
        let problem = Problem::with_rules(buffers, spaces, rules).unwrap();
        let space = |peak| SpacePacking { peak, lower_bound: 0, status: Status::Feasible };
        let packing = Packing {
            offsets: vec![0; 3],
            places: [0, 1, 2].map(SpaceId::new).to_vec(),
            spaces: vec![space(12); 3],
            nodes: 0,
            choice: Some(ChoiceProof { lower_bound: 24, is_infeasible: false }),
        };
        assert_eq!(packing.check(&problem), Ok(()));
        let all: [(&str, Change<'_>); 9] = [
            ("PlanMismatch", &|it| it.places.truncate(2)),
            ("PlanMismatch", &|it| it.places[0] = SpaceId::new(2)),
            // Never live together, so that nothing but the pair can refuse.
            ("PlanMismatch", &|it| {
                it.places[1] = SpaceId::new(0);
                it.spaces[1] = SpacePacking { status: Status::Optimal, ..space(0) };
            }),
            ("PlanMismatch", &|it| it.choice = None),
            ("PlanMismatch", &|it| it.choice.as_mut().unwrap().lower_bound = 37),
            ("PlanMismatch", &|it| it.choice.as_mut().unwrap().is_infeasible = true),
            // Rules for the chosen space.
            ("PlanMisaligned", &|it| (it.offsets[1], it.spaces[1].peak) = (8, 20)),
            ("PlanMisaligned", &|it| (it.offsets[2], it.spaces[2].peak) = (12, 24)),
            ("PlanOverlap", &|it| {
                it.places[2] = SpaceId::new(0);
                it.spaces[2] = SpacePacking { status: Status::Optimal, ..space(0) };
            }),
        ];
        for (index, (expected, change)) in all.into_iter().enumerate() {
            let mut changed = packing.clone();
            change(&mut changed);
            let kind = changed.check(&problem).map_err(|error| error.kind());
            assert_eq!(kind, Err(expected), "flaw {index}");
        }
        let fixed = problem.in_spaces(&packing.places).unwrap();
        assert_eq!(packing.check(&fixed).unwrap_err().kind(), "PlanMismatch");
    }

    impl Packing {
        /// Returns the highest buffer's end.
        fn ends(&self, problem: &Problem) -> u64 {
            let ends = problem.buffers().iter().zip(&self.offsets).map(|(it, at)| it.bytes() + at);
            ends.max().unwrap()
        }
    }

    #[test]
    fn a_bound_may_be_the_peak_and_a_peak_the_capacity() {
        let (problem, mut packing) = solved();
        packing.spaces[1] = SpacePacking { peak: 8, lower_bound: 8, status: Status::Optimal };
        assert_eq!(packing.check(&problem), Ok(()));
        // And the last byte that an offset can reach.
        packing.offsets[2] = MAX_BYTES - 8;
        packing.spaces[1] = SpacePacking { peak: MAX_BYTES, lower_bound: 8, ..packing.spaces[1] };
        packing.spaces[1].status = Status::Feasible;
        assert_eq!(packing.check(&problem), Ok(()));
    }

    #[test]
    fn buffers_of_different_spaces_may_have_the_same_offsets() {
        let live = LiveRange::new(0, 2).unwrap();
        let buffer = |space| Buffer::new(16, live).with_space(SpaceId::new(space));
        let buffers = (0..3).map(buffer).collect();
        let problem = Problem::new(buffers, ["a", "b", "c"].map(Space::new).to_vec()).unwrap();
        let space = SpacePacking { peak: 16, lower_bound: 16, status: Status::Optimal };
        let places = (0..3).map(SpaceId::new).collect();
        let spaces = vec![space; 3];
        let packing = Packing { offsets: vec![0; 3], places, spaces, nodes: 0, choice: None };
        assert_eq!(packing.check(&problem), Ok(()));
    }
}
