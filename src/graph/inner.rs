//! Inner memory: a last output that nothing reads, for values in graphs that a node runs itself, such
//! as the body of a loop.

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString as _},
    vec::Vec,
};

use super::{DType, Effects, Graph, InnerSize};
use crate::base::{Error, NodeId, Result, ValueId, quoted};

/// A node, and the chosen size of the node's inner memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ChosenInner {
    /// The node.
    pub node: NodeId,
    /// One of the [`InnerSize`]s, in bytes.
    pub bytes: u64,
}

impl Graph {
    /// Returns a copy of the graph in which nodes may have less inner memory, at the cost of more
    /// work. The inner memory of a node is the last output, which nothing reads.
    ///
    /// `sizes` pairs nodes with smaller sizes, by falling bytes and rising work. The sizes are
    /// outside of the [digest](Self::digest).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidEffect`] if a node is not there or has no inner memory, or sizes do not fall.
    ///
    /// ```
    /// use arenaplan::graph::{ChosenInner, InnerSize};
    /// use arenaplan::{DType, Graph, Node, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("loop");
    /// let mut value = |name, kind| Value::new(name, kind, DType::UINT8, [640]);
    /// let x = builder.add_value(value("x", ValueKind::Input)?);
    /// let y = builder.add_value(value("y", ValueKind::Activation)?);
    /// let inner = builder.add_value(value("inner", ValueKind::Activation)?);
    /// let node = builder.add_node(Node::new("rounds", "Loop").reads([x]).writes([y, inner]));
    /// builder.add_output(y);
    /// let graph = builder.build()?;
    ///
    /// let graph = graph.with_inner_sizes([(node, vec![InnerSize { bytes: 64, extra_cost: 9 }])])?;
    /// let smaller = graph.with_inner(&[ChosenInner { node, bytes: 64 }])?;
    /// assert_eq!((smaller.value(inner).bytes(), smaller.node(node).cost()), (64, 9));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn with_inner_sizes(
        &self,
        sizes: impl IntoIterator<Item = (NodeId, Vec<InnerSize>)>,
    ) -> Result<Self> {
        let mut graph = self.clone();
        let readers = self.readers();
        for (id, sizes) in sizes {
            let is_inner = |&inner: &ValueId| {
                let Effects { in_place, views, overlaps, .. } = self.node(id).effects();
                let at = self.node(id).outputs.len() - 1;
                readers[inner.index()].is_empty()
                    && self.read_at_end().all(|it| it != inner)
                    && in_place.iter().all(|it| it.output != at)
                    && views.iter().all(|it| it.output != at)
                    && overlaps.iter().all(|it| it.output != at)
            };
            let Some(inner) = self.inner_memory(id).filter(is_inner) else {
                return refuse(self, id, "it has no last output that is for the node alone".into());
            };
            let mut last = (self.value(inner).bytes(), 0);
            for size in &sizes {
                if size.bytes == 0 || size.bytes >= last.0 || size.extra_cost < last.1 {
                    let (bytes, cost) = (size.bytes, size.extra_cost);
                    let reason = format!("{bytes} bytes at {cost} more work are no smaller size");
                    return refuse(self, id, reason);
                }
                last = (size.bytes, size.extra_cost);
            }
            graph.nodes[id.index()].inner_sizes = sizes;
        }
        Ok(graph)
    }

    /// Returns the graph in which nodes have chosen sizes of inner memory, with the work of these
    /// sizes.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidEffect`] if a node is named twice, or the graph does not permit a size.
    pub fn with_inner(&self, chosen: &[ChosenInner]) -> Result<Self> {
        let mut graph = self.clone();
        for &ChosenInner { node: id, bytes } in chosen {
            let node = graph.nodes.get(id.index());
            let size = node.and_then(|node| node.inner_sizes.iter().find(|it| it.bytes == bytes));
            let (Some(&size), Some(inner)) = (size, self.inner_memory(id)) else {
                let reason = format!("the graph permits no {bytes} bytes of inner memory");
                return refuse(self, id, reason);
            };
            let (node, value) = (&mut graph.nodes[id.index()], &mut graph.values[inner.index()]);
            node.inner_sizes.clear();
            node.cost = node.cost.saturating_add(size.extra_cost);
            (value.dtype, value.shape, value.bytes) = (DType::UINT8, Box::new([bytes]), bytes);
        }
        Ok(graph)
    }

    /// Returns the last output of a node, if the node is there and has such an output.
    pub(crate) fn inner_memory(&self, id: NodeId) -> Option<ValueId> {
        self.nodes.get(id.index())?.outputs.last().copied().flatten()
    }
}

fn refuse<T>(graph: &Graph, id: NodeId, reason: String) -> Result<T> {
    let name = graph.nodes.get(id.index()).map_or_else(|| id.to_string(), |it| quoted(&it.name));
    Err(Error::InvalidEffect { node: name, reason })
}
