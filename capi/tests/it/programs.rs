//! Programs in C and C++ have the results of the core, and valgrind finds nothing in them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use arenaplan::base::Alignment;
use arenaplan::choose::{Costs, StepCost, StepForm, Way};
use arenaplan::format::CsvProblem;
use arenaplan::graph::{Choice, Workspace};
use arenaplan::pack::Space;
use arenaplan::plan::{Effort, HazardKind, WorkspacePolicy};
use arenaplan::{
    Budget, DType, Graph, Model, Node, NodeId, Packing, Plan, Planner, Status, Target, Value,
    ValueKind, solve,
};

use crate::toolchain::{Link, compile, root, run, run_checked};

fn example(name: &str) -> PathBuf {
    root().join("capi/examples").join(name)
}

/// Returns a problem and its packing by the core.
fn packed(text: &str, capacity: Option<u64>, nodes: Option<u64>) -> (CsvProblem, Packing) {
    let space = Space::default();
    let space = capacity.map_or(space.clone(), |bytes| space.with_capacity(bytes));
    let csv = CsvProblem::parse(text, space).unwrap();
    let mut budget = Budget::default();
    budget.nodes = nodes;
    let packing = solve(&csv.problem, &budget).unwrap();
    (csv, packing)
}

/// Returns `count` buffers as CSV, the same for the same seed.
fn random_csv(count: u64, seed: u64, aligned: bool) -> String {
    let mut state = seed;
    let mut below = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut text = String::from("id,lower,upper,size");
    text.push_str(if aligned { ",alignment\n" } else { "\n" });
    for id in 0..count {
        let (lower, length, size) = (below(40), 1 + below(12), 1 + below(500));
        write!(text, "b{id},{lower},{},{size}", lower + length).unwrap();
        if aligned {
            write!(text, ",{}", 1 << below(6)).unwrap();
        }
        text.push('\n');
    }
    text
}

/// Products with a wide value between them.
fn perceptron() -> Graph {
    let mut builder = Graph::builder("perceptron");
    let mut value = |name: &str, kind, width| {
        builder.add_value(Value::new(name, kind, DType::FLOAT32, [64, width]).unwrap())
    };
    let x = value("x", ValueKind::Input, 64);
    let p = value("p", ValueKind::Activation, 512);
    let r = value("r", ValueKind::Activation, 512);
    let y = value("y", ValueKind::Activation, 64);
    builder.add_node(Node::new("first", "MatMul").reads([x]).writes([p]).flow(0, 64, [0]));
    let relu = Node::new("relu", "Relu").reads([p]).writes([r]).in_place(0, 0);
    builder.add_node(relu.flow(0, 64 * 512, [0]));
    builder.add_node(Node::new("second", "MatMul").reads([r]).writes([y]).flow(0, 64, [0]));
    builder.add_output(y);
    builder.build().unwrap()
}

/// The costs of `examples/costs.c`.
#[derive(Debug)]
struct Microseconds;

impl Costs for Microseconds {
    fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
        let StepForm::Whole = form else { return None };
        let count = u64::try_from(nodes.len()).unwrap();
        if count == 1 {
            return Some(StepCost::of_time(1000));
        }
        let way = |at: u32| Way { bytes: 4096 << (2 * at), time: (500 * count) << (3 - at) };
        let ways: Vec<Way> = (0..3).map(way).collect();
        let cost = |way: &Way| -> f64 { u32::try_from(way.time).unwrap().into() };
        let choices = ways.iter().map(|way| Choice { bytes: way.bytes, cost: cost(way) });
        let workspace = Workspace { choices: choices.collect(), alignment: Alignment::BYTE };
        Some(StepCost { workspaces: vec![workspace], ways })
    }
}

#[test]
fn a_program_with_costs_of_its_own_has_the_plan_of_the_core() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = compile(&example("costs.c"), "c99", Link::Shared, folder.path());
    let Some(program) = compiled else { return };
    let (graph, path) = (perceptron(), folder.path().join("graph.json"));
    fs::write(&path, graph.to_json()).unwrap();
    let mut sizes = Vec::new();
    for limit in [None, Some(1000), Some(1500), Some(3000)] {
        let planner = Planner::new().target(&Target::NUMPY).costs(&Microseconds);
        let plan = planner.max_slowdown(limit).plan(&graph).unwrap();
        let expected = format!("{} bytes, {} steps\n", plan.arena_bytes(), plan.steps().len());
        let mut arguments = vec![path.to_str().unwrap().to_owned()];
        arguments.extend(limit.map(|limit| limit.to_string()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(run(&program, &arguments), (0, expected), "at {limit:?}");
        sizes.push(plan.arena_bytes());
    }
    assert!(sizes[0] < sizes[1], "time costs bytes: {sizes:?}");
    let checked = run_checked(&program, &[path.to_str().unwrap()]);
    assert!(checked.is_none_or(|(code, _)| code == 0));
}

#[test]
fn the_example_in_c_packs_as_the_core_does() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = compile(&example("pack.c"), "c99", Link::Shared, folder.path());
    let Some(program) = compiled else { return };
    let path = folder.path().join("buffers.csv");
    let path_text = path.to_str().unwrap();
    for seed in 0..6 {
        let text = random_csv(10 + 2 * seed, seed, seed % 2 == 1);
        fs::write(&path, &text).unwrap();
        let (csv, packing) = packed(&text, None, None);
        let expected = csv.to_csv(Some(&packing)).unwrap();
        assert_eq!(run(&program, &[path_text]), (0, expected.clone()), "seed {seed}");
        // With the capacity that is needed, and with one byte less than is possible.
        let capacity = packing.peak();
        let (csv, packing) = packed(&text, Some(capacity), Some(50));
        let expected = match packing.status() {
            Status::Optimal | Status::Feasible => (0, csv.to_csv(Some(&packing)).unwrap()),
            _ => (1, String::new()),
        };
        assert_eq!(run(&program, &[path_text, &capacity.to_string(), "50"]), expected);
        let less = packing.lower_bound() - 1;
        assert_eq!(run(&program, &[path_text, &less.to_string(), "50"]), (1, String::new()));
        if seed < 2 {
            let checked = run_checked(&program, &[path_text, &capacity.to_string()]);
            assert!(checked.is_none_or(|(code, _)| code == 0));
        }
    }
    fs::write(&path, "id,lower,upper,size\na,2,1,4\n").unwrap();
    assert_eq!(run(&program, &[path_text]).0, 2);
}

#[test]
fn the_example_in_cpp_replaces_a_call_of_minimalloc() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = compile(&example("minimalloc.cpp"), "c++17", Link::Static, folder.path());
    let Some(program) = compiled else { return };
    let path = folder.path().join("buffers.csv");
    let path_text = path.to_str().unwrap();
    for seed in 0..4 {
        let text = random_csv(12, 100 + seed, false);
        fs::write(&path, &text).unwrap();
        let capacity = packed(&text, None, None).1.peak();
        let arguments = [path_text, &capacity.to_string()];
        let expected = ids_and_offsets(&packed(&text, Some(capacity), None));
        assert_eq!(run(&program, &arguments), (0, expected.clone()));
        if seed == 0 {
            let checked = run_checked(&program, &arguments);
            assert!(checked.is_none_or(|found| found == (0, expected)));
        }
        assert_eq!(run(&program, &[path_text, "1"]), (1, String::new()));
    }
    assert_eq!(run(&program, &[path_text, "-5"]).0, 2, "a negative capacity is refused");
}

/// Returns what the example in C++ prints.
fn ids_and_offsets((csv, packing): &(CsvProblem, Packing)) -> String {
    let rows = packing.offsets().iter().enumerate();
    rows.fold(String::new(), |mut text, (row, offset)| {
        writeln!(text, "{},{offset}", csv.names.get(row).unwrap()).unwrap();
        text
    })
}

/// Returns a folder beside the repository, or says that the test is skipped.
fn shared(name: &str) -> Option<PathBuf> {
    let beside = root().join("../shared");
    let folder = std::env::var_os("ARENAPLAN_SHARED").map_or(beside, PathBuf::from).join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: there is no {}; set ARENAPLAN_SHARED", folder.display());
    None
}

#[test]
fn both_examples_pack_the_instances_of_minimalloc() {
    let Some(instances) = shared("instances/minimalloc") else { return };
    let folder = tempfile::tempdir().unwrap();
    let compiled = [
        compile(&example("pack.c"), "c99", Link::Static, folder.path()),
        compile(&example("minimalloc.cpp"), "c++17", Link::Shared, folder.path()),
    ];
    let [Some(c), Some(cpp)] = compiled else { return };
    let capacity = 1_048_576;
    for name in 'A'..='K' {
        let path = instances.join(format!("{name}.{capacity}.csv"));
        let arguments = [path.to_str().unwrap(), &capacity.to_string()];
        let found = packed(&fs::read_to_string(&path).unwrap(), Some(capacity), None);
        assert!(found.1.peak() <= capacity, "{name}");
        let expected = found.0.to_csv(Some(&found.1)).unwrap();
        assert_eq!(run(&c, &arguments), (0, expected), "{name}");
        assert_eq!(run(&cpp, &arguments), (0, ids_and_offsets(&found)), "{name}");
    }
}

/// Returns a graph with a constant, a step in place, a view and a workspace.
fn graph() -> Graph {
    let mut builder = Graph::builder("example");
    let array = |name, kind| Value::new(name, kind, DType::UINT8, [1000]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input));
    let w = builder.add_value(array("w", ValueKind::Constant));
    let [y, z, v, out] =
        ["y", "z", "v", "out"].map(|name| builder.add_value(array(name, ValueKind::Activation)));
    let scratch = [Choice { bytes: 300, cost: 0.0 }];
    builder.add_node(Node::new("load", "Load").reads([x, w]).writes([y]).workspace(scratch));
    builder.add_node(Node::new("change", "Change").reads([y]).writes([z]).in_place(0, 0));
    builder.add_node(Node::new("show", "Show").reads([z]).writes([v]).view(0, 0));
    builder.add_node(Node::new("join", "Join").reads([v, x]).writes([out]));
    builder.add_output(out);
    builder.build().unwrap()
}

/// Returns the plan of the graph, in a file.
fn plan_file(folder: &Path) -> (Graph, Plan, PathBuf) {
    let graph = graph();
    let planner = Planner::new().target(&Target::NODES).workspace(WorkspacePolicy::Auto);
    let plan = planner.alignment(64).plan(&graph).unwrap();
    let path = folder.join("plan.json");
    plan.save(&path).unwrap();
    (graph, plan, path)
}

/// Returns what the example that runs a plan prints, if every value has memory of its own.
fn expected_run(graph: &Graph, plan: &Plan) -> String {
    let mut values: Vec<Vec<u8>> = Vec::new();
    for value in graph.values() {
        let bytes = usize::try_from(value.bytes()).unwrap();
        values.push((0..bytes).map(|byte| u8::try_from(byte % 256).unwrap()).collect());
    }
    for (number, step) in plan.steps().iter().enumerate() {
        let node = graph.node(step.node.into());
        let constant = |value: &usize| graph.values()[*value].kind() == ValueKind::Constant;
        let reads: Vec<usize> = node.inputs().iter().flatten().map(|value| value.index()).collect();
        let output = node.output(0).unwrap().index();
        for byte in 0..values[output].len() {
            let sum: usize = reads
                .iter()
                .filter(|it| !constant(it))
                .map(|&it| usize::from(values[it][byte]))
                .sum();
            let sum = if node.op() == "Show" { sum } else { sum + number };
            values[output][byte] = u8::try_from(sum % 256).unwrap();
        }
    }
    let sum = |bytes: &[u8]| {
        bytes.iter().fold(0_u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    };
    let last = u32::try_from(plan.steps().len()).unwrap();
    let results = plan.placements().iter().filter(|place| place.live[1] >= last);
    results.fold(String::new(), |mut text, place| {
        let bytes = &values[usize::try_from(place.value).unwrap()];
        writeln!(text, "{} {}", place.name, sum(bytes)).unwrap();
        text
    })
}

#[test]
fn a_plan_runs_in_the_memory_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = compile(&example("run.c"), "c99", Link::Shared, folder.path());
    let Some(program) = compiled else { return };
    let (graph, plan, path) = plan_file(folder.path());
    // The plan has all that the example must deal with.
    assert!(plan.arena_bytes() < plan.naive_bytes().unwrap() + 300);
    assert_eq!(plan.steps().iter().map(|step| step.shares.len()).sum::<usize>(), 2);
    assert_eq!(plan.workspaces().len(), 1);
    let arguments = [path.to_str().unwrap()];
    let expected = expected_run(&graph, &plan);
    assert!(expected.contains("out "), "{expected}");
    assert_eq!(run(&program, &arguments), (0, expected.clone()));
    assert!(run_checked(&program, &arguments).is_none_or(|found| found == (0, expected)));
}

#[test]
fn wrong_calls_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = root().join("capi/tests/c/misuse.c");
    let (_, _, path) = plan_file(folder.path());
    let arguments = [path.to_str().unwrap()];
    let Some(program) = compile(&source, "c11", Link::Static, folder.path()) else { return };
    assert_eq!(run(&program, &arguments), (0, String::new()));
    assert!(run_checked(&program, &arguments).is_none_or(|(code, _)| code == 0));
}

/// Returns the graph of one shape of a model.
fn layer(batch: u64) -> Graph {
    let mut builder = Graph::builder("layer");
    let array = |name, kind| Value::new(name, kind, DType::FLOAT32, [batch, 64]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input));
    let y = builder.add_value(array("y", ValueKind::Activation));
    let z = builder.add_value(array("z", ValueKind::Activation));
    builder.add_node(Node::new("first", "Conv").reads([x]).writes([y]));
    builder.add_node(Node::new("second", "Relu").reads([y]).writes([z]).in_place(0, 0));
    builder.add_output(z);
    builder.build().unwrap()
}

#[test]
fn a_model_file_gives_the_plan_of_each_shape() {
    let folder = tempfile::tempdir().unwrap();
    let source = root().join("capi/tests/c/model.c");
    let Some(program) = compile(&source, "c11", Link::Shared, folder.path()) else { return };
    let mut builder = Model::builder("layer", ["batch"]);
    let mut expected = String::new();
    let planner = Planner::new().target(&Target::NODES);
    for batch in [1, 2, 4] {
        let graph = layer(batch);
        let plan = planner.plan(&graph).unwrap();
        builder.add(&[batch], &graph, &plan).unwrap();
        writeln!(expected, "batch={batch} {}", plan.arena_bytes()).unwrap();
    }
    expected.push_str("first Conv\nsecond Relu\n");
    let paths = ["model.plan.json", "one.graph.json", "two.graph.json"];
    let paths = paths.map(|name| folder.path().join(name));
    builder.build().unwrap().save(&paths[0]).unwrap();
    layer(1).save(&paths[1]).unwrap();
    layer(2).save(&paths[2]).unwrap();
    let arguments = paths.each_ref().map(|path| path.to_str().unwrap());
    assert_eq!(run(&program, &arguments), (0, expected.clone()));
    assert!(run_checked(&program, &arguments).is_none_or(|found| found == (0, expected)));
}

/// Returns two branches of a value, and their sum.
fn branches() -> Graph {
    let mut builder = Graph::builder("branches");
    let array = |name: String, kind| Value::new(name, kind, DType::UINT8, [500]).unwrap();
    let x = builder.add_value(array("x".into(), ValueKind::Input));
    let mut ends = Vec::new();
    for branch in ["left", "right"] {
        let mut last = x;
        for at in 0..2 {
            let name = format!("{branch}{at}");
            let next = builder.add_value(array(name.clone(), ValueKind::Activation));
            builder.add_node(Node::new(name, "Conv").reads([last]).writes([next]));
            last = next;
        }
        ends.push(last);
    }
    let sum = builder.add_value(array("sum".into(), ValueKind::Activation));
    builder.add_node(Node::new("sum", "Add").reads(ends).writes([sum]));
    builder.add_output(sum);
    builder.build().unwrap()
}

#[test]
fn a_server_in_c_plans_and_leases_as_the_core_does() {
    let folder = tempfile::tempdir().unwrap();
    let source = root().join("capi/tests/c/serve.c");
    let Some(program) = compile(&source, "gnu11", Link::Shared, folder.path()) else { return };
    let graph = branches();
    let path = folder.path().join("branches.graph.json");
    graph.save(&path).unwrap();
    let plan = Planner::new().workers(2).effort(Effort::Fast).plan(&graph).unwrap();
    let mut expected = format!("{} bytes\n", plan.arena_bytes());
    for step in plan.steps() {
        let node = graph.node(step.node.into());
        writeln!(expected, "{} {}", node.name(), node.op()).unwrap();
    }
    for edge in plan.hazards(&graph).unwrap().edges() {
        let kind = HazardKind::ALL.iter().position(|&kind| kind == edge.kind).unwrap();
        writeln!(expected, "{} waits for {} ({kind})", edge.after, edge.before).unwrap();
    }
    let arguments = [path.to_str().unwrap()];
    assert_eq!(run(&program, &arguments), (0, expected.clone()));
    assert!(run_checked(&program, &arguments).is_none_or(|found| found == (0, expected)));
}

#[test]
fn a_plan_whose_values_are_outside_of_its_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = compile(&example("run.c"), "c99", Link::Static, folder.path());
    let Some(program) = compiled else { return };
    let (_, plan, path) = plan_file(folder.path());
    let space = &plan.spaces()[0];
    let place = plan.placements().iter().max_by_key(|place| place.offset).unwrap();
    let (was, forged) = (format!("\"offset\":{}", place.offset), "\"offset\":1048576");
    let text = plan.to_json().replace(&was, forged);
    assert!(place.offset > 0 && space.arena_bytes < 1_048_576 && text.contains(forged));
    // The checksum of the changed text, so that only the bounds can refuse it.
    fs::write(&path, resealed(&text)).unwrap();
    assert!(Plan::load(&path).is_ok(), "the core reads it, and leaves the rest to check");
    assert_eq!(run(&program, &[path.to_str().unwrap()]).0, 2);
    assert!(run_checked(&program, &[path.to_str().unwrap()]).is_none_or(|(code, _)| code == 2));
}

/// Returns the text of a plan with a checksum that fits.
fn resealed(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let (head, _) = text.split_once(",\"checksum\":").unwrap();
    let digest = Sha256::digest(format!("{head}}}").as_bytes());
    let digest = digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    format!("{head},\"checksum\":\"{digest}\"}}\n")
}

#[test]
fn the_programs_of_the_page_on_c_compile_and_print_the_text_behind_them() {
    let page = fs::read_to_string(root().join("docs/c.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_, _, path) = plan_file(folder.path());
    let mut programs = 0;
    for (language, standard) in [("c", "c99"), ("cpp", "c++17")] {
        for block in page.split(&format!("```{language}\n")).skip(1) {
            let (code, rest) = block.split_once("```").unwrap();
            let printed = rest.trim_start().strip_prefix("```text\n").expect("the text behind it");
            let (printed, _) = printed.split_once("```").unwrap();
            programs += 1;
            let source = folder.path().join(format!("page{programs}.{language}"));
            fs::write(&source, code).unwrap();
            let compiled = compile(&source, standard, Link::Shared, folder.path());
            let Some(program) = compiled else { return };
            let found = run(&program, &[path.to_str().unwrap()]);
            assert_eq!(found, (0, printed.to_owned()), "program {programs}");
        }
    }
    assert_eq!(programs, 4);
}
