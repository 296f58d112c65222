"""
Importers for live objects: framework programs in this process.

Frameworks and their importers are imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arenaplan.base.errors import InvalidOption
from arenaplan.graph.sizes import Bind

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["from_exported_program", "from_jaxpr", "from_joint_graph", "from_train_step"]


def from_exported_program(exported: Any, *, name: str = "", bind: Bind | None = None) -> Graph:
    """
    Read a live exported PyTorch program.

    Parameters
    ----------
    exported : torch.export.ExportedProgram
        From ``torch.export.export``; weights are not read.
    name : str, optional
        Model name, for reports.
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
    InvalidOption
        If ``exported`` is not an exported program.
    PlannerError
        If the program cannot be planned; the message names the place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> exported = torch.export.export(model, (image,))         # doctest: +SKIP
    >>> ap.plan(ap.from_exported_program(exported))             # doctest: +SKIP
    Plan('', 903360 bytes, optimal)
    """
    from arenaplan.formats.pt2 import graph_of_live

    return graph_of_live(exported, name, bind)


def from_jaxpr(jaxpr: Any, *, name: str = "", constants: Collection[int] = ()) -> Graph:
    """
    Read a JAX program.

    Parameters
    ----------
    jaxpr : jax.extend.core.ClosedJaxpr
        From ``jax.make_jaxpr(function)(*args)``.
    name : str, optional
        Model name, for reports.
    constants : collection of int, optional
        Positions of inputs that never change, such as parameters; captured constants need not be
        listed.

    Returns
    -------
    Graph
        The program in program order. Called functions (``jit``, ``custom_jvp``, ``checkpoint``…)
        are inlined. Equal equations are one node, as in XLA, but in each body of ``checkpoint`` by
        itself. ``cond``, ``scan`` and ``while`` are nodes; the bytes for their bodies are a value
        ``….inner`` each. Arrays made only from numbers, repeated operands of elementwise
        operators and transposes beside matrix products are read in place, and need no bytes.
        Arguments donated by ``jax.jit`` are states; results replace these states as paired by JAX,
        by type.

    Raises
    ------
    ImportError
        If JAX is not installed.
    InvalidOption, IndexError
        If ``jaxpr`` is not a closed jaxpr, or lacks such inputs.
    PlannerError
        If the program cannot be planned; the message names the place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> jaxpr = jax.make_jaxpr(lambda x: jax.numpy.tanh(x) * 2)(image)     # doctest: +SKIP
    >>> ap.plan(ap.from_jaxpr(jaxpr))                                     # doctest: +SKIP
    Plan('', 602112 bytes, optimal)
    """
    from arenaplan.formats.jaxpr import graph_of_jaxpr

    return graph_of_jaxpr(jaxpr, name, constants)


def from_train_step(
    step: Any,
    args: Sequence[Any],
    donate: Collection[int] | Mapping[int, int] | None = None,
    *,
    name: str = "",
    unroll: int = 0,
    segments: int = 0,
) -> Graph:
    """
    Read a whole JAX or PyTorch training step: forward, backward and update in one graph.

    Parameters
    ----------
    step : callable
        The step, with or without ``jax.jit``: from parameters, optimizer states and a batch to new
        parameters, new states and a loss, in any order and nesting. A PyTorch step may also write
        to its arguments, and computes gradients with ``torch.autograd.grad`` or ``torch.func``.
    args : sequence
        The step's arguments: trees of arrays, ``jax.ShapeDtypeStruct``, or tensors. The step is
        traced and not run.
    donate : collection of int or mapping, optional
        Positions of arguments whose bytes new contents take over. An argument is replaced by the
        first result with equal tree structure and types; a mapping such as ``{0: 1}`` names the
        result's position. By default, the arguments donated by ``jax.jit``. Tensors written by a
        PyTorch step are always donated.
    name : str, optional
        Model name, for reports.
    unroll : int, default 0
        JAX ``scan`` loops with at most so many rounds are unrolled, so that the body's nodes are
        planned, and may run again, one by one; the graph has the body's nodes for every round.
        Other loops are single nodes. PyTorch unrolls all Python loops.
    segments : int, default 0
        JAX ``scan`` loops with more rounds become so many loops, one after another, which may run
        again one by one. Loops save fewer arrays for the backward pass: other arrays are computed
        again by elementwise operators. 1 leaves a loop whole; 0 leaves all loops as they are.

    Returns
    -------
    Graph
        As from :func:`from_jaxpr` or :func:`from_joint_graph`. Donated arguments are states, and
        the replacing results have the same address in every plan (:meth:`Graph.write_back`). For
        JAX, the elementwise formula of each new content is a single node ``update``. Nodes have a
        ``cost``, the maximum of floating-point operations and 8 times the bytes moved, and a purity
        flag. ``warnings`` name donated arguments that no result replaces.

    Raises
    ------
    ImportError
        If neither JAX nor PyTorch is installed.
    InvalidOption, IndexError, ValueError
        If ``step`` is not a function, a position names no argument or no fitting result, or
        ``unroll`` or ``segments`` is not a whole number >= 0.
    PlannerError
        If the step cannot be planned; the message names the place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> def step(p, x):                                         # doctest: +SKIP
    ...     loss, grad = jax.value_and_grad(lambda p: jnp.sum((x @ p) ** 2))(p)
    ...     return p - 0.1 * grad, loss
    >>> graph = ap.from_train_step(step, (p, x), donate=(0,))   # doctest: +SKIP
    >>> ap.plan(graph).arena_bytes                              # doctest: +SKIP
    8388608
    """
    from arenaplan.formats import jaxpr, pt2

    for option, count in (("unroll", unroll), ("segments", segments)):
        if isinstance(count, bool) or not isinstance(count, int):
            raise InvalidOption(f"{option}: {count!r} is not a whole number")
        if count < 0:
            raise InvalidOption(f"{option}: {count} is below 0")
    if not callable(step):
        raise InvalidOption(f"{type(step).__name__!r} is not a function that makes a training step")
    if pt2.has_tensors(args):
        return pt2.graph_of_step(step, args, donate, name)
    traced = jaxpr.traced_step(step, args, donate, unroll, segments)
    return jaxpr.lines_of_step(traced, name)[1].graph


def from_joint_graph(
    module: Any,
    donate: Mapping[int, int] | None = None,
    *,
    name: str = "",
    bind: Bind | None = None,
) -> Graph:
    """
    Read a PyTorch graph with forward and backward pass, and optionally the update.

    Parameters
    ----------
    module : torch.fx.GraphModule
        From ``torch._functorch.aot_autograd``'s ``aot_export_joint_simple(..., trace_joint=True)``,
        or ``make_fx(step, tracing_mode="fake")(*args)`` for a step that computes gradients and new
        parameters.
    donate : mapping, optional
        Positions of donated inputs, with the positions of the replacing results; both among all
        tensors, in graph order. Inputs that the graph's last nodes copy to are donated anyway.
    name : str, optional
        Model name, for reports.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, as for :func:`from_exported_program`.

    Returns
    -------
    Graph
        Donated inputs are states; all other inputs are the caller's. Transposes beside products and
        expansions beside elementwise operators need no bytes, as in PyTorch. Nodes have a ``cost``
        and a purity flag: see :func:`from_train_step`.

    Raises
    ------
    ImportError
        If torch is not installed.
    InvalidOption, IndexError
        If ``module`` is not a graph module, or lacks such inputs or results.
    PlannerError
        If the graph cannot be planned; the message names the place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> module = make_fx(step, tracing_mode="fake")(p, x)            # doctest: +SKIP
    >>> ap.plan(ap.formats.from_joint_graph(module, donate={0: 0}))          # doctest: +SKIP
    Plan('', 903360 bytes, optimal)
    """
    from arenaplan.formats.pt2 import graph_of_joint

    return graph_of_joint(module, donate or {}, name, bind)
