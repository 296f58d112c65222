//! Problems with rules: ranges, multiples, groups, reserved bytes, pairs.

use arenaplan::base::{BufferId, LiveRange};
use arenaplan::pack::{Buffer, Gap, Rules, SolveOptions, Space};
use arenaplan::{Budget, Error, Packing, Problem, Status, solve};

use crate::oracle::Random;

fn live(start: u32, end: u32) -> LiveRange {
    LiveRange::new(start, end).unwrap()
}

fn id(number: usize) -> BufferId {
    BufferId::new(number)
}

fn checked(problem: &Problem) -> Packing {
    let packing = solve(problem, &Budget::default()).unwrap();
    packing.check(problem).unwrap();
    packing
}

/// A problem of one space with pairs that may overlap.
fn permitted(buffers: Vec<Buffer>, pairs: &[(usize, usize)]) -> Problem {
    let mut rules = Rules::default();
    rules.may_overlap.extend(pairs.iter().map(|&(one, other)| (id(one), id(other))));
    Problem::with_rules(buffers, vec![Space::default()], rules).unwrap()
}

/// The random rules of one problem, for at most five buffers of a few bytes.
fn random_problem(random: &mut Random) -> Result<Problem, Error> {
    let count = 2 + random.step(4);
    let mut buffers = Vec::new();
    for _ in 0..count {
        let start = random.step(4);
        let range = live(start, start + 1 + random.step(4));
        let bytes = random.below(5);
        let mut buffer = if bytes > 1 && random.one_in(4) {
            let gap = Gap { steps: live(start, start + 1), bytes: 0..bytes - 1 };
            Buffer::with_gaps(bytes, range, &[gap]).unwrap()
        } else {
            Buffer::new(bytes, range)
        };
        if random.one_in(3) {
            buffer = buffer.with_multiple_of(1 + random.below(4)).unwrap();
        }
        if random.one_in(4) {
            let low = random.below(6);
            buffer = buffer.with_range(low..low + bytes + random.below(6));
        }
        if random.one_in(4) {
            buffer = buffer.with_group(random.step(2));
        }
        if random.one_in(6) {
            buffer = buffer.with_pin(random.below(6));
        }
        buffers.push(buffer);
    }
    let mut rules = Rules::default();
    for one in 0..buffers.len() {
        for other in one + 1..buffers.len() {
            match random.below(6) {
                0 => rules.may_overlap.push((id(other), id(one))),
                1 => rules.apart.push((id(one), id(other))),
                _ => {}
            }
        }
    }
    let mut space = Space::default();
    if random.one_in(3) {
        let start = random.below(6);
        space = space.with_reserved(start..start + 1 + random.below(3));
    }
    Problem::with_rules(buffers, vec![space], rules)
}

/// Returns whether one buffer may have an offset, by the definition of each rule.
fn may_be_at(problem: &Problem, buffer: &Buffer, offset: u64) -> bool {
    let end = offset + buffer.bytes();
    buffer.pin().is_none_or(|pin| pin == offset)
        && offset.is_multiple_of(buffer.multiple_of())
        && offset.is_multiple_of(buffer.alignment().bytes())
        && buffer.range().is_none_or(|range| range.start <= offset && end <= range.end)
        && problem.spaces()[0].reserved().iter().all(|it| offset >= it.end || end <= it.start)
}

/// Returns whether two buffers may have these offsets.
fn may_be_so(problem: &Problem, (one, at): (usize, u64), (other, base): (usize, u64)) -> bool {
    let pair = (id(one.min(other)), id(one.max(other)));
    let (first, second) = (&problem.buffers()[one], &problem.buffers()[other]);
    let meet = |a: &std::ops::Range<u64>, b: &std::ops::Range<u64>| {
        (at + a.start).max(base + b.start) < (at + a.end).min(base + b.end)
    };
    let groups = first.group().is_none() || first.group() != second.group() || at == base;
    let apart =
        !problem.rules().apart.contains(&pair) || !meet(&(0..first.bytes()), &(0..second.bytes()));
    let disjoint = problem.rules().may_overlap.contains(&pair)
        || first.rectangles().all(|(bytes, live)| {
            let mut others = second.rectangles();
            others.all(|(of_other, its)| !live.overlaps(its) || !meet(&bytes, &of_other))
        });
    groups && apart && disjoint
}

/// Returns whether offsets below `peak` obey all rules, trying all of them.
fn fits(problem: &Problem, offsets: &mut Vec<u64>, peak: u64) -> bool {
    let Some(buffer) = problem.buffers().get(offsets.len()) else { return true };
    for offset in 0..=peak.saturating_sub(buffer.bytes()) {
        if offset + buffer.bytes() > peak || !may_be_at(problem, buffer, offset) {
            continue;
        }
        let this = (offsets.len(), offset);
        let others = offsets.iter().copied().enumerate();
        if others.into_iter().all(|other| may_be_so(problem, this, other)) {
            offsets.push(offset);
            if fits(problem, offsets, peak) {
                return true;
            }
            offsets.pop();
        }
    }
    false
}

#[test]
fn random_rules_are_solved_and_refused_as_by_trying_all_offsets() {
    let (mut random, mut solved, mut refused, mut above) = (Random(41), 0, 0, 0);
    let rounds = if cfg!(debug_assertions) { 600 } else { 20_000 };
    for round in 0..rounds {
        let Ok(problem) = random_problem(&mut random) else { continue };
        let least = (0..=26).find(|&peak| fits(&problem, &mut Vec::new(), peak));
        match (solve(&problem, &Budget::default()), least) {
            (Ok(packing), Some(least)) => {
                packing.check(&problem).unwrap();
                let found = (packing.peak(), packing.lower_bound(), packing.status());
                assert_eq!(found, (least, least, Status::Optimal), "round {round}: {problem:?}");
                solved += 1;
                let live = |step| {
                    let it = problem.buffers().iter().flat_map(Buffer::rectangles);
                    let it = it.filter(|(_, live)| live.overlaps(self::live(step, step + 1)));
                    it.map(|(bytes, _)| bytes.end - bytes.start).sum::<u64>()
                };
                above += u32::from((0..8).map(live).max().unwrap() < least);
                let capacity = least.saturating_sub(1);
                let space = problem.spaces()[0].clone().with_capacity(capacity);
                let rules = problem.rules().clone();
                let tight = Problem::with_rules(problem.buffers().to_vec(), vec![space], rules);
                if let Ok(tight) = tight
                    && least > 0
                {
                    let packing = checked(&tight);
                    assert_eq!(packing.status(), Status::Infeasible, "{problem:?}");
                }
            }
            (Err(error), None) => {
                assert_eq!(error.kind(), "PinConflict", "round {round}: {problem:?}");
                refused += 1;
            }
            (answer, least) => panic!("round {round}: {answer:?} for {least:?}: {problem:?}"),
        }
    }
    assert!(solved * 4 > rounds && refused * 50 > rounds && above * 20 > rounds);
}

/// In-place permissions as the planner tests of oneDNN's graph compiler ask for them: an operation
/// reads its inputs element by element, so its output may lie over any of them that die.
#[test]
fn outputs_take_the_place_of_inputs_wherever_a_pair_permits_it() {
    let buffer = |bytes, start, end| Buffer::new(bytes, live(start, end));
    // Two inputs, one output that is larger than each of them.
    let merge = vec![buffer(100, 0, 2), buffer(120, 0, 2), buffer(200, 1, 3)];
    assert_eq!(checked(&permitted(merge.clone(), &[(0, 2), (1, 2)])).peak(), 220);
    assert_eq!(checked(&permitted(merge.clone(), &[(0, 2)])).peak(), 320);
    assert_eq!(checked(&permitted(merge, &[])).peak(), 420);
    // The output is larger than both inputs together.
    let larger = vec![buffer(100, 0, 2), buffer(120, 0, 2), buffer(500, 1, 3)];
    assert_eq!(checked(&permitted(larger, &[(0, 2), (1, 2)])).peak(), 500);
    // Two outputs over two inputs: each output meets the other, and so do the inputs.
    let both = vec![buffer(100, 0, 2), buffer(120, 0, 2), buffer(110, 1, 3), buffer(90, 1, 3)];
    let all = [(0, 2), (0, 3), (1, 2), (1, 3)];
    assert_eq!(checked(&permitted(both, &all)).peak(), 220);
    // A cycle of four conflicts, which no live ranges have: the largest load is no bound.
    let four = vec![buffer(100, 0, 2), buffer(120, 0, 2), buffer(120, 1, 3), buffer(100, 1, 3)];
    let packing = checked(&permitted(four, &[(0, 3), (1, 2)]));
    assert_eq!((packing.peak(), packing.status()), (220, Status::Optimal));
}

#[test]
fn contradicting_rules_are_refused_by_the_buffer() {
    let buffer = || Buffer::new(8, live(0, 2));
    let refused = |buffers: Vec<Buffer>, rules: Rules| {
        let problem = Problem::with_rules(buffers, vec![Space::default()], rules);
        let solved = problem.and_then(|problem| solve(&problem, &Budget::default()));
        solved.unwrap_err().to_string()
    };
    let none = Rules::default;
    let text = refused(vec![buffer().with_range(4..11)], none());
    assert_eq!(text, "buffer 0: its 8 bytes do not fit into 4..11");
    let text = refused(vec![buffer().with_group(1), buffer().with_group(1)], none());
    assert!(text.contains("the same offset as buffer 0, which is live at step 0"), "{text}");
    let text = refused(vec![buffer().with_range(0..8), buffer().with_range(0..15)], none());
    assert_eq!(text, "no offsets exist that obey all rules of space 'arena'");
    let mut twice = none();
    twice.apart.push((id(0), id(0)));
    assert_eq!(refused(vec![buffer()], twice), "buffer 0: a rule for pairs names it twice");
    let mut absent = none();
    absent.may_overlap.push((id(3), id(0)));
    assert_eq!(
        refused(vec![buffer()], absent),
        "buffer 0: a rule pairs it with buffer 3, which is not there"
    );
    let mut both = none();
    both.may_overlap.push((id(1), id(0)));
    both.apart.push((id(0), id(1)));
    assert_eq!(
        refused(vec![buffer(), buffer()], both),
        "buffer 0: it may overlap buffer 1, and must be apart from it"
    );
    let text = refused(vec![buffer().with_pin(16).with_range(0..20)], none());
    assert_eq!(text, "buffer 0 is pinned to 16, outside of its range 0..20");
}

#[test]
fn a_space_with_rules_is_packed_without_disjunctive_search_too() {
    let mut random = Random(5);
    let buffers = (0..300).map(|number| {
        let start = random.step(200);
        let buffer = Buffer::new(1 + random.below(90), live(start, start + 1 + random.step(20)));
        if number % 3 == 0 { buffer.with_multiple_of(12).unwrap() } else { buffer }
    });
    let problem = Problem::new(buffers.collect(), vec![Space::default()]).unwrap();
    let mut options = SolveOptions::default();
    options.methods.disjunctive = false;
    let mut budget = Budget::default();
    budget.options = Some(&options);
    budget.nodes = Some(200);
    let packing = solve(&problem, &budget).unwrap();
    packing.check(&problem).unwrap();
    assert!(packing.peak() < packing.lower_bound() * 3 / 2);
}

#[test]
fn an_empty_range_of_reserved_bytes_is_in_nobodys_way() {
    let space = Space::default().with_reserved(1..1);
    let problem = Problem::new(vec![Buffer::new(8, live(0, 1))], vec![space]).unwrap();
    assert_eq!(checked(&problem).peak(), 8);
}
