"""
Importers of live objects: programs of frameworks that run in this process.

Frameworks and the importers of their programs are imported when a function is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arenaplan.importers.common import Bind

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["from_exported_program"]


def from_exported_program(exported: Any, *, name: str = "", bind: Bind | None = None) -> Graph:
    """
    Read a live exported PyTorch program.

    Parameters
    ----------
    exported : torch.export.ExportedProgram
        What ``torch.export.export`` returned; its weights are not looked at.
    name : str, optional
        Name of the model, for reports.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, ``{"s0": 1}``, and whole shapes for inputs
        by name, ``{"x": (1, 3, 224, 224)}``.

    Returns
    -------
    Graph
        The graph that :func:`arenaplan.load` reads from the file that ``torch.export.save``
        would write.

    Raises
    ------
    ImportError
        If torch is not installed.
    TypeError
        If it is no exported program.
    PlannerError
        If it cannot be planned; the message names the place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> exported = torch.export.export(model, (image,))         # doctest: +SKIP
    >>> ap.plan(ap.from_exported_program(exported))             # doctest: +SKIP
    Plan('', 903360 bytes, optimal)
    """
    from arenaplan.importers.pt2 import graph_of_live

    return graph_of_live(exported, name, bind)
