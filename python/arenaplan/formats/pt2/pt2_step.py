"""From a PyTorch training step to a graph module without in-place writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from arenaplan.formats.trees import Donate, donated_pairs, subtree


class GraphModuleStep(NamedTuple):
    """A training step as a graph module."""

    module: Any
    """Graph module; the last nodes copy new contents into arguments that the step writes to."""
    donate: dict[int, int]
    """Donated inputs with replacing results, by position among all tensors."""
    unreplaced: list[int]
    """Donated inputs that no result replaces."""


@dataclass(frozen=True)
class _Leaf:
    """Shape and type of a tensor in a tree."""

    shape: tuple[int, ...]
    dtype: str
    at: int = field(compare=False)
    """Position among the tree's tensors."""


def has_tensors(args: Any) -> bool:
    """Whether a tree has PyTorch tensors, without importing PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return any(isinstance(leaf, torch.Tensor) for leaf in torch.utils._pytree.tree_leaves(args))


def traced_step(step: Any, args: Sequence[Any], donate: Donate) -> GraphModuleStep:
    """
    Trace a step with tensors that have shapes but no content.

    Gradients become operators first; in-place writes become results in a second pass, because
    PyTorch cannot functionalize around gradients.

    Raises
    ------
    InvalidOption
        If a donated argument or result is not a whole number.
    IndexError
        If the argument or result does not exist.
    ValueError
        If a result's structure or types differ from the argument to be replaced.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten(tuple(args))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    types: Any = None
    """The results with types in place of tensors."""

    def run(*given: Any) -> list[Any]:
        nonlocal types
        left = iter(given)
        filled = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        results = step(*pytree.tree_unflatten(filled, structure))
        types = _types(results, torch)
        return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]

    table = {torch.ops.aten.native_batch_norm.default: _batch_norm}
    module = make_fx(run, decomposition_table=table, tracing_mode="fake")(*tensors)
    tensors = [tensor.detach() for tensor in tensors]
    module = make_fx(torch.func.functionalize(module), tracing_mode="fake")(*tensors)
    module.graph.eliminate_dead_code()
    arguments = _types(tuple(args), torch)
    trees = [subtree(tree, pytree.tree_flatten, tuple) for tree in (arguments, types)]
    pairs, donated = donated_pairs(trees[0], trees[1], donate or ())
    into, made = ([leaf.at for leaf in pytree.tree_leaves(tree)] for tree in (arguments, types))
    replaced = {into[pair.into]: made[pair.result] for pair in pairs}
    return GraphModuleStep(
        module, replaced, [into[at] for at in donated if into[at] not in replaced]
    )


def _batch_norm(
    x: Any, scale: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Normalize like ``native_batch_norm``, whose declaration hides the write to statistics."""
    from torch import ops

    if mean is None:
        legit = ops.aten._native_batch_norm_legit.no_stats
        return legit(x, scale, bias, training, momentum, eps)
    legit = ops.aten._native_batch_norm_legit.default
    return legit(x, scale, bias, mean, var, training, momentum, eps)


def _types(tree: Any, torch: Any) -> Any:
    """
    Return a tree with types in place of tensors, and ``()`` in place of other leaves.

    Dictionaries are sorted, so equal content has equal structure.
    """
    pytree = torch.utils._pytree
    positions = count()

    def described(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return _Leaf(tuple(map(int, leaf.shape)), str(leaf.dtype), next(positions))
        return ()

    def ordered(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: ordered(node[key]) for key in sorted(node, key=repr)}
        children, structure = pytree.tree_flatten(node, is_leaf=lambda part: part is not node)
        is_leaf = len(children) == 1 and children[0] is node
        return node if is_leaf else pytree.tree_unflatten(map(ordered, children), structure)

    return ordered(pytree.tree_map(described, tree))
