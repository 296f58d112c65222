//! Packing again with few buffers at other offsets.

use arenaplan::base::{BufferId, LiveRange};
use arenaplan::pack::{Buffer, Part, Rules, Space, repack};
use arenaplan::{Budget, Problem, Status, solve};

use crate::oracle::Random;

/// A chain of layers with some long edges.
fn chain(random: &mut Random, count: u32) -> Vec<Buffer> {
    let buffer = |step| {
        let length = if random.one_in(8) { 2 + random.step(40) } else { 1 + random.step(3) };
        let live = LiveRange::new(step, step + 1 + length).unwrap();
        Buffer::new(64 * (1 + random.below(64)), live)
    };
    (0..count).map(buffer).collect()
}

fn one_space(buffers: Vec<Buffer>) -> Problem {
    Problem::new(buffers, vec![Space::default()]).unwrap()
}

fn old_offsets(problem: &Problem) -> Vec<Option<u64>> {
    let packing = solve(problem, &Budget::default()).unwrap();
    packing.offsets().iter().copied().map(Some).collect()
}

#[test]
fn an_unchanged_problem_moves_nothing() {
    let problem = one_space(chain(&mut Random(3), 200));
    let old = old_offsets(&problem);
    let again = repack(&problem, &old, &Budget::default()).unwrap();
    assert_eq!((again.moved, again.packing.status()), (vec![], Status::Optimal));
    assert_eq!(again.peak_of_staying, again.packing.peak());
}

#[test]
fn few_changes_move_few_buffers_at_the_peak_from_scratch() {
    let (mut moved, mut all) = (0, 0);
    for seed in 0..10 {
        let mut random = Random(seed);
        let mut buffers = chain(&mut random, 300);
        let old = old_offsets(&one_space(buffers.clone()));
        for _ in 0..3 {
            let at = usize::try_from(random.below(300)).unwrap();
            let bytes = buffers[at].bytes() + 64 * random.below(8);
            buffers[at] = Buffer::new(bytes, buffers[at].live());
        }
        let problem = one_space(buffers);
        let fresh = solve(&problem, &Budget::default()).unwrap();
        let again = repack(&problem, &old, &Budget::default()).unwrap();
        again.packing.check(&problem).unwrap();
        assert!(again.packing.peak() <= fresh.peak(), "seed {seed}");
        assert!(again.peak_of_staying >= again.packing.lower_bound(), "seed {seed}");
        let differs = |&id: &usize| old[id] != Some(again.packing.offsets()[id]);
        let expected: Vec<BufferId> = (0..300).filter(differs).map(BufferId::new).collect();
        assert_eq!(again.moved, expected, "seed {seed}");
        moved += again.moved.len();
        all += 300;
    }
    assert!(moved * 10 <= all, "{moved} of {all} moved");
}

#[test]
fn old_offsets_that_no_longer_do_are_left() {
    let live = LiveRange::new(0, 2).unwrap();
    let buffer = |bytes: u64| Buffer::new(bytes, live);
    let problem = one_space(vec![
        buffer(8).with_multiple_of(12).unwrap(),
        buffer(8).with_range(16..64),
        buffer(8),
        buffer(8).with_pin(0),
    ]);
    let old = [Some(8), Some(0), None, Some(16)];
    let again = repack(&problem, &old, &Budget::default()).unwrap();
    again.packing.check(&problem).unwrap();
    assert_eq!(again.moved.len(), 4);
    let error = repack(&problem, &old[1..], &Budget::default()).unwrap_err();
    assert_eq!(error.to_string(), "buffer 3: there are 3 old offsets and 4 buffers");
}

/// Buffers that are all live at step 10, with short ones before and after.
fn full_section(random: &mut Random, count: u32) -> Vec<Buffer> {
    let long = |_| {
        let bytes = 64 << random.below(3);
        let live = LiveRange::new(random.step(10), 11 + random.step(10)).unwrap();
        Buffer::new(bytes, live)
    };
    (0..count).map(long).collect()
}

#[test]
fn buffers_that_change_in_a_full_section_are_exchanged_for_few_others() {
    let (mut moved, mut all) = (0, 0);
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut buffers = full_section(&mut random, 60);
        let old = old_offsets(&one_space(buffers.clone()));
        // Buffer 7 grows, and buffer 11 shrinks: no room of another one is as large as theirs.
        for (index, bytes) in [(7, buffers[7].bytes() + 24), (11, buffers[11].bytes() - 24)] {
            buffers[index] = Buffer::new(bytes, buffers[index].live());
        }
        let problem = one_space(buffers);
        let fresh = solve(&problem, &Budget::default()).unwrap();
        let again = repack(&problem, &old, &Budget::default()).unwrap();
        again.packing.check(&problem).unwrap();
        assert!(again.packing.peak() <= fresh.peak(), "seed {seed}");
        moved += again.moved.len();
        all += 60;
    }
    assert!(moved * 4 <= all, "{moved} of {all} moved");
}

/// Buffers with alignments, windows, ranges and reserved bytes, and a pair that may overlap.
fn mixed(random: &mut Random) -> Problem {
    let buffer = |step: u32| {
        let bytes = 16 * (1 + random.below(12));
        let end = step + 2 + random.step(6);
        let live = LiveRange::new(step, end).unwrap();
        match random.below(8) {
            0 => Buffer::new(bytes, live).with_multiple_of(48).unwrap(),
            1 => Buffer::new(bytes, live).with_range(64..4096),
            2 => {
                let short = LiveRange::new(step, step + 1).unwrap();
                let part = |bytes, live| Part { bytes, live: vec![live] };
                let parts = vec![part(0..bytes / 2, live), part(bytes / 2..bytes, short)];
                Buffer::with_parts(bytes, parts).unwrap()
            }
            _ => Buffer::new(bytes, live),
        }
    };
    let buffers = (0..60).map(buffer).collect();
    let may_overlap = vec![(BufferId::new(7), BufferId::new(8))];
    let rules = Rules { may_overlap, ..Rules::default() };
    Problem::with_rules(buffers, vec![Space::default().with_reserved(640..704)], rules).unwrap()
}

#[test]
fn buffers_with_features_are_displaced_validly() {
    let (mut moved, mut all) = (0, 0);
    for seed in 0..40 {
        let mut random = Random(seed);
        let problem = mixed(&mut random);
        let old = old_offsets(&problem);
        let mut buffers = problem.buffers().to_vec();
        for index in [10, 30, 50] {
            buffers[index] = Buffer::new(buffers[index].bytes() + 32, buffers[index].live());
        }
        let spaces = problem.spaces().to_vec();
        let changed = Problem::with_rules(buffers, spaces, problem.rules().clone()).unwrap();
        let fresh = solve(&changed, &Budget::default()).unwrap();
        let again = repack(&changed, &old, &Budget::default()).unwrap();
        again.packing.check(&changed).unwrap();
        assert!(again.packing.peak() <= fresh.peak(), "seed {seed}");
        let same = repack(&changed, &old, &Budget::default()).unwrap();
        assert_eq!(again, same, "seed {seed}");
        moved += again.moved.len();
        all += 60;
    }
    assert!(moved * 3 <= all, "{moved} of {all} moved");
}
