"""The command syntax: a table of options, a table of commands, and value readers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arenaplan.base.amounts import parse_size
from arenaplan.base.choices import CODE_KERNELS, FORMS, KERNELS, MAX_SHAPES, RUNTIMES
from arenaplan.base.errors import InvalidOption, SizeError
from arenaplan.base.formulas import is_formula
from arenaplan.planner.plan_options import PlanOptions, option_choices, option_help, targets
from arenaplan.planner.spaces import Space, parse_spaces

if TYPE_CHECKING:
    from arenaplan.report.gating.gating import Growth

_MAX_DIGITS = 19
"""Most digits of a dimension, enough for a 64-bit number."""

_MAX_LISTED = 1 << 20
"""Most numbers that ranges after commas are written out to."""

# -- readers -----------------------------------------------------------------------


def byte_count(text: str) -> int:
    """Read a byte count, such as ``65536`` or ``48KiB``."""
    try:
        return parse_size(text)
    except SizeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    """Read a time, such as ``0.5``."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0")
    return found


@cache
def _whole(least: int, most: int = 2**64 - 1) -> Callable[[str], int]:
    """Return a function that reads a whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS + 1):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 64 bits")
        if not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most:,}")
        return int(text)

    return read


def _binding(text: str) -> tuple[str, int | str | tuple[int, ...] | range | list[int]]:
    """
    Read ``NAME=NUMBER``, ``NAME=FIRST..LAST``, or several such values with commas.

    ``NAME=2x3`` is an input's shape, and ``NAME=OTHER+1`` an equation.
    """
    name, _, numbers = text.rpartition("=")
    dims = numbers.split("x")
    if name and len(dims) > 1 and all(map(_is_number, dims)):
        return name, tuple(map(int, dims))
    if two := re.fullmatch(r"([^=]+=[\d.,]*\d),([^=]+)", name):
        raise argparse.ArgumentTypeError(
            f"{text!r} binds two dimensions; write --bind {two[1]} --bind {two[2]}={numbers}"
        )
    if name and is_formula(numbers):
        return name, numbers
    ranges = [_range(part) for part in numbers.split(",")]
    spans = [span for span in ranges if span is not None]
    if not name or len(spans) < len(ranges):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=NUMBER, such as batch=1, nor NAME=FIRST..LAST, "
            "NAME=NUMBER,NUMBER,…, a shape such as NAME=1x3x224x224 or an equation such as "
            "NAME=OTHER+1"
        )
    if len(spans) == 1:
        return name, (spans[0] if ".." in numbers else spans[0].start)
    if sum(span.stop - span.start for span in spans) > _MAX_LISTED:
        raise argparse.ArgumentTypeError(f"{text!r} lists more than {_MAX_LISTED:,} numbers")
    return name, [number for span in spans for number in span]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _range(text: str) -> range | None:
    """Read ``NUMBER`` or ``FIRST..LAST``."""
    first, separator, last = text.partition("..")
    ends = (first, last) if separator else (first, first)
    if not all(map(_is_number, ends)):
        return None
    start, stop = map(int, ends)
    return range(start, stop + 1) if start <= stop else None


@cache
def _pair(form: str, example: str) -> Callable[[str], tuple[str, str]]:
    """Return a reader for two words with ``=`` between."""

    def read(text: str) -> tuple[str, str]:
        left, separator, right = text.partition("=")
        if not (separator and left and right):
            raise argparse.ArgumentTypeError(f"{text!r} is not {form}, such as {example}")
        return left, right

    return read


def _names(known: Callable[[], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    """Return a reader for names with commas between."""

    def read(text: str) -> tuple[str, ...]:
        for name in text.split(","):
            if name not in known():
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known())}")
        return tuple(dict.fromkeys(text.split(",")))

    return read


@cache
def _factor(least: float, most: float) -> Callable[[str], float]:
    """Return a function that reads a factor such as ``1.05``, or ``none`` for no limit."""

    def read(text: str) -> float:
        try:
            ratio = inf if text == "none" and most == inf else float(text)
        except ValueError:
            ratio = 0.0
        if not least <= ratio <= most:
            kind = "a ratio of 1 or more, nor none" if most == inf else f"from {least} to {most}"
            either = "neither" if most == inf else "not"
            raise argparse.ArgumentTypeError(f"{text!r} is {either} {kind}")
        return ratio

    return read


@dataclass(frozen=True, slots=True)
class PerSpace:
    """Byte counts for every space and for named spaces."""

    everywhere: int | None = None
    spaces: Mapping[str, int] = field(default_factory=dict)


def _per_space(text: str) -> PerSpace:
    """Read ``64``, ``sram=16`` or ``64,sram=16``."""
    everywhere: int | None = None
    spaces: dict[str, int] = {}
    for part in text.split(","):
        name, separator, number = part.strip().rpartition("=")
        if bool(separator) != bool(name):
            raise argparse.ArgumentTypeError(f"{part!r} is not BYTES or SPACE=BYTES")
        if separator:
            spaces[name] = byte_count(number)
        else:
            everywhere = byte_count(number)
    return PerSpace(everywhere, spaces)


def _spaces(text: str) -> list[Space]:
    """Read ``sram=64KiB,psram=8MiB``."""
    try:
        return parse_spaces(text)
    except (InvalidOption, SizeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _reserved(text: str) -> tuple[str | None, tuple[int, int]]:
    """Read ``0..4KiB`` or ``sram=0..4KiB``."""
    name, separator, zone = text.rpartition("=")
    start, dots, end = zone.partition("..")
    if bool(separator) != bool(name) or not dots:
        raise argparse.ArgumentTypeError(f"{text!r} is not START..END or SPACE=START..END")
    return name or None, (byte_count(start), byte_count(end))


def _growth(text: str) -> Growth:
    """Read ``1KiB`` or ``2%``."""
    from arenaplan.report.gating.gating import Growth  # The help does not need the import.

    try:
        return Growth.of(text)
    except (InvalidOption, SizeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _percent(text: str) -> str:
    """Read a percentage of the work, such as ``5%`` or ``5``."""
    from arenaplan.planner.planning import goal_of  # The help does not need the import.

    part = text if text.endswith("%") else f"{text}%"
    try:
        goal_of(part)
    except InvalidOption:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a part of the work, such as 5%"
        ) from None
    return part


def _known_targets() -> tuple[str, ...]:
    return tuple(target.name for target in targets())


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "ADDRESS": str,
    "BYTES": byte_count,
    "DIR": Path,
    "FACTOR": _factor(1, 100),
    "FILE": Path,
    "NAME": str,
    "NAME,…": str,
    "NAME=BYTES,…": _spaces,
    "NAME=BYTES@COST": str,
    "NAME=FILE.npy": _pair("NAME=FILE.npy", "x=x.npy"),
    "NAME=NUMBER": _binding,
    "PERCENT": _percent,
    "RATIO": _factor(1, inf),
    "RUNTIME,…": _names(lambda: RUNTIMES),
    "SECONDS": _seconds,
    "SIZE": _growth,
    "SPACE=PATTERN": _pair("SPACE=PATTERN", "psram=logits*"),
    "SPACE=SECTION": _pair("SPACE=SECTION", "arena=.sram"),
    "START..END": _reserved,
    "TARGET,…": _names(_known_targets),
    "TOKEN,…": lambda text: [_whole(0)(token) for token in text.split(",")],
    "[SPACE=]BYTES": _per_space,
}
"""Value readers, by the value's name in the help."""

# -- options -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One option: a switch, unless `value` is given."""

    group: str
    """Title in the help."""
    help: str
    value: str | None = None
    """The value's name in the help."""
    read: Callable[[str], Any] | None = None
    default: Any = None
    choices: tuple[Any, ...] = ()
    repeats: bool = False
    """Whether the option can be given several times; the values then make a list."""

    def add_to(self, place: argparse._ActionsContainer, name: str) -> argparse.Action:
        """Add the option to a parser."""
        flags = [*([f"-{name[0]}"] if name in _SHORT else []), f"--{name}"]
        help_ = self.help.replace("%", "%%")
        if self.read is None:
            return place.add_argument(*flags, action="store_true", help=help_)
        return place.add_argument(
            *flags,
            action="append" if self.repeats else "store",
            type=self.read,
            default=[] if self.repeats else self.default,
            choices=self.choices or None,
            metavar=self.value,
            help=help_,
        )


_SHORT: Final = frozenset(("output", "quiet", "verbose"))
"""Options that also have a one-letter flag."""

_ROW: Final = re.compile(r"(?:(.+): )?--([a-z-]+)(?: ([^ ]+?)(\*?))?(?: = (.+))?")


def _table(text: str) -> dict[str, Option]:
    """
    Parse an option table; return the options by name.

    A row is ``group: --name VALUE = default``, followed by the help text, in which ``{field}``
    inserts the help for a :class:`PlanOptions` field. A row without a group belongs to the group
    above. The value is a name in ``_READERS``, choices with ``|`` between, a number range such as
    ``1..``, or ``choice`` for the choices of the field with the option's name. An option with a
    star can be repeated; an option without a value is a switch.
    """
    helps = {each.name: option_help(each.name) for each in fields(PlanOptions)}
    found: dict[str, Option] = {}
    title = ""
    for row in re.split(r"\n(?=\S)", text.strip()):
        line, *rest = row.split("\n")
        match = _ROW.fullmatch(line)
        assert match is not None, line
        group, name, value, star, default = match.groups()
        title = group or title
        help_ = " ".join(map(str.strip, rest)).format_map(helps)
        if default is not None:
            help_ += f" (default: {default})"
        found[name] = _option(title, help_, name, value, default, repeats=bool(star))
    return found


def _option(
    group: str, help_: str, name: str, value: str | None, default: str | None, *, repeats: bool
) -> Option:
    """Return an option from a table row."""
    if value is None:
        return Option(group, help_)
    shown: str | None = value
    choices: tuple[Any, ...] = ()
    read: Callable[[str], Any] = str
    if value == "choice":
        shown, choices = None, option_choices(name)
    elif "|" in value:
        read = int if value.replace("|", "").isdigit() else str
        shown, choices = None, tuple(map(read, value.split("|")))
    elif number := re.fullmatch(r"(\d+)\.\.(\d*)", value):
        read, shown = _whole(int(number[1]), int(number[2] or 2**64 - 1)), "N"
    else:
        read = _READERS[value]
    start = None if default is None else read(default)
    return Option(group, help_, shown, read, start, choices, repeats)


OPTIONS: Final = _table(f"""
model: --bind NAME=NUMBER*
    number for a symbolic dimension, such as batch=1, an equation of other names, such as
    total=past+1, the shape of an input, such as image=1x3x224x224, or what an input of one integer
    or truth value holds, such as use_cache_branch=1; can be repeated; with plan and export --to
    weights also several, such as batch=1..32 or seq=16,32,64
--signature NAME
    signature of a .tflite file that has several (default: the first; with plan and gate each)
--keep-caches
    keep inputs that outputs are written over, such as keys and values of earlier tokens, in the
    arena from run to run: one copy each, neither given nor returned
--target {"|".join((*_known_targets(), *(f"tflm:{kernels}" for kernels in KERNELS)))}
    {{target}} (see 'arenaplan targets')
--pointer 32|64
    tflm: bits of a pointer in the runtime (default: 64 for reference kernels, as in the Python
    package tflite-micro, otherwise 32)
--profile FILE
    tflm: memory of this model as 'arenaplan measure' wrote it, in place of formulas
--max-nodes 0..
    refuse models and plans with more nodes, such as 100000: for files that are not trusted
--max-bytes BYTES
    refuse files of models and plans with more bytes, such as 64MiB
memory: --budget BYTES
    most bytes that the whole arena may have, such as 48KiB; for tflm with the memory that the
    runtime keeps for itself
--spaces NAME=BYTES,…
    {{spaces}}; NAME=SIZE@COST says what it costs to move a byte (default: the position, from 0)
--pin SPACE=PATTERN*
    {{pins}}: 'psram=logits*'; can be repeated
--align [SPACE=]BYTES
    {{alignment}}; SPACE=BYTES for one space, such as sram=16
--inputs choice
    {{inputs}}
--outputs choice = inside
    {{outputs}}
--workspace choice
    {{workspace}}
techniques: --optimize NAME,… = all
    {{optimize}}
--workers 1.. = 1
    {{workers}}
--max-slowdown RATIO = {PlanOptions().max_slowdown}
    {{max_slowdown}}; none stands for infinity
--parallel-safe
    {{parallel_safe}}
search: --effort choice = default
    {{effort}}
--time-limit SECONDS
    end with the best answer so far; equal commands may then give different answers
--seed 0.. = 0
    seed of all random choices
models: --share never-together|concurrent
    plan all models for one arena: they run one after the other, or at the same time
output: --json
    print JSON and nothing else
""")
"""The options that several commands have."""

GENERAL: Final = _table("""
general: --quiet
    print results and errors, and no notes, warnings or progress
--verbose
    also print where options come from, processor time, and tracebacks of errors
--color auto|always|never = auto
    colors of messages; auto: on a terminal, unless NO_COLOR is set
--progress auto|json|none = auto
    progress of searches on stderr: a line on a terminal, a JSON document per line, or none
--config NAME
    configuration file, or none (default: arenaplan.toml or pyproject.toml of this folder or one
    above it)
""")
"""Options that every command has, before or after its name."""

# -- commands ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandOperand:
    """An argument without a flag."""

    name: str
    metavar: str
    help: str
    nargs: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command's summary, operands and options."""

    summary: str
    examples: str
    """Command lines, one per line."""
    operands: tuple[CommandOperand, ...] = ()
    options: str = ""
    """Option names in help order; names after a bar are in ``--help-all`` only."""
    own: Mapping[str, Option] = field(default_factory=dict)
    """Options that the command alone has, or whose help says more for the command."""
    required: str = ""
    """Names of required options."""
    either: str = ""
    """Names of mutually exclusive options."""
    description: str = ""
    """Replaces the summary in the help."""

    def option(self, name: str) -> Option:
        """Return a command's option by name."""
        return self.own[name] if name in self.own else OPTIONS[name]

    @property
    def lines(self) -> list[str]:
        """The examples, line by line."""
        return [line.strip() for line in self.examples.strip().split("\n")]

    @property
    def names(self) -> list[str]:
        """All option names, in help order."""
        return self.options.replace("|", " ").split()

    @property
    def rare(self) -> frozenset[str]:
        """Names of options that only ``--help-all`` lists."""
        return frozenset(self.options.partition("|")[2].split())


_MODEL = CommandOperand("model", "MODEL", "model file, such as model.onnx; - is stdin")
_OTHERS = CommandOperand("others", "MODEL", "more models, with --share", "*")

_PLAN = (
    "bind signature target pointer spaces align inputs outputs workspace optimize workers "
    "max-slowdown"
)
"""Common plan options."""
_LIMITS = "max-nodes max-bytes"
_RARE = f"keep-caches pin profile {_LIMITS}"

COMMANDS: Final[Mapping[str, Command]] = {
    "plan": Command(
        "plan a model's arena and prove its size",
        """
        plan model.onnx
        plan model.tflite --target tflm:cmsis-nn --budget 256KiB
        plan model.onnx --bind batch=1 --spaces sram=64KiB,psram=8MiB -o plan.json
        plan a.onnx b.onnx --share never-together
        plan - --json < model.onnx
        """,
        (_MODEL, _OTHERS),
        f"{_PLAN} budget effort time-limit share json output "
        f"| {_RARE} parallel-safe max-shapes with-graph",
        _table(f"""
model: --max-shapes 1.. = {MAX_SHAPES}
    most shapes that --bind may describe
output: --output FILE
    write the plan as JSON, of several shapes with their graphs; - is stdout
--with-graph
    write the graph into the file of one plan, too, so that the file needs no model
"""),
    ),
    "explain": Command(
        "say what makes the peak, and what each technique is worth",
        """
        explain model.onnx
        explain model.tflite --top 10 --by layer
        """,
        (_MODEL,),
        f"{_PLAN} effort time-limit top by json | {_RARE}",
        _table("""
what if: --top 1..1000
    plan the model with half the channels or resolution of a layer, smaller elements or inputs, and
    list the N changes that save most (default with --by: 10)
--by layer|node
    name changes by layer or by node (default with --top: layer)
"""),
    ),
    "inspect": Command(
        "show values, nodes, live bytes per step, the peak and who makes it",
        """
        inspect model.onnx
        inspect model.onnx --json > report.json
        """,
        (_MODEL,),
        f"{_PLAN} effort time-limit json | {_RARE}",
    ),
    "map": Command(
        "draw a plan: every value by address and time, as a page, a drawing or a trace",
        """
        map model.onnx -o map.html
        map plan.json --against old.json -o map.html
        map buffers.csv -o map.html
        """,
        (_MODEL, _OTHERS),
        f"{_PLAN} effort time-limit share to against output | {_RARE} explain curve",
        _table("""
output: --to html|svg|perfetto|json = html
    a page with search, selection and zoom; a drawing; a trace for ui.perfetto.dev; the report that
    they are made from
--against FILE
    older plan file: show the values that are new, gone, grown or somewhere else
--explain
    also show the worth of each technique, which takes a plan for each
--curve
    also show the bytes of the arena over the extra work of nodes that run again, for training steps
--output FILE
    file to write, such as map.html; - is stdout
"""),
        required="output",
        description="Draw a plan: addresses over time, one rectangle per value. MODEL is a model, "
        "or a file that 'arenaplan plan -o' wrote, which has operators and shapes if --with-graph "
        "was given.",
    ),
    "targets": Command(
        "list the runners that plans can be made for, and what each can do",
        "targets",
        options="json",
    ),
    "run": Command(
        "run a model inside its arena, with NumPy or on a device",
        """
        run model.onnx --verify
        run model.onnx --input x=x.npy --save-outputs out
        """,
        (_MODEL,),
        "bind signature plan input seed verify threads device graph runs generate prompt room json "
        f"save-outputs | keep-caches {_LIMITS}",
        _table("""
run: --plan FILE
    plan to obey (default: a new one); - is stdin
--input NAME=FILE.npy*
    array for an input; inputs without one get random numbers; can be repeated
--seed 0.. = 0
    seed of the random inputs
--verify
    poison dead bytes, guard live ones, and compare with a run without an arena; a TFLite model also
    with the interpreter of the package tflite-micro, if it is installed; on a device, compare with
    NumPy
--threads 1.. = 1
    threads that divide each long kernel on the cpu; results are the same
--device NAME = cpu
    cpu, or cuda or cuda:NUMBER for a CUDA device through CuPy
--graph
    on a device, record the run as a CUDA graph, and replay it for the outputs
--runs 1.. = 1
    runs in a row, each with other random inputs; states live on
--generate 1..
    tokens to generate with a language model, the most probable ones, with caches that stay in the
    arena
--prompt TOKEN,…
    tokens to generate after, such as 1,17,4
--room 1..
    tokens that the caches have room for (default: those of prompt and result)
output: --save-outputs DIR
    write each output as DIR/NAME.npy, all of them or none
"""),
    ),
    "check": Command(
        "check a plan file against its model",
        """
        check model.onnx plan.json
        check planned.tflite
        """,
        (
            _MODEL,
            CommandOperand(
                "plan",
                "PLAN",
                "plan file, such as plan.json (default: the plan inside a .tflite model); of "
                "several shapes a file with their graphs, which needs no MODEL before it; before "
                "it more models, if it is of several that share an arena; after a proof.json of "
                "'arenaplan prove' in the place of MODEL: the original and the rewritten model",
                "*",
            ),
        ),
        f"bind signature target pointer profile hazards json | {_LIMITS}",
        _table("""
check: --hazards FILE
    hazards of the plan, as 'arenaplan export --to hazards' writes them: each pair of steps that use
    the same bytes must be ordered, and no edge be superfluous
"""),
    ),
    "prove": Command(
        "prove that a rewritten .tflite model computes what its original computes",
        "prove model.tflite small.tflite -o proof.json",
        (
            CommandOperand("original", "ORIGINAL", "the model before; - is stdin"),
            CommandOperand("rewritten", "REWRITTEN", "the model after"),
        ),
        f"ignore-metadata run samples seed json output | {_LIMITS}",
        _table(f"""
proof: --ignore-metadata NAME*
    metadata of this name may differ, such as min_runtime_version; can be repeated
runs: --run RUNTIME,…
    also run both models and compare all bits: {", ".join(RUNTIMES)}, or both
--samples 1..{1 << 20} = 20
    random inputs of the runs
--seed 0.. = 0
    seed of the inputs
output: --output FILE
    proof to write, such as proof.json, for 'arenaplan check'; - is stdout
"""),
    ),
    "measure": Command(
        "measure a .tflite model in an installed tflite-micro, and write its profile",
        "measure model.tflite",
        (_MODEL,),
        f"json output | bind {_LIMITS}",
        _table("""
output: --output FILE
    file to write the profile to; - is stdout (default: MODEL.profile.json)
"""),
    ),
    "export": Command(
        "write a plan in another form",
        """
        export model.tflite --to tflm -o planned.tflite
        export model.onnx --to c -o arena.h
        export model.tflite --to c-code -o folder/
        """,
        (_MODEL,),
        f"to output plan {_PLAN} budget time-limit json "
        f"| {_RARE} effort always name original section space "
        "stream-input kernels",
        _table(f"""
form: --to {"|".join(FORMS)}
    {"; ".join(f"{name}: {text}" for name, text in FORMS.items())}
--plan FILE
    plan to export (default: a new one)
--always
    tflm: decide offsets even if the runtime's own planner needs no more bytes, or a kernel is not
    known
--name NAME
    c, c-code, hazards-c, tflm-shim: prefix of every identifier (default: the model file's name)
--original FILE
    c: .tflite model that the firmware runs already, to list the operators that its resolver must
    register in addition
--section SPACE=SECTION*
    c, c-code: linker section for the arena of a space, such as arena=.sram; can be repeated
--kernels {"|".join(CODE_KERNELS)} = portable
    c-code: steps that are whole operators call CMSIS-NN, on processors without MVE or with MVE
--stream-input rows|whole = whole
    c-code: rows of an image by a function of the caller, so that no memory has the whole input
--space NAME
    csv: which space to write, if the plan has several
output: --output FILE
    file to write; - is stdout
"""),
        required="to output",
    ),
    "fit": Command(
        "rewrite a .tflite model so that its arena fits a budget",
        """
        fit model.tflite --budget 64KiB -o small.tflite
        fit model.tflite --to c-code --budget 32KiB -o folder/
        fit model.tflite --pareto
        """,
        (_MODEL,),
        "to budget max-macs max-ops max-slowdown time-limit pointer kernels overlap pareto json "
        f"output | bind {_LIMITS}",
        _table(f"""
form: --to tflm|c-code = tflm
    tflm: a model for TensorFlow Lite Micro; c-code: a folder with the model as a C function, whose
    plan has strips and overlaps anyhow, so that other limits do not matter
limits: --max-macs FACTOR = 1.05
    most multiply-accumulates, as a multiple of those of the model
--max-ops 0..
    most operators of the new model
--max-slowdown RATIO = 1.1
    longest expected time of a run, as a multiple of that of the model, or none
runtime: --pointer 32|64
    bits of a pointer of the machine that runs the model (default: 64 for reference kernels, else
    32)
--kernels {"|".join(KERNELS)}
    kernels of the runtime: scratch memory is counted for these, and results of elementwise kernels
    take the place of an operand where these allow it (default: plans for all kernels, with the
    figures of reference kernels)
--overlap
    let results overwrite operands that are used up on the way; only for firmware with reference
    kernels
output: --pareto
    list rewrites that trade bytes for work and operators, and write none
--output FILE
    file to write; - is stdout
"""),
    ),
    "recompute": Command(
        "run nodes again so that the arena fits a budget, with a proven bound",
        """
        recompute step.json --budget 512MiB
        recompute step.json --curve
        recompute step.json --max-extra 20% --to jax-policy
        """,
        (_MODEL,),
        "bind signature budget max-extra curve strategy inputs outputs page-to time-limit json "
        f"to output | {_LIMITS}",
        _table("""
goal: --budget BYTES
    least extra work in so many bytes of the whole arena, such as 512MiB
--max-extra PERCENT
    fewest bytes at so much extra work, such as 5%
--curve
    bytes over extra work
--strategy sqrt-n|mxnet-mirror
    what a strategy of this name makes again, for comparison
memory: --page-to NAME=BYTES@COST
    slow memory that values may be copied to and back from, such as host=64GiB@480: its size, and
    the cost of copying a byte in the units of the nodes' costs
output: --to json|jax-policy
    what is written: the plan file, or a policy of jax.checkpoint for a step of JAX, which saves
    the arrays with names of checkpoint_name that the plan saves (default: the plan file, if there
    is an --output)
--output FILE
    file to write; - is stdout (default: stdout with --to)
"""),
        required="budget max-extra curve strategy",
        either="budget max-extra curve strategy",
    ),
    "gate": Command(
        "fail if a model outgrows a budget or its baseline: one command for CI",
        """
        gate model.tflite --budget 256KiB
        gate model.onnx --baseline base.json --update
        gate model.onnx --baseline base.json --markdown --junit gate.xml
        gate a.tflite b.tflite --baseline baselines/ --allow-growth 1%
        """,
        (CommandOperand("models", "MODEL", "model files, such as model.onnx; - is stdin", "+"),),
        "budget spaces baseline update allow-growth bind signature target pointer inputs outputs "
        "workspace optimize json markdown junit "
        f"| align max-slowdown workers effort time-limit {_RARE}",
        _table("""
gate: --baseline NAME
    plan or report that was written before: no memory may need more bytes; of several models a
    folder with a file MODEL.plan.json of each; - is stdin
--update
    write the plans as the new baseline, if they are within their budgets
--allow-growth SIZE
    growth over the baseline that passes, per memory: 512, 1KiB or 2% (default: 0)
output: --markdown
    print tables for a comment on a pull request
--junit FILE
    write JUnit's XML; - is stdout
"""),
    ),
    "diff": Command(
        "compare two plan files, value by value",
        "diff old.json new.json --fail-on-growth",
        (
            CommandOperand("before", "BEFORE", "plan file, such as old.json; - is stdin"),
            CommandOperand("after", "AFTER", "plan file, such as new.json"),
        ),
        f"fail-on-growth json | {_LIMITS}",
        _table("""
output: --fail-on-growth
    exit with 1 if an arena needs more bytes
"""),
    ),
    "batch": Command(
        "plan many models for several targets, in worker processes, and write a report",
        "batch models/ --targets tflm,numpy -o report.parquet",
        (
            CommandOperand(
                "sources", "MODEL", "model files, and folders, which are searched for them", "+"
            ),
        ),
        f"bind targets optimize effort time-limit processes executor json output page | {_LIMITS}",
        _table("""
model: --targets TARGET,…
    runners to plan for (see 'arenaplan targets'); by default the one of each format
workers: --processes 1..4096
    worker processes (default: as many as processors)
--executor ADDRESS
    cluster that runs the jobs: dask://HOST:PORT or ray://HOST:PORT
output: --output FILE
    report with a row per model and target: .parquet, .csv or .jsonl; outcomes are kept in
    FILE.journal until it is written, so that a batch that was interrupted goes on
--page FILE
    write a page for people
"""),
        either="processes executor",
    ),
    "pack": Command(
        "pack the buffers of a CSV file",
        """
        pack buffers.csv -o placed.csv
        pack - --time-limit 5 < buffers.csv
        """,
        (
            CommandOperand(
                "file",
                "FILE.csv",
                "- is stdin; columns id,lower,upper,size and optionally alignment,hint,gaps,"
                "offset,space,spaces,group,lo,hi,may_overlap,apart,separate",
            ),
        ),
        "budget spaces align reserve time-limit node-limit seed compact after why json output",
        _table("""
memory: --budget BYTES
    most bytes of each space, such as 48KiB; the search ends as soon as all fit
--spaces NAME=BYTES,…
    bytes of single spaces, such as sram=48KiB,dram=1MiB
--align [SPACE=]BYTES
    divides every offset (default: 1); SPACE=BYTES for one space
--reserve START..END*
    bytes that no buffer gets, such as 0..4KiB; SPACE=START..END of one space; can be repeated
search: --node-limit 0..
    stop after N search nodes (reproducible)
--compact
    move buffers to lower offsets at last, at the peak that was found
--after FILE
    a packing of an earlier problem: few buffers leave its offsets, at the same peak
output: --why
    if the buffers cannot fit, name those that prove it: without any one, the others fit
--output FILE
    write the buffers with offsets, if they fit; - is stdout
"""),
        either="time-limit node-limit",
    ),
    "classic": Command(
        "plan a model as planners of other projects do, for comparison",
        """
        classic model.onnx --strategy nnvm --match-range 8
        classic model.tflite --strategy litert --json
        """,
        (_MODEL,),
        "bind signature strategy match-range auto-search num-temp size-rule parallel-safe align "
        f"inputs workspace json | {_LIMITS}",
        _table("""
strategy: --strategy storage-sharing|nnvm|incremental|litert|tflite-2019
    blocks that values share, as ours or as NNVM; or values one after the other, as ours or as
    TensorFlow Lite
blocks: --match-range 0..
    largest ratio of sizes that share a block (default: 16)
--auto-search
    try ranges, and keep the best
--num-temp 0..
    kinds of temporary values that are counted apart (default: 1)
--size-rule bytes|elements_x4
    measure of a size (default: bytes; nnvm: elements_x4)
--parallel-safe
    {parallel_safe}
one after the other: --align [SPACE=]BYTES
    power of two, in bytes, that divides every offset (default: 64)
--inputs inside|keep = inside
    memory of graph inputs: the arena, until the last reader or, with keep, until the end of a run
--workspace choice
    {workspace}
"""),
        required="strategy",
    ),
    "completion": Command(
        "print the completion of arguments for a shell",
        """
        completion bash > ~/.local/share/bash-completion/completions/arenaplan
        completion fish > ~/.config/fish/completions/arenaplan.fish
        """,
        (CommandOperand("shell", "SHELL", "bash, zsh, fish", None, ("bash", "zsh", "fish")),),
    ),
}
"""Every command. The module with the command's name in this package implements the command."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "plan and look": ("plan", "explain", "inspect", "map", "targets"),
    "run and check": ("run", "check", "prove", "measure"),
    "write": ("export", "fit", "recompute"),
    "compare, many models": ("gate", "diff", "batch"),
    "other": ("pack", "classic", "completion"),
}
"""Command groups in the help."""

EXIT_CODES: Final[Mapping[int, str]] = {
    0: "everything is well",
    1: "a check failed: a plan, a proof, a budget or a baseline does not hold",
    2: "usage, or input that cannot be read",
    3: "content that is not supported",
    4: "a bug of arenaplan",
    130: "interrupted",
}
"""Exit codes, the same for every command."""
