//! The claims of a plan that was just made, as the checker sees them.

use crate::base::{Error, Result};
use crate::graph::Graph;
use crate::plan::{OrderSearch, Plan};

/// Checks a plan that was just made, and lowers claims that the checker refutes.
///
/// The bounds of the solver hold for its own problem, in which pieces of values are rounded to the
/// alignment. The checker counts such pieces by the byte, and may see a smaller arena.
pub(super) fn lower_refuted_claims(plan: &mut Plan, graph: &Graph) -> Result<()> {
    match plan.check(graph) {
        Err(Error::PlanCorrupt { .. }) => {}
        checked => return checked.map(drop),
    }
    plan.claim_live_bytes();
    let bound = plan.lower_bound();
    if let Some(search) = &mut plan.search {
        search.floor = search.floor.min(bound);
        if search.order == OrderSearch::Complete {
            search.order = OrderSearch::Beam;
        }
    }
    plan.check(graph).map(drop)
}
