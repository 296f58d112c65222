//! Templates: one graph or plan for several shapes, with a column for each number that varies.

use alloc::{
    format,
    string::{String, ToString as _},
    vec::Vec,
};
use core::fmt;

use hashbrown::HashMap;

use super::plan_numbers::Numbered;
use crate::base::{Error, Result};

/// The numbers that one place has, by row, as [`Number::bits`](crate::base::Number::bits).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NumberColumn {
    /// Whether the numbers may have fractions.
    pub(super) is_real: bool,
    pub(super) bits: Vec<u64>,
}

/// A number that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Varying {
    /// Position among all numbers, in the order of [`Numbered::edit`].
    pub(super) slot: usize,
    /// Position among the columns.
    pub(super) column: usize,
}

/// Graphs or plans that differ in numbers alone.
#[derive(Clone, Debug)]
pub(super) struct Template<D> {
    /// The graph or plan for row 0.
    pub(super) base: D,
    /// By slot, ascending.
    pub(super) varying: Vec<Varying>,
    pub(super) columns: Vec<NumberColumn>,
}

impl<D: Numbered> Template<D> {
    /// Returns the template for rows that each have all numbers in one graph or plan; `model` is
    /// any row's graph or plan.
    pub(super) fn new(model: D, rows: &[Vec<u64>]) -> Result<Self> {
        let mut template = Self { base: model, varying: Vec::new(), columns: Vec::new() };
        let mut known: HashMap<NumberColumn, usize> = HashMap::new();
        let Self { base, varying, columns } = &mut template;
        let mut slot = 0;
        base.edit(&mut |_, mut number| {
            let first = rows[0][slot];
            number.set_bits(first);
            if rows.iter().any(|row| row[slot] != first) {
                let bits = rows.iter().map(|row| row[slot]).collect();
                let column = NumberColumn { is_real: number.is_real(), bits };
                let column = *known.entry(column).or_insert_with_key(|column| {
                    columns.push(column.clone());
                    columns.len() - 1
                });
                varying.push(Varying { slot, column });
            }
            slot += 1;
        });
        template.base.settle()?;
        Ok(template)
    }

    /// Returns the graph or plan for a row.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(super) fn at(&self, row: usize) -> Result<D> {
        let mut found = self.base.clone();
        self.write(row, &mut found)?;
        Ok(found)
    }

    /// Turns the graph or plan of any row into the graph or plan for `row`.
    ///
    /// # Errors
    ///
    /// [`Error::ModelCorrupt`] if a number is too large for its place, and errors from
    /// [`Numbered::settle`].
    pub(super) fn write(&self, row: usize, found: &mut D) -> Result<()> {
        if self.varying.is_empty() {
            return Ok(());
        }
        let (mut varying, mut slot) = (self.varying.iter().peekable(), 0);
        let mut refused: Option<String> = None;
        found.edit(&mut |place, mut number| {
            if let Some(next) = varying.next_if(|next| next.slot == slot)
                && !number.set_bits(self.columns[next.column].bits[row])
            {
                refused.get_or_insert_with(|| place.to_string());
            }
            slot += 1;
        });
        match refused {
            Some(place) => {
                let reason = format!("a number for {place} does not fit 32 bits");
                Err(Error::ModelCorrupt { reason })
            }
            None => found.settle(),
        }
    }

    /// Calls `tell` with place and column of each number that varies.
    pub(super) fn each_varying(&self, mut tell: impl FnMut(fmt::Arguments<'_>, usize)) {
        let mut base = self.base.clone();
        let (mut varying, mut slot) = (self.varying.iter().peekable(), 0);
        base.edit(&mut |place, _| {
            if let Some(next) = varying.next_if(|next| next.slot == slot) {
                tell(place, next.column);
            }
            slot += 1;
        });
    }
}

/// Returns all numbers in a graph or plan.
pub(super) fn numbers_of<D: Numbered>(of: &D) -> Vec<u64> {
    let mut numbers = Vec::new();
    of.clone().edit(&mut |_, number| numbers.push(number.bits()));
    numbers
}
