//! The joint choice of fused groups and their order.
//!
//! Techniques depend on each other: a group of nodes keeps its inputs until its end, and an order
//! that is good for single nodes may be bad for groups. So kinds of fusion and orders are tried
//! together. Each schedule is measured by the live bytes of its highest step, and the best few are
//! packed.

use super::Planner;
use super::overlap::MOST_NODES_TO_OVERLAP;
use super::pack::total_load;
use super::schedule::Schedule;
use crate::base::{NodeId, Result, SpaceId, ValueId};
use crate::choose::order::Orders;
use crate::choose::{Fusion, OrderLimits, fuse};
use crate::graph::Graph;
use crate::liveness::Liveness;
use crate::pack::{Progress, Stage};
use crate::plan::{
    Effort, OrderSearch, PlanOptions, Search, Share, ShareRule, Technique, Techniques,
};

/// Graphs with more nodes keep their order.
const MOST_NODES_TO_ORDER: usize = 5_000;
/// Graphs with more nodes are tried with two kinds of fusion only.
const MOST_NODES_TO_TRY: usize = 20_000;
/// Smaller graphs are tried with fewer ways to share bytes, too, and all their schedules packed.
pub(super) const MOST_NODES_TO_SHARE_LESS: usize = 24;

/// A schedule, and its measure.
#[derive(Clone, Debug)]
pub(super) struct Attempt<'g> {
    pub(super) schedule: Schedule<'g>,
    /// The kind of fusion that made its groups.
    pub(super) fusion: Fusion,
    /// Whether values are pieces of larger ones where possible. A piece is tied to the bytes of
    /// the whole, so no output can take over the piece.
    pub(super) elision: bool,
    /// Bytes live at the highest step: no packing needs fewer.
    pub(super) load: u64,
    /// Bytes that some step needs by itself, in any order, if that was computed.
    pub(super) floor: Option<u64>,
    /// Scope of its order.
    pub(super) order: OrderSearch,
    /// The techniques by which its values share bytes.
    pub(super) techniques: Techniques,
}

impl Attempt<'_> {
    /// Sort key of attempts: of equally many bytes, channels take more time.
    fn rank(&self) -> (u64, bool) {
        (self.load, self.fusion.channels)
    }
}

impl Planner<'_> {
    /// Returns schedules of `graph`, those with the lowest load first; of a small graph whose
    /// plan may be too large, also those in which values share fewer bytes.
    ///
    /// Values that share bytes are harder to place, and the size of a larger one is rounded up
    /// with the smaller: a technique may cost more than it saves. That a plan with more
    /// techniques is never larger holds because the plans with fewer are among its candidates.
    pub(super) fn candidates<'g>(&self, graph: &'g Graph) -> Result<Vec<Attempt<'g>>> {
        let mut attempts = self.attempts(graph)?;
        if graph.nodes().len() > MOST_NODES_TO_SHARE_LESS {
            return Ok(attempts);
        }
        let options = PlanOptions { capacity: None, ..self.options };
        let alone = Planner { memories: None, options, ..*self };
        if alone.least(&attempts)?.2.peak() <= self.floor(&attempts)? {
            return Ok(attempts);
        }
        let all = self.options.optimize;
        let rules = [Technique::Views, Technique::InPlace, Technique::Elision];
        let rules: Vec<Technique> = rules.into_iter().filter(|&one| all.contains(one)).collect();
        for bits in 1..1_u8 << rules.len() {
            let left_out = rules.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
            let fewer = left_out.fold(all, |fewer, (_, &rule)| fewer.without(rule));
            attempts.extend(self.optimize(fewer).attempts(graph)?);
        }
        attempts.sort_by_key(Attempt::rank);
        Ok(attempts)
    }

    /// Returns a planner whose values share bytes as those of `attempt` do.
    pub(super) fn sharing_as(&self, attempt: &Attempt<'_>) -> Self {
        self.optimize(attempt.techniques)
    }

    /// Returns schedules of `graph`, those with the lowest load first.
    fn attempts<'g>(&self, graph: &'g Graph) -> Result<Vec<Attempt<'g>>> {
        let mut attempts = self.measured(Schedule::given(graph))?;
        if self.options.parallel_safe {
            return Ok(attempts);
        }
        let mut known: Vec<Vec<Vec<NodeId>>> = vec![Vec::new()];
        for fusion in self.fusions(graph) {
            let groups = fuse(graph, fusion);
            if known.contains(&groups) || self.budget.exhausted() {
                continue;
            }
            for attempt in self.measured(Schedule::grouped(graph, &groups)?)? {
                let attempt = Attempt { fusion, ..attempt };
                // Of equal ones, the first is taken.
                attempts.extend(self.settled(graph, &attempt)?);
                attempts.push(attempt);
            }
            known.push(groups);
            let least = attempts.iter().map(|attempt| attempt.load).min();
            self.tell(Stage::Fusion, least.unwrap_or(u64::MAX), 0);
        }
        attempts.sort_by_key(Attempt::rank);
        if self.options.optimize.contains(Technique::Order) {
            self.reorder(graph, &mut attempts)?;
            attempts.sort_by_key(Attempt::rank);
        }
        Ok(attempts)
    }

    /// Returns the kinds of fusion to try, the simplest first.
    fn fusions(&self, graph: &Graph) -> Vec<Fusion> {
        let techniques = self.options.optimize;
        let off = Fusion::default();
        let mut kinds = vec![off];
        if techniques.contains(Technique::Fusion) {
            let elementwise = Fusion { elementwise: true, ..off };
            let anchors = Fusion { anchors: true, ..elementwise };
            kinds.push(anchors);
            if graph.nodes().len() <= MOST_NODES_TO_TRY && self.options.effort != Effort::Fast {
                kinds.extend([elementwise, Fusion { prologue: true, ..anchors }]);
            }
        }
        let mut all = kinds.clone();
        if techniques.contains(Technique::Streaming) && graph.nodes().len() <= MOST_NODES_TO_TRY {
            for (attention, perceptrons) in [(true, true), (true, false), (false, true)] {
                let streams = kinds.iter().map(|&kind| Fusion { attention, perceptrons, ..kind });
                all.extend(streams);
            }
            let channels = kinds.iter().filter(|kind| kind.anchors);
            all.extend(channels.map(|&kind| Fusion { channels: true, ..kind }));
        }
        all
    }

    /// Tries other orders for the attempts, best first, as long as one might win.
    fn reorder<'g>(&self, graph: &'g Graph, attempts: &mut Vec<Attempt<'g>>) -> Result<()> {
        if graph.nodes().len() > MOST_NODES_TO_ORDER {
            return Ok(());
        }
        let mut best = attempts[0].load;
        let measured = attempts.len();
        let mut index = 0;
        let mut work = self.order_work();
        while index < attempts.len() && !self.budget.exhausted() {
            let at = index;
            index += 1;
            let attempt = &attempts[at];
            if attempt.order != OrderSearch::Given {
                continue; // It comes from a search.
            }
            let options = self.liveness_options(false, attempt.elision)?;
            let orders = Orders::new(&attempt.schedule.graph, options)?;
            let limits = self.order_limits(attempt.schedule.order.len(), work);
            let attempt = &mut attempts[at];
            attempt.floor = Some(self.lowest(&orders, &attempt.schedule.graph));
            if at > 0 && orders.floor() >= best && attempt.load > best {
                continue;
            }
            self.tell(Stage::Order, best, orders.floor().min(best));
            let found = orders.best(limits, &|| self.budget.exhausted());
            work -= found.work.min(work);
            // The search knows a lower bound of each order. A value that is in the arena after
            // all, and not in the caller's memory, adds to that.
            let known = |load: u64| {
                let is_proven = found.is_optimal && load <= found.peak;
                if is_proven { OrderSearch::Complete } else { OrderSearch::Beam }
            };
            attempt.order = known(attempt.load);
            if found.peak < found.given {
                let schedule = attempt.schedule.reordered(found.order);
                let (other, _) = self.attempt(schedule, attempt.elision)?;
                let Attempt { fusion, floor, .. } = *attempt;
                let order = known(other.load);
                let other = Attempt { fusion, floor, order, ..other };
                best = best.min(other.load);
                // The parts that remain are tried in their turn, once.
                if other.load == best && at < measured {
                    attempts.extend(self.settled(graph, &other)?);
                }
                attempts.push(other);
            }
        }
        Ok(())
    }

    /// Reports the progress of the choice, if there is a listener.
    fn tell(&self, stage: Stage, peak: u64, lower_bound: u64) {
        if let Some(tell) = self.budget.progress {
            tell(Progress { space: SpaceId::new(0), stage, peak, lower_bound, nodes: 0 });
        }
    }

    /// Returns the work of all searches for an order together: milliseconds, a second or two,
    /// or half a minute.
    fn order_work(&self) -> usize {
        match self.options.effort {
            Effort::Fast => 4_000_000,
            Effort::Default => 160_000_000,
            Effort::Max => 3_000_000_000,
        }
    }

    /// Returns the limits of one search, if this much work is left for all. The attempts are
    /// sorted, and the first may take half of it.
    fn order_limits(&self, nodes: usize, left: usize) -> OrderLimits {
        let (sets, width) = match self.options.effort {
            Effort::Fast => (200_000, 0),
            Effort::Default => (16_000_000, 100),
            Effort::Max => (200_000_000, 1000),
        };
        OrderLimits { states: sets / nodes.max(1), width, work: left / 2 }
    }

    /// Returns the scope of the choice of an attempt, except for the floor.
    pub(super) fn search(
        &self,
        attempts: &[Attempt<'_>],
        attempt: &Attempt<'_>,
        liveness: &Liveness,
    ) -> Search {
        // Orders are compared as if no output overlapped an input.
        let overlaps = liveness.overlapped().next().is_some();
        // And as if there were one memory, in which values share all bytes that they can.
        let is_split = self.memories.is_some_and(|memories| memories.spaces().len() > 1);
        // And as if values shared bytes by all techniques.
        let shares_less = attempt.techniques != self.options.optimize;
        let order = match attempt.order {
            OrderSearch::Complete if overlaps || is_split || shares_less => OrderSearch::Beam,
            order => order,
        };
        let mut skipped = self.skipped(attempts);
        if !overlaps && self.overlaps_inputs() && self.budget.exhausted() {
            skipped = skipped.with(Technique::Overlap);
        }
        Search { order, floor: 0, skipped, estimate: None }
    }

    /// Returns the techniques of the options that were not tried: for the size of the graph,
    /// because nodes may run in any order, or because time was up.
    pub(super) fn skipped(&self, attempts: &[Attempt<'_>]) -> Techniques {
        let given = attempts.iter().find(|attempt| attempt.schedule.is_given());
        let nodes = given.map_or(0, |attempt| attempt.schedule.order.len());
        let is_ordered = attempts.iter().any(|attempt| attempt.order != OrderSearch::Given);
        let in_any_order = self.options.parallel_safe;
        let is_late = self.budget.exhausted();
        let has_groups = attempts.iter().any(|attempt| attempt.fusion.elementwise);
        let has_streams =
            attempts.iter().any(|attempt| attempt.fusion != attempt.fusion.without_streams());
        let all = [
            (Technique::Fusion, in_any_order || (is_late && !has_groups)),
            (Technique::Order, !is_ordered),
            (
                Technique::Streaming,
                in_any_order || nodes > MOST_NODES_TO_TRY || (is_late && !has_streams),
            ),
            (Technique::Overlap, self.skips_overlaps(attempts)),
        ];
        let is_skipped = |&(technique, skipped): &(Technique, bool)| {
            skipped && self.options.optimize.contains(technique)
        };
        all.into_iter().filter(is_skipped).map(|(technique, _)| technique).collect()
    }

    /// Returns whether outputs that could overlap inputs never may.
    pub(super) fn skips_overlaps(&self, attempts: &[Attempt<'_>]) -> bool {
        let is_large = |attempt: &Attempt<'_>| attempt.schedule.order.len() > MOST_NODES_TO_OVERLAP;
        if self.options.parallel_safe || attempts.iter().any(is_large) {
            return true;
        }
        let nodes = || {
            let schedules = attempts.iter().map(|attempt| &attempt.schedule);
            schedules.flat_map(|schedule| schedule.order.iter().map(move |&node| (schedule, node)))
        };
        nodes().any(|(schedule, node)| !schedule.graph.overlaps(node).is_empty())
            && !nodes().any(|(schedule, node)| self.can_overlap(&schedule.graph, node))
    }

    /// Returns the bytes that no order goes below, with outputs that overlap inputs if those
    /// may.
    fn lowest(&self, orders: &Orders, graph: &Graph) -> u64 {
        if self.overlaps_inputs() && graph.nodes().len() <= MOST_NODES_TO_OVERLAP {
            orders.floor_with_overlaps(graph)
        } else {
            orders.floor()
        }
    }

    /// Returns the bytes that no order of any of the attempts goes below.
    pub(super) fn floor(&self, attempts: &[Attempt<'_>]) -> Result<u64> {
        let mut least = u64::MAX;
        for attempt in attempts {
            let floor = if let Some(floor) = attempt.floor {
                floor
            } else {
                let options = self.sharing_as(attempt).liveness_options(false, attempt.elision)?;
                let graph = &attempt.schedule.graph;
                self.lowest(&Orders::new(graph, options)?, graph)
            };
            least = least.min(floor);
        }
        Ok(least)
    }

    /// Measures a schedule, with copies of pieces too if it has pieces.
    pub(super) fn measured<'g>(&self, schedule: Schedule<'g>) -> Result<Vec<Attempt<'g>>> {
        let (first, has_pieces) = self.attempt(schedule, true)?;
        let mut measured = vec![first];
        if has_pieces {
            measured.push(self.attempt(measured[0].schedule.clone(), false)?.0);
        }
        Ok(measured)
    }

    /// Measures a schedule, and returns whether values are pieces of others in it.
    pub(super) fn attempt<'g>(
        &self,
        schedule: Schedule<'g>,
        elision: bool,
    ) -> Result<(Attempt<'g>, bool)> {
        let options = self.liveness_options(false, elision)?;
        let liveness = Liveness::new(&schedule.graph, &schedule.order, options, &[], Vec::new())?;
        let load = total_load(&liveness.problem)?;
        let has_pieces = liveness.classes.merges().iter().any(|merge| {
            let node = schedule.graph.node(merge.node);
            let at = |position: u32| usize::try_from(position).unwrap_or(usize::MAX);
            let bytes = |value: ValueId| schedule.graph.value(value).bytes();
            let Share { input, output, rule } = merge.share;
            let sizes =
                [node.input(at(input)), node.output(at(output))].map(|value| value.map(bytes));
            rule == ShareRule::View && sizes[0] != sizes[1]
        });
        let order = OrderSearch::Given;
        let fusion = Fusion::default();
        let techniques = self.options.optimize;
        let attempt = Attempt { schedule, fusion, elision, load, floor: None, order, techniques };
        Ok((attempt, has_pieces))
    }
}
