//! Rules for values in the caller's memory.

use alloc::{format, vec};

use crate::base::{Result, SpaceId, ValueId, quoted};
use crate::check::{Joined, is_at, mismatch};
use crate::graph::{Graph, ValueKind};
use crate::pack::Status;
use crate::plan::{InputMemory, OutputMemory, Placement, Plan};

impl Plan {
    /// Returns whether a run must not change the graph's inputs.
    pub(super) fn keeps_inputs(&self) -> bool {
        self.options.preserve_inputs || self.options.inputs == InputMemory::Caller
    }

    /// Returns whether the caller brings the memory of a value, according to the options.
    fn is_brought(&self, graph: &Graph, is_output: bool, value: ValueId) -> bool {
        match graph.value(value).kind() {
            ValueKind::Input if self.options.inputs == InputMemory::Caller => true,
            ValueKind::Input | ValueKind::Activation => {
                let mut pairs = graph.write_backs().iter();
                is_output
                    && self.options.outputs == OutputMemory::Caller
                    && pairs.all(|pair| pair.value != value)
            }
            _ => false,
        }
    }

    /// Checks that the arenas are followed by the caller's buffers, each as large as the buffer's
    /// value.
    pub(super) fn check_caller_buffers(&self, graph: &Graph) -> Result<()> {
        let mut is_output = vec![false; graph.values().len()];
        for output in graph.outputs() {
            is_output[output.index()] = true;
        }
        let mut buffers = self.caller_buffers().iter();
        for (index, is_output) in is_output.into_iter().enumerate() {
            let id = ValueId::new(index);
            if !self.is_brought(graph, is_output, id) {
                continue;
            }
            let value = graph.value(id);
            let found = buffers.next();
            let fits = found.is_some_and(|buffer| {
                buffer.caller.is_some_and(|caller| is_at(caller, index))
                    && buffer.name == value.name()
                    && buffer.arena_bytes == value.bytes()
                    && buffer.status == Status::Optimal
                    && buffer.capacity.is_none()
                    && buffer.cost == 0
            });
            let place = self.placement(id);
            let is_first =
                place.is_some_and(|place| place.offset == 0 && self.owner_of(place) == Some(id));
            if !fits || !is_first {
                let name = quoted(value.name());
                return mismatch(format!("value {name} is not in a buffer of the caller's own"));
            }
        }
        match buffers.next() {
            None => Ok(()),
            Some(extra) => {
                mismatch(format!("the caller brings no memory for value {}", quoted(&extra.name)))
            }
        }
    }

    /// Returns the value that owns a placement's caller buffer, if the placement is in a caller
    /// buffer.
    fn owner_of(&self, place: &Placement) -> Option<ValueId> {
        let space = self.spaces.get(SpaceId::from(place.space).index())?;
        space.caller.map(ValueId::from)
    }

    /// Returns whether a value may be in its space.
    ///
    /// A caller buffer holds only its value and the values that share the value's bytes in the
    /// plan.
    pub(super) fn may_be_at(
        &self,
        graph: &Graph,
        value: ValueId,
        place: &Placement,
        joined: &Joined,
        in_arena: bool,
    ) -> bool {
        let Some(owner) = self.owner_of(place) else { return in_arena };
        let root = |value: ValueId| joined.root.get(value.index());
        owner == value
            || root(owner).is_some()
                && root(owner) == root(value)
                && graph.value(value).kind() != ValueKind::State
                && graph.value(value).space().index() == 0
    }
}
