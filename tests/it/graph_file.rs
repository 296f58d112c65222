//! Graph files: read back what was written, and nothing else.

use std::fs;

use arenaplan::base::Alignment;
use arenaplan::graph::{Attribute, Choice, Flow, InPlace, Overlap, View, Whole, Workspace};
use arenaplan::pack::Space;
use arenaplan::{DType, Effects, Graph, Node, Value, ValueKind};
use proptest::prelude::*;

use crate::graphs::graphs;

/// Returns a graph with every field that a file can have.
fn sample() -> Graph {
    let mut builder = Graph::builder("sample \"quoted\"\n");
    builder.set_default_space(Space::new("sram").with_capacity(1 << 20).with_cost(1));
    let alignment = Alignment::new(32).unwrap();
    let slow = builder.add_space(Space::new("slow").with_alignment(alignment).with_cost(7));
    let array =
        |name: &str, kind, shape: &[u64]| Value::new(name, kind, DType::FLOAT32, shape).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input, &[4, 8]).with_pin(64));
    let weight = builder.add_value(array("w", ValueKind::Constant, &[8, 8]));
    let state = builder.add_value(array("s", ValueKind::State, &[4, 8]).with_space(slow));
    let y = builder.add_value(array("y", ValueKind::Activation, &[4, 8]).with_alignment(alignment));
    let z = builder.add_value(array("z", ValueKind::Activation, &[2, 8]));
    let choice = |bytes, cost| Choice { bytes, cost };
    let work = |choices: &[Choice]| Workspace { choices: choices.to_vec(), alignment };
    let effects = Effects {
        in_place: vec![InPlace { input: 0, output: 0, identity: true }],
        flows: vec![Flow { output: 0, pieces: 4, follows: vec![0] }],
        loads: vec![1],
        overlaps: vec![Overlap { input: 0, output: 0, distance: 16 }],
        ignores: vec![1],
        mutates: vec![2],
        workspaces: vec![work(&[choice(128, 0.1), choice(64, 1.5e-9)])],
        staging: Some(vec![work(&[choice(256, 3.0)])]),
        ..Effects::default()
    };
    let first = Node::new("first", "MatMul")
        .with_operator_set("com.example", 7)
        .with_attributes(sample_attributes());
    let first = first.reads([Some(x), Some(weight), Some(state), None]);
    let first = builder.add_node(first.writes([Some(y), None]).with_effects(effects));
    let view = View { input: 0, output: 0, offset: 64, whole: Whole::Input };
    let effects = Effects { views: vec![view], ..Effects::default() };
    let last = Node::new("last", "Slice").reads([y]).writes([z]).with_effects(effects);
    builder.add_node(last.after([first]).pure().with_cost(u64::MAX));
    let old = builder.add_value(array("old", ValueKind::Input, &[2, 8]));
    builder.add_write_back(z, old);
    builder.add_output(z);
    builder.add_output(y);
    builder.build().unwrap()
}

/// Returns an attribute of each kind, with numbers that are easily taken for another kind.
fn sample_attributes() -> [(String, Attribute); 9] {
    let named = |name: &str, value: Attribute| (name.to_owned(), value);
    [
        named("whole", i64::MIN.into()),
        named("real", 1.0.into()),
        named("tiny", (-f64::MIN_POSITIVE).into()),
        named("text", "zero \"quoted\"\n\u{0}".into()),
        named("empty", Vec::<i64>::new().into()),
        named("wholes", vec![1, -1, i64::MAX].into()),
        named("reals", vec![1.0, -0.0, 1e300].into()),
        named("texts", vec!["a".to_owned(), String::new()].into()),
        named("tensor", Attribute::Omitted),
    ]
}

fn kind(text: &[u8]) -> &'static str {
    Graph::from_json(text).map_or_else(|error| error.kind(), |_| "accepted")
}

/// Returns the text of a graph without digest and checksum, as another program writes it.
fn unsealed(graph: &Graph) -> String {
    let mut document: serde_json::Value = serde_json::from_str(&graph.to_json()).unwrap();
    for field in ["digest", "checksum"] {
        assert!(document.as_object_mut().unwrap().remove(field).is_some());
    }
    document.to_string()
}

proptest! {
    /// A graph survives being written and read, and is written the same again.
    #[test]
    fn reading_undoes_writing(graph in graphs(16)) {
        let text = graph.to_json();
        let read = Graph::from_json(text.as_bytes()).unwrap();
        prop_assert_eq!(read.digest(), graph.digest());
        prop_assert_eq!(read.to_json(), text);
        prop_assert_eq!(&read, &graph);
    }

    /// Bytes that are replaced are refused, or make a graph that is valid in itself.
    #[test]
    fn replaced_bytes_never_panic(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut text = unsealed(&sample()).into_bytes();
        for (place, byte) in places {
            let at = place.index(text.len());
            text[at] = byte;
        }
        if let Ok(graph) = Graph::from_json(&text) {
            prop_assert_eq!(Graph::from_json(graph.to_json().as_bytes()), Ok(graph));
        }
    }
}

#[test]
fn every_field_is_written_and_read() {
    let graph = sample();
    let text = graph.to_json();
    assert_eq!(Graph::from_json(text.as_bytes()).unwrap(), graph);
    let fields = "capacity cost alignment pin space identity follows loads distance ignores \
                  mutates choices staging after";
    for field in fields.split_whitespace() {
        assert!(text.contains(&format!("\"{field}\":")), "{field}");
    }
    assert_eq!(Graph::from_json(unsealed(&graph).as_bytes()).unwrap(), graph);
}

#[test]
fn every_truncation_is_refused() {
    let text = sample().to_json();
    // The last byte is the newline behind the document.
    for length in 0..text.len() - 1 {
        assert_eq!(kind(&text.as_bytes()[..length]), "GraphCorrupt", "{length}");
    }
}

#[test]
fn every_flipped_bit_is_refused_or_means_the_same() {
    let graph = sample();
    let mut text = graph.to_json().into_bytes();
    let mut same = 0;
    for index in 0..text.len() {
        for bit in 0..8 {
            text[index] ^= 1 << bit;
            if let Ok(read) = Graph::from_json(&text) {
                assert_eq!(read, graph, "byte {index}, bit {bit}");
                same += 1;
            }
            text[index] ^= 1 << bit;
        }
    }
    // Only the newline behind the document may become another blank.
    assert!(same <= 8, "{same} flips were not noticed");
}

#[test]
fn the_digest_of_another_graph_is_refused() {
    let graph = sample();
    let text = unsealed(&graph);
    let forge = |digest: &str| {
        let with = text.replacen('{', &format!("{{\"digest\":\"{digest}\","), 1);
        kind(with.as_bytes())
    };
    assert_eq!(forge(&graph.digest()), "accepted");
    let other = Graph::builder("other").build().unwrap();
    assert_eq!(forge(&other.digest()), "GraphCorrupt");
}

#[test]
fn other_versions_and_unknown_fields_are_told_apart_from_damage() {
    let text = unsealed(&sample());
    let newer = text.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(kind(newer.as_bytes()), "GraphVersion");
    let other = text.replacen('{', "{\"bank\":1,", 1);
    assert_eq!(kind(other.as_bytes()), "GraphVersion");
    let optional = text.replacen('{', "{\"x-note\":[1,{\"a\":2}],", 1);
    assert_eq!(kind(optional.as_bytes()), "accepted");
    let plan = text.replacen("arenaplan-graph", "arenaplan", 1);
    assert_eq!(kind(plan.as_bytes()), "GraphCorrupt");
}

#[test]
fn errors_of_content_name_the_value_or_node() {
    let text = unsealed(&sample());
    for (from, to, expected, name) in [
        ("\"shape\":[4,8]", "\"shape\":[4294967296,4294967296]", "SizeOverflow", "'x'"),
        ("\"dtype\":\"float32\"", "\"dtype\":\"string\"", "UnsupportedDtype", "'x'"),
        ("\"kind\":\"constant\"", "\"kind\":\"inner\"", "InvalidName", "'inner'"),
        ("\"name\":\"w\"", "\"name\":\"x\"", "DuplicateName", "'x'"),
        ("\"name\":\"w\"", "\"name\":\"\"", "InvalidName", "a value"),
        ("\"alignment\":32", "\"alignment\":33", "InvalidAlignment", "'first'"),
        ("\"inputs\":[3]", "\"inputs\":[9]", "UndefinedValue", "'last'"),
        ("\"outputs\":[4]", "\"outputs\":[3]", "DuplicateProducer", "'last'"),
        ("\"outputs\":[4,3]", "\"outputs\":[4,99]", "UndefinedValue", "outputs"),
        ("\"offset\":64", "\"offset\":65", "AliasOutOfBounds", "'last'"),
        ("\"pieces\":4", "\"pieces\":5", "InvalidEffect", "'first'"),
        ("\"mutates\":[2]", "\"mutates\":[0]", "InvalidEffect", "'first'"),
        ("\"loads\":[1]", "\"loads\":[4294967295]", "InvalidEffect", "'first'"),
        ("\"after\":[0]", "\"after\":[1]", "GraphCycle", "'last'"),
        ("\"space\":1", "\"space\":2", "UndefinedValue", "'s'"),
        ("\"cost\":3.0", "\"cost\":-3.0", "InvalidEffect", "'first'"),
        ("\"bytes\":256", "\"bytes\":18446744073709551615", "SizeOverflow", "'first'"),
    ] {
        let forged = text.replacen(from, to, 1);
        assert_ne!(forged, text, "{from}");
        let error = Graph::from_json(forged.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), expected, "{to}: {error}");
        assert!(error.to_string().contains(name), "{to}: {error}");
    }
}

#[test]
fn numbers_are_whole_and_in_range() {
    let text = unsealed(&sample());
    for number in ["1e400", "12.0", "-0", "-1", "NaN", "18446744073709551616", "\"12\"", "true"] {
        let forged = text.replacen("\"distance\":16", &format!("\"distance\":{number}"), 1);
        assert_ne!(forged, text);
        assert_eq!(kind(forged.as_bytes()), "GraphCorrupt", "{number}");
    }
}

#[test]
fn repeated_keys_and_deep_nesting_are_refused() {
    let text = unsealed(&sample());
    let twice = text.replacen('{', "{\"name\":\"other\",", 1);
    assert_eq!(kind(twice.as_bytes()), "GraphCorrupt");
    let deep = "[".repeat(100_000);
    assert_eq!(kind(deep.as_bytes()), "GraphCorrupt");
    let nested = text.replacen('{', &format!("{{\"x-deep\":{deep},"), 1);
    assert_eq!(kind(nested.as_bytes()), "GraphCorrupt");
}

#[test]
fn effects_that_take_too_long_to_compare_are_refused() {
    // 40,000 operands, each ignored: 1.6 billion comparisons.
    let count = 40_000;
    let operands = vec!["0"; count].join(",");
    let ignores: Vec<_> = (0..count).map(|position| position.to_string()).collect();
    let text = format!(
        "{{\"format\":\"arenaplan-graph\",\"version\":1,\"name\":\"\",\"values\":[{{\"name\":\"x\",\
         \"kind\":\"input\",\"dtype\":\"int8\",\"shape\":[1]}}],\"nodes\":[{{\"name\":\"n\",\
         \"op\":\"Op\",\"inputs\":[{operands}],\"outputs\":[],\"ignores\":[{}]}}],\"outputs\":[]}}",
        ignores.join(",")
    );
    assert_eq!(kind(text.as_bytes()), "GraphCorrupt");
}

#[test]
fn files_are_replaced_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.graph.json");
    let graph = sample();
    graph.save(&path).unwrap();
    let first = fs::read(&path).unwrap();
    Graph::load(&path).unwrap().save(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
    let missing = Graph::load(folder.path().join("none.json")).unwrap_err();
    assert_eq!(missing.kind(), "FileUnreadable");
}

/// Returns a graph file with one node, and `fields` in that node.
fn with_fields(fields: &str) -> String {
    let head = r#"{"format":"arenaplan-graph","version":1,"name":"one","#;
    let values = r#""values":[{"name":"x","kind":"input","dtype":"int8","shape":[4]}],"#;
    let node = r#"{"name":"n","op":"Print","inputs":[0],"outputs":[]"#;
    format!(r#"{head}{values}"nodes":[{node}{fields}}}],"outputs":[0]}}"#)
}

#[test]
fn attributes_survive_with_their_kinds() {
    let graph = sample();
    let text = graph.to_json();
    let read = Graph::from_json(text.as_bytes()).unwrap();
    let node = &read.nodes()[0];
    assert_eq!((node.domain(), node.version()), ("com.example", 7));
    assert_eq!(node.attributes().len(), 9);
    for (name, value) in sample_attributes() {
        assert_eq!(node.attribute(&name), Some(&value), "{name}");
    }
    let Some(Attribute::Reals(reals)) = node.attribute("reals") else { panic!("no reals") };
    assert!(reals[1].is_sign_negative());
    assert_eq!(read.to_json(), text);
    assert!(text.contains(r#""real":1.0,"#) && text.contains(r#""tensor":null"#), "{text}");
}

#[test]
fn lists_without_elements_have_one_form() {
    let reals = Node::new("n", "Op").with_attribute("list", Vec::<f64>::new());
    let texts = Node::new("n", "Op").with_attribute("list", Vec::<String>::new());
    assert_eq!(reals, texts);
    let list = reals.attribute("list").unwrap();
    assert_eq!(list.as_integers(), Some(&[][..]));
    assert_eq!(list.as_reals(), Some(&[][..]));
    assert_eq!(list.as_texts(), Some(&[][..]));
}

/// A plan is for all graphs that differ in nothing but attributes; their files differ.
#[test]
fn attributes_are_part_of_files_and_not_of_digests() {
    let [one, two] = [1, 2].map(|stride| {
        let text = with_fields(&format!(r#","version":13,"attributes":{{"strides":[{stride}]}}"#));
        Graph::from_json(text.as_bytes()).unwrap()
    });
    assert_eq!(one.digest(), two.digest());
    assert_ne!(one, two);
    assert_ne!(one.to_json(), two.to_json());
    // The checksum tells a file with other attributes from the file that was written.
    let text = one.to_json().replace(r#""strides":[1]"#, r#""strides":[2]"#);
    let error = Graph::from_json(text.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), "GraphCorrupt");
    assert!(error.to_string().contains("checksum"), "{error}");
}

#[test]
fn files_without_attributes_are_as_before() {
    let graph = Graph::from_json(with_fields("").as_bytes()).unwrap();
    let node = &graph.nodes()[0];
    assert_eq!((node.domain(), node.version(), node.attributes().len()), ("", 0, 0));
    for field in ["domain", "attributes", "\"version\":0"] {
        assert!(!graph.to_json().contains(field), "{field}");
    }
}

#[test]
fn attributes_of_no_kind_are_refused() {
    for (value, expected) in [
        ("1", "accepted"),
        ("-0", "accepted"),
        ("[]", "accepted"),
        ("true", "GraphCorrupt"),
        ("9223372036854775808", "GraphCorrupt"),
        ("1e999", "GraphCorrupt"),
        ("[1,2.0]", "GraphCorrupt"),
        ("[1,\"a\"]", "GraphCorrupt"),
        ("[[1]]", "GraphCorrupt"),
        ("[null]", "GraphCorrupt"),
        ("{}", "GraphCorrupt"),
        ("1,\"a\":2", "GraphCorrupt"),
    ] {
        let text = with_fields(&format!(r#","attributes":{{"a":{value}}}"#));
        assert_eq!(kind(text.as_bytes()), expected, "{value}");
    }
    let nameless = with_fields(r#","attributes":{"":1}"#);
    assert_eq!(kind(nameless.as_bytes()), "InvalidAttribute");
    let mut builder = Graph::builder("g");
    builder.add_node(Node::new("n", "Op").with_attribute("alpha", f64::NAN));
    let error = builder.build().unwrap_err().to_string();
    assert!(error.contains("'n'") && error.contains("'alpha'"), "{error}");
}
