//! Estimates the live bytes while several workers run steps: without offsets, and with simple rules
//! for values that share bytes. Finished schedules are measured exactly.

use alloc::{vec, vec::Vec};

use crate::base::{Alignment, ValueId};
use crate::graph::{ValueKind, Whole};
use crate::plan::{InputMemory, Technique};
use crate::planner::attempt::Attempt;
use crate::planner::context::Context;

/// Most values that a view or concatenation keeps alive; with more values, the result counts as a
/// copy.
const MOST_KEPT: usize = 32;

/// The bytes that each step adds and uses.
#[derive(Debug, Default)]
pub(super) struct StepBytes {
    /// Bytes that are live before the first step.
    first: u64,
    /// Size by body of bytes.
    sizes: Vec<u64>,
    /// For each body: the number of users, steps and caller.
    users: Vec<u32>,
    /// For each step: bytes of new bodies, and of scratch memory.
    made: Vec<(u64, u64)>,
    /// For each step: the bodies that the step uses.
    used: Vec<Vec<usize>>,
    /// For each step: bodies that the step may take over, each with the bytes of the output.
    taken: Vec<Vec<(usize, u64)>>,
}

/// Live bytes during one run.
#[derive(Debug)]
pub(super) struct Live {
    now: u64,
    most: u64,
    /// For each body: the number of users that have not ended.
    left: Vec<u32>,
    /// By body: bytes that an output took over.
    kept: Vec<u64>,
}

impl StepBytes {
    /// Returns steps that use no bytes.
    fn none(steps: usize) -> Self {
        Self {
            made: vec![(0, 0); steps],
            used: vec![Vec::new(); steps],
            taken: vec![Vec::new(); steps],
            ..Self::default()
        }
    }

    pub(super) fn new(context: &Context<'_>, base: &Attempt<'_>, elides: bool) -> Self {
        let (graph, order) = (&*base.schedule.graph, &base.schedule.order);
        let options = &context.options;
        let alignment = Alignment::new(options.alignment).unwrap_or_default();
        let size =
            |value: ValueId| alignment.round_up(graph.value(value).bytes()).unwrap_or(u64::MAX / 4);
        let keeps_inputs = options.preserve_inputs || options.inputs == InputMemory::Caller;
        let mut found = Self::none(order.len());
        // For each value: the bodies that contain the value's bytes.
        let mut bodies: Vec<Vec<usize>> = vec![Vec::new(); graph.values().len()];
        let overwritten = graph.overwritten();
        for (index, bodies) in bodies.iter_mut().enumerate() {
            let value = ValueId::new(index);
            let kind = graph.value(value).kind();
            if matches!(kind, ValueKind::Input | ValueKind::State) {
                let is_kept = (kind == ValueKind::State || keeps_inputs) && !overwritten[index];
                *bodies = vec![found.add(size(value), u32::from(is_kept))];
                found.first = found.first.saturating_add(size(value));
            }
        }
        for (step, &id) in order.iter().enumerate() {
            let node = graph.node(id);
            let effects = node.effects();
            let read = node.reads_bytes_of().flat_map(|(_, value)| bodies[value.index()].clone());
            let mut used: Vec<usize> = read.collect();
            for (position, output) in node.produces() {
                let views = effects.views.iter().filter(|view| view.output == position);
                let mut shown = Vec::new();
                let mut own = size(output);
                for view in views {
                    let Some(input) = node.input(view.input) else { continue };
                    let is_shown = match view.whole {
                        Whole::Input => base.techniques.contains(Technique::Views),
                        Whole::Output => {
                            elides && graph.value(input).kind() == ValueKind::Activation
                        }
                    };
                    if is_shown && shown.len() + bodies[input.index()].len() < MOST_KEPT {
                        shown.extend_from_slice(&bodies[input.index()]);
                        own = match view.whole {
                            Whole::Input => 0,
                            Whole::Output => own.saturating_sub(size(input)),
                        };
                    }
                }
                let body = found.add(own, 0);
                found.made[step].0 = found.made[step].0.saturating_add(own);
                shown.push(body);
                used.push(body);
                for pair in effects.in_place.iter().filter(|pair| pair.output == position) {
                    if let Some(input) = node.input(pair.input)
                        && base.techniques.contains(Technique::InPlace)
                        && let &[body] = &*bodies[input.index()]
                        && own > 0
                        && own <= found.sizes[body]
                    {
                        found.taken[step].push((body, own));
                    }
                }
                bodies[output.index()] = shown;
            }
            if context.has_workspaces() {
                for workspace in &effects.workspaces {
                    let least = workspace.choices.iter().map(|choice| choice.bytes).min();
                    let least = alignment.round_up(least.unwrap_or(0)).unwrap_or(0);
                    found.made[step].1 = found.made[step].1.saturating_add(least);
                }
            }
            used.sort_unstable();
            used.dedup();
            for &body in &used {
                found.users[body] += 1;
            }
            found.used[step] = used;
        }
        for output in graph.read_at_end() {
            for &body in &bodies[output.index()] {
                found.users[body] += 1;
            }
        }
        found
    }

    fn add(&mut self, size: u64, users: u32) -> usize {
        self.sizes.push(size);
        self.users.push(users);
        self.sizes.len() - 1
    }

    /// Returns the bytes before the first step.
    pub(super) fn start(&self) -> Live {
        let kept = vec![0; self.sizes.len()];
        Live { now: self.first, most: self.first, left: self.users.clone(), kept }
    }
}

impl Clone for Live {
    fn clone(&self) -> Self {
        Self { left: self.left.clone(), kept: self.kept.clone(), ..*self }
    }

    /// Copies without allocating.
    fn clone_from(&mut self, other: &Self) {
        (self.now, self.most) = (other.now, other.most);
        self.left.clone_from(&other.left);
        self.kept.clone_from(&other.kept);
    }
}

impl Live {
    /// Returns the bytes that are live while a step runs that would start now.
    pub(super) fn bytes_with(&self, bytes: &StepBytes, step: usize) -> u64 {
        let (made, scratch) = bytes.made[step];
        let taken = self.takes(bytes, step).map_or(0, |(_, taken)| taken);
        self.now.saturating_add(made).saturating_add(scratch).saturating_sub(taken)
    }

    /// Returns the body that a step takes over if the step starts now, and the bytes of the output.
    fn takes(&self, bytes: &StepBytes, step: usize) -> Option<(usize, u64)> {
        bytes.taken[step].iter().copied().find(|&(body, _)| self.left[body] == 1)
    }

    /// Starts a step.
    pub(super) fn run(&mut self, bytes: &StepBytes, step: usize) {
        let taken = self.takes(bytes, step);
        self.now = self.bytes_with(bytes, step);
        self.most = self.most.max(self.now);
        if let Some((body, size)) = taken {
            self.kept[body] = size;
        }
    }

    /// Ends a step.
    pub(super) fn end(&mut self, bytes: &StepBytes, step: usize) {
        self.now = self.now.saturating_sub(bytes.made[step].1);
        for &body in &bytes.used[step] {
            self.left[body] = self.left[body].saturating_sub(1);
            if self.left[body] == 0 {
                self.now = self.now.saturating_sub(bytes.sizes[body] - self.kept[body]);
            }
        }
    }

    /// Returns whether the steps `rest`, one after the other, fit below a limit after the steps
    /// `running`. The steps are run in `self`.
    pub(super) fn fits_after(
        &mut self,
        bytes: &StepBytes,
        limit: u64,
        running: impl Iterator<Item = usize>,
        rest: impl Iterator<Item = usize>,
    ) -> bool {
        running.for_each(|step| self.end(bytes, step));
        for step in rest {
            if self.bytes_with(bytes, step) > limit {
                return false;
            }
            self.run(bytes, step);
            self.end(bytes, step);
        }
        true
    }

    /// Returns the bytes that are live.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Returns the most bytes that were live at once.
    pub(super) const fn most(&self) -> u64 {
        self.most
    }
}
