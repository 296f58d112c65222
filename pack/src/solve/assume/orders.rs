//! Orders of items in which given sets are neighbors: a PQ-tree.
//!
//! The leaves are items. The children of a *P-node* may be in any order, the children of a *Q-node*
//! in one order or its reverse. So a tree represents all orders of its leaves in which the sets of
//! leaves so far were neighbors.
//!
//! # References
//!
//! Booth and Lueker, "Testing for the consecutive ones property, interval graphs, and graph
//! planarity using PQ-tree algorithms", Journal of Computer and System Sciences 13, 1976.

use alloc::vec::Vec;

use crate::base::Result;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::filled;

/// A node's position.
type Place = u32;
/// No node: the root's parent.
const NONE: Place = Place::MAX;

/// All permitted orders of some items.
#[derive(Debug)]
pub(super) struct Orders {
    /// Present and former nodes of the tree.
    nodes: Vec<OrderNode>,
    root: Place,
    /// By item: the leaf.
    leaves: Vec<Place>,
    /// The current replacement's number, for the node counts.
    replacement: u32,
}

/// A tree node.
#[derive(Clone, Debug)]
struct OrderNode {
    kind: NodeKind,
    parent: Place,
    children: Vec<Place>,
    /// Leaves below the node, or 1 for a leaf.
    leaves: usize,
    /// Replaced leaves below the node, in the replacement with that number.
    replaced: (u32, usize),
}

/// The orders that a node permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeKind {
    Leaf { item: u32 },
    AnyOrder,
    OneOrder,
}

/// The share of a node's leaves that are replaced, in the order within half of a Q-node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    None,
    Some,
    All,
}

/// Items that were neighbors until replaced.
#[derive(Debug)]
pub(super) struct Replaced {
    /// The items in a permitted order.
    pub(super) order: Vec<u32>,
    /// Set if the reverse order is permitted only in reverse orders: an unreplaced item below the
    /// first item in this order, or above the last.
    pub(super) beside: Option<Beside>,
}

/// An item beside neighbors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pub(super) item: u32,
    pub(super) is_below: bool,
}

/// Children of a node: unreplaced children, and completely replaced children beside them.
#[derive(Debug, Default)]
struct Halves {
    kept: Vec<Place>,
    replaced: Vec<Place>,
}

impl Orders {
    /// Returns all orders of the first items, out of `items` items.
    pub(super) fn new(first: &[u32], items: usize) -> Result<Self> {
        let leaves = filled(NONE, items, "orders of items")?;
        let mut orders = Self { nodes: Vec::new(), root: NONE, leaves, replacement: 0 };
        orders.root = orders.group_of(first);
        Ok(orders)
    }

    /// Returns one of the orders.
    pub(super) fn first(&self) -> Vec<u32> {
        self.items(&[self.root])
    }

    /// Puts the items `born` in place of the items `dying`, in any order, if the dying items can be
    /// neighbors in an order; otherwise the tree must not be used further. No set is empty.
    pub(super) fn replace(&mut self, dying: &[u32], born: &[u32]) -> Option<Replaced> {
        let top = self.mark(dying)?;
        if self.share(top) == Share::All {
            let order = self.items(&[top]);
            let new = self.group_of(born);
            self.substitute(top, new);
            return Some(Replaced { order, beside: None });
        }
        let children = self.node(top).children.clone();
        match self.node(top).kind {
            NodeKind::AnyOrder => self.replace_in_any(top, &children, born),
            NodeKind::OneOrder => self.replace_in_one(top, &children, born),
            NodeKind::Leaf { .. } => None,
        }
    }

    /// Counts the items' leaves in all nodes above, and returns the lowest node above all leaves.
    fn mark(&mut self, items: &[u32]) -> Option<Place> {
        self.replacement += 1;
        for &item in items {
            let mut place = self.leaves[index(item)];
            while place != NONE {
                let count = self.count(place) + 1;
                let replacement = self.replacement;
                let node = self.node_mut(place);
                node.replaced = (replacement, count);
                place = node.parent;
            }
        }
        let mut top = self.leaves[index(*items.first()?)];
        while self.count(top) < items.len() {
            top = self.node(top).parent;
        }
        Some(top)
    }

    fn replace_in_any(&mut self, top: Place, children: &[Place], born: &[u32]) -> Option<Replaced> {
        let [kept, partial, whole] = self.by_share(children);
        let mut halves = Vec::new();
        for &child in &partial {
            halves.push(self.halves(child)?);
        }
        let mut halves = halves.into_iter();
        let (below, above) = (halves.next(), halves.next());
        if halves.next().is_some() {
            return None;
        }
        let Some(below) = below else {
            let order = self.items(&whole);
            let new = self.group_of(born);
            self.set(top, NodeKind::AnyOrder, joined([&kept, &[new]]));
            return Some(Replaced { order, beside: None });
        };
        let above = above.unwrap_or_default();
        let order = joined([&below.replaced, &whole, &reversed(&above.replaced)]);
        let order = self.items(&order);
        let beside = self.beside(&below.kept, &[]);
        let new = self.group_of(born);
        let row = joined([&below.kept, &[new], &reversed(&above.kept)]);
        if kept.is_empty() {
            self.set(top, NodeKind::OneOrder, row);
        } else {
            let row = self.inner(NodeKind::OneOrder, row);
            self.set(top, NodeKind::AnyOrder, joined([&kept, &[row]]));
        }
        Some(Replaced { order, beside })
    }

    fn replace_in_one(&mut self, top: Place, children: &[Place], born: &[u32]) -> Option<Replaced> {
        let is_met = |&child: &Place| self.share(child) != Share::None;
        let (first, last) = (children.iter().position(is_met)?, children.iter().rposition(is_met)?);
        let inner = children.get(first + 1..last)?;
        if inner.iter().any(|&child| self.share(child) != Share::All) {
            return None;
        }
        let below = self.halves(children[first])?;
        let above = self.halves(children[last])?;
        let order = joined([&below.replaced, inner, &reversed(&above.replaced)]);
        let order = self.items(&order);
        let below = joined([&children[..first], &below.kept]);
        let above = joined([&reversed(&above.kept), &children[last + 1..]]);
        let beside = self.beside(&below, &above);
        let new = self.group_of(born);
        self.set(top, NodeKind::OneOrder, joined([&below, &[new], &above]));
        Some(Replaced { order, beside })
    }

    /// Returns an item in the node below some neighbors, or in the node above them.
    fn beside(&self, below: &[Place], above: &[Place]) -> Option<Beside> {
        let (place, is_below) = match (below.last(), above.first()) {
            (Some(&place), _) => (place, true),
            (None, Some(&place)) => (place, false),
            (None, None) => return None,
        };
        self.items(&[place]).first().map(|&item| Beside { item, is_below })
    }

    /// Returns the nodes below a node: unreplaced nodes, followed by replaced nodes; nothing if the
    /// tree permits no such order.
    fn halves(&mut self, mut place: Place) -> Option<Halves> {
        let mut halves = Halves::default();
        if self.share(place) == Share::All {
            halves.replaced.push(place);
            return Some(halves);
        }
        loop {
            let mut children = self.node(place).children.clone();
            if self.node(place).kind == NodeKind::OneOrder {
                let ends =
                    [children.first(), children.last()].map(|it| it.map(|&it| self.share(it)));
                if ends[0] > ends[1] {
                    children.reverse();
                }
                if !children.is_sorted_by_key(|&child| self.share(child)) {
                    return None;
                }
            }
            let [kept, partial, whole] = self.by_share(&children);
            if self.node(place).kind == NodeKind::OneOrder {
                halves.kept.extend(kept);
            } else if !kept.is_empty() {
                let kept = self.inner(NodeKind::AnyOrder, kept);
                halves.kept.push(kept);
            }
            halves.replaced.extend(whole.iter().rev());
            match partial[..] {
                [] => break,
                [next] => place = next,
                _ => return None,
            }
        }
        halves.replaced.reverse();
        Some(halves)
    }

    /// Returns nodes by share of replaced leaves: none, some, all.
    fn by_share(&self, places: &[Place]) -> [Vec<Place>; 3] {
        let of = |share| places.iter().copied().filter(|&it| self.share(it) == share).collect();
        [of(Share::None), of(Share::Some), of(Share::All)]
    }

    fn share(&self, place: Place) -> Share {
        match self.count(place) {
            0 => Share::None,
            count if count == self.node(place).leaves => Share::All,
            _ => Share::Some,
        }
    }

    fn count(&self, place: Place) -> usize {
        let (replacement, count) = self.node(place).replaced;
        if replacement == self.replacement { count } else { 0 }
    }

    /// Returns the items below some nodes, in an order.
    fn items(&self, places: &[Place]) -> Vec<u32> {
        let mut items = Vec::new();
        let mut open: Vec<Place> = reversed(places);
        while let Some(place) = open.pop() {
            let node = self.node(place);
            match node.kind {
                NodeKind::Leaf { item } => items.push(item),
                _ => open.extend(node.children.iter().rev()),
            }
        }
        items
    }

    /// Returns a new node for items in any order.
    fn group_of(&mut self, items: &[u32]) -> Place {
        let mut places = Vec::with_capacity(items.len());
        for &item in items {
            let leaf = self.add(NodeKind::Leaf { item }, 1);
            self.leaves[index(item)] = leaf;
            places.push(leaf);
        }
        self.inner(NodeKind::AnyOrder, places)
    }

    /// Returns a new node above the given nodes, or the only node.
    fn inner(&mut self, kind: NodeKind, children: Vec<Place>) -> Place {
        if let [only] = children[..] {
            self.node_mut(only).parent = NONE;
            return only;
        }
        let leaves = children.iter().map(|&child| self.node(child).leaves).sum();
        let place = self.add(kind, leaves);
        self.adopt(place, kind, children);
        place
    }

    /// Gives a node other children; at least two.
    fn set(&mut self, place: Place, kind: NodeKind, children: Vec<Place>) {
        let (before, mut after) = (self.node(place).leaves, 0);
        for &child in &children {
            after += self.node(child).leaves;
        }
        self.adopt(place, kind, children);
        self.change_leaves(place, before, after);
    }

    fn adopt(&mut self, place: Place, kind: NodeKind, children: Vec<Place>) {
        for &child in &children {
            self.node_mut(child).parent = place;
        }
        let node = self.node_mut(place);
        // Two children have one order and its reverse, which are all orders.
        node.kind = if children.len() == 2 { NodeKind::AnyOrder } else { kind };
        node.children = children;
    }

    /// Puts a new node in place of another node.
    fn substitute(&mut self, old: Place, new: Place) {
        let parent = self.node(old).parent;
        self.node_mut(new).parent = parent;
        if parent == NONE {
            self.root = new;
            return;
        }
        let (before, after) = (self.node(old).leaves, self.node(new).leaves);
        let children = &mut self.node_mut(parent).children;
        children.iter_mut().filter(|child| **child == old).for_each(|child| *child = new);
        self.change_leaves(parent, before, after);
    }

    /// Updates the leaf counts in a node and all nodes above.
    fn change_leaves(&mut self, mut place: Place, before: usize, after: usize) {
        while place != NONE {
            let node = self.node_mut(place);
            node.leaves = node.leaves - before + after;
            place = node.parent;
        }
    }

    fn add(&mut self, kind: NodeKind, leaves: usize) -> Place {
        let node = OrderNode { kind, parent: NONE, children: Vec::new(), leaves, replaced: (0, 0) };
        self.nodes.push(node);
        number(self.nodes.len() - 1)
    }

    fn node(&self, place: Place) -> &OrderNode {
        &self.nodes[index(place)]
    }

    fn node_mut(&mut self, place: Place) -> &mut OrderNode {
        &mut self.nodes[index(place)]
    }
}

fn joined<const N: usize>(parts: [&[Place]; N]) -> Vec<Place> {
    parts.concat()
}

fn reversed(places: &[Place]) -> Vec<Place> {
    places.iter().rev().copied().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;

    use super::*;
    use crate::solve::model::random::Random;

    /// Calls `visit` with all orders of some items.
    fn each_order(items: &mut [u32], fixed: usize, visit: &mut impl FnMut(&[u32])) {
        if fixed == items.len() {
            return visit(items);
        }
        for next in fixed..items.len() {
            items.swap(fixed, next);
            each_order(items, fixed + 1, visit);
            items.swap(fixed, next);
        }
    }

    /// Returns the orders in which a set of neighbors in each old order is replaced.
    fn replaced(old: &BTreeSet<Vec<u32>>, dying: &[u32], born: &[u32]) -> BTreeSet<Vec<u32>> {
        let mut new = BTreeSet::new();
        for order in old {
            let first = order.iter().position(|it| dying.contains(it)).unwrap();
            let Some(run) = order.get(first..first + dying.len()) else { continue };
            if run.iter().all(|it| dying.contains(it)) {
                each_order(&mut born.to_vec(), 0, &mut |born| {
                    let rest = &order[first + dying.len()..];
                    new.insert([&order[..first], born, rest].concat());
                });
            }
        }
        new
    }

    /// Returns all orders that a tree permits.
    fn permitted(orders: &Orders, place: Place) -> BTreeSet<Vec<u32>> {
        let node = orders.node(place);
        let mut children: Vec<u32> = (0..number(node.children.len())).collect();
        let below: Vec<_> = node.children.iter().map(|&it| permitted(orders, it)).collect();
        let mut all = BTreeSet::new();
        let mut row = |row: &[u32]| {
            let mut some = vec![Vec::new()];
            for &child in row {
                let longer = |start: &Vec<u32>| {
                    let start = start.clone();
                    below[index(child)].iter().map(move |it| [&start[..], it].concat())
                };
                some = some.iter().flat_map(longer).collect();
            }
            all.extend(some);
        };
        match node.kind {
            NodeKind::Leaf { item } => return BTreeSet::from([vec![item]]),
            NodeKind::AnyOrder => each_order(&mut children, 0, &mut row),
            NodeKind::OneOrder => {
                row(&children);
                children.reverse();
                row(&children);
            }
        }
        all
    }

    #[test]
    fn a_tree_permits_the_orders_in_which_all_sets_were_neighbors() {
        let mut random = Random::new(3);
        let mut count = [0, 0];
        for round in 0..200 {
            let first: Vec<u32> = (0..6).collect();
            let mut orders = Orders::new(&first, 64).unwrap();
            let mut expected = permitted(&orders, orders.root);
            assert_eq!(expected.len(), 720);
            let mut next = 6;
            let mut live = first;
            for _ in 0..10 {
                for place in (1..live.len()).rev() {
                    live.swap(place, random.below(place + 1));
                }
                let ended = (2 + random.below(2)).min(live.len());
                let dying = live.split_off(live.len() - ended);
                let few = if live.len() < 2 { 2 } else { 1 };
                let many = few + random.below((7 - live.len()).min(4) - few);
                let born: Vec<u32> = (next..next + number(many)).collect();
                next += number(many);
                live.extend(&born);
                let old = expected;
                expected = replaced(&old, &dying, &born);
                let found = orders.replace(&dying, &born);
                count[usize::from(found.is_some())] += 1;
                assert_eq!(found.is_none(), expected.is_empty(), "round {round}");
                let Some(found) = found else { break };
                assert_eq!(permitted(&orders, orders.root), expected, "round {round}");
                assert!(expected.contains(&orders.first()));
                // Each new order comes from an old order, with the neighbors in this order.
                for order in &expected {
                    let at = order.iter().position(|it| born.contains(it)).unwrap();
                    let mut run = found.order.clone();
                    if let Some(beside) = found.beside {
                        let other = order.iter().position(|&it| it == beside.item).unwrap();
                        if (other < at) != beside.is_below {
                            run.reverse();
                        }
                    }
                    let before = [&order[..at], &run, &order[at + born.len()..]].concat();
                    assert!(old.contains(&before), "round {round}: {before:?}");
                }
            }
        }
        assert!(count.iter().all(|&many| many > 50), "of both outcomes there are many: {count:?}");
    }
}
