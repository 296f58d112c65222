"""TensorFlow Lite Micro builds: kernels, pointers and options that affect memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arenaplan.base import choices
from arenaplan.base.errors import InvalidOption
from arenaplan.tflite.runtime.cmsis import CMSIS_NN, CMSIS_NN_MVE
from arenaplan.tflite.runtime.custom import CUSTOM
from arenaplan.tflite.runtime.esp_nn import ESP_NN
from arenaplan.tflite.runtime.kernels import KERNELS, RuntimeKernel

if TYPE_CHECKING:
    from arenaplan.tflite.reader.tflite_model import TfliteOperator
    from arenaplan.tflite.runtime.profile import Profile

KERNEL_SETS: Final[Mapping[str, Mapping[str, RuntimeKernel]]] = {
    name: {**KERNELS, **own}
    for name, own in zip(choices.KERNELS, ({}, CMSIS_NN, CMSIS_NN_MVE, ESP_NN), strict=True)
}
"""Builtin kernels by operator, for each set."""

_ACCURACY: Final[Mapping[tuple[str, int], str]] = {
    ("reference", 64): (
        "exact: formulas of the kernels, at most 16 bytes from the interpreter of the Python "
        "package tflite-micro 0.dev20261023 on 159 files"
    ),
    ("reference", 32): (
        "modelled with the sizes of structures of 32 bits, at most 16 bytes from a build of the "
        "sources of August 2026 on 154 files"
    ),
    ("cmsis-nn", 32): (
        "modelled from the sources of CMSIS-NN of July 2026 for processors with DSP, at most 16 "
        "bytes from a build of these sources on 154 files; not compared with a device"
    ),
    ("esp-nn", 32): (
        "modelled from the sources of ESP-NN 1.2.3 of April 2026 for the ESP32-S3; not compared "
        "with a device"
    ),
    ("cmsis-nn-mve", 32): (
        "modelled from the sources of CMSIS-NN of July 2026 for processors with MVE, at most 16 "
        "bytes from a build of these sources on 154 files; not compared with a device"
    ),
}
"""By kernel set and pointer bits."""
_UNCOMPARED: Final = "modelled from the sources of the runtime; not compared with one"


@dataclass(frozen=True, slots=True)
class Build:
    """
    A runtime build.

    Parameters
    ----------
    kernels : str
        The kernel set: a key in :data:`KERNEL_SETS`.
    pointer : {32, 64}
        Pointer size in bits.
    profile : Profile, optional
        A model's measured memory, in place of kernel formulas.
    shares : bool, default False
        Whether operands and results share bytes where these kernels allow sharing. Other kernels
        may not, so the command line enables sharing only for a kernel set named by the user.

    Raises
    ------
    InvalidOption
        If the kernel set or the pointer size is unknown.
    """

    kernels: str = "reference"
    pointer: int = 64
    profile: Profile | None = None
    shares: bool = False

    def __post_init__(self) -> None:
        if self.kernels not in KERNEL_SETS:
            known = ", ".join(KERNEL_SETS)
            raise InvalidOption(f"option kernels: {self.kernels!r} is no set; known are {known}")
        if self.pointer not in (32, 64):
            raise InvalidOption(f"option pointer: {self.pointer} bits; known are 32 and 64")

    @classmethod
    def of_target(
        cls, target: str, pointer: int | None = None, profile: Profile | None = None
    ) -> Build:
        """
        Return the build for a target name, such as ``tflm:cmsis-nn``.

        The pointer size comes from the profile, if given, or from the kernels' usual machines.
        """
        kernels = target.partition(":")[2]
        if profile is not None:
            pointer = profile.pointer
        elif pointer is None:
            pointer = 64 if kernels in ("", "reference") else 32
        return cls(kernels or "reference", pointer, profile=profile, shares=bool(kernels))

    @property
    def is_package(self) -> bool:
        """
        Whether this is the build in the Python package ``tflite-micro``.

        Only this build records allocations, and has compressed weights compiled in.
        """
        return self.kernels == "reference" and self.pointer == 64 and self.profile is None

    @property
    def target(self) -> str:
        """The target's name on the command line."""
        return f"tflm:{self.kernels}" if self.shares else "tflm"

    @property
    def is_exact(self) -> bool:
        """Whether the figures were compared with the runtime."""
        return self.profile is not None or self.is_package

    @property
    def accuracy(self) -> str:
        """The figures' origin, and the known deviation."""
        if self.profile is not None:
            return f"measured: {self.profile.runtime}"
        return _ACCURACY.get((self.kernels, self.pointer), _UNCOMPARED)

    def kernel(self, operator: TfliteOperator) -> RuntimeKernel | None:
        """Return an operator's kernel, if known."""
        table = CUSTOM if operator.is_custom else KERNEL_SETS[self.kernels]
        return table.get(operator.name)


REFERENCE: Final = Build()
"""The build in the Python package ``tflite-micro``."""
