//! What each method of the packing solver is worth.
//!
//! `cargo bench --bench ablation` packs fixed instances with the default options, then with each
//! method switched off, and prints a table. The limit of a search is its effort in memory accesses, so
//! the figures do not depend on the machine.
//!
//! Arguments after `--`: `without=A,B` prints the methods as a whole beside all but A and B, `first=N`
//! is the first seed of the generators, and each other argument is a folder with CSV files that are
//! packed as well.
#![allow(
    missing_docs,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark is no library"
)]

use arenaplan::base::{Alignment, LiveRange};
use arenaplan::format::CsvProblem;
use arenaplan::pack::{Buffer, Methods, Part, SolveOptions, Space};
use arenaplan::{Budget, Problem, solve};

/// Effort per instance, in memory accesses.
const EFFORT: usize = 60_000_000;
/// Seeds with which the default options run, to show the spread.
const SEEDS: u64 = 5;
/// Seeds with which groups of methods are switched off.
const GROUP_SEEDS: u64 = 2;

/// A generator of random numbers that is the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        u32::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn one_space(buffers: Vec<Buffer>) -> Problem {
    Problem::new(buffers, vec![Space::default()]).unwrap()
}

fn live(start: u32, end: u32) -> LiveRange {
    LiveRange::new(start, end).unwrap()
}

/// Births and lengths at random, sizes even below `largest`.
fn scattered(random: &mut Random, count: u32, horizon: u32, longest: u32, largest: u32) -> Problem {
    let mut buffer = |_| {
        let start = random.below(horizon);
        let end = start + 1 + random.below(longest);
        Buffer::new(u64::from(1 + random.below(largest)), live(start, end))
    };
    one_space((0..count).map(&mut buffer).collect())
}

/// The same buffers, each with an alignment of 1 to 16.
fn aligned(random: &mut Random, problem: &Problem) -> Problem {
    let align =
        |it: &Buffer| it.clone().with_alignment(Alignment::new(1 << random.below(5)).unwrap());
    one_space(problem.buffers().iter().map(align).collect())
}

/// The same buffers, half of them in two parts that are live one after the other.
fn windowed(random: &mut Random, problem: &Problem) -> Problem {
    let split = |it: &Buffer| {
        let (start, end) = (it.live().start().get(), it.live().end().get());
        if random.below(2) == 0 || end - start < 2 || it.bytes() < 2 {
            return it.clone();
        }
        let cut = 1 + u64::from(random.below(u32::try_from(it.bytes()).unwrap() - 1));
        let step = start + 1 + random.below(end - start - 1);
        let low = Part { bytes: 0..cut, live: vec![live(start, step)] };
        let high = Part { bytes: cut..it.bytes(), live: vec![live(step, end)] };
        Buffer::with_parts(it.bytes(), vec![low, high]).unwrap()
    };
    one_space(problem.buffers().iter().map(split).collect())
}

/// Tiles of a rectangle without any room between them.
fn tiles(random: &mut Random, count: usize, width: u32, height: u32) -> Problem {
    let mut tiles = vec![(0, width, 0, height)];
    while tiles.len() < count {
        let at = random.below(u32::try_from(tiles.len()).unwrap()) as usize;
        let (start, end, low, high) = tiles[at];
        if random.below(2) == 0 && end - start > 1 {
            let cut = start + 1 + random.below(end - start - 1);
            tiles[at].1 = cut;
            tiles.push((cut, end, low, high));
        } else if high - low > 1 {
            let cut = low + 1 + random.below(high - low - 1);
            tiles[at].3 = cut;
            tiles.push((start, end, cut, high));
        }
    }
    let buffer = |&(start, end, low, high): &(u32, u32, u32, u32)| {
        Buffer::new(u64::from(high - low), live(start, end))
    };
    one_space(tiles.iter().map(buffer).collect())
}

/// A column of `height` bytes in pieces, of which neighbors are merged and cut anew at random steps;
/// a part `empty` in 100 of the pieces is left out.
fn column(random: &mut Random, count: usize, height: u32, empty: u32) -> Problem {
    let mut pieces = vec![(0_u32, height)];
    let mut buffers = Vec::new();
    let mut step = 0;
    let mut end_piece = |random: &mut Random, (start, size): (u32, u32), step: u32| {
        if step > start && random.below(100) >= empty {
            buffers.push(Buffer::new(size.into(), live(start, step)));
        }
        buffers.len()
    };
    let mut made = 0;
    while made < count {
        step += 1;
        let at = random.below(u32::try_from(pieces.len()).unwrap()) as usize;
        let many = (1 + random.below(3) as usize).min(pieces.len() - at);
        let taken: Vec<_> = pieces.drain(at..at + many).collect();
        let mut room: u32 = taken.iter().map(|&(_, size)| size).sum();
        for piece in taken {
            made = end_piece(random, piece, step);
        }
        while room > 0 {
            let size = if room < 64 { room } else { (room / 16 + random.below(room)).min(room) };
            pieces.push((step, size));
            room -= size;
        }
    }
    for piece in pieces {
        end_piece(random, piece, step + 1);
    }
    one_space(buffers)
}

/// The same buffers, each shorter by up to 2 %, so that sums of sizes are no longer equal.
fn shortened(random: &mut Random, problem: &Problem) -> Problem {
    let shorter = |it: &Buffer| {
        let less = it.bytes() * u64::from(random.below(1 << 10)) / (50 << 10);
        Buffer::new((it.bytes() - less).max(1), it.live())
    };
    one_space(problem.buffers().iter().map(shorter).collect())
}

/// A chain of layers: most buffers die at once, some skip 30 steps, few 400.
fn network(random: &mut Random, count: u32) -> Problem {
    let buffer = |step| {
        let length = match random.below(100) {
            0..80 => 1 + random.below(3),
            80..97 => 1 + random.below(60),
            _ => 1 + random.below(800),
        };
        let bytes = 256 * (1 + u64::from(random.below(4096)));
        Buffer::new(bytes, live(step, step + 1 + length))
    };
    one_space((0..count).map(buffer).collect())
}

/// A training run: most buffers live until about the mirror image of their birth.
fn mountain(random: &mut Random, count: u32) -> Problem {
    let buffer = |_| {
        let start = random.below(count);
        let length = match random.below(3) {
            0 => 1 + random.below(6),
            _ => (2 * (count - start) - 1).saturating_sub(random.below(count / 2)).max(1),
        };
        let bytes = u64::from(2 + random.below(2)) << (8 + random.below(8));
        Buffer::new(bytes + 8 * u64::from(random.below(4)), live(start, start + length))
    };
    one_space((0..count).map(buffer).collect())
}

/// Returns the generated instances, by kind.
fn generated(seed: u64) -> Vec<(&'static str, Vec<Problem>)> {
    let random = &mut Random(seed);
    let plain: Vec<_> = [(60, 40, 20), (150, 80, 40), (400, 200, 60), (800, 300, 60)]
        .map(|(count, horizon, longest)| scattered(random, count, horizon, longest, 1 << 10))
        .into();
    let steep: Vec<_> =
        [80, 150, 250, 350].map(|count| tiles(random, count, 1_000, 1 << 16)).into();
    let with_alignments = plain[..3].iter().map(|it| aligned(random, it)).collect();
    let with_windows = plain[..3].iter().map(|it| windowed(random, it)).collect();
    let columns = [(100, 0), (180, 0), (260, 0), (180, 10), (260, 10), (350, 5)]
        .map(|(count, empty)| column(random, count, 1 << 14, empty));
    let tight = [(150, 1 << 20), (450, 1 << 20), (1_500, 1 << 20)]
        .map(|(count, height)| column(random, count, height, 0));
    let near = tight.iter().map(|it| shortened(random, it)).collect();
    let few: Vec<_> = [12, 16, 20, 24]
        .map(|count| {
            let problem = scattered(random, count, 12, 8, 300);
            aligned(random, &problem)
        })
        .into();
    let large = vec![
        scattered(random, 3_000, 800, 60, 1 << 12),
        scattered(random, 6_000, 3_000, 40, 1 << 12),
        network(random, 5_000),
        mountain(random, 2_500),
    ];
    vec![
        ("scattered", plain),
        ("aligned", with_alignments),
        ("windowed", with_windows),
        ("tiles", steep),
        ("columns", columns.into()),
        ("near columns", near),
        ("few, aligned", few),
        ("large", large),
    ]
}

/// Returns the problems of the CSV files in a folder of up to `most` buffers.
fn stored(folder: &str, most: usize) -> Vec<Problem> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|it| it.extension().is_some_and(|it| it == "csv")).collect();
    files.sort();
    let read = |file| {
        CsvProblem::parse(&std::fs::read_to_string(file).unwrap(), Space::default())
            .unwrap()
            .problem
    };
    files.iter().map(read).filter(|problem| problem.buffers().len() <= most).collect()
}

/// What one variant of the options achieves.
#[derive(Clone, Debug, PartialEq)]
struct Score {
    /// Instances packed at their lower bound.
    optimal: usize,
    /// Mean of peak / bound − 1 of all instances, in thousandths.
    gap: f64,
    /// The same for each kind.
    gaps: Vec<f64>,
    /// Nodes until the last improvement, all together.
    nodes: u64,
}

fn score(
    kinds: &[(&str, Vec<Problem>)],
    options: &SolveOptions,
    effort: usize,
    seed: u64,
) -> Score {
    let mut options = *options;
    options.effort = effort;
    let (mut optimal, mut nodes, mut gaps) = (0, 0, Vec::new());
    for (_, problems) in kinds {
        let mut sum = 0.0;
        for problem in problems {
            let last = AtomicNodes::default();
            let tell = |now: arenaplan::pack::Progress| last.set(now.nodes);
            let mut budget = Budget::default();
            budget.seed = seed;
            budget.options = Some(&options);
            budget.progress = Some(&tell);
            let packing = solve(problem, &budget).unwrap();
            packing.check(problem).unwrap();
            let base = arenaplan::pack::max_load(problem, arenaplan::SpaceId::new(0)).unwrap().0;
            optimal += usize::from(packing.peak() == packing.lower_bound());
            nodes += last.get();
            sum += 1000.0 * (packing.peak() as f64 / base as f64 - 1.0);
        }
        gaps.push(sum / problems.len() as f64);
    }
    let gap = gaps.iter().sum::<f64>() / gaps.len() as f64;
    Score { optimal, gap, gaps, nodes }
}

/// A number that a callback sets.
#[derive(Default)]
struct AtomicNodes(std::sync::atomic::AtomicU64);

impl AtomicNodes {
    fn set(&self, nodes: u64) {
        self.0.store(nodes, std::sync::atomic::Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Prints one row: figures, and the difference from `base` in each kind.
fn row(name: &str, score: &Score, base: &Score) {
    let kinds: Vec<_> = score
        .gaps
        .iter()
        .zip(&base.gaps)
        .map(|(gap, base)| if gap == base { "=".into() } else { format!("{:+.2}", gap - base) })
        .collect();
    let Score { optimal, gap, nodes, .. } = score;
    println!("| {name} | {optimal} | {gap:.2} | {nodes} | {} |", kinds.join(" | "));
}

fn head(title: &str, kinds: &[(&str, Vec<Problem>)]) {
    let names: Vec<_> = kinds.iter().map(|(name, all)| format!("{name} ({})", all.len())).collect();
    println!("\n| {title} | optimal | gap ‰ | nodes | {} |", names.join(" | "));
    println!("| --- | ---: | ---: | ---: |{}", " ---: |".repeat(kinds.len()));
}

fn methods(kinds: &[(&str, Vec<Problem>)]) {
    head("methods", kinds);
    let base = score(kinds, &SolveOptions::DEFAULT, EFFORT, 0);
    row("all", &base, &base);
    for seed in 1..SEEDS {
        let other = score(kinds, &SolveOptions::DEFAULT, EFFORT, seed);
        row(&format!("all, seed {seed}"), &other, &base);
    }
    for name in Methods::NAMES {
        let mut options = SolveOptions::DEFAULT;
        options.methods = Methods::ALL.without(name).unwrap();
        row(&format!("without `{name}`"), &score(kinds, &options, EFFORT, 0), &base);
    }
}

/// Prints what all methods achieve, and all but some, for some seeds.
fn group(kinds: &[(&str, Vec<Problem>)], names: &str) {
    head("methods", kinds);
    let mut options = SolveOptions::DEFAULT;
    for name in names.split(',') {
        options.methods = options.methods.without(name).unwrap();
    }
    for seed in 0..GROUP_SEEDS {
        let base = score(kinds, &SolveOptions::DEFAULT, EFFORT, seed);
        row(&format!("all, seed {seed}"), &base, &base);
        let fewer = score(kinds, &options, EFFORT, seed);
        row(&format!("without `{names}`, seed {seed}"), &fewer, &base);
    }
}

fn main() {
    let arguments: Vec<_> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let seed = arguments.iter().find_map(|it| it.strip_prefix("first=")?.parse().ok()).unwrap_or(1);
    let mut kinds = generated(seed);
    let folders = arguments.iter().filter(|it| std::path::Path::new(it).is_dir());
    for folder in folders {
        let name = std::path::Path::new(folder).file_name().and_then(|it| it.to_str());
        kinds.push((name.unwrap_or("stored"), stored(folder, 450)));
    }
    if let Some(names) = arguments.iter().find_map(|it| it.strip_prefix("without=")) {
        group(&kinds, names);
        return;
    }
    methods(&kinds);
}
