//! Plans that share an arena as JSON: the plan files of all, with where each begins.

use alloc::{
    string::{String, ToString as _},
    vec::Vec,
};
#[cfg(feature = "std")]
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[cfg(feature = "std")]
use super::file;
use super::form::{Form, to_text};
use crate::base::{Error, Result};
use crate::pack::Status;
use crate::plan::{Plan, SharedMember, SharedPlan, Together};

const FORM: Form = Form {
    format: "arenaplan-shared",
    version: 1,
    too_large: |bytes, limit| Error::PlanTooLarge { bytes, limit },
    corrupt,
    other_version: |reason| Error::PlanVersion { reason },
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedDocument {
    format: String,
    version: u32,
    together: Together,
    arena_bytes: u64,
    lower_bound: u64,
    status: Status,
    alignment: u64,
    capacity: Option<u64>,
    plans: Vec<MemberDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberDocument {
    base: u64,
    plan: Value,
}

impl SharedPlan {
    /// Returns the plans as JSON text: the same plans always give the same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        let member = |one: &SharedMember| {
            let plan = serde_json::from_str(&one.plan.to_json()).expect("a plan is JSON");
            MemberDocument { base: one.base, plan }
        };
        let document = SharedDocument {
            format: FORM.format.into(),
            version: FORM.version,
            together: self.together,
            arena_bytes: self.arena_bytes(),
            lower_bound: self.lower_bound,
            status: self.status(),
            alignment: self.alignment(),
            capacity: self.capacity,
            plans: self.members.iter().map(member).collect(),
        };
        to_text(&document)
    }

    /// Returns the plans in a JSON text; call [`check`](Self::check) before using the plans.
    ///
    /// # Errors
    ///
    /// As [`Plan::from_json`].
    pub fn from_json(text: &[u8]) -> Result<Self> {
        FORM.check_size(text)?;
        let document: SharedDocument =
            serde_json::from_slice(text).map_err(|error| corrupt(error.to_string()))?;
        FORM.check_head(&document.format, document.version.into())?;
        let mut members = Vec::with_capacity(document.plans.len());
        for MemberDocument { base, plan } in document.plans {
            let text = serde_json::to_vec(&plan).map_err(|error| corrupt(error.to_string()))?;
            members.push(SharedMember { base, plan: Plan::from_json(&text)? });
        }
        let SharedDocument { together, lower_bound, capacity, .. } = document;
        let shared = Self { together, members, lower_bound, capacity };
        let said = (document.arena_bytes, document.status, document.alignment);
        if said != (shared.arena_bytes(), shared.status(), shared.alignment()) {
            return Err(corrupt("its totals are not those of its plans".into()));
        }
        Ok(shared)
    }

    /// Writes the plans to a file, as [`write_file`](crate::format::write_file) does.
    ///
    /// # Errors
    ///
    /// As [`write_file`](crate::format::write_file).
    #[cfg(feature = "std")]
    pub fn save(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        file::write_file(path, self.to_json().as_bytes()).map_err(|error| error.source)
    }

    /// Reads plans from a file; call [`check`](Self::check) before using the plans.
    ///
    /// # Errors
    ///
    /// [`Error::FileUnreadable`], and as [`from_json`](Self::from_json).
    #[cfg(feature = "std")]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_json(&file::read(path.as_ref())?)
    }
}

fn corrupt(reason: String) -> Error {
    Error::PlanCorrupt { reason }
}
