"""Plans from files, so that a server that starts searches nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from arenaplan._core import Plan
from arenaplan.base.errors import InvalidOption
from arenaplan.formats import open_model
from arenaplan.formats.json_document import format_of, read_document
from arenaplan.graph import Graph
from arenaplan.graph.model import Model, nested_sizes
from arenaplan.run.dynamic.families import InputShapes, Source

Saved: TypeAlias = "Model | Plan | str | os.PathLike[str]"
"""Plans that were made before, or the file with the plans."""

_MODEL = "arenaplan-model"


def read_saved(saved: Saved) -> Model | Plan:
    """
    Return the plans in a model file or plan file.

    Raises
    ------
    ModelError, PlanError
        If the file is damaged, or of another kind.
    """
    if isinstance(saved, (Model, Plan)):
        return saved
    text, _ = read_document(Path(saved))
    return Model.from_json(text) if format_of(text) == _MODEL else Plan.from_json(text)


class SavedFamily:
    """
    The plans in a model file, with graphs that have weights.

    Parameters
    ----------
    source : path, bytes or callable
        The model, as for :func:`plan_family`.
    plans : Model
        The model's plans. The plans for a shape are checked against the graph when the shape is
        first used.
    """

    def __init__(self, source: Source, plans: Model) -> None:
        self._graph_with = source if callable(source) else open_model(source)
        self._plans = plans
        self._by_inputs: dict[InputShapes, dict[str, int]] = {}
        self._same_inputs: tuple[dict[str, int], dict[str, int]] | None = None
        self.inputs: tuple[str, ...] = ()
        """Names of the graph's inputs."""
        for sizes in plans:
            graph = plans.graph(**sizes)
            values = [graph.values[index] for index in graph.inputs]
            self.inputs = tuple(value.name for value in values)
            first = self._by_inputs.setdefault(tuple(value.shape for value in values), sizes)
            if first is not sizes and self._same_inputs is None:
                self._same_inputs = first, sizes

    def __len__(self) -> int:
        """Return the number of shapes."""
        return len(self._plans)

    @property
    def arena_bytes(self) -> int:
        """Arena bytes that suffice for every shape."""
        return self._plans.arena_bytes

    @property
    def planned(self) -> list[tuple[dict[str, int], Plan]]:
        """The shape with the most bytes, with its plan."""
        sizes = max(self._plans, key=lambda sizes: self._plans.required_bytes(**sizes))
        return [(sizes, self._plans.at(**sizes))]

    def check_inputs(self) -> None:
        """
        Raise unless a run's input shapes distinguish the shapes in the file.

        Raises
        ------
        InvalidOption
            If two shapes have equal input shapes.
        """
        if self._same_inputs is not None:
            first, second = self._same_inputs
            raise InvalidOption(f"the inputs have the same shapes with {first} and with {second}")

    def find_inputs(self, shapes: InputShapes) -> dict[str, int] | None:
        """Return the sizes with which the graph's inputs have these shapes, if any have."""
        return self._by_inputs.get(shapes)

    def fitted(self, /, **sizes: int) -> tuple[Graph, Plan]:
        """
        Return one shape's graph with weights, and the plan.

        Raises
        ------
        PlanError
            If the plan belongs to another model.
        """
        plan = self._plans.at(**sizes)
        graph = self._graph_with(nested_sizes(sizes))
        plan.check(graph)
        return graph, plan
