"""Node origins: the layer and source line stored in a model."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_BEGIN: Final = 'File "'
_FRAME: Final = re.compile(_BEGIN + r'([^"\n]+)", line (\d+)')


class Origin(NamedTuple):
    """
    A node's place in the program that made the model.

    The text comes from a file and is only for people.
    """

    layer: str | None = None
    """The layer's path, such as ``"encoder/layer1/conv"``."""
    source: str | None = None
    """File and line, such as ``"model.py:12"``."""


def origin_of(layer: str | None, stack_trace: str | None) -> Origin | None:
    """
    Return the origin from a layer and a Python stack trace.

    The source is the innermost frame outside PyTorch, whose modules call each other.

    Examples
    --------
    >>> origin_of("conv", 'File "/home/me/net.py", line 12, in forward')
    Origin(layer='conv', source='/home/me/net.py:12')
    >>> origin_of("", None)
    """
    source = _innermost(stack_trace) if stack_trace else None
    return Origin(layer or None, source) if layer or source else None


def _innermost(stack_trace: str) -> str | None:
    """Return the last frame outside PyTorch, or else the last frame."""
    last, end = None, len(stack_trace)
    while (begin := stack_trace.rfind(_BEGIN, 0, end)) >= 0:
        frame, end = _FRAME.match(stack_trace, begin), begin
        if frame is not None:
            source = f"{frame[1]}:{frame[2]}"
            if "/site-packages/torch/" not in frame[1]:
                return source
            last = last or source
    return last


def layer_of(name: str) -> str | None:
    """
    Return the layer in a node's name, if the name is a path.

    PyTorch and TensorFlow exporters name nodes by the surrounding modules.

    Examples
    --------
    >>> layer_of("/layer1/layer1.0/conv1/Conv"), layer_of("Conv_3")
    ('layer1/layer1.0/conv1', None)
    """
    path = name.partition(";")[0].strip("/").rpartition("/")[0]
    return path or None
