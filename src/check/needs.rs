//! The bytes that each step of a plan needs by itself, in any step order and with any sharing.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use crate::base::{Alignment, ValueId};
use crate::check::replaced;
use crate::check::unit::Unit;
use crate::graph::{Graph, ValueKind};
use crate::plan::{InputMemory, OutputMemory, Plan};

/// Bytes that a plan's steps need by themselves.
pub(super) struct StepNeeds {
    /// Lower bound of the live bytes at the highest step, for these steps in any order.
    pub(super) least: u64,
    /// Upper bound of the bytes that any step reads and writes.
    pub(super) most: u64,
    /// Lower bound of the live bytes at the first step, for any steps in any order.
    pub(super) supplied: u64,
}

impl StepNeeds {
    pub(super) fn new(plan: &Plan, graph: &Graph, units: &[Unit<'_>]) -> Self {
        let alignment = Alignment::new(plan.options.alignment).unwrap_or_default();
        let rounded = |value: ValueId| {
            let bytes = graph.value(value).bytes();
            alignment.round_up(bytes).unwrap_or(bytes)
        };
        // Values that begin anywhere in a line may have other values of the body beside them.
        let is_piece = pieces(graph, units, alignment);
        let counted = |value: ValueId| {
            if is_piece[value.index()] { graph.value(value).bytes() } else { rounded(value) }
        };
        // Pieces of other values may begin and end between two aligned bytes.
        let has_pieces =
            units.iter().any(|unit| unit.effects.views.iter().any(|view| view.offset > 0));
        let slack = if has_pieces { alignment.bytes() } else { 0 };
        // Values in the same kin may be in the same bytes, as views.
        let kin = kin(graph);
        let in_arena = |value: &ValueId| graph.value(*value).is_planned();
        let mut needs = Self { least: 0, most: 0, supplied: 0 };
        let replaced = replaced(graph);
        let kept = |state: &ValueId| !replaced[state.index()];
        let states: Vec<ValueId> = of_kind(graph, ValueKind::State).filter(kept).collect();
        for unit in units {
            let mut most: BTreeMap<ValueId, u64> = BTreeMap::new();
            // By kin: the most bytes of a read value, and whether an output may take its place.
            let mut kept: BTreeMap<usize, (u64, bool)> = BTreeMap::new();
            let reads = unit.reads().filter(|(_, value)| in_arena(value));
            let states = states.iter().map(|&state| (usize::MAX, state));
            for (at, value) in reads.chain(states) {
                let (bytes, taken) = kept.entry(kin[value.index()]).or_insert((0, false));
                *bytes = (*bytes).max(counted(value));
                *taken |= unit.takes.contains(&at) || !unit.mutates.is_empty();
                if at != usize::MAX {
                    most.insert(value, rounded(value).saturating_add(slack));
                }
            }
            let (mut apart, mut taken, mut made) = (0_u64, 0_u64, 0_u64);
            for &(bytes, is_taken) in kept.values() {
                let sum = if is_taken { &mut taken } else { &mut apart };
                *sum = sum.saturating_add(bytes);
            }
            for (_, value) in unit.writes() {
                most.insert(value, rounded(value).saturating_add(slack));
                if !kept.contains_key(&kin[value.index()]) {
                    made = made.saturating_add(counted(value));
                }
            }
            needs.least = needs.least.max(apart.saturating_add(taken.max(made)));
            needs.most = needs.most.max(most.into_values().fold(0, u64::saturating_add));
        }
        let inputs = of_kind(graph, ValueKind::Input);
        let supplied = inputs.chain(of_kind(graph, ValueKind::State));
        needs.supplied = supplied.map(counted).fold(0, u64::saturating_add);
        needs.least = needs.least.max(needs.supplied);
        let is_callers = plan.options.inputs == InputMemory::Caller
            || plan.options.outputs == OutputMemory::Caller;
        if is_callers {
            // The values in the caller's memory depend on the order.
            (needs.least, needs.supplied) = (0, 0);
        }
        needs
    }
}

fn of_kind(graph: &Graph, kind: ValueKind) -> impl Iterator<Item = ValueId> {
    let values = graph.values().iter().enumerate();
    values.filter(move |(_, value)| value.kind() == kind).map(|(index, _)| ValueId::new(index))
}

/// Returns, by value, the representative of all values that may show the value's bytes, or the
/// reverse.
fn kin(graph: &Graph) -> Vec<usize> {
    let mut sets = Sets::new(graph.values().len());
    for node in graph.nodes() {
        let effects = node.effects();
        let views = effects.views.iter().map(|view| (view.input, view.output));
        let identities = effects.in_place.iter().filter(|pair| pair.identity);
        for (input, output) in views.chain(identities.map(|pair| (pair.input, pair.output))) {
            if let (Some(input), Some(output)) = (node.input(input), node.output(output)) {
                sets.join(input, output);
            }
        }
    }
    for pair in graph.write_backs() {
        sets.join(pair.value, pair.into);
    }
    sets.roots()
}

/// Returns, by value, whether any sharing joins the value with a piece that does not begin at a
/// multiple of `alignment`.
fn pieces(graph: &Graph, units: &[Unit<'_>], alignment: Alignment) -> Vec<bool> {
    let mut sets = Sets::new(graph.values().len());
    let mut unaligned = Vec::new();
    for unit in units {
        for (_, output) in unit.writes() {
            let taken = unit.takes.iter().filter_map(|&at| unit.reads.get(at).copied().flatten());
            taken.for_each(|input| sets.join(input, output));
        }
        for view in unit.effects.views.iter().filter(|view| !alignment.divides(view.offset)) {
            unaligned.extend(unit.writes.get(view.output).copied().flatten());
        }
    }
    let roots = sets.roots();
    let mut is_piece = vec![false; roots.len()];
    for value in unaligned {
        is_piece[roots[value.index()]] = true;
    }
    roots.iter().map(|&root| is_piece[root]).collect()
}

/// Disjoint value sets.
struct Sets(Vec<usize>);

impl Sets {
    fn new(values: usize) -> Self {
        Self((0..values).collect())
    }

    fn find(&mut self, mut value: usize) -> usize {
        while self.0[value] != value {
            self.0[value] = self.0[self.0[value]];
            value = self.0[value];
        }
        value
    }

    fn join(&mut self, a: ValueId, b: ValueId) {
        let [a, b] = [a, b].map(|value| self.find(value.index()));
        self.0[a] = b;
    }

    /// Returns, by value, the representative.
    fn roots(mut self) -> Vec<usize> {
        (0..self.0.len()).map(|value| self.find(value)).collect()
    }
}
