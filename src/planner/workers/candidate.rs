//! List schedules that were measured.

use alloc::rc::Rc;
use alloc::vec::Vec;

use super::list::{Listed, Steps};
use crate::base::{NodeId, Result};
use crate::planner::attempt::{Attempt, measured};
use crate::planner::context::Context;
use crate::planner::step_schedule::WorkerTimes;

/// A list schedule with its bytes.
pub(super) struct ListCandidate<'t, 'g> {
    pub(super) base: &'t Attempt<'g>,
    pub(super) steps: Rc<Steps>,
    pub(super) listed: Listed,
    pub(super) attempt: Attempt<'g>,
}

impl ListCandidate<'_, '_> {
    /// Returns the sort key: fewer bytes, then less time.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.attempt.load, self.listed.span)
    }
}

/// Returns a list schedule with its bytes.
pub(super) fn candidate<'t, 'g>(
    context: &Context<'_>,
    base: &'t Attempt<'g>,
    steps: &Rc<Steps>,
    listed: Listed,
) -> Result<ListCandidate<'t, 'g>> {
    let order: Vec<NodeId> = listed.order.iter().map(|&at| base.schedule.order[at]).collect();
    let costs = listed.order.iter().map(|&at| steps.costs[at]).collect();
    let schedule = base.schedule.timed(order, WorkerTimes::new(costs, listed.starts.clone()));
    let own = base.context(context);
    let attempt = measured(&own, schedule, base.elision)?;
    let Attempt { fusion, floor, order, .. } = *base;
    let attempt = Attempt { fusion, floor, order, ..attempt };
    Ok(ListCandidate { base, steps: Rc::clone(steps), listed, attempt })
}
