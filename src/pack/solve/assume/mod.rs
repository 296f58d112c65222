//! Restricted models: tight cuts join items, and the searches of a core take turns in several
//! models.

mod fillers;
pub(super) mod grow;
mod join;
pub(super) mod restrictions;
mod tight_cut;
