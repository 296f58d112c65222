//! Buffers that may be in several spaces, and pairs that are never in one, against trying everything.

use arenaplan::base::{Alignment, BufferId, LiveRange};
use arenaplan::format::CsvProblem;
use arenaplan::pack::{Buffer, Rules, Space, compact, infeasible_subset, repack};
use arenaplan::{Budget, Packing, Problem, Result, SpaceId, Status, solve};

use crate::oracle::Random;
use crate::rules::{fits, random_problem};

fn live(start: u32, end: u32) -> LiveRange {
    LiveRange::new(start, end).unwrap()
}

/// A buffer that may be in each of the first `spaces` spaces.
fn anywhere(bytes: u64, range: LiveRange, spaces: usize) -> Buffer {
    Buffer::new(bytes, range).with_spaces((0..spaces).map(SpaceId::new)).unwrap()
}

/// Rules whose only pairs are separate.
fn separate(pairs: &[(usize, usize)]) -> Rules {
    let mut rules = Rules::default();
    let id = BufferId::new;
    rules.separate.extend(pairs.iter().map(|&(one, other)| (id(one), id(other))));
    rules
}

fn checked(problem: &Problem) -> Packing {
    let packing = solve(problem, &Budget::default()).unwrap();
    packing.check(problem).unwrap();
    packing
}

/// Returns the random problem of one space with a choice of up to three spaces, and separate pairs.
fn random_choice(random: &mut Random) -> Result<Problem> {
    let plain = random_problem(random)?;
    let mut spaces = plain.spaces().to_vec();
    for name in ["b", "c"].into_iter().take(1 + usize::from(random.one_in(2))) {
        let mut space = Space::new(name);
        if random.one_in(4) {
            space = space.with_alignment(Alignment::new(1 << random.below(3)).unwrap());
        }
        if random.one_in(4) {
            space = space.with_multiple_of(3).unwrap();
        }
        if random.one_in(4) {
            let start = random.below(5);
            space = space.with_reserved(start..start + 1 + random.below(2));
        }
        spaces.push(space);
    }
    let mut choosing = |buffer: &Buffer| {
        let mut chosen: Vec<_> = (0..spaces.len()).filter(|_| !random.one_in(4)).collect();
        chosen
            .extend(Some(random.below(spaces.len() as u64) as usize).filter(|_| chosen.is_empty()));
        buffer.clone().with_spaces(chosen.into_iter().map(SpaceId::new)).unwrap()
    };
    let buffers: Vec<_> = plain.buffers().iter().map(&mut choosing).collect();
    let mut rules = plain.rules().clone();
    for other in 1..buffers.len() {
        for one in 0..other {
            if random.one_in(3) {
                rules.separate.push((BufferId::new(other), BufferId::new(one)));
            }
        }
    }
    for space in &mut spaces {
        if random.one_in(3) {
            *space = space.clone().with_capacity(random.below(8));
        }
    }
    Ok(Problem::with_rules(buffers, spaces, rules)?)
}

/// Returns the least peak of some buffers in one space by trying all offsets; nothing if no offsets obey
/// the rules.
fn least_peak(problem: &Problem, space: usize, members: &[usize]) -> Option<u64> {
    let place = |id: &BufferId| members.iter().position(|&it| it == id.index()).map(BufferId::new);
    let pairs = |pairs: &[(BufferId, BufferId)]| {
        pairs.iter().filter_map(|(one, other)| Some((place(one)?, place(other)?))).collect()
    };
    let mut rules = Rules::default();
    rules.may_overlap = pairs(&problem.rules().may_overlap);
    rules.apart = pairs(&problem.rules().apart);
    let buffer = |&it: &usize| problem.buffers()[it].clone().with_space(SpaceId::new(0));
    let buffers = members.iter().map(buffer).collect();
    let space = problem.spaces()[space].clone();
    // Capacities count later; a pin past one is refused here.
    let problem = Problem::with_rules(buffers, vec![space], rules).ok()?;
    (0..=40).find(|&peak| fits(&problem, &mut Vec::new(), peak))
}

/// The outcome of trying all spaces and offsets.
struct Truth {
    /// Whether some spaces and offsets obey the rules.
    is_possible: bool,
    /// The fewest bytes of all spaces together, within the capacities.
    least: Option<u64>,
}

fn truth(problem: &Problem) -> Truth {
    let (count, spaces) = (problem.buffers().len(), problem.spaces().len());
    let mut truth = Truth { is_possible: false, least: None };
    for code in 0..spaces.pow(u32::try_from(count).unwrap()) {
        let place = |buffer: usize| code / spaces.pow(u32::try_from(buffer).unwrap()) % spaces;
        let may = |it: &usize| problem.buffers()[*it].spaces().contains(&SpaceId::new(place(*it)));
        let mut pairs = problem.rules().separate.iter();
        if !(0..count).all(|it| may(&it))
            || pairs.any(|(one, other)| place(one.index()) == place(other.index()))
        {
            continue;
        }
        let members =
            |space: usize| (0..count).filter(|&it| place(it) == space).collect::<Vec<_>>();
        let peaks: Option<Vec<u64>> =
            (0..spaces).map(|space| least_peak(problem, space, &members(space))).collect();
        let Some(peaks) = peaks else { continue };
        truth.is_possible = true;
        let mut each = peaks.iter().zip(problem.spaces());
        if each.all(|(&peak, space)| space.capacity().is_none_or(|it| peak <= it)) {
            let sum = peaks.iter().sum();
            truth.least = Some(truth.least.map_or(sum, |least| least.min(sum)));
        }
    }
    truth
}

#[test]
fn random_choices_are_as_good_as_by_trying_all_spaces_and_offsets() {
    let (mut random, mut tally) = (Random(57), [0; 5]);
    let rounds = if cfg!(debug_assertions) { 150 } else { 1_500 };
    for round in 0..rounds {
        let Ok(problem) = random_choice(&mut random) else { continue };
        if !problem.buffers().iter().any(|it| it.spaces().len() > 1) {
            continue;
        }
        let Truth { is_possible, least } = truth(&problem);
        let is_limited = problem.spaces().iter().all(|it| it.capacity().is_some());
        match (solve(&problem, &Budget::default()), least) {
            (Ok(packing), Some(least)) => {
                packing.check(&problem).unwrap();
                let (peak, bound, status) =
                    (packing.peak(), packing.lower_bound(), packing.status());
                if is_limited {
                    let fits = matches!(status, Status::Optimal | Status::Feasible);
                    assert!(fits && bound <= least, "round {round}: {problem:?}");
                    tally[0] += 1;
                } else {
                    let all = (peak, bound, status);
                    assert_eq!(all, (least, least, Status::Optimal), "round {round}: {problem:?}");
                    tally[1] += 1;
                    tally[2] += usize::from(packing.spaces().iter().all(|it| it.peak > 0));
                }
                let lower = compact(&problem, &packing, &Budget::default()).unwrap();
                lower.check(&problem).unwrap();
                assert!(lower.peak() <= peak);
            }
            (Ok(packing), None) => {
                packing.check(&problem).unwrap();
                assert!(is_possible, "round {round}: {problem:?}");
                assert_eq!(packing.status(), Status::Infeasible, "round {round}: {problem:?}");
                tally[3] += 1;
            }
            (Err(error), None) if !is_possible => {
                assert_eq!(error.kind(), "PinConflict", "round {round}: {problem:?}");
                assert!(error.to_string().contains("exist"), "round {round}: {error}: {problem:?}");
                tally[4] += 1;
            }
            (answer, least) => panic!("round {round}: {answer:?} for {least:?}: {problem:?}"),
        }
    }
    let least = [rounds / 500, rounds / 6, rounds / 20, rounds / 75, rounds / 50];
    assert!(tally.iter().zip(least).all(|(&it, least)| it >= least.max(1)), "{tally:?}");
}

#[test]
fn separate_pairs_that_no_spaces_keep_are_refused_by_the_buffers() {
    let unlimited = |count: usize| (0..count).map(|it| Space::new(format!("s{it}"))).collect();
    let refused = |buffers: Vec<Buffer>, spaces: usize, pairs: &[(usize, usize)]| {
        let problem = Problem::with_rules(buffers, unlimited(spaces), separate(pairs));
        problem.and_then(|it| solve(&it, &Budget::default())).unwrap_err()
    };
    let error = refused(vec![Buffer::new(8, live(0, 1)); 2], 1, &[(1, 0)]);
    let text =
        "buffer 0: it and buffer 1 are to be in different spaces, and both may be in 's0' only";
    assert_eq!((error.kind(), error.to_string().as_str()), ("InvalidBuffer", text));
    let fixed = Buffer::new(8, live(0, 1)).with_space(SpaceId::new(1));
    let error = refused(vec![fixed.clone(), fixed.clone()], 2, &[(0, 1)]);
    assert!(error.to_string().ends_with("both may be in 's1' only"), "{error}");
    // Three buffers that exclude each other in two spaces.
    let error = refused(vec![anywhere(8, live(0, 1), 2); 3], 2, &[(0, 1), (1, 2), (2, 0)]);
    let text =
        "no spaces exist that keep all pairs separate: buffer 2 has none beside buffers 0, 1";
    assert_eq!((error.kind(), error.to_string().as_str()), ("PinConflict", text));
    // One more than there are spaces: equal spaces that are empty count as one, or this would take 16! steps.
    let pairs: Vec<_> = (0..17).flat_map(|it| (0..it).map(move |one| (one, it))).collect();
    let error = refused(vec![anywhere(8, live(0, 1), 16); 17], 16, &pairs);
    assert!(error.to_string().starts_with("no spaces exist"), "{error}");
    let twice = refused(vec![fixed], 2, &[(0, 0)]);
    assert_eq!(twice.to_string(), "buffer 0: a rule for pairs names it twice");
    let nowhere = Buffer::new(8, live(0, 1)).with_spaces([]).unwrap_err();
    assert_eq!(nowhere.to_string(), "buffer 0: no space is permitted: give at least one");
    let error = refused(vec![anywhere(8, live(0, 1), 3)], 2, &[]);
    assert_eq!(error.to_string(), "buffer 0: it is in space 2, which is not there");
    let error = refused(vec![anywhere(8, live(0, 1), 2)], 65, &[]);
    assert_eq!(error.to_string(), "buffer 0: it may be in several of 65 spaces, more than 64");
    let error = refused(vec![anywhere(8, live(0, 1), 2).with_range(0..4)], 2, &[]);
    assert_eq!(error.to_string(), "buffer 0: its 8 bytes do not fit into 0..4");
}

#[test]
fn pins_and_groups_choose_spaces_in_which_they_can_be() {
    // Forty buffers in pairs, both pinned to the same offset: trying all spaces would take 2^40 steps.
    let pinned = |it: u64| anywhere(8, live(0, 2), 2).with_pin(it / 2 * 8);
    let buffers: Vec<_> = (0..40).map(pinned).collect();
    let spaces = vec![Space::new("x"), Space::new("y")];
    let packing = checked(&Problem::new(buffers, spaces.clone()).unwrap());
    assert_eq!((packing.peak(), packing.status()), (320, Status::Optimal));
    // Buffers of one group that are live together.
    let grouped = |it: u32| anywhere(8, live(0, 2), 2).with_group(it / 2);
    let buffers: Vec<_> = (0..40).map(grouped).collect();
    let packing = checked(&Problem::new(buffers, spaces.clone()).unwrap());
    assert_eq!((packing.peak(), packing.status()), (320, Status::Optimal));
    // A space whose capacity a pin exceeds is no choice.
    let spaces = vec![Space::new("x").with_capacity(8), Space::new("y")];
    let packing = checked(&Problem::new(vec![pinned(3)], spaces).unwrap());
    assert_eq!(packing.space_of(BufferId::new(0)), SpaceId::new(1));
}

#[test]
fn questions_about_a_problem_with_choices_are_answered_or_refused() {
    let buffers =
        vec![anywhere(60, live(0, 2), 2), Buffer::new(70, live(0, 2)), Buffer::new(50, live(1, 3))];
    let spaces = vec![Space::new("x").with_capacity(100), Space::new("y").with_capacity(64)];
    let problem = Problem::new(buffers, spaces).unwrap();
    let packing = checked(&problem);
    assert_eq!(packing.status(), Status::Infeasible);
    // Only buffers that can be nowhere else prove that a space is too small.
    let subset = infeasible_subset(&problem, SpaceId::new(0), &Budget::default()).unwrap();
    assert_eq!(subset, Some(vec![BufferId::new(1), BufferId::new(2)]));
    let subset = infeasible_subset(&problem, SpaceId::new(1), &Budget::default()).unwrap();
    assert_eq!(subset, None);
    let error = repack(&problem, &[None; 3], &Budget::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "buffer 0: it may be in several spaces, and an old offset names none"
    );
}

#[test]
fn choices_are_columns_that_are_read_and_written() {
    let text = "id,lower,upper,size,space,spaces,separate\n\
                a,0,2,8,,x y,b\n\
                b,3,5,8,,x y,\n\
                c,0,2,4,x,,\n";
    let parse = |text: &str| CsvProblem::parse(text, Space::default());
    let csv = parse(text).unwrap();
    assert_eq!(csv.problem.spaces().len(), 2);
    assert_eq!(csv.problem.buffers()[1].spaces(), [0, 1].map(SpaceId::new));
    assert_eq!(csv.to_csv(None).unwrap(), text);
    let packing = checked(&csv.problem);
    let written = csv.to_csv(Some(&packing)).unwrap();
    let expected = "id,lower,upper,size,offset,space,separate\n\
                    a,0,2,8,0,y,b\n\
                    b,3,5,8,0,x,\n\
                    c,0,2,4,0,x,\n";
    assert_eq!(written, expected);
    // The packing is a problem again, whose rules hold.
    checked(&parse(&written).unwrap().problem);
    let both = parse(&text.replace("c,0,2,4,x,,", "c,0,2,4,x,y,")).unwrap_err();
    assert_eq!(both.to_string(), "line 4: there are both a space and spaces");
    let absent = parse(&text.replace("x y,b", "x y,z")).unwrap_err();
    assert_eq!(absent.to_string(), "line 2: separate names 'z', an id that no buffer has");
}

#[test]
fn many_buffers_in_banks_are_separate_within_few_nodes() {
    let mut random = Random(8);
    let mut buffers = Vec::new();
    for _ in 0..4_000 {
        let start = random.step(2_000);
        buffers.push(anywhere(1 + random.below(64), live(start, start + 1 + random.step(30)), 4));
    }
    // Operands of one operator, in banks of their own.
    let pairs: Vec<_> = (0..1_000).map(|it| (4 * it, 4 * it + 1)).collect();
    let spaces = ["a", "b", "c", "d"].map(Space::new).to_vec();
    let problem = Problem::with_rules(buffers, spaces, separate(&pairs)).unwrap();
    let budget = Budget::default().with_nodes(1);
    let packing = solve(&problem, &budget).unwrap();
    packing.check(&problem).unwrap();
    assert!(packing.peak() < packing.lower_bound() * 3 / 2, "{packing:?}");
    assert_eq!(packing, solve(&problem, &budget).unwrap());
}
