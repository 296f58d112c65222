//! Building and validating a graph.

use alloc::{format, string::String, vec, vec::Vec};

use hashbrown::HashMap;

use crate::base::{Error, NodeId, Result, SpaceId, ValueId, quoted};
use crate::graph::{
    Covers, Graph, Node, Value, ValueKind, Whole, Window, WriteBack, topological, write_back,
};
use crate::pack::Space;

/// Collects values and nodes for a valid [`Graph`].
///
/// Nodes may be added in any order, and may read values that are produced by nodes
/// added later.
///
/// ```
/// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
///
/// let mut builder = Graph::builder("two layers");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [1, 64])?);
/// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::FLOAT32, [1, 64])?);
/// builder.add_node(Node::new("relu", "Relu").reads([x]).writes([y]).in_place(0, 0));
/// builder.add_output(y);
/// let graph = builder.build()?;
/// assert_eq!(graph.order().len(), 1);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    name: String,
    values: Vec<Value>,
    nodes: Vec<Node>,
    outputs: Vec<ValueId>,
    write_backs: Vec<WriteBack>,
    spaces: Vec<Space>,
    covers: Covers,
}

impl GraphBuilder {
    /// Returns an empty builder with one unlimited space called `arena`.
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            values: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            write_backs: Vec::new(),
            spaces: vec![Space::default()],
            covers: Covers::default(),
        }
    }

    /// Declares the part of the model in the graph; by default the whole model.
    pub fn set_covers(&mut self, covers: Covers) {
        self.covers = covers;
    }

    /// Replaces space 0, where values live by default.
    pub fn set_default_space(&mut self, space: Space) {
        self.spaces[0] = space;
    }

    /// Adds a memory space.
    pub fn add_space(&mut self, space: Space) -> SpaceId {
        self.spaces.push(space);
        SpaceId::new(self.spaces.len() - 1)
    }

    /// Adds a value.
    pub fn add_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId::new(self.values.len() - 1)
    }

    /// Adds a node.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId::new(self.nodes.len() - 1)
    }

    /// Declares that the caller receives `value`.
    pub fn add_output(&mut self, value: ValueId) {
        self.outputs.push(value);
    }

    /// Declares that `value` replaces the input or state `into` at the same address: donation.
    ///
    /// Both values have one address in every plan. The previous content of `into` is gone when the
    /// producer of `value` runs, so the producer runs after all other nodes that read this content.
    /// The producer may read the content only where the effects let `value` take over `into`. After
    /// the run, `into` has the bytes of `value`.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("update");
    /// let mut value = |name, kind| Value::new(name, kind, DType::FLOAT32, [1024]);
    /// let p = builder.add_value(value("p", ValueKind::State)?);
    /// let g = builder.add_value(value("g", ValueKind::Input)?);
    /// let new = builder.add_value(value("new p", ValueKind::Activation)?);
    /// builder.add_node(Node::new("update", "Sub").reads([p, g]).writes([new]).in_place(0, 0));
    /// builder.add_write_back(new, p);
    /// let plan = Planner::new().plan(&builder.build()?)?;
    /// assert_eq!(plan.placement(new).map(|it| it.offset), plan.placement(p).map(|it| it.offset));
    /// assert_eq!(plan.arena_bytes(), 8192);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn add_write_back(&mut self, value: ValueId, into: ValueId) {
        self.write_backs.push(WriteBack { value, into });
    }

    /// Returns the graph.
    ///
    /// # Errors
    ///
    /// - [`Error::DuplicateName`] if two values, or two spaces, share a name.
    /// - [`Error::DuplicateProducer`] if a value is produced twice, or is an input,
    ///   constant or state and produced too.
    /// - [`Error::UndefinedValue`] if an operand or output is not there or is never produced.
    /// - [`Error::InvalidEffect`], [`Error::AliasOutOfBounds`] if a node's effects do not fit the
    ///   operands.
    /// - [`Error::InvalidWriteBack`] if a value cannot replace an input or state at the same
    ///   address.
    /// - [`Error::InvalidAttribute`] if an attribute is a number that is not finite, or has no name.
    /// - [`Error::GraphCycle`] if nodes depend on each other in a circle.
    pub fn build(self) -> Result<Graph> {
        let Self { name, values, mut nodes, outputs, write_backs, spaces, covers } = self;
        check_unique("values", values.iter().map(Value::name))?;
        check_unique("spaces", spaces.iter().map(Space::name))?;
        for value in &values {
            if value.space.index() >= spaces.len() {
                let user = format!("value {}", quoted(&value.name));
                return Err(Error::UndefinedValue {
                    user,
                    value: format!("space {}", value.space),
                });
            }
        }
        let producers = find_producers(&values, &nodes)?;
        write_back::check(&write_backs, &values, &nodes, &producers)?;
        for node in &nodes {
            check_operands(node, &values, &producers, nodes.len())?;
        }
        write_back::order(&write_backs, &values, &mut nodes, &producers)?;
        for node in &mut nodes {
            drop_larger(node, &values);
        }
        for node in &nodes {
            check_effects(node, &values)?;
            check_workspaces(node)?;
            check_repeats(node, &values, &nodes)?;
            check_attributes(node)?;
        }
        for &output in &outputs {
            check_defined(|| "the graph's outputs".into(), output, &values, &producers)?;
        }
        let given: Vec<_> = (0..nodes.len()).map(NodeId::new).collect();
        let sorted = !topological::is_topological(&nodes, &producers, &given);
        let order = if sorted { topological::stable_sort(&nodes, &producers)? } else { given };
        Ok(Graph {
            name,
            values,
            nodes,
            outputs,
            write_backs,
            spaces,
            covers,
            producers,
            order,
            sorted,
        })
    }
}

/// Refuses two equal names.
fn check_unique<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = hashbrown::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::DuplicateName { what, name: quoted(name) });
        }
    }
    Ok(())
}

/// Returns the node that produces each value.
fn find_producers(values: &[Value], nodes: &[Node]) -> Result<Vec<Option<NodeId>>> {
    let mut producers: Vec<Option<NodeId>> = vec![None; values.len()];
    for (index, node) in nodes.iter().enumerate() {
        for (_, value) in node.produces() {
            let second = || format!("node {}", quoted(&node.name));
            let Some(known) = values.get(value.index()) else {
                return Err(Error::UndefinedValue {
                    user: second(),
                    value: format!("value {value}"),
                });
            };
            let first = match (known.kind, producers[value.index()]) {
                (ValueKind::Activation, None) => {
                    producers[value.index()] = Some(NodeId::new(index));
                    continue;
                }
                (ValueKind::Activation, Some(other)) => {
                    format!("node {}", quoted(&nodes[other.index()].name))
                }
                (ValueKind::Input, _) => "the caller, as a graph input".into(),
                (ValueKind::Constant, _) => "the model, as a constant".into(),
                (ValueKind::State, _) => "the caller, as a state".into(),
                (ValueKind::Inner, _) => "a group of nodes".into(),
            };
            return Err(Error::DuplicateProducer {
                value: quoted(&known.name),
                first,
                second: second(),
            });
        }
    }
    Ok(producers)
}

/// Refuses a value that is not there or that nothing produces.
fn check_defined(
    user: impl FnOnce() -> String,
    value: ValueId,
    values: &[Value],
    producers: &[Option<NodeId>],
) -> Result<()> {
    let value = match values.get(value.index()) {
        Some(known) if known.kind != ValueKind::Activation => return Ok(()),
        Some(_) if producers[value.index()].is_some() => return Ok(()),
        Some(known) => quoted(&known.name),
        None => format!("value {value}"),
    };
    Err(Error::UndefinedValue { user: user(), value })
}

/// Refuses operands and control dependencies that are not there.
fn check_operands(
    node: &Node,
    values: &[Value],
    producers: &[Option<NodeId>],
    nodes: usize,
) -> Result<()> {
    let user = || format!("node {}", quoted(&node.name));
    for &value in node.inputs.iter().flatten() {
        check_defined(user, value, values, producers)?;
    }
    for dependency in &node.after {
        if dependency.index() >= nodes {
            let value = format!("node {dependency}, as a control dependency");
            return Err(Error::UndefinedValue { user: user(), value });
        }
    }
    Ok(())
}

/// Drops permissions for an output in place of a smaller input: an operator may permit pairs that
/// the operand sizes rule out.
fn drop_larger(node: &mut Node, values: &[Value]) {
    let bytes =
        |operand: Option<Option<ValueId>>| operand.flatten().map(|id| values[id.index()].bytes);
    let Node { inputs, outputs, effects, .. } = node;
    effects.in_place.retain(|pair| {
        let input = bytes(inputs.get(pair.input).copied());
        bytes(outputs.get(pair.output).copied()).zip(input).is_none_or(|(made, read)| made <= read)
    });
}

/// Refuses effects that do not fit the node's operands.
pub(super) fn check_effects(node: &Node, values: &[Value]) -> Result<()> {
    let refuse = |reason: String| Err(Error::InvalidEffect { node: quoted(&node.name), reason });
    let effects = &node.effects;
    for (what, positions) in [("ignores", &effects.ignores), ("mutates", &effects.mutates)] {
        if let Some(position) = positions.iter().find(|&&position| position >= node.inputs.len()) {
            return refuse(format!("it {what} input {position}, which it does not have"));
        }
    }
    for &position in &effects.mutates {
        match node.input(position).map(|value| &values[value.index()]) {
            Some(value) if value.kind == ValueKind::State => {}
            Some(value) => {
                return refuse(format!("it mutates {}, which is not a state", quoted(&value.name)));
            }
            None => return refuse(format!("it mutates input {position}, which is left out")),
        }
    }
    check_flows(node, values)?;
    check_windows(node, values)?;
    for overlap in &effects.overlaps {
        if overlap.input >= node.inputs.len() || overlap.output >= node.outputs.len() {
            return refuse(format!(
                "overlap {} -> {} must name two operands",
                overlap.input, overlap.output
            ));
        }
    }
    for pair in &effects.in_place {
        if pair.input >= node.inputs.len() || pair.output >= node.outputs.len() {
            return refuse(format!(
                "in place {} -> {} must name two operands",
                pair.input, pair.output
            ));
        }
        let operands = node.input(pair.input).zip(node.output(pair.output));
        let Some((input, output)) =
            operands.map(|(input, output)| (&values[input.index()], &values[output.index()]))
        else {
            continue;
        };
        if output.bytes > input.bytes {
            return refuse(format!(
                "{} of {} bytes cannot be in place of {}, which has {}; a problem of buffers that \
                 may overlap packs them",
                quoted(&output.name),
                output.bytes,
                quoted(&input.name),
                input.bytes
            ));
        }
    }
    // Views by output bytes, to refuse views that contradict each other.
    let mut shown = HashMap::new();
    for view in &effects.views {
        if view.input >= node.inputs.len() || view.output >= node.outputs.len() {
            return refuse(format!(
                "view {} -> {} must name two operands",
                view.input, view.output
            ));
        }
        if effects.ignores.contains(&view.input) {
            return refuse(format!("it shows bytes of input {}, which it ignores", view.input));
        }
        let (Some(input), Some(output)) = (node.input(view.input), node.output(view.output)) else {
            continue;
        };
        let (part, whole) = match view.whole {
            Whole::Input => (&values[output.index()], &values[input.index()]),
            Whole::Output => (&values[input.index()], &values[output.index()]),
        };
        let end = view.offset.saturating_add(part.bytes);
        if end > whole.bytes {
            return Err(Error::AliasOutOfBounds {
                node: quoted(&node.name),
                value: quoted(&whole.name),
                end,
                bytes: whole.bytes,
            });
        }
        if view.whole == Whole::Input && shown.insert(view.output, view).is_some() {
            return refuse(format!("output {} is a view of two inputs", view.output));
        }
    }
    Ok(())
}

/// Refuses flows whose operands cannot be cut into equal pieces.
fn check_flows(node: &Node, values: &[Value]) -> Result<()> {
    let refuse = |reason: String| Err(Error::InvalidEffect { node: quoted(&node.name), reason });
    for (index, flow) in node.effects.flows.iter().enumerate() {
        if node.effects.flows[..index].iter().any(|other| other.output == flow.output) {
            return refuse(format!("output {} has two flows", flow.output));
        }
        let followed = flow.follows.iter().map(|&position| ("input", position, &node.inputs));
        let made = core::iter::once(("output", flow.output, &node.outputs));
        for (what, position, operands) in made.chain(followed) {
            let Some(operand) = operands.get(position) else {
                return refuse(format!("a flow names {what} {position}, which it does not have"));
            };
            let Some(value) = operand.map(|value| &values[value.index()]) else { continue };
            let elements = value.elements().unwrap_or(0);
            if flow.pieces == 0 || !elements.is_multiple_of(flow.pieces) {
                let name = quoted(&value.name);
                return refuse(format!("{name} cannot be cut into {} equal pieces", flow.pieces));
            }
        }
    }
    match node.effects.loads.iter().find(|&&position| position >= node.inputs.len()) {
        Some(position) => refuse(format!("it loads input {position}, which it does not have")),
        None => Ok(()),
    }
}

/// Refuses windows over operands that are not there or have no rows, and windows that do not move.
fn check_windows(node: &Node, values: &[Value]) -> Result<()> {
    /// Windows are no larger, so that places of windows are no larger than 64 bits.
    const LARGEST: u64 = 1 << 31;
    let refuse = |reason: String| Err(Error::InvalidEffect { node: quoted(&node.name), reason });
    for (index, window) in node.effects.windows.iter().enumerate() {
        let &Window { input, output, axis, extent, stride, before, scale } = window;
        if input >= node.inputs.len() || output >= node.outputs.len() {
            return refuse(format!("window {input} -> {output} must name two operands"));
        }
        let is_pair = |other: &&Window| (other.input, other.output) == (input, output);
        if node.effects.windows[..index].iter().any(|other| is_pair(&other)) {
            return refuse(format!("output {output} has two windows over input {input}"));
        }
        let numbers = [extent, stride, scale];
        if numbers.iter().any(|number| !(1..=LARGEST).contains(number))
            || before.unsigned_abs() > LARGEST
        {
            return refuse(format!("the window over input {input} has a number out of range"));
        }
        for value in node.input(input).into_iter().chain(node.output(output)) {
            let value = &values[value.index()];
            if axis >= value.shape.len() {
                let name = quoted(&value.name);
                return refuse(format!("{name} has no dimension {axis} for a window"));
            }
        }
    }
    Ok(())
}

/// Refuses nodes that may run again where a second run might differ from the first.
fn check_repeats(node: &Node, values: &[Value], nodes: &[Node]) -> Result<()> {
    let refuse = |node: &Node, reason: &str| {
        Err(Error::InvalidEffect { node: quoted(&node.name), reason: reason.into() })
    };
    let mut awaited = node.after.iter().map(|dependency| &nodes[dependency.index()]);
    if let Some(awaited) = awaited.find(|awaited| awaited.effects.repeats) {
        return refuse(awaited, "it may run again, and another node waits for it");
    }
    if node.effects.pure && !node.effects.mutates.is_empty() {
        return refuse(node, "it is declared as pure, and mutates a state");
    }
    if !node.effects.repeats {
        return Ok(());
    }
    let is_state = |value: &ValueId| values[value.index()].kind == ValueKind::State;
    if node.produces().count() != 1 {
        refuse(node, "it may run again, and does not have one output")
    } else if node.inputs.iter().flatten().any(is_state) {
        refuse(node, "it may run again, and a state that it reads may change")
    } else if !node.after.is_empty() {
        refuse(node, "it may run again, and waits for another node")
    } else {
        Ok(())
    }
}

/// Refuses attributes that files cannot hold.
fn check_attributes(node: &Node) -> Result<()> {
    for (name, attribute) in &node.attributes {
        let reason = if name.is_empty() {
            "it has no name"
        } else if !attribute.is_finite() {
            "it has a number that is not finite"
        } else {
            continue;
        };
        return Err(Error::InvalidAttribute {
            node: quoted(&node.name),
            attribute: quoted(name),
            reason: reason.into(),
        });
    }
    Ok(())
}

/// Returns whether a cost can be compared and added up.
fn is_cost(cost: f64) -> bool {
    cost.is_finite() && cost >= 0.0
}

/// Refuses workspaces without a size, or with a cost that is none.
pub(super) fn check_workspaces(node: &Node) -> Result<()> {
    let staging = node.effects.staging.iter().flatten().enumerate();
    for (slot, workspace) in node.effects.workspaces.iter().enumerate().chain(staging) {
        let reason = if workspace.choices.is_empty() {
            format!("workspace {slot} has no size to choose")
        } else if workspace.choices.iter().any(|choice| !is_cost(choice.cost)) {
            format!("a cost of workspace {slot} is not a finite number of at least 0")
        } else if workspace.choices.iter().any(|choice| choice.bytes > crate::base::MAX_BYTES) {
            return Err(Error::SizeOverflow {
                what: format!("workspace {slot} of node {}", quoted(&node.name)),
            });
        } else {
            continue;
        };
        return Err(Error::InvalidEffect { node: quoted(&node.name), reason });
    }
    Ok(())
}
