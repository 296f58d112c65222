//! Fusion: chooses groups of nodes.
//!
//! Fusion walks backward. A node joins the group of its readers if all readers are in the same
//! group and need the output piece by piece. The saving is not known here, because a group's inputs
//! live until the group's last node; the planner tries several kinds of fusion.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};

use crate::base::{NodeId, ValueId, gcd};
use crate::graph::{Flow, Graph, Node, Repeated, Stored, ValueKind};

/// The kinds of nodes that may join their readers' group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Fusion {
    /// Elementwise nodes whose outputs are read elementwise or reduced.
    pub elementwise: bool,
    /// A node that is not elementwise, such as a convolution, if elementwise nodes follow: a residual is
    /// then added in place.
    pub anchors: bool,
    /// Elementwise nodes before a node that loads the operand tile by tile.
    pub prologue: bool,
    /// Chains of row-wise nodes such as product, softmax, product, if the second product has two
    /// computed operands: attention.
    pub attention: bool,
    /// Chains of row-wise nodes such as product, activation, product, if the second product has a
    /// constant operand: perceptrons.
    pub perceptrons: bool,
    /// Chains of nodes that follow each other piece by piece, such as convolution, activation,
    /// channel pooling. At most one node, at the start, can make any element. A node that can make
    /// any piece of several elements, such as a plane transpose, may stand beside that node.
    pub channels: bool,
}

impl Fusion {
    /// Names of the switches, equal in Rust and Python.
    pub const NAMES: [&'static str; 6] =
        ["elementwise", "anchors", "prologue", "attention", "perceptrons", "channels"];

    /// Returns the switch with this name, if there is a switch.
    pub fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "elementwise" => &mut self.elementwise,
            "anchors" => &mut self.anchors,
            "prologue" => &mut self.prologue,
            "attention" => &mut self.attention,
            "perceptrons" => &mut self.perceptrons,
            "channels" => &mut self.channels,
            _ => return None,
        })
    }

    /// Returns the same without the switches for pieces larger than elements.
    #[must_use]
    pub const fn without_streams(self) -> Self {
        Self { attention: false, perceptrons: false, channels: false, ..self }
    }
}

/// The way in which a node makes the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A view: the input in another shape.
    View,
    Elementwise,
    /// Output rows from the same rows of an input.
    Rows {
        reduces: bool,
        by_constant: bool,
    },
    /// As rows, for pieces of several rows.
    Planes,
    /// Any piece, from whole inputs.
    Anchor,
    /// As anchors, but not single elements: a transpose that moves rows.
    Blocks,
}

/// A candidate member of a group.
struct MemberCandidate {
    role: Role,
    flow: Flow,
    output: ValueId,
    /// Whether the node copies an input to scratch memory, tile by tile.
    loads: bool,
}

/// A group that still grows.
struct GrowingGroup {
    members: Vec<NodeId>,
    pieces: u64,
    /// Number of members that are not elementwise.
    others: usize,
    /// Whether a member is an anchor.
    has_anchor: bool,
    /// Whether the group works on rows, in place of any piece.
    by_rows: bool,
}

/// Returns the groups of nodes fused by `fusion`, each in execution order.
///
/// ```
/// use arenaplan::choose::{Fusion, fuse};
/// use arenaplan::{DType, Graph, Node, Value, ValueKind};
///
/// let mut builder = Graph::builder("residual");
/// let mut value = |name, kind| Value::new(name, kind, DType::FLOAT32, [1, 8, 4, 4]);
/// let x = builder.add_value(value("x", ValueKind::Input)?);
/// let [a, b, y] = [
///     builder.add_value(value("a", ValueKind::Activation)?),
///     builder.add_value(value("b", ValueKind::Activation)?),
///     builder.add_value(value("y", ValueKind::Activation)?),
/// ];
/// builder.add_node(Node::new("first", "Conv").reads([x]).writes([a]).flow(0, 128, []));
/// let conv = builder.add_node(Node::new("conv", "Conv").reads([a]).writes([b]).flow(0, 128, []));
/// let sum = Node::new("sum", "Add").reads([b, a]).writes([y]).flow(0, 128, [0, 1]);
/// let sum = builder.add_node(sum);
/// builder.add_output(y);
/// let graph = builder.build()?;
///
/// let fusion = Fusion { elementwise: true, anchors: true, ..Fusion::default() };
/// assert_eq!(fuse(&graph, fusion), [vec![conv, sum]]);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[must_use]
pub fn fuse(graph: &Graph, fusion: Fusion) -> Vec<Vec<NodeId>> {
    Fusible::new(graph).fuse(fusion)
}

/// Returns groups as [`fuse`] does, in which nodes that [repeat](crate::graph::Effects::repeats)
/// may run in several groups. Returns no groups if that needs too many copies.
///
/// The search uses a graph in which each reader has a copy of a repeating node. A copy inside of a
/// group stays. All other copies would put the same value into memory several times, so the readers
/// share a node. A node that makes fewer bytes than a group would otherwise read ends a separate
/// group, because only the small output then lives between the two groups. Both facts are known
/// only once there are groups, so the search repeats until nothing changes.
pub(crate) fn fuse_repeating(graph: &Graph, fusion: Fusion) -> Vec<Vec<NodeId>> {
    /// Rounds of the search; if readers disagree after the last round, no node repeats.
    const MOST_ROUNDS: usize = 12;
    let mut stored = Stored::new();
    let mut ends = vec![false; graph.nodes().len()];
    for round in 0..MOST_ROUNDS {
        let Some(repeated) = graph.repeated(&stored) else { return Vec::new() };
        let origin = |id: &NodeId| repeated.origin[id.index()];
        let part = vec![0; repeated.graph.nodes().len()];
        let is_end: Vec<bool> = repeated.origin.iter().map(|of| ends[of.index()]).collect();
        let groups = Fusible::new(&repeated.graph).fuse_at(fusion, &part, &is_end);
        let before = stored.len();
        stored.extend(shared_readers(&repeated, &groups));
        let mut is_new = stored.len() > before;
        // The last round only settles readers.
        let narrow = narrow_members(&repeated.graph, &groups);
        for id in narrow.iter().map(origin).filter(|_| round + 2 < MOST_ROUNDS) {
            is_new |= !core::mem::replace(&mut ends[id.index()], true);
        }
        if is_new {
            continue;
        }
        let mut found: Vec<Vec<NodeId>> = Vec::with_capacity(groups.len());
        for group in &groups {
            // Readers in the same group share a copy.
            let mut nodes: Vec<NodeId> = Vec::with_capacity(group.len());
            for id in group.iter().map(origin) {
                if !nodes.contains(&id) {
                    nodes.push(id);
                }
            }
            if nodes.len() > 1 {
                found.push(nodes);
            }
        }
        return found;
    }
    Vec::new()
}

/// Returns the members that should end a separate group: elementwise members whose output is smaller than
/// a value from outside that the output depends on element by element.
fn narrow_members(graph: &Graph, groups: &[Vec<NodeId>]) -> Vec<NodeId> {
    let bytes = |value: ValueId| graph.value(value).bytes();
    let mut narrow = Vec::new();
    for group in groups {
        // By elementwise member: the largest outside value, in bytes, on which the output depends.
        let mut widest: BTreeMap<ValueId, u64> = BTreeMap::new();
        let inside: BTreeSet<ValueId> = group
            .iter()
            .flat_map(|&id| graph.node(id).produces())
            .map(|(_, value)| value)
            .collect();
        for (position, &id) in group.iter().enumerate() {
            let Some(MemberCandidate {
                role: Role::View | Role::Elementwise, flow, output, ..
            }) = candidate(graph, graph.node(id))
            else {
                continue;
            };
            let followed = flow.follows.iter().filter_map(|&at| graph.node(id).input(at));
            let from = followed.map(|value| match widest.get(&value) {
                Some(&known) => known,
                // Another member needs the value in a different way, or the caller keeps the value anyway.
                None if inside.contains(&value) => 0,
                None if graph.value(value).kind() != ValueKind::Activation => 0,
                None => bytes(value),
            });
            let from = from.max().unwrap_or(0);
            if from > bytes(output) && position + 1 < group.len() {
                narrow.push(id);
            }
            widest.insert(output, from);
        }
    }
    narrow
}

/// Returns readers of repeated nodes that cannot have a separate copy: readers whose copies would each
/// put the output into memory, and readers in a group in which another reader takes the output in a
/// different way or from memory.
fn shared_readers(repeated: &Repeated, groups: &[Vec<NodeId>]) -> Stored {
    let Repeated { graph, origin } = repeated;
    let mut group_of: Vec<Option<usize>> = vec![None; graph.nodes().len()];
    let mut is_inner = vec![false; graph.nodes().len()];
    for (index, group) in groups.iter().enumerate() {
        for (position, id) in group.iter().enumerate() {
            group_of[id.index()] = Some(index);
            is_inner[id.index()] = position + 1 < group.len();
        }
    }
    let users = graph.users();
    let made = |id: NodeId| graph.node(id).produces().next().map(|(_, value)| value);
    let readers = |id: NodeId| made(id).map_or(&[][..], |value| &users[value.index()][..]);
    // By node: whether the group needs the piece that is being made, and no other part.
    let mut in_step = vec![true; graph.nodes().len()];
    for &id in groups.iter().flat_map(|group| group.iter().rev().skip(1)) {
        let follows = |&reader| in_step[NodeId::index(reader)] && follows(graph, reader, made(id));
        in_step[id.index()] = readers(id).iter().all(follows);
    }
    // By node: the copies, the node included.
    let mut copies: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for (index, &of) in origin.iter().enumerate() {
        if graph.nodes()[index].effects().repeats {
            copies.entry(of).or_default().push(NodeId::new(index));
        }
    }
    let mut stored = Stored::new();
    for (of, copies) in copies.iter().filter(|(_, copies)| copies.len() > 1) {
        let mut note = |copy: NodeId| {
            stored.extend(readers(copy).iter().map(|reader| (*of, origin[reader.index()])));
        };
        let alone: Vec<NodeId> =
            copies.iter().copied().filter(|id| !is_inner[id.index()]).collect();
        if alone.len() > 1 {
            alone.into_iter().for_each(&mut note);
        }
        for (index, &copy) in copies.iter().enumerate().filter(|(_, copy)| is_inner[copy.index()]) {
            let beside = |other: &&NodeId| group_of[other.index()] == group_of[copy.index()];
            let mut others = copies[..index].iter().filter(beside);
            if others.any(|&other| in_step[other.index()] != in_step[copy.index()]) {
                note(copy);
            }
            // A group in which the node runs has no second source for the output.
            let group = group_of[copy.index()];
            let from_memory = copies.iter().copied().filter(|other| {
                group_of[other.index()] != group
                    && readers(*other).iter().any(|reader| group_of[reader.index()] == group)
            });
            for other in from_memory {
                note(copy);
                note(other);
            }
        }
    }
    stored
}

/// Returns whether a reader needs a value piece by piece.
fn follows(graph: &Graph, reader: NodeId, value: Option<ValueId>) -> bool {
    let node = graph.node(reader);
    let elements = |value: ValueId| graph.value(value).elements().unwrap_or(0);
    node.only_flow(elements).is_some_and(|flow| {
        let mut reads = node.reads_bytes_of().filter(|&(_, read)| Some(read) == value);
        reads.all(|(position, _)| flow.follows.contains(&position))
    })
}

/// A graph with the facts about its nodes that every kind of fusion needs.
///
/// The planner tries many kinds of fusion on a graph, and collects the facts once.
pub(crate) struct Fusible<'g> {
    pub(crate) graph: &'g Graph,
    /// By node: the place in the order.
    position: Vec<usize>,
    /// By value: whether the caller or a state reads the value at the end.
    is_output: Vec<bool>,
    users: Vec<Vec<NodeId>>,
    candidates: Vec<Option<MemberCandidate>>,
}

impl<'g> Fusible<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        let count = graph.nodes().len();
        let mut position = vec![0; count];
        let mut awaited = vec![false; count];
        for (step, &id) in graph.order().iter().enumerate() {
            position[id.index()] = step;
            for dependency in graph.node(id).control_dependencies() {
                awaited[dependency.index()] = true;
            }
        }
        // A group runs at the last node, which must be the last reader of the previous content.
        let mut is_written_back = vec![false; graph.values().len()];
        for write_back in graph.write_backs() {
            is_written_back[write_back.value.index()] = true;
        }
        let mut is_output = vec![false; graph.values().len()];
        for output in graph.read_at_end() {
            is_output[output.index()] = true;
        }
        let candidates: Vec<Option<MemberCandidate>> = graph
            .nodes()
            .iter()
            .zip(&awaited)
            .map(|(node, &awaited)| candidate(graph, node).filter(|_| !awaited))
            .map(|found| found.filter(|found| !is_written_back[found.output.index()]))
            .collect();
        Self { graph, position, is_output, users: graph.users(), candidates }
    }

    /// Returns groups as [`fuse`] does.
    pub(crate) fn fuse(&self, fusion: Fusion) -> Vec<Vec<NodeId>> {
        self.fuse_within(fusion, &vec![0; self.graph.nodes().len()])
    }

    /// Returns groups as [`fuse`] does; nodes of a group have the same number in `part`.
    pub(crate) fn fuse_within(&self, fusion: Fusion, part: &[usize]) -> Vec<Vec<NodeId>> {
        self.fuse_at(fusion, part, &[])
    }

    /// Returns groups as [`fuse_within`](Self::fuse_within) does. Each node in `ends`, by position,
    /// is a group's last node.
    fn fuse_at(&self, fusion: Fusion, part: &[usize], ends: &[bool]) -> Vec<Vec<NodeId>> {
        if fusion == Fusion::default() {
            return Vec::new();
        }
        let Self { graph, position, is_output, users, candidates } = self;
        let count = graph.nodes().len();
        let mut fuser = Fuser {
            graph,
            fusion,
            part,
            users,
            candidates,
            groups: (0..count).map(|_| None).collect(),
            group_of: vec![None; count],
            in_step: vec![true; count],
        };
        for &id in graph.order().iter().rev() {
            let made = candidates[id.index()].as_ref().map(|candidate| candidate.output);
            let is_cut = made.is_none_or(|value| is_output[value.index()])
                || ends.get(id.index()).is_some_and(|&ends| ends);
            if is_cut || !fuser.join(id) {
                fuser.start(id);
            }
        }
        let mut groups = fuser.finish();
        for group in &mut groups {
            group.sort_unstable_by_key(|id| position[id.index()]);
        }
        groups.sort_unstable_by_key(|group| group.last().map(|id| position[id.index()]));
        groups
    }
}

/// Returns the properties of a candidate member, or `None`.
fn candidate(graph: &Graph, node: &Node) -> Option<MemberCandidate> {
    let effects = node.effects();
    let elements = |value: ValueId| graph.value(value).elements().unwrap_or(0);
    let kind = |value: ValueId| graph.value(value).kind();
    let touches_state =
        node.inputs().iter().flatten().any(|&value| kind(value) == ValueKind::State);
    let waits = !node.control_dependencies().is_empty();
    if touches_state || waits || !effects.mutates.is_empty() || !effects.ignores.is_empty() {
        return None;
    }
    let flow = node.only_flow(elements)?;
    let (_, output) = node.produces().next()?;
    let declared = effects.flows.iter().any(|declared| declared.output == flow.output);
    let role = if !declared {
        Role::View
    } else if flow.follows.is_empty() {
        if flow.pieces == elements(output) { Role::Anchor } else { Role::Blocks }
    } else if flow.pieces == elements(output)
        && flow.follows.iter().filter_map(|&at| node.input(at)).all(|x| elements(x) == flow.pieces)
    {
        Role::Elementwise
    } else {
        let whole: Vec<ValueId> = node
            .reads_bytes_of()
            .filter(|(at, _)| !flow.follows.contains(at))
            .map(|(_, value)| value)
            .collect();
        let followed = || flow.follows.iter().filter_map(|&at| node.input(at));
        let shrinks = followed().any(|x| elements(x) > elements(output));
        let rows = |x: ValueId| {
            let row = graph.value(x).shape().last().copied().unwrap_or(1);
            elements(x) / row.max(1)
        };
        let is_constant = |&value: &ValueId| kind(value) == ValueKind::Constant;
        let by_constant = !whole.is_empty() && whole.iter().all(is_constant);
        let reduces = shrinks && whole.is_empty();
        if followed().any(|x| flow.pieces < rows(x)) {
            Role::Planes
        } else {
            Role::Rows { reduces, by_constant }
        }
    };
    let loads = !effects.loads.is_empty();
    (kind(output) == ValueKind::Activation).then_some(MemberCandidate { role, flow, output, loads })
}

struct Fuser<'a> {
    graph: &'a Graph,
    fusion: Fusion,
    /// By node: nodes with different numbers are never in the same group.
    part: &'a [usize],
    users: &'a [Vec<NodeId>],
    candidates: &'a [Option<MemberCandidate>],
    /// By last node.
    groups: Vec<Option<GrowingGroup>>,
    /// By node: the group's last node.
    group_of: Vec<Option<NodeId>>,
    /// By node: true if the node makes the group's present piece, false if the node makes operands
    /// that another node loads.
    in_step: Vec<bool>,
}

impl Fuser<'_> {
    /// Opens a group that ends with `id`, if the node can end a group.
    fn start(&mut self, id: NodeId) {
        let Some(candidate) = &self.candidates[id.index()] else { return };
        if candidate.role != Role::View {
            self.group_of[id.index()] = Some(id);
            self.groups[id.index()] = Some(GrowingGroup {
                members: vec![id],
                pieces: candidate.flow.pieces,
                others: usize::from(candidate.role != Role::Elementwise),
                has_anchor: candidate.role == Role::Anchor,
                by_rows: matches!(candidate.role, Role::Rows { .. } | Role::Planes),
            });
        }
    }

    /// Lets a node join the readers' group if possible, and returns whether the node joined.
    fn join(&mut self, id: NodeId) -> bool {
        let Some(candidate) = &self.candidates[id.index()] else { return false };
        let readers = &self.users[candidate.output.index()];
        let Some(&first) = readers.first() else { return false };
        let Some(last) = self.group_of[first.index()] else { return false };
        let part = self.part[id.index()];
        if readers.iter().any(|reader| {
            self.group_of[reader.index()] != Some(last) || self.part[reader.index()] != part
        }) {
            return false;
        }
        let group = self.groups[last.index()].as_ref().expect("a group ends with its last node");
        let mut in_step = None;
        for &reader in readers {
            let Some(how) = self.link(candidate, group, reader) else { return false };
            if *in_step.get_or_insert(how) != how {
                return false;
            }
        }
        let in_step = in_step.expect("there is a reader");
        let pieces = if in_step { gcd(group.pieces, candidate.flow.pieces) } else { group.pieces };
        if pieces < 2 {
            return false;
        }
        let (is_other, by_rows) = match candidate.role {
            Role::View | Role::Elementwise => (0, false),
            Role::Rows { .. } | Role::Planes => (1, true),
            Role::Anchor | Role::Blocks => (1, false),
        };
        let is_anchor = candidate.role == Role::Anchor;
        let group = self.groups[last.index()].as_mut().expect("a group ends with its last node");
        group.members.push(id);
        group.pieces = pieces;
        group.others += is_other;
        group.has_anchor |= is_anchor;
        group.by_rows |= by_rows;
        self.group_of[id.index()] = Some(last);
        self.in_step[id.index()] = in_step;
        true
    }

    /// Returns true if the node would make the output of `candidate` in step with the reader, and false if
    /// during a load of the reader. Returns `None` if the output cannot be passed on piece by piece, or
    /// this kind of fusion excludes the node.
    fn link(
        &self,
        candidate: &MemberCandidate,
        group: &GrowingGroup,
        reader: NodeId,
    ) -> Option<bool> {
        let node = self.graph.node(reader);
        let known = self.candidates[reader.index()].as_ref().expect("groups are of candidates");
        let is_small = matches!(candidate.role, Role::View | Role::Elementwise);
        let positions = node.reads_bytes_of().filter(|&(_, value)| value == candidate.output);
        let positions: Vec<usize> = positions.map(|(position, _)| position).collect();
        let follows = positions.iter().all(|position| known.flow.follows.contains(position));
        // An operand that the reader follows is made in step with the reader, even if the reader also
        // loads the same value: no order of pieces serves both uses.
        let loads = positions.iter().all(|position| {
            node.effects().loads.contains(position) && !known.flow.follows.contains(position)
        });
        let Fusion { elementwise, anchors, prologue, attention, perceptrons, channels } =
            self.fusion;
        if !follows {
            return (loads && prologue && is_small && self.in_step[reader.index()])
                .then_some(false);
        }
        if !self.in_step[reader.index()] {
            return (is_small && prologue).then_some(false);
        }
        if channels {
            return (candidate.role != Role::Anchor || !group.has_anchor).then_some(true);
        }
        let streams = attention || perceptrons;
        let is_in_rows = is_small || matches!(candidate.role, Role::Rows { .. });
        let passes = match known.role {
            Role::View | Role::Elementwise => match candidate.role {
                Role::View | Role::Elementwise => elementwise,
                Role::Rows { .. } => streams || (anchors && group.others == 0),
                // An anchor that does not load operands tile by tile gains little from the readers.
                Role::Planes => anchors && group.others == 0 && candidate.loads,
                Role::Anchor => anchors && group.others == 0 && !group.by_rows,
                Role::Blocks => false,
            },
            Role::Rows { reduces: true, .. } => is_small && elementwise,
            Role::Rows { by_constant: true, .. } => {
                (perceptrons && is_in_rows) || (prologue && loads && is_small)
            }
            Role::Rows { .. } => attention && is_in_rows,
            Role::Planes => prologue && loads && is_small,
            Role::Anchor | Role::Blocks => false,
        };
        passes.then_some(true)
    }

    /// Returns the groups with at least two nodes.
    fn finish(self) -> Vec<Vec<NodeId>> {
        let Self { graph, candidates, groups, group_of, .. } = self;
        let is_view = |id: NodeId| {
            candidates[id.index()].as_ref().is_some_and(|known| known.role == Role::View)
        };
        let mut result = Vec::new();
        for GrowingGroup { mut members, .. } in groups.into_iter().flatten() {
            // A view of an outside value need not be in the group. Nodes that joined last come
            // first in execution order.
            let mut dropped: Vec<NodeId> = Vec::new();
            for &id in members.iter().rev() {
                let inside = graph.node(id).inputs().iter().flatten().any(|&value| {
                    graph.producer(value).is_some_and(|maker| {
                        group_of[maker.index()] == group_of[id.index()] && !dropped.contains(&maker)
                    })
                });
                if is_view(id) && !inside {
                    dropped.push(id);
                }
            }
            members.retain(|id| !dropped.contains(id));
            if members.len() > 1 {
                result.push(members);
            }
        }
        result
    }
}
