//! The distance between an output and an input that overlap.

use alloc::vec::Vec;

use crate::base::NodeId;
use crate::graph::{Graph, Overlap, Value};

impl Graph {
    /// Returns the inputs that the output of `node` may overlap, each with the least distance.
    ///
    /// For a [`Flow`](crate::graph::Flow) in *n* pieces, with *a* output bytes and *b* followed
    /// input bytes per piece: after piece *i*, *(i + 1) a* bytes are written, and bytes from
    /// *(i + 1) b* on are still needed, unless piece *i* was the last. A piece is written after the
    /// whole piece was made, so the number of pieces made at once does not matter.
    ///
    /// With `early_writes`, a kernel writes elements of a piece before it has read all of the piece's
    /// inputs: bytes from *i b* on are then needed until piece *i* is written. A piece of one element
    /// is written after the piece was made.
    ///
    /// A node with several outputs, or a node that mutates a state, has no such inputs: the order
    /// in which outputs are made is unknown.
    ///
    /// ```
    /// use arenaplan::graph::Overlap;
    /// use arenaplan::{DType, Graph, Node, NodeId, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("widening");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [10, 4])?);
    /// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [10, 6])?);
    /// let rows = Node::new("rows", "MatMul").reads([x]).writes([y]).flow(0, 10, [0]);
    /// let rows = builder.add_node(rows);
    /// builder.add_output(y);
    ///
    /// // Before the last of ten rows, 54 bytes are written, and bytes from 36 on are needed.
    /// let graph = builder.build()?;
    /// assert_eq!(graph.overlaps(rows, false), [Overlap { input: 0, output: 0, distance: 18 }]);
    /// // After the last row, 60 bytes are written, and that row needed bytes from 36 on.
    /// assert_eq!(graph.overlaps(rows, true), [Overlap { input: 0, output: 0, distance: 24 }]);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    #[must_use]
    pub fn overlaps(&self, node: NodeId, early_writes: bool) -> Vec<Overlap> {
        let node = self.node(node);
        let effects = node.effects();
        let mut produced = node.produces();
        let (Some((output, made)), None) = (produced.next(), produced.next()) else {
            return Vec::new();
        };
        if !effects.mutates.is_empty() {
            return Vec::new();
        }
        let is_read = |input: usize| node.bytes_read().nth(input).flatten().is_some();
        let declared = effects.overlaps.iter().copied();
        let declared =
            declared.filter(|overlap| overlap.output == output && is_read(overlap.input));
        let flow = effects.flows.iter().find(|flow| flow.output == output && flow.pieces > 1);
        let followed = flow.into_iter().flat_map(|flow| {
            let followed = flow.follows.iter().filter(|&&input| is_read(input));
            followed.filter_map(move |&input| {
                let (a, b) = (
                    piece_bytes(self.value(made), flow.pieces)?,
                    piece_bytes(self.value(node.input(input)?), flow.pieces)?,
                );
                let is_whole = self.value(made).elements() == Some(flow.pieces) || !early_writes;
                let (ahead, own) = (a.saturating_sub(b), if is_whole { 0 } else { a });
                Some(Overlap { input, output, distance: (flow.pieces - 1) * ahead + own })
            })
        });
        let mut found: Vec<Overlap> = declared.chain(followed).collect();
        found.sort_unstable_by_key(|overlap| (overlap.input, overlap.distance));
        found.dedup_by_key(|overlap| overlap.input);
        found
    }

    /// Lets the output of a node overlap inputs; the node's workspaces stay as they are.
    pub(crate) fn let_overlap(&mut self, node: NodeId, overlaps: Vec<Overlap>) {
        let effects = &mut self.nodes[node.index()].effects;
        effects.staging = Some(effects.workspaces.clone());
        effects.overlaps = overlaps;
    }
}

/// Returns the size of a piece if a value is cut into `pieces` equal pieces and that size is whole
/// bytes.
fn piece_bytes(value: &Value, pieces: u64) -> Option<u64> {
    let elements = value.elements()?.checked_div(pieces)?;
    let bits = elements.checked_mul(value.dtype().bits())?;
    bits.is_multiple_of(8).then_some(bits / 8)
}
