//! Hazards: whether edges between steps order all pairs that need an order, and no edge is too
//! many.

use alloc::{format, string::String, vec::Vec};

use crate::base::{Error, Result, quoted};
use crate::check::precedence::{Paths, Reason, required};
use crate::check::unit::Unit;
use crate::graph::Graph;
use crate::plan::{Hazards, Plan};

impl Plan {
    /// Checks the plan, and that `hazards` are exactly the plan's hazards.
    ///
    /// The conflicts between steps are derived anew, without code from [`hazards`](Self::hazards).
    /// Each conflict must be ordered by a path of edges. Each edge must be a conflict with the
    /// right reason, and no other path may connect the edge's steps. So every missing or
    /// superfluous edge is found.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and [`Error::HazardMismatch`] with the unordered steps, or the
    /// edge that is superfluous or has a wrong reason.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("one");
    /// let array = |name, kind| Value::new(name, kind, DType::UINT8, [64]);
    /// let x = builder.add_value(array("x", ValueKind::Input)?);
    /// let y = builder.add_value(array("y", ValueKind::Activation)?);
    /// builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    /// builder.add_output(y);
    /// let graph = builder.build()?;
    /// let plan = Planner::new().plan(&graph)?;
    /// plan.check_hazards(&graph, &plan.hazards(&graph)?)?;
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn check_hazards(&self, graph: &Graph, hazards: &Hazards) -> Result<()> {
        self.check(graph)?;
        if hazards.digest != self.digest || hazards.steps() != self.steps.len() {
            let (model, steps) = (quoted(&hazards.model), hazards.steps());
            return wrong(format!("they are of {steps} steps of a graph {model}"));
        }
        let units = Unit::all(self, graph)?;
        let required = required(self, graph, &units);
        let before: Vec<Vec<usize>> = (0..hazards.steps())
            .map(|step| hazards.of(step).iter().map(|edge| index(edge.before)).collect())
            .collect();
        let paths = Paths::new(&before);
        let pairs: Vec<(usize, usize)> = required.keys().copied().collect();
        let ordered = paths.lead(&pairs, false);
        if let Some(at) = ordered.iter().position(|&is_ordered| !is_ordered) {
            let (after, before) = pairs[at];
            let why = reason(required[&pairs[at]]);
            return wrong(format!(
                "{} may run before {}, {why}",
                self.shown(after),
                self.shown(before)
            ));
        }
        let edges: Vec<(usize, usize)> =
            hazards.edges().iter().map(|edge| (index(edge.after), index(edge.before))).collect();
        for (edge, pair) in hazards.edges().iter().zip(&edges) {
            let [after, before] = [pair.0, pair.1].map(|step| self.shown(step));
            match required.get(pair) {
                None => return wrong(format!("{after} need not wait for {before}")),
                Some(reason) if reason.kind != edge.kind => {
                    let (found, kind) = (edge.kind, reason.kind);
                    return wrong(format!(
                        "{after} waits for {before}: that is {kind}, not {found}"
                    ));
                }
                Some(_) => {}
            }
        }
        let repeated = paths.lead(&edges, true);
        match repeated.iter().position(|&is_repeated| is_repeated) {
            None => Ok(()),
            Some(at) => {
                let [after, before] = [edges[at].0, edges[at].1].map(|step| self.shown(step));
                wrong(format!("that {after} waits for {before} follows from other edges"))
            }
        }
    }

    fn shown(&self, step: usize) -> String {
        let name = self.steps.get(step).map_or("", |step| &step.name);
        format!("step {step} ({})", quoted(name))
    }
}

fn reason(reason: Reason) -> String {
    match reason.byte {
        Some((space, byte)) => format!("and both use byte {byte} of space {space}"),
        None => format!("and the graph orders them ({})", reason.kind),
    }
}

fn index(step: u32) -> usize {
    usize::try_from(step).unwrap_or(usize::MAX)
}

fn wrong<T>(reason: String) -> Result<T> {
    Err(Error::HazardMismatch { reason })
}
