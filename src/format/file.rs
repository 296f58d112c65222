//! Files that are whole or not there.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Files larger than this are refused: a plan takes some 200 bytes per value.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;

/// Writes a file, which either has the new content then or stays what it was.
pub(super) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    // Beside the target, so that renaming does not cross file systems.
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        // What is left over is of no use; the first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

/// Reads a file up to one byte past the limit, which is enough to know.
pub(super) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    Ok(text)
}
