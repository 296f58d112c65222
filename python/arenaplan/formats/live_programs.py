"""
Importers of live objects: programs of frameworks that run in this process.

Frameworks and the importers of their programs are imported when a function is called.
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
    InvalidOption
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
    from arenaplan.formats.pt2 import graph_of_live

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
        nodes; the bytes that their bodies need are a value ``….inner`` of each. Arrays made of
        numbers alone, repeated operands of elementwise operators and transposes beside products of
        matrices are read in place, and need no bytes. Arguments that ``jax.jit`` donates are
        states; results replace them as JAX pairs them, by type.

    Raises
    ------
    ImportError
        If JAX is not installed.
    InvalidOption, IndexError
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
    from arenaplan.formats.jaxpr import graph_of_jaxpr

    return graph_of_jaxpr(jaxpr, name, constants)


def from_train_step(
    step: Any,
    args: Sequence[Any],
    donate: Collection[int] | Mapping[int, int] | None = None,
    *,
    name: str = "",
    unroll: int = 0,
) -> Graph:
    """
    Read a whole training step of JAX or PyTorch: forward, backward and update in one graph.

    Parameters
    ----------
    step : callable
        The step, with or without ``jax.jit`` around it: from parameters, states of the optimizer
        and a batch to new parameters, new states and a loss, in any order and nesting. A step of
        PyTorch may also write to its arguments, and computes gradients with
        ``torch.autograd.grad`` or ``torch.func``.
    args : sequence
        Its arguments: trees of arrays, of ``jax.ShapeDtypeStruct``, or of tensors. It is traced
        and not run.
    donate : collection of int or mapping, optional
        Positions of arguments whose bytes new contents take over. The result that replaces an
        argument is the first one of the same tree structure and types; a mapping such as
        ``{0: 1}`` names the position of that result. By default, the arguments that ``jax.jit``
        was told to donate. Tensors that a step of PyTorch writes to are always donated.
    name : str, optional
        Name of the model, for reports.
    unroll : int, default 0
        Loops ``scan`` of JAX with at most so many rounds are written out, so that the nodes of
        their bodies are planned and may run again one by one; the graph has as many nodes per
        round. Other loops are one node. PyTorch writes out all loops of Python.

    Returns
    -------
    Graph
        As from :func:`from_jaxpr` or :func:`from_joint_graph`. Donated arguments are states, and
        the results that replace them have the same address in every plan
        (:meth:`Graph.write_back`). The elementwise formula of each new content is one node
        ``update`` for JAX. Nodes have a ``cost``, the larger one of
        floating-point operations and 8 times the bytes moved, and say whether they are pure.
        ``warnings`` name donated arguments that no result replaces.

    Raises
    ------
    ImportError
        If neither JAX nor PyTorch is installed.
    InvalidOption, IndexError, ValueError
        If ``step`` is no function, a position names no argument or no fitting result, or
        ``unroll`` is no whole number from 0.
    PlannerError
        If it cannot be planned; the message names the place.

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

    if isinstance(unroll, bool) or not isinstance(unroll, int):
        raise InvalidOption(f"unroll: {unroll!r} is no whole number")
    if unroll < 0:
        raise ValueError(f"unroll: {unroll} is below 0")
    if not callable(step):
        raise InvalidOption(f"{type(step).__name__!r} is no function that makes a training step")
    if pt2.has_tensors(args):
        return pt2.graph_of_step(step, args, donate, name)
    return jaxpr.graph_of_step(step, args, donate, name, unroll)


def from_joint_graph(
    module: Any,
    donate: Mapping[int, int] | None = None,
    *,
    name: str = "",
    bind: Bind | None = None,
) -> Graph:
    """
    Read a PyTorch graph with forward and backward pass, and perhaps the update.

    Parameters
    ----------
    module : torch.fx.GraphModule
        Result of ``aot_export_joint_simple(..., trace_joint=True)`` of
        ``torch._functorch.aot_autograd``, or of ``make_fx(step, tracing_mode="fake")(*args)`` for
        a step that computes gradients and new parameters.
    donate : mapping, optional
        Positions of donated inputs, with the positions of the results that replace them; both
        among all tensors, in the order of the graph. Inputs that the last nodes of the graph copy
        to are donated without it.
    name : str, optional
        Name of the model, for reports.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, as for :func:`from_exported_program`.

    Returns
    -------
    Graph
        All inputs are the caller's but donated ones, which are states. Transposes beside products
        and expansions beside elementwise operators need no bytes, as in PyTorch. Nodes have a
        ``cost`` and say whether they are pure: see :func:`from_train_step`.

    Raises
    ------
    ImportError
        If torch is not installed.
    InvalidOption, IndexError
        If it is no graph module, or has no such inputs or results.
    PlannerError
        If it cannot be planned; the message names the place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> module = make_fx(step, tracing_mode="fake")(p, x)            # doctest: +SKIP
    >>> ap.plan(ap.formats.from_joint_graph(module, donate={0: 0}))          # doctest: +SKIP
    Plan('', 903360 bytes, optimal)
    """
    from arenaplan.formats.pt2 import graph_of_joint

    return graph_of_joint(module, donate or {}, name, bind)
