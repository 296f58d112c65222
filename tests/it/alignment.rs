//! Values that share bytes keep the alignment of their elements, their own, and that of their
//! space.

use arenaplan::base::Alignment;
use arenaplan::check::Proof;
use arenaplan::graph::{Flow, InPlace, Overlap, View, Whole};
use arenaplan::pack::Space;
use arenaplan::plan::{InputMemory, OutputMemory, ShareRule, WorkspacePolicy};
use arenaplan::{
    DType, Effects, Error, Graph, GraphBuilder, Memories, Node, Plan, Planner, Technique,
    Techniques, Value, ValueId, ValueKind,
};
use proptest::prelude::*;

use crate::planners::ideal_planner;

/// Builds graphs of arrays with elements of several sizes.
struct Typed {
    builder: GraphBuilder,
    /// With bytes and elements of each.
    values: Vec<(ValueId, u64, u64)>,
}

impl Typed {
    fn new() -> Self {
        Self { builder: Graph::builder("typed"), values: Vec::new() }
    }

    fn value(&mut self, kind: ValueKind, dtype: DType, elements: u64) -> Value {
        let name = format!("v{}", self.values.len());
        Value::new(name, kind, dtype, [elements]).unwrap()
    }

    fn add(&mut self, value: Value) -> ValueId {
        let (bytes, elements) = (value.bytes(), value.shape().iter().product());
        let id = self.builder.add_value(value);
        self.values.push((id, bytes, elements));
        id
    }

    fn input(&mut self, dtype: DType, elements: u64) -> ValueId {
        let value = self.value(ValueKind::Input, dtype, elements);
        self.add(value)
    }

    fn array(
        &mut self,
        inputs: &[ValueId],
        dtype: DType,
        elements: u64,
        effects: Effects,
    ) -> ValueId {
        let value = self.value(ValueKind::Activation, dtype, elements);
        self.node(inputs, value, effects)
    }

    fn node(&mut self, inputs: &[ValueId], value: Value, effects: Effects) -> ValueId {
        let name = format!("n{}", self.values.len());
        let output = self.add(value);
        let node = Node::new(name, "Op").reads(inputs.iter().copied()).writes([output]);
        self.builder.add_node(node.with_effects(effects));
        output
    }

    fn bytes(&self, value: ValueId) -> u64 {
        self.values[value.index()].1
    }

    /// Effects of a concatenation of all `inputs`, whatever their elements are.
    fn concatenation(&self, inputs: &[ValueId]) -> Effects {
        let mut offset = 0;
        let mut views = Vec::new();
        for (position, &input) in inputs.iter().enumerate() {
            views.push(View { input: position, output: 0, offset, whole: Whole::Output });
            offset += self.bytes(input);
        }
        Effects { views, ..Effects::default() }
    }

    fn build(mut self, outputs: &[ValueId]) -> Graph {
        outputs.iter().for_each(|&output| self.builder.add_output(output));
        self.builder.build().unwrap()
    }
}

fn over(input: usize) -> Effects {
    Effects { in_place: vec![InPlace { input, output: 0, identity: false }], ..Effects::default() }
}

fn piece(offset: u64) -> Effects {
    let view = View { input: 0, output: 0, offset, whole: Whole::Input };
    Effects { views: vec![view], ..Effects::default() }
}

fn offset(plan: &Plan, value: ValueId) -> u64 {
    plan.placement(value).unwrap().offset
}

#[test]
fn a_piece_takes_over_no_value_whose_elements_would_lose_their_alignment() {
    for alignment in [1, 4, 8, 64] {
        let mut typed = Typed::new();
        let x = typed.input(DType::FLOAT32, 3);
        let p = typed.array(&[x], DType::FLOAT32, 3, Effects::default());
        let a = typed.array(&[x], DType::INT64, 1, Effects::default());
        let b = typed.array(&[a], DType::FLOAT32, 1, over(0));
        let parts = [p, b, b];
        let effects = typed.concatenation(&parts);
        let c = typed.array(&parts, DType::FLOAT32, 5, effects);
        let graph = typed.build(&[c]);
        let plan = ideal_planner().alignment(alignment).plan(&graph).unwrap();
        assert_eq!(offset(&plan, a) % alignment.min(8), 0, "alignment {alignment}");
    }
}

#[test]
fn a_slice_is_copied_if_its_elements_would_lose_their_alignment() {
    let sliced = |at: u64, alignment: u64| {
        let mut typed = Typed::new();
        let x = typed.input(DType::UINT8, 64);
        let a = typed.array(&[x], DType::UINT8, 64, Effects::default());
        let f = typed.array(&[a], DType::FLOAT32, 4, piece(at));
        let y = typed.array(&[a, f], DType::UINT8, 64, Effects::default());
        let plan = ideal_planner().alignment(alignment).plan(&typed.build(&[y])).unwrap();
        plan.steps()[1].shares.iter().any(|share| share.rule == ShareRule::View)
    };
    assert!([0, 4, 8].into_iter().all(|at| sliced(at, 64)));
    assert!(![1, 2, 6].into_iter().any(|at| sliced(at, 64)));
    assert_eq!([1, 2, 3].map(|at| sliced(at, 2)), [false, true, false]);
    assert!(sliced(1, 1));
}

#[test]
fn a_value_that_is_aligned_more_strictly_than_the_plan_stays_so() {
    let strict = |typed: &mut Typed, kind: ValueKind, bytes: u64| {
        let value = typed.value(kind, DType::UINT8, bytes);
        value.with_alignment(Alignment::new(256).unwrap())
    };
    // What overlaps it begins before it, and is aligned as the whole.
    let mut typed = Typed::new();
    let x = typed.input(DType::UINT8, 64);
    let a = strict(&mut typed, ValueKind::Activation, 640);
    let a = typed.node(&[x], a, Effects::default());
    let overlap = Overlap { input: 0, output: 0, distance: 64 };
    let effects = Effects { overlaps: vec![overlap], ..Effects::default() };
    let y = typed.array(&[a], DType::UINT8, 640, effects);
    let plan = ideal_planner().plan(&typed.build(&[y])).unwrap();
    assert_eq!(offset(&plan, a) % 256, 0);
    assert_eq!(plan.arena_bytes(), 640 + 256);
    // What takes it over is pinned elsewhere.
    let mut typed = Typed::new();
    let x = typed.input(DType::UINT8, 64);
    let a = strict(&mut typed, ValueKind::Activation, 64);
    let a = typed.node(&[x], a, Effects::default());
    let y = typed.value(ValueKind::Activation, DType::UINT8, 64).with_pin(64);
    let y = typed.node(&[a], y, over(0));
    let plan = ideal_planner().plan(&typed.build(&[y])).unwrap();
    assert_eq!((offset(&plan, a) % 256, offset(&plan, y)), (0, 64));
}

#[test]
fn what_overlaps_in_a_space_is_aligned_as_the_space_is() {
    let graph = |space: Option<Space>| {
        let mut typed = Typed::new();
        if let Some(space) = space {
            typed.builder.set_default_space(space);
        }
        let x = typed.input(DType::UINT8, 8);
        let a = typed.array(&[x], DType::UINT8, 640, Effects::default());
        let overlap = Overlap { input: 0, output: 0, distance: 8 };
        let effects = Effects { overlaps: vec![overlap], ..Effects::default() };
        let b = typed.array(&[a], DType::UINT8, 640, effects);
        let y = typed.array(&[b], DType::UINT8, 8, Effects::default());
        typed.build(&[y])
    };
    let aligned = |name: &str| Space::new(name).with_alignment(Alignment::new(64).unwrap());
    let planner = ideal_planner().alignment(8);
    assert_eq!(planner.plan(&graph(None)).unwrap().arena_bytes(), 648);
    assert_eq!(planner.plan(&graph(Some(aligned("arena")))).unwrap().arena_bytes(), 704);
    let fast = aligned("fast").with_capacity(704);
    for spaces in [vec![aligned("only")], vec![fast, aligned("slow").with_cost(1)]] {
        let memories = Memories::new(spaces).unwrap();
        let plan = planner.memories(&memories).plan(&graph(None)).unwrap();
        assert!(plan.placements().iter().all(|place| place.offset % 64 == 0));
    }
}

#[test]
fn pieces_in_an_aligned_space_need_no_alignment_of_their_own() {
    let mut typed = Typed::new();
    let alignment = Alignment::new(64).unwrap();
    typed.builder.set_default_space(Space::new("arena").with_alignment(alignment));
    let x = typed.input(DType::UINT8, 10);
    let pieces = [0; 3].map(|_| typed.array(&[x], DType::UINT8, 10, Effects::default()));
    let effects = typed.concatenation(&pieces);
    let y = typed.array(&pieces, DType::UINT8, 30, effects);
    let plan = ideal_planner().alignment(1).plan(&typed.build(&[y])).unwrap();
    assert_eq!(pieces.map(|piece| offset(&plan, piece) - offset(&plan, y)), [0, 10, 20]);
}

#[test]
fn a_value_without_bytes_that_is_aligned_strictly_moves_what_it_shares_bytes_with() {
    // A concatenation begins with an empty value that begins at a multiple of 32: the bytes that
    // this costs are part of the lower bound, and the checker does not doubt it.
    let mut typed = Typed::new();
    let strict = |typed: &mut Typed, dtype: DType, elements, alignment| {
        let value = typed.value(ValueKind::Activation, dtype, elements);
        value.with_alignment(Alignment::new(alignment).unwrap())
    };
    let states = [(DType::UINT8, 0), (DType::INT16, 9)].map(|(dtype, elements)| {
        let value = typed.value(ValueKind::State, dtype, elements);
        typed.add(value)
    });
    let empty = strict(&mut typed, DType::UINT8, 0, 32);
    let empty = typed.node(&states[..1], empty, piece(0));
    let one = typed.array(&states[..1], DType::UINT8, 1, Effects::default());
    let effects = typed.concatenation(&[empty, one]);
    let joined = typed.array(&[empty, one], DType::UINT8, 1, effects);
    let large = strict(&mut typed, DType::UINT8, 54, 64);
    let thrice = [states[1]; 3];
    let effects = typed.concatenation(&thrice);
    typed.node(&thrice, large, effects);
    let last = strict(&mut typed, DType::INT16, 0, 32);
    let last = typed.node(&[joined, one], last, over(0));
    let plan = planner(3, 123).plan(&typed.build(&[last])).unwrap();
    assert_eq!((offset(&plan, empty) % 32, offset(&plan, one)), (0, offset(&plan, empty)));
    assert_eq!((plan.arena_bytes(), plan.lower_bound()), (96, 96));
}

const DTYPES: [DType; 5] =
    [DType::UINT8, DType::INT16, DType::FLOAT32, DType::INT64, DType::COMPLEX128];

/// One node of a random graph, as choices that are made to fit when it is built.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    inputs: Vec<prop::sample::Index>,
    dtype: usize,
    elements: u64,
    offset: prop::sample::Index,
    strict: Option<u32>,
    is_output: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        0_u8..10,
        prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        0_usize..DTYPES.len(),
        0_u64..12,
        any::<prop::sample::Index>(),
        prop::option::weighted(0.1, 0_u32..9),
        prop::bool::weighted(0.15),
    )
        .prop_map(|(kind, inputs, dtype, elements, offset, strict, is_output)| Step {
            kind,
            inputs,
            dtype,
            elements,
            offset,
            strict,
            is_output,
        })
}

/// Random graphs of arrays with elements of 1 to 16 bytes: concatenations of unlike arrays,
/// slices anywhere, casts in place, overlaps, and values with an alignment of their own.
fn typed_graphs() -> impl Strategy<Value = Graph> {
    let inputs = prop::collection::vec((0_usize..DTYPES.len(), 0_u64..12, 0_u8..6), 1..4);
    (inputs, prop::option::weighted(0.3, 0_u32..9), prop::collection::vec(step(), 1..14)).prop_map(
        |(inputs, space, steps)| {
            let mut typed = Typed::new();
            if let Some(bits) = space {
                let alignment = Alignment::new(1 << bits).unwrap();
                typed.builder.set_default_space(Space::new("arena").with_alignment(alignment));
            }
            for (dtype, elements, kind) in inputs {
                let kind = if kind == 0 { ValueKind::State } else { ValueKind::Input };
                let value = typed.value(kind, DTYPES[dtype], elements);
                typed.add(value);
            }
            for step in &steps {
                add(&mut typed, step);
            }
            let (last, ..) = *typed.values.last().unwrap();
            typed.build(&[last])
        },
    )
}

fn add(typed: &mut Typed, step: &Step) {
    // Mostly recent values, so that many die early.
    let near = &typed.values[typed.values.len().saturating_sub(5)..];
    let inputs: Vec<(ValueId, u64, u64)> = step.inputs.iter().map(|it| *it.get(near)).collect();
    let (_, first, first_elements) = inputs[0];
    let mut reads: Vec<ValueId> = inputs.iter().map(|&(value, ..)| value).collect();
    let size = |dtype: DType| dtype.bits() / 8;
    // The wanted type, if a whole number of elements fills the bytes.
    let filled = |bytes: u64| match DTYPES[step.dtype] {
        dtype if bytes.is_multiple_of(size(dtype)) => (dtype, bytes / size(dtype)),
        _ => (DType::UINT8, bytes),
    };
    let mut dtype = DTYPES[step.dtype];
    let mut elements = step.elements;
    let mut effects = Effects::default();
    match step.kind {
        0..=2 => {
            effects = typed.concatenation(&reads);
            (dtype, elements) = filled(inputs.iter().map(|&(_, bytes, _)| bytes).sum());
        }
        3 | 4 => {
            elements = elements.min(first / size(dtype));
            let slack = first - elements * size(dtype);
            effects = piece(step.offset.index(usize::try_from(slack + 1).unwrap()) as u64);
        }
        5..=7 => {
            elements = elements.min(first / size(dtype));
            if step.kind == 5 {
                (dtype, elements) = filled(first);
            }
            let all = 0..inputs.len();
            let fitting = all.filter(|&at| inputs[at].1 >= elements * size(dtype));
            effects.in_place =
                fitting.map(|input| InPlace { input, output: 0, identity: false }).collect();
        }
        8 => {
            reads.truncate(1);
            let pieces = elements.max(1);
            if step.strict.is_none() && first_elements % pieces == 0 {
                elements = pieces;
                effects.flows = vec![Flow { output: 0, pieces, follows: vec![0] }];
            } else {
                let distance = step.offset.index(40) as u64;
                effects.overlaps = vec![Overlap { input: 0, output: 0, distance }];
            }
        }
        _ => {}
    }
    let mut value = typed.value(ValueKind::Activation, dtype, elements);
    if let Some(bits) = step.strict {
        value = value.with_alignment(Alignment::new(1 << bits).unwrap());
    }
    let output = typed.node(&reads, value, effects);
    if step.is_output {
        typed.builder.add_output(output);
    }
}

fn planner(bits: u32, techniques: u8) -> Planner<'static> {
    let left_out = Technique::ALL.into_iter().enumerate();
    let left_out = left_out.filter(|(index, _)| techniques >> index & 1 == 1);
    let all = left_out.fold(Techniques::ALL, |all, (_, one)| all.without(one));
    ideal_planner().alignment(1 << bits).optimize(all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A planner checks each plan that it makes, so none is refused for an offset.
    #[test]
    fn no_plan_loses_an_alignment(
        graph in typed_graphs(),
        bits in prop::sample::select(vec![0_u32, 1, 2, 3, 4, 6]),
        left_out in prop_oneof![Just(0_u8), 0..128_u8],
        inputs in prop::sample::select(vec![
            InputMemory::Inside, InputMemory::Caller, InputMemory::Reuse,
        ]),
        is_outside in prop::bool::weighted(0.3),
        parallel_safe in prop::bool::weighted(0.2),
        split in prop::option::weighted(0.3, (0_u64..400, 0_u32..8, 0_u32..8)),
    ) {
        let mut planner = planner(bits, left_out).parallel_safe(parallel_safe);
        let memories;
        if let Some((capacity, fast, slow)) = split.filter(|_| !parallel_safe) {
            let aligned = |name: &str, bits: u32| {
                Space::new(name).with_alignment(Alignment::new(1 << bits).unwrap())
            };
            let fast = aligned("fast", fast).with_capacity(capacity);
            memories = Memories::new(vec![fast, aligned("slow", slow).with_cost(1)]).unwrap();
            planner = planner.memories(&memories);
        } else {
            let outputs = if is_outside { OutputMemory::Caller } else { OutputMemory::Inside };
            planner = planner.inputs(inputs).outputs(outputs);
        }
        match planner.workspace(WorkspacePolicy::Auto).plan(&graph) {
            Ok(plan) => prop_assert!(plan.check(&graph).is_ok()),
            Err(error) => prop_assert!(
                matches!(error, Error::SpacesExceeded { .. }),
                "{error}: {graph:#?}"
            ),
        }
    }

    /// No plan of the same steps needs fewer bytes than a floor that the checker verified.
    #[test]
    fn a_verified_floor_holds_for_every_plan_of_single_nodes(
        graph in typed_graphs(),
        bits in prop::sample::select(vec![0_u32, 3, 6]),
        left_out in 0..128_u8,
    ) {
        let single = |left_out| planner(bits, left_out | 1 << 3 | 1 << 5);
        let plan = single(0).plan(&graph).unwrap();
        let other = single(left_out).plan(&graph).unwrap();
        if plan.check(&graph).unwrap().floor() == Some(Proof::Verified) {
            prop_assert!(other.arena_bytes() >= plan.search().unwrap().floor);
        }
    }

    /// One memory that is aligned as the graph's space, without limit or with room for the plan
    /// without memories, needs as many bytes as none.
    #[test]
    fn one_memory_is_as_good_as_none(
        graph in typed_graphs(),
        bits in prop::sample::select(vec![0_u32, 3, 6]),
        limited in any::<bool>(),
        left_out in prop_oneof![Just(0_u8), 0..128_u8],
    ) {
        let planner = planner(bits, left_out);
        let alone = planner.plan(&graph).unwrap();
        let mut only = Space::new("arena").with_alignment(graph.spaces()[0].alignment());
        if limited {
            only = only.with_capacity(alone.arena_bytes());
        }
        let only = Memories::new(vec![only]).unwrap();
        let plan = planner.memories(&only).plan(&graph);
        prop_assert!(plan.is_ok(), "{:?}", plan.unwrap_err());
        let bytes = plan.unwrap().arena_bytes();
        prop_assert_eq!(bytes, alone.arena_bytes());
    }
}
