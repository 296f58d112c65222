//! A lower bound of the time that several workers need.

use arenaplan::plan::Hazards;

/// Returns a time below which so many workers cannot run all steps, whatever bytes they have.
///
/// In a schedule of a given span, each step has an earliest start and a latest end: between any two
/// moments it must run for some time at least. If all these times together are more than the
/// workers have between the two moments, there is no such schedule (Fernández and Bussell 1973).
pub fn least_span(data: &Hazards, costs: &[u64], workers: u32) -> u64 {
    let dependents = data.dependents();
    let mut earliest = vec![0; costs.len()];
    for step in 0..costs.len() {
        let ends = data.of(step).iter().map(|edge| edge.before as usize);
        earliest[step] = ends.map(|it| earliest[it] + costs[it]).max().unwrap_or(0);
    }
    let mut tail = costs.to_vec();
    for step in (0..costs.len()).rev() {
        tail[step] += dependents[step].iter().map(|&it| tail[it as usize]).max().unwrap_or(0);
    }
    let path = earliest.iter().zip(&tail).map(|(start, tail)| start + tail).max().unwrap_or(0);
    let work: u64 = costs.iter().sum();
    let (mut low, mut high) = (path.max(work.div_ceil(u64::from(workers))), work);
    while low < high {
        let span = low.midpoint(high);
        if is_possible(&earliest, &tail, costs, workers, span) { high = span } else { low = span + 1 }
    }
    low
}

/// Returns whether the workers have enough time between any two moments.
fn is_possible(earliest: &[u64], tail: &[u64], costs: &[u64], workers: u32, span: u64) -> bool {
    let mut froms = earliest.to_vec();
    froms.sort_unstable();
    froms.dedup();
    let latest: Vec<u64> = tail.iter().map(|tail| span - tail).collect();
    let mut untils: Vec<u64> = latest.iter().zip(costs).map(|(start, cost)| start + cost).collect();
    untils.sort_unstable();
    untils.dedup();
    froms.iter().all(|&from| {
        untils.iter().filter(|&&until| until > from).all(|&until| {
            let least = |step: usize| {
                let cost = costs[step];
                let left = (earliest[step] + cost).saturating_sub(from);
                let right = until.saturating_sub(latest[step]);
                cost.min(left).min(right).min(until - from)
            };
            let needed: u64 = (0..costs.len()).map(least).sum();
            needed <= u64::from(workers) * (until - from)
        })
    })
}
