//! Disjunctive search: for each two items that are live together, one is above the other.
//!
//! Exact search for items with windows, gaps, alignments and other rules. A packing is a decision
//! for each such pair, with the least offsets that obey the decisions: rounding up to allowed
//! offsets is monotone, so propagation finds the least offsets. The search decides pairs,
//! propagates offset bounds, and learns a clause from each conflict.
//!
//! # References
//!
//! The disjunctive graph of job shop scheduling (Roy and Sussmann 1964), searched with lazy clause
//! generation (Ohrimenko, Stuckey and Codish, "Propagation via lazy clause generation", Constraints
//! 14, 2009). Clauses have only literals for pairs: each bound is explained by the pairs that imply
//! it. Windows as several disjunctions per pair are new, as far as known.

mod clauses;
mod cliques;
pub(super) mod conflicts;
pub(super) mod disjunctive_search;
pub(super) mod domain;
pub(super) mod rule_conflicts;
pub(super) mod stacks;
mod trail;
