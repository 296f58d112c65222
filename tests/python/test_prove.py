"""Proofs of rewritten models: strips are accepted, and what is no part of the original is not."""

from __future__ import annotations

import ast
import json
import os
import random
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import arenaplan as ap
import corruptions
import flat
from arenaplan.base.errors import (
    InvalidOption,
    PlanError,
    ProofError,
    UndefinedValue,
    UnsupportedModel,
)
from raising import raises
from sketch_runs import evaluated, inputs_of
from sketches import SAME, VALID, Network, Operator, Sketch, Strips, Tensor, doubled, strips

PROVING = Path(ap.__file__).parent / "tflite" / "proving"
CORRUPTED = int(os.environ.get("ARENAPLAN_CORRUPTIONS", "16"))
"""Rewritten models that are corrupted; each in every way that there is."""


def proof_of(old: Sketch, new: Sketch) -> ap.tflite.Proof:
    return ap.tflite.prove(old.file(), new.file())


def without_plan(sketch: Sketch) -> Sketch:
    found = sketch.copy()
    found.plan = None
    return found


# -- strips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_strips_by_hand_are_proven(seed: int) -> None:
    old, new = strips(seed)
    inputs = inputs_of(old, seed)
    assert evaluated(old, inputs) == evaluated(new, inputs) == evaluated(without_plan(new), inputs)
    proof = proof_of(old, new)
    assert sum(proof.rules.values()) == len(new.operators)
    assert proof.plan is not None
    assert proof.plan.planned == sum(offset >= 0 for offset in new.plan or ())
    jsonschema.validate(json.loads(proof.to_json()), json.loads(ap.tflite.proof_schema()))


@pytest.mark.parametrize("seed", range(40))
def test_strips_of_an_image_that_is_there_twice_are_proven(seed: int) -> None:
    old, new = doubled(seed)
    inputs = inputs_of(old, seed)
    assert evaluated(old, inputs) == evaluated(new, inputs)
    proof_of(old, new)


def test_the_strips_use_every_rule_and_form() -> None:
    rules: Counter[str] = Counter()
    names: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    aliases = 0
    for seed in range(24):
        old, new = strips(seed)
        proof = proof_of(old, new)
        rules.update(proof.rules)
        names.update(operator.name for operator in new.operators)
        assert proof.plan is not None
        aliases += len(proof.plan.aliases)
        for tensor in proof.document["subgraphs"][0]["tensors"]:
            for axis in tensor.get("holds", {"axes": []})["axes"]:
                runs.update(key for run in axis for key in run)
    assert set(rules) == {"elements", "move", "same", "window"}
    kinds = "SLICE STRIDED_SLICE PAD CONCATENATION CONV_2D DEPTHWISE_CONV_2D ADD RELU"
    assert set(kinds.split()) <= set(names)
    assert {"from", "padding", "unproven"} <= set(runs)
    assert aliases > 50


def test_every_model_is_a_proven_rewrite_of_itself() -> None:
    for seed in range(8):
        old, new = strips(seed)
        assert set(proof_of(old, old).rules) == {"same"}
        # A rewrite is an original, too.
        assert set(proof_of(new, new).rules) <= {"same", "move"}


def test_equal_files_give_equal_proofs() -> None:
    old, new = strips(3)
    assert proof_of(old, new).to_json() == proof_of(old, new).to_json()


def test_the_document_names_the_rows_of_every_strip() -> None:
    old, new = two_strips()
    document = proof_of(old, new).document
    (graph,) = document["subgraphs"]
    found = {tensor["name"]: tensor["holds"] for tensor in graph["tensors"]}
    assert found["upper"]["name"] == "x"
    assert found["upper"]["axes"][1] == [{"from": 0, "to": 5}]
    assert found["lower"]["axes"][1] == [{"from": 3, "to": 8}]
    # The strip's own padding is wrong at the row where the image goes on.
    assert found["made upper"]["axes"][1] == [{"from": 0, "to": 4}, {"unproven": 1}]
    assert found["made lower"]["axes"][1] == [{"unproven": 1}, {"from": 4, "to": 8}]
    assert [entry["rule"] for entry in graph["operators"]] == [
        *("move", "window", "move", "move", "window", "move", "move")
    ]
    assert graph["unused"] == []


def two_strips() -> tuple[Sketch, Sketch]:
    """Return a convolution of 8 rows, and the same in two cropped strips."""
    net = Network(random.Random(0), (1, 8, 4, 4))
    x = net.conv(0, 4, 3, 1, SAME)
    old = net.sketch
    old.outputs = [x]
    new = old.copy()
    new.operators = []

    def part(name: str, like: int, rows: int) -> int:
        tensor = old.tensors[like]
        return new.add(
            Tensor(name, (1, rows, *tensor.shape[2:]), scales=tensor.scales, zeros=tensor.zeros)
        )

    def numbers(*values: int) -> int:
        data = np.array(values, np.int32).tobytes()
        return new.add(Tensor(f"{values}", (len(values),), flat.INT32, data=data))

    def cut(tensor: int, first: int, rows: int, name: str, like: int) -> int:
        y = part(name, like, rows)
        operands = [tensor, numbers(0, first, 0, 0), numbers(1, rows, -1, -1)]
        new.operators.append(Operator("SLICE", operands, [y], 48))
        return y

    parts = []
    for name, first, keep in (("upper", 0, 0), ("lower", 3, 1)):
        strip = cut(0, first, 5, name, 0)
        made = part(f"made {name}", x, 5)
        call = old.copy().operators[0]
        call.inputs[0], call.outputs = strip, [made]
        new.operators.append(call)
        parts.append(cut(made, keep, 4, f"kept {name}", x))
    join = {0: ("i", 1), 1: ("b", 0)}
    new.operators.append(Operator("CONCATENATION", parts, [x], 10, join))
    return old, new


def test_columns_of_an_image_are_proven_like_rows() -> None:
    net = Network(random.Random(1), (1, 6, 12, 4))
    x = net.relu(net.conv(0, 4, 3, 2, VALID))
    old = net.sketch
    old.outputs = [x]
    new = old.copy()
    first, second = new.operators
    new.operators = []
    parts = []
    for low, high, made in ((0, 7, 3), (6, 11, 2)):
        image = new.add(_like(old.tensors[0], (1, 6, high - low, 4)))
        new.operators.append(_cut(new, 0, image, low, high - low, axis=2))
        for operator in (first, second):
            y = new.add(_like(old.tensors[operator.outputs[0]], (1, 2, made, 4)))
            inputs = [image, *operator.inputs[1:]]
            call = Operator(operator.name, inputs, [y], operator.kind, operator.options)
            new.operators.append(call)
            image = y
        parts.append(image)
    new.operators.append(Operator("CONCATENATION", parts, [x], 10, {0: ("i", 2), 1: ("b", 0)}))
    inputs = inputs_of(old, 0)
    assert evaluated(old, inputs) == evaluated(new, inputs)
    assert proof_of(old, new).rules == {"elements": 2, "move": 3, "window": 2}
    new.operators[-1].inputs.reverse()
    with raises("NotProven"):
        proof_of(old, new)


def _like(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return Tensor(f"{tensor.name}{shape}", shape, tensor.type, tensor.scales, tensor.zeros)


def _cut(new: Sketch, x: int, y: int, first: int, count: int, axis: int) -> Operator:
    begin, size = [0, 0, 0, 0], [-1, -1, -1, -1]
    begin[axis], size[axis] = first, count
    numbers = [
        new.add(Tensor("n", (4,), flat.INT32, data=np.array(values, np.int32).tobytes()))
        for values in (begin, size)
    ]
    return Operator("SLICE", [x, *numbers], [y], 48)


def channels(*, wrong: bool) -> tuple[Sketch, Sketch]:
    """Return a convolution and a depthwise one, and the same by halves of the channels."""
    net = Network(random.Random(5), (1, 5, 4, 3))
    y = net.conv(0, 8, 1, 1, VALID)
    z = net.conv(y, 8, 3, 1, SAME, is_deep=True)
    old = net.sketch
    old.outputs = [z]
    new = old.copy()
    full, deep = new.operators
    new.operators = []
    parts = []
    for half in (0, 1):
        first = 4 * half
        inputs = [0]
        for operator, axis, result in ((full, 0, y), (deep, 3, z)):
            at = first if not wrong or operator is full or half else 4
            for place in (1, 2):
                tensor = old.tensors[operator.inputs[place]]
                dim = axis if place == 1 else 0
                span = np.arange(at, at + 4)
                array = np.take(tensor.array(), span, dim)
                zeros, scales = tensor.zeros[at : at + 4], tensor.scales[at : at + 4]
                name = f"{tensor.name}.{half}"
                part = Tensor(name, array.shape, tensor.type, scales, zeros, tensor.dimension)
                part.data = array.tobytes()
                inputs.append(new.add(part))
            made = new.add(_like(old.tensors[result], (1, 5, 4, 4)))
            new.operators.append(
                Operator(operator.name, inputs, [made], operator.kind, operator.options)
            )
            inputs = [made]
        parts.append(inputs[0])
    join = {0: ("i", 3), 1: ("b", 0)}
    new.operators.append(Operator("CONCATENATION", parts, [z], 10, join))
    return old, new


def test_halves_of_the_channels_are_proven() -> None:
    old, new = channels(wrong=False)
    inputs = inputs_of(old, 0)
    assert evaluated(old, inputs) == evaluated(new, inputs)
    assert proof_of(old, new).rules == {"move": 1, "window": 4}


def test_weights_of_other_channels_are_refused() -> None:
    old, new = channels(wrong=True)
    inputs = inputs_of(old, 0)
    assert evaluated(old, inputs) != evaluated(new, inputs)
    with raises("NotProven", match="DEPTHWISE_CONV_2D"):
        proof_of(old, new)


# -- refusals ---------------------------------------------------------------------------------


def test_every_corruption_is_refused() -> None:
    """Of those that change an output, or say what is not so."""
    counted: Counter[str] = Counter()
    for seed in range(CORRUPTED):
        old, new = strips(seed // 4) if seed % 4 else doubled(seed // 4)
        original = old.file()
        for change in (*corruptions.BY_VALUE, *corruptions.LIES):
            wrong = corruptions.corrupted(seed, old, new, change)
            if wrong is None:
                continue
            differs = change in corruptions.LIES or not corruptions.computes_the_same(old, wrong)
            try:
                ap.tflite.prove(original, wrong.file())
            except (ProofError, PlanError):
                counted[change.__name__] += differs
            else:
                assert not differs, f"{change.__name__} of seed {seed} is accepted"
    changes = (*corruptions.BY_VALUE, *corruptions.LIES)
    assert set(+counted) == {change.__name__ for change in changes}
    assert sum(counted.values()) > 12 * CORRUPTED


def test_harmless_changes_of_a_plan_are_accepted() -> None:
    accepted = 0
    for seed in range(40):
        old, new = strips(seed // 4)
        moved = corruptions.corrupted(seed, old, new, corruptions.place)
        assert moved is not None
        try:
            proof_of(old, moved)
        except PlanError:
            continue
        accepted += 1
        assert corruptions.computes_the_same(old, moved)
    assert accepted > 5


def test_a_refusal_names_operator_tensor_and_row() -> None:
    old, new = two_strips()
    begin = new.tensors[new.operators[3].inputs[1]]
    begin.data = np.array([0, 2, 0, 0], np.int32).tobytes()
    with raises("NotProven") as error:
        proof_of(old, new)
    text = str(error.value)
    assert "output tensor 3 't3': row 4" in text
    assert "is not row 4" in text
    assert "but row 3" in text


def test_a_halo_that_is_too_small_names_the_row_that_sees_padding() -> None:
    old, new = two_strips()
    # The upper strip loses its last row; the row before now sees padding.
    _, call, cut = new.operators[:3]
    new.operators[0].inputs[2] = new.add(
        Tensor("n", (4,), flat.INT32, data=np.array([1, 4, -1, -1], np.int32).tobytes())
    )
    for number in (call.inputs[0], call.outputs[0]):
        new.tensors[number].shape = (1, 4, *new.tensors[number].shape[2:])
    assert cut.outputs
    with raises("NotProven") as error:
        proof_of(old, new)
    assert "operator 1 ('CONV_2D'), tensor" in str(error.value)
    assert "row 3 of its result sees the constant" in str(error.value)
    assert "sees row 4 (column 0, channel 0) of tensor 'x'" in str(error.value)


def test_padding_of_a_pool_is_refused_though_it_equals_zero() -> None:
    net = Network(random.Random(2), (1, 8, 4, 2))
    x = net.pool(0, "AVERAGE_POOL_2D", 3, 1, SAME)
    old = net.sketch
    old.outputs = [x]
    new = old.copy()
    amounts = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
    padded = new.add(_like(old.tensors[0], (1, 10, 6, 2)))
    numbers = new.add(Tensor("n", (4, 2), flat.INT32, data=amounts.tobytes()))
    new.operators[0].inputs, new.operators[0].options[0] = [padded], ("b", VALID)
    new.operators.insert(0, Operator("PAD", [0, numbers], [padded], 22))
    with raises("NotProven", match="AVERAGE_POOL_2D"):
        proof_of(old, new)


def test_an_unknown_operator_is_the_same_or_refused() -> None:
    net = Network(random.Random(2), (1, 8, 4, 2))
    y = net.like(0, (1, 8, 4, 2))
    net.sketch.operators.append(Operator("SOFTMAX", [0], [y], 9, {0: ("f", 1)}))
    old = net.sketch
    old.outputs = [y]
    assert proof_of(old, old).rules == {"same": 1}
    new = Strips(old, random.Random(0), [4]).new
    with raises("NotProven", match="SOFTMAX"):
        proof_of(old, new)


def test_a_tensor_is_written_once_and_before_it_is_read() -> None:
    old, new = two_strips()
    new.operators.append(new.operators[-1])
    with raises("NotProven", match="written already"):
        proof_of(old, new)
    new.operators = new.operators[1:-1]
    with raises("NotProven", match="before it is written"):
        proof_of(old, new)
    with pytest.raises(UndefinedValue):
        proof_of(new, old)


def test_states_keep_their_order_and_their_operators() -> None:
    names = ["VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "READ_VARIABLE"]
    resource = Tensor("handle", (1,), flat.RESOURCE)
    value = Tensor("x", (1, 2, 2, 1), scales=(1,), zeros=(0,))
    copies = [Tensor(name, value.shape, scales=(1,), zeros=(0,)) for name in "ab"]
    old = Sketch([value, resource, *copies], inputs=[0], outputs=[2, 3])
    old.operators = [
        Operator(names[0], [], [1], 111),
        Operator(names[1], [1], [2], 112),
        Operator(names[2], [1, 0], [], 113),
        Operator(names[3], [1], [3], 112),
    ]
    assert proof_of(old, old).rules == {"same": 4}
    late = old.copy()
    late.operators[1:3] = [late.operators[2], late.operators[1]]
    with raises("NotProven", match="has a state and comes where"):
        proof_of(old, late)
    without = old.copy()
    del without.operators[2]
    with raises("NotProven"):
        proof_of(old, without)


# -- moves ------------------------------------------------------------------------------------


def moved(*operators: Operator, extra: list[Tensor], outputs: list[int]) -> tuple[Sketch, Sketch]:
    """Return a sum of an image with itself, and the same of what operators make of it."""
    net = Network(random.Random(0), (1, 4, 6, 2))
    x = net.add(0, 0)
    old = net.sketch
    old.outputs = [x]
    new = old.copy()
    for tensor in extra:
        new.add(tensor)
    new.operators = [*operators, Operator("ADD", outputs, [x], 11, {0: ("b", 0)})]
    return old, new


def numbers(*values: int) -> Tensor:
    data = np.array(values, np.int32).tobytes()
    return Tensor(f"{values}", (len(values),), flat.INT32, data=data)


def image(net: Sketch, *shape: int) -> Tensor:
    return _like(net.tensors[0], shape)


def test_moves_there_and_back_are_proven_and_others_are_not() -> None:
    net, _ = moved(extra=[], outputs=[0, 0])
    join = {1: ("b", 0)}
    flat_, whole = image(net, 48), image(net, 1, 4, 6, 2)
    half, third = image(net, 1, 2, 6, 2), image(net, 1, 4, 3, 2)
    line, turned = image(net, 4, 6, 2), image(net, 1, 6, 4, 2)
    first_rows, later_rows = image(net, 1, 1, 6, 2), image(net, 1, 3, 6, 2)
    scalar = Tensor("one", (), flat.INT32, data=np.array(1, np.int32).tobytes())
    cases = [
        # (operators, new tensors from number 2, what to swap to make it wrong)
        (
            [Operator("RESHAPE", [0, 4], [2], 17), Operator("RESHAPE", [2, 5], [3], 17)],
            [flat_, whole, numbers(-1), numbers(1, 4, 6, 2)],
        ),
        (
            [
                Operator("SPLIT", [5, 0], [2, 3], 35, {0: ("i", 2)}),
                Operator("CONCATENATION", [2, 3], [4], 10, {0: ("i", 1), **join}),
            ],
            [half, half, whole, scalar],
        ),
        (
            [
                Operator("SPLIT_V", [0, 5, 6], [2, 3], 79, {0: ("i", 2)}),
                Operator("CONCATENATION", [2, 3], [4], 10, {0: ("i", -3), **join}),
            ],
            [first_rows, later_rows, whole, numbers(1, -1), scalar],
        ),
        (
            [
                Operator("SPLIT", [5, 0], [2, 3], 35, {0: ("i", 2)}),
                Operator("CONCATENATION", [2, 3], [4], 10, {0: ("i", 2), **join}),
            ],
            [third, third, whole, numbers(2)],
        ),
        (
            [
                Operator("UNPACK", [0], [2], 64, {0: ("i", 1), 1: ("i", 0)}),
                Operator("PACK", [2], [3], 59, {0: ("i", 1), 1: ("i", 0)}),
            ],
            [line, whole],
        ),
        (
            [Operator("SQUEEZE", [0], [2], 30), Operator("EXPAND_DIMS", [2, 4], [3], 52)],
            [line, whole, numbers(0)],
        ),
        (
            [Operator("TRANSPOSE", [0, 4], [2], 26), Operator("TRANSPOSE", [2, 4], [3], 26)],
            [turned, whole, numbers(0, 2, 1, 3)],
        ),
    ]
    for operators, extra in cases:
        last = operators[-1].outputs[0]
        old, new = moved(*operators, extra=extra, outputs=[last, 0])
        assert proof_of(old, new).rules == {"move": 2, "same": 1}
        if len(operators[1].inputs) > 1 and operators[1].name == "CONCATENATION":
            operators[1].inputs = [operators[1].inputs[1]] * 2
            operators[1].inputs.reverse()
            old, new = moved(*operators, extra=extra, outputs=[last, 0])
            with raises("NotProven"):
                proof_of(old, new)
    reversed_ = Operator("STRIDED_SLICE", [0, 3, 4, 5], [2], 32)
    extra = [whole, numbers(0, 3, 0, 0), numbers(1, -5, 6, 2), numbers(1, -1, 1, 1)]
    old, new = moved(reversed_, extra=extra, outputs=[2, 0])
    with raises("NotProven", match="ADD"):
        proof_of(old, new)
    again = Operator("STRIDED_SLICE", [2, 3, 4, 5], [6], 32)
    old, new = moved(reversed_, again, extra=[*extra, whole], outputs=[6, 0])
    assert proof_of(old, new).rules == {"move": 2, "same": 1}


def test_a_move_between_encodings_is_refused() -> None:
    old, new = two_strips()
    strip = new.tensors[new.operators[0].outputs[0]]
    strip.zeros = (strip.zeros[0] + 1,)
    with raises("NotProven", match="differ in type, scale or zero point"):
        proof_of(old, new)


# -- files ------------------------------------------------------------------------------------


def test_a_proof_is_checked_against_both_files() -> None:
    old, new = strips(1)
    text = proof_of(old, new).to_json()
    ap.tflite.check_proof(text, old.file(), new.file())
    other = new.copy()
    other.plan = None
    with raises("ProofStale", match="the rewritten has SHA-256"):
        ap.tflite.check_proof(text, old.file(), other.file())
    with raises("ProofStale", match="the original has SHA-256"):
        ap.tflite.check_proof(text, new.file(), new.file())


def test_metadata_may_differ_if_it_is_named() -> None:
    old, new = strips(1)
    new.metadata = {**new.metadata, "min_runtime_version": b"1.5.0", "built": b"today"}
    files = old.file(), new.file()
    names = ["min_runtime_version", "built"]
    for some in ((), names[:1]):
        with pytest.raises(ProofError, match="metadata"):
            ap.tflite.prove(*files, ignored_metadata=some)
    proof = ap.tflite.prove(*files, ignored_metadata=names)
    assert proof.document["ignored_metadata"] == sorted(names)
    jsonschema.validate(json.loads(proof.to_json()), json.loads(ap.tflite.proof_schema()))
    assert ap.tflite.check_proof(proof.to_json(), *files).plan == proof.plan
    with pytest.raises(ProofError, match="metadata"):
        ap.tflite.check_proof(proof.to_json().replace('"built"', '"other"'), *files)
    for obeyed in ("OfflineMemoryAllocation", "COMPRESSION_METADATA"):
        with pytest.raises(InvalidOption, match=obeyed):
            ap.tflite.prove(*files, ignored_metadata=[obeyed])


def test_a_proof_that_says_other_things_is_stale() -> None:
    old, new = strips(1)
    draw = random.Random(0)
    text = proof_of(old, new).to_json()
    for _ in range(25):
        document = json.loads(text)
        at: object = document["subgraphs"] if draw.random() < 0.7 else document["plan"]
        while True:
            assert isinstance(at, (dict, list))
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                at.append(1) if isinstance(at, list) else at.update(x=1)
                break
            key = draw.choice(keys)
            if isinstance(at[key], (dict, list)):
                at = at[key]
                continue
            at[key] = at[key] + 1 if isinstance(at[key], int) else f"{at[key]}'"
            break
        with raises("ProofStale", match="does not fit"):
            ap.tflite.check_proof(json.dumps(document), old.file(), new.file())


def test_a_file_that_is_no_proof_is_refused() -> None:
    old, new = strips(1)
    files = old.file(), new.file()
    for text in ("", "{", "[]", '{"format": "arenaplan"}', "[" * 100_000):
        with raises("ProofCorrupt"):
            ap.tflite.check_proof(text, *files)
    with raises("ProofVersion"):
        ap.tflite.check_proof('{"format": "arenaplan-proof", "version": 2}', *files)
    with raises("ProofStale"):
        ap.tflite.check_proof('{"format": "arenaplan-proof", "version": 1}', *files)


def test_the_published_schema_is_the_one_in_the_repository() -> None:
    path = Path(__file__).parents[2] / "schema" / "proof.schema.json"
    assert path.read_text() == ap.tflite.proof_schema()
    jsonschema.Draft202012Validator.check_schema(json.loads(ap.tflite.proof_schema()))


def test_options_of_an_unknown_form_need_the_bytes_of_the_original() -> None:
    net = Network(random.Random(0), (1, 4, 4, 4))
    x = net.relu(0)
    old = net.sketch
    old.outputs = [x]
    old.operators[0].kind, old.operators[0].options = 127, {0: ("i", 3)}
    file = old.file()
    assert ap.tflite.prove(file, file).rules == {"same": 1}
    other = old.copy()
    other.metadata = dict(old.metadata)
    other.tensors[x].name = "y"
    with pytest.raises(UnsupportedModel, match="RELU"):
        ap.tflite.prove(file, other.file())


def test_sizes_that_no_file_justifies_are_refused_at_once() -> None:
    net = Network(random.Random(0), (1, 8, 8, 2))
    x = net.pool(0, "MAX_POOL_2D", 3, 1, SAME)
    old = net.sketch
    old.outputs = [x]
    wide = old.copy()
    for slot in (3, 4):
        wide.operators[0].set(slot, 2**31 - 1)
    assert proof_of(wide, wide).rules == {"same": 1}
    with raises("NotProven"):
        proof_of(old, wide)
    large = old.copy()
    large.tensors[x].shape = (1, 2**20, 2**10, 2)
    with pytest.raises(UnsupportedModel, match="elements"):
        proof_of(old, large)


def test_damaged_files_give_errors_of_their_own() -> None:
    old, new = strips(2)
    good, draw = new.file(), random.Random(0)
    original = old.file()
    for _ in range(150):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(8, len(data))] = draw.randrange(256)
        try:
            ap.tflite.prove(original, bytes(data))
        except ap.PlannerError:
            continue


def test_the_checker_imports_nothing_of_a_writer() -> None:
    allowed = {
        "arenaplan.base.arguments",  # Types of arguments alone.
        "arenaplan.base.errors",
        "arenaplan.base.quoting",
        "arenaplan.tflite.reader.flatbuffer",
        "arenaplan.tflite.reader.tflite_model",
        "arenaplan.tflite.reader.schema",
        "arenaplan.tflite.reader.operator_options",
        "arenaplan.base.limits",  # Bytes of a file that may be read.
    }
    found = set()
    for path in PROVING.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
    ours = {name for name in found if name.split(".")[0] == "arenaplan"}
    assert {name for name in ours if not name.startswith("arenaplan.tflite.proving")} == allowed


def test_the_form_of_options_is_that_of_the_schema() -> None:
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    import re

    from arenaplan.tflite.reader.operator_options import _TABLES

    text = Path(schema.__file__).read_text()
    kinds = {v: k for k, v in vars(schema.BuiltinOptions).items() if isinstance(v, int) and v}
    codes = {"Int8": "b", "Int32": "i", "Uint32": "I", "Int64": "q", "Float32": "f", "Bool": "?"}
    assert set(_TABLES) <= set(kinds)
    for number, fields in _TABLES.items():
        pattern = (
            rf"def {kinds[number]}Add\w+\(builder, \w+\):\s+"
            r"builder\.Prepend(\w+?)(?:RelativeSlot|Slot)\((\d+), .*?, ([^\n,]+)\)\n"
        )
        known = {int(s): (c, d) for c, s, d in re.findall(pattern, text)}
        for slot, field in enumerate(fields):
            if slot not in known:
                assert number == 15  # Two fields that were dropped.
                continue
            code, default = known[slot]
            is_vector = code == "UOffsetT"
            assert is_vector == (field.is_vector or field.code == "s"), (number, slot)
            if not is_vector:
                assert (codes[code], float(default)) == (field.code, float(field.default))
        assert max(known, default=-1) < len(fields)
