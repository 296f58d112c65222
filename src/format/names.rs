//! Many short names in one piece of memory.

use alloc::{string::String, vec::Vec};
use core::fmt;

/// A list of names.
///
/// ```
/// let names: arenaplan::format::Names = ["conv", "relu"].into_iter().collect();
/// assert_eq!(names.get(1), Some("relu"));
/// assert_eq!(names.len(), 2);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// All names, one directly behind the other.
    text: String,
    /// For each name: the end in the text.
    ends: Vec<usize>,
}

impl Names {
    /// Appends a name.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// Returns the name at position `index`, if there are so many.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    /// Returns how many names there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Iterates over the names in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[core::mem::replace(&mut start, end)..end])
    }
}

impl<S: AsRef<str>> FromIterator<S> for Names {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let mut names = Self::default();
        iter.into_iter().for_each(|name| names.push(name.as_ref()));
        names
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
