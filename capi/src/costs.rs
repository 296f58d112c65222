//! The step costs that a program states.

use std::fmt;

use arenaplan::NodeId;
use arenaplan::base::Alignment;
use arenaplan::choose::{Costs, StepCost, StepForm};
use arenaplan::graph::{Choice, Workspace};

use crate::types::{MOST_WAYS, Way};

/// Writes the ways to run nodes as one step, and returns how many ways there are.
pub type Ask<'a> = dyn Fn(&[u32], &mut [Way; MOST_WAYS]) -> usize + 'a;

/// The costs that a program states.
pub struct ProgramCosts<'a>(pub(crate) Box<Ask<'a>>);

impl fmt::Debug for ProgramCosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgramCosts")
    }
}

impl Costs for ProgramCosts<'_> {
    fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
        let StepForm::Whole = form else { return None };
        let nodes: Vec<u32> = nodes.iter().map(|&node| node.into()).collect();
        let mut ways = [Way::default(); MOST_WAYS];
        let count = self.0(&nodes, &mut ways).min(MOST_WAYS);
        let ways = ways.get(..count).filter(|ways| !ways.is_empty())?;
        // The order says which size is faster, so that no time is rounded.
        let ranks = (0_u32..).zip(ways.iter().rev());
        let mut choices: Vec<Choice> =
            ranks.map(|(at, way)| Choice { bytes: way.bytes, cost: f64::from(at) }).collect();
        choices.reverse();
        let workspace = Workspace { choices, alignment: Alignment::BYTE };
        let workspaces =
            if ways.iter().all(|way| way.bytes == 0) { Vec::new() } else { vec![workspace] };
        let ways = ways
            .iter()
            .map(|way| arenaplan::choose::Way { bytes: way.bytes, time: way.nanoseconds });
        Some(StepCost { workspaces, ways: ways.collect() })
    }
}
