//! Lends a step its operands, without `unsafe`: the arena is cut into disjoint slices.

use alloc::vec::Vec;
use core::fmt::Debug;

use crate::run::arena::Region;
use crate::run::arena::spans::{Holder, Reading, StepSpans, Stretch, Writing};

/// A node's memory: shared slices of inputs, exclusive slices of outputs.
///
/// No byte lent for writing is lent twice.
#[derive(Debug)]
#[non_exhaustive]
pub struct NodeMemory<'a> {
    /// Inputs, by position.
    pub inputs: Vec<Input<'a>>,
    /// Outputs, by position.
    pub outputs: Vec<Output<'a>>,
    /// Scratch bytes, by slot.
    pub workspaces: Vec<&'a mut [u8]>,
}

impl<'a> NodeMemory<'a> {
    /// Returns the memory of a node without scratch bytes.
    #[must_use]
    pub const fn new(inputs: Vec<Input<'a>>, outputs: Vec<Output<'a>>) -> Self {
        Self { inputs, outputs, workspaces: Vec::new() }
    }
}

/// Memory for an operand that a step reads: bytes, or elements of type `T`.
#[derive(Debug, Default)]
pub enum Input<'a, T = u8> {
    /// The operand is left out, or its bytes are never read.
    #[default]
    Absent,
    /// The operand is not in the arena: it is a constant.
    External,
    /// Elements of the input.
    Shared(&'a [T]),
    /// The elements are part of an output: the step works in place, or the output is a
    /// concatenation that already holds the elements, or both overlap. If both overlap, the step
    /// must make the output in order, and read each element before writing there: see
    /// [`Graph::overlaps`](crate::Graph::overlaps).
    Within {
        /// The output's position.
        output: usize,
        /// The operand's first element in the output.
        offset: usize,
    },
    /// Elements of the input, to read and write: a state that the step
    /// [mutates](crate::Effects::mutates).
    State(&'a mut [T]),
    /// The elements are part of a state that the step mutates.
    WithinState {
        /// The state's position among the inputs.
        input: usize,
        /// The operand's first element in the state.
        offset: usize,
    },
}

/// Memory for an operand that a step writes: bytes, or elements of type `T`.
#[derive(Debug, Default)]
pub enum Output<'a, T = u8> {
    /// The operand is left out.
    #[default]
    Absent,
    /// Elements of the output. If the step works in place, they hold the input, and may be more
    /// than the output needs if the input is larger; the same holds if both overlap.
    Exclusive(&'a mut [T]),
    /// The elements are part of an input and already have their final content.
    Within {
        /// The input's position.
        input: usize,
        /// The operand's first element in the input.
        offset: usize,
    },
}

/// Slots for the slices that are cut off an arena.
#[derive(Debug)]
pub(crate) struct Slots<'s, 'm> {
    pub(crate) inputs: &'s mut [Input<'m>],
    pub(crate) outputs: &'s mut [Output<'m>],
    pub(crate) workspaces: &'s mut [&'m mut [u8]],
}

/// A source of disjoint slices, requested in ascending order.
pub(super) trait Cut<'m> {
    /// Returns bytes to write, or `None` if there are no such bytes.
    fn to_write(&mut self, place: Stretch) -> Option<&'m mut [u8]>;

    /// Returns bytes to read, or `None` if there are no such bytes.
    fn to_read(&mut self, place: Stretch) -> Option<&'m [u8]>;
}

/// Fills the present slots with a step's pieces; `None` if the arena is too small.
pub(super) fn fill<'m>(
    spans: &StepSpans,
    slots: Slots<'_, 'm>,
    cut: &mut impl Cut<'m>,
) -> Option<()> {
    let Slots { inputs, outputs, workspaces } = slots;
    for (slot, input) in inputs.iter_mut().zip(&spans.inputs) {
        *slot = match input.access {
            Reading::Absent => Input::Absent,
            Reading::External => Input::External,
            Reading::Shared => Input::Shared(&[]),
            Reading::Within { output, offset } => Input::Within { output, offset },
            Reading::State => Input::State(&mut []),
            Reading::WithinState { input, offset } => Input::WithinState { input, offset },
        };
    }
    for (slot, output) in outputs.iter_mut().zip(&spans.outputs) {
        *slot = match output.access {
            Writing::Absent => Output::Absent,
            Writing::Exclusive => Output::Exclusive(&mut []),
            Writing::Within { input, offset } => Output::Within { input, offset },
        };
    }
    for piece in &spans.pieces {
        match &piece.holder {
            &Holder::Output(position) => {
                let bytes = cut.to_write(piece.place)?;
                if let Some(slot) = outputs.get_mut(position) {
                    *slot = Output::Exclusive(bytes);
                }
            }
            &Holder::Workspace(position) => {
                let bytes = cut.to_write(piece.place)?;
                if let Some(slot) = workspaces.get_mut(position) {
                    *slot = bytes;
                }
            }
            &Holder::State(position) => {
                let bytes = cut.to_write(piece.place)?;
                if let Some(slot) = inputs.get_mut(position) {
                    *slot = Input::State(bytes);
                }
            }
            Holder::Readers(readers) => {
                let bytes = cut.to_read(piece.place)?;
                for reader in spans.readers.get(readers.clone())? {
                    if let Some(slot) = inputs.get_mut(reader.input) {
                        *slot = Input::Shared(bytes.get(reader.start..reader.end)?);
                    }
                }
            }
        }
    }
    Some(())
}

/// Regions that are cut from start to end.
struct Regions<'m, 'r> {
    rest: core::slice::IterMut<'m, Region<'r>>,
    /// Number of begun regions.
    begun: usize,
    /// The bytes of the last begun region after the last piece.
    bytes: &'m mut [u8],
    /// Position of the first of these bytes.
    at: usize,
}

impl<'m> Cut<'m> for Regions<'m, '_> {
    fn to_write(&mut self, place: Stretch) -> Option<&'m mut [u8]> {
        while self.begun <= place.region {
            self.bytes = self.rest.next()?.bytes_mut();
            (self.begun, self.at) = (self.begun + 1, 0);
        }
        let rest = core::mem::take(&mut self.bytes);
        // The pieces are disjoint and sorted, so no piece begins before the previous piece's end.
        let (_, rest) = rest.split_at_mut_checked(place.start.checked_sub(self.at)?)?;
        let (bytes, rest) = rest.split_at_mut_checked(place.len())?;
        (self.bytes, self.at) = (rest, place.end);
        Some(bytes)
    }

    fn to_read(&mut self, place: Stretch) -> Option<&'m [u8]> {
        self.to_write(place).map(|bytes| &*bytes)
    }
}

/// An arena's bytes, owned or borrowed. Hides the lifetime of the caller's bytes.
pub(crate) trait Memory: Debug + Send + Sync {
    /// Returns bytes to read, or `None` if there are no such bytes.
    fn bytes(&self, place: Stretch) -> Option<&[u8]>;

    /// Returns bytes to write, or `None` if there are no such bytes.
    fn bytes_mut(&mut self, place: Stretch) -> Option<&mut [u8]>;

    /// Cuts the arena along a step's pieces, and fills the present slots; `None` if the arena is
    /// too small.
    fn lend<'m>(&'m mut self, spans: &StepSpans, slots: Slots<'_, 'm>) -> Option<()>;
}

impl Memory for Vec<Region<'_>> {
    fn bytes(&self, place: Stretch) -> Option<&[u8]> {
        self.get(place.region)?.bytes().get(place.range())
    }

    fn bytes_mut(&mut self, place: Stretch) -> Option<&mut [u8]> {
        self.get_mut(place.region)?.bytes_mut().get_mut(place.range())
    }

    fn lend<'m>(&'m mut self, spans: &StepSpans, slots: Slots<'_, 'm>) -> Option<()> {
        let mut regions = Regions { rest: self.iter_mut(), begun: 0, bytes: &mut [], at: 0 };
        fill(spans, slots, &mut regions)
    }
}

impl<'a> NodeMemory<'a> {
    /// Lends a step its operands; `None` if the memory is too small.
    pub(super) fn of(memory: &'a mut dyn Memory, spans: &StepSpans) -> Option<Self> {
        let mut lent = Self {
            inputs: spans.inputs.iter().map(|_| Input::Absent).collect(),
            outputs: spans.outputs.iter().map(|_| Output::Absent).collect(),
            workspaces: spans.workspaces.iter().map(|_| Default::default()).collect(),
        };
        let Self { inputs, outputs, workspaces } = &mut lent;
        memory.lend(spans, Slots { inputs, outputs, workspaces })?;
        Some(lent)
    }
}
