//! Plans in which some steps run strip by strip, by the runner's row kernels.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::SLOW;
use super::faster::{ROUNDS, widened};
use super::maker::{Finish, Maker, Timed};
use crate::base::{NodeId, Result};
use crate::choose::{RowMoveCost, StepForm, StripChoice, StripLimits, Way};
use crate::plan::Techniques;
use crate::planner::StripSearch;
use crate::planner::scope::may_have_strips;

/// Returns plans with fewer than `below` bytes in which some steps run strip by strip.
pub(super) fn in_strips(maker: &Maker<'_, '_>, limit: u64, below: u64) -> Result<Vec<Timed>> {
    let mut found: Vec<Timed> = Vec::new();
    let options = &maker.context.options;
    let is_wanted = may_have_strips(maker.context, maker.graph) && !options.parallel_safe;
    let budget = &maker.context.budget;
    let Some(moves) = maker.costs.runner.row_moves().filter(|_| is_wanted) else {
        return Ok(found);
    };
    if budget.exhausted() {
        return Ok(found);
    }
    let techniques = SLOW.into_iter().fold(options.optimize, Techniques::without);
    let draft = maker.draft(techniques, None, &[])?;
    let timed = maker.finish(&draft, maker.unchanged(&[]))?;
    let limits = StripLimits { above: 0, below, time: limit };
    let Some((mut search, choice)) = searched(maker, &timed, moves, limits)? else {
        return Ok(found);
    };
    let mut next = Some(choice);
    let mut above = 0;
    while let Some(choice) = next.filter(|_| !budget.exhausted()) {
        let nodes = |last: NodeId| choice.steps.iter().find(|step| step.last() == Some(&last));
        let runs = |(last, strips)| {
            nodes(last)
                .is_some_and(|step| maker.costs.step(step, StepForm::Strips(strips)).is_some())
        };
        let strips = choice.strips.iter().enumerate();
        let refused: Vec<usize> =
            strips.filter(|(_, (last, how))| !runs((*last, how))).map(|(at, _)| at).collect();
        for &at in &refused {
            search.refuse(at);
        }
        if refused.is_empty() {
            let bytes = choice.bytes;
            let finish = Finish {
                steps: Some(choice.steps),
                overlapping: Some(Vec::new()),
                room: bytes,
                ..maker.unchanged(&choice.strips)
            };
            let other = maker.finish(&timed.draft, finish)?;
            let fits = other.time() <= limit && other.plan.arena_bytes() <= widened(bytes);
            found.push(other);
            if fits {
                break;
            }
            // Bytes that fit by size may have no offsets, and estimates are not sums.
            above = widened(bytes);
        }
        if found.len() == ROUNDS {
            break;
        }
        next = search.least(StripLimits { above, ..limits }, budget)?;
    }
    Ok(found)
}

/// Returns a search that knows the kernels which the least choice depends on, and that choice.
///
/// Finding kernel costs takes longer than the search. So the search first knows the kernels that
/// can shrink the steps with the most bytes. More kernels follow when an unchanged step decides the
/// bytes of a choice.
fn searched(
    maker: &Maker<'_, '_>,
    timed: &Timed,
    moves: RowMoveCost,
    limits: StripLimits,
) -> Result<Option<(StripSearch, StripChoice)>> {
    let (graph, plan, budget) = (maker.graph, &timed.plan, &maker.context.budget);
    let steps = maker.ways(timed);
    let ways: Vec<Vec<Way>> = steps
        .iter()
        .map(|step| step.ways.iter().map(|it| Way { bytes: it.bytes, time: it.time }).collect())
        .collect();
    let needs: Vec<u64> = steps.iter().map(|step| step.ways[0].bytes).collect();
    let most = limits.below.min(needs.iter().copied().max().unwrap_or(0));
    let mut wanted: BTreeSet<usize> = (0..needs.len()).filter(|&at| needs[at] >= most).collect();
    while !budget.exhausted() {
        let positions: Vec<usize> = wanted.iter().copied().collect();
        let reach = StripSearch::nodes(graph, plan, &positions)?;
        let kernels = maker.costs.runner.row_kernels(&reach);
        if kernels.is_empty() {
            break;
        }
        let mut search =
            StripSearch::new(graph, plan, kernels, moves, ways.clone(), limits, budget)?;
        let Some(choice) = search.least(limits, budget)? else { break };
        let strips: BTreeSet<NodeId> = choice.strips.iter().map(|(last, _)| *last).collect();
        let is_whole = |last: &NodeId| !strips.contains(last);
        let whole: BTreeSet<NodeId> =
            choice.steps.iter().filter_map(|step| step.last().copied()).filter(is_whole).collect();
        let more: Vec<usize> = (0..steps.len())
            .filter(|&at| needs[at] >= choice.bytes && !wanted.contains(&at))
            .filter(|&at| steps[at].nodes.last().is_some_and(|last| whole.contains(last)))
            .collect();
        if more.is_empty() {
            return Ok(Some((search, choice)));
        }
        wanted.extend(more);
    }
    Ok(None)
}
