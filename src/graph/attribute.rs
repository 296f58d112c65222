//! Attributes: properties that a kernel must know besides the operands.

use alloc::{string::String, vec::Vec};

/// An operator's property, such as convolution strides.
///
/// Only kernels read attributes. No plan depends on attributes, so a [digest](crate::Graph::digest)
/// leaves attributes out. An attribute is written to files as the JSON value with the same look: a
/// number with a fraction or an exponent is real, and every other number is whole.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
#[non_exhaustive]
pub enum Attribute {
    /// A whole number, or a truth value as 0 or 1.
    Integer(i64),
    /// A real number, which must be finite.
    Real(f64),
    /// Text.
    Text(String),
    /// Whole numbers. A list without elements always counts as whole numbers.
    Integers(Vec<i64>),
    /// Real numbers, each finite.
    Reals(Vec<f64>),
    /// Texts.
    Texts(Vec<String>),
    /// The operator has the attribute with a value that a graph cannot hold: a tensor, a graph, a
    /// number that is not finite. Files say `null`. A kernel that needs the value cannot run; the
    /// default for an absent attribute would be wrong.
    Omitted,
}

impl Attribute {
    /// Returns the whole number.
    #[must_use]
    pub const fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the real number.
    #[must_use]
    pub const fn as_real(&self) -> Option<f64> {
        match self {
            Self::Real(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the list if the elements are whole numbers.
    #[must_use]
    pub fn as_integers(&self) -> Option<&[i64]> {
        match self {
            Self::Integers(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the list if the elements are real numbers; may be empty.
    #[must_use]
    pub fn as_reals(&self) -> Option<&[f64]> {
        match self {
            Self::Reals(list) => Some(list),
            Self::Integers(list) if list.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// Returns the list if the elements are texts; may be empty.
    #[must_use]
    pub fn as_texts(&self) -> Option<&[String]> {
        match self {
            Self::Texts(list) => Some(list),
            Self::Integers(list) if list.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// Returns the attribute with the single form for empty lists.
    pub(super) fn settled(self) -> Self {
        match self {
            Self::Reals(list) if list.is_empty() => Self::Integers(Vec::new()),
            Self::Texts(list) if list.is_empty() => Self::Integers(Vec::new()),
            other => other,
        }
    }

    /// Returns whether files can hold the attribute.
    pub(super) fn is_finite(&self) -> bool {
        match self {
            Self::Real(number) => number.is_finite(),
            Self::Reals(list) => list.iter().all(|number| number.is_finite()),
            _ => true,
        }
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for Attribute {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for Attribute {
    fn from(truth: bool) -> Self {
        Self::Integer(truth.into())
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<i64>> for Attribute {
    fn from(list: Vec<i64>) -> Self {
        Self::Integers(list)
    }
}

impl From<Vec<f64>> for Attribute {
    fn from(list: Vec<f64>) -> Self {
        Self::Reals(list)
    }
}

impl From<Vec<String>> for Attribute {
    fn from(list: Vec<String>) -> Self {
        Self::Texts(list)
    }
}
