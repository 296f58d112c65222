//! Models as JSON, published as [`model_schema`].
//!
//! Graphs and plans for several shapes rarely differ in more than numbers. So a file has few
//! documents, each for the document's first shape, and a column with numbers for each place that
//! varies. The text is untrusted: every graph and every plan is made and checked when the file is
//! read.

#![allow(clippy::zero_sized_map_values, reason = "of unknown fields only the names matter")]

use alloc::collections::BTreeMap;
use alloc::{
    borrow::ToOwned as _,
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};
use core::fmt;
use core::fmt::Write as _;
#[cfg(feature = "std")]
use std::path::Path;

use serde::de::{self, IgnoredAny};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::plan_numbers::Numbered;
use super::shape::ModelRow;
use super::template::{NumberColumn, Template, Varying};
use super::{Model, check_dims, check_work};
use crate::base::{Error, Result};
use crate::format::{Form, GraphDocument, PlanDocument, admit, checksum, to_text};
#[cfg(feature = "std")]
use crate::format::{read, write_file};
use crate::graph::Graph;
use crate::plan::Plan;

/// The version of model files that this crate writes, and the only version that this crate reads.
pub const MODEL_VERSION: u32 = 1;

const FORM: Form = Form {
    format: "arenaplan-model",
    version: MODEL_VERSION,
    too_large: |bytes, limit| Error::FileTooLarge { what: "model", bytes, limit },
    corrupt,
    other_version: |reason| Error::ModelVersion { reason },
};

/// Returns the JSON Schema (draft 2020-12) for model files.
///
/// ```
/// assert!(arenaplan::model::model_schema().contains("\"columns\""));
/// ```
#[must_use]
pub const fn model_schema() -> &'static str {
    include_str!("../../../schema/model.schema.json")
}

/// A model file.
#[derive(Serialize, Deserialize)]
struct ModelDocument {
    format: String,
    version: u32,
    model: String,
    dims: Vec<String>,
    arena_bytes: u64,
    graphs: Vec<TemplateRow<GraphDocument>>,
    plans: Vec<TemplateRow<PlanDocument>>,
    shapes: Vec<ShapeRow>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    checksum: String,
    /// Other programs' fields; by convention, names begin with `x-`.
    #[serde(flatten, skip_serializing)]
    extra: BTreeMap<String, IgnoredAny>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateRow<D> {
    /// The document of the first shape that uses the document.
    document: D,
    /// Column for each place that varies, by JSON Pointer.
    numbers: BTreeMap<String, u32>,
    columns: Vec<ColumnRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeRow {
    sizes: Vec<u64>,
    graph: u32,
    plan: u32,
    digest: String,
}

/// A list of whole numbers, or a list in which some numbers have fractions.
struct ColumnRow(NumberColumn);

impl Serialize for ColumnRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.bits.len()))?;
        for &bits in &self.0.bits {
            if self.0.is_real {
                list.serialize_element(&f64::from_bits(bits))?;
            } else {
                list.serialize_element(&bits)?;
            }
        }
        list.end()
    }
}

/// A number in a column.
enum Cell {
    Whole(u64),
    Real(f64),
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CellVisitor;
        impl de::Visitor<'_> for CellVisitor {
            type Value = Cell;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of at least 0")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cell, E> {
                Ok(Cell::Whole(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Cell, E> {
                Ok(Cell::Real(number))
            }
        }
        deserializer.deserialize_any(CellVisitor)
    }
}

impl<'de> Deserialize<'de> for ColumnRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowVisitor;
        impl<'de> de::Visitor<'de> for RowVisitor {
            type Value = ColumnRow;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of numbers of one kind")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<ColumnRow, A::Error> {
                let mut column = NumberColumn { is_real: false, bits: Vec::new() };
                while let Some(cell) = list.next_element()? {
                    let (is_real, bits) = match cell {
                        Cell::Whole(number) => (false, number),
                        Cell::Real(number) => (true, number.to_bits()),
                    };
                    if column.bits.is_empty() {
                        column.is_real = is_real;
                    } else if column.is_real != is_real {
                        return Err(de::Error::custom("whole numbers and others in one column"));
                    }
                    column.bits.push(bits);
                }
                Ok(ColumnRow(column))
            }
        }
        deserializer.deserialize_seq(RowVisitor)
    }
}

impl Model {
    /// Returns the model as JSON text: the same model always gives the same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        let shapes = self.rows.iter().map(|row| ShapeRow {
            sizes: row.sizes.clone(),
            graph: position(row.graph),
            plan: position(row.plan),
            digest: row.digest.clone(),
        });
        let mut document = ModelDocument {
            format: FORM.format.into(),
            version: FORM.version,
            model: self.name.clone(),
            dims: self.dims.iter().map(|dim| dim.name().to_owned()).collect(),
            arena_bytes: self.arena_bytes,
            graphs: self.graphs.iter().map(|it| TemplateRow::of(it, GraphDocument::of)).collect(),
            plans: self.plans.iter().map(|it| TemplateRow::of(it, PlanDocument::of)).collect(),
            shapes: shapes.collect(),
            checksum: String::new(),
            extra: BTreeMap::new(),
        };
        document.checksum = checksum(&document);
        to_text(&document)
    }

    /// Returns the model in a JSON text, after checking every plan against its graph.
    ///
    /// # Errors
    ///
    /// - [`Error::FileTooLarge`] if the text is longer than 1 GiB.
    /// - [`Error::ModelVersion`] if the version is not [`MODEL_VERSION`], or a field is unknown.
    /// - [`Error::ModelCorrupt`] if the text is not JSON, a field is missing, twice there, or of
    ///   the wrong type, or the checksum does not fit.
    /// - [`Error::OutOfMemory`] if there is not enough memory to read the text.
    /// - As [`Graph::from_json`], [`Plan::from_json`] and [`Plan::check`], for the shape that the
    ///   message names.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        FORM.check_size(text)?;
        admit(text.len(), "the model of a file")?;
        FORM.parse::<ModelDocument>(text)?.into_model()
    }

    /// Writes the model to a file, as [`write_file`] does.
    ///
    /// # Errors
    ///
    /// As [`write_file`].
    #[cfg(feature = "std")]
    pub fn save(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        write_file(path, self.to_json().as_bytes()).map_err(|error| error.source)
    }

    /// Reads a model from a file, and checks every plan against its graph.
    ///
    /// # Errors
    ///
    /// [`Error::FileUnreadable`], and as [`from_json`](Self::from_json).
    #[cfg(feature = "std")]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_json(&read(path.as_ref())?)
    }
}

impl<D> TemplateRow<D> {
    fn of<N: Numbered>(template: &Template<N>, document: fn(&N) -> D) -> Self {
        let mut numbers = BTreeMap::new();
        template.each_varying(|place, column| {
            numbers.insert(place.to_string(), position(column));
        });
        let columns = template.columns.iter().map(|column| ColumnRow(column.clone())).collect();
        Self { document: document(&template.base), numbers, columns }
    }

    /// Returns the template for `rows` shapes.
    fn into_template<N: Numbered>(
        self,
        rows: usize,
        read: impl FnOnce(D) -> Result<N>,
    ) -> Result<Template<N>> {
        let mut base = read(self.document)?;
        let columns: Vec<NumberColumn> = self.columns.into_iter().map(|column| column.0).collect();
        if columns.iter().any(|column| column.bits.len() != rows) {
            return Err(corrupt(format!("a column does not have {rows} numbers, one per shape")));
        }
        let mut varying = Vec::with_capacity(self.numbers.len());
        let (mut slot, mut pointer, mut refused) = (0, String::new(), None::<String>);
        if !self.numbers.is_empty() {
            base.edit(&mut |place, number| {
                pointer.clear();
                // Writing to a string cannot fail.
                let _ = write!(pointer, "{place}");
                if let Some(&column) = self.numbers.get(&pointer) {
                    let column = usize::try_from(column).unwrap_or(usize::MAX);
                    let first =
                        columns.get(column).and_then(|it| Some((it.is_real, it.bits.first()?)));
                    if first != Some((number.is_real(), &number.bits())) {
                        refused.get_or_insert_with(|| pointer.clone());
                    }
                    varying.push(Varying { slot, column });
                }
                slot += 1;
            });
        }
        if let Some(place) = refused {
            return Err(corrupt(format!("the column of {place} does not begin with its number")));
        }
        if varying.len() < self.numbers.len() {
            return Err(corrupt("a column is for a place that has no number".into()));
        }
        Ok(Template { base, varying, columns })
    }
}

impl ModelDocument {
    fn into_model(mut self) -> Result<Model> {
        FORM.check_head(&self.format, self.version.into())?;
        FORM.check_fields(&self.extra)?;
        let found = core::mem::take(&mut self.checksum);
        if found != checksum(&self) {
            return Err(corrupt("its checksum does not fit its content".into()));
        }
        check_dims(&self.dims).map_err(corrupt)?;
        let rows = self.rows()?;
        let users = users(rows.iter().map(|row| row.graph), self.graphs.len());
        let graphs = self.graphs.into_iter().zip(users);
        let graphs = graphs.map(|(row, users)| row.into_template(users, GraphDocument::into_graph));
        let graphs: Vec<Template<Graph>> = graphs.collect::<Result<_>>()?;
        check_work(&graphs, &rows)?;
        let users = self::users(rows.iter().map(|row| row.plan), self.plans.len());
        let plans = self.plans.into_iter().zip(users);
        let plans = plans.map(|(row, users)| row.into_template(users, PlanDocument::into_plan));
        let plans: Vec<Template<Plan>> = plans.collect::<Result<_>>()?;
        let model = Model::with_rows(self.model, self.dims, graphs, plans, rows)?;
        if model.arena_bytes != self.arena_bytes {
            return Err(corrupt("its bytes are not those of its plans".into()));
        }
        Ok(model)
    }

    /// Returns the shapes, with ascending sizes, each with a graph and a plan that is there.
    fn rows(&self) -> Result<Vec<ModelRow>> {
        let mut rows: Vec<ModelRow> = Vec::with_capacity(self.shapes.len());
        let mut next = (0, 0);
        for ShapeRow { sizes, graph, plan, digest } in &self.shapes {
            if sizes.len() != self.dims.len() {
                return Err(corrupt("a shape does not have one size per dimension".into()));
            }
            if rows.last().is_some_and(|before| before.sizes >= *sizes) {
                return Err(corrupt("its shapes are not in ascending order".into()));
            }
            let known = |id: u32, next: &mut usize, most: usize| {
                let id = usize::try_from(id).ok().filter(|id| id <= next && *id < most)?;
                *next = (id + 1).max(*next);
                Some(id)
            };
            let graph = known(*graph, &mut next.0, self.graphs.len());
            let plan = known(*plan, &mut next.1, self.plans.len());
            let Some((graph, plan)) = graph.zip(plan) else {
                let reason = "its graphs and plans are not in the order of their first shapes";
                return Err(corrupt(reason.into()));
            };
            rows.push(ModelRow::new(sizes.clone(), graph, plan, digest.clone()));
        }
        if rows.is_empty() || next != (self.graphs.len(), self.plans.len()) {
            return Err(corrupt("it has no shapes, or graphs or plans of none".into()));
        }
        Ok(rows)
    }
}

/// Returns how often each of `count` templates is used.
fn users(templates: impl Iterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut users = vec![0; count];
    templates.for_each(|template| users[template] += 1);
    users
}

/// Returns a position for a file: a model has fewer than 2^32 of anything.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn corrupt(reason: String) -> Error {
    Error::ModelCorrupt { reason }
}
