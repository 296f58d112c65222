//! Plan profile: live values and bytes per step, for reports.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use core::ops::Range;

use hashbrown::HashMap;

use crate::base::{Alignment, NodeId, SpaceId, Step};
use crate::plan::{Placement, Plan};

/// The step at which most bytes in a space are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peak {
    /// First such step.
    pub step: Step,
    /// Bytes that are live then, each size rounded up to the plan's alignment.
    pub live_bytes: u64,
}

impl Plan {
    /// Returns how many bytes of `space` hold something that is needed, at every step.
    ///
    /// Bytes that several values share count once; sizes count rounded up to the plan's
    /// alignment.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Planner, SpaceId, Value, ValueKind};
    /// let mut builder = Graph::builder("g");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64])?);
    /// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [128])?);
    /// builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    /// builder.add_output(y);
    /// let plan = Planner::new().plan(&builder.build()?)?;
    /// assert_eq!(plan.live_bytes(SpaceId::new(0)), [192]);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn live_bytes(&self, space: SpaceId) -> Vec<u64> {
        let steps = self.steps.len().max(1);
        let mut change = vec![0_i128; steps + 1];
        for group in self.sharing_groups(space) {
            let mut events: Vec<(u32, bool, u64, u64)> = Vec::with_capacity(2 * group.len());
            for placement in group {
                let Range { start, end } = self.padded_span(placement);
                events.push((placement.live[0], true, start, end));
                events.push((placement.live[1], false, start, end));
            }
            // Deaths sort before births, so that a step counts only its live values.
            events.sort_unstable();
            let mut spans: BTreeMap<(u64, u64), usize> = BTreeMap::new();
            let mut before = 0;
            for (step, born, start, end) in events {
                let count = spans.entry((start, end)).or_default();
                if born {
                    *count += 1;
                } else {
                    *count -= 1;
                    if *count == 0 {
                        spans.remove(&(start, end));
                    }
                }
                let now = union_length(spans.keys().copied());
                change[Step::new(step).index().min(steps)] += i128::from(now) - i128::from(before);
                before = now;
            }
        }
        for workspace in self.workspaces.iter().filter(|work| SpaceId::from(work.space) == space) {
            let node = NodeId::from(workspace.node).index();
            if let Some(step) = self.step_of.get(node).map(|&step| Step::new(step).index()) {
                change[step] += i128::from(self.padded(workspace.bytes));
                change[step + 1] -= i128::from(self.padded(workspace.bytes));
            }
        }
        let mut live = 0;
        change
            .into_iter()
            .take(steps)
            .map(|change| {
                live += change;
                u64::try_from(live).unwrap_or(0)
            })
            .collect()
    }

    /// Returns the step at which most bytes in `space` are live.
    pub fn peak(&self, space: SpaceId) -> Peak {
        let mut peak = Peak { step: Step::new(0), live_bytes: 0 };
        for (step, live_bytes) in self.live_bytes(space).into_iter().enumerate() {
            if live_bytes > peak.live_bytes {
                peak = Peak { step: Step::at(step), live_bytes };
            }
        }
        peak
    }

    /// Returns the values that are live at `step`, by offset.
    pub fn live_at(&self, step: Step) -> Vec<&Placement> {
        let is_live =
            |placement: &&Placement| (placement.live[0]..placement.live[1]).contains(&step.get());
        let mut live: Vec<_> = self.placements.iter().filter(is_live).collect();
        live.sort_unstable_by_key(|placement| (placement.space, placement.offset, placement.value));
        live
    }

    /// Returns the value's byte range, rounded outward to the alignment.
    pub(crate) fn padded_span(&self, placement: &Placement) -> Range<u64> {
        // Pieces of other values need not be aligned.
        let start = placement.offset - placement.offset % self.options.alignment.max(1);
        start..start + self.padded(placement.offset - start + placement.bytes)
    }

    /// Returns the values of a space in groups that may share bytes at one step.
    pub(crate) fn sharing_groups(&self, space: SpaceId) -> Vec<Vec<&Placement>> {
        let mut groups: Vec<Vec<&Placement>> = Vec::new();
        let mut group_of = BTreeMap::new();
        let in_space =
            |placement: &&Placement| SpaceId::from(placement.space) == space && placement.bytes > 0;
        let mut joined_to: HashMap<u32, u32> = HashMap::new();
        for step in &self.steps {
            for share in &step.shares {
                let operand = |operands: &[Option<u32>], position: u32| {
                    operands.get(usize::try_from(position).ok()?).copied().flatten()
                };
                if let (Some(input), Some(output)) =
                    (operand(&step.inputs, share.input), operand(&step.outputs, share.output))
                {
                    let [input, output] = [input, output].map(|value| root(&mut joined_to, value));
                    if input != output {
                        joined_to.insert(input, output);
                    }
                }
            }
        }
        for placement in self.placements.iter().filter(in_space) {
            let root = root(&mut joined_to, placement.value);
            let group = *group_of.entry(root).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(placement);
        }
        groups
    }

    /// Returns a size rounded up to the plan's alignment.
    fn padded(&self, bytes: u64) -> u64 {
        let alignment = Alignment::new(self.options.alignment).unwrap_or_default();
        alignment.round_up(bytes).unwrap_or(bytes)
    }
}

/// Returns the representative of the values that `value` is joined to.
fn root(joined_to: &mut HashMap<u32, u32>, mut value: u32) -> u32 {
    while let Some(&next) = joined_to.get(&value) {
        // Path compression: the next walk has half as far to go.
        if let Some(&further) = joined_to.get(&next) {
            joined_to.insert(value, further);
        }
        value = next;
    }
    value
}

/// Returns the byte count in the union over `spans`, which ascend.
fn union_length(spans: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut length, mut at) = (0, 0);
    for (start, end) in spans {
        let start = start.max(at);
        if end > start {
            length += end - start;
            at = end;
        }
    }
    length
}
