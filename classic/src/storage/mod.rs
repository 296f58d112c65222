//! Memory at run time from storage ids: one block per id, one view per value.
//!
//! A runtime that gets storage ids, shapes and types needs no sizes: a block is as large as its
//! largest value. A [`StorageLayout`] has names, blocks and nodes of a planned graph, and a JSON
//! form; a [`StoragePool`] adds the memory, set up as in NNVM's graph runtime. Pools with other
//! memory, such as arrays in a language that calls this crate, are built on the layout.

mod graph;
mod json;
mod layout;
mod params;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::{format, string::String, vec::Vec};

use hashbrown::HashMap;

pub use layout::{StorageEntry, StorageLayout, StorageNode, StorageOperand};
pub use params::{load_params, save_params};

use crate::error::{Error, Result};
use crate::sharing::{Block, StoragePlan};
use arenaplan::Error as Core;
use arenaplan::arena::{
    ArenaAllocator as _, ArenaBlock, Input, NodeMemory, Output, SystemAllocator,
};
use arenaplan::base::{Alignment, SpaceId, quoted};
use arenaplan::graph::{DType, Graph};

/// Alignment in bytes of every block, and of an array that is used without a copy.
const ALIGNMENT: u64 = 64;

/// The caller's array: an input or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor<'a> {
    /// Name of the value for the array.
    pub name: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Tensor dimensions.
    pub shape: Vec<u64>,
    /// Elements of the tensor, in row-major order.
    pub bytes: &'a [u8],
}

/// Memory that serves some values, one after another.
#[derive(Clone, Debug)]
struct Memory {
    bytes: Arc<dyn ArenaBlock>,
    space: SpaceId,
    /// Whether this pool allocated the memory, not a pool that shares parameters.
    is_own: bool,
}

/// The memory for a graph that was planned with storage ids, with value names.
///
/// An input can also be the caller's own array, for as long as the pool lives
/// ([`set_input_zero_copy`](Self::set_input_zero_copy)), or another pool's array
/// ([`share_params`](Self::share_params)): then the array is read, and no longer written.
///
/// ```
/// use arenaplan_classic::storage::{StorageEntry, StoragePool};
/// use arenaplan::{DType, SpaceId};
///
/// let entry = |name: &str, elements, block| StorageEntry {
///     name: name.into(),
///     dtype: DType::UINT8,
///     shape: vec![elements],
///     block,
///     space: SpaceId::new(0),
/// };
/// let entries = vec![entry("a", 10, 0), entry("b", 4, 1), entry("c", 24, 0)];
/// let mut pool = StoragePool::new(entries, vec![0], vec![2])?;
/// assert_eq!(pool.allocated_bytes(), 28);
/// pool.value_mut(2)?.fill(7);
/// assert_eq!(pool.value(0)?, [7; 10]); // the same block
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
#[derive(Debug)]
pub struct StoragePool<'a> {
    layout: StorageLayout,
    blocks: BTreeMap<u32, Memory>,
    /// For each input: the caller's bytes that are read instead.
    lent: HashMap<usize, &'a [u8]>,
}

impl<'a> StoragePool<'a> {
    /// Allocates the blocks of `entries`, zeroed; `inputs` and `outputs` are positions.
    ///
    /// # Errors
    ///
    /// - [`Error::Storage`] if a block has values in two spaces.
    /// - [`Error::DuplicateName`](arenaplan::Error::DuplicateName), [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue), [`Error::SizeOverflow`](arenaplan::Error::SizeOverflow) if
    ///   the entries make no sense.
    /// - [`Error::ArenaCommit`](arenaplan::Error::ArenaCommit) if there is not enough memory.
    pub fn new(
        entries: Vec<StorageEntry>,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
    ) -> Result<Self> {
        Self::with_layout(StorageLayout::new(entries, inputs, outputs)?)
    }

    /// Allocates the blocks of a layout, zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`](arenaplan::Error::ArenaCommit) if there is not enough memory.
    pub fn with_layout(layout: StorageLayout) -> Result<Self> {
        Self::allocate(layout, Vec::new())
    }

    /// Returns the pool for `graph` under `plan`; positions are those of the graph's values.
    ///
    /// # Errors
    ///
    /// As [`StorageLayout::from_plan`] and [`with_layout`](Self::with_layout).
    pub fn from_plan(graph: &Graph, plan: &StoragePlan) -> Result<Self> {
        Self::with_layout(StorageLayout::from_plan(graph, plan)?)
    }

    /// Returns a pool for other values in the blocks of this pool, where large enough: a smaller
    /// graph needs no more memory. Content is not cleared.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn rebind(
        self,
        entries: Vec<StorageEntry>,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
    ) -> Result<Self> {
        let own = self.blocks.into_values().filter(|block| block.is_own);
        let free = own.filter(|block| Arc::strong_count(&block.bytes) == 1).collect();
        Self::allocate(StorageLayout::new(entries, inputs, outputs)?, free)
    }

    fn allocate(layout: StorageLayout, free: Vec<Memory>) -> Result<Self> {
        let size = |memory: &Memory| to_u64(memory.bytes.as_ref().as_ref().len());
        let known: Vec<Block> =
            free.iter().map(|memory| Block { bytes: size(memory), space: memory.space }).collect();
        let mut free: Vec<Option<Memory>> = free.into_iter().map(Some).collect();
        let alignment = Alignment::new(ALIGNMENT)?;
        let mut blocks = BTreeMap::new();
        for (number, found) in layout.reuse(&known) {
            let block = if let Some(memory) = found.and_then(|position| free[position].take()) {
                memory
            } else {
                let Block { bytes, space } = layout.blocks()[&number];
                let bytes = SystemAllocator.allocate(bytes, alignment)?.into();
                Memory { bytes, space, is_own: true }
            };
            blocks.insert(number, block);
        }
        Ok(Self { layout, blocks, lent: HashMap::new() })
    }

    /// Returns names, blocks and nodes.
    pub const fn layout(&self) -> &StorageLayout {
        &self.layout
    }

    /// Returns every value, by position.
    pub fn entries(&self) -> &[StorageEntry] {
        self.layout.entries()
    }

    /// Returns the positions of the values that the caller supplies.
    pub fn inputs(&self) -> &[usize] {
        self.layout.inputs()
    }

    /// Returns the positions of the values that the caller receives.
    pub fn outputs(&self) -> &[usize] {
        self.layout.outputs()
    }

    /// Returns the value position by `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.layout.position(name)
    }

    /// Returns the bytes of all blocks except other pools' blocks.
    pub fn allocated_bytes(&self) -> u64 {
        let own = self.blocks.values().filter(|block| block.is_own);
        own.map(|block| to_u64(block.bytes.as_ref().as_ref().len())).sum()
    }

    /// Returns the bytes that nodes read for the value at `position`.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such value.
    pub fn value(&self, position: usize) -> Result<&[u8]> {
        match self.lent.get(&position) {
            Some(lent) => Ok(lent),
            None => self.own_value(position),
        }
    }

    /// Returns the bytes of the value at `position` to write.
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such value.
    /// - [`Error::Storage`] if the bytes are the caller's, or shared with another pool.
    pub fn value_mut(&mut self, position: usize) -> Result<&mut [u8]> {
        match self.entries().get(position) {
            Some(entry) if self.lent.contains_key(&position) => Err(read_only(&entry.name)),
            _ => self.own_value_mut(position),
        }
    }

    /// Lends a node's operands, by position.
    ///
    /// If a read value is in the block of a written value, the read value is
    /// [within](Input::Within) the written value: the node works in place.
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such value.
    /// - [`Error::Storage`] if two values to write are in one block, or a value cannot be written
    ///   as in [`value_mut`](Self::value_mut).
    pub fn lend(&mut self, reads: &[usize], writes: &[usize]) -> Result<NodeMemory<'_>> {
        let mut written: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (output, &position) in writes.iter().enumerate() {
            self.value_mut(position)?;
            let (block, bytes) = self.locate(position)?;
            if bytes > 0 && written.insert(block, (output, bytes)).is_some() {
                let name = quoted(&self.entries()[position].name);
                return Err(storage(format!("value {name} shares its block with another output")));
            }
        }
        let mut read: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
        let mut inputs: Vec<_> = reads.iter().map(|_| Input::Shared(&[])).collect();
        for (input, &position) in reads.iter().enumerate() {
            let (block, bytes) = self.locate(position)?;
            match (self.lent.get(&position), written.get_mut(&block)) {
                (Some(lent), _) => inputs[input] = Input::Shared(lent),
                (None, Some((output, exclusive))) => {
                    *exclusive = bytes.max(*exclusive);
                    inputs[input] = Input::Within { output: *output, offset: 0 };
                }
                (None, None) => read.entry(block).or_default().push((input, bytes)),
            }
        }
        let mut outputs: Vec<_> = writes.iter().map(|_| Output::Exclusive(&mut [])).collect();
        for (number, block) in &mut self.blocks {
            if let Some(&(output, bytes)) = written.get(number) {
                let block = Arc::get_mut(&mut block.bytes).expect("it was written just now");
                outputs[output] = Output::Exclusive(&mut block.as_mut()[..bytes]);
            } else {
                let block: &[u8] = block.bytes.as_ref().as_ref();
                for &(input, bytes) in read.get(number).into_iter().flatten() {
                    inputs[input] = Input::Shared(&block[..bytes]);
                }
            }
        }
        Ok(NodeMemory::new(inputs, outputs))
    }

    /// Copies an array into the input with the array's name, which nodes then read.
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such input.
    /// - [`Error::Storage`] if the type or shape differs, or the bytes are shared with
    ///   another pool.
    pub fn set_input(&mut self, tensor: &Tensor<'_>) -> Result<()> {
        let position = self.fitting_input(tensor)?;
        self.own_value_mut(position)?.copy_from_slice(tensor.bytes);
        self.lent.remove(&position);
        Ok(())
    }

    /// Makes nodes read the input with the array's name from the array itself.
    ///
    /// [`input`](Self::input) still returns the pool's own bytes.
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such input.
    /// - [`Error::Storage`] if the type or shape differs.
    /// - [`Error::MisalignedBuffer`](arenaplan::Error::MisalignedBuffer) if the array's address is
    ///   not a multiple of 64.
    pub fn set_input_zero_copy(&mut self, tensor: &Tensor<'a>) -> Result<()> {
        let position = self.fitting_input(tensor)?;
        let address = to_u64(tensor.bytes.as_ptr().addr());
        if !tensor.bytes.is_empty() && !address.is_multiple_of(ALIGNMENT) {
            return Err(Error::Core(Core::MisalignedBuffer { alignment: ALIGNMENT }));
        }
        self.lent.insert(position, tensor.bytes);
        Ok(())
    }

    /// Returns the pool's own bytes for an input.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such input.
    pub fn input(&self, name: &str) -> Result<&[u8]> {
        self.own_value(self.layout.input(name)?)
    }

    /// Returns the bytes of output number `index`.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such output.
    pub fn output(&self, index: usize) -> Result<&[u8]> {
        let missing = || undefined(&format!("output {index}"));
        self.value(*self.outputs().get(index).ok_or_else(missing)?)
    }

    /// Copies the arrays in a [parameter blob](save_params) into the inputs with the arrays' names.
    ///
    /// Nothing is changed unless all arrays fit.
    ///
    /// # Errors
    ///
    /// As [`load_params`] and [`set_input`](Self::set_input).
    pub fn load_params(&mut self, blob: &[u8]) -> Result<()> {
        let params = load_params(blob)?;
        for param in &params {
            let position = self.fitting_input(param)?;
            self.own_value_mut(position)?;
        }
        params.iter().try_for_each(|param| self.set_input(param))
    }

    /// Uses the blocks of `other` for some inputs; from then on neither pool writes these blocks
    /// while both pools live.
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if either pool has no such
    ///   input.
    /// - [`Error::Storage`] if a type or shape differs, or an input is not alone in its block.
    ///   Nothing is shared then.
    pub fn share_params(&mut self, other: &StoragePool<'_>, names: &[&str]) -> Result<()> {
        let mut shared = Vec::new();
        for name in names {
            let from = other.lone_input(name)?;
            let to = self.lone_input(name)?;
            if (from.dtype, &from.shape) != (to.dtype, &to.shape) {
                let name = quoted(name);
                return Err(storage(format!("input {name} is another array in the other pool")));
            }
            let block = Memory { is_own: false, ..other.blocks[&from.block].clone() };
            shared.push((self.layout.input(name)?, to.block, block));
        }
        for (position, number, block) in shared {
            self.lent.remove(&position);
            self.blocks.insert(number, block);
        }
        Ok(())
    }

    /// Returns an input that is alone in its block.
    fn lone_input(&self, name: &str) -> Result<&StorageEntry> {
        let entry = &self.entries()[self.layout.input(name)?];
        let in_block = self.entries().iter().filter(|other| other.block == entry.block).count();
        if in_block > 1 {
            let name = quoted(name);
            return Err(storage(format!("input {name} is not alone in its block")));
        }
        Ok(entry)
    }

    /// Returns the position of the input for an array, if the array fits.
    fn fitting_input(&self, tensor: &Tensor<'_>) -> Result<usize> {
        let position = self.layout.fitting_input(tensor.name, tensor.dtype, &tensor.shape)?;
        let (_, bytes) = self.locate(position)?;
        if tensor.bytes.len() != bytes {
            let (name, given) = (quoted(tensor.name), tensor.bytes.len());
            return Err(storage(format!("input {name} has {bytes} bytes, given were {given}")));
        }
        Ok(position)
    }

    /// Returns the bytes that the pool has for the value at `position`.
    fn own_value(&self, position: usize) -> Result<&[u8]> {
        let (block, bytes) = self.locate(position)?;
        Ok(&self.blocks[&block].bytes.as_ref().as_ref()[..bytes])
    }

    /// Returns the bytes that the pool has for the value at `position`, to write.
    fn own_value_mut(&mut self, position: usize) -> Result<&mut [u8]> {
        let (block, bytes) = self.locate(position)?;
        let block = self.blocks.get_mut(&block).expect("every entry has a block");
        let block = Arc::get_mut(&mut block.bytes);
        let block = block.ok_or_else(|| read_only(&self.layout.entries()[position].name))?;
        Ok(&mut block.as_mut()[..bytes])
    }

    /// Returns block and size of the value at `position`.
    fn locate(&self, position: usize) -> Result<(u32, usize)> {
        let missing = || undefined(&format!("value {position}"));
        let entry = self.entries().get(position).ok_or_else(missing)?;
        Ok((entry.block, usize::try_from(entry.bytes()?).expect("its block was allocated")))
    }
}

fn storage(reason: String) -> Error {
    Error::Storage { reason }
}

fn read_only(name: &str) -> Error {
    storage(format!("value {} is shared, and can only be read", quoted(name)))
}

fn undefined(value: &str) -> Error {
    Error::Core(Core::UndefinedValue { user: "the caller".into(), value: value.into() })
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).expect("pointers have at most 64 bits")
}
