//! Restricted models: tight cuts join items, and a core's searches take turns in several models.

pub(super) mod blocks;
pub(super) mod grow;
pub(super) mod handovers;
mod join;
mod orders;
pub(super) mod restrictions;
mod tight_cut;
