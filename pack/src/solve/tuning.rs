//! Every solver tuning value, by topic, with default, unit and basis.
//!
//! A tuning value changes a search's effort and order. No value changes an answer's meaning: every
//! packing is valid, and a proof of optimality or infeasibility holds for any values.
//! `cargo bench --bench ablation` halves and doubles each value; `benches/log/ablation.md` has the
//! table.
//!
//! A value's basis names the measurement behind the value. "Ablation" is the value table in
//! `benches/log/ablation.md`: 24 generated instances on which no value was chosen, each value
//! halved and doubled. "Not measured" means that the table has no row for the value.

use alloc::{
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

/// A value that the ablation bench can scale.
trait Scale: Copy {
    /// Returns the value times `factor`: positive whole numbers are rounded, and stay positive.
    fn scaled(self, factor: f64) -> Self;

    /// Returns the value for people.
    fn shown(self) -> String;
}

macro_rules! scale_whole {
    ($($kind:ty),*) => {$(
        impl Scale for $kind {
            #[allow(
                clippy::as_conversions,
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_lossless,
                reason = "conversions from floating point saturate, and tuning values may be rounded"
            )]
            fn scaled(self, factor: f64) -> Self {
                (libm::round(self as f64 * factor) as Self).max(self.min(1))
            }

            fn shown(self) -> String {
                self.to_string()
            }
        }
    )*};
}
scale_whole!(usize, u64, u32);

impl Scale for f64 {
    fn scaled(self, factor: f64) -> Self {
        self * factor
    }

    fn shown(self) -> String {
        self.to_string()
    }
}

impl<T: Scale, const N: usize> Scale for [T; N] {
    fn scaled(self, factor: f64) -> Self {
        self.map(|value| value.scaled(factor))
    }

    fn shown(self) -> String {
        self.map(Scale::shown).join(", ")
    }
}

/// A row in the table of tuning values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TuningValue {
    /// Topic, a field name in [`Tuning`].
    pub topic: &'static str,
    /// The value's name within the topic.
    pub name: &'static str,
    /// Default, as text.
    pub default: String,
    /// Unit.
    pub unit: &'static str,
    /// The measurement that the default rests on.
    pub basis: &'static str,
}

macro_rules! tuning {
    ($(
        $(#[$topic_doc:meta])*
        $topic:ident: $struct:ident {
            $($(#[$doc:meta])* $name:ident: $kind:ty = $value:expr, $unit:literal, $basis:literal;)*
        }
    )*) => {
        /// Solver tuning values, by topic.
        ///
        /// # Examples
        ///
        /// ```
        /// use arenaplan_pack::{SolveOptions, Tuning};
        /// use arenaplan_pack::Budget;
        /// let mut options = SolveOptions::default();
        /// options.tuning.portfolio.small_core = 500;
        /// let mut budget = Budget::default();
        /// budget.options = Some(&options);
        /// assert_eq!(Tuning::default().portfolio.small_core, 2_000);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct Tuning {
            $($(#[$topic_doc])* pub $topic: $struct,)*
        }

        $(
            $(#[$topic_doc])*
            #[derive(Clone, Copy, Debug, PartialEq)]
            #[non_exhaustive]
            pub struct $struct {
                $($(#[$doc])* #[doc = concat!("\n\nUnit: ", $unit, ". Basis: ", $basis, ".")] pub $name: $kind,)*
            }
        )*

        impl Tuning {
            /// The default values.
            pub const DEFAULT: Self = Self { $($topic: $struct { $($name: $value,)* },)* };

            /// Returns the table with all values.
            pub fn table() -> Vec<TuningValue> {
                vec![$($(TuningValue {
                    topic: stringify!($topic),
                    name: stringify!($name),
                    default: Self::DEFAULT.$topic.$name.shown(),
                    unit: $unit,
                    basis: $basis,
                },)*)*]
            }

            /// Returns the values with one value multiplied by `factor`: whole numbers are rounded,
            /// and stay positive. Returns nothing if there is no such value.
            #[must_use]
            pub fn scaled(mut self, topic: &str, name: &str, factor: f64) -> Option<Self> {
                match (topic, name) {
                    $($((stringify!($topic), stringify!($name)) => {
                        self.$topic.$name = self.$topic.$name.scaled(factor);
                    })*)*
                    _ => return None,
                }
                Some(self)
            }
        }
    };
}

tuning! {
    /// Limits for a search without a deadline and without a node limit.
    limits: LimitsTuning {
        /// Effort after which a search ends.
        unlimited_effort: usize = 10_000_000, "memory accesses, some tenths of a second", "not measured";
        /// The same for cores with few items and with windows, alignments or pins.
        rigid_effort: usize = 300_000_000, "memory accesses, about two seconds", "not measured";
        /// Few items.
        rigid_items: usize = 40, "items", "not measured";
        /// Additional effort per item in a core above `small_core`.
        effort_per_item: usize = 5_000, "memory accesses", "not measured";
        /// Effort per item after which a long core's search ends.
        long_effort_per_item: usize = 5_000, "memory accesses", "random chains: 0.1 % fewer bytes at double, 0.4 % more at half";
        /// Limit for the additional effort.
        most_item_effort: usize = 100_000_000, "memory accesses, some seconds", "not measured";
    }
    /// The methods' order and effort.
    portfolio: PortfolioTuning {
        /// Time reserved to put removed items back, as a multiple of the first answer's time.
        put_back_time: u32 = 4, "multiple", "no effect in the ablation";
        /// The same after items were put back once, as a multiple of that put-back's time.
        put_back_time_again: u32 = 2, "multiple", "no effect in the ablation";
        /// Buffers from which removed items are put back once before any long search.
        early_put_back: usize = 1 << 13, "buffers", "no effect in the ablation";
        /// Solid items up to which a core is searched as a whole.
        small_core: usize = 2_000, "items", "ablation: gap 33.8 ‰ at half, 38.4 ‰ at double, 33.8 ‰ as it is";
        /// Most solid items for searching cores joined at tight cuts, if the joined items are at
        /// most `small_core`.
        large_core: usize = 10_000, "items", "planted packings of 6,000 items that add up";
        /// Items from which a core may count as long.
        long_items: usize = 500, "items", "random chains: from 600 items on none of 60 got more bytes, of 130 to 400 items six did";
        /// Average sections per live item from which a core counts as long.
        long_ratio: u32 = 24, "sections per item", "networks have 29 to 250, minimalloc, filled and soft at most 16";
        /// Greedy passes over a small core before exact search.
        passes_small: usize = 3, "passes", "ablation: gap 49.9 ‰ at half, 31.2 ‰ at double, 33.8 ‰ as it is";
        /// Greedy passes over a large core before methods take turns.
        passes_large: usize = 2, "passes", "within the spread of seeds in the ablation";
        /// Effort that a turn may always take.
        shortest_turn: usize = 1 << 22, "memory accesses", "within the spread of seeds in the ablation";
        /// Exact search effort on a small core before items with grown sizes are also searched.
        grown_after: usize = 1 << 22, "memory accesses", "the runs of A to K end before";
        /// The other methods get the exact search effort divided by this number.
        others_divisor: usize = 12, "divisor", "no effect in the ablation";
        /// The same if the packing is to fit a capacity.
        others_divisor_goal: usize = 48, "divisor", "no effect in the ablation";
        /// A turn that closes at least the gap to the bound, divided by this number, is free.
        free_turn_divisor: u64 = 10, "divisor", "ablation: gap 35.1 ‰ at half, 33.8 ‰ at double, 33.8 ‰ as it is";
        /// Exact searches before some searches aim halfway between the bound and the best peak.
        hard_after: usize = 32, "searches", "ablation: gap 28.8 ‰ at half, 42.2 ‰ at double, 33.8 ‰ as it is";
        /// Among so many later searches, one search aims halfway.
        halfway_every: usize = 3, "searches", "ablation: gap 32.7 ‰ at half, 38.1 ‰ at double, 33.8 ‰ as it is";
        /// The same if the packing is to fit a capacity.
        halfway_every_goal: usize = 16, "searches", "no effect in the ablation";
    }
    /// First fit, best fit and kernelization.
    greedy: GreedyTuning {
        /// Gaps that are large enough but misaligned, before the sweep takes a gap that fits anyhow.
        gap_tries: usize = 8, "gaps", "no effect in the ablation";
        /// Peak of a sweep over items with windows, in hundredths of the bound, above which the
        /// first answer also uses first fit, which takes twice as long as the sweep.
        swept_percent: u64 = 150, "%", "the time of first answers";
        /// Passes away from the fullest section, with up to 2 to the power of half as many classes.
        passes_from_peak: u32 = 18, "passes", "the traces of instances/traces";
        /// Interval lists after which a pass is given up.
        pass_work: usize = 1 << 28, "lists", "no effect in the ablation";
        /// Items above the target after which a critical part's completion is given up.
        most_crowded: usize = 500, "items", "no effect in the ablation";
        /// A kernelization round that removes less than the items divided by this number is the
        /// last.
        last_round_divisor: usize = 1 << 10, "divisor", "no effect in the ablation";
    }
    /// The skyline heuristic.
    skyline: SkylineTuning {
        /// Exponent of the size in an item's merit, for the first passes; the length's exponent is
        /// 1.
        first_exponents: [usize; 4] = [4, 2, 4, 0], "fourths", "within the spread of seeds in the ablation";
        /// Candidates per plateau, for the first passes.
        first_candidates: [usize; 4] = [8, 8, 16, 8], "items", "within the spread of seeds in the ablation";
        /// Merit weight beside the lost room, for the first passes.
        first_merits: [f64; 4] = [2.0, 8.0, 0.5, 2.0], "weight", "within the spread of seeds in the ablation";
        /// Candidates per plateau in later passes: this number, or two or four times the number.
        random_candidates: usize = 4, "items", "no effect in the ablation";
        /// Merit weights for later passes to draw from.
        random_merits: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0], "weight", "no effect in the ablation";
        /// Most items in a range for computing the range's uncovered sections.
        most_beside: usize = 64, "items", "no effect in the ablation";
        /// Sections in a range in which lost room is sampled.
        samples: usize = 64, "sections", "no effect in the ablation";
        /// Least room of a section in the loss, as a divisor of the bound.
        least_room_divisor: f64 = 2048.0, "divisor", "within the spread of seeds in the ablation";
    }
    /// Exact search of the critical part.
    critical: CriticalTuning {
        /// Sections with the largest loads at first.
        first_sections: usize = 64, "sections", "ablation: gap 33.8 ‰ at half, 35.1 ‰ at double, 33.8 ‰ as it is";
        /// Least number of critical items.
        fewest_items: usize = 250, "items", "within the spread of seeds in the ablation";
        /// Items × sections up to which a part is searched.
        largest_part: u64 = 4_000_000, "items × sections", "no effect in the ablation";
        /// Items without room up to which these become critical, rather than more sections.
        few_crowded: usize = 64, "items", "no effect in the ablation";
        /// Searches before a target is given up.
        tries: usize = 8, "searches", "no effect in the ablation";
        /// The same for a part with many items.
        tries_many: usize = 2, "searches", "no effect in the ablation";
        /// Items from which a part counts as large.
        many_items: usize = 2_000, "items", "no effect in the ablation";
        /// Targets that are given up before the series starts over.
        targets: u32 = 5, "targets", "no effect in the ablation";
        /// Factor for the distance to the best peak from one target to the next.
        target_step: f64 = 0.5, "factor", "no effect in the ablation";
        /// Factor for the number of sections after a completion with many items above the target.
        growth: usize = 2, "factor", "no effect in the ablation";
        /// Divisor for the number of sections after a target was given up.
        shrink_divisor: usize = 4, "divisor", "no effect in the ablation";
        /// First-fit passes around the critical items, per order.
        completions: usize = 2, "passes", "within the spread of seeds in the ablation";
    }
    /// An exact search.
    exact: ExactTuning {
        /// Effort per node besides the node's sections.
        effort_per_node: usize = 200, "memory accesses", "ablation: gap 32.7 ‰ at half, 38.1 ‰ at double, 33.8 ‰ as it is";
        /// Children tried before the choice.
        candidates: usize = 8, "items", "ablation: gap 36.2 ‰ at half, 29.7 ‰ at double, 33.8 ‰ as it is";
        /// Weight of the rank in a fixed order beside the lost room.
        rank: f64 = 0.5, "weight", "within the spread of seeds in the ablation";
        /// Nogoods remembered at most.
        nogoods: usize = 1 << 20, "nogoods of 8 bytes", "no effect in the ablation";
        /// Subtracted from the number of children in a section's score.
        children_offset: f64 = 0.9, "children", "within the spread of seeds in the ablation";
        /// Weight that a section gains per failure; the initial weight is 1.
        failure: f64 = 1.0, "weight", "ablation: gap 32.7 ‰ at half, 36.5 ‰ at double, 33.8 ‰ as it is";
        /// Most items on a section's floor for forming subset sums.
        sum_items: u32 = 4, "items", "ablation: gap 32.7 ‰ at half, 37.3 ‰ at double, 33.8 ‰ as it is";
        /// Subset sums are formed if slack is at most the total size of open items divided by this
        /// number.
        sum_slack_divisor: u64 = 16, "divisor", "ablation: gap 37.3 ‰ at half, 33.8 ‰ at double, 33.8 ‰ as it is";
        /// Random part of the rank in the fixed order.
        rank_noise: f64 = 0.05, "weight", "ablation: gap 37.3 ‰ at half, 31.9 ‰ at double, 33.8 ‰ as it is";
        /// Most table entries for searching a model.
        largest: usize = 20_000_000, "entries, about 300 MB", "no effect in the ablation";
    }
    /// The series of exact searches for a target.
    restarts: RestartsTuning {
        /// Items above which the first search gets nodes per item.
        many_items: u32 = 600, "items", "ablation: gap 39.7 ‰ at half, 35.1 ‰ at double, 33.8 ‰ as it is";
        /// Nodes in the first search.
        first_nodes: f64 = 400.0, "nodes", "ablation: gap 36.3 ‰ at half, 42.2 ‰ at double, 33.8 ‰ as it is";
        /// Nodes per item in the first search with many items.
        nodes_per_item: f64 = 2.0, "nodes", "within the spread of seeds in the ablation";
        /// Growth of searches before short searches begin.
        growth: f64 = 1.06, "factor", "ablation: gap 29.4 ‰ at half, 42.2 ‰ at double, 33.8 ‰ as it is";
        /// Growth of long searches between short searches.
        long_growth: f64 = 1.5, "factor", "within the spread of seeds in the ablation";
        /// Nodes in a long search, as a fraction of the nodes in short searches since the last long
        /// search.
        long_share: f64 = 0.15, "part", "within the spread of seeds in the ablation";
        /// Nodes in a short search, as a multiple of the first search's nodes.
        short: f64 = 2.5, "multiple", "within the spread of seeds in the ablation";
        /// Turns for every pair of rules before short searches begin.
        rounds: usize = 5, "turns", "within the spread of seeds in the ablation";
        /// One turn is enough if the number of sections with the largest load, times this number,
        /// exceeds all sections.
        full_factor: usize = 10, "factor", "within the spread of seeds in the ablation";
        /// Short searches after which failure weights are reset.
        reset_short: usize = 16, "searches", "within the spread of seeds in the ablation";
        /// Other searches after which failure weights are reset.
        reset_long: usize = 2, "searches", "within the spread of seeds in the ablation";
        /// Short searches without progress after which saved phases are dropped.
        stale: u32 = 30, "searches", "no effect in the ablation";
        /// Children that short searches try before the choice.
        candidates: usize = 16, "items", "within the spread of seeds in the ablation";
        /// Among so many short searches, one search ignores saved phases.
        free_every: usize = 3, "searches", "within the spread of seeds in the ablation";
        /// Weights of the fixed order for short searches to draw from.
        ranks: [f64; 3] = [0.1, 0.5, 1.5], "weight", "within the spread of seeds in the ablation";
        /// Weights of skyline steps for short searches to draw from.
        fits: [f64; 4] = [0.0, 0.3, 1.0, 3.0], "weight", "within the spread of seeds in the ablation";
        /// Weight of a saved phase.
        phase: f64 = 1.0, "weight", "within the spread of seeds in the ablation";
    }
    /// Restricted models.
    assume: AssumeTuning {
        /// Searches in each restricted model before the most promising model is preferred.
        turns_each: usize = 4, "searches", "within the spread of seeds in the ablation";
        /// Items on the larger side of a partial tight cut.
        part_items: usize = 4, "items", "within the spread of seeds in the ablation";
        /// Items in a whole tight cut, whose subset sums are all formed. At most 24.
        cut_items: usize = 16, "items", "within the spread of seeds in the ablation";
        /// Steps of the search for partial tight cuts in a section.
        part_steps: usize = 4096, "steps", "no effect in the ablation";
        /// Cuts become tight if the sums differ by at most the larger sum divided by one of these.
        growth_tolerances: [u64; 2] = [8, 32], "divisors", "planted packings: 1/8 serves noise of 10 %, 1/32 of 2 %";
        /// Effort after which blocks are packed.
        block_effort: usize = 1 << 21, "memory accesses", "not measured";
        /// Average items per block; blocks with fewer items are given up.
        items_per_block: usize = 4, "items", "planted packings: 5 to 100 where cuts are those of rectangles";
        /// Effort after which the search for grown sizes is given up.
        growth_effort: usize = 1 << 27, "memory accesses", "not measured";
    }
    /// Ejection chains.
    chains: ChainsTuning {
        /// Initial steps of a chain.
        first_steps: usize = 64, "steps", "ablation: gap 35.4 ‰ at half, 36.2 ‰ at double, 33.8 ‰ as it is";
        /// Steps of the longest chain.
        most_steps: usize = 1 << 14, "steps", "no effect in the ablation";
        /// Factor for the number of steps after a failure.
        steps_growth: usize = 2, "factor", "within the spread of seeds in the ablation";
        /// Chains per item before the item counts as stuck.
        chains_per_item: usize = 6, "chains", "within the spread of seeds in the ablation";
        /// Stuck items after which a target is given up.
        most_stuck: usize = 3, "items", "within the spread of seeds in the ablation";
        /// Distance of the first target, as a fraction of the gap to the bound.
        ambition: f64 = 0.15, "part", "within the spread of seeds in the ablation";
        /// Factor for the fraction after a failure.
        ambition_down: f64 = 0.6, "factor", "ablation: gap 32.1 ‰ at half, 37.2 ‰ at double, 33.8 ‰ as it is";
        /// Factor for the fraction after a success.
        ambition_up: f64 = 1.5, "factor", "ablation: gap 33.2 ‰ at half, 35.8 ‰ at double, 33.8 ‰ as it is";
        /// Least value of the fraction.
        least_ambition: f64 = 0.001, "part", "no effect in the ablation";
        /// Probability of placing a random waiting item next, rather than the largest item.
        random_choice: f64 = 0.2, "probability", "within the spread of seeds in the ablation";
        /// Effort per step.
        effort_per_step: usize = 100, "memory accesses", "within the spread of seeds in the ablation";
        /// Effort per step and neighbor.
        effort_per_neighbor: usize = 16, "memory accesses", "ablation: gap 33.4 ‰ at half, 35.5 ‰ at double, 33.8 ‰ as it is";
    }
    /// Exact search of items with windows and gaps.
    windowed: WindowedTuning {
        /// Parts up to which a model is searched.
        largest_parts: usize = 20_000, "parts", "no effect in the ablation";
        /// Bytes for a search's states.
        largest_bytes: usize = 1 << 28, "bytes", "no effect in the ablation";
        /// Most pairs of parts that are live together for searching a model.
        largest_pairs: usize = 4_000_000, "pairs", "no effect in the ablation";
        /// Nodes in the first search.
        first_nodes: u64 = 200, "nodes", "within the spread of seeds in the ablation";
        /// Each search is longer than the previous search by its nodes divided by this number.
        growth_divisor: u64 = 8, "divisor", "within the spread of seeds in the ablation";
    }
    /// Disjunctive search.
    disjunctive: DisjunctiveTuning {
        /// Most disjunctions, pairs of items that may not overlap, for searching a core.
        most_pairs: usize = 20_000, "disjunctions", "not measured";
        /// Most pairs of buffers that may not overlap for packing a space with rules.
        most_ruled_pairs: usize = 1 << 24, "pairs, about 1 GB", "not measured";
        /// Most solid items for which disjunctive search gets the exact search's effort.
        few_items: usize = 24, "items", "not measured";
        /// For more items, the divisor for that effort.
        others_divisor: usize = 4, "divisor", "not measured";
        /// Most parts in a section for computing the least height of a stack.
        stack_tasks: usize = 14, "parts", "not measured";
        /// Conflicts in the first search.
        first_conflicts: u64 = 100, "conflicts", "not measured";
        /// Each search is longer than the previous search by its conflicts divided by this number.
        growth_divisor: u64 = 4, "divisor", "not measured";
        /// Conflicts after which a search restarts with its learned clauses.
        restart_after: u64 = 100, "conflicts", "not measured";
        /// Clauses above which the less active half is forgotten.
        most_clauses: usize = 20_000, "clauses", "not measured";
        /// Factor for the weights of later conflicts.
        activity_growth: f64 = 1.05, "factor", "not measured";
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Constants of data structures and clocks. These change how fast a result is found, and never the
/// result of a search without a deadline.
pub(crate) mod layout {
    use core::time::Duration;

    /// Binary logarithm of the number of children per node in the occupancy tree. Eight children
    /// take half the time of two and less than half the memory; sixteen are slower for long live
    /// ranges.
    pub(crate) const OCCUPANCY_FAN: u32 = 3;
    /// Consecutive intervals that take as long as a list, in the effort count. Not measured.
    pub(crate) const INTERVALS_PER_ACCESS: usize = 16;
    /// Items per leaf in the tree of contained items. Not measured.
    pub(crate) const CONTAINED_BUCKET: usize = 8;
    /// Items that are sorted without a look at the clock. Not measured.
    pub(crate) const SORTED_AT_ONCE: usize = 1 << 15;
    /// Edges up to which a comparison sort is used rather than buckets. Not measured.
    pub(crate) const COMPARED_EDGES: usize = 256;
    /// Effort between two looks at the clock, about a millisecond.
    pub(crate) const EFFORT_PER_LOOK: usize = 1 << 15;
    /// Items in a pass between two looks at the clock: some milliseconds at most.
    pub(crate) const ITEMS_PER_LOOK: usize = 1 << 8;
    /// Effort to place an item by best fit in time order. Not measured.
    pub(crate) const EFFORT_PER_SWEPT: usize = 16;
    /// Items in a first-fit or skyline pass between two looks at the clock.
    pub(crate) const PLACED_PER_LOOK: usize = 1 << 6;
    /// Work that is almost done may end this much after the deadline.
    pub(crate) const PATIENCE: Duration = Duration::from_millis(30);
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn each_value_can_be_scaled_by_its_name_and_no_other_changes() {
        let table = Tuning::table();
        assert!(table.len() > 80);
        for row in &table {
            let scaled = Tuning::DEFAULT.scaled(row.topic, row.name, 3.0);
            let Some(scaled) = scaled else { panic!("{} {}", row.topic, row.name) };
            assert_ne!(scaled, Tuning::DEFAULT, "{} {}", row.topic, row.name);
            let back = scaled.scaled(row.topic, row.name, 1.0 / 3.0);
            let close = |tuning: Option<Tuning>| format!("{:.6?}", tuning.unwrap_or_default());
            assert_eq!(close(back), close(Some(Tuning::DEFAULT)));
        }
        assert_eq!(Tuning::DEFAULT.scaled("exact", "nothing", 2.0), None);
    }

    #[test]
    fn whole_values_stay_positive() {
        let tuning = Tuning::DEFAULT.scaled("portfolio", "others_divisor", 0.0);
        assert_eq!(tuning.map(|tuning| tuning.portfolio.others_divisor), Some(1));
    }
}
