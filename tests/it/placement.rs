//! Buffers assigned to spaces, against brute force over all assignments and offsets.

use std::collections::HashMap;

use arenaplan::base::{Alignment, BufferId, LiveRange, MAX_BYTES, Step};
use arenaplan::choose::{
    Assigned, AssignmentProblem, Candidate, Floor, NoRoom, SpaceAssignment, assign_spaces,
};
use arenaplan::pack::{Buffer, Part, Space};
use arenaplan::{Budget, Problem, SpaceId, Status, solve};
use proptest::prelude::*;

/// Bytes, first step, length, traffic, home.
type Row = (u64, u32, u32, u64, Option<usize>);
/// Capacity, alignment, cost.
type Memory = (u64, u64, u64);

fn problem(rows: &[Row], memories: &[Memory]) -> AssignmentProblem {
    let candidates = rows.iter().map(|&(bytes, start, length, traffic, home)| Candidate {
        buffer: Buffer::new(bytes, LiveRange::new(start, start + length).unwrap()),
        traffic,
        home: home.map(SpaceId::new),
    });
    let spaces = memories.iter().enumerate().map(|(index, &(capacity, alignment, cost))| {
        Space::new(format!("m{index}"))
            .with_capacity(capacity)
            .with_alignment(Alignment::new(alignment).unwrap())
            .with_cost(cost)
    });
    AssignmentProblem::new(candidates.collect(), spaces.collect()).unwrap()
}

fn rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let home = prop_oneof![6 => Just(None), 1 => (0..2_usize).prop_map(Some)];
    prop::collection::vec((0..12_u64, 0..6_u32, 1..5_u32, 0..20_u64, home), 1..=most)
}

fn memories() -> impl Strategy<Value = Vec<Memory>> {
    let alignment = prop_oneof![3 => Just(1_u64), 1 => Just(4)];
    prop::collection::vec((4..24_u64, alignment, 0..4_u64), 2..=3)
}

/// Decides by trying all orders of first fit, one of which is the order of the offsets in
/// the lowest packing, whether some buffers fit a memory.
fn packs(rows: &[Row], members: &[usize], (capacity, alignment, _): Memory) -> bool {
    fn place(
        rows: &[Row],
        left: &[usize],
        placed: &mut Vec<(usize, u64)>,
        memory: (u64, u64),
    ) -> bool {
        if left.is_empty() {
            return true;
        }
        (0..left.len()).any(|position| {
            let item = left[position];
            let (bytes, start, length, ..) = rows[item];
            let mut near: Vec<_> = placed
                .iter()
                .filter(|&&(other, _)| {
                    let (_, from, span, ..) = rows[other];
                    from < start + length && start < from + span
                })
                .map(|&(other, offset)| (offset, offset + rows[other].0))
                .collect();
            near.sort_unstable();
            let mut at = 0_u64;
            for (from, to) in near {
                if at + bytes > from {
                    at = at.max(to.next_multiple_of(memory.1));
                }
            }
            if at + bytes > memory.0 {
                return false;
            }
            placed.push((item, at));
            let mut rest = left.to_vec();
            rest.remove(position);
            let fits = place(rows, &rest, placed, memory);
            placed.pop();
            fits
        })
    }
    let left: Vec<_> = members.iter().copied().filter(|&item| rows[item].0 > 0).collect();
    place(rows, &left, &mut Vec::new(), (capacity, alignment))
}

/// Returns the least cost over all assignments that fit.
fn brute_force(rows: &[Row], memories: &[Memory]) -> Option<u64> {
    let mut known: HashMap<(usize, Vec<usize>), bool> = HashMap::new();
    let mut best = None;
    let total = memories.len().pow(u32::try_from(rows.len()).unwrap());
    'assignments: for code in 0..total {
        let mut rest = code;
        let mut members = vec![Vec::new(); memories.len()];
        let mut cost = 0;
        for (item, &(_, _, _, traffic, home)) in rows.iter().enumerate() {
            let space = rest % memories.len();
            rest /= memories.len();
            if home.is_some_and(|home| home != space) {
                continue 'assignments;
            }
            members[space].push(item);
            cost += traffic * memories[space].2;
        }
        if best.is_some_and(|best| best <= cost) {
            continue;
        }
        let fits = members.into_iter().enumerate().all(|(space, members)| {
            *known
                .entry((space, members.clone()))
                .or_insert_with(|| packs(rows, &members, memories[space]))
        });
        if fits {
            best = Some(cost);
        }
    }
    best
}

fn check(problem: &AssignmentProblem, best: &SpaceAssignment) {
    best.packing.check(&best.problem).unwrap();
    assert!(matches!(best.packing.status(), Status::Optimal | Status::Feasible));
    assert!(best.lower_bound <= best.cost);
    let mut cost = 0;
    for (candidate, buffer) in problem.candidates().iter().zip(best.problem.buffers()) {
        assert!(candidate.home.is_none_or(|home| home == buffer.space()));
        cost += candidate.traffic * problem.spaces()[buffer.space().index()].cost();
    }
    assert_eq!(cost, best.cost);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// On small problems the assignment is the cheapest of all, and is known to be; where
    /// there is none, that is proven.
    #[test]
    fn small_assignments_agree_with_brute_force(rows in rows(6), memories in memories()) {
        let problem = problem(&rows, &memories);
        let expected = brute_force(&rows, &memories);
        match assign_spaces(&problem, &Budget::default()).unwrap() {
            Assigned::Fits(best) => {
                check(&problem, &best);
                prop_assert_eq!(Some(best.cost), expected);
                prop_assert_eq!(best.status(), Status::Optimal);
            }
            Assigned::NoRoom(why) => {
                prop_assert_eq!(expected, None);
                prop_assert!(why.proven);
            }
        }
    }

    /// A floor that is said to be one is one: the buffers named do not fit by themselves,
    /// whatever else there is.
    #[test]
    fn the_buffers_of_a_floor_do_not_fit_by_themselves(rows in rows(6), memories in memories()) {
        let problem = problem(&rows, &memories);
        if let Assigned::NoRoom(NoRoom { floor: Floor::Buffer | Floor::Step, step, buffers, .. }) =
            assign_spaces(&problem, &Budget::default()).unwrap()
        {
            let alone: Vec<_> = buffers.iter().map(|id| rows[id.index()]).collect();
            for &(_, start, length, ..) in &alone {
                prop_assert!((start..start + length).contains(&step.get()));
            }
            prop_assert_eq!(brute_force(&alone, &memories), None);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    /// Larger problems: valid, repeatable, and never dearer than everything in one space.
    #[test]
    fn large_assignments_are_never_dearer_than_one_space(
        rows in prop::collection::vec((1..500_u64, 0..40_u32, 1..30_u32, 0..5000_u64), 30..60),
        capacity in 1000..20000_u64,
    ) {
        let rows: Vec<Row> = rows.into_iter().map(|(a, b, c, d)| (a, b, c, d, None)).collect();
        let problem = problem(&rows, &[(capacity, 1, 1), (2 * capacity, 1, 3), (1 << 40, 1, 10)]);
        let mut budget = Budget::default();
        budget.nodes = Some(300);
        let assigned = assign_spaces(&problem, &budget).unwrap();
        prop_assert_eq!(&assigned, &assign_spaces(&problem, &budget).unwrap());
        let Assigned::Fits(best) = assigned else { panic!("the last space holds everything") };
        check(&problem, &best);
        let all: u64 = rows.iter().map(|row| row.3).sum();
        prop_assert!(best.lower_bound >= all);
        for space in problem.spaces() {
            let alone = problem.candidates().iter().map(|one| one.buffer.clone()).collect();
            let alone = Problem::new(alone, vec![space.clone()]).unwrap();
            let packing = solve(&alone, &budget).unwrap();
            if packing.peak() <= space.capacity().unwrap() {
                prop_assert!(best.cost <= space.cost() * all);
            }
        }
    }
}

#[test]
fn a_buffer_that_fits_nowhere_is_the_floor() {
    let problem = problem(&[(5, 0, 1, 1, None), (30, 2, 2, 1, None)], &[(10, 1, 0), (20, 1, 1)]);
    let expected = NoRoom {
        floor: Floor::Buffer,
        step: Step::new(2),
        buffers: vec![BufferId::new(1)],
        proven: true,
    };
    assert_eq!(assign_spaces(&problem, &Budget::default()), Ok(Assigned::NoRoom(expected)));
}

#[test]
fn a_step_that_exceeds_all_spaces_is_the_floor_with_the_largest_buffer_first() {
    let rows = [(10, 0, 3, 1, None), (8, 1, 2, 1, None), (12, 2, 1, 1, None), (9, 3, 1, 1, None)];
    let problem = problem(&rows, &[(14, 1, 0), (14, 1, 1)]);
    let expected = NoRoom {
        floor: Floor::Step,
        step: Step::new(2),
        buffers: [2, 0, 1].map(BufferId::new).to_vec(),
        proven: true,
    };
    assert_eq!(assign_spaces(&problem, &Budget::default()), Ok(Assigned::NoRoom(expected)));
}

#[test]
fn what_fits_at_each_step_but_not_in_time_is_told_apart() {
    // x leaves a and b one space at step 0; at step 2 they would have to be apart.
    let (x, a, b) = ((6, 0, 1, 1, None), (5, 0, 3, 1, None), (5, 0, 3, 1, None));
    let (c, d) = ((5, 2, 1, 1, Some(0)), (5, 2, 1, 1, Some(1)));
    let problem = problem(&[x, a, b, c, d], &[(10, 1, 0), (10, 1, 1)]);
    let Assigned::NoRoom(why) = assign_spaces(&problem, &Budget::default()).unwrap() else {
        panic!("a and b cannot move");
    };
    assert_eq!((why.floor, why.step, why.proven), (Floor::History, Step::new(2), true));
}

#[test]
fn loads_that_fit_without_offsets_send_the_cheapest_conflict_away() {
    // Eight bytes are live, and eight there are; but five and three cannot both be aligned.
    let rows = [(5, 0, 2, 30, None), (3, 0, 2, 20, None), (8, 2, 1, 90, None)];
    let memories = [(8, 4, 0), (100, 1, 1)];
    let aligned = problem(&rows, &memories);
    let Assigned::Fits(best) = assign_spaces(&aligned, &Budget::default()).unwrap() else {
        panic!("the second space holds everything");
    };
    check(&aligned, &best);
    assert_eq!((best.cost, best.lower_bound), (20, 20));

    // Seven bytes are live, and ten there are; but the pin leaves two gaps of four.
    let live = LiveRange::new(0, 2).unwrap();
    let candidate = |buffer, traffic, home| Candidate { buffer, traffic, home };
    let pinned = AssignmentProblem::new(
        vec![
            candidate(Buffer::new(2, live).with_pin(4), 10, Some(SpaceId::new(0))),
            candidate(Buffer::new(5, live), 70, None),
        ],
        vec![Space::new("fast").with_capacity(10), Space::new("slow").with_cost(2)],
    )
    .unwrap();
    let Assigned::Fits(best) = assign_spaces(&pinned, &Budget::default()).unwrap() else {
        panic!("the second space holds everything");
    };
    check(&pinned, &best);
    assert_eq!((best.cost, best.lower_bound), (140, 140));
}

#[test]
fn where_offsets_alone_stand_in_the_way_that_is_proven() {
    let rows = [(5, 0, 2, 30, Some(0)), (3, 0, 2, 20, Some(0))];
    let problem = problem(&rows, &[(8, 4, 0)]);
    let Assigned::NoRoom(why) = assign_spaces(&problem, &Budget::default()).unwrap() else {
        panic!("nine bytes do not fit eight");
    };
    assert_eq!((why.floor, why.step, why.proven), (Floor::Offsets, Step::new(0), true));
}

#[test]
fn of_many_buffers_that_are_live_together_those_stay_that_are_moved_most() {
    // Far too many states to look at; but what is best is plain, and the bound proves it.
    let rows: Vec<Row> = (0..40).map(|i| (10, 0, 3, 100 + (i * 17) % 40, None)).collect();
    let problem = problem(&rows, &[(120, 1, 0), (10_000, 1, 1)]);
    let Assigned::Fits(best) = assign_spaces(&problem, &Budget::default()).unwrap() else {
        panic!("the second space holds everything");
    };
    check(&problem, &best);
    // Twelve fit. The other 28 are those with the traffic 100 to 127.
    let cost: u64 = (100..128).sum();
    assert_eq!((best.cost, best.lower_bound), (cost, cost));
}

#[test]
fn parts_count_when_they_are_live() {
    // Ten bytes from step 0 on, ten more behind them at step 2; 12 other bytes in between.
    let part = |bytes, start, end| Part { bytes, live: vec![LiveRange::new(start, end).unwrap()] };
    let concat = Buffer::with_parts(20, vec![part(0..10, 0, 3), part(10..20, 2, 3)]).unwrap();
    let other = Buffer::new(10, LiveRange::new(1, 2).unwrap());
    let late = Buffer::new(10, LiveRange::new(1, 3).unwrap());
    let spaces = vec![Space::new("fast").with_capacity(20), Space::new("slow").with_cost(1)];
    let candidate = |buffer, traffic| Candidate { buffer, traffic, home: None };
    let solve = |second: Buffer| {
        let candidates = vec![candidate(concat.clone(), 90), candidate(second, 20)];
        let problem = AssignmentProblem::new(candidates, spaces.clone()).unwrap();
        let Assigned::Fits(best) = assign_spaces(&problem, &Budget::default()).unwrap() else {
            panic!("the slow space is unlimited");
        };
        check(&problem, &best);
        best.cost
    };
    assert_eq!(solve(other), 0);
    assert_eq!(solve(late), 20);
}

#[test]
fn problems_that_no_memory_holds_are_refused() {
    let live = LiveRange::new(0, 1).unwrap();
    let kind = |bytes, traffic, home: Option<usize>, spaces: usize| {
        let candidate =
            Candidate { buffer: Buffer::new(bytes, live), traffic, home: home.map(SpaceId::new) };
        let spaces = (0..spaces).map(|index| Space::new(format!("m{index}")).with_cost(2));
        AssignmentProblem::new(vec![candidate], spaces.collect()).err().map(|error| error.kind())
    };
    assert_eq!(kind(1, MAX_BYTES / 2, Some(1), 2), None);
    for (found, expected) in [
        (kind(1, 1, Some(2), 2), "InvalidBuffer"),
        (kind(MAX_BYTES + 1, 1, None, 2), "SizeOverflow"),
        (kind(1, MAX_BYTES / 2 + 1, None, 2), "SizeOverflow"),
        (kind(1, 1, None, 0), "InvalidOption"),
        (kind(1, 1, None, 65), "InvalidOption"),
    ] {
        assert_eq!(found, Some(expected));
    }
}
