"""
Memory planning for ExecuTorch: a compiler pass, obeyed by the runtime.

>>> from arenaplan.deploy.adapters import executorch
>>> from executorch.exir import ExecutorchBackendConfig             # doctest: +SKIP
>>> config = ExecutorchBackendConfig(                               # doctest: +SKIP
...     memory_planning_pass=executorch.memory_planning_pass()
... )
>>> program = edge.to_executorch(config)                            # doctest: +SKIP

ExecuTorch calls a tensor with bytes a *spec*. Before calling an algorithm, ExecuTorch computes each
spec's lifetime (first and last node, inclusive) and which specs are inside another spec's bytes.
The algorithm places specs in arenas with numbers (``mem_id``); arena 0 is for constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from arenaplan.base.errors import GraphError, InvalidOption, UnsupportedModel, fault
from arenaplan.deploy.adapters.banks import Bank, BankedValue, assign, rounded_up

__all__ = ["Bank", "algorithm", "banked_algorithm", "memory_planning_pass"]

_DEFAULT_ARENA = 1


def memory_planning_pass(
    alignment: int = 16, banks: Iterable[Bank] | None = None, **options: Any
) -> Any:
    """
    Return a pass for ``ExecutorchBackendConfig(memory_planning_pass=…)``.

    Parameters
    ----------
    alignment : int, default 16
        Power of two, in bytes, that divides every offset; sizes are rounded up.
    banks : iterable of Bank, optional
        Memories with capacities, fastest first. Without banks, everything goes into a single arena
        without a limit.
    **options
        Further arguments for ExecuTorch's ``MemoryPlanningPass``: ``alloc_graph_input``,
        ``alloc_graph_output``, ``alloc_mutable_buffers``, ``share_mutable_buffers``.

    Returns
    -------
    executorch.exir.passes.MemoryPlanningPass
        A pass that plans every method, including control flow graphs. Without banks, the pass also
        runs ExecuTorch's own algorithm and keeps the smaller result.

    Raises
    ------
    ImportError
        If ExecuTorch is not installed.
    InvalidOption
        If banks contradict each other, or cannot be used with an option.

    Examples
    --------
    >>> from arenaplan.deploy.adapters import executorch
    >>> executorch.memory_planning_pass(alignment=32)           # doctest: +SKIP
    >>> fast = executorch.Bank("sram", 256 << 10, mem_id=1)
    >>> slow = executorch.Bank("psram", 8 << 20, mem_id=2)
    >>> executorch.memory_planning_pass(banks=[fast, slow])     # doctest: +SKIP
    """
    exir = _executorch()
    from executorch.exir.passes import MemoryPlanningPass

    if banks is None:
        algorithms = [exir.greedy, algorithm]
    elif options.get("share_mutable_buffers"):
        raise InvalidOption(
            "option share_mutable_buffers: ExecuTorch keeps them in arena 2, which is not a bank; "
            "leave out the option or the banks"
        )
    else:
        # Alone, because the smallest arena sum could exceed a bank.
        algorithms = [banked_algorithm(banks)]
    suite = exir.MemoryPlanningAlgorithmSuite(algorithms)

    def arenaplan_suite(
        alignment: int, specs: Any, graph_module: Any, graph_signature: Any, extra_padding: int
    ) -> list[int]:
        taken = keep_results_apart(graph_module, alignment)
        # Some versions pass an iterator, which would be empty for the second algorithm.
        specs = list(specs)
        sizes = suite(alignment, specs, graph_module, graph_signature, extra_padding)
        # Arenas used only by control flow graphs are not passed to algorithms.
        return [max(pair) for pair in zip_longest(sizes, taken, fillvalue=0)]

    return MemoryPlanningPass(memory_planning_algo=arenaplan_suite, alignment=alignment, **options)


def algorithm(
    alignment: int,
    specs: Iterable[Any],
    graph_module: Any,
    graph_signature: Any,
    extra_padding: int = 0,
) -> Any:
    """
    Place each spec in the requested arena, in as few bytes as possible.

    An algorithm for a ``MemoryPlanningAlgorithmSuite``, with ExecuTorch's parameters.

    Parameters
    ----------
    alignment : int
        Power of two, in bytes, that divides every offset.
    specs : iterable of TensorSpec
        Specs that need bytes, with lifetimes.
    graph_module : torch.fx.GraphModule
        The graph; ``input_mem_buffer_sizes`` are the bytes at the start of each arena that control
        flow graphs use.
    graph_signature : ExportGraphSignature
        Not used: lifetimes cover inputs, outputs and mutable buffers.
    extra_padding : int
        Bytes at the end of each arena that kernels may read beyond operands.

    Returns
    -------
    executorch.exir.memory_planning.MemoryAlgoResult
        Every spec's arena and offset, and every arena's size.

    Examples
    --------
    >>> from executorch.exir.memory_planning import (           # doctest: +SKIP
    ...     MemoryPlanningAlgorithmSuite, naive
    ... )
    >>> MemoryPlanningAlgorithmSuite([naive, algorithm])        # doctest: +SKIP
    """
    return _placed((), alignment, specs, graph_module, extra_padding)


# ExecuTorch identifies a suite's algorithms by name.
algorithm.__name__ = "arenaplan"


def banked_algorithm(banks: Iterable[Bank]) -> Any:
    """
    Return an algorithm that places specs in memories with capacities.

    Parameters
    ----------
    banks : iterable of Bank
        The memories, fastest first: :func:`arenaplan.deploy.adapters.banks.assign` chooses each
        spec's place. A spec with a bank's ``mem_id`` stays in the bank; a spec with any other
        ``mem_id`` stays in an arena without a limit.

    Returns
    -------
    callable
        An algorithm, to be used alone in a ``MemoryPlanningAlgorithmSuite``, that raises
        ``CapacityExceeded`` if the banks are too small.

    Examples
    --------
    >>> from arenaplan.deploy.adapters.executorch import Bank, banked_algorithm
    >>> banked_algorithm([Bank("sram", 4096, 1), Bank("psram", 65536, 2)]).__name__
    'arenaplan_banked'
    """
    chosen = tuple(banks)
    Bank.check(chosen)

    def arenaplan_banked(
        alignment: int,
        specs: Iterable[Any],
        graph_module: Any,
        graph_signature: Any,
        extra_padding: int = 0,
    ) -> Any:
        return _placed(chosen, alignment, specs, graph_module, extra_padding)

    return arenaplan_banked


def _placed(
    banks: Sequence[Bank],
    alignment: int,
    specs: Iterable[Any],
    graph_module: Any,
    extra_padding: int,
) -> Any:
    """Place each spec in a bank; without banks, in the requested arena."""
    owners, aliases = _owners_and_aliases(specs, alignment)
    starts = _submodule_bytes(graph_module)
    pins = [spec.mem_id for spec in owners]
    if banks:
        _only_the_processor([*owners, *aliases])
    else:
        pins = [_arena(spec) for spec in owners]
        starts = {arena: starts.get(arena, 0) for arena in pins}
    uses, names = _uses(graph_module), _names(graph_module)
    buffers = [
        BankedValue(
            spec.nbytes(),
            _live(spec),
            uses.get(id(spec), 1),
            pinned,
            _described(spec, names.get(id(spec))),
        )
        for spec, pinned in zip(owners, pins, strict=True)
    ]
    steps = [node.name for node in graph_module.graph.nodes]
    found = assign(
        buffers, banks, alignment=alignment, starts=starts, padding=extra_padding, steps=steps
    )
    for spec, (arena, _) in zip(owners, found.places, strict=True):
        spec.realign(found.alignments[arena])
    places = {spec: _Place(*place) for spec, place in zip(owners, found.places, strict=True)}
    return _result(places, aliases, found.sizes)


def keep_results_apart(graph_module: Any, alignment: int) -> list[int]:
    """
    Move planned control flow graphs so that no graph overwrites another graph's result.

    ExecuTorch plans the graphs that nodes run, such as the branches of ``torch.cond``, on top of
    each other. Results stay where the graphs put them, so while a result is needed, later nodes'
    graphs must be elsewhere.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
        A graph with lifetimes and planned inner graphs; ``input_mem_buffer_sizes`` grows with the
        moved bytes.
    alignment : int
        Power of two that divides every offset.

    Returns
    -------
    list of int
        Bytes used by the inner graphs, by arena.
    """
    taken: list[int] = list(getattr(graph_module, "input_mem_buffer_sizes", None) or [])
    if not taken:
        return []  # No inner graphs, or none in the memory that is planned now.
    earlier: list[tuple[int, list[int]]] = []
    for position, node in enumerate(graph_module.graph.nodes):
        inner = _graphs_run_by(node, graph_module)
        if not inner:
            continue
        needed = [ends for last, ends in earlier if last >= position]
        shift = [rounded_up(max(ends), alignment) for ends in zip_longest(*needed, fillvalue=0)]
        if any(shift):
            _move(inner, shift)
        sizes = (graph.meta.get("non_const_buffer_sizes", []) for graph in inner)
        ends = [max(ends) for ends in zip_longest(*sizes, fillvalue=0)]
        last = max((spec.lifetime[1] for spec in _specs_of(node)), default=position)
        earlier.append((last, ends))
        taken = [max(pair) for pair in zip_longest(taken, ends, fillvalue=0)]
    graph_module.input_mem_buffer_sizes = taken
    return taken


def _graphs_run_by(node: Any, graph_module: Any) -> list[Any]:
    """Return the planned graphs that a node runs, each once."""
    names = [other.target for other in node.all_input_nodes if other.op == "get_attr"]
    found = {id(graph): graph for graph in (getattr(graph_module, n, None) for n in names)}
    return [graph for graph in found.values() if "non_const_buffer_sizes" in _meta(graph)]


def _meta(module: Any) -> Mapping[str, Any]:
    """Return a graph's metadata; empty for other module attributes."""
    meta = getattr(module, "meta", None)
    return meta if isinstance(meta, Mapping) else {}


def _move(graphs: Iterable[Any], shift: Sequence[int]) -> None:
    """Move the planned specs in some graphs and nested graphs, in each arena."""
    specs: dict[int, Any] = {}
    for graph in graphs:
        for inner in graph.modules():
            if "non_const_buffer_sizes" not in _meta(inner):
                continue
            sizes = inner.meta["non_const_buffer_sizes"]
            inner.meta["non_const_buffer_sizes"] = [
                size + (shift[arena] if size and arena < len(shift) else 0)
                for arena, size in enumerate(sizes)
            ]
            specs |= {id(spec): spec for node in inner.graph.nodes for spec in _specs_of(node)}
    for spec in specs.values():
        if spec.mem_offset is not None and spec.mem_id < len(shift):
            spec.mem_offset += shift[spec.mem_id]


class _Place(NamedTuple):
    """A spec's place."""

    arena: int
    offset: int


def _executorch() -> Any:
    """Return ExecuTorch's memory planning module."""
    try:
        import executorch.exir.memory_planning as module
    except ImportError as error:
        raise ImportError("planning for ExecuTorch needs it: pip install executorch") from error
    return module


def _owners_and_aliases(specs: Iterable[Any], alignment: int) -> tuple[list[Any], list[Any]]:
    """Return the specs with their own bytes, in a fixed order, and the other specs."""
    found = list(specs)
    for spec in found:
        spec.realign(alignment)
    aliases = [spec for spec in found if _base(spec) is not None]
    owners = [spec for spec in found if _base(spec) is None]
    # Some versions pass a set, ordered by addresses; equal inputs must give equal plans.
    owners.sort(key=lambda spec: (_live(spec), -spec.nbytes(), str(spec.dtype), spec.shape))
    return owners, aliases


def _result(places: dict[Any, _Place], aliases: Sequence[Any], sizes: list[int]) -> Any:
    """Return the answer that ExecuTorch expects, specs inside another's bytes included."""
    exir = _executorch()
    owners = dict(places)
    for spec in aliases:
        places[spec] = _inside(spec, owners)
    objects = objects_of([(*places[spec], spec.allocated_memory) for spec in places])
    return exir.MemoryAlgoResult(
        {
            spec: exir.SpecAllocResult(place.arena, number, place.offset)
            for (spec, place), number in zip(places.items(), objects, strict=True)
        },
        sizes,
    )


def objects_of(places: Sequence[tuple[int, int, int]]) -> list[int]:
    """
    Return a number for each place, equal for places that share bytes, even indirectly.

    ExecuTorch calls the number ``mem_obj_id``; numbers start at 0 in each arena, in address order.

    Parameters
    ----------
    places : sequence of tuple
        Every spec's arena, offset and bytes.

    Examples
    --------
    >>> from arenaplan.deploy.adapters.executorch import objects_of
    >>> objects_of([(1, 0, 64), (1, 32, 64), (1, 96, 32), (2, 0, 8)])
    [0, 0, 1, 0]
    """
    objects = [0] * len(places)
    arena, number, end = -1, 0, 0
    for index in sorted(range(len(places)), key=places.__getitem__):
        here, offset, size = places[index]
        if here != arena:
            arena, number, end = here, 0, offset + size
        elif offset >= end:
            number, end = number + 1, offset + size
        else:
            end = max(end, offset + size)
        objects[index] = number
    return objects


def _inside(spec: Any, owners: Mapping[Any, _Place]) -> _Place:
    """Return the place of a spec whose bytes belong to another spec."""
    offset, end, owner = 0, spec.nbytes(), spec
    seen = set()
    while (base := _base(owner)) is not None:
        if id(owner) in seen:
            raise GraphError("specs are inside each other in a circle")
        seen.add(id(owner))
        offset += getattr(owner, "storage_base_offset", 0)
        owner = base
    if owner not in owners:
        raise GraphError(f"a spec of {spec.nbytes()} bytes is inside one that is not planned")
    arena, start = owners[owner]
    if offset < 0 or offset + end > owner.allocated_memory or (start + offset) % spec.alignment:
        raise GraphError(
            f"a spec of {end} bytes cannot be at byte {offset} of one of {owner.allocated_memory}, "
            f"aligned to {spec.alignment}"
        )
    return _Place(arena, start + offset)


def _base(spec: Any) -> Any:
    """Return the spec that contains a spec's bytes; the attribute was renamed in version 1.5."""
    if hasattr(spec, "storage_base"):
        return spec.storage_base
    return getattr(spec, "inplace_base", None)


def _arena(spec: Any) -> int:
    """Return the arena that a spec asks for."""
    arena = _DEFAULT_ARENA if spec.mem_id is None else int(spec.mem_id)
    if arena < 1:
        raise InvalidOption(f"a spec asks for arena {arena}; those for activations start at 1")
    return arena


def _live(spec: Any) -> tuple[int, int]:
    """Return a spec's half-open live range."""
    first, last = spec.lifetime
    if first is None or last is None or not 0 <= first <= last:
        raise fault("InvalidLiveRange", f"ExecuTorch gave a spec the lifetime {spec.lifetime}")
    return first, last + 1


def _submodule_bytes(graph_module: Any) -> dict[int, int]:
    """Return the bytes, by arena, that control flow graphs use."""
    return dict(enumerate(getattr(graph_module, "input_mem_buffer_sizes", None) or []))


def _uses(graph_module: Any) -> Counter[int]:
    """Return how many nodes read or write each spec, by identity."""
    uses: Counter[int] = Counter()
    for node in graph_module.graph.nodes:
        near = [node, *node.all_input_nodes]
        uses.update({id(spec) for other in near for spec in _specs_of(other)})
    return uses


def _names(graph_module: Any) -> dict[int, str]:
    """Return the name of the node that makes each spec, by spec identity."""
    names: dict[int, str] = {}
    for node in graph_module.graph.nodes:
        for spec in _specs_of(node):
            names.setdefault(id(spec), node.name)
    return names


def _described(spec: Any, name: str | None) -> str | None:
    """Return a spec's name, shape and element type, as far as known."""
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    parts = [name] if name else []
    if shape is not None and dtype is not None:
        parts.append(f"{str(dtype).removeprefix('torch.')}{list(shape)}")
    return " ".join(parts) or None


def _specs_of(node: Any) -> list[Any]:
    """Return the specs for a node's results; results that are not tensors have no specs."""
    found = node.meta.get("spec")
    several = found if isinstance(found, (list, tuple)) else [found]
    return [spec for spec in several if hasattr(spec, "mem_offset")]


def _only_the_processor(specs: Iterable[Any]) -> None:
    """Refuse specs on other devices, whose memory no bank describes."""
    for spec in specs:
        device = getattr(spec, "device", None)
        if device is not None and device.name != "CPU":
            raise UnsupportedModel(
                f"a spec is on {device.name}; banks are the processor's memories"
            )
