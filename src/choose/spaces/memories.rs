//! The memories of a machine.

use alloc::{format, vec::Vec};

use crate::base::{Error, Result, SpaceId, ValueId, quoted};
use crate::pack::Space;

/// The memories that a plan may use, and which values belong into which.
///
/// ```
/// use arenaplan::pack::Space;
/// use arenaplan::{DType, Graph, Memories, Node, Planner, Value, ValueKind};
/// let mut builder = Graph::builder("net");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [640])?);
/// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [1280])?);
/// builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
/// builder.add_output(y);
/// let memories = Memories::new(vec![
///     Space::new("sram").with_capacity(1500),
///     Space::new("psram").with_capacity(8 << 20).with_cost(1),
/// ])?;
/// let plan = Planner::new().memories(&memories).plan(&builder.build()?)?;
/// // Both do not fit the fast memory: the smaller one, which is moved less, leaves it.
/// assert_eq!(plan.spaces()[1].arena_bytes, 640);
/// assert_eq!(plan.move_cost().map(|moved| (moved.cost, moved.lower_bound)), Some((640, 640)));
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memories {
    spaces: Vec<Space>,
    homes: Vec<(ValueId, SpaceId)>,
}

impl Memories {
    /// Returns the given memories.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidName`] if a memory has no name.
    /// - [`Error::DuplicateName`] if two memories have the same name.
    pub fn new(spaces: Vec<Space>) -> Result<Self> {
        for (index, space) in spaces.iter().enumerate() {
            if space.name().is_empty() {
                return Err(Error::InvalidName { what: "a space has an empty name".into() });
            }
            if spaces[..index].iter().any(|other| other.name() == space.name()) {
                return Err(Error::DuplicateName { what: "spaces", name: quoted(space.name()) });
            }
        }
        Ok(Self { spaces, homes: Vec::new() })
    }

    /// Restricts `value` to `space`; for repeated calls, the last counts.
    #[must_use]
    pub fn pin(mut self, value: ValueId, space: SpaceId) -> Self {
        self.homes.push((value, space));
        self
    }

    /// Returns every memory, by [`SpaceId`].
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Returns the values that are restricted to one memory.
    pub fn homes(&self) -> &[(ValueId, SpaceId)] {
        &self.homes
    }

    /// Returns the memory called `name`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if there is none.
    pub fn find(&self, name: &str) -> Result<SpaceId> {
        let position = self.spaces.iter().position(|space| space.name() == name);
        position.map(SpaceId::new).ok_or_else(|| {
            let known: Vec<_> = self.spaces.iter().map(|space| quoted(space.name())).collect();
            let reason = format!("there is no space {}, only {}", quoted(name), known.join(", "));
            Error::InvalidOption { option: "spaces", reason }
        })
    }
}
