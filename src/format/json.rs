//! Plans as JSON, published as [`plan_schema`].
//!
//! The text is untrusted: the text is read once, with a limit, into typed fields, and users of the
//! plan call [`Plan::check`]. The checksum distinguishes damage from contradiction, and does not
//! protect against an attacker, who can recompute the checksum.

#![allow(clippy::zero_sized_map_values, reason = "of unknown fields only the names matter")]

use alloc::collections::BTreeMap;
use alloc::{format, string::String, vec::Vec};
#[cfg(feature = "std")]
use std::path::Path;

use super::checksum;
#[cfg(feature = "std")]
use super::file;
use super::form::{Form, to_text};
use super::is_default;
use crate::base::{Alignment, Error, Fingerprint, MAX_BYTES, NodeId, Result, SpaceId, quoted};
use crate::graph::Covers;
use crate::pack::Status;
use crate::plan::{
    MoveCost, Placement, Plan, PlanOptions, PlanStep, Recomputed, Search, SpacePlan, Target,
    Timetable, WorkspacePlacement, index_steps,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// The version of plan files that this crate writes, and the only version that this crate reads.
pub const PLAN_VERSION: u32 = 1;

/// Most graph values per place and operand that a plan names: constants and values inside fused
/// groups have neither.
const VALUES_PER_NAMED: usize = 1024;

const FORM: Form = Form {
    format: "arenaplan",
    version: PLAN_VERSION,
    too_large: |bytes, limit| Error::PlanTooLarge { bytes, limit },
    corrupt,
    other_version: |reason| Error::PlanVersion { reason },
};

/// Returns the JSON Schema (draft 2020-12) for plan files.
///
/// ```
/// assert!(arenaplan::format::plan_schema().contains("\"arena_bytes\""));
/// ```
#[must_use]
pub const fn plan_schema() -> &'static str {
    include_str!("../../schema/plan.schema.json")
}

/// A plan file. Sums over spaces are written for people and compared when read.
#[derive(Serialize, Deserialize)]
pub(crate) struct PlanDocument {
    format: String,
    version: u32,
    model: String,
    digest: String,
    #[serde(default, skip_serializing_if = "is_default")]
    covers: Covers,
    #[serde(default = "ideal", skip_serializing_if = "Target::is_ideal")]
    target: Target,
    options: PlanOptions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    search: Option<Search>,
    arena_bytes: u64,
    lower_bound: u64,
    status: Status,
    naive_bytes: Option<u64>,
    value_count: u32,
    spaces: Vec<SpacePlan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    move_cost: Option<MoveCost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timetable: Option<Timetable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recomputed: Option<Recomputed>,
    steps: Vec<PlanStep>,
    values: Vec<Placement>,
    workspaces: Vec<WorkspacePlacement>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    checksum: String,
    /// Other programs' fields; by convention, names begin with `x-`.
    #[serde(flatten, skip_serializing)]
    extra: BTreeMap<String, IgnoredAny>,
}

/// Files of before there were targets held plans that no runner in particular had to honor.
const fn ideal() -> Target {
    Target::IDEAL
}

impl Plan {
    /// Returns the plan as JSON text: the same plan always gives the same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_text(&PlanDocument::of(self))
    }

    /// Returns the plan that JSON text holds.
    ///
    /// # Errors
    ///
    /// - [`Error::PlanTooLarge`] if the text is longer than 1 GiB.
    /// - [`Error::PlanVersion`] if the version is not [`PLAN_VERSION`], or a field is unknown.
    /// - [`Error::PlanCorrupt`] if the text is not JSON, a field is missing, twice there, or
    ///   of the wrong type, or the checksum does not fit.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        FORM.check_size(text)?;
        FORM.parse::<PlanDocument>(text)?.into_plan()
    }

    /// Refuses a plan that contradicts itself, so that tables and sums can be used before the plan
    /// is checked against a graph: to report, compare or draw the plan.
    fn check_form(&self) -> Result<()> {
        let fail = |reason: String| Err(corrupt(reason));
        let values = self.placements.windows(2).all(|pair| pair[0].value < pair[1].value);
        let key = |workspace: &WorkspacePlacement| (workspace.node, workspace.slot);
        let workspaces = self.workspaces.windows(2).all(|pair| key(&pair[0]) < key(&pair[1]));
        let arenas = self.arenas().len();
        let spaces = self.spaces.iter().skip(arenas).all(|space| space.caller.is_some());
        if !(values && workspaces && spaces) {
            return fail("its values, workspaces or spaces are not in ascending order".into());
        }
        let aligned = self.spaces.iter().map(|space| space.alignment);
        for bytes in core::iter::once(self.options.alignment).chain(aligned) {
            Alignment::new(bytes)
                .map_err(|_| corrupt(format!("the alignment {bytes} is not a power of two")))?;
        }
        let lists = self.steps.iter().map(|step| step.inputs.len() + step.outputs.len());
        let named = lists.fold(self.placements.len(), usize::saturating_add);
        if self.value_count() > named.saturating_add(1).saturating_mul(VALUES_PER_NAMED) {
            return fail(format!("it names {named} values of {}", self.value_count));
        }
        let steps = u32::try_from(self.steps.len().max(1)).unwrap_or(u32::MAX);
        for place in &self.placements {
            let [start, end] = place.live;
            if place.value >= self.value_count || start >= end || end > steps {
                return fail(format!("value {} has no steps", quoted(&place.name)));
            }
            self.check_bytes(place.space, place.offset, place.bytes)?;
        }
        for work in &self.workspaces {
            if self.step_of.get(NodeId::from(work.node).index()).is_none() {
                return fail(format!("no step runs node {}, which has a workspace", work.node));
            }
            self.check_bytes(work.space, work.offset, work.bytes)?;
            if SpaceId::from(work.space).index() >= arenas {
                return fail(format!("a workspace of node {} is in no arena", work.node));
            }
        }
        self.steps.iter().try_for_each(|step| self.check_step(step))
    }

    /// Refuses bytes that no space of the plan can have.
    fn check_bytes(&self, space: u32, offset: u64, bytes: u64) -> Result<()> {
        let is_there = SpaceId::from(space).index() < self.spaces.len();
        if is_there && offset.checked_add(bytes).is_some_and(|end| end <= MAX_BYTES) {
            return Ok(());
        }
        Err(corrupt(format!("{bytes} bytes at {offset} of space {space} are in no memory")))
    }

    /// Refuses a step with operands that are not there, or strips without rows.
    fn check_step(&self, step: &PlanStep) -> Result<()> {
        let fail = |reason: &str| Err(corrupt(format!("step {} {reason}", quoted(&step.name))));
        let is_known = |value: &u32| *value < self.value_count;
        if !step.inputs.iter().chain(&step.outputs).flatten().all(is_known) {
            return fail("has an operand that is not there");
        }
        let Some(strips) = &step.strips else { return Ok(()) };
        let buffers = strips.buffers.iter().all(|buffer| {
            is_known(&buffer.value)
                && buffer.rows.min(strips.rows) > 0
                && buffer.rows.max(buffer.offset).max(strips.rows) <= MAX_BYTES
        });
        let mut pairs = strips.in_place.iter().flat_map(|pair| [&pair.value, &pair.of]);
        if buffers && strips.rows > 0 && pairs.all(is_known) {
            return Ok(());
        }
        fail(
            "has strips without rows, or line buffers outside of any memory or of values that are not there",
        )
    }

    /// Writes the plan to a file, as [`write_file`](crate::format::write_file) does.
    ///
    /// # Errors
    ///
    /// As [`write_file`](crate::format::write_file).
    #[cfg(feature = "std")]
    pub fn save(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        file::write_file(path, self.to_json().as_bytes()).map_err(|error| error.source)
    }

    /// Reads a plan from a file; call [`check`](Self::check) before using the plan.
    ///
    /// # Errors
    ///
    /// [`Error::FileUnreadable`], and as [`from_json`](Self::from_json).
    #[cfg(feature = "std")]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_json(&file::read(path.as_ref())?)
    }
}

impl PlanDocument {
    /// Returns the document for a plan, with a checksum.
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut document = Self::unsealed(plan);
        document.checksum = checksum(&document);
        document
    }

    /// Returns the document for a plan without a checksum.
    pub(crate) fn unsealed(plan: &Plan) -> Self {
        Self {
            format: FORM.format.into(),
            version: FORM.version,
            model: plan.model.clone(),
            digest: plan.digest.clone(),
            covers: plan.covers.clone(),
            target: plan.target.clone(),
            options: plan.options,
            search: plan.search,
            arena_bytes: plan.arena_bytes(),
            lower_bound: plan.lower_bound(),
            status: plan.status(),
            naive_bytes: plan.naive_bytes,
            value_count: plan.value_count,
            spaces: plan.spaces.clone(),
            move_cost: plan.move_cost,
            timetable: plan.timetable.clone(),
            recomputed: plan.recomputed.clone(),
            steps: plan.steps.clone(),
            values: plan.placements.clone(),
            workspaces: plan.workspaces.clone(),
            checksum: String::new(),
            extra: BTreeMap::new(),
        }
    }

    /// Returns the plan that the document describes; see [`Plan::from_json`].
    pub(crate) fn into_plan(mut self) -> Result<Plan> {
        FORM.check_head(&self.format, self.version.into())?;
        FORM.check_fields(&self.extra)?;
        let found = core::mem::take(&mut self.checksum);
        if found != checksum(&self) {
            return Err(corrupt("its checksum does not fit its content".into()));
        }
        let sums = (self.arena_bytes, self.lower_bound, self.status);
        let plan = Plan {
            model: self.model,
            digest: self.digest,
            covers: self.covers,
            target: self.target,
            options: self.options,
            search: self.search,
            step_of: index_steps(&self.steps)
                .ok_or_else(|| corrupt("its steps do not run every node once".into()))?,
            steps: self.steps,
            spaces: self.spaces,
            move_cost: self.move_cost,
            timetable: self.timetable,
            recomputed: self.recomputed,
            naive_bytes: self.naive_bytes,
            value_count: self.value_count,
            placements: self.values,
            workspaces: self.workspaces,
            fingerprint: Fingerprint::default(),
        };
        if sums != (plan.arena_bytes(), plan.lower_bound(), plan.status()) {
            return Err(corrupt("its totals are not those of its spaces".into()));
        }
        plan.check_form()?;
        Ok(plan)
    }
}

fn corrupt(reason: String) -> Error {
    Error::PlanCorrupt { reason }
}
