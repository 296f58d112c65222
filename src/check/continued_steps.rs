//! Steps that continue the step before.

use alloc::format;

use crate::base::{Result, quoted};
use crate::check::mismatch;
use crate::check::unit::Unit;
use crate::plan::{Placement, Plan, PlanStep, ShareRule};

impl Plan {
    /// Checks that each step that continues the step before replaces the only result of that step.
    ///
    /// One call then performs a run of such steps at the first step. All steps of the run write the same
    /// bytes, so each overwrites the result that the next step reads, and no other step reads that
    /// result. So no other operand is made inside of the run, and the replay has shown that all
    /// operands keep their bytes until the run ends.
    pub(super) fn check_continued(&self, units: &[Unit<'_>]) -> Result<()> {
        let mut before = None;
        for (step, unit) in self.steps.iter().zip(units) {
            let result = self.only_result(step, unit);
            if step.continues {
                let is_replaced = |(made, result): (&Placement, &Placement)| {
                    let bytes = |it: &Placement| (it.space, it.offset, it.bytes);
                    bytes(made) == bytes(result) && step.inputs.contains(&Some(made.value))
                };
                if !before.zip(result).is_some_and(is_replaced) {
                    let name = quoted(unit.name);
                    return mismatch(format!("node {name} cannot continue the step before"));
                }
            }
            before = result;
        }
        Ok(())
    }

    /// Returns the place of the only value that a node writes, if the value is in separate bytes or
    /// exactly over an input.
    fn only_result(&self, step: &PlanStep, unit: &Unit<'_>) -> Option<&Placement> {
        let mut writes = unit.writes();
        let (Some((_, value)), None) = (writes.next(), writes.next()) else { return None };
        let is_plain = unit.nodes.len() == 1
            && unit.mutates.is_empty()
            && step.shares.iter().all(|share| share.rule == ShareRule::InPlace);
        is_plain.then(|| self.placement(value))?
    }
}
