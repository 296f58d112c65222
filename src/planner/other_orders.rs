//! Other orders for attempts.

use alloc::vec::Vec;

use super::attempt::{Attempt, measured};
use super::context::{Context, MOST_NODES_TO_OVERLAP};
use super::settle::settled;
use crate::base::Result;
use crate::choose::OrderLimits;
use crate::choose::fuse::Fusible;
use crate::choose::order::Orders;
use crate::graph::Graph;
use crate::pack::Stage;
use crate::plan::{Effort, OrderSearch};

/// Graphs with more nodes are tried in depth-first order only, which costs no search.
const MOST_NODES_TO_ORDER: usize = 5_000;
/// Graphs with more nodes keep the given order.
const MOST_NODES_TO_REORDER: usize = 50_000;

/// Tries other orders for the attempts, best first, as long as one might win.
pub(super) fn reorder<'g>(
    context: &Context<'_>,
    fusible: &Fusible<'g>,
    attempts: &mut Vec<Attempt<'g>>,
) -> Result<()> {
    let nodes = fusible.graph.nodes().len();
    if nodes > MOST_NODES_TO_REORDER {
        return Ok(());
    }
    let mut best = attempts[0].load;
    let known = attempts.len();
    let mut index = 0;
    let mut work = if nodes > MOST_NODES_TO_ORDER { 0 } else { order_work(context) };
    while index < attempts.len() && !context.budget.exhausted() {
        let at = index;
        index += 1;
        let attempt = &attempts[at];
        if attempt.order != OrderSearch::Given {
            continue; // The order comes from a search.
        }
        let options = context.liveness_options(false, attempt.elision)?;
        let orders = Orders::new(&attempt.schedule.graph, options)?;
        let limits = order_limits(context, attempt.schedule.order.len(), work);
        let attempt = &mut attempts[at];
        attempt.floor = Some(lowest(context, &orders, &attempt.schedule.graph));
        if at > 0 && orders.floor() >= best && attempt.load > best {
            continue;
        }
        context.tell(Stage::Order, best, orders.floor().min(best));
        let found = orders.best(limits, &|| context.budget.exhausted());
        work -= found.work.min(work);
        // The search knows a lower bound for each order. A value that is in the arena after all,
        // and not in the caller's memory, adds to that bound.
        let scope = |load: u64| {
            let is_proven = found.is_optimal && load <= found.peak;
            if is_proven { OrderSearch::Complete } else { OrderSearch::Beam }
        };
        attempt.order = scope(attempt.load);
        if found.peak < found.given {
            let schedule = attempt.schedule.reordered(found.order);
            let other = measured(context, schedule, attempt.elision)?;
            let Attempt { fusion, floor, .. } = *attempt;
            let order = scope(other.load);
            let other = Attempt { fusion, floor, order, ..other };
            best = best.min(other.load);
            // The remaining parts have a turn later, once.
            if other.load == best && at < known {
                attempts.extend(settled(context, fusible, &other)?);
            }
            attempts.push(other);
        }
    }
    Ok(())
}

/// Returns the work of all searches for an order together: milliseconds, a second or two,
/// or half a minute.
fn order_work(context: &Context<'_>) -> usize {
    match context.options.effort {
        Effort::Fast => 4_000_000,
        Effort::Default => 160_000_000,
        Effort::Max => 3_000_000_000,
    }
}

/// Returns the limits of one search, if `left` work remains for all searches. The attempts are
/// sorted, and the first attempt may take half.
fn order_limits(context: &Context<'_>, nodes: usize, left: usize) -> OrderLimits {
    let (sets, width) = match context.options.effort {
        Effort::Fast => (200_000, 0),
        Effort::Default => (16_000_000, 100),
        Effort::Max => (200_000_000, 1000),
    };
    OrderLimits { states: sets / nodes.max(1), width, work: left / 2 }
}

/// Returns a lower bound of the bytes in every order, with outputs that overlap inputs if
/// permitted.
fn lowest(context: &Context<'_>, orders: &Orders, graph: &Graph) -> u64 {
    if context.overlaps_inputs() && graph.nodes().len() <= MOST_NODES_TO_OVERLAP {
        orders.floor_with_overlaps(graph)
    } else {
        orders.floor()
    }
}

/// Returns a lower bound of the bytes in every order of every attempt.
pub(super) fn floor(context: &Context<'_>, attempts: &[Attempt<'_>]) -> Result<u64> {
    let mut least = u64::MAX;
    for attempt in attempts {
        let floor = if let Some(floor) = attempt.floor {
            floor
        } else {
            let options = attempt.context(context).liveness_options(false, attempt.elision)?;
            let graph = &attempt.schedule.graph;
            lowest(context, &Orders::new(graph, options)?, graph)
        };
        least = least.min(floor);
    }
    Ok(least)
}
