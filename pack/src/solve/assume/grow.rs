//! Grown sizes: items grow a little, so that cuts with nearly equal sums become tight.
//!
//! A packing of grown items is also a packing of the items. Methods that join and chain items at
//! tight cuts then work for sizes that do not add up exactly.
//!
//! # References
//!
//! The least growth is a transshipment problem: cuts are nodes, and each item is an edge from its
//! birth cut to its death cut. Successive shortest paths with potentials solve it (Edmonds and
//! Karp, "Theoretical improvements in algorithmic efficiency for network flow problems", Journal of
//! the ACM 19, 1972).

use alloc::collections::BinaryHeap;
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use crate::base::{Error, Result};
use crate::solve::model::arith::{index, number};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::{Item, Model};
use crate::solve::tuning;

/// Cuts that become tight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NearCuts {
    /// Two sums are near if they differ by at most the larger one divided by this number.
    pub(crate) tolerance: u64,
    /// Whether a cut is divided into parts of near sums, if there are any.
    pub(crate) parts: bool,
}

/// Returns the model of grown items, in the order of the items of `model`; nothing if no cut becomes
/// tight, or if the search for the sizes takes too long.
///
/// At a near cut, the sums of the dying and of the born items become equal. The sum of all growths,
/// each times the sections of its item, is the least.
pub(crate) fn grown(model: &Model, near: NearCuts, clock: &Clock<'_>) -> Result<Option<Model>> {
    let mut network = Network::new(model, near)?;
    let is_balanced = network.needs.iter().all(|&need| need == 0);
    // Without a cut with several parts, the network equals the network of whole cuts.
    if is_balanced || near.parts && !network.has_parts || !network.balance(clock) {
        return Ok(None);
    }
    let solids = model.items.iter().zip(&network.growths);
    let solids = solids.map(|(item, growth)| (item.span.clone(), item.size + growth));
    let mut grown = match model.of_solids(solids) {
        Ok(grown) => grown,
        Err(Error::SizeOverflow { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let loads = grown.loads.iter().map(|load| load.grains * grown.grain);
    grown.bound = loads.fold(grown.bound, u64::max);
    Ok(Some(grown))
}

impl NearCuts {
    /// Appends a moment's nodes: a node per part, or a node for all items, if the sums are near.
    fn divide(self, items: &[Item], mut cut: Sides, nodes: &mut Vec<Sides>) {
        if self.parts && cut.dying.len() > 1 && cut.born.len() > 1 {
            while let Some(part) = self.nearest_part(items, &cut) {
                cut.dying.retain(|item| !part.dying.contains(item));
                cut.born.retain(|item| !part.born.contains(item));
                nodes.push(part);
            }
        }
        let sums = [&cut.dying, &cut.born].map(|side| sum(items, side));
        if sums[0] > 0 && sums[1] > 0 && self.are_near(sums[0], sums[1]) {
            nodes.push(cut);
        }
    }

    fn are_near(self, one: u64, other: u64) -> bool {
        one.abs_diff(other) <= one.max(other) / self.tolerance.max(1)
    }

    /// Returns the part whose sums differ least relative to their size: one item on a side, and up
    /// to three items on the other.
    fn nearest_part(self, items: &[Item], cut: &Sides) -> Option<Sides> {
        let mut best: Option<(u64, Sides)> = None;
        let mut offer = |one: u32, others: &[u32], is_born: bool| {
            let (size, all) = (items[index(one)].size, sum(items, others));
            let difference = size.abs_diff(all).saturating_mul(PARTS_PER_SIZE) / size.max(1);
            let is_better = best.as_ref().is_none_or(|(least, _)| difference < *least);
            if self.are_near(size, all) && is_better {
                let (one, others) = (vec![one], others.to_vec());
                let (dying, born) = if is_born { (others, one) } else { (one, others) };
                best = Some((difference, Sides { dying, born }));
            }
        };
        for (ones, many, is_born) in [(&cut.dying, &cut.born, false), (&cut.born, &cut.dying, true)]
        {
            if ones.len() * many.len() > MOST_PAIRS {
                continue;
            }
            for &one in ones {
                for (at, &first) in many.iter().enumerate() {
                    offer(one, &[first], is_born);
                    for (after, &second) in many.iter().enumerate().skip(at + 1) {
                        offer(one, &[first, second], is_born);
                        for &third in &many[after + 1..] {
                            offer(one, &[first, second, third], is_born);
                        }
                    }
                }
            }
        }
        best.map(|(_, part)| part)
    }
}

/// Resolution of the difference between two sums.
const PARTS_PER_SIZE: u64 = 1 << 20;
/// Most pairs of a dying and a born item for dividing a cut.
const MOST_PAIRS: usize = 144;

/// Returns the total size of some items.
fn sum(items: &[Item], side: &[u32]) -> u64 {
    side.iter().map(|&item| items[index(item)].size).sum()
}

/// An item on a path, and whether the path shrinks the item.
#[derive(Clone, Copy, Debug, Default)]
struct PathEdge {
    item: u32,
    shrinks: bool,
}

/// The direction of a shortest path search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathDirection {
    /// From a cut at which too much dies.
    Forward,
    /// From a cut at which too much is born, along edges in reverse.
    Backward,
}

/// A node's state in a search.
#[derive(Clone, Copy, Debug)]
struct Reached {
    distance: i64,
    /// The edge from the node before.
    edge: PathEdge,
    /// Whether no shorter path will be found.
    is_settled: bool,
}

/// A shortest path between two nodes, without the start.
#[derive(Debug)]
struct Path {
    end: usize,
    edges: Vec<PathEdge>,
}

/// The items that die at a node, and the items born there.
#[derive(Clone, Debug, Default)]
struct Sides {
    dying: Vec<u32>,
    born: Vec<u32>,
}

/// Cuts, and the items between them.
///
/// The cuts to be made tight, or their parts, are nodes. All other births and deaths are at a
/// single node, the *ground*, which takes and gives any amount.
#[derive(Debug)]
struct Network<'m> {
    items: &'m [Item],
    /// By item: the nodes of birth and death.
    births: Vec<u32>,
    deaths: Vec<u32>,
    /// By node; empty at the ground, the last node.
    sides: Vec<Sides>,
    /// By node: the dying grains minus the born grains; 0 at the ground.
    needs: Vec<i64>,
    /// By item, in grains.
    growths: Vec<u64>,
    /// By node; each edge's length minus the potential difference is not negative.
    potentials: Vec<i64>,
    /// By node; none outside a search.
    reached: Vec<Option<Reached>>,
    /// Whether some moment has several nodes.
    has_parts: bool,
}

impl<'m> Network<'m> {
    fn new(model: &'m Model, near: NearCuts) -> Result<Self> {
        let moments = model.loads.len() + 1;
        let mut at: Vec<Sides> = filled(Sides::default(), moments, "cuts")?;
        for (item, it) in model.items.iter().enumerate() {
            at[index(it.span.start)].born.push(number(item));
            at[index(it.span.end)].dying.push(number(item));
        }
        let mut sides = with_capacity(moments, "cuts")?;
        let mut has_parts = false;
        for cut in at {
            let before = sides.len();
            near.divide(&model.items, cut, &mut sides);
            has_parts |= sides.len() > before + 1;
        }
        let ground = number(sides.len());
        sides.push(Sides::default());
        let mut network = Self {
            items: &model.items,
            births: filled(ground, model.items.len(), "items at cuts")?,
            deaths: filled(ground, model.items.len(), "items at cuts")?,
            needs: filled(0, sides.len(), "cuts")?,
            growths: filled(0, model.items.len(), "items at cuts")?,
            potentials: filled(0, sides.len(), "cuts")?,
            reached: filled(None, sides.len(), "cuts")?,
            sides,
            has_parts,
        };
        for (node, sides) in network.sides.iter().enumerate() {
            for &item in &sides.born {
                network.births[index(item)] = number(node);
            }
            for &item in &sides.dying {
                network.deaths[index(item)] = number(node);
            }
            let sum = |side: &[u32]| sum(&model.items, side).cast_signed();
            network.needs[node] = sum(&sides.dying) - sum(&sides.born);
        }
        Ok(network)
    }

    /// Returns the node that takes and gives any amount.
    fn ground(&self) -> usize {
        self.sides.len() - 1
    }

    /// Makes the cuts of all nodes tight; false if this takes too long.
    fn balance(&mut self, clock: &Clock<'_>) -> bool {
        let most = tuning::assume::GROWTH_EFFORT;
        let before = clock.effort();
        for direction in [PathDirection::Forward, PathDirection::Backward] {
            for start in 0..self.ground() {
                while match direction {
                    PathDirection::Forward => self.needs[start] > 0,
                    PathDirection::Backward => self.needs[start] < 0,
                } {
                    if clock.is_up() || clock.effort() - before > most {
                        return false;
                    }
                    let Some(path) = self.shortest(start, direction, clock) else {
                        return false;
                    };
                    self.push(start, &path, direction);
                }
            }
        }
        true
    }

    /// Returns the shortest path to the ground, or to a node that needs the opposite.
    fn shortest(
        &mut self,
        start: usize,
        direction: PathDirection,
        clock: &Clock<'_>,
    ) -> Option<Path> {
        let mut open = BinaryHeap::from([Reverse((0, start))]);
        let mut touched = vec![start];
        let first = Reached { distance: 0, edge: PathEdge::default(), is_settled: false };
        self.reached[start] = Some(first);
        let mut end = None;
        let mut known = core::mem::take(&mut self.reached);
        while let Some(Reverse((distance, node))) = open.pop() {
            match &mut known[node] {
                Some(reached) if !reached.is_settled => reached.is_settled = true,
                _ => continue,
            }
            if self.is_end(node, direction) {
                end = Some((node, distance));
                break;
            }
            let mut edges = 0;
            self.each_edge(node, direction, |next, length, edge| {
                edges += 1;
                let distance = distance + length;
                if known[next].is_none_or(|reached| distance < reached.distance) {
                    touched.push(next);
                    known[next] = Some(Reached { distance, edge, is_settled: false });
                    open.push(Reverse((distance, next)));
                }
            });
            clock.spend(edges);
        }
        self.reached = known;
        let path = end.map(|(end, distance)| {
            self.raise_potentials(&touched, distance, direction);
            Path { end, edges: self.followed(start, end, direction) }
        });
        for node in touched {
            self.reached[node] = None;
        }
        path
    }

    /// Returns whether a search ends at a node.
    fn is_end(&self, node: usize, direction: PathDirection) -> bool {
        let is_ground = node == self.ground();
        is_ground
            || match direction {
                PathDirection::Forward => self.needs[node] < 0,
                PathDirection::Backward => self.needs[node] > 0,
            }
    }

    /// Calls `visit` with a node's neighbors, the edge lengths minus potentials, and the edges.
    fn each_edge(
        &self,
        node: usize,
        direction: PathDirection,
        mut visit: impl FnMut(usize, i64, PathEdge),
    ) {
        let Sides { dying, born } = &self.sides[node];
        let (grown, shrunk) = match direction {
            PathDirection::Forward => (born, dying),
            PathDirection::Backward => (dying, born),
        };
        let mut each = |edge: PathEdge| {
            let next = self.far_end(edge, direction);
            let length = i64::from(self.items[index(edge.item)].length());
            let length = if edge.shrinks { -length } else { length };
            let difference = self.potentials[node] - self.potentials[next];
            let difference =
                if direction == PathDirection::Forward { difference } else { -difference };
            visit(next, length + difference, edge);
        };
        for &item in grown {
            each(PathEdge { item, shrinks: false });
        }
        for &item in shrunk.iter().filter(|&&item| self.growths[index(item)] > 0) {
            each(PathEdge { item, shrinks: true });
        }
    }

    /// Returns the node at which an edge ends that a search follows.
    fn far_end(&self, edge: PathEdge, direction: PathDirection) -> usize {
        let is_later = (direction == PathDirection::Forward) != edge.shrinks;
        index(if is_later { &self.deaths } else { &self.births }[index(edge.item)])
    }

    /// Returns the node at which an edge begins that a search follows.
    fn near_end(&self, edge: PathEdge, direction: PathDirection) -> usize {
        self.far_end(PathEdge { shrinks: !edge.shrinks, ..edge }, direction)
    }

    /// Changes potentials so that the shortest path's edges have length 0, and no edge is negative.
    fn raise_potentials(&mut self, touched: &[usize], distance: i64, direction: PathDirection) {
        for &node in touched {
            let Some(reached) = &mut self.reached[node] else { continue };
            if !core::mem::take(&mut reached.is_settled) {
                continue; // The node is far, or was touched before.
            }
            let nearer = distance - reached.distance;
            self.potentials[node] +=
                if direction == PathDirection::Forward { -nearer } else { nearer };
        }
    }

    /// Returns the edges from a search's start to its end.
    fn followed(&self, start: usize, end: usize, direction: PathDirection) -> Vec<PathEdge> {
        let mut edges = Vec::new();
        let mut node = end;
        while node != start
            && let Some(reached) = self.reached[node]
        {
            edges.push(reached.edge);
            node = self.near_end(reached.edge, direction);
        }
        edges
    }

    /// Grows and shrinks a path's items as far as the needs of the ends go.
    fn push(&mut self, start: usize, path: &Path, direction: PathDirection) {
        let mut amount = self.needs[start].unsigned_abs();
        if path.end != self.ground() {
            amount = amount.min(self.needs[path.end].unsigned_abs());
        }
        for edge in path.edges.iter().filter(|edge| edge.shrinks) {
            amount = amount.min(self.growths[index(edge.item)]);
        }
        for edge in &path.edges {
            let growth = &mut self.growths[index(edge.item)];
            *growth = if edge.shrinks { *growth - amount } else { *growth + amount };
        }
        let change = match direction {
            PathDirection::Forward => -amount.cast_signed(),
            PathDirection::Backward => amount.cast_signed(),
        };
        self.needs[start] += change;
        if path.end != self.ground() {
            self.needs[path.end] -= change;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::base::LiveRange;
    use crate::problem::Buffer;
    use crate::solve::budget::Budget;
    use crate::solve::model::random::Random;
    use crate::solve::testing::model_of;

    fn model(rows: &[(u32, u32, u64)]) -> Model {
        let buffer = |&(start, end, size)| Buffer::new(size, LiveRange::new(start, end).unwrap());
        model_of(rows.iter().map(buffer).collect())
    }

    fn sizes(rows: &[(u32, u32, u64)], tolerance: u64) -> Option<Vec<u64>> {
        let (budget, model) = (Budget::default(), model(rows));
        let near = NearCuts { tolerance, parts: false };
        let grown = grown(&model, near, &Clock::new(&budget)).unwrap()?;
        Some(grown.items.iter().map(|item| item.size * grown.grain).collect())
    }

    #[test]
    fn the_smaller_side_of_a_cut_grows() {
        assert_eq!(sizes(&[(0, 2, 101), (2, 4, 99)], 32), Some(vec![101, 101]));
        assert_eq!(sizes(&[(0, 2, 99), (2, 4, 60), (2, 4, 41)], 32), Some(vec![101, 41, 60]));
        assert_eq!(sizes(&[(0, 2, 100), (2, 4, 100)], 32), None, "it is tight");
        assert_eq!(sizes(&[(0, 2, 100), (2, 4, 90)], 32), None, "it is not near");
        assert_eq!(sizes(&[(0, 2, 100), (2, 4, 90)], 8), Some(vec![100, 100]));
    }

    #[test]
    fn parts_of_a_cut_grow_on_their_own() {
        // 100 gives way to 98, and 60 to 30 and 31. As a whole, the cut needs 1 more grain.
        let model = model(&[(0, 2, 100), (0, 2, 60), (2, 4, 98), (2, 4, 30), (2, 4, 31)]);
        let budget = Budget::default();
        let near = NearCuts { tolerance: 16, parts: true };
        let grown = grown(&model, near, &Clock::new(&budget)).unwrap().unwrap();
        let sizes: Vec<_> = grown.items.iter().map(|item| item.size).collect();
        let before: u64 = sizes[..2].iter().sum();
        assert_eq!(before, sizes[2..].iter().sum::<u64>());
        assert!(sizes.contains(&61) && sizes.iter().filter(|&&size| size == 100).count() == 2);
    }

    #[test]
    fn the_shortest_items_grow() {
        // At 2, 7 grains are missing: the born item that dies soon grows.
        let rows = [(0, 2, 107), (2, 3, 50), (2, 9, 50), (3, 4, 20), (4, 9, 33)];
        assert_eq!(sizes(&rows, 8), Some(vec![107, 57, 50, 20, 33]));
    }

    #[test]
    fn growth_is_the_least_and_makes_all_near_cuts_tight() {
        let (budget, mut random) = (Budget::default(), Random::new(11));
        let mut found = 0;
        for _ in 0..2_000 {
            let rows: Vec<_> = (0..2 + random.below(5))
                .map(|_| {
                    let start = number(random.below(4));
                    let end = start + 1 + number(random.below(3));
                    (start, end, 20 + u64::from(number(random.below(5))))
                })
                .collect();
            let model = model(&rows);
            let tolerance = 4;
            let near = NearCuts { tolerance, parts: false };
            let Some(grown) = grown(&model, near, &Clock::new(&budget)).unwrap() else {
                continue;
            };
            found += 1;
            let growths: Vec<u64> =
                model.items.iter().zip(&grown.items).map(|(a, b)| b.size - a.size).collect();
            let cuts = near_cuts(&model, tolerance);
            assert!(is_tight(&model, &cuts, &growths), "{rows:?}");
            let cost = |growths: &[u64]| -> u64 {
                let items = model.items.iter().zip(growths);
                items.map(|(item, growth)| u64::from(item.length()) * growth).sum()
            };
            // No other growth with at most as many grains per item is cheaper.
            let most = growths.iter().copied().max().unwrap_or(0);
            let least = cost(&growths);
            each_growth(model.items.len(), most, &mut |other| {
                assert!(cost(other) >= least || !is_tight(&model, &cuts, other), "{rows:?}");
            });
        }
        assert!(found > 200, "{found}");
    }

    fn near_cuts(model: &Model, tolerance: u64) -> Vec<u32> {
        let sums = |moment| {
            let sum = |is: fn(&Item) -> u32| -> u64 {
                model.items.iter().filter(|it| is(it) == moment).map(|it| it.size).sum()
            };
            (sum(|it| it.span.end), sum(|it| it.span.start))
        };
        (0..number(model.loads.len()))
            .filter(|&moment| {
                let (dies, born) = sums(moment);
                let near = dies.abs_diff(born) <= dies.max(born) / tolerance;
                dies > 0 && born > 0 && near
            })
            .collect()
    }

    fn is_tight(model: &Model, cuts: &[u32], growths: &[u64]) -> bool {
        cuts.iter().all(|&moment| {
            let sum = |is: fn(&Item) -> u32| -> u64 {
                let items = model.items.iter().zip(growths);
                items.filter(|(it, _)| is(it) == moment).map(|(it, more)| it.size + more).sum()
            };
            sum(|it| it.span.end) == sum(|it| it.span.start)
        })
    }

    fn each_growth(count: usize, most: u64, visit: &mut impl FnMut(&[u64])) {
        let mut growths = vec![0; count];
        // At most 4^6 growths.
        let most = most.min(3);
        loop {
            visit(&growths);
            let Some(at) = growths.iter().position(|&growth| growth < most) else { return };
            growths[at] += 1;
            growths[..at].fill(0);
        }
    }
}
