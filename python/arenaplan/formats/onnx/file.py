"""Reads a file into a model, and the versions of the operator sets."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, OperatorSetIdProto, defs

from arenaplan.base.errors import NotAModel, fault
from arenaplan.base.model_files import opened
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.external import Folder, mapped
from arenaplan.formats.onnx.lean import LARGE, Content, lean
from arenaplan.formats.onnx.node_order import MAX_NESTING
from arenaplan.graph.mapped import let_pages_go

Source: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto"

MAX_FILE = 2**31 - 1
"""Largest message that protobuf reads."""


def read_model(source: Source) -> tuple[ModelProto, Path | None, Folder]:
    """
    Return a model, the model's path, and the weights folder.

    Raises
    ------
    NotAModel, ModelError, UnsupportedModel
        If the content is not a model, or the ONNX reader cannot read the content.
    OSError
        If the file cannot be read.
    """
    if isinstance(source, ModelProto):
        return _checked(source, "the model"), None, Folder(None)
    if isinstance(source, bytes):
        return _parse(source, "the data"), None, Folder(None, source)
    path = Path(source)
    with opened(path, MAX_FILE) as file:
        size = os.fstat(file.fileno()).st_size
        content: Content = file.read() if size < LARGE else mapped(file, 0, size)[0]
        return _parse(content, repr(str(path))), path, Folder(path.absolute().parent, content)


def _parse(data: Content, what: str) -> ModelProto:
    """Decode a model."""
    if len(data) > MAX_FILE:
        raise fault(
            "ModelTooLarge", f"{what} has {len(data)} bytes; a model has at most {MAX_FILE}"
        )
    try:
        model = ModelProto.FromString(lean(data))
    except DecodeError as error:
        if "depth" in str(error).lower():
            raise fault(
                "NestingTooDeep",
                f"{what} nests subgraphs deeper than {MAX_NESTING}, which is as deep as "
                "readers of the format can follow",
            ) from error
        raise NotAModel(f"{what} is not an ONNX model, or is cut off: {error}") from error
    if isinstance(data, mmap.mmap):
        let_pages_go(data)  # Pages of skipped weights.
    return _checked(model, what)


def _checked(model: ModelProto, what: str) -> ModelProto:
    """Refuse a message that happens to decode."""
    if not model.HasField("graph") or not (model.ir_version or model.opset_import):
        raise NotAModel(f"{what} is not an ONNX model: the file has no graph or no version")
    return model


def is_text(model: ModelProto) -> bool:
    """Return whether all text in a model is UTF-8; slow."""
    pending: list[Any] = [model]
    while pending:
        message = pending.pop()
        try:
            fields = message.ListFields()
        except UnicodeDecodeError:
            return False
        for field, value in fields:
            if field.type == field.TYPE_MESSAGE:
                pending.extend([value] if hasattr(value, "ListFields") else value)
            elif field.type == field.TYPE_STRING:
                texts = [value] if isinstance(value, (str, bytes)) else value
                if not all(isinstance(text, str) for text in texts):
                    return False
    return True


def domain_name(domain: str) -> str:
    """Return an operator set's name; the standard set has two names."""
    return "" if domain == "ai.onnx" else domain


def read_versions(imports: Iterable[OperatorSetIdProto], what: str) -> dict[str, int]:
    """
    Return the operator set versions used by a model or function.

    Raises
    ------
    UnsupportedModel
        If a set is listed twice, or newer than the installed ``onnx``.
    """
    versions: dict[str, int] = {}
    for entry in imports:
        domain, version = domain_name(entry.domain), entry.version
        if domain in versions:
            raise fault("UnsupportedOpset", f"{what} imports operator set {_shown(domain)} twice")
        newest = defs.onnx_opset_version() if not domain else None
        if version < 1 or (newest is not None and version > newest):
            raise fault(
                "UnsupportedOpset",
                f"{what} imports version {version} of operator set {_shown(domain)}; "
                f"known are 1 to {newest or 'any'}",
            )
        versions[domain] = version
    return versions


def version_of(domain: str, versions: Mapping[str, int], what: str) -> int:
    """Return the version of ``domain`` used by ``what``."""
    version = versions.get(domain)
    if version is None:
        raise fault(
            "UnsupportedOpset",
            f"{what} is of operator set {_shown(domain)}, of which no version is imported",
        )
    return version


def _shown(domain: str) -> str:
    """Return an operator set's name for a message."""
    return quoted(domain or "ai.onnx")
