//! The solver's tuning values, by topic, with unit and basis.
//!
//! A tuning value changes a search's effort and order. No value changes an answer's meaning: every
//! packing is valid, and a proof of optimality or infeasibility holds for any values.
//!
//! A value's basis names the measurement behind the value. "Ablation" is the value table in
//! `benches/log/ablation.md`: 24 generated instances on which no value was chosen, each value
//! halved and doubled. "Not measured" means that the table has no row for the value.

/// Limits for a search without a deadline and without a node limit.
pub(crate) mod limits {
    /// Effort after which a search ends.
    ///
    /// Unit: memory accesses, some tenths of a second. Basis: not measured.
    pub(crate) const UNLIMITED_EFFORT: usize = 10_000_000;
    /// The same for cores with few items and with windows, alignments or pins.
    ///
    /// Unit: memory accesses, about two seconds. Basis: not measured.
    pub(crate) const RIGID_EFFORT: usize = 300_000_000;
    /// Few items.
    ///
    /// Unit: items. Basis: not measured.
    pub(crate) const RIGID_ITEMS: usize = 40;
    /// Additional effort per item in a core above `portfolio::SMALL_CORE`.
    ///
    /// Unit: memory accesses. Basis: not measured.
    pub(crate) const EFFORT_PER_ITEM: usize = 5_000;
    /// Effort per item after which a long core's search ends.
    ///
    /// Unit: memory accesses. Basis: random chains: 0.1 % fewer bytes at double, 0.4 % more at half.
    pub(crate) const LONG_EFFORT_PER_ITEM: usize = 5_000;
    /// Limit for the additional effort.
    ///
    /// Unit: memory accesses, some seconds. Basis: not measured.
    pub(crate) const MOST_ITEM_EFFORT: usize = 100_000_000;
}

/// The methods' order and effort.
pub(crate) mod portfolio {
    /// Time reserved to put removed items back, as a multiple of the first answer's time.
    ///
    /// Unit: multiple. Basis: no effect in the ablation.
    pub(crate) const PUT_BACK_TIME: u32 = 4;
    /// The same after items were put back once, as a multiple of that put-back's time.
    ///
    /// Unit: multiple. Basis: no effect in the ablation.
    pub(crate) const PUT_BACK_TIME_AGAIN: u32 = 2;
    /// Buffers from which removed items are put back once before any long search.
    ///
    /// Unit: buffers. Basis: no effect in the ablation.
    pub(crate) const EARLY_PUT_BACK: usize = 1 << 13;
    /// Solid items up to which a core is searched as a whole.
    ///
    /// Unit: items. Basis: ablation: gap 33.8 ‰ at half, 38.4 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const SMALL_CORE: usize = 2_000;
    /// Most solid items for searching cores joined at tight cuts, if the joined items are at
    /// most `portfolio::SMALL_CORE`.
    ///
    /// Unit: items. Basis: planted packings of 6,000 items that add up.
    pub(crate) const LARGE_CORE: usize = 10_000;
    /// Items from which a core may count as long.
    ///
    /// Unit: items. Basis: random chains: from 600 items on none of 60 got more bytes, of 130 to 400 items six did.
    pub(crate) const LONG_ITEMS: usize = 500;
    /// Average sections per live item from which a core counts as long.
    ///
    /// Unit: sections per item. Basis: networks have 29 to 250, minimalloc, filled and soft at most 16.
    pub(crate) const LONG_RATIO: u32 = 24;
    /// Greedy passes over a small core before exact search.
    ///
    /// Unit: passes. Basis: ablation: gap 49.9 ‰ at half, 31.2 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const PASSES_SMALL: usize = 3;
    /// Greedy passes over a large core before methods take turns.
    ///
    /// Unit: passes. Basis: within the spread of seeds in the ablation.
    pub(crate) const PASSES_LARGE: usize = 2;
    /// Effort that a turn may always take.
    ///
    /// Unit: memory accesses. Basis: within the spread of seeds in the ablation.
    pub(crate) const SHORTEST_TURN: usize = 1 << 22;
    /// Exact search effort on a small core before items with grown sizes are also searched.
    ///
    /// Unit: memory accesses. Basis: the runs of A to K end before.
    pub(crate) const GROWN_AFTER: usize = 1 << 22;
    /// The other methods get the exact search effort divided by this number.
    ///
    /// Unit: divisor. Basis: no effect in the ablation.
    pub(crate) const OTHERS_DIVISOR: usize = 12;
    /// The same if the packing is to fit a capacity.
    ///
    /// Unit: divisor. Basis: no effect in the ablation.
    pub(crate) const OTHERS_DIVISOR_GOAL: usize = 48;
    /// A turn that closes at least the gap to the bound, divided by this number, is free.
    ///
    /// Unit: divisor. Basis: ablation: gap 35.1 ‰ at half, 33.8 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const FREE_TURN_DIVISOR: u64 = 10;
    /// Exact searches before some searches aim halfway between the bound and the best peak.
    ///
    /// Unit: searches. Basis: ablation: gap 28.8 ‰ at half, 42.2 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const HARD_AFTER: usize = 32;
    /// Among so many later searches, one search aims halfway.
    ///
    /// Unit: searches. Basis: ablation: gap 32.7 ‰ at half, 38.1 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const HALFWAY_EVERY: usize = 3;
    /// The same if the packing is to fit a capacity.
    ///
    /// Unit: searches. Basis: no effect in the ablation.
    pub(crate) const HALFWAY_EVERY_GOAL: usize = 16;
}

/// First fit, best fit and kernelization.
pub(crate) mod greedy {
    /// Gaps that are large enough but misaligned, before the sweep takes a gap that fits anyhow.
    ///
    /// Unit: gaps. Basis: no effect in the ablation.
    pub(crate) const GAP_TRIES: usize = 8;
    /// Peak of a sweep over items with windows, in hundredths of the bound, above which the
    /// first answer also uses first fit, which takes twice as long as the sweep.
    ///
    /// Unit: %. Basis: the time of first answers.
    pub(crate) const SWEPT_PERCENT: u64 = 150;
    /// Passes away from the fullest section, with up to 2 to the power of half as many classes.
    ///
    /// Unit: passes. Basis: the traces of instances/traces.
    pub(crate) const PASSES_FROM_PEAK: u32 = 18;
    /// Interval lists after which a pass is given up.
    ///
    /// Unit: lists. Basis: no effect in the ablation.
    pub(crate) const PASS_WORK: usize = 1 << 28;
    /// Items above the target after which a critical part's completion is given up.
    ///
    /// Unit: items. Basis: no effect in the ablation.
    pub(crate) const MOST_CROWDED: usize = 500;
    /// A kernelization round that removes less than the items divided by this number is the
    /// last.
    ///
    /// Unit: divisor. Basis: no effect in the ablation.
    pub(crate) const LAST_ROUND_DIVISOR: usize = 1 << 10;
}

/// The skyline heuristic.
pub(crate) mod skyline {
    /// Exponent of the size in an item's merit, for the first passes; the length's exponent is
    /// 1.
    ///
    /// Unit: fourths. Basis: within the spread of seeds in the ablation.
    pub(crate) const FIRST_EXPONENTS: [usize; 4] = [4, 2, 4, 0];
    /// Candidates per plateau, for the first passes.
    ///
    /// Unit: items. Basis: within the spread of seeds in the ablation.
    pub(crate) const FIRST_CANDIDATES: [usize; 4] = [8, 8, 16, 8];
    /// Merit weight beside the lost room, for the first passes.
    ///
    /// Unit: weight. Basis: within the spread of seeds in the ablation.
    pub(crate) const FIRST_MERITS: [f64; 4] = [2.0, 8.0, 0.5, 2.0];
    /// Candidates per plateau in later passes: this number, or two or four times the number.
    ///
    /// Unit: items. Basis: no effect in the ablation.
    pub(crate) const RANDOM_CANDIDATES: usize = 4;
    /// Merit weights for later passes to draw from.
    ///
    /// Unit: weight. Basis: no effect in the ablation.
    pub(crate) const RANDOM_MERITS: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0];
    /// Most items in a range for computing the range's uncovered sections.
    ///
    /// Unit: items. Basis: no effect in the ablation.
    pub(crate) const MOST_BESIDE: usize = 64;
    /// Sections in a range in which lost room is sampled.
    ///
    /// Unit: sections. Basis: no effect in the ablation.
    pub(crate) const SAMPLES: usize = 64;
    /// Least room of a section in the loss, as a divisor of the bound.
    ///
    /// Unit: divisor. Basis: within the spread of seeds in the ablation.
    pub(crate) const LEAST_ROOM_DIVISOR: f64 = 2048.0;
}

/// Exact search of the critical part.
pub(crate) mod critical {
    /// Sections with the largest loads at first.
    ///
    /// Unit: sections. Basis: ablation: gap 33.8 ‰ at half, 35.1 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const FIRST_SECTIONS: usize = 64;
    /// Least number of critical items.
    ///
    /// Unit: items. Basis: within the spread of seeds in the ablation.
    pub(crate) const FEWEST_ITEMS: usize = 250;
    /// Items × sections up to which a part is searched.
    ///
    /// Unit: items × sections. Basis: no effect in the ablation.
    pub(crate) const LARGEST_PART: u64 = 4_000_000;
    /// Items without room up to which these become critical, rather than more sections.
    ///
    /// Unit: items. Basis: no effect in the ablation.
    pub(crate) const FEW_CROWDED: usize = 64;
    /// Searches before a target is given up.
    ///
    /// Unit: searches. Basis: no effect in the ablation.
    pub(crate) const TRIES: usize = 8;
    /// The same for a part with many items.
    ///
    /// Unit: searches. Basis: no effect in the ablation.
    pub(crate) const TRIES_MANY: usize = 2;
    /// Items from which a part counts as large.
    ///
    /// Unit: items. Basis: no effect in the ablation.
    pub(crate) const MANY_ITEMS: usize = 2_000;
    /// Targets that are given up before the series starts over.
    ///
    /// Unit: targets. Basis: no effect in the ablation.
    pub(crate) const TARGETS: u32 = 5;
    /// Factor for the distance to the best peak from one target to the next.
    ///
    /// Unit: factor. Basis: no effect in the ablation.
    pub(crate) const TARGET_STEP: f64 = 0.5;
    /// Factor for the number of sections after a completion with many items above the target.
    ///
    /// Unit: factor. Basis: no effect in the ablation.
    pub(crate) const GROWTH: usize = 2;
    /// Divisor for the number of sections after a target was given up.
    ///
    /// Unit: divisor. Basis: no effect in the ablation.
    pub(crate) const SHRINK_DIVISOR: usize = 4;
    /// First-fit passes around the critical items, per order.
    ///
    /// Unit: passes. Basis: within the spread of seeds in the ablation.
    pub(crate) const COMPLETIONS: usize = 2;
}

/// An exact search.
pub(crate) mod exact {
    /// Effort per node besides the node's sections.
    ///
    /// Unit: memory accesses. Basis: ablation: gap 32.7 ‰ at half, 38.1 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const EFFORT_PER_NODE: usize = 200;
    /// Children tried before the choice.
    ///
    /// Unit: items. Basis: ablation: gap 36.2 ‰ at half, 29.7 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const CANDIDATES: usize = 8;
    /// Weight of the rank in a fixed order beside the lost room.
    ///
    /// Unit: weight. Basis: within the spread of seeds in the ablation.
    pub(crate) const RANK: f64 = 0.5;
    /// Nogoods remembered at most.
    ///
    /// Unit: nogoods of 8 bytes. Basis: no effect in the ablation.
    pub(crate) const NOGOODS: usize = 1 << 20;
    /// Subtracted from the number of children in a section's score.
    ///
    /// Unit: children. Basis: within the spread of seeds in the ablation.
    pub(crate) const CHILDREN_OFFSET: f64 = 0.9;
    /// Weight that a section gains per failure; the initial weight is 1.
    ///
    /// Unit: weight. Basis: ablation: gap 32.7 ‰ at half, 36.5 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const FAILURE: f64 = 1.0;
    /// Most items on a section's floor for forming subset sums.
    ///
    /// Unit: items. Basis: ablation: gap 32.7 ‰ at half, 37.3 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const SUM_ITEMS: u32 = 4;
    /// Subset sums are formed if slack is at most the total size of open items divided by this
    /// number.
    ///
    /// Unit: divisor. Basis: ablation: gap 37.3 ‰ at half, 33.8 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const SUM_SLACK_DIVISOR: u64 = 16;
    /// Random part of the rank in the fixed order.
    ///
    /// Unit: weight. Basis: ablation: gap 37.3 ‰ at half, 31.9 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const RANK_NOISE: f64 = 0.05;
    /// Most table entries for searching a model.
    ///
    /// Unit: entries, about 300 MB. Basis: no effect in the ablation.
    pub(crate) const LARGEST: usize = 20_000_000;
}

/// The series of exact searches for a target.
pub(crate) mod restarts {
    /// Items above which the first search gets nodes per item.
    ///
    /// Unit: items. Basis: ablation: gap 39.7 ‰ at half, 35.1 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const MANY_ITEMS: u32 = 600;
    /// Nodes in the first search.
    ///
    /// Unit: nodes. Basis: ablation: gap 36.3 ‰ at half, 42.2 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const FIRST_NODES: f64 = 400.0;
    /// Nodes per item in the first search with many items.
    ///
    /// Unit: nodes. Basis: within the spread of seeds in the ablation.
    pub(crate) const NODES_PER_ITEM: f64 = 2.0;
    /// Growth of searches before short searches begin.
    ///
    /// Unit: factor. Basis: ablation: gap 29.4 ‰ at half, 42.2 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const GROWTH: f64 = 1.06;
    /// Growth of long searches between short searches.
    ///
    /// Unit: factor. Basis: within the spread of seeds in the ablation.
    pub(crate) const LONG_GROWTH: f64 = 1.5;
    /// Nodes in a long search, as a fraction of the nodes in short searches since the last long
    /// search.
    ///
    /// Unit: part. Basis: within the spread of seeds in the ablation.
    pub(crate) const LONG_SHARE: f64 = 0.15;
    /// Nodes in a short search, as a multiple of the first search's nodes.
    ///
    /// Unit: multiple. Basis: within the spread of seeds in the ablation.
    pub(crate) const SHORT: f64 = 2.5;
    /// Turns for every pair of rules before short searches begin.
    ///
    /// Unit: turns. Basis: within the spread of seeds in the ablation.
    pub(crate) const ROUNDS: usize = 5;
    /// One turn is enough if the number of sections with the largest load, times this number,
    /// exceeds all sections.
    ///
    /// Unit: factor. Basis: within the spread of seeds in the ablation.
    pub(crate) const FULL_FACTOR: usize = 10;
    /// Short searches after which failure weights are reset.
    ///
    /// Unit: searches. Basis: within the spread of seeds in the ablation.
    pub(crate) const RESET_SHORT: usize = 16;
    /// Other searches after which failure weights are reset.
    ///
    /// Unit: searches. Basis: within the spread of seeds in the ablation.
    pub(crate) const RESET_LONG: usize = 2;
    /// Short searches without progress after which saved phases are dropped.
    ///
    /// Unit: searches. Basis: no effect in the ablation.
    pub(crate) const STALE: u32 = 30;
    /// Children that short searches try before the choice.
    ///
    /// Unit: items. Basis: within the spread of seeds in the ablation.
    pub(crate) const CANDIDATES: usize = 16;
    /// Among so many short searches, one search ignores saved phases.
    ///
    /// Unit: searches. Basis: within the spread of seeds in the ablation.
    pub(crate) const FREE_EVERY: usize = 3;
    /// Weights of the fixed order for short searches to draw from.
    ///
    /// Unit: weight. Basis: within the spread of seeds in the ablation.
    pub(crate) const RANKS: [f64; 3] = [0.1, 0.5, 1.5];
    /// Weights of skyline steps for short searches to draw from.
    ///
    /// Unit: weight. Basis: within the spread of seeds in the ablation.
    pub(crate) const FITS: [f64; 4] = [0.0, 0.3, 1.0, 3.0];
    /// Weight of a saved phase.
    ///
    /// Unit: weight. Basis: within the spread of seeds in the ablation.
    pub(crate) const PHASE: f64 = 1.0;
}

/// Restricted models.
pub(crate) mod assume {
    /// Searches in each restricted model before the most promising model is preferred.
    ///
    /// Unit: searches. Basis: within the spread of seeds in the ablation.
    pub(crate) const TURNS_EACH: usize = 4;
    /// Items on the larger side of a partial tight cut.
    ///
    /// Unit: items. Basis: within the spread of seeds in the ablation.
    pub(crate) const PART_ITEMS: usize = 4;
    /// Items in a whole tight cut, whose subset sums are all formed. At most 24.
    ///
    /// Unit: items. Basis: within the spread of seeds in the ablation.
    pub(crate) const CUT_ITEMS: usize = 16;
    /// Steps of the search for partial tight cuts in a section.
    ///
    /// Unit: steps. Basis: no effect in the ablation.
    pub(crate) const PART_STEPS: usize = 4096;
    /// Cuts become tight if the sums differ by at most the larger sum divided by one of these.
    ///
    /// Unit: divisors. Basis: planted packings: 1/8 serves noise of 10 %, 1/32 of 2 %.
    pub(crate) const GROWTH_TOLERANCES: [u64; 2] = [8, 32];
    /// Effort after which blocks are packed.
    ///
    /// Unit: memory accesses. Basis: not measured.
    pub(crate) const BLOCK_EFFORT: usize = 1 << 21;
    /// Average items per block; blocks with fewer items are given up.
    ///
    /// Unit: items. Basis: planted packings: 5 to 100 where cuts are those of rectangles.
    pub(crate) const ITEMS_PER_BLOCK: usize = 4;
    /// Effort after which the search for grown sizes is given up.
    ///
    /// Unit: memory accesses. Basis: not measured.
    pub(crate) const GROWTH_EFFORT: usize = 1 << 27;
}

/// Ejection chains.
pub(crate) mod chains {
    /// Initial steps of a chain.
    ///
    /// Unit: steps. Basis: ablation: gap 35.4 ‰ at half, 36.2 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const FIRST_STEPS: usize = 64;
    /// Steps of the longest chain.
    ///
    /// Unit: steps. Basis: no effect in the ablation.
    pub(crate) const MOST_STEPS: usize = 1 << 14;
    /// Factor for the number of steps after a failure.
    ///
    /// Unit: factor. Basis: within the spread of seeds in the ablation.
    pub(crate) const STEPS_GROWTH: usize = 2;
    /// Chains per item before the item counts as stuck.
    ///
    /// Unit: chains. Basis: within the spread of seeds in the ablation.
    pub(crate) const CHAINS_PER_ITEM: usize = 6;
    /// Stuck items after which a target is given up.
    ///
    /// Unit: items. Basis: within the spread of seeds in the ablation.
    pub(crate) const MOST_STUCK: usize = 3;
    /// Distance of the first target, as a fraction of the gap to the bound.
    ///
    /// Unit: part. Basis: within the spread of seeds in the ablation.
    pub(crate) const AMBITION: f64 = 0.15;
    /// Factor for the fraction after a failure.
    ///
    /// Unit: factor. Basis: ablation: gap 32.1 ‰ at half, 37.2 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const AMBITION_DOWN: f64 = 0.6;
    /// Factor for the fraction after a success.
    ///
    /// Unit: factor. Basis: ablation: gap 33.2 ‰ at half, 35.8 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const AMBITION_UP: f64 = 1.5;
    /// Least value of the fraction.
    ///
    /// Unit: part. Basis: no effect in the ablation.
    pub(crate) const LEAST_AMBITION: f64 = 0.001;
    /// Probability of placing a random waiting item next, rather than the largest item.
    ///
    /// Unit: probability. Basis: within the spread of seeds in the ablation.
    pub(crate) const RANDOM_CHOICE: f64 = 0.2;
    /// Effort per step.
    ///
    /// Unit: memory accesses. Basis: within the spread of seeds in the ablation.
    pub(crate) const EFFORT_PER_STEP: usize = 100;
    /// Effort per step and neighbor.
    ///
    /// Unit: memory accesses. Basis: ablation: gap 33.4 ‰ at half, 35.5 ‰ at double, 33.8 ‰ as it is.
    pub(crate) const EFFORT_PER_NEIGHBOR: usize = 16;
}

/// Exact search of items with windows and gaps.
pub(crate) mod windowed {
    /// Parts up to which a model is searched.
    ///
    /// Unit: parts. Basis: no effect in the ablation.
    pub(crate) const LARGEST_PARTS: usize = 20_000;
    /// Bytes for a search's states.
    ///
    /// Unit: bytes. Basis: no effect in the ablation.
    pub(crate) const LARGEST_BYTES: usize = 1 << 28;
    /// Most pairs of parts that are live together for searching a model.
    ///
    /// Unit: pairs. Basis: no effect in the ablation.
    pub(crate) const LARGEST_PAIRS: usize = 4_000_000;
    /// Nodes in the first search.
    ///
    /// Unit: nodes. Basis: within the spread of seeds in the ablation.
    pub(crate) const FIRST_NODES: u64 = 200;
    /// Each search is longer than the previous search by its nodes divided by this number.
    ///
    /// Unit: divisor. Basis: within the spread of seeds in the ablation.
    pub(crate) const GROWTH_DIVISOR: u64 = 8;
}

/// Disjunctive search.
pub(crate) mod disjunctive {
    /// Most disjunctions, pairs of items that may not overlap, for searching a core.
    ///
    /// Unit: disjunctions. Basis: not measured.
    pub(crate) const MOST_PAIRS: usize = 20_000;
    /// Most pairs of buffers that may not overlap for packing a space with rules.
    ///
    /// Unit: pairs, about 1 GB. Basis: not measured.
    pub(crate) const MOST_RULED_PAIRS: usize = 1 << 24;
    /// Most solid items for which disjunctive search gets the exact search's effort.
    ///
    /// Unit: items. Basis: not measured.
    pub(crate) const FEW_ITEMS: usize = 24;
    /// For more items, the divisor for that effort.
    ///
    /// Unit: divisor. Basis: not measured.
    pub(crate) const OTHERS_DIVISOR: usize = 4;
    /// Most parts in a section for computing the least height of a stack.
    ///
    /// Unit: parts. Basis: not measured.
    pub(crate) const STACK_TASKS: usize = 14;
    /// Conflicts in the first search.
    ///
    /// Unit: conflicts. Basis: not measured.
    pub(crate) const FIRST_CONFLICTS: u64 = 100;
    /// Each search is longer than the previous search by its conflicts divided by this number.
    ///
    /// Unit: divisor. Basis: not measured.
    pub(crate) const GROWTH_DIVISOR: u64 = 4;
    /// Conflicts after which a search restarts with its learned clauses.
    ///
    /// Unit: conflicts. Basis: not measured.
    pub(crate) const RESTART_AFTER: u64 = 100;
    /// Clauses above which the less active half is forgotten.
    ///
    /// Unit: clauses. Basis: not measured.
    pub(crate) const MOST_CLAUSES: usize = 20_000;
    /// Factor for the weights of later conflicts.
    ///
    /// Unit: factor. Basis: not measured.
    pub(crate) const ACTIVITY_GROWTH: f64 = 1.05;
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
