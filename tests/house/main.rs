//! The house: which file imports which, in every crate, and the names of files and types.

mod floors;
mod source;
