//! Recomputation: sequences of node executions that need fewer bytes than any node order.
//!
//! A *schedule* is a sequence of executions in which a [pure](crate::graph::Node::is_pure) node may
//! recur; each reader reads the latest value that was made before. Each execution is one step, so a
//! value that is made twice has two live ranges and two places.
//!
//! [`Recompute::new`] prepares a graph. The order is improved, *separators* (nodes before which
//! many bytes are retained) are found, and the first sequences are made: by minimum cuts over
//! prices for retained bytes, with the segments by Chen et al. (2016), with MXNet's mirror, and
//! with chain reversal by Griewank and Walther (2000). [`Recompute::within`] improves the best of
//! these sequences. Executions move across the highest step, and values there are dropped and made
//! again before the next reader, by the largest gain per cost. Superfluous executions are left out. Both are repeated after
//! undoing a part. This search runs once, over a grid of falling budgets: see `stairs.rs`. The
//! formulation with retention intervals is that of Moccasin (Bartan et al. 2023); the problem is
//! that of Checkmate (Jain et al. 2020).
//!
//! [`Recompute::paging_to`] lets values also leave for a slow memory and come back: see `paging.rs`.
//!
//! Nodes that run graphs themselves may have less inner memory: see `inner_memory.rs`.
//!
//! [`Recompute::bound`] is a proven lower bound of the extra work over all schedules: see
//! `cost_bound.rs`.

mod closure;
mod cost_bound;
mod cut;
mod greedy;
mod inner_memory;
mod moved_runs;
mod narrow_ids;
mod node_orders;
mod paged_values;
mod paging;
mod separator;
mod sequence;
mod sequence_model;
mod sequence_search;
mod stairs;
mod starts;
mod trial;

use alloc::{format, string::String, vec::Vec};
use core::str::FromStr;

pub use cut::minimum_cut;

use crate::base::{Error, Execution, NodeId, Result, quoted};
use crate::graph::{ChosenInner, Graph};
use crate::liveness::LivenessOptions;
use crate::pack::{Budget, Space};
use inner_memory::{InnerMemory, SizedSchedule, smallest};
use sequence_search::{SequenceCandidate, SequenceSearch};

/// A strategy for recomputation that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// Segments with about equally many bytes, of which only the boundaries are retained, for the
    /// number of segments with the fewest bytes (Chen et al. 2016).
    SqrtN,
    /// Results of nodes that compute more than they move are retained; all other results are made
    /// again (MXNet's mirror).
    MxnetMirror,
}

impl Strategy {
    /// Returns the name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SqrtN => "sqrt-n",
            Self::MxnetMirror => "mxnet-mirror",
        }
    }
}

impl FromStr for Strategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut known = [Self::SqrtN, Self::MxnetMirror].into_iter();
        known.find(|strategy| strategy.name() == text).ok_or_else(|| {
            let reason = format!("it is 'sqrt-n' or 'mxnet-mirror', not {}", quoted(text));
            Error::InvalidOption { option: "strategy", reason }
        })
    }
}

/// A schedule with bytes and cost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Schedule {
    /// The executions.
    pub executions: Vec<Execution>,
    /// The nodes that have less inner memory than in the graph.
    pub inner: Vec<ChosenInner>,
    /// Bytes that are live at the highest step.
    pub bytes: u64,
    /// Cost of the repetitions and copies, and of less inner memory.
    pub extra_cost: u64,
}

/// Bytes and extra cost of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleFigures {
    pub(crate) bytes: u64,
    pub(crate) extra_cost: u64,
}

/// A graph that is searched for schedules.
///
/// ```
/// use arenaplan::liveness::LivenessOptions;
/// use arenaplan::recompute::Recompute;
/// use arenaplan::{Budget, DType, Graph, Node, Value, ValueKind};
///
/// // Four layers, and the nodes behind that read them in reverse.
/// let mut builder = Graph::builder("chain");
/// let array = |name: String, kind| Value::new(name, kind, DType::UINT8, [1024]);
/// let mut values = vec![builder.add_value(array("x".into(), ValueKind::Input)?)];
/// for layer in 0..4 {
///     let next = builder.add_value(array(format!("a{layer}"), ValueKind::Activation)?);
///     let node = Node::new(format!("f{layer}"), "Layer").reads([values[layer]]).writes([next]);
///     builder.add_node(node.pure().with_cost(1));
///     values.push(next);
/// }
/// let mut last = values[4];
/// for layer in (0..4).rev() {
///     let next = builder.add_value(array(format!("g{layer}"), ValueKind::Activation)?);
///     let node = Node::new(format!("b{layer}"), "Back").reads([last, values[layer]]).writes([next]);
///     builder.add_node(node.pure().with_cost(1).in_place(0, 0));
///     last = next;
/// }
/// builder.add_output(last);
/// let graph = builder.build()?;
///
/// let limits = Budget::default();
/// let mut search = Recompute::new(&graph, LivenessOptions::default(), &[], &limits);
/// assert_eq!(search.plain().bytes, 5 * 1024);
/// let found = search.within(4 * 1024).expect("one layer runs twice");
/// assert_eq!((found.bytes, found.extra_cost), (4 * 1024, 1));
/// assert!(search.within(2 * 1024).is_none());
/// # Ok::<(), arenaplan::Error>(())
/// ```
pub struct Recompute<'a> {
    /// The search with the smallest inner memory of nodes.
    search: SequenceSearch<'a>,
    /// The nodes with a choice of inner memory, if any.
    inner: Option<InnerMemory<'a>>,
    /// The search that may also copy values.
    paging: Option<SequenceSearch<'a>>,
}

impl<'a> Recompute<'a> {
    /// Prepares a search. `orders` are orders of all nodes that are known to be good.
    #[must_use]
    pub fn new(
        graph: &Graph,
        options: LivenessOptions,
        orders: &[Vec<NodeId>],
        limits: &'a Budget<'a>,
    ) -> Self {
        let orders: Vec<Vec<u32>> =
            orders.iter().map(|order| order.iter().map(|&id| id.into()).collect()).collect();
        let begun = |model| SequenceSearch::new(model, &orders, limits);
        let inner = InnerMemory::new(graph, options, begun);
        Self { search: begun(smallest(graph, options)), inner, paging: None }
    }

    /// Lets values also be copied to the memory `slow` and back, at the cost of that memory for each
    /// byte. A schedule is then never dearer than without.
    #[must_use]
    pub fn paging_to(mut self, graph: &Graph, options: LivenessOptions, slow: &Space) -> Self {
        self.paging = Some(self.search.with_paging(graph, smallest(graph, options), slow));
        self
    }

    /// Returns the best schedule that is known in which each node runs once.
    pub fn plain(&self) -> Schedule {
        let search = self.inner.as_ref().map_or(&self.search, |inner| &inner.largest);
        self.schedule(&search.plain)
    }

    /// Returns the cheapest schedule found with at most `bytes` live; `None` if there is none.
    ///
    /// The search runs once and does not depend on `bytes`, and more bytes never cost more work.
    pub fn within(&mut self, bytes: u64) -> Option<Schedule> {
        let known = self.known();
        let end = known.partition_point(|figures| figures.bytes <= bytes);
        self.known_schedule(end.checked_sub(1)?, bytes)
    }

    /// Returns bytes and work of the found schedules, in ascending order by bytes and descending
    /// order by work.
    pub(crate) fn known(&mut self) -> Vec<ScheduleFigures> {
        self.search.walk();
        if let Some(paging) = &mut self.paging {
            paging.take_front(&self.search);
            paging.walk();
        }
        let cost = self.cost();
        let searched = self.paging.as_ref().unwrap_or(&self.search);
        let figures = |it: &SequenceCandidate| {
            let (bytes, extra_cost) = (it.peak, it.cost.saturating_sub(cost));
            ScheduleFigures { bytes, extra_cost }
        };
        match &mut self.inner {
            None => searched.front.iter().map(figures).collect(),
            Some(inner) => {
                inner.choose(searched);
                inner.front.iter().map(|it| figures(&it.found)).collect()
            }
        }
    }

    /// Returns a [known](Self::known) schedule. Copies come back as early as `bytes`, or the
    /// schedule's live bytes if larger, permit.
    pub(crate) fn known_schedule(&self, index: usize, bytes: u64) -> Option<Schedule> {
        if let Some(inner) = &self.inner {
            let SizedSchedule { found, inner } = inner.front.get(index)?;
            return Some(Schedule { inner: inner.clone(), ..self.schedule(found) });
        }
        let Some(paging) = &self.paging else {
            return Some(self.schedule(self.search.front.get(index)?));
        };
        let found = paging.front.get(index)?;
        let sequence = paging.model.prefetched(found.sequence.clone(), found.peak.max(bytes));
        Some(self.schedule(&paging.candidate(sequence)?))
    }

    /// Returns the schedule by a named strategy that needs the fewest bytes.
    pub fn by_strategy(&self, strategy: Strategy) -> Option<Schedule> {
        let search = self.inner.as_ref().map_or(&self.search, |inner| &inner.largest);
        let found = search.classic(strategy == Strategy::MxnetMirror)?;
        Some(self.schedule(&found))
    }

    /// Returns the least extra cost of a schedule by Chen et al. with at most `bytes` live, over
    /// all numbers of segments up to 40.
    pub fn extra_of_chen(&self, bytes: u64) -> Option<u64> {
        let cost = self.search.cheapest_of_chen(bytes)?;
        Some(cost.saturating_sub(self.cost()))
    }

    /// Returns a proven lower bound of the extra cost over all schedules that keep at most `bytes`
    /// between two steps and run each node by itself.
    pub fn bound(&self, bytes: u64) -> u64 {
        self.paging.as_ref().unwrap_or(&self.search).bound(bytes)
    }

    /// Returns the [`bound`](Self::bound) without a search for schedules.
    pub(crate) fn bound_of(
        graph: &Graph,
        options: LivenessOptions,
        order: &[NodeId],
        slow: Option<&Space>,
        bytes: u64,
        limits: &Budget<'_>,
    ) -> u64 {
        let order: Vec<u32> = order.iter().map(|&id| id.into()).collect();
        SequenceSearch::before_starts(smallest(graph, options), &[order], limits)
            .with_copies(graph, slow)
            .bound(bytes)
    }

    /// Returns a lower bound of the bytes over all schedules that run each node by itself: the
    /// operands of one node.
    pub fn floor(&self) -> u64 {
        self.search.model.floor()
    }

    /// Returns the most bytes by which an arena may be below the live bytes of a schedule.
    pub(crate) const fn spared(&self) -> u64 {
        self.search.model.spared
    }

    /// Returns the cost if each node runs once.
    pub const fn cost(&self) -> u64 {
        self.search.model.cost
    }

    /// Returns whether a node may run again.
    pub fn can_repeat(&self) -> bool {
        sequence_search::can_repeat(&self.search.model)
    }

    fn schedule(&self, found: &SequenceCandidate) -> Schedule {
        let extra_cost = found.cost.saturating_sub(self.cost());
        let execution = |&node: &u32| {
            let paging = self.paging.as_ref().and_then(|search| search.model.paging.as_ref());
            paging.map_or(Execution::Run(NodeId::from(node)), |paging| paging.execution(node))
        };
        let executions = found.sequence.iter().map(execution).collect();
        Schedule { executions, inner: Vec::new(), bytes: found.peak, extra_cost }
    }
}

/// Leaves only elements with a smaller figure than all elements before.
pub(crate) fn retain_falling<T>(elements: &mut Vec<T>, figure: impl Fn(&T) -> u64) {
    let mut least = u64::MAX;
    elements.retain(|element| {
        let own = figure(element);
        let is_smaller = own < least;
        least = least.min(own);
        is_smaller
    });
}

impl core::fmt::Debug for Recompute<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let size: String = format!("{} nodes", self.search.model.nodes.len());
        f.debug_struct("Recompute").field("graph", &size).finish_non_exhaustive()
    }
}
