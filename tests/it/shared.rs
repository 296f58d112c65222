//! Data beside the repository, which most machines do not have.

use std::path::{Path, PathBuf};

/// Returns a file of the shared folder, or says that the test is skipped.
///
/// The folder is `ARENAPLAN_SHARED`, or `shared` beside the repository.
pub fn shared(file: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join("shared");
    let folder = std::env::var_os("ARENAPLAN_SHARED").map_or(beside, PathBuf::from);
    let path = folder.join(file);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: there is no {}; set ARENAPLAN_SHARED", path.display());
    None
}

/// Returns a JSON file of the shared folder, or says that the test is skipped.
pub fn shared_json(file: &str) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(shared(file)?).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}
