//! Plans in which nodes run again, so that they need fewer bytes.

use alloc::vec::Vec;

use super::Planner;
use crate::base::{Error, NodeId, Result};
use crate::graph::Graph;
use crate::plan::{Plan, Recomputed, millionths};
use crate::recompute::{Recompute, Schedule, Strategy};

/// Graphs with more nodes keep their order, but for simple improvements, before nodes run again.
const MOST_NODES_TO_ORDER: usize = 1_200;

/// Attempts to find a schedule whose arena, and not only its live bytes, fits.
const TIGHTENED: usize = 8;

/// Budgets of a curve.
const POINTS: u64 = 20;

/// The aim of a recomputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Goal {
    /// The least extra work with an arena of at most so many bytes.
    Bytes(u64),
    /// The fewest bytes with at most so many millionths of extra work.
    Extra(u64),
    /// The schedule of a named strategy.
    Strategy(Strategy),
}

/// One point of a curve of bytes over extra work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurvePoint {
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Extra work in units of cost.
    pub extra_cost: u64,
    /// Proven lower bound of the extra work of every schedule in so many bytes.
    pub extra_bound: u64,
}

/// Bytes of the arena over extra work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Curve {
    /// Points in descending order of bytes and ascending order of work; the first one repeats
    /// nothing.
    pub points: Vec<CurvePoint>,
    /// Cost of running each node once.
    pub cost: u64,
    /// Bytes that no schedule goes below that runs each node by itself.
    pub floor: u64,
}

impl Planner<'_> {
    /// Returns a plan in which nodes run again to meet a goal, already checked; a plan without
    /// repetitions where such a plan meets the goal.
    ///
    /// Nodes that are [pure](crate::graph::Node::is_pure) may run again. The steps of a plan with
    /// repetitions run one node each.
    ///
    /// # Errors
    ///
    /// - [`Error::RecomputeExceeded`] if no schedule was found for the bytes.
    /// - As [`plan`](Self::plan).
    pub fn recompute(&self, graph: &Graph, goal: Goal) -> Result<Plan> {
        let plain = self.keep_order(true).plan(graph)?;
        let budget = match goal {
            Goal::Bytes(bytes) => bytes,
            Goal::Extra(_) | Goal::Strategy(_) => 0,
        };
        if plain.arena_bytes() <= budget {
            return Ok(plain);
        }
        let mut orders = alloc::vec![plain.order().collect::<Vec<_>>()];
        let mut best = plain;
        if graph.nodes().len() <= MOST_NODES_TO_ORDER {
            let ordered = self.plan(graph)?;
            orders.push(ordered.order().collect());
            if ordered.arena_bytes() < best.arena_bytes() {
                best = ordered;
            }
        }
        let options = self.context(graph)?.liveness_options(false, true)?;
        let mut search = Recompute::new(graph, options, &orders, &self.budget);
        let once = self.plan_schedule(graph, &search, &search.plain())?;
        if once.arena_bytes() < best.arena_bytes() {
            best = once;
        }
        if best.arena_bytes() <= budget {
            return Ok(best);
        }
        match goal {
            Goal::Bytes(bytes) => match self.within(graph, &mut search, bytes)? {
                Ok(found) => Ok(found),
                Err(least) => Err(Error::RecomputeExceeded {
                    budget: bytes,
                    least: least.min(best.arena_bytes()),
                    floor: search.floor(),
                }),
            },
            Goal::Extra(most) => self.fewest(graph, &mut search, most, best),
            Goal::Strategy(strategy) => match search.by_strategy(strategy) {
                Some(schedule) => self.plan_schedule(graph, &search, &schedule),
                None => Ok(best),
            },
        }
    }

    /// Returns the fewest bytes over the extra work, each point a plan that was made and checked.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn recompute_curve(&self, graph: &Graph) -> Result<Curve> {
        let plain = self.keep_order(true).plan(graph)?;
        let orders = [plain.order().collect::<Vec<_>>()];
        let options = self.context(graph)?.liveness_options(false, true)?;
        let mut search = Recompute::new(graph, options, &orders, &self.budget);
        let once = self.plan_schedule(graph, &search, &search.plain())?;
        let most = plain.arena_bytes().min(once.arena_bytes());
        let floor = search.floor();
        let mut points =
            alloc::vec![CurvePoint { arena_bytes: most, extra_cost: 0, extra_bound: 0 }];
        // From the smallest budget up: a cheap schedule of a small one serves the larger ones.
        let mut found = Vec::new();
        for step in (1..POINTS).rev() {
            let bytes = u64::try_from(u128::from(most) * u128::from(step) / u128::from(POINTS));
            let bytes = bytes.unwrap_or(most);
            if bytes < floor || search.within(bytes).is_none() || self.budget.exhausted() {
                break;
            }
            found.push(bytes);
        }
        for bytes in found {
            let Some(schedule) = search.within(bytes) else { continue };
            let arena_bytes = self.plan_schedule(graph, &search, &schedule)?.arena_bytes();
            let last = points.last().map_or(u64::MAX, |point| point.arena_bytes);
            if arena_bytes >= last {
                continue;
            }
            points.push(CurvePoint {
                arena_bytes,
                extra_cost: schedule.extra_cost,
                extra_bound: search.bound(arena_bytes),
            });
        }
        // A point that another one beats in both figures is none.
        let mut least = u64::MAX;
        points.reverse();
        points.retain(|point| {
            let is_cheaper = point.extra_cost < least;
            least = least.min(point.extra_cost);
            is_cheaper
        });
        points.reverse();
        Ok(Curve { points, cost: search.cost(), floor })
    }

    /// Returns the cheapest plan found within `bytes`, or the fewest bytes of a plan.
    fn within(
        &self,
        graph: &Graph,
        search: &mut Recompute<'_>,
        bytes: u64,
    ) -> Result<core::result::Result<Plan, u64>> {
        let mut limit = bytes;
        let mut least = u64::MAX;
        for attempt in 0..TIGHTENED {
            let found =
                if attempt == 0 { search.within(limit) } else { search.again_within(limit) };
            let Some(schedule) = found else { break };
            let plan = self.plan_schedule(graph, search, &schedule)?;
            if plan.arena_bytes() <= bytes {
                return Ok(Ok(plan));
            }
            least = least.min(plan.arena_bytes());
            limit = limit.saturating_sub(plan.arena_bytes() - bytes);
        }
        Ok(Err(least))
    }

    /// Returns the plan with the fewest bytes that is found with at most `most` millionths of extra
    /// work.
    fn fewest(
        &self,
        graph: &Graph,
        search: &mut Recompute<'_>,
        most: u64,
        plain: Plan,
    ) -> Result<Plan> {
        let cost = search.cost();
        let allowed = |schedule: &Schedule| millionths(schedule.extra_cost, cost) <= most;
        let (mut low, mut high) = (search.floor(), plain.arena_bytes());
        let mut best = plain;
        for _ in 0..12 {
            if high - low <= high / 512 || self.budget.exhausted() {
                break;
            }
            let middle = low.midpoint(high);
            if millionths(search.bound(middle), cost) > most {
                low = middle; // No schedule of so few bytes is cheap enough.
                continue;
            }
            match search.within(middle).filter(|schedule| allowed(schedule)) {
                Some(schedule) => {
                    let smaller = self.plan_schedule(graph, search, &schedule)?;
                    if smaller.arena_bytes() < best.arena_bytes() {
                        best = smaller;
                    }
                    high = middle;
                }
                None => low = middle,
            }
        }
        Ok(best)
    }

    /// Returns the plan of a schedule.
    fn plan_schedule(
        &self,
        graph: &Graph,
        search: &Recompute<'_>,
        schedule: &Schedule,
    ) -> Result<Plan> {
        let steps = |order: &[NodeId]| -> Vec<Vec<NodeId>> {
            order.iter().map(|&node| alloc::vec![node]).collect()
        };
        if schedule.nodes.len() == graph.nodes().len() {
            return self.plan_steps(graph, &steps(&schedule.nodes));
        }
        let scheduled = graph.scheduled(&schedule.nodes)?;
        let mut plan = self.plan_steps(&scheduled.graph, &steps(&scheduled.order))?;
        let bound = search.bound(plan.arena_bytes());
        plan.recomputed = Some(Recomputed {
            schedule: schedule.nodes.iter().map(|&node| node.into()).collect(),
            cost: search.cost(),
            extra_cost: schedule.extra_cost,
            extra_bound: bound.min(schedule.extra_cost),
            floor: search.floor().min(plan.arena_bytes()),
        });
        plan.check(graph)?;
        Ok(plan)
    }
}
