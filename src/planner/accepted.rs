//! The next plan, if the checker refuses the best plan.

use super::context::Context;
use crate::base::{Error, Result};
use crate::graph::Graph;
use crate::pack::Allowance;
use crate::plan::{Effort, Plan, Technique};

/// Techniques by which values share bytes, the technique that most depends on the others first.
const SHARING: [Technique; 4] =
    [Technique::Overlap, Technique::Elision, Technique::InPlace, Technique::Views];

/// Returns the effort for all packings of one plan: milliseconds, a second or two, or no more than
/// each packing takes. A few buffers whose least peak is hard to prove take seconds, and a plan has
/// hundreds of packings.
fn packing_effort(effort: Effort, nodes: usize) -> Allowance {
    let (base, per_node) = match effort {
        Effort::Fast => (20_000_000, 1_000),
        Effort::Default => (400_000_000, 20_000),
        Effort::Max => return Allowance::new(usize::MAX),
    };
    Allowance::new(nodes.saturating_mul(per_node).saturating_add(base))
}

/// Returns the checked result of `make`. If the checker refuses a plan with valid options, the
/// planner is at fault: `make` is called again with fewer ways to share bytes, and the options in
/// that plan name the techniques that were used.
///
/// # Errors
///
/// As `make`; the first refusal if the checker refuses every plan.
pub(super) fn accepted<T>(
    context: &Context<'_>,
    nodes: usize,
    make: impl Fn(&Context<'_>) -> Result<T>,
) -> Result<T> {
    let allowance = packing_effort(context.options.effort, nodes);
    let context = &Context { budget: context.budget.with_allowance(&allowance), ..*context };
    let refused = match make(context) {
        Err(error) if is_refusal(&error) => error,
        result => return result,
    };
    let all = context.options.optimize;
    let mut techniques = all;
    for technique in SHARING.into_iter().filter(|&one| all.contains(one)) {
        techniques = techniques.without(technique);
        if let Ok(made) = make(&context.with_techniques(techniques)) {
            return Ok(made);
        }
    }
    Err(refused)
}

/// Returns the unchecked plan of `make` once the checker accepts the plan; see [`accepted`].
///
/// # Errors
///
/// As [`accepted`].
pub(super) fn accepted_plan(
    context: &Context<'_>,
    graph: &Graph,
    make: impl Fn(&Context<'_>) -> Result<Plan>,
) -> Result<Plan> {
    accepted(context, graph.nodes().len(), |context| {
        let plan = make(context)?;
        plan.check(graph)?;
        Ok(plan)
    })
}

/// Returns whether an error is the checker's about bytes or claims of a plan.
const fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::PlanMismatch { .. }
            | Error::PlanOverlap { .. }
            | Error::PlanOutOfBounds { .. }
            | Error::PlanMisaligned { .. }
            | Error::PlanCorrupt { .. }
            | Error::TargetMismatch { .. }
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use alloc::string::ToString as _;
    use core::cell::RefCell;

    use super::*;
    use crate::plan::Techniques;
    use crate::planner::Planner;

    #[test]
    fn a_plan_that_the_checker_refuses_makes_room_for_the_next() {
        let graph = Graph::builder("empty").build().unwrap();
        let context = Planner::new().context(&graph).unwrap();
        let tried = RefCell::new(alloc::vec::Vec::new());
        let refusing = |last: Technique| {
            let tried = &tried;
            move |context: &Context<'_>| {
                let techniques = context.options.optimize;
                tried.borrow_mut().push(techniques.to_string());
                if techniques.contains(last) {
                    let reason = techniques.to_string();
                    return Err(Error::PlanMismatch { reason });
                }
                Ok(techniques)
            }
        };
        let all = context.options.optimize;
        let found = accepted(&context, 0, refusing(Technique::InPlace)).unwrap();
        let left_out = [Technique::Overlap, Technique::Elision, Technique::InPlace];
        assert_eq!(found, left_out.into_iter().fold(all, Techniques::without));
        assert_eq!(tried.borrow()[0], all.to_string());
        // The first refusal tells most.
        let refused = accepted(&context, 0, refusing(Technique::Order)).unwrap_err();
        assert!(refused.to_string().contains(&all.to_string()), "{refused}");
        // Other errors are the caller's.
        let asked = RefCell::new(0);
        let other = accepted(&context, 0, |_| -> Result<()> {
            *asked.borrow_mut() += 1;
            Err(Error::PinConflict { reason: "two places".into() })
        });
        assert_eq!((other.unwrap_err().kind(), *asked.borrow()), ("PinConflict", 1));
    }
}
