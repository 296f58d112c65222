//! Attempts: schedules measured by the live bytes at the highest step.

use alloc::{rc::Rc, vec, vec::Vec};

use super::context::Context;
use super::step_schedule::{StepSchedule, WorkerTimes};
use crate::base::{Result, SpaceId, ValueId};
use crate::choose::Fusion;
use crate::pack::{Problem, max_load};
use crate::plan::{OrderSearch, Share, ShareRule, Techniques};

/// A measured schedule.
#[derive(Clone, Debug)]
pub(super) struct Attempt<'g> {
    pub(super) schedule: StepSchedule<'g>,
    /// The fusion kind that made the groups.
    pub(super) fusion: Fusion,
    /// Whether values are placed as pieces of larger values where possible. A piece is tied to the
    /// bytes of the whole, so no output can take over the piece.
    pub(super) elision: bool,
    /// Whether any value is placed as a piece of a larger value.
    pub(super) has_pieces: bool,
    /// Bytes live at the highest step: no packing needs fewer.
    pub(super) load: u64,
    /// By step: bytes that are live in the first space.
    pub(super) live: Rc<[u64]>,
    /// Bytes that some step needs by itself, in any order; `None` if not computed.
    pub(super) floor: Option<u64>,
    /// Order search scope.
    pub(super) order: OrderSearch,
    /// The techniques by which values share bytes.
    pub(super) techniques: Techniques,
}

impl Attempt<'_> {
    /// Returns a context with the attempt's rules for sharing bytes.
    pub(super) fn context<'c>(&self, context: &Context<'c>) -> Context<'c> {
        context.with_techniques(self.techniques)
    }

    /// Sort key. At equal bytes, channels take more time. With a capacity, the shortest timetable
    /// that fits comes first.
    pub(super) fn rank(&self, capacity: Option<u64>) -> (bool, u64, u64, bool) {
        let fits = capacity.is_some_and(|bytes| self.load <= bytes);
        let span = self.schedule.table().filter(|_| fits).map(WorkerTimes::span);
        (span.is_none(), span.unwrap_or(0), self.load, self.fusion.channels)
    }
}

/// Measures a schedule, and, if values are placed as pieces, once more with copied pieces.
pub(super) fn with_copies<'g>(
    context: &Context<'_>,
    schedule: StepSchedule<'g>,
) -> Result<Vec<Attempt<'g>>> {
    let mut attempts = vec![measured(context, schedule, true)?];
    if attempts[0].has_pieces {
        attempts.push(measured(context, attempts[0].schedule.clone(), false)?);
    }
    Ok(attempts)
}

/// Measures a schedule with or without values placed as pieces.
pub(super) fn measured<'g>(
    context: &Context<'_>,
    schedule: StepSchedule<'g>,
    elision: bool,
) -> Result<Attempt<'g>> {
    let options = context.liveness_options(false, elision)?;
    let liveness = schedule.liveness(options)?;
    let load = total_load(&liveness.problem)?;
    let live = liveness.profile(SpaceId::new(0)).into();
    let has_pieces = liveness.classes.merges().iter().any(|merge| {
        let node = schedule.graph.node(merge.node);
        let at = |position: u32| usize::try_from(position).unwrap_or(usize::MAX);
        let bytes = |value: ValueId| schedule.graph.value(value).bytes();
        let Share { input, output, rule } = merge.share;
        let sizes = [node.input(at(input)), node.output(at(output))].map(|value| value.map(bytes));
        rule == ShareRule::View && sizes[0] != sizes[1]
    });
    let order = OrderSearch::Given;
    let fusion = Fusion::default();
    let techniques = context.options.optimize;
    let floor = None;
    Ok(Attempt { schedule, fusion, elision, has_pieces, load, live, floor, order, techniques })
}

/// Returns the bytes that are live at once, over all spaces.
pub(super) fn total_load(problem: &Problem) -> Result<u64> {
    (0..problem.spaces().len()).try_fold(0_u64, |sum, space| {
        Ok(sum.saturating_add(max_load(problem, SpaceId::new(space))?.0))
    })
}
