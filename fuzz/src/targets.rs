//! The fuzz targets: functions of bytes that panic when they find a defect.

use arbitrary::{Result, Unstructured};
use arenaplan::base::Step;
use arenaplan::check::Proof;
use arenaplan::format::CsvProblem;
use arenaplan::pack::Space;
use arenaplan::plan::{Hazards, SharedPlan, Together};
use arenaplan::{Budget, Graph, Model, Plan, Problem, SpaceId, solve};
use serde_json::Value as Json;

use super::{edit, forge, graphs, oracle, problems};

/// A target and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const ALL: [Target; 8] = [
    ("plan", plan),
    ("forged", forged),
    ("pack", pack),
    ("csv", csv),
    ("graph_file", graph_file),
    ("graph_edit", graph_edit),
    ("plan_file", plan_file),
    ("model_file", model_file),
];

/// Refusals of options and graphs. A plan that the checker refuses is none of them.
const REFUSALS: &[&str] =
    &["InvalidAlignment", "InvalidOption", "PinConflict", "SizeOverflow", "SpacesExceeded"];

/// Plans a graph: the planner refuses it, or the checker, the file and a run agree with the plan.
pub fn plan(bytes: &[u8]) {
    let _ = try_plan(&mut Unstructured::new(bytes));
}

fn try_plan(bytes: &mut Unstructured<'_>) -> Result<()> {
    let planner = graphs::planner(bytes)?;
    let together = bytes.ratio(1, 16)?;
    let Some(graph) = graphs::graph(bytes)? else { return Ok(()) };
    if together {
        let Some(other) = graphs::graph(bytes)? else { return Ok(()) };
        let how = if bytes.arbitrary()? { Together::Concurrent } else { Together::Never };
        match planner.plan_together(&[&graph, &other], how) {
            Ok(shared) => {
                shared.check(&[&graph, &other]).expect("the checker accepts plans");
                let again = SharedPlan::from_json(shared.to_json().as_bytes());
                assert_eq!(again.expect("a plan can be read"), shared);
            }
            Err(error) => assert!(REFUSALS.contains(&error.kind()), "{error}"),
        }
        return Ok(());
    }
    match planner.plan(&graph) {
        Ok(plan) => {
            plan.check(&graph).expect("the checker accepts plans");
            assert!(plan.lower_bound() <= plan.arena_bytes());
            let asked = planner.options().optimize;
            assert_eq!(plan.options().optimize, asked, "the checker refused the best plan");
            let again = Plan::from_json(plan.to_json().as_bytes()).expect("a plan can be read");
            assert_eq!(again, plan);
            oracle::run(&graph, &plan);
        }
        Err(error) => assert!(REFUSALS.contains(&error.kind()), "{}: {error}", error.kind()),
    }
    Ok(())
}

/// Changes a plan: the checker refuses it, or it does no harm and claims nothing false.
pub fn forged(bytes: &[u8]) {
    let _ = try_forged(&mut Unstructured::new(bytes));
}

fn try_forged(bytes: &mut Unstructured<'_>) -> Result<()> {
    let planner = graphs::planner(bytes)?;
    let Some(graph) = graphs::graph(bytes)? else { return Ok(()) };
    let Ok(plan) = planner.plan(&graph) else { return Ok(()) };
    let mut edited = Ok(());
    let forged = forge::forge(&plan, |json| edited = edit::edit(bytes, json, 4));
    edited?;
    let Ok(forged) = forged else { return Ok(()) };
    figures(&forged);
    let Ok(verdict) = forged.check(&graph) else { return Ok(()) };
    let is_same = plan.steps() == forged.steps()
        && plan.placements().len() == forged.placements().len()
        && plan.options() == forged.options();
    if is_same && verdict.lower_bound() == Proof::Verified {
        assert!(forged.lower_bound() <= plan.arena_bytes(), "a false bound is verified");
    }
    oracle::run(&graph, &forged);
    Ok(())
}

/// Asks for all that reports show of a plan which nobody has checked.
fn figures(plan: &Plan) {
    for space in 0..plan.spaces().len() {
        plan.peak(SpaceId::new(space));
    }
    plan.bytes_moved();
    plan.live_at(Step::new(0));
    plan.repeated();
    plan.status();
}

/// Solves a problem of packing: the checker and an oracle agree with the answer.
pub fn pack(bytes: &[u8]) {
    let _ = try_pack(&mut Unstructured::new(bytes));
}

fn try_pack(bytes: &mut Unstructured<'_>) -> Result<()> {
    let nodes = bytes.int_in_range(0..=500)?;
    if let Some(problem) = problems::problem(bytes)? {
        solved(&problem, nodes);
    }
    Ok(())
}

fn solved(problem: &Problem, nodes: u64) {
    let mut budget = Budget::default();
    budget.nodes = Some(nodes);
    match solve(problem, &budget) {
        Ok(packing) => {
            packing.check(problem).expect("the checker accepts packings");
            assert!(packing.lower_bound() <= packing.peak());
            assert_eq!(problems::flaw(problem, &packing), None);
        }
        Err(error) => assert!(REFUSALS.contains(&error.kind()), "{}: {error}", error.kind()),
    }
}

/// Reads text as CSV: what can be read can be written, read again, and solved.
pub fn csv(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(read) = CsvProblem::parse(&text, Space::default()) else { return };
    if let Ok(written) = read.to_csv(None) {
        let again = CsvProblem::parse(&written, Space::default());
        let again = again.expect("what is written can be read");
        assert_eq!(again.problem.buffers(), read.problem.buffers());
    }
    if read.problem.buffers().len() < 64 {
        solved(&read.problem, 50);
    }
}

/// Reads bytes as a graph: what can be read can be written and read again.
pub fn graph_file(bytes: &[u8]) {
    if let Ok(graph) = Graph::from_json(bytes) {
        again(&graph);
    }
}

fn again(graph: &Graph) {
    let read = Graph::from_json(graph.to_json().as_bytes()).expect("a graph can be read");
    assert_eq!(read.digest(), graph.digest());
    assert_eq!(read.to_json(), graph.to_json());
}

/// Changes the file of a graph: it is refused, or planned as any other.
pub fn graph_edit(bytes: &[u8]) {
    let _ = try_graph_edit(&mut Unstructured::new(bytes));
}

fn try_graph_edit(bytes: &mut Unstructured<'_>) -> Result<()> {
    let planner = graphs::planner(bytes)?;
    let Some(graph) = graphs::graph(bytes)? else { return Ok(()) };
    let mut json: Json = serde_json::from_str(&graph.to_json()).expect("it is JSON");
    let fields = json.as_object_mut().expect("it is an object");
    fields.remove("checksum");
    fields.remove("digest");
    edit::edit(bytes, &mut json, 4)?;
    let text = json.to_string();
    let Ok(graph) = Graph::from_json(text.as_bytes()) else { return Ok(()) };
    again(&graph);
    match planner.plan(&graph) {
        Ok(plan) => {
            plan.check(&graph).expect("the checker accepts plans");
        }
        Err(error) => assert!(REFUSALS.contains(&error.kind()), "{}: {error}", error.kind()),
    }
    Ok(())
}

/// Reads bytes as plans of all kinds: what can be read can be written and read again.
pub fn plan_file(bytes: &[u8]) {
    if let Ok(plan) = Plan::from_json(bytes) {
        figures(&plan);
        let read = Plan::from_json(plan.to_json().as_bytes()).expect("a plan can be read");
        assert_eq!(read, plan);
    }
    if let Ok(shared) = SharedPlan::from_json(bytes) {
        let read = SharedPlan::from_json(shared.to_json().as_bytes());
        assert_eq!(read.expect("a plan can be read"), shared);
    }
    if let Ok(hazards) = Hazards::from_json(bytes) {
        let read = Hazards::from_json(hazards.to_json().as_bytes());
        assert_eq!(read.expect("hazards can be read"), hazards);
    }
}

/// Reads bytes as a model: what can be read can be written and read again, and all of it is there.
pub fn model_file(bytes: &[u8]) {
    let Ok(model) = Model::from_json(bytes) else { return };
    let read = Model::from_json(model.to_json().as_bytes()).expect("a model can be read");
    assert_eq!(read.to_json(), model.to_json());
    for shape in model.shapes().take(16) {
        shape.plan().and(shape.program().map(|_| ())).expect("every shape has its plan");
    }
}
