//! Plans in fewer bytes in which nodes run again, or values leave for a slow memory.

use alloc::vec::Vec;

use super::Planner;
use super::executions::with_scratch;
use super::goal::{Curve, CurvePoint, Goal, bytes_beside, fast_bytes};
use crate::base::{Error, Execution, NodeId, Result};
use crate::graph::Graph;
use crate::plan::{Paging, Plan, Recomputed, Technique, Techniques, WorkspacePolicy};
use crate::recompute::{Recompute, Schedule, retain_falling};

/// Graphs with more nodes keep the given order, except for simple improvements, before nodes run
/// again.
const MOST_NODES_TO_ORDER: usize = 1_200;

/// Budgets per curve.
const POINTS: u64 = 20;

impl Planner<'_> {
    /// Returns a plan in which nodes run again to meet a goal, already checked; a plan without
    /// repetitions where such a plan meets the goal.
    ///
    /// Nodes that are [pure](crate::graph::Node::is_pure) may run again, and nodes with
    /// [a choice](crate::graph::Node::inner_sizes) may have less inner memory. Each step in a plan with
    /// repetitions runs one node. If there is a memory to [page to](Self::paging_to), values may
    /// also leave for that memory and come back, wherever paging costs less; the goal counts the
    /// bytes in the other spaces. With [costs](Self::costs), bytes include the scratch memory of
    /// kernels.
    ///
    /// # Errors
    ///
    /// - [`Error::RecomputeExceeded`] if no schedule was found for the bytes.
    /// - [`Error::InvalidOption`] if a strategy is to be followed and values may leave.
    /// - As [`plan`](Self::plan).
    pub fn recompute(&self, graph: &Graph, goal: Goal) -> Result<Plan> {
        let has_workspaces = self.context(graph)?.has_workspaces();
        match self.costs.filter(|_| has_workspaces) {
            Some(costs) => with_scratch(self, graph, goal, costs),
            None => Self { costs: None, ..*self }.of_values(graph, goal),
        }
    }

    /// Returns a plan in which nodes run again to meet a goal, without costs of steps.
    pub(super) fn of_values(&self, graph: &Graph, goal: Goal) -> Result<Plan> {
        let budget = match goal {
            Goal::Bytes(bytes) => bytes,
            Goal::Extra(_) | Goal::Strategy(_) => 0,
        };
        let Starts { plans, orders } = self.starts(graph, budget)?;
        let mut best = least_bytes(plans);
        if best.arena_bytes() <= budget {
            return Ok(best);
        }
        // A start with more orders may lead to a dearer schedule, so each start is tried.
        let mut met: Option<FoundPlan> = None;
        let mut floor = u64::MAX;
        for orders in &orders {
            let options = self.context(graph)?.liveness_options(false, true)?;
            let search = Recompute::new(graph, options, orders, &self.budget);
            floor = floor.min(search.floor());
            let once = self.plan_once(graph, &search, budget)?;
            if once.arena_bytes() < best.arena_bytes() {
                best = once;
            }
            if best.arena_bytes() <= budget {
                return Ok(best);
            }
            if let Goal::Bytes(bytes) = goal {
                let found = self.within_all(graph, search, bytes)?;
                met = Some(match met {
                    Some(before) => cheaper(before, found),
                    None => found,
                });
            } else {
                best = self.towards(graph, search, goal, best)?;
            }
        }
        match met {
            Some(found) => found.map_err(|least| Error::RecomputeExceeded {
                budget,
                least: least.min(best.arena_bytes()),
                floor,
            }),
            None => Ok(best),
        }
    }

    /// Returns the plans in which each node runs once, and lists of orders that a search may start
    /// from. A plan within `budget` needs no other.
    fn starts(&self, graph: &Graph, budget: u64) -> Result<Starts> {
        let plain = self.keep_order(true).plan(graph)?;
        let given: Vec<NodeId> = plain.order().collect();
        let is_enough = plain.arena_bytes() <= budget;
        let mut starts =
            Starts { plans: alloc::vec![plain], orders: alloc::vec![alloc::vec![given.clone()]] };
        if graph.nodes().len() <= MOST_NODES_TO_ORDER && !is_enough {
            let ordered = self.plan(graph)?;
            let order: Vec<NodeId> = ordered.order().collect();
            if order != given {
                starts.orders.push(alloc::vec![given, order]);
            }
            starts.plans.push(ordered);
        }
        Ok(starts)
    }

    /// Returns the cheapest plan within `bytes`, in which values may leave, too, if there is a memory
    /// to page to.
    fn within_all(
        &self,
        graph: &Graph,
        mut search: Recompute<'_>,
        bytes: u64,
    ) -> Result<FoundPlan> {
        let found = self.within(graph, &mut search, bytes)?;
        let Some(slow) = self.paging else { return Ok(found) };
        let options = self.context(graph)?.liveness_options(false, true)?;
        let mut search = search.paging_to(graph, options, slow);
        Ok(cheaper(found, self.within(graph, &mut search, bytes)?))
    }

    /// Returns the best plan for a goal that is no number of bytes; `best` if no other is better.
    fn towards(
        &self,
        graph: &Graph,
        mut search: Recompute<'_>,
        goal: Goal,
        mut best: Plan,
    ) -> Result<Plan> {
        let options = self.context(graph)?.liveness_options(false, true)?;
        match goal {
            Goal::Bytes(_) => Ok(best),
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
                Some(schedule) => {
                    let made = self.plan_schedule(graph, &search, &schedule)?;
                    with_bound(graph, &search, made)
                }
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
        let bare = Self { costs: None, ..*self }.workspace(WorkspacePolicy::None);
        bare.curve_of_values(graph)
    }

    fn curve_of_values(&self, graph: &Graph) -> Result<Curve> {
        let Starts { plans, orders } = self.starts(graph, 0)?;
        let mut best = least_bytes(plans);
        let options = self.context(graph)?.liveness_options(false, true)?;
        let mut searches: Vec<Recompute<'_>> = Vec::new();
        for orders in &orders {
            let search = Recompute::new(graph, options, orders, &self.budget);
            let once = self.plan_schedule(graph, &search, &search.plain())?;
            if once.arena_bytes() < best.arena_bytes() {
                best = once;
            }
            searches.push(search);
        }
        let arena_bytes = best.arena_bytes();
        let first = CurvePoint { arena_bytes, extra_cost: 0, extra_bound: 0, plan: best };
        let mut points = alloc::vec![first];
        for search in &mut searches {
            self.add_points(graph, search, &mut points)?;
        }
        if let Some(slow) = self.paging {
            let mut paged = Vec::new();
            for search in searches {
                let mut search = search.paging_to(graph, options, slow);
                self.add_points(graph, &mut search, &mut points)?;
                paged.push(search);
            }
            searches = paged;
        }
        // A point that another one beats in both figures is none.
        points.sort_by_key(|point| (point.arena_bytes, point.extra_cost));
        retain_falling(&mut points, |point| point.extra_cost);
        points.reverse();
        for point in points.iter_mut().filter(|point| point.extra_cost > 0) {
            let bounds = searches.iter_mut().map(|search| search.bound(point.arena_bytes));
            point.extra_bound = bounds.max().unwrap_or(0).min(point.extra_cost);
            if let Some(recomputed) = &mut point.plan.recomputed {
                recomputed.extra_bound = point.extra_bound;
            }
        }
        let floor = searches.iter().map(Recompute::floor).max().unwrap_or(0);
        Ok(Curve { points, cost: searches.first().map_or(0, Recompute::cost), floor })
    }

    /// Adds points below the first point to a curve.
    fn add_points(
        &self,
        graph: &Graph,
        search: &mut Recompute<'_>,
        points: &mut Vec<CurvePoint>,
    ) -> Result<()> {
        let Some(most) = points.first().map(|point| point.arena_bytes) else { return Ok(()) };
        let known = search.known();
        let mut last = u64::MAX;
        let mut before = usize::MAX;
        for step in (1..POINTS).rev() {
            let bytes = u64::try_from(u128::from(most) * u128::from(step) / u128::from(POINTS));
            let bytes = bytes.unwrap_or(most);
            let end = known.partition_point(|figures| figures.bytes <= bytes);
            let Some(index) = end.checked_sub(1) else { break };
            if index == before {
                continue;
            }
            before = index;
            let Some(schedule) = search.known_schedule(index, 0) else { continue };
            let plan = self.plan_schedule(graph, search, &schedule)?;
            let arena_bytes = fast_bytes(&plan);
            if arena_bytes >= last {
                continue;
            }
            plan.check(graph)?;
            last = arena_bytes;
            let (extra_cost, extra_bound) = (schedule.extra_cost, 0);
            points.push(CurvePoint { arena_bytes, extra_cost, extra_bound, plan });
        }
        Ok(())
    }

    /// Returns the cheapest plan known within `bytes`, or the fewest bytes of a plan.
    ///
    /// The schedules do not depend on `bytes`, nor does the arena of each, so more bytes never cost more
    /// work.
    fn within(&self, graph: &Graph, search: &mut Recompute<'_>, bytes: u64) -> Result<FoundPlan> {
        let known = search.known();
        let most = bytes.saturating_add(search.spared());
        let end = known.partition_point(|figures| figures.bytes <= most);
        let mut least = u64::MAX;
        for index in (0..end).rev() {
            if known[index].bytes > bytes
                && let Some(schedule) = search.known_schedule(index, 0)
            {
                let quick = Self { budget: self.budget.with_nodes(0), ..*self };
                if quick.plan_schedule(graph, search, &schedule)?.lower_bound() > bytes {
                    continue;
                }
            }
            // Copies that come back early may leave no room.
            let mut tried = None;
            for limit in [bytes, 0] {
                let schedule = search.known_schedule(index, limit);
                if schedule == tried {
                    continue;
                }
                let Some(schedule) = schedule else { continue };
                let plan = self.plan_schedule(graph, search, &schedule)?;
                let needed = fast_bytes(&plan);
                let fits = plan.fits();
                if needed <= bytes && fits.is_ok() {
                    return with_bound(graph, search, plan).map(Ok);
                }
                least = least.min(needed.max(bytes.saturating_add(1)));
                tried = Some(schedule);
            }
        }
        // The schedule with the fewest bytes, for the message.
        if end == 0
            && let Some(schedule) = search.known_schedule(0, 0)
        {
            let plan = self.plan_schedule(graph, search, &schedule)?;
            least = least.min(fast_bytes(&plan));
        }
        Ok(Err(least))
    }

    /// Returns the plan of the best schedule in which each node runs once. If more bytes are live than
    /// the budget has, offsets are not searched for long.
    fn plan_once(&self, graph: &Graph, search: &Recompute<'_>, budget: u64) -> Result<Plan> {
        let plain = search.plain();
        let quick = Self { budget: self.budget.with_nodes(0), ..*self };
        let quick = quick.plan_schedule(graph, search, &plain)?;
        if budget > 0 && quick.lower_bound() > budget {
            return Ok(quick);
        }
        self.plan_schedule(graph, search, &plain)
    }

    /// Returns the plan with the fewest bytes that is known with at most `most` millionths of extra
    /// work.
    fn fewest(
        &self,
        graph: &Graph,
        search: &mut Recompute<'_>,
        most: u64,
        plain: Plan,
    ) -> Result<Plan> {
        let extra = u128::from(search.cost()) * u128::from(most) / 1_000_000;
        let extra = u64::try_from(extra).unwrap_or(u64::MAX);
        let known = search.known();
        let start = known.partition_point(|figures| figures.extra_cost > extra);
        let mut best = plain;
        let mut is_better = false;
        // The arena of a schedule has at least the live bytes beside the caller's memory.
        for (index, figures) in known.iter().enumerate().skip(start) {
            let live = figures.bytes.saturating_sub(search.spared());
            if figures.extra_cost == 0 || live >= fast_bytes(&best) {
                break;
            }
            let Some(schedule) = search.known_schedule(index, 0) else { continue };
            let smaller = self.plan_schedule(graph, search, &schedule)?;
            if fast_bytes(&smaller) < fast_bytes(&best) && smaller.fits().is_ok() {
                best = smaller;
                is_better = true;
            }
        }
        if is_better { with_bound(graph, search, best) } else { Ok(best) }
    }

    /// Returns a checked plan with the schedule of another plan and scratch memory: `executions` is
    /// the graph of [`scheduled_with`](Graph::scheduled_with) with workspaces. The order is the
    /// schedule, or another order that needs fewer bytes with the scratch memory.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if in the other plan no node runs again and no value is copied. As
    /// [`plan_steps`](Self::plan_steps).
    pub(super) fn plan_executions(
        &self,
        graph: &Graph,
        executions: &Graph,
        other: &Plan,
    ) -> Result<Plan> {
        let Some(mut recomputed) = other.recomputed.clone() else {
            let reason = "the plan has no schedule of its own".into();
            return Err(Error::InvalidOption { option: "plan", reason });
        };
        let steps: Vec<Vec<NodeId>> = other.order().map(|node| alloc::vec![node]).collect();
        let mut plan = self.plan_steps(executions, &steps)?;
        if executions.nodes().len() <= MOST_NODES_TO_ORDER {
            // Scratch memory is declared for single nodes.
            let joining = [Technique::Fusion, Technique::Streaming, Technique::Duplicate];
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

    /// Returns a schedule's plan, without a bound on the extra work. A plan with repetitions is not
    /// yet checked.
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
        if schedule.executions.len() == graph.nodes().len()
            && copies == 0
            && schedule.inner.is_empty()
        {
            let order = graph.scheduled_with(&schedule.executions, None)?.order;
            return self.plan_steps(graph, &steps(&order));
        }
        let slow = self.paging.filter(|_| copies > 0);
        let scheduled =
            graph.with_inner(&schedule.inner)?.scheduled_with(&schedule.executions, slow)?;
        let mut plan = self.plan_steps(&scheduled.graph, &steps(&scheduled.order))?;
        let bytes = bytes_beside(&plan, slow.is_some());
        plan.recomputed = Some(Recomputed {
            schedule: schedule.executions.clone(),
            inner: schedule.inner.clone(),
            cost: search.cost(),
            extra_cost: schedule.extra_cost,
            extra_bound: 0,
            floor: search.floor().min(bytes),
            paging: slow.map(Paging::of),
        });
        Ok(plan)
    }
}

/// Returns a checked plan with the proven bound on the extra work.
fn with_bound(graph: &Graph, search: &Recompute<'_>, mut plan: Plan) -> Result<Plan> {
    if let Some(mut recomputed) = plan.recomputed.take() {
        let bytes = bytes_beside(&plan, recomputed.paging.is_some());
        recomputed.extra_bound = search.bound(bytes).min(recomputed.extra_cost);
        plan.recomputed = Some(recomputed);
        plan.check(graph)?;
    }
    Ok(plan)
}

/// The orders at which the schedule search starts.
struct Starts {
    /// Plans in which each node runs once.
    plans: Vec<Plan>,
    /// For each start: good orders of all nodes.
    orders: Vec<Vec<Vec<NodeId>>>,
}

/// Returns the plan with the fewest bytes, the first of equal plans.
fn least_bytes(plans: Vec<Plan>) -> Plan {
    let least = plans.into_iter().min_by_key(Plan::arena_bytes);
    least.expect("a start has a plan of the given order")
}

/// A plan, or the fewest bytes of any plan that was found.
type FoundPlan = core::result::Result<Plan, u64>;

/// Returns the plan with less extra work; the first plan if equal.
fn cheaper(first: FoundPlan, second: FoundPlan) -> FoundPlan {
    let extra = |plan: &Plan| plan.recomputed().map_or(0, |it| it.extra_cost);
    match (first, second) {
        (Ok(first), Ok(second)) if extra(&second) < extra(&first) => Ok(second),
        (Err(least), Err(other)) => Err(least.min(other)),
        (first, Err(_)) => first,
        (Err(_), second) => second,
        (first, Ok(_)) => first,
    }
}
