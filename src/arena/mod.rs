//! Committed arenas: the bytes that a plan speaks of, lent node by node.

mod backing;
mod gaps;
mod incremental;
mod lend;
mod overlaps;
mod raw;
mod simple;

use std::ptr::NonNull;

pub use backing::{ArenaAllocator, ArenaBlock, SystemAllocator};
pub use gaps::GapRule;
pub use incremental::{Allocation, IncrementalArena};
pub use lend::{Input, NodeMemory, Output};
pub use simple::{SimpleArena, Span};

use crate::error::{Error, Result};
use crate::index::{NodeId, SpaceId, ValueId};
use crate::plan::{Placement, Plan};
use crate::units::{Alignment, MAX_BYTES};
use raw::AlignedBytes;

/// The bytes of one space.
#[derive(Debug)]
enum Region<'a> {
    Owned(AlignedBytes),
    Bound(&'a mut [u8]),
}

impl Region<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes.as_slice(),
            Self::Bound(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Owned(bytes) => bytes.as_mut_slice(),
            Self::Bound(bytes) => bytes,
        }
    }
}

/// Memory that a plan was committed to: one stretch of bytes per space.
///
/// [`Plan::commit`] allocates it, [`Plan::bind`] takes the caller's. It lends slices of
/// itself, never two that overlap unless both are shared.
///
/// ```
/// use arenaplan::{DType, Graph, Input, Node, NodeId, Output, Planner, Value, ValueKind};
///
/// let mut builder = Graph::builder("increment");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [4])?);
/// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [4])?);
/// let node = builder.add_node(Node::new("increment", "AddOne").reads([x]).writes([y]));
/// builder.add_output(y);
/// let plan = Planner::new().plan(&builder.build()?)?;
///
/// let mut arena = plan.commit()?;
/// arena.value_mut(&plan, x)?.copy_from_slice(&[1, 2, 3, 4]);
/// let mut memory = arena.node(&plan, node)?;
/// if let (Input::Shared(from), Output::Exclusive(to)) = (&memory.inputs[0], &mut memory.outputs[0]) {
///     to.iter_mut().zip(*from).for_each(|(to, from)| *to = from + 1);
/// }
/// assert_eq!(arena.value(&plan, y)?, [2, 3, 4, 5]);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Debug)]
pub struct Arena<'a> {
    regions: Vec<Region<'a>>,
}

impl Plan {
    /// Allocates the arena of every space, zeroed and aligned, and whatever else the caller
    /// would have to bring.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`] if there is not enough memory.
    pub fn commit(&self) -> Result<Arena<'static>> {
        let regions = self
            .spaces()
            .iter()
            .map(|space| {
                let alignment = Alignment::new(space.alignment)?;
                AlignedBytes::zeroed(space.arena_bytes, alignment).map(Region::Owned)
            })
            .collect::<Result<_>>()?;
        Ok(Arena { regions })
    }

    /// Returns where each [arena](Self::arenas) begins in one block that holds them side by
    /// side, and the bytes of that block: for machines with one memory only.
    ///
    /// # Errors
    ///
    /// [`Error::SizeOverflow`] if no machine can address the block.
    pub fn side_by_side(&self) -> Result<(Vec<u64>, u64)> {
        let overflow = || Error::SizeOverflow { what: "the arenas of all spaces".into() };
        let mut bases = Vec::with_capacity(self.arenas().len());
        let mut end = 0_u64;
        for space in self.arenas() {
            let base = Alignment::new(space.alignment)?.round_up(end).ok_or_else(overflow)?;
            bases.push(base);
            end = base.checked_add(space.arena_bytes).ok_or_else(overflow)?;
        }
        if end > MAX_BYTES { Err(overflow()) } else { Ok((bases, end)) }
    }

    /// Uses the caller's bytes as the arena of a plan with one space.
    ///
    /// # Errors
    ///
    /// - [`Error::BufferTooSmall`] if there are fewer bytes than the plan needs.
    /// - [`Error::MisalignedBuffer`] if they start at a less aligned address.
    /// - [`Error::SpaceCount`] if the plan has several spaces.
    pub fn bind<'a>(&self, bytes: &'a mut [u8]) -> Result<Arena<'a>> {
        self.bind_all(std::iter::once(bytes))
    }

    /// Uses the caller's bytes as the plan's [spaces](Self::spaces), in order: arenas, then
    /// the buffers of inputs and outputs that the plan leaves to the caller.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), for any space.
    pub fn bind_all<'a>(
        &self,
        buffers: impl IntoIterator<Item = &'a mut [u8]>,
    ) -> Result<Arena<'a>> {
        let buffers: Vec<_> = buffers.into_iter().collect();
        if buffers.len() != self.spaces().len() {
            return Err(Error::SpaceCount { spaces: self.spaces().len(), given: buffers.len() });
        }
        for (space, buffer) in self.spaces().iter().zip(&buffers) {
            let bytes = u64::try_from(buffer.len()).unwrap_or(u64::MAX);
            if bytes < space.arena_bytes {
                return Err(Error::BufferTooSmall { bytes, needed: space.arena_bytes });
            }
            let address = u64::try_from(buffer.as_ptr().addr()).unwrap_or(u64::MAX);
            if space.arena_bytes > 0 && !Alignment::new(space.alignment)?.divides(address) {
                return Err(Error::MisalignedBuffer { alignment: space.alignment });
            }
        }
        Ok(Arena { regions: buffers.into_iter().map(Region::Bound).collect() })
    }
}

impl Arena<'static> {
    /// Allocates one stretch of bytes, zeroed and aligned, whatever is going to be in it.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`] if there is not enough memory.
    pub fn zeroed(bytes: u64, alignment: Alignment) -> Result<Self> {
        Ok(Arena { regions: vec![Region::Owned(AlignedBytes::zeroed(bytes, alignment)?)] })
    }
}

impl Arena<'_> {
    /// Returns all bytes of a space, or `None` if there is no such space.
    pub fn bytes(&self, space: SpaceId) -> Option<&[u8]> {
        self.regions.get(space.index()).map(Region::bytes)
    }

    /// Returns all bytes of a space to write, or `None` if there is no such space.
    pub fn bytes_mut(&mut self, space: SpaceId) -> Option<&mut [u8]> {
        self.regions.get_mut(space.index()).map(Region::bytes_mut)
    }

    /// Returns the address of a space's first byte, for foreign code that is handed the
    /// whole arena; `None` if there is no such space, or its bytes are the caller's own.
    pub fn address(&self, space: SpaceId) -> Option<NonNull<u8>> {
        match self.regions.get(space.index())? {
            Region::Owned(bytes) => Some(bytes.as_ptr()),
            Region::Bound(_) => None,
        }
    }

    /// Returns the bytes of `value`.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`] if the plan does not place it, and
    /// [`Error::PlanOutOfBounds`] if the plan is not the one the arena was made for.
    pub fn value(&self, plan: &Plan, value: ValueId) -> Result<&[u8]> {
        let placement = placement(plan, value)?;
        let bytes = self.bytes(SpaceId::from(placement.space)).unwrap_or_default();
        span(placement.offset, placement.bytes)
            .and_then(|span| bytes.get(span))
            .ok_or_else(|| out_of_bounds(placement, bytes.len()))
    }

    /// Returns the bytes of `value` to write.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value).
    pub fn value_mut(&mut self, plan: &Plan, value: ValueId) -> Result<&mut [u8]> {
        let placement = placement(plan, value)?;
        let bytes = self.bytes_mut(SpaceId::from(placement.space)).unwrap_or_default();
        let arena = bytes.len();
        span(placement.offset, placement.bytes)
            .and_then(|span| bytes.get_mut(span))
            .ok_or_else(|| out_of_bounds(placement, arena))
    }

    /// Lends what one node reads and writes: see [`NodeMemory`].
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`] if the plan has no such node.
    /// - [`Error::PlanOutOfBounds`] if the plan is not the one the arena was made for.
    /// - [`Error::PlanOverlap`] if the node would write bytes that it reads or writes as
    ///   something else; a plan that was checked has no such node.
    pub fn node(&mut self, plan: &Plan, node: NodeId) -> Result<NodeMemory<'_>> {
        lend::lend(self, plan, node)
    }
}

/// Returns where a plan puts `value`.
fn placement(plan: &Plan, value: ValueId) -> Result<&Placement> {
    plan.placement(value).ok_or_else(|| Error::UndefinedValue {
        user: "the caller".into(),
        value: format!("value {value}"),
    })
}

/// Returns a span of bytes as positions in a slice.
fn span(offset: u64, bytes: u64) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(bytes).ok()?)?;
    Some(start..end)
}

fn out_of_bounds(placement: &Placement, arena: usize) -> Error {
    Error::PlanOutOfBounds {
        what: format!("value {}", crate::error::quoted(&placement.name)),
        start: placement.offset,
        end: u128::from(placement.offset) + u128::from(placement.bytes),
        arena: u64::try_from(arena).unwrap_or(u64::MAX),
    }
}
