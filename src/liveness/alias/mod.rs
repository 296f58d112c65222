//! Values that share bytes: views, pieces of larger values, and outputs in place of dying inputs or
//! at a distance over inputs.

mod alias_overlap;
mod alias_write_back;
mod callers;
mod compete;

pub(crate) use compete::matched;

use alloc::{vec, vec::Vec};
use core::cell::Cell;
use core::ops::Range;

use crate::base::{Alignment, LiveRange, NodeId, SpaceId, Step, ValueId};
use crate::graph::{Graph, Node, Reachability, ValueKind, View, Whole};
use crate::liveness::Lifetimes;
use crate::plan::{InputMemory, OutputMemory, Share, ShareRule};

/// Most value pairs that are compared in one graph. Past the limit, values get separate bytes.
const MOST_COMPARISONS: usize = 100_000_000;

/// Largest alignment of an element in bytes; no processor asks for more.
const MOST_ELEMENT_ALIGNMENT: u64 = 16;

/// A value in an alias class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The value.
    pub value: ValueId,
    /// First byte of the member in the class.
    pub start: u64,
}

/// Values at fixed distances from each other, in one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AliasClass {
    /// The values, by birth.
    pub members: Vec<Member>,
    /// From the first birth to the last death of members.
    pub live: LiveRange,
    /// The strictest member alignment.
    pub alignment: Alignment,
    /// The memory that holds all members.
    pub space: SpaceId,
    /// A pinned class's offset.
    pub pin: Option<u64>,
    /// The value whose buffer the caller brings; `None` if the class is in the arena.
    pub owner: Option<ValueId>,
}

/// The rules by which values may share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct AliasRules {
    /// Whether an output may show all bytes of an input unchanged.
    pub views: bool,
    /// Whether values may be pieces of larger values: operands in a concatenation, slices in the
    /// source.
    pub elision: bool,
    /// Whether an output may take over a dying input's bytes.
    pub in_place: bool,
    /// Whether a takeover needs equal sizes.
    pub same_size: bool,
    /// The memory of graph inputs, and whether outputs may take over that memory.
    pub inputs: InputMemory,
    /// The memory for graph outputs.
    pub outputs: OutputMemory,
    /// Whether kernels write elements of a piece before they have read all of the piece's inputs.
    pub early_writes: bool,
    /// Alignment of classes, and the unit for the distance between an output and an overlapped
    /// input.
    pub alignment: Alignment,
}

/// A decision to let an output share an input's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Merge {
    /// Node that reads the input and writes the output.
    pub node: NodeId,
    /// The operands that share bytes.
    pub share: Share,
}

/// A partition of the values in the arena: values in one class share bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasClasses {
    /// Classes in the arena, then classes in the caller's memory.
    classes: Vec<AliasClass>,
    /// Count of classes in the arena.
    in_arena: usize,
    /// By value: the class, and the first byte in the class.
    places: Vec<Option<(usize, u64)>>,
    merges: Vec<Merge>,
}

impl AliasClasses {
    /// Returns the alias classes under the given rules.
    ///
    /// First, views are linked: all views of whole inputs, slices and pieces that do not contradict each
    /// other. Two classes join at a distance on two conditions. Members that share a byte must not be live
    /// together with different contents. Each member must keep the value's alignment and the alignment of
    /// the elements. `declined` names operands to copy, by node and position, ascending.
    ///
    /// Then outputs take over inputs, if three conditions hold: the node permits the pair, no later node
    /// reads the input or a value in the same bytes, and no caller owns the input. An output takes the
    /// input closest in size, then the input born last. If outputs of one node compete for inputs, the
    /// outputs with the most bytes in total win.
    ///
    /// A class with a value in the caller's memory belongs to the caller, and holds nothing beyond
    /// that value's bytes. A value that would need more, or belongs to two such values, is copied.
    /// The caller's bytes cost nothing, so outputs there choose first. Among inputs of equal size,
    /// such outputs take the input born first, which is needed longest.
    ///
    /// With `reach`, "later" means later in any order that the graph permits, and no value is a piece of
    /// a larger value.
    #[must_use]
    pub fn new(
        graph: &Graph,
        order: &[NodeId],
        lifetimes: &Lifetimes,
        rules: AliasRules,
        reach: Option<&Reachability>,
        declined: &[(NodeId, usize)],
    ) -> Self {
        Self::with_overlaps(graph, order, lifetimes, rules, reach, declined, &[])
    }

    /// Returns the same classes with overlaps: outputs of the nodes `overlapped`, in any order, overlap a
    /// dying input where possible.
    ///
    /// Overlaps come after all other links. Each output overlaps the input that shares the most bytes, at
    /// the least [legal](Graph::overlaps) multiple of the alignment. With `reach`, no output does.
    #[must_use]
    pub fn with_overlaps(
        graph: &Graph,
        order: &[NodeId],
        lifetimes: &Lifetimes,
        rules: AliasRules,
        reach: Option<&Reachability>,
        declined: &[(NodeId, usize)],
        overlapped: &[NodeId],
    ) -> Self {
        let mut builder = ClassBuilder::new(graph, lifetimes, rules, reach, declined);
        for (index, value) in graph.values().iter().enumerate() {
            if matches!(value.kind(), ValueKind::Input | ValueKind::State) {
                builder.start(ValueId::new(index));
            }
        }
        for &id in order {
            for (_, value) in graph.node(id).produces() {
                builder.start(value);
            }
        }
        builder.link_write_backs(order);
        for (step, &id) in order.iter().enumerate() {
            builder.link_views(Step::at(step), id);
        }
        if rules.in_place {
            builder.fill_buffers(order);
            for (step, &id) in order.iter().enumerate() {
                builder.take_over_inputs(Step::at(step), id);
            }
        }
        if !overlapped.is_empty() && reach.is_none() {
            // No second round of takeovers: where a value that replaces a state begins, no further
            // value ends that an output could take over.
            builder.rules.in_place = false;
            let mut accepted = vec![false; graph.nodes().len()];
            for id in overlapped {
                accepted[id.index()] = true;
            }
            for (step, &id) in order.iter().enumerate().filter(|(_, id)| accepted[id.index()]) {
                builder.overlap(Step::at(step), id);
            }
        }
        builder.finish()
    }

    /// Returns every class in the arena, by birth.
    pub fn classes(&self) -> &[AliasClass] {
        &self.classes[..self.in_arena]
    }

    /// Returns the classes in the caller's memory, ascending by owner.
    pub fn of_caller(&self) -> &[AliasClass] {
        &self.classes[self.in_arena..]
    }

    /// Returns the position of the class of `value`, or `None` if the class is not in the arena.
    pub fn class_of(&self, value: ValueId) -> Option<usize> {
        self.places[value.index()].map(|(class, _)| class).filter(|&class| class < self.in_arena)
    }

    /// Returns the position of the class among the classes [of the caller](Self::of_caller), if the
    /// caller owns the class that holds `value`.
    pub fn caller_class_of(&self, value: ValueId) -> Option<usize> {
        self.places[value.index()].and_then(|(class, _)| class.checked_sub(self.in_arena))
    }

    /// Returns the first byte of `value` in the class; 0 without a class.
    pub fn start_of(&self, value: ValueId) -> u64 {
        self.places[value.index()].map_or(0, |(_, start)| start)
    }

    /// Returns whether two values begin at one byte.
    pub(crate) fn are_at_one_place(&self, one: ValueId, other: ValueId) -> bool {
        self.places[one.index()] == self.places[other.index()]
    }

    /// Returns every decision to share bytes, in execution order.
    pub fn merges(&self) -> &[Merge] {
        &self.merges
    }
}

/// Iterates over the views by `node`, identity pairs of equal size included.
fn views<'a>(graph: &'a Graph, node: &'a Node) -> impl Iterator<Item = View> + 'a {
    let identities = node.effects().in_place.iter().filter_map(|pair| {
        let (input, output) = (pair.input, pair.output);
        let bytes = |value: Option<ValueId>| value.map(|value| graph.value(value).bytes());
        let is_copy = pair.identity && bytes(node.input(input)) == bytes(node.output(output));
        is_copy.then_some(View { input, output, offset: 0, whole: Whole::Input })
    });
    node.effects().views.iter().copied().chain(identities)
}

/// Returns whether `node` reads `value`, and only at positions that are `permitted`.
fn is_only_read(node: &Node, value: ValueId, permitted: impl Fn(usize) -> bool) -> bool {
    let mut reads = node.reads_bytes_of().filter(|&(_, read)| read == value).peekable();
    reads.peek().is_some() && reads.all(|(position, _)| permitted(position))
}

/// A value in a class that still grows and whose start is arbitrary.
#[derive(Clone, Copy)]
struct DraftMember {
    value: ValueId,
    start: i128,
    end: i128,
    live: LiveRange,
}

/// A class that still grows.
struct DraftClass {
    /// Members that live longest come last, so searches skip dead members.
    members: Vec<DraftMember>,
    birth: Step,
    /// The byte range over all members.
    span: (i128, i128),
    /// The strictest member [alignment](ClassBuilder::alignment).
    alignment: Alignment,
    space: SpaceId,
    pin: Option<u64>,
    /// The value with the caller's buffer.
    owner: Option<ValueId>,
    /// The values that used the bytes since the last overwrite.
    users: Vec<ValueId>,
}

struct ClassBuilder<'a> {
    graph: &'a Graph,
    lifetimes: &'a Lifetimes,
    rules: AliasRules,
    declined: &'a [(NodeId, usize)],
    /// Node reachability and readers by value, if every order counts; `None` if only the given
    /// order counts.
    reach: Option<(&'a Reachability, Vec<Vec<NodeId>>)>,
    is_output: Vec<bool>,
    /// By value: the input or state that the value replaces in place.
    home: Vec<Option<ValueId>>,
    /// By value: whether another value replaces the value in place.
    is_overwritten: Vec<bool>,
    /// For each value: a value that contains all its bytes.
    part_of: Vec<Cell<Option<ValueId>>>,
    /// For each value: whether the value shows an operand's bytes.
    is_view: Vec<bool>,
    /// For each value: whether the value took over an operand.
    has_taken: Vec<bool>,
    /// By value: the class, and the first byte there.
    places: Vec<Option<(usize, i128)>>,
    classes: Vec<Option<DraftClass>>,
    merges: Vec<(Step, Merge)>,
    comparisons: usize,
}

impl<'a> ClassBuilder<'a> {
    fn new(
        graph: &'a Graph,
        lifetimes: &'a Lifetimes,
        rules: AliasRules,
        reach: Option<&'a Reachability>,
        declined: &'a [(NodeId, usize)],
    ) -> Self {
        let count = graph.values().len();
        let mut is_output = vec![false; count];
        for output in graph.read_at_end() {
            is_output[output.index()] = true;
        }
        let mut home = vec![None; count];
        for write_back in graph.write_backs() {
            home[write_back.value.index()] = Some(write_back.into);
        }
        Self {
            graph,
            lifetimes,
            rules,
            declined,
            reach: reach.map(|reach| (reach, graph.readers())),
            is_output,
            home,
            is_overwritten: graph.overwritten(),
            part_of: vec![Cell::new(None); count],
            is_view: vec![false; count],
            has_taken: vec![false; count],
            places: vec![None; count],
            classes: Vec::new(),
            merges: Vec::new(),
            comparisons: 0,
        }
    }

    /// Opens a class for `value` alone.
    fn start(&mut self, id: ValueId) {
        let value = self.graph.value(id);
        let live = self.live(id);
        self.places[id.index()] = Some((self.classes.len(), 0));
        self.classes.push(Some(DraftClass {
            members: vec![DraftMember { value: id, start: 0, end: value.bytes().into(), live }],
            birth: live.start(),
            span: (0, value.bytes().into()),
            alignment: self.alignment(id),
            space: value.space(),
            // A value without bytes has no place.
            pin: value.pin().filter(|_| value.bytes() > 0),
            owner: self.is_owner(id).then_some(id),
            users: vec![id],
        }));
    }

    fn live(&self, value: ValueId) -> LiveRange {
        self.lifetimes.of(value).expect("a value in the arena has a live range")
    }

    /// Returns the divisor for every offset of a value: the value's alignment, and the element size
    /// as far as the plan aligns at all.
    fn alignment(&self, id: ValueId) -> Alignment {
        let value = self.graph.value(id);
        let element = Alignment::new((value.dtype().bits() / 8).clamp(1, MOST_ELEMENT_ALIGNMENT));
        match element {
            Ok(element) if value.bytes() > 0 => {
                value.alignment().max(element.min(self.rules.alignment))
            }
            _ => value.alignment(),
        }
    }

    fn class(&self, index: usize) -> &DraftClass {
        self.classes[index].as_ref().expect("values are in classes that are there")
    }

    /// Returns the largest value that contains `value`.
    fn root(&self, mut value: ValueId) -> ValueId {
        while let Some(whole) = self.part_of[value.index()].get() {
            // Path compression: the next walk is half as long.
            if let Some(further) = self.part_of[whole.index()].get() {
                self.part_of[value.index()].set(Some(further));
            }
            value = whole;
        }
        value
    }

    /// Links the values that the views of a node show, where possible.
    fn link_views(&mut self, step: Step, id: NodeId) {
        let node = self.graph.node(id);
        for view in views(self.graph, node) {
            let (Some(input), Some(output)) = (node.input(view.input), node.output(view.output))
            else {
                continue;
            };
            let (part, whole) = match view.whole {
                Whole::Input => (output, input),
                Whole::Output => (input, output),
            };
            let bytes = |value| self.graph.value(value).bytes();
            let is_all = bytes(part) == bytes(whole);
            let shown_already = view.whole == Whole::Input && self.is_view[output.index()];
            let permitted = match view.whole {
                Whole::Input if is_all => self.rules.views,
                Whole::Input => self.rules.elision,
                // Inputs of the caller exist before the concatenation, and outputs live on
                // after the concatenation.
                Whole::Output => {
                    let is_loose = match self.graph.value(part).kind() {
                        ValueKind::Activation => true,
                        ValueKind::Input => self.rules.inputs == InputMemory::Reuse,
                        _ => false,
                    };
                    self.rules.elision
                        && self.reach.is_none()
                        && is_loose
                        && !self.is_output[part.index()]
                }
            };
            // A view of a state would change when the state is mutated.
            let stays = self.graph.value(input).kind() != ValueKind::State;
            let declined = self.declined.binary_search(&(id, view.input)).is_ok();
            if permitted && stays && !declined && !shown_already && self.link(part, whole, view) {
                self.is_view[output.index()] |= view.whole == Whole::Input;
                self.note(step, id, view.input, view.output, ShareRule::View);
            }
        }
    }

    /// Puts `part` into `whole`, and returns whether that was possible.
    fn link(&mut self, part: ValueId, whole: ValueId, view: View) -> bool {
        let (Some((part_class, part_start)), Some((whole_class, whole_start))) =
            (self.places[part.index()], self.places[whole.index()])
        else {
            return false;
        };
        let root = self.root(part);
        // An operand that is a piece of another value has neighbors there already.
        let bytes = |value| self.graph.value(value).bytes();
        if part_class == whole_class || bytes(root) != bytes(part) {
            return false;
        }
        let whole_root = self.root(whole);
        let shift = whole_start + i128::from(view.offset) - part_start;
        let same = |this: &Self, u: &DraftMember, v: &DraftMember| {
            let (u, v) = (this.root(u.value), this.root(v.value));
            u == v || (u == root && v == whole_root)
        };
        if !self.fit(part_class, whole_class, shift)
            || !self.agree(part_class, whole_class, shift, same)
        {
            return false;
        }
        self.part_of[root.index()].set(Some(whole_root));
        self.merge_smaller(part_class, whole_class, shift);
        true
    }

    /// Lets a node's output take over a dying input.
    ///
    /// Among inputs of equal size, `rank` decides which input comes first.
    fn take_over<R: Ord>(
        &mut self,
        step: Step,
        id: NodeId,
        position: usize,
        rank: impl Fn(&Self, ValueId) -> R,
    ) {
        self.take_over_first(step, id, position, None, rank);
    }

    /// As [`take_over`](Self::take_over), trying `first` before all other inputs.
    fn take_over_first<R: Ord>(
        &mut self,
        step: Step,
        id: NodeId,
        position: usize,
        first: Option<ValueId>,
        rank: impl Fn(&Self, ValueId) -> R,
    ) {
        let node = self.graph.node(id);
        let Some(output) = node.output(position) else { return };
        let mut inputs = self.candidates(step, id, position, rank);
        inputs.sort_by_key(|&(_, input)| Some(input) != first);
        for (input_position, input) in inputs {
            if self.overwrite(step, input, output) {
                self.note(step, id, input_position, position, ShareRule::InPlace);
                self.has_taken[output.index()] = true;
                return;
            }
        }
    }

    /// Returns the positions of inputs that an output may take over, and the inputs: closest in
    /// size first, then by `rank`.
    fn candidates<R: Ord>(
        &self,
        step: Step,
        id: NodeId,
        position: usize,
        rank: impl Fn(&Self, ValueId) -> R,
    ) -> Vec<(usize, ValueId)> {
        let node = self.graph.node(id);
        let Some(output) = node.output(position) else { return Vec::new() };
        if self.is_view[output.index()] || self.has_taken[output.index()] {
            return Vec::new();
        }
        let pairs = node.effects().in_place.iter().filter(|pair| pair.output == position);
        let mut inputs: Vec<_> = pairs
            .filter(|pair| {
                // An output must not overwrite a state that the same node writes.
                let effects = node.effects();
                !effects.ignores.contains(&pair.input) && !effects.mutates.contains(&pair.input)
            })
            .filter_map(|pair| Some((pair.input, node.input(pair.input)?)))
            .filter(|&(_, input)| self.dies(step, id, position, input, output))
            .collect();
        inputs.sort_by_key(|&(_, input)| {
            let value = self.graph.value(input);
            (value.bytes() - self.graph.value(output).bytes(), rank(self, input))
        });
        inputs
    }

    /// Returns whether the input and all values in the same bytes let `output` overwrite `input` at
    /// `step`.
    fn dies(
        &self,
        step: Step,
        id: NodeId,
        position: usize,
        input: ValueId,
        output: ValueId,
    ) -> bool {
        let node = self.graph.node(id);
        let Some((class_index, start)) = self.places[input.index()] else { return false };
        let class = self.class(class_index);
        let (taken, value) = (self.graph.value(input), self.graph.value(output));
        let fits = value.bytes() < taken.bytes() && !self.rules.same_size;
        if !(value.bytes() == taken.bytes() || fits) || class.space != value.space() {
            return false;
        }
        let end = start + i128::from(value.bytes());
        // Every operand in the same bytes must be read in the same elementwise way.
        let elementwise = |at| {
            let mut pairs = node.effects().in_place.iter();
            pairs.any(|pair| (pair.input, pair.output) == (at, position))
        };
        let given_away = self.all_die(step, class, output, start..end, |member| {
            let bytes = self.graph.value(member.value).bytes();
            let is_exact = member.start == start && bytes == taken.bytes();
            is_exact && is_only_read(node, member.value, elementwise)
        });
        let root = self.root(input);
        let whole = start..start + i128::from(taken.bytes());
        given_away
            && self.is_lent_apart(node, class_index, &whole)
            && !self.is_callers(root)
            && self.runs_last(id, class)
    }

    /// Returns whether each operand covers some bytes in a class entirely or not at all. A runner
    /// lends these bytes for writing while the node reads the other operands.
    fn is_lent_apart(&self, node: &Node, class: usize, bytes: &Range<i128>) -> bool {
        node.reads_bytes_of().all(|(_, read)| {
            let Some((_, start)) = self.places[read.index()].filter(|place| place.0 == class)
            else {
                return true;
            };
            let end = start + i128::from(self.graph.value(read).bytes());
            (start, end) == (bytes.start, bytes.end) || end <= bytes.start || bytes.end <= start
        })
    }

    /// Returns whether all values that are live at `step` in some bytes of a class, except `output`, die
    /// there, do not belong to the caller, and are `given_away`.
    fn all_die(
        &self,
        step: Step,
        class: &DraftClass,
        output: ValueId,
        bytes: Range<i128>,
        given_away: impl Fn(&DraftMember) -> bool,
    ) -> bool {
        // All further members died before this step.
        let live = class.members.iter().rev().take_while(|member| member.live.end() > step);
        let mut found = live.filter(|member| {
            member.value != output
                && member.live.start() <= step
                && member.start < bytes.end
                && bytes.start < member.end
        });
        found.all(|member| {
            let dies = self.lifetimes.dies(member.value, step) && !self.is_callers(member.value);
            dies && given_away(member)
        })
    }

    /// Returns whether the caller may look at the bytes of `value` after a run.
    fn is_callers(&self, value: ValueId) -> bool {
        let is_kept = match self.graph.value(value).kind() {
            _ if self.is_overwritten[value.index()] => false,
            ValueKind::State => true,
            ValueKind::Input => self.rules.inputs != InputMemory::Reuse,
            _ => false,
        };
        is_kept || self.is_output[value.index()]
    }

    /// Returns whether all other users of the class's bytes run before `id`, in every permitted
    /// order.
    fn runs_last(&self, id: NodeId, class: &DraftClass) -> bool {
        let Some((reach, readers)) = &self.reach else { return true };
        class.users.iter().all(|&member| {
            let users = readers[member.index()].iter().copied().chain(self.graph.producer(member));
            users.filter(|&user| user != id).all(|user| reach.is_before(user, id))
        })
    }

    /// Puts `output` on top of `input`, unless another member of the two classes forbids that. Returns
    /// whether the output moved.
    fn overwrite(&mut self, step: Step, input: ValueId, output: ValueId) -> bool {
        let Some((over, start)) = self.places[input.index()] else { return false };
        let is_there = self.places[output.index()] == Some((over, start));
        is_there && self.home[output.index()].is_some() || self.put(step, output, over, start)
    }

    /// Puts `output`, which is written at `step`, at `start` in class `over`, unless another member of
    /// the two classes forbids that. Returns whether the output moved.
    fn put(&mut self, step: Step, output: ValueId, over: usize, start: i128) -> bool {
        let Some((made, at)) = self.places[output.index()] else { return false };
        if over == made || self.class(made).pin.is_some() {
            return false;
        }
        let shift = start - at;
        // `all_die` has checked that values that die at this step may be overwritten.
        let same = |this: &Self, u: &DraftMember, v: &DraftMember| {
            (u.value == output && v.live.start() <= step && this.lifetimes.dies(v.value, step))
                || this.root(u.value) == this.root(v.value)
                || this.hands_over(u, v)
                || this.hands_over(v, u)
        };
        if !self.fit(made, over, shift) || !self.agree(made, over, shift, same) {
            return false;
        }
        self.classes[over].as_mut().expect("the input has a class").users.clear();
        // Pieces of a large value keep the large value's alignment.
        let extent = |class: &DraftClass| class.span.1 - class.span.0;
        if extent(self.class(made)) > extent(self.class(over)) && self.fit(over, made, -shift) {
            self.merge(over, made, -shift);
        } else {
            self.merge(made, over, shift);
        }
        true
    }

    /// Returns whether the members of class `from` can be at `shift` in class `into`, apart from
    /// conflicts with members there.
    fn fit(&self, from: usize, into: usize, shift: i128) -> bool {
        let (from, into) = (self.class(from), self.class(into));
        let aligned = |member: &DraftMember| {
            let alignment = i128::from(self.alignment(member.value).bytes());
            (member.start + shift).rem_euclid(alignment) == 0
        };
        let pins_agree = match (from.pin, into.pin) {
            (None, None) => true,
            (None, Some(pin)) => from.span.0 + shift >= 0 && from.alignment.divides(pin),
            (pin, other) => pin == other && shift == 0,
        };
        let all_aligned = shift.rem_euclid(i128::from(from.alignment.bytes())) == 0;
        // The packing aligns the start of a class, so padding before the start belongs to no value.
        let lowest = into.span.0.min(from.span.0 + shift);
        from.space == into.space
            && pins_agree
            && lowest.rem_euclid(self.rules.alignment.bytes().into()) == 0
            && (all_aligned || from.members.iter().all(aligned))
            && self.owners_agree(from, into, shift)
    }

    /// Returns whether no two members of two classes, one of them moved by `shift`, hold
    /// different contents in a byte at a step.
    fn agree(
        &mut self,
        from: usize,
        into: usize,
        shift: i128,
        same: impl Fn(&Self, &DraftMember, &DraftMember) -> bool,
    ) -> bool {
        let mut comparisons = self.comparisons;
        let (a, b) = (self.class(from), self.class(into));
        let moved = a.members.iter().rev().take_while(|u| u.live.end() > b.birth);
        let mut agree = true;
        'all: for u in moved {
            for v in b.members.iter().rev().take_while(|v| v.live.end() > u.live.start()) {
                comparisons += 1;
                let apart = u.start + shift >= v.end || v.start >= u.end + shift;
                if !(apart || !u.live.overlaps(v.live) || same(self, u, v)) {
                    agree = false;
                    break 'all;
                }
            }
        }
        self.comparisons = comparisons;
        agree && comparisons < MOST_COMPARISONS
    }

    /// Joins the classes `from` and `into`. The smaller class moves if the result is the same, since a
    /// chain of concatenations grows by a few members at a time.
    fn merge_smaller(&mut self, from: usize, into: usize, shift: i128) {
        let (moved, stays) = (self.class(from), self.class(into));
        // The packing aligns the class start.
        let aligned = |alignment: Alignment| shift.rem_euclid(i128::from(alignment.bytes())) == 0;
        let is_free = aligned(self.rules.alignment)
            && aligned(stays.alignment)
            && moved.pin.is_none()
            && stays.pin.is_none();
        if is_free && stays.members.len() < moved.members.len() {
            self.merge(into, from, -shift);
        } else {
            self.merge(from, into, shift);
        }
    }

    /// Moves the members of class `from` to class `into`.
    fn merge(&mut self, from: usize, into: usize, shift: i128) {
        let moved = self.classes[from].take().expect("a class is merged once");
        let class = self.classes[into].as_mut().expect("values are in classes that are there");
        class.owner = class.owner.or(moved.owner);
        class.birth = class.birth.min(moved.birth);
        class.alignment = class.alignment.max(moved.alignment);
        class.span.0 = class.span.0.min(moved.span.0 + shift);
        class.span.1 = class.span.1.max(moved.span.1 + shift);
        class.users.extend(moved.users);
        for member in moved.members {
            let member =
                DraftMember { start: member.start + shift, end: member.end + shift, ..member };
            self.places[member.value.index()] = Some((into, member.start));
            let mut at = class.members.len();
            while at > 0 && class.members[at - 1].live.end() > member.live.end() {
                at -= 1;
            }
            class.members.insert(at, member);
        }
    }

    /// Records that two operands of a node share bytes.
    fn note(&mut self, step: Step, node: NodeId, input: usize, output: usize, rule: ShareRule) {
        let narrow = |position: usize| u32::try_from(position).expect("positions have 32 bits");
        let share = Share { input: narrow(input), output: narrow(output), rule };
        self.merges.push((step, Merge { node, share }));
    }

    /// Returns the classes with member offsets relative to the class start.
    fn finish(mut self) -> AliasClasses {
        self.merges.sort_by_key(|&(step, _)| step);
        let mut drafts: Vec<_> = self.classes.into_iter().flatten().collect();
        drafts.sort_by_key(|class| (class.owner, class.birth));
        let in_arena = drafts.partition_point(|class| class.owner.is_none());
        let mut classes = Vec::with_capacity(drafts.len());
        let mut places = vec![None; self.places.len()];
        for mut draft in drafts {
            draft.members.sort_by_key(|member| (member.live.start(), member.value));
            let lowest = draft.members.iter().map(|member| member.start).min().unwrap_or(0);
            // The first member keeps an aligned offset, and so does each member with a stricter
            // alignment.
            let alignment = i128::from(self.rules.alignment.max(draft.alignment).bytes());
            let base = lowest.div_euclid(alignment) * alignment;
            let base = if draft.pin.is_some() { 0 } else { base };
            let mut strictest = Alignment::BYTE;
            let mut live = draft.members[0].live;
            let mut members = Vec::with_capacity(draft.members.len());
            for member in &draft.members {
                let start = u64::try_from(member.start - base).expect("the base is the lowest");
                live = live.hull(member.live);
                strictest = strictest.max(self.graph.value(member.value).alignment());
                places[member.value.index()] = Some((classes.len(), start));
                members.push(Member { value: member.value, start });
            }
            let (space, pin, owner) = (draft.space, draft.pin, draft.owner);
            classes.push(AliasClass { members, live, alignment: strictest, space, pin, owner });
        }
        let merges = self.merges.into_iter().map(|(_, merge)| merge).collect();
        AliasClasses { classes, in_arena, places, merges }
    }
}
