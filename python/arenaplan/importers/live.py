"""
Importers of live objects: programs of frameworks that run in this process.

Frameworks and the importers of their programs are imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from arenaplan.importers.common import Bind

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["from_exported_program", "from_jaxpr"]


def from_exported_program(exported: Any, *, name: str = "", bind: Bind | None = None) -> Graph:
    """
    Read a live exported PyTorch program.

    Parameters
    ----------
    exported : torch.export.ExportedProgram
        Result of ``torch.export.export``; its weights are not looked at.
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


def from_jaxpr(jaxpr: Any, *, name: str = "", constants: Collection[int] = ()) -> Graph:
    """
    Read a JAX program.

    Parameters
    ----------
    jaxpr : jax.extend.core.ClosedJaxpr
        Result of ``jax.make_jaxpr(function)(*args)``.
    name : str, optional
        Name of the model, for reports.
    constants : collection of int, optional
        Positions of inputs that never change, such as parameters; constants that a function closes
        over need not be named.

    Returns
    -------
    Graph
        The program in its order. Functions inside (``jit``, ``custom_jvp``, ``checkpoint``…) are
        read as if they were written where they are called. ``cond``, ``scan`` and ``while`` are
        nodes; the bytes that their bodies need are a value ``….inner`` of each.

    Raises
    ------
    ImportError
        If JAX is not installed.
    TypeError, IndexError
        If it is no closed jaxpr, or has no such inputs.
    PlannerError
        If it cannot be planned; the message names the place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> jaxpr = jax.make_jaxpr(lambda x: jax.numpy.tanh(x) * 2)(image)     # doctest: +SKIP
    >>> ap.plan(ap.from_jaxpr(jaxpr))                                     # doctest: +SKIP
    Plan('', 602112 bytes, optimal)
    """
    from arenaplan.importers.jaxpr import graph_of_jaxpr

    return graph_of_jaxpr(jaxpr, name, constants)
