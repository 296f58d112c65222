"""
Exceptions of arenaplan.

Every exception derives from :class:`PlannerError`. The message names the value, node or field at
fault and is enough to act on. ``kind`` says what is wrong; for errors from the Rust core, ``kind``
is the variant's name. A class groups the kinds that callers treat alike. ``errors.toml`` lists all
kinds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from arenaplan._core import Plan


class PlannerError(Exception):
    """
    Base class for everything arenaplan raises on purpose.

    >>> import arenaplan as ap
    >>> try:
    ...     ap.pack([-1], [(0, 2)])
    ... except ap.PlannerError as error:
    ...     print(type(error).__name__, error.kind)
    SizeError InvalidSize
    """

    def __init__(self, message: str = "", *, kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind or type(self).__name__

    @property
    def cure(self) -> str:
        """The first thing to try, in Markdown."""
        found = kinds().get(self.kind)
        return "" if found is None else found.cure


class ErrorKind(NamedTuple):
    """A kind of error: class, cause, cure, and an exit code if not the class's."""

    of: type[PlannerError]
    cause: str
    cure: str
    exit: int | None


@cache
def kinds() -> Mapping[str, ErrorKind]:
    """Return all error kinds by name."""
    rows = tomllib.loads(files(__package__).joinpath("errors.toml").read_text(encoding="utf-8"))
    classes = globals()
    return {
        name: ErrorKind(classes[row["class"]], row["cause"], row["cure"], row.get("exit"))
        for name, row in rows.items()
    }


def fault(kind: str, message: str) -> PlannerError:
    """Return an error by kind; an unlisted kind gives an ``InternalError``."""
    found = kinds().get(kind)
    if found is None:
        return InternalError(f"{kind}: {message}")
    return found.of(message, kind=kind)


_BUILTIN: Final = {
    FileNotFoundError: "Correct the path, or make the file first.",
    PermissionError: "Change the permissions, or use another place.",
    IsADirectoryError: "Name a file in the folder.",
    OSError: "Correct the path or the device that the message names.",
    ImportError: "Install the package that the message names.",
    MemoryError: "Free memory, or raise the limit of the process.",
}
"""Cures for Python exceptions that commands report."""


def kind_of(error: BaseException) -> str:
    """
    Return an error's kind; for Python's exceptions, the class name.

    Examples
    --------
    >>> kind_of(fault("InvalidDim", "a dimension is -1")), kind_of(FileNotFoundError())
    ('InvalidDim', 'FileNotFoundError')
    """
    return error.kind if isinstance(error, PlannerError) else type(error).__name__


def cure_of(error: BaseException) -> str:
    """
    Return the first thing to try after an error, in Markdown.

    Examples
    --------
    >>> cure_of(FileNotFoundError("model.onnx"))
    'Correct the path, or make the file first.'
    """
    own = error.cure if isinstance(error, PlannerError) else ""
    builtin = (_BUILTIN[kind] for kind in type(error).__mro__ if kind in _BUILTIN)
    return own or next(builtin, "See docs/errors.md.")


# -- sizes, shapes, alignment ------------------------------------------------


class SizeError(PlannerError):
    """A size, shape or alignment that no arena can hold."""


class UnboundDim(SizeError):
    """
    A symbolic dimension has no number; pass one with ``bind``.

    ``dimension`` is the name, if any.
    """

    def __init__(
        self, message: str = "", *, kind: str | None = None, dimension: str | None = None
    ) -> None:
        super().__init__(message, kind=kind)
        self.dimension = dimension


class UnknownDim(SizeError):
    """
    ``bind`` names a dimension or input that the model does not have.

    ``names`` lists the unknown names in ``bind``.
    """

    def __init__(
        self, message: str = "", *, kind: str | None = None, names: Sequence[str] = ()
    ) -> None:
        super().__init__(message, kind=kind)
        self.names = tuple(names)


class UnknownShape(SizeError):
    """A value's shape is neither declared nor can be inferred."""


class UnsupportedDtype(SizeError):
    """A value's element type has no size in bytes (strings, sequences, unknown types)."""


# -- graphs --------------------------------------------------------------------


class GraphError(PlannerError):
    """The graph is not well formed."""


class UndefinedValue(GraphError, KeyError):
    """
    A node or the graph's outputs name a value that nothing produces.

    A plan also raises this error when asked for a value without a place.
    """

    __str__ = Exception.__str__  # ``KeyError.__str__`` would quote the message.


# -- packing ---------------------------------------------------------------------


class PackingError(PlannerError):
    """The buffers do not fit as asked."""


class CapacityExceeded(PackingError):
    """The arena needs more bytes than its space has."""

    plan: Plan | None = None
    """The best plan found, if any."""
    family: object | None = None
    """The :class:`PlanFamily` with plans for all shapes, if several shapes were planned."""


class SpacesExceeded(CapacityExceeded):
    """
    The spaces that values may be in cannot hold them.

    Attributes
    ----------
    step : int
        Step at which there is no room.
    node : str or None
        Name of the node that runs at that step.
    values : list of (str, int)
        The values needed at that step with their bytes, largest first.
    proven : bool
        True if none of the tried step orders can fit, however values share bytes. False if no plan
        was found.
    """

    step: int = 0
    node: str | None = None
    values: Sequence[tuple[str, int]] = ()
    proven: bool = False


class InvalidOption(PlannerError, ValueError, TypeError):
    """
    An option or argument is unknown, or contradicts another option or the graph.

    Also a ``TypeError``, because an argument can have the wrong type.
    """


# -- plans -----------------------------------------------------------------------


class PlanError(PlannerError):
    """A plan does not hold for the given graph."""


class TargetMismatch(PlanError):
    """The plan's runner, or an export's runner, cannot run the plan."""


class PlanOverlap(PlanError):
    """Two values that are needed at the same time share bytes."""


class BaselineError(PlannerError):
    """The baseline plan or report is missing, damaged, or covers several plans."""


class ProofError(PlannerError):
    """A proof that a rewritten model is bit-identical to the original does not hold."""


# -- model files -----------------------------------------------------------------


class ModelError(PlannerError):
    """A model file cannot be read as a model."""


class NotAModel(ModelError):
    """The file does not match the format in its name, or any known format."""


class InvalidAttribute(ModelError):
    """An operator's attribute is missing or out of range."""


class InvalidOperand(ModelError):
    """An operator lacks an operand, or an operand has the wrong type."""


class ShapeMismatch(ModelError):
    """Operand shapes contradict each other or the declared shapes."""


class UnsupportedModel(PlannerError):
    """A well-formed model uses something arenaplan does not support."""


class PartOfModel(UnsupportedModel):
    """
    A question about a whole model got a plan or graph for only part of the model.

    The message says which part. Budgets, gates, shared arenas, exports and model files need the
    whole.
    """

    plan: Plan | None = None
    """The part's plan, if any."""


class UnsupportedOp(UnsupportedModel):
    """No kernel executes this operator."""


class UnsupportedSubgraph(UnsupportedModel):
    """The node holds a subgraph or calls a function that cannot be planned."""


# -- arenas and execution ----------------------------------------------------------


class ArenaError(PlannerError):
    """The arena cannot be used as asked."""


class ArenaInUse(ArenaError):
    """The arena cannot close while views into the arena are alive."""


class ExecutionError(PlannerError):
    """A run failed."""


class InternalError(PlannerError):
    """A bug in arenaplan; please report it."""


class OutOfMemory(PlannerError, MemoryError):
    """Planning itself ran out of memory."""
