//! The checker of packings. It shares no code with the solver.

use alloc::{format, string::String, vec};

use crate::base::{BufferId, Error, MAX_BYTES, Result, SpaceId, quoted};
use crate::pack::packing::{Packing, Status};
use crate::pack::problem::Problem;
use crate::pack::rectangles::{Held, first_overlap};

impl Packing {
    /// Verifies that these offsets solve `problem` and that the figures are true.
    ///
    /// Buffers of one space that are live together share no byte; every offset is
    /// a multiple of its alignment, and equal to its pin if it has one; the peak of
    /// a space is exactly the end of the highest buffer; and the status agrees with
    /// peak, bound and capacity. Runs in `O(n log n)` for `n` buffers.
    ///
    /// # Errors
    ///
    /// - [`Error::PlanMismatch`] if the packing is one of another problem, a buffer is not
    ///   at its pin, or a figure is wrong.
    /// - [`Error::PlanMisaligned`], [`Error::PlanOutOfBounds`] and [`Error::PlanOverlap`] for
    ///   offsets that do not do.
    pub fn check(&self, problem: &Problem) -> Result<()> {
        if self.offsets.len() != problem.buffers().len()
            || self.spaces.len() != problem.spaces().len()
        {
            return Err(mismatch("it has other buffers or other spaces".into()));
        }
        let mut peaks = vec![0_u64; problem.spaces().len()];
        for (index, (buffer, &offset)) in problem.buffers().iter().zip(&self.offsets).enumerate() {
            let what = || format!("buffer {index}");
            let alignment = problem.alignment(BufferId::new(index));
            if !alignment.divides(offset) {
                let alignment = alignment.bytes();
                return Err(Error::PlanMisaligned { what: what(), offset, alignment });
            }
            if let Some(pin) = buffer.pin().filter(|&pin| pin != offset) {
                return Err(mismatch(format!("buffer {index} is at {offset} and pinned to {pin}")));
            }
            let end = u128::from(offset) + u128::from(buffer.bytes());
            match u64::try_from(end) {
                Ok(end) if end <= MAX_BYTES => {
                    let peak = &mut peaks[buffer.space().index()];
                    *peak = (*peak).max(end);
                }
                _ => {
                    let arena = MAX_BYTES;
                    let what = what();
                    return Err(Error::PlanOutOfBounds { what, start: offset, end, arena });
                }
            }
        }
        for (index, &peak) in peaks.iter().enumerate() {
            self.check_space(problem, SpaceId::new(index), peak)?;
        }
        Ok(())
    }

    /// Verifies the figures of one space, whose highest buffer ends at `peak`.
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
        let held = members.filter(|(_, (buffer, _))| buffer.space() == space).flat_map(
            |(owner, (buffer, &offset))| {
                buffer.rectangles().map(move |(bytes, live)| Held {
                    start: offset + bytes.start,
                    end: offset + bytes.end,
                    live,
                    owner,
                })
            },
        );
        match first_overlap(held) {
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

/// Returns the error that the packing is not one of the problem.
fn mismatch(reason: String) -> Error {
    Error::PlanMismatch { reason }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::base::{Alignment, LiveRange};
    use crate::pack::packing::SpacePacking;
    use crate::pack::problem::{Buffer, Space};

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
        (problem, Packing { offsets: vec![0, 16, 0], spaces })
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
            // With the figures that it has there, so that only the pin can refuse.
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
        let packing = Packing { offsets: vec![0; 3], spaces: vec![space; 3] };
        assert_eq!(packing.check(&problem), Ok(()));
    }
}
