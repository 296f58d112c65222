//! One forged plan per rule of the checker.
//!
//! Each row takes a valid plan of a small graph and changes one thing; what depends on the change,
//! such as totals, live ranges and the checksum, is made right, so that only one rule can refuse.
//! A row names the error and the words that only this rule uses, since another rule that happened
//! to refuse would hide that the one in question is gone.

mod claims;
mod contents;
mod continued;
mod fields;
mod groups;
mod layout;
mod needs;
mod planted;
mod replay;
mod run;
mod shared;
mod spaces;
mod strips;
mod timetable;

use arenaplan::{Graph, Plan, ValueId, ValueKind};
use serde_json::{Value as Json, json};

use crate::check::forge;

/// A valid plan, a change, and the refusal that it must meet.
pub struct Row {
    rule: &'static str,
    graph: Graph,
    plan: Plan,
    change: Box<dyn Fn(&mut Json, &Graph)>,
    kind: &'static str,
    says: &'static str,
}

/// Returns a row whose totals are made right after the change.
pub fn row(
    rule: &'static str,
    (graph, plan): (Graph, Plan),
    kind: &'static str,
    says: &'static str,
    change: impl Fn(&mut Json) + 'static,
) -> Row {
    let change = Box::new(move |json: &mut Json, graph: &Graph| {
        change(json);
        relive(json, graph);
        settle(json);
    });
    Row { rule, graph, plan, change, kind, says }
}

/// Returns a row in which only sums over spaces are made right after the change.
pub fn raw(
    rule: &'static str,
    (graph, plan): (Graph, Plan),
    kind: &'static str,
    says: &'static str,
    change: impl Fn(&mut Json) + 'static,
) -> Row {
    let change = Box::new(move |json: &mut Json, _: &Graph| {
        change(json);
        total(json);
    });
    Row { rule, graph, plan, change, kind, says }
}

/// Checks that every row is refused as it says, and that its plan is not without the change.
pub fn refuse(rows: Vec<Row>) {
    let mut wrong = Vec::new();
    for Row { rule, graph, plan, change, kind, says } in rows {
        if let Err(error) = plan.check(&graph) {
            wrong.push(format!("{rule}: the plan itself is refused: {error}"));
            continue;
        }
        // What contradicts itself is refused as it is read.
        let forged = forge(&plan, |json| change(json, &graph));
        match forged.and_then(|forged| forged.check(&graph)) {
            Ok(_) => wrong.push(format!("{rule}: accepted")),
            Err(error) if error.kind() != kind || !error.to_string().contains(says) => {
                wrong.push(format!("{rule}: {}: {error}", error.kind()));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks that a change leaves a valid plan: what [`refuse`] relies on.
pub fn accept(rule: &str, (graph, plan): (Graph, Plan), change: impl Fn(&mut Json)) -> Plan {
    let forged = forge(&plan, |json| {
        change(json);
        relive(json, &graph);
        settle(json);
    });
    let forged = forged.unwrap();
    if let Err(error) = forged.check(&graph) {
        panic!("{rule}: {error}");
    }
    forged
}

/// Returns the row of a value.
pub fn value<'j>(json: &'j mut Json, name: &str) -> &'j mut Json {
    named(&mut json["values"], name)
}

/// Returns the row of a step.
pub fn step<'j>(json: &'j mut Json, name: &str) -> &'j mut Json {
    named(&mut json["steps"], name)
}

fn named<'j>(rows: &'j mut Json, name: &str) -> &'j mut Json {
    let rows = rows.as_array_mut().unwrap();
    rows.iter_mut().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Puts a value where another one is, `distance` bytes further.
pub fn put(json: &mut Json, name: &str, onto: &str, distance: u64) {
    let place = value(json, onto).clone();
    value(json, name)["offset"] = (place["offset"].as_u64().unwrap() + distance).into();
    value(json, name)["space"] = place["space"].clone();
}

/// Returns a share of input `input` and output 0.
pub fn share(input: u32, rule: &str) -> Json {
    json!([{"input": input, "output": 0, "rule": rule}])
}

fn number(json: &Json) -> u64 {
    json.as_u64().unwrap_or(0)
}

/// Derives all live ranges from the steps, and permits all techniques.
fn relive(json: &mut Json, graph: &Graph) {
    let all = arenaplan::Technique::ALL.map(arenaplan::Technique::name);
    json["options"]["optimize"] = json!(all);
    let steps = json["steps"].as_array().unwrap().clone();
    let end = steps.len().max(1) as u64;
    let options = &json["options"];
    let keeps = options["preserve_inputs"] == true || options["inputs"] == "caller";
    for row in json["values"].as_array_mut().unwrap() {
        let id = number(&row["value"]);
        let mut live = [0, 1];
        for (index, step) in steps.iter().enumerate() {
            let has = |list: &Json| list.as_array().unwrap().iter().any(|it| it == id);
            let index = index as u64;
            if has(&step["outputs"]) {
                live = [index, index + 1];
            }
            if has(&step["inputs"]) {
                live[1] = live[1].max(index + 1);
            }
        }
        let Some(value) = graph.values().get(id as usize) else { continue };
        let is_kept = match value.kind() {
            ValueKind::State => true,
            ValueKind::Input => keeps,
            _ => false,
        };
        if is_kept || graph.outputs().contains(&ValueId::new(id as usize)) {
            live[1] = end;
        }
        row["live"] = json!(live);
    }
}

/// Makes the sizes of the arenas, and all claims, fit the offsets.
fn settle(json: &mut Json) {
    let alignment = number(&json["options"]["alignment"]);
    let spans = ["values", "workspaces"].map(|list| json[list].as_array().unwrap().clone());
    let spans = spans.concat();
    for (index, space) in json["spaces"].as_array_mut().unwrap().iter_mut().enumerate() {
        if space.get("caller").is_some() {
            continue;
        }
        let inside = spans.iter().filter(|span| span["space"] == index && span["bytes"] != 0);
        let ends = inside.map(|span| number(&span["offset"]) + number(&span["bytes"]));
        let bytes = ends.map(|end| end.next_multiple_of(alignment)).max().unwrap_or(0);
        let bound = number(&space["lower_bound"]).min(bytes);
        let capacity = space["capacity"].as_u64().unwrap_or(u64::MAX);
        space["arena_bytes"] = bytes.into();
        space["lower_bound"] = bound.into();
        space["status"] = match () {
            () if bound > capacity => "infeasible",
            () if bytes > capacity => "unknown",
            () if bytes == bound => "optimal",
            () => "feasible",
        }
        .into();
    }
    total(json);
    if json.get("search").is_some() {
        let floor = number(&json["search"]["floor"]).min(number(&json["lower_bound"]));
        json["search"]["floor"] = floor.into();
    }
}

/// Makes the sums over spaces right.
fn total(json: &mut Json) {
    let spaces = json["spaces"].as_array().unwrap().clone();
    let arenas = || spaces.iter().filter(|space| space.get("caller").is_none());
    let sum =
        |field: &str| arenas().fold(0, |sum: u64, space| sum.saturating_add(number(&space[field])));
    let ranks = ["optimal", "feasible", "unknown", "infeasible"];
    let rank = |space: &Json| ranks.iter().position(|rank| space["status"] == *rank).unwrap();
    json["arena_bytes"] = sum("arena_bytes").into();
    json["lower_bound"] = sum("lower_bound").into();
    let worst = ranks[arenas().map(rank).max().unwrap_or(0)];
    let capacity = arenas()
        .try_fold(0, |sum: u64, space| Some(sum.saturating_add(space["capacity"].as_u64()?)));
    // Where other orders were tried, a plan is about all of them.
    let is_tried = json["search"]["order"].as_str().is_some_and(|order| order != "given");
    let is_all = capacity.is_some_and(|most| json["search"]["floor"].as_u64() > Some(most));
    let is_unknown = worst == "infeasible" && is_tried && !is_all;
    json["status"] = if is_unknown { "unknown" } else { worst }.into();
}
