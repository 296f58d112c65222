//! Restricted models: tight cuts join items, and the searches of a core take turns in several
//! models.

mod fillers;
mod join;
pub(super) mod restrictions;
mod tight_cut;
