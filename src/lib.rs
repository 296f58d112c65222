//! Plans where every tensor of a neural network lives in one arena, and proves how small
//! that arena can be.
//!
//! A [`Graph`] declares the effects of each node on memory. A [`Planner`] turns the graph into a
//! [`Plan`]: an offset for every value, so that values needed at the same time share no byte,
//! together with a lower bound for every plan. The plan is committed to an [`Arena`], which lends
//! the operands of each step in a [`Program`].
//!
//! ```
//! use arenaplan::{DType, Graph, Node, Planner, Status, Value, ValueKind};
//!
//! // x -> double -> add x: 3 arrays of 256 bytes.
//! let mut builder = Graph::builder("example");
//! let array = |name, kind| Value::new(name, kind, DType::UINT8, [256]);
//! let x = builder.add_value(array("x", ValueKind::Input)?);
//! let doubled = builder.add_value(array("doubled", ValueKind::Activation)?);
//! let sum = builder.add_value(array("sum", ValueKind::Activation)?);
//! builder.add_node(Node::new("double", "Double").reads([x]).writes([doubled]));
//! let add = Node::new("add", "Add").reads([doubled, x]).writes([sum]);
//! // The addition is elementwise: its output may take over a dying operand.
//! builder.add_node(add.in_place(0, 0));
//! builder.add_output(sum);
//! let graph = builder.build()?;
//!
//! let plan = Planner::new().plan(&graph)?;
//! assert_eq!(plan.naive_bytes(), Some(768));
//! assert_eq!((plan.arena_bytes(), plan.lower_bound()), (512, 512));
//! assert_eq!(plan.status(), Status::Optimal);
//!
//! let program = plan.program(&graph)?;
//! let mut arena = plan.commit()?;
//! arena.value_mut(&plan, x)?.fill(3);
//! for step in program.steps() {
//!     let mut memory = arena.step(&program, step)?;
//!     match graph.node(step.node()).op() {
//!         "Double" => memory.elementwise(|[x]: [u8; 1]| 2 * x)?,
//!         // In place: the first operand is in the bytes of the output.
//!         _ => memory.elementwise(|[doubled, x]: [u8; 2]| doubled + x)?,
//!     }
//! }
//! assert_eq!(arena.value(&plan, sum)?, [9; 256]);
//! # Ok::<(), arenaplan::Error>(())
//! ```
//!
//! The pipeline can be entered at any stage: [`Liveness`] makes a graph's buffers, a [`Problem`]
//! can also be written by hand or read from CSV, [`solve()`] packs the problem, and [`Plan::check`]
//! is the independent definition of a valid plan.

#![no_std]
// Some functions serve one feature alone; with all features, none may be unused.
#![cfg_attr(not(all(feature = "std", feature = "serde")), allow(dead_code))]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod base;
pub mod check;
pub mod choose;
#[cfg(feature = "serde")]
pub mod format;
pub mod graph;
pub mod liveness;
pub mod plan;
pub mod planner;
pub mod recompute;
mod run;
mod serve;

#[doc(inline)]
pub use arenaplan_pack as pack;
pub use arenaplan_pack::{Budget, Packing, Problem, SpaceId, Status, solve};
pub use base::{Error, NodeId, Result, ValueId};
pub use check::Verdict;
pub use choose::Memories;
pub use graph::{DType, Effects, Graph, GraphBuilder, Node, Value, ValueKind};
pub use liveness::Liveness;
pub use plan::{Plan, PlanOptions, Target, Technique, Techniques};
pub use planner::Planner;
pub use run::arena::{self, Arena};
pub use run::program::{self, Program};
#[cfg(feature = "serde")]
pub use serve::model::{self, Model};
#[cfg(feature = "std")]
pub use serve::pool::{self, ArenaPool, Lease};

/// The examples on the serving page, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/serving.md")]
struct Serving;

/// The examples in the tutorial for compilers, as tests.
#[cfg(doctest)]
#[allow(rustdoc::invalid_codeblock_attributes, reason = "titles of files, for the site")]
#[doc = include_str!("../docs/tutorials/compiler.md")]
struct Compiler;

/// The examples in the tutorial for servers, as tests.
#[cfg(doctest)]
#[allow(rustdoc::invalid_codeblock_attributes, reason = "titles of files, for the site")]
#[doc = include_str!("../docs/tutorials/server.md")]
struct Server;

/// The examples in the manual, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/manual.md")]
struct Manual;

/// The examples in the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
