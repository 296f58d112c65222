//! Problems as CSV.

use proptest::prelude::*;

use arenaplan::base::{LiveRange, SpaceId};
use arenaplan::format::CsvProblem;
use arenaplan::pack::{Buffer, Space};
use arenaplan::{Budget, Problem, solve};

fn parse(text: &str) -> CsvProblem {
    CsvProblem::parse(text, Space::default()).unwrap()
}

fn error(text: &str) -> String {
    CsvProblem::parse(text, Space::default()).unwrap_err().to_string()
}

#[test]
fn columns_may_come_in_any_order_and_with_carriage_returns() {
    let plain = parse("id,lower,upper,size\na,1,3,7\n");
    let shuffled = parse("\u{feff}size,buffer_id,begin,upper\r\n7,a,1,3\r\n\r\n");
    assert_eq!(plain, shuffled);
}

#[test]
fn an_end_column_is_inclusive() {
    let new = parse("id,lower,upper,size,gaps\na,1,9,7,3-5\n");
    let old = parse("id,start,end,size,gaps\na,1,8,7,3-4\n");
    assert_eq!(new, old);
}

#[test]
fn gaps_free_bytes_and_windows_keep_some() {
    let csv = parse("id,lower,upper,size,gaps\na,0,9,10,2-4 5-7@3:6\n");
    let mut rectangles: Vec<_> = csv.problem.buffers()[0].rectangles().collect();
    rectangles.sort_by_key(|(_, live)| *live);
    let live = |start, end| LiveRange::new(start, end).unwrap();
    let expected =
        [(0..10, live(0, 2)), (0..10, live(4, 5)), (3..6, live(5, 7)), (0..10, live(7, 9))];
    assert_eq!(rectangles, expected);
}

/// Returns the bytes that a buffer needs, by steps in order.
fn needed(gaps: &str) -> Vec<(std::ops::Range<u64>, LiveRange)> {
    let csv = parse(&format!("id,lower,upper,size,gaps\na,5,15,10,{gaps}\n"));
    let mut rectangles: Vec<_> = csv.problem.buffers()[0].rectangles().collect();
    rectangles.sort_by_key(|(bytes, live)| (*live, bytes.start));
    rectangles
}

#[test]
fn gaps_are_clipped_to_the_live_range_as_minimalloc_does() {
    // The file of minimalloc's own test of its converter.
    assert_eq!(needed("9-11 12-14@2:7"), needed("12-14@2:7 9-11"));
    assert_eq!(needed("0-7"), needed("5-7"));
    assert_eq!(needed("0-7 14-99@1:2 20-30"), needed("5-7 14-15@1:2"));
    assert_eq!(needed("0-5 15-16"), needed(""));
}

#[test]
fn overlapping_gaps_keep_what_all_of_them_keep() {
    assert_eq!(needed("6-10 8-12@0:2"), needed("6-10 10-12@0:2"));
    assert_eq!(needed("6-10@0:6 8-12@4:9"), needed("6-8@0:6 8-10@4:6 10-12@4:9"));
    assert_eq!(needed("6-10@0:3 8-12@5:9"), needed("6-8@0:3 8-10 10-12@5:9"));
    assert_eq!(needed("6-10@0:3 6-10@0:3 7-8@0:3"), needed("6-10@0:3"));
    assert_eq!(needed("6-7@0:10"), needed(""));
}

proptest! {
    /// Step by step: the bytes needed are those that every gap at the step keeps.
    #[test]
    fn any_gaps_keep_what_all_of_them_keep(
        gaps in prop::collection::vec((0..20_u32, 1..9_u32, 0..=10_u64, 0..=10_u64), 0..6),
    ) {
        let kept = |&(start, length, a, b): &(u32, u32, u64, u64)| {
            (start..start + length, a.min(b)..a.max(b))
        };
        let words: Vec<_> = gaps.iter().map(kept).map(|(steps, bytes)| {
            format!("{}-{}@{}:{}", steps.start, steps.end, bytes.start, bytes.end)
        }).collect();
        let windows: Vec<_> = (5..15).map(|step| {
            let here = gaps.iter().map(kept).filter(|(steps, _)| steps.contains(&step));
            here.fold(0..10, |all, (_, bytes)| all.start.max(bytes.start)..all.end.min(bytes.end))
        }).collect();
        if windows.iter().any(|window| !window.is_empty()) {
            let found = needed(&words.join(" "));
            for (step, window) in (5..15).zip(windows) {
                let at = LiveRange::new(step, step + 1).unwrap();
                let mut bytes: Vec<_> = found.iter().filter(|(_, live)| live.overlaps(at)).collect();
                prop_assert!(bytes.len() <= 1);
                match bytes.pop() {
                    Some((bytes, _)) => prop_assert_eq!(bytes, &window),
                    None => prop_assert!(window.is_empty()),
                }
            }
        }
    }
}

#[test]
fn ids_may_be_quoted_and_are_written_so_that_they_are_read_again() {
    let text = "id,lower,upper,size,alignment\n\"a,1\",0,2,4,\n\"say \"\"b\"\"\",1,3,4,8\n\
                \"two\nlines\",3,4,1,1\n";
    let csv = parse(text);
    assert_eq!(csv.names.iter().collect::<Vec<_>>(), ["a,1", "say \"b\"", "two\nlines"]);
    assert_eq!(csv.problem.buffers()[0].alignment(), arenaplan::base::Alignment::BYTE);
    assert_eq!(parse(&csv.to_csv(None).unwrap()), csv);
    let wrong = format!("{text}c,0,1,x,1\n");
    assert_eq!(error(&wrong), "line 6: size 'x' is not a whole number");
}

#[test]
fn what_is_written_is_read_again_and_solved_offsets_are_pins() {
    let text = "id,lower,upper,size,alignment,hint,gaps,offset\n\
                a,0,9,10,1,-1,2-4 5-7@3:6,\n\
                b,1,4,8,4,16,,4\n\
                c,5,6,3,1,-1,,\n";
    let csv = parse(text);
    assert_eq!(csv.to_csv(None).unwrap(), text);
    let packing = solve(&csv.problem, &Budget::default()).unwrap();
    let solved = parse(&csv.to_csv(Some(&packing)).unwrap());
    let pins: Vec<_> = solved.problem.buffers().iter().map(|b| b.pin().unwrap()).collect();
    assert_eq!(pins, packing.offsets());
}

#[test]
fn a_packing_adds_only_the_offset_column() {
    let csv = parse("id,lower,upper,size\na,0,2,4\nb,2,3,4\n");
    let packing = solve(&csv.problem, &Budget::default()).unwrap();
    let expected = "id,lower,upper,size,offset\na,0,2,4,0\nb,2,3,4,0\n";
    assert_eq!(csv.to_csv(Some(&packing)).unwrap(), expected);
}

#[test]
fn bytes_that_are_not_contiguous_cannot_be_written() {
    let part = |bytes| arenaplan::pack::Part { bytes, live: vec![LiveRange::new(0, 2).unwrap()] };
    let buffer = Buffer::with_parts(9, vec![part(0..2), part(5..9)]).unwrap();
    let problem = Problem::new(vec![buffer], vec![Space::default()]).unwrap();
    let names = vec!["a".into()];
    let csv = CsvProblem { names, problem, groups: Vec::new(), moments: Vec::new() };
    assert_eq!(csv.to_csv(None).unwrap_err().kind(), "InvalidBuffer");
}

#[test]
fn errors_name_the_line_and_what_is_wrong() {
    let head = "id,lower,upper,size,alignment,hint,gaps,offset\na,0,1,1,1,-1,,0\n";
    for (text, expected) in [
        (String::new(), "line 1: the file is empty"),
        ("id,lower,size\n".into(), "line 1: there is no column 'upper'"),
        ("id,lower,end,size,upper\n".into(), "line 1: column 'upper' is there twice"),
        ("id,lower,upper,size,color\n".into(), "line 1: unknown column 'color'"),
        (format!("{head}b,0,1,1\n"), "line 3: there are 4 fields, and 8 columns"),
        (format!("{head}b,0,1,1,1,,,,\n"), "line 3: there are more fields than the 8 columns"),
        (format!("{head}b,5,5,1,1,,,\n"), "line 3: the live range 5..5 is empty"),
        (format!("{head}b,-1,5,1,1,,,\n"), "line 3: lower '-1' is not a whole number"),
        (
            format!("{head}b,0,5,99999999999999999999,1,,,\n"),
            "line 3: size '99999999999999999999' is not a whole number",
        ),
        (
            format!("{head}b,0,5,1,0,,,\n"),
            "line 3: alignment 0 of an offset is 0, above 2^62, or not a power of two",
        ),
        (format!("{head}b,0,5,1,1,x,,\n"), "line 3: hint 'x' is not a whole number"),
        (format!("{head}b,0,5,1,1,,3,\n"), "line 3: gap '3' is not like 3-5 or 3-5@8:16"),
        (format!("{head}b,0,5,1,1,,3-4@1,\n"), "line 3: gap '3-4@1' is not like 3-5 or 3-5@8:16"),
        (
            format!("{head}b,0,5,1,1,,3-4@0:2,\n"),
            "line 3: gap '3-4@0:2' is not inside the buffer's 1 bytes",
        ),
        (format!("\r\n\n{head}\n\n  \nb,0,5,1,1,,5-5,\n"), "line 8: the live range 5..5 is empty"),
        (format!("{head}b,0,5,1,1,,0-5,\n"), "line 3: it is never live"),
    ] {
        assert_eq!(error(&text), expected);
    }
}

#[test]
fn rules_are_columns_that_are_read_and_written() {
    let text = "id,lower,upper,size,alignment,space,group,lo,hi,may_overlap,apart\n\
                a,0,2,8,12,fast,,16,,b c,\n\
                b,1,3,8,1,fast,x,,64,,c\n\
                c,0,2,4,1,fast,,,,,\n\
                d,4,5,8,1,fast,x,,,,\n\
                e,0,5,4,1,slow,,,,,\n";
    let csv = parse(text);
    let [a, b, c, d, e] = csv.problem.buffers() else { panic!("five buffers") };
    assert_eq!((a.multiple_of(), a.range().unwrap().start, c.range()), (12, 16, None));
    assert_eq!((b.range(), b.group(), d.group()), (Some(0..64), Some(0), Some(0)));
    assert_eq!((csv.problem.spaces().len(), e.space().index()), (2, 1));
    let pairs = |pairs: &[(_, _)]| -> Vec<(usize, usize)> {
        let number = arenaplan::base::BufferId::index;
        pairs.iter().map(|&(one, other)| (number(one), number(other))).collect()
    };
    let rules = csv.problem.rules();
    assert_eq!(
        (pairs(&rules.may_overlap), pairs(&rules.apart)),
        (vec![(0, 1), (0, 2)], vec![(1, 2)])
    );
    let again = csv.to_csv(None).unwrap();
    assert_eq!(parse(&again), csv, "{again}");
    let packing = solve(&csv.problem, &Budget::default()).unwrap();
    packing.check(&csv.problem).unwrap();
    assert_eq!(packing.offsets()[1], packing.offsets()[3]);
    assert!(parse(&csv.to_csv(Some(&packing)).unwrap()).problem.buffers()[0].pin().is_some());
    let absent = text.replace("b c", "b z");
    assert_eq!(error(&absent), "line 2: may_overlap names 'z', an id that no buffer has");
    assert_eq!(error("id,lower,upper,size,lo,hi\na,0,1,4,9,5\n"), "line 2: lo 9 is above hi 5");
}

/// Names with spaces are ids, unless a list would have to name them.
#[test]
fn names_that_no_list_can_hold_are_not_written() {
    let text = "id,lower,upper,size,may_overlap\na,0,2,8,b\nb,1,3,8,\n";
    let csv = parse(text);
    let named = |name: &str| CsvProblem { names: vec!["a".into(), name.into()], ..csv.clone() };
    assert!(named("c").to_csv(None).is_ok());
    for name in ["two words", ""] {
        let error = named(name).to_csv(None).unwrap_err().to_string();
        assert!(error.contains("no list of ids can name it"), "{error}");
    }
    for name in ["far away", ""] {
        let spaces = vec![Space::new("near"), Space::new(name)];
        let buffer = Buffer::new(8, LiveRange::new(0, 1).unwrap());
        let buffer = buffer.with_spaces([0, 1].map(SpaceId::new)).unwrap();
        let problem = Problem::new(vec![buffer], spaces).unwrap();
        let names = vec!["a".into()];
        let error = CsvProblem { problem, names, ..csv.clone() }.to_csv(None).unwrap_err();
        assert!(error.to_string().contains("no list of spaces can name"), "{error}");
    }
}

#[test]
fn groups_keep_their_names() {
    let text =
        "id,lower,upper,size,group\na,0,2,8,\"left, low\"\nb,2,3,8,\"left, low\"\nc,3,4,8,\n";
    assert_eq!(parse(text).groups, ["left, low"]);
    assert_eq!(parse(text).to_csv(None).unwrap(), text);
}

#[test]
fn spaces_of_a_file_may_be_described() {
    let text = "id,lower,upper,size,space\na,0,2,8,near\nb,2,3,8,far\nc,2,3,8,\n";
    let described = |names: &[&str]| {
        let space = |name: &&str| Space::new(*name).with_capacity(12).with_reserved(0..4);
        CsvProblem::parse_in(text, Space::default(), names.iter().map(space).collect())
    };
    let names = |csv: &CsvProblem| -> Vec<(String, Option<u64>)> {
        csv.problem.spaces().iter().map(|it| (it.name().to_owned(), it.capacity())).collect()
    };
    let csv = described(&["far", "near"]).unwrap();
    let [arena, far, near] = &names(&csv)[..] else { panic!("three spaces") };
    assert_eq!((arena, far), (&("arena".into(), None), &("far".into(), Some(12))));
    assert_eq!(near, &("near".into(), Some(12)));
    let places: Vec<_> = csv.problem.buffers().iter().map(|it| it.space().index()).collect();
    assert_eq!(places, [2, 1, 0]);
    let csv = described(&["arena"]).unwrap();
    assert_eq!(names(&csv)[0], ("arena".into(), Some(12)));
    assert_eq!(names(&csv)[1], ("near".into(), None));
    let error = described(&["near", "fra"]).unwrap_err();
    assert_eq!(error.to_string(), "line 1: no line is in space 'fra'");
    let other = "id,lower,upper,size,space\na,0,2,8,near\n";
    let error = CsvProblem::parse_in(other, Space::default(), vec![Space::default()]).unwrap_err();
    assert_eq!(error.to_string(), "line 1: no line is in space 'arena'");
}

#[test]
fn steps_of_64_bits_are_counted_and_written_as_they_were() {
    let far = 1_700_000_000_000_000_000_u64;
    let text = format!(
        "id,lower,upper,size,gaps\na,{far},{},8,{}-{}\nb,5,{},4,\n",
        far + 9,
        far + 2,
        far + 4,
        far + 1
    );
    let csv = parse(&text);
    assert_eq!(csv.moments.len(), 6);
    assert_eq!(csv.problem.horizon().get(), 5);
    assert_eq!(csv.to_csv(None).unwrap(), text);
    assert_eq!(error(&text.replace(",8,", ",x,")), "line 2: size 'x' is not a whole number");
    // Long sizes are no long steps.
    assert!(parse("id,lower,upper,size\na,0,1,12345678901\n").moments.is_empty());
}
