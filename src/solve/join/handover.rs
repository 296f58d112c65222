//! Guesses whose room is taken over by whom when some items die and others are born.

/// Items on the larger side of a handover at most.
const MOST_PARTS: usize = 4;
/// Steps of the search for handovers at one moment.
const STEPS: usize = 4096;

/// An item that dies or is born at some moment: its size and its number.
pub(super) type Side = (u64, usize);

/// One item that takes over the room of others, or the other way around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handover {
    pub(super) dying: Vec<usize>,
    pub(super) born: Vec<usize>,
}

/// Returns the handovers at a moment that are the only ones their items can be in.
///
/// One item on one side is as large as a few on the other. Sizes that have nothing to do
/// with each other hardly ever add up like that, unless very many do, so a sum that meets
/// just one size is most likely no chance.
pub(super) fn unique(dying: &mut [Side], born: &mut [Side]) -> Vec<Handover> {
    for side in [&mut *dying, &mut *born] {
        side.sort_unstable_by(|a, b| b.cmp(a));
    }
    let mut steps = STEPS;
    let mut found = Vec::new();
    for &(size, one) in &*dying {
        sums(born, size, 1, &mut steps, &mut |many| {
            found.push(Handover { dying: vec![one], born: numbers(many) });
        });
    }
    for &(size, one) in &*born {
        // One that takes the room of one was found above.
        sums(dying, size, 2, &mut steps, &mut |many| {
            found.push(Handover { dying: numbers(many), born: vec![one] });
        });
    }
    if steps == 0 {
        return Vec::new(); // very many do
    }
    let mut taken: Vec<usize> = found.iter().flat_map(Handover::items).collect();
    taken.sort_unstable();
    let is_single = |item: usize| {
        let first = taken.partition_point(|&other| other < item);
        taken.get(first + 1) != Some(&item)
    };
    found.retain(|handover| handover.items().all(is_single));
    found
}

impl Handover {
    fn items(&self) -> impl Iterator<Item = usize> {
        self.dying.iter().chain(&self.born).copied()
    }
}

fn numbers(sides: &[Side]) -> Vec<usize> {
    sides.iter().map(|&(_, number)| number).collect()
}

/// Calls `found` with all choices of `least` to [`MOST_PARTS`] of `parts`, in descending order,
/// that are `size` together, unless that takes more than `steps`.
fn sums(
    parts: &[Side],
    size: u64,
    least: usize,
    steps: &mut usize,
    found: &mut impl FnMut(&[Side]),
) {
    let mut chosen = Vec::with_capacity(MOST_PARTS);
    // Where the next part is looked for, for each one chosen and for one more.
    let mut from = vec![0];
    let mut left = size;
    while let Some(next) = from.last_mut() {
        let more = u64::try_from(MOST_PARTS - chosen.len()).unwrap_or(0);
        let part = parts.get(*next).filter(|part| more > 0 && part.0.saturating_mul(more) >= left);
        let Some(&part) = part.filter(|_| *steps > 0) else {
            from.pop();
            left += chosen.pop().map_or(0, |(size, _): Side| size);
            continue;
        };
        *next += 1;
        *steps -= 1;
        if part.0 > left {
            continue;
        }
        let behind = *next;
        chosen.push(part);
        left -= part.0;
        if left == 0 {
            if chosen.len() >= least {
                found(&chosen);
            }
            left += part.0;
            chosen.pop();
        } else {
            from.push(behind);
        }
    }
}
