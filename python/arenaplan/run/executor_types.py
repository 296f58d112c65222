"""The type of executors: a call of :class:`Executor` makes the executor that the model needs."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, ClassVar

from arenaplan.base.errors import InvalidOption
from arenaplan.formats import load
from arenaplan.graph import Graph
from arenaplan.run.registered import choice, class_of


class ExecutorType(ABCMeta):
    """The type of executors that run one graph; a call may return an executor of another type."""

    kind: ClassVar[str]
    """The kind of devices that the executor runs on."""

    def __call__(cls, model: Any, plan: Any = None, *, bind: Any = None, **options: Any) -> Any:
        """Return the executor for a model, which is read if it is a file."""
        device = options.get("device", cls.kind)
        is_open = hasattr(device, "allocate")
        kind = device.partition(":")[0] if isinstance(device, str) else "cuda" if is_open else ""
        if kind != cls.kind:
            return class_of(kind, device)(model, plan, bind=bind, **options)
        if isinstance(model, Graph):
            if bind is not None:
                raise InvalidOption("option bind: a Graph has its sizes already; bind the file")
            return super().__call__(model, plan, **options)
        if cls.kind == "cpu":
            model = choice()(model, bind, {"plan": plan, **options})
        else:
            model = load(model, bind=bind)
        return super().__call__(model, plan, **options) if isinstance(model, Graph) else model
