//! Sets aside what fits wherever the rest lands.

use super::arith::{index, number};
use super::memory::{filled, with_capacity};
use super::model::Model;
use super::occupancy::Occupancy;
use crate::error::Result;

/// Items divided into those that matter and those that can wait.
#[derive(Debug)]
pub(super) struct Peeled {
    /// Items that must be packed first, in ascending order.
    pub(super) core: Vec<u32>,
    /// The others, in the order in which they can be put back.
    pub(super) rest: Vec<u32>,
}

/// Sets aside every item that can be put back below byte `target` however its
/// neighbors are placed, until none is left that can.
///
/// An item of size *b* may start at any of the multiples of its alignment up to its
/// ceiling. A neighbor of size *s* makes fewer than *s* + *b* starts impossible. If
/// all neighbors together leave a start, the item can be put back last. What is set
/// aside no longer stands in the way of others, so this goes on in rounds; putting
/// back goes in the opposite order. Hence the core fits below `target` if and only
/// if everything does: nothing is lost.
///
/// The neighbors' sizes need no list of pairs: those that meet `l..r` are those born
/// before `r` less those dead at `l`. A round takes `O(n + sections)`.
pub(super) fn peel(model: &Model, target: u64) -> Result<Peeled> {
    let sections = model.loads.len();
    let mut core = with_capacity(model.items.len(), "buffers")?;
    core.extend(0..number(model.items.len()));
    let mut rest = with_capacity(model.items.len(), "buffers")?;
    // Number and total size of the items born before, and dead at, each section.
    let mut born = filled((0_u128, 0_u128), sections + 1, "sections")?;
    let mut dead = filled((0_u128, 0_u128), sections + 1, "sections")?;
    loop {
        born.fill((0, 0));
        dead.fill((0, 0));
        for &item in &core {
            let it = &model.items[index(item)];
            let size = u128::from(it.size);
            let birth = &mut born[index(it.span.start) + 1];
            *birth = (birth.0 + 1, birth.1 + size);
            let death = &mut dead[index(it.span.end)];
            *death = (death.0 + 1, death.1 + size);
        }
        for section in 0..sections {
            for sums in [&mut born, &mut dead] {
                let before = sums[section];
                let now = &mut sums[section + 1];
                *now = (now.0 + before.0, now.1 + before.1);
            }
        }
        let before = rest.len();
        core.retain(|&item| {
            let it = &model.items[index(item)];
            let Some(ceiling) = model.ceiling(index(item), target) else { return true };
            if it.pin.is_some() {
                return true;
            }
            let size = u128::from(it.size);
            let (count, total) = born[index(it.span.end)];
            let (gone, gone_total) = dead[index(it.span.start)];
            let (count, total) = (count - gone - 1, total - gone_total - size);
            // A neighbor of size s blocks the starts of an open interval of s + b - 1
            // grains, in which there are at most (s + b - 1 + mask) / (mask + 1).
            let mask = u128::from(it.mask);
            let blocked = total + count * (size + mask - 1);
            let starts = u128::from(ceiling) + mask + 1;
            let waits = blocked < starts;
            if waits {
                rest.push(item);
            }
            !waits
        });
        if rest.len() == before {
            rest.reverse();
            return Ok(Peeled { core, rest });
        }
    }
}

/// Returns offsets of all items: those of the packed core, and the rest around it.
pub(super) fn put_back(
    model: &Model,
    peeled: &Peeled,
    core_offsets: &[u64],
    space: &mut Occupancy,
) -> Result<Vec<u64>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    space.clear();
    for (&item, &offset) in peeled.core.iter().zip(core_offsets) {
        space.insert(model, index(item), offset);
        offsets[index(item)] = offset;
    }
    for &item in &peeled.rest {
        let item = index(item);
        offsets[item] = space.first_fit(model, &model.items[item], 0);
        space.insert(model, item, offsets[item]);
    }
    Ok(offsets)
}
