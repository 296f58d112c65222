//! The joint choice: fused groups and their order.
//!
//! Techniques depend on each other: a group keeps the inputs of its nodes until the group ends, and
//! a good order for single nodes may be bad for groups. So fusion kinds and orders are tried
//! together. Each schedule is measured by the live bytes at the highest step, and the best few
//! schedules are packed.

use alloc::{vec, vec::Vec};

use super::attempt::{Attempt, with_copies};
use super::context::{Context, MOST_NODES_TO_SHARE_LESS};
use super::least::least;
use super::other_orders::{floor, reorder};
use super::settle::settled;
use super::step_schedule::StepSchedule;
use super::workers::for_workers;
use crate::base::{NodeId, Result};
use crate::choose::Fusion;
use crate::choose::fuse::{Fusible, fuse_repeating};
use crate::graph::Graph;
use crate::pack::Stage;
use crate::plan::{Effort, Technique};

/// For graphs with more nodes, only two kinds of fusion are tried.
pub(super) const MOST_NODES_TO_TRY: usize = 20_000;

/// Returns schedules of `graph`, lowest load first. For a small graph whose plan may be too large,
/// schedules in which values share fewer bytes are added.
///
/// Values that share bytes are harder to place, and the larger value is rounded up together with
/// the smaller value: a technique may cost more than the technique saves. A plan with more
/// techniques is never larger, because plans with fewer techniques are among the candidates.
pub(super) fn candidates<'g>(context: &Context<'_>, graph: &'g Graph) -> Result<Vec<Attempt<'g>>> {
    let mut attempts = schedules(context, graph)?;
    if graph.nodes().len() > MOST_NODES_TO_SHARE_LESS {
        return Ok(attempts);
    }
    let alone = context.without_capacity().without_memories();
    if least(&alone, &attempts)?.placed.packing.peak() <= floor(context, &attempts)? {
        return Ok(attempts);
    }
    let all = context.options.optimize;
    let rules = [Technique::Views, Technique::InPlace, Technique::Elision];
    let rules: Vec<Technique> = rules.into_iter().filter(|&one| all.contains(one)).collect();
    for bits in 1..1_u8 << rules.len() {
        let left_out = rules.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
        let fewer = left_out.fold(all, |fewer, (_, &rule)| fewer.without(rule));
        attempts.extend(schedules(&context.with_techniques(fewer), graph)?);
    }
    attempts.sort_by_key(|it| it.rank(context.options.capacity));
    Ok(attempts)
}

/// Returns schedules of `graph`, lowest load first.
fn schedules<'g>(context: &Context<'_>, graph: &'g Graph) -> Result<Vec<Attempt<'g>>> {
    let mut attempts = with_copies(context, StepSchedule::given(graph))?;
    if context.options.parallel_safe {
        return Ok(attempts);
    }
    let fusible = Fusible::new(graph);
    let mut known: Vec<Vec<Vec<NodeId>>> = vec![Vec::new()];
    let repeats = context.options.optimize.contains(Technique::Duplicate)
        && graph.nodes().len() <= MOST_NODES_TO_TRY
        && graph.has_repeats();
    let kinds = fusions(context, graph).into_iter().flat_map(|fusion| {
        let both = [false, true].into_iter().filter(move |&again| !again || repeats);
        both.map(move |again| (fusion, again))
    });
    for (fusion, again) in kinds {
        let groups = if again { fuse_repeating(graph, fusion) } else { fusible.fuse(fusion) };
        if known.contains(&groups) || context.budget.exhausted() {
            continue;
        }
        for attempt in with_copies(context, StepSchedule::grouped(graph, &groups)?)? {
            let attempt = Attempt { fusion, ..attempt };
            // Of equal schedules, the first is taken.
            attempts.extend(settled(context, &fusible, &attempt)?);
            attempts.push(attempt);
        }
        known.push(groups);
        let least = attempts.iter().map(|attempt| attempt.load).min();
        context.tell(Stage::Fusion, least.unwrap_or(u64::MAX), 0);
    }
    attempts.sort_by_key(|it| it.rank(context.options.capacity));
    if context.options.optimize.contains(Technique::Order) {
        reorder(context, &fusible, &mut attempts)?;
        attempts.sort_by_key(|it| it.rank(context.options.capacity));
    }
    if context.options.workers > 1 {
        attempts = for_workers(context, &attempts)?;
    }
    Ok(attempts)
}

/// Returns the fusion kinds to try, the simplest kind first.
fn fusions(context: &Context<'_>, graph: &Graph) -> Vec<Fusion> {
    let techniques = context.options.optimize;
    let off = Fusion::default();
    let mut kinds = vec![off];
    if techniques.contains(Technique::Fusion) {
        let elementwise = Fusion { elementwise: true, ..off };
        let anchors = Fusion { anchors: true, ..elementwise };
        kinds.push(anchors);
        if graph.nodes().len() <= MOST_NODES_TO_TRY && context.options.effort != Effort::Fast {
            kinds.extend([elementwise, Fusion { prologue: true, ..anchors }]);
        }
    }
    let mut all = kinds.clone();
    let is_streaming = techniques.contains(Technique::Streaming)
        && context.target.strip_axis().is_none()
        && graph.nodes().len() <= MOST_NODES_TO_TRY;
    if is_streaming {
        for (attention, perceptrons) in [(true, true), (true, false), (false, true)] {
            let streams = kinds.iter().map(|&kind| Fusion { attention, perceptrons, ..kind });
            all.extend(streams);
        }
        let channels = kinds.iter().filter(|kind| kind.anchors);
        all.extend(channels.map(|&kind| Fusion { channels: true, ..kind }));
    }
    all
}
