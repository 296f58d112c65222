//! Plans from files, with the strings and tables that C programs read.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arenaplan::base::{Alignment, MAX_BYTES, NodeId, ValueId, quoted};
use arenaplan::choose::declared;
use arenaplan::plan::{
    Effort, InputMemory, OutputMemory, Placement, PlanStep as CoreStep, SpacePlan, WorkspacePolicy,
};
use arenaplan::{Graph, Planner, Target};

use crate::costs::ProgramCosts;
use crate::error::{Code, Failure, Result};
use crate::problem::no_flags;
use crate::types::{
    EFFORT_FAST, EFFORT_MAX, NONE, PLAN_CALLER_INPUTS, PLAN_CALLER_OUTPUTS, PLAN_PARALLEL_SAFE,
    PLAN_PRESERVE_INPUTS, PlanInfo, PlanOptions, PlanSpace, PlanStep, PlanValue, Share, c_string,
    position,
};
use crate::watch::Watch;

/// Bytes of the largest file that is read if the caller sets no limit.
const DEFAULT_LIMIT: u64 = 1 << 30;

/// A plan: a place for every value, and one memory per space.
///
/// A plan never changes; any number of threads may use a plan at the same time.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) inner: Arc<Inner>,
}

/// A plan whose bytes are all inside the plan's spaces.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) plan: arenaplan::Plan,
    model: CString,
    digest: CString,
    target: CString,
    spaces: Vec<CString>,
    /// By placement.
    values: Vec<CString>,
    by_name: HashMap<CString, u32>,
    pub(crate) steps: Vec<Step>,
    /// The graph, if the plan was made with a graph.
    pub(crate) graph: Option<Graph>,
}

/// Step data besides operands.
#[derive(Debug)]
pub(crate) struct Step {
    name: CString,
    op: Option<CString>,
    nodes: Vec<u32>,
    shares: Vec<Share>,
    workspaces: usize,
}

/// Returns the limit that a caller's number stands for.
fn limit(bytes: u64) -> u64 {
    if bytes == 0 { DEFAULT_LIMIT } else { bytes.min(MAX_BYTES) }
}

/// Reads a file that has no more bytes than the limit.
pub(crate) fn read(path: &str, max_bytes: u64) -> Result<Vec<u8>> {
    let limit = limit(max_bytes);
    let mut text = Vec::new();
    let read = File::open(Path::new(path))
        .and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut text));
    read.map_err(|error| Failure::new(Code::FileUnreadable, format!("{}: {error}", quoted(path))))?;
    if u64::try_from(text.len()).is_ok_and(|bytes| bytes <= limit) {
        return Ok(text);
    }
    let reason = format!("{} has more bytes than the limit of {limit}", quoted(path));
    Err(Failure::new(Code::InvalidFile, reason))
}

impl Plan {
    /// Reads a plan from text.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        Self::new(arenaplan::Plan::from_json(text)?, None)
    }

    /// Plans the graph that text holds.
    pub(crate) fn make(
        graph: &[u8],
        options: PlanOptions,
        target: Option<&str>,
        costs: Option<&ProgramCosts<'_>>,
        watch: &Watch<'_>,
    ) -> Result<Self> {
        let known =
            PLAN_PARALLEL_SAFE | PLAN_PRESERVE_INPUTS | PLAN_CALLER_INPUTS | PLAN_CALLER_OUTPUTS;
        no_flags("plan", options.flags, known)?;
        let has = |flag: u32| options.flags & flag != 0;
        let graph = Graph::from_json(graph)?;
        let target = match target {
            None => Target::NODES,
            Some(name) => Target::known(name).ok_or_else(|| {
                let text = format!("there is no target {}", quoted(name));
                Failure::new(Code::NotFound, text)
            })?,
        };
        let effort = match options.effort {
            0 => Effort::Default,
            EFFORT_FAST => Effort::Fast,
            EFFORT_MAX => Effort::Max,
            other => return Err(Failure::argument(format!("effort {other} is not 0, 1 or 2"))),
        };
        let mut planner = Planner::new()
            .target(&target)
            .effort(effort)
            .workers(options.workers.max(1))
            .parallel_safe(has(PLAN_PARALLEL_SAFE))
            .preserve_inputs(has(PLAN_PRESERVE_INPUTS));
        if has(PLAN_CALLER_INPUTS) {
            planner = planner.inputs(InputMemory::Caller);
        }
        if has(PLAN_CALLER_OUTPUTS) {
            planner = planner.outputs(OutputMemory::Caller);
        }
        if options.alignment > 0 {
            planner = planner.alignment(options.alignment);
        }
        if options.capacity > 0 {
            planner = planner.capacity(options.capacity);
        }
        if options.max_slowdown > 0 {
            planner = planner.max_slowdown(Some(options.max_slowdown));
        }
        if let Some(costs) = costs {
            planner = planner.costs(costs);
        }
        let plan = watch.during(|mut budget| {
            if options.time_limit_ms > 0 {
                let limit = Duration::from_millis(options.time_limit_ms);
                budget.deadline = Instant::now().checked_add(limit);
            }
            planner.budget(budget).plan(&graph)
        })?;
        let graph = match costs {
            Some(costs) if plan.options().workspace == WorkspacePolicy::Auto => {
                let steps: Vec<Vec<NodeId>> =
                    plan.steps().iter().map(|step| step.nodes().collect()).collect();
                declared(&graph, costs, &steps, &plan.overlapped(), &plan.strips())?
            }
            _ => graph,
        };
        Self::new(plan, Some(&graph))
    }

    /// Verifies that all bytes in a plan are inside their spaces, and makes the strings. A graph
    /// gives the operators.
    pub(crate) fn new(plan: arenaplan::Plan, graph: Option<&Graph>) -> Result<Self> {
        let bounds = Bounds(&plan);
        for space in plan.spaces() {
            Alignment::new(space.alignment)?;
        }
        for placement in plan.placements() {
            let what = || format!("value {}", quoted(&placement.name));
            bounds.check(placement.space, placement.offset, placement.bytes, what)?;
        }
        for work in plan.workspaces() {
            let what = || format!("workspace {} of node {}", work.slot, work.node);
            bounds.check(work.space, work.offset, work.bytes, what)?;
        }
        let steps =
            plan.steps().iter().map(|step| bounds.step(step, graph)).collect::<Result<_>>()?;
        let values: Vec<CString> =
            plan.placements().iter().map(|placement| c_string(&placement.name)).collect();
        let mut by_name = HashMap::with_capacity(values.len());
        for (name, placement) in values.iter().zip(plan.placements()) {
            by_name.entry(name.clone()).or_insert(placement.value);
        }
        let inner = Inner {
            model: c_string(plan.model()),
            digest: c_string(plan.digest()),
            target: c_string(plan.target().name()),
            spaces: plan.spaces().iter().map(|space| c_string(&space.name)).collect(),
            values,
            by_name,
            steps,
            plan,
            graph: graph.cloned(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Verifies the plan against the graph that text holds.
    pub(crate) fn check(&self, graph: &[u8]) -> Result<()> {
        self.inner.plan.check(&Graph::from_json(graph)?)?;
        Ok(())
    }

    pub(crate) fn info(&self) -> Result<PlanInfo> {
        let (inner, plan) = (&*self.inner, &self.inner.plan);
        Ok(PlanInfo {
            size: 0,
            status: plan.status().into(),
            model: inner.model.as_ptr(),
            digest: inner.digest.as_ptr(),
            target: inner.target.as_ptr(),
            arena_bytes: plan.arena_bytes(),
            lower_bound: plan.lower_bound(),
            space_count: count(plan.spaces().len())?,
            arena_count: count(plan.arenas().len())?,
            value_count: count(plan.value_count())?,
            step_count: count(plan.steps().len())?,
        })
    }

    pub(crate) fn space(&self, index: u32) -> Result<PlanSpace> {
        let at = position(index);
        let (Some(space), Some(name)) =
            (self.inner.plan.spaces().get(at), self.inner.spaces.get(at))
        else {
            return Err(Failure::argument(format!("the plan has no space {index}")));
        };
        Ok(PlanSpace {
            size: 0,
            caller_value: space.caller.unwrap_or(NONE),
            name: name.as_ptr(),
            bytes: space.arena_bytes,
            alignment: space.alignment,
        })
    }

    /// Returns where a value is.
    pub(crate) fn place(&self, value: u32) -> Result<&Placement> {
        let plan = &self.inner.plan;
        if position(value) >= plan.value_count() {
            return Err(Failure::argument(format!("the plan has no value {value}")));
        }
        plan.placement(ValueId::from(value)).ok_or_else(|| {
            let text = format!("value {value} has no place in the plan: it is a constant, or is passed on inside of a step");
            Failure::new(Code::NotFound, text)
        })
    }

    pub(crate) fn value(&self, value: u32) -> Result<PlanValue> {
        let place = self.place(value)?;
        let key = |placement: &Placement| placement.value;
        let at = self.inner.plan.placements().binary_search_by_key(&value, key).unwrap_or_default();
        Ok(PlanValue {
            size: 0,
            space: place.space,
            name: self.inner.values.get(at).map_or(ptr::null(), |name| name.as_ptr()),
            offset: place.offset,
            bytes: place.bytes,
            lower: place.live[0],
            upper: place.live[1],
        })
    }

    pub(crate) fn find(&self, name: &CStr) -> Result<u32> {
        self.inner.by_name.get(name).copied().ok_or_else(|| {
            let text = format!("the plan has no value {}", quoted(&name.to_string_lossy()));
            Failure::new(Code::NotFound, text)
        })
    }

    pub(crate) fn step(&self, index: u32) -> Result<PlanStep> {
        let at = position(index);
        let (Some(row), Some(step)) = (self.inner.plan.steps().get(at), self.inner.steps.get(at))
        else {
            return Err(no_step(index));
        };
        Ok(PlanStep {
            size: 0,
            node_count: count(step.nodes.len())?,
            name: step.name.as_ptr(),
            nodes: step.nodes.as_ptr(),
            shares: step.shares.as_ptr(),
            share_count: count(step.shares.len())?,
            input_count: count(row.inputs.len())?,
            output_count: count(row.outputs.len())?,
            workspace_count: count(step.workspaces)?,
            op: step.op.as_ref().map_or(ptr::null(), |op| op.as_ptr()),
        })
    }
}

/// Returns the error that a plan has no such step.
pub(crate) fn no_step(index: u32) -> Failure {
    Failure::argument(format!("the plan has no step {index}"))
}

/// A plan's spaces, which contain all values.
struct Bounds<'a>(&'a arenaplan::Plan);

impl Bounds<'_> {
    /// Refuses bytes outside their space.
    fn check(&self, space: u32, offset: u64, bytes: u64, what: impl Fn() -> String) -> Result<()> {
        let arena = self.0.spaces().get(position(space)).map_or(0, |space| space.arena_bytes);
        let end = offset.checked_add(bytes);
        if end.is_some_and(|end| end <= arena && arena <= MAX_BYTES) {
            return Ok(());
        }
        let reason = format!("{} is not inside of space {space}, of {arena} bytes", what());
        Err(Failure::new(Code::InvalidFile, reason))
    }

    /// Refuses a step whose operands are not there.
    fn step(&self, step: &CoreStep, graph: Option<&Graph>) -> Result<Step> {
        let corrupt = |reason: String| {
            let text = format!("step {}: {reason}", quoted(&step.name));
            Failure::new(Code::InvalidFile, text)
        };
        for value in step.inputs.iter().chain(&step.outputs).flatten() {
            if position(*value) >= self.0.value_count() {
                return Err(corrupt(format!("the plan has no value {value}")));
            }
        }
        for value in step.outputs.iter().flatten() {
            if self.0.placement(ValueId::from(*value)).is_none() {
                return Err(corrupt(format!("output {value} has no place")));
            }
        }
        let mut shares = Vec::with_capacity(step.shares.len());
        for share in &step.shares {
            let there = position(share.input) < step.inputs.len()
                && position(share.output) < step.outputs.len();
            match share.rule.try_into() {
                Ok(rule) if there => {
                    shares.push(Share { input: share.input, output: share.output, rule });
                }
                _ => return Err(corrupt("a share names operands that are not there".into())),
            }
        }
        let nodes: Vec<u32> = step.fused.iter().copied().chain([step.node]).collect();
        let workspaces = self.0.workspaces_in(step).count();
        let op = graph.map(|graph| c_string(graph.node(NodeId::from(step.node)).op()));
        Ok(Step { name: c_string(&step.name), op, nodes, shares, workspaces })
    }
}

impl Step {
    pub(crate) fn shares(&self) -> &[Share] {
        &self.shares
    }
}

/// Returns a space's bytes as a size in memory.
pub(crate) fn bytes_of(space: &SpacePlan) -> Result<usize> {
    let too_large = || Failure::argument("the plan is for machines with more address space");
    usize::try_from(space.arena_bytes).map_err(|_| too_large())
}

/// Returns a count as a 32-bit number.
pub(crate) fn count(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| Failure::argument("the plan is too large to count"))
}
