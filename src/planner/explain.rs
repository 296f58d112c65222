//! The worth of each technique.

use alloc::vec::Vec;

use super::{Planner, planned};
use crate::base::Result;
use crate::graph::Graph;
use crate::plan::{Plan, Technique, Techniques};

/// The bytes that each technique saves, and the lower bound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The plan that the planner's options give.
    pub plan: Plan,
    /// Bytes of the arena without any technique.
    pub without: u64,
    /// Bytes of the arena with each technique that the target honors added to those before it.
    pub levels: Vec<(Technique, u64)>,
    /// For each technique, the arena if this technique alone were switched: left out if the
    /// options have it, added if not.
    pub switched: Vec<(Technique, u64)>,
}

impl Planner<'_> {
    /// Returns a plan of `graph`, and the worth of each technique.
    ///
    /// Takes about a dozen plans.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Planner, Technique, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("chain");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64])?);
    /// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [64])?);
    /// let z = builder.add_value(Value::new("z", ValueKind::Activation, DType::UINT8, [64])?);
    /// builder.add_node(Node::new("conv", "Conv").reads([x]).writes([y]));
    /// builder.add_node(Node::new("relu", "Relu").reads([y]).writes([z]).in_place(0, 0));
    /// builder.add_output(z);
    ///
    /// let explanation = Planner::new().preserve_inputs(true).explain(&builder.build()?)?;
    /// assert_eq!(explanation.without, 192);
    /// assert_eq!(explanation.levels[1], (Technique::InPlace, 128));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn explain(&self, graph: &Graph) -> Result<Explanation> {
        let plan = self.plan(graph)?;
        let context = self.context(graph)?;
        let bytes = |techniques: Techniques| -> Result<u64> {
            let plan = planned(&context.with_techniques(techniques), graph)?;
            Ok(plan.arena_bytes())
        };
        let mut levels = Vec::new();
        let mut switched = Vec::new();
        let mut techniques = Techniques::NONE;
        let chosen = context.options.optimize;
        for technique in context.target.techniques().iter() {
            techniques = techniques.with(technique);
            levels.push((technique, bytes(techniques)?));
            let other = if chosen.contains(technique) {
                chosen.without(technique)
            } else {
                chosen.with(technique)
            };
            switched.push((technique, bytes(other)?));
        }
        Ok(Explanation { plan, without: bytes(Techniques::NONE)?, levels, switched })
    }
}
