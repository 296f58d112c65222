//! The only file writer: a file has the whole new content, or stays unchanged.

use alloc::{
    string::{String, ToString as _},
    vec::Vec,
};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use tempfile::TempPath;
use tempfile::{Builder, NamedTempFile};

use super::form::MAX_FILE_BYTES;
use crate::base::{Error, Result, quoted};

/// Symbolic links that are followed before a path counts as a circle, as Linux does.
const MAX_LINKS: usize = 40;

/// A file that could not be written, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
#[non_exhaustive]
pub struct WriteError {
    /// The file, as named by the caller.
    pub path: PathBuf,
    /// The file system's error.
    pub source: io::Error,
}

/// Writes a file.
///
/// - A regular file is replaced at once, and keeps its mode. If anything fails, a full disk
///   included, the old file stays unchanged.
/// - Through a symbolic link, the file behind the link is replaced; the link stays.
/// - A device, a pipe, and a descriptor such as `/dev/stdout` are written into.
///
/// # Errors
///
/// [`WriteError`] if the folder is missing, the file may not be written, or the file system
/// refuses.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("plan.json");
/// arenaplan::format::write_file(&path, b"{}")?;
/// assert_eq!(std::fs::read(&path)?, b"{}");
/// assert!(arenaplan::format::write_file(folder.path().join("missing/plan.json"), b"{}").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_file(path: impl AsRef<Path>, content: &[u8]) -> Result<(), WriteError> {
    write_files(&[(path.as_ref(), content)])
}

/// Writes several files as [`write_file`] does. The content of all files is written before the
/// first regular file is replaced.
///
/// # Errors
///
/// [`WriteError`] for the first file that fails. If room or a folder is missing, no regular file
/// has been replaced.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let (y, missing) = (folder.path().join("y.npy"), folder.path().join("missing/z.npy"));
/// let failed = arenaplan::format::write_files(&[(&y, b"1"), (&missing, b"2")]).unwrap_err();
/// assert_eq!(failed.path, missing);
/// assert!(!y.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_files(files: &[(impl AsRef<Path>, impl AsRef<[u8]>)]) -> Result<(), WriteError> {
    let failed = |path: &Path, source| WriteError { path: path.to_path_buf(), source };
    let mut staged = Vec::new();
    for (path, content) in files {
        let (path, content) = (path.as_ref(), content.as_ref());
        staged.push((path, Staged::new(path, content).map_err(|error| failed(path, error))?));
    }
    for (path, staged) in staged {
        staged.commit().map_err(|error| failed(path, error))?;
    }
    Ok(())
}

/// Reads a file up to one byte past the limit, which is enough to know.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = File::open(path);
    file.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)).map_err(
        |error| Error::FileUnreadable {
            path: quoted(&path.to_string_lossy()),
            code: error.raw_os_error(),
            reason: error.to_string(),
        },
    )?;
    Ok(text)
}

/// Content that is ready to appear at its place.
#[allow(clippy::large_enum_variant, reason = "there are a few of them at a time")]
enum Staged<'a> {
    /// Content on disk beside the file to replace, without a name or with a temporary name.
    File { target: FileTarget, content: &'a [u8], written: Written },
    /// To be written into something that is no regular file.
    Stream { file: File, content: &'a [u8] },
}

/// A regular file to replace or to create.
struct FileTarget {
    /// Without symbolic links.
    path: PathBuf,
    /// Metadata of the existing file.
    old: Option<Metadata>,
}

/// Content on disk.
enum Written {
    /// A nameless file, which disappears if the process is killed.
    #[cfg(target_os = "linux")]
    Nameless(File),
    /// A file that is removed when dropped.
    Named(NamedTempFile),
}

impl<'a> Staged<'a> {
    /// Writes content to disk, or opens the stream to write into.
    fn new(path: &Path, content: &'a [u8]) -> io::Result<Self> {
        let target = match fs::metadata(path) {
            Ok(there) => {
                if let Some(file) = open_stream(path, &there)? {
                    return Ok(Self::Stream { file, content });
                }
                // A file that may not be written may not be replaced.
                OpenOptions::new().write(true).open(path)?;
                FileTarget { path: fs::canonicalize(path)?, old: Some(there) }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                FileTarget { path: behind_links(path)?, old: None }
            }
            Err(error) => return Err(error),
        };
        let written = target.write(content)?;
        Ok(Self::File { target, content, written })
    }

    /// Makes the content appear.
    fn commit(self) -> io::Result<()> {
        match self {
            Self::Stream { mut file, content } => file.write_all(content),
            Self::File { target, content, written } => target.put(written, content),
        }
    }
}

impl FileTarget {
    /// Returns the file's folder.
    fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// Writes content to disk in the folder of the file, so that renaming does not cross file
    /// systems.
    fn write(&self, content: &[u8]) -> io::Result<Written> {
        #[cfg(target_os = "linux")]
        if let Some(mut file) = linux::nameless(self.folder()) {
            self.fill(&mut file, content)?;
            return Ok(Written::Nameless(file));
        }
        self.write_named(content).map(Written::Named)
    }

    /// Writes content under a fresh temporary name.
    fn write_named(&self, content: &[u8]) -> io::Result<NamedTempFile> {
        let mut builder = Builder::new();
        #[cfg(unix)]
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        #[cfg(unix)]
        builder.permissions(permissions); // less the bits that the process masks
        let mut file = builder.prefix(&self.prefix()).suffix(".tmp").tempfile_in(self.folder())?;
        self.fill(file.as_file_mut(), content)?;
        Ok(file)
    }

    /// Writes content with the old file's mode and owner.
    fn fill(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)?;
        if let Some(old) = &self.old {
            #[cfg(unix)]
            keep_owner(file, old)?;
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()
    }

    /// Makes written content the file.
    fn put(&self, written: Written, content: &[u8]) -> io::Result<()> {
        let named = match written {
            Written::Named(file) => file,
            #[cfg(target_os = "linux")]
            Written::Nameless(file) => {
                // A new file gets its name in one call, so that a killed process leaves a whole
                // file or none.
                if self.old.is_none() && linux::name(&file, &self.path).is_ok() {
                    return Ok(());
                }
                match self.name_beside(&file) {
                    Ok(named) => return named.persist(&self.path).map_err(|error| error.error),
                    // Some sandboxes do not let files get a name later on.
                    Err(_) => self.write_named(content)?,
                }
            }
        };
        named.into_temp_path().persist(&self.path).map_err(|error| error.error)
    }

    /// Gives a file a temporary name beside the file to replace.
    ///
    /// All writers of a file share one temporary name. A process that is killed after this call
    /// leaves the name behind, and the next writer removes the name.
    #[cfg(target_os = "linux")]
    fn name_beside(&self, file: &File) -> io::Result<TempPath> {
        let mut shared = self.prefix();
        shared.push("arenaplan.tmp");
        let shared = self.folder().join(shared);
        if linux::claim(file, &shared).is_ok() {
            return TempPath::try_from_path(shared);
        }
        // Another process is about to replace the file.
        let (prefix, mut builder) = (self.prefix(), Builder::new());
        builder.prefix(&prefix).suffix(".tmp");
        let named = builder.make_in(self.folder(), |path| linux::name(file, path))?;
        Ok(named.into_temp_path())
    }

    /// Returns how temporary names begin.
    fn prefix(&self) -> std::ffi::OsString {
        let mut prefix = std::ffi::OsString::from(".");
        // Names have at most 255 bytes, and the temporary name is longer.
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        prefix.push(name.chars().take(40).collect::<String>());
        prefix.push(".");
        prefix
    }
}

/// Returns the open file if `path` is not to be replaced: devices, pipes, and descriptors of
/// running processes, such as `/dev/stdout`.
fn open_stream(path: &Path, there: &Metadata) -> io::Result<Option<File>> {
    match descriptor(path) {
        #[cfg(unix)]
        // The stream has the descriptor's position: the next print goes behind this content.
        Some(Descriptor { own: true, number: 1 }) => {
            use std::os::fd::AsFd as _;
            Ok(Some(io::stdout().as_fd().try_clone_to_owned()?.into()))
        }
        #[cfg(unix)]
        Some(Descriptor { own: true, number: 2 }) => {
            use std::os::fd::AsFd as _;
            Ok(Some(io::stderr().as_fd().try_clone_to_owned()?.into()))
        }
        Some(_) if there.is_file() => OpenOptions::new().append(true).open(path).map(Some),
        None if there.is_file() => Ok(None),
        _ => OpenOptions::new().write(true).open(path).map(Some),
    }
}

/// An open file of a running process, as in `/proc`.
struct Descriptor {
    own: bool,
    number: u32,
}

/// Returns the descriptor that a path leads to.
fn descriptor(path: &Path) -> Option<Descriptor> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let folder = fs::canonicalize(folder_of(&path)).ok()?;
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            let own = fs::canonicalize("/proc/self/fd").is_ok_and(|own| own == folder);
            return number.map(|number| Descriptor { own, number });
        }
        path = folder.join(fs::read_link(&path).ok()?);
    }
    None
}

/// Returns the file that is created when a path is written to where nothing is yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let folder = fs::canonicalize(folder_of(&path))?;
        let Ok(next) = fs::read_link(&path) else {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            return Ok(folder.join(name));
        };
        path = folder.join(next);
    }
    Err(io::ErrorKind::InvalidInput.into())
}

/// Returns the folder that a path is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Gives a file the old file's owner, as far as the process may.
#[cfg(unix)]
fn keep_owner(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // Only the administrator may give files away. Without that right, the user who writes the
        // folder owns the new file.
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
    Ok(())
}

/// Files without a name until they are whole: a process that is killed while writing leaves nothing
/// behind.
#[cfg(target_os = "linux")]
mod linux {
    use alloc::format;
    use std::fs::{self, File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, flock, linkat};

    /// Returns a file without a name in `folder`, where the system has such files.
    pub(super) fn nameless(folder: &Path) -> Option<File> {
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let file = OpenOptions::new().write(true).mode(0o666).custom_flags(flags).open(folder);
        file.ok().filter(|file| fs::symlink_metadata(entry(file)).is_ok())
    }

    /// Gives a file a name that nothing has yet.
    pub(super) fn name(file: &File, path: &Path) -> io::Result<()> {
        Ok(linkat(CWD, entry(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Locks a file and gives the file a name that a killed process may have left behind.
    ///
    /// The lock ends with the process. So a file with that name and without a lock belongs to no
    /// running writer, and is removed.
    pub(super) fn claim(file: &File, path: &Path) -> io::Result<()> {
        flock(file, FlockOperation::NonBlockingLockExclusive)?;
        if name(file, path).is_ok() {
            return Ok(());
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = flags.bits().cast_signed();
        let left = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        flock(&left, FlockOperation::NonBlockingLockExclusive)?;
        // Before the lock, the writer may have renamed the file, and another writer taken the name.
        let [held, there] = [left.metadata()?, fs::symlink_metadata(path)?];
        if !there.is_file() || (held.dev(), held.ino()) != (there.dev(), there.ino()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::remove_file(path)?;
        name(file, path)
    }

    /// Returns where `/proc` shows an open file.
    fn entry(file: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_nameless_files_replaces_files_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        fs::write(&path, "old").unwrap();
        let old = Some(fs::metadata(&path).unwrap());
        let target = FileTarget { path: path.clone(), old };
        let written = target.write_named(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        target.put(Written::Named(written), b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_next_writer_removes_what_a_killed_one_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let left = folder.path().join(".plan.json.arenaplan.tmp");
        fs::write(&path, "old").unwrap();
        fs::write(&left, "whole").unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!left.exists());
        // The temporary name of a running writer stays, and so does a link.
        let running = File::create(&left).unwrap();
        rustix::fs::flock(&running, rustix::fs::FlockOperation::LockExclusive).unwrap();
        write_file(&path, b"newer").unwrap();
        assert!(left.exists());
        fs::remove_file(&left).unwrap();
        std::os::unix::fs::symlink(&path, &left).unwrap();
        write_file(&path, b"newest").unwrap();
        assert_eq!(fs::read_link(&left).unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"newest");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_new_file_never_has_a_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let left = folder.path().join(".plan.json.arenaplan.tmp");
        fs::write(&left, "whole").unwrap();
        write_file(&path, b"new").unwrap();
        // Only a writer that takes the temporary name removes the old file with that name.
        assert_eq!((fs::read(&path).unwrap(), left.exists()), (b"new".to_vec(), true));
        write_file(&path, b"newer").unwrap();
        assert!(!left.exists());
    }
}
