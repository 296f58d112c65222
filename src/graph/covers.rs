//! The part of a model that is in a graph.

use alloc::{
    format,
    string::{String, ToString as _},
    vec::Vec,
};
use core::fmt;

use crate::base::{Error, Hasher, Result, quoted};

/// Names that a message shows of a list.
const MOST_SHOWN: usize = 3;

/// The part of a model that a graph, and a plan for the graph, stand for.
///
/// An importer states the part, the graph digest covers the statement, and a plan has the statement
/// of its graph. The default is the whole model. The size of a part says nothing about the model's
/// size, so no consumer that answers for the model, such as a capacity, accepts a part.
///
/// ```
/// use arenaplan::graph::Covers;
///
/// let whole = Covers::default();
/// assert!(whole.is_whole() && whole.require_whole("net").is_ok());
/// let part = Covers { waiting: vec!["gather".into(), "matmul".into()], ..whole };
/// assert_eq!(part.to_string(), "the nodes ahead of 2 others (gather, matmul)");
/// assert_eq!(part.require_whole("net").unwrap_err().kind(), "PartOfModel");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Covers {
    /// Nodes that are not in the graph, because needed sizes depend on data.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub waiting: Vec<String>,
    /// The causes of those sizes, a sentence each.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub deciders: Vec<String>,
    /// Name of the model's entry point, if the model has several.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub signature: String,
    /// Names of the other entry points, which are not in the graph.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub others: Vec<String>,
}

impl Covers {
    /// Returns whether the graph has the whole model.
    pub const fn is_whole(&self) -> bool {
        self.waiting.is_empty() && self.others.is_empty()
    }

    /// Refuses a part of `model`.
    ///
    /// # Errors
    ///
    /// [`Error::PartOfModel`] if the graph has only a part of the model.
    pub fn require_whole(&self, model: &str) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        Err(Error::PartOfModel { model: quoted(model), part: self.to_string() })
    }

    /// Adds the part to a digest; the whole model adds nothing.
    pub(super) fn hash(&self, hash: &mut Hasher) {
        if *self == Self::default() {
            return;
        }
        for names in [&self.waiting, &self.deciders, &self.others] {
            hash.count(names.len());
            for name in names {
                hash.text(name);
            }
        }
        hash.text(&self.signature);
    }
}

impl fmt::Display for Covers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            return f.write_str("the whole model");
        }
        let mut parts = Vec::new();
        if !self.others.is_empty() {
            let (name, count) = (quoted(&self.signature), self.others.len() + 1);
            let others: Vec<String> = self.others.iter().map(|name| quoted(name)).collect();
            parts.push(format!("signature {name} of {count} (not {})", listed(&others)));
        }
        if !self.waiting.is_empty() {
            // Importers say "the Gather node that makes 'y'" of a node without a name.
            let plain = |name: &String| {
                let text = quoted(name);
                text[1..text.len() - 1].to_string()
            };
            let names: Vec<String> = self.waiting.iter().take(MOST_SHOWN + 1).map(plain).collect();
            let (count, names) = (self.waiting.len(), listed(&names));
            let others = if count == 1 { "other" } else { "others" };
            parts.push(format!("the nodes ahead of {count} {others} ({names})"));
        }
        f.write_str(&parts.join(", "))
    }
}

/// Returns the first names in a list.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MOST_SHOWN).map(String::as_str);
    let rest = (names.len() > MOST_SHOWN).then_some("…");
    shown.chain(rest).collect::<Vec<_>>().join(", ")
}
