//! Target rules: a plan assumes only capabilities of its runner.

use alloc::{borrow::ToOwned as _, format, string::String};

use crate::base::{Error, NodeId, Result, ValueId, quoted};
use crate::graph::Graph;
use crate::plan::{
    Granularity, InputMemory, OutputMemory, Plan, PlanStep, Provider, Share, ShareRule, Target,
    Technique, Techniques,
};

impl Plan {
    /// Returns whether `target` can run the plan, which may have been made for another target.
    ///
    /// Exporters call this method before writing a plan for a reader. Call [`check`](Self::check)
    /// first: this method trusts the sizes in the plan.
    ///
    /// # Errors
    ///
    /// [`Error::TargetMismatch`] for the first step or option that the target does not honor.
    ///
    /// ```
    /// use arenaplan::plan::WorkspacePolicy;
    /// use arenaplan::{DType, Graph, Node, Planner, Target, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("chain");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64])?);
    /// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [64])?);
    /// let z = builder.add_value(Value::new("z", ValueKind::Activation, DType::UINT8, [64])?);
    /// builder.add_node(Node::new("conv", "Conv").reads([x]).writes([y]));
    /// builder.add_node(Node::new("relu", "Relu").reads([y]).writes([z]).in_place(0, 0));
    /// builder.add_output(z);
    ///
    /// // Code in C places scratch memory by itself.
    /// let planner = Planner::new().workspace(WorkspacePolicy::None);
    /// let plan = planner.plan(&builder.build()?)?;
    /// assert!(plan.check_target(&Target::C).is_ok());
    /// let error = plan.check_target(&Target::TFLM).unwrap_err().to_string();
    /// assert!(error.contains("'tflm'") && error.contains("in place"), "{error}");
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn check_target(&self, target: &Target) -> Result<()> {
        self.covers.require_whole(&self.model)?;
        self.check_honored(target)
    }

    /// Checks that a runner can run the plan, for any part of a model.
    fn check_honored(&self, target: &Target) -> Result<()> {
        let refuse =
            |reason: String| Err(Error::TargetMismatch { target: quoted(target.name()), reason });
        let honors = |technique| target.techniques().contains(technique);
        if let Some(&(node, _)) = self.repeated().first().filter(|_| !honors(Technique::Duplicate))
        {
            return refuse(format!("node {node} runs in several steps ({})", Technique::Duplicate));
        }
        for step in &self.steps {
            let name = || quoted(&step.name);
            let is_one_of_several = !step.fused.is_empty() || step.continues;
            let is_strip = target.strip_axis().is_none() || step.strips.is_some();
            if is_one_of_several && !(is_strip && target.granularity() != Granularity::Node) {
                return refuse(format!("step {} runs several nodes as one", name()));
            }
            if step.strips.is_some() && target.granularity() != Granularity::Tile {
                return refuse(format!("step {} runs strip by strip", name()));
            }
            let axis = target.strip_axis().filter(|_| step.strips.is_some());
            if axis.is_some() && axis != self.target().strip_axis() {
                return refuse(format!("step {} makes strips for another runner", name()));
            }
            for share in &step.shares {
                let (technique, what) = match share.rule {
                    ShareRule::InPlace => (Technique::InPlace, "in place of"),
                    ShareRule::Overlap => (Technique::Overlap, "at a distance over"),
                    ShareRule::View if self.is_whole(step, *share) => {
                        (Technique::Views, "in the bytes of")
                    }
                    ShareRule::View => (Technique::Elision, "as a piece of, or around,"),
                };
                let is_early = target.early_writes() && !self.target().early_writes();
                if technique == Technique::Overlap && is_early {
                    let what = "is at a distance of its operand that suits another runner";
                    return refuse(format!("the result of {} {what}", name()));
                }
                if !honors(technique) {
                    let (input, output) = (share.input, share.output);
                    return refuse(format!(
                        "step {} has output {output} {what} input {input} ({technique})",
                        name()
                    ));
                }
            }
        }
        let unit = target.offset_unit();
        for space in &self.spaces {
            if !space.alignment.is_multiple_of(unit) {
                let (space, alignment) = (quoted(&space.name), space.alignment);
                return refuse(format!(
                    "space {space} is aligned to {alignment}, not to {unit} bytes"
                ));
            }
        }
        if !self.options.alignment.is_multiple_of(unit) {
            let alignment = self.options.alignment;
            return refuse(format!("offsets are aligned to {alignment}, not to {unit} bytes"));
        }
        if self.arenas().len() > 1 && !target.several_spaces() {
            return refuse(format!("values are in {} spaces, not in one", self.arenas().len()));
        }
        let brings = self.options.inputs == InputMemory::Caller
            || self.options.outputs == OutputMemory::Caller
            || !self.caller_buffers().is_empty();
        if brings && !target.caller_memory() {
            return refuse("inputs or outputs are in memory of the caller".into());
        }
        if !self.workspaces.is_empty() && target.scratch() == Provider::Runner {
            return refuse("workspaces are placed, and the target places its own".into());
        }
        Ok(())
    }

    /// Checks that the plan describes its target correctly and that the target can run the plan.
    pub(super) fn check_own_target(&self, graph: &Graph) -> Result<()> {
        let target = &self.target;
        let refuse = |reason: &str| {
            Err(Error::TargetMismatch { target: quoted(target.name()), reason: reason.to_owned() })
        };
        let described = |known: Target| {
            // Older plans, from before recomputation existed, describe the same runner without
            // recomputation.
            let before = known.techniques().without(Technique::Duplicate);
            known != *target && known.with_techniques(before) != *target
        };
        if Target::known(target.name()).is_some_and(described) {
            return refuse("the plan describes the target of this name in another way");
        }
        if !self.options.optimize.is_subset_of(target.techniques()) {
            return refuse(
                "the options of the plan have techniques that the target does not honor",
            );
        }
        let runs_in_order =
            |order: &mut dyn Iterator<Item = NodeId>| order.eq(graph.order().iter().copied());
        // A caller of the planner may choose the steps; a search may not.
        if !target.techniques().contains(Technique::Order)
            && self.search.is_some()
            && !runs_in_order(&mut self.order())
        {
            return refuse("nodes run in another order than the graph's");
        }
        self.check_honored(target)
    }

    /// Checks that the plan uses only techniques in its options, and no technique that the search
    /// skipped; and that the search skipped only techniques in the options.
    pub(super) fn check_techniques(&self, graph: &Graph) -> Result<()> {
        let refuse = |technique: Technique, what: &str| {
            let reason = format!("technique {technique} {what}");
            Err(Error::PlanMismatch { reason })
        };
        let all = self.options.optimize;
        let skipped = self.search.map_or(Techniques::NONE, |search| search.skipped);
        if let Some(technique) = skipped.minus(all).iter().next() {
            return refuse(technique, "was skipped, and the options do not have it");
        }
        if !self.repeated().is_empty() {
            let technique = Technique::Duplicate;
            if !all.contains(technique) {
                return refuse(technique, "is used, and the options do not have it");
            }
            if skipped.contains(technique) {
                return refuse(technique, "was skipped, and the plan uses it");
            }
        }
        for step in &self.steps {
            let fusion = [Technique::Fusion, Technique::Streaming];
            if !step.fused.is_empty() && fusion.into_iter().all(|one| skipped.contains(one)) {
                return refuse(Technique::Fusion, "was skipped, and the plan uses it");
            }
            for &share in step.shares.iter().filter(|share| !is_write_back(graph, step, share)) {
                let (technique, other) = match share.rule {
                    ShareRule::InPlace => (Technique::InPlace, None),
                    ShareRule::Overlap => (Technique::Overlap, None),
                    // A concatenation of a single value is a piece as large as the whole.
                    ShareRule::View if self.is_whole(step, share) => {
                        (Technique::Views, Some(Technique::Elision))
                    }
                    ShareRule::View => (Technique::Elision, None),
                };
                if !all.contains(technique) && !other.is_some_and(|other| all.contains(other)) {
                    return refuse(technique, "is used, and the options do not have it");
                }
                if skipped.contains(technique) {
                    return refuse(technique, "was skipped, and the plan uses it");
                }
            }
        }
        Ok(())
    }

    /// Returns whether a share's two values have the same size.
    fn is_whole(&self, step: &PlanStep, share: Share) -> bool {
        let bytes = |operands: &[Option<u32>], position: u32| {
            let value = operands.get(usize::try_from(position).ok()?).copied().flatten()?;
            self.placement(ValueId::from(value)).map(|placement| placement.bytes)
        };
        let sizes = [bytes(&step.inputs, share.input), bytes(&step.outputs, share.output)];
        sizes[0].is_some() && sizes[0] == sizes[1]
    }
}

/// Returns whether a value takes the bytes of the value it replaces in the graph. Every plan does
/// so, without a technique.
fn is_write_back(graph: &Graph, step: &PlanStep, share: &Share) -> bool {
    let at = |operands: &[Option<u32>], position: u32| {
        let operand = operands.get(usize::try_from(position).ok()?).copied().flatten()?;
        Some(ValueId::from(operand))
    };
    let (input, output) = (at(&step.inputs, share.input), at(&step.outputs, share.output));
    let mut pairs = graph.write_backs().iter();
    pairs.any(|pair| (Some(pair.into), Some(pair.value)) == (input, output))
}
