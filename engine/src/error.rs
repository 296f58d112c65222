//! Errors of runs and operations.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::ids::{OperationId, VariableId};

/// Why a kernel or an operation failed.
#[derive(Clone, Debug)]
pub enum Cause {
    /// The error that it returned.
    Failed(Arc<dyn Error + Send + Sync>),
    /// It panicked; the message, if there is one.
    Panicked(String),
}

impl Cause {
    /// Returns the cause of a panic with this payload.
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
    /// A step failed. Of several steps that would, it is the first one in the order of the plan.
    Step {
        /// Position of the step.
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

/// Why an operation is refused when it is pushed. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// A variable is named twice: to be read and written, or twice for one of them. An operation
    /// that reads what it writes names the variable for writing only.
    #[error("{0} is named twice")]
    Duplicate(VariableId),
    /// A variable of another queue.
    #[error("{0} is a variable of another queue")]
    Foreign(VariableId),
    /// The space has no thread.
    #[error("there is no space {0}")]
    Space(usize),
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed,
}

/// The failure of an operation, which reaches whoever waits for a variable that it wrote, or for
/// a variable that was written from that.
#[derive(Clone, Debug)]
pub struct OperationError {
    /// The operation that failed.
    pub operation: OperationId,
    /// Its name.
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

/// An operation reaches for a variable that it did not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operation did not name {variable}{}", if *.writes { " for writing" } else { "" })]
pub struct AccessError {
    /// The variable.
    pub variable: VariableId,
    /// Whether it was to be written.
    pub writes: bool,
}

/// Why waiting does not end with a value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// An operation that the variable was written from has failed.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// An operation waits in the queue that runs it.
    #[error("an operation cannot wait in its own queue")]
    Inside,
    /// A variable of another queue.
    #[error("{0} is a variable of another queue")]
    Foreign(VariableId),
    /// The variable had an error when its value was asked for, and was restored since.
    #[error("{0} was restored meanwhile")]
    Restored(VariableId),
}
