//! Hazards as JSON, published as [`hazards_schema`].

use alloc::{
    borrow::ToOwned as _,
    format,
    string::{String, ToString as _},
    vec::Vec,
};

use serde::{Deserialize, Serialize};

use super::form::MAX_FILE_BYTES;
use super::form::to_text;
use crate::base::{Error, Result, quoted};
use crate::plan::{Hazard, Hazards};

const FORMAT: &str = "arenaplan-hazards";
const VERSION: u32 = 1;

/// Most steps in a file: positions have 32 bits.
const MOST_STEPS: u64 = 1 << 32;

/// Returns the JSON Schema (draft 2020-12) of hazards.
///
/// ```
/// assert!(arenaplan::format::hazards_schema().contains("write-after-read"));
/// ```
#[must_use]
pub const fn hazards_schema() -> &'static str {
    include_str!("../../schema/hazards.schema.json")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HazardsDocument {
    format: String,
    version: u32,
    model: String,
    digest: String,
    steps: u64,
    edges: Vec<Hazard>,
}

impl Hazards {
    /// Returns the hazards as JSON text: equal hazards always give the same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        let document = HazardsDocument {
            format: FORMAT.into(),
            version: VERSION,
            model: self.model().to_owned(),
            digest: self.digest().to_owned(),
            steps: u64::try_from(self.steps()).unwrap_or(u64::MAX),
            edges: self.edges().to_vec(),
        };
        to_text(&document)
    }

    /// Returns the hazards in a JSON text. Hazards are trusted only after
    /// [`Plan::check_hazards`](crate::Plan::check_hazards).
    ///
    /// # Errors
    ///
    /// - [`Error::PlanTooLarge`] if the text is longer than 1 GiB.
    /// - [`Error::PlanVersion`] if the text has another version.
    /// - [`Error::PlanCorrupt`] if the text holds no hazards, or an edge does not lead to a later
    ///   step or comes twice.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if bytes > MAX_FILE_BYTES {
            return Err(Error::PlanTooLarge { bytes, limit: MAX_FILE_BYTES });
        }
        let corrupt = |reason: String| Error::PlanCorrupt { reason };
        let document: HazardsDocument =
            serde_json::from_slice(text).map_err(|error| corrupt(error.to_string()))?;
        if document.format != FORMAT {
            return Err(corrupt(format!("its format is {}", quoted(&document.format))));
        }
        if document.version != VERSION {
            let reason = format!("the hazards are of version {}", document.version);
            return Err(Error::PlanVersion { reason });
        }
        // In a sensible file each step but the first few has an edge; the table has an entry for
        // every step.
        let most = MOST_STEPS.min(bytes.saturating_mul(1024));
        let steps = usize::try_from(document.steps).ok().filter(|_| document.steps <= most);
        let steps = steps.ok_or_else(|| corrupt(format!("it has {} steps", document.steps)))?;
        let (model, digest) = (document.model, document.digest);
        Self::new(model, digest, steps, document.edges)
            .ok_or_else(|| corrupt("an edge leads to no later step, or is there twice".into()))
    }
}
