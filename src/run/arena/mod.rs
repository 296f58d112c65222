//! Committed arenas: a plan's bytes, lent step by step.

mod backing;
mod cast;
mod lend;
#[cfg(all(feature = "shared", target_os = "linux"))]
mod memfd;
mod raw;
mod spans;
mod turns;

/// The atomics for [`turns`]; a model checker substitutes other atomics.
mod sync {
    pub(super) use core::sync::atomic::{AtomicU8, Ordering};
}

use alloc::{
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};
use core::ptr::NonNull;

use bytemuck::Pod;

#[doc(hidden)]
pub use backing::Measured;
pub use backing::{ArenaAllocator, ArenaBlock, SystemAllocator};
pub(crate) use cast::{cast, cast_mut, count};
pub use lend::{Input, NodeMemory, Output};
pub(crate) use lend::{Memory, Slots};
#[cfg(all(feature = "shared", target_os = "linux"))]
pub use memfd::{SharedGuard, SharedMemory};
pub(crate) use spans::{Holder, StepSpans, Stretch, Writing, settle};
pub(crate) use turns::Refusal;

use crate::base::{Alignment, Error, Hasher, MAX_BYTES, NodeId, Result, SpaceId, ValueId, quoted};
use crate::plan::{Placement, Plan};
use raw::AlignedBytes;
pub(crate) use raw::{LentStep, SharedRegions};

/// A space's bytes.
#[derive(Debug)]
pub(crate) enum Region<'a> {
    Owned(AlignedBytes),
    Block(Measured),
    Bound(&'a mut [u8]),
}

impl Region<'_> {
    /// Returns a region without bytes.
    pub(crate) fn none() -> Self {
        Self::Bound(<&mut [u8]>::default())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes.as_slice(),
            Self::Block(block) => block.as_slice(),
            Self::Bound(bytes) => bytes,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Owned(bytes) => bytes.as_mut_slice(),
            Self::Block(block) => block.as_mut_slice(),
            Self::Bound(bytes) => bytes,
        }
    }
}

/// The memory of a committed plan: a stretch of bytes per space.
///
/// [`Plan::commit`] allocates the memory, [`Plan::bind`] takes the caller's. An arena lends slices
/// of bytes; two lent slices overlap only if both are shared. An arena knows its plan, and refuses
/// any plan with different digest, spaces or offsets.
///
/// A [`Program`](crate::Program) runs in an arena: see [`step`](Self::step).
///
/// ```
/// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
///
/// let mut builder = Graph::builder("increment");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [4])?);
/// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::FLOAT32, [4])?);
/// builder.add_node(Node::new("increment", "AddOne").reads([x]).writes([y]));
/// builder.add_output(y);
/// let graph = builder.build()?;
/// let plan = Planner::new().plan(&graph)?;
/// let program = plan.program(&graph)?;
///
/// let mut arena = plan.commit()?;
/// arena.value_as_mut::<f32>(&plan, x)?.copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
/// for step in program.steps() {
///     arena.step(&program, step)?.elementwise(|[x]: [f32; 1]| x + 1.0)?;
/// }
/// assert_eq!(arena.value_as::<f32>(&plan, y)?, [2.0, 3.0, 4.0, 5.0]);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Debug)]
pub struct Arena<'a> {
    pub(crate) regions: Vec<Region<'a>>,
    /// Fingerprint of the arena's plan.
    plan: Option<u64>,
}

impl Plan {
    /// Allocates every space's arena, zeroed and aligned, and the buffers that the caller would
    /// otherwise have to bring.
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
        Ok(Arena { regions, plan: Some(self.layout()) })
    }

    /// Takes every space's arena from an allocator, for example for huge pages or shared memory.
    ///
    /// ```
    /// use arenaplan::arena::SystemAllocator;
    /// use arenaplan::{Arena, DType, Graph, Planner, Value, ValueKind};
    ///
    /// // Memory beside its arena in one struct: the arena owns its blocks.
    /// struct Session {
    ///     arena: Arena<'static>,
    /// }
    ///
    /// let mut builder = Graph::builder("nothing to do");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [100])?);
    /// builder.add_output(x);
    /// let plan = Planner::new().plan(&builder.build()?)?;
    /// let mut session = Session { arena: plan.commit_in(&mut SystemAllocator)? };
    /// session.arena.value_mut(&plan, x)?.fill(1);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::ArenaCommit`] if there is not enough memory.
    /// - [`Error::BufferTooSmall`], [`Error::MisalignedBuffer`] if the allocator is faulty.
    pub fn commit_in(&self, allocator: &mut dyn ArenaAllocator) -> Result<Arena<'static>> {
        let mut arena = Arena { regions: Vec::new(), plan: Some(self.layout()) };
        for space in self.spaces() {
            let alignment = Alignment::new(space.alignment)?;
            let block = allocator.allocate(space.arena_bytes, alignment)?;
            let block = Measured::new(block, space.arena_bytes, alignment);
            arena.regions.push(Region::Block(block.map_err(|(_, error)| error)?));
        }
        Ok(arena)
    }

    /// Returns a 64-bit fingerprint that differs if two plans belong to different graphs or have
    /// different layouts.
    pub(crate) fn layout(&self) -> u64 {
        self.fingerprint.get_or_compute(|| {
            let mut hash = Hasher::new();
            hash.text(&self.digest);
            for space in &self.spaces {
                hash.number(space.arena_bytes);
                hash.number(space.alignment);
                hash.number(space.caller.map_or(u64::MAX, u64::from));
            }
            hash.count(self.placements.len());
            for place in &self.placements {
                hash.number(place.value.into());
                hash.number(place.space.into());
                hash.number(place.offset);
                hash.number(place.bytes);
            }
            for work in &self.workspaces {
                hash.number(work.node.into());
                hash.number(work.slot.into());
                hash.number(work.space.into());
                hash.number(work.offset);
                hash.number(work.bytes);
            }
            hash.finish_number()
        })
    }

    /// Returns where each [arena](Self::arenas) begins in a block that holds all arenas side by
    /// side, and the block's bytes: for machines with a single memory.
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

    /// Uses the caller's bytes as the arena of a single-space plan.
    ///
    /// # Errors
    ///
    /// - [`Error::BufferTooSmall`] if there are fewer bytes than the plan needs.
    /// - [`Error::MisalignedBuffer`] if the bytes start at a less aligned address.
    /// - [`Error::SpaceCount`] if the plan has several spaces.
    pub fn bind<'a>(&self, bytes: &'a mut [u8]) -> Result<Arena<'a>> {
        self.bind_all(core::iter::once(bytes))
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
        let mut arena =
            Arena { regions: buffers.into_iter().map(Region::Bound).collect(), plan: None };
        arena.rebind(self)?;
        Ok(arena)
    }
}

impl Arena<'static> {
    /// Allocates a stretch of zeroed, aligned bytes for any content.
    ///
    /// The memory belongs to no plan until a call of [`rebind`](Self::rebind).
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`] if there is not enough memory.
    pub fn zeroed(bytes: u64, alignment: Alignment) -> Result<Self> {
        let regions = vec![Region::Owned(AlignedBytes::zeroed(bytes, alignment)?)];
        Ok(Arena { regions, plan: None })
    }

    /// Returns a plan's arena in regions made for the plan.
    pub(crate) fn of(plan: &Plan, regions: Vec<Region<'static>>) -> Self {
        Arena { regions, plan: Some(plan.layout()) }
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

    /// Returns the address of a space's first byte, for foreign code that gets the whole arena;
    /// `None` if there is no such space, or the bytes are the caller's own: for these, use
    /// [`as_mut_ptr`](Self::as_mut_ptr).
    pub fn address(&self, space: SpaceId) -> Option<NonNull<u8>> {
        match self.regions.get(space.index())? {
            Region::Owned(bytes) => Some(bytes.as_ptr()),
            Region::Block(_) | Region::Bound(_) => None,
        }
    }

    /// Returns the address of a space's first byte, for foreign code that may read and write the
    /// whole space until the arena is used again; `None` if there is no such space.
    pub fn as_mut_ptr(&mut self, space: SpaceId) -> Option<NonNull<u8>> {
        NonNull::new(self.bytes_mut(space)?.as_mut_ptr())
    }

    /// Makes this the arena of `plan`, which may be a new plan: for the same graph with other
    /// sizes, or for another graph that shares the memory. The bytes do not change.
    ///
    /// ```
    /// use arenaplan::base::Alignment;
    /// use arenaplan::{Arena, DType, Graph, Planner, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("nothing to do");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [100])?);
    /// builder.add_output(x);
    /// let plan = Planner::new().plan(&builder.build()?)?;
    ///
    /// let mut arena = Arena::zeroed(4096, Alignment::new(64)?)?;
    /// assert_eq!(arena.value(&plan, x).unwrap_err().kind(), "ArenaMismatch");
    /// arena.rebind(&plan)?;
    /// assert_eq!(arena.value(&plan, x)?.len(), 100);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Plan::bind`]; the arena is then unchanged.
    pub fn rebind(&mut self, plan: &Plan) -> Result<()> {
        let (spaces, given) = (plan.spaces().len(), self.regions.len());
        if given != spaces {
            return Err(Error::SpaceCount { spaces, given });
        }
        for (space, region) in plan.spaces().iter().zip(&self.regions) {
            let bytes = u64::try_from(region.bytes().len()).unwrap_or(u64::MAX);
            if bytes < space.arena_bytes {
                return Err(Error::BufferTooSmall { bytes, needed: space.arena_bytes });
            }
            let address = u64::try_from(region.bytes().as_ptr().addr()).unwrap_or(u64::MAX);
            if space.arena_bytes > 0 && !Alignment::new(space.alignment)?.divides(address) {
                return Err(Error::MisalignedBuffer { alignment: space.alignment });
            }
        }
        self.plan = Some(plan.layout());
        Ok(())
    }

    /// Returns whether this arena's plan has the [layout](Plan::layout).
    pub(crate) fn belongs_to(&self, layout: u64) -> bool {
        self.plan == Some(layout)
    }

    /// Refuses a plan that the arena was not made for.
    fn check_plan(&self, plan: &Plan) -> Result<()> {
        if self.belongs_to(plan.layout()) { Ok(()) } else { Err(mismatch(plan)) }
    }

    /// Returns `value`'s bytes.
    ///
    /// # Errors
    ///
    /// - [`Error::ArenaMismatch`] if the plan is not the arena's plan.
    /// - [`Error::UndefinedValue`] if the plan does not place the value.
    pub fn value(&self, plan: &Plan, value: ValueId) -> Result<&[u8]> {
        self.check_plan(plan)?;
        let placement = placement(plan, value)?;
        let bytes = self.bytes(SpaceId::from(placement.space)).unwrap_or_default();
        span(placement.offset, placement.bytes)
            .and_then(|span| bytes.get(span))
            .ok_or_else(|| out_of_bounds(placement, bytes.len()))
    }

    /// Returns `value`'s bytes to write.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value).
    pub fn value_mut(&mut self, plan: &Plan, value: ValueId) -> Result<&mut [u8]> {
        self.check_plan(plan)?;
        let placement = placement(plan, value)?;
        let bytes = self.bytes_mut(SpaceId::from(placement.space)).unwrap_or_default();
        let arena = bytes.len();
        span(placement.offset, placement.bytes)
            .and_then(|span| bytes.get_mut(span))
            .ok_or_else(|| out_of_bounds(placement, arena))
    }

    /// Returns `value` as elements of type `T`: `arena.value_as::<f32>(&plan, x)`.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value), and [`Error::InvalidCast`] if size or address of the value does
    /// not fit the element type.
    pub fn value_as<T: Pod>(&self, plan: &Plan, value: ValueId) -> Result<&[T]> {
        cast(self.value(plan, value)?).map_err(|reason| invalid_cast(plan, value, reason))
    }

    /// Returns `value` as elements of type `T` to write.
    ///
    /// # Errors
    ///
    /// As [`value_as`](Self::value_as).
    pub fn value_as_mut<T: Pod>(&mut self, plan: &Plan, value: ValueId) -> Result<&mut [T]> {
        cast_mut(self.value_mut(plan, value)?).map_err(|reason| invalid_cast(plan, value, reason))
    }

    /// Lends the memory of a node that is a step by itself: see [`NodeMemory`].
    ///
    /// Each call computes the layout and allocates, unlike [`step`](Self::step). A plan does not
    /// say which states a node mutates, so states are lent for reading.
    ///
    /// # Errors
    ///
    /// - [`Error::ArenaMismatch`] if the plan is not the arena's plan.
    /// - [`Error::UndefinedValue`] if the plan has no such node.
    /// - [`Error::FusedNode`] if the node is fused: only the step as a whole has memory.
    /// - [`Error::PlanOverlap`] if the node would write bytes that the node also uses otherwise; a
    ///   checked plan has no such node.
    pub fn node(&mut self, plan: &Plan, node: NodeId) -> Result<NodeMemory<'_>> {
        self.check_plan(plan)?;
        let step = plan.step_of(node).ok_or_else(|| Error::UndefinedValue {
            user: "the caller".into(),
            value: format!("node {node}"),
        })?;
        if !step.fused.is_empty() {
            let is_last = u32::from(node) == step.node;
            let node = if is_last { quoted(&step.name) } else { node.to_string() };
            return Err(Error::FusedNode { node, step: quoted(&step.name) });
        }
        let spans = settle(plan, step, &[])?;
        NodeMemory::of(&mut self.regions, &spans).ok_or_else(|| mismatch(plan))
    }
}

/// Returns the error for an arena that does not belong to a plan.
pub(crate) fn mismatch(plan: &Plan) -> Error {
    Error::ArenaMismatch { model: quoted(plan.model()) }
}

fn invalid_cast(plan: &Plan, value: ValueId, reason: String) -> Error {
    let name = plan.placement(value).map_or("", |placement| &*placement.name);
    Error::InvalidCast { what: format!("value {}", quoted(name)), reason }
}

/// Returns where a plan puts `value`.
fn placement(plan: &Plan, value: ValueId) -> Result<&Placement> {
    plan.placement(value).ok_or_else(|| Error::UndefinedValue {
        user: "the caller".into(),
        value: format!("value {value}"),
    })
}

/// Returns a span of bytes as positions in a slice.
#[doc(hidden)]
pub fn span(offset: u64, bytes: u64) -> Option<core::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(bytes).ok()?)?;
    Some(start..end)
}

fn out_of_bounds(placement: &Placement, arena: usize) -> Error {
    Error::PlanOutOfBounds {
        what: format!("value {}", quoted(&placement.name)),
        start: placement.offset,
        end: u128::from(placement.offset) + u128::from(placement.bytes),
        arena: u64::try_from(arena).unwrap_or(u64::MAX),
    }
}
