//! Bounds: the least extra work of any schedule within so many bytes.

use alloc::vec::Vec;

use super::separator::{Separator, cost_of, price_of};
use super::sequence_model::SequenceModel;
use crate::pack::Budget;

/// Prices that are tried for each separator.
const PRICES: usize = 14;

/// Returns a proven lower bound of the extra work over all schedules with at most `bytes` live.
///
/// The bound is the Lagrangian dual of the choice at each separator: at any price per byte, the
/// cheapest choice less the price of all bytes that may be retained. The dual is concave in the
/// price, so a section search finds the maximum; the dual at any price is a bound.
pub(super) fn extra_bound(
    model: &SequenceModel,
    separators: &[Separator],
    bytes: u64,
    limits: &Budget<'_>,
) -> u64 {
    let most = bytes.saturating_sub(model.resident);
    let mut best = 0;
    for separator in separators.iter().filter(|separator| separator.bytes > most) {
        if limits.exhausted() {
            break;
        }
        let (missing, room) = (separator.bytes - most, most.saturating_sub(separator.written));
        let dual = |price: u64| {
            let retained = cost_of(room, price).saturating_add(1);
            separator.choose(model, price).total.saturating_sub(retained)
        };
        // The price at which the missing bytes alone cost as much as the whole graph is enough.
        let highest = price_of(model.cost.max(1), missing);
        let mut known: Vec<(u64, u64)> = Vec::new();
        let steps = 10;
        for step in 0..=steps {
            let price = (highest >> (steps - step)).max(1);
            if known.last().is_none_or(|last| last.0 != price) {
                known.push((price, dual(price)));
            }
        }
        for _ in 0..PRICES - steps {
            let top = (0..known.len()).max_by_key(|&at| (known[at].1, core::cmp::Reverse(at)));
            let Some(top) = top else { break };
            let low = if top > 0 { known[top - 1].0 } else { known[top].0 / 2 };
            let high = known.get(top + 1).map_or(known[top].0, |next| next.0);
            let sides = [low.midpoint(known[top].0), known[top].0.midpoint(high)];
            for price in sides.into_iter().filter(|&price| price > 0) {
                if let Err(position) = known.binary_search_by_key(&price, |it| it.0) {
                    known.insert(position, (price, dual(price)));
                }
            }
        }
        let most = known.into_iter().map(|(_, bound)| bound).max().unwrap_or(0);
        best = best.max(most);
    }
    best
}
