"""
Group members that one chain performs.

Several elementwise members in a row, such as the conversions and the addition after a matrix
product in a quantized model, become a single member that goes over memory once: values between them
need no scratch memory, and all of them take one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from arenaplan.run.numpy.chains import Chain, operands_of
from arenaplan.run.numpy.cuts import ELEMENTWISE
from arenaplan.run.numpy.groups import Group, Member
from arenaplan.run.numpy.registry import INTERNAL, Run, Signature, Step, find_kernel, kernel
from arenaplan.run.numpy.tiles import chain_of, made_by
from arenaplan.run.numpy.timing import CHAIN, RATE, Rate, rate_of


@kernel(CHAIN, domain=INTERNAL, cut=ELEMENTWISE)
def _chain(step: Step) -> Run | None:
    """Run the chain program in an attribute."""
    output = step.outputs[0]
    assert output is not None
    if output.size == 0:
        return None
    chain: Chain = step.attributes["chain"]
    arrays: dict[object, np.ndarray] = {}
    for key, array in zip(chain.loads, step.inputs, strict=True):
        assert array is not None, "chains have no optional operands"
        arrays[key] = array
    return chain.bind(step.attributes["result"], arrays, output)


def in_chains(group: Group) -> Group:
    """Return a group in which elementwise members that follow each other are merged."""
    clusters: dict[int, list[Member]] = {}
    """For each value, the members that become one member."""
    found: dict[int, Member] = {}
    for member in group.members:
        found[member.value] = member
        if not _is_chainable(member):
            continue
        cluster = [member]
        while (earlier := _next(group, clusters, cluster)) is not None:
            cluster = [*clusters.pop(earlier), *cluster]
            del found[earlier]
        clusters[member.value] = cluster
        if len(cluster) > 1:
            found[member.value] = _merged(cluster)
    members = tuple(found.values())
    made = {member.value for member in members}
    return replace(group, members=members, loaded=group.loaded & made)


def _is_chainable(member: Member) -> bool:
    """Return whether a chain can perform a member, whose operands are all the node's."""
    signature = member.signature
    is_plain = signature.op != "BatchNormalization" and not member.is_view
    return is_plain and not member.slot and operands_of(signature) is not None


def _next(group: Group, clusters: dict[int, list[Member]], cluster: list[Member]) -> int | None:
    """Return a value whose producers can join a cluster, which is the value's only reader."""
    last = cluster[-1]
    inside = {member.value for member in cluster}
    for member in cluster:
        for _, value in member.reads():
            makers = clusters.get(value)
            if makers is None or made_by(makers[-1]).shape != made_by(last).shape:
                continue
            if (value in group.loaded) != (last.value in group.loaded):
                continue
            readers = {other.value for other in group.members if value in other.inputs}
            if readers <= inside and chain_of([*makers, *cluster], last.value) is not None:
                return value
    return None


def _merged(members: Sequence[Member]) -> Member:
    """Return a single member that does the work of several."""
    chain, last = chain_of(members, members[-1].value), members[-1]
    assert chain is not None, "they were looked at"
    made = made_by(last)
    operands = {
        value: (member.signature.inputs[position], member.signature.constant[position])
        for member in members
        for position, value in member.reads()
    }
    inputs = tuple(value for value in chain.loads if isinstance(value, int))
    tensors = tuple(operands[value][0] for value in inputs)
    rates = [rate_of(member.signature) for member in members]
    element, missed = sum(rate.element for rate in rates), max(rate.missed for rate in rates)
    signature = Signature(
        name=last.signature.name,
        op=CHAIN,
        domain=INTERNAL,
        version=1,
        attributes={
            "chain": chain,
            "result": last.value,
            RATE: Rate(rates[0].calls, element, missed),
        },
        inputs=tensors,
        outputs=(made,),
        constant=tuple(operands[value][1] for value in inputs),
    )
    same = {
        at: tensor for at, tensor in enumerate(tensors) if tensor and tensor.shape == made.shape
    }
    return Member(
        inputs,
        signature,
        find_kernel(signature),
        last.value,
        0,
        frozenset(same),
        frozenset(at for at, tensor in same.items() if tensor.dtype == made.dtype),
        is_view=False,
        pieces=gcd(*(member.pieces for member in members)),
    )
