//! Files are replaced at once, and what is no regular file is written into.

#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::thread;

use arenaplan::format::{write_file, write_files};
use arenaplan::plan::{Hazards, SharedPlan};
use arenaplan::{Graph, Model, Plan};

/// Returns the names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_new_file_has_the_mode_that_the_process_gives_and_an_old_one_keeps_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (new, plain) = (folder.path().join("new"), folder.path().join("plain"));
    write_file(&new, b"1").unwrap();
    fs::write(&plain, "1").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&new), mode(&plain));
    for bits in [0o600, 0o664, 0o755] {
        fs::set_permissions(&new, Permissions::from_mode(bits)).unwrap();
        write_file(&new, b"2").unwrap();
        assert_eq!(mode(&new) & 0o7777, bits);
    }
    assert_eq!(names(folder.path()), ["new", "plain"]);
}

#[test]
fn links_stay_and_what_they_lead_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("there")).unwrap();
    fs::write(path("there/plan"), "old").unwrap();
    symlink("there/plan", path("link")).unwrap();
    symlink("link", path("chain")).unwrap();
    symlink("there/absent", path("dangling")).unwrap();
    symlink("circle", path("circle")).unwrap();
    write_file(path("chain"), b"new").unwrap();
    assert_eq!(fs::read(path("there/plan")).unwrap(), b"new");
    write_file(path("dangling"), b"made").unwrap();
    assert_eq!(fs::read(path("there/absent")).unwrap(), b"made");
    write_file(path("circle"), b"x").unwrap_err();
    for name in ["link", "chain", "dangling", "circle"] {
        assert!(fs::symlink_metadata(path(name)).unwrap().is_symlink(), "{name}");
    }
    assert_eq!(names(&path("there")), ["absent", "plan"]);
}

#[test]
fn a_pipe_is_written_into() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let path = pipe.clone();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    let long = "plan ".repeat(100_000);
    write_file(&pipe, long.as_bytes()).unwrap();
    assert_eq!(reader.join().unwrap(), long);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn a_device_is_written_into() {
    write_file("/dev/null", b"plan").unwrap();
    assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
    if Path::new("/dev/full").exists() {
        let error = write_file("/dev/full", b"plan").unwrap_err();
        assert_eq!(error.source.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("/dev/full: "));
    }
}

#[test]
fn many_writers_of_one_file_never_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let texts: Vec<_> = (b'a'..b'g').map(|letter| vec![letter; 5000]).collect();
    let target = &path;
    thread::scope(|scope| {
        for text in &texts {
            scope.spawn(move || (0..50).for_each(|_| write_file(target, text).unwrap()));
        }
        for _ in 0..200 {
            let read = fs::read(&path).unwrap_or_else(|_| texts[0].clone());
            assert!(texts.contains(&read));
        }
    });
    assert_eq!(names(folder.path()), ["plan.json"]);
}

#[test]
fn no_file_is_replaced_unless_all_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a"), "old").unwrap();
    fs::create_dir(path("blocked")).unwrap();
    let error = write_files(&[(path("a"), "1"), (path("blocked"), "2")]).unwrap_err();
    assert_eq!(error.path, path("blocked"));
    let error = write_files(&[(path("a"), "1"), (path("absent/b"), "2")]).unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read(path("a")).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["a", "blocked"]);
    write_files(&[(path("a"), "1"), (path("b"), "2")]).unwrap();
    assert_eq!(names(folder.path()), ["a", "b", "blocked"]);
    write_file(path("folder/"), b"3").unwrap_err();
    let error = write_file(path("blocked"), b"3").unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::IsADirectory);
}

/// The descriptor of a regular file is written to at its end: nothing that is there is lost.
#[test]
fn a_descriptor_of_a_file_is_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, "before ").unwrap();
    let file = fs::File::open(&path).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    write_file(format!("/proc/self/fd/{number}"), b"after").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"before after");
}

/// Number 1 of another process is its output, not that of this one.
#[test]
fn the_output_of_another_process_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let output = fs::File::create(&path).unwrap();
    let mut other = std::process::Command::new("sleep").arg("60").stdout(output).spawn().unwrap();
    let written = write_file(format!("/proc/{}/fd/1", other.id()), b"plan");
    other.kill().unwrap();
    other.wait().unwrap();
    written.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"plan");
}

/// What has the temporary name of a writer and is no file stays.
#[test]
fn a_pipe_with_a_temporary_name_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    write_file(&path, b"first").unwrap();
    let temporary = folder.path().join(".plan.json.arenaplan.tmp");
    rustix::fs::mkfifoat(rustix::fs::CWD, &temporary, rustix::fs::Mode::RWXU).unwrap();
    write_file(&path, b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert!(fs::symlink_metadata(&temporary).unwrap().file_type().is_fifo());
}

#[test]
fn no_text_is_longer_than_a_file_may_be() {
    let text = vec![0; (1 << 30) + 1];
    let kinds = [
        Graph::from_json(&text).err(),
        Plan::from_json(&text).err(),
        SharedPlan::from_json(&text).err(),
        Hazards::from_json(&text).err(),
        Model::from_json(&text).err(),
    ];
    let kinds = kinds.map(|error| error.unwrap().kind());
    assert_eq!(kinds[1..4], ["PlanTooLarge"; 3]);
    assert_eq!([kinds[0], kinds[4]], ["FileTooLarge"; 2]);
}
