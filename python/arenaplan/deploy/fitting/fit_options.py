"""Rewrite options."""

from __future__ import annotations

from dataclasses import dataclass

from arenaplan.base.errors import InvalidOption
from arenaplan.tflite.runtime import Build


@dataclass(frozen=True, slots=True)
class FitOptions:
    """
    Limits for a rewritten model.

    Examples
    --------
    >>> FitOptions(budget=65536, max_macs=1.1).max_macs
    1.1
    """

    budget: int | None = None
    """Bytes that the whole arena may have; ``None`` for as few as possible."""
    max_macs: float = 1.05
    """Most multiply-accumulates, as a multiple of the model's."""
    max_operators: int | None = None
    """Most operators in the rewritten model."""
    max_slowdown: float | None = 1.1
    """Longest expected run time, as a multiple of the model's; ``None`` for no limit."""
    pointer: int = 64
    """Pointer size, in bits, on the machine that runs the model: 32 or 64."""
    kernels: str = "reference"
    """Kernel set: a key in :data:`~arenaplan.tflite.runtime.build.KERNEL_SETS`."""
    shares: bool = False
    """
    Whether elementwise results may be at an operand's address, as :attr:`kernels` allow; other
    kernel sets may not.
    """
    overlap: bool = False
    """
    Whether results may be written over operands that the kernel reads in the same order. This
    is for reference kernels only: others compute several pixels at a time.
    """
    effort: int = 20_000
    """Orders in which tensors are placed, for each rewrite that is examined."""

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 0:
            raise InvalidOption(f"option budget: {self.budget} is negative")
        if not 1.0 <= self.max_macs <= 100.0:
            raise InvalidOption(f"option max_macs: {self.max_macs} is not from 1 to 100")
        if self.max_operators is not None and self.max_operators < 0:
            raise InvalidOption(f"option max_operators: {self.max_operators} is negative")
        if self.max_slowdown is not None and not 1.0 <= self.max_slowdown <= 100.0:
            raise InvalidOption(f"option max_slowdown: {self.max_slowdown} is not from 1 to 100")
        if self.effort < 0:
            raise InvalidOption(f"option effort: {self.effort} is negative")
        Build(self.kernels, self.pointer)
        if self.overlap and self.kernels != "reference":
            raise InvalidOption(f"option overlap: kernels {self.kernels!r} read ahead of writing")

    @property
    def build(self) -> Build:
        """The runtime's build."""
        return Build(self.kernels, self.pointer, shares=self.shares or self.overlap)
