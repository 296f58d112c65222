//! Errors in runs and operations.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::ids::{OperationId, VariableId};

/// Why a kernel or an operation failed.
#[derive(Clone, Debug)]
pub enum Cause {
    /// The closure returned this error.
    Failed(Arc<dyn Error + Send + Sync>),
    /// The closure panicked; the message, if any.
    Panicked(String),
}

impl Cause {
    /// Returns the cause for a panic with this payload.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self::Panicked(text.unwrap_or_else(|| "a panic without a message".into()))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

/// Why a step failed.
#[derive(Debug)]
pub enum StepError<E> {
    /// The kernel returned this error.
    Kernel(E),
    /// The kernel panicked with this message.
    Panicked(String),
}

/// Why a run ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The arena was not made for the program.
    Arena(arenaplan::Error),
    /// A step failed. If several steps would fail, the first step in plan order is reported.
    Step {
        /// Index of the step.
        index: usize,
        /// Name of the step.
        name: String,
        /// The reason.
        error: StepError<E>,
    },
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arena(error) => error.fmt(f),
            Self::Step { index, name, error: StepError::Kernel(error) } => {
                write!(f, "step {index} ({}): {error}", arenaplan::base::quoted(name))
            }
            Self::Step { index, name, error: StepError::Panicked(text) } => {
                write!(f, "step {index} ({}) panicked: {text}", arenaplan::base::quoted(name))
            }
        }
    }
}

impl<E: Error + 'static> Error for RunError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Arena(error) => Some(error),
            Self::Step { error: StepError::Kernel(error), .. } => Some(error),
            Self::Step { .. } => None,
        }
    }
}

/// The reason why an operation is refused when pushed. A refused operation changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// A variable is named twice: both to read and to write, or twice in one list. An operation
    /// that reads and writes a variable names the variable for writing only.
    #[error("{0} is named twice")]
    Duplicate(VariableId),
    /// The variable belongs to another queue.
    #[error("{0} is a variable of another queue")]
    Foreign(VariableId),
    /// The space has no thread.
    #[error("there is no space {0}")]
    Space(usize),
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed,
}

/// The failure of an operation. The failure is reported by waiting for a variable that the
/// operation wrote, or that was written from such a variable.
#[derive(Clone, Debug)]
pub struct OperationError {
    /// The operation that failed.
    pub operation: OperationId,
    /// Name of the operation.
    pub name: Arc<str>,
    /// The reason.
    pub cause: Cause,
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = arenaplan::base::quoted(&self.name);
        write!(f, "operation {} ({name}): {}", self.operation, self.cause)
    }
}

impl Error for OperationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Failed(error) => Some(&**error),
            Cause::Panicked(_) => None,
        }
    }
}

/// An operation accesses a variable that the operation did not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operation did not name {variable}{}", if *.writes { " for writing" } else { "" })]
pub struct AccessError {
    /// The variable.
    pub variable: VariableId,
    /// Whether the access was for writing.
    pub writes: bool,
}

/// Why waiting does not end with a value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// An operation that the variable was written from has failed.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// An operation waits in the queue that runs the operation.
    #[error("an operation cannot wait in its own queue")]
    Inside,
    /// The variable belongs to another queue.
    #[error("{0} is a variable of another queue")]
    Foreign(VariableId),
    /// The variable had an error when the value was asked for, and was restored since.
    #[error("{0} was restored meanwhile")]
    Restored(VariableId),
}
