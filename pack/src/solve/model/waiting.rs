//! Numbers that wait to be looked at.

use alloc::vec::Vec;

use super::memory::{filled, with_capacity};
use crate::base::Result;

/// Numbers that wait to be looked at, each once; the last number that came goes first.
#[derive(Debug)]
pub(crate) struct Waiting {
    numbers: Vec<usize>,
    waits: Vec<bool>,
}

impl Waiting {
    /// Makes room for the numbers below `count`; `what` names the table if memory runs out.
    pub(crate) fn new(count: usize, what: &'static str) -> Result<Self> {
        Ok(Self { numbers: with_capacity(count, what)?, waits: filled(false, count, what)? })
    }

    pub(crate) fn add(&mut self, number: usize) {
        if !core::mem::replace(&mut self.waits[number], true) {
            self.numbers.push(number);
        }
    }

    pub(crate) fn take(&mut self) -> Option<usize> {
        let number = self.numbers.pop()?;
        self.waits[number] = false;
        Some(number)
    }

    pub(crate) fn clear(&mut self) {
        while self.take().is_some() {}
    }
}
