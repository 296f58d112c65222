//! The largest load that each item meets.

use alloc::vec::Vec;

use super::Model;
use super::arith::index;
use super::memory::{filled, with_capacity};
use crate::base::Result;

/// Returns, for each item, the largest load among its sections, in grains.
pub(crate) fn most_loaded(model: &Model) -> Result<Vec<u64>> {
    // A tree of maxima: node k has the maximum of nodes 2k and 2k + 1, and the sections are the
    // leaves.
    let leaves = model.loads.len();
    let mut most = filled(0, 2 * leaves, "loads")?;
    for (section, load) in model.loads.iter().enumerate() {
        most[leaves + section] = load.grains;
    }
    for node in (1..leaves).rev() {
        most[node] = most[2 * node].max(most[2 * node + 1]);
    }
    let mut met = with_capacity(model.items.len(), "loads")?;
    met.extend(model.items.iter().map(|item| {
        let (mut left, mut right) =
            (index(item.span.start) + leaves, index(item.span.end) + leaves);
        let mut load = 0_u64;
        while left < right {
            if left % 2 == 1 {
                load = load.max(most[left]);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                load = load.max(most[right]);
            }
            (left, right) = (left / 2, right / 2);
        }
        load
    }));
    Ok(met)
}
