//! Files: graphs and plans as JSON, plans alone or several in one arena, problems as CSV; and their
//! writer.

mod csv;
mod file;
mod graph;
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
pub(crate) use json::PlanDocument;
pub use json::{PLAN_VERSION, plan_schema};
pub use names::Names;

use crate::base::{Error, Result, hexadecimal};

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

/// Returns the version that text says it has.
pub(crate) fn version_of(text: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    serde_json::from_slice::<Version>(text).ok().map(|found| found.version)
}

pub(crate) fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}
