//! Timetables: the times at which several workers run the steps of a plan.

use alloc::vec::Vec;

/// The start time of every step: the certificate of a plan for several workers.
///
/// A plan with a timetable promises that at most so many steps run at once, and that a step starts
/// when all its [hazards](crate::plan::Hazards) have ended. So values that are needed at once in
/// the timetable share no byte. The checker verifies both promises. The times come from a cost
/// model. A run with other times is right as well, since the run waits for hazards and not for the
/// clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Timetable {
    /// Worker count.
    pub workers: u32,
    /// Time by step: the bytes that the nodes touch, unless the caller gave other costs.
    pub costs: Vec<u64>,
    /// Start time by step.
    pub starts: Vec<u64>,
}

impl Timetable {
    /// Returns the serial time.
    pub fn work(&self) -> u64 {
        self.costs.iter().fold(0, |sum, &cost| sum.saturating_add(cost))
    }

    /// Returns the time at which the last step ends.
    pub fn span(&self) -> u64 {
        let ends = self.starts.iter().zip(&self.costs);
        ends.map(|(&start, &cost)| start.saturating_add(cost)).max().unwrap_or(0)
    }

    /// Returns how many workers are busy on average.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn parallelism(&self) -> f64 {
        if self.span() == 0 { 1.0 } else { self.work() as f64 / self.span() as f64 }
    }
}
