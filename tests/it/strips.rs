//! Steps that the planner runs strip by strip, for targets without kernels.

use arenaplan::graph::Window;
use arenaplan::plan::{Effort, WorkspacePolicy};
use arenaplan::{
    DType, Graph, GraphBuilder, Node, Plan, Planner, Target, Technique, Techniques, Value, ValueId,
    ValueKind,
};
use proptest::prelude::*;

use crate::planners::ideal_planner;

/// A value of some planes of some rows of eight bytes, with its planes and rows.
#[derive(Clone, Copy)]
struct Image {
    id: ValueId,
    planes: u64,
    rows: u64,
}

struct Network {
    builder: GraphBuilder,
    count: usize,
}

impl Network {
    fn new() -> Self {
        Self { builder: Graph::builder("rows"), count: 0 }
    }

    fn value(&mut self, kind: ValueKind, planes: u64, rows: u64) -> Image {
        self.count += 1;
        let name = format!("v{}", self.count);
        let value = Value::new(name, kind, DType::UINT8, [planes, rows, 8]).unwrap();
        Image { id: self.builder.add_value(value), planes, rows }
    }

    /// Adds a node with a window over each operand.
    fn node(&mut self, reads: &[Image], window: Window, planes: u64, in_place: bool) -> Image {
        let rows = reads[0].rows.div_ceil(window.stride);
        let made = self.value(ValueKind::Activation, planes, rows);
        let node = Node::new(format!("n{}", self.count), "Op");
        let node = node.reads(reads.iter().map(|image| image.id)).writes([made.id]);
        let over = |node: Node, input| node.window(Window { input, ..window });
        let node = (0..reads.len()).fold(node, over);
        self.builder.add_node(if in_place { node.in_place(0, 0) } else { node });
        made
    }

    fn conv(&mut self, read: Image, extent: u64, stride: u64, planes: u64) -> Image {
        let before = (extent / 2).cast_signed();
        let window = Window { input: 0, output: 0, axis: 1, extent, stride, before, scale: 1 };
        self.node(&[read], window, planes, false)
    }

    fn relu(&mut self, read: Image) -> Image {
        self.node(&[read], POINTWISE, read.planes, true)
    }

    fn build(mut self, output: Image) -> Graph {
        self.builder.add_output(output.id);
        self.builder.build().unwrap()
    }
}

const POINTWISE: Window =
    Window { input: 0, output: 0, axis: 1, extent: 1, stride: 1, before: 0, scale: 1 };

/// An image of one plane, two convolutions to eight planes and back to one.
fn hourglass() -> Graph {
    let mut network = Network::new();
    let x = network.value(ValueKind::Input, 1, 32);
    let a = network.conv(x, 3, 1, 8);
    let r = network.relu(a);
    let y = network.conv(r, 3, 1, 1);
    network.build(y)
}

fn without_streaming(planner: Planner<'_>) -> Planner<'_> {
    planner.optimize(Techniques::ALL.without(Technique::Streaming))
}

#[test]
fn a_wide_value_between_narrow_ones_is_never_whole() {
    let graph = hourglass();
    let planner = ideal_planner().alignment(64);
    let plan = planner.plan(&graph).unwrap();
    plan.check(&graph).unwrap();
    // The image, the result, and three rows of eight planes.
    assert_eq!(plan.arena_bytes(), 2 * 32 * 8 + 3 * 8 * 8);
    assert_eq!(plan.lower_bound(), plan.arena_bytes());
    let [step] = plan.steps() else { panic!("one step runs all nodes") };
    assert_eq!(step.strips.as_ref().map(|strips| strips.rows), Some(1));
    assert_eq!(without_streaming(planner).plan(&graph).unwrap().arena_bytes(), 9 * 32 * 8);
    let again = Plan::from_json(plan.to_json().as_bytes()).unwrap();
    assert_eq!(again, plan);
}

#[test]
fn runners_that_choose_strips_themselves_get_none() {
    let graph = hourglass();
    let has_strips = |plan: Plan| plan.steps().iter().any(|step| step.strips.is_some());
    assert!(has_strips(ideal_planner().plan(&graph).unwrap()));
    for target in [&Target::NUMPY, &Target::CUPY, &Target::NODES, &Target::C] {
        let planner = Planner::new().target(target).workspace(WorkspacePolicy::None);
        assert!(!has_strips(planner.plan(&graph).unwrap()), "{}", target.name());
    }
    assert!(!has_strips(ideal_planner().effort(Effort::Fast).plan(&graph).unwrap()));
    assert!(!has_strips(ideal_planner().parallel_safe(true).plan(&graph).unwrap()));
    assert!(!has_strips(ideal_planner().workers(2).plan(&graph).unwrap()));
}

#[test]
fn an_explanation_says_what_strips_save() {
    let explained = ideal_planner().explain(&hourglass()).unwrap();
    let switched = explained.switched.iter().find(|(one, _)| *one == Technique::Streaming);
    assert_eq!(explained.plan.arena_bytes(), 2 * 32 * 8 + 3 * 8 * 8);
    assert_eq!(switched, Some(&(Technique::Streaming, 9 * 32 * 8)));
}

/// Networks of convolutions, activations, sums and joins, of up to two images that live on.
fn networks() -> impl Strategy<Value = Graph> {
    let layer = (0_u8..5, 0_usize..3, 1_u64..5, 1_u64..3, 1_u64..6);
    (6_u64..40, prop::collection::vec(layer, 2..14)).prop_map(|(rows, layers)| {
        let mut network = Network::new();
        let mut images = vec![network.value(ValueKind::Input, 2, rows)];
        for (kind, back, extent, stride, planes) in layers {
            let last = images[images.len() - 1];
            let other = images[images.len().saturating_sub(1 + back)];
            let alike = (other.rows, other.planes) == (last.rows, last.planes);
            let is_input = images.len() == 1;
            images.push(match kind {
                0 | 1 => network.conv(last, extent, stride, planes),
                2 if !is_input => network.relu(last),
                3 if alike && other.id != last.id => {
                    network.node(&[last, other], POINTWISE, last.planes, true)
                }
                4 if other.rows == last.rows && other.id != last.id => {
                    network.node(&[last, other], POINTWISE, last.planes + other.planes, false)
                }
                _ => network.conv(other, extent, 1, planes),
            });
        }
        let last = images[images.len() - 1];
        network.build(last)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every plan with strips passes the checker, which replays them row by row, and needs no more
    /// bytes than the plan without; equal input gives equal plans.
    #[test]
    fn strips_never_cost_bytes(graph in networks(), alignment in prop::sample::select(vec![1, 16, 64])) {
        let planner = ideal_planner().alignment(alignment);
        let plan = planner.plan(&graph).unwrap();
        plan.check(&graph).unwrap();
        let without = without_streaming(planner).plan(&graph).unwrap();
        prop_assert!(plan.arena_bytes() <= without.arena_bytes());
        prop_assert_eq!(planner.plan(&graph).unwrap(), plan);
    }
}
