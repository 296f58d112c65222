//! Ways to run a plan's step: live bytes during the step, and time.
//!
//! A step can have other scratch memory, an output beside instead of over an input, or can be taken
//! apart: node by node, or into two parts, the first of which makes a narrow value.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};

use super::estimate::{fastest_within, scratch_by_node};
use super::known::padded;
use super::{KnownCosts, StepForm};
use crate::base::{Alignment, NodeId, SpaceId, ValueId};
use crate::choose::Way;
use crate::graph::{Graph, Node};
use crate::plan::{Plan, PlanStep, ShareRule};

/// A way to run a plan's step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepWay {
    /// Live at the step.
    pub(crate) bytes: u64,
    pub(crate) time: u64,
    /// The steps that replace the step, if taken apart.
    pub(crate) parts: Vec<Vec<NodeId>>,
    /// Whether the output overlaps an input at a distance.
    pub(crate) staged: bool,
}

impl StepWay {
    fn whole(bytes: u64, time: u64, staged: bool) -> Self {
        Self { bytes, time, parts: Vec::new(), staged }
    }
}

/// A step and the ways to run the step: ascending bytes, descending time.
#[derive(Clone, Debug)]
pub(crate) struct StepWays {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) ways: Vec<StepWay>,
}

impl StepWays {
    /// Returns the fastest way that needs at most so many bytes, or the smallest way.
    pub(crate) fn fastest(&self, room: u64) -> &StepWay {
        &self.ways[self.ways.partition_point(|way| way.bytes <= room).saturating_sub(1)]
    }
}

/// A step's present way.
struct Present<'a> {
    nodes: &'a [NodeId],
    /// Live bytes without the step's scratch memory.
    held: u64,
    scratch: u64,
    time: u64,
    /// Bytes that the output shares with an input at a distance; `None` without such an overlap.
    overlap: Option<u64>,
    /// Nodes that also run in other steps. With such nodes, the step cannot run node by node.
    repeated: BTreeSet<NodeId>,
}

/// Returns all steps of `plan` with the ways to run them; `times` has the steps' times.
pub(crate) fn step_ways(
    graph: &Graph,
    plan: &Plan,
    times: &[u64],
    alignment: Alignment,
    costs: &KnownCosts<'_>,
) -> Vec<StepWays> {
    let mut live: Vec<u64> = Vec::new();
    for space in 0..plan.arenas().len() {
        let own = plan.live_bytes(SpaceId::new(space));
        live.resize(own.len().max(live.len()), 0);
        live.iter_mut().zip(own).for_each(|(sum, bytes)| *sum = sum.saturating_add(bytes));
    }
    let scratch = scratch_by_node(plan, alignment);
    let repeated: BTreeSet<NodeId> = plan.repeated().into_iter().map(|(node, _)| node).collect();
    let finder = Finder { graph, alignment, costs };
    let mut found = Vec::with_capacity(plan.steps().len());
    for ((step, &time), &held) in plan.steps().iter().zip(times).zip(&live) {
        let nodes: Vec<NodeId> = step.nodes().collect();
        let overlap = step.is_overlapped().then(|| overlapping_bytes(plan, step));
        let mut ways = vec![StepWay::whole(held, time, overlap.is_some())];
        if step.strips.is_none() && time > 0 {
            let own = scratch.get(&step.node).copied().unwrap_or(0);
            let present = Present {
                nodes: &nodes,
                held: held.saturating_sub(own),
                scratch: own,
                time,
                overlap,
                repeated: nodes.iter().copied().filter(|node| repeated.contains(node)).collect(),
            };
            ways.extend(finder.ways(&present));
        }
        found.push(StepWays { ways: best_of(ways), nodes });
    }
    found
}

/// Returns the ways not beaten by any other way; of equal ways the first, which changes least.
fn best_of(mut ways: Vec<StepWay>) -> Vec<StepWay> {
    ways.sort_by_key(|way| (way.bytes, way.time));
    let mut least = u64::MAX;
    ways.retain(|way| {
        let is_faster = way.time < least || least == u64::MAX;
        least = least.min(way.time);
        is_faster
    });
    ways
}

/// Returns the bytes that a step's output shares with an input at a distance.
fn overlapping_bytes(plan: &Plan, step: &PlanStep) -> u64 {
    let place = |operands: &[Option<u32>], position: u32| {
        let value = operands.get(usize::try_from(position).ok()?).copied().flatten()?;
        let placed = plan.placement(ValueId::from(value))?;
        Some((placed.offset, placed.offset.saturating_add(placed.bytes)))
    };
    let overlaps = step.shares.iter().filter(|share| share.rule == ShareRule::Overlap);
    let common = overlaps.filter_map(|share| {
        let a = place(&step.inputs, share.input)?;
        let b = place(&step.outputs, share.output)?;
        Some(a.1.min(b.1).saturating_sub(a.0.max(b.0)))
    });
    common.fold(0, u64::saturating_add)
}

/// Finds ways to run steps.
struct Finder<'a, 'c> {
    graph: &'a Graph,
    alignment: Alignment,
    costs: &'a KnownCosts<'c>,
}

impl Finder<'_, '_> {
    /// Returns the ways to run a step with other scratch memory or in parts.
    fn ways(&self, present: &Present<'_>) -> Vec<StepWay> {
        let Present { nodes, held, time, overlap, .. } = *present;
        let staged = overlap.is_some();
        let form = if staged { StepForm::Staged } else { StepForm::Whole };
        let declared = self.costs.ways(nodes, form, self.alignment);
        // The plan's estimate knows more: copies avoided by sharing.
        let own = fastest_within(&declared, present.scratch);
        let known = |other: u64| time.saturating_add(other).saturating_sub(own);
        let beside = |extra: u64, staged: bool| {
            move |way: &Way| {
                let bytes = held.saturating_add(extra).saturating_add(way.bytes);
                StepWay::whole(bytes, known(way.time), staged)
            }
        };
        let mut ways: Vec<StepWay> = declared.iter().map(beside(0, staged)).collect();
        let shared = overlap.unwrap_or(0);
        if staged {
            let whole = self.costs.ways(nodes, StepForm::Whole, self.alignment);
            ways.extend(whole.iter().map(beside(shared, false)));
        }
        let held = held.saturating_add(shared);
        if nodes.len() > 1 && present.repeated.is_empty() {
            let parts: Vec<Vec<NodeId>> = nodes.iter().map(|&node| vec![node]).collect();
            ways.extend(self.apart(nodes).into_iter().map(|way| StepWay {
                bytes: held.saturating_add(way.bytes),
                time: way.time,
                parts: parts.clone(),
                staged: false,
            }));
        }
        for (parts, bytes) in self.halves(nodes, &present.repeated) {
            let halves: Vec<Vec<Way>> = parts
                .iter()
                .map(|part| self.costs.ways(part, StepForm::Whole, self.alignment))
                .collect();
            ways.extend(in_turn(&halves).into_iter().map(|way| StepWay {
                bytes: held.saturating_add(bytes).saturating_add(way.bytes),
                time: way.time,
                parts: parts.clone(),
                staged: false,
            }));
        }
        ways
    }

    /// Returns the ways to run nodes one by one: bytes besides the live bytes, and time.
    fn apart(&self, nodes: &[NodeId]) -> Vec<Way> {
        let inner = self.inner_bytes(nodes);
        let member = |(&node, &held): (&NodeId, &u64)| {
            if !self.graph.node(node).effects().views.is_empty() {
                // Such a node may do nothing: the results show other values.
                return vec![Way { bytes: held, time: 0 }];
            }
            let mut ways = self.costs.ways(&[node], StepForm::Whole, self.alignment);
            for way in &mut ways {
                way.bytes = way.bytes.saturating_add(held);
            }
            ways
        };
        let members: Vec<Vec<Way>> = nodes.iter().zip(&inner).map(member).collect();
        in_turn(&members)
    }

    /// Returns the bytes of a group's inner values that are live at each node.
    fn inner_bytes(&self, nodes: &[NodeId]) -> Vec<u64> {
        let mut last: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (at, &node) in nodes.iter().enumerate() {
            last.extend(self.graph.node(node).inputs().iter().flatten().map(|&value| (value, at)));
        }
        let mut live: BTreeMap<ValueId, u64> = BTreeMap::new();
        let mut found = Vec::with_capacity(nodes.len());
        for (at, &id) in nodes.iter().enumerate() {
            let node = self.graph.node(id);
            let made: Vec<ValueId> = node.produces().map(|(_, value)| value).collect();
            if Some(&id) != nodes.last() {
                for &value in &made {
                    let size = padded(self.graph.value(value).bytes(), self.alignment);
                    let takes = taken(node).into_iter().find(|operand| {
                        live.get(operand) == Some(&size) && last.get(operand) == Some(&at)
                    });
                    if let Some(operand) = takes {
                        live.remove(&operand);
                    }
                    live.insert(value, size);
                }
            }
            found.push(live.values().fold(0, |sum, &size| u64::saturating_add(sum, size)));
            live.retain(|value, _| last.get(value).is_some_and(|&end| end > at));
        }
        found
    }

    /// Returns a step as two steps, the first of which makes a narrow value for the second, and the
    /// value's bytes. The narrow value has fewer bytes than an operand inside the step, as in a
    /// quantized model.
    fn halves(
        &self,
        nodes: &[NodeId],
        repeated: &BTreeSet<NodeId>,
    ) -> Vec<(Vec<Vec<NodeId>>, u64)> {
        let graph = self.graph;
        let bytes = |value: ValueId| graph.value(value).bytes();
        let made: BTreeMap<ValueId, NodeId> = nodes
            .iter()
            .flat_map(|&node| graph.node(node).produces().map(move |(_, value)| (value, node)))
            .collect();
        let makers = |node: NodeId| {
            let read = graph.node(node).inputs().iter().flatten();
            read.filter_map(|value| made.get(value).copied())
        };
        let mut found = Vec::new();
        for &last in nodes.iter().take(nodes.len().saturating_sub(1)) {
            let mut outputs = graph.node(last).outputs().iter();
            let (Some(&Some(value)), None) = (outputs.next(), outputs.next()) else { continue };
            let mut read = graph.node(last).inputs().iter().flatten();
            let is_narrow =
                read.any(|operand| made.contains_key(operand) && bytes(*operand) > bytes(value));
            if !is_narrow || repeated.contains(&last) {
                continue;
            }
            let mut first = BTreeSet::from([last]);
            for &node in nodes.iter().rev() {
                if first.contains(&node) {
                    first.extend(makers(node));
                }
            }
            let (before, behind): (Vec<NodeId>, Vec<NodeId>) =
                nodes.iter().partition(|node| first.contains(node));
            let crossing: BTreeSet<NodeId> = behind
                .iter()
                .flat_map(|&node| makers(node))
                .filter(|id| first.contains(id))
                .collect();
            if crossing == BTreeSet::from([last]) {
                found.push((vec![before, behind], padded(bytes(value), self.alignment)));
            }
        }
        found
    }
}

/// Returns the operands that a node may take over or show.
fn taken(node: &Node) -> BTreeSet<ValueId> {
    let effects = node.effects();
    let positions = effects.in_place.iter().map(|pair| pair.input);
    let positions = positions.chain(effects.views.iter().map(|view| view.input));
    positions.filter_map(|position| node.input(position)).collect()
}

/// Returns the ways to run steps one after the other: the most bytes of a step, and the total time.
fn in_turn(steps: &[Vec<Way>]) -> Vec<Way> {
    let smallest = |ways: &Vec<Way>| ways.iter().map(|way| way.bytes).min().unwrap_or(0);
    let least = steps.iter().map(smallest).max().unwrap_or(0);
    let levels: BTreeSet<u64> =
        steps.iter().flatten().map(|way| way.bytes).filter(|&bytes| bytes >= least).collect();
    let time = |level: u64| {
        let fastest = steps.iter().map(|ways| fastest_within(ways, level));
        fastest.fold(0, u64::saturating_add)
    };
    levels.into_iter().map(|bytes| Way { bytes, time: time(bytes) }).collect()
}
