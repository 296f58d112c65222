//! Measures how many bytes each technique saves.

use alloc::vec::Vec;

use super::{Chosen, Planner, Point, planned};
use crate::base::Result;
use crate::graph::Graph;
use crate::plan::{Technique, Techniques};

/// The bytes that each technique saves, and the lower bound. Each point belongs to the plan that
/// [`Planner::plan`] makes with these techniques and otherwise the same options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The plan by the planner's options, and the compared plans.
    pub chosen: Chosen,
    /// Without any technique.
    pub without: Point,
    /// Points as the techniques that the target honors are added one after the other.
    pub levels: Vec<(Technique, Point)>,
    /// For each technique, the point if this technique alone were switched: left out if the options
    /// have the technique, else added.
    pub switched: Vec<(Technique, Point)>,
}

impl Planner<'_> {
    /// Returns a plan of `graph`, and the bytes that each technique saves.
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
    /// assert_eq!(explanation.without.bytes, 192);
    /// let (technique, point) = explanation.levels[1];
    /// assert_eq!((technique, point.bytes), (Technique::InPlace, 128));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn explain(&self, graph: &Graph) -> Result<Explanation> {
        let chosen = self.choose(graph)?;
        let context = self.context(graph)?;
        let point = |techniques: Techniques| -> Result<Point> {
            Ok(Point::of(&planned(&context.with_techniques(techniques), graph)?))
        };
        let mut levels = Vec::new();
        let mut switched = Vec::new();
        let mut techniques = Techniques::NONE;
        let all = context.options.optimize;
        for technique in context.target.techniques().iter() {
            techniques = techniques.with(technique);
            levels.push((technique, point(techniques)?));
            let other =
                if all.contains(technique) { all.without(technique) } else { all.with(technique) };
            switched.push((technique, point(other)?));
        }
        Ok(Explanation { chosen, without: point(Techniques::NONE)?, levels, switched })
    }
}
