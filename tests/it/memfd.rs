//! Memory that processes share: what is seen, counted and locked, also after `kill -9`.

#![allow(unsafe_code, reason = "to share memory is a promise about other processes")]
#![allow(clippy::print_stdout, reason = "one process tells another one that it is ready")]

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use arenaplan::Error;
use arenaplan::arena::SharedMemory;

const PATH: &str = "ARENAPLAN_TEST_SHARED";

fn create(bytes: u64) -> SharedMemory {
    // SAFETY: all uses in these tests hold the lock.
    unsafe { SharedMemory::create(bytes) }.unwrap()
}

fn open(descriptor: impl AsFd) -> arenaplan::Result<SharedMemory> {
    // SAFETY: all uses in these tests hold the lock.
    unsafe { SharedMemory::open(descriptor) }
}

/// The other process: it attaches, counts in the first byte, and waits to be killed.
#[test]
#[ignore = "a process of other tests"]
fn another_process() {
    let Ok(path) = env::var(PATH) else { return };
    let mut memory = open(File::options().read(true).write(true).open(path).unwrap()).unwrap();
    let mut bytes = memory.lock().unwrap();
    bytes[0] = bytes[0].wrapping_add(1);
    if env::var("ARENAPLAN_TEST_UNLOCK").is_ok() {
        drop(bytes);
        println!("ready");
        thread::sleep(Duration::from_secs(600));
    } else {
        println!("ready");
        thread::sleep(Duration::from_secs(600));
        drop(bytes);
    }
}

/// Starts another process, and waits until it is attached.
fn start(memory: &SharedMemory, unlocks: bool) -> Child {
    let number = memory.as_fd().as_raw_fd();
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["memfd::another_process", "--exact", "--ignored", "--nocapture"])
        .env(PATH, format!("/proc/{}/fd/{number}", std::process::id()))
        .stdout(Stdio::piped());
    if unlocks {
        command.env("ARENAPLAN_TEST_UNLOCK", "1");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")));
    child
}

/// Waits until a memory has so many attachments.
///
/// A process that another test starts holds all attachments from its fork to its exec, also those
/// that have been dropped since.
fn await_attached(memory: &SharedMemory, count: usize) {
    for _ in 0..10_000 {
        if memory.attached() == Ok(count) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(memory.attached(), Ok(count));
}

/// Number of processes that are killed: more by hand than in every run.
fn kills() -> u64 {
    env::var("ARENAPLAN_KILLS").map_or(20, |count| count.parse().unwrap())
}

#[test]
fn a_killed_process_leaves_the_count_and_the_lock_right() {
    let mut memory = create(4096);
    for kill in 0..kills() {
        // Every second one dies with the lock.
        let mut child = start(&memory, kill % 2 == 0);
        await_attached(&memory, 2);
        assert_eq!(memory.try_lock().unwrap().is_some(), kill % 2 == 0);
        child.kill().unwrap();
        child.wait().unwrap();
        await_attached(&memory, 1);
        let bytes = memory.try_lock().unwrap().expect("nobody holds it");
        assert_eq!(u64::from(bytes[0]), (kill + 1) % 256);
    }
}

#[test]
fn attachments_see_the_same_bytes_one_after_the_other() {
    let mut first = create(1 << 20);
    let mut second = open(&first).unwrap();
    let mut third = open(&second).unwrap();
    assert_eq!((first.len(), second.len(), third.len()), (1 << 20, 1 << 20, 1 << 20));
    await_attached(&first, 3);
    let mut bytes = first.lock().unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
    bytes.fill(3);
    assert!(second.try_lock().unwrap().is_none());
    drop(bytes);
    assert!(second.lock().unwrap().iter().all(|&byte| byte == 3));
    drop(first);
    // The memory lives as long as anyone is attached.
    await_attached(&third, 2);
    assert_eq!(third.lock().unwrap()[1 << 19], 3);
    drop(second);
    await_attached(&third, 1);
}

#[test]
fn threads_with_attachments_of_their_own_count_to_the_sum() {
    let memory = create(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            let mut own = open(&memory).unwrap();
            scope.spawn(move || {
                for _ in 0..500 {
                    let mut bytes = own.lock().unwrap();
                    let count = u64::from_le_bytes((*bytes).try_into().unwrap());
                    bytes.copy_from_slice(&(count + 1).to_le_bytes());
                }
            });
        }
    });
    let mut own = open(&memory).unwrap();
    assert_eq!(u64::from_le_bytes((*own.lock().unwrap()).try_into().unwrap()), 4000);
}

#[test]
fn memory_that_cannot_be_is_refused() {
    for bytes in [0, u64::MAX] {
        // SAFETY: there is no memory.
        let refused = unsafe { SharedMemory::create(bytes) };
        assert_eq!(refused.unwrap_err(), Error::ArenaCommit { bytes });
    }
    let other = tempfile::tempfile().unwrap();
    assert!(matches!(open(&other), Err(Error::ArenaState { .. })));
    let memory = create(1);
    let more: Vec<_> = (1..1024).map(|_| open(&memory).unwrap()).collect();
    assert_eq!(memory.attached(), Ok(1024));
    let refused = open(&memory).unwrap_err().to_string();
    assert_eq!(refused, "a shared memory has at most 1024 attachments");
    drop(more);
    await_attached(&memory, 1);
}
