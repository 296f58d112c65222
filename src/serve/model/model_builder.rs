//! Models from graphs and plans.

use alloc::collections::BTreeSet;
use alloc::{borrow::ToOwned as _, format, string::String, vec, vec::Vec};

use hashbrown::HashMap;

use super::plan_numbers::Numbered;
use super::shape::{ModelRow, at_shape, text_of};
use super::template::{Template, numbers_of};
use super::{Model, check_dims, check_work};
use crate::base::{Error, Result};
use crate::graph::Graph;
use crate::plan::Plan;

/// Collects the shapes of a [`Model`].
///
/// See [`Model::builder`].
#[derive(Clone, Debug)]
pub struct ModelBuilder {
    name: String,
    dims: Vec<String>,
    graphs: Groups<Graph>,
    plans: Groups<Plan>,
    members: Vec<ShapeMember>,
    known: BTreeSet<Vec<u64>>,
}

/// A shape, and the groups that its graph and plan are in.
#[derive(Clone, Debug)]
struct ShapeMember {
    sizes: Vec<u64>,
    graph: usize,
    plan: usize,
    graph_numbers: Vec<u64>,
    plan_numbers: Vec<u64>,
    digest: String,
}

/// One graph or plan for each outline.
#[derive(Clone, Debug)]
struct Groups<D> {
    first: Vec<D>,
    by_outline: HashMap<String, usize>,
}

impl<D: Numbered> Groups<D> {
    fn new() -> Self {
        Self { first: Vec::new(), by_outline: HashMap::new() }
    }

    /// Returns the group for a graph or plan.
    fn group_of(&mut self, of: &D) -> usize {
        *self.by_outline.entry(of.outline()).or_insert_with(|| {
            self.first.push(of.clone());
            self.first.len() - 1
        })
    }
}

impl ModelBuilder {
    pub(super) fn new(name: String, dims: Vec<String>) -> Self {
        Self {
            name,
            dims,
            graphs: Groups::new(),
            plans: Groups::new(),
            members: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Adds the graph and the plan of a shape: `sizes` has one number per dimension.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidOption`] if there are more or fewer sizes than dimensions, or the shape
    ///   was added before.
    /// - As [`Plan::check`], if the plan is not valid for the graph.
    /// - [`Error::PartOfModel`] if the graph is a part of the model: readers ask a model for its
    ///   size.
    pub fn add(&mut self, sizes: &[u64], graph: &Graph, plan: &Plan) -> Result<&mut Self> {
        let refuse = |reason| Error::InvalidOption { option: "sizes", reason };
        if sizes.len() != self.dims.len() {
            let (given, dims) = (sizes.len(), self.dims.len());
            return Err(refuse(format!("{given} were given for {dims} dimensions")));
        }
        if self.known.contains(sizes) {
            let shape = text_of(&self.dims, sizes);
            return Err(refuse(format!("the shape {shape} is there already")));
        }
        let checked = plan.check(graph).and_then(|_| graph.covers().require_whole(&self.name));
        checked.map_err(|source| at_shape(&self.dims, sizes, source))?;
        self.known.insert(sizes.to_vec());
        self.members.push(ShapeMember {
            sizes: sizes.to_vec(),
            graph: self.graphs.group_of(graph),
            plan: self.plans.group_of(plan),
            graph_numbers: numbers_of(graph),
            plan_numbers: numbers_of(plan),
            digest: plan.digest().to_owned(),
        });
        Ok(self)
    }

    /// Returns the model.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidOption`] if there is no shape, or two dimensions share a name.
    /// - [`Error::ModelCorrupt`] if the shapes are too many to be checked when the model is read.
    pub fn build(mut self) -> Result<Model> {
        check_dims(&self.dims).map_err(|reason| Error::InvalidOption { option: "dims", reason })?;
        if self.members.is_empty() {
            let reason = "a model has one shape at least".into();
            return Err(Error::InvalidOption { option: "sizes", reason });
        }
        self.members.sort_by(|one, other| one.sizes.cmp(&other.sizes));
        let graphs = templates(
            &self.graphs.first,
            self.members.iter_mut().map(|it| (&mut it.graph, &mut it.graph_numbers)),
        )?;
        let mut plans = templates(
            &self.plans.first,
            self.members.iter_mut().map(|it| (&mut it.plan, &mut it.plan_numbers)),
        )?;
        for (index, plan) in plans.iter_mut().enumerate() {
            if let Some(first) = self.members.iter().find(|member| member.plan == index) {
                plan.base.digest.clone_from(&first.digest);
            }
        }
        let rows = self.members.into_iter();
        let rows: Vec<ModelRow> =
            rows.map(|it| ModelRow::new(it.sizes, it.graph, it.plan, it.digest)).collect();
        check_work(&graphs, &rows)?;
        Model::with_rows(self.name, self.dims, graphs, plans, rows)
    }
}

/// Returns a template per group, ordered by first member, and gives members the template positions.
fn templates<'m, D: Numbered>(
    first: &[D],
    members: impl Iterator<Item = (&'m mut usize, &'m mut Vec<u64>)>,
) -> Result<Vec<Template<D>>> {
    let mut position: Vec<Option<usize>> = vec![None; first.len()];
    let mut rows: Vec<(usize, Vec<Vec<u64>>)> = Vec::new();
    for (group, numbers) in members {
        let at = *position[*group].get_or_insert_with(|| {
            rows.push((*group, Vec::new()));
            rows.len() - 1
        });
        rows[at].1.push(core::mem::take(numbers));
        *group = at;
    }
    rows.into_iter().map(|(group, rows)| Template::new(first[group].clone(), &rows)).collect()
}
