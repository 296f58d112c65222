//! Values that replace an input or a state at the same address.

use alloc::vec;

use super::{ClassBuilder, DraftMember, is_only_read};
use crate::base::{NodeId, Step};
use crate::plan::ShareRule;

impl ClassBuilder<'_> {
    /// Puts each value that replaces an input or state into the bytes of that input or state.
    ///
    /// The graph makes the producer run after all other readers of the previous content. A producer
    /// that reads the content may take over its bytes. So the input and the new value agree in
    /// every order.
    pub(super) fn link_write_backs(&mut self, order: &[NodeId]) {
        if self.graph.write_backs().is_empty() {
            return;
        }
        let mut step_of = vec![Step::default(); self.graph.nodes().len()];
        for (step, id) in order.iter().enumerate() {
            step_of[id.index()] = Step::at(step);
        }
        for write_back in self.graph.write_backs() {
            let (value, into) = (write_back.value, write_back.into);
            let places = [value, into].map(|it| self.places[it.index()]);
            let [Some((made, 0)), Some((home, 0))] = places else { continue };
            let Some(id) = self.graph.producer(value) else { continue };
            if made == home {
                continue;
            }
            // Both values have one address, so either pin counts for both, unless both have pins.
            let pins = [home, made].map(|class| self.class(class).pin);
            for (class, pin) in [made, home].into_iter().zip(pins) {
                let class = self.classes[class].as_mut();
                let class = class.expect("values are in classes that are there");
                class.pin = class.pin.or(pin);
            }
            if !self.fit(made, home, 0) {
                continue;
            }
            self.merge(made, home, 0);
            let node = self.graph.node(id);
            let pairs = node.effects().in_place.iter();
            let mut pairs = pairs.filter(|pair| {
                node.output(pair.output) == Some(value)
                    && !node.effects().ignores.contains(&pair.input)
                    && node.input(pair.input) == Some(into)
            });
            if let Some(pair) = pairs.next() {
                self.note(step_of[id.index()], id, pair.input, pair.output, ShareRule::InPlace);
                self.has_taken[value.index()] = true;
            }
        }
    }

    /// Returns whether the producer of `new`, which replaces an input or state, takes over `old`
    /// when `old` dies: the two are live together at that step only.
    pub(super) fn hands_over(&self, old: &DraftMember, new: &DraftMember) -> bool {
        let is_candidate = self.home[new.value.index()].is_some()
            && self.reach.is_none()
            && !self.has_taken[new.value.index()]
            && self.rules.in_place
            && (old.start, old.end) == (new.start, new.end);
        let Some(id) = self.graph.producer(new.value).filter(|_| is_candidate) else {
            return false;
        };
        let node = self.graph.node(id);
        let pairs = || node.effects().in_place.iter();
        let takes = |input| {
            let mut pairs = pairs().filter(|pair| pair.input == input);
            pairs.any(|pair| node.output(pair.output) == Some(new.value))
        };
        let root = self.root(old.value);
        old.live.start() < new.live.start()
            && self.lifetimes.dies(old.value, new.live.start())
            && !self.is_callers(old.value)
            && !self.is_callers(root)
            && is_only_read(node, old.value, takes)
    }
}
