"""
Options from configuration files and the environment.

In decreasing priority, an option comes from the flag on the command line, the variable
``ARENAPLAN_NAME``, the last matching table of the file that sets the option, and the command's
default.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from arenaplan.base.close import did_you_mean
from arenaplan.base.errors import fault
from arenaplan.cli.parser import Parser, parse
from arenaplan.cli.printing import Voice, detail, set_voice
from arenaplan.cli.syntax import COMMANDS

FILE, PROJECT, VARIABLE = "arenaplan.toml", "pyproject.toml", "ARENAPLAN_CONFIG"

_MOST: Final = 1 << 20
"""Largest configuration file, in bytes."""

_PLANNING: Final = frozenset(("plan", "explain", "inspect", "map", "export", "gate"))
_SPACES: Final = _PLANNING - {"explain"}

KEYS: Final[Mapping[str, frozenset[str] | None]] = {
    **dict.fromkeys(("target", "pointer", "profile", "align", "optimize", "workers"), _PLANNING),
    **dict.fromkeys(("max-slowdown", "effort", "inputs", "outputs", "workspace"), _PLANNING),
    "spaces": _SPACES,
    "pin": _SPACES,
    "budget": frozenset(("plan", "export", "gate")),
    "time-limit": _PLANNING | {"recompute"},
    "bind": _PLANNING | {"run", "check", "recompute"},
    "baseline": frozenset(("gate",)),
    "allow-growth": frozenset(("gate",)),
    **dict.fromkeys(("quiet", "verbose", "color", "progress")),
}
"""The options that a file or the environment may set, and the commands that obey; None is all."""

_PATHS: Final = frozenset(("profile", "baseline"))
"""Keys with paths, which are relative to the file's folder."""

_LISTS: Final = frozenset(("bind", "pin"))
"""Keys for options that can be repeated."""

_BUDGETS: Final = frozenset(("budget", "spaces"))
"""Keys that say which memories there are."""

_OF_BUDGETS: Final = _BUDGETS | {"pin"}
"""Keys dropped when a layer with priority sets a budget."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An option's value and the source of the value."""

    value: Any
    source: str
    """For messages, such as ``arenaplan.toml: defaults.target``."""
    folder: Path | None = None
    """The folder that paths start at."""


@dataclass(frozen=True, slots=True)
class Config:
    """The content of a configuration file."""

    path: Path
    defaults: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    """Options by model file pattern."""
    prefix: str = ""
    """Prefix for keys in messages, such as ``tool.arenaplan.``."""

    def settings(self, model: Path | None) -> dict[str, Setting]:
        """Return the settings for a model."""
        folder = self.path.parent
        tables = {"defaults": self.defaults}
        for pattern, table in self.models.items():
            if model is not None and _fits(pattern, model, folder):
                tables[f'models."{pattern}"'] = table
        found: dict[str, Setting] = {}
        for name, table in tables.items():
            where = f"{self.path}: {self.prefix}{name}"
            found = merged(
                found,
                {key: Setting(value, f"{where}.{key}", folder) for key, value in table.items()},
            )
        return found


def merged(less: Mapping[str, Setting], more: Mapping[str, Setting]) -> dict[str, Setting]:
    """Merge two layers of settings; ``more`` has priority."""
    dropped = _OF_BUDGETS if _BUDGETS & more.keys() else frozenset()
    return {key: value for key, value in less.items() if key not in dropped} | dict(more)


def _fits(pattern: str, model: Path, folder: Path) -> bool:
    """Whether a pattern matches the model's name or its path relative to a folder."""
    path = Path(os.path.abspath(model))
    names = [path.name]
    if path.is_relative_to(os.path.abspath(folder)):
        names.append(path.relative_to(os.path.abspath(folder)).as_posix())
    return any(fnmatchcase(name, pattern) for name in names)


def find_config(given: str | None) -> Config | None:
    """
    Return the configuration from the given file or the first file found upward.

    Raises
    ------
    InvalidOption
        If the file cannot be read as configuration.
    OSError
        If the given file cannot be opened or read.
    """
    chosen = os.environ.get(VARIABLE) if given is None else given
    if chosen == "none":
        return None
    if chosen:
        found = _read(Path(chosen))
        if found is None:
            raise fault("InvalidConfig", f"{chosen}: there is no table tool.arenaplan")
        return found
    for folder in _upward():
        for name in (FILE, PROJECT):
            path = folder / name
            if path.is_file():
                found = _read(path)
                if found is not None:
                    return found
    return None


def _upward() -> Iterator[Path]:
    """Yield the working directory, then every parent."""
    try:
        folder = Path.cwd()
    except OSError:
        return  # The working directory was removed.
    yield folder
    yield from folder.parents


def _read(path: Path) -> Config | None:
    """Read a file; None for a project file without a table for arenaplan."""
    with path.open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise fault("InvalidConfig", f"{path}: the file has more than {_MOST:,} bytes")
    is_project = path.name == PROJECT
    if is_project and b"arenaplan" not in data:
        return None
    import tomllib  # Most runs have no file.

    try:
        document: Any = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise fault("InvalidConfig", f"{path}: {error}") from None
    prefix = ""
    if is_project:
        tools = document.get("tool", {})
        document = tools.get("arenaplan") if isinstance(tools, dict) else None
        prefix = "tool.arenaplan."
        if document is None:
            return None
    return _checked(path, document, prefix)


def _checked(path: Path, document: Any, prefix: str) -> Config:
    """Refuse keys without a meaning."""
    _table(path, prefix.rstrip("."), document)
    for name in document:
        if name not in ("defaults", "models"):
            raise fault(
                "InvalidConfig",
                f"{path}: {prefix}{name} has no meaning; there are the tables defaults and "
                f'models."PATTERN"{did_you_mean(name, ("defaults", "models"))}',
            )
    defaults, models = document.get("defaults", {}), document.get("models", {})
    _check_keys(path, f"{prefix}defaults", defaults)
    _table(path, f"{prefix}models", models)
    for pattern, table in models.items():
        _check_keys(path, f'{prefix}models."{pattern}"', table)
    return Config(path, defaults, models, prefix)


def _check_keys(path: Path, where: str, table: Any) -> None:
    _table(path, where, table)
    for key in table:
        if key not in KEYS:
            raise fault(
                "InvalidConfig", f"{path}: {where}.{key} is no option{did_you_mean(key, KEYS)}"
            )


def _table(path: Path, where: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise fault("InvalidConfig", f"{path}: {where} is no table")


def environment() -> dict[str, Setting]:
    """Return the settings in environment variables."""
    found = {}
    for key in KEYS:
        name = f"ARENAPLAN_{key.upper().replace('-', '_')}"
        text = os.environ.get(name)
        if text:
            try:
                value: Any = shlex.split(text) if key in _LISTS else text
            except ValueError as error:
                raise fault("InvalidConfig", f"{name}: {error}") from None
            found[key] = Setting(value, name)
    return found


def words_for(
    command: str,
    parser: Parser,
    settings: Mapping[str, Setting],
    options: argparse.Namespace,
) -> tuple[list[str], dict[str, str]]:
    """
    Return settings as command-line words, and the sources of the options by name.

    ``options`` come from the command line alone.

    Raises
    ------
    InvalidOption
        If the option cannot have a value.
    """
    words: list[str] = []
    sources: dict[str, str] = {}
    for key, setting in settings.items():
        action = parser._option_string_actions.get(f"--{key}")
        commands = KEYS[key]
        if action is None or (commands is not None and command not in commands):
            continue
        if key in _OF_BUDGETS and _is_given(parser, options, _BUDGETS):
            continue
        name = key.replace("-", "_")
        if key not in _LISTS and action.nargs != 0 and _is_given(parser, options, {name}):
            continue  # The flag wins.
        texts = _texts(key, setting, action)
        for text in texts:
            _check(parser, action, text, setting)
            words.append(f"--{key}" if action.nargs == 0 else f"--{key}={text}")
        sources[key] = setting.source
    return words, sources


def _is_given(parser: argparse.ArgumentParser, options: argparse.Namespace, keys: Set[str]) -> bool:
    """Whether the command line has any of the given options."""
    return any(getattr(options, key, None) not in (None, parser.get_default(key)) for key in keys)


def _texts(key: str, setting: Setting, action: argparse.Action) -> list[str]:
    """Return a value as words: several words for an option that can be repeated."""
    value = setting.value
    if action.nargs == 0:
        if isinstance(value, str) and value.lower() in _SWITCH:
            value = _SWITCH[value.lower()]
        if not isinstance(value, bool):
            raise fault("InvalidConfig", f"{setting.source} is {value!r}, neither true nor false")
        return [""] if value else []
    if isinstance(value, Mapping):
        pairs = [
            f"{name}={part}"
            for name, parts in value.items()
            for part in (parts if isinstance(parts, list) else [parts])
        ]
        return pairs if key in _LISTS else [",".join(pairs)]
    if isinstance(value, list):
        texts = [_text(part, setting) for part in value]
        return texts if key in _LISTS else [",".join(texts)]
    text = _text(value, setting)
    if key in _PATHS and setting.folder is not None and text != "-":
        path = os.path.join(setting.folder, text)
        inside = os.path.realpath(setting.folder)
        # A stranger's checkout must not choose the file that 'gate --update' replaces.
        if os.path.commonpath([inside, os.path.realpath(path)]) != inside:
            raise fault(
                "InvalidConfig", f"{setting.source}: {text!r} leads out of the folder {inside!r}"
            )
        return [path]
    return [text]


_SWITCH: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _text(value: Any, setting: Setting) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise fault("InvalidConfig", f"{setting.source} is {value!r}, neither text nor a number")
    return str(value)


def _check(parser: Parser, action: argparse.Action, text: str, setting: Setting) -> None:
    """Refuse a value that the option cannot have."""
    if action.nargs == 0:
        return
    try:
        parser._check_value(action, parser._get_value(action, text))
    except argparse.ArgumentError as error:
        raise fault("InvalidConfig", f"{setting.source}: {error.message}") from None


# -- all sources ------------------------------------------------------------------

_WITHOUT = frozenset(("completion", "targets"))
"""Commands that must work wherever a shell stands."""


def with_settings(
    parser: Parser, arguments: Sequence[str], position: int, options: argparse.Namespace
) -> argparse.Namespace:
    """
    Add options from the environment and the configuration file.

    Parameters
    ----------
    parser : Parser
        The command-line parser.
    arguments : sequence of str
        The command-line words.
    position : int
        Index of the command in ``arguments``.
    options : argparse.Namespace
        The options parsed from ``arguments`` alone.

    Returns
    -------
    argparse.Namespace
        The options. For commands with several models, the function ``with_model`` returns the
        options for one model file.
    """
    chosen: Parser = options.parser
    command = arguments[position]
    config = None if command in _WITHOUT else find_config(options.config)

    def with_model(model: Path | None) -> argparse.Namespace:
        layers = merged({} if config is None else config.settings(model), environment())
        words, sources = words_for(command, chosen, layers, options)
        # The command line's values of lists follow, and flags that equal their default win.
        full = [*arguments[: position + 1], *words, *arguments[position + 1 :]]
        found = parse(parser, full)
        found.with_model = with_model
        set_voice(Voice(found.quiet, found.verbose, found.color, sources))
        for name, source in sources.items():
            detail(f"--{name} from {source}")
        return found

    assert command in COMMANDS
    model = getattr(options, "model", None)
    return with_model(model if isinstance(model, Path) else None)
