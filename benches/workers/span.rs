//! A lower bound of the time that several workers need.

use std::ops::Range;

use arenaplan::plan::Hazards;

/// Returns a time below which so many workers cannot run all steps, whatever bytes they have.
///
/// A step that waits for all steps before it, and that all steps behind it wait for, runs alone: the
/// times of the parts between such steps add up.
pub fn least_span(data: &Hazards, costs: &[u64], workers: u32) -> u64 {
    let steps = costs.len();
    let mut before = vec![0_usize; steps];
    let mut after = vec![0_usize; steps];
    for (step, before) in before.iter_mut().enumerate() {
        let mut is_seen = vec![false; steps];
        let mut stack = vec![step];
        while let Some(at) = stack.pop() {
            for edge in data.of(at) {
                let next = edge.before as usize;
                if !std::mem::replace(&mut is_seen[next], true) {
                    *before += 1;
                    after[next] += 1;
                    stack.push(next);
                }
            }
        }
    }
    let mut span = 0;
    let mut first = 0;
    for step in 0..=steps {
        if step == steps || before[step] + after[step] + 1 == steps {
            span += Part::new(data, costs, first..step).least_span(workers);
            span += costs.get(step).copied().unwrap_or(0);
            first = step + 1;
        }
    }
    span
}

/// Some successive steps, of which the first ones wait for nothing.
struct Part<'c> {
    costs: &'c [u64],
    /// By step: its earliest start.
    earliest: Vec<u64>,
    /// By step: the time from its start to the end of the last step that waits for it.
    tail: Vec<u64>,
}

impl<'c> Part<'c> {
    fn new(data: &Hazards, costs: &'c [u64], range: Range<usize>) -> Self {
        let costs = &costs[range.clone()];
        let edges = || {
            let of = |step: usize| data.of(range.start + step).iter().map(move |it| (it, step));
            let inside = (0..costs.len()).flat_map(of);
            inside.filter_map(|(it, step)| {
                (it.before as usize).checked_sub(range.start).map(|before| (before, step))
            })
        };
        let mut earliest = vec![0; costs.len()];
        for (before, step) in edges() {
            earliest[step] = earliest[step].max(earliest[before] + costs[before]);
        }
        let mut tail = costs.to_vec();
        let mut edges: Vec<_> = edges().collect();
        edges.reverse();
        for (before, step) in edges {
            tail[before] = tail[before].max(costs[before] + tail[step]);
        }
        Self { costs, earliest, tail }
    }

    fn least_span(&self, workers: u32) -> u64 {
        let path = self.earliest.iter().zip(&self.tail).map(|(start, tail)| start + tail).max();
        let work: u64 = self.costs.iter().sum();
        let (mut low, mut high) = (path.unwrap_or(0).max(work.div_ceil(workers.into())), work);
        while low < high {
            let span = low.midpoint(high);
            if self.is_possible(workers, span) {
                high = span;
            } else {
                low = span + 1;
            }
        }
        low
    }

    /// Returns whether the workers may have enough time between any two moments.
    ///
    /// In a schedule of a given span, each step has an earliest start and a latest end: between two
    /// moments it must run for some time at least (Fernández and Bussell 1973).
    fn is_possible(&self, workers: u32, span: u64) -> bool {
        let mut froms = self.earliest.clone();
        froms.sort_unstable();
        froms.dedup();
        let latest: Vec<u64> = self.tail.iter().map(|tail| span - tail).collect();
        let ends = latest.iter().zip(self.costs).map(|(start, cost)| start + cost);
        let mut untils: Vec<u64> = ends.collect();
        untils.sort_unstable();
        untils.dedup();
        froms.iter().all(|&from| {
            untils.iter().filter(|&&until| until > from).all(|&until| {
                let least = |step: usize| {
                    let cost = self.costs[step];
                    let left = (self.earliest[step] + cost).saturating_sub(from);
                    let right = until.saturating_sub(latest[step]);
                    cost.min(left).min(right).min(until - from)
                };
                let needed: u64 = (0..self.costs.len()).map(least).sum();
                needed <= u64::from(workers) * (until - from)
            })
        })
    }
}
