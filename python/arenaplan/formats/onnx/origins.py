"""Origins of ONNX nodes, from metadata written by PyTorch's exporter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from arenaplan.graph.origin import Origin, origin_of

if TYPE_CHECKING:
    from onnx import NodeProto

_SCOPES: Final = "pkg.torch.onnx.name_scopes"
_TRACE: Final = "pkg.torch.onnx.stack_trace"
_READ: Final = frozenset([_SCOPES, _TRACE])
_LONGEST: Final = 1 << 16
"""Most characters of metadata that are read."""

_QUOTED: Final = re.compile(r"'([^'\n]*)'")


def node_origin(node: NodeProto) -> Origin | None:
    """
    Return a node's layer and source line; None if the metadata has neither.

    Examples
    --------
    >>> from onnx import NodeProto
    >>> node = NodeProto()
    >>> entry = node.metadata_props.add()
    >>> entry.key, entry.value = "pkg.torch.onnx.name_scopes", "['', 'body', 'body.conv', 'conv2d']"
    >>> node_origin(node)
    Origin(layer='body.conv', source=None)
    """
    entries = node.metadata_props[:]
    if not entries:
        return None
    facts = {}
    for entry in entries:
        key = entry.key
        if key in _READ:
            facts[key] = entry.value[:_LONGEST]
    # The last scope is the operation itself.
    scopes = _QUOTED.findall(facts.get(_SCOPES, ""))[:-1]
    return origin_of(scopes[-1] if scopes else None, facts.get(_TRACE))
