//! Timetables: whether so many workers can run the steps at these times, and the bytes that are
//! needed at once then.

use alloc::{format, vec, vec::Vec};

use crate::base::{Result, ValueId};
use crate::check::precedence::required;
use crate::check::unit::Unit;
use crate::check::{mismatch, replaced};
use crate::graph::{Graph, ValueKind};
use crate::plan::{Plan, Timetable};

/// The distinct start times of steps, ascending, as a scale for live ranges.
pub(super) struct Clock<'a> {
    table: &'a Timetable,
    starts: Vec<u64>,
}

impl<'a> Clock<'a> {
    fn new(table: &'a Timetable) -> Self {
        let mut starts = table.starts.clone();
        starts.sort_unstable();
        starts.dedup();
        Self { table, starts }
    }

    /// Returns the time at which a step starts, on the scale.
    fn start(&self, step: usize) -> u32 {
        let start = self.table.starts[step];
        narrow(self.starts.partition_point(|&at| at < start))
    }

    /// Returns the first time on the scale at which a step has ended.
    fn end(&self, step: usize) -> u32 {
        let end = self.table.starts[step].saturating_add(self.table.costs[step]);
        // A step without cost still takes the moment of its start.
        narrow(self.starts.partition_point(|&at| at < end)).max(self.start(step) + 1)
    }

    /// Returns a step's time.
    pub(super) fn live(&self, step: usize) -> [u32; 2] {
        [self.start(step), self.end(step)]
    }
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Plan {
    /// Returns the timetable's scale, if there is a timetable.
    pub(super) fn clock(&self) -> Option<Clock<'_>> {
        self.timetable.as_ref().map(Clock::new)
    }

    /// Checks the timetable of a plan whose other fields are valid: a plan for several workers has
    /// a timetable, at most so many steps run at once, and no step starts before all required steps
    /// have ended.
    pub(super) fn check_timetable(&self, graph: &Graph, units: &[Unit<'_>]) -> Result<()> {
        let workers = self.options.workers;
        let Some(table) = &self.timetable else {
            return match workers {
                0 => mismatch("no worker runs it".into()),
                1 => Ok(()),
                _ => mismatch(format!("it has no timetable of its {workers} workers")),
            };
        };
        if workers < 2 || table.workers != workers {
            let found = table.workers;
            return mismatch(format!(
                "its timetable is of {found} workers, and it is for {workers}"
            ));
        }
        if [table.costs.len(), table.starts.len()] != [units.len(); 2] {
            return mismatch("its timetable is of other steps".into());
        }
        let mut events = Vec::with_capacity(2 * units.len());
        for (step, (&start, &cost)) in table.starts.iter().zip(&table.costs).enumerate() {
            let Some(end) = start.checked_add(cost) else {
                return mismatch(format!("its timetable ends after all time, at step {step}"));
            };
            events.push((start, true));
            events.push((end, false));
        }
        // Among events at the same time, ends come first.
        events.sort_unstable();
        let mut running = 0_i64;
        for (time, is_start) in events {
            running += if is_start { 1 } else { -1 };
            if running > i64::from(workers) {
                return mismatch(format!("more than {workers} steps run at time {time}"));
            }
        }
        for (after, before) in required(self, graph, units).into_keys() {
            let end = table.starts[before] + table.costs[before];
            if table.starts[after] < end {
                let [after, before] = [after, before].map(|step| &self.steps[step].name);
                return mismatch(format!(
                    "in its timetable {} starts before {} has ended",
                    crate::base::quoted(after),
                    crate::base::quoted(before),
                ));
            }
        }
        Ok(())
    }

    /// Returns when each value is needed: by step, or on the timetable's scale.
    pub(super) fn needed(&self, graph: &Graph, units: &[Unit<'_>]) -> Vec<[u32; 2]> {
        let mut needed = vec![[0, 0]; graph.values().len()];
        let Some(clock) = self.clock() else {
            for placement in &self.placements {
                needed[ValueId::from(placement.value).index()] = placement.live;
            }
            return needed;
        };
        let last = narrow(clock.starts.len()).max(1);
        for (step, unit) in units.iter().enumerate() {
            let [start, end] = clock.live(step);
            for (_, value) in unit.reads() {
                let needed = &mut needed[value.index()];
                needed[1] = needed[1].max(end);
            }
            for (_, value) in unit.writes() {
                let needed = &mut needed[value.index()];
                *needed = [start, needed[1].max(end)];
            }
        }
        let replaced = replaced(graph);
        for (index, value) in graph.values().iter().enumerate() {
            let kept = match value.kind() {
                _ if replaced[index] => false,
                ValueKind::State => true,
                ValueKind::Input => self.keeps_inputs(),
                _ => false,
            };
            needed[index][1] = if kept { last } else { needed[index][1].max(1) };
        }
        let written_back = graph.write_backs().iter().map(|pair| pair.value);
        for output in graph.outputs().iter().copied().chain(written_back) {
            needed[output.index()][1] = last;
        }
        needed
    }
}
