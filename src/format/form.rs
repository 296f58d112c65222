//! Forms: the size, name and version that every kind of file states in the same way.

#![allow(clippy::zero_sized_map_values, reason = "of unknown fields only the names matter")]

use alloc::collections::BTreeMap;
use alloc::{
    format,
    string::{String, ToString as _},
};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::base::{Error, Result, quoted};

/// Larger files are refused: a plan takes some 200 bytes per value.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 30;

/// A kind of JSON file, and the errors for files of other kinds.
pub(crate) struct Form {
    /// Name in the field `format`.
    pub(crate) format: &'static str,
    /// The version that this crate writes, and the only version that this crate reads.
    pub(crate) version: u32,
    /// Returns the error for text with so many bytes, more than the limit.
    pub(crate) too_large: fn(bytes: u64, limit: u64) -> Error,
    /// Returns the error for damaged text.
    pub(crate) corrupt: fn(reason: String) -> Error,
    /// Returns the error for text with another version.
    pub(crate) other_version: fn(reason: String) -> Error,
}

/// The stated format and version of a text, beside any other fields.
#[derive(Default, Deserialize)]
struct Head {
    format: Option<String>,
    version: Option<u64>,
}

impl Form {
    /// Refuses text that is longer than any file may be.
    pub(crate) fn check_size(&self, text: &[u8]) -> Result<()> {
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if bytes > MAX_FILE_BYTES {
            return Err((self.too_large)(bytes, MAX_FILE_BYTES));
        }
        Ok(())
    }

    /// Reads a document.
    ///
    /// Another format or version has other fields: the error names these rather than a field.
    pub(crate) fn parse<D: DeserializeOwned>(&self, text: &[u8]) -> Result<D> {
        serde_json::from_slice(text).map_err(|error| {
            let head: Head = serde_json::from_slice(text).unwrap_or_default();
            let format = head.format.as_deref().unwrap_or(self.format);
            let version = head.version.unwrap_or(u64::from(self.version));
            let other = self.check_head(format, version);
            other.err().unwrap_or_else(|| (self.corrupt)(error.to_string()))
        })
    }

    /// Refuses another format, and another version.
    pub(crate) fn check_head(&self, format: &str, version: u64) -> Result<()> {
        if format != self.format {
            return Err((self.corrupt)(format!("its format is {}", quoted(format))));
        }
        if version != u64::from(self.version) {
            let own = self.version;
            let reason = format!("the file is of version {version}, this is {own}");
            return Err((self.other_version)(reason));
        }
        Ok(())
    }

    /// Refuses unknown fields, except other programs' fields, whose names begin with `x-`.
    pub(crate) fn check_fields(&self, extra: &BTreeMap<String, IgnoredAny>) -> Result<()> {
        match extra.keys().find(|name| !name.starts_with("x-")) {
            Some(name) => {
                let reason = format!("version {} has no field {}", self.version, quoted(name));
                Err((self.other_version)(reason))
            }
            None => Ok(()),
        }
    }
}

/// Returns a document as a single line of JSON.
pub(crate) fn to_text(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string(document).expect("numbers and text become JSON");
    text.push('\n');
    text
}
