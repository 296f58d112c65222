//! Runs plans of `arenaplan` on several threads, and operations on versioned variables.
//!
//! Two engines share the idea of MXNet's dependency engine (Chen et al. 2015): a runner that
//! respects the dependencies may run everything else in any order, with the same result.
//!
//! - [`Engine`] runs a [`Program`](arenaplan::Program): the dependencies are the plan's
//!   [hazards](arenaplan::plan::Hazards), and a byte range is the variable.
//! - [`Queue`] runs pushed operations; each operation names the variables to read and to write.
//!
//! Results equal those of a serial run, bit for bit, whatever the timing. So do errors: the
//! reported error is the first in serial order.
//!
//! ```
//! use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
//! use arenaplan_engine::{Engine, Policy};
//!
//! // x + 1 and x + 2 do not wait for each other.
//! let mut builder = Graph::builder("sums");
//! let array = |name, kind| Value::new(name, kind, DType::FLOAT32, [4]);
//! let x = builder.add_value(array("x", ValueKind::Input)?);
//! let one = builder.add_value(array("one", ValueKind::Activation)?);
//! let two = builder.add_value(array("two", ValueKind::Activation)?);
//! builder.add_node(Node::new("one", "AddOne").reads([x]).writes([one]));
//! builder.add_node(Node::new("two", "AddTwo").reads([x]).writes([two]));
//! builder.add_output(one);
//! builder.add_output(two);
//! let graph = builder.build()?;
//! let plan = Planner::new().workers(2).plan(&graph)?;
//! let program = plan.program(&graph)?;
//! let mut arena = plan.commit()?;
//!
//! let engine = Engine::new(Policy::workers(2));
//! engine.run(&mut arena, &program, |step, mut memory| {
//!     let add = if graph.node(step.node()).op() == "AddOne" { 1.0 } else { 2.0 };
//!     memory.elementwise(|[x]: [f32; 1]| x + add)
//! })?;
//! assert_eq!(arena.value_as::<f32>(&plan, two)?, [2.0; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod ids;
mod policy;
mod program;
mod queue;

pub use error::{AccessError, Cause, OperationError, PushError, RunError, StepError, WaitError};
pub use ids::{OperationId, VariableId};
pub use policy::Policy;
pub use program::{Engine, Runner};
pub use queue::{Operation, Queue, Task, Variable};
