//! Start sequences for a search: some values are retained across a separator, and the others are
//! made again when needed.

use alloc::{vec, vec::Vec};

use super::narrow_ids::{NONE, at, narrow};
use super::separator::Separator;
use super::sequence_model::SequenceModel;

/// A sequence that is being made.
struct SequenceBuilder<'a> {
    model: &'a SequenceModel,
    sequence: Vec<u32>,
    /// For each value: whether the value can be read.
    is_there: Vec<bool>,
    ran: Vec<bool>,
}

impl<'a> SequenceBuilder<'a> {
    fn new(model: &'a SequenceModel) -> Self {
        let (values, nodes) = (model.bytes.len(), model.nodes.len());
        let is_there = (0..values).map(|value| model.producer[value] == NONE).collect();
        Self { model, sequence: Vec::with_capacity(nodes), is_there, ran: vec![false; nodes] }
    }

    fn run(&mut self, node: u32) {
        self.sequence.push(node);
        self.ran[at(node)] = true;
        for &value in &self.model.nodes[at(node)].writes {
            self.is_there[at(value)] = true;
        }
    }

    /// Returns the node that makes a value again: the node that copies the value in, if the value
    /// was copied out.
    fn maker(&self, value: u32) -> u32 {
        let nodes = self.model.paging.as_ref().and_then(|paging| paging.nodes_of(value));
        match nodes {
            Some((out, back)) if self.ran[at(out)] => back,
            _ => self.model.producer[at(value)],
        }
    }

    /// Runs the producers of missing values, and of missing operands before.
    fn ensure(&mut self, values: &[u32]) {
        let mut pending: Vec<u32> = values.iter().rev().copied().collect();
        while let Some(&value) = pending.last() {
            let producer = self.maker(value);
            if self.is_there[at(value)] {
                pending.pop();
                continue;
            }
            let reads = &self.model.nodes[at(producer)].reads;
            let missing = reads.iter().copied().filter(|&read| !self.is_there[at(read)]);
            let before = pending.len();
            pending.extend(missing);
            if pending.len() == before {
                pending.pop();
                self.run(producer);
            }
        }
    }
}

/// Returns the sequence that runs `order`, and after the separator makes again the needed values
/// that are not retained.
pub(super) fn rebuilt(
    model: &SequenceModel,
    order: &[u32],
    separator: &Separator,
    retained: &[bool],
) -> Vec<u32> {
    rebuilt_with_copies(model, order, separator, retained, &[])
}

/// Returns the sequence that runs `order`, copies the values `copied` to the slow memory after
/// their last reader before the separator, and after the separator makes again the needed values
/// that are not retained.
pub(super) fn rebuilt_with_copies(
    model: &SequenceModel,
    order: &[u32],
    separator: &Separator,
    retained: &[bool],
    copied: &[u32],
) -> Vec<u32> {
    let start = order.iter().position(|&node| node == separator.node).unwrap_or(0);
    let mut builder = SequenceBuilder::new(model);
    let leaving = leaving(model, &order[..start], copied);
    let mut is_copied = vec![false; model.bytes.len()];
    for &value in copied {
        is_copied[at(value)] = true;
    }
    for (&node, leaving) in order[..start].iter().zip(&leaving) {
        builder.run(node);
        for &out in leaving {
            builder.run(out);
        }
    }
    for value in 0..model.bytes.len() {
        let producer = model.producer[value];
        if producer == NONE || !builder.ran[at(producer)] {
            continue;
        }
        let root = model.root(narrow(value));
        let is_free = model.bytes[at(root)] == 0 || model.kept[value];
        let is_retained = (retained[value] || retained[at(root)]) && !is_copied[at(root)];
        let stays = is_retained || is_free;
        builder.is_there[value] = stays || !model.nodes[at(producer)].is_pure;
    }
    for &node in &order[start..] {
        builder.ensure(&model.nodes[at(node)].reads);
        builder.run(node);
    }
    repaired(model, &builder.sequence)
}

/// Returns for each sequence position the nodes that copy values out behind the position: values
/// whose bytes nothing before the end of the sequence reads later.
fn leaving(model: &SequenceModel, sequence: &[u32], copied: &[u32]) -> Vec<Vec<u32>> {
    let mut leaving = vec![Vec::new(); sequence.len()];
    if let Some(paging) = model.paging.as_ref().filter(|_| !copied.is_empty()) {
        let mut last = vec![NONE; model.bytes.len()];
        for (position, &node) in sequence.iter().enumerate() {
            let facts = &model.nodes[at(node)];
            for &value in facts.reads.iter().chain(&facts.writes) {
                last[at(model.root(value))] = narrow(position);
            }
        }
        for &value in copied.iter().filter(|&&value| last[at(value)] != NONE) {
            let out = paging.nodes_of(value).map(|(out, _)| out);
            leaving[at(last[at(value)])].extend(out);
        }
    }
    leaving
}

/// Returns the values that cross the boundaries between `segments` parts of the order before a
/// separator (Chen et al. 2016), with equally many bytes per part.
pub(super) fn chen(
    model: &SequenceModel,
    order: &[u32],
    separator: &Separator,
    segments: usize,
) -> Vec<bool> {
    let end = order.iter().position(|&node| node == separator.node).unwrap_or(0);
    let total: u64 = order[..end].iter().map(|&node| model.made_by(node)).sum();
    let total = total.max(1);
    // For each value: the last position before the separator that reads the value.
    let mut last = vec![0; model.bytes.len()];
    for (position, &node) in order[..end].iter().enumerate() {
        for &read in &model.nodes[at(node)].reads {
            last[at(model.root(read))] = position;
        }
    }
    let mut retained = vec![false; model.bytes.len()];
    let (mut passed, mut cut) = (0_u64, 1_u64);
    let segments = u64::try_from(segments.max(1)).unwrap_or(1);
    let mut live: Vec<u32> = Vec::new();
    for (position, node) in order[..end].iter().enumerate() {
        passed += model.made_by(*node);
        live.extend(&model.nodes[at(*node)].writes);
        if u128::from(passed) * u128::from(segments) >= u128::from(total) * u128::from(cut) {
            while u128::from(passed) * u128::from(segments) >= u128::from(total) * u128::from(cut) {
                cut += 1;
            }
            live.retain(|&value| last[at(value)] > position);
            for &value in &live {
                retained[at(value)] = true;
            }
        }
    }
    // The last segment is used at once.
    let first = order[..end].len() - order[..end].len() / usize::try_from(segments).unwrap_or(1);
    for node in &order[first.min(end)..end] {
        for &value in &model.nodes[at(*node)].writes {
            retained[at(value)] = true;
        }
    }
    retained
}

/// Returns the values that MXNet's mirror retains: the results of nodes that compute more than they
/// move. Nodes that cost only their moved bytes run again.
pub(super) fn mirror(model: &SequenceModel) -> Vec<bool> {
    let mut retained = vec![false; model.bytes.len()];
    for facts in &model.nodes {
        let touched = facts.reads.iter().chain(&facts.writes);
        let bytes = touched.fold(0_u64, |sum, &value| sum.saturating_add(model.bytes[at(value)]));
        if facts.cost > bytes.saturating_mul(MOVED) {
            facts.writes.iter().for_each(|&value| retained[at(value)] = true);
        }
    }
    retained
}

/// Work units to move one byte.
const MOVED: u64 = 8;

/// Returns a sequence in which nodes that replace a value run after all readers of the previous
/// content.
pub(super) fn repaired(model: &SequenceModel, sequence: &[u32]) -> Vec<u32> {
    let mut left = vec![0_u32; model.bytes.len()];
    for &node in sequence {
        model.nodes[at(node)].previous.iter().for_each(|&value| left[at(value)] += 1);
    }
    let mut repaired = Vec::with_capacity(sequence.len());
    let mut pending: Vec<u32> = Vec::new();
    let own = |node: u32, value: u32| u32::from(model.nodes[at(node)].previous.contains(&value));
    for &node in sequence {
        let facts = &model.nodes[at(node)];
        if facts.replaces.iter().any(|&value| left[at(value)] > own(node, value)) {
            pending.push(node);
            continue;
        }
        repaired.push(node);
        facts.previous.iter().for_each(|&value| left[at(value)] -= 1);
        let mut index = 0;
        while index < pending.len() {
            let facts = &model.nodes[at(pending[index])];
            let is_free =
                facts.replaces.iter().all(|&value| left[at(value)] <= own(pending[index], value));
            if is_free {
                let node = pending.remove(index);
                repaired.push(node);
                facts.previous.iter().for_each(|&value| left[at(value)] -= 1);
                index = 0;
            } else {
                index += 1;
            }
        }
    }
    repaired.extend(pending);
    repaired
}

/// Returns a sequence that reverses the chain before a separator with `slots` checkpoints (Griewank
/// and Walther 2000): optimal if all stages cost the same. `None` if there is no chain.
pub(super) fn reversal(
    model: &SequenceModel,
    order: &[u32],
    separator: &Separator,
    slots: usize,
) -> Option<Vec<u32>> {
    let end = order.iter().position(|&node| node == separator.node)?;
    let cuts = chain(model, &order[..end]);
    if cuts.len() < 3 {
        return None;
    }
    let mut stage = vec![0; model.bytes.len()];
    for (index, window) in cuts.windows(2).enumerate() {
        for &node in &order[window[0].0 + 1..=window[1].0] {
            model.nodes[at(node)].writes.iter().for_each(|&value| stage[at(value)] = index + 1);
        }
    }
    // Nodes behind the chain, by the earliest stage that the node or an ancestor reads.
    let mut behind: Vec<Vec<u32>> = vec![Vec::new(); cuts.len()];
    let mut current = cuts.len() - 1;
    for &node in &order[cuts[cuts.len() - 1].0 + 1..] {
        let read = model.nodes[at(node)].reads.iter();
        let read = read.filter(|&&value| model.bytes[at(model.root(value))] > 0);
        let read = read.map(|&value| (stage[at(value)], model.producer[at(value)]));
        let read = read.filter(|&(_, producer)| producer != NONE);
        for (stage, _) in read {
            // The checkpoint before a stage is there when the stage is reversed.
            if stage > 0 && stage + 1 < current {
                current = stage + 1;
            }
        }
        behind[current].push(node);
    }
    let mut builder = SequenceBuilder::new(model);
    order[..=cuts[0].0].iter().for_each(|&node| builder.run(node));
    let mut pending = vec![Task::Reverse { low: 0, high: cuts.len() - 1, slots }];
    while let Some(task) = pending.pop() {
        match task {
            Task::Forget { low, high } => {
                for window in cuts[low..=high].windows(2) {
                    for &node in &order[window[0].0 + 1..=window[1].0] {
                        let facts = &model.nodes[at(node)];
                        for &value in facts.writes.iter().filter(|_| facts.is_pure) {
                            let root = model.root(value);
                            builder.is_there[at(value)] =
                                model.bytes[at(root)] == 0 && builder.is_there[at(value)];
                        }
                    }
                }
            }
            Task::Reverse { low, high, slots } if high - low > 1 && slots > 0 => {
                let middle = low + split(high - low, slots);
                builder.ensure(&[cuts[middle].1]);
                pending.push(Task::Reverse { low, high: middle, slots });
                pending.push(Task::Forget { low, high: middle });
                pending.push(Task::Reverse { low: middle, high, slots: slots - 1 });
            }
            Task::Reverse { low, high, .. } => {
                for index in (low + 1..=high).rev() {
                    builder.ensure(&[cuts[index - 1].1]);
                    for &node in &order[cuts[index - 1].0 + 1..=cuts[index].0] {
                        if !builder.ran[at(node)] {
                            builder.ensure(&model.nodes[at(node)].reads);
                            builder.run(node);
                        }
                    }
                    for &node in &behind[index] {
                        builder.ensure(&model.nodes[at(node)].reads);
                        builder.run(node);
                    }
                    pending.push(Task::Forget { low: index - 1, high: index });
                    if index - 1 > low {
                        pending.push(Task::Reverse { low, high: index - 1, slots: 0 });
                        pending.push(Task::Forget { low, high: index });
                        break;
                    }
                }
            }
        }
    }
    for &node in &behind[0] {
        builder.ensure(&model.nodes[at(node)].reads);
        builder.run(node);
    }
    let missing: Vec<u32> = order.iter().copied().filter(|&it| !builder.ran[at(it)]).collect();
    for node in missing {
        builder.ensure(&model.nodes[at(node)].reads);
        builder.run(node);
    }
    Some(repaired(model, &builder.sequence))
}

/// A task in [`reversal`].
enum Task {
    /// Reverse the stages between two checkpoints; the first checkpoint is there.
    Reverse { low: usize, high: usize, slots: usize },
    /// Drop the values of some stages.
    Forget { low: usize, high: usize },
}

/// Returns the sequence positions after which only one earlier value is needed, with the value.
fn chain(model: &SequenceModel, sequence: &[u32]) -> Vec<(usize, u32)> {
    let mut last = vec![0; model.bytes.len()];
    for (position, &node) in sequence.iter().enumerate() {
        for &read in &model.nodes[at(node)].reads {
            last[at(model.root(read))] = position;
        }
    }
    let mut cuts = Vec::new();
    let mut live: Vec<u32> = Vec::new();
    for (position, &node) in sequence.iter().enumerate() {
        let made = model.nodes[at(node)].writes.iter().copied();
        live.extend(made.filter(|&it| model.shows[at(it)] == NONE && model.bytes[at(it)] > 0));
        live.retain(|&value| last[at(value)] > position);
        if let &[value] = live.as_slice() {
            match cuts.last_mut() {
                Some((before, known)) if *known == value => *before = position,
                _ => cuts.push((position, value)),
            }
        }
    }
    // The last value of the sequence is read behind the sequence.
    if let Some(&node) = sequence.last()
        && let Some(&value) = model.nodes[at(node)].writes.first()
        && cuts.last().is_none_or(|last| last.0 + 1 < sequence.len())
        && model.bytes[at(value)] > 0
    {
        cuts.push((sequence.len() - 1, value));
    }
    cuts
}

/// Returns how many of `stages` to advance before the next checkpoint, with `slots` left.
fn split(stages: usize, slots: usize) -> usize {
    let mut runs = 1;
    while binomial(slots + runs, slots) < stages {
        runs += 1;
    }
    let least = if runs >= 2 { binomial(slots + runs - 2, slots) } else { 1 };
    let other = stages.saturating_sub(binomial(slots - 1 + runs, slots - 1));
    least.max(other).clamp(1, stages - 1)
}

fn binomial(n: usize, k: usize) -> usize {
    let k = k.min(n - k);
    let mut result = 1_usize;
    for index in 0..k {
        result = match result.checked_mul(n - index) {
            Some(product) => product / (index + 1),
            None => return usize::MAX,
        };
        if result > 1 << 40 {
            return result;
        }
    }
    result
}
