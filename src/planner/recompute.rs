//! Plans in which nodes run again, or values leave for a slow memory, so that they need fewer bytes.

use alloc::vec::Vec;

use super::Planner;
use crate::base::{Error, Execution, NodeId, Result};
use crate::graph::Graph;
use crate::pack::Budget;
use crate::plan::{Paging, Plan, Recomputed, Technique, Techniques, millionths};
use crate::recompute::{Recompute, Schedule, Strategy, retain_falling};

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
    /// Bytes of the arena, without the slow memory.
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
    /// repetitions run one node each. If there is a memory to [page to](Self::paging_to), values may
    /// also leave for it and come back, wherever that costs less; the bytes of the goal are those of
    /// the other spaces.
    ///
    /// # Errors
    ///
    /// - [`Error::RecomputeExceeded`] if no schedule was found for the bytes.
    /// - [`Error::InvalidOption`] if a strategy is to be followed and values may leave.
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
        let once = self.plan_once(graph, &search, budget)?;
        if once.arena_bytes() < best.arena_bytes() {
            best = once;
        }
        if best.arena_bytes() <= budget {
            return Ok(best);
        }
        match goal {
            Goal::Bytes(bytes) => {
                let mut found = self.within(graph, &mut search, bytes)?;
                if let Some(slow) = self.paging {
                    search = search.paging_to(graph, options, slow);
                    found = cheaper(found, self.within(graph, &mut search, bytes)?);
                }
                found.map_err(|least| Error::RecomputeExceeded {
                    budget: bytes,
                    least: least.min(best.arena_bytes()),
                    floor: search.floor(),
                })
            }
            Goal::Extra(most) => {
                best = self.fewest(graph, &mut search, most, best)?;
                match self.paging {
                    Some(slow) => {
                        search = search.paging_to(graph, options, slow);
                        self.fewest(graph, &mut search, most, best)
                    }
                    None => Ok(best),
                }
            }
            Goal::Strategy(_) if self.paging.is_some() => {
                let reason = "a strategy for recomputation copies no values".into();
                Err(Error::InvalidOption { option: "paging", reason })
            }
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
        let mut points =
            alloc::vec![CurvePoint { arena_bytes: most, extra_cost: 0, extra_bound: 0 }];
        self.add_points(graph, &mut search, &mut points)?;
        if let Some(slow) = self.paging {
            search = search.paging_to(graph, options, slow);
            self.add_points(graph, &mut search, &mut points)?;
        }
        // A point that another one beats in both figures is none.
        points.sort_by_key(|point| (point.arena_bytes, point.extra_cost));
        retain_falling(&mut points, |point| point.extra_cost);
        points.reverse();
        for point in points.iter_mut().filter(|point| point.extra_cost > 0) {
            point.extra_bound = search.bound(point.arena_bytes).min(point.extra_cost);
        }
        Ok(Curve { points, cost: search.cost(), floor: search.floor() })
    }

    /// Adds points below the first one to a curve.
    fn add_points(
        &self,
        graph: &Graph,
        search: &mut Recompute<'_>,
        points: &mut Vec<CurvePoint>,
    ) -> Result<()> {
        let Some(most) = points.first().map(|point| point.arena_bytes) else { return Ok(()) };
        let floor = search.floor();
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
        let mut last = u64::MAX;
        for bytes in found {
            let Some(schedule) = search.within(bytes) else { continue };
            let arena_bytes = fast_bytes(&self.plan_schedule(graph, search, &schedule)?);
            if arena_bytes >= last {
                continue;
            }
            last = arena_bytes;
            let (extra_cost, extra_bound) = (schedule.extra_cost, 0);
            points.push(CurvePoint { arena_bytes, extra_cost, extra_bound });
        }
        Ok(())
    }

    /// Returns the cheapest plan found within `bytes`, or the fewest bytes of a plan.
    fn within(&self, graph: &Graph, search: &mut Recompute<'_>, bytes: u64) -> Result<Found> {
        let mut limit = bytes;
        let mut least = u64::MAX;
        for attempt in 0..TIGHTENED {
            let found =
                if attempt == 0 { search.within(limit) } else { search.again_within(limit) };
            let Some(schedule) = found else { break };
            let plan = self.plan_schedule(graph, search, &schedule)?;
            let needed = fast_bytes(&plan);
            let fits = plan.fits();
            if needed <= bytes && fits.is_ok() {
                return Ok(Ok(plan));
            }
            least = least.min(needed.max(bytes.saturating_add(1)));
            // A limit above the live bytes would let the same schedule be found again.
            limit = limit.min(schedule.bytes).saturating_sub(needed.saturating_sub(bytes).max(1));
        }
        Ok(Err(least))
    }

    /// Returns the plan of the best schedule in which each node runs once. If more bytes are live than
    /// the budget has, offsets are not searched for long.
    fn plan_once(&self, graph: &Graph, search: &Recompute<'_>, budget: u64) -> Result<Plan> {
        let plain = search.plain();
        let quick = Self { budget: Budget { nodes: Some(0), ..self.budget }, ..*self };
        let quick = quick.plan_schedule(graph, search, &plain)?;
        if budget > 0 && quick.lower_bound() > budget {
            return Ok(quick);
        }
        self.plan_schedule(graph, search, &plain)
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
        let extra = u128::from(cost) * u128::from(most) / 1_000_000;
        let extra = u64::try_from(extra).unwrap_or(u64::MAX);
        let known = |search: &Recompute<'_>| search.smallest(extra).filter(allowed);
        let (mut low, mut high) = (search.floor(), fast_bytes(&plain));
        for _ in 0..12 {
            high = known(search).map_or(high, |schedule| schedule.bytes.min(high));
            if high.saturating_sub(low) <= high / 256 || self.budget.exhausted() {
                break;
            }
            let middle = low.midpoint(high);
            // Perhaps no schedule of so few bytes is cheap enough.
            let is_hopeless = millionths(search.bound(middle), cost) > most;
            if is_hopeless || !search.cheap_within(middle, extra).is_some_and(|it| allowed(&it)) {
                low = middle;
            }
        }
        let mut best = plain;
        let plain = search.plain().bytes;
        if let Some(schedule) = known(search).filter(|schedule| schedule.bytes < plain) {
            let smaller = self.plan_schedule(graph, search, &schedule)?;
            if fast_bytes(&smaller) < fast_bytes(&best) && smaller.fits().is_ok() {
                best = smaller;
            }
        }
        Ok(best)
    }

    /// Returns a plan with the schedule of another one, with scratch memory: `executions` is the graph
    /// of [`scheduled_with`](Graph::scheduled_with) with workspaces, which the runner of the steps
    /// declares. It is already checked. Its order is the schedule, or another one that needs fewer
    /// bytes with the scratch memory.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if no node of the other plan runs again and no value is copied. As
    /// [`plan_steps`](Self::plan_steps).
    pub fn plan_executions(&self, graph: &Graph, executions: &Graph, other: &Plan) -> Result<Plan> {
        let Some(mut recomputed) = other.recomputed.clone() else {
            let reason = "the plan has no schedule of its own".into();
            return Err(Error::InvalidOption { option: "plan", reason });
        };
        let steps: Vec<Vec<NodeId>> = other.order().map(|node| alloc::vec![node]).collect();
        let mut plan = self.plan_steps(executions, &steps)?;
        if executions.nodes().len() <= MOST_NODES_TO_ORDER {
            // Scratch memory is declared for nodes that run by themselves.
            let joining = [Technique::Fusion, Technique::Streaming, Technique::Recompute];
            let left_out = joining.into_iter().fold(self.left_out, Techniques::with);
            let ordered = Self { left_out, ..*self }.plan(executions)?;
            if ordered.arena_bytes() < plan.arena_bytes() {
                plan = ordered;
            }
        }
        let options = self.context(graph)?.liveness_options(false, true)?;
        let order: Vec<NodeId> = graph.order().to_vec();
        let slow = recomputed.paging.as_ref().map(Paging::to_space);
        let bytes = bytes_beside(&plan, slow.is_some());
        let bound = Recompute::bound_of(graph, options, &order, slow.as_ref(), bytes, &self.budget);
        recomputed.extra_bound = bound.min(recomputed.extra_bound);
        plan.recomputed = Some(recomputed);
        plan.check_repetitions(graph, executions)?;
        plan.check(executions)?;
        Ok(plan)
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
        let is_copy = |execution: &&Execution| !matches!(execution, Execution::Run(_));
        let copies = schedule.executions.iter().filter(is_copy).count();
        if schedule.executions.len() == graph.nodes().len() && copies == 0 {
            let order = graph.scheduled_with(&schedule.executions, None)?.order;
            return self.plan_steps(graph, &steps(&order));
        }
        let slow = self.paging.filter(|_| copies > 0);
        let scheduled = graph.scheduled_with(&schedule.executions, slow)?;
        let mut plan = self.plan_steps(&scheduled.graph, &steps(&scheduled.order))?;
        let bytes = bytes_beside(&plan, slow.is_some());
        plan.recomputed = Some(Recomputed {
            schedule: schedule.executions.clone(),
            cost: search.cost(),
            extra_cost: schedule.extra_cost,
            extra_bound: search.bound(bytes).min(schedule.extra_cost),
            floor: search.floor().min(bytes),
            paging: slow.map(Paging::of),
        });
        plan.check(graph)?;
        Ok(plan)
    }
}

/// Returns the bytes of all arenas but that of the slow memory.
fn fast_bytes(plan: &Plan) -> u64 {
    bytes_beside(plan, plan.recomputed().is_some_and(|it| it.paging.is_some()))
}

/// Returns the bytes of all arenas, without the last one if that is the slow memory.
fn bytes_beside(plan: &Plan, has_slow: bool) -> u64 {
    let count = plan.arenas().len() - usize::from(has_slow);
    plan.arenas()[..count].iter().fold(0, |sum, space| sum.saturating_add(space.arena_bytes))
}

/// A plan, or the fewest bytes of one that was found.
type Found = core::result::Result<Plan, u64>;

/// Returns the plan with less extra work, the first one if both have as much.
fn cheaper(first: Found, second: Found) -> Found {
    let extra = |plan: &Plan| plan.recomputed().map_or(0, |it| it.extra_cost);
    match (first, second) {
        (Ok(first), Ok(second)) if extra(&second) < extra(&first) => Ok(second),
        (Err(least), Err(other)) => Err(least.min(other)),
        (first, Err(_)) => first,
        (Err(_), second) => second,
        (first, Ok(_)) => first,
    }
}
