//! Model files: the graphs and plans of all shapes, checked when they are read.

use std::fs;

use arenaplan::model::Bucket;
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{ArenaPool, DType, Error, Graph, Model, Node, Plan, Planner, Value, ValueKind};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

/// Returns two layers and a sum, with a workspace; from batch 4 on in another form.
fn layers(batch: u64, seq: u64) -> Graph {
    let mut builder = Graph::builder("layers");
    let mut array = |name: &str, kind, shape: &[u64]| {
        builder.add_value(Value::new(name, kind, DType::FLOAT32, shape).unwrap())
    };
    let x = array("x", ValueKind::Input, &[batch, seq, 8]);
    let mask = array("mask", ValueKind::Input, &[seq]);
    let weight = array("w", ValueKind::Constant, &[8, 8]);
    let hidden = array("hidden", ValueKind::Activation, &[batch, seq, 8]);
    let flat = array("flat", ValueKind::Activation, &[batch * seq * 8]);
    let wide = array("wide", ValueKind::Activation, &[batch * seq, 8 * seq]);
    let y = array("y", ValueKind::Activation, &[batch * seq * 8]);
    let cost = 1.0 / (1.0 + batch as f64);
    let choices = [(64 * batch, cost), (16 * batch, 3.0 * cost)];
    let choices = choices.map(|(bytes, cost)| arenaplan::graph::Choice { bytes, cost });
    let node = Node::new("dense", "MatMul").reads([x, weight]).writes([hidden]);
    builder.add_node(node.flow(0, batch * seq, [0]).workspace(choices));
    builder.add_node(Node::new("reshape", "Reshape").reads([hidden]).writes([flat]).view(0, 0));
    let node = Node::new("widen", "Widen").reads([flat, mask]).writes([wide]);
    builder.add_node(if batch < 4 { node } else { node.overlap(0, 0, 8 * seq) });
    let node = Node::new("sum", "Add").reads([wide, flat]).writes([y]);
    builder.add_node(node.in_place(1, 0));
    builder.add_output(y);
    builder.build().unwrap()
}

fn plan(graph: &Graph) -> Plan {
    Planner::new().workspace(WorkspacePolicy::Auto).plan(graph).unwrap()
}

const BATCHES: [u64; 4] = [1, 2, 4, 5];
const SEQS: [u64; 2] = [3, 16];

fn family() -> Model {
    let mut builder = Model::builder("layers", ["batch", "seq"]);
    for seq in SEQS {
        for batch in BATCHES {
            let graph = layers(batch, seq);
            builder.add(&[batch, seq], &graph, &plan(&graph)).unwrap();
        }
    }
    builder.build().unwrap()
}

fn kind(text: &[u8]) -> &'static str {
    Model::from_json(text).map_or_else(|error| error.kind(), |_| "accepted")
}

/// Returns the text of a model with the checksum that fits its content.
fn sealed(text: &str) -> String {
    let (content, _) = text.rsplit_once(",\"checksum\":\"").unwrap();
    let content = format!("{content}}}");
    let digest = Sha256::digest(content.as_bytes());
    let sum = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{},\"checksum\":\"{sum}\"}}\n", &content[..content.len() - 1])
}

#[test]
fn each_shape_has_its_own_graph_and_plan_after_reading() {
    let written = family();
    let text = written.to_json();
    let model = Model::from_json(text.as_bytes()).unwrap();
    assert_eq!(model.to_json(), text, "written the same again");
    assert_eq!(model.len(), 8);
    let mut largest = 0;
    for batch in BATCHES {
        for seq in SEQS {
            let (graph, sizes) = (layers(batch, seq), [("seq", seq), ("batch", batch)]);
            let own = plan(&graph);
            assert_eq!(model.required_bytes(&sizes).unwrap(), own.arena_bytes());
            largest = largest.max(own.arena_bytes());
            let shape = model.find(&sizes, Bucket::Exact).unwrap();
            assert_eq!(shape.graph().unwrap(), &graph);
            assert_eq!(shape.plan().unwrap(), &own);
            assert_eq!(shape.program().unwrap().len(), own.steps().len());
            assert_eq!(shape.digest(), graph.digest());
            assert_eq!(shape.to_string(), format!("batch={batch} seq={seq}"));
        }
    }
    assert_eq!(model.arena_bytes(), largest);
    assert_eq!((model.name(), model.dims().len()), ("layers", 2));
    assert_eq!(model.dims()[0].sizes(), BATCHES);
}

#[test]
fn what_shapes_share_is_written_once() {
    let text = family().to_json();
    // Two forms of the graph; names are in each document of a graph and of a plan once or twice.
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let graphs = document["graphs"].as_array().unwrap();
    assert_eq!(graphs.len(), 2);
    assert!(document["plans"].as_array().unwrap().len() < 8);
    // The order in which shapes are added makes no difference.
    let mut builder = Model::builder("layers", ["batch", "seq"]);
    for batch in BATCHES.into_iter().rev() {
        for seq in SEQS {
            let graph = layers(batch, seq);
            builder.add(&[batch, seq], &graph, &plan(&graph)).unwrap();
        }
    }
    assert_eq!(builder.build().unwrap().to_json(), text);
}

#[test]
fn every_truncation_is_refused() {
    let mut builder = Model::builder("small", ["n"]);
    for n in [1, 2] {
        let graph = small(n);
        builder.add(&[n], &graph, &plan(&graph)).unwrap();
    }
    let text = builder.build().unwrap().to_json();
    for length in 0..text.len() - 1 {
        assert_eq!(kind(&text.as_bytes()[..length]), "ModelCorrupt", "{length}");
    }
}

fn small(n: u64) -> Graph {
    let mut builder = Graph::builder("small");
    let mut array =
        |name, kind| builder.add_value(Value::new(name, kind, DType::INT8, [n, 2]).unwrap());
    let (x, y) = (array("x", ValueKind::Input), array("y", ValueKind::Activation));
    builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    builder.add_output(y);
    builder.build().unwrap()
}

#[test]
fn every_flipped_bit_is_refused_or_means_the_same() {
    let mut builder = Model::builder("small", ["n"]);
    for n in [1, 200] {
        let graph = small(n);
        builder.add(&[n], &graph, &plan(&graph)).unwrap();
    }
    let written = builder.build().unwrap().to_json();
    let mut text = written.clone().into_bytes();
    let mut same = 0;
    for index in 0..text.len() {
        for bit in 0..8 {
            text[index] ^= 1 << bit;
            if let Ok(read) = Model::from_json(&text) {
                assert_eq!(read.to_json(), written, "byte {index}, bit {bit}");
                same += 1;
            }
            text[index] ^= 1 << bit;
        }
    }
    // Only the newline behind the document may become another blank.
    assert!(same <= 8, "{same} flips were not noticed");
}

#[test]
fn forged_files_are_refused_although_their_checksum_fits() {
    let text = family().to_json();
    assert_eq!(sealed(&text), text);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let digest = |shape: usize| document["shapes"][shape]["digest"].as_str().unwrap();
    let column = |of: &str, pointer: &str| {
        let columns = &document[of][0]["columns"];
        let id = document[of][0]["numbers"][pointer].as_u64().unwrap();
        columns[usize::try_from(id).unwrap()].to_string()
    };
    // Another digest, at the end of the file: that of another shape, or of no graph.
    let (first, second) = (digest(0), digest(1));
    let swapped = text.rsplit_once(first).unwrap();
    let swapped = format!("{}{second}{}", swapped.0, swapped.1);
    let error = Model::from_json(sealed(&swapped).as_bytes()).unwrap_err();
    assert_eq!(error.kind(), "PlanMismatch");
    assert!(error.to_string().starts_with("with batch=1 seq=3: "), "{error}");

    // The mask and the image are needed at once.
    let offset = "/values/1/offset";
    let image = column("plans", "/values/0/offset");
    let image = image.trim_matches(['[', ']']).rsplit(',').next().unwrap();
    let arena = "/spaces/0/arena_bytes";
    let shape = "/values/0/shape/0";
    for (of, place, number, expected) in [
        ("plans", offset, image, &["PlanOverlap", "PlanCorrupt", "PlanMismatch"][..]),
        ("plans", offset, "1", &["PlanMisaligned"]),
        ("plans", offset, "9223372036854775744", &["PlanOutOfBounds", "PlanCorrupt"]),
        ("plans", offset, "18446744073709551615", &["PlanMisaligned", "PlanOutOfBounds"]),
        ("plans", arena, "64", &["PlanOutOfBounds", "PlanCorrupt"]),
        ("graphs", shape, "7", &["PlanMismatch", "InvalidEffect", "AliasOutOfBounds"]),
        ("graphs", shape, "18446744073709551615", &["SizeOverflow"]),
    ] {
        let old = column(of, place);
        let mut numbers: Vec<String> =
            old.trim_matches(['[', ']']).split(',').map(str::to_owned).collect();
        *numbers.last_mut().unwrap() = number.into();
        let forged = text.replacen(&old, &format!("[{}]", numbers.join(",")), 1);
        assert_ne!(forged, text, "{place}");
        let Err(error) = Model::from_json(sealed(&forged).as_bytes()) else {
            panic!("{place} = {number} is accepted");
        };
        assert!(expected.contains(&error.kind()), "{place} = {number}: {error}");
        assert!(error.to_string().starts_with("with batch="), "{place} = {number}: {error}");
    }
}

#[test]
fn malformed_tables_are_refused_although_their_checksum_fits() {
    let text = family().to_json();
    let forge = |from: &str, to: &str| {
        let forged = text.replacen(from, to, 1);
        assert_ne!(forged, text, "{from}");
        Model::from_json(sealed(&forged).as_bytes()).unwrap_err()
    };
    let dims = "\"dims\":[\"batch\",\"seq\"]";
    for (from, to, says) in [
        (dims, "\"dims\":[\"seq\",\"seq\"]", "two dimensions are called 'seq'"),
        (dims, "\"dims\":[\"\",\"seq\"]", "a dimension has no name"),
        (dims, "\"dims\":[\"batch\"]", "one size per dimension"),
        ("\"sizes\":[1,3]", "\"sizes\":[1,16]", "not in ascending order"),
        ("\"sizes\":[1,3]", "\"sizes\":[9,3]", "not in ascending order"),
        ("\"sizes\":[1,3]", "\"sizes\":[1,3,1]", "one size per dimension"),
        ("\"graph\":0", "\"graph\":1", "in the order of their first shapes"),
        ("\"plan\":0", "\"plan\":4294967295", "in the order of their first shapes"),
        ("\"columns\":[[", "\"columns\":[[],[", "a column does not have"),
        ("\"columns\":[[", "\"columns\":[[0.5,", "whole numbers and others in one column"),
        // Ahead of all places, as the order of the file is that of the checksum.
        ("\"numbers\":{\"", "\"numbers\":{\"/!\":0,\"", "a place that has no number"),
        (
            "\"numbers\":{\"",
            "\"numbers\":{\"/nodes/0/cost\":0,\"",
            "does not begin with its number",
        ),
        ("\"format\":\"arenaplan-model\"", "\"format\":\"arenaplan\"", "its format is 'arenaplan'"),
        ("\"arena_bytes\":", "\"arena_bytes\":1", "its bytes are not those of its plans"),
    ] {
        let error = forge(from, to);
        assert_eq!(error.kind(), "ModelCorrupt", "{to}");
        assert!(error.to_string().contains(says), "{to}: {says}: {error}");
    }
    let none = text.find("\"graphs\":[").unwrap();
    let none = format!(
        "{}\"graphs\":[],\"plans\":[],\"shapes\":[],\"checksum\":\"",
        text[..none].replacen(
            &format!("\"arena_bytes\":{}", family().arena_bytes()),
            "\"arena_bytes\":0",
            1
        )
    );
    let error = Model::from_json(sealed(&none).as_bytes()).unwrap_err().to_string();
    assert!(error.contains("it has no shapes"), "{error}");
    assert_eq!(forge("\"version\":1", "\"version\":2").kind(), "ModelVersion");
    assert_eq!(forge("{\"format\"", "{\"bank\":1,\"format\"").kind(), "ModelVersion");
    // Files of other formats are named.
    let graph = layers(1, 3);
    let (graph, plan) = (graph.to_json(), plan(&graph).to_json());
    for (file, format) in
        [(&text, "arenaplan-model"), (&graph, "arenaplan-graph"), (&plan, "arenaplan")]
    {
        let errors = [
            Model::from_json(file.as_bytes()).err(),
            Graph::from_json(file.as_bytes()).err(),
            Plan::from_json(file.as_bytes()).err(),
        ];
        let texts: Vec<_> = errors.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 2, "{format}");
        assert!(
            texts.iter().all(|it| it.ends_with(&format!("its format is '{format}'"))),
            "{texts:?}"
        );
    }
}

#[test]
fn a_plan_of_another_model_is_refused() {
    let text = family().to_json();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let old = &document["plans"][0]["document"];
    let other = plan(&small(1)).to_json();
    let at = text.find("\"plans\":[{\"document\":").unwrap() + "\"plans\":[{\"document\":".len();
    let end = at + text[at..].find(",\"numbers\":").unwrap();
    assert!(text[at..end].starts_with('{') && old.is_object());
    let forged = format!("{}{}{}", &text[..at], other.trim_end(), &text[end..]);
    assert_eq!(kind(sealed(&forged).as_bytes()), "ModelCorrupt");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Bytes that are replaced are refused, or make a model whose plans are all valid.
    #[test]
    fn replaced_bytes_never_panic(places in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..128), 1..4)) {
        let mut text = family().to_json().into_bytes();
        let end = text.len() - 80;
        for (place, byte) in places {
            text[place.index(end)] = byte;
        }
        let text = String::from_utf8(text).unwrap();
        if let Ok(model) = Model::from_json(sealed(&text).as_bytes()) {
            for shape in model.shapes() {
                prop_assert!(shape.plan().unwrap().check(shape.graph().unwrap()).is_ok());
            }
        }
    }
}

#[test]
fn the_nearest_larger_shape_serves_if_padding_is_asked_for() {
    let model = family();
    let find = |batch, seq, bucket| {
        let found = model.find(&[("batch", batch), ("seq", seq)], bucket);
        found.map_or_else(|error| error.to_string(), |shape| shape.to_string())
    };
    assert_eq!(find(2, 16, Bucket::Padded), "batch=2 seq=16");
    assert_eq!(find(3, 4, Bucket::Padded), "batch=4 seq=16");
    assert_eq!(find(1, 1, Bucket::Padded), "batch=1 seq=3");
    let not = "is not one of the shapes that were planned; the nearest is";
    assert_eq!(find(6, 3, Bucket::Padded), format!("batch=6 {not} batch=5 seq=3"));
    assert_eq!(find(3, 3, Bucket::Exact), format!("batch=3 {not} batch=2 seq=3"));
    assert_eq!(find(4, 9, Bucket::Exact), format!("seq=9 {not} batch=4 seq=3"));
}

#[test]
fn wrong_dimensions_are_named() {
    let model = family();
    let fails = |sizes: &[(&str, u64)]| {
        let error = model.find(sizes, Bucket::Exact).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = fails(&[("bacth", 1), ("seq", 3)]);
    assert_eq!(kind, "UnknownDim");
    assert_eq!(text, "the model has no dimension 'bacth'; there are batch, seq");
    let (kind, text) = fails(&[("batch", 1)]);
    assert_eq!(kind, "UnboundDim");
    assert_eq!(text, "dimension 'seq' has several sizes: say which, 3, 16");
    assert_eq!(fails(&[("batch", 1), ("seq", 3), ("batch", 2)]).0, "InvalidOption");
    // A dimension with one size may be left out.
    let mut builder = Model::builder("layers", ["batch", "seq"]);
    for batch in [1, 2] {
        let graph = layers(batch, 3);
        builder.add(&[batch, 3], &graph, &plan(&graph)).unwrap();
    }
    let model = builder.build().unwrap();
    assert!(model.required_bytes(&[("batch", 2)]).unwrap() > 0);
}

#[test]
fn shapes_are_found_by_the_inputs_of_a_request() {
    let model = family();
    let find = |inputs: &[(&str, &[u64])], bucket| {
        let found = model.find_inputs(inputs, bucket);
        found.map_or_else(|error| error.to_string(), |shape| shape.to_string())
    };
    assert_eq!(find(&[("x", &[2, 16, 8]), ("mask", &[16])], Bucket::Exact), "batch=2 seq=16");
    assert_eq!(find(&[("x", &[3, 16, 8])], Bucket::Padded), "batch=4 seq=16");
    assert_eq!(find(&[("mask", &[4]), ("x", &[1, 4, 8])], Bucket::Padded), "batch=1 seq=16");
    assert_eq!(
        find(&[("x", &[2, 16, 9])], Bucket::Padded),
        "[2, 16, 9] of input 'x' is not one of the shapes that were planned; the nearest is \
         [2, 16, 8], with batch=2 seq=16"
    );
    assert!(find(&[("z", &[1])], Bucket::Exact).contains("input 'z'"));
    // Each input has a shape that was planned, but not both together.
    let both = find(&[("x", &[2, 16, 8]), ("mask", &[3])], Bucket::Exact);
    assert!(both.contains("of input 'x'"), "{both}");
}

#[test]
fn a_builder_refuses_what_is_no_shape() {
    let mut builder = Model::builder("small", ["n"]);
    let (one, two) = (small(1), small(2));
    let mut add = |sizes: &[u64], graph, of| {
        builder.add(sizes, graph, &plan(of)).map_or_else(|error| error.kind(), |_| "accepted")
    };
    assert_eq!(add(&[1, 2], &one, &one), "InvalidOption");
    assert_eq!(add(&[1], &one, &two), "PlanMismatch");
    assert_eq!(add(&[1], &one, &one), "accepted");
    assert_eq!(add(&[1], &two, &two), "InvalidOption");
    assert_eq!(builder.build().unwrap().len(), 1);
    let empty = Model::builder("small", ["n"]).build();
    assert_eq!(empty.unwrap_err().kind(), "InvalidOption");
    let mut twice = Model::builder("small", ["n", "n"]);
    twice.add(&[1, 1], &one, &plan(&one)).unwrap();
    let error = twice.build().unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "dims", .. }), "{error}");
}

/// A file gives each shape its own numbers, which are examined as those of a graph by itself.
#[test]
fn numbers_of_each_shape_make_effects_that_fit() {
    let graph = |n: u64| {
        let mut builder = Graph::builder("numbers");
        let mut array = |name, kind, size| {
            builder.add_value(Value::new(name, kind, DType::INT8, [size]).unwrap())
        };
        let x = array("x", ValueKind::Input, 1000 + n);
        let y = array("y", ValueKind::Activation, 500 + n);
        let choice = arenaplan::graph::Choice { bytes: 7000 + n, cost: 1.0 };
        let node = Node::new("n", "Op").reads([x]).writes([y]);
        builder.add_node(node.in_place(0, 0).workspace([choice]));
        builder.add_output(y);
        builder.build().unwrap()
    };
    let mut builder = Model::builder("numbers", ["n"]);
    for n in [1, 2] {
        builder.add(&[n], &graph(n), &plan(&graph(n))).unwrap();
    }
    let text = builder.build().unwrap().to_json();
    for (from, to, expected) in [
        ("[1001,1002]", "[1001,9]", "InvalidEffect"),
        ("[7001,7002]", "[7001,9223372036854775808]", "SizeOverflow"),
    ] {
        let (graphs, rest) = text.split_once("\"plans\"").unwrap();
        let forged = format!("{}\"plans\"{rest}", graphs.replacen(from, to, 1));
        assert_ne!(forged, text, "{from}");
        assert_eq!(kind(sealed(&forged).as_bytes()), expected, "{to}");
    }
}

#[test]
fn files_are_replaced_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.plan.json");
    let model = family();
    model.save(&path).unwrap();
    let first = fs::read(&path).unwrap();
    Model::load(&path).unwrap().save(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
    assert_eq!(Model::load(folder.path()).unwrap_err().kind(), "FileUnreadable");
}

#[test]
fn a_pool_leases_arenas_for_the_shapes_of_a_model() {
    let model = family();
    let pool = ArenaPool::builder().cap(2 * model.arena_bytes()).build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for shape in model.shapes() {
                    let mut lease = pool.wait(shape.program().unwrap(), None).unwrap();
                    lease.run(|_, _| Ok::<(), arenaplan::Error>(())).unwrap();
                }
            });
        }
    });
    assert_eq!(pool.statistics().leased_bytes, 0);
}

#[test]
fn many_threads_may_use_one_model() {
    let model = family();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for shape in model.shapes() {
                    let mut arena = shape.plan().unwrap().commit().unwrap();
                    let program = shape.program().unwrap();
                    assert!(program.steps().all(|step| arena.step(program, step).is_ok()));
                }
            });
        }
    });
}
