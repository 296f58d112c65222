//! The context of a stage: the target, the resolved options, the memories and the limits.
//!
//! A stage is a function of a context and the results of earlier stages. For a comparison with
//! other options, a stage makes another context.

use crate::base::{Alignment, Instant, NodeId, Result};
use crate::choose::{Costs, Memories};
use crate::graph::{Graph, Window};
use crate::liveness::LivenessOptions;
use crate::pack::{Budget, Progress, Stage};
use crate::plan::{PlanOptions, Provider, Strips, Target, Technique, Techniques, WorkspacePolicy};

/// Graphs with more nodes have no outputs that overlap inputs.
pub(super) const MOST_NODES_TO_OVERLAP: usize = 20_000;

/// For graphs with at most so many nodes, all schedules are packed.
pub(super) const MOST_NODES_TO_SHARE_LESS: usize = 24;

/// All facts that the stages know beside the graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) target: &'a Target,
    /// Every option is set and honored by the target.
    pub(super) options: PlanOptions,
    pub(super) memories: Option<&'a Memories>,
    pub(super) budget: Budget<'a>,
    /// Bytes up to which workspaces may raise the peak.
    pub(super) room: u64,
    /// The nodes whose outputs may overlap inputs; `None` if all may.
    pub(super) overlapping: Option<&'a [NodeId]>,
    /// The time of each node, if the caller knows the times.
    pub(super) node_times: Option<&'a [u64]>,
    /// The step costs, if the runner states costs.
    pub(super) costs: Option<&'a dyn Costs>,
    /// The steps that run strip by strip, by last node.
    pub(super) strips: &'a [(NodeId, Strips)],
}

impl Context<'_> {
    /// Returns the context with other techniques.
    pub(super) fn with_techniques(&self, optimize: Techniques) -> Self {
        Self { options: PlanOptions { optimize, ..self.options }, ..*self }
    }

    /// Returns the context in which scratch memory is placed.
    pub(super) fn with_workspaces(&self) -> Self {
        let workspace = WorkspacePolicy::Auto;
        Self { options: PlanOptions { workspace, ..self.options }, ..*self }
    }

    /// Returns the context without a capacity.
    pub(super) fn without_capacity(&self) -> Self {
        Self { options: PlanOptions { capacity: None, ..self.options }, ..*self }
    }

    /// Returns the context without memories.
    pub(super) fn without_memories(&self) -> Self {
        Self { memories: None, ..*self }
    }

    /// Returns the rules for values that share bytes.
    pub(super) fn liveness_options(
        &self,
        same_size: bool,
        elision: bool,
    ) -> Result<LivenessOptions> {
        let techniques = self.options.optimize;
        Ok(LivenessOptions {
            alignment: Alignment::new(self.options.alignment)?,
            views: techniques.contains(Technique::Views),
            elision: elision && techniques.contains(Technique::Elision),
            in_place: techniques.contains(Technique::InPlace),
            same_size,
            inputs: self.options.inputs,
            outputs: self.options.outputs,
            parallel_safe: self.options.parallel_safe,
            preserve_inputs: self.options.preserve_inputs,
            early_writes: self.target.early_writes(),
            capacity: self.options.capacity,
        })
    }

    /// Returns the longest permitted time, if the fastest plan takes `quickest`.
    pub(super) fn slowest(&self, quickest: u64) -> u64 {
        let Some(thousandths) = self.options.max_slowdown else { return u64::MAX };
        let time = u128::from(quickest) * u128::from(thousandths) / 1000;
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Returns whether workspace sizes are chosen.
    pub(super) fn has_workspaces(&self) -> bool {
        self.options.workspace == WorkspacePolicy::Auto
    }

    /// Returns whether outputs may overlap inputs.
    ///
    /// Not if nodes may run in several orders: an input dies in one order only.
    pub(super) fn overlaps_inputs(&self) -> bool {
        self.options.optimize.contains(Technique::Overlap) && !self.options.parallel_safe
    }

    /// Returns whether outputs of steps in strips may overlap inputs: not if kernels have scratch
    /// memory, since calls of several nodes may then be one call.
    pub(super) fn overlaps_in_strips(&self) -> bool {
        self.overlaps_inputs() && self.target.scratch() == Provider::Nobody
    }

    /// Returns whether the runner makes rows strip by strip with a node's windows.
    pub(super) fn makes_rows(&self, windows: &[Window]) -> bool {
        self.target.strip_axis().is_none_or(|axis| {
            windows.iter().all(|window| (window.axis, window.scale) == (axis, 1))
        })
    }

    /// Returns whether the output of `node` can overlap an input. With workspaces, the bytes
    /// in which the node stages its output have to be known.
    pub(super) fn can_overlap(&self, graph: &Graph, node: NodeId) -> bool {
        let is_counted = !self.has_workspaces() || graph.node(node).effects().staging.is_some();
        is_counted && !graph.overlaps(node, false).is_empty()
    }

    /// Returns the limits for one packing. After the deadline, first fit still places every buffer,
    /// and takes less time than the stages before.
    pub(super) fn packing_budget(&self) -> Budget<'_> {
        let is_late = self.budget.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut budget = self.budget;
        if is_late {
            (budget.deadline, budget.nodes) = (None, Some(0));
        }
        budget
    }

    /// Reports progress to the listener, if any.
    pub(super) fn tell(&self, stage: Stage, peak: u64, lower_bound: u64) {
        if let Some(tell) = self.budget.progress {
            tell(Progress::of_choice(stage, peak, lower_bound));
        }
    }
}
