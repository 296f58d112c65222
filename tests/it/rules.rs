//! Problems with rules: ranges, multiples, groups, reserved bytes, pairs.

use arenaplan::base::{BufferId, LiveRange};
use arenaplan::pack::{Buffer, Gap, Rules, SolveOptions, Space, compact};
use arenaplan::{Budget, Error, Packing, Problem, SpaceId, Status, solve};

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
pub(crate) fn random_problem(random: &mut Random) -> Result<Problem, Error> {
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
        if random.one_in(5) {
            buffer = buffer.with_hint(random.below(8));
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
    Ok(Problem::with_rules(buffers, vec![space], rules)?)
}

/// Returns whether one buffer may have an offset, by the definition of each rule.
fn may_be_at(problem: &Problem, buffer: &Buffer, offset: u64) -> bool {
    let end = offset + buffer.bytes();
    buffer.pin().is_none_or(|pin| pin == offset)
        && offset.is_multiple_of(buffer.multiple_of())
        && offset.is_multiple_of(buffer.alignment().bytes())
        && offset.is_multiple_of(problem.spaces()[0].alignment().bytes())
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
    // Most pairs are told apart by this, which lists no rectangles.
    let is_beside = !meet(&(0..first.bytes()), &(0..second.bytes()));
    let apart = is_beside || !problem.rules().apart.contains(&pair);
    let disjoint = is_beside
        || problem.rules().may_overlap.contains(&pair)
        || first.rectangles().all(|(bytes, live)| {
            let mut others = second.rectangles();
            others.all(|(of_other, its)| !live.overlaps(its) || !meet(&bytes, &of_other))
        });
    groups && apart && disjoint
}

/// Returns whether offsets below `peak` obey all rules, trying all of them.
pub(crate) fn fits(problem: &Problem, offsets: &mut Vec<u64>, peak: u64) -> bool {
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

/// Returns whether a buffer could be lower with all others where they are; those of its group move along.
fn could_be_lower(problem: &Problem, offsets: &[u64], index: usize) -> bool {
    let group = |it: usize| problem.buffers()[it].group();
    let moves = |it: usize| it == index || group(it).is_some() && group(it) == group(index);
    (0..offsets[index]).any(|offset| {
        let at = |it: usize| (it, if moves(it) { offset } else { offsets[it] });
        (0..offsets.len()).filter(|&it| moves(it)).all(|it| {
            may_be_at(problem, &problem.buffers()[it], offset)
                && (0..offsets.len())
                    .filter(|&other| other != it)
                    .all(|other| may_be_so(problem, at(it), at(other)))
        })
    })
}

#[test]
fn compacted_buffers_could_not_be_lower() {
    let (mut random, mut fell, mut count) = (Random(52), 0, 0);
    for round in 0..if cfg!(debug_assertions) { 1_000 } else { 10_000 } {
        let Ok(problem) = random_problem(&mut random) else { continue };
        // With a large buffer at a time of its own, so that hints do not raise the peak.
        let hinted = |it: &Buffer| it.clone().with_hint(random.below(16));
        let large = Buffer::new(24, live(9, 10));
        let buffers = problem.buffers().iter().map(hinted).chain([large]).collect();
        let spaces = problem.spaces().to_vec();
        let problem = Problem::with_rules(buffers, spaces, problem.rules().clone()).unwrap();
        let Ok(packing) = solve(&problem, &Budget::default()) else { continue };
        let lower = compact(&problem, &packing, &Budget::default()).unwrap();
        lower.check(&problem).unwrap();
        assert_eq!(lower.peak(), packing.peak(), "round {round}: {problem:?}");
        let could =
            (0..packing.offsets().len()).find(|&it| could_be_lower(&problem, lower.offsets(), it));
        assert_eq!(could, None, "round {round}: {lower:?} {problem:?}");
        let offsets = packing.offsets().iter().zip(lower.offsets());
        assert!(offsets.clone().all(|(before, after)| after <= before));
        fell += offsets.filter(|(before, after)| after < before).count();
        count += packing.offsets().len();
    }
    assert!(fell * 20 > count, "{fell} of {count}");
}

#[test]
fn hints_are_tried_first_beside_rules() {
    // The reserved bytes are the rule. Of the three that may begin at 8, the one with the first hint does.
    let space = Space::default().with_reserved(64..65);
    let hinted = |at| Buffer::new(8, live(0, 1)).with_hint(at);
    let buffers = vec![
        hinted(8),
        hinted(9),
        hinted(60), // where it would meet the reserved bytes
        Buffer::new(8, live(0, 1)).with_pin(24),
        Buffer::new(48, live(1, 2)),
        Buffer::new(4, live(1, 2)).with_hint(52).with_range(40..60),
        Buffer::new(4, live(1, 2)).with_hint(u64::MAX),
    ];
    let packing = checked(&Problem::new(buffers, vec![space]).unwrap());
    assert_eq!((packing.peak(), packing.offsets()), (56, &[8, 0, 16, 24, 0, 52, 48][..]));
}

#[test]
fn a_packing_of_another_problem_is_not_compacted() {
    let problem = |bytes| {
        let buffers = vec![Buffer::new(8, live(0, 2)), Buffer::new(bytes, live(1, 3))];
        Problem::new(buffers, vec![Space::default()]).unwrap()
    };
    let packing = checked(&problem(8));
    let error = compact(&problem(12), &packing, &Budget::default()).unwrap_err();
    assert_eq!(error.kind(), "PlanMismatch");
}

#[test]
fn a_space_has_a_multiple_that_is_no_power_of_two() {
    let four = Space::new("far").with_multiple_of(4).unwrap();
    let spaces = vec![Space::default().with_multiple_of(6).unwrap(), four.clone()];
    assert_eq!(four.alignment().bytes(), 4);
    let buffers = vec![
        Buffer::new(5, live(0, 2)),
        Buffer::new(5, live(0, 2)).with_multiple_of(4).unwrap(),
        Buffer::new(5, live(0, 2)).with_multiple_of(9).unwrap(),
        Buffer::new(5, live(0, 2)).with_multiple_of(9).unwrap().with_space(SpaceId::new(1)),
    ];
    let problem = Problem::new(buffers.clone(), spaces).unwrap();
    let multiples: Vec<_> = problem.buffers().iter().map(Buffer::multiple_of).collect();
    assert_eq!(multiples, [6, 6, 18, 9]);
    let packing = checked(&problem);
    // Multiples of 6, 12 and 18: 6, 12 and 0 is the only answer of 17 bytes.
    assert_eq!(packing.offsets(), [6, 12, 0, 0]);
    for bytes in [0, (1 << 62) + 1] {
        assert_eq!(
            Space::default().with_multiple_of(bytes).unwrap_err().kind(),
            "InvalidAlignment"
        );
    }
    let huge = Space::default().with_multiple_of((1 << 61) - 1).unwrap();
    let error = Problem::new(buffers[2..3].to_vec(), vec![huge]).unwrap_err();
    assert_eq!(
        error.to_string().split(" is ").next(),
        Some("alignment 2305843009213693951 of buffer 0")
    );
}

/// Which bytes two live buffers may share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Any bytes.
    Any,
    /// Bytes of the same index only: either both begin at one offset, or they share none.
    SameIndex,
}

/// Returns the least peak of a trace in which buffers 1 to *n* are made (so many bytes) and freed (0 bytes),
/// in units of ten bytes. No offsets with a smaller peak are found by trying all of them.
fn peak_of_trace(trace: &[(usize, u64)], pairs: &[(usize, usize, Share)]) -> u64 {
    let count = trace.iter().map(|event| event.0).max().unwrap();
    let at = |number: usize, is_birth: bool| {
        let mut steps = trace.iter().zip(0..);
        let step = steps.find(|(event, _)| event.0 == number && (event.1 > 0) == is_birth);
        step.map_or(u32::try_from(trace.len()).unwrap(), |(_, step)| step)
    };
    let bytes = |number| trace.iter().find(|event| event.0 == number).unwrap().1;
    let buffer =
        |number| Buffer::new(bytes(number) / 10, live(at(number, true), at(number, false)));
    let buffers: Vec<Buffer> = (1..=count).map(buffer).collect();
    let exact: Vec<_> = pairs.iter().filter(|pair| pair.2 == Share::SameIndex).collect();
    let mut least = u64::MAX;
    // Each pair of the second kind makes two problems: one with the same offset, and one apart.
    for choice in 0..1_usize << exact.len() {
        let mut buffers = buffers.clone();
        let mut permits: Vec<_> =
            pairs.iter().filter(|it| it.2 == Share::Any).map(|it| (it.0 - 1, it.1 - 1)).collect();
        for (bit, &&(one, other, _)) in exact.iter().enumerate().filter(|it| choice >> it.0 & 1 > 0)
        {
            for place in [one - 1, other - 1] {
                buffers[place] = buffers[place].clone().with_group(u32::try_from(bit).unwrap());
            }
            permits.push((one - 1, other - 1));
        }
        let problem = permitted(buffers, &permits);
        let packing = checked(&problem);
        assert_eq!(packing.status(), Status::Optimal);
        assert!(!fits(&problem, &mut Vec::new(), packing.peak() - 1));
        least = least.min(packing.peak() * 10);
    }
    least
}

/// The problems of the tests of the memory planner of oneDNN's graph compiler: an operation reads its
/// inputs element by element, so its output may lie over any of them that die.
///
/// Where that planner finds more than the least peak, the comment has its figure.
#[test]
fn outputs_take_the_place_of_inputs_wherever_a_pair_permits_it() {
    use Share::{Any, SameIndex};
    let peak = peak_of_trace;
    let free = |numbers: std::ops::RangeInclusive<usize>| numbers.map(|number| (number, 0));
    // No permission.
    let plain = [
        (1, 100),
        (2, 120),
        (3, 100),
        (1, 0),
        (4, 50),
        (5, 60),
        (3, 0),
        (5, 0),
        (9, 100),
        (9, 0),
        (6, 60),
        (6, 0),
        (2, 0),
        (7, 350),
        (4, 0),
        (8, 100),
    ];
    assert_eq!(peak(&plain, &[]), 450);
    // One output over two inputs, then a buffer that takes the place of both.
    let both = [(3, 1, Any), (3, 2, Any)];
    let mut trace = vec![(1, 120), (2, 100), (3, 200)];
    trace.extend(free(1..=3).chain([(4, 220)]));
    assert_eq!(peak(&trace, &both), 220);
    assert_eq!(peak(&trace, &[]), 420);
    // An output that is larger than both inputs.
    let mut trace = vec![(1, 120), (2, 100), (4, 250), (3, 250)];
    trace.extend(free(1..=4));
    assert_eq!(peak(&trace, &both), 500);
    // Two outputs over two inputs, beside a small one.
    let mut trace = vec![(1, 120), (2, 100), (3, 150), (4, 50), (5, 10)];
    trace.extend(free(1..=5));
    let pairs = |third, fourth| [(3, 1, Any), (3, 2, third), (4, 1, Any), (4, 2, fourth)];
    assert_eq!(peak(&trace, &pairs(Any, Any)), 230);
    assert_eq!(peak(&trace, &pairs(SameIndex, Any)), 230); // 260 there
    assert_eq!(peak(&trace, &pairs(Any, SameIndex)), 230); // 280 there
    // An output over an input and over what has died beside it.
    let mut trace = vec![(1, 120), (2, 100), (3, 150), (2, 0), (4, 150), (5, 10), (1, 0)];
    trace.extend(free(3..=5));
    assert_eq!(peak(&trace, &[(4, 1, Any)]), 370);
    // Outputs of the sizes of the inputs.
    let mut trace = vec![(1, 120), (2, 100), (3, 100), (4, 120)];
    trace.extend(free(1..=4).chain([(5, 200), (5, 0)]));
    assert_eq!(peak(&trace, &[(3, 1, Any), (3, 2, Any), (4, 1, Any), (4, 2, Any)]), 220);
    // Each output over one input: a cycle of four conflicts, which no live ranges have, so the largest
    // load is no bound.
    assert_eq!(peak(&trace, &[(3, 1, Any), (4, 2, Any)]), 240);
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
