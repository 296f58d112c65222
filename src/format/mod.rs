//! Files: graphs, plans and hazards as JSON, plans alone or several in one arena, problems as CSV; and their
//! writer.

mod csv;
mod file;
mod graph;
mod hazards;
mod json;
mod names;
mod shared;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use csv::CsvProblem;
pub(crate) use file::{MAX_FILE_BYTES, read};
pub use file::{WriteError, write_file, write_files};
pub(crate) use graph::GraphDocument;
pub use graph::{GRAPH_VERSION, graph_schema};
pub use hazards::hazards_schema;
pub(crate) use json::PlanDocument;
pub use json::{PLAN_VERSION, plan_schema};
pub use names::Names;

use crate::base::{Error, Result, hexadecimal, quoted};

/// Bytes of memory per byte of text: lists of short lists take most.
const MEMORY_PER_BYTE: usize = 16;

/// Refuses to read `bytes` of text if the memory for the result cannot be allocated now.
pub(crate) fn admit(bytes: usize, what: &'static str) -> Result<()> {
    let mut room = Vec::<u8>::new();
    let found = room.try_reserve_exact(bytes.saturating_mul(MEMORY_PER_BYTE));
    found.map_err(|_| Error::OutOfMemory { what })
}

/// Returns the SHA-256, in hexadecimal, of a document without its checksum.
pub(crate) fn checksum(document: &impl Serialize) -> String {
    let text = serde_json::to_vec(document).expect("numbers and text become JSON");
    hexadecimal(&Sha256::digest(&text))
}

/// The format and version that a document says it has.
#[derive(Default, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: Option<String>,
    pub(crate) version: Option<u64>,
}

impl Head {
    /// Reads the fields from text that may have others.
    pub(crate) fn of(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    /// Returns the reason why text is not of a format, if the format is the reason.
    pub(crate) fn other_than(&self, format: &str) -> Option<String> {
        let other = self.format.as_ref().filter(|&known| known != format);
        other.map(|other| format!("its format is {}", quoted(other)))
    }
}

pub(crate) fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}
