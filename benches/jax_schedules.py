"""
Compares schedules that XLA runs with the policies of ``jax.checkpoint``.

Each row has the temporary memory of the compiled step in MiB, its floating-point operations, and,
for a schedule, the predicted memory. Policies are on every block. Run it with JAX installed::

    python benches/jax_schedules.py [--layers 4] [--width 384]
    python benches/jax_schedules.py [--points 8] --steps [NAME ...]

With ``--steps``, small steps of many kinds: bytes and operations of each of ``--points`` schedules,
and for each policy the schedule with the fewest operations in as many bytes. Steps with loops have
no such comparison: XLA counts the operations of a loop's body once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax_steps
import training_steps as steps

from arenaplan.integrations import jax as apj

POLICIES = ("nothing_saveable", "dots_with_no_batch_dims_saveable", "dots_saveable")
MIB = 1 << 20


def row(name: str, compiled: Any, predicted: int | None = None) -> None:
    """Print what the compiler says about a step."""
    temporary = compiled.memory_analysis().temp_size_in_bytes
    work = compiled.cost_analysis()["flops"]
    shown = "" if predicted is None else f"{predicted / MIB:.1f}"
    print(f"| {name} | {temporary / MIB:.1f} | {shown} | {work / 1e9:.1f} |", flush=True)


@contextmanager
def under_policy(policy: Any) -> Iterator[None]:
    """Differentiate every loss, and run every block, under ``jax.checkpoint`` with a policy."""
    whole, block = jax.value_and_grad, jax_steps.block

    def under(loss: Any, *args: Any, **keywords: Any) -> Any:
        return whole(jax.checkpoint(loss, policy=policy), *args, **keywords)

    def remade(p: Any, x: Any, heads: int = 4, causal: bool = True) -> Any:
        return jax.checkpoint(lambda p, x: block(p, x, heads, causal), policy=policy)(p, x)

    jax.value_and_grad, jax_steps.block = under, remade
    try:
        yield
    finally:
        jax.value_and_grad, jax_steps.block = whole, block


def compare(name: str, points: int) -> None:
    """Print the points of a step's curve, and the policies beside schedules in as many bytes."""
    step = jax_steps.STEPS[name]()
    kept = dict(apj.COMPILER_OPTIONS)
    found = []
    counted = True
    for scheduled in apj.schedules(step.run, step.args, step.donate, points=points):
        report = scheduled.report
        work = scheduled.compiled.cost_analysis()["flops"]
        found.append((report.compiled_bytes, work))
        counted = counted and report.compiled_work is not None
        print(f"| {name} | {report} |", flush=True)
    for policy in POLICIES if counted else ():
        with under_policy(getattr(jax.checkpoint_policies, policy)):
            # A new function: JAX remembers the traces of old ones, without the policy.
            fresh = partial(step.run)
            made = jax.jit(fresh, donate_argnums=step.donate, compiler_options=kept)
            try:
                compiled = made.lower(*step.args).compile()
            except TypeError as error:  # Policies of JAX do not know complex numbers.
                print(f"| {name} | {policy} | {error} |", flush=True)
                continue
        most = compiled.memory_analysis().temp_size_in_bytes
        work = compiled.cost_analysis()["flops"]
        fitting = [other for size, other in found if size <= most]
        least = f"{min(fitting) / work - 1:+.1%}" if fitting else "none"
        print(f"| {name} | {policy} | {most:,} | {work:,.0f} | {least} |", flush=True)


def main() -> None:
    """Print a table of one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--steps", nargs="*")
    parser.add_argument("--points", type=int, default=8)
    given = parser.parse_args()
    if given.steps is not None:
        for name in given.steps or jax_steps.STEPS:
            compare(name, given.points)
        return
    kept = dict(apj.COMPILER_OPTIONS)
    whole = steps.block

    def compiled(options: dict[str, str] | None = None) -> Any:
        step = steps.gpt(given.layers, given.width)
        made = jax.jit(step.run, donate_argnums=step.donate, compiler_options=options)
        return made.lower(*step.args).compile()

    row("plain", compiled())
    for name in POLICIES:
        policy = getattr(jax.checkpoint_policies, name)

        def block(p: Any, x: Any, heads: int, causal: bool, policy: Any = policy) -> Any:
            inner = jax.checkpoint(lambda p, x: whole(p, x, heads, causal=causal), policy=policy)
            return inner(p, x)

        steps.block = block
        row(f"`{name}`, default options", compiled())
        row(f"`{name}`, COMPILER_OPTIONS", compiled(kept))
    steps.block = whole
    step = steps.gpt(given.layers, given.width)
    for budget in ("10%", "20%", "30%"):
        found = apj.scheduled_step(step.run, step.args, step.donate, recompute=budget)
        row(f"schedule at {budget}", found.compiled, found.report.predicted_bytes)


if __name__ == "__main__":
    main()
