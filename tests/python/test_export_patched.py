"""TFLite files with a patch applied: all else is kept, and the table of tensors has no holes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flat
from arenaplan.base.errors import UnsupportedModel
from arenaplan.deploy.export.patched import order_of_tensors, patched
from arenaplan.tflite.reader.offline import METADATA_NAME
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse
from arenaplan.tflite.reader.tflite_rows import program_of
from arenaplan.tflite.rewrite.patch import (
    Kept,
    Moved,
    NewConstant,
    NewTensor,
    Patch,
    Repeated,
    identity,
)
from arenaplan.tflite.rewrite.strip_patches import patch_of
from arenaplan.tflite.rewrite.strip_regions import SplitRegion
from strip_models import Network, evaluate, pyramid, random_network

MODELS = ("ad01_int8", "kws_ref_model", "micro_speech_quantized", "person_detect", "vww_96_int8")


def unchanged(model: TfliteModel) -> Patch:
    main = model.subgraphs[0]
    return identity(len(main.tensors), len(main.operators))


def said(model: TfliteModel) -> tuple[Any, ...]:
    """Return all that a model says, wherever its bytes lie."""
    contents = [model.content(i) for i in range(len(model.buffers))]
    metadata = [(entry.name, model.content(entry.buffer)) for entry in model.metadata]
    return model.description, model.subgraphs, contents, metadata, model.signatures


@pytest.mark.parametrize("seed", range(10))
def test_the_identity_says_the_same(seed: int) -> None:
    model = parse(random_network(seed))
    written = patched(model, unchanged(model))
    assert said(written) == said(model)
    assert patched(model, unchanged(model)).data == patched(model, unchanged(model)).data


@pytest.mark.parametrize("name", MODELS)
def test_the_identity_of_real_models_says_the_same(name: str, shared: Path) -> None:
    data = (shared / "models" / "tflite" / f"{name}.tflite").read_bytes()
    model = parse(data)
    new = patched(model, unchanged(model)).data
    # Alignment in memory is that of the old file: it moves as a whole.
    assert new.endswith(data)
    assert (len(new) - len(data)) % 64 == 0
    assert len(new) - len(data) < 2048
    assert said(parse(new)) == said(model)


def signed() -> dict[int, Any]:
    """Return a model with a signature, metadata, a plan and a tensor that nobody mentions."""
    tensors = [
        flat.tensor("unused", (1, 64)),
        flat.tensor("x", (1, 8)),
        flat.tensor("between", (1, 8)),
        flat.tensor("y", (1, 8)),
    ]
    operators = [flat.operator(0, [1], [2]), flat.operator(0, [2], [3])]
    entry = {0: "features", 1: flat.Number("I", 1)}
    signature = {0: [entry], 1: [{0: "scores", 1: flat.Number("I", 3)}], 2: "serve"}
    plan = struct.pack("<7i", 1, 1, 4, -1, -1, -1, -1)
    return flat.model(
        [flat.code("NEG")],
        [flat.subgraph(tensors, operators, [1], [3])],
        [b"", b"kept as it is", plan],
        [("note", 1), (METADATA_NAME, 2)],
        [signature],
    )


def test_a_tensor_that_nothing_mentions_is_dropped_and_signatures_follow() -> None:
    model = parse(flat.write(signed()))
    written = patched(model, unchanged(model))
    main = written.subgraphs[0]
    assert sorted(tensor.name for tensor in main.tensors) == ["between", "x", "y"]
    (signature,) = written.signatures
    assert [(k, main.tensors[i].name) for k, i in signature.inputs] == [("features", "x")]
    assert [(k, main.tensors[i].name) for k, i in signature.outputs] == [("scores", "y")]
    assert [main.tensors[i].name for i in (*main.inputs, *main.outputs)] == ["x", "y"]


def test_an_old_plan_is_dropped_and_other_metadata_is_kept() -> None:
    model = parse(flat.write(signed()))
    written = patched(model, unchanged(model), {"more": b"words"})
    found = {entry.name: written.content(entry.buffer) for entry in written.metadata}
    assert found == {"note": b"kept as it is", "more": b"words"}


def test_new_tensors_take_the_numbers_that_are_free() -> None:
    model = parse(flat.write(signed()))
    patch = Patch(
        4,
        (NewTensor("middle", 2, (1, 8), None),),
        (Repeated(0, (1,), (4,), unpadded=False), Repeated(1, (4,), (3,), unpadded=False)),
    )
    assert order_of_tensors(model, patch) == (4, 1, 3)
    written = patched(model, patch)
    main = written.subgraphs[0]
    names = [[main.tensors[i or 0].name for i in o.inputs + o.outputs] for o in main.operators]
    assert names == [["x", "middle"], ["middle", "y"]]


def test_fields_that_are_not_understood_are_kept() -> None:
    root = signed()
    main = root[2][0]
    main[3][0][13] = flat.Number("i", 7)  # An index into debug metadata.
    main[3][0][6] = flat.Number("b", 1)
    main[5] = flat.Number("i", 3)
    main[0][1][8] = flat.Number("B", 1)
    model = parse(flat.write(root))
    written = patched(model, unchanged(model))
    subgraph = written.root.tables(2, "subgraph")[0]
    assert subgraph.number(5, "i") == 3
    operator = subgraph.tables(3, "operator")[0]
    assert operator.number(13, "i") == 7
    assert operator.number(6, "b") == 1
    tensors = subgraph.tables(0, "tensor")
    assert [t.number(8, "B") for t in tensors if t.string(3) == "x"] == [1]


def test_a_field_of_an_unknown_later_version_is_refused_where_numbers_change() -> None:
    root = signed()
    root[2][0][3][1][14] = flat.Number("i", 1)
    model = parse(flat.write(root))
    with pytest.raises(UnsupportedModel, match="unknown later version"):
        patched(model, unchanged(model))


def test_data_behind_the_model_is_refused() -> None:
    root = signed()
    data = flat.write(root)
    root[4][1] = {1: flat.Number("Q", len(data)), 2: flat.Number("Q", 4)}
    moved = flat.write(root)
    root[4][1] = {1: flat.Number("Q", len(moved)), 2: flat.Number("Q", 4)}
    model = parse(flat.write(root) + b"data" * 8)
    with pytest.raises(UnsupportedModel, match="by position"):
        patched(model, unchanged(model))


def test_movers_have_versions_that_runtimes_know_and_constants_are_shared() -> None:
    model = parse(pyramid())
    program = program_of(model)
    patch = patch_of(program, [SplitRegion(0, 1, (4, 8, 12), frozenset({0}))])
    constants = [t for t in patch.tensors if isinstance(t, NewConstant)]
    assert len({(t.shape, t.values) for t in constants}) == len(constants)
    written = patched(model, patch)
    versions = {o.name: o.version for o in written.subgraphs[0].operators}
    assert {n: versions[n] for n in ("SLICE", "PAD", "CONCATENATION")} == {
        "SLICE": 2,
        "PAD": 2,
        "CONCATENATION": 2,
    }
    codes = written.root.tables(1, "code")
    assert len(codes) == len(model.root.tables(1, "code")) + 3


def test_other_subgraphs_stay_as_they_are() -> None:
    inner = flat.subgraph(
        [flat.tensor("a", (4,)), flat.tensor("b", (4,))], [flat.operator(0, [0], [1])], [0], [1]
    )
    root = signed()
    root[2].append(inner)
    model = parse(flat.write(root))
    written = patched(model, unchanged(model))
    assert written.subgraphs[1:] == model.subgraphs[1:]


def test_a_patch_may_join_what_the_model_had_as_one() -> None:
    net = Network(0, (1, 8, 8, 4))
    y = net.relu(0)
    model = parse(net.file([y]))
    constants = (NewConstant("b", (4,), (0, 3, 0, 0)), NewConstant("s", (4,), (-1, 5, -1, -1)))
    tensors = (*constants, NewTensor("rows", 0, (1, 5, 8, 4), None))
    top = (NewConstant("b0", (4,), (0, 0, 0, 0)), NewConstant("s0", (4,), (-1, 3, -1, -1)))
    tensors += (
        *top,
        NewTensor("top", 0, (1, 3, 8, 4), None),
        NewTensor("x2", 0, (1, 8, 8, 4), None),
    )
    steps = (
        Moved("slice", (0, 2, 3), 4),
        Moved("slice", (0, 5, 6), 7),
        Moved("concat", (7, 4), 8, axis=1),
        Repeated(0, (8,), (1,), unpadded=False),
    )
    written = patched(model, Patch(2, tensors, steps))
    x = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 4), np.int8)
    assert (evaluate(written, [x])[0] == evaluate(model, [x])[0]).all()
    assert isinstance(unchanged(model).steps[0], Kept)
