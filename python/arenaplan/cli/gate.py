"""``arenaplan gate``: one command for continuous integration."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from arenaplan import Plan, _core
from arenaplan.base.errors import BaselineError, InvalidOption, PlannerError, fault, kind_of
from arenaplan.base.limits import applied
from arenaplan.base.model_files import read_once
from arenaplan.cli.micro import arena_of
from arenaplan.cli.models import each_signature, needed_by, plan_options, seen_by
from arenaplan.cli.printing import print_json, say, shown, size, voice
from arenaplan.cli.sources import is_stream, limits_of, read_model, read_plan, write_result
from arenaplan.cli.watch import watching
from arenaplan.graph.graph import Graph
from arenaplan.planner.changes import PlanLayout
from arenaplan.report.gating import Gate, judged, junit, markdown, read_baseline, table
from arenaplan.report.gating.gating import GateLimits, Growth


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    on_stdout = options.junit is not None and str(options.junit) == "-"
    if options.json + options.markdown + on_stdout > 1:
        raise InvalidOption("--json, --markdown and --junit - all ask for stdout")
    if options.update and options.baseline in (None, "-"):
        raise InvalidOption("option --update: --baseline names the file to write")
    if options.update and options.allow_growth and "allow-growth" not in voice.sources:
        raise InvalidOption("option --allow-growth: --update takes the new plan, however large")
    baselines = _baselines(options)
    pairs: list[tuple[Gate, Path | None]] = []
    errors: list[Exception] = []
    for model, baseline in zip(options.models, baselines, strict=True):
        try:
            chosen = options.with_model(model)
            with applied(limits_of(chosen)), read_once():
                chosen.model = read_model(model)
                made = _gates(chosen, baseline)
        except (PlannerError, OSError) as error:
            # The report includes the error; the other models are still judged.
            errors.append(error)
            problem = f"{kind_of(error)}: {error}"
            made = [Gate(model.stem, "no target", None, (), problem=problem, is_error=True)]
        pairs += ((gate, baseline) for gate in made)
        # The error of a single model is printed once, at the end.
        is_told = len(options.models) == 1 and made[-1].is_error
        if not (options.json or options.markdown or on_stdout or is_told):
            for gate in made:
                _print(gate)
    gates = [gate for gate, _ in pairs]
    if options.json:
        print_json({"passed": all(gates), "gates": [gate.document() for gate in gates]})
    elif options.markdown:
        print(markdown(gates), end="")
    if options.junit is not None:
        write_result(options.junit, junit(gates))
    if errors:
        raise errors[0]
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        why = "; ".join(f"{shown(gate.model)}: {', '.join(gate.failures())}" for gate in failed)
        raise fault("GateFailed", why)
    if options.update:
        _update(pairs)


def _baselines(options: argparse.Namespace) -> list[Path | None]:
    """Return the baseline file for each model."""
    given = options.baseline
    if given is None:
        return [None] * len(options.models)
    if not given:
        raise InvalidOption("option --baseline: an empty text names no file")
    path = Path(given)
    if len(options.models) == 1 and not (given.endswith("/") or path.is_dir()):
        return [path]
    if path.is_file() or given == "-":
        raise InvalidOption("option --baseline: of several models it is a folder")
    files = [path / f"{model.stem}.plan.json" for model in options.models]
    twice = {str(file) for file in files if files.count(file) > 1}
    if twice or any(is_stream(model) for model in options.models):
        name = min(twice, default="-")
        raise InvalidOption(f"option --baseline: several models would have the file {name!r}")
    return list(files)


def _gates(options: argparse.Namespace, baseline: Path | None) -> list[Gate]:
    """Plan each signature of a model and judge the plans."""
    graphs = each_signature(options)
    if len(graphs) > 1 and baseline is not None:
        raise InvalidOption("option --baseline: it is of one signature, which --signature names")
    return [_gate(options, graph, baseline) for graph in graphs]


def _gate(options: argparse.Namespace, graph: Graph, baseline: Path | None) -> Gate:
    """Plan a graph and judge the plan."""
    limits = GateLimits.of(replace(plan_options(options), budget=options.budget))
    allowed = options.allow_growth or Growth()
    # Growth from a file of settings is for the models that have a baseline.
    limits.require_rule(baseline, Growth() if "allow-growth" in voice.sources else allowed)
    old = None
    if baseline is not None and not options.update:
        try:
            old = read_baseline(read_plan(baseline))
        except FileNotFoundError:
            raise BaselineError(
                f"there is no baseline {str(baseline)!r}; --update writes it"
            ) from None
        except BaselineError as error:
            raise BaselineError(f"{str(baseline)!r}: {error}") from None
    seen = seen_by(graph, limits.options, options)
    with watching(options) as watch:
        made = limits.planned(seen, time_limit=options.time_limit, on_progress=watch)
    watch.raise_if_stopped()
    if options.update and isinstance(made, Plan):
        old = PlanLayout.of(made)  # The rule of an update: the new plan itself.
    needed = needed_by(options, made) if isinstance(made, Plan) and limits.budgets else None
    try:
        gate = judged(seen, made, limits, old, allowed, needed)
    except BaselineError as error:
        raise BaselineError(f"{str(baseline)!r}: {error}") from None
    if isinstance(made, Plan) and any(not row.passed and row.rule == "budget" for row in gate.rows):
        arena = arena_of(graph, made, options)
        exported = None if arena is None else arena["exported"]
        if exported is not None:
            say(f"note: with offsets in the model {size(exported['total'])}: {exported['command']}")
    return gate


def _update(pairs: list[tuple[Gate, Path | None]]) -> None:
    """Write all plans as baselines, or none."""
    files = [
        (path, gate.plan.to_json().encode())
        for gate, path in pairs
        if path is not None and isinstance(gate.plan, Plan)
    ]
    for path, _ in files:
        _refuse_other(path)
    for path, _ in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    _core.write_files(files)
    for path, _ in files:
        say(f"wrote {path}")


def _refuse_other(path: Path) -> None:
    """Refuse to replace a file that is no baseline."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(64)
    try:
        read_baseline(path)
    except BaselineError as error:
        if re.search(rb'"format":\s*"arenaplan(-report|-model)?"', head):
            return  # The baseline has another version or is damaged.
        raise BaselineError(
            f"{str(path)!r} is there and is no baseline, and --update does not replace it: {error}"
        ) from None


def _print(gate: Gate) -> None:
    """Print a gate for people."""
    verdict = "ok" if gate.passed else "FAIL"
    target = "" if gate.is_error else f" for {shown(gate.target)}"
    print(f"{verdict}: {shown(gate.model) or 'model'}{target}")
    if gate.problem is not None:
        print(f"  {gate.problem}")
    for line in table(gate):
        print(line)
