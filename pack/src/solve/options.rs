//! Options of the solver: a switch per method, and the effort.

use super::tuning;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Switches for the solver's methods, all on by default.
        ///
        /// A method that is off is not used; the solver's answer stays valid, and proofs stay true.
        /// `cargo bench --bench ablation` measures the effect of each switch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::struct_excessive_bools, reason = "each is a switch")]
        #[non_exhaustive]
        pub struct Methods {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl Methods {
            /// All methods.
            pub const ALL: Self = Self { $($name: true,)* };

            /// All method names.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// Returns these methods without the method `name`, or nothing if there is no such
            /// method.
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
    /// First answer from the buffers' hints.
    hints,
    /// First answer by best fit in birth order.
    sweep,
    /// Best fit away from the section with the largest load, in both time directions.
    from_peak,
    /// Kernelization: items that fit wherever all others are get their offsets last.
    kernelization,
    /// Handovers: a moment's born items take over the dying items' room, in one piece.
    handovers,
    /// First fit in seven orders.
    first_fit,
    /// Best fit in seven orders.
    best_fit,
    /// Skyline heuristic: the lowest plateau is filled first.
    skyline,
    /// Exact search of the items in the most loaded sections.
    critical_part,
    /// Ejection chains.
    ejection_chains,
    /// Exact search of small cores, and of items
    /// with windows.
    exact,
    /// Disjunctive search of cores with windows, gaps, alignments or pins.
    disjunctive,
    /// Exact searches for peaks halfway between the bound and the best peak.
    halfway_targets,
    /// Tight cuts: the items that end and begin at a cut with equal sums form a longer item.
    tight_cuts,
    /// The assumption that cuts with equal sums are tight despite slack.
    assumed_cuts,
    /// The assumption that some items at a cut, with equal sums, use the same room.
    assumed_parts,
    /// Exact search of slightly grown items, so that more cuts are tight.
    grown_sizes,
    /// Blocks: items that together fill a rectangle of time and offsets form a single item.
    blocks,
    /// Symmetry breaking: identical items form a kind with copies.
    identical_items,
    /// Dominance rule: an item in all sections of a component is directly below the roof.
    dominance,
    /// Nogoods: hashes of components without a packing.
    nogoods,
    /// Subset-sum pruning in sections with little slack.
    subset_sums,
    /// Trial placement of the first children before the choice.
    look_ahead,
    /// Weights on sections that caused failures.
    failure_weights,
    /// Random noise in the items' fixed order.
    random_ranks,
    /// Short searches with random weights after the first rounds.
    short_searches,
    /// Phase saving: short searches prefer the offsets of the search with the least open area.
    phase_saving,
}

impl Default for Methods {
    fn default() -> Self {
        Self::ALL
    }
}

/// The solver's methods and effort, for [`Budget::options`](crate::Budget).
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SolveOptions {
    /// Methods that may be used.
    pub methods: Methods,
    /// Memory accesses after which a search without a deadline and without a node limit ends.
    pub effort: usize,
}

impl SolveOptions {
    /// All methods with default values.
    pub const DEFAULT: Self =
        Self { methods: Methods::ALL, effort: tuning::limits::UNLIMITED_EFFORT };
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
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
