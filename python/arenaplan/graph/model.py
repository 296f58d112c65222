"""Models: a neural network's graphs and plans for one or several shapes, in one file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from arenaplan import _core
from arenaplan._core import Plan
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption
from arenaplan.graph.graph import Graph

_AXIS = re.compile(r"(.+)\[(\d+)\]", re.DOTALL)


class Model:
    """
    A neural network's graphs and plans, for each shape.

    Reading a model file checks every plan. Rust programs read the same file, without Python and
    without the original model. :meth:`PlanFamily.to_model` makes a model from a family.

    Parameters
    ----------
    name : str
        The model's name.
    dims : sequence of str
        Names of varying dimensions.
    shapes : iterable of (sequence of int, Graph, Plan)
        Per shape, each dimension's size, the graph, and a plan for the graph.

    Raises
    ------
    PlanError
        If a plan is not valid for the graph.
    InvalidOption
        If there are no shapes, or sizes do not match the dimensions.

    Examples
    --------
    >>> import arenaplan as ap
    >>> def layer(batch):
    ...     graph = ap.Graph("layer")
    ...     x = graph.input("x", (batch, 64))
    ...     (y,) = graph.node("MatMul", [x], [("y", (batch, 16), "float32")])
    ...     graph.output(y)
    ...     return graph
    >>> graphs = {batch: layer(batch) for batch in (1, 2, 4)}
    >>> rows = [([batch], graph, ap.plan(graph)) for batch, graph in graphs.items()]
    >>> model = ap.Model("layer", ["batch"], rows)
    >>> model.arena_bytes, model.required_bytes(batch=2)
    (1280, 640)
    >>> model.padded(batch=3)
    {'batch': 4}
    """

    @typed
    def __init__(
        self,
        name: str,
        dims: Sequence[str],
        shapes: Iterable[tuple[Sequence[int], Graph, Plan]],
    ) -> None:
        self._core = _core.Model(name, list(dims), iter(shapes))

    @classmethod
    def _of(cls, core: _core.Model) -> Model:
        model = cls.__new__(cls)
        model._core = core
        return model

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {len(self)} shapes, {self.arena_bytes} bytes)"

    def __len__(self) -> int:
        """Return the number of shapes."""
        return len(self._core)

    def __iter__(self) -> Iterator[dict[str, int]]:
        """Iterate over the shapes, as sizes by name, in ascending order."""
        names = list(self.dims)
        for sizes, _ in self._core.shapes:
            yield dict(zip(names, sizes, strict=True))

    # -- files -----------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """
        Read a model from a file, and check every plan.

        Raises
        ------
        ModelError
            If the file is damaged, or not a model in this version.
        GraphError, PlanError
            If a graph or a plan is not valid; the message names the shape.
        """
        return cls._of(_core.Model.load(path))

    @classmethod
    def from_json(cls, text: str | bytes) -> Model:
        """Return the model that JSON text holds; raises as :meth:`load`."""
        return cls._of(_core.Model.from_json(text))

    def to_json(self) -> str:
        """Return the model as JSON text; equal models give equal text."""
        return self._core.to_json()

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write the model to a file, which is replaced at once or unchanged.

        Raises
        ------
        PlanError
            If the file cannot be written.
        """
        self._core.save(path)

    # -- what it holds -----------------------------------------------------------

    @property
    def name(self) -> str:
        """The model's name."""
        return self._core.name

    @property
    def dims(self) -> dict[str, list[int]]:
        """Names of varying dimensions, each with ascending sizes."""
        return dict(self._core.dims)

    @property
    def arena_bytes(self) -> int:
        """Arena bytes that suffice for every shape."""
        return self._core.arena_bytes

    def required_bytes(self, /, **sizes: int) -> int:
        """
        Return the bytes needed for a shape, such as ``required_bytes(batch=8)``.

        Raises
        ------
        UnknownDim, UnboundDim, SizeError
            If the model has no shape with these sizes. A dimension with the same size in all shapes
            may be left out.
        """
        return self._core.shapes[self._core.find(list(sizes.items()), False)][1]

    def padded(self, /, **sizes: int) -> dict[str, int]:
        """
        Return the smallest shape that is at least as large in every dimension.

        Raises as :meth:`required_bytes`.
        """
        found = self._core.shapes[self._core.find(list(sizes.items()), True)][0]
        return dict(zip(self.dims, found, strict=True))

    def at(self, /, **sizes: int) -> Plan:
        """Return a shape's plan; raises as :meth:`required_bytes`."""
        return self._core.plan(list(sizes.items()))

    def graph(self, /, **sizes: int) -> Graph:
        """Return a shape's graph, without weights; raises as :meth:`required_bytes`."""
        return Graph.of_core(self._core.graph(list(sizes.items())))


def flat_sizes(sizes: Mapping[str, int | Sequence[int]]) -> dict[str, int]:
    """
    Return sizes with a name for each number.

    The sizes in a whole shape are named ``image[0]``, ``image[1]`` and so on.

    Examples
    --------
    >>> from arenaplan.graph.model import flat_sizes
    >>> flat_sizes({"batch": 8, "image": (3, 224)})
    {'batch': 8, 'image[0]': 3, 'image[1]': 224}
    """
    flat: dict[str, int] = {}
    for name, size in sizes.items():
        numbers = {name: size} if isinstance(size, int) else _axes(name, size)
        for key, number in numbers.items():
            if key in flat:
                raise InvalidOption(f"option bind: {key!r} is the name of two dimensions")
            flat[key] = number
    return flat


def nested_sizes(sizes: Mapping[str, int]) -> dict[str, int | tuple[int, ...]]:
    """
    Return sizes with whole shapes joined, the reverse of :func:`flat_sizes`.

    Examples
    --------
    >>> from arenaplan.graph.model import nested_sizes
    >>> nested_sizes({"batch": 8, "image[0]": 3, "image[1]": 224})
    {'batch': 8, 'image': (3, 224)}
    """
    nested: dict[str, int | tuple[int, ...]] = {}
    for name, size in sizes.items():
        axis = _AXIS.fullmatch(name)
        if axis is None:
            nested[name] = size
            continue
        known = nested.get(axis[1], ())
        if isinstance(known, int) or int(axis[2]) != len(known):
            nested[name] = size
        else:
            nested[axis[1]] = (*known, size)
    return nested


def _axes(name: str, shape: Sequence[int]) -> dict[str, int]:
    """Return a name for each dimension in a shape."""
    return {f"{name}[{axis}]": size for axis, size in enumerate(shape)}
