//! Which values share their bytes: whole views, and outputs in place of dying inputs.

use crate::coloring::Reachability;
use crate::graph::{Graph, Node, ValueKind, View, Whole};
use crate::index::{NodeId, SpaceId, ValueId};
use crate::liveness::Lifetimes;
use crate::plan::{Share, ShareRule};
use crate::units::{Alignment, LiveRange, Step};

/// Values that share one buffer, all from its first byte on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasClass {
    /// The values, in order of birth.
    pub members: Vec<ValueId>,
    /// From the first member's birth to the last one's death.
    pub live: LiveRange,
    /// Size of the largest member.
    pub bytes: u64,
    /// The strictest alignment of a member.
    pub alignment: Alignment,
    /// Memory of all members.
    pub space: SpaceId,
    /// Offset at which a member is fixed, if one is.
    pub pin: Option<u64>,
    /// Whether a member belongs to the caller, so that nothing may overwrite it.
    kept: bool,
    /// The member that overwrote the bytes last: whoever used those before it ran before it.
    since: usize,
}

/// When an output may take over the bytes of a dying input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AliasRules {
    /// Whether it may at all.
    pub in_place: bool,
    /// Whether only if both have the same size.
    pub same_size: bool,
}

/// One decision to let an output share the bytes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Node that reads the input and writes the output.
    pub node: NodeId,
    /// Its operands that share bytes.
    pub share: Share,
}

/// A partition of the values in the arena into those that share bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasClasses {
    classes: Vec<AliasClass>,
    class_of: Vec<Option<usize>>,
    merges: Vec<Merge>,
}

impl AliasClasses {
    /// Returns the classes that views make, and, if the rules have it, those that taking
    /// over dying inputs makes.
    ///
    /// An output takes over an input where the node permits it and the input, with all
    /// that shares its bytes, is read by nobody later and belongs to no caller. Of
    /// several such inputs it takes the one closest in size, then the one born last.
    ///
    /// With `reach`, "later" means in any order that the graph permits.
    #[must_use]
    pub fn new(
        graph: &Graph,
        order: &[NodeId],
        lifetimes: &Lifetimes,
        rules: AliasRules,
        reach: Option<&Reachability>,
    ) -> Self {
        let mut builder = Builder {
            graph,
            lifetimes,
            rules,
            reach: reach.map(|reach| (reach, graph.readers())),
            is_output: vec![false; graph.values().len()],
            result: Self {
                classes: Vec::new(),
                class_of: vec![None; graph.values().len()],
                merges: Vec::new(),
            },
        };
        for output in graph.outputs() {
            builder.is_output[output.index()] = true;
        }
        for (index, value) in graph.values().iter().enumerate() {
            if matches!(value.kind(), ValueKind::Input | ValueKind::State) {
                builder.start(ValueId::new(index));
            }
        }
        for (step, &id) in order.iter().enumerate() {
            builder.add_node(Step::at(step), id);
        }
        builder.result
    }

    /// Returns every class, in order of birth.
    pub fn classes(&self) -> &[AliasClass] {
        &self.classes
    }

    /// Returns the position of `value`'s class, or `None` if it is not in the arena.
    pub fn class_of(&self, value: ValueId) -> Option<usize> {
        self.class_of[value.index()]
    }

    /// Returns every decision to share bytes, in execution order.
    pub fn merges(&self) -> &[Merge] {
        &self.merges
    }
}

/// Iterates over the views of `node` that start at the first byte, and over the pairs
/// whose output has the bytes of the input, which is the same thing.
fn whole_views(node: &Node) -> impl Iterator<Item = View> + '_ {
    let identities = node.effects().in_place.iter().filter(|pair| pair.identity).map(|pair| {
        let (input, output) = (pair.input, pair.output);
        View { input, output, offset: 0, whole: Whole::Input }
    });
    node.effects().views.iter().copied().filter(|view| view.offset == 0).chain(identities)
}

struct Builder<'a> {
    graph: &'a Graph,
    lifetimes: &'a Lifetimes,
    rules: AliasRules,
    /// What runs before what in every order, and who reads each value; `None` if only the
    /// given order counts.
    reach: Option<(&'a Reachability, Vec<Vec<NodeId>>)>,
    is_output: Vec<bool>,
    result: AliasClasses,
}

impl Builder<'_> {
    /// Opens a class of its own for `value`.
    fn start(&mut self, id: ValueId) {
        let value = self.graph.value(id);
        self.result.class_of[id.index()] = Some(self.result.classes.len());
        self.result.classes.push(AliasClass {
            members: vec![id],
            live: self.lifetimes.of(id).expect("a value in the arena has a live range"),
            bytes: value.bytes(),
            alignment: value.alignment(),
            space: value.space(),
            pin: value.pin(),
            kept: value.kind() != ValueKind::Activation || self.is_output[id.index()],
            since: 0,
        });
    }

    /// Puts `value` into the class of the input that it shares bytes with.
    fn join(&mut self, id: ValueId, merge: Merge) {
        let class = self.class_of_operand(merge.node, merge.share.input, true);
        let class = class.expect("the input is in the arena");
        let value = self.graph.value(id);
        let live = self.lifetimes.of(id).expect("a value in the arena has a live range");
        let kept = self.is_output[id.index()];
        let class_of = &mut self.result.class_of[id.index()];
        *class_of = Some(class);
        let class = &mut self.result.classes[class];
        if merge.share.rule == ShareRule::InPlace {
            class.since = class.members.len();
        }
        class.members.push(id);
        class.live = class.live.hull(live);
        class.bytes = class.bytes.max(value.bytes());
        class.alignment = class.alignment.max(value.alignment());
        class.kept |= kept;
        self.result.merges.push(merge);
    }

    /// Gives every output of a node a class.
    fn add_node(&mut self, step: Step, id: NodeId) {
        let node = self.graph.node(id);
        for (position, output) in node.produces() {
            let view = whole_views(node)
                .filter(|view| view.output == position)
                .find(|&view| self.can_show(id, view, output));
            let found = match view {
                Some(view) => Some((view.input, ShareRule::View)),
                None if self.rules.in_place => {
                    let input = self.taken_over(step, id, position, output);
                    input.map(|input| (input, ShareRule::InPlace))
                }
                None => None,
            };
            let narrow = |position| u32::try_from(position).ok();
            match found.map(|(input, rule)| (narrow(input), narrow(position), rule)) {
                Some((Some(input), Some(output_position), rule)) => {
                    let share = Share { input, output: output_position, rule };
                    self.join(output, Merge { node: id, share });
                }
                _ => self.start(output),
            }
        }
    }

    /// Returns the class of an operand of a node.
    fn class_of_operand(&self, node: NodeId, position: u32, is_input: bool) -> Option<usize> {
        let (node, position) = (self.graph.node(node), usize::try_from(position).ok()?);
        let operand = if is_input { node.input(position) } else { node.output(position) };
        self.result.class_of(operand?)
    }

    /// Returns whether `output` can share the bytes of the input that it shows whole.
    fn can_show(&self, node: NodeId, view: View, output: ValueId) -> bool {
        let Some(input) = self.graph.node(node).input(view.input) else { return false };
        let (value, shown) = (self.graph.value(output), self.graph.value(input));
        let Some(class_index) = self.result.class_of(input) else { return false };
        let class = &self.result.classes[class_index];
        // Another output of the same node may have taken over the bytes just now.
        let overwritten =
            self.result.merges.iter().rev().take_while(|merge| merge.node == node).any(|merge| {
                merge.share.rule == ShareRule::InPlace
                    && self.class_of_operand(node, merge.share.output, false) == Some(class_index)
            });
        // A view of a state would change when the state is mutated.
        shown.bytes() == value.bytes()
            && shown.kind() != ValueKind::State
            && !overwritten
            && class.space == value.space()
            && value.pin().is_none_or(|pin| class.pin == Some(pin))
    }

    /// Returns the position of the dying input whose bytes `output` may take over, if there
    /// is one.
    fn taken_over(
        &self,
        step: Step,
        id: NodeId,
        position: usize,
        output: ValueId,
    ) -> Option<usize> {
        let node = self.graph.node(id);
        let pairs = node.effects().in_place.iter().filter(|pair| pair.output == position);
        pairs
            .filter_map(|pair| Some((pair.input, node.input(pair.input)?)))
            .filter(|&(_, input)| self.may_take_over(step, id, position, input, output))
            .min_by_key(|&(_, input)| {
                let value = self.graph.value(input);
                let surplus = value.bytes() - self.graph.value(output).bytes();
                let birth = self.lifetimes.of(input).map(LiveRange::start);
                (surplus, std::cmp::Reverse(birth))
            })
            .map(|(position, _)| position)
    }

    /// Returns whether `output` may be written over `input` at `step`.
    fn may_take_over(
        &self,
        step: Step,
        id: NodeId,
        position: usize,
        input: ValueId,
        output: ValueId,
    ) -> bool {
        let node = self.graph.node(id);
        let Some(class_index) = self.result.class_of(input) else { return false };
        let class = &self.result.classes[class_index];
        let (taken, value) = (self.graph.value(input), self.graph.value(output));
        let fits = value.bytes() < taken.bytes();
        // Another output of this node may have joined the class already: then its live
        // range goes on, or its last member was born at this step.
        let dies_here = class.live.end() == step.next()
            && class.members.last().is_some_and(|&last| {
                self.lifetimes.of(last).is_some_and(|live| live.start() < step)
            });
        // Every other operand in the same bytes must be read in the same elementwise way.
        let others_agree = node.reads_bytes_of().all(|(other, read)| {
            self.result.class_of(read) != Some(class_index)
                || (self.graph.value(read).bytes() == taken.bytes()
                    && node
                        .effects()
                        .in_place
                        .iter()
                        .any(|pair| pair.input == other && pair.output == position))
        });
        dies_here
            && others_agree
            && !class.kept
            && (value.bytes() == taken.bytes() || (fits && !self.rules.same_size))
            && class.space == value.space()
            && value.pin().is_none()
            && self.runs_last(id, class)
    }

    /// Returns whether everybody else who uses the bytes of `class` runs before `id`, in
    /// every order that counts.
    fn runs_last(&self, id: NodeId, class: &AliasClass) -> bool {
        let Some((reach, readers)) = &self.reach else { return true };
        class.members[class.since..].iter().all(|&member| {
            let users = readers[member.index()].iter().copied().chain(self.graph.producer(member));
            users.filter(|&user| user != id).all(|user| reach.is_before(user, id))
        })
    }
}
