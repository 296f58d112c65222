//! Minimum network cuts (Dinic 1970).

use alloc::{collections::VecDeque, vec, vec::Vec};

use super::narrow_ids::{NONE, at, narrow};
use crate::base::{Error, Result};

/// Capacity of an arc that no cut contains.
pub(super) const UNLIMITED: u64 = 1 << 60;

/// Returns, by vertex, whether the vertex is on the source's side of a minimum cut through a network
/// with source 0 and sink 1. Arcs are `(from, to, capacity)`; no cut contains arcs with 2^60 or more.
///
/// # Errors
///
/// [`Error::InvalidOption`] if an arc names a vertex that is not there, or each cut contains an arc
/// with a capacity of 2^60 or more.
pub fn minimum_cut(vertices: usize, arcs: &[(u32, u32, u64)]) -> Result<Vec<bool>> {
    let invalid = |reason: &str| Error::InvalidOption { option: "arcs", reason: reason.into() };
    if vertices < 2 || arcs.iter().any(|arc| at(arc.0.max(arc.1)) >= vertices) {
        return Err(invalid("an arc names a vertex that is not there"));
    }
    let mut network = Network::new(vertices);
    for &(from, to, capacity) in arcs {
        network.arc(at(from), at(to), capacity.min(UNLIMITED));
    }
    if network.flow() >= UNLIMITED {
        return Err(invalid("no cut is without unlimited arcs"));
    }
    Ok(network.source_side())
}

/// A network with a source, vertex 0, and a sink, vertex 1.
pub(super) struct Network {
    /// For each vertex: the first arc, or [`NONE`].
    first: Vec<u32>,
    /// For each arc: the vertex's next arc, the target vertex, the remaining capacity. Arc `i ^ 1`
    /// is the reverse of arc `i`.
    next: Vec<u32>,
    to: Vec<u32>,
    left: Vec<u64>,
    level: Vec<u32>,
    current: Vec<u32>,
}

impl Network {
    pub(super) fn new(vertices: usize) -> Self {
        Self {
            first: vec![NONE; vertices],
            next: Vec::new(),
            to: Vec::new(),
            left: Vec::new(),
            level: Vec::new(),
            current: Vec::new(),
        }
    }

    pub(super) fn arc(&mut self, from: usize, to: usize, capacity: u64) {
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.next.push(self.first[from]);
            self.first[from] = narrow(self.to.len());
            self.to.push(narrow(to));
            self.left.push(capacity);
        }
    }

    /// Returns the maximum flow, which is the capacity of a minimum cut.
    pub(super) fn flow(&mut self) -> u64 {
        let mut total = 0_u64;
        while self.levels() {
            self.current.clone_from(&self.first);
            loop {
                let sent = self.augment();
                if sent == 0 {
                    break;
                }
                total = total.saturating_add(sent);
                if total >= UNLIMITED {
                    return total;
                }
            }
        }
        total
    }

    /// Returns for each vertex whether the source reaches the vertex after [`flow`](Self::flow).
    pub(super) fn source_side(&self) -> Vec<bool> {
        self.level.iter().map(|&level| level != NONE).collect()
    }

    /// Finds the distance of each vertex from the source, and returns whether the source reaches
    /// the sink.
    fn levels(&mut self) -> bool {
        self.level.clear();
        self.level.resize(self.first.len(), NONE);
        self.level[0] = 0;
        let mut pending = VecDeque::from([0_usize]);
        while let Some(vertex) = pending.pop_front() {
            let mut arc = self.first[vertex];
            while arc != NONE {
                let to = at(self.to[at(arc)]);
                if self.left[at(arc)] > 0 && self.level[to] == NONE {
                    self.level[to] = self.level[vertex] + 1;
                    pending.push_back(to);
                }
                arc = self.next[at(arc)];
            }
        }
        self.level[1] != NONE
    }

    /// Sends flow along one path, and returns how much.
    fn augment(&mut self) -> u64 {
        let mut path: Vec<u32> = Vec::new();
        let mut vertex = 0;
        loop {
            if vertex == 1 {
                let sent = path.iter().map(|&arc| self.left[at(arc)]).min().unwrap_or(0);
                for &arc in &path {
                    self.left[at(arc)] -= sent;
                    self.left[at(arc ^ 1)] += sent;
                }
                return sent;
            }
            let arc = self.current[vertex];
            if arc == NONE {
                let Some(last) = path.pop() else { return 0 };
                vertex = at(self.to[at(last ^ 1)]);
                self.current[vertex] = self.next[at(self.current[vertex])];
                continue;
            }
            let to = at(self.to[at(arc)]);
            if self.left[at(arc)] > 0 && self.level[to] == self.level[vertex] + 1 {
                path.push(arc);
                vertex = to;
            } else {
                self.current[vertex] = self.next[at(arc)];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_cut_separates_source_and_sink() {
        let mut network = Network::new(6);
        for (from, to, capacity) in
            [(0, 2, 10), (0, 3, 10), (2, 3, 2), (2, 4, 4), (2, 5, 8), (3, 5, 9), (5, 4, 6)]
        {
            network.arc(from, to, capacity);
        }
        network.arc(4, 1, 10);
        network.arc(5, 1, 10);
        assert_eq!(network.flow(), 19);
        let side = network.source_side();
        assert!(side[0] && !side[1]);
    }
}
