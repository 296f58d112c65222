//! Plan files: read back what was written, and nothing else.

use std::fs;

use arenaplan::Plan;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::check::forge;
use crate::graphs::{Sketch, graphs};
use crate::planners::ideal_planner;

fn sample() -> Plan {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    let a = sketch.node("a", &[x], 200);
    ideal_planner().plan(&sketch.build(&[a])).unwrap()
}

fn kind(text: &[u8]) -> &'static str {
    Plan::from_json(text).map_or_else(|error| error.kind(), |_| "accepted")
}

proptest! {
    /// A plan survives being written and read.
    #[test]
    fn reading_undoes_writing(graph in graphs(16)) {
        let plan = ideal_planner().plan(&graph).unwrap();
        prop_assert_eq!(Plan::from_json(plan.to_json().as_bytes()), Ok(plan));
    }
}

#[test]
fn c01_every_truncation_is_refused() {
    let text = sample().to_json();
    // The last byte is the newline behind the document.
    for length in 0..text.len() - 1 {
        assert_eq!(kind(&text.as_bytes()[..length]), "PlanCorrupt", "{length}");
    }
}

#[test]
fn c02_every_flipped_bit_is_refused_or_means_the_same() {
    let plan = sample();
    let mut text = plan.to_json().into_bytes();
    let mut same = 0;
    for index in 0..text.len() {
        for bit in 0..8 {
            text[index] ^= 1 << bit;
            match Plan::from_json(&text) {
                Ok(read) => {
                    assert_eq!(read, plan, "byte {index}, bit {bit}");
                    same += 1;
                }
                Err(error) => assert!(error.kind().starts_with("Plan"), "{error}"),
            }
            text[index] ^= 1 << bit;
        }
    }
    // Only the newline behind the document may become another blank.
    assert!(same <= 8, "{same} flips were not noticed");
}

#[test]
fn c13_c16_numbers_are_whole_and_in_range() {
    let text = sample().to_json();
    for number in ["1e400", "12.0", "-0", "-1", "NaN", "18446744073709551616", "\"12\"", "true"] {
        let forged = text.replacen("\"offset\":0", &format!("\"offset\":{number}"), 1);
        assert_ne!(forged, text);
        assert_eq!(kind(forged.as_bytes()), "PlanCorrupt", "{number}");
    }
}

#[test]
fn c14_other_versions_and_unknown_fields_are_told_apart_from_damage() {
    let text = sample().to_json();
    let newer = text.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(kind(newer.as_bytes()), "PlanVersion");
    let other = text.replacen("{\"format\"", "{\"bank\":1,\"format\"", 1);
    assert_eq!(kind(other.as_bytes()), "PlanVersion");
    let optional = text.replacen("{\"format\"", "{\"x-note\":[1,{\"a\":2}],\"format\"", 1);
    assert_eq!(kind(optional.as_bytes()), "accepted");
}

#[test]
fn c15_c18_nothing_may_stand_before_or_behind_the_document() {
    let text = sample().to_json();
    let with = |before: &str, after: &str| format!("{before}{text}{after}");
    for forged in [
        with("", "{}"),
        with("", "x"),
        with("#!/bin/sh\n", ""),
        with("\u{feff}", ""),
        with(&text, ""),
    ] {
        assert_eq!(kind(forged.as_bytes()), "PlanCorrupt");
    }
}

#[test]
fn c16_repeated_keys_and_deep_nesting_are_refused() {
    let text = sample().to_json();
    let twice = text.replacen("{\"format\"", "{\"model\":\"other\",\"format\"", 1);
    assert_eq!(kind(twice.as_bytes()), "PlanCorrupt");
    let deep = "[".repeat(100_000);
    assert_eq!(kind(deep.as_bytes()), "PlanCorrupt");
    let nested = text.replacen("{\"format\"", &format!("{{\"x-deep\":{deep},\"format\""), 1);
    assert_eq!(kind(nested.as_bytes()), "PlanCorrupt");
}

/// Reports, comparisons and drawings use plans that nobody has checked.
#[test]
fn a_plan_that_contradicts_itself_is_refused_as_it_is_read() {
    let plan = sample();
    let huge = json!(u64::MAX);
    let rows: [(&str, Json); 9] = [
        ("/values/0/offset", huge.clone()),
        ("/values/0/bytes", huge.clone()),
        ("/values/0/live", json!([1, 1])),
        ("/values/0/live", json!([0, 7])),
        ("/values/0/space", json!(u32::MAX)),
        ("/value_count", json!(u32::MAX)),
        ("/value_count", json!(1)),
        ("/steps/0/inputs/0", json!(u32::MAX)),
        ("/steps/0/strips", json!({"rows": 0, "buffers": []})),
    ];
    for (path, content) in rows {
        let forged = forge(&plan, |json| match json.pointer_mut(path) {
            Some(place) => *place = content.clone(),
            None => json["steps"][0]["strips"] = content.clone(),
        });
        let refused = forged.map(|_| ()).map_err(|error| error.kind());
        assert_eq!(refused, Err("PlanCorrupt"), "{path} = {content}");
    }
    for place in ["value", "of"] {
        let forged = forge(&plan, |json| {
            let mut pair = json!({"value": 0, "of": 0});
            pair[place] = json!(u32::MAX);
            json["steps"][0]["strips"] = json!({"rows": 1, "buffers": [], "in_place": [pair]});
        });
        assert_eq!(forged.map_err(|error| error.kind()), Err("PlanCorrupt"), "{place}");
    }
}

#[test]
fn c20_a_plan_that_cannot_be_written_leaves_the_old_file() {
    let folder = std::env::temp_dir().join(format!("arenaplan-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("plan.json");
    let plan = sample();
    plan.save(&path).unwrap();
    assert_eq!(Plan::load(&path).unwrap(), plan);
    let missing = Plan::load(folder.join("none.json")).unwrap_err();
    assert_eq!(missing.kind(), "FileUnreadable");
    assert!(missing.to_string().contains("none.json"));
    // A folder of that name cannot be replaced by a file.
    let blocked = folder.join("blocked");
    fs::create_dir_all(blocked.join("inside")).unwrap();
    assert!(plan.save(&blocked).is_err());
    assert!(plan.save(folder.join("missing").join("plan.json")).is_err());
    let mut left: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["blocked", "plan.json"]);
    fs::remove_dir_all(&folder).unwrap();
}
