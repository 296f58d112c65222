//! Targets: descriptions of programs that run plans.
//!
//! A plan is right only for a runner that meets the plan's assumptions: a runner that calls one
//! kernel per node cannot run two nodes tile by tile, and a kernel that reads its whole input after
//! its first write cannot write over that input. A [`Target`] states the runner's abilities. The
//! planner uses nothing else, the plan carries the description, and the checker compares the plan
//! with the description. In the same way, the register allocator regalloc2 gets a plain
//! `MachineEnv` that the allocator and its checker both read.

use alloc::borrow::Cow;
use alloc::{format, string::String, vec::Vec};
use core::fmt;
use core::str::FromStr;

use crate::base::{Error, Result, quoted};
use crate::plan::technique::{Technique, Techniques};

/// The smallest unit that a runner executes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Granularity {
    /// One node: every value that a node produces exists as a whole.
    Node,
    /// A fused group of nodes: values inside a group are produced and consumed element by
    /// element.
    Group,
    /// Tiles in a fused group: rows, blocks of rows or channels.
    Tile,
}

impl Granularity {
    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Group => "group",
            Self::Tile => "tile",
        }
    }
}

/// The origin of bytes that a run needs beside the graph's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Provider {
    /// A run needs no such bytes, or the description leaves them out on purpose.
    #[default]
    Nobody,
    /// Nodes declare such bytes as workspaces before planning, so that the plan places the bytes.
    Graph,
    /// The runner adds such bytes by itself. No figure in the plan counts them.
    Runner,
}

impl Provider {
    /// Returns the name used in plan files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Graph => "graph",
            Self::Runner => "runner",
        }
    }
}

/// A description of a program that runs plans.
///
/// The constants are the runners that this project knows; [`Target::custom`] describes other
/// runners.
///
/// ```
/// use arenaplan::plan::Granularity;
/// use arenaplan::{Target, Technique};
///
/// assert_eq!(Target::NODES.granularity(), Granularity::Node);
/// assert!(!Target::NODES.techniques().contains(Technique::Fusion));
///
/// // An engine of one's own that also runs fused groups.
/// let techniques = Target::NODES.techniques().with(Technique::Fusion);
/// let engine = Target::custom("engine", techniques)?.with_alignment(32)?;
/// assert_eq!(engine.granularity(), Granularity::Group);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about a runner")]
pub struct Target {
    name: Cow<'static, str>,
    techniques: Techniques,
    alignment: u64,
    #[cfg_attr(feature = "serde", serde(default = "one", skip_serializing_if = "is_one"))]
    offset_unit: u64,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_false"))]
    caller_memory: bool,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_false"))]
    several_spaces: bool,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_false"))]
    early_writes: bool,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    strip_axis: Option<usize>,
    #[cfg_attr(feature = "serde", serde(default))]
    scratch: Provider,
    #[cfg_attr(feature = "serde", serde(default))]
    fixed: Provider,
}

const fn one() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one(number: &u64) -> bool {
    *number == 1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Target {
    /// No runner: every technique, and only value bytes, whole or as rows in line buffers. Kernels
    /// need no scratch memory.
    pub const IDEAL: Self = Self {
        name: Cow::Borrowed("ideal"),
        techniques: Techniques::ALL,
        alignment: 64,
        offset_unit: 1,
        caller_memory: true,
        several_spaces: true,
        early_writes: false,
        strip_axis: None,
        scratch: Provider::Nobody,
        fixed: Provider::Nobody,
    };

    /// The `NumPy` executor in the Python package: every technique; kernels declare scratch memory
    /// before planning. Offsets are multiples of 8 bytes: compiled kernels read no number that lies
    /// across its own size.
    pub const NUMPY: Self = Self {
        name: Cow::Borrowed("numpy"),
        offset_unit: 8,
        scratch: Provider::Graph,
        ..Self::IDEAL
    };

    /// The CUDA executor in the Python package: fused groups, in which inner values that a later
    /// kernel reads as a whole are scratch memory; kernels declare scratch memory before planning.
    /// Offsets are multiples of 256 bytes, as are addresses that the CUDA runtime allocates.
    pub const CUPY: Self = Self {
        name: Cow::Borrowed("cupy"),
        techniques: Self::NODES.techniques.with(Technique::Fusion),
        alignment: 256,
        caller_memory: false,
        several_spaces: false,
        ..Self::NUMPY
    };

    /// Any program that runs each declared node by itself, in the plan's order: the default.
    ///
    /// Views and in-place pairs are permissions that the nodes declare, so a kernel for one node
    /// honors them. A kernel knows nothing of tiles.
    pub const NODES: Self = Self {
        name: Cow::Borrowed("nodes"),
        techniques: Techniques::NONE
            .with(Technique::Views)
            .with(Technique::InPlace)
            .with(Technique::Elision)
            .with(Technique::Order),
        offset_unit: 1,
        ..Self::NUMPY
    };

    /// C code that includes the exported header and calls one kernel per node: views at equal
    /// addresses and elementwise outputs in place. A kernel may work pixel by pixel.
    pub const C: Self = Self {
        name: Cow::Borrowed("c"),
        techniques: Techniques::NONE
            .with(Technique::Views)
            .with(Technique::InPlace)
            .with(Technique::Order),
        alignment: 16,
        caller_memory: false,
        scratch: Provider::Runner,
        ..Self::NODES
    };

    /// The C function that `export --to c-code` writes. Every technique but fusion is honored. The
    /// kernels need no scratch memory: they read an element's window, and then write the element.
    /// Strips are rows of images that are stored pixel by pixel.
    pub const C_CODE: Self = Self {
        name: Cow::Borrowed("c-code"),
        techniques: Self::NODES.techniques.with(Technique::Streaming).with(Technique::Overlap),
        alignment: 8,
        early_writes: true,
        strip_axis: Some(1),
        scratch: Provider::Nobody,
        ..Self::NODES
    };

    /// `TensorFlow` Lite Micro: reshapes at equal addresses. Operators run in file order, and
    /// unnamed kernels do not work in place, see [`with_kernels`](Self::with_kernels). Kernels ask
    /// for scratch memory when they are prepared, and the runtime keeps its structures in the tail
    /// of the arena.
    pub const TFLM: Self = Self {
        name: Cow::Borrowed("tflm"),
        techniques: Techniques::NONE.with(Technique::Views),
        alignment: 16,
        offset_unit: 16,
        caller_memory: false,
        several_spaces: false,
        early_writes: false,
        strip_axis: None,
        scratch: Provider::Runner,
        fixed: Provider::Runner,
    };

    /// `LiteRT` (`TensorFlow` Lite): as [`TFLM`](Self::TFLM), with 64-byte alignment.
    pub const LITERT: Self =
        Self { name: Cow::Borrowed("litert"), alignment: 64, offset_unit: 64, ..Self::TFLM };

    /// `ExecuTorch`: views at equal addresses, in the emitted program's order; one or several
    /// planned arenas.
    pub const EXECUTORCH: Self = Self {
        name: Cow::Borrowed("executorch"),
        techniques: Techniques::NONE.with(Technique::Views),
        alignment: 16,
        offset_unit: 1,
        caller_memory: true,
        several_spaces: true,
        early_writes: false,
        strip_axis: None,
        scratch: Provider::Runner,
        fixed: Provider::Runner,
    };

    /// The targets that this project knows, the most able first.
    pub const KNOWN: [Self; 9] = [
        Self::IDEAL,
        Self::NUMPY,
        Self::CUPY,
        Self::NODES,
        Self::C_CODE,
        Self::C,
        Self::TFLM,
        Self::LITERT,
        Self::EXECUTORCH,
    ];

    /// Returns the description of another runner that honors `techniques`, with the other
    /// properties as in [`NODES`](Self::NODES).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the name is empty or the name of a known target.
    pub fn custom(name: impl Into<String>, techniques: Techniques) -> Result<Self> {
        let name = name.into();
        if name.is_empty() || Self::known(&name).is_some() {
            let reason = format!("{} is empty or names a known target", quoted(&name));
            return Err(Error::InvalidOption { option: "target", reason });
        }
        Ok(Self { name: Cow::Owned(name), techniques, ..Self::NODES })
    }

    /// Returns this target with a named kernel set, as `"tflm:reference"`: outputs in place and
    /// elision are honored, since the graph declares the permissions of these kernels.
    ///
    /// ```
    /// use arenaplan::{Target, Technique};
    ///
    /// let target = Target::TFLM.with_kernels("reference")?;
    /// assert_eq!((target.name(), target.runtime()), ("tflm:reference", "tflm"));
    /// assert!(target.techniques().contains(Technique::InPlace));
    /// assert_eq!("tflm:reference".parse::<Target>()?, target);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the name is empty, or the target has kernels already.
    pub fn with_kernels(mut self, kernels: &str) -> Result<Self> {
        if kernels.is_empty() || kernels.contains(':') || self.name.contains(':') {
            let reason = format!("{} names no kernels of {}", quoted(kernels), quoted(&self.name));
            return Err(Error::InvalidOption { option: "target", reason });
        }
        self.name = Cow::Owned(format!("{}:{kernels}", self.name));
        self.techniques = self.techniques.with(Technique::InPlace).with(Technique::Elision);
        Ok(self)
    }

    /// Returns the same runner with other techniques.
    pub(crate) fn with_techniques(self, techniques: Techniques) -> Self {
        Self { techniques, ..self }
    }

    /// Sets the alignment, in bytes, for offsets that the planner chooses by default.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidAlignment`] if `bytes` is not a power of two.
    pub fn with_alignment(mut self, bytes: u64) -> Result<Self> {
        crate::base::Alignment::new(bytes)?;
        self.alignment = bytes;
        Ok(self)
    }

    /// Sets the origin of kernel scratch memory.
    #[must_use]
    pub fn with_scratch(mut self, provider: Provider) -> Self {
        self.scratch = provider;
        self
    }

    /// Sets whether inputs and outputs may be in the caller's memory.
    #[must_use]
    pub fn with_caller_memory(mut self, possible: bool) -> Self {
        self.caller_memory = possible;
        self
    }

    /// Sets whether values may be in several spaces.
    #[must_use]
    pub fn with_several_spaces(mut self, possible: bool) -> Self {
        self.several_spaces = possible;
        self
    }

    /// Sets whether a kernel writes elements of a piece before it has read all of the piece's inputs.
    #[must_use]
    pub fn with_early_writes(mut self, early: bool) -> Self {
        self.early_writes = early;
        self
    }

    /// Sets the dimension of the only rows that the runner streams; `None` permits any pieces.
    #[must_use]
    pub fn with_strip_axis(mut self, axis: Option<usize>) -> Self {
        self.strip_axis = axis;
        self
    }

    /// Returns the name, with the kernels if named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name without the kernels.
    pub fn runtime(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    /// Returns one line about the runner, for lists; empty for a custom target.
    pub fn summary(&self) -> &'static str {
        match self.runtime() {
            "ideal" => "no runtime: the bytes that every technique together would leave",
            "numpy" => "the executor of this package, which `run` uses",
            "cupy" => {
                "the executor of this package on a CUDA device, which `run --device cuda` uses"
            }
            "nodes" => "any code that runs each declared node by itself",
            "c-code" => "the C function that `export --to c-code` writes, with kernels of its own",
            "c" => "C code with one kernel per node, over the exported header",
            "tflm" => "TensorFlow Lite Micro, with its own kernels",
            "litert" => "LiteRT (TensorFlow Lite), with its own kernels",
            "executorch" => "ExecuTorch, through its memory-planning pass",
            _ => "",
        }
    }

    /// Returns the techniques that the runner honors.
    pub const fn techniques(&self) -> Techniques {
        self.techniques
    }

    /// Returns the unit that the runner executes at a time.
    pub const fn granularity(&self) -> Granularity {
        let techniques = self.techniques;
        if techniques.contains(Technique::Streaming) || techniques.contains(Technique::Overlap) {
            Granularity::Tile
        } else if techniques.contains(Technique::Fusion) {
            Granularity::Group
        } else {
            Granularity::Node
        }
    }

    /// Returns the default offset alignment in bytes.
    pub const fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Returns the runner's unit for offsets in bytes: every alignment must be a multiple.
    pub const fn offset_unit(&self) -> u64 {
        self.offset_unit
    }

    /// Returns whether inputs and outputs may be in the caller's memory.
    pub const fn caller_memory(&self) -> bool {
        self.caller_memory
    }

    /// Returns whether values may be in several spaces.
    pub const fn several_spaces(&self) -> bool {
        self.several_spaces
    }

    /// Returns whether a kernel writes elements of a piece before it has read all of the piece's
    /// inputs. Outputs are then farther from overlapped inputs, see [`Graph::overlaps`].
    ///
    /// [`Graph::overlaps`]: crate::Graph::overlaps
    pub const fn early_writes(&self) -> bool {
        self.early_writes
    }

    /// Returns the dimension of the rows that are all that the runner streams, strip by strip and
    /// with windows that do not widen rows; `None` if the runner streams any pieces.
    pub const fn strip_axis(&self) -> Option<usize> {
        self.strip_axis
    }

    /// Returns the origin of kernel scratch memory.
    pub const fn scratch(&self) -> Provider {
        self.scratch
    }

    /// Returns the origin of the bytes for the runner's own structures, which every step needs.
    pub const fn fixed(&self) -> Provider {
        self.fixed
    }

    /// Returns the known target with this name, if any; with a kernel set, if the name has such a
    /// suffix.
    pub fn known(name: &str) -> Option<Self> {
        let (runtime, kernels) = match name.split_once(':') {
            Some((runtime, kernels)) => (runtime, Some(kernels)),
            None => (name, None),
        };
        let target = Self::KNOWN.into_iter().find(|target| target.name == runtime)?;
        kernels.map_or(Some(target.clone()), |kernels| target.with_kernels(kernels).ok())
    }

    pub(crate) fn is_ideal(&self) -> bool {
        *self == Self::IDEAL
    }
}

impl Default for Target {
    /// Returns [`Target::NODES`].
    fn default() -> Self {
        Self::NODES
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Target {
    type Err = Error;

    /// Parses the name of a known target.
    fn from_str(name: &str) -> Result<Self> {
        Self::known(name).ok_or_else(|| {
            let names: Vec<_> = Self::KNOWN.iter().map(|target| target.name.clone()).collect();
            let reason =
                format!("there is no target {}; known are {}", quoted(name), names.join(", "));
            Error::InvalidOption { option: "target", reason }
        })
    }
}
