//! The incremental planner that a runtime calls between nodes.

use alloc::{boxed::Box, format};
use core::ops::Range;

use crate::arenas::Span;
use crate::error::{Error, Result};
use crate::incremental::events::Events;
use crate::incremental::incremental_graph::{AllocationType, IncrementalGraph, at};
use crate::incremental::ranges::Ranges;
use crate::incremental::{IncrementalMode, IncrementalOptions};
use arenaplan::Error as Core;
use arenaplan::arena::{ArenaAllocator, SystemAllocator};

/// A value's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Place {
    /// Whether the value is in the persistent arena.
    pub persistent: bool,
    /// The value's bytes.
    pub span: Span,
}

/// Places the values in a graph whose sizes become known during a run.
///
/// ```
/// use arenaplan::base::Alignment;
/// use arenaplan_classic::incremental::{
///     AllocationType, IncrementalGraph, IncrementalNode, IncrementalOptions, IncrementalPlanner,
///     IncrementalValue,
/// };
///
/// let value = |bytes| IncrementalValue { bytes, kind: AllocationType::Arena };
/// let graph = IncrementalGraph {
///     values: vec![value(100), value(50), value(100)],
///     nodes: vec![
///         IncrementalNode { inputs: vec![Some(0)], outputs: vec![Some(1)], ..Default::default() },
///         IncrementalNode { inputs: vec![Some(1)], outputs: vec![Some(2)], ..Default::default() },
///     ],
///     inputs: vec![Some(0)],
///     outputs: vec![Some(2)],
///     variables: vec![],
/// };
/// let mut planner = IncrementalPlanner::new(graph, IncrementalOptions::default())?;
/// planner.execute(0..1)?;
/// assert_eq!(planner.place(2), None); // its node was not reached yet
/// planner.set_bytes(2, 400)?; // node 0 ran, and the size of value 2 is known now
/// planner.execute(1..2)?;
/// assert_eq!(planner.bytes(2)?.map(<[u8]>::len), Some(400));
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
#[derive(Debug)]
pub struct IncrementalPlanner {
    graph: IncrementalGraph,
    options: IncrementalOptions,
    engine: Engine,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
enum Engine {
    Events(Events),
    Ranges(Ranges),
}

impl IncrementalPlanner {
    /// Returns a planner for `graph` that has placed nothing yet.
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue),
    ///   [`Error::InvalidEffect`](arenaplan::Error::InvalidEffect) if the graph names unknown
    ///   values or operands.
    /// - [`Error::DuplicateProducer`](arenaplan::Error::DuplicateProducer) in mode `default`, if
    ///   two nodes write one value.
    pub fn new(graph: IncrementalGraph, options: IncrementalOptions) -> Result<Self> {
        let system = || Box::new(SystemAllocator);
        Self::with_allocators(graph, options, system(), system())
    }

    /// Returns a planner whose arenas allocate from `temporary` and `persistent`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_allocators(
        graph: IncrementalGraph,
        options: IncrementalOptions,
        temporary: Box<dyn ArenaAllocator>,
        persistent: Box<dyn ArenaAllocator>,
    ) -> Result<Self> {
        let allocators = [temporary, persistent];
        let engine = match options.mode {
            IncrementalMode::TfLite2019 => Engine::Events(Events::new(options, allocators)),
            IncrementalMode::Default | IncrementalMode::LiteRt => {
                Engine::Ranges(Ranges::new(options, allocators))
            }
        };
        let mut planner = Self { graph, options, engine };
        planner.plan_graph(true)?;
        Ok(planner)
    }

    fn plan_graph(&mut self, other_graph: bool) -> Result<()> {
        self.graph.check()?;
        match &mut self.engine {
            Engine::Events(events) => events.plan(&self.graph),
            Engine::Ranges(ranges) => ranges.plan(&self.graph, other_graph),
        }
    }

    /// Works lifetimes out again, after sizes or types have changed; nothing is placed then.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn plan(&mut self) -> Result<()> {
        self.plan_graph(false)
    }

    /// Plans another graph in the same memory.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); then the planner has placed nothing.
    pub fn replace_graph(&mut self, graph: IncrementalGraph) -> Result<()> {
        self.graph = graph;
        self.plan_graph(true)
    }

    /// Places the values that begin with `nodes`, and gets memory for the values.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidOption`](arenaplan::Error::InvalidOption) if there are no such nodes; mode `tflite-2019` does not mind.
    /// - [`Error::ArenaCommit`](arenaplan::Error::ArenaCommit), [`Error::SizeOverflow`](arenaplan::Error::SizeOverflow) if there is not enough memory.
    /// - [`Error::ArenaState`](arenaplan::Error::ArenaState) in mode `default`, if a persistent
    ///   value has grown.
    pub fn execute(&mut self, nodes: Range<usize>) -> Result<()> {
        match &mut self.engine {
            Engine::Events(events) => events.execute(&self.graph, nodes),
            Engine::Ranges(ranges) => {
                let count = self.graph.nodes.len();
                if nodes.start > nodes.end || nodes.end > count {
                    let reason =
                        format!("{}..{} must be within {count} nodes", nodes.start, nodes.end);
                    return Err(Error::Core(Core::InvalidOption { option: "nodes", reason }));
                }
                ranges.execute(&self.graph, nodes)
            }
        }
    }

    /// Forgets where everything is; persistent values stay in our mode.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Events(events) => events.reset(&self.graph),
            Engine::Ranges(ranges) => ranges.reset(&self.graph, false),
        }
    }

    /// Forgets the places of values in the temporary arena that begin after `node`, because one of
    /// these values has changed in size.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`](arenaplan::Error::ArenaState) in mode `tflite-2019`, which has no such
    /// reset.
    pub fn reset_after(&mut self, node: usize) -> Result<()> {
        let (ranges, graph) = self.ranges("forget values after a node")?;
        ranges.reset_after(graph, node);
        Ok(())
    }

    /// Frees the temporary arena's memory, and keeps the offsets.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`](arenaplan::Error::ArenaState) in mode `tflite-2019`, which has no such thing.
    pub fn release_temporary(&mut self) -> Result<()> {
        self.ranges("release memory")?.0.temporary.release();
        Ok(())
    }

    /// Gets the temporary arena's memory back; the content is lost. Does nothing if the memory is
    /// there.
    ///
    /// # Errors
    ///
    /// - [`Error::ArenaState`](arenaplan::Error::ArenaState) in mode `tflite-2019`, which cannot
    ///   release the arena.
    /// - [`Error::ArenaCommit`](arenaplan::Error::ArenaCommit) if there is not enough memory.
    pub fn acquire_temporary(&mut self) -> Result<()> {
        self.ranges("acquire memory")?.0.temporary.commit()?;
        Ok(())
    }

    /// Returns whether the temporary arena has memory.
    pub fn has_temporary(&self) -> bool {
        match &self.engine {
            Engine::Events(events) => events.temporary.buffer_bytes() > 0,
            Engine::Ranges(ranges) => ranges.temporary.buffer_bytes() > 0,
        }
    }

    /// Changes the size of a value, as a node that is prepared or has run does.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such value.
    pub fn set_bytes(&mut self, value: u32, bytes: u64) -> Result<()> {
        self.check(value)?;
        self.graph.values[at(value)].bytes = bytes;
        Ok(())
    }

    /// Changes a value's owner.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such value.
    pub fn set_kind(&mut self, value: u32, kind: AllocationType) -> Result<()> {
        self.check(value)?;
        self.graph.values[at(value)].kind = kind;
        Ok(())
    }

    /// Returns the graph with present sizes and types.
    pub const fn graph(&self) -> &IncrementalGraph {
        &self.graph
    }

    /// Returns the options.
    pub const fn options(&self) -> IncrementalOptions {
        self.options
    }

    /// Returns the place of a value, or `None` if the value has no bytes in an arena, or the
    /// producer was not reached yet.
    pub fn place(&self, value: u32) -> Option<Place> {
        let known = self.graph.values.get(at(value))?;
        let persistent = match known.kind {
            AllocationType::Arena => false,
            AllocationType::PersistentArena => true,
            _ => return None,
        };
        let span = match &self.engine {
            Engine::Events(events) => events.spans[at(value)],
            Engine::Ranges(ranges) => ranges.allocation(&self.graph, value).map(|it| it.span),
        };
        let span = span.filter(|span| span.bytes > 0 && known.bytes > 0)?;
        // A value that shrank keeps the old, larger place.
        let span = Span { bytes: known.bytes.min(span.bytes), ..span };
        Some(Place { persistent, span })
    }

    /// Returns the value whose bytes `value` has: itself, unless `value` shares.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such value.
    pub fn root(&self, value: u32) -> Result<u32> {
        self.check(value)?;
        Ok(match &self.engine {
            Engine::Events(_) => value,
            Engine::Ranges(ranges) => ranges.root(value),
        })
    }

    /// Returns a value's bytes, or `None` where [`place`](Self::place) returns `None`.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`](arenaplan::Error::ArenaState) for values in the temporary arena while
    /// the arena is released.
    pub fn bytes(&self, value: u32) -> Result<Option<&[u8]>> {
        let Some(Place { persistent, span }) = self.place(value) else { return Ok(None) };
        match &self.engine {
            Engine::Events(Events { temporary, persistent: other, .. }) => {
                if persistent { other } else { temporary }.resolve(span)
            }
            Engine::Ranges(Ranges { temporary, persistent: other, .. }) => {
                if persistent { other } else { temporary }.resolve(span)
            }
        }
    }

    /// Returns the bytes of a value to write, or `None` where [`place`](Self::place) returns
    /// `None`.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Self::bytes).
    pub fn bytes_mut(&mut self, value: u32) -> Result<Option<&mut [u8]>> {
        let Some(Place { persistent, span }) = self.place(value) else { return Ok(None) };
        match &mut self.engine {
            Engine::Events(Events { temporary, persistent: other, .. }) => {
                if persistent { other } else { temporary }.resolve_mut(span)
            }
            Engine::Ranges(Ranges { temporary, persistent: other, .. }) => {
                if persistent { other } else { temporary }.resolve_mut(span)
            }
        }
    }

    /// Returns the high-water marks: the temporary arena, then the persistent arena.
    pub fn arena_bytes(&self) -> (u64, u64) {
        match &self.engine {
            Engine::Events(it) => (it.temporary.high_water(), it.persistent.high_water()),
            Engine::Ranges(it) => (it.temporary.high_water(), it.persistent.high_water()),
        }
    }

    /// Returns how much memory the temporary and the persistent arena have.
    pub fn buffer_bytes(&self) -> (u64, u64) {
        match &self.engine {
            Engine::Events(it) => (it.temporary.buffer_bytes(), it.persistent.buffer_bytes()),
            Engine::Ranges(it) => (it.temporary.buffer_bytes(), it.persistent.buffer_bytes()),
        }
    }

    /// Returns an error about a feature that `tflite-2019` lacks.
    fn ranges(&mut self, what: &str) -> Result<(&mut Ranges, &IncrementalGraph)> {
        match &mut self.engine {
            Engine::Ranges(ranges) => Ok((ranges, &self.graph)),
            Engine::Events(_) => Err(Error::Core(Core::ArenaState {
                reason: format!("mode tflite-2019 cannot {what}"),
            })),
        }
    }

    fn check(&self, value: u32) -> Result<()> {
        if at(value) < self.graph.values.len() {
            return Ok(());
        }
        Err(Error::Core(Core::UndefinedValue {
            user: "the caller".into(),
            value: format!("value {value}"),
        }))
    }
}
