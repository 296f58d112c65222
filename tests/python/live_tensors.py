"""Runs a compiled PyTorch step, and counts the bytes of the tensors that it makes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class LiveTensors(TorchDispatchMode):
    """Counts bytes of storages from the operator that makes them to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.flop = 0
        """Operations of products, convolutions and attention."""
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        count = flop_registry.get(function._overloadpacket)
        if count is not None:
            self.flop += count(*args, **(kwargs or {}), out_val=made)
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(made):
            key = storage._cdata
            if key not in given and key not in self._sizes:
                self._sizes[key] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._end, key)
        self.peak = max(self.peak, self.now)
        return made

    def _end(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def _storages(tree: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class CountedStep:
    """
    Forward and backward pass of a model, each operator run as PyTorch has it.

    Parameters
    ----------
    model : torch.nn.Module
        The model, whose parameters get gradients.
    loss : callable
        From the model and the batch to a scalar.
    **options
        Options of ``aot_autograd``, such as ``partition_fn``.
    """

    def __init__(self, model: Any, loss: Callable[..., Any], **options: Any) -> None:
        self.model, self.live = model, LiveTensors()
        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=self._compiled, **options)
        self.loss = torch.compile(
            lambda *batch: loss(model, *batch), backend=backend, fullgraph=True, dynamic=False
        )

    def _compiled(self, module: Any, inputs: Any) -> Any:
        function = boxed_nop(module, inputs)

        def run(args: list[Any]) -> Any:
            with self.live:
                return function(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def __call__(self, *batch: Any, seed: int = 1) -> tuple[Any, dict[str, Any], int]:
        """Return the loss, the gradients, and the most bytes that both passes needed."""
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        before = self.live.peak = self.live.now
        loss = self.loss(*batch)
        loss.backward()
        grads = {name: p.grad for name, p in self.model.named_parameters()}
        return loss.detach(), grads, self.live.peak - before
