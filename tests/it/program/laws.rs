//! Laws of programs, over random graphs.

use std::ops::Range;

use arenaplan::arena::{Input, Output};
use arenaplan::choose::fuse;
use arenaplan::pack::Space;
use arenaplan::plan::{InputMemory, OutputMemory, ShareRule, WorkspacePolicy};
use arenaplan::program::{ProgramStep, SpaceSpan};
use arenaplan::{Graph, Memories, NodeId, Plan, Program, SpaceId, Technique, Techniques};
use proptest::prelude::*;

use super::interpreter::run;
use crate::planners::ideal_planner;

/// Returns the addresses of bytes.
fn addresses(bytes: &[u8]) -> Range<usize> {
    let start = bytes.as_ptr().addr();
    start..start + bytes.len()
}

fn disjoint(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.is_empty() || b.is_empty() || a.end <= b.start || b.end <= a.start
}

/// Returns a text that tells how an operand is lent, and where.
fn seen_input(input: &Input<'_>) -> String {
    match input {
        Input::Shared([]) => "nothing".into(),
        Input::Shared(bytes) => format!("{:?}", addresses(bytes)),
        other => format!("{other:?}"),
    }
}

fn seen_output(output: &Output<'_>) -> String {
    match output {
        Output::Exclusive([]) => "nothing".into(),
        Output::Exclusive(bytes) => format!("{:?}", addresses(bytes)),
        other => format!("{other:?}"),
    }
}

/// Checks everything that is lent for one step against the plan.
fn check_step(
    arena: &mut arenaplan::Arena<'_>,
    bases: &[usize],
    program: &Program,
    step: ProgramStep<'_>,
) {
    let plan = program.plan();
    for operand in step.inputs().chain(step.outputs()) {
        let placed = operand.value.and_then(|value| plan.placement(value));
        let span = placed.map(|it| {
            let space = SpaceId::from(it.space);
            SpaceSpan { space, offset: it.offset, bytes: it.bytes }
        });
        assert_eq!(operand.span, span);
    }
    let at = |span: SpaceSpan| {
        let start = bases[span.space.index()] + usize::try_from(span.offset).unwrap();
        start..start + usize::try_from(span.bytes).unwrap()
    };
    let input_at = |position| at(step.inputs().nth(position).unwrap().span.unwrap());
    let output_at = |position| at(step.outputs().nth(position).unwrap().span.unwrap());

    let mut memory = arena.step(program, step).unwrap();
    let mut inputs: Vec<Input<'_>> = step.inputs().map(|_| Input::Absent).collect();
    let mut outputs: Vec<Output<'_>> = step.outputs().map(|_| Output::Absent).collect();
    let mut workspaces: Vec<_> = step.workspaces().map(|_| Default::default()).collect();
    memory.lend(&mut inputs, &mut outputs, &mut workspaces).unwrap();
    let mut written = Vec::new();
    for (work, bytes) in step.workspaces().zip(&workspaces) {
        let lent = addresses(bytes);
        assert!(lent.is_empty() || lent == at(work.span));
        written.push(lent);
    }
    let mut lent_outputs = vec![0..0; outputs.len()];
    for (position, output) in outputs.iter().enumerate() {
        match output {
            Output::Absent => assert_eq!(step.outputs().nth(position).unwrap().value, None),
            Output::Exclusive(bytes) => {
                let (lent, own) = (addresses(bytes), output_at(position));
                let mut shares = step.shares().iter();
                let shared = shares.any(|share| {
                    share.output as usize == position && share.rule != ShareRule::View
                });
                if !own.is_empty() {
                    assert!(lent.start == own.start && lent.end >= own.end);
                    assert!(shared || lent == own, "more than {own:?} is lent: {lent:?}");
                }
                lent_outputs[position] = lent.clone();
                written.push(lent);
            }
            &Output::Within { input, offset } => {
                let (whole, own) = (input_at(input), output_at(position));
                assert_eq!(whole.start + offset, own.start);
                assert!(own.end <= whole.end && step.is_view(position));
            }
        }
    }
    for (first, one) in written.iter().enumerate() {
        assert!(written[first + 1..].iter().all(|other| disjoint(one, other)));
    }
    for (position, input) in inputs.iter().enumerate() {
        match input {
            Input::Shared(bytes) => {
                let lent = addresses(bytes);
                assert!(bytes.is_empty() || lent == input_at(position));
                assert!(written.iter().all(|other| disjoint(&lent, other)));
            }
            &Input::Within { output, offset } => {
                let (own, whole) = (input_at(position), &lent_outputs[output]);
                assert_eq!(whole.start + offset, own.start);
                assert!(own.end <= whole.end);
                assert!(step.shares().iter().any(|share| share.output as usize == output));
            }
            Input::Absent => assert_eq!(step.inputs().nth(position).unwrap().value, None),
            Input::External => assert_eq!(step.inputs().nth(position).unwrap().span, None),
            other => panic!("nothing is mutated: {other:?}"),
        }
    }
    // The other ways to lend say the same.
    let inputs: Vec<_> = inputs.iter().map(seen_input).collect();
    let outputs: Vec<_> = outputs.iter().map(seen_output).collect();
    for (position, input) in inputs.iter().enumerate() {
        match memory.input(position) {
            Ok(bytes) => assert!(bytes.is_empty() || addresses(bytes) == input_at(position)),
            Err(_) => assert!(input == "Absent" || input == "External"),
        }
    }
    for (position, output) in outputs.iter().enumerate() {
        match memory.output(position) {
            Ok(bytes) => assert!(bytes.is_empty() || addresses(bytes) == output_at(position)),
            Err(_) => assert!(output == "Absent" || step.is_view(position)),
        }
    }
}

/// Checks all laws of one plan.
fn check(graph: &Graph, plan: &Plan) {
    let program = plan.program(graph).unwrap();
    assert_eq!(program.len(), plan.steps().len());
    let mut arena = plan.commit().unwrap();
    let bases: Vec<_> = (0..plan.spaces().len())
        .map(|space| arena.bytes(SpaceId::new(space)).unwrap().as_ptr().addr())
        .collect();
    for step in program.steps() {
        check_step(&mut arena, &bases, &program, step);
    }
    run(graph, &program, &mut arena).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Reshapes, slices, concatenations, in-place chains, workspaces.
    #[test]
    fn steps_are_lent_what_the_plan_says(graph in crate::graphs::graphs(24)) {
        for techniques in [Techniques::NONE, Techniques::ALL] {
            let planner = ideal_planner().workspace(WorkspacePolicy::Auto).optimize(techniques);
            check(&graph, &planner.plan(&graph).unwrap());
        }
    }

    /// Nodes that run as one, piece by piece.
    #[test]
    fn fused_steps_compute_what_their_nodes_do(graph in crate::fusion::networks(14)) {
        for techniques in [Techniques::ALL, Techniques::ALL.without(Technique::Overlap)] {
            check(&graph, &ideal_planner().alignment(1).optimize(techniques).plan(&graph).unwrap());
        }
    }

    /// All nodes that can, run as one, whether that saves bytes or not.
    #[test]
    fn groups_compute_what_their_nodes_do(
        graph in crate::fusion::networks(14),
        fusion in crate::fusion::fusions(),
    ) {
        let groups = fuse(&graph, fusion);
        let mut steps: Vec<Vec<NodeId>> = Vec::new();
        for &id in graph.order() {
            match groups.iter().find(|group| group.contains(&id)) {
                Some(group) if group.last() == Some(&id) => steps.push(group.clone()),
                Some(_) => {}
                None => steps.push(vec![id]),
            }
        }
        check(&graph, &ideal_planner().alignment(1).plan_steps(&graph, &steps).unwrap());
    }

    /// Outputs that overlap inputs at a distance.
    #[test]
    fn overlapping_steps_compute_the_same(graph in crate::overlap::networks(10)) {
        for techniques in [Techniques::NONE.with(Technique::Overlap), Techniques::ALL] {
            check(&graph, &ideal_planner().alignment(1).optimize(techniques).plan(&graph).unwrap());
        }
    }

    /// Buffers that the caller brings, and several memories.
    #[test]
    fn any_number_of_spaces_is_lent(graph in crate::fusion::networks(10), small in 0_u64..400) {
        let callers = ideal_planner().inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
        check(&graph, &callers.alignment(1).plan(&graph).unwrap());
        let memories = Memories::new(vec![
            Space::new("fast").with_capacity(small),
            Space::new("slow").with_cost(1),
        ]);
        check(&graph, &ideal_planner().alignment(1).memories(&memories.unwrap()).plan(&graph).unwrap());
    }
}
