"""
Calls of CMSIS-NN functions in place of generated kernels.

:func:`calling_cmsis_nn` gives byte nodes outside of strips the domain of a CMSIS-NN build, and a
second result for scratch memory, so that a plan places the scratch memory. Functions read operands
after the first write, so that only sums and products may be written over an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

import numpy as np

from arenaplan.base.choices import CODE_KERNELS
from arenaplan.base.errors import InvalidOption, UnsupportedOp
from arenaplan.deploy.code.code_site import (
    BAD_CALL,
    CMSIS_LOWERINGS,
    CodePart,
    CodeSite,
    Emit,
    lowers,
    pointer,
)
from arenaplan.deploy.code.code_text import Field, integer
from arenaplan.deploy.code.code_windows import (
    bias_of,
    check_sums,
    factors_of,
    pool_sides,
    sides,
)
from arenaplan.graph import Effects, Graph
from arenaplan.planner.plan_options import PlanOptions
from arenaplan.planner.planning import plan as make_plan
from arenaplan.run.numpy.registry import Signature
from arenaplan.run.numpy.signatures import signature_of
from arenaplan.run.numpy.tflite.binary import sum_factors
from arenaplan.run.numpy.tflite.dense import Dense
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of, radius
from arenaplan.run.numpy.tflite.tflite_facts import (
    activation_range,
    constant_operand,
    encoding,
    encoding_or,
    refused,
)
from arenaplan.run.numpy.tflite.tflite_softmax import DIFFERENCE_BITS, softmax_scale
from arenaplan.tflite.runtime.cmsis import (
    ConvolutionWindow,
    average_bytes,
    conv_bytes,
    depthwise_bytes,
)

BUILDS: Final[dict[str, bool]] = {name: name.endswith("-mve") for name in CODE_KERNELS[1:]}
"""By domain, whether CMSIS-NN is built for processors with MVE."""
_LEFT: Final = 20
"""Bits by which operands of sums are shifted."""
_PAIRS: Final = frozenset({"ADD", "MUL"})
"""Operators whose functions read an element before they write the element."""
_FACTOR: Final = ("multiplier", "shift")

_Scratch: TypeAlias = Callable[[Signature, bool], int]
_SCRATCH: Final[dict[str, _Scratch]] = {}
"""Functions that return scratch bytes, with MVE or without; they refuse what CMSIS-NN lacks."""


def calling_cmsis_nn(graph: Graph, kernels: str, options: PlanOptions | None = None) -> Graph:
    """
    Return the graph in which nodes call CMSIS-NN, where a CMSIS-NN function computes the node.

    Parameters
    ----------
    kernels : {"cmsis-nn", "cmsis-nn-mve"}
        The processor: with the DSP extension or without any, or with MVE.
    options : PlanOptions, optional
        Nodes that run in strips in a plan with these options keep generated kernels.

    Raises
    ------
    InvalidOption
        If ``kernels`` is not the name of a CMSIS-NN build.
    """
    if kernels not in BUILDS:
        raise InvalidOption(f"kernels: expected {' or '.join(BUILDS)}, got {kernels!r}")
    graph = graph.for_target("c-code")
    if cmsis_nn_calls(graph):
        return graph
    chosen = replace(options or PlanOptions(), target="c-code")
    in_strips = {node for step in make_plan(graph, chosen).steps if len(step) > 1 for node in step}
    made = graph.copy()
    for node in graph.nodes:
        if node.domain != "tflite" or node.op not in _SCRATCH or node.index in in_strips:
            continue
        try:
            amount = _SCRATCH[node.op](signature_of(graph, node), BUILDS[kernels])
        except UnsupportedOp:
            continue
        outputs, is_paired = node.outputs, node.op in _PAIRS
        if amount:
            outputs = (*outputs, made.value(f"scratch of {node.name}", (amount,), "uint8"))
        effects = Effects(in_place=node.effects.in_place if is_paired else (), pure=True)
        made.nodes[node.index] = replace(node, domain=kernels, outputs=outputs, effects=effects)
    return made


def cmsis_nn_calls(graph: Graph) -> int:
    """Return the number of nodes that call CMSIS-NN."""
    return sum(node.domain in BUILDS for node in graph.nodes)


def directives(graph: Graph) -> list[str]:
    """Return the preprocessor directives that calls need."""
    kernels = {node.domain for node in graph.nodes} & BUILDS.keys()
    if not kernels:
        return []
    with_mve = BUILDS[kernels.pop()]
    return [
        "#include <arm_nnfunctions.h>",
        f"#if {'!' if with_mve else ''}defined(ARM_MATH_MVEI)",
        f'#error "planned for processors {"with" if with_mve else "without"} MVE"',
        "#endif",
    ]


def _needs(*names: str) -> Callable[[_Scratch], _Scratch]:
    """Register a function that returns scratch bytes and refuses nodes that need other kernels."""

    def register(function: _Scratch) -> _Scratch:
        _SCRATCH.update(dict.fromkeys(names, function))
        return function

    return register


def _checked(call: str, *arguments: str) -> list[str]:
    """Return the statement that calls a function and returns if the function refuses."""
    lines = [f"    {argument}," for argument in arguments]
    lines[-1] = f"{lines[-1][:-1]}) != ARM_CMSIS_NN_SUCCESS) {{"
    return [f"if ({call}(", *lines, f"  return {BAD_CALL};", "}"]


def _sized(**sizes: int) -> dict[str, Field]:
    """Return the dimensions of an operand, 1 unless given."""
    return {name: sizes.get(name, 1) for name in "nhwc"}


def _shaped(shape: Sequence[int]) -> dict[str, Field]:
    return dict(zip("nhwc", shape, strict=True))


def _tile(rows: int, columns: int) -> dict[str, Field]:
    return {"w": columns, "h": rows}


def _bounds(signature: Signature) -> dict[str, Field]:
    low, high = activation_range(signature, encoding_or(signature, 0, "output"))
    return {"min": low, "max": high}


def _context(pointer_: str | None, size: int) -> str:
    return f"&(const cmsis_nn_context){{{pointer_}, {size}}}"


def _scratch(site: CodeSite) -> str:
    """Return the node's scratch memory as an argument."""
    if len(site.signature.outputs) == 1:
        return _context("NULL", 0)
    return _context(site.pointer_to(1), site.signature.result(1).shape[0])


def _called(
    site: CodeSite,
    function: str,
    types: Sequence[str],
    fields: dict[str, Field],
    context: str = "",
) -> Emit:
    """
    Return the call of a function on images or rows.

    Parameters
    ----------
    types : sequence of str
        Declarations of parameters that are not dimensions.
    fields : mapping of str to Field
        Parameters, dimensions, and pointers to weights and bias.
    context : str, optional
        Scratch memory; by default the node's second result.
    """
    name = function.removeprefix("arm_").removesuffix("_s8")
    dims = [field for field in ("input", "filter", "bias", "output") if field in fields]
    members = [*types, f"cmsis_nn_dims {', '.join(dims)};"]
    site.use("cmsis", {"NAME": name, "FIELDS": "\n  ".join(members)}, f"cmsis_{name}")
    data = {"filter": fields.pop("weights", ""), "bias": fields.pop("data", "")}
    own = site.structure(f"cmsis_{name}", fields)
    scratch = context or _scratch(site)

    def emit(part: CodePart) -> list[str]:
        arguments = [scratch, *(f"{own}.{each}" for each in fields if each not in dims)]
        for each in dims:
            arguments.append(f"{own}.{each}")
            x = {"input": pointer(part, 0), "output": part.output(), **data}[each]
            arguments += [str(x)] if x else []
        return _checked(function, *arguments)

    return emit


# -- products -------------------------------------------------------------------------------------


def _require_bytes(signature: Signature, count: int, bias: int | None = None) -> None:
    """Refuse operands and results that are not bytes, and a bias without 32 bits."""
    tensors = [*map(signature.input, range(count)), signature.outputs[0]]
    kinds = [None if tensor is None else str(tensor.dtype) for tensor in tensors]
    last = None if bias is None else signature.input(bias)
    if kinds != ["int8"] * (count + 1) or str("int32" if last is None else last.dtype) != "int32":
        raise refused(signature, "CMSIS-NN computes bytes")


def _factors(site: CodeSite, factors: Sequence[Multiplier]) -> dict[str, Field]:
    """Return factors by channel."""
    return {
        name: f"(int32_t *){site.constant(f'{name}s', np.array(numbers, np.int32))}"
        for name, numbers in zip(_FACTOR, zip(*factors, strict=True), strict=True)
    }


def _product(site: CodeSite, weights: np.ndarray) -> dict[str, Field]:
    """Return common parameters of products; weights have the result's channels first."""
    signature = site.signature
    x, y = encoding(signature, 0), encoding(signature, 0, "output")
    check_sums(site, weights, -x.zero, 0, 2)
    return {
        "input_offset": -x.zero,
        "output_offset": y.zero,
        "activation": _bounds(signature),
    }


def _window(signature: Signature) -> ConvolutionWindow:
    _, height, width, _ = signature.operand(1).shape
    rows, columns = sides(signature, (height, width))
    pairs = zip(columns[3:6], rows[3:6], strict=True)
    return ConvolutionWindow(*(number for pair in pairs for number in pair))


@_needs("CONV_2D", "DEPTHWISE_CONV_2D")
def _convolution_bytes(signature: Signature, mve: bool) -> int:
    _require_bytes(signature, 2, 2)
    image, weights, made = (
        tensor.shape for tensor in (signature.operand(0), signature.operand(1), signature.result())
    )
    is_depthwise = signature.op == "DEPTHWISE_CONV_2D"
    inner, results = (made[3] // image[3] * image[3], 3) if is_depthwise else (image[3], 0)
    if len(weights) != 4 or weights[3] != inner or weights[results] != made[3]:
        raise refused(signature, "CMSIS-NN has no groups of channels here")
    if is_depthwise:
        return depthwise_bytes(_window(signature), image, weights, mve=mve)
    return conv_bytes(_window(signature), image, weights, made, mve=mve)


@lowers("CONV_2D", "DEPTHWISE_CONV_2D", table=CMSIS_LOWERINGS)
def convolution(site: CodeSite) -> Emit:
    """Sum over windows."""
    signature = site.signature
    weights = constant_operand(signature, 1)
    made, window = site.output.shape, _window(signature)
    is_depthwise = site.op == "DEPTHWISE_CONV_2D"
    by_channel = weights.reshape(-1, made[3]).T if is_depthwise else weights
    params = _product(site, by_channel) | {
        name: _tile(getattr(window, f"{name}_height"), getattr(window, f"{name}_width"))
        for name in ("stride", "padding", "dilation")
    }
    kind, function = "conv", "arm_convolve_wrapper_s8"
    if is_depthwise:
        kind, function = "dw_conv", "arm_depthwise_conv_wrapper_s8"
        params["ch_mult"] = made[3] // site.input(0).shape[3]
    fields: dict[str, Field] = {
        "params": params,
        "factors": _factors(site, factors_of(signature, (0, 1), made[3], has_one=False)),
        "input": _shaped(site.input(0).shape),
        "filter": _shaped(weights.shape),
        "bias": _sized(c=made[3]),
        "output": _shaped(made),
        "weights": site.constant("weights", weights),
        "data": bias_of(site, 2, np.int32),
    }
    types = f"cmsis_nn_{kind}_params params;", "cmsis_nn_per_channel_quant_params factors;"
    return _called(site, function, types, fields)


@_needs("FULLY_CONNECTED")
def _dense_bytes(signature: Signature, _: bool) -> int:
    _require_bytes(signature, 2, 2)
    if Dense(signature).zero:
        raise refused(signature, "its weights have a zero point")
    return 0


@lowers("FULLY_CONNECTED", table=CMSIS_LOWERINGS)
def dense(site: CodeSite) -> Emit:
    """Multiply rows by the file's matrix; with MVE, sums of the weights are constants."""
    work = Dense(site.signature)
    channels, context = work.channels, ""
    factors = factors_of(site.signature, (0, 1), channels, has_one=True)
    fields: dict[str, Field] = {
        "params": {**_product(site, work.weights), "filter_offset": 0},
        "factors": dict(zip(_FACTOR, factors[0], strict=True)),
        "input": _sized(n=work.rows, c=work.depth),
        "filter": _sized(n=work.depth, c=channels),
        "bias": _sized(c=channels),
        "output": _sized(n=work.rows, c=channels),
        "weights": site.constant("weights", work.weights),
        "data": bias_of(site, 2, np.int32),
    }
    kind, function = "per_tensor", "arm_fully_connected_s8"
    if len(factors) > 1:
        kind, function = "per_channel", "arm_fully_connected_per_channel_s8"
        fields["factors"] = _factors(site, factors)
    if BUILDS[site.signature.domain]:
        sums = work.weights.sum(axis=1, dtype=np.int32) * np.int32(work.offset)
        if site.signature.input(2) is not None:
            sums += constant_operand(site.signature, 2).reshape(-1)
        context = _context(f"(int32_t *){site.constant('sums', sums)}", sums.nbytes)
    types = "cmsis_nn_fc_params params;", f"cmsis_nn_{kind}_quant_params factors;"
    return _called(site, function, types, fields, context)


# -- other operators ------------------------------------------------------------------------------


@_needs("AVERAGE_POOL_2D", "MAX_POOL_2D")
def _pool_bytes(signature: Signature, mve: bool) -> int:
    _require_bytes(signature, 1)
    is_max = signature.op == "MAX_POOL_2D"
    return 0 if is_max else average_bytes(signature.operand(0).shape, mve=mve)


@lowers("AVERAGE_POOL_2D", "MAX_POOL_2D", table=CMSIS_LOWERINGS)
def pool(site: CodeSite) -> Emit:
    """Means or largest numbers of windows."""
    rows, columns = pool_sides(site)
    fields: dict[str, Field] = {
        "params": {
            "stride": _tile(rows.stride, columns.stride),
            "padding": _tile(rows.before, columns.before),
            "activation": _bounds(site.signature),
        },
        "input": _shaped(site.input(0).shape),
        "filter": _sized(h=rows.kernel, w=columns.kernel),
        "output": _shaped(site.output.shape),
    }
    function = "arm_max_pool_s8" if site.op == "MAX_POOL_2D" else "arm_avgpool_s8"
    return _called(site, function, ["cmsis_nn_pool_params params;"], fields)


@_needs("ADD", "MUL")
def _pair_bytes(signature: Signature, _: bool) -> int:
    _require_bytes(signature, 2)
    if signature.operand(0).shape != signature.operand(1).shape:
        raise refused(signature, "CMSIS-NN broadcasts no operand")
    return 0


@lowers("ADD", "MUL", table=CMSIS_LOWERINGS)
def pair(site: CodeSite) -> Emit:
    """Sums or products of two operands of equal shapes."""
    signature = site.signature
    a, b, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    if site.op == "ADD":
        function, (first, second, last) = "arm_elementwise_add_s8", sum_factors(signature, _LEFT)
        before: list[int] = [-a.zero, *first, -b.zero, *second, _LEFT]
    else:
        function, last = "arm_elementwise_mul_s8", multiplier_of(a.scale * b.scale / y.scale)
        before = [-a.zero, -b.zero]
    after = y.zero, *last, *activation_range(signature, y), prod(site.output.shape)

    def emit(part: CodePart) -> list[str]:
        operands = f"{pointer(part, 0)}, {pointer(part, 1)}"
        return _checked(function, operands, _listed(before), part.output(), _listed(after))

    return emit


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(integer, numbers))


@_needs("SOFTMAX")
def _softmax_bytes(signature: Signature, _: bool) -> int:
    _require_bytes(signature, 1)
    if not 0 <= _softmax_factor(signature).shift < 31 or not prod(signature.operand(0).shape):
        raise refused(signature, "CMSIS-NN shifts differences to the left")
    return 0


def _softmax_factor(signature: Signature) -> Multiplier:
    beta = float(signature.attributes.get("beta", 1.0))
    return softmax_scale(beta, encoding(signature, 0).scale)


@lowers("SOFTMAX", table=CMSIS_LOWERINGS)
def softmax(site: CodeSite) -> Emit:
    """Rows along the last dimension."""
    factor, shape = _softmax_factor(site.signature), site.input(0).shape
    least = -radius(DIFFERENCE_BITS, factor.shift)
    numbers = _listed([prod(shape[:-1]), shape[-1], *factor, least])

    def emit(part: CodePart) -> list[str]:
        return [f"arm_softmax_s8({pointer(part, 0)}, {numbers}, {part.output()});"]

    return emit
