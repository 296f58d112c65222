//! The pipeline: graph → order → live ranges → problem → packing → plan.

use crate::error::Result;
use crate::graph::{Graph, Workspace};
use crate::index::{BufferId, NodeId, SpaceId, ValueId};
use crate::liveness::{ChosenWorkspace, Liveness, LivenessOptions};
use crate::packing::{Packing, SpacePacking, Status};
use crate::plan::{
    Placement, Plan, PlanOptions, PlanStep, SpacePlan, WorkspacePlacement, WorkspacePolicy,
    index_steps,
};
use crate::problem::Problem;
use crate::solve::{Budget, solve};
use crate::units::{Alignment, Step};

/// Makes a [`Plan`] of a [`Graph`].
///
/// ```
/// use arenaplan::{DType, Graph, Node, Planner, Status, Value, ValueKind};
///
/// let mut builder = Graph::builder("chain");
/// let mut last = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [256])?);
/// for layer in 0..3 {
///     let name = format!("y{layer}");
///     let next = builder.add_value(Value::new(&*name, ValueKind::Activation, DType::FLOAT32, [256])?);
///     builder.add_node(Node::new(name, "Conv").reads([last]).writes([next]));
///     last = next;
/// }
/// builder.add_output(last);
///
/// let plan = Planner::new().plan(&builder.build()?)?;
/// assert_eq!(plan.naive_bytes(), Some(4096));
/// assert_eq!(plan.arena_bytes(), 2048); // input and output of a layer, at any one step
/// assert_eq!(plan.status(), Status::Optimal);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Planner<'a> {
    options: PlanOptions,
    capacity: Option<u64>,
    budget: Budget<'a>,
}

impl<'a> Planner<'a> {
    /// Returns a planner with the default options: 64-byte alignment, in place where
    /// legal, inputs reusable after their last reader, no workspaces.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every offset a multiple of `bytes`.
    #[must_use]
    pub fn alignment(mut self, bytes: u64) -> Self {
        self.options.alignment = bytes;
        self
    }

    /// Sets whether outputs may take over the bytes of dying inputs.
    #[must_use]
    pub fn in_place(mut self, allowed: bool) -> Self {
        self.options.in_place = allowed;
        self
    }

    /// Sets whether graph inputs keep their bytes until the end of a run.
    #[must_use]
    pub fn preserve_inputs(mut self, preserved: bool) -> Self {
        self.options.preserve_inputs = preserved;
        self
    }

    /// Sets whether the plan must be safe in every order that the graph permits, so that
    /// nodes that do not wait for each other may run at the same time.
    #[must_use]
    pub fn parallel_safe(mut self, safe: bool) -> Self {
        self.options.parallel_safe = safe;
        self
    }

    /// Sets how the sizes of workspaces are chosen.
    #[must_use]
    pub fn workspace(mut self, policy: WorkspacePolicy) -> Self {
        self.options.workspace = policy;
        self
    }

    /// Limits the default space to `bytes`.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Limits the work of the solvers.
    #[must_use]
    pub fn budget(mut self, budget: Budget<'a>) -> Self {
        self.budget = budget;
        self
    }

    /// Returns the options.
    pub const fn options(&self) -> PlanOptions {
        self.options
    }

    /// Returns a plan of `graph`, already checked.
    ///
    /// If a space is too small the best plan is returned all the same: its
    /// [`status`](Plan::status) tells, and [`Plan::fits`] says why.
    ///
    /// # Errors
    ///
    /// - [`InvalidAlignment`](crate::Error::InvalidAlignment) if the alignment is not a power of two.
    /// - [`SizeOverflow`](crate::Error::SizeOverflow) if no machine can address what is live at one step.
    /// - [`PinConflict`](crate::Error::PinConflict) if pinned values contradict each other.
    pub fn plan(&self, graph: &Graph) -> Result<Plan> {
        let order = graph.order();
        let (liveness, packing) = self.pack(graph, order)?;
        let plan = self.assemble(graph, order, &liveness, &packing);
        plan.check(graph)?;
        Ok(plan)
    }

    /// Returns the buffers that `graph` needs, without packing them: for reports.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn liveness(&self, graph: &Graph) -> Result<Liveness> {
        self.pack(graph, graph.order()).map(|(liveness, _)| liveness)
    }

    /// Returns the buffers of `graph` and their offsets.
    ///
    /// An output that takes over a larger input ties its place to that of the input, which
    /// can cost more than it saves: unless the result is proven to be the least, it is
    /// compared with what taking over inputs of the same size alone gives.
    fn pack(&self, graph: &Graph, order: &[NodeId]) -> Result<(Liveness, Packing)> {
        let first = self.pack_with(graph, order, false)?;
        let mut buffers = first.0.problem.buffers().iter();
        if first.1.status() == Status::Optimal || buffers.all(|buffer| buffer.solid().is_some()) {
            return Ok(first);
        }
        let second = self.pack_with(graph, order, true)?;
        Ok(if second.1.peak() < first.1.peak() { second } else { first })
    }

    /// Returns the buffers of `graph` and their offsets, where outputs take over inputs of
    /// any size, or of the same size only.
    fn pack_with(
        &self,
        graph: &Graph,
        order: &[NodeId],
        same_size: bool,
    ) -> Result<(Liveness, Packing)> {
        let options = LivenessOptions {
            alignment: Alignment::new(self.options.alignment)?,
            in_place: self.options.in_place,
            same_size,
            parallel_safe: self.options.parallel_safe,
            preserve_inputs: self.options.preserve_inputs,
            capacity: self.capacity,
        };
        let liveness = Liveness::new(graph, order, options, Vec::new())?;
        if self.options.workspace == WorkspacePolicy::None {
            let packing = self.solve(&liveness.problem)?;
            return Ok((liveness, packing));
        }
        let live = liveness.profile(SpaceId::new(0));
        let mut chosen = smallest_workspaces(graph, order);
        let smallest = liveness.with_workspaces(graph, options, chosen.clone())?;
        if chosen.is_empty() {
            let packing = self.solve(&smallest.problem)?;
            return Ok((smallest, packing));
        }
        // What the smallest workspaces need is the peak that larger ones must not raise.
        let least = self.solve(&smallest.problem)?;
        let SpacePacking { peak, lower_bound, .. } = least.spaces[0];
        enlarge_workspaces(graph, options.alignment, &live, peak, &mut chosen);
        loop {
            let larger = smallest.clone().with_workspaces(graph, options, chosen.clone())?;
            let mut packing = self.solve(&larger.problem)?;
            if packing.spaces[0].peak <= peak {
                // Smaller workspaces might do with less: the bound is theirs.
                let packed = &mut packing.spaces[0];
                packed.lower_bound = lower_bound;
                packed.status =
                    Status::of(packed.peak, lower_bound, larger.problem.spaces()[0].capacity());
                return Ok((larger, packing));
            }
            // The bytes are there at every step, but no offsets were found: step down
            // the workspaces that ended above the peak.
            let first = larger.classes.classes().len();
            let too_high: Vec<_> = (0..chosen.len())
                .filter(|&index| {
                    let buffer = BufferId::new(first + index);
                    packing.offset(buffer) + larger.problem.buffer(buffer).bytes() > peak
                })
                .collect();
            let any_high = !too_high.is_empty();
            let mut shrunk = false;
            for index in if any_high { too_high } else { (0..chosen.len()).collect() } {
                shrunk |= shrink_workspace(graph, &mut chosen[index]);
            }
            if !shrunk {
                return Ok((smallest, least));
            }
        }
    }

    /// Returns the smallest packing that is found, whatever the capacities; with them as the
    /// target only where it does not fit, for a solver that is given one stops as soon as
    /// everything fits.
    fn solve(&self, problem: &Problem) -> Result<Packing> {
        let limited = problem.spaces().iter().any(|space| space.capacity().is_some());
        let mut packing = solve(&problem.without_capacities(), &self.budget)?;
        if !limited {
            return Ok(packing);
        }
        for (packed, space) in packing.spaces.iter_mut().zip(problem.spaces()) {
            packed.status = Status::of(packed.peak, packed.lower_bound, space.capacity());
        }
        if packing.status() != Status::Unknown {
            return Ok(packing);
        }
        let fitting = solve(problem, &self.budget)?;
        let decided = fitting.status() != Status::Unknown;
        Ok(if decided || fitting.peak() < packing.peak() { fitting } else { packing })
    }

    /// Writes down where everything went.
    fn assemble(
        &self,
        graph: &Graph,
        order: &[NodeId],
        liveness: &Liveness,
        packing: &Packing,
    ) -> Plan {
        let narrow = |index: usize| u32::try_from(index).expect("positions have 32 bits");
        let place = |(index, value): (usize, &crate::graph::Value)| {
            let id = ValueId::new(index);
            let buffer = liveness.buffer_of(id)?;
            let live = liveness.lifetimes.of(id)?;
            Some(Placement {
                value: id.into(),
                name: value.name().to_owned(),
                space: value.space().into(),
                offset: packing.offset(buffer),
                bytes: value.bytes(),
                live: [live.start().get(), live.end().get()],
            })
        };
        let placements = graph.values().iter().enumerate().filter_map(place).collect();
        let first = liveness.classes.classes().len();
        let mut workspaces: Vec<_> = liveness
            .workspaces
            .iter()
            .enumerate()
            .map(|(index, workspace)| WorkspacePlacement {
                node: workspace.node.into(),
                slot: narrow(workspace.slot),
                choice: narrow(workspace.choice),
                space: 0,
                offset: packing.offset(BufferId::new(first + index)),
                bytes: workspace.bytes,
            })
            .collect();
        workspaces.sort_unstable_by_key(|workspace| (workspace.node, workspace.slot));
        let spaces = graph
            .spaces()
            .iter()
            .zip(liveness.problem.spaces())
            .zip(packing.spaces())
            .map(|((declared, space), packed)| SpacePlan {
                name: declared.name().to_owned(),
                arena_bytes: packed.peak,
                lower_bound: packed.lower_bound,
                status: packed.status,
                alignment: self.options.alignment.max(space.alignment().bytes()),
                capacity: space.capacity(),
            })
            .collect();
        let steps = steps(graph, order, liveness);
        Plan {
            model: graph.name().to_owned(),
            digest: graph.digest(),
            options: self.options,
            step_of: index_steps(&steps).expect("the order runs every node once"),
            steps,
            spaces,
            naive_bytes: naive_bytes(graph, self.options.alignment),
            value_count: narrow(graph.values().len()),
            placements,
            workspaces,
        }
    }
}

/// Returns every node with its operands and what they share.
fn steps(graph: &Graph, order: &[NodeId], liveness: &Liveness) -> Vec<PlanStep> {
    let mut merges = liveness.classes.merges().iter().peekable();
    let mut steps = Vec::with_capacity(order.len());
    for &id in order {
        let node = graph.node(id);
        let mut shares = Vec::new();
        // Merges are in execution order, as the steps are.
        while let Some(merge) = merges.next_if(|merge| merge.node == id) {
            shares.push(merge.share);
        }
        steps.push(PlanStep {
            node: id.into(),
            name: node.name().to_owned(),
            inputs: node.bytes_read().map(|read| read.map(u32::from)).collect(),
            outputs: node.outputs().iter().map(|output| output.map(u32::from)).collect(),
            shares,
        });
    }
    steps
}

/// Returns the bytes of all values in the arena, each rounded up to `alignment`.
fn naive_bytes(graph: &Graph, alignment: u64) -> Option<u64> {
    let alignment = Alignment::new(alignment).ok()?;
    graph
        .values()
        .iter()
        .filter(|value| value.is_planned())
        .try_fold(0_u64, |sum, value| sum.checked_add(alignment.round_up(value.bytes())?))
}

/// Returns every workspace of `graph` at its smallest size.
fn smallest_workspaces(graph: &Graph, order: &[NodeId]) -> Vec<ChosenWorkspace> {
    let mut chosen = Vec::new();
    for (step, &node) in order.iter().enumerate() {
        for (slot, workspace) in graph.node(node).effects().workspaces.iter().enumerate() {
            let sizes = workspace.choices.iter().map(|choice| choice.bytes).enumerate();
            let (choice, bytes) =
                sizes.min_by_key(|&(_, bytes)| bytes).expect("a workspace has a choice");
            chosen.push(ChosenWorkspace { node, slot, choice, bytes, step: Step::at(step) });
        }
    }
    chosen
}

/// Gives each workspace the cheapest size with which its step stays within `peak`.
fn enlarge_workspaces(
    graph: &Graph,
    alignment: Alignment,
    live: &[u64],
    peak: u64,
    chosen: &mut [ChosenWorkspace],
) {
    let rounded = |bytes| alignment.round_up(bytes).unwrap_or(u64::MAX);
    // A node's workspaces share what its step leaves free.
    let mut free: Vec<u64> = live.iter().map(|&live| peak.saturating_sub(live)).collect();
    for workspace in &*chosen {
        let free = &mut free[workspace.step.index()];
        *free = free.saturating_sub(rounded(workspace.bytes));
    }
    for workspace in chosen {
        let free = &mut free[workspace.step.index()];
        let room = free.saturating_add(rounded(workspace.bytes));
        let choices = &workspace_of(graph, workspace).choices;
        let cheapest = choices
            .iter()
            .enumerate()
            .filter(|(_, choice)| rounded(choice.bytes) <= room)
            .min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost).then(a.bytes.cmp(&b.bytes)));
        if let Some((choice, size)) = cheapest {
            *free = room - rounded(size.bytes);
            workspace.choice = choice;
            workspace.bytes = size.bytes;
        }
    }
}

/// Gives a workspace its next smaller size, and returns whether there is one.
fn shrink_workspace(graph: &Graph, workspace: &mut ChosenWorkspace) -> bool {
    let choices = &workspace_of(graph, workspace).choices;
    let smaller = choices
        .iter()
        .enumerate()
        .filter(|(_, choice)| choice.bytes < workspace.bytes)
        .max_by_key(|(_, choice)| choice.bytes);
    if let Some((choice, size)) = smaller {
        workspace.choice = choice;
        workspace.bytes = size.bytes;
    }
    smaller.is_some()
}

/// Returns what a node declares about a workspace.
fn workspace_of<'g>(graph: &'g Graph, chosen: &ChosenWorkspace) -> &'g Workspace {
    &graph.node(chosen.node).effects().workspaces[chosen.slot]
}
