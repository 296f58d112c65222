//! Small problems of every shape against trying all offsets.

use std::ops::Range;

use arenaplan::base::{Alignment, BufferId, LiveRange};
use arenaplan::format::CsvProblem;
use arenaplan::pack::{Buffer, Part, SolveOptions, Space};
use arenaplan::{Budget, Problem, Status, solve};

/// Random numbers that are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % limit
    }

    pub(crate) fn step(&mut self, limit: u32) -> u32 {
        u32::try_from(self.below(limit.into())).unwrap()
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// What a random problem may contain.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    alignments: bool,
    pins: bool,
    parts: bool,
}

/// How many problems of each shape: all when optimized, some otherwise.
fn rounds(all: u64) -> u64 {
    match std::env::var("ARENAPLAN_ORACLE_SCALE") {
        Ok(percent) => all * percent.parse::<u64>().unwrap() / 100,
        Err(_) if cfg!(debug_assertions) => all / 40,
        Err(_) => all,
    }
}

fn random_buffer(random: &mut Random, horizon: u32, largest: u64, shape: Shape) -> Buffer {
    let start = random.step(horizon);
    let end = start + 1 + random.step(horizon - start);
    let bytes = 1 + random.below(largest);
    let live = LiveRange::new(start, end).unwrap();
    let mut buffer = Buffer::new(bytes, live);
    if shape.parts && random.one_in(2) && bytes > 1 {
        buffer = random_parts(random, bytes, start..end);
    }
    if shape.alignments {
        buffer = buffer.with_alignment(Alignment::new(1 << random.below(3)).unwrap());
    }
    if shape.pins && random.one_in(4) {
        let mask = buffer.alignment().bytes() - 1;
        buffer = buffer.with_pin(random.below(8) & !mask);
    }
    if random.one_in(8) {
        buffer = buffer.with_hint(random.below(8));
    }
    buffer
}

/// A buffer of two parts, each with a live range of its own or two.
fn random_parts(random: &mut Random, bytes: u64, steps: Range<u32>) -> Buffer {
    let cut = random.below(bytes);
    let parts = [0..cut, cut..bytes].into_iter().filter(|bytes| bytes.start < bytes.end);
    let parts = parts.map(|bytes| {
        let mut moments: Vec<u32> = (0..4)
            .map(|_| steps.start + random.step(steps.end - steps.start + 1))
            .chain([steps.start, steps.end])
            .collect();
        moments.sort_unstable();
        moments.dedup();
        let ranges = moments.chunks_exact(2).map(|pair| LiveRange::new(pair[0], pair[1]).unwrap());
        Part { bytes, live: ranges.collect() }
    });
    Buffer::with_parts(bytes, parts.collect()).unwrap()
}

/// Tiles of a full rectangle, some of which live a step longer or shorter than they did:
/// the hardest problems of their size, with next to no room to waste.
fn tiles(random: &mut Random, shape: Shape) -> Vec<Buffer> {
    let mut tiles = vec![(0..4 + random.below(5), 0..4 + random.step(4))];
    for _ in 0..4 + random.below(7) {
        let at = index(random.below(u64::try_from(tiles.len()).unwrap()));
        let (bytes, steps) = tiles[at].clone();
        if random.one_in(2) && bytes.end - bytes.start > 1 {
            let cut = bytes.start + 1 + random.below(bytes.end - bytes.start - 1);
            tiles[at].0.end = cut;
            tiles.push((cut..bytes.end, steps));
        } else if steps.end - steps.start > 1 {
            let cut = steps.start + 1 + random.step(steps.end - steps.start - 1);
            tiles[at].1.end = cut;
            tiles.push((bytes, cut..steps.end));
        }
    }
    for (_, steps) in &mut tiles {
        match random.below(6) {
            0 => steps.end += 1,
            1 if steps.end - steps.start > 1 => steps.start += 1,
            _ => {}
        }
    }
    let buffers = tiles.into_iter().map(|(bytes, steps)| {
        let size = bytes.end - bytes.start;
        let live = LiveRange::new(steps.start, steps.end).unwrap();
        let mut buffer = Buffer::new(size, live);
        if shape.parts && random.one_in(3) && size > 1 {
            buffer = random_parts(random, size, steps);
        }
        if shape.alignments && random.one_in(2) {
            buffer = buffer.with_alignment(Alignment::new(1 << random.below(3)).unwrap());
        }
        if shape.pins && random.one_in(5) {
            let mask = buffer.alignment().bytes() - 1;
            buffer = buffer.with_pin(bytes.start & !mask);
        }
        buffer
    });
    buffers.collect()
}

/// Some buffers, and in each step another one for all bytes that are not live there.
fn filled(random: &mut Random, shape: Shape) -> Vec<Buffer> {
    let horizon = 4 + random.step(4);
    let count = 4 + random.below(4);
    let mut buffers: Vec<_> =
        (0..count).map(|_| random_buffer(random, horizon, 3, shape)).collect();
    let problem = buffers.iter().map(|buffer| Buffer::new(buffer.bytes(), buffer.live()));
    let problem = Problem::new(problem.collect(), vec![Space::default()]).unwrap();
    let most = load(&problem);
    for step in 0..horizon {
        let now = LiveRange::new(step, step + 1).unwrap();
        let live = problem.buffers().iter().filter(|buffer| buffer.live().overlaps(now));
        let missing = most - live.map(Buffer::bytes).sum::<u64>();
        let first = random.below(missing + 1);
        let sizes = [first, missing - first].into_iter().filter(|&bytes| bytes > 0);
        buffers.extend(sizes.map(|bytes| Buffer::new(bytes, now)));
    }
    buffers
}

/// Returns the most bytes live at one step.
fn load(problem: &Problem) -> u64 {
    let at = |step: u32| {
        let now = LiveRange::new(step, step + 1).unwrap();
        let live = problem.buffers().iter().flat_map(Buffer::rectangles);
        live.filter(|(_, live)| live.overlaps(now)).map(|(bytes, _)| bytes.end - bytes.start).sum()
    };
    (0..problem.horizon().get()).map(at).max().unwrap_or(0)
}

/// All that matters of a buffer when it is tried at every offset.
struct Tried {
    bytes: u64,
    alignment: u64,
    pin: Option<u64>,
    /// For each step, a bit for each byte that is live.
    masks: Vec<u128>,
}

/// Returns the least peak of a problem, trying all offsets of all buffers, or nothing if
/// that takes too long.
fn least_peak(problem: &Problem) -> Option<u64> {
    let steps = problem.horizon().index();
    let mut buffers: Vec<_> = (0..problem.buffers().len())
        .map(|index| {
            let buffer = &problem.buffers()[index];
            let mut masks = vec![0_u128; steps];
            for (bytes, live) in buffer.rectangles() {
                let mask = (1_u128 << bytes.end) - (1 << bytes.start);
                masks[live.start().index()..live.end().index()].iter_mut().for_each(|m| *m |= mask);
            }
            let alignment = problem.alignment(BufferId::new(index)).bytes();
            Tried { bytes: buffer.bytes(), alignment, pin: buffer.pin(), masks }
        })
        .collect();
    // No order changes the answer; this one finds it sooner.
    buffers.sort_by_key(|it| {
        let area: u32 = it.masks.iter().map(|mask| mask.count_ones()).sum();
        (it.pin.is_none(), std::cmp::Reverse(area))
    });
    let mut patience = 300_000_u32;
    let mut taken = vec![0; steps];
    (load(problem)..).find_map(|peak| match fits(&buffers, &mut taken, peak, &mut patience) {
        None => Some(None),
        Some(fits) => fits.then_some(Some(peak)),
    })?
}

/// Returns whether `buffers` fit below `peak` around what is taken, or nothing if that is
/// not known after trying `patience` offsets.
fn fits(buffers: &[Tried], taken: &mut [u128], peak: u64, patience: &mut u32) -> Option<bool> {
    let Some((buffer, rest)) = buffers.split_first() else { return Some(true) };
    let mut offset = buffer.pin.unwrap_or(0);
    while offset + buffer.bytes <= peak {
        *patience = patience.checked_sub(1)?;
        if buffer.masks.iter().zip(&*taken).all(|(mask, taken)| (mask << offset) & taken == 0) {
            let flip = |taken: &mut [u128]| {
                let both = taken.iter_mut().zip(&buffer.masks);
                both.for_each(|(taken, mask)| *taken ^= mask << offset);
            };
            flip(taken);
            let fit = fits(rest, taken, peak, patience);
            flip(taken);
            if fit != Some(false) {
                return fit;
            }
        }
        if buffer.pin.is_some() {
            return Some(false);
        }
        offset += buffer.alignment;
    }
    Some(false)
}

/// Returns a problem as one can read it.
fn shown(problem: &Problem) -> String {
    let names = (0..problem.buffers().len()).map(|number| number.to_string()).collect();
    CsvProblem { names, problem: problem.clone(), groups: vec![], moments: vec![] }
        .to_csv(None)
        .unwrap_or_default()
}

/// A limit that no small problem comes near: by default, proofs are given up sooner.
fn patient() -> Budget<'static> {
    let mut budget = Budget::default();
    budget.nodes = Some(10_000_000);
    budget
}

/// Compares statuses with and without capacity on random problems.
fn statuses_agree(shape: Shape, seed: u64, rounds: u64) {
    let other = std::env::var("ARENAPLAN_ORACLE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut random = Random(seed + 1_000 * other);
    let (mut infeasible, mut above_load, mut rigid, mut decided) = (0, 0, 0, 0);
    let mut options = SolveOptions::default();
    options.methods.exact = false;
    let mut disjunctive = patient();
    disjunctive.options = Some(&options);
    let mut round = 0;
    while round < rounds {
        let buffers = if random.one_in(3) {
            tiles(&mut random, shape)
        } else if random.one_in(2) {
            filled(&mut random, shape)
        } else {
            let count = 2 + random.below(6);
            let horizon = 1 + random.step(6);
            let largest = 2 + random.below(5);
            (0..count).map(|_| random_buffer(&mut random, horizon, largest, shape)).collect()
        };
        let Ok(problem) = Problem::new(buffers.clone(), vec![Space::default()]) else {
            continue; // pins that contradict each other
        };
        let Some(least) = least_peak(&problem) else { continue };
        round += 1;
        let load = load(&problem);
        above_load += u64::from(least > load);

        let packing = solve(&problem, &patient()).unwrap();
        packing.check(&problem).unwrap();
        let found = (packing.peak(), packing.lower_bound(), packing.status());
        assert_eq!(found, (least, least, Status::Optimal), "{}", shown(&problem));

        let packing = solve(&problem, &disjunctive).unwrap();
        packing.check(&problem).unwrap();
        assert!(packing.lower_bound() <= least && least <= packing.peak(), "{}", shown(&problem));
        let is_rigid = problem.buffers().iter().any(|buffer| {
            buffer.solid().is_none() || buffer.pin().is_some() || buffer.alignment().bytes() > 1
        });
        rigid += u64::from(is_rigid);
        decided += u64::from(is_rigid && packing.status() == Status::Optimal);

        let capacity = (least + random.below(3)).saturating_sub(1 + random.below(2));
        infeasible += u64::from(capacity < least);
        let space = Space::default().with_capacity(capacity);
        match Problem::new(buffers.clone(), vec![space]) {
            Err(_) => assert!(capacity < least, "the pins fit"),
            Ok(problem) => {
                let packing = solve(&problem, &patient()).unwrap();
                packing.check(&problem).unwrap();
                let fits = matches!(packing.status(), Status::Optimal | Status::Feasible);
                assert_eq!(fits, least <= capacity, "{capacity}: {}", shown(&problem));
                assert!(packing.lower_bound() <= least, "{capacity}: {}", shown(&problem));
                assert_ne!(packing.status(), Status::Unknown, "{capacity}: {}", shown(&problem));
                // A limit may leave the question open, never answer it wrongly.
                let budget = {
                    let mut b = Budget::default();
                    b.nodes = Some(random.below(4));
                    b
                };
                let packing = solve(&problem, &budget).unwrap();
                packing.check(&problem).unwrap();
                assert!(packing.lower_bound() <= least && packing.peak() >= least);
            }
        }
    }
    assert!(infeasible * 3 >= rounds, "{infeasible} of {rounds} are infeasible");
    assert!(above_load > 0, "no problem is harder than its load");
    // Alignments that divide all sizes leave no rule: only exact search decides such problems.
    assert!(decided * 20 >= rigid * 19, "disjunctive search alone decides {decided} of {rigid}");
}

#[test]
fn plain_problems_are_solved_and_refused_as_by_trying_all_offsets() {
    statuses_agree(Shape::default(), 1, rounds(60_000));
}

#[test]
fn alignments_are_solved_and_refused_as_by_trying_all_offsets() {
    statuses_agree(Shape { alignments: true, ..Shape::default() }, 2, rounds(30_000));
}

#[test]
fn pins_are_solved_and_refused_as_by_trying_all_offsets() {
    statuses_agree(Shape { pins: true, ..Shape::default() }, 3, rounds(30_000));
    statuses_agree(Shape { pins: true, alignments: true, parts: false }, 4, rounds(30_000));
}

#[test]
fn gaps_and_windows_are_solved_and_refused_as_by_trying_all_offsets() {
    statuses_agree(Shape { parts: true, ..Shape::default() }, 5, rounds(20_000));
    statuses_agree(Shape { parts: true, alignments: true, pins: true }, 6, rounds(20_000));
}
