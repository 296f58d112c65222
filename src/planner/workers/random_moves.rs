//! Random changes to orders.

/// Numbers that look random, the same in every run.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) const fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }

    /// Moves one step in an order, of which `ranks` are the ranks: mostly a short
    /// way, sometimes any.
    pub(super) fn move_one(&mut self, ranks: &mut [u64]) {
        let nodes = ranks.len();
        let moved = self.below(nodes);
        let reach = if self.below(4) == 0 { nodes } else { 1 + nodes / 8 };
        let way = u64::try_from(self.below(2 * reach + 1)).unwrap_or(0);
        let to = (ranks[moved] / 4 + way).saturating_sub(u64::try_from(reach).unwrap_or(0));
        ranks[moved] = 4 * to + 1;
    }
}
