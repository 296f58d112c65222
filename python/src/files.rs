//! Reading and writing files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arenaplan::format::{WriteError, write_files as write};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arguments::Text;
use crate::call::{self, admit};
use crate::error::{OrRaise, raise_named, unwritten};

/// Bytes of JSON text per value, node or plan, at least: for the memory that reading may need.
const BYTES_PER_ITEM: usize = 64;

/// Interval at which a write that waits for the reader of a pipe looks for Ctrl-C.
const PERIOD: Duration = Duration::from_millis(50);

/// Returns the content of a JSON text. Ctrl-C interrupts the work.
pub(crate) fn parse<T: Send + 'static>(
    py: Python<'_>,
    Text(text): Text<'_>,
    parse: fn(&[u8]) -> arenaplan::Result<T>,
) -> PyResult<T> {
    admit(py, text.len())?;
    let text = text.to_vec();
    call::run(py, text.len() / BYTES_PER_ITEM, move |_, _| parse(&text))?.or_raise(py)
}

/// Returns the content of a JSON file. Ctrl-C interrupts the work.
pub(crate) fn load<T: Send + 'static>(
    py: Python<'_>,
    path: PathBuf,
    load: fn(&Path) -> arenaplan::Result<T>,
) -> PyResult<T> {
    let bytes = fs::metadata(&path).map_or(0, |file| file.len());
    let items = usize::try_from(bytes).unwrap_or(usize::MAX) / BYTES_PER_ITEM;
    call::run(py, items, move |_, _| load(&path))?.or_raise(py)
}

/// Write files, each given by its path and content.
///
/// A regular file is replaced at once and keeps its mode, through a symbolic link, too; on failure
/// the file stays unchanged. The content of all files is on disk before the first file is replaced.
/// Devices, pipes, and descriptors such as ``/dev/stdout`` are written into.
///
/// Raises
/// ------
/// PlanWriteError
///     If a file cannot be written; the message names the file.
/// BrokenPipeError
///     If a pipe has no reader any more.
#[pyfunction]
pub(crate) fn write_files(py: Python<'_>, files: Vec<(PathBuf, PyBackedBytes)>) -> PyResult<()> {
    write_all(py, files)
}

/// Writes files. A write that waits for the reader of a pipe can be interrupted by Ctrl-C.
pub(crate) fn write_all<C>(py: Python<'_>, files: Vec<(PathBuf, C)>) -> PyResult<()>
where
    C: AsRef<[u8]> + Send + Sync + 'static,
{
    let waits = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir());
    let written = if files.iter().any(|(path, _)| waits(path)) {
        let copies: Vec<(PathBuf, Vec<u8>)> =
            files.into_iter().map(|(path, content)| (path, content.as_ref().to_vec())).collect();
        write_apart(py, copies)?
    } else {
        py.detach(|| write(&files))
    };
    written.map_err(|error| unwritten(py, &error.path, &error.source))
}

/// Writes files on a separate thread, which is abandoned after Ctrl-C.
fn write_apart(py: Python<'_>, files: Vec<(PathBuf, Vec<u8>)>) -> PyResult<Result<(), WriteError>> {
    let worker = std::thread::Builder::new().spawn(move || write(&files))?;
    let mut patience = Duration::from_micros(50);
    while !worker.is_finished() {
        py.check_signals()?;
        py.detach(|| std::thread::sleep(patience));
        patience = (patience * 2).min(PERIOD);
    }
    let panicked =
        |_| raise_named(py, "InternalError", "the writer panicked; please report it".into());
    worker.join().map_err(panicked)
}
