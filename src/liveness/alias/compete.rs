//! Outputs of one node that may take over the same inputs.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use super::ClassBuilder;
use crate::base::{NodeId, Step, ValueId};

/// Nodes with more outputs choose inputs one output after the other, without exchanges.
const MOST_EXCHANGED: usize = 64;

/// Returns for each output the input to take over, such that the outputs with an input have most
/// bytes in total.
///
/// `sizes` are the output bytes; `candidates` are the inputs that each output may take over,
/// preferred inputs first. Output sets that can all have an input are the independent sets in a
/// transversal matroid (Edmonds and Fulkerson 1965), so outputs are matched greedily, the largest
/// first, each along an augmenting path.
pub(crate) fn matched(sizes: &[u64], candidates: &[Vec<ValueId>]) -> Vec<Option<ValueId>> {
    let mut outputs: Vec<usize> = (0..sizes.len()).collect();
    outputs.sort_by_key(|&output| Reverse(sizes[output]));
    let mut taken = vec![None; sizes.len()];
    let mut owners: BTreeMap<ValueId, usize> = BTreeMap::new();
    for output in outputs {
        let free = candidates[output].iter().find(|input| !owners.contains_key(input));
        if let Some(&input) = free {
            owners.insert(input, output);
            taken[output] = Some(input);
        } else if sizes.len() <= MOST_EXCHANGED {
            exchange(output, candidates, &mut owners, &mut taken);
        }
    }
    taken
}

/// Finds an input for `output`, if possible, by moving other outputs to other inputs.
fn exchange(
    output: usize,
    candidates: &[Vec<ValueId>],
    owners: &mut BTreeMap<ValueId, usize>,
    taken: &mut [Option<ValueId>],
) {
    let mut reached = BTreeMap::new();
    let mut pending = VecDeque::from([output]);
    while let Some(next) = pending.pop_front() {
        for &input in &candidates[next] {
            if reached.contains_key(&input) {
                continue;
            }
            reached.insert(input, next);
            let Some(&owner) = owners.get(&input) else {
                // Every output on the path hands its input to the previous output.
                let mut last = Some(input);
                while let Some(input) = last {
                    let to = reached[&input];
                    last = taken[to].replace(input);
                    owners.insert(input, to);
                }
                return;
            };
            pending.push_back(owner);
        }
    }
}

impl ClassBuilder<'_> {
    /// Lets the outputs of a node take over dying inputs, so that these outputs have most bytes.
    ///
    /// Of several inputs an output takes the one closest in size, then the one born last.
    pub(super) fn take_over_inputs(&mut self, step: Step, id: NodeId) {
        let node = self.graph.node(id);
        let pairs = &node.effects().in_place;
        let last_born = |this: &Self, input| Reverse(this.live(input).start());
        if pairs.windows(2).all(|pair| pair[0].output == pair[1].output) {
            for (position, _) in node.produces() {
                self.take_over(step, id, position, last_born);
            }
            return;
        }
        let (mut positions, mut sizes, mut candidates) = (Vec::new(), Vec::new(), Vec::new());
        for (position, output) in node.produces() {
            let found = self.candidates(step, id, position, last_born);
            positions.push(position);
            sizes.push(self.graph.value(output).bytes());
            candidates.push(found.into_iter().map(|(_, input)| input).collect());
        }
        let matched = matched(&sizes, &candidates);
        let mut order: Vec<usize> = (0..positions.len()).collect();
        order.sort_by_key(|&at| (matched[at].is_none(), Reverse(sizes[at])));
        for at in order {
            self.take_over_first(step, id, positions[at], matched[at], last_born);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    /// Returns the most bytes of outputs that can have an input each, by trying all choices.
    fn most(sizes: &[u64], candidates: &[Vec<ValueId>], taken: &mut BTreeSet<ValueId>) -> u64 {
        let (Some((&size, sizes)), Some((inputs, rest))) =
            (sizes.split_first(), candidates.split_first())
        else {
            return 0;
        };
        let mut best = most(sizes, rest, taken);
        for &input in inputs {
            if taken.insert(input) {
                best = best.max(size + most(sizes, rest, taken));
                taken.remove(&input);
            }
        }
        best
    }

    proptest! {
        #[test]
        fn outputs_with_an_input_have_most_bytes(
            outputs in prop::collection::vec(
                (1_u64..9, prop::collection::btree_set(0_usize..5, 0..4)), 0..6,
            ),
        ) {
            let sizes: Vec<u64> = outputs.iter().map(|&(size, _)| size).collect();
            let candidates: Vec<Vec<ValueId>> = outputs
                .iter()
                .map(|(_, inputs)| inputs.iter().copied().map(ValueId::new).collect())
                .collect();
            let matched = matched(&sizes, &candidates);
            let mut taken = BTreeSet::new();
            let mut bytes = 0;
            for (at, input) in matched.into_iter().enumerate() {
                if let Some(input) = input {
                    prop_assert!(candidates[at].contains(&input) && taken.insert(input));
                    bytes += sizes[at];
                }
            }
            prop_assert_eq!(bytes, most(&sizes, &candidates, &mut BTreeSet::new()));
        }
    }
}
