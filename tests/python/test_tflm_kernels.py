"""
Memory of single operators, as formulas say, as measured, and as the interpreter says.

``tflm_operators.json`` has four measurements per case of ``tflm_operators.py``: head, tail and
smallest arena in the interpreter of tflite-micro 0.dev20261023; and head and tail in builds of
TensorFlow Lite Micro of August 2026 for 32 bits, with reference kernels and with those of
CMSIS-NN for DSP and for MVE.
"""

import json
from pathlib import Path

import pytest

import flat
from arenaplan.tflite.reader.schema import OPERATORS
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.runtime import Build, total
from arenaplan.tflite.runtime.build import KERNEL_SETS
from arenaplan.tflite.runtime.custom import CUSTOM
from arenaplan.tflite.runtime.flex import numbers
from arenaplan.tflite.runtime.kernels import KERNELS
from arenaplan.tflite.runtime.struct_layout import struct
from tflm_operators import Case, Operand, cases, flex_map, model_of

CASES = {case.title: case for case in cases()}
MEASURED = json.loads(Path(__file__).with_name("tflm_operators.json").read_text())
NARROW = tuple(Build(kernels, 32) for kernels in KERNEL_SETS if kernels != "esp-nn")
"""Builds that were measured."""
SURVIVED = 32
"""Bytes by which descriptions can be overwritten in the interpreter without harm."""
OPTIONS = 8
"""Bytes by which the options of FULLY_CONNECTED grew between August and October 2026."""


def test_every_kernel_is_measured() -> None:
    assert MEASURED.keys() == CASES.keys()
    alone = {case.name for case in CASES.values() if case.custom is None}
    # These need subgraphs or variables.
    others = {"ASSIGN_VARIABLE", "CALL_ONCE", "IF", "READ_VARIABLE", "VAR_HANDLE", "WHILE"}
    assert alone | others == set(KERNELS)
    assert alone | others <= set(OPERATORS)
    custom = {case.name for case in CASES.values() if case.custom is not None}
    assert custom == {name for name, kernel in CUSTOM.items() if kernel.is_compared}


@pytest.mark.parametrize("title", CASES)
def test_formulas_are_what_was_measured(title: str) -> None:
    model = parse(model_of(CASES[title]))
    wide, *narrow = MEASURED[title]
    found = total(model)
    head, tail, smallest = wide
    assert (found.head, found.tail, found.unknown) == (head, tail, ())
    assert smallest <= found.total <= smallest + SURVIVED
    grown = OPTIONS if CASES[title].name == "FULLY_CONNECTED" else 0
    compared = 0
    for build, measured in zip(NARROW, narrow, strict=True):
        if measured is not None:
            part = total(model, build=build)
            assert part.head == measured[0], build.kernels
            # Padding may absorb the growth.
            assert 0 <= part.tail - measured[1] <= 2 * grown, build.kernels
            compared += 1
    # Kernels of CMSIS-NN refuse some models of 16 bits.
    assert compared == 3 or "int16" in title


def test_the_interpreter_says_the_same() -> None:
    pytest.importorskip("tflite_micro")
    from arenaplan.deploy.adapters.tflite_micro import _allocations

    for title, case in CASES.items():
        head, tail, smallest = MEASURED[title][0]
        assert tuple(_allocations(model_of(case), smallest)) == (head, tail), title


def test_structures_have_the_sizes_of_c() -> None:
    assert struct("") == (0, 1)
    assert struct("b i b") == (12, 4)
    assert struct("b p") == (16, 8)
    assert struct("b p", 32) == (8, 4)
    assert struct("i d b") == (24, 8)
    assert struct("b [b d] h") == (32, 8)
    assert struct("3h [2i] b") == (20, 4)
    assert struct("i ?2i b") == (8, 4)
    assert struct("i ?2i b", compression=True) == (16, 4)


@pytest.mark.parametrize("kernels", ["cmsis-nn", "cmsis-nn-mve"])
def test_convolutions_of_cmsis_nn_ask_for_columns(kernels: str) -> None:
    """Two columns of 16-bit numbers, or four of bytes in units of 16."""

    def scratch(title: str) -> tuple[int, ...]:
        (cost,) = total(parse(model_of(CASES[title])), build=Build(kernels, 32)).operators
        return cost.scratch

    is_vector = kernels == "cmsis-nn-mve"
    assert scratch("CONV_2D-int8") == ((4 * 48,) if is_vector else (2 * 36 * 2,))
    assert scratch("CONV_2D-int16") == ((4 * 40 * 2,) if is_vector else (2 * 36 * 2,))
    assert scratch("CONV_2D-int8-1x1") == scratch("CONV_2D-float32") == ()


ESP_NN = {
    # Image, window and result channels, stride, whether padded: bytes, as ESP-NN compiled says.
    ((9, 8, 16), (1, 1, 4), 1, True): 384,
    ((2, 3, 12), (1, 1, 4), 1, True): 224,
    ((24, 24, 3), (3, 3, 8), 2, True): 416,
    ((12, 10, 8), (3, 3, 4), 1, True): 3728,
    ((12, 10, 8), (3, 3, 4), 1, False): 1040,
    ((8, 8, 16), (1, 1, 4), 2, False): 208,
    # The same of depthwise convolutions.
    ((12, 10, 16), (3, 3), 1, True): 2848,
    ((12, 10, 16), (3, 3), 1, False): 160,
    ((48, 48, 32), (3, 3), 1, True): 5104,
    ((9, 9, 24), (3, 3), 2, True): 7424,
    ((9, 9, 8), (3, 3), 1, True): 1472,
    ((48, 48, 16), (5, 5), 1, True): 8512,
    ((9, 7, 6), (3, 3), 1, True): 1776,
    ((9, 7, 3), (3, 3), 1, True): 32,
}


@pytest.mark.parametrize(("sizes", "right"), ESP_NN.items())
def test_convolutions_of_esp_nn_ask_for_what_their_source_says(
    sizes: tuple[tuple[int, int, int], tuple[int, ...], int, bool], right: int
) -> None:
    (height, width, depth), (tall, wide, *more), stride, is_padded = sizes
    images = (-(-height // stride), -(-width // stride))
    if not is_padded:
        images = ((height - tall) // stride + 1, (width - wide) // stride + 1)
    made = more[0] if more else depth
    shape = (made, tall, wide, depth) if more else (1, tall, wide, depth)
    kernel = Operand(shape, "int8", (0,), made, axis=0 if more else 3)
    window = {0: flat.Number("b", int(not is_padded))}
    window |= {slot: flat.Number("i", stride) for slot in (1, 2)}
    options = (1, window) if more else (2, {**window, 3: flat.Number("i", 1)})
    model = model_of(
        Case(
            "CONV_2D" if more else "DEPTHWISE_CONV_2D",
            [Operand((1, height, width, depth), "int8"), kernel, None],
            [Operand((1, *images, made), "int8")],
            options,
        )
    )
    (cost,) = total(parse(model), build=Build("esp-nn", 32)).operators
    assert cost.scratch == (right,)
    assert total(parse(model), build=Build("reference", 32)).operators[0].scratch == ()


def case(name: str) -> Case:
    return next(each for each in CASES.values() if each.name == name)


def test_totals_depend_on_the_build() -> None:
    model = parse(model_of(case("CONV_2D")))
    assert total(model, pointer=32).total < total(model).total
    # Firmware neither records allocations nor unpacks compressed weights.
    firmware = total(model, kernels="esp-nn")
    assert firmware.parts["allocator"] < total(model).parts["allocator"]


def test_options_of_custom_operators_are_read() -> None:
    options = {"fft_length": 512, "T": 7, "a": -1}
    assert numbers(flex_map(options)) == options
    assert numbers(flex_map({})) == {}


def test_damaged_options_are_no_error() -> None:
    content = flex_map({"fft_length": 512, "T": 7})
    for at in range(len(content)):
        for value in (0, 1, 127, 255):
            numbers(content[:at] + bytes([value]) + content[at + 1 :])
        numbers(content[:at])
        numbers(content[at:])
