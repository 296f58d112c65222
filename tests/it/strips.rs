//! Steps that the planner runs strip by strip, for targets without kernels.

use arenaplan::choose::{RowCost, RowKernel, RowMoveCost, StripLimits, Way, nodes_in_strips};
use arenaplan::graph::Window;
use arenaplan::plan::{Effort, Provider, WorkspacePolicy};
use arenaplan::planner::StripSearch;
use arenaplan::{
    Budget, DType, Error, Graph, GraphBuilder, Node, NodeId, Plan, Planner, SpaceId, Target,
    Technique, Techniques, Value, ValueId, ValueKind,
};
use proptest::prelude::*;

use crate::check::forge;
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
fn strips_are_along_the_dimension_that_the_runner_cuts() {
    let graph = hourglass();
    let runner = |axis| {
        let target = Target::custom("rows", Techniques::ALL).unwrap();
        target.with_scratch(Provider::Nobody).with_strip_axis(axis)
    };
    let planned = |axis| Planner::new().target(&runner(axis)).plan(&graph).unwrap();
    let has_strips = |plan: &Plan| plan.steps().iter().any(|step| step.strips.is_some());
    for (axis, wanted) in [(None, true), (Some(1), true), (Some(0), false), (Some(2), false)] {
        let plan = planned(axis);
        plan.check(&graph).unwrap();
        assert_eq!(has_strips(&plan), wanted, "{axis:?}");
    }
    let rows = planned(Some(1));
    assert!(rows.check_target(&runner(Some(1))).is_ok());
    let kind = |plan: &Plan| plan.check_target(&runner(Some(1))).unwrap_err().kind();
    assert_eq!(kind(&planned(None)), "TargetMismatch");
    let forged = forge(&rows, |json| json["target"]["strip_axis"] = 2.into()).unwrap();
    assert_eq!(forged.check(&graph).unwrap_err().kind(), "PlanMismatch");
    assert_eq!(Target::C_CODE.strip_axis(), Some(1));
}

#[test]
fn an_explanation_says_what_strips_save() {
    let explained = ideal_planner().explain(&hourglass()).unwrap();
    let switched = explained.switched.iter().find(|(one, _)| *one == Technique::Streaming);
    assert_eq!(explained.chosen.plan.arena_bytes(), 2 * 32 * 8 + 3 * 8 * 8);
    assert_eq!(switched.map(|(_, point)| point.bytes), Some(9 * 32 * 8));
}

const FREE: StripLimits = StripLimits { above: 0, below: u64::MAX, time: u64::MAX };

/// A kernel whose calls take 10 and 1 for each row, and some scratch memory.
fn kernel(nodes: &[usize], takes: Option<ValueId>, scratch: u64) -> RowKernel {
    let cost = |rows| RowCost { rows, ways: vec![Way { bytes: scratch, time: 10 + rows }] };
    let nodes = nodes.iter().map(|&node| NodeId::new(node)).collect();
    RowKernel { nodes, takes, costs: vec![cost(1), cost(101)] }
}

/// A plan that runs node by node, and a search over its steps, each of which takes 42.
fn search(graph: &Graph, kernels: Vec<RowKernel>) -> arenaplan::Result<(Plan, StripSearch)> {
    let planner = ideal_planner().alignment(64).optimize(Techniques::NONE);
    let plan = planner.plan(graph)?;
    let live = plan.live_bytes(SpaceId::new(0)).into_iter().take(plan.steps().len());
    let ways = live.map(|bytes| vec![Way { bytes, time: 42 }]).collect();
    let moves = RowMoveCost { call: 5, thousand_bytes: 1000 };
    let limits = StripLimits { below: plan.arena_bytes(), ..FREE };
    let found = StripSearch::new(graph, &plan, kernels, moves, ways, limits, &Budget::default())?;
    Ok((plan, found))
}

#[test]
fn kernels_perform_several_nodes_and_cost_time_and_scratch_memory() {
    let graph = hourglass();
    // A convolution with its activation, and another one.
    let kernels = vec![kernel(&[0, 1], None, 100), kernel(&[2], None, 30)];
    let (plan, mut search) = search(&graph, kernels.clone()).unwrap();
    let nodes: Vec<NodeId> = (0..3).map(NodeId::new).collect();
    assert_eq!(StripSearch::nodes(&graph, &plan, &[0, 1, 2]).unwrap(), nodes);
    // All of them are near each other, and no run has a step that there is not.
    assert_eq!(StripSearch::nodes(&graph, &plan, &[1]).unwrap(), nodes);
    assert_eq!(StripSearch::nodes(&graph, &plan, &[3, usize::MAX]).unwrap(), []);
    let budget = Budget::default();
    let choice = search.least(FREE, &budget).unwrap().unwrap();
    assert_eq!(choice.steps, [&nodes[..]]);
    assert_eq!(choice.strips[0].1.rows, 1);
    // The image, the result, three rows of eight planes, and the larger scratch memory.
    assert_eq!(choice.bytes, 2 * 32 * 8 + 3 * 8 * 8 + 100);
    // 32 calls of one row each, but for the first strip's two rows and the last strip's none; and
    // per call, two rows of eight planes are moved one by one.
    let calls = 12 + 30 * 11 + 32 * 11;
    assert_eq!(choice.time, calls + 31 * (2 * 5 + 2 * 64));
    let strips = |nodes: &[NodeId], rows| {
        let moves = RowMoveCost { call: 5, thousand_bytes: 1000 };
        nodes_in_strips(&graph, kernels.clone(), moves, nodes, rows).unwrap()
    };
    assert_eq!(strips(&nodes, 1).unwrap().1, choice.strips[0].1);
    assert_eq!(strips(&nodes[..2], 4).unwrap().0, &nodes[..2]);
    // A node that is none, nodes that come twice, and kernels that are cut in two.
    let unknown = [NodeId::new(0), NodeId::new(1), NodeId::new(99)];
    assert_eq!(strips(&unknown, 4), None);
    let twice = [&nodes[..], &nodes[..2]].concat();
    assert_eq!(strips(&twice, 4), None);
    assert_eq!(strips(&[], 4), None);
    assert_eq!(strips(&nodes, 0), None);
    assert_eq!(strips(&nodes[1..], 4), None);
    // Higher strips take less time.
    let faster = StripLimits { time: choice.time - 1, ..FREE };
    let other = search.least(faster, &budget).unwrap().unwrap();
    assert!(other.time < choice.time && other.bytes > choice.bytes);
    assert_eq!(
        search.least(StripLimits { above: choice.bytes, ..FREE }, &budget).unwrap(),
        Some(other.clone())
    );
    search.refuse(0);
    let next = search.least(FREE, &budget).unwrap().unwrap();
    assert_eq!(next.strips[0].1.rows, 1);
    search.refuse(0);
    assert!(search.least(FREE, &budget).unwrap().unwrap().strips[0].1.rows > 1);
    assert_eq!(search.least(StripLimits { time: 90, ..FREE }, &budget).unwrap(), None);
}

#[test]
fn what_is_no_kernel_is_refused() {
    let graph = hourglass();
    let refused = |kernels: Vec<RowKernel>| match search(&graph, kernels) {
        Err(Error::InvalidOption { option: "kernels", reason }) => reason,
        other => panic!("{other:?}"),
    };
    let none = RowKernel { costs: vec![], ..kernel(&[0], None, 0) };
    assert_eq!(refused(vec![none]), "kernel 0 has no nodes or no costs");
    assert_eq!(refused(vec![kernel(&[], None, 0)]), "kernel 0 has no nodes or no costs");
    let two = vec![kernel(&[0], None, 0), kernel(&[0], None, 0)];
    assert_eq!(refused(two), "kernel 1 has a node of another kernel");
    let unknown = vec![kernel(&[9], None, 0)];
    assert_eq!(refused(unknown), "kernel 0 has a node that does not make rows from rows");
    // A convolution does not make its result in the rows of its operand.
    let taken = "kernel 0 makes a result in rows that it cannot take over";
    assert_eq!(refused(vec![kernel(&[1, 2], None, 0)]), taken);
    assert_eq!(refused(vec![kernel(&[0], Some(ValueId::new(0)), 0)]), taken);
    let order = "kernel 0 has costs of descending rows, or of too few sizes";
    let mut falling = kernel(&[0], None, 0);
    falling.costs.reverse();
    assert_eq!(refused(vec![falling]), order);
    let mut uneven = kernel(&[0], None, 0);
    uneven.costs[0].ways.push(Way { bytes: 0, time: 0 });
    assert_eq!(refused(vec![uneven]), order);
    let (plan, _) = search(&graph, vec![kernel(&[0], None, 0)]).unwrap();
    let (moves, budget) = (RowMoveCost::default(), Budget::default());
    let found = StripSearch::new(&graph, &plan, vec![], moves, vec![], FREE, &budget);
    assert!(matches!(found, Err(Error::InvalidOption { option: "ways", .. })));
    let small = Network::new();
    let empty = small.builder.build().unwrap();
    let found = StripSearch::nodes(&empty, &plan, &[0]);
    assert!(matches!(found, Err(Error::PlanMismatch { .. })));
}

#[test]
fn kernels_that_cannot_make_so_many_rows_are_in_no_strips() {
    let graph = hourglass();
    let mut wide = kernel(&[0, 1], None, 0);
    // Two rows, which the first strip needs, cannot be made.
    wide.costs[1] = RowCost { rows: 2, ways: vec![] };
    let (_, mut search) = search(&graph, vec![wide, kernel(&[2], None, 0)]).unwrap();
    let choice = search.least(FREE, &Budget::default()).unwrap().unwrap();
    // The kernel of two nodes runs by itself, one row at a time.
    assert_eq!(choice.steps, [vec![NodeId::new(0), NodeId::new(1)], vec![NodeId::new(2)]]);
    assert_eq!(choice.strips[0].1.rows, 1);
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

    /// Every choice of a search can be planned, passes the checker, and keeps to the limits.
    #[test]
    fn every_choice_is_a_plan(graph in networks(), time in 100_u64..4000) {
        let nodes = 0..graph.nodes().len();
        let kernels = nodes.map(|node| kernel(&[node], None, 16)).collect();
        let (plan, mut search) = search(&graph, kernels).unwrap();
        let (mut above, budget) = (0, Budget::default());
        for _ in 0..3 {
            let limits = StripLimits { above, below: plan.arena_bytes(), time };
            let Some(choice) = search.least(limits, &budget).unwrap() else { break };
            prop_assert!(above < choice.bytes && choice.bytes < plan.arena_bytes());
            prop_assert!(choice.time <= time);
            let planner = ideal_planner().alignment(64).optimize(Techniques::NONE);
            let made = planner.strips(&choice.strips).plan_steps(&graph, &choice.steps).unwrap();
            made.check(&graph).unwrap();
            // Offsets may need more, and the plan may prove so.
            let live = made.live_bytes(SpaceId::new(0));
            prop_assert!(live.into_iter().all(|bytes| bytes <= choice.bytes));
            above = choice.bytes;
        }
    }
}
