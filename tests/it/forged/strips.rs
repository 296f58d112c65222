//! Rules of `check/strip_replay.rs`: rows that are made strip by strip, and their line buffers.

use arenaplan::graph::{Choice, Window};
use arenaplan::plan::{InputMemory, LineBuffer, RowsInPlace, Strips, WorkspacePolicy};
use arenaplan::{
    DType, Effects, Graph, Node, NodeId, Plan, Target, Technique, Techniques, Value, ValueId,
    ValueKind,
};
use serde_json::{Value as Json, json};

use super::{accept, raw, refuse, row, step, value};
use crate::check::forge;
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

const KIND: &str = "PlanMismatch";
const HEIGHT: u64 = 12;

/// A window over rows, which are the second dimension.
fn window(input: usize, extent: u64, stride: u64, before: i64) -> Window {
    Window { input, output: 0, axis: 1, extent, stride, before, scale: 1 }
}

/// What is different in a graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Difference {
    Nothing,
    /// The second convolution needs its operand whole.
    Whole,
    /// What the first convolution makes is an output of the graph.
    Leaves,
    /// The windows of the sum are over another dimension.
    Across,
    /// The windows of the sum are over two dimensions.
    Mixed,
    /// The sum needs an operand whole, and rows of the others.
    Partly,
    /// The first rows of the second convolution see no row.
    Late,
    /// The activation has a window of three rows, and may still be in place.
    SeesMore,
    /// The activation may not be in place.
    Apart,
    /// The second convolution needs no bytes of its operand.
    Ignores,
    /// What the first convolution makes has two elements in a byte.
    Nibbles,
    /// What the first convolution makes has no rows.
    Empty,
}

/// A convolution *a*, its activation *r*, another convolution *t* of the input, a convolution *b* of
/// *r*, the sum *s* of *b*, *r* and *t*, and a pool *p* with a stride of 2. Rows have 8 elements of 4
/// bytes.
fn residual(difference: Difference) -> Graph {
    let mut builder = Graph::builder("residual");
    let mut image = |name: &str, kind, rows| {
        let nibbles = difference == Difference::Nibbles && name == "a";
        let dtype = if nibbles { DType::UINT4 } else { DType::FLOAT32 };
        let value = Value::new(name, kind, dtype, [2, rows, 4]).unwrap();
        builder.add_value(value)
    };
    let x = image("x", ValueKind::Input, HEIGHT);
    let rows = if difference == Difference::Empty { 0 } else { HEIGHT };
    let a = image("a", ValueKind::Activation, rows);
    let names = ["r", "t", "b", "s"];
    let [r, t, b, s] = names.map(|name| image(name, ValueKind::Activation, HEIGHT));
    let p = image("p", ValueKind::Activation, HEIGHT / 2);
    let conv = window(0, 3, 1, 1);
    let same = |input| window(input, 1, 1, 0);
    builder.add_node(Node::new("a", "Conv").reads([x]).writes([a]).window(conv));
    let seen = if difference == Difference::SeesMore { conv } else { same(0) };
    let relu = Node::new("r", "Relu").reads([a]).writes([r]).window(seen);
    let apart = [Difference::Apart, Difference::Nibbles, Difference::Empty];
    builder.add_node(if apart.contains(&difference) { relu } else { relu.in_place(0, 0) });
    builder.add_node(Node::new("t", "Conv").reads([x]).writes([t]).window(same(0)));
    let mut second = Node::new("b", "Conv").reads([r]).writes([b]);
    if difference == Difference::Ignores {
        second = second.with_effects(Effects { ignores: vec![0], ..Effects::default() });
    }
    let seen = if difference == Difference::Late { window(0, 1, 1, 2) } else { conv };
    builder.add_node(if difference == Difference::Whole { second } else { second.window(seen) });
    let sum = Node::new("s", "Add").reads([b, r, t]).writes([s]).in_place(0, 0);
    let across = |input| match difference {
        Difference::Across => true,
        Difference::Mixed => input == 2,
        _ => false,
    };
    let over = |sum: Node, input| {
        sum.window(Window { axis: if across(input) { 2 } else { 1 }, ..same(input) })
    };
    let inputs = if difference == Difference::Partly { 2 } else { 3 };
    builder.add_node((0..inputs).fold(sum, over));
    let pool = Node::new("p", "Pool").reads([s]).writes([p]).window(window(0, 2, 2, 0));
    builder.add_node(pool.workspace([Choice { bytes: 736, cost: 1.0 }]));
    if difference == Difference::Leaves {
        builder.add_output(a);
    }
    builder.add_output(p);
    builder.build().unwrap()
}

/// The line buffers of the residual with strips of one row: *r* keeps rows for the next strip, *s*
/// and *t* have none to keep.
fn strips() -> Strips {
    let line = |value, offset, rows| LineBuffer { value, offset, rows };
    Strips {
        rows: 1,
        // Rows are 32 bytes. *r* holds rows -1 to 3 around two rows of *b*, and one row is kept.
        buffers: vec![line(2, 0, 4), line(3, 192, 2), line(5, 128, 2)],
        in_place: vec![RowsInPlace { value: 1, of: 2 }, RowsInPlace { value: 4, of: 5 }],
    }
}

fn planned(graph: &Graph, policy: WorkspacePolicy) -> arenaplan::Result<Plan> {
    planned_in(strips(), graph, policy)
}

fn planned_in(strips: Strips, graph: &Graph, policy: WorkspacePolicy) -> arenaplan::Result<Plan> {
    let nodes: Vec<NodeId> = (0..6).map(NodeId::new).collect();
    let strips = [(NodeId::new(5), strips)];
    ideal_planner().workspace(policy).strips(&strips).plan_steps(graph, &[nodes])
}

fn case() -> Case {
    let graph = residual(Difference::Nothing);
    let plan = planned(&graph, WorkspacePolicy::Auto).unwrap();
    (graph, plan)
}

/// Changes the strips of the only step.
fn change(change: impl Fn(&mut Json) + 'static) -> impl Fn(&mut Json) {
    move |json| change(&mut step(json, "p")["strips"])
}

#[test]
fn rows_that_are_kept_are_read_where_they_are() {
    let (graph, plan) = case();
    plan.check(&graph).unwrap();
    assert_eq!(plan.steps()[0].strips.as_ref(), Some(&strips()));
    // Nothing but the input and the output has a place.
    assert_eq!(plan.placements().len(), 2);
    let again = Plan::from_json(plan.to_json().as_bytes()).unwrap();
    assert_eq!(again.steps(), plan.steps());
    again.check(&graph).unwrap();
    // Strips of all rows are a step like any other.
    let line = |value, offset| LineBuffer { value, offset, rows: HEIGHT };
    let buffers = vec![line(2, 0), line(3, 384), line(5, 768)];
    let whole = Strips { rows: 6, buffers, ..strips() };
    planned_in(whole, &graph, WorkspacePolicy::None).unwrap();
}

#[test]
fn plans_without_scratch_memory_have_line_buffers() {
    let bare = || {
        let graph = residual(Difference::Nothing);
        let plan = planned(&graph, WorkspacePolicy::None).unwrap();
        (graph, plan)
    };
    let (_, plan) = bare();
    let [lines] = plan.workspaces() else { panic!("one step has line buffers") };
    assert_eq!((lines.node, lines.slot, lines.choice, lines.bytes), (5, 0, 0, 256));
    // The input, the output and the line buffers.
    assert_eq!(plan.arena_bytes(), 384 + 192 + 256);
    let change = |change: fn(&mut Json)| move |json: &mut Json| change(&mut json["workspaces"]);
    refuse(vec![
        row("line buffers have no place", bare(), KIND, "has no place", {
            change(|lines| *lines = json!([]))
        }),
        row("another node has them", bare(), KIND, "not where it should be listed", {
            change(|lines| lines[0]["node"] = 4.into())
        }),
        row("they are another workspace", bare(), KIND, "not where it should be listed", {
            change(|lines| lines[0]["slot"] = 1.into())
        }),
        row("they have another size", bare(), KIND, "has 256 bytes", {
            change(|lines| lines[0]["bytes"] = 320.into())
        }),
        row("they are a choice", bare(), KIND, "has 256 bytes", {
            change(|lines| lines[0]["choice"] = 1.into())
        }),
        row("they are misaligned", bare(), "PlanMisaligned", "line buffers of node 'p'", {
            change(|lines| lines[0]["offset"] = 8.into())
        }),
        raw("they end behind the arena", bare(), "PlanOutOfBounds", "line buffers of node 'p'", {
            change(|lines| lines[0]["offset"] = 832.into())
        }),
        row("they are in no arena", bare(), "PlanCorrupt", "of space 1 are in no memory", {
            change(|lines| lines[0]["space"] = 1.into())
        }),
        row("no node has them", bare(), "PlanCorrupt", "no step runs node 6", {
            change(|lines| lines[0]["node"] = 6.into())
        }),
        row("another node has scratch memory", bare(), KIND, "no such workspace", {
            change(|lines| {
                let mut more = lines[0].clone();
                more["slot"] = 1.into();
                lines.as_array_mut().unwrap().insert(1, more);
            })
        }),
        row("they are where the input is", bare(), "PlanOverlap", "", {
            change(|lines| lines[0]["offset"] = 0.into())
        }),
    ]);
}

#[test]
fn line_buffers_that_do_not_hold_their_rows_are_refused() {
    refuse(vec![
        row("a line buffer is a row too short", case(), KIND, "no place for row", {
            change(|strips| strips["buffers"][0]["rows"] = 3.into())
        }),
        row("rows that do not stay need room, too", case(), KIND, "no place for row", {
            change(|strips| strips["buffers"][2]["rows"] = 1.into())
        }),
        row("strips have more rows than the buffers", case(), KIND, "no place for row", {
            change(|strips| strips["rows"] = 2.into())
        }),
        row("a buffer is where rows are needed", case(), KIND, "is not in its line buffer", {
            change(|strips| strips["buffers"][1]["offset"] = 64.into())
        }),
        row("a node writes over what it reads", case(), KIND, "while it reads it", {
            change(|strips| strips["buffers"][2]["offset"] = 64.into())
        }),
        row("a value is made in place of what it sees", case(), KIND, "while it reads it", {
            change(|strips| strips["in_place"][1] = json!({"value": 4, "of": 2}))
        }),
    ]);
}

#[test]
fn every_value_has_one_line_buffer() {
    refuse(vec![
        row("a value has none", case(), KIND, "has no line buffer", {
            change(|strips| drop(strips["in_place"].as_array_mut().unwrap().pop()))
        }),
        row("a value has two", case(), KIND, "has two line buffers", {
            change(|strips| {
                let line = json!({"value": 1, "offset": 512, "rows": 4});
                strips["buffers"].as_array_mut().unwrap().push(line);
            })
        }),
        row("a value has the same twice", case(), KIND, "has two line buffers", {
            change(|strips| {
                let line = strips["buffers"][0].clone();
                strips["buffers"].as_array_mut().unwrap().push(line);
            })
        }),
        row("the output has one", case(), KIND, "has two line buffers", {
            change(|strips| {
                let line = json!({"value": 6, "offset": 512, "rows": 4});
                strips["buffers"].as_array_mut().unwrap().push(line);
            })
        }),
        row("a value from outside has one", case(), KIND, "of no value that it makes", {
            change(|strips| {
                let line = json!({"value": 0, "offset": 512, "rows": 4});
                strips["buffers"].as_array_mut().unwrap().push(line);
            })
        }),
        row("a value is in place of one of another shape", case(), KIND, "not like it", {
            change(|strips| strips["in_place"][1] = json!({"value": 4, "of": 6}))
        }),
        row("a value is in place of one from outside", case(), KIND, "not like it", {
            change(|strips| strips["in_place"][1] = json!({"value": 4, "of": 0}))
        }),
        row("an element is in no place", case(), KIND, "is misaligned", {
            change(|strips| strips["buffers"][2]["offset"] = 130.into())
        }),
        row("a line buffer has no rows", case(), "PlanCorrupt", "has strips without rows", {
            change(|strips| strips["buffers"][2]["rows"] = 0.into())
        }),
        row(
            "a line buffer is behind all memory",
            case(),
            "PlanCorrupt",
            "has strips without rows",
            change(|strips| strips["buffers"][2]["offset"] = (u64::MAX - 3).into()),
        ),
        row("a strip has no rows", case(), "PlanCorrupt", "has strips without rows", {
            change(|strips| strips["rows"] = 0.into())
        }),
        // 6 nodes in 6 strips, 6 rows of the output, 2 + 2 of line buffers, 66 of values.
        row("as many rows as a check may take", case(), KIND, "is not in its workspace", {
            change(|strips| strips["buffers"][0]["rows"] = ((1 << 26) - 112).into())
        }),
        row("a row more than a check may take", case(), KIND, "strips are too thin", {
            change(|strips| strips["buffers"][0]["rows"] = ((1 << 26) - 111).into())
        }),
    ]);
}

#[test]
fn line_buffers_are_in_the_workspace() {
    let graph = residual(Difference::Nothing);
    let plan = planned(&graph, WorkspacePolicy::Auto).unwrap();
    // The workspace ends where the second line buffer may end.
    for (offset, fits) in [(672, true), (676, false)] {
        let forged = forge(&plan, |json| {
            step(json, "p")["strips"]["buffers"][2]["offset"] = offset.into();
        });
        let found = forged.unwrap().check(&graph);
        let says = |error: arenaplan::Error| error.to_string().contains("is not in its workspace");
        assert_eq!(found.is_ok(), fits, "{offset}: {found:?}");
        assert!(fits || found.is_err_and(says));
    }
}

#[test]
fn nodes_that_do_not_make_rows_from_rows_are_refused() {
    for (difference, says) in [
        (Difference::Whole, "does not make rows from rows"),
        (Difference::Leaves, "is needed elsewhere"),
        (Difference::Across, "along another dimension"),
        (Difference::Mixed, "over several dimensions"),
        (Difference::Partly, "needs whole what another"),
        (Difference::Late, "a window sees no row"),
        (Difference::SeesMore, "while it reads it"),
        (Difference::Apart, "while it reads it"),
        (Difference::Ignores, "mutates or ignores an operand"),
        (Difference::Nibbles, "its rows are not whole bytes"),
        (Difference::Empty, "its rows are not whole bytes"),
    ] {
        let graph = residual(difference);
        let (_, plan) = case();
        // Names and sizes are those of the plan; the graph's digest is not.
        let forged = forge(&plan, |json| json["digest"] = graph.digest().into()).unwrap();
        let error = forged.check(&graph).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[test]
fn a_node_is_in_strips_once() {
    refuse(vec![row("the first node", case(), KIND, "it is there twice", |json| {
        step(json, "p")["fused"].as_array_mut().unwrap().insert(0, 0.into());
    })]);
}

#[test]
fn the_planner_refuses_strips_of_nodes_that_pass_no_rows() {
    let graph = residual(Difference::Whole);
    let error = planned(&graph, WorkspacePolicy::None).unwrap_err();
    assert_eq!(error.kind(), "InvalidGroup");
    // A node by itself has no line buffers.
    let graph = residual(Difference::Nothing);
    let steps: Vec<Vec<NodeId>> = (0..6).map(|node| vec![NodeId::new(node)]).collect();
    let strips = [(NodeId::new(5), strips())];
    let error = ideal_planner().strips(&strips).plan_steps(&graph, &steps).unwrap_err();
    assert_eq!(error.kind(), "InvalidOption");
}

#[test]
fn a_node_by_itself_is_in_no_strips() {
    let graph = residual(Difference::Nothing);
    let plan = ideal_planner().plan(&graph).unwrap();
    let last = plan.steps().last().unwrap().name.clone();
    let plain: Vec<Vec<NodeId>> = (0..6).map(|node| vec![NodeId::new(node)]).collect();
    let plan = ideal_planner().plan_steps(&graph, &plain).unwrap();
    let forged = forge(&plan, |json| {
        step(json, &last)["strips"] = json!({"rows": 1, "buffers": []});
    });
    let error = forged.unwrap().check(&graph).unwrap_err().to_string();
    assert!(error.contains("runs alone, and in strips"), "{error}");
}

#[test]
fn runners_of_groups_do_not_run_strips() {
    let (_, plan) = case();
    assert!(plan.check_target(&Target::IDEAL).is_ok());
    let error = plan.check_target(&Target::NODES).unwrap_err().to_string();
    assert!(error.contains("several nodes as one"), "{error}");
    let techniques = Techniques::NONE.with(Technique::Fusion);
    let groups = Target::custom("groups", techniques).unwrap();
    let error = plan.check_target(&groups).unwrap_err().to_string();
    assert!(error.contains("runs strip by strip"), "{error}");
}

#[test]
fn windows_that_make_no_sense_are_refused() {
    let base = window(0, 3, 1, 1);
    let largest = 1 << 31;
    let wrong = [
        (Window { input: 1, ..base }, "must name two operands"),
        (Window { output: 1, ..base }, "must name two operands"),
        (Window { axis: 3, ..base }, "has no dimension 3"),
        (Window { extent: 0, ..base }, "out of range"),
        (Window { stride: 0, ..base }, "out of range"),
        (Window { scale: 0, ..base }, "out of range"),
        (Window { extent: largest + 1, ..base }, "out of range"),
        (Window { stride: largest + 1, ..base }, "out of range"),
        (Window { before: i64::MIN, ..base }, "out of range"),
    ];
    for (wrong, says) in wrong {
        let error = with_windows(&[wrong]).unwrap_err();
        assert_eq!(error.kind(), "InvalidEffect");
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = with_windows(&[base, base]).unwrap_err().to_string();
    assert!(error.contains("two windows over input 0"), "{error}");
    let most = Window { extent: largest, stride: largest, scale: largest, ..base };
    assert!(with_windows(&[most]).is_ok());
}

fn with_windows(windows: &[Window]) -> arenaplan::Result<Graph> {
    let mut builder = Graph::builder("windows");
    let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [2, 8, 4])?);
    let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [2, 8, 4])?);
    let node = Node::new("y", "Conv").reads([x]).writes([y]);
    builder.add_node(windows.iter().fold(node, |node, &window| node.window(window)));
    builder.build()
}

#[test]
fn the_rows_under_windows_are_those_of_their_taps() {
    for extent in 1..4 {
        for stride in 1..4 {
            for before in -2..4 {
                for scale in 1..4 {
                    let window = Window { extent, stride, scale, ..window(0, 1, 1, before) };
                    for (start, end) in [(0, 1), (0, 3), (1, 4), (2, 3), (5, 7)] {
                        let first = |made: u64| (made * stride).cast_signed() - before;
                        let taps = (start..end)
                            .flat_map(|made| first(made)..first(made) + extent.cast_signed());
                        let rows = taps.map(|tap| tap.div_euclid(scale.cast_signed()));
                        let (low, high) =
                            rows.fold((99, -99), |(a, b), row| (row.min(a), row.max(b)));
                        let by_taps: Vec<u64> = (0_u64..6)
                            .filter(|row| (low..=high).contains(&row.cast_signed()))
                            .collect();
                        let seen: Vec<u64> = window.needs(start..end, 6).collect();
                        assert_eq!(seen, by_taps, "{window:?} {start}..{end}");
                    }
                }
            }
        }
    }
    assert_eq!(window(0, 3, 1, 1).needs(4..4, 6), 0..0);
}

#[test]
fn windows_change_the_digest() {
    let base = window(0, 3, 1, 1);
    let digests = [
        with_windows(&[]).unwrap().digest(),
        with_windows(&[base]).unwrap().digest(),
        with_windows(&[Window { axis: 2, ..base }]).unwrap().digest(),
        with_windows(&[Window { extent: 2, ..base }]).unwrap().digest(),
        with_windows(&[Window { stride: 2, ..base }]).unwrap().digest(),
        with_windows(&[Window { before: -1, ..base }]).unwrap().digest(),
        with_windows(&[Window { scale: 2, ..base }]).unwrap().digest(),
    ];
    for (at, digest) in digests.iter().enumerate() {
        assert!(!digests[..at].contains(digest), "{at}");
    }
}

/// A convolution of *x* and a pool with a stride of 2, whose rows have twice as many bytes.
fn narrowing() -> Case {
    let mut builder = Graph::builder("narrowing");
    let mut image = |name: &str, kind, rows, columns| {
        let value = Value::new(name, kind, DType::UINT8, [1, rows, columns]).unwrap();
        builder.add_value(value)
    };
    let x = image("x", ValueKind::Input, HEIGHT, 32);
    let a = image("a", ValueKind::Activation, HEIGHT, 32);
    let p = image("p", ValueKind::Activation, HEIGHT / 2, 64);
    let conv = Node::new("a", "Conv").reads([x]).writes([a]).window(window(0, 3, 1, 1));
    let a = builder.add_node(conv);
    let pool = Node::new("p", "Pool").reads([ValueId::new(1)]).writes([p]);
    let p = builder.add_node(pool.window(window(0, 2, 2, 0)));
    builder.add_output(ValueId::new(2));
    let graph = builder.build().unwrap();
    let buffers = vec![LineBuffer { value: 1, offset: 0, rows: 2 }];
    let strips = [(p, Strips { rows: 1, buffers, in_place: Vec::new() })];
    let planner = ideal_planner().alignment(1).workspace(WorkspacePolicy::None);
    let planner = planner.inputs(InputMemory::Reuse).strips(&strips);
    let plan = planner.plan_steps(&graph, &[vec![a, p]]).unwrap();
    (graph, plan)
}

/// Row *r* of *p* is made when rows from 2 *r* - 1 on of *x* are still needed.
#[test]
fn rows_are_written_over_input_rows_that_no_later_strip_needs() {
    let (_, plan) = narrowing();
    // Before the last strip, 5 rows of *p* are written, and rows of *x* from row 9 on are needed.
    assert_eq!(plan.arena_bytes(), 12 * 32 + (5 * 64 - 9 * 32) + 2 * 32);
    accept("the distance is larger", narrowing(), |json| {
        let start = value(json, "p")["offset"].as_u64().unwrap();
        value(json, "x")["offset"] = (start + 40).into();
        json["workspaces"][0]["offset"] = (start + 40 + 12 * 32).into();
    });
    refuse(vec![
        row("a row is written before it was read", narrowing(), "PlanOverlap", "share byte", {
            |json| {
                let start = value(json, "p")["offset"].as_u64().unwrap();
                value(json, "x")["offset"] = (start + 31).into();
            }
        }),
        row("the step shares nothing", narrowing(), "PlanOverlap", "", {
            |json| step(json, "p")["shares"] = json!([])
        }),
    ]);
}

/// Kernels with scratch memory may make rows of several nodes in one call.
#[test]
fn rows_are_written_over_no_input_where_kernels_have_scratch_memory() {
    let (graph, plan) = narrowing();
    let forged = forge(&plan, |json| {
        json["target"] = serde_json::to_value(Target::NUMPY).unwrap();
    });
    let refused = forged.and_then(|forged| forged.check(&graph).map(|_| ())).unwrap_err();
    assert!(refused.to_string().contains("input 0"), "{refused}");
}
