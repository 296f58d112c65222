"""A build of TensorFlow Lite Micro: kernels, pointers and options that change memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arenaplan.base import choices
from arenaplan.base.errors import InvalidOption
from arenaplan.tflite.runtime.cmsis import CMSIS_NN, CMSIS_NN_MVE
from arenaplan.tflite.runtime.custom import CUSTOM
from arenaplan.tflite.runtime.kernels import KERNELS, Kernel

if TYPE_CHECKING:
    from arenaplan.tflite.reader.tflite_model import Operator
    from arenaplan.tflite.runtime.profile import Profile

KERNEL_SETS: Final[Mapping[str, Mapping[str, Kernel]]] = {
    name: {**KERNELS, **own}
    for name, own in zip(choices.KERNELS, ({}, CMSIS_NN, CMSIS_NN_MVE), strict=True)
}
"""Builtin kernels by operator, of each set."""

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
    ("cmsis-nn-mve", 32): (
        "modelled from the sources of CMSIS-NN of July 2026 for processors with MVE, at most 16 "
        "bytes from a build of these sources on 154 files; not compared with a device"
    ),
}
"""By kernels and bits of a pointer."""
_UNCOMPARED: Final = "modelled from the sources of the runtime; not compared with one"


@dataclass(frozen=True, slots=True)
class Build:
    """
    A build of the runtime.

    Parameters
    ----------
    kernels : {"reference", "cmsis-nn"}
        The set of kernels.
    pointer : {32, 64}
        Bits of a pointer.
    recording, compression : bool, optional
        Whether the runtime records its allocations, and whether it is compiled with compressed
        weights. By default both are so for reference kernels with 64 bits, as in the Python
        package ``tflite-micro``, and neither otherwise, as in firmware.
    profile : Profile, optional
        Measured memory of one model, in place of the formulas of the kernels.
    shares : bool, default False
        Whether operands and results share bytes where these kernels allow it. Other kernels may
        not, so the command line sets it only for a set that the user names.

    Raises
    ------
    InvalidOption
        If there is no such set, or pointers have another size.
    """

    kernels: str = "reference"
    pointer: int = 64
    recording: bool | None = None
    compression: bool | None = None
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
        Return the build that the name of a target describes, such as ``tflm:cmsis-nn``.

        Pointers are those of the profile if there is one, and by default those of the machines that
        the kernels are mostly built for.
        """
        kernels = target.partition(":")[2]
        if profile is not None:
            pointer = profile.pointer
        elif pointer is None:
            pointer = 64 if kernels in ("", "reference") else 32
        return cls(kernels or "reference", pointer, profile=profile, shares=bool(kernels))

    @property
    def is_package(self) -> bool:
        """Whether it is the build in the Python package ``tflite-micro``."""
        return self.kernels == "reference" and self.pointer == 64 and self.profile is None

    @property
    def records(self) -> bool:
        """Whether the runtime records its allocations."""
        return self.is_package if self.recording is None else self.recording

    @property
    def compresses(self) -> bool:
        """Whether the runtime is compiled with compressed weights."""
        return self.is_package if self.compression is None else self.compression

    @property
    def target(self) -> str:
        """Name of the target, as the command line takes it."""
        return f"tflm:{self.kernels}" if self.shares else "tflm"

    @property
    def is_exact(self) -> bool:
        """Whether the figures are compared with the runtime itself."""
        return self.profile is not None or self.is_package

    @property
    def accuracy(self) -> str:
        """The origin of the figures, and how far they have been found off."""
        if self.profile is not None:
            return f"measured: {self.profile.runtime}"
        return _ACCURACY.get((self.kernels, self.pointer), _UNCOMPARED)

    def kernel(self, operator: Operator) -> Kernel | None:
        """Return the kernel of an operator, if it is known."""
        table = CUSTOM if operator.is_custom else KERNEL_SETS[self.kernels]
        return table.get(operator.name)


REFERENCE: Final = Build()
"""The build in the Python package ``tflite-micro``."""
