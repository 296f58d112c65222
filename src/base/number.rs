//! Numbers in graphs and plans that differ between a model's shapes.

/// A number inside a graph or plan.
///
/// Numbers of all kinds travel as 64 bits, so that a graph has a single number list.
#[derive(Debug)]
pub(crate) enum Number<'a> {
    /// Bytes, elements, nanoseconds.
    Whole(&'a mut u64),
    /// Steps and positions.
    Small(&'a mut u32),
    /// Costs.
    Real(&'a mut f64),
}

impl Number<'_> {
    /// Returns whether the number may have a fraction.
    pub(crate) const fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// Returns the number as 64 bits.
    pub(crate) fn bits(&self) -> u64 {
        match self {
            Self::Whole(number) => **number,
            Self::Small(number) => u64::from(**number),
            Self::Real(number) => number.to_bits(),
        }
    }

    /// Replaces the number by what [`bits`](Self::bits) returned for another number of the same
    /// kind; returns whether the number fits.
    pub(crate) fn set_bits(&mut self, bits: u64) -> bool {
        match self {
            Self::Whole(number) => **number = bits,
            Self::Small(number) => match u32::try_from(bits) {
                Ok(small) => **number = small,
                Err(_) => return false,
            },
            Self::Real(number) => **number = f64::from_bits(bits),
        }
        true
    }
}
