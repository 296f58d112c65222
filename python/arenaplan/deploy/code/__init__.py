"""
Plans as C programs: a function per model, with generated kernels and a static arena.

:func:`generated` returns header and source for a graph and a plan with target ``"c-code"``. A table
of lowerings by operator (``code_windows``, ``code_dense``, ``code_elements``, ``code_moves``,
``code_sums``) turns nodes into calls; the kernels are C text in ``kernels``.
"""

from __future__ import annotations

from arenaplan.deploy.code.cmsis_calls import calling_cmsis_nn, cmsis_nn_calls
from arenaplan.deploy.code.code_program import TARGET, CodeFiles, generated
from arenaplan.tflite.reader.code_walk import streamed

__all__ = ["TARGET", "CodeFiles", "calling_cmsis_nn", "cmsis_nn_calls", "generated", "streamed"]
