//! Files: graphs, plans and hazards as JSON, plans alone or several in one arena, problems as CSV;
//! and the file writer.

mod attribute_json;
#[cfg(feature = "std")]
mod csv;
#[cfg(feature = "std")]
mod file;
mod form;
mod graph_json;
mod hazards_json;
mod json;
mod shared_json;

use alloc::{string::String, vec::Vec};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

#[cfg(feature = "std")]
pub use csv::CsvProblem;
#[cfg(feature = "std")]
pub(crate) use file::read;
#[cfg(feature = "std")]
pub use file::{WriteError, write_file, write_files};
pub(crate) use form::{Form, to_text};
pub(crate) use graph_json::GraphDocument;
pub use graph_json::{GRAPH_VERSION, graph_schema};
pub use hazards_json::hazards_schema;
pub(crate) use json::PlanDocument;
pub use json::{PLAN_VERSION, plan_schema};

use crate::base::{Error, Result, hexadecimal};

/// Bytes of memory per byte of text: lists with short lists take most.
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

pub(crate) fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}
