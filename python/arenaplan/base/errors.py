"""
Exceptions of arenaplan.

Every exception derives from :class:`PlannerError`, and its message alone is
enough to act on: it names the value, node or field at fault. The Rust core and
the Python layers raise the same classes; a core error's variant name is the
name of its class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenaplan._core import Plan


class PlannerError(Exception):
    """Base class of everything arenaplan raises on purpose."""


# -- sizes, shapes, alignment ------------------------------------------------


class SizeError(PlannerError):
    """A size, shape or alignment that no arena can hold."""


class SizeOverflow(SizeError):
    """A size in bytes exceeds the address space of a machine."""


class InvalidSize(SizeError):
    """A size is negative or does not fit 64 bits."""


class InvalidDim(SizeError):
    """A dimension is negative or not a whole number."""


class UnboundDim(SizeError):
    """
    A symbolic dimension has no number; pass one with ``bind``.

    ``dimension`` is its name, if it has one.
    """

    def __init__(self, message: str, *, dimension: str | None = None) -> None:
        super().__init__(message)
        self.dimension = dimension


class DimConflict(SizeError):
    """One symbolic dimension was bound to two numbers."""


class UnknownDim(SizeError):
    """
    ``bind`` names a dimension or input that the model does not have.

    ``names`` are those names of ``bind`` that the message is about.
    """

    def __init__(self, message: str, *, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class ShapeNotPlanned(SizeError):
    """A shape is not one of those that a family of plans was made for."""


class TooManyShapes(SizeError):
    """Ranges of dimensions have more combinations than are looked at one by one."""


class UnknownShape(SizeError):
    """A value's shape can neither be inferred nor is it declared."""


class InvalidAlignment(SizeError):
    """An alignment is not a power of two."""


class InvalidLiveRange(SizeError):
    """A live range is empty, reversed, or past the last step."""


class RankTooLarge(SizeError):
    """A shape has more dimensions than an array can have."""


class UnsupportedDtype(SizeError):
    """A value's element type has no size in bytes (strings, sequences, unknown types)."""


# -- graphs --------------------------------------------------------------------


class GraphError(PlannerError):
    """The graph is not well formed."""


class GraphCycle(GraphError):
    """Some nodes depend on each other in a circle."""


class DuplicateProducer(GraphError):
    """A value is produced twice, or is also a graph input or constant."""


class DuplicateName(GraphError):
    """Two values or two nodes have the same name."""


class UndefinedValue(GraphError, KeyError):
    """
    A node or the graph's outputs name a value that nothing produces.

    A plan raises it, too, if it is asked for a value that it has no place for.
    """

    __str__ = Exception.__str__  # That of ``KeyError`` puts the message in quotes.


class InvalidName(GraphError):
    """A value that is produced has no name."""


class InvalidEffect(GraphError):
    """An effect of a node names an operand that the node does not have."""


class InvalidWriteBack(GraphError):
    """A value cannot replace an input or a state at its address."""


class InvalidGroup(GraphError):
    """Nodes that were to run as one cannot."""


class AliasError(GraphError):
    """A declared alias cannot hold."""


class AliasCycle(AliasError):
    """Values are declared views of each other in a circle."""


class AliasOutOfBounds(AliasError):
    """A view reaches past the bytes of the value it looks into."""


class GraphCorrupt(GraphError):
    """The graph file is damaged or not a graph."""


class GraphVersion(GraphError):
    """The graph file was written by an incompatible version."""


# -- packing ---------------------------------------------------------------------


class PackingError(PlannerError):
    """The buffers do not fit as asked."""


class InvalidCsv(PackingError):
    """A line of a CSV file has the wrong form."""


class CapacityExceeded(PackingError):
    """The arena needs more bytes than its space has."""

    plan: Plan | None = None
    """The best plan that was found, where there is one."""
    family: object | None = None
    """The :class:`PlanFamily`, the plans of all shapes, where several were asked for."""


class RecomputeExceeded(PackingError):
    """No schedule was found in so many bytes."""


class SpacesExceeded(CapacityExceeded):
    """
    The spaces that values may be in cannot hold them.

    Attributes
    ----------
    step : int
        Step at which there is no room.
    node : str or None
        Name of the node that runs then.
    values : list of (str, int)
        The values that are needed then, with their bytes, the largest first.
    proven : bool
        Whether it is proven that no order of the steps that were tried fits, however values
        share bytes; otherwise no plan was found.
    """

    step: int = 0
    node: str | None = None
    values: Sequence[tuple[str, int]] = ()
    proven: bool = False


class InvalidOption(PlannerError, ValueError):
    """An option contradicts another one, or the graph it is used with."""


class PinConflict(PackingError):
    """A pinned offset is outside its space, misaligned, or on top of another."""


# -- plans -----------------------------------------------------------------------


class PlanError(PlannerError):
    """A plan does not hold for the graph it is used with."""


class PlanCorrupt(PlanError):
    """The plan file is damaged or not a plan."""


class PlanVersion(PlanError):
    """The plan file was written by an incompatible version."""


class PlanTooLarge(PlanError):
    """The plan file is larger than any plan of its size can be."""


class PlanMismatch(PlanError):
    """The plan was made for another graph."""


class HazardMismatch(PlanError):
    """Hazards leave two steps unordered that use the same bytes, or have an edge too many."""


class TargetMismatch(PlanError):
    """The runner that a plan is for, or is exported to, cannot run it."""


class PlanOutOfBounds(PlanError):
    """A value lies outside the arena."""


class PlanOverlap(PlanError):
    """Two values that are needed at the same time share bytes."""


class PlanMisaligned(PlanError):
    """An offset is not a multiple of its alignment."""


class ArenaGrew(PlanError):
    """An arena needs more bytes than the one it is compared with."""


class GateFailed(PlanError):
    """A plan needs more bytes than its budget, or than its baseline."""


class BaselineError(PlannerError):
    """The plan or report to compare with is not there, damaged, or of several plans."""


class InvalidConfig(InvalidOption):
    """A configuration file cannot be read, or a key of it has no meaning or a wrong value."""


class StorageError(PlannerError):
    """Storage ids, arrays or parameters do not fit together."""


class ProofError(PlannerError):
    """A proof that a rewritten model computes the bits of the original does not hold."""


class NotProven(ProofError):
    """An operator or tensor of a rewritten model is not derived from the original."""


class ProofCorrupt(ProofError):
    """The proof file is damaged or not a proof."""


class ProofVersion(ProofError):
    """The proof file was written by an incompatible version."""


class ProofStale(ProofError):
    """The proof file is of other models, or says other things than a new proof of them."""


class PlanWriteError(PlanError):
    """The plan could not be written; an older file is untouched."""


# -- model files -----------------------------------------------------------------


class ModelError(PlannerError):
    """A model file cannot be read as a model."""


class NotAModel(ModelError):
    """The file is not of the format its name says, or of none we know."""


class ModelTooLarge(ModelError):
    """The model file is larger than its format, or an option of the caller, allows."""


class FileTooLarge(ModelTooLarge):
    """A graph or model file is larger than any graph can be."""


class ModelCorrupt(ModelError):
    """The file with graphs and plans of a model is damaged or not a model."""


class ModelVersion(ModelError):
    """The file with graphs and plans of a model was written by an incompatible version."""


class InvalidAttribute(ModelError):
    """An operator's attribute is missing or out of range."""


class InvalidOperand(ModelError):
    """An operator lacks an operand, or has one of the wrong type."""


class ShapeMismatch(ModelError):
    """Shapes of a node's operands contradict each other or the declared ones."""


class TensorPayloadMismatch(ModelError):
    """A stored tensor holds more or fewer bytes than its shape says."""


class ExternalDataPath(ModelError):
    """External data points outside the model's folder or at a special file."""


class ExternalDataRange(ModelError):
    """External data reaches outside its file."""


class ExternalDataMissing(ModelError):
    """The file with the model's weights is not there."""


class FlatbufferCorrupt(ModelError):
    """An offset or a length in a FlatBuffer points outside the file, or at the wrong thing."""


class BudgetExceeded(ModelError):
    """Reading the model would need more work or memory than its size justifies."""


class UnsupportedModel(PlannerError):
    """A well-formed model uses something arenaplan does not support."""


class UnsupportedOpset(UnsupportedModel):
    """The model's operator set version is missing, doubled or unknown."""


class UnsupportedOp(UnsupportedModel):
    """No kernel executes this operator."""


class NotDifferentiable(UnsupportedModel):
    """A node has no gradient, or a value does not depend on another one."""


class UnsupportedSubgraph(UnsupportedModel):
    """The node holds a subgraph or calls a function that cannot be planned."""


class NestingTooDeep(UnsupportedModel):
    """Subgraphs are nested deeper than the format's readers allow."""


class FunctionCycle(ModelError):
    """A local function calls itself, directly or through others."""


# -- arenas and execution ----------------------------------------------------------


class ArenaError(PlannerError):
    """The arena cannot be used as asked."""


class ArenaBusy(ArenaError):
    """Another run holds the arena."""


class ArenaInUse(ArenaError):
    """The arena cannot close while views of it are alive."""


class ArenaState(ArenaError):
    """The arena is closed or not committed."""


class ArenaCommitError(ArenaError, MemoryError):
    """The arena's memory could not be allocated."""


class ArenaMismatch(ArenaError):
    """The arena was made for another plan."""


class LeaseTooLarge(ArenaError):
    """A plan needs more bytes than a pool may ever hold."""


class PoolBusy(ArenaError):
    """The bytes of a pool are leased, and nobody gave enough of them back in time."""


class FusedNode(ArenaError):
    """A node runs as one with others, so that it has no memory of its own."""


class InvalidCast(ArenaError):
    """The size or address of bytes does not fit elements of a type."""


class InvalidBuffer(ArenaError):
    """A buffer given as the arena is read-only, not contiguous, or not bytes."""


class MisalignedBuffer(InvalidBuffer):
    """A buffer given as the arena starts at a less aligned address than the plan asks."""


class ExecutionError(PlannerError):
    """A run failed."""


class InputMismatch(ExecutionError):
    """An input is missing, unknown, or of the wrong shape or type."""


class IndexOutOfRange(ExecutionError, ModelError):
    """An index, in a model file or in an operand of indices, is out of range."""


class DeviceUnavailable(ExecutionError):
    """A device is not there, or what is needed to use it is not installed."""


class BatchIncomplete(PlanError):
    """Some models of a batch could not be planned; the report says which, and why."""


class WorkerDied(ExecutionError):
    """A process of a batch ended while it planned a model, twice."""


class KernelError(ExecutionError):
    """A kernel raised; the original exception is chained."""


class WorkspaceOverrun(ExecutionError):
    """A kernel asked for more workspace than the plan gave it."""


class VerificationError(ExecutionError):
    """A verified run found wrong bytes."""


class InternalError(PlannerError):
    """A bug in arenaplan; please report it."""


class OutOfMemory(PlannerError, MemoryError):
    """Planning itself ran out of memory."""
