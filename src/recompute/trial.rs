//! Changes to a sequence, evaluated without evaluating the whole sequence.
//!
//! Added or omitted executions bind few reads to other instances. Only the live ranges of those
//! instances, and the bytes in place at the ends of these ranges, differ from the evaluated
//! sequence. So a change costs one pass of additions over the positions.

use alloc::vec::Vec;

use super::narrow_ids::{NONE, at, narrow};
use super::sequence::{Evaluation, Instance, InstanceRead, credit, signed};
use super::sequence_model::SequenceModel;

/// Marks positions of added executions; the other bits count the positions.
const ADDED: u32 = 1 << 31;

/// Positions per block. Only the extremes of a block are read where the extremes decide.
const BLOCK: usize = 32;

/// Peak and cost of a changed sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrialFigures {
    /// Bytes that are live at the highest position.
    pub(super) peak: u64,
    /// Cost of all executions.
    pub(super) cost: u64,
    /// Bytes above the budget, summed over positions.
    pub(super) excess: u128,
}

impl TrialFigures {
    /// Returns the figures of an evaluated sequence.
    pub(super) fn of(now: &Evaluation, budget: u64) -> Self {
        Self { peak: now.peak, cost: now.cost, excess: now.excess(budget) }
    }
}

/// Returns a cost per saved byte and step, as a number to compare.
pub(super) fn rate(cost: u64, saved: u128) -> u128 {
    ((u128::from(cost) + 1) << 40) / saved.max(1)
}

/// A sequence to evaluate changes of, one change at a time. The model has no copies.
pub(super) struct Trial<'a> {
    model: &'a SequenceModel,
    /// The evaluation of the sequence.
    pub(super) now: Evaluation,
    /// Reads by instance, in sequence order; `first_of` has the first read of each instance.
    of: Vec<u32>,
    first_of: Vec<u32>,
    blocks: Vec<Block>,
    change: SequenceChange,
}

/// The live bytes at neighboring positions.
struct Block {
    least: i64,
    most: i64,
    sum: i128,
}

/// The differences between a changed sequence and the sequence.
#[derive(Default)]
struct SequenceChange {
    /// The position that executions are added before, or that is left out.
    position: u32,
    /// The number of added executions.
    added: usize,
    /// Bindings that reads from `position` on no longer see, each with the instance that is read
    /// instead.
    replaced: Vec<(u32, u32)>,
    /// Reads that are bound anew, each with the previous instance.
    moved: Vec<(u32, u32)>,
    touched: Vec<Touched>,
    /// For each instance: the place in `touched`, or [`NONE`].
    touched_at: Vec<u32>,
    /// Reads by the added executions, with the first read of each execution.
    reads: Vec<InstanceRead>,
    first_read: Vec<u32>,
    /// Positions of the changed sequence, with the bytes more than at the position before.
    bytes: Vec<(usize, i64)>,
    /// Sequence positions at which other bytes may be in place.
    ends: Vec<u32>,
}

/// An instance that has other readers.
struct Touched {
    instance: u32,
    /// The last reader in the sequence.
    before: u32,
    /// The last added reader, or [`NONE`].
    gained: u32,
}

impl SequenceChange {
    /// Returns the position in the changed sequence, of which no execution is left out yet.
    fn place(&self, position: u32) -> usize {
        if position & ADDED != 0 {
            at(self.position) + at(position & !ADDED)
        } else if position < self.position {
            at(position)
        } else {
            at(position) + self.added
        }
    }

    fn touch(&mut self, instance: u32, now: &[Instance]) -> &mut Touched {
        if self.touched_at.len() < now.len() {
            self.touched_at.resize(now.len(), NONE);
        }
        if self.touched_at[at(instance)] == NONE {
            self.touched_at[at(instance)] = narrow(self.touched.len());
            let before = now[at(instance)].last;
            self.touched.push(Touched { instance, before, gained: NONE });
        }
        &mut self.touched[at(self.touched_at[at(instance)])]
    }

    fn gain(&mut self, instance: u32, position: u32, now: &[Instance]) {
        let gained = self.touch(instance, now).gained;
        if gained == NONE || self.place(gained) < self.place(position) {
            self.touch(instance, now).gained = position;
        }
    }

    /// Adds bytes to the positions from `start` to before `end`.
    fn count(&mut self, start: usize, end: usize, bytes: i64) {
        if start != end && bytes != 0 {
            self.bytes.extend([(start, bytes), (end, -bytes)]);
        }
    }

    /// Returns the instance that replaces a binding.
    fn replacement(&self, binding: u32) -> Option<u32> {
        self.replaced.iter().find(|it| it.0 == binding).map(|it| it.1)
    }
}

impl<'a> Trial<'a> {
    pub(super) fn new(model: &'a SequenceModel) -> Self {
        let (of, first_of) = (Vec::new(), Vec::new());
        let (now, change) = (Evaluation::default(), SequenceChange::default());
        Self { model, now, of, first_of, blocks: Vec::new(), change }
    }

    /// Evaluates the sequence that later calls change, and returns whether the sequence is valid.
    pub(super) fn run(&mut self, sequence: &[u32]) -> bool {
        let is_valid = self.now.run(self.model, sequence);
        if is_valid {
            let count = self.now.instances.len();
            self.first_of.clear();
            self.first_of.resize(count + 1, 0);
            for read in &self.now.reads {
                self.first_of[at(read.instance)] += 1;
            }
            let mut sum = 0;
            for first in &mut self.first_of {
                sum += *first;
                *first = sum;
            }
            self.of.clear();
            self.of.resize(self.now.reads.len(), 0);
            for (index, read) in self.now.reads.iter().enumerate().rev() {
                let first = &mut self.first_of[at(read.instance)];
                *first -= 1;
                self.of[at(*first)] = narrow(index);
            }
            self.blocks.clear();
            self.blocks.extend(self.now.live.chunks(BLOCK).map(|live| Block {
                least: live.iter().copied().min().map_or(0, signed),
                most: live.iter().copied().max().map_or(0, signed),
                sum: live.iter().map(|&live| i128::from(live)).sum(),
            }));
        }
        is_valid
    }

    /// Returns the figures of the sequence in which nodes that ran before run again before a
    /// position; `None` if that is not valid.
    pub(super) fn with(
        &mut self,
        sequence: &[u32],
        position: u32,
        nodes: &[u32],
        budget: u64,
    ) -> Option<TrialFigures> {
        self.change.position = position;
        self.change.added = nodes.len();
        let is_valid = (0..).zip(nodes).all(|(step, &node)| self.add(ADDED | step, node));
        let figures = is_valid.then(|| {
            let costs = nodes.iter().map(|&node| self.model.nodes[at(node)].cost);
            let cost = costs.fold(self.now.cost, u64::saturating_add);
            self.change.first_read.push(narrow(self.change.reads.len()));
            self.figures(sequence, nodes, cost, budget)
        });
        self.undo();
        figures
    }

    /// Returns peak and cost of the sequence without the execution at a position; the executed node
    /// ran before.
    #[cfg(test)]
    pub(super) fn without(&mut self, sequence: &[u32], position: u32, budget: u64) -> TrialFigures {
        let cost = self.leave_out(sequence, position);
        let figures = self.figures(sequence, &[], cost, budget);
        self.undo();
        figures
    }

    /// Returns the bytes that are live at the highest position of the sequence without the
    /// execution at `position`, whose node ran before; `None` if the bytes are more than `budget`.
    pub(super) fn peak_without(
        &mut self,
        sequence: &[u32],
        position: u32,
        budget: u64,
    ) -> Option<u64> {
        self.leave_out(sequence, position);
        self.bind(sequence, true);
        let found = self.peak_within(sequence.len(), signed(budget));
        self.undo();
        found
    }

    /// Notes the bindings that no longer exist without an execution, and returns the cost of all
    /// others.
    fn leave_out(&mut self, sequence: &[u32], position: u32) -> u64 {
        self.change.position = position;
        self.change.added = 0;
        let (from, to) = self.now.reads_at(at(position));
        for index in from..to {
            self.change.touch(self.now.reads[index].instance, &self.now.instances);
        }
        let facts = &self.model.nodes[at(sequence[at(position)])];
        for &value in &facts.writes {
            let gone = self.binding(value, position + 1);
            let before = self.now.bindings[at(gone)].before;
            self.change.replaced.push((gone, self.now.bindings[at(before)].instance));
        }
        self.now.cost.saturating_sub(facts.cost)
    }

    /// Returns the binding of a value that nodes at a position read, or [`NONE`].
    fn binding(&self, value: u32, position: u32) -> u32 {
        let mut binding = self.now.latest[at(value)];
        while binding != NONE {
            let found = self.now.bindings[at(binding)];
            if found.position < position {
                break;
            }
            binding = found.before;
        }
        binding
    }

    /// Adds an execution, and returns whether the execution is valid.
    fn add(&mut self, position: u32, node: u32) -> bool {
        let facts = &self.model.nodes[at(node)];
        self.change.first_read.push(narrow(self.change.reads.len()));
        let is_replaced = |&value: &u32| self.now.replaced_at[at(value)] < self.change.position;
        if facts.previous.iter().any(is_replaced) {
            return false;
        }
        for &value in &facts.reads {
            let binding = self.binding(value, self.change.position);
            if binding == NONE {
                if self.model.producer[at(value)] != NONE {
                    return false;
                }
                continue;
            }
            let instance = self.instance(binding);
            if instance != NONE {
                self.change.reads.push(InstanceRead { instance, value, position, binding });
                self.change.gain(instance, position, &self.now.instances);
            }
        }
        for &value in &facts.writes {
            let binding = self.binding(value, self.change.position);
            if binding == NONE {
                return false;
            }
            let shown = self.model.shows[at(value)];
            let instance = if shown != NONE {
                match self.binding(shown, self.change.position) {
                    NONE => NONE,
                    shown => self.instance(shown),
                }
            } else if self.model.bytes[at(value)] == 0 {
                NONE
            } else {
                let made = Instance { value, birth: position, last: position, is_made: true };
                self.now.instances.push(made);
                let instance = narrow(self.now.instances.len() - 1);
                self.change.gain(instance, position, &self.now.instances);
                instance
            };
            self.change.replaced.push((binding, instance));
        }
        true
    }

    /// Returns the instance of a binding for an added execution.
    fn instance(&self, binding: u32) -> u32 {
        let replacement = self.change.replacement(binding);
        replacement.unwrap_or(self.now.bindings[at(binding)].instance)
    }

    /// Binds the reads from an instance anew, from the position on.
    fn rebind(&mut self, instance: u32) {
        let own = at(self.first_of[at(instance)])..at(self.first_of[at(instance) + 1]);
        for &index in self.of[own].iter().rev() {
            let read = self.now.reads[at(index)];
            if read.position < self.change.position {
                break;
            }
            // A view that is made later shows the later content of the operand.
            let mut binding = read.binding;
            let target = loop {
                if let Some(target) = self.change.replacement(binding) {
                    break target;
                }
                let found = self.now.bindings[at(binding)];
                if found.position < self.change.position || found.shown == NONE {
                    break NONE;
                }
                binding = found.shown;
            };
            if target != NONE && target != read.instance {
                self.now.reads[at(index)].instance = target;
                self.change.moved.push((index, read.instance));
                self.change.ends.push(read.position);
                self.change.touch(read.instance, &self.now.instances);
                self.change.gain(target, read.position, &self.now.instances);
            }
        }
    }

    /// Binds reads anew, and notes the bytes that this adds and removes at each position.
    fn bind(&mut self, sequence: &[u32], is_shorter: bool) {
        let mut rebound: Vec<u32> = Vec::with_capacity(self.change.replaced.len());
        for &(binding, _) in &self.change.replaced {
            rebound.push(self.now.bindings[at(binding)].instance);
        }
        rebound.sort_unstable();
        rebound.dedup();
        for instance in rebound {
            if instance != NONE && at(instance) + 1 < self.first_of.len() {
                self.rebind(instance);
            }
        }
        self.settle(is_shorter);
        let gone = if is_shorter { at(self.change.position) } else { usize::MAX };
        self.credits(sequence, gone);
        self.change.bytes.sort_unstable();
    }

    /// Returns peak and cost of the changed sequence.
    fn figures(&mut self, sequence: &[u32], nodes: &[u32], cost: u64, budget: u64) -> TrialFigures {
        self.bind(sequence, nodes.is_empty());
        let budget = signed(budget);
        let first = at(self.change.position);
        let gone = if nodes.is_empty() { first } else { usize::MAX };
        let mut found = Total { peak: 0, excess: 0, budget };
        let mut more = 0_i64;
        let mut next = 0;
        // Between two positions at which the change differs, all positions have as much more.
        let mut place = 0;
        let end = sequence.len() + nodes.len();
        let mut middle: Vec<i64> = Vec::new();
        while place < end {
            while next < self.change.bytes.len() && self.change.bytes[next].0 <= place {
                more += self.change.bytes[next].1;
                next += 1;
            }
            let until = self.change.bytes.get(next).map_or(end, |it| it.0).min(end);
            // Sequence positions before the change, positions of added executions, and positions
            // behind.
            self.add_up(place, until.min(first), more, gone, &mut found);
            let behind = first + nodes.len();
            let added = place.max(first)..until.min(behind);
            middle.extend(added.map(|_| more));
            let start = place.max(behind) - nodes.len();
            self.add_up(start, until.max(behind) - nodes.len(), more, gone, &mut found);
            place = until;
        }
        if !nodes.is_empty() {
            // Instances that are live before and behind the position are at executions between.
            let made = sequence.get(first).map_or(0, |&node| {
                let writes = self.model.nodes[at(node)].writes.iter();
                let made = writes.filter(|&&value| self.model.shows[at(value)] == NONE);
                made.map(|&value| signed(self.model.bytes[at(value)])).sum()
            });
            let mut taken = Vec::new();
            let across = self.now.gross[first] - made;
            for (index, (&node, more)) in nodes.iter().zip(middle).enumerate() {
                let reads =
                    at(self.change.first_read[index])..at(self.change.first_read[index + 1]);
                let reads = &self.change.reads[reads];
                let position = ADDED | narrow(index);
                let instances = &self.now.instances;
                let credit = credit(self.model, instances, position, node, reads, &mut taken);
                found.count(across + more - signed(credit));
            }
        }
        let peak = u64::try_from(found.peak).unwrap_or(0);
        let excess = u128::try_from(found.excess).unwrap_or(0);
        TrialFigures { peak, cost, excess }
    }

    /// Adds up the bytes at some sequence positions, each with `more`.
    fn add_up(&self, start: usize, end: usize, more: i64, gone: usize, found: &mut Total) {
        let mut position = start;
        while position < end {
            let block = position / BLOCK;
            let next = ((block + 1) * BLOCK).min(end);
            let is_whole = position == block * BLOCK
                && next - position == BLOCK.min(self.now.live.len() - position)
                && !(position..next).contains(&gone);
            let Block { least, most, sum } = self.blocks[block];
            let budget = found.budget;
            if is_whole && least + more >= 0 && (most + more <= budget || least + more >= budget) {
                found.peak = found.peak.max(most + more);
                if most + more > budget {
                    let count = i128::try_from(next - position).unwrap_or(0);
                    found.excess += sum + count * i128::from(more - budget);
                }
            } else {
                for position in (position..next).filter(|&position| position != gone) {
                    found.count(signed(self.now.live[position]) + more);
                }
            }
            position = next;
        }
    }

    /// Returns the bytes at the highest position of a sequence without an execution, or `None` if
    /// the bytes are more than `budget`.
    fn peak_within(&self, steps: usize, budget: i64) -> Option<u64> {
        let gone = at(self.change.position);
        let mut found = Total { peak: 0, excess: 0, budget };
        let (mut more, mut next, mut place) = (0_i64, 0, 0);
        while place < steps {
            while next < self.change.bytes.len() && self.change.bytes[next].0 <= place {
                more += self.change.bytes[next].1;
                next += 1;
            }
            let until = self.change.bytes.get(next).map_or(steps, |it| it.0).min(steps);
            self.add_up(place, until, more, gone, &mut found);
            if found.peak > budget {
                return None;
            }
            place = until;
        }
        u64::try_from(found.peak).ok()
    }

    /// Finds the new last readers, and records the bytes that the new readers add and remove.
    fn settle(&mut self, is_shorter: bool) {
        let change = &mut self.change;
        change.bytes.clear();
        let touched = core::mem::take(&mut change.touched);
        for it in &touched {
            let instance = self.now.instances[at(it.instance)];
            let bytes = signed(self.model.bytes[at(instance.value)]);
            let is_new = instance.birth & ADDED != 0;
            let mut last = instance.birth;
            if !is_new {
                let own =
                    at(self.first_of[at(it.instance)])..at(self.first_of[at(it.instance) + 1]);
                let remains = |index: &&u32| {
                    let read = self.now.reads[at(**index)];
                    let is_gone = is_shorter && read.position == change.position;
                    read.instance == it.instance && !is_gone
                };
                let read = self.of[own].iter().rev().find(remains);
                last = read.map_or(last, |&index| self.now.reads[at(index)].position);
            }
            if it.gained != NONE && change.place(it.gained) > change.place(last) {
                last = it.gained;
            }
            let is_gone = is_shorter && instance.is_made && instance.birth == change.position;
            self.now.instances[at(it.instance)].last = last;
            let (birth, before) = (change.place(instance.birth), change.place(it.before) + 1);
            let end = change.place(last) + 1;
            if is_new {
                change.count(birth, end, bytes);
            } else if is_gone {
                change.count(birth, before, -bytes);
            } else {
                change.count(before, end, bytes);
                change.ends.push(it.before);
            }
            change.ends.push(last);
        }
        change.touched = touched;
    }

    /// Notes the bytes that are in place no longer, or now, at positions of the sequence.
    fn credits(&mut self, sequence: &[u32], gone: usize) {
        let mut taken = Vec::new();
        let change = &mut self.change;
        change.ends.sort_unstable();
        change.ends.dedup();
        let ends = core::mem::take(&mut change.ends);
        for &position in &ends {
            let step = at(position);
            if step >= sequence.len() || step == gone {
                continue;
            }
            let (from, to) = self.now.reads_at(step);
            let reads = &self.now.reads[from..to];
            let instances = &self.now.instances;
            let credit = credit(self.model, instances, position, sequence[step], reads, &mut taken);
            let less = signed(credit) - (self.now.gross[step] - signed(self.now.live[step]));
            let place = change.place(position);
            change.count(place, place + 1, -less);
        }
        change.ends = ends;
    }

    /// Restores the evaluation of the sequence.
    fn undo(&mut self) {
        let change = &mut self.change;
        for (index, instance) in change.moved.drain(..) {
            self.now.reads[at(index)].instance = instance;
        }
        for it in change.touched.drain(..) {
            self.now.instances[at(it.instance)].last = it.before;
            change.touched_at[at(it.instance)] = NONE;
        }
        self.now.instances.truncate(self.first_of.len() - 1);
        change.replaced.clear();
        change.reads.clear();
        change.first_read.clear();
        change.ends.clear();
    }
}

/// Sums over positions.
struct Total {
    peak: i64,
    excess: i128,
    budget: i64,
}

impl Total {
    fn count(&mut self, live: i64) {
        let live = live.max(0);
        self.peak = self.peak.max(live);
        self.excess += i128::from((live - self.budget).max(0));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::recompute::sequence::{repeated, without};
    use crate::recompute::sequence_model::NodeFacts;
    use alloc::vec;

    /// A generator of pseudo-random numbers (xorshift, Marsaglia 2003).
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
        }

        /// Makes a model with views, values in place, values without bytes, contents that are
        /// replaced, and nodes that run once.
        fn model(&mut self, nodes: usize) -> SequenceModel {
            let count = 3 + 2 * nodes;
            let mut model = SequenceModel {
                nodes: Vec::new(),
                bytes: (0..count).map(|_| [0, 1, 2, 5, 9][self.below(5)]).collect(),
                own: Vec::new(),
                shows: vec![NONE; count],
                producer: vec![NONE; count],
                kept: vec![false; count],
                may_take: (0..count).map(|_| self.below(5) > 0).collect(),
                supplied: (0..3).collect(),
                resident: 7,
                spared: 0,
                cost: 0,
                replaced_by: vec![NONE; count],
                given: (0..narrow(nodes)).collect(),
                count: nodes,
                paging: None,
            };
            for node in 0..nodes {
                let mut facts = NodeFacts { is_pure: self.below(6) > 0, ..NodeFacts::default() };
                let known = 3 + 2 * node;
                for _ in 0..=self.below(3) {
                    let recent = known - 1 - self.below(known.min(12));
                    facts.reads.push(narrow(recent));
                }
                for value in [known, known + 1] {
                    facts.writes.push(narrow(value));
                    model.producer[value] = narrow(node);
                    let shown = facts.reads[0];
                    if value == known && self.below(4) == 0 && !model.kept[at(shown)] {
                        model.shows[value] = shown;
                    } else if self.below(3) == 0 {
                        facts.in_place.push((shown, narrow(value)));
                    }
                    model.kept[value] = !facts.is_pure && self.below(3) == 0;
                }
                facts.cost = u64::try_from(self.below(5)).unwrap();
                model.nodes.push(facts);
            }
            // The last node replaces the value that is supplied first, behind all readers.
            for node in 0..nodes - 1 {
                if (model.nodes[node].reads.iter()).any(|&read| model.root(read) == 0) {
                    model.nodes[node].previous.push(0);
                }
            }
            model.nodes[nodes - 1].replaces.push(0);
            model.nodes[nodes - 1].is_pure = false;
            model.replaced_by[0] = narrow(nodes - 1);
            model
        }
    }

    fn figures(model: &SequenceModel, sequence: &[u32], budget: u64) -> Option<TrialFigures> {
        let mut all = Evaluation::default();
        let is_valid = all.run(model, sequence);
        is_valid.then(|| TrialFigures::of(&all, budget))
    }

    #[test]
    fn changes_have_the_figures_of_the_changed_sequence() {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let (mut added, mut refused, mut left_out) = (0, 0, 0);
        for _ in 0..200 {
            let nodes = 8 + random.below(20);
            let model = random.model(nodes);
            let mut sequence = model.given.clone();
            let mut trial = Trial::new(&model);
            assert!(trial.run(&sequence));
            for _ in 0..60 {
                let budget = u64::try_from(random.below(40)).unwrap();
                let position = 1 + random.below(sequence.len());
                let repeats = repeated(&model, &sequence);
                if position < sequence.len() && repeats[position] && random.below(2) == 0 {
                    let shorter = without(&sequence, |other| other == position);
                    let found = trial.without(&sequence, narrow(position), budget);
                    assert_eq!(Some(found), figures(&model, &shorter, budget));
                    let fits = trial.peak_without(&sequence, narrow(position), budget);
                    assert_eq!(fits, Some(found.peak).filter(|&peak| peak <= budget));
                    left_out += 1;
                    if random.below(3) == 0 {
                        sequence = shorter;
                        assert!(trial.run(&sequence));
                    }
                    continue;
                }
                // Pure nodes that ran before, in sequence order.
                let mut block: Vec<u32> = Vec::new();
                for &node in &sequence[..position] {
                    let is_new = !block.contains(&node);
                    if model.nodes[at(node)].is_pure && is_new && random.below(4) == 0 {
                        block.push(node);
                    }
                }
                if block.is_empty() {
                    continue;
                }
                let mut longer = sequence.clone();
                longer.splice(position..position, block.iter().copied());
                let found = trial.with(&sequence, narrow(position), &block, budget);
                assert_eq!(found, figures(&model, &longer, budget));
                if found.is_none() {
                    refused += 1;
                } else {
                    added += 1;
                    if random.below(3) == 0 && sequence.len() < 80 {
                        sequence = longer;
                        assert!(trial.run(&sequence));
                    }
                }
            }
        }
        assert!(added > 1000 && refused > 100 && left_out > 1000, "{added} {refused} {left_out}");
    }
}
