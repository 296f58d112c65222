//! Names: in each crate, a file and a type have a name of their own, so that a name leads to one
//! place.
//!
//! A `mod.rs` has the name of its folder. Types of inline tests are left out, and associated types,
//! whose names a trait gives. Nothing else is excepted: alternatives for several architectures are
//! one name in one file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{CRATES, Source};

/// Returns a line for each name that several files of a crate have.
fn shared_names<'s>(folder: &str, names: impl Iterator<Item = (String, &'s Path)>) -> Vec<String> {
    let mut files: BTreeMap<String, BTreeSet<&Path>> = BTreeMap::new();
    for (name, path) in names {
        files.entry(name).or_default().insert(path);
    }
    let several = files.into_iter().filter(|(_, files)| files.len() > 1);
    several.map(|(name, files)| format!("{folder}: {name} in {files:?}")).collect()
}

#[test]
fn a_file_name_occurs_once_per_crate() {
    let mut shared = Vec::new();
    for (folder, _) in CRATES {
        let source = Source::read(folder);
        let names = source
            .files
            .iter()
            .filter_map(|file| file.module.last().map(|name| (name.clone(), file.path.as_path())));
        shared.extend(shared_names(folder, names));
    }
    assert!(shared.is_empty(), "rename files: {shared:#?}");
}

#[test]
fn a_type_name_occurs_once_per_crate() {
    let mut shared = Vec::new();
    for (folder, _) in CRATES {
        let source = Source::read(folder);
        let names = source
            .files
            .iter()
            .flat_map(|file| file.types().into_iter().map(|name| (name, file.path.as_path())));
        shared.extend(shared_names(folder, names));
    }
    assert!(shared.is_empty(), "rename types to compounds of their terms: {shared:#?}");
}
