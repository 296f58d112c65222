//! Packings of problems that can be checked by hand.

use arenaplan::base::{Alignment, LiveRange, MAX_BYTES};
use arenaplan::pack::{Buffer, Error, Part, Space};
use arenaplan::{Budget, Packing, Problem, SpaceId, Status, solve};

fn live(start: u32, end: u32) -> LiveRange {
    LiveRange::new(start, end).unwrap()
}

fn part(bytes: std::ops::Range<u64>, ranges: &[(u32, u32)]) -> Part {
    Part { bytes, live: ranges.iter().map(|&(start, end)| live(start, end)).collect() }
}

/// Solves, and checks the answer, whatever it is.
fn checked(problem: &Problem) -> Packing {
    let packing = solve(problem, &Budget::default()).unwrap();
    packing.check(problem).unwrap();
    packing
}

fn one_space(buffers: Vec<Buffer>) -> Problem {
    Problem::new(buffers, vec![Space::default()]).unwrap()
}

#[test]
fn an_empty_problem_has_an_empty_optimal_packing() {
    let packing = checked(&one_space(vec![]));
    assert_eq!((packing.peak(), packing.status()), (0, Status::Optimal));
}

#[test]
fn buffers_without_bytes_take_no_room_and_honor_their_pins() {
    let problem = one_space(vec![
        Buffer::new(0, live(0, 4)),
        Buffer::new(8, live(0, 4)),
        Buffer::new(0, live(1, 2)).with_pin(4),
    ]);
    let packing = checked(&problem);
    assert_eq!((packing.peak(), packing.status()), (8, Status::Optimal));
    assert_eq!(packing.offsets()[2], 4);
}

#[test]
fn a_pinned_buffer_stays_where_it_is_and_others_go_around() {
    let problem = one_space(vec![
        Buffer::new(6, live(0, 3)),
        Buffer::new(4, live(1, 2)).with_pin(3),
        Buffer::new(3, live(1, 3)),
    ]);
    let packing = checked(&problem);
    assert_eq!(packing.offsets(), [7, 3, 0]);
    assert_eq!(packing.status(), Status::Optimal);
}

#[test]
fn padding_counts_except_at_the_top() {
    let align = Alignment::new(64).unwrap();
    let buffers = [100, 70].map(|bytes| Buffer::new(bytes, live(0, 1)).with_alignment(align));
    let packing = checked(&one_space(buffers.to_vec()));
    // 100 at 0, 70 at 128: 198 bytes; the other way around takes 228.
    assert_eq!((packing.peak(), packing.lower_bound()), (198, 198));
    assert_eq!(packing.status(), Status::Optimal);
}

#[test]
fn parts_share_what_the_hull_would_waste() {
    // A concatenation: its second half is written late, so `other` can use it before.
    let concat = vec![part(0..10, &[(0, 6)]), part(10..20, &[(4, 6)])];
    let problem =
        one_space(vec![Buffer::with_parts(20, concat).unwrap(), Buffer::new(10, live(1, 4))]);
    let packing = checked(&problem);
    assert_eq!((packing.peak(), packing.status()), (20, Status::Optimal));
}

#[test]
fn a_buffer_that_is_idle_in_between_lends_its_bytes() {
    let idle = vec![part(0..8, &[(0, 2), (5, 7)])];
    let problem = one_space(vec![
        Buffer::with_parts(8, idle).unwrap(),
        Buffer::new(8, live(2, 5)),
        Buffer::new(8, live(0, 7)),
    ]);
    let packing = checked(&problem);
    assert_eq!((packing.peak(), packing.status()), (16, Status::Optimal));
}

#[test]
fn parts_of_a_buffer_must_not_hold_one_byte_twice() {
    let twice = vec![part(0..8, &[(0, 2)]), part(4..9, &[(1, 3)])];
    let error = Buffer::with_parts(9, twice).unwrap_err();
    assert_eq!(error.kind(), "InvalidBuffer");
}

#[test]
fn spaces_are_packed_apart_from_each_other() {
    let spaces = vec![Space::new("fast").with_capacity(8), Space::new("slow")];
    let slow = SpaceId::new(1);
    let problem = Problem::new(
        vec![
            Buffer::new(8, live(0, 2)),
            Buffer::new(5, live(0, 2)).with_space(slow),
            Buffer::new(8, live(2, 3)),
            Buffer::new(6, live(1, 3)).with_space(slow),
        ],
        spaces,
    )
    .unwrap();
    let packing = checked(&problem);
    assert_eq!(packing.space(SpaceId::new(0)).peak, 8);
    assert_eq!(packing.space(slow).peak, 11);
    assert_eq!((packing.peak(), packing.status()), (19, Status::Optimal));
}

#[test]
fn a_capacity_below_the_load_is_proven_infeasible() {
    let space = Space::default().with_capacity(15);
    let buffers = vec![Buffer::new(8, live(0, 2)), Buffer::new(8, live(1, 3))];
    let packing = checked(&Problem::new(buffers, vec![space]).unwrap());
    assert_eq!((packing.peak(), packing.status()), (16, Status::Infeasible));
}

#[test]
fn good_hints_are_taken() {
    let problem = one_space(vec![
        Buffer::new(4, live(0, 2)).with_hint(4),
        Buffer::new(4, live(0, 2)).with_hint(0),
    ]);
    assert_eq!(checked(&problem).offsets(), [4, 0]);
}

#[test]
fn sizes_near_the_limit_are_packed_or_refused() {
    let half = MAX_BYTES / 2;
    let fits = one_space(vec![Buffer::new(half, live(0, 2)), Buffer::new(half, live(1, 3))]);
    assert_eq!(checked(&fits).peak(), 2 * half);
    let sizes = [half, half, half, MAX_BYTES];
    let too_much = one_space(sizes.map(|bytes| Buffer::new(bytes, live(0, 2))).to_vec());
    assert!(matches!(solve(&too_much, &Budget::default()), Err(Error::SizeOverflow { .. })));
}

#[test]
fn the_checker_rejects_each_wrong_figure() {
    let problem = one_space(vec![Buffer::new(4, live(0, 2)), Buffer::new(4, live(1, 3))]);
    let other = one_space(vec![Buffer::new(4, live(0, 2)), Buffer::new(4, live(2, 3))]);
    let packing = checked(&problem);
    // Another problem's packing overlaps, or has a different peak.
    assert!(checked(&other).check(&problem).is_err());
    assert!(packing.check(&one_space(vec![Buffer::new(4, live(0, 2))])).is_err());
    let pinned =
        one_space(vec![Buffer::new(4, live(0, 2)).with_pin(8), Buffer::new(4, live(1, 3))]);
    assert!(packing.check(&pinned).is_err());
}

/// A deep network: each value is read by the next node, each tenth again twenty nodes later.
#[test]
fn long_chains_of_small_loads_are_packed_at_their_bound() {
    for (count, modulus) in [(1_000_u32, 97_u64), (1_500, 89)] {
        let buffer = |index: u32| {
            let end = if (index + 1).is_multiple_of(10) { index + 22 } else { index + 2 };
            let bytes = 64 * (1 + u64::from(index) * 7919 % modulus);
            Buffer::new(bytes, live(index, end.min(count)))
        };
        let packing = checked(&one_space((0..count).map(buffer).collect()));
        assert_eq!(packing.status(), Status::Optimal, "{count} buffers, {}", packing.peak());
    }
}
