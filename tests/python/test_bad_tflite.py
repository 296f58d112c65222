"""
Hostile TFLite files: typed errors, bounded work, and no wrong plan accepted.

Tests carry the row numbers of a list of bad inputs: D19 to D21 damage to the format.
"""

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.deploy.export.tflm import check_offsets, embed, plan_tflm, read_offsets
from arenaplan.tflite.files import load_tflite
from arenaplan.tflite.reader.flatbuffer import WORK_PER_BYTE
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.reader.timeline import Timeline, timeline_of
from raising import raises

SMALL = flat.write(flat.fragmented(reshape=True))


def vtable_of_root(data: bytes) -> tuple[int, int]:
    (root,) = struct.unpack_from("<I", data)
    return root, root - struct.unpack_from("<i", data, root)[0]


def field_of_root(data: bytes, slot: int) -> int:
    """Return where a field of the root table is."""
    root, vtable = vtable_of_root(data)
    return root + struct.unpack_from("<H", data, vtable + 4 + 2 * slot)[0]


def patched(data: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(f"<{layout}", changed, at, value)
    return bytes(changed)


def target(data: bytes, at: int) -> int:
    return at + struct.unpack_from("<I", data, at)[0]


@pytest.mark.parametrize("content", [b"", b"T", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(64)])
def test_what_is_no_tflite_file_is_no_model(content: bytes) -> None:
    with pytest.raises(errors.NotAModel):
        load_tflite(content)


def test_another_version_of_the_format_is_no_model() -> None:
    root = flat.chain("NEG")
    root[0] = flat.Number("I", 2)
    with pytest.raises(errors.NotAModel, match="version 2"):
        load_tflite(flat.write(root))


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").mkdir()
    with pytest.raises(IsADirectoryError):
        ap.load(tmp_path / "m.tflite")


@pytest.mark.parametrize("offset", [0, 3, len(SMALL), 2**31, 2**32 - 1])
def test_d19_a_root_offset_past_the_end_is_corrupt(offset: int) -> None:
    with raises("FlatbufferCorrupt", match="the model"):
        parse(patched(SMALL, 0, "I", offset))


@pytest.mark.parametrize("distance", [2**31 - 1, -(2**31), -len(SMALL)])
def test_d19_a_vtable_past_the_end_is_corrupt(distance: int) -> None:
    root, _ = vtable_of_root(SMALL)
    with raises("FlatbufferCorrupt", match="vtable"):
        parse(patched(SMALL, root, "i", distance))


@pytest.mark.parametrize("length", [0, 2, 5, 65534])
def test_d19_a_vtable_of_impossible_length_is_corrupt(length: int) -> None:
    _, vtable = vtable_of_root(SMALL)
    with raises("FlatbufferCorrupt", match="vtable"):
        parse(patched(SMALL, vtable, "H", length))


@pytest.mark.parametrize("offset", [1, 3, 60000])
def test_d19_a_field_outside_its_table_is_corrupt(offset: int) -> None:
    _, vtable = vtable_of_root(SMALL)
    with raises("FlatbufferCorrupt", match="field 0"):
        parse(patched(SMALL, vtable + 4, "H", offset))


@pytest.mark.parametrize("slot", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [2**31, 2**32 - 1, 2**29])
def test_d19_a_vector_longer_than_the_file_is_corrupt(slot: int, length: int) -> None:
    vector = target(SMALL, field_of_root(SMALL, slot))
    with raises("FlatbufferCorrupt"):
        parse(patched(SMALL, vector, "I", length))


def test_d19_text_without_an_end_is_corrupt() -> None:
    text = target(SMALL, field_of_root(SMALL, 3))
    (length,) = struct.unpack_from("<I", SMALL, text)
    with raises("FlatbufferCorrupt", match="no end"):
        parse(patched(SMALL, text + 4 + length, "B", 65))
    at_the_end = SMALL[: text + 4 + length]
    with raises("FlatbufferCorrupt"):
        parse(at_the_end)


def test_text_that_is_not_utf8_is_escaped() -> None:
    data = SMALL.replace(b"t3\0", b"\xff3\0")
    assert load_tflite(data).find("\\xff3").shape == (144,)


def test_d19_options_of_the_wrong_type_are_corrupt() -> None:
    root = flat.fragmented()
    root[2][0][3][2][3] = flat.Number("B", 11)
    with raises("FlatbufferCorrupt", match=r"CONCATENATION.*type 11, not 10"):
        parse(flat.write(root))


def test_d20_a_table_used_a_million_times_exceeds_the_budget() -> None:
    count = 10**6
    data = bytearray(SMALL + bytes(-len(SMALL) % 4))
    subgraphs = target(data, field_of_root(data, 2))
    main_graph = target(data, subgraphs + 4)
    vtable = main_graph - struct.unpack_from("<i", data, main_graph)[0]
    tensors = main_graph + struct.unpack_from("<H", data, vtable + 4)[0]
    struct.pack_into("<I", data, tensors, len(data) - tensors)
    first, table = len(data) + 4, len(data) + 4 + 4 * count + 4
    offsets = table - (first + 4 * np.arange(count))
    data += struct.pack("<I", count) + offsets.astype("<u4").tobytes()
    data += struct.pack("<HHi", 4, 4, 4)
    with raises("BudgetExceeded"):
        parse(bytes(data))


def test_d20_metadata_used_a_thousand_times_exceeds_the_budget() -> None:
    root = flat.chain("NEG")
    root[6] = [{0: "m" * 100, 1: flat.Number("I", 0)}] * 1000
    with raises("BudgetExceeded"):
        parse(flat.write(root))


def test_d19_reading_costs_little_work(shared: Path) -> None:
    for path in sorted((shared / "models" / "tflite").glob("*.tflite")):
        model = parse(path.read_bytes())
        assert model.root.buffer.work <= WORK_PER_BYTE / 8 * len(model.data)


def test_d20_subgraphs_that_call_each_other_too_often_exceed_the_budget() -> None:
    """Forty subgraphs that each call the next twice would run for 2^40 steps."""
    graphs = []
    for index in range(40):
        tensors = [flat.tensor(f"s{index}", (1,)), flat.tensor("y", (1,))]
        callee = flat.Number("i", index + 1)
        call = flat.operator(0, [0], [1], (92, {0: callee, 1: callee}))
        graphs.append(flat.subgraph(tensors, [call] if index < 39 else [], [0], [1]))
    model = parse(flat.write(flat.model([flat.code("IF")], graphs)))
    with raises("BudgetExceeded"):
        timeline_of(model)


@pytest.mark.parametrize("callee", [0, 1])
def test_a_subgraph_that_calls_itself_is_refused(callee: int) -> None:
    call = flat.operator(0, [0], [1], (103, {0: flat.Number("i", 1)}))
    again = flat.operator(0, [0], [1], (103, {0: flat.Number("i", callee)}))
    tensors = [flat.tensor("x", (1,)), flat.tensor("y", (1,))]
    graphs = [flat.subgraph(tensors, [op], [0], [1]) for op in (call, again)]
    model = parse(flat.write(flat.model([flat.code("CALL_ONCE")], graphs)))
    with pytest.raises(errors.UnsupportedSubgraph, match="calls itself"):
        timeline_of(model)


@pytest.mark.parametrize("index", [-2, 2, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("slot", [1, 2])
def test_d21_a_tensor_that_does_not_exist_is_out_of_range(slot: int, index: int) -> None:
    root = flat.chain("NEG")
    root[2][0][3][0][slot] = flat.Vector("i", [index])
    with raises("IndexOutOfRange", match=r"'NEG'.*of 2"):
        parse(flat.write(root))
    root = flat.chain("NEG")
    root[2][0][slot] = flat.Vector("i", [index])
    with raises("IndexOutOfRange", match=r"subgraph 0.*of 2"):
        parse(flat.write(root))


def test_d21_minus_one_leaves_an_operand_out_but_no_input_of_a_graph() -> None:
    root = flat.chain("NEG")
    root[2][0][3][0][1] = flat.Vector("i", [0, -1])
    assert load_tflite(flat.write(root)).nodes[0].inputs == (0, None)
    root[2][0][1] = flat.Vector("i", [-1])
    with raises("IndexOutOfRange"):
        parse(flat.write(root))


@pytest.mark.parametrize("number", [1, 2**32 - 1])
def test_d21_buffers_codes_and_subgraphs_that_do_not_exist_are_out_of_range(number: int) -> None:
    index = flat.Number("I", number)
    root = flat.chain("NEG")
    root[2][0][0][0][2] = index
    with raises("IndexOutOfRange", match="tensor 0: its buffer"):
        parse(flat.write(root))
    root = flat.chain("NEG")
    root[2][0][3][0][0] = index
    with raises("IndexOutOfRange", match="operator code"):
        parse(flat.write(root))
    root = flat.chain("NEG")
    root[7] = [{2: "serve", 4: index}]
    with raises("IndexOutOfRange", match="signature 0: its subgraph"):
        parse(flat.write(root))
    root = flat.chain("NEG")
    root[7] = [{0: [{0: "x", 1: flat.Number("I", 2 + number // 2)}], 2: "serve"}]
    with raises("IndexOutOfRange", match="its tensor"):
        parse(flat.write(root))
    root = flat.chain("NEG")
    root[6] = [{0: "m", 1: index}]
    with raises("IndexOutOfRange", match="metadata 0: its buffer"):
        parse(flat.write(root))


@pytest.mark.parametrize("called", [-1, 1, 2**31 - 1])
def test_d21_a_called_subgraph_that_does_not_exist_is_out_of_range(called: int) -> None:
    root = flat.chain("IF")
    root[2][0][3][0] |= {3: flat.Number("B", 92), 4: {0: flat.Number("i", called)}}
    with raises("IndexOutOfRange", match="called subgraph"):
        timeline_of(parse(flat.write(root)))


def test_what_a_later_operator_writes_cannot_be_read() -> None:
    root = flat.chain("NEG", "ABS")
    root[2][0][3].reverse()
    data = flat.write(root)
    with pytest.raises(errors.UndefinedValue, match="'t1'"):
        timeline_of(parse(data))
    # The planner's own graph is sorted instead: its order is not the file's.
    assert load_tflite(data).core.was_sorted


def wrong(timeline: Timeline, offsets: tuple[int, ...]) -> bool:
    """Decide by brute force whether tensors that are needed together share bytes."""
    alike = {frozenset((pair.source, pair.result)) for pair in timeline.same}
    boxes = [(i, b) for i, b in enumerate(timeline.boxes) if offsets[b.tensor] != -1]
    for (i, a), (j, b) in itertools.combinations(boxes, 2):
        steps = set(range(a.start, a.end)) & set(range(b.start, b.end))
        first, second = offsets[a.tensor], offsets[b.tensor]
        if steps and first < second + b.size and second < first + a.size:
            if frozenset((i, j)) in alike and first == second:
                continue
            return True
    return any(offsets[b.tensor] % 16 or offsets[b.tensor] < 0 for _, b in boxes)


def survives(data: bytes) -> str:
    """Read, plan and check a damaged file; anything but a typed error is a failure."""
    try:
        graph = load_tflite(data)
        ap.plan(graph, alignment=16, target="ideal").check(graph)
    except errors.InternalError:
        raise
    except errors.PlannerError:
        pass
    try:
        model = parse(data)
        timeline = timeline_of(model)
        offsets = read_offsets(model)
        if offsets is not None:
            check_offsets(timeline, offsets)
            assert not wrong(timeline, offsets)
        planned = plan_tflm(model, always=True)
        assert not wrong(timeline, planned.offsets)
        assert planned.lower_bound <= planned.head_after <= planned.head_before
        written = parse(embed(model, planned.offsets))
        assert read_offsets(written) == planned.offsets
    except errors.InternalError:
        raise
    except errors.PlannerError as error:
        return ap.errors.kind_of(error)
    return "fine"


def exported() -> bytes:
    model = parse(SMALL)
    return embed(model, plan_tflm(model).offsets)


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_no_changed_byte_crashes_or_passes_a_wrong_plan(bits: int) -> None:
    data = exported()
    outcomes: dict[str, int] = {}
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= bits
        outcome = survives(bytes(damaged))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    # The test is only worth something if files reach every stage.
    assert {"fine", "FlatbufferCorrupt", "IndexOutOfRange", "PlanOverlap"} <= set(outcomes)


def test_no_truncated_file_crashes() -> None:
    data = exported()
    outcomes = {survives(data[:length]) for length in range(len(data))}
    assert {"NotAModel", "FlatbufferCorrupt"} <= outcomes
    assert survives(data) == "fine"


def test_a_real_file_survives_damage(shared: Path) -> None:
    data = (shared / "models" / "tflite" / "micro_speech_quantized.tflite").read_bytes()
    for at in range(0, len(data), 61):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        survives(bytes(damaged))
        survives(data[:at])


@pytest.mark.parametrize("damage", ["truncated", "noise", "offset"])
def test_a_failed_export_leaves_the_old_file(damage: str, tmp_path: Path) -> None:
    content = {
        "truncated": SMALL[:-200],
        "noise": b"\x10\0\0\0TFL3" + bytes(range(256)),
        "offset": patched(SMALL, 0, "I", 2**31),
    }[damage]
    source, out = tmp_path / "bad.tflite", tmp_path / "out.tflite"
    source.write_bytes(content)
    out.write_bytes(b"the old file")
    assert main(["export", str(source), "--to", "tflm", "-o", str(out)]) == 2
    assert out.read_bytes() == b"the old file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tflite", "out.tflite"]
