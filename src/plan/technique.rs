//! Techniques: ways to need fewer bytes.

use alloc::string::ToString as _;
#[cfg(feature = "serde")]
use alloc::{string::String, vec::Vec};
use core::fmt;
use core::str::FromStr;

#[cfg(feature = "serde")]
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::{Error, Result};

/// A way to need fewer bytes at the same step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Technique {
    /// A view shares bytes with the shown value.
    Views,
    /// An output takes over a dying input's bytes.
    InPlace,
    /// Operands are written inside their concatenation, and slices stay inside their source.
    Elision,
    /// Nodes run as one, with elementwise nodes applied piece by piece.
    Fusion,
    /// Nodes run in another order.
    Order,
    /// Products and the row-wise nodes after them run as one, row by row.
    Streaming,
    /// An output that is made in order overlaps a dying input at a distance.
    Overlap,
    /// A cheap node with a large output and small inputs runs again in each fused group that reads
    /// the output: the inputs are kept instead of the output.
    Duplicate,
}

impl Technique {
    /// Every technique, ordered so that each technique has most effect together with the techniques
    /// before.
    pub const ALL: [Self; 8] = [
        Self::Views,
        Self::InPlace,
        Self::Elision,
        Self::Fusion,
        Self::Order,
        Self::Streaming,
        Self::Overlap,
        Self::Duplicate,
    ];

    /// Returns the name used in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Views => "views",
            Self::InPlace => "in-place",
            Self::Elision => "elision",
            Self::Fusion => "fusion",
            Self::Order => "order",
            Self::Streaming => "streaming",
            Self::Overlap => "overlap",
            Self::Duplicate => "duplicate",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Views => 1,
            Self::InPlace => 2,
            Self::Elision => 4,
            Self::Fusion => 8,
            Self::Order => 16,
            Self::Streaming => 32,
            Self::Overlap => 64,
            Self::Duplicate => 128,
        }
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Technique {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|technique| technique.name() == text);
        known.ok_or_else(|| Error::unknown_name("technique", text, &Techniques::ALL.to_string()))
    }
}

/// A technique set.
///
/// ```
/// use arenaplan::{Technique, Techniques};
/// let some: Techniques = "views,in-place".parse()?;
/// assert!(some.contains(Technique::Views) && !some.contains(Technique::Fusion));
/// let all = "views,in-place,elision,fusion,order,streaming,overlap,duplicate";
/// assert_eq!(Techniques::ALL.to_string(), all);
/// assert_eq!("none".parse::<Techniques>()?, Techniques::NONE);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Techniques(u8);

impl Techniques {
    /// Every technique.
    pub const ALL: Self = Self(255);
    /// No technique: every value has separate bytes while needed.
    pub const NONE: Self = Self(0);
    /// Techniques that keep the graph and the order: views and outputs in place.
    pub const BASIC: Self = Self(3);

    /// Returns whether `technique` is in the set.
    #[must_use]
    pub const fn contains(self, technique: Technique) -> bool {
        self.0 & technique.bit() != 0
    }

    /// Returns the set with `technique`.
    #[must_use]
    pub const fn with(self, technique: Technique) -> Self {
        Self(self.0 | technique.bit())
    }

    /// Returns the set without `technique`.
    #[must_use]
    pub const fn without(self, technique: Technique) -> Self {
        Self(self.0 & !technique.bit())
    }

    /// Returns whether every technique in the set is in `other`, too.
    #[must_use]
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns the techniques that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the techniques in the set that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(crate) const fn is_none(&self) -> bool {
        self.0 == 0
    }

    /// Iterates over the techniques in the set.
    pub fn iter(self) -> impl Iterator<Item = Technique> {
        Technique::ALL.into_iter().filter(move |&technique| self.contains(technique))
    }
}

impl FromIterator<Technique> for Techniques {
    fn from_iter<I: IntoIterator<Item = Technique>>(techniques: I) -> Self {
        techniques.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for Techniques {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("none");
        }
        for (index, technique) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{technique}")?;
        }
        Ok(())
    }
}

impl FromStr for Techniques {
    type Err = Error;

    /// Parses `all`, `none`, or comma-separated names.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "all" => Ok(Self::ALL),
            "none" => Ok(Self::NONE),
            _ => text.split(',').map(|name| name.trim().parse::<Technique>()).collect(),
        }
    }
}

#[cfg(feature = "serde")]
impl Serialize for Techniques {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Technique::name))
    }
}

#[cfg(feature = "serde")]
impl<'de> Deserialize<'de> for Techniques {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let techniques = names.iter().map(|name| name.parse::<Technique>());
        techniques.collect::<Result<Self>>().map_err(serde::de::Error::custom)
    }
}
