"""Buffers in several memories with capacities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.deploy.adapters.banks import Bank, BankedValue, assign
from arenaplan.deploy.adapters.executorch import objects_of

FAST, SLOW = Bank("sram", 256, 1), Bank("psram", 1 << 20, 2)


def buffers() -> st.SearchStrategy[list[BankedValue]]:
    one = st.builds(
        lambda size, start, length, uses, pinned: BankedValue(
            size, (start, start + length), uses, pinned
        ),
        st.integers(0, 200),
        st.integers(0, 8),
        st.integers(1, 5),
        st.integers(1, 4),
        st.sampled_from([None, None, None, 2, 3]),
    )
    return st.lists(one, max_size=12)


@given(buffers(), st.sampled_from([1, 16]), st.integers(0, 100), st.sampled_from([0, 64]))
def test_every_assignment_is_valid_and_inside_its_banks(
    found: list[BankedValue], alignment: int, taken: int, padding: int
) -> None:
    result = assign(found, [FAST, SLOW], alignment=alignment, starts={1: taken}, padding=padding)
    assert result.sizes[1] <= FAST.capacity
    for i, (a, (arena, offset)) in enumerate(zip(found, result.places, strict=True)):
        assert a.pinned in (None, arena)
        assert offset % alignment == 0
        assert offset + a.size + padding <= result.sizes[arena]
        assert arena != 1 or offset >= taken
        for b, (other, start) in zip(found[:i], result.places, strict=False):
            if other == arena and a.live[0] < b.live[1] and b.live[0] < a.live[1]:
                assert offset + a.size <= start or start + b.size <= offset


def test_what_fits_the_first_bank_needs_no_other() -> None:
    found = [BankedValue(128, (step, step + 2)) for step in range(20)]
    result = assign(found, [FAST, SLOW])
    assert {arena for arena, _ in result.places} == {1}
    assert result.sizes == [0, 256, 0]


def test_what_is_used_most_for_its_time_stays_in_the_first_bank() -> None:
    residual = BankedValue(200, (0, 10), 2)
    chain = [BankedValue(200, (step, step + 1), 2) for step in range(1, 9)]
    places = assign([residual, *chain], [FAST, SLOW]).places
    assert [arena for arena, _ in places] == [2, *[1] * 8]


def test_a_bank_may_be_stricter_about_alignment() -> None:
    found = [BankedValue(10, (0, 1)), BankedValue(10, (0, 1))]
    result = assign(found, [FAST._replace(alignment=64)], alignment=16)
    assert sorted(offset for _, offset in result.places) == [0, 64]
    assert result.alignments == {1: 64}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([BankedValue(300, (0, 1))], r"'buffer 0' \(300 bytes\) fits none"),
        (
            [BankedValue(200, (0, 2)), BankedValue(200, (1, 3))],
            "400 bytes are needed at once at step 1",
        ),
        (
            [BankedValue(200, (0, 2), 1, 1), BankedValue(200, (1, 3), 1, 1)],
            "400 bytes are needed at once at step 1",
        ),
        (
            [BankedValue(300, (0, 1), 1, 1)],
            r"'buffer 0' \(300 bytes\) is pinned to .* 'sram' holds 256 bytes",
        ),
    ],
)
def test_too_small_banks_say_what_does_not_fit(found: list[BankedValue], message: str) -> None:
    with pytest.raises(errors.CapacityExceeded, match=message):
        assign(found, [FAST])


def test_an_overflow_by_pins_names_the_bank_the_buffers_and_the_step() -> None:
    found = [BankedValue(1024, (0, 11), 2, 1, f"conv {i} f32[16, 16]") for i in range(3)]
    banks = [Bank("fast", 2048, 1), Bank("slow", 65536, 2)]
    with pytest.raises(errors.SpacesExceeded) as caught:
        assign(found, banks, alignment=16, steps=["add", "mul"])
    message = str(caught.value)
    assert message.startswith(
        "space 'fast' holds 2,048 bytes, and 3,072 bytes that may be in no other space are needed "
        "at once at step 0, node 'add': pinned to it are 'conv 0 f32[16, 16]' (1,024 bytes), "
    )
    assert "slow" not in message
    assert caught.value.proven


def test_buffers_of_one_name_are_told_apart() -> None:
    found = [BankedValue(8, (0, 1), 1, pinned, "x") for pinned in (1, 2)]
    assert assign(found, [FAST, SLOW]).places == [(1, 0), (2, 0)]


def test_what_is_taken_already_may_be_too_much() -> None:
    with pytest.raises(errors.CapacityExceeded, match="300 bytes of bank 'sram'"):
        assign([], [FAST], starts={1: 300})


@pytest.mark.parametrize(
    ("banks", "message"),
    [
        ([], "no banks"),
        ([FAST, FAST._replace(mem_id=2)], "name sram"),
        ([FAST, FAST._replace(name="b")], "mem_id 1"),
        ([FAST._replace(capacity=0)], "0 bytes"),
        ([FAST._replace(mem_id=0)], "mem_id 0"),
        ([FAST._replace(alignment=12)], "alignment 12"),
    ],
)
def test_banks_that_make_no_sense_are_refused(banks: list[Bank], message: str) -> None:
    with pytest.raises(errors.InvalidOption, match=message):
        Bank.check(banks)


def test_specs_that_share_bytes_by_others_are_of_one_object() -> None:
    # 0..64 and 96..128 share nothing, but for the one between them; 128 is a new start.
    places = [(1, 96, 32), (1, 0, 64), (1, 32, 80), (1, 128, 8), (3, 0, 8), (1, 136, 0)]
    assert objects_of(places) == [0, 0, 0, 1, 0, 2]
    assert objects_of([]) == []


def test_options_that_contradict_each_other_are_named_and_are_values() -> None:
    with pytest.raises(errors.InvalidOption, match="option seed: -1 is negative"):
        ap.pack([1], [(0, 1)], seed=-1)
