"""An executor for inputs of varying shape: one arena, and prepared kernels per shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from arenaplan._core import Arena
from arenaplan.base.amounts import whole_number
from arenaplan.base.arguments import typed
from arenaplan.base.errors import (
    CapacityExceeded,
    InvalidOption,
    UnsupportedModel,
    fault,
)
from arenaplan.base.quoting import quoted
from arenaplan.run.dynamic.families import InputShapes, PlanFamily, Source, plan_family
from arenaplan.run.dynamic.shapes import RangeBind, Size
from arenaplan.run.numpy import PLAN_OPTIONS, Executor
from arenaplan.run.numpy.executor import check_named
from arenaplan.run.numpy.tenant import Tenant, arena_of

if TYPE_CHECKING:
    from typing_extensions import Buffer


class DynamicExecutor(Tenant):
    """
    Runs a model with inputs of any planned shape, inside one arena.

    The shapes of the inputs say which plan is meant. A shape that is new is prepared once,
    without a search for offsets: those of a larger shape serve. One that was seen before is
    a look-up, and its run allocates no more than that of an :class:`Executor`.

    Parameters
    ----------
    model : PlanFamily, path or callable
        Result of :func:`plan_family`, or the model to make plans of, with the kernels'
        workspaces in the arena.
    bind : mapping, optional
        With a model: sizes by name, as for :func:`plan_family`.
    arena : Arena or buffer, optional
        Memory of at least ``arena_bytes`` of the family, as for :class:`Executor`; committed here
        if left out.
    keep : int, optional
        Most shapes that stay prepared; beyond, the one whose last run is longest ago is
        forgotten. Weights are shared, but kernels keep copies in their own form: for a network
        of convolutions, about the size of its weights per shape. All stay if left out.

    Raises
    ------
    CapacityExceeded
        If ``arena`` is too small.
    InvalidOption
        If inputs do not tell the shapes apart, or ``bind`` is given for a family.
    UnsupportedModel
        If the graph has states, whose content would not survive a change of the shape.
    PlannerError
        As :func:`plan_family`.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> def negate(sizes):
    ...     graph = ap.Graph()
    ...     x = graph.input("x", (sizes["batch"],))
    ...     (y,) = graph.node("Neg", [x], [("y", (sizes["batch"],), "float32")])
    ...     graph.output(y)
    ...     return graph
    >>> with ap.Executor(negate, bind={"batch": range(1, 9)}) as executor:
    ...     print(executor.run({"x": np.ones(3, np.float32)}))
    ...     print(executor.run({"x": np.ones(2, np.float32)}))
    ...     print(executor.prepared)
    {'y': array([-1., -1., -1.], dtype=float32)}
    {'y': array([-1., -1.], dtype=float32)}
    [{'batch': 3}, {'batch': 2}]
    """

    @typed
    def __init__(
        self,
        model: PlanFamily | Source,
        bind: RangeBind | None = None,
        *,
        arena: Buffer | np.ndarray | None = None,
        keep: int | None = None,
    ) -> None:
        if keep is not None and whole_number(keep, "keep") < 1:
            raise InvalidOption(f"option keep: at least one shape stays prepared, not {keep}")
        if not isinstance(model, PlanFamily):
            model = plan_family(model, bind or {}, PLAN_OPTIONS)
        elif bind is not None:
            raise InvalidOption("option bind: a family of plans has its sizes already")
        model.check_inputs()
        self.family = model
        self._owns_arena = not isinstance(arena, Arena)
        self.arena: Arena = arena_of(model, arena)
        if self.arena.nbytes < model.arena_bytes:
            raise CapacityExceeded(
                f"the arena has {self.arena.nbytes} bytes, and the shapes need {model.arena_bytes}"
            )
        self._executors: dict[InputShapes, Executor] | None = {}
        self._keep = keep

    def __repr__(self) -> str:
        return f"DynamicExecutor({self.family!r}, {len(self.prepared)} shapes prepared)"

    @property
    def prepared(self) -> list[dict[str, Size]]:
        """The shapes that are prepared, in the order in which they were."""
        found = map(self.family.find_inputs, list(self._executors or ()))
        return [sizes for sizes in found if sizes is not None]

    def _let_go(self) -> None:
        for executor in (self._executors or {}).values():
            executor.close()
        self._executors = None

    def run(
        self, inputs: Mapping[str, ArrayLike], *, borrow: bool = False, verify: bool = False
    ) -> dict[str, np.ndarray]:
        """
        Compute the graph's outputs for inputs of a planned shape.

        Parameters
        ----------
        inputs : mapping of str to array_like
            One array per graph input.
        borrow : bool, default False
            Return read-only views of the arena, which the next run of any shape
            overwrites, instead of copies.
        verify : bool, default False
            Check every step, as :meth:`Executor.run` does.

        Returns
        -------
        dict of str to array
            One array per graph output.

        Raises
        ------
        ExecutionError
            If an input is missing or unknown, or the shapes are none that was planned.
        ArenaError
            If another run is using the arena.
        PlannerError
            As :class:`Executor` for a shape that is new, and as :meth:`Executor.run`.
        """
        executors = self._executors
        if executors is None:
            raise fault("ArenaState", "this executor is closed")
        check_named(inputs, next(iter(self.family.inputs), None))
        try:
            shapes = tuple([np.shape(inputs[name]) for name in self.family.inputs])
        except KeyError as missing:
            raise fault("InputMismatch", f"input {quoted(missing.args[0])} is missing") from None
        executor = executors.get(shapes)
        if executor is None:
            # Only the holder of the arena prepares, so that no shape is prepared twice.
            with self.arena.lease():
                executor = executors.get(shapes) or self._prepare(shapes)
                executors[shapes] = executor
                for oldest in [] if self._keep is None else list(executors)[: -self._keep]:
                    executors.pop(oldest, None)
        elif self._keep is not None:
            executors[shapes] = executors.pop(shapes, executor)  # Now it is the latest.
        return executor.run(inputs, borrow=borrow, verify=verify)

    def _prepare(self, shapes: InputShapes) -> Executor:
        """Prepare for inputs of shapes that were not seen before."""
        sizes = self.family.find_inputs(shapes)
        if sizes is None:
            given = ", ".join(map("{} {}".format, map(quoted, self.family.inputs), shapes))
            raise fault("InputMismatch", f"no shape that was planned has the inputs {given}")
        graph, plan = self.family.fitted(**sizes)
        if any(value.kind == "state" for value in graph.values):
            raise UnsupportedModel("the graph has states, which have another place for every shape")
        return Executor(graph, plan, arena=self.arena)
