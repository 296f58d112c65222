//! Plans: a mapping from names to placements, with steps, spaces, claims and files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arenaplan::base::Step;
use arenaplan::plan::{ShareRule, SpacePlan};
use arenaplan::{NodeId, PlanOptions, SpaceId, Technique, ValueId};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyIterator, PyList};

use crate::arena::Arena;
use crate::arguments::{Arg, Text, object_of};
use crate::call::{self, admit};
use crate::error::{OrRaise, raise_named};
use crate::files::{self, write_all};
use crate::getters::getters;
use crate::graph::Graph;
use crate::hazards::Hazards;
use crate::results::{
    CallerBuffer, Covers, Estimate, Live, MoveCost, PlacedWorkspace, Placement, PlannedSpace,
    Share, StepOperands, Strips, Timetable, ratio,
};
use crate::schedule::{Entry, Paging};
use crate::target::Target;
use crate::verdict::Verdict;
use crate::views;

/// The place of every value of a graph, in one arena per memory.
///
/// A plan maps the name of each placed value to a :class:`Placement`: ``plan[name]``, ``name in
/// plan``, ``len(plan)``, ``for name in plan``. Constants have no place.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> graph = ap.Graph()
/// >>> x = graph.input("x", (64,))
/// >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
/// >>> graph.output(y)
/// >>> plan = ap.plan(graph)
/// >>> len(plan), "x" in plan, "w" in plan
/// (2, True, False)
/// >>> plan["y"].bytes, plan.spaces[0].arena_bytes
/// (256, 512)
#[pyclass(frozen, mapping, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) inner: Arc<arenaplan::Plan>,
    /// Positions among the placements by name, sorted when first asked for.
    by_name: OnceLock<Box<[usize]>>,
}

impl From<arenaplan::Plan> for Plan {
    fn from(inner: arenaplan::Plan) -> Self {
        Self { inner: Arc::new(inner), by_name: OnceLock::new() }
    }
}

/// Return the names of all techniques.
#[pyfunction]
pub(crate) fn techniques() -> Vec<&'static str> {
    Technique::ALL.into_iter().map(Technique::name).collect()
}

/// Return the JSON Schema for plan files.
#[pyfunction]
pub(crate) fn plan_schema() -> &'static str {
    arenaplan::format::plan_schema()
}

getters! { Plan
    /// Model name.
    model: &str = |it| it.inner.model();

    /// Planned graph digest.
    digest: &str = |it| it.inner.digest();

    /// The part of the model that was planned, as stated by the graph.
    covers: Covers = |it| Covers::of(it.inner.covers());

    /// Total arena bytes.
    arena_bytes: u64 = |it| it.inner.arena_bytes();

    /// Bytes if every value had separate memory; None if more than any machine has.
    naive_bytes: Option<u64> = |it| it.inner.naive_bytes();

    /// Bytes that no plan with this order and this sharing can go below.
    lower_bound: u64 = |it| it.inner.lower_bound();

    /// Distance from ``lower_bound`` to ``arena_bytes``, as a fraction of the former.
    gap: f64 = |it| it.inner.gap();

    /// Status of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or
    /// ``"unknown"``.
    status: String = |it| it.inner.status().to_string();

    /// The runner that the plan is for.
    target: Target = |it| Target { inner: it.inner.target().clone() };

    /// Offset alignment in bytes.
    alignment: u64 = |it| it.inner.options().alignment;

    /// Scope of the order: ``"given"`` without a search, ``"complete"`` if no other order of these
    /// steps has fewer live bytes at the highest step, ``"beam"`` for the best of the tried orders;
    /// None if the caller chose the steps.
    order_search: Option<&'static str> = |it| it.inner.search().map(|search| search.order.name());

    /// Bytes that no order of any steps that were tried goes below; None if the caller chose
    /// the steps.
    floor: Option<u64> = |it| it.inner.search().map(|search| search.floor);

    /// Indices of the nodes that run in several steps: cheap nodes, whose small inputs are kept
    /// instead of a large output.
    repeated: Vec<u32> =
        |it| it.inner.repeated().into_iter().map(|(node, _)| node.into()).collect();

    /// Node indices by first run.
    order: Vec<u32> = |it| it.inner.order().map(u32::from).collect();

    /// The memories, each with its arena.
    spaces: Vec<PlannedSpace> = |it| it.inner.arenas().iter().map(PlannedSpace::from).collect();

    /// When several workers run the steps; None if the plan is not for several.
    timetable: Option<Timetable> = |it| it.inner.timetable().cloned().map(Timetable::from);

    /// The executions of a plan in which nodes run again: node indices in the graph without
    /// repetitions, and copied values as :class:`Transfer`. A reader reads the latest value that
    /// was made before. None if each node runs once and no value is copied.
    schedule: Option<Vec<Entry>> =
        |it| it.inner.recomputed().map(|recomputed| Entry::of(&recomputed.schedule));

    /// Nodes by index that have less inner memory than in the graph, with the bytes; empty unless
    /// there is a :attr:`schedule`.
    inner: Vec<(u32, u64)> = |it| {
        let chosen = it.inner.recomputed().map_or(&[][..], |it| &it.inner);
        chosen.iter().map(|it| (it.node.into(), it.bytes)).collect()
    };

    /// The slow memory that values are copied to, which is the last of :attr:`spaces`; None if no
    /// value is.
    paging: Option<Paging> =
        |it| it.inner.recomputed().and_then(|it| it.paging.as_ref()).map(Paging::of);

    /// Work of the repeated nodes and the copies, as a fraction of the work if each node runs once.
    extra_cost: f64 = |it| it.inner.recomputed().map_or(0.0, |it| ratio(it.extra_cost, it.cost));

    /// Proven lower bound of ``extra_cost`` over all schedules with as many bytes that run each
    /// node by itself.
    extra_bound: f64 = |it| it.inner.recomputed().map_or(0.0, |it| ratio(it.extra_bound, it.cost));

    /// Lower bound of the bytes over all schedules that run each node by itself; None if each node
    /// in the plan runs once.
    recompute_floor: Option<u64> = |it| it.inner.recomputed().map(|it| it.floor);
}

#[pymethods]
impl Plan {
    /// The options that the plan was made with.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<BTreeMap<&'static str, Bound<'py, PyAny>>> {
        let PlanOptions {
            alignment,
            optimize,
            effort,
            preserve_inputs,
            inputs,
            outputs,
            workspace,
            parallel_safe,
            workers,
            max_slowdown,
            capacity,
            ..
        } = self.inner.options();
        let techniques: Vec<_> = optimize.iter().map(Technique::name).collect();
        let flag = |value: bool| PyBool::new(py, value).to_owned().into_any();
        Ok(BTreeMap::from([
            ("alignment", alignment.into_pyobject(py)?.into_any()),
            ("in_place", flag(optimize.contains(Technique::InPlace))),
            ("optimize", techniques.into_pyobject(py)?.into_any()),
            ("effort", effort.name().into_pyobject(py)?.into_any()),
            ("preserve_inputs", flag(preserve_inputs)),
            ("inputs", inputs.name().into_pyobject(py)?.into_any()),
            ("outputs", outputs.name().into_pyobject(py)?.into_any()),
            ("parallel_safe", flag(parallel_safe)),
            ("workers", workers.into_pyobject(py)?.into_any()),
            ("workspace", workspace.name().into_pyobject(py)?.into_any()),
            ("max_slowdown", max_slowdown.map(slowdown).into_pyobject(py)?.into_any()),
            ("capacity", capacity.into_pyobject(py)?),
        ]))
    }

    /// Techniques that were asked for and not tried: because the graph is large, nodes may run in any
    /// order, the effort is small, or time was up.
    #[getter]
    fn skipped(&self) -> Vec<&'static str> {
        let search = self.inner.search();
        search.map_or_else(Vec::new, |search| search.skipped.iter().map(Technique::name).collect())
    }

    /// The estimated times of one run; None if time was not weighed against bytes.
    #[getter]
    fn estimate(&self) -> Option<Estimate> {
        let estimate = self.inner.search()?.estimate?;
        let seconds = |nanoseconds| Duration::from_nanos(nanoseconds).as_secs_f64();
        Some(Estimate {
            seconds: seconds(estimate.nanoseconds),
            fastest_seconds: seconds(estimate.fastest_nanoseconds),
        })
    }

    /// For each step the indices of the nodes that run as one, in order; nearly always a single
    /// node.
    #[getter]
    fn steps(&self) -> Vec<Vec<u32>> {
        let steps = self.inner.steps().iter();
        steps.map(|step| step.fused.iter().copied().chain([step.node]).collect()).collect()
    }

    /// For each value in the graph the place, or None for a value without a place, such as a
    /// constant.
    ///
    /// ``plan[name]`` returns a single place by value name.
    #[getter]
    fn placements(&self) -> Vec<Option<Placement>> {
        let mut rows = vec![None; self.inner.value_count()];
        for placement in self.inner.placements() {
            rows[ValueId::from(placement.value).index()] = Some(placement.into());
        }
        rows
    }

    /// Return the place for the value called ``name``.
    ///
    /// Raises
    /// ------
    /// UndefinedValue
    ///     If no value with this name has a place; constants have no place. The exception is a
    ///     ``KeyError``.
    fn __getitem__(&self, py: Python<'_>, name: Arg<&str>) -> PyResult<Placement> {
        self.find(&name).map(Placement::from).ok_or_else(|| {
            let name = arenaplan::base::quoted(&name);
            raise_named(py, "UndefinedValue", format!("the plan has no place for a value {name}"))
        })
    }

    /// Whether a value called ``name`` has a place.
    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<&str>().is_ok_and(|name| self.find(name).is_some())
    }

    /// Number of values that have a place.
    fn __len__(&self) -> usize {
        self.inner.placements().len()
    }

    /// Iterate over the names of the values that have a place, in graph order.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let names = self.inner.placements().iter().map(|place| &place.name);
        PyList::new(py, names)?.try_iter()
    }

    /// Scratch buffers of steps, by node and slot.
    #[getter]
    fn workspaces(&self) -> Vec<PlacedWorkspace> {
        let mut step_of = HashMap::new();
        for (position, step) in (0_u32..).zip(self.inner.steps()) {
            for node in step.nodes().map(u32::from) {
                step_of.entry(node).or_insert(position);
            }
            step_of.insert(step.node, position);
        }
        let rows = self.inner.workspaces().iter().map(|work| {
            let step = step_of.get(&work.node).copied().unwrap_or(u32::MAX);
            PlacedWorkspace {
                node: work.node,
                slot: work.slot,
                choice: work.choice,
                space: work.space,
                offset: work.offset,
                bytes: work.bytes,
                live: Live { start: step, end: step.saturating_add(1) },
            }
        });
        rows.collect()
    }

    /// Return the values that a node's step reads and writes.
    ///
    /// Raises
    /// ------
    /// UndefinedValue
    ///     If there is no such node.
    fn step_operands(&self, py: Python<'_>, node: Arg<u32>) -> PyResult<StepOperands> {
        match self.inner.step_of(NodeId::from(*node)) {
            Some(step) => {
                let (inputs, outputs) = (step.inputs.clone(), step.outputs.clone());
                Ok(StepOperands { inputs, outputs })
            }
            None => Err(raise_named(py, "UndefinedValue", format!("there is no node {}", *node))),
        }
    }

    /// The nodes whose output overlaps an input, by index; of a fused group, the last node.
    #[getter]
    fn overlapped(&self) -> Vec<u32> {
        let is_overlap = |share: &arenaplan::plan::Share| share.rule == ShareRule::Overlap;
        let steps = self.inner.steps().iter();
        steps.filter(|step| step.shares.iter().any(is_overlap)).map(|step| step.node).collect()
    }

    /// The node of each step that continues the step before, in step order.
    ///
    /// A runner performs both in one call: the result replaces the only value that the step before
    /// made, which nothing else reads.
    #[getter]
    fn continued(&self) -> Vec<u32> {
        self.inner.continued().into_iter().map(u32::from).collect()
    }

    /// The strips of each step that runs strip by strip, in step order.
    #[getter]
    fn strips(&self) -> Vec<Strips> {
        let steps = self.inner.steps().iter();
        steps.filter_map(|step| Some(Strips::of(step.node, step.strips.as_ref()?))).collect()
    }

    /// The values in each step that share bytes, in step order.
    ///
    /// A share that names no operand is left out; :meth:`check` refuses such a plan.
    #[getter]
    fn shares(&self) -> Vec<Share> {
        let operand = |operands: &[Option<u32>], position: u32| {
            operands.get(usize::try_from(position).ok()?).copied().flatten()
        };
        let mut rows = Vec::new();
        for step in self.inner.steps() {
            rows.extend(step.shares.iter().filter_map(|share| {
                let rule = match share.rule {
                    ShareRule::InPlace => "in-place",
                    ShareRule::Overlap => "overlap",
                    _ => "view",
                };
                Some(Share {
                    node: step.node,
                    rule: rule.into(),
                    source: operand(&step.inputs, share.input)?,
                    result: operand(&step.outputs, share.output)?,
                })
            }));
        }
        rows
    }

    /// Live bytes in all spaces at every step; shared bytes count once.
    #[getter]
    fn live_bytes(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| {
            let mut total = Vec::new();
            for space in 0..self.inner.arenas().len() {
                let live = self.inner.live_bytes(SpaceId::new(space));
                total.resize(live.len(), 0_u64);
                for (sum, bytes) in total.iter_mut().zip(live) {
                    *sum = sum.saturating_add(bytes);
                }
            }
            total
        })
    }

    /// Return how many bytes of the space at position ``space`` are live at every step.
    fn live_bytes_in(&self, py: Python<'_>, space: Arg<u32>) -> Vec<u64> {
        let space = *space;
        py.detach(|| self.inner.live_bytes(SpaceId::from(space)))
    }

    /// First step at which most bytes in all spaces are live.
    #[getter]
    fn peak_step(&self, py: Python<'_>) -> u32 {
        let mut peak = (0, 0);
        for (step, bytes) in (0..).zip(self.live_bytes(py)) {
            if bytes > peak.1 {
                peak = (step, bytes);
            }
        }
        peak.0
    }

    /// The move cost per run, or None if the plan did not choose the space of each value.
    #[getter]
    fn move_cost(&self) -> Option<MoveCost> {
        let moved = self.inner.move_cost()?;
        Some(MoveCost { cost: moved.cost, lower_bound: moved.lower_bound })
    }

    /// For each value in the graph the bytes that nodes read and write per run, or None for a value
    /// without a place.
    #[getter]
    fn bytes_moved(&self, py: Python<'_>) -> Vec<Option<u64>> {
        let moved = py.detach(|| self.inner.bytes_moved());
        let mut rows = vec![None; self.inner.value_count()];
        for (placement, moved) in self.inner.placements().iter().zip(moved) {
            rows[ValueId::from(placement.value).index()] = Some(moved);
        }
        rows
    }

    /// Return the indices of the values that are live in an arena at ``step``, by offset.
    fn live_at(&self, step: Arg<u32>) -> Vec<u32> {
        let live = self.inner.live_at(Step::new(*step)).into_iter();
        let arenas = self.inner.arenas().len();
        live.filter(|placement| SpaceId::from(placement.space).index() < arenas)
            .map(|placement| placement.value)
            .collect()
    }

    /// The caller's buffers, in value order.
    ///
    /// The buffers are spaces too, behind the last space in ``spaces``.
    #[getter]
    fn caller_buffers(&self) -> Vec<CallerBuffer> {
        let row = |space: &SpacePlan| {
            let (name, bytes) = (space.name.clone(), space.arena_bytes);
            Some(CallerBuffer { value: space.caller?, name, bytes })
        };
        self.inner.caller_buffers().iter().filter_map(row).collect()
    }

    /// Return the name of the space at position ``space``; the name of a caller's buffer begins
    /// with ``"caller:"``.
    fn space_name(&self, py: Python<'_>, space: Arg<u32>) -> PyResult<String> {
        let space = *space;
        let found = self.inner.spaces().get(SpaceId::from(space).index());
        match found {
            Some(SpacePlan { caller: Some(_), name, .. }) => Ok(format!("caller:{name}")),
            Some(space) => Ok(space.name.clone()),
            None => Err(raise_named(py, "ArenaState", format!("the plan has no space {space}"))),
        }
    }

    /// Return a plan of ``graph`` that has the offsets of this plan.
    ///
    /// The graph has the same nodes and values, with other sizes. Each workspace gets the cheapest
    /// size that fits into the planned bytes, or moves to where its step leaves room.
    ///
    /// Raises
    /// ------
    /// PlanMismatch
    ///     If the graph has other nodes or values.
    /// PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
    ///     If the offsets do not serve these sizes.
    fn resized(&self, py: Python<'_>, graph: &Bound<'_, PyAny>) -> PyResult<Self> {
        let graph = match graph.cast::<Graph>() {
            Ok(core) => core.clone(),
            Err(_) => self.declared_graph(&self.seen_graph(graph)?)?,
        };
        let plan = Arc::clone(&self.inner);
        Ok(graph.get().run(py, move |graph| plan.resized(graph))?.or_raise(py)?.into())
    }

    /// Raise unless the plan is valid for ``graph``, and return the proofs of the plan's claims.
    ///
    /// Raises
    /// ------
    /// PlanMismatch
    ///     If the plan was made for another graph.
    /// PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
    ///     If the plan would corrupt bytes, contradicts itself, or makes a false claim.
    fn check(&self, py: Python<'_>, graph: &Bound<'_, PyAny>) -> PyResult<Verdict> {
        let original = self.original(graph)?;
        let graph = self.core_graph(graph)?;
        let plan = Arc::clone(&self.inner);
        let check = move |graph: &_| {
            if let Some(original) = original {
                plan.check_repetitions(&original, graph)?;
            }
            plan.check(graph)
        };
        let inner = graph.get().run(py, check)?.or_raise(py)?;
        Ok(Verdict { inner })
    }

    /// Return the dependencies between the steps: a runner that respects them may run all other
    /// steps in any order, and at the same time.
    ///
    /// Raises
    /// ------
    /// PlanMismatch, PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
    ///     As :meth:`check`.
    fn hazards(&self, py: Python<'_>, graph: &Bound<'_, PyAny>) -> PyResult<Hazards> {
        let graph = self.core_graph(graph)?;
        let plan = Arc::clone(&self.inner);
        Ok(graph.get().run(py, move |graph| plan.hazards(graph))?.or_raise(py)?.into())
    }

    /// Raise unless the hazards are exactly the plan's hazards.
    ///
    /// Raises
    /// ------
    /// HazardMismatch
    ///     If two steps that use the same bytes are not ordered, or an edge is superfluous.
    /// PlanMismatch, PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
    ///     As :meth:`check`.
    fn check_hazards(
        &self,
        py: Python<'_>,
        graph: &Bound<'_, PyAny>,
        hazards: Arg<PyRef<'_, Hazards>>,
    ) -> PyResult<()> {
        let graph = self.core_graph(graph)?;
        let (plan, hazards) = (Arc::clone(&self.inner), Arc::clone(&hazards.inner));
        graph.get().run(py, move |graph| plan.check_hazards(graph, &hazards))?.or_raise(py)
    }

    /// Raise unless ``target`` can run the plan, which may have been made for another target.
    ///
    /// Call :meth:`check` first: this method believes the sizes in the plan.
    ///
    /// Raises
    /// ------
    /// TargetMismatch
    ///     For the first step or option that the target does not honor.
    fn check_target(&self, py: Python<'_>, target: Arg<PyRef<'_, Target>>) -> PyResult<()> {
        self.inner.check_target(&target.inner).or_raise(py)
    }

    /// Raise unless every space holds its planned bytes.
    fn fits(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.fits().or_raise(py)
    }

    /// Return the plan as JSON text.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        let plan = Arc::clone(&self.inner);
        let text = call::run(py, plan.value_count(), move |_, _| plan.to_json())?;
        admit(py, text.len())?;
        Ok(text)
    }

    /// Return the plan that JSON text holds.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: Text<'_>) -> PyResult<Self> {
        Ok(files::parse(py, text, arenaplan::Plan::from_json)?.into())
    }

    /// Write the plan to a file, which is replaced at once or unchanged; a device or a pipe is
    /// written into.
    fn save(&self, py: Python<'_>, path: Arg<PathBuf>) -> PyResult<()> {
        let plan = Arc::clone(&self.inner);
        let text = call::run(py, plan.value_count(), move |_, _| plan.to_json())?;
        write_all(py, vec![(path.0, text)])
    }

    /// Read a plan from a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: Arg<PathBuf>) -> PyResult<Self> {
        Ok(files::load(py, path.0, |path| arenaplan::Plan::load(path))?.into())
    }

    /// Start of each space's arena in the memory that :meth:`commit` allocates.
    #[getter]
    fn bases(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        Ok(self.inner.side_by_side().or_raise(py)?.0)
    }

    /// Allocate the arenas for all spaces, side by side, or only the arena for ``space``.
    #[pyo3(signature = (space=None))]
    fn commit(&self, py: Python<'_>, space: Option<Arg<&str>>) -> PyResult<Arena> {
        Arena::commit(py, &self.inner, space.map(|name| name.0))
    }

    /// Return the places of values and workspaces as a pandas data frame.
    ///
    /// Columns are ``name``, ``kind``, ``space``, ``offset``, ``bytes``, ``start`` and ``stop``
    /// (live steps), ``read_by`` and ``written_by`` (step numbers), in graph order.
    ///
    /// Raises
    /// ------
    /// ImportError
    ///     If pandas is not installed.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        views::view(slf.as_any(), "frame")
    }

    /// Return a drawing of the plan as HTML, for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        views::view(slf.as_any(), "plan")
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (Vec<u8>,))> {
        // Through the same door as a file, so that an unpickled plan is no less checked.
        let text = slf.get().to_json(slf.py())?.into_bytes();
        let load = slf.get_type().getattr("from_json")?;
        Ok((load.unbind(), (text,)))
    }

    fn __repr__(&self) -> String {
        format!(
            "Plan({}, {} bytes, {})",
            arenaplan::base::quoted(self.inner.model()),
            self.inner.arena_bytes(),
            self.inner.status()
        )
    }
}

/// Returns a ratio that is given in thousandths.
fn slowdown(thousandths: u64) -> f64 {
    let thousandths = u32::try_from(thousandths).map_or(f64::INFINITY, f64::from);
    thousandths / 1000.0
}

impl Plan {
    /// Returns the core's graph: `graph` itself, or its variant for a plan with such steps and
    /// workspaces. A graph that the plan was not made for is refused.
    pub(crate) fn core_graph<'py>(&self, graph: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Graph>> {
        if let Ok(core) = graph.cast::<Graph>() {
            return Ok(core.clone());
        }
        let seen = self.seen_graph(graph)?;
        let own = seen.getattr("core")?.cast_into::<Graph>()?;
        self.inner.check_digest(&own.get().inner).or_raise(graph.py())?;
        self.declared_graph(&seen)
    }

    /// Returns the graph that the target of the plan sees, in which each execution is a node.
    fn seen_graph<'py>(&self, graph: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let seen = object_of(graph)?.call_method1("variant", (self.inner.target().name(),))?;
        match self.schedule() {
            Some(schedule) => {
                seen.call_method1("scheduled", (schedule, self.paging(), self.inner()))
            }
            None => Ok(seen),
        }
    }

    /// Returns the graph in the target's view, with the scratch memory of the plan's steps.
    fn declared_graph<'py>(&self, seen: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Graph>> {
        let policy = self.inner.options().workspace.name();
        let target = self.inner.target().name();
        let arguments = (policy, self.steps(), self.overlapped(), target, self.strips());
        Ok(seen.call_method1("core_for", arguments)?.cast_into::<Graph>()?)
    }

    /// Returns the graph without repetitions for a plan in which nodes run again.
    fn original(&self, graph: &Bound<'_, PyAny>) -> PyResult<Option<Arc<arenaplan::Graph>>> {
        if self.inner.recomputed().is_none() || graph.cast::<Graph>().is_ok() {
            return Ok(None);
        }
        let which = if self.inner().is_empty() { "core" } else { "core_with_sizes" };
        let core = object_of(graph)?.getattr(which)?.cast_into::<Graph>()?;
        Ok(Some(Arc::clone(&core.get().inner)))
    }

    /// Returns the place for the value called `name`.
    fn find(&self, name: &str) -> Option<&arenaplan::plan::Placement> {
        let places = self.inner.placements();
        let sorted = self.by_name.get_or_init(|| {
            let mut sorted: Vec<_> = (0..places.len()).collect();
            sorted.sort_by(|&a, &b| places[a].name.cmp(&places[b].name));
            sorted.into()
        });
        let at = sorted.binary_search_by(|&at| places[at].name.as_str().cmp(name)).ok()?;
        places.get(sorted[at])
    }
}
