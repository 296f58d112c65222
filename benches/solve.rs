//! The packing portfolio by stage and size: synthetic networks, training runs in which
//! thousands of buffers are live at once, and tiles that fill their rectangle.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark is no library")]

use std::hint::black_box;

use arenaplan::base::LiveRange;
use arenaplan::pack::{Buffer, Space};
use arenaplan::{Budget, Problem, solve};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// A generator of random numbers that is the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u32::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// A chain of layers: most buffers die at once, some skip 30 steps, few 400.
fn network(count: u32) -> Problem {
    let mut random = Random(1);
    let buffer = |step| {
        let length = match random.below(100) {
            0..80 => 1 + random.below(3),
            80..97 => 1 + random.below(60),
            _ => 1 + random.below(800),
        };
        let bytes = 256 * (1 + u64::from(random.below(4096)));
        Buffer::new(bytes, LiveRange::new(step, step + 1 + length).unwrap())
    };
    Problem::new((0..count).map(buffer).collect(), vec![Space::default()]).unwrap()
}

/// Tiles of a rectangle without any room between them.
fn tiles(count: usize) -> Problem {
    let mut random = Random(2);
    let mut tiles = vec![(0_u32, 2_000_u32, 0_u32, 1_u32 << 20)];
    while tiles.len() < count {
        let at = usize::try_from(random.below(u32::try_from(tiles.len()).unwrap())).unwrap();
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
        Buffer::new(u64::from(high - low), LiveRange::new(start, end).unwrap())
    };
    Problem::new(tiles.iter().map(buffer).collect(), vec![Space::default()]).unwrap()
}

/// A training run: most buffers live until about the mirror image of their birth.
fn mountain(count: u32) -> Problem {
    let mut random = Random(3);
    let buffer = |_| {
        let start = random.below(count);
        let length = match random.below(3) {
            0 => 1 + random.below(6),
            _ => (2 * (count - start) - 1).saturating_sub(random.below(count / 2)).max(1),
        };
        let bytes = u64::from(2 + random.below(2)) << (8 + random.below(8));
        let live = LiveRange::new(start, start + length).unwrap();
        Buffer::new(bytes + 8 * u64::from(random.below(4)), live)
    };
    Problem::new((0..count).map(buffer).collect(), vec![Space::default()]).unwrap()
}

/// Stages by the number of search nodes after which the portfolio ends: none is the first
/// answer, one is peeling and some greedy passes, and many are all that it takes.
const STAGES: [(&str, u64); 3] = [("first answer", 0), ("greedy", 1), ("optimal", 100_000)];

fn stages(c: &mut Criterion, name: &str, sizes: &[u32], make: fn(u32) -> Problem) {
    let mut group = c.benchmark_group(name);
    group.sample_size(10);
    for &count in sizes {
        let problem = make(count);
        group.throughput(Throughput::Elements(count.into()));
        for (name, nodes) in STAGES {
            let mut budget = Budget::default();
            budget.nodes = Some(nodes);
            group.bench_function(BenchmarkId::new(name, count), |b| {
                b.iter(|| solve(black_box(&problem), &budget).unwrap());
            });
        }
    }
}

fn networks(c: &mut Criterion) {
    stages(c, "network", &[1_000, 10_000, 100_000, 1_000_000], network);
}

fn mountains(c: &mut Criterion) {
    stages(c, "mountain", &[3_000], mountain);
}

fn exact(c: &mut Criterion) {
    let mut group = c.benchmark_group("tiles");
    group.sample_size(10);
    for count in [50, 100, 200] {
        let problem = tiles(count);
        let mut budget = Budget::default();
        budget.nodes = Some(2_000);
        group.bench_function(BenchmarkId::new("2000 nodes", count), |b| {
            b.iter(|| solve(black_box(&problem), &budget).unwrap());
        });
    }
}

criterion_group!(benches, networks, mountains, exact);
criterion_main!(benches);
