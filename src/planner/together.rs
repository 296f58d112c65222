//! Plans of several graphs for one arena.

use alloc::{vec, vec::Vec};

use super::Planner;
use super::accepted::accepted;
use super::assemble::assemble;
use super::context::Context;
use super::joint_choice::candidates;
use super::least::least;
use super::pack::{Best, Placed, pack_problem};
use super::scope::scope;
use super::step_schedule::StepSchedule;
use crate::base::{Alignment, BufferId, Error, LiveRange, Result, SpaceId};
use crate::graph::{Graph, ValueKind};
use crate::liveness::Member;
use crate::pack::{Buffer, Part, Problem, Space, SpacePacking, Status, max_load};
use crate::plan::{InputMemory, OutputMemory, Plan, Search, SharedMember, SharedPlan, Together};

/// A graph with placed buffers.
struct Packed<'g> {
    graph: &'g Graph,
    schedule: StepSchedule<'g>,
    placed: Placed,
    search: Search,
}

impl Planner<'_> {
    /// Returns checked plans of several graphs that share one arena.
    ///
    /// Graphs that never run together need as much as the largest graph. A state's bytes are
    /// touched by no other graph, since states must survive the runs of other graphs. Graphs that
    /// run at the same time lie side by side. If the [capacity](Self::capacity) is too small the
    /// best plan is returned all the same, and [`SharedPlan::fits`] tells.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan), [`InvalidOption`](Error::InvalidOption) for several spaces, and
    /// [`PartOfModel`](Error::PartOfModel) for a part of a model.
    ///
    /// ```
    /// use arenaplan::plan::Together;
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    /// let layer = |bytes| {
    ///     let mut builder = Graph::builder("layer");
    ///     let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [bytes])?);
    ///     let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [bytes])?);
    ///     builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    ///     builder.add_output(y);
    ///     builder.build()
    /// };
    /// let (small, large) = (layer(64)?, layer(640)?);
    /// let planner = Planner::new();
    /// let apart = planner.plan_together(&[&small, &large], Together::Never)?;
    /// assert_eq!(apart.arena_bytes(), 1280);
    /// let at_once = planner.plan_together(&[&small, &large], Together::Concurrent)?;
    /// assert_eq!(at_once.arena_bytes(), 1408);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn plan_together(&self, graphs: &[&Graph], together: Together) -> Result<SharedPlan> {
        let nodes = graphs.iter().map(|graph| graph.nodes().len()).sum();
        accepted(&self.honored()?, nodes, |context| plan_together(context, graphs, together))
    }
}

/// Returns plans of several graphs that share one arena.
fn plan_together(
    context: &Context<'_>,
    graphs: &[&Graph],
    together: Together,
) -> Result<SharedPlan> {
    if context.memories.is_some() || graphs.iter().any(|graph| graph.spaces().len() > 1) {
        let reason = "graphs share one arena, not several spaces".into();
        return Err(Error::InvalidOption { option: "spaces", reason });
    }
    for graph in graphs {
        graph.covers().require_whole(graph.name())?;
    }
    let options = &context.options;
    if options.workers > 1 {
        let reason = "steps of graphs that share an arena run one at a time".into();
        return Err(Error::InvalidOption { option: "workers", reason });
    }
    if options.inputs == InputMemory::Caller || options.outputs == OutputMemory::Caller {
        let reason = "graphs that share an arena have their inputs and outputs in it".into();
        return Err(Error::InvalidOption { option: "outputs", reason });
    }
    let capacity = options.capacity;
    let unlimited = context.without_capacity();
    let packed = graphs.iter().map(|graph| packed_alone(&unlimited, graph));
    let mut packed = packed.collect::<Result<Vec<_>>>()?;
    let has_states = graphs
        .iter()
        .flat_map(|graph| graph.values())
        .any(|value| value.kind() == ValueKind::State && value.bytes() > 0);
    let lower_bound = match together {
        Together::Concurrent => bound_of_all(context, &packed)?,
        Together::Never if has_states && packed.len() > 1 => pack_in_turn(&unlimited, &mut packed)?,
        Together::Never => {
            packed.iter().map(|one| one.placed.packing.lower_bound()).max().unwrap_or(0)
        }
    };
    let mut members: Vec<SharedMember> = Vec::with_capacity(packed.len());
    for Packed { graph, schedule, placed, search } in packed {
        let mut plan = assemble(&unlimited, graph, &schedule, &placed);
        plan.search = Some(search);
        let base = match (together, members.last()) {
            (Together::Concurrent, Some(last)) => after(last, &plan, &placed)?,
            _ => 0,
        };
        members.push(SharedMember { base, plan });
    }
    let shared = SharedPlan { together, members, lower_bound, capacity };
    shared.check(graphs)?;
    Ok(shared)
}

/// Returns the placed buffers of a single graph.
fn packed_alone<'g>(context: &Context<'_>, graph: &'g Graph) -> Result<Packed<'g>> {
    let attempts = candidates(context, graph)?;
    let best = least(context, &attempts)?;
    let search = scope(context, &attempts, &best)?;
    let Best { attempt, placed } = best;
    Ok(Packed { graph, schedule: attempt.schedule.clone(), placed, search })
}

/// Returns a lower bound for graphs that may all be at any step at once.
///
/// Bytes that a graph never uses can be cut out of the graph's offsets, so that the graph alone
/// needs only its used bytes. Offsets stay aligned if all values ask for the same alignment;
/// otherwise the bound is the bytes live at once.
fn bound_of_all(context: &Context<'_>, packed: &[Packed<'_>]) -> Result<u64> {
    let mut sum = 0_u64;
    for one in packed {
        let mut buffers = one.placed.liveness.problem.buffers().iter();
        let alike = buffers.all(|buffer| buffer.alignment().bytes() == context.options.alignment);
        let least = if alike {
            one.placed.packing.lower_bound()
        } else {
            max_load(&one.placed.liveness.problem, SpaceId::new(0))?.0
        };
        sum = sum.saturating_add(least);
    }
    Ok(sum)
}

/// Packs graphs that run one after the other, with states that last through all runs, and returns
/// the lower bound.
fn pack_in_turn(context: &Context<'_>, packed: &mut [Packed<'_>]) -> Result<u64> {
    let horizons = packed.iter().map(|one| one.placed.liveness.problem.horizon().get().max(1));
    let mut starts = vec![0_u32];
    for horizon in horizons {
        let end = starts.last().and_then(|start| start.checked_add(horizon));
        starts.push(end.ok_or_else(|| Error::SizeOverflow { what: "all steps".into() })?);
    }
    let end = *starts.last().expect("there is a first start");
    let mut buffers = Vec::new();
    for (one, &start) in packed.iter().zip(&starts) {
        let classes = one.placed.liveness.classes.classes();
        let problem = &one.placed.liveness.problem;
        for (index, buffer) in problem.buffers().iter().enumerate() {
            let members = classes.get(index).map_or(&[][..], |class| &class.members);
            let is_state =
                |member: &Member| one.graph.value(member.value).kind() == ValueKind::State;
            let buffer = if members.iter().any(is_state) {
                moved(buffer, |_| Ok(LiveRange::new(0, end)?))?
            } else {
                moved(buffer, |live| {
                    Ok(LiveRange::new(live.start().get() + start, live.end().get() + start)?)
                })?
            };
            // The space of another graph may have another alignment.
            buffers.push(buffer.with_alignment(problem.alignment(BufferId::new(index))));
        }
    }
    let spaces = packed.iter().flat_map(|one| one.placed.liveness.problem.spaces());
    let space = spaces.cloned().reduce(|one, other| in_both(&one, &other)).into_iter().collect();
    let problem = Problem::new(buffers, space)?;
    let packing = pack_problem(context, &problem)?;
    let mut next = 0;
    for one in packed {
        let count = one.placed.packing.offsets.len();
        one.placed.packing.offsets.copy_from_slice(&packing.offsets[next..next + count]);
        next += count;
        let buffers = one.placed.liveness.problem.buffers().iter().zip(&one.placed.packing.offsets);
        let ends = buffers.filter(|(buffer, _)| buffer.bytes() > 0);
        let peak = ends.map(|(buffer, &offset)| offset + buffer.bytes()).max().unwrap_or(0);
        let SpacePacking { lower_bound, .. } = one.placed.packing.spaces[0];
        let capacity = one.placed.liveness.problem.spaces()[0].capacity();
        let status = Status::of(peak, lower_bound, capacity);
        one.placed.packing.spaces[0] = SpacePacking { peak, lower_bound, status };
    }
    Ok(packing.lower_bound())
}

/// Returns a space within the capacities and without the reserved bytes of two spaces. The
/// alignment is the smaller alignment, since buffers have alignments of their own.
fn in_both(one: &Space, other: &Space) -> Space {
    let alignment = one.alignment().min(other.alignment());
    let capacity = one.capacity().into_iter().chain(other.capacity()).min();
    let mut both = Space::new(one.name()).with_cost(one.cost()).with_alignment(alignment);
    for range in one.reserved().iter().chain(other.reserved()) {
        both = both.with_reserved(range.clone());
    }
    match capacity {
        Some(bytes) => both.with_capacity(bytes),
        None => both,
    }
}

/// Returns the start of `plan`'s arena behind another arena: a multiple of the alignments of all
/// placed buffers.
fn after(last: &SharedMember, plan: &Plan, placed: &Placed) -> Result<u64> {
    let overflow = || Error::SizeOverflow { what: "the shared arena".into() };
    let end = last.base.checked_add(last.plan.arena_bytes()).ok_or_else(overflow)?;
    let spaces = plan.spaces().iter().map(|space| space.alignment).max().unwrap_or(1);
    let buffers = placed.liveness.problem.buffers().iter().map(Buffer::alignment).max();
    Alignment::new(spaces)?
        .max(buffers.unwrap_or(Alignment::BYTE))
        .round_up(end)
        .ok_or_else(overflow)
}

/// Returns a buffer that is live at other steps.
fn moved(buffer: &Buffer, live: impl Fn(LiveRange) -> Result<LiveRange>) -> Result<Buffer> {
    let mut result = if let Some(range) = buffer.solid() {
        Buffer::new(buffer.bytes(), live(range)?)
    } else {
        let part = |(bytes, range)| Ok(Part { bytes, live: vec![live(range)?] });
        let parts = buffer.rectangles().map(part).collect::<Result<_>>()?;
        Buffer::with_parts(buffer.bytes(), parts)?
    };
    result = result.with_alignment(buffer.alignment()).with_space(buffer.space());
    Ok(match buffer.pin() {
        Some(pin) => result.with_pin(pin),
        None => result,
    })
}
