//! Parts of plans as named values: frozen, comparable, hashable, and copied by `pickle`.

use std::hash::{Hash, Hasher};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::error::OrRaise;

/// Defines a result class: a struct, a constructor with one argument per field, the arguments for
/// `copy` and `pickle`, `Name(field=value, ...)` as representation, and the methods that follow the
/// struct.
macro_rules! record {
    (
        $(#[$about:meta])*
        pub(crate) struct $name:ident {
            $($(#[$field_about:meta])* pub(crate) $field:ident: $kind:ty,)+
        }
        $($methods:tt)*
    ) => {
        $(#[$about])*
        #[pyclass(frozen, eq, hash, get_all, from_py_object, module = "arenaplan._core")]
        pub(crate) struct $name {
            $($(#[$field_about])* pub(crate) $field: $kind,)+
        }

        #[pymethods]
        impl $name {
            #[new]
            #[allow(clippy::too_many_arguments, reason = "one per field")]
            fn new($($field: $kind),+) -> Self {
                Self { $($field),+ }
            }

            #[allow(clippy::clone_on_copy, reason = "some fields are text")]
            fn __getnewargs__(&self) -> ($($kind,)+) {
                ($(self.$field.clone(),)+)
            }

            #[allow(clippy::clone_on_copy, reason = "some fields are text")]
            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let fields = [
                    $(format!(
                        "{}={}",
                        stringify!($field),
                        self.$field.clone().into_bound_py_any(py)?.repr()?
                    ),)+
                ];
                Ok(format!("{}({})", stringify!($name), fields.join(", ")))
            }

            $($methods)*
        }
    };
}

record! {
    /// Steps ``start`` up to, and without, ``end``.
    ///
    /// Examples
    /// --------
    /// >>> import arenaplan as ap
    /// >>> live = ap.Live(2, 5)
    /// >>> live, live.end - live.start
    /// (Live(start=2, end=5), 3)
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct Live {
        /// First step.
        pub(crate) start: u32,
        /// First step after the last live step.
        pub(crate) end: u32,
    }
}

record! {
    /// A value's place.
    ///
    /// Examples
    /// --------
    /// >>> import arenaplan as ap
    /// >>> graph = ap.Graph()
    /// >>> x = graph.input("x", (64,))
    /// >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    /// >>> graph.output(y)
    /// >>> plan = ap.plan(graph)
    /// >>> plan["x"].bytes, plan["x"].live
    /// (256, Live(start=0, end=1))
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct Placement {
        /// Space index in ``plan.spaces``; from ``len(plan.spaces)`` on, numbers count
        /// ``plan.caller_buffers``.
        pub(crate) space: u32,
        /// First byte in the space.
        pub(crate) offset: u64,
        /// Size in bytes.
        pub(crate) bytes: u64,
        /// Steps in which the bytes are needed.
        pub(crate) live: Live,
    }

    /// Whether another value has exactly the same bytes in the same space, at whatever time.
    fn same_bytes(&self, other: &Self) -> bool {
        (self.space, self.offset, self.bytes) == (other.space, other.offset, other.bytes)
    }
}

record! {
    /// The place of a scratch buffer for one step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct PlacedWorkspace {
        /// Node index; of nodes that run as one, the last.
        pub(crate) node: u32,
        /// Position among the node's workspaces.
        pub(crate) slot: u32,
        /// Size index among the workspace's choices.
        pub(crate) choice: u32,
        /// Space index in ``plan.spaces``.
        pub(crate) space: u32,
        /// First byte in the space.
        pub(crate) offset: u64,
        /// Size in bytes.
        pub(crate) bytes: u64,
        /// The node's step, as a range.
        pub(crate) live: Live,
    }
}

record! {
    /// Memory for some rows of a value inside a step that runs strip by strip.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct LineBuffer {
        /// Value index.
        pub(crate) value: u32,
        /// First byte in the first workspace of the step's last node.
        pub(crate) offset: u64,
        /// Row count in the buffer.
        pub(crate) rows: u64,
    }
}

record! {
    /// A value inside such a step whose rows are made in a later value's rows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct RowsInPlace {
        /// Value index.
        pub(crate) value: u32,
        /// Index of the value that takes the rows over.
        pub(crate) of: u32,
    }
}

record! {
    /// How the nodes of a step run strip by strip: see ``arenaplan::plan::Strips`` in Rust.
    ///
    /// Examples
    /// --------
    /// >>> import arenaplan as ap
    /// >>> graph = ap.Graph()
    /// >>> rows = ap.Window(0, 0, axis=2, extent=3, before=1)
    /// >>> last = graph.input("x", (1, 8, 64, 64))
    /// >>> for name in "ab":
    /// ...     (last,) = graph.node("Conv", [last], [(name, (1, 8, 64, 64), "float32")], windows=[rows])
    /// >>> graph.output(last)
    /// >>> strips = ap.Strips(1, 4, [ap.LineBuffer(1, 0, rows=6)], [])
    /// >>> plan = ap.plan(graph, target="ideal", steps=[[0, 1]], strips=[strips])
    /// >>> verdict = plan.check(graph)
    /// >>> plan.strips[0].buffers
    /// [LineBuffer(value=1, offset=0, rows=6)]
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct Strips {
        /// The step's last node index.
        pub(crate) node: u32,
        /// Output rows that are made at once.
        pub(crate) rows: u64,
        /// The line buffers, in the order in which the values are made.
        pub(crate) buffers: Vec<LineBuffer>,
        /// Values that are made in another value's rows.
        pub(crate) in_place: Vec<RowsInPlace>,
    }
}

impl Strips {
    /// Returns the strips that the core knows.
    pub(crate) fn read(&self) -> (arenaplan::NodeId, arenaplan::plan::Strips) {
        let buffers = self.buffers.iter();
        let in_place = self.in_place.iter();
        let strips = arenaplan::plan::Strips {
            rows: self.rows,
            buffers: buffers
                .map(|it| arenaplan::plan::LineBuffer {
                    value: it.value,
                    offset: it.offset,
                    rows: it.rows,
                })
                .collect(),
            in_place: in_place
                .map(|it| arenaplan::plan::RowsInPlace { value: it.value, of: it.of })
                .collect(),
        };
        (arenaplan::NodeId::from(self.node), strips)
    }

    /// Returns the strips for a step that ends with a node.
    pub(crate) fn of(node: u32, strips: &arenaplan::plan::Strips) -> Self {
        let buffers = strips.buffers.iter();
        let in_place = strips.in_place.iter();
        Self {
            node,
            rows: strips.rows,
            buffers: buffers
                .map(|it| LineBuffer { value: it.value, offset: it.offset, rows: it.rows })
                .collect(),
            in_place: in_place.map(|it| RowsInPlace { value: it.value, of: it.of }).collect(),
        }
    }
}

record! {
    /// The part of a model that a graph, and a plan for the graph, stand for. No consumer that
    /// answers for the model, such as a budget or a gate, accepts a part.
    ///
    /// Examples
    /// --------
    /// >>> import arenaplan as ap
    /// >>> graph = ap.Graph()
    /// >>> graph.output(graph.input("x", (64,)))
    /// >>> str(ap.plan(graph).covers)
    /// 'the whole model'
    #[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
    pub(crate) struct Covers {
        /// Nodes that are not in the graph, because needed sizes depend on data.
        pub(crate) waiting: Vec<String>,
        /// The causes of those sizes, a sentence each.
        pub(crate) deciders: Vec<String>,
        /// Name of the model's entry point, if the model has several.
        pub(crate) signature: String,
        /// Names of the other entry points, which are not in the graph.
        pub(crate) others: Vec<String>,
    }

    /// Whether the graph has the whole model.
    #[getter]
    fn is_whole(&self) -> bool {
        self.read().is_whole()
    }

    /// Refuse a part of a model.
    ///
    /// Raises
    /// ------
    /// PartOfModel
    ///     If the graph has only a part of the model.
    fn require_whole(&self, py: Python<'_>, model: &str) -> PyResult<()> {
        self.read().require_whole(model).or_raise(py)
    }

    fn __str__(&self) -> String {
        self.read().to_string()
    }
}

impl Covers {
    /// Returns the part that the core knows.
    pub(crate) fn read(&self) -> arenaplan::graph::Covers {
        let Self { waiting, deciders, signature, others } = self.clone();
        arenaplan::graph::Covers { waiting, deciders, signature, others }
    }

    /// Returns the part for Python.
    pub(crate) fn of(covers: &arenaplan::graph::Covers) -> Self {
        let arenaplan::graph::Covers { waiting, deciders, signature, others } = covers.clone();
        Self { waiting, deciders, signature, others }
    }
}

record! {
    /// A memory with its arena's size.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct PlannedSpace {
        /// Space name.
        pub(crate) name: String,
        /// Arena size in bytes.
        pub(crate) arena_bytes: u64,
        /// Bytes that these values need in this space at any offsets.
        pub(crate) lower_bound: u64,
        /// The proven status of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or
        /// ``"unknown"``.
        pub(crate) status: String,
        /// Alignment for the arena's first byte.
        pub(crate) alignment: u64,
        /// Bytes that the arena may have, or None if unlimited.
        pub(crate) capacity: Option<u64>,
        /// Cost per byte that a node reads or writes, relative to other spaces.
        pub(crate) cost: u64,
    }
}

record! {
    /// One step that must wait for another.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct Hazard {
        /// The waiting step's index.
        pub(crate) after: u32,
        /// The required earlier step's index.
        pub(crate) before: u32,
        /// Why: ``"data"``, ``"write-after-read"``, ``"write-after-write"`` or ``"control"``.
        pub(crate) kind: String,
    }
}

record! {
    /// The times at which several workers run a plan's steps.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct Timetable {
        /// Worker count.
        pub(crate) workers: u32,
        /// Time by step: the bytes that the nodes touch, unless other costs were given.
        pub(crate) costs: Vec<u64>,
        /// Start time by step.
        pub(crate) starts: Vec<u64>,
    }

    /// Serial time.
    #[getter]
    fn work(&self) -> u64 {
        arenaplan::plan::Timetable::from(self).work()
    }

    /// Time at which the last step ends.
    #[getter]
    fn span(&self) -> u64 {
        arenaplan::plan::Timetable::from(self).span()
    }

    /// How many workers are busy on average.
    #[getter]
    fn parallelism(&self) -> f64 {
        arenaplan::plan::Timetable::from(self).parallelism()
    }
}

record! {
    /// A buffer that the caller brings to each run.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct CallerBuffer {
        /// Value index in the graph.
        pub(crate) value: u32,
        /// Value name.
        pub(crate) name: String,
        /// Size in bytes.
        pub(crate) bytes: u64,
    }
}

record! {
    /// An operand and a result of a node that share bytes.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct Share {
        /// Node index; of nodes that run as one, the last.
        pub(crate) node: u32,
        /// The relation: ``"view"``, ``"in-place"`` or ``"overlap"``.
        pub(crate) rule: String,
        /// Index of the value that the step reads.
        pub(crate) source: u32,
        /// Index of the value that the step writes.
        pub(crate) result: u32,
    }
}

record! {
    /// The move cost per run: for each value the bytes that nodes read and write, times the space's
    /// cost per byte.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct MoveCost {
        /// The plan's cost.
        pub(crate) cost: u64,
        /// Lower bound of the cost for any choice of spaces.
        pub(crate) lower_bound: u64,
    }
}

record! {
    /// Estimated run times.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub(crate) struct Estimate {
        /// Seconds per run of the plan.
        pub(crate) seconds: f64,
        /// Seconds per run in the fastest known way.
        pub(crate) fastest_seconds: f64,
    }
}

record! {
    /// A plan's bytes and time.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct PlanPoint {
        /// Total arena bytes.
        pub(crate) bytes: u64,
        /// Estimated nanoseconds per run; 0 without a backend.
        pub(crate) nanoseconds: u64,
    }
}

impl From<arenaplan::planner::Point> for PlanPoint {
    fn from(point: arenaplan::planner::Point) -> Self {
        Self { bytes: point.bytes, nanoseconds: point.nanoseconds }
    }
}

record! {
    /// The plan for one choice of techniques.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct Level {
        /// Name of the technique in which this choice differs from the compared choice.
        pub(crate) technique: String,
        /// The plan's bytes and time.
        pub(crate) point: PlanPoint,
    }
}

record! {
    /// The values that a step reads and writes, by index, with None for an operand left out.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct StepOperands {
        /// Values that the step reads, by position; for nodes that run as one, the values from
        /// outside, each value once.
        pub(crate) inputs: Vec<Option<u32>>,
        /// Values that the step writes, by position.
        pub(crate) outputs: Vec<Option<u32>>,
    }
}

record! {
    /// A block of memory that values share one after another.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct Block {
        /// Size in bytes.
        pub(crate) bytes: u64,
        /// Space name.
        pub(crate) space: String,
    }
}

record! {
    /// A node that overwrites a state with the bytes of another value; values by index.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct Assign {
        /// Whether the producer of the right side writes the state, and the node does nothing.
        pub(crate) direct: bool,
        /// The left side.
        pub(crate) state: u32,
        /// The right side.
        pub(crate) source: u32,
        /// The node's result: the new bytes of the state.
        pub(crate) result: u32,
    }
}

record! {
    /// The place of a value in an arena that is planned while the model runs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct IncrementalPlacement {
        /// Whether the value is in the persistent arena, and not in the temporary arena.
        pub(crate) persistent: bool,
        /// First byte in the arena.
        pub(crate) offset: u64,
        /// Size in bytes.
        pub(crate) bytes: u64,
    }
}

record! {
    /// Arena bytes of an incremental planner.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct ArenaBytes {
        /// Bytes of the arena for values that die.
        pub(crate) temporary: u64,
        /// Bytes of the arena for states.
        pub(crate) persistent: u64,
    }
}

impl Hash for Estimate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Zeros with both signs are equal.
        let bits = |seconds: f64| (seconds + 0.0).to_bits();
        (bits(self.seconds), bits(self.fastest_seconds)).hash(state);
    }
}

impl From<[u32; 2]> for Live {
    fn from([start, end]: [u32; 2]) -> Self {
        Self { start, end }
    }
}

impl From<&arenaplan::plan::Placement> for Placement {
    fn from(place: &arenaplan::plan::Placement) -> Self {
        let &arenaplan::plan::Placement { space, offset, bytes, live, .. } = place;
        Self { space, offset, bytes, live: live.into() }
    }
}

impl From<&Timetable> for arenaplan::plan::Timetable {
    fn from(table: &Timetable) -> Self {
        let Timetable { workers, costs, starts } = table;
        Self { workers: *workers, costs: costs.clone(), starts: starts.clone() }
    }
}

impl From<arenaplan::plan::Timetable> for Timetable {
    fn from(table: arenaplan::plan::Timetable) -> Self {
        let arenaplan::plan::Timetable { workers, costs, starts } = table;
        Self { workers, costs, starts }
    }
}

impl From<&arenaplan::plan::SpacePlan> for PlannedSpace {
    fn from(space: &arenaplan::plan::SpacePlan) -> Self {
        Self {
            name: space.name.clone(),
            arena_bytes: space.arena_bytes,
            lower_bound: space.lower_bound,
            status: space.status.to_string(),
            alignment: space.alignment,
            capacity: space.capacity,
            cost: space.cost,
        }
    }
}

impl From<arenaplan_classic::sharing::Assign> for Assign {
    fn from(assign: arenaplan_classic::sharing::Assign) -> Self {
        Self {
            direct: assign.kind == arenaplan_classic::sharing::AssignKind::Direct,
            state: assign.state.into(),
            source: assign.source.into(),
            result: assign.result.into(),
        }
    }
}

/// Returns `part` as a fraction of `whole`, to a millionth.
#[allow(clippy::cast_precision_loss, clippy::as_conversions, reason = "a share, for people")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
