"""
Exceptions of arenaplan.

Every exception derives from :class:`PlannerError`. The message alone is enough to act on: the
message names the value, node or field at fault. ``kind`` says what is wrong, and is the name of
the variant where the Rust core raises the error; a class stands for the kinds that callers treat
alike. The file ``errors.toml`` beside this one lists all kinds.
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
    Base class of everything arenaplan raises on purpose.

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
    """A kind of error: class, cause, cure, and the exit code, if not that of the class."""

    of: type[PlannerError]
    cause: str
    cure: str
    exit: int | None


@cache
def kinds() -> Mapping[str, ErrorKind]:
    """Return all kinds of errors by name."""
    rows = tomllib.loads(files(__package__).joinpath("errors.toml").read_text(encoding="utf-8"))
    classes = globals()
    return {
        name: ErrorKind(classes[row["class"]], row["cause"], row["cure"], row.get("exit"))
        for name, row in rows.items()
    }


def fault(kind: str, message: str) -> PlannerError:
    """Return an error of a kind; one of a kind that is not listed is an ``InternalError``."""
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
"""The first thing to try after exceptions of Python that commands report."""


def kind_of(error: BaseException) -> str:
    """
    Return the kind of an error, which is the class of exceptions of Python.

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

    ``dimension`` is its name, if it has one.
    """

    def __init__(
        self, message: str = "", *, kind: str | None = None, dimension: str | None = None
    ) -> None:
        super().__init__(message, kind=kind)
        self.dimension = dimension


class UnknownDim(SizeError):
    """
    ``bind`` names a dimension or input that the model does not have.

    ``names`` are those names of ``bind`` that the message is about.
    """

    def __init__(
        self, message: str = "", *, kind: str | None = None, names: Sequence[str] = ()
    ) -> None:
        super().__init__(message, kind=kind)
        self.names = tuple(names)


class UnknownShape(SizeError):
    """A value's shape can neither be inferred nor is it declared."""


class UnsupportedDtype(SizeError):
    """A value's element type has no size in bytes (strings, sequences, unknown types)."""


# -- graphs --------------------------------------------------------------------


class GraphError(PlannerError):
    """The graph is not well formed."""


class UndefinedValue(GraphError, KeyError):
    """
    A node or the graph's outputs name a value that nothing produces.

    A plan raises it, too, if it is asked for a value that it has no place for.
    """

    __str__ = Exception.__str__  # That of ``KeyError`` puts the message in quotes.


# -- packing ---------------------------------------------------------------------


class PackingError(PlannerError):
    """The buffers do not fit as asked."""


class CapacityExceeded(PackingError):
    """The arena needs more bytes than its space has."""

    plan: Plan | None = None
    """The best plan that was found, where there is one."""
    family: object | None = None
    """The :class:`PlanFamily`, the plans of all shapes, where several were asked for."""


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


class InvalidOption(PlannerError, ValueError, TypeError):
    """
    An option or argument contradicts another one, or the graph it is used with, or is none at all.

    It is a ``TypeError``, too, since an argument of a wrong type is one.
    """


# -- plans -----------------------------------------------------------------------


class PlanError(PlannerError):
    """A plan does not hold for the graph it is used with."""


class TargetMismatch(PlanError):
    """The runner that a plan is for, or is exported to, cannot run it."""


class PlanOverlap(PlanError):
    """Two values that are needed at the same time share bytes."""


class BaselineError(PlannerError):
    """The plan or report to compare with is not there, damaged, or of several plans."""


class ProofError(PlannerError):
    """A proof that a rewritten model computes the bits of the original does not hold."""


# -- model files -----------------------------------------------------------------


class ModelError(PlannerError):
    """A model file cannot be read as a model."""


class NotAModel(ModelError):
    """The file is not of the format its name says, or of none we know."""


class InvalidAttribute(ModelError):
    """An operator's attribute is missing or out of range."""


class InvalidOperand(ModelError):
    """An operator lacks an operand, or has one of the wrong type."""


class ShapeMismatch(ModelError):
    """Shapes of a node's operands contradict each other or the declared ones."""


class UnsupportedModel(PlannerError):
    """A well-formed model uses something arenaplan does not support."""


class PartOfModel(UnsupportedModel):
    """
    Something stands for a part of a model, and the answer would be about the whole.

    The message says which part. Budgets, gates, shared arenas, exports and model files refuse one.
    """

    plan: Plan | None = None
    """The plan of the part, where there is one."""


class UnsupportedOp(UnsupportedModel):
    """No kernel executes this operator."""


class UnsupportedSubgraph(UnsupportedModel):
    """The node holds a subgraph or calls a function that cannot be planned."""


# -- arenas and execution ----------------------------------------------------------


class ArenaError(PlannerError):
    """The arena cannot be used as asked."""


class ArenaInUse(ArenaError):
    """The arena cannot close while views of it are alive."""


class ExecutionError(PlannerError):
    """A run failed."""


class InternalError(PlannerError):
    """A bug in arenaplan; please report it."""


class OutOfMemory(PlannerError, MemoryError):
    """Planning itself ran out of memory."""
