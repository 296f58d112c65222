//! Options of the solver: a switch per method, and tuning values.

use super::tuning::Tuning;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Switches of the methods of the solver, all on by default.
        ///
        /// A method that is off is not used; the answer of the solver stays valid, and its proofs
        /// stay true. `cargo bench --bench ablation` measures the effect of each switch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::struct_excessive_bools, reason = "each is a switch")]
        #[non_exhaustive]
        pub struct Methods {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl Methods {
            /// All methods.
            pub const ALL: Self = Self { $($name: true,)* };

            /// The names of all methods.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// Returns these methods without the one called `name`, or nothing if there is none.
            #[must_use]
            pub fn without(mut self, name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => self.$name = false,)*
                    _ => return None,
                }
                Some(self)
            }
        }
    };
}

methods! {
    /// First answer from the hints of buffers.
    hints,
    /// First answer by best fit in the order of birth.
    sweep,
    /// Best fit away from the section with the largest load, in both directions of time.
    from_peak,
    /// Kernelization: items that fit wherever all others are get their offsets last.
    kernelization,
    /// Handovers: the items born at a moment take over the room of those that die, in one piece.
    handovers,
    /// First fit in seven orders.
    first_fit,
    /// Best fit in seven orders.
    best_fit,
    /// Skyline heuristic: the lowest plateau is filled first.
    skyline,
    /// Exact search of the items in the sections with the largest loads.
    critical_part,
    /// Ejection chains.
    ejection_chains,
    /// Exact search of cores of up to [`small_core`](crate::PortfolioTuning) items, and of items with windows.
    exact,
    /// Disjunctive search of cores with windows, gaps, alignments or pins.
    disjunctive,
    /// Exact searches for peaks halfway between the bound and the best peak.
    halfway_targets,
    /// Tight cuts: the items that end and begin at a cut of equal sums are one longer item.
    tight_cuts,
    /// The assumption that cuts of equal sums are tight where there is room.
    assumed_cuts,
    /// The assumption that some items at a cut, of equal sums, use the same room.
    assumed_parts,
    /// Exact search of items that have grown a little, so that more cuts are tight.
    grown_sizes,
    /// Blocks: items that fill a rectangle of time and offsets together are one item.
    blocks,
    /// Symmetry breaking: identical items are one kind with copies.
    identical_items,
    /// Dominance rule: an item in all sections of a component is directly below the roof.
    dominance,
    /// Nogoods: hashes of components that have no packing.
    nogoods,
    /// Subset-sum pruning in sections with little slack.
    subset_sums,
    /// Trial placement of the first children before one is chosen.
    look_ahead,
    /// Weights on sections that caused failures.
    failure_weights,
    /// Random noise in the fixed order of items.
    random_ranks,
    /// Short searches with random weights after the first rounds.
    short_searches,
    /// Phase saving: short searches prefer the offsets of the search that left the least area open.
    phase_saving,
}

impl Default for Methods {
    fn default() -> Self {
        Self::ALL
    }
}

/// Methods and tuning values of the solver, for [`Budget::options`](crate::Budget).
///
/// # Examples
///
/// ```
/// use arenaplan_pack::base::LiveRange;
/// use arenaplan_pack::{Buffer, SolveOptions, Space};
/// use arenaplan_pack::{Budget, Problem, solve};
/// let buffers = vec![Buffer::new(4, LiveRange::new(0, 2)?), Buffer::new(6, LiveRange::new(1, 3)?)];
/// let problem = Problem::new(buffers, vec![Space::default()])?;
/// let mut options = SolveOptions::default();
/// options.methods.exact = false;
/// let mut budget = Budget::default();
/// budget.options = Some(&options);
/// assert_eq!(solve(&problem, &budget)?.peak(), 10);
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SolveOptions {
    /// Methods that may be used.
    pub methods: Methods,
    /// Tuning values.
    pub tuning: Tuning,
}

impl SolveOptions {
    /// All methods with default values.
    pub const DEFAULT: Self = Self { methods: Methods::ALL, tuning: Tuning::DEFAULT };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_can_be_switched_off_by_its_name() {
        for name in Methods::NAMES {
            assert!(Methods::ALL.without(name).is_some_and(|methods| methods != Methods::ALL));
        }
        assert_eq!(Methods::ALL.without("magic"), None);
    }
}
