"""What is generated from the parser: completion, the help and its examples."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from arenaplan.cli import main
from arenaplan.cli.config import KEYS
from arenaplan.cli.parser import Parser, make_parser
from arenaplan.cli.syntax import COMMANDS, GENERAL, GROUPS


@pytest.fixture(scope="module")
def whole() -> Parser:
    return make_parser()[0]


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of all commands."""
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options."""
    return [name for name in parser._option_string_actions if name.startswith("--")]


def test_every_command_is_in_one_group_and_has_examples() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    assert all(command.examples for command in COMMANDS.values())


def test_every_example_of_the_help_is_a_command_line(whole: Parser) -> None:
    for name, command in COMMANDS.items():
        for line in command.lines:
            words = shlex.split(line.partition(" > ")[0].partition(" < ")[0].partition(" | ")[0])
            assert words[0] == name
            whole.parse_args(words)


def test_every_command_has_the_general_options(whole: Parser) -> None:
    for parser in commands_of(whole).values():
        assert {"--quiet", "--verbose", "--color", "--progress", "--config"} <= set(
            options_of(parser)
        )
        assert "\nexamples:\n" in parser.format_help()


def test_every_key_of_a_configuration_is_an_option_of_its_commands(whole: Parser) -> None:
    parsers = commands_of(whole)
    for key, names in KEYS.items():
        for name in names or COMMANDS:
            assert f"--{key}" in options_of(parsers[name]), (key, name)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(
    shell: str, whole: Parser, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for name, parser in commands_of(whole).items():
        assert name in text
        for option in options_of(parser):
            assert option.removeprefix("--") in text, (name, option)


def test_bash_completes_commands_options_and_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "arenaplan.bash"
    script.write_text(capsys.readouterr().out)
    cases = [["ga"], ["gate", "--jun"], ["plan", "--target", "tflm:r"], ["plan", "--effort", "f"]]
    lines = [f"source {script}"]
    for words in cases:
        array = " ".join(map(shlex.quote, ["arenaplan", *words]))
        lines.append(f"COMP_WORDS=({array}); COMP_CWORD={len(words)}; _shtab_arenaplan")
        lines.append('echo "${COMPREPLY[@]}"')
    ran = subprocess.run([bash, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["gate", "--junit", "tflm:reference", "fast"]


def test_the_help_is_short_and_the_whole_help_has_every_option(
    whole: Parser, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, parser in commands_of(whole).items():
        listed = {}
        for flag in ("--help", "--help-all"):
            with pytest.raises(SystemExit) as caught:
                main([name, flag])
            assert caught.value.code == 0
            text = capsys.readouterr().out
            listed[flag] = set(
                re.findall(r"^  (?:-., )?(?:-. [A-Z.=a-z]+, )?(--[a-z-]+)", text, re.M)
            )
        assert len(listed["--help"]) <= 20, name
        assert listed["--help-all"] == set(options_of(parser)), name
        hidden = {f"--{option}" for option in (*COMMANDS[name].rare, *GENERAL)}
        assert listed["--help-all"] - listed["--help"] == hidden, name


def test_a_word_means_the_same_in_every_command() -> None:
    """The values of an option are read in one way, whatever the command."""
    seen: dict[str, tuple[str, object]] = {}
    for name, command in COMMANDS.items():
        for option in command.names:
            row = command.option(option)
            meaning = (row.read, bool(row.choices), row.repeats)
            first, known = seen.setdefault(option, (name, meaning))
            assert known == meaning, (option, first, name)
    gone = {"capacity", "no-in-place", "preserve-inputs", "order", "match-range"}
    assert not gone & set(COMMANDS["plan"].names)
    assert not any("capacity" in command.names for command in COMMANDS.values())


def test_the_page_of_commands_has_every_option(whole: Parser) -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    for name, parser in commands_of(whole).items():
        (section,) = re.findall(rf"^### {name}$(.*?)(?=^##|\Z)", page, re.M | re.S)
        own = set(options_of(parser)) - {"--help", "--help-all"}
        own -= {f"--{option}" for option in GENERAL}
        assert set(re.findall(r"^\| .*?`(--[a-z-]+)", section, re.M)) == own, name
