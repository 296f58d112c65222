//! Fused groups of nodes. Values inside a group are produced and consumed piece by piece and need
//! no memory but workspaces.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{
    boxed::Box,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

use crate::base::{Error, NodeId, Result, ValueId, gcd, quoted};
use crate::graph::{Effects, Flow, Graph, InPlace, Node, ValueKind, Whole};

/// A graph with fused groups.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grouped {
    /// One node per group, and one per node outside all groups. Values keep their ids; values that
    /// never leave a group have the kind [`Inner`](ValueKind::Inner).
    pub graph: Graph,
    /// For each node of `graph`: the represented nodes, in order. A node that
    /// [repeats](crate::graph::Effects::repeats) may be in several groups, and alone besides.
    pub members: Vec<Vec<NodeId>>,
}

impl Graph {
    /// Returns the graph in which each group in `groups` is a node.
    ///
    /// A group names its nodes in execution order. All nodes run at the place of the last node, so
    /// all inputs of the group must last until then. The other nodes' outputs are read inside the
    /// group only, and made piece by piece as [`Flow`] permits; each piece goes through the whole
    /// group before the next piece. The group's output may therefore take over an input that all
    /// nodes need only piece by piece.
    ///
    /// A node that [repeats](crate::graph::Effects::repeats) may be in several groups: the node
    /// runs again in each group. The node runs alone, too, if a node outside those groups reads the
    /// output; only then is the output ever in memory.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidGroup`] if nodes cannot run as one.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("gate");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [256])?);
    /// let mut value = |name| Value::new(name, ValueKind::Activation, DType::FLOAT32, [256]);
    /// let [a, s, y] = [value("a")?, value("s")?, value("y")?].map(|v| builder.add_value(v));
    /// builder.add_node(Node::new("conv", "Conv").reads([x]).writes([a]));
    /// let sigmoid = Node::new("sigmoid", "Sigmoid").reads([a]).writes([s]).flow(0, 256, [0]);
    /// let sigmoid = builder.add_node(sigmoid.in_place(0, 0));
    /// let times = Node::new("times", "Mul").reads([a, s]).writes([y]).flow(0, 256, [0, 1]);
    /// let times = builder.add_node(times.in_place(0, 0).in_place(1, 0));
    /// builder.add_output(y);
    /// let graph = builder.build()?;
    ///
    /// let fused = graph.grouped(&[vec![sigmoid, times]])?.graph;
    /// assert_eq!(fused.nodes().len(), 2);
    /// assert_eq!(Planner::new().plan(&fused)?.arena_bytes(), 2048); // without: 3072
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn grouped(&self, groups: &[Vec<NodeId>]) -> Result<Grouped> {
        self.grouped_in_strips(groups, &[])
    }

    /// Returns the graph in which each of `groups` is one node, as [`grouped`](Self::grouped)
    /// does. Groups that end with one of the nodes in `strips` run strip by strip: some rows of the
    /// output at a time, made through the whole group from the rows of the inputs under its
    /// [`Window`](crate::graph::Window)s. Such an output takes over no input in place.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidGroup`] if nodes cannot run as one.
    ///
    /// ```
    /// use arenaplan::graph::Window;
    /// use arenaplan::{DType, Graph, Node, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("two convolutions");
    /// let mut image = |name, kind| Value::new(name, kind, DType::FLOAT32, [1, 8, 32, 32]);
    /// let x = builder.add_value(image("x", ValueKind::Input)?);
    /// let a = builder.add_value(image("a", ValueKind::Activation)?);
    /// let b = builder.add_value(image("b", ValueKind::Activation)?);
    /// let rows = Window { input: 0, output: 0, axis: 2, extent: 3, stride: 1, before: 1, scale: 1 };
    /// let first = Node::new("first", "Conv").reads([x]).writes([a]).window(rows);
    /// let first = builder.add_node(first);
    /// let second = Node::new("second", "Conv").reads([a]).writes([b]).window(rows);
    /// let second = builder.add_node(second);
    /// builder.add_output(b);
    /// let graph = builder.build()?;
    ///
    /// let group = vec![first, second];
    /// assert!(graph.grouped(&[group.clone()]).is_err());
    /// assert_eq!(graph.grouped_in_strips(&[group], &[second])?.graph.nodes().len(), 1);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn grouped_in_strips(&self, groups: &[Vec<NodeId>], strips: &[NodeId]) -> Result<Grouped> {
        let strips: BTreeSet<NodeId> = strips.iter().copied().collect();
        let membership = Membership::new(self, groups)?;
        let users = self.users();
        let stored = membership.stored(self, &users, groups);
        let grouping = Grouping { graph: self, users, membership, stored };
        let stored = &grouping.stored;
        let mut values = self.values.clone();
        let mut members = Vec::new();
        let mut nodes = Vec::new();
        let mut new_id = vec![NodeId::new(0); self.nodes.len()];
        for &id in &self.order {
            let single = [id];
            if !stored[id.index()] {
                for (_, value) in self.node(id).produces() {
                    values[value.index()].kind = ValueKind::Inner;
                }
                continue;
            }
            let (node, stands_for) = match grouping.membership.ends(id) {
                Some(index) => {
                    let by_strips = strips.contains(&id);
                    (grouping.node(index, &groups[index], by_strips)?, &groups[index][..])
                }
                None => (self.node(id).clone(), &single[..]),
            };
            for &member in
                stands_for.iter().filter(|&&member| member == id || !stored[member.index()])
            {
                new_id[member.index()] = NodeId::new(nodes.len());
            }
            nodes.push(node);
            members.push(stands_for.to_vec());
        }
        let mut producers = vec![None; values.len()];
        for (index, node) in nodes.iter_mut().enumerate() {
            for (_, value) in node.produces() {
                producers[value.index()] = Some(NodeId::new(index));
            }
            let after = node.after.iter().map(|dependency| new_id[dependency.index()]);
            node.after = after.filter(|dependency| dependency.index() != index).collect();
        }
        let order: Vec<_> = (0..nodes.len()).map(NodeId::new).collect();
        if !super::topological::is_topological(&nodes, &producers, &order) {
            return refuse("a group".into(), "they wait for a node that waits for them");
        }
        let graph = Self {
            name: self.name.clone(),
            values,
            nodes,
            outputs: self.outputs.clone(),
            write_backs: self.write_backs.clone(),
            spaces: self.spaces.clone(),
            covers: self.covers.clone(),
            producers,
            order,
            sorted: self.sorted,
        };
        Ok(Grouped { graph, members })
    }
}

/// A graph's fused groups.
struct Grouping<'a> {
    graph: &'a Graph,
    /// For each value: the nodes that name the value. A node that reads only a value's shape must
    /// run after the producer, too, and so be in the group or not at all.
    users: Vec<Vec<NodeId>>,
    membership: Membership,
    /// For each node: whether the output is put into memory.
    stored: Vec<bool>,
}

/// The groups that each node is in.
struct Membership {
    /// For each node: the index of one group that contains the node, among groups with several
    /// nodes.
    first: Vec<Option<usize>>,
    /// Nodes in several groups, with the indices of the other groups.
    others: BTreeMap<NodeId, Vec<usize>>,
    /// For each node: the index of the group that the node ends, among groups with several nodes.
    ends: Vec<Option<usize>>,
}

impl Membership {
    fn new(graph: &Graph, groups: &[Vec<NodeId>]) -> Result<Self> {
        let count = graph.nodes.len();
        let (mut first, mut ends) = (vec![None; count], vec![None; count]);
        let mut others: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        // For each node: the last group in which the node was found.
        let mut seen: Vec<Option<usize>> = vec![None; count];
        for (index, group) in groups.iter().enumerate() {
            for &node in group {
                let Some(before) = seen.get_mut(node.index()) else {
                    return refuse(node.to_string(), "there is no such node");
                };
                let twice = before.replace(index);
                let repeats = graph.node(node).effects.repeats;
                if twice.is_some_and(|before| before == index || !repeats) {
                    return refuse(quoted(graph.node(node).name()), "a node is there twice");
                }
                if group.len() < 2 {
                    continue;
                }
                match &mut first[node.index()] {
                    Some(_) => others.entry(node).or_default().push(index),
                    none => *none = Some(index),
                }
            }
            if let Some(&last) = group.last().filter(|_| group.len() > 1)
                && ends[last.index()].replace(index).is_some()
            {
                return refuse(quoted(graph.node(last).name()), "two groups end with this node");
            }
        }
        Ok(Self { first, others, ends })
    }

    /// Returns the index of the group that a node ends.
    fn ends(&self, id: NodeId) -> Option<usize> {
        self.ends[id.index()]
    }

    /// Iterates over the indices of the groups that contain a node.
    fn of(&self, id: NodeId) -> impl Iterator<Item = usize> + '_ {
        let others = self.others.get(&id).into_iter().flatten().copied();
        self.first[id.index()].into_iter().chain(others)
    }

    /// Returns whether a node is in the group at a position.
    fn is_in(&self, id: NodeId, group: usize) -> bool {
        self.first[id.index()] == Some(group)
            || self.others.get(&id).is_some_and(|others| others.contains(&group))
    }

    /// Returns for each node whether the output is put into memory: the node ends a group or runs
    /// alone. A repeated node runs alone beside its groups if the output is read elsewhere.
    fn stored(&self, graph: &Graph, users: &[Vec<NodeId>], groups: &[Vec<NodeId>]) -> Vec<bool> {
        let mut stored = vec![false; graph.nodes.len()];
        for &id in graph.order.iter().rev() {
            let repeats = || graph.node(id).effects.repeats;
            stored[id.index()] = self.first[id.index()].is_none()
                || self.ends(id).is_some()
                || (repeats() && self.is_read_alone(graph, users, groups, &stored, id));
        }
        stored
    }

    /// Returns whether a run of a reader, in a group or alone, lacks the node.
    fn is_read_alone(
        &self,
        graph: &Graph,
        users: &[Vec<NodeId>],
        groups: &[Vec<NodeId>],
        stored: &[bool],
        id: NodeId,
    ) -> bool {
        graph.node(id).produces().any(|(_, value)| {
            graph.outputs.contains(&value)
                || users[value.index()].iter().any(|&user| {
                    let runs_alone = stored[user.index()] && self.ends(user).is_none();
                    runs_alone || self.of(user).any(|group| !groups[group].contains(&id))
                })
        })
    }
}

impl Grouping<'_> {
    /// Returns the node that the group at a position becomes.
    fn node(&self, index: usize, group: &[NodeId], by_strips: bool) -> Result<Node> {
        let graph = self.graph;
        let sink_id = *group.last().expect("a group has nodes");
        let sink = graph.node(sink_id);
        let refuse = |reason| refuse(quoted(sink.name()), reason);
        let places: BTreeMap<NodeId, usize> =
            group.iter().enumerate().map(|(place, &id)| (id, place)).collect();
        let maker = |value| graph.producer(value).and_then(|id| places.get(&id).copied());
        for (position, &id) in group.iter().enumerate() {
            let node = graph.node(id);
            if !node.effects.mutates.is_empty() || !node.effects.ignores.is_empty() {
                return refuse("one of them mutates or ignores an operand");
            }
            let is_late = |&value: &ValueId| maker(value).is_some_and(|place| place >= position);
            if node.inputs.iter().flatten().any(is_late) {
                return refuse("they are not in execution order");
            }
        }
        let [output] = sink.produces().map(|(_, value)| value).collect::<Vec<_>>()[..] else {
            return refuse("the last one does not have one output");
        };
        let found = if by_strips {
            self.reads_by_rows(index, group, maker)
        } else {
            self.reads(index, group, maker)
        };
        let Some((reads, pieces)) = found else {
            return refuse("what one makes is needed whole by another, or outside");
        };
        let made = graph.value(output);
        let mut inputs: Vec<ValueId> = Vec::new();
        let mut reads_of: BTreeMap<ValueId, Vec<&GroupRead>> = BTreeMap::new();
        for read in &reads {
            let known = reads_of.entry(read.value).or_default();
            if known.is_empty() {
                inputs.push(read.value);
            }
            known.push(read);
        }
        let may_take_over = |value: ValueId| {
            let taken = graph.value(value);
            taken.is_planned()
                && taken.bytes() == made.bytes()
                && reads_of[&value].iter().all(|read| {
                    let overwrites =
                        |pair: &InPlace| (pair.input, pair.output) == (read.position, 0);
                    read.by_piece
                        && (read.node != sink_id || sink.effects.in_place.iter().any(overwrites))
                })
        };
        let in_place = inputs.iter().enumerate().filter(|&(_, &value)| may_take_over(value));
        let by_piece = |value: ValueId| reads_of[&value].iter().all(|read| read.by_piece);
        let follows = (0..inputs.len()).filter(|&input| by_piece(inputs[input])).collect();
        let effects = Effects {
            in_place: in_place
                .map(|(input, _)| InPlace { input, output: 0, identity: false })
                .collect(),
            // A node in several steps has scratch memory in the step that the node ends.
            workspaces: group
                .iter()
                .filter(|&&id| id == sink_id || !self.runs_again(id))
                .flat_map(|&id| graph.node(id).effects.workspaces.iter().cloned())
                .collect(),
            flows: if by_strips { Vec::new() } else { vec![Flow { output: 0, pieces, follows }] },
            // The last node states the joint needs of the group.
            staging: sink.effects.staging.clone().filter(|_| !by_strips),
            ..Effects::default()
        };
        let after = group.iter().flat_map(|&id| graph.node(id).after.iter().copied());
        Ok(Node {
            name: sink.name.clone(),
            op: sink.op.clone(),
            domain: sink.domain.clone(),
            version: sink.version,
            attributes: sink.attributes.clone(),
            inputs: inputs.into_iter().map(Some).collect(),
            outputs: Box::new([Some(output)]),
            effects,
            after: after.collect(),
            cost: group.iter().fold(0, |sum: u64, &id| sum.saturating_add(graph.node(id).cost)),
            inner_sizes: Vec::new(),
        })
    }

    /// Returns a group's operands from outside, in order, and the number of pieces in which the
    /// group can run; `None` if the group cannot run piece by piece. `maker` is the place of the
    /// member that makes a value.
    ///
    /// Walks from the last node backwards. A node is *in step* if each reader needs the piece that
    /// is being made. Otherwise the node is applied to operands that another node loads, any part
    /// at any time, and must be elementwise.
    fn reads(
        &self,
        index: usize,
        group: &[NodeId],
        maker: impl Fn(ValueId) -> Option<usize>,
    ) -> Option<(Vec<GroupRead>, u64)> {
        let graph = self.graph;
        let elements = |value: ValueId| graph.value(value).elements().unwrap_or(0);
        let (&sink, inner) = group.split_last()?;
        let mut in_step: Vec<Option<bool>> = vec![None; inner.len()];
        let mut pieces = 0;
        let mut outside = Vec::new();
        for (index, &id) in group.iter().enumerate().rev() {
            let node = graph.node(id);
            let flow = node.only_flow(elements)?;
            let made = node.produces().next()?.1;
            // A value without a reader in the group has no place to go.
            let steps = if id == sink { true } else { in_step[index]? };
            if steps {
                pieces = gcd(pieces, flow.pieces);
            } else if flow.pieces != elements(made) {
                return None;
            }
            let reads: Vec<_> = node.reads_bytes_of().collect();
            for (position, value) in reads.into_iter().rev() {
                let follows = flow.follows.contains(&position);
                let Some(maker) = maker(value) else {
                    outside.push(GroupRead {
                        node: id,
                        position,
                        value,
                        by_piece: steps && follows,
                    });
                    continue;
                };
                let by_piece = match (steps, follows) {
                    (_, false) if node.effects.loads.contains(&position) => false,
                    (_, false) => return None,
                    (steps, true) => steps,
                };
                if in_step[maker].replace(by_piece).is_some_and(|known| known != by_piece) {
                    return None;
                }
            }
        }
        outside.reverse();
        let stays =
            inner.iter().all(|&id| graph.node(id).effects.repeats || !self.leaves(index, id));
        (pieces > 1 && stays).then_some((outside, pieces))
    }

    /// Returns whether a member that does not end the group runs in other steps, too.
    fn runs_again(&self, id: NodeId) -> bool {
        self.stored[id.index()] || self.membership.others.contains_key(&id)
    }

    /// Returns whether a node's output is needed outside the group at `index`.
    fn leaves(&self, index: usize, id: NodeId) -> bool {
        self.graph.node(id).produces().any(|(_, value)| {
            let mut users = self.users[value.index()].iter();
            self.graph.outputs().contains(&value)
                || users.any(|&user| !self.membership.is_in(user, index))
        })
    }

    /// Returns a group's operands from outside, in order, if the group can run strip by strip: a
    /// member's output is read through windows, and inside only.
    fn reads_by_rows(
        &self,
        index: usize,
        group: &[NodeId],
        maker: impl Fn(ValueId) -> Option<usize>,
    ) -> Option<(Vec<GroupRead>, u64)> {
        let (_, inner) = group.split_last()?;
        let mut outside = Vec::new();
        let mut is_read = vec![false; inner.len()];
        for &id in group {
            let node = self.graph.node(id);
            let (output, _) = node.produces().next()?;
            if node.produces().count() != 1 {
                return None;
            }
            for (position, value) in node.reads_bytes_of() {
                let Some(maker) = maker(value) else {
                    outside.push(GroupRead { node: id, position, value, by_piece: false });
                    continue;
                };
                is_read[maker] = true;
                let mut windows = node.effects.windows.iter();
                windows.find(|window| (window.input, window.output) == (position, output))?;
            }
        }
        let stays =
            is_read.into_iter().all(|read| read) && !inner.iter().any(|&id| self.leaves(index, id));
        stays.then_some((outside, 1))
    }
}

impl Node {
    /// Returns the flow by which the node's only output can be made in pieces, if any: a view that
    /// shows a whole input is made byte by byte.
    pub(crate) fn only_flow(&self, elements: impl Fn(ValueId) -> u64) -> Option<Flow> {
        let mut produced = self.produces();
        let (output, value) = produced.next()?;
        if produced.next().is_some() {
            return None;
        }
        let declared = self.effects.flows.iter().find(|flow| flow.output == output);
        declared.cloned().or_else(|| {
            let mut views = self.effects.views.iter();
            let pieces = elements(value);
            let view = views.find(|view| {
                view.output == output
                    && view.offset == 0
                    && view.whole == Whole::Input
                    && self.input(view.input).is_some_and(|shown| elements(shown) == pieces)
            })?;
            (pieces > 0).then(|| Flow { output, pieces, follows: vec![view.input] })
        })
    }
}

/// A value that a group reads from outside.
struct GroupRead {
    node: NodeId,
    position: usize,
    value: ValueId,
    /// Whether only the piece that is being made is needed.
    by_piece: bool,
}

fn refuse<T>(node: String, reason: &str) -> Result<T> {
    Err(Error::InvalidGroup { node, reason: reason.into() })
}
