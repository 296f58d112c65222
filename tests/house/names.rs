//! Names: in each crate, a file and a type have a name of their own, so that a name leads to one
//! place.
//!
//! A `mod.rs` has the name of its folder. Types of inline tests are left out, and associated types,
//! whose names a trait gives. Nothing else is excepted: alternatives for several architectures are
//! one name in one file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{CRATES, File, Source};

/// Returns a line for each name that several files of a crate have.
fn shared_names(names_of: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    let mut shared = Vec::new();
    for (folder, _) in CRATES {
        let source = Source::read(folder);
        let mut files: BTreeMap<String, BTreeSet<&Path>> = BTreeMap::new();
        for file in &source.files {
            for name in names_of(file) {
                files.entry(name).or_default().insert(&file.path);
            }
        }
        let several = files.into_iter().filter(|(_, files)| files.len() > 1);
        shared.extend(several.map(|(name, files)| format!("{folder}: {name} in {files:?}")));
    }
    shared
}

#[test]
fn a_file_name_occurs_once_per_crate() {
    let shared = shared_names(|file| file.module.last().cloned().into_iter().collect());
    assert!(shared.is_empty(), "rename files: {shared:#?}");
}

#[test]
fn a_type_name_occurs_once_per_crate() {
    let shared = shared_names(File::types);
    assert!(shared.is_empty(), "rename types to compounds of their terms: {shared:#?}");
}
