//! Errors: a code for programs, and a text for people.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arenaplan::Error;

/// Result of a call. The numbers are part of the ABI.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// An argument is null, out of range, or contradicts another argument.
    InvalidArgument = 1,
    /// There is no value, dimension or shape of that name or size, or the value has no place.
    NotFound = 2,
    /// The file cannot be read.
    FileUnreadable = 3,
    /// The file is larger than the limit, damaged, or holds something else.
    InvalidFile = 4,
    /// This library does not know the version of the file, or of the caller's struct.
    UnsupportedVersion = 5,
    /// A plan or packing is not a valid answer for the given graph or problem.
    CheckFailed = 6,
    /// The caller's memory has fewer bytes than the plan needs.
    MemoryTooSmall = 7,
    /// The caller's memory begins at an address that is less aligned than the plan needs.
    MemoryMisaligned = 8,
    /// An allocation failed.
    OutOfMemory = 9,
    /// A defect of this library. Only freeing the call's handles is safe then.
    Internal = 10,
    /// The pool's memory is leased to others.
    PoolBusy = 11,
    /// The plan needs more bytes than the pool may have.
    LeaseTooLarge = 12,
}

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code_of(&error), error.to_string())
    }
}

impl From<arenaplan::pack::Error> for Failure {
    fn from(error: arenaplan::pack::Error) -> Self {
        Error::from(error).into()
    }
}

/// Returns the code for a core error.
fn code_of(error: &Error) -> Code {
    match error {
        Error::AtShape { source, .. } => code_of(source),
        Error::UndefinedValue { .. } | Error::UnknownDim { .. } | Error::ShapeNotPlanned { .. } => {
            Code::NotFound
        }
        Error::FileUnreadable { .. } => Code::FileUnreadable,
        Error::FileTooLarge { .. }
        | Error::GraphCorrupt { .. }
        | Error::ModelCorrupt { .. }
        | Error::PlanCorrupt { .. }
        | Error::PlanTooLarge { .. } => Code::InvalidFile,
        Error::GraphVersion { .. } | Error::ModelVersion { .. } | Error::PlanVersion { .. } => {
            Code::UnsupportedVersion
        }
        Error::PartOfModel { .. }
        | Error::PlanMismatch { .. }
        | Error::PlanOverlap { .. }
        | Error::PlanOutOfBounds { .. }
        | Error::PlanMisaligned { .. }
        | Error::TargetMismatch { .. } => Code::CheckFailed,
        Error::BufferTooSmall { .. } => Code::MemoryTooSmall,
        Error::MisalignedBuffer { .. } => Code::MemoryMisaligned,
        Error::PoolBusy { .. } => Code::PoolBusy,
        Error::LeaseTooLarge { .. } => Code::LeaseTooLarge,
        Error::ArenaCommit { .. } | Error::OutOfMemory { .. } => Code::OutOfMemory,
        _ => Code::InvalidArgument,
    }
}

/// Returns an argument that must not be null.
pub(crate) fn required<T>(argument: Option<T>, name: &str) -> Result<T> {
    argument.ok_or_else(|| Failure::argument(format!("{name} is null")))
}

/// Bytes in the longest text, with the zero at the end.
const LONGEST: usize = 1024;

thread_local! {
    // A fixed size: storing an error text neither allocates nor frees.
    static LAST: RefCell<[u8; LONGEST]> = const { RefCell::new([0; LONGEST]) };
}

/// Runs the body of an exported function. Stores the reason for a failure for the calling thread; a
/// panic is a failure.
pub(crate) fn guarded(body: impl FnOnce() -> Result<()>) -> Code {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Code::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let reason = format!("defect of arenaplan: {}", reason_of(&*panic));
            // Dropping the payload would run foreign code.
            std::mem::forget(panic);
            Failure::new(Code::Internal, reason)
        }
    };
    remember(&failure.text);
    failure.code
}

/// Returns a panic's text.
fn reason_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic")
}

/// Stores a text for [`last`], cut at a character if too long.
fn remember(text: &str) {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(LONGEST - 1)).rev().find(fits).unwrap_or_default();
    LAST.with_borrow_mut(|last| {
        last.fill(0);
        for (slot, byte) in last.iter_mut().zip(text[..end].bytes()) {
            // A zero would end the text.
            *slot = if byte == 0 { b'?' } else { byte };
        }
    });
}

/// Returns the text of the last failure on this thread, which ends with a zero.
pub(crate) fn last() -> *const c_char {
    LAST.with(|last| last.as_ptr().cast::<c_char>().cast_const())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Returns the text that `last` points to.
    fn text() -> String {
        LAST.with_borrow(|last| {
            let end = last.iter().position(|&byte| byte == 0).unwrap();
            String::from_utf8(last[..end].to_vec()).unwrap()
        })
    }

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        assert_eq!(guarded(|| panic!("number {}", 7)), Code::Internal);
        assert_eq!(text(), "defect of arenaplan: number 7");
        assert_eq!(guarded(|| panic!("fixed")), Code::Internal);
        assert_eq!(text(), "defect of arenaplan: fixed");
    }

    #[test]
    fn texts_are_cut_at_a_character_and_have_no_zero_inside() {
        let fail = |text: String| guarded(|| Err(Failure::argument(text)));
        assert_eq!(fail("é".repeat(LONGEST)), Code::InvalidArgument);
        assert_eq!(text(), "é".repeat(LONGEST / 2 - 1));
        assert_eq!(fail("a\0b".into()), Code::InvalidArgument);
        assert_eq!(text(), "a?b");
    }

    #[test]
    fn each_thread_has_its_own_text() {
        let fail = |text: &str| guarded(|| Err(Failure::argument(text)));
        fail("here");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(text(), "");
                fail("there");
            });
        });
        assert_eq!(text(), "here");
    }
}
